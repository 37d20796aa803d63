//! The checked entries: a fast path over all arguments, and a cold block for what it refuses.
//!
//! The fast path accepts the common call (tensors that are not null, of the right type, contiguous,
//! no extent 0) in nanoseconds. A failing test jumps to the cold block, where the runtime checks
//! everything again, in order. It raises an error, or accepts the call and returns the arguments.
//! So the fast path must accept nothing that the runtime refuses; it may refuse anything.

use super::checks::{ArgumentChecks, CheckedParam, ExtentCheck, dlpack_dtype};
use super::dispatch::{Dispatch, by_variant};
use super::launch::{Cuda, DeviceStream};
use super::{Env, param_type};
use crate::codegen::common::clif_type;
use crate::ir::visit::checked_tensors;
use crate::ir::{DType, Kernel};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, MemFlagsData, Value, types};
use cranelift_module::{DataId, FuncId};

/// The calling convention of a checked entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Convention {
    /// `DLTensor` pointers and typed scalars.
    Dl,
    /// An array of 16-byte cells.
    Packed,
}

/// The functions and data that a checked entry refers to.
#[derive(Clone)]
pub(super) struct Functions<'a> {
    /// One for each variant that the entry calls.
    pub bodies: &'a [FuncId],
    /// The choice among several bodies.
    pub dispatch: Option<Dispatch>,
    pub check: Option<FuncId>,
    pub blob: DataId,
    pub check_call: FuncId,
    pub fail_check: FuncId,
    pub fail_body: FuncId,
    pub fp: (FuncId, FuncId),
    pub cpu: DataId,
    /// The launches, if tensors are on a GPU.
    pub cuda: Option<Cuda<'a>>,
}

/// Most pairs of tensors that the fast path compares; beyond, the code would become large.
const MAX_PAIRS: usize = 64;

/// Emits `build` in the default floating-point mode, between calls of the functions `fp`.
pub(super) fn with_default_mode(
    env: &mut Env<'_, '_>,
    fp: (FuncId, FuncId),
    build: impl FnOnce(&mut Env<'_, '_>) -> Value,
) -> Value {
    let call = env.call(fp.0, &[]);
    let saved = env.builder.inst_results(call)[0];
    let result = build(env);
    let restore = env.builder.create_block();
    let done = env.builder.create_block();
    env.builder.set_cold_block(restore);
    env.builder.ins().brif(saved, restore, &[], done, &[]);
    env.builder.switch_to_block(restore);
    env.call(fp.1, &[saved]);
    env.builder.ins().jump(done, &[]);
    env.builder.switch_to_block(done);
    result
}

/// Emits the body of a checked entry. Returns its result.
pub(super) fn emit_checked(
    env: &mut Env<'_, '_>,
    kernel: &Kernel,
    checks: &ArgumentChecks,
    functions: &Functions<'_>,
    convention: Convention,
    args: &[Value],
) -> Value {
    with_default_mode(env, functions.fp, |env| {
        let cold = env.builder.create_block();
        env.builder.set_cold_block(cold);
        let run = env.builder.create_block();
        let done = env.builder.create_block();
        let result = env.builder.append_block_param(done, types::I32);
        let mut slot_types: Vec<_> = kernel.params.iter().map(param_type).collect();
        slot_types.resize(checks.slots, types::I64);
        let slots: Vec<Value> =
            slot_types.iter().map(|ty| env.builder.append_block_param(run, *ty)).collect();

        let mut checked = CheckedEmitter { env, kernel, checks, functions, convention, cold };
        match checked.fast_path(args) {
            Some(values) => checked.jump(run, &values),
            None => checked.jump(cold, &[]),
        }
        checked.env.builder.switch_to_block(cold);
        checked.complete_check(args, run, done);
        checked.env.builder.switch_to_block(run);
        checked.run(args, &slots, done);
        checked.env.builder.switch_to_block(done);
        result
    })
}

pub(super) struct CheckedEmitter<'e, 'a, 'b, 'c> {
    pub(super) env: &'e mut Env<'a, 'b>,
    kernel: &'c Kernel,
    checks: &'c ArgumentChecks,
    functions: &'c Functions<'c>,
    convention: Convention,
    cold: Block,
}

/// A tensor that need not be contiguous, after the test of its shape. No extent is 0.
pub(super) struct View<'c> {
    /// The address of the `DLTensor`.
    pub tensor: Value,
    pub dtype: DType,
    pub extents: &'c [ExtentCheck],
    pub strides: &'c [ExtentCheck],
    /// The extents that are not constant.
    pub actual: Vec<Option<Value>>,
}

/// The memory of a checked tensor.
struct MemoryRange {
    start: Value,
    bytes: Bytes,
    output: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Bytes {
    Const(i64),
    Value(Value),
}

impl CheckedEmitter<'_, '_, '_, '_> {
    /// Emits the fast path. Returns the slots, or `None` if the kernel has no fast path.
    fn fast_path(&mut self, args: &[Value]) -> Option<Vec<Value>> {
        if !self.has_fast_path() {
            return None;
        }
        if let Some(dispatch) = self.functions.dispatch {
            let selected = dispatch.load(self.env);
            self.require(selected);
        } else if self.checks.features != 0 {
            let address = self.env.address(self.functions.cpu);
            let found = self.load(types::I32, address, 0);
            let ins = self.env.builder.ins();
            let found = ins.band_imm_u(found, i64::from(self.checks.features));
            self.require_equal(found, i64::from(self.checks.features));
        }
        if self.convention == Convention::Packed {
            self.require_equal(args[2], self.checks.args as i64);
        }
        let mut slots: Vec<Option<Value>> = vec![None; self.checks.slots];
        let (mut spans, mut views) = (Vec::new(), Vec::new());
        for (index, param) in self.checks.params.iter().enumerate() {
            match param {
                CheckedParam::Tensor { dtype, extents, strides, output, arg, alignment } => {
                    let tensor = self.tensor_argument(args, *arg);
                    let kind = (*dtype, *alignment);
                    let layout = (&extents[..], strides.is_some());
                    let (span, actual) = self.tensor(tensor, kind, layout, *output, &mut slots);
                    slots[index] = Some(span.start);
                    if let Some(strides) = strides {
                        let view = View { tensor, dtype: *dtype, extents, strides, actual };
                        views.push((spans.len(), view));
                    }
                    spans.push(span);
                }
                CheckedParam::Scalar { dtype, arg } => {
                    slots[index] = Some(self.scalar_argument(args, *arg, *dtype));
                }
                CheckedParam::Bound => {}
            }
        }
        if let Some(slot) = self.checks.device_slot {
            let none = self.env.builder.ins().iconst(types::I64, -1);
            slots[slot].get_or_insert(none);
        }
        // A stride may equal an extent of any tensor.
        for (at, view) in views {
            spans[at].bytes = self.view(&view, spans[at].output, &mut slots);
        }
        self.require_disjoint(&spans);
        let filled = "every run-time integer and extent is in a shape";
        Some(slots.into_iter().map(|slot| slot.expect(filled)).collect())
    }

    fn has_fast_path(&self) -> bool {
        let tensors =
            || self.checks.params.iter().filter(|p| matches!(p, CheckedParam::Tensor { .. }));
        let outputs = tensors().filter(|p| matches!(p, CheckedParam::Tensor { output: true, .. }));
        let ordinary = |param: &CheckedParam| match param {
            CheckedParam::Tensor { dtype, extents, .. } => extent_limit(*dtype, extents).is_some(),
            CheckedParam::Scalar { dtype, .. } => {
                self.convention == Convention::Dl || !dtype.is_half()
            }
            CheckedParam::Bound => true,
        };
        tensors().count() * outputs.count() <= MAX_PAIRS && self.checks.params.iter().all(ordinary)
    }

    /// Loads the address of an argument's `DLTensor`.
    fn tensor_argument(&mut self, args: &[Value], arg: usize) -> Value {
        if self.convention == Convention::Dl {
            self.require(args[arg]);
            return args[arg];
        }
        let kind = self.load(types::I32, args[1], 16 * arg as i32);
        let pointer = self.load(types::I64, args[1], 16 * arg as i32 + 8);
        let builder = &mut self.env.builder;
        let (object, other) = (builder.create_block(), builder.create_block());
        let found = builder.create_block();
        let tensor = builder.append_block_param(found, types::I64);
        let is_object = builder.ins().icmp_imm_u(IntCC::Equal, kind, 70);
        builder.ins().brif(is_object, object, &[], other, &[]);
        builder.switch_to_block(object);
        let inner = builder.ins().iadd_imm_u(pointer, 24);
        self.jump(found, &[inner]);
        self.env.builder.switch_to_block(other);
        self.require_equal(kind, 7);
        self.require(pointer);
        self.jump(found, &[pointer]);
        self.env.builder.switch_to_block(found);
        tensor
    }

    /// Emits the tests of one tensor (docs/ABI.md, "What the checked entries check"), from `ndim`
    /// on.
    fn tensor(
        &mut self,
        tensor: Value,
        (dtype, alignment): (DType, u32),
        (extents, has_strides): (&[ExtentCheck], bool),
        output: bool,
        slots: &mut [Option<Value>],
    ) -> (MemoryRange, Vec<Option<Value>>) {
        let kind = self.load(types::I64, tensor, 16);
        let expected = extents.len() as i64 | i64::from(dlpack_dtype(dtype)) << 32;
        self.require_equal(kind, expected);
        let device = self.load(types::I32, tensor, 8);
        self.require_equal(device, i64::from(self.checks.device_type()));
        if let Some(slot) = self.checks.device_slot {
            self.device_number(tensor, &mut slots[slot]);
        }
        let mut bytes = Bytes::Const(dtype.bytes() as i64);
        let mut actual = Vec::new();
        if !extents.is_empty() {
            actual = self.shape(tensor, dtype, extents, slots);
            if !has_strides {
                bytes = self.strides(tensor, dtype, extents, &actual);
            }
        }
        let data = self.load(types::I64, tensor, 0);
        self.require(data);
        let offset = self.load(types::I64, tensor, 40);
        let start = self.env.builder.ins().iadd(data, offset);
        if alignment > 1 {
            let low = self.env.builder.ins().band_imm_u(start, i64::from(alignment) - 1);
            self.require_equal(low, 0);
        }
        (MemoryRange { start, bytes, output }, actual)
    }

    /// Requires that all tensors are on the GPU of the first one.
    fn device_number(&mut self, tensor: Value, slot: &mut Option<Value>) {
        let number = self.load(types::I32, tensor, 12);
        let number = self.env.builder.ins().sextend(types::I64, number);
        match *slot {
            None => {
                let ins = self.env.builder.ins();
                let there = ins.icmp_imm_s(IntCC::SignedGreaterThanOrEqual, number, 0);
                self.require(there);
                *slot = Some(number);
            }
            Some(first) => {
                let same = self.env.builder.ins().icmp(IntCC::Equal, number, first);
                self.require(same);
            }
        }
    }

    /// Compares the shape. Returns the extents that are not constant.
    fn shape(
        &mut self,
        tensor: Value,
        dtype: DType,
        extents: &[ExtentCheck],
        slots: &mut [Option<Value>],
    ) -> Vec<Option<Value>> {
        let limit = extent_limit(dtype, extents).expect("a fast path");
        let shape = self.load(types::I64, tensor, 24);
        self.require(shape);
        let mut actual = Vec::new();
        for (k, extent) in extents.iter().enumerate() {
            let value = self.load(types::I64, shape, 8 * k as i32);
            match *extent {
                ExtentCheck::Const(expected) => self.require_equal(value, expected),
                ExtentCheck::Equals(slot) => {
                    let bound = slots[slot].expect("bound by an earlier dimension");
                    let same = self.env.builder.ins().icmp(IntCC::Equal, value, bound);
                    self.require(same);
                }
                ExtentCheck::Binds(slot) | ExtentCheck::Actual(slot) => slots[slot] = Some(value),
            }
            if matches!(extent, ExtentCheck::Const(_)) {
                actual.push(None);
                continue;
            }
            // Tests 1 <= value <= limit by one comparison.
            let ins = self.env.builder.ins();
            let below = ins.iadd_imm_s(value, -1);
            let ins = self.env.builder.ins();
            let fits = ins.icmp_imm_u(IntCC::UnsignedLessThan, below, limit);
            self.require(fits);
            actual.push(Some(value));
        }
        actual
    }

    /// Requires row-major strides. Returns the size in bytes.
    fn strides(
        &mut self,
        tensor: Value,
        dtype: DType,
        extents: &[ExtentCheck],
        actual: &[Option<Value>],
    ) -> Bytes {
        let strides = self.load(types::I64, tensor, 32);
        let given = self.env.builder.create_block();
        let contiguous = self.env.builder.create_block();
        // The products of the extents after each dimension, which both branches need.
        let mut steps = vec![Bytes::Const(1)];
        for (extent, value) in extents.iter().zip(actual).rev() {
            let step = self.multiply(*steps.last().expect("not empty"), *extent, *value);
            steps.push(step);
        }
        let elements = steps.pop().expect("not empty");
        let size = self.multiply(elements, ExtentCheck::Const(dtype.bytes() as i64), None);
        self.env.builder.ins().brif(strides, given, &[], contiguous, &[]);
        self.env.builder.switch_to_block(given);
        for (k, step) in (0..extents.len()).zip(steps.into_iter().rev()) {
            if extents[k] == ExtentCheck::Const(1) {
                continue;
            }
            let stride = self.load(types::I64, strides, 8 * k as i32);
            match step {
                Bytes::Const(step) => self.require_equal(stride, step),
                Bytes::Value(step) => {
                    let same = self.env.builder.ins().icmp(IntCC::Equal, stride, step);
                    self.require(same);
                }
            }
        }
        self.jump(contiguous, &[]);
        self.env.builder.switch_to_block(contiguous);
        size
    }

    pub(super) fn multiply(
        &mut self,
        a: Bytes,
        extent: ExtentCheck,
        value: Option<Value>,
    ) -> Bytes {
        let ins = self.env.builder.ins();
        match (a, extent, value) {
            (Bytes::Const(a), ExtentCheck::Const(b), _) => Bytes::Const(a * b),
            (Bytes::Value(a), ExtentCheck::Const(b), _) => Bytes::Value(ins.imul_imm_s(a, b)),
            (Bytes::Const(1), _, Some(b)) => Bytes::Value(b),
            (Bytes::Const(a), _, Some(b)) => Bytes::Value(ins.imul_imm_s(b, a)),
            (Bytes::Value(a), _, Some(b)) => Bytes::Value(ins.imul(a, b)),
            (_, _, None) => crate::bug!("an extent that is not constant has a value"),
        }
    }

    /// Requires that no output shares memory with another tensor. No size is 0 here.
    fn require_disjoint(&mut self, spans: &[MemoryRange]) {
        let ends: Vec<Value> = spans
            .iter()
            .map(|span| match span.bytes {
                Bytes::Const(bytes) => self.env.builder.ins().iadd_imm_s(span.start, bytes),
                Bytes::Value(bytes) => self.env.builder.ins().iadd(span.start, bytes),
            })
            .collect();
        for (i, out) in spans.iter().enumerate().filter(|(_, span)| span.output) {
            for (j, other) in spans.iter().enumerate() {
                if i == j || (other.output && j > i) {
                    continue;
                }
                let cc = IntCC::UnsignedLessThanOrEqual;
                let before = self.env.builder.ins().icmp(cc, ends[i], other.start);
                let after = self.env.builder.ins().icmp(cc, ends[j], out.start);
                let apart = self.env.builder.ins().bor(before, after);
                self.require(apart);
            }
        }
    }

    /// Loads a scalar in its declared type.
    fn scalar_argument(&mut self, args: &[Value], arg: usize, dtype: DType) -> Value {
        if self.convention == Convention::Dl {
            return args[arg];
        }
        let kind = self.load(types::I32, args[1], 16 * arg as i32);
        let expected = match dtype {
            DType::Bool => 2,
            _ if dtype.is_float() => 3,
            _ => 1,
        };
        self.require_equal(kind, expected);
        let at = 16 * arg as i32 + 8;
        match dtype {
            DType::Float64 => self.load(types::F64, args[1], at),
            DType::Float32 => {
                let value = self.load(types::F64, args[1], at);
                self.env.builder.ins().fdemote(types::F32, value)
            }
            DType::Bool => {
                let value = self.load(types::I64, args[1], at);
                self.env.nonzero(value)
            }
            _ => self.int_argument(args[1], at, dtype),
        }
    }

    /// Loads an integer and requires that it fits its type.
    fn int_argument(&mut self, cells: Value, at: i32, dtype: DType) -> Value {
        let value = self.load(types::I64, cells, at);
        if dtype == DType::Uint64 {
            let positive =
                self.env.builder.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, value, 0);
            self.require(positive);
        }
        if dtype.bytes() == 8 {
            return value;
        }
        let narrow = self.env.builder.ins().ireduce(clif_type(dtype), value);
        let ins = self.env.builder.ins();
        let wide = if dtype.is_signed() {
            ins.sextend(types::I64, narrow)
        } else {
            ins.uextend(types::I64, narrow)
        };
        let same = self.env.builder.ins().icmp(IntCC::Equal, wide, value);
        self.require(same);
        narrow
    }

    /// Calls the runtime's complete check. Jumps to `run` with the slots, or to `done` with -1.
    fn complete_check(&mut self, args: &[Value], run: Block, done: Block) {
        if let Some(dispatch) = self.functions.dispatch {
            let is_packed = self.convention == Convention::Packed;
            let result = dispatch.select(self.env, Some(self.functions.blob), is_packed);
            let chosen = self.env.builder.create_block();
            self.env.builder.set_cold_block(chosen);
            let refused = [BlockArg::Value(result)];
            self.env.builder.ins().brif(result, done, &refused, chosen, &[]);
            self.env.builder.switch_to_block(chosen);
        }
        let blob = self.env.address(self.functions.blob);
        let slots = self.env.stack_words(self.checks.slots);
        let slots = self.env.stack_address(slots);
        let call = match self.convention {
            Convention::Packed => {
                self.env.call(self.functions.check_call, &[blob, args[1], args[2], slots])
            }
            Convention::Dl => {
                let words = self.env.stack_words(args.len());
                for (k, arg) in args.iter().enumerate() {
                    self.env.builder.ins().stack_store(types::I64, *arg, words, 8 * k as i32);
                }
                let words = self.env.stack_address(words);
                self.env.call(self.functions.check_call, &[blob, words, slots])
            }
        };
        let result = self.env.builder.inst_results(call)[0];
        let accepted = self.env.builder.create_block();
        self.env.builder.set_cold_block(accepted);
        let refused = [BlockArg::Value(result)];
        self.env.builder.ins().brif(result, done, &refused, accepted, &[]);
        self.env.builder.switch_to_block(accepted);
        let mut values = Vec::new();
        for slot in 0..self.checks.slots {
            let ty = self.kernel.params.get(slot).map_or(types::I64, param_type);
            values.push(self.load(ty, slots, 8 * slot as i32));
        }
        self.jump(run, &values);
    }

    /// Emits the kernel's own check, then its body; jumps to `done`.
    fn run(&mut self, args: &[Value], slots: &[Value], done: Block) {
        let raw = &slots[..self.kernel.params.len()];
        let place = self.place(args, slots);
        if let Some(check) = self.functions.check {
            let numbers = self.env.stack_words(4);
            let numbers = self.env.stack_address(numbers);
            let dims = self.kernel.params.len() + self.kernel.dims.len();
            let mut checked = slots[..dims].to_vec();
            let copies = self.copy_checked_inputs(place, &mut checked, slots, done);
            let call = self.env.call(check, &[&checked[..], &[numbers]].concat());
            let code = self.env.builder.inst_results(call)[0];
            for copy in copies {
                let cuda = self.functions.cuda.as_ref().expect("copies are made from a GPU");
                self.env.call(cuda.release, &[copy]);
            }
            let (failed, passed) = self.cold_branch(code);
            self.env.builder.switch_to_block(failed);
            let packed = self.packed_flag();
            let blob = self.env.address(self.functions.blob);
            let fail = self.functions.fail_check;
            let call = self.env.call(fail, &[blob, code, numbers, packed]);
            let result = self.env.builder.inst_results(call)[0];
            self.jump(done, &[result]);
            self.env.builder.switch_to_block(passed);
        }
        let mut body_args = raw.to_vec();
        body_args.extend(place.iter().flat_map(|place| [place.device, place.stream, place.packed]));
        let bodies = self.functions.bodies;
        let code = by_variant(self.env, self.functions.dispatch, None, |env, variant| {
            let call = env.call(bodies[variant], &body_args);
            env.builder.inst_results(call)[0]
        });
        let (failed, passed) = self.cold_branch(code);
        self.env.builder.switch_to_block(failed);
        if place.is_some() {
            // The error was raised.
            let minus_one = self.env.builder.ins().iconst(types::I32, -1);
            self.jump(done, &[minus_one]);
            self.env.builder.switch_to_block(passed);
            let zero = self.env.builder.ins().iconst(types::I32, 0);
            return self.jump(done, &[zero]);
        }
        let packed = self.packed_flag();
        let blob = self.env.address(self.functions.blob);
        let call = self.env.call(self.functions.fail_body, &[blob, code, packed]);
        let result = self.env.builder.inst_results(call)[0];
        self.jump(done, &[result]);
        self.env.builder.switch_to_block(passed);
        let zero = self.env.builder.ins().iconst(types::I32, 0);
        self.jump(done, &[zero]);
    }

    /// The GPU and the stream of a call, in a module for GPUs.
    fn place(&mut self, args: &[Value], slots: &[Value]) -> Option<DeviceStream> {
        let (cuda, slot) = (self.functions.cuda?, self.checks.device_slot?);
        let device = self.env.builder.ins().ireduce(types::I32, slots[slot]);
        let stream = match self.convention {
            Convention::Dl => *args.last().expect("the stream comes last"),
            Convention::Packed => {
                let call = self.env.call(cuda.stream, &[device]);
                self.env.builder.inst_results(call)[0]
            }
        };
        Some(DeviceStream { device, stream, packed: self.packed_flag() })
    }

    /// Copies the inputs that the kernel's own check reads from the GPU, because the check runs on
    /// the CPU, and replaces them in `checked`. Returns the copies, to be released.
    fn copy_checked_inputs(
        &mut self,
        place: Option<DeviceStream>,
        checked: &mut [Value],
        slots: &[Value],
        done: Block,
    ) -> Vec<Value> {
        let (Some(place), Some(cuda)) = (place, self.functions.cuda) else { return Vec::new() };
        let mut copies: Vec<Value> = Vec::new();
        for index in checked_tensors(self.kernel) {
            let CheckedParam::Tensor { dtype, extents, .. } = &self.checks.params[index] else {
                crate::bug!("only tensors are read")
            };
            let mut bytes = Bytes::Const(dtype.bytes() as i64);
            for extent in extents {
                let value = match *extent {
                    ExtentCheck::Const(_) => None,
                    ExtentCheck::Binds(slot)
                    | ExtentCheck::Equals(slot)
                    | ExtentCheck::Actual(slot) => Some(slots[slot]),
                };
                bytes = self.multiply(bytes, *extent, value);
            }
            if dtype.bits() < 8 {
                bytes = self.half(bytes);
            }
            let bytes = match bytes {
                Bytes::Const(bytes) => self.env.builder.ins().iconst(types::I64, bytes),
                Bytes::Value(bytes) => bytes,
            };
            let blob = self.functions.blob;
            let (code, copy) = cuda.fetch(self.env, blob, place, slots[index], bytes);
            let (failed, passed) = self.cold_branch(code);
            self.env.builder.switch_to_block(failed);
            for copy in &copies {
                self.env.call(cuda.release, &[*copy]);
            }
            let minus_one = self.env.builder.ins().iconst(types::I32, -1);
            self.jump(done, &[minus_one]);
            self.env.builder.switch_to_block(passed);
            checked[index] = copy;
            copies.push(copy);
        }
        copies
    }

    /// Returns the bytes of elements of 4 bits.
    fn half(&mut self, elements: Bytes) -> Bytes {
        match elements {
            Bytes::Const(elements) => Bytes::Const((elements + 1) / 2),
            Bytes::Value(elements) => {
                let more = self.env.builder.ins().iadd_imm_s(elements, 1);
                Bytes::Value(self.env.builder.ins().ushr_imm_u(more, 1))
            }
        }
    }

    /// Branches on a failure code. Returns the blocks for a code other than 0, and for 0.
    fn cold_branch(&mut self, code: Value) -> (Block, Block) {
        let builder = &mut self.env.builder;
        let (failed, passed) = (builder.create_block(), builder.create_block());
        builder.set_cold_block(failed);
        builder.ins().brif(code, failed, &[], passed, &[]);
        (failed, passed)
    }

    fn packed_flag(&mut self) -> Value {
        let packed = i64::from(self.convention == Convention::Packed);
        self.env.builder.ins().iconst(types::I32, packed)
    }

    /// Continues if `condition` is not 0, else jumps to the cold block.
    pub(super) fn require(&mut self, condition: Value) {
        let next = self.env.builder.create_block();
        self.env.builder.ins().brif(condition, next, &[], self.cold, &[]);
        self.env.builder.switch_to_block(next);
    }

    pub(super) fn require_equal(&mut self, value: Value, expected: i64) {
        let equal = self.env.builder.ins().icmp_imm_s(IntCC::Equal, value, expected);
        self.require(equal);
    }

    /// Loads from aligned memory that is not null.
    pub(super) fn load(&mut self, ty: types::Type, address: Value, offset: i32) -> Value {
        self.env.builder.ins().load(ty, MemFlagsData::trusted(), address, offset)
    }

    pub(super) fn jump(&mut self, block: Block, values: &[Value]) {
        let values: Vec<BlockArg> = values.iter().map(|value| BlockArg::Value(*value)).collect();
        self.env.builder.ins().jump(block, &values);
    }
}

/// The largest value of each run-time extent with which neither the size in bytes nor a stride can
/// overflow; `None` if a constant extent is 0 or the constants alone overflow.
fn extent_limit(dtype: DType, extents: &[ExtentCheck]) -> Option<i64> {
    let mut constant = dtype.bytes() as i64;
    let mut variables = 0;
    for extent in extents {
        match extent {
            ExtentCheck::Const(value) if *value < 1 => return None,
            ExtentCheck::Const(value) => constant = constant.checked_mul(*value)?,
            _ => variables += 1,
        }
    }
    let bits = 62u32.checked_sub(64 - (constant - 1).leading_zeros())?;
    Some(1 << bits.checked_div(variables).unwrap_or(0))
}

//! The function that entries of kernels for GPUs call in place of a compiled body.
//!
//! `NAME.launch(params…, device, stream, packed)` computes the grids and sizes of a call by the
//! compiled `NAME.plan.body` and passes them to the runtime (`src/runtime/cuda.c`, which declares
//! the layouts written here). On failure it raises the error before it returns.

use super::checks::{Texts, put_u32};
use super::{Emitter, EntryKernel, Env, accept, param_type};
use crate::codegen::ptx::{LaunchParam, PtxKernel};
use crate::target::Target;
use cranelift_codegen::ir::{self, InstBuilder, StackSlot, Value, types};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module};

/// The data and functions that the entries of a module for GPUs share.
#[derive(Clone, Copy)]
pub(super) struct Cuda<'a> {
    /// All kernels, in the order of the module.
    kernels: &'a [EntryKernel<'a>],
    /// The PTX text, NUL-terminated.
    ptx: DataId,
    /// `struct cuda_state`.
    state: DataId,
    /// The compute capability, and whether only this one will do; the kernels' blobs begin with it.
    capability: (u32, bool),
    launch: FuncId,
    fetch: FuncId,
    /// Returns the current stream of a device, for packed calls.
    pub stream: FuncId,
    /// Releases a copy that `fetch` made.
    pub release: FuncId,
}

/// The device and stream of a call.
#[derive(Clone, Copy)]
pub(super) struct DeviceStream {
    /// The device number, an i32; -1 is the device of the current context.
    pub device: Value,
    /// i64.
    pub stream: Value,
    /// i32.
    pub packed: Value,
}

/// Fields of `struct cuda_call`, in 64-bit words.
mod call {
    pub const STATE: i32 = 0;
    pub const KERNEL: i32 = 1;
    pub const SIGNATURE: i32 = 2;
    pub const PTX: i32 = 3;
    pub const WORDS: i32 = 4;
    pub const NUMBERS: i32 = 5;
    pub const TEMPORARIES: i32 = 6;
    pub const VALUES: i32 = 7;
    pub const STREAM: i32 = 8;
    /// And `packed` in its upper half.
    pub const DEVICE: i32 = 9;
    pub const SIZE: usize = 10;
}

impl<'a> Cuda<'a> {
    /// Defines the data that all kernels of a module share.
    pub fn new(
        emit: &mut Emitter<'_>,
        text: &str,
        kernels: &'a [EntryKernel<'a>],
        target: &Target,
    ) -> Cuda<'a> {
        use types::{I32, I64};
        let gpu = target.gpu.expect("PTX is for GPUs");
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        let ptx = emit.data(&bytes, None);
        let state = accept(emit.module.declare_anonymous_data(true, false));
        let mut description = DataDescription::new();
        description.define_zeroinit(16);
        description.set_align(8);
        accept(emit.module.define_data(state, &description));
        let mut import = |name: &str, params: &[types::Type], result: Option<types::Type>| {
            let convention = emit.baseline.default_call_conv();
            let signature = super::c_signature(convention, params, result);
            accept(emit.module.declare_function(name, Linkage::Import, &signature))
        };
        Cuda {
            kernels,
            ptx,
            state,
            capability: (gpu.capability, gpu.specific),
            launch: import("tec_rt_cuda_launch", &[I64], Some(I32)),
            fetch: import("tec_rt_cuda_fetch", &[I64, I64, I64, I64], Some(I32)),
            stream: import("tec_rt_cuda_stream", &[I32], Some(I64)),
            release: import("tec_rt_workspace_release", &[I64], None),
        }
    }

    /// Defines `NAME.launch` of a kernel; `blob` describes its signature.
    pub fn launch_function(
        &self,
        emit: &mut Emitter<'_>,
        entry: &EntryKernel<'_>,
        blob: DataId,
    ) -> FuncId {
        let launches = launches_of(entry);
        let kernel_blob = emit.data(&self.blob(launches), None);
        let mut params: Vec<types::Type> = entry.kernel.params.iter().map(param_type).collect();
        params.extend([types::I32, types::I64, types::I32]);
        let name = format!("{}.launch", entry.kernel.name);
        let most = launches.launches.iter().map(|launch| launch.params.len()).max();
        emit.function(&name, Linkage::Local, &params, Some(types::I32), |env, args| {
            let (raw, place) = args.split_at(entry.kernel.params.len());
            let place = DeviceStream { device: place[0], stream: place[1], packed: place[2] };
            let words = env.stack_words(raw.len());
            for (k, arg) in raw.iter().enumerate() {
                env.builder.ins().stack_store(types::I64, *arg, words, 8 * k as i32);
            }
            let numbers = env.stack_words(launches.numbers().len());
            let numbers = env.stack_address(numbers);
            env.call(entry.functions.body, &[raw, &[numbers]].concat());
            let (data, temporaries, values) = (
                env.stack_address(words),
                env.stack_words(launches.workspaces.len()),
                env.stack_words(most.unwrap_or(0)),
            );
            let (temporaries, values) = (env.stack_address(temporaries), env.stack_address(values));
            let call = self.call_struct(env, blob, place);
            let kernel = env.address(kernel_blob);
            for (field, value) in [
                (call::KERNEL, kernel),
                (call::WORDS, data),
                (call::NUMBERS, numbers),
                (call::TEMPORARIES, temporaries),
                (call::VALUES, values),
            ] {
                env.builder.ins().stack_store(types::I64, value, call, 8 * field);
            }
            let address = env.stack_address(call);
            let call = env.call(self.launch, &[address]);
            env.builder.inst_results(call)[0]
        })
    }

    /// Copies `bytes` from the device's `address`. Returns the failure code and the address of the
    /// copy.
    pub fn fetch(
        &self,
        env: &mut Env<'_, '_>,
        blob: DataId,
        place: DeviceStream,
        address: Value,
        bytes: Value,
    ) -> (Value, Value) {
        let call = self.call_struct(env, blob, place);
        let call = env.stack_address(call);
        let copy = env.stack_words(1);
        let copy_address = env.stack_address(copy);
        let call = env.call(self.fetch, &[call, address, bytes, copy_address]);
        let code = env.builder.inst_results(call)[0];
        (code, env.builder.ins().stack_load(types::I64, types::I64, copy, 0))
    }

    /// A `struct cuda_call` without the fields that only launches need.
    fn call_struct(&self, env: &mut Env<'_, '_>, blob: DataId, place: DeviceStream) -> StackSlot {
        let call = env.stack_words(call::SIZE);
        let (state, signature) = (env.address(self.state), env.address(blob));
        let ptx = env.address(self.ptx);
        for (field, value) in [
            (call::STATE, state),
            (call::SIGNATURE, signature),
            (call::PTX, ptx),
            (call::STREAM, place.stream),
        ] {
            env.builder.ins().stack_store(types::I64, value, call, 8 * field);
        }
        let at = 8 * call::DEVICE;
        env.builder.ins().stack_store(types::I64, place.device, call, at);
        env.builder.ins().stack_store(types::I64, place.packed, call, at + 4);
        call
    }

    /// The bytes of a `struct cuda_kernel` and of the tables that it refers to.
    fn blob(&self, kernel: &PtxKernel) -> Vec<u8> {
        const HEADER: usize = 32;
        const LAUNCH: usize = 36;
        const PARAM: usize = 8;
        let all: Vec<_> = self.kernels.iter().flat_map(|k| &launches_of(k).launches).collect();
        let params: usize = kernel.launches.iter().map(|launch| launch.params.len()).sum();
        let names_at = HEADER;
        let dynamic_at = names_at + 4 * all.len();
        let launch_at = dynamic_at + 4 * all.len();
        let mut param_at = launch_at + LAUNCH * kernel.launches.len();
        let mut texts = Texts { bytes: Vec::new(), start: param_at + PARAM * params };

        let (mut names, mut dynamic) = (Vec::new(), Vec::new());
        for launch in &all {
            put_u32(&mut names, texts.add(&launch.name));
            put_u32(&mut dynamic, launch.dynamic_shared);
        }
        let (mut launches, mut records) = (Vec::new(), Vec::new());
        let mut number = kernel.workspaces.len() as u32;
        for launch in &kernel.launches {
            let function = all.iter().position(|one| std::ptr::eq(*one, launch));
            let grid = number;
            number += 3;
            put_u32(&mut launches, texts.add(&launch.name));
            put_u32(&mut launches, function.expect("a launch of the module") as u32);
            launch.block.iter().for_each(|threads| put_u32(&mut launches, *threads));
            put_u32(&mut launches, launch.dynamic_shared);
            put_u32(&mut launches, grid);
            put_u32(&mut launches, launch.params.len() as u32);
            put_u32(&mut launches, param_at as u32);
            param_at += PARAM * launch.params.len();
            for param in &launch.params {
                let (kind, index) = match param {
                    LaunchParam::Param(index) => (0, *index as u32),
                    LaunchParam::Workspace(index) => (1, *index as u32),
                    LaunchParam::Index(_) => {
                        number += 1;
                        (2, number - 1)
                    }
                };
                put_u32(&mut records, kind);
                put_u32(&mut records, index);
            }
        }
        let (capability, specific) = self.capability;
        let mut header = Vec::new();
        for word in [
            capability,
            u32::from(specific),
            all.len() as u32,
            names_at as u32,
            kernel.workspaces.len() as u32,
            kernel.launches.len() as u32,
            launch_at as u32,
            dynamic_at as u32,
        ] {
            put_u32(&mut header, word);
        }
        assert_eq!(header.len(), HEADER, "struct cuda_kernel");
        assert_eq!(launches.len(), LAUNCH * kernel.launches.len(), "struct cuda_launch");
        assert_eq!(records.len(), PARAM * params, "struct cuda_param");
        [header, names, dynamic, launches, records, texts.bytes].concat()
    }
}

/// Calls `NAME.launch` from the raw entry, whose last argument is the stream.
pub(super) fn call_raw(env: &mut Env<'_, '_>, launch: FuncId, args: &[Value]) -> ir::Inst {
    let (stream, raw) = args.split_last().expect("the stream comes last");
    let current = env.builder.ins().iconst(types::I32, -1);
    let packed = env.builder.ins().iconst(types::I32, 0);
    env.call(launch, &[raw, &[current, *stream, packed]].concat())
}

fn launches_of<'a>(entry: &EntryKernel<'a>) -> &'a PtxKernel {
    entry.launches.expect("every kernel of a module for GPUs has launches")
}

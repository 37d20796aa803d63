//! The choice among the variants of a module for several CPUs.
//!
//! Before: a word of the module, 0. After the first call: 1 + the position of the variant that
//! calls use. Each entry loads the word and jumps to that variant by comparisons; the runtime
//! (`src/runtime/variants.c`) sets the word. Several threads may do so at the same time: they store
//! the same value. There are no resolvers (`ifunc`) and no constructors, which would run before the
//! module is relocated, and no table of pointers, so no call is indirect.

use super::checks::{Texts, feature_bits, put_u32};
use super::{Emitter, Env, accept, c_signature};
use crate::target::Target;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, Type, Value, types};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module};

/// Most variants of a module; there are fewer targets of a CPU family with their features.
const MAX_VARIANTS: usize = 32;

/// The data and the function of the choice.
#[derive(Clone, Copy)]
pub(super) struct Dispatch {
    /// `struct variants` of the runtime.
    pub table: DataId,
    /// The word.
    pub selected: DataId,
    /// `tec_rt_select_variant`.
    pub select: FuncId,
    /// Number of variants.
    count: usize,
    /// Offsets of their names in the table.
    names: [u32; MAX_VARIANTS],
}

/// What happens if the CPU can run no variant.
#[derive(Clone, Copy)]
pub(super) struct Refusal {
    /// The signature of the kernel, for the message; none for functions of the module.
    pub blob: Option<DataId>,
    /// Whether the error is raised as that of a packed call.
    pub packed: bool,
    /// The type of the result.
    pub ty: Type,
    /// The result.
    pub result: i64,
}

impl Refusal {
    /// Of a call of a kernel.
    pub fn new(blob: DataId, packed: bool, result: i64) -> Refusal {
        Refusal { blob: Some(blob), packed, ty: types::I32, result }
    }

    /// Of a function that belongs to no kernel.
    pub fn of_module(ty: Type, result: i64) -> Refusal {
        Refusal { blob: None, packed: false, ty, result }
    }
}

impl Dispatch {
    /// Defines the data of a module with these variants, the most capable one first.
    pub fn new(emit: &mut Emitter<'_>, targets: &[&Target]) -> Dispatch {
        let (bytes, offsets) = table(targets);
        let mut names = [0; MAX_VARIANTS];
        names[..offsets.len()].copy_from_slice(&offsets);
        let table = emit.data(&bytes, None);
        let selected = accept(emit.module.declare_anonymous_data(true, false));
        let mut description = DataDescription::new();
        description.define(vec![0; 4].into());
        description.set_align(4);
        accept(emit.module.define_data(selected, &description));
        let params = [types::I64, types::I64, types::I64, types::I32];
        let convention = emit.baseline.default_call_conv();
        let signature = c_signature(convention, &params, Some(types::I32));
        let name = "tec_rt_select_variant";
        let select = accept(emit.module.declare_function(name, Linkage::Import, &signature));
        Dispatch { table, selected, select, count: targets.len(), names }
    }

    /// Whether there are several variants.
    pub fn has_choice(&self) -> bool {
        self.count > 1
    }

    /// Returns the offsets of the variants' names in the table.
    pub fn names(&self) -> impl Iterator<Item = i64> {
        self.names.into_iter().take(self.count).map(i64::from)
    }

    /// Loads the word.
    pub fn load(&self, env: &mut Env<'_, '_>) -> Value {
        let address = env.address(self.selected);
        env.builder.ins().load(types::I32, MemFlagsData::trusted(), address, 0)
    }

    /// Calls the runtime to choose a variant. Returns 0, or -1 if it raised an error.
    pub fn select(&self, env: &mut Env<'_, '_>, blob: Option<DataId>, packed: bool) -> Value {
        let table = env.address(self.table);
        let selected = env.address(self.selected);
        let blob = match blob {
            Some(blob) => env.address(blob),
            None => env.builder.ins().iconst(types::I64, 0),
        };
        let packed = env.builder.ins().iconst(types::I32, i64::from(packed));
        let call = env.call(self.select, &[table, selected, blob, packed]);
        env.builder.inst_results(call)[0]
    }
}

/// Emits `build` for each variant, and a jump to that of the CPU; without `dispatch` there is one
/// variant. Returns its result. `refusal` is `None` where a variant was chosen before.
pub(super) fn by_variant(
    env: &mut Env<'_, '_>,
    dispatch: Option<Dispatch>,
    refusal: Option<Refusal>,
    mut build: impl FnMut(&mut Env<'_, '_>, usize) -> Value,
) -> Value {
    let Some(dispatch) = dispatch else { return build(env, 0) };
    let done = env.builder.create_block();
    let mut result = None;
    let mut finish = |env: &mut Env<'_, '_>, value: Value| {
        let ty = env.builder.func.dfg.value_type(value);
        result.get_or_insert_with(|| env.builder.append_block_param(done, ty));
        env.builder.ins().jump(done, &[BlockArg::Value(value)]);
    };
    let mut selected = dispatch.load(env);
    if let Some(refusal) = refusal {
        // The second load is not a loop around the choice: Cranelift would hoist addresses out of
        // it, into registers that each call saves.
        let [unknown, failed, chosen] = [(); 3].map(|()| env.builder.create_block());
        let known = env.builder.create_block();
        let number = env.builder.append_block_param(known, types::I32);
        let arg = [BlockArg::Value(selected)];
        env.builder.ins().brif(selected, known, &arg, unknown, &[]);
        for block in [unknown, failed, chosen] {
            env.builder.set_cold_block(block);
        }
        env.builder.switch_to_block(unknown);
        let code = dispatch.select(env, refusal.blob, refusal.packed);
        env.builder.ins().brif(code, failed, &[], chosen, &[]);
        env.builder.switch_to_block(failed);
        let value = env.builder.ins().iconst(refusal.ty, refusal.result);
        finish(env, value);
        env.builder.switch_to_block(chosen);
        let number_now = dispatch.load(env);
        env.builder.ins().jump(known, &[BlockArg::Value(number_now)]);
        env.builder.switch_to_block(known);
        selected = number;
    }
    for variant in 0..dispatch.count - 1 {
        let (this, next) = (env.builder.create_block(), env.builder.create_block());
        let is_this = env.builder.ins().icmp_imm_u(IntCC::Equal, selected, variant as i64 + 1);
        env.builder.ins().brif(is_this, this, &[], next, &[]);
        env.builder.switch_to_block(this);
        let value = build(env, variant);
        finish(env, value);
        env.builder.switch_to_block(next);
    }
    let value = build(env, dispatch.count - 1);
    finish(env, value);
    env.builder.switch_to_block(done);
    result.expect("a module has a variant")
}

/// Returns the bytes of `struct variants` (src/runtime/tec_runtime.h), and the offset of the name
/// of each variant.
fn table(targets: &[&Target]) -> (Vec<u8>, Vec<u32>) {
    const HEADER: usize = 8;
    const ENTRY: usize = 12;
    let family = Target::cpus().into_iter().filter(|target| target.arch == targets[0].arch);
    let family: Vec<Target> = family.collect();
    let start = HEADER + ENTRY * (targets.len() + family.len());
    let mut texts = Texts { bytes: Vec::new(), start };
    let mut bytes = Vec::new();
    put_u32(&mut bytes, targets.len() as u32);
    put_u32(&mut bytes, family.len() as u32);
    let mut names = Vec::new();
    for target in targets.iter().copied().chain(&family) {
        names.push(texts.add(&target.cpu_name()));
        put_u32(&mut bytes, *names.last().expect("one was added"));
        put_u32(&mut bytes, feature_bits(&target.features));
        let more = if target.takes_features() { &Target::KNOWN_FEATURES[..] } else { &[] };
        put_u32(&mut bytes, feature_bits(more));
    }
    names.truncate(targets.len());
    assert_eq!(bytes.len(), start, "struct variants");
    bytes.extend(texts.bytes);
    (bytes, names)
}

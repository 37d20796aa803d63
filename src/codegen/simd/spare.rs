//! Keeps constants of innermost loops in registers that no other value needs.
//!
//! Before: `block 1: … c = load pool; t = t*x + c; … jump 1`
//! After:  `block 0: … c = load pool; jump 1`, `block 1: … t = t*x + c; … jump 1`
//! Selection loads constants before a loop as long as it leaves registers for any iteration
//! (`constants_before`). Here the values of the iteration are known. Loads from memory are as many
//! as two operations of AVX2 on some processors, which limits functions with many coefficients.

use super::inst::{Access, AccessKind, Arg, Base, BlockId, Func, Inst, InstKind, Mem};
use super::reload::{for_each_def, is_vector, live_out};
use iced_x86::Code;
use regalloc2::VReg;
use rustc_hash::{FxHashMap, FxHashSet};

/// Registers that stay free: the allocator does not always find an allocation without spills where
/// values need all of them.
const FREE_REGISTERS: usize = 1;

/// A load of a constant, and how often its value is used.
struct Constant {
    load: Inst,
    values: Vec<VReg>,
    uses: usize,
}

/// Loads the constants of innermost loops before them, those with most uses first.
pub(super) fn hoist_constants(func: &mut Func, registers: usize) {
    let hot: Vec<BlockId> = (0..func.blocks.len()).filter(|at| func.blocks[*at].is_hot).collect();
    if !hot
        .iter()
        .any(|head| func.blocks[*head].insts.iter().any(|inst| loaded_constant(inst).is_some()))
    {
        return;
    }
    let live_out = live_out(func);
    let mut renamed: FxHashMap<VReg, VReg> = FxHashMap::default();
    for head in hot {
        let Some(before) = block_before(func, head) else { continue };
        let insts = &func.blocks[head].insts;
        let own: FxHashSet<VReg> =
            insts.iter().filter_map(|inst| Some(loaded_constant(inst)?.0)).collect();
        let needed = most_alive(insts, &live_out[head], &own) + FREE_REGISTERS;
        let taken = most_used(insts, registers.saturating_sub(needed));
        let gone: FxHashSet<VReg> = taken.iter().flat_map(|one| one.values.clone()).collect();
        func.blocks[head]
            .insts
            .retain(|inst| !loaded_constant(inst).is_some_and(|(value, ..)| gone.contains(&value)));
        for Constant { load, values, .. } in taken {
            renamed.extend(values[1..].iter().map(|value| (*value, values[0])));
            let end = func.blocks[before].insts.len() - 1;
            func.blocks[before].insts.insert(end, load);
        }
    }
    for inst in func.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        inst.rename_uses(&mut |reg| renamed.get(&reg).copied().unwrap_or(reg));
    }
}

/// Returns the value, the address and the form of a load of a constant vector.
pub(super) fn loaded_constant(inst: &Inst) -> Option<(VReg, Mem, Code)> {
    let access = inst.access.filter(|access| access.buffer == Access::CONSTANT)?;
    let loads = matches!(access.kind, AccessKind::Load(_) | AccessKind::Broadcast(_));
    match inst.args[..] {
        [Arg::Def(value), Arg::Mem(mem)]
            if loads && is_vector(value) && matches!(mem.base, Base::Pool(_)) =>
        {
            Some((value, mem, inst.code))
        }
        _ => None,
    }
}

/// Returns the block from which a loop is entered.
fn block_before(func: &Func, head: BlockId) -> Option<BlockId> {
    let enters = |at: &BlockId| {
        let last = func.blocks[*at].insts.last().map(|inst| &inst.kind);
        matches!(last, Some(InstKind::Jump(to, _)) if *to == head)
    };
    let mut before = (0..head).filter(enters);
    let block = before.next()?;
    before.next().is_none().then_some(block)
}

/// Returns the largest number of vectors that are alive at once in a block, without some of them.
fn most_alive(insts: &[Inst], live_out: &FxHashSet<VReg>, without: &FxHashSet<VReg>) -> usize {
    let mut live: FxHashSet<VReg> = live_out.difference(without).copied().collect();
    let mut most = live.len();
    for inst in insts.iter().rev() {
        for_each_def(inst, &mut |reg| {
            live.insert(reg);
        });
        most = most.max(live.len());
        for_each_def(inst, &mut |reg| {
            live.remove(&reg);
        });
        inst.for_each_use(&mut |reg| {
            if is_vector(reg) && !without.contains(&reg) {
                live.insert(reg);
            }
        });
        most = most.max(live.len());
    }
    most
}

/// Returns the constants of a block with most uses.
fn most_used(insts: &[Inst], count: usize) -> Vec<Constant> {
    let mut places: FxHashMap<(Mem, Code), usize> = FxHashMap::default();
    let mut owner: FxHashMap<VReg, usize> = FxHashMap::default();
    let mut constants: Vec<Constant> = Vec::new();
    for inst in insts {
        if let Some((value, mem, code)) = loaded_constant(inst) {
            let at = *places.entry((mem, code)).or_insert_with(|| {
                constants.push(Constant { load: inst.clone(), values: Vec::new(), uses: 0 });
                constants.len() - 1
            });
            constants[at].values.push(value);
            owner.insert(value, at);
        }
        inst.for_each_use(&mut |reg| {
            if let Some(at) = owner.get(&reg) {
                constants[*at].uses += 1;
            }
        });
    }
    constants.sort_by_key(|constant| std::cmp::Reverse(constant.uses));
    constants.truncate(count);
    constants
}

//! Peephole optimizations before register allocation: removes unused instructions and overwritten
//! stores, and makes a load with one use the memory operand of that instruction.

use super::inst::{Access, AccessKind, Arg, Func, Inst, InstKind, Mem, Width};
use super::table::{ALL_FORMS, VOp};
use crate::target::SimdIsa;
use iced_x86::Code;
use regalloc2::{OperandKind, RegClass, VReg};
use rustc_hash::{FxHashMap, FxHashSet};

/// Runs those that do not change which values are loaded.
pub(super) fn simplify(func: &mut Func) {
    remove_overwritten(func);
    merge_equal(func);
    remove_unused(func);
    merge_blends(func);
    choose_accumulators(func);
}

/// Makes loads with one use operands.
pub(super) fn fold(func: &mut Func) {
    remove_unused(func);
    fold_loads(func);
}

/// Removes stores that a later store of the block overwrites before a read.
fn remove_overwritten(func: &mut Func) {
    for block in &mut func.blocks {
        // Stores further down without a read in between: address, instruction, buffer.
        let mut later: Vec<(Mem, Code, u32)> = Vec::new();
        let mut kept: Vec<Inst> = Vec::with_capacity(block.insts.len());
        for inst in block.insts.drain(..).rev() {
            let Some(access) = inst.access else {
                kept.push(inst);
                continue;
            };
            if access.kind != AccessKind::Write {
                later.retain(|(_, _, buffer)| *buffer != access.buffer);
                kept.push(inst);
                continue;
            }
            // Masked stores write only a part; AVX2 names its mask as an operand.
            // The shape of a tile is that of its register at this time.
            let whole = inst.mask.is_none()
                && inst.clobbered.is_none()
                && inst.code != Code::VEX_Tilestored_sibmem_tmm
                && !matches!(inst.args.get(2), Some(Arg::Use(_)));
            match inst.args.first() {
                Some(Arg::Mem(mem)) if whole => {
                    let place = (*mem, inst.code, access.buffer);
                    if !later.contains(&place) {
                        later.push(place);
                        kept.push(inst);
                    }
                }
                _ => kept.push(inst),
            }
        }
        kept.reverse();
        block.insts = kept;
    }
}

/// Lets uses of an instruction's result use that of an equal one shortly before it in its block. A
/// result from further up would occupy a register in between.
fn merge_equal(func: &mut Func) {
    const NEAR: usize = 64;
    let mut merged: FxHashMap<VReg, VReg> = FxHashMap::default();
    for block in &mut func.blocks {
        let mut known: FxHashMap<(Code, Vec<Arg>), (usize, VReg)> = FxHashMap::default();
        for (at, inst) in block.insts.iter_mut().enumerate() {
            inst.rename_uses(&mut |reg| merged.get(&reg).copied().unwrap_or(reg));
            let Some((key, result)) = value_of(inst) else { continue };
            match known.get(&key) {
                Some((place, earlier)) if at - place <= NEAR => {
                    merged.insert(result, *earlier);
                }
                _ => {
                    known.insert(key, (at, result));
                }
            }
        }
    }
    // Blocks do not stand in the order of dominance.
    for inst in func.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        inst.rename_uses(&mut |reg| merged.get(&reg).copied().unwrap_or(reg));
    }
}

/// What a vector instruction computes from registers alone, and its result.
fn value_of(inst: &Inst) -> Option<((Code, Vec<Arg>), VReg)> {
    let plain = inst.kind == InstKind::Plain
        && inst.access.is_none()
        && inst.mask.is_none()
        && inst.clobbered.is_none()
        && inst.implicit.is_empty();
    let (first, result) = match *inst.args.first()? {
        Arg::Def(to) => (Arg::Imm(0), to),
        Arg::Mod { from, to } => (Arg::Use(from), to),
        _ => return None,
    };
    let sources = &inst.args[1..];
    let has_source = sources.iter().any(|arg| matches!(arg, Arg::Use(_)));
    let from_registers = sources.iter().all(|arg| matches!(arg, Arg::Use(_) | Arg::Imm(_)));
    if !plain || !has_source || !from_registers || result.class() != RegClass::Float {
        return None;
    }
    Some(((inst.code, [&[first], sources].concat()), result))
}

fn count_uses(func: &Func) -> Vec<u32> {
    let mut uses = vec![0; func.num_vregs];
    for inst in func.blocks.iter().flat_map(|block| &block.insts) {
        inst.for_each_use(&mut |reg| uses[reg.vreg()] += 1);
    }
    uses
}

/// Removes instructions without effect whose results are unused.
fn remove_unused(func: &mut Func) {
    let mut uses = count_uses(func);
    for block in func.blocks.iter_mut().rev() {
        let mut kept: Vec<Inst> = Vec::with_capacity(block.insts.len());
        for inst in block.insts.drain(..).rev() {
            if is_unused(&inst, &uses) {
                inst.for_each_use(&mut |reg| uses[reg.vreg()] -= 1);
            } else {
                kept.push(inst);
            }
        }
        kept.reverse();
        block.insts = kept;
    }
}

fn is_unused(inst: &Inst, uses: &[u32]) -> bool {
    let writes = inst.access.is_some_and(|access| access.kind == AccessKind::Write);
    if !matches!(inst.kind, InstKind::Plain | InstKind::Zero | InstKind::Ones)
        || writes
        || sets_flags(inst.code)
    {
        return false;
    }
    let mut defs = 0;
    let mut used = false;
    for operand in inst.operands() {
        if operand.kind() == OperandKind::Def {
            defs += 1;
            used |= uses[operand.vreg().vreg()] > 0;
        }
    }
    defs > 0 && !used
}

/// Whether later instructions may read the flags that an instruction sets.
fn sets_flags(code: Code) -> bool {
    use Code::*;
    matches!(
        code,
        INVALID
            | Add_rm64_imm8
            | Add_rm64_imm32
            | Add_r64_rm64
            | Sub_r64_rm64
            | Cmp_r64_rm64
            | Cmp_rm64_imm8
            | Cmp_rm64_imm32
    )
}

/// Lets an operation write some lanes of a register itself, instead of all lanes of another one
/// that a blend selects from (AVX-512): `c + 1` and a blend with `c` become one addition under the
/// mask.
fn merge_blends(func: &mut Func) {
    let mut insts = func.blocks.iter().flat_map(|block| &block.insts);
    if !insts.any(|inst| blend_form(inst.code).is_some()) {
        return;
    }
    let (uses, maskable) = (count_uses(func), maskable());
    for block in &mut func.blocks {
        let mut defined: FxHashMap<VReg, usize> = FxHashMap::default();
        let mut gone = vec![false; block.insts.len()];
        for place in 0..block.insts.len() {
            let inst = &block.insts[place];
            if let Some(result) = result_of(inst) {
                defined.insert(result, place);
            }
            let ([Arg::Def(to), Arg::Use(kept), Arg::Use(new)], Some(mask)) =
                (&inst.args[..], inst.mask)
            else {
                continue;
            };
            let (to, kept, new) = (*to, *kept, *new);
            let Some(form) = blend_form(inst.code) else { continue };
            let Some(&earlier) = defined.get(&new).filter(|_| uses[new.vreg()] == 1) else {
                continue;
            };
            let operation = &block.insts[earlier];
            let is_plain = operation.mask.is_none() && operation.access.is_none();
            let overwrites = match operation.args[0] {
                Arg::Def(_) => true,
                Arg::Mod { from, .. } => from == kept,
                _ => false,
            };
            if !is_plain || !overwrites || maskable.get(&operation.code) != Some(&form) {
                continue;
            }
            // It stands where the mask is known.
            let mut merged = operation.clone();
            merged.args[0] = Arg::Mod { from: kept, to };
            merged.mask = Some(mask);
            block.insts[place] = merged;
            gone[earlier] = true;
        }
        let mut place = 0;
        block.insts.retain(|_| {
            place += 1;
            !gone[place - 1]
        });
    }
}

/// The width of a blend under an AVX-512 mask, and the bytes of a lane; `None` for another
/// instruction.
fn blend_form(code: Code) -> Option<(Width, u64)> {
    Some(match code {
        Code::EVEX_Vpblendmd_xmm_k1z_xmm_xmmm128b32 => (Width::X, 4),
        Code::EVEX_Vpblendmd_ymm_k1z_ymm_ymmm256b32 => (Width::Y, 4),
        Code::EVEX_Vpblendmd_zmm_k1z_zmm_zmmm512b32 => (Width::Z, 4),
        Code::EVEX_Vpblendmq_xmm_k1z_xmm_xmmm128b64 => (Width::X, 8),
        Code::EVEX_Vpblendmq_ymm_k1z_ymm_ymmm256b64 => (Width::Y, 8),
        Code::EVEX_Vpblendmq_zmm_k1z_zmm_zmmm512b64 => (Width::Z, 8),
        _ => return None,
    })
}

/// Operations whose mask has a bit for each lane that they compute, with their widths and the bytes
/// of a lane.
fn maskable() -> FxHashMap<Code, (Width, u64)> {
    use VOp::*;
    #[rustfmt::skip]
    const OPS: [VOp; 38] = [
        AddPs, AddPd, SubPs, SubPd, MulPs, MulPd, DivPs, DivPd, MinPs, MinPd, MaxPs, MaxPd,
        Fma231Ps, Fma231Pd, Fmsub231Ps, Fmsub231Pd, Fnmadd231Ps, Fnmadd231Pd,
        AddD, AddQ, SubD, SubQ, MulD, MulQ, MinSD, MinSQ, MaxSD, MaxSQ, MinUD, MinUQ, MaxUD, MaxUQ,
        And, AndQ, Or, OrQ, Xor, XorQ,
    ];
    let forms = ALL_FORMS.into_iter().filter(|(_, isa)| *isa == SimdIsa::Avx512);
    let codes = forms.flat_map(|(width, isa)| {
        let bytes = |op: &VOp| u64::from(op.broadcast_bytes());
        OPS.iter().filter_map(move |op| Some((op.code(width, isa)?, (width, bytes(op)))))
    });
    codes.collect()
}

/// Lets `a * b + c` overwrite `a` if `c` is used later or in the next iteration, which saves a
/// copy, or is a constant in memory, which becomes an operand.
fn choose_accumulators(func: &mut Func) {
    let uses = count_uses(func);
    use VOp::*;
    let pairs = [
        (Fma231Ps, Fma213Ps),
        (Fma231Pd, Fma213Pd),
        (Fmsub231Ps, Fmsub213Ps),
        (Fmsub231Pd, Fmsub213Pd),
        (Fnmadd231Ps, Fnmadd213Ps),
        (Fnmadd231Pd, Fnmadd213Pd),
    ];
    let other: FxHashMap<Code, Code> =
        pairs.into_iter().flat_map(|(from, to)| forms(from, to)).collect();
    for block in &mut func.blocks {
        let params = block.params.clone();
        let own: FxHashSet<VReg> = match block.is_hot {
            true => block.insts.iter().filter_map(result_of).chain(params.clone()).collect(),
            false => FxHashSet::default(),
        };
        // What a loop does not define has the same value in its next iteration.
        let stays = |reg: VReg| block.is_hot && !own.contains(&reg);
        let constants: FxHashSet<VReg> = block.insts.iter().filter_map(loaded_constant).collect();
        for inst in &mut block.insts {
            // A mask keeps lanes of the register that is overwritten.
            let Some(code) = other.get(&inst.code).filter(|_| inst.mask.is_none()) else {
                continue;
            };
            let [Arg::Mod { from: c, to }, Arg::Use(a), Arg::Use(b)] = inst.args[..] else {
                continue;
            };
            let single = |reg: VReg| uses[reg.vreg()] == 1 && !stays(reg);
            // A running sum is a block parameter and should stay in its register.
            if single(c) && !constants.contains(&c) || params.contains(&c) {
                continue;
            }
            let ends = |reg: VReg| single(reg) && !constants.contains(&reg);
            let (product, factor) = match (ends(a), ends(b)) {
                (true, _) => (a, b),
                (_, true) => (b, a),
                _ => continue,
            };
            inst.code = *code;
            inst.args = vec![Arg::Mod { from: product, to }, Arg::Use(factor), Arg::Use(c)];
        }
    }
}

/// Returns the vector that a load of a constant defines.
fn loaded_constant(inst: &Inst) -> Option<VReg> {
    let access = inst.access.filter(|access| access.buffer == Access::CONSTANT)?;
    let loads = matches!(access.kind, AccessKind::Load(_) | AccessKind::Broadcast(_));
    match inst.args[..] {
        [Arg::Def(value), Arg::Mem(_)] if loads => Some(value),
        _ => None,
    }
}

/// The register that an instruction defines first.
fn result_of(inst: &Inst) -> Option<VReg> {
    match inst.args.first()? {
        Arg::Def(to) | Arg::Mod { to, .. } => Some(*to),
        _ => None,
    }
}

/// The pairs of forms of two instructions.
fn forms(from: VOp, to: VOp) -> Vec<(Code, Code)> {
    let pairs = ALL_FORMS.into_iter();
    pairs.filter_map(|(width, isa)| Some((from.code(width, isa)?, to.code(width, isa)?))).collect()
}

/// A load that may become an operand: its position, its address, and what it reads.
#[derive(Clone, Copy)]
struct Pending {
    place: usize,
    mem: Mem,
    buffer: u32,
    kind: AccessKind,
}

fn fold_loads(func: &mut Func) {
    let uses = count_uses(func);
    for block in &mut func.blocks {
        let mut pending: FxHashMap<VReg, Pending> = FxHashMap::default();
        let mut gone = vec![false; block.insts.len()];
        for place in 0..block.insts.len() {
            let inst = &mut block.insts[place];
            if let Some(access) = inst.access {
                match access.kind {
                    AccessKind::Write => pending.retain(|_, load| load.buffer != access.buffer),
                    AccessKind::Load(_) | AccessKind::Broadcast(_) => {
                        if let (Some(Arg::Def(to)), Some(mem)) = (inst.args.first(), inst.mem())
                            && uses[to.vreg()] == 1
                        {
                            let (buffer, kind) = (access.buffer, access.kind);
                            pending.insert(*to, Pending { place, mem: *mem, buffer, kind });
                        }
                        continue;
                    }
                    AccessKind::Read => {}
                }
            }
            if inst.mem().is_none()
                && let Some(load) = fold_into(inst, &pending)
            {
                gone[load.place] = true;
            }
        }
        let mut place = 0;
        block.insts.retain(|_| {
            place += 1;
            !gone[place - 1]
        });
    }
}

/// Replaces the last source of an instruction by a pending load, if it has such a form.
fn fold_into(inst: &mut Inst, pending: &FxHashMap<VReg, Pending>) -> Option<Pending> {
    let fits = |reg: VReg, inst: &Inst| {
        let load = pending.get(&reg)?;
        match load.kind {
            AccessKind::Load(bytes) => (bytes == inst.foldable.full).then_some((*load, false)),
            AccessKind::Broadcast(bytes) => {
                (bytes == inst.foldable.broadcast).then_some((*load, true))
            }
            _ => None,
        }
    };
    if inst.foldable.full == 0 && inst.foldable.broadcast == 0 {
        return None;
    }
    // An immediate follows the sources.
    let sources = match inst.args.last() {
        Some(Arg::Imm(_)) => inst.args.len() - 1,
        _ => inst.args.len(),
    };
    let last = sources.checked_sub(1)?;
    let Arg::Use(reg) = inst.args[last] else { return None };
    let found = fits(reg, inst).or_else(|| {
        // The other source can be in memory if the two commute.
        let before = last.checked_sub(1)?;
        let Arg::Use(other) = inst.args[before] else { return None };
        let found = commutes(inst.code).then(|| fits(other, inst)).flatten()?;
        inst.args.swap(before, last);
        Some(found)
    });
    let (load, broadcast) = found?;
    inst.args[last] = Arg::Mem(load.mem);
    inst.broadcast = broadcast;
    inst.access = Some(super::inst::Access { buffer: load.buffer, kind: AccessKind::Read });
    Some(load)
}

/// Whether the last two sources commute.
fn commutes(code: Code) -> bool {
    use VOp::*;
    const OPS: [VOp; 22] = [
        AddPs,
        AddPd,
        MulPs,
        MulPd,
        Fma231Ps,
        Fma231Pd,
        Fmsub231Ps,
        Fmsub231Pd,
        Fnmadd231Ps,
        Fnmadd231Pd,
        AddB,
        AddW,
        AddD,
        AddQ,
        MulW,
        MulD,
        And,
        AndQ,
        Or,
        OrQ,
        Xor,
        XorQ,
    ];
    let is_form =
        |op: &VOp| ALL_FORMS.iter().any(|(width, isa)| op.code(*width, *isa) == Some(code));
    OPS.iter().any(is_form)
}

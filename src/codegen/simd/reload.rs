//! Loads values again instead of keeping them in registers that others need.
//!
//! Selection loads each element once and keeps it for all its uses. In an unrolled window,
//! neighbouring taps share most of their elements, and with these and the running sums together
//! there are more values than registers. The register allocator would then spill sums, which costs
//! a store and a load for each use. This pass goes through each block; where too many values are
//! alive, it ends the value whose next use is farthest among those that are nothing but a load, and
//! loads it again in front of that use. A load with one use left becomes an operand of it.

use super::inst::{AccessKind, Arg, Func, Inst, InstKind, Mem};
use super::memory::is_masked_load;
use regalloc2::{OperandKind, RegClass, VReg};
use rustc_hash::{FxHashMap, FxHashSet};

/// Loads values again in blocks with more values than registers. Returns whether there was such a
/// block.
pub(super) fn reload(func: &mut Func, registers: usize) -> bool {
    let crowded: Vec<bool> =
        func.blocks.iter().map(|block| may_exceed(&block.insts, registers)).collect();
    if !crowded.contains(&true) {
        return false;
    }
    let live_out = live_out(func);
    for (at, live) in live_out.iter().enumerate().filter(|(at, _)| crowded[*at]) {
        let insts = std::mem::take(&mut func.blocks[at].insts);
        let mut pass = Pass::new(&insts, live, registers, func.num_vregs);
        for (place, inst) in insts.into_iter().enumerate() {
            pass.step(place, inst);
        }
        func.num_vregs = pass.num_vregs;
        func.blocks[at].insts = pass.done;
    }
    true
}

fn is_vector(reg: VReg) -> bool {
    reg.class() == RegClass::Float
}

/// Calls `f` with every vector register that an instruction defines.
fn for_each_def(inst: &Inst, f: &mut dyn FnMut(VReg)) {
    for operand in inst.operands() {
        if operand.kind() == OperandKind::Def && is_vector(operand.vreg()) {
            f(operand.vreg());
        }
    }
}

/// Whether instructions define or use more vectors than there are registers.
fn may_exceed(insts: &[Inst], registers: usize) -> bool {
    let mut named: FxHashSet<VReg> = FxHashSet::default();
    for inst in insts {
        for operand in inst.operands() {
            if is_vector(operand.vreg()) {
                named.insert(operand.vreg());
            }
        }
        if named.len() > registers {
            return true;
        }
    }
    false
}

/// Returns the vectors that are alive after each block.
fn live_out(func: &Func) -> Vec<FxHashSet<VReg>> {
    let count = func.blocks.len();
    // What a block uses before it defines it, and what it defines.
    let mut used: Vec<FxHashSet<VReg>> = vec![FxHashSet::default(); count];
    let mut defined: Vec<FxHashSet<VReg>> = vec![FxHashSet::default(); count];
    for (at, block) in func.blocks.iter().enumerate() {
        defined[at].extend(block.params.iter().copied().filter(|reg| is_vector(*reg)));
        for inst in &block.insts {
            inst.for_each_use(&mut |reg| {
                if is_vector(reg) && !defined[at].contains(&reg) {
                    used[at].insert(reg);
                }
            });
            for_each_def(inst, &mut |reg| {
                defined[at].insert(reg);
            });
        }
    }
    let mut live_in = used;
    let mut live_out: Vec<FxHashSet<VReg>> = vec![FxHashSet::default(); count];
    loop {
        let mut changed = false;
        for at in (0..count).rev() {
            for succ in func.blocks[at].succs() {
                let new: Vec<VReg> =
                    live_in[succ].iter().copied().filter(|r| !live_out[at].contains(r)).collect();
                changed |= !new.is_empty();
                let through = new.iter().filter(|reg| !defined[at].contains(reg));
                live_in[at].extend(through.copied().collect::<Vec<_>>());
                live_out[at].extend(new);
            }
        }
        if !changed {
            return live_out;
        }
    }
}

/// The pass over a block.
struct Pass {
    registers: usize,
    num_vregs: usize,
    done: Vec<Inst>,
    /// The places of the uses of each value that is yet to be used, the last one first. A value
    /// that is alive after the block has a use behind its end.
    uses: FxHashMap<VReg, Vec<usize>>,
    /// The values in registers.
    live: FxHashSet<VReg>,
    /// The loads of values that can be loaded again, with their places.
    loads: FxHashMap<VReg, (usize, Inst)>,
    /// Values that are no longer in registers, or are under another name.
    renamed: FxHashMap<VReg, Option<VReg>>,
    /// The places of the stores to each buffer.
    stores: FxHashMap<u32, Vec<usize>>,
    /// The number of instructions.
    end: usize,
}

impl Pass {
    fn new(insts: &[Inst], live_out: &FxHashSet<VReg>, registers: usize, num_vregs: usize) -> Pass {
        let mut uses: FxHashMap<VReg, Vec<usize>> = FxHashMap::default();
        for (place, inst) in insts.iter().enumerate().rev() {
            inst.for_each_use(&mut |reg| {
                if is_vector(reg) {
                    uses.entry(reg).or_default().push(place);
                }
            });
        }
        let mut defined: FxHashSet<VReg> = FxHashSet::default();
        for inst in insts {
            for_each_def(inst, &mut |reg| {
                defined.insert(reg);
            });
        }
        // A value that only passes through can wait in memory for the end of a loop.
        for reg in live_out {
            if uses.contains_key(reg) || defined.contains(reg) {
                uses.entry(*reg).or_default().insert(0, insts.len());
            }
        }
        let live = uses.keys().copied().filter(|reg| !defined.contains(reg)).collect();
        let mut stores: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (place, inst) in insts.iter().enumerate() {
            if let Some(access) = inst.access.filter(|one| one.kind == AccessKind::Write) {
                stores.entry(access.buffer).or_default().push(place);
            }
        }
        Pass {
            registers,
            num_vregs,
            done: Vec::new(),
            uses,
            live,
            loads: FxHashMap::default(),
            renamed: FxHashMap::default(),
            stores,
            end: insts.len(),
        }
    }

    fn step(&mut self, place: usize, mut inst: Inst) {
        let mut read: Vec<VReg> = Vec::new();
        inst.for_each_use(&mut |reg| {
            if is_vector(reg) && !read.contains(&reg) {
                read.push(reg);
            }
        });
        for reg in &read {
            if let Some(None) = self.renamed.get(reg) {
                self.load_again(*reg, place, &read);
            }
        }
        inst.rename_uses(&mut |reg| match self.renamed.get(&reg) {
            Some(Some(new)) => *new,
            _ => reg,
        });
        for reg in read {
            let left = self.uses.get_mut(&reg).expect("it is used here");
            while left.last() == Some(&place) {
                left.pop();
            }
            if left.is_empty() {
                self.live.remove(&reg);
                self.loads.remove(&reg);
            }
        }
        let mut defined = Vec::new();
        for_each_def(&inst, &mut |reg| defined.push(reg));
        for reg in &defined {
            self.live.insert(*reg);
        }
        self.make_room(place, &defined);
        if let [reg] = defined[..]
            && is_load(&inst)
            && self.uses.get(&reg).and_then(|uses| uses.first()).is_some_and(|at| *at < self.end)
        {
            self.loads.insert(reg, (place, inst.clone()));
        }
        for reg in defined {
            if self.uses.get(&reg).is_none_or(Vec::is_empty) {
                self.live.remove(&reg);
            }
        }
        self.done.push(inst);
    }

    /// Loads a value again in front of an instruction.
    fn load_again(&mut self, reg: VReg, place: usize, needed: &[VReg]) {
        let new = VReg::new(self.num_vregs, RegClass::Float);
        self.num_vregs += 1;
        let mut load = self.loads[&reg].1.clone();
        load.rename_uses(&mut |mask| match self.renamed.get(&mask) {
            Some(Some(new)) => *new,
            _ => mask,
        });
        load.args[0] = Arg::Def(new);
        self.done.push(load);
        self.renamed.insert(reg, Some(new));
        self.live.insert(reg);
        self.make_room(place, needed);
    }

    /// Whether the block stores to the buffer of a load between the load and a later place.
    fn is_stored(&self, reg: &VReg, to: usize) -> bool {
        let (from, load) = &self.loads[reg];
        let Some(access) = load.access else { return true };
        let stores = self.stores.get(&access.buffer);
        stores.is_some_and(|stores| stores.iter().any(|at| (*from..to).contains(at)))
    }

    /// Ends values until the others fit into the registers.
    fn make_room(&mut self, place: usize, needed: &[VReg]) {
        while self.live.len() > self.registers {
            let next = |reg: &VReg| self.uses.get(reg).and_then(|uses| uses.last().copied());
            let ends = |reg: &&VReg| {
                let later = next(reg).is_some_and(|at| at > place && !self.is_stored(reg, at));
                later && !needed.contains(reg) && self.live.contains(*reg)
            };
            let farthest = self.loads.keys().filter(ends).max_by_key(|reg| (next(reg), reg.vreg()));
            let Some(reg) = farthest.copied() else { return };
            self.live.remove(&reg);
            self.renamed.insert(reg, None);
        }
    }
}

/// Whether an instruction does nothing but load a value, from an address in the same registers
/// later on.
fn is_load(inst: &Inst) -> bool {
    let reads = inst.access.is_some_and(|access| access.kind != AccessKind::Write);
    let alone = inst.clobbered.is_none() && inst.implicit.is_empty();
    let is_plain = |mem: Mem| !mem.index.is_some_and(|(index, _)| is_vector(index));
    let from_memory = match inst.args[..] {
        [Arg::Def(_), Arg::Mem(mem)] => is_plain(mem),
        [Arg::Def(_), Arg::Use(_), Arg::Mem(mem)] => is_masked_load(inst.code) && is_plain(mem),
        _ => false,
    };
    reads && alone && from_memory && inst.kind == InstKind::Plain
}

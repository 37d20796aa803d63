//! Register allocation: a [`Func`] as regalloc2 sees it.

use super::inst::{AccessKind, Func, InstKind};
use crate::target::SimdIsa;
use regalloc2::{
    Block, Edit, Function, Inst, InstRange, MachineEnv, Operand, Output, PReg, PRegSet,
    RegAllocError, RegClass, RegallocOptions, VReg,
};

/// The number of `rsp`; never allocated.
pub(super) const RSP: usize = 4;
/// The number of `rbp`, which keeps the caller's `rsp` in functions with a frame. Never allocated.
pub(super) const RBP: usize = 5;
/// The number of `rdi`, the first argument.
pub(super) const RDI: u8 = 7;
/// Callee-saved general registers besides `rbp`.
pub(super) const CALLEE_SAVED: [usize; 5] = [3, 12, 13, 14, 15];

/// A function with its instructions numbered in sequence.
pub(super) struct View<'f> {
    pub(super) func: &'f Func,
    /// The first instruction of each block, then the number of all instructions.
    starts: Vec<usize>,
    operands: Vec<Vec<Operand>>,
    succs: Vec<Vec<Block>>,
    preds: Vec<Vec<Block>>,
    /// Block and position of each instruction.
    places: Vec<(usize, usize)>,
    vector_slots: usize,
}

impl<'f> View<'f> {
    /// The view for an instruction set, whose registers are as long as the spill slots of vectors.
    pub(super) fn new(func: &'f Func, isa: SimdIsa) -> View<'f> {
        let (mut starts, mut operands, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let mut succs = Vec::new();
        let mut preds = vec![Vec::new(); func.blocks.len()];
        for (id, block) in func.blocks.iter().enumerate() {
            starts.push(operands.len());
            for (position, inst) in block.insts.iter().enumerate() {
                operands.push(inst.operands());
                places.push((id, position));
            }
            let all: Vec<Block> = block.succs().into_iter().map(Block::new).collect();
            for succ in &all {
                preds[succ.index()].push(Block::new(id));
            }
            succs.push(all);
        }
        starts.push(operands.len());
        let vector_slots = isa.bytes() as usize / 8;
        View { func, starts, operands, succs, preds, places, vector_slots }
    }

    fn inst(&self, inst: Inst) -> &super::inst::Inst {
        let (block, position) = self.places[inst.index()];
        &self.func.blocks[block].insts[position]
    }
}

impl Function for View<'_> {
    fn num_insts(&self) -> usize {
        self.operands.len()
    }

    fn num_blocks(&self) -> usize {
        self.func.blocks.len()
    }

    fn entry_block(&self) -> Block {
        Block::new(0)
    }

    fn block_insns(&self, block: Block) -> InstRange {
        let (start, end) = (self.starts[block.index()], self.starts[block.index() + 1]);
        InstRange::new(Inst::new(start), Inst::new(end))
    }

    fn block_succs(&self, block: Block) -> &[Block] {
        &self.succs[block.index()]
    }

    fn block_preds(&self, block: Block) -> &[Block] {
        &self.preds[block.index()]
    }

    fn block_params(&self, block: Block) -> &[VReg] {
        &self.func.blocks[block.index()].params
    }

    fn is_ret(&self, inst: Inst) -> bool {
        self.inst(inst).kind == InstKind::Ret
    }

    fn is_branch(&self, inst: Inst) -> bool {
        matches!(self.inst(inst).kind, InstKind::Jump(..) | InstKind::Branch(..))
    }

    fn branch_blockparams(&self, _: Block, inst: Inst, _: usize) -> &[VReg] {
        match &self.inst(inst).kind {
            InstKind::Jump(_, args) => args,
            _ => &[],
        }
    }

    fn inst_operands(&self, inst: Inst) -> &[Operand] {
        &self.operands[inst.index()]
    }

    fn inst_clobbers(&self, _: Inst) -> PRegSet {
        PRegSet::empty()
    }

    fn num_vregs(&self) -> usize {
        self.func.num_vregs
    }

    fn spillslot_size(&self, class: RegClass) -> usize {
        match class {
            RegClass::Float => self.vector_slots,
            _ => 1,
        }
    }
}

/// The registers of AVX2 (16 vectors), or of AVX-512 (32, and seven masks).
fn machine(isa: SimdIsa) -> MachineEnv {
    let set = |class, numbers: &mut dyn Iterator<Item = usize>| {
        let mut set = PRegSet::empty();
        numbers.for_each(|number| set.add(PReg::new(number, class)));
        set
    };
    let free = |number: &usize| ![RSP, RBP].contains(number) && !CALLEE_SAVED.contains(number);
    let vectors = isa.registers() as usize;
    // Without a mask, k0 stands for all lanes.
    let masks = if isa.has_masks() { 1..8 } else { 1..1 };
    MachineEnv {
        preferred_regs_by_class: [
            set(RegClass::Int, &mut (0..16).filter(free)),
            set(RegClass::Float, &mut (0..vectors)),
            set(RegClass::Vector, &mut masks.into_iter()),
        ],
        non_preferred_regs_by_class: [
            set(RegClass::Int, &mut CALLEE_SAVED.into_iter()),
            PRegSet::empty(),
            PRegSet::empty(),
        ],
        scratch_by_class: [None; 3],
        fixed_stack_slots: Vec::new(),
    }
}

/// Allocates registers and spill slots. Debug builds verify the allocation.
pub(super) fn allocate(view: &View, isa: SimdIsa) -> Result<Output, RegAllocError> {
    let env = machine(isa);
    let options = RegallocOptions {
        verbose_log: false,
        validate_ssa: cfg!(debug_assertions),
        ..RegallocOptions::default()
    };
    let output = regalloc2::run(view, &env, &options)?;
    if cfg!(debug_assertions) {
        let mut checker = regalloc2::checker::Checker::new(view, &env);
        checker.prepare(&output);
        if let Err(errors) = checker.run() {
            crate::bug!("wrong register allocation: {errors:?}");
        }
    }
    Ok(output)
}

/// Returns the number of spills and reloads of vectors in innermost loops.
pub(super) fn spills_in_loops(view: &View, output: &Output) -> usize {
    let hot = |inst: Inst| {
        let (block, _) = view.places[inst.index()];
        view.func.blocks[block].is_hot
    };
    let spilled = output.edits.iter().filter(|(place, Edit::Move { from, to })| {
        (from.is_stack() || to.is_stack()) && hot(place.inst())
    });
    spilled.count()
}

/// Returns the number of instructions in innermost loops that read memory.
pub(super) fn reads_in_loops(func: &Func) -> usize {
    let hot = func.blocks.iter().filter(|block| block.is_hot);
    let reads = |inst: &&super::inst::Inst| {
        inst.access.is_some_and(|access| access.kind != AccessKind::Write)
    };
    hot.flat_map(|block| &block.insts).filter(reads).count()
}

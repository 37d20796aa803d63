//! Machine instructions over virtual registers, and the function that holds them.
//!
//! An instruction is an iced code with operands in the order of its encoding. Registers are those
//! of regalloc2, in three classes: general (`Int`), vector (`Float`) and AVX-512 masks
//! (`Vector`). The function is in SSA form; values pass along edges as block parameters, on
//! unconditional jumps only: a block that branches has successors with no other predecessor.

use iced_x86::Code;
use regalloc2::{Operand, OperandConstraint, OperandKind, OperandPos, PReg, RegClass, VReg};

/// Bytes of a vector register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Width {
    /// 16.
    X,
    /// 32.
    Y,
    /// 64.
    Z,
}

impl Width {
    /// The narrowest register that holds a number of bytes.
    pub(super) fn of(bytes: u64) -> Width {
        match bytes {
            0..=16 => Width::X,
            17..=32 => Width::Y,
            33..=64 => Width::Z,
            _ => crate::bug!("a vector of {bytes} bytes"),
        }
    }

    /// 16, 32 or 64.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Width::X => 16,
            Width::Y => 32,
            Width::Z => 64,
        }
    }
}

/// The base of an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Base {
    /// A general register.
    Reg(VReg),
    /// Byte offset in the function's local memory.
    Frame(u32),
    /// A constant after the code.
    Pool(usize),
}

/// `base + index * scale + disp`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Mem {
    pub(super) base: Base,
    /// A general register, or a vector of offsets.
    pub(super) index: Option<(VReg, u8)>,
    pub(super) disp: i32,
}

impl Mem {
    /// The address in a register.
    pub(super) fn at(base: VReg) -> Mem {
        Mem { base: Base::Reg(base), index: None, disp: 0 }
    }
}

/// An operand, in the order of the encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Arg {
    /// Written.
    Def(VReg),
    /// Read.
    Use(VReg),
    /// Read, then written, in one register.
    Mod { from: VReg, to: VReg },
    /// Memory.
    Mem(Mem),
    /// A constant.
    Imm(i64),
    /// A tile register (AMX). These are not allocated.
    Tile(u8),
}

/// Index of a block.
pub(super) type BlockId = usize;

/// The control flow of an instruction, or a special form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum InstKind {
    /// Continues with the next instruction.
    Plain,
    /// Jumps to a block with arguments for its parameters.
    Jump(BlockId, Vec<VReg>),
    /// Branches to the first block if the condition holds, else to the second.
    Branch(Cond, BlockId, BlockId),
    /// Sets the vector register of the only operand to zero.
    Zero,
    /// Sets the first 16 bits of the mask register of the only operand.
    Ones,
    /// Returns from the function.
    Ret,
}

/// A condition on the flags, by its number in `jcc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cond {
    /// Overflow (signed).
    O = 0,
    /// No overflow (signed).
    No = 1,
    /// Below (unsigned).
    B = 2,
    /// Above or equal (unsigned).
    Ae = 3,
    /// Equal.
    E = 4,
    /// Not equal.
    Ne = 5,
    /// Less (signed).
    L = 12,
    /// Greater or equal (signed).
    Ge = 13,
    /// Less or equal (signed).
    Le = 14,
    /// Greater (signed).
    G = 15,
}

impl Cond {
    /// The condition that holds when this one does not.
    pub(super) fn negated(self) -> Cond {
        match self {
            Cond::O => Cond::No,
            Cond::No => Cond::O,
            Cond::B => Cond::Ae,
            Cond::Ae => Cond::B,
            Cond::E => Cond::Ne,
            Cond::Ne => Cond::E,
            Cond::L => Cond::Ge,
            Cond::Ge => Cond::L,
            Cond::Le => Cond::G,
            Cond::G => Cond::Le,
        }
    }
}

/// The loads that may take the place of an instruction's last source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Foldable {
    /// Bytes of a memory operand; 0 if it must be a register.
    pub(super) full: u8,
    /// Bytes of an element in memory that is broadcast; 0 if there is no such form.
    pub(super) broadcast: u8,
}

/// An access to memory. Different buffers do not overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Access {
    /// Number of the buffer; [`Access::CONSTANT`] for constants.
    pub(super) buffer: u32,
    pub(super) kind: AccessKind,
}

impl Access {
    /// The buffer of all constants.
    pub(super) const CONSTANT: u32 = u32::MAX;
}

/// What an instruction does with the memory that it accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessKind {
    /// Writes.
    Write,
    /// Loads this number of bytes and does nothing else, so another instruction may load them as
    /// its operand.
    Load(u8),
    /// Loads this number of bytes into all lanes, and does nothing else.
    Broadcast(u8),
    /// Reads and does something else, too.
    Read,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Inst {
    pub(super) code: Code,
    pub(super) args: Vec<Arg>,
    /// The mask of lanes that are written, and whether the others become 0.
    pub(super) mask: Option<(VReg, bool)>,
    /// A mask that the instruction clears (gathers and scatters), before and after.
    pub(super) clobbered: Option<(VReg, VReg)>,
    /// Whether the memory operand is one element that is broadcast.
    pub(super) broadcast: bool,
    pub(super) foldable: Foldable,
    /// Registers that the instruction uses without naming them: (value, register, written).
    pub(super) implicit: Vec<(VReg, u8, bool)>,
    pub(super) kind: InstKind,
    /// The memory access, if it has one.
    pub(super) access: Option<Access>,
    /// The statement that it belongs to, as an index into [`Func::marks`].
    pub(super) mark: u32,
}

impl Inst {
    /// A plain instruction.
    pub(super) fn new(code: Code, args: Vec<Arg>) -> Inst {
        Inst {
            code,
            args,
            mask: None,
            clobbered: None,
            broadcast: false,
            foldable: Foldable::default(),
            implicit: Vec::new(),
            kind: InstKind::Plain,
            access: None,
            mark: 0,
        }
    }

    /// The memory operand.
    pub(super) fn mem(&self) -> Option<&Mem> {
        self.args.iter().find_map(|arg| match arg {
            Arg::Mem(mem) => Some(mem),
            _ => None,
        })
    }

    /// Calls `f` with every register that is read.
    pub(super) fn for_each_use(&self, f: &mut dyn FnMut(VReg)) {
        for operand in self.operands() {
            if operand.kind() == OperandKind::Use {
                f(operand.vreg());
            }
        }
        if let InstKind::Jump(_, args) = &self.kind {
            args.iter().for_each(|arg| f(*arg));
        }
    }

    /// Replaces the registers that are read.
    pub(super) fn rename_uses(&mut self, f: &mut dyn FnMut(VReg) -> VReg) {
        for arg in &mut self.args {
            match arg {
                Arg::Use(reg) | Arg::Mod { from: reg, .. } => *reg = f(*reg),
                Arg::Mem(mem) => {
                    if let Base::Reg(reg) = &mut mem.base {
                        *reg = f(*reg);
                    }
                    if let Some((reg, _)) = &mut mem.index {
                        *reg = f(*reg);
                    }
                }
                Arg::Def(_) | Arg::Imm(_) | Arg::Tile(_) => {}
            }
        }
        if let Some((reg, _)) = &mut self.mask {
            *reg = f(*reg);
        }
        if let Some((reg, _)) = &mut self.clobbered {
            *reg = f(*reg);
        }
        for (reg, _, written) in &mut self.implicit {
            if !*written {
                *reg = f(*reg);
            }
        }
        if let InstKind::Jump(_, args) = &mut self.kind {
            args.iter_mut().for_each(|arg| *arg = f(*arg));
        }
    }

    /// The operands for the register allocator, in the order in which `encode` reads the
    /// allocations.
    pub(super) fn operands(&self) -> Vec<Operand> {
        let mut operands = Vec::with_capacity(self.args.len() + 1);
        let vector_index = |reg: VReg| reg.class() == RegClass::Float;
        for arg in &self.args {
            match arg {
                Arg::Def(reg) => operands.push(Operand::reg_def(*reg)),
                Arg::Use(reg) => operands.push(Operand::reg_use(*reg)),
                Arg::Mod { from, to } => {
                    operands.push(Operand::reg_use(*from));
                    operands.push(Operand::reg_reuse_def(*to, operands.len() - 1));
                }
                Arg::Mem(mem) => {
                    if let Base::Reg(reg) = mem.base {
                        operands.push(Operand::reg_use(reg));
                    }
                    if let Some((reg, _)) = mem.index {
                        // A gather's destination must not be its index.
                        operands.push(match vector_index(reg) {
                            true => Operand::reg_use_at_end(reg),
                            false => Operand::reg_use(reg),
                        });
                    }
                }
                Arg::Imm(_) | Arg::Tile(_) => {}
            }
        }
        if let Some((mask, _)) = self.mask {
            operands.push(Operand::reg_use(mask));
        }
        if let Some((from, to)) = self.clobbered {
            operands.push(Operand::reg_use(from));
            operands.push(Operand::reg_reuse_def(to, operands.len() - 1));
        }
        for (reg, number, written) in &self.implicit {
            let preg = PReg::new((*number).into(), RegClass::Int);
            operands.push(Operand::new(
                *reg,
                OperandConstraint::FixedReg(preg),
                if *written { OperandKind::Def } else { OperandKind::Use },
                if *written { OperandPos::Late } else { OperandPos::Early },
            ));
        }
        operands
    }
}

/// A basic block: parameters and instructions, the last one of which is a terminator.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) params: Vec<VReg>,
    pub(super) insts: Vec<Inst>,
    /// Whether it is the head of an innermost loop.
    pub(super) is_hot: bool,
}

impl Block {
    /// The successors.
    pub(super) fn succs(&self) -> Vec<BlockId> {
        match self.insts.last().map(|inst| &inst.kind) {
            Some(InstKind::Jump(to, _)) => vec![*to],
            Some(InstKind::Branch(_, then, otherwise)) => vec![*then, *otherwise],
            _ => Vec::new(),
        }
    }
}

/// A function.
#[derive(Clone, Debug, Default)]
pub(super) struct Func {
    /// The blocks in the order of the code; the first one is the entry.
    pub(super) blocks: Vec<Block>,
    /// Number of virtual registers.
    pub(super) num_vregs: usize,
    /// Constants after the code, each aligned to its length.
    pub(super) pool: Vec<Vec<u8>>,
    /// Bytes of local memory.
    pub(super) frame: u32,
    /// Statements of the loop IR, for the listing: depth and text.
    pub(super) marks: Vec<(u32, String)>,
    /// The loops, in the order of their heads.
    pub(super) loops: Vec<LoopInfo>,
}

/// A loop of a [`Func`].
#[derive(Clone, Debug)]
pub(super) struct LoopInfo {
    /// First block.
    pub(super) head: BlockId,
    /// Last block, which branches back.
    pub(super) latch: BlockId,
    /// Whether it contains no loop.
    pub(super) innermost: bool,
    /// Its head, as the printer writes it.
    pub(super) title: String,
}

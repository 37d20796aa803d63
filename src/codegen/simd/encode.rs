//! Encoding of an allocated [`Func`] into bytes, with its constants after the code.
//!
//! ```text
//! prologue · blocks · (epilogue at each return) · constants, aligned
//! ```
//!
//! A block that only jumps and has no moves of the allocator gets no code; branches to it go to its
//! target.

use super::alloc::{CALLEE_SAVED, RBP, View};
use super::inst::{Arg, Base, BlockId, Inst, InstKind, Mem};
use crate::codegen::unwind::{Prologue, SavedBelow, SavedRegister};
use crate::target::SimdIsa;
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, OpCodeOperandKind, OpKind, Register};
use regalloc2::{
    Allocation, AllocationKind, Block, Edit, Function, InstOrEdit, Output, PReg, RegClass,
};

/// The bytes of a function, with the offsets of its parts.
#[derive(Debug)]
pub(super) struct Encoded {
    /// Code and constants, to be placed at a multiple of 64.
    pub(super) bytes: Vec<u8>,
    /// Bytes of the code, without padding and constants.
    pub(super) code_len: usize,
    /// The beginning of each statement: offset, index of the mark.
    pub(super) marks: Vec<(usize, u32)>,
    /// The offset of each block.
    pub(super) blocks: Vec<usize>,
    /// The offset of the end of each block; 0 for a block without code.
    pub(super) ends: Vec<usize>,
    /// The offset and length of each constant, in order.
    pub(super) constants: Vec<(usize, usize)>,
    /// The offsets of spills and reloads.
    pub(super) spills: Vec<usize>,
    /// What the prologue does to the stack.
    pub(super) prologue: Prologue,
}

/// The distance of the reads of a stack that the system commits page by page.
const PROBED_BYTES: u32 = 4096;

/// Bytes of a cache line: the alignment of functions and of hot loops. A short loop across two
/// lines runs at two thirds of its speed.
const LINE_BYTES: usize = 64;

/// The stack frame of a function.
struct Frame {
    /// Saved registers.
    saved: Vec<usize>,
    /// Bytes below them, a multiple of 64; 0 without a frame.
    bytes: u32,
    /// Offset of the spill slots from `rsp`; locals stand below.
    spills: u32,
    /// Whether the prologue touches the pages of a large frame one after the other.
    probed: bool,
}

impl Frame {
    fn of(view: &View, output: &Output, probed: bool) -> Frame {
        let mut used = [false; 16];
        let mut note = |allocation: &Allocation| {
            if let Some(reg) = allocation.as_reg()
                && reg.class() == RegClass::Int
            {
                used[reg.hw_enc()] = true;
            }
        };
        output.allocs.iter().for_each(&mut note);
        for (_, Edit::Move { from, to }) in &output.edits {
            note(from);
            note(to);
        }
        let saved = CALLEE_SAVED.into_iter().filter(|number| used[*number]).collect();
        let spills = view.func.frame.next_multiple_of(LINE_BYTES as u32);
        let bytes = spills + (output.num_spillslots as u32 * 8).next_multiple_of(LINE_BYTES as u32);
        Frame { saved, bytes, spills, probed }
    }
}

/// Encodes a function; `probed` tells whether the stack must grow page by page.
pub(super) fn encode(view: &View, output: &Output, isa: SimdIsa, probed: bool) -> Encoded {
    let frame = Frame::of(view, output, probed);
    let mut pool_at = vec![0; view.func.pool.len()];
    // The draft does not know the addresses of the constants. Their displacements always have four
    // bytes, so the final code has the same offsets.
    let draft = Writer::new(view, output, &frame, isa, &pool_at).write();
    let mut end = draft.bytes.len();
    let mut order: Vec<usize> = (0..view.func.pool.len()).collect();
    order.sort_by_key(|entry| std::cmp::Reverse(view.func.pool[*entry].len()));
    for entry in &order {
        let size = view.func.pool[*entry].len();
        end = end.next_multiple_of(size);
        pool_at[*entry] = end;
        end += size;
    }
    let mut encoded = Writer::new(view, output, &frame, isa, &pool_at).write();
    for entry in order {
        encoded.bytes.resize(pool_at[entry], 0xcc);
        encoded.bytes.extend(&view.func.pool[entry]);
        encoded.constants.push((pool_at[entry], view.func.pool[entry].len()));
    }
    encoded
}

/// The offset of the only constant of [`encode_alone`].
#[cfg(test)]
pub(super) const POOL_OF_TESTS: usize = 0x1240;

/// The bytes of one instruction with the given registers.
#[cfg(test)]
pub(super) fn encode_alone(inst: &Inst, allocs: &[Allocation]) -> Vec<u8> {
    let (func, output) = (super::inst::Func::default(), Output::default());
    let view = View::new(&func, SimdIsa::Avx512);
    let frame = Frame { saved: Vec::new(), bytes: 0, spills: 0, probed: false };
    let mut writer = Writer::new(&view, &output, &frame, SimdIsa::Avx512, &[POOL_OF_TESTS]);
    writer.plain(inst, allocs);
    writer.bytes
}

/// The bytes of a move by the allocator, with spill slots at `spills`.
#[cfg(test)]
pub(super) fn encode_move(
    (from, to): (Allocation, Allocation),
    spills: u32,
    isa: SimdIsa,
) -> Vec<u8> {
    let (func, output) = (super::inst::Func::default(), Output::default());
    let view = View::new(&func, isa);
    let frame = Frame { saved: Vec::new(), bytes: 0, spills, probed: false };
    let mut writer = Writer::new(&view, &output, &frame, isa, &[]);
    writer.move_(from, to);
    writer.bytes
}

struct Writer<'a> {
    view: &'a View<'a>,
    output: &'a Output,
    frame: &'a Frame,
    isa: SimdIsa,
    pool_at: &'a [usize],
    encoder: Encoder,
    bytes: Vec<u8>,
    labels: Vec<Option<usize>>,
    /// Jumps to blocks without an offset yet: offset of the displacement, target.
    fixups: Vec<(usize, BlockId)>,
    marks: Vec<(usize, u32)>,
    spills: Vec<usize>,
}

impl<'a> Writer<'a> {
    fn new(
        view: &'a View<'a>,
        output: &'a Output,
        frame: &'a Frame,
        isa: SimdIsa,
        pool_at: &'a [usize],
    ) -> Writer<'a> {
        Writer {
            view,
            output,
            frame,
            isa,
            pool_at,
            encoder: Encoder::new(64),
            bytes: Vec::new(),
            labels: vec![None; view.func.blocks.len()],
            fixups: Vec::new(),
            marks: Vec::new(),
            spills: Vec::new(),
        }
    }

    fn write(mut self) -> Encoded {
        let prologue = self.prologue();
        let count = self.view.func.blocks.len();
        let mut ends = vec![0; count];
        let shown: Vec<BlockId> = (0..count).filter(|id| self.through(*id).is_none()).collect();
        for (position, id) in shown.iter().enumerate() {
            if self.view.func.blocks[*id].is_hot {
                self.align();
            }
            self.labels[*id] = Some(self.bytes.len());
            self.block(*id, shown.get(position + 1).copied());
            ends[*id] = self.bytes.len();
        }
        for (at, target) in std::mem::take(&mut self.fixups) {
            let to = self.label(target).expect("every block has a place now");
            let distance = to as i64 - (at as i64 + 4);
            self.bytes[at..at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        }
        let blocks = (0..count).map(|id| self.label(id).expect("placed")).collect();
        let code_len = self.bytes.len();
        let (bytes, marks, spills) = (self.bytes, self.marks, self.spills);
        let constants = Vec::new();
        Encoded { bytes, code_len, marks, blocks, ends, constants, spills, prologue }
    }

    /// The offset of a block, or of its target if it has no code.
    fn label(&self, id: BlockId) -> Option<usize> {
        self.labels[self.target(id)]
    }

    fn target(&self, mut id: BlockId) -> BlockId {
        while let Some(next) = self.through(id) {
            id = next;
        }
        id
    }

    /// The target of a block without code; `None` if the block has code.
    fn through(&self, id: BlockId) -> Option<BlockId> {
        let block = &self.view.func.blocks[id];
        let [Inst { kind: InstKind::Jump(to, _), .. }] = &block.insts[..] else { return None };
        let mut edits = self.output.block_insts_and_edits(self.view, Block::new(id));
        let moves = edits.any(|part| match part {
            InstOrEdit::Edit(Edit::Move { from, to }) => from != to,
            InstOrEdit::Inst(_) => false,
        });
        (!moves && id != 0 && *to != id).then_some(*to)
    }

    fn align(&mut self) {
        while !self.bytes.len().is_multiple_of(LINE_BYTES) {
            let missing = (LINE_BYTES - self.bytes.len() % LINE_BYTES).min(9);
            self.bytes.extend(NOPS[missing - 1]);
        }
    }

    fn block(&mut self, id: BlockId, next: Option<BlockId>) {
        let parts: Vec<InstOrEdit> =
            self.output.block_insts_and_edits(self.view, Block::new(id)).collect();
        for part in parts {
            match part {
                InstOrEdit::Edit(Edit::Move { from, to }) => self.move_(*from, *to),
                InstOrEdit::Inst(inst) => {
                    let first = self.view.block_insns(Block::new(id)).first().index();
                    let data = &self.view.func.blocks[id].insts[inst.index() - first];
                    self.mark(data.mark);
                    self.inst(data, self.output.inst_allocs(inst), next);
                }
            }
        }
    }

    fn mark(&mut self, mark: u32) {
        if self.marks.last().is_none_or(|(_, last)| *last != mark) {
            self.marks.push((self.bytes.len(), mark));
        }
    }

    fn inst(&mut self, inst: &Inst, allocs: &[Allocation], next: Option<BlockId>) {
        match &inst.kind {
            InstKind::Plain if inst.code == Code::INVALID => {}
            InstKind::Plain => self.plain(inst, allocs),
            InstKind::Zero => {
                let reg = allocs[0].as_reg().expect("a vector register");
                let (code, x) = match reg.hw_enc() {
                    0..=15 => (Code::VEX_Vpxor_xmm_xmm_xmmm128, register(reg, Family::X)),
                    _ => (Code::EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32, register(reg, Family::X)),
                };
                self.push(&Instruction::with3(code, x, x, x).expect("a xor"));
            }
            InstKind::Ones => {
                let reg = allocs[0].as_reg().expect("a mask register");
                let (to, any) = (register(reg, Family::K), Register::K0);
                let code = Code::VEX_Kxnorw_kr_kr_kr;
                self.push(&Instruction::with3(code, to, any, any).expect("a xnor"));
            }
            InstKind::Jump(to, _) => self.jump(*to, next),
            InstKind::Branch(cond, then, otherwise) => {
                let next = next.map(|next| self.target(next));
                if Some(self.target(*then)) == next {
                    self.jcc(cond.negated() as u8, *otherwise);
                } else {
                    self.jcc(*cond as u8, *then);
                    self.jump(*otherwise, next);
                }
            }
            InstKind::Ret => self.epilogue(),
        }
    }

    fn jump(&mut self, to: BlockId, next: Option<BlockId>) {
        if next.map(|next| self.target(next)) == Some(self.target(to)) {
            return;
        }
        match self.label(to).map(|label| label as i64 - (self.bytes.len() as i64 + 2)) {
            Some(distance @ -128..=127) => self.bytes.extend([0xeb, distance as u8]),
            _ => {
                self.bytes.push(0xe9);
                self.far(to);
            }
        }
    }

    fn jcc(&mut self, cond: u8, to: BlockId) {
        match self.label(to).map(|label| label as i64 - (self.bytes.len() as i64 + 2)) {
            Some(distance @ -128..=127) => self.bytes.extend([0x70 | cond, distance as u8]),
            _ => {
                self.bytes.extend([0x0f, 0x80 | cond]);
                self.far(to);
            }
        }
    }

    fn far(&mut self, to: BlockId) {
        self.fixups.push((self.bytes.len(), to));
        self.bytes.extend([0; 4]);
    }

    fn plain(&mut self, inst: &Inst, allocs: &[Allocation]) {
        let mut allocs = allocs.iter().map(|a| a.as_reg().expect("operands are in registers"));
        let mut take = || allocs.next().expect("an allocation for each operand");
        let mut encoding = Instruction::default();
        encoding.set_code(inst.code);
        let info = inst.code.op_code();
        let mut mem = None;
        for (place, arg) in (0u32..).zip(&inst.args) {
            match arg {
                Arg::Def(_) | Arg::Use(_) | Arg::Mod { .. } => {
                    if matches!(arg, Arg::Mod { .. }) {
                        take();
                    }
                    let family = register_family(info.op_kind(place));
                    encoding.set_op_kind(place, OpKind::Register);
                    encoding.set_op_register(place, register(take(), family));
                }
                Arg::Mem(address) => {
                    let base = matches!(address.base, Base::Reg(_)).then(&mut take);
                    let index = address.index.map(|(_, scale)| (take(), scale));
                    let operand = self.memory(address, base, index, info.op_kind(place));
                    encoding.set_op_kind(place, OpKind::Memory);
                    set_memory(&mut encoding, &operand);
                    mem = Some(address);
                }
                Arg::Imm(value) => set_immediate(&mut encoding, place, *value),
                Arg::Tile(number) => {
                    encoding.set_op_kind(place, OpKind::Register);
                    encoding.set_op_register(place, Register::TMM0 + u32::from(*number));
                }
            }
        }
        if let Some((_, zeroing)) = inst.mask {
            encoding.set_op_mask(register(take(), Family::K));
            encoding.set_zeroing_masking(zeroing);
        }
        if inst.clobbered.is_some() {
            take();
            encoding.set_op_mask(register(take(), Family::K));
        }
        encoding.set_is_broadcast(inst.broadcast);
        debug_assert!(mem.is_some() || !inst.broadcast);
        self.push(&encoding);
    }

    fn memory(
        &self,
        mem: &Mem,
        base: Option<PReg>,
        index: Option<(PReg, u8)>,
        kind: OpCodeOperandKind,
    ) -> MemoryOperand {
        let (base, disp) = match mem.base {
            Base::Reg(_) => {
                let base = base.expect("allocated");
                (register(base, Family::R64), i64::from(mem.disp))
            }
            Base::Frame(offset) => (Register::RSP, i64::from(offset) + i64::from(mem.disp)),
            Base::Pool(entry) => (Register::RIP, self.pool_at[entry] as i64 + i64::from(mem.disp)),
        };
        let (index, scale) = match index {
            Some((index, scale)) => (register(index, index_family(index, kind)), scale),
            None => (Register::None, 1),
        };
        // iced uses four bytes if the displacement does not fit into one (which EVEX scales by the
        // length of the operand).
        let size = match (mem.base, disp) {
            (Base::Pool(_), _) => 8,
            (_, 0) => 0,
            _ => 1,
        };
        MemoryOperand::new(base, index, scale.into(), disp, size, false, Register::None)
    }

    fn push(&mut self, instruction: &Instruction) {
        let at = self.bytes.len() as u64;
        if let Err(error) = self.encoder.encode(instruction, at) {
            crate::bug!("encoding of {:?}: {error}", instruction.code());
        }
        // Appending keeps the memory of the encoder's buffer.
        let mut encoded = self.encoder.take_buffer();
        self.bytes.append(&mut encoded);
        self.encoder.set_buffer(encoded);
    }

    /// Encodes a move of the allocator.
    fn move_(&mut self, from: Allocation, to: Allocation) {
        if from == to {
            return;
        }
        let class = from.as_reg().or(to.as_reg()).expect("one side is a register").class();
        let (load, store, copy, family) = self.move_codes(class);
        let mut encoding = Instruction::default();
        let slot = |allocation: Allocation| {
            let slot = allocation.as_stack().expect("a slot").index() as i64 * 8;
            let disp = i64::from(self.frame.spills) + slot;
            MemoryOperand::with_base_displ(Register::RSP, disp)
        };
        let reg =
            |allocation: Allocation| register(allocation.as_reg().expect("a register"), family);
        match (from.kind(), to.kind()) {
            (AllocationKind::Reg, AllocationKind::Reg) => {
                encoding = Instruction::with2(copy, reg(to), reg(from)).expect("a move");
            }
            (AllocationKind::Reg, AllocationKind::Stack) => {
                encoding = Instruction::with2(store, slot(to), reg(from)).expect("a store");
            }
            (AllocationKind::Stack, AllocationKind::Reg) => {
                encoding = Instruction::with2(load, reg(to), slot(from)).expect("a load");
            }
            _ => crate::bug!("the allocator moves from {from} to {to}: {encoding}"),
        }
        if !(from.is_reg() && to.is_reg()) {
            self.spills.push(self.bytes.len());
        }
        self.push(&encoding);
    }

    /// Load, store and copy of a whole register.
    fn move_codes(&self, class: RegClass) -> (Code, Code, Code, Family) {
        use Code::*;
        match (class, self.isa) {
            (RegClass::Int, _) => (Mov_r64_rm64, Mov_rm64_r64, Mov_r64_rm64, Family::R64),
            (RegClass::Vector, _) => {
                (VEX_Kmovq_kr_km64, VEX_Kmovq_m64_kr, VEX_Kmovq_kr_km64, Family::K)
            }
            (RegClass::Float, SimdIsa::Avx512) => (
                EVEX_Vmovups_zmm_k1z_zmmm512,
                EVEX_Vmovups_zmmm512_k1z_zmm,
                EVEX_Vmovaps_zmm_k1z_zmmm512,
                Family::Z,
            ),
            (RegClass::Float, SimdIsa::Avx2) => (
                VEX_Vmovups_ymm_ymmm256,
                VEX_Vmovups_ymmm256_ymm,
                VEX_Vmovaps_ymm_ymmm256,
                Family::Y,
            ),
        }
    }

    fn prologue(&mut self) -> Prologue {
        let has_frame = self.frame.bytes > 0;
        let saved = self.frame.saved.clone();
        let mut done = Prologue::default();
        if has_frame {
            self.push_reg(Code::Push_r64, Register::RBP);
            done.pushes.push((self.bytes.len(), RBP as u8));
            let copy = Instruction::with2(Code::Mov_r64_rm64, Register::RBP, Register::RSP);
            self.push(&copy.expect("a move"));
            done.frame = Some(self.bytes.len());
        }
        for (position, number) in (1..).zip(&saved) {
            self.push_reg(Code::Push_r64, general(*number));
            let (end, number) = (self.bytes.len(), *number as u8);
            if has_frame {
                let register = SavedRegister::General(number);
                done.saves.push(SavedBelow { end, register, below: 8 * position });
            } else {
                done.pushes.push((end, number));
            }
        }
        if has_frame {
            self.probe();
            let (rsp, bytes) = (Register::RSP, self.frame.bytes as i32);
            let sub = Instruction::with2(Code::Sub_rm64_imm32, rsp, bytes).expect("sub");
            self.push(&sub);
            let mask = -(LINE_BYTES as i32);
            let align = Instruction::with2(Code::And_rm64_imm8, rsp, mask).expect("and");
            self.push(&align);
        }
        done
    }

    /// Reads the pages of a frame that is larger than a page, the upper ones first.
    fn probe(&mut self) {
        // The alignment takes up to a cache line more.
        let end = if self.frame.probed { self.frame.bytes + LINE_BYTES as u32 } else { 0 };
        for below in (PROBED_BYTES..=end).step_by(PROBED_BYTES as usize) {
            let page = MemoryOperand::with_base_displ(Register::RSP, -i64::from(below));
            let read = Instruction::with2(Code::Cmp_rm64_imm8, page, 0);
            self.push(&read.expect("a comparison"));
        }
    }

    fn epilogue(&mut self) {
        self.push(&Instruction::with(Code::VEX_Vzeroupper));
        let saved = self.frame.saved.clone();
        if self.frame.bytes > 0 {
            let at = -(saved.len() as i64 * 8);
            let below = MemoryOperand::with_base_displ(Register::RBP, at);
            let lea = Instruction::with2(Code::Lea_r64_m, Register::RSP, below).expect("lea");
            self.push(&lea);
        }
        for number in saved.iter().rev() {
            self.push_reg(Code::Pop_r64, general(*number));
        }
        if self.frame.bytes > 0 {
            self.push_reg(Code::Pop_r64, Register::RBP);
        }
        self.push(&Instruction::with(Code::Retnq));
    }

    fn push_reg(&mut self, code: Code, reg: Register) {
        self.push(&Instruction::with1(code, reg).expect("push and pop"));
    }
}

fn set_memory(encoding: &mut Instruction, operand: &MemoryOperand) {
    encoding.set_memory_base(operand.base);
    encoding.set_memory_index(operand.index);
    encoding.set_memory_index_scale(operand.scale);
    encoding.set_memory_displacement64(operand.displacement as u64);
    encoding.set_memory_displ_size(operand.displ_size);
}

fn set_immediate(encoding: &mut Instruction, place: u32, value: i64) {
    let kind = match encoding.code().op_code().op_kind(place) {
        OpCodeOperandKind::imm8 => OpKind::Immediate8,
        OpCodeOperandKind::imm8sex64 => OpKind::Immediate8to64,
        OpCodeOperandKind::imm8sex32 => OpKind::Immediate8to32,
        OpCodeOperandKind::imm32sex64 => OpKind::Immediate32to64,
        OpCodeOperandKind::imm32 => OpKind::Immediate32,
        OpCodeOperandKind::imm64 => OpKind::Immediate64,
        other => crate::bug!("an immediate in place of {other:?}"),
    };
    encoding.set_op_kind(place, kind);
    match kind {
        OpKind::Immediate8 => encoding.set_immediate8(value as u8),
        OpKind::Immediate8to64 => encoding.set_immediate8to64(value),
        OpKind::Immediate8to32 => encoding.set_immediate8to32(value as i32),
        OpKind::Immediate32to64 => encoding.set_immediate32to64(value),
        OpKind::Immediate32 => encoding.set_immediate32(value as u32),
        _ => encoding.set_immediate64(value as u64),
    }
}

/// The registers that an operand names, by class and size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    R8,
    R16,
    R32,
    R64,
    X,
    Y,
    Z,
    K,
}

fn register_family(kind: OpCodeOperandKind) -> Family {
    use OpCodeOperandKind::*;
    match kind {
        r8_or_mem | r8_reg => Family::R8,
        r16_or_mem => Family::R16,
        r32_or_mem | r32_reg | r32_rm | r32_vvvv | r32_opcode => Family::R32,
        r64_or_mem | r64_reg | r64_rm | r64_vvvv | r64_opcode => Family::R64,
        xmm_or_mem | xmm_reg | xmm_rm | xmm_vvvv | xmm_is4 => Family::X,
        ymm_or_mem | ymm_reg | ymm_rm | ymm_vvvv | ymm_is4 => Family::Y,
        zmm_or_mem | zmm_reg | zmm_rm | zmm_vvvv => Family::Z,
        k_or_mem | k_reg | k_rm | k_vvvv => Family::K,
        other => crate::bug!("a register in place of {other:?}"),
    }
}

/// The size of the registers with the offsets of a gather.
fn index_family(reg: PReg, kind: OpCodeOperandKind) -> Family {
    use OpCodeOperandKind::*;
    match (reg.class(), kind) {
        (RegClass::Int, _) => Family::R64,
        (_, mem_vsib32x | mem_vsib64x) => Family::X,
        (_, mem_vsib32y | mem_vsib64y) => Family::Y,
        (_, mem_vsib32z | mem_vsib64z) => Family::Z,
        (_, other) => crate::bug!("a vector of offsets in {other:?}"),
    }
}

fn general(number: usize) -> Register {
    register(PReg::new(number, RegClass::Int), Family::R64)
}

fn register(reg: PReg, family: Family) -> Register {
    let (first, class) = match family {
        Family::R8 => return byte_register(reg.hw_enc()),
        Family::R16 => (Register::AX, RegClass::Int),
        Family::R32 => (Register::EAX, RegClass::Int),
        Family::R64 => (Register::RAX, RegClass::Int),
        Family::X => (Register::XMM0, RegClass::Float),
        Family::Y => (Register::YMM0, RegClass::Float),
        Family::Z => (Register::ZMM0, RegClass::Float),
        Family::K => (Register::K0, RegClass::Vector),
    };
    if reg.class() != class {
        crate::bug!("{reg} in place of a register like {first:?}");
    }
    first + reg.hw_enc() as u32
}

/// `al` to `r15l`, without `ah` to `bh`.
fn byte_register(number: usize) -> Register {
    match number {
        0..=3 => Register::AL + number as u32,
        _ => Register::SPL + (number as u32 - 4),
    }
}

/// No-operations of 1 to 9 bytes (Intel SDM, volume 2, table 4-12).
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

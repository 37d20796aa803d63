//! Builder of a [`Func`]: blocks, registers and instructions.

use super::inst::{Arg, Base, Block, BlockId, Cond, Foldable, Func, Inst, InstKind, Mem, Width};
use super::table::{ALL_FORMS, VOp};
use crate::target::SimdIsa;
use iced_x86::Code;
use regalloc2::{RegClass, VReg};

/// Builds a function.
pub(super) struct Builder {
    pub(super) func: Func,
    /// The block that instructions are appended to.
    pub(super) current: BlockId,
    pub(super) isa: SimdIsa,
    /// Whether there are the instructions of AVX512_VNNI.
    pub(super) has_vnni: bool,
    /// The statement of the next instructions.
    pub(super) mark: u32,
}

/// The forms of an instruction, in the order of [`ALL_FORMS`].
pub(super) type Forms = [Code; 5];

impl Builder {
    pub(super) fn new(isa: SimdIsa, has_vnni: bool) -> Builder {
        let mut func = Func::default();
        func.blocks.push(Block::default());
        func.marks.push((0, String::new()));
        Builder { func, current: 0, isa, has_vnni, mark: 0 }
    }

    /// Whether vector instructions have EVEX encodings (AVX-512), not VEX ones.
    pub(super) fn is_evex(&self) -> bool {
        self.isa == SimdIsa::Avx512
    }

    pub(super) fn reg(&mut self, class: RegClass) -> VReg {
        self.func.num_vregs += 1;
        VReg::new(self.func.num_vregs - 1, class)
    }

    pub(super) fn gpr(&mut self) -> VReg {
        self.reg(RegClass::Int)
    }

    pub(super) fn vec(&mut self) -> VReg {
        self.reg(RegClass::Float)
    }

    pub(super) fn mask_reg(&mut self) -> VReg {
        self.reg(RegClass::Vector)
    }

    /// Makes a new block.
    pub(super) fn block(&mut self) -> BlockId {
        self.func.blocks.push(Block::default());
        self.func.blocks.len() - 1
    }

    /// Adds a parameter of the class of `like` to a block.
    pub(super) fn param(&mut self, block: BlockId, like: VReg) -> VReg {
        let param = self.reg(like.class());
        self.func.blocks[block].params.push(param);
        param
    }

    pub(super) fn push(&mut self, mut inst: Inst) {
        inst.mark = self.mark;
        self.func.blocks[self.current].insts.push(inst);
    }

    pub(super) fn emit(&mut self, code: Code, args: Vec<Arg>) {
        self.push(Inst::new(code, args));
    }

    pub(super) fn jump(&mut self, to: BlockId, args: Vec<VReg>) {
        let mut inst = Inst::new(Code::INVALID, Vec::new());
        inst.kind = InstKind::Jump(to, args);
        self.push(inst);
    }

    pub(super) fn branch(&mut self, cond: Cond, then: BlockId, otherwise: BlockId) {
        let mut inst = Inst::new(Code::INVALID, Vec::new());
        inst.kind = InstKind::Branch(cond, then, otherwise);
        self.push(inst);
    }

    pub(super) fn ret(&mut self) {
        let mut inst = Inst::new(Code::INVALID, Vec::new());
        inst.kind = InstKind::Ret;
        self.push(inst);
    }

    /// The form of an instruction for a width.
    pub(super) fn form(&self, width: Width, forms: Forms) -> Code {
        let place = ALL_FORMS.iter().position(|form| *form == (width, self.isa));
        let Some(place) = place else { crate::bug!("{:?} has no {width:?}", self.isa) };
        let code = forms[place];
        if code == Code::INVALID {
            crate::bug!("no form of {forms:?} for {width:?}");
        }
        code
    }

    fn vop(&self, op: VOp, width: Width) -> Code {
        let Some(code) = op.code(width, self.isa) else {
            crate::bug!("no {op:?} for {width:?} of {:?}", self.isa);
        };
        code
    }

    fn foldable(&self, op: VOp, width: Width) -> Foldable {
        let broadcast = if self.is_evex() { op.broadcast_bytes() } else { 0 };
        Foldable { full: width.bytes() as u8, broadcast }
    }

    /// `op a`.
    pub(super) fn op1(&mut self, op: VOp, width: Width, a: VReg) -> VReg {
        let to = self.vec();
        let mut inst = Inst::new(self.vop(op, width), vec![Arg::Def(to), Arg::Use(a)]);
        inst.foldable = self.foldable(op, width);
        self.push(inst);
        to
    }

    /// `a op b`.
    pub(super) fn op2(&mut self, op: VOp, width: Width, a: VReg, b: VReg) -> VReg {
        let to = self.vec();
        let args = vec![Arg::Def(to), Arg::Use(a), Arg::Use(b)];
        let mut inst = Inst::new(self.vop(op, width), args);
        inst.foldable = self.foldable(op, width);
        self.push(inst);
        to
    }

    /// `op a` with an immediate.
    pub(super) fn op_imm(&mut self, op: VOp, width: Width, a: VReg, imm: i64) -> VReg {
        let to = self.vec();
        let args = vec![Arg::Def(to), Arg::Use(a), Arg::Imm(imm)];
        let inst = Inst::new(self.vop(op, width), args);
        self.push(inst);
        to
    }

    /// The doublewords of `high` at the places of `bits`, and those of `low`. Of AVX2.
    pub(super) fn blend_doublewords(
        &mut self,
        width: Width,
        low: VReg,
        high: VReg,
        bits: u32,
    ) -> VReg {
        let to = self.vec();
        let code = match width {
            Width::X => Code::VEX_Vpblendd_xmm_xmm_xmmm128_imm8,
            _ => Code::VEX_Vpblendd_ymm_ymm_ymmm256_imm8,
        };
        let args = vec![Arg::Def(to), Arg::Use(low), Arg::Use(high), Arg::Imm(bits.into())];
        let mut inst = Inst::new(code, args);
        inst.foldable.full = width.bytes() as u8;
        self.push(inst);
        to
    }

    /// `a * b + c`. [`super::fold`] chooses the operand that the result overwrites.
    pub(super) fn fma(&mut self, double: bool, width: Width, a: VReg, b: VReg, c: VReg) -> VReg {
        self.accumulate(if double { VOp::Fma231Pd } else { VOp::Fma231Ps }, width, a, b, c)
    }

    /// `a * b - c`.
    pub(super) fn fmsub(&mut self, double: bool, width: Width, a: VReg, b: VReg, c: VReg) -> VReg {
        self.accumulate(if double { VOp::Fmsub231Pd } else { VOp::Fmsub231Ps }, width, a, b, c)
    }

    /// `c - a * b`.
    pub(super) fn fnmadd(&mut self, double: bool, width: Width, a: VReg, b: VReg, c: VReg) -> VReg {
        self.accumulate(if double { VOp::Fnmadd231Pd } else { VOp::Fnmadd231Ps }, width, a, b, c)
    }

    /// `c + a op b`, which overwrites `c`.
    pub(super) fn accumulate(&mut self, op: VOp, width: Width, a: VReg, b: VReg, c: VReg) -> VReg {
        let to = self.vec();
        let args = vec![Arg::Mod { from: c, to }, Arg::Use(a), Arg::Use(b)];
        let mut inst = Inst::new(self.vop(op, width), args);
        inst.foldable = self.foldable(op, width);
        self.push(inst);
        to
    }

    /// An instruction without a table entry: `code to, args…`.
    pub(super) fn make(&mut self, code: Code, args: &[Arg]) -> VReg {
        let to = self.vec();
        let mut all = vec![Arg::Def(to)];
        all.extend(args);
        self.emit(code, all);
        to
    }

    /// The same into a general register.
    pub(super) fn make_gpr(&mut self, code: Code, args: &[Arg]) -> VReg {
        let to = self.gpr();
        let mut all = vec![Arg::Def(to)];
        all.extend(args);
        self.emit(code, all);
        to
    }

    /// The same into a mask register.
    pub(super) fn make_mask(&mut self, code: Code, args: &[Arg]) -> VReg {
        let to = self.mask_reg();
        let mut all = vec![Arg::Def(to)];
        all.extend(args);
        self.emit(code, all);
        to
    }

    /// `code reg, args…` that reads and writes its first operand.
    pub(super) fn modify(&mut self, code: Code, from: VReg, args: &[Arg]) -> VReg {
        let to = self.reg(from.class());
        let mut all = vec![Arg::Mod { from, to }];
        all.extend(args);
        self.emit(code, all);
        to
    }

    /// A constant in a general register.
    pub(super) fn imm(&mut self, value: i64) -> VReg {
        match i32::try_from(value) {
            Ok(_) => self.make_gpr(Code::Mov_rm64_imm32, &[Arg::Imm(value)]),
            Err(_) => self.make_gpr(Code::Mov_r64_imm64, &[Arg::Imm(value)]),
        }
    }

    pub(super) fn add_imm(&mut self, a: VReg, value: i64) -> VReg {
        match (i8::try_from(value), i32::try_from(value)) {
            (Ok(0), _) => a,
            (Ok(_), _) => self.modify(Code::Add_rm64_imm8, a, &[Arg::Imm(value)]),
            (_, Ok(_)) => self.modify(Code::Add_rm64_imm32, a, &[Arg::Imm(value)]),
            _ => {
                let value = self.imm(value);
                self.add(a, value)
            }
        }
    }

    pub(super) fn add(&mut self, a: VReg, b: VReg) -> VReg {
        self.modify(Code::Add_r64_rm64, a, &[Arg::Use(b)])
    }

    pub(super) fn sub(&mut self, a: VReg, b: VReg) -> VReg {
        self.modify(Code::Sub_r64_rm64, a, &[Arg::Use(b)])
    }

    pub(super) fn mul(&mut self, a: VReg, b: VReg) -> VReg {
        self.modify(Code::Imul_r64_rm64, a, &[Arg::Use(b)])
    }

    pub(super) fn mul_imm(&mut self, a: VReg, value: i64) -> VReg {
        if value == 1 {
            return a;
        }
        if value > 0 && (value as u64).is_power_of_two() {
            let shift = i64::from(value.trailing_zeros());
            return self.modify(Code::Shl_rm64_imm8, a, &[Arg::Imm(shift)]);
        }
        if i32::try_from(value).is_ok() {
            return self.make_gpr(Code::Imul_r64_rm64_imm32, &[Arg::Use(a), Arg::Imm(value)]);
        }
        let value = self.imm(value);
        self.mul(a, value)
    }

    pub(super) fn and_imm(&mut self, a: VReg, value: i64) -> VReg {
        match i32::try_from(value) {
            Ok(_) => self.modify(Code::And_rm64_imm32, a, &[Arg::Imm(value)]),
            Err(_) => {
                let value = self.imm(value);
                self.modify(Code::And_r64_rm64, a, &[Arg::Use(value)])
            }
        }
    }

    /// Quotient, rounded towards zero, and remainder of signed integers.
    pub(super) fn divide(&mut self, a: VReg, by: VReg) -> (VReg, VReg) {
        const RAX: u8 = 0;
        const RDX: u8 = 2;
        let (low, high) = (self.gpr(), self.gpr());
        let mut extend = Inst::new(Code::Cqo, Vec::new());
        extend.implicit = vec![(a, RAX, false), (high, RDX, true)];
        self.push(extend);
        let (q, r) = (self.gpr(), low);
        let mut divide = Inst::new(Code::Idiv_rm64, vec![Arg::Use(by)]);
        divide.implicit = vec![(a, RAX, false), (high, RDX, false), (q, RAX, true), (r, RDX, true)];
        self.push(divide);
        (q, r)
    }

    /// The high half of a product of unsigned integers.
    pub(super) fn mul_high(&mut self, a: VReg, by: VReg) -> VReg {
        const RAX: u8 = 0;
        const RDX: u8 = 2;
        let (low, high) = (self.gpr(), self.gpr());
        let mut multiply = Inst::new(Code::Mul_rm64, vec![Arg::Use(by)]);
        multiply.implicit = vec![(a, RAX, false), (low, RAX, true), (high, RDX, true)];
        self.push(multiply);
        high
    }

    /// Quotient and remainder of unsigned integers.
    pub(super) fn divide_unsigned(&mut self, a: VReg, by: VReg) -> (VReg, VReg) {
        const RAX: u8 = 0;
        const RDX: u8 = 2;
        let high = self.imm(0);
        let (q, r) = (self.gpr(), self.gpr());
        let mut divide = Inst::new(Code::Div_rm64, vec![Arg::Use(by)]);
        divide.implicit = vec![(a, RAX, false), (high, RDX, false), (q, RAX, true), (r, RDX, true)];
        self.push(divide);
        (q, r)
    }

    /// Sets the flags to `a - b`.
    pub(super) fn cmp(&mut self, a: VReg, b: VReg) {
        self.emit(Code::Cmp_r64_rm64, vec![Arg::Use(a), Arg::Use(b)]);
    }

    pub(super) fn cmp_imm(&mut self, a: VReg, value: i64) {
        match (i8::try_from(value), i32::try_from(value)) {
            (Ok(_), _) => self.emit(Code::Cmp_rm64_imm8, vec![Arg::Use(a), Arg::Imm(value)]),
            (_, Ok(_)) => self.emit(Code::Cmp_rm64_imm32, vec![Arg::Use(a), Arg::Imm(value)]),
            _ => {
                let value = self.imm(value);
                self.cmp(a, value);
            }
        }
    }

    /// `base + index * scale + disp` for a scale of 1, 2, 4 or 8.
    pub(super) fn lea(&mut self, mem: Mem) -> VReg {
        self.make_gpr(Code::Lea_r64_m, &[Arg::Mem(mem)])
    }

    /// 0 or 1 by the flags.
    pub(super) fn set(&mut self, cond: Cond) -> VReg {
        let code = match cond {
            Cond::O => Code::Seto_rm8,
            Cond::No => Code::Setno_rm8,
            Cond::B => Code::Setb_rm8,
            Cond::Ae => Code::Setae_rm8,
            Cond::E => Code::Sete_rm8,
            Cond::Ne => Code::Setne_rm8,
            Cond::L => Code::Setl_rm8,
            Cond::Ge => Code::Setge_rm8,
            Cond::Le => Code::Setle_rm8,
            Cond::G => Code::Setg_rm8,
        };
        let byte = self.make_gpr(code, &[]);
        self.make_gpr(Code::Movzx_r32_rm8, &[Arg::Use(byte)])
    }

    /// `cond ? then : otherwise` by the flags.
    pub(super) fn cmov(&mut self, cond: Cond, then: VReg, otherwise: VReg) -> VReg {
        let code = match cond {
            Cond::O => Code::Cmovo_r64_rm64,
            Cond::No => Code::Cmovno_r64_rm64,
            Cond::B => Code::Cmovb_r64_rm64,
            Cond::Ae => Code::Cmovae_r64_rm64,
            Cond::E => Code::Cmove_r64_rm64,
            Cond::Ne => Code::Cmovne_r64_rm64,
            Cond::L => Code::Cmovl_r64_rm64,
            Cond::Ge => Code::Cmovge_r64_rm64,
            Cond::Le => Code::Cmovle_r64_rm64,
            Cond::G => Code::Cmovg_r64_rm64,
        };
        self.modify(code, otherwise, &[Arg::Use(then)])
    }

    /// The address of a constant after the code.
    pub(super) fn pool(&mut self, bytes: Vec<u8>) -> Mem {
        let entries = &mut self.func.pool;
        let place = entries.iter().position(|entry| *entry == bytes).unwrap_or_else(|| {
            entries.push(bytes);
            entries.len() - 1
        });
        Mem { base: Base::Pool(place), index: None, disp: 0 }
    }

    /// Zero in all lanes.
    pub(super) fn zero(&mut self) -> VReg {
        let to = self.vec();
        let mut inst = Inst::new(Code::VEX_Vpxor_xmm_xmm_xmmm128, vec![Arg::Def(to)]);
        inst.kind = InstKind::Zero;
        self.push(inst);
        to
    }

    /// A mask of AVX-512 for all lanes of a vector with at most 16.
    pub(super) fn ones(&mut self) -> VReg {
        let to = self.mask_reg();
        let mut inst = Inst::new(Code::VEX_Kxnorw_kr_kr_kr, vec![Arg::Def(to)]);
        inst.kind = InstKind::Ones;
        self.push(inst);
        to
    }

    /// The first argument of the function.
    pub(super) fn first_argument(&mut self) -> VReg {
        let to = self.gpr();
        let mut inst = Inst::new(Code::INVALID, Vec::new());
        inst.implicit.push((to, super::alloc::RDI, true));
        self.push(inst);
        to
    }

    /// Returns the function with its blocks in the order `layout`.
    pub(super) fn finish(mut self, layout: &[BlockId]) -> Func {
        let mut place = vec![usize::MAX; self.func.blocks.len()];
        for (position, id) in layout.iter().enumerate() {
            place[*id] = position;
        }
        let mut old: Vec<Option<Block>> = self.func.blocks.drain(..).map(Some).collect();
        for id in layout {
            let mut block = old[*id].take().expect("a block has one place");
            for inst in &mut block.insts {
                match &mut inst.kind {
                    InstKind::Jump(to, _) => *to = place[*to],
                    InstKind::Branch(_, then, otherwise) => {
                        (*then, *otherwise) = (place[*then], place[*otherwise]);
                    }
                    _ => {}
                }
            }
            self.func.blocks.push(block);
        }
        for info in &mut self.func.loops {
            (info.head, info.latch) = (place[info.head], place[info.latch]);
        }
        self.func.loops.sort_by_key(|info| info.head);
        self.func
    }
}

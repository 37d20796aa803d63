//! Vectors of `bool`: comparisons, choices, and the two forms of a mask.
//!
//! AVX-512 has mask registers with one bit for a lane. AVX2 keeps a mask in a vector with lanes as
//! long as the compared elements, all ones where true. To select elements of another length, its
//! lanes are widened or narrowed.

use super::address::{Terms, is_index};
use super::inst::{Arg, Cond, Inst, Width};
use super::nest::{Selector, Val};
use super::plan;
use super::table::VOp;
use super::value::width_of;
use crate::ir::equal::equal;
use crate::ir::visit::any_expr;
use crate::ir::{BinOp, DType, Expr, ExprKind, Stmt, Type, UnOp, Var};
use crate::simd_ops::{LaneCount, constant_mask, lane_count};
use iced_x86::Code::{self, *};
use regalloc2::VReg;

impl Selector<'_> {
    /// A vector of `bool`.
    pub(super) fn mask(&mut self, expr: &Expr) -> Val {
        let lanes = expr.ty.lanes;
        if let Some(bits) = constant_bits(expr) {
            return self.constant_mask(bits, lanes);
        }
        // Unrolled statements share their conditions, and so do the components of an `argmax`.
        let in_memory = |e: &Expr| match &e.kind {
            ExprKind::Load { buffer, .. } => !self.registers.contains_key(buffer),
            _ => false,
        };
        if !matches!(expr.kind, ExprKind::Binary(..)) || any_expr(expr, &mut |e| in_memory(e)) {
            return self.new_mask(expr);
        }
        let mut all = self.scopes.iter().rev().flat_map(|scope| &scope.conditions);
        if let Some((_, known)) = all.find(|(cond, _)| equal(cond, expr)) {
            return *known;
        }
        let mask = self.new_mask(expr);
        self.scopes.last_mut().expect("a scope").conditions.push((expr.clone(), mask));
        mask
    }

    fn new_mask(&mut self, expr: &Expr) -> Val {
        use BinOp::*;
        let lanes = expr.ty.lanes;
        match &expr.kind {
            ExprKind::Var(var) => self.variable(var),
            ExprKind::Broadcast(a) => {
                let flag = self.value(a).reg();
                self.mask_of_flag(flag, lanes)
            }
            ExprKind::Unary(UnOp::Likely, a) => self.value(a),
            ExprKind::Unary(UnOp::Not, a) => {
                let a = self.value(a);
                self.not(a, lanes)
            }
            ExprKind::Unary(UnOp::IsNan, a) => self.compare_unordered(a),
            ExprKind::Binary(op, a, b) if op.is_comparison() && a.ty.dtype != DType::Bool => {
                self.compare(*op, a, b)
            }
            ExprKind::Binary(op, a, b) => {
                let (x, y) = (self.value(a), self.value(b));
                match op {
                    And | BitAnd => self.combine(VEX_Kandq_kr_kr_kr, VOp::And, x, y, lanes),
                    Or | BitOr => self.combine(VEX_Korq_kr_kr_kr, VOp::Or, x, y, lanes),
                    BitXor | Ne => self.combine(VEX_Kxorq_kr_kr_kr, VOp::Xor, x, y, lanes),
                    Eq => {
                        let other = self.combine(VEX_Kxorq_kr_kr_kr, VOp::Xor, x, y, lanes);
                        self.not(other, lanes)
                    }
                    // `a < b` is `not a and b`.
                    Lt | Ge => {
                        let less = self.not(x, lanes);
                        let less = self.combine(VEX_Kandq_kr_kr_kr, VOp::And, less, y, lanes);
                        if *op == Lt { less } else { self.not(less, lanes) }
                    }
                    Gt | Le => {
                        let more = self.not(y, lanes);
                        let more = self.combine(VEX_Kandq_kr_kr_kr, VOp::And, more, x, lanes);
                        if *op == Gt { more } else { self.not(more, lanes) }
                    }
                    _ => crate::bug!("{op:?} of vectors of bool"),
                }
            }
            ExprKind::Select(c, t, f) => {
                let c = self.value(c);
                let (t, f) = (self.value(t), self.value(f));
                let c = match c {
                    Val::Gpr(flag) => self.mask_of_flag(flag, lanes),
                    c => c,
                };
                // `f ^ (c & (t ^ f))`
                let both = self.combine(VEX_Kxorq_kr_kr_kr, VOp::Xor, t, f, lanes);
                let chosen = self.combine(VEX_Kandq_kr_kr_kr, VOp::And, c, both, lanes);
                self.combine(VEX_Kxorq_kr_kr_kr, VOp::Xor, f, chosen, lanes)
            }
            ExprKind::IfThenElse(c, t, f) => self.select_lazily(c, t, f),
            ExprKind::Cast(a) => {
                let mut value = self.value(a).reg();
                let mut ty = a.ty;
                if ty.dtype.is_half() {
                    // Halves are compared as float32.
                    value = self.convert(Val::Vec(value), ty, DType::Float32);
                    ty.dtype = DType::Float32;
                }
                let zero = self.b.zero();
                self.compare_regs(Ne, ty, value, zero)
            }
            ExprKind::Let(var, value, body) => {
                self.bind(var, value);
                self.value(body)
            }
            ExprKind::Load { buffer, indices, mask } => {
                self.load(buffer, &indices[0], mask.as_ref())
            }
            _ => crate::bug!("a mask of {:?}", expr.kind),
        }
    }

    /// A comparison of data, or of vectors of indices.
    pub(super) fn compare(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Val {
        if let Some(mask) = self.compare_lanes(op, a, b) {
            return mask;
        }
        debug_assert!(!is_index(a), "a comparison of scalar indices has no mask");
        let (x, y) = (self.value(a).reg(), self.value(b).reg());
        self.compare_regs(op, a.ty, x, y)
    }

    /// A comparison like `base + lane < bound`, computed once in a scope.
    fn compare_lanes(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Option<Val> {
        let LaneCount { base, bound, lanes, inclusive, negated } = lane_count(op, a, b)?;
        if let (Some(from), Some(to), true) = (base.as_int(), bound.as_int(), lanes <= 64) {
            let bits = first_lanes(to - from + i128::from(inclusive), lanes);
            let bits = if negated { every_lane(lanes) & !bits } else { bits };
            return Some(self.constant_mask(bits, lanes));
        }
        let key =
            MaskKey::Lanes([self.terms(&base), self.terms(&bound)], lanes, inclusive, negated);
        let known = self.scopes.iter().rev().find_map(|scope| scope.lane_masks.get(&key));
        if let Some(mask) = known {
            return Some(*mask);
        }
        let count = self.lanes_below(&base, &bound, lanes, inclusive);
        // Counts fit into a byte, so lanes can be as short as the vector needs.
        let bytes = u64::from(self.b.isa.bytes() / lanes).clamp(1, 4);
        let dtype = match bytes {
            1 => DType::Int8,
            2..=3 => DType::Int16,
            _ => DType::Int32,
        };
        let ty = Type { dtype, lanes };
        let (width, bytes) = (width_of(ty), dtype.bytes());
        let one = self.of_gpr(count);
        let all = self.splat(one, bytes, width);
        let numbers = self.progression(1, bytes, width);
        let op = if negated { BinOp::Le } else { BinOp::Gt };
        let mask = self.compare_regs(op, ty, all, numbers);
        self.scopes.last_mut().expect("a scope").lane_masks.insert(key, mask);
        Some(mask)
    }

    /// The number of lanes in which `base + lane` is less than `bound` (`inclusive`: or equal), at
    /// most `lanes + 1`. The difference of two indices may need 65 bits: if it is not negative, it
    /// is right as an unsigned number, else the comparison decides.
    fn lanes_below(&mut self, base: &Expr, bound: &Expr, lanes: u32, inclusive: bool) -> VReg {
        if self.is_moderate(base) && self.is_moderate(bound) {
            let count = Expr::sub(bound.clone(), base.clone());
            let count = Expr::add(count, Expr::index(inclusive.into()));
            let count = self.index_value(&count);
            let zero = self.b.imm(0);
            self.b.cmp_imm(count, 0);
            let count = self.b.cmov(Cond::L, zero, count);
            let most = self.b.imm(lanes.into());
            self.b.cmp_imm(count, lanes.into());
            return self.b.cmov(Cond::G, most, count);
        }
        let (from, to) = (self.index_value(base), self.index_value(bound));
        let distance = self.b.sub(to, from);
        let most = self.b.imm(lanes.into());
        self.b.cmp_imm(distance, lanes.into());
        let count = self.b.cmov(Cond::Ae, most, distance);
        let count = self.b.add_imm(count, inclusive.into());
        let zero = self.b.imm(0);
        self.b.cmp(from, to);
        self.b.cmov(if inclusive { Cond::G } else { Cond::Ge }, zero, count)
    }

    /// A mask of constants, one bit for each lane.
    fn constant_mask(&mut self, bits: u64, lanes: u32) -> Val {
        let key = MaskKey::Constant(bits, lanes);
        let known = self.scopes.iter().rev().find_map(|scope| scope.lane_masks.get(&key));
        if let Some(mask) = known {
            return *mask;
        }
        let mask = if self.b.is_evex() {
            let bits = self.b.imm(bits as i64);
            Val::Mask(self.b.make_mask(VEX_Kmovq_kr_r64, &[Arg::Use(bits)]), 1)
        } else {
            let length = match u64::from(self.b.isa.bytes() / lanes).clamp(1, 4) {
                3 => 2,
                bytes => bytes,
            };
            let used = length * u64::from(lanes);
            let lane_of = |byte: u64| if bits >> (byte / length) & 1 == 1 { 0xff } else { 0 };
            let mut bytes: Vec<u8> = (0..used).map(lane_of).collect();
            bytes.resize(Width::of(used).bytes() as usize, 0);
            Val::Mask(self.constant_bytes(bytes), length as u8)
        };
        self.scopes.last_mut().expect("a scope").lane_masks.insert(key, mask);
        mask
    }

    /// Computes before a loop the masks that are invariant in it, as far as there are spare
    /// registers.
    pub(super) fn masks_before(&mut self, var: &Var, body: &Stmt) {
        let spare = if self.b.is_evex() { 6 } else { 2 };
        for comparison in plan::loop_comparisons(var, body).into_iter().take(spare) {
            if let ExprKind::Binary(op, a, b) = &comparison.kind {
                self.compare_lanes(*op, a, b);
            }
        }
    }

    /// The lanes that are NaN.
    pub(super) fn compare_unordered(&mut self, a: &Expr) -> Val {
        const UNORDERED: i64 = 3;
        let x = self.value(a).reg();
        self.compare_floats(a.ty, x, x, UNORDERED)
    }

    /// A comparison lane by lane.
    pub(super) fn compare_regs(&mut self, op: BinOp, ty: Type, x: VReg, y: VReg) -> Val {
        use BinOp::*;
        if ty.dtype.is_float() {
            // Ordered and quiet, except `!=`, which is true for NaN.
            let how = match op {
                Eq => 0x00,
                Lt => 0x11,
                Le => 0x12,
                Ne => 0x04,
                Ge => 0x1d,
                _ => 0x1e,
            };
            return self.compare_floats(ty, x, y, how);
        }
        if self.b.is_evex() {
            return self.compare_ints_evex(op, ty, x, y);
        }
        let (bytes, width) = (ty.dtype.bytes(), width_of(ty));
        let equal = [VOp::CmpEqB, VOp::CmpEqW, VOp::CmpEqD, VOp::CmpEqQ];
        let greater = [VOp::CmpGtB, VOp::CmpGtW, VOp::CmpGtD, VOp::CmpGtQ];
        let place = bytes.trailing_zeros() as usize;
        let (x, y) = match ty.dtype.is_signed() || matches!(op, Eq | Ne) {
            true => (x, y),
            false => {
                let sign = self.constant(1 << (bytes * 8 - 1), bytes, width);
                let x = self.b.op2(VOp::Xor, width, x, sign);
                (x, self.b.op2(VOp::Xor, width, y, sign))
            }
        };
        let mask = match op {
            Eq | Ne => self.b.op2(equal[place], width, x, y),
            Gt | Le => self.b.op2(greater[place], width, x, y),
            _ => self.b.op2(greater[place], width, y, x),
        };
        let mask = Val::Mask(mask, bytes as u8);
        match op {
            Ne | Le | Ge => self.not(mask, ty.lanes),
            _ => mask,
        }
    }

    fn compare_floats(&mut self, ty: Type, x: VReg, y: VReg, how: i64) -> Val {
        let (width, bytes) = (width_of(ty), ty.dtype.bytes());
        let forms = match bytes {
            4 => [
                VEX_Vcmpps_xmm_xmm_xmmm128_imm8,
                VEX_Vcmpps_ymm_ymm_ymmm256_imm8,
                EVEX_Vcmpps_kr_k1_xmm_xmmm128b32_imm8,
                EVEX_Vcmpps_kr_k1_ymm_ymmm256b32_imm8,
                EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae,
            ],
            _ => [
                VEX_Vcmppd_xmm_xmm_xmmm128_imm8,
                VEX_Vcmppd_ymm_ymm_ymmm256_imm8,
                EVEX_Vcmppd_kr_k1_xmm_xmmm128b64_imm8,
                EVEX_Vcmppd_kr_k1_ymm_ymmm256b64_imm8,
                EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae,
            ],
        };
        let code = self.b.form(width, forms);
        let args = [Arg::Use(x), Arg::Use(y), Arg::Imm(how)];
        let mask = match self.b.is_evex() {
            true => self.b.make_mask(code, &args),
            false => self.b.make(code, &args),
        };
        Val::Mask(mask, bytes as u8)
    }

    fn compare_ints_evex(&mut self, op: BinOp, ty: Type, x: VReg, y: VReg) -> Val {
        let how = match op {
            BinOp::Eq => 0,
            BinOp::Lt => 1,
            BinOp::Le => 2,
            BinOp::Ne => 4,
            BinOp::Ge => 5,
            _ => 6,
        };
        let code = int_compare(ty.dtype.bytes(), ty.dtype.is_signed(), width_of(ty));
        let mask = self.b.make_mask(code, &[Arg::Use(x), Arg::Use(y), Arg::Imm(how)]);
        Val::Mask(mask, ty.dtype.bytes() as u8)
    }

    /// The complement of a mask.
    fn not(&mut self, mask: Val, lanes: u32) -> Val {
        let Val::Mask(reg, bytes) = mask else { crate::bug!("not a mask") };
        if self.b.is_evex() {
            return Val::Mask(self.b.make_mask(VEX_Knotq_kr_kr, &[Arg::Use(reg)]), bytes);
        }
        let width = Width::of(u64::from(bytes) * u64::from(lanes));
        let ones = self.b.op2(VOp::CmpEqD, width, reg, reg);
        Val::Mask(self.b.op2(VOp::Xor, width, reg, ones), bytes)
    }

    fn combine(&mut self, code: Code, op: VOp, x: Val, y: Val, lanes: u32) -> Val {
        let (Val::Mask(a, bytes), Val::Mask(b, other)) = (x, y) else {
            crate::bug!("not masks: {x:?} and {y:?}");
        };
        if self.b.is_evex() {
            return Val::Mask(self.b.make_mask(code, &[Arg::Use(a), Arg::Use(b)]), bytes);
        }
        // Narrowing always fits into a register, widening might not.
        let bytes = bytes.min(other);
        let a = self.mask_for(x, bytes.into(), lanes);
        let b = self.mask_for(y, bytes.into(), lanes);
        let width = Width::of(u64::from(bytes) * u64::from(lanes));
        Val::Mask(self.b.op2(op, width, a, b), bytes)
    }

    /// The register of a mask with lanes of `bytes` bytes. A scalar condition holds in all lanes.
    pub(super) fn mask_for(&mut self, mask: Val, bytes: u64, lanes: u32) -> VReg {
        let (mut reg, mut now) = match mask {
            Val::Gpr(flag) => {
                let Val::Mask(reg, now) = self.mask_of_flag(flag, lanes) else { unreachable!() };
                (reg, u64::from(now))
            }
            Val::Mask(reg, now) => (reg, u64::from(now)),
            Val::Vec(_) => crate::bug!("data in place of a mask"),
        };
        if self.b.is_evex() {
            return reg;
        }
        let int = |bytes| match bytes {
            1 => DType::Int8,
            2 => DType::Int16,
            4 => DType::Int32,
            _ => DType::Int64,
        };
        if now < bytes {
            let ty = Type { dtype: int(now), lanes };
            reg = self.convert(Val::Vec(reg), ty, int(bytes));
        }
        while now > bytes {
            let ty = Type { dtype: int(now), lanes };
            reg = self.convert(Val::Vec(reg), ty, int(now / 2));
            now /= 2;
        }
        reg
    }

    /// A mask for an access to memory, which is false beyond the last lane.
    pub(super) fn memory_mask(&mut self, mask: Val, bytes: u64, lanes: u32) -> VReg {
        let reg = self.mask_for(mask, bytes, lanes);
        let used = bytes * u64::from(lanes);
        let width = Width::of(used);
        if used == width.bytes() {
            return reg;
        }
        let key = (reg, bytes, lanes);
        if let Some(known) = self.scopes.iter().rev().find_map(|scope| scope.memory_masks.get(&key))
        {
            return *known;
        }
        let mask = if self.b.is_evex() {
            let all = self.all_lanes(lanes);
            self.b.make_mask(VEX_Kandq_kr_kr_kr, &[Arg::Use(reg), Arg::Use(all)])
        } else {
            let mut all = vec![0xff; used as usize];
            all.resize(width.bytes() as usize, 0);
            let all = self.constant_bytes(all);
            self.b.op2(VOp::And, width, reg, all)
        };
        self.scopes.last_mut().expect("a scope").memory_masks.insert(key, mask);
        mask
    }

    /// A mask of the first `lanes` lanes, for AVX-512.
    pub(super) fn all_lanes(&mut self, lanes: u32) -> VReg {
        let bits = u64::MAX >> (64 - lanes);
        let bits = self.b.imm(bits as i64);
        self.b.make_mask(VEX_Kmovq_kr_r64, &[Arg::Use(bits)])
    }

    /// A mask with one scalar condition in every lane.
    fn mask_of_flag(&mut self, flag: VReg, lanes: u32) -> Val {
        let all = self.b.modify(Neg_rm64, flag, &[]);
        if self.b.is_evex() {
            return Val::Mask(self.b.make_mask(VEX_Kmovq_kr_r64, &[Arg::Use(all)]), 1);
        }
        let one = self.of_gpr(all);
        Val::Mask(self.splat(one, 8, Width::of(lanes.into())), 1)
    }

    /// Whether lane 0 is true.
    pub(super) fn flag_of_mask(&mut self, mask: Val) -> VReg {
        let Val::Mask(reg, _) = mask else { crate::bug!("not a mask") };
        let bits = match self.b.is_evex() {
            true => self.b.make_gpr(VEX_Kmovd_r32_kr, &[Arg::Use(reg)]),
            false => self.move_to_gpr(reg, 4),
        };
        self.b.and_imm(bits, 1)
    }

    /// The mask of bytes from memory; any byte but 0 is true.
    pub(super) fn mask_of_bytes(&mut self, bytes: VReg, lanes: u32) -> Val {
        let ty = Type { dtype: DType::Uint8, lanes };
        let zero = self.b.zero();
        self.compare_regs(BinOp::Ne, ty, bytes, zero)
    }

    /// The bytes of a mask, 0 or 1.
    pub(super) fn bytes_of_mask(&mut self, mask: Val, lanes: u32) -> VReg {
        let ty = Type { dtype: DType::Uint8, lanes };
        self.ones_where(mask, 1, ty)
    }

    /// `bits` in the lanes that are true, 0 in the others.
    pub(super) fn ones_where(&mut self, mask: Val, bits: u64, ty: Type) -> VReg {
        let one = self.constant(bits, ty.dtype.bytes(), width_of(ty));
        if !self.b.is_evex() {
            let mask = self.mask_for(mask, ty.dtype.bytes(), ty.lanes);
            return self.b.op2(VOp::And, width_of(ty), mask, one);
        }
        let zero = self.b.zero();
        self.blend(mask, one, zero, ty)
    }

    /// `t` where the mask holds, else `f`.
    pub(super) fn blend(&mut self, mask: Val, t: VReg, f: VReg, ty: Type) -> VReg {
        let (bytes, width) = (ty.dtype.bytes(), width_of(ty));
        let mask = self.mask_for(mask, bytes, ty.lanes);
        let to = self.b.vec();
        let forms = match bytes {
            1 => [
                VEX_Vpblendvb_xmm_xmm_xmmm128_xmm,
                VEX_Vpblendvb_ymm_ymm_ymmm256_ymm,
                EVEX_Vpblendmb_xmm_k1z_xmm_xmmm128,
                EVEX_Vpblendmb_ymm_k1z_ymm_ymmm256,
                EVEX_Vpblendmb_zmm_k1z_zmm_zmmm512,
            ],
            2 => [
                VEX_Vpblendvb_xmm_xmm_xmmm128_xmm,
                VEX_Vpblendvb_ymm_ymm_ymmm256_ymm,
                EVEX_Vpblendmw_xmm_k1z_xmm_xmmm128,
                EVEX_Vpblendmw_ymm_k1z_ymm_ymmm256,
                EVEX_Vpblendmw_zmm_k1z_zmm_zmmm512,
            ],
            4 => [
                VEX_Vblendvps_xmm_xmm_xmmm128_xmm,
                VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
                EVEX_Vpblendmd_xmm_k1z_xmm_xmmm128b32,
                EVEX_Vpblendmd_ymm_k1z_ymm_ymmm256b32,
                EVEX_Vpblendmd_zmm_k1z_zmm_zmmm512b32,
            ],
            _ => [
                VEX_Vblendvpd_xmm_xmm_xmmm128_xmm,
                VEX_Vblendvpd_ymm_ymm_ymmm256_ymm,
                EVEX_Vpblendmq_xmm_k1z_xmm_xmmm128b64,
                EVEX_Vpblendmq_ymm_k1z_ymm_ymmm256b64,
                EVEX_Vpblendmq_zmm_k1z_zmm_zmmm512b64,
            ],
        };
        let code = self.b.form(width, forms);
        let mut args = vec![Arg::Def(to), Arg::Use(f), Arg::Use(t)];
        let mut inst = if self.b.is_evex() {
            let mut inst = Inst::new(code, args);
            inst.mask = Some((mask, false));
            inst
        } else {
            args.push(Arg::Use(mask));
            Inst::new(code, args)
        };
        inst.foldable.full = if self.b.is_evex() { width.bytes() as u8 } else { 0 };
        self.b.push(inst);
        to
    }
}

/// A comparison of integers into a mask register.
fn int_compare(bytes: u64, signed: bool, width: Width) -> Code {
    use Width::*;
    match (bytes, signed, width) {
        (1, true, X) => EVEX_Vpcmpb_kr_k1_xmm_xmmm128_imm8,
        (1, true, Y) => EVEX_Vpcmpb_kr_k1_ymm_ymmm256_imm8,
        (1, true, Z) => EVEX_Vpcmpb_kr_k1_zmm_zmmm512_imm8,
        (1, false, X) => EVEX_Vpcmpub_kr_k1_xmm_xmmm128_imm8,
        (1, false, Y) => EVEX_Vpcmpub_kr_k1_ymm_ymmm256_imm8,
        (1, false, Z) => EVEX_Vpcmpub_kr_k1_zmm_zmmm512_imm8,
        (2, true, X) => EVEX_Vpcmpw_kr_k1_xmm_xmmm128_imm8,
        (2, true, Y) => EVEX_Vpcmpw_kr_k1_ymm_ymmm256_imm8,
        (2, true, Z) => EVEX_Vpcmpw_kr_k1_zmm_zmmm512_imm8,
        (2, false, X) => EVEX_Vpcmpuw_kr_k1_xmm_xmmm128_imm8,
        (2, false, Y) => EVEX_Vpcmpuw_kr_k1_ymm_ymmm256_imm8,
        (2, false, Z) => EVEX_Vpcmpuw_kr_k1_zmm_zmmm512_imm8,
        (4, true, X) => EVEX_Vpcmpd_kr_k1_xmm_xmmm128b32_imm8,
        (4, true, Y) => EVEX_Vpcmpd_kr_k1_ymm_ymmm256b32_imm8,
        (4, true, Z) => EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8,
        (4, false, X) => EVEX_Vpcmpud_kr_k1_xmm_xmmm128b32_imm8,
        (4, false, Y) => EVEX_Vpcmpud_kr_k1_ymm_ymmm256b32_imm8,
        (4, false, Z) => EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8,
        (_, true, X) => EVEX_Vpcmpq_kr_k1_xmm_xmmm128b64_imm8,
        (_, true, Y) => EVEX_Vpcmpq_kr_k1_ymm_ymmm256b64_imm8,
        (_, true, Z) => EVEX_Vpcmpq_kr_k1_zmm_zmmm512b64_imm8,
        (_, false, X) => EVEX_Vpcmpuq_kr_k1_xmm_xmmm128b64_imm8,
        (_, false, Y) => EVEX_Vpcmpuq_kr_k1_ymm_ymmm256b64_imm8,
        (_, false, Z) => EVEX_Vpcmpuq_kr_k1_zmm_zmmm512b64_imm8,
    }
}

/// The key of a mask that is kept in a scope.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) enum MaskKey {
    /// Bits and number of lanes.
    Constant(u64, u32),
    /// A [`LaneCount`]: base and bound, lanes, inclusive, negated.
    Lanes([(Terms, i64); 2], u32, bool, bool),
}

/// One bit for each lane.
fn every_lane(lanes: u32) -> u64 {
    u64::MAX >> (64 - lanes)
}

/// The bits of the first `count` of `lanes` lanes.
pub(super) fn first_lanes(count: i128, lanes: u32) -> u64 {
    match count {
        ..=0 => 0,
        count if count >= i128::from(lanes) => every_lane(lanes),
        count => (1 << count) - 1,
    }
}

/// The bits of a mask that depends on constants only.
pub(super) fn constant_bits(expr: &Expr) -> Option<u64> {
    let lanes = constant_mask(expr).filter(|lanes| lanes.len() <= 64)?;
    Some((0..).zip(lanes).fold(0, |bits, (lane, active)| bits | u64::from(active) << lane))
}

//! Selection for expressions: indices go to general registers, data to vector registers.

use super::address::is_index;
use super::inst::{Arg, Cond, Mem, Width};
use super::nest::{Selector, Val};
use super::table::VOp;
use crate::ir::{BinOp, Const, DType, Expr, ExprKind, Intrinsic, Type, UnOp, half_bits};
use crate::simd_ops::{UnaryForm, constant_divisor, lane_offsets, narrowed_offsets, unary_form};
use crate::target::SimdIsa::{Avx2, Avx512};
use iced_x86::Code::*;
use regalloc2::VReg;
use std::num::Wrapping;

/// Bit of the immediate of `vroundps` that leaves the inexact flag as it is.
const KEEP_INEXACT_FLAG: i64 = 8;

/// The register that holds a type.
pub(super) fn width_of(ty: Type) -> Width {
    Width::of(ty.dtype.bytes() * u64::from(ty.lanes))
}

impl Selector<'_> {
    /// The value of an expression, which is computed once in a statement.
    pub(super) fn value(&mut self, expr: &Expr) -> Val {
        if let Some(value) = self.memo.get(expr) {
            return *value;
        }
        let value = match (expr.ty.lanes, expr.ty.dtype) {
            (1, DType::Index) => Val::Gpr(self.index(expr)),
            (1, DType::Bool) => Val::Gpr(self.flag(expr)),
            (_, DType::Bool) => self.mask(expr),
            _ => self.data(expr),
        };
        self.memo.insert(expr, value);
        value
    }

    pub(super) fn reg(&mut self, expr: &Expr) -> VReg {
        self.value(expr).reg()
    }

    /// Loads a captured value from the closure.
    pub(super) fn captured_value(&mut self, ty: Type, mem: Mem) -> Val {
        match ty.dtype {
            DType::Index => Val::Gpr(self.b.make_gpr(Mov_r64_rm64, &[Arg::Mem(mem)])),
            DType::Bool => {
                let byte = self.b.make_gpr(Movzx_r32_rm8, &[Arg::Mem(mem)]);
                self.b.cmp_imm(byte, 0);
                Val::Gpr(self.b.set(Cond::Ne))
            }
            dtype => {
                let number = super::inst::Access::CONSTANT;
                Val::Vec(self.read_as(number, mem, dtype.bytes(), true, Width::X))
            }
        }
    }

    /// A scalar index.
    fn index(&mut self, expr: &Expr) -> VReg {
        use BinOp::*;
        match &expr.kind {
            ExprKind::Const(Const::Int(value)) => self.b.imm(*value as i64),
            ExprKind::Var(var) => self.variable(var).reg(),
            ExprKind::Binary(Add | Sub | Mul, ..) | ExprKind::Unary(UnOp::Neg, _) => {
                let (terms, constant) = self.terms(expr);
                match &terms.terms[..] {
                    // The sum has too many products and is an atom itself.
                    [(product, Wrapping(1))] if constant == 0 && product.len() == 1 => {
                        self.index_operation(expr)
                    }
                    _ => self.sum(&terms, constant),
                }
            }
            ExprKind::Let(var, value, body) => {
                self.bind(var, value);
                self.reg(body)
            }
            ExprKind::Cast(a) => self.index_of_data(a),
            ExprKind::Select(c, t, f) => {
                let (c, t, f) = (self.reg(c), self.reg(t), self.reg(f));
                self.b.cmp_imm(c, 0);
                self.b.cmov(Cond::Ne, t, f)
            }
            ExprKind::IfThenElse(c, t, f) => self.select_lazily(c, t, f).reg(),
            _ => self.index_operation(expr),
        }
    }

    fn index_operation(&mut self, expr: &Expr) -> VReg {
        use BinOp::*;
        match &expr.kind {
            ExprKind::Binary(op, a, b) => match (op, b.as_int()) {
                (FloorDiv, Some(divisor @ 1..)) => self.divide(a, divisor as i64, true),
                (FloorMod, Some(divisor @ 1..)) => self.divide(a, divisor as i64, false),
                (FloorDiv | FloorMod, _) => {
                    let (x, y) = (self.reg(a), self.reg(b));
                    self.divide_registers(*op, true, x, y)
                }
                (Shl, Some(amount)) => {
                    let a = self.reg(a);
                    self.b.modify(Shl_rm64_imm8, a, &[Arg::Imm(amount as i64 & 63)])
                }
                (Shr, Some(amount)) => {
                    let a = self.reg(a);
                    self.b.modify(Sar_rm64_imm8, a, &[Arg::Imm(amount as i64 & 63)])
                }
                (Min | Max, _) => {
                    let (x, y) = (self.reg(a), self.reg(b));
                    self.b.cmp(x, y);
                    self.b.cmov(if *op == Min { Cond::L } else { Cond::G }, x, y)
                }
                _ => {
                    let (x, y) = (self.reg(a), self.reg(b));
                    match op {
                        Add => self.b.add(x, y),
                        Sub => self.b.sub(x, y),
                        Mul => self.b.mul(x, y),
                        BitAnd => self.b.modify(And_r64_rm64, x, &[Arg::Use(y)]),
                        BitOr => self.b.modify(Or_r64_rm64, x, &[Arg::Use(y)]),
                        BitXor => self.b.modify(Xor_r64_rm64, x, &[Arg::Use(y)]),
                        _ => crate::bug!("{op:?} of indices"),
                    }
                }
            },
            ExprKind::Unary(UnOp::Neg, a) => {
                let a = self.reg(a);
                self.b.modify(Neg_rm64, a, &[])
            }
            ExprKind::Unary(UnOp::BitNot, a) => {
                let a = self.reg(a);
                self.b.modify(Not_rm64, a, &[])
            }
            ExprKind::Unary(UnOp::Abs, a) => {
                let a = self.reg(a);
                let negated = self.b.modify(Neg_rm64, a, &[]);
                self.b.cmp_imm(a, 0);
                self.b.cmov(Cond::L, negated, a)
            }
            ExprKind::Unary(UnOp::Popcount, a) => {
                let a = self.reg(a);
                let a = self.of_gpr(a);
                let count = self.popcount(DType::Int64.into(), a);
                self.move_to_gpr(count, 8)
            }
            ExprKind::Bitcast(a) => match self.value(a) {
                Val::Gpr(value) => value,
                value => self.move_to_gpr(value.reg(), 8),
            },
            ExprKind::Load { .. } | ExprKind::Call(..) => crate::bug!("memory holds no indices"),
            _ => crate::bug!("an index of {:?}", expr.kind),
        }
    }

    /// Floor division by a positive constant, or its remainder.
    pub(super) fn divide(&mut self, a: &Expr, divisor: i64, quotient: bool) -> VReg {
        if divisor <= 0 {
            crate::bug!("division of an index by {divisor}");
        }
        if let Some(value) = a.as_int().and_then(|value| i64::try_from(value).ok()) {
            let (q, r) = (value.div_euclid(divisor), value.rem_euclid(divisor));
            return self.b.imm(if quotient { q } else { r });
        }
        let is_negative = self.facts.const_bounds(a).0.is_none_or(|least| least < 0);
        let a = self.reg(a);
        if (divisor as u64).is_power_of_two() {
            let shift = i64::from(divisor.trailing_zeros());
            return match quotient {
                _ if divisor == 1 => {
                    if quotient {
                        a
                    } else {
                        self.b.imm(0)
                    }
                }
                true => self.b.modify(Sar_rm64_imm8, a, &[Arg::Imm(shift)]),
                false => self.b.and_imm(a, divisor - 1),
            };
        }
        let q = self.quotient(a, divisor as u64, is_negative);
        if quotient {
            return q;
        }
        let product = self.b.mul_imm(q, divisor);
        self.b.sub(a, product)
    }

    /// `a // d` by the high half of a product, for a divisor that is no power of two. With `2^(n-1)
    /// < d < 2^n` and `m = 2^(63 + n) // d + 1`, which has 64 bits, `a*m` is greater than
    /// `2^(63 + n) * a/d` by less than `2^(63 + n) / d`, if `a` is less than `2^63`: both have the
    /// same integer part (Granlund and Montgomery 1994, Theorem 4.2). For negative `a`, `a // d` is
    /// `~(~a // d)`.
    fn quotient(&mut self, a: VReg, d: u64, is_negative: bool) -> VReg {
        let bits = u64::BITS - d.leading_zeros();
        let factor = (1u128 << (63 + bits)) / u128::from(d) + 1;
        let factor = self.b.imm(factor as u64 as i64);
        let shift = Arg::Imm(i64::from(bits) - 1);
        if !is_negative {
            let high = self.b.mul_high(a, factor);
            return self.b.modify(Shr_rm64_imm8, high, &[shift]);
        }
        let sign = self.b.modify(Sar_rm64_imm8, a, &[Arg::Imm(63)]);
        let magnitude = self.b.modify(Xor_r64_rm64, a, &[Arg::Use(sign)]);
        let high = self.b.mul_high(magnitude, factor);
        let q = self.b.modify(Shr_rm64_imm8, high, &[shift]);
        self.b.modify(Xor_r64_rm64, q, &[Arg::Use(sign)])
    }

    /// A scalar integer as an index.
    fn index_of_data(&mut self, a: &Expr) -> VReg {
        if a.ty.dtype == DType::Bool {
            return self.reg(a);
        }
        let value = self.reg(a);
        if a.ty.dtype.is_float() {
            let wide = self.convert(Val::Vec(value), a.ty, DType::Int64);
            return self.move_to_gpr(wide, 8);
        }
        let bytes = a.ty.dtype.bytes();
        let raw = self.move_to_gpr(value, bytes);
        let code = match (bytes, a.ty.dtype.is_signed()) {
            (1, true) => Movsx_r64_rm8,
            (1, false) => Movzx_r32_rm8,
            (2, true) => Movsx_r64_rm16,
            (2, false) => Movzx_r32_rm16,
            (4, true) => Movsxd_r64_rm32,
            _ => return raw,
        };
        self.b.make_gpr(code, &[Arg::Use(raw)])
    }

    /// Moves lane 0 of a vector to a general register. Of shorter elements, 32 bits are moved.
    pub(super) fn move_to_gpr(&mut self, value: VReg, bytes: u64) -> VReg {
        let code = match (self.b.isa, bytes) {
            (Avx2, 8) => VEX_Vmovq_rm64_xmm,
            (Avx2, _) => VEX_Vmovd_rm32_xmm,
            (Avx512, 8) => EVEX_Vmovq_rm64_xmm,
            (Avx512, _) => EVEX_Vmovd_rm32_xmm,
        };
        self.b.make_gpr(code, &[Arg::Use(value)])
    }

    /// Moves a general register to lane 0 of a vector.
    pub(super) fn of_gpr(&mut self, value: VReg) -> VReg {
        let code = if self.b.is_evex() { EVEX_Vmovq_xmm_rm64 } else { VEX_Vmovq_xmm_rm64 };
        self.b.make(code, &[Arg::Use(value)])
    }

    /// Sets the flags for a comparison of two indices.
    pub(super) fn compare_indices(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Cond {
        if let Some((difference, constant)) = self.known_difference(a, b) {
            self.b.cmp_imm(difference, constant);
            return ordered(op);
        }
        let x = self.index_value(a);
        match b.as_int() {
            Some(value) => self.b.cmp_imm(x, value as i64),
            None => {
                let y = self.index_value(b);
                self.b.cmp(x, y);
            }
        }
        ordered(op)
    }

    /// A scalar `bool`, 0 or 1.
    fn flag(&mut self, expr: &Expr) -> VReg {
        use BinOp::*;
        match &expr.kind {
            ExprKind::Const(Const::Int(value)) => self.b.imm(*value as i64),
            ExprKind::Var(var) => self.variable(var).reg(),
            ExprKind::Unary(UnOp::Likely, a) => self.reg(a),
            ExprKind::Unary(UnOp::Not, a) => {
                let a = self.reg(a);
                self.b.modify(Xor_rm64_imm8, a, &[Arg::Imm(1)])
            }
            ExprKind::Binary(op, a, b) if op.is_comparison() && is_index(a) => {
                let cond = self.compare_indices(*op, a, b);
                self.b.set(cond)
            }
            ExprKind::Binary(And, a, b) if may_read(b) => {
                self.select_lazily(a, b, &Expr::bool(false)).reg()
            }
            ExprKind::Binary(Or, a, b) if may_read(b) => {
                self.select_lazily(a, &Expr::bool(true), b).reg()
            }
            ExprKind::Binary(op @ (And | Or | BitAnd | BitOr | BitXor | Eq | Ne), a, b)
                if a.ty.dtype == DType::Bool =>
            {
                let (x, y) = (self.reg(a), self.reg(b));
                let code = match op {
                    And | BitAnd => And_r64_rm64,
                    Or | BitOr => Or_r64_rm64,
                    _ => Xor_r64_rm64,
                };
                let value = self.b.modify(code, x, &[Arg::Use(y)]);
                match op {
                    Eq => self.b.modify(Xor_rm64_imm8, value, &[Arg::Imm(1)]),
                    _ => value,
                }
            }
            ExprKind::Binary(op @ (Lt | Le | Gt | Ge), a, b) if a.ty.dtype == DType::Bool => {
                let (x, y) = (self.reg(a), self.reg(b));
                self.b.cmp(x, y);
                self.b.set(ordered(*op))
            }
            ExprKind::Binary(op, a, b) if op.is_comparison() => {
                let mask = self.compare(*op, a, b);
                self.flag_of_mask(mask)
            }
            ExprKind::Unary(UnOp::IsNan, a) => {
                let mask = self.compare_unordered(a);
                self.flag_of_mask(mask)
            }
            ExprKind::Cast(a) => {
                // Halves are compared as float32.
                let a = Expr::cast(a.ty.dtype.compute_type(), a.clone());
                let zero = zero_of(a.ty);
                self.flag(&Expr::binary(Ne, a, zero))
            }
            ExprKind::Select(c, t, f) => {
                let (c, t, f) = (self.reg(c), self.reg(t), self.reg(f));
                self.b.cmp_imm(c, 0);
                self.b.cmov(Cond::Ne, t, f)
            }
            ExprKind::IfThenElse(c, t, f) => self.select_lazily(c, t, f).reg(),
            ExprKind::Let(var, value, body) => {
                self.bind(var, value);
                self.reg(body)
            }
            ExprKind::Load { buffer, indices, .. } => self.load(buffer, &indices[0], None).reg(),
            _ => crate::bug!("a condition of {:?}", expr.kind),
        }
    }

    /// One of two values, in branches, so that the other one is not computed.
    pub(super) fn select_lazily(&mut self, c: &Expr, t: &Expr, f: &Expr) -> Val {
        let (yes, no, done) = (self.b.block(), self.b.block(), self.b.block());
        self.branch_on(c, yes, no);
        self.start(yes);
        let then = self.in_branch(|this| this.value(t));
        self.b.jump(done, vec![then.reg()]);
        self.start(no);
        let otherwise = self.in_branch(|this| {
            let value = this.value(f);
            match (then, value) {
                (Val::Mask(_, bytes), Val::Mask(_, other)) if bytes != other => {
                    Val::Mask(this.mask_for(value, bytes.into(), f.ty.lanes), bytes)
                }
                _ => value,
            }
        });
        self.b.jump(done, vec![otherwise.reg()]);
        self.start(done);
        let result = self.b.param(done, then.reg());
        match then {
            Val::Gpr(_) => Val::Gpr(result),
            Val::Vec(_) => Val::Vec(result),
            Val::Mask(_, bytes) => Val::Mask(result, bytes),
        }
    }

    /// Data in a vector register: scalars, vectors, and vectors of indices.
    fn data(&mut self, expr: &Expr) -> Val {
        let ty = expr.ty;
        let width = width_of(ty);
        let value = match &expr.kind {
            ExprKind::Const(value) => {
                self.constant(bits_of(*value, ty.dtype), ty.dtype.bytes(), width)
            }
            ExprKind::Var(var) => self.variable(var).reg(),
            ExprKind::Ramp(base, stride) => self.ramp(base, stride, ty),
            ExprKind::Broadcast(a) => self.broadcast(a, ty),
            ExprKind::Unary(op, a) => self.unary(*op, a),
            ExprKind::Binary(op, a, b) => match lane_offsets(expr) {
                Some(constant) if ty.dtype == DType::Index => self.narrowed(&constant, ty.dtype),
                _ => match self.divided_lanes(*op, a, b, ty) {
                    Some(value) => value,
                    None if *op == BinOp::Mul && !ty.dtype.is_float() => {
                        self.integer_product(ty, a, b)
                    }
                    None => {
                        let (x, y) = (self.reg(a), self.reg(b));
                        self.arithmetic(*op, ty, x, y, b)
                    }
                },
            },
            ExprKind::Select(c, t, f) => {
                let c = self.value(c);
                let (t, f) = (self.reg(t), self.reg(f));
                self.blend(c, t, f, ty)
            }
            ExprKind::IfThenElse(c, t, f) => return self.select_lazily(c, t, f),
            ExprKind::Cast(a) => match narrowed_offsets(expr) {
                Some(constant) => self.narrowed(&constant, ty.dtype),
                None => match self
                    .convert_in_range(a, ty.dtype)
                    .or_else(|| self.widened_load(a, ty.dtype))
                {
                    Some(value) => value,
                    None => {
                        let value = self.value(a);
                        self.convert(value, a.ty, ty.dtype)
                    }
                },
            },
            ExprKind::Bitcast(a) => match self.value(a) {
                Val::Gpr(value) => self.of_gpr(value),
                value => value.reg(),
            },
            ExprKind::Load { buffer, indices, mask } => {
                return self.load(buffer, &indices[0], mask.as_ref());
            }
            ExprKind::Call(Intrinsic::Fma, args) => {
                return self.multiply_add(args, ty);
            }
            ExprKind::Call(Intrinsic::Scalef, args) => {
                let op = match ty.dtype {
                    DType::Float64 => VOp::ScalefPd,
                    _ => VOp::ScalefPs,
                };
                let [x, n] = [0, 1].map(|i| self.reg(&args[i]));
                self.b.op2(op, width_of(ty), x, n)
            }
            ExprKind::Call(function, _) => crate::bug!("{} was not expanded", function.name()),
            ExprKind::Let(var, value, body) => {
                self.bind(var, value);
                return self.value(body);
            }
        };
        Val::Vec(value)
    }

    /// `a * b + c` of the three arguments; signs of `a` or `b`, or of `c`, are a part of the
    /// instruction.
    fn multiply_add(&mut self, args: &[Expr], ty: Type) -> Val {
        let (double, width) = (ty.dtype == DType::Float64, width_of(ty));
        let negated = |arg: &Expr| match &arg.kind {
            ExprKind::Unary(UnOp::Neg, inner) => Some(inner.clone()),
            _ => None,
        };
        let plain = [0, 1, 2].map(|i| negated(&args[i]));
        let value = match plain {
            [None, None, Some(c)] => {
                let [a, b, c] = [&args[0], &args[1], &c].map(|arg| self.reg(arg));
                self.b.fmsub(double, width, a, b, c)
            }
            [Some(a), None, None] => {
                let [a, b, c] = [&a, &args[1], &args[2]].map(|arg| self.reg(arg));
                self.b.fnmadd(double, width, a, b, c)
            }
            [None, Some(b), None] => {
                let [a, b, c] = [&args[0], &b, &args[2]].map(|arg| self.reg(arg));
                self.b.fnmadd(double, width, a, b, c)
            }
            _ => {
                let [a, b, c] = [0, 1, 2].map(|i| self.reg(&args[i]));
                self.b.fma(double, width, a, b, c)
            }
        };
        Val::Vec(value)
    }

    /// A division of a vector of indices by a constant, if the lanes allow it.
    fn divided_lanes(&mut self, op: BinOp, a: &Expr, by: &Expr, ty: Type) -> Option<VReg> {
        let divides = matches!(op, BinOp::FloorDiv | BinOp::FloorMod);
        let divisor = constant_divisor(by).filter(|_| divides && ty.dtype == DType::Index)?;
        self.divide_offsets(op, a, divisor, ty)
    }

    /// `base + stride * lane`.
    fn ramp(&mut self, base: &Expr, stride: &Expr, ty: Type) -> VReg {
        let (width, bytes) = (width_of(ty), ty.dtype.bytes());
        let start = self.broadcast(base, ty);
        let steps = match stride.as_int() {
            Some(stride) => self.progression(stride as i64, bytes, width),
            None => {
                let stride = self.broadcast(stride, ty);
                let lanes = self.progression(1, bytes, width);
                self.multiply_ints(ty, stride, lanes)
            }
        };
        self.b.op2(add_of(bytes), width, start, steps)
    }

    /// A scalar in all lanes of a type.
    pub(super) fn broadcast(&mut self, a: &Expr, ty: Type) -> VReg {
        let (width, bytes) = (width_of(ty), ty.dtype.bytes());
        match &a.kind {
            ExprKind::Const(value) => self.constant(bits_of(*value, ty.dtype), bytes, width),
            ExprKind::Load { buffer, indices, mask: None }
                if !self.registers.contains_key(buffer) && a.ty.dtype != DType::Bool =>
            {
                let mem = self.address(buffer, &indices[0]);
                self.read(buffer, mem, bytes, true, width)
            }
            _ => match self.value(a) {
                Val::Gpr(value) => {
                    let one = self.of_gpr(value);
                    self.splat(one, bytes, width)
                }
                value => self.splat(value.reg(), bytes, width),
            },
        }
    }

    fn unary(&mut self, op: UnOp, a: &Expr) -> VReg {
        let (ty, bytes) = (a.ty, a.ty.dtype.bytes());
        let width = width_of(ty);
        let double = bytes == 8;
        let Some(form) = unary_form(op, ty.dtype) else { crate::bug!("{op:?} of {ty:?}") };
        let x = self.reg(a);
        let sign = 1u64 << (bytes * 8 - 1);
        match form {
            UnaryForm::Identity => x,
            UnaryForm::FlipSign => {
                let sign = self.constant(sign, bytes, width);
                self.bitwise(VOp::Xor, VOp::XorQ, bytes, width, x, sign)
            }
            UnaryForm::ClearSign => {
                let rest = self.constant(sign - 1, bytes, width);
                self.bitwise(VOp::And, VOp::AndQ, bytes, width, x, rest)
            }
            UnaryForm::Round(mode) => {
                let op = if double { VOp::RoundPd } else { VOp::RoundPs };
                self.b.op_imm(op, width, x, KEEP_INEXACT_FLAG | mode)
            }
            UnaryForm::Sqrt => self.b.op1(if double { VOp::SqrtPd } else { VOp::SqrtPs }, width, x),
            UnaryForm::Negate => {
                let zero = self.b.zero();
                self.b.op2(sub_of(bytes), width, zero, x)
            }
            UnaryForm::Invert => {
                let ones = self.constant(u64::MAX >> (64 - bytes * 8), bytes, width);
                self.bitwise(VOp::Xor, VOp::XorQ, bytes, width, x, ones)
            }
            UnaryForm::Absolute => self.absolute(ty, x),
            UnaryForm::Popcount => self.popcount(ty, x),
        }
    }

    /// A bitwise operation. The form for elements of 8 bytes only matters for broadcast operands.
    pub(super) fn bitwise(
        &mut self,
        op: VOp,
        wide: VOp,
        bytes: u64,
        width: Width,
        a: VReg,
        b: VReg,
    ) -> VReg {
        self.b.op2(if bytes == 8 { wide } else { op }, width, a, b)
    }
}

/// `vpadd` for elements of a length in bytes.
pub(super) fn add_of(bytes: u64) -> VOp {
    match bytes {
        1 => VOp::AddB,
        2 => VOp::AddW,
        4 => VOp::AddD,
        _ => VOp::AddQ,
    }
}

/// `vpsub` for elements of a length in bytes.
pub(super) fn sub_of(bytes: u64) -> VOp {
    match bytes {
        1 => VOp::SubB,
        2 => VOp::SubW,
        4 => VOp::SubD,
        _ => VOp::SubQ,
    }
}

/// The bits of a constant, zero-extended.
pub(super) fn bits_of(value: Const, dtype: DType) -> u64 {
    match (value, dtype) {
        (Const::Float(value), DType::Float64) => value.to_bits(),
        (Const::Float(value), DType::Float32) => (value as f32).to_bits().into(),
        (Const::Float(value), _) => half_bits(value, dtype).into(),
        (Const::Int(value), _) => (value as u64) & (u64::MAX >> (64 - dtype.bits())),
    }
}

/// The condition of a comparison of signed numbers.
fn ordered(op: BinOp) -> Cond {
    match op {
        BinOp::Eq => Cond::E,
        BinOp::Ne => Cond::Ne,
        BinOp::Lt => Cond::L,
        BinOp::Le => Cond::Le,
        BinOp::Gt => Cond::G,
        _ => Cond::Ge,
    }
}

/// Zero of a type.
fn zero_of(ty: Type) -> Expr {
    match ty.dtype.is_float() {
        true => Expr::float(ty.dtype, 0.0),
        false => Expr::int(ty.dtype, 0),
    }
}

/// Whether an operand reads memory, so that it must not be evaluated in vain.
fn may_read(expr: &Expr) -> bool {
    crate::ir::visit::reads_memory(expr)
}

//! Expressions to instructions. Vectors are computed lane by lane.

use super::emit::{Emitter, Place, Val, constant_bits, ty_of, view};
use super::speculate::{SPECULATION_BUDGET, is_guardable, is_speculatable};
use crate::ir::async_copy::{is_zero, narrowed_back};
use crate::ir::{BinOp, DType, Expr, ExprKind, Intrinsic, UnOp, Var, visit};
use nvptx_builder::{Approx, Cmp, Convert, F32, Guard, Operand, Reg, Source, Ty};

impl Emitter<'_> {
    /// Computes a scalar that has no value yet.
    pub(super) fn operation(&mut self, expr: &Expr) -> Val {
        let dtype = expr.ty.dtype;
        match &expr.kind {
            ExprKind::Unary(op, a) => {
                let x = self.expr(a);
                let narrow = self.is_narrow(expr);
                self.unary(*op, a.ty.dtype, x, narrow)
            }
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => self.logic(*op, a, b),
            ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, b) => {
                self.division(*op, a, b)
            }
            ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub | BinOp::Mul), a, b)
                if dtype.is_float() =>
            {
                let (x, y) = (self.float_operand(a), self.float_operand(b));
                self.binary(*op, dtype, x, y, false)
            }
            ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub | BinOp::Mul), a, b)
                if dtype == DType::Index =>
            {
                if let Some(sum) = self.index_sum(expr) {
                    if let Some(reg) = sum.reg()
                        && self.subtracts(expr)
                    {
                        self.set_negation(reg);
                    }
                    return sum;
                }
                let (x, y) = (self.expr(a), self.expr(b));
                let narrow = self.is_narrow(expr);
                self.binary(*op, dtype, x, y, narrow)
            }
            ExprKind::Binary(op, a, b) => {
                let (x, y) = (self.expr(a), self.expr(b));
                let narrow = self.is_narrow_binary(*op, expr, a, b);
                self.binary(*op, a.ty.dtype, x, y, narrow)
            }
            ExprKind::Select(c, t, f) => {
                let (c, t, f) = (self.expr(c), self.expr(t), self.expr(f));
                self.choose(dtype, c, t, f)
            }
            ExprKind::IfThenElse(c, t, f) => self.if_then_else(c, t, f)[0],
            ExprKind::Cast(a) if narrowed_back(dtype, a).is_some() => {
                let half = narrowed_back(dtype, a).expect("it was looked at");
                self.expr(half)
            }
            ExprKind::Cast(a) => {
                let x = self.expr(a);
                self.cast(a.ty.dtype, dtype, x)
            }
            ExprKind::Bitcast(a) => {
                let x = self.expr(a);
                self.bitcast(a.ty.dtype, dtype, x)
            }
            ExprKind::Load { .. } => self.load(expr)[0],
            ExprKind::Call(Intrinsic::Fma, args) => {
                let args: Vec<Val> = args.iter().map(|arg| self.float_operand(arg)).collect();
                self.e.fma(args[0], args[1], args[2]).operand()
            }
            ExprKind::Call(function, args) => {
                let x = self.expr(&args[0]);
                self.approximate(*function, x)
            }
            ExprKind::Let(var, value, body) => {
                self.bind_let(var, value);
                self.expr(body)
            }
            ExprKind::Const(_) | ExprKind::Var(_) => unreachable!("leaves are handled before"),
            ExprKind::Ramp(..) | ExprKind::Broadcast(_) => crate::bug!("a vector of one lane"),
        }
    }

    /// Computes all lanes of a vector that has no value yet.
    pub(super) fn vector(&mut self, expr: &Expr) -> Vec<Val> {
        let (dtype, lanes) = (expr.ty.dtype, expr.ty.lanes as usize);
        match &expr.kind {
            ExprKind::Ramp(base, stride) => {
                let narrow = self.is_narrow(expr);
                let (base, stride) = (self.expr(base), self.expr(stride));
                let mut values = vec![base];
                for _ in 1..lanes {
                    let last = *values.last().expect("the first lane is there");
                    values.push(self.binary(BinOp::Add, dtype, last, stride, narrow));
                }
                values
            }
            ExprKind::Broadcast(a) => vec![self.expr(a); lanes],
            ExprKind::Unary(op, a) => {
                let narrow = self.is_narrow(expr);
                let a_type = a.ty.dtype;
                let xs = self.lanes(a);
                xs.into_iter().map(|x| self.unary(*op, a_type, x, narrow)).collect()
            }
            ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, b) => {
                let (xs, ys) = (self.lanes(a), self.lanes(b));
                let what = self.division_facts(*op, a, b);
                xs.into_iter().zip(ys).map(|(x, y)| self.floor_division(what, x, y)).collect()
            }
            ExprKind::Binary(op, a, b) => {
                let (xs, ys) = (self.lanes(a), self.lanes(b));
                let narrow = self.is_narrow_binary(*op, expr, a, b);
                let a_type = a.ty.dtype;
                let pairs = xs.into_iter().zip(ys);
                pairs.map(|(x, y)| self.binary(*op, a_type, x, y, narrow)).collect()
            }
            ExprKind::Select(c, t, f) => {
                let mut conds = self.lanes(c);
                if conds.len() == 1 {
                    conds = vec![conds[0]; lanes];
                }
                let (ts, fs) = (self.lanes(t), self.lanes(f));
                let pairs = conds.into_iter().zip(ts.into_iter().zip(fs));
                pairs.map(|(c, (t, f))| self.choose(dtype, c, t, f)).collect()
            }
            ExprKind::IfThenElse(c, t, f) => self.if_then_else(c, t, f),
            ExprKind::Cast(a) if narrowed_back(dtype, a).is_some() => {
                let half = narrowed_back(dtype, a).expect("it was looked at");
                self.lanes(half)
            }
            ExprKind::Cast(a) => {
                let from = a.ty.dtype;
                let xs = self.lanes(a);
                xs.into_iter().map(|x| self.cast(from, dtype, x)).collect()
            }
            ExprKind::Bitcast(a) => {
                let from = a.ty.dtype;
                let xs = self.lanes(a);
                xs.into_iter().map(|x| self.bitcast(from, dtype, x)).collect()
            }
            ExprKind::Load { .. } => self.load(expr),
            ExprKind::Call(Intrinsic::Fma, args) => {
                let args: Vec<Vec<Val>> = args.iter().map(|arg| self.lanes(arg)).collect();
                let fma = |i: usize| self.e.fma(args[0][i], args[1][i], args[2][i]).operand();
                (0..lanes).map(fma).collect()
            }
            ExprKind::Call(function, args) => {
                let xs = self.lanes(&args[0]);
                xs.into_iter().map(|x| self.approximate(*function, x)).collect()
            }
            ExprKind::Let(var, value, body) => {
                self.bind_let(var, value);
                self.lanes(body)
            }
            ExprKind::Const(_) | ExprKind::Var(_) => crate::bug!("a constant with lanes"),
        }
    }

    fn bind_let(&mut self, var: &Var, value: &Expr) {
        if value.ty.is_scalar() {
            let value = self.expr(value);
            self.bind(var, value);
        } else {
            let values = self.lanes(value);
            self.vectors.insert(var.clone(), values);
        }
    }

    /// Whether an index is computed in 32 bits.
    fn is_narrow(&mut self, expr: &Expr) -> bool {
        expr.ty.dtype == DType::Index && self.ranges.is_word(expr)
    }

    /// Whether an operation on indices is computed in 32 bits: its result fits, and either it
    /// depends only on the lower halves of the operands, or they fit too.
    fn is_narrow_binary(&mut self, op: BinOp, expr: &Expr, a: &Expr, b: &Expr) -> bool {
        use BinOp::*;
        match op {
            Add | Sub | Mul | BitAnd | BitOr | BitXor => self.is_narrow(expr),
            _ => self.is_narrow(a) && self.is_narrow(b),
        }
    }

    /// Computes an operand of a float instruction. The instruction drops the signs of NaNs, so a
    /// plain negation will do.
    pub(super) fn float_operand(&mut self, expr: &Expr) -> Val {
        match &expr.kind {
            ExprKind::Unary(UnOp::Neg, a) if expr.ty.is_scalar() => {
                let x = self.expr(a);
                self.e.neg(x).operand()
            }
            _ => self.expr(expr),
        }
    }

    pub(super) fn unary(&mut self, op: UnOp, dtype: DType, x: Val, narrow: bool) -> Val {
        let float = dtype.is_float();
        let x = match dtype {
            DType::Index if narrow => self.narrow(x),
            DType::Index => self.widen(x),
            _ => x,
        };
        match op {
            UnOp::Likely => x,
            UnOp::Not => self.e.not(x).operand(),
            UnOp::Neg | UnOp::Abs if float => self.float_sign(op, dtype, x),
            UnOp::Neg => {
                let value = self.e.neg(x);
                self.set_negation(value);
                self.wrap(dtype, value)
            }
            UnOp::Abs if dtype.is_signed() => {
                let value = self.e.abs(x);
                self.wrap(dtype, value)
            }
            UnOp::Abs => x,
            UnOp::BitNot => {
                let value = self.e.not(x);
                self.wrap(dtype, value)
            }
            UnOp::Floor => self.round(Convert::Rmi, x),
            UnOp::Ceil => self.round(Convert::Rpi, x),
            UnOp::Round => self.round(Convert::Rni, x),
            UnOp::Trunc => self.round(Convert::Rzi, x),
            UnOp::Sqrt if self.fast_math && dtype == DType::Float32 => self.approx(Approx::Sqrt, x),
            UnOp::Sqrt => self.e.sqrt(x).operand(),
            UnOp::Popcount => self.popcount(dtype, x),
            UnOp::IsNan => self.e.setp(Cmp::Nan, x, x).erase().operand(),
        }
    }

    /// Emits a function that `expand_math` left, which is one instruction.
    fn approximate(&mut self, function: Intrinsic, x: Val) -> Val {
        let how = match function {
            Intrinsic::Exp2 => Approx::Ex2,
            Intrinsic::Log2 => Approx::Lg2,
            Intrinsic::Rsqrt => Approx::Rsqrt,
            Intrinsic::Sin => Approx::Sin,
            Intrinsic::Cos => Approx::Cos,
            Intrinsic::Tanh => Approx::Tanh,
            other => crate::bug!("`{}` is left over from expand_math", other.name()),
        };
        self.approx(how, x)
    }

    fn approx(&mut self, how: Approx, x: Val) -> Val {
        let x = x.typed::<F32>().expect("functions are approximated in float32");
        self.e.approx(how, x).erase().operand()
    }

    /// Emits a float32 division with an error of at most 2 ULP.
    fn divide_fast(&mut self, x: Val, y: Val) -> Val {
        if x.constant_bits() == Some(1f32.to_bits().into()) {
            return self.approx(Approx::Rcp, y);
        }
        let float = |value: Val| value.typed::<F32>().expect("a quotient of float32");
        self.e.div_full(float(x), float(y)).erase().operand()
    }

    /// Flips or clears the sign of a float, of NaN too.
    fn float_sign(&mut self, op: UnOp, dtype: DType, x: Val) -> Val {
        let (bits, sign) = match dtype {
            DType::Float64 => (Ty::B64, 1 << 63),
            _ => (Ty::B32, 1 << 31),
        };
        let raw = self.e.bitcast_as(bits, x);
        let raw = match op {
            UnOp::Neg => self.e.xor(raw, Operand::bits(bits, sign)),
            _ => self.e.and(raw, Operand::bits(bits, sign - 1)),
        };
        self.e.bitcast_as(ty_of(dtype), raw).operand()
    }

    /// Rounds a float to an integer.
    fn round(&mut self, how: Convert, x: Val) -> Val {
        self.e.cvt_as(x.ty(), how, x).operand()
    }

    fn popcount(&mut self, dtype: DType, x: Val) -> Val {
        let x = match dtype.bits() {
            bits @ (8 | 16) => self.e.and(x, Operand::bits(x.ty(), (1 << bits) - 1)).operand(),
            _ => x,
        };
        let count = self.e.popc(x).erase().operand();
        match dtype.bits() {
            64 => self.e.cvt_as(ty_of(dtype), Convert::Usual, count).operand(),
            _ => view(count, ty_of(dtype)),
        }
    }

    /// Wraps a value to an integer type.
    pub(super) fn wrap(&mut self, dtype: DType, value: Reg) -> Val {
        match dtype {
            DType::Int8 => self.e.extend_low(Ty::S8, value).operand(),
            DType::Int16 => self.e.extend_low(Ty::S16, value).operand(),
            DType::Uint8 => self.e.and(value, Operand::int(Ty::U32, 0xff)).operand(),
            DType::Uint16 => self.e.and(value, Operand::int(Ty::U32, 0xffff)).operand(),
            _ => value.operand(),
        }
    }

    /// Emits a binary operation on operands of one type. Indices are computed in 32 bits if
    /// `narrow`.
    pub(super) fn binary(&mut self, op: BinOp, dtype: DType, x: Val, y: Val, narrow: bool) -> Val {
        if dtype == DType::Bool {
            return self.binary_bool(op, x, y);
        }
        if op == BinOp::Mul && dtype == DType::Index && !narrow && [x, y].iter().all(is_word) {
            return self.e.mul_wide(x, y).operand();
        }
        let (x, y) = match dtype {
            DType::Index if narrow => (self.narrow(x), self.narrow(y)),
            DType::Index => (self.widen(x), self.widen(y)),
            _ => (x, y),
        };
        if op.is_comparison() {
            return self.compare(op, dtype, x, y).operand();
        }
        if !dtype.is_float()
            && let Some(value) = fold(op, x, y)
        {
            return Operand::bits(x.ty(), dtype.wrap(value) as u64);
        }
        let value = match op {
            BinOp::Add => self.e.add(x, y),
            BinOp::Sub => self.e.sub(x, y),
            BinOp::Mul => self.e.mul(x, y),
            BinOp::Div if self.fast_math && dtype == DType::Float32 => {
                return self.divide_fast(x, y);
            }
            BinOp::Div => self.e.div(x, y),
            BinOp::Min | BinOp::Max => return self.extreme(op, dtype, x, y),
            BinOp::BitAnd => return self.e.and(x, y).operand(),
            BinOp::BitOr => return self.e.or(x, y).operand(),
            BinOp::BitXor => return self.e.xor(x, y).operand(),
            BinOp::Shl => {
                let amount = self.shift_amount(dtype, y);
                self.e.shl(x, amount)
            }
            BinOp::Shr => {
                let amount = self.shift_amount(dtype, y);
                return self.e.shr(x, amount).operand();
            }
            _ => crate::bug!("{op:?} is handled by its callers"),
        };
        self.note_negation(op, (x, y), value);
        self.wrap(dtype, value)
    }

    /// Returns the amount of a shift modulo the width.
    fn shift_amount(&mut self, dtype: DType, y: Val) -> Operand<nvptx_builder::U32> {
        let mask = u64::from(dtype.bits() - 1);
        let amount = match y.reg() {
            None => Operand::bits(Ty::U32, constant_bits(y) & mask),
            Some(_) => {
                let low = match y.ty().bits() {
                    64 => self.e.cvt_as(Ty::U32, Convert::Usual, view(y, Ty::U64)).operand(),
                    _ => view(y, Ty::U32),
                };
                self.e.and(low, Operand::bits(Ty::U32, mask)).operand()
            }
        };
        amount.typed().expect("it is a u32")
    }

    pub(super) fn compare(&mut self, op: BinOp, dtype: DType, x: Val, y: Val) -> Reg {
        let cmp = match op {
            BinOp::Eq => Cmp::Eq,
            BinOp::Ne if dtype.is_float() => Cmp::Neu,
            BinOp::Ne => Cmp::Ne,
            BinOp::Lt => Cmp::Lt,
            BinOp::Le => Cmp::Le,
            BinOp::Gt => Cmp::Gt,
            BinOp::Ge => Cmp::Ge,
            _ => crate::bug!("{op:?} is no comparison"),
        };
        self.e.setp(cmp, x, y).erase()
    }

    fn binary_bool(&mut self, op: BinOp, x: Val, y: Val) -> Val {
        match op {
            BinOp::BitAnd | BinOp::And => self.e.and(x, y).operand(),
            BinOp::BitOr | BinOp::Or => self.e.or(x, y).operand(),
            BinOp::BitXor | BinOp::Ne => self.e.xor(x, y).operand(),
            BinOp::Eq => {
                let differ = self.e.xor(x, y);
                self.e.not(differ).operand()
            }
            // False is less than true.
            BinOp::Lt => self.and_not(y, x),
            BinOp::Gt => self.and_not(x, y),
            BinOp::Le => {
                let greater = self.and_not(x, y);
                self.e.not(greater).operand()
            }
            BinOp::Ge => {
                let less = self.and_not(y, x);
                self.e.not(less).operand()
            }
            _ => crate::bug!("{op:?} of bool"),
        }
    }

    fn and_not(&mut self, x: Val, y: Val) -> Val {
        let not = self.e.not(y);
        self.e.and(x, not.operand()).operand()
    }

    /// Selects `t` if `c` holds, else `f`.
    pub(super) fn choose(&mut self, dtype: DType, c: Val, t: Val, f: Val) -> Val {
        if dtype == DType::Bool {
            let (yes, no) = (self.e.and(c, t), self.and_not(f, c));
            return self.e.or(yes.operand(), no).operand();
        }
        let (t, f) = self.same_width(dtype, t, f);
        let pred = c.reg().and_then(|reg| reg.typed()).expect("conditions are predicates");
        self.choice(pred, t, f)
    }

    fn same_width(&mut self, dtype: DType, t: Val, f: Val) -> (Val, Val) {
        if dtype == DType::Index && t.ty() != f.ty() {
            return (self.widen(t), self.widen(f));
        }
        (t, f)
    }

    /// Emits `and` or `or`, which evaluate the right side only if it decides the result.
    fn logic(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Val {
        let mut budget = SPECULATION_BUDGET;
        if is_speculatable(b, &mut budget) {
            let (x, y) = (self.expr(a), self.expr(b));
            return self.binary_bool(op, x, y);
        }
        let other = Expr::bool(op == BinOp::Or);
        match op {
            BinOp::And => self.if_then_else(a, b, &other)[0],
            _ => self.if_then_else(a, &other, b)[0],
        }
    }

    /// Evaluates only the branch that is taken: under predicates if that is cheap, else with
    /// branches.
    fn if_then_else(&mut self, c: &Expr, t: &Expr, f: &Expr) -> Vec<Val> {
        let dtype = t.ty.dtype;
        let cond = self.expr(c);
        let pred = cond.reg().expect("conditions are predicates");
        let mut budget = self.speculation * t.ty.lanes as i32;
        if is_guardable(t, &mut budget) && is_guardable(f, &mut budget) {
            let ts = self.guarded(pred, false, t);
            if self.is_zero_if_skipped(t) && is_zero(f) {
                return ts;
            }
            let fs = self.guarded(pred, true, f);
            if self.is_zero_if_skipped(f) && is_zero(t) {
                return fs;
            }
            let pairs = ts.into_iter().zip(fs);
            return pairs.map(|(t, f)| self.choose(dtype, cond, t, f)).collect();
        }
        // Delayed stores of this level are emitted before the branch.
        self.flush();
        let (no, done) = (self.e.label("else"), self.e.label("end"));
        self.e.when(!Guard::from(pred), |e| e.bra(no));
        let ts = self.branch(t);
        let ty = match dtype {
            DType::Index => Ty::S64,
            _ => ty_of(dtype),
        };
        let results: Vec<Reg> = ts.iter().map(|_| self.e.reg_as(ty)).collect();
        self.move_all(&results, &ts);
        self.e.bra(done);
        self.e.place(no);
        let fs = self.branch(f);
        self.move_all(&results, &fs);
        self.e.place(done);
        results.into_iter().map(|reg| reg.operand()).collect()
    }

    /// Whether the value is 0 if its predicate is false: that of a load from memory.
    fn is_zero_if_skipped(&self, expr: &Expr) -> bool {
        let ExprKind::Load { buffer, .. } = &expr.kind else { return false };
        matches!(self.place(buffer), Place::Memory(_)) && buffer.dtype != DType::Bool
    }

    /// Returns the values of one branch, and forgets what was computed in it.
    fn branch(&mut self, expr: &Expr) -> Vec<Val> {
        self.push();
        self.push_memo();
        let values = self.lanes(expr);
        let values = values
            .into_iter()
            .map(|value| if expr.ty.dtype == DType::Index { self.widen(value) } else { value })
            .collect();
        self.pop_memo();
        self.pop();
        values
    }

    fn move_all(&mut self, to: &[Reg], from: &[Val]) {
        for (to, from) in to.iter().zip(from) {
            self.e.to(*to).mov(*from);
            self.note_move(*to, *from);
        }
    }

    /// Returns the values of a branch, with its loads under a predicate.
    fn guarded(&mut self, pred: Reg, negated: bool, expr: &Expr) -> Vec<Val> {
        if !visit::reads_memory(expr) {
            return self.lanes(expr);
        }
        let pred = if negated { self.e.not(pred) } else { pred };
        let outer = self.guard;
        let pred = match outer {
            Some(outer) => self.e.and(pred, outer),
            None => pred,
        };
        self.guard = Some(pred);
        self.push_memo();
        let values = self.lanes(expr);
        self.pop_memo();
        self.guard = outer;
        values
    }
}

/// Folds sums and products of constants.
fn fold(op: BinOp, x: Val, y: Val) -> Option<i128> {
    let number = |value: Val| {
        let bits = value.constant_bits()?;
        Some(match value.ty() {
            Ty::S32 => i128::from(bits as i32),
            Ty::S64 => i128::from(bits as i64),
            _ => i128::from(bits),
        })
    };
    let (x, y) = (number(x)?, number(y)?);
    match op {
        BinOp::Add => Some(x + y),
        BinOp::Sub => Some(x - y),
        BinOp::Mul => Some(x * y),
        _ => None,
    }
}

fn is_word(value: &Val) -> bool {
    value.ty() == Ty::S32
}

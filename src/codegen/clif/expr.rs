//! Expressions to Cranelift values. A shared subexpression is computed once where its first
//! evaluation dominates its other uses.

use super::cast::Conversion;
use super::emit::{Emitter, clif_type_of};
use super::int::Division;
use crate::codegen::common::clif_type;
use crate::ir::{BinOp, DType, Expr, ExprKind, Intrinsic, UnOp, Var, visit};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, MemFlagsData, Value, types};
use rustc_hash::FxHashSet;

/// Most operations that are evaluated speculatively in place of a branch.
const SPECULATION_BUDGET: i32 = 10;

impl Emitter<'_, '_> {
    /// Returns the value of `expr` at the current position.
    pub(super) fn expr(&mut self, expr: &Expr) -> Value {
        match &expr.kind {
            ExprKind::Const(value) => return self.constant(expr.ty.dtype, *value),
            ExprKind::Var(var) => return self.variable(var),
            _ => {}
        }
        if let Some(value) = self.recall(expr) {
            return value;
        }
        if self.too_large() {
            let (dtype, zero) = (expr.ty.dtype, types::I64);
            let zero = self.int(zero, 0);
            let zero = self.convert(Conversion { from: DType::Index, to: dtype }, zero);
            return if expr.ty.lanes == 1 { zero } else { self.splat(expr.ty, zero) };
        }
        let value = self.operation(expr);
        self.remember(expr, value);
        value
    }

    fn variable(&mut self, var: &Var) -> Value {
        let Some(binding) = self.vars.get(var).copied() else {
            crate::bug!("variable `{}` is not bound", var.name())
        };
        if let Some(flag) = binding.overflow {
            self.note_overflow(flag);
        }
        binding.value
    }

    fn operation(&mut self, expr: &Expr) -> Value {
        if expr.ty.lanes > 1 {
            return self.vector_operation(expr);
        }
        match &expr.kind {
            ExprKind::Unary(op, a) => {
                let value = self.expr(a);
                self.unary(*op, a.ty.dtype, value)
            }
            ExprKind::Binary(BinOp::And | BinOp::Or, ..) => self.logic(expr),
            ExprKind::Binary(op, a, b) => {
                let (x, y) = (self.expr(a), self.expr(b));
                match op {
                    BinOp::FloorDiv | BinOp::FloorMod => self.division(*op, (a, x), (b, y)),
                    _ => self.binary(*op, a.ty.dtype, x, y),
                }
            }
            ExprKind::Select(c, t, f) => {
                let (c, t, f) = (self.expr(c), self.expr(t), self.expr(f));
                self.b.ins().select(c, t, f)
            }
            ExprKind::IfThenElse(c, t, f) => self.if_then_else(c, t, f),
            ExprKind::Cast(a) => {
                let value = self.expr(a);
                self.convert(Conversion { from: a.ty.dtype, to: expr.ty.dtype }, value)
            }
            ExprKind::Bitcast(a) => {
                let value = self.expr(a);
                let ty = clif_type(expr.ty.dtype);
                if self.b.func.dfg.value_type(value) == ty {
                    value
                } else {
                    self.b.ins().bitcast(ty, MemFlagsData::new(), value)
                }
            }
            ExprKind::Load { buffer, indices, .. } => self.load(buffer, indices),
            ExprKind::Call(Intrinsic::Fma, args) => {
                let args: Vec<Value> = args.iter().map(|arg| self.expr(arg)).collect();
                self.fma(expr.ty.dtype, &args)
            }
            ExprKind::Let(var, value, body) => {
                self.bind_let(var, value);
                self.expr(body)
            }
            ExprKind::Call(function, _) => {
                crate::bug!("`{}` is left over from expand_math", function.name())
            }
            ExprKind::Const(_) | ExprKind::Var(_) => unreachable!("leaves are handled before"),
            ExprKind::Ramp(..) | ExprKind::Broadcast(_) => {
                crate::bug!("a vector of one lane")
            }
        }
    }

    /// Evaluates `value` and makes it the value of `var`.
    pub(super) fn bind_let(&mut self, var: &Var, value: &Expr) {
        let result = self.expr(value);
        self.bind_definition(var, result, value);
    }

    pub(super) fn unary(&mut self, op: UnOp, dtype: DType, x: Value) -> Value {
        reject_half(dtype, &op);
        let float = dtype.is_float();
        if dtype == DType::Index && self.overflow.is_some() && matches!(op, UnOp::Neg | UnOp::Abs) {
            self.check_not_min(x);
        }
        match op {
            UnOp::Neg if float => self.b.ins().fneg(x),
            UnOp::Neg => self.b.ins().ineg(x),
            UnOp::BitNot => self.b.ins().bnot(x),
            UnOp::Not => self.b.ins().bxor_imm_u(x, 1),
            UnOp::Likely => x,
            UnOp::Abs if float => self.b.ins().fabs(x),
            UnOp::Abs if dtype.is_signed() => {
                let negated = self.b.ins().ineg(x);
                let negative = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, x, 0);
                self.b.ins().select(negative, negated, x)
            }
            UnOp::Abs => x,
            UnOp::Floor => self.b.ins().floor(x),
            UnOp::Ceil => self.b.ins().ceil(x),
            UnOp::Round => self.b.ins().nearest(x),
            UnOp::Trunc => self.b.ins().trunc(x),
            UnOp::Sqrt => self.b.ins().sqrt(x),
            UnOp::Popcount => self.b.ins().popcnt(x),
            UnOp::IsNan => self.b.ins().fcmp(FloatCC::Unordered, x, x),
        }
    }

    pub(super) fn binary(&mut self, op: BinOp, dtype: DType, x: Value, y: Value) -> Value {
        reject_half(dtype, &op);
        let float = dtype.is_float();
        let checked = dtype == DType::Index && self.overflow.is_some();
        match op {
            BinOp::Add if checked => self.checked_add(x, y),
            BinOp::Sub if checked => self.checked_sub(x, y),
            BinOp::Mul if checked => self.checked_mul(x, y),
            BinOp::Add if float => self.b.ins().fadd(x, y),
            BinOp::Sub if float => self.b.ins().fsub(x, y),
            BinOp::Mul if float => self.b.ins().fmul(x, y),
            BinOp::Div => self.b.ins().fdiv(x, y),
            BinOp::Add => self.b.ins().iadd(x, y),
            BinOp::Sub => self.b.ins().isub(x, y),
            BinOp::Mul => self.b.ins().imul(x, y),
            // On x86, Cranelift selects one instruction for each of these forms on floats.
            BinOp::Min => {
                let less = self.compare(BinOp::Lt, dtype, x, y);
                self.b.ins().select(less, x, y)
            }
            BinOp::Max => {
                let less = self.compare(BinOp::Lt, dtype, y, x);
                self.b.ins().select(less, x, y)
            }
            BinOp::BitAnd => self.b.ins().band(x, y),
            BinOp::BitOr => self.b.ins().bor(x, y),
            BinOp::BitXor => self.b.ins().bxor(x, y),
            BinOp::Shl => self.b.ins().ishl(x, y),
            BinOp::Shr if dtype.is_signed() => self.b.ins().sshr(x, y),
            BinOp::Shr => self.b.ins().ushr(x, y),
            _ if op.is_comparison() => self.compare(op, dtype, x, y),
            _ => unreachable!("{op:?} is handled by its callers"),
        }
    }

    pub(super) fn compare(&mut self, op: BinOp, dtype: DType, x: Value, y: Value) -> Value {
        if dtype.is_float() {
            let code = match op {
                BinOp::Eq => FloatCC::Equal,
                BinOp::Ne => FloatCC::NotEqual,
                BinOp::Lt => FloatCC::LessThan,
                BinOp::Le => FloatCC::LessThanOrEqual,
                BinOp::Gt => FloatCC::GreaterThan,
                _ => FloatCC::GreaterThanOrEqual,
            };
            return self.b.ins().fcmp(code, x, y);
        }
        let signed = match op {
            BinOp::Eq => IntCC::Equal,
            BinOp::Ne => IntCC::NotEqual,
            BinOp::Lt => IntCC::SignedLessThan,
            BinOp::Le => IntCC::SignedLessThanOrEqual,
            BinOp::Gt => IntCC::SignedGreaterThan,
            _ => IntCC::SignedGreaterThanOrEqual,
        };
        let code = if dtype.is_signed() { signed } else { signed.unsigned() };
        self.b.ins().icmp(code, x, y)
    }

    fn division(&mut self, op: BinOp, a: (&Expr, Value), b: (&Expr, Value)) -> Value {
        let (dividend, divisor) = (self.range_of(a.0), self.range_of(b.0));
        let what = Division {
            dtype: a.0.ty.dtype,
            modulo: op == BinOp::FloorMod,
            divisor: b.0.as_int(),
            dividend_nonneg: dividend.0 >= 0,
            // In a check function the divisor's arithmetic may overflow, and that must not trap.
            divisor_positive: divisor.0 >= 1 && self.overflow.is_none(),
        };
        self.floor_division(what, a.1, b.1)
    }

    pub(super) fn fma(&mut self, dtype: DType, args: &[Value]) -> Value {
        if self.unit.target.fma {
            return self.b.ins().fma(args[0], args[1], args[2]);
        }
        let name = if dtype == DType::Float64 { "tec_rt_fma" } else { "tec_rt_fmaf" };
        self.call_runtime(name, args, Some(clif_type(dtype))).expect("it has a result")
    }

    /// Emits `and` or `or`. The right side is evaluated unconditionally if that has no effect.
    fn logic(&mut self, expr: &Expr) -> Value {
        let ExprKind::Binary(op, a, b) = &expr.kind else { unreachable!("called for and, or") };
        let left = self.expr(a);
        if self.is_speculable(b) {
            let right = self.expr(b);
            return match op {
                BinOp::And => self.b.ins().band(left, right),
                _ => self.b.ins().bor(left, right),
            };
        }
        let (evaluate, merge) = (self.b.create_block(), self.b.create_block());
        let result = self.b.append_block_param(merge, types::I8);
        let args = [BlockArg::Value(left)];
        match op {
            BinOp::And => self.b.ins().brif(left, evaluate, &[], merge, &args),
            _ => self.b.ins().brif(left, merge, &args, evaluate, &[]),
        };
        self.start_block(evaluate);
        let right = self.conditionally(|this| this.expr(b));
        self.b.ins().jump(merge, &[BlockArg::Value(right)]);
        self.start_block(merge);
        result
    }

    pub(super) fn if_then_else(&mut self, c: &Expr, t: &Expr, f: &Expr) -> Value {
        if self.is_speculable(t) && self.is_speculable(f) {
            let (c, t, f) = (self.expr(c), self.expr(t), self.expr(f));
            return self.b.ins().select(c, t, f);
        }
        let (then, otherwise) = (self.b.create_block(), self.b.create_block());
        let merge = self.b.create_block();
        let result = self.b.append_block_param(merge, clif_type_of(t.ty));
        self.evaluate_common(t, f);
        self.branch(c, then, otherwise);
        for (block, branch) in [(then, t), (otherwise, f)] {
            self.start_block(block);
            let value = self.conditionally(|this| this.expr(branch));
            self.b.ins().jump(merge, &[BlockArg::Value(value)]);
        }
        self.start_block(merge);
        result
    }

    /// Evaluates before the branch the subexpressions that both sides certainly evaluate. Without
    /// this, the code for a chain of conditions over shared operands would double with every link.
    fn evaluate_common(&mut self, t: &Expr, f: &Expr) {
        let (mut in_then, mut seen) = (Vec::new(), FxHashSet::default());
        collect_certain(t, &mut seen, &mut in_then);
        let (mut in_else, mut seen_else) = (Vec::new(), FxHashSet::default());
        collect_certain(f, &mut seen_else, &mut in_else);
        for expr in in_else.into_iter().filter(|expr| seen.contains(&expr.id())) {
            if matches!(expr.kind, ExprKind::IfThenElse(..)) {
                self.expr(expr);
            }
        }
    }

    /// Ends the current block with a jump to `then` if `cond` holds, else to `otherwise`. Each may
    /// get several predecessors; the caller seals them by `start_block`.
    pub(super) fn branch(&mut self, cond: &Expr, then: Block, otherwise: Block) {
        match &cond.kind {
            ExprKind::Unary(UnOp::Not, a) => self.branch(a, otherwise, then),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b)
                if self.recall(cond).is_none() && !self.is_speculable(b) =>
            {
                let next = self.b.create_block();
                match op {
                    BinOp::And => self.branch(a, next, otherwise),
                    _ => self.branch(a, then, next),
                }
                self.start_block(next);
                self.conditionally(|this| this.branch(b, then, otherwise));
            }
            _ => {
                let value = self.expr(cond);
                self.b.ins().brif(value, then, &[], otherwise, &[]);
            }
        }
    }

    /// Continues in `block`, all of whose predecessors are known.
    pub(super) fn start_block(&mut self, block: Block) {
        self.b.seal_block(block);
        self.b.switch_to_block(block);
    }

    /// Whether evaluating `expr` speculatively is safe and cheaper than a branch.
    fn is_speculable(&self, expr: &Expr) -> bool {
        let mut budget = SPECULATION_BUDGET;
        self.spend(expr, &mut budget);
        budget >= 0
    }

    /// Subtracts the cost of `expr` from `budget`, or all of it if `expr` must not be speculated.
    fn spend(&self, expr: &Expr, budget: &mut i32) {
        if *budget < 0 || self.recall(expr).is_some() {
            return;
        }
        let checked = self.overflow.is_some() && expr.ty.dtype == DType::Index;
        *budget -=
            match &expr.kind {
                ExprKind::Const(_) => 0,
                ExprKind::Var(var) if self.vars.get(var).is_none_or(|v| v.overflow.is_none()) => 0,
                _ if checked => i32::MAX / 2,
                ExprKind::Load { buffer, .. } if self.is_in_registers(buffer) => 1,
                ExprKind::Load { .. } | ExprKind::Let(..) | ExprKind::Call(..) => i32::MAX / 2,
                ExprKind::Unary(UnOp::Sqrt, _) | ExprKind::Binary(BinOp::Div, ..) => 8,
                ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, _, b) => {
                    if b.as_int().is_some() { 3 } else { 20 }
                }
                ExprKind::Cast(a) if a.ty.dtype.is_half() || expr.ty.dtype.is_half() => 8,
                _ => 1,
            };
        visit::for_each_child(expr, &mut |child| self.spend(child, budget));
    }
}

/// Appends the subexpressions that evaluating `expr` always evaluates, operands first.
fn collect_certain<'e>(expr: &'e Expr, seen: &mut FxHashSet<usize>, out: &mut Vec<&'e Expr>) {
    if !seen.insert(expr.id()) {
        return;
    }
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Var(_) => return,
        ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Bitcast(a) => {
            collect_certain(a, seen, out);
        }
        ExprKind::Binary(BinOp::And | BinOp::Or, a, _) | ExprKind::IfThenElse(a, ..) => {
            collect_certain(a, seen, out);
        }
        ExprKind::Binary(_, a, b) => {
            collect_certain(a, seen, out);
            collect_certain(b, seen, out);
        }
        ExprKind::Select(a, b, c) => {
            for operand in [a, b, c] {
                collect_certain(operand, seen, out);
            }
        }
        ExprKind::Load { indices, .. } => {
            indices.iter().for_each(|index| collect_certain(index, seen, out));
        }
        ExprKind::Call(_, args) => args.iter().for_each(|arg| collect_certain(arg, seen, out)),
        // The body of a `let` may read the variable, which is not bound before the branch.
        ExprKind::Let(_, value, _) => collect_certain(value, seen, out),
        ExprKind::Broadcast(a) => collect_certain(a, seen, out),
        ExprKind::Ramp(a, b) => {
            collect_certain(a, seen, out);
            collect_certain(b, seen, out);
        }
    }
    out.push(expr);
}

fn reject_half(dtype: DType, op: &dyn std::fmt::Debug) {
    if dtype.is_half() {
        crate::bug!("{op:?} on {dtype}, which exists only in memory");
    }
}

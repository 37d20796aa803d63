//! Simplification of comparisons, connectives and choices. Conditions that the facts do not decide
//! get the form that TVM prints: `(13 <= i1)` for `i1 >= 13`, `(j <= i)` for `i >= j`.

use super::index::Sum;
use super::{BRANCH_VISITS, Simplifier, fold};
use crate::ir::arith::{floor_div, gcd};
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp};

/// The largest number of operands of a connective that are learnt for the operands after them.
const MAX_LEARNT: usize = 32;

impl Simplifier<'_> {
    /// Simplifies a comparison of simplified operands.
    pub(super) fn comparison(&mut self, op: BinOp, a: Expr, b: Expr) -> Expr {
        let (op, a, b) = match op {
            BinOp::Gt => (BinOp::Lt, b, a),
            BinOp::Ge => (BinOp::Le, b, a),
            _ => (op, a, b),
        };
        if a.ty.dtype != DType::Index {
            let cond = fold::fold_node(Expr::binary(op, a, b));
            return self.decided(cond);
        }
        let cond = self.index_comparison(op, &a, &b).unwrap_or_else(|| Expr::binary(op, a, b));
        self.decided(cond)
    }

    fn decided(&mut self, cond: Expr) -> Expr {
        if cond.as_int().is_some() {
            cond
        } else if self.facts.prove(&cond) {
            Expr::bool(true)
        } else if self.facts.disprove(&cond) {
            Expr::bool(false)
        } else {
            cond
        }
    }

    /// Normalizes a comparison: positive terms on one side, negative ones on the other, common
    /// factors cancelled, the constant on an empty side if there is one. `None` if a number
    /// overflows, or if a side might not fit 64 bits: `i < m - n` is not `i + n < m` for every `n`.
    fn index_comparison(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        // The difference is `b - a`; an equality keeps the sign of its first term.
        let mut sum = Sum::default();
        let forward = !matches!(op, BinOp::Eq | BinOp::Ne);
        sum.add(&self.facts, if forward { b } else { a }, 1)?;
        sum.add(&self.facts, if forward { a } else { b }, -1)?;
        let (mut terms, mut constant) = self.shrink(sum)?.into_parts();
        let g = terms.iter().fold(0, |g, term| gcd(g, term.1));
        if g > 1 {
            match op {
                // terms + constant > 0, or >= 0, over the integers.
                BinOp::Lt => constant = -floor_div(-constant, g),
                BinOp::Le => constant = floor_div(constant, g),
                _ if constant % g != 0 => return Some(Expr::bool(op == BinOp::Ne)),
                _ => constant /= g,
            }
            terms.iter_mut().for_each(|term| term.1 /= g);
        }
        if terms.is_empty() {
            let holds = match op {
                BinOp::Lt => constant > 0,
                BinOp::Le => constant >= 0,
                BinOp::Eq => constant == 0,
                _ => constant != 0,
            };
            return Some(Expr::bool(holds));
        }
        if !forward && terms[0].1 < 0 {
            terms.iter_mut().for_each(|term| term.1 = -term.1);
            constant = -constant;
        }
        let (up, down): (Vec<_>, Vec<_>) = terms.into_iter().partition(|term| term.1 > 0);
        let down: Vec<_> = down.into_iter().map(|(term, factor)| (term, -factor)).collect();
        // up + constant OP' down.
        let up_constant =
            if up.is_empty() || !down.is_empty() && constant > 0 { constant } else { 0 };
        let up = self.operand(Sum::rebuild(up, up_constant)?, &[a, b])?;
        let down = self.operand(Sum::rebuild(down, up_constant - constant)?, &[a, b])?;
        // The difference was right minus left for an inequality.
        Some(if forward { Expr::binary(op, down, up) } else { Expr::binary(op, up, down) })
    }

    /// Returns `not a` for a simplified `a`, pushed down into connectives and comparisons.
    pub(super) fn negation(&mut self, a: &Expr) -> Expr {
        match &a.kind {
            ExprKind::Unary(UnOp::Not, x) => x.clone(),
            ExprKind::Broadcast(x) => Expr::new(a.ty, ExprKind::Broadcast(self.negation(x))),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), x, y) => {
                let (x, y) = (self.negation(x), self.negation(y));
                let op = if *op == BinOp::And { BinOp::Or } else { BinOp::And };
                Expr::binary(op, x, y)
            }
            ExprKind::Binary(BinOp::Eq, x, y) => Expr::binary(BinOp::Ne, x.clone(), y.clone()),
            ExprKind::Binary(BinOp::Ne, x, y) => Expr::binary(BinOp::Eq, x.clone(), y.clone()),
            ExprKind::Binary(op @ (BinOp::Lt | BinOp::Le), x, y) if !x.ty.dtype.is_float() => {
                let op = if *op == BinOp::Lt { BinOp::Le } else { BinOp::Lt };
                Expr::binary(op, y.clone(), x.clone())
            }
            _ => fold::fold_node(Expr::not(a.clone())),
        }
    }

    /// Simplifies `and` and `or`, each operand under the facts of those before it.
    pub(super) fn connective(&mut self, expr: &Expr) -> Expr {
        let ExprKind::Binary(op, ..) = expr.kind else { crate::bug!("a connective is expected") };
        let neutral = op == BinOp::And;
        let scoped = self.visits < BRANCH_VISITS;
        if scoped {
            self.push();
        }
        let mut parts: Vec<Expr> = Vec::new();
        let mut absorbed = false;
        for (at, part) in crate::ir::arith::flatten_logic(op, expr).iter().enumerate() {
            let part = self.expr(part);
            match part.as_int() {
                Some(value) if (value != 0) == neutral => continue,
                Some(_) => {
                    absorbed = true;
                    break;
                }
                None => {}
            }
            if scoped && at < MAX_LEARNT {
                self.facts.to_mut().assume_truth(&part, neutral);
            }
            // A simplified operand may be a connective of the same kind.
            parts.extend(crate::ir::arith::flatten_logic(op, &part));
        }
        if scoped {
            self.pop();
        }
        if absorbed {
            return Expr::bool(!neutral);
        }
        let joined = parts.into_iter().reduce(|a, b| Expr::binary(op, a, b));
        let result = joined.unwrap_or_else(|| Expr::bool(neutral));
        self.reuse(expr, result)
    }

    /// Simplifies `select` and `if_then_else`.
    pub(super) fn choice(&mut self, expr: &Expr) -> Expr {
        let (c, t, f, lazy) = match &expr.kind {
            ExprKind::IfThenElse(c, t, f) => (c, t, f, true),
            ExprKind::Select(c, t, f) => (c, t, f, false),
            _ => crate::bug!("a choice is expected"),
        };
        let cond = self.expr(c);
        if let Some(value) = cond.as_int() {
            return self.expr(if value != 0 { t } else { f });
        }
        // A `select` evaluates both branches, so neither may assume the condition.
        let (then, otherwise) = match lazy {
            true => (self.under(&cond, true, t), self.under(&cond, false, f)),
            false => (self.expr(t), self.expr(f)),
        };
        if self.facts.key(&then) == self.facts.key(&otherwise) {
            return then;
        }
        if expr.ty == DType::Bool.into()
            && let Some(simple) = self.bool_choice(&cond, &then, &otherwise, lazy)
        {
            return simple;
        }
        if cond.same(c) && then.same(t) && otherwise.same(f) {
            return expr.clone();
        }
        match lazy {
            true => Expr::if_then_else(cond, then, otherwise),
            false => Expr::select(cond, then, otherwise),
        }
    }

    /// Simplifies `expr` under the fact that `cond` has the value `truth`.
    fn under(&mut self, cond: &Expr, truth: bool, expr: &Expr) -> Expr {
        if self.visits >= BRANCH_VISITS {
            return self.expr(expr);
        }
        if matches!(expr.kind, ExprKind::Const(_)) {
            return expr.clone();
        }
        self.push();
        self.facts.to_mut().assume_truth(cond, truth);
        let result = self.expr(expr);
        self.pop();
        result
    }

    /// Replaces a choice between conditions, one of them constant, by a connective.
    fn bool_choice(&mut self, c: &Expr, t: &Expr, f: &Expr, lazy: bool) -> Option<Expr> {
        match (t.as_int(), f.as_int()) {
            (Some(1), Some(0)) => Some(c.clone()),
            (Some(0), Some(1)) => Some(self.negation(c)),
            // `select` always evaluates its branches; connectives may skip them.
            (Some(1), None) if lazy => Some(Expr::or(c.clone(), f.clone())),
            (None, Some(0)) if lazy => Some(Expr::and(c.clone(), t.clone())),
            _ => None,
        }
    }
}

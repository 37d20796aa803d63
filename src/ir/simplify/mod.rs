//! The simplifier: canonical indices, folded constants, decided conditions. It changes no bit of a
//! floating-point result.
//!
//! Before: `A[(i1 - 1)*12 + (i2 - 1) + i0*144]`, `i1 >= 12 + 1`, `if 3 < 2 then x else y`
//! After: `A[((((i1*12) + i2) + (i0*144)) - 13)]`, `(13 <= i1)`, `y`
//! Only `index` arithmetic is reassociated, which does not overflow in a valid execution. Machine
//! integers and floats keep their operations. Simplification is idempotent.
//!
//! Modules: [`index`] for sums, products and divisions; [`logic`] for comparisons, connectives and
//! choices; [`fold`] for constants and identities of the other types; [`lanes`] for conditions of
//! vectors; [`kernel`] for statements.

pub(crate) mod fold;
mod index;
mod kernel;
mod lanes;
mod logic;
#[cfg(test)]
mod tests;

pub use kernel::{join_divisions, simplify_at, simplify_kernel};

use super::arith::Facts;
use super::equal::equal;
use super::visit::{Memo, any_expr, map_children, rewrite_exprs, substitute, walk_expr};
use super::{BinOp, DType, Expr, ExprKind, Stmt, UnOp, Var};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;

/// Returns the minimum or maximum of two values, as one of them if a proof decides.
pub fn extremum(op: BinOp, a: Expr, b: Expr, facts: &Facts) -> Expr {
    let (a, b) = (simplify_expr(&a, facts), simplify_expr(&b, facts));
    let (less, greater) = if facts.prove(&Expr::le(a.clone(), b.clone())) {
        (a, b)
    } else if facts.prove(&Expr::le(b.clone(), a.clone())) {
        (b, a)
    } else {
        return simplify_expr(&Expr::binary(op, a, b), facts);
    };
    if op == BinOp::Min { less } else { greater }
}

/// The largest number of node visits under the facts of branches. Afterwards branches are
/// simplified with the outer facts only: an expression with shared subterms can have exponentially
/// many paths.
const BRANCH_VISITS: usize = 50_000;

/// Simplifies `expr` under `facts`.
pub fn simplify_expr(expr: &Expr, facts: &Facts) -> Expr {
    Simplifier::new(Cow::Borrowed(facts)).expr(expr)
}

/// Returns the value of an integer or condition for these values of its variables; `None` if it is
/// not known, or beyond 64 bits.
pub fn value_at(expr: &Expr, values: &dyn Fn(&Var) -> Option<i64>) -> Option<i64> {
    let known = |var: &Var| Some(Expr::index(values(var)?));
    let value = simplify_expr(&substitute(expr, &mut |var| known(var)), &Facts::new());
    value.as_int().and_then(|value| i64::try_from(value).ok())
}

/// Decides the choices, clamps, divisions and comparisons of a statement under `facts`: simplifies
/// the expressions that have any. The facts of its own loops and conditions are not used;
/// [`simplify_kernel`] uses them, and simplifies all expressions.
pub fn decide_choices(stmt: Stmt, facts: &Facts) -> Stmt {
    let mut simplifier = Simplifier::new(Cow::Borrowed(facts));
    let may_be_decided = &mut |node: &Expr| match &node.kind {
        ExprKind::Select(..) | ExprKind::IfThenElse(..) | ExprKind::Let(..) => true,
        ExprKind::Unary(op, _) => matches!(op, UnOp::Not | UnOp::Likely),
        ExprKind::Binary(op, ..) => {
            let logic = op.is_comparison() || matches!(op, BinOp::And | BinOp::Or);
            let division = matches!(op, BinOp::FloorDiv | BinOp::FloorMod);
            logic || division || matches!(op, BinOp::Min | BinOp::Max)
        }
        _ => false,
    };
    rewrite_exprs(stmt, &mut |expr| {
        if !any_expr(expr, may_be_decided) {
            return expr.clone();
        }
        simplifier.visits = 0;
        simplifier.expr(expr)
    })
}

/// The state of the simplification of an expression or a kernel.
struct Simplifier<'f> {
    /// Copied at the first new fact; most expressions need none.
    facts: Cow<'f, Facts>,
    /// The results under the facts of each open scope.
    memo: Vec<Memo<Expr>>,
    /// The replacements of variables: of loops of one iteration, trivial `let`s, and run-time
    /// integers whose values are given.
    replaced: FxHashMap<Var, Expr>,
    /// The variables of `let`s so far: copies of a statement bind the same variables to other
    /// values.
    seen_lets: FxHashSet<Var>,
    visits: usize,
    /// The run-time integers whose values are given. Divisors and bounds of lanes stay as they are,
    /// because a division by a run-time integer takes many times as long as one by a constant, and
    /// lanes at constant distances are shuffled only under a constant mask.
    given: FxHashSet<Var>,
    /// Whether `(a // m)*m + a % m` becomes `a` for symbolic `m`, too. Only `join_divisions` does
    /// this: `tec lower --simple` shows the form before.
    join_symbolic: bool,
}

impl<'f> Simplifier<'f> {
    fn new(facts: Cow<'f, Facts>) -> Simplifier<'f> {
        let (memo, replaced) = (vec![Memo::default()], FxHashMap::default());
        let (seen_lets, given) = (FxHashSet::default(), FxHashSet::default());
        Simplifier { facts, memo, replaced, seen_lets, visits: 0, given, join_symbolic: false }
    }

    /// Whether a simplified `a` is divided by a value that only run-time integers determine.
    fn divides_at_run_time(&self, a: &Expr, divisor: &Expr) -> bool {
        a.as_int().is_none() && self.depends_on_given(divisor)
    }

    /// Whether an expression depends on run-time integers whose values are given, and on nothing
    /// else.
    fn depends_on_given(&self, expr: &Expr) -> bool {
        let (mut depends, mut only) = (false, !self.given.is_empty());
        walk_expr(expr, &mut |node| match &node.kind {
            ExprKind::Var(var) => {
                depends = true;
                only &= self.given.contains(var);
            }
            ExprKind::Load { .. } | ExprKind::Let(..) => only = false,
            _ => {}
        });
        depends && only
    }

    /// Opens a scope of facts.
    fn push(&mut self) {
        self.facts.to_mut().push();
        self.memo.push(Memo::default());
    }

    /// Closes the innermost scope.
    fn pop(&mut self) {
        self.facts.to_mut().pop();
        self.memo.pop();
    }

    fn expr(&mut self, expr: &Expr) -> Expr {
        match &expr.kind {
            ExprKind::Const(_) => return expr.clone(),
            ExprKind::Var(var) => {
                return self.replaced.get(var).cloned().unwrap_or_else(|| expr.clone());
            }
            _ => {}
        }
        let memo = self.memo.last().expect("a scope is open");
        if let Some(result) = memo.get(expr) {
            return result.clone();
        }
        if self.memo.len() > 1 {
            self.visits += 1;
        }
        let result = self.node(expr);
        let memo = self.memo.last_mut().expect("a scope is open");
        memo.insert(expr, result.clone());
        result
    }

    fn node(&mut self, expr: &Expr) -> Expr {
        if expr.ty == DType::Index.into() {
            return self.index(expr);
        }
        match &expr.kind {
            ExprKind::Binary(BinOp::And | BinOp::Or, ..) if expr.ty.is_scalar() => {
                self.connective(expr)
            }
            ExprKind::Binary(op, a, b) if op.is_comparison() && expr.ty.is_scalar() => {
                let (a, b) = (self.expr(a), self.expr(b));
                let simple = self.comparison(*op, a, b);
                self.reuse(expr, simple)
            }
            ExprKind::Unary(UnOp::Likely, a) if expr.ty.is_scalar() => {
                let a = self.expr(a);
                // A decided condition needs no mark.
                match a.as_int() {
                    Some(_) => a,
                    None => self.reuse(expr, Expr::unary(UnOp::Likely, a)),
                }
            }
            ExprKind::Unary(UnOp::Not, a) if expr.ty.is_scalar() => {
                let a = self.expr(a);
                let simple = self.negation(&a);
                self.reuse(expr, simple)
            }
            ExprKind::Binary(op, ..)
                if op.is_comparison() || matches!(op, BinOp::And | BinOp::Or) =>
            {
                self.lanes(expr)
            }
            ExprKind::Unary(UnOp::Not, _) | ExprKind::Load { mask: Some(_), .. } => {
                self.lanes(expr)
            }
            ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, ..) if !expr.ty.is_scalar() => {
                self.lanes(expr)
            }
            ExprKind::Binary(BinOp::Min | BinOp::Max | BinOp::Add, ..)
                if !expr.ty.is_scalar() && expr.ty.dtype == DType::Index =>
            {
                self.lanes(expr)
            }
            ExprKind::Select(cond, ..) if !cond.ty.is_scalar() => self.lanes(expr),
            ExprKind::Select(..) | ExprKind::IfThenElse(..) => self.choice(expr),
            ExprKind::Let(var, value, body) => self.let_in(expr, var, value, body),
            ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), ..) => {
                let expr = map_children(expr, &mut |child| self.expr(child));
                self.machine_min_max(*op, expr)
            }
            _ => fold::fold_node(map_children(expr, &mut |child| self.expr(child))),
        }
    }

    fn let_in(&mut self, expr: &Expr, var: &Var, value: &Expr, body: &Expr) -> Expr {
        let new = self.expr(value);
        // Results for another value of the same variable are invalid here.
        let again = !self.seen_lets.insert(var.clone());
        if again {
            self.memo.push(Memo::default());
        }
        let trivial = matches!(new.kind, ExprKind::Const(_) | ExprKind::Var(_));
        let learns = !trivial && !new.ty.dtype.is_float();
        if trivial {
            self.replaced.insert(var.clone(), new.clone());
        } else if learns {
            self.facts.to_mut().push();
            self.facts.to_mut().define(var, &new);
        }
        let inner = self.expr(body);
        self.replaced.remove(var);
        if learns {
            self.facts.to_mut().pop();
        }
        if again {
            self.memo.pop();
        }
        if trivial {
            return inner;
        }
        if new.same(value) && inner.same(body) {
            return expr.clone();
        }
        if matches!(inner.kind, ExprKind::Const(_)) {
            return inner;
        }
        Expr::let_in(var.clone(), new, inner)
    }

    /// Decides minima and maxima of integers with disjoint ranges.
    fn machine_min_max(&mut self, op: BinOp, expr: Expr) -> Expr {
        let ExprKind::Binary(_, a, b) = &expr.kind else { crate::bug!("a minimum is expected") };
        if !expr.ty.is_scalar() || expr.ty.dtype.is_float() || expr.ty.dtype == DType::Bool {
            return fold::fold_node(expr);
        }
        let (ra, rb) = (self.facts.interval(a), self.facts.interval(b));
        let least = op == BinOp::Min;
        if ra.hi <= rb.lo {
            return if least { a.clone() } else { b.clone() };
        }
        if rb.hi <= ra.lo {
            return if least { b.clone() } else { a.clone() };
        }
        fold::fold_node(expr)
    }

    /// Returns `new`, or the node `old` if both have the same structure.
    fn reuse(&self, old: &Expr, new: Expr) -> Expr {
        if equal(&new, old) { old.clone() } else { new }
    }
}

//! What is known where a statement runs, and proofs that elements do not overlap.
//!
//! Rows of a run-time length are apart because a loop over their vectors has an iteration, which
//! the bounds of that loop alone show. A proof from all enclosing loops may run out of budget.

use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::walk_expr;
use crate::ir::{BinOp, Expr, ExprKind, Var};
use rustc_hash::FxHashMap;
use std::cell::{OnceCell, RefCell};

/// The facts of the enclosing loops and conditions.
pub(super) struct Known {
    /// What holds in the whole kernel.
    given: Vec<Expr>,
    all: Facts,
    loops: Vec<OpenLoop>,
    /// The comparisons that were tried in this scope, and whether they were proved.
    tried: RefCell<FxHashMap<u32, bool>>,
}

struct OpenLoop {
    var: Var,
    min: Expr,
    extent: Expr,
    /// The facts of this loop and of those on which its bounds depend.
    alone: OnceCell<Facts>,
}

impl Known {
    pub(super) fn new(given: &[Expr]) -> Known {
        let mut all = Facts::new();
        given.iter().for_each(|cond| all.assume(cond));
        Known { given: given.to_vec(), all, loops: Vec::new(), tried: RefCell::default() }
    }

    pub(super) fn enter_loop(&mut self, var: &Var, min: &Expr, extent: &Expr) {
        self.all.push();
        bind(&mut self.all, var, min, extent);
        let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
        self.loops.push(OpenLoop { var, min, extent, alone: OnceCell::new() });
        self.tried.get_mut().clear();
    }

    pub(super) fn leave_loop(&mut self) {
        self.loops.pop();
        self.all.pop();
        self.tried.get_mut().clear();
    }

    pub(super) fn enter_branch(&mut self, cond: &Expr, truth: bool) {
        self.all.push();
        self.all.assume_truth(cond, truth);
        self.tried.get_mut().clear();
    }

    pub(super) fn leave_branch(&mut self) {
        self.all.pop();
        self.tried.get_mut().clear();
    }

    /// Whether a comparison is proved, from one loop or from all.
    pub(super) fn prove(&self, cond: &Expr) -> bool {
        let key = self.all.key(cond);
        if let Some(known) = self.tried.borrow().get(&key) {
            return *known;
        }
        let proved = (0..self.loops.len()).rev().any(|at| self.alone(at).prove(cond))
            || self.all.prove(cond);
        self.tried.borrow_mut().insert(key, proved);
        proved
    }

    /// Simplifies an expression.
    pub(super) fn simplify(&self, expr: &Expr) -> Expr {
        simplify_expr(expr, &self.all)
    }

    /// Returns the facts of one loop.
    fn alone(&self, at: usize) -> &Facts {
        self.loops[at].alone.get_or_init(|| {
            let mut needed = vec![false; self.loops.len()];
            needed[at] = true;
            for inner in (0..=at).rev() {
                if needed[inner] {
                    let OpenLoop { min, extent, .. } = &self.loops[inner];
                    for bound in [min, extent] {
                        walk_expr(bound, &mut |expr| {
                            let ExprKind::Var(var) = &expr.kind else { return };
                            let outer = self.loops.iter().rposition(|outer| outer.var == *var);
                            if let Some(outer) = outer {
                                needed[outer] = true;
                            }
                        });
                    }
                }
            }
            let mut facts = Facts::new();
            self.given.iter().for_each(|cond| facts.assume(cond));
            let needed = self.loops.iter().zip(needed).filter(|(_, needed)| *needed);
            for (OpenLoop { var, min, extent, .. }, _) in needed {
                bind(&mut facts, var, min, extent);
            }
            facts
        })
    }
}

/// Learns the range of a loop's variable, and `16*(m // 16) <= m` of the divisions in its extent: a
/// loop over whole vectors has an iteration only if a row is as long as one.
fn bind(facts: &mut Facts, var: &Var, min: &Expr, extent: &Expr) {
    walk_expr(extent, &mut |expr| {
        let ExprKind::Binary(BinOp::FloorDiv, whole, part) = &expr.kind else { return };
        if part.as_int().is_some_and(|part| part > 0) {
            facts.assume(&Expr::le(Expr::mul(expr.clone(), part.clone()), whole.clone()));
        }
    });
    assume_positive(facts, extent);
    facts.bind(var, min, extent);
    // The later part of a loop that was cut begins at the end of the first one.
    let zero = Expr::index(0);
    if min.as_int().is_none() && facts.prove(&Expr::le(zero.clone(), min.clone())) {
        facts.assume(&Expr::le(zero, Expr::var(var)));
    }
}

/// Learns that an extent is positive: so are both sides of a minimum, the other side of a maximum
/// with 0, and the factors of the extent of fused loops.
fn assume_positive(facts: &mut Facts, extent: &Expr) {
    let (zero, one) = (Expr::index(0), Expr::index(1));
    match &extent.kind {
        ExprKind::Binary(BinOp::Min, a, b) => {
            assume_positive(facts, a);
            assume_positive(facts, b);
        }
        ExprKind::Binary(BinOp::Max, a, b) if b.as_int().is_some_and(|b| b <= 0) => {
            assume_positive(facts, a);
        }
        ExprKind::Binary(BinOp::Mul, a, b)
            if [a, b]
                .iter()
                .all(|factor| facts.prove(&Expr::le(zero.clone(), (*factor).clone()))) =>
        {
            assume_positive(facts, a);
            assume_positive(facts, b);
        }
        ExprKind::Const(_) => {}
        _ => facts.assume(&Expr::le(one, extent.clone())),
    }
}

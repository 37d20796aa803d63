//! Split index sets: splits a loop around a condition on its variable into the loops in which the
//! condition holds and fails.
//!
//! Before: `for (i, 0, n) { if (1 <= i && i < m) { … } else { … } }`
//! After:  `for (i, 0, 1) { … }  for (i, 1, m - 1) { … }  for (i, m, n - m) { … }`
//! Such a condition stands between the borders of a tensor and its interior (`cut_borders`). An
//! iteration is often one vector, and then as short as a branch.
//! Needs: simplified conditions. Stands after `promote_accumulators`, which keeps sums of one loop
//! in registers.
//! Ensures: nothing for later passes.  Breaks: nothing.
//! Declines: conditions that are not conjunctions of comparisons affine in the variable; loops that
//! are not serial, or have loops in them; bodies of more than `MAX_STORES` stores; bounds of more
//! than `MAX_BOUND_NODES` nodes.

use super::loop_range::{Affine, iterations_where};
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::scopes::ScopedRewrite;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{NodeSet, any_expr, walk_nodes, walk_stmt};
use crate::ir::{BinOp, DType, Expr, ExprKind, ForKind, Kernel, Stmt, Var};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// The largest number of stores in a body, of which three copies are made.
const MAX_STORES: usize = 16;

/// The largest number of expression nodes in a bound of the middle loop.
const MAX_BOUND_NODES: usize = 24;

/// Arithmetic on indices below this magnitude needs at most 64 bits.
const SMALL: i128 = 1 << 61;

/// Splits loops around the conditions on their variables.
pub fn split_index_sets(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let body = Splitter { facts }.stmt(kernel.body);
    Ok(Kernel { body, ..kernel })
}

struct Splitter {
    facts: Facts,
}

impl ScopedRewrite for Splitter {
    fn facts(&mut self) -> &mut Facts {
        &mut self.facts
    }

    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::For { var, min, extent, kind: ForKind::Serial, body } => {
                let parts = self.parts(&var, (&min, &extent), &body);
                match (parts, *body) {
                    (Some(parts), Stmt::If { then, otherwise: Some(otherwise), .. }) => {
                        split(&var, parts, &then, &otherwise)
                    }
                    (_, body) => {
                        let (kind, body) = (ForKind::Serial, Box::new(body));
                        self.children(Stmt::For { var, min, extent, kind, body })
                    }
                }
            }
            other => self.children(other),
        }
    }
}

/// The bounds and lengths of three loops, of which the condition holds in the second one.
type Parts = [(Expr, Expr); 3];

impl Splitter {
    /// Returns the loops that a loop is split into; `None` if it is not.
    fn parts(&mut self, var: &Var, (min, extent): (&Expr, &Expr), body: &Stmt) -> Option<Parts> {
        let Stmt::If { cond, otherwise: Some(_), .. } = body else { return None };
        if !is_short(body) {
            return None;
        }
        self.facts.push();
        self.facts.bind(var, min, extent);
        let margins = self.margins(cond, var);
        self.facts.pop();
        let margins = margins?;
        let margins: Vec<&Affine> = margins.iter().collect();
        let simple = |expr: Expr| simplify_expr(&expr, &self.facts);
        let last = simple(Expr::add(min.clone(), extent.clone()));
        let (first, end) = iterations_where(&margins, (min, &last), &self.facts);
        let has_short_bounds = [&first, &end].iter().all(|bound| {
            let mut seen = NodeSet::default();
            walk_nodes(bound, &mut seen, &mut |_| {});
            seen.count() <= MAX_BOUND_NODES
        });
        let parts = [(min.clone(), first.clone()), (first, end.clone()), (end, last)];
        has_short_bounds
            .then(|| parts.map(|(from, to)| (from.clone(), simple(Expr::sub(to, from)))))
    }

    /// Returns what is not negative where a condition holds.
    fn margins(&self, cond: &Expr, var: &Var) -> Option<Vec<Affine>> {
        match &cond.kind {
            ExprKind::Binary(BinOp::And, a, b) => {
                let mut all = self.margins(a, var)?;
                all.extend(self.margins(b, var)?);
                Some(all)
            }
            ExprKind::Binary(op @ (BinOp::Lt | BinOp::Le), a, b)
                if a.ty == DType::Index.into() && !reads(cond) =>
            {
                let least = i64::from(*op == BinOp::Lt);
                let distance = Expr::sub(b.clone(), a.clone());
                let margin = simplify_expr(&Expr::sub(distance, Expr::index(least)), &self.facts);
                let (low, high) = self.facts.const_bounds(&margin);
                let is_small = low? > -SMALL && high? < SMALL;
                let affine = Affine::new(&margin, var, &self.facts).filter(|_| is_small)?;
                Some(vec![affine])
            }
            _ => None,
        }
    }
}

/// Returns loops over the parts, without those that are empty.
fn split(var: &Var, parts: Parts, then: &Stmt, otherwise: &Stmt) -> Stmt {
    let bodies = [otherwise, then, otherwise];
    let loops = parts.into_iter().zip(bodies).filter(|((_, extent), _)| extent.as_int() != Some(0));
    let loops = loops.map(|((min, extent), body)| {
        let own = Var::index(var.name());
        let body = fresh_copy(body, &FxHashMap::from_iter([(var.clone(), Expr::var(&own))]));
        Stmt::For { var: own, min, extent, kind: ForKind::Serial, body: Box::new(body) }
    });
    Stmt::Block(loops.collect())
}

/// Whether a statement has no loops and few stores.
fn is_short(stmt: &Stmt) -> bool {
    let (mut stores, mut loops) = (0, 0);
    walk_stmt(
        stmt,
        &mut |inner| match inner {
            Stmt::Store { .. } => stores += 1,
            Stmt::For { .. } => loops += 1,
            _ => {}
        },
        &mut |_| {},
    );
    loops == 0 && stores <= MAX_STORES
}

fn reads(cond: &Expr) -> bool {
    any_expr(cond, &mut |e| matches!(e.kind, ExprKind::Load { .. }))
}

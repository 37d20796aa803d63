//! Loops that begin earlier, so that attached stages compute elements that are read later.
//!
//! Before: `for y in 0..32 { B  if guard(y) { C } }`, `B` is needed from iteration -2 on.
//! After: `for y in -2..32 { B  if 0 <= y and guard(y) { C } }`. Conditions of `C` that differ
//! between these iterations no longer stand around `B`, which has conditions of its own.

use super::Nests;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::mentions;
use crate::ir::{Expr, Stmt, UnOp, Var};
use crate::schedule::{Guard, StageBounds, StageId, loop_min};

/// The loops of a stage that begin earlier.
pub(super) struct WarmUp {
    /// The variable, first value and number of additional iterations of each loop, by its place.
    loops: Vec<(Var, Expr, i64)>,
    /// The innermost loop in which a stage is computed earlier.
    innermost: usize,
}

impl WarmUp {
    /// Returns the loops of a stage that begin earlier, if there are any. `attached` are the stages
    /// that are computed in its loops, with the depth of the loop.
    pub(super) fn of(
        nests: &Nests,
        id: StageId,
        attached: &[(Option<usize>, StageId)],
    ) -> Option<WarmUp> {
        let stage = nests.bounded.schedule.stage(id);
        let begin = |leaf| {
            let var = stage.axis(leaf).var.clone();
            let bounds = attached.iter().map(|(_, other)| nests.bounded.of(*other));
            let most = bounds.map(|bounds| iterations_of(bounds, &var)).max().unwrap_or(0);
            (var, loop_min(stage, leaf), most)
        };
        let loops: Vec<_> = stage.leaves.iter().map(|leaf| begin(*leaf)).collect();
        let is_early = |id: StageId| {
            let bounds = nests.bounded.of(id);
            loops.iter().any(|(var, ..)| iterations_of(bounds, var) > 0)
        };
        let early = attached.iter().filter(|(_, id)| is_early(*id));
        let innermost = early.filter_map(|(depth, _)| *depth).max()?;
        Some(WarmUp { loops, innermost })
    }

    /// Whether stages are computed at this depth in iterations before the first one of the stage.
    pub(super) fn reaches(&self, depth: Option<usize>) -> bool {
        depth <= Some(self.innermost)
    }

    /// Whether this is the depth of the innermost loop in which a stage is computed earlier.
    pub(super) fn ends_at(&self, depth: Option<usize>) -> bool {
        depth == Some(self.innermost)
    }

    /// Whether a condition of the stage differs between iterations of such a loop, so that it does
    /// not stand around other stages.
    pub(super) fn moves(&self, guard: &Guard) -> bool {
        let differs = |(var, _, most): &(Var, Expr, i64)| *most > 0 && mentions(&guard.cond, var);
        guard.depth.is_some() && self.reaches(guard.depth) && self.loops.iter().any(differs)
    }

    /// Makes the loop at a place begin earlier. A loop without iterations stays empty, because the
    /// loops inside may be long.
    pub(super) fn begin_earlier(&self, at: usize, nest: Stmt) -> Stmt {
        let more = self.loops[at].2;
        match nest {
            Stmt::For { var, min, extent, kind, body } if more > 0 => {
                let runs = Expr::lt(Expr::index(0), extent.clone());
                let (is_constant, more) = (extent.as_int().is_some(), Expr::index(more));
                let min = simple(Expr::sub(min, more.clone()));
                let extent = simple(Expr::add(extent, more));
                let nest = Stmt::For { var, min, extent, kind, body };
                if is_constant { nest } else { under(runs, nest) }
            }
            other => other,
        }
    }

    /// Puts statements of the stage itself under its conditions of the loops outside of the place
    /// `end`.
    pub(super) fn guard_own(&self, bounds: &StageBounds, end: usize, body: Stmt) -> Stmt {
        let outside = |guard: &&Guard| guard.depth < Some(end) && self.moves(guard);
        let guards = bounds.guards.iter().filter(outside).map(|guard| guard.cond.clone());
        let first = self.has_begun(end, |_| 0);
        first.into_iter().chain(guards).fold(body, |body, cond| under(cond, body))
    }

    /// Puts the statement that computes attached stages at a depth under the conditions for their
    /// first iteration. Stages that are not needed earlier than their reader have its conditions.
    pub(super) fn guard_attached(
        &self,
        (of, bounds): (&StageBounds, &StageBounds),
        depth: Option<usize>,
        body: Stmt,
    ) -> Stmt {
        let end = depth.map_or(0, |depth| depth + 1);
        if self.loops.iter().all(|(var, ..)| iterations_of(bounds, var) == 0) {
            return self.guard_own(of, end, body);
        }
        let first = self.has_begun(end, |var| iterations_of(bounds, var));
        first.into_iter().fold(body, |body, cond| under(cond, body))
    }

    /// Returns the conditions that the loops outside of the place `end` have reached the first
    /// iteration of a stage that begins `earlier`.
    fn has_begun(&self, end: usize, earlier: impl Fn(&Var) -> i64) -> Vec<Expr> {
        let mut conditions = Vec::new();
        for (var, min, most) in &self.loops[..end] {
            let earlier = earlier(var);
            if *most > earlier {
                let first = simple(Expr::sub(min.clone(), Expr::index(earlier)));
                let reached = Expr::le(first, Expr::var(var));
                conditions.push(Expr::unary(UnOp::Likely, reached));
            }
        }
        conditions
    }
}

/// Returns the number of additional iterations of a loop that a stage needs.
fn iterations_of(bounds: &StageBounds, var: &Var) -> i64 {
    let found = bounds.warm_up.iter().find(|(other, _)| other == var);
    found.map_or(0, |(_, iterations)| *iterations)
}

fn simple(expr: Expr) -> Expr {
    simplify_expr(&expr, &Facts::new())
}

fn under(cond: Expr, body: Stmt) -> Stmt {
    Stmt::If { cond, then: Box::new(body), otherwise: None }
}

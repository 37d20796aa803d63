//! Versions: a schedule that branches on run-time integers becomes one schedule for each way that
//! its conditions can turn out.
//!
//! Before: `if n <= 16 { C.split(x, factor=4) } else { C.split(x, factor=32) }`, `n: var`.
//! After: two schedules; calls with `n <= 16` use the first one, whose proofs may assume that.
//!
//! The statements run once for each version. A run answers the conditions that it meets as the run
//! before it did, up to the last one that was true, which is now false; new ones are true. No
//! condition of the last run is true, so every call has a version.

use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{substitute, walk_expr};
use crate::ir::{BinOp, DType, Expr, ExprKind};
use crate::te::Graph;

/// The most versions of a schedule.
pub(super) const MAX_VERSIONS: usize = 16;
/// Bounds of the run-time integers in a condition whose arithmetic might exceed 64 bits, so that
/// sums, and products of two, three or four of them fit.
const BOUNDS: [i64; 4] = [1 << 60, 1 << 31, 1 << 20, 1 << 15];

/// A schedule for the calls in which a condition holds, and none of the versions before it.
#[derive(Clone, Debug)]
pub struct Version<S> {
    /// The condition, over run-time integers.
    pub cond: Expr,
    /// The schedule, or what a later step makes from it.
    pub of: S,
}

/// The conditions on run-time integers that a run of a schedule meets.
#[derive(Debug, Default)]
pub(super) struct Branches {
    /// The answers of this run to its first conditions.
    script: Vec<bool>,
    met: Vec<Branch>,
    facts: Option<Facts>,
}

/// A condition that a run met.
#[derive(Debug)]
struct Branch {
    cond: Expr,
    holds: bool,
    text: String,
    span: Span,
}

impl Branches {
    /// Answers a condition over run-time integers: as the known facts or the script say, else with
    /// true.
    pub(super) fn decide(
        &mut self,
        graph: &Graph,
        cond: &Expr,
        (text, span): (String, Span),
    ) -> Result<bool> {
        let facts = self.facts.get_or_insert_with(|| {
            let mut facts = Facts::new();
            graph.known_facts().iter().for_each(|fact| facts.assume(fact));
            facts
        });
        let Some(cond) = in_64_bits(cond, facts) else {
            let text = "the arithmetic of this condition might exceed 64 bits at run time";
            let help = "compare the run-time integers with constants, one by one";
            return Err(Box::new(Diag::new("E0319", span, text).help(help)));
        };
        if facts.prove(&cond) {
            return Ok(true);
        }
        if facts.disprove(&cond) {
            return Ok(false);
        }
        let holds = self.script.get(self.met.len()).copied().unwrap_or(true);
        facts.assume_truth(&cond, holds);
        self.met.push(Branch { cond, holds, text, span });
        Ok(holds)
    }

    /// The condition of this version among those that come after the versions before it; `None` if
    /// the run met no condition that is true.
    pub(super) fn condition(&self) -> Option<Expr> {
        let holding = self.met.iter().filter(|branch| branch.holds);
        holding.map(|branch| branch.cond.clone()).reduce(Expr::and)
    }

    /// Returns the conditions that hold in this version.
    pub(super) fn assumed(&self) -> Vec<Expr> {
        let cond = |branch: &Branch| match branch.holds {
            true => branch.cond.clone(),
            false => Expr::not(branch.cond.clone()),
        };
        self.met.iter().map(cond).collect()
    }

    /// Returns the branches of the next run; `None` after the last one.
    pub(super) fn next(&self) -> Option<Branches> {
        let last = self.met.iter().rposition(|branch| branch.holds)?;
        let before = self.met[..last].iter().map(|branch| branch.holds);
        Some(Branches { script: before.chain([false]).collect(), ..Branches::default() })
    }

    /// Returns the error of a run, with the conditions of its version.
    pub(super) fn explain(&self, diag: Diag) -> Diag {
        let notes = self.met.iter().map(|Branch { text, holds, .. }| match holds {
            true => format!("where `{text}` holds"),
            false => format!("where `{text}` does not hold"),
        });
        notes.fold(diag, |diag, note| diag.note(note))
    }

    /// Returns the error of a schedule that has too many versions, or cannot have several (E0319).
    pub(super) fn refuse<T>(&self, text: impl Into<String>) -> Result<T> {
        Err(Box::new(Diag::new("E0319", self.met[0].span, text)))
    }
}

/// Returns a condition whose arithmetic fits into 64 bits: the same one, or one in which run-time
/// integers are bounded. `None` if there is none.
fn in_64_bits(cond: &Expr, facts: &Facts) -> Option<Expr> {
    let bounded = |bound: i64| {
        let clamp = |value: Expr| {
            let least = Expr::binary(BinOp::Max, value, Expr::index(-bound));
            Expr::binary(BinOp::Min, least, Expr::index(bound))
        };
        substitute(cond, &mut |var| Some(clamp(Expr::var(var))))
    };
    let mut all = std::iter::once(cond.clone()).chain(BOUNDS.map(bounded));
    all.find(|cond| fits(cond, facts)).map(|cond| simplify_expr(&cond, facts))
}

/// Whether no arithmetic of a condition exceeds 64 bits.
fn fits(cond: &Expr, facts: &Facts) -> bool {
    let mut fits = true;
    walk_expr(cond, &mut |expr| {
        if expr.ty.dtype == DType::Index && expr.as_var().is_none() {
            let within = |end: Option<i128>| end.is_some_and(|end| i64::try_from(end).is_ok());
            let (low, high) = facts.const_bounds(expr);
            fits &= within(low) && within(high) || cannot_grow(expr);
        }
    });
    fits
}

/// Whether the result of an operation fits into 64 bits because its operands do.
fn cannot_grow(expr: &Expr) -> bool {
    match &expr.kind {
        // The least number divided by -1 is too large.
        ExprKind::Binary(BinOp::FloorDiv, _, divisor) => {
            divisor.as_int().is_some_and(|divisor| divisor != -1)
        }
        ExprKind::Binary(op, ..) => matches!(op, BinOp::FloorMod | BinOp::Min | BinOp::Max),
        ExprKind::Select(..) | ExprKind::IfThenElse(..) => true,
        _ => false,
    }
}

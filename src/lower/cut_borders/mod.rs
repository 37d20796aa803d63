//! Cut borders: cuts loops around vectors into borders and an interior, so that the condition that
//! distinguishes them is decided in each part.
//!
//! Before: `for (y, 0, 66) { vectorized (x, 0, 66) { P[y, x] = if y < 1 || 65 <= y || x < 1 ||
//! 65 <= x then 0 else A[y - 1, x - 1] } }`
//! After: the first row; `for (y, 1, 64) { P[y, 0] = 0; vectorized (x, 1, 64) { P[y, x] =
//! A[y - 1, x - 1] }; P[y, 65] = 0 }`; the last row
//! A padding that is computed where it is read then does not slow the interior. Loops are cut in
//! the same way around the vectors in which an index `a // c` or `a % c` begins a new period:
//! `A[(x + 1) % 64]` is `A[x + 1]` in all vectors but the last. The same holds for clamped indices:
//! `A[max(x - 1, 0)]` is `A[x - 1]` in all vectors but the first. A parallel loop is not cut, but
//! gets a branch: `parallel (o, 0, 64) { if o < 1 { … } else if o < 63 { … } else { … } }`. A loop
//! with run-time bounds gets a branch to its interior, too: `for (o, 0, n // 16) { if 1 <= o {
//! A[o*16 + x - 1] } else { A[max(o*16 + x - 1, 0)] } }`. Outside of the rows of a padded image,
//! only the zero is left.
//! Needs: simplified conditions. Stands before `vectorize_loops`, which would turn the conditions
//! into masks, and after `partition_loops`, which has split the loops around `likely` conditions.
//! Ensures: nothing for later passes.  Breaks: nothing; it simplifies the loops that it has cut.
//! Declines: loops with interiors below a third of the iterations; loops with run-time bounds that
//! are vectorized or have an interior for few sizes; vectorized loops that are short or have more
//! in them than one store; nests whose copies would have more than `MAX_STORES` stores.

#[cfg(test)]
mod tests;

use crate::diag::Result;
use crate::ir::arith::{Facts, Poly, floor_div};
use crate::ir::copy::fresh_copy;
use crate::ir::simplify::{decide_choices, simplify_expr, simplify_kernel};
use crate::ir::visit::{
    any_expr, for_each_child, for_each_expr, for_each_stmt, map_stmts, mentions, replace_nodes,
    rewrite_exprs, substitute, walk_stmt,
};
use crate::ir::{BinOp, DType, Expr, ExprKind, ForKind, Kernel, Stmt, UnOp, Var};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// The smallest number of iterations of a vectorized loop that is cut: three AVX-512 vectors of
/// float32.
const MIN_VECTOR_ITERATIONS: i128 = 48;

/// The interior must have at least one in this many iterations of the loop.
const MIN_INTERIOR_FRACTION: i128 = 3;

/// A period of an index must span at least one in this many iterations of the loop.
const MIN_PERIOD_FRACTION: i128 = 2;

/// The largest number of stores in the copies of a nest, with unrolled loops written out.
const MAX_STORES: i128 = 1024;

/// The same for a nest with run-time bounds, of which borders have a quarter: copies take long.
const MAX_BRANCHED_STORES: i128 = 128;

/// The largest number of expression nodes of a nest that is cut.
const MAX_NODES: usize = 2000;

/// The run-time integers for which a loop should have an interior.
const ASSUMED_VALUE: i128 = 1000;

/// A loop with run-time bounds has at least this many iterations for those.
const MIN_ASSUMED_ITERATIONS: i128 = 4;

/// The largest number of conditions of an interior with run-time bounds.
const MAX_CONDITIONS: usize = 6;

/// The largest number of choices that are examined outside of an interior.
const MAX_CHOICES: usize = 32;

/// Arithmetic on indices below this magnitude needs at most 64 bits.
const SMALL: i128 = 1 << 61;

/// Cuts the loops around vectors that choose between two values.
pub fn cut_borders(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let mut cutter = Cutter { facts, middle: FxHashMap::default(), cut: false };
    let body = cutter.stmt(kernel.body, MAX_STORES);
    let kernel = Kernel { body, ..kernel };
    Ok(if cutter.cut { simplify_kernel(kernel) } else { kernel })
}

struct Cutter {
    facts: Facts,
    /// The middle iterations of the enclosing loops for [`ASSUMED_VALUE`].
    middle: FxHashMap<Var, i128>,
    /// Whether a loop was cut.
    cut: bool,
}

/// The head of a loop with constant bounds.
struct Head {
    var: Var,
    min: i128,
    end: i128,
    kind: ForKind,
}

impl Cutter {
    /// Cuts the loops of a statement into copies with at most `room` stores.
    fn stmt(&mut self, whole: Stmt, room: i128) -> Stmt {
        match whole {
            Stmt::For { var, min, extent, kind, body } => {
                let bounds = min.as_int().zip(extent.as_int());
                let head = bounds.map(|(first, extent)| {
                    let (var, kind) = (var.clone(), kind.clone());
                    Head { var, min: first, end: first + extent, kind }
                });
                let interior = head.as_ref().and_then(|head| self.interior(head, &body, room));
                if let (Some(head), Some(interior)) = (head, interior) {
                    return self.pieces(head, &body, interior, room);
                }
                // A condition of a loop with constant bounds may depend on a loop around it.
                let is_run_time = |cond: &Expr| {
                    bounds.is_none()
                        || any_expr(cond, &mut |e| e.as_var().is_some_and(|v| *v != var))
                };
                if let Some(cond) = self.interior_condition((&var, &min, &extent, &kind), &body)
                    && is_run_time(&cond)
                    && count_stores(&body).is_some_and(|n| 2 * n <= room.min(MAX_BRANCHED_STORES))
                {
                    let room = room.min(MAX_BRANCHED_STORES);
                    return self.branch((var, min, extent, kind), *body, cond, room);
                }
                self.facts.push();
                self.enter(&var, &min, &extent);
                let body = Box::new(self.stmt(*body, room));
                self.facts.pop();
                Stmt::For { var, min, extent, kind, body }
            }
            Stmt::Let { var, value, body } => {
                self.facts.push();
                self.facts.define(&var, &value);
                let body = Box::new(self.stmt(*body, room));
                self.facts.pop();
                Stmt::Let { var, value, body }
            }
            other => map_stmts(other, &mut |inner| self.stmt(inner, room)),
        }
    }

    /// Binds the variable of a loop whose body is next.
    fn enter(&mut self, var: &Var, min: &Expr, extent: &Expr) {
        self.facts.bind(var, min, extent);
        if let (Some(first), Some(count)) = (self.assumed(min), self.assumed(extent)) {
            self.middle.insert(var.clone(), first + count / 2);
        }
    }

    /// Returns the value of an index in the middle of the enclosing loops.
    fn assumed(&self, expr: &Expr) -> Option<i128> {
        value_at(expr, &|var| self.middle.get(var).copied().unwrap_or(ASSUMED_VALUE))
    }

    /// Returns the loop before the interior, the interior, and the loop after it.
    fn pieces(&mut self, head: Head, body: &Stmt, interior: (i128, i128), room: i128) -> Stmt {
        self.cut = true;
        let (first, end) = interior;
        let parts = [(head.min, first), (first, end), (end, head.end)];
        let parts: Vec<(i128, i128)> = parts.into_iter().filter(|(from, to)| from < to).collect();
        let room = room / parts.len() as i128;
        if head.kind == ForKind::Parallel {
            return self.branches(head, body, &parts, room);
        }
        let parts = parts.into_iter().map(|(from, to)| {
            if to - from == 1 {
                let value = FxHashMap::from_iter([(head.var.clone(), bound(from))]);
                let part = self.simplified(fresh_copy(body, &value));
                return self.stmt(part, room);
            }
            let var = Var::index(head.var.name());
            let free = FxHashMap::from_iter([(head.var.clone(), Expr::var(&var))]);
            let (min, extent) = (bound(from), bound(to - from));
            self.facts.push();
            self.facts.bind(&var, &min, &extent);
            let part = self.simplified(fresh_copy(body, &free));
            let body = Box::new(self.stmt(part, room));
            self.facts.pop();
            Stmt::For { var, min, extent, kind: head.kind.clone(), body }
        });
        Stmt::Block(parts.collect())
    }

    /// Returns a parallel loop that starts once and branches to its parts.
    fn branches(&mut self, head: Head, body: &Stmt, parts: &[(i128, i128)], room: i128) -> Stmt {
        let mut rest: Option<Stmt> = None;
        for (from, to) in parts.iter().rev() {
            self.facts.push();
            self.facts.bind(&head.var, &bound(*from), &bound(to - from));
            let only = (to - from == 1).then(|| (head.var.clone(), bound(*from)));
            let part = self.simplified(fresh_copy(body, &only.into_iter().collect()));
            let then = self.stmt(part, room);
            self.facts.pop();
            rest = Some(match rest {
                None => then,
                Some(otherwise) => {
                    let cond = Expr::lt(Expr::var(&head.var), bound(*to));
                    let (then, otherwise) = (Box::new(then), Some(Box::new(otherwise)));
                    Stmt::If { cond, then, otherwise }
                }
            });
        }
        let body = Box::new(rest.expect("a part"));
        let (min, extent) = (bound(head.min), bound(head.end - head.min));
        Stmt::For { var: head.var, min, extent, kind: head.kind, body }
    }

    /// Returns a loop that branches to its interior, where the condition holds.
    fn branch(
        &mut self,
        (var, min, extent, kind): (Var, Expr, Expr, ForKind),
        body: Stmt,
        cond: Expr,
        room: i128,
    ) -> Stmt {
        self.cut = true;
        self.facts.push();
        self.enter(&var, &min, &extent);
        let outside = self.outside(fresh_copy(&body, &FxHashMap::default()), &cond);
        let otherwise = Box::new(self.stmt(outside, room / 4));
        self.facts.push();
        self.facts.assume(&cond);
        let part = self.simplified(body);
        let then = Box::new(self.stmt(part, room - room / 4));
        self.facts.pop();
        self.facts.pop();
        let body = Box::new(Stmt::If { cond, then, otherwise: Some(otherwise) });
        Stmt::For { var, min, extent, kind, body }
    }

    /// Removes the choices that a part of a loop decides because `interior` does not hold there: of
    /// `P[y, x] = if 1 <= y and y < h and … then A[y, x] else 0` outside of the rows from 1 to `h`,
    /// the zero is left.
    fn outside(&mut self, part: Stmt, interior: &Expr) -> Stmt {
        let mut left = MAX_CHOICES;
        let facts = &mut self.facts;
        let mut implies = |cond: &Expr, truth: bool| {
            facts.push();
            facts.assume_truth(cond, truth);
            let implied = facts.prove(interior);
            facts.pop();
            implied
        };
        rewrite_exprs(part, &mut |expr| {
            replace_nodes(expr, &mut |e| match &e.kind {
                ExprKind::IfThenElse(cond, yes, no) if left > 0 && cond.ty.is_scalar() => {
                    left -= 1;
                    match () {
                        _ if implies(cond, true) => Some(no.clone()),
                        _ if implies(cond, false) => Some(yes.clone()),
                        _ => None,
                    }
                }
                _ => None,
            })
        })
    }

    /// Returns the condition under which every choice in a loop with run-time bounds that is
    /// decided in the middle of a long loop is decided in the same way.
    fn interior_condition(
        &mut self,
        (var, min, extent, kind): (&Var, &Expr, &Expr, &ForKind),
        body: &Stmt,
    ) -> Option<Expr> {
        if !matches!(kind, ForKind::Serial | ForKind::Parallel) {
            return None;
        }
        let (first, count) = (self.assumed(min)?, self.assumed(extent)?);
        if count < MIN_ASSUMED_ITERATIONS {
            return None;
        }
        let mut middle = self.middle.clone();
        middle.insert(var.clone(), first + count / 2);
        let found = Found::Conditions { var, middle, list: Vec::new() };
        let (inner, lane_vars, lets) = Default::default();
        let (nodes, decided) = (MAX_NODES, FxHashSet::default());
        let mut search = InteriorSearch {
            facts: &mut self.facts,
            inner,
            lane_vars,
            lets,
            nodes,
            found,
            decided,
        };
        search.facts.push();
        search.facts.bind(var, min, extent);
        search.stmt(body);
        search.facts.pop();
        let (nodes, found) = (search.nodes, search.found);
        match found {
            Found::Conditions { list, .. } if nodes > 0 && list.len() <= MAX_CONDITIONS => {
                list.into_iter().reduce(Expr::and)
            }
            _ => None,
        }
    }

    /// Removes the choices that the facts decide in this part of a loop.
    fn simplified(&self, part: Stmt) -> Stmt {
        decide_choices(part, &self.facts)
    }

    /// Returns the iterations in which every choice that depends on the loop is decided; `None` if
    /// the loop is not cut.
    fn interior(&mut self, head: &Head, body: &Stmt, room: i128) -> Option<(i128, i128)> {
        if head.end <= head.min {
            return None;
        }
        let lanes = match head.kind {
            ForKind::Serial | ForKind::Parallel => false,
            ForKind::Vectorized => {
                let copies = matches!(body, Stmt::Store { mask: None, .. });
                if !copies || head.end - head.min < MIN_VECTOR_ITERATIONS {
                    return None;
                }
                true
            }
            _ => return None,
        };
        if 3 * count_stores(body)? > room {
            return None;
        }
        let (whole, inner) = ((head.min, head.end), Vec::new());
        let facts = &mut self.facts;
        let lane_vars = if lanes { vec![head.var.clone()] } else { Vec::new() };
        let (nodes, decided, lets) = (MAX_NODES, FxHashSet::default(), Vec::new());
        let found = Found::Iterations { head, interior: whole };
        let mut search = InteriorSearch { facts, inner, lane_vars, lets, nodes, found, decided };
        search.facts.push();
        search.facts.bind(&head.var, &bound(head.min), &bound(head.end - head.min));
        search.stmt(body);
        search.facts.pop();
        let Found::Iterations { interior: (first, end), .. } = search.found else { return None };
        let worth = (end - first) * MIN_INTERIOR_FRACTION >= head.end - head.min;
        (search.nodes > 0 && worth && (first, end) != whole).then_some((first, end))
    }
}

fn bound(value: i128) -> Expr {
    Expr::index(i64::try_from(value).expect("a bound of a loop"))
}

/// Returns the number of stores in a statement with unrolled loops written out.
pub(super) fn count_stores(stmt: &Stmt) -> Option<i128> {
    let mut count = i128::from(matches!(stmt, Stmt::Store { .. }));
    let mut known = true;
    for_each_stmt(stmt, &mut |inner| match count_stores(inner) {
        Some(more) => count += more,
        None => known = false,
    });
    if let Stmt::For { extent, kind: ForKind::Unrolled, .. } = stmt {
        count = count.checked_mul(extent.as_int()?)?;
    }
    known.then_some(count)
}

/// The search for the part of a loop where choices are decided.
struct InteriorSearch<'a> {
    facts: &'a mut Facts,
    /// The loops around the current statement, in the loop that is searched.
    inner: Vec<Var>,
    /// The vectorized ones among them and the loop that is searched.
    lane_vars: Vec<Var>,
    /// The variables of `let`s in the loop.
    lets: Vec<Var>,
    /// The number of expression nodes that may still be visited.
    nodes: usize,
    found: Found<'a>,
    /// The differences, and the indices with their periods, that have limited the interior. Copies
    /// of an expression and its shared subterms have the same ones.
    decided: FxHashSet<(Rc<Poly>, Option<i128>)>,
}

/// The interior that is found so far.
enum Found<'a> {
    /// Of a loop with constant bounds.
    Iterations { head: &'a Head, interior: (i128, i128) },
    /// Of another loop, by conditions that hold in the middle of it and of those around it.
    Conditions { var: &'a Var, middle: FxHashMap<Var, i128>, list: Vec<Expr> },
}

impl InteriorSearch<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        if !self.lane_vars.is_empty() {
            for_each_expr(stmt, &mut |expr| self.choices(expr));
            if let Stmt::If { cond, then, .. } = stmt
                && self.chooses_terms(cond, then)
            {
                self.comparisons(cond);
            }
        }
        self.facts.push();
        match stmt {
            Stmt::For { var, min, extent, kind, body } => {
                self.facts.bind(var, min, extent);
                let outside = self.lane_vars.len();
                if *kind == ForKind::Vectorized {
                    self.lane_vars.push(var.clone());
                }
                self.inner.push(var.clone());
                self.stmt(body);
                self.inner.pop();
                self.lane_vars.truncate(outside);
            }
            Stmt::Let { var, value, body } => {
                self.facts.define(var, value);
                self.lets.push(var.clone());
                self.stmt(body);
                self.lets.pop();
            }
            other => for_each_stmt(other, &mut |inner| self.stmt(inner)),
        }
        self.facts.pop();
    }

    /// Whether a condition is one comparison that decides which terms each lane adds, as in `sum(…,
    /// where=k <= i)`. Those of tails depend on the loops over elements only. Several comparisons
    /// are the borders of a window, whose copies would cost more than masks.
    fn chooses_terms(&self, cond: &Expr, then: &Stmt) -> bool {
        if !matches!(cond.kind, ExprKind::Binary(BinOp::Lt | BinOp::Le, ..)) {
            return false;
        }
        let is_term = |var: &&Var| {
            let mut stored = false;
            walk_stmt(
                then,
                &mut |inner| {
                    if let Stmt::Store { indices, .. } = inner {
                        stored |= indices.iter().any(|index| mentions(index, var));
                    }
                },
                &mut |_| {},
            );
            !stored
        };
        let mut loops = self.inner.iter().filter(|var| !self.lane_vars.contains(var));
        self.differs_in_lanes(cond) && loops.any(|var| mentions(cond, var) && is_term(&var))
    }

    /// Visits the choices of an expression. With shared subterms, an expression can have
    /// exponentially many paths, so the number of visits is limited.
    fn choices(&mut self, expr: &Expr) {
        self.nodes = self.nodes.saturating_sub(1);
        if self.nodes == 0 {
            return;
        }
        match &expr.kind {
            ExprKind::IfThenElse(cond, ..) => self.comparisons(cond),
            ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, a, period)
                if a.ty == DType::Index.into() =>
            {
                match period.as_int() {
                    _ if !self.differs_in_lanes(a) => {}
                    Some(period) if period > 1 => self.stay_in_period(a, period),
                    Some(_) => {}
                    None => self.stay_in_first_period(a, period),
                }
            }
            ExprKind::Binary(BinOp::Min | BinOp::Max, a, b)
                if a.ty == DType::Index.into() && self.differs_in_lanes(expr) =>
            {
                self.compare(a, b);
            }
            _ => {}
        }
        for_each_child(expr, &mut |child| self.choices(child));
    }

    /// Decides which of two indices is less. A clamped index is compared by what it is clamped
    /// from and to: `min(max(x - 1, 0), 99)` needs `x - 1` and 99 compared.
    fn compare(&mut self, a: &Expr, b: &Expr) {
        self.nodes = self.nodes.saturating_sub(1);
        match (&a.kind, &b.kind) {
            _ if self.nodes == 0 => {}
            (ExprKind::Binary(BinOp::Min | BinOp::Max, x, y), _) => {
                self.compare(x, b);
                self.compare(y, b);
            }
            (_, ExprKind::Binary(BinOp::Min | BinOp::Max, x, y)) => {
                self.compare(a, x);
                self.compare(a, y);
            }
            _ => self.decide(&Expr::sub(a.clone(), b.clone()), 0),
        }
    }

    /// Whether an index depends on a vectorized loop.
    fn differs_in_lanes(&self, index: &Expr) -> bool {
        let in_lanes = |var: &Var| self.lane_vars.contains(var);
        any_expr(index, &mut |e| e.as_var().is_some_and(in_lanes))
    }

    fn comparisons(&mut self, cond: &Expr) {
        self.nodes = self.nodes.saturating_sub(1);
        match &cond.kind {
            _ if self.nodes == 0 => {}
            ExprKind::Binary(BinOp::And | BinOp::Or, ..) | ExprKind::Unary(UnOp::Not, _) => {
                for_each_child(cond, &mut |child| self.comparisons(child));
            }
            ExprKind::Binary(BinOp::Eq | BinOp::Ne, a, b)
                if a.ty == DType::Index.into() && self.differs_in_lanes(cond) =>
            {
                self.decide(&Expr::sub(a.clone(), b.clone()), 1);
            }
            ExprKind::Binary(op @ (BinOp::Lt | BinOp::Le), a, b) if a.ty == DType::Index.into() => {
                let slack = Expr::sub(b.clone(), a.clone());
                let least = if *op == BinOp::Lt { 1 } else { 0 };
                self.decide(&Expr::sub(slack, Expr::index(least)), 0);
            }
            _ => {}
        }
    }

    /// Keeps the iterations in which `slack` is at least `least` (0 or 1) in all inner loops, or
    /// those in which it is negative, whichever are more.
    fn decide(&mut self, slack: &Expr, least: i64) {
        // No period is 1.
        if !self.decided.insert((self.facts.poly(slack), Some(least.into()))) {
            return;
        }
        let inner: Vec<Var> = self.inner.clone();
        let Some((low, high)) = self.facts.bounds(slack, &inner) else { return };
        let Found::Iterations { head, .. } = self.found else {
            let (least, zero) = (Expr::index(least), Expr::index(0));
            let holds = (Expr::sub(low.clone(), least.clone()), Expr::le(least, low));
            let fails = (Expr::sub(Expr::index(-1), high.clone()), Expr::lt(high, zero));
            if !self.require(holds) {
                self.require(fails);
            }
            return;
        };
        let (Some(low), Some(high)) = (self.affine(head, &low), self.affine(head, &high)) else {
            return;
        };
        let holds = not_negative(head, (low.0 - i128::from(least), low.1));
        let fails = not_negative(head, (-high.0 - 1, -high.1));
        let length = |(from, to): (i128, i128)| to - from;
        let larger = if length(fails) > length(holds) { fails } else { holds };
        if length(larger) > 0 {
            self.keep(larger);
        }
    }

    /// Keeps some of the iterations.
    fn keep(&mut self, (from, to): (i128, i128)) {
        if let Found::Iterations { interior, .. } = &mut self.found {
            let from = interior.0.max(from);
            *interior = (from, interior.1.min(to).max(from));
        }
    }

    /// Adds a condition that holds where an index is not negative, if it is not in the middle of
    /// the loop. Returns whether it holds there.
    fn require(&mut self, (index, cond): (Expr, Expr)) -> bool {
        let Found::Conditions { var, middle, list } = &mut self.found else { return false };
        let at = |other: &Var| middle.get(other).copied().unwrap_or(ASSUMED_VALUE);
        if value_at(&index, &at).is_none_or(|value| value < 0) {
            return false;
        }
        let bound = |other: &Var| self.inner.contains(other) || self.lets.contains(other);
        let free = !any_expr(&index, &mut |e| {
            matches!(e.kind, ExprKind::Load { .. }) || e.as_var().is_some_and(bound)
        });
        let small = match self.facts.const_bounds(&index) {
            (Some(low), Some(high)) => -SMALL < low && high < SMALL,
            _ => false,
        };
        let cond = simplify_expr(&cond, self.facts);
        let varies = any_expr(&index, &mut |e| e.as_var() == Some(*var));
        if varies
            && free
            && small
            && cond.as_int().is_none()
            && !list.iter().any(|one| one.same(&cond))
        {
            list.push(cond);
        }
        true
    }

    /// Keeps the iterations in which `a // period` is 0 in all lanes.
    fn stay_in_first_period(&mut self, a: &Expr, period: &Expr) {
        if let Found::Conditions { .. } = self.found {
            self.decide(a, 0);
            self.decide(&Expr::sub(a.clone(), period.clone()), 0);
        }
    }

    /// Keeps the iterations in which `a // period` has one value in all lanes, if they are enough.
    fn stay_in_period(&mut self, a: &Expr, period: i128) {
        if !self.decided.insert((self.facts.poly(a), Some(period))) {
            return;
        }
        let Found::Iterations { head, .. } = self.found else { return };
        let inner: Vec<Var> = self.inner.clone();
        let Some((low, high)) = self.facts.bounds(a, &inner) else { return };
        let (Some(low), Some(high)) = (self.affine(head, &low), self.affine(head, &high)) else {
            return;
        };
        let (min, end) = (head.min, head.end);
        let mut longest = (min, min);
        for sample in [min, (min + end) / 2, end - 1] {
            let first = floor_div(low.0 + low.1 * sample, period) * period;
            let from = not_negative(head, (low.0 - first, low.1));
            let to = not_negative(head, (first + period - 1 - high.0, -high.1));
            let run = (from.0.max(to.0), from.1.min(to.1));
            if run.1 - run.0 > longest.1 - longest.0 {
                longest = run;
            }
        }
        if (longest.1 - longest.0) * MIN_PERIOD_FRACTION >= end - min {
            self.keep(longest);
        }
    }

    /// Returns the value at 0 and the step of an index that depends on no other variable.
    fn affine(&self, head: &Head, expr: &Expr) -> Option<(i128, i128)> {
        if let Some((slope, start)) = self.facts.affine(expr, &head.var)
            && let Some(start) = start.as_constant()
        {
            return Some((start, slope));
        }
        let at = |value: Expr| {
            let at = substitute(expr, &mut |var| (*var == head.var).then(|| value.clone()));
            simplify_expr(&at, self.facts)
        };
        let start = at(Expr::index(0)).as_int()?;
        let next = at(Expr::add(Expr::var(&head.var), Expr::index(1)));
        let slope = simplify_expr(&Expr::sub(next, expr.clone()), self.facts).as_int()?;
        Some((start, slope))
    }
}

/// Returns the iterations in which `start + slope*v` is at least 0, as the first one and the end,
/// which are equal if there are none.
fn not_negative(head: &Head, (start, slope): (i128, i128)) -> (i128, i128) {
    let (mut from, mut to) = (head.min, head.end);
    match slope {
        0 if start < 0 => to = from,
        0 => {}
        1.. => from = from.max(-floor_div(start, slope)),
        _ => to = to.min(floor_div(start, -slope) + 1),
    }
    (from, to.max(from))
}

/// Returns the value of an index for values of its variables; `None` if it is large or has other
/// operations than those of bounds.
fn value_at(expr: &Expr, value: &dyn Fn(&Var) -> i128) -> Option<i128> {
    if let Some(value) = expr.as_int() {
        return Some(value);
    }
    match &expr.kind {
        ExprKind::Var(var) => Some(value(var)),
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (value_at(a, value)?, value_at(b, value)?);
            let found = match op {
                BinOp::Add => a + b,
                BinOp::Sub => a - b,
                BinOp::Mul => a.checked_mul(b)?,
                BinOp::Min => a.min(b),
                BinOp::Max => a.max(b),
                BinOp::FloorDiv if b > 0 => floor_div(a, b),
                BinOp::FloorMod if b > 0 => a - floor_div(a, b) * b,
                _ => return None,
            };
            Some(found).filter(|found| found.abs() < SMALL)
        }
        _ => None,
    }
}

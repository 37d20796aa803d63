//! Trim no-ops: shortens the serial loops of a reduction to the iterations in which its condition
//! can hold, as Halide's pass of that name does.
//!
//! Before: `for (k, 0, n) { if (k <= i) { C[i] = C[i] + A[k] } }`
//! After:  `for (k, 0, i + 1) { C[i] = C[i] + A[k] }`
//! The bounds may be loaded: `P[i] <= p and p < P[i + 1]` gives the loop over a row of a sparse
//! matrix. They are clamped to the range of the loop, so the accesses in it need no other proof. If
//! a condition depends on the lanes or rows of a tile, the loop is cut, and the part where it holds
//! for the whole tile has no condition; if it also depends on data, the loop ends with the longest
//! row of the tile. The loops that check data on entry are trimmed, too.
//! Needs: simplified conditions. Stands before `partition_loops`, which handles the conditions of
//! tails; these are still marked `likely` here.
//! Ensures: nothing for later passes.  Breaks: nothing; it simplifies the kernel if it has changed
//! a loop.
//! Declines: loops over data axes, whose tails the schedule decides; loops that store outside of
//! the condition; loops of fewer than `MIN_ITERATIONS`; conditions that are not comparisons of
//! integers with the loop's variable on one side, or whose arithmetic might need more than 64 bits;
//! bounds that the loop stores; loads that might lie outside of their tensor if the condition were
//! not tested, or at an element that is not computed then; GPUs, where threads would run different
//! iterations.

use super::loop_range::{Affine, iterations_where, ordered};
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::scopes::ScopedRewrite;
use crate::ir::simplify::{extremum, simplify_expr, simplify_kernel};
use crate::ir::visit::{
    NodeSet, for_each_child, for_each_stmt, map_stmts, mentions, mentions_any, reads_any,
    reads_buffer, reads_memory, substitute, walk_expr, walk_stmt,
};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Kernel, Stmt, Var};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// The smallest constant extent of a loop that is trimmed. Shorter loops can be unrolled.
const MIN_ITERATIONS: i128 = 8;

/// A loop is cut around the iterations in which a condition holds for part of a tile if these are
/// at most one in this many.
const MAX_BORDER_FRACTION: i128 = 2;

/// The largest number of pieces of loops that the pass makes in one kernel.
const MAX_PIECES: usize = 48;

/// The largest number of lanes and rows of a tile whose bounds are loaded in front of a loop.
const MAX_LOADED_BOUNDS: i128 = 64;

/// Arithmetic on indices below this magnitude needs at most 64 bits.
const SMALL: i128 = 1 << 61;

/// Trims the loops of a kernel.
pub fn trim_no_ops(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let mut regions = FxHashSet::default();
    find_regions(&kernel.body, false, &mut regions);
    let mut trimmer = Trimmer { facts, regions, pieces: 0, changed: false };
    let body = trimmer.stmt(kernel.body);
    // The checks establish the facts, so they cannot use them.
    trimmer.facts = Facts::new();
    let checks = trimmer.stmt(kernel.checks);
    let kernel = Kernel { checks, body, ..kernel };
    Ok(if trimmer.changed { simplify_kernel(kernel) } else { kernel })
}

/// Collects the buffers that are allocated in a loop. They hold the region of an attached stage,
/// which an iteration at a border computes only in part.
fn find_regions(stmt: &Stmt, in_loop: bool, regions: &mut FxHashSet<Buffer>) {
    if let (Stmt::Allocate { buffer, .. }, true) = (stmt, in_loop) {
        regions.insert(buffer.clone());
    }
    let in_loop = in_loop || matches!(stmt, Stmt::For { .. });
    for_each_stmt(stmt, &mut |inner| find_regions(inner, in_loop, regions));
}

struct Trimmer {
    facts: Facts,
    /// See [`find_regions`].
    regions: FxHashSet<Buffer>,
    pieces: usize,
    changed: bool,
}

/// A loop without its body; it ends before `end`.
#[derive(Clone)]
struct Head {
    var: Var,
    min: Expr,
    extent: Expr,
    end: Expr,
}

/// The effect of a statement outside of the loop that is trimmed.
enum Effect {
    None,
    /// It has one only if all these conditions hold.
    If(Vec<Guard>),
    Always,
}

/// A condition that holds in every iteration with an effect: the conjunction of its limits.
struct Guard {
    cond: Expr,
    limits: Vec<Limit>,
    /// Whether the limits imply the condition in all inner loops.
    exact: bool,
    /// Whether no arithmetic of the limits can overflow, evaluated or not.
    fits: bool,
    /// See [`Path::given`].
    given: Vec<Expr>,
    /// See [`Path::is_complete`].
    is_complete: bool,
    /// The inner loops on whose variables a limit or a given condition may depend, with constant
    /// extents.
    tile: Vec<Head>,
}

/// A bound that a condition gives to the loop's variable.
enum Limit {
    /// If `reach` is negative, the condition fails. If `margin` is not, it holds in all inner
    /// loops. `width` is the difference if it is constant, 0 without inner loops.
    Affine { reach: Affine, margin: Affine, width: Option<i128> },
    /// The variable is at least the value, which lies in the range of the loop. It may depend on
    /// the tile; then the variable is at least the least value.
    First(Expr),
    /// The variable is less than the value, which lies in the range of the loop. It may depend on
    /// the tile; then the variable is less than the greatest value.
    End(Expr),
}

/// The statements between the loop that is trimmed and a statement in it.
struct Path {
    /// The loops.
    inner: Vec<Head>,
    /// The variables of the loops and of `let`s.
    bound: FxHashSet<Var>,
    /// The `let`s among them.
    lets: FxHashSet<Var>,
    allocated: Vec<Buffer>,
    /// The conditions around the statement that are the same in all iterations of the loop that is
    /// trimmed, in order.
    given: Vec<Expr>,
    /// Whether the statement runs in all iterations if these conditions hold.
    is_complete: bool,
    /// Whether all stores so far update an element, as reductions do.
    updates: bool,
    /// Whether the element is the same in all iterations of the loop that is trimmed.
    reduces: bool,
}

impl Path {
    fn new() -> Path {
        Path {
            inner: Vec::new(),
            bound: FxHashSet::default(),
            lets: FxHashSet::default(),
            allocated: Vec::new(),
            given: Vec::new(),
            is_complete: true,
            updates: true,
            reduces: true,
        }
    }

    /// Returns the variables of the loops that an expression mentions.
    fn moving(&self, expr: &Expr) -> Vec<Var> {
        let vars = self.inner.iter().map(|head| &head.var);
        vars.filter(|var| mentions(expr, var)).cloned().collect()
    }
}

impl ScopedRewrite for Trimmer {
    fn facts(&mut self) -> &mut Facts {
        &mut self.facts
    }

    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::For { var, min, extent, kind: ForKind::Serial, body } => {
                let end = self.simple(&Expr::add(min.clone(), extent.clone()));
                self.serial_loop(Head { var, min, extent, end }, *body)
            }
            other => self.children(other),
        }
    }
}

impl Trimmer {
    fn serial_loop(&mut self, head: Head, body: Stmt) -> Stmt {
        let guards = self.guards(&head, &body);
        if guards.is_empty() {
            return self.inside(head, body);
        }
        let (first, end) = self.trimmed(&head, &guards);
        let exact: Vec<Expr> =
            guards.iter().filter(|guard| guard.exact).map(|guard| guard.cond.clone()).collect();
        let body = if exact.is_empty() { body } else { without(body, &exact) };
        if !reads_memory(&first) && !reads_memory(&end) {
            let (first, end) = ordered(first, end, &head.end, &self.facts);
            return self.cut(head, first, end, &guards, body);
        }
        // Without iterations, the element may lie outside of its tensor.
        let runs = Expr::lt(Expr::index(0), head.extent.clone());
        let proved = self.facts.prove(&runs);
        let named = |suffix: &str| Var::index(format!("{}.{suffix}", head.var.name()));
        let (begin_var, end_var) = (named("begin"), named("end"));
        let (begin, last) = (Expr::var(&begin_var), Expr::var(&end_var));
        self.facts.push();
        self.facts.assume(&runs);
        // Loaded values lie in the range of the loop, and have no order.
        let first = match reads_memory(&first) {
            true => self.simple(&first),
            false => extremum(BinOp::Min, first, head.end.clone(), &self.facts),
        };
        for (low, high) in [(&head.min, &begin), (&begin, &head.end)] {
            self.facts.assume(&Expr::le(low.clone(), high.clone()));
        }
        let end = match reads_memory(&end) {
            true => self.simple(&Expr::binary(BinOp::Max, end, begin.clone())),
            false => extremum(BinOp::Max, end, begin.clone(), &self.facts),
        };
        for (low, high) in [(&begin, &last), (&last, &head.end)] {
            self.facts.assume(&Expr::le(low.clone(), high.clone()));
        }
        let nest = self.cut(head, begin, last, &guards, body);
        self.facts.pop();
        let nest = Stmt::Let { var: end_var, value: end, body: Box::new(nest) };
        let nest = Stmt::Let { var: begin_var, value: first, body: Box::new(nest) };
        match proved {
            true => nest,
            false => Stmt::If { cond: runs, then: Box::new(nest), otherwise: None },
        }
    }

    /// Keeps the loop and trims its body.
    fn inside(&mut self, head: Head, body: Stmt) -> Stmt {
        let Head { var, min, extent, .. } = head;
        let (kind, body) = (ForKind::Serial, Box::new(body));
        self.children(Stmt::For { var, min, extent, kind, body })
    }

    /// Returns the conditions without which the loop has no effect, as far as they limit its
    /// variable.
    fn guards(&mut self, head: &Head, body: &Stmt) -> Vec<Guard> {
        if head.extent.as_int().is_some_and(|extent| extent < MIN_ITERATIONS) {
            return Vec::new();
        }
        let mut path = Path::new();
        self.facts.push();
        self.facts.bind(&head.var, &head.min, &head.extent);
        let mut guards = match self.effect(head, body, &mut path) {
            Effect::If(guards) if path.updates && path.reduces => guards,
            _ => Vec::new(),
        };
        if !guards.is_empty() {
            let stored = stored_in(body);
            guards.retain_mut(|guard| self.hoist_limits(head, guard, &stored));
        }
        self.facts.pop();
        guards
    }

    /// Makes the limits expressions that may be evaluated in front of the loop, if it has an
    /// iteration: of the whole tile, and under the given conditions where they must not be
    /// evaluated otherwise. Returns whether there are such.
    fn hoist_limits(&mut self, head: &Head, guard: &mut Guard, stored: &FxHashSet<Buffer>) -> bool {
        let Guard { limits, fits, given, is_complete, tile, .. } = guard;
        limits.iter_mut().all(|limit| {
            let (value, neutral, op) = match limit {
                Limit::Affine { .. } => return true,
                Limit::First(value) => (value, &head.end, BinOp::Min),
                Limit::End(value) => (value, &head.min, BinOp::Max),
            };
            if !(*fits && self.is_inside(value)) {
                if !(*is_complete || *fits && self.is_inside_where(value, given, tile)) {
                    return false;
                }
                for cond in given.iter().rev() {
                    *value = Expr::if_then_else(cond.clone(), value.clone(), neutral.clone());
                }
            }
            let Some(whole) = over_tile(value, tile, op) else { return false };
            *value = whole;
            !reads_any(value, stored)
        })
    }

    /// Whether all loads lie inside in the iterations of a tile in which the conditions hold.
    fn is_inside_where(&mut self, value: &Expr, given: &[Expr], tile: &[Head]) -> bool {
        self.facts.push();
        for head in tile {
            self.facts.bind(&head.var, &head.min, &head.extent);
        }
        given.iter().for_each(|cond| self.facts.assume(cond));
        let inside = self.is_inside(value);
        self.facts.pop();
        inside
    }

    /// Whether all loads lie inside of their tensors, and of the part that is computed.
    fn is_inside(&self, value: &Expr) -> bool {
        let mut inside = true;
        walk_expr(value, &mut |e| {
            let ExprKind::Load { buffer, indices, .. } = &e.kind else { return };
            inside = inside
                && !self.regions.contains(buffer)
                && indices.iter().all(|index| {
                    self.facts.prove(&Expr::le(Expr::index(0), index.clone()))
                        && self.facts.prove(&Expr::lt(index.clone(), buffer.len()))
                });
        });
        inside
    }

    fn effect(&mut self, head: &Head, stmt: &Stmt, path: &mut Path) -> Effect {
        match stmt {
            Stmt::Store { buffer, .. } if path.allocated.contains(buffer) => Effect::None,
            Stmt::Store { buffer, indices, value, .. } => {
                path.updates &= reads_buffer(value, buffer);
                path.reduces &= !indices.iter().any(|index| mentions(index, &head.var));
                Effect::Always
            }
            Stmt::Prefetch { .. } => Effect::None,
            Stmt::For { kind: ForKind::Thread(_), .. } => Effect::Always,
            Stmt::For { var, min, extent, body, .. } => {
                let is_complete = path.is_complete;
                path.is_complete &= extent.as_int().is_some_and(|extent| extent > 0);
                let end = Expr::add(min.clone(), extent.clone());
                self.facts.push();
                self.facts.bind(var, min, extent);
                path.bound.insert(var.clone());
                let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
                path.inner.push(Head { var, min, extent, end });
                let effect = self.effect(head, body, path);
                self.facts.pop();
                path.inner.pop();
                path.is_complete = is_complete;
                effect
            }
            Stmt::Let { var, value, body } => {
                path.bound.insert(var.clone());
                path.lets.insert(var.clone());
                self.facts.push();
                self.facts.define(var, value);
                let effect = self.effect(head, body, path);
                self.facts.pop();
                effect
            }
            Stmt::Allocate { buffer, body } => {
                path.allocated.push(buffer.clone());
                let effect = self.effect(head, body, path);
                path.allocated.pop();
                effect
            }
            Stmt::Produce { body, .. } => self.effect(head, body, path),
            Stmt::Block(stmts) => {
                let mut only = Effect::None;
                for stmt in stmts {
                    only = match (only, self.effect(head, stmt, path)) {
                        (Effect::None, effect) | (effect, Effect::None) => effect,
                        _ => return Effect::Always,
                    };
                }
                only
            }
            Stmt::If { cond, then, otherwise: None } => {
                let mut guards = Vec::new();
                let (given, is_complete) = (path.given.len(), path.is_complete);
                self.conjuncts(head, cond, path, &mut guards);
                self.facts.push();
                self.facts.assume(cond);
                let effect = self.effect(head, then, path);
                self.facts.pop();
                path.given.truncate(given);
                path.is_complete = is_complete;
                match effect {
                    Effect::None => Effect::None,
                    Effect::Always => Effect::If(guards),
                    Effect::If(more) => {
                        guards.extend(more);
                        Effect::If(guards)
                    }
                }
            }
            _ => Effect::Always,
        }
    }

    /// Adds the conditions whose conjunction is `cond`. Afterwards, they are given.
    fn conjuncts(&self, head: &Head, cond: &Expr, path: &mut Path, guards: &mut Vec<Guard>) {
        if let ExprKind::Binary(BinOp::And, a, b) = &cond.kind {
            self.conjuncts(head, a, path, guards);
            self.conjuncts(head, b, path, guards);
            return;
        }
        guards.extend(self.guard(head, cond, path));
        match mentions(cond, &head.var) || mentions_any(cond, &path.lets) {
            false => path.given.push(cond.clone()),
            true => path.is_complete = false,
        }
    }

    /// Returns the limits that a condition gives to the loop's variable.
    fn guard(&self, head: &Head, cond: &Expr, path: &Path) -> Option<Guard> {
        let ExprKind::Binary(op, a, b) = &cond.kind else { return None };
        let (op, a, b) = match op {
            BinOp::Lt | BinOp::Le | BinOp::Eq => (*op, a, b),
            // In the checks, whose conditions are not simplified.
            BinOp::Gt => (BinOp::Lt, b, a),
            BinOp::Ge => (BinOp::Le, b, a),
            _ => return None,
        };
        if !mentions(cond, &head.var) {
            return None;
        }
        let (a, b) = (self.facts.as_index(a)?, self.facts.as_index(b)?);
        // Each `(first, second, apart)` means `first + apart <= second`.
        let pairs = match op {
            BinOp::Lt => vec![(&a, &b, 1)],
            BinOp::Le => vec![(&a, &b, 0)],
            _ => vec![(&a, &b, 0), (&b, &a, 0)],
        };
        let count = pairs.len();
        // What not every iteration computes must not overflow in front of the loop.
        let mut seen = NodeSet::default();
        let fits = self.fits(&a, &mut seen) && self.fits(&b, &mut seen);
        let mut exact = true;
        let limits = pairs.into_iter().filter_map(|(a, b, apart)| {
            if let Some(limit) = self.affine(head, a, b, apart, path) {
                exact &= matches!(limit, Limit::Affine { width: Some(0), .. });
                return Some(limit);
            }
            exact &= !mentions_any(a, &path.bound) && !mentions_any(b, &path.bound);
            let (limit, step) = self.clamped(head, a, b, apart, path)?;
            exact &= step == 1;
            Some(limit)
        });
        let limits: Vec<Limit> = limits.collect();
        if limits.len() < count {
            return None;
        }
        let (given, is_complete, tile) = (path.given.clone(), path.is_complete, path.inner.clone());
        Some(Guard { cond: cond.clone(), limits, exact, fits, given, is_complete, tile })
    }

    /// Returns the limit of `a + apart <= b`, if one side is a multiple of the loop's variable plus
    /// a number for each iteration of the tile, and the other does not change in the loop; and the
    /// factor. The other side may have any value, so it is clamped before arithmetic.
    fn clamped(
        &self,
        head: &Head,
        a: &Expr,
        b: &Expr,
        apart: i64,
        path: &Path,
    ) -> Option<(Limit, i64)> {
        let fixed = |expr: &Expr| !mentions(expr, &head.var) && !mentions_any(expr, &path.lets);
        // Returns the iteration `(value - offset) // step`, in the range of the loop.
        let iteration = |value: &Expr, step: i64, offset: i64| {
            let moved = |end: &Expr| {
                Expr::add(Expr::mul(end.clone(), Expr::index(step)), Expr::index(offset))
            };
            let value = Expr::binary(BinOp::Max, value.clone(), moved(&head.min));
            let value = Expr::binary(BinOp::Min, value, moved(&head.end));
            let value = Expr::sub(value, Expr::index(offset));
            Expr::binary(BinOp::FloorDiv, value, Expr::index(step))
        };
        if fixed(b) {
            // step*v + offset + apart <= b: v < (b - offset - apart) // step + 1
            let (step, offset) = self.multiple(a, head, path, BinOp::Min)?;
            return Some((Limit::End(iteration(b, step, offset + apart - step)), step));
        }
        fixed(a).then_some(())?;
        // a + apart <= step*v + offset: v >= (a + apart - offset + step - 1) // step
        let (step, offset) = self.multiple(b, head, path, BinOp::Max)?;
        Some((Limit::First(iteration(a, step, offset - apart - step + 1)), step))
    }

    /// Returns the factor and the least or greatest summand in the tile of an index that is a
    /// multiple of the loop's variable plus a small number.
    fn multiple(&self, index: &Expr, head: &Head, path: &Path, op: BinOp) -> Option<(i64, i64)> {
        if reads_memory(index) || mentions_any(index, &path.lets) {
            return None;
        }
        let moving = path.moving(index);
        let end = match (moving.is_empty(), self.is_small(index)) {
            (true, _) => index.clone(),
            (false, false) => return None,
            (false, true) => {
                let (low, high) = self.facts.bounds(index, &moving)?;
                if op == BinOp::Min { low } else { high }
            }
        };
        let Affine { slope, start } = Affine::new(&end, &head.var, &self.facts)?;
        let small = |number: i128| number.abs() < i128::from(i32::MAX);
        let start = start.as_int().filter(|start| small(*start))?;
        (slope > 0 && small(i128::from(slope))).then_some((slope, start as i64))
    }

    /// Whether a sum of a few such indices fits into 64 bits.
    fn is_small(&self, expr: &Expr) -> bool {
        match self.facts.const_bounds(expr) {
            (Some(low), Some(high)) => -SMALL < low && high < SMALL,
            _ => false,
        }
    }

    /// Whether no arithmetic of an index exceeds 64 bits; nodes in `seen` were found to fit. That
    /// in the indices of loads fits, if these are inside of their tensors.
    fn fits(&self, expr: &Expr, seen: &mut NodeSet) -> bool {
        if matches!(expr.kind, ExprKind::Load { .. }) || !seen.insert(expr) {
            return true;
        }
        let is_computed = matches!(expr.kind, ExprKind::Binary(..) | ExprKind::Unary(..));
        let mut fits = !(is_computed && expr.ty.dtype == DType::Index) || self.is_small(expr);
        for_each_child(expr, &mut |child| fits = fits && self.fits(child, seen));
        fits
    }

    /// Returns the limit of `a + apart <= b`, if both are affine in the loop's variable.
    fn affine(&self, head: &Head, a: &Expr, b: &Expr, apart: i64, path: &Path) -> Option<Limit> {
        let slack = Expr::sub(Expr::sub(b.clone(), a.clone()), Expr::index(apart));
        let small = |expr: &Expr| self.is_small(expr);
        let fits = !reads_memory(&slack) && !mentions_any(&slack, &path.lets);
        if !fits || ![a, b, &slack].into_iter().all(small) {
            return None;
        }
        let moving = path.moving(&slack);
        let (margin, reach) = match moving.is_empty() {
            true => {
                let slack = self.simple(&slack);
                (slack.clone(), slack)
            }
            false => {
                let (low, high) = self.facts.bounds(&slack, &moving)?;
                (self.simple(&low), self.simple(&high))
            }
        };
        let affine = |expr: &Expr| {
            let affine = Affine::new(expr, &head.var, &self.facts)?;
            let free = !mentions_any(expr, &path.bound) && !mentions(&affine.start, &head.var);
            (free && small(&affine.start)).then_some(affine)
        };
        let width = self.simple(&Expr::sub(reach.clone(), margin.clone())).as_int();
        Some(Limit::Affine { reach: affine(&reach)?, margin: affine(&margin)?, width })
    }

    /// Returns the range of iterations in which all conditions can hold. It may end before it
    /// begins, or begin after the loop's end.
    fn trimmed(&self, head: &Head, guards: &[Guard]) -> (Expr, Expr) {
        let limits = || guards.iter().flat_map(|guard| &guard.limits);
        let reaches: Vec<&Affine> = limits()
            .filter_map(|limit| match limit {
                Limit::Affine { reach, .. } => Some(reach),
                _ => None,
            })
            .collect();
        let range = (&head.min, &head.end);
        let (mut first, mut end) = iterations_where(&reaches, range, &self.facts);
        for limit in limits() {
            match limit {
                Limit::Affine { .. } => {}
                Limit::First(value) => first = self.nearer(BinOp::Max, first, value, &head.min),
                Limit::End(value) => end = self.nearer(BinOp::Min, end, value, &head.end),
            }
        }
        (first, end)
    }

    /// Returns the greatest first iteration or the least end of two, where `value` lies in the
    /// range of the loop, which has the bound `outermost`. A proof about a value of many loads
    /// takes long, and loaded values have no order.
    fn nearer(&self, op: BinOp, known: Expr, value: &Expr, outermost: &Expr) -> Expr {
        match known.same(outermost) {
            true => value.clone(),
            false if reads_memory(&known) => Expr::binary(op, known, value.clone()),
            false => extremum(op, known, value.clone(), &self.facts),
        }
    }

    /// Runs the iterations `first .. end` in up to three loops; in the second one, the conditions
    /// hold for whole tiles.
    fn cut(&mut self, head: Head, first: Expr, end: Expr, guards: &[Guard], body: Stmt) -> Stmt {
        let (margins, conds) = interior_conditions(&head, guards);
        let (from, to) = match margins.is_empty() || self.pieces + 3 > MAX_PIECES {
            true => (first.clone(), first.clone()),
            false => {
                let (from, to) = iterations_where(&margins, (&head.min, &head.end), &self.facts);
                let from = extremum(BinOp::Max, from, first.clone(), &self.facts);
                let from = extremum(BinOp::Min, from, end.clone(), &self.facts);
                let to = extremum(BinOp::Min, to, end.clone(), &self.facts);
                let to = extremum(BinOp::Max, to, from.clone(), &self.facts);
                (from, to)
            }
        };
        let nothing =
            |from: &Expr, to: &Expr| self.facts.prove(&Expr::le(to.clone(), from.clone()));
        if nothing(&from, &to) {
            let exact = guards.iter().any(|guard| guard.exact);
            let whole = nothing(&head.min, &first) && nothing(&end, &head.end);
            self.changed |= exact || !whole;
            return match whole {
                true => self.inside(head, body),
                false => self.piece(&head, first, end, body),
            };
        }
        let parts = [(&first, &from, false), (&from, &to, true), (&to, &end, false)];
        let parts: Vec<_> = parts.into_iter().filter(|(from, to, _)| !nothing(from, to)).collect();
        self.pieces += parts.len();
        self.changed = true;
        let parts = parts.into_iter().map(|(from, to, holds)| {
            let body = body.clone();
            let body = if holds { without(body, &conds) } else { body };
            self.piece(&head, from.clone(), to.clone(), body)
        });
        Stmt::Block(parts.collect())
    }

    fn piece(&mut self, head: &Head, from: Expr, to: Expr, body: Stmt) -> Stmt {
        let extent = self.simple(&Expr::sub(to.clone(), from.clone()));
        if extent.as_int().is_some_and(|extent| extent <= 0) {
            return Stmt::nothing();
        }
        let var = Var::index(head.var.name());
        let body = fresh_copy(&body, &FxHashMap::from_iter([(head.var.clone(), Expr::var(&var))]));
        self.inside(Head { var, min: from, extent, end: to }, body)
    }

    fn simple(&self, expr: &Expr) -> Expr {
        simplify_expr(expr, &self.facts)
    }
}

/// Returns the conditions that depend on a tile and hold for all of it in most iterations, and the
/// margins that are not negative there.
fn interior_conditions<'g>(head: &Head, guards: &'g [Guard]) -> (Vec<&'g Affine>, Vec<Expr>) {
    let room = head.extent.as_int().map_or(i128::MAX, |extent| extent / MAX_BORDER_FRACTION);
    let (mut margins, mut conds) = (Vec::new(), Vec::new());
    for guard in guards.iter().filter(|guard| !guard.exact) {
        let of_guard: Option<Vec<&Affine>> = guard
            .limits
            .iter()
            .map(|limit| match limit {
                Limit::Affine { margin, width: Some(width), .. } if *width <= room => Some(margin),
                _ => None,
            })
            .collect();
        if let Some(of_guard) = of_guard {
            margins.extend(of_guard);
            conds.push(guard.cond.clone());
        }
    }
    (margins, conds)
}

/// Returns the least or greatest value in all iterations of a tile; `None` if these are many or
/// their number is not constant.
fn over_tile(value: &Expr, tile: &[Head], op: BinOp) -> Option<Expr> {
    let mut values = vec![value.clone()];
    for Head { var, min, extent, .. } in tile.iter().rev() {
        if !values.iter().any(|value| mentions(value, var)) {
            continue;
        }
        let extent = extent.as_int()?;
        if extent * values.len() as i128 > MAX_LOADED_BOUNDS {
            return None;
        }
        let at = |value: &Expr, step: i128| {
            let place = Expr::add(min.clone(), Expr::index(step as i64));
            substitute(value, &mut |v| (v == var).then(|| place.clone()))
        };
        values = values.iter().flat_map(|value| (0..extent).map(move |n| at(value, n))).collect();
    }
    values.into_iter().reduce(|a, b| Expr::binary(op, a, b))
}

fn stored_in(body: &Stmt) -> FxHashSet<Buffer> {
    let mut stored = FxHashSet::default();
    walk_stmt(
        body,
        &mut |stmt| {
            if let Stmt::Store { buffer, .. } | Stmt::Allocate { buffer, .. } = stmt {
                stored.insert(buffer.clone());
            }
        },
        &mut |_| {},
    );
    stored
}

/// Removes conditions that hold from the statement.
fn without(stmt: Stmt, conds: &[Expr]) -> Stmt {
    match stmt {
        Stmt::If { cond, then, otherwise: None } => {
            let then = without(*then, conds);
            match rest_of(&cond, conds) {
                Some(cond) => Stmt::If { cond, then: Box::new(then), otherwise: None },
                None => then,
            }
        }
        other => map_stmts(other, &mut |inner| without(inner, conds)),
    }
}

/// Returns the conjunction without the parts that hold; `None` if nothing is left.
fn rest_of(cond: &Expr, conds: &[Expr]) -> Option<Expr> {
    if conds.iter().any(|known| known.same(cond)) {
        return None;
    }
    let ExprKind::Binary(BinOp::And, a, b) = &cond.kind else { return Some(cond.clone()) };
    match (rest_of(a, conds), rest_of(b, conds)) {
        (Some(a), Some(b)) => Some(Expr::and(a, b)),
        (a, b) => a.or(b),
    }
}

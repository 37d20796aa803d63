//! Cut diagonals: decides a comparison of two loop variables once for a tile, where it is the same
//! in the whole tile.
//!
//! Before: `for (j, 0, 64) { vectorized (l, 0, 16) { B[j*16 + l] = if j*16 + l <= i then A[…] else
//! 0 } }`
//! After: `for (j, 0, 64) { if j*16 + 15 <= i { … B = A[…] } else if i < j*16 { … B = 0 } else { …
//! both } }`
//! Only the tiles that the diagonal crosses need masks. The lanes that do not exist would otherwise
//! be loaded from anywhere, and a processor takes hundreds of cycles for a load whose lanes are all
//! masked and whose page does not exist (measured on Zen 5).
//! Needs: simplified conditions; loops split around `likely` ones (`partition_loops`). Stands
//! before `cut_borders`, which cuts loops where a condition depends on one variable, and before
//! `vectorize_loops`, which would turn the conditions into masks.
//! Ensures: nothing for later passes.  Breaks: nothing; it simplifies the kernel if it has cut one.
//! Declines: conditions that depend on one loop only; loops whose bounds depend on another one;
//! loops over terms; loops of which the diagonal crosses more than one tile in `MIN_TILES`; choices
//! without a load; nests whose copies would have more than `MAX_STORES` stores.

use super::cut_borders::count_stores;
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::simplify::{simplify_expr, simplify_kernel};
use crate::ir::visit::{
    any_expr, for_each_child, for_each_expr, for_each_stmt, map_stmts, mentions,
};
use crate::ir::{BinOp, DType, Expr, ExprKind, ForKind, Kernel, Stmt, Var};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// The diagonal may cross at most one in this many iterations of the loop that is cut.
const MIN_TILES: i128 = 8;

/// The largest number of iterations of a loop with a run-time extent that the diagonal may cross.
const MAX_CROSSED: i128 = 4;

/// The largest number of stores in the copies of a nest, with unrolled loops written out.
const MAX_STORES: i128 = 256;

/// The largest number of expression nodes that are searched for one loop.
const MAX_NODES: usize = 2000;

/// Comparisons with lines that lie this far from the diagonal are decided with it.
const MAX_DIFFERENCE: i64 = 16;

/// Arithmetic on indices below this magnitude needs at most 64 bits.
const SMALL: i128 = 1 << 61;

/// Cuts the loops around vectors whose lanes a diagonal separates.
pub fn cut_diagonals(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let mut cutter = Cutter { facts, around: Vec::new(), cut: false };
    let body = cutter.stmt(kernel.body, MAX_STORES);
    let kernel = Kernel { body, ..kernel };
    Ok(if cutter.cut { simplify_kernel(kernel) } else { kernel })
}

struct Cutter {
    facts: Facts,
    /// The loops around the current statement.
    around: Vec<Var>,
    /// Whether a loop was cut.
    cut: bool,
}

/// A comparison of two indices in a tile, by their difference: it has one result in the whole tile
/// if the least difference is at least `least`, and one if the greatest is at most `most`.
#[derive(Clone)]
struct Decided {
    low: Expr,
    high: Expr,
    most: i64,
    least: i64,
}

/// The conditions under which a tile is on one side of a diagonal, and on the other one.
struct Diagonal {
    holds: Expr,
    fails: Expr,
}

impl Cutter {
    /// Cuts the loops of a statement into copies with at most `room` stores.
    fn stmt(&mut self, whole: Stmt, room: i128) -> Stmt {
        match whole {
            Stmt::For { var, min, extent, kind, body } => {
                self.facts.push();
                self.facts.bind(&var, &min, &extent);
                let serial = matches!(kind, ForKind::Serial | ForKind::Parallel);
                let fits = || count_stores(&body).is_some_and(|stores| 3 * stores <= room);
                // Loops over the waves of a skew end at the diagonal already.
                let is_around = |e: &Expr| e.as_var().is_some_and(|var| self.around.contains(var));
                let varies = [&min, &extent].iter().any(|end| any_expr(end, &mut |e| is_around(e)));
                let most = self.facts.const_bounds(&extent).1;
                let is_short = most.is_some_and(|most| most < MIN_TILES);
                // Sums under a condition do not stay in registers.
                let moves = || stores_at(&body, &var);
                let diagonal = match serial && !varies && !is_short && fits() && moves() {
                    true => self.diagonal((&var, &extent), &body),
                    false => None,
                };
                self.around.push(var.clone());
                let body = match diagonal {
                    Some(diagonal) => self.branches(*body, diagonal, room / 3),
                    None => self.stmt(*body, room),
                };
                self.around.pop();
                self.facts.pop();
                Stmt::For { var, min, extent, kind, body: Box::new(body) }
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

    /// Returns a tile with a branch for each side of the diagonal.
    fn branches(&mut self, tile: Stmt, Diagonal { holds, fails }: Diagonal, room: i128) -> Stmt {
        self.cut = true;
        let mut decided = |cond: &Expr| {
            self.facts.push();
            self.facts.assume(cond);
            let part = self.stmt(fresh_copy(&tile, &FxHashMap::default()), room);
            self.facts.pop();
            Box::new(part)
        };
        let (above, below) = (decided(&holds), decided(&fails));
        let crossed = Stmt::If { cond: fails, then: below, otherwise: Some(Box::new(tile)) };
        Stmt::If { cond: holds, then: above, otherwise: Some(Box::new(crossed)) }
    }

    /// Returns the first diagonal that crosses few iterations of a loop.
    fn diagonal(&mut self, (var, extent): (&Var, &Expr), body: &Stmt) -> Option<Diagonal> {
        let mut search = Search {
            facts: &mut self.facts,
            around: &self.around,
            var,
            extent,
            inner: Vec::new(),
            lane_vars: Vec::new(),
            nodes: MAX_NODES,
            found: Vec::new(),
        };
        search.stmt(body);
        search.diagonal()
    }
}

/// The search for a comparison in an iteration of a loop.
struct Search<'a> {
    facts: &'a mut Facts,
    around: &'a [Var],
    var: &'a Var,
    extent: &'a Expr,
    /// The loops and the `let`s around the current statement, in the loop that is searched.
    inner: Vec<Var>,
    /// The vectorized ones among them.
    lane_vars: Vec<Var>,
    /// The number of expression nodes that may still be visited.
    nodes: usize,
    found: Vec<Decided>,
}

impl Search<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        if !self.lane_vars.is_empty() {
            for_each_expr(stmt, &mut |expr| self.choices(expr));
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
            // The values of a `let` have no bounds over the loops in it.
            Stmt::Let { .. } => {}
            other => for_each_stmt(other, &mut |inner| self.stmt(inner)),
        }
        self.facts.pop();
    }

    /// Visits the choices of an expression.
    fn choices(&mut self, expr: &Expr) {
        self.nodes = self.nodes.saturating_sub(1);
        if self.nodes == 0 {
            return;
        }
        if let ExprKind::IfThenElse(cond, yes, no) = &expr.kind
            && [yes, no].iter().any(|side| reads(side))
        {
            self.comparisons(cond);
        }
        for_each_child(expr, &mut |child| self.choices(child));
    }

    fn comparisons(&mut self, cond: &Expr) {
        match &cond.kind {
            ExprKind::Binary(BinOp::And | BinOp::Or, ..) | ExprKind::Unary(..) => {
                for_each_child(cond, &mut |child| self.comparisons(child));
            }
            ExprKind::Binary(op @ (BinOp::Lt | BinOp::Le | BinOp::Eq | BinOp::Ne), a, b)
                if a.ty == DType::Index.into() =>
            {
                let slack = Expr::sub(b.clone(), a.clone());
                // `a < b` is false up to a slack of 0, `a == b` is decided from 1 on.
                let (most, least) = match op {
                    BinOp::Lt => (0, 1),
                    BinOp::Le => (-1, 0),
                    _ => (-1, 1),
                };
                self.found.extend(self.decided(&slack, most, least));
            }
            _ => {}
        }
    }

    /// Returns where a comparison is decided; `None` if it does not differ between lanes, or in
    /// which iterations it is decided is not known.
    fn decided(&self, slack: &Expr, most: i64, least: i64) -> Option<Decided> {
        let is = |vars: &[Var], e: &Expr| e.as_var().is_some_and(|var| vars.contains(var));
        if !any_expr(slack, &mut |e| is(&self.lane_vars, e)) {
            return None;
        }
        let (low, high) = self.facts.bounds(slack, &self.inner)?;
        let is_small = |bound: &Expr| match self.facts.const_bounds(bound) {
            (Some(low), Some(high)) => -SMALL < low && high < SMALL,
            _ => false,
        };
        let known = |bound: &Expr| {
            let is_load = |e: &Expr| matches!(e.kind, ExprKind::Load { .. });
            !any_expr(bound, &mut |e| is_load(e) || is(&self.inner, e)) && is_small(bound)
        };
        (known(&low) && known(&high)).then_some(Decided { low, high, most, least })
    }

    /// Returns the sides of the first diagonal, where all comparisons with it are decided.
    fn diagonal(&self) -> Option<Diagonal> {
        let is_order = |of: &&Decided| of.least - of.most == 1;
        let mut orders = self.found.iter().filter(is_order).filter(|of| self.crosses_seldom(of));
        let mut side = orders.next()?.clone();
        for other in &self.found {
            for other in [other.clone(), other.reversed()] {
                let (low, high) = (
                    self.difference(&other.low, &side.low),
                    self.difference(&other.high, &side.high),
                );
                if let (Some(low), Some(high)) = (low, high) {
                    side.least = side.least.max(other.least - low);
                    side.most = side.most.min(other.most - high);
                }
            }
        }
        let holds = Expr::le(Expr::index(side.least), side.low);
        let fails = Expr::le(side.high, Expr::index(side.most));
        let [holds, fails] = [holds, fails].map(|cond| simplify_expr(&cond, self.facts));
        let open = |cond: &Expr| cond.as_int().is_none();
        (open(&holds) && open(&fails)).then_some(Diagonal { holds, fails })
    }

    /// Returns a small constant difference of two bounds.
    fn difference(&self, a: &Expr, b: &Expr) -> Option<i64> {
        let difference = simplify_expr(&Expr::sub(a.clone(), b.clone()), self.facts).as_int()?;
        i64::try_from(difference).ok().filter(|difference| difference.abs() <= MAX_DIFFERENCE)
    }

    /// Whether a comparison depends on a loop around the one that is searched, and is decided in
    /// most iterations of that.
    fn crosses_seldom(&self, Decided { low, high, .. }: &Decided) -> bool {
        let width = simplify_expr(&Expr::sub(high.clone(), low.clone()), self.facts).as_int();
        let Some((slope, rest)) = self.facts.affine(low, self.var) else { return false };
        let (Some(width), Some(rest)) = (width, self.facts.poly_expr(&rest)) else { return false };
        // The iterations that the diagonal crosses lie side by side.
        let crossed = (width + 1).saturating_mul(MIN_TILES);
        let is_long = |count: i128| slope.abs().saturating_mul(count) >= crossed;
        let seldom = self.extent.as_int().map_or(width < MAX_CROSSED * slope.abs(), is_long);
        let is_around = |e: &Expr| e.as_var().is_some_and(|var| self.around.contains(var));
        seldom && any_expr(&rest, &mut |e| is_around(e))
    }
}

impl Decided {
    /// Returns the comparison with its operands exchanged.
    fn reversed(&self) -> Decided {
        let negative = |bound: &Expr| Expr::sub(Expr::index(0), bound.clone());
        Decided {
            low: negative(&self.high),
            high: negative(&self.low),
            most: -self.least,
            least: -self.most,
        }
    }
}

/// Whether every store of a statement is at an index that contains a variable.
fn stores_at(stmt: &Stmt, var: &Var) -> bool {
    let mut all = match stmt {
        Stmt::Store { indices, .. } => indices.iter().any(|index| mentions(index, var)),
        _ => true,
    };
    for_each_stmt(stmt, &mut |inner| all = all && stores_at(inner, var));
    all
}

fn reads(expr: &Expr) -> bool {
    any_expr(expr, &mut |e| matches!(e.kind, ExprKind::Load { .. }))
}

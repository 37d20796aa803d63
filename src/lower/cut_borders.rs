//! Cut borders: loops around vectors are made in pieces, so that in the largest of them the choice
//! between a border and the inside is decided.
//!
//! Before: `for (y, 0, 66) { vectorized (x, 0, 66) { P[y, x] = if y < 1 || 65 <= y || x < 1 ||
//! 65 <= x then 0 else A[y - 1, x - 1] } }`
//! After: the first row; `for (y, 1, 64) { P[y, 0] = 0; vectorized (x, 1, 64) { P[y, x] =
//! A[y - 1, x - 1] }; P[y, 65] = 0 }`; the last row
//! A padding that is computed where it is read so costs the inside nothing. Vectorized loops are
//! cut themselves only around one store, where they are long: the inside must be worth the copies.
//! Needs: simplified conditions.  Ensures: nothing for later passes.  Breaks: nothing.

use crate::diag::Result;
use crate::ir::arith::{Facts, floor_div};
use crate::ir::copy::fresh_copy;
use crate::ir::simplify::{simplify_expr, simplify_kernel};
use crate::ir::visit::{
    for_each_child, for_each_expr, for_each_stmt, map_stmts, rewrite_exprs, substitute,
};
use crate::ir::{BinOp, DType, Expr, ExprKind, ForKind, Kernel, Stmt, UnOp, Var};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Iterations from which on a vectorized loop is cut: three vectors of the longest kind.
const LONG: i128 = 48;

/// The inside has at least this part of a loop's iterations.
const LEAST_PART: i128 = 3;

/// Stores that the copies of a nest may have, unrolled loops written out.
const MAX_STORES: i128 = 1024;

/// Nodes of the expressions of a nest; what has more is left alone.
const MAX_NODES: usize = 2000;

/// Cuts the loops around choices of vectors.
pub fn cut_borders(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let mut cutter = Cutter { facts, cut: false };
    let body = cutter.stmt(kernel.body, MAX_STORES);
    let kernel = Kernel { body, ..kernel };
    Ok(if cutter.cut { simplify_kernel(kernel) } else { kernel })
}

struct Cutter {
    facts: Facts,
    /// Whether a loop was cut.
    cut: bool,
}

/// A loop's head, its bounds constant.
struct Head {
    var: Var,
    min: i128,
    end: i128,
    kind: ForKind,
}

impl Cutter {
    /// The statement in pieces, with at most so many stores.
    fn stmt(&mut self, whole: Stmt, room: i128) -> Stmt {
        match whole {
            Stmt::For { var, min, extent, kind, body } => {
                let bounds = min.as_int().zip(extent.as_int());
                let head = bounds.map(|(first, extent)| {
                    let (var, kind) = (var.clone(), kind.clone());
                    Head { var, min: first, end: first + extent, kind }
                });
                let inside = head.as_ref().and_then(|head| self.inside(head, &body, room));
                if let (Some(head), Some(inside)) = (head, inside) {
                    return self.pieces(head, &body, inside, room);
                }
                self.facts.push();
                self.facts.bind(&var, &min, &extent);
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

    /// What is before the inside, the inside, what is after it.
    fn pieces(&mut self, head: Head, body: &Stmt, inside: (i128, i128), room: i128) -> Stmt {
        self.cut = true;
        let (first, end) = inside;
        let parts = [(head.min, first), (first, end), (end, head.end)];
        let parts: Vec<(i128, i128)> = parts.into_iter().filter(|(from, to)| from < to).collect();
        let room = room / parts.len() as i128;
        let parts = parts.into_iter().map(|(from, to)| {
            if to - from == 1 {
                let value = FxHashMap::from_iter([(head.var.clone(), bound(from))]);
                let part = self.simple(fresh_copy(body, &value));
                return self.stmt(part, room);
            }
            let var = Var::index(head.var.name());
            let free = FxHashMap::from_iter([(head.var.clone(), Expr::var(&var))]);
            let (min, extent) = (bound(from), bound(to - from));
            self.facts.push();
            self.facts.bind(&var, &min, &extent);
            let part = self.simple(fresh_copy(body, &free));
            let body = Box::new(self.stmt(part, room));
            self.facts.pop();
            Stmt::For { var, min, extent, kind: head.kind.clone(), body }
        });
        Stmt::Block(parts.collect())
    }

    /// Choices that this part of a loop decides go, and with them what else they depend on.
    fn simple(&self, part: Stmt) -> Stmt {
        rewrite_exprs(part, &mut |expr| simplify_expr(expr, &self.facts))
    }

    /// The iterations, not all of them, in which every choice that the loop has a part in is
    /// decided; `None` if the loop is not cut.
    fn inside(&mut self, head: &Head, body: &Stmt, room: i128) -> Option<(i128, i128)> {
        let lanes = match head.kind {
            ForKind::Serial => false,
            ForKind::Vectorized => {
                let copies = matches!(body, Stmt::Store { mask: None, .. });
                if !copies || head.end - head.min < LONG {
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
        let mut search = Search { facts, head, inner, lanes, nodes: MAX_NODES, inside: whole };
        search.facts.push();
        search.facts.bind(&head.var, &bound(head.min), &bound(head.end - head.min));
        search.stmt(body);
        search.facts.pop();
        let (first, end) = search.inside;
        let worth = (end - first) * LEAST_PART >= head.end - head.min;
        (search.nodes > 0 && worth && (first, end) != whole).then_some((first, end))
    }
}

fn bound(value: i128) -> Expr {
    Expr::index(i64::try_from(value).expect("a bound of a loop"))
}

/// The stores in a statement, unrolled loops written out.
fn count_stores(stmt: &Stmt) -> Option<i128> {
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
struct Search<'a> {
    facts: &'a mut Facts,
    head: &'a Head,
    /// The loops around the current statement, in the loop that is searched.
    inner: Vec<Var>,
    /// One of them, or that loop, is vectorized.
    lanes: bool,
    /// How many more nodes of expressions may be looked at.
    nodes: usize,
    inside: (i128, i128),
}

impl Search<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        if self.lanes {
            for_each_expr(stmt, &mut |expr| self.choices(expr));
        }
        self.facts.push();
        match stmt {
            Stmt::For { var, min, extent, kind, body } => {
                self.facts.bind(var, min, extent);
                let lanes = self.lanes;
                self.lanes |= *kind == ForKind::Vectorized;
                self.inner.push(var.clone());
                self.stmt(body);
                self.inner.pop();
                self.lanes = lanes;
            }
            Stmt::Let { var, value, body } => {
                self.facts.define(var, value);
                self.stmt(body);
            }
            other => for_each_stmt(other, &mut |inner| self.stmt(inner)),
        }
        self.facts.pop();
    }

    /// An expression that shares subterms can have exponentially many nodes.
    fn choices(&mut self, expr: &Expr) {
        self.nodes = self.nodes.saturating_sub(1);
        if self.nodes == 0 {
            return;
        }
        if let ExprKind::IfThenElse(cond, ..) = &expr.kind {
            self.comparisons(cond);
        }
        for_each_child(expr, &mut |child| self.choices(child));
    }

    fn comparisons(&mut self, cond: &Expr) {
        self.nodes = self.nodes.saturating_sub(1);
        match &cond.kind {
            _ if self.nodes == 0 => {}
            ExprKind::Binary(BinOp::And | BinOp::Or, ..) | ExprKind::Unary(UnOp::Not, _) => {
                for_each_child(cond, &mut |child| self.comparisons(child));
            }
            ExprKind::Binary(op @ (BinOp::Lt | BinOp::Le), a, b) if a.ty == DType::Index.into() => {
                let slack = Expr::sub(b.clone(), a.clone());
                let least = if *op == BinOp::Lt { 1 } else { 0 };
                self.decide(&Expr::sub(slack, Expr::index(least)));
            }
            _ => {}
        }
    }

    /// Keeps the larger part where this is at least 0, or is not, in all of the inner loops.
    fn decide(&mut self, slack: &Expr) {
        let inner: Vec<Var> = self.inner.clone();
        let Some((low, high)) = self.facts.bounds(slack, &inner) else { return };
        let (Some(low), Some(high)) = (self.affine(&low), self.affine(&high)) else { return };
        let holds = self.not_negative(low);
        let fails = self.not_negative((-high.0 - 1, -high.1));
        let length = |(from, to): (i128, i128)| to - from;
        let larger = if length(fails) > length(holds) { fails } else { holds };
        if length(larger) > 0 {
            let (from, to) = self.inside;
            let from = from.max(larger.0);
            self.inside = (from, to.min(larger.1).max(from));
        }
    }

    /// The value at 0, and what an iteration adds, of an index that depends on nothing else.
    fn affine(&self, expr: &Expr) -> Option<(i128, i128)> {
        let at = |value: Expr| {
            let at = substitute(expr, &mut |var| (*var == self.head.var).then(|| value.clone()));
            simplify_expr(&at, self.facts)
        };
        let start = at(Expr::index(0)).as_int()?;
        let next = at(Expr::add(Expr::var(&self.head.var), Expr::index(1)));
        let slope = simplify_expr(&Expr::sub(next, expr.clone()), self.facts).as_int()?;
        Some((start, slope))
    }

    /// The iterations in which `start + slope*v` is at least 0; empty ones end where they begin.
    fn not_negative(&self, (start, slope): (i128, i128)) -> (i128, i128) {
        let (mut from, mut to) = (self.head.min, self.head.end);
        match slope {
            0 if start < 0 => to = from,
            0 => {}
            1.. => from = from.max(-floor_div(start, slope)),
            _ => to = to.min(floor_div(start, -slope) + 1),
        }
        (from, to.max(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::print::print_stmt;
    use crate::ir::visit::walk_stmt;
    use crate::ir::{Buffer, DType, Scope};
    use std::collections::BTreeMap;

    /// `for y { vectorized x { P[y*width + x] = if COND then 0 else A[y*width + x] } }`, where the
    /// border is one element wide.
    fn copy(height: i64, width: i64, kind: ForKind) -> Stmt {
        let buffer = |name: &str| {
            let shape = vec![Expr::index(height * width)];
            Buffer::new(name, DType::Float32, shape, Scope::Global)
        };
        let (x, y) = (Var::index("x"), Var::index("y"));
        let at = Expr::add(Expr::mul(Expr::var(&y), Expr::index(width)), Expr::var(&x));
        let outside = [(&y, height), (&x, width)].map(|(var, extent)| {
            let before = Expr::lt(Expr::var(var), Expr::index(1));
            let last = Expr::binary(BinOp::Le, Expr::index(extent - 1), Expr::var(var));
            Expr::binary(BinOp::Or, before, last)
        });
        let [rows, columns] = outside;
        let border = Expr::binary(BinOp::Or, rows, columns);
        let zero = Expr::float(DType::Float32, 0.0);
        let value = Expr::if_then_else(border, zero, Expr::load(&buffer("A"), vec![at.clone()]));
        let store = Stmt::store(&buffer("P"), vec![at], value);
        let zero = || Expr::index(0);
        let inner = Stmt::For {
            var: x,
            min: zero(),
            extent: Expr::index(width),
            kind,
            body: Box::new(store),
        };
        Stmt::serial(y, Expr::index(height), inner)
    }

    /// Which element is stored, and whether it is the border's 0, for all iterations.
    fn stores(stmt: &Stmt, vars: &mut Vec<(Var, i64)>, found: &mut BTreeMap<i128, bool>) {
        match stmt {
            Stmt::For { var, min, extent, body, .. } => {
                let (min, extent) = (min.as_int().unwrap(), extent.as_int().unwrap());
                for value in min..min + extent {
                    vars.push((var.clone(), value as i64));
                    stores(body, vars, found);
                    vars.pop();
                }
            }
            Stmt::Block(stmts) => stmts.iter().for_each(|one| stores(one, vars, found)),
            Stmt::Store { indices, value, .. } => {
                let at = |expr: &Expr| {
                    let expr = crate::ir::visit::substitute(expr, &mut |var| {
                        let known = vars.iter().find(|(other, _)| other == var);
                        known.map(|(_, value)| Expr::index(*value))
                    });
                    simplify_expr(&expr, &Facts::new())
                };
                let index = at(&indices[0]).as_int().expect("constant");
                let border = at(value).as_float().is_some();
                assert!(found.insert(index, border).is_none(), "{index} is stored twice");
            }
            other => panic!("{other:?}"),
        }
    }

    fn cut(body: Stmt) -> Stmt {
        let kernel = Kernel::new("copy", Vec::new(), body);
        cut_borders(kernel, &Target::native()).expect("it never fails").body
    }

    fn count(stmt: &Stmt, is: fn(&Expr) -> bool) -> (usize, usize) {
        let (mut loops, mut found) = (0, 0);
        walk_stmt(
            stmt,
            &mut |one| loops += usize::from(matches!(one, Stmt::For { .. })),
            &mut |expr| found += usize::from(is(expr)),
        );
        (loops, found)
    }

    fn is_choice(expr: &Expr) -> bool {
        matches!(expr.kind, ExprKind::IfThenElse(..))
    }

    #[test]
    fn the_pieces_store_what_the_whole_did() {
        for (height, width) in [(66, 66), (3, 48), (2, 64), (5, 100)] {
            let whole = copy(height, width, ForKind::Vectorized);
            let (mut expected, mut actual) = (BTreeMap::new(), BTreeMap::new());
            stores(&whole, &mut Vec::new(), &mut expected);
            let pieces = cut(whole);
            stores(&pieces, &mut Vec::new(), &mut actual);
            assert_eq!(actual, expected, "{height} {width}");
            assert_eq!(count(&pieces, is_choice).1, 0, "{}", print_stmt(&pieces));
        }
    }

    #[test]
    fn short_vectors_are_not_cut_themselves() {
        let pieces = cut(copy(9, 47, ForKind::Vectorized));
        // The first row, the rows between, the last one.
        assert_eq!(count(&pieces, is_choice), (4, 1), "{}", print_stmt(&pieces));
    }

    #[test]
    fn loops_without_vectors_are_not_cut() {
        let whole = copy(9, 66, ForKind::Serial);
        assert_eq!(count(&cut(whole), is_choice), (2, 1));
    }

    /// Rows in tiles of 8, each the sum of three rows around it: the first and the last tile have
    /// a row outside.
    #[test]
    fn tiles_are_cut_where_all_their_rows_are_inside() {
        let [x, yo, yi, k] = ["x", "yo", "yi", "k"].map(Var::index);
        let buffer = |name: &str, rows: i64| {
            let shape = vec![Expr::index(rows * 16)];
            Buffer::new(name, DType::Float32, shape, Scope::Global)
        };
        let row = Expr::add(Expr::mul(Expr::var(&yo), Expr::index(8)), Expr::var(&yi));
        let read = Expr::add(row.clone(), Expr::var(&k));
        let before = Expr::lt(read.clone(), Expr::index(1));
        let last = Expr::binary(BinOp::Le, Expr::index(65), read.clone());
        let at = |row: Expr| vec![Expr::add(Expr::mul(row, Expr::index(16)), Expr::var(&x))];
        let inside = Expr::load(&buffer("A", 66), at(read));
        let outside = Expr::binary(BinOp::Or, before, last);
        let value = Expr::if_then_else(outside, Expr::float(DType::Float32, 0.0), inside);
        let store = Stmt::store(&buffer("P", 64), at(row), value);
        let nest = |var: Var, extent: i64, kind: ForKind, body: Stmt| Stmt::For {
            var,
            min: Expr::index(0),
            extent: Expr::index(extent),
            kind,
            body: Box::new(body),
        };
        let lanes = nest(x, 16, ForKind::Vectorized, store);
        let tile = nest(yi, 8, ForKind::Unrolled, nest(k, 3, ForKind::Unrolled, lanes));
        let pieces = cut(nest(yo, 8, ForKind::Serial, tile));
        let mut extents = Vec::new();
        let Stmt::Block(parts) = &pieces else { panic!("{}", print_stmt(&pieces)) };
        for part in parts {
            let choices = count(part, is_choice).1;
            let Stmt::For { extent, .. } = part else { panic!("{}", print_stmt(&pieces)) };
            extents.push((extent.as_int().unwrap(), choices));
        }
        // The tiles of a row outside begin with the loop over their rows.
        assert_eq!(extents, [(8, 1), (6, 0), (8, 1)], "{}", print_stmt(&pieces));
    }
}

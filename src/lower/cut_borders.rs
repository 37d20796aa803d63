//! Cut borders: a copy with a border is made in pieces, in each of which the choice between the
//! border and the inside is decided.
//!
//! Before: `for (y, 0, 66) { vectorized (x, 0, 66) { P[y, x] = if y < 1 || 65 <= y || x < 1 ||
//! 65 <= x then 0 else A[y - 1, x - 1] } }`
//! After: the first row; `for (y, 1, 64) { P[y, 0] = 0; vectorized (x, 1, 64) { P[y, x] =
//! A[y - 1, x - 1] }; P[y, 65] = 0 }`; the last row
//! Only nests of one store with long vectors: the inside must be worth the copies of the loop.
//! Needs: simplified conditions, constant extents.  Ensures: nothing for later passes.
//! Breaks: nothing.

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{for_each_child, map_stmts, rewrite_expr, rewrite_exprs};
use crate::ir::{BinOp, Expr, ExprKind, ForKind, Kernel, Stmt, Var};
use crate::target::Target;
use std::collections::{BTreeSet, HashMap};

/// Iterations from which on a vectorized loop is cut: three vectors of the longest kind.
const LONG: i128 = 48;

/// Pieces of one loop: a border, the inside, another border.
const MAX_PIECES: usize = 3;

/// Nodes of the expressions of a copy; more are no copy.
const MAX_NODES: usize = 500;

/// Cuts the loops of every copy with a border.
pub fn cut_borders(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let body = stmt(kernel.body);
    Ok(Kernel { body, ..kernel })
}

fn stmt(whole: Stmt) -> Stmt {
    match whole {
        Stmt::For { .. } if is_long_copy(&whole) => cut(whole),
        other => map_stmts(other, &mut stmt),
    }
}

/// Whether it is a nest of loops around one store, the innermost one vectorized and long.
fn is_long_copy(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::For { extent, kind: ForKind::Vectorized, body, .. } => {
            extent.as_int().is_some_and(|extent| extent >= LONG)
                && matches!(**body, Stmt::Store { mask: None, .. })
        }
        Stmt::For { kind: ForKind::Serial, body, .. } => is_long_copy(body),
        _ => false,
    }
}

/// The loop in pieces, and the loops inside of each in pieces again.
fn cut(whole: Stmt) -> Stmt {
    let Stmt::For { var, min, extent, kind, body } = whole else { return whole };
    let pieces = match (min.as_int(), extent.as_int()) {
        (Some(min), Some(extent)) => pieces(&var, &body, min, extent),
        _ => Vec::new(),
    };
    if pieces.len() < 2 || pieces.len() > MAX_PIECES {
        return Stmt::For { var, min, extent, kind, body: Box::new(cut(*body)) };
    }
    let index = |value: i128| Expr::index(i64::try_from(value).expect("a bound of a loop"));
    let parts = pieces.into_iter().map(|(from, to)| {
        if to - from == 1 {
            let value = HashMap::from([(var.clone(), index(from))]);
            return cut(simple(fresh_copy(&body, &value)));
        }
        let own = Var::index(var.name());
        let free = HashMap::from([(var.clone(), Expr::var(&own))]);
        let part = decide(fresh_copy(&body, &free), &own, from, to);
        let (min, extent) = (index(from), index(to - from));
        Stmt::For { var: own, min, extent, kind: kind.clone(), body: Box::new(cut(simple(part))) }
    });
    Stmt::Block(parts.collect())
}

/// The ranges between the values of the variable where a comparison changes.
fn pieces(var: &Var, body: &Stmt, min: i128, extent: i128) -> Vec<(i128, i128)> {
    let end = min + extent;
    let mut cuts = BTreeSet::from([min, end]);
    let mut budget = MAX_NODES;
    crate::ir::visit::walk_stmt(body, &mut |_| {}, &mut |expr| {
        turns(expr, var, &mut budget, &mut |at| {
            if (min + 1..end).contains(&at) {
                cuts.insert(at);
            }
        });
    });
    if budget == 0 {
        return Vec::new();
    }
    let cuts: Vec<i128> = cuts.into_iter().collect();
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Calls `f` with the turn of every comparison in the expression, as long as the budget lasts: an
/// expression that shares subterms can have exponentially many nodes.
fn turns(expr: &Expr, var: &Var, budget: &mut usize, f: &mut dyn FnMut(i128)) {
    *budget = budget.saturating_sub(1);
    if *budget == 0 {
        return;
    }
    if let Some((at, _)) = turn(expr, var) {
        f(at);
    }
    for_each_child(expr, &mut |child| turns(child, var, budget, f));
}

/// The first value of the variable where a comparison with a constant has its second result, and
/// that result.
fn turn(expr: &Expr, var: &Var) -> Option<(i128, bool)> {
    let ExprKind::Binary(op, a, b) = &expr.kind else { return None };
    let own = |e: &Expr| e.as_var() == Some(var);
    match op {
        BinOp::Lt if own(a) => Some((b.as_int()?, false)),
        BinOp::Le if own(a) => Some((b.as_int()? + 1, false)),
        BinOp::Lt if own(b) => Some((a.as_int()? + 1, true)),
        BinOp::Le if own(b) => Some((a.as_int()?, true)),
        _ => None,
    }
}

/// The statement with every comparison of the variable, which is in `from .. to`, decided.
fn decide(part: Stmt, var: &Var, from: i128, to: i128) -> Stmt {
    rewrite_exprs(part, &mut |expr| {
        rewrite_expr(expr, &mut |e| match turn(&e, var) {
            Some((at, second)) if at <= from => Expr::bool(second),
            Some((at, second)) if to <= at => Expr::bool(!second),
            _ => e,
        })
    })
}

/// Choices that are decided go.
fn simple(part: Stmt) -> Stmt {
    let facts = Facts::new();
    rewrite_exprs(part, &mut |expr| simplify_expr(expr, &facts))
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

    fn choices(stmt: &Stmt) -> usize {
        let mut count = 0;
        walk_stmt(stmt, &mut |_| {}, &mut |expr| {
            count += usize::from(matches!(expr.kind, ExprKind::IfThenElse(..)));
        });
        count
    }

    #[test]
    fn the_pieces_store_what_the_whole_did() {
        for (height, width) in [(66, 66), (3, 48), (2, 64), (5, 100)] {
            let whole = copy(height, width, ForKind::Vectorized);
            let (mut expected, mut actual) = (BTreeMap::new(), BTreeMap::new());
            stores(&whole, &mut Vec::new(), &mut expected);
            let pieces = stmt(whole);
            stores(&pieces, &mut Vec::new(), &mut actual);
            assert_eq!(actual, expected, "{height} {width}");
            assert_eq!(choices(&pieces), 0, "{}", print_stmt(&pieces));
        }
    }

    #[test]
    fn only_long_vectors_are_worth_it() {
        for (width, kind) in [(47, ForKind::Vectorized), (66, ForKind::Serial)] {
            let pieces = stmt(copy(9, width, kind));
            assert_eq!(choices(&pieces), 1, "{}", print_stmt(&pieces));
        }
    }
}

//! Tests of the pass: the pieces of loops and what they store.

use super::*;
use crate::ir::print::print_stmt;
use crate::ir::visit::walk_stmt;
use crate::ir::{Buffer, DType, Scope};
use std::collections::BTreeMap;

/// Returns `for y { vectorized x { P[y*width + x] = if COND then 0 else A[y*width + x] } }`,
/// where the border is one element wide.
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
    let inner =
        Stmt::For { var: x, min: zero(), extent: Expr::index(width), kind, body: Box::new(store) };
    Stmt::serial(y, Expr::index(height), inner)
}

/// Collects the elements that are stored, and whether each one is the border's 0.
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
fn pieces_store_the_same_elements_as_the_loop() {
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
fn declines_short_vectorized_loops() {
    let pieces = cut(copy(9, 47, ForKind::Vectorized));
    // The first row, the rows between, the last one.
    assert_eq!(count(&pieces, is_choice), (4, 1), "{}", print_stmt(&pieces));
}

#[test]
fn declines_loops_without_vectors() {
    let whole = copy(9, 66, ForKind::Serial);
    assert_eq!(count(&cut(whole), is_choice), (2, 1));
}

/// Rows in tiles of 8, each the sum of three rows around it: the first and the last tile have
/// a row outside.
#[test]
fn cuts_between_tiles_with_all_rows_inside_and_others() {
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
    // The tiles with a row outside are single, so they begin with the loop over their rows.
    assert_eq!(extents, [(8, 1), (6, 0), (8, 1)], "{}", print_stmt(&pieces));
}

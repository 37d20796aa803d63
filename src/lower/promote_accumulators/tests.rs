//! Which stores are promoted, and under which masks.

use super::*;
use crate::ir::print::print_stmt;
use crate::ir::{BinOp, DType, ExprKind, Type};

/// Returns `C[ramp(0, 1, 8)] = 0; for k { C[…] = C[…] + x }`, with these masks of the start
/// value, the read and the update; each gets the loop's variable.
fn sum(start: Option<Expr>, read: Masking, update: Masking) -> Stmt {
    let c = Buffer::new("C", DType::Float32, vec![Expr::index(8)], Scope::Global);
    let lanes = eight(DType::Index, ExprKind::Ramp(Expr::index(0), Expr::index(1)));
    let wide = |value: f64| {
        let scalar = Expr::float(DType::Float32, value);
        eight(DType::Float32, ExprKind::Broadcast(scalar))
    };
    let k = Var::index("k");
    let old = ExprKind::Load {
        buffer: c.clone(),
        indices: vec![lanes.clone()],
        mask: read.map(|mask| mask(&Expr::var(&k))),
    };
    let old = Expr::new(wide(0.0).ty, old);
    let store = |value, mask| Stmt::Store {
        buffer: c.clone(),
        indices: vec![lanes.clone()],
        value,
        mask,
        nontemporal: false,
    };
    let body = store(Expr::add(old, wide(1.0)), update.map(|mask| mask(&Expr::var(&k))));
    let nest = Stmt::serial(k, Expr::index(4), body);
    promoter().promote(Stmt::Block(vec![store(wide(0.0), start), nest]))
}

fn promoter() -> Promoter<'static> {
    let known = RefCell::new(Known::new(&[]));
    let target = Box::leak(Box::new(Target::native()));
    Promoter { target, loads: true, selects: true, known }
}

fn eight(dtype: DType, kind: ExprKind) -> Expr {
    Expr::new(Type { dtype, lanes: 8 }, kind)
}

type Masking = Option<fn(&Expr) -> Expr>;

/// Returns a mask of the lanes below `limit`.
fn below(limit: Expr) -> Expr {
    let lanes = eight(DType::Index, ExprKind::Ramp(Expr::index(0), Expr::index(1)));
    Expr::binary(BinOp::Lt, lanes, eight(DType::Index, ExprKind::Broadcast(limit)))
}

fn five(_: &Expr) -> Expr {
    below(Expr::index(5))
}

#[test]
fn an_invariant_mask_moves_to_the_final_store() {
    let text = print_stmt(&sum(Some(five(&Expr::index(0))), Some(five), Some(five)));
    assert_eq!(text.matches("C[").count(), 1, "{text}");
    let back = text.lines().rev().find(|line| line.contains("C[")).expect("a store");
    assert!(back.contains("C.acc[") && back.contains("5"), "{text}");
    assert_eq!(text.matches("< x8(5)").count(), 1, "{text}");
}

#[test]
fn masked_updates_select_lanes() {
    let moving = |k: &Expr| below(k.clone());
    for mask in [five as fn(&Expr) -> Expr, moving] {
        let text = print_stmt(&sum(None, Some(mask), Some(mask)));
        assert_eq!(text.matches("C[").count(), 1, "{text}");
        assert!(text.contains("C.acc[ramp(0, 1, 8)] = select("), "{text}");
    }
}

#[test]
fn promotes_sums_of_unrolled_loops() {
    let c = Buffer::new("C", DType::Float32, vec![Expr::index(8)], Scope::Global);
    let at = |index: i64| vec![Expr::index(index)];
    let store = |index: i64, value: Expr| Stmt::Store {
        buffer: c.clone(),
        indices: at(index),
        value,
        mask: None,
        nontemporal: false,
    };
    let one = || Expr::float(DType::Float32, 1.0);
    let add = |index: i64| store(index, Expr::add(Expr::load(&c, at(index)), one()));
    let run = |stmts: Vec<Stmt>| print_stmt(&promoter().promote(Stmt::Block(stmts)));
    let text = run(vec![store(2, one()), add(2), add(2), store(3, one()), add(3), add(3)]);
    assert_eq!(text.matches("C[").count(), 2, "{text}");
    assert!(text.contains("C[2] = C.acc[0]") && text.contains("C[3] = C.acc[0]"), "{text}");
    // Elements that are stored once gain nothing.
    assert!(!run(vec![store(2, one()), store(3, one())]).contains("acc"));
    // Elements that are read first are loaded once and stored once.
    let text = run(vec![add(2), add(3), add(2), add(3)]);
    assert_eq!(text.matches("C[").count(), 4, "{text}");
    assert!(text.contains("C.acc[0] = C[2]") && text.contains("C[2] = C.acc[0]"), "{text}");
    // A load of another element may be of the same place.
    let other = store(3, Expr::add(Expr::load(&c, at(4)), one()));
    assert!(!run(vec![add(2), other, add(2)]).contains("acc"));
    let text = print_stmt(
        &Promoter { loads: false, ..promoter() }.promote(Stmt::Block(vec![add(2), add(2)])),
    );
    assert!(!text.contains("acc"), "the threads of a GPU may share elements: {text}");
}

#[test]
fn declines_masks_that_differ() {
    let four = |_: &Expr| below(Expr::index(4));
    let moving = |k: &Expr| below(k.clone());
    let start = || Some(five(&Expr::index(0)));
    for stmt in [
        // Some lanes of the register would need the previous values in memory.
        sum(start(), Some(five), Some(four)),
        sum(start(), Some(four), Some(five)),
        sum(start(), None, Some(five)),
        sum(start(), Some(five), None),
        sum(start(), Some(moving), Some(moving)),
    ] {
        let text = print_stmt(&stmt);
        assert!(!text.contains("C.acc"), "{text}");
    }
}

/// Returns `if least <= n { C[ramp(0, 1, 8)] = 0; C[ramp(n, 1, 8)] = 0; for k { both + 1 } }`, with
/// the mask of the lanes below `n` if `masked`.
fn two_rows(least: i64, masked: bool) -> String {
    let n = Expr::var(&Var::index("n"));
    let c = Buffer::new("C", DType::Float32, vec![Expr::index(64)], Scope::Global);
    let row = |first: Expr| eight(DType::Index, ExprKind::Ramp(first, Expr::index(1)));
    let mask = masked.then(|| below(n.clone()));
    let wide = |value: f64| {
        let scalar = Expr::float(DType::Float32, value);
        eight(DType::Float32, ExprKind::Broadcast(scalar))
    };
    let store = |first: &Expr, value: Expr| Stmt::Store {
        buffer: c.clone(),
        indices: vec![row(first.clone())],
        value,
        mask: mask.clone(),
        nontemporal: false,
    };
    let load = |first: &Expr| {
        let (buffer, mask) = (c.clone(), mask.clone());
        let indices = vec![row(first.clone())];
        eight(DType::Float32, ExprKind::Load { buffer, indices, mask })
    };
    let rows = [Expr::index(0), n.clone()];
    let mut stmts: Vec<Stmt> = rows.iter().map(|first| store(first, wide(0.0))).collect();
    let updates = rows.iter().map(|first| store(first, Expr::add(load(first), wide(1.0))));
    let body = Stmt::Block(updates.collect());
    stmts.push(Stmt::serial(Var::index("k"), Expr::index(4), body));
    let cond = Expr::le(Expr::index(least), n.clone());
    let then = Box::new(Stmt::Block(stmts));
    print_stmt(&promoter().promote(Stmt::If { cond, then, otherwise: None }))
}

#[test]
fn rows_of_a_run_time_length_are_apart_if_the_length_says_so() {
    let text = two_rows(8, false);
    assert_eq!(text.matches("C[").count(), 2, "{text}");
    // Some lanes of the first row are elements of the second one.
    assert!(!two_rows(7, false).contains("acc"));
    // Only the lanes of a row are stored.
    let text = two_rows(1, true);
    assert_eq!(text.matches("C[").count(), 2, "{text}");
    // Rows without an element may lie in front of each other.
    assert!(!two_rows(-9, false).contains("acc"));
}

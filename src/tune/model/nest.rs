//! Properties of nests: their stores, the loops that are not unrolled, invariant accesses.

use crate::ir::visit::{
    NodeSet, for_each_child, for_each_expr, for_each_load, for_each_stmt, walk_stmt,
};
use crate::ir::warp::is_warp_product;
use crate::ir::{Buffer, Expr, ExprKind, ForKind, Stmt, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// Flattens nested blocks.
pub(super) fn flatten<'s>(stmts: &'s [Stmt], flat: &mut Vec<&'s Stmt>) {
    for stmt in stmts {
        match stmt {
            Stmt::Block(inner) => flatten(inner, flat),
            other => flat.push(other),
        }
    }
}

/// Whether a statement consists of stores only after unrolling.
pub(super) fn is_stores(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Store { .. } => true,
        Stmt::For { kind: ForKind::Unrolled, body, extent, .. } => {
            extent.as_int().is_some() && is_stores(body)
        }
        Stmt::Block(stmts) => stmts.iter().all(is_stores),
        _ => false,
    }
}

/// Whether a statement has loops after unrolling.
pub(super) fn has_loops(stmt: &Stmt) -> bool {
    if is_warp_product(stmt) {
        return false;
    }
    if let Stmt::For { kind, extent, .. } = stmt
        && (*kind != ForKind::Unrolled || extent.as_int().is_none())
    {
        return true;
    }
    let mut found = false;
    for_each_stmt(stmt, &mut |inner| found = found || has_loops(inner));
    found
}

/// Returns the variables of loops that are not unrolled, and of `let`s.
pub(super) fn serial_vars(stmt: &Stmt) -> FxHashSet<Var> {
    let mut vars = FxHashSet::default();
    collect_serial(stmt, &mut vars);
    vars
}

fn collect_serial(stmt: &Stmt, vars: &mut FxHashSet<Var>) {
    match stmt {
        Stmt::For { var, kind, extent, .. }
            if *kind != ForKind::Unrolled || extent.as_int().is_none() =>
        {
            vars.insert(var.clone());
        }
        Stmt::Let { var, .. } => {
            vars.insert(var.clone());
        }
        _ if is_warp_product(stmt) => return,
        _ => {}
    }
    for_each_stmt(stmt, &mut |inner| collect_serial(inner, vars));
}

/// The constant extents of all loops of a nest, multiplied.
pub(super) fn loop_iterations(nest: &Stmt) -> f64 {
    let mut iterations = 1.0;
    let mut count = |stmt: &Stmt| {
        if let Stmt::For { extent, .. } = stmt {
            iterations *= extent.as_int().unwrap_or(1) as f64;
        }
    };
    walk_stmt(nest, &mut count, &mut |_| {});
    iterations
}

/// Returns how many elements stores with an index write after unrolling.
pub(super) fn copies_of(stores: &[&Stmt], index: &Expr) -> f64 {
    let mut vars = FxHashSet::default();
    mentioned(index, &mut |var| {
        vars.insert(var.clone());
    });
    let mut copies = 1.0;
    for store in stores {
        walk_stmt(
            store,
            &mut |stmt| {
                if let Stmt::For { var, extent, .. } = stmt
                    && vars.contains(var)
                {
                    copies *= extent.as_int().unwrap_or(1) as f64;
                }
            },
            &mut |_| {},
        );
    }
    copies
}

/// Whether a statement accesses a buffer, and only at indices that depend on none of the variables.
pub(super) fn rests(stmt: &Stmt, buffer: &Buffer, vars: &FxHashSet<Var>) -> bool {
    let (mut found, mut fine) = (false, true);
    each_access(stmt, &mut |accessed, index| {
        if accessed == buffer {
            found = true;
            mentioned(index, &mut |var| fine &= !vars.contains(var));
        }
    });
    found && fine
}

/// Whether the indices of a buffer depend on no outer variable.
pub(super) fn is_constant_only(
    stmt: &Stmt,
    buffer: &Buffer,
    outside: &FxHashMap<Var, usize>,
) -> bool {
    let mut fine = true;
    each_access(stmt, &mut |accessed, index| {
        if accessed == buffer {
            mentioned(index, &mut |var| fine &= !outside.contains_key(var));
        }
    });
    fine
}

/// Whether a store to a buffer is conditional.
pub(super) fn chooses(stmt: &Stmt, buffer: &Buffer) -> bool {
    let mut found = false;
    match stmt {
        Stmt::If { .. } => each_store(stmt, &mut |stored| found |= stored == buffer),
        other => for_each_stmt(other, &mut |inner| found = found || chooses(inner, buffer)),
    }
    found
}

/// Calls `f` with every buffer that is stored to.
pub(super) fn each_store(stmt: &Stmt, f: &mut dyn FnMut(&Buffer)) {
    if let Stmt::Store { buffer, .. } = stmt {
        f(buffer);
    }
    for_each_stmt(stmt, &mut |inner| each_store(inner, f));
}

/// Calls `f` with every access and its index.
fn each_access(stmt: &Stmt, f: &mut dyn FnMut(&Buffer, &Expr)) {
    let mut seen = NodeSet::default();
    walk_stmt(
        stmt,
        &mut |stmt| {
            if let Stmt::Store { buffer, indices, .. } = stmt {
                f(buffer, &indices[0]);
            }
            for_each_expr(stmt, &mut |expr| {
                for_each_load(expr, &mut seen, &mut |buffer, indices, _| f(buffer, &indices[0]));
            });
        },
        &mut |_| {},
    );
}

/// Calls `f` with the variables of an index.
pub(super) fn mentioned(expr: &Expr, f: &mut dyn FnMut(&Var)) {
    if let ExprKind::Var(var) = &expr.kind {
        f(var);
    }
    for_each_child(expr, &mut |child| mentioned(child, f));
}

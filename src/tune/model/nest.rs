//! Properties of nests: their stores, the loops that are not unrolled, invariant accesses.

use crate::ir::tile::is_whole_product;
use crate::ir::visit::{
    NodeSet, for_each_expr, for_each_load, for_each_stmt, walk_expr, walk_stmt,
};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Stmt, Type, Var};
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
    if is_whole_product(stmt) {
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
        _ if is_whole_product(stmt) => return,
        _ => {}
    }
    for_each_stmt(stmt, &mut |inner| collect_serial(inner, vars));
}

/// A nest that is an instruction with lanes: sums of several products in each.
pub(super) struct DotProduct<'s> {
    /// What the nest stores before, such as start values.
    pub(super) starts: Vec<&'s Stmt>,
    /// The products in a lane.
    pub(super) terms: f64,
    /// A store with the same accesses and one multiply-add: `c = fma(x16(a), b, c)`, where `b` is
    /// all that the lanes read.
    pub(super) instruction: Stmt,
}

/// Returns a nest as `lower::match_intrinsic::in_lanes` and `vectorize_loops` leave it, a store for
/// each product, as one instruction. `offset` is the constant part of an index.
pub(super) fn dot_of<'s>(
    nest: &'s Stmt,
    offset: &mut dyn FnMut(&Expr) -> f64,
) -> Option<DotProduct<'s>> {
    let mut stmts = Vec::new();
    flatten(std::slice::from_ref(nest), &mut stmts);
    let count = stmts.iter().rev().take_while(|stmt| product_of(stmt).is_some()).count();
    let (starts, terms) = stmts.split_at(stmts.len() - count);
    let products = terms.iter().filter_map(|stmt| product_of(stmt));
    let with_offsets = products
        .filter_map(|(store, shared, each)| Some((store, shared, each, first_lane(each)?)))
        .map(|product| (offset(product.3), product));
    let (_, (store, shared, each, first)) = with_offsets.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let Stmt::Store { buffer, indices, .. } = store else { return None };
    let ExprKind::Load { buffer: vector, .. } = &each.kind else { return None };
    let lanes = indices[0].ty.lanes;
    let all = ExprKind::Ramp(first.clone(), Expr::index(1));
    let all = Expr::new(Type { dtype: DType::Index, lanes: lanes * count as u32 }, all);
    let ty = Type { dtype: buffer.dtype, lanes };
    let args = [
        Expr::new(ty, ExprKind::Broadcast(shared.clone())),
        Expr::new(ty, ExprKind::Bitcast(Expr::load(vector, vec![all]))),
        Expr::load(buffer, indices.clone()),
    ];
    let value = Expr::call(Intrinsic::Fma, args.to_vec());
    let (buffer, indices) = (buffer.clone(), indices.clone());
    let instruction = Stmt::Store { buffer, indices, value, mask: None, nontemporal: false };
    Some(DotProduct { starts: starts.to_vec(), terms: count as f64, instruction })
}

/// Matches `c[…] = c[…] + a*b`: the store, the load of the factor that all lanes share, and the
/// load of the one that differs.
fn product_of(stmt: &Stmt) -> Option<(&Stmt, &Expr, &Expr)> {
    let Stmt::Store { value, mask: None, .. } = stmt else { return None };
    let (x, y) = match &value.kind {
        ExprKind::Call(Intrinsic::Fma, args) => (&args[0], &args[1]),
        ExprKind::Binary(BinOp::Add, p, q) => match (&p.kind, &q.kind) {
            (_, ExprKind::Binary(BinOp::Mul, x, y)) | (ExprKind::Binary(BinOp::Mul, x, y), _) => {
                (x, y)
            }
            _ => return None,
        },
        _ => return None,
    };
    match (load_of(x)?, load_of(y)?) {
        (a, b) if a.ty.lanes == 1 && first_lane(b).is_some() => Some((stmt, a, b)),
        (b, a) if a.ty.lanes == 1 && first_lane(b).is_some() => Some((stmt, a, b)),
        _ => None,
    }
}

/// Returns the load that a factor converts.
fn load_of(factor: &Expr) -> Option<&Expr> {
    match &factor.kind {
        ExprKind::Cast(inner) | ExprKind::Broadcast(inner) => load_of(inner),
        ExprKind::Load { mask: None, .. } => Some(factor),
        _ => None,
    }
}

/// Returns the index of the first lane of a vector load at regular distances.
fn first_lane(load: &Expr) -> Option<&Expr> {
    let ExprKind::Load { indices, .. } = &load.kind else { return None };
    match &indices[0].kind {
        ExprKind::Ramp(first, _) => Some(first),
        _ => None,
    }
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
pub(super) fn has_fixed_indices(stmt: &Stmt, buffer: &Buffer, vars: &FxHashSet<Var>) -> bool {
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

/// Whether a store to a buffer is conditional, or scatters the lanes of a vector.
pub(super) fn chooses_elements(stmt: &Stmt, buffer: &Buffer) -> bool {
    let mut found = false;
    match stmt {
        Stmt::Store { buffer: stored, indices, .. } if stored == buffer => {
            if let ExprKind::Ramp(_, stride) = &indices[0].kind {
                found = stride.as_int() != Some(1);
            }
        }
        Stmt::If { .. } => each_store(stmt, &mut |stored| found |= stored == buffer),
        other => {
            for_each_stmt(other, &mut |inner| found = found || chooses_elements(inner, buffer))
        }
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
    walk_expr(expr, &mut |node| {
        if let ExprKind::Var(var) = &node.kind {
            f(var);
        }
    });
}

//! The strided loads of a statement, and what replaces them.

use crate::ir::arith::{Facts, Poly};
use crate::ir::equal::equal;
use crate::ir::limits::TILE_PIECE_BYTES;
use crate::ir::visit::{for_each_child, for_each_expr, map_children, map_exprs};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Stmt, Var};
use crate::target::SimdIsa;
use rustc_hash::{FxHashMap, FxHashSet};

/// A load of elements that stand apart by equal steps.
#[derive(Clone)]
pub(super) struct Column {
    pub(super) load: Expr,
    pub(super) buffer: Buffer,
    pub(super) base: Expr,
    pub(super) stride: Expr,
    pub(super) lanes: u32,
    /// How many of the lanes are read: those that a mask lets through.
    pub(super) rows: Option<Expr>,
}

/// What columns side by side have in common.
pub(super) type Key = (Buffer, u32, Poly, Poly, Option<Poly>);

impl Column {
    /// Elements of a row that one instruction reads.
    pub(super) fn piece(&self) -> u32 {
        (TILE_PIECE_BYTES / self.buffer.dtype.bytes()) as u32
    }

    /// What it shares with its neighbours, and its place among them.
    pub(super) fn key(&self, facts: &Facts) -> (Key, i128) {
        let mut base = (*facts.poly(&self.base)).clone();
        let at = std::mem::take(&mut base.constant);
        let stride = (*facts.poly(&self.stride)).clone();
        let rows = self.rows.as_ref().map(|rows| (*facts.poly(rows)).clone());
        ((self.buffer.clone(), self.lanes, stride, base, rows), at)
    }

    /// Whether the next value of a variable reads the next column.
    pub(super) fn moves_with(&self, var: &Var, facts: &Facts) -> bool {
        let atom = facts.poly(&Expr::var(var)).atoms()[0];
        let base = facts.poly(&self.base).split(atom);
        let still = |expr: &Expr| !facts.poly(expr).contains(atom);
        base.is_some_and(|(factor, rest)| {
            factor.as_constant() == Some(1) && !mentions(facts, &rest, var)
        }) && still(&self.stride)
            && self.rows.as_ref().is_none_or(still)
    }
}

/// Whether a variable is in an atom of a sum.
fn mentions(facts: &Facts, poly: &Poly, var: &Var) -> bool {
    facts.poly_expr(poly).is_none_or(|expr| any(&expr, &|e| e.as_var() == Some(var)))
}

/// Whether something in an expression is as wanted; shared parts are looked at once.
pub(super) fn any(expr: &Expr, wanted: &dyn Fn(&Expr) -> bool) -> bool {
    fn search(expr: &Expr, wanted: &dyn Fn(&Expr) -> bool, seen: &mut FxHashSet<usize>) -> bool {
        if !seen.insert(expr.id()) {
            return false;
        }
        let mut found = wanted(expr);
        for_each_child(expr, &mut |child| found = found || search(child, wanted, seen));
        found
    }
    search(expr, wanted, &mut FxHashSet::default())
}

/// The columns that a store reads for certain.
pub(super) fn columns_of(stmt: &Stmt, isa: SimdIsa) -> Vec<Column> {
    let Stmt::Store { value, mask, .. } = stmt else { return Vec::new() };
    let mask = mask.as_ref();
    let mut search = Search { isa, mask, seen: FxHashSet::default(), found: Vec::new() };
    search.expr(value);
    search.found
}

struct Search<'s> {
    isa: SimdIsa,
    /// That of the store.
    mask: Option<&'s Expr>,
    seen: FxHashSet<usize>,
    found: Vec<Column>,
}

impl Search<'_> {
    fn expr(&mut self, expr: &Expr) {
        if !self.seen.insert(expr.id()) {
            return;
        }
        match &expr.kind {
            ExprKind::Load { buffer, indices, mask } => {
                match self.column(expr, buffer, &indices[0], mask.as_ref()) {
                    Some(column) => self.found.push(column),
                    None => for_each_child(expr, &mut |child| self.expr(child)),
                }
            }
            // The others may not be evaluated, or depend on what is bound here.
            ExprKind::IfThenElse(first, ..)
            | ExprKind::Binary(BinOp::And | BinOp::Or, first, _)
            | ExprKind::Let(_, first, _) => self.expr(first),
            _ => for_each_child(expr, &mut |child| self.expr(child)),
        }
    }

    fn column(
        &self,
        load: &Expr,
        buffer: &Buffer,
        index: &Expr,
        mask: Option<&Expr>,
    ) -> Option<Column> {
        let ExprKind::Ramp(base, stride) = &index.kind else { return None };
        let (lanes, bytes) = (index.ty.lanes, buffer.dtype.bytes());
        let in_registers = buffer.scope == crate::ir::Scope::Register;
        if matches!(stride.as_int(), Some(0 | 1)) || in_registers || buffer.dtype == DType::Bool {
            return None;
        }
        if u64::from(lanes) * bytes < TILE_PIECE_BYTES / 2 || reads(base) || reads(stride) {
            return None;
        }
        let rows = match (mask, self.mask) {
            (None, None) => None,
            // What the lanes turned off hold is not stored.
            (Some(mask), Some(stored)) if equal(mask, stored) => {
                // AVX2 masks no elements of 1 and 2 bytes.
                let masks = self.isa.has_masks() || bytes >= 4;
                Some(count_of(mask).filter(|_| masks)?)
            }
            _ => return None,
        };
        let (buffer, base, stride) = (buffer.clone(), base.clone(), stride.clone());
        Some(Column { load: load.clone(), buffer, base, stride, lanes, rows })
    }
}

/// How many lanes a mask lets through, if these are the first ones.
fn count_of(mask: &Expr) -> Option<Expr> {
    let ExprKind::Binary(BinOp::Lt, lane, bound) = &mask.kind else { return None };
    let (ExprKind::Ramp(first, step), ExprKind::Broadcast(bound)) = (&lane.kind, &bound.kind)
    else {
        return None;
    };
    let consecutive = step.as_int() == Some(1) && first.ty.dtype == DType::Index;
    consecutive.then(|| Expr::sub(bound.clone(), first.clone()))
}

pub(super) fn reads(expr: &Expr) -> bool {
    any(expr, &|e| matches!(e.kind, ExprKind::Load { .. }))
}

/// Nodes of a statement's expressions, shared ones counted once.
pub(super) fn count_nodes(stmt: &Stmt) -> usize {
    fn count(expr: &Expr, seen: &mut FxHashSet<usize>) {
        if seen.insert(expr.id()) {
            for_each_child(expr, &mut |child| count(child, seen));
        }
    }
    let mut seen = FxHashSet::default();
    for_each_expr(stmt, &mut |expr| count(expr, &mut seen));
    seen.len()
}

/// Puts other loads in the place of some.
#[derive(Default)]
pub(super) struct Rewriter {
    /// By [`Expr::id`], with the expression, so that its address stays its own.
    done: FxHashMap<usize, (Expr, Expr)>,
}

impl Rewriter {
    pub(super) fn replace(&mut self, from: &Expr, to: Expr) {
        self.done.insert(from.id(), (from.clone(), to));
    }

    pub(super) fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Store { .. } => map_exprs(stmt, &mut |expr| self.expr(expr)),
            other => other,
        }
    }

    fn expr(&mut self, expr: &Expr) -> Expr {
        if let Some((_, done)) = self.done.get(&expr.id()) {
            return done.clone();
        }
        let result = map_children(expr, &mut |child| self.expr(child));
        self.done.insert(expr.id(), (expr.clone(), result.clone()));
        result
    }
}

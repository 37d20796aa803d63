//! The strided loads of a statement, and their replacement.

use crate::ir::arith::{Facts, Poly};
use crate::ir::equal::equal;
use crate::ir::limits::ROW_CHUNK_BYTES;
use crate::ir::visit::{
    Memo, NodeSet, for_each_child, for_each_expr, map_children, map_exprs, mentions, reads_memory,
    walk_nodes,
};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Stmt, Type, Var};
use crate::simd_ops::{LaneOffsets, lane_offsets, masks_elements};
use crate::target::SimdIsa;

/// A load of elements at a constant or run-time stride.
#[derive(Clone)]
pub(super) struct Column {
    pub(super) load: Expr,
    pub(super) buffer: Buffer,
    pub(super) base: Expr,
    pub(super) stride: Expr,
    pub(super) lanes: u32,
    /// The number of lanes that the mask enables.
    pub(super) rows: Option<Expr>,
}

/// The properties that neighbouring columns share.
pub(super) type Key = (Buffer, u32, Poly, Poly, Option<Poly>);

impl Column {
    /// Returns the elements of a row chunk.
    pub(super) fn chunk(&self) -> u32 {
        (ROW_CHUNK_BYTES / self.buffer.dtype.bytes()) as u32
    }

    /// Returns the properties that it shares with its neighbours, and its position among them.
    pub(super) fn key(&self, facts: &Facts) -> (Key, i128) {
        let mut base = (*facts.poly(&self.base)).clone();
        let at = std::mem::take(&mut base.constant);
        let stride = (*facts.poly(&self.stride)).clone();
        let rows = self.rows.as_ref().map(|rows| (*facts.poly(rows)).clone());
        ((self.buffer.clone(), self.lanes, stride, base, rows), at)
    }

    /// Whether the next value of a variable reads the next column, or the one before it.
    pub(super) fn moves_with(&self, var: &Var, facts: &Facts) -> bool {
        let atom = facts.poly(&Expr::var(var)).atoms()[0];
        let base = facts.poly(&self.base).split(atom);
        let still = |expr: &Expr| !facts.poly(expr).contains(atom);
        base.is_some_and(|(factor, rest)| {
            matches!(factor.as_constant(), Some(1 | -1)) && !poly_mentions(facts, &rest, var)
        }) && still(&self.stride)
            && self.rows.as_ref().is_none_or(still)
    }
}

/// Whether a variable is in an atom of a sum.
fn poly_mentions(facts: &Facts, poly: &Poly, var: &Var) -> bool {
    facts.poly_expr(poly).is_none_or(|expr| mentions(&expr, var))
}

/// Returns the columns that a store always reads.
pub(super) fn columns_of(stmt: &Stmt, isa: SimdIsa) -> Vec<Column> {
    let Stmt::Store { value, mask, .. } = stmt else { return Vec::new() };
    let mask = mask.as_ref();
    let mut search = ColumnSearch { isa, mask, seen: NodeSet::default(), found: Vec::new() };
    search.expr(value);
    search.found
}

struct ColumnSearch<'s> {
    isa: SimdIsa,
    /// The mask of the store.
    mask: Option<&'s Expr>,
    seen: NodeSet,
    found: Vec<Column>,
}

impl ColumnSearch<'_> {
    fn expr(&mut self, expr: &Expr) {
        if !self.seen.insert(expr) {
            return;
        }
        match &expr.kind {
            ExprKind::Load { buffer, indices, mask } => {
                match self.column(expr, buffer, &indices[0], mask.as_ref()) {
                    Some(column) => self.found.push(column),
                    None => for_each_child(expr, &mut |child| self.expr(child)),
                }
            }
            // The other operands may not be evaluated, or depend on the variable.
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
        if u64::from(lanes) * bytes < ROW_CHUNK_BYTES / 2
            || reads_memory(base)
            || reads_memory(stride)
        {
            return None;
        }
        // Elements that are so near that each vector is a shuffle of one or two loads.
        let piece = lanes.min((u64::from(self.isa.bytes()) / bytes) as u32);
        let ty = Type { lanes: piece, ..index.ty };
        let vector = Expr::new(ty, ExprKind::Ramp(base.clone(), stride.clone()));
        let is_shuffled = |known: LaneOffsets| known.load(bytes, self.isa).is_some();
        if mask.is_none() && self.mask.is_none() && lane_offsets(&vector).is_some_and(is_shuffled) {
            return None;
        }
        let rows = match (mask, self.mask) {
            (None, None) => None,
            // The lanes that the mask turns off are not stored.
            (Some(mask), Some(stored)) if equal(mask, stored) => {
                Some(count_of(mask).filter(|_| masks_elements(bytes, self.isa))?)
            }
            _ => return None,
        };
        let (buffer, base, stride) = (buffer.clone(), base.clone(), stride.clone());
        Some(Column { load: load.clone(), buffer, base, stride, lanes, rows })
    }
}

/// Returns the number of lanes that a mask enables, if they are the first ones.
fn count_of(mask: &Expr) -> Option<Expr> {
    let ExprKind::Binary(BinOp::Lt, lane, bound) = &mask.kind else { return None };
    let (ExprKind::Ramp(first, step), ExprKind::Broadcast(bound)) = (&lane.kind, &bound.kind)
    else {
        return None;
    };
    let consecutive = step.as_int() == Some(1) && first.ty.dtype == DType::Index;
    consecutive.then(|| Expr::sub(bound.clone(), first.clone()))
}

/// Returns the number of nodes of a statement's expressions, with shared nodes counted once.
pub(super) fn count_nodes(stmt: &Stmt) -> usize {
    let mut seen = NodeSet::default();
    for_each_expr(stmt, &mut |expr| walk_nodes(expr, &mut seen, &mut |_| {}));
    seen.count()
}

/// Replaces loads in statements.
#[derive(Default)]
pub(super) struct Rewriter {
    done: Memo<Expr>,
}

impl Rewriter {
    pub(super) fn replace(&mut self, from: &Expr, to: Expr) {
        self.done.insert(from, to);
    }

    pub(super) fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Store { .. } => map_exprs(stmt, &mut |expr| self.expr(expr)),
            other => other,
        }
    }

    fn expr(&mut self, expr: &Expr) -> Expr {
        if let Some(done) = self.done.get(expr) {
            return done.clone();
        }
        let result = map_children(expr, &mut |child| self.expr(child));
        self.done.insert(expr, result.clone());
        result
    }
}

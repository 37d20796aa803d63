//! Products of integers of which one instruction adds several terms in each lane (`tensorize`).
//!
//! `C[x, y] = sum((A[x, k] as int32) * (B[k, y] as int32))` with `uint8` and `int8` factors, or
//! with `int16` ones: the lanes of a tile are vectors of 16 sums, the innermost reduction loop has
//! the terms of the instruction, and a packed copy of `B` has the terms of a column, then the
//! columns of a vector, next to each other.

use super::super::facts::StageFacts;
use super::super::plan::Planner;
use super::super::view::{Access, Stride};
use crate::ir::equal::equal;
use crate::ir::{BinOp, DType, Expr, ExprKind};

/// Sums of an instruction.
pub(super) const SUMS: i64 = 16;

/// How a reduction becomes an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dot {
    /// The intrinsic of `lib/intrinsics.te`.
    pub(super) intrinsic: &'static str,
    /// The terms that it adds to each sum.
    pub(super) terms: i64,
    /// The reduction axis of the instruction's terms.
    pub(super) axis: usize,
    /// The read of the factor that differs between lanes.
    pub(super) load: usize,
    /// The dimension of that factor that the reduction axis indexes.
    pub(super) dim: usize,
}

/// Returns how a reduction with lanes along an axis becomes an instruction of the target.
pub(super) fn dot(planner: &Planner, at: usize, lane: usize) -> Option<Dot> {
    let facts = &planner.facts;
    let view = &facts.views[at];
    let reduction = view.reduction.as_ref()?;
    let is_sum = reduction.combiner.is_sum() && reduction.condition.is_none();
    let [term] = &reduction.terms[..] else { return None };
    if !is_sum || view.tuple || view.dtype != DType::Int32 || view.data[lane].size() < SUMS {
        return None;
    }
    let ExprKind::Binary(BinOp::Mul, x, y) = &term.kind else { return None };
    let (x, y) = (read(facts, at, x)?, read(facts, at, y)?);
    let moves = |load: usize| view.loads[load].mentions(&view.data[lane].var);
    let (shared, each) = match (moves(x), moves(y)) {
        (false, true) => (x, y),
        (true, false) => (y, x),
        _ => return None,
    };
    let dtype = |load: usize| view.loads[load].buffer.dtype;
    let (intrinsic, terms) = match (dtype(shared), dtype(each)) {
        (DType::Uint8, DType::Int8) => ("dot4_u8_i8", 4),
        (DType::Int8, DType::Uint8) => ("dot4_i8_u8", 4),
        (DType::Int16, DType::Int16) => ("dot2_i16", 2),
        _ => return None,
    };
    if !planner.target.has_intrinsic(intrinsic) {
        return None;
    }
    facts.packed_dim(at, &view.loads[each], lane)?;
    let found = (0..view.reduce.len()).rev().find_map(|axis| {
        let var = &view.reduce[axis].var;
        let near =
            view.reduce[axis].size() >= terms && view.loads[shared].stride(var) == Stride::By(1);
        let dim = if near { alone(&view.loads[each], var)? } else { return None };
        Some((axis, dim))
    });
    found.map(|(axis, dim)| Dot { intrinsic, terms, axis, load: each, dim })
}

/// Returns the read that a factor converts to `int32`.
fn read(facts: &StageFacts, at: usize, factor: &Expr) -> Option<usize> {
    let ExprKind::Cast(inner) = &factor.kind else { return None };
    let ExprKind::Load { buffer, indices, mask: None } = &inner.kind else { return None };
    let same = |load: &Access| {
        load.buffer == *buffer && load.indices.iter().zip(indices).all(|(a, b)| equal(a, b))
    };
    facts.views[at].loads.iter().position(same)
}

/// Returns the dimension of a tensor that a variable indexes, if it is the whole index there and
/// occurs in no other.
fn alone(load: &Access, var: &crate::ir::Var) -> Option<usize> {
    let dim = load.indices.iter().position(|index| index.as_var() == Some(var))?;
    let step = |index: &Expr| super::super::place::step(index, var);
    let mut others = load.indices.iter().enumerate().filter(|(other, _)| *other != dim);
    others.all(|(_, index)| step(index) == Some(0)).then_some(dim)
}

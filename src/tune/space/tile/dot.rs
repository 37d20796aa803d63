//! Products of which one instruction adds several terms (`tensorize`).
//!
//! `C[x, y] = sum((A[x, k] as int32) * (B[k, y] as int32))` with `uint8` and `int8` factors, with
//! `int16` ones, or as `float32` with `bfloat16` ones. A packed copy of `B` has the terms of a
//! column, then the columns of a vector, next to each other.
//!
//! - *In lanes*: the lanes of a tile are vectors of 16 sums, and the innermost reduction loop has
//!   the terms of the instruction.
//! - *In tile registers* (AMX): a register has up to 16 rows of 16 sums, and the two innermost
//!   reduction loops have up to 16 groups of terms.

use super::super::facts::StageFacts;
use super::super::plan::Planner;
use super::super::view::{Access, AxisView, Stride};
use crate::ir::equal::equal;
use crate::ir::tile::MAX_TILE_SIDE;
use crate::ir::{BinOp, DType, Expr, ExprKind};

/// Sums of an instruction in lanes, or of a row of a tile register.
pub(super) const SUMS: i64 = 16;
/// Cycles of a product of tiles with few rows; others take one for each row. As in the cost model.
const LEAST_CYCLES: i64 = 9;
/// Cycles of a row beside tiles that are whole, which is computed in lanes.
const CYCLES_OF_ROW: i64 = 12;
/// Fewer rows, or groups of terms, are computed in lanes.
pub(in super::super) const FEWEST: i64 = 4;

/// How a reduction becomes an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dot {
    /// The intrinsic of `lib/intrinsics.te`.
    pub(super) intrinsic: &'static str,
    /// The terms that it adds to each sum, or those of a group.
    pub(super) terms: i64,
    /// The reduction axis of the instruction's terms.
    pub(super) axis: usize,
    /// The read of the factor that differs between lanes.
    pub(super) load: usize,
    /// The dimension of that factor that the reduction axis indexes.
    pub(super) dim: usize,
    /// The sides of tile registers; none in lanes.
    pub(super) tile: Option<Sides>,
}

/// The sides of the tile registers of a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sides {
    /// Rows of the sums; 0 before their axis is chosen.
    pub(super) rows: i64,
    /// Groups of terms.
    pub(super) groups: i64,
}

impl Dot {
    /// Returns the terms that the loops inside of the named one have.
    pub(super) fn step(&self) -> i64 {
        self.terms * self.tile.map_or(1, |sides| sides.groups)
    }
}

/// Returns how a reduction with lanes along an axis becomes an instruction of the target: in tile
/// registers, and in lanes.
pub(super) fn dots(planner: &Planner, at: usize, lane: usize) -> [Option<Dot>; 2] {
    let facts = &planner.facts;
    let view = &facts.views[at];
    let Some(reduction) = view.reduction.as_ref() else { return [None; 2] };
    let is_sum = reduction.combiner.is_sum() && reduction.condition.is_none();
    let [term] = &reduction.terms[..] else { return [None; 2] };
    if !is_sum || view.tuple || view.data[lane].size() < SUMS {
        return [None; 2];
    }
    let ExprKind::Binary(BinOp::Mul, x, y) = &term.kind else { return [None; 2] };
    let (Some(x), Some(y)) = (read(facts, at, x), read(facts, at, y)) else { return [None; 2] };
    let moves = |load: usize| view.loads[load].mentions(&view.data[lane].var);
    let (shared, each) = match (moves(x), moves(y)) {
        (false, true) => (x, y),
        (true, false) => (y, x),
        _ => return [None; 2],
    };
    let dtype = |load: usize| view.loads[load].buffer.dtype;
    use DType::{BFloat16, Float32, Int8, Int16, Int32, Uint8};
    let (tile, in_lanes, terms) = match (dtype(shared), dtype(each), view.dtype) {
        (Uint8, Int8, Int32) => ("tile_u8_i8", "dot4_u8_i8", 4),
        (Int8, Uint8, Int32) => ("tile_i8_u8", "dot4_i8_u8", 4),
        (Int8, Int8, Int32) => ("tile_i8_i8", "", 4),
        (Uint8, Uint8, Int32) => ("tile_u8_u8", "", 4),
        (Int16, Int16, Int32) => ("", "dot2_i16", 2),
        (BFloat16, BFloat16, Float32) if facts.order_may_change(at) => {
            ("tile_bf16", "dot2_bf16", 2)
        }
        _ => return [None; 2],
    };
    if facts.packed_dim(at, &view.loads[each], lane).is_none() {
        return [None; 2];
    }
    let found = (0..view.reduce.len()).rev().find_map(|axis| {
        let var = &view.reduce[axis].var;
        let near =
            view.reduce[axis].size() >= terms && view.loads[shared].stride(var) == Stride::By(1);
        let dim = if near { alone(&view.loads[each], var)? } else { return None };
        Some((axis, dim))
    });
    let Some((axis, dim)) = found else { return [None; 2] };
    let dot = |intrinsic: &'static str, tile| {
        let has = planner.target.has_intrinsic(intrinsic);
        has.then_some(Dot { intrinsic, terms, axis, load: each, dim, tile })
    };
    let has_rows = row_axes(planner, at, lane, each).next().is_some();
    let groups = groups(&view.reduce[axis], terms).filter(|_| has_rows);
    [groups.and_then(|groups| dot(tile, Some(Sides { rows: 0, groups }))), dot(in_lanes, None)]
}

/// Returns the axes of the rows of tile registers: the other factor has no part in them.
pub(super) fn row_axes<'p>(
    planner: &'p Planner,
    at: usize,
    lane: usize,
    each: usize,
) -> impl Iterator<Item = usize> + use<'p> {
    let view = &planner.facts.views[at];
    let is_row = move |axis: &usize| {
        let data = &view.data[*axis];
        *axis != lane && data.size() >= FEWEST && !view.loads[each].mentions(&data.var)
    };
    (view.steps..view.data.len()).filter(is_row)
}

/// Returns the rows of the tile registers along an axis, and the cycles for all of the axis.
pub(super) fn rows_of_tile(axis: &AxisView) -> (i64, i64) {
    let Some(extent) = axis.extent else { return (MAX_TILE_SIDE, MAX_TILE_SIDE) };
    let cycles = |rows: i64| extent / rows * rows.max(LEAST_CYCLES) + extent % rows * CYCLES_OF_ROW;
    let sizes = FEWEST..=MAX_TILE_SIDE.min(extent);
    let best = sizes.rev().min_by_key(|rows| cycles(*rows)).expect("the axis is a row axis");
    (best, cycles(best))
}

/// Returns the groups of terms of a product: whole parts of the axis, if these are not too short;
/// none if the axis is.
fn groups(axis: &AxisView, terms: i64) -> Option<i64> {
    let Some(extent) = axis.extent else { return Some(MAX_TILE_SIDE) };
    let all = extent / terms;
    if all < FEWEST {
        return None;
    }
    // Products take the same time with fewer groups; the rest is computed in lanes.
    let cycles = |groups: i64| {
        all / groups * MAX_TILE_SIDE + (extent - all / groups * groups * terms) * CYCLES_OF_ROW
    };
    (FEWEST..=MAX_TILE_SIDE.min(all)).rev().min_by_key(|groups| cycles(*groups))
}

/// Returns the read that a factor converts.
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

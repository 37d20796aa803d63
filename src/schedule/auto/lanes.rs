//! Rules for stages without reuse: `lanes` and `transpose`.

use super::plan::Planner;
use super::view::{Access, Stride, View};

/// A loop over lanes runs through so many vectors at once, so that their latencies overlap.
const VECTORS: i64 = 4;

/// Bytes of a line of the cache.
const LINE: i64 = 64;

/// The last axis, or another one along which more reads are contiguous, in lanes.
pub(super) fn lanes(planner: &mut Planner, at: usize) -> bool {
    let lanes = i64::from(planner.target.lanes(planner.views[at].dtype));
    let axis = (lanes > 1).then(|| lane_axis(planner, at)).flatten();
    let data = planner.plans[at].leaves.iter().filter(|leaf| !leaf.reduce).count();
    let Some(axis) = axis else {
        planner.parallelize(at, data);
        return true;
    };
    let view = &planner.views[at];
    let joined = joined_axes(planner, at, axis, VECTORS * lanes);
    let name = &planner.plans[at].leaves[axis].name;
    let var = &view.data[planner.plans[at].leaves[axis].axes[0]].var;
    let near = |load: &Access| matches!(load.stride(var), Stride::Zero | Stride::By(1));
    let place = match view.loads.iter().all(near) {
        true => "in memory",
        false => "in the result, if not in all that is read",
    };
    let own = if view.reduce.is_empty() { "" } else { ", and each lane has its own reduction" };
    let why = format!("`{name}` is contiguous {place}{own}");
    planner.text.rule("lanes", &why);
    let (axis, data) = (axis + 1 - joined, data + 1 - joined);
    if joined > 1 {
        planner.fuse(at, axis, joined);
    }
    let extent = planner.plans[at].leaves[axis].extent;
    let factor = lane_count(lanes, extent);
    let whole = extent == Some(factor);
    if !whole {
        planner.split(at, axis, factor);
    }
    let inner = if whole { axis } else { axis + 1 };
    // The loops over terms stand outside of the lanes.
    let count = planner.plans[at].leaves.len();
    let mut order: Vec<usize> = (0..count).filter(|leaf| *leaf != inner).collect();
    order.push(inner);
    planner.reorder(at, &order);
    planner.annotate(at, count - 1, "vectorize");
    // The loop over lanes is no loop for threads.
    planner.parallelize(at, data - usize::from(whole));
    true
}

/// How many of the last loops go through memory as one: while they are short, those around the
/// lanes join them.
fn joined_axes(planner: &Planner, at: usize, axis: usize, enough: i64) -> usize {
    let (view, leaves) = (&planner.views[at], &planner.plans[at].leaves);
    let mut joined = 1;
    let mut size = leaves[axis].extent.unwrap_or(i64::MAX);
    if planner.plans[at].anchor.is_some() || axis + 1 != view.data.len() {
        return joined;
    }
    while size < 2 * enough && joined <= axis {
        let (outer, inner) = (axis - joined, axis + 1 - joined);
        let (Some(rows), Some(columns)) = (leaves[outer].extent, leaves[inner].extent) else {
            break;
        };
        let as_one = view.loads.iter().all(|load| {
            let of = |axis: usize| load.stride(&view.data[axis].var);
            match (of(outer), of(inner)) {
                (Stride::Zero, Stride::Zero) => true,
                (Stride::By(outer), Stride::By(inner)) => outer == inner.saturating_mul(columns),
                _ => false,
            }
        });
        if !as_one {
            break;
        }
        size = size.saturating_mul(rows);
        joined += 1;
    }
    joined
}

/// The lanes of one loop: whole vectors, up to [`VECTORS`] of them.
fn lane_count(lanes: i64, extent: Option<i64>) -> i64 {
    match extent {
        None => lanes * VECTORS,
        Some(extent) if extent >= lanes * VECTORS => lanes * VECTORS,
        Some(extent) => extent,
    }
}

/// The loop whose iterations become lanes.
fn lane_axis(planner: &Planner, at: usize) -> Option<usize> {
    let view = &planner.views[at];
    let plan = &planner.plans[at];
    let last = view.data.len().checked_sub(1)?;
    let mut best: Option<(i64, usize)> = None;
    for axis in 0..=last {
        let Some(leaf) = plan.leaf_of(axis) else { continue };
        // Less than two lanes are none.
        if plan.leaves[leaf].extent.is_some_and(|extent| extent < 2) {
            continue;
        }
        let store = if stores_along(view, axis) { 3 } else { -3 };
        let score = view.loads.iter().map(|load| match load.stride(&view.data[axis].var) {
            Stride::Zero => 1,
            Stride::By(1) => 2,
            Stride::By(step) if step.abs() <= 4 => 0,
            _ => -2,
        });
        let score = store + score.sum::<i64>();
        if score > 0 && best.is_none_or(|(old, _)| score >= old) {
            best = Some((score, leaf));
        }
    }
    best.map(|(_, leaf)| leaf)
}

/// Whether neighbours along an axis are neighbours in the result.
fn stores_along(view: &View, axis: usize) -> bool {
    view.data[axis + 1..].iter().all(|inner| inner.extent == Some(1))
}

/// What is read along one axis and written along another goes in tiles, each a transposition in
/// registers.
pub(super) fn transpose(planner: &mut Planner, at: usize) -> bool {
    let view = &planner.views[at];
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let Some(column) = view.data.len().checked_sub(1) else { return false };
    if lanes == 1 || view.reduction.is_some() || planner.plans[at].anchor.is_some() {
        return false;
    }
    let far = |load: &&Access| match load.stride(&view.data[column].var) {
        Stride::Far => true,
        Stride::By(step) => step.abs() >= lanes,
        Stride::Zero => false,
    };
    let Some(load) = view.loads.iter().find(far) else { return false };
    let contiguous = |axis: &usize| load.stride(&view.data[*axis].var) == Stride::By(1);
    let Some(row) = (0..column).find(contiguous) else { return false };
    // Where tiles are transposed in registers, they take whole lines of the cache.
    let rows = match planner.target.vector_bytes {
        32.. => lanes.max(LINE / view.dtype.bytes() as i64),
        _ => lanes,
    };
    let fits = |axis: usize, least| view.data[axis].extent.is_none_or(|extent| extent >= least);
    if !fits(row, lanes) || !fits(column, lanes) {
        return false;
    }
    let rows = if fits(row, rows) { rows } else { lanes };
    let (row_name, column_name) = (&view.data[row].name, &view.data[column].name);
    let why = format!(
        "`{}` is read along `{row_name}` and written along `{column_name}`",
        load.buffer.name
    );
    planner.text.rule("transpose", &why);
    // The column comes after the row, so the first split does not move it.
    planner.split(at, column, lanes);
    planner.split(at, row, rows);
    let count = planner.plans[at].leaves.len();
    let inner = [row + 1, count - 1];
    let mut order: Vec<usize> = (0..count).filter(|leaf| !inner.contains(leaf)).collect();
    order.extend(inner);
    planner.reorder(at, &order);
    planner.annotate(at, count - 2, "unroll");
    planner.annotate(at, count - 1, "vectorize");
    planner.parallelize(at, count - 2);
    true
}

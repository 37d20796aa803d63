//! Rules for stages without reuse: `lanes` and `transpose`.

use super::Fit;
use super::facts::stores_along;
use super::place::step;
use super::plan::{Annotation, Planner};
use super::rows::chunks;
use super::tile::{MAX_DEFAULT_UNROLLED_VECTORS, MAX_UNROLLED_VECTORS, MAX_WINDOW, terms};
use super::view::{Access, StageView, Stride, lcm};
use crate::ir::limits::max_promoted_lanes;

/// Vectors per iteration of a vectorized loop, to overlap their latencies.
const USUAL_VECTORS: i64 = 4;
/// Vectors per iteration for run-time extents.
const UNKNOWN_VECTORS: i64 = 1;
/// The most vectors that one iteration may compute, of the longest elements: `legalize_vectors`
/// writes no more of them out.
const MOST_VECTORS: i64 = 16;
/// The extent of a last axis of channels. Their indices have short periods in the fused loop.
const MAX_CHANNELS: i64 = 4;
/// Smaller results in bytes stay in a cache.
const MIN_NONTEMPORAL_BYTES: i64 = 1 << 20;
/// The part of the last cache for a tensor between kernels: others share that cache. On a Granite
/// Rapids, GPT-2 is 10 % faster if tensors of 2 MB are not written to memory directly, and UNet is
/// 4 % slower if those of 16 MB are not.
const CACHE_OF_NETWORKS: i64 = 4;
/// Elements per piece of the only loop of an elementwise stage, for threads.
const PIECE_ELEMENTS: [i64; 3] = [1 << 12, 1 << 14, 1 << 16];

pub(super) fn lanes_fits(planner: &Planner, _: usize) -> Fit {
    if planner.target.is_gpu() { Fit::No } else { Fit::Best }
}

/// Vectorizes the last axis, or another one along which more reads are contiguous.
pub(super) fn lanes(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let axes = if lanes > 1 { lane_axes(planner, at) } else { Vec::new() };
    let data = planner.plans[at].leaves.iter().filter(|leaf| !leaf.reduce).count();
    let Some(axis) = choose_axis(planner, at, &axes) else {
        chunks(planner, at);
        planner.parallelize(at, data);
        planner.plans[at].open = planner.plans[at].outer();
        return;
    };
    let leaf = planner.plans[at].leaf_of(axis).expect("it is not split yet");
    let name = planner.plans[at].leaves[leaf].name.clone();
    let near = |load: &Access| {
        matches!(load.stride_inside(&view.data[axis].var), Stride::Zero | Stride::By(1))
    };
    let place = match view.loads.iter().all(near) {
        true => "in memory",
        false => "in the result, if not in all that is read",
    };
    let own = if view.reduce.is_empty() { "" } else { ", and each lane has its own reduction" };
    planner.text.rule("lanes", &format!("`{name}` is contiguous {place}{own}"));
    let joined = choose_joined(planner, at, leaf, USUAL_VECTORS * lanes);
    let first = if joined == 1 { choose_outermost(planner, at, axis) } else { None };
    let (leaf, data) = (leaf + 1 - joined, data + 1 - joined);
    planner.fuse(at, leaf, joined);
    let extent = planner.plans[at].leaves[leaf].extent;
    let clamped = |load: &Access| {
        load.stride(&view.data[axis].var) != load.stride_inside(&view.data[axis].var)
    };
    let borders = view.loads.iter().any(clamped);
    let period =
        if joined == 1 { view.data[axis].period } else { row_of_joined(view, axis, joined) };
    let factor = choose_vectors(planner, at, (lanes, period), extent, borders);
    let leaf = pieces(planner, at, leaf, factor);
    let data = data + usize::from(planner.plans[at].leaves[leaf].inner);
    let whole = extent == Some(factor);
    let inner = match whole {
        true => planner.plans[at].leaves[leaf].name.clone(),
        false => planner.split(at, leaf, factor).1,
    };
    // Reduction loops are outside of the vectorized loop.
    let mut order = planner.names(at);
    order.retain(|name| *name != inner && Some(name) != first.as_ref());
    order.splice(0..0, first);
    order.push(inner);
    planner.reorder(at, &order);
    planner.annotate(at, order.len() - 1, Annotation::Vectorize);
    choose_unroll(planner, at, factor);
    // The vectorized loop is not parallel.
    let before = planner.plans[at].leaves.len();
    chunks(planner, at);
    let more = planner.plans[at].leaves.len() - before;
    planner.parallelize(at, data + more - usize::from(whole));
    planner.plans[at].open = planner.plans[at].outer();
}

/// Chooses the axis to vectorize, of axes with scores, or none, where lanes may cost more than they
/// save: if no score is positive, if elements are gathered, and for rows that begin and end
/// anywhere, which have few iterations in common. The default is none if no score is positive and
/// for rows with two bounds.
fn choose_axis(planner: &mut Planner, at: usize, axes: &[(usize, i64)]) -> Option<usize> {
    let best = axes.iter().map(|(_, score)| *score).max()?;
    let usual = axes.iter().rposition(|(_, score)| *score == best)?;
    let view = &planner.facts.views[at];
    let ragged = view.ragged_bounds();
    let var = &view.data[axes[usual].0].var;
    let gathers = view.loads.iter().any(|load| load.stride_inside(var) == Stride::Far);
    let none = usize::from(best <= 0 || ragged > 0 || gathers);
    let names = axes.iter().map(|(axis, _)| view.data[*axis].name.clone());
    let names = std::iter::repeat_n("none".to_string(), none).chain(names).collect();
    let stage = planner.plans[at].name.clone();
    let usual = if best <= 0 || ragged > 1 { 0 } else { usual + none };
    let chosen = planner.chooser.index(&stage, "lanes", names, usual);
    chosen.checked_sub(none).map(|chosen| axes[chosen].0)
}

/// Chooses whether the terms of a window are written out, each a vector or a few. Loops of two or
/// three iterations cost more than their terms.
fn choose_unroll(planner: &mut Planner, at: usize, width: i64) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let Some(terms) = terms(&facts, at).filter(|terms| (2..=MAX_WINDOW).contains(terms)) else {
        return;
    };
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let vectors = terms * ((width + lanes - 1) / lanes);
    if vectors > MAX_UNROLLED_VECTORS {
        return;
    }
    let stage = planner.plans[at].name.clone();
    let usual = vectors <= MAX_DEFAULT_UNROLLED_VECTORS;
    if planner.chooser.whether(&stage, "unroll terms", usual) {
        for leaf in 0..planner.plans[at].leaves.len() {
            let leaves = &planner.plans[at].leaves;
            if leaves[leaf].reduce && leaves[leaf].extent.is_some_and(|extent| extent > 1) {
                planner.annotate(at, leaf, Annotation::Unroll);
            }
        }
    }
}

/// Chooses nontemporal stores for a large output, which is not read soon.
pub(super) fn stores(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let plan = &planner.plans[at];
    let known = view.data.iter().all(|axis| axis.extent.is_some());
    let bytes = view.elements().saturating_mul(view.dtype.bytes() as i64);
    let wide = planner.target.simd().is_some();
    let once = view.reduction.is_none() || plan.copies;
    let lanes = plan.leaves.last().is_some_and(|leaf| leaf.flat);
    if !wide || !once || !lanes || !view.output || plan.anchor.is_some() {
        return;
    }
    if (known && bytes < MIN_NONTEMPORAL_BYTES) || facts.readers(at).next().is_some() {
        return;
    }
    // The next kernel of a network finds it in a cache.
    let last = planner.target.processor.caches.last().map_or(0, |cache| cache.bytes());
    if facts.part_of_network && (!known || bytes < last / CACHE_OF_NETWORKS) {
        return;
    }
    let stage = plan.name.clone();
    if planner.chooser.is_second(&stage, "stores", ["cached", "streamed"], false) {
        planner
            .text
            .rule("stores", "the tensor is larger than a cache, so it is not read again soon");
        planner.text.push(format!("{stage}.store_nontemporal()"));
    }
}

/// Chooses the vector length: whole vectors, or all of a short loop. With `borders`, the first and
/// the last iteration clamp indices, so there must be others. Lanes that divide indices with this
/// period read from the same places in each iteration if the length is a multiple of the period.
fn choose_vectors(
    planner: &mut Planner,
    at: usize,
    (lanes, period): (i64, i64),
    extent: Option<i64>,
    borders: bool,
) -> i64 {
    // A run-time extent may be short, and most lanes of its last step masked.
    let most = extent.unwrap_or(UNKNOWN_VECTORS * lanes);
    // Longer sums are updated in memory.
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let target = planner.target;
    let in_registers = match view.reduce.is_empty() {
        true => i64::MAX,
        false => {
            i64::from(max_promoted_lanes(target.vector_bytes, target.simd().is_some(), view.dtype))
                .max(lanes)
        }
    };
    let most = most.min(in_registers);
    let longest =
        (lanes * MOST_VECTORS * view.dtype.bytes() as i64 / view.widest as i64).max(lanes);
    let fits = |count: &i64| count * lanes <= most.min(longest);
    let mut sizes: Vec<i64> =
        [1, 2, 4, 8].into_iter().filter(fits).map(|count| count * lanes).collect();
    let usual = match extent {
        Some(extent) if extent < lanes * USUAL_VECTORS => extent.min(most),
        Some(_) => most.min(lanes * USUAL_VECTORS).min(longest),
        None => most,
    };
    // A whole row has no tail, and `cut_borders` cuts a copy with a border at its rows.
    let row = extent.filter(|extent| *extent <= most.min(longest));
    sizes.extend(row.into_iter().chain([usual]));
    sizes.sort_unstable();
    sizes.dedup();
    let two =
        |size: i64| borders && extent.is_some_and(|extent| size < extent && extent <= 2 * size);
    sizes.retain(|size| !two(*size));
    // All sizes that registers hold leave two iterations with borders.
    if sizes.is_empty() {
        sizes.extend(extent.or(Some(usual)));
    }
    let repeats = Some(lcm(lanes, period))
        .filter(|size| *size > lanes && *size <= in_registers.min(longest))
        .filter(|size| extent.is_none_or(|extent| *size <= extent));
    sizes.extend(repeats);
    let usual = repeats.unwrap_or(usual);
    let usual = if sizes.contains(&usual) { usual } else { *sizes.last().expect("one size") };
    let stage = planner.plans[at].name.clone();
    planner.chooser.pick(&stage, "width", &sizes, &usual)
}

/// Chooses whether the only loop is split into pieces for threads. Returns the loop to vectorize.
fn pieces(planner: &mut Planner, at: usize, leaf: usize, factor: i64) -> usize {
    let plan = &planner.plans[at];
    let size = plan.leaves[leaf].size();
    let known = plan.leaves[leaf].extent.is_some();
    if plan.leaves.len() > 1 || plan.anchor.is_some() || planner.threads == 1 {
        return leaf;
    }
    let fits = |piece: &i64| (!known || size >= 2 * piece) && piece % factor == 0;
    let mut sizes = vec![0];
    sizes.extend(PIECE_ELEMENTS.into_iter().filter(fits));
    let stage = plan.name.clone();
    let piece = planner.chooser.pick(&stage, "piece", &sizes, &0);
    if piece == 0 {
        return leaf;
    }
    planner.split(at, leaf, piece);
    leaf + 1
}

/// Chooses how many of the last loops, which are contiguous together, are fused; by default short
/// ones.
fn choose_joined(planner: &mut Planner, at: usize, axis: usize, enough: i64) -> usize {
    let facts = planner.facts.clone();
    let (view, leaves) = (&facts.views[at], &planner.plans[at].leaves);
    let mut joined = 1;
    let mut usual = 1;
    let mut size = leaves[axis].extent.unwrap_or(i64::MAX);
    // The loops of the axes after the steps of a recurrence.
    let data = &view.data[view.steps..];
    if planner.plans[at].anchor.is_some() || axis + 1 != data.len() {
        return joined;
    }
    while joined <= axis {
        let (outer, inner) = (axis - joined, axis + 1 - joined);
        // The fused loop divides by the extent of the inner one only.
        let (rows, Some(columns)) = (leaves[outer].extent, leaves[inner].extent) else { break };
        let as_one = view.loads.iter().all(|load| {
            let strides = [outer, inner].map(|axis| load.stride_inside(&data[axis].var));
            let channels =
                joined == 1 && columns <= MAX_CHANNELS && !strides.contains(&Stride::Far);
            channels || is_contiguous(strides, columns)
        });
        if !as_one {
            break;
        }
        joined += 1;
        if size < 2 * enough {
            usual = joined;
        }
        size = size.saturating_mul(rows.unwrap_or(i64::MAX));
    }
    let stage = planner.plans[at].name.clone();
    let counts: Vec<usize> = (1..=joined).collect();
    planner.chooser.pick(&stage, "fused", &counts, &usual)
}

/// Whether a load is at one stride in the fused loop of two with these strides.
fn is_contiguous(strides: [Stride; 2], columns: i64) -> bool {
    match strides {
        [Stride::Zero, Stride::Zero] => true,
        [Stride::By(outer), Stride::By(inner)] => outer == inner.saturating_mul(columns),
        _ => false,
    }
}

/// Returns the elements of a row of the last axis but one that are fused, if an index of that axis
/// is clamped, or the number of channels, if a load differs between them: the fused loop divides by
/// their number. 1 if it does not divide.
fn row_of_joined(view: &StageView, axis: usize, joined: usize) -> i64 {
    let columns = view.data[axis].size();
    let differs = |load: &Access| {
        let strides = [axis - 1, axis].map(|axis| load.stride_inside(&view.data[axis].var));
        !is_contiguous(strides, columns)
    };
    let channels = if view.loads.iter().any(differs) { columns } else { 1 };
    let outer = axis + 1 - joined..axis;
    let clamped = |at: &usize| {
        let var = &view.data[*at].var;
        view.loads.iter().any(|load| load.stride(var) != load.stride_inside(var))
    };
    let inner = outer.filter(clamped).map(|at| at + 1..axis + 1);
    let rows = inner.map(|axes| {
        view.data[axes].iter().fold(1i64, |n, axis| n.saturating_mul(axis.size().max(1)))
    });
    rows.fold(channels, lcm)
}

/// Chooses whether the loop along the reader's parallel axis is outermost, so that a thread reads
/// mostly data that it wrote itself. Returns the loop.
fn choose_outermost(planner: &mut Planner, at: usize, lane: usize) -> Option<String> {
    let axis = shared_out(planner, at).filter(|axis| *axis > 0 && *axis != lane)?;
    let plan = &planner.plans[at];
    let (first, name) = (plan.leaves[0].name.clone(), plan.leaves[axis].name.clone());
    let stage = plan.name.clone();
    let chosen = planner.chooser.pick(&stage, "outermost", &[first.clone(), name.clone()], &first);
    (chosen == name).then_some(name)
}

/// Returns the axis of a stage at the root that its reader's parallel loop indexes.
fn shared_out(planner: &Planner, at: usize) -> Option<usize> {
    let facts = &planner.facts;
    let reader = facts.readers(at).next()?;
    let (plan, view) = (&planner.plans[reader], &facts.views[reader]);
    if planner.plans[at].anchor.is_some() || plan.anchor.is_some() || !plan.parallel {
        return None;
    }
    if facts.views[at].recurrence.is_some() || view.recurrence.is_some() {
        return None;
    }
    let outermost = *plan.leaves.first()?.axes.first()?;
    let load = view.loads.iter().find(|load| load.producer == Some(at))?;
    let var = &view.data[outermost].var;
    load.indices.iter().position(|index| step(index, var).is_some_and(|step| step != 0))
}

/// Returns the axes that may be vectorized, each with a score.
fn lane_axes(planner: &Planner, at: usize) -> Vec<(usize, i64)> {
    let view = &planner.facts.views[at];
    let plan = &planner.plans[at];
    let mut found = Vec::new();
    for axis in 0..view.data.len() {
        let Some(leaf) = plan.leaf_of(axis) else { continue };
        // A vector has at least two lanes.
        if plan.leaves[leaf].extent.is_some_and(|extent| extent < 2) {
            continue;
        }
        let store = if stores_along(view, axis) { 3 } else { -3 };
        let first = |at: usize| {
            let (load, before) = (&view.loads[at], &view.loads[..at]);
            let same = |other: &Access| {
                let mut indices = other.indices.iter().zip(&load.indices);
                other.buffer == load.buffer && indices.all(|(a, b)| a.same(b))
            };
            !before.iter().any(same)
        };
        let score = (0..view.loads.len()).filter(|load| first(*load));
        let score = score.map(|load| match view.loads[load].stride_inside(&view.data[axis].var) {
            Stride::Zero => 1,
            Stride::By(1) => 2,
            Stride::By(step) if step.abs() <= 4 => 0,
            _ => -2,
        });
        found.push((axis, store + score.sum::<i64>()));
    }
    let positive = found.iter().any(|(_, score)| *score > 0);
    found.retain(|(_, score)| !positive || *score > 0);
    found
}

pub(super) fn transpose_fits(planner: &Planner, at: usize) -> Fit {
    match planner.target.is_gpu() || transposed_read(planner, at).is_none() {
        true => Fit::No,
        false => Fit::Best,
    }
}

/// Returns a read that is contiguous along another axis than the last one, in either direction: its
/// index, and that axis.
fn transposed_read(planner: &Planner, at: usize) -> Option<(usize, usize)> {
    let view = &planner.facts.views[at];
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let column = view.data.len().checked_sub(1)?;
    if lanes == 1 || view.reduction.is_some() || planner.plans[at].anchor.is_some() {
        return None;
    }
    let far = |load: &Access| match load.stride(&view.data[column].var) {
        Stride::Far => true,
        Stride::By(step) => step.abs() >= lanes,
        Stride::Zero => false,
    };
    let load = view.loads.iter().position(far)?;
    let contiguous =
        |axis: &usize| matches!(view.loads[load].stride(&view.data[*axis].var), Stride::By(1 | -1));
    let row = (0..column).find(contiguous)?;
    let fits = |axis: usize| view.data[axis].extent.is_none_or(|extent| extent >= lanes);
    (fits(row) && fits(column)).then_some((load, row))
}

/// Writes a transposition in square tiles, each in registers, or in blocks that are first copied
/// into a cache.
pub(super) fn transpose(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let (load, row) = transposed_read(planner, at).expect("the rule fits");
    let column = view.data.len() - 1;
    let stage = planner.plans[at].name.clone();
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let read = view.loads[load].buffer.name.clone();
    let (row_name, column_name) = (&view.data[row].name, &view.data[column].name);
    let directly = view.direct.contains(&view.loads[load].buffer);
    let copied =
        directly && planner.chooser.is_second(&stage, "by", ["registers", "copied block"], false);
    let why = format!("`{read}` is read along `{row_name}` and written along `{column_name}`");
    planner.text.rule("transpose", &why);
    let copy = copied.then(|| {
        let copy = planner.text.fresh(&read, "_block");
        planner.text.push(format!("let {copy} = {read}.cache_read(global, [{stage}])"));
        copy
    });
    let block = |planner: &mut Planner, axis: usize| {
        let least = if copied { lanes } else { 0 };
        let fits = |size: &i64| *size == least || view.data[axis].size() > *size;
        let sizes = [least, 16, 32, 64, 128, 256];
        let mut sizes: Vec<i64> =
            sizes.into_iter().filter(|s| (*s == 0 || s % lanes == 0) && fits(s)).collect();
        sizes.dedup();
        let what = format!("block {}", view.data[axis].name);
        planner.chooser.pick(&stage, &what, &sizes, if copied { &64 } else { &0 })
    };
    let (rows, columns) = (block(planner, row), block(planner, column));
    let mut outer: Vec<String> = Vec::new();
    let mut blocks: Vec<String> = Vec::new();
    let mut tiles: Vec<String> = Vec::new();
    for (axis, size) in (0..=column).map(|axis| match axis {
        axis if axis == row => (axis, rows),
        axis if axis == column => (axis, columns),
        _ => (axis, 0),
    }) {
        // A step of a recurrence has no loop.
        let Some(leaf) = planner.plans[at].leaf_of(axis) else { continue };
        let mut name = planner.plans[at].leaves[leaf].name.clone();
        let is_transposed = axis == row || axis == column;
        if size > 0 {
            let (block, inside) = planner.split(at, leaf, size);
            outer.push(block);
            name = inside;
        }
        if is_transposed && !(copied && axis == row) {
            let leaf = planner.leaf(at, &name);
            let (vectors, lane) = planner.split(at, leaf, lanes);
            if size > 0 {
                blocks.push(vectors)
            } else {
                outer.push(vectors)
            }
            tiles.push(lane);
        } else if is_transposed {
            blocks.push(name);
        } else {
            outer.push(name);
        }
    }
    let count = outer.len();
    let order = [&outer[..], &blocks, &tiles].concat();
    planner.reorder(at, &order);
    let last = order.len() - 1;
    if tiles.len() > 1 {
        planner.annotate(at, last - 1, Annotation::Unroll);
    }
    planner.annotate(at, last, Annotation::Vectorize);
    let gone = planner.parallelize(at, count.saturating_sub(usize::from(copied)));
    planner.plans[at].open = count - gone;
    if let Some(copy) = copy {
        copied_block(planner, at, &copy, load, count - gone - 1);
    }
}

/// Writes the copy of a block at a loop of the stage. Its rows do not begin at multiples of a page,
/// so that a column does not fall into few sets of the cache.
fn copied_block(planner: &mut Planner, at: usize, copy: &str, load: usize, place: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let lanes = planner.target.lanes(view.dtype);
    let plan = &planner.plans[at];
    let line = format!("{copy}.compute_at({}, {})", plan.name, plan.leaves[place].name);
    planner.text.push(line);
    let (o, l) = (planner.text.fresh(copy, "_o"), planner.text.fresh(copy, "_i"));
    let last = view.loads[load].indices.len() - 1;
    planner.text.push(format!("let {o}, {l} = {copy}.split(ax{last}, factor={lanes})"));
    planner.text.push(format!("{copy}.vectorize({l})"));
    if last > 0 {
        planner.text.push(format!("{copy}.storage_align(ax{}, 32, 1)", last - 1));
    }
    if let Some(stage) = view.loads[load].producer {
        // The copied stage must be at the root.
        planner.plans[stage].pinned = true;
    }
}

//! The rule for prefix reductions: each element is computed from the one before it.

use super::Fit;
use super::plan::{Annotation, MIN_PARALLEL_WORK, Planner};
use super::rows;

/// Rows that are computed side by side, to overlap the latency of their additions.
const ROWS: i64 = 8;
/// Vectors of a row that are computed side by side.
const VECTORS: i64 = 4;

/// Elements of a block, for threads.
const BLOCKS: [i64; 3] = [1 << 12, 1 << 14, 1 << 16];
/// The most rows, each with an element at each place along the scan, that are scanned in blocks.
const MAX_ROWS: i64 = 16;

pub(super) fn fits(planner: &Planner, at: usize) -> Fit {
    match planner.facts.views[at].scan {
        Some(_) => Fit::Best,
        None => Fit::No,
    }
}

/// Writes the scan, with the axis in which memory is contiguous in lanes, or several rows at once
/// if that is the axis of the scan.
pub(super) fn apply(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let scan = view.scan.as_ref().expect("the rule fits");
    let along = view.data[scan.axis].name.clone();
    let why = format!("each element along `{along}` is computed from the one before it");
    planner.text.rule("scan", &why);
    if let Some(block) = block(planner, at) {
        in_blocks(planner, at, block);
        return;
    }
    planner.text.push(scan.call.clone());
    let several = |axis: &usize| view.data[*axis].extent != Some(1);
    let inner = (0..view.data.len()).rev().find(several);
    let outer = match inner {
        Some(inner) if inner != scan.axis => in_lanes(planner, at, inner, &along),
        Some(_) => side_by_side(planner, at, &along),
        None => 0,
    };
    planner.parallelize(at, outer);
    planner.plans[at].open = planner.plans[at].outer();
}

/// Chooses the elements of a block, if threads have too few other axes to share.
fn block(planner: &mut Planner, at: usize) -> Option<i64> {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let scan = view.scan.as_ref().expect("the rule fits");
    let rows = view.data.iter().enumerate().filter(|(axis, _)| *axis != scan.axis);
    let rows = rows.fold(1i64, |rows, (_, axis)| rows.saturating_mul(axis.size()));
    let inner = scan.axis + 1 == view.data.len() && view.reduce.is_empty();
    let worth = planner.threads != 1 && planner.work(at) >= MIN_PARALLEL_WORK;
    if !inner || !worth || rows > MAX_ROWS || !facts.order_may_change(at) {
        return None;
    }
    let size = view.data[scan.axis].size();
    let sizes: Vec<i64> = BLOCKS.into_iter().filter(|block| size >= 4 * block).collect();
    let usual = *sizes.get(1).or(sizes.first())?;
    let stage = planner.plans[at].name.clone();
    let sizes = [&[0], &sizes[..]].concat();
    let block = planner.chooser.pick(&stage, "block", &sizes, &usual);
    (block > 0).then_some(block)
}

/// Writes a scan in blocks, which threads share, and whose terms are summed in lanes.
fn in_blocks(planner: &mut Planner, at: usize, block: i64) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let axis = view.scan.as_ref().expect("the rule fits").axis;
    let stage = planner.plans[at].name.clone();
    let permission = facts.permission(at);
    let leaf = planner.plans[at].leaf_of(axis).expect("it is not split yet");
    let (outer, inner) = planner.split(at, leaf, block);
    let (terms, starts) =
        (planner.text.fresh(&stage, "_blocks"), planner.text.fresh(&stage, "_starts"));
    let why = format!("threads scan blocks of {block} elements, which begin with the sums before");
    planner.text.rule("blocks", &why);
    planner.text.push(format!("let {terms}, {starts} = {stage}.scan({inner}{permission})"));
    let outside = planner.leaf(at, &inner);
    planner.parallelize(at, outside);
    if planner.plans[at].parallel {
        planner.text.push(format!("{terms}.parallel({outer})"));
    }
    // Producers have two readers.
    planner.plans[at].open = 0;
    let lanes = i64::from(planner.target.lanes(view.dtype));
    if lanes < 2 {
        return;
    }
    let rows = view.data.iter().enumerate().filter(|(other, _)| *other != axis);
    let rows = rows.map(|(_, axis)| axis.name.clone());
    let data: Vec<String> = std::iter::once(outer).chain(rows).collect();
    let place = data.last().cloned();
    let terms =
        rows::Terms { name: terms, data, place, rows: None, reduce: vec![inner], tuple: false };
    rows::in_lanes(planner, &terms, 0, (lanes, rows::VECTORS), permission);
}

/// Vectorizes an axis inside of the scan. Returns the number of loops outside of it.
fn in_lanes(planner: &mut Planner, at: usize, inner: usize, along: &str) -> usize {
    let stage = planner.plans[at].name.clone();
    let axis = planner.facts.views[at].data[inner].clone();
    let lanes = i64::from(planner.target.lanes(planner.facts.views[at].dtype));
    let fits = |count: &i64| axis.extent.is_none_or(|extent| extent >= count * lanes);
    let counts: Vec<i64> = [1, 2, VECTORS].into_iter().filter(fits).collect();
    if lanes < 2 || counts.is_empty() {
        return before(planner, at, along);
    }
    let usual = *counts.last().expect("there is one");
    let vectors = planner.chooser.pick(&stage, "vectors", &counts, &usual);
    let columns = planner.chooser.is_second(&stage, "order", ["rows", "columns"], false);
    let leaf = planner.plans[at].leaf_of(inner).expect("it is not split yet");
    let (blocks, lane) = planner.split(at, leaf, vectors * lanes);
    let mut order = planner.names(at);
    order.retain(|name| *name != lane);
    if columns {
        order.retain(|name| *name != blocks);
        let scan = order.iter().position(|name| name == along).expect("the scan has a loop");
        order.insert(scan, blocks);
    }
    order.push(lane);
    planner.reorder(at, &order);
    planner.annotate(at, order.len() - 1, Annotation::Vectorize);
    before(planner, at, along)
}

/// Computes several rows at once: the elements of a row wait for each other. Returns the number of
/// loops outside of the scan.
fn side_by_side(planner: &mut Planner, at: usize, along: &str) -> usize {
    let outside = before(planner, at, along);
    let stage = planner.plans[at].name.clone();
    let leaves = &planner.plans[at].leaves;
    let enough = |leaf: &usize| leaves[*leaf].extent.is_none_or(|extent| extent >= 2);
    let Some(leaf) = (0..outside).rev().find(enough) else { return outside };
    let extent = leaves[leaf].extent;
    let fits = |count: &i64| *count == 1 || extent.is_none_or(|extent| extent >= *count);
    let counts: Vec<i64> = [1, 2, 4, ROWS].into_iter().filter(fits).collect();
    let usual = *counts.last().expect("there is one");
    let count = planner.chooser.pick(&stage, "rows", &counts, &usual);
    if count == 1 {
        return outside;
    }
    let row = planner.split(at, leaf, count).1;
    let mut order = planner.names(at);
    order.retain(|name| *name != row);
    order.push(row);
    planner.reorder(at, &order);
    planner.annotate(at, order.len() - 1, Annotation::Unroll);
    before(planner, at, along)
}

/// Returns the number of loops outside of the scan.
fn before(planner: &Planner, at: usize, along: &str) -> usize {
    planner.leaf(at, along)
}

//! Rules for reductions along rows: `partial` and `rows`.
//!
//! The terms of one element lie next to each other, so lanes can run through the terms only if
//! their order may change. Where it may not, several elements are computed side by side.

use super::plan::Planner;
use super::view::{Stride, View};

/// Rows that are reduced side by side: as many additions are under way at the same time.
const ROWS: i64 = 8;
/// Vectors of partial results of one row.
const VECTORS: i64 = 4;
/// A sum without data axes is cut into pieces of so many terms for the threads.
const PIECE: i64 = 1 << 14;

/// A stage of which the loops over terms are known by name.
struct Terms {
    name: String,
    /// Loops over elements, outermost first.
    data: Vec<String>,
    /// Loops over terms, outermost first.
    reduce: Vec<String>,
}

/// Partial results in lanes.
pub(super) fn partial(planner: &mut Planner, at: usize) -> bool {
    let lanes = i64::from(planner.target.lanes(planner.views[at].dtype));
    let view = &planner.views[at];
    let Some(row) = row_axis(view).filter(|_| lanes > 1) else { return false };
    let extent = view.reduce[row].extent;
    if !order_may_change(planner, view) || extent.is_some_and(|extent| extent < 2 * lanes) {
        return false;
    }
    let vectors = match extent {
        Some(extent) if extent < 2 * VECTORS * lanes => 1,
        _ => VECTORS,
    };
    let data = view.data.len();
    let name = view.reduce[row].name.clone();
    let why = format!("the terms along `{name}` may be summed in any order, so lanes share them");
    planner.text.rule("partial", &why);
    let mut terms = Terms {
        name: planner.plans[at].name.clone(),
        data: Vec::new(),
        reduce: view.reduce.iter().map(|axis| axis.name.clone()).collect(),
    };
    if data == 0 {
        terms = pieces(planner, at, terms, row);
        let row = terms.reduce.len() - 1;
        in_lanes(planner, &terms, row, lanes, vectors);
        return true;
    }
    planner.parallelize(at, data);
    let leaves = planner.plans[at].leaves.iter().filter(|leaf| !leaf.reduce);
    terms.data = leaves.map(|leaf| leaf.name.clone()).collect();
    in_lanes(planner, &terms, row, lanes, vectors);
    true
}

/// A sum of everything becomes a sum of pieces, one for each thread at least.
fn pieces(planner: &mut Planner, at: usize, whole: Terms, row: usize) -> Terms {
    let view = &planner.views[at];
    let size = view.reduce[row].extent.unwrap_or(i64::MAX);
    let (name, mut reduce) = (whole.name.clone(), whole.reduce.clone());
    let outer = if reduce.len() > 1 {
        // Only the loop over rows stays where it is.
        let row = reduce.remove(row);
        reduce.push(row);
        reduce.remove(0)
    } else if size >= 2 * PIECE {
        let (outer, inner) =
            (planner.text.fresh(&reduce[0], "_o"), planner.text.fresh(&reduce[0], "_i"));
        let from = &reduce[0];
        planner.text.push(format!("let {outer}, {inner} = {name}.split({from}, factor={PIECE})"));
        reduce = vec![inner];
        outer
    } else {
        return whole;
    };
    let piece = planner.text.fresh(&name, "_pieces");
    planner.text.push(format!("let {piece} = {name}.rfactor({outer})"));
    planner.text.push(format!("{piece}.parallel({outer})"));
    Terms { name: piece, data: vec![outer], reduce }
}

/// Two steps: the terms of a row to some vectors, those to one; its lanes are summed one by one.
fn in_lanes(planner: &mut Planner, terms: &Terms, row: usize, lanes: i64, vectors: i64) {
    let Terms { name, data, reduce } = terms;
    let mut stages = Vec::new();
    let mut from = reduce[row].clone();
    let mut others: Vec<String> = reduce.clone();
    let mut counts = vec![lanes];
    if vectors > 1 {
        counts.insert(0, vectors * lanes);
    }
    for count in counts {
        let outer = planner.text.fresh(&from, "_o");
        let inner = planner.text.fresh(&from, "_i");
        let stage = planner.text.fresh(name, "_lanes");
        planner.text.push(format!("let {outer}, {inner} = {name}.split({from}, factor={count})"));
        planner.text.push(format!("let {stage} = {name}.rfactor({inner})"));
        let place = others.iter().position(|other| *other == from).expect("the row is a loop");
        others[place] = outer;
        // The stage of partial results has the lanes as its first axis.
        let loops: Vec<&str> = data.iter().chain(&others).map(|name| &name[..]).collect();
        stages.push((stage, loops.join(", "), inner.clone()));
        others = vec![inner.clone()];
        from = inner;
    }
    for (stage, loops, inner) in stages.iter().rev() {
        if let Some(place) = data.last() {
            planner.text.push(format!("{stage}.compute_at({name}, {place})"));
        }
        planner.text.push(format!("{stage}.set_scope(local)"));
        planner.text.push(format!("{stage}.reorder({loops}, {inner})"));
        planner.text.push(format!("{stage}.vectorize({inner})"));
    }
}

/// Several rows at once.
pub(super) fn rows(planner: &mut Planner, at: usize) -> bool {
    let view = &planner.views[at];
    if row_axis(view).is_none() {
        return false;
    }
    let plan = &planner.plans[at];
    let data = plan.leaves.iter().filter(|leaf| !leaf.reduce).count();
    let enough = |leaf: &usize| plan.leaves[*leaf].extent.is_none_or(|extent| extent >= 2);
    let Some(leaf) = (0..data).rev().find(enough) else { return false };
    let extent = plan.leaves[leaf].extent;
    let factor = extent.map_or(ROWS, |extent| extent.min(ROWS));
    let why = format!(
        "the terms of each sum stay in order, so {factor} sums run side by side to hide the \
         latency of an addition"
    );
    planner.text.rule("rows", &why);
    let split = extent != Some(factor);
    if split {
        planner.split(at, leaf, factor);
    }
    let inner = leaf + usize::from(split);
    let count = planner.plans[at].leaves.len();
    let mut order: Vec<usize> = (0..count).filter(|leaf| *leaf != inner).collect();
    order.push(inner);
    planner.reorder(at, &order);
    planner.annotate(at, count - 1, "unroll");
    planner.parallelize(at, data - usize::from(!split));
    true
}

/// The reduction axis along which memory is contiguous, where no data axis is in lanes.
fn row_axis(view: &View) -> Option<usize> {
    view.reduction.as_ref().filter(|_| !view.tuple)?;
    let along = |stride: Stride| stride == Stride::By(1);
    let row = (0..view.reduce.len())
        .rev()
        .find(|axis| view.loads.iter().any(|load| along(load.stride(&view.reduce[*axis].var))))?;
    let in_lanes = view.data.iter().any(|axis| {
        axis.extent != Some(1) && view.loads.iter().any(|load| along(load.stride(&axis.var)))
    });
    (!in_lanes).then_some(row)
}

/// Whether the terms may meet in another order.
fn order_may_change(planner: &Planner, view: &View) -> bool {
    let Some(reduction) = &view.reduction else { return false };
    let allowed = reduction.reassociate || planner.reassociate || !view.dtype.is_float();
    reduction.combiner.commutative && allowed
}

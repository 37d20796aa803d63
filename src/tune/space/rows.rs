//! Rules for reductions along rows: `partial` and `rows`.
//!
//! The terms of one element are contiguous, so they can be vectorized only if they may be
//! reordered. Otherwise several elements are computed side by side.

use super::Fit;
use super::facts::row_axis;
use super::plan::{Annotation, Leaf, Planner};

/// Rows that are reduced side by side, to overlap the latency of their additions.
const ROWS: i64 = 8;
/// Vectors of partial results of one row.
pub(super) const VECTORS: i64 = 4;
/// The most vectors of partial results of rows that are summed side by side.
const MAX_VECTORS: i64 = 16;
/// The fewest bytes of a row that is summed beside others: shorter ones are no streams.
const MIN_STREAM_BYTES: i64 = 1 << 10;
/// Terms per piece of a sum without data axes, for threads.
const PIECE_TERMS: i64 = 1 << 14;

/// The loops of a reduction, by name.
pub(super) struct Terms {
    pub(super) name: String,
    /// The data axes.
    pub(super) data: Vec<String>,
    /// The innermost loop over data axes, without that over rows side by side.
    pub(super) place: Option<String>,
    /// The loop over rows that are summed side by side.
    pub(super) rows: Option<String>,
    /// Loops over terms, outermost first.
    pub(super) reduce: Vec<String>,
    /// Whether an element has several components.
    pub(super) tuple: bool,
}

/// Returns the lanes of a vector of partial results: those of the widest component of a tuple.
fn lanes_of(planner: &Planner, at: usize) -> i64 {
    let view = &planner.facts.views[at];
    let tuple = view.reduction.as_ref().filter(|_| view.tuple);
    let widest = tuple.and_then(|reduction| {
        let short = reduction.with_short_positions();
        let terms = &short.as_ref().unwrap_or(reduction).terms;
        terms.iter().map(|term| term.ty.dtype).max_by_key(|dtype| dtype.bytes())
    });
    i64::from(planner.target.lanes(widest.unwrap_or(view.dtype)))
}

pub(super) fn partial_fits(planner: &Planner, at: usize) -> Fit {
    let view = &planner.facts.views[at];
    let lanes = lanes_of(planner, at);
    let Some(row) = row_axis(view).filter(|_| lanes > 1) else { return Fit::No };
    let short = view.reduce[row].extent.is_some_and(|extent| extent < 2 * lanes);
    if short || planner.target.is_gpu() || !planner.facts.order_may_change(at) {
        return Fit::No;
    }
    Fit::Best
}

/// Writes a reduction with partial results in lanes.
pub(super) fn partial(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let lanes = lanes_of(planner, at);
    let row = row_axis(view).expect("the rule fits");
    let extent = view.reduce[row].extent;
    let stage = planner.plans[at].name.clone();
    let fits =
        |vectors: &i64| extent.is_none_or(|extent| *vectors == 1 || extent >= 2 * vectors * lanes);
    let counts: Vec<i64> = [1, 2, 4, 8].into_iter().filter(fits).collect();
    let usual = if fits(&VECTORS) { VECTORS } else { 1 };
    let vectors = planner.chooser.pick(&stage, "vectors", &counts, &usual);
    let data = view.data.len();
    let name = &view.reduce[row].name;
    let why = format!("the terms along `{name}` may be summed in any order, so lanes share them");
    planner.text.rule("partial", &why);
    let mut terms = Terms {
        name: stage,
        data: view.data.iter().map(|axis| axis.name.clone()).collect(),
        place: None,
        rows: None,
        reduce: view.reduce.iter().map(|axis| axis.name.clone()).collect(),
        tuple: view.tuple,
    };
    if data == 0 {
        terms = pieces(planner, at, terms, row);
        let row = terms.reduce.len() - 1;
        in_lanes(planner, &terms, row, (lanes, vectors), planner.facts.permission(at));
        return;
    }
    let bytes = view.dtype.bytes() as i64;
    let streams = extent.is_none_or(|extent| extent.saturating_mul(bytes) >= MIN_STREAM_BYTES);
    terms.rows = if streams { beside(planner, at, vectors) } else { None };
    chunks(planner, at);
    let data = planner.plans[at].leaves.iter().filter(|leaf| !leaf.reduce).count();
    let count = data - usize::from(terms.rows.is_some());
    planner.parallelize(at, count);
    let is_outer = |leaf: &&Leaf| !leaf.reduce && Some(&leaf.name) != terms.rows.as_ref();
    let place = planner.plans[at].leaves.iter().rfind(is_outer);
    terms.place = place.map(|leaf| leaf.name.clone());
    if let Some(rows) = &terms.rows {
        let leaf = planner.leaf(at, rows);
        planner.annotate(at, leaf, Annotation::Unroll);
    }
    planner.plans[at].open = planner.plans[at].outer();
    in_lanes(planner, &terms, row, (lanes, vectors), planner.facts.permission(at));
}

/// Chooses how many rows are summed side by side, because several streams come faster from memory
/// than one. Returns the loop over them.
fn beside(planner: &mut Planner, at: usize, vectors: i64) -> Option<String> {
    let plan = &planner.plans[at];
    let leaf = plan.leaves.iter().rposition(|leaf| !leaf.reduce)?;
    let (stage, extent) = (plan.name.clone(), plan.leaves[leaf].extent);
    if plan.anchor.is_some() || plan.leaves[leaf].axes.len() != 1 {
        return None;
    }
    let fits = |rows: &i64| {
        *rows == 1
            || (rows * vectors <= MAX_VECTORS && extent.is_none_or(|extent| extent >= 2 * rows))
    };
    let counts: Vec<i64> = [1, 4, 8].into_iter().filter(fits).collect();
    let rows = planner.chooser.pick(&stage, "rows beside", &counts, &1);
    (rows > 1).then(|| planner.split(at, leaf, rows).1)
}

/// Chooses how many rows a task takes.
pub(super) fn chunks(planner: &mut Planner, at: usize) {
    let plan = &planner.plans[at];
    if plan.anchor.is_some() || plan.leaves.is_empty() || planner.threads == 1 {
        return;
    }
    let first = &plan.leaves[0];
    let several = |size: &i64| *size == 1 || first.size() >= 4 * size;
    let sizes: Vec<i64> = [1, 4, 8, 16, 64].into_iter().filter(several).collect();
    if first.reduce || first.flat || planner.work(at) < super::plan::MIN_PARALLEL_WORK {
        return;
    }
    let stage = plan.name.clone();
    let size = planner.chooser.pick(&stage, "chunk", &sizes, &1);
    if size > 1 {
        planner.split(at, 0, size);
    }
}

/// Splits a full reduction into pieces for threads.
fn pieces(planner: &mut Planner, at: usize, whole: Terms, row: usize) -> Terms {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let size = view.reduce[row].extent.unwrap_or(i64::MAX);
    let (name, mut reduce) = (whole.name.clone(), whole.reduce.clone());
    let outer = if reduce.len() > 1 {
        // Only the contiguous loop stays innermost.
        let row = reduce.remove(row);
        reduce.push(row);
        reduce.remove(0)
    } else if size >= 2 * PIECE_TERMS {
        let known = view.reduce[row].extent.is_some();
        let fits = |piece: &i64| *piece == PIECE_TERMS || !known || size >= 2 * piece;
        let sizes: Vec<i64> =
            [PIECE_TERMS / 4, PIECE_TERMS, 4 * PIECE_TERMS].into_iter().filter(fits).collect();
        let piece = planner.chooser.pick(&name, "piece", &sizes, &PIECE_TERMS);
        let (outer, inner) =
            (planner.text.fresh(&reduce[0], "_o"), planner.text.fresh(&reduce[0], "_i"));
        let from = &reduce[0];
        planner.text.push(format!("let {outer}, {inner} = {name}.split({from}, factor={piece})"));
        reduce = vec![inner];
        outer
    } else {
        return whole;
    };
    let piece = planner.text.fresh(&name, "_pieces");
    let permission = planner.facts.permission(at);
    planner.text.push(format!("let {piece} = {name}.rfactor({outer}{permission})"));
    if planner.threads != 1 {
        planner.text.push(format!("{piece}.parallel({outer})"));
    }
    let data = vec![outer.clone()];
    Terms { name: piece, data, place: Some(outer), rows: None, reduce, tuple: whole.tuple }
}

/// A vector of at least so many lanes may be reduced to a quarter of its length before its lanes
/// are added one by one: a chain of 4 + 4 additions instead of 16.
const LONG_VECTOR: i64 = 16;

/// Reduces the terms of a row to several vectors, these to one vector, a long vector to a shorter
/// one, and its lanes one by one.
pub(super) fn in_lanes(
    planner: &mut Planner,
    terms: &Terms,
    row: usize,
    (lanes, vectors): (i64, i64),
    permission: &str,
) {
    let Terms { name, data, place, rows, reduce, tuple } = terms;
    let mut stages = Vec::new();
    let mut from = reduce[row].clone();
    let mut others: Vec<String> = reduce.clone();
    let mut counts = vec![lanes];
    if vectors > 1 {
        counts.insert(0, vectors * lanes);
    }
    let quarters = lanes >= LONG_VECTOR
        && planner.chooser.is_second(name, "finish", ["lanes", "quarters"], true);
    if quarters {
        counts.push(lanes / 4);
    }
    for count in counts {
        let outer = planner.text.fresh(&from, "_o");
        let inner = planner.text.fresh(&from, "_i");
        let stage = planner.text.fresh(name, "_lanes");
        planner.text.push(format!("let {outer}, {inner} = {name}.split({from}, factor={count})"));
        planner.text.push(format!("let {stage} = {name}.rfactor({inner}{permission})"));
        let place = others.iter().position(|other| *other == from).expect("the row is a loop");
        others[place] = outer.clone();
        // The lanes are the first axis of the stage of partial results.
        let mut loops: Vec<&str> = data.iter().chain(&others).map(|name| &name[..]).collect();
        if rows.is_some() {
            // The rows of a term are side by side.
            loops[data.len() - 1..].rotate_left(1);
        }
        let short = ((quarters || rows.is_some()) && !stages.is_empty()).then_some(outer);
        stages.push((stage, loops.join(", "), inner.clone(), short));
        others = vec![inner.clone()];
        from = inner;
    }
    for (at, (stage, loops, inner, short)) in stages.iter().enumerate().rev() {
        if let Some(place) = place {
            planner.text.push(format!("{stage}.compute_at({name}, {place})"));
        }
        planner.text.push(format!("{stage}.set_scope(local)"));
        planner.text.push(format!("{stage}.reorder({loops}, {inner})"));
        if *tuple && at == 0 && vectors > 1 {
            // Components of different types fill different numbers of registers.
            let (vector, lane) = (planner.text.fresh(inner, "_o"), planner.text.fresh(inner, "_i"));
            let split = format!("let {vector}, {lane} = {stage}.split({inner}, factor={lanes})");
            planner.text.push(split);
            planner.text.push(format!("{stage}.unroll({vector})"));
            planner.text.push(format!("{stage}.vectorize({lane})"));
        } else {
            planner.text.push(format!("{stage}.vectorize({inner})"));
        }
        if let Some(row) = data.last().filter(|_| rows.is_some()) {
            planner.text.push(format!("{stage}.unroll({row})"));
        }
        if let Some(outer) = short {
            planner.text.push(format!("{stage}.unroll({outer})"));
        }
    }
    if let Some(rows) = rows {
        planner.text.push(format!("{name}.reorder({from}, {rows})"));
    }
    if quarters {
        planner.text.push(format!("{name}.unroll({from})"));
    }
}

pub(super) fn rows_fits(planner: &Planner, at: usize) -> Fit {
    let along = row_axis(&planner.facts.views[at]).is_some() && !planner.target.is_gpu();
    if along && rows_leaf(planner, at).is_some() { Fit::Best } else { Fit::No }
}

/// Returns the innermost loop over data axes with several iterations.
fn rows_leaf(planner: &Planner, at: usize) -> Option<usize> {
    let leaves = &planner.plans[at].leaves;
    let data = leaves.iter().filter(|leaf| !leaf.reduce).count();
    let enough = |leaf: &usize| leaves[*leaf].extent.is_none_or(|extent| extent >= 2);
    (0..data).rev().find(enough)
}

/// Writes a reduction of several rows at once.
pub(super) fn rows(planner: &mut Planner, at: usize) {
    let leaf = rows_leaf(planner, at).expect("the rule fits");
    let plan = &planner.plans[at];
    let stage = plan.name.clone();
    let data = plan.leaves.iter().filter(|leaf| !leaf.reduce).count();
    let extent = plan.leaves[leaf].extent;
    let usual = extent.map_or(ROWS, |extent| extent.min(ROWS));
    let mut counts = vec![2, 4, ROWS, 16];
    counts.retain(|count| extent.is_none_or(|extent| *count <= extent));
    if !counts.contains(&usual) {
        counts.push(usual);
    }
    let factor = planner.chooser.pick(&stage, "rows", &counts, &usual);
    let why = format!(
        "the terms of each sum stay in order, so {factor} sums run side by side to hide the \
         latency of an addition"
    );
    planner.text.rule("rows", &why);
    let split = extent != Some(factor);
    let inner = match split {
        true => planner.split(at, leaf, factor).1,
        false => planner.plans[at].leaves[leaf].name.clone(),
    };
    let mut order = planner.names(at);
    order.retain(|name| *name != inner);
    order.push(inner);
    planner.reorder(at, &order);
    let last = order.len() - 1;
    planner.annotate(at, last, Annotation::Unroll);
    planner.parallelize(at, data - usize::from(!split));
    planner.plans[at].open = planner.plans[at].outer();
}

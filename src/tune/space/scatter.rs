//! The rule for reductions whose terms belong to one element each.

use super::Fit;
use super::plan::{Annotation, MIN_PARALLEL_WORK, Planner};

/// The fewest terms for each start value of a private copy of the elements.
const MIN_TERMS: i64 = 8;
/// Terms that are written out.
const UNROLLED_TERMS: i64 = 8;
/// The fewest iterations of a loop with terms written out.
const MIN_UNROLLED: i64 = 8;

pub(super) fn fits(planner: &Planner, at: usize) -> Fit {
    match planner.facts.views[at].scatter.is_empty() {
        true => Fit::No,
        false => Fit::Best,
    }
}

/// Writes the scatter, with vectors of start values or of whole rows, and threads for other axes or
/// with copies of the elements.
pub(super) fn apply(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let stage = planner.plans[at].name.clone();
    let named = |axis: &usize| view.data[*axis].name.clone();
    let scattered: Vec<String> = view.scatter.iter().map(named).collect();
    let why = format!("the condition says which `{}` a term belongs to", scattered.join("`, `"));
    planner.text.rule("scatter", &why);
    if let Some(parts) = parts(planner, at) {
        in_parts(planner, at, &scattered, parts);
        return;
    }
    for axis in &scattered {
        planner.text.push(format!("{stage}.scatter({axis})"));
    }
    // The loops of start values are inside of those over terms.
    let leaves = &mut planner.plans[at].leaves;
    let (inner, outer): (Vec<_>, Vec<_>) =
        leaves.drain(..).partition(|leaf| scattered.contains(&leaf.name));
    *leaves = [outer, inner].concat();
    let last = view.data.len() - 1;
    let name = view.data[last].name.clone();
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let wide = lanes > 1 && view.data[last].extent.is_none_or(|extent| extent >= lanes);
    let mut outside = view.data.len() - scattered.len();
    if wide {
        let leaf = planner.plans[at].leaf_of(last).expect("it is not split yet");
        let (blocks, lane) = planner.split(at, leaf, lanes);
        let mut order = planner.names(at);
        order.retain(|other| *other != lane);
        if !scattered.contains(&name) {
            outside -= 1;
            let columns = planner.chooser.is_second(&stage, "order", ["rows", "columns"], false);
            order.retain(|other| *other != blocks);
            match columns {
                true => order.insert(outside, blocks),
                false => order.push(blocks),
            }
            outside += usize::from(columns);
        }
        order.push(lane);
        planner.reorder(at, &order);
        planner.annotate(at, order.len() - 1, Annotation::Vectorize);
    }
    if scattered.len() == view.data.len() && unrolls(planner, at) {
        let leaves = &planner.plans[at].leaves;
        let term = leaves.iter().rposition(|leaf| leaf.reduce).expect("a scatter has terms");
        planner.split(at, term, UNROLLED_TERMS);
        planner.annotate(at, term + 1, Annotation::Unroll);
    }
    let fused = planner.parallelize(at, outside);
    planner.plans[at].open = outside - fused;
}

/// Chooses whether several terms are written out, each of which changes one element. The end of a
/// loop takes as long as a term.
fn unrolls(planner: &mut Planner, at: usize) -> bool {
    let terms = planner.facts.views[at].reduce.last();
    let many = |extent: i64| extent >= MIN_UNROLLED * UNROLLED_TERMS;
    if !terms.is_some_and(|axis| axis.extent.is_none_or(many)) {
        return false;
    }
    let stage = planner.plans[at].name.clone();
    planner.chooser.whether(&stage, "unroll terms", true)
}

/// Chooses the number of copies of the elements, each with a part of the terms, for threads.
fn parts(planner: &mut Planner, at: usize) -> Option<i64> {
    let view = &planner.facts.views[at];
    let alone = view.scatter.len() == view.data.len() && view.reduce.len() == 1;
    let small = planner.work(at) < MIN_PARALLEL_WORK;
    if !alone || small || planner.threads == 1 || !planner.facts.order_may_change(at) {
        return None;
    }
    let terms = view.reduce[0].size();
    let fits = |parts: &i64| terms >= MIN_TERMS * parts.saturating_mul(view.elements());
    let counts: Vec<i64> = [2, 4, 8, 16].into_iter().filter(fits).collect();
    let usual = *counts.first()?;
    let stage = planner.plans[at].name.clone();
    let counts = [&[1], &counts[..]].concat();
    let parts = planner.chooser.pick(&stage, "parts", &counts, &usual);
    (parts > 1).then_some(parts)
}

/// Writes a scatter to copies of the elements, which are reduced afterwards.
fn in_parts(planner: &mut Planner, at: usize, scattered: &[String], parts: i64) {
    let facts = planner.facts.clone();
    let term = &facts.views[at].reduce[0].name;
    let stage = planner.plans[at].name.clone();
    let (outer, inner) = (planner.text.fresh(term, "_o"), planner.text.fresh(term, "_i"));
    let copies = planner.text.fresh(&stage, "_parts");
    let permission = facts.permission(at);
    let lines = [
        format!("let {outer}, {inner} = {stage}.split({term}, nparts={parts})"),
        format!("let {copies} = {stage}.rfactor({outer}{permission})"),
        format!("{copies}.parallel({outer})"),
    ];
    lines.into_iter().for_each(|line| planner.text.push(line));
    for axis in scattered {
        planner.text.push(format!("{copies}.scatter({axis})"));
    }
    if unrolls(planner, at) {
        let some = planner.text.fresh(&inner, "_i");
        let rest = planner.text.fresh(&inner, "_o");
        planner
            .text
            .push(format!("let {rest}, {some} = {copies}.split({inner}, factor={UNROLLED_TERMS})"));
        planner.text.push(format!("{copies}.unroll({some})"));
    }
    planner.plans[at].parallel = true;
}

//! The rule for sorts: the axes that the keys depend on are outside, in threads.

use super::Fit;
use super::plan::Planner;

pub(super) fn fits(planner: &Planner, at: usize) -> Fit {
    match planner.facts.views[at].sorted_rows {
        Some(_) => Fit::Best,
        None => Fit::No,
    }
}

/// Writes the loops of a sort: those around it in threads, those of ranks inside.
pub(super) fn apply(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let rows = view.sorted_rows.as_ref().expect("the rule fits");
    planner.text.rule("sort", "the values of an axis are sorted once for each row");
    let is_row = |name: &String| rows.iter().any(|row| view.data[*row].name == *name);
    let names = planner.names(at);
    let (outer, inner): (Vec<String>, Vec<String>) = names.iter().cloned().partition(is_row);
    let outside = outer.len();
    let order = [outer, inner].concat();
    if order != names {
        planner.reorder(at, &order);
    }
    let fused = planner.parallelize(at, outside);
    planner.plans[at].open = outside - fused;
}

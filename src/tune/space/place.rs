//! Where a stage is computed: inlined, at a loop of a reader, or at the root.

use super::plan::{MIN_PARALLEL_WORK, Planner};
use super::view::{AxisView, StageView, coefficient, without_clamps};
use crate::ir::visit::for_each_child;
use crate::ir::{BinOp, Expr, ExprKind, UnOp, Var};
use rustc_hash::FxHashMap;

/// A stage with a higher cost is computed again for each read of the same element.
const MAX_SHARED_COST: i64 = 8;
/// Inlining may multiply the work by this at most.
const MAX_INLINE_FACTOR: i64 = 4;
/// Computing a stage at a loop may increase its work to this percentage at most.
const MAX_PERCENT: i64 = 250;
/// Bytes of a cache line.
const CACHE_LINE: i64 = 64;

/// Chooses which stages are inlined.
pub(super) fn inline(planner: &mut Planner) -> Vec<bool> {
    let facts = planner.facts.clone();
    let views = &facts.views;
    let mut inlined = vec![false; views.len()];
    // The points of each stage, with repetitions.
    let mut points: Vec<i64> = views.iter().map(StageView::points).collect();
    for at in (0..views.len()).rev() {
        let view = &views[at];
        let costly = view.cost > MAX_SHARED_COST;
        let evaluations: i64 = (at + 1..views.len())
            .map(|reader| {
                let of = &views[reader];
                let turns = if of.recurrence == view.recurrence { 1 } else { of.turns };
                points[reader].saturating_mul(of.sites(at, costly)).saturating_mul(turns)
            })
            .fold(0, i64::saturating_add);
        let elements = view.elements().max(1);
        let map = view.reduction.is_none();
        if view.output || view.kept || view.tuple || !map || evaluations == 0 {
            continue;
        }
        let times = evaluations.saturating_add(elements - 1) / elements;
        let (default, why) = match (times, view.cost) {
            (..=1, _) => (true, "each element is read once".to_string()),
            (_, ..=1) => (true, "it costs nothing to compute again".to_string()),
            (2..=4, 2) => (true, format!("{times} times one operation is less than a store")),
            _ => (false, format!("each element is computed {times} times")),
        };
        // Cheap stages are computed while a block loads data.
        let cheap = planner.target.is_gpu() && view.cost <= 2 * MAX_SHARED_COST;
        let again = times.saturating_mul(view.cost) > MAX_INLINE_FACTOR * MAX_SHARED_COST
            && times > MAX_INLINE_FACTOR;
        if !default && again && !cheap {
            continue;
        }
        if planner.chooser.whether(&view.name, "inline", default) {
            inlined[at] = true;
            points[at] = evaluations;
            planner.text.rule("inline", &why);
            planner.text.push(format!("{}.compute_inline()", view.name));
        }
    }
    inlined
}

/// Chooses the loop at which a stage is computed, or the root.
pub(super) fn place(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    if view.output || planner.plans[at].pinned || planner.target.is_gpu() {
        return;
    }
    let Some(home) = home(planner, at) else { return };
    let mut choices = vec!["root".to_string()];
    let mut depths = vec![];
    let mut default = 0;
    let worth_threads = !planner.plans[home].parallel && planner.work(at) >= MIN_PARALLEL_WORK;
    for depth in 0..planner.plans[home].open {
        let Some(boxes) = boxes(planner, home, depth, at) else { break };
        let Some(percent) = percent(planner, home, depth, at, &boxes) else { break };
        if percent > MAX_PERCENT {
            continue;
        }
        choices.push(planner.plans[home].leaves[depth].name.clone());
        depths.push((depth, boxes));
        let leaf = &planner.plans[home].leaves[depth];
        let reused = facts.products[at].is_some();
        if percent <= 100 && !leaf.inner && !worth_threads && !reused {
            default = depths.len();
        }
    }
    let first_window = depths.len();
    for window in windows(planner, home, at) {
        let name = |depth: usize| planner.plans[home].leaves[depth].name.clone();
        choices.push(match window.outer {
            Some(outer) => format!("{} in {}", name(window.depth), name(outer)),
            None => format!("{} in root", name(window.depth)),
        });
        depths.push((window.depth, window.computed));
    }
    let stage = planner.plans[at].name.clone();
    let chosen = planner.chooser.index(&stage, "at", choices, default);
    if chosen == 0 {
        return;
    }
    let slides = chosen > first_window;
    let (depth, boxes) = depths.swap_remove(chosen - 1);
    let percent = percent(planner, home, depth, at, &boxes).unwrap_or(100);
    let leaf = planner.plans[home].leaves[depth].name.clone();
    let why = match percent {
        _ if slides => format!("an iteration of `{leaf}` computes what earlier ones have not"),
        ..=100 => format!("one iteration of `{leaf}` reads what no other one does"),
        _ => format!("computed where it is read, {} percent twice", percent - 100),
    };
    planner.text.rule("attach", &why);
    let of = planner.plans[home].name.clone();
    planner.text.push(format!("{stage}.compute_at({of}, {leaf})"));
    if slides {
        planner.text.push(match depth.checked_sub(1) {
            Some(outer) => {
                let outer = &planner.plans[home].leaves[outer].name;
                format!("{stage}.store_at({of}, {outer})")
            }
            None => format!("{stage}.store_root()"),
        });
    }
    let parallel = planner.plans[home].parallel;
    // Rows of a buffer are aligned to cache lines.
    let line = CACHE_LINE / view.dtype.bytes() as i64;
    let several = |axis: usize| boxes[axis].is_some_and(|size| size > 1);
    let rank = view.data.len();
    if rank > 1 && view.reduction.is_none() && several(rank - 1) && several(rank - 2) {
        let short = boxes[rank - 1].is_some_and(|size| size % line != 0);
        if short && planner.chooser.whether(&stage, "align rows", true) {
            let row = &view.data[rank - 2].name;
            planner.text.push(format!("{stage}.storage_align({row}, {line}, 0)"));
        }
    }
    let plan = &mut planner.plans[at];
    plan.anchor = Some((home, depth));
    plan.parallel = parallel;
    for leaf in plan.leaves.iter_mut().filter(|leaf| !leaf.reduce) {
        leaf.extent = boxes[leaf.axes[0]];
    }
}

/// A loop in which a stage computes only what earlier iterations have not.
struct Window {
    depth: usize,
    /// The loop that has the buffer; `None` for the root.
    outer: Option<usize>,
    /// The elements that an iteration computes, for each dimension.
    computed: Vec<Option<i64>>,
}

/// Returns the loops of `home` in which a window of a stage slides along one dimension.
fn windows(planner: &Planner, home: usize, at: usize) -> Vec<Window> {
    let view = &planner.facts.views[at];
    let mut found = Vec::new();
    if view.recurrence.is_some() || !view.scatter.is_empty() {
        return found;
    }
    let whole: Vec<Option<i64>> = view.data.iter().map(|axis| axis.extent).collect();
    for depth in 0..planner.plans[home].open {
        let leaf = &planner.plans[home].leaves[depth];
        let parallel = depth == 0 && planner.plans[home].parallel;
        let (outer, strip) = match depth.checked_sub(1) {
            Some(outer) => (Some(outer), boxes(planner, home, outer, at)),
            None => (None, Some(whole.clone())),
        };
        let (Some(strip), Some(each), 1, false) =
            (strip, boxes(planner, home, depth, at), leaf.axes.len(), parallel)
        else {
            continue;
        };
        let is_smaller = |dim: &usize| each[*dim] != strip[*dim];
        let moved: Vec<usize> = (0..each.len()).filter(is_smaller).collect();
        let ([dim], Some(turns)) = (&moved[..], leaf.extent) else { continue };
        let (Some(all), Some(window)) = (strip[*dim], each[*dim]) else { continue };
        // The root has a part of a window less at each border.
        let step = (all - window).max(0) / (turns - 1).max(1);
        let step = if outer.is_none() { step.max(1) } else { step };
        if step < 1 || step >= window || turns < 2 {
            continue;
        }
        let mut computed = each;
        computed[*dim] = Some(step);
        found.push(Window { depth, outer, computed });
    }
    found
}

/// Returns the stage at the root in whose loops all readers are computed.
fn home(planner: &Planner, at: usize) -> Option<usize> {
    let mut home = None;
    let views = &planner.facts.views;
    for reader in planner.facts.readers(at) {
        // What does not depend on the recurrence is computed in front of it.
        if views[reader].recurrence != views[at].recurrence {
            return None;
        }
        let of = planner.plans[reader].anchor.map_or(reader, |(home, _)| home);
        if *home.get_or_insert(of) != of {
            return None;
        }
    }
    home
}

/// Returns the elements of a stage that one iteration of a loop reads, for each dimension, if that
/// is the same for all iterations. `None` if a reader is outside of the loop.
pub(super) fn boxes(
    planner: &Planner,
    home: usize,
    depth: usize,
    at: usize,
) -> Option<Vec<Option<i64>>> {
    let views = &planner.facts.views;
    let mut known: FxHashMap<usize, Vec<Option<i64>>> = FxHashMap::default();
    let inside = &planner.plans[home].leaves[depth + 1..];
    let span = |axis: usize| -> Option<i64> {
        let whole = views[home].data[axis].extent;
        let of = inside.iter().filter(|leaf| leaf.axes.contains(&axis));
        let mut size = Some(1i64);
        for leaf in of {
            size = match leaf.axes.len() {
                1 => size.and_then(|size| size.checked_mul(leaf.extent?)),
                _ => whole,
            };
        }
        match (size, whole) {
            (Some(size), Some(whole)) => Some(size.min(whole)),
            (size, _) => size,
        }
    };
    known.insert(home, (0..views[home].data.len()).map(span).collect());
    for stage in (at..home).rev() {
        let mut hulls: Vec<Hull> = vec![Hull::default(); views[stage].data.len()];
        let mut read = false;
        for reader in planner.facts.readers(stage) {
            let spans = known.get(&reader);
            let Some(spans) = spans else {
                if stage == at {
                    return None;
                }
                continue;
            };
            let view = &views[reader];
            for load in view.loads.iter().filter(|load| load.producer == Some(stage)) {
                read = true;
                for (hull, index) in hulls.iter_mut().zip(&load.indices) {
                    // Elements outside of the stage are not computed.
                    let free = |index, axis: &AxisView| without_clamps(&index, &axis.var);
                    let index = view.data.iter().fold(index.clone(), free);
                    hull.add(range(view, spans, &index));
                }
            }
        }
        let outside =
            planner.plans[stage].anchor.is_none_or(|(of, deep)| of != home || deep < depth);
        if !read || (stage != at && outside) {
            continue;
        }
        let sizes = hulls.iter().zip(&views[stage].data).map(|(hull, axis)| hull.size(axis.extent));
        known.insert(stage, sizes.collect());
    }
    known.remove(&at)
}

/// Returns the work of a stage computed at a loop, in percent of that at the root.
fn percent(
    planner: &Planner,
    home: usize,
    depth: usize,
    at: usize,
    boxes: &[Option<i64>],
) -> Option<i64> {
    let leaves = &planner.plans[home].leaves[..=depth];
    let turns = leaves.iter().fold(1i128, |n, leaf| n.saturating_mul(i128::from(leaf.size())));
    let data = &planner.facts.views[at].data;
    let each = boxes
        .iter()
        .zip(data)
        .fold(1i128, |n, (size, axis)| n.saturating_mul(i128::from(size.unwrap_or(axis.size()))));
    let elements = i128::from(planner.facts.views[at].elements()).max(1);
    i64::try_from(turns.saturating_mul(each).saturating_mul(100) / elements).ok()
}

/// The interval of some indices.
#[derive(Clone, Default)]
struct Hull {
    ends: Option<(i64, i64)>,
    /// Whether it is unknown, or differs between iterations.
    far: bool,
}

impl Hull {
    fn add(&mut self, range: Option<(i64, i64)>) {
        match (self.ends, range) {
            (_, None) => self.far = true,
            (None, range) => self.ends = range,
            (Some((a, b)), Some((c, d))) => self.ends = Some((a.min(c), b.max(d))),
        }
    }

    fn size(&self, extent: Option<i64>) -> Option<i64> {
        match self.ends {
            Some((first, last)) if !self.far => {
                let size = last - first + 1;
                Some(extent.map_or(size, |extent| size.min(extent)))
            }
            _ => extent,
        }
    }
}

/// Returns the coefficient of a variable in an index, if it is constant.
pub(super) fn step(index: &Expr, var: &Var) -> Option<i64> {
    coefficient(index, var, &mut FxHashMap::default())
}

/// Returns the interval of an index, given the extents of the reader's axes.
pub(super) fn range(view: &StageView, spans: &[Option<i64>], index: &Expr) -> Option<(i64, i64)> {
    let (mut first, mut last) = (0i64, 0i64);
    let data = view.data.iter().zip(spans.iter().copied());
    let reduce = view.reduce.iter().map(|axis| (axis, axis.extent));
    for (axis, span) in data.chain(reduce) {
        let step = coefficient(index, &axis.var, &mut FxHashMap::default())?;
        if step == 0 {
            continue;
        }
        let reach = step.checked_mul(span?.checked_sub(1)?)?;
        first = first.checked_add(reach.min(0))?;
        last = last.checked_add(reach.max(0))?;
    }
    let offset = constant(index)?;
    Some((first.checked_add(offset)?, last.checked_add(offset)?))
}

/// Returns the value of an index if all variables are 0.
fn constant(expr: &Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Const(_) => i64::try_from(expr.as_int()?).ok(),
        ExprKind::Var(_) => Some(0),
        ExprKind::Unary(UnOp::Neg, a) => constant(a)?.checked_neg(),
        ExprKind::Binary(BinOp::Add, a, b) => constant(a)?.checked_add(constant(b)?),
        ExprKind::Binary(BinOp::Sub, a, b) => constant(a)?.checked_sub(constant(b)?),
        ExprKind::Binary(BinOp::Mul, a, b) => constant(a)?.checked_mul(constant(b)?),
        _ => {
            let mut leaf = true;
            for_each_child(expr, &mut |_| leaf = false);
            leaf.then_some(0)
        }
    }
}

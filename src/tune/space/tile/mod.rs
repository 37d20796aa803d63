//! The rule `tile`: multi-level tiling of reductions.
//!
//! `C[x, y] = sum(A[x, k] * B[k, y])`: a tile of `rows` × `width` results stays in registers while
//! terms are added, so that each element of `A` is used for all lanes and each vector of `B` for
//! all rows. Where a third axis reads something again, as the taps of a window or the rows of an
//! image do, a tile may have several elements along it, too. Loops over tiles have two levels:
//! those over blocks, and those over the tiles of one block, which use again what the caches hold.
//! Terms may be taken in blocks, too: all tiles of a block of results take a block of terms before
//! any takes the next one. Each element meets its terms in the order of the source.
//!
//! `choose` has the default sizes, `ask` asks for all of them, `write` writes the directives.

mod choices;
pub(super) mod default_tile;
mod write;

use super::Fit;
use super::facts::{StageFacts, stores_along};
use super::plan::{Planner, Tail};
use super::view::Stride;

/// Reductions with so few terms are windows: all terms are written out.
const MAX_WINDOW: i64 = 32;

/// What is tiled.
pub(super) struct Subject {
    /// The stage with the loops over tiles.
    pub(super) home: usize,
    /// The reduction: the same stage, or one that it reads one by one.
    pub(super) sum: usize,
    /// For each data axis of the reduction the axis of the home.
    pub(super) map: Vec<usize>,
}

/// How it is tiled. Axes are data axes of the reduction.
struct Tiling {
    lane: usize,
    width: i64,
    row: Option<usize>,
    rows: i64,
    /// A third axis of a tile, and its elements along it.
    third: Option<(usize, i64)>,
    /// The sums are kept where the results are.
    in_place: bool,
    /// Tiles of a block, per axis; 0 for all of them.
    blocks: Vec<i64>,
    /// Axes in order: loops over blocks, then loops over the tiles of a block.
    outer: Vec<usize>,
    inner: Vec<usize>,
    /// Values of the first reduction axis that a block of tiles takes at once; 0 for all.
    terms: i64,
    unroll: Unroll,
    /// A row meets all its terms before the next row does.
    by_row: bool,
    /// Reads that are packed, by index, each with the axis that becomes the last dimension.
    packed: Vec<(usize, usize)>,
    /// The read whose vectors are asked for ahead of time, and so many iterations ahead of the
    /// innermost loop over terms that is not written out.
    ahead: Option<(usize, i64)>,
    /// The rows of results are written out where they are stored.
    flat_rows: bool,
    tail: Tail,
}

/// Which loops over terms are written out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Unroll {
    Nothing,
    /// So many of the innermost ones.
    Loops(usize),
    /// So many iterations of the innermost one.
    Part(i64),
}

pub(super) fn fits(planner: &Planner, at: usize) -> Fit {
    let Some(subject) = subject(planner, at) else { return Fit::No };
    let facts = &planner.facts;
    if planner.plans[at].anchor.is_some() {
        // A product inside of loops of others has no packed factors.
        return if lane_axes(facts, subject.sum, false).is_empty() {
            Fit::No
        } else {
            Fit::Possible
        };
    }
    if lane_axes(facts, subject.sum, true).is_empty() {
        return Fit::No;
    }
    match facts.products[subject.sum].is_some() || is_window(planner, subject.sum) {
        true => Fit::Best,
        false => Fit::Possible,
    }
}

pub(super) fn apply(planner: &mut Planner, at: usize) {
    let subject = subject(planner, at).expect("the rule fits");
    let form = choices::choose(planner, &subject);
    write::write(planner, &subject, &form);
}

/// Whether a reduction has few terms, and results enough for whole vectors.
pub(super) fn is_window(planner: &Planner, at: usize) -> bool {
    let facts = &planner.facts;
    let lanes = i64::from(planner.target.lanes(facts.views[at].dtype));
    let view = &facts.views[at];
    let whole = |axis: &usize| stores_along(view, *axis) && view.data[*axis].size() >= lanes;
    let few = terms(facts, at).is_some_and(|terms| terms <= MAX_WINDOW);
    few && lane_axes(facts, at, false).iter().any(whole)
}

/// The terms of an element, if that is known.
fn terms(facts: &StageFacts, at: usize) -> Option<i64> {
    facts.views[at].reduce.iter().try_fold(1i64, |n, axis| n.checked_mul(axis.extent?))
}

/// The reduction that a stage is, or that it reads one by one.
fn subject(planner: &Planner, at: usize) -> Option<Subject> {
    let views = &planner.facts.views;
    if views[at].tuple || planner.target.is_gpu() {
        return None;
    }
    if views[at].reduction.is_some() {
        return Some(Subject { home: at, sum: at, map: (0..views[at].data.len()).collect() });
    }
    if planner.plans[at].anchor.is_some() {
        return None;
    }
    let (sum, map) = producer(planner, at)?;
    Some(Subject { home: at, sum, map })
}

/// The reduction that a stage without one reads one by one, and for each axis of the reduction
/// the axis of the reader.
pub(super) fn producer(planner: &Planner, at: usize) -> Option<(usize, Vec<usize>)> {
    let facts = &planner.facts;
    let reader = &facts.views[at];
    for stage in (0..at).rev() {
        let view = &facts.views[stage];
        let single = facts.readers(stage).count() == 1;
        if view.reduction.is_none() || view.tuple || view.output || !single {
            continue;
        }
        if !reader.reads(stage) || planner.plans[stage].pinned {
            continue;
        }
        let mut maps = reader.loads.iter().filter(|load| load.of == Some(stage)).map(|load| {
            let axis = |index: &crate::ir::Expr| {
                let var = index.as_var()?;
                reader.data.iter().position(|axis| axis.var == *var)
            };
            load.indices.iter().map(axis).collect::<Option<Vec<usize>>>()
        });
        let Some(Some(map)) = maps.next() else { continue };
        let all = (0..reader.data.len()).all(|axis| map.contains(&axis));
        let same = |axis: usize| reader.data[map[axis]].extent == view.data[axis].extent;
        let one_by_one = all && map.len() == reader.data.len() && (0..map.len()).all(same);
        if one_by_one && maps.all(|other| other.as_ref() == Some(&map)) {
            return Some((stage, map));
        }
    }
    None
}

/// The axes of a reduction that can be in lanes: what is read lies next to each other, or can be
/// packed so.
fn lane_axes(facts: &StageFacts, at: usize, pack: bool) -> Vec<usize> {
    let view = &facts.views[at];
    let several = |axis: usize| view.data[axis].extent.is_none_or(|extent| extent >= 2);
    let near = |axis: usize| {
        let var = &view.data[axis].var;
        view.loads.iter().all(|load| match load.stride(var) {
            Stride::Zero => true,
            Stride::By(step) if step.abs() <= 4 => true,
            _ => {
                let again = |other: usize| several(other) && !load.mentions(&view.data[other].var);
                pack && facts.packed_dim(at, load, axis).is_some()
                    && (0..view.data.len()).any(again)
            }
        })
    };
    (0..view.data.len()).filter(|axis| several(*axis) && near(*axis)).collect()
}

//! The rule `tile`: multi-level tiling of reductions.
//!
//! `C[x, y] = sum(A[x, k] * B[k, y])`: a tile of `rows` × `width` results stays in registers while
//! terms are added, so that each element of `A` is used for all lanes and each vector of `B` for
//! all rows. If a third axis reuses data, such as the taps of a window or the rows of an image, a
//! tile may have several elements along it, too. Loops over tiles have two levels: those over
//! blocks, and those over the tiles of a block, which reuse data in the caches. Terms may be
//! blocked, too: all tiles of a block take a block of terms before any takes the next one. The
//! terms of each element stay in the order of the source.
//!
//! `default_tile` computes the default sizes, `choices` offers the choices, `write` writes the
//! directives, `pack` those of packed copies. `dot` finds the products of bytes that an instruction
//! of the target adds up.

mod choices;
pub(super) mod default_tile;
mod dot;
mod pack;
mod write;

use self::dot::Dot;
pub(super) use self::dot::FEWEST;
use super::Fit;
use super::facts::{StageFacts, stores_along};
use super::plan::{Planner, Tail};
use super::view::Stride;

/// Reductions with at most this many terms are windows: all terms are unrolled.
pub(super) const MAX_WINDOW: i64 = 32;
/// The most vectors that unrolled reduction loops write out.
pub(super) const MAX_UNROLLED_VECTORS: i64 = 512;
/// Up to this many vectors, unrolling is the default.
pub(super) const MAX_DEFAULT_UNROLLED_VECTORS: i64 = 96;

/// The reduction to tile.
pub(super) struct Subject {
    /// The stage with the loops over tiles.
    pub(super) home: usize,
    /// The reduction: the same stage, or one that it reads element by element.
    pub(super) sum: usize,
    /// For each data axis of the reduction, the axis of the home.
    pub(super) map: Vec<usize>,
}

/// The tiling. Axes are data axes of the reduction.
struct Tiling {
    lane: usize,
    width: i64,
    row: Option<usize>,
    rows: i64,
    /// A third axis of a tile, and its elements along it.
    third: Option<(usize, i64)>,
    /// Whether the sums are computed in the output.
    in_place: bool,
    /// The instruction that adds the terms.
    dot: Option<Dot>,
    /// Tiles of a block per axis; 0 for all.
    blocks: Vec<i64>,
    /// The order of axes: loops over blocks, then loops over the tiles of a block.
    outer: Vec<usize>,
    inner: Vec<usize>,
    /// Values of the first reduction axis in a block of terms; 0 for all.
    terms: i64,
    unroll: Unroll,
    /// Whether a row takes all its terms before the next row does.
    by_row: bool,
    /// Packed reads, by index.
    packed: Vec<(usize, Pack)>,
    /// The prefetched read, and the distance in iterations of the innermost reduction loop that is
    /// not unrolled.
    prefetched: Option<(usize, i64)>,
    /// Whether the rows are unrolled where results are stored.
    flat_rows: bool,
    tail: Tail,
}

/// How the elements of a packed copy are ordered.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Pack {
    /// Those of a tile along this axis are neighbours.
    Panels(usize),
    /// Those at this stride in the last dimension are neighbours: a phase after the other.
    Phases(i64),
}

/// Which reduction loops are unrolled.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Unroll {
    Nothing,
    /// This many of the innermost ones.
    Loops(usize),
    /// This many iterations of the innermost one.
    Part(i64),
}

pub(super) fn fits(planner: &Planner, at: usize) -> Fit {
    let Some(subject) = subject(planner, at) else { return Fit::No };
    let facts = &planner.facts;
    if planner.plans[at].anchor.is_some() {
        // A product at a loop of another stage has no packed factors.
        return if lane_axes(facts, subject.sum, false).is_empty() {
            Fit::No
        } else {
            Fit::Possible
        };
    }
    if lane_axes(facts, subject.sum, true).is_empty() {
        return Fit::No;
    }
    // The factor that each step of a recurrence reads again is packed in front of it.
    let in_steps = facts.views[subject.sum].recurrence.is_some()
        && lane_axes(facts, subject.sum, false).is_empty();
    match facts.products[subject.sum].is_some() || is_window(planner, subject.sum) || in_steps {
        true => Fit::Best,
        false => Fit::Possible,
    }
}

pub(super) fn apply(planner: &mut Planner, at: usize) {
    let subject = subject(planner, at).expect("the rule fits");
    let form = choices::choose(planner, &subject);
    write::write(planner, &subject, &form);
}

/// Whether a reduction has few terms, and enough results for whole vectors.
pub(super) fn is_window(planner: &Planner, at: usize) -> bool {
    let facts = &planner.facts;
    let lanes = i64::from(planner.target.lanes(facts.views[at].dtype));
    let view = &facts.views[at];
    let whole = |axis: &usize| stores_along(view, *axis) && view.data[*axis].size() >= lanes;
    let few = terms(facts, at).is_some_and(|terms| terms <= MAX_WINDOW);
    few && lane_axes(facts, at, false).iter().any(whole)
}

/// Returns the number of terms of an element, if known.
pub(super) fn terms(facts: &StageFacts, at: usize) -> Option<i64> {
    facts.views[at].reduce.iter().try_fold(1i64, |n, axis| n.checked_mul(axis.extent?))
}

/// Returns the reduction that a stage is, or that it reads element by element.
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

/// Returns the reduction that an elementwise stage reads element by element, and for each axis of
/// the reduction the axis of the reader.
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
        let mut maps =
            reader.loads.iter().filter(|load| load.producer == Some(stage)).map(|load| {
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

/// Returns the axes of a reduction that can be vectorized: reads along them are contiguous, or can
/// be packed.
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
                let pays = load.packed_once || (0..view.data.len()).any(again);
                pack && pays && facts.packed_dim(at, load, axis).is_some()
            }
        })
    };
    (0..view.data.len()).filter(|axis| several(*axis) && near(*axis)).collect()
}

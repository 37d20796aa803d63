//! The rule for steps along two axes: waves of steps that do not read each other.
//!
//! In a table in which each cell reads its neighbours above and to the left, the cells of a
//! diagonal are independent: they are lanes, or the tiles of a diagonal are shared by threads. If
//! each cell reads rows above only, those of a row are independent.

use super::Fit;
use super::plan::{MIN_PARALLEL_WORK, Planner};
use crate::te::StepRead;

/// The axes of the steps: the ones that a wave combines.
const AXES: usize = 2;
/// The largest factor of a skew. The waves are short where it is large.
const MAX_FACTOR: i64 = 4;
/// Vectors of a wave per iteration.
const VECTORS: [i64; 2] = [1, 2];
/// Steps along both sides of a tile, for threads.
const TILES: [i64; 3] = [64, 128, 256];

/// How the steps are shared out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waves {
    None,
    Rows,
    Lanes,
    Tiles,
}

pub(super) fn fits(planner: &Planner, at: usize) -> Fit {
    let facts = &planner.facts;
    let view = &facts.views[at];
    let alone = |other: usize| {
        other == at
            || facts.views[other].inlined
            || facts.views[other].recurrence != view.recurrence
    };
    let is_table = view.recurrence.is_some()
        && view.steps == AXES
        && view.data.len() == AXES
        && view.reduce.is_empty()
        && view.reduction.is_none()
        && !view.tuple;
    if !is_table || planner.target.is_gpu() || !(0..facts.views.len()).all(alone) {
        return Fit::No;
    }
    let reads = &view.step_reads;
    let in_rows = are_rows_independent(reads);
    let none = !in_rows && lane_factor(reads).is_none() && !are_tiles_legal(reads);
    // Only the last waves are stored if nothing else reads the others; then lanes are contiguous.
    match (none, in_rows || !view.output) {
        (true, _) => Fit::No,
        (false, false) => Fit::Possible,
        (false, true) => Fit::Best,
    }
}

/// Whether each step reads earlier rows only.
fn are_rows_independent(reads: &[StepRead]) -> bool {
    reads.iter().all(|read| read.distances.first().is_some_and(|(least, _)| *least >= Some(1)))
}

/// Returns the smallest factor with which each step of a wave reads earlier waves only.
fn lane_factor(reads: &[StepRead]) -> Option<i64> {
    (1..=MAX_FACTOR).find(|factor| {
        reads.iter().all(|read| {
            let least = |at: usize| read.distances.get(at).and_then(|(least, _)| *least);
            let wave = |(outer, inner): (i64, i64)| outer.saturating_mul(*factor) + inner > 0;
            least(0).zip(least(1)).is_some_and(wave)
        })
    })
}

/// Whether tiles may run one after the other: no step reads a later one along any axis.
fn are_tiles_legal(reads: &[StepRead]) -> bool {
    let forward = |(least, _): &(Option<i64>, Option<i64>)| least.is_some_and(|least| least >= 0);
    reads.iter().all(|read| read.distances.iter().all(forward))
}

pub(super) fn apply(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let stage = planner.plans[at].name.clone();
    let [outer, inner] = [0, 1].map(|axis| view.data[axis].name.clone());
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let factor = lane_factor(&view.step_reads).filter(|_| lanes > 1);
    let threads = planner.threads != 1
        && view.turns.saturating_mul(view.cost) >= MIN_PARALLEL_WORK
        && are_tiles_legal(&view.step_reads);
    let mut ways = vec![Waves::None];
    if lanes > 1 && are_rows_independent(&view.step_reads) {
        ways.push(Waves::Rows);
    }
    ways.extend(factor.map(|_| Waves::Lanes));
    ways.extend(threads.then_some(Waves::Tiles));
    let names = ways.iter().map(|way| way.name().to_string()).collect();
    let in_rows = ways.contains(&Waves::Rows);
    let usual = usize::from(ways.len() > 1 && (in_rows || !view.output));
    let way = ways[planner.chooser.index(&stage, "waves", names, usual)];
    match (way, factor) {
        (Waves::Lanes, Some(factor)) => {
            let vectors = planner.chooser.pick(&stage, "vectors", &VECTORS, &VECTORS[0]);
            let why =
                format!("no step reads another one of its wave, `{}`", sum(factor, &outer, &inner));
            planner.text.rule("waves", &why);
            let place = skew(planner, &stage, (&outer, &inner), factor);
            in_lanes(planner, &stage, &place, vectors * lanes);
        }
        (Waves::Rows, _) => {
            let vectors = planner.chooser.pick(&stage, "vectors", &VECTORS, &VECTORS[1]);
            let why = format!("no step reads another one of its row, along `{inner}`");
            planner.text.rule("waves", &why);
            in_lanes(planner, &stage, &inner, vectors * lanes);
        }
        (Waves::Tiles, _) => {
            let side = planner.chooser.pick(&stage, "tile", &TILES, &TILES[1]);
            planner.text.rule("waves", "threads share the tiles of a diagonal");
            let parts = [(&outer, "_o"), (&inner, "_o"), (&outer, "_i"), (&inner, "_i")];
            let parts = parts.map(|(name, part)| planner.text.fresh(name, part));
            let names = parts.join(", ");
            planner
                .text
                .push(format!("let {names} = {stage}.tile({outer}, {inner}, {side}, {side})"));
            let place = skew(planner, &stage, (&parts[0], &parts[1]), 1);
            planner.text.push(format!("{stage}.parallel({place})"));
            planner.plans[at].parallel = true;
        }
        _ => {}
    }
    planner.plans[at].open = 0;
}

/// Vectorizes a loop.
fn in_lanes(planner: &mut Planner, stage: &str, axis: &str, width: i64) {
    let (blocks, lane) = (planner.text.fresh(axis, "_o"), planner.text.fresh(axis, "_i"));
    planner.text.push(format!("let {blocks}, {lane} = {stage}.split({axis}, factor={width})"));
    planner.text.push(format!("{stage}.vectorize({lane})"));
}

/// Writes a skew. Returns the name of the loop inside of a wave.
fn skew(planner: &mut Planner, stage: &str, (outer, inner): (&str, &str), factor: i64) -> String {
    let (wave, place) = (planner.text.fresh(stage, "_wave"), planner.text.fresh(outer, "_w"));
    let factor = if factor == 1 { String::new() } else { format!(", factor={factor}") };
    planner.text.push(format!("let {wave}, {place} = {stage}.skew({outer}, {inner}{factor})"));
    place
}

/// Returns the number of a wave as text.
fn sum(factor: i64, outer: &str, inner: &str) -> String {
    match factor {
        1 => format!("{outer} + {inner}"),
        factor => format!("{factor}*{outer} + {inner}"),
    }
}

impl Waves {
    /// The name as a choice.
    fn name(self) -> &'static str {
        match self {
            Waves::None => "none",
            Waves::Rows => "rows",
            Waves::Lanes => "lanes",
            Waves::Tiles => "tiles",
        }
    }
}

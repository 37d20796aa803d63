//! Which lines the hardware prefetcher brings: those of long runs of bytes, a few at a time.

use super::machine::MachineModel;
use super::ops::progressions;
use super::plan::{Access, CostPlan};
use rustc_hash::FxHashMap;

/// Fraction of the lines from beyond L2 that are not prefetched, where each load of an unrolled
/// loop advances by [`UNPREFETCHED_STRIDE_BYTES`] per iteration: the prefetcher follows each load
/// separately, within a page.
const UNPREFETCHED_STRIDE_FRACTION: f64 = 0.4;
/// Strides in bytes from which on some, and from which on [`UNPREFETCHED_STRIDE_FRACTION`] of the
/// lines are not prefetched.
const UNPREFETCHED_STRIDE_BYTES: std::ops::Range<f64> = 512.0..3072.0;
/// Fraction of the bytes between two iterations that an unrolled loop must read to be dense.
const MIN_DENSE_FRACTION: f64 = 0.75;

/// The prefetcher follows runs of this length.
const PREFETCHED_RUN_BYTES: f64 = 256.0;
/// The prefetcher follows at most this many streams.
const MAX_STREAMS: f64 = 16.0;
const LINE_BYTES: f64 = 64.0;
/// A run of so many times the lines that are not prefetched is one without a beginning.
const MANY_STARTS: f64 = 32.0;
/// The number of the dimension of lanes.
const LANES: usize = usize::MAX;

/// What the prefetcher follows: numbers of [`MachineModel`].
struct Prefetcher {
    run_start: f64,
    rows_in_pieces: f64,
}

impl Prefetcher {
    fn of(machine: &MachineModel) -> Prefetcher {
        Prefetcher { run_start: machine.run_start, rows_in_pieces: machine.rows_in_pieces }
    }
}

/// Returns for each access the fraction of its lines that is not prefetched, from L2 and from
/// beyond it. Accesses with the same strides share their streams: the border of a row moves with
/// the row.
pub(super) fn unprefetched_fractions(plan: &CostPlan, machine: &MachineModel) -> Vec<(f64, f64)> {
    type Beside = (usize, usize, bool, Vec<(usize, u64)>);
    let key = |access: &Access| -> Beside {
        let strides = access.strides.iter().map(|(dim, stride)| (*dim, stride.to_bits()));
        (access.frame, access.buffer, access.write, strides.collect())
    };
    let of_groups = |prefetcher: &Prefetcher| {
        let mut groups: FxHashMap<Beside, f64> = FxHashMap::default();
        for (access, fraction) in plan.accesses.iter().zip(fractions_of_runs(plan, prefetcher)) {
            let part = groups.entry(key(access)).or_insert(1.0);
            *part = part.min(fraction);
        }
        groups
    };
    let near = of_groups(&Prefetcher { run_start: 0.0, ..Prefetcher::of(machine) });
    let far = (machine.run_start > 0.0).then(|| of_groups(&Prefetcher::of(machine)));
    let parts = |access: &Access| {
        let key = key(access);
        let far = far.as_ref().unwrap_or(&near)[&key];
        (near[&key], far.max(strided_fraction(plan, access)))
    };
    plan.accesses.iter().map(parts).collect()
}

/// Returns the fraction of the lines of a load in an unrolled loop that is not prefetched because
/// the load skips lines that other iterations read.
fn strided_fraction(plan: &CostPlan, access: &Access) -> f64 {
    let own = &plan.frames[access.frame].own;
    let moves = |own_dim: bool| {
        let of = move |dim: usize| own.contains(&dim) == own_dim && dim >= own.start;
        access.strides.iter().filter(move |(dim, _)| of(*dim))
    };
    let step = moves(true).map(|(_, stride)| stride.abs()).fold(f64::INFINITY, f64::min);
    let unrolled = moves(false).filter(|(_, stride)| stride.abs() < step);
    let bytes = unrolled.map(|(dim, _)| plan.extents[*dim]).product::<f64>() * access.width;
    if access.write || bytes < MIN_DENSE_FRACTION * step || bytes <= access.width {
        return 0.0;
    }
    UNPREFETCHED_STRIDE_FRACTION
        * ((step - UNPREFETCHED_STRIDE_BYTES.start)
            / (UNPREFETCHED_STRIDE_BYTES.end - UNPREFETCHED_STRIDE_BYTES.start))
            .clamp(0.0, 1.0)
}

/// Returns the streams that an access follows: the rows that unrolled loops load, at least a page
/// apart.
pub(super) fn streams(plan: &CostPlan, access: &Access) -> f64 {
    const PAGE_BYTES: f64 = 4096.0;
    let inner = plan.frames[access.frame].own.end;
    let is_row = |(dim, step): &&(usize, f64)| *dim >= inner && step.abs() >= PAGE_BYTES;
    access.strides.iter().filter(is_row).map(|(dim, _)| plan.extents[*dim]).product()
}

/// Bytes that an access touches one after the other, and the loops around them.
struct Run {
    /// The bytes from the first to the one behind the last.
    span: (f64, f64),
    /// Dimension, stride in bytes and iterations, innermost first.
    around: Vec<(usize, f64, f64)>,
}

impl Run {
    fn bytes(&self) -> f64 {
        self.span.1 - self.span.0
    }

    /// Adds the loops that continue the run. Returns the fraction of lines that is not prefetched
    /// if the run becomes long: the prefetcher follows a few runs side by side, and runs become one
    /// where an outer loop reads what lies between them.
    fn extend(&mut self, prefetcher: &Prefetcher) -> Option<f64> {
        // Longer runs have no part that is worth counting.
        let long = PREFETCHED_RUN_BYTES.max(MANY_STARTS * prefetcher.run_start * LINE_BYTES);
        let mut apart: Vec<(usize, f64, f64)> = Vec::new();
        for outer in std::mem::take(&mut self.around) {
            apart.push(outer);
            // A gap of less than a line skips no line.
            let reach = |run: &Run| (run.bytes() + LINE_BYTES).max(2.0 * LINE_BYTES);
            while let Some(near) = apart.iter().position(|(_, step, _)| step.abs() < reach(self)) {
                let (_, step, count) = apart.remove(near);
                let moved = step * (count - 1.0);
                let before = self.span;
                self.span = (self.span.0 + moved.min(0.0), self.span.1 + moved.max(0.0));
                if self.bytes() < PREFETCHED_RUN_BYTES {
                    continue;
                }
                let in_pieces = apart.iter().find(|(dim, ..)| *dim == LANES);
                let few = prefetcher.rows_in_pieces;
                let many = few < MAX_STREAMS && in_pieces.is_some_and(|rows| rows.2 > few);
                let beside: Vec<(f64, f64)> =
                    apart.iter().map(|(_, step, count)| (step.abs(), *count)).collect();
                if many || progressions(&beside) > MAX_STREAMS {
                    // An outer loop comes too late to continue a run.
                    let ends =
                        prefetcher.run_start > 0.0 && before.1 - before.0 >= PREFETCHED_RUN_BYTES;
                    self.span = if ends { before } else { self.span };
                    return Some(if ends { self.fraction(prefetcher) } else { 1.0 });
                }
                if self.bytes() >= long {
                    return Some(self.fraction(prefetcher));
                }
            }
        }
        self.around = apart;
        None
    }

    /// Returns the fraction of the lines of a run that is not prefetched: 1 for single lines.
    fn fraction(&self, prefetcher: &Prefetcher) -> f64 {
        if prefetcher.run_start > 0.0 {
            return (prefetcher.run_start * LINE_BYTES / self.bytes()).min(1.0);
        }
        ((PREFETCHED_RUN_BYTES - self.bytes()) / (PREFETCHED_RUN_BYTES - LINE_BYTES))
            .clamp(0.0, 1.0)
    }
}

/// Returns for each access the fraction of the lines of its runs that is not prefetched: 0 for long
/// runs, 1 for single lines. The parts of a row that several loops touch are one run.
fn fractions_of_runs(plan: &CostPlan, prefetcher: &Prefetcher) -> Vec<f64> {
    let mut fractions: Vec<Option<f64>> = plan.accesses.iter().map(without_run).collect();
    let mut runs: Vec<Run> = plan.accesses.iter().map(|access| run(access, plan)).collect();
    loop {
        for (run, fraction) in runs.iter_mut().zip(&mut fractions) {
            if fraction.is_none() {
                *fraction = run.extend(prefetcher);
            }
        }
        let open: Vec<usize> = (0..runs.len()).filter(|at| fractions[*at].is_none()).collect();
        if !join(plan, &mut runs, &open) {
            let all = runs.iter().zip(&fractions);
            return all
                .map(|(run, known)| known.unwrap_or_else(|| run.fraction(prefetcher)))
                .collect();
        }
    }
}

/// Returns the fraction of an access that makes no runs; `None` for others.
fn without_run(access: &Access) -> Option<f64> {
    match access.lanes {
        _ if access.tile => Some(0.0),
        _ if access.irregular => Some(1.0),
        // Rows that are loaded in pieces are streams.
        Some((_, far)) if access.iterations <= 1.0 && far > 128.0 => Some(1.0),
        _ => None,
    }
}

fn run(access: &Access, plan: &CostPlan) -> Run {
    let loops = access.strides.iter().rev().map(|(dim, step)| (*dim, *step, plan.extents[*dim]));
    let mut around: Vec<(usize, f64, f64)> = loops.collect();
    let mut bytes = access.width;
    match access.lanes {
        Some((count, far)) if access.iterations > 1.0 => around.insert(0, (LANES, far, count)),
        Some((count, far)) => bytes += count * far,
        None => {}
    }
    Run { span: (access.first, access.first + bytes), around }
}

/// Joins runs that lie side by side in the same loops. Returns whether one became longer.
fn join(plan: &CostPlan, runs: &mut [Run], open: &[usize]) -> bool {
    type Beside = (usize, bool, Vec<(usize, u64)>);
    let mut groups: FxHashMap<Beside, Vec<usize>> = FxHashMap::default();
    for at in open {
        let access = &plan.accesses[*at];
        let around = runs[*at].around.iter().map(|(dim, step, _)| (*dim, step.to_bits()));
        groups.entry((access.buffer, access.write, around.collect())).or_default().push(*at);
    }
    let mut longer = false;
    for mut group in groups.into_values() {
        group.sort_by(|a, b| runs[*a].span.0.total_cmp(&runs[*b].span.0));
        let mut first = 0;
        while first < group.len() {
            let (from, mut to) = runs[group[first]].span;
            let mut end = first + 1;
            while end < group.len() && runs[group[end]].span.0 < to + LINE_BYTES {
                to = to.max(runs[group[end]].span.1);
                end += 1;
            }
            for at in &group[first..end] {
                longer |= runs[*at].span != (from, to);
                runs[*at].span = (from, to);
            }
            first = end;
        }
    }
    longer
}

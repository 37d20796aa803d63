//! Counts the lines and pages that each level of memory moves, from the footprints of loops.
//!
//! An iteration's *footprint* is the lines that it touches. If the footprints of several iterations
//! fit into a cache together, shared lines are fetched once; if not, every iteration fetches its
//! own. In between, the fraction of lines that survives falls steadily.

use super::index::gcd;
use super::machine::{Cache, MachineModel};
use super::plan::{Access, CostPlan};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Misses of each access in each cache and TLB, in a call, on one thread.
pub(super) struct Traffic {
    /// By access, then by level: first the caches, then the TLBs.
    pub(super) misses: Vec<Vec<f64>>,
    /// Bytes that a call touches.
    pub(super) touched: f64,
}

/// A level, with the lines of it that one thread can use.
struct Level<'m> {
    cache: &'m Cache,
    capacity: f64,
}

/// The footprint of some accesses of a buffer.
#[derive(Clone, Copy, Default)]
struct Footprint {
    /// Lines.
    lines: f64,
    /// Lines of capacity that they use: more than `lines` where they compete for few sets.
    room: f64,
}

/// Computes the traffic of a plan. `earlier` is that of the same plan with other threads.
pub(super) fn traffic(
    plan: &CostPlan,
    machine: &MachineModel,
    threads: usize,
    earlier: Option<&Traffic>,
) -> Traffic {
    let levels: Vec<Level<'_>> = machine
        .caches
        .iter()
        .chain(&machine.pages)
        .map(|cache| {
            let parts = if cache.shared { threads.max(1) as f64 } else { 1.0 };
            Level { cache, capacity: cache.bytes / parts / cache.line }
        })
        .collect();
    let mut misses = vec![vec![0.0; levels.len()]; plan.accesses.len()];
    let mut touched = 0.0;
    let groups = RefCell::default();
    for (at, level) in levels.iter().enumerate() {
        // The number of threads changes the misses of shared levels, and of those behind them.
        let nearer = at.min(machine.caches.len());
        let alone = levels[..nearer].iter().chain([level]).all(|level| !level.cache.shared);
        if let Some(earlier) = earlier.filter(|_| alone) {
            let known = misses.iter_mut().zip(&earlier.misses);
            known.for_each(|(misses, earlier)| misses[at] = earlier[at]);
            touched = earlier.touched;
            continue;
        }
        let (misses_here, prints) = (vec![0.0; plan.accesses.len()], RefCell::default());
        let mut tracker = Tracker { plan, level, misses: misses_here, groups: &groups, prints };
        tracker.frame(0);
        let all = tracker.footprints(0..plan.accesses.len(), 0);
        // Lines that fit are there from the previous call.
        let kept = kept(room(&all), level);
        tracker.misses.iter_mut().for_each(|missed| *missed *= 1.0 - kept);
        if at == 0 {
            touched = all.iter().map(|(_, print)| print.lines * level.cache.line).sum();
        }
        for (access, missed) in tracker.misses.iter().enumerate() {
            misses[access][at] = *missed;
        }
    }
    // A level misses no line that the previous level has.
    for missed in &mut misses {
        for at in 1..machine.caches.len() {
            missed[at] = missed[at].min(missed[at - 1]);
        }
    }
    Traffic { misses, touched }
}

/// Returns the lines of capacity that the footprints use. Buffers that compete for few sets mostly
/// compete for different ones.
fn room(prints: &[(usize, Footprint)]) -> f64 {
    let lines: f64 = prints.iter().map(|(_, print)| print.lines).sum();
    let crowded = prints.iter().map(|(_, print)| print.room - print.lines).fold(0.0, f64::max);
    lines + crowded
}

/// Returns the fraction of lines that survive after `room` other lines. A cache with hashed sets
/// does not evict in strict LRU order.
fn kept(room: f64, level: &Level<'_>) -> f64 {
    // Up to this part of the capacity, all lines survive. Fitted, see docs/COST-MODEL.md.
    const FULLY_KEPT_FRACTION: f64 = 0.75;
    let full = room / level.capacity;
    let hashed = level.cache.sets <= 1.0 && level.cache.line < 4096.0;
    match full {
        ..=FULLY_KEPT_FRACTION => 1.0,
        _ if hashed => (FULLY_KEPT_FRACTION / full).powi(2),
        _ => ((1.25 - full) / 0.5).clamp(0.0, 1.0),
    }
}

/// What is known of some accesses while the dimensions from one on run: by the first access, the
/// one behind the last, and the dimension.
type Known<T> = RefCell<FxHashMap<(usize, usize, usize), Rc<Vec<T>>>>;

struct Tracker<'p> {
    plan: &'p CostPlan,
    level: &'p Level<'p>,
    /// By access: lines that one run of the current frame misses.
    misses: Vec<f64>,
    /// Of all levels.
    groups: &'p Known<AccessGroup>,
    /// By buffer.
    prints: Known<(usize, Footprint)>,
}

impl Tracker<'_> {
    /// Counts one run of a frame, with all its iterations.
    fn frame(&mut self, at: usize) {
        let frame = &self.plan.frames[at];
        frame.children.iter().for_each(|child| self.frame(*child));
        self.body(at);
        if at == 0 || frame.own.is_empty() {
            // A condition: a fraction of the runs.
            let all = frame.accesses.clone();
            self.misses[all].iter_mut().for_each(|missed| *missed *= frame.trips);
            return;
        }
        let once = self.footprints(frame.accesses.clone(), frame.own.end);
        let kept = kept(room(&once), self.level);
        let whole = self.footprints(frame.accesses.clone(), frame.own.start);
        for access in frame.accesses.clone() {
            // Iterations whose elements are loaded together miss their lines once.
            let together = match &self.plan.accesses[access] {
                own if own.frame == at => own.iterations.min(frame.trips).max(1.0),
                _ => 1.0,
            };
            self.misses[access] *= frame.trips / together;
        }
        // Lines that fit are fetched once, whatever the parts of an iteration miss by themselves.
        for (buffer, whole) in whole.iter() {
            let missed = self.missed(frame.accesses.clone(), *buffer);
            let again = (missed - whole.lines).max(0.0);
            self.save(frame.accesses.clone(), *buffer, kept * again);
        }
    }

    /// Counts one iteration of a frame: its loops one after the other, and its own accesses.
    fn body(&mut self, at: usize) {
        let frame = &self.plan.frames[at];
        let mut items: Vec<Range<usize>> = Vec::new();
        let mut next = frame.accesses.start;
        for child in &frame.children {
            let inner = self.plan.frames[*child].accesses.clone();
            items.push(next..inner.start);
            next = inner.end;
            items.push(inner);
        }
        items.push(next..frame.accesses.end);
        items.retain(|item| !item.is_empty());
        let prints: Vec<Rc<Vec<(usize, Footprint)>>> =
            items.iter().map(|item| self.footprints(item.clone(), frame.own.end)).collect();
        for (item, prints) in items.iter().zip(&prints) {
            // The frame's own accesses between its loops.
            if self.plan.accesses[item.start].frame == at {
                for (buffer, print) in prints.iter() {
                    self.share_out(item.clone(), *buffer, print.lines);
                }
                if kept(room(prints), self.level) < 1.0 {
                    self.unrolled(at, item.clone());
                }
            }
        }
        let rooms: Vec<f64> = prints.iter().map(|all| room(all)).collect();
        for later in 1..items.len() {
            for (buffer, print) in prints[later].iter() {
                let seen = (0..later).rev().find_map(|earlier| {
                    let found = prints[earlier].iter().find(|(known, _)| known == buffer)?;
                    Some((earlier, found.1))
                });
                let Some((earlier, before)) = seen else { continue };
                let between: f64 = rooms[earlier + 1..later].iter().sum();
                let far = between + 0.5 * (rooms[earlier] + rooms[later]);
                let range = items[earlier].clone();
                let common = self.common(range, items[later].clone(), *buffer, frame.own.end);
                let shared = (common * print.lines).min(before.lines);
                let saved = shared * kept(far, self.level);
                self.save(items[later].clone(), *buffer, saved);
            }
        }
    }

    /// Counts the own accesses of a frame in unrolled loops whose iterations do not all fit
    /// together.
    fn unrolled(&mut self, at: usize, item: Range<usize>) {
        let dims = self.plan.frames[at].own.end..self.plan.frames[at].inner.end;
        let mut inner = self.footprints(item.clone(), dims.end);
        for (buffer, print) in inner.iter() {
            self.share_out(item.clone(), *buffer, print.lines);
        }
        for dim in dims.rev() {
            let count = self.plan.extents[dim];
            let whole = self.footprints(item.clone(), dim);
            let kept = kept(room(&inner), self.level);
            for access in item.clone() {
                if self.plan.accesses[access].strides.iter().any(|(moved, _)| *moved == dim) {
                    self.misses[access] *= count;
                }
            }
            for ((buffer, once), (_, all)) in inner.iter().zip(whole.iter()) {
                let missed = self.missed(item.clone(), *buffer);
                let again = (once.lines * count).min(missed) - all.lines;
                self.save(item.clone(), *buffer, kept * again.max(0.0));
            }
            inner = whole;
        }
    }

    /// Returns the lines of a buffer that some accesses miss.
    fn missed(&self, range: Range<usize>, buffer: usize) -> f64 {
        let of = |at: &usize| self.plan.accesses[*at].buffer == buffer;
        range.filter(of).map(|at| self.misses[at]).sum()
    }

    /// Reduces the misses of a buffer by some lines.
    fn save(&mut self, range: Range<usize>, buffer: usize, lines: f64) {
        let plan = self.plan;
        let of = |at: &usize| plan.accesses[*at].buffer == buffer;
        let all = self.missed(range.clone(), buffer);
        if all <= 0.0 {
            return;
        }
        let left = ((all - lines) / all).max(0.0);
        range.filter(of).for_each(|at| self.misses[at] *= left);
    }

    /// Distributes the misses of a buffer over its accesses, by how often these run.
    fn share_out(&mut self, range: Range<usize>, buffer: usize, lines: f64) {
        let of = |at: &usize| self.plan.accesses[*at].buffer == buffer;
        let list: Vec<usize> = range.filter(of).collect();
        let all: f64 = list.iter().map(|at| self.plan.accesses[*at].weight).sum();
        for at in list {
            let part = self.plan.accesses[at].weight / all.max(f64::MIN_POSITIVE);
            self.misses[at] = lines * part;
        }
    }

    /// Returns the fraction of what the later ones of some accesses touch in a buffer that the
    /// earlier ones touch, too, while the dimensions from `from` on run.
    fn common(
        &self,
        earlier: Range<usize>,
        later: Range<usize>,
        buffer: usize,
        from: usize,
    ) -> f64 {
        let (earlier, later) = (self.groups(earlier, from), self.groups(later, from));
        let earlier: Vec<&AccessGroup> =
            earlier.iter().filter(|group| group.buffer == buffer).collect();
        let (mut all, mut common) = (0.0, 0.0);
        for group in later.iter().filter(|group| group.buffer == buffer) {
            let lines = group.footprint(self.level.cache, self.plan.buffers[buffer].bytes).lines;
            all += lines;
            common += lines * group.covered(&earlier, self.level.cache.line).unwrap_or(1.0);
        }
        if all > 0.0 { common / all } else { 1.0 }
    }

    /// Returns the footprint of each buffer while the dimensions from `from` on run.
    fn footprints(&self, range: Range<usize>, from: usize) -> Rc<Vec<(usize, Footprint)>> {
        let key = (range.start, range.end, from);
        if let Some(known) = self.prints.borrow().get(&key) {
            return known.clone();
        }
        let groups = self.groups(range, from);
        let prints = Rc::new(footprints(self.plan, &groups, self.level.cache));
        self.prints.borrow_mut().insert(key, prints.clone());
        prints
    }

    /// Returns the groups of accesses while the dimensions from `from` on run.
    fn groups(&self, range: Range<usize>, from: usize) -> Rc<Vec<AccessGroup>> {
        let key = (range.start, range.end, from);
        let mut groups = self.groups.borrow_mut();
        let known = groups.entry(key).or_insert_with(|| {
            Rc::new(groups_of(self.plan, range, &self.plan.extents, &|dim| dim >= from))
        });
        known.clone()
    }
}

/// Returns the bytes of each buffer that accesses touch while some dimensions run, in whole sectors
/// of a GPU.
pub(super) fn touched(
    plan: &CostPlan,
    range: Range<usize>,
    extents: &[f64],
    runs: &dyn Fn(usize) -> bool,
) -> Vec<(usize, f64)> {
    let (line, bytes) = (32.0, f64::INFINITY);
    let (prefetched_cycles, unprefetched_cycles, shared) = (0.0, 0.0, true);
    let sectors = Cache {
        name: "sectors",
        bytes,
        line,
        sets: 1.0,
        shared,
        prefetched_cycles,
        unprefetched_cycles,
    };
    let all = footprints(plan, &groups_of(plan, range, extents, runs), &sectors);
    all.into_iter().map(|(buffer, print)| (buffer, print.lines * line)).collect()
}

/// Returns the groups of accesses while some dimensions run.
fn groups_of(
    plan: &CostPlan,
    range: Range<usize>,
    extents: &[f64],
    runs: &dyn Fn(usize) -> bool,
) -> Vec<AccessGroup> {
    let mut groups: Vec<AccessGroup> = Vec::new();
    for access in &plan.accesses[range] {
        let group = AccessGroup::new(access, extents, runs);
        match groups.iter_mut().find(|known| known.joins(&group)) {
            Some(known) => known.join(&group),
            None => groups.push(group),
        }
    }
    groups
}

/// Returns the footprint of each buffer.
fn footprints(plan: &CostPlan, groups: &[AccessGroup], cache: &Cache) -> Vec<(usize, Footprint)> {
    let mut all: Vec<(usize, Footprint)> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let print = group.footprint(cache, plan.buffers[group.buffer].bytes);
        let same = |other: &&AccessGroup| other.buffer == group.buffer;
        let earlier: Vec<&AccessGroup> = groups[..at].iter().filter(same).collect();
        match all.iter_mut().find(|(buffer, _)| *buffer == group.buffer) {
            Some((_, known)) => {
                known.lines = match group.covered(&earlier, cache.line) {
                    Some(covered) => known.lines + (1.0 - covered) * print.lines,
                    // They may overlap.
                    None => known.lines.max(print.lines) + 0.5 * known.lines.min(print.lines),
                };
                known.room = known.room.max(print.room) + 0.5 * known.room.min(print.room);
            }
            None => all.push((group.buffer, print)),
        }
    }
    for (buffer, print) in &mut all {
        let most = (plan.buffers[*buffer].bytes / cache.line).max(1.0).ceil();
        print.lines = print.lines.min(most);
        let mut own = groups.iter().filter(|group| group.buffer == *buffer);
        if own.all(|group| group.tile_stores) {
            // Rows of sums that share sets displace each other only, and are not read again soon.
            print.room = print.lines;
        }
    }
    all
}

/// Ends of spans, or strides with their iterations.
type Pairs = Vec<(f64, f64)>;

/// Accesses of a buffer with the same strides.
struct AccessGroup {
    buffer: usize,
    /// Strides in bytes with their iterations, ascending.
    moves: Vec<(f64, f64)>,
    /// The bytes of one iteration, from the first to the one behind the last.
    spans: Vec<(f64, f64)>,
    irregular: bool,
    /// Whether all are stores of tile registers.
    tile_stores: bool,
    /// The smallest stride of the dimensions that do not run; infinite if there is none.
    outer_stride: f64,
    /// The branches of conditions in which they stand, with the fraction of cases of each.
    branches: Vec<(usize, f64)>,
}

impl AccessGroup {
    fn new(access: &Access, extents: &[f64], runs: &dyn Fn(usize) -> bool) -> AccessGroup {
        let moving = access.strides.iter().filter(|(dim, _)| runs(*dim));
        let mut moves: Vec<(f64, f64)> =
            moving.map(|(dim, stride)| (stride.abs(), extents[*dim].max(1.0))).collect();
        moves.extend(access.lanes.map(|(count, apart)| (apart, count)));
        moves.retain(|(stride, count)| *stride > 0.0 && *count > 1.0);
        moves.sort_by(|a, b| a.0.total_cmp(&b.0));
        let resting = access.strides.iter().filter(|(dim, _)| !runs(*dim));
        let smallest = resting.map(|(_, stride)| stride.abs()).fold(f64::INFINITY, f64::min);
        AccessGroup {
            buffer: access.buffer,
            moves,
            spans: vec![(access.first, access.first + access.width)],
            irregular: access.irregular,
            tile_stores: access.tile && access.write,
            outer_stride: smallest,
            branches: vec![(access.branch, access.weight)],
        }
    }

    fn joins(&self, other: &AccessGroup) -> bool {
        self.buffer == other.buffer
            && self.irregular == other.irregular
            && self.moves == other.moves
    }

    fn join(&mut self, other: &AccessGroup) {
        self.spans.extend(&other.spans);
        self.tile_stores &= other.tile_stores;
        self.outer_stride = self.outer_stride.min(other.outer_stride);
        for branch in &other.branches {
            if !self.branches.iter().any(|known| known.0 == branch.0) {
                self.branches.push(*branch);
            }
        }
    }

    /// Returns the fraction of cases in which some of them run. Branches mostly exclude each other.
    fn weight(&self) -> f64 {
        self.branches.iter().map(|(_, weight)| weight).sum::<f64>().min(1.0)
    }

    fn footprint(&self, cache: &Cache, buffer_bytes: f64) -> Footprint {
        let Footprint { lines, room } = self.whole_footprint(cache, buffer_bytes);
        Footprint { lines: lines * self.weight(), room: room * self.weight() }
    }

    /// Returns the footprint of accesses that always run.
    fn whole_footprint(&self, cache: &Cache, buffer_bytes: f64) -> Footprint {
        let line = cache.line;
        if self.irregular {
            // Each access may touch any line.
            let count: f64 = self.moves.iter().map(|(_, count)| count).product();
            let lines = count.max(1.0).min((buffer_bytes / line).max(1.0));
            return Footprint { lines, room: lines };
        }
        let (spans, blocks) = self.spans_and_blocks(line);
        let count: f64 = blocks.iter().map(|(_, times)| times).product();
        let aligned = self.outer_stride % line == 0.0 || self.outer_stride.is_infinite();
        let lines_of = |(from, to): &(f64, f64)| {
            let span = (to - from).min(buffer_bytes);
            match aligned {
                true => (span / line).ceil(),
                false => (span / line).max(1.0) + if span < line { span / line } else { 0.5 },
            }
        };
        let each: f64 = spans.iter().map(lines_of).sum();
        let lines = (count * each).min((buffer_bytes / line).ceil().max(1.0));
        Footprint { lines, room: lines.max(self.room(cache, &blocks, each, lines)) }
    }

    /// Returns the bytes that are touched without gaps of a line, and the strides by which they are
    /// repeated, with their iterations.
    fn spans_and_blocks(&self, line: f64) -> (Pairs, Pairs) {
        let mut spans = joined(self.spans.clone(), line);
        let mut blocks: Vec<(f64, f64)> = Vec::new();
        for (stride, times) in &self.moves {
            // A gap of less than a line skips no line.
            if blocks.is_empty() && spans.iter().all(|(from, to)| *stride < to - from + line) {
                spans.iter_mut().for_each(|(_, to)| *to += stride * (times - 1.0));
                spans = joined(spans, line);
            } else {
                blocks.push((*stride, *times));
            }
        }
        (spans, blocks)
    }

    /// Returns the fraction of the bytes that others touch, too: tiles of the same rows lie side by
    /// side. `None` if others move in another way.
    fn covered(&self, others: &[&AccessGroup], line: f64) -> Option<f64> {
        if self.irregular || others.iter().any(|other| other.irregular) {
            return None;
        }
        let (spans, blocks) = self.spans_and_blocks(line);
        let mut known = Vec::new();
        for other in others {
            let (spans, repeated) = other.spans_and_blocks(line);
            if repeated != blocks {
                return None;
            }
            known.extend(spans);
        }
        let known = joined(known, line);
        let both = |(from, to): &(f64, f64)| -> f64 {
            let part = |other: &(f64, f64)| (to.min(other.1) - from.max(other.0)).max(0.0);
            known.iter().map(part).sum()
        };
        let all: f64 = spans.iter().map(|(from, to)| to - from).sum();
        Some(spans.iter().map(both).sum::<f64>() / all.max(f64::MIN_POSITIVE))
    }

    /// Returns the lines of a cache that these accesses occupy: blocks whose starts are a multiple
    /// of a power of two apart compete for few sets.
    fn room(&self, cache: &Cache, blocks: &[(f64, f64)], each: f64, lines: f64) -> f64 {
        if cache.sets <= 1.0 || blocks.is_empty() {
            return lines;
        }
        // Physical pages lie anywhere in a cache that is larger than a page.
        let near = cache.sets.min(4096.0 / cache.line);
        let far = cache.sets / near;
        let mut sets = each;
        for (stride, times) in blocks {
            let places = near * cache.line / gcd(*stride, near * cache.line).max(1.0);
            sets *= places.min(*times).max(1.0);
        }
        lines * cache.sets / (sets.min(near) * far)
    }
}

/// Joins spans with a gap of less than a line.
fn joined(mut spans: Vec<(f64, f64)>, line: f64) -> Vec<(f64, f64)> {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut all: Vec<(f64, f64)> = Vec::new();
    for (from, to) in spans {
        match all.last_mut() {
            Some((_, end)) if from < *end + line => *end = end.max(to),
            _ => all.push((from, to)),
        }
    }
    all
}

//! The cost of a warp's accesses: sectors of global memory and wavefronts of shared memory, counted
//! as the emulator counts them (`crates/nvptx-emulator/src/conflicts.rs`).
//!
//! The model evaluates the index of an access for the 32 threads of a few warps, in a few
//! iterations of the enclosing loops; the counts are means over these samples. It assumes nothing
//! about the form of an index: fused and split indices are counted exactly.

use crate::ir::{BinOp, Expr, ExprKind, UnOp, Var};
use crate::tune::model::walk::EnclosingLoop;
use rustc_hash::FxHashMap;

/// Threads of a warp.
pub(in crate::tune::model) const WARP_THREADS: usize = 32;
/// Bytes of the smallest transfer of global memory.
pub(super) const SECTOR_BYTES: i64 = 32;
/// Bytes of a line of L1.
const LINE_BYTES: i64 = 128;
/// The most bytes that a thread accesses at once.
pub(super) const MAX_ACCESS_BYTES: i64 = 16;
/// Sampled warps.
const SAMPLES: usize = 4;
/// Sampled warps under conditions.
const GUARDED_SAMPLES: usize = 48;

/// The cost of an access per execution, a mean over warps, including those without an active
/// thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::tune::model) struct WarpCost {
    /// Instructions.
    pub(in crate::tune::model) requests: f64,
    /// Sectors of 32 bytes if it is global memory, and the ideal number.
    pub(in crate::tune::model) sectors: f64,
    pub(in crate::tune::model) ideal_sectors: f64,
    /// Lines of 128 bytes if it is global memory.
    pub(in crate::tune::model) lines: f64,
    /// Wavefronts if it is shared memory, and the ideal number.
    pub(in crate::tune::model) wavefronts: f64,
    pub(in crate::tune::model) ideal_wavefronts: f64,
}

/// The context of an access.
pub(in crate::tune::model) struct AccessContext<'a> {
    /// Threads of a block along x, y, z.
    pub(in crate::tune::model) block: [i64; 3],
    /// Variables of thread indices, with the dimension x, y or z.
    pub(in crate::tune::model) threads: &'a FxHashMap<Var, usize>,
    /// The index of each other loop variable in `enclosing`.
    pub(in crate::tune::model) places: &'a FxHashMap<Var, usize>,
    /// The enclosing loops.
    pub(in crate::tune::model) enclosing: &'a [EnclosingLoop],
    /// Definitions of `let`s.
    pub(in crate::tune::model) defined: &'a FxHashMap<Var, Expr>,
    /// The enclosing conditions, all of which hold.
    pub(in crate::tune::model) guards: &'a [Expr],
}

/// Values of an expression in the threads of a warp.
type Lanes = [i64; WARP_THREADS];

/// A sampled warp in a sampled iteration.
struct Sample<'a, 'p> {
    place: &'p AccessContext<'a>,
    /// The number of the sample.
    number: usize,
    warp: i64,
    known: FxHashMap<usize, Option<Lanes>>,
}

/// The active threads of a warp, and the elements that they access.
struct Access {
    active: u32,
    elements: Lanes,
}

/// Returns the cost of a warp's access, a `write` or a load, to elements of `bytes` bytes; none if
/// the index depends on data.
pub(in crate::tune::model) fn warp_cost(
    place: &AccessContext<'_>,
    index: &Expr,
    mask: Option<&Expr>,
    (bytes, write): (i64, bool),
) -> Option<WarpCost> {
    let (base, step, count) = match &index.kind {
        ExprKind::Ramp(base, step) => (base, Some(step), i64::from(index.ty.lanes)),
        ExprKind::Broadcast(inner) => (inner, None, 1),
        _ => (index, None, 1),
    };
    let threads: i64 = place.block.iter().product();
    let warps = (threads + WARP_THREADS as i64 - 1) / WARP_THREADS as i64;
    let guarded = mask.is_some() || !place.guards.is_empty();
    let samples = if guarded { GUARDED_SAMPLES } else { SAMPLES };
    let mut accesses = Vec::with_capacity(samples);
    let mut apart = 0;
    for number in 0..samples {
        let warp = (part(number, 0) * warps as f64) as i64;
        let mut sample = Sample { place, number, warp, known: FxHashMap::default() };
        let elements = sample.lanes(base)?;
        apart = match step {
            Some(step) => sample.lanes(step)?[0],
            None => 1,
        };
        let present = (threads - warp * WARP_THREADS as i64).clamp(0, WARP_THREADS as i64);
        let mut active = ((1u64 << present) - 1) as u32;
        for guard in place.guards.iter().chain(mask) {
            // Conditions on data are taken to hold.
            if let Some(holds) = sample.lanes(guard) {
                let those = (0..WARP_THREADS).filter(|lane| holds[*lane] != 0);
                active &= those.fold(0, |all, lane| all | 1 << lane);
            }
        }
        accesses.push(Access { active, elements });
    }
    // Masked vectors are accessed element by element.
    let (width, pieces) = match count > 1 && apart == 1 && mask.is_none() {
        true => {
            let width = widest(&accesses, bytes, count);
            (width, count * bytes / width)
        }
        false => (bytes, count),
    };
    let mut all = WarpCost::default();
    for access in accesses.iter().filter(|access| access.active != 0) {
        let addresses = access.elements.map(|element| element * bytes);
        let sectors = sectors(&addresses, access.active, width);
        let wavefronts = wavefronts(&addresses, access.active, width, !write);
        let pieces = pieces as f64;
        all.requests += pieces;
        all.sectors += pieces * sectors.0;
        all.ideal_sectors += pieces * sectors.1;
        all.lines += pieces * lines(&addresses, access.active);
        all.wavefronts += pieces * wavefronts.0;
        all.ideal_wavefronts += pieces * wavefronts.1;
    }
    let mean = |sum: f64| sum / samples as f64;
    Some(WarpCost {
        requests: mean(all.requests),
        sectors: mean(all.sectors),
        ideal_sectors: mean(all.ideal_sectors),
        lines: mean(all.lines),
        wavefronts: mean(all.wavefronts),
        ideal_wavefronts: mean(all.ideal_wavefronts),
    })
}

/// Evaluates an index in the first warp, in the first iteration; none if it depends on data.
pub(in crate::tune::model) fn first_warp(place: &AccessContext<'_>, index: &Expr) -> Option<Lanes> {
    Sample { place, number: 0, warp: 0, known: FxHashMap::default() }.lanes(index)
}

/// Returns the widest access to which all addresses of a vector are aligned, in bytes.
fn widest(accesses: &[Access], bytes: i64, count: i64) -> i64 {
    let mut width = MAX_ACCESS_BYTES.min(bytes * count).max(bytes);
    let aligned = |width: i64| {
        (bytes * count) % width == 0
            && accesses.iter().all(|access| {
                let those = (0..WARP_THREADS).filter(|lane| access.active >> lane & 1 == 1);
                those.into_iter().all(|lane| access.elements[lane] * bytes % width == 0)
            })
    };
    while width > bytes && !aligned(width) {
        width /= 2;
    }
    width
}

/// Returns the sectors of an access, and the ideal number.
fn sectors(addresses: &Lanes, active: u32, bytes: i64) -> (f64, f64) {
    let mut starts: Vec<i64> = (0..WARP_THREADS)
        .filter(|lane| active >> lane & 1 == 1)
        .map(|lane| addresses[lane])
        .collect();
    starts.sort_unstable();
    starts.dedup();
    let ideal = (starts.len() as i64 * bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
    let mut touched: Vec<i64> = starts.into_iter().map(|at| at.div_euclid(SECTOR_BYTES)).collect();
    touched.dedup();
    (touched.len() as f64, ideal as f64)
}

/// Returns the lines of an access.
fn lines(addresses: &Lanes, active: u32) -> f64 {
    let those = (0..WARP_THREADS).filter(|lane| active >> lane & 1 == 1);
    let mut touched: Vec<i64> = those.map(|lane| addresses[lane].div_euclid(LINE_BYTES)).collect();
    touched.sort_unstable();
    touched.dedup();
    touched.len() as f64
}

/// Returns the wavefronts of an access to shared memory, and the ideal number: 32 banks of 4 bytes;
/// threads that access 128 bytes together form a phase, which takes as many wavefronts as the bank
/// with the most distinct words. If threads load in pairs, two phases are one.
fn wavefronts(addresses: &Lanes, active: u32, bytes: i64, load: bool) -> (f64, f64) {
    let unit = bytes.max(4);
    let groups = 128 / unit;
    let paired = load && unit > 4 && [1, 2].iter().any(|bit| in_pairs(addresses, active, *bit));
    let lanes = groups as usize * if paired { 2 } else { 1 };
    let (mut taken, mut ideal) = (0, 0);
    for first in (0..WARP_THREADS).step_by(lanes) {
        let last = (first + lanes).min(WARP_THREADS);
        let phase = (first..last).filter(|lane| active >> lane & 1 == 1);
        let units: Vec<i64> = phase.map(|lane| addresses[lane].div_euclid(unit)).collect();
        if !units.is_empty() {
            taken += turns(&units, groups);
            ideal += 1;
        }
    }
    (f64::from(taken), f64::from(ideal))
}

/// Whether threads whose numbers differ in one bit access the same address.
fn in_pairs(addresses: &Lanes, active: u32, bit: usize) -> bool {
    let is_active = |lane: usize| active >> lane & 1 == 1;
    (0..WARP_THREADS).filter(|lane| lane & bit == 0).all(|lane| {
        let both = is_active(lane) && is_active(lane | bit);
        !both || addresses[lane] == addresses[lane | bit]
    })
}

/// Returns the most distinct units that one group of banks holds.
pub(in crate::tune::model) fn turns(units: &[i64], groups: i64) -> u32 {
    let mut different = units.to_vec();
    different.sort_unstable();
    different.dedup();
    let mut load = [0u32; WARP_THREADS];
    for unit in different {
        load[unit.rem_euclid(groups) as usize] += 1;
    }
    load.into_iter().max().unwrap_or(0)
}

impl Sample<'_, '_> {
    fn lanes(&mut self, expr: &Expr) -> Option<Lanes> {
        if let Some(value) = expr.as_int() {
            return Some([i64::try_from(value).ok()?; WARP_THREADS]);
        }
        if let Some(known) = self.known.get(&expr.id()) {
            return *known;
        }
        let lanes = self.fresh(expr);
        self.known.insert(expr.id(), lanes);
        lanes
    }

    fn fresh(&mut self, expr: &Expr) -> Option<Lanes> {
        match &expr.kind {
            ExprKind::Var(var) => self.variable(var),
            ExprKind::Unary(UnOp::Not, a) => Some(self.lanes(a)?.map(|a| i64::from(a == 0))),
            ExprKind::Unary(UnOp::Neg, a) => Some(self.lanes(a)?.map(|a| -a)),
            ExprKind::Unary(UnOp::Likely, a) | ExprKind::Cast(a) | ExprKind::Broadcast(a) => {
                self.lanes(a)
            }
            ExprKind::Ramp(base, _) => self.lanes(base),
            ExprKind::Select(c, a, b) | ExprKind::IfThenElse(c, a, b) => {
                let (c, a, b) = (self.lanes(c)?, self.lanes(a)?, self.lanes(b)?);
                Some(std::array::from_fn(|at| if c[at] != 0 { a[at] } else { b[at] }))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.lanes(a)?, self.lanes(b)?);
                binary(*op, &a, &b)
            }
            _ => None,
        }
    }

    fn variable(&mut self, var: &Var) -> Option<Lanes> {
        if let Some(dim) = self.place.threads.get(var) {
            let [x, y, _] = self.place.block.map(|extent| extent.max(1));
            let first = self.warp * WARP_THREADS as i64;
            return Some(std::array::from_fn(|lane| {
                let thread = first + lane as i64;
                match dim {
                    0 => thread % x,
                    1 => thread / x % y,
                    _ => thread / x / y,
                }
            }));
        }
        if let Some(at) = self.place.places.get(var) {
            let EnclosingLoop { min, count, .. } = self.place.enclosing[*at];
            let part = part(self.number, 1 + *at);
            return Some([(min + (count * part).floor()) as i64; WARP_THREADS]);
        }
        let defined = self.place.defined.get(var)?.clone();
        self.lanes(&defined)
    }
}

/// Returns the position of a sample in the range of a variable, from 0 to 1: multiples of square
/// roots of primes are evenly distributed.
fn part(number: usize, variable: usize) -> f64 {
    const PRIMES: [f64; 12] = [2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0, 29.0, 31.0, 37.0];
    ((number as f64 + 0.5) * PRIMES[variable % PRIMES.len()].sqrt()).fract()
}

fn binary(op: BinOp, a: &Lanes, b: &Lanes) -> Option<Lanes> {
    let each = |f: &dyn Fn(i64, i64) -> i64| Some(std::array::from_fn(|at| f(a[at], b[at])));
    match op {
        BinOp::Add => each(&|a, b| a.wrapping_add(b)),
        BinOp::Sub => each(&|a, b| a.wrapping_sub(b)),
        BinOp::Mul => each(&|a, b| a.wrapping_mul(b)),
        BinOp::FloorDiv => each(&|a, b| if b == 0 { 0 } else { a.div_euclid(b) }),
        BinOp::FloorMod => each(&|a, b| if b == 0 { 0 } else { a.rem_euclid(b) }),
        BinOp::Min => each(&|a, b| a.min(b)),
        BinOp::Max => each(&|a, b| a.max(b)),
        BinOp::Eq => each(&|a, b| i64::from(a == b)),
        BinOp::Ne => each(&|a, b| i64::from(a != b)),
        BinOp::Lt => each(&|a, b| i64::from(a < b)),
        BinOp::Le => each(&|a, b| i64::from(a <= b)),
        BinOp::Gt => each(&|a, b| i64::from(a > b)),
        BinOp::Ge => each(&|a, b| i64::from(a >= b)),
        BinOp::And => each(&|a, b| i64::from(a != 0 && b != 0)),
        BinOp::Or => each(&|a, b| i64::from(a != 0 || b != 0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(f: impl Fn(i64) -> i64) -> Lanes {
        std::array::from_fn(|lane| f(lane as i64))
    }

    #[test]
    fn counts_sectors_and_wavefronts_like_the_emulator() {
        let all = !0;
        let loads = |at: &Lanes, active, bytes| wavefronts(at, active, bytes, true);
        assert_eq!(sectors(&lanes(|i| 4 * i), all, 4), (4.0, 4.0));
        assert_eq!(sectors(&lanes(|i| 4 * i + 16), all, 4), (5.0, 4.0));
        assert_eq!(sectors(&lanes(|i| 128 * i), all, 4), (32.0, 4.0));
        assert_eq!(sectors(&lanes(|_| 64), all, 4), (1.0, 1.0));
        assert_eq!(sectors(&lanes(|i| 16 * i), all, 16), (16.0, 16.0));
        assert_eq!(loads(&lanes(|i| 4 * i), all, 4), (1.0, 1.0));
        assert_eq!(loads(&lanes(|i| 8 * i), all, 4), (2.0, 1.0));
        assert_eq!(loads(&lanes(|i| 128 * i), all, 4), (32.0, 1.0));
        assert_eq!(loads(&lanes(|i| 132 * i), all, 4), (1.0, 1.0));
        assert_eq!(loads(&lanes(|i| 16 * i), all, 16), (4.0, 4.0));
        assert_eq!(loads(&lanes(|i| 32 * i), all, 16), (8.0, 4.0));
        assert_eq!(loads(&lanes(|i| 12 * i), all, 12), (4.0, 4.0));
        assert_eq!(loads(&lanes(|i| i / 16 * 512), all, 16), (2.0, 2.0));
        assert_eq!(loads(&lanes(|i| i / 2 * 16), all, 16), (2.0, 2.0));
        assert_eq!(loads(&lanes(|i| i % 2 * 16), all, 16), (2.0, 2.0));
        assert_eq!(loads(&lanes(|i| i % 8 * 16), all, 16), (4.0, 4.0));
        assert_eq!(loads(&lanes(|_| 64), all, 8), (1.0, 1.0));
        assert_eq!(loads(&lanes(|i| i % 8 * 8), all, 8), (2.0, 2.0));
        assert_eq!(wavefronts(&lanes(|_| 64), all, 16, false), (4.0, 4.0));
        assert_eq!(loads(&lanes(|i| 128 * i), 3, 4), (2.0, 1.0));
    }
}

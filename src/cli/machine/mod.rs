//! Measures the limits of this machine: operations per second, and the bandwidth of each level of
//! memory. Together they are its roofline.
//!
//! A measurement takes one to two seconds; [`cache`] keeps the result.

pub mod cache;
mod loops;

use crate::cli::cpu;
use crate::target::{Arch, SimdIsa, Target};
use crate::tune::model::{MachineModel, Measured};
use loops::{Line, STEP};
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::time::Instant;

/// The instruction set of the loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// 128 bits, separate products and sums.
    Sse,
    /// 256 bits, fused.
    Avx2,
    /// 512 bits, fused.
    Avx512,
    /// Rust loops.
    Portable,
}

impl Isa {
    /// Returns the widest instruction set of a target.
    pub fn of(target: &Target) -> Isa {
        match (target.arch, target.simd()) {
            (_, Some(SimdIsa::Avx512)) => Isa::Avx512,
            (_, Some(SimdIsa::Avx2)) => Isa::Avx2,
            (Arch::X86_64, None) => Isa::Sse,
            _ => Isa::Portable,
        }
    }

    /// Returns the name in messages and file names.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Sse => "sse",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Portable => "portable",
        }
    }

    /// Returns the instruction sets that this machine has.
    #[cfg(test)]
    fn available() -> Vec<Isa> {
        let targets = Target::all().into_iter().filter(Target::runs_here);
        targets.map(|target| Isa::of(&target)).chain([Isa::Portable]).collect()
    }

    /// Panics if this CPU lacks the instructions.
    #[cfg(target_arch = "x86_64")]
    fn assert_available(self) {
        let here = match self {
            Isa::Avx512 => std::is_x86_feature_detected!("avx512f"),
            Isa::Avx2 => {
                std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")
            }
            Isa::Sse | Isa::Portable => true,
        };
        assert!(here, "this CPU has no {}", self.name());
    }
}

/// The element type of a peak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbers {
    /// `float32`, in which 16-bit floats are computed too.
    Float32,
    /// `float64`.
    Float64,
    /// Products of 8-bit integers, summed as `int32`.
    Int8,
}

impl Numbers {
    /// All of them.
    #[cfg(test)]
    pub const ALL: [Numbers; 3] = [Numbers::Float32, Numbers::Float64, Numbers::Int8];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Numbers::Float32 => "float32",
            Numbers::Float64 => "float64",
            Numbers::Int8 => "int8",
        }
    }
}

/// The roofline of a machine for a number of threads and an instruction set. Rates are in 10^9 per
/// second, of all threads together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The version of `tec` that measured it.
    pub tec: String,
    /// The CPU's name.
    pub cpu: String,
    /// The number of CPUs that the process could use.
    pub cpus: usize,
    /// The number of threads.
    pub threads: usize,
    /// The instruction set.
    pub isa: Isa,
    /// `float32` operations; a multiply-add counts two.
    pub peak_f32: f64,
    /// `float64` operations.
    pub peak_f64: f64,
    /// Operations on products of 8-bit integers, summed as `int32`.
    pub peak_i8: f64,
    /// Nearest first, the main memory last.
    pub levels: Vec<Level>,
}

/// A level of memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Level {
    /// `L1`, …, `DRAM`.
    pub name: String,
    /// The capacity of all threads together in bytes; none for main memory.
    pub bytes: Option<u64>,
    /// Bandwidth of reads.
    pub read: f64,
    /// Bandwidth of `c = a + s*b`: two thirds are reads, one third writes.
    pub triad: f64,
}

/// One of the limits, to measure interleaved with a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Multiply-adds on registers.
    Peak(Numbers),
    /// Reading from a level, by its index.
    Read(usize),
    /// `c = a + s*b` in a level.
    Triad(usize),
}

/// The loop of a limit, with its memory.
pub struct LimitLoop {
    isa: Isa,
    limit: Limit,
    /// One array for each thread.
    arrays: Vec<Vec<Line>>,
}

/// Windows of a measurement; the best one counts. They are shorter than the time slices of a busy
/// system, so that some are undisturbed.
const WINDOWS: usize = 40;

/// Seconds of a window.
const WINDOW_SECONDS: f64 = 0.002;

/// Seconds before the windows, in which the clock frequency settles.
const WARM_UP_SECONDS: f64 = 0.02;

/// Seconds after which no window begins, once [`MIN_WINDOWS`] are done: a pass over the array for
/// main memory can take 0.1 s.
const MAX_SECONDS: f64 = 0.5;

/// Windows that are measured however long they take.
const MIN_WINDOWS: usize = 3;

impl Machine {
    /// Returns the cost model's machine with the measured numbers.
    pub fn refine(&self, typical: MachineModel) -> MachineModel {
        typical.measured(&Measured {
            threads: self.threads,
            peak_f32: self.peak_f32,
            levels: self.levels.iter().map(|level| (level.bytes, level.read)).collect(),
        })
    }

    /// Returns the limits from the cache, unless `fresh`; or measures and caches them.
    pub fn known(isa: Isa, threads: usize, fresh: bool) -> Machine {
        let kept = if fresh { None } else { cache::load(isa, threads) };
        kept.unwrap_or_else(|| {
            let machine = Machine::measure(isa, threads);
            if let Err(why) = cache::store(&machine) {
                eprintln!("note: the machine's limits are not kept: {why}");
            }
            machine
        })
    }

    /// Measures all limits.
    pub fn measure(isa: Isa, threads: usize) -> Machine {
        let best = |limit| {
            let mut work = LimitLoop::new(isa, limit, threads);
            work.window(WARM_UP_SECONDS);
            let start = Instant::now();
            let in_time = || start.elapsed().as_secs_f64() < MAX_SECONDS;
            let windows = (0..WINDOWS).take_while(|at| *at < MIN_WINDOWS || in_time());
            windows.map(|_| work.window(WINDOW_SECONDS)).fold(0.0, f64::max)
        };
        let levels = sizes(threads).into_iter().enumerate().map(|(at, size)| Level {
            name: size.name,
            bytes: size.capacity,
            read: best(Limit::Read(at)),
            triad: best(Limit::Triad(at)),
        });
        Machine {
            tec: env!("CARGO_PKG_VERSION").to_string(),
            cpu: cpu::model(),
            cpus: cpu::count(),
            threads,
            isa,
            peak_f32: best(Limit::Peak(Numbers::Float32)),
            peak_f64: best(Limit::Peak(Numbers::Float64)),
            peak_i8: best(Limit::Peak(Numbers::Int8)),
            levels: levels.collect(),
        }
    }

    /// Returns the least seconds for `bytes` bytes, each from the nearest level that can hold it
    /// together with the bytes before it; `rate` returns the bandwidth of a level.
    pub fn seconds_to_move(&self, bytes: f64, rate: impl Fn(usize) -> f64) -> f64 {
        let (mut seconds, mut held) = (0.0, 0.0);
        for (at, level) in self.levels.iter().enumerate() {
            let all = level.bytes.map_or(bytes, |capacity| bytes.min(capacity as f64));
            seconds += (all - held).max(0.0) / rate(at) / 1e9;
            held = all.max(held);
        }
        seconds
    }

    /// Returns the index of the nearest level that holds `bytes` bytes.
    pub fn level_of(&self, bytes: f64) -> usize {
        let holds = |level: &Level| level.bytes.is_none_or(|capacity| bytes <= capacity as f64);
        self.levels.iter().position(holds).unwrap_or(self.levels.len() - 1)
    }

    /// Returns the rate of a limit.
    pub fn rate(&self, limit: Limit) -> f64 {
        match limit {
            Limit::Peak(Numbers::Float32) => self.peak_f32,
            Limit::Peak(Numbers::Float64) => self.peak_f64,
            Limit::Peak(Numbers::Int8) => self.peak_i8,
            Limit::Read(level) => self.levels[level].read,
            Limit::Triad(level) => self.levels[level].triad,
        }
    }

    /// Returns the name of a limit.
    pub fn name_of(&self, limit: Limit) -> String {
        match limit {
            Limit::Peak(numbers) => format!("{} peak", numbers.name()),
            Limit::Read(level) => format!("{} read", self.levels[level].name),
            Limit::Triad(level) => format!("{} triad", self.levels[level].name),
        }
    }
}

impl LimitLoop {
    /// Makes a loop, and touches its memory.
    pub fn new(isa: Isa, limit: Limit, threads: usize) -> LimitLoop {
        let bytes = |level: usize| sizes(threads)[level].each;
        // Each of a triad's three arrays takes a third; a gap between them avoids set conflicts.
        let lines = match limit {
            Limit::Peak(_) => 0,
            Limit::Read(level) => bytes(level) as usize / size_of::<Line>() / STEP * STEP,
            Limit::Triad(level) => {
                3 * triad_array_lines(bytes(level) as usize) + 2 * TRIAD_GAP_LINES
            }
        };
        let arrays = (0..threads).map(|_| vec![Line([1.0; 16]); lines]).collect();
        LimitLoop { isa, limit, arrays }
    }

    /// Runs for `seconds` on every thread, and returns 10^9 operations or bytes per second.
    pub fn window(&mut self, seconds: f64) -> f64 {
        let (isa, limit) = (self.isa, self.limit);
        if let [array] = &mut self.arrays[..] {
            return rate(isa, limit, array, seconds);
        }
        let start = Barrier::new(self.arrays.len());
        let work = |array: &mut Vec<Line>| {
            start.wait();
            rate(isa, limit, array, seconds)
        };
        std::thread::scope(|scope| {
            let work = &work;
            let arrays = self.arrays.iter_mut();
            let threads: Vec<_> = arrays.map(|array| scope.spawn(move || work(array))).collect();
            let rates = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            rates.sum()
        })
    }
}

/// Lines between the arrays of a triad.
const TRIAD_GAP_LINES: usize = 5;

/// Returns the lines of each array of a triad of `bytes` bytes.
fn triad_array_lines(bytes: usize) -> usize {
    (bytes / size_of::<Line>() / 3 / STEP * STEP).max(STEP)
}

fn rate(isa: Isa, limit: Limit, array: &mut [Line], seconds: f64) -> f64 {
    let start = Instant::now();
    let mut units = 0.0;
    loop {
        units += run_loop(isa, limit, array);
        let elapsed = start.elapsed().as_secs_f64();
        if elapsed >= seconds {
            return units / elapsed / 1e9;
        }
    }
}

/// Works for at least about ten microseconds, so that reading the clock is negligible; returns the
/// operations or bytes.
fn run_loop(isa: Isa, limit: Limit, array: &mut [Line]) -> f64 {
    const BYTES: usize = 1 << 20;
    let bytes = size_of_val(array);
    match limit {
        Limit::Peak(numbers) => loops::multiply_add(isa, numbers, 4000),
        Limit::Read(_) => {
            let passes = (BYTES / bytes).max(1);
            (0..passes).for_each(|_| loops::read(isa, array));
            (passes * bytes) as f64
        }
        Limit::Triad(_) => {
            let lines = (array.len() - 2 * TRIAD_GAP_LINES) / 3;
            let (a, rest) = array.split_at_mut(lines + TRIAD_GAP_LINES);
            let (b, c) = rest.split_at_mut(lines + TRIAD_GAP_LINES);
            let passes = (BYTES / bytes).max(1);
            (0..passes).for_each(|_| loops::triad(isa, c, &a[..lines], &b[..lines]));
            (passes * 3 * size_of_val(c)) as f64
        }
    }
}

/// The measurement of a level.
struct Size {
    name: String,
    /// The capacity of all threads together; none for main memory.
    capacity: Option<u64>,
    /// Bytes of each thread's array.
    each: u64,
}

/// Returns the levels for `threads` threads. An array fills half of a thread's share of a cache,
/// which is more than the nearer caches hold; the array for main memory is four times the last
/// cache.
fn sizes(threads: usize) -> Vec<Size> {
    // More threads than CPUs do not have more caches.
    let busy = threads.min(cpu::count()) as u64;
    let threads = threads as u64;
    let mut sizes = Vec::new();
    let mut before = 0;
    for cache in cpu::caches() {
        let capacity = cache.bytes * busy.div_ceil(cache.shared_by);
        let part = capacity / threads;
        let each = (part / 2).max(part.min(2 * before)).max(4096);
        sizes.push(Size { name: format!("L{}", cache.level), capacity: Some(capacity), each });
        before = part;
    }
    let last = sizes.last().and_then(|size| size.capacity).unwrap_or(0);
    let total = (4 * last).clamp(64 << 20, 1 << 30);
    sizes.push(Size { name: "DRAM".to_string(), capacity: None, each: total / threads });
    sizes
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a machine with an L1 of this size.
    pub(in crate::cli) fn machine(cache: u64) -> Machine {
        let level = |name: &str, bytes, read| Level {
            name: name.to_string(),
            bytes,
            read,
            triad: read / 2.0,
        };
        Machine {
            tec: "1".to_string(),
            cpu: "a CPU".to_string(),
            cpus: 2,
            threads: 1,
            isa: Isa::Avx2,
            peak_f32: 200.0,
            peak_f64: 100.0,
            peak_i8: 800.0,
            levels: vec![level("L1", Some(cache), 80.0), level("DRAM", None, 20.0)],
        }
    }

    #[test]
    fn a_kernel_is_bound_by_the_level_that_holds_it() {
        let machine = machine(1000);
        assert_eq!(machine.level_of(1000.0), 0);
        assert_eq!(machine.level_of(1001.0), 1);
        assert_eq!(machine.rate(Limit::Triad(1)), 10.0);
        assert_eq!(machine.rate(Limit::Peak(Numbers::Int8)), 800.0);
        // Bytes that the nearer levels hold come from there.
        let seconds = |bytes| machine.seconds_to_move(bytes, |at| machine.levels[at].read);
        assert_eq!(seconds(800.0), 800.0 / 80.0 / 1e9);
        assert_eq!(seconds(3000.0), 1000.0 / 80.0 / 1e9 + 2000.0 / 20.0 / 1e9);
    }

    #[test]
    fn every_limit_has_a_loop() {
        let levels = sizes(2);
        assert!(levels.last().is_some_and(|level| level.capacity.is_none()));
        for isa in Isa::available() {
            let peaks = Numbers::ALL.map(Limit::Peak).into_iter();
            for limit in peaks.chain([Limit::Read(0), Limit::Triad(0)]) {
                for threads in [1, 2] {
                    let rate = LimitLoop::new(isa, limit, threads).window(1e-4);
                    assert!(rate.is_finite() && rate > 0.0, "{isa:?} {limit:?}: {rate}");
                }
            }
        }
    }

    #[test]
    fn arrays_exceed_the_nearer_caches() {
        for threads in [1, 2, 64] {
            let sizes = sizes(threads);
            for pair in sizes.windows(2) {
                assert!(pair[0].each < pair[1].each, "{} and {}", pair[0].name, pair[1].name);
            }
        }
    }
}

//! The estimate of a kernel for a GPU: for each launch how many warps a multiprocessor holds, what
//! a warp does, how many sectors its accesses move and which banks they meet in.
//!
//! One warp stands for all. A multiprocessor takes as long as its busiest unit, but no less than
//! the blocks that it has one after the other take alone: that is where few warps, barriers and
//! loads that nothing hides show. No schedule of warps is simulated.

pub(super) mod launch;
mod product;
pub(super) mod warp;

use super::WarpCounts;
use super::machine::GpuModel;
use super::plan::{Access, Plan};
use super::traffic::touched;
use crate::ir::{Scope, ThreadIndex, Var};
use crate::target::Gpu;
use rustc_hash::FxHashMap;
use warp::SECTOR;

/// A launch of a plan.
#[derive(Default)]
pub(super) struct Launch {
    /// Its frame; those inside follow.
    pub(super) frame: usize,
    /// The first frame after it.
    pub(super) end: usize,
    /// Names of indices, with their dimension and extent.
    pub(super) indices: Vec<(ThreadIndex, usize, f64)>,
    /// Threads of a block along x, y, z.
    pub(super) block: [i64; 3],
    /// Variables that are indices of threads: along which dimension.
    pub(super) threads: FxHashMap<Var, usize>,
    /// Bytes of shared memory of a block.
    pub(super) shared: f64,
}

/// What an access is worth in a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warped {
    /// The frame in which it happens, what does not change being moved out of loops; and how often
    /// in an iteration of that.
    pub(super) spot: (usize, f64),
    /// What it takes; none if the index depends on data.
    pub(super) touch: Option<warp::Touch>,
    /// Whether something else is done before the value is needed.
    pub(super) ahead: bool,
    /// Whether it is a copy that nobody waits for here.
    pub(super) copied: bool,
}

/// A term: its name, what it takes alone, and how much there is.
pub(super) type Part = (&'static str, f64, String);

const WARP: f64 = 32.0;
/// Registers of a thread for addresses and counters.
const BASE_REGISTERS: f64 = 24.0;
/// Cycles until a load from shared memory is there.
const SHARED_LATENCY: f64 = 25.0;
/// Cycles until a load from the first cache is there.
const NEAR_LATENCY: f64 = 35.0;
/// Cycles that threads wait for each other.
const MEETING: f64 = 40.0;
/// Iterations of a short loop that `ptxas` lets overlap.
const OVERLAPPED: f64 = 4.0;
/// Sectors that the first cache gives in a cycle.
const SECTORS: f64 = 4.0;
/// Instructions to count and branch.
const COUNTING: f64 = 2.0;
/// Instructions for each address that a loop moves on.
const POINTER: f64 = 1.0;
/// Accesses for a value without a register, where it is used.
const SPILL: f64 = 2.0;

/// What one warp does in a launch.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    issued: f64,
    floats: f64,
    integers: f64,
    /// Cycles of the units for loads and stores.
    memory: f64,
    /// Cycles of the tensor cores.
    tensor: f64,
    wavefronts: f64,
    ideal_wavefronts: f64,
    sectors: f64,
    ideal_sectors: f64,
    spilled: f64,
}

/// What a multiprocessor holds of a launch.
struct Occupancy {
    warps: f64,
    blocks: f64,
    registers: f64,
    /// Registers that a thread can have.
    most: f64,
    /// Blocks at once.
    resident: f64,
    /// What keeps more from being there.
    limit: &'static str,
}

/// The terms of a launch; what its warps do is added to `total`.
pub(super) fn launch(
    plan: &Plan,
    gpu: &GpuModel,
    launch: &Launch,
    runs: &[f64],
    total: &mut WarpCounts,
) -> Vec<Part> {
    let held = occupancy(plan, gpu, launch);
    let begins = runs[launch.frame].max(1.0);
    let model = Model { plan, gpu, launch, held: &held };
    let counts = model.counts();
    // Blocks of the multiprocessor that has the most of them, and how often it is filled.
    let most = (held.blocks / gpu.processors).ceil();
    let waves = (most / held.resident).ceil();
    let moved = model.cache_bytes_of(launch.frame, held.resident) * held.blocks;
    let distinct = model.memory_bytes_of(moved);
    let far = model.latency(&counts, moved, distinct);
    let own = model.own(launch.frame, far);
    let all = most * held.warps;
    let cycles = |cycles: f64| begins * cycles / gpu.ghz * 1e-9;
    let holds = format!(
        "{} of {} warps on a multiprocessor (by {}), {waves} wave{}",
        held.resident.min(most) * held.warps,
        gpu.threads / WARP,
        held.limit,
        if waves == 1.0 { "" } else { "s" }
    );
    let short = (held.registers - held.most).max(0.0);
    let registers = format!("{short:.0} of {:.0} registers short", held.registers);
    let megabytes = |bytes: f64| format!("{:.1} MB", begins * bytes / 1e6);
    let launched = begins * held.warps * held.blocks;
    total.wavefronts += launched * counts.wavefronts;
    total.ideal_wavefronts += launched * counts.ideal_wavefronts;
    total.sectors += launched * counts.sectors;
    total.ideal_sectors += launched * counts.ideal_sectors;
    let turns = format!(
        "{} wavefronts ({}), {} sectors ({})",
        count(launched * counts.wavefronts),
        count(launched * counts.ideal_wavefronts),
        count(launched * counts.sectors),
        count(launched * counts.ideal_sectors)
    );
    let each = |what: f64| format!("{what:.0} a warp, {} warps", held.warps * held.blocks);
    vec![
        ("multiply-adds", cycles(all * counts.floats / gpu.floats), each(counts.floats)),
        ("integers", cycles(all * counts.integers / gpu.integers), each(counts.integers)),
        ("instructions", cycles(all * counts.issued / gpu.issue), each(counts.issued)),
        ("tensor cores", cycles(all * counts.tensor), each(counts.tensor)),
        ("load units", cycles(all * counts.memory / gpu.memory), turns),
        ("spills", cycles(all * counts.spilled / gpu.memory), registers),
        ("latency", cycles(waves * own), holds),
        ("L2 traffic", begins * moved / gpu.cache_rate / 1e9, megabytes(moved)),
        ("memory traffic", begins * distinct / gpu.memory_rate / 1e9, megabytes(distinct)),
    ]
}

/// A count in few digits.
fn count(count: f64) -> String {
    match count {
        n if n >= 1e7 => format!("{:.1} million", n / 1e6),
        n => format!("{n:.0}"),
    }
}

fn extent(launch: &Launch, has: fn(ThreadIndex) -> bool) -> f64 {
    let of = launch.indices.iter().filter(|(index, _, _)| has(*index));
    of.map(|(_, _, extent)| extent).product()
}

fn occupancy(plan: &Plan, gpu: &GpuModel, launch: &Launch) -> Occupancy {
    let (blocks, threads) =
        (extent(launch, ThreadIndex::is_block), extent(launch, ThreadIndex::is_thread));
    let warps = (threads / WARP).ceil();
    let frames = launch.frame..launch.end;
    let registers = frames.map(|at| registers(plan, at)).fold(0.0, f64::max);
    // The registers of one block are there for all its threads.
    let fits = (gpu.registers / (warps * WARP) / 8.0).floor() * 8.0;
    let most = fits.min(f64::from(Gpu::MAX_REGISTERS));
    let given = registers.min(most);
    let holds = |has: f64, each: f64| if each > 0.0 { (has / each).floor() } else { f64::INFINITY };
    let limits = [
        (gpu.blocks, "blocks"),
        (holds(gpu.threads, warps * WARP), "threads"),
        (holds(gpu.registers, warps * WARP * (given / 8.0).ceil() * 8.0), "registers"),
        (
            holds(gpu.shared_bytes, if launch.shared > 0.0 { launch.shared + 1024.0 } else { 0.0 }),
            "shared memory",
        ),
        ((blocks / gpu.processors).ceil(), "the grid"),
    ];
    let (resident, limit) =
        limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are some");
    Occupancy { warps, blocks, registers, most, resident: resident.max(1.0), limit }
}

/// Registers that a thread wants in a frame.
fn registers(plan: &Plan, at: usize) -> f64 {
    let work = &plan.frames[at].work;
    BASE_REGISTERS + work.accumulators + work.registers
}

struct Model<'a> {
    plan: &'a Plan,
    gpu: &'a GpuModel,
    launch: &'a Launch,
    held: &'a Occupancy,
}

impl Model<'_> {
    /// How often a warp comes to an iteration of a frame. What a condition leaves out counts: a
    /// warp of which nobody takes part has a touch of nothing.
    fn times(&self, at: usize) -> f64 {
        let frame = &self.plan.frames[at];
        if at == self.launch.frame {
            return 1.0;
        }
        let trips = if frame.own.is_empty() { 1.0 } else { frame.trips };
        trips * self.times(frame.parent)
    }

    /// The same where a condition's part of the cases counts.
    fn weighed(&self, at: usize) -> f64 {
        match at == self.launch.frame {
            true => 1.0,
            false => self.plan.frames[at].trips * self.weighed(self.plan.frames[at].parent),
        }
    }

    /// The accesses of the launch, with the times that a warp comes to them.
    fn accesses(&self) -> impl Iterator<Item = (&Access, &Warped, f64)> {
        let all = self.plan.frames[self.launch.frame].accesses.clone();
        self.plan.accesses[all].iter().filter_map(|access| {
            let warped = access.warped.as_ref()?;
            let (frame, copies) = warped.spot;
            // Before the launch nobody does anything.
            let times = if frame < self.launch.frame { 1.0 } else { self.times(frame) };
            Some((access, warped, times * copies))
        })
    }

    /// What an access takes, or about as much where nobody knows.
    fn touch(access: &Access, warped: &Warped) -> warp::Touch {
        warped.touch.unwrap_or(warp::Touch {
            requests: access.weight,
            sectors: WARP * access.weight,
            ideal_sectors: (WARP * access.width / SECTOR as f64).max(1.0) * access.weight,
            wavefronts: 4.0 * access.weight,
            ideal_wavefronts: access.weight,
        })
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for at in self.launch.frame..self.launch.end {
            let (frame, times) = (&self.plan.frames[at], self.weighed(at));
            let work = &frame.work;
            let floats = times * (work.multiplies + work.adds);
            let moving = if frame.is_loop {
                COUNTING + POINTER * self.plan.pointers(at, frame.accesses.clone())
            } else {
                0.0
            };
            let integers = times * (work.integers + moving);
            counts.floats += floats;
            counts.integers += integers;
            counts.issued += floats + integers + times * (work.meets + work.products);
            counts.tensor += times * work.tensor;
        }
        for (access, warped, times) in self.accesses() {
            let touch = Model::touch(access, warped);
            // A copy is one instruction.
            let issued = if warped.copied && access.write { 0.0 } else { touch.requests };
            counts.issued += times * issued;
            match self.plan.buffers[access.buffer].scope {
                Scope::Shared => {
                    counts.memory += times * touch.wavefronts;
                    counts.wavefronts += times * touch.wavefronts;
                    counts.ideal_wavefronts += times * touch.ideal_wavefronts;
                }
                // What threads have for themselves lies side by side.
                Scope::Local | Scope::Register => counts.memory += times * touch.requests,
                Scope::Global | Scope::Constant => {
                    counts.memory += times * (touch.sectors / SECTORS).max(touch.requests);
                    counts.sectors += times * touch.sectors;
                    counts.ideal_sectors += times * touch.ideal_sectors;
                }
            }
        }
        for at in self.launch.frame..self.launch.end {
            let short = (registers(self.plan, at) - self.held.most).max(0.0);
            counts.spilled += SPILL * short * self.weighed(at);
        }
        counts.issued += counts.spilled;
        counts
    }

    /// Cycles that an iteration of a frame takes a warp that is alone, where a load from memory
    /// takes `far`.
    fn own(&self, at: usize, far: f64) -> f64 {
        let frame = &self.plan.frames[at];
        let work = &frame.work;
        let mut cycles = work.multiplies + work.adds + work.integers + work.products + work.tensor;
        let (mut waits, mut ahead, mut copied): (f64, f64, f64) = (0.0, 0.0, 0.0);
        for access in &self.plan.accesses[frame.accesses.clone()] {
            let Some(warped) = access.warped.filter(|warped| warped.spot.0 == at) else { continue };
            let touch = Model::touch(access, &warped);
            cycles += warped.spot.1 * touch.requests;
            if access.write || touch.requests == 0.0 {
                continue;
            }
            match self.plan.buffers[access.buffer].scope {
                Scope::Shared => waits = waits.max(SHARED_LATENCY),
                Scope::Local | Scope::Register => waits = waits.max(NEAR_LATENCY),
                Scope::Global | Scope::Constant => match (warped.copied, warped.ahead) {
                    (true, _) => copied = far,
                    (false, true) => ahead = far,
                    (false, false) => waits = waits.max(far),
                },
            }
        }
        cycles = cycles.max(work.chain.max(work.depth));
        // Iterations of a short loop, in which nobody waits for others, overlap.
        let short = frame.is_loop && frame.children.is_empty() && work.meets == 0.0;
        cycles += waits / if short { frame.trips.clamp(1.0, OVERLAPPED) } else { 1.0 };
        cycles += work.meets * MEETING;
        for child in &frame.children {
            let child_at = *child;
            cycles += self.plan.frames[child_at].trips * self.own(child_at, far);
        }
        // What is fetched ahead has the whole iteration, and that of a pipeline several.
        cycles.max(ahead).max(copied / (1.0 + work.in_flight))
    }

    /// Cycles of a load from memory, some of which is in one of the caches.
    fn latency(&self, counts: &Counts, moved: f64, distinct: f64) -> f64 {
        let warps = self.held.warps * self.held.blocks;
        let asked = counts.sectors * warps * SECTOR as f64;
        let missed = if asked > 0.0 { (moved / asked).min(1.0) } else { 1.0 };
        let far = if moved > 0.0 { (distinct / moved).min(1.0) } else { 1.0 };
        let beyond = self.gpu.cache_latency + far * (self.gpu.latency - self.gpu.cache_latency);
        NEAR_LATENCY + missed * (beyond - NEAR_LATENCY)
    }

    /// Bytes that a block's accesses in one run of a frame move from the second cache: what fits
    /// into the first one comes once.
    fn cache_bytes_of(&self, at: usize, resident: f64) -> f64 {
        let frame = &self.plan.frames[at];
        let asked = self.asked(at);
        if asked <= 0.0 {
            return 0.0;
        }
        let trips = if at == self.launch.frame { 1.0 } else { frame.trips };
        let first = (self.gpu.near_bytes - resident * self.launch.shared).max(0.0) / resident;
        let from = if at == self.launch.frame { frame.inner.start } else { frame.own.start };
        let thread = |dim: usize| {
            let mut threads = self.launch.indices.iter();
            threads.any(|(index, known, _)| *known == dim && index.is_thread())
        };
        let block = |dim: usize| {
            let mut blocks = self.launch.indices.iter();
            blocks.any(|(index, known, _)| *known == dim && index.is_block())
        };
        let runs = |dim: usize| thread(dim) || dim >= from && !block(dim);
        let parts = touched(self.plan, frame.accesses.clone(), &self.plan.extents, &runs);
        let reads = |buffer: usize| self.plan.buffers[buffer].scope == Scope::Global;
        let whole: f64 =
            parts.iter().filter(|(buffer, _)| reads(*buffer)).map(|(_, bytes)| *bytes).sum();
        if whole <= first {
            return whole.min(trips * asked);
        }
        let own = self.own_bytes(at);
        let inside: f64 =
            frame.children.iter().map(|child| self.cache_bytes_of(*child, resident)).sum();
        trips * (own + inside)
    }

    /// Bytes that a block asks for in an iteration of a frame, with what is inside.
    fn asked(&self, at: usize) -> f64 {
        let inside = |child: &usize| self.plan.frames[*child].trips * self.asked(*child);
        self.own_bytes(at) + self.plan.frames[at].children.iter().map(inside).sum::<f64>()
    }

    /// The same without what is inside.
    fn own_bytes(&self, at: usize) -> f64 {
        let frame = &self.plan.frames[at];
        let mut bytes = 0.0;
        for access in &self.plan.accesses[frame.accesses.clone()] {
            let Some(warped) = access.warped.filter(|warped| warped.spot.0 == at) else { continue };
            if self.plan.buffers[access.buffer].scope == Scope::Global {
                let touch = Model::touch(access, &warped);
                bytes += warped.spot.1 * touch.sectors * SECTOR as f64 * self.held.warps;
            }
        }
        bytes
    }

    /// Bytes from memory of what is moved from the second cache: each buffer once if all of them
    /// fit in, else what each wave of blocks touches.
    fn memory_bytes_of(&self, moved: f64) -> f64 {
        let frame = &self.plan.frames[self.launch.frame];
        let (plan, gpu) = (self.plan, self.gpu);
        let of = |extents: &[f64]| -> f64 {
            let parts = touched(plan, frame.accesses.clone(), extents, &|_| true);
            let global = |buffer: usize| plan.buffers[buffer].scope == Scope::Global;
            parts.iter().filter(|(buffer, _)| global(*buffer)).map(|(_, bytes)| *bytes).sum()
        };
        let all = of(&plan.extents);
        if all <= gpu.cache_bytes {
            return all.min(moved);
        }
        let at_once = gpu.processors * self.held.resident;
        let mut left = at_once;
        let mut extents = plan.extents.clone();
        for wanted in [0, 1, 2].map(ThreadIndex::Block) {
            let index = self.launch.indices.iter().find(|(known, _, _)| *known == wanted);
            let Some((_, dim, extent)) = index else { continue };
            extents[*dim] = extent.min(left.ceil());
            left = (left / extent).max(1.0);
        }
        let waves = (self.held.blocks / at_once).max(1.0);
        (waves * of(&extents)).clamp(all.min(moved), moved)
    }
}

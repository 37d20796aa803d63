//! The estimate of a GPU kernel: for each launch the resident warps of a multiprocessor, the
//! instructions of a warp, the sectors that its accesses move, and their bank conflicts.
//!
//! All warps are taken to be alike. A multiprocessor takes as long as its busiest unit, but not
//! less than the latency of the blocks that it runs one after the other, which depends on the
//! number of warps, barriers and exposed loads. The model does not simulate a warp scheduler.

pub(super) mod launch;
mod product;
pub(super) mod warp;

use super::machine::GpuModel;
use super::plan::{Access, CostPlan};
use super::traffic::touched;
use super::{TermKind, WarpCounts};
use crate::ir::{Scope, ThreadIndex, Var};
use crate::target::Gpu;
use rustc_hash::FxHashMap;
use warp::{SECTOR_BYTES, WarpCost};

/// A launch of a plan.
#[derive(Default)]
pub(super) struct Launch {
    /// Its frame; its children follow.
    pub(super) frame: usize,
    /// One past the last frame of it.
    pub(super) end: usize,
    /// The bound indices, with their dimension and extent.
    pub(super) indices: Vec<(ThreadIndex, usize, f64)>,
    /// Threads of a block along x, y, z.
    pub(super) block: [i64; 3],
    /// Variables of thread indices, with the dimension x, y or z.
    pub(super) threads: FxHashMap<Var, usize>,
    /// Bytes of shared memory of a block.
    pub(super) shared: f64,
}

/// An access by a warp in a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarpAccess {
    /// The frame that runs it after hoisting, and how often per iteration of that frame.
    pub(super) placement: (usize, f64),
    /// Its cost; none if the index depends on data.
    pub(super) cost: Option<WarpCost>,
    /// Whether other work hides its latency.
    pub(super) latency_hidden: bool,
    /// Whether it is an asynchronous copy.
    pub(super) copied: bool,
}

/// A term: its kind, its time alone in seconds, and the amount.
pub(super) type LaunchTerm = (TermKind, f64, String);

/// Threads of a warp.
const WARP_THREADS: f64 = warp::WARP_THREADS as f64;
/// Registers of a thread for addresses and counters. This and the numbers below were fitted to
/// measurements on an H200 (docs/COST-MODEL.md).
const BASE_REGISTERS: f64 = 24.0;
/// Latency of a load from shared memory in cycles.
const SHARED_LATENCY: f64 = 25.0;
/// Latency of a load from L1 in cycles.
const L1_LATENCY: f64 = 35.0;
/// Cycles in which a multiprocessor starts one block.
const BLOCK_CYCLES: f64 = 80.0;
/// Cycles of a barrier.
const BARRIER_CYCLES: f64 = 40.0;
/// Loads from global memory in flight before a warp waits for them: `ptxas` moves the loads of
/// unrolled and of short loops ahead, but no more of them.
const IN_FLIGHT_LOADS: f64 = 12.0;
/// Sectors that L1 delivers per cycle.
const L1_SECTORS_PER_CYCLE: f64 = 4.0;
/// Wavefronts of shared memory for a sector that an asynchronous copy delivers: it is written when
/// it arrives, and copies of 16 bytes deliver a line at once.
const COPIED_SECTOR_WAVEFRONTS: f64 = 1.0;
const COPIED_LINE_WAVEFRONTS: f64 = 0.65;
/// Instructions of a loop that `ptxas` unrolls, so that their loads overlap.
const UNROLLED_INSTRUCTIONS: f64 = 280.0;
/// Warps of a multiprocessor that issue in the same cycle.
const SCHEDULERS: f64 = 4.0;
/// Instructions of a loop's counter and branch.
const LOOP_INSTRUCTIONS: f64 = 2.0;
/// Instructions for each address that a loop advances.
const POINTER_INSTRUCTIONS: f64 = 1.0;
/// Accesses for each spilled value: a store and a load.
const SPILL_ACCESSES: f64 = 2.0;
/// The cost of an access to a spilled sum: stores go to L2, and every term waits for them.
const SPILLED_SUM: f64 = 20.0;

/// The work of one warp in a launch.
#[derive(Clone, Copy, Default, Debug)]
struct WarpWork {
    issued: f64,
    floats: f64,
    integers: f64,
    /// Cycles of the load/store units.
    memory: f64,
    /// Cycles of the tensor cores.
    tensor: f64,
    wavefronts: f64,
    ideal_wavefronts: f64,
    sectors: f64,
    ideal_sectors: f64,
    spilled: f64,
}

/// The occupancy of a multiprocessor by a launch.
struct Occupancy {
    warps: f64,
    blocks: f64,
    registers: f64,
    /// The most registers of a thread.
    max_registers: f64,
    /// Resident blocks.
    resident: f64,
    /// The resource that limits the resident blocks.
    limit: &'static str,
}

/// Returns the terms of a launch, and adds the accesses of its warps to `total`.
pub(super) fn launch(
    plan: &CostPlan,
    gpu: &GpuModel,
    launch: &Launch,
    runs: &[f64],
    total: &mut WarpCounts,
) -> Vec<LaunchTerm> {
    let held = occupancy(plan, gpu, launch);
    let begins = runs[launch.frame].max(1.0);
    let model = LaunchModel { plan, gpu, launch, occupancy: &held };
    let counts = model.counts();
    // Blocks of the multiprocessor that has the most of them, and the number of waves.
    let most = (held.blocks / gpu.processors).ceil();
    let waves = (most / held.resident).ceil();
    let moved = model.cache_bytes_of(launch.frame, held.resident) * held.blocks;
    let distinct = model.memory_bytes_of(moved);
    let own = model.block_cycles(model.latency(moved, distinct), counts.issued);
    let all = most * held.warps;
    let cycles = |cycles: f64| begins * cycles / gpu.ghz * 1e-9;
    let holds = format!(
        "{} of {} warps on a multiprocessor (by {}), {waves} wave{}",
        held.resident.min(most) * held.warps,
        gpu.threads / WARP_THREADS,
        held.limit,
        if waves == 1.0 { "" } else { "s" }
    );
    let short = (held.registers - held.max_registers).max(0.0);
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
        (TermKind::MultiplyAdds, cycles(all * counts.floats / gpu.floats), each(counts.floats)),
        (TermKind::Integers, cycles(all * counts.integers / gpu.integers), each(counts.integers)),
        (TermKind::Instructions, cycles(all * counts.issued / gpu.issue), each(counts.issued)),
        (TermKind::TensorCores, cycles(all * counts.tensor), each(counts.tensor)),
        (TermKind::LoadUnits, cycles(all * counts.memory / gpu.memory), turns),
        (TermKind::Spills, cycles(all * counts.spilled / gpu.memory), registers),
        (TermKind::Blocks, cycles(most * BLOCK_CYCLES), count(begins * held.blocks)),
        (TermKind::Latency, cycles(waves * own), holds),
        (TermKind::L2Traffic, begins * moved / gpu.cache_rate / 1e9, megabytes(moved)),
        (TermKind::MemoryTraffic, begins * distinct / gpu.memory_rate / 1e9, megabytes(distinct)),
    ]
}

/// Formats a count with few digits.
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

fn occupancy(plan: &CostPlan, gpu: &GpuModel, launch: &Launch) -> Occupancy {
    let (blocks, threads) =
        (extent(launch, ThreadIndex::is_block), extent(launch, ThreadIndex::is_thread));
    let warps = (threads / WARP_THREADS).ceil();
    let frames = launch.frame..launch.end;
    let registers = frames.map(|at| registers(plan, at)).fold(0.0, f64::max);
    // A multiprocessor must hold the registers of all threads of a block.
    let fits = (gpu.registers / (warps * WARP_THREADS) / 8.0).floor() * 8.0;
    let max_registers = fits.min(f64::from(Gpu::MAX_REGISTERS));
    let given = registers.min(max_registers);
    let holds = |has: f64, each: f64| if each > 0.0 { (has / each).floor() } else { f64::INFINITY };
    let limits = [
        (gpu.blocks, "blocks"),
        (holds(gpu.threads, warps * WARP_THREADS), "threads"),
        (holds(gpu.registers, warps * WARP_THREADS * (given / 8.0).ceil() * 8.0), "registers"),
        (
            holds(gpu.shared_bytes, if launch.shared > 0.0 { launch.shared + 1024.0 } else { 0.0 }),
            "shared memory",
        ),
        ((blocks / gpu.processors).ceil(), "the grid"),
    ];
    let (resident, limit) =
        limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are some");
    Occupancy { warps, blocks, registers, max_registers, resident: resident.max(1.0), limit }
}

/// Returns the registers that a thread needs in a frame.
fn registers(plan: &CostPlan, at: usize) -> f64 {
    let work = &plan.frames[at].work;
    BASE_REGISTERS + work.accumulators + work.registers
}

struct LaunchModel<'a> {
    plan: &'a CostPlan,
    gpu: &'a GpuModel,
    launch: &'a Launch,
    occupancy: &'a Occupancy,
}

impl LaunchModel<'_> {
    /// Returns how often a warp reaches an iteration of a frame. Iterations that a condition skips
    /// count: the cost of an access without active threads is 0.
    fn times(&self, at: usize) -> f64 {
        let frame = &self.plan.frames[at];
        if at == self.launch.frame {
            return 1.0;
        }
        let trips = if frame.own.is_empty() { 1.0 } else { frame.trips };
        trips * self.times(frame.parent)
    }

    /// Returns the same, weighted by the fraction of cases in which conditions hold.
    fn weighted_bytes(&self, at: usize) -> f64 {
        match at == self.launch.frame {
            true => 1.0,
            false => self.plan.frames[at].trips * self.weighted_bytes(self.plan.frames[at].parent),
        }
    }

    /// Returns the accesses of the launch, with the number of times that a warp runs them.
    fn accesses(&self) -> impl Iterator<Item = (&Access, &WarpAccess, f64)> {
        let all = self.plan.frames[self.launch.frame].accesses.clone();
        self.plan.accesses[all].iter().filter_map(|access| {
            let warp = access.warp.as_ref()?;
            let (frame, copies) = warp.placement;
            // Nothing runs before the launch.
            let times = if frame < self.launch.frame { 1.0 } else { self.times(frame) };
            Some((access, warp, times * copies))
        })
    }

    /// Returns the cost of an access, estimated if its index depends on data.
    fn cost_of(access: &Access, warp: &WarpAccess) -> WarpCost {
        warp.cost.unwrap_or(WarpCost {
            requests: access.weight,
            sectors: WARP_THREADS * access.weight,
            ideal_sectors: (WARP_THREADS * access.width / SECTOR_BYTES as f64).max(1.0)
                * access.weight,
            lines: WARP_THREADS * access.weight,
            wavefronts: 4.0 * access.weight,
            ideal_wavefronts: access.weight,
        })
    }

    fn counts(&self) -> WarpWork {
        let mut counts = WarpWork::default();
        for at in self.launch.frame..self.launch.end {
            let (frame, times) = (&self.plan.frames[at], self.weighted_bytes(at));
            let work = &frame.work;
            let floats = times * (work.multiplies + work.adds);
            let moving = if frame.is_loop {
                LOOP_INSTRUCTIONS
                    + POINTER_INSTRUCTIONS * self.plan.pointers(at, frame.accesses.clone())
            } else {
                0.0
            };
            let integers = times * (work.integers + moving);
            counts.floats += floats;
            counts.integers += integers;
            counts.issued += floats + integers + times * (work.barriers + work.products);
            counts.tensor += times * work.tensor;
        }
        for (access, warp, times) in self.accesses() {
            let cost = LaunchModel::cost_of(access, warp);
            // An asynchronous copy is one instruction, counted at its load.
            let issued = if warp.copied && access.write { 0.0 } else { cost.requests };
            counts.issued += times * issued;
            match self.plan.buffers[access.buffer].scope {
                Scope::Shared => {
                    // Those of an asynchronous copy depend on the sectors that it reads.
                    if !warp.copied {
                        counts.memory += times * cost.wavefronts;
                    }
                    counts.wavefronts += times * cost.wavefronts;
                    counts.ideal_wavefronts += times * cost.ideal_wavefronts;
                }
                // Local memory is interleaved, so that accesses of a warp are adjacent.
                Scope::Local | Scope::Register => counts.memory += times * cost.requests,
                Scope::Global | Scope::Constant => {
                    // L1 looks one line up in a cycle.
                    let turns = (cost.sectors / L1_SECTORS_PER_CYCLE).max(cost.lines);
                    counts.memory += times * turns.max(cost.requests);
                    if warp.copied && !access.write {
                        let wide = access.width >= warp::MAX_ACCESS_BYTES as f64;
                        let each = match wide {
                            true => COPIED_LINE_WAVEFRONTS,
                            false => COPIED_SECTOR_WAVEFRONTS,
                        };
                        counts.memory += times * each * cost.sectors;
                    }
                    counts.sectors += times * cost.sectors;
                    counts.ideal_sectors += times * cost.ideal_sectors;
                }
            }
        }
        for at in self.launch.frame..self.launch.end {
            let work = &self.plan.frames[at].work;
            let most = self.occupancy.max_registers;
            let short = (registers(self.plan, at) - most).max(0.0);
            // A sum in memory is loaded and stored for every term.
            let sums = (BASE_REGISTERS + work.accumulators - most).max(0.0);
            let terms = (work.multiplies + work.adds) / work.accumulators.max(1.0);
            let spilled = short + SPILLED_SUM * sums * terms.max(1.0);
            counts.spilled += SPILL_ACCESSES * spilled * self.weighted_bytes(at);
        }
        counts.issued += counts.spilled;
        counts
    }

    /// Returns the cycles of a block that runs alone, with warps that issue `issued` instructions
    /// each. Its warps wait for each other at barriers, so what one waits for is added to what all
    /// issue in between.
    fn block_cycles(&self, far: f64, issued: f64) -> f64 {
        let own = self.lone_warp_cycles(self.launch.frame, far);
        let mut frames = self.launch.frame..self.launch.end;
        let others = (self.occupancy.warps / SCHEDULERS).max(1.0) - 1.0;
        match frames.any(|at| self.plan.frames[at].work.barriers > 0.0) {
            true => own + others * issued,
            false => own,
        }
    }

    /// Returns the cycles of an iteration of a frame for a warp that runs alone; `far` is the
    /// latency of a load that L1 misses.
    fn lone_warp_cycles(&self, at: usize, far: f64) -> f64 {
        let frame = &self.plan.frames[at];
        let work = &frame.work;
        let near = L1_LATENCY + self.missed(at) * (far - L1_LATENCY);
        let mut cycles = work.multiplies + work.adds + work.integers + work.products + work.tensor;
        let (mut ahead, mut copied): (f64, f64) = (0.0, 0.0);
        // The longest latency and the number of loads, from near and from global memory.
        let mut waits = [(0f64, 0f64); 2];
        for access in &self.plan.accesses[frame.accesses.clone()] {
            let Some(warp) = access.warp.filter(|warp| warp.placement.0 == at) else { continue };
            let cost = LaunchModel::cost_of(access, &warp);
            let scope = self.plan.buffers[access.buffer].scope;
            let global = matches!(scope, Scope::Global | Scope::Constant);
            let requests = warp.placement.1 * cost.requests;
            // L1 looks one line up in a cycle, shared memory serves one wavefront.
            let turns = match scope {
                Scope::Global | Scope::Constant => cost.lines,
                Scope::Shared => cost.wavefronts,
                Scope::Local | Scope::Register => 0.0,
            };
            cycles += requests.max(warp.placement.1 * turns);
            if access.write || cost.requests == 0.0 {
                continue;
            }
            match (global, warp.copied, warp.latency_hidden) {
                (true, true, _) => copied = far,
                (true, false, true) => ahead = near,
                _ => {
                    let latency = match self.plan.buffers[access.buffer].scope {
                        Scope::Shared => SHARED_LATENCY,
                        Scope::Local | Scope::Register => L1_LATENCY,
                        Scope::Global | Scope::Constant => near,
                    };
                    let wait = &mut waits[usize::from(global)];
                    *wait = (wait.0.max(latency), wait.1 + requests);
                }
            }
        }
        cycles = cycles.max(work.chain.max(work.depth));
        // Iterations of a short loop without barriers overlap, unrolled or not.
        let short = frame.children.is_empty() && work.barriers == 0.0;
        if work.tensor > 0.0 {
            // The fragments of the next products are loaded during the present ones.
            waits[0].1 = 0.0;
        }
        let at_once = (UNROLLED_INSTRUCTIONS / cycles.max(1.0)).clamp(1.0, frame.trips.max(1.0));
        let least = if short { 1.0 / at_once } else { 1.0 };
        let [near_loads, global_loads] = waits;
        if near_loads.1 > 0.0 {
            cycles += near_loads.0 * least;
        }
        if global_loads.1 > 0.0 {
            cycles += global_loads.0 * (global_loads.1 / IN_FLIGHT_LOADS).max(least);
        }
        cycles += work.barriers * BARRIER_CYCLES;
        for child in &frame.children {
            let child_at = *child;
            cycles += self.plan.frames[child_at].trips * self.lone_warp_cycles(child_at, far);
        }
        // The loads of a double buffer may take the whole iteration, those of a pipeline several.
        cycles.max(ahead).max(copied / (1.0 + work.in_flight))
    }

    /// Returns the mean latency of a load from L2, part of which hits.
    fn latency(&self, moved: f64, distinct: f64) -> f64 {
        let far = if moved > 0.0 { (distinct / moved).min(1.0) } else { 1.0 };
        self.gpu.cache_latency + far * (self.gpu.latency - self.gpu.cache_latency)
    }

    /// Returns the fraction of iterations of a frame in which a warp waits for L2. All loads of an
    /// iteration wait for the one that L1 misses.
    fn missed(&self, at: usize) -> f64 {
        let trips = if at == self.launch.frame { 1.0 } else { self.plan.frames[at].trips };
        let asked = self.own_bytes(at);
        let moved = self.cache_bytes_of(at, self.occupancy.resident) / trips.max(1.0);
        let sectors = asked.min(moved) / (SECTOR_BYTES as f64 * self.occupancy.warps);
        sectors.min(1.0)
    }

    /// Returns the bytes that a block loads from L2 in one run of a frame. Data that fits into L1
    /// is loaded once.
    fn cache_bytes_of(&self, at: usize, resident: f64) -> f64 {
        let frame = &self.plan.frames[at];
        let asked = self.requested_bytes(at);
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

    /// Returns the bytes that a block requests in an iteration of a frame, with its children.
    fn requested_bytes(&self, at: usize) -> f64 {
        let inside = |child: &usize| self.plan.frames[*child].trips * self.requested_bytes(*child);
        self.own_bytes(at) + self.plan.frames[at].children.iter().map(inside).sum::<f64>()
    }

    /// Returns the same without its children.
    fn own_bytes(&self, at: usize) -> f64 {
        let frame = &self.plan.frames[at];
        let mut bytes = 0.0;
        for access in &self.plan.accesses[frame.accesses.clone()] {
            let Some(warp) = access.warp.filter(|warp| warp.placement.0 == at) else { continue };
            if self.plan.buffers[access.buffer].scope == Scope::Global {
                let cost = LaunchModel::cost_of(access, &warp);
                bytes +=
                    warp.placement.1 * cost.sectors * SECTOR_BYTES as f64 * self.occupancy.warps;
            }
        }
        bytes
    }

    /// Returns the bytes that L2 loads from memory: each buffer once if all of them fit into L2,
    /// else the footprint of each wave of blocks.
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
        let at_once = gpu.processors * self.occupancy.resident;
        let mut left = at_once;
        let mut extents = plan.extents.clone();
        for wanted in [0, 1, 2].map(ThreadIndex::Block) {
            let index = self.launch.indices.iter().find(|(known, _, _)| *known == wanted);
            let Some((_, dim, extent)) = index else { continue };
            extents[*dim] = extent.min(left.ceil());
            left = (left / extent).max(1.0);
        }
        let waves = (self.occupancy.blocks / at_once).max(1.0);
        (waves * of(&extents)).clamp(all.min(moved), moved)
    }
}

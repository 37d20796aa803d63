//! The estimate of a kernel for a GPU: for each launch how many warps a multiprocessor holds, what
//! a thread does, how many sectors its warp's accesses move and which banks they meet in.
//!
//! One thread stands for all. Static counts only: no schedule of warps is simulated.

use super::machine::GpuModel;
use super::plan::{Access, Frame, Plan};
use crate::ir::Scope;

/// A launch of a plan.
pub(super) struct Launch {
    /// Its frame; those inside follow.
    pub(super) frame: usize,
    /// The first frame after it.
    pub(super) end: usize,
    /// Names of indices, with their dimension and extent.
    pub(super) indices: Vec<(&'static str, usize, f64)>,
    /// Bytes of shared memory of a block.
    pub(super) shared: f64,
}

/// A term: its name, what it takes alone, and how much there is.
pub(super) type Part = (&'static str, f64, String);

const WARP: f64 = 32.0;
/// Bytes that memory moves at least.
const SECTOR: f64 = 32.0;
/// Registers of a thread for addresses and counters.
const BASE_REGISTERS: f64 = 24.0;
/// Cycles until a load from shared memory is there.
const SHARED_LATENCY: f64 = 25.0;
/// Cycles until the result of an operation is there.
const OPERATION_LATENCY: f64 = 4.0;

/// The terms of a launch.
pub(super) fn launch(plan: &Plan, gpu: &GpuModel, launch: &Launch, runs: &[f64]) -> Vec<Part> {
    let extent = |prefix: &str| -> f64 {
        let of = launch.indices.iter().filter(|(name, _, _)| name.starts_with(prefix));
        of.map(|(_, _, extent)| extent).product()
    };
    let (blocks, threads) = (extent("blockIdx"), extent("threadIdx"));
    let warps = (threads / WARP).ceil();
    let frames = launch.frame..launch.end;
    let held = |frame: &Frame| frame.work.accumulators + frame.work.registers;
    let most = plan.frames[frames.clone()].iter().map(held).fold(0.0, f64::max);
    let registers = (BASE_REGISTERS + most).min(255.0);
    // What a multiprocessor holds at once.
    let fits = |has: f64, each: f64| if each > 0.0 { (has / each).floor() } else { f64::INFINITY };
    let resident = fits(gpu.threads, warps * WARP)
        .min(fits(gpu.registers, warps * WARP * registers))
        .min(fits(gpu.shared_bytes, launch.shared))
        .min(gpu.blocks)
        .max(1.0);
    let waves = (blocks / (gpu.processors * resident)).ceil();
    let here = resident.min((blocks / gpu.processors).ceil()) * warps * waves;
    let (mut issued, mut banks, mut waits, mut sectors) = (0.0, 0.0, 0.0, 0.0);
    let begins = runs[launch.frame].max(1.0);
    for at in frames {
        let (frame, times) = (&plan.frames[at], runs[at] / begins);
        let work = &frame.work;
        let operations = work.multiplies + work.adds + work.integers + work.divide;
        let counting = if frame.is_loop { 3.0 } else { 0.0 };
        issued += times * (operations + work.loads + work.stores + counting);
        let own = plan.accesses[frame.accesses.clone()].iter().filter(|access| access.frame == at);
        let (mut far, mut near) = (false, false);
        for access in own {
            let count = times * access.weight * copies(plan, launch, frame, access);
            match plan.buffers[access.buffer].scope {
                Scope::Shared => {
                    banks += count * conflicts(access, launch);
                    near |= !access.write;
                }
                Scope::Local | Scope::Register => banks += count,
                Scope::Global | Scope::Constant => {
                    sectors += count * sectors_of(access, launch);
                    banks += count;
                    far |= !access.write;
                }
            }
        }
        // Loads of one iteration are under way together.
        let wait = if far { gpu.latency } else { 0.0 };
        let wait = if near { wait + SHARED_LATENCY } else { wait };
        waits += times * (wait + OPERATION_LATENCY * (work.chain / OPERATION_LATENCY).max(1.0));
    }
    let cycles = |cycles: f64| begins * cycles / gpu.ghz * 1e-9;
    let moved = begins * sectors * SECTOR * warps * blocks;
    let distinct = distinct(plan, launch).min(moved);
    let holds = format!("{} warps on a multiprocessor, {waves} waves", resident * warps);
    vec![
        ("instructions", cycles(here * issued / gpu.issue), holds.clone()),
        ("load units", cycles(here * banks / gpu.memory), format!("{banks:.0} turns a thread")),
        ("latency", cycles(waves * waits), holds),
        ("L2 traffic", moved / gpu.cache_rate / 1e9, format!("{:.1} MB", moved / 1e6)),
        ("memory traffic", distinct / gpu.memory_rate / 1e9, format!("{:.1} MB", distinct / 1e6)),
    ]
}

/// How often an access happens in an iteration of its frame.
fn copies(plan: &Plan, launch: &Launch, frame: &Frame, access: &Access) -> f64 {
    let is_index = |dim: usize| launch.indices.iter().any(|(_, known, _)| *known == dim);
    let inside = access.strides.iter().filter(|(dim, _)| *dim >= frame.own.end);
    let unrolled = inside.filter(|(dim, _)| !is_index(*dim));
    unrolled.map(|(dim, _)| plan.extents[*dim]).product()
}

/// Bytes from a thread of a warp to the next one.
fn stride(access: &Access, launch: &Launch) -> f64 {
    let index = launch.indices.iter().find(|(name, _, _)| *name == "threadIdx.x");
    let of = |dim: usize| access.strides.iter().find(|(known, _)| *known == dim);
    index.and_then(|(_, dim, _)| of(*dim)).map_or(0.0, |(_, stride)| stride.abs())
}

/// Sectors that a warp's access moves.
fn sectors_of(access: &Access, launch: &Launch) -> f64 {
    let index = launch.indices.iter().find(|(name, _, _)| *name == "threadIdx.x");
    let along = index.map_or(1.0, |(_, _, extent)| extent.min(WARP));
    let rows = WARP / along;
    let each = (access.width / SECTOR).ceil();
    let row = match stride(access, launch) {
        _ if access.irregular => along * each,
        0.0 => each,
        stride => ((along - 1.0) * stride + access.width).max(SECTOR) / SECTOR,
    };
    (row.min(along * each) * rows).min(WARP * each)
}

/// Turns that a warp's access to shared memory takes.
fn conflicts(access: &Access, launch: &Launch) -> f64 {
    let wide = (access.width / 4.0).max(1.0);
    let words = (stride(access, launch) / 4.0) as u64;
    match words {
        0 => wide.min(4.0),
        words => {
            let ways = 1u64 << words.trailing_zeros().min(5);
            (ways as f64).max(wide)
        }
    }
}

/// Bytes of the global buffers that a launch accesses.
fn distinct(plan: &Plan, launch: &Launch) -> f64 {
    let frame = &plan.frames[launch.frame];
    let mut known: Vec<usize> = Vec::new();
    for access in &plan.accesses[frame.accesses.clone()] {
        let global = plan.buffers[access.buffer].scope == Scope::Global;
        if global && !known.contains(&access.buffer) {
            known.push(access.buffer);
        }
    }
    known.iter().map(|buffer| plan.buffers[*buffer].bytes).sum()
}

//! Runs a grid: blocks one after the other, the warps of a block in turns from barrier to barrier.
//!
//! The threads of a warp at the lowest position run first, so that divergent threads reconverge.
//! Findings do not stop a block, unless no thread can continue.

mod access;
mod alu;
mod atomic;
mod barrier;
mod collective;
mod copy;
mod matrix;
mod mma;
mod time_slice;
mod warp;
mod wgmma;

use self::barrier::BarrierState;
use self::warp::Warp;
use crate::counters::{Counters, InstructionCount};
use crate::decode::op::{Kernel, Special};
use crate::memory::{Access, ByteSet, Memory};
use crate::report::{Finding, FindingKind, Findings, Place};
use crate::shadow::{Race, Shadow, Stamp};

/// The parameters of a launch.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_bytes: u32,
    pub params: Vec<u8>,
    /// The seed that shuffles the order of blocks and warps.
    pub seed: Option<u64>,
    /// The largest number of thread instructions.
    pub limit: u64,
}

/// The outcome of a launch, of which a report is made.
pub(crate) struct Outcome {
    pub findings: Vec<Finding>,
    pub counters: Counters,
}

/// The counts of an instruction.
#[derive(Clone, Copy, Default)]
struct Count {
    warps: u64,
    threads: u64,
    wavefronts: u64,
    ideal_wavefronts: u64,
    sectors: u64,
    ideal_sectors: u64,
}

/// The state of a launch except for the warps.
struct Machine<'a> {
    kernel: &'a Kernel,
    setup: &'a Setup,
    memory: &'a mut Memory,
    /// The shadows of the writable buffers, by their index in the memory.
    shadows: Vec<Option<Shadow>>,
    shared: Shared,
    counts: Vec<Count>,
    findings: Findings,
    /// The running block: its place in the grid and its number in the order of execution.
    block_at: [u32; 3],
    block_number: u64,
    executed: u64,
    is_stopped: bool,
    barriers: Vec<BarrierState>,
}

/// The shared memory of the running block.
struct Shared {
    data: Vec<u8>,
    mapped: ByteSet,
    init: ByteSet,
    shadow: Shadow,
    /// For each word of 4 bytes: the thread plus 1 whose copy to it is in flight.
    in_flight: Vec<u16>,
    copies: u32,
    /// For each word of 4 bytes in kernels with `wgmma`: the thread plus 1 that wrote it and has
    /// not passed a `fence.proxy.async` since.
    unfenced: Vec<u16>,
    /// For each piece of 16 bytes in such kernels: the number of products that may read it.
    read_by_products: Vec<u32>,
}

/// Runs the kernel. The results are in the memory.
pub(crate) fn run(kernel: &Kernel, setup: &Setup, memory: &mut Memory) -> Outcome {
    let shared = Shared::new(kernel, setup.dynamic_bytes);
    let shadows = (0..memory.count())
        .map(|at| {
            let buffer = memory.buffer(at);
            let bytes = buffer.data.len();
            (buffer.access != Access::Read).then(|| Shadow::new(bytes, kernel.global_granule, true))
        })
        .collect();
    let mut machine = Machine {
        kernel,
        setup,
        memory,
        shadows,
        shared,
        counts: vec![Count::default(); kernel.code.len()],
        findings: Findings::new(),
        block_at: [0; 3],
        block_number: 0,
        executed: 0,
        is_stopped: false,
        barriers: Vec::new(),
    };
    machine.grid();
    let counters = machine.counters();
    let findings = machine.findings.finish(&kernel.name);
    Outcome { findings, counters }
}

impl Shared {
    fn new(kernel: &Kernel, dynamic_bytes: u32) -> Self {
        let dynamic = kernel.dynamic_offset as usize;
        let len = (dynamic + dynamic_bytes as usize).next_multiple_of(16);
        let mut mapped = ByteSet::new(len, false);
        for var in &kernel.shared {
            mapped.add_range(var.offset as usize, var.bytes as usize);
        }
        mapped.add_range(dynamic, dynamic_bytes as usize);
        Shared {
            data: vec![0xcb; len],
            mapped,
            init: ByteSet::new(len, false),
            shadow: Shadow::new(len, kernel.shared_granule, false),
            in_flight: vec![0; len / 4],
            copies: 0,
            unfenced: vec![0; if kernel.uses_wgmma { len / 4 } else { 0 }],
            read_by_products: vec![0; if kernel.uses_wgmma { len / 16 } else { 0 }],
        }
    }

    fn restart(&mut self) {
        self.init.clear();
        if self.copies > 0 {
            self.in_flight.fill(0);
            self.copies = 0;
        }
        self.unfenced.fill(0);
        self.read_by_products.fill(0);
    }
}

impl Machine<'_> {
    fn grid(&mut self) {
        let [x, y, z] = self.setup.grid.map(u64::from);
        let blocks = x * y * z;
        let threads: u32 = self.setup.block.iter().product();
        let mut warps: Vec<Warp> =
            (0..threads.div_ceil(32)).map(|i| Warp::new(i, self.kernel)).collect();
        let order = Order::new(self.setup.seed, blocks);
        let warp_order: Vec<usize> = {
            let order = Order::new(self.setup.seed, warps.len() as u64);
            (0..warps.len() as u64).map(|i| order.at(i) as usize).collect()
        };
        for number in 0..blocks {
            let at = order.at(number);
            self.block_at = [(at % x) as u32, (at / x % y) as u32, (at / (x * y)) as u32];
            self.block_number = number + 1;
            self.block(&mut warps, &warp_order);
            if self.is_stopped {
                break;
            }
        }
    }

    fn block(&mut self, warps: &mut [Warp], order: &[usize]) {
        self.shared.restart();
        self.barriers = vec![BarrierState::default(); 16];
        let threads: u32 = self.setup.block.iter().product();
        for warp in warps.iter_mut() {
            let lanes = (threads - warp.index * 32).min(32);
            warp.restart(if lanes == 32 { !0 } else { (1 << lanes) - 1 });
            self.fill_specials(warp);
        }
        loop {
            let mut progress = false;
            for at in order {
                if warps[*at].is_ready() {
                    progress = true;
                    let event = self.run_time_slice(&mut warps[*at]);
                    self.check_limit(&warps[*at]);
                    self.complete_barriers(event, warps);
                }
                if self.is_stopped {
                    return;
                }
            }
            if warps.iter().all(|w| w.live == 0) {
                return;
            }
            if !progress {
                self.report_deadlock(warps);
                return;
            }
        }
    }

    fn fill_specials(&self, warp: &mut Warp) {
        let [x, y, _] = self.setup.block;
        let kernel = self.kernel;
        for (special, row) in &kernel.specials {
            let per_lane = |i: u32| {
                let tid = warp.index * 32 + i;
                match special {
                    Special::Tid(0) => tid % x,
                    Special::Tid(1) => tid / x % y,
                    Special::Tid(_) => tid / (x * y),
                    Special::Ntid(axis) => self.setup.block[*axis],
                    Special::Ctaid(axis) => self.block_at[*axis],
                    Special::Nctaid(axis) => self.setup.grid[*axis],
                    Special::LaneId => i,
                    Special::WarpId => warp.index,
                    Special::NWarpId => self.setup.block.iter().product::<u32>().div_ceil(32),
                    Special::SmId | Special::GridId => 0,
                    Special::NSmId => 1,
                    Special::LaneMask(0) => 1 << i,
                    Special::LaneMask(1) => (1u32 << i) | ((1 << i) - 1),
                    Special::LaneMask(2) => (1 << i) - 1,
                    Special::LaneMask(3) => !((1u32 << i) - 1),
                    Special::LaneMask(_) => !((1u32 << i) | ((1 << i) - 1)),
                    Special::DynamicShared => self.setup.dynamic_bytes,
                    Special::TotalShared => kernel.static_bytes + self.setup.dynamic_bytes,
                }
            };
            let values: [u32; 32] = std::array::from_fn(|i| per_lane(i as u32));
            if *special == Special::GridId {
                warp.set64(*row, !0, &values.map(u64::from));
            } else {
                warp.set32(*row, !0, &values);
            }
        }
    }

    /// Returns the coordinates of a thread of the block.
    fn thread(&self, tid: u32) -> [u32; 3] {
        let [x, y, _] = self.setup.block;
        [tid % x, tid / x % y, tid / (x * y)]
    }

    fn place(&self, warp: &Warp, lane: u32, pc: u32) -> Place {
        Place {
            pc,
            other: u32::MAX,
            line: self.kernel.code[pc as usize].line,
            other_line: None,
            block: self.block_at,
            thread: self.thread(warp.index * 32 + lane),
        }
    }

    /// Adds a finding; the message follows the names of thread and instruction.
    fn find(
        &mut self,
        kind: FindingKind,
        warp: &Warp,
        lane: u32,
        pc: u32,
        message: impl FnOnce() -> String,
    ) {
        let place = self.place(warp, lane, pc);
        let (thread, block) = (show(place.thread), show(place.block));
        self.findings.add(kind, place, || {
            format!("line {}: thread {thread} of block {block} {}", place.line, message())
        });
    }

    fn find_race(
        &mut self,
        (race, other): (Race, Stamp),
        warp: &Warp,
        lane: u32,
        pc: u32,
        is_shared: bool,
        what: impl FnOnce() -> String,
    ) {
        let other_pc = other.site().map_or(u32::MAX, |site| self.kernel.sites[site as usize]);
        let mut place = self.place(warp, lane, pc);
        place.other = other_pc;
        place.other_line = self.kernel.code.get(other_pc as usize).map(|i| i.line);
        let same_block = other.block() == self.block_number;
        let kind = match (is_shared, same_block) {
            (true, _) => FindingKind::SharedRace,
            (false, true) => FindingKind::GlobalRace,
            (false, false) => FindingKind::BlockRace,
        };
        let (now, before) = match race {
            Race::ReadAfterWrite => ("reads", "wrote"),
            Race::WriteAfterRead => ("writes", "read"),
            Race::WriteAfterWrite => ("writes", "wrote"),
        };
        let other_thread = show(self.thread(other.tid()));
        let (thread, block) = (show(place.thread), show(place.block));
        self.findings.add(kind, place, || {
            let who = if same_block {
                format!("thread {other_thread}")
            } else {
                format!("thread {other_thread} of another block")
            };
            let line = place.other_line.map_or(String::new(), |l| format!(" at line {l}"));
            let gap = if same_block { ", with no barrier between" } else { "" };
            format!(
                "line {}: thread {thread} of block {block} {now} {} that {who} {before}{line}{gap}",
                place.line,
                what()
            )
        });
    }

    fn counters(&self) -> Counters {
        let mut instructions = Vec::new();
        for (inst, count) in self.kernel.code.iter().zip(&self.counts) {
            if count.warps > 0 {
                instructions.push(InstructionCount {
                    kernel: self.kernel.name.clone(),
                    line: inst.line,
                    opcode: self.kernel.names[inst.name as usize].clone(),
                    warps: count.warps,
                    threads: count.threads,
                    wavefronts: count.wavefronts,
                    ideal_wavefronts: count.ideal_wavefronts,
                    sectors: count.sectors,
                    ideal_sectors: count.ideal_sectors,
                });
            }
        }
        Counters { instructions, blocks: self.block_number }
    }
}

fn show([x, y, z]: [u32; 3]) -> String {
    format!("({x}, {y}, {z})")
}

/// Returns an order of `0..count`: ascending, or shuffled by a seed.
struct Order {
    count: u64,
    step: u64,
    start: u64,
}

impl Order {
    fn new(seed: Option<u64>, count: u64) -> Self {
        let Some(seed) = seed else {
            return Order { count, step: 1, start: 0 };
        };
        // A step without a common divisor with the count visits each number once; a step near the
        // count runs backwards.
        let mut step = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % count.max(1);
        step = count.max(1) - 1 - step / 2;
        while step > 1 && gcd(step, count) != 1 {
            step -= 1;
        }
        Order { count, step: step.max(1), start: count.saturating_sub(1) }
    }

    fn at(&self, i: u64) -> u64 {
        let at = u128::from(self.start) + u128::from(i) * u128::from(self.step);
        (at % u128::from(self.count.max(1))) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

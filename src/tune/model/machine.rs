//! What the model knows of a machine: how many operations of which kind it does in a cycle, and
//! how fast its memory is.
//!
//! The tables are those of typical machines of each target; [`MachineModel::measured`] puts in
//! what was measured on this one.

use crate::target::{Arch, Gpu, SimdIsa, Target};

/// A machine as the model sees it. Rates are of one thread.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineModel {
    /// The target that code is made for.
    pub target: Target,
    /// 10^9 cycles in a second.
    pub ghz: f64,
    /// Bytes of a vector register of the wide back end; of [`NARROW_BYTES`] where there is none.
    pub vector_bytes: f64,
    /// Vector registers.
    pub registers: f64,
    /// Vector multiply-adds and products that begin in a cycle.
    pub multiplies: f64,
    /// Vector sums, comparisons and shuffles that begin in a cycle.
    pub adds: f64,
    /// Vector operations of all kinds.
    pub vectors: f64,
    /// Loads of a whole vector in a cycle.
    pub loads: f64,
    /// Stores of a whole vector in a cycle.
    pub stores: f64,
    /// Integer operations in a cycle.
    pub integers: f64,
    /// Operations of any kind that begin in a cycle.
    pub issue: f64,
    /// Operations that are under way at once.
    pub window: f64,
    /// Cycles from one multiply-add to another that needs its result.
    pub multiply_latency: f64,
    /// The same of sums.
    pub add_latency: f64,
    /// Cycles from a store to a load of what it wrote.
    pub forward_latency: f64,
    /// The same of vectors.
    pub wide_forward_latency: f64,
    /// Cycles of a division of a vector of `float32`, of any length, or of one number.
    pub divide: f64,
    /// Cycles for each lane that is read or written apart from the others.
    pub gather: f64,
    /// Cycles that a branch costs that goes another way than expected.
    pub mispredict: f64,
    /// Seconds until all threads work on a parallel loop, and are done.
    pub launch: f64,
    /// Caches, nearest first.
    pub caches: Vec<Cache>,
    /// Tables of pages, nearest first.
    pub pages: Vec<Cache>,
    /// What a GPU has; its other numbers are those of the CPU that launches.
    pub gpu: Option<GpuModel>,
}

/// A cache of lines or pages: what it holds, and what it costs to bring one in.
#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// `L1`, `L2`, `L3`, `TLB`, `TLB2`.
    pub name: &'static str,
    /// Bytes that it holds for one thread.
    pub bytes: f64,
    /// Bytes of a line or page.
    pub line: f64,
    /// Lines that share no place with each other; 1 where the place is hashed.
    pub sets: f64,
    /// Whether all threads share it: each has its part of `bytes`.
    pub shared: bool,
    /// Cycles for a line that comes in order, from the next level.
    pub in_order: f64,
    /// Cycles for one that nothing announced.
    pub alone: f64,
}

/// A GPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GpuModel {
    /// Multiprocessors.
    pub processors: f64,
    /// 10^9 cycles in a second.
    pub ghz: f64,
    /// Operations of a warp that begin in a cycle, on one multiprocessor.
    pub issue: f64,
    /// Floating-point operations of a warp that begin in a cycle.
    pub floats: f64,
    /// How many of them one of float64 takes.
    pub double: f64,
    /// Integer operations of a warp that begin in a cycle.
    pub integers: f64,
    /// Multiply-adds of two-byte factors that the tensor cores do in a cycle.
    pub tensor: f64,
    /// Passes through shared memory, or as many bytes of the first cache, in a cycle.
    pub memory: f64,
    /// Threads that a multiprocessor holds.
    pub threads: f64,
    /// Blocks that it holds.
    pub blocks: f64,
    /// Registers of 32 bits that it has.
    pub registers: f64,
    /// Bytes of shared memory.
    pub shared_bytes: f64,
    /// Bytes of that and the first cache together.
    pub near_bytes: f64,
    /// Bytes of the cache that all share.
    pub cache_bytes: f64,
    /// Bytes from that cache in a second, 10^9.
    pub cache_rate: f64,
    /// Bytes from memory in a second, 10^9.
    pub memory_rate: f64,
    /// Cycles until a load from that cache is there.
    pub cache_latency: f64,
    /// Cycles until a load from memory is there.
    pub latency: f64,
    /// Seconds of a launch.
    pub launch: f64,
}

/// Bytes of the vectors that Cranelift has.
pub const NARROW_BYTES: f64 = 16.0;

/// What was measured: rates in 10^9 a second, of all threads together.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// How many threads worked.
    pub threads: usize,
    /// Operations on `float32`, a multiply-add being two.
    pub peak_f32: f64,
    /// The levels of memory, nearest first, the main memory last: bytes that the threads have of
    /// it together (none of the main memory), and bytes read.
    pub levels: Vec<(Option<u64>, f64)>,
}

impl MachineModel {
    /// A typical machine for a target.
    pub fn typical(target: &Target) -> MachineModel {
        let wide = target.simd() == Some(SimdIsa::Avx512);
        let vector_bytes = f64::from(target.vector_bytes.max(4)).max(NARROW_BYTES);
        let many = wide || target.arch != Arch::X86_64;
        let small = matches!(target.arch, Arch::Riscv64);
        MachineModel {
            target: target.clone(),
            ghz: if small { 2.0 } else { 3.5 },
            vector_bytes,
            registers: if many { 32.0 } else { 16.0 },
            multiplies: if small { 1.0 } else { 2.0 },
            adds: if small { 1.0 } else { 2.0 },
            vectors: if small { 1.0 } else { 4.0 },
            loads: if small { 1.0 } else { 2.0 },
            stores: 1.0,
            integers: if small { 2.0 } else { 4.0 },
            issue: if small { 2.0 } else { 6.0 },
            window: if small { 64.0 } else { 350.0 },
            multiply_latency: 4.0,
            add_latency: 3.0,
            forward_latency: 8.0,
            wide_forward_latency: 26.0,
            divide: if small { 4.0 } else { 2.5 },
            gather: 2.5,
            mispredict: 14.0,
            launch: 1.5e-6,
            caches: caches(small),
            pages: pages(),
            gpu: target.gpu.as_ref().map(gpu),
        }
    }

    /// With what was measured on a machine.
    pub fn measured(mut self, measured: &Measured) -> MachineModel {
        let threads = measured.threads.max(1) as f64;
        let lanes = self.vector_bytes / 4.0;
        if measured.peak_f32 > 0.0 {
            self.ghz = measured.peak_f32 / threads / (2.0 * lanes * self.multiplies);
        }
        // Loads from a level fill the one before it.
        for (at, cache) in self.caches.iter_mut().enumerate() {
            if let Some((Some(bytes), _)) = measured.levels.get(at) {
                let parts = if cache.shared { 1.0 } else { threads };
                cache.bytes = *bytes as f64 / parts;
            }
            if let Some((_, rate)) = measured.levels.get(at + 1) {
                let cycles = cache.line / (rate / threads / self.ghz);
                cache.alone *= (cycles / cache.in_order).max(0.5);
                cache.in_order = cycles;
            }
        }
        self
    }

    /// Cycles in seconds.
    pub fn seconds(&self, cycles: f64) -> f64 {
        cycles / self.ghz * 1e-9
    }
}

fn caches(small: bool) -> Vec<Cache> {
    let line = 64.0;
    let make = |name, kib: f64, ways: f64, in_order, alone| {
        let bytes = kib * 1024.0;
        Cache { name, bytes, line, sets: bytes / line / ways, shared: false, in_order, alone }
    };
    let last = Cache { shared: true, sets: 1.0, ..make("L3", 32_768.0, 16.0, 5.0, 12.0) };
    match small {
        true => vec![
            make("L1", 32.0, 8.0, 6.0, 10.0),
            Cache { shared: true, ..make("L2", 1024.0, 16.0, 20.0, 60.0) },
        ],
        false => {
            vec![
                make("L1", 48.0, 12.0, 1.0, 3.0),
                Cache { sets: 1.0, ..make("L2", 1024.0, 16.0, 2.4, 14.0) },
                last,
            ]
        }
    }
}

fn pages() -> Vec<Cache> {
    let make = |name, entries: f64, cycles| Cache {
        name,
        bytes: entries * 4096.0,
        line: 4096.0,
        sets: 1.0,
        shared: false,
        in_order: cycles,
        alone: cycles,
    };
    vec![make("TLB", 96.0, 3.0), make("TLB2", 2048.0, 20.0)]
}

fn gpu(gpu: &Gpu) -> GpuModel {
    // Data sheets: RTX 5090, B200, H100, RTX 4090 and 3090, A100, T4.
    let (processors, ghz, cache_mib, cache_rate, memory_rate) = match gpu.capability {
        120.. => (170.0, 2.4, 96.0, 8000.0, 1792.0),
        100.. => (132.0, 1.8, 64.0, 6000.0, 4000.0),
        90 => (132.0, 1.75, 50.0, 5500.0, 3350.0),
        89 => (128.0, 2.5, 72.0, 5000.0, 1008.0),
        86 | 87 => (82.0, 1.7, 6.0, 2500.0, 936.0),
        80 => (108.0, 1.41, 40.0, 4000.0, 1555.0),
        _ => (40.0, 1.59, 4.0, 1000.0, 320.0),
    };
    let threads = match gpu.capability {
        75 => 1024.0,
        86..=89 | 120.. => 1536.0,
        _ => 2048.0,
    };
    // Of a multiprocessor; tensor cores as `mma.sync` reaches them.
    let (floats, double, tensor, near_kib) = match gpu.capability {
        75 => (2.0, 32.0, 512.0, 96.0),
        80 => (2.0, 2.0, 1024.0, 192.0),
        86..=89 => (4.0, 64.0, 512.0, 128.0),
        90..120 => (4.0, 2.0, 1024.0, 256.0),
        _ => (4.0, 64.0, 512.0, 128.0),
    };
    GpuModel {
        processors,
        ghz,
        issue: 4.0,
        floats,
        double,
        integers: 2.0,
        tensor,
        memory: 1.0,
        threads,
        blocks: if gpu.capability == 75 { 16.0 } else { 32.0 },
        registers: f64::from(Gpu::BLOCK_REGISTERS),
        shared_bytes: f64::from(gpu.shared_bytes) + 1024.0,
        near_bytes: near_kib * 1024.0,
        cache_bytes: cache_mib * 1048576.0,
        cache_rate,
        memory_rate,
        cache_latency: 250.0,
        latency: 600.0,
        launch: 3e-6,
    }
}

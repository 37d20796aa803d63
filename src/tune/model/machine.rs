//! The machine that the model estimates for: operations per cycle, latencies, caches and memory.
//!
//! The numbers are those of the target's processor (`target::Processor`);
//! [`MachineModel::measured`] replaces its clock, cache sizes and bandwidths by those that `tec
//! bench` measured on this machine.

use crate::target::{Arch, CacheLevel, Gpu, Processor, SimdIsa, Target};

/// Cycles of a store under a mask register, or of one under a constant mask.
pub(super) const MASKED_STORE_CYCLES: f64 = 1.5;

/// A machine. Rates are those of one thread.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineModel {
    /// The target of the code.
    pub target: Target,
    /// Clock in GHz.
    pub ghz: f64,
    /// Bytes of a vector register of the SIMD back end; [`CLIF_VECTOR_BYTES`] without one.
    pub vector_bytes: f64,
    /// Vector registers.
    pub registers: f64,
    /// Vector multiply-adds and products issued per cycle.
    pub multiplies: f64,
    /// Vector sums, comparisons and shuffles issued per cycle.
    pub adds: f64,
    /// Vector operations of all kinds issued per cycle.
    pub vectors: f64,
    /// Vector loads per cycle.
    pub loads: f64,
    /// Vector stores per cycle.
    pub stores: f64,
    /// Integer operations per cycle.
    pub integers: f64,
    /// Operations of any kind issued per cycle.
    pub issue: f64,
    /// Operations in flight: the size of the reorder buffer.
    pub window: f64,
    /// Stores that wait for their lines while later operations run: the size of the store buffer.
    pub store_buffer: f64,
    /// The part of the time of lines from beyond L2 that they take if a loop reads several streams.
    pub many_streams: f64,
    /// Lines at the beginning of each run of bytes in memory that are not prefetched.
    pub run_start: f64,
    /// Rows that the prefetcher follows if they are loaded in pieces in turns.
    pub rows_in_pieces: f64,
    /// The time of a line that a nontemporal store writes, relative to one from memory.
    pub nontemporal: f64,
    /// Latency of a multiply-add in cycles.
    pub multiply_latency: f64,
    /// Latency of a sum in cycles.
    pub add_latency: f64,
    /// Cycles of store-to-load forwarding of a scalar.
    pub forward_latency: f64,
    /// Cycles of store-to-load forwarding of a vector.
    pub wide_forward_latency: f64,
    /// Cycles of a `float32` division, of a vector or a scalar.
    pub divide: f64,
    /// Cycles of each lane of a gather or scatter.
    pub gather: f64,
    /// Cycles of a masked store.
    pub masked_store: f64,
    /// Multiply-adds that are not issued beside a `vpermd` of AVX2.
    pub permutation: f64,
    /// Cycles of a mispredicted branch.
    pub mispredict: f64,
    /// Seconds to start and end a parallel loop on all threads.
    pub launch: f64,
    /// Caches, nearest first.
    pub caches: Vec<Cache>,
    /// TLBs, nearest first.
    pub pages: Vec<Cache>,
    /// The GPU of a GPU target; the other fields describe the CPU that launches.
    pub gpu: Option<GpuModel>,
}

/// A cache or TLB: its size, and the cost of a miss.
#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// `L1`, `L2`, `L3`, `TLB`, `TLB2`.
    pub name: &'static str,
    /// Capacity in bytes for one thread.
    pub bytes: f64,
    /// Bytes of a line or page.
    pub line: f64,
    /// Sets; 1 if the set of an address is hashed.
    pub sets: f64,
    /// Whether all threads share `bytes`.
    pub shared: bool,
    /// Cycles of a prefetched line from the next level.
    pub prefetched_cycles: f64,
    /// Cycles of a line that is not prefetched.
    pub unprefetched_cycles: f64,
}

/// A GPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GpuModel {
    /// Multiprocessors.
    pub processors: f64,
    /// Clock in GHz.
    pub ghz: f64,
    /// Warp instructions issued per cycle on one multiprocessor.
    pub issue: f64,
    /// Warp instructions on `float32` per cycle.
    pub floats: f64,
    /// Issue slots of a `float64` instruction, as `float32` instructions.
    pub double: f64,
    /// Warp integer instructions per cycle.
    pub integers: f64,
    /// Multiply-adds of two-byte factors on the tensor cores per cycle.
    pub tensor: f64,
    /// Wavefronts of shared memory, or as many bytes of L1, per cycle.
    pub memory: f64,
    /// Resident threads of a multiprocessor.
    pub threads: f64,
    /// Resident blocks of a multiprocessor.
    pub blocks: f64,
    /// 32-bit registers of a multiprocessor.
    pub registers: f64,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes: f64,
    /// Bytes of shared memory and L1 together.
    pub near_bytes: f64,
    /// Bytes of L2.
    pub cache_bytes: f64,
    /// Bandwidth of L2 in GB/s.
    pub cache_rate: f64,
    /// Bandwidth of memory in GB/s.
    pub memory_rate: f64,
    /// Latency of a load from L2 in cycles.
    pub cache_latency: f64,
    /// Latency of a load from memory in cycles.
    pub latency: f64,
    /// Seconds to start a launch.
    pub launch: f64,
}

/// Bytes of Cranelift's vectors.
pub const CLIF_VECTOR_BYTES: f64 = 16.0;

/// What `tec bench` measured: rates in 10^9 per second, of all threads together.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Threads of the measurement.
    pub threads: usize,
    /// `float32` operations; a multiply-add counts two.
    pub peak_f32: f64,
    /// The levels of memory, nearest first, main memory last: the capacity in bytes of all threads
    /// together (none for main memory), and the bandwidth of reads in GB/s.
    pub levels: Vec<(Option<u64>, f64)>,
}

/// The most chains of operations that overlap.
const MAX_CHAINS_AT_ONCE: f64 = 8.0;

impl MachineModel {
    /// Returns how many iterations overlap, whose instructions compute `parts` registers one after
    /// the other, each by a chain of its own. Below 1, the window holds some of the parts.
    pub(super) fn chains_at_once(&self, instructions: f64, parts: f64) -> f64 {
        (self.window / instructions.max(1.0)).clamp(1.0 / parts.max(1.0), MAX_CHAINS_AT_ONCE)
    }

    /// Returns the machine with a target's processor.
    pub fn typical(target: &Target) -> MachineModel {
        let many = target.simd() == Some(SimdIsa::Avx512) || target.arch != Arch::X86_64;
        let processor = target.processor;
        let rates = processor.rates(target.vector_bytes).unwrap_or(&processor.narrow);
        MachineModel {
            target: target.clone(),
            ghz: processor.ghz,
            vector_bytes: f64::from(target.vector_bytes.max(4)).max(CLIF_VECTOR_BYTES),
            registers: if many { 32.0 } else { 16.0 },
            multiplies: rates.multiplies,
            adds: rates.adds,
            vectors: rates.vectors,
            loads: rates.loads,
            stores: rates.stores,
            integers: processor.integers,
            issue: processor.issue,
            window: processor.window,
            store_buffer: processor.store_buffer,
            many_streams: processor.many_streams,
            run_start: processor.run_start,
            rows_in_pieces: processor.rows_in_pieces,
            nontemporal: processor.nontemporal,
            multiply_latency: processor.multiply_latency,
            add_latency: processor.add_latency,
            forward_latency: processor.forward_latency,
            wide_forward_latency: processor.wide_forward_latency,
            divide: rates.divide,
            gather: processor.gather,
            masked_store: match target.simd() {
                Some(SimdIsa::Avx2) => processor.masked_store,
                _ => MASKED_STORE_CYCLES,
            },
            permutation: processor.permutation,
            mispredict: processor.mispredict,
            launch: 1.5e-6,
            caches: caches(processor),
            pages: pages(processor),
            gpu: target.gpu.as_ref().map(gpu),
        }
    }

    /// Replaces the table's numbers by measured ones.
    pub fn measured(mut self, measured: &Measured) -> MachineModel {
        let threads = measured.threads.max(1) as f64;
        let lanes = self.vector_bytes / 4.0;
        if measured.peak_f32 > 0.0 {
            self.ghz = measured.peak_f32 / threads / (2.0 * lanes * self.multiplies);
        }
        // Loads from a level fill the previous one.
        for (at, cache) in self.caches.iter_mut().enumerate() {
            if let Some((Some(bytes), _)) = measured.levels.get(at) {
                let parts = if cache.shared { 1.0 } else { threads };
                cache.bytes = *bytes as f64 / parts;
            }
            if let Some((_, rate)) = measured.levels.get(at + 1) {
                let cycles = cache.line / (rate / threads / self.ghz);
                cache.unprefetched_cycles *= (cycles / cache.prefetched_cycles).max(0.5);
                cache.prefetched_cycles = cycles;
            }
        }
        self
    }

    /// Converts cycles to seconds.
    pub fn seconds(&self, cycles: f64) -> f64 {
        cycles / self.ghz * 1e-9
    }
}

/// Bytes of a cache line.
const LINE_BYTES: f64 = 64.0;
/// Bytes of a page.
const PAGE_BYTES: f64 = 4096.0;

fn caches(processor: &Processor) -> Vec<Cache> {
    let cache = |(name, level): (&'static str, &CacheLevel)| {
        let bytes = f64::from(level.kib) * 1024.0;
        let sets = bytes / LINE_BYTES / f64::from(level.ways);
        Cache {
            name,
            bytes,
            line: LINE_BYTES,
            sets: if level.hashed { 1.0 } else { sets },
            shared: level.shared,
            prefetched_cycles: level.prefetched_cycles,
            unprefetched_cycles: level.unprefetched_cycles,
        }
    };
    ["L1", "L2", "L3"].into_iter().zip(processor.caches).map(cache).collect()
}

fn pages(processor: &Processor) -> Vec<Cache> {
    let tlb = |(name, (entries, cycles)): (&'static str, (u32, f64))| Cache {
        name,
        bytes: f64::from(entries) * PAGE_BYTES,
        line: PAGE_BYTES,
        sets: 1.0,
        shared: false,
        prefetched_cycles: cycles,
        unprefetched_cycles: cycles,
    };
    ["TLB", "TLB2"].into_iter().zip(processor.pages).map(tlb).collect()
}

fn gpu(gpu: &Gpu) -> GpuModel {
    // From the data sheets of RTX 5090, B200, H100, RTX 4090 and 3090, A100, T4.
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
    // Per multiprocessor; tensor cores at the rate of `mma.sync`.
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
        launch: 1.5e-6,
    }
}

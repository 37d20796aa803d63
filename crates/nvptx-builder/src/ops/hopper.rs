//! Hopper and later: mbarriers, bulk copies, warpgroup products, clusters.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::*;
use crate::ty::*;

/// An asynchronous matrix product by a warpgroup (four warps): D += A B. D (64×n) is in registers,
/// A (64×k) and B (k×n) are in shared memory, given by descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wgmma {
    n: u32,
    element: Ty,
    transposed: (bool, bool),
}

impl Wgmma {
    /// `m64nNk16` of `f16` or `bf16` into f32; `n` is a multiple of 8, at most 256.
    pub fn new(n: u32, element: Ty) -> Wgmma {
        Wgmma { n, element, transposed: (false, false) }
    }

    /// Sets whether A is column-major and B row-major.
    pub fn transposed(self, a: bool, b: bool) -> Wgmma {
        Wgmma { transposed: (a, b), ..self }
    }

    /// Returns the number of registers of D in each thread.
    pub fn registers(self) -> usize {
        (self.n / 2) as usize
    }
}

/// A copy by `cp.async.bulk.tensor` of a box of a tensor. A tensor map describes the tensor: a
/// parameter of 128 bytes that `cuTensorMapEncodeTiled` makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// The generic address of the map.
    pub map: Reg<U64>,
}

impl Entry {
    /// Emits `mbarrier.init`: a barrier of 8 bytes in shared memory for `count` arrivals.
    pub fn mbarrier_init(&mut self, barrier: impl Into<Address>, count: impl Source<U32>) {
        let name = "mbarrier.init.shared.b64";
        let barrier = self.address(name, Space::Shared, &barrier.into());
        let count = self.source(name, count.operand().value, Ty::U32);
        self.code(Feature::Mbarrier, format!("{name} {barrier}, {count}"));
    }

    /// Emits `mbarrier.inval`: frees the memory of the barrier.
    pub fn mbarrier_inval(&mut self, barrier: impl Into<Address>) {
        let name = "mbarrier.inval.shared.b64";
        let barrier = self.address(name, Space::Shared, &barrier.into());
        self.code(Feature::Mbarrier, format!("{name} {barrier}"));
    }

    /// Emits `mbarrier.arrive`: arrives once; returns the previous state, for
    /// [`Entry::mbarrier_test_wait`].
    pub fn mbarrier_arrive(&mut self, barrier: impl Into<Address>) -> Reg<B64> {
        let name = "mbarrier.arrive.shared.b64";
        let dst = self.destination(name, Ty::B64);
        let barrier = self.address(name, Space::Shared, &barrier.into());
        let text = format!("{name} {}, {barrier}", self.name_of(dst));
        self.code(Feature::Mbarrier, text);
        dst.cast(Ty::B64)
    }

    /// Emits `mbarrier.arrive.expect_tx`: arrives once and expects `bytes` of asynchronous copies.
    pub fn mbarrier_arrive_expect_tx(
        &mut self,
        barrier: impl Into<Address>,
        bytes: impl Source<U32>,
    ) {
        let name = "mbarrier.arrive.expect_tx.shared.b64";
        let barrier = self.address(name, Space::Shared, &barrier.into());
        let bytes = self.source(name, bytes.operand().value, Ty::U32);
        self.code(Feature::MbarrierExpectTx, format!("{name} _, {barrier}, {bytes}"));
    }

    /// Emits `mbarrier.test_wait`: tests whether the phase of `state` is complete.
    pub fn mbarrier_test_wait(
        &mut self,
        barrier: impl Into<Address>,
        state: Reg<B64>,
    ) -> Reg<Pred> {
        let name = "mbarrier.test_wait.shared.b64";
        let dst = self.destination(name, Ty::Pred);
        let barrier = self.address(name, Space::Shared, &barrier.into());
        let text =
            format!("{name} {}, {barrier}, {}", self.name_of(dst), self.name_of(state.erase()));
        self.code(Feature::Mbarrier, text);
        dst.cast(Ty::Pred)
    }

    /// Emits `mbarrier.try_wait.parity`: waits for a limited time; returns whether the phase of
    /// this parity is complete.
    pub fn mbarrier_try_wait_parity(
        &mut self,
        barrier: impl Into<Address>,
        parity: impl Source<U32>,
    ) -> Reg<Pred> {
        let name = "mbarrier.try_wait.parity.shared.b64";
        let dst = self.destination(name, Ty::Pred);
        let barrier = self.address(name, Space::Shared, &barrier.into());
        let parity = self.source(name, parity.operand().value, Ty::U32);
        let text = format!("{name} {}, {barrier}, {parity}", self.name_of(dst));
        self.code(Feature::MbarrierTryWait, text);
        dst.cast(Ty::Pred)
    }

    /// Emits `cp.async.bulk` from global into shared memory: copies `bytes`, a multiple of 16, and
    /// signals an mbarrier.
    pub fn cp_async_bulk(
        &mut self,
        to: impl Into<Address>,
        from: impl Into<Address>,
        bytes: impl Source<U32>,
        barrier: impl Into<Address>,
    ) {
        let name = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
        let to = self.address(name, Space::Shared, &to.into());
        let from = self.address(name, Space::Global, &from.into());
        let bytes = self.source(name, bytes.operand().value, Ty::U32);
        let barrier = self.address(name, Space::Shared, &barrier.into());
        self.code(Feature::CpAsyncBulk, format!("{name} {to}, {from}, {bytes}, {barrier}"));
    }

    /// Emits `cp.async.bulk.tensor` into shared memory: copies the box at `coordinates` (innermost
    /// first, one to five) and signals an mbarrier.
    pub fn cp_async_bulk_tensor(
        &mut self,
        to: impl Into<Address>,
        from: TensorMap,
        coordinates: &[Reg<S32>],
        barrier: impl Into<Address>,
    ) {
        let name = format!(
            "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes",
            coordinates.len()
        );
        let coordinates = self.coordinates(&name, coordinates);
        let to = self.address(&name, Space::Shared, &to.into());
        let barrier = self.address(&name, Space::Shared, &barrier.into());
        let map = self.name_of(from.map.erase());
        self.code(Feature::CpAsyncBulk, format!("{name} {to}, [{map}, {coordinates}], {barrier}"));
    }

    /// Emits `cp.async.bulk.tensor` from shared into global memory, as part of a bulk group.
    pub fn cp_async_bulk_tensor_store(
        &mut self,
        to: TensorMap,
        coordinates: &[Reg<S32>],
        from: impl Into<Address>,
    ) {
        let rank = coordinates.len();
        let name = format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group");
        let coordinates = self.coordinates(&name, coordinates);
        let from = self.address(&name, Space::Shared, &from.into());
        let map = self.name_of(to.map.erase());
        self.code(Feature::CpAsyncBulk, format!("{name} [{map}, {coordinates}], {from}"));
    }

    fn coordinates(&mut self, name: &str, coordinates: &[Reg<S32>]) -> String {
        if !(1..=5).contains(&coordinates.len()) {
            self.refuse(name, "a tensor has one to five dimensions");
        }
        let regs: Vec<Reg> = coordinates.iter().map(|reg| reg.erase()).collect();
        self.braces(&regs)
    }

    /// Emits `cp.async.bulk.commit_group`.
    pub fn cp_async_bulk_commit_group(&mut self) {
        self.code(Feature::CpAsyncBulk, "cp.async.bulk.commit_group".to_string());
    }

    /// Emits `cp.async.bulk.wait_group.read`: waits until at most `pending` groups read shared
    /// memory.
    pub fn cp_async_bulk_wait_group_read(&mut self, pending: u32) {
        self.code(Feature::CpAsyncBulk, format!("cp.async.bulk.wait_group.read {pending}"));
    }

    /// Emits `fence.proxy.async.shared::cta`: makes stores to shared memory visible to bulk copies
    /// and `wgmma`.
    pub fn fence_proxy_async(&mut self) {
        self.code(Feature::FenceProxy, "fence.proxy.async.shared::cta".to_string());
    }

    /// Emits `fence.mbarrier_init`: makes initialised mbarriers visible to the cluster.
    pub fn fence_mbarrier_init(&mut self) {
        let name = "fence.mbarrier_init.release.cluster";
        self.code(Feature::FenceProxy, name.to_string());
    }

    /// Emits `wgmma.fence`: needed before the first `wgmma` that uses registers written by other
    /// instructions.
    pub fn wgmma_fence(&mut self) {
        self.code(Feature::Wgmma, "wgmma.fence.sync.aligned".to_string());
    }

    /// Emits `wgmma.mma_async`: starts D = A B + D, or D = A B without `accumulate`. D must not be
    /// accessed until [`Entry::wgmma_wait_group`].
    pub fn wgmma(
        &mut self,
        how: Wgmma,
        d: &[Reg<F32>],
        a: Reg<B64>,
        b: Reg<B64>,
        accumulate: Reg<Pred>,
    ) {
        let (n, element) = (how.n, how.element);
        let name = format!("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{element}.{element}");
        if n == 0 || n % 8 != 0 || n > 256 {
            self.refuse(&name, "n is a multiple of 8, at most 256");
        }
        if !matches!(element, Ty::F16 | Ty::Bf16) {
            self.refuse(&name, "the elements are f16 or bf16");
        }
        if d.len() != how.registers() {
            self.refuse(&name, &format!("D is {} registers", how.registers()));
        }
        let regs: Vec<Reg> = d.iter().map(|reg| reg.erase()).collect();
        let (a, b) = (self.name_of(a.erase()), self.name_of(b.erase()));
        let (ta, tb) = (u32::from(how.transposed.0), u32::from(how.transposed.1));
        let text = format!(
            "{name} {}, {a}, {b}, {}, 1, 1, {ta}, {tb}",
            self.braces(&regs),
            self.name_of(accumulate.erase())
        );
        self.code(Feature::Wgmma, text);
    }

    /// Emits `wgmma.commit_group`.
    pub fn wgmma_commit_group(&mut self) {
        self.code(Feature::Wgmma, "wgmma.commit_group.sync.aligned".to_string());
    }

    /// Emits `wgmma.wait_group`: waits until at most `pending` groups are incomplete.
    pub fn wgmma_wait_group(&mut self, pending: u32) {
        self.code(Feature::Wgmma, format!("wgmma.wait_group.sync.aligned {pending}"));
    }

    /// Emits `setmaxnreg.inc` or `.dec`: sets the number of registers of each thread of the
    /// warpgroup.
    pub fn set_max_registers(&mut self, increase: bool, registers: u32) {
        let name = if increase { "setmaxnreg.inc" } else { "setmaxnreg.dec" };
        if !(24..=256).contains(&registers) || !registers.is_multiple_of(8) {
            self.refuse(name, "the number is a multiple of 8 from 24 to 256");
        }
        self.code(Feature::SetMaxNReg, format!("{name}.sync.aligned.u32 {registers}"));
    }

    /// Emits `barrier.cluster.arrive`, then `.wait`: a barrier of all threads of the cluster.
    pub fn cluster_sync(&mut self) {
        self.code(Feature::Cluster, "barrier.cluster.arrive".to_string());
        self.code(Feature::Cluster, "barrier.cluster.wait".to_string());
    }

    /// Emits `mapa.shared::cluster`: maps an address of shared memory to another block of the
    /// cluster.
    pub fn mapa(&mut self, address: Reg<U32>, block: impl Source<U32>) -> Reg<U32> {
        let srcs = [(address.operand().value, Ty::U32), (block.operand().value, Ty::U32)];
        self.inst(Feature::Cluster, "mapa.shared::cluster.u32", Ty::U32, &srcs)
    }

    /// Emits `griddepcontrol.wait`: waits until the kernels before this one are complete.
    pub fn griddepcontrol_wait(&mut self) {
        self.code(Feature::Cluster, "griddepcontrol.wait".to_string());
    }

    /// Emits `griddepcontrol.launch_dependents`: lets the next kernel begin.
    pub fn griddepcontrol_launch_dependents(&mut self) {
        self.code(Feature::Cluster, "griddepcontrol.launch_dependents".to_string());
    }
}

//! Barriers and fences.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::{Reg, Source};
use crate::ty::*;

/// The threads for which a fence orders memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// The threads of the block.
    Cta,
    /// The threads of the GPU.
    Gpu,
    /// All threads, including those of the host.
    Sys,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Gpu => "gpu",
            Scope::Sys => "sys",
        }
    }
}

/// The reduction of a predicate over all threads at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// True in all threads.
    And,
    /// True in at least one thread.
    Or,
}

impl Entry {
    /// Emits `bar.sync`: a barrier of all threads of the block. Writes before it are visible after
    /// it. Barriers have the numbers 0 to 15.
    pub fn bar_sync(&mut self, barrier: u32) {
        let name = format!("bar.sync {barrier}");
        self.check_barrier(&name, barrier, None);
        self.code(Feature::Base, name);
    }

    /// Emits `bar.sync a, n`: a barrier of `threads` threads, a multiple of 32.
    pub fn bar_sync_some(&mut self, barrier: u32, threads: u32) {
        let name = format!("bar.sync {barrier}, {threads}");
        self.check_barrier(&name, barrier, Some(threads));
        self.code(Feature::Base, name);
    }

    /// Emits `bar.arrive a, n`: arrives at a barrier without waiting.
    pub fn bar_arrive(&mut self, barrier: u32, threads: u32) {
        let name = format!("bar.arrive {barrier}, {threads}");
        self.check_barrier(&name, barrier, Some(threads));
        self.code(Feature::Base, name);
    }

    /// Emits `barrier.sync`: like [`Entry::bar_sync`], but threads of a warp may arrive separately.
    pub fn barrier_sync(&mut self, barrier: u32) {
        let name = format!("barrier.sync {barrier}");
        self.check_barrier(&name, barrier, None);
        self.code(Feature::Base, name);
    }

    fn check_barrier(&mut self, name: &str, barrier: u32, threads: Option<u32>) {
        if barrier > 15 {
            self.refuse(name, "barriers are 0 to 15");
        }
        if threads.is_some_and(|threads| threads == 0 || threads % 32 != 0 || threads > 1024) {
            self.refuse(name, "a barrier has a multiple of 32 threads, at most 1,024");
        }
    }

    /// Emits `bar.red.and.pred`, `bar.red.or.pred`: a barrier with a reduction of a predicate.
    pub fn bar_red(&mut self, reduce: Reduce, barrier: u32, pred: Reg<Pred>) -> Reg<Pred> {
        let name = match reduce {
            Reduce::And => "bar.red.and.pred",
            Reduce::Or => "bar.red.or.pred",
        };
        self.check_barrier(name, barrier, None);
        let srcs = [(barrier.operand_of(), Ty::U32), (pred.operand().value, Ty::Pred)];
        self.inst(Feature::Base, name, Ty::Pred, &srcs)
    }

    /// Emits `bar.red.popc.u32`: a barrier that counts the threads whose predicate is true.
    pub fn bar_red_popc(&mut self, barrier: u32, pred: Reg<Pred>) -> Reg<U32> {
        let name = "bar.red.popc.u32";
        self.check_barrier(name, barrier, None);
        let srcs = [(barrier.operand_of(), Ty::U32), (pred.operand().value, Ty::Pred)];
        self.inst(Feature::Base, name, Ty::U32, &srcs)
    }

    /// Emits `bar.warp.sync`: a barrier of the lanes in `mask`.
    pub fn bar_warp_sync(&mut self, mask: impl Source<U32>) {
        self.effect(Feature::Base, "bar.warp.sync", &[(mask.operand().value, Ty::B32)]);
    }

    /// Emits `membar`: other threads see the writes before it no later than those after it.
    pub fn membar(&mut self, scope: Scope) {
        let name = match scope {
            Scope::Cta => "membar.cta",
            Scope::Gpu => "membar.gl",
            Scope::Sys => "membar.sys",
        };
        self.code(Feature::Base, name.to_string());
    }

    /// Emits `fence.acq_rel`.
    pub fn fence_acq_rel(&mut self, scope: Scope) {
        self.code(Feature::Base, format!("fence.acq_rel.{}", scope.name()));
    }

    /// Emits `fence.sc`.
    pub fn fence_sc(&mut self, scope: Scope) {
        self.code(Feature::Base, format!("fence.sc.{}", scope.name()));
    }
}

trait OperandOf {
    fn operand_of(self) -> crate::reg::Value;
}

impl OperandOf for u32 {
    fn operand_of(self) -> crate::reg::Value {
        Source::<U32>::operand(self).value
    }
}

//! Barriers and fences.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::{Reg, Source};
use crate::ty::*;

/// Which threads a fence orders memory for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// Of the block.
    Cta,
    /// Of the GPU.
    Gpu,
    /// All, of the host too.
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

/// What a barrier finds out about a predicate of all threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// It holds in all.
    And,
    /// It holds in one at least.
    Or,
}

impl Entry {
    /// `bar.sync`: all threads of the block meet; what they wrote before is seen after. Barriers
    /// have numbers from 0 to 15.
    pub fn bar_sync(&mut self, barrier: u32) {
        let name = format!("bar.sync {barrier}");
        self.check_barrier(&name, barrier, None);
        self.code(Feature::Base, name);
    }

    /// `bar.sync a, n`: `threads` threads meet, a multiple of 32.
    pub fn bar_sync_some(&mut self, barrier: u32, threads: u32) {
        let name = format!("bar.sync {barrier}, {threads}");
        self.check_barrier(&name, barrier, Some(threads));
        self.code(Feature::Base, name);
    }

    /// `bar.arrive a, n`: counts at a barrier without waiting there.
    pub fn bar_arrive(&mut self, barrier: u32, threads: u32) {
        let name = format!("bar.arrive {barrier}, {threads}");
        self.check_barrier(&name, barrier, Some(threads));
        self.code(Feature::Base, name);
    }

    /// `barrier.sync`: as [`Entry::bar_sync`], threads of a warp may arrive one by one.
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
            self.refuse(name, "the threads at a barrier are a multiple of 32, at most 1,024");
        }
    }

    /// `bar.red.and.pred`, `bar.red.or.pred`: a barrier that tells about a predicate.
    pub fn bar_red(&mut self, reduce: Reduce, barrier: u32, pred: Reg<Pred>) -> Reg<Pred> {
        let name = match reduce {
            Reduce::And => "bar.red.and.pred",
            Reduce::Or => "bar.red.or.pred",
        };
        self.check_barrier(name, barrier, None);
        let srcs = [(barrier.operand_of(), Ty::U32), (pred.operand().value, Ty::Pred)];
        self.inst(Feature::Base, name, Ty::Pred, &srcs)
    }

    /// `bar.red.popc.u32`: a barrier that counts the threads where a predicate holds.
    pub fn bar_red_popc(&mut self, barrier: u32, pred: Reg<Pred>) -> Reg<U32> {
        let name = "bar.red.popc.u32";
        self.check_barrier(name, barrier, None);
        let srcs = [(barrier.operand_of(), Ty::U32), (pred.operand().value, Ty::Pred)];
        self.inst(Feature::Base, name, Ty::U32, &srcs)
    }

    /// `bar.warp.sync`: the threads of the warp that `mask` names meet.
    pub fn bar_warp_sync(&mut self, mask: impl Source<U32>) {
        self.effect(Feature::Base, "bar.warp.sync", &[(mask.operand().value, Ty::B32)]);
    }

    /// `membar`: what this thread wrote before is seen by others before what it writes after.
    pub fn membar(&mut self, scope: Scope) {
        let name = match scope {
            Scope::Cta => "membar.cta",
            Scope::Gpu => "membar.gl",
            Scope::Sys => "membar.sys",
        };
        self.code(Feature::Base, name.to_string());
    }

    /// `fence.acq_rel`
    pub fn fence_acq_rel(&mut self, scope: Scope) {
        self.code(Feature::Base, format!("fence.acq_rel.{}", scope.name()));
    }

    /// `fence.sc`
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

//! Block-wide barriers: arrival, completion, and exchange of clocks between warps.

use super::Machine;
use super::warp::{State, Warp};
use crate::decode::op::{BarKind, Barrier, Op};
use crate::report::FindingKind;
use crate::shadow::Clocks;

/// A barrier at which threads have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BarrierState {
    /// The number of threads that have arrived.
    pub arrived: u32,
    /// The number of threads that the instructions name.
    expected: Option<u32>,
    /// The clocks that each warp knows after the barrier.
    joined: Clocks,
    popc: u32,
    all: bool,
    any: bool,
    /// The instruction of the first arrival.
    pc: u32,
}

/// The reason for the end of a time slice.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Yield,
    /// Threads arrived at the barrier with this number.
    Barrier(u32),
    /// Threads exited, which can complete a barrier.
    Exit,
}

pub(super) enum Arrival {
    Waits,
    GoesOn,
}

impl Machine<'_> {
    /// Lets threads of a warp arrive at a barrier; returns its number.
    pub(super) fn arrive(
        &mut self,
        warp: &mut Warp,
        barrier: &Barrier,
        active: u32,
        pc: u32,
    ) -> (u32, Arrival) {
        let lane = active.trailing_zeros();
        if barrier.is_aligned && active != warp.live {
            let live = warp.live;
            self.find(FindingKind::DivergentBarrier, warp, lane, pc, || {
                format!(
                    "comes to the barrier with lanes {active:#010x} of its warp, \
                     whose live lanes are {live:#010x}"
                )
            });
        }
        let mut id = warp.s32(self.kernel, barrier.id)[lane as usize];
        if id > 15 {
            self.find(FindingKind::DivergentBarrier, warp, lane, pc, || {
                format!("names barrier {id}, there are 16")
            });
            id &= 15;
        }
        let expected = barrier.threads.map(|t| warp.s32(self.kernel, t)[lane as usize]);
        if let Some(n) = expected
            && (n % 32 != 0 || n == 0)
        {
            self.find(FindingKind::DivergentBarrier, warp, lane, pc, || {
                format!("names {n} threads, which is not a multiple of 32")
            });
        }
        let truth = warp.pred(barrier.p) & active;
        let state = &mut self.barriers[id as usize];
        let other = state.expected;
        let first = state.arrived == 0;
        if first {
            *state = BarrierState { expected, pc, all: true, ..BarrierState::default() };
        }
        // If the instruction names a number of threads, a whole warp counts.
        let is_whole = expected.is_some() && active == warp.start;
        state.arrived += if is_whole { 32 } else { active.count_ones() };
        state.popc += truth.count_ones();
        state.all &= truth == active;
        state.any |= truth != 0;
        for (joined, clock) in state.joined.iter_mut().zip(&warp.clocks) {
            *joined = (*joined).max(*clock);
        }
        let own = warp.index as usize;
        state.joined[own] = state.joined[own].max(warp.clocks[own] + 1);
        let all: u32 = self.setup.block.iter().product();
        let threads = |n: Option<u32>| n.unwrap_or(all.next_multiple_of(32));
        if !first && threads(other) != threads(expected) {
            self.find(FindingKind::DivergentBarrier, warp, lane, pc, || {
                format!("names a different number of threads at barrier {id} than others")
            });
        }
        if barrier.kind == BarKind::Arrive {
            self.tick(warp, pc);
            return (id, Arrival::GoesOn);
        }
        (id, Arrival::Waits)
    }

    /// Completes barriers at the end of a time slice.
    pub(super) fn complete_barriers(&mut self, event: Event, warps: &mut [Warp]) {
        match event {
            Event::Yield => {}
            Event::Barrier(id) => self.complete(id, warps),
            Event::Exit => (0..16).for_each(|id| self.complete(id, warps)),
        }
    }

    fn complete(&mut self, id: u32, warps: &mut [Warp]) {
        let state = self.barriers[id as usize];
        if state.arrived == 0 {
            return;
        }
        let live: u32 = warps.iter().map(|w| w.live.count_ones()).sum();
        if state.arrived < state.expected.unwrap_or(live) {
            return;
        }
        let all: u32 = self.setup.block.iter().product();
        if state.expected.is_none() && live < all {
            let waits = |w: &&Warp| w.groups.iter().any(|g| g.state == State::Barrier(id));
            if let Some(warp) = warps.iter().find(waits) {
                let lane = warp.live.trailing_zeros();
                self.find(FindingKind::ExitedThreads, warp, lane, state.pc, || {
                    format!("waits at the barrier; {} threads of its block have exited", all - live)
                });
            }
        }
        self.barriers[id as usize].arrived = 0;
        for warp in warps.iter_mut() {
            self.release(id, warp, &state);
        }
    }

    /// Releases the waiting threads of a warp, with the result of the reduction.
    fn release(&mut self, id: u32, warp: &mut Warp, state: &BarrierState) {
        let mut went = false;
        while let Some(at) = warp.groups.iter().position(|g| g.state == State::Barrier(id)) {
            let group = warp.groups.swap_remove(at);
            if let Op::Barrier(barrier) = &self.kernel.code[group.pc as usize].op {
                let truth = |b: bool| if b { !0 } else { 0 };
                match barrier.kind {
                    BarKind::RedPopc => warp.set32(barrier.d, group.mask, &[state.popc; 32]),
                    BarKind::RedAnd => warp.set_pred(barrier.d, group.mask, truth(state.all)),
                    BarKind::RedOr => warp.set_pred(barrier.d, group.mask, truth(state.any)),
                    BarKind::Sync | BarKind::Arrive => {}
                }
            }
            warp.insert(group.pc + 1, group.mask);
            if !went {
                went = true;
                for (clock, joined) in warp.clocks.iter_mut().zip(&state.joined) {
                    *clock = (*clock).max(*joined);
                }
                let own = warp.index as usize;
                warp.clocks[own] -= 1;
                self.tick(warp, group.pc);
            }
        }
    }
}

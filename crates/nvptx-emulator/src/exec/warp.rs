//! The state of a warp: registers, groups of threads by position, copies in flight.

use super::wgmma::Product;
use crate::decode::op::{CONST, Dst, Kernel, PSrc, SINK, Src};
use crate::lanes::{R32, R64};
use crate::memory::ByteSet;
use crate::shadow::Clocks;

/// Threads of a warp at the same position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub pc: u32,
    pub mask: u32,
    pub state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Ready,
    /// Waits at the barrier with this number.
    Barrier(u32),
    /// Waits at a warp-wide instruction for other members.
    Parked,
    /// Does not wait any longer: the members cannot arrive.
    Forced,
}

/// An asynchronous copy that the thread has not waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub lane: u32,
    /// The number of the group of its thread.
    pub group: u32,
    pub offset: u32,
    pub bytes: u32,
    pub site: u32,
    pub data: [u8; 16],
}

#[derive(Default)]
pub(super) struct Warp {
    pub index: u32,
    pub r32: Vec<R32>,
    pub r64: Vec<R64>,
    pub preds: Vec<u32>,
    pub init32: Vec<u32>,
    pub init64: Vec<u32>,
    pub init_preds: Vec<u32>,
    /// The carry flag of `add.cc`.
    pub carry: u32,
    pub groups: Vec<Group>,
    /// The threads that have not exited.
    pub live: u32,
    /// The threads of the block in this warp.
    pub start: u32,
    pub clocks: Clocks,
    pub pending: Vec<Pending>,
    /// The number of committed groups of each thread.
    pub committed: [u32; 32],
    /// The products that the warp has not waited for, and the number of committed groups.
    pub products: Vec<Product>,
    pub product_groups: u32,
    /// Whether a `wgmma.fence` came after the last wait.
    pub fenced: bool,
    pub local: Vec<u8>,
    pub local_init: ByteSet,
}

impl Warp {
    pub fn new(index: u32, kernel: &Kernel) -> Self {
        let local = 32 * kernel.local_bytes as usize;
        Warp {
            index,
            r32: vec![[0; 32]; kernel.rows32 as usize],
            r64: vec![[0; 32]; kernel.rows64 as usize],
            preds: vec![0; kernel.preds as usize],
            init32: vec![0; kernel.rows32 as usize],
            init64: vec![0; kernel.rows64 as usize],
            init_preds: vec![0; kernel.preds as usize],
            local: vec![0xcb; local],
            local_init: ByteSet::new(local, false),
            ..Warp::default()
        }
    }

    /// Resets the warp to the start of the kernel, for the threads of `mask`.
    pub fn restart(&mut self, mask: u32) {
        self.init32.fill(0);
        self.init64.fill(0);
        self.init_preds.fill(0);
        self.groups.clear();
        self.groups.push(Group { pc: 0, mask, state: State::Ready });
        (self.live, self.start) = (mask, mask);
        self.clocks = [0; 32];
        self.pending.clear();
        self.committed = [0; 32];
        self.products.clear();
        (self.product_groups, self.fenced) = (0, false);
        self.local_init.clear();
    }

    #[inline]
    pub fn s32<'a>(&'a self, kernel: &'a Kernel, src: Src) -> &'a R32 {
        if src & CONST != 0 {
            &kernel.consts32[(src & !CONST) as usize]
        } else {
            &self.r32[src as usize]
        }
    }

    #[inline]
    pub fn s64<'a>(&'a self, kernel: &'a Kernel, src: Src) -> &'a R64 {
        if src & CONST != 0 {
            &kernel.consts64[(src & !CONST) as usize]
        } else {
            &self.r64[src as usize]
        }
    }

    #[inline]
    pub fn pred(&self, src: PSrc) -> u32 {
        match src {
            PSrc::Reg { row, negated } => {
                let value = self.preds[row as usize];
                if negated { !value } else { value }
            }
            PSrc::Const(value) => {
                if value {
                    !0
                } else {
                    0
                }
            }
        }
    }

    #[inline]
    pub fn set32(&mut self, dst: Dst, mask: u32, value: &R32) {
        if dst == SINK {
            return;
        }
        let row = &mut self.r32[dst as usize];
        if mask == !0 {
            *row = *value;
        } else {
            for i in 0..32 {
                row[i] = if mask & 1 << i != 0 { value[i] } else { row[i] };
            }
        }
        self.init32[dst as usize] |= mask;
    }

    #[inline]
    pub fn set64(&mut self, dst: Dst, mask: u32, value: &R64) {
        if dst == SINK {
            return;
        }
        let row = &mut self.r64[dst as usize];
        if mask == !0 {
            *row = *value;
        } else {
            for i in 0..32 {
                row[i] = if mask & 1 << i != 0 { value[i] } else { row[i] };
            }
        }
        self.init64[dst as usize] |= mask;
    }

    #[inline]
    pub fn set_pred(&mut self, dst: Dst, mask: u32, value: u32) {
        if dst == SINK {
            return;
        }
        let row = &mut self.preds[dst as usize];
        *row = (*row & !mask) | (value & mask);
        self.init_preds[dst as usize] |= mask;
    }

    /// Moves threads to a position and joins them with those that wait there.
    pub fn insert(&mut self, pc: u32, mask: u32) {
        if mask == 0 {
            return;
        }
        for group in &mut self.groups {
            if group.pc == pc && !matches!(group.state, State::Barrier(_)) {
                group.mask |= mask;
                group.state = State::Ready;
                return;
            }
        }
        self.groups.push(Group { pc, mask, state: State::Ready });
    }

    /// Removes and returns the group at the lowest position that can run.
    pub fn take_ready(&mut self) -> Option<Group> {
        let ready = |g: &Group| matches!(g.state, State::Ready | State::Forced);
        let at = (0..self.groups.len())
            .filter(|i| ready(&self.groups[*i]))
            .min_by_key(|i| self.groups[*i].pc)?;
        Some(self.groups.swap_remove(at))
    }

    pub fn is_ready(&self) -> bool {
        self.groups.iter().any(|g| !matches!(g.state, State::Barrier(_)))
    }

    /// Returns the position at which a running group reaches another one.
    pub fn reconvergence_point(&self, after: u32) -> u32 {
        self.groups
            .iter()
            .filter(|g| !matches!(g.state, State::Barrier(_)) && g.pc > after)
            .map(|g| g.pc)
            .min()
            .unwrap_or(u32::MAX)
    }
}

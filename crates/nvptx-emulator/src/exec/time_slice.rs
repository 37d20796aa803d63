//! A time slice of a warp: runs instructions until all its threads wait or have exited.

use super::barrier::{Arrival, Event};
use super::warp::{Group, State, Warp};
use super::{Machine, show};
use crate::decode::op::{Op, Use};
use crate::report::FindingKind;
use crate::shadow::MAX_CLOCK;

/// The largest number of warp instructions in a time slice: a loop may wait for another warp.
const MAX_INSTRUCTIONS: u64 = 1 << 18;

/// How a group continues after a special instruction.
enum Continuation {
    /// The group continues at the next instruction.
    Next,
    /// The groups have changed.
    Select,
    End(Event),
}

impl Machine<'_> {
    pub(super) fn run_time_slice(&mut self, warp: &mut Warp) -> Event {
        let mut left = MAX_INSTRUCTIONS;
        loop {
            let Some(group) = warp.take_ready() else {
                if self.force_parked(warp) {
                    continue;
                }
                return Event::Yield;
            };
            if let Some(event) = self.run_group(warp, group, &mut left) {
                return event;
            }
        }
    }

    /// Runs a group until it reaches another one or splits; `Some` ends the time slice.
    fn run_group(&mut self, warp: &mut Warp, group: Group, left: &mut u64) -> Option<Event> {
        let kernel = self.kernel;
        let (mut pc, mask) = (group.pc, group.mask);
        let mut forced = group.state == State::Forced;
        let reconvergence = warp.reconvergence_point(pc);
        let alone = reconvergence == u32::MAX && warp.groups.is_empty();
        loop {
            if pc == reconvergence {
                warp.insert(pc, mask);
                return None;
            }
            if *left == 0 {
                warp.insert(pc, mask);
                return Some(Event::Yield);
            }
            *left -= 1;
            let inst = &kernel.code[pc as usize];
            let mut active = mask;
            if let Some((row, negated)) = inst.guard {
                let value = warp.preds[row as usize];
                active &= if negated { !value } else { value };
            }
            for at in inst.uses.0..inst.uses.1 {
                let check = if inst.guard.is_some() && at == inst.uses.0 { mask } else { active };
                self.check_use(warp, kernel.uses[at as usize], check, pc);
            }
            let threads = u64::from(active.count_ones());
            let count = &mut self.counts[pc as usize];
            count.warps += 1;
            count.threads += threads;
            // Counts instructions without active threads, too: a loop of these must end.
            self.executed += threads.max(1);
            if active == 0 {
                pc += 1;
                continue;
            }
            match inst.op {
                Op::Lane { f, d, s } => self.lane(warp, f, d, &s, active),
                Op::Branch { to } => {
                    if active == mask && alone {
                        pc = to;
                        continue;
                    }
                    warp.insert(to, active);
                    warp.insert(pc + 1, mask & !active);
                    return None;
                }
                ref op if self.step(warp, op, active, pc) => {}
                ref op => match self.special(warp, op, (mask, active), pc, forced) {
                    Continuation::Next => {}
                    Continuation::Select => return None,
                    Continuation::End(event) => return Some(event),
                },
            }
            forced = false;
            pc += 1;
        }
    }

    /// Runs control flow and warp-wide instructions.
    fn special(
        &mut self,
        warp: &mut Warp,
        op: &Op,
        (mask, active): (u32, u32),
        pc: u32,
        forced: bool,
    ) -> Continuation {
        match op {
            Op::BranchIndex { index, targets, count } => {
                let index = *warp.s32(self.kernel, *index);
                warp.insert(pc + 1, mask & !active);
                for lane in lanes(active) {
                    let at = index[lane as usize];
                    if at >= *count {
                        self.find(FindingKind::OutOfBounds, warp, lane, pc, || {
                            format!("branches to target {at} of {count}")
                        });
                        warp.live &= !(1 << lane);
                        continue;
                    }
                    let to = self.kernel.lists[(targets + at) as usize];
                    warp.insert(to, 1 << lane);
                }
                Continuation::Select
            }
            Op::Exit | Op::Trap => {
                if matches!(op, Op::Trap) {
                    let lane = active.trailing_zeros();
                    self.find(FindingKind::Trap, warp, lane, pc, || "runs `trap`".to_string());
                }
                warp.live &= !active;
                warp.insert(pc + 1, mask & !active);
                Continuation::End(Event::Exit)
            }
            Op::Barrier(barrier) => {
                warp.insert(pc + 1, mask & !active);
                let (id, waits) = self.arrive(warp, barrier, active, pc);
                match waits {
                    Arrival::Waits => {
                        warp.groups.push(Group { pc, mask: active, state: State::Barrier(id) });
                    }
                    Arrival::GoesOn => warp.insert(pc + 1, active),
                }
                Continuation::End(Event::Barrier(id))
            }
            _ => {
                let members = self.members(warp, op, active);
                let missing = members & warp.live & !active;
                if missing != 0 && !forced {
                    warp.insert(pc + 1, mask & !active);
                    warp.groups.push(Group { pc, mask: active, state: State::Parked });
                    return Continuation::Select;
                }
                let gone = members & warp.start & !warp.live;
                if gone != 0 && missing == 0 {
                    let lane = active.trailing_zeros();
                    self.find(FindingKind::DivergentWarp, warp, lane, pc, || {
                        format!("names lane {} that has exited", gone.trailing_zeros())
                    });
                }
                self.run_collective(warp, op, active, pc);
                Continuation::Next
            }
        }
    }

    /// Releases the group at the lowest position that waits for members that cannot arrive.
    fn force_parked(&mut self, warp: &mut Warp) -> bool {
        let parked = (0..warp.groups.len()).filter(|i| warp.groups[*i].state == State::Parked);
        let Some(at) = parked.min_by_key(|i| warp.groups[*i].pc) else {
            return false;
        };
        warp.groups[at].state = State::Forced;
        let Group { pc, mask, .. } = warp.groups[at];
        self.find(FindingKind::DivergentWarp, warp, mask.trailing_zeros(), pc, || {
            format!(
                "runs this with lanes {mask:#010x} of its warp, \
                 while its other members are elsewhere"
            )
        });
        true
    }

    #[inline]
    fn check_use(&mut self, warp: &mut Warp, used: Use, mask: u32, pc: u32) {
        let missing = mask
            & !match used {
                Use::R32(row) => warp.init32[row as usize],
                Use::R64(row) => warp.init64[row as usize],
                Use::Pred(row) => warp.init_preds[row as usize],
            };
        if missing != 0 {
            self.uninitialised(warp, used, missing, pc);
        }
    }

    #[cold]
    fn uninitialised(&mut self, warp: &mut Warp, used: Use, missing: u32, pc: u32) {
        let name = self.register_name(used);
        if let Use::R32(row) = used
            && self.is_sum_in_flight(warp, row)
        {
            self.find(FindingKind::InFlight, warp, missing.trailing_zeros(), pc, || {
                format!("reads {name} while a wgmma that adds to it runs")
            });
            return;
        }
        self.find(FindingKind::UninitialisedRegister, warp, missing.trailing_zeros(), pc, || {
            format!("reads {name}, which was not written")
        });
        // Reports each register and thread once.
        match used {
            Use::R32(row) => warp.init32[row as usize] |= missing,
            Use::R64(row) => warp.init64[row as usize] |= missing,
            Use::Pred(row) => warp.init_preds[row as usize] |= missing,
        }
    }

    pub(super) fn register_name(&self, used: Use) -> String {
        let name = self.kernel.reg_names.iter().find(|(u, _)| *u == used);
        name.map_or("a register", |(_, n)| n.as_str()).to_string()
    }

    /// Stops the launch at its limit of instructions; called after each time slice.
    pub(super) fn check_limit(&mut self, warp: &Warp) {
        if self.executed > self.setup.limit && !self.is_stopped {
            let limit = self.setup.limit;
            let pc = warp.groups.first().map_or(0, |g| g.pc);
            self.find(FindingKind::NoProgress, warp, 0, pc, || {
                format!("is here when the launch has executed its limit of {limit} instructions")
            });
            self.is_stopped = true;
        }
    }

    /// Advances the clock of a warp. After the last value, races cannot be detected.
    pub(super) fn tick(&mut self, warp: &mut Warp, pc: u32) {
        let clock = &mut warp.clocks[warp.index as usize];
        *clock += 1;
        if *clock >= MAX_CLOCK {
            self.find(FindingKind::NoProgress, warp, 0, pc, || {
                format!("passes more than {MAX_CLOCK} barriers")
            });
            self.is_stopped = true;
        }
    }

    pub(super) fn report_deadlock(&mut self, warps: &[Warp]) {
        for warp in warps {
            for group in &warp.groups {
                let State::Barrier(id) = group.state else { continue };
                let arrived = self.barriers[id as usize].arrived;
                let warp_at = show(self.thread(warp.index * 32));
                self.find(
                    FindingKind::NoProgress,
                    warp,
                    group.mask.trailing_zeros(),
                    group.pc,
                    || {
                        format!(
                            "waits for ever at barrier {id}, where {arrived} threads have come \
                         (warp of thread {warp_at})"
                        )
                    },
                );
            }
        }
    }
}

/// Returns the lanes of a mask.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        (rest != 0).then(|| {
            let lane = rest.trailing_zeros();
            rest &= rest - 1;
            lane
        })
    })
}

//! Warp-wide instructions: shuffles, votes, reductions, warp barriers.

use super::Machine;
use super::atomic::combine;
use super::time_slice::lanes;
use super::warp::Warp;
use crate::decode::op::{Op, ShuffleKind, VoteKind};
use crate::report::FindingKind;
use crate::ty::Ty;

impl Machine<'_> {
    /// Returns the lanes that must take part in a warp-wide instruction.
    pub(super) fn members(&self, warp: &Warp, op: &Op, active: u32) -> u32 {
        let row = match *op {
            Op::WarpBarrier { members }
            | Op::Shuffle { members, .. }
            | Op::Vote { members, .. }
            | Op::Match { members, .. }
            | Op::Reduce { members, .. }
            | Op::Elect { members, .. } => members,
            _ => return warp.start,
        };
        warp.s32(self.kernel, row)[active.trailing_zeros() as usize]
    }

    pub(super) fn run_collective(&mut self, warp: &mut Warp, op: &Op, active: u32, pc: u32) {
        let members = self.members(warp, op, active);
        let outside = active & !members;
        if outside != 0 {
            self.find(FindingKind::DivergentWarp, warp, outside.trailing_zeros(), pc, || {
                format!("is not in the member mask {members:#010x}")
            });
        }
        let k = self.kernel;
        match *op {
            Op::WarpBarrier { .. } => {
                if active == warp.live {
                    self.tick(warp, pc);
                }
            }
            Op::Shuffle { .. } => self.shuffle(warp, op, active, pc),
            Op::Vote { kind, d, p, .. } => {
                let truth = warp.pred(p) & active;
                let all = |b: bool| if b { !0 } else { 0 };
                match kind {
                    VoteKind::All => warp.set_pred(d, active, all(truth == active)),
                    VoteKind::Any => warp.set_pred(d, active, all(truth != 0)),
                    VoteKind::Uni => {
                        warp.set_pred(d, active, all(truth == active || truth == 0));
                    }
                    VoteKind::Ballot => warp.set32(d, active, &[truth; 32]),
                }
            }
            Op::Match { all, wide, d, p, a, .. } => {
                let row = if wide { *warp.s64(k, a) } else { warp.s32(k, a).map(u64::from) };
                let same = |i: usize| {
                    lanes(active).filter(|j| row[*j as usize] == row[i]).fold(0, |m, j| m | 1 << j)
                };
                let out: [u32; 32] = std::array::from_fn(same);
                if all {
                    let agree = out[active.trailing_zeros() as usize] == active;
                    warp.set32(d, active, &[if agree { active } else { 0 }; 32]);
                    warp.set_pred(p, active, if agree { !0 } else { 0 });
                } else {
                    warp.set32(d, active, &out);
                }
            }
            Op::Reduce { op, signed, d, a, .. } => {
                let row = warp.s32(k, a);
                let ty = if signed { Ty::S32 } else { Ty::U32 };
                let value = lanes(active)
                    .map(|i| u64::from(row[i as usize]))
                    .reduce(|x, y| combine(op, ty, x, y) & 0xffff_ffff)
                    .unwrap_or(0);
                warp.set32(d, active, &[value as u32; 32]);
            }
            Op::Elect { d, p, .. } => {
                let leader = active.trailing_zeros();
                warp.set32(d, active, &[leader; 32]);
                warp.set_pred(p, active, 1 << leader);
            }
            Op::LoadMatrix { .. } | Op::StoreMatrix { .. } => self.matrix(warp, op, active, pc),
            Op::Mma(ref mma) => self.mma(warp, mma, active, pc),
            Op::Wgmma(ref wgmma) => self.wgmma(warp, wgmma, active, pc),
            Op::WgmmaFence => self.wgmma_fence(warp),
            Op::WgmmaCommit => self.wgmma_commit(warp),
            Op::WgmmaWait(groups) => self.wgmma_wait(warp, groups, pc),
            _ => unreachable!("every other operation has been run before"),
        }
    }

    fn shuffle(&mut self, warp: &mut Warp, op: &Op, active: u32, pc: u32) {
        let Op::Shuffle { kind, d, p, a, b, c, .. } = *op else { return };
        let k = self.kernel;
        let (from, b, c) = (*warp.s32(k, a), *warp.s32(k, b), *warp.s32(k, c));
        let (mut out, mut valid) = ([0; 32], 0u32);
        let mut dead = None;
        for lane in lanes(active) {
            let i = lane as usize;
            let (amount, clamp, segment) = (b[i] & 31, c[i] & 31, c[i] >> 8 & 31);
            let max = (lane & segment) | (clamp & !segment);
            let min = lane & segment;
            let (target, inside) = match kind {
                ShuffleKind::Up => {
                    let target = lane.wrapping_sub(amount);
                    (target, target as i32 >= max as i32)
                }
                ShuffleKind::Down => (lane + amount, lane + amount <= max),
                ShuffleKind::Bfly => (lane ^ amount, lane ^ amount <= max),
                ShuffleKind::Idx => {
                    let target = min | (amount & !segment);
                    (target, target <= max)
                }
            };
            let source = if inside { target } else { lane };
            valid |= u32::from(inside) << lane;
            if active >> source & 1 == 0 {
                dead = Some((lane, source));
            }
            out[i] = from[source as usize];
        }
        warp.set32(d, active, &out);
        warp.set_pred(p, active, valid);
        if let Some((lane, source)) = dead {
            self.find(FindingKind::DivergentWarp, warp, lane, pc, || {
                format!("takes the value of lane {source}, which does not take part")
            });
        }
    }
}

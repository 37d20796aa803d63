//! `cp.async`: the bytes arrive when the thread waits for their group.
//!
//! Until then the destination is in flight: it has its old bytes, and every access is reported. The
//! copy counts as a write of its thread when it is issued and again when it arrives, so other
//! threads need a barrier before the issue and after the arrival.

use super::Machine;
use super::time_slice::lanes;
use super::warp::{Pending, Warp};
use crate::decode::BUFFER_BITS;
use crate::decode::op::CopyAsync;

impl Machine<'_> {
    pub(super) fn copy_async(&mut self, warp: &mut Warp, copy: &CopyAsync, active: u32, pc: u32) {
        let to = self.addresses(warp, &copy.to);
        let from = self.addresses(warp, &copy.from);
        let bytes = copy.bytes;
        let good = self.check_shared(warp, &to, active, (bytes, false), pc);
        let good = self.aligned(warp, &from, good, bytes, pc);
        let wanted = |lane: u32| {
            if copy.ignore.is_some_and(|p| warp.pred(p) >> lane & 1 == 1) {
                return 0;
            }
            copy.source_bytes.map_or(bytes, |s| warp.s32(self.kernel, s)[lane as usize].min(bytes))
        };
        let sizes: [u32; 32] = std::array::from_fn(|i| wanted(i as u32));
        let full = lanes(good).filter(|i| sizes[*i as usize] > 0).fold(0, |m, i| m | 1 << i);
        self.count_sectors(&from, full, bytes, pc);
        let me = self.stamp(warp, copy.to_site, false);
        let source = self.stamp(warp, copy.from_site, false);
        for lane in lanes(good) {
            let i = lane as usize;
            let mut data = [0u8; 16];
            let (address, size) = (from[i], sizes[i] as usize);
            let mut rest = 1 << lane;
            // A copy of no bytes may have any source address.
            if size > 0
                && let Some((buffer, inside)) =
                    self.global_part(warp, &from, &mut rest, size as u32, pc)
                && inside != 0
            {
                let at = (address & ((1 << BUFFER_BITS) - 1)) as usize;
                for part in (0..size).step_by(4) {
                    let place = (buffer, at + part);
                    let bytes = (size - part).min(4).next_power_of_two() as u32;
                    self.read_global(warp, lane, place, bytes, (source, false), pc);
                }
                let source = &self.memory.buffer(buffer).data[at..at + size];
                data[..size].copy_from_slice(source);
            }
            let at = to[i] as usize;
            self.write_shared(warp, lane, at, bytes, me, pc);
            let tid = (warp.index * 32 + lane) as u16;
            for word in at / 4..(at + bytes as usize) / 4 {
                self.shared.in_flight[word] = tid + 1;
            }
            self.shared.copies += 1;
            let group = warp.committed[i];
            let offset = at as u32;
            warp.pending.push(Pending { lane, group, offset, bytes, site: copy.to_site, data });
        }
    }

    pub(super) fn copy_commit(&mut self, warp: &mut Warp, active: u32) {
        for lane in lanes(active) {
            warp.committed[lane as usize] += 1;
        }
    }

    pub(super) fn copy_wait(&mut self, warp: &mut Warp, groups: Option<u32>, active: u32) {
        let pending = std::mem::take(&mut warp.pending);
        let mut rest = Vec::with_capacity(pending.len());
        for copy in pending {
            let committed = warp.committed[copy.lane as usize];
            let is_done = groups.is_none_or(|n| copy.group + n < committed);
            if active >> copy.lane & 1 == 1 && is_done {
                self.arrive_copy(warp, &copy);
            } else {
                rest.push(copy);
            }
        }
        warp.pending = rest;
    }

    fn arrive_copy(&mut self, warp: &Warp, copy: &Pending) {
        let (at, end) = (copy.offset as usize, (copy.offset + copy.bytes) as usize);
        let bytes = copy.bytes as usize;
        self.shared.data[at..end].copy_from_slice(&copy.data[..bytes]);
        self.shared.in_flight[at / 4..end / 4].fill(0);
        self.shared.copies -= 1;
        if !self.shared.unfenced.is_empty() {
            let writer = (warp.index * 32 + copy.lane + 1) as u16;
            self.shared.unfenced[at / 4..end / 4].fill(writer);
        }
        // Accesses in between were reported as in flight; this only updates the stamp.
        let me = self.stamp(warp, copy.site, false).lane(copy.lane);
        self.shared.shadow.write(at, copy.bytes, me, &warp.clocks);
    }
}

//! Loads and stores: checks of alignment, bounds, initialisation and races; costs; the data.

use super::time_slice::lanes;
use super::warp::Warp;
use super::{Machine, show};
use crate::conflicts;
use crate::decode::op::{Access, Address, Base, CONST, MemSpace};
use crate::decode::{BUFFER_BITS, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES};
use crate::lanes::{R32, R64};
use crate::memory;
use crate::report::FindingKind;
use crate::shadow::Stamp;

/// The elements of an access, a row for each.
type Rows = [R64; 8];

impl Machine<'_> {
    pub(super) fn addresses(&self, warp: &Warp, address: &Address) -> R64 {
        let offset = address.offset;
        match address.base {
            Base::None => [offset as u64; 32],
            Base::R32(src) => {
                let base = warp.s32(self.kernel, src);
                base.map(|b| u64::from(b.wrapping_add(offset as u32)))
            }
            Base::R64(src) => warp.s64(self.kernel, src).map(|b| b.wrapping_add(offset as u64)),
        }
    }

    pub(super) fn stamp(&self, warp: &Warp, site: u32, strong: bool) -> Stamp {
        let clock = warp.clocks[warp.index as usize];
        Stamp::new(self.block_number, clock, warp.index * 32, site, strong)
    }

    pub(super) fn load(&mut self, warp: &mut Warp, access: &Access, active: u32, pc: u32) {
        let addresses = self.addresses(warp, &access.address);
        let words = access.ty.bytes() == 4 && access.reg_bytes == 4;
        if words && matches!(access.space, MemSpace::Shared | MemSpace::Global) {
            return self.load_words(warp, access, &addresses, active, pc);
        }
        let mut rows: Rows = [[0; 32]; 8];
        self.by_space(access.space, &addresses, active, warp, |machine, warp, space, at, mask| {
            let element = access.ty.bytes();
            let take = |lane, data: &[u8]| unpack(&mut rows, lane, data, element);
            match space {
                MemSpace::Shared => machine.load_shared(warp, access, at, mask, pc, take),
                MemSpace::Local => machine.load_local(warp, access, at, mask, pc, take),
                MemSpace::Param => machine.load_param(warp, access, at, mask, pc, take),
                _ => machine.load_global(warp, access, at, mask, pc, take),
            }
        });
        for (i, row) in rows.iter().enumerate().take(access.count as usize) {
            let d = self.kernel.lists[access.regs as usize + i];
            let unused = 64 - access.ty.bits();
            let extended: R64 = if access.ty.is_signed() {
                row.map(|v| ((v << unused) as i64 >> unused) as u64)
            } else {
                *row
            };
            match access.reg_bytes {
                8 => warp.set64(d, active, &extended),
                2 => warp.set32(d, active, &extended.map(|v| v as u32 & 0xffff)),
                _ => warp.set32(d, active, &extended.map(|v| v as u32)),
            }
        }
    }

    pub(super) fn store(&mut self, warp: &mut Warp, access: &Access, active: u32, pc: u32) {
        let addresses = self.addresses(warp, &access.address);
        let mut rows: Rows = [[0; 32]; 8];
        for (i, row) in rows.iter_mut().enumerate().take(access.count as usize) {
            let src = self.kernel.lists[access.regs as usize + i];
            let is_wide = access.reg_bytes == 8 && (src & CONST == 0 || access.ty.bytes() == 8);
            if is_wide {
                *row = *warp.s64(self.kernel, src);
            } else {
                *row = warp.s32(self.kernel, src).map(u64::from);
            }
        }
        self.by_space(access.space, &addresses, active, warp, |machine, warp, space, at, mask| {
            match space {
                MemSpace::Shared => machine.store_shared(warp, access, at, mask, pc, &rows),
                MemSpace::Local => machine.store_local(warp, access, at, mask, pc, &rows),
                _ => machine.store_global(warp, access, at, mask, pc, &rows),
            }
        });
    }

    /// Splits generic addresses by window and subtracts the start of the window.
    fn by_space(
        &mut self,
        space: MemSpace,
        addresses: &R64,
        active: u32,
        warp: &mut Warp,
        mut go: impl FnMut(&mut Self, &mut Warp, MemSpace, &R64, u32),
    ) {
        if space != MemSpace::Generic {
            return go(self, warp, space, addresses, active);
        }
        let (mut shared, mut local) = (0, 0);
        for lane in lanes(active) {
            let address = addresses[lane as usize];
            if (SHARED_WINDOW..SHARED_WINDOW + WINDOW_BYTES).contains(&address) {
                shared |= 1 << lane;
            } else if (LOCAL_WINDOW..LOCAL_WINDOW + WINDOW_BYTES).contains(&address) {
                local |= 1 << lane;
            }
        }
        let global = active & !shared & !local;
        if shared != 0 {
            let at = addresses.map(|a| a.wrapping_sub(SHARED_WINDOW));
            go(self, warp, MemSpace::Shared, &at, shared);
        }
        if local != 0 {
            let at = addresses.map(|a| a.wrapping_sub(LOCAL_WINDOW));
            go(self, warp, MemSpace::Local, &at, local);
        }
        if global != 0 {
            go(self, warp, MemSpace::Global, addresses, global);
        }
    }

    /// Returns the lanes whose address is a multiple of the access size.
    pub(super) fn aligned(
        &mut self,
        warp: &Warp,
        addresses: &R64,
        active: u32,
        bytes: u32,
        pc: u32,
    ) -> u32 {
        let low = u64::from(bytes) - 1;
        let mut bad = 0;
        for (i, address) in addresses.iter().enumerate() {
            bad |= u32::from(address & low != 0) << i;
        }
        bad &= active;
        if bad != 0 {
            let lane = bad.trailing_zeros();
            let address = addresses[lane as usize];
            self.find(FindingKind::Misaligned, warp, lane, pc, || {
                format!("accesses {bytes} bytes at {address:#x}, not a multiple of {bytes}")
            });
        }
        active & !bad
    }

    /// Returns the lanes whose access is aligned and inside a shared variable. Counts wavefronts;
    /// `loads`: of a load to registers.
    pub(super) fn check_shared(
        &mut self,
        warp: &Warp,
        addresses: &R64,
        active: u32,
        (bytes, loads): (u32, bool),
        pc: u32,
    ) -> u32 {
        let mut good = self.aligned(warp, addresses, active, bytes, pc);
        for lane in lanes(good) {
            let at = addresses[lane as usize];
            if at >= self.shared.data.len() as u64 || !self.is_mapped(at as usize, bytes) {
                good &= !(1 << lane);
                let near = self.near_shared(at);
                self.find(FindingKind::OutOfBounds, warp, lane, pc, || {
                    format!("accesses {bytes} bytes of shared memory at {at:#x}{near}")
                });
            }
        }
        let words: R32 = addresses.map(|a| a as u32);
        let cost = if bytes > 16 {
            let half = conflicts::wavefronts(&words, good, 16, loads);
            conflicts::Cost { taken: 2 * half.taken, ideal: 2 * half.ideal }
        } else {
            conflicts::wavefronts(&words, good, bytes, loads)
        };
        let count = &mut self.counts[pc as usize];
        count.wavefronts += u64::from(cost.taken);
        count.ideal_wavefronts += u64::from(cost.ideal);
        good
    }

    fn is_mapped(&self, at: usize, bytes: u32) -> bool {
        match bytes {
            32 => self.shared.mapped.has(at, 16) && self.shared.mapped.has(at + 16, 16),
            _ => self.shared.mapped.has(at, bytes),
        }
    }

    /// Names the variable before a wrong shared address.
    fn near_shared(&self, at: u64) -> String {
        let dynamic = u64::from(self.kernel.dynamic_offset);
        if self.kernel.uses_dynamic && at >= dynamic {
            let (byte, bytes) = (at - dynamic, self.setup.dynamic_bytes);
            return format!(": byte {byte} of dynamic shared memory, which has {bytes}");
        }
        let before = self.kernel.shared.iter().rev().find(|v| u64::from(v.offset) <= at);
        match before {
            Some(var) => {
                let offset = at - u64::from(var.offset);
                format!(": byte {offset} of `{}`, which has {}", var.name, var.bytes)
            }
            None => ": there is no variable".to_string(),
        }
    }

    /// Returns the variable and the byte of a shared address, for messages.
    pub(super) fn shared_name(&self, at: u64) -> String {
        let dynamic = u64::from(self.kernel.dynamic_offset);
        if at >= dynamic {
            return format!("byte {} of dynamic shared memory", at - dynamic);
        }
        match self.kernel.shared.iter().rev().find(|v| u64::from(v.offset) <= at) {
            Some(var) => format!("byte {} of `{}`", at - u64::from(var.offset), var.name),
            None => format!("shared byte {at:#x}"),
        }
    }

    /// Checks and records a read of shared memory by a lane.
    #[inline]
    pub(super) fn read_shared(
        &mut self,
        warp: &Warp,
        lane: u32,
        at: usize,
        bytes: u32,
        me: Stamp,
        pc: u32,
    ) {
        let shared = &mut self.shared;
        if !shared.init.has(at, bytes.min(16)) {
            let name = self.shared_name(at as u64);
            self.find(FindingKind::UninitialisedRead, warp, lane, pc, || {
                format!("reads {name}, which was not written in this block")
            });
        }
        let found = self.shared.shadow.read(at, bytes, me.lane(lane), &warp.clocks);
        if let Some(race) = found {
            let name = self.shared_name(at as u64);
            self.find_race(race, warp, lane, pc, true, || name);
        }
        if self.shared.copies > 0 {
            self.touch_in_flight(warp, lane, at, bytes, pc, "reads");
        }
    }

    /// Checks and records a write of shared memory by a lane.
    #[inline]
    pub(super) fn write_shared(
        &mut self,
        warp: &Warp,
        lane: u32,
        at: usize,
        bytes: u32,
        me: Stamp,
        pc: u32,
    ) {
        let found = self.shared.shadow.write(at, bytes, me.lane(lane), &warp.clocks);
        if let Some(race) = found {
            let name = self.shared_name(at as u64);
            self.find_race(race, warp, lane, pc, true, || name);
        }
        if self.shared.copies > 0 {
            self.touch_in_flight(warp, lane, at, bytes, pc, "writes");
        }
        self.write_beside_products(warp, lane, at, bytes, pc);
        for part in (0..bytes).step_by(16) {
            self.shared.init.add(at + part as usize, bytes.min(16));
        }
    }

    fn touch_in_flight(
        &mut self,
        warp: &Warp,
        lane: u32,
        at: usize,
        bytes: u32,
        pc: u32,
        verb: &str,
    ) {
        let words = at / 4..(at + bytes as usize).div_ceil(4);
        let Some(owner) = words.map(|w| self.shared.in_flight[w]).find(|t| *t != 0) else {
            return;
        };
        let name = self.shared_name(at as u64);
        let owner = show(self.thread(u32::from(owner) - 1));
        self.find(FindingKind::InFlight, warp, lane, pc, || {
            format!("{verb} {name} while a cp.async of thread {owner} to it is in flight")
        });
    }

    /// The most frequent load: 32-bit elements to 32-bit registers.
    fn load_words(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        addresses: &R64,
        active: u32,
        pc: u32,
    ) {
        let mut rows = [[0u32; 32]; 8];
        let take = |lane: u32, data: &[u8]| {
            for (row, word) in rows.iter_mut().zip(data.chunks_exact(4)) {
                row[lane as usize] = u32::from_le_bytes(word.try_into().expect("4 bytes"));
            }
        };
        match access.space {
            MemSpace::Shared => self.load_shared(warp, access, addresses, active, pc, take),
            _ => self.load_global(warp, access, addresses, active, pc, take),
        }
        for (i, row) in rows.iter().enumerate().take(access.count as usize) {
            warp.set32(self.kernel.lists[access.regs as usize + i], active, row);
        }
    }

    /// Calls `take` with the bytes that each lane reads from shared memory.
    #[inline]
    fn load_shared(
        &mut self,
        warp: &Warp,
        access: &Access,
        addresses: &R64,
        mask: u32,
        pc: u32,
        mut take: impl FnMut(u32, &[u8]),
    ) {
        let bytes = access.ty.bytes() * access.count;
        let good = self.check_shared(warp, addresses, mask, (bytes, true), pc);
        let me = self.stamp(warp, access.site, access.is_strong);
        for lane in lanes(good) {
            let at = addresses[lane as usize] as usize;
            self.read_shared(warp, lane, at, bytes, me, pc);
            take(lane, &self.shared.data[at..at + bytes as usize]);
        }
    }

    fn store_shared(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        addresses: &R64,
        mask: u32,
        pc: u32,
        rows: &Rows,
    ) {
        let bytes = access.ty.bytes() * access.count;
        let good = self.check_shared(warp, addresses, mask, (bytes, false), pc);
        let me = self.stamp(warp, access.site, access.is_strong);
        for lane in lanes(good) {
            let at = addresses[lane as usize] as usize;
            self.write_shared(warp, lane, at, bytes, me, pc);
            pack(rows, lane, &mut self.shared.data[at..at + bytes as usize], access.ty.bytes());
        }
    }

    /// Returns the lanes that access the same buffer as the first one, the buffer, and those of the
    /// lanes that are in bounds.
    pub(super) fn global_part(
        &mut self,
        warp: &Warp,
        addresses: &R64,
        rest: &mut u32,
        bytes: u32,
        pc: u32,
    ) -> Option<(usize, u32)> {
        let first = rest.trailing_zeros();
        let high = addresses[first as usize] >> BUFFER_BITS;
        let mut part = 0;
        for (i, address) in addresses.iter().enumerate() {
            part |= u32::from(address >> BUFFER_BITS == high) << i;
        }
        part &= *rest;
        *rest &= !part;
        let Some((at, _)) = self.memory.locate(addresses[first as usize]) else {
            let address = addresses[first as usize];
            self.find(FindingKind::OutOfBounds, warp, first, pc, || {
                format!(
                    "accesses {bytes} bytes of global memory at {address:#x}, outside all buffers"
                )
            });
            return None;
        };
        let len = self.memory.buffer(at).data.len() as u64;
        let low = (1 << BUFFER_BITS) - 1;
        let mut bad = 0;
        for (i, address) in addresses.iter().enumerate() {
            bad |= u32::from((address & low) + u64::from(bytes) > len) << i;
        }
        bad &= part;
        if bad != 0 {
            let lane = bad.trailing_zeros();
            let offset = addresses[lane as usize] & low;
            let name = self.memory.buffer(at).name.clone();
            self.find(FindingKind::OutOfBounds, warp, lane, pc, || {
                format!("accesses {bytes} bytes at byte {offset} of `{name}`, which has {len}")
            });
        }
        Some((at, part & !bad))
    }

    pub(super) fn count_sectors(&mut self, addresses: &R64, mask: u32, bytes: u32, pc: u32) {
        let cost = conflicts::sectors(addresses, mask, bytes);
        let count = &mut self.counts[pc as usize];
        count.sectors += u64::from(cost.taken);
        count.ideal_sectors += u64::from(cost.ideal);
    }

    /// Checks and records a read of global memory by a lane.
    #[inline]
    pub(super) fn read_global(
        &mut self,
        warp: &Warp,
        lane: u32,
        (buffer, at): (usize, usize),
        bytes: u32,
        (me, is_nc): (Stamp, bool),
        pc: u32,
    ) {
        let memory = self.memory.buffer(buffer);
        let parts = bytes.div_ceil(16) as usize;
        if !(0..parts).all(|i| memory.init.has(at + 16 * i, bytes.min(16))) {
            let name = memory.name.clone();
            self.find(FindingKind::UninitialisedRead, warp, lane, pc, || {
                format!("reads byte {at} of `{name}`, which was not written")
            });
        }
        let Some(shadow) = &mut self.shadows[buffer] else { return };
        let written = is_nc && shadow.touched(at).0.is_some();
        let found = shadow.read(at, bytes, me.lane(lane), &warp.clocks);
        if found.is_none() && !written {
            return;
        }
        let name = self.memory.buffer(buffer).name.clone();
        if let Some(race) = found {
            let name = name.clone();
            self.find_race(race, warp, lane, pc, false, || format!("byte {at} of `{name}`"));
        }
        if written {
            self.find(FindingKind::NonCoherent, warp, lane, pc, || {
                format!("reads byte {at} of `{name}`, which this launch has written")
            });
        }
    }

    /// Checks and records a write of global memory by a lane; returns whether it may be done.
    #[inline]
    pub(super) fn write_global(
        &mut self,
        warp: &Warp,
        lane: u32,
        (buffer, at): (usize, usize),
        bytes: u32,
        me: Stamp,
        pc: u32,
    ) -> bool {
        let memory = self.memory.buffer_mut(buffer);
        let Some(shadow) = &mut self.shadows[buffer] else {
            let name = memory.name.clone();
            self.find(FindingKind::ReadOnly, warp, lane, pc, || {
                format!("writes byte {at} of `{name}`")
            });
            return false;
        };
        for part in (0..bytes).step_by(16) {
            memory.init.add(at + part as usize, bytes.min(16));
        }
        let readers = shadow.touched(at).1;
        let found = shadow.write(at, bytes, me.lane(lane), &warp.clocks);
        if let Some(race) = found {
            let name = memory.name.clone();
            self.find_race(race, warp, lane, pc, false, || format!("byte {at} of `{name}`"));
        }
        for reader in readers.into_iter().flatten() {
            self.check_nc_reader(reader, warp, lane, (buffer, at), pc);
        }
        true
    }

    /// Reports a write to memory that `ld.global.nc` read in this launch.
    fn check_nc_reader(
        &mut self,
        reader: Stamp,
        warp: &Warp,
        lane: u32,
        (buffer, at): (usize, usize),
        pc: u32,
    ) {
        use crate::decode::op::Op;
        let Some(site) = reader.site() else { return };
        let inst = &self.kernel.code[self.kernel.sites[site as usize] as usize];
        if matches!(inst.op, Op::Load(Access { is_nc: true, .. })) {
            let (name, line) = (self.memory.buffer(buffer).name.clone(), inst.line);
            self.find(FindingKind::NonCoherent, warp, lane, pc, || {
                format!("writes byte {at} of `{name}`, which line {line} has read by ld.global.nc")
            });
        }
    }

    /// Calls `take` with the bytes that each lane reads from global memory.
    #[inline]
    fn load_global(
        &mut self,
        warp: &Warp,
        access: &Access,
        addresses: &R64,
        mask: u32,
        pc: u32,
        mut take: impl FnMut(u32, &[u8]),
    ) {
        let bytes = access.ty.bytes() * access.count;
        let mut rest = self.aligned(warp, addresses, mask, bytes, pc);
        self.count_sectors(addresses, rest, bytes, pc);
        let me = (self.stamp(warp, access.site, access.is_strong), access.is_nc);
        while rest != 0 {
            let Some((buffer, good)) = self.global_part(warp, addresses, &mut rest, bytes, pc)
            else {
                continue;
            };
            // Read-only buffers need no records.
            let quick = self.memory.buffer(buffer).access == memory::Access::Read;
            for lane in lanes(good) {
                let at = (addresses[lane as usize] & ((1 << BUFFER_BITS) - 1)) as usize;
                if !quick {
                    self.read_global(warp, lane, (buffer, at), bytes, me, pc);
                }
                take(lane, &self.memory.buffer(buffer).data[at..at + bytes as usize]);
            }
        }
    }

    fn store_global(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        addresses: &R64,
        mask: u32,
        pc: u32,
        rows: &Rows,
    ) {
        let bytes = access.ty.bytes() * access.count;
        let mut rest = self.aligned(warp, addresses, mask, bytes, pc);
        self.count_sectors(addresses, rest, bytes, pc);
        let me = self.stamp(warp, access.site, access.is_strong);
        while rest != 0 {
            let Some((buffer, good)) = self.global_part(warp, addresses, &mut rest, bytes, pc)
            else {
                continue;
            };
            for lane in lanes(good) {
                let at = (addresses[lane as usize] & ((1 << BUFFER_BITS) - 1)) as usize;
                if self.write_global(warp, lane, (buffer, at), bytes, me, pc) {
                    let data = &mut self.memory.buffer_mut(buffer).data[at..at + bytes as usize];
                    pack(rows, lane, data, access.ty.bytes());
                }
            }
        }
    }

    /// Returns the position of a local access in the warp's memory, if it is inside the frame.
    fn local_at(
        &mut self,
        warp: &Warp,
        address: u64,
        bytes: u32,
        lane: u32,
        pc: u32,
    ) -> Option<usize> {
        let frame = u64::from(self.kernel.local_bytes);
        // The last 16 bytes are the gap after the last variable.
        if address.saturating_add(u64::from(bytes)) > frame.saturating_sub(16) {
            self.find(FindingKind::OutOfBounds, warp, lane, pc, || {
                format!("accesses {bytes} bytes of local memory at {address:#x} of {frame}")
            });
            return None;
        }
        Some((u64::from(lane) * frame + address) as usize)
    }

    fn load_local(
        &mut self,
        warp: &Warp,
        access: &Access,
        addresses: &R64,
        mask: u32,
        pc: u32,
        mut take: impl FnMut(u32, &[u8]),
    ) {
        let bytes = access.ty.bytes() * access.count;
        for lane in lanes(self.aligned(warp, addresses, mask, bytes, pc)) {
            let address = addresses[lane as usize];
            let Some(at) = self.local_at(warp, address, bytes, lane, pc) else { continue };
            if !(0..bytes as usize).all(|i| warp.local_init.has(at + i, 1)) {
                self.find(FindingKind::UninitialisedRead, warp, lane, pc, || {
                    format!("reads local byte {address}, which it has not written")
                });
            }
            take(lane, &warp.local[at..at + bytes as usize]);
        }
    }

    fn store_local(
        &mut self,
        warp: &mut Warp,
        access: &Access,
        addresses: &R64,
        mask: u32,
        pc: u32,
        rows: &Rows,
    ) {
        let bytes = access.ty.bytes() * access.count;
        for lane in lanes(self.aligned(warp, addresses, mask, bytes, pc)) {
            let address = addresses[lane as usize];
            let Some(at) = self.local_at(warp, address, bytes, lane, pc) else { continue };
            warp.local_init.add_range(at, bytes as usize);
            pack(rows, lane, &mut warp.local[at..at + bytes as usize], access.ty.bytes());
        }
    }

    fn load_param(
        &mut self,
        warp: &Warp,
        access: &Access,
        addresses: &R64,
        mask: u32,
        pc: u32,
        mut take: impl FnMut(u32, &[u8]),
    ) {
        let bytes = access.ty.bytes() * access.count;
        for lane in lanes(self.aligned(warp, addresses, mask, bytes, pc)) {
            let at = addresses[lane as usize] as usize;
            let end = at.saturating_add(bytes as usize);
            let Some(data) = self.setup.params.get(at..end) else {
                self.find(FindingKind::OutOfBounds, warp, lane, pc, || {
                    format!("reads {bytes} bytes of the parameters at {at}")
                });
                continue;
            };
            take(lane, data);
        }
    }
}

/// Stores the elements of a lane into the rows.
fn unpack(rows: &mut Rows, lane: u32, data: &[u8], element: u32) {
    for (row, bytes) in rows.iter_mut().zip(data.chunks_exact(element as usize)) {
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        row[lane as usize] = u64::from_le_bytes(value);
    }
}

/// Loads the elements of a lane from the rows.
fn pack(rows: &Rows, lane: u32, data: &mut [u8], element: u32) {
    for (row, bytes) in rows.iter().zip(data.chunks_exact_mut(element as usize)) {
        bytes.copy_from_slice(&row[lane as usize].to_le_bytes()[..element as usize]);
    }
}

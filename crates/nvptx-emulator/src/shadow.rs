//! The race detector: vector clocks by warp, and the last accesses to each granule of memory.
//!
//! Each granule has a cell with its last writer and two readers of different threads. An access is
//! stamped with block, thread and the clock of the thread's warp. The clock advances when the warp
//! passes a barrier, and the barrier passes the clocks of all its warps to each of them. An earlier
//! access is ordered before the current one if the same thread made it, or if the current warp
//! knows a later clock of that warp. Two accesses without an order, one of them a write, are a
//! race. Blocks are never ordered.

/// Stamp: 20 bits of block number (from 1), 20 bits of clock, 10 bits of thread, one bit for
/// atomic (or strong) accesses, 13 bits of access site.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Stamp(u64);

pub(crate) const MAX_BLOCKS: u64 = (1 << 20) - 2;
pub(crate) const MAX_CLOCK: u32 = (1 << 20) - 2;
const SITES: u32 = 1 << 13;
const TID_SHIFT: u32 = 14;
const CLOCK_SHIFT: u32 = 24;
const BLOCK_SHIFT: u32 = 44;

impl Stamp {
    pub fn new(block: u64, clock: u32, tid: u32, site: u32, strong: bool) -> Stamp {
        Stamp(
            block << BLOCK_SHIFT
                | u64::from(clock) << CLOCK_SHIFT
                | u64::from(tid) << TID_SHIFT
                | u64::from(strong) << 13
                | u64::from(site.min(SITES - 1)),
        )
    }

    /// Returns the stamp of the same access by another lane of the warp.
    #[inline]
    pub fn lane(self, lane: u32) -> Stamp {
        Stamp(self.0 + (u64::from(lane) << TID_SHIFT))
    }

    pub fn tid(self) -> u32 {
        (self.0 >> TID_SHIFT) as u32 & 1023
    }

    /// Returns the number of the block, from 1, in the order of execution.
    pub fn block(self) -> u64 {
        self.0 >> BLOCK_SHIFT
    }

    #[inline]
    fn clock(self) -> u32 {
        (self.0 >> CLOCK_SHIFT) as u32 & 0xf_ffff
    }

    pub fn is_strong(self) -> bool {
        self.0 >> 13 & 1 == 1
    }

    /// Returns the access site, unless the kernel has more sites than a stamp can hold.
    pub fn site(self) -> Option<u32> {
        let site = self.0 as u32 & (SITES - 1);
        (site != SITES - 1).then_some(site)
    }

    #[inline]
    fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// The state of a granule.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cell {
    writer: Stamp,
    readers: [Stamp; 2],
}

/// The kinds of a race, named in the order of the accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub(crate) enum Race {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
}

/// The cells of a range of memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow {
    cells: Vec<Cell>,
    shift: u32,
    /// Whether accesses of other blocks race. In shared memory they belong to finished blocks.
    is_global: bool,
}

/// The clocks of the warps of a block that one of them knows.
pub(crate) type Clocks = [u32; 32];

impl Shadow {
    pub fn new(bytes: usize, granule: u32, is_global: bool) -> Self {
        let cells = vec![Cell::default(); bytes.div_ceil(granule as usize)];
        Shadow { cells, shift: granule.trailing_zeros(), is_global }
    }

    /// Whether the access is ordered before the current one of `me`.
    #[inline]
    fn is_before(&self, old: Stamp, me: Stamp, clocks: &Clocks) -> bool {
        if old.is_none() {
            return true;
        }
        if old.block() != me.block() {
            return !self.is_global;
        }
        let tid = old.tid();
        tid == me.tid() || old.clock() < clocks[tid as usize >> 5]
    }

    /// Whether two accesses race. Strong accesses, such as atomic ones, do not race with each
    /// other.
    #[inline]
    fn races(&self, old: Stamp, me: Stamp, clocks: &Clocks) -> bool {
        let both_strong = me.is_strong() && old.is_strong();
        !both_strong && !self.is_before(old, me, clocks)
    }

    #[inline]
    fn cells(&mut self, offset: usize, bytes: u32) -> std::ops::Range<usize> {
        let first = offset >> self.shift;
        first..first + ((bytes as usize) >> self.shift).max(1)
    }

    /// Records a read; returns a write that it races with.
    #[inline]
    pub fn read(
        &mut self,
        offset: usize,
        bytes: u32,
        me: Stamp,
        clocks: &Clocks,
    ) -> Option<(Race, Stamp)> {
        let mut found = None;
        for at in self.cells(offset, bytes) {
            let cell = self.cells[at];
            if self.races(cell.writer, me, clocks) {
                found = Some((Race::ReadAfterWrite, cell.writer));
            }
            let [first, second] = cell.readers;
            if first == me {
                continue;
            }
            // A reader that is ordered before this one is redundant.
            let slot = if self.is_before(first, me, clocks) {
                0
            } else if self.is_before(second, me, clocks)
                || (first.tid() >> 5 == second.tid() >> 5 && first.tid() >> 5 != me.tid() >> 5)
            {
                1
            } else {
                continue;
            };
            self.cells[at].readers[slot] = me;
        }
        found
    }

    /// Records a write; returns an access that it races with.
    #[inline]
    pub fn write(
        &mut self,
        offset: usize,
        bytes: u32,
        me: Stamp,
        clocks: &Clocks,
    ) -> Option<(Race, Stamp)> {
        let mut found = None;
        for at in self.cells(offset, bytes) {
            let cell = self.cells[at];
            for reader in cell.readers {
                if self.races(reader, me, clocks) {
                    found = Some((Race::WriteAfterRead, reader));
                }
            }
            let writer = cell.writer;
            if self.races(writer, me, clocks) {
                found = Some((Race::WriteAfterWrite, writer));
            }
            self.cells[at].writer = me;
        }
        found
    }

    /// Returns the last writer of this launch and the last readers, to check `ld.global.nc`.
    pub fn touched(&self, offset: usize) -> (Option<Stamp>, [Option<Stamp>; 2]) {
        let cell = self.cells[offset >> self.shift];
        let known = |s: Stamp| (!s.is_none()).then_some(s);
        (known(cell.writer), cell.readers.map(known))
    }
}

//! Detection of races: who accessed an element last, and in which interval between two barriers.

/// The order of blocks, and of the threads of a block between two barriers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// In the order of their numbers.
    Ascending,
    /// A random order, a different one each time; the number is the state of the generator.
    Shuffled(u64),
}

/// Where a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// At the end.
    End,
    /// At a barrier.
    Barrier,
}

/// The thread that runs, and when.
#[derive(Clone, Debug, Default)]
pub struct RunningThread {
    /// The extents of the six indices, outermost first.
    pub grid: [i64; 6],
    /// The number of the block.
    pub block: u64,
    /// The number of the thread in its block.
    pub thread: u32,
    /// The number of the interval between two barriers, counted through all blocks.
    pub interval: u64,
}

/// The last accesses to an element in this launch. Blocks are stored as their number plus 1; 0
/// means none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shadow {
    wrote_at: u64,
    wrote_block: u64,
    writer: u32,
    reader: u32,
    read_at: u64,
    read_block: u64,
    /// Whether more than one thread read it in `read_at`.
    many_readers: bool,
    /// Whether more than one block read it.
    many_blocks: bool,
}

/// The access that an access races with.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    block: u64,
    thread: u32,
    wrote: bool,
}

impl Shadow {
    /// Records a read by the running thread; returns the access that it races with.
    pub fn read(&mut self, now: &RunningThread) -> Option<Race> {
        let block = now.block + 1;
        if let Some(race) = self.racing_write(now) {
            return Some(race);
        }
        if self.read_at == now.interval {
            self.many_readers |= self.reader != now.thread;
        } else {
            (self.read_at, self.reader, self.many_readers) = (now.interval, now.thread, false);
        }
        self.many_blocks |= self.read_block != 0 && self.read_block != block;
        self.read_block = block;
        None
    }

    /// Records a write by the running thread; returns the access that it races with.
    pub fn write(&mut self, now: &RunningThread) -> Option<Race> {
        let block = now.block + 1;
        if let Some(race) = self.racing_write(now) {
            return Some(race);
        }
        let together =
            self.read_at == now.interval && (self.many_readers || self.reader != now.thread);
        let elsewhere = self.read_block != 0 && (self.many_blocks || self.read_block != block);
        if together || elsewhere {
            let block = self.read_block - 1;
            return Some(Race { block, thread: self.reader, wrote: false });
        }
        (self.wrote_at, self.writer, self.wrote_block) = (now.interval, now.thread, block);
        None
    }

    fn racing_write(&self, now: &RunningThread) -> Option<Race> {
        let together = self.wrote_at == now.interval && self.writer != now.thread;
        let elsewhere = self.wrote_block != 0 && self.wrote_block != now.block + 1;
        (together || elsewhere).then(|| Race {
            block: self.wrote_block - 1,
            thread: self.writer,
            wrote: true,
        })
    }
}

impl RunningThread {
    /// Returns `thread (1, 0, 0) of block (2, 0, 0)`, coordinates in the order x, y, z.
    pub fn name(&self, block: u64, thread: u32) -> String {
        let point = |number: u64, [_, y, x]: [i64; 3]| {
            let number = number as i64;
            format!("({}, {}, {})", number % x, number / x % y, number / x / y)
        };
        let [z, y, x, tz, ty, tx] = self.grid;
        let (thread, block) = (point(thread.into(), [tz, ty, tx]), point(block, [z, y, x]));
        format!("thread {thread} of block {block}")
    }

    /// Describes that the running thread stopped at another place than thread `other` of its block.
    pub fn describe_divergence(&self, other: u32) -> String {
        let own = self.name(self.block, self.thread);
        format!("{own} does not reach the barrier of {}", self.name(self.block, other))
    }

    /// Describes the race of the running thread's access.
    pub fn describe(&self, race: Race) -> String {
        let own = self.name(self.block, self.thread);
        let other = self.name(race.block, race.thread);
        let did = if race.wrote { "wrote" } else { "read" };
        let blocks = race.block != self.block;
        let since = if blocks { "in the same launch" } else { "since the last barrier" };
        format!("{own} accesses what {other} {did} {since}")
    }
}

//! Launches: block after block; the threads of a block one after the other, each as far as the
//! next place where all of them meet.
//!
//! Every access of shared memory, and of global memory that the launch writes, is remembered with
//! the thread and the time, so that a race is seen whatever the order of the threads is.

use super::code::{Launch, Pc};
use super::machine::{Fault, Machine, Memory};

/// The order of blocks, and of threads between two places where they meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As they are numbered.
    Ascending,
    /// Any other one, by a number; another one each time.
    Shuffled(u64),
}

/// Where a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// At the end.
    End,
    /// Where all threads of the block meet.
    Meeting,
}

/// What the launch is about, at present.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// Blocks and threads along each of the six indices, outermost first.
    grid: [i64; 6],
    block: u64,
    thread: u32,
    /// Counts the times between two meetings, of all blocks.
    interval: u64,
}

/// The last accesses of an element in this launch. A block's number is one more than it is; 0 is
/// none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shadow {
    wrote_at: u64,
    wrote_block: u64,
    writer: u32,
    reader: u32,
    read_at: u64,
    read_block: u64,
    /// More than one thread read it in `read_at`.
    many_readers: bool,
    /// More than one block read it.
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
    /// A read at present; the race if there is one.
    pub fn read(&mut self, now: &Now) -> Option<Race> {
        let block = now.block + 1;
        if let Some(race) = self.clashing_write(now) {
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

    /// A write at present; the race if there is one.
    pub fn write(&mut self, now: &Now) -> Option<Race> {
        let block = now.block + 1;
        if let Some(race) = self.clashing_write(now) {
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

    fn clashing_write(&self, now: &Now) -> Option<Race> {
        let together = self.wrote_at == now.interval && self.writer != now.thread;
        let elsewhere = self.wrote_block != 0 && self.wrote_block != now.block + 1;
        (together || elsewhere).then(|| Race {
            block: self.wrote_block - 1,
            thread: self.writer,
            wrote: true,
        })
    }
}

impl Now {
    /// `thread (1, 0, 0) of block (2, 0, 0)`: x, y, z.
    pub fn name(&self, block: u64, thread: u32) -> String {
        let point = |number: u64, [_, y, x]: [i64; 3]| {
            let number = number as i64;
            format!("({}, {}, {})", number % x, number / x % y, number / x / y)
        };
        let [z, y, x, tz, ty, tx] = self.grid;
        let (thread, block) = (point(thread.into(), [tz, ty, tx]), point(block, [z, y, x]));
        format!("thread {thread} of block {block}")
    }

    /// The thread at present stopped elsewhere than another one of its block.
    pub fn parted(&self, other: u32) -> String {
        let own = self.name(self.block, self.thread);
        format!("{own} does not meet {}", self.name(self.block, other))
    }

    /// What an access at present races with.
    pub fn describe(&self, race: Race) -> String {
        let own = self.name(self.block, self.thread);
        let other = self.name(race.block, race.thread);
        let did = if race.wrote { "wrote" } else { "read" };
        let blocks = race.block != self.block;
        let since = if blocks { "in the same launch" } else { "since they met" };
        format!("{own} accesses what {other} {did} {since}")
    }
}

/// A thread that waits.
struct Thread {
    regs: Vec<u64>,
    locals: Vec<Memory>,
    returns: Vec<Pc>,
    epoch: u64,
    pc: Pc,
}

impl Machine<'_> {
    /// Runs every thread of a launch whose body begins at `pc`, and goes on behind it.
    pub(super) fn launch(&mut self, number: u32, pc: &mut Pc) -> Result<(), Fault> {
        let code = self.code;
        let launch = &code.launches[number as usize];
        let mut grid = [1; 6];
        for dim in &launch.dims {
            grid[dim.position] = self.get(dim.extent) as i64;
        }
        let start = *pc;
        if grid.iter().any(|extent| *extent <= 0) {
            *pc = launch.end;
            return Ok(());
        }
        self.now = Now { grid, ..Now::default() };
        for buffer in &launch.tracked {
            let memory = &mut self.memory[*buffer as usize];
            memory.shadows = vec![Shadow::default(); memory.data.len()];
        }
        let count: i64 = grid[3..].iter().product();
        let waiting = if launch.meets { count } else { 0 };
        let mut threads: Vec<Thread> = (0..waiting).map(|_| self.new_thread(launch)).collect();
        let blocks: i64 = grid[..3].iter().product();
        for block in self.shuffled(blocks) {
            self.now.block = block as u64;
            self.start_block(launch)?;
            let done = match launch.meets {
                true => self.run_together(launch, start, &mut threads, pc),
                false => self.run_apart(launch, start, count, pc),
            };
            done?;
        }
        launch.tracked.iter().for_each(|buffer| self.memory[*buffer as usize].shadows.clear());
        *pc = launch.end;
        Ok(())
    }

    /// Shared memory holds nothing yet.
    fn start_block(&mut self, launch: &Launch) -> Result<(), Fault> {
        for shared in &launch.shared {
            let shape: Vec<i64> = shared.shape.iter().map(|reg| self.get(*reg) as i64).collect();
            let memory = Memory::unwritten(shape.clone());
            let mut memory = memory.ok_or(Fault::Allocation { buffer: shared.buffer, shape })?;
            memory.shadows = vec![Shadow::default(); memory.data.len()];
            self.memory[shared.buffer as usize] = memory;
        }
        Ok(())
    }

    /// Threads that never meet, one after the other.
    fn run_apart(
        &mut self,
        launch: &Launch,
        start: Pc,
        count: i64,
        pc: &mut Pc,
    ) -> Result<(), Fault> {
        self.now.interval += 1;
        for thread in self.shuffled(count) {
            self.set_indices(launch, thread);
            *pc = start;
            self.execute(pc)?;
        }
        Ok(())
    }

    /// Threads of one block, from meeting to meeting. After a fault the machine is as it was for
    /// the thread that made it.
    fn run_together(
        &mut self,
        launch: &Launch,
        start: Pc,
        threads: &mut [Thread],
        pc: &mut Pc,
    ) -> Result<(), Fault> {
        for (number, thread) in threads.iter_mut().enumerate() {
            self.exchange(launch, thread);
            self.set_indices(launch, number as i64);
            self.exchange(launch, thread);
            thread.pc = start;
        }
        loop {
            self.now.interval += 1;
            let mut first: Option<(Stop, Pc, u32)> = None;
            for number in self.shuffled(threads.len() as i64) {
                self.now.thread = number as u32;
                let thread = &mut threads[number as usize];
                self.exchange(launch, thread);
                *pc = thread.pc;
                let stop = self.execute(pc)?;
                let (other_stop, other_pc, other) =
                    *first.get_or_insert((stop, *pc, number as u32));
                if (stop, *pc) != (other_stop, other_pc) {
                    return Err(Fault::Parted { other });
                }
                thread.pc = *pc;
                self.exchange(launch, thread);
            }
            if first.is_none_or(|(stop, ..)| stop == Stop::End) {
                return Ok(());
            }
        }
    }

    fn new_thread(&self, launch: &Launch) -> Thread {
        let locals = launch.locals.iter().map(|_| Memory::default()).collect();
        Thread { regs: self.regs.clone(), locals, returns: Vec::new(), epoch: 0, pc: 0 }
    }

    /// The machine goes on as another thread, and its state is kept; or the other way round.
    fn exchange(&mut self, launch: &Launch, thread: &mut Thread) {
        std::mem::swap(&mut self.regs, &mut thread.regs);
        std::mem::swap(&mut self.returns, &mut thread.returns);
        std::mem::swap(&mut self.epoch, &mut thread.epoch);
        for (buffer, memory) in launch.locals.iter().zip(&mut thread.locals) {
            std::mem::swap(&mut self.memory[*buffer as usize], memory);
        }
    }

    /// Binds the indices of a thread of the present block.
    fn set_indices(&mut self, launch: &Launch, thread: i64) {
        self.now.thread = thread as u32;
        let grid = self.now.grid;
        for dim in &launch.dims {
            let is_thread = dim.position >= 3;
            let number = if is_thread { thread } else { self.now.block as i64 };
            let last = if is_thread { 5 } else { 2 };
            let inner: i64 = grid[dim.position + 1..=last].iter().product();
            self.set(dim.var, (number / inner % grid[dim.position]) as u64);
        }
    }

    /// The numbers below `count`, in the order asked for.
    fn shuffled(&mut self, count: i64) -> Vec<i64> {
        let mut numbers: Vec<i64> = (0..count).collect();
        if let Order::Shuffled(state) = &mut self.order {
            for at in (1..numbers.len()).rev() {
                // A step of Knuth's generator of 64 bits.
                *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                numbers.swap(at, (*state >> 33) as usize % (at + 1));
            }
        }
        numbers
    }
}

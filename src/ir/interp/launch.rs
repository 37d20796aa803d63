//! Execution of launches: block after block, the threads of a block one after the other, each as
//! far as the next barrier.
//!
//! Every access to shared memory, and to global memory that the launch writes, is recorded with its
//! thread and interval ([`super::race`]), so that a race is found in every order of the threads.

use super::code::{Launch, Pc};
use super::machine::{Fault, Machine, Memory};
use super::race::{Order, RunningThread, Shadow, Stop};

/// The state of a thread that does not run at the moment.
struct Thread {
    regs: Vec<u64>,
    locals: Vec<Memory>,
    returns: Vec<Pc>,
    epoch: u64,
    pc: Pc,
}

impl Machine<'_> {
    /// Runs every thread of a launch whose body begins at `pc`, and continues after it.
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
        self.now = RunningThread { grid, ..RunningThread::default() };
        for buffer in &launch.tracked {
            let memory = &mut self.memory[*buffer as usize];
            memory.shadows = vec![Shadow::default(); memory.data.len()];
        }
        let count: i64 = grid[3..].iter().product();
        let waiting = if launch.has_barriers { count } else { 0 };
        let mut threads: Vec<Thread> = (0..waiting).map(|_| self.new_thread(launch)).collect();
        let blocks: i64 = grid[..3].iter().product();
        for block in self.shuffled(blocks) {
            self.now.block = block as u64;
            self.start_block(launch)?;
            let done = match launch.has_barriers {
                true => self.run_between_barriers(launch, start, &mut threads, pc),
                false => self.run_one_by_one(launch, start, count, pc),
            };
            done?;
        }
        launch.tracked.iter().for_each(|buffer| self.memory[*buffer as usize].shadows.clear());
        *pc = launch.end;
        Ok(())
    }

    /// Allocates the shared memory of a block, unwritten.
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

    /// Runs threads without barriers, one after the other.
    fn run_one_by_one(
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

    /// Runs the threads of a block from barrier to barrier. After a fault the machine has the state
    /// of the thread that caused it.
    fn run_between_barriers(
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
                    return Err(Fault::Diverged { other });
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

    /// Swaps the state of the machine with that of `thread`.
    fn exchange(&mut self, launch: &Launch, thread: &mut Thread) {
        std::mem::swap(&mut self.regs, &mut thread.regs);
        std::mem::swap(&mut self.returns, &mut thread.returns);
        std::mem::swap(&mut self.epoch, &mut thread.epoch);
        for (buffer, memory) in launch.locals.iter().zip(&mut thread.locals) {
            std::mem::swap(&mut self.memory[*buffer as usize], memory);
        }
    }

    /// Binds the indices of a thread of the current block.
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

    /// Returns the numbers below `count` in the chosen order.
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

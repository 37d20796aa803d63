//! Counters of the executed instructions, by instruction of the text.

use std::collections::BTreeMap;
use std::fmt;

/// The counts of one instruction of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstructionCount {
    /// The kernel's name.
    pub kernel: String,
    /// Its line in the PTX text.
    pub line: u32,
    /// Its opcode with modifiers, `fma.rn.f32`.
    pub opcode: String,
    /// The number of times that a warp issued it.
    pub warps: u64,
    /// The number of times that a thread executed it with a true predicate.
    pub threads: u64,
    /// The wavefronts of its shared memory accesses.
    pub wavefronts: u64,
    /// The wavefronts without bank conflicts.
    pub ideal_wavefronts: u64,
    /// The 32-byte sectors of its global memory accesses.
    pub sectors: u64,
    /// The ideal number of sectors, which moves only the accessed bytes, once.
    pub ideal_sectors: u64,
}

impl InstructionCount {
    /// Returns the additional wavefronts because of bank conflicts.
    pub fn conflicts(&self) -> u64 {
        self.wavefronts - self.ideal_wavefronts
    }
}

/// The counts of one or several launches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The executed instructions in the order of the text, kernel by kernel.
    pub instructions: Vec<InstructionCount>,
    /// The number of blocks that ran.
    pub blocks: u64,
}

impl Counters {
    /// Returns the number of instructions executed by threads.
    pub fn thread_instructions(&self) -> u64 {
        self.instructions.iter().map(|i| i.threads).sum()
    }

    /// Returns the number of instructions issued by warps.
    pub fn warp_instructions(&self) -> u64 {
        self.instructions.iter().map(|i| i.warps).sum()
    }

    /// Returns the number of thread instructions whose opcode begins with these dot-separated
    /// parts: `count("fma")` counts `fma.rn.f32` and `fma.rn.f64`, `count("ld.shared")` all loads
    /// of shared memory.
    pub fn count(&self, prefix: &str) -> u64 {
        self.select(prefix).map(|i| i.threads).sum()
    }

    /// Returns `count(prefix)` as a fraction of all thread instructions.
    pub fn share(&self, prefix: &str) -> f64 {
        let all = self.thread_instructions();
        if all == 0 { 0.0 } else { self.count(prefix) as f64 / all as f64 }
    }

    /// Returns the thread instructions by opcode.
    pub fn by_opcode(&self) -> BTreeMap<&str, u64> {
        let mut out = BTreeMap::new();
        for i in &self.instructions {
            *out.entry(i.opcode.as_str()).or_default() += i.threads;
        }
        out
    }

    /// Returns the thread instructions by line of the text.
    pub fn by_line(&self) -> BTreeMap<u32, u64> {
        let mut out = BTreeMap::new();
        for i in &self.instructions {
            *out.entry(i.line).or_default() += i.threads;
        }
        out
    }

    /// Returns the actual and the ideal number of wavefronts of shared memory.
    pub fn wavefronts(&self) -> (u64, u64) {
        let sum = |f: fn(&InstructionCount) -> u64| self.instructions.iter().map(f).sum();
        (sum(|i| i.wavefronts), sum(|i| i.ideal_wavefronts))
    }

    /// Returns the additional wavefronts because of bank conflicts.
    pub fn bank_conflicts(&self) -> u64 {
        self.instructions.iter().map(InstructionCount::conflicts).sum()
    }

    /// Returns the actual and the ideal number of sectors of global memory.
    pub fn sectors(&self) -> (u64, u64) {
        let sum = |f: fn(&InstructionCount) -> u64| self.instructions.iter().map(f).sum();
        (sum(|i| i.sectors), sum(|i| i.ideal_sectors))
    }

    /// Adds the counts of another launch, by kernel and line.
    pub fn add(&mut self, other: Counters) {
        self.blocks += other.blocks;
        for new in other.instructions {
            let same = |i: &&mut InstructionCount| {
                i.kernel == new.kernel && i.line == new.line && i.opcode == new.opcode
            };
            match self.instructions.iter_mut().find(same) {
                Some(old) => {
                    old.warps += new.warps;
                    old.threads += new.threads;
                    old.wavefronts += new.wavefronts;
                    old.ideal_wavefronts += new.ideal_wavefronts;
                    old.sectors += new.sectors;
                    old.ideal_sectors += new.ideal_sectors;
                }
                None => self.instructions.push(new),
            }
        }
    }

    fn select<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a InstructionCount> {
        self.instructions.iter().filter(move |i| {
            i.opcode.strip_prefix(prefix).is_some_and(|r| r.is_empty() || r.starts_with('.'))
        })
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.thread_instructions();
        writeln!(f, "blocks {}, thread instructions {all}", self.blocks)?;
        let (waves, ideal) = self.wavefronts();
        if ideal > 0 {
            writeln!(f, "shared memory: {waves} wavefronts, ideal {ideal}")?;
        }
        let (sectors, ideal) = self.sectors();
        if ideal > 0 {
            writeln!(f, "global memory: {sectors} sectors, ideal {ideal}")?;
        }
        let mut kinds: Vec<_> = self.by_opcode().into_iter().collect();
        kinds.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        for (opcode, n) in kinds.iter().take(12) {
            writeln!(f, "  {:>5.1} %  {opcode}", 100.0 * *n as f64 / all.max(1) as f64)?;
        }
        for i in self.instructions.iter().filter(|i| i.conflicts() > 0) {
            writeln!(
                f,
                "  bank conflicts at line {}: {} wavefronts, ideal {} ({})",
                i.line, i.wavefronts, i.ideal_wavefronts, i.opcode
            )?;
        }
        Ok(())
    }
}

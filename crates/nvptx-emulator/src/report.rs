//! The report of a run: findings by PTX line, and counters.

use crate::counters::Counters;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The kind of a defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// Threads of a block access the same shared memory without a barrier in between.
    SharedRace,
    /// Threads of a block access the same global memory without a barrier in between.
    GlobalRace,
    /// Threads of different blocks access the same global memory in one launch.
    BlockRace,
    /// A part of a warp reaches a barrier, or threads name different sizes of it.
    DivergentBarrier,
    /// Threads wait at a barrier after other threads of the block exited.
    ExitedThreads,
    /// All remaining threads wait, or the launch reached its limit.
    NoProgress,
    /// A part of the members runs a warp-wide instruction.
    DivergentWarp,
    /// An address is not a multiple of the access size.
    Misaligned,
    /// An address is outside of all buffers, variables and windows.
    OutOfBounds,
    /// A read of memory that was never written.
    UninitialisedRead,
    /// A read of a register that was never written.
    UninitialisedRegister,
    /// Bytes of an output that no thread wrote.
    Unwritten,
    /// An access to shared memory while an asynchronous copy to it is in flight, or to what a
    /// running `wgmma` reads or writes.
    InFlight,
    /// A product of a warpgroup with no fence before it: `wgmma.fence` for its registers, or
    /// `fence.proxy.async` for what it reads.
    MissingFence,
    /// A write to a read-only buffer.
    ReadOnly,
    /// `ld.global.nc` of memory that the launch writes.
    NonCoherent,
    /// An integer division by zero.
    DivisionByZero,
    /// A `trap` was executed.
    Trap,
    /// Another order of blocks and warps gave a different result.
    OrderDependent,
}

impl FindingKind {
    /// Returns the name in words, which `Display` prints.
    pub fn title(self) -> &'static str {
        match self {
            FindingKind::SharedRace => "race in shared memory",
            FindingKind::GlobalRace => "race in global memory",
            FindingKind::BlockRace => "race between blocks",
            FindingKind::DivergentBarrier => "divergent barrier",
            FindingKind::ExitedThreads => "barrier with exited threads",
            FindingKind::NoProgress => "no progress",
            FindingKind::DivergentWarp => "divergent warp",
            FindingKind::Misaligned => "misaligned access",
            FindingKind::OutOfBounds => "out-of-bounds access",
            FindingKind::UninitialisedRead => "uninitialised read",
            FindingKind::UninitialisedRegister => "uninitialised register",
            FindingKind::Unwritten => "output not written",
            FindingKind::InFlight => "asynchronous copy or product in flight",
            FindingKind::MissingFence => "missing fence",
            FindingKind::ReadOnly => "write to a read-only buffer",
            FindingKind::NonCoherent => "non-coherent load of written memory",
            FindingKind::DivisionByZero => "integer division by zero",
            FindingKind::Trap => "trap",
            FindingKind::OrderDependent => "result depends on the order",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// A defect at a place, or a pair of places, of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The name of the kernel.
    pub kernel: String,
    /// The line of the PTX text.
    pub line: Option<u32>,
    /// The line of the other access of a race.
    pub other_line: Option<u32>,
    /// The block of the first occurrence.
    pub block: [u32; 3],
    /// The thread of the first occurrence.
    pub thread: [u32; 3],
    /// The description of the first occurrence.
    pub message: String,
    /// The number of occurrences.
    pub count: u64,
}

/// The outcome of a launch: findings and counters.
#[derive(Clone, Debug)]
pub struct Report {
    /// The defects, ordered by line.
    pub findings: Vec<Finding>,
    /// The counters.
    pub counters: Counters,
    pub(crate) source: Arc<str>,
}

impl Report {
    /// Whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Returns the findings of a kind.
    pub fn of(&self, kind: FindingKind) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |f| f.kind == kind)
    }

    /// Whether there is a finding of this kind.
    pub fn has(&self, kind: FindingKind) -> bool {
        self.of(kind).next().is_some()
    }

    /// Adds the report of a later launch of the same module.
    pub fn add(&mut self, other: Report) {
        self.findings.extend(other.findings);
        self.counters.add(other.counters);
    }

    /// Returns a line of the PTX text, trimmed.
    pub fn source_line(&self, line: u32) -> &str {
        self.source.lines().nth(line.saturating_sub(1) as usize).unwrap_or("").trim()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let times = match finding.count {
                1 => String::new(),
                n => format!(" ({n} times)"),
            };
            writeln!(f, "{}: {}{times}", finding.kind.title(), finding.message)?;
            let lines = [finding.line, finding.other_line.filter(|l| Some(*l) != finding.line)];
            for line in lines.into_iter().flatten() {
                writeln!(f, "  {line:>5} | {}", self.source_line(line))?;
            }
        }
        if self.findings.is_empty() {
            writeln!(f, "no findings")?;
        }
        write!(f, "{}", self.counters)
    }
}

/// Collects the findings of a launch, one for each kind and place, with a count.
pub(crate) struct Findings {
    list: Vec<(Finding, u32)>,
    places: HashMap<(FindingKind, u32, u32), usize>,
}

/// The place of a finding.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub pc: u32,
    /// The other access of a race, or `u32::MAX`.
    pub other: u32,
    pub line: u32,
    pub other_line: Option<u32>,
    pub block: [u32; 3],
    pub thread: [u32; 3],
}

impl Findings {
    pub fn new() -> Self {
        Findings { list: Vec::new(), places: HashMap::new() }
    }

    pub fn add(&mut self, kind: FindingKind, place: Place, message: impl FnOnce() -> String) {
        let key = (kind, place.pc, place.other);
        if let Some(at) = self.places.get(&key) {
            self.list[*at].0.count += 1;
            return;
        }
        self.places.insert(key, self.list.len());
        let finding = Finding {
            kind,
            kernel: String::new(),
            line: Some(place.line),
            other_line: place.other_line,
            block: place.block,
            thread: place.thread,
            message: message(),
            count: 1,
        };
        self.list.push((finding, place.pc));
    }

    pub fn finish(mut self, kernel: &str) -> Vec<Finding> {
        self.list.sort_by_key(|(f, pc)| (*pc, f.kind));
        self.list.into_iter().map(|(f, _)| Finding { kernel: kernel.to_string(), ..f }).collect()
    }
}

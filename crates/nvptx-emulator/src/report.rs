//! What a run tells: findings by PTX line, and counters.

use crate::counters::Counters;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What is wrong with a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Threads of one block touch the same shared memory without a barrier between.
    SharedRace,
    /// Threads of one block touch the same global memory without a barrier between.
    GlobalRace,
    /// Threads of different blocks touch the same global memory in one launch.
    BlockRace,
    /// A part of a warp comes to a barrier, or threads disagree about its size.
    DivergentBarrier,
    /// Threads wait at a barrier after others of the block have exited.
    ExitedThreads,
    /// All threads that are left wait, or the launch ran into its limit.
    NoProgress,
    /// A warp-wide instruction is run by a part of its members.
    DivergentWarp,
    /// An address is no multiple of the access's size.
    Misaligned,
    /// An address lies in no buffer, variable or window.
    OutOfBounds,
    /// Memory is read that nothing has written.
    UninitialisedRead,
    /// A register is read that nothing has written.
    UninitialisedRegister,
    /// Bytes of an output that no thread wrote.
    Unwritten,
    /// Shared memory is touched while an asynchronous copy to it is in flight.
    InFlight,
    /// A write to a buffer that is only read.
    ReadOnly,
    /// `ld.global.nc` of memory that the launch writes.
    NonCoherent,
    /// An integer division by zero.
    DivisionByZero,
    /// A `trap` was run.
    Trap,
    /// Another order of blocks and warps gave another result.
    OrderDependent,
}

impl Kind {
    /// Its name in words, as `Display` shows it.
    pub fn title(self) -> &'static str {
        match self {
            Kind::SharedRace => "race in shared memory",
            Kind::GlobalRace => "race in global memory",
            Kind::BlockRace => "race between blocks",
            Kind::DivergentBarrier => "divergent barrier",
            Kind::ExitedThreads => "barrier with exited threads",
            Kind::NoProgress => "no progress",
            Kind::DivergentWarp => "divergent warp",
            Kind::Misaligned => "misaligned access",
            Kind::OutOfBounds => "out-of-bounds access",
            Kind::UninitialisedRead => "uninitialised read",
            Kind::UninitialisedRegister => "uninitialised register",
            Kind::Unwritten => "output not written",
            Kind::InFlight => "asynchronous copy in flight",
            Kind::ReadOnly => "write to a read-only buffer",
            Kind::NonCoherent => "non-coherent load of written memory",
            Kind::DivisionByZero => "integer division by zero",
            Kind::Trap => "trap",
            Kind::OrderDependent => "result depends on the order",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// One defect, at one place (or pair of places) of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// The kernel's name.
    pub kernel: String,
    /// The line of the PTX text.
    pub line: Option<u32>,
    /// The line of the other access of a race.
    pub other_line: Option<u32>,
    /// The block of the first occurrence.
    pub block: [u32; 3],
    /// The thread of the first occurrence.
    pub thread: [u32; 3],
    /// The first occurrence in words.
    pub message: String,
    /// How often it happened.
    pub count: u64,
}

/// The outcome of a launch: an empty list of findings means that nothing was wrong.
#[derive(Clone, Debug)]
pub struct Report {
    /// The defects, in the order of their lines.
    pub findings: Vec<Finding>,
    /// What was executed.
    pub counters: Counters,
    pub(crate) source: Arc<str>,
}

impl Report {
    /// No findings.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings of one kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |f| f.kind == kind)
    }

    /// Whether there is a finding of this kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.of(kind).next().is_some()
    }

    /// Joins the report of a later launch of the same module to this one.
    pub fn add(&mut self, other: Report) {
        self.findings.extend(other.findings);
        self.counters.add(other.counters);
    }

    /// The text of a line of the PTX source, trimmed.
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

/// The findings of a running launch: one for each kind and place, with a count.
pub(crate) struct Findings {
    list: Vec<(Finding, u32)>,
    places: HashMap<(Kind, u32, u32), usize>,
}

/// Where a finding happened.
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

    pub fn add(&mut self, kind: Kind, place: Place, message: impl FnOnce() -> String) {
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

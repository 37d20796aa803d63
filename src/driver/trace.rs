//! Failures of a compilation, and what `--dump`, `--time` and notes record of it.

use super::passes::PassId;
use crate::diag::Diag;
use crate::lower::outline_simd::Nest;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Why a compilation ended.
#[derive(Debug)]
pub enum Failure {
    /// The program is wrong, or the target lacks something.
    User(Vec<Diag>),
    /// `tec` has a bug.
    Bug {
        /// The pass or phase that was running.
        pass: String,
        /// The text of the panic or of the verifier.
        message: String,
        /// The loop IR that the pass received; empty before lowering.
        ir: String,
    },
}

impl From<Box<Diag>> for Failure {
    fn from(diag: Box<Diag>) -> Failure {
        Failure::User(vec![*diag])
    }
}

/// The value of `--dump`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dump {
    /// After every pass.
    All,
    /// After one pass.
    After(PassId),
}

impl Dump {
    /// Whether the IR after this pass is dumped.
    pub(super) fn shows(self, id: PassId) -> bool {
        self == Dump::All || self == Dump::After(id)
    }
}

/// The time of each phase, in the order of first use.
pub type PhaseTimes = Vec<(String, Duration)>;

/// Adds the time of a phase.
fn add_time(times: &mut PhaseTimes, phase: &str, elapsed: Duration) {
    match times.iter_mut().find(|(known, _)| known == phase) {
        Some((_, time)) => *time += elapsed,
        None => times.push((phase.to_string(), elapsed)),
    }
}

/// The search for automatic schedules.
#[derive(Debug, Default)]
pub struct SearchTrace {
    /// Candidates that were estimated, including refused ones.
    pub candidates: usize,
    /// Candidates that were refused.
    pub refused: usize,
    /// What they took, in about microseconds of a Zen 5, counted in nodes and in terms of proofs:
    /// the same on every machine.
    pub effort: i64,
    /// The times of the candidates' phases, summed over threads.
    pub times: PhaseTimes,
}

impl SearchTrace {
    /// Adds what another search did.
    pub(super) fn add(&mut self, other: &SearchTrace) {
        self.candidates += other.candidates;
        self.refused += other.refused;
        self.effort += other.effort;
        other.times.iter().for_each(|(phase, time)| add_time(&mut self.times, phase, *time));
    }
}

/// What a compilation records: dumps, times and notes.
#[derive(Debug, Default)]
pub struct Trace {
    /// Which passes to dump.
    pub dump: Option<Dump>,
    /// The dumps: kernel, pass, loop IR (`None` if the pass changed nothing).
    pub dumps: Vec<(String, &'static str, Option<String>)>,
    /// The time of each phase, summed over kernels.
    pub times: PhaseTimes,
    /// The search for automatic schedules, which is a part of the phase `schedule`.
    pub search: SearchTrace,
    /// Whether failures need no loop IR, which saves a copy of the kernel for each pass.
    pub brief: bool,
    /// Notes for the user that are not errors.
    pub notes: Vec<String>,
    /// For each kernel its vectorized nests and whether the SIMD back end compiles them; `None` if
    /// nobody asked.
    pub nests: Option<Vec<(String, Vec<Nest>)>>,
}

impl Trace {
    /// Runs a phase, adds its time and turns its panic into a [`Failure::Bug`] with the text of
    /// `ir`.
    pub fn phase<T>(
        &mut self,
        name: &str,
        ir: &dyn Fn() -> String,
        run: impl FnOnce() -> T,
    ) -> Result<T, Failure> {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(run));
        add_time(&mut self.times, name, start.elapsed());
        result.map_err(|payload| Failure::Bug {
            pass: name.to_string(),
            message: panic_text(&*payload),
            ir: ir(),
        })
    }
}

/// Returns the message of a caught panic.
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_string())
}

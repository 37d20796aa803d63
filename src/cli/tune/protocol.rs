//! What is said between a search and those who measure for it: a worker process over pipes, or a
//! runner through files. JSON, one message a line.

use super::super::options::{CompileArgs, Contract};
use super::super::run::Arguments;
use crate::driver::{FpContract, Options};
use crate::tune::records::Machine;
use crate::tune::{Job, Outcome};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The kernel whose candidates are measured, and how: what a worker is told first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The `.te` file.
    pub file: String,
    /// The kernel.
    pub kernel: String,
    /// The target's name; never `native`.
    pub target: String,
    /// `-D`, as written.
    pub define: Vec<String>,
    /// `fast` or `off`.
    pub fp_contract: String,
    /// `--opt`.
    pub opt: u8,
    /// `--input`, as written.
    pub input: Vec<String>,
    /// `--var`, as written.
    pub var: Vec<String>,
    /// `--scalar`, as written.
    pub scalar: Vec<String>,
    /// Where the random inputs begin.
    pub seed: u64,
    /// Threads of parallel loops.
    pub threads: usize,
    /// Bytes that a candidate may take beside the arguments, compilation included.
    pub memory: u64,
}

/// Bytes that a candidate may take where nobody says otherwise.
pub const MEMORY: u64 = 4 << 30;

impl Setup {
    /// For a kernel of a file that is compiled and called like this.
    pub fn new(
        file: &str,
        kernel: &str,
        options: &Options,
        compile: &CompileArgs,
        arguments: &Arguments,
    ) -> Setup {
        Setup {
            file: file.to_string(),
            kernel: kernel.to_string(),
            target: options.target.to_string(),
            define: compile.define.clone(),
            fp_contract: options.fp_contract.name().to_string(),
            opt: options.opt,
            input: arguments.input.clone(),
            var: arguments.var.clone(),
            scalar: arguments.scalar.clone(),
            seed: arguments.seed,
            threads: arguments.threads.unwrap_or(1) as usize,
            memory: MEMORY,
        }
    }

    /// The options of a command line that says the same.
    pub fn compile(&self) -> CompileArgs {
        let off = self.fp_contract == FpContract::Off.name();
        CompileArgs {
            kernel: vec![self.kernel.clone()],
            target: self.target.clone(),
            define: self.define.clone(),
            schedule: Vec::new(),
            records: None,
            fp_contract: Some(if off { Contract::Off } else { Contract::Fast }),
            opt: self.opt,
            fast_math: false,
            dump: None,
            time: false,
        }
    }

    /// The arguments of a command line that says the same.
    pub fn arguments(&self) -> Arguments {
        Arguments {
            input: self.input.clone(),
            var: self.var.clone(),
            scalar: self.scalar.clone(),
            seed: self.seed,
            threads: Some(self.threads as i32),
        }
    }
}

/// Which schedule makes the reference output, unless it is kept from before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// The plain loops.
    Default,
    /// The one that the compiler makes, on all threads; some of its elements are compared with the
    /// interpreter's.
    Auto,
    /// The plain loops, however long they take: elements of this kernel cannot be computed alone.
    Patient,
}

/// To a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first message.
    Setup {
        /// What is measured.
        setup: Setup,
        /// How its results are known.
        reference: Reference,
    },
    /// Measure one candidate.
    Measure {
        /// It.
        job: Job,
        /// Seconds of the best call so far: what is clearly slower is not measured to the end.
        best: Option<f64>,
    },
    /// Measure some in turns.
    Compare {
        /// They.
        jobs: Vec<Job>,
        /// For about so long in all.
        seconds: f64,
    },
}

/// From a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The reference output is about to be computed.
    ComputingReference,
    /// The setup is done.
    Ready {
        /// What the user should know.
        notes: Vec<String>,
    },
    /// The elements of the reference output cannot be judged alone: why.
    Unsampled(String),
    /// The setup cannot be done: the message.
    SetupFailed(String),
    /// A candidate is compiled, its first call begins.
    Running,
    /// Its first call is over.
    Ran,
    /// What became of the candidates.
    Done(Vec<Outcome>),
}

/// What a runner's job reads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BatchIn {
    /// The version of this form.
    pub format: u32,
    /// What is measured.
    pub setup: Setup,
    /// For whom: a search that ended before the job takes up what the job found.
    #[serde(default)]
    pub owner: Owner,
    /// The candidates.
    pub jobs: Vec<Job>,
    /// Seconds of measurement in turns; each candidate by itself if there are none.
    pub in_turns: Option<f64>,
    /// Seconds of the best call so far.
    pub best: Option<f64>,
}

/// Whose a batch is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Owner {
    /// [`workload_hash`](crate::tune::workload::workload_hash) of the kernel: the file may change.
    pub workload: String,
    /// The records that it is for.
    pub records: PathBuf,
}

/// A line of what it writes while it goes on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BatchLine {
    /// Which candidate.
    pub at: usize,
    /// What became of it.
    pub outcome: Outcome,
}

/// What it writes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BatchOut {
    /// The version of this form.
    pub format: u32,
    /// One for each candidate, in the same order.
    pub outcomes: Vec<Outcome>,
    /// They were to be measured in turns, but only each by itself could.
    #[serde(default)]
    pub alone: bool,
    /// Where they ran; where the search runs if nothing is said.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// The version of the batches' form.
pub const BATCH_FORMAT: u32 = 1;

//! The messages between a search and a worker process (over pipes) or a runner (through files):
//! JSON, one message per line.

use super::super::arguments::Arguments;
use super::super::compile::SingleKernel;
use super::super::options::{CompileArgs, Contract};
use super::super::remote::message::{Candidate, Done, Prepared, Work};
use super::super::remote::store::Hash;
use crate::driver::{FpContract, Options};
use crate::tune::records::Machine;
use crate::tune::{Job, Outcome, TrialFailure};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The first message: the kernel whose candidates are measured, and how.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The `.te` file or ONNX model.
    pub file: String,
    /// The kernel.
    pub kernel: String,
    /// The network that the kernel is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// `--params`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<String>,
    /// `--freeze`, as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// Whether no convolution of the model is computed by Winograd's algorithm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_winograd: bool,
    /// The target's name; never `native`.
    pub target: String,
    /// `--cpu`, unless it is the typical processor.
    pub cpu: Option<String>,
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
    /// The seed of random inputs.
    pub seed: u64,
    /// Threads of parallel loops.
    pub threads: usize,
    /// The memory limit of a candidate in bytes, without the arguments, but with compilation.
    pub memory: u64,
    /// Whether candidates run on another machine (`--on`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
}

/// The default memory limit of a candidate in bytes.
pub const MEMORY: u64 = 4 << 30;

impl Setup {
    /// Returns the setup of a kernel that is compiled and called with these options.
    pub fn new(
        file: &str,
        kernel: &SingleKernel,
        options: &Options,
        compile: &CompileArgs,
        arguments: &Arguments,
    ) -> Setup {
        Setup {
            file: file.to_string(),
            kernel: kernel.graph.name.clone(),
            network: kernel.network.clone(),
            params: compile.params.clone(),
            freeze: compile.freeze.clone(),
            no_winograd: compile.no_winograd,
            target: options.target.to_string(),
            cpu: options.target.named_processor().map(String::from),
            define: compile.define.clone(),
            fp_contract: options.fp_contract.name().to_string(),
            opt: options.opt,
            input: arguments.input.clone(),
            var: arguments.var.clone(),
            scalar: arguments.scalar.clone(),
            seed: arguments.seed,
            threads: arguments.threads.unwrap_or(1) as usize,
            memory: MEMORY,
            elsewhere: false,
        }
    }

    /// Returns the compile options of the equivalent command line.
    pub fn compile(&self) -> CompileArgs {
        let off = self.fp_contract == FpContract::Off.name();
        CompileArgs {
            kernel: vec![self.network.as_ref().unwrap_or(&self.kernel).clone()],
            target: self.target.clone(),
            cpu: self.cpu.clone(),
            define: self.define.clone(),
            // It chooses no automatic schedule.
            typical: Vec::new(),
            schedule: Vec::new(),
            records: None,
            params: self.params.clone(),
            freeze: self.freeze.clone(),
            no_winograd: self.no_winograd,
            fp_contract: Some(if off { Contract::Off } else { Contract::Fast }),
            opt: self.opt,
            fast_math: false,
            no_cache: true,
            dump: None,
            time: false,
        }
    }

    /// Returns the arguments of the equivalent command line.
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

/// The schedule that computes the reference output, unless it is cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// The default schedule.
    Default,
    /// The automatic schedule on all threads; some elements are compared with the interpreter's.
    Auto,
    /// The default schedule without a short time limit: the interpreter cannot compute single
    /// elements.
    DefaultUnlimited,
}

/// A message to a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first message of a search: the worker compiles schedules.
    Setup {
        /// The kernel, and how it is measured.
        setup: Box<Setup>,
        /// The schedule of the reference output.
        reference: Reference,
    },
    /// The first message of `tec serve`: the worker takes modules from the store.
    Prepare(Box<Prepared>),
    /// Write to the store what another machine needs to measure candidates.
    Export,
    /// Compile a schedule, and write the module to the store.
    Build(String),
    /// Measure one candidate.
    Measure {
        /// The candidate.
        candidate: Candidate,
        /// Seconds of the best call so far: a clearly slower candidate is measured briefly.
        best: Option<f64>,
    },
    /// Measure candidates interleaved.
    Compare {
        /// The candidates.
        candidates: Vec<Candidate>,
        /// Seconds of the measurement, about.
        seconds: f64,
    },
    /// Other work of `tec serve`; it needs no first message.
    Work(Work),
}

/// A message from a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The reference output is about to be computed.
    ComputingReference,
    /// The setup is done.
    Ready {
        /// Notes for the user.
        notes: Vec<String>,
    },
    /// The interpreter cannot compute single elements of the reference output, with the reason.
    Unsampled(String),
    /// The setup failed, with the reason.
    SetupFailed(String),
    /// What another machine needs.
    Exported(Box<Prepared>),
    /// A compiled schedule.
    Built(Hash),
    /// A schedule could not be compiled.
    Unbuilt(TrialFailure),
    /// A candidate is compiled; its first call begins.
    Running,
    /// Its first call is over.
    Ran,
    /// The outcomes of the candidates.
    Done(Vec<Outcome>),
    /// The result of other work.
    Worked(Done),
}

/// The input of a runner's job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BatchIn {
    /// The version of the format.
    pub format: u32,
    /// The kernel, and how it is measured.
    pub setup: Setup,
    /// The owner: if its search ended before the job, its next search takes the outcomes.
    #[serde(default)]
    pub owner: Owner,
    /// The candidates.
    pub jobs: Vec<Job>,
    /// Seconds of an interleaved measurement; none to measure one by one.
    pub in_turns: Option<f64>,
    /// Seconds of the best call so far.
    pub best: Option<f64>,
}

/// The owner of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Owner {
    /// [`workload_hash`](crate::tune::workload::workload_hash) of the kernel: the file may change.
    pub workload: String,
    /// The file of records.
    pub records: PathBuf,
}

/// A line of the job's intermediate output.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BatchLine {
    /// The index of the candidate.
    pub at: usize,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The output of a runner's job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BatchOut {
    /// The version of the format.
    pub format: u32,
    /// One for each candidate, in the same order.
    pub outcomes: Vec<Outcome>,
    /// Whether an interleaved measurement failed, so that candidates were measured one by one.
    #[serde(default)]
    pub alone: bool,
    /// The machine of the job; that of the search if missing.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The version of the batch format.
pub const BATCH_FORMAT: u32 = 1;

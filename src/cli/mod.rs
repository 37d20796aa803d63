//! The command line: one file per command. Results go to stdout, messages to stderr. Exit status:
//! 0 fine, 1 the program is wrong, 2 the command line is, 101 a bug of `tec`.

mod bench;
mod build;
mod check;
mod completions;
mod data;
mod emulate;
mod estimate;
mod explain;
pub mod inspect;
mod lower;
pub mod npy;
mod options;
mod paths;
mod report;
mod run;
mod session;
mod targets;
mod threads;
mod tune;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  tec build matmul.te                        # matmul.so, matmul.json, matmul.h
  tec build matmul.te -D n=512 -o mm512.so   # another size
  tec lower matmul.te --simple               # the loops, as pseudo-C
  tec run matmul.te --verify                 # random inputs, compared with the interpreter
  tec bench matmul.te                        # GFLOP/s and GB/s
  tec explain-error E0204                    # what an error means";

/// An ahead-of-time compiler for tensor expressions.
#[derive(Debug, Parser)]
#[command(name = "tec", version, about, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    /// Colours in messages.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    color: report::Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::Args),
    Lower(lower::Args),
    Check(check::Args),
    Run(run::Args),
    Bench(bench::BenchArgs),
    Tune(tune::command::TuneArgs),
    Inspect(inspect::Args),
    Targets(targets::Args),
    Explain(estimate::Args),
    ExplainError(explain::Args),
    Completions(completions::Args),
    Best(tune::best::BestArgs),
    Records(tune::manage::RecordsArgs),
    /// Compiles, runs and times candidates for a search that talks to it.
    #[command(hide = true)]
    TuneWorker,
    #[command(hide = true)]
    TuneBatch(tune::batch::BatchArgs),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    // A panic is a bug: it is reported once, with the pass at work, by whoever catches it.
    std::panic::set_hook(Box::new(|info| {
        if let Some(place) = info.location() {
            eprintln!("tec stopped at {place}");
        }
    }));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let status = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is no reason to fail while printing help.
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    let reporter = report::Reporter::new(cli.color);
    let result = crate::driver::with_stack(|| run(&cli.command, &reporter));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => reporter.fail(error),
    }
}

fn run(command: &Command, reporter: &report::Reporter) -> Result<(), report::Error> {
    match command {
        Command::Build(args) => build::run(args, reporter),
        Command::Run(args) => run::run(args, reporter),
        Command::Bench(args) => bench::run(args, reporter),
        Command::Tune(args) => tune::command::run(args, reporter),
        Command::Inspect(args) => inspect::run(args, reporter),
        Command::Lower(args) => lower::run(args, reporter),
        Command::Check(args) => check::run(args, reporter),
        Command::Targets(args) => targets::run(args, reporter),
        Command::Explain(args) => estimate::run(args),
        Command::ExplainError(args) => explain::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Best(args) => tune::best::run(args, reporter),
        Command::Records(args) => tune::manage::run(args, reporter),
        Command::TuneWorker => tune::worker::run(),
        Command::TuneBatch(args) => tune::batch::run(args, reporter),
    }
}

//! The command line: one file per command. Results go to stdout, messages to stderr. The exit
//! status is 0 for success, 1 for an error in the program, 2 for an error on the command line, 101
//! for a bug of `tec`.

mod arguments;
mod bench;
mod build;
mod check;
mod completions;
mod data;
mod emulate;
mod estimate;
mod explain;
mod import;
pub mod inspect;
mod lower;
pub mod machine;
pub mod measure;
mod options;
mod paths;
pub mod remote;
mod report;
mod run;
pub mod serve;
mod session;
mod targets;
mod threads;
mod tune;
mod verify;

pub use crate::compile::npy;
use crate::compile::{self, cache, cpu, model, recorded, source, text};
use clap::{ArgAction, Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  tec build matmul.te                        # writes matmul.so, matmul.json, matmul.h
  tec build matmul.te -D n=512 -o mm512.so   # another size
  tec run matmul.te --verify                 # random inputs, compared with the interpreter
  tec lower matmul.te --simple               # the loops, as pseudo-C
  tec bench matmul.te                        # time of a call, GFLOP/s and GB/s
  tec build resnet50.onnx                    # a whole network, with its parameters
  tec tune matmul.te                         # searches one minute for the fastest schedule
  tec run matmul.te --on 'ssh pi'            # compiles here, runs on another machine
  tec explain-error E0204                    # explains an error code

`tec help COMMAND` describes a command.";

/// An ahead-of-time compiler for tensor expressions.
#[derive(Debug, Parser)]
#[command(name = "tec", version, about, after_help = EXAMPLES, max_term_width = 100)]
#[command(disable_help_flag = true)]
struct Cli {
    /// Colour messages: `auto` (on a terminal, unless NO_COLOR is set), `always` or `never`.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    #[arg(hide_possible_values = true, help_heading = "Global options")]
    color: report::Color,
    /// Print help; `-h` prints a summary.
    #[arg(short, long, global = true, action = ArgAction::Help, help_heading = "Global options")]
    help: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::BuildArgs),
    Check(check::CheckArgs),
    Import(import::ImportArgs),
    Run(run::RunArgs),
    Lower(lower::LowerArgs),
    Explain(estimate::ExplainArgs),
    Bench(bench::BenchArgs),
    Tune(tune::command::TuneArgs),
    Best(tune::best::BestArgs),
    Records(tune::manage::RecordsArgs),
    Inspect(inspect::InspectArgs),
    Serve(serve::ServeArgs),
    Targets(targets::TargetsArgs),
    ExplainError(explain::ExplainErrorArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    TuneWorker(tune::worker::WorkerArgs),
    #[command(hide = true)]
    TuneBatch(tune::batch::BatchArgs),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    // `driver::Trace` catches panics and reports them as bugs, with the pass.
    std::panic::set_hook(Box::new(|info| {
        if let Some(place) = info.location() {
            eprintln!("tec stopped at {place}");
        }
    }));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let status = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is not an error while help is printed.
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    let reporter = report::Reporter::new(cli.color);
    match crate::driver::try_with_stack(|| run(&cli.command, &reporter)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => reporter.fail(error),
        Err(_) => {
            eprintln!("error: `tec` needs 1 GiB of address space for its stack");
            eprintln!("help: raise the limit on virtual memory (`ulimit -v`)");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, reporter: &report::Reporter) -> Result<(), report::Error> {
    match command {
        Command::Build(args) => build::run(args, reporter),
        Command::Check(args) => check::run(args, reporter),
        Command::Import(args) => import::run(args, reporter),
        Command::Run(args) if args.emulate => emulate::run(args, reporter),
        Command::Run(args) => run::run(args, reporter),
        Command::Lower(args) => lower::run(args, reporter),
        Command::Explain(args) => estimate::run(args),
        Command::Bench(args) => bench::run(args, reporter),
        Command::Tune(args) => tune::command::run(args, reporter),
        Command::Best(args) => tune::best::run(args, reporter),
        Command::Records(args) => tune::manage::run(args, reporter),
        Command::Inspect(args) => inspect::run(args, reporter),
        Command::Serve(args) => serve::run(args),
        Command::Targets(args) => targets::run(args, reporter),
        Command::ExplainError(args) => explain::run(args),
        Command::Completions(args) => completions::run(args),
        Command::TuneWorker(args) => tune::worker::run(args),
        Command::TuneBatch(args) => tune::batch::run(args, reporter),
    }
}

//! `tec check`: parses and checks; silence is success.

use super::options::{CompileArgs, check};
use super::report::{Error, Reporter, show_trace};

/// Check files without compiling them.
///
/// Syntax, names, types, shapes and bounds of every kernel, and every schedule: those for other
/// targets are checked as far as bounds and rules go; prints nothing if all is well.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The `.te` files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    compile: CompileArgs,
}

/// Runs the command: every file is checked, whatever became of the one before.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Error> {
    let options = args.compile.options()?;
    let mut trace = args.compile.trace()?;
    let mut failed = false;
    for file in &args.files {
        match check(file, &options, &mut trace) {
            Ok(()) => {}
            Err(error @ Error::Compile(_, crate::driver::Failure::Bug { .. })) => {
                return Err(error);
            }
            Err(error) => {
                let _ = reporter.fail(error);
                failed = true;
            }
        }
    }
    show_trace(&trace, args.compile.time);
    if failed { Err(Error::Silent) } else { Ok(()) }
}

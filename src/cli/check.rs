//! `tec check`: parses and checks files; prints nothing on success.

use super::compile::check_file;
use super::options::CompileArgs;
use super::report::{Error, Reporter, show_trace};

const EXAMPLES: &str = "\
Examples:
  tec check matmul.te                      # every kernel and every schedule
  tec check *.te                           # several files
  tec check matmul.te --schedule block     # one schedule
  tec check matmul.te --target nvptx-sm_80 # the schedules for a GPU";

/// Check files without compiling them.
///
/// Checks syntax, names, types, shapes and bounds of every kernel, and applies every schedule.
/// Schedules for other targets are checked up to bounds inference. Prints nothing if there is no
/// error.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Source files.
    #[arg(required = true, value_name = "FILE.te|MODEL.onnx")]
    files: Vec<String>,
    #[command(flatten)]
    compile: CompileArgs,
}

/// Runs the command. An error in one file does not keep the others from being checked.
pub fn run(args: &CheckArgs, reporter: &Reporter) -> Result<(), Error> {
    if let Some(pass) = &args.compile.dump {
        let text = format!("`--dump {pass}`: `tec check` runs no passes; `tec lower` does");
        return Err(Error::Usage(text));
    }
    let options = args.compile.options()?;
    let mut trace = args.compile.trace()?;
    let mut failed = false;
    for file in &args.files {
        match check_file(file, &options, args.compile.model_flags(), &mut trace) {
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

//! `tec explain-error`: prints the page of an error code.

use super::report::{Error, print};
use crate::diag::{Diag, codes};

const EXAMPLES: &str = "\
Examples:
  tec explain-error E0204
  tec explain-error e0332";

/// Explain an error code, with an example.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainErrorArgs {
    /// Error code, as in `error[E0204]`.
    code: String,
}

/// Runs the command.
pub fn run(args: &ExplainErrorArgs) -> Result<(), Error> {
    // `204` and `E204` mean `E0204`.
    let digits = args.code.trim_start_matches(['E', 'e']);
    let code = format!("E{digits:0>4}");
    match codes::explain(&code) {
        Some(text) => print(text),
        None => {
            let text = format!("unknown error code `{}`", args.code);
            Err(Diag::global("E0541", text).into())
        }
    }
}

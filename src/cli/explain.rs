//! `tec explain-error`: the long form of an error message.

use super::report::{Error, print};
use crate::diag::{Diag, codes};

/// Explain an error code, with an example.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The code, such as E0204.
    code: String,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Error> {
    let code = args.code.to_uppercase();
    match codes::explain(&code) {
        Some(text) => print(text),
        None => {
            let text = format!("there is no error code `{}`", args.code);
            Err(Diag::global("E0541", text).into())
        }
    }
}

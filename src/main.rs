//! The `tec` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    tec::cli::main()
}

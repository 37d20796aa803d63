//! `tec completions`: scripts for shells.

use super::report::{Error, print};
use clap::CommandFactory;

/// Print a shell's completion script.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "tec", &mut script);
    print(&String::from_utf8_lossy(&script))
}

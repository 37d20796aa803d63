//! `tec completions`: completion scripts for shells.

use super::report::{Error, print};
use clap::CommandFactory;

const EXAMPLES: &str = "\
Examples:
  tec completions bash > ~/.local/share/bash-completion/completions/tec
  tec completions zsh > ~/.zfunc/_tec
  tec completions fish > ~/.config/fish/completions/tec.fish";

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// Shell.
    shell: clap_complete::Shell,
}

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "tec", &mut script);
    print(&String::from_utf8_lossy(&script))
}

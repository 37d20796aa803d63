//! `tec lower`: prints the loop IR.

use super::options::{CompileArgs, front};
use super::report::{Error, Reporter, not_in_this_version, print, show_trace};
use crate::driver;
use crate::ir::print::{Style, print_kernel};
use crate::schedule::{Placed, print_tree};

/// Print the loops that a kernel becomes.
///
/// Without options: the loop IR as the back end receives it, with types, arguments and entry
/// checks. With --simple: pseudo-C of the loops as written and scheduled, before functions are
/// expanded and invariants hoisted.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The `.te` file.
    file: String,
    /// Pseudo-C.
    #[arg(long)]
    simple: bool,
    /// The stages with their loops and attachments.
    #[arg(long)]
    schedule_tree: bool,
    /// What the wide back end takes, and why not the rest.
    #[arg(long)]
    explain_simd: bool,
    #[command(flatten)]
    compile: CompileArgs,
}

/// Runs the command.
pub fn run(args: &Args, _reporter: &Reporter) -> Result<(), Error> {
    if args.explain_simd {
        return Err(not_in_this_version("--explain-simd"));
    }
    let options = args.compile.options()?;
    let mut trace = args.compile.trace()?;
    let (program, kernels) = front(&args.file, &options, &mut trace)?;
    if args.schedule_tree {
        show_trace(&trace, args.compile.time);
        return print(&trees(&kernels));
    }
    let (style, last) = match args.simple {
        true => (Style::Simple, Some(driver::LAST_READABLE_PASS)),
        false => (Style::Full, None),
    };
    let mut text = String::new();
    for (index, placed) in kernels.iter().enumerate() {
        let kernel = match driver::lower(placed, &options, last, &mut trace) {
            Ok(kernel) => kernel,
            Err(failure) => {
                show_trace(&trace, args.compile.time);
                return Err(Error::Compile(program.sources, failure));
            }
        };
        if args.simple && kernels.len() > 1 {
            let gap = if index > 0 { "\n" } else { "" };
            text.push_str(&format!("{gap}# {}\n", kernel.name));
        }
        text.push_str(&print_kernel(&kernel, style));
    }
    show_trace(&trace, args.compile.time);
    print(&text)
}

/// The trees of all kernels, each under its name where there are several; before the tree of a
/// schedule that the compiler made its text, and the tree as a comment.
fn trees(kernels: &[Placed]) -> String {
    let mut text = String::new();
    for (index, placed) in kernels.iter().enumerate() {
        if kernels.len() > 1 {
            let gap = if index > 0 { "\n" } else { "" };
            text.push_str(&format!("{gap}# {}\n", placed.schedule.graph.name));
        }
        let tree = print_tree(placed);
        if !placed.schedule.auto {
            text.push_str(&tree);
            continue;
        }
        text.push_str(&format!("{}\n\n", placed.schedule.text));
        tree.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
    }
    text
}

//! `tec lower`: prints the loop IR, the schedule tree, or which nests the SIMD back end compiles.

use super::compile::{elaborate_model, schedule_all};
use super::options::CompileArgs;
use super::report::{Error, Reporter, print, show_trace};
use crate::diag::Diag;
use crate::driver::{self, Options, PassId, Trace};
use crate::ir::print::{Style, print_kernel};
use crate::lower::outline_simd::Nest;
use crate::network::{self, print::print_plan};
use crate::schedule::{BoundedSchedule, Origin, print_tree};

const EXAMPLES: &str = "\
Examples:
  tec lower matmul.te --simple                          # the loops, as pseudo-C
  tec lower matmul.te --schedule block --schedule-tree  # stages, loops and attachments
  tec lower matmul.te --schedule auto --schedule-tree   # the automatic schedule
  tec lower matmul.te --explain-simd --schedule block   # which nests use wide vectors
  tec lower matmul.te --dump vectorize_loops            # the loop IR after one pass";

/// Print the loops of each kernel.
///
/// Prints the loop IR that the back end receives, with types, arguments and entry checks. Kernels
/// without a schedule get the default schedule, those of a network an automatic one.
/// `--kernel NETWORK.KERNEL` prints one kernel of a network.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct LowerArgs {
    /// Source file.
    #[arg(value_name = "FILE.te|MODEL.onnx")]
    file: String,
    /// Print pseudo-C, before math functions are expanded and invariants hoisted.
    #[arg(long, conflicts_with = "schedule_tree")]
    simple: bool,
    /// Print the stages with their loops, extents, annotations and attached stages.
    #[arg(long)]
    schedule_tree: bool,
    /// Print the plans of networks: the stages of each kernel, the calls, the memory between them.
    #[arg(long, conflicts_with_all = ["simple", "schedule_tree", "explain_simd"])]
    groups: bool,
    /// Print which vectorized nests use vectors of 256 or 512 bits, and why others do not.
    #[arg(long, conflicts_with_all = ["simple", "schedule_tree"])]
    explain_simd: bool,
    #[command(flatten)]
    compile: CompileArgs,
}

/// Runs the command.
pub fn run(args: &LowerArgs, _reporter: &Reporter) -> Result<(), Error> {
    let options = args.compile.options()?;
    let mut trace = args.compile.trace()?;
    if args.groups {
        return print_groups(args, &options, &mut trace);
    }
    trace.nests = args.explain_simd.then(Vec::new);
    let (program, kernels) =
        schedule_all(&args.file, args.compile.side_files(), &options, &mut trace)?;
    if args.schedule_tree {
        show_trace(&trace, args.compile.time);
        return print(&trees(&kernels));
    }
    let (style, last) = match args.simple {
        true => (Style::Simple, Some(PassId::LAST_READABLE)),
        false => (Style::Full, None),
    };
    let mut text = String::new();
    for (index, bounded) in kernels.iter().enumerate() {
        let kernel = match driver::lower(bounded, &options, last, &mut trace) {
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
    match &trace.nests {
        Some(nests) => print(&describe_nests(nests, &options)),
        None => print(&text),
    }
}

/// Prints the plans of all networks, as if the elements of all params were known.
fn print_groups(args: &LowerArgs, options: &Options, trace: &mut Trace) -> Result<(), Error> {
    let (_, graphs) = elaborate_model(&args.file, options, args.compile.model_flags(), trace)?;
    show_trace(trace, args.compile.time);
    let networks: Vec<_> = graphs.iter().filter(|graph| graph.network).collect();
    if networks.is_empty() {
        let text = format!("{} has no network", args.file);
        return Err(Diag::global("E0540", text).into());
    }
    let mut text = String::new();
    for (index, graph) in networks.iter().enumerate() {
        let gap = if index > 0 { "\n" } else { "" };
        if networks.len() > 1 {
            text.push_str(&format!("{gap}# {}\n", graph.name));
        }
        text.push_str(&print_plan(graph, &network::plan(graph, &network::params(graph))));
    }
    print(&text)
}

/// Returns a line for each vectorized nest, and the share of those that the SIMD back end compiles.
fn describe_nests(kernels: &[(String, Vec<Nest>)], options: &Options) -> String {
    let target = &options.target;
    if target.simd().is_none() {
        return format!(
            "{target} has no vectors wider than 128 bits; Cranelift compiles all nests\n"
        );
    }
    if kernels.is_empty() {
        let opt = options.opt;
        return format!("with `--opt {opt}` Cranelift compiles all nests, at 128 bits\n");
    }
    let bits = 8 * target.vector_bytes;
    let (mut taken, mut all) = (0, 0);
    let mut text = String::new();
    for (kernel, nests) in kernels {
        text.push_str(&format!("# {kernel}\n"));
        if nests.is_empty() {
            text.push_str("no vectorized nest\n");
        }
        for Nest { head, reason } in nests {
            all += 1;
            text.push_str(&match reason {
                None => {
                    taken += 1;
                    format!("{bits} bits: {head}\n")
                }
                Some(reason) => format!("128 bits: {head}\n          because {reason}\n"),
            });
        }
    }
    if all > 0 {
        let percent = 100 * taken / all;
        text.push_str(&format!(
            "\n{taken} of {all} vectorized nests at {bits} bits ({percent} %), the others by \
             Cranelift at 128\n"
        ));
    }
    text
}

/// Returns the trees of all kernels, with the names of the kernels if there are several. The text
/// of an automatic schedule precedes its tree, which is then a comment.
fn trees(kernels: &[BoundedSchedule]) -> String {
    let mut text = String::new();
    for (index, bounded) in kernels.iter().enumerate() {
        if kernels.len() > 1 {
            let gap = if index > 0 { "\n" } else { "" };
            text.push_str(&format!("{gap}# {}\n", bounded.schedule.graph.name));
        }
        let tree = print_tree(bounded);
        if bounded.schedule.origin != Origin::Auto {
            text.push_str(&tree);
            continue;
        }
        text.push_str(&format!("{}\n\n", bounded.schedule.text));
        tree.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
    }
    text
}

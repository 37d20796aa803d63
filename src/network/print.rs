//! Prints the plan of a network for people and tests.

use super::{Argument, Planned};
use crate::te::{Graph, Input};

/// Returns a line for the constants, one for each call with the stages that it computes, and the
/// sizes of the arena.
///
/// ```text
/// fold Scaled
/// 0 Y_XW(X, Scaled, b) -> R            # Y.XW, Y, R
/// 1 P_S(R) -> P                        # P.M, P.E, P.S, P
/// arena 128 bytes; 128 are alive at once, 128 in sum
/// ```
pub fn print_plan(graph: &Graph, planned: &Planned) -> String {
    let arena = &planned.arena;
    let mut text = String::new();
    let stages = graph.stages.iter().zip(&planned.folded).filter(|(_, folded)| **folded);
    let names: Vec<&str> = stages.map(|(stage, _)| &stage.name[..]).collect();
    if !names.is_empty() {
        text += &format!("fold {}\n", names.join(", "));
    }
    for (call, group) in planned.plan.calls.iter().zip(&planned.groups) {
        let kernel = &planned.plan.kernels[call.kernel];
        let outputs = kernel.outputs.len();
        let inputs = kernel.inputs.len();
        let names: Vec<String> = call.arguments.iter().map(argument_text).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let integers = &names[inputs + outputs..];
        let read: Vec<&str> = names[..inputs].iter().chain(integers).copied().collect();
        // What the kernel updates in place, then its outputs.
        let updated = kernel.inputs.iter().zip(&names).filter_map(|(input, name)| match input {
            Input::Tensor { buffer, .. } => kernel.update_of(buffer).map(|_| *name),
            Input::Scalar { .. } => None,
        });
        let written: Vec<&str> =
            updated.chain(names[inputs..inputs + outputs].iter().copied()).collect();
        let head = format!(
            "{} {}({}) -> {}",
            call.kernel,
            kernel.name,
            read.join(", "),
            written.join(", ")
        );
        let stages: Vec<&str> = group.stages.iter().map(|at| &graph.stages[*at].name[..]).collect();
        text += &format!("{head:<40} # {}\n", stages.join(", "));
    }
    if let Some(bytes) = &arena.bytes {
        let total = match bytes.as_int() {
            Some(bytes) => bytes.to_string(),
            None => crate::codegen::entry::extent_text(bytes),
        };
        let (bound, sum) = (arena.lower_bound, arena.sum);
        text += &match sum {
            0 => format!("arena {total} bytes\n"),
            _ => format!("arena {total} bytes; {bound} are alive at once, {sum} in sum\n"),
        };
    }
    text
}

fn argument_text(argument: &Argument) -> String {
    match argument {
        Argument::Tensor(buffer) => buffer.name.clone(),
        Argument::Scalar(var) => var.name().to_string(),
        Argument::Integer(value) => crate::codegen::entry::extent_text(value),
    }
}

//! Networks: a stage graph that is compiled as many kernels.
//!
//! Before: the stage graph of a `network`, whose `param`s have known elements or are inputs.
//! After: the graphs of its kernels, equal ones once, and the [`Plan`]: the calls in order, with
//! the place of every tensor. In between, in this order:
//!
//! 1. [`fold`]: the stages that depend on params alone; they are computed at build time.
//! 2. [`partition`]: which stages are computed in one kernel.
//! 3. [`extract`]: the stage graph of each kernel, and the calls; [`collapse`]: fewer axes;
//!    [`own_extents`]: fewer and simpler run-time integers.
//! 4. [`place`]: offsets in one arena for the tensors between kernels.
//!
//! `driver::network` runs these steps, schedules the kernels and compiles them.

pub mod collapse;
pub mod extract;
pub mod fold;
pub mod own_extents;
pub mod partition;
pub mod place;
pub mod print;
mod reads;

use crate::ir::{Buffer, Expr, Var};
use crate::te::{Graph, Input};
use partition::Group;
use place::Arena;
use rustc_hash::FxHashSet;

/// An argument of a call, in the order of the kernel's parameters.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A tensor of the network: an input, an output, a constant, or one in the arena.
    Tensor(Buffer),
    /// A scalar input of the network.
    Scalar(Var),
    /// An expression of the run-time integers of the network.
    Integer(Expr),
}

/// A call of a kernel.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the stage that it computes last, for people.
    pub name: String,
    /// The index of its kernel in [`Plan::kernels`].
    pub kernel: usize,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

/// A network cut into kernels.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The stage graphs of the kernels, each with another workload.
    pub kernels: Vec<Graph>,
    /// The calls, in the order in which they run.
    pub calls: Vec<Call>,
}

/// A network after the steps over its stage graph.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Whether each stage is computed at build time.
    pub folded: Vec<bool>,
    /// The stages of each call.
    pub groups: Vec<Group>,
    /// The kernels and the calls.
    pub plan: Plan,
    /// The memory between the kernels.
    pub arena: Arena,
}

/// Cuts a network into kernels. `known` are the params whose elements are known.
pub fn plan(graph: &Graph, known: &FxHashSet<Buffer>) -> Planned {
    let folded = fold::constant_stages(graph, known);
    // A window of one element is none.
    let simple = collapse::replace_unit_axes(collapse::simplify_extents(graph.clone()));
    let groups = partition::partition(&simple, &folded);
    let stages = graph.stages.iter().zip(&folded).filter(|(_, folded)| **folded);
    let folded_tensors = stages.flat_map(|(stage, _)| stage.buffers.iter().cloned());
    let constant: FxHashSet<Buffer> = known.iter().cloned().chain(folded_tensors).collect();
    let plan = extract::extract(graph, &groups, &constant);
    let is_input = |buffer: &Buffer| {
        graph
            .inputs
            .iter()
            .any(|input| matches!(input, Input::Tensor { buffer: own, .. } if own == buffer))
    };
    let is_temporary = |buffer: &Buffer| {
        !is_input(buffer) && !graph.outputs.contains(buffer) && !constant.contains(buffer)
    };
    let arena = place::place(&plan.calls, &is_temporary);
    Planned { folded, groups, plan, arena }
}

/// Returns the `param`s of a network.
pub fn params(graph: &Graph) -> FxHashSet<Buffer> {
    let params = graph.inputs.iter().filter_map(|input| match input {
        Input::Tensor { buffer, param: true, .. } => Some(buffer.clone()),
        _ => None,
    });
    params.collect()
}

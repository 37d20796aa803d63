//! Networks: a stage graph that is compiled as many kernels.
//!
//! Before: the stage graph of a `network`, whose `param`s have known elements or are inputs.
//! After: the graphs of its kernels, equal ones once, and the [`Plan`]: the calls in order, with the
//! place of every tensor. In between, in this order:
//!
//! 1. [`fold`]: the stages that depend on params alone; they are computed at build time.
//! 2. [`partition`]: which stages are computed in one kernel.
//! 3. [`extract`]: the stage graph of each kernel, and the calls.
//! 4. [`place`]: offsets in one arena for the tensors between kernels.
//!
//! `driver::network` runs these steps, schedules the kernels and compiles them.

pub mod extract;
pub mod fold;
pub mod partition;
pub mod place;
mod reads;

use crate::ir::{Buffer, Var};
use crate::te::Graph;

/// An argument of a call, in the order of the kernel's parameters.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A tensor of the network: an input, an output, a constant, or one in the arena.
    Tensor(Buffer),
    /// A scalar input of the network.
    Scalar(Var),
    /// A run-time integer of the network.
    Integer(Var),
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

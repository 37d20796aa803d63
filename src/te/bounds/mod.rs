//! Every index is inside its tensor: proved, refused with the values that show it, or checked at
//! the entry of the function.
//!
//! Needs: elaborated stages. Ensures: when `graph.checks` pass, no load of any stage leaves its
//! tensor, no tensor is larger than memory, no `index` operation overflows 64 bits.
//! Parts: [`shapes`] extents, sizes, `assume`s; [`accesses`] the walk over the stages with the
//! conditions known at each load; [`decide`] what becomes of one index; [`witness`] values that
//! break it; [`scan`] the loops of entry checks; [`tape`] evaluation, [`text`] the user's notation.

mod accesses;
mod decide;
mod overflow;
mod scan;
mod shapes;
mod tape;
#[cfg(test)]
mod tests;
mod text;
mod witness;

pub(super) use shapes::MAX_BYTES;
pub use shapes::replace_shape;

use super::Graph;
use crate::diag::Diag;
use crate::ir::arith::{Facts, Key};
use crate::ir::{Buffer, Stmt, Var};
use crate::te::Input;
use rustc_hash::FxHashSet;

/// Checks every load of the graph and fills `graph.checks` and `graph.dims` with what only the
/// caller's values can decide: shape equations, assumes, extents not negative, symbolic and
/// data-dependent indices.
pub fn check_bounds(graph: &mut Graph, diags: &mut Vec<Diag>) {
    let mut checker = Checker::new(graph);
    shapes::check_shapes(graph, &mut checker);
    for stage in &graph.stages {
        accesses::check_stage(stage, &mut checker);
    }
    graph.checks = checker.checks;
    diags.extend(checker.diags);
}

/// What is common to all stages.
struct Checker {
    facts: Facts,
    checks: Vec<Stmt>,
    /// Checks already made in this stage: condition, text, conditions and number of axes around.
    made: FxHashSet<(Key, String, Option<usize>, usize)>,
    diags: Vec<Diag>,
    /// Tensors that exist at the entry.
    inputs: FxHashSet<Buffer>,
    /// Run-time integers: their values are arguments or extents.
    runtime: FxHashSet<Var>,
    /// Scalar arguments.
    scalars: FxHashSet<Var>,
}

impl Checker {
    fn new(graph: &Graph) -> Checker {
        let (mut inputs, mut scalars) = (FxHashSet::default(), FxHashSet::default());
        for input in &graph.inputs {
            match input {
                Input::Tensor { buffer, .. } => drop(inputs.insert(buffer.clone())),
                Input::Scalar { var, .. } => drop(scalars.insert(var.clone())),
            }
        }
        let runtime = graph.vars.iter().cloned().collect();
        let (checks, diags) = (Vec::new(), Vec::new());
        let made = FxHashSet::default();
        Checker { facts: Facts::new(), checks, made, diags, inputs, runtime, scalars }
    }
}

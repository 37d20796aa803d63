//! Build loops: the stage graph becomes one loop nest per stage, in declaration order.

use crate::diag::Result;
use crate::ir::Kernel;
use crate::te::Graph;

/// The plain loop nest of a graph.
pub fn build_loops(graph: &Graph) -> Result<Kernel> {
    let _ = graph;
    crate::bug!("build_loops is not written")
}

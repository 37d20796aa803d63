//! Checks that every index is inside its tensor: the check proves it, refuses the program with
//! values that violate it, or defers it to the entry of the function.
//!
//! Needs: elaborated stages. Ensures: when `graph.checks` pass, no load of any stage leaves its
//! tensor, no tensor is larger than memory, no `index` operation overflows 64 bits.
//! Parts: [`shapes`] extents, sizes, `assume`s; [`accesses`] the walk over the stages with the
//! conditions known at each load; [`walker`] its state; [`decide`] the decision for one index;
//! [`steps`] reads of earlier steps; [`values`] what is known of the elements of stages;
//! [`witness`] the search for values that violate it; [`scan`] the loops of entry checks; [`tape`]
//! evaluation; [`text`] the notation of the source.

mod accesses;
mod decide;
mod overflow;
mod scan;
mod shapes;
mod steps;
mod tape;
#[cfg(test)]
mod tests;
mod text;
mod values;
mod walker;
mod witness;

pub(super) use shapes::MAX_BYTES;
pub use shapes::replace_shape;

use super::Graph;
use crate::diag::Diag;
use crate::ir::arith::{Facts, Key};
use crate::ir::{Buffer, DType, Expr, Stmt, Var};
use crate::te::{Assertion, Body, Input, Stage, StepRead};
use rustc_hash::{FxHashMap, FxHashSet};

/// Checks every load of the graph. Fills `graph.checks` and `graph.dims` with the conditions that
/// only the caller's values decide: shape equations, assumptions, extents that are not negative,
/// symbolic and data-dependent indices.
pub fn check_bounds(graph: &mut Graph, diags: &mut Vec<Diag>) {
    let mut checker = Checker::new(graph);
    shapes::check_shapes(graph, &mut checker);
    for assertion in &graph.asserts {
        // One about run-time integers alone is checked with the assumptions.
        if !graph.assumes.iter().any(|(_, _, span)| *span == assertion.span) {
            check_assertion(assertion, &mut checker);
        }
    }
    for (place, stage) in graph.stages.iter().enumerate() {
        accesses::check_stage(stage, place, &mut checker);
    }
    // A graph that is checked again has the reads of the first time.
    let recurrences = graph.stages.iter_mut().filter_map(|stage| stage.recurrence.as_mut());
    recurrences.for_each(|recurrence| recurrence.reads.clear());
    for (place, read) in checker.step_reads {
        if let Some(recurrence) = &mut graph.stages[place].recurrence {
            recurrence.reads.push(read);
        }
    }
    graph.checks = checker.checks;
    diags.extend(checker.diags);
}

/// Checks the loads of an `assert` as those of a stage with one element, and adds its check.
fn check_assertion(assertion: &Assertion, checker: &mut Checker) {
    let Assertion { cond, span, load_spans, .. } = assertion;
    let stage = Stage {
        name: "assert".to_string(),
        buffers: Vec::new(),
        axes: Vec::new(),
        body: Body::Map(vec![cond.clone()]),
        output: false,
        recurrence: None,
        update: None,
        span: *span,
        load_spans: load_spans.clone(),
    };
    accesses::check_stage(&stage, 0, checker);
    checker.checks.push(assertion_check(assertion));
    checker.facts.assume(cond);
}

/// Returns the check of an `assert`. A number in braces would be replaced by a value.
fn assertion_check(assertion: &Assertion) -> Stmt {
    let escape = |text: String, at| text.replace(&format!("{{{at}}}"), &format!("{{ {at} }}"));
    let message = (0..4).fold(assertion.text.clone(), escape);
    Stmt::Assert { cond: assertion.cond.clone(), message, values: Vec::new() }
}

/// The state that all stages share.
struct Checker {
    facts: Facts,
    checks: Vec<Stmt>,
    /// The checks of this stage so far: condition, text, enclosing conditions, number of enclosing
    /// axes.
    made: FxHashSet<(Key, String, Option<usize>, usize)>,
    diags: Vec<Diag>,
    /// The tensors that exist on entry.
    inputs: FxHashSet<Buffer>,
    /// For each buffer of earlier steps, the place of its stage in the graph.
    previous: FxHashMap<Buffer, usize>,
    /// The reads of earlier steps, each with the place of its stage in the graph.
    step_reads: Vec<(usize, StepRead)>,
    /// The tensors that are read inside of indices.
    read_in_indices: FxHashSet<Buffer>,
    /// The extents that are not constants.
    extents: Vec<Expr>,
    /// Limits of the elements of stages so far that are read inside of indices.
    limits: FxHashMap<Buffer, values::Limits>,
    /// The run-time integers, which are arguments or extents.
    runtime: FxHashSet<Var>,
    /// The scalar arguments.
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
        let mut facts = Facts::new();
        for var in &graph.vars {
            // The caller passes 64 bits.
            let (low, high) = DType::Index.int_range();
            facts.assume(&Expr::le(Expr::int(DType::Index, low), Expr::var(var)));
            facts.assume(&Expr::le(Expr::var(var), Expr::int(DType::Index, high)));
        }
        let (checks, diags) = (Vec::new(), Vec::new());
        let made = FxHashSet::default();
        let previous = graph.stages.iter().enumerate().flat_map(|(place, stage)| {
            let buffers = stage.recurrence.iter().flat_map(|recurrence| &recurrence.previous);
            buffers.map(move |buffer| (buffer.clone(), place))
        });
        let previous = previous.collect();
        Checker {
            extents: values::symbolic_extents(graph, &facts),
            read_in_indices: values::read_in_indices(graph),
            limits: FxHashMap::default(),
            step_reads: Vec::new(),
            previous,
            facts,
            checks,
            made,
            diags,
            inputs,
            runtime,
            scalars,
        }
    }
}

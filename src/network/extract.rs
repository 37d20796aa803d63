//! The stage graph of each group, and the calls.
//!
//! Before: groups of stages of a network. After: one graph for each different workload among them,
//! and for each group a call of its graph with the tensors of the network.

use super::collapse::collapse;
use super::own_extents::own_extents;
use super::partition::Group;
use super::reads::for_each_read;
use super::{Argument, Call, Plan};
use crate::ir::visit::any_expr;
use crate::ir::{Buffer, Expr, Var};
use crate::te::{Graph, Input, Stage, TypicalCall};
use crate::tune::workload::canonical_text;
use rustc_hash::{FxHashMap, FxHashSet};

/// Returns the kernels and calls of a network. `constant` are the tensors that are known at build
/// time: kernels may take them in another layout.
pub fn extract(graph: &Graph, groups: &[Group], constant: &FxHashSet<Buffer>) -> Plan {
    // A tensor is an output of its group if another group reads it.
    let made: Vec<FxHashSet<usize>> =
        groups.iter().map(|group| group.stages.iter().copied().collect()).collect();
    let mut read_by: FxHashMap<Buffer, Vec<usize>> = FxHashMap::default();
    for (at, group) in groups.iter().enumerate() {
        for stage in &group.stages {
            for_each_read(&graph.stages[*stage], &mut |buffer, _| {
                read_by.entry(buffer.clone()).or_default().push(at);
            });
        }
    }
    let producer: FxHashMap<Buffer, usize> = (graph.stages.iter().enumerate())
        .flat_map(|(at, stage)| stage.buffers.iter().map(move |buffer| (buffer.clone(), at)))
        .collect();
    let mut plan = Plan { kernels: Vec::new(), calls: Vec::new() };
    let mut known: FxHashMap<(String, Vec<Vec<i64>>), usize> = FxHashMap::default();
    for (at, group) in groups.iter().enumerate() {
        let escapes = |buffer: &Buffer| {
            let stage = producer[buffer];
            let readers = read_by.get(buffer).into_iter().flatten();
            readers.into_iter().any(|reader| *reader != at && !made[*reader].contains(&stage))
        };
        let name = graph.stages[group.main].name.clone();
        let own = kernel_graph(graph, &group.stages, &name, &escapes, constant);
        let mut arguments = arguments_of(graph, &own);
        let (own, integers) = own_extents(collapse(own));
        arguments.extend(integers.into_iter().map(Argument::Integer));
        let next = plan.kernels.len();
        let kernel = *known.entry((canonical_text(&own), typical_values(&own))).or_insert(next);
        if kernel == next {
            plan.kernels.push(own);
        }
        plan.calls.push(Call { name, kernel, arguments });
    }
    plan
}

/// Returns the integers of a kernel's typical calls, -1 for one without a value: kernels for other
/// sizes have schedules of their own.
fn typical_values(graph: &Graph) -> Vec<Vec<i64>> {
    let in_call =
        |call: &TypicalCall| graph.vars.iter().map(|var| call.value(var).unwrap_or(-1)).collect();
    graph.estimates.iter().map(in_call).collect()
}

/// Returns the tensors and scalars that a kernel takes, by its own names. A tensor that the network
/// has updated in place is the argument of the network.
fn arguments_of(graph: &Graph, own: &Graph) -> Vec<Argument> {
    let argument = |buffer: &Buffer| {
        let mut updates = graph.stages.iter();
        let is_after =
            |stage: &&Stage| stage.update.as_ref().is_some_and(|update| update.after == *buffer);
        let updated = updates.find(is_after).and_then(|stage| graph.updated_input(stage));
        Argument::Tensor(updated.unwrap_or(buffer).clone())
    };
    let inputs = own.inputs.iter().map(|input| match input {
        Input::Tensor { buffer, .. } => argument(buffer),
        Input::Scalar { var, .. } => Argument::Scalar(var.clone()),
    });
    let outputs = own.outputs.iter().map(|buffer| Argument::Tensor(buffer.clone()));
    inputs.chain(outputs).collect()
}

/// Returns the graph of some stages of a network. `escapes` says whether other groups read a
/// tensor.
fn kernel_graph(
    graph: &Graph,
    numbers: &[usize],
    name: &str,
    escapes: &dyn Fn(&Buffer) -> bool,
    constant: &FxHashSet<Buffer>,
) -> Graph {
    let mut stages: Vec<Stage> = numbers.iter().map(|at| graph.stages[*at].clone()).collect();
    let own: FxHashSet<&Buffer> = numbers
        .iter()
        .flat_map(|at| {
            let stage = &graph.stages[*at];
            let earlier = stage.recurrence.iter().flat_map(|recurrence| &recurrence.previous);
            let updated = stage.update.iter().map(|update| &update.after);
            stage.buffers.iter().chain(earlier).chain(updated)
        })
        .collect();
    let mut read: Vec<Buffer> = Vec::new();
    for stage in &stages {
        for_each_read(stage, &mut |buffer, _| {
            if !own.contains(buffer) && !read.contains(buffer) {
                read.push(buffer.clone());
            }
        });
        let updated = stage.update.iter().map(|update| update.before.clone());
        read.extend(updated.filter(|buffer| !read.contains(buffer)).collect::<Vec<_>>());
    }
    for stage in &mut stages {
        stage.output |= stage.buffers.iter().any(escapes);
    }
    let outputs: Vec<Buffer> = stages
        .iter()
        .filter(|stage| stage.output && stage.update.is_none())
        .flat_map(|stage| stage.buffers.clone())
        .collect();
    let mut inputs: Vec<Input> = read
        .into_iter()
        .map(|buffer| {
            let layout_free = constant.contains(&buffer);
            Input::Tensor { buffer, layout_free, param: false, span: graph.span }
        })
        .collect();
    let scalars = graph.inputs.iter().filter(|input| match input {
        Input::Scalar { var, .. } => stages.iter().any(|stage| mentions(stage, var)),
        Input::Tensor { .. } => false,
    });
    inputs.extend(scalars.cloned());
    let in_shapes = |var: &Var| {
        let inputs = inputs.iter().filter_map(|input| match input {
            Input::Tensor { buffer, .. } => Some(buffer),
            Input::Scalar { .. } => None,
        });
        inputs.chain(&outputs).any(|buffer| buffer.shape.iter().any(|extent| is_in(extent, var)))
    };
    let is_used = |var: &Var| {
        in_shapes(var)
            || stages.iter().any(|stage| {
                let axes = stage.axes.iter().chain(stage.reduce_axes());
                mentions(stage, var)
                    || axes
                        .into_iter()
                        .any(|axis| is_in(&axis.min, var) || is_in(&axis.extent, var))
            })
    };
    let vars: Vec<Var> = graph.vars.iter().filter(|var| is_used(var)).cloned().collect();
    let applies = |condition: &Expr| {
        !any_expr(condition, &mut |node| node.as_var().is_some_and(|var| !vars.contains(var)))
    };
    let assumes =
        graph.assumes.iter().filter(|(condition, ..)| applies(condition)).cloned().collect();
    let mut estimates: Vec<TypicalCall> = Vec::new();
    for TypicalCall { values, span } in &graph.estimates {
        let own = values.iter().filter(|(var, _)| vars.contains(var)).cloned();
        let call = TypicalCall { values: own.collect(), span: *span };
        let is_known = estimates.iter().any(|known| known.values == call.values);
        if !call.values.is_empty() && !is_known {
            estimates.push(call);
        }
    }
    Graph {
        name: identifier(name),
        span: graph.span,
        params: Vec::new(),
        consts: Vec::new(),
        aliases: Vec::new(),
        vars,
        inputs,
        stages,
        dropped: Vec::new(),
        outputs,
        assumes,
        asserts: Vec::new(),
        estimates,
        reassociate: graph.reassociate,
        network: false,
        part_of_network: true,
        // The entry of the network has checked everything.
        dims: Vec::new(),
        checks: Vec::new(),
    }
}

fn mentions(stage: &Stage, var: &Var) -> bool {
    let mut offsets = stage.update.iter().flat_map(|update| &update.offsets);
    let mut found = offsets.any(|offset| is_in(offset, var));
    stage.body.for_each_expr(&mut |expr| found |= is_in(expr, var));
    found
}

fn is_in(expr: &Expr, var: &Var) -> bool {
    any_expr(expr, &mut |node| node.as_var() == Some(var))
}

/// Inner stages of operators have dots in their names.
fn identifier(name: &str) -> String {
    name.replace('.', "_")
}

//! The stages that depend on params alone, which are computed at build time.
//!
//! Before: the graph of a network, and which of its inputs have known elements.
//! After: the numbers of the constant stages. Other stages, and outputs, are computed in each call.
//! Declines: a stage whose elements take much more memory than what they are computed from, such as
//! a broadcast.

use super::reads::for_each_read;
use crate::ir::Buffer;
use crate::te::{Body, Graph, Input, Stage};
use rustc_hash::FxHashSet;

/// A constant may take this many times the bytes of the tensors that it is computed from: int8
/// weights of a quantised model become float32.
const MAX_GROWTH: u64 = 4;
/// A constant of at most this many bytes is folded in any case.
const SMALL: u64 = 1 << 16;

/// Returns whether each stage is computed at build time. `known` are the params with elements.
pub fn constant_stages(graph: &Graph, known: &FxHashSet<Buffer>) -> Vec<bool> {
    let mut constant: FxHashSet<Buffer> = known.clone();
    let fold = |stage: &Stage| {
        let is_constant = !stage.output && is_constant(graph, stage, &constant);
        if is_constant {
            constant.extend(stage.buffers.iter().cloned());
        }
        is_constant
    };
    graph.stages.iter().map(fold).collect()
}

fn is_constant(graph: &Graph, stage: &Stage, constant: &FxHashSet<Buffer>) -> bool {
    let (mut all, mut read) = (true, FxHashSet::default());
    for_each_read(stage, &mut |buffer, _| {
        all &= constant.contains(buffer);
        read.insert(buffer.clone());
    });
    let mut free = false;
    stage.body.for_each_expr(&mut |expr| {
        free |= crate::ir::visit::any_expr(expr, &mut |node| {
            node.as_var().is_some_and(|var| {
                graph.vars.contains(var)
                    || graph.inputs.iter().any(
                        |input| matches!(input, Input::Scalar { var: scalar, .. } if scalar == var),
                    )
            })
        });
    });
    let axes = stage.axes.iter().chain(stage.reduce_axes());
    let fixed =
        axes.clone().all(|axis| axis.extent.as_int().is_some() && axis.min.as_int().is_some());
    if !all || read.is_empty() || free || !fixed {
        return false;
    }
    let bytes = |buffers: &mut dyn Iterator<Item = &Buffer>| -> u64 {
        buffers.map(|buffer| bytes_of(buffer).unwrap_or(u64::MAX / 4)).fold(0, u64::saturating_add)
    };
    let made = bytes(&mut stage.buffers.iter());
    made <= SMALL || made <= MAX_GROWTH * bytes(&mut read.iter())
}

/// Returns the bytes of a tensor of constant shape.
pub fn bytes_of(buffer: &Buffer) -> Option<u64> {
    let elements = buffer.shape.iter().try_fold(1u64, |product, extent| {
        product.checked_mul(u64::try_from(extent.as_int()?).ok()?)
    })?;
    elements.checked_mul(buffer.dtype.bytes())
}

/// Returns the graph that computes the constants which other stages read; its inputs are the params
/// that these depend on. `None` if there are none.
pub fn fold_graph(graph: &Graph, folded: &[bool]) -> Option<Graph> {
    let mut needed: FxHashSet<Buffer> = FxHashSet::default();
    for (stage, _) in graph.stages.iter().zip(folded).filter(|(_, folded)| !**folded) {
        for_each_read(stage, &mut |buffer, _| {
            needed.insert(buffer.clone());
        });
    }
    let (mut stages, mut outputs) = (Vec::new(), Vec::new());
    let mut read: FxHashSet<Buffer> = FxHashSet::default();
    for (stage, _) in graph.stages.iter().zip(folded).rev().filter(|(_, folded)| **folded) {
        let output = stage.buffers.iter().any(|buffer| needed.contains(buffer));
        if output || stage.buffers.iter().any(|buffer| read.contains(buffer)) {
            for_each_read(stage, &mut |buffer, _| {
                read.insert(buffer.clone());
            });
            if output {
                outputs.extend(stage.buffers.iter().cloned());
            }
            stages.push(Stage { output, ..stage.clone() });
        }
    }
    stages.reverse();
    let is_read =
        |input: &&Input| matches!(input, Input::Tensor { buffer, .. } if read.contains(buffer));
    let inputs = graph.inputs.iter().filter(is_read).cloned().collect();
    let name = format!("{}_fold", graph.name);
    let (vars, dims, checks) = (Vec::new(), Vec::new(), Vec::new());
    let empty = Vec::new();
    (!stages.is_empty()).then(|| Graph {
        name,
        inputs,
        stages,
        outputs,
        vars,
        dims,
        checks,
        network: false,
        part_of_network: false,
        assumes: Vec::new(),
        estimates: Vec::new(),
        asserts: Vec::new(),
        params: empty,
        ..graph.clone()
    })
}

/// Whether a stage only moves elements: its value is one load.
pub fn is_movement(stage: &Stage) -> bool {
    match &stage.body {
        Body::Map(values) => {
            values.iter().all(|value| matches!(value.kind, crate::ir::ExprKind::Load { .. }))
        }
        Body::Reduce(_) | Body::Sort(_) => false,
    }
}

//! Values of inputs that decide shapes, found by trial: those with which the model has the shapes
//! that it declares. The entry of the network refuses any other values.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::Unsupported;
use crate::import::attempt;
use crate::proto::{GraphProto, ModelProto, ValueInfoProto, tensor_shape_proto, type_proto};
use crate::{DType, Import, Options};

/// The largest number of elements of such inputs in all.
const MAX_ELEMENTS: usize = 6;

/// The largest number of trials, and of nodes that they import.
const MAX_TRIALS: usize = 1024;
const MAX_NODES: usize = 300_000;

/// The largest number of nodes of a model; that of functions such as `AffineGrid` is 120.
const MAX_MODEL_NODES: usize = 200;

/// The largest value of an element.
const MAX_NUMBER: i64 = 1 << 14;

/// Values of inputs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guess {
    pub(crate) inputs: Vec<Guessed>,
}

/// An input of integers with a value.
#[derive(Clone, Debug)]
pub(crate) struct Guessed {
    pub(crate) name: String,
    pub(crate) values: Vec<i64>,
    /// The values of each element that give the same network.
    pub(crate) allowed: Vec<BTreeSet<i64>>,
}

/// Element type and constant extents of a value.
fn declared(info: &ValueInfoProto) -> Option<(DType, Vec<i64>)> {
    let value = info.r#type.as_ref()?.value.as_ref()?;
    let type_proto::Value::TensorType(tensor) = value else { return None };
    let dtype = DType::from_onnx(tensor.elem_type.unwrap_or(0)).ok()?;
    let extent = |dim: &tensor_shape_proto::Dimension| match &dim.value {
        Some(tensor_shape_proto::dimension::Value::DimValue(value)) if *value >= 0 => Some(*value),
        _ => None,
    };
    let shape: Option<Vec<i64>> = tensor.shape.as_ref()?.dim.iter().map(extent).collect();
    Some((dtype, shape?))
}

/// The number of nodes of a graph with the graphs in it, and the work of walking over each of them.
fn nodes(graph: &GraphProto) -> (usize, usize) {
    let attributes = graph.node.iter().flat_map(|node| &node.attribute);
    let inner = attributes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
    let (mut count, mut work) = (graph.node.len(), 0);
    for (own, below) in inner.map(nodes) {
        count += own;
        work += below;
    }
    (count, count + work)
}

/// Imports a model with values of the inputs that `refused` names, if only one network has the
/// declared shapes.
pub(crate) fn import(
    model: &ModelProto,
    refused: &Unsupported,
    path: &Path,
    options: &Options,
) -> Option<Import> {
    let graph: &GraphProto = model.graph.as_ref()?;
    let only_values = refused.groups.iter().all(|group| group.reason.ends_with("must be constant"));
    if !only_values || refused.freeze.is_empty() || nodes(graph).1 > MAX_MODEL_NODES {
        return None;
    }
    let mut outputs = Vec::new();
    let mut numbers = BTreeSet::from([1]);
    for info in &graph.output {
        let (_, shape) = declared(info)?;
        numbers.extend(&shape);
        let shape: Vec<String> = shape.iter().map(i64::to_string).collect();
        outputs.push(format!("[{}]", shape.join(", ")));
    }
    let mut inputs = Vec::new();
    for info in &graph.input {
        let name = info.name.as_deref().unwrap_or("");
        let shape = declared(info);
        if refused.freeze.iter().any(|own| own == name) {
            let (dtype, shape) = shape?;
            let len = match shape[..] {
                [] => 1,
                [len] => usize::try_from(len).ok()?,
                _ => return None,
            };
            if !dtype.is_int() || len > MAX_ELEMENTS {
                return None;
            }
            inputs.push((name.to_string(), len));
        } else if let Some((_, shape)) = shape {
            numbers.extend(&shape);
        }
    }
    let count: usize = inputs.iter().map(|(_, len)| len).sum();
    let numbers: Vec<i64> = numbers.into_iter().filter(|n| *n <= MAX_NUMBER).collect();
    let trials = numbers.len().checked_pow(u32::try_from(count).ok()?)?;
    let is_small = trials <= MAX_TRIALS && trials.saturating_mul(nodes(graph).1) <= MAX_NODES;
    if count == 0 || count > MAX_ELEMENTS || !is_small {
        return None;
    }
    let mut found: Option<(Guess, String)> = None;
    let mut accepted = 0;
    for trial in 0..trials {
        let mut rest = trial;
        let mut next = || {
            let value = numbers[rest % numbers.len()];
            rest /= numbers.len();
            value
        };
        let mut guess = Guess::default();
        for (name, len) in &inputs {
            let values: Vec<i64> = (0..*len).map(|_| next()).collect();
            let allowed = values.iter().map(|value| BTreeSet::from([*value])).collect();
            guess.inputs.push(Guessed { name: name.clone(), values, allowed });
        }
        let Ok(import) = attempt(model, path, options, &guess) else { continue };
        if !import.outputs.iter().map(|output| &output.shape).eq(&outputs) {
            continue;
        }
        accepted += 1;
        let body = without_assertions(&import.text);
        match &mut found {
            None => found = Some((guess, body)),
            Some((_, other)) if *other != body => return None,
            Some((first, _)) => {
                for (own, new) in first.inputs.iter_mut().zip(&guess.inputs) {
                    for (allowed, value) in own.allowed.iter_mut().zip(&new.values) {
                        allowed.insert(*value);
                    }
                }
            }
        }
    }
    let (guess, _) = found?;
    // Any combination of the allowed values must be one that was accepted.
    let allowed = guess.inputs.iter().flat_map(|input| &input.allowed);
    if allowed.map(BTreeSet::len).product::<usize>() != accepted {
        return None;
    }
    attempt(model, path, options, &guess).ok()
}

/// The text without the checks of the values that were tried.
fn without_assertions(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("    assert "));
    lines.collect::<Vec<_>>().join("\n")
}

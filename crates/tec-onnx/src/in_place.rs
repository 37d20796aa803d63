//! Caches of decoders in place: `--in-place past=present`.
//!
//! Before: `present = Concat(past, new)` along an axis, `past` an input, `present` an output.
//! Or: `present` is the result of a `GroupQueryAttention` that appends rows to `past`.
//! After: one `inout` tensor with a capacity along the axis, of which the first rows are `past`;
//! an `update` writes `new` behind them; what reads `present` reads the first rows of the tensor.
//! The length of `past` is an argument of the function then.

use crate::context::{axes, axis_of};
use crate::dim::Dim;
use crate::error::{Error, short};
use crate::graph::{Def, T, Tensor};
use crate::import::Importer;
use crate::node::{Node, Outcome};
use crate::ops::grouped;
use crate::proto::tensor_shape_proto::{self, Dimension};
use crate::proto::type_proto::Value;
use crate::proto::{GraphProto, NodeProto, ValueInfoProto};

/// The name of the extent of the caches in the text.
const CAPACITY: &str = "capacity";

/// An input that becomes an `inout` tensor.
pub(crate) struct Cache {
    /// The names in the model.
    past: String,
    present: String,
    /// The axis along which rows are appended.
    axis: usize,
    /// The `inout` tensor, and its first rows before the update.
    tensors: Option<(T, T)>,
    /// The tensor with the new rows, once it is known, and its first rows.
    updated: Option<(T, T)>,
}

/// Returns what stands for the `*` of a pattern in a name.
fn matched<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    match pattern.split_once('*') {
        None => (pattern == name).then_some(""),
        Some((before, behind)) => name.strip_prefix(before)?.strip_suffix(behind),
    }
}

/// The declared dimensions of a tensor.
fn dims(info: &ValueInfoProto) -> Option<&[Dimension]> {
    match info.r#type.as_ref()?.value.as_ref()? {
        Value::TensorType(tensor) => Some(&tensor.shape.as_ref()?.dim),
        _ => None,
    }
}

/// Whether a dimension of an input has the name of the extent of the caches.
fn has_capacity(info: &ValueInfoProto) -> bool {
    let is_it = |dim: &Dimension| match &dim.value {
        Some(tensor_shape_proto::dimension::Value::DimParam(name)) => name == CAPACITY,
        _ => false,
    };
    dims(info).is_some_and(|dims| dims.iter().any(is_it))
}

/// The text of an attribute or name that may be absent.
fn text(name: &Option<String>) -> &str {
    name.as_deref().unwrap_or("")
}

impl<'a> Importer<'a> {
    /// Finds the inputs and outputs that the options name, and the node between them.
    pub(crate) fn find_caches(&mut self, graph: &'a GraphProto) -> Result<(), Error> {
        let options = self.options;
        if !options.in_place.is_empty() && graph.input.iter().any(has_capacity) {
            let text = format!("`--in-place`: the model has a dimension `{CAPACITY}` of its own");
            return Err(Error::Option(text));
        }
        for (past, present) in &options.in_place {
            let option = format!("`--in-place {}={}`", short(past), short(present));
            if past.matches('*').count() > 1
                || past.matches('*').count() != present.matches('*').count()
            {
                let text = format!("{option}: either both names have one `*`, or neither has");
                return Err(Error::Option(text));
            }
            let mut found = 0;
            for input in graph.input.iter().map(|input| text(&input.name)) {
                let Some(part) = matched(past, input) else { continue };
                let present = present.replacen('*', part, 1);
                if !graph.output.iter().any(|output| text(&output.name) == present) {
                    let present = short(&present);
                    return Err(Error::Option(format!("{option}: no output `{present}`")));
                }
                let cache = self.cache(graph, input, present)?;
                self.caches.push(cache);
                found += 1;
            }
            if found == 0 {
                return Err(Error::Option(format!("{option}: the model has no such input")));
            }
        }
        Ok(())
    }

    fn cache(&self, graph: &GraphProto, past: &str, present: String) -> Result<Cache, Error> {
        // The first result of attention is no cache.
        let attends = |node: &NodeProto| {
            let at = node.input.iter().position(|name| name == past).unwrap_or(0);
            text(&node.op_type) == "GroupQueryAttention"
                && (3..=4).contains(&at)
                && node.output.get(at - 2) == Some(&present)
        };
        let appends = |node: &&NodeProto| {
            text(&node.op_type) == "Concat"
                && node.input.len() == 2
                && node.input.first().is_some_and(|name| name == past)
                || attends(node)
        };
        let nodes: Vec<_> = graph.node.iter().filter(appends).collect();
        let input = graph.input.iter().find(|input| text(&input.name) == past);
        let rank = input.and_then(dims).map(<[Dimension]>::len);
        let axis = match nodes[..] {
            [node] if attends(node) => Some(2),
            [node] => {
                let is_axis = |name: &Option<String>| text(name) == "axis";
                let axis = node.attribute.iter().find(|one| is_axis(&one.name));
                axis.and_then(|axis| axis.i)
            }
            _ => None,
        };
        let axis = axis.zip(rank).and_then(|(axis, rank)| axis_of(axis, rank).ok());
        let Some(axis) = axis else {
            let past = short(past);
            let text = format!("`{past}` is not in place: no single node appends rows to it");
            return Err(Error::Option(text));
        };
        let past = past.to_string();
        Ok(Cache { past, present, axis, tensors: None, updated: None })
    }

    /// Makes an `inout` tensor of an input that the options name, whose extents are those of the
    /// rows before a call. Returns it, and sets the value of the input to its first rows.
    pub(crate) fn cache_input(&mut self, input: Tensor) -> Result<Option<T>, Error> {
        let Some(at) = self.caches.iter().position(|cache| cache.past == input.name) else {
            return Ok(None);
        };
        let axis = self.caches[at].axis;
        let label = short(&input.name);
        let fail = |reason: String| Error::Invalid(format!("`{label}`: {reason}"));
        let capacity = self.symbol(CAPACITY).map_err(fail)?;
        let rows = input.shape.clone();
        if rows[axis].as_const().is_none() {
            self.context.assumptions.insert((rows[axis].clone(), ">=", Dim::zero()));
        }
        let mut shape = rows.clone();
        shape[axis] = capacity;
        let (name, dtype) = (input.name.clone(), input.dtype);
        let tensor = self.context.graph.push(Tensor { shape, def: Def::Inout, ..input });
        self.context.hint = name.clone();
        let body = self.context.load(tensor, axes(&rows));
        let past = self.context.compute("past", dtype, rows, body);
        let past = past.map_err(|error| fail(crate::import::reason(&error)))?;
        self.caches[at].tensors = Some((tensor, past));
        self.set(&name, Some(past));
        Ok(Some(tensor))
    }

    /// Imports a `Concat` that appends rows to a cache; `None` if the node is none.
    pub(crate) fn append(&mut self, node: &Node) -> Option<Outcome<Vec<T>>> {
        if node.op != "Concat" || node.inputs.len() != 2 {
            return None;
        }
        let (past, new) = (node.inputs[0]?, node.inputs[1]?);
        let is_past = |cache: &Cache| cache.tensors.is_some_and(|(_, own)| own == past);
        let at = self.caches.iter().position(is_past)?;
        Some(self.append_to(at, new))
    }

    /// Imports a `GroupQueryAttention` that appends rows to caches; `None` if the node is none. All
    /// sequences have as many tokens before the new ones as the caches have rows.
    pub(crate) fn attend_in_place(&mut self, domain: &str, node: &Node) -> Option<Outcome<Vec<T>>> {
        if (domain, node.op) != ("com.microsoft", "GroupQueryAttention") {
            return None;
        }
        let find = |at: usize| {
            let past = node.optional(at)?;
            let is_past = |cache: &Cache| cache.tensors.is_some_and(|(_, own)| own == past);
            self.caches.iter().position(is_past)
        };
        match (find(3), find(4)) {
            (None, None) => None,
            (Some(key), Some(value)) => Some(self.attend_to(node, [key, value])),
            _ => Some(Err("keys and values must both be in place".into())),
        }
    }

    fn attend_to(&mut self, node: &Node, [key, value]: [usize; 2]) -> Outcome<Vec<T>> {
        let (_, past) = self.caches[key].tensors.expect("an input comes before the nodes");
        let before = self.context.shape(past)[2].clone();
        let own = grouped::grouped(&mut self.context, node, Some(&before))?;
        let hint = self.context.hint.clone();
        self.context.hint = format!("{hint}_present_key");
        let keys = self.append_to(key, own.key);
        self.context.hint = format!("{hint}_present_value");
        let values = self.append_to(value, own.value);
        self.context.hint = hint;
        let (keys, values) = (keys?[0], values?[0]);
        let result = grouped::attend(&mut self.context, node, &own, [keys, values])?;
        Ok(vec![result, keys, values])
    }

    fn append_to(&mut self, at: usize, new: T) -> Outcome<Vec<T>> {
        let axis = self.caches[at].axis;
        let (tensor, past) = self.caches[at].tensors.expect("an input comes before the nodes");
        let cx = &mut self.context;
        let (rows, own) = (cx.shape(past), cx.shape(new));
        if own.len() != rows.len() || cx.dtype(new) != cx.dtype(past) {
            return Err("the operands have different ranks or types".into());
        }
        for dim in (0..rows.len()).filter(|dim| *dim != axis) {
            cx.require_equal(&rows[dim], &own[dim])?;
        }
        let offset = rows[axis].clone();
        let mut region = rows.clone();
        region[axis] = own[axis].clone();
        let body = cx.load(new, axes(&region));
        let dtype = cx.dtype(past);
        let mut present = rows;
        present[axis] = offset.clone() + &own[axis];
        let name = cx.graph[tensor].name.clone();
        let (shape, def) = (cx.shape(tensor), Def::Update { tensor, region, axis, offset, body });
        let updated = cx.graph.push(Tensor { name, dtype, shape, def, vals: None });
        let body = cx.load(updated, axes(&present));
        let view = cx.compute("", dtype, present, body)?;
        self.caches[at].updated = Some((updated, view));
        Ok(vec![view])
    }

    /// Whether an output is the rows of a cache after the update, and so no output of the network.
    pub(crate) fn is_cache(&self, output: &str, value: Option<T>) -> Result<bool, Error> {
        let Some(cache) = self.caches.iter().find(|cache| cache.present == output) else {
            return Ok(false);
        };
        match (cache.updated, value) {
            (Some((_, view)), Some(value)) if view == value => Ok(true),
            // A node before it is refused.
            (_, None) => Ok(true),
            _ => {
                let (past, present) = (short(&cache.past), short(&cache.present));
                let text = format!("the output `{present}` is not `{past}` with rows behind it");
                Err(Error::Option(text))
            }
        }
    }

    /// The updates of all caches.
    pub(crate) fn updates(&self) -> Vec<T> {
        let updated = self.caches.iter().filter_map(|cache| cache.updated);
        updated.map(|(updated, _)| updated).collect()
    }
}

//! Updates of `inout` tensors: of whole tensors and of regions, elementwise and by reductions whose
//! start value is the old element.

use super::{Pipeline, Tensor, derived, reads};
use crate::generate::Ext;
use crate::tree::{Node, StageInfo};

/// One program in this many has an update for certain.
pub(super) const UPDATE_PERIOD: u64 = 8;

impl Pipeline {
    /// Makes an `inout` of an input, and updates it. Earlier stages read the old elements, later
    /// ones the new elements. A network may update it again.
    pub(super) fn update(&mut self) {
        let is_input = |name: &str, node: &Node| node.form.starts_with(&format!("input {name}:"));
        let is_inout = |name: &str, node: &Node| node.form.starts_with(&format!("inout {name}:"));
        let inputs: Vec<usize> = (0..self.tensors.len())
            .filter(|at| {
                let Tensor { name, computed, .. } = &self.tensors[*at];
                let mut inputs = self.inputs.iter();
                inputs.any(|node| {
                    (!computed && is_input(name, node)) || (self.network && is_inout(name, node))
                })
            })
            .collect();
        if inputs.is_empty() {
            return;
        }
        let at = self.pick(&inputs);
        let tensor = self.tensors[at].clone();
        let names: Vec<String> = self.axes(&tensor.shape).into_iter().map(|(n, _)| n).collect();
        let (mut shape, mut places) = (tensor.shape.clone(), names.clone());
        for dim in 0..shape.len() {
            if self.chance(65) {
                continue;
            }
            let (offset, rest) = (self.int(0, 2), self.int(0, 2));
            if shape[dim].value < offset + rest || self.empty {
                continue;
            }
            let value = shape[dim].value - offset - rest;
            if offset + rest > 0 {
                shape[dim] = derived(&shape[dim], &format!("@ - {}", offset + rest), value);
            }
            if offset > 0 {
                places[dim] = format!("{offset} + {}", names[dim]);
            }
        }
        let axes: Vec<(String, Ext)> = names.into_iter().zip(shape.iter().cloned()).collect();
        let own = self.load(&tensor, &places);
        let mut reduce = Vec::new();
        let (form, kids) = if self.chance(30) && !tensor.dtype.is_half() && axes.len() < 3 {
            let (name, ext) = (self.fresh("r"), self.pick(&self.dims.clone()));
            reduce.push((name, ext.clone()));
            let inner: Vec<(String, Ext)> = axes.iter().chain(&reduce).cloned().collect();
            let shape: Vec<Ext> = inner.iter().map(|(_, ext)| ext.clone()).collect();
            let points: i64 = shape.iter().map(|ext| ext.value.max(1)).product();
            if points > super::MAX_POINTS {
                return;
            }
            let other = self.companion(tensor.dtype, &shape);
            // The terms cannot read the tensor itself.
            let other = match other.name == tensor.name {
                true => self.input(tensor.dtype, shape),
                false => other,
            };
            let term = self.load_plain(&other, &inner);
            let reducer = self.pick(&["sum", "max"]);
            (format!("{reducer}($, axis={}, init=$)", reduce[0].0), vec![term, own])
        } else {
            let mut value = match self.chance(70) {
                true => own,
                false => self.other(&tensor.name, tensor.dtype, &axes),
            };
            if self.chance(60) {
                value = self.unary(value);
            }
            if self.chance(70) {
                let other = self.other(&tensor.name, tensor.dtype, &axes);
                value = self.binary(value, other);
            }
            ("$".to_string(), vec![value])
        };
        self.tag(if places.iter().any(|place| place.contains('+')) {
            "update of a region"
        } else {
            "update"
        });
        let declared = self.inputs.iter_mut().find(|node| is_input(&tensor.name, node));
        if let Some(node) = declared {
            node.form = node.form.replacen("input", "inout", 1);
        }
        for (name, ext) in &reduce {
            self.body.push(Node::stmt(format!("reduce {name}: 0..$"), vec![ext.node()]));
        }
        let shown: Vec<String> = places.iter().map(|place| format!("{place}: $")).collect();
        let mut all: Vec<Node> = shape.iter().map(Ext::node).collect();
        all.extend(kids);
        let name = tensor.name.clone();
        let node = Node::stmt(format!("update {name}[{}] = {form}", shown.join(", ")), all);
        let read = reads(&node.render(), self.tensors.iter().map(|tensor| &tensor.name[..]));
        let mut read: Vec<String> = read.into_iter().map(|one| self.whole(one)).collect();
        for one in &mut self.tensors {
            one.readers += usize::from(read.contains(&one.name));
        }
        // The old elements are those of an input.
        read.retain(|one| *one != name);
        let place = self.body.len();
        self.body.push(node);
        self.tensors[at].computed = true;
        self.tensors[at].readers = 1;
        self.stages.push(StageInfo {
            name,
            others: Vec::new(),
            axes,
            exact: reduce.is_empty() || !tensor.dtype.is_float(),
            reduce,
            output: true,
            commutes: true,
            reads: read,
            place,
            pinned: false,
            dot: false,
            prefix: None,
            scatter: None,
            steps: 0,
            earlier: Vec::new(),
            update: true,
        });
    }

    /// Returns the element of a tensor with another name and these axes.
    fn other(&mut self, name: &str, dtype: tec::ir::DType, axes: &[(String, Ext)]) -> Node {
        let shape: Vec<Ext> = axes.iter().map(|(_, ext)| ext.clone()).collect();
        let other = self.companion(dtype, &shape);
        let other = if other.name == name { self.input(dtype, shape) } else { other };
        self.load_plain(&other, axes)
    }
}

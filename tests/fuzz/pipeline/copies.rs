//! Stages that move elements: transposed, padded, reversed, repeated, joined, reshaped.

use super::{Pipeline, Tensor, derived, grouped};
use crate::generate::Ext;
use crate::tree::Node;

impl Pipeline {
    pub(super) fn transpose(&mut self, tensor: &Tensor) {
        self.tag("transpose");
        let mut order: Vec<usize> = (0..tensor.shape.len()).collect();
        for at in 0..order.len() {
            let other = self.int(at as i64, order.len() as i64 - 1) as usize;
            order.swap(at, other);
        }
        let shape: Vec<Ext> = order.iter().map(|at| tensor.shape[*at].clone()).collect();
        let axes = self.axes(&shape);
        let mut indices = vec![String::new(); order.len()];
        order.iter().zip(&axes).for_each(|(at, (name, _))| indices[*at] = name.clone());
        let mut value = self.load(tensor, &indices);
        if self.chance(30) {
            value = self.unary(value);
        }
        self.map(&axes, value);
    }

    pub(super) fn padding(&mut self, tensor: &Tensor) {
        self.tag("padding");
        let mut shape = tensor.shape.clone();
        let names: Vec<String> = self.axes(&shape).into_iter().map(|(name, _)| name).collect();
        let mut indices = names.clone();
        let mut conds = Vec::new();
        for at in 0..shape.len() {
            // Padding would make an empty extent nonempty.
            let kept = self.empty && shape[at].text.contains('v');
            let pad = if kept { 0 } else { self.int(0, 2) };
            if pad > 0 {
                let ext = grouped(&shape[at].text);
                conds.push(format!("{} >= {pad} and {} < {ext} + {pad}", names[at], names[at]));
                indices[at] = format!("{} - {pad}", names[at]);
                shape[at] =
                    derived(&shape[at], &format!("@ + {}", 2 * pad), shape[at].value + 2 * pad);
            }
        }
        if conds.is_empty() {
            return;
        }
        let axes = self.axes(&shape);
        let load = self.load(tensor, &indices);
        let zero = Node::leaf(tensor.dtype, format!("(1 as {})", tensor.dtype));
        let form = format!("(if {} then $ else $)", conds.join(" and "));
        self.map(&axes, Node::new(tensor.dtype, form, vec![load, zero]));
    }

    /// Adds a stage that reverses, repeats, enlarges, thins or clamps one dimension.
    pub(super) fn reindex(&mut self, tensor: &Tensor) {
        let mut shape = tensor.shape.clone();
        let at = self.int(0, shape.len() as i64 - 1) as usize;
        let ext = shape[at].clone();
        let names: Vec<String> = self.axes(&shape).into_iter().map(|(name, _)| name).collect();
        let mut indices = names.clone();
        let name = &names[at];
        let text = grouped(&ext.text);
        let by = self.int(2, 9);
        let (kind, new, index) = match self.int(0, 8) {
            0 => ("reversed", ext.clone(), format!("{text} - 1 - {name}")),
            1 if ext.value > 0 && ext.constant => {
                ("repeated", derived(&ext, "@ + 3", ext.value + 3), format!("{name} % {text}"))
            }
            2 | 3 => {
                let form = format!("{by} * @");
                ("enlarged", derived(&ext, &form, ext.value * by), format!("{name} // {by}"))
            }
            4 if ext.value > 0 && ext.constant => {
                ("rotated", ext.clone(), format!("({name} - {by}) % {text}"))
            }
            5 if ext.value >= by && ext.constant => {
                ("periodic", derived(&ext, "@ + 3", ext.value + 3), format!("{name} % {by}"))
            }
            6 | 7 => {
                let index = match self.int(0, 3) {
                    0 => format!("max({name} - {by}, 0)"),
                    1 => format!("min({name} + {by}, {text} - 1)"),
                    2 => format!("clamp({name} - {by}, 0, {text} - 1)"),
                    _ => format!("clamp({name} + {by}, 0, {text} - 1)"),
                };
                ("clamped", ext.clone(), index)
            }
            _ => ("thinned", derived(&ext, "@ // 2", ext.value / 2), format!("2*{name} + 1")),
        };
        self.tag(kind);
        shape[at] = new;
        indices[at] = index;
        let axes = self.axes(&shape);
        let value = self.load(tensor, &indices);
        self.map(&axes, value);
    }

    pub(super) fn concat(&mut self, tensor: &Tensor) {
        self.tag("concat");
        let other = self.companion(tensor.dtype, &tensor.shape);
        let mut shape = tensor.shape.clone();
        let at = self.int(0, shape.len() as i64 - 1) as usize;
        let ext = grouped(&shape[at].text);
        shape[at] = derived(&shape[at], "2 * @", shape[at].value * 2);
        let axes = self.axes(&shape);
        let mut indices: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
        let first = self.load(tensor, &indices);
        let name = indices[at].clone();
        indices[at] = format!("{name} - {ext}");
        let second = self.load(&other, &indices);
        let form = format!("(if {name} < {ext} then $ else $)");
        self.map(&axes, Node::new(tensor.dtype, form, vec![first, second]));
    }

    pub(super) fn broadcast(&mut self, tensor: &Tensor) {
        self.tag("broadcast");
        let dims = self.dims.clone();
        let mut shape = vec![self.pick(&dims)];
        self.limit(&mut shape, 9);
        shape.extend(tensor.shape.iter().cloned());
        let axes = self.axes(&shape);
        let value = self.load_plain(tensor, &axes[1..]);
        let other = self.companion(tensor.dtype, &shape[..1]);
        let load = self.load_plain(&other, &axes[..1]);
        let value = self.binary(value, load);
        self.map(&axes, value);
    }

    /// Adds a stage that merges two dimensions into one.
    pub(super) fn reshape(&mut self, tensor: &Tensor) {
        let [a, b] = &tensor.shape[..] else { return };
        if b.value < 1 || !b.constant {
            return;
        }
        self.tag("reshape");
        let text = format!("{} * {}", grouped(&a.text), grouped(&b.text));
        let ext = Ext::plain(text, a.constant && b.constant, a.value * b.value);
        let axes = self.axes(&[ext]);
        let by = grouped(&b.text);
        let value = self.load(tensor, &[format!("i // {by}"), format!("i % {by}")]);
        self.map(&axes, value);
    }
}

//! Parts of a tensor that a condition on two axes selects: triangles and bands.

use super::{Pipeline, Tensor, leaf};
use crate::tree::Node;

impl Pipeline {
    /// Adds a stage that reads a tensor on one side of a line through two axes, or between two.
    pub(super) fn triangle(&mut self, tensor: &Tensor) {
        self.tag("triangle");
        let axes = self.axes(&tensor.shape);
        let names: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
        let a = self.int(0, axes.len() as i64 - 2) as usize;
        let b = self.int(a as i64 + 1, axes.len() as i64 - 1) as usize;
        let ty = tensor.dtype;
        let mut value: Option<Node> = None;
        for _ in 0..self.int(1, 3) {
            let mut indices = names.clone();
            let mut conds = Vec::new();
            for _ in 0..self.pick(&[1, 1, 2]) {
                let (x, y) = match self.chance(75) {
                    true => (&names[a], &names[b]),
                    false => (&names[b], &names[a]),
                };
                let op = self.pick(&["<", "<=", ">", ">=", "=="]);
                let offset = self.int(-3, 3);
                conds.push(match self.int(0, 5) {
                    0 => format!("{y} + {x} {op} {} + {offset}", super::grouped(&axes[b].1.text)),
                    1 => format!("{y} {op} 2 * {x} + {offset}"),
                    2 => format!("{y} // 2 {op} {x} + {offset}"),
                    _ => format!("{y} {op} {x} + {offset}"),
                });
            }
            let negated = self.chance(20);
            let (name, extent) = (&names[b], &axes[b].1);
            match self.int(0, 9) {
                0 | 1 if !negated => {
                    indices[b] = format!("{name} + 1");
                    conds.push(format!("{name} + 1 < {}", extent.text));
                }
                2 => indices[b] = format!("{} - 1 - {name}", super::grouped(&extent.text)),
                _ => {}
            }
            let cond = conds.join(" and ");
            let cond = if negated { format!("not ({cond})") } else { cond };
            let (load, other) = (self.load(tensor, &indices), leaf("2"));
            let other = Node::new(ty, format!("($ as {ty})"), vec![other]);
            let (form, parts) = match self.chance(50) {
                true => (format!("(if {cond} then $ else $)"), vec![load, other]),
                false => (format!("(if not ({cond}) then $ else $)"), vec![other, load]),
            };
            let load = Node::new(ty, form, parts);
            value = Some(match value {
                None => load,
                Some(value) => self.binary(value, load),
            });
        }
        let value = value.expect("it reads once or more");
        self.map(&axes, value);
    }
}

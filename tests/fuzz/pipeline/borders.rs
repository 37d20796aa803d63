//! Stencils over the whole of a tensor, with a rule for the border: windows that slide.

use super::{Pipeline, Tensor};
use crate::tree::Node;

impl Pipeline {
    /// Adds a stage that reads neighbours along one or two axes: clamped, under a condition, at
    /// half the position, or backwards.
    pub(super) fn bordered(&mut self, tensor: &Tensor) {
        self.tag("stencil with borders");
        let axes = self.axes(&tensor.shape);
        let rank = axes.len();
        let along = self.int(0, rank as i64 - 1) as usize;
        let how = self.pick(&["clamp", "clamp", "clamp", "if", "half", "backwards"]);
        let names: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
        let mut value: Option<Node> = None;
        for _ in 0..self.int(2, 4) {
            let mut indices = names.clone();
            let offset = self.int(-2, 2);
            let mut cond = None;
            for (at, (name, ext)) in axes.iter().enumerate() {
                let here = at == along || self.chance(20);
                let last = format!("{} - 1", super::grouped(&ext.text));
                let place = match offset {
                    0 => name.clone(),
                    1.. => format!("{name} + {offset}"),
                    _ => format!("{name} - {}", -offset),
                };
                indices[at] = match how {
                    _ if !here => continue,
                    "clamp" => format!("clamp({place}, 0, {last})"),
                    "half" => format!("clamp({name} // 2 + {}, 0, {last})", offset.abs()),
                    "backwards" => format!("clamp({last} - ({place}), 0, {last})"),
                    _ if at != along => continue,
                    _ => {
                        cond = Some(format!("{place} >= 0 and {place} <= {last}"));
                        place
                    }
                };
            }
            let mut load = self.load(tensor, &indices);
            if let Some(cond) = cond {
                let other = self.load_plain(tensor, &axes);
                let ty = tensor.dtype;
                load = Node::new(ty, format!("(if {cond} then $ else $)"), vec![load, other]);
            }
            value = Some(match value {
                None => load,
                Some(value) if self.chance(70) => {
                    Node::new(tensor.dtype, "($ + $)", vec![value, load])
                }
                Some(value) => self.binary(value, load),
            });
        }
        let value = value.expect("it reads twice or more");
        self.map(&axes, value);
    }
}

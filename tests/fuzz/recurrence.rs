//! Random recurrences: a `scan` of up to three stages that read earlier steps of each other.

use crate::express::Place;
use crate::generate::{Axis, Ext, Generator};
use crate::tree::Node;
use tec::ir::DType;

/// A stage of the scan.
struct Member {
    name: String,
    /// Whether it is declared in front of the stage that reads it.
    before: bool,
}

impl Generator {
    /// Adds a `scan`.
    pub fn recurrence(&mut self, body: &mut Vec<Node>) {
        self.feature("recurrence");
        let types: Vec<DType> = DType::ALL.into_iter().filter(|ty| *ty != DType::Bool).collect();
        let ty = self.pick(&types);
        let steps = if self.chance(25) { 2 } else { 1 };
        let rank = self.int(0, 2) as usize;
        let axes = self.axes(steps + rank, 60);
        let count = self.int(1, 3) as usize;
        let names: Vec<String> = (0..count).map(|_| self.fresh("H")).collect();
        let mut kids: Vec<Node> = axes[..steps].iter().map(|axis| axis.ext.node()).collect();
        let head: Vec<String> =
            axes[..steps].iter().map(|axis| format!("{}: $", axis.name)).collect();
        let mut stages = Vec::new();
        for at in 0..count {
            let members: Vec<Member> = (names.iter().enumerate())
                .map(|(other, name)| Member { name: name.clone(), before: other < at })
                .collect();
            let value = match self.chance(30) {
                true => self.reduce_steps(ty, &members, (&axes, steps), body),
                false => None,
            };
            let value = value.unwrap_or_else(|| self.step_value(ty, &members, (&axes, steps)));
            // The stages that nothing else reads are outputs, as is every last one.
            let kind = if at + 1 == count || self.chance(30) { self.kind() } else { "compute" };
            let mut shown: Vec<String> =
                axes[..steps].iter().map(|axis| axis.name.clone()).collect();
            shown.extend(axes[steps..].iter().map(|axis| format!("{}: $", axis.name)));
            let mut own: Vec<Node> = axes[steps..].iter().map(|axis| axis.ext.node()).collect();
            own.push(value);
            let form = format!("{kind} {}[{}]: {ty} = $", names[at], shown.join(", "));
            stages.push(Node::stmt(form, own));
        }
        let places = vec!["    $\n"; count].concat();
        kids.append(&mut stages);
        body.push(Node::stmt(format!("scan {} {{\n{places}}}", head.join(", ")), kids));
        for name in &names {
            self.add_stage(name, ty, &axes);
        }
    }

    /// Returns an expression of other tensors, combined with elements of earlier steps.
    fn step_value(
        &mut self,
        ty: DType,
        members: &[Member],
        (axes, steps): (&[Axis], usize),
    ) -> Node {
        let place = Place { axes: axes.to_vec() };
        let mut value = self.expr(ty, 2, &place);
        for _ in 0..self.int(1, 2) {
            let read = self.earlier(ty, members, (axes, steps));
            let forms = match ty.is_half() {
                true => &["max($, $)", "min($, $)"][..],
                false => &["max($, $)", "($ + $)", "($ - $)", "($ * $)"],
            };
            value = Node::new(ty, self.pick(forms), vec![value, read]);
        }
        value
    }

    /// Returns an element of an earlier step, or of the current one of a stage in front.
    fn earlier(&mut self, ty: DType, members: &[Member], (axes, steps): (&[Axis], usize)) -> Node {
        let at = self.int(0, members.len() as i64 - 1) as usize;
        let mut indices: Vec<String> = axes.iter().map(|axis| axis.name.clone()).collect();
        for (index, axis) in indices.iter_mut().zip(axes).skip(steps) {
            if axis.ext.constant && self.chance(25) {
                *index = format!("({} - 1 - {})", axis.ext.text, axis.name);
            }
        }
        if members[at].before && self.chance(40) {
            return Node::leaf(ty, format!("{}[{}]", members[at].name, indices.join(", ")));
        }
        let step = self.int(0, steps as i64 - 1) as usize;
        let (axis, distance) = (axes[step].name.clone(), self.pick(&[1, 1, 1, 2, 3]));
        indices[step] = format!("{axis} - {distance}");
        let mut condition = format!("{axis} >= {distance}");
        // A step of an outer axis may be at any place of the inner ones.
        for inner in step + 1..steps {
            if self.chance(60) {
                let (inner_axis, offset) = (&axes[inner], self.pick(&[-3, -2, -1, -1, 1, 2]));
                let (name, extent) = (&inner_axis.name, &inner_axis.ext.text);
                condition = match offset < 0 {
                    true => format!("all({condition}, {name} >= {})", -offset),
                    false => format!("all({condition}, {name} + {offset} < {extent})"),
                };
                indices[inner] = format!("{name} + {offset}").replace("+ -", "- ");
            }
        }
        let start = self.expr(ty, 1, &Place { axes: axes.to_vec() });
        let read = format!("{}[{}]", members[at].name, indices.join(", "));
        Node::new(ty, format!("(if {condition} then {read} else $)"), vec![start])
    }

    /// Returns a reduction over the steps so far, or over an axis of one step.
    fn reduce_steps(
        &mut self,
        ty: DType,
        members: &[Member],
        (axes, steps): (&[Axis], usize),
        body: &mut Vec<Node>,
    ) -> Option<Node> {
        let at = self.int(0, members.len() as i64 - 1) as usize;
        let along = self.int(0, axes.len() as i64 - 1) as usize;
        let is_range = |ext: &Ext| !ext.constant || ext.value > 0;
        if !is_range(&axes[along].ext) || (along >= steps && !members[at].before) {
            return None;
        }
        let name = self.fresh("k");
        let range = vec![Node::leaf(DType::Index, "0"), axes[along].ext.node()];
        body.push(Node::stmt(format!("reduce {name}: $..$"), range));
        let mut indices: Vec<String> = axes.iter().map(|axis| axis.name.clone()).collect();
        indices[along] = name.clone();
        let read = format!("{}[{}]", members[at].name, indices.join(", "));
        let reducer = if ty.is_half() { "max" } else { self.pick(&["sum", "max", "min"]) };
        let condition = match along < steps {
            true => format!(", where={name} < {}", axes[along].name),
            false => String::new(),
        };
        Some(Node::leaf(ty, format!("{reducer}({read}, axis={name}{condition})")))
    }
}

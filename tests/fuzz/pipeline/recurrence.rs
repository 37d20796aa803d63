//! Recurrences for schedules: a `scan` whose stages read tensors, earlier steps and each other.

use super::{Pipeline, Tensor, leaf, reads};
use crate::generate::Ext;
use crate::tree::{Node, StageInfo};
use tec::ir::DType;

/// The axes of the steps.
const STEPS: [&str; 2] = ["p", "q"];

/// The axes of a recurrence, and its stages.
struct Steps {
    dtype: DType,
    /// The number of axes of the scan.
    count: usize,
    /// The axes of the scan, then those of the stages.
    axes: Vec<(String, Ext)>,
    /// The names of the stages and the numbers of their axes.
    members: Vec<(String, usize)>,
}

/// What a stage reads of other stages of its recurrence.
#[derive(Default)]
struct Reads {
    /// Stages whose earlier steps it reads.
    earlier: Vec<String>,
}

impl Pipeline {
    /// Adds a `scan` over the first one or two dimensions of a tensor.
    pub(super) fn recurrence(&mut self, tensor: &Tensor) {
        let count = if tensor.shape.len() > 1 && self.chance(45) { 2 } else { 1 };
        self.recurrence_along(tensor, count);
    }

    /// Adds a `scan` over two dimensions.
    pub(super) fn table(&mut self) {
        for _ in 0..3 {
            let (count, dims, all) = (self.stages.len(), self.dims.clone(), self.tensors.clone());
            let of = self.pick(&all);
            let tensor = match of.shape.len() {
                2.. => of,
                _ => {
                    let shape = [self.pick(&dims), self.pick(&dims)];
                    self.companion(of.dtype, &shape)
                }
            };
            self.recurrence_along(&tensor, 2);
            if self.stages.len() > count {
                return;
            }
        }
    }

    /// Adds a `scan` over the first dimensions of a tensor.
    fn recurrence_along(&mut self, tensor: &Tensor, count: usize) {
        let rank = tensor.shape.len();
        let names = STEPS[..count].iter().map(|name| name.to_string());
        let inner = ["i", "j"].iter().map(|name| name.to_string());
        let axes: Vec<(String, Ext)> = names.chain(inner).zip(tensor.shape.clone()).collect();
        let widest = self.axes_points(&axes) * axes.last().map_or(1, |(_, ext)| ext.value.max(1));
        if widest > super::MAX_POINTS || axes.len() < rank {
            return;
        }
        self.tag("recurrence");
        let most = if count > 1 && self.chance(60) { 1 } else { 3 };
        let members = (0..self.int(1, most)).map(|_| {
            let dropped = usize::from(rank > count && self.chance(25));
            (self.fresh("H"), rank - dropped)
        });
        let members: Vec<(String, usize)> = members.collect();
        let steps = Steps { dtype: tensor.dtype, count, axes, members };
        let place = self.body.len();
        let mut stages = Vec::new();
        let mut infos = Vec::new();
        for at in 0..steps.members.len() {
            let (node, info) = self.member(tensor, &steps, at);
            stages.push(node);
            infos.push(info);
        }
        let head: Vec<String> =
            steps.axes[..count].iter().map(|(name, _)| format!("{name}: $")).collect();
        let places = vec!["    $\n"; stages.len()].concat();
        let form = format!("scan {} {{\n{places}}}", head.join(", "));
        let mut kids: Vec<Node> = steps.axes[..count].iter().map(|(_, ext)| ext.node()).collect();
        kids.append(&mut stages);
        // Reduction axes and new inputs are declared in front.
        let place = place.max(self.body.len());
        self.body.push(Node::stmt(form, kids));
        for info in infos {
            let shape = info.axes.iter().map(|(_, ext)| ext.clone()).collect();
            let (name, dtype) = (info.name.clone(), steps.dtype);
            self.tensors.push(Tensor { name, dtype, shape, computed: true, readers: 0 });
            self.stages.push(StageInfo { place, ..info });
        }
    }

    fn axes_points(&self, axes: &[(String, Ext)]) -> i64 {
        axes.iter().map(|(_, ext)| ext.value.max(1)).product()
    }

    /// Returns a stage of a recurrence.
    fn member(&mut self, tensor: &Tensor, steps: &Steps, at: usize) -> (Node, StageInfo) {
        let (name, rank) = steps.members[at].clone();
        let mut found = Reads::default();
        let mut reduce = Vec::new();
        let (form, kids) = match self.chance(40) {
            true => self.reduction_of_steps(steps, at, &mut reduce, &mut found),
            false => None,
        }
        .unwrap_or_else(|| {
            let mut value = self.outside(tensor, &steps.axes[..rank]);
            if self.chance(30) {
                value = self.unary(value);
            }
            for _ in 0..self.int(1, 2) {
                if let Some(read) = self.inside(steps, at, &steps.axes[..rank], &mut found) {
                    value = self.binary(value, read);
                }
            }
            ("$".to_string(), vec![value])
        });
        let axes = steps.axes[..rank].to_vec();
        let inner = &axes[steps.count..];
        let mut shown: Vec<String> =
            axes[..steps.count].iter().map(|(name, _)| name.clone()).collect();
        shown.extend(inner.iter().map(|(name, _)| format!("{name}: $")));
        let mut all: Vec<Node> = inner.iter().map(|(_, ext)| ext.node()).collect();
        all.extend(kids);
        let node = Node::stmt(
            format!("stage {name}[{}]: {} = {form}", shown.join(", "), steps.dtype),
            all,
        );
        let known = self.tensors.iter().map(|tensor| &tensor.name[..]);
        let earlier = steps.members[..at].iter().map(|(name, _)| &name[..]);
        let text = node.render();
        let reads = reads(&text, known.chain(earlier));
        let reads: Vec<String> = reads.into_iter().map(|read| self.whole(read)).collect();
        for tensor in &mut self.tensors {
            tensor.readers += usize::from(reads.contains(&tensor.name));
        }
        // A stage in front of which only earlier steps are read is no dependence of the step.
        let now = |read: &String| {
            let member = steps.members.iter().any(|(name, _)| name == read);
            !member || self.reads_now(&text, read, &steps.axes[..steps.count])
        };
        let reads = reads.into_iter().filter(now).collect();
        let info = StageInfo {
            name,
            others: Vec::new(),
            axes,
            exact: reduce.is_empty() || !steps.dtype.is_float(),
            reduce,
            output: false,
            commutes: true,
            reads,
            place: 0,
            pinned: false,
            dot: false,
            prefix: None,
            scatter: None,
            steps: steps.count,
            earlier: found.earlier,
            update: false,
        };
        (node, info)
    }

    /// Whether a statement reads the current step of a stage.
    fn reads_now(&self, text: &str, name: &str, steps: &[(String, Ext)]) -> bool {
        let steps: Vec<&str> = steps.iter().map(|(name, _)| &name[..]).collect();
        let head = format!("{name}[{}", steps.join(", "));
        text.match_indices(&head).any(|(at, _)| text[at + head.len()..].starts_with([',', ']']))
    }

    /// Returns an element of a tensor outside of the recurrence.
    fn outside(&mut self, tensor: &Tensor, axes: &[(String, Ext)]) -> Node {
        let shape: Vec<Ext> = axes.iter().map(|(_, ext)| ext.clone()).collect();
        let tensor = match shape.len() == tensor.shape.len() {
            true => tensor.clone(),
            false => self.companion(tensor.dtype, &shape),
        };
        self.load_plain(&tensor, axes)
    }

    /// Returns an element of a stage of the recurrence at `axes`: of an earlier step, or of the
    /// current one of a stage in front.
    fn inside(
        &mut self,
        steps: &Steps,
        at: usize,
        axes: &[(String, Ext)],
        found: &mut Reads,
    ) -> Option<Node> {
        let fits = |other: &usize| steps.members[*other].1 <= axes.len();
        let fitting: Vec<usize> = (0..steps.members.len()).filter(fits).collect();
        if fitting.is_empty() {
            return None;
        }
        let other = self.pick(&fitting);
        let (name, rank) = steps.members[other].clone();
        let mut indices: Vec<String> = axes[..rank].iter().map(|(name, _)| name.clone()).collect();
        for (index, (axis, ext)) in indices.iter_mut().zip(axes).skip(steps.count) {
            *index = match self.int(0, 9) {
                0 | 1 => format!("{} - 1 - {axis}", super::grouped(&ext.text)),
                2 | 3 => format!("max({axis} - 1, 0)"),
                _ => continue,
            };
        }
        let ty = steps.dtype;
        if other < at && self.chance(60) {
            return Some(Node::leaf(ty, format!("{name}[{}]", indices.join(", "))));
        }
        let along = self.int(0, steps.count as i64 - 1) as usize;
        let (axis, distance) = (axes[along].0.clone(), self.pick(&[1, 1, 1, 2, 3]));
        indices[along] = format!("{axis} - {distance}");
        found.earlier.push(name.clone());
        let mut condition = format!("{axis} >= {distance}");
        // A step of the outer axis may be at any place of the inner one.
        if along + 1 < steps.count && self.chance(60) {
            let ((inner, ext), offset) = (&axes[along + 1], self.pick(&[-3, -2, -1, -1, -1, 1, 2]));
            condition = match offset < 0 {
                true => format!("all({condition}, {inner} >= {})", -offset),
                false => format!("all({condition}, {inner} + {offset} < {})", ext.text),
            };
            indices[along + 1] = format!("{inner} + {offset}").replace("+ -", "- ");
        }
        let read = format!("{name}[{}]", indices.join(", "));
        let start = Node::new(ty, format!("($ as {ty})"), vec![leaf("1")]);
        Some(Node::new(ty, format!("(if {condition} then {read} else $)"), vec![start]))
    }

    /// Returns a reduction over the last axis of a stage, or over the steps so far.
    fn reduction_of_steps(
        &mut self,
        steps: &Steps,
        at: usize,
        reduce: &mut Vec<(String, Ext)>,
        found: &mut Reads,
    ) -> Option<(String, Vec<Node>)> {
        let (ty, rank) = (steps.dtype, steps.members[at].1);
        let whole = steps.axes.len();
        let k = self.fresh("k");
        let mut axes = steps.axes.clone();
        let mut condition = String::new();
        let reducer = if ty.is_half() { "max" } else { self.pick(&["sum", "sum", "max", "min"]) };
        let term = if self.chance(25) {
            let name = self.pick(&steps.members[..at + 1]);
            if name.1 > rank {
                return None;
            }
            let (axis, ext) = axes[0].clone();
            condition = format!(", where={k} < {axis}");
            reduce.push((k.clone(), ext));
            axes[0].0.clone_from(&k);
            found.earlier.push(name.0.clone());
            let indices: Vec<String> =
                axes[..name.1].iter().map(|(name, _)| name.clone()).collect();
            Node::leaf(ty, format!("{}[{}]", name.0, indices.join(", ")))
        } else {
            if whole == steps.count {
                return None;
            }
            reduce.push((k.clone(), axes[whole - 1].1.clone()));
            axes[whole - 1].0.clone_from(&k);
            let read = self.inside(steps, at, &axes, found)?;
            let factor = self.companion(ty, &[axes[whole - 1].1.clone()]);
            let factor = self.load_plain(&factor, &axes[whole - 1..]);
            self.binary(read, factor)
        };
        let ext = reduce[0].1.node();
        self.body.push(Node::stmt(format!("reduce {k}: 0..$"), vec![ext]));
        Some((format!("{reducer}($, axis={k}{condition})"), vec![term]))
    }
}

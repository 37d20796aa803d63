//! Random sorts: whole orders, first elements and single ranks of rows of any expression.

use crate::express::Place;
use crate::generate::{Axis, Ext, Generator};
use crate::tree::Node;
use tec::ir::DType;

impl Generator {
    /// Adds a stage that sorts.
    pub fn sort_stage(&mut self, body: &mut Vec<Node>) {
        self.feature("sort");
        let types: Vec<DType> = DType::ALL.into_iter().filter(|ty| *ty != DType::Bool).collect();
        let ty = self.pick(&types);
        let exts: Vec<Ext> = self.scope.exts.clone();
        let usable: Vec<Ext> =
            exts.into_iter().filter(|ext| !ext.constant || ext.value > 0).collect();
        let long = if self.chance(20) { Some(self.int(20, 400)) } else { None };
        let sorted = match long {
            Some(extent) => Ext::literal(extent),
            None if usable.is_empty() => Ext::literal(5),
            None => self.pick(&usable),
        };
        let name = self.fresh("k");
        let range = vec![Node::leaf(DType::Index, "0"), sorted.node()];
        body.push(Node::stmt(format!("reduce {name}: $..$"), range));
        let rank = self.int(0, 2) as usize;
        let mut axes = self.axes(rank, 12);
        let (ranks, at) = self.ranks(&sorted);
        let place = self.int(0, axes.len() as i64) as usize;
        if let Some(ranks) = ranks {
            axes.insert(place, ranks);
        }
        let mut around: Vec<Axis> = axes.iter().filter(|axis| axis.name != "p").cloned().collect();
        around.push(Axis { name: name.clone(), from: 0, ext: sorted });
        let inside = Place { axes: around };
        let key = self.expr(ty, 3, &inside);
        let descending = if self.chance(50) { ", descending=true" } else { "" };
        let arguments = format!("axis={name}, at={at}{descending}");
        let places: Vec<String> = axes.iter().map(|axis| format!("{}: $", axis.name)).collect();
        let places = places.join(", ");
        let mut kids: Vec<Node> = axes.iter().map(|axis| axis.ext.node()).collect();
        let kind = self.kind();
        let stage = self.fresh("Z");
        match self.int(0, 2) {
            0 => {
                kids.push(key);
                let form = format!("{kind} {stage}[{places}] = sort($, {arguments})");
                body.push(Node::stmt(form, kids));
                self.add_stage(&stage, ty, &axes);
            }
            1 => {
                kids.push(key);
                let form = format!("{kind} {stage}[{places}] = argsort($, {arguments})");
                body.push(Node::stmt(form, kids));
                self.add_stage(&stage, DType::Int64, &axes);
            }
            _ => {
                let (other, second) = (self.pick(&DType::ALL), self.fresh("Z"));
                let value = self.expr(other, 2, &inside);
                kids.extend([key, value]);
                let form =
                    format!("{kind} ({stage}, {second})[{places}] = sort(($, $), {arguments})");
                body.push(Node::stmt(form, kids));
                self.add_stage(&stage, ty, &axes);
                self.add_stage(&second, other, &axes);
            }
        }
    }

    /// Returns an axis of ranks, if there is one, and the rank.
    fn ranks(&mut self, sorted: &Ext) -> (Option<Axis>, String) {
        let axis = |ext: &Ext| Some(Axis { name: "p".to_string(), from: 0, ext: ext.clone() });
        let text = &sorted.text;
        match self.int(0, 5) {
            0 if sorted.constant => (None, self.int(0, sorted.value - 1).to_string()),
            1 if sorted.constant => {
                let few = Ext::literal(self.int(1, sorted.value));
                (axis(&few), "p".to_string())
            }
            2 => (axis(sorted), format!("{text} - 1 - p")),
            3 => (axis(&Ext::literal(2)), format!("clamp(p * 3, 0, max({text} - 1, 0))")),
            _ => (axis(sorted), "p".to_string()),
        }
    }
}

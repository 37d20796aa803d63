//! Stages that read at positions which another stage computes, inside by its definition.

use super::{Pipeline, Tensor, grouped};
use crate::generate::Ext;
use crate::tree::Node;
use tec::ir::DType;

/// One program in this many reads at computed positions for certain.
pub(super) const GATHER_PERIOD: u64 = 8;

impl Pipeline {
    /// Adds a stage of positions and one that reads a tensor there.
    pub(super) fn gathered(&mut self, tensor: &Tensor) {
        let at = self.int(0, tensor.shape.len() as i64 - 1) as usize;
        let ext = tensor.shape[at].clone();
        // An empty dimension has no position.
        if !ext.constant || ext.value < 1 {
            return;
        }
        let mut shape = tensor.shape.clone();
        if self.chance(50) {
            let dims = self.dims.clone();
            shape[at] = self.pick(&dims);
        }
        let positions = match self.chance(50) {
            true => vec![shape[at].clone()],
            false => shape.clone(),
        };
        let Some(positions) = self.positions_below(&ext, &positions) else { return };
        self.tag("gather at computed positions");
        let axes = self.axes(&shape);
        let names: Vec<String> = axes.iter().map(|(name, _)| name.clone()).collect();
        let own = match positions.shape.len() {
            1 => &names[at..at + 1],
            _ => &names[..],
        };
        let place = format!("{}[{}]", positions.name, own.join(", "));
        let mut indices = names.clone();
        indices[at] = match ext.value > 1 && self.chance(20) {
            true => format!("max(({place} as int64) - 1, 0)"),
            false => place,
        };
        let mut value = self.load(tensor, &indices);
        if self.chance(40) {
            value = self.unary(value);
        }
        self.map(&axes, value);
    }

    /// Adds a stage of integers from 0 and below an extent.
    fn positions_below(&mut self, ext: &Ext, shape: &[Ext]) -> Option<Tensor> {
        let axes = self.axes(shape);
        let (ty, last) = (DType::Int32, format!("{} - 1", grouped(&ext.text)));
        let data = self.companion(ty, shape);
        let data = self.load_plain(&data, &axes);
        let form = match self.int(0, 3) {
            0 => format!("(({} as int32 - $) % {})", axes[0].0, grouped(&ext.text)),
            1 => format!("clamp({} as int32 - $ % 4, 0, {last})", axes[0].0),
            _ => format!("clamp($, 0, {last})"),
        };
        let mut value = Node::new(ty, form, vec![data]);
        if ext.value < 128 && self.chance(30) {
            let narrow = self.pick(&[DType::Uint8, DType::Int64, DType::Int8]);
            value = Node::new(narrow, format!("($ as {narrow})"), vec![value]);
        }
        let before = self.stages.len();
        let dtype = value.ty.expect("an expression");
        self.stage(&axes, &[], "$", vec![value], &[dtype], (true, true));
        if self.stages.len() == before { None } else { self.tensors.last().cloned() }
    }
}

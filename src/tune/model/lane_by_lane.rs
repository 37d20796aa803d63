//! Vector statements that `legalize_vectors` writes out as scalars, one for each lane.

use super::walk::Walker;
use crate::ir::visit::{NodeSet, reads_buffer, walk_nodes};
use crate::ir::{Buffer, DType, Expr, ExprKind};
use crate::simd_ops::{
    MaskedOffsets, VectorAccess, access_form, first_lanes, has_masked_move, has_short_offsets,
    without_operand,
};
use crate::target::SimdIsa;

/// Integer instructions of a lane besides its arithmetic: the test of its mask, and the branch.
const LANE_INSTRUCTIONS: f64 = 2.0;

impl Walker<'_> {
    /// Whether a store runs lane by lane. Counts the branches if so, or if `legalize_vectors`
    /// stores the first lanes in halves.
    pub(super) fn is_lane_by_lane(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        value: &Expr,
        mask: &Option<Expr>,
    ) -> bool {
        let isa = self.machine.target.simd().filter(|_| self.in_simd_kernel);
        let element = (buffer.dtype.bytes(), index, mask.as_ref());
        if self.in_launch || index.ty.lanes == 1 || !runs_lane_by_lane(element, value, None, isa) {
            return false;
        }
        let first = mask.as_ref().and_then(first_lanes);
        // Sums are in registers, whose lanes are not stored apart.
        let in_halves = isa.is_some()
            && !reads_buffer(value, buffer)
            && first.is_some_and(|first| {
                let mask = mask.as_ref().and_then(|mask| without_operand(mask, &first));
                !runs_lane_by_lane((element.0, index, mask.as_ref()), value, Some(&first), isa)
            });
        let lanes = index.ty.lanes;
        let tests = if in_halves { lanes.ilog2() + 1 } else { lanes };
        let (frame, copies) = self.placement(u64::MAX);
        let count = copies * self.weight * f64::from(tests) * LANE_INSTRUCTIONS;
        self.plan.frames[frame].work.integers += count;
        !in_halves
    }
}

/// Whether a store of `bytes` bytes an element runs lane by lane because of masks: an access under
/// a mask has no instruction. `isa` is that of the SIMD back end if it compiles the statement;
/// Cranelift has no masks. `dropped` is a condition that is tested before the statement, and taken
/// from the masks.
fn runs_lane_by_lane(
    (bytes, index, mask): (u64, &Expr, Option<&Expr>),
    value: &Expr,
    dropped: Option<&Expr>,
    isa: Option<SimdIsa>,
) -> bool {
    let differs = |mask: &&Expr| !matches!(mask.kind, ExprKind::Broadcast(_));
    let mask = mask.filter(differs);
    let (mut longest, mut seen) = (bytes, NodeSet::default());
    let (mut masked, mut offsets) = (Vec::new(), Vec::new());
    if mask.is_some() {
        masked.push((VectorAccess { bytes, masked: true, is_store: true }, index.clone()));
    }
    walk_nodes(value, &mut seen, &mut |node| {
        if node.ty.lanes == 1 {
            return;
        }
        if !matches!(node.ty.dtype, DType::Index | DType::Bool) {
            longest = longest.max(node.ty.dtype.bytes());
        }
        if let ExprKind::Load { buffer, indices, mask: Some(mask) } = &node.kind {
            let left = match dropped {
                Some(cond) => without_operand(mask, cond),
                None => Some(mask.clone()),
            };
            let Some(mask) = &left else { return };
            let bytes = buffer.dtype.bytes();
            let constant = match isa {
                Some(isa) if !has_masked_move(&indices[0], bytes, isa) => {
                    MaskedOffsets::of(&indices[0], mask)
                }
                _ => None,
            };
            let access = VectorAccess { bytes, masked: true, is_store: false };
            match constant {
                Some(known) => offsets.push((access, indices[0].clone(), known)),
                None => masked.push((access, indices[0].clone())),
            }
        }
    });
    let Some(isa) = isa else { return !masked.is_empty() };
    let width = (u64::from(isa.bytes()) / longest).clamp(1, u64::from(index.ty.lanes)) as u32;
    let whole = index.ty.lanes / width * width;
    let fits = |(access, index, known): &(VectorAccess, Expr, MaskedOffsets)| {
        known.fits(0..whole as usize, width as usize, access.bytes, isa)
            || has_short_offsets(index) && access_form(*access, index, width, isa).is_some()
    };
    masked.iter().any(|(access, index)| access_form(*access, index, width, isa).is_none())
        || !offsets.iter().all(fits)
}

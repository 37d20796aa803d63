//! Indices whose lanes are a scalar plus constants, such as `x16(b) + ramp(0, 1, 16) // x16(2)`.
//! Their lanes need no arithmetic at run time.

use crate::ir::arith::{floor_div, floor_mod};
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp};
use crate::target::SimdIsa;
use std::ops::Range;

/// The largest number of nodes of an index that are visited.
const MAX_NODES: usize = 32;

/// An index whose lanes are a scalar plus constants.
#[derive(Clone, Debug)]
pub struct LaneOffsets {
    /// The scalar.
    pub base: Expr,
    /// The constant that each lane adds to it.
    pub offsets: Vec<i64>,
}

/// Matches an index that is a scalar plus constants. Divisions must have a constant dividend, as
/// they have after `simplify`, which takes multiples of the divisor out.
pub fn lane_offsets(index: &Expr) -> Option<LaneOffsets> {
    let is_vector = index.ty.dtype == DType::Index && index.ty.lanes > 1;
    is_vector.then(|| offsets_of(index, &mut { MAX_NODES }))?
}

/// Returns the lanes of an index vector of constants.
pub fn constant_lanes(index: &Expr) -> Option<Vec<i64>> {
    let LaneOffsets { base, offsets } = lane_offsets(index)?;
    let base = i64::try_from(base.as_int()?).ok()?;
    offsets.into_iter().map(|offset| offset.checked_add(base)).collect()
}

/// Returns the lanes of a mask that depends on constants only.
pub fn constant_mask(mask: &Expr) -> Option<Vec<bool>> {
    use BinOp::{And, BitAnd, BitOr, Or};
    let both = |a: &Expr, b: &Expr, f: fn(bool, bool) -> bool| {
        let (a, b) = (constant_mask(a)?, constant_mask(b)?);
        Some(a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect())
    };
    match &mask.kind {
        ExprKind::Broadcast(value) => Some(vec![value.as_int()? != 0; mask.ty.lanes as usize]),
        ExprKind::Unary(UnOp::Likely, a) => constant_mask(a),
        ExprKind::Unary(UnOp::Not, a) => Some(constant_mask(a)?.into_iter().map(|a| !a).collect()),
        ExprKind::Binary(And | BitAnd, a, b) => both(a, b, |a, b| a && b),
        ExprKind::Binary(Or | BitOr, a, b) => both(a, b, |a, b| a || b),
        ExprKind::Binary(op, a, b) if op.is_comparison() && a.ty.dtype == DType::Index => {
            let (a, b) = (constant_lanes(a)?, constant_lanes(b)?);
            let holds = |(a, b): (i64, i64)| match op {
                BinOp::Eq => a == b,
                BinOp::Ne => a != b,
                BinOp::Lt => a < b,
                BinOp::Le => a <= b,
                BinOp::Gt => a > b,
                _ => a >= b,
            };
            Some(a.into_iter().zip(b).map(holds).collect())
        }
        _ => None,
    }
}

/// The elements of a load under a constant mask whose lanes differ by constants. Lanes that are off
/// may read what another one reads, so that no mask is needed.
pub struct MaskedOffsets {
    offsets: LaneOffsets,
    active: Vec<bool>,
}

impl MaskedOffsets {
    /// Matches such an index and mask.
    pub fn of(index: &Expr, mask: &Expr) -> Option<MaskedOffsets> {
        Some(MaskedOffsets { offsets: lane_offsets(index)?, active: constant_mask(mask)? })
    }

    /// Returns the lanes that are read.
    pub fn active(&self) -> &[bool] {
        &self.active
    }

    /// Returns the offsets of some lanes. Those of lanes that are off are replaced by the offset of
    /// the lane before them that is on, or of the first one. `None` if no lane is on.
    pub fn part(&self, lanes: Range<usize>) -> Option<LaneOffsets> {
        let (own, active) = (self.offsets.part(lanes.clone())?, self.active.get(lanes)?);
        let mut last = own.offsets[active.iter().position(|active| *active)?];
        let spread = own.offsets.iter().zip(active).map(|(offset, active)| {
            last = if *active { *offset } else { last };
            last
        });
        Some(LaneOffsets { offsets: spread.collect(), ..own })
    }

    /// Whether each vector of `width` of the lanes has a load of elements of `bytes` bytes.
    pub fn fits(&self, lanes: Range<usize>, width: usize, bytes: u64, isa: SimdIsa) -> bool {
        let mut parts = lanes.clone().step_by(width);
        parts.all(|first| {
            let own = first..(first + width).min(lanes.end);
            let is_off = self.active[own.clone()].iter().all(|active| !active);
            is_off || self.part(own).is_some_and(|part| part.load(bytes, isa).is_some())
        })
    }
}

fn offsets_of(index: &Expr, nodes: &mut usize) -> Option<LaneOffsets> {
    *nodes = nodes.checked_sub(1)?;
    let with =
        |base: Expr, offsets: Option<Vec<i64>>| Some(LaneOffsets { base, offsets: offsets? });
    match &index.kind {
        ExprKind::Broadcast(base) => with(base.clone(), Some(vec![0; index.ty.lanes as usize])),
        ExprKind::Ramp(base, stride) => {
            let stride = i64::try_from(stride.as_int()?).ok()?;
            let lanes = 0..i64::from(index.ty.lanes);
            with(base.clone(), lanes.map(|lane| stride.checked_mul(lane)).collect())
        }
        ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => {
            let (a, b) = (offsets_of(a, nodes)?, offsets_of(b, nodes)?);
            let add = |(x, y): (&i64, &i64)| match op {
                BinOp::Add => x.checked_add(*y),
                _ => x.checked_sub(*y),
            };
            let base = match (a.base.as_int(), b.base.as_int(), op) {
                (Some(0), _, BinOp::Add) => b.base,
                (_, Some(0), _) => a.base,
                (Some(x), Some(y), BinOp::Add) => constant(x.checked_add(y)?)?,
                (Some(x), Some(y), _) => constant(x.checked_sub(y)?)?,
                _ => Expr::binary(*op, a.base, b.base),
            };
            with(base, a.offsets.iter().zip(&b.offsets).map(add).collect())
        }
        ExprKind::Binary(BinOp::Mul, a, b) => {
            let (a, factor) = match (all_lanes(a), all_lanes(b)) {
                (_, Some(factor)) => (a, factor),
                (Some(factor), None) => (b, factor),
                _ => return None,
            };
            let LaneOffsets { base, offsets } = offsets_of(a, nodes)?;
            let base = match base.as_int() {
                Some(base) => constant(base.checked_mul(factor.into())?)?,
                None => Expr::mul(base, Expr::index(factor)),
            };
            with(base, offsets.iter().map(|offset| offset.checked_mul(factor)).collect())
        }
        ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => {
            let (a, b) = (offsets_of(a, nodes)?, offsets_of(b, nodes)?);
            let value = |of: &LaneOffsets, offset: i64| {
                i64::try_from(of.base.as_int()?).ok()?.checked_add(offset)
            };
            let clamped = |(x, y): (&i64, &i64)| {
                let (x, y) = (value(&a, *x)?, value(&b, *y)?);
                Some(if *op == BinOp::Min { x.min(y) } else { x.max(y) })
            };
            with(Expr::index(0), a.offsets.iter().zip(&b.offsets).map(clamped).collect())
        }
        ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, divisor) => {
            let divisor = i128::from(all_lanes(divisor).filter(|divisor| *divisor > 0)?);
            let LaneOffsets { base, offsets } = offsets_of(a, nodes)?;
            let base = base.as_int()?;
            let divided = |offset: &i64| {
                let value = i64::try_from(base.checked_add((*offset).into())?).ok()?;
                let value = match op {
                    BinOp::FloorDiv => floor_div(value.into(), divisor),
                    _ => floor_mod(value.into(), divisor),
                };
                i64::try_from(value).ok()
            };
            with(Expr::index(0), offsets.iter().map(divided).collect())
        }
        _ => None,
    }
}

fn constant(value: i128) -> Option<Expr> {
    Some(Expr::index(i64::try_from(value).ok()?))
}

/// Returns the constant that all lanes have.
fn all_lanes(expr: &Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Broadcast(value) => i64::try_from(value.as_int()?).ok(),
        _ => None,
    }
}

impl LaneOffsets {
    /// Returns the index of some of the lanes.
    pub fn part(&self, lanes: Range<usize>) -> Option<LaneOffsets> {
        let offsets = self.offsets.get(lanes)?.to_vec();
        Some(LaneOffsets { base: self.base.clone(), offsets })
    }

    /// Returns the offsets, if they fit into 32 bits.
    pub fn short(&self) -> Option<Vec<i32>> {
        self.offsets.iter().map(|offset| i32::try_from(*offset).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Type, Var};

    fn ramp(base: i64, stride: i64, lanes: u32) -> Expr {
        let ty = Type { dtype: DType::Index, lanes };
        Expr::new(ty, ExprKind::Ramp(Expr::index(base), Expr::index(stride)))
    }

    fn all(value: Expr, lanes: u32) -> Expr {
        Expr::new(Type { dtype: DType::Index, lanes }, ExprKind::Broadcast(value))
    }

    fn offsets(index: &Expr) -> Vec<i64> {
        lane_offsets(index).expect("constants").offsets
    }

    #[test]
    fn quotients_and_remainders_are_floored() {
        let by = |op, base, c| offsets(&Expr::binary(op, ramp(base, 2, 4), all(Expr::index(c), 4)));
        assert_eq!(by(BinOp::FloorDiv, -3, 2), [-2, -1, 0, 1]);
        assert_eq!(by(BinOp::FloorMod, -3, 4), [1, 3, 1, 3]);
        assert_eq!(by(BinOp::FloorDiv, i64::MIN, i64::MAX), [-2, -1, -1, -1]);
    }

    #[test]
    fn overflowing_and_varying_indices_have_no_offsets() {
        let over = Expr::binary(BinOp::FloorMod, ramp(i64::MAX - 2, 1, 4), all(Expr::index(7), 4));
        assert!(lane_offsets(&over).is_none());
        let by_zero = Expr::binary(BinOp::FloorDiv, ramp(0, 1, 4), all(Expr::index(0), 4));
        assert!(lane_offsets(&by_zero).is_none());
        let var = all(Expr::var(&Var::index("i")), 4);
        let unknown = Expr::binary(BinOp::FloorDiv, var, all(Expr::index(2), 4));
        assert!(lane_offsets(&unknown).is_none());
    }
}

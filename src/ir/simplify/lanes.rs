//! Simplification of vectors: conditions that are equal in all lanes become broadcasts, and
//! divisions by powers of two become shifts.
//!
//! Before: `ramp(16, 1, 16) < x16(1)`, `x16(false) || c`, `select(c, 0, (A[i] if !c))`,
//! `a // x8(4)`, `ramp(48*p, 1, 16) % x16(3)`, `x8(n) + max(ramp(1, 1, 8), x8(0))`
//! After:  `x16(false)`, `c`, `(A[i] if !c)`, `a >> x8(2)`, `ramp(0, 1, 16) % x16(3)`,
//! `ramp(n + 1, 1, 8)`

use super::{Simplifier, fold};
use crate::ir::arith::gcd;
use crate::ir::visit::map_children;
use crate::ir::{BinOp, Const, DType, Expr, ExprKind, Type, UnOp};

/// Returns the value of a condition, if it is constant and equal in all lanes.
pub(super) fn truth(cond: &Expr) -> Option<bool> {
    match &cond.kind {
        ExprKind::Broadcast(value) => truth(value),
        _ => cond.as_int().map(|value| value != 0),
    }
}

impl Simplifier<'_> {
    /// Simplifies a comparison, connective, negation, division, choice or masked load of vectors.
    pub(super) fn lanes(&mut self, expr: &Expr) -> Expr {
        if let ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, divisor) = &expr.kind {
            let a = self.expr(a);
            if self.divides_at_run_time(&a, divisor) {
                return Expr::binary(*op, a, divisor.clone());
            }
        }
        let simple = map_children(expr, &mut |child| self.expr(child));
        let decided = match &simple.kind {
            ExprKind::Binary(op, a, b) if op.is_comparison() => self.lane_comparison(*op, a, b),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => connective(*op, a, b),
            ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, by) => {
                power_of_two(*op, a, by).or_else(|| self.lane_division(*op, a, by))
            }
            ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => self.lane_bound(*op, a, b),
            ExprKind::Binary(BinOp::Add, a, b) => self.lane_sum(a, b),
            ExprKind::Unary(UnOp::Not, a) => Some(match truth(a) {
                Some(value) => all(Expr::bool(!value), simple.ty.lanes),
                None => self.negation(a),
            }),
            ExprKind::Select(cond, then, otherwise) => match truth(cond) {
                Some(value) => Some(if value { then.clone() } else { otherwise.clone() }),
                None => self.masked(cond, then, otherwise),
            },
            ExprKind::Load { buffer, indices, mask: Some(mask) } => match truth(mask) {
                Some(true) if indices.iter().any(|index| index.ty.lanes == simple.ty.lanes) => {
                    Some(Expr::load(buffer, indices.clone()))
                }
                Some(false) => Some(zero(simple.ty)),
                _ => None,
            },
            _ => None,
        };
        decided.unwrap_or_else(|| fold::fold_node(self.with_run_time_bound(expr, simple)))
    }

    /// Puts the bound of an undecided mask back if only run-time integers with given values
    /// determine it: the code does not know which lanes are on.
    fn with_run_time_bound(&self, mask: &Expr, simple: Expr) -> Expr {
        match (&mask.kind, &simple.kind) {
            (ExprKind::Binary(op, _, bound), ExprKind::Binary(_, lanes, _))
                if op.is_comparison() && self.depends_on_given(bound) =>
            {
                Expr::binary(*op, lanes.clone(), bound.clone())
            }
            _ => simple,
        }
    }

    /// Simplifies a choice between a value and a load whose mask is the condition. Masked lanes are
    /// 0, so a choice between the load and 0 is the load.
    fn masked(&mut self, cond: &Expr, then: &Expr, otherwise: &Expr) -> Option<Expr> {
        let mask_of = |value: &Expr| match &value.kind {
            ExprKind::Load { mask, .. } => mask.clone(),
            _ => None,
        };
        if mask_of(then).is_some_and(|mask| self.facts.key(&mask) == self.facts.key(cond)) {
            return is_zero(otherwise).then(|| then.clone());
        }
        let (mask, reads) = (mask_of(otherwise)?, self.negation(cond));
        if self.facts.key(&mask) != self.facts.key(&reads) {
            return None;
        }
        Some(match is_zero(then) {
            true => otherwise.clone(),
            false => Expr::select(mask, otherwise.clone(), then.clone()),
        })
    }

    /// Takes the multiples of a constant divisor out of a ramp, or out of what all lanes of a sum
    /// have in common: `ramp(48*p + 1, 1, 16) % x16(3)` is `ramp(1, 1, 16) % x16(3)`, and the
    /// quotient is greater by `16*p` in all lanes. Lanes of one period, such as
    /// `ramp(16*p, 1, 16) % x16(96)`, keep their distance.
    fn lane_division(&mut self, op: BinOp, a: &Expr, by: &Expr) -> Option<Expr> {
        let ExprKind::Broadcast(divisor) = &by.kind else { return None };
        let divisor = divisor.as_int().filter(|c| *c > 1 && a.ty.dtype == DType::Index)?;
        let base = match &a.kind {
            ExprKind::Ramp(base, _) => base,
            ExprKind::Binary(BinOp::Add, common, _) => match &common.kind {
                ExprKind::Broadcast(base) => base,
                _ => return None,
            },
            _ => return None,
        };
        if let ExprKind::Ramp(_, stride) = &a.kind
            && self.is_one_period(base, stride, a.ty.lanes, divisor)
        {
            let first = self.expr(&Expr::binary(
                op,
                base.clone(),
                Expr::index(i64::try_from(divisor).ok()?),
            ));
            return Some(match op {
                BinOp::FloorMod => Expr::new(a.ty, ExprKind::Ramp(first, stride.clone())),
                _ => Expr::new(a.ty, ExprKind::Broadcast(first)),
            });
        }
        let rest = self.facts.residue(&self.facts.poly(base), divisor)?;
        if base.as_int() == Some(rest) {
            return None;
        }
        let first = Expr::index(i64::try_from(rest).ok()?);
        let of_all = |value: Expr| Expr::new(a.ty, ExprKind::Broadcast(value));
        let rest = match &a.kind {
            ExprKind::Ramp(_, stride) => Expr::new(a.ty, ExprKind::Ramp(first, stride.clone())),
            ExprKind::Binary(_, _, own) if rest == 0 => own.clone(),
            ExprKind::Binary(_, _, own) => Expr::add(of_all(first), own.clone()),
            _ => return None,
        };
        let inside = Expr::binary(op, rest, by.clone());
        if op == BinOp::FloorMod {
            return Some(inside);
        }
        let divisor = Expr::index(i64::try_from(divisor).ok()?);
        let quotient = self.expr(&Expr::binary(BinOp::FloorDiv, base.clone(), divisor));
        Some(Expr::add(of_all(quotient), inside))
    }

    /// Decides a minimum or maximum of indices of which one is the result in all lanes.
    fn lane_bound(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        if a.ty.dtype != DType::Index || self.depends_on_given(a) || self.depends_on_given(b) {
            return None;
        }
        let takes = |first: bool| if first == (op == BinOp::Min) { a.clone() } else { b.clone() };
        let below = self.lane_comparison(BinOp::Le, a, b);
        let decided = below.as_ref().and_then(truth);
        if let Some(below) = decided {
            return Some(takes(below));
        }
        let above = self.lane_comparison(BinOp::Ge, a, b);
        above.as_ref().and_then(truth).filter(|above| *above).map(|_| takes(false))
    }

    /// Adds what all lanes have in common to a ramp of indices.
    fn lane_sum(&mut self, a: &Expr, b: &Expr) -> Option<Expr> {
        let ty = a.ty;
        let (common, base, stride) = match (&a.kind, &b.kind) {
            (ExprKind::Broadcast(common), ExprKind::Ramp(base, stride))
            | (ExprKind::Ramp(base, stride), ExprKind::Broadcast(common)) => (common, base, stride),
            (ExprKind::Broadcast(a), ExprKind::Broadcast(b)) => {
                let sum = self.expr(&Expr::add(a.clone(), b.clone()));
                return Some(Expr::new(ty, ExprKind::Broadcast(sum)));
            }
            _ => return None,
        };
        let first = self.expr(&Expr::add(common.clone(), base.clone()));
        Some(Expr::new(ty, ExprKind::Ramp(first, stride.clone())))
    }

    /// Whether no multiple of a divisor is behind the first lane of a ramp and not behind the last
    /// one.
    fn is_one_period(&self, base: &Expr, stride: &Expr, lanes: u32, divisor: i128) -> bool {
        let (modulus, first) = self.facts.congruence(&self.facts.poly(base));
        let common = gcd(modulus, divisor);
        let stride = stride.as_int().filter(|stride| *stride > 0);
        let length = stride.and_then(|stride| stride.checked_mul(i128::from(lanes) - 1));
        length.is_some_and(|length| length < common - first.rem_euclid(common))
    }

    /// Decides a comparison of ramps: it has one value in all lanes if the first and the last lane
    /// have it.
    fn lane_comparison(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
        if a.ty.dtype != DType::Index {
            return None;
        }
        let lanes = a.ty.lanes;
        if let (ExprKind::Broadcast(a), ExprKind::Broadcast(b)) = (&a.kind, &b.kind) {
            return Some(all(self.comparison(op, a.clone(), b.clone()), lanes));
        }
        if matches!(op, BinOp::Eq | BinOp::Ne) {
            return None;
        }
        let mut at = |lane: i64| {
            let (a, b) = (lane_of(a, lane)?, lane_of(b, lane)?);
            let (a, b) = (self.expr(&a), self.expr(&b));
            self.comparison(op, a, b).as_int()
        };
        let first = at(0)?;
        (at(i64::from(lanes) - 1)? == first).then(|| all(Expr::bool(first != 0), lanes))
    }
}

/// Divides data by a power of two by a shift or a mask, which are floored for negative numbers as
/// well. Indices keep their divisions, which other rules match.
fn power_of_two(op: BinOp, a: &Expr, by: &Expr) -> Option<Expr> {
    let ExprKind::Broadcast(divisor) = &by.kind else { return None };
    let divisor = divisor.as_int().filter(|c| *c > 0 && c & (c - 1) == 0)?;
    if a.ty.dtype == DType::Index {
        return None;
    }
    let (op, other) = match op {
        BinOp::FloorDiv => (BinOp::Shr, divisor.trailing_zeros().into()),
        _ => (BinOp::BitAnd, divisor - 1),
    };
    let other = Expr::new(by.ty, ExprKind::Broadcast(Expr::int(by.ty.dtype, other)));
    Some(Expr::binary(op, a.clone(), other))
}

fn zero(ty: Type) -> Expr {
    let value = match ty.dtype {
        dtype if dtype.is_float() => Expr::float(dtype, 0.0),
        dtype => Expr::int(dtype, 0),
    };
    if ty.is_scalar() { value } else { Expr::new(ty, ExprKind::Broadcast(value)) }
}

/// Whether all bits are 0.
fn is_zero(value: &Expr) -> bool {
    match &value.kind {
        ExprKind::Broadcast(value) => is_zero(value),
        ExprKind::Const(Const::Int(value)) => *value == 0,
        ExprKind::Const(Const::Float(value)) => value.to_bits() == 0,
        _ => false,
    }
}

/// Returns the index in a lane; `None` if it is neither a ramp nor a broadcast.
fn lane_of(index: &Expr, lane: i64) -> Option<Expr> {
    match &index.kind {
        ExprKind::Broadcast(value) => Some(value.clone()),
        ExprKind::Ramp(base, stride) => {
            Some(Expr::add(base.clone(), Expr::mul(stride.clone(), Expr::index(lane))))
        }
        _ => None,
    }
}

/// Broadcasts a condition to all lanes.
fn all(value: Expr, lanes: u32) -> Expr {
    let ty = Type { dtype: DType::Bool, lanes };
    Expr::new(ty, ExprKind::Broadcast(value))
}

fn connective(op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
    let neutral = op == BinOp::And;
    let decides = |value: Option<bool>| value == Some(!neutral);
    match (truth(a), truth(b)) {
        (x, y) if decides(x) || decides(y) => Some(all(Expr::bool(!neutral), a.ty.lanes)),
        (Some(_), _) => Some(b.clone()),
        (_, Some(_)) => Some(a.clone()),
        _ => None,
    }
}

//! Ranges of values, for conversions that cannot leave the range of a type.

use super::nest::Selector;
use super::table::VOp;
use super::value::width_of;
use crate::ir::{BinOp, DType, Expr, ExprKind, Type, UnOp};
use crate::simd_ops::{Conversion, conversion};
use regalloc2::VReg;

/// Returns the least and the greatest value of each lane, which is no NaN then.
fn range(expr: &Expr) -> Option<(f64, f64)> {
    let dtype = expr.ty.dtype;
    let known = match &expr.kind {
        ExprKind::Const(_) => {
            let value = match dtype.is_float() {
                true => expr.as_float(),
                false => expr.as_int().map(|value| value as f64),
            };
            value.filter(|value| !value.is_nan()).map(|value| (value, value))
        }
        ExprKind::Broadcast(value) => range(value),
        // The second operand is the result if one is a NaN.
        ExprKind::Binary(BinOp::Min, a, b) => range(b).map(|(low, high)| match range(a) {
            Some((from, to)) => (from.min(low), to.min(high)),
            None => (f64::NEG_INFINITY, high),
        }),
        ExprKind::Binary(BinOp::Max, a, b) => range(b).map(|(low, high)| match range(a) {
            Some((from, to)) => (from.max(low), to.max(high)),
            None => (low, f64::INFINITY),
        }),
        ExprKind::Binary(BinOp::Add, a, b) if !dtype.is_float() => {
            range(a).zip(range(b)).map(|(a, b)| (a.0 + b.0, a.1 + b.1))
        }
        ExprKind::Binary(BinOp::Sub, a, b) if !dtype.is_float() => {
            range(a).zip(range(b)).map(|(a, b)| (a.0 - b.1, a.1 - b.0))
        }
        ExprKind::Unary(UnOp::Round, a) => {
            range(a).map(|(low, high)| (low.round_ties_even(), high.round_ties_even()))
        }
        ExprKind::Cast(a) if is_int(dtype) && (is_int(a.ty.dtype) || a.ty.dtype.is_float()) => {
            range(a).map(|(low, high)| (low.trunc(), high.trunc()))
        }
        _ => None,
    };
    // Integers that leave the range of their type wrap around or saturate.
    match is_int(dtype) {
        false => known.filter(|_| dtype.is_float()),
        true => known.filter(|range| fits(*range, dtype)).or(Some(limits(dtype))),
    }
}

/// Integers of at most 32 bits, which are exact as float64.
fn is_int(dtype: DType) -> bool {
    dtype.is_int() && dtype != DType::Index && dtype.bytes() <= 4
}

fn limits(dtype: DType) -> (f64, f64) {
    let (low, high) = dtype.int_range();
    (low as f64, high as f64)
}

fn fits((low, high): (f64, f64), dtype: DType) -> bool {
    let (least, most) = limits(dtype);
    least <= low && high <= most
}

impl Selector<'_> {
    /// A conversion of values whose range makes a part of it unnecessary; `None` for others.
    pub(super) fn convert_in_range(&mut self, a: &Expr, to: DType) -> Option<VReg> {
        if !is_int(a.ty.dtype) && a.ty.dtype != DType::Float32 {
            return None;
        }
        if let ExprKind::Cast(inner) = &a.kind {
            // The conversion between changes nothing.
            let between = a.ty.dtype;
            let exact = is_int(between) && is_int(inner.ty.dtype) && fits(range(inner)?, between);
            conversion(inner.ty.dtype, to, self.b.isa).filter(|_| exact && !to.is_half())?;
            if let Some(value) = self.widened_load(inner, to) {
                return Some(value);
            }
            let value = self.value(inner);
            return Some(self.convert(value, inner.ty, to));
        }
        if a.ty.dtype != DType::Float32 || !is_int(to) || !fits(range(a)?, to) {
            return None;
        }
        let Some(Conversion::Truncate(between)) = conversion(DType::Float32, to, self.b.isa) else {
            return None;
        };
        let ty = Type { dtype: between, lanes: a.ty.lanes };
        let whole = match &a.kind {
            // One instruction rounds to nearest even, the mode of modules.
            ExprKind::Unary(UnOp::Round, x) if between == DType::Int32 => {
                let x = self.reg(x);
                self.b.op1(VOp::CvtPs2Dq, width_of(ty), x)
            }
            _ => {
                let x = self.reg(a);
                self.truncate_float(x, a.ty, between)
            }
        };
        Some(self.int_to_int(whole, ty, to))
    }
}

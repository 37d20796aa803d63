//! Stores of a group of copies (`Stmt::CopyGroup`) that a GPU does without registers, by
//! `cp.async`: what the back end emits and what the cost model counts, by one rule.

use super::visit::{NodeSet, for_each_load, walk_stmt};
use super::{Buffer, Const, DType, Expr, ExprKind, Stmt};
use rustc_hash::FxHashSet;

/// Bytes that `cp.async` copies at once.
pub const PIECES: [u32; 3] = [4, 8, 16];

/// `S[i] = A[j]`, or with a condition `S[i] = if_then_else(c, A[j], 0)`.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'e> {
    /// `A`.
    pub source: &'e Buffer,
    /// `j`, flat.
    pub index: &'e Expr,
    /// `c`: where it is false, nothing is read.
    pub cond: Option<&'e Expr>,
}

impl<'e> Copied<'e> {
    /// The copy that a stored value of this type is, by its form; `conditional` ones are copies,
    /// too.
    pub fn of(value: &'e Expr, dtype: DType, conditional: bool) -> Option<Copied<'e>> {
        let value = same_half(value).unwrap_or(value);
        let (value, cond) = match &value.kind {
            ExprKind::IfThenElse(cond, value, other)
                if conditional && is_zero(other) && cond.ty.is_scalar() =>
            {
                (same_half(value).unwrap_or(value), Some(cond))
            }
            _ => (value, None),
        };
        match &value.kind {
            ExprKind::Load { buffer, indices, mask: None } if buffer.dtype == dtype => {
                let [index] = &indices[..] else { return None };
                Some(Copied { source: buffer, index, cond })
            }
            _ => None,
        }
    }
}

/// Elements of a vector that are accessed at once: the most that are aligned, if `is_multiple` says
/// of an index and a number whether it is a multiple.
pub fn elements_at_once(
    dtype: DType,
    index: &Expr,
    align: u32,
    mut is_multiple: impl FnMut(&Expr, u32) -> bool,
) -> u32 {
    let ExprKind::Ramp(base, stride) = &index.kind else { return 1 };
    if stride.as_int() != Some(1) {
        return 1;
    }
    let chunks = [8, 4, 2].into_iter().filter(|chunk| {
        // Halves are packed, so that eight make a vector of four words.
        let most = if dtype.is_half() { 8 } else { 4 };
        let bytes = chunk * dtype.bytes() as u32;
        *chunk <= most && bytes <= align.min(16) && index.ty.lanes.is_multiple_of(*chunk)
    });
    chunks.into_iter().find(|chunk| is_multiple(base, *chunk)).unwrap_or(1)
}

/// What a group reads: it has to be there before the group is waited for, so it is no copy.
pub fn read_in(body: &Stmt) -> FxHashSet<Buffer> {
    let (mut read, mut seen) = (FxHashSet::default(), NodeSet::default());
    walk_stmt(body, &mut |_| {}, &mut |expr| {
        for_each_load(expr, &mut seen, &mut |buffer, _, _| {
            read.insert(buffer.clone());
        });
    });
    read
}

/// The half that a value is, if it was only widened and narrowed: widening is exact.
pub fn same_half(value: &Expr) -> Option<&Expr> {
    match &value.kind {
        ExprKind::Cast(wide) => narrowed_back(value.ty.dtype, wide),
        _ => None,
    }
}

/// What a cast of `wide` to a half is, if `wide` was a half of that very type before.
pub fn narrowed_back(to: DType, wide: &Expr) -> Option<&Expr> {
    match &wide.kind {
        ExprKind::Cast(half) if wide.ty.dtype == DType::Float32 => {
            (to.is_half() && half.ty.dtype == to).then_some(half)
        }
        _ => None,
    }
}

fn is_zero(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Broadcast(scalar) => is_zero(scalar),
        ExprKind::Cast(inner) => is_zero(inner),
        // Minus zero is another value.
        ExprKind::Const(Const::Int(value)) => *value == 0,
        ExprKind::Const(Const::Float(value)) => value.to_bits() == 0,
        _ => false,
    }
}

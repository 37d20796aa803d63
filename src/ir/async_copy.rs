//! Stores of a `Stmt::CopyGroup` that a GPU executes as asynchronous copies, without registers. The
//! back end and the cost model share these rules.

use super::visit::{NodeSet, for_each_load, walk_stmt};
use super::{Buffer, Const, DType, Expr, ExprKind, Stmt};
use rustc_hash::FxHashSet;

/// The sizes of an asynchronous copy in bytes.
pub const ASYNC_COPY_BYTES: [u32; 3] = [4, 8, 16];

/// `S[i] = A[j]`, or with a condition `S[i] = if_then_else(c, A[j], 0)`.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'e> {
    /// `A`.
    pub source: &'e Buffer,
    /// `j`, flat.
    pub index: &'e Expr,
    /// `c`; nothing is read if it is false.
    pub cond: Option<&'e Expr>,
}

impl<'e> Copied<'e> {
    /// Matches a stored value of type `dtype`; the form with a condition only if `conditional`.
    pub fn of(value: &'e Expr, dtype: DType, conditional: bool) -> Option<Copied<'e>> {
        // A choice between halves is one between widened values.
        let choice = match &value.kind {
            ExprKind::Cast(wide) if dtype.is_half() && value.ty.dtype == dtype => wide,
            _ => value,
        };
        let (value, cond) = match &choice.kind {
            ExprKind::IfThenElse(cond, chosen, other)
                if conditional && is_zero(other) && cond.ty.is_scalar() =>
            {
                (narrowed_back(dtype, chosen).unwrap_or(chosen), Some(cond))
            }
            _ => (same_half(value).unwrap_or(value), None),
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

/// Returns the most elements that one load or store moves through registers.
pub fn loaded_at_once(dtype: DType) -> u32 {
    // Halves are packed in pairs: eight are a vector of four words.
    if dtype.is_half() { 8 } else { 4 }
}

/// Returns the most elements that one asynchronous copy moves: 16 bytes.
pub fn copied_at_once(dtype: DType) -> u32 {
    16 / dtype.bytes() as u32
}

/// Returns the number of elements of a vector that one instruction accesses: the largest power of
/// two, up to `most`, that is aligned to its size. `is_multiple` tells whether an index is a
/// multiple of a number.
pub fn elements_at_once(
    dtype: DType,
    index: &Expr,
    (most, align): (u32, u32),
    mut is_multiple: impl FnMut(&Expr, u32) -> bool,
) -> u32 {
    let ExprKind::Ramp(base, stride) = &index.kind else { return 1 };
    if stride.as_int() != Some(1) {
        return 1;
    }
    let chunks = [16, 8, 4, 2].into_iter().filter(|chunk| {
        let bytes = chunk * dtype.bytes() as u32;
        *chunk <= most && bytes <= align.min(16) && index.ty.lanes.is_multiple_of(*chunk)
    });
    chunks.into_iter().find(|chunk| is_multiple(base, *chunk)).unwrap_or(1)
}

/// Returns the buffers that a group reads. Stores to them cannot be asynchronous copies, because
/// the group reads them before it is awaited.
pub fn read_in(body: &Stmt) -> FxHashSet<Buffer> {
    let (mut read, mut seen) = (FxHashSet::default(), NodeSet::default());
    walk_stmt(body, &mut |_| {}, &mut |expr| {
        for_each_load(expr, &mut seen, &mut |buffer, _, _| {
            read.insert(buffer.clone());
        });
    });
    read
}

/// Returns the half that `value` was before it was widened and narrowed again, which is exact.
pub fn same_half(value: &Expr) -> Option<&Expr> {
    match &value.kind {
        ExprKind::Cast(wide) => narrowed_back(value.ty.dtype, wide),
        _ => None,
    }
}

/// Returns the value that `wide` was widened from, if its type is the half type `to`.
pub fn narrowed_back(to: DType, wide: &Expr) -> Option<&Expr> {
    match &wide.kind {
        ExprKind::Cast(half) if wide.ty.dtype == DType::Float32 => {
            (to.is_half() && half.ty.dtype == to).then_some(half)
        }
        _ => None,
    }
}

/// Whether a value is a constant whose bits are zero.
pub fn is_zero(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Broadcast(scalar) => is_zero(scalar),
        ExprKind::Cast(inner) => is_zero(inner),
        // Minus zero has other bits.
        ExprKind::Const(Const::Int(value)) => *value == 0,
        ExprKind::Const(Const::Float(value)) => value.to_bits() == 0,
        _ => false,
    }
}

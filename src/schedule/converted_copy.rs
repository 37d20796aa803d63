//! Copies of a tensor in another type, or with a constant added to each element.
//!
//! Before: `C[x] = sum((A[x, k] as int32) * …)`, `A` of int8.
//! After: `A.global[ax0, ax1] = (A[ax0, ax1] as uint8) + 128`,
//! `C[x] = sum(((A.global[x, k] as int32) - 128) * …)`.
//! Every read gets the value that it had: the type of the copy has all values of the source, or the
//! read converts to that type anyway.

use super::layout::Layout;
use crate::ir::visit::{Memo, for_each_child, map_children};
use crate::ir::{Buffer, DType, Expr, ExprKind};
use crate::te::Body;
use rustc_hash::{FxHashMap, FxHashSet};

/// How the elements of a copy are made from those of the source.
pub(super) struct Conversion {
    /// The type of the source.
    pub(super) from: DType,
    /// The type of the copy.
    pub(super) to: DType,
    /// What is added to each element. If it is not 0, the types are integers, and `to` has all
    /// sums.
    pub(super) offset: i128,
}

impl Conversion {
    /// Whether tensors to copy, and copies, can have this type.
    pub(super) fn is_element_type(dtype: DType) -> bool {
        dtype.is_float() || is_integer(dtype)
    }

    /// Returns the least and the greatest element of a copy of integers.
    pub(super) fn range(&self) -> (i128, i128) {
        let (low, high) = self.from.int_range();
        (low + self.offset, high + self.offset)
    }

    /// Whether the type of the copy has all of its elements, without rounding.
    pub(super) fn keeps_values(&self) -> bool {
        use DType::{BFloat16, Float16, Float32, Float64};
        match (self.from.is_float(), self.to.is_float()) {
            (false, false) => {
                let ((low, high), (least, most)) = (self.range(), self.to.int_range());
                least <= low && high <= most
            }
            (false, true) => {
                let digits = match self.to {
                    BFloat16 => 8,
                    Float16 => 11,
                    Float32 => 24,
                    _ => 53,
                };
                let (low, high) = self.range();
                low.unsigned_abs().max(high.unsigned_abs()) <= 1 << digits
            }
            (true, true) => match (self.from, self.to) {
                (from, to) if from == to => true,
                (Float16 | BFloat16, Float32 | Float64) | (Float32, Float64) => true,
                _ => false,
            },
            (true, false) => false,
        }
    }

    /// Returns the buffer of a copy.
    pub(super) fn buffer(&self, source: &Buffer) -> Buffer {
        Buffer::new(source.name.clone(), self.to, source.shape.clone(), source.scope)
    }

    /// Returns the element of the copy for a value of the source.
    pub(super) fn element(&self, value: Expr) -> Expr {
        // Directly to a 16-bit float: two roundings would not give the nearest one.
        let value = Expr::cast(self.to.compute_type(), Expr::cast(self.to, value));
        match self.offset {
            0 => value,
            // Sums wrap, so an intermediate result that `to` lacks does no harm.
            offset => Expr::add(value, Expr::int(self.to, self.to.wrap(offset))),
        }
    }

    /// Returns the value of the source that an element of the copy stands for, converted to a type.
    /// The conversion must suit the read.
    fn original(&self, copied: Expr, wanted: DType) -> Expr {
        let value = Expr::cast(wanted, copied);
        match self.offset {
            0 => value,
            offset => Expr::sub(value, Expr::int(wanted, wanted.wrap(offset))),
        }
    }

    /// Whether a read gets the same value from the copy; `wanted` is the type to which it converts
    /// the element.
    fn suits(&self, wanted: DType) -> bool {
        match self.offset {
            0 => self.keeps_values() || wanted == self.to,
            // Differences of integers wrap, except for indices.
            _ => is_integer(wanted),
        }
    }

    /// Returns the type to which a read converts the element, if it would get another value from
    /// the copy; `Some(None)` if the read does not convert it.
    pub(super) fn unsuitable_read(&self, body: &Body, source: &Buffer) -> Option<Option<DType>> {
        let (mut found, mut seen) = (None, FxHashSet::default());
        body.for_each_expr(&mut |expr| {
            each_read(expr, source, &mut seen, &mut |read, wanted| {
                if !self.suits(wanted.unwrap_or(read.ty.dtype)) {
                    found = found.or(Some(wanted));
                }
            });
        });
        found
    }
}

/// Whether a type has integers that wrap.
fn is_integer(dtype: DType) -> bool {
    dtype.is_int() && !matches!(dtype, DType::Bool | DType::Index)
}

/// Calls `note` for each read of a tensor, with the type to which the read converts the element;
/// for a shared expression once.
fn each_read(
    expr: &Expr,
    source: &Buffer,
    seen: &mut FxHashSet<usize>,
    note: &mut dyn FnMut(&Expr, Option<DType>),
) {
    if !seen.insert(expr.id()) {
        return;
    }
    let (read, wanted) = match &expr.kind {
        ExprKind::Cast(inner) => (inner, Some(expr.ty.dtype)),
        _ => (expr, None),
    };
    match &read.kind {
        ExprKind::Load { buffer, indices, .. } if buffer == source => {
            note(read, wanted);
            indices.iter().for_each(|index| each_read(index, source, seen, note));
        }
        _ => for_each_child(expr, &mut |child| each_read(child, source, seen, note)),
    }
}

/// Replaces the reads of buffers by reads of their converted copies, in the layout of the copy. A
/// shared expression is rewritten once.
pub(super) fn redirect_converted(
    body: &mut Body,
    copies: &FxHashMap<Buffer, Buffer>,
    layout: Option<&Layout>,
    conversion: &Conversion,
) {
    let mut redirector = Redirector { copies, layout, conversion, done: Memo::default() };
    body.map_exprs(&mut |expr| redirector.visit(expr));
}

struct Redirector<'a> {
    copies: &'a FxHashMap<Buffer, Buffer>,
    layout: Option<&'a Layout>,
    conversion: &'a Conversion,
    done: Memo<Expr>,
}

impl Redirector<'_> {
    fn visit(&mut self, expr: &Expr) -> Expr {
        if let Some(done) = self.done.get(expr) {
            return done.clone();
        }
        let read = match &expr.kind {
            ExprKind::Cast(inner) => self.copied(inner),
            _ => self.copied(expr),
        };
        let new = match read {
            Some(copied) => self.conversion.original(copied, expr.ty.dtype),
            None => map_children(expr, &mut |child| self.visit(child)),
        };
        self.done.insert(expr, new.clone());
        new
    }

    /// Returns the element of a copy for a read of its source.
    fn copied(&mut self, expr: &Expr) -> Option<Expr> {
        let ExprKind::Load { buffer, indices, .. } = &expr.kind else { return None };
        let copy = self.copies.get(buffer)?;
        let indices: Vec<Expr> = indices.iter().map(|index| self.visit(index)).collect();
        let places = match self.layout {
            Some(layout) => layout.places(&indices),
            None => indices,
        };
        Some(Expr::load(copy, places))
    }
}

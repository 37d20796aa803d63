//! Products of integers.

use crate::ir::{DType, Expr, ExprKind};

/// How a product of integers is computed, modulo their size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProductForm {
    /// One factor, the first one or the second, shifted to the left.
    Shift {
        /// Whether the first factor is shifted.
        of_first: bool,
        /// The number of bits.
        amount: u32,
    },
    /// By an instruction that multiplies the lower halves of 64-bit elements as signed integers.
    Signed,
    /// The same for unsigned integers.
    Unsigned,
    /// By the product of the type.
    Whole,
}

/// Returns the form of the product of two integers of a type. Constants are factors of all lanes.
pub fn product_form(dtype: DType, a: &Expr, b: &Expr) -> ProductForm {
    let shift = |factor: &Expr| {
        let factor = one_value(factor).as_int().filter(|factor| *factor > 0)? as u128;
        factor.is_power_of_two().then(|| factor.trailing_zeros())
    };
    if let Some(amount) = shift(b) {
        return ProductForm::Shift { of_first: true, amount };
    }
    if let Some(amount) = shift(a) {
        return ProductForm::Shift { of_first: false, amount };
    }
    let (a, b) = (value_range(a), value_range(b));
    let lies_in = |range: DType| {
        let (low, high) = range.int_range();
        [a, b].iter().all(|(from, to)| low <= *from && *to <= high)
    };
    match dtype.bytes() {
        8 if lies_in(DType::Int32) => ProductForm::Signed,
        8 if lies_in(DType::Uint32) => ProductForm::Unsigned,
        _ => ProductForm::Whole,
    }
}

/// Returns the value that all lanes have, if it is written as such.
fn one_value(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Broadcast(one) => one,
        _ => expr,
    }
}

/// Returns the least and the greatest value that the type of a converted integer allows.
fn value_range(expr: &Expr) -> (i128, i128) {
    let one = one_value(expr);
    if let Some(value) = one.as_int() {
        return (value, value);
    }
    let own = one.ty.dtype.int_range();
    match &one.kind {
        ExprKind::Cast(from) if from.ty.dtype == DType::Bool => (0, 1),
        ExprKind::Cast(from) if !from.ty.dtype.is_float() => {
            let (low, high) = from.ty.dtype.int_range();
            // A conversion to a type without these values wraps.
            if own.0 <= low && high <= own.1 { (low, high) } else { own }
        }
        _ => own,
    }
}

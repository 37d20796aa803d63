//! Unsigned integers whose order is that of the values.

use super::code::{add, let_in};
use crate::ir::visit::substitute;
use crate::ir::{BinOp, DType, Expr, SortAxis, Stmt, UnOp};

/// Returns `body` of the key of the value at a position, a `uint64`.
pub(super) fn key_of(sort: &SortAxis, place: Expr, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let_in("value", value_at(sort, place), |value| {
        let key = Expr::cast(DType::Uint64, in_order(sort, value));
        let_in("key", key, body)
    })
}

/// Returns the key of the value at a position, an unsigned integer as long as the value.
pub(super) fn natural_key(sort: &SortAxis, place: Expr) -> Expr {
    in_order(sort, value_at(sort, place))
}

/// Returns the value at a position.
pub(super) fn value_at(sort: &SortAxis, place: Expr) -> Expr {
    let value = add(sort.min.clone(), place);
    substitute(&sort.key, &mut |var| (*var == sort.var).then(|| value.clone()))
}

/// Returns the key of a value.
pub(super) fn in_order(sort: &SortAxis, value: Expr) -> Expr {
    let key = ascending(value);
    debug_assert_eq!(key.ty.dtype.bits(), super::key_width(sort));
    if sort.descending { Expr::unary(UnOp::BitNot, key) } else { key }
}

/// Returns the key, an unsigned integer as long as the value.
fn ascending(value: Expr) -> Expr {
    let dtype = value.ty.dtype;
    if dtype.is_float() {
        return of_float(value);
    }
    let value = if dtype == DType::Index { Expr::cast(DType::Int64, value) } else { value };
    let dtype = value.ty.dtype;
    let unsigned = unsigned(dtype.bits());
    if dtype == unsigned {
        return value;
    }
    let sign = Expr::int(unsigned, 1 << (dtype.bits() - 1));
    Expr::binary(BinOp::BitXor, Expr::bitcast(unsigned, value), sign)
}

fn of_float(value: Expr) -> Expr {
    let dtype = value.ty.dtype;
    let bits = dtype.bits();
    let (signed, unsigned) = match bits {
        32 => (DType::Int32, DType::Uint32),
        _ => (DType::Int64, DType::Uint64),
    };
    let zero = Expr::float(dtype, 0.0);
    let number = Expr::select(Expr::eq(value.clone(), zero.clone()), zero, value.clone());
    let pattern = Expr::bitcast(signed, number);
    // All ones for negative numbers.
    let negative = Expr::binary(BinOp::Shr, pattern.clone(), Expr::int(signed, (bits - 1).into()));
    let sign = Expr::int(signed, 1i128 << (bits - 1));
    let flips = Expr::binary(BinOp::BitOr, negative, sign);
    let key = Expr::bitcast(unsigned, Expr::binary(BinOp::BitXor, pattern, flips));
    let most = Expr::int(unsigned, -1);
    Expr::select(Expr::unary(UnOp::IsNan, value), most, key)
}

pub(super) fn unsigned(bits: u32) -> DType {
    match bits {
        8 => DType::Uint8,
        16 => DType::Uint16,
        32 => DType::Uint32,
        _ => DType::Uint64,
    }
}

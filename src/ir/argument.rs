//! Arguments of quantized types in memory: bytes.

use super::arith::Facts;
use super::simplify::simplify_expr;
use super::{BinOp, Buffer, Buffering, DType, Expr, Scope};

/// Creates the buffer of an argument. That of a quantized type has bytes as its elements: a float
/// of 8 bits is one, two integers of 4 bits share one in the last dimension.
pub fn argument_buffer(
    name: &str,
    dtype: DType,
    shape: Vec<Expr>,
    strides: Option<Vec<Expr>>,
) -> Buffer {
    let in_memory = if dtype.is_quantized() { DType::Uint8 } else { dtype };
    let bytes = if dtype.bits() < 8 { byte_extents(&shape) } else { shape.clone() };
    let (scope, how) = (Scope::Global, Buffering::Single);
    let buffer = Buffer::with_layout(name, in_memory, bytes, scope, strides, how);
    if dtype.is_quantized() { buffer.declared_as(dtype, shape) } else { buffer }
}

/// Returns the extents of the bytes that hold elements of 4 bits. A row of a tensor of several
/// dimensions has an even number of elements; the last byte of a vector may be half empty.
pub fn byte_extents(shape: &[Expr]) -> Vec<Expr> {
    let mut bytes = shape.to_vec();
    let is_vector = bytes.len() == 1;
    if let Some(last) = bytes.last_mut() {
        let rounded = match is_vector {
            true => Expr::add(last.clone(), Expr::index(1)),
            false => last.clone(),
        };
        let half = Expr::binary(BinOp::FloorDiv, rounded, Expr::index(2));
        *last = simplify_expr(&half, &Facts::new());
    }
    bytes
}

//! Arithmetic on unevaluated sums: a value in two parts, the second of which is the rounding error
//! of the first (Dekker, Knuth).

use super::builder::Value;

/// Computes `a * b` and its rounding error.
pub fn two_product<'b>(a: Value<'b>, b: Value<'b>) -> (Value<'b>, Value<'b>) {
    let product = a * b;
    (product, a.fma(b, -product))
}

/// Computes `a + b` and its rounding error (Knuth's TwoSum).
pub fn two_sum<'b>(a: Value<'b>, b: Value<'b>) -> (Value<'b>, Value<'b>) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

/// Computes `a + b` as a rounded sum and its error (Fast2Sum); `a` is zero or the larger one.
pub fn renormalize<'b>(a: Value<'b>, b: Value<'b>) -> (Value<'b>, Value<'b>) {
    let sum = a + b;
    (sum, (a - sum) + b)
}

/// Computes the quotient of two unevaluated sums, nearly correctly rounded.
pub fn quotient<'b>(a: (Value<'b>, Value<'b>), b: (Value<'b>, Value<'b>)) -> Value<'b> {
    let reciprocal = 1.0 / b.0;
    let first = a.0 * reciprocal;
    let remainder = (-first).fma(b.0, a.0) + (-first).fma(b.1, a.1);
    remainder.fma(reciprocal, first)
}

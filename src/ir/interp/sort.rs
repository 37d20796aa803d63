//! The order of the keys of a `Sort`.

use super::scalar::{decode_float, decode_int};
use crate::ir::DType;
use std::cmp::Ordering;

/// Returns the positions of the keys in order, as [`crate::ir::SortAxis`] specifies it.
pub(super) fn order_of(keys: &[u64], dtype: DType, descending: bool) -> Vec<usize> {
    let mut places: Vec<usize> = (0..keys.len()).collect();
    // The sort is stable.
    places.sort_by(|a, b| {
        let (a, b) = (keys[*a], keys[*b]);
        let order = match dtype.is_float() {
            true => compare(decode_float(dtype, a), decode_float(dtype, b)),
            false => decode_int(dtype, a).cmp(&decode_int(dtype, b)),
        };
        if descending { order.reverse() } else { order }
    });
    places
}

/// Compares numbers; a NaN is greater than all of them and equals every NaN.
fn compare(a: f64, b: f64) -> Ordering {
    let by_number = a.partial_cmp(&b);
    by_number.unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

//! Places for the tensors between kernels: offsets in one arena.
//!
//! Before: the calls of a network. After: an offset for each tensor that one call writes and later
//! calls read. Tensors that are alive at the same time do not overlap.
//!
//! Tensors of constant size are placed largest first, each at the lowest offset that is free while
//! it lives (TFLite's "greedy by size", Pisarchyk and Lee 2020); then in order of their first call;
//! the smaller arena counts. Tensors whose size depends on run-time integers follow: one takes the
//! slot of a tensor of the same size that is no longer alive, or a new slot at the end.

use super::fold::bytes_of;
use super::{Argument, Call};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::simplify::simplify_expr;
use crate::ir::{BinOp, Buffer, Expr};
use rustc_hash::FxHashMap;

/// Alignment of tensors, in bytes: a cache line, and the widest vector.
const ALIGNMENT: u64 = 64;

/// The arena of a network.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    /// The offset of each tensor, in bytes.
    pub offsets: FxHashMap<Buffer, Expr>,
    /// The tensors in the arena, in order of their first call.
    pub tensors: Vec<Buffer>,
    /// The bytes of the arena, over run-time integers.
    pub bytes: Option<Expr>,
    /// Constant sizes: the most bytes that are alive in one call, the least that an arena can have.
    pub lower_bound: u64,
    /// Constant sizes: the bytes of all tensors together.
    pub sum: u64,
}

/// A tensor, its size, and the first and the last call that use it.
struct Interval {
    buffer: Buffer,
    bytes: u64,
    first: usize,
    last: usize,
}

impl Interval {
    fn overlaps(&self, other: &Interval) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Places the tensors of `calls` for which `is_temporary` holds.
pub fn place(calls: &[Call], is_temporary: &dyn Fn(&Buffer) -> bool) -> Arena {
    let mut ranges: FxHashMap<Buffer, (usize, usize)> = FxHashMap::default();
    let mut tensors = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        for argument in &call.arguments {
            let Argument::Tensor(buffer) = argument else { continue };
            if is_temporary(buffer) {
                let range = ranges.entry(buffer.clone()).or_insert_with(|| {
                    tensors.push(buffer.clone());
                    (at, at)
                });
                range.1 = at;
            }
        }
    }
    let (mut fixed, mut dynamic) = (Vec::new(), Vec::new());
    for buffer in &tensors {
        let (first, last) = ranges[buffer];
        match bytes_of(buffer) {
            Some(bytes) => {
                let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
                fixed.push(Interval { buffer: buffer.clone(), bytes, first, last });
            }
            None => dynamic.push((buffer.clone(), first, last)),
        }
    }
    let alive = |call: usize| {
        let now = fixed.iter().filter(|one| one.first <= call && call <= one.last);
        now.map(|one| one.bytes).sum::<u64>()
    };
    let lower_bound = (0..calls.len()).map(alive).max().unwrap_or(0);
    let sum = fixed.iter().map(|one| one.bytes).sum();
    let (mut by_size, mut by_call): (Vec<&Interval>, Vec<&Interval>) =
        (fixed.iter().collect(), fixed.iter().collect());
    by_size.sort_by_key(|one| (std::cmp::Reverse(one.bytes), one.first));
    by_call.sort_by_key(|one| (one.first, std::cmp::Reverse(one.bytes)));
    let (offsets, fixed_bytes) = [by_size, by_call]
        .iter()
        .map(|order| place_in_order(order))
        .min_by_key(|(_, bytes)| *bytes)
        .expect("two orders");
    let offsets =
        offsets.into_iter().map(|(buffer, at)| (buffer, Expr::index(at as i64))).collect();
    let mut arena = Arena { offsets, tensors, bytes: None, lower_bound, sum };
    let end = place_dynamic(&dynamic, Expr::index(fixed_bytes as i64), &mut arena.offsets);
    arena.bytes = (!arena.tensors.is_empty()).then_some(end);
    arena
}

/// Places tensors in this order, each at the lowest free offset. Returns the offsets, and the end.
fn place_in_order(order: &[&Interval]) -> (Vec<(Buffer, u64)>, u64) {
    let mut placed: Vec<(u64, &Interval)> = Vec::new();
    for one in order {
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|(_, other)| one.overlaps(other))
            .map(|(offset, other)| (*offset, offset + other.bytes))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if start >= offset + one.bytes {
                break;
            }
            offset = offset.max(end);
        }
        placed.push((offset, one));
    }
    let end = placed.iter().map(|(offset, one)| offset + one.bytes).max().unwrap_or(0);
    (placed.into_iter().map(|(offset, one)| (one.buffer.clone(), offset)).collect(), end)
}

/// Places tensors of variable size behind `end`. Returns the new end.
fn place_dynamic(
    tensors: &[(Buffer, usize, usize)],
    end: Expr,
    offsets: &mut FxHashMap<Buffer, Expr>,
) -> Expr {
    // The size, the offset and the last user's last call of each slot.
    let mut slots: Vec<(Expr, Expr, usize)> = Vec::new();
    let mut end = end;
    for (buffer, first, last) in tensors {
        let bytes = rounded_bytes(buffer);
        let free = slots.iter_mut().find(|(size, _, until)| *until < *first && equal(size, &bytes));
        match free {
            Some((_, offset, until)) => {
                *until = *last;
                offsets.insert(buffer.clone(), offset.clone());
            }
            None => {
                offsets.insert(buffer.clone(), end.clone());
                let next = Expr::add(end.clone(), bytes.clone());
                slots.push((bytes, std::mem::replace(&mut end, next), *last));
            }
        }
    }
    simplify_expr(&end, &Facts::new())
}

/// The bytes of a tensor, rounded up to [`ALIGNMENT`].
fn rounded_bytes(buffer: &Buffer) -> Expr {
    let alignment = || Expr::index(ALIGNMENT as i64);
    let bytes = Expr::mul(buffer.len(), Expr::index(buffer.dtype.bytes() as i64));
    let blocks = Expr::add(bytes, Expr::index(ALIGNMENT as i64 - 1));
    let rounded = Expr::mul(Expr::binary(BinOp::FloorDiv, blocks, alignment()), alignment());
    simplify_expr(&rounded, &Facts::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{DType, Scope, Var};

    fn tensor(name: &str, shape: Vec<Expr>) -> Buffer {
        Buffer::new(name, DType::Uint8, shape, Scope::Global)
    }

    fn calls(of: &[&[&Buffer]]) -> Vec<Call> {
        let call = |tensors: &&[&Buffer]| Call {
            name: String::new(),
            kernel: 0,
            arguments: tensors.iter().map(|one| Argument::Tensor((*one).clone())).collect(),
        };
        of.iter().map(call).collect()
    }

    #[test]
    fn tensors_share_memory_if_they_are_not_alive_together() {
        let sizes = [640, 64, 640, 128].map(|n| tensor("t", vec![Expr::index(n)]));
        let [a, b, c, d] = &sizes;
        let arena = place(&calls(&[&[a], &[a, b], &[b, c], &[c, d]]), &|_| true);
        assert_eq!(arena.bytes.and_then(|bytes| bytes.as_int()), Some(768));
        assert_eq!((arena.lower_bound, arena.sum), (768, 1472));
        let at = |buffer: &Buffer| arena.offsets[buffer].as_int().unwrap();
        assert_eq!((at(a), at(c)), (0, 0));
        assert!(at(b) >= 640 && at(d) >= 640);
    }

    #[test]
    fn tensors_of_variable_size_share_slots_of_equal_size() {
        let n = Expr::var(&Var::index("n"));
        let [a, b, c] = [0, 1, 2].map(|_| tensor("t", vec![n.clone()]));
        let arena = place(&calls(&[&[&a], &[&a, &b], &[&b, &c]]), &|_| true);
        assert!(equal(&arena.offsets[&a], &arena.offsets[&c]));
        assert!(!equal(&arena.offsets[&a], &arena.offsets[&b]));
    }
}

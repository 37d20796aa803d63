//! Convolutions whose windows lie mostly in the padding, as those of large dilations do: a product
//! for each tap, over the positions where the tap meets the image.
//!
//! Before: `sum(image[y + r*d - p, x + s*d - p] * weight[r, s])`, with zeros around the image.
//! After: the sum of `1 x 1` convolutions of parts of the image. Taps that only meet zeros are
//! dropped, so infinite weights there do not make a NaN.

use super::norm::is_constant;
use super::windows::Windows;
use crate::context::{Context, Convolution, axes};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::Outcome;

/// Products of parts are used if they save this share of the multiplications: each is a kernel of
/// its own, and their sum is another.
const SAVED: f64 = 0.4;
/// Several products need this many positions each, on average: with fewer rows, reading the weights
/// takes the time, and that stays. Parts of images of 2 x 2 under 3 x 3 kernels cost 5 to 10 %.
const POSITIONS: i64 = 8;
/// The largest number of products.
const MAX_TAPS: usize = 32;

/// A row or column of a kernel, and where it meets the image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tap {
    /// The position in the kernel.
    at: i64,
    /// The first position of the result.
    first: i64,
    /// The number of positions.
    count: i64,
    /// The element of the image at `first`.
    image: i64,
}

/// The rows, then the columns of a kernel that meet the image.
pub(crate) type Taps = [Vec<Tap>; 2];

/// The taps of one dimension with stride 1: position `y` of the result reads the element
/// `y + at*dilation - begin` of the image.
fn taps_along(extent: i64, out: i64, (kernel, dilation, begin): (i64, i64, i64)) -> Vec<Tap> {
    let tap = |at: i64| {
        let offset = at * dilation - begin;
        let (first, end) = ((-offset).max(0), (extent - offset).min(out));
        (first < end).then_some(Tap { at, first, count: end - first, image: first + offset })
    };
    (0..kernel).filter_map(tap).collect()
}

/// Returns the taps of a convolution of constant extents for which products of parts save enough.
pub(crate) fn taps(cx: &Context, (image, weight): (T, T), windows: &Windows) -> Option<Taps> {
    let plain = windows.strides == [1, 1] && windows.out == windows.expected;
    let known = cx.reassociate && cx.dtype(image) == DType::Float32 && is_constant(cx, weight);
    if !plain || !known {
        return None;
    }
    let image = cx.shape(image);
    let mut taps = [Vec::new(), Vec::new()];
    let (mut share, mut positions) = (1.0, 1);
    for (at, own) in taps.iter_mut().enumerate() {
        let (extent, out) = (image[at + 2].as_const()?, windows.out[at].as_const()?);
        let (kernel, dilation) = (windows.kernel[at], windows.dilations[at]);
        // Few taps, and sums that fit.
        let limit = 1 << 20;
        if kernel > 16 || [extent, out, dilation].iter().any(|one| *one > limit) {
            return None;
        }
        *own = taps_along(extent, out, (kernel, dilation, windows.begin[at].as_const()?));
        let met: i64 = own.iter().map(|tap| tap.count).sum();
        share *= met as f64 / (kernel * out) as f64;
        positions *= met;
    }
    let count = taps[0].len() * taps[1].len();
    let pays = count == 1 || count <= MAX_TAPS && positions >= POSITIONS * count as i64;
    (count > 0 && pays && share <= 1.0 - SAVED).then_some(taps)
}

/// Defines a convolution as the sum of the products of its taps, of the type of the image.
pub(crate) fn emit(
    cx: &mut Context,
    own: &Convolution,
    (image, weight): (T, T),
    (rows, columns): (&[Tap], &[Tap]),
    shape: Vec<Dim>,
) -> Outcome<T> {
    let dtype = cx.dtype(image);
    let (channels, kernels) = (cx.shape(image)[1].clone(), cx.shape(weight)[0].clone());
    let at = axes(&shape);
    let mut sum: Option<E> = None;
    for (row, column) in rows.iter().flat_map(|row| columns.iter().map(move |one| (row, one))) {
        let name = |part: &str| format!("{part}_{}_{}", row.at, column.at);
        let (height, width) = (Dim::from(row.count), Dim::from(column.count));
        let extents = vec![shape[0].clone(), channels.clone(), height.clone(), width.clone()];
        let part = axes(&extents);
        let (y, x) = (part[2].clone() + row.image, part[3].clone() + column.image);
        let body = cx.load(image, [part[0].clone(), part[1].clone(), y, x]);
        let region = cx.compute(&name("image"), dtype, extents, body)?;
        let extents = vec![kernels.clone(), channels.clone(), Dim::from(1), Dim::from(1)];
        let part = axes(&extents);
        let place = [part[0].clone(), part[1].clone(), Dim::from(row.at), Dim::from(column.at)];
        let body = cx.load(weight, place);
        let factor = cx.compute(&name("weight"), dtype, extents, body)?;
        let extents = vec![shape[0].clone(), kernels.clone(), height, width];
        let operands = vec![region, factor];
        let product = cx.call(&name("tap"), dtype, extents, own.op, operands, Vec::new())?;
        let (y, x) = (at[2].clone() - row.first, at[3].clone() - column.first);
        let mut term = cx.load(product, [at[0].clone(), at[1].clone(), y, x]);
        let dims = [(&at[2], row, &shape[2]), (&at[3], column, &shape[3])];
        if let Some(meets) = dims.into_iter().filter_map(meets).reduce(|a, b| a.bin("and", b)) {
            term = meets.choose(term, E::float(0.0, dtype));
        }
        sum = Some(match sum {
            None => term,
            Some(sum) => sum.bin("+", term),
        });
    }
    let sum = sum.ok_or("no tap meets the image")?;
    cx.compute("taps", dtype, shape, sum)
}

/// Whether a position of the result is one of a tap; `None` if all are.
fn meets((at, tap, extent): (&Dim, &Tap, &Dim)) -> Option<E> {
    let end = tap.first + tap.count;
    let first = (tap.first > 0).then(|| E::Idx(at.clone()).bin(">=", E::Idx(tap.first.into())));
    let last =
        (extent.as_const() != Some(end)).then(|| E::Idx(at.clone()).bin("<", E::Idx(end.into())));
    [first, last].into_iter().flatten().reduce(|a, b| a.bin("and", b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_meet_the_image_where_a_padded_window_reads_it() {
        for (extent, kernel, dilation, begin, end) in [
            (4, 3, 24, 24, 24),
            (33, 3, 12, 12, 12),
            (5, 2, 3, 0, 4),
            (7, 5, 2, 9, 1),
            (6, 3, 1, 0, 0),
        ] {
            let out = extent + begin + end - (kernel - 1) * dilation;
            let taps = taps_along(extent, out, (kernel, dilation, begin));
            for at in 0..kernel {
                let reads: Vec<(i64, i64)> = (0..out)
                    .map(|y| (y, y + at * dilation - begin))
                    .filter(|(_, image)| (0..extent).contains(image))
                    .collect();
                let tap = taps.iter().find(|tap| tap.at == at);
                let (first, count) = (reads.first().copied(), reads.len() as i64);
                assert_eq!(tap.map(|tap| (tap.first, tap.image)), first);
                assert_eq!(tap.map_or(0, |tap| tap.count), count);
            }
        }
    }
}

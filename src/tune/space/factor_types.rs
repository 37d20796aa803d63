//! Types of factors that suit the instructions of the target.
//!
//! - `int8` by `int8`, and `uint8` by `uint8`: a copy of one factor with 128 added or subtracted
//!   has the other signedness, which the instruction for bytes needs. `distribute` moves the sum
//!   that this adds out of the product.
//! - Bytes for tile registers (AMX), which take them as they are: `distribute` moves what is added
//!   to them, such as zero points, out of the product.
//! - Bytes on a GPU: its tensor cores multiply bytes of either signedness; `distribute` moves
//!   what is added to them, such as zero points, out of the product.
//! - Bytes without that instruction: copies in `int16`, for the instruction that adds two products.
//! - Integers that are multiplied as floats: copies in the type of the product, so that each
//!   element is converted once.

use super::tile::FEWEST;
use super::view::{Access, AxisView, StageView, UNKNOWN, coefficient};
use crate::ir::equal::equal;
use crate::ir::tile::TileProduct;
use crate::ir::warp::FIRST_WITH_PRODUCTS;
use crate::ir::{BinOp, DType, Expr, ExprKind, Var};
use crate::schedule::Stage;
use crate::target::Target;
use crate::te::{Body, Reduction};
use rustc_hash::FxHashMap;

/// Copies are offered only of factors whose elements are used at least this often.
const MIN_USES: i64 = 16;
/// Products with fewer terms in all are too small for copies.
const MIN_POINTS: i64 = 1 << 14;

/// A factor: the tensor, and whether something is added to its elements that is the same for all
/// terms.
struct Factor<'v> {
    read: &'v Access,
    has_constant: bool,
}

/// Returns the directives that give the factors of a product other types; none if they suit.
pub(super) fn conversions(target: &Target, stage: &Stage, view: &StageView) -> Option<Vec<String>> {
    let Body::Reduce(sum) = &stage.te.body else { return None };
    let [term] = &sum.terms[..] else { return None };
    let ExprKind::Binary(BinOp::Mul, x, y) = &term.kind else { return None };
    let plain = sum.combiner.is_sum() && sum.condition.is_none() && !view.tuple;
    let tensor_cores = target.gpu.is_some_and(|gpu| gpu.capability >= FIRST_WITH_PRODUCTS);
    if !plain || !(target.simd().is_some() || tensor_cores) || view.points() < MIN_POINTS {
        return None;
    }
    let (x, y) = (factor(sum, view, x)?, factor(sum, view, y)?);
    let lane = &view.data.last()?.var;
    let (shared, each) = match (x.read.mentions(lane), y.read.mentions(lane)) {
        (false, true) => (x, y),
        (true, false) => (y, x),
        _ => return None,
    };
    if shared.read.buffer == each.read.buffer || uses(view, &shared) < MIN_USES {
        return None;
    }
    let name = &stage.te.name;
    let (a, b) = (shared.read.buffer.dtype, each.read.buffer.dtype);
    let copy = |factor: &Factor, arguments: &str| {
        format!("{}.cache_read(global, [{name}], {arguments})", factor.read.buffer.name)
    };
    let is_byte = |dtype: DType| matches!(dtype, DType::Int8 | DType::Uint8);
    let mut lines = Vec::new();
    let mut constants = shared.has_constant || each.has_constant;
    if tensor_cores {
        let bytes = is_byte(a) && is_byte(b) && view.dtype == DType::Int32;
        return (bytes && constants).then(|| vec![format!("{name}.distribute()")]);
    }
    if view.dtype.is_float() {
        let is_converted = |dtype: DType| dtype.is_int() && dtype.bytes() <= 2;
        for factor in [&shared, &each] {
            if is_converted(factor.read.buffer.dtype) && uses(view, factor) >= MIN_USES {
                lines.push(copy(factor, &format!("dtype={}", view.dtype)));
            }
        }
        return (!lines.is_empty() && !constants).then_some(lines);
    }
    if view.dtype != DType::Int32 {
        return None;
    }
    let tiles = TileProduct::ALL
        .into_iter()
        .any(|product| (product.a, product.b) == (a, b) && target.has_intrinsic(product.name));
    let rows = |axis: &AxisView| axis.size() >= FEWEST && !each.read.mentions(&axis.var);
    if tiles && view.data.iter().any(rows) {
        // Tile registers take bytes of any signedness.
    } else if is_byte(a) && is_byte(b) && target.has_intrinsic("dot4_u8_i8") {
        match (a, b) {
            (DType::Int8, DType::Int8) => lines.push(copy(&shared, "dtype=uint8, offset=128")),
            (DType::Uint8, DType::Uint8) => lines.push(copy(&shared, "dtype=int8, offset=-128")),
            _ => {}
        }
        constants |= a == b;
    } else if target.has_intrinsic("dot2_i16") {
        let fits = |dtype: DType| is_byte(dtype) || dtype == DType::Int16;
        if !fits(a) || !fits(b) || uses(view, &each) < MIN_USES {
            return None;
        }
        let bytes = [&shared, &each].into_iter().filter(|one| is_byte(one.read.buffer.dtype));
        lines.extend(bytes.map(|one| copy(one, "dtype=int16")));
    }
    if constants {
        lines.push(format!("{name}.distribute()"));
    }
    (!lines.is_empty()).then_some(lines)
}

/// Returns how often an element of a factor is used.
fn uses(view: &StageView, factor: &Factor) -> i64 {
    let elements =
        factor.read.buffer.shape.iter().fold(1i64, |n, extent| {
            n.saturating_mul(extent.as_int().map_or(UNKNOWN, |n| n as i64))
        });
    view.points() / elements.max(1)
}

/// Returns the tensor that a factor reads, if it converts one element and adds nothing else that
/// depends on the term.
fn factor<'v>(sum: &Reduction, view: &'v StageView, expr: &Expr) -> Option<Factor<'v>> {
    let fixed = |expr: &Expr| {
        let step = |var: &Var| coefficient(expr, var, &mut FxHashMap::default());
        sum.axes.iter().all(|axis| step(&axis.var) == Some(0))
    };
    match &expr.kind {
        ExprKind::Cast(inner) => {
            let ExprKind::Load { buffer, indices, mask: None } = &inner.kind else { return None };
            let same = |load: &&Access| {
                load.buffer == *buffer && load.indices.iter().zip(indices).all(|(a, b)| equal(a, b))
            };
            let read = view.loads.iter().find(same)?;
            Some(Factor { read, has_constant: false })
        }
        ExprKind::Binary(BinOp::Add, a, b) if fixed(a) => {
            factor(sum, view, b).map(|f| Factor { has_constant: true, ..f })
        }
        ExprKind::Binary(BinOp::Add | BinOp::Sub, a, b) if fixed(b) => {
            factor(sum, view, a).map(|f| Factor { has_constant: true, ..f })
        }
        _ => None,
    }
}

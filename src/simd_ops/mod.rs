//! The operations for which the SIMD back end selects instructions, by element type and instruction
//! set.
//!
//! Two parts of the compiler use this table. `lower::outline_simd` and `lower::legalize_vectors`
//! look up whether an operation has a form and how many bytes its elements have in the computation,
//! which bounds the lanes of a vector. `codegen::simd` matches on the same form to select
//! instructions. An operation without a form (`None`) is never outlined, so it is never selected.
//!
//! A form holds for every width of the instruction set: registers of 16 and 32 bytes, with AVX-512
//! also of 64. `codegen::simd::table` has the instruction of each form and width.

mod divide;
mod joined_load;
mod lane_offsets;
mod mask;
mod offset_load;
mod product;
mod rows_in_turns;
mod shuffle;
mod table_lookup;
mod widened_load;

use crate::ir::{BinOp, DType, Expr, ExprKind, Stmt, UnOp};
use crate::target::SimdIsa;
pub use divide::{ConstantDivision, Reciprocal, constant_division};
pub use joined_load::PartLoad;
pub use lane_offsets::{LaneOffsets, MaskedOffsets, constant_lanes, constant_mask, lane_offsets};
pub use mask::{first_lanes, without_operand};
pub use offset_load::{OffsetLoad, Run, Span, blend_lanes};
pub use product::{ProductForm, product_form};
pub use rows_in_turns::{Row, rows_in_turns};
pub use shuffle::Shuffle;
pub use table_lookup::TableLookup;

/// Bytes of the shortest vector that a gather or scatter instruction accesses.
const MIN_GATHER_BYTES: u64 = 16;

/// Strides below this bound have 32-bit offsets for any number of lanes.
const MAX_SHORT_STRIDE: i128 = 1 << 20;
const _: () = assert!(MAX_SHORT_STRIDE * 64 <= i32::MAX as i128);

/// How a unary operation on data is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryForm {
    /// The operand itself.
    Identity,
    /// Flips the sign bit of a float.
    FlipSign,
    /// Clears the sign bit of a float.
    ClearSign,
    /// Rounds a float to an integral one; the mode of `vroundps`.
    Round(i64),
    /// The square root of a float.
    Sqrt,
    /// 0 minus an integer.
    Negate,
    /// Flips all bits of an integer.
    Invert,
    /// The absolute value of a signed integer.
    Absolute,
    /// The number of one bits of an integer.
    Popcount,
}

/// Returns the form of `op` on data of a type; vectors of indices are 64-bit integers. `None` if
/// there is none, or if the result is `bool` (masks have their own instructions).
pub fn unary_form(op: UnOp, dtype: DType) -> Option<UnaryForm> {
    if dtype == DType::Bool || dtype.is_half() {
        return None;
    }
    Some(match (op, dtype.is_float()) {
        (UnOp::Neg, true) => UnaryForm::FlipSign,
        (UnOp::Abs, true) => UnaryForm::ClearSign,
        (UnOp::Round, true) => UnaryForm::Round(0),
        (UnOp::Floor, true) => UnaryForm::Round(1),
        (UnOp::Ceil, true) => UnaryForm::Round(2),
        (UnOp::Trunc, true) => UnaryForm::Round(3),
        (UnOp::Sqrt, true) => UnaryForm::Sqrt,
        (UnOp::Neg, false) => UnaryForm::Negate,
        (UnOp::BitNot, false) => UnaryForm::Invert,
        (UnOp::Abs, false) if dtype.is_signed() => UnaryForm::Absolute,
        (UnOp::Abs, false) => UnaryForm::Identity,
        (UnOp::Popcount, false) => UnaryForm::Popcount,
        _ => return None,
    })
}

/// How a binary operation on data is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryForm {
    /// By one instruction for elements of this type.
    Direct,
    /// A minimum or maximum by a comparison and a blend.
    CompareAndBlend,
    /// A product of integers.
    Multiply,
    /// A shift of elements of this type; shorter operands are widened to it unless the amount is
    /// constant.
    Shift(DType),
    /// A quotient or remainder of integers up to 32 bits, by a division of float64, or as
    /// [`constant_division`] says if the divisor is constant.
    DivideAsFloat64,
    /// A quotient or remainder of 64-bit integers, lane by lane in general registers, or as
    /// [`constant_division`] says if the divisor is constant.
    DivideLanes,
}

impl BinaryForm {
    /// Returns the bytes of the longest element that the form computes with.
    fn element_bytes(self, dtype: DType) -> u64 {
        match self {
            BinaryForm::Shift(computed) => computed.bytes(),
            BinaryForm::DivideAsFloat64 | BinaryForm::DivideLanes => 8,
            _ => dtype.bytes(),
        }
    }
}

/// Returns the form of `op` on data of a type; see [`unary_form`].
pub fn binary_form(op: BinOp, dtype: DType, isa: SimdIsa) -> Option<BinaryForm> {
    use BinOp::*;
    if dtype == DType::Bool || dtype.is_half() {
        return None;
    }
    let bytes = dtype.bytes();
    Some(match (op, dtype.is_float()) {
        (Add | Sub | Min | Max | Mul | Div, true) | (Add | Sub, false) => BinaryForm::Direct,
        (BitAnd | BitOr | BitXor, false) => BinaryForm::Direct,
        // AVX2 compares quadwords, but has no minimum of them.
        (Min | Max, false) if bytes == 8 && isa == SimdIsa::Avx2 => BinaryForm::CompareAndBlend,
        (Min | Max, false) => BinaryForm::Direct,
        (Mul, false) => BinaryForm::Multiply,
        (Shl | Shr, false) => BinaryForm::Shift(shifted_type(dtype, isa)),
        (FloorDiv | FloorMod, false) if bytes == 8 => BinaryForm::DivideLanes,
        (FloorDiv | FloorMod, false) => BinaryForm::DivideAsFloat64,
        _ => return None,
    })
}

/// Returns the constant by which all lanes are divided, if it is not 0.
pub fn constant_divisor(by: &Expr) -> Option<i128> {
    let one = match &by.kind {
        ExprKind::Broadcast(one) => one,
        _ => by,
    };
    one.as_int().filter(|divisor| *divisor != 0)
}

/// Returns the constant by which all lanes of a type are shifted, modulo the width of the type.
pub fn constant_amount(by: &Expr, dtype: DType) -> Option<u32> {
    let one = match &by.kind {
        ExprKind::Broadcast(one) => one,
        _ => by,
    };
    Some(one.as_int()?.rem_euclid(i128::from(dtype.bits())) as u32)
}

/// Returns the type in which elements are shifted, each by its own amount: AVX2 shifts elements of
/// 4 and 8 bytes, AVX-512 also those of 2 bytes.
pub fn shifted_type(dtype: DType, isa: SimdIsa) -> DType {
    match (isa, dtype) {
        (SimdIsa::Avx512, DType::Int8) => DType::Int16,
        (SimdIsa::Avx512, DType::Uint8) => DType::Uint16,
        (SimdIsa::Avx2, DType::Int8 | DType::Int16) => DType::Int32,
        (SimdIsa::Avx2, DType::Uint8 | DType::Uint16) => DType::Uint32,
        _ => dtype,
    }
}

/// One step of a conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conversion {
    /// By instructions on elements of the two types only.
    Direct,
    /// A conversion to this type, then one from it.
    Via(DType),
    /// A float to an integer: saturated, then truncated to this type, then narrowed.
    Truncate(DType),
}

/// Returns how lanes of one type become lanes of another; `None` if there are no instructions for
/// it. Vectors of indices are int64.
pub fn conversion(from: DType, to: DType, isa: SimdIsa) -> Option<Conversion> {
    use Conversion::*;
    use DType::*;
    let as_data = |dtype| if dtype == Index { Int64 } else { dtype };
    let avx2 = isa == SimdIsa::Avx2;
    Some(match (as_data(from), as_data(to)) {
        (from, to) if from == to => Direct,
        (Bool, _) => Direct,
        (half, Float32) | (Float32, half) if half.is_half() => Direct,
        // Two roundings would not give the nearest half.
        (Float64, half) if half.is_half() => return None,
        (half, to) if half.is_half() => {
            conversion(Float32, to, isa)?;
            Via(Float32)
        }
        (from, half) if half.is_half() => {
            conversion(from, Float32, isa)?;
            Via(Float32)
        }
        (_, Bool) => Direct,
        (Float32 | Float64, Float32 | Float64) => Direct,
        // AVX2 converts 64-bit integers with a sign only.
        (Uint64, Float32 | Float64) | (Float32 | Float64, Uint64) if avx2 => return None,
        (Float32 | Float64, to) => Truncate(truncated_type(to, isa)),
        (Int8 | Int16 | Uint8 | Uint16, Float32 | Float64) => Via(Int32),
        _ => Direct,
    })
}

/// Returns the integer that a float is truncated to before it is narrowed to `to`.
fn truncated_type(to: DType, isa: SimdIsa) -> DType {
    match to {
        DType::Int64 | DType::Uint64 => to,
        // AVX2 truncates to integers with a sign only.
        DType::Uint32 if isa == SimdIsa::Avx2 => DType::Int64,
        DType::Uint32 => DType::Uint32,
        _ => DType::Int32,
    }
}

/// Returns the bytes of the longest element that a conversion computes with.
fn conversion_bytes(from: DType, to: DType, isa: SimdIsa) -> u64 {
    let between = match conversion(from, to, isa) {
        Some(Conversion::Via(between)) => {
            conversion_bytes(from, between, isa).max(conversion_bytes(between, to, isa))
        }
        Some(Conversion::Truncate(between)) => between.bytes(),
        // A `bool` becomes a half in as many lanes as any other type does.
        _ if to.is_half() => 4,
        _ => 0,
    };
    between.max(from.bytes()).max(to.bytes())
}

/// Checks that the back end selects instructions for the operation of a node, whatever its operands
/// are; returns the reason if not. Math functions are expanded before selection and count as
/// selectable.
pub fn check_node(expr: &Expr, isa: SimdIsa) -> Result<(), String> {
    let ty = expr.ty;
    let has_form = match &expr.kind {
        ExprKind::Cast(a) => {
            let (from, to) = (a.ty.dtype, ty.dtype);
            return match conversion(from, to, isa) {
                Some(_) => Ok(()),
                None => Err(format!("there is no instruction that converts {from} to {to}")),
            };
        }
        // Comparisons and logic: masks, or flags of scalars.
        ExprKind::Unary(..) | ExprKind::Binary(..) if ty.dtype == DType::Bool => true,
        ExprKind::Binary(BinOp::Shl | BinOp::Shr, _, by)
            if ty == DType::Index.into() && by.as_int().is_none() =>
        {
            return Err("it shifts an index by a value that is not constant".into());
        }
        ExprKind::Unary(op, _) => unary_form(*op, ty.dtype).is_some(),
        ExprKind::Binary(op, ..) => binary_form(*op, ty.dtype, isa).is_some(),
        _ => true,
    };
    match has_form {
        true => Ok(()),
        false => Err(format!("an operation on {} has no instruction", ty.dtype)),
    }
}

/// Checks that the back end compiles a statement, whatever is inside it; returns the reason if not.
pub fn check_stmt(stmt: &Stmt) -> Result<(), &'static str> {
    match stmt {
        Stmt::Assert { .. } | Stmt::Barrier | Stmt::AwaitCopies { .. } | Stmt::CopyGroup { .. } => {
            Err("it checks or waits")
        }
        _ => Ok(()),
    }
}

/// Returns the bytes of the longest element that a vector operation computes with, without those of
/// its operands.
pub fn element_bytes(expr: &Expr, isa: SimdIsa) -> u64 {
    let dtype = expr.ty.dtype;
    let computed = match &expr.kind {
        ExprKind::Cast(a) => conversion_bytes(a.ty.dtype, dtype, isa),
        ExprKind::Binary(op, _, by) => match binary_form(*op, dtype, isa) {
            Some(BinaryForm::Shift(_)) if constant_amount(by, dtype).is_some() => dtype.bytes(),
            Some(form @ BinaryForm::DivideAsFloat64) => match constant_divisor(by) {
                Some(divisor) => constant_division(dtype, divisor).element_bytes(dtype),
                None => form.element_bytes(dtype),
            },
            form => form.map_or(0, |form| form.element_bytes(dtype)),
        },
        _ => 0,
    };
    computed.max(dtype.bytes())
}

/// Whether loads and stores of elements with this number of bytes take a mask of lanes. Those of
/// AVX2 do for 4 and 8 bytes.
pub fn masks_elements(bytes: u64, isa: SimdIsa) -> bool {
    isa == SimdIsa::Avx512 || bytes >= 4
}

/// A vector access, as far as the choice of instructions depends on it.
#[derive(Clone, Copy, Debug)]
pub struct VectorAccess {
    /// Bytes of an element.
    pub bytes: u64,
    /// Whether a mask turns lanes off.
    pub masked: bool,
    /// Whether it is a store; otherwise a load.
    pub is_store: bool,
}

/// How a vector access is done.
#[derive(Clone, Copy, Debug)]
pub enum AccessForm<'e> {
    /// One move of consecutive elements, from this index on.
    Move(&'e Expr),
    /// The same under a mask.
    MaskedMove(&'e Expr),
    /// A load of the element with this index into all lanes, or a store of the last lane there.
    OneElement(&'e Expr),
    /// A load of the element with this index into the lanes of a mask.
    MaskedBroadcast(&'e Expr),
    /// A load of lanes that differ by constants; see [`LaneOffsets::load`].
    Offsets,
    /// A gather or scatter instruction.
    Indexed,
    /// One access for each lane.
    EachLane,
}

/// Whether a load at an index under a mask is one instruction whatever the mask is, and no gather.
pub fn has_masked_move(index: &Expr, bytes: u64, isa: SimdIsa) -> bool {
    let contiguous = match &index.kind {
        ExprKind::Ramp(_, stride) => stride.as_int() == Some(1),
        kind => matches!(kind, ExprKind::Broadcast(_)),
    };
    contiguous && masks_elements(bytes, isa)
}

/// Returns the form of an access with an index of `lanes` lanes; `None` if there is none. Lanes
/// must then be accessed one by one, each under a branch if there is a mask.
pub fn access_form(
    access: VectorAccess,
    index: &Expr,
    lanes: u32,
    isa: SimdIsa,
) -> Option<AccessForm<'_>> {
    let VectorAccess { bytes, masked, is_store } = access;
    let has_mask = !masked || masks_elements(bytes, isa);
    match &index.kind {
        ExprKind::Ramp(base, stride) if stride.as_int() == Some(1) => {
            has_mask.then_some(match masked {
                true => AccessForm::MaskedMove(base),
                false => AccessForm::Move(base),
            })
        }
        ExprKind::Broadcast(one) if !masked => Some(AccessForm::OneElement(one)),
        ExprKind::Broadcast(one) => {
            (has_mask && !is_store).then_some(AccessForm::MaskedBroadcast(one))
        }
        _ => {
            // Vectors at a larger stride are gathered, or shuffled from rows (`transpose_tiles`).
            let strided = matches!(index.kind, ExprKind::Ramp(..));
            if !masked
                && !is_store
                && lane_offsets(index).is_some_and(|known| known.load(bytes, isa).is_some())
            {
                return Some(AccessForm::Offsets);
            }
            let (index_lanes, lanes) = (lanes, u64::from(lanes));
            let indexed = bytes >= 4
                && bytes * lanes >= MIN_GATHER_BYTES
                && offset_bytes(index, index_lanes) * lanes <= u64::from(isa.bytes())
                && (!is_store || isa == SimdIsa::Avx512);
            // Masked lanes must not evaluate an index of another form.
            let has_mask = !masked || indexed && strided;
            has_mask.then_some(if indexed { AccessForm::Indexed } else { AccessForm::EachLane })
        }
    }
}

/// Returns the bytes of an offset in a gather or scatter of `lanes` lanes: 4 for constant offsets
/// that fit into 32 bits.
pub fn offset_bytes(index: &Expr, lanes: u32) -> u64 {
    if !matches!(index.kind, ExprKind::Ramp(..)) {
        let short = lane_offsets(index).and_then(|constant| constant.short());
        return if short.is_some() { 4 } else { 8 };
    }
    let last = constant_stride(index).and_then(|stride| stride.checked_mul(lanes.into()));
    if last.is_some_and(|last| i32::try_from(last).is_ok()) { 4 } else { 8 }
}

/// Matches a conversion of indices to integers whose operand has lanes that are a scalar plus
/// constants. Returns the operand; the sum can be computed in the type of the result.
pub fn narrowed_offsets(cast: &Expr) -> Option<LaneOffsets> {
    match &cast.kind {
        ExprKind::Cast(a)
            if a.ty.dtype == DType::Index
                && !matches!(a.kind, ExprKind::Broadcast(_))
                && !cast.ty.dtype.is_float()
                && cast.ty.dtype != DType::Bool =>
        {
            lane_offsets(a)
        }
        _ => None,
    }
}

/// Whether [`offset_bytes`] is 4 for any number of lanes.
pub fn has_short_offsets(index: &Expr) -> bool {
    constant_stride(index).is_some_and(|stride| stride.abs() < MAX_SHORT_STRIDE)
}

fn constant_stride(index: &Expr) -> Option<i128> {
    match &index.kind {
        ExprKind::Ramp(_, stride) => stride.as_int(),
        _ => None,
    }
}

/// A comparison that is true in the lanes with `base + lane < bound`, which are the first lanes; if
/// `negated`, in all others.
pub struct LaneCount {
    /// The index of lane 0.
    pub base: Expr,
    /// The index that all lanes are compared with.
    pub bound: Expr,
    /// The number of lanes.
    pub lanes: u32,
    /// Whether the comparison is `<=` instead of `<`.
    pub inclusive: bool,
    /// Whether the comparison is negated.
    pub negated: bool,
}

/// Matches comparisons of indices like `base + lane < bound`, which are computed from the number of
/// true lanes, without a vector of indices.
pub fn lane_count(op: BinOp, a: &Expr, b: &Expr) -> Option<LaneCount> {
    use BinOp::*;
    let (op, base, bound) = match (&a.kind, &b.kind) {
        (ExprKind::Ramp(base, stride), ExprKind::Broadcast(bound))
            if stride.as_int() == Some(1) =>
        {
            (op, base, bound)
        }
        (ExprKind::Broadcast(bound), ExprKind::Ramp(base, stride))
            if stride.as_int() == Some(1) =>
        {
            let mirrored = match op {
                Lt => Gt,
                Le => Ge,
                Gt => Lt,
                Ge => Le,
                _ => return None,
            };
            (mirrored, base, bound)
        }
        _ => return None,
    };
    if a.ty.dtype != DType::Index {
        return None;
    }
    let (inclusive, negated) = match op {
        Lt => (false, false),
        Ge => (false, true),
        Le => (true, false),
        Gt => (true, true),
        _ => return None,
    };
    let (base, bound) = (base.clone(), bound.clone());
    Some(LaneCount { base, bound, lanes: a.ty.lanes, inclusive, negated })
}

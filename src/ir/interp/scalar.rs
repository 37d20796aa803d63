//! The operators on one lane, as functions on register bits.
//!
//! A register has 64 bits: integers are sign- or zero-extended by their type, `bool` is 0 or 1,
//! floats are bit patterns, zero-extended.

use crate::ir::fp8;
use crate::ir::{BinOp, Const, DType, UnOp, half_bits};

/// An operator on one operand.
pub type UnaryFn = fn(u64) -> u64;
/// An operator on two operands.
pub type BinaryFn = fn(u64, u64) -> u64;
/// An operator on `index`; `None` on overflow.
pub type IndexFn = fn(i64, i64) -> Option<i64>;

/// Encodes an integer, wrapped into the type.
pub fn encode_int(dtype: DType, value: i128) -> u64 {
    dtype.wrap(value) as u64
}

/// Encodes a float, rounded to the type.
pub fn encode_float(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::Float64 => value.to_bits(),
        DType::Float32 => (value as f32).to_bits() as u64,
        DType::Float16 | DType::BFloat16 => half_bits(value, dtype).into(),
        DType::Float8E4M3 | DType::Float8E5M2 => fp8::bits(value, dtype).into(),
        _ => panic!("float of type {dtype}"),
    }
}

/// Encodes a constant.
pub fn encode_const(dtype: DType, value: Const) -> u64 {
    match value {
        Const::Int(value) => encode_int(dtype, value),
        Const::Float(value) => encode_float(dtype, value),
    }
}

/// Decodes an integer or `bool`.
pub fn decode_int(dtype: DType, bits: u64) -> i128 {
    if dtype.is_signed() { bits as i64 as i128 } else { bits as i128 }
}

/// Decodes a float.
pub fn decode_float(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::Float64 => f64::from_bits(bits),
        DType::Float32 => f32::from_bits(bits as u32) as f64,
        DType::Float16 => half::f16::from_bits(bits as u16).to_f64(),
        DType::BFloat16 => half::bf16::from_bits(bits as u16).to_f64(),
        DType::Float8E4M3 | DType::Float8E5M2 => fp8::value(bits as u8, dtype),
        _ => panic!("float of type {dtype}"),
    }
}

/// Encodes an element of memory, in little-endian order.
pub fn from_memory(dtype: DType, bytes: &[u8]) -> u64 {
    let mut raw = [0; 8];
    raw[..bytes.len()].copy_from_slice(bytes);
    from_pattern(dtype, u64::from_le_bytes(raw))
}

/// Encodes a zero-extended bit pattern.
pub fn from_pattern(dtype: DType, raw: u64) -> u64 {
    match dtype {
        DType::Bool => u64::from(raw != 0),
        _ if dtype.is_float() => raw,
        _ => encode_int(dtype, raw as i128),
    }
}

/// Returns `op` on operands of type `dtype`; `None` if the type has no such operator.
pub fn unary_fn(op: UnOp, dtype: DType) -> Option<UnaryFn> {
    match dtype {
        DType::Float64 => float64_unary(op),
        DType::Float32 => float32_unary(op),
        DType::Bool => match op {
            UnOp::Not => Some(|a| a ^ 1),
            UnOp::Likely => Some(|a| a),
            _ => None,
        },
        DType::Int8 => int8_unary(op),
        DType::Int16 => int16_unary(op),
        DType::Int32 => int32_unary(op),
        DType::Int64 | DType::Index => int64_unary(op),
        DType::Uint8 => uint8_unary(op),
        DType::Uint16 => uint16_unary(op),
        DType::Uint32 => uint32_unary(op),
        DType::Uint64 => uint64_unary(op),
        DType::Float16 | DType::BFloat16 => None,
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => None,
    }
}

/// Returns `op` on operands of type `dtype`; `None` if the type has no such operator. `And` and
/// `Or` get both operands. `Index` wraps; see [`index_fn`] for the checked operators.
pub fn binary_fn(op: BinOp, dtype: DType) -> Option<BinaryFn> {
    match dtype {
        DType::Float64 => float64_binary(op),
        DType::Float32 => float32_binary(op),
        DType::Bool => bool_binary(op),
        DType::Int8 => int8_binary(op),
        DType::Int16 => int16_binary(op),
        DType::Int32 => int32_binary(op),
        DType::Int64 | DType::Index => int64_binary(op),
        DType::Uint8 => uint8_binary(op),
        DType::Uint16 => uint16_binary(op),
        DType::Uint32 => uint32_binary(op),
        DType::Uint64 => uint64_binary(op),
        DType::Float16 | DType::BFloat16 => None,
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => None,
    }
}

/// Returns the checked operator of `index`; `None` if it cannot overflow.
pub fn index_fn(op: BinOp) -> Option<IndexFn> {
    match op {
        BinOp::Add => Some(i64::checked_add),
        BinOp::Sub => Some(i64::checked_sub),
        BinOp::Mul => Some(i64::checked_mul),
        BinOp::FloorDiv => Some(|a, b| {
            let overflows = a == i64::MIN && b == -1;
            (!overflows).then(|| floor_div(a as i128, b as i128) as i64)
        }),
        BinOp::Shl => Some(|a, b| {
            let shifted = a.wrapping_shl(b as u32);
            (shifted.wrapping_shr(b as u32) == a).then_some(shifted)
        }),
        _ => None,
    }
}

fn floor_div(a: i128, b: i128) -> i128 {
    if b == 0 { 0 } else { a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0) }
}

macro_rules! int_ops {
    ($unary:ident, $binary:ident, $t:ty) => {
        fn $unary(op: UnOp) -> Option<UnaryFn> {
            Some(match op {
                UnOp::Neg => |a| (a as $t).wrapping_neg() as u64,
                UnOp::BitNot => |a| !(a as $t) as u64,
                UnOp::Abs => |a| {
                    let a = a as $t;
                    (if (a as i128) < 0 { a.wrapping_neg() } else { a }) as u64
                },
                UnOp::Popcount => |a| (a as $t).count_ones() as u64,
                _ => return None,
            })
        }

        fn $binary(op: BinOp) -> Option<BinaryFn> {
            Some(match op {
                BinOp::Add => |a, b| (a as $t).wrapping_add(b as $t) as u64,
                BinOp::Sub => |a, b| (a as $t).wrapping_sub(b as $t) as u64,
                BinOp::Mul => |a, b| (a as $t).wrapping_mul(b as $t) as u64,
                BinOp::FloorDiv => |a, b| {
                    let (a, b) = (a as $t, b as $t);
                    if b == 0 {
                        return 0;
                    }
                    let (quotient, rest) = (a.wrapping_div(b), a.wrapping_rem(b));
                    let below = rest != 0 && ((rest as i128) < 0) != ((b as i128) < 0);
                    quotient.wrapping_sub(below as $t) as u64
                },
                BinOp::FloorMod => |a, b| {
                    let (a, b) = (a as $t, b as $t);
                    if b == 0 {
                        return 0;
                    }
                    let rest = a.wrapping_rem(b);
                    let below = rest != 0 && ((rest as i128) < 0) != ((b as i128) < 0);
                    (if below { rest.wrapping_add(b) } else { rest }) as u64
                },
                BinOp::Min => |a, b| if (a as $t) < b as $t { a } else { b },
                BinOp::Max => |a, b| if a as $t > b as $t { a } else { b },
                BinOp::BitAnd => |a, b| a & b,
                BinOp::BitOr => |a, b| a | b,
                BinOp::BitXor => |a, b| a ^ b,
                BinOp::Shl => |a, b| (a as $t).wrapping_shl(b as u32) as u64,
                BinOp::Shr => |a, b| (a as $t).wrapping_shr(b as u32) as u64,
                BinOp::Eq => |a, b| u64::from(a == b),
                BinOp::Ne => |a, b| u64::from(a != b),
                BinOp::Lt => |a, b| u64::from((a as $t) < b as $t),
                BinOp::Le => |a, b| u64::from(a as $t <= b as $t),
                BinOp::Gt => |a, b| u64::from(a as $t > b as $t),
                BinOp::Ge => |a, b| u64::from(a as $t >= b as $t),
                BinOp::Div | BinOp::And | BinOp::Or => return None,
            })
        }
    };
}

int_ops!(int8_unary, int8_binary, i8);
int_ops!(int16_unary, int16_binary, i16);
int_ops!(int32_unary, int32_binary, i32);
int_ops!(int64_unary, int64_binary, i64);
int_ops!(uint8_unary, uint8_binary, u8);
int_ops!(uint16_unary, uint16_binary, u16);
int_ops!(uint32_unary, uint32_binary, u32);
int_ops!(uint64_unary, uint64_binary, u64);

macro_rules! float_ops {
    ($unary:ident, $binary:ident, $f:ty, $bits:ty) => {
        fn $unary(op: UnOp) -> Option<UnaryFn> {
            fn get(bits: u64) -> $f {
                <$f>::from_bits(bits as $bits)
            }
            const SIGN: $bits = 1 << (<$bits>::BITS - 1);
            Some(match op {
                UnOp::Neg => |a| (a as $bits ^ SIGN) as u64,
                UnOp::Abs => |a| (a as $bits & !SIGN) as u64,
                UnOp::Floor => |a| get(a).floor().to_bits() as u64,
                UnOp::Ceil => |a| get(a).ceil().to_bits() as u64,
                UnOp::Round => |a| get(a).round_ties_even().to_bits() as u64,
                UnOp::Trunc => |a| get(a).trunc().to_bits() as u64,
                UnOp::Sqrt => |a| get(a).sqrt().to_bits() as u64,
                UnOp::IsNan => |a| u64::from(get(a).is_nan()),
                UnOp::BitNot | UnOp::Not | UnOp::Popcount | UnOp::Likely => return None,
            })
        }

        fn $binary(op: BinOp) -> Option<BinaryFn> {
            fn get(bits: u64) -> $f {
                <$f>::from_bits(bits as $bits)
            }
            Some(match op {
                BinOp::Add => |a, b| (get(a) + get(b)).to_bits() as u64,
                BinOp::Sub => |a, b| (get(a) - get(b)).to_bits() as u64,
                BinOp::Mul => |a, b| (get(a) * get(b)).to_bits() as u64,
                BinOp::Div => |a, b| (get(a) / get(b)).to_bits() as u64,
                BinOp::Min => |a, b| if get(a) < get(b) { a } else { b },
                BinOp::Max => |a, b| if get(a) > get(b) { a } else { b },
                BinOp::Eq => |a, b| u64::from(get(a) == get(b)),
                BinOp::Ne => |a, b| u64::from(get(a) != get(b)),
                BinOp::Lt => |a, b| u64::from(get(a) < get(b)),
                BinOp::Le => |a, b| u64::from(get(a) <= get(b)),
                BinOp::Gt => |a, b| u64::from(get(a) > get(b)),
                BinOp::Ge => |a, b| u64::from(get(a) >= get(b)),
                _ => return None,
            })
        }
    };
}

float_ops!(float32_unary, float32_binary, f32, u32);
float_ops!(float64_unary, float64_binary, f64, u64);

fn bool_binary(op: BinOp) -> Option<BinaryFn> {
    Some(match op {
        BinOp::BitAnd | BinOp::And | BinOp::Min => |a, b| a & b,
        BinOp::BitOr | BinOp::Or | BinOp::Max => |a, b| a | b,
        BinOp::BitXor | BinOp::Ne => |a, b| a ^ b,
        BinOp::Eq => |a, b| a ^ b ^ 1,
        BinOp::Lt => |a, b| u64::from(a < b),
        BinOp::Le => |a, b| u64::from(a <= b),
        BinOp::Gt => |a, b| u64::from(a > b),
        BinOp::Ge => |a, b| u64::from(a >= b),
        _ => return None,
    })
}

/// Computes `fma(a, b, c)`, rounded once.
pub fn fma(dtype: DType, a: u64, b: u64, c: u64) -> u64 {
    if dtype == DType::Float32 {
        let get = |bits: u64| f32::from_bits(bits as u32);
        return get(a).mul_add(get(b), get(c)).to_bits() as u64;
    }
    f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits()
}

/// The conversions of an element type.
trait Element {
    const FLOAT: bool;
    fn int(_bits: u64) -> i128 {
        0
    }
    fn float(_bits: u64) -> f64 {
        0.0
    }
    fn from_int(value: i128) -> u64;
    fn from_float(value: f64) -> u64;
}

macro_rules! int_element {
    ($name:ident, $t:ty) => {
        struct $name;
        impl Element for $name {
            const FLOAT: bool = false;
            fn int(bits: u64) -> i128 {
                bits as $t as i128
            }
            fn from_int(value: i128) -> u64 {
                value as $t as u64
            }
            // `as` truncates, saturates and gives 0 for NaN.
            fn from_float(value: f64) -> u64 {
                value as $t as u64
            }
        }
    };
}

int_element!(Int8, i8);
int_element!(Int16, i16);
int_element!(Int32, i32);
int_element!(Int64, i64);
int_element!(Uint8, u8);
int_element!(Uint16, u16);
int_element!(Uint32, u32);
int_element!(Uint64, u64);

struct Bool;
impl Element for Bool {
    const FLOAT: bool = false;
    fn int(bits: u64) -> i128 {
        bits as i128
    }
    fn from_int(value: i128) -> u64 {
        u64::from(value != 0)
    }
    fn from_float(value: f64) -> u64 {
        u64::from(value != 0.0)
    }
}

macro_rules! float_element {
    ($name:ident, $from_int:expr) => {
        struct $name;
        impl Element for $name {
            const FLOAT: bool = true;
            fn float(bits: u64) -> f64 {
                decode_float(DType::$name, bits)
            }
            fn from_int(value: i128) -> u64 {
                let round: fn(i128) -> f64 = $from_int;
                encode_float(DType::$name, round(value))
            }
            fn from_float(value: f64) -> u64 {
                encode_float(DType::$name, value)
            }
        }
    };
}

float_element!(Float64, |value| value as f64);
float_element!(Float32, |value| value as f32 as f64);
// Integers are converted to halves through float32.
float_element!(Float16, |value| value as f32 as f64);
float_element!(BFloat16, |value| value as f32 as f64);

fn cast<F: Element, T: Element>(bits: u64) -> u64 {
    if F::FLOAT { T::from_float(F::float(bits)) } else { T::from_int(F::int(bits)) }
}

/// Returns the conversion between two types.
pub fn cast_fn(from: DType, to: DType) -> UnaryFn {
    match from {
        DType::Float64 => cast_from::<Float64>(to),
        DType::Float32 => cast_from::<Float32>(to),
        DType::Float16 => cast_from::<Float16>(to),
        DType::BFloat16 => cast_from::<BFloat16>(to),
        DType::Int8 => cast_from::<Int8>(to),
        DType::Int16 => cast_from::<Int16>(to),
        DType::Int32 => cast_from::<Int32>(to),
        DType::Int64 | DType::Index => cast_from::<Int64>(to),
        DType::Uint8 => cast_from::<Uint8>(to),
        DType::Uint16 => cast_from::<Uint16>(to),
        DType::Uint32 => cast_from::<Uint32>(to),
        DType::Uint64 => cast_from::<Uint64>(to),
        DType::Bool => cast_from::<Bool>(to),
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => {
            crate::bug!("a cast of {from} in the loop IR")
        }
    }
}

fn cast_from<F: Element>(to: DType) -> UnaryFn {
    match to {
        DType::Float64 => cast::<F, Float64>,
        DType::Float32 => cast::<F, Float32>,
        DType::Float16 => cast::<F, Float16>,
        DType::BFloat16 => cast::<F, BFloat16>,
        DType::Int8 => cast::<F, Int8>,
        DType::Int16 => cast::<F, Int16>,
        DType::Int32 => cast::<F, Int32>,
        DType::Int64 | DType::Index => cast::<F, Int64>,
        DType::Uint8 => cast::<F, Uint8>,
        DType::Uint16 => cast::<F, Uint16>,
        DType::Uint32 => cast::<F, Uint32>,
        DType::Uint64 => cast::<F, Uint64>,
        DType::Bool => cast::<F, Bool>,
        DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => {
            crate::bug!("a cast to {to} in the loop IR")
        }
    }
}

/// Returns the bitcast between two types of the same size.
pub fn bitcast_fn(from: DType, to: DType) -> UnaryFn {
    if to.is_float() {
        // Removes the sign extension.
        return match from.bytes() {
            8 => |a| a,
            4 => |a| a as u32 as u64,
            _ => |a| a as u16 as u64,
        };
    }
    match (to.bytes(), to.is_signed()) {
        (1, true) => |a| a as i8 as u64,
        (1, false) => |a| a as u8 as u64,
        (2, true) => |a| a as i16 as u64,
        (2, false) => |a| a as u16 as u64,
        (4, true) => |a| a as i32 as u64,
        (4, false) => |a| a as u32 as u64,
        _ => |a| a,
    }
}

//! Element types of tensors and of loop IR values.

use super::fp8;
use std::fmt;

/// A scalar type. Halves (`Float16`, `BFloat16`) exist only in memory: loads, stores and casts.
/// Arithmetic on them is in `Float32` (docs/LANGUAGE.md, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary64.
    Float64,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary16, storage only.
    Float16,
    /// The upper half of a binary32, storage only.
    BFloat16,
    /// Two's complement, wraps.
    Int8,
    /// Two's complement, wraps.
    Int16,
    /// Two's complement, wraps.
    Int32,
    /// Two's complement, wraps.
    Int64,
    /// Wraps.
    Uint8,
    /// Wraps.
    Uint16,
    /// Wraps.
    Uint32,
    /// Wraps.
    Uint64,
    /// One byte in memory, 0 or 1. A load treats any non-zero byte as true.
    Bool,
    /// Two's complement of 4 bits, in the source only: two elements of an argument share a byte.
    /// `te::quantized` replaces it by `Int8` and `Uint8`, so the loop IR has none of the four.
    Int4,
    /// 0 to 15, in the source only, as `Int4`.
    Uint4,
    /// OCP FP8 E4M3: no infinity, one NaN of either sign, up to 448; in the source only.
    Float8E4M3,
    /// OCP FP8 E5M2, the upper half of a binary16; in the source only.
    Float8E5M2,
    /// Loop variables, extents, run-time integers and indices: 64 bits, signed. The arithmetic does
    /// not overflow in a valid execution (proved by `te::check_bounds` or checked on entry), so the
    /// simplifier may reassociate it. The interpreter traps on overflow.
    Index,
}

impl DType {
    /// The types that only arguments and casts have: two of 4 bits, two floats of 8 bits.
    pub const QUANTIZED: [DType; 4] =
        [DType::Int4, DType::Uint4, DType::Float8E4M3, DType::Float8E5M2];

    /// All types of tensors in memory, in the order of the language reference.
    pub const ALL: [DType; 13] = [
        DType::Float64,
        DType::Float32,
        DType::Float16,
        DType::BFloat16,
        DType::Int8,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::Uint8,
        DType::Uint16,
        DType::Uint32,
        DType::Uint64,
        DType::Bool,
    ];

    /// Returns the name in `.te` files, manifests and dumps.
    pub fn name(self) -> &'static str {
        match self {
            DType::Float64 => "float64",
            DType::Float32 => "float32",
            DType::Float16 => "float16",
            DType::BFloat16 => "bfloat16",
            DType::Int8 => "int8",
            DType::Int16 => "int16",
            DType::Int32 => "int32",
            DType::Int64 => "int64",
            DType::Uint8 => "uint8",
            DType::Uint16 => "uint16",
            DType::Uint32 => "uint32",
            DType::Uint64 => "uint64",
            DType::Bool => "bool",
            DType::Int4 => "int4",
            DType::Uint4 => "uint4",
            DType::Float8E4M3 => "float8_e4m3fn",
            DType::Float8E5M2 => "float8_e5m2",
            DType::Index => "index",
        }
    }

    /// Returns the type of tensors with this name; `None` for `index`.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().chain(DType::QUANTIZED).find(|ty| ty.name() == name)
    }

    /// Whether it is one of [`DType::QUANTIZED`].
    pub fn is_quantized(self) -> bool {
        DType::QUANTIZED.contains(&self)
    }

    /// Returns the size in memory in bytes; 1 for the types of 4 bits.
    pub fn bytes(self) -> u64 {
        match self {
            DType::Float64 | DType::Int64 | DType::Uint64 | DType::Index => 8,
            DType::Float32 | DType::Int32 | DType::Uint32 => 4,
            DType::Float16 | DType::BFloat16 | DType::Int16 | DType::Uint16 => 2,
            DType::Int8 | DType::Uint8 | DType::Bool => 1,
            DType::Int4 | DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => 1,
        }
    }

    /// Returns the size in memory in bits; 8 for `bool`.
    pub fn bits(self) -> u32 {
        match self {
            DType::Int4 | DType::Uint4 => 4,
            _ => self.bytes() as u32 * 8,
        }
    }

    /// Whether it is one of the floating-point types.
    pub fn is_float(self) -> bool {
        use DType::{BFloat16, Float8E4M3, Float8E5M2, Float16, Float32, Float64};
        matches!(self, Float64 | Float32 | Float16 | BFloat16 | Float8E4M3 | Float8E5M2)
    }

    /// Whether it is `Float16` or `BFloat16`.
    pub fn is_half(self) -> bool {
        matches!(self, DType::Float16 | DType::BFloat16)
    }

    /// Whether it is an integer type; includes `Index` but not `Bool`.
    pub fn is_int(self) -> bool {
        !self.is_float() && self != DType::Bool
    }

    /// Whether it is a signed integer type; includes `Index`.
    pub fn is_signed(self) -> bool {
        use DType::{Index, Int4, Int8, Int16, Int32, Int64};
        matches!(self, Int4 | Int8 | Int16 | Int32 | Int64 | Index)
    }

    /// Returns the type of arithmetic: `Float32` for halves, the type itself otherwise.
    pub fn compute_type(self) -> DType {
        if self.is_half() { DType::Float32 } else { self }
    }

    /// Returns the least and the greatest value of an integer type (`Bool`: 0 and 1).
    ///
    /// # Panics
    /// On floating-point types.
    pub fn int_range(self) -> (i128, i128) {
        match self {
            DType::Bool => (0, 1),
            _ if self.is_float() => panic!("int_range of {self}"),
            _ if self.is_signed() => {
                (-(1i128 << (self.bits() - 1)), (1i128 << (self.bits() - 1)) - 1)
            }
            _ => (0, (1i128 << self.bits()) - 1),
        }
    }

    /// Rounds `value` to a floating-point type, once, to nearest even.
    ///
    /// # Panics
    /// On other types.
    pub fn round_float(self, value: f64) -> f64 {
        match self {
            DType::Float64 => value,
            DType::Float32 => value as f32 as f64,
            DType::Float16 => half::f16::from_bits(half_bits(value, self)).to_f64(),
            DType::BFloat16 => half::bf16::from_bits(half_bits(value, self)).to_f64(),
            DType::Float8E4M3 | DType::Float8E5M2 => fp8::value(fp8::bits(value, self), self),
            _ => panic!("round_float of {self}"),
        }
    }

    /// Wraps `value` into an integer type (two's complement).
    pub fn wrap(self, value: i128) -> i128 {
        let (min, _) = self.int_range();
        let modulus = if self == DType::Bool { 2 } else { 1i128 << self.bits() };
        (value - min).rem_euclid(modulus) + min
    }
}

/// Returns the bits of `value` as `Float16` or `BFloat16`, rounded once to nearest even. The
/// conversions of the `half` crate from `f64` round twice or truncate.
///
/// # Panics
/// On other types.
pub fn half_bits(value: f64, dtype: DType) -> u16 {
    match dtype {
        DType::Float16 => half::f16::from_f32(round_to_odd(value)).to_bits(),
        DType::BFloat16 => half::bf16::from_f32(round_to_odd(value)).to_bits(),
        _ => panic!("half_bits of {dtype}"),
    }
}

/// Rounds `value` to float32; an inexact value to the neighbour with an odd last bit. Rounding the
/// result to fewer bits then gives the same as rounding `value`.
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    if back == value || value.is_nan() {
        return nearest;
    }
    let towards_zero = nearest.to_bits() - u32::from(back.abs() > value.abs());
    f32::from_bits(towards_zero | 1)
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of a loop IR value: `lanes` values of one scalar type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    /// The element type.
    pub dtype: DType,
    /// The number of lanes; 1 for scalars.
    pub lanes: u32,
}

impl Type {
    /// Returns a scalar type.
    pub const fn scalar(dtype: DType) -> Type {
        Type { dtype, lanes: 1 }
    }

    /// Returns the type with another element type and the same lanes.
    pub fn with_dtype(self, dtype: DType) -> Type {
        Type { dtype, ..self }
    }

    /// Whether there is one lane.
    pub fn is_scalar(self) -> bool {
        self.lanes == 1
    }
}

impl From<DType> for Type {
    fn from(dtype: DType) -> Type {
        Type::scalar(dtype)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lanes == 1 {
            write!(f, "{}", self.dtype)
        } else {
            write!(f, "{}x{}", self.dtype, self.lanes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests every half and the midpoints between neighbours, where double rounding is wrong.
    #[test]
    fn ties_of_halves_go_to_even() {
        for bits in 0..0x7bffu16 {
            let (low, high) = (half::f16::from_bits(bits), half::f16::from_bits(bits + 1));
            let (low, high) = (low.to_f64(), high.to_f64());
            let tie = (low + high) / 2.0;
            let even = if bits % 2 == 0 { low } else { high };
            assert_eq!(DType::Float16.round_float(tie), even);
            assert_eq!(DType::Float16.round_float(tie.next_up()), high);
            assert_eq!(DType::Float16.round_float(tie.next_down()), low);
        }
    }

    #[test]
    fn halves_are_rounded_once() {
        // Slightly more than half way from 1 to the next half, by bits that float32 drops.
        let value = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(DType::Float16.round_float(value), 1.0 + 2f64.powi(-10));
        assert_eq!(DType::Float16.round_float(1.0 + 2f64.powi(-11)), 1.0);
        let value = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(DType::BFloat16.round_float(-value), -1.0 - 2f64.powi(-7));
        assert_eq!(DType::Float16.round_float(65520.0), f64::INFINITY);
        assert_eq!(DType::Float16.round_float(65519.999999999), 65504.0);
        assert_eq!(DType::BFloat16.round_float(1e300), f64::INFINITY);
        assert_eq!(DType::Float16.round_float(2f64.powi(-25) * (1.0 + 1e-15)), 2f64.powi(-24));
        assert_eq!(DType::Float16.round_float(2f64.powi(-25)), 0.0);
        assert!(DType::BFloat16.round_float(f64::NAN).is_nan());
        assert!(DType::Float16.round_float(-0.0).is_sign_negative());
    }
}

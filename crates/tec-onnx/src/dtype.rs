//! Element types and single values.

use half::{bf16, f16};

use crate::dim::Dim;
use crate::narrow::Narrow;

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say everything")]
pub enum DType {
    Float64,
    Float32,
    Float16,
    BFloat16,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Bool,
    Float8E4M3Fn,
    Float8E5M2,
    Int4,
    Uint4,
}

use DType::{BFloat16, Bool, Float16, Float32, Float64};
use DType::{Float8E4M3Fn, Float8E5M2, Int4, Uint4};
use DType::{Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64};

impl DType {
    /// The types that stages compute with. Those of fewer than 8 bits and floats of 8 bits are
    /// types of arguments alone.
    pub const ALL: [DType; 13] = [
        Float64, Float32, Float16, BFloat16, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32,
        Uint64, Bool,
    ];

    /// The name in a `.te` file.
    pub fn name(self) -> &'static str {
        match self {
            Float64 => "float64",
            Float32 => "float32",
            Float16 => "float16",
            BFloat16 => "bfloat16",
            Int8 => "int8",
            Int16 => "int16",
            Int32 => "int32",
            Int64 => "int64",
            Uint8 => "uint8",
            Uint16 => "uint16",
            Uint32 => "uint32",
            Uint64 => "uint64",
            Bool => "bool",
            Float8E4M3Fn => "float8_e4m3fn",
            Float8E5M2 => "float8_e5m2",
            Int4 => "int4",
            Uint4 => "uint4",
        }
    }

    /// The number of bytes of an element; two of `int4` and `uint4` share one.
    pub fn bytes(self) -> usize {
        match self {
            Float64 | Int64 | Uint64 => 8,
            Float32 | Int32 | Uint32 => 4,
            Float16 | BFloat16 | Int16 | Uint16 => 2,
            Int8 | Uint8 | Bool | Float8E4M3Fn | Float8E5M2 | Int4 | Uint4 => 1,
        }
    }

    /// Returns the type of a number of `TensorProto.DataType`.
    pub(crate) fn from_onnx(number: i32) -> Result<Self, String> {
        Ok(match number {
            1 => Float32,
            2 => Uint8,
            3 => Int8,
            4 => Uint16,
            5 => Int16,
            6 => Int32,
            7 => Int64,
            9 => Bool,
            10 => Float16,
            11 => Float64,
            12 => Uint32,
            13 => Uint64,
            16 => BFloat16,
            _ => {
                let names =
                    [(8, "string"), (14, "complex64"), (15, "complex128"), (27, "float6e2m3")];
                let names = names.into_iter().chain([(28, "float6e3m2")]);
                let narrow = Narrow::from_onnx(number).map(|own| (number, own.name()));
                let name = names.chain(narrow).find(|(own, _)| *own == number);
                let name = name.map_or(format!("number {number}"), |(_, name)| name.to_string());
                return Err(format!("the element type {name} is not supported"));
            }
        })
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Float64 | Float32 | Float16 | BFloat16)
    }

    /// Whether arithmetic of the type is done in float32.
    pub(crate) fn is_half(self) -> bool {
        matches!(self, Float16 | BFloat16)
    }

    pub(crate) fn is_signed_int(self) -> bool {
        matches!(self, Int8 | Int16 | Int32 | Int64)
    }

    pub(crate) fn is_int(self) -> bool {
        self.is_signed_int() || matches!(self, Uint8 | Uint16 | Uint32 | Uint64)
    }

    /// The largest integer up to which the type has all of them; of an integer type, the greatest.
    pub(crate) fn largest_exact_integer(self) -> i64 {
        match self {
            DType::Float16 => 1 << 11,
            DType::BFloat16 => 1 << 8,
            DType::Float32 => 1 << 24,
            DType::Float64 => 1 << 53,
            _ => self.int_range().1.min(i64::MAX.into()) as i64,
        }
    }

    /// The least and the greatest integer of the type.
    pub(crate) fn int_range(self) -> (i128, i128) {
        let bits = 8 * self.bytes() as u32;
        if self.is_signed_int() {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        }
    }
}

/// A known value: exact for integers, with the precision of its type for floats.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Val {
    Int(Dim),
    Float(f64),
    Bool(bool),
}

impl Val {
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Val::Int(dim) => dim.as_const(),
            Val::Bool(value) => Some(i64::from(*value)),
            Val::Float(_) => None,
        }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Val::Float(value) => Some(*value),
            Val::Int(dim) => dim.as_const().map(|value| value as f64),
            Val::Bool(value) => Some(f64::from(u8::from(*value))),
        }
    }

    /// Converts a value as a cast does; `None` if that needs the value of a symbol.
    pub(crate) fn cast(&self, to: DType) -> Option<Val> {
        if to.is_float() {
            let value = self.as_f64()?;
            return Some(Val::Float(round_to(value, to)));
        }
        if to == Bool {
            return match self {
                Val::Bool(value) => Some(Val::Bool(*value)),
                Val::Float(value) => Some(Val::Bool(*value != 0.0)),
                Val::Int(dim) => dim.as_const().map(|value| Val::Bool(value != 0)),
            };
        }
        match self {
            Val::Bool(value) => Some(Val::Int(i64::from(*value).into())),
            Val::Float(value) => {
                let (low, high) = to.int_range();
                let value = (value.trunc() as i128).clamp(low, high);
                i64::try_from(value).ok().map(|value| Val::Int(value.into()))
            }
            Val::Int(dim) => match dim.as_const() {
                Some(value) => wrap(value.into(), to).map(|value| Val::Int(value.into())),
                None => (to == Int64).then(|| self.clone()),
            },
        }
    }
}

/// Drops the bits that an integer type does not have.
pub(crate) fn wrap(value: i128, to: DType) -> Option<i64> {
    let (low, high) = to.int_range();
    i64::try_from((value - low).rem_euclid(high - low + 1) + low).ok()
}

/// Rounds to the nearest value of a float type.
pub(crate) fn round_to(value: f64, to: DType) -> f64 {
    match to {
        Float32 => f64::from(value as f32),
        Float16 => f16::from_f64(value).to_f64(),
        BFloat16 => bf16::from_f64(value).to_f64(),
        _ => value,
    }
}

/// Reads the element at `at` of little-endian data.
pub(crate) fn read_element(dtype: DType, data: &[u8], at: usize) -> Option<Val> {
    let size = dtype.bytes();
    let bytes = data.get(at.checked_mul(size)?..(at + 1).checked_mul(size)?)?;
    macro_rules! number {
        ($type:ty) => {
            <$type>::from_le_bytes(bytes.try_into().ok()?)
        };
    }
    Some(match dtype {
        Float64 => Val::Float(number!(f64)),
        Float32 => Val::Float(number!(f32).into()),
        Float16 => Val::Float(number!(f16).into()),
        BFloat16 => Val::Float(number!(bf16).into()),
        Int8 => Val::Int(i64::from(number!(i8)).into()),
        Int16 => Val::Int(i64::from(number!(i16)).into()),
        Int32 => Val::Int(i64::from(number!(i32)).into()),
        Int64 => Val::Int(number!(i64).into()),
        Uint8 => Val::Int(i64::from(number!(u8)).into()),
        Uint16 => Val::Int(i64::from(number!(u16)).into()),
        Uint32 => Val::Int(i64::from(number!(u32)).into()),
        Uint64 => Val::Int(i64::try_from(number!(u64)).ok()?.into()),
        Bool => Val::Bool(bytes[0] != 0),
        Float8E4M3Fn | Float8E5M2 | Int4 | Uint4 => return None,
    })
}

/// Writes known values as little-endian data; `None` if one is symbolic.
pub(crate) fn write_elements(dtype: DType, values: &[Val]) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(values.len() * dtype.bytes());
    for value in values {
        if dtype.is_float() {
            let value = value.as_f64()?;
            match dtype {
                Float64 => data.extend(value.to_le_bytes()),
                Float32 => data.extend((value as f32).to_le_bytes()),
                Float16 => data.extend(f16::from_f64(value).to_le_bytes()),
                _ => data.extend(bf16::from_f64(value).to_le_bytes()),
            }
        } else {
            data.extend(&value.as_int()?.to_le_bytes()[..dtype.bytes()]);
        }
    }
    Some(data)
}

//! Types with at most 8 bits: floats of 4 and 8 bits, integers of 2 and 4 bits.
//!
//! Stages hold the numbers themselves, as float32 or as integers of 8 bits; [`Context::narrow`]
//! says of which type they are. Inputs of the network have the codes, which a stage decodes, and
//! outputs have the codes again.

use crate::context::{Context, axes};
use crate::dim::{Dim, product};
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::{Def, T, Tensor};
use crate::node::{Node, Outcome};

/// A type with at most 8 bits that the language cannot compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    E4m3Fn,
    E4m3FnUz,
    E5m2,
    E5m2FnUz,
    E8m0,
    E2m1,
    Uint4,
    Int4,
    Uint2,
    Int2,
}

use Narrow::{E2m1, E4m3Fn, E4m3FnUz, E5m2, E5m2FnUz, E8m0, Int2, Int4, Uint2, Uint4};

/// Operators that move elements of any type.
const MOVES: &[&str] = &[
    "Concat",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// Operators that know these types.
const KNOWS: &[&str] =
    &["Cast", "CastLike", "DequantizeLinear", "If", "QuantizeLinear", "Shape", "Size"];

/// Operators of `com.microsoft` that know these types.
const KNOWS_OF_ONNXRUNTIME: &[&str] =
    &["DequantizeLinear", "GatherBlockQuantized", "QuantizeLinear"];

impl Narrow {
    /// Returns the type of a number of `TensorProto.DataType`.
    pub(crate) fn from_onnx(number: i32) -> Option<Self> {
        Some(match number {
            17 => E4m3Fn,
            18 => E4m3FnUz,
            19 => E5m2,
            20 => E5m2FnUz,
            21 => Uint4,
            22 => Int4,
            23 => E2m1,
            24 => E8m0,
            25 => Uint2,
            26 => Int2,
            _ => return None,
        })
    }

    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            E4m3Fn => "float8e4m3fn",
            E4m3FnUz => "float8e4m3fnuz",
            E5m2 => "float8e5m2",
            E5m2FnUz => "float8e5m2fnuz",
            E8m0 => "float8e8m0",
            E2m1 => "float4e2m1",
            Uint4 => "uint4",
            Int4 => "int4",
            Uint2 => "uint2",
            Int2 => "int2",
        }
    }

    pub(crate) fn bits(self) -> usize {
        match self {
            E2m1 | Uint4 | Int4 => 4,
            Uint2 | Int2 => 2,
            _ => 8,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        !matches!(self, Uint4 | Int4 | Uint2 | Int2)
    }

    /// The type of the numbers in stages.
    pub(crate) fn carrier(self) -> DType {
        match self {
            Uint4 | Uint2 => DType::Uint8,
            Int4 | Int2 => DType::Int8,
            _ => DType::Float32,
        }
    }

    /// The least and the greatest integer.
    pub(crate) fn int_range(self) -> (i64, i64) {
        let half = 1 << (self.bits() - 1);
        if self.carrier() == DType::Int8 { (-half, half - 1) } else { (0, 2 * half - 1) }
    }

    /// The element type of arguments, which have the codes.
    fn argument(self) -> DType {
        match self {
            E4m3Fn => DType::Float8E4M3Fn,
            E5m2 => DType::Float8E5M2,
            Int4 => DType::Int4,
            Uint4 | E2m1 => DType::Uint4,
            E4m3FnUz | E5m2FnUz | E8m0 | Uint2 | Int2 => DType::Uint8,
        }
    }

    /// The functions of the library for this type: the number of a code, the code of a number.
    fn functions(self) -> (&'static str, &'static str) {
        match self {
            E4m3FnUz => ("narrow.e4m3fnuz_value", "narrow.e4m3fnuz_code"),
            E5m2FnUz => ("narrow.e5m2fnuz_value", "narrow.e5m2fnuz_code"),
            E8m0 => ("narrow.e8m0_value", "narrow.e8m0_code"),
            _ => ("narrow.e2m1_value", "narrow.e2m1_code"),
        }
    }

    /// The number of a code, exact in float32.
    fn value(self, code: u8) -> f32 {
        // Sign, exponent and fraction; the exponent of the least normal number.
        let parts = |fraction: u32, least: i32| {
            let sign = if code >> (self.bits() - 1) == 1 { -1.0 } else { 1.0 };
            let code = u32::from(code) % (1 << (self.bits() - 1));
            let (exponent, fraction_bits) = (code >> fraction, code % (1 << fraction));
            let unit = 2_f32.powi(least - fraction as i32);
            if exponent == 0 {
                sign * fraction_bits as f32 * unit
            } else {
                let significand = ((1 << fraction) + fraction_bits) as f32;
                sign * significand * unit * 2_f32.powi(exponent as i32 - 1)
            }
        };
        match self {
            E4m3Fn if code % 128 == 127 => f32::NAN,
            E5m2 if code % 128 == 124 => parts(2, -14).signum() * f32::INFINITY,
            E5m2 if code % 128 > 124 => f32::NAN,
            E4m3FnUz | E5m2FnUz if code == 128 => f32::NAN,
            E4m3Fn => parts(3, -6),
            E5m2 => parts(2, -14),
            E4m3FnUz => parts(3, -7),
            E5m2FnUz => parts(2, -15),
            E2m1 => parts(1, 0),
            E8m0 if code == 255 => f32::NAN,
            E8m0 => (f64::from(code) - 127.0).exp2() as f32,
            Uint4 | Int4 | Uint2 | Int2 => 0.0,
        }
    }

    /// Returns the numbers of packed codes, as the elements of the carrier.
    pub(crate) fn decode(self, packed: &[u8], count: usize) -> Vec<u8> {
        let per_byte = 8 / self.bits();
        let mask = (1_u16 << self.bits()) - 1;
        let code = |at: usize| {
            let byte = packed.get(at / per_byte).copied().unwrap_or(0);
            ((u16::from(byte) >> (self.bits() * (at % per_byte))) & mask) as u8
        };
        let codes = (0..count).map(code);
        if self.is_float() {
            return codes.flat_map(|code| self.value(code).to_le_bytes()).collect();
        }
        let half = 1 << (self.bits() - 1);
        let signed = self.carrier() == DType::Int8;
        codes.map(|code| if signed { (code ^ half).wrapping_sub(half) } else { code }).collect()
    }
}

/// How a float becomes a number of a type of 8 bits.
pub(crate) struct Rounding<'a> {
    /// Whether what is too large becomes the greatest number.
    pub(crate) saturate: bool,
    /// `up`, `down` or `nearest`, for powers of two.
    pub(crate) mode: &'a str,
}

impl<'a> Rounding<'a> {
    pub(crate) fn of(node: &Node<'a>) -> Outcome<Self> {
        let mode = node.text("round_mode", "up");
        if !["up", "down", "nearest"].contains(&mode) {
            return Err(format!("the rounding mode `{mode}` is unknown").into());
        }
        Ok(Rounding { saturate: node.flag("saturate", true), mode })
    }
}

impl Narrow {
    /// Rounds an element of a type to a number of this one.
    pub(crate) fn round(self, x: E, dtype: DType, rounding: &Rounding) -> E {
        if !self.is_float() {
            // Bits that do not fit are dropped.
            let x = if dtype == DType::Int32 { x } else { x.cast(DType::Int32) };
            let int = |value: i64| E::int(value, DType::Int32);
            let (low, high) = self.int_range();
            let bits = x.bin("&", int(high - low));
            let value = if low == 0 { bits } else { bits.bin("^", int(-low)).bin("-", int(-low)) };
            return value.cast(self.carrier());
        }
        // Integers are exact in one of these types, or far beyond all numbers.
        let x = match dtype {
            _ if self == E8m0 && dtype != DType::Float32 => x.cast(DType::Float32),
            DType::Bool | DType::Int8 | DType::Uint8 | DType::Int16 | DType::Uint16 => {
                x.cast(DType::Float32)
            }
            _ if dtype.is_int() => x.cast(DType::Float64),
            _ => x,
        };
        if self == E8m0 {
            let exponent = match rounding.mode {
                "down" => "narrow.e8m0_down",
                "nearest" => "narrow.e8m0_nearest",
                _ => "narrow.e8m0_up",
            };
            let name = if rounding.saturate { "narrow.e8m0_saturated" } else { "narrow.e8m0" };
            return E::call(name, [E::call(exponent, [x.clone()]), x]);
        }
        let name = match (self, rounding.saturate) {
            (E4m3Fn, false) => "narrow.e4m3fn",
            (E4m3Fn, true) => "narrow.e4m3fn_saturated",
            (E5m2, false) => "narrow.e5m2",
            (E5m2, true) => "narrow.e5m2_saturated",
            (E4m3FnUz, false) => "narrow.e4m3fnuz",
            (E4m3FnUz, true) => "narrow.e4m3fnuz_saturated",
            (E5m2FnUz, false) => "narrow.e5m2fnuz",
            (E5m2FnUz, true) => "narrow.e5m2fnuz_saturated",
            _ => "narrow.e2m1",
        };
        E::call(name, [x])
    }
}

impl Context {
    pub(crate) fn narrow(&self, tensor: T) -> Option<Narrow> {
        self.narrow.get(&tensor).copied()
    }

    /// Converts a tensor to a type with at most 8 bits.
    pub(crate) fn narrowed(&mut self, x: T, to: Narrow, rounding: &Rounding) -> Outcome<T> {
        if self.narrow(x) == Some(to) {
            return Ok(x);
        }
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let body = to.round(self.load(x, axes(&shape)), dtype, rounding);
        let tensor = self.compute("", to.carrier(), shape, body)?;
        self.narrow.insert(tensor, to);
        Ok(tensor)
    }

    /// Returns the numbers of a tensor of such a type as a tensor of another type.
    pub(crate) fn widened(&mut self, x: T, to: DType) -> Outcome<T> {
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        if dtype != to {
            return self.cast("", x, to);
        }
        let name = self.hint.clone();
        let body = self.load(x, axes(&shape));
        let def = Def::Compute { body, reduce: None };
        Ok(self.graph.push(Tensor { name, dtype, shape, def, vals: None }))
    }

    /// Refuses operators that do not know the types of their operands.
    pub(crate) fn check_narrow(&self, domain: &str, node: &Node) -> Outcome<()> {
        let known = match domain {
            "" => MOVES.contains(&node.op) || KNOWS.contains(&node.op),
            "com.microsoft" => KNOWS_OF_ONNXRUNTIME.contains(&node.op),
            _ => false,
        };
        match node.inputs.iter().flatten().find_map(|input| self.narrow(*input)) {
            Some(own) if !known => {
                Err(format!("the element type {} is not supported", own.name()).into())
            }
            _ => Ok(()),
        }
    }

    /// Gives the results of an operator that moves elements the type of its operand.
    pub(crate) fn move_narrow(&mut self, node: &Node, values: &[T]) -> Outcome<()> {
        if !MOVES.contains(&node.op) {
            return Ok(());
        }
        let Some(own) = node.optional(0).and_then(|input| self.narrow(input)) else {
            return Ok(());
        };
        let parts = if node.op == "Concat" { &node.inputs[..] } else { &[] };
        if parts.iter().flatten().any(|part| self.narrow(*part) != Some(own)) {
            return Err("the operands have different types".into());
        }
        self.narrow.extend(values.iter().map(|value| (*value, own)));
        Ok(())
    }

    /// The element type and the shape of an argument with the codes of a tensor. Those of 2 bits
    /// have one dimension, and so have those of 4 bits whose rows have an odd number of elements.
    fn argument_of(&self, own: Narrow, shape: &[Dim]) -> Outcome<Vec<Dim>> {
        let refuse = || format!("the element type {} needs constant extents", own.name());
        match own.bits() {
            4 if shape.len() > 1 => {
                let even = shape[shape.len() - 1].as_const().is_some_and(|last| last % 2 == 0);
                if even {
                    return Ok(shape.to_vec());
                }
                let count = product(shape);
                if count.as_extent().is_some() { Ok(vec![count]) } else { Err(refuse().into()) }
            }
            2 => {
                let count = product(shape).as_const().ok_or_else(refuse)?;
                Ok(vec![Dim::from(count.div_euclid(4) + i64::from(count % 4 != 0))])
            }
            _ => Ok(shape.to_vec()),
        }
    }

    /// Declares an input of the network with the codes, and returns it and the numbers.
    pub(crate) fn narrow_input(
        &mut self,
        name: &str,
        own: Narrow,
        shape: Vec<Dim>,
    ) -> Outcome<(T, T)> {
        let argument = self.argument_of(own, &shape)?;
        let input = self.graph.push(Tensor {
            name: name.to_string(),
            dtype: own.argument(),
            shape: argument.clone(),
            def: Def::Input,
            vals: None,
        });
        let axes = axes(&shape);
        let flat = flat(&shape, &axes);
        let int = |value: i64| E::int(value, DType::Int32);
        let value = match own {
            Uint2 | Int2 => {
                let shift = E::dim(&(flat.rem(&4.into()) * 2), DType::Int32);
                let byte = self.load(input, [flat.div(&4.into())]).cast(DType::Int32);
                own.round(byte.bin(">>", shift).bin("&", int(3)), DType::Int32, &WRAPPED)
            }
            _ => {
                let code = if argument == shape {
                    self.load(input, axes)
                } else {
                    self.load(input, [flat])
                };
                match own {
                    E4m3Fn | E5m2 | Int4 | Uint4 => code.cast(own.carrier()),
                    _ => E::call(own.functions().0, [code.cast(DType::Int32)]),
                }
            }
        };
        self.hint = name.to_string();
        let values = self.compute("values", own.carrier(), shape, value)?;
        self.narrow.insert(values, own);
        Ok((input, values))
    }

    /// Defines an output of the network with the codes of a tensor.
    pub(crate) fn narrow_output(&mut self, name: &str, own: Narrow, x: T) -> Outcome<T> {
        let shape = self.shape(x);
        let argument = self.argument_of(own, &shape)?;
        let places = axes(&argument);
        let code = match own {
            Uint2 | Int2 => {
                let count = product(&shape).as_const().unwrap_or(0);
                let flat = axes(&[argument[0].clone() * 4]);
                let load = self.load(x, unflatten(&shape, &flat[0]));
                let zero = E::int(0, own.carrier());
                let inside = E::Idx(flat[0].clone()).bin("<", E::Idx(count.into()));
                let body = if count % 4 == 0 { load } else { inside.choose(load, zero) };
                let part = self.hint.clone();
                self.hint = name.to_string();
                let flat =
                    self.compute("flat", own.carrier(), vec![argument[0].clone() * 4], body)?;
                self.hint = part;
                let part = |at: i64| self.load(flat, [places[0].clone() * 4 + at]);
                E::call("narrow.packed", (0..4).map(part).collect::<Vec<E>>())
            }
            _ => {
                let value = if argument == shape {
                    self.load(x, places)
                } else {
                    self.load(x, unflatten(&shape, &places[0]))
                };
                match own {
                    E4m3Fn | E5m2 | Int4 | Uint4 => value.cast(own.argument()),
                    _ => E::call(own.functions().1, [value]),
                }
            }
        };
        self.hint = name.to_string();
        self.compute("", own.argument(), argument, code)
    }
}

const WRAPPED: Rounding = Rounding { saturate: true, mode: "up" };

/// The place of an element in row-major order.
fn flat(shape: &[Dim], at: &[Dim]) -> Dim {
    shape.iter().zip(at).fold(Dim::zero(), |flat, (extent, axis)| &flat * extent + axis)
}

/// The indices of an element by its place in row-major order.
fn unflatten(shape: &[Dim], flat: &Dim) -> Vec<Dim> {
    let mut index = vec![Dim::zero(); shape.len()];
    let mut rest = flat.clone();
    for (at, extent) in shape.iter().enumerate().rev() {
        // Places behind the last element are not read.
        index[at] = if at == 0 { rest.clone() } else { rest.rem(extent) };
        rest = rest.div(extent);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_decoded() {
        let values = |own: Narrow, codes: &[u8]| -> Vec<f32> {
            let bytes = own.decode(codes, codes.len() * (8 / own.bits()));
            bytes.chunks(4).map(|one| f32::from_le_bytes(one.try_into().unwrap())).collect()
        };
        assert_eq!(values(E4m3Fn, &[0, 1, 0x38, 0x7e, 0xb8]), [0.0, 0.001953125, 1.0, 448.0, -1.0]);
        assert!(values(E4m3Fn, &[0x7f])[0].is_nan());
        assert_eq!(
            values(E5m2, &[1, 0x3c, 0x7b, 0xfc]),
            [2_f32.powi(-16), 1.0, 57344.0, -1.0 / 0.0]
        );
        assert_eq!(values(E4m3FnUz, &[1, 0x40, 0x7f]), [2_f32.powi(-10), 1.0, 240.0]);
        assert_eq!(values(E5m2FnUz, &[1, 0x40, 0xff]), [2_f32.powi(-17), 1.0, -57344.0]);
        assert!(values(E5m2FnUz, &[0x80])[0].is_nan());
        assert_eq!(values(E8m0, &[0, 127, 254]), [2_f32.powi(-127), 1.0, 2_f32.powi(127)]);
        assert_eq!(values(E2m1, &[0x10, 0xf7]), [0.0, 0.5, 6.0, -6.0]);
        assert_eq!(Int4.decode(&[0x8f, 0x07], 3), [0xff, 0xf8, 7]);
        assert_eq!(Uint2.decode(&[0b11_10_01_00], 4), [0, 1, 2, 3]);
        assert_eq!(Int2.decode(&[0b11_10_01_00], 4), [0, 1, 0xfe, 0xff]);
    }
}

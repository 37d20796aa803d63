//! Values that the caller gives for inputs, which become parameters.

use bytes::Bytes;

use crate::Frozen;
use crate::dtype::{DType, Val, write_elements};
use crate::error::short;
use crate::narrow::Narrow;
use crate::proto::tensor_shape_proto::Dimension;
use crate::proto::tensor_shape_proto::dimension::Value::{DimParam, DimValue};
use crate::proto::{ValueInfoProto, type_proto};
use crate::reader::{Constant, data_bytes};

/// The largest number of elements that one number is given for.
const MAX_ELEMENTS: usize = 1 << 24;

/// Returns the constant in place of an input; `dims` are the values of named dimensions.
///
/// # Errors
///
/// The error says what the input is, and why the value cannot be its value.
pub(crate) fn constant(
    info: &ValueInfoProto,
    value: &Frozen,
    dims: &[(String, u64)],
) -> Result<Constant, String> {
    let (dtype, shape, data) = match value {
        Frozen::Elements { dtype, shape, data } => {
            if data_bytes(*dtype, shape) != Some(data.len()) {
                return Err("has a value that disagrees with its own shape".to_string());
            }
            if let Some(declared) = disagrees(info, *dtype, shape) {
                let found = type_text(*dtype, shape.iter().map(u64::to_string));
                return Err(format!("is {declared}, but the value given for it is {found}"));
            }
            (*dtype, shape.clone(), data.clone())
        }
        Frozen::Number(text) => of_number(info, text, dims)?,
    };
    Ok(Constant { narrow: None, dtype, shape, data })
}

/// Returns an array of the declared type and shape with the same number everywhere.
fn of_number(
    info: &ValueInfoProto,
    text: &str,
    dims: &[(String, u64)],
) -> Result<(DType, Vec<u64>, Bytes), String> {
    let declared = info.r#type.as_ref().and_then(|own| own.value.as_ref());
    let tensor = match declared {
        Some(type_proto::Value::TensorType(tensor)) => tensor,
        _ => return Err("is no tensor".to_string()),
    };
    let dtype = DType::from_onnx(tensor.elem_type.unwrap_or(0))
        .map_err(|_| "has a type that one number cannot be given for: give a file".to_string())?;
    let extents = tensor.shape.as_ref().map_or(&[][..], |shape| &shape.dim);
    let extent = |dim: &Dimension| match &dim.value {
        Some(DimValue(own)) => u64::try_from(*own).ok(),
        Some(DimParam(name)) => dims.iter().find(|(own, _)| own == name).map(|(_, value)| *value),
        None => None,
    };
    let shape: Option<Vec<u64>> = extents.iter().map(extent).collect();
    let known = shape.filter(|_| tensor.shape.is_some());
    let Some(shape) = known else {
        let declared = type_text(dtype, extents.iter().map(extent_text));
        return Err(format!(
            "is {declared}: one number can be given for an input of constant extents only; give a \
             file, or values of its dimensions"
        ));
    };
    let bytes = data_bytes(dtype, &shape).filter(|n| n / dtype.bytes() <= MAX_ELEMENTS);
    let Some(bytes) = bytes else {
        return Err(format!("has more than {MAX_ELEMENTS} elements: give a file"));
    };
    let element = parse(text, dtype).and_then(|value| write_elements(dtype, &[value]));
    let Some(element) = element else {
        let dtype = dtype.name();
        return Err(format!("has elements of type {dtype}, and `{}` is none", short(text)));
    };
    Ok((dtype, shape, element.repeat(bytes / dtype.bytes()).into()))
}

/// Returns the value of a number, `true` or `false`, if the type has it.
fn parse(text: &str, dtype: DType) -> Option<Val> {
    if dtype == DType::Bool {
        return match text {
            "true" | "1" => Some(Val::Bool(true)),
            "false" | "0" => Some(Val::Bool(false)),
            _ => None,
        };
    }
    if dtype.is_float() {
        return text.parse().ok().map(Val::Float);
    }
    let value = Val::Int(text.parse::<i64>().ok()?.into());
    // A conversion that changes the value wraps around.
    let same = value.cast(dtype)?.as_int() == value.as_int();
    same.then_some(value)
}

/// Returns the declared type of an input if a value does not have it.
fn disagrees(info: &ValueInfoProto, found: DType, shape: &[u64]) -> Option<String> {
    let declared = info.r#type.as_ref().and_then(|own| own.value.as_ref());
    let Some(type_proto::Value::TensorType(tensor)) = declared else { return None };
    let number = tensor.elem_type.unwrap_or(0);
    let dtype = match DType::from_onnx(number) {
        Ok(dtype) => dtype,
        Err(_) => return Narrow::from_onnx(number).map(|own| own.name().to_string()),
    };
    let Some(declared) = &tensor.shape else {
        return (dtype != found).then(|| dtype.name().to_string());
    };
    let fits = |(dim, extent): (&Dimension, &u64)| match &dim.value {
        Some(DimValue(own)) if *own >= 0 => *own as u64 == *extent,
        _ => true,
    };
    let same = dtype == found
        && declared.dim.len() == shape.len()
        && declared.dim.iter().zip(shape).all(fits);
    (!same).then(|| type_text(dtype, declared.dim.iter().map(extent_text)))
}

fn extent_text(dim: &Dimension) -> String {
    match &dim.value {
        Some(DimValue(own)) if *own >= 0 => own.to_string(),
        Some(DimParam(symbol)) if !symbol.is_empty() => short(symbol).to_string(),
        _ => "?".to_string(),
    }
}

/// `float32[batch, 4]`.
fn type_text(dtype: DType, extents: impl Iterator<Item = String>) -> String {
    let extents: Vec<String> = extents.collect();
    format!("{}[{}]", dtype.name(), extents.join(", "))
}

//! Operators of the domain `ai.onnx.ml`, as scikit-learn models have them.

mod classify;
mod features;
mod linear;
mod svm;
mod trees;

use bytes::Bytes;

use crate::context::{Context, axes};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::Handler;

/// The operators of `ai.onnx.ml`.
pub(super) const TABLE: &[(&str, Handler)] = &[
    ("ArrayFeatureExtractor", features::array_feature_extractor),
    ("Binarizer", features::binarizer),
    ("FeatureVectorizer", features::feature_vectorizer),
    ("Imputer", features::imputer),
    ("LabelEncoder", features::label_encoder),
    ("LinearClassifier", linear::classifier),
    ("LinearRegressor", linear::regressor),
    ("Normalizer", features::normalizer),
    ("OneHotEncoder", features::one_hot_encoder),
    ("SVMClassifier", svm::classifier),
    ("SVMRegressor", svm::regressor),
    ("Scaler", features::scaler),
    ("TreeEnsemble", trees::ensemble),
    ("TreeEnsembleClassifier", trees::classifier),
    ("TreeEnsembleRegressor", trees::regressor),
    ("ZipMap", features::zip_map),
];

/// The rows of an operand, as a matrix of floats: float64 stays, other types become float32.
fn matrix(cx: &mut Context, x: T) -> Outcome<T> {
    let x = match cx.rank(x) {
        2 => x,
        1 => {
            let shape = vec![1.into(), cx.shape(x)[0].clone()];
            super::movement::reshape_to(cx, "row", x, shape)?
        }
        _ => return Err("the operand must have one or two dimensions".into()),
    };
    let dtype = if cx.dtype(x) == DType::Float64 { DType::Float64 } else { DType::Float32 };
    cx.cast("floats", x, dtype)
}

/// A parameter of floats of a type.
fn floats(cx: &mut Context, part: &str, dtype: DType, shape: &[usize], v: &[f64]) -> Outcome<T> {
    if shape.iter().product::<usize>() != v.len() {
        return Err("an attribute has a wrong number of elements".into());
    }
    let data: Vec<u8> = match dtype {
        DType::Float64 => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
        _ => v.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
    };
    cx.data(part, dtype, extents(shape), Bytes::from(data))
}

/// A parameter of int32 with one dimension.
fn ints(cx: &mut Context, part: &str, values: &[i32]) -> Outcome<T> {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    cx.data(part, DType::Int32, extents(&[values.len()]), Bytes::from(data))
}

fn flags(cx: &mut Context, part: &str, values: &[bool]) -> Outcome<T> {
    let data: Vec<u8> = values.iter().map(|v| u8::from(*v)).collect();
    cx.data(part, DType::Bool, extents(&[values.len()]), Bytes::from(data))
}

fn extents(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|n| Dim::from(*n as i64)).collect()
}

/// A list of floats, or of the tensor attribute beside it.
fn numbers(cx: &Context, node: &Node, name: &str) -> Outcome<Option<Vec<f64>>> {
    if let Some(tensor) = node.tensor(&format!("{name}_as_tensor")).or_else(|| node.tensor(name)) {
        let value = crate::reader::constant(tensor, &cx.folder)?;
        let len = value.data.len() / value.dtype.bytes();
        let read = |at| crate::dtype::read_element(value.dtype, &value.data, at);
        let list: Option<Vec<f64>> = (0..len).map(|at| read(at)?.as_f64()).collect();
        return list.map(Some).ok_or_else(|| "an attribute is no list of numbers".into());
    }
    let list = node.floats(name).filter(|list| !list.is_empty());
    Ok(list.map(|list| list.iter().map(|v| f64::from(*v)).collect()))
}

/// Adds a row of numbers to a matrix.
fn add_row(cx: &mut Context, part: &str, x: T, row: &[f64]) -> Outcome<T> {
    if row.is_empty() || row.iter().all(|v| *v == 0.0) {
        return Ok(x);
    }
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let b = floats(cx, &format!("{part}_row"), dtype, &[row.len()], row)?;
    if row.len() != 1 {
        cx.require_equal(&shape[1], &(row.len() as i64).into())?;
    }
    let own = axes(&shape);
    let column = if row.len() == 1 { Dim::zero() } else { own[1].clone() };
    let body = cx.load(x, own).bin("+", cx.load(b, [column]));
    cx.compute(part, dtype, shape, body)
}

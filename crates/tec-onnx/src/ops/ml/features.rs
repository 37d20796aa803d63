//! Operators that change columns of features.

use super::{floats, numbers};
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::gather::place;
use crate::ops::movement::concat_along;

/// A list with one element for all columns, or one for each: the element of the last axis.
fn of_column(cx: &mut Context, part: &str, x: T, dtype: DType, list: &[f64]) -> Outcome<E> {
    let shape = cx.shape(x);
    let last = shape.last().cloned().ok_or("the operand has no columns")?;
    if let [value] = list {
        return Ok(E::num(*value, dtype));
    }
    cx.require_equal(&last, &(list.len() as i64).into())?;
    let column = Dim::axis(shape.len() - 1, &last);
    let table = if dtype.is_float() {
        floats(cx, part, dtype, &[list.len()], list)?
    } else {
        let vals = list.iter().map(|v| Val::Int((*v as i64).into())).collect();
        cx.known(part, dtype, vec![(list.len() as i64).into()], vals)?
    };
    Ok(cx.load(table, [column]))
}

pub(super) fn scaler(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = if cx.dtype(x) == DType::Float64 { DType::Float64 } else { DType::Float32 };
    let x = cx.cast("floats", x, dtype)?;
    let shape = cx.shape(x);
    let mut body = cx.load(x, axes(&shape));
    if let Some(offset) = numbers(cx, node, "offset")? {
        body = body.bin("-", of_column(cx, "offset", x, dtype, &offset)?);
    }
    if let Some(scale) = numbers(cx, node, "scale")? {
        body = body.bin("*", of_column(cx, "scale", x, dtype, &scale)?);
    }
    let scaled = cx.compute("scaled", dtype, shape, body)?;
    Ok(vec![cx.cast("", scaled, DType::Float32)?])
}

pub(super) fn binarizer(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let threshold = node.float("threshold", 0.0);
    let y = cx.elementwise("", dtype, &[x], |mut x| {
        let value = x.remove(0);
        let is_above = match dtype {
            DType::Float64 => value.bin(">", E::float(threshold, dtype)),
            _ => value.cast(DType::Float32).bin(">", E::float(threshold, DType::Float32)),
        };
        is_above.choose(E::num(1.0, dtype), E::num(0.0, dtype))
    })?;
    Ok(vec![y])
}

pub(super) fn imputer(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let own = cx.load(x, axes(&shape));
    let (values, is_missing) = if dtype.is_float() {
        let values = numbers(cx, node, "imputed_value_floats")?.ok_or("no values are given")?;
        let missing = node.float("replaced_value_float", 0.0);
        let is_missing = if missing.is_nan() {
            E::call("is_nan", [own.clone()])
        } else {
            own.clone().bin("==", E::float(missing, dtype))
        };
        (values, is_missing)
    } else {
        let values = node.ints("imputed_value_int64s").ok_or("no values are given")?;
        let missing = E::int(node.int("replaced_value_int64", 0), dtype);
        (values.iter().map(|v| *v as f64).collect(), own.clone().bin("==", missing))
    };
    let value = of_column(cx, "values", x, dtype, &values)?;
    Ok(vec![cx.compute("", dtype, shape, is_missing.choose(value, own))?])
}

pub(super) fn normalizer(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = if cx.dtype(x) == DType::Float64 { DType::Float64 } else { DType::Float32 };
    let x = cx.cast("floats", x, dtype)?;
    let shape = cx.shape(x);
    let Some((last, front)) = shape.split_last() else {
        return Err("the operand has no columns".into());
    };
    let mut at = axes(front);
    at.push(reduce_axis(0, last));
    let term = cx.load(x, at);
    let (kind, term) = match node.text("norm", "MAX") {
        "MAX" => ("max", term),
        "L1" => ("sum", E::call("abs", [term])),
        "L2" => ("sum", term.clone().bin("*", term)),
        _ => return Err("the norm is not supported".into()),
    };
    let norm = cx.fold("norm", kind, dtype, front.to_vec(), vec![last.clone()], term)?;
    let own = axes(&shape);
    let mut total = cx.load(norm, own[..front.len()].to_vec());
    let is_zero = total.clone().bin("==", E::num(0.0, dtype));
    if node.text("norm", "MAX") == "L2" {
        total = E::call("sqrt", [total]);
    }
    let value = cx.load(x, own);
    let body = is_zero.choose(value.clone(), value.bin("/", total));
    let y = cx.compute("normalized", dtype, shape, body)?;
    Ok(vec![cx.cast("", y, DType::Float32)?])
}

pub(super) fn array_feature_extractor(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let shape = cx.shape(x);
    let count = crate::dim::product(&cx.shape(indices));
    let indices = crate::ops::movement::reshape_to(cx, "indices", indices, vec![count.clone()])?;
    let Some((last, front)) = shape.split_last() else {
        return Err("the operand has no columns".into());
    };
    let mut to = if front.is_empty() { vec![1.into()] } else { front.to_vec() };
    to.push(count);
    let own = axes(&to);
    let column = E::Idx(own[own.len() - 1].clone());
    let mut index: Vec<E> = own[..front.len()].iter().cloned().map(E::Idx).collect();
    index.push(place(cx, indices, vec![column], last));
    let dtype = cx.dtype(x);
    Ok(vec![cx.compute("", dtype, to, cx.load_at(x, index))?])
}

pub(super) fn feature_vectorizer(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let mut parts = Vec::new();
    for at in 0..node.inputs.len() {
        let x = node.input(at)?;
        let x = match cx.rank(x) {
            2 => x,
            1 => {
                let to = vec![cx.shape(x)[0].clone(), 1.into()];
                crate::ops::movement::reshape_to(cx, "column", x, to)?
            }
            _ => return Err("the operands must have one or two dimensions".into()),
        };
        parts.push(cx.cast("floats", x, DType::Float32)?);
    }
    Ok(vec![concat_along(cx, "", &parts, 1)?])
}

/// The keys or values of an encoder: their type and numbers.
fn encoded(cx: &Context, node: &Node, name: &str) -> Outcome<Option<(DType, Vec<f64>)>> {
    let own = |kind: &str| node.attribute(&format!("{name}_{kind}"));
    if own("strings").is_some_and(|a| !a.strings.is_empty()) {
        return Err("strings are not supported".into());
    }
    if let Some(list) = node.ints(&format!("{name}_int64s")).filter(|list| !list.is_empty()) {
        return Ok(Some((DType::Int64, list.iter().map(|v| *v as f64).collect())));
    }
    if let Some(tensor) = node.tensor(&format!("{name}_tensor")) {
        let value = crate::reader::constant(tensor, &cx.folder)?;
        let len = value.data.len() / value.dtype.bytes();
        let read = |at| crate::dtype::read_element(value.dtype, &value.data, at);
        let list: Option<Vec<f64>> = (0..len).map(|at| read(at)?.as_f64()).collect();
        let list = list.ok_or("an attribute is no list of numbers")?;
        return Ok(Some((value.dtype, list)));
    }
    let list = numbers(cx, node, &format!("{name}_floats"))?;
    Ok(list.map(|list| (DType::Float32, list)))
}

pub(super) fn label_encoder(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, own) = (cx.shape(x), cx.dtype(x));
    let (_, keys) = encoded(cx, node, "keys")?.ok_or("the keys are missing")?;
    let (dtype, values) = encoded(cx, node, "values")?.ok_or("the values are missing")?;
    if keys.len() != values.len() || keys.is_empty() {
        return Err("the numbers of keys and values differ".into());
    }
    if keys.iter().chain(&values).any(|v| v.abs() > 9e15) {
        return Err("keys and values beyond 2^53 are not supported".into());
    }
    let default = match (node.tensor("default_tensor"), dtype) {
        (Some(tensor), _) => {
            let value = crate::reader::constant(tensor, &cx.folder)?;
            let read = crate::dtype::read_element(value.dtype, &value.data, 0);
            read.and_then(|v| v.as_f64()).ok_or("the default is no number")?
        }
        (None, DType::Int64) => node.int("default_int64", -1) as f64,
        (None, _) => node.float("default_float", -0.0),
    };
    let list = |cx: &mut Context, part: &str, dtype: DType, list: &[f64]| {
        let val = |v: &f64| match dtype.is_float() {
            true => Val::Float(*v),
            false => Val::Int((*v as i64).into()),
        };
        cx.known(part, dtype, vec![(list.len() as i64).into()], list.iter().map(val).collect())
    };
    let table = list(cx, "keys", own, &keys)?;
    let results = list(cx, "values", dtype, &values)?;
    // The number of the key, or -1.
    let k = reduce_axis(0, &(keys.len() as i64).into());
    let key = cx.load(table, [k.clone()]);
    let element = cx.load(x, axes(&shape));
    let mut is_equal = element.clone().bin("==", key.clone());
    if own.is_float() && keys.iter().any(|key| key.is_nan()) {
        let both = E::call("is_nan", [element]).bin("and", E::call("is_nan", [key]));
        is_equal = is_equal.bin("or", both);
    }
    let reduce = crate::graph::Reduce {
        kind: "max",
        extents: vec![(keys.len() as i64).into()],
        condition: Some(is_equal),
        init: Some(E::int(-1, DType::Int64)),
    };
    let number = E::dim(&k, DType::Int64);
    let at = cx.reduce("number", DType::Int64, shape.clone(), number, reduce)?;
    let at = cx.load(at, axes(&shape));
    let last = keys.len() as i64 - 1;
    let is_unknown = at.clone().bin("<", E::int(0, DType::Int64));
    let at = E::call("clamp", [at, E::int(0, DType::Int64), E::int(last, DType::Int64)]);
    let body = is_unknown.choose(E::num(default, dtype), cx.load_at(results, vec![at]));
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

pub(super) fn one_hot_encoder(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    if node.attribute("cats_strings").is_some_and(|a| !a.strings.is_empty()) {
        return Err("strings are not supported".into());
    }
    let categories = node.ints("cats_int64s").filter(|list| !list.is_empty());
    let categories = categories.ok_or("the categories are missing")?;
    let mut to = cx.shape(x);
    let count = Dim::from(categories.len() as i64);
    let vals = categories.iter().map(|v| Val::Int((*v).into())).collect();
    let table = cx.known("categories", DType::Int64, vec![count.clone()], vals)?;
    to.push(count);
    let own = axes(&to);
    let (column, front) = (own[own.len() - 1].clone(), own[..own.len() - 1].to_vec());
    let value = cx.load(x, front);
    let value = if cx.dtype(x) == DType::Int64 { value } else { value.cast(DType::Int64) };
    let is_equal = value.bin("==", cx.load(table, [column]));
    let [one, zero] = [1.0, 0.0].map(|v| E::num(v, DType::Float32));
    Ok(vec![cx.compute("", DType::Float32, to, is_equal.choose(one, zero))?])
}

/// The maps of a row from each label to its score are the row of scores.
pub(super) fn zip_map(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    Ok(vec![cx.elementwise("", dtype, &[x], |mut x| x.remove(0))?])
}

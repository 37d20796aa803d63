//! Constants, and operators on shapes.

use crate::context::{Context, axes};
use crate::dim::{Dim, product};
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome, Refusal};
use crate::ratio::fraction;
use crate::reader::constant as read;

pub(crate) fn constant(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    if let Some(tensor) = node.tensor("value") {
        let value = read(tensor, &cx.folder)?;
        return Ok(vec![cx.constant("", value)?]);
    }
    let float = |value: f32| Val::Float(value.into());
    let (dtype, shape, vals) = if let Some(value) = node.attribute("value_int") {
        (DType::Int64, vec![], vec![Val::Int(value.i.unwrap_or(0).into())])
    } else if let Some(value) = node.attribute("value_float") {
        (DType::Float32, vec![], vec![float(value.f.unwrap_or(0.0))])
    } else if let Some(values) = node.ints("value_ints") {
        let vals: Vec<Val> = values.iter().map(|v| Val::Int((*v).into())).collect();
        (DType::Int64, vec![vals.len()], vals)
    } else if let Some(values) = node.floats("value_floats") {
        let vals: Vec<Val> = values.iter().map(|v| float(*v)).collect();
        (DType::Float32, vec![vals.len()], vals)
    } else {
        return Err("strings and sparse tensors are not supported".into());
    };
    let shape = shape.into_iter().map(|n: usize| Dim::from(n as i64)).collect();
    Ok(vec![cx.known("", dtype, shape, vals)?])
}

pub(crate) fn shape(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let shape = cx.shape(node.input(0)?);
    let rank = shape.len() as i64;
    let clip =
        |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (clip(node.int("start", 0)), clip(node.int("end", rank)));
    let dims = if start < end { &shape[start..end] } else { &[] };
    Ok(vec![cx.known_ints("", dims)?])
}

pub(crate) fn size(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let count = product(&cx.shape(node.input(0)?));
    if count.is_poison() {
        return Err("the number of elements overflows".into());
    }
    Ok(vec![cx.known("", DType::Int64, vec![], vec![Val::Int(count)])?])
}

pub(crate) fn constant_of_shape(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let declared = cx.declared(0);
    let shape = cx.declared_dims(node.input(0)?, "the shape", declared)?;
    let mut narrow = None;
    let (dtype, value) = match node.tensor("value") {
        None => (DType::Float32, Val::Float(0.0)),
        Some(tensor) => {
            let constant = read(tensor, &cx.folder)?;
            narrow = constant.narrow;
            let value = crate::dtype::read_element(constant.dtype, &constant.data, 0);
            (constant.dtype, value.ok_or("the value must have one element")?)
        }
    };
    let tensor = cx.compute("", dtype, shape, E::Lit(value, dtype))?;
    cx.narrow.extend(narrow.map(|own| (tensor, own)));
    Ok(vec![tensor])
}

pub(crate) fn range(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (start, limit, delta) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let dtype = cx.dtype(start);
    let operands = [start, limit, delta];
    if let Some(range) = range_of_whole_floats(cx, operands)? {
        return Ok(vec![range]);
    }
    if operands.iter().any(|operand| cx.graph[*operand].vals.is_none()) {
        return Ok(vec![range_at_run_time(cx, operands)?]);
    }
    if dtype.is_float() {
        let (first, last) = (cx.float(start, "the start")?, cx.float(limit, "the limit")?);
        let step = cx.float(delta, "the step")?;
        let count = ((last - first) / step).ceil().max(0.0);
        if count > 1e15 || count.is_nan() {
            return Err("the number of elements is no number".into());
        }
        let shape = vec![Dim::from(count as i64)];
        let at = E::dim(&axes(&shape)[0], dtype);
        let body = E::float(first, dtype).bin("+", at.bin("*", E::float(step, dtype)));
        return Ok(vec![cx.compute("", dtype, shape, body)?]);
    }
    let (first, last) = (cx.dim(start, "the start")?, cx.dim(limit, "the limit")?);
    let step = cx.ints(delta, "the step")?;
    let [step] = step[..] else { return Err("the step must be one number".into()) };
    Ok(vec![range_of_integers(cx, (first, last, step), dtype)?])
}

/// A range from `first` to before `last`.
fn range_of_integers(
    cx: &mut Context,
    (first, last, step): (Dim, Dim, i64),
    dtype: DType,
) -> Outcome<T> {
    if step == 0 || step == i64::MIN {
        return Err("the step is 0".into());
    }
    let distance = if step > 0 { last - &first } else { first.clone() - &last };
    let count = (distance + (step.abs() - 1)).div(&step.abs().into()).maximum(&Dim::zero());
    let shape = vec![count];
    let value = axes(&shape)[0].clone() * step + &first;
    cx.compute("", dtype, shape, E::dim(&value, dtype))
}

/// A range of floats between whole numbers that depend on run-time integers, as in the grids of
/// detectors: none if an operand is another number. The entry checks that the floats are exact.
fn range_of_whole_floats(cx: &mut Context, operands: [T; 3]) -> Outcome<Option<T>> {
    let dtype = cx.dtype(operands[0]);
    if !dtype.is_float() || operands.iter().all(|operand| cx.graph[*operand].vals.is_some()) {
        return Ok(None);
    }
    let [first, last, step] = operands.map(|operand| cx.whole_number(operand));
    let (Some(last), Some(step)) = (last, step.and_then(|step| step.as_const())) else {
        return Ok(None);
    };
    match first {
        Some(first) => range_of_integers(cx, (first, last, step), dtype).map(Some),
        None => range_from_fraction(cx, operands[0], (last, step), dtype),
    }
}

/// A range of floats from a constant fraction, such as the centers of pixels: `start`, `start +
/// step`, … before `last`.
fn range_from_fraction(
    cx: &mut Context,
    start: T,
    (last, step): (Dim, i64),
    dtype: DType,
) -> Outcome<Option<T>> {
    let Some(Val::Float(start)) = cx.graph.scalar(start).cloned() else { return Ok(None) };
    let Some((num, den)) = fraction(start.abs()).filter(|_| (1..1 << 20).contains(&step.abs()))
    else {
        return Ok(None);
    };
    let first = Dim::from(if start < 0.0 { -num } else { num });
    let distance = if step > 0 { last * den - &first } else { first - last * den };
    let by = step.abs() * den;
    let shape = vec![(distance + (by - 1)).div(&by.into()).maximum(&Dim::zero())];
    let steps = E::dim(&(axes(&shape)[0].clone() * step), dtype);
    cx.compute("", dtype, shape, E::num(start, dtype).bin("+", steps)).map(Some)
}

/// A range whose number of elements is declared. The entry compares the number.
fn range_at_run_time(cx: &mut Context, operands: [T; 3]) -> Outcome<T> {
    let dtype = cx.dtype(operands[0]);
    let mut values = Vec::new();
    for (operand, role) in operands.iter().zip(["the start", "the limit", "the step"]) {
        let elements = cx.any_elements(*operand, role)?;
        let [value] = &elements.list[..] else {
            return Err(format!("{role} must be one number").into());
        };
        if !dtype.is_float() {
            cx.assert_amounts(&elements, role)?;
        }
        values.push(value.clone());
    }
    let refuse = || Refusal::NotConstant("the limit".to_string(), operands[1]);
    let shape = cx.declared(0).filter(|shape| shape.len() == 1).ok_or_else(refuse)?;
    let [start, limit, step] =
        <[E; 3]>::try_from(values).map_err(|_| "three numbers are needed")?;
    let zero = E::num(0.0, dtype);
    cx.assert(step.clone().bin("!=", zero.clone()), "the step is 0")?;
    let distance = limit.bin("-", start.clone());
    let text = "the number of elements is not that of the declared shape";
    if dtype.is_float() {
        let count = E::call("ceil", [distance.bin("/", step.clone())]);
        let count = E::call("max", [count, zero]);
        cx.assert(count.bin("==", E::dim(&shape[0], dtype)), text)?;
        let at = E::dim(&axes(&shape)[0], dtype);
        return cx.compute("", dtype, shape, start.bin("+", at.bin("*", step)));
    }
    // Rounded up: the negative of the quotient of the negative.
    let quotient = distance.un("-").bin("//", step.clone()).un("-");
    let zero = E::int(0, DType::Int64);
    let count = E::call("max", [quotient, zero]);
    cx.assert(count.bin("==", E::Idx(shape[0].clone())), text)?;
    let at = E::dim(&axes(&shape)[0], DType::Int64);
    let value = start.bin("+", at.bin("*", step));
    let value = if dtype == DType::Int64 { value } else { value.cast(dtype) };
    cx.compute("", dtype, shape, value)
}

pub(crate) fn eye_like(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    if shape.len() != 2 {
        return Err("the operand must be a matrix".into());
    }
    let dtype = node.dtype("dtype")?.unwrap_or(cx.dtype(x));
    let own = axes(&shape);
    let diagonal = E::Idx(own[0].clone() + node.int("k", 0)).bin("==", E::Idx(own[1].clone()));
    let body = if dtype == DType::Bool {
        diagonal
    } else {
        diagonal.choose(E::num(1.0, dtype), E::num(0.0, dtype))
    };
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

//! Operators that move elements without a change.

use crate::context::{Context, axes, axis_of};
use crate::dim::{Dim, product};
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::{Def, T};
use crate::node::{Node, Outcome, Refusal};

/// Returns the index into a tensor of the given shape for each index into its reshaped form: the
/// dimensions are grouped so that the products of both sides agree, and only the indices within a
/// group are computed by quotients and remainders.
pub(crate) fn reshaped_index(from: &[Dim], to: &[Dim], index: &[Dim]) -> Vec<Dim> {
    let mut result = Vec::with_capacity(from.len());
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let (first_i, first_j) = (i, j);
        let mut left = Dim::from(1);
        let mut right = Dim::from(1);
        // Each side grows until the products agree.
        loop {
            let closed = left == right && i > first_i && j > first_j;
            if closed || (i == from.len() && j == to.len()) {
                break;
            }
            let grow_left = if i == from.len() {
                false
            } else if j == to.len() || i == first_i {
                true
            } else if j == first_j || left.exact_div(&right).is_some() {
                false
            } else if right.exact_div(&left).is_some() {
                true
            } else {
                match (left.as_const(), right.as_const()) {
                    (Some(left), Some(right)) => left < right,
                    _ => i - first_i <= j - first_j,
                }
            };
            if grow_left {
                left = &left * &from[i];
                i += 1;
            } else {
                right = &right * &to[j];
                j += 1;
            }
        }
        // Trailing dimensions of 1 belong to the last group.
        if i == from.len() {
            while j < to.len() && to[j..].iter().all(Dim::is_one) {
                j += 1;
            }
        }
        if j == to.len() {
            while i < from.len() && from[i..].iter().all(Dim::is_one) {
                i += 1;
            }
        }
        let group = index[first_j..j].iter().zip(&to[first_j..j]);
        let flat = group.fold(Dim::zero(), |flat, (at, extent)| &flat * extent + at);
        for at in first_i..i {
            let extent = &from[at];
            if extent.is_one() {
                result.push(Dim::zero());
                continue;
            }
            let stride = product(&from[at + 1..i]);
            let quotient = flat.div(&stride);
            // The first dimension of more than one element needs no remainder.
            let is_first = from[first_i..at].iter().all(Dim::is_one);
            result.push(if is_first { quotient } else { quotient.rem(extent) });
        }
    }
    result
}

/// Defines a tensor with another shape of as many elements.
pub(crate) fn reshape_to(cx: &mut Context, part: &str, x: T, to: Vec<Dim>) -> Outcome<T> {
    let from = cx.shape(x);
    if from == to {
        return Ok(x);
    }
    cx.require_equal(&product(&from), &product(&to))?;
    let dtype = cx.dtype(x);
    // Data and known values are the same for any shape.
    if let Def::Data(data) = &cx.graph[x].def {
        let data = data.clone();
        return cx.data(part, dtype, to, data);
    }
    if let Some(vals) = cx.graph[x].vals.clone() {
        return cx.known(part, dtype, to, vals);
    }
    let index = reshaped_index(&from, &to, &axes(&to));
    cx.compute(part, dtype, to, cx.load(x, index))
}

pub(crate) fn reshape(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let from = cx.shape(x);
    let target: Vec<Dim> = match node.optional(1) {
        Some(shape) if cx.graph[shape].vals.is_none() => {
            return Ok(vec![reshape_at_run_time(cx, node, x, shape)?]);
        }
        Some(shape) => cx.dims(shape, "the shape")?,
        None => node.ints("shape").unwrap_or(&[]).iter().map(|dim| (*dim).into()).collect(),
    };
    let allow_zero = node.flag("allowzero", false);
    let mut to = Vec::new();
    let mut open = None;
    for (at, dim) in target.into_iter().enumerate() {
        match dim.as_const() {
            Some(0) if !allow_zero => {
                to.push(from.get(at).cloned().ok_or("a 0 has no dimension to copy")?);
            }
            Some(-1) if open.is_none() => {
                open = Some(at);
                to.push(1.into());
            }
            Some(value) if value < 0 => {
                return Err(format!("the extent {value} is negative").into());
            }
            _ => to.push(dim),
        }
    }
    if let Some(open) = open {
        let (total, rest) = (product(&from), product(&to));
        to[open] = match total.exact_div(&rest) {
            Some(extent) => extent,
            None if rest.as_const() == Some(0) => return Err("the shape is ambiguous".into()),
            None if total.as_const().is_some() && rest.as_const().is_some() => {
                return Err("the shape has a wrong number of elements".into());
            }
            None => total.div(&rest),
        };
    }
    Ok(vec![reshape_to(cx, "", x, to)?])
}

/// Reshapes to the declared shape, which each element of the operand must name: by its number, by 0
/// if the dimension stays, or one of them by -1.
fn reshape_at_run_time(cx: &mut Context, node: &Node, x: T, shape: T) -> Outcome<T> {
    let role = "the shape";
    let elements = cx.elements(shape, role)?;
    let refuse = || Refusal::NotConstant(role.to_string(), shape);
    let to = cx.declared(0).filter(|to| to.len() == elements.list.len()).ok_or_else(refuse)?;
    let from = cx.shape(x);
    let number = |e: &E, value: i64| e.clone().bin("==", E::int(value, DType::Int64));
    // With an extent of 0, any extent would do for the one that is left open.
    let may_be_open = to.iter().all(|dim| *dim != Dim::zero()) || !node.flag("allowzero", false);
    let (mut conditions, mut open) = (Vec::new(), Vec::new());
    for (at, (element, dim)) in elements.list.iter().zip(&to).enumerate() {
        let mut names = vec![element.clone().bin("==", E::Idx(dim.clone()))];
        if !node.flag("allowzero", false) && from.get(at) == Some(dim) && *dim != Dim::zero() {
            names.push(number(element, 0));
        }
        if may_be_open {
            let is_open = number(element, -1);
            let one = |value| E::int(value, DType::Int64);
            open.push(is_open.clone().choose(one(1), one(0)).cast(DType::Int64));
            names.push(is_open);
        }
        conditions.extend(E::any(names));
    }
    if let Some(count) = open.into_iter().reduce(|a, b| a.bin("+", b)) {
        conditions.push(count.bin("<=", E::int(1, DType::Int64)));
    }
    if let Some(cond) = E::all(conditions) {
        cx.assert(cond, &format!("the shape must be {}", crate::text::shape_text(&to)))?;
    }
    reshape_to(cx, "", x, to)
}

pub(crate) fn flatten(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let axis = node.int("axis", 1);
    let axis = if axis == shape.len() as i64 { shape.len() } else { axis_of(axis, shape.len())? };
    let to = vec![product(&shape[..axis]), product(&shape[axis..])];
    Ok(vec![reshape_to(cx, "", x, to)?])
}

pub(crate) fn concat(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let parts: Vec<T> = (0..node.inputs.len()).map(|at| node.input(at)).collect::<Outcome<_>>()?;
    let first = *parts.first().ok_or("there is no operand")?;
    let axis = axis_of(node.int("axis", 1), cx.rank(first))?;
    Ok(vec![concat_along(cx, "", &parts, axis)?])
}

/// Joins tensors along an axis.
pub(crate) fn concat_along(cx: &mut Context, part: &str, parts: &[T], axis: usize) -> Outcome<T> {
    let mut shape = cx.shape(parts[0]);
    let dtype = cx.dtype(parts[0]);
    let mut begins = vec![Dim::zero()];
    for part in parts {
        let own = cx.shape(*part);
        if own.len() != shape.len() || axis >= own.len() {
            return Err("the operands have different ranks".into());
        }
        for (at, dim) in own.iter().enumerate() {
            if at != axis {
                cx.require_equal(&shape[at].clone(), dim)?;
            }
        }
        let end = begins[begins.len() - 1].clone() + &own[axis];
        begins.push(end);
    }
    // Empty operands have no elements.
    let used: Vec<usize> =
        (0..parts.len()).filter(|at| cx.graph[parts[*at]].shape[axis] != Dim::zero()).collect();
    shape[axis] = begins[begins.len() - 1].clone();
    if used.len() == 1 {
        return Ok(parts[used[0]]);
    }
    let own = axes(&shape);
    let mut values = Vec::new();
    for at in &used {
        let mut index = own.clone();
        index[axis] = match cx.graph[parts[*at]].shape[axis].is_one() {
            true => Dim::zero(),
            false => own[axis].clone() - &begins[*at],
        };
        values.push((cx.load(parts[*at], index), begins[at + 1].clone()));
    }
    if values.is_empty() {
        let zero = if dtype == DType::Bool { E::flag(false) } else { E::num(0.0, dtype) };
        return cx.compute(part, dtype, shape, zero);
    }
    let body = choose_part(&values, &own[axis]);
    cx.compute(part, dtype, shape, body)
}

/// Chooses the first value whose end is after an index: one after the other, or for many values by
/// halves.
fn choose_part(values: &[(E, Dim)], index: &Dim) -> E {
    const CHAIN: usize = 8;
    let (first, rest) = match values.len() {
        1 => return values[0].0.clone(),
        len if len <= CHAIN => values.split_at(1),
        len => values.split_at(len / 2),
    };
    let end = &first[first.len() - 1].1;
    let before = E::Idx(index.clone()).bin("<", E::Idx(end.clone()));
    before.choose(choose_part(first, index), choose_part(rest, index))
}

/// Joins tensors of equal shapes along a new first axis.
pub(crate) fn stack(cx: &mut Context, parts: &[T]) -> Outcome<T> {
    let mut rows = Vec::new();
    for part in parts {
        if cx.specials.contains_key(part) {
            return Err("a result of each iteration is a sequence".into());
        }
        if let Some(own) = cx.narrow(*part) {
            return Err(format!("the element type {} is not supported", own.name()).into());
        }
        let mut shape = cx.shape(*part);
        shape.insert(0, 1.into());
        rows.push(reshape_to(cx, "row", *part, shape)?);
    }
    if rows.is_empty() {
        return Err("a loop without iterations has no results".into());
    }
    concat_along(cx, "", &rows, 0)
}

/// The part of a tensor at one index of an axis, without that axis.
pub(crate) fn element(cx: &mut Context, x: T, axis: usize, at: i64) -> Outcome<T> {
    if let Some(own) = cx.narrow(x) {
        return Err(format!("the element type {} is not supported", own.name()).into());
    }
    let mut shape = cx.shape(x);
    shape.remove(axis);
    let mut index = axes(&shape);
    index.insert(axis, at.into());
    let dtype = cx.dtype(x);
    cx.compute("", dtype, shape, cx.load(x, index))
}

/// Moves the first axis to another place.
pub(crate) fn first_axis_to(cx: &mut Context, x: T, axis: i64) -> Outcome<T> {
    let rank = cx.rank(x);
    let axis = axis_of(axis, rank)?;
    if axis == 0 {
        return Ok(x);
    }
    let mut order: Vec<usize> = (1..rank).collect();
    order.insert(axis, 0);
    super::slicing::permute(cx, "moved", x, &order)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index into a tensor for each index into its reshaped form, as text.
    fn reshaped(from: &[&str], to: &[&str]) -> String {
        let dims = |texts: &[&str]| -> Vec<Dim> {
            let dim = |text: &&str| text.parse().map_or(Dim::symbol(text), i64::into);
            texts.iter().map(dim).collect()
        };
        let (from, to) = (dims(from), dims(to));
        let index = reshaped_index(&from, &to, &axes(&to));
        let text = |dim: &Dim| dim.text(&|id| format!("i{id}"));
        index.iter().map(text).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn reshapes_compute_only_the_dimensions_that_change() {
        assert_eq!(reshaped(&["b", "s", "128"], &["b", "s", "2", "64"]), "i0, i1, i2*64 + i3");
        assert_eq!(
            reshaped(&["b", "s", "2", "64"], &["b", "s", "128"]),
            "i0, i1, i2 // 64, i2 % 64"
        );
        assert_eq!(reshaped(&["b", "s", "8"], &["b", "1", "s", "8", "1"]), "i0, i2, i3");
        assert_eq!(
            reshaped(&["1", "144", "80", "80"], &["1", "144", "6400"]),
            "0, i1, i2 // 80, i2 % 80"
        );
        assert_eq!(reshaped(&["4", "6"], &["3", "8"]), "(i0*8 + i1) // 6, (i0*8 + i1) % 6");
        assert_eq!(reshaped(&["1", "1"], &[]), "0, 0");
        assert_eq!(reshaped(&[], &["1"]), "");
    }

    #[test]
    fn reshapes_with_run_time_extents_group_by_their_products() {
        assert_eq!(reshaped(&["b", "s", "64"], &["b", "s", "8", "8"]), "i0, i1, i2*8 + i3");
        // A product of run-time extents is split by them.
        let (b, s) = (Dim::symbol("b"), Dim::symbol("s"));
        let to = [&b * &s, 64.into()];
        let from = [b.clone(), s.clone(), 64.into()];
        let index = reshaped_index(&from, &to, &axes(&to));
        let text = |dim: &Dim| dim.text(&|id| format!("i{id}"));
        let texts: Vec<String> = index.iter().map(text).collect();
        assert_eq!(texts, ["i0 // s", "i0 % s", "i1"]);
        let index = reshaped_index(&to, &from, &axes(&from));
        let texts: Vec<String> = index.iter().map(text).collect();
        assert_eq!(texts, ["s*i0 + i1", "i2"]);
    }
}

//! Operators that read or write at computed places.

use crate::context::{Context, axes, axis_of, reduce_axis};
use crate::dim::Dim;
use crate::dtype::{DType, Val, read_element};
use crate::expr::E;
use crate::graph::{Def, Reduce, T};
use crate::node::{Node, Outcome};

/// Whether all values of a tensor are known to be in `0..extent`.
fn is_within(cx: &Context, indices: T, extent: &Dim) -> bool {
    let vals = cx.graph[indices].vals.as_ref();
    vals.is_some_and(|vals| {
        vals.iter().all(|val| matches!(val, Val::Int(dim) if dim.is_within(extent)))
    })
}

/// The largest number of indices that are written one by one although they depend on run-time
/// integers.
const MAX_CHOICES: usize = 32;

/// Makes a parameter of indices whose values are known: the compiler checks indices that are
/// parameters, and would have to clamp those that a stage computes.
fn as_data(cx: &mut Context, indices: T) -> T {
    let own = &cx.graph[indices];
    let (Def::Compute { .. }, Some(vals)) = (&own.def, own.vals.clone()) else { return indices };
    let (dtype, shape) = (own.dtype, own.shape.clone());
    // Each value that is not a constant is a choice in the text.
    let is_constant = |value: &Val| !matches!(value, Val::Int(dim) if dim.as_const().is_none());
    if vals.len() > MAX_CHOICES && !vals.iter().all(is_constant) {
        return indices;
    }
    cx.known("indices", dtype, shape, vals).unwrap_or(indices)
}

/// Returns the constant indices of an axis of a run-time extent. If the last one of `at` is a
/// number, they are those of this column.
fn constant_indices(cx: &Context, indices: T, at: &[E], extent: &Dim) -> Option<Vec<i64>> {
    let own = &cx.graph[indices];
    let len = own.len()?;
    if extent.as_const().is_some() || len == 0 || !own.dtype.is_int() {
        return None;
    }
    let (column, columns) = match (at.last(), own.shape.last()) {
        (Some(E::Idx(column)), Some(columns)) if column.as_const().is_some() => {
            (column.as_extent()?, columns.as_extent()?)
        }
        _ => (0, 1),
    };
    let value = |flat: usize| match (&own.vals, &own.def) {
        (Some(vals), _) => vals.get(flat)?.as_int(),
        (None, Def::Data(data)) => read_element(own.dtype, data, flat)?.as_int(),
        _ => None,
    };
    (column..len).step_by(columns).map(value).collect()
}

/// An index whose values are constant along an axis of a run-time extent, which must have them.
fn constant_place(cx: &mut Context, indices: T, at: &[E], extent: &Dim) -> Option<E> {
    let values = constant_indices(cx, indices, at, extent)?;
    let (least, most) = (*values.iter().min()?, *values.iter().max()?);
    // Extents beyond are no extents of tensors.
    let limit = 1 << 48;
    if least < -limit || most > limit {
        return None;
    }
    if least < 0 {
        cx.require_least(extent, -least);
    }
    if most >= 0 {
        cx.require_least(extent, most + 1);
    }
    let step = match values[..] {
        [first, second, ..] => second - first,
        _ => 0,
    };
    let is_range = values.windows(2).all(|pair| pair[1] - pair[0] == step);
    if let ([E::Idx(axis)], true, true) = (at, is_range, least >= 0 || most < 0) {
        let first = Dim::from(values[0]);
        let first = if most < 0 { extent.clone() + &first } else { first };
        return Some(E::Idx(axis.clone() * step + &first));
    }
    // The compiler cannot compare the elements of a param with a run-time extent.
    let wide = |e: E, own: DType| if own == DType::Int64 { e } else { e.cast(DType::Int64) };
    let index = wide(E::Load(indices, at.to_vec()), cx.dtype(indices));
    let (zero, size) = (E::int(0, DType::Int64), E::dim(extent, DType::Int64));
    let index = match least < 0 {
        true => {
            let from_end = index.clone().bin("+", size);
            index.clone().bin("<", zero.clone()).choose(from_end, index)
        }
        false => index,
    };
    let last = E::dim(&(extent.clone() - 1), DType::Int64);
    Some(E::call("clamp", [index, zero, last]))
}

/// An index of a tensor that may count from the end. Indices that are inputs are checked by the
/// entry; those that are computed are reduced to the extent.
pub(crate) fn place(cx: &mut Context, indices: T, at: Vec<E>, extent: &Dim) -> E {
    let indices = as_data(cx, indices);
    if let Some(Val::Int(dim)) = cx.graph.scalar(indices) {
        return match dim.as_const() {
            Some(value) if value < 0 => E::Idx(extent.clone() + value),
            _ => E::Idx(dim.clone()),
        };
    }
    if let Some(index) = constant_place(cx, indices, &at, extent) {
        return index;
    }
    let index = E::Load(indices, at);
    if is_within(cx, indices, extent) {
        return index;
    }
    let dtype = cx.dtype(indices);
    if matches!(cx.graph[indices].def, Def::Input | Def::Data(_)) && dtype.is_signed_int() {
        let wide = if dtype == DType::Int64 { index } else { index.cast(DType::Int64) };
        let negative = wide.clone().bin("<", E::int(0, DType::Int64));
        let from_end = wide.clone().bin("+", E::dim(extent, DType::Int64));
        return negative.choose(from_end, wide);
    }
    let wide = if dtype == DType::Int64 { index } else { index.cast(DType::Int64) };
    wide.bin("%", E::dim(extent, DType::Int64))
}

pub(crate) fn gather(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let (shape, inner) = (cx.shape(x), cx.shape(indices));
    let axis = axis_of(node.int("axis", 0), shape.len())?;
    let mut to = shape[..axis].to_vec();
    to.extend(inner.iter().cloned());
    to.extend(shape[axis + 1..].iter().cloned());
    let own = axes(&to);
    let at = own[axis..axis + inner.len()].iter().cloned().map(E::Idx).collect();
    let mut index: Vec<E> = own[..axis].iter().cloned().map(E::Idx).collect();
    index.push(place(cx, indices, at, &shape[axis]));
    index.extend(own[axis + inner.len()..].iter().cloned().map(E::Idx));
    let dtype = cx.dtype(x);
    Ok(vec![cx.compute("", dtype, to, cx.load_at(x, index))?])
}

pub(crate) fn gather_elements(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let (shape, to) = (cx.shape(x), cx.shape(indices));
    if shape.len() != to.len() {
        return Err("data and indices have different ranks".into());
    }
    let axis = axis_of(node.int("axis", 0), shape.len())?;
    let mut index: Vec<E> = axes(&to).into_iter().map(E::Idx).collect();
    let at = index.clone();
    index[axis] = place(cx, indices, at, &shape[axis]);
    let dtype = cx.dtype(x);
    Ok(vec![cx.compute("", dtype, to, cx.load_at(x, index))?])
}

/// The last dimension of indices, which is the number of dimensions that they select.
fn depth(cx: &Context, indices: T) -> Outcome<usize> {
    let last = cx.graph[indices].shape.last().and_then(Dim::as_extent);
    last.ok_or_else(|| "the last extent of the indices must be constant".into())
}

pub(crate) fn gather_nd(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let (shape, inner) = (cx.shape(x), cx.shape(indices));
    let batch = usize::try_from(node.int("batch_dims", 0)).unwrap_or(usize::MAX);
    let depth = depth(cx, indices)?;
    if batch >= inner.len() || batch.saturating_add(depth) > shape.len() {
        return Err("the indices select more dimensions than the data has".into());
    }
    let mut to = inner[..inner.len() - 1].to_vec();
    let rows = to.len();
    to.extend(shape[batch + depth..].iter().cloned());
    let own = axes(&to);
    let mut index: Vec<E> = own[..batch].iter().cloned().map(E::Idx).collect();
    for part in 0..depth {
        let mut at: Vec<E> = own[..rows].iter().cloned().map(E::Idx).collect();
        at.push(E::Idx((part as i64).into()));
        index.push(place(cx, indices, at, &shape[batch + part]));
    }
    index.extend(own[rows..].iter().cloned().map(E::Idx));
    let dtype = cx.dtype(x);
    Ok(vec![cx.compute("", dtype, to, cx.load_at(x, index))?])
}

/// How an update is combined with what is there.
fn reduction(node: &Node) -> Outcome<Option<&'static str>> {
    Ok(match node.text("reduction", "none") {
        "none" => None,
        "add" => Some("sum"),
        "mul" => Some("prod"),
        "max" => Some("max"),
        "min" => Some("min"),
        _ => return Err("the reduction is not supported".into()),
    })
}

/// Updates of a tensor: the element at `place` of each update is written or combined. The last of
/// several updates of one element counts if they are not combined.
struct Updates {
    /// Extents over which the updates run.
    extents: Vec<Dim>,
    /// Whether an update belongs to the element at the axes.
    condition: E,
    /// The value of an update.
    value: E,
    /// The number of an update.
    number: E,
}

fn scatter(cx: &mut Context, x: T, updates: Updates, kind: Option<&'static str>) -> Outcome<T> {
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let own = axes(&shape);
    if updates.extents.contains(&Dim::zero()) {
        return Ok(x);
    }
    let reduce = |kind: &'static str| Reduce {
        kind,
        extents: updates.extents.clone(),
        condition: Some(updates.condition.clone()),
        init: None,
    };
    let Some(kind) = kind else {
        // The number of the last update, or -1.
        let last = cx.reduce(
            "last",
            DType::Int64,
            shape.clone(),
            updates.number,
            Reduce { init: Some(E::int(-1, DType::Int64)), ..reduce("max") },
        )?;
        return scatter_last(cx, x, last, updates.value, &updates.extents);
    };
    let wide =
        if dtype.is_half() && matches!(kind, "sum" | "prod") { DType::Float32 } else { dtype };
    let value =
        if wide == dtype { updates.value.clone() } else { updates.value.clone().cast(wide) };
    let total = cx.reduce("updates", wide, shape.clone(), value, reduce(kind))?;
    let (old, new) = (cx.load(x, own.clone()), cx.load(total, own));
    let old = if wide == dtype { old } else { old.cast(wide) };
    let body = match kind {
        "sum" => old.bin("+", new),
        "prod" => old.bin("*", new),
        _ => E::call(kind, [old, new]),
    };
    let body = if wide == dtype { body } else { body.cast(dtype) };
    cx.compute("", dtype, shape, body)
}

/// Reads the update of a number at each element, or what was there.
fn scatter_last(cx: &mut Context, x: T, last: T, value: E, extents: &[Dim]) -> Outcome<T> {
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let own = axes(&shape);
    let number = cx.load(last, own.clone());
    let missing = number.clone().bin("<", E::int(0, DType::Int64));
    // The coordinates of the update in terms of its number.
    let count = crate::dim::product(extents);
    let flat =
        E::call("clamp", [number, E::int(0, DType::Int64), E::dim(&(count - 1), DType::Int64)]);
    let mut places = Vec::new();
    for (at, extent) in extents.iter().enumerate() {
        let stride = crate::dim::product(&extents[at + 1..]);
        let mut place = flat.clone();
        if !stride.is_one() {
            place = place.bin("//", E::dim(&stride, DType::Int64));
        }
        if at > 0 {
            place = place.bin("%", E::dim(extent, DType::Int64));
        }
        // The compiler knows no bounds of a quotient by a run-time integer, nor of the remainder by
        // an extent such as `max(n - 2, 0)`.
        let is_open = if at > 0 { extent.size() > 2 } else { stride.as_const().is_none() };
        if is_open {
            let last = E::dim(&(extent.clone() - 1), DType::Int64);
            place = E::call("clamp", [place, E::int(0, DType::Int64), last]);
        }
        places.push(if extent.is_one() { E::Idx(Dim::zero()) } else { place });
    }
    let value = replace_reduced(value, &places);
    let body = missing.choose(cx.load(x, own), value);
    cx.compute("", dtype, shape, body)
}

/// Replaces indices that are reduction axes.
fn replace_reduced(e: E, places: &[E]) -> E {
    match e {
        E::Idx(dim) => {
            for (at, place) in places.iter().enumerate() {
                let probe = dim.at(&|id| {
                    (usize::from(id) == usize::from(crate::dim::REDUCE) + at).then(Dim::zero)
                });
                if probe != dim {
                    return place.clone();
                }
            }
            E::Idx(dim)
        }
        E::Load(t, index) => {
            E::Load(t, index.into_iter().map(|e| replace_reduced(e, places)).collect())
        }
        other => other,
    }
}

pub(crate) fn scatter_elements(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, indices, values) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (shape, inner) = (cx.shape(x), cx.shape(indices));
    if shape.len() != inner.len() || shape.is_empty() {
        return Err("data and indices have different ranks".into());
    }
    // PyTorch takes the first updates if there are more than indices.
    for (own, given) in inner.iter().zip(&cx.shape(values)) {
        cx.require_at_most(own, given)?;
    }
    let axis = axis_of(node.int("axis", 0), shape.len())?;
    if let Some(list) = replaced(cx, node, (x, indices, values)) {
        return Ok(vec![cx.known_ints("", &list)?]);
    }
    // Only updates with the same other coordinates reach an element.
    let own = axes(&shape);
    let k = reduce_axis(0, &inner[axis]);
    let mut at: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    let mut conditions = Vec::new();
    for (dim, extent) in inner.iter().enumerate() {
        if dim != axis && *extent != shape[dim] {
            let inside = E::Idx(own[dim].clone()).bin("<", E::Idx(extent.clone()));
            conditions.push(inside);
            let last = E::Idx(extent.clone() - 1);
            at[dim] = E::call("min", [E::Idx(own[dim].clone()), last]);
        }
    }
    at[axis] = E::Idx(k.clone());
    let target = place_of(cx, indices, at.clone(), &shape[axis]);
    conditions.push(target.bin("==", E::dim(&own[axis], DType::Int64)));
    let updates = Updates {
        extents: vec![inner[axis].clone()],
        condition: E::all(conditions).unwrap_or(E::flag(true)),
        value: E::Load(values, at),
        number: E::dim(&k, DType::Int64),
    };
    Ok(vec![scatter(cx, x, updates, reduction(node)?)?])
}

/// The elements of a list of known integers, such as a shape, in which some are replaced. `None` if
/// an operand is not known.
fn replaced(cx: &Context, node: &Node, (x, indices, values): (T, T, T)) -> Option<Vec<Dim>> {
    let ints = |tensor: T| -> Option<Vec<Dim>> {
        let own = &cx.graph[tensor];
        let is_list = own.shape.len() == 1 && own.dtype == DType::Int64;
        let int = |value: &Val| match value {
            Val::Int(dim) => Some(dim.clone()),
            _ => None,
        };
        own.vals.as_ref().filter(|_| is_list)?.iter().map(int).collect()
    };
    if node.text("reduction", "none") != "none" {
        return None;
    }
    let (mut list, indices, values) = (ints(x)?, ints(indices)?, ints(values)?);
    for (index, value) in indices.iter().zip(values) {
        let index = index.as_const()?;
        let at = if index < 0 { index + list.len() as i64 } else { index };
        *list.get_mut(usize::try_from(at).ok()?)? = value;
    }
    Some(list)
}

/// The target of an update as int64, not negative.
fn place_of(cx: &mut Context, indices: T, at: Vec<E>, extent: &Dim) -> E {
    let indices = as_data(cx, indices);
    let index = E::Load(indices, at);
    let wide = if cx.dtype(indices) == DType::Int64 { index } else { index.cast(DType::Int64) };
    if is_within(cx, indices, extent) {
        return wide;
    }
    let negative = wide.clone().bin("<", E::int(0, DType::Int64));
    let from_end = wide.clone().bin("+", E::dim(extent, DType::Int64));
    negative.choose(from_end, wide)
}

pub(crate) fn scatter_nd(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, indices, values) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (shape, inner) = (cx.shape(x), cx.shape(indices));
    let depth = depth(cx, indices)?;
    if depth > shape.len() {
        return Err("the indices select more dimensions than the data has".into());
    }
    let rows = inner[..inner.len() - 1].to_vec();
    let own = axes(&shape);
    let row: Vec<Dim> = rows.iter().enumerate().map(|(at, n)| reduce_axis(at, n)).collect();
    let mut conditions = Vec::new();
    for part in 0..depth {
        let mut at: Vec<E> = row.iter().cloned().map(E::Idx).collect();
        at.push(E::Idx((part as i64).into()));
        let target = place_of(cx, indices, at, &shape[part]);
        conditions.push(target.bin("==", E::dim(&own[part], DType::Int64)));
    }
    let mut at: Vec<E> = row.iter().cloned().map(E::Idx).collect();
    at.extend(own[depth..].iter().cloned().map(E::Idx));
    let zero = Dim::zero();
    let flat = row.iter().zip(&rows).fold(zero, |flat, (k, extent)| &flat * extent + k);
    let updates = Updates {
        extents: if rows.is_empty() { vec![1.into()] } else { rows },
        condition: E::all(conditions).unwrap_or(E::flag(true)),
        value: E::Load(values, at),
        number: E::dim(&flat, DType::Int64),
    };
    Ok(vec![scatter(cx, x, updates, reduction(node)?)?])
}

pub(crate) fn top_k(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let axis = axis_of(node.int("axis", -1), shape.len())?;
    let k = match node.optional(1) {
        Some(k) => {
            let declared = cx.declared_any().and_then(|shape| shape.get(axis).cloned());
            cx.declared_dim(k, "k", declared)?
        }
        None => node.int("k", 1).into(),
    };
    let largest = node.flag("largest", true);
    let mut at = axes(&shape);
    at[axis] = reduce_axis(0, &shape[axis]);
    let key = cx.load(x, at);
    let mut out = shape.clone();
    out[axis] = k;
    let own = axes(&out);
    let index = cx.order("index", out.clone(), key, axis, shape[axis].clone(), largest)?;
    let last = E::dim(&(shape[axis].clone() - 1), DType::Int64);
    let mut at: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    at[axis] = E::call("clamp", [cx.load(index, own), E::int(0, DType::Int64), last]);
    let values = cx.compute("", dtype, out, E::Load(x, at))?;
    Ok(vec![values, index])
}

//! Sequences and optional values. The importer knows how many elements a sequence has, and whether
//! an optional value is there, so neither exists in the network.

use super::movement::{concat_along, reshape_to, stack};
use super::slicing::section;
use crate::context::{Context, axis_of};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::graph::{Def, T, Tensor};
use crate::node::{Node, Outcome};

/// The largest number of elements of a sequence.
const MAX_ELEMENTS: usize = 4096;

/// A value that is no tensor.
#[derive(Clone, Debug)]
pub(crate) enum Special {
    Sequence(Vec<T>),
    /// An optional value that is not there.
    Absent,
}

/// Operators that know these values.
const KNOWS: &[&str] = &[
    "ConcatFromSequence",
    "Identity",
    "Loop",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "SequenceAt",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SequenceMap",
];

impl Context {
    /// Defines a value that is no tensor.
    pub(crate) fn special(&mut self, special: Special) -> Outcome<T> {
        if let Special::Sequence(list) = &special
            && list.len() > MAX_ELEMENTS
        {
            return Err(format!("more than {MAX_ELEMENTS} elements are not supported").into());
        }
        let (name, shape) = (self.hint.clone(), Vec::new());
        let own = Tensor { name, dtype: DType::Int64, shape, def: Def::Known, vals: None };
        let value = self.graph.push(own);
        self.specials.insert(value, special);
        Ok(value)
    }

    /// Refuses operators that need tensors.
    pub(crate) fn check_special(&self, domain: &str, node: &Node) -> Outcome<()> {
        let known = domain.is_empty() && KNOWS.contains(&node.op);
        let special = |input: &T| self.specials.get(input);
        match node.inputs.iter().flatten().find_map(special) {
            Some(Special::Sequence(_)) if !known => Err("an operand is a sequence".into()),
            Some(Special::Absent) if !known => Err("an operand is not there".into()),
            _ => Ok(()),
        }
    }

    /// The elements of a sequence.
    pub(crate) fn sequence(&self, value: T) -> Outcome<Vec<T>> {
        match self.specials.get(&value) {
            Some(Special::Sequence(list)) => Ok(list.clone()),
            _ => Err("the operand is no sequence".into()),
        }
    }
}

/// A constant place in a list that may count from the end.
fn place(cx: &Context, place: T, len: usize) -> Outcome<usize> {
    match cx.ints(place, "the position")?[..] {
        [at] => {
            let from_start = if at < 0 { at.saturating_add(len as i64) } else { at };
            let inside = usize::try_from(from_start).ok().filter(|at| *at < len);
            inside.ok_or_else(|| format!("the sequence has no element {at}").into())
        }
        _ => Err("the position must be one number".into()),
    }
}

pub(crate) fn empty(cx: &mut Context, _: &Node) -> Outcome<Vec<T>> {
    Ok(vec![cx.special(Special::Sequence(Vec::new()))?])
}

pub(crate) fn construct(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let list = (0..node.inputs.len()).map(|at| node.input(at)).collect::<Outcome<Vec<T>>>()?;
    Ok(vec![cx.special(Special::Sequence(list))?])
}

pub(crate) fn insert(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (mut list, element) = (cx.sequence(node.input(0)?)?, node.input(1)?);
    let at = match node.optional(2) {
        None => list.len(),
        // A place behind the last element counts, too.
        Some(at) => match cx.ints(at, "the position")?[..] {
            [at] if at == list.len() as i64 => list.len(),
            _ => place(cx, at, list.len())?,
        },
    };
    list.insert(at, element);
    Ok(vec![cx.special(Special::Sequence(list))?])
}

pub(crate) fn erase(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let mut list = cx.sequence(node.input(0)?)?;
    let at = match node.optional(1) {
        None => list.len().checked_sub(1).ok_or("the sequence is empty")?,
        Some(at) => place(cx, at, list.len())?,
    };
    list.remove(at);
    Ok(vec![cx.special(Special::Sequence(list))?])
}

pub(crate) fn at(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let list = cx.sequence(node.input(0)?)?;
    Ok(vec![list[place(cx, node.input(1)?, list.len())?]])
}

pub(crate) fn length(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let len = cx.sequence(node.input(0)?)?.len() as i64;
    Ok(vec![cx.known("", DType::Int64, vec![], vec![Val::Int(len.into())])?])
}

pub(crate) fn concat(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let list = cx.sequence(node.input(0)?)?;
    let first = *list.first().ok_or("the sequence is empty")?;
    if list.iter().any(|own| cx.dtype(*own) != cx.dtype(first) || cx.narrow(*own).is_some()) {
        return Err("the element types are not supported".into());
    }
    let (axis, rank) = (node.int("axis", 0), cx.rank(first));
    if !node.flag("new_axis", false) {
        return Ok(vec![concat_along(cx, "", &list, axis_of(axis, rank)?)?]);
    }
    if list.iter().any(|own| cx.rank(*own) != rank) {
        return Err("the elements have different ranks".into());
    }
    axis_of(axis, rank + 1)?;
    let rows = stack(cx, &list)?;
    Ok(vec![super::movement::first_axis_to(cx, rows, axis)?])
}

pub(crate) fn split(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let axis = axis_of(node.int("axis", 0), shape.len())?;
    let extent = shape[axis].as_const().ok_or("a run-time extent is not supported")?;
    let sizes: Vec<i64> = match node.optional(1) {
        None => vec![1; usize::try_from(extent).unwrap_or(0).min(MAX_ELEMENTS + 1)],
        Some(split) if cx.rank(split) == 0 => match cx.ints(split, "the sizes")?[..] {
            [size] if size >= 1 && extent / size < MAX_ELEMENTS as i64 => {
                let starts = (0..extent).step_by(size as usize);
                starts.map(|start| size.min(extent - start)).collect()
            }
            _ => return Err("the size is not supported".into()),
        },
        Some(split) => cx.ints(split, "the sizes")?,
    };
    let fits = sizes.iter().try_fold(0_i64, |sum, size| sum.checked_add(*size));
    if fits != Some(extent) || sizes.iter().any(|size| *size < 0) {
        return Err("the sizes are not those of the axis".into());
    }
    let squeeze = node.optional(1).is_none() && !node.flag("keepdims", true);
    let (mut list, mut start) = (Vec::new(), 0);
    for (at, size) in sizes.into_iter().enumerate() {
        let len = Dim::from(size);
        let mut part = section(cx, &at.to_string(), x, axis, &start.into(), &len)?;
        if squeeze {
            let mut to = shape.clone();
            to.remove(axis);
            part = reshape_to(cx, &at.to_string(), part, to)?;
        }
        list.push(part);
        start += size;
    }
    Ok(vec![cx.special(Special::Sequence(list))?])
}

pub(crate) fn optional(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    match node.optional(0) {
        Some(value) => Ok(vec![value]),
        None => Ok(vec![cx.special(Special::Absent)?]),
    }
}

pub(crate) fn get_element(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let value = node.input(0)?;
    match cx.specials.get(&value) {
        Some(Special::Absent) => Err("the operand is not there".into()),
        _ => Ok(vec![value]),
    }
}

pub(crate) fn has_element(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let is_absent = |value: T| matches!(cx.specials.get(&value), Some(Special::Absent));
    let there = node.optional(0).is_some_and(|value| !is_absent(value));
    Ok(vec![cx.known("", DType::Bool, vec![], vec![Val::Bool(there)])?])
}

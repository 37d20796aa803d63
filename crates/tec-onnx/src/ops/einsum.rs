//! Einsum.

use std::collections::BTreeMap;

use crate::context::{Context, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The dimensions of an operand: letters, and numbers for those of the ellipsis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// A dimension of the ellipsis, counted from the last one.
    Ellipsis(usize),
    Letter(char),
}

fn labels(term: &str, rank: usize) -> Outcome<Vec<Label>> {
    let letters = |text: &str| -> Outcome<Vec<Label>> {
        text.chars()
            .filter(|c| !c.is_whitespace())
            .map(|c| match c.is_ascii_alphabetic() {
                true => Ok(Label::Letter(c)),
                false => Err("the equation has an unknown character".into()),
            })
            .collect()
    };
    let Some((before, after)) = term.split_once("...") else { return letters(term) };
    let (mut before, after) = (letters(before)?, letters(after)?);
    let rest = rank.checked_sub(before.len() + after.len());
    let rest = rest.ok_or("the equation has more letters than an operand has dimensions")?;
    before.extend((0..rest).rev().map(Label::Ellipsis));
    before.extend(after);
    Ok(before)
}

pub(crate) fn einsum(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let equation = node.text("equation", "");
    let inputs: Vec<T> = (0..node.inputs.len()).map(|at| node.input(at)).collect::<Outcome<_>>()?;
    let first = *inputs.first().ok_or("there is no operand")?;
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation, None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != inputs.len() {
        return Err("the equation has a wrong number of operands".into());
    }
    let mut own = Vec::new();
    let mut extents: BTreeMap<Label, Dim> = BTreeMap::new();
    let mut counts: BTreeMap<Label, usize> = BTreeMap::new();
    for (term, input) in terms.iter().zip(&inputs) {
        let shape = cx.shape(*input);
        let labels = labels(term, shape.len())?;
        if labels.len() != shape.len() {
            return Err("the equation does not fit the rank of an operand".into());
        }
        for (label, dim) in labels.iter().zip(&shape) {
            *counts.entry(*label).or_default() += 1;
            let old = extents.entry(*label).or_insert_with(|| dim.clone()).clone();
            if old.is_one() {
                extents.insert(*label, dim.clone());
            } else if !dim.is_one() {
                cx.require_equal(&old, dim)?;
            }
        }
        own.push(labels);
    }
    let output = match right {
        Some(right) => {
            let rank = extents.keys().filter(|l| matches!(l, Label::Ellipsis(_))).count();
            let letters = right.replace("...", "").chars().filter(|c| !c.is_whitespace()).count();
            labels(right, rank + letters)?
        }
        // All labels that occur once, the ellipsis first.
        None => {
            let mut ellipsis: Vec<Label> =
                extents.keys().copied().filter(|l| matches!(l, Label::Ellipsis(_))).collect();
            ellipsis.reverse();
            let once = counts.iter().filter(|(l, n)| **n == 1 && matches!(l, Label::Letter(_)));
            ellipsis.extend(once.map(|(label, _)| *label));
            ellipsis
        }
    };
    let unknown = output.iter().any(|label| !extents.contains_key(label));
    if unknown {
        return Err("the result has a letter that no operand has".into());
    }
    let shape: Vec<Dim> = output.iter().map(|label| extents[label].clone()).collect();
    let mut axes: BTreeMap<Label, Dim> = BTreeMap::new();
    for (at, label) in output.iter().enumerate() {
        axes.insert(*label, Dim::axis(at, &extents[label]));
    }
    let mut reduced = Vec::new();
    for (label, extent) in &extents {
        if !output.contains(label) {
            axes.insert(*label, reduce_axis(reduced.len(), extent));
            reduced.push(extent.clone());
        }
    }
    let dtype = cx.dtype(first);
    let wide = if dtype.is_half() { DType::Float32 } else { dtype };
    let mut body = None;
    for (input, labels) in inputs.iter().zip(&own) {
        let dims = cx.shape(*input);
        let index = labels
            .iter()
            .zip(&dims)
            .map(|(label, dim)| if dim.is_one() { Dim::zero() } else { axes[label].clone() });
        let load = cx.load(*input, index.collect::<Vec<_>>());
        let load = if wide == dtype { load } else { load.cast(wide) };
        body = Some(match body {
            None => load,
            Some(product) => crate::expr::E::bin(product, "*", load),
        });
    }
    let body = body.ok_or("there is no operand")?;
    let part = if wide == dtype { "" } else { "sum" };
    let result = if reduced.is_empty() {
        cx.compute(part, wide, shape, body)?
    } else {
        cx.fold(part, "sum", wide, shape, reduced, body)?
    };
    Ok(vec![cx.cast("", result, dtype)?])
}

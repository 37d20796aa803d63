//! Non-maximum suppression. The number of boxes that it selects depends on the data; its result has
//! a constant number of rows, and the rows behind the last box are -1.

use crate::context::Context;
use crate::dim::{Dim, product};
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The element of an operand that has one, as a tensor of rank 0.
fn scalar(
    cx: &mut Context,
    part: &str,
    tensor: T,
    dtype: DType,
    change: impl FnOnce(E) -> E,
) -> Outcome<T> {
    let shape = cx.shape(tensor);
    if cx.dtype(tensor) != dtype || !product(&shape).is_one() {
        return Err(format!("the input `{part}` must be one {}", dtype.name()).into());
    }
    let element = cx.load(tensor, shape.iter().map(|_| Dim::zero()));
    cx.compute(part, dtype, vec![], change(element))
}

/// The threshold of the overlap, which must be from 0 to 1.
fn overlap(cx: &mut Context, node: &Node) -> Outcome<T> {
    let (part, role) = ("iou_threshold", "`iou_threshold`");
    let text = "`iou_threshold` must be between 0 and 1";
    let number = |value: f64| E::float(value, DType::Float32);
    let Some(tensor) = node.optional(3) else {
        return cx.compute(part, DType::Float32, vec![], number(0.0));
    };
    if let Ok(value) = cx.float(tensor, role) {
        if !(0.0..=1.0).contains(&value) {
            return Err(text.into());
        }
        return scalar(cx, part, tensor, DType::Float32, |e| e);
    }
    let Ok(elements) = cx.elements(tensor, role) else {
        // The entry cannot check it; boxes that share nothing are never dropped.
        let change = |e: E| e.clone().bin("<", number(0.0)).choose(number(0.0), e);
        return scalar(cx, part, tensor, DType::Float32, change);
    };
    for e in elements.list {
        let inside = e.clone().bin(">=", number(0.0)).bin("and", e.bin("<=", number(1.0)));
        cx.assert(inside, text)?;
    }
    scalar(cx, part, tensor, DType::Float32, |e| e)
}

pub(crate) fn non_max_suppression(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (boxes, scores) = (node.input(0)?, node.input(1)?);
    for tensor in [boxes, scores] {
        if cx.rank(tensor) != 3 {
            return Err("the boxes and the scores must have three dimensions".into());
        }
        if cx.dtype(tensor) != DType::Float32 {
            let name = cx.dtype(tensor).name();
            return Err(format!("the element type {name} is not supported").into());
        }
    }
    let (of_boxes, of_scores) = (cx.shape(boxes), cx.shape(scores));
    cx.require_equal(&of_boxes[0], &of_scores[0])?;
    cx.require_equal(&of_boxes[1], &of_scores[2])?;
    cx.require_equal(&of_boxes[2], &4.into())?;
    let center = match node.int("center_point_box", 0) {
        0 => false,
        1 => true,
        other => return Err(format!("`center_point_box` is {other}, not 0 or 1").into()),
    };
    let declared = cx.declared(0).filter(|to| to.len() == 2).map(|to| to[0].clone());
    let count = &of_boxes[1];
    let mut args = vec![boxes, scores, overlap(cx, node)?];
    let mut keys = Vec::new();
    if center {
        keys.push(("center", "true".to_string()));
    }
    if let Some(least) = node.optional(4) {
        args.push(scalar(cx, "score_threshold", least, DType::Float32, |e| e)?);
        keys.push(("filtered", "true".to_string()));
    }
    // Without a greatest number ONNX selects no box.
    let mut steps = Dim::zero();
    if let Some(most) = node.optional(2) {
        let (part, role) = ("max_output_boxes_per_class", "`max_output_boxes_per_class`");
        steps = match (cx.dim(most, role), &declared) {
            (Ok(most), _) => count.minimum(&most.maximum(&Dim::zero())),
            (Err(_), Some(rows)) => {
                args.push(scalar(cx, part, most, DType::Int64, |e| e)?);
                keys.push(("limited", "true".to_string()));
                count.minimum(rows)
            }
            (Err(refusal), None) => return Err(refusal),
        };
    }
    // No class has more boxes than the result has rows.
    let rows = match declared {
        Some(rows) => rows,
        None => product(&[of_scores[0].clone(), of_scores[1].clone(), steps.clone()]),
    };
    let steps = steps.minimum(&rows);
    let shape = vec![rows.clone(), 3.into()];
    let extents = [&of_scores[0], &of_scores[1], count, &steps, &rows];
    if extents.contains(&&Dim::zero()) {
        return Ok(vec![cx.compute("", DType::Int64, shape, E::int(-1, DType::Int64))?]);
    }
    for (key, extent) in [("m", &steps), ("rows", &rows)] {
        keys.push((key, extent.text(&|_| String::new())));
    }
    Ok(vec![cx.call("", DType::Int64, shape, "rare.non_max_suppression", args, keys)?])
}

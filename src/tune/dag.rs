//! Prints the stage graph of a kernel.
//!
//! ```text
//! A = PLACEHOLDER [1024, 1024]
//! B = PLACEHOLDER [1024, 1024]
//! matmul(i, j) += (A[i, k]*B[k, j])
//! C = PLACEHOLDER [1024, 1024]
//! out(i, j) = (matmul[i, j] + C[i, j])
//! ```
//!
//! The notation is that of TVM's auto-scheduler. An input precedes the first stage that reads it.

use crate::ir::print::print_expr;
use crate::ir::visit::{NodeSet, for_each_load};
use crate::ir::{Buffer, DType, Expr};
use crate::te::{Body, Graph, Input, Reduction, Stage};
use rustc_hash::FxHashSet;

/// Returns a line for each input and each stage.
pub fn print_dag(graph: &Graph) -> String {
    let mut text = String::new();
    let mut shown: FxHashSet<&str> = FxHashSet::default();
    for stage in &graph.stages {
        let read = buffers_of(&stage.body);
        for input in &graph.inputs {
            let Input::Tensor { buffer, .. } = input else { continue };
            if read.contains(buffer) && shown.insert(&buffer.name) {
                text.push_str(&placeholder(buffer));
            }
        }
        text.push_str(&line_of(stage));
    }
    for input in &graph.inputs {
        match input {
            Input::Tensor { buffer, .. } if !shown.contains(&buffer.name[..]) => {
                text.push_str(&placeholder(buffer));
            }
            Input::Scalar { var, dtype, .. } => {
                text.push_str(&format!("{} = SCALAR {dtype}\n", var.name()));
            }
            Input::Tensor { .. } => {}
        }
    }
    text
}

fn placeholder(buffer: &Buffer) -> String {
    let extents: Vec<String> = buffer.shape.iter().map(print_expr).collect();
    let dtype = match buffer.dtype {
        DType::Float32 => String::new(),
        dtype => format!(" {dtype}"),
    };
    format!("{} = PLACEHOLDER [{}]{dtype}\n", buffer.name, extents.join(", "))
}

fn line_of(stage: &Stage) -> String {
    let names: Vec<&str> = stage.buffers.iter().map(|buffer| &buffer.name[..]).collect();
    let name =
        if names.len() == 1 { names[0].to_string() } else { format!("({})", names.join(", ")) };
    let axes: Vec<&str> = stage.axes.iter().map(|axis| axis.var.name()).collect();
    let element = format!("{name}({})", axes.join(", "));
    match &stage.body {
        Body::Map(values) => format!("{element} = {}\n", list(values)),
        Body::Reduce(reduction) => format!("{element} {}\n", reduced(reduction)),
        Body::Sort(sort) => {
            let (how, at) = (if sort.descending { "descending" } else { "ascending" }, &sort.at);
            let (key, values) = (print_expr(&sort.key), list(&sort.values));
            format!("{element} = sort({values}, {key}, {how})[{}]\n", print_expr(at))
        }
    }
}

fn reduced(reduction: &Reduction) -> String {
    let operator = match &reduction.combiner.name[..] {
        "sum" => "+=".to_string(),
        "prod" => "*=".to_string(),
        other => format!("{other}="),
    };
    let condition = match &reduction.condition {
        Some(condition) => format!(" where {}", print_expr(condition)),
        None => String::new(),
    };
    format!("{operator} {}{condition}", list(&reduction.terms))
}

fn list(values: &[Expr]) -> String {
    let values: Vec<String> = values.iter().map(print_expr).collect();
    if values.len() == 1 { values[0].clone() } else { format!("({})", values.join(", ")) }
}

fn buffers_of(body: &Body) -> FxHashSet<Buffer> {
    let (mut seen, mut found) = (NodeSet::default(), FxHashSet::default());
    body.for_each_expr(&mut |expr| {
        for_each_load(expr, &mut seen, &mut |buffer, _, _| {
            found.insert(buffer.clone());
        });
    });
    found
}

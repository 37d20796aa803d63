//! The parameters of the raw entry.
//!
//! Before: `kernel k(n: var)` with `input A: float32[n]`, `inout B: float32[n]`.
//! After: `A`, `B` and `n`, which the checked entries find in the shape of `A`.

use crate::ir::{Expr, Param, Role, Source, Var};
use crate::te::{Graph, Input};

/// Returns the inputs, outputs and run-time integers in the order of the raw entry.
pub fn build_params(graph: &Graph) -> Vec<Param> {
    let mut params: Vec<Param> = Vec::new();
    for input in &graph.inputs {
        params.push(match input {
            Input::Tensor { buffer, layout_free, .. } => {
                let role = match graph.update_of(buffer) {
                    Some(_) => Role::Inout,
                    None => Role::Input,
                };
                Param::Tensor { buffer: buffer.clone(), role, layout_free: *layout_free }
            }
            Input::Scalar { var, dtype, .. } => Param::Scalar { var: var.clone(), dtype: *dtype },
        });
    }
    for buffer in &graph.outputs {
        let buffer = buffer.clone();
        params.push(Param::Tensor { buffer, role: Role::Output, layout_free: false });
    }
    for var in &graph.vars {
        let source = source_of(var, &params);
        params.push(Param::Runtime { var: var.clone(), source });
    }
    params
}

/// Returns the first extent of an argument that is `var`; if there is none, the first stride.
fn source_of(var: &Var, params: &[Param]) -> Option<Source> {
    let find = |list: &[Expr]| list.iter().position(|one| one.as_var() == Some(var));
    let tensors = || {
        params.iter().enumerate().filter_map(|(index, param)| match param {
            Param::Tensor { buffer, .. } => Some((index, buffer)),
            _ => None,
        })
    };
    let extent = tensors()
        .find_map(|(index, buffer)| Some(Source::Extent(index, find(buffer.declared_shape())?)));
    extent.or_else(|| {
        tensors().find_map(|(index, buffer)| {
            Some(Source::Stride(index, find(buffer.strides.as_deref()?)?))
        })
    })
}

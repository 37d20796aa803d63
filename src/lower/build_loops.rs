//! Build loops: the stage graph becomes one loop nest per stage, in declaration order.
//!
//! Before: `output C[x: n, y: m] = sum(A[x, k] * B[k, y], axis=k)`
//! After:  `for x { for y { C[x, y] = 0; for k { C[x, y] = C[x, y] + A[x, k]*B[k, y] } } }`
//! Ensures: accesses have one index per dimension; stages that are no output are allocated around
//! everything; every variable is bound once.

use crate::diag::Result;
use crate::ir::visit::substitute;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Intrinsic, Kernel, Param, Stmt, Var};
use crate::te::{Axis, Body, Graph, Input, Reduction, Stage};

/// The plain loop nest of a graph.
pub fn build_loops(graph: &Graph) -> Result<Kernel> {
    let stages = graph.stages.iter().map(build_stage).collect();
    let mut body = Stmt::Block(stages);
    for stage in graph.stages.iter().rev().filter(|stage| !stage.output) {
        for buffer in stage.buffers.iter().rev() {
            body = Stmt::Allocate { buffer: buffer.clone(), body: Box::new(body) };
        }
    }
    let reassociated = false;
    Ok(Kernel {
        name: graph.name.clone(),
        params: build_params(graph),
        dims: graph.dims.clone(),
        checks: Stmt::Block(graph.checks.clone()),
        body,
        reassociated,
        facts: build_facts(graph),
    })
}

/// Inputs, outputs, run-time integers: the order of the raw entry.
fn build_params(graph: &Graph) -> Vec<Param> {
    let mut params: Vec<Param> = Vec::new();
    for input in &graph.inputs {
        params.push(match input {
            Input::Tensor { buffer, layout_free, .. } => {
                Param::Tensor { buffer: buffer.clone(), output: false, layout_free: *layout_free }
            }
            Input::Scalar { var, dtype, .. } => Param::Scalar { var: var.clone(), dtype: *dtype },
        });
    }
    for buffer in &graph.outputs {
        let buffer = buffer.clone();
        params.push(Param::Tensor { buffer, output: true, layout_free: false });
    }
    for var in &graph.vars {
        let source = source_of(var, &params);
        params.push(Param::Runtime { var: var.clone(), source });
    }
    params
}

/// The first argument and dimension whose extent is exactly `var`.
fn source_of(var: &Var, params: &[Param]) -> Option<(usize, usize)> {
    params.iter().enumerate().find_map(|(index, param)| match param {
        Param::Tensor { buffer, .. } => {
            let dim = buffer.shape.iter().position(|extent| extent.as_var() == Some(var))?;
            Some((index, dim))
        }
        _ => None,
    })
}

/// What the checked entries guarantee: assumes hold, extents are not negative.
fn build_facts(graph: &Graph) -> Vec<Expr> {
    let mut facts: Vec<Expr> = graph.assumes.iter().map(|(cond, ..)| cond.clone()).collect();
    let inputs = graph.inputs.iter().filter_map(|input| match input {
        Input::Tensor { buffer, .. } => Some(buffer),
        Input::Scalar { .. } => None,
    });
    let stages = graph.stages.iter().flat_map(|stage| &stage.buffers);
    for buffer in inputs.chain(stages) {
        for extent in buffer.shape.iter().filter(|extent| extent.as_int().is_none()) {
            facts.push(Expr::le(Expr::index(0), extent.clone()));
        }
    }
    facts
}

fn build_stage(stage: &Stage) -> Stmt {
    // Fresh loop variables: an operator used twice shares its axes.
    let axes: Vec<Axis> = stage.axes.iter().map(fresh_axis).collect();
    let indices: Vec<Expr> = axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    let rename = |expr: &Expr| rename_axes(expr, &stage.axes, &axes);
    let inner = match &stage.body {
        Body::Map(value) => {
            let value = Expr::cast(stage.buffers[0].dtype, rename(value));
            Stmt::store(&stage.buffers[0], indices, value)
        }
        Body::Reduce(reduction) => build_reduction(stage, reduction, &indices, &rename),
    };
    let body = Box::new(wrap_loops(&axes, inner));
    Stmt::Produce { name: stage.name.clone(), body }
}

fn fresh_axis(axis: &Axis) -> Axis {
    Axis { var: Var::index(axis.var.name()), ..axis.clone() }
}

fn rename_axes(expr: &Expr, from: &[Axis], to: &[Axis]) -> Expr {
    substitute(expr, &mut |var| {
        let index = from.iter().position(|axis| axis.var == *var)?;
        Some(Expr::var(&to[index].var))
    })
}

fn wrap_loops(axes: &[Axis], body: Stmt) -> Stmt {
    axes.iter().rev().fold(body, |body, axis| Stmt::For {
        var: axis.var.clone(),
        min: axis.min.clone(),
        extent: axis.extent.clone(),
        kind: crate::ir::ForKind::Serial,
        body: Box::new(body),
    })
}

/// `acc = identity; for the reduction axes { if condition { acc = combine(acc, term) } }`.
fn build_reduction(
    stage: &Stage,
    reduction: &Reduction,
    indices: &[Expr],
    rename: &dyn Fn(&Expr) -> Expr,
) -> Stmt {
    let mut stmts: Vec<Stmt> = Vec::new();
    for (buffer, identity) in stage.buffers.iter().zip(&reduction.identity) {
        let identity = Expr::cast(buffer.dtype, fold_constant(rename(identity)));
        stmts.push(Stmt::store(buffer, indices.to_vec(), fold_constant(identity)));
    }
    let axes: Vec<Axis> = reduction.axes.iter().map(fresh_axis).collect();
    let rename = |expr: &Expr| rename_axes(&rename(expr), &reduction.axes, &axes);
    let terms: Vec<Expr> = reduction.terms.iter().map(&rename).collect();
    let mut update = build_update(stage, reduction, indices, terms);
    if let Some(condition) = &reduction.condition {
        let then = Box::new(update);
        update = Stmt::If { cond: rename(condition), then, otherwise: None };
    }
    stmts.push(wrap_loops(&axes, update));
    Stmt::Block(stmts)
}

/// A cast of a constant, folded, so that an initial value is a literal in every dump.
fn fold_constant(expr: Expr) -> Expr {
    match (&expr.kind, expr.ty.dtype) {
        (ExprKind::Cast(inner), dtype) if dtype.is_float() => match inner.as_float() {
            Some(value) => Expr::float(dtype, value),
            None => expr,
        },
        _ => expr,
    }
}

fn build_update(stage: &Stage, reduction: &Reduction, indices: &[Expr], terms: Vec<Expr>) -> Stmt {
    let load = |buffer: &Buffer| {
        let load = Expr::load(buffer, indices.to_vec());
        Expr::cast(buffer.dtype.compute_type(), load)
    };
    let store = |buffer: &Buffer, value: Expr| {
        Stmt::store(buffer, indices.to_vec(), Expr::cast(buffer.dtype, value))
    };
    if reduction.fused {
        let buffer = &stage.buffers[0];
        let ExprKind::Binary(BinOp::Mul, x, y) = &terms[0].kind else {
            crate::bug!("a fused reduction whose term is no product");
        };
        let value = Expr::call(Intrinsic::Fma, vec![x.clone(), y.clone(), load(buffer)]);
        return store(buffer, value);
    }
    // Operands that the combiner reads more than once become lets; the rest is substituted.
    let combiner = &reduction.combiner;
    let olds = stage.buffers.iter().map(load);
    let operands = combiner.lhs.iter().chain(&combiner.rhs).zip(olds.chain(terms));
    let mut lets: Vec<(Var, Expr)> = Vec::new();
    let mut values: Vec<(Var, Expr)> = Vec::new();
    for (var, value) in operands {
        let uses = combiner.result.iter().map(|result| count_uses(result, var)).sum::<usize>();
        if uses > 1 && !is_trivial(&value) {
            let fresh = Var::new(var.name(), value.ty);
            values.push((var.clone(), Expr::var(&fresh)));
            lets.push((fresh, value));
        } else {
            values.push((var.clone(), value));
        }
    }
    let mut results: Vec<Expr> = Vec::new();
    for result in &combiner.result {
        results.push(substitute(result, &mut |var| {
            values.iter().find(|(v, _)| v == var).map(|(_, value)| value.clone())
        }));
    }
    let update = if let [result] = &results[..] {
        store(&stage.buffers[0], result.clone())
    } else {
        store_tuple(stage, results, &store)
    };
    lets.into_iter().rev().fold(update, |body, (var, value)| Stmt::Let {
        var,
        value,
        body: Box::new(body),
    })
}

/// All components are computed before any is stored.
fn store_tuple(stage: &Stage, results: Vec<Expr>, store: &dyn Fn(&Buffer, Expr) -> Stmt) -> Stmt {
    let vars: Vec<Var> =
        stage.buffers.iter().zip(&results).map(|(b, r)| Var::new(&b.name, r.ty)).collect();
    let stores = stage.buffers.iter().zip(&vars).map(|(b, v)| store(b, Expr::var(v))).collect();
    vars.into_iter().zip(results).rev().fold(Stmt::Block(stores), |body, (var, value)| Stmt::Let {
        var,
        value,
        body: Box::new(body),
    })
}

fn count_uses(expr: &Expr, var: &Var) -> usize {
    let mut uses = 0;
    crate::ir::visit::walk_expr(expr, &mut |e| uses += usize::from(e.as_var() == Some(var)));
    uses
}

fn is_trivial(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Const(_) | ExprKind::Var(_))
        || matches!(&expr.kind, ExprKind::Cast(x) if x.ty.dtype == DType::Index && is_trivial(x))
}

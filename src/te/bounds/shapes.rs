//! Checks of the shapes of arguments: extents are not negative, assumptions hold, tensors fit in
//! memory, and extents that are expressions have their values.

use super::Checker;
use super::text::show;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::{ActualDim, BinOp, Buffer, Expr, Stmt, Var};
use crate::te::{Axis, Graph, Input};
use rustc_hash::FxHashSet;

/// The largest size of a tensor in bytes, intermediate ones included.
pub(in crate::te) const MAX_BYTES: i64 = 1 << 47;

/// Adds the checks of shapes, and their conditions to the facts.
pub(super) fn check_shapes(graph: &mut Graph, checker: &mut Checker) {
    let extents = symbolic_extents(graph, checker);
    let reduced = reduced_extents(graph, checker, &extents);
    for (extent, of_tensor) in
        extents.iter().map(|e| (e, true)).chain(reduced.iter().map(|e| (e, false)))
    {
        let cond = Expr::le(Expr::index(0), extent.clone());
        // A provable condition needs no check; the check of the tensor's size covers 64 bits.
        if !of_tensor || !checker.facts.prove(&cond) {
            let text = show(&simplify_expr(extent, &checker.facts));
            checker.checks.push(Stmt::Assert {
                cond: cond.clone(),
                message: format!("extent `{text}` is negative: {{0}}"),
                values: vec![extent.clone()],
            });
        }
        checker.facts.assume(&cond);
    }
    for (cond, text, span) in &graph.assumes {
        let asserted = graph.asserts.iter().find(|assertion| assertion.span == *span);
        checker.checks.push(match asserted {
            Some(assertion) => super::assertion_check(assertion),
            None => assumption(cond, text),
        });
    }
    for extent in &extents {
        checker.facts.assume(&Expr::le(extent.clone(), Expr::index(MAX_BYTES)));
    }
    for (cond, ..) in &graph.assumes {
        checker.facts.assume(cond);
    }
    check_sizes(graph, checker);
    equate_shapes(graph, checker);
}

/// Returns the extents of tensors that are not constant, each once, in the order of arguments and
/// stages.
fn symbolic_extents(graph: &Graph, checker: &Checker) -> Vec<Expr> {
    let mut seen = FxHashSet::default();
    let buffers = tensors(graph);
    let extents = buffers.iter().flat_map(Buffer::declared_shape);
    let symbolic = extents.filter(|e| e.as_int().is_none() && seen.insert(checker.facts.poly(e)));
    symbolic.cloned().collect()
}

/// Returns the extents of reduction axes that are neither constants nor extents of tensors.
fn reduced_extents(graph: &Graph, checker: &Checker, known: &[Expr]) -> Vec<Expr> {
    let mut seen: FxHashSet<_> = known.iter().map(|extent| checker.facts.poly(extent)).collect();
    let mut extents = Vec::new();
    for stage in &graph.stages {
        for Axis { extent, .. } in stage.reduce_axes() {
            if extent.as_int().is_none() && seen.insert(checker.facts.poly(extent)) {
                extents.push(extent.clone());
            }
        }
    }
    extents
}

/// Returns the inputs, then the tensors of stages.
fn tensors(graph: &Graph) -> Vec<Buffer> {
    let inputs = graph.inputs.iter().filter_map(|input| match input {
        Input::Tensor { buffer, .. } => Some(buffer),
        Input::Scalar { .. } => None,
    });
    inputs.chain(graph.stages.iter().flat_map(|stage| &stage.buffers)).cloned().collect()
}

/// Returns the check of an `assume`.
fn assumption(cond: &Expr, text: &str) -> Stmt {
    let mut vars: Vec<Var> = Vec::new();
    let mut seen = FxHashSet::default();
    super::walker::for_each_var(cond, &mut seen, &mut |var| {
        if vars.len() < 4 && !vars.contains(var) {
            vars.push(var.clone());
        }
    });
    let values: Vec<String> =
        vars.iter().enumerate().map(|(at, var)| format!("{} is {{{at}}}", var.name())).collect();
    Stmt::Assert {
        cond: cond.clone(),
        message: format!("`assume {text}` does not hold: {}", values.join(", ")),
        values: vars.iter().map(Expr::var).collect(),
    }
}

/// Checks that no tensor is larger than [`MAX_BYTES`], so that no address overflows. An extent of 0
/// counts as 1, because the strides of an empty tensor must fit too.
fn check_sizes(graph: &Graph, checker: &mut Checker) {
    let mut seen = FxHashSet::default();
    // Start with the widest elements: equal shapes are checked once.
    let mut buffers = tensors(graph);
    buffers.sort_by_key(|buffer| std::cmp::Reverse(buffer.dtype.bytes()));
    for buffer in buffers.iter().filter(|b| b.shape.iter().any(|e| e.as_int().is_none())) {
        let shape: Vec<_> = buffer.shape.iter().map(|e| checker.facts.poly(e)).collect();
        if !seen.insert(shape) {
            continue;
        }
        let bytes = buffer.dtype.bytes() as i64;
        let at_least_one = |extent: &Expr| match extent.as_int() {
            Some(value) => Expr::int(crate::ir::DType::Index, value.max(1)),
            None => Expr::binary(BinOp::Max, extent.clone(), Expr::index(1)),
        };
        let largest = buffer.shape.iter().map(at_least_one).reduce(Expr::mul);
        let largest = largest.expect("a symbolic extent");
        let limit = Expr::index(MAX_BYTES / bytes);
        let symbolic: Vec<Expr> =
            buffer.shape.iter().filter(|e| e.as_int().is_none()).take(4).cloned().collect();
        let extents: Vec<String> = buffer.shape.iter().map(show).collect();
        let names = symbolic.iter().enumerate().map(|(at, e)| format!("{} = {{{at}}}", show(e)));
        let names: Vec<String> = names.collect();
        checker.checks.push(Stmt::Assert {
            cond: Expr::le(largest, limit.clone()),
            message: format!(
                "`{}` would be larger than memory can be: {}[{}] with {}",
                buffer.name,
                buffer.dtype,
                extents.join(", "),
                names.join(", ")
            ),
            values: symbolic,
        });
        checker.facts.assume(&Expr::le(buffer.len(), limit));
    }
}

/// Fills `graph.dims` with the extents of arguments that are neither constants nor single run-time
/// integers, which the entry compares or reads itself.
fn equate_shapes(graph: &mut Graph, checker: &mut Checker) {
    let mut params: Vec<Option<Buffer>> = Vec::new();
    for input in &graph.inputs {
        params.push(match input {
            Input::Tensor { buffer, .. } => Some(buffer.clone()),
            Input::Scalar { .. } => None,
        });
    }
    params.extend(graph.outputs.iter().cloned().map(Some));
    for (param, buffer) in params.iter().enumerate() {
        let Some(buffer) = buffer else { continue };
        let (checks, dims) = equations(param, buffer, &checker.facts);
        checker.checks.extend(checks);
        graph.dims.extend(dims);
    }
}

/// Returns the checks of a parameter's extents that are expressions, and the variables of these
/// extents.
fn equations(param: usize, buffer: &Buffer, facts: &Facts) -> (Vec<Stmt>, Vec<ActualDim>) {
    let (mut checks, mut dims) = (Vec::new(), Vec::new());
    for (dim, extent) in buffer.declared_shape().iter().enumerate() {
        if extent.as_int().is_some() || extent.as_var().is_some() {
            continue;
        }
        let var = Var::index(format!("{}_dim{dim}", buffer.name));
        let text = show(&simplify_expr(extent, facts));
        let message = format!(
            "argument {} `{}`: extent of dimension {dim} must be `{text}` = {{0}}, got {{1}}",
            param + 1,
            buffer.name,
        );
        let actual = Expr::var(&var);
        checks.push(Stmt::Assert {
            cond: Expr::eq(actual.clone(), extent.clone()),
            message,
            values: vec![extent.clone(), actual],
        });
        dims.push(ActualDim { param, dim, var });
    }
    (checks, dims)
}

/// Replaces the checks of a parameter's shape by those of `buffer`. Keeps all other checks; none
/// may read the parameter.
pub fn replace_shape(graph: &mut Graph, param: usize, buffer: &Buffer) {
    let (old, kept) = std::mem::take(&mut graph.dims).into_iter().partition(|d| d.param == param);
    let old: Vec<ActualDim> = old;
    graph.dims = kept;
    let is_old = |stmt: &Stmt| {
        let Stmt::Assert { values, .. } = stmt else { return false };
        values.iter().any(|value| old.iter().any(|dim| value.as_var() == Some(&dim.var)))
    };
    graph.checks.retain(|stmt| !is_old(stmt));
    let mut facts = Facts::new();
    graph.known_facts().iter().for_each(|fact| facts.assume(fact));
    let (checks, dims) = equations(param, buffer, &facts);
    graph.checks.extend(checks);
    graph.dims.extend(dims);
}

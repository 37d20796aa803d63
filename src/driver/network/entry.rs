//! The entry of a network: the parameters that callers pass, and the checks of their values.
//!
//! Before: the stage graph with all params as inputs, and its checks. After: a kernel without body
//! whose parameters and checks do not mention known params. Checks of known params alone, such as
//! that the elements of an index tensor are in range, are evaluated here.

use super::constants::tensor_of;
use super::interpret::constant;
use crate::codegen::ConstantBytes;
use crate::diag::Diag;
use crate::driver::{Failure, Options, Trace, interpret, lower_passes};
use crate::ir::interp::{Trap, Value};
use crate::ir::visit::{NodeSet, any_expr, for_each_load, walk_stmt};
use crate::ir::{Buffer, Kernel, Param, Role, Stmt, Var};
use crate::te::{Assertion, Graph, Input, build_params};
use rustc_hash::FxHashMap;

/// The elements of the known params.
type Known = FxHashMap<Buffer, ConstantBytes>;

/// Returns the entry of a network. Refuses a network whose known params fail a check, or whose
/// entry would have to check them (E0704).
pub(super) fn entry_kernel(
    graph: &Graph,
    known: &Known,
    options: &Options,
    trace: &mut Trace,
) -> Result<Kernel, Failure> {
    let is_known =
        |input: &Input| tensor_of(input).is_some_and(|buffer| known.contains_key(buffer));
    let removed: Vec<usize> =
        (0..graph.inputs.len()).filter(|at| is_known(&graph.inputs[*at])).collect();
    let inputs = graph.inputs.iter().filter(|input| !is_known(input)).cloned().collect();
    let public = Graph { inputs, ..graph.clone() };
    let mut dims = graph.dims.clone();
    for dim in &mut dims {
        dim.param -= removed.iter().filter(|at| **at < dim.param).count();
    }
    let mut checks = Vec::new();
    let mut decided = Vec::new();
    for check in &graph.checks {
        let reads = reads_of(graph, check, known);
        match reads.param {
            None => checks.push(check.clone()),
            Some(_) if !reads.argument => decided.push(check.clone()),
            Some(param) => {
                // A check that runs for some arguments only holds if it holds for all.
                let always = without_guards(graph, check, known);
                let is_decided = !reads_of(graph, &always, known).argument
                    && evaluate(graph, vec![always], known, trace).is_ok();
                if !is_decided {
                    return Err(depends_on_arguments(graph, check, &param));
                }
            }
        }
    }
    evaluate(graph, decided, known, trace)?;
    let kernel = Kernel {
        dims,
        checks: Stmt::Block(checks),
        facts: graph.known_facts(),
        reassociated: graph.reassociate,
        ..Kernel::new(&graph.name, build_params(&public), Stmt::nothing())
    };
    lower_passes(kernel, options, None, trace)
}

/// What a check depends on.
struct Reads {
    /// A known param.
    param: Option<Buffer>,
    /// Whether it depends on arguments of the call.
    argument: bool,
}

fn is_argument(graph: &Graph, var: &Var) -> bool {
    let is_scalar = |input: &Input| matches!(input, Input::Scalar { var: own, .. } if own == var);
    graph.vars.contains(var)
        || graph.inputs.iter().any(is_scalar)
        || graph.dims.iter().any(|dim| dim.var == *var)
}

fn reads_of(graph: &Graph, check: &Stmt, known: &Known) -> Reads {
    let mut reads = Reads { param: None, argument: false };
    let mut seen = NodeSet::default();
    walk_stmt(check, &mut |_| {}, &mut |expr| {
        reads.argument |=
            any_expr(expr, &mut |node| node.as_var().is_some_and(|var| is_argument(graph, var)));
        for_each_load(expr, &mut seen, &mut |buffer, _, _| match known.contains_key(buffer) {
            true => reads.param = Some(buffer.clone()),
            false => reads.argument = true,
        });
    });
    reads
}

/// Returns a check without the conditions of arguments around it, such as that a batch is not
/// empty. If the result holds, so does the check.
fn without_guards(graph: &Graph, check: &Stmt, known: &Known) -> Stmt {
    match check {
        Stmt::If { cond, then, otherwise: None } => {
            let then = without_guards(graph, then, known);
            let test = Stmt::Assert { cond: cond.clone(), message: String::new(), values: vec![] };
            match reads_of(graph, &test, known) {
                Reads { param: None, argument: true } => then,
                _ => Stmt::If { cond: cond.clone(), then: Box::new(then), otherwise: None },
            }
        }
        Stmt::For { var, min, extent, kind, body } => Stmt::For {
            var: var.clone(),
            min: min.clone(),
            extent: extent.clone(),
            kind: kind.clone(),
            body: Box::new(without_guards(graph, body, known)),
        },
        other => other.clone(),
    }
}

/// The error of a check of a known param that arguments decide.
fn depends_on_arguments(graph: &Graph, check: &Stmt, param: &Buffer) -> Failure {
    let is_asserted = |assertion: &&Assertion| match check {
        Stmt::Assert { cond, .. } => cond.same(&assertion.cond),
        _ => false,
    };
    let (name, network) = (&param.name, &graph.name);
    let diag = if let Some(assertion) = graph.asserts.iter().find(is_asserted) {
        let text = format!("an `assert` compares the param `{name}` with arguments");
        Diag::new("E0704", assertion.span, text)
            .note("a param with known elements is no argument of the function")
            .help(format!("write `input {name}`, or assert about the param alone"))
    } else {
        let text = format!("the param `{name}` of `{network}` is an index");
        Diag::new("E0704", graph.span, text)
            .note("whether it is in range depends on the arguments of a call")
            .help("keep the index inside with `clamp`, or write `input`")
    };
    Failure::User(vec![diag])
}

/// Runs checks of known params in the interpreter.
fn evaluate(
    graph: &Graph,
    checks: Vec<Stmt>,
    known: &Known,
    trace: &mut Trace,
) -> Result<(), Failure> {
    if checks.is_empty() {
        return Ok(());
    }
    let mut read: Vec<Buffer> = Vec::new();
    let mut seen = NodeSet::default();
    for check in &checks {
        walk_stmt(check, &mut |_| {}, &mut |expr| {
            for_each_load(expr, &mut seen, &mut |buffer, _, _| {
                if !read.contains(buffer) {
                    read.push(buffer.clone());
                }
            });
        });
    }
    let param = |buffer: &Buffer| Param::Tensor {
        buffer: buffer.clone(),
        role: Role::Input,
        layout_free: false,
    };
    let params = read.iter().map(param).collect();
    let mut values: Vec<Value> =
        read.iter().map(|buffer| Value::Tensor(constant(buffer, &known[buffer]))).collect();
    let kernel =
        Kernel { checks: Stmt::Block(checks), ..Kernel::new(&graph.name, params, Stmt::nothing()) };
    match interpret(&kernel, &mut values, trace)? {
        Ok(()) => Ok(()),
        Err(Trap::Check(message) | Trap::Memory(message) | Trap::Bug(message)) => {
            let diag = Diag::new("E0704", graph.span, message);
            Err(Failure::User(vec![diag.note("a param of the network has this value")]))
        }
    }
}

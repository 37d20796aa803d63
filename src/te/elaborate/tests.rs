//! Small programs: what their graphs hold, and which errors they give.

use super::{Defines, elaborate, kernel_names};
use crate::diag::Diag;
use crate::ir::{Const, Expr, ExprKind};
use crate::lang::{Loader, Program, load_program};
use crate::te::{Body, Graph, Input};

/// Files in memory; the first is the one to compile.
struct Memory<'a>(&'a [(&'a str, &'a str)]);

impl Loader for Memory<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let file = self.0.iter().find(|(name, _)| *name == path);
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or("no such file".to_string())
    }
}

fn load(files: &[(&str, &str)]) -> Program {
    let (program, errors) = load_program(files[0].0, &Memory(files));
    assert!(errors.is_empty(), "{errors:?}");
    program
}

/// Runs on a large stack, as the compiler does.
fn deep<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(1 << 30);
        thread.spawn_scoped(scope, f).expect("a thread").join().expect("no panic")
    })
}

fn graphs(text: &str, defines: &Defines) -> Result<Vec<Graph>, Vec<Diag>> {
    elaborate(&load(&[("a.te", text)]), None, defines)
}

fn define(name: &str, value: &str) -> (Option<String>, String, String) {
    (None, name.to_string(), value.to_string())
}

/// The stages of a file of one kernel, as text.
fn shown(text: &str) -> String {
    match graphs(text, &[]) {
        Ok(graphs) => graphs.iter().map(show_graph).collect(),
        Err(diags) => panic!("{diags:#?}"),
    }
}

/// Code, line and message of each error.
fn errors(text: &str) -> Vec<String> {
    errors_of(&[("a.te", text)], &[])
}

fn errors_of(files: &[(&str, &str)], defines: &Defines) -> Vec<String> {
    let program = load(files);
    match elaborate(&program, None, defines) {
        Ok(_) => Vec::new(),
        Err(diags) => diags
            .iter()
            .map(|diag| {
                let line = diag.span.map_or(0, |span| program.sources.line_column(span).0);
                let help = diag.help.as_ref().map_or(String::new(), |help| format!(" [{help}]"));
                format!("{}:{line}: {}{help}", diag.code, diag.message)
            })
            .collect(),
    }
}

fn show_graph(graph: &Graph) -> String {
    let mut text = String::new();
    for input in &graph.inputs {
        if let Input::Scalar { var, dtype, .. } = input {
            text += &format!("{}: {dtype}\n", var.name());
        }
    }
    for (cond, _, _) in &graph.assumes {
        text += &format!("assume {}\n", show(cond));
    }
    for stage in &graph.stages {
        let axes: Vec<String> = stage
            .axes
            .iter()
            .map(|axis| format!("{}: {}", axis.var.name(), show(&axis.extent)))
            .collect();
        let types: Vec<String> = stage.buffers.iter().map(|b| b.dtype.to_string()).collect();
        let head = format!("{}[{}]: {}", stage.name, axes.join(", "), types.join(", "));
        text += &match &stage.body {
            Body::Map(value) => format!("{head} = {}\n", show(value)),
            Body::Reduce(reduction) => {
                let all = |exprs: &[Expr]| exprs.iter().map(show).collect::<Vec<_>>().join(", ");
                let axes: Vec<String> = reduction
                    .axes
                    .iter()
                    .map(|a| format!("{}: {} + {}", a.var.name(), show(&a.min), show(&a.extent)))
                    .collect();
                let condition = reduction.condition.as_ref();
                let condition = condition.map_or(String::new(), |c| format!(" if {}", show(c)));
                let flag = if reduction.reassociate { " reassociate" } else { "" };
                format!(
                    "{head} = {}({}) over {} from {}{condition}{flag}\n",
                    reduction.combiner.name,
                    all(&reduction.terms),
                    axes.join(", "),
                    all(&reduction.identity),
                )
            }
        };
    }
    text
}

fn show(expr: &Expr) -> String {
    let list = |exprs: &[Expr]| exprs.iter().map(show).collect::<Vec<_>>().join(", ");
    match &expr.kind {
        ExprKind::Const(Const::Int(value)) => value.to_string(),
        ExprKind::Const(Const::Float(value)) => format!("{value:?}"),
        ExprKind::Var(var) => var.name().to_string(),
        ExprKind::Unary(op, x) => format!("{op:?}({})", show(x)),
        ExprKind::Binary(op, x, y) => format!("{op:?}({}, {})", show(x), show(y)),
        ExprKind::Select(c, x, y) => format!("select({}, {}, {})", show(c), show(x), show(y)),
        ExprKind::IfThenElse(c, x, y) => format!("if({}, {}, {})", show(c), show(x), show(y)),
        ExprKind::Cast(x) => format!("{}({})", expr.ty, show(x)),
        ExprKind::Load { buffer, indices, .. } => format!("{}[{}]", buffer.name, list(indices)),
        ExprKind::Call(function, args) => format!("{}({})", function.name(), list(args)),
        other => panic!("elaboration made {other:?}"),
    }
}

#[test]
fn matmul() {
    let text = "kernel matmul(n = 4, m = n, l = 2*n) {
        input A: float32[n, l]
        input B: float32[l, m]
        reduce k: 0..l
        output C[x: n, y: m] = sum(A[x, k] * B[k, y], axis=k)
    }";
    assert_eq!(
        shown(text),
        "C[x: 4, y: 4]: float32 = sum(Mul(A[x, k], B[k, y])) over k: 0 + 8 from 0.0\n"
    );
}

#[test]
fn every_sample_has_a_graph() {
    for entry in std::fs::read_dir("samples").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "te") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.display().to_string();
        let program = load(&[(&name, &text)]);
        if let Err(diags) = elaborate(&program, None, &[]) {
            panic!("{name}: {diags:#?}");
        }
        assert!(kernel_names(&program, &[]).iter().all(|(_, complete)| *complete), "{name}");
    }
}

//! The workload of a kernel: a hash of its stage graph that depends on its meaning, but not on
//! names and formatting.
//!
//! The graph is printed with numbers in place of names: inputs and stages in order of declaration,
//! axes by position, nodes of expressions in order of first occurrence. Equal expressions have the
//! same number, whether they are shared or repeated. The text is hashed with SHA-256.
//!
//! [`named_text`] is the text with names, in which shared and repeated expressions differ.

use crate::ir::{Buffer, Const, Expr, ExprKind, Var};
use crate::te::{Axis, Body, Graph, Input, Stage};
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Returns the hash of a graph after `contract_floats`, as 32 hexadecimal digits.
pub fn workload_hash(graph: &Graph) -> String {
    let digest = Sha256::digest(canonical_text(graph).as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the text that is hashed.
pub fn canonical_text(graph: &Graph) -> String {
    write_graph(graph, Writer::default())
}

/// Returns the text with all names, by which automatic schedules are cached: equal texts have equal
/// search spaces and estimates, and a schedule of one is a schedule of the other.
pub fn named_text(graph: &Graph) -> String {
    let writer = Writer { named: true, ..Writer::default() };
    let names = (&graph.name, &graph.params, &graph.consts, &graph.aliases);
    let part = if graph.part_of_network { "part of a network\n" } else { "" };
    format!("{names:?}\n{part}{}", write_graph(graph, writer))
}

fn write_graph(graph: &Graph, mut writer: Writer) -> String {
    for var in &graph.vars {
        writer.bind(var, "n");
    }
    writer.line(&format!("vars {}", graph.vars.len()));
    for input in &graph.inputs {
        writer.input(input);
    }
    for stage in &graph.stages {
        writer.earlier_steps(stage);
        writer.updated(stage);
    }
    for stage in &graph.stages {
        writer.stage(stage);
    }
    let outputs = graph.outputs.iter().map(|buffer| writer.buffer(buffer)).collect::<Vec<_>>();
    writer.line(&format!("outputs {}", outputs.join(" ")));
    for (condition, ..) in &graph.assumes {
        let condition = writer.expr(condition);
        writer.line(&format!("assume {condition}"));
    }
    if graph.reassociate {
        writer.line("reassociate");
    }
    // A recorded schedule is for the sizes that it was tuned for.
    if writer.named {
        for call in &graph.estimates {
            let values = call.values.iter().map(|(var, value)| format!("{}={value}", var.name()));
            writer.line(&format!("estimate {}", values.collect::<Vec<_>>().join(" ")));
        }
    }
    writer.text
}

/// The text so far, and the numbers.
#[derive(Default)]
struct Writer {
    text: String,
    /// Whether names are part of the text, and nodes with different addresses are different.
    named: bool,
    vars: FxHashMap<Var, String>,
    buffers: FxHashMap<Buffer, usize>,
    /// Numbers of nodes by operation and operand numbers.
    nodes: FxHashMap<String, usize>,
    /// Numbers of nodes by address, valid while their variables stay bound.
    known: FxHashMap<usize, usize>,
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Gives a variable the next number of its kind.
    fn bind(&mut self, var: &Var, kind: &str) -> String {
        let name = format!("{kind}{}", self.vars.len());
        self.vars.insert(var.clone(), name.clone());
        let source = if self.named { var.name() } else { "" };
        format!("{name}:{}{source}", var.ty().dtype)
    }

    fn declare(&mut self, buffer: &Buffer) -> String {
        let shape: Vec<String> = buffer.shape.iter().map(|extent| self.expr(extent)).collect();
        self.buffers.insert(buffer.clone(), self.buffers.len());
        let source = if self.named { &buffer.name[..] } else { "" };
        format!("{} {}{source}[{}]", self.buffer(buffer), buffer.dtype, shape.join(" "))
    }

    fn buffer(&self, buffer: &Buffer) -> String {
        match self.buffers.get(buffer) {
            Some(number) => format!("b{number}"),
            None => crate::bug!("{} is read before it is declared", buffer.name),
        }
    }

    fn input(&mut self, input: &Input) {
        let line = match input {
            Input::Tensor { buffer, layout_free, .. } => {
                // Packing it is not part of a measurement.
                let free = if *layout_free { " packed ahead" } else { "" };
                format!("input {}{free}", self.declare(buffer))
            }
            Input::Scalar { var, dtype, .. } => format!("scalar {} {dtype}", self.bind(var, "s")),
        };
        self.line(&line);
    }

    fn axes(&mut self, kind: &str, axes: &[Axis]) {
        for axis in axes {
            let (min, extent) = (self.expr(&axis.min), self.expr(&axis.extent));
            let var = self.bind(&axis.var, kind);
            self.line(&format!("{var} {min} {extent}"));
        }
    }

    fn exprs(&mut self, what: &str, exprs: &[Expr]) {
        let exprs: Vec<String> = exprs.iter().map(|expr| self.expr(expr)).collect();
        self.line(&format!("{what} {}", exprs.join(" ")));
    }

    /// Declares the buffers of earlier steps, which stages in front of their own may read.
    fn earlier_steps(&mut self, stage: &Stage) {
        let Some(recurrence) = &stage.recurrence else { return };
        let buffers: Vec<String> =
            recurrence.previous.iter().map(|one| self.declare(one)).collect();
        let line = format!("earlier {} {} {}", recurrence.id, recurrence.steps, buffers.join(", "));
        self.line(&line);
    }

    /// Declares the arguments that stages update, as other stages read them afterwards.
    fn updated(&mut self, stage: &Stage) {
        let Some(update) = &stage.update else { return };
        let (before, after) = (self.buffer(&update.before), self.declare(&update.after));
        self.line(&format!("updated {before} {after}"));
    }

    fn stage(&mut self, stage: &Stage) {
        let buffers: Vec<String> = stage.buffers.iter().map(|one| self.declare(one)).collect();
        let kind = if stage.output { "output" } else { "compute" };
        let source = if self.named { &stage.name[..] } else { "" };
        self.line(&format!("{kind}{source} {}", buffers.join(", ")));
        if let Some(recurrence) = &stage.recurrence {
            let buffers = recurrence.previous.iter().map(|one| self.buffer(one));
            self.line(&format!("recurrence {}", buffers.collect::<Vec<_>>().join(" ")));
        }
        if let Some(update) = &stage.update {
            let after = self.buffer(&update.after);
            self.exprs(&format!("update {after}"), &update.offsets);
        }
        self.known.clear();
        self.axes("d", &stage.axes);
        match &stage.body {
            Body::Map(values) => self.exprs("map", values),
            Body::Reduce(reduction) => {
                self.axes("r", &reduction.axes);
                self.exprs("identity", &reduction.identity);
                self.exprs("terms", &reduction.terms);
                let condition: Vec<Expr> = reduction.condition.iter().cloned().collect();
                self.exprs("where", &condition);
                let combiner = &reduction.combiner;
                if self.named {
                    self.line(&combiner.name);
                }
                let vars: Vec<String> = combiner.lhs.iter().map(|v| self.bind(v, "x")).collect();
                self.line(&format!("lhs {}", vars.join(" ")));
                let vars: Vec<String> = combiner.rhs.iter().map(|v| self.bind(v, "y")).collect();
                self.line(&format!("rhs {}", vars.join(" ")));
                // Reductions of one name share a combiner; its variables are bound again.
                self.known.clear();
                self.exprs("combine", &combiner.result);
                self.exprs("neutral", &combiner.identity);
                let flags = [combiner.commutative, reduction.reassociate, reduction.fused];
                self.line(&format!("flags {flags:?}"));
                self.known.clear();
            }
            Body::Sort(sort) => {
                self.axes("r", std::slice::from_ref(&sort.axis));
                self.exprs("key", std::slice::from_ref(&sort.key));
                self.exprs("values", &sort.values);
                self.exprs("at", std::slice::from_ref(&sort.at));
                self.line(&format!("descending {}", sort.descending));
            }
        }
    }

    /// The number of an expression; what was not met before is written out.
    fn expr(&mut self, expr: &Expr) -> String {
        let number = match self.known.get(&expr.id()) {
            Some(number) => *number,
            None => {
                let node = self.node(expr);
                let next = self.nodes.len();
                let key = if self.named { format!("{next} {node}") } else { node.clone() };
                let number = *self.nodes.entry(key).or_insert(next);
                if number == next {
                    self.line(&format!("e{number} = {node}"));
                }
                self.known.insert(expr.id(), number);
                number
            }
        };
        format!("e{number}")
    }

    fn node(&mut self, expr: &Expr) -> String {
        let mut node = format!("{} ", expr.ty.dtype);
        if !expr.ty.is_scalar() {
            crate::bug!("a stage has a vector in it");
        }
        let mut operands: Vec<&Expr> = Vec::new();
        match &expr.kind {
            ExprKind::Const(Const::Int(value)) => node += &value.to_string(),
            ExprKind::Const(Const::Float(value)) => node += &format!("{:#x}", value.to_bits()),
            ExprKind::Var(var) => match self.vars.get(var) {
                Some(name) => node += name,
                None => crate::bug!("variable {} is bound nowhere", var.name()),
            },
            ExprKind::Unary(op, x) => {
                node += &format!("{op:?}");
                operands.push(x);
            }
            ExprKind::Binary(op, x, y) => {
                node += &format!("{op:?}");
                operands.extend([x, y]);
            }
            ExprKind::Select(c, t, f) => {
                node += "select";
                operands.extend([c, t, f]);
            }
            ExprKind::IfThenElse(c, t, f) => {
                node += "if";
                operands.extend([c, t, f]);
            }
            ExprKind::Cast(x) => {
                node += "cast";
                operands.push(x);
            }
            ExprKind::Bitcast(x) => {
                node += "bits";
                operands.push(x);
            }
            ExprKind::Load { buffer, indices, mask } => {
                node += &self.buffer(buffer);
                operands.extend(indices);
                operands.extend(mask);
            }
            ExprKind::Call(function, args) => {
                node += function.name();
                operands.extend(args);
            }
            ExprKind::Let(var, value, body) => {
                let value = self.expr(value);
                let var = self.bind(var, "l");
                node += &format!("let {var} {value}");
                operands.push(body);
            }
            ExprKind::Ramp(..) | ExprKind::Broadcast(_) => {
                crate::bug!("a stage has a vector in it")
            }
        }
        for operand in operands {
            let operand = self.expr(operand);
            let _ = write!(node, " {operand}");
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{self, FpContract, Options, Trace};
    use crate::lang::Loader;
    use crate::target::Target;

    struct Text(String);

    impl Loader for Text {
        fn read(&self, _: &str) -> Result<Vec<u8>, String> {
            Ok(self.0.clone().into_bytes())
        }
    }

    fn hash_with(text: &str, contract: FpContract) -> String {
        let target = Target::parse("x86-avx2").unwrap();
        let options = Options { fp_contract: contract, ..Options::new(target) };
        let mut trace = Trace::default();
        let program = driver::load("a.te", &Text(text.to_string()), &mut trace);
        let program = program.unwrap_or_else(|(_, failure)| panic!("{failure:?}"));
        let graphs = driver::elaborate(&program, &options, &mut trace).expect("a right program");
        workload_hash(&graphs[0])
    }

    fn hash(text: &str) -> String {
        hash_with(text, FpContract::Fast)
    }

    const PRODUCT: &str = "kernel product(n = 8) {
    input A: float32[n, n]
    input B: float32[n, n] layout_free
    reduce k: 0..n
    compute P[i: n, j: n] = sum(A[i, k] * B[k, j], axis=k)
    output out[i: n, j: n] = max(P[i, j], 0.0)
}";

    #[test]
    fn ignores_names_formatting_and_schedules() {
        let renamed = "# Another one.
kernel other(size = 8) {
    input X: float32[size, size]
    input Y: float32[size, size] layout_free
    reduce inner: 0..size
    compute Z[row: size, col: size] =
        sum(X[row, inner] * Y[inner, col], axis=inner)
    output W[a: size, b: size] = max(Z[a, b], 0.0)
}
schedule other { W.vectorize(b) }";
        assert_eq!(hash(PRODUCT), hash(renamed));
        assert_eq!(hash(PRODUCT), hash(PRODUCT), "one program, two elaborations");
    }

    #[test]
    fn every_change_of_meaning_changes_the_hash() {
        let changes = [
            ("n = 8", "n = 9"),
            ("float32", "float64"),
            (" layout_free", ""),
            ("A[i, k]", "A[k, i]"),
            ("* B", "- B"),
            ("0.0)", "1.0)"),
            ("max(", "min("),
            ("0..n", "1..n"),
            ("axis=k)", "axis=k, where=k > 2)"),
            ("n = 8)", "n = 8) reassociate"),
            ("n = 8", "n: var"),
            ("A: float32[n, n]\n    input B:", "B: float32[n, n]\n    input A:"),
        ];
        let mut seen = vec![hash(PRODUCT), hash_with(PRODUCT, FpContract::Off)];
        assert_ne!(seen[0], seen[1], "fp-contract");
        for (from, to) in changes {
            let changed = PRODUCT.replace(from, to);
            assert_ne!(changed, PRODUCT, "{from}");
            let changed = hash(&changed);
            assert!(!seen.contains(&changed), "{from} to {to}");
            seen.push(changed);
        }
    }
}

//! The loop IR as text.
//!
//! [`Style::Simple`] is the pseudo-C of TVM's old printer, as LANGUAGE.md, section 5, shows it:
//! binary operations in parentheses, `*` and `/` without spaces, `produce NAME { … }`, two spaces
//! of indentation, no types. Constants of `index` and `int32` are plain, other integers have a cast
//! such as `(uint8)2`. The suffix of float32 is `f`, of float16 `h`, of bfloat16 `bf`; float64 has
//! no suffix but a point or an exponent. A fused multiply-add prints as a sum.
//!
//! [`Style::Full`] adds the signature, entry checks, types of `let`s and allocations, and tables,
//! and prints `fma`. The output depends on the IR only, not on addresses or hash order.
//!
//! A variable that is bound inside another one of the same name is renamed: a loop variable to
//! `STAGE.x`, with the stage of the enclosing `produce`, any other one to `x_2`.

mod float;
mod names;

pub use float::format_float;

use super::arith::Facts;
use super::simplify::simplify_expr;
use super::visit::{NodeSet, for_each_child, for_each_load, walk_stmt};
use super::{BinOp, Buffer, Const, DType, Expr, ExprKind, ForKind, Intrinsic, Kernel, Param};
use super::{Role, Scope, Source, Stmt, UnOp, Var};
use crate::ir::ThreadIndex;
use names::Names;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

/// The level of detail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// The pseudo-C of docs/LANGUAGE.md, section 5.
    Simple,
    /// Everything: parameters, types, scopes.
    Full,
}

/// Prints a kernel.
pub fn print_kernel(kernel: &Kernel, style: Style) -> String {
    let mut printer = Printer::new(style);
    for param in &kernel.params {
        match param {
            Param::Tensor { buffer, .. } => printer.names.bind_buffer(buffer),
            Param::Scalar { var, .. } | Param::Runtime { var, .. } => printer.names.bind_var(var),
        }
    }
    let tables = constant_buffers(&[&kernel.checks, &kernel.body]);
    tables.iter().for_each(|table| printer.names.bind_buffer(table));
    match style {
        Style::Simple => printer.stmt(&kernel.body),
        Style::Full => printer.kernel(kernel, &tables),
    }
    printer.out
}

/// Prints a statement in the simple style.
pub fn print_stmt(stmt: &Stmt) -> String {
    let mut printer = Printer::new(Style::Simple);
    printer.stmt(stmt);
    printer.out
}

/// Prints an expression in the simple style, for messages. Names may clash.
pub fn print_expr(expr: &Expr) -> String {
    let mut printer = Printer::new(Style::Simple);
    printer.whole_expr(expr);
    printer.out
}

/// If the tree of an expression has more nodes than this, shared nodes are printed once, with
/// labels.
const TREE_LIMIT: u64 = 1_000_000;

struct Printer {
    out: String,
    style: Style,
    indent: usize,
    names: Names,
    /// The labels of shared nodes, by [`Expr::id`]; `None` until the node is printed. Empty unless
    /// the tree of the expression is much larger than its graph.
    labels: FxHashMap<usize, Option<usize>>,
    /// The number of printed labels.
    labelled: usize,
}

impl Printer {
    fn new(style: Style) -> Printer {
        let (out, names, labels) = (String::new(), Names::default(), FxHashMap::default());
        Printer { out, style, indent: 0, names, labels, labelled: 0 }
    }

    fn kernel(&mut self, kernel: &Kernel, tables: &[Buffer]) {
        self.out.push_str("kernel ");
        self.out.push_str(&kernel.name);
        self.out.push('(');
        for (i, param) in kernel.params.iter().enumerate() {
            self.out.push_str(if i > 0 { ", " } else { "" });
            self.param(kernel, param);
        }
        self.out.push_str(if kernel.reassociated { ") reassociated {\n" } else { ") {\n" });
        self.indent += 1;
        for table in tables {
            self.table(table);
        }
        for fact in &kernel.facts {
            self.line("fact ");
            self.whole_expr(fact);
            self.out.push('\n');
        }
        for dim in &kernel.dims {
            self.names.bind_var(&dim.var);
            let tensor = kernel.params[dim.param].name();
            let name = self.names.var(&dim.var).to_string();
            self.line("");
            let _ = writeln!(self.out, "let {name}: index = {tensor}.shape[{}]", dim.dim);
        }
        if !matches!(&kernel.checks, Stmt::Block(stmts) if stmts.is_empty()) {
            self.braced("checks", &kernel.checks);
        }
        kernel.dims.iter().for_each(|dim| self.names.unbind_var(&dim.var));
        self.stmt(&kernel.body);
        self.indent -= 1;
        self.out.push_str("}\n");
    }

    fn param(&mut self, kernel: &Kernel, param: &Param) {
        match param {
            Param::Tensor { buffer, role, layout_free } => {
                self.out.push_str(match role {
                    Role::Input => "",
                    Role::Output => "output ",
                    Role::Inout => "inout ",
                });
                self.declaration(buffer);
                self.out.push_str(if *layout_free { " layout_free" } else { "" });
            }
            Param::Scalar { var, dtype } => {
                let name = self.names.var(var).to_string();
                let _ = write!(self.out, "{name}: {dtype}");
            }
            Param::Runtime { var, source } => {
                let name = self.names.var(var).to_string();
                let _ = write!(self.out, "{name}: index");
                if let Some(source) = source {
                    let (param, what, dim) = match source {
                        Source::Extent(param, dim) => (param, "shape", dim),
                        Source::Stride(param, dim) => (param, "strides", dim),
                    };
                    let tensor = kernel.params[*param].name();
                    let _ = write!(self.out, " = {tensor}.{what}[{dim}]");
                }
            }
        }
    }

    /// Prints `A: float32[100, n]`.
    fn declaration(&mut self, buffer: &Buffer) {
        let name = self.names.buffer(buffer).to_string();
        let _ = write!(self.out, "{name}: {}[", buffer.dtype);
        self.list(&buffer.shape);
        self.out.push(']');
        if let Some(strides) = &buffer.strides {
            self.out.push_str(" strides[");
            self.list(strides);
            self.out.push(']');
        }
    }

    fn table(&mut self, table: &Buffer) {
        self.line("constant ");
        self.declaration(table);
        self.out.push_str(" = {");
        for (i, bits) in table.init.iter().flatten().enumerate() {
            let _ = write!(self.out, "{}{bits:#x}", if i > 0 { ", " } else { "" });
        }
        self.out.push_str("}\n");
    }

    /// Begins a line with `text`.
    fn line(&mut self, text: &str) {
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
    }

    fn braced(&mut self, head: &str, body: &Stmt) {
        self.line(head);
        self.out.push_str(" {\n");
        self.indented(body);
        self.line("}\n");
    }

    fn indented(&mut self, body: &Stmt) {
        self.indent += 1;
        self.stmt(body);
        self.indent -= 1;
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Block(stmts) => stmts.iter().for_each(|s| self.stmt(s)),
            Stmt::For { var, min, extent, kind, body } => {
                self.for_loop(var, min, extent, kind, body);
            }
            Stmt::If { cond, then, otherwise } => {
                self.line("if (");
                self.whole_expr(cond);
                self.out.push_str(") {\n");
                self.indented(then);
                if let Some(otherwise) = otherwise {
                    self.line("} else {\n");
                    self.indented(otherwise);
                }
                self.line("}\n");
            }
            Stmt::Store { buffer, indices, value, mask, nontemporal } => {
                self.line("");
                self.access(buffer, indices);
                self.out.push_str(" = ");
                self.whole_expr(value);
                if let Some(mask) = mask {
                    self.out.push_str(" if ");
                    self.whole_expr(mask);
                }
                self.out.push_str(if *nontemporal { "  // nontemporal\n" } else { "\n" });
            }
            Stmt::Let { var, value, body } => {
                self.line("let ");
                let name = self.let_head(var);
                self.whole_expr(value);
                self.out.push('\n');
                self.names.bind(var, name);
                self.stmt(body);
                self.names.unbind_var(var);
            }
            Stmt::Allocate { buffer, body } => {
                self.names.bind_buffer(buffer);
                self.allocation(buffer);
                self.stmt(body);
                self.names.unbind_buffer(buffer);
            }
            Stmt::Produce { name, body } => {
                self.names.stages.push(name.clone());
                self.braced(&format!("produce {name}"), body);
                self.names.stages.pop();
            }
            Stmt::Assert { cond, message, values } => {
                self.line("assert ");
                self.whole_expr(cond);
                let _ = write!(self.out, ", {message:?}");
                for value in values {
                    self.out.push_str(", ");
                    self.whole_expr(value);
                }
                self.out.push('\n');
            }
            Stmt::Sort(sort) => {
                let name = self.names.free_loop_name(&sort.var);
                self.line("sort ");
                self.access(&sort.order, std::slice::from_ref(&Expr::index(0)));
                self.out.push_str(", ");
                self.whole_expr(&sort.count);
                self.out.push_str(if sort.descending { " = descending (" } else { " = (" });
                let _ = write!(self.out, "{name}, ");
                self.whole_expr(&sort.min);
                self.out.push_str(", ");
                self.whole_expr(&sort.extent);
                self.out.push_str(") ");
                self.names.bind(&sort.var, name);
                self.whole_expr(&sort.key);
                self.names.unbind_var(&sort.var);
                self.out.push('\n');
            }
            Stmt::SimdKernel { body } => self.braced("simd_kernel", body),
            Stmt::Tensorize { name, body } => {
                self.line("// intrinsic ");
                self.out.push_str(name);
                self.out.push('\n');
                self.stmt(body);
            }
            Stmt::Prefetch { buffer, indices } => {
                self.line("prefetch(");
                self.access(buffer, indices);
                self.out.push_str(")\n");
            }
            Stmt::CopyGroup { body } => self.braced("copy_group", body),
            Stmt::AwaitCopies { in_flight, products_run } => {
                let running = if *products_run { ", products_run" } else { "" };
                self.line("");
                let _ = writeln!(self.out, "await_copies(in_flight={in_flight}{running})");
            }
            Stmt::Barrier => self.line("tvm_storage_sync(\"shared\")\n"),
        }
    }

    fn for_loop(&mut self, var: &Var, min: &Expr, extent: &Expr, kind: &ForKind, body: &Stmt) {
        if let ForKind::Thread(axis) = kind {
            return self.thread_loop(var, extent, *axis, body);
        }
        let name = self.names.free_loop_name(var);
        self.line(match kind {
            ForKind::Parallel => "parallel",
            ForKind::Vectorized => "vectorized",
            ForKind::Unrolled | ForKind::UnrollHint => "unrolled",
            ForKind::Serial | ForKind::Thread(_) => "for",
        });
        let _ = write!(self.out, " ({name}, ");
        self.whole_expr(min);
        self.out.push_str(", ");
        self.whole_expr(extent);
        self.out.push_str(") {\n");
        self.names.bind(var, name);
        self.indented(body);
        self.names.unbind_var(var);
        self.line("}\n");
    }

    /// Prints `// attr […]`, which has no braces. A GPU index has the same name in every loop.
    fn thread_loop(&mut self, var: &Var, extent: &Expr, axis: ThreadIndex, body: &Stmt) {
        let again = self.names.is_bound(var);
        let is_virtual = axis == ThreadIndex::Virtual;
        let name = if is_virtual { self.names.free_loop_name(var) } else { axis.to_string() };
        let key = if is_virtual { "virtual_thread" } else { "thread_extent" };
        self.line("");
        let _ = write!(self.out, "// attr [iter_var({name}, , {axis})] {key} = ");
        self.whole_expr(extent);
        self.out.push('\n');
        if again {
            return self.stmt(body);
        }
        self.names.bind(var, name);
        self.stmt(body);
        self.names.unbind_var(var);
    }

    fn allocation(&mut self, buffer: &Buffer) {
        if self.style == Style::Full {
            self.line("allocate ");
            self.declaration(buffer);
            let _ = writeln!(self.out, " {}", buffer.scope.name());
            return;
        }
        let name = self.names.buffer(buffer).to_string();
        let scope = buffer.scope.name();
        self.line("");
        let _ = writeln!(self.out, "// attr [{name}] storage_scope = \"{scope}\"");
        self.line("");
        let _ = write!(self.out, "allocate {name}[{}", buffer.dtype);
        self.out.push_str(" * ");
        let elements = simplify_expr(&buffer.len(), &Facts::new());
        self.whole_expr(&elements);
        self.out.push_str("]\n");
    }

    /// Prints `A[i, j]`.
    fn access(&mut self, buffer: &Buffer, indices: &[Expr]) {
        let name = self.names.buffer(buffer);
        self.out.push_str(name);
        self.out.push('[');
        self.list(indices);
        self.out.push(']');
    }

    fn list(&mut self, exprs: &[Expr]) {
        for (i, expr) in exprs.iter().enumerate() {
            self.out.push_str(if i > 0 { ", " } else { "" });
            self.expr(expr);
        }
    }

    /// Prints an expression of a statement.
    fn whole_expr(&mut self, expr: &Expr) {
        self.labels = shared_nodes(expr);
        self.expr(expr);
        self.labels.clear();
        self.labelled = 0;
    }

    fn expr(&mut self, expr: &Expr) {
        if self.labels.is_empty() || !self.labels.contains_key(&expr.id()) {
            return self.node(expr);
        }
        if let Some(label) = self.labels[&expr.id()] {
            let _ = write!(self.out, "%{label}");
            return;
        }
        self.labelled += 1;
        let label = self.labelled;
        self.labels.insert(expr.id(), Some(label));
        let _ = write!(self.out, "(%{label} := ");
        self.node(expr);
        self.out.push(')');
    }

    fn node(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Const(value) => self.constant(expr.ty.dtype, *value),
            ExprKind::Var(var) => self.out.push_str(self.names.var(var)),
            ExprKind::Unary(op, x) => self.unary(*op, x),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b),
            ExprKind::Select(c, t, f) => self.call_of("select", &[c, t, f]),
            ExprKind::IfThenElse(c, t, f) => self.call_of("if_then_else", &[c, t, f]),
            ExprKind::Cast(x) => {
                let _ = write!(self.out, "{}", expr.ty);
                self.call_of("", &[x]);
            }
            ExprKind::Bitcast(x) => {
                let _ = write!(self.out, "reinterpret_{}(", expr.ty);
                self.expr(x);
                self.out.push(')');
            }
            ExprKind::Load { buffer, indices, mask: None } => self.access(buffer, indices),
            ExprKind::Load { buffer, indices, mask: Some(mask) } => {
                self.out.push('(');
                self.access(buffer, indices);
                self.out.push_str(" if ");
                self.expr(mask);
                self.out.push(')');
            }
            ExprKind::Ramp(base, stride) => {
                self.out.push_str("ramp(");
                self.expr(base);
                self.out.push_str(", ");
                self.expr(stride);
                let _ = write!(self.out, ", {})", expr.ty.lanes);
            }
            ExprKind::Broadcast(x) => {
                let _ = write!(self.out, "x{}", expr.ty.lanes);
                self.call_of("", &[x]);
            }
            ExprKind::Call(Intrinsic::Fma, args) if self.style == Style::Simple => {
                self.fused(&args[0], &args[1], &args[2]);
            }
            ExprKind::Call(function, args) => {
                let args: Vec<&Expr> = args.iter().collect();
                self.call_of(function.name(), &args);
            }
            ExprKind::Let(var, value, body) => {
                self.out.push_str("(let ");
                let name = self.let_head(var);
                self.expr(value);
                self.names.bind(var, name);
                self.out.push_str(" in ");
                self.expr(body);
                self.out.push(')');
                self.names.unbind_var(var);
            }
        }
    }

    /// Prints `x = `, with the type in the full style. Returns the name, to be bound after the
    /// value.
    fn let_head(&mut self, var: &Var) -> String {
        let name = self.names.free_name(var);
        self.out.push_str(&name);
        if self.style == Style::Full {
            let _ = write!(self.out, ": {}", var.ty());
        }
        self.out.push_str(" = ");
        name
    }

    fn call_of(&mut self, name: &str, args: &[&Expr]) {
        self.out.push_str(name);
        self.out.push('(');
        for (i, arg) in args.iter().enumerate() {
            self.out.push_str(if i > 0 { ", " } else { "" });
            self.expr(arg);
        }
        self.out.push(')');
    }

    fn unary(&mut self, op: UnOp, x: &Expr) {
        let prefix = match op {
            UnOp::Neg => "-",
            UnOp::BitNot => "~",
            UnOp::Not => "!",
            UnOp::Abs => return self.call_of("abs", &[x]),
            UnOp::Floor => return self.call_of("floor", &[x]),
            UnOp::Ceil => return self.call_of("ceil", &[x]),
            UnOp::Round => return self.call_of("round", &[x]),
            UnOp::Trunc => return self.call_of("trunc", &[x]),
            UnOp::Sqrt => return self.call_of("sqrt", &[x]),
            UnOp::Popcount => return self.call_of("popcount", &[x]),
            UnOp::IsNan => return self.call_of("is_nan", &[x]),
            UnOp::Likely => return self.call_of("likely", &[x]),
        };
        self.out.push_str(prefix);
        // Avoids `--x` and `-(uint8)2`.
        let atom = !matches!(&x.kind, ExprKind::Const(_) | ExprKind::Unary(UnOp::Neg, _));
        if atom { self.expr(x) } else { self.call_of("", &[x]) }
    }

    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr) {
        let infix = match op {
            BinOp::Add => " + ",
            BinOp::Sub => " - ",
            BinOp::Mul => "*",
            BinOp::Div => "/",
            BinOp::FloorDiv => return self.call_of("floordiv", &[a, b]),
            BinOp::FloorMod => return self.call_of("floormod", &[a, b]),
            BinOp::Min => return self.call_of("min", &[a, b]),
            BinOp::Max => return self.call_of("max", &[a, b]),
            BinOp::BitAnd => " & ",
            BinOp::BitOr => " | ",
            BinOp::BitXor => " ^ ",
            BinOp::Shl => " << ",
            BinOp::Shr => " >> ",
            BinOp::Eq => " == ",
            BinOp::Ne => " != ",
            BinOp::Lt => " < ",
            BinOp::Le => " <= ",
            BinOp::Gt => " > ",
            BinOp::Ge => " >= ",
            BinOp::And => " && ",
            BinOp::Or => " || ",
        };
        self.out.push('(');
        self.expr(a);
        self.out.push_str(infix);
        self.expr(b);
        self.out.push(')');
    }

    /// Prints `fma(x, y, z)` as a sum or difference.
    fn fused(&mut self, x: &Expr, y: &Expr, z: &Expr) {
        self.out.push('(');
        if let (ExprKind::Unary(UnOp::Neg, z), false) = (&z.kind, is_negation(x)) {
            self.product(x, y);
            self.out.push_str(" - ");
            self.expr(z);
        } else {
            self.expr(z);
            let (sign, x) = match &x.kind {
                ExprKind::Unary(UnOp::Neg, x) => (" - ", x),
                _ => (" + ", x),
            };
            self.out.push_str(sign);
            self.product(x, y);
        }
        self.out.push(')');
    }

    fn product(&mut self, x: &Expr, y: &Expr) {
        self.out.push('(');
        self.expr(x);
        self.out.push('*');
        self.expr(y);
        self.out.push(')');
    }

    fn constant(&mut self, dtype: DType, value: Const) {
        let plain = match dtype {
            DType::Int32 => self.style == Style::Simple,
            dtype => dtype == DType::Index,
        };
        let _ = match value {
            Const::Float(value) => write!(self.out, "{}", format_float(dtype, value)),
            Const::Int(value) if dtype == DType::Bool => write!(self.out, "{}", value != 0),
            Const::Int(value) if plain => write!(self.out, "{value}"),
            Const::Int(value) => write!(self.out, "({dtype}){value}"),
        };
    }
}

fn is_negation(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Unary(UnOp::Neg, _))
}

/// Returns the nodes that need a label, if the tree of the expression is too large to print.
fn shared_nodes(expr: &Expr) -> FxHashMap<usize, Option<usize>> {
    let mut sizes = FxHashMap::default();
    let mut shared = FxHashSet::default();
    let size = tree_size(expr, &mut sizes, &mut shared);
    if size <= TREE_LIMIT.max(4 * sizes.len() as u64) {
        return FxHashMap::default();
    }
    shared.into_iter().map(|id| (id, None)).collect()
}

/// Returns the number of nodes of the tree. Adds the inner nodes with several uses to `shared`.
fn tree_size(expr: &Expr, sizes: &mut FxHashMap<usize, u64>, shared: &mut FxHashSet<usize>) -> u64 {
    if matches!(&expr.kind, ExprKind::Const(_) | ExprKind::Var(_)) {
        return 1;
    }
    if let Some(size) = sizes.get(&expr.id()) {
        shared.insert(expr.id());
        return *size;
    }
    let mut size = 1u64;
    for_each_child(expr, &mut |child| {
        size = size.saturating_add(tree_size(child, sizes, shared));
    });
    sizes.insert(expr.id(), size);
    size
}

/// Returns the tables that statements read, in the order of their first use.
fn constant_buffers(stmts: &[&Stmt]) -> Vec<Buffer> {
    let (mut seen, mut tables) = (NodeSet::default(), Vec::new());
    for stmt in stmts {
        walk_stmt(stmt, &mut |_| {}, &mut |expr| {
            for_each_load(expr, &mut seen, &mut |buffer, _, _| {
                if buffer.scope == Scope::Constant && !tables.contains(buffer) {
                    tables.push(buffer.clone());
                }
            });
        });
    }
    tables
}

#[cfg(test)]
mod tests;

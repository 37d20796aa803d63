//! The loop IR as text: the pseudo-C of the language reference, or everything.
//!
//! Names are the user's. A loop named like one around it prints as `STAGE.x`; what clashes after
//! that gets `_2`, `_3` … in the order of appearance, so equal kernels print equally.

mod expr;
mod names;

use super::{ActualDim, Buffer, Expr, ForKind, Kernel, Param, Scope, Stmt};
use names::Names;
use std::fmt::Write;

/// How much is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// The pseudo-C of LANGUAGE.md, section 5.
    Simple,
    /// Everything: parameters, types, scopes.
    Full,
}

/// A kernel.
pub fn print_kernel(kernel: &Kernel, style: Style) -> String {
    let mut printer = Printer::new(style);
    printer.bind_params(kernel);
    match style {
        Style::Simple => printer.stmt(&kernel.body),
        Style::Full => printer.kernel(kernel),
    }
    printer.out
}

/// An expression in the simple style, for messages. Names may clash.
pub fn print_expr(expr: &Expr) -> String {
    let mut printer = Printer::new(Style::Simple);
    printer.expr(expr);
    printer.out
}

struct Printer {
    out: String,
    style: Style,
    indent: usize,
    names: Names,
    /// The innermost `produce`.
    stage: String,
}

impl Printer {
    fn new(style: Style) -> Printer {
        let (out, stage) = (String::new(), String::new());
        Printer { out, style, indent: 0, names: Names::default(), stage }
    }

    fn bind_params(&mut self, kernel: &Kernel) {
        for param in &kernel.params {
            match param {
                Param::Tensor { buffer, .. } => self.names.bind_buffer(buffer),
                Param::Scalar { var, .. } | Param::Runtime { var, .. } => self.names.bind(var),
            }
        }
    }

    /// Starts a line.
    fn line(&mut self) {
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn kernel(&mut self, kernel: &Kernel) {
        let _ = write!(self.out, "kernel {}(", kernel.name);
        for (index, param) in kernel.params.iter().enumerate() {
            if index > 0 {
                self.text(", ");
            }
            self.param(param);
        }
        self.text(")");
        if kernel.reassociated {
            self.text(" reassociated");
        }
        self.text(" {\n");
        self.indent += 1;
        for fact in &kernel.facts {
            self.line();
            self.text("// where ");
            self.expr(fact);
            self.text("\n");
        }
        if !matches!(&kernel.checks, Stmt::Block(stmts) if stmts.is_empty()) {
            self.checks(kernel);
        }
        self.stmt(&kernel.body);
        self.indent -= 1;
        self.text("}\n");
    }

    fn param(&mut self, param: &Param) {
        match param {
            Param::Tensor { buffer, output, layout_free } => {
                if *output {
                    self.text("out ");
                }
                let name = self.names.of_buffer(buffer);
                let _ = write!(self.out, "{name}: {}[", buffer.dtype);
                self.list(&buffer.shape);
                self.text(if *layout_free { "] layout_free" } else { "]" });
            }
            Param::Scalar { var, dtype } => {
                let _ = write!(self.out, "{}: {dtype}", self.names.of(var));
            }
            Param::Runtime { var, .. } => {
                let _ = write!(self.out, "{}: var", self.names.of(var));
            }
        }
    }

    fn checks(&mut self, kernel: &Kernel) {
        for ActualDim { param, dim, var } in &kernel.dims {
            self.names.bind(var);
            self.line();
            let tensor = kernel.params[*param].name();
            let _ = writeln!(self.out, "let {} = extent({tensor}, {dim})", self.names.of(var));
        }
        self.line();
        self.text("checks {\n");
        self.body(&kernel.checks);
        self.close();
    }

    fn list(&mut self, exprs: &[Expr]) {
        for (index, expr) in exprs.iter().enumerate() {
            if index > 0 {
                self.text(", ");
            }
            self.expr(expr);
        }
    }

    fn body(&mut self, stmt: &Stmt) {
        self.indent += 1;
        self.stmt(stmt);
        self.indent -= 1;
    }

    fn close(&mut self) {
        self.line();
        self.text("}\n");
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Block(stmts) => stmts.iter().for_each(|stmt| self.stmt(stmt)),
            Stmt::For { .. } => self.for_loop(stmt),
            Stmt::If { cond, then, otherwise } => {
                self.line();
                self.text("if (");
                self.expr(cond);
                self.text(") {\n");
                self.body(then);
                if let Some(otherwise) = otherwise {
                    self.line();
                    self.text("} else {\n");
                    self.body(otherwise);
                }
                self.close();
            }
            Stmt::Store { buffer, indices, value, mask } => {
                self.line();
                self.access(buffer, indices);
                self.text(" = ");
                self.expr(value);
                if let Some(mask) = mask {
                    self.text(" if ");
                    self.expr(mask);
                }
                self.text("\n");
            }
            Stmt::Let { var, value, body } => {
                self.line();
                // The value is printed before the name is bound: it cannot mention it.
                let start = self.out.len();
                self.expr(value);
                let value = self.out.split_off(start);
                let undo = self.names.enter(var, &self.stage);
                let _ = match self.style {
                    Style::Simple => writeln!(self.out, "let {} = {value}", self.names.of(var)),
                    Style::Full => {
                        writeln!(self.out, "let {}: {} = {value}", self.names.of(var), var.ty())
                    }
                };
                self.stmt(body);
                self.names.leave(undo);
            }
            Stmt::Allocate { buffer, body } => {
                self.allocate(buffer);
                self.stmt(body);
            }
            Stmt::Produce { name, body } => {
                self.line();
                let _ = writeln!(self.out, "produce {name} {{");
                let outer = std::mem::replace(&mut self.stage, name.clone());
                self.body(body);
                self.stage = outer;
                self.close();
            }
            Stmt::Assert { cond, message, values } => {
                self.line();
                self.text("assert(");
                self.expr(cond);
                let _ = write!(self.out, ", {message:?}");
                for value in values {
                    self.text(", ");
                    self.expr(value);
                }
                self.text(")\n");
            }
            Stmt::Barrier => {
                self.line();
                self.text("barrier()\n");
            }
            Stmt::Evaluate(value) => {
                self.line();
                self.expr(value);
                self.text("\n");
            }
        }
    }

    fn for_loop(&mut self, stmt: &Stmt) {
        let Stmt::For { var, min, extent, kind, body } = stmt else { return };
        if let ForKind::Thread(index) = kind {
            self.line();
            let _ = write!(self.out, "// attr [iter_var({index}, , {index})] thread_extent = ");
            self.expr(extent);
            self.text("\n");
        }
        self.line();
        let start = self.out.len();
        self.expr(min);
        self.text(", ");
        self.expr(extent);
        let range = self.out.split_off(start);
        let undo = self.names.enter(var, &self.stage);
        let keyword = match kind {
            ForKind::Serial | ForKind::Thread(_) => "for",
            ForKind::Parallel => "parallel",
            ForKind::Vectorized => "vectorized",
            ForKind::Unrolled => "unrolled",
        };
        let _ = writeln!(self.out, "{keyword} ({}, {range}) {{", self.names.of(var));
        self.body(body);
        self.names.leave(undo);
        self.close();
    }

    fn allocate(&mut self, buffer: &Buffer) {
        self.names.bind_buffer(buffer);
        let name = self.names.of_buffer(buffer);
        self.line();
        let scope = buffer.scope.name();
        let _ = writeln!(self.out, "// attr [{name}] storage_scope = \"{scope}\"");
        self.line();
        let _ = write!(self.out, "allocate {name}[{} * ", buffer.dtype);
        let facts = super::arith::Facts::new();
        self.expr(&super::simplify::simplify_expr(&buffer.len(), &facts));
        self.text("]\n");
    }

    fn access(&mut self, buffer: &Buffer, indices: &[Expr]) {
        if buffer.scope == Scope::Constant {
            self.names.bind_buffer(buffer);
        }
        self.text(&self.names.of_buffer(buffer));
        self.text("[");
        self.list(indices);
        self.text("]");
    }
}

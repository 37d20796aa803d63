//! Operators, that is, kernels that another kernel uses: `let P = padding(X, ph=1)`.
//!
//! Before: the syntax of a kernel, tensors by position, parameters by name. After: its stages are
//! in the graph of the caller as `P.NAME`, its output as `P`, and its assumptions with those of the
//! caller. A parameter that is an extent or the element type of an input is inferred from the
//! argument; an extent can be a run-time integer of the caller.

use super::expressions::count;
use super::frame::{Argument, Frame, Operator};
use super::stages::is_expand;
use super::values::{SourceType, Value};
use super::{Elaborator, MAX_NODES};
use crate::diag::{Diag, closest};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::{DType, Expr};
use crate::lang::ast::{self, ParamKind, StmtKind};
use rustc_hash::FxHashMap;

/// The largest number of statements of all operators of a kernel.
const MAX_STATEMENTS: u64 = 1 << 16;

impl<'a> Elaborator<'a> {
    /// Elaborates a kernel into the graph of the caller. Returns its output, which becomes the
    /// caller's own output if `is_output`.
    pub fn call_operator(
        &mut self,
        caller: &Frame<'a>,
        name: &'a ast::Name,
        kernel: &'a ast::Kernel,
        callee: &'a ast::Name,
        args: &'a [ast::Arg],
        is_output: bool,
    ) -> Value {
        let (positional, keywords, mut fits) = self.operator_arguments(caller, kernel, args);
        if self.is_recursive(kernel, callee) {
            return Value::Poison;
        }
        // The result of an operator that ends in an operator is that of its call.
        let result = match &caller.operator {
            Some(operator) if is_output => operator.result.clone(),
            _ => format!("{}{}", caller.prefix, name.text),
        };
        let mut frame = Frame::new(kernel);
        frame.prefix = format!("{result}.");
        let nested = caller.operator.as_ref().is_some_and(|operator| operator.reassociate);
        let inferred = self.infer(kernel, &positional, &keywords, &mut fits);
        frame.operator = Some(Operator {
            result,
            given: positional.len(),
            args: positional.into(),
            outputs: Vec::new(),
            reassociate: caller.kernel.reassociate || nested,
            call: callee.span,
        });
        self.operators.push(kernel);
        self.operator_calls.push((kernel.span, callee.span, callee.text.clone()));
        self.bind_operator(&mut frame, callee, keywords, inferred, fits);
        self.calls.push((callee.span, callee.text.clone()));
        self.statements(&mut frame, &kernel.body);
        self.calls.pop();
        self.operators.pop();
        self.operator_result(frame, callee)
    }

    /// Returns the arguments by position and by name, and whether all names are known.
    fn operator_arguments(
        &mut self,
        caller: &Frame<'a>,
        kernel: &'a ast::Kernel,
        args: &'a [ast::Arg],
    ) -> (Vec<Argument<'a>>, FxHashMap<&'a str, Argument<'a>>, bool) {
        let (mut positional, mut keywords) = (Vec::new(), FxHashMap::default());
        let mut known = true;
        for arg in args {
            let expr = &arg.value;
            let value = self.operator_argument(caller, expr);
            let Some(keyword) = &arg.name else {
                positional.push((value, expr));
                continue;
            };
            let text = keyword.text.as_str();
            let kernel_name = &kernel.name.text;
            let params = kernel.params.iter().map(|param| param.name.text.as_str());
            if !params.clone().any(|param| param == text) {
                known = false;
                let message = format!("`{kernel_name}` has no parameter `{text}`");
                let diag = Diag::new("E0230", keyword.span, message);
                self.error(match closest(text, params) {
                    Some(close) => diag.help(format!("did you mean `{close}`?")),
                    None => diag,
                });
            } else if keywords.insert(text, (value, expr)).is_some() {
                let message = format!("`{text}` is given twice");
                self.error(Diag::new("E0230", keyword.span, message));
            }
        }
        (positional, keywords, known)
    }

    fn operator_argument(&mut self, caller: &Frame<'a>, expr: &'a ast::Expr) -> Value {
        if let ast::ExprKind::Call(name, _) = &*expr.kind
            && self.items.kernel(name.span.file, &name.text).is_some()
            && self.items.function(name.span.file, &name.text).is_none()
        {
            let message = format!("the operator `{}` is used inside a call", name.text);
            let help = format!("name its result first: `let Q = {}`", self.excerpt(expr));
            self.error(Diag::new("E0230", expr.span, message).help(help));
            return Value::Poison;
        }
        self.eval_constant(caller, expr)
    }

    fn is_recursive(&mut self, kernel: &'a ast::Kernel, callee: &ast::Name) -> bool {
        let building = self.building.into_iter().chain(self.operators.iter().copied());
        let path: Vec<&ast::Kernel> = building.collect();
        let Some(start) = path.iter().position(|other| std::ptr::eq(*other, kernel)) else {
            return false;
        };
        let mut names: Vec<&str> = path[start..].iter().map(|k| k.name.text.as_str()).collect();
        names.push(&kernel.name.text);
        let message = format!("`{}` is recursive: {}", kernel.name.text, names.join(" → "));
        self.error(Diag::new("E0204", callee.span, message));
        true
    }

    /// Infers the parameters that are extents or the element type of an input. Inputs inside a
    /// compile-time `if` are ignored, because they depend on parameters. Clears `fits` if an
    /// argument has the wrong kind, which is reported when its input is declared.
    fn infer(
        &mut self,
        kernel: &'a ast::Kernel,
        args: &[Argument<'a>],
        keywords: &FxHashMap<&'a str, Argument<'a>>,
        fits: &mut bool,
    ) -> FxHashMap<&'a str, Value> {
        let mut inferred: FxHashMap<&'a str, Value> = FxHashMap::default();
        let mut inputs = Vec::new();
        let mut args = args.iter();
        for stmt in &kernel.body {
            let (dtype, shape) = match &stmt.kind {
                StmtKind::Input { dtype, shape, .. } => (dtype, shape),
                StmtKind::If { then, otherwise, .. } => {
                    let has_input = |stmts: &[ast::Stmt]| stmts.iter().any(contains_input);
                    if has_input(then) || has_input(otherwise) {
                        break;
                    }
                    continue;
                }
                _ => continue,
            };
            let Some((arg, _)) = args.next() else {
                *fits = false;
                break;
            };
            let Some(shape) = shape else { continue };
            match arg {
                Value::Tensor(tensor) if tensor.buffer.is_some() => {
                    inputs.extend(tensor.buffer.as_ref().map(|buffer| (dtype, shape, buffer)));
                }
                _ => *fits = false,
            }
        }
        // A pack that one input determines can tell the lengths of packs in an earlier one.
        loop {
            let before = inferred.len();
            for (dtype, shape, buffer) in &inputs {
                let known = |name: &str| match keywords.get(name).map(|(value, _)| value) {
                    None => inferred.get(name),
                    given => given,
                };
                let Some(parts) = match_shape(shape, &buffer.shape, known) else {
                    *fits = false;
                    continue;
                };
                let kind_of = |name: &str| {
                    let param = kernel.params.iter().find(|param| param.name.text == name);
                    param.map(|param| param.kind)
                };
                let dtype = dtype.text.as_str();
                if kind_of(dtype) == Some(ParamKind::DType) {
                    inferred.entry(dtype).or_insert(Value::DType(buffer.dtype));
                }
                for (name, part) in parts {
                    let value = match (part, kind_of(name)) {
                        (ShapePart::Extent(extent), Some(ParamKind::Index | ParamKind::Var)) => {
                            Value::index(extent)
                        }
                        (ShapePart::Pack(extents), Some(ParamKind::Shape)) => {
                            Value::pack(extents.iter().map(Value::index).collect())
                        }
                        _ => continue,
                    };
                    inferred.entry(name).or_insert(value);
                }
            }
            if inferred.len() == before {
                return inferred;
            }
        }
    }

    /// Binds every parameter to the argument of its name, the inferred value or the default.
    /// Reports a missing value only if the arguments fit.
    fn bind_operator(
        &mut self,
        frame: &mut Frame<'a>,
        callee: &ast::Name,
        mut keywords: FxHashMap<&'a str, Argument<'a>>,
        mut inferred: FxHashMap<&'a str, Value>,
        fits: bool,
    ) {
        for param in &frame.kernel.params {
            let name = param.name.text.as_str();
            let value = if let Some((value, expr)) = keywords.remove(name) {
                self.param_value(param, value, expr)
            } else if let Some(value) = inferred.remove(name) {
                value
            } else if param.default.is_some() {
                self.default_value(frame, param)
            } else {
                if fits {
                    let kernel = &frame.kernel.name.text;
                    let message = format!("`{kernel}` needs a value for its parameter `{name}`");
                    let diag = Diag::new("E0230", callee.span, message);
                    let diag = diag.related(param.name.span, format!("`{name}` is declared here"));
                    self.error(diag.help(format!("give it by name: `{kernel}(…, {name}=…)`")));
                }
                Value::Poison
            };
            self.declare_param(frame, param, value);
        }
    }

    /// Takes the argument for `input A: T[n, m]` and checks it against the declaration.
    pub fn argument_tensor(
        &mut self,
        frame: &mut Frame<'a>,
        name: &'a ast::Name,
        dtype: Option<DType>,
        (shape, rank): (&'a [ast::Expr], Option<usize>),
        extents: Option<Vec<Expr>>,
    ) -> Value {
        let Some((value, expr)) = self.next_argument(frame, name) else { return Value::Poison };
        let tensor = match value {
            Value::Tensor(tensor) => tensor,
            Value::Poison => return Value::Poison,
            other => {
                let message = format!("`{}` takes a tensor, not {}", name.text, other.describe());
                self.wrong_argument(frame, name, expr, message);
                return Value::Poison;
            }
        };
        let callee = &frame.kernel.name.text;
        let single = shape.iter().filter(|extent| !is_expand(extent)).count();
        let fits = match rank {
            Some(rank) => tensor.rank == rank,
            None => tensor.rank >= single,
        };
        if !fits {
            let wanted = match rank {
                Some(rank) => count(rank, "dimension"),
                None => format!("at least {}", count(single, "dimension")),
            };
            let message = format!(
                "`{}` has {}, but the input `{}` of `{callee}` has {wanted}",
                tensor.name,
                count(tensor.rank, "dimension"),
                name.text,
            );
            self.wrong_argument(frame, name, expr, message);
            return Value::Poison;
        }
        let (Some(dtype), Some(extents), Some(buffer)) = (dtype, extents, &tensor.buffer) else {
            return Value::Poison;
        };
        if buffer.dtype != dtype {
            let message = format!(
                "`{}` is `{}`, but the input `{}` of `{callee}` is `{dtype}`",
                tensor.name, buffer.dtype, name.text,
            );
            self.wrong_argument(frame, name, expr, message);
            return Value::Poison;
        }
        for (i, (wanted, actual)) in extents.iter().zip(&buffer.shape).enumerate() {
            if !self.same_extent(wanted, actual) {
                let (wanted, actual) = (show_extent(wanted), show_extent(actual));
                let message = format!(
                    "dimension {i} of `{}` is {actual}, but `{callee}` needs {wanted}",
                    tensor.name,
                );
                self.wrong_argument(frame, name, expr, message);
                return Value::Poison;
            }
        }
        Value::Tensor(tensor)
    }

    /// Takes the argument for `input alpha: float32`.
    pub fn argument_scalar(
        &mut self,
        frame: &mut Frame<'a>,
        name: &'a ast::Name,
        dtype: Option<DType>,
    ) -> Value {
        let Some((value, expr)) = self.next_argument(frame, name) else { return Value::Poison };
        let calls = self.calls.pop();
        let value = self.number(value, expr);
        let typed = dtype.and_then(|dtype| self.adapt((&value, expr), SourceType::Data(dtype)));
        self.calls.extend(calls);
        match typed {
            Some(typed) => Value::Scalar(typed),
            None => Value::Poison,
        }
    }

    fn next_argument(&mut self, frame: &mut Frame<'a>, name: &ast::Name) -> Option<Argument<'a>> {
        let operator = frame.operator.as_mut().expect("only in operators");
        let arg = operator.args.pop_front();
        if arg.is_none() {
            let given = match operator.given {
                0 => "no argument is".to_string(),
                1 => "only 1 argument is".to_string(),
                n => format!("only {n} arguments are"),
            };
            let message = format!(
                "`{}` also takes an input `{}`, but {given} given by position",
                frame.kernel.name.text, name.text,
            );
            let (call, calls) = (operator.call, self.calls.pop());
            let diag = Diag::new("E0230", call, message);
            self.error(diag.related(name.span, "the input is declared here"));
            self.calls.extend(calls);
        }
        arg
    }

    /// Reports an error at an argument instead of at the declaration of the operator.
    fn wrong_argument(
        &mut self,
        frame: &Frame<'a>,
        name: &ast::Name,
        expr: &ast::Expr,
        message: String,
    ) {
        let calls = self.calls.pop();
        let text = format!("`{}` of `{}` is declared here", name.text, frame.kernel.name.text);
        self.error(Diag::new("E0231", expr.span, message).related(name.span, text));
        self.calls.extend(calls);
    }

    /// Whether two extents are known to be equal.
    pub fn same_extent(&self, a: &Expr, b: &Expr) -> bool {
        if a.same(b) || equal(a, b) {
            return true;
        }
        if a.as_int().is_some() && b.as_int().is_some() {
            return false;
        }
        let mut facts = Facts::new();
        for (cond, _, _) in &self.graph.assumes {
            facts.assume(cond);
        }
        facts.prove(&Expr::eq(a.clone(), b.clone()))
    }

    fn operator_result(&mut self, frame: Frame<'a>, callee: &ast::Name) -> Value {
        let kernel = &frame.kernel.name.text;
        let operator = frame.operator.expect("only in operators");
        if let Some((_, expr)) = operator.args.front() {
            let taken = operator.given - operator.args.len();
            let takes = count(taken, "input");
            let message = format!("`{kernel}` takes {takes}, but {} are given", operator.given);
            let diag = Diag::new("E0230", expr.span, message);
            self.error(diag.related(frame.kernel.name.span, "the kernel is declared here"));
        }
        match &operator.outputs[..] {
            [output] => Value::Tensor(output.clone()),
            // The condition of a compile-time `if` was wrong.
            [] if frame.has_output => Value::Poison,
            outputs => {
                let found = outputs.len();
                let message = format!(
                    "`{kernel}` has {found} outputs, but an operator must have exactly one"
                );
                let diag = Diag::new("E0232", callee.span, message);
                self.error(diag.related(frame.kernel.name.span, "the kernel is declared here"));
                Value::Poison
            }
        }
    }

    /// Whether the operators of a kernel are too large (E0213); reported once.
    pub fn is_exhausted(&mut self, frame: &mut Frame<'a>) -> bool {
        if frame.operator.is_none() {
            return false;
        }
        self.operator_statements += 1;
        if self.operator_statements <= MAX_STATEMENTS && self.operator_nodes <= MAX_NODES {
            return false;
        }
        let building = self.building.expect("a kernel is built").name.span;
        let message = format!(
            "the operators of this kernel expand to more than {MAX_STATEMENTS} statements \
             or {MAX_NODES} operations"
        );
        let calls = std::mem::take(&mut self.calls);
        self.error(Diag::new("E0213", building, message));
        self.calls = calls;
        // Do not report missing outputs.
        frame.has_output = true;
        true
    }
}

/// The extents of an argument that a name in the declared shape stands for.
enum ShapePart<'e> {
    /// `n`.
    Extent(&'e Expr),
    /// `S...`.
    Pack(&'e [Expr]),
}

/// Matches a declared shape, `B..., n, 3`, with the extents of an argument. The number of elements
/// of at most one pack may be unknown. Returns what each name stands for; `None` if the ranks
/// differ.
fn match_shape<'a, 'e, 'k>(
    shape: &'a [ast::Expr],
    actual: &'e [Expr],
    known: impl Fn(&str) -> Option<&'k Value>,
) -> Option<Vec<(&'a str, ShapePart<'e>)>> {
    let mut rest = actual.len();
    let mut unknown = 0;
    let mut flat = Vec::new();
    flatten_lists(shape, &mut flat);
    let pack_of = |extent: &'a ast::Expr| match &*extent.kind {
        ast::ExprKind::Expand(pattern) => Some(match &*pattern.kind {
            ast::ExprKind::Name(name) => (name.text.as_str(), known(&name.text)),
            _ => ("", None),
        }),
        _ => None,
    };
    for extent in flat.iter().copied() {
        let length = match pack_of(extent) {
            None => 1,
            Some((_, Some(Value::Pack(pack)))) => pack.elements.len(),
            Some(_) => {
                unknown += 1;
                0
            }
        };
        rest = rest.checked_sub(length)?;
    }
    if unknown == 0 && rest > 0 {
        return None;
    }
    let mut parts = Vec::new();
    let mut at = 0;
    for extent in flat {
        let length = match (pack_of(extent), &*extent.kind) {
            (None, ast::ExprKind::Name(name)) => {
                parts.push((name.text.as_str(), ShapePart::Extent(&actual[at])));
                1
            }
            (None, _) => 1,
            (Some((_, Some(Value::Pack(pack)))), _) => pack.elements.len(),
            // The extents behind several packs of unknown length are unknown.
            (Some(_), _) if unknown > 1 => break,
            (Some((name, _)), _) => {
                parts.push((name, ShapePart::Pack(&actual[at..at + rest])));
                rest
            }
        };
        at += length;
    }
    Some(parts)
}

/// Lists the extents of a shape, those of a list in it, `[n, m]...`, one by one.
fn flatten_lists<'a>(shape: &'a [ast::Expr], flat: &mut Vec<&'a ast::Expr>) {
    for extent in shape {
        match &*extent.kind {
            ast::ExprKind::Expand(pattern)
                if let ast::ExprKind::List(elements) = &*pattern.kind
                    && !elements
                        .iter()
                        .any(|one| matches!(*one.kind, ast::ExprKind::Range(..))) =>
            {
                flatten_lists(elements, flat);
            }
            _ => flat.push(extent),
        }
    }
}

fn contains_input(stmt: &ast::Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Input { .. } => true,
        StmtKind::If { then, otherwise, .. } => then.iter().chain(otherwise).any(contains_input),
        _ => false,
    }
}

/// Prints an extent for messages.
fn show_extent(extent: &Expr) -> String {
    match (extent.as_int(), extent.as_var()) {
        (Some(value), _) => value.to_string(),
        (_, Some(var)) => format!("`{}`", var.name()),
        _ => "another expression".to_string(),
    }
}

//! The statements of a kernel, except stages and operators.

use super::Elaborator;
use super::expressions::{Env, Locals};
use super::frame::Frame;
use super::values::{Entry, ReduceAxis, SourceType, Tensor, Typed, Value};
use crate::diag::{Diag, Span};
use crate::ir::visit::walk_expr;
use crate::ir::{Buffer, Buffering, DType, Expr, ExprKind, Scope as MemoryScope, Var};
use crate::lang::ast::{self, InputKind, StmtKind};
use crate::te::{Assertion, Input};
use std::rc::Rc;

/// The largest size of a tensor, in bytes.
const MAX_BYTES: u128 = 1 << 47;

impl<'a> Elaborator<'a> {
    /// Elaborates statements in order, up to a failed `assert` or `assume`.
    pub fn statements(&mut self, frame: &mut Frame<'a>, stmts: &'a [ast::Stmt]) {
        for stmt in stmts {
            if self.stopped || self.is_exhausted(frame) {
                return;
            }
            match &stmt.kind {
                StmtKind::Input { kind, name, dtype, shape, strides, layout_free } => {
                    let param = *kind == InputKind::Param;
                    match kind {
                        InputKind::Input => {}
                        InputKind::Param => self.check_param(frame, name, shape.is_some()),
                        InputKind::Inout => {
                            self.check_inout(frame, name, shape.is_some(), *layout_free);
                        }
                    }
                    match shape {
                        Some(shape) => {
                            let flags = (param, *layout_free || param);
                            let place = (&shape[..], strides.as_ref());
                            self.input_tensor(frame, name, dtype, place, flags);
                        }
                        None => {
                            self.refuse_scalar_strides(name, strides.as_ref());
                            self.input_scalar(frame, name, dtype, *layout_free);
                        }
                    }
                }
                StmtKind::Reduce(axes) => axes.iter().for_each(|axis| self.reduce(frame, axis)),
                StmtKind::Stage(stage) => self.stage(frame, stage),
                StmtKind::Update { stage, offsets } => self.update(frame, stage, offsets),
                StmtKind::Scan { axes, stages } => self.scan(frame, axes, stages, stmt.span),
                StmtKind::OutputCall { name, value } => self.output_call(frame, name, value),
                StmtKind::Let { names, value } => {
                    self.let_statement(frame, names, value, stmt.span)
                }
                StmtKind::If { cond, then, otherwise } => {
                    match self.compile_time_condition(frame, cond) {
                        Some(true) => self.statements(frame, then),
                        Some(false) => self.statements(frame, otherwise),
                        None => frame.has_output = true,
                    }
                }
                StmtKind::Assume(cond) => self.assume(frame, cond),
                StmtKind::Assert(cond, text) => self.assert(frame, cond, text),
                StmtKind::Estimate(known) => self.estimate(frame, known, stmt.span),
            }
        }
    }

    /// Adds a name to the kernel; refuses a second declaration (E0202).
    pub fn declare(&mut self, frame: &mut Frame<'a>, name: &'a ast::Name, entry: Entry) {
        let text = name.text.as_str();
        if let Some(first) = frame.scope.get(text) {
            let diag = Diag::new("E0202", name.span, format!("`{text}` is declared twice"));
            self.error(diag.related(first.span, format!("the {} is first here", first.what)));
            return;
        }
        if let Some(axis) = frame.axis_names.get(text)
            && matches!(entry.what, "parameter" | "constant")
        {
            let message = format!("the {} `{text}` has the name of an axis", entry.what);
            let diag = Diag::new("E0202", name.span, message);
            self.error(diag.related(*axis, "the axis is here"));
        }
        frame.scope.insert(text, entry);
    }

    /// Evaluates an expression of constants, run-time integers and scalar inputs.
    pub fn eval_constant(&mut self, frame: &Frame<'a>, expr: &'a ast::Expr) -> Value {
        let locals = Locals::default();
        self.eval_whole(
            expr,
            Env { scope: Some(&frame.scope), locals: &locals, element: false, at: None },
        )
    }

    /// Refuses a `param` outside of a network, and one without a shape (E0237).
    fn check_param(&mut self, frame: &Frame<'a>, name: &ast::Name, has_shape: bool) {
        let (text, kernel) = (&name.text, &frame.kernel.name.text);
        if !frame.kernel.network || frame.operator.is_some() {
            let message = format!("`param {text}` is declared in the kernel `{kernel}`");
            let help = "only a `network` has params; a kernel takes the tensor as an `input`";
            self.error(Diag::new("E0237", name.span, message).help(help));
        } else if !has_shape {
            let message = format!("the param `{text}` is a scalar");
            let help = format!("write `param {text}: TYPE[]` for a tensor with one element");
            self.error(Diag::new("E0237", name.span, message).help(help));
        }
    }

    fn input_type(&mut self, frame: &Frame<'a>, dtype: &'a ast::Name) -> Option<DType> {
        let locals = Locals::default();
        self.dtype(
            dtype,
            Env { scope: Some(&frame.scope), locals: &locals, element: false, at: None },
        )
    }

    fn input_tensor(
        &mut self,
        frame: &mut Frame<'a>,
        name: &'a ast::Name,
        dtype: &'a ast::Name,
        (shape, strides): (&'a [ast::Expr], Option<&'a ast::Strides>),
        (param, layout_free): (bool, bool),
    ) {
        let dtype = self.input_type(frame, dtype);
        let found = self.extents(frame, shape);
        // A wrong extent leaves the rank known, a wrong pack does not.
        let rank = found.as_ref().map(Vec::len);
        let mut extents =
            found.and_then(|found| found.into_iter().collect::<Option<Vec<(Expr, Span)>>>());
        let at_run_time = |found: &Vec<(Expr, Span)>| {
            found.iter().find(|(extent, _)| extent.as_int().is_none()).map(|(_, place)| *place)
        };
        if let Some(place) = extents.as_ref().filter(|_| param).and_then(at_run_time) {
            let message = format!("an extent of the param `{}` is a run-time integer", name.text);
            let help = "the elements of a `param` are known at build time; write `input`";
            self.error(Diag::new("E0237", place, message).help(help));
            extents = None;
        }
        let value = if frame.operator.is_some() {
            let extents = extents.map(|all| all.into_iter().map(|(extent, _)| extent).collect());
            self.argument_tensor(frame, name, dtype, (shape, rank), extents)
        } else {
            let buffer = dtype.zip(extents).filter(|(dtype, extents)| {
                let (extents, spans): (Vec<Expr>, Vec<Span>) = extents.iter().cloned().unzip();
                self.check_shape(name, *dtype, &extents, &spans)
            });
            if let (Some(strides), true) = (strides, layout_free && !param) {
                let message = format!("`{}` has strides and cannot be `layout_free`", name.text);
                let diag = Diag::new("E0241", strides.span, message);
                self.error(diag.help("leave out `layout_free`: the caller chooses the layout"));
            }
            let Some(rank) = rank else {
                let (value, what) = (Value::Poison, "input");
                return self.declare(frame, name, Entry { value, what, span: name.span });
            };
            let strides = strides.map(|strides| self.strides(frame, name, strides, rank));
            let buffer = match strides {
                Some(None) => None,
                strides => buffer.map(|(dtype, extents)| {
                    let extents = extents.into_iter().map(|(extent, _)| extent).collect();
                    let scope = MemoryScope::Global;
                    let (text, how) = (&name.text, Buffering::Single);
                    Buffer::with_layout(text, dtype, extents, scope, strides.flatten(), how)
                }),
            };
            if let Some(buffer) = buffer.clone() {
                let span = name.span;
                self.graph.inputs.push(Input::Tensor { buffer, layout_free, param, span });
            }
            let (name, untyped) = (name.text.clone(), None);
            Value::Tensor(Rc::new(Tensor { name, rank, buffer, untyped, member: None }))
        };
        self.declare(frame, name, Entry { value, what: "input", span: name.span });
    }

    fn input_scalar(
        &mut self,
        frame: &mut Frame<'a>,
        name: &'a ast::Name,
        dtype: &'a ast::Name,
        layout_free: bool,
    ) {
        if layout_free {
            let message = format!("`{}` is a scalar and has no layout", name.text);
            self.error(Diag::new("E0214", name.span, message).help("leave out `layout_free`"));
        }
        let dtype = self.input_type(frame, dtype);
        let value = if frame.operator.is_some() {
            self.argument_scalar(frame, name, dtype)
        } else {
            match dtype {
                Some(dtype) if dtype.is_quantized() => {
                    self.refuse_quantized_scalar(name, dtype);
                    Value::Poison
                }
                Some(dtype) => {
                    let var = Var::new(&name.text, dtype.compute_type());
                    let expr = Expr::var(&var);
                    self.graph.inputs.push(Input::Scalar { var, dtype, span: name.span });
                    Value::Scalar(Typed::new(SourceType::Data(dtype), expr, 0))
                }
                None => Value::Poison,
            }
        };
        self.declare(frame, name, Entry { value, what: "input", span: name.span });
    }

    /// Evaluates extents to expressions of type `index` with their places, `None` for a wrong one;
    /// `None` for all if their number is unknown.
    pub fn extents(
        &mut self,
        frame: &Frame<'a>,
        shape: &'a [ast::Expr],
    ) -> Option<Vec<Option<(Expr, Span)>>> {
        let values = self.expanded_constants(frame, shape)?;
        let extent = |(value, expr): &(Value, &'a ast::Expr)| {
            Some((self.extent((value, expr), "an extent")?, expr.span))
        };
        Some(values.iter().map(extent).collect())
    }

    /// Evaluates the elements of a list of constants and run-time integers.
    pub fn expanded_constants(
        &mut self,
        frame: &Frame<'a>,
        elements: impl IntoIterator<Item = &'a ast::Expr>,
    ) -> Option<Vec<(Value, &'a ast::Expr)>> {
        self.def_nodes = 0;
        let locals = Locals::default();
        let env = Env { scope: Some(&frame.scope), locals: &locals, element: false, at: None };
        self.expanded(elements, env)
    }

    /// Refuses negative constant extents (E0221) and tensors that are too large (E0222).
    pub fn check_shape(
        &mut self,
        name: &ast::Name,
        dtype: DType,
        extents: &[Expr],
        spans: &[Span],
    ) -> bool {
        let mut bytes = u128::from(dtype.bytes());
        let mut fits = true;
        for (extent, span) in extents.iter().zip(spans) {
            let Some(extent) = extent.as_int() else { continue };
            if extent < 0 {
                let message = format!("an extent of `{}` is negative: {extent}", name.text);
                self.error(Diag::new("E0221", *span, message));
                fits = false;
            }
            // Strides of an empty tensor must fit too, so an extent of 0 counts as 1.
            bytes = bytes.saturating_mul(extent.max(1) as u128);
        }
        if fits && bytes > MAX_BYTES {
            let shape: Vec<String> = extents
                .iter()
                .map(|e| e.as_int().map_or("…".to_string(), |value| value.to_string()))
                .collect();
            let shape = format!("{dtype}[{}]", shape.join(", "));
            let message = format!("`{}` is too large for any address space: `{shape}`", name.text);
            self.error(Diag::new("E0222", name.span, message).note("the limit is 2^47 bytes"));
            fits = false;
        }
        fits
    }

    fn reduce(&mut self, frame: &mut Frame<'a>, axis: &'a ast::ReduceAxis) {
        let value = if axis.is_pack {
            self.def_nodes = 0;
            let locals = Locals::default();
            let env = Env { scope: Some(&frame.scope), locals: &locals, element: false, at: None };
            let ranges = self.expand([&axis.min, &axis.end], env);
            ranges.map_or(Value::Poison, |ranges| {
                let axes = ranges.iter().map(|[min, end]| self.reduce_axis(axis, min, end));
                Value::pack(axes.collect())
            })
        } else {
            let min = self.eval_constant(frame, &axis.min);
            let end = self.eval_constant(frame, &axis.end);
            self.reduce_axis(axis, &min, &end)
        };
        let what = "reduction axis";
        self.declare(frame, &axis.name, Entry { value, what, span: axis.name.span });
    }

    /// Returns a reduction axis with these bounds.
    fn reduce_axis(&mut self, axis: &'a ast::ReduceAxis, min: &Value, end: &Value) -> Value {
        let min = self.extent((min, &axis.min), "the start of a reduction axis");
        let end = self.extent((end, &axis.end), "the end of a reduction axis");
        let range = min.zip(end).and_then(|(min, end)| self.range(axis, min, end));
        range.map_or(Value::Poison, |range| Value::ReduceAxis(Rc::new(range)))
    }

    fn range(&mut self, axis: &ast::ReduceAxis, min: Expr, end: Expr) -> Option<ReduceAxis> {
        let name = &axis.name.text;
        let span = axis.min.span.to(axis.end.span);
        let extent = match (min.as_int(), end.as_int()) {
            (Some(from), Some(to)) if to <= from => {
                let what = if to == from { "empty" } else { "reversed" };
                let message = format!("the range of `{name}` is {what}: {from}..{to}");
                let help = "the end is not part of the range: `0..n` has n values";
                self.error(Diag::new("E0226", span, message).help(help));
                return None;
            }
            (Some(from), Some(to)) => match i64::try_from(to - from) {
                Ok(extent) => Expr::index(extent),
                Err(_) => {
                    let message = format!("the range of `{name}` has more than 2^63 values");
                    self.error(Diag::new("E0210", span, message));
                    return None;
                }
            },
            (Some(0), None) => end,
            _ => Expr::sub(end, min.clone()),
        };
        Some(ReduceAxis { min, extent })
    }

    fn let_statement(
        &mut self,
        frame: &mut Frame<'a>,
        names: &'a [Option<ast::Name>],
        value: &'a ast::Expr,
        span: Span,
    ) {
        let [Some(name)] = names else {
            let message = "a `let` of a kernel has one name";
            self.error(Diag::new("E0227", span, message));
            for name in names.iter().flatten() {
                let entry = Entry { value: Value::Poison, what: "name", span: name.span };
                self.declare(frame, name, entry);
            }
            return;
        };
        if let ast::ExprKind::Call(callee, args) = &*value.kind
            && let Some(kernel) = self.items.kernel(callee.span.file, &callee.text)
        {
            let value = self.call_operator(frame, name, kernel, callee, args, false);
            self.declare(frame, name, Entry { value, what: "tensor", span: name.span });
            return;
        }
        let value = match self.eval_constant(frame, value) {
            axis @ Value::ReduceAxis(_) => self.number(axis, value),
            value => value,
        };
        let what = match &value {
            Value::Tensor(tensor) => {
                let alias = format!("{}{}", frame.prefix, name.text);
                let of = tensor.buffer.as_ref().map(|buffer| (alias, buffer.name.clone()));
                self.graph.aliases.extend(of);
                "tensor"
            }
            _ => "constant",
        };
        self.declare(frame, name, Entry { value, what, span: name.span });
    }

    /// `output C = operator(…)`: the operator's result becomes an output.
    fn output_call(&mut self, frame: &mut Frame<'a>, name: &'a ast::Name, value: &'a ast::Expr) {
        frame.has_output = true;
        let operator = match &*value.kind {
            ast::ExprKind::Call(callee, args) => {
                let kernel = self.items.kernel(callee.span.file, &callee.text);
                kernel.map(|kernel| (kernel, callee, args))
            }
            _ => None,
        };
        let value = match operator {
            Some((kernel, callee, args)) => {
                self.call_operator(frame, name, kernel, callee, args, true)
            }
            None => {
                let unknown = match &*value.kind {
                    ast::ExprKind::Call(callee, _) => {
                        let names = self.items.function_names(callee.span.file);
                        (!names.contains(&&callee.text[..])).then_some(callee)
                    }
                    _ => None,
                };
                let error = match unknown {
                    Some(callee) => self.unknown_function(callee),
                    None => {
                        let message = format!("the output `{}` has no axes", name.text);
                        let help = format!(
                            "write `output {0}[i: n] = …`, or `output {0}[] = …` for one element; \
                             only the result of an operator needs no axes",
                            name.text
                        );
                        Diag::new("E0238", value.span, message).help(help)
                    }
                };
                self.error(error);
                Value::Poison
            }
        };
        if let Value::Tensor(tensor) = &value {
            match &mut frame.operator {
                Some(operator) => operator.outputs.push(tensor.clone()),
                None => self.make_output(tensor),
            }
        }
        self.declare(frame, name, Entry { value, what: "output", span: name.span });
    }

    /// Makes the stage of a tensor an output.
    fn make_output(&mut self, tensor: &Tensor) {
        let Some(buffer) = &tensor.buffer else { return };
        let stages = &mut self.graph.stages;
        if let Some(stage) = stages.iter_mut().find(|stage| stage.buffers.contains(buffer)) {
            stage.output = true;
            self.graph.outputs.push(buffer.clone());
        }
    }

    /// Evaluates the condition of a compile-time `if`.
    fn compile_time_condition(&mut self, frame: &Frame<'a>, cond: &'a ast::Expr) -> Option<bool> {
        let value = self.eval_constant(frame, cond);
        let value = self.number(value, cond);
        match value {
            Value::Bool(value) => return Some(value),
            Value::Poison => return None,
            _ => {}
        }
        self.condition((&value, cond))?;
        let message = "the condition of a compile-time `if` must be a constant";
        let help = "run-time integers are known only when the kernel is called: \
            use `if … then … else …` inside a stage";
        self.error(Diag::new("E0211", cond.span, message).help(help));
        None
    }

    fn assume(&mut self, frame: &Frame<'a>, cond: &'a ast::Expr) {
        let value = self.eval_constant(frame, cond);
        let Some(condition) = self.requirement(value, cond) else { return };
        if let Err(holds) = condition {
            if !holds {
                let text = self.excerpt(cond);
                let message = format!("this assumption is false: `{text}`");
                self.error(Diag::new("E0234", cond.span, message));
                self.stopped = true;
            }
        } else if let Ok(condition) = condition {
            if !is_over_integers(&condition) {
                let message = "`assume` is about constants and run-time integers, not inputs";
                self.error(Diag::new("E0211", cond.span, message));
                return;
            }
            let text = self.text(cond.span).to_string();
            self.graph.assumes.push((condition, text, cond.span));
        }
    }

    fn assert(&mut self, frame: &Frame<'a>, cond: &'a ast::Expr, text: &str) {
        self.load_spans.clear();
        let locals = Locals::default();
        let env = Env { scope: Some(&frame.scope), locals: &locals, element: true, at: None };
        let value = self.eval_whole(cond, env);
        self.untyped_reads.clear();
        match self.requirement(value, cond) {
            Some(Err(false)) => {
                self.error(Diag::new("E0233", cond.span, text));
                self.stopped = true;
            }
            Some(Ok(condition)) => self.assert_at_entry(condition, cond.span, text),
            Some(Err(true)) | None => {}
        }
    }

    /// Returns the condition of an `assume` or `assert`, or whether it holds if it is a constant.
    fn requirement(
        &mut self,
        value: Value,
        cond: &'a ast::Expr,
    ) -> Option<std::result::Result<Expr, bool>> {
        let value = self.number(value, cond);
        if let Value::Bool(value) = value {
            return Some(Err(value));
        }
        Some(Ok(self.condition((&value, cond))?.expr))
    }

    /// Adds a condition that the entry verifies. If it is about run-time integers alone, proofs may
    /// use it.
    fn assert_at_entry(&mut self, cond: Expr, span: Span, text: &str) {
        let mut load_spans = Vec::new();
        let mut computed: Option<(String, Span)> = None;
        walk_expr(&cond, &mut |expr| {
            let ExprKind::Load { buffer, .. } = &expr.kind else { return };
            let place = self.load_spans.get(&expr.id()).copied();
            load_spans.extend(place.map(|place| (expr.id(), place)));
            let is_input =
                self.graph.inputs.iter().any(
                    |input| matches!(input, Input::Tensor { buffer: own, .. } if own == buffer),
                );
            if !is_input && computed.is_none() {
                computed = Some((buffer.name.clone(), place.unwrap_or(span)));
            }
        });
        if let Some((name, place)) = computed {
            let message = format!("`assert` reads `{name}`, which is computed");
            let note = "the function checks assertions before it computes anything";
            self.error(Diag::new("E0211", place, message).note(note));
            return;
        }
        if is_over_integers(&cond) {
            let excerpt = self.text(span).to_string();
            self.graph.assumes.push((cond.clone(), excerpt, span));
        }
        let text = text.to_string();
        self.graph.asserts.push(Assertion { cond, text, span, load_spans });
    }
}

/// Whether a condition has no variables but run-time integers, and reads no tensor.
fn is_over_integers(cond: &Expr) -> bool {
    let mut integers_only = true;
    walk_expr(cond, &mut |expr| match &expr.kind {
        ExprKind::Var(var) => integers_only &= var.ty().dtype == DType::Index,
        ExprKind::Load { .. } => integers_only = false,
        _ => {}
    });
    integers_only
}

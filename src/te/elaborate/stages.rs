//! `compute` and `output`: axes, element types, the value of one element.

use super::Elaborator;
use super::casts::cast;
use super::expressions::{Env, Locals};
use super::frame::Frame;
use super::values::{Entry, Member, SourceType, Tensor, Typed, Value};
use crate::diag::{Diag, Span};
use crate::ir::visit::{NodeSet, walk_nodes};
use crate::ir::{Buffer, Buffering, DType, Expr, ExprKind, Scope as MemoryScope, Var};
use crate::lang::ast;
use crate::te::{Axis, Body, Stage};
use std::rc::Rc;

/// The data axes of a stage.
pub struct DataAxes<'a> {
    /// The axes, those of packs one by one.
    pub axes: Vec<Axis>,
    /// Their names in the source, and those of packs.
    pub locals: Locals<'a>,
    /// The place of each extent.
    pub spans: Vec<Span>,
}

/// An elaborated stage without its names.
struct StageParts {
    dtypes: Vec<DType>,
    body: Body,
    axes: Vec<Axis>,
    /// The place of the extent of each axis.
    spans: Vec<Span>,
    /// Whether neither the stage nor its value determines the type.
    is_untyped: bool,
}

impl<'a> Elaborator<'a> {
    /// Adds a stage to the graph and its tensors to the names of the kernel.
    pub fn stage(&mut self, frame: &mut Frame<'a>, stage: &'a ast::Stage) {
        self.load_spans.clear();
        self.untyped_reads.clear();
        frame.has_output |= stage.output;
        let shape = self.axes(frame, stage);
        if let (Some(member), Some(shape)) = (&mut self.member, &shape) {
            let steps = shape.axes.iter().take(member.steps);
            member.vars = steps.map(|axis| axis.var.clone()).collect();
        }
        let types = match &self.updating {
            Some(update) => Some(vec![Some(update.before.dtype)]),
            None => self.element_types(frame, stage),
        };
        let has_packs = stage.axes.iter().any(|(_, extent)| is_expand(extent));
        let rank = shape.as_ref().map(|shape| shape.axes.len());
        let rank = rank.or((!has_packs).then_some(stage.axes.len()));
        let made = shape.and_then(|shape| self.body(frame, stage, types?, shape));
        let made = made.filter(|made| self.check_stage_shapes(stage, made));
        let tensors: Vec<Option<Rc<Tensor>>> = match made {
            Some(made) => self.push_stage(frame, stage, made).into_iter().map(Some).collect(),
            None => {
                let wrong = |(name, _): &(ast::Name, _)| {
                    Some(Rc::new(Tensor {
                        name: name.text.clone(),
                        rank: rank?,
                        buffer: None,
                        untyped: None,
                        member: None,
                    }))
                };
                stage.names.iter().map(wrong).collect()
            }
        };
        let what = if stage.output { "output" } else { "stage" };
        for ((name, _), tensor) in stage.names.iter().zip(tensors) {
            let value = tensor.clone().map_or(Value::Poison, Value::Tensor);
            let is_declared = |entry: &Entry| entry.span == name.span || self.updating.is_some();
            if frame.scope.get(name.text.as_str()).is_some_and(is_declared) {
                // A stage of a recurrence that is declared already, or a tensor that is updated.
                frame.scope.remove(name.text.as_str());
            }
            self.declare(frame, name, Entry { value, what, span: name.span });
            if let Some(operator) = frame.operator.as_mut().filter(|_| stage.output) {
                operator.outputs.extend(tensor);
            }
        }
    }

    /// Evaluates the data axes.
    pub fn axes(&mut self, frame: &mut Frame<'a>, stage: &'a ast::Stage) -> Option<DataAxes<'a>> {
        let mut locals = Locals::default();
        let (mut axes, mut spans) = (Vec::new(), Vec::new());
        let mut known = Some(());
        for (name, extent) in &stage.axes {
            let is_pack = is_expand(extent);
            let extents = self.expanded_constants(frame, [extent]);
            let is_twice = locals.contains_key(name.text.as_str());
            self.check_axis_name(frame, stage, name, &locals);
            let Some(extents) = extents else {
                locals.insert(&name.text, Value::Poison);
                known = None;
                continue;
            };
            let mut values = Vec::new();
            for (place, (value, extent)) in extents.iter().enumerate() {
                let text =
                    if is_pack { format!("{}{place}", name.text) } else { name.text.clone() };
                if !is_twice {
                    self.check_expanded_axis(frame, name, &text, &axes);
                }
                let var = Var::index(&text);
                values.push(Value::Scalar(Typed::new(SourceType::Index, Expr::var(&var), 0)));
                spans.push(extent.span);
                match self.extent((value, extent), "an extent") {
                    Some(extent) => axes.push(Axis { var, min: Expr::index(0), extent }),
                    None => known = None,
                }
            }
            let value = match is_pack {
                true => Value::pack(values),
                false => values.pop().unwrap_or(Value::Poison),
            };
            locals.insert(&name.text, value);
        }
        known.map(|()| DataAxes { axes, locals, spans })
    }

    /// Checks that an axis of a pack has not the name of another axis or of a parameter (E0202).
    fn check_expanded_axis(
        &mut self,
        frame: &Frame<'a>,
        name: &ast::Name,
        text: &str,
        before: &[Axis],
    ) {
        let is_pack = name.text != text;
        let taken = frame.scope.get(text).filter(|entry| entry.what != "reduction axis");
        if let (Some(entry), true) = (taken, is_pack) {
            let (pack, what) = (&name.text, entry.what);
            let message = format!("the axis `{text}` of `{pack}...` has the name of the {what}");
            let diag = Diag::new("E0202", name.span, message);
            self.error(diag.related(entry.span, format!("the {what} is here")));
        } else if before.iter().any(|axis| axis.var.name() == text) {
            let message = format!("two axes of this stage are named `{text}`");
            let note = "the axes of a pack `i...` are named `i0`, `i1` and so on";
            let diag = Diag::new("E0202", name.span, message).note(note);
            self.error(diag.help("choose another name for the pack"));
        }
    }

    /// Checks that an axis does not hide a name of the kernel (E0202).
    fn check_axis_name(
        &mut self,
        frame: &mut Frame<'a>,
        stage: &'a ast::Stage,
        name: &'a ast::Name,
        locals: &Locals<'a>,
    ) {
        let text = name.text.as_str();
        frame.axis_names.entry(text).or_insert(name.span);
        if locals.contains_key(text) {
            let message = format!("the axis `{text}` is declared twice");
            let first = stage.axes.iter().find(|(other, _)| other.text == text);
            let diag = Diag::new("E0202", name.span, message);
            self.error(match first {
                Some((first, _)) => diag.related(first.span, "it is first here"),
                None => diag,
            });
        }
        if let Some(entry) = frame.scope.get(text)
            && entry.what != "reduction axis"
        {
            let message = format!("the axis `{text}` has the name of the {} `{text}`", entry.what);
            let diag = Diag::new("E0202", name.span, message);
            self.error(diag.related(entry.span, format!("the {} is here", entry.what)));
        }
    }

    /// Returns the explicit element type of each name, if any; `None` if one is wrong.
    pub fn element_types(
        &mut self,
        frame: &Frame<'a>,
        stage: &'a ast::Stage,
    ) -> Option<Vec<Option<DType>>> {
        let locals = Locals::default();
        let env = Env { scope: Some(&frame.scope), locals: &locals, element: false, at: None };
        if let (Some(dtype), true) = (&stage.dtype, stage.names.len() > 1) {
            let message = "a type after the axes is for a stage of one tensor";
            let help = "give each tensor its own: `(I: int32, V: float32)`";
            self.error(Diag::new("E0228", dtype.span, message).help(help));
        }
        let mut types = Vec::new();
        let mut wrong = false;
        for (_, dtype) in &stage.names {
            let dtype = dtype.as_ref().or(stage.dtype.as_ref());
            let found = dtype.map(|dtype| self.dtype(dtype, env));
            wrong |= matches!(found, Some(None));
            types.push(found.flatten());
        }
        (!wrong).then_some(types)
    }

    fn body(
        &mut self,
        frame: &Frame<'a>,
        stage: &'a ast::Stage,
        types: Vec<Option<DType>>,
        shape: DataAxes<'a>,
    ) -> Option<StageParts> {
        let DataAxes { axes, locals, spans } = shape;
        let env = Env { scope: Some(&frame.scope), locals: &locals, element: true, at: None };
        if let Some(call) = self.sort_call(&stage.body) {
            let (dtypes, sort) = self.sort(frame, stage, call, env, &types)?;
            let body = Body::Sort(sort);
            return Some(StageParts { dtypes, body, axes, spans, is_untyped: false });
        }
        if let Some(call) = self.reduction_call(&stage.body) {
            let (dtypes, reduction) = self.reduction(frame, stage, call, env, &types, &axes)?;
            let body = Body::Reduce(reduction);
            return Some(StageParts { dtypes, body, axes, spans, is_untyped: false });
        }
        let [explicit] = types[..] else {
            let message = "several results need a tuple reduction, such as `argmax`";
            self.error(Diag::new("E0227", stage.body.span, message));
            return None;
        };
        let value = self.eval_whole(&stage.body, env);
        let value = self.number(value, &stage.body);
        let (dtype, typed) = self.element_value((&value, &stage.body), explicit, false)?;
        let is_index = match &value {
            Value::Scalar(typed) => typed.ty == SourceType::Index,
            value => matches!(value, Value::Int(_)),
        };
        let (dtypes, body) = (vec![dtype], Body::Map(vec![typed.expr]));
        let is_untyped = is_index && explicit.is_none();
        Some(StageParts { dtypes, body, axes, spans, is_untyped })
    }

    /// Converts a value to its element type. A constant adapts to an explicit type; an `index`
    /// becomes any explicit integer type if `index_adapts` (a component of a tuple).
    pub fn element_value(
        &mut self,
        operand: super::casts::Operand<'_, 'a>,
        explicit: Option<DType>,
        index_adapts: bool,
    ) -> Option<(DType, Typed)> {
        let (value, expr) = operand;
        let Some(explicit) = explicit else { return self.stored(operand) };
        let typed = match value {
            Value::Scalar(typed) if !typed.adapts_to(SourceType::Data(explicit)) => typed,
            _ => return Some((explicit, self.adapt_stored(operand, explicit)?)),
        };
        let fits = match typed.ty {
            SourceType::Data(dtype) => dtype == explicit,
            SourceType::Index => explicit == DType::Int64 || (index_adapts && explicit.is_int()),
        };
        if fits {
            return Some((
                explicit,
                if typed.ty == SourceType::Data(explicit) {
                    typed.clone()
                } else {
                    cast(typed, explicit)
                },
            ));
        }
        self.wrong_element(expr, typed.ty, explicit);
        None
    }

    fn check_stage_shapes(&mut self, stage: &'a ast::Stage, made: &StageParts) -> bool {
        let extents: Vec<Expr> = made.axes.iter().map(|axis| axis.extent.clone()).collect();
        let mut fits = true;
        for ((name, _), dtype) in stage.names.iter().zip(&made.dtypes) {
            fits = fits && self.check_shape(name, *dtype, &extents, &made.spans);
        }
        fits
    }

    fn push_stage(
        &mut self,
        frame: &Frame<'a>,
        stage: &'a ast::Stage,
        made: StageParts,
    ) -> Vec<Rc<Tensor>> {
        let strides = self.output_strides(frame, stage, made.axes.len());
        let StageParts { dtypes, body, axes, is_untyped, .. } = made;
        let shape: Vec<Expr> = axes.iter().map(|axis| axis.extent.clone()).collect();
        let (mut buffers, mut previous) = (Vec::new(), Vec::new());
        for (at, ((name, _), dtype)) in stage.names.iter().zip(dtypes).enumerate() {
            let text = self.tensor_name(frame, stage, name);
            let (scope, how) = (MemoryScope::Global, Buffering::Single);
            let make =
                || Buffer::with_layout(&text, dtype, shape.clone(), scope, strides.clone(), how);
            let Some(member) = &self.member else {
                buffers.push(make());
                continue;
            };
            let declared = member.declared.get(at);
            let known = declared.and_then(|tensor| tensor.buffer.clone());
            let known_previous =
                declared.and_then(|tensor| tensor.member.as_ref()?.previous.clone());
            buffers.push(known.unwrap_or_else(make));
            previous.push(known_previous.unwrap_or_else(make));
        }
        let output = stage.output && frame.operator.is_none();
        if output && self.updating.is_none() {
            self.graph.outputs.extend(buffers.iter().cloned());
        }
        let first = &stage.names[0].0;
        let tensors =
            stage.names.iter().zip(&buffers).enumerate().map(|(at, ((name, _), buffer))| {
                let untyped = is_untyped.then_some(name.span);
                let (name, rank) = (name.text.clone(), axes.len());
                let read = self.updating.as_ref().map_or(buffer, |update| &update.after);
                let buffer = Some(read.clone());
                let member = self.member.as_ref().map(|member| Member {
                    recurrence: member.recurrence,
                    place: member.place,
                    previous: previous.get(at).cloned(),
                    is_untyped: false,
                });
                Rc::new(Tensor { name, rank, buffer, untyped, member })
            });
        let tensors = tensors.collect();
        let load_spans = self.loads_of(&body);
        let (name, span) = (self.tensor_name(frame, stage, first), first.span);
        let recurrence = self.member.as_ref().map(|member| member.of_stage(previous));
        let update = self.updating.clone();
        let made =
            Stage { name, buffers, axes, body, output, recurrence, update, span, load_spans };
        self.graph.stages.push(made);
        tensors
    }

    /// Returns the name of a tensor in the graph.
    pub fn tensor_name(&self, frame: &Frame<'a>, stage: &ast::Stage, name: &ast::Name) -> String {
        match &frame.operator {
            Some(operator) if stage.output => operator.result.clone(),
            _ => format!("{}{}", frame.prefix, name.text),
        }
    }

    /// Returns the place in the source of each load of a body.
    fn loads_of(&self, body: &Body) -> Vec<(usize, Span)> {
        let mut spans = Vec::new();
        for_each_load(body, &mut |load| {
            let id = load.id();
            spans.extend(self.load_spans.get(&id).map(|span| (id, *span)));
        });
        spans
    }
}

/// Whether an expression is `x...`.
pub fn is_expand(expr: &ast::Expr) -> bool {
    matches!(*expr.kind, ast::ExprKind::Expand(_))
}

/// Calls `f` on every load of a body; visits shared nodes once.
pub fn for_each_load(body: &Body, f: &mut dyn FnMut(&Expr)) {
    let mut seen = NodeSet::default();
    let mut visit = |expr: &Expr| {
        walk_nodes(expr, &mut seen, &mut |node| {
            if let ExprKind::Load { .. } = node.kind {
                f(node);
            }
        });
    };
    body.for_each_expr(&mut visit);
}

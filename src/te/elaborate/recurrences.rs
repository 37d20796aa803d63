//! `scan t: n { … }`: stages that read the results of earlier steps.
//!
//! Before: `scan t: n { compute h[t]: float32 = if t > 0 then h[t - 1] + X[t] else X[t] }`.
//! After: a stage `h[t: n]` whose read of `h[t - 1]` is a load of `Recurrence::previous`.
//! Stages of the scan that do not depend on themselves are ordinary stages, in front of the
//! recurrences or behind them. The others form the strongly connected components of the reads
//! between the stages, as the text names them.

use super::Elaborator;
use super::frame::Frame;
use super::items::walk;
use super::stages::is_expand;
use super::values::{Entry, Member, Tensor, Value};
use crate::diag::{Diag, Span};
use crate::ir::{Buffer, Expr, Scope as MemoryScope, Var};
use crate::lang::ast;
use crate::te::Recurrence;
use std::rc::Rc;

/// The stage of a scan that is being elaborated.
pub struct CurrentMember {
    /// The recurrence that it belongs to.
    pub recurrence: usize,
    /// Its place among the stages of the scan.
    pub place: usize,
    /// The number of axes of the scan.
    pub steps: usize,
    /// The variables of these axes in the stage.
    pub vars: Vec<Var>,
    /// Its tensors, if an earlier stage of the scan or itself reads them.
    pub declared: Vec<Rc<Tensor>>,
}

impl CurrentMember {
    /// Returns the buffer that a read with these indices loads from.
    pub fn source(&self, tensor: &Tensor, indices: &[Expr]) -> Option<Buffer> {
        let of = tensor.member.as_ref().filter(|of| of.recurrence == self.recurrence)?;
        let steps = indices.iter().zip(&self.vars);
        let is_same_step = steps.take(self.steps).all(|(index, var)| index.as_var() == Some(var));
        if is_same_step && of.place < self.place { None } else { of.previous.clone() }
    }

    /// Returns the recurrence for a stage with these tensors.
    pub fn of_stage(&self, previous: Vec<Buffer>) -> Recurrence {
        Recurrence { id: self.recurrence, steps: self.steps, previous, reads: Vec::new() }
    }
}

impl<'a> Elaborator<'a> {
    /// Elaborates a `scan`.
    pub fn scan(
        &mut self,
        frame: &mut Frame<'a>,
        axes: &'a [(ast::Name, ast::Expr)],
        stages: &'a [ast::Stage],
        span: Span,
    ) {
        if stages.is_empty() {
            let message = "a `scan` without stages";
            let help = "write `compute` and `output` stages in its braces";
            self.error(Diag::new("E0239", span, message).help(help));
        }
        let names = stages.iter().flat_map(|stage| &stage.names);
        self.scan_names = names.map(|(name, _)| name.text.as_str()).collect();
        let reads = reads_between(stages);
        let components = components(&reads);
        let first = self.graph.stages.iter().filter_map(|stage| stage.recurrence.as_ref());
        let first = first.map(|recurrence| recurrence.id + 1).max().unwrap_or(0);
        for (place, stage) in stages.iter().enumerate() {
            self.check_steps(axes, stage);
            let is_early = (0..=place).any(|reader| reads[reader].contains(&place));
            if let (true, Some(component)) = (is_early, components[place]) {
                self.declare_early(frame, stage, (first + component, place));
            }
        }
        let first_output = self.graph.outputs.len();
        for place in order(&reads, &components) {
            let stage = &stages[place];
            let declared = stage.names.iter().filter_map(|(name, _)| {
                let entry = frame.scope.get(name.text.as_str())?;
                match &entry.value {
                    Value::Tensor(tensor) if entry.span == name.span => Some(tensor.clone()),
                    _ => None,
                }
            });
            let declared: Vec<Rc<Tensor>> = declared.collect();
            self.member = components[place].map(|component| CurrentMember {
                recurrence: first + component,
                place,
                steps: axes.len(),
                vars: Vec::new(),
                declared,
            });
            self.stage(frame, stage);
            self.member = None;
        }
        self.scan_names.clear();
        // The caller passes outputs in the order of the text.
        let names = stages.iter().flat_map(|stage| stage.names.iter().map(move |one| (stage, one)));
        let names: Vec<String> =
            names.map(|(stage, (name, _))| self.tensor_name(frame, stage, name)).collect();
        self.graph.outputs[first_output..]
            .sort_by_key(|buffer| names.iter().position(|name| *name == buffer.name));
    }

    /// Checks that the first axes of a stage are those of the scan, in order (E0239).
    fn check_steps(&mut self, axes: &'a [(ast::Name, ast::Expr)], stage: &'a ast::Stage) {
        let names = |axes: &'a [(ast::Name, ast::Expr)]| axes.iter().map(|(name, _)| &name.text);
        let own = names(&stage.axes).take(axes.len());
        let name = &stage.names[0].0;
        if !own.eq(names(axes)) {
            let steps: Vec<&str> = names(axes).map(|name| &name[..]).collect();
            let steps = steps.join(", ");
            let message = format!("`{}` does not begin with the axes of the scan", name.text);
            let help = format!("write `{}[{steps}, …]`", name.text);
            let diag = Diag::new("E0239", name.span, message).help(help);
            self.error(diag.related(axes[0].0.span, "the scan is here"));
            return;
        }
        for ((axis, extent), (step, whole)) in stage.axes.iter().zip(axes) {
            if extent.span != whole.span {
                let message = format!("`{}` has an extent twice", axis.text);
                let help =
                    format!("write `{0}` without `: …`: it is an axis of the scan", axis.text);
                let diag = Diag::new("E0239", extent.span, message).help(help);
                self.error(diag.related(step.span, "the scan is here"));
            }
        }
    }

    /// Adds the tensors of a stage that is read before it is elaborated to the names of the kernel.
    fn declare_early(
        &mut self,
        frame: &mut Frame<'a>,
        stage: &'a ast::Stage,
        (recurrence, place): (usize, usize),
    ) {
        let known = self.quietly(|this| {
            let axes = this.axes(frame, stage)?.axes;
            Some((axes, this.element_types(frame, stage)?))
        });
        let rank = known.as_ref().map(|(axes, _)| axes.len());
        let has_packs = stage.axes.iter().any(|(_, extent)| is_expand(extent));
        let Some(rank) = rank.or((!has_packs).then_some(stage.axes.len())) else { return };
        for (at, (name, _)) in stage.names.iter().enumerate() {
            let buffers = known.as_ref().and_then(|(axes, types)| {
                let shape: Vec<Expr> = axes.iter().map(|axis| axis.extent.clone()).collect();
                let text = self.tensor_name(frame, stage, name);
                let make =
                    || Buffer::new(&text, types[at]?, shape.clone(), MemoryScope::Global).into();
                Option::zip(make(), make())
            });
            let is_untyped = known.as_ref().is_some_and(|(_, types)| types[at].is_none());
            let (buffer, previous) = buffers.unzip();
            let tensor = Tensor {
                name: name.text.clone(),
                rank,
                buffer,
                untyped: None,
                member: Some(Member { recurrence, place, previous, is_untyped }),
            };
            let value = Value::Tensor(Rc::new(tensor));
            self.declare(frame, name, Entry { value, what: "stage", span: name.span });
        }
    }

    /// Refuses to read a stage of a scan before its element type is known (E0239).
    pub fn refuse_untyped_member(&mut self, name: &ast::Name, span: Span) {
        let message = format!("`{}` is read before its element type is known", name.text);
        let help = format!("declare the type: `{}[…]: float32 = …`", name.text);
        let note = "the stage reads itself, or a stage in front of it reads it";
        self.error(Diag::new("E0239", span, message).note(note).help(help));
    }
}

/// Returns for each stage the stages that its text names.
fn reads_between(stages: &[ast::Stage]) -> Vec<Vec<usize>> {
    let place_of = |text: &str| {
        stages.iter().position(|stage| stage.names.iter().any(|(name, _)| name.text == text))
    };
    let mut reads = Vec::new();
    for stage in stages {
        let mut found = Vec::new();
        walk(&stage.body, &mut |expr| {
            if let ast::ExprKind::Index(name, _) = &*expr.kind {
                found.extend(place_of(&name.text));
            }
        });
        found.sort_unstable();
        found.dedup();
        reads.push(found);
    }
    reads
}

/// Returns the stages in an order of computation: those of a recurrence next to each other, and
/// each stage behind the other stages that it reads.
fn order(reads: &[Vec<usize>], components: &[Option<usize>]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut done = vec![false; reads.len()];
    let members = |at: usize| -> Vec<usize> {
        let of = |other: &usize| components[at].is_some() && components[*other] == components[at];
        (0..reads.len()).filter(|other| *other == at || of(other)).collect()
    };
    while order.len() < reads.len() {
        let is_ready = |at: &usize| {
            let own = members(*at);
            let known = |read: &usize| done[*read] || own.contains(read);
            !done[*at] && own.iter().all(|member| reads[*member].iter().all(known))
        };
        let next = (0..reads.len()).find(is_ready).expect("components form no circle");
        for member in members(next) {
            done[member] = true;
            order.push(member);
        }
    }
    order
}

/// Returns for each stage the number of its strongly connected component; `None` if it does not
/// depend on itself.
fn components(reads: &[Vec<usize>]) -> Vec<Option<usize>> {
    let reachable: Vec<Vec<bool>> = (0..reads.len())
        .map(|from| {
            let mut seen = vec![false; reads.len()];
            let mut stack = reads[from].clone();
            while let Some(at) = stack.pop() {
                if !std::mem::replace(&mut seen[at], true) {
                    stack.extend(&reads[at]);
                }
            }
            seen
        })
        .collect();
    (0..reads.len())
        .map(|at| (0..reads.len()).find(|other| reachable[at][*other] && reachable[*other][at]))
        .collect()
}

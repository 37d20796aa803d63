//! A directive with its arguments.

use super::{Directive, Subject};
use crate::diag::{Result, Span};
use crate::ir::{self, Scope};
use crate::lang::ast;
use crate::schedule::state::{AxisId, Schedule, StageId, Tensor};

/// A value in a schedule.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// `true` or `false`.
    Bool(bool),
    /// A stage.
    Stage(StageId),
    /// An input.
    Input(usize),
    /// A loop.
    Axis(StageId, AxisId),
    /// A loop that is the argument of a template, with its name: on another stage, it means the
    /// loop of this name.
    NamedAxis(StageId, AxisId, String),
    /// `*` among axes.
    Star,
    /// A storage scope.
    Scope(Scope),
    /// A word.
    Word(String),
    /// A list.
    List(Vec<Argument>),
    /// An expression over axes (`layout=`).
    Expr(ast::Expr),
    /// An integer or condition that is known only at run time.
    RunTime(ir::Expr),
}

/// A value with its place in the source.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The value, of the parameter's kind.
    pub value: Value,
    /// The place.
    pub span: Span,
}

/// A directive with its subject and arguments, all of the kinds that its parameters have.
#[derive(Clone, Debug)]
pub struct Call {
    /// The directive.
    pub directive: &'static Directive,
    /// The tensor that it acts on.
    pub subject: Tensor,
    /// The place of the subject's name.
    pub subject_span: Span,
    /// The whole statement.
    pub span: Span,
    /// The argument of each parameter.
    pub args: Vec<Option<Argument>>,
}

impl Call {
    /// Applies the directive. Returns the axes or stages that `let` names.
    pub fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Value>> {
        self.directive.check_target(schedule, self.span)?;
        let values = (self.directive.run)(schedule, self)?;
        if let (Subject::Stage, Tensor::Stage(id)) = (self.directive.subject, self.subject) {
            schedule.stage_mut(id).touched = true;
        }
        Ok(values)
    }

    /// Returns the stage that it acts on.
    ///
    /// # Panics
    /// If the directive takes inputs too.
    pub fn stage(&self) -> StageId {
        match self.subject {
            Tensor::Stage(id) => id,
            Tensor::Input(_) => crate::bug!("a directive for stages acts on an input"),
        }
    }

    /// Returns a loop of the parameter's stage.
    pub fn axis(&self, param: usize) -> AxisId {
        match self.value(param) {
            Some(Value::Axis(_, axis)) => *axis,
            other => crate::bug!("parameter {param}: {other:?} for an axis"),
        }
    }

    /// Returns the loops of a list, with their places; `None` stands for `*`.
    pub fn axes(&self, param: usize) -> Vec<(Option<AxisId>, Span)> {
        let axis = |arg: &Argument| match arg.value {
            Value::Axis(_, axis) => (Some(axis), arg.span),
            _ => (None, arg.span),
        };
        self.list(param).iter().map(axis).collect()
    }

    /// Returns the elements of a list; none if it was left out.
    pub fn list(&self, param: usize) -> &[Argument] {
        match self.value(param) {
            Some(Value::List(items)) => items,
            None => &[],
            other => crate::bug!("parameter {param}: {other:?} for a list"),
        }
    }

    /// Returns an integer; `None` if it was left out.
    pub fn int(&self, param: usize) -> Option<i64> {
        match self.value(param) {
            Some(Value::Int(value)) => Some(*value),
            None => None,
            other => crate::bug!("parameter {param}: {other:?} for an integer"),
        }
    }

    /// Whether the argument is `true`; `false` if it was left out.
    pub fn flag(&self, param: usize) -> bool {
        matches!(self.value(param), Some(Value::Bool(true)))
    }

    /// Returns a word; `None` if it was left out.
    pub fn word(&self, param: usize) -> Option<&str> {
        match self.value(param) {
            Some(Value::Word(word)) => Some(word),
            None => None,
            other => crate::bug!("parameter {param}: {other:?} for a word"),
        }
    }

    /// Returns the place of an argument; that of the statement if it was left out.
    pub fn span_of(&self, param: usize) -> Span {
        self.args[param].as_ref().map_or(self.span, |arg| arg.span)
    }

    /// Returns the argument of a parameter.
    pub fn value(&self, param: usize) -> Option<&Value> {
        self.args.get(param)?.as_ref().map(|arg| &arg.value)
    }
}

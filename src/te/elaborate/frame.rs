//! What is known while the statements of a kernel or operator are elaborated.

use super::expressions::Scope;
use super::values::{Tensor, Value};
use crate::diag::Span;
use crate::lang::ast;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::rc::Rc;

/// An argument's value and syntax.
pub type Argument<'a> = (Value, &'a ast::Expr);

/// A call of an operator.
pub struct Operator<'a> {
    /// The name of its output stage in the caller.
    pub result: String,
    /// The arguments that no input has taken yet.
    pub args: VecDeque<Argument<'a>>,
    /// The number of arguments.
    pub given: usize,
    /// The tensors of its `output` stages.
    pub outputs: Vec<Rc<Tensor>>,
    /// Whether the caller allows to reassociate.
    pub reassociate: bool,
    /// The call.
    pub call: Span,
}

/// A kernel or operator whose statements are being elaborated.
pub struct Frame<'a> {
    /// The syntax.
    pub kernel: &'a ast::Kernel,
    /// The names so far.
    pub scope: Scope<'a>,
    /// The names of axes of its stages so far.
    pub axis_names: FxHashMap<&'a str, Span>,
    /// The prefix of the names of its stages: `P.` in the operator `let P = …`.
    pub prefix: String,
    /// Whether an output was declared, or may have been in an erroneous `if`.
    pub has_output: bool,
    /// The call, if it is used as an operator.
    pub operator: Option<Operator<'a>>,
}

impl<'a> Frame<'a> {
    /// Returns a kernel without names.
    pub fn new(kernel: &'a ast::Kernel) -> Frame<'a> {
        let (scope, axis_names) = (Scope::default(), FxHashMap::default());
        let (prefix, has_output, operator) = (String::new(), false, None);
        Frame { kernel, scope, axis_names, prefix, has_output, operator }
    }
}

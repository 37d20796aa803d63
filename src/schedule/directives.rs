//! The table of directives: names, parameters, what they give, and the functions that do them.

use super::state::{AxisId, Schedule, StageId, Tensor};
use super::{
    algebra, attach, cache, loops, pragma, prefetch, rfactor, storage, tensorize, threads,
};
use crate::diag::{Result, Span};
use crate::ir::Scope;
use crate::lang::ast;

/// A directive.
pub struct Directive {
    /// As written.
    pub name: &'static str,
    /// Whether it also takes an input (`A.cache_read`).
    pub on_inputs: bool,
    /// Parameters, in positional order.
    pub params: &'static [Param],
    /// One line for messages: `split(i, factor=f)`.
    pub usage: &'static str,
    /// Checks, then changes the schedule. Gives the axes or stages that `let` names.
    pub run: fn(&mut Schedule, &Call) -> Result<Vec<Value>>,
}

/// A parameter of a directive.
pub struct Param {
    /// Keyword.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// May be left out.
    pub optional: bool,
}

/// What a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A loop of the directive's own stage.
    Axis,
    /// A loop of the stage that the parameter before gave.
    AxisOfStage,
    /// All remaining positional arguments: loops of the directive's stage, or `*`.
    Axes,
    /// A stage.
    Stage,
    /// A list of stages.
    Stages,
    /// A stage or an input.
    Tensor,
    /// An integer.
    Int,
    /// A list of integers.
    Ints,
    /// `true` or `false`.
    Bool,
    /// `global`, `shared`, `local`.
    Scope,
    /// One word, dots included: `peel`, `auto_unroll_max_step`, `dot4`.
    Word,
    /// An integer or `true`, `false`.
    Setting,
    /// A list of expressions, not evaluated: the directive does.
    Exprs,
}

/// A value in a schedule.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A condition's value.
    Bool(bool),
    /// A stage.
    Stage(StageId),
    /// An input.
    Input(usize),
    /// A loop.
    Axis(StageId, AxisId),
    /// `*` among axes.
    Star,
    /// A storage scope.
    Scope(Scope),
    /// A word.
    Word(String),
    /// A list.
    List(Vec<Argument>),
    /// An expression of axes (`layout=`).
    Expr(ast::Expr),
}

/// A value with its place.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The value, of the parameter's kind.
    pub value: Value,
    /// Where it stands.
    pub span: Span,
}

/// A directive with its arguments, all of the kinds that its parameters ask for.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it acts on.
    pub subject: Tensor,
    /// Where the subject's name stands.
    pub subject_span: Span,
    /// The whole statement.
    pub span: Span,
    /// One per parameter.
    pub args: Vec<Option<Argument>>,
}

impl Call {
    /// The stage it acts on.
    ///
    /// # Panics
    /// If the directive takes inputs too.
    pub fn stage(&self) -> StageId {
        match self.subject {
            Tensor::Stage(id) => id,
            Tensor::Input(_) => crate::bug!("a directive for stages acts on an input"),
        }
    }

    /// A loop of the parameter's stage.
    pub fn axis(&self, param: usize) -> AxisId {
        match self.value(param) {
            Some(Value::Axis(_, axis)) => *axis,
            other => crate::bug!("parameter {param}: {other:?} for an axis"),
        }
    }

    /// Loops, with their places; `None` stands for `*`.
    pub fn axes(&self, param: usize) -> Vec<(Option<AxisId>, Span)> {
        let axis = |arg: &Argument| match arg.value {
            Value::Axis(_, axis) => (Some(axis), arg.span),
            _ => (None, arg.span),
        };
        self.list(param).iter().map(axis).collect()
    }

    /// The elements of a list; none if the argument was left out.
    pub fn list(&self, param: usize) -> &[Argument] {
        match self.value(param) {
            Some(Value::List(items)) => items,
            None => &[],
            other => crate::bug!("parameter {param}: {other:?} for a list"),
        }
    }

    /// An integer.
    pub fn int(&self, param: usize) -> Option<i64> {
        match self.value(param) {
            Some(Value::Int(value)) => Some(*value),
            None => None,
            other => crate::bug!("parameter {param}: {other:?} for an integer"),
        }
    }

    /// `true` or `false`; `false` if left out.
    pub fn flag(&self, param: usize) -> bool {
        matches!(self.value(param), Some(Value::Bool(true)))
    }

    /// A word.
    pub fn word(&self, param: usize) -> Option<&str> {
        match self.value(param) {
            Some(Value::Word(word)) => Some(word),
            None => None,
            other => crate::bug!("parameter {param}: {other:?} for a word"),
        }
    }

    /// The argument's place; the statement's if it was left out.
    pub fn span_of(&self, param: usize) -> Span {
        self.args[param].as_ref().map_or(self.span, |arg| arg.span)
    }

    /// The argument of a parameter.
    pub fn value(&self, param: usize) -> Option<&Value> {
        self.args.get(param)?.as_ref().map(|arg| &arg.value)
    }
}

const fn need(name: &'static str, kind: Kind) -> Param {
    Param { name, kind, optional: false }
}

const fn may(name: &'static str, kind: Kind) -> Param {
    Param { name, kind, optional: true }
}

/// Every directive, in the order of the language reference.
pub const DIRECTIVES: &[Directive] = &[
    Directive {
        name: "split",
        on_inputs: false,
        params: &[
            need("i", Kind::Axis),
            may("factor", Kind::Int),
            may("nparts", Kind::Int),
            may("factors", Kind::Ints),
            may("tail", Kind::Word),
        ],
        usage: "split(i, factor=f), split(i, nparts=p) or split(i, factors=[a, b])",
        run: loops::split,
    },
    Directive {
        name: "tile",
        on_inputs: false,
        params: &[
            need("x", Kind::Axis),
            need("y", Kind::Axis),
            need("a", Kind::Int),
            need("b", Kind::Int),
            may("tail", Kind::Word),
        ],
        usage: "tile(x, y, a, b)",
        run: loops::tile,
    },
    Directive {
        name: "fuse",
        on_inputs: false,
        params: &[need("axes", Kind::Axes)],
        usage: "fuse(a, b, …) or fuse(*)",
        run: loops::fuse,
    },
    Directive {
        name: "reorder",
        on_inputs: false,
        params: &[need("axes", Kind::Axes), may("reassociate", Kind::Bool)],
        usage: "reorder(a, b, …)",
        run: loops::reorder,
    },
    Directive {
        name: "unroll",
        on_inputs: false,
        params: &[need("i", Kind::Axis)],
        usage: "unroll(i)",
        run: loops::unroll,
    },
    Directive {
        name: "vectorize",
        on_inputs: false,
        params: &[need("i", Kind::Axis)],
        usage: "vectorize(i)",
        run: loops::vectorize,
    },
    Directive {
        name: "parallel",
        on_inputs: false,
        params: &[need("i", Kind::Axis)],
        usage: "parallel(i)",
        run: loops::parallel,
    },
    Directive {
        name: "bind",
        on_inputs: false,
        params: &[need("i", Kind::Axis), need("index", Kind::Word)],
        usage: "bind(i, blockIdx.x), bind(i, threadIdx.x) or bind(i, vthread)",
        run: threads::bind,
    },
    Directive {
        name: "compute_at",
        on_inputs: false,
        params: &[need("stage", Kind::Stage), need("axis", Kind::AxisOfStage)],
        usage: "compute_at(CONSUMER, axis)",
        run: attach::compute_at,
    },
    Directive {
        name: "compute_inline",
        on_inputs: false,
        params: &[],
        usage: "compute_inline()",
        run: attach::compute_inline,
    },
    Directive {
        name: "compute_root",
        on_inputs: false,
        params: &[],
        usage: "compute_root()",
        run: attach::compute_root,
    },
    Directive {
        name: "storage_align",
        on_inputs: false,
        params: &[need("i", Kind::Axis), need("factor", Kind::Int), need("offset", Kind::Int)],
        usage: "storage_align(i, factor, offset)",
        run: storage::storage_align,
    },
    Directive {
        name: "double_buffer",
        on_inputs: false,
        params: &[],
        usage: "double_buffer()",
        run: storage::double_buffer,
    },
    Directive {
        name: "store_nontemporal",
        on_inputs: false,
        params: &[],
        usage: "store_nontemporal()",
        run: storage::store_nontemporal,
    },
    Directive {
        name: "pipeline",
        on_inputs: false,
        params: &[need("i", Kind::Axis), need("stages", Kind::Int)],
        usage: "pipeline(i, stages=3)",
        run: storage::pipeline,
    },
    Directive {
        name: "prefetch",
        on_inputs: false,
        params: &[need("tensor", Kind::Tensor), need("i", Kind::Axis), need("distance", Kind::Int)],
        usage: "prefetch(A, i, distance)",
        run: prefetch::prefetch,
    },
    Directive {
        name: "tensorize",
        on_inputs: false,
        params: &[
            need("i", Kind::Axis),
            need("intrinsic", Kind::Word),
            may("reassociate", Kind::Bool),
        ],
        usage: "tensorize(i, NAME) or tensorize(i, NAME, reassociate=true)",
        run: tensorize::tensorize,
    },
    Directive {
        name: "pragma",
        on_inputs: false,
        params: &[need("i", Kind::Axis), need("name", Kind::Word), need("value", Kind::Setting)],
        usage: "pragma(i, auto_unroll_max_step, 16) or pragma(i, unroll_explicit, true)",
        run: pragma::pragma,
    },
    Directive {
        name: "cache_write",
        on_inputs: false,
        params: &[need("scope", Kind::Scope), may("layout", Kind::Exprs)],
        usage: "cache_write(local) or cache_write(local, layout=[x // 8, y, x % 8])",
        run: cache::cache_write,
    },
    Directive {
        name: "cache_read",
        on_inputs: true,
        params: &[
            need("scope", Kind::Scope),
            may("readers", Kind::Stages),
            may("layout", Kind::Exprs),
        ],
        usage: "cache_read(local, [READER, …], layout=[ax1 // 16, ax0, ax1 % 16])",
        run: cache::cache_read,
    },
    Directive {
        name: "rfactor",
        on_inputs: false,
        params: &[need("k", Kind::Axis), may("reassociate", Kind::Bool)],
        usage: "rfactor(k) or rfactor(k, reassociate=true)",
        run: rfactor::rfactor,
    },
    Directive {
        name: "merge",
        on_inputs: false,
        params: &[need("stage", Kind::Stage), may("reassociate", Kind::Bool)],
        usage: "merge(STAGE) or merge(STAGE, reassociate=true)",
        run: algebra::merge,
    },
    Directive {
        name: "contract",
        on_inputs: false,
        params: &[need("axes", Kind::Axes), may("reassociate", Kind::Bool)],
        usage: "contract(k, …) or contract(k, …, reassociate=true)",
        run: algebra::contract,
    },
    Directive {
        name: "set_scope",
        on_inputs: false,
        params: &[need("scope", Kind::Scope)],
        usage: "set_scope(local)",
        run: cache::set_scope,
    },
];

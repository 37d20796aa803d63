//! From syntax tree to stage graph: names, parameters, types, `def`s, operators, reducers, bounds.
//!
//! The graph says what to compute, not how: axes, extents, and for each stage the value of one
//! element as a loop IR expression whose loads have one index per dimension.

mod bounds;
mod contract;
mod elaborate;
mod narrow;
mod params;
mod positions;
mod quantized;
mod reducer;
mod typical;

pub use bounds::{check_bounds, replace_shape};
pub use contract::contract_floats;
pub use elaborate::{Defines, elaborate, kernel_names, refused_kernel_name};
pub use narrow::narrow_integers;
pub use params::build_params;
pub use positions::OrderMatters;
pub use reducer::check_reducer;
pub use typical::{TypicalCall, set_estimates};

use crate::diag::Span;
use crate::ir::equal::equal;
use crate::ir::visit::{any_expr, reads_memory, substitute};
use crate::ir::{ActualDim, BinOp, Buffer, DType, Expr, ExprKind, Stmt, Var};

/// An elaborated kernel: every parameter has a value, every compile-time `if` is decided.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The exported name.
    pub name: String,
    /// The declaration.
    pub span: Span,
    /// Compile-time parameters with their values as text, for the manifest.
    pub params: Vec<(String, String)>,
    /// Compile-time constants (`let`) with their values as text, sorted by name, for schedules.
    pub consts: Vec<(String, String)>,
    /// Aliases of tensors (`let`) with the names of these, for schedules.
    pub aliases: Vec<(String, String)>,
    /// Run-time integers in declaration order.
    pub vars: Vec<Var>,
    /// Inputs in declaration order.
    pub inputs: Vec<Input>,
    /// Stages in declaration order; a stage reads inputs and earlier stages only. Stages that no
    /// output needs are dropped.
    pub stages: Vec<Stage>,
    /// The names of the stages that were dropped, for messages about schedules.
    pub dropped: Vec<String>,
    /// Outputs in declaration order: buffers of stages.
    pub outputs: Vec<Buffer>,
    /// `assume`d conditions over run-time integers, with their source text.
    pub assumes: Vec<(Expr, String, Span)>,
    /// The calls that an automatic schedule is for, by `estimate` statements; if there are none,
    /// the cost model assumes usual sizes.
    pub estimates: Vec<TypicalCall>,
    /// `assert`ed conditions that only the arguments of a call decide.
    pub asserts: Vec<Assertion>,
    /// `reassociate` after the parameters.
    pub reassociate: bool,
    /// Whether it is a `network`, which is compiled as several kernels.
    pub network: bool,
    /// Whether it is one of these kernels: what it computes is read soon, by the next ones.
    pub part_of_network: bool,
    /// Variables of `checks` for extents that are expressions.
    pub dims: Vec<ActualDim>,
    /// Entry checks, see [`crate::ir::Kernel::checks`]; filled by [`check_bounds`].
    pub checks: Vec<Stmt>,
}

impl Graph {
    /// Whether an index of a read is read from memory itself, as in a gather.
    pub fn reads_at_loaded_indices(&self) -> bool {
        let mut found = false;
        for stage in &self.stages {
            stage.body.for_each_expr(&mut |expr| {
                found |= any_expr(expr, &mut |e| match &e.kind {
                    ExprKind::Load { indices, .. } => indices.iter().any(reads_memory),
                    _ => false,
                });
            });
        }
        found
    }

    /// Returns the stage that updates an input in place, if any; the first one of several.
    pub fn update_of(&self, input: &Buffer) -> Option<&Stage> {
        let updates = |stage: &&Stage| stage.update.as_ref().is_some_and(|u| u.before == *input);
        self.stages.iter().find(updates)
    }

    /// Returns the input that a stage updates in place, if any. Each `update` of a tensor but the
    /// first one changes what the one before it left.
    pub fn updated_input<'a>(&'a self, stage: &'a Stage) -> Option<&'a Buffer> {
        let mut before = &stage.update.as_ref()?.before;
        let update_to = |after: &Buffer| {
            let mut updates = self.stages.iter().filter_map(|stage| stage.update.as_ref());
            updates.find(|update| update.after == *after)
        };
        while let Some(update) = update_to(before) {
            before = &update.before;
        }
        Some(before)
    }

    /// Returns the facts that the checked entries guarantee: assumptions hold, extents are not
    /// negative.
    pub fn known_facts(&self) -> Vec<Expr> {
        let mut facts: Vec<Expr> = self.assumes.iter().map(|(cond, ..)| cond.clone()).collect();
        let inputs = self.inputs.iter().filter_map(|input| match input {
            Input::Tensor { buffer, .. } => Some(buffer),
            Input::Scalar { .. } => None,
        });
        let stages = self.stages.iter().flat_map(|stage| &stage.buffers);
        for buffer in inputs.chain(stages) {
            let declared = buffer.declared.iter().flat_map(|(_, shape)| shape);
            let extents = declared.chain(&buffer.shape);
            for extent in extents.filter(|extent| extent.as_int().is_none()) {
                let bounds = [
                    Expr::le(Expr::index(0), extent.clone()),
                    Expr::le(extent.clone(), Expr::index(bounds::MAX_BYTES)),
                ];
                for bound in bounds {
                    if !facts.iter().any(|fact| equal(fact, &bound)) {
                        facts.push(bound);
                    }
                }
            }
        }
        facts
    }

    /// Removes every permission to reassociate.
    pub fn forbid_reassociation(&mut self) {
        self.reassociate = false;
        for stage in &mut self.stages {
            if let Body::Reduce(reduction) = &mut stage.body {
                reduction.reassociate = false;
            }
        }
    }
}

/// A condition over run-time integers and inputs that the checked entries verify.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// The condition; its loads have one index per dimension.
    pub cond: Expr,
    /// The text of the error.
    pub text: String,
    /// The condition in the source.
    pub span: Span,
    /// The place in the source of each load, by [`Expr::id`] of the load.
    pub load_spans: Vec<(usize, Span)>,
}

/// An input of a kernel.
#[derive(Clone, Debug)]
pub enum Input {
    /// `input A: float32[n]`.
    Tensor {
        /// The tensor; scope `Global`.
        buffer: Buffer,
        /// `layout_free`.
        layout_free: bool,
        /// Whether it is a `param` of a network, whose elements can be known at build time.
        param: bool,
        /// Declaration.
        span: Span,
    },
    /// `input alpha: float32`.
    Scalar {
        /// Read in expressions; has the compute type of `dtype`.
        var: Var,
        /// Declared type.
        dtype: DType,
        /// Declaration.
        span: Span,
    },
}

/// A stage: `compute` or `output`.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The name: `C`, `P.S` for an inner stage of an operator, or the first name of a tuple.
    pub name: String,
    /// The tensors that it computes: one, or one for each component of a tuple reduction, all of
    /// the same shape.
    pub buffers: Vec<Buffer>,
    /// The data axes, each `0 .. extent`.
    pub axes: Vec<Axis>,
    /// The value of one element.
    pub body: Body,
    /// Whether the tensors are outputs of the kernel.
    pub output: bool,
    /// The recurrence that it belongs to.
    pub recurrence: Option<Recurrence>,
    /// The elements of an argument that it writes in place; an output then.
    pub update: Option<Update>,
    /// Declaration.
    pub span: Span,
    /// The place in the source of each load of the body, by [`Expr::id`] of the load.
    pub load_spans: Vec<(usize, Span)>,
}

/// `update C[p + i: n] = …`: the stage writes a region of an argument in place.
///
/// Loads of `before` see the elements of the call, loads of `after` also the new ones. Both are the
/// memory of the argument, so what reads `before` must be computed before the stage writes, and
/// what reads `after` behind it (`schedule::in_place`).
#[derive(Clone, Debug)]
pub struct Update {
    /// The argument: an input of the graph, or in a network the `after` of the `update` before this
    /// one.
    pub before: Buffer,
    /// The argument with the new elements; no stage computes it.
    pub after: Buffer,
    /// What is added to each axis of the stage to give the index in the argument.
    pub offsets: Vec<Expr>,
}

impl Update {
    /// Returns the place in the argument of the element at `indices` of the stage.
    pub fn place(&self, indices: &[Expr]) -> Vec<Expr> {
        let place = |(index, offset): (&Expr, &Expr)| match offset.as_int() {
            Some(0) => index.clone(),
            _ => Expr::add(offset.clone(), index.clone()),
        };
        indices.iter().zip(&self.offsets).map(place).collect()
    }
}

/// What makes a stage part of a recurrence: the stages with the same `id` are computed step by step
/// in the order of the graph, each step after all steps before it in lexicographic order.
///
/// A member reads the current step of the members in front of it from their `buffers`, and all
/// other steps of members from `previous`, so that the graph has no cycles. Nothing but members of
/// the recurrence loads from `previous`.
#[derive(Clone, Debug)]
pub struct Recurrence {
    /// Identifies the recurrence in its graph.
    pub id: usize,
    /// The number of axes of the steps, which are the first axes of the stage.
    pub steps: usize,
    /// For each tensor of the stage, the buffer that stands for its elements of earlier steps, with
    /// the same shape.
    pub previous: Vec<Buffer>,
    /// The reads of earlier steps in this stage; filled by `check_bounds`.
    pub reads: Vec<StepRead>,
}

/// A read of an earlier step.
#[derive(Clone, Debug)]
pub struct StepRead {
    /// The read.
    pub span: Span,
    /// For each axis of the steps, the least and the greatest difference of the current step and
    /// the one that is read; `None` if that is unknown.
    pub distances: Vec<(Option<i64>, Option<i64>)>,
}

impl Recurrence {
    /// Returns the recurrence of a stage that a directive adds inside a step: it has no axes of the
    /// steps, and no other step reads it.
    pub fn of_added_stage(&self) -> Recurrence {
        Recurrence { id: self.id, steps: 0, previous: Vec::new(), reads: Vec::new() }
    }
}

impl Stage {
    /// Returns the reduction axes, outermost first, or the sorted axis; none if it has neither.
    pub fn reduce_axes(&self) -> &[Axis] {
        match &self.body {
            Body::Map(_) => &[],
            Body::Reduce(reduction) => &reduction.axes,
            Body::Sort(sort) => std::slice::from_ref(&sort.axis),
        }
    }

    /// Gives every axis a fresh variable: the uses of an operator share its axes.
    pub fn refresh_axes(&mut self) {
        let old: Vec<Axis> = self.axes.iter().chain(self.reduce_axes()).cloned().collect();
        let fresh: Vec<Var> = old.iter().map(|axis| Var::index(axis.var.name())).collect();
        let rename = |expr: &Expr| {
            substitute(expr, &mut |var| {
                let at = old.iter().position(|axis| axis.var == *var)?;
                Some(Expr::var(&fresh[at]))
            })
        };
        self.body.map_exprs(&mut |expr| rename(expr));
        let mut fresh = fresh.iter().cloned();
        for axis in self.axes.iter_mut().chain(self.body.axes_mut()) {
            axis.var = fresh.next().expect("one per axis");
        }
        // The loads have new ids.
        self.load_spans.clear();
    }
}

impl Body {
    /// Returns the reduction axes, outermost first, or the sorted axis.
    pub fn axes_mut(&mut self) -> &mut [Axis] {
        match self {
            Body::Map(_) => &mut [],
            Body::Reduce(reduction) => &mut reduction.axes,
            Body::Sort(sort) => std::slice::from_mut(&mut sort.axis),
        }
    }

    /// Replaces every expression over the stage's axes.
    pub fn map_exprs(&mut self, f: &mut dyn FnMut(&Expr) -> Expr) {
        match self {
            Body::Map(values) => values.iter_mut().for_each(|value| *value = f(value)),
            Body::Reduce(reduction) => {
                let exprs = reduction.identity.iter_mut().chain(&mut reduction.terms);
                exprs.chain(&mut reduction.condition).for_each(|expr| *expr = f(expr));
                for axis in &mut reduction.axes {
                    (axis.min, axis.extent) = (f(&axis.min), f(&axis.extent));
                }
            }
            Body::Sort(sort) => {
                for expr in sort.values.iter_mut().chain([&mut sort.key, &mut sort.at]) {
                    *expr = f(expr);
                }
                let axis = &mut sort.axis;
                (axis.min, axis.extent) = (f(&axis.min), f(&axis.extent));
            }
        }
    }

    /// Calls `f` on every expression over the stage's axes.
    pub fn for_each_expr(&self, f: &mut dyn FnMut(&Expr)) {
        match self {
            Body::Map(values) => values.iter().for_each(f),
            Body::Reduce(reduction) => {
                reduction.identity.iter().chain(&reduction.terms).for_each(&mut *f);
                reduction.condition.iter().for_each(f);
            }
            Body::Sort(sort) => {
                sort.values.iter().chain([&sort.key, &sort.at]).for_each(f);
            }
        }
    }
}

/// `min .. min + extent`.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The loop variable, of type `index`.
    pub var: Var,
    /// The first value; 0 for data axes.
    pub min: Expr,
    /// The number of values, over run-time integers.
    pub extent: Expr,
}

/// The value of one element.
#[derive(Clone, Debug)]
pub enum Body {
    /// A value for each buffer, in the compute type of its element type. Only copies of tuples have
    /// several.
    Map(Vec<Expr>),
    /// A reduction.
    Reduce(Reduction),
    /// An element of an axis in order.
    Sort(Sort),
}

/// The values at one rank of an axis in order: with `order` the values of `axis` by `key`, each of
/// `values` at `order[at]`.
///
/// Keys are compared as numbers: -0 equals 0, and a NaN is greater than all numbers and equals
/// every NaN. Of equal keys, the lesser value of the axis stands first, whether the order is
/// ascending or descending.
#[derive(Clone, Debug)]
pub struct Sort {
    /// The axis whose values are sorted.
    pub axis: Axis,
    /// What they are compared by, over the data axes and `axis`, in the compute type.
    pub key: Expr,
    /// The value of each buffer, over the data axes and `axis`, in the compute type.
    pub values: Vec<Expr>,
    /// The rank, over the data axes; from 0 and below the extent of `axis`.
    pub at: Expr,
    /// Whether the greatest key stands first.
    pub descending: bool,
}

/// A reduction over `axes` in lexicographic order, ascending: `acc = identity; acc = combine(acc,
/// terms)` for each point where `condition` holds.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// The reduction axes, outermost first.
    pub axes: Vec<Axis>,
    /// The function that combines two values.
    pub combiner: Combiner,
    /// The start value of each component (`init=` included), in the compute type.
    pub identity: Vec<Expr>,
    /// The next value of each component, in the compute type.
    pub terms: Vec<Expr>,
    /// `where=`.
    pub condition: Option<Expr>,
    /// Whether the source allows another order of the terms.
    pub reassociate: bool,
    /// Set by `contract_floats`: a `sum` whose term is a product `x*y` accumulates as
    /// `fma(x, y, acc)`.
    pub fused: bool,
}

impl Reduction {
    /// Returns the conditions whose conjunction is `where=`, in the order in which they are
    /// evaluated: each only if those before it hold.
    pub fn conditions(&self) -> Vec<Expr> {
        let mut conditions = Vec::new();
        let mut stack: Vec<Expr> = self.condition.iter().cloned().collect();
        while let Some(next) = stack.pop() {
            match &next.kind {
                ExprKind::Binary(BinOp::And, a, b) => stack.extend([b.clone(), a.clone()]),
                ExprKind::IfThenElse(a, b, otherwise) if otherwise.as_int() == Some(0) => {
                    stack.extend([b.clone(), a.clone()]);
                }
                _ => conditions.push(next),
            }
        }
        conditions
    }
}

/// The combining function of a reduction.
#[derive(Clone, Debug)]
pub struct Combiner {
    /// `sum`, `argmax`, or a reducer's name.
    pub name: String,
    /// The accumulated components.
    pub lhs: Vec<Var>,
    /// The next components.
    pub rhs: Vec<Var>,
    /// The combined components, over `lhs` and `rhs`.
    pub result: Vec<Expr>,
    /// The components of the identity, constants.
    pub identity: Vec<Expr>,
    /// The condition on every value that is combined, over `lhs`.
    pub domain: Option<Expr>,
    /// Whether the operands can be exchanged.
    pub commutative: bool,
    /// Whether any grouping of the terms gives the same bits, of floats too.
    pub exact: bool,
    /// A simpler form of `result` for loops that run through the terms in declared order; set by
    /// `rfactor` of an `argmax`, whose partial reductions need not compare positions.
    pub in_order: Option<Vec<Expr>>,
}

impl Combiner {
    /// Whether it is the `sum` of the language; no reducer may have that name (E0203).
    pub fn is_sum(&self) -> bool {
        self.name == "sum"
    }
}

//! The state of a schedule, which directives change: the stages with their loops.

use super::annotations::StageAnnotation;
use super::recurrence::attach_to_steps;
use super::versions::Version;
use crate::diag::{Diag, Result, Span};
use crate::ir::{Buffering, Expr, Scope, ThreadIndex, Var};
use crate::target::Target;
use crate::te::{self, Graph, Input};

/// A stage of a [`Schedule`]. It stays valid when stages are added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StageId(pub usize);

/// An axis of one stage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AxisId(pub usize);

/// A tensor that a directive names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tensor {
    /// A stage.
    Stage(StageId),
    /// An input, by its index in [`Graph::inputs`].
    Input(usize),
}

/// A kernel and how to compute it.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The kernel. Its `stages` are those of the source, unchanged by directives.
    pub graph: Graph,
    /// Every stage, indexed by [`StageId`]: those of the graph, then those that directives added.
    pub stages: Vec<Stage>,
    /// The order of computation: a stage stands after the stages that it reads.
    pub order: Vec<StageId>,
    /// The target.
    pub target: Target,
    /// Whether a directive changed the order of floating-point operations.
    pub reassociated: bool,
    /// The source text; `default` for the default schedule.
    pub text: String,
    /// The author.
    pub origin: Origin,
    /// Conditions on run-time integers that hold where this schedule is used.
    pub(super) assumed: Vec<Expr>,
    /// The schedules of calls in which conditions on run-time integers hold; this one is for the
    /// others.
    pub versions: Vec<Version<Schedule>>,
    /// Which legality checks run.
    pub(super) legality: Legality,
    /// The templates whose statements ran.
    pub(super) used: Vec<UsedTemplate>,
}

/// A `use` of a template.
#[derive(Clone, Debug)]
pub(super) struct UsedTemplate {
    /// The name of the template.
    pub name: String,
    /// The template.
    pub item: Span,
    /// The place of the `use`.
    pub at: Span,
}

impl UsedTemplate {
    /// Adds the place of the `use` to an error in the template.
    pub fn explain(&self, diag: Diag) -> Diag {
        let is_inside = |span: Span| {
            self.item.file == span.file
                && self.item.start <= span.start
                && span.end <= self.item.end
        };
        match diag.span.is_some_and(is_inside) {
            true => diag.related(self.at, format!("`{}` is used here", self.name)),
            false => diag,
        }
    }
}

/// Which legality checks of a schedule run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Legality {
    /// All of them.
    #[default]
    All,
    /// All but those that report this code. The results may then be wrong: for tests that show
    /// that a check is necessary.
    AllBut(&'static str),
}

/// The author of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// None: the default schedule, loops in declaration order.
    Default,
    /// The user, in a file or a record.
    User,
    /// The compiler.
    Auto,
}

/// A stage and its loops.
#[derive(Clone, Debug)]
pub struct Stage {
    /// What it computes. The body is over the variables of the declared axes, which no other stage
    /// has.
    pub te: te::Stage,
    /// Every axis, indexed by [`AxisId`]: the declared data axes, the declared reduction axes, then
    /// those that directives made. Split and fused axes stay.
    pub axes: Vec<Axis>,
    /// The loops, outermost first.
    pub leaves: Vec<AxisId>,
    /// The splits, fusions and skews, in order.
    pub relations: Vec<Relation>,
    /// Where it is computed.
    pub attach: Attach,
    /// The memory that it is stored in, if a directive or phase chose one.
    pub scope: Option<Scope>,
    /// The directive that added it, or its declaration.
    pub span: Span,
    /// The last directive that moved reduction axes, and whether one of them had `reassociate`.
    pub(super) reordered: Option<(Span, bool)>,
    /// The last `reorder`.
    pub(super) moved: Option<Span>,
    /// The stage that `cache_write` added to compute the elements that this one copies.
    pub(super) computed_by: Option<StageId>,
    /// Whether a directive changed it: `auto_inline_injective` skips such stages.
    pub(super) touched: bool,
    /// The annotations of directives for later phases and passes.
    pub(super) annotations: Vec<StageAnnotation>,
}

/// An axis of a stage: a declared one, or one that a directive made.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The name, unique among the loops of the stage.
    pub name: String,
    /// The loop variable, of type `index`.
    pub var: Var,
    /// Data or reduction.
    pub kind: AxisKind,
    /// The annotation of its loop, and the directive.
    pub annotation: Option<(Annotation, Span)>,
    /// The name and place of the directive that split or fused it.
    pub replaced: Option<(&'static str, Span)>,
}

/// What the values of an axis enumerate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AxisKind {
    /// Elements.
    Data,
    /// Reduction terms of one element.
    Reduce,
}

/// How the iterations of a loop run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Annotation {
    /// `unroll`.
    Unroll,
    /// `vectorize`.
    Vectorize,
    /// `parallel`.
    Parallel,
    /// `bind`.
    Thread(ThreadIndex),
}

impl Annotation {
    /// Returns the directive's name.
    pub fn name(self) -> &'static str {
        match self {
            Annotation::Unroll => "unroll",
            Annotation::Vectorize => "vectorize",
            Annotation::Parallel => "parallel",
            Annotation::Thread(_) => "bind",
        }
    }
}

/// How a directive made axes from others.
#[derive(Clone, Debug)]
pub enum Relation {
    /// `parent = outer * extent(inner) + inner`.
    Split {
        /// The axis that was split.
        parent: AxisId,
        /// The outer part.
        outer: AxisId,
        /// The inner part.
        inner: AxisId,
        /// The extent of one part.
        factor: Factor,
        /// How to run the tail if the factor does not divide; the compiler chooses if `None`.
        tail: Option<Tail>,
        /// The directive.
        span: Span,
    },
    /// `fused` enumerates `parts`; the last one varies fastest.
    Fuse {
        /// The axes that were fused, outermost first; at least two.
        parts: Vec<AxisId>,
        /// The new axis.
        fused: AxisId,
        /// The directive.
        span: Span,
    },
    /// `wave = factor*outer + inner`, and `position = outer`.
    Skew {
        /// The axis of which a wave has one iteration at most for each value.
        outer: AxisId,
        /// The axis that follows from the wave and the position in it.
        inner: AxisId,
        /// How many waves lie between two values of `outer`; at least 1.
        factor: i64,
        /// The new axis over the waves.
        wave: AxisId,
        /// The new axis inside a wave.
        position: AxisId,
        /// The directive.
        span: Span,
    },
}

impl Relation {
    /// Returns the axes that the directive replaced, outermost first.
    pub fn replaced(&self) -> Vec<AxisId> {
        match self {
            Relation::Split { parent, .. } => vec![*parent],
            Relation::Fuse { parts, .. } => parts.clone(),
            Relation::Skew { outer, inner, .. } => vec![*outer, *inner],
        }
    }

    /// Returns the directive.
    pub fn span(&self) -> Span {
        match self {
            Relation::Split { span, .. }
            | Relation::Fuse { span, .. }
            | Relation::Skew { span, .. } => *span,
        }
    }

    /// Returns the axes that it made, outermost first.
    pub fn made(&self) -> Vec<AxisId> {
        match self {
            Relation::Split { outer, inner, .. } => vec![*outer, *inner],
            Relation::Fuse { fused, .. } => vec![*fused],
            Relation::Skew { wave, position, .. } => vec![*wave, *position],
        }
    }
}

/// The extent that a split fixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Factor {
    /// `factor=`: the extent of the inner axis.
    Inner(i64),
    /// `nparts=`: the extent of the outer axis.
    Outer(i64),
}

/// How to run the tail of a split whose factor does not divide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// In a loop of its own, after the main loop.
    Peel,
    /// Under vector masks.
    Mask,
    /// Under a condition in the loop.
    Guard,
    /// As a whole step that overlaps the one before.
    Shift,
}

/// Where a stage is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attach {
    /// As a whole, before its readers.
    Root,
    /// In each iteration of a loop of another stage: the region that the iteration reads.
    At {
        /// The stage that has the loop.
        stage: StageId,
        /// The loop.
        axis: AxisId,
        /// The directive.
        span: Span,
    },
    /// In the expressions that read it.
    Inline {
        /// The directive.
        span: Span,
    },
}

impl Schedule {
    /// Returns the default schedule: every stage at the root, loops in declaration order. Stages of
    /// a recurrence that only the same step reads are attached to the loop over the steps.
    pub fn new(graph: Graph, target: &Target) -> Schedule {
        let mut schedule = Schedule {
            stages: Vec::new(),
            order: Vec::new(),
            target: target.clone(),
            reassociated: false,
            text: "default".to_string(),
            origin: Origin::Default,
            assumed: Vec::new(),
            used: Vec::new(),
            versions: Vec::new(),
            legality: Legality::All,
            graph,
        };
        for stage in schedule.graph.stages.clone() {
            let span = stage.span;
            let id = schedule.add_stage(stage, span);
            schedule.order.push(id);
        }
        attach_to_steps(&mut schedule);
        schedule
    }

    /// Adds a stage at the root, with fresh variables for its axes. The caller adds it to `order`.
    pub fn add_stage(&mut self, te: te::Stage, span: Span) -> StageId {
        self.stages.push(Stage::new(te, span));
        StageId(self.stages.len() - 1)
    }

    /// Returns the facts that the checked entries guarantee and the conditions of this version.
    pub fn known_facts(&self) -> Vec<Expr> {
        self.graph.known_facts().into_iter().chain(self.assumed.iter().cloned()).collect()
    }

    /// The result of a legality check; success if the policy leaves the check out.
    pub(super) fn checked(&self, result: Result<()>) -> Result<()> {
        match result {
            Err(diag) if self.legality == Legality::AllBut(diag.code) => Ok(()),
            other => other,
        }
    }

    /// Returns the `compute_at` of a stage that is attached to a loop.
    pub(super) fn attached_to(&self, consumer: StageId, axis: AxisId) -> Option<Span> {
        self.stages.iter().find_map(|stage| match stage.attach {
            Attach::At { stage, axis: at, span } if (stage, at) == (consumer, axis) => Some(span),
            _ => None,
        })
    }

    /// Returns a stage.
    pub fn stage(&self, id: StageId) -> &Stage {
        &self.stages[id.0]
    }

    /// Returns a stage, to change it.
    pub fn stage_mut(&mut self, id: StageId) -> &mut Stage {
        &mut self.stages[id.0]
    }

    /// Returns the stage or input with this name in the source or in dumps (`C`, `P.S`, `C.local`),
    /// or with this alias in the kernel. A tuple has the names of all its components.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        let aliases = &self.graph.aliases;
        let of = || aliases.iter().find(|(alias, _)| alias == name).map(|(_, of)| &of[..]);
        self.find_declared(name).or_else(|| self.find_declared(of()?))
    }

    fn find_declared(&self, name: &str) -> Option<Tensor> {
        let named = |stage: &Stage| {
            stage.te.name == name || stage.te.buffers.iter().any(|buffer| buffer.name == name)
        };
        if let Some(index) = self.stages.iter().position(named) {
            return Some(Tensor::Stage(StageId(index)));
        }
        let index = self.graph.inputs.iter().position(|input| match input {
            Input::Tensor { buffer, .. } => buffer.name == name,
            Input::Scalar { .. } => false,
        })?;
        Some(Tensor::Input(index))
    }
}

impl Axis {
    /// Returns an axis without an annotation, named after its variable.
    pub(super) fn new(var: Var, kind: AxisKind) -> Axis {
        Axis { name: var.name().to_string(), var, kind, annotation: None, replaced: None }
    }

    /// Returns how the iterations run, without the directive.
    pub(super) fn annotation_only(&self) -> Option<Annotation> {
        self.annotation.map(|(annotation, _)| annotation)
    }
}

impl Stage {
    /// How its buffer is filled: as a whole, or ahead of its readers.
    pub fn buffering(&self) -> Buffering {
        self.annotation().map_or(Buffering::Single, |(_, buffering)| *buffering)
    }

    fn new(mut te: te::Stage, span: Span) -> Stage {
        te.refresh_axes();
        let axis = |axis: &te::Axis, kind| Axis::new(axis.var.clone(), kind);
        let mut axes: Vec<Axis> = te.axes.iter().map(|a| axis(a, AxisKind::Data)).collect();
        axes.extend(te.reduce_axes().iter().map(|a| axis(a, AxisKind::Reduce)));
        let leaves = (0..axes.len()).map(AxisId).collect();
        Stage {
            te,
            axes,
            leaves,
            relations: Vec::new(),
            attach: Attach::Root,
            scope: None,
            span,
            reordered: None,
            moved: None,
            computed_by: None,
            touched: false,
            annotations: Vec::new(),
        }
    }

    /// Returns the loops over reduction terms, outermost first.
    pub(super) fn reduce_leaves(&self) -> Vec<AxisId> {
        let is_reduce = |leaf: &AxisId| self.axis(*leaf).kind == AxisKind::Reduce;
        self.leaves.iter().copied().filter(is_reduce).collect()
    }

    /// Returns the place of a loop among [`Stage::leaves`].
    pub(super) fn place_of(&self, axis: AxisId) -> usize {
        self.leaves.iter().position(|leaf| *leaf == axis).expect("the axis is a loop")
    }

    /// Returns an axis.
    pub fn axis(&self, id: AxisId) -> &Axis {
        &self.axes[id.0]
    }

    /// Returns an axis, to change it.
    pub fn axis_mut(&mut self, id: AxisId) -> &mut Axis {
        &mut self.axes[id.0]
    }

    /// Returns the loop with this name.
    pub fn find_axis(&self, name: &str) -> Option<AxisId> {
        self.leaves.iter().copied().find(|id| self.axis(*id).name == name)
    }

    /// Returns the newest axis with this name that a directive split or fused.
    pub fn find_replaced_axis(&self, name: &str) -> Option<&Axis> {
        self.axes.iter().rev().find(|axis| axis.name == name && axis.replaced.is_some())
    }

    /// Returns the names of the loops, outermost first.
    pub fn axis_names(&self) -> Vec<&str> {
        self.leaves.iter().map(|id| &self.axis(*id).name[..]).collect()
    }

    /// Returns the number of declared data axes, which are the first of `axes`.
    pub fn rank(&self) -> usize {
        self.te.axes.len()
    }

    /// Adds an axis that is not yet a loop. If a loop has the name, `_2`, `_3`, … follow it.
    pub fn add_axis(&mut self, name: &str, kind: AxisKind) -> AxisId {
        let name = self.free_name(name);
        self.axes.push(Axis::new(Var::index(name), kind));
        AxisId(self.axes.len() - 1)
    }

    /// Returns the name, numbered if a loop has it.
    fn free_name(&self, name: &str) -> String {
        let taken = |name: &str| self.find_axis(name).is_some();
        if !taken(name) {
            return name.to_string();
        }
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        numbered.into_iter().find(|name| !taken(name)).expect("there are more numbers than axes")
    }

    /// Gives a loop another name, for `let`.
    pub fn rename_axis(&mut self, id: AxisId, name: &str) {
        let axis = self.axis_mut(id);
        axis.name = name.to_string();
        axis.var = Var::index(name);
    }
}

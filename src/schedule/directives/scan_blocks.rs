//! Scans in blocks: `scan` along the inner part of a split.
//!
//! Before: `S[i] = sum(A[k], axis=k, where=k <= i)`, `i` split by 8 into `io`, `ii`.
//! After `let T, P = S.scan(ii)`:
//! `T[io] = sum(A[io*8 + ii], axis=ii)`, the terms of each block;
//! `P[io] = sum(T[b], axis=b, where=b < io)`, those of all blocks before, a scan itself;
//! `S[i] = (if ii > 0 then S[i - 1] else P[io]) + A[i]`.
//!
//! The blocks of `T` and of `S` are independent, so they may be parallel, vectorized or run side by
//! side. This is the reduce-then-scan form of Blelloch, "Prefix sums and their applications"
//! (CMU-CS-90-190): the terms are read twice and the elements written once. It groups the terms of
//! an element in another way, in the same order.

use super::linear_reductions::Scan;
use crate::diag::Span;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{mentions, reads_memory, substitute};
use crate::ir::{BinOp, Buffer, Expr, Scope, UnOp, Var};
use crate::schedule::bounds::{axis_extents, step_of};
use crate::schedule::derived_stage::{free_name, insert_stage, load, rename};
use crate::schedule::state::{AxisId, Factor, Relation, Schedule, Stage, StageId};
use crate::te::{self, Body, Recurrence, Reduction};

/// A declared axis of a stage that a `split` cuts into blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// The declared axis.
    pub(super) parent: AxisId,
    /// The loop over blocks.
    outer: AxisId,
    /// The loop over the elements of a block.
    inner: AxisId,
    /// The extent that the split fixes.
    factor: Factor,
}

impl Blocks {
    /// Returns the split of a declared data axis whose inner part an axis is.
    pub(super) fn with_inner(stage: &Stage, axis: AxisId) -> Option<Blocks> {
        stage.relations.iter().find_map(|relation| match relation {
            Relation::Split { parent, outer, inner, factor, .. }
                if *inner == axis && parent.0 < stage.rank() =>
            {
                Some(Blocks { parent: *parent, outer: *outer, inner: *inner, factor: *factor })
            }
            _ => None,
        })
    }

    /// Returns the loop inside of the blocks, if an axis is the loop over blocks of a data axis.
    pub(super) fn inside_of(stage: &Stage, axis: AxisId) -> Option<AxisId> {
        let mut inner = stage.relations.iter().filter_map(|relation| match relation {
            Relation::Split { outer, inner, .. } if *outer == axis => Some(*inner),
            _ => None,
        });
        inner.find(|inner| Blocks::with_inner(stage, *inner).is_some())
    }
}

/// Adds the stages of the terms of each block and of the blocks before, and makes each block of the
/// stage begin with the latter. Returns the two; the second is a prefix reduction along its first
/// axis.
pub(super) fn begin_with_blocks_before(
    schedule: &mut Schedule,
    id: StageId,
    scan: &Scan,
    blocks: &Blocks,
    span: Span,
) -> [StageId; 2] {
    let parts = Parts::new(schedule, id, scan, blocks);
    let mut terms = parts.terms();
    rename(schedule, &mut terms, "blocks", Scope::Global);
    let buffers = terms.buffers.clone();
    let terms = insert_stage(schedule, terms, id, span);
    let mut before = parts.before(&buffers);
    rename(schedule, &mut before, "starts", Scope::Global);
    let buffers = before.buffers.clone();
    let before = insert_stage(schedule, before, id, span);
    let start = parts.start();
    let Body::Reduce(reduction) = &mut schedule.stage_mut(id).te.body else {
        crate::bug!("a scan of a stage that is no reduction")
    };
    reduction.identity = buffers.iter().map(|buffer| load(buffer, start.clone())).collect();
    [terms, before]
}

/// What the stages of a scan in blocks are made of.
struct Parts {
    te: te::Stage,
    reduction: Reduction,
    scan: Scan,
    /// The position of the first element of a block, over the variable `block`.
    first: Expr,
    /// The number of a block, with the name of its loop.
    block: Var,
    /// The place of an element in its block, with the name of its loop.
    element: Var,
    /// The number of blocks.
    count: Expr,
    /// The number of elements of a block, those beyond the axis included.
    size: Expr,
    /// The distance between two blocks.
    step: Expr,
    facts: Facts,
}

impl Parts {
    fn new(schedule: &Schedule, id: StageId, scan: &Scan, blocks: &Blocks) -> Parts {
        let stage = schedule.stage(id);
        let te = stage.te.clone();
        let Body::Reduce(reduction) = te.body.clone() else {
            crate::bug!("a scan of a stage that is no reduction")
        };
        let mut facts = Facts::new();
        schedule.known_facts().iter().for_each(|cond| facts.assume(cond));
        let shape: Vec<Expr> = te.axes.iter().map(|axis| axis.extent.clone()).collect();
        let extents = axis_extents(stage, &shape, &facts);
        let (count, size) = (extents[blocks.outer.0].clone(), extents[blocks.inner.0].clone());
        let step = step_of(blocks.factor, &size);
        let others = te.axes.iter().chain(&reduction.axes).map(|axis| axis.var.name());
        let others: Vec<&str> = others.collect();
        let block = free_name(&stage.axis(blocks.outer).name, &others);
        let element = free_name(&stage.axis(blocks.inner).name, &[&others[..], &[&block]].concat());
        let (block, element) = (Var::index(block), Var::index(element));
        facts.bind(&block, &Expr::index(0), &count);
        facts.bind(&element, &Expr::index(0), &size);
        for axis in te.axes.iter().chain(&reduction.axes) {
            facts.bind(&axis.var, &axis.min, &axis.extent);
        }
        let first = Expr::mul(Expr::var(&block), step.clone());
        let scan = scan.clone();
        Parts { te, reduction, scan, first, block, element, count, size, step, facts }
    }

    /// Returns an element along the axis by its position in the order of the scan.
    fn element_at(&self, position: Expr) -> Expr {
        let axis = &self.te.axes[self.scan.axis];
        let exchanged = match self.scan.reverse {
            true => Expr::sub(Expr::sub(axis.extent.clone(), Expr::index(1)), position),
            false => position,
        };
        Expr::add(axis.min.clone(), exchanged)
    }

    /// Returns a stage with a value for each block, its first axis, and each element of the other
    /// axes.
    fn stage(&self, block: &Var, reduction: Reduction) -> te::Stage {
        let (min, extent) = (Expr::index(0), self.count.clone());
        let mut axes = vec![te::Axis { var: block.clone(), min, extent }];
        let others = self.te.axes.iter().enumerate().filter(|(at, _)| *at != self.scan.axis);
        axes.extend(others.map(|(_, axis)| axis.clone()));
        te::Stage {
            name: self.te.name.clone(),
            buffers: self.te.buffers.clone(),
            axes,
            body: Body::Reduce(reduction),
            output: false,
            recurrence: self.te.recurrence.as_ref().map(Recurrence::of_added_stage),
            update: None,
            span: self.te.span,
            load_spans: Vec::new(),
        }
    }

    /// Returns the indices of the elements of the added stages for a block.
    fn indices(&self, block: Expr) -> Vec<Expr> {
        let others = self.te.axes.iter().enumerate().filter(|(at, _)| *at != self.scan.axis);
        let others = others.map(|(_, axis)| Expr::var(&axis.var));
        std::iter::once(block).chain(others).collect()
    }

    /// Returns the stage that combines the terms of each block.
    fn terms(&self) -> te::Stage {
        let Parts { reduction, scan, facts, .. } = self;
        let position = Expr::add(self.first.clone(), Expr::var(&self.element));
        let along = &self.te.axes[scan.axis];
        let element = self.element_at(position.clone());
        let value = substitute(&scan.value, &mut |v| (*v == along.var).then(|| element.clone()));
        let value = simplify_expr(&value, facts);
        let term = &reduction.axes[scan.term];
        let over =
            |expr: &Expr| substitute(expr, &mut |var| (*var == term.var).then(|| value.clone()));
        let last = Expr::add(term.min.clone(), term.extent.clone());
        let bounds = [
            Expr::lt(position, along.extent.clone()),
            Expr::le(term.min.clone(), value.clone()),
            Expr::lt(value.clone(), last),
        ];
        let bounds = bounds.into_iter().filter(|bound| !facts.prove(bound));
        let bounds = bounds.map(|bound| Expr::unary(UnOp::Likely, bound));
        let conditions = reduction.conditions();
        let others = conditions.iter().filter(|cond| !mentions(cond, &along.var)).map(over);
        // A condition may read elements only where those before it hold.
        let condition = bounds.chain(others).reduce(|known, cond| match reads_memory(&cond) {
            true => Expr::if_then_else(known, cond, Expr::bool(false)),
            false => Expr::and(known, cond),
        });
        let terms: Vec<Expr> = reduction.terms.iter().map(over).collect();
        let neutral = reduction.combiner.identity.iter().zip(&terms);
        let neutral = neutral.map(|(value, term)| Expr::cast(term.ty.dtype, value.clone()));
        let mut axes = reduction.axes.clone();
        let (min, extent) = (Expr::index(0), self.size.clone());
        axes[scan.term] = te::Axis { var: self.element.clone(), min, extent };
        let identity = neutral.collect();
        let whole = Reduction { axes, identity, terms, condition, ..reduction.clone() };
        self.stage(&self.block, whole)
    }

    /// Returns the stage that combines the start value with the terms of all blocks before each.
    fn before(&self, blocks: &[Buffer]) -> te::Stage {
        let others = self.te.axes.iter().map(|axis| axis.var.name());
        let others: Vec<&str> = others.chain([self.block.name()]).collect();
        let (here, earlier) =
            (Var::index(self.block.name()), Var::index(free_name(self.block.name(), &others)));
        let indices = self.indices(Expr::var(&earlier));
        let condition = Expr::lt(Expr::var(&earlier), Expr::var(&here));
        let axis = te::Axis { var: earlier, min: Expr::index(0), extent: self.count.clone() };
        let sums = Reduction {
            axes: vec![axis],
            terms: blocks.iter().map(|buffer| load(buffer, indices.clone())).collect(),
            condition: Some(condition),
            fused: false,
            ..self.reduction.clone()
        };
        self.stage(&here, sums)
    }

    /// Returns the indices of what an element begins with, if it is the first one of a block.
    fn start(&self) -> Vec<Expr> {
        let along = &self.te.axes[self.scan.axis];
        let distance = Expr::sub(Expr::var(&along.var), along.min.clone());
        let position = match self.scan.reverse {
            true => Expr::sub(Expr::sub(along.extent.clone(), Expr::index(1)), distance),
            false => distance,
        };
        let block = Expr::binary(BinOp::FloorDiv, position, self.step.clone());
        self.indices(simplify_expr(&block, &self.facts))
    }
}

//! The stages as the rules see them: axes, and the stride of each read along each axis.

use crate::diag::Span;
use crate::ir::arith;
use crate::ir::equal::equal;
use crate::ir::visit::{any_expr, for_each_child, mentions, rewrite_expr};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, UnOp, Var};
use crate::schedule::{
    Attach, PrefixScan, Schedule, Stage, StageId, in_same_recurrence, inline_stages,
    outlives_its_step, prefix_scan, reads_overwritten, scatter_axes, sort_of,
};
use crate::te::{Body, Graph, Input, Reduction, Sort, StepRead};
use rustc_hash::{FxHashMap, FxHashSet};

/// The assumed size of a run-time extent without an estimate.
pub(super) const UNKNOWN: i64 = 1024;

/// The simple operations of a sort for each value of its axis.
const SORT_STEPS: i64 = 16;

/// The most reads of one stage that are compared.
const MAX_PLACES: usize = 16;

/// A stage as the rules see it.
pub(super) struct StageView {
    pub(super) name: String,
    pub(super) data: Vec<AxisView>,
    pub(super) reduce: Vec<AxisView>,
    /// The distinct reads of inputs and stages.
    pub(super) loads: Vec<Access>,
    /// The buffers that its body reads before inlining.
    pub(super) direct: Vec<Buffer>,
    /// The simple operations of one point.
    pub(super) cost: i64,
    /// Bytes of the longest element that a point reads, computes or stores.
    pub(super) widest: u64,
    pub(super) dtype: DType,
    pub(super) output: bool,
    pub(super) reduction: Option<Reduction>,
    /// How it is computed as a scan, if it is a prefix reduction.
    pub(super) scan: Option<PrefixScan>,
    /// The data axes along which its terms are scattered, if it is no scan.
    pub(super) scatter: Vec<usize>,
    /// Of a sort: the data axes that its keys depend on. The sorted axis is not in `reduce`.
    pub(super) sorted_rows: Option<Vec<usize>>,
    pub(super) tuple: bool,
    pub(super) inlined: bool,
    /// The recurrence that it belongs to.
    pub(super) recurrence: Option<usize>,
    /// The number of leading data axes that are steps of the recurrence. The rules see one step:
    /// the extent of these axes is 1, and they have no loops.
    pub(super) steps: usize,
    /// The number of steps.
    pub(super) turns: i64,
    /// The reads of earlier steps in the recurrence.
    pub(super) step_reads: Vec<StepRead>,
    /// Whether it keeps all its steps, so that it is computed at the root.
    pub(super) kept: bool,
}

impl StageView {
    /// Returns the number of bounds of its reduction that each row loads: 1 for sums of rows of
    /// different lengths, 2 for rows of a sparse matrix.
    pub(super) fn ragged_bounds(&self) -> usize {
        let conditions = self.reduction.iter().flat_map(Reduction::conditions);
        let of = |axes: &[AxisView], expr: &Expr| axes.iter().any(|axis| mentions(expr, &axis.var));
        let of_rows = |load: &Expr| of(&self.data, load) && !of(&self.reduce, load);
        let is_bound = |cond: &Expr| {
            of(&self.reduce, cond)
                && any_expr(cond, &mut |e| matches!(e.kind, ExprKind::Load { .. }) && of_rows(e))
        };
        conditions.filter(is_bound).count()
    }
}

/// An axis as declared.
#[derive(Clone)]
pub(super) struct AxisView {
    pub(super) name: String,
    pub(super) var: Var,
    /// `None` for a run-time extent.
    pub(super) extent: Option<i64>,
    /// What is assumed for a run-time extent.
    pub(super) assumed: i64,
    /// The number of iterations after which divisions by constants repeat: 3 for `x // 3` and for
    /// `x * 2 % 3`, 1 without divisions.
    pub(super) period: i64,
}

/// The longest period of an axis that counts.
const MAX_PERIOD: i64 = 64;

impl AxisView {
    /// Returns the extent, or what is assumed for a run-time extent.
    pub(super) fn size(&self) -> i64 {
        self.extent.unwrap_or(self.assumed)
    }
}

/// A read.
pub(super) struct Access {
    pub(super) buffer: Buffer,
    pub(super) indices: Vec<Expr>,
    /// The stage that is read; none for an input, and for earlier steps of a recurrence.
    pub(super) producer: Option<usize>,
    /// Whether every step of a recurrence reads the same tensor, or callers pack it ahead: a copy
    /// in another layout is made once.
    pub(super) packed_once: bool,
    /// Whether it reads an earlier step of a recurrence, or an argument before its `update`, which
    /// cannot be copied.
    pub(super) earlier: bool,
}

/// The distance in memory between the elements that two neighbouring iterations read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stride {
    /// The same element.
    Zero,
    /// This number of elements.
    By(i64),
    /// Unknown, or not constant.
    Far,
}

impl Access {
    /// Returns the stride along an axis.
    pub(super) fn stride(&self, var: &Var) -> Stride {
        let mut total = 0i64;
        let mut row = Some(1i64);
        for (index, extent) in self.indices.iter().zip(&self.buffer.shape).rev() {
            let step = coefficient(index, var, &mut FxHashMap::default());
            total = match (step, row) {
                (Some(0), _) => total,
                (Some(step), Some(row)) => match step.checked_mul(row) {
                    Some(step) => total.saturating_add(step),
                    None => return Stride::Far,
                },
                _ => return Stride::Far,
            };
            let extent = extent.as_int().and_then(|extent| i64::try_from(extent).ok());
            row = row.and_then(|row| row.checked_mul(extent?));
        }
        if total == 0 { Stride::Zero } else { Stride::By(total) }
    }

    /// Returns the stride along an axis where no index is clamped: `cut_borders` separates the
    /// iterations that clamp one.
    pub(super) fn stride_inside(&self, var: &Var) -> Stride {
        match self.stride(var) {
            Stride::Far => {
                let indices = self.indices.iter().map(|index| without_clamps(index, var)).collect();
                Access { indices, buffer: self.buffer.clone(), ..*self }.stride(var)
            }
            stride => stride,
        }
    }

    /// Whether any index mentions the variable.
    pub(super) fn mentions(&self, var: &Var) -> bool {
        self.stride(var) != Stride::Zero
    }
}

/// Replaces `min` and `max` of an expression and a bound that does not depend on `var` by the
/// expression.
pub(super) fn without_clamps(expr: &Expr, var: &Var) -> Expr {
    rewrite_expr(expr, &mut |node| {
        if let ExprKind::Binary(BinOp::Min | BinOp::Max, a, b) = &node.kind {
            let fixed = |e: &Expr| coefficient(e, var, &mut FxHashMap::default()) == Some(0);
            match (fixed(a), fixed(b)) {
                (false, true) => return a.clone(),
                (true, false) => return b.clone(),
                _ => {}
            }
        }
        node
    })
}

/// Returns the coefficient of a variable in an index; `None` if the index is not affine in it.
pub(super) fn coefficient(
    expr: &Expr,
    var: &Var,
    known: &mut FxHashMap<usize, Option<i64>>,
) -> Option<i64> {
    if let Some(found) = known.get(&expr.id()) {
        return *found;
    }
    let found = match &expr.kind {
        ExprKind::Const(_) => Some(0),
        ExprKind::Var(other) => Some(i64::from(other == var)),
        ExprKind::Unary(UnOp::Neg, a) => coefficient(a, var, known)?.checked_neg(),
        ExprKind::Binary(BinOp::Add, a, b) => {
            coefficient(a, var, known)?.checked_add(coefficient(b, var, known)?)
        }
        ExprKind::Binary(BinOp::Sub, a, b) => {
            coefficient(a, var, known)?.checked_sub(coefficient(b, var, known)?)
        }
        ExprKind::Binary(BinOp::Mul, a, b) => {
            let (left, right) = (coefficient(a, var, known), coefficient(b, var, known));
            let literal = |e: &Expr| e.as_int().and_then(|value| i64::try_from(value).ok());
            match (left, right, literal(a), literal(b)) {
                (Some(0), Some(0), ..) => Some(0),
                (Some(step), _, _, Some(by)) | (_, Some(step), Some(by), _) => step.checked_mul(by),
                _ => None,
            }
        }
        _ => {
            let mut fixed = true;
            for_each_child(expr, &mut |child| fixed &= coefficient(child, var, known) == Some(0));
            fixed.then_some(0)
        }
    };
    known.insert(expr.id(), found);
    found
}

/// The views of all stages, in order of computation; those marked are inlined into the others.
pub(super) fn views(schedule: &Schedule, inlined: &[bool]) -> Vec<StageView> {
    let mut flat = schedule.clone();
    for (at, stage) in flat.stages.iter_mut().enumerate() {
        if inlined[at] {
            stage.attach = Attach::Inline { span: Span::default() };
        }
    }
    let mut inlined = inlined.to_vec();
    if inline_stages(&mut flat).is_err() {
        // The expression would be too large: nothing is inlined.
        flat = schedule.clone();
        inlined.fill(false);
    }
    let mut producers: FxHashMap<Buffer, usize> = FxHashMap::default();
    for (at, stage) in flat.stages.iter().enumerate() {
        producers.extend(stage.te.buffers.iter().map(|buffer| (buffer.clone(), at)));
    }
    let earlier: FxHashSet<&Buffer> = schedule
        .stages
        .iter()
        .flat_map(|stage| stage.te.recurrence.iter().flat_map(|of| &of.previous))
        .collect();
    let free: FxHashSet<&Buffer> = schedule
        .graph
        .inputs
        .iter()
        .filter_map(|input| match input {
            Input::Tensor { buffer, layout_free: true, .. } => Some(buffer),
            _ => None,
        })
        .collect();
    let view = |(at, stage): (usize, &Stage)| {
        let axis = |axis: &crate::te::Axis| AxisView {
            name: axis.var.name().to_string(),
            var: axis.var.clone(),
            extent: axis.extent.as_int().and_then(|extent| i64::try_from(extent).ok()),
            assumed: typical_size(&schedule.graph, &axis.extent),
            period: period(&stage.te.body, &axis.var),
        };
        let mut seen = Seen { ids: FxHashSet::default(), loads: Vec::new(), cost: 0, widest: 1 };
        stage.te.body.for_each_expr(&mut |expr| seen.visit(expr));
        let load = |expr: &Expr| match &expr.kind {
            ExprKind::Load { buffer, indices, .. } => {
                let producer = producers.get(buffer).copied();
                let inside =
                    producer.is_some_and(|of| in_same_recurrence(&flat.stages[of].te, &stage.te));
                let overwritten = schedule.graph.update_of(buffer).is_some();
                let earlier = overwritten || earlier.contains(buffer);
                let repeated = stage.te.recurrence.is_some() && !inside && !earlier;
                let packed_once = repeated || free.contains(buffer);
                let (buffer, indices) = (buffer.clone(), indices.clone());
                Some(Access { buffer, indices, producer, packed_once, earlier })
            }
            _ => None,
        };
        let scan = match schedule.target.is_gpu() {
            true => None,
            false => prefix_scan(schedule, StageId(at)),
        };
        let term = scan.as_ref().map(|scan| scan.term);
        let sorted_rows = sort_of(stage).map(|sort| {
            let of_keys = |at: &usize| mentions(&sort.key, &stage.te.axes[*at].var);
            (0..stage.te.axes.len()).filter(of_keys).collect()
        });
        let terms = match sorted_rows {
            Some(_) => &[],
            None => stage.te.reduce_axes(),
        };
        let terms = terms.iter().enumerate();
        let terms = terms.filter(|(at, _)| Some(*at) != term).map(|(_, axis)| axis);
        let recurrence = stage.te.recurrence.as_ref();
        let steps = recurrence.map_or(0, |recurrence| recurrence.steps);
        let mut data: Vec<AxisView> = stage.te.axes.iter().map(axis).collect();
        let turns = data[..steps].iter().fold(1i64, |n, axis| n.saturating_mul(axis.size()));
        data[..steps].iter_mut().for_each(|axis| axis.extent = Some(1));
        StageView {
            name: stage.te.name.clone(),
            recurrence: recurrence.map(|recurrence| recurrence.id),
            steps,
            turns,
            step_reads: recurrence.map_or(Vec::new(), |recurrence| {
                let all = schedule.graph.stages.iter().filter_map(|te| te.recurrence.as_ref());
                let all = all.filter(|other| other.id == recurrence.id);
                all.flat_map(|other| other.reads.iter().cloned()).collect()
            }),
            kept: outlives_its_step(schedule, StageId(at))
                || reads_overwritten(schedule, StageId(at)),
            data,
            reduce: terms.map(axis).collect(),
            scatter: match (&scan, schedule.target.is_gpu()) {
                (None, false) => scatter_axes(schedule, StageId(at)),
                _ => Vec::new(),
            },
            scan,
            loads: seen.loads.iter().filter_map(load).collect(),
            direct: direct(&schedule.stages[at]),
            widest: seen.widest.max(stage.te.buffers[0].dtype.bytes()),
            cost: seen.cost.max(1).saturating_add(sort_of(stage).map_or(0, sort_cost)),
            dtype: stage.te.buffers[0].dtype,
            output: stage.te.output,
            reduction: match &stage.te.body {
                Body::Reduce(reduction) => Some(reduction.clone()),
                Body::Map(_) | Body::Sort(_) => None,
            },
            sorted_rows,
            tuple: stage.te.buffers.len() > 1,
            inlined: inlined[at],
        }
    };
    flat.stages.iter().enumerate().map(view).collect()
}

/// Returns what is assumed for an extent: the largest one in typical calls as a power of two, so
/// that no tile is made to divide just these.
fn typical_size(graph: &Graph, extent: &Expr) -> i64 {
    graph.typical_extent(extent).map_or(UNKNOWN, |size| 1 << size.max(1).ilog2())
}

/// Returns the number of iterations of a loop after which the divisions of a stage repeat.
fn period(body: &Body, var: &Var) -> i64 {
    let mut all = 1;
    let mut seen = FxHashSet::default();
    body.for_each_expr(&mut |expr| all = lcm(all, period_of(expr, var, &mut seen)));
    if all <= MAX_PERIOD { all } else { 1 }
}

fn period_of(expr: &Expr, var: &Var, seen: &mut FxHashSet<usize>) -> i64 {
    if !seen.insert(expr.id()) {
        return 1;
    }
    let mut period = 1;
    for_each_child(expr, &mut |child| period = lcm(period, period_of(child, var, seen)));
    if let ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, a, by) = &expr.kind
        && let Some(by) = by.as_int().and_then(|by| i64::try_from(by).ok()).filter(|by| *by > 1)
        && expr.ty.dtype == DType::Index
    {
        let other = |e: &Expr| e.as_var().is_some_and(|other| other != var);
        match coefficient(a, var, &mut FxHashMap::default()) {
            Some(0) => {}
            // The remainder differs from row to row, or from term to term.
            _ if any_expr(a, &mut |e| other(e)) => {}
            Some(step) => period = lcm(period, by / gcd(step, by)),
            // The quotient of a quotient.
            None => period = period.saturating_mul(by),
        }
    }
    period
}

/// Returns the least common multiple of two positive numbers; a large number if it has no `i64`.
pub(super) fn lcm(a: i64, b: i64) -> i64 {
    (a / gcd(a, b)).saturating_mul(b)
}

/// Returns the greatest common divisor of two numbers, of which one is positive.
fn gcd(a: i64, b: i64) -> i64 {
    arith::gcd(a.into(), b.into()) as i64
}

/// Returns the simple operations of a sort for each value of its axis.
fn sort_cost(sort: &Sort) -> i64 {
    let extent = sort.axis.extent.as_int().and_then(|extent| i64::try_from(extent).ok());
    SORT_STEPS.saturating_mul(extent.unwrap_or(UNKNOWN))
}

/// Returns the buffers that a stage reads before inlining.
fn direct(stage: &Stage) -> Vec<Buffer> {
    let mut seen = Seen { ids: FxHashSet::default(), loads: Vec::new(), cost: 0, widest: 1 };
    stage.te.body.for_each_expr(&mut |expr| seen.visit(expr));
    let buffer = |expr: &Expr| match &expr.kind {
        ExprKind::Load { buffer, .. } => Some(buffer.clone()),
        _ => None,
    };
    seen.loads.iter().filter_map(buffer).collect()
}

impl StageView {
    /// Returns the number of reads of another stage. Reads of the same element count once, unless
    /// computing it is `costly`.
    pub(super) fn sites(&self, stage: usize, costly: bool) -> i64 {
        let mut places: Vec<&Access> = Vec::new();
        for load in self.loads.iter().filter(|load| load.producer == Some(stage)) {
            let same =
                |other: &&Access| load.indices.iter().zip(&other.indices).all(|(a, b)| equal(a, b));
            if costly || places.len() >= MAX_PLACES || !places.iter().any(same) {
                places.push(load);
            }
        }
        places.len() as i64
    }

    /// Whether it reads another stage.
    pub(super) fn reads(&self, stage: usize) -> bool {
        self.loads.iter().any(|load| load.producer == Some(stage))
    }

    /// Returns the points of the data axes.
    pub(super) fn elements(&self) -> i64 {
        self.data.iter().fold(1, |n, axis| n.saturating_mul(axis.size()))
    }

    /// Returns the number of points at which an element is computed or updated.
    pub(super) fn points(&self) -> i64 {
        let is_loop = |at: &usize| !self.scatter.contains(at);
        let data = (0..self.data.len()).filter(is_loop).map(|at| &self.data[at]);
        data.chain(&self.reduce).fold(1, |n, axis| n.saturating_mul(axis.size()))
    }
}

struct Seen {
    ids: FxHashSet<usize>,
    loads: Vec<Expr>,
    cost: i64,
    widest: u64,
}

impl Seen {
    fn visit(&mut self, expr: &Expr) {
        if !self.ids.insert(expr.id()) {
            return;
        }
        self.cost = self.cost.saturating_add(cost_of(expr));
        if !matches!(expr.ty.dtype, DType::Index | DType::Bool) {
            self.widest = self.widest.max(expr.ty.dtype.bytes());
        }
        if matches!(expr.kind, ExprKind::Load { .. }) {
            self.loads.push(expr.clone());
            return;
        }
        for_each_child(expr, &mut |child| self.visit(child));
    }
}

/// Returns the cost of a node in simple operations.
pub(super) fn cost_of(expr: &Expr) -> i64 {
    match &expr.kind {
        ExprKind::Call(function, _) => match function {
            crate::ir::Intrinsic::Fma => 1,
            crate::ir::Intrinsic::Tf32 => 4,
            _ => 16,
        },
        ExprKind::Unary(UnOp::Sqrt, _) | ExprKind::Binary(BinOp::Div, ..) => 8,
        ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, ..) => 4,
        ExprKind::Const(_) | ExprKind::Var(_) => 0,
        _ => 1,
    }
}

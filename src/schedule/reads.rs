//! The reads of each stage's elements by other stages, with the conditions under which they happen.
//!
//! Before: `C[i] = if i > 0 then S[i - 1] else S[0]`.
//! After: `C` reads `S[i - 1]` where `i > 0` holds, and `S[0]` where it does not.

use super::state::{Schedule, StageId};
use crate::ir::arith::{Facts, flatten_logic};
use crate::ir::visit::{any_expr, for_each_child, rewrite_expr};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, UnOp};
use crate::te::Body;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// A condition, and whether it holds or not.
pub(super) type Condition = (Expr, bool);

/// The number of reads of a stage whose conditions are examined.
pub(super) const MAX_CONDITIONAL_READS: usize = 64;

/// A read of an element of a stage.
#[derive(Clone, Debug)]
pub(super) struct Read {
    /// The stage that reads.
    pub(super) by: StageId,
    /// The indices, over the axes of the reader as declared.
    pub(super) indices: Vec<Expr>,
    /// The conditions under which it happens, over the same axes. Conditions that do not compare
    /// indices are left out.
    pub(super) conditions: Rc<[Condition]>,
    /// Whether the read happens in front of the outermost reduction loop: the start value of a
    /// reduction, or a sort.
    pub(super) initial: bool,
}

/// All reads of a schedule, by the stage that is read.
#[derive(Default)]
pub(super) struct Reads(FxHashMap<StageId, Vec<Read>>);

impl Reads {
    /// Collects the reads of all stages in the order.
    pub(super) fn of(schedule: &Schedule) -> Reads {
        let mut producers: FxHashMap<&Buffer, StageId> = FxHashMap::default();
        for id in &schedule.order {
            producers.extend(schedule.stage(*id).te.buffers.iter().map(|buffer| (buffer, *id)));
        }
        let mut reads: FxHashMap<StageId, Vec<Read>> = FxHashMap::default();
        for by in schedule.order.iter().copied() {
            for_each_read(&schedule.stage(by).te.body, &mut |buffer, indices, known, initial| {
                let Some(of) = producers.get(buffer) else { return };
                for (indices, conditions) in by_choice(indices.to_vec(), known.to_vec()) {
                    let conditions = conditions.into();
                    reads.entry(*of).or_default().push(Read { by, indices, conditions, initial });
                }
            });
        }
        Reads(reads)
    }

    /// Returns the reads of a stage.
    pub(super) fn of_stage(&self, id: StageId) -> &[Read] {
        self.0.get(&id).map_or(&[], |reads| reads)
    }
}

/// A function of the buffer and the indices of a load, of the conditions around it, and of whether
/// it happens in front of the outermost reduction loop.
pub(super) type ReadVisitor<'a> = dyn FnMut(&Buffer, &[Expr], &[Condition], bool) + 'a;

/// Calls `f` with each load of the body of a stage, from inputs and from stages. Conditions that do
/// not compare indices are left out.
pub(super) fn for_each_read(body: &Body, f: &mut ReadVisitor) {
    let mut find = |expr: &Expr, condition: Option<&Expr>, initial: bool| {
        let mut found = |buffer: &Buffer, indices: &[Expr], known: &[Condition]| -> () {
            f(buffer, indices, known, initial)
        };
        let mut walk = Walk { conditions: Vec::new(), found: &mut found };
        match condition {
            Some(condition) => walk.within(condition, true, |walk| walk.expr(expr)),
            None => walk.expr(expr),
        }
    };
    match body {
        Body::Map(values) => values.iter().for_each(|value| find(value, None, false)),
        Body::Reduce(reduction) => {
            let condition = reduction.condition.as_ref();
            reduction.identity.iter().for_each(|expr| find(expr, None, true));
            reduction.terms.iter().for_each(|expr| find(expr, condition, false));
            condition.into_iter().for_each(|expr| find(expr, None, false));
        }
        // Every value of the axis is read before the first element is stored.
        Body::Sort(_) => body.for_each_expr(&mut |expr| find(expr, None, true)),
    }
}

/// The largest number of conditions around a read; more are ignored, to keep proofs about it short.
const MAX_CONDITIONS: usize = 16;

/// A function of the buffer and the indices of a load, and of the conditions around it.
type Found<'a> = dyn FnMut(&Buffer, &[Expr], &[Condition]) + 'a;

/// The walk over an expression: visits every load with the conditions under which it is evaluated.
struct Walk<'a> {
    conditions: Vec<Condition>,
    found: &'a mut Found<'a>,
}

impl Walk<'_> {
    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::IfThenElse(c, t, f) => {
                self.expr(c);
                self.within(c, true, |walk| walk.expr(t));
                self.within(c, false, |walk| walk.expr(f));
            }
            // The right operand is evaluated only if the left one does not decide.
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), ..) => {
                let depth = self.conditions.len();
                for part in flatten_logic(*op, expr) {
                    self.expr(&part);
                    self.learn(&part, *op == BinOp::And);
                }
                self.conditions.truncate(depth);
            }
            ExprKind::Load { buffer, indices, .. } => {
                (self.found)(buffer, indices, &self.conditions);
                for_each_child(expr, &mut |child| self.expr(child));
            }
            _ => for_each_child(expr, &mut |child| self.expr(child)),
        }
    }

    fn within(&mut self, condition: &Expr, truth: bool, inside: impl FnOnce(&mut Self)) {
        let depth = self.conditions.len();
        self.learn(condition, truth);
        inside(self);
        self.conditions.truncate(depth);
    }

    fn learn(&mut self, condition: &Expr, truth: bool) {
        if self.conditions.len() < MAX_CONDITIONS && compares_indices(condition) {
            self.conditions.push((condition.clone(), truth));
        }
    }
}

fn compares_indices(condition: &Expr) -> bool {
    any_expr(condition, &mut |e| match &e.kind {
        ExprKind::Binary(op, a, _) => op.is_comparison() && a.ty == DType::Index.into(),
        _ => false,
    })
}

/// The largest number of choices in an index that are examined separately.
const MAX_CHOICES: u32 = 3;

/// Returns the read with each operand of the choices in its indices instead of the choice:
/// `S[if c then x else y]` reads `S[x]` where `c` holds, and `S[y]` where it does not.
fn by_choice(indices: Vec<Expr>, conditions: Vec<Condition>) -> Vec<(Vec<Expr>, Vec<Condition>)> {
    let mut reads = vec![(indices, conditions)];
    for _ in 0..MAX_CHOICES {
        let mut split = Vec::new();
        for (indices, conditions) in reads {
            let Some(choice) = indices.iter().find_map(first_choice) else {
                split.push((indices, conditions));
                continue;
            };
            let (ExprKind::Select(c, t, f) | ExprKind::IfThenElse(c, t, f)) = &choice.kind else {
                crate::bug!("a choice is a `select` or an `if`")
            };
            for (truth, operand) in [(true, t), (false, f)] {
                let mut replace = |e: Expr| if e.same(&choice) { operand.clone() } else { e };
                let indices = indices.iter().map(|index| rewrite_expr(index, &mut replace));
                let mut conditions = conditions.clone();
                if conditions.len() < MAX_CONDITIONS && compares_indices(c) {
                    conditions.push((c.clone(), truth));
                }
                split.push((indices.collect(), conditions));
            }
        }
        reads = split;
    }
    reads
}

/// Returns the first choice between indices, outside of loads.
fn first_choice(index: &Expr) -> Option<Expr> {
    match &index.kind {
        _ if index.ty != DType::Index.into() => None,
        ExprKind::Select(..) | ExprKind::IfThenElse(..) => Some(index.clone()),
        ExprKind::Load { .. } => None,
        _ => {
            let mut first = None;
            for_each_child(index, &mut |child| {
                if first.is_none() {
                    first = first_choice(child);
                }
            });
            first
        }
    }
}

/// The expressions of type `index` that are at least 0 if the condition is `truth`.
pub(super) fn differences(condition: &Expr, truth: bool, facts: &Facts, known: &mut Vec<Expr>) {
    match &condition.kind {
        ExprKind::Unary(UnOp::Likely, a) => differences(a, truth, facts, known),
        ExprKind::Unary(UnOp::Not, a) => differences(a, !truth, facts, known),
        // `if c then a else false` is `c and a`, evaluated in this order.
        ExprKind::IfThenElse(c, yes, no) => {
            let never = |side: &Expr| side.as_int() == Some(i128::from(!truth));
            if never(no) {
                differences(c, true, facts, known);
                differences(yes, truth, facts, known);
            } else if never(yes) {
                differences(c, false, facts, known);
                differences(no, truth, facts, known);
            }
        }
        ExprKind::Binary(op @ (BinOp::And | BinOp::Or), ..) => {
            let mut parts = flatten_logic(*op, condition);
            // Of several alternatives, only one may be possible.
            if truth != (*op == BinOp::And) {
                let impossible = |part: &Expr| match truth {
                    true => facts.disprove(part),
                    false => facts.prove(part),
                };
                parts.retain(|part| !impossible(part));
                if parts.len() > 1 {
                    return;
                }
            }
            parts.iter().for_each(|part| differences(part, truth, facts, known));
        }
        ExprKind::Binary(op, a, b) if a.ty == DType::Index.into() => {
            let at_least = |a: &Expr, b: &Expr| Expr::sub(a.clone(), b.clone());
            let above = |a: &Expr, b: &Expr| Expr::sub(at_least(a, b), Expr::index(1));
            match (op, truth) {
                (BinOp::Lt, true) | (BinOp::Ge, false) => known.push(above(b, a)),
                (BinOp::Le, true) | (BinOp::Gt, false) => known.push(at_least(b, a)),
                (BinOp::Gt, true) | (BinOp::Le, false) => known.push(above(a, b)),
                (BinOp::Ge, true) | (BinOp::Lt, false) => known.push(at_least(a, b)),
                (BinOp::Eq, true) | (BinOp::Ne, false) => {
                    known.extend([at_least(a, b), at_least(b, a)]);
                }
                _ => {}
            }
        }
        _ => {}
    }
}

//! `pragma`: which loops inside a loop are unrolled.
//!
//! `auto_unroll_max_step, N` unrolls a serial loop of constant extent if all loops inside it are
//! unrolled and it executes at most N stores (a vector store counts as one): as in TVM, loops are
//! unrolled from the inside out. `unroll_explicit, false` keeps unrolled loops as loops, which only
//! carry a hint for the back end.

use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result};
use crate::ir::visit::map_stmts;
use crate::ir::{ForKind, Stmt};
use crate::schedule::annotations::StageAnnotation;
use crate::schedule::state::{AxisId, Schedule, Stage};

/// The largest number of stores for `auto_unroll_max_step`.
const MAX_STEPS: i64 = 1 << 16;

/// `auto_unroll_max_step`.
#[derive(Debug)]
struct MaxSteps(i64);

/// `unroll_explicit`.
#[derive(Debug)]
struct UnrollExplicit(bool);

/// `S.pragma(i, auto_unroll_max_step, N)`, `S.pragma(i, unroll_explicit, true)`: sets how the loops
/// inside loop `i` are unrolled.
pub(super) static PRAGMA: Directive = Directive {
    name: "pragma",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[
        required("i", ArgKind::Axis),
        required("name", ArgKind::Word),
        required("value", ArgKind::IntOrBool),
    ],
    usage: "pragma(i, auto_unroll_max_step, 16) or pragma(i, unroll_explicit, true)",
    run: pragma,
    check: None,
};

fn pragma(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let (axis, word) = (Some(call.axis(0)), call.word(1).unwrap_or_default());
    let stage = schedule.stage_mut(call.stage());
    let refuse = |text: String| Err(Box::new(Diag::new("E0376", call.span_of(2), text)));
    match (word, call.value(2)) {
        ("auto_unroll_max_step", Some(Value::Int(steps))) => {
            if !(0..=MAX_STEPS).contains(steps) {
                return refuse(format!(
                    "the number of steps must be from 0 to {MAX_STEPS}, not {steps}"
                ));
            }
            stage.replace_annotation(call.directive, axis, call.span, MaxSteps(*steps));
        }
        ("unroll_explicit", Some(Value::Bool(explicit))) => {
            stage.replace_annotation(call.directive, axis, call.span, UnrollExplicit(*explicit));
        }
        ("auto_unroll_max_step", _) => {
            return refuse("`auto_unroll_max_step` takes a number of steps".to_string());
        }
        ("unroll_explicit", _) => {
            return refuse("`unroll_explicit` takes `true` or `false`".to_string());
        }
        (word, _) => {
            let text = format!("unknown pragma `{word}`");
            let names = ["auto_unroll_max_step", "unroll_explicit"];
            let diag = Diag::new("E0376", call.span_of(1), text);
            return Err(Box::new(match crate::diag::closest(word, names) {
                Some(close) => diag.help(format!("did you mean `{close}`?")),
                None => diag.note("pragmas: auto_unroll_max_step, unroll_explicit"),
            }));
        }
    }
    Ok(Vec::new())
}

/// Marks the loops of `body`, the body of loop `leaf` of a stage, as the pragmas of `leaf` say.
pub fn mark_unrolled(stage: &Stage, leaf: AxisId, body: Stmt) -> Stmt {
    let at_leaf = |annotation: &StageAnnotation| annotation.axis == Some(leaf);
    let body = match stage.annotations_of::<MaxSteps>().find(|(a, _)| at_leaf(a)) {
        Some((_, MaxSteps(max))) => unroll_inside_out(body, i128::from(*max)).0,
        None => body,
    };
    match stage.annotations_of::<UnrollExplicit>().find(|(a, _)| at_leaf(a)) {
        Some((_, UnrollExplicit(false))) => keep_loops(body),
        _ => body,
    }
}

/// Returns the statement with its loops marked, and its number of stores; `None` if a loop remains.
fn unroll_inside_out(stmt: Stmt, max: i128) -> (Stmt, Option<i128>) {
    match stmt {
        Stmt::For { var, min, extent, kind, body } => {
            let (body, steps) = unroll_inside_out(*body, max);
            let (mut kind, mut total) = (kind, None);
            let count = |steps: Option<i128>| Some(steps?.saturating_mul(extent.as_int()?.max(0)));
            match kind {
                ForKind::Vectorized => total = steps,
                ForKind::Unrolled | ForKind::UnrollHint => total = count(steps),
                ForKind::Serial if count(steps).is_some_and(|count| count <= max) => {
                    total = count(steps);
                    kind = ForKind::Unrolled;
                }
                ForKind::Serial | ForKind::Parallel | ForKind::Thread(_) => {}
            }
            (Stmt::For { var, min, extent, kind, body: Box::new(body) }, total)
        }
        // An intrinsic is one instruction.
        Stmt::Tensorize { .. } | Stmt::Store { .. } | Stmt::Prefetch { .. } => (stmt, Some(1)),
        other => {
            let mut total = Some(0i128);
            let stmt = map_stmts(other, &mut |inner| {
                let (inner, steps) = unroll_inside_out(inner, max);
                total = total.zip(steps).map(|(a, b)| a.saturating_add(b));
                inner
            });
            (stmt, total)
        }
    }
}

/// Turns unrolled loops into loops with a hint.
fn keep_loops(stmt: Stmt) -> Stmt {
    let stmt = map_stmts(stmt, &mut keep_loops);
    match stmt {
        Stmt::For { var, min, extent, kind: ForKind::Unrolled, body } => {
            Stmt::For { var, min, extent, kind: ForKind::UnrollHint, body }
        }
        other => other,
    }
}

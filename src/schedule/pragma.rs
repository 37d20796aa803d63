//! `pragma`: which loops inside a loop are written out.
//!
//! `auto_unroll_max_step, N`: a serial loop of constant extent is unrolled if all loops inside it
//! are and it takes at most N steps, where a step is a store (a vector counts as one). So loops
//! are unrolled from the inside out as far as N reaches, as TVM does. `unroll_explicit, false`:
//! loops to be unrolled are left to the back end as loops marked `unrolled`.

use super::directives::{Call, Value};
use super::state::{AxisId, Pragma, Schedule, Setting, Stage};
use crate::diag::{Diag, Result};
use crate::ir::visit::map_stmts;
use crate::ir::{ForKind, Stmt};

/// The most steps that may be written out.
const MAX_STEPS: i64 = 1 << 16;

/// `S.pragma(i, auto_unroll_max_step, N)`, `S.pragma(i, unroll_explicit, true)`: for the loops
/// inside loop `i`.
pub fn pragma(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let axis = call.axis(0);
    let word = call.word(1).unwrap_or_default();
    let setting = match (word, call.value(2)) {
        ("auto_unroll_max_step", Some(Value::Int(steps))) => {
            if !(0..=MAX_STEPS).contains(steps) {
                let text = format!("`{steps}` steps are not from 0 to {MAX_STEPS}");
                return Err(Box::new(Diag::new("E0376", call.span_of(2), text)));
            }
            Setting::MaxStep(*steps)
        }
        ("unroll_explicit", Some(Value::Bool(explicit))) => Setting::Explicit(*explicit),
        ("auto_unroll_max_step", _) => {
            let text = "`auto_unroll_max_step` takes a number of steps";
            return Err(Box::new(Diag::new("E0376", call.span_of(2), text)));
        }
        ("unroll_explicit", _) => {
            let text = "`unroll_explicit` takes `true` or `false`";
            return Err(Box::new(Diag::new("E0376", call.span_of(2), text)));
        }
        (word, _) => {
            let text = format!("there is no pragma `{word}`");
            let known = ["auto_unroll_max_step", "unroll_explicit"];
            let diag = Diag::new("E0376", call.span_of(1), text);
            return Err(Box::new(match crate::diag::closest(word, known.into_iter()) {
                Some(close) => diag.help(format!("did you mean `{close}`?")),
                None => diag.note("there are `auto_unroll_max_step` and `unroll_explicit`"),
            }));
        }
    };
    let stage = schedule.stage_mut(call.stage());
    let kind = |setting: Setting| matches!(setting, Setting::MaxStep(_));
    stage.pragmas.retain(|old| old.axis != axis || kind(old.setting) != kind(setting));
    stage.pragmas.push(Pragma { axis, setting, span: call.span });
    stage.axis_mut(axis).used = Some(("pragma", call.span));
    stage.touched = true;
    Ok(Vec::new())
}

/// Marks the loops of `body`, which stands in loop `leaf` of a stage, as its pragmas say.
pub fn mark_unrolled(stage: &Stage, leaf: AxisId, body: Stmt) -> Stmt {
    let (mut steps, mut explicit) = (None, true);
    for pragma in stage.pragmas.iter().filter(|pragma| pragma.axis == leaf) {
        match pragma.setting {
            Setting::MaxStep(max) => steps = Some(max),
            Setting::Explicit(value) => explicit = value,
        }
    }
    let body = match steps {
        Some(max) => mark_auto(body, i128::from(max)).0,
        None => body,
    };
    if explicit { body } else { leave_loops(body) }
}

/// The statement with its loops marked, and its steps; `None` if a loop is left.
fn mark_auto(stmt: Stmt, max: i128) -> (Stmt, Option<i128>) {
    match stmt {
        Stmt::For { var, min, extent, kind, body } => {
            let (body, steps) = mark_auto(*body, max);
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
        // It stands for one instruction.
        Stmt::Tensorize { .. } | Stmt::Store { .. } | Stmt::Prefetch { .. } => (stmt, Some(1)),
        other => {
            let mut total = Some(0i128);
            let stmt = map_stmts(other, &mut |inner| {
                let (inner, steps) = mark_auto(inner, max);
                total = total.zip(steps).map(|(a, b)| a.saturating_add(b));
                inner
            });
            (stmt, total)
        }
    }
}

/// Loops that would be written out stay loops.
fn leave_loops(stmt: Stmt) -> Stmt {
    let stmt = map_stmts(stmt, &mut leave_loops);
    match stmt {
        Stmt::For { var, min, extent, kind: ForKind::Unrolled, body } => {
            Stmt::For { var, min, extent, kind: ForKind::UnrollHint, body }
        }
        other => other,
    }
}

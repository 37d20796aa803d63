//! `skew`: two loops become one over the waves of their iterations and one inside a wave.
//!
//! Before: loops `i`, `j` of 100 and 50 iterations. After `S.skew(i, j)`: loops `i_w` of 149 and
//! `i_p` of 100, with `i = i_p`, `j = i_w - i_p`, guarded where `j` leaves its range. All
//! iterations of a wave have the same `i + j`. (Wolf and Lam, "A loop transformation theory and an
//! algorithm to maximize parallelism", 1991: a skew, then an interchange.)

use super::call::{Call, Value};
use super::split::{axis_values, check_factor, check_splittable};
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result};
use crate::schedule::state::{AxisKind, Relation, Schedule};

/// `S.skew(i, j, factor=f)`: replaces the loops over `i` and `j` by one over the waves
/// `f*i + j` and one over `i` in the wave.
pub(super) static SKEW: Directive = Directive {
    name: "skew",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[
        required("i", ArgKind::Axis),
        required("j", ArgKind::Axis),
        optional("factor", ArgKind::Int),
    ],
    usage: "skew(i, j) or skew(i, j, factor=f)",
    run: skew,
    check: None,
};

/// The number of waves of the longest axes needs no more than 64 bits.
const MAX_FACTOR: i64 = 1 << 10;

fn skew(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let parts = [call.axis(0), call.axis(1)];
    let stage = schedule.stage(id);
    if parts[0] == parts[1] {
        let text = format!("axis `{}` is named twice", stage.axis(parts[1]).name);
        return Err(Box::new(Diag::new("E0323", call.span_of(1), text)));
    }
    for (at, part) in parts.into_iter().enumerate() {
        let axis = stage.axis(part);
        if axis.kind == AxisKind::Reduce {
            let text = format!("`{}` is a reduction axis and cannot be skewed", axis.name);
            let note = "waves would combine the terms of an element in another order";
            let diag = Diag::new("E0365", call.span_of(at), text).note(note);
            return Err(Box::new(diag.help("name two data axes")));
        }
        check_splittable(schedule, id, part, call.span_of(at), "skew")?;
    }
    let factor = call.int(2).map_or(Ok(1), |factor| check_factor(factor, call.span_of(2)))?;
    if factor > MAX_FACTOR {
        let text = format!("a factor of `skew` must be at most {MAX_FACTOR}, not {factor}");
        return Err(Box::new(Diag::new("E0321", call.span_of(2), text)));
    }
    let stage = schedule.stage_mut(id);
    let places = parts.map(|part| stage.place_of(part));
    let name = stage.axis(parts[0]).name.clone();
    let wave = stage.add_axis(&format!("{name}_w"), AxisKind::Data);
    let position = stage.add_axis(&format!("{name}_p"), AxisKind::Data);
    stage.leaves[places[0].min(places[1])] = wave;
    stage.leaves[places[0].max(places[1])] = position;
    for part in parts {
        stage.axis_mut(part).replaced = Some(("skew", call.span));
    }
    let [outer, inner] = parts;
    stage.relations.push(Relation::Skew { outer, inner, factor, wave, position, span: call.span });
    Ok(axis_values(id, &[wave, position]))
}

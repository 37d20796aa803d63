//! Decides one index of one load: it is proved, refused, or checked on entry.

use super::text::show;
use super::walker::{EntryCheck, Profile, Walker};
use super::witness::{Domain, SearchResult, find_violation};
use crate::diag::{Diag, Span};
use crate::ir::visit::{NodeSet, walk_nodes};
use crate::ir::{Buffer, DType, Expr, ExprKind, Var};
use crate::te::Sort;
use rustc_hash::FxHashSet;

/// Proves, refuses or defers index `dim` of a load of `buffer`.
pub(super) fn check_index(
    walker: &mut Walker,
    buffer: &Buffer,
    dim: usize,
    index: &Expr,
    span: Span,
) {
    let name = format!("index {dim} of `{}`", buffer.name);
    check_load(walker, &Load { name, index, extent: &buffer.shape[dim], span });
}

/// Checks that a sort has the rank that it asks for, and that its axis has at most
/// [`MAX_SORTED`] values.
pub(super) fn check_rank(walker: &mut Walker, sort: &Sort, stage: &str, span: Span) {
    let extent = &sort.axis.extent;
    let name = format!("`at=` of `{stage}`");
    check_load(walker, &Load { name, index: &sort.at, extent, span });
    let short = Expr::le(extent.clone(), Expr::index(MAX_SORTED));
    if walker.checker.facts.prove(&short) {
        return;
    }
    let axis = sort.axis.var.name();
    let limit = format!("an axis that is sorted has at most {MAX_SORTED} values");
    if extent.as_int().is_some() {
        let message = format!("`{stage}` sorts {} values of `{axis}`", show(extent));
        return walker.refuse(Diag::new("E0242", span, message).note(limit));
    }
    let message = format!("`{stage}` sorts {{0}} values of `{axis}`, but {limit}");
    walker.add_check(EntryCheck { cond: short, message, values: vec![extent.clone()] });
}

/// The largest extent of a sorted axis: positions have 32 bits.
const MAX_SORTED: i64 = i32::MAX as i64;

fn check_load(walker: &mut Walker, load: &Load) {
    let index = load.index;
    if inside(walker, load) {
        return;
    }
    // Conditions that the entry cannot evaluate may hold.
    let guards = walker.guards_at_entry();
    let conds = guards.iter().map(|(cond, _)| cond);
    let profile = walker.profile(conds.chain([index, load.extent]));
    if profile.constant() && decide_constant(walker, load, &guards, &profile) {
        return;
    }
    let own = walker.profile([index, load.extent]);
    if refuse_outside(walker, load, &own) || check_sufficient(walker, load, &guards) {
        return;
    }
    if !own.at_entry() {
        return decide_computed(walker, load, &own, &guards);
    }
    if own.constant() && is_inside_anyway(walker, load, &own) {
        return;
    }
    if walker.guards.is_empty() && !own.inputs && check_extremes(walker, load) {
        return;
    }
    let (low, high) = range_conditions(load);
    let text = format!("{} is {{0}}, but the extent is {{1}}", load.name);
    let values = vec![index.clone(), load.extent.clone()];
    let check = EntryCheck { cond: Expr::and(low, high), message: text, values };
    walker.add_scan(check, &profile.axes, &guards);
}

/// One index of a load.
struct Load<'a> {
    /// What it is, for messages.
    name: String,
    index: &'a Expr,
    extent: &'a Expr,
    span: Span,
}

/// `0 <= index` and `index < extent`.
fn range_conditions(load: &Load) -> (Expr, Expr) {
    let low = Expr::le(Expr::index(0), load.index.clone());
    (low, Expr::lt(load.index.clone(), load.extent.clone()))
}

/// Whether the index is provably inside.
fn inside(walker: &Walker, load: &Load) -> bool {
    let (low, high) = range_conditions(load);
    let facts = &walker.checker.facts;
    facts.prove(&low) && facts.prove(&high)
}

/// Decides an index over axes with constant ranges by trying points. False if the domain is too
/// large.
fn decide_constant(
    walker: &mut Walker,
    load: &Load,
    guards: &[(Expr, bool)],
    profile: &Profile,
) -> bool {
    let Some(axes) = constant_axes(walker, profile) else { return false };
    let Some(extent) = load.extent.as_int() else { return false };
    let domain = Domain { axes: &axes, guards };
    match find_violation(&domain, load.index, 0, extent - 1) {
        Some(SearchResult::Violated(point, value)) => {
            if guards.len() == walker.guards.len() {
                refuse_at(walker, load, &axes, &point, value, extent);
            } else {
                refuse_unknown_condition(walker, load, &axes, &point, value);
            }
            true
        }
        Some(SearchResult::Holds) => true,
        Some(SearchResult::Unknown) | None => false,
    }
}

/// Whether an index over axes with constant ranges is inside without its conditions.
fn is_inside_anyway(walker: &Walker, load: &Load, own: &Profile) -> bool {
    let Some(axes) = constant_axes(walker, own) else { return false };
    let Some(extent) = load.extent.as_int() else { return false };
    let domain = Domain { axes: &axes, guards: &[] };
    matches!(find_violation(&domain, load.index, 0, extent - 1), Some(SearchResult::Holds))
}

/// Variable, first value and extent of each axis, if all are constants.
pub(super) fn constant_axes(walker: &Walker, profile: &Profile) -> Option<Vec<(Var, i64, i64)>> {
    let range = |&at: &usize| {
        let axis = &walker.axes[at];
        let min = i64::try_from(axis.min.as_int()?).ok()?;
        let extent = i64::try_from(axis.extent.as_int()?).ok()?;
        min.checked_add(extent)?;
        Some((axis.var.clone(), min, extent))
    };
    profile.axes.iter().map(range).collect()
}

/// Refuses an index that is outside at a point (E0260).
fn refuse_at(
    walker: &mut Walker,
    load: &Load,
    axes: &[(Var, i64, i64)],
    point: &[i64],
    value: Option<i128>,
    extent: i128,
) {
    let text = show(load.index);
    let value = match value {
        Some(value) => value.to_string(),
        None => "too large for 64 bits".to_string(),
    };
    let is = if text == value { String::new() } else { format!("`{text}` is ") };
    let at = places(load.index, axes, point);
    let message =
        format!("{} is out of bounds: {is}{value}{at}, but the extent is {extent}", load.name);
    walker.refuse(Diag::new("E0260", load.span, message));
}

/// Returns the values of the axes in the index: ` at i = 99, j = 0`.
fn places(index: &Expr, axes: &[(Var, i64, i64)], point: &[i64]) -> String {
    let mut used = FxHashSet::default();
    super::walker::for_each_var(index, &mut FxHashSet::default(), &mut |var| {
        used.insert(var.clone());
    });
    let values = axes.iter().zip(point).filter(|((var, ..), _)| used.contains(var));
    let values: Vec<String> =
        values.map(|((var, ..), v)| format!("{} = {v}", var.name())).collect();
    if values.is_empty() { String::new() } else { format!(" at {}", values.join(", ")) }
}

/// Refuses an index that is outside everywhere, or at a corner of a symbolic domain (E0260).
fn refuse_outside(walker: &mut Walker, load: &Load, own: &Profile) -> bool {
    let facts = &walker.checker.facts;
    let evaluated = walker.guards.is_empty();
    let (low, high) = range_conditions(load);
    if evaluated && (facts.disprove(&low) || facts.disprove(&high)) {
        let message = format!(
            "{} is out of bounds: `{}` is never inside the extent `{}`",
            load.name,
            show(load.index),
            show(load.extent)
        );
        let message = match facts.const_bounds(load.index) {
            (Some(low), Some(high)) if low == high => format!(
                "{} is out of bounds: it is {low}, but the extent is {}",
                load.name,
                show(load.extent)
            ),
            _ => message,
        };
        walker.refuse(Diag::new("E0260", load.span, message));
        return true;
    }
    if !evaluated || own.inputs || !own.at_entry() {
        return false;
    }
    for maximum in [true, false] {
        let over: Vec<Var> = walker.axes.iter().map(|axis| axis.var.clone()).collect();
        let facts = &walker.checker.facts;
        let Some(extreme) = facts.extreme(load.index, &over, maximum) else { continue };
        let broken = match maximum {
            true => Expr::le(load.extent.clone(), extreme.value.clone()),
            false => Expr::lt(extreme.value.clone(), Expr::index(0)),
        };
        if !facts.prove(&broken) {
            continue;
        }
        let places: Vec<String> = extreme
            .at
            .iter()
            .map(|(var, value)| format!("{} = {}", var.name(), show(value)))
            .collect();
        let places =
            if places.is_empty() { String::new() } else { format!(" at {}", places.join(", ")) };
        let message = format!(
            "{} is out of bounds: `{}` is `{}`{places}, but the extent is `{}`",
            load.name,
            show(load.index),
            show(&extreme.value),
            show(load.extent)
        );
        walker.refuse(Diag::new("E0260", load.span, message));
        return true;
    }
    false
}

/// Adds a cheap check that suffices for `clamp` and `%`: the tensor is not empty, and narrowed
/// integers fit their type. Returns whether it suffices.
fn check_sufficient(walker: &mut Walker, load: &Load, guards: &[(Expr, bool)]) -> bool {
    let mut checks = Vec::new();
    if load.extent.as_int().is_none() {
        let message = format!("{} has no valid value: the extent is {{0}}", load.name);
        let cond = Expr::lt(Expr::index(0), load.extent.clone());
        checks.push(EntryCheck { cond, message, values: vec![load.extent.clone()] });
    }
    for (ty, value) in narrow_casts(load.index) {
        let of = walker.profile([&value]);
        if of.axes.is_empty() && of.at_entry() && !of.inputs {
            let (low, high) = ty.int_range();
            let low = Expr::le(Expr::int(DType::Index, low), value.clone());
            let high = Expr::le(value.clone(), Expr::int(DType::Index, high));
            let message = format!("`{}` does not fit {ty}: {{0}}", show(&value));
            checks.push(EntryCheck { cond: Expr::and(low, high), message, values: vec![value] });
        }
    }
    if checks.is_empty() {
        return false;
    }
    let mut suffice = |checks: &[EntryCheck]| {
        walker.checker.facts.push();
        checks.iter().for_each(|check| walker.checker.facts.assume(&check.cond));
        let proved = inside(walker, load);
        walker.checker.facts.pop();
        proved
    };
    if suffice(&checks[..1]) {
        checks.truncate(1);
    } else if !suffice(&checks) {
        return false;
    }
    let guarded = walker.profile(guards.iter().map(|(cond, _)| cond));
    for check in checks {
        walker.add_scan(check, &guarded.axes, guards);
    }
    true
}

/// Finds casts of `index` values to types that may not hold them.
fn narrow_casts(expr: &Expr) -> Vec<(DType, Expr)> {
    let mut found = Vec::new();
    walk_nodes(expr, &mut NodeSet::default(), &mut |e| {
        if let ExprKind::Cast(a) = &e.kind
            && a.ty == DType::Index.into()
            && e.ty.dtype.is_int()
            && e.ty.dtype.bits() < 64
        {
            found.push((e.ty.dtype, a.clone()));
        }
    });
    found
}

/// Adds one comparison for each extreme of an unguarded index that is monotone in every axis.
/// Returns false if the extremes are unknown.
fn check_extremes(walker: &mut Walker, load: &Load) -> bool {
    let over: Vec<Var> = walker.axes.iter().map(|axis| axis.var.clone()).collect();
    let facts = &walker.checker.facts;
    let (low, high) = range_conditions(load);
    let mut checks = Vec::new();
    if !facts.prove(&low) {
        let Some(extreme) = facts.extreme(load.index, &over, false) else { return false };
        let cond = Expr::le(Expr::index(0), extreme.value.clone());
        let message = format!("{} runs down to {{0}}", load.name);
        checks.push((EntryCheck { cond, message, values: vec![extreme.value] }, low));
    }
    if !facts.prove(&high) {
        let Some(extreme) = facts.extreme(load.index, &over, true) else { return false };
        let cond = Expr::lt(extreme.value.clone(), load.extent.clone());
        let message = format!("{} runs to {{0}}, but the extent is {{1}}", load.name);
        let values = vec![extreme.value, load.extent.clone()];
        checks.push((EntryCheck { cond, message, values }, high));
    }
    for (check, established) in checks {
        // It holds if the domain of the stage is not empty, so the rest of the stage can use it.
        walker.checker.facts.assume(&check.cond);
        walker.checker.facts.assume(&established);
        walker.add_check(check);
    }
    true
}

/// Decides an index that a stage computes: the definition of the stage proves it, or it is refused
/// (E0261).
fn decide_computed(walker: &mut Walker, load: &Load, own: &Profile, guards: &[(Expr, bool)]) {
    walker.checker.facts.push();
    walker.assume_limits(load.index);
    let (low, high) = range_conditions(load);
    let facts = &walker.checker.facts;
    let sides = (facts.prove(&low), facts.prove(&high));
    let inside = sides == (true, true) || check_sufficient(walker, load, guards);
    walker.checker.facts.pop();
    if !inside {
        refuse_computed(walker, load, own, sides);
    }
}

/// Refuses an index that a stage computes (E0261). `sides` are those on which it is inside.
fn refuse_computed(walker: &mut Walker, load: &Load, own: &Profile, sides: (bool, bool)) {
    let text = show(load.index);
    let stages: Vec<String> = own.stages.iter().map(|name| format!("`{name}`")).collect();
    let message = format!(
        "{} is computed by stage {} and may be out of bounds: `{text}`",
        load.name,
        stages.join(", ")
    );
    let (ty, last) = (index_type(load.index), show(&last_of(load.extent)));
    let (text, last) = match (load.extent.as_int(), ty) {
        (Some(_), _) => (text, last),
        (None, DType::Int64) => (text, format!("({last}) as int64")),
        (None, _) => (format!("({text}) as int64"), format!("({last}) as int64")),
    };
    let inside = match sides {
        (true, false) => format!("min({text}, {last})"),
        (false, true) => format!("max({text}, 0)"),
        _ => format!("clamp({text}, 0, {last})"),
    };
    walker.refuse(
        Diag::new("E0261", load.span, message)
            .note(
                "only an index computed from inputs alone can be checked before the function runs",
            )
            .help(format!("write `{inside}`")),
    );
}

/// Returns the last index of a dimension.
fn last_of(extent: &Expr) -> Expr {
    match extent.as_int() {
        Some(value) => Expr::int(DType::Index, (value - 1).max(0)),
        None => Expr::sub(extent.clone(), Expr::index(1)),
    }
}

/// Returns the type of an index before its cast to `index`.
fn index_type(index: &Expr) -> DType {
    match &index.kind {
        ExprKind::Cast(a) if index.ty.dtype == DType::Index => a.ty.dtype,
        _ => index.ty.dtype,
    }
}

/// Refuses an index that is inside only under a condition that the entry cannot evaluate (E0261).
fn refuse_unknown_condition(
    walker: &mut Walker,
    load: &Load,
    axes: &[(Var, i64, i64)],
    point: &[i64],
    value: Option<i128>,
) {
    let unknown = walker.guards.iter().rev().find(|(cond, _)| !walker.profile([cond]).at_entry());
    let (cond, truth) = unknown.expect("a condition was left out").clone();
    let value = value.map_or("too large for 64 bits".to_string(), |value| value.to_string());
    let message = format!(
        "{} may be out of bounds: `{}` is {value}{}, but the extent is {}",
        load.name,
        show(load.index),
        places(load.index, axes, point),
        show(load.extent)
    );
    let holds = if truth { "true" } else { "false" };
    let note = format!(
        "it is read where `{}` is {holds}, which is unknown before the function runs",
        show(&cond)
    );
    let help = format!(
        "write `clamp({}, 0, {})`, or a condition on the axes",
        show(load.index),
        show(&last_of(load.extent))
    );
    walker.refuse(Diag::new("E0261", load.span, message).note(note).help(help));
}

impl Walker<'_> {
    /// Reports an error, once for each place and text.
    pub(super) fn refuse(&mut self, diag: Diag) {
        if !self.checker.diags.contains(&diag) {
            self.checker.diags.push(diag);
        }
    }
}

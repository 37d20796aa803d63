//! `scan`: an element of a prefix reduction is computed from the one before it.
//!
//! Before: `S[i] = sum(A[k], axis=k, where=k <= i)`: for each `i`, the sum over all `k` up to `i`.
//! After `S.scan(i)`: `S[i] = S[i - 1] + A[i]`, `S[0] = 0 + A[0]`; the loop over `k` is gone.
//!
//! The terms of `S[i]` are those of `S[i - 1]` and then those with `k = i`, so both forms combine
//! the same terms in the same order. This needs: one condition compares `k` with `i` plus a
//! distance, and nothing else of the reduction depends on `i`; `k` is the outermost reduction axis,
//! or the order of terms is free; the first element has at most one value of `k`. With `k >= i` the
//! scan runs from the last element to the first one and combines the terms in reverse order.

use super::call::{Call, Value};
use super::linear_reductions::{Scan, Scatter, conditional_reduction, is_small};
use super::scan_blocks::{Blocks, begin_with_blocks_before};
use super::split::check_splittable;
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{mentions, reads_memory, substitute};
use crate::ir::{BinOp, Expr, ExprKind, UnOp, Var};
use crate::schedule::bounds::runs_one_by_one;
use crate::schedule::legality::order_is_free;
use crate::schedule::phases::Inference;
use crate::schedule::state::{
    Annotation, AxisId, AxisKind, Relation, Schedule, Stage, StageId, Tail,
};
use crate::te::{self, Body, Reduction};

/// `S.scan(i)`: computes each element of a prefix reduction from its predecessor along `i`. With
/// the inner part of a split of `i`, each block begins with a value of its own ([`scan_blocks`]).
///
/// [`scan_blocks`]: super::scan_blocks
pub(super) static SCAN: Directive = Directive {
    name: "scan",
    subject: Subject::Stage,
    targets: Targets::Cpus,
    params: &[required("i", ArgKind::Axis), optional("reassociate", ArgKind::Bool)],
    usage: "scan(i), or scan(ii) after a split of i into blocks",
    run: scan,
    check: Some(check),
};

fn scan(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let (id, axis) = (call.stage(), call.axis(0));
    let stage = schedule.stage(id);
    let blocks = Blocks::with_inner(stage, axis);
    let along = blocks.map_or(axis, |blocks| blocks.parent);
    let found = find_scan(schedule, id, along).map_err(|why| {
        let text = format!("`{}` is not a prefix reduction along `{}`", stage.te.name, {
            &stage.axis(axis).name
        });
        let diag = Diag::new("E0358", call.span_of(0), text).note(why);
        if let Some(inner) = Blocks::inside_of(stage, axis) {
            let (name, inner) = (&stage.te.name, &stage.axis(inner).name);
            return Box::new(diag.help(format!("to scan each block: `{name}.scan({inner})`")));
        }
        Box::new(diag.help(
            "a scan takes a reduction whose `where=` compares a reduction axis with the data axis: \
             `sum(A[k], axis=k, where=k <= i)`",
        ))
    })?;
    let term = AxisId(stage.rank() + found.term);
    check_splittable(schedule, id, term, call.span, "scan")?;
    let found = Scan { within: axis, ..found };
    let same_bits = keeps_bits(stage, &found);
    schedule.checked(check_order(schedule, call, &found))?;
    let added = blocks.map(|b| begin_with_blocks_before(schedule, id, &found, &b, call.span));
    if let Some([_, before]) = added {
        apply_scan(schedule, before, 0);
    }
    replace_loop(schedule.stage_mut(id), call.directive, call.span, found);
    schedule.reassociated |= !same_bits;
    Ok(added.into_iter().flatten().map(Value::Stage).collect())
}

/// A scan that a stage could be computed by.
#[derive(Clone, Debug)]
pub struct PrefixScan {
    /// The data axis, by its index among the declared ones.
    pub axis: usize,
    /// The reduction axis whose loop it replaces, by its index among the declared ones.
    pub term: usize,
    /// The directive: `S.scan(i)`.
    pub call: String,
}

/// Returns a scan of a stage that no directive has changed; `None` if it has none, or only in an
/// order of terms that the program does not allow.
pub fn prefix_scan(schedule: &Schedule, id: StageId) -> Option<PrefixScan> {
    let stage = schedule.stage(id);
    let Body::Reduce(reduction) = &stage.te.body else { return None };
    let allowed = reduction.reassociate || schedule.graph.reassociate;
    (0..stage.rank()).find_map(|axis| {
        let found = find_scan(schedule, id, AxisId(axis)).ok()?;
        let fits = keeps_bits(stage, &found) || (allowed && reduction.combiner.commutative);
        let call = format!("{}.scan({})", stage.te.name, stage.axis(AxisId(axis)).name);
        fits.then_some(PrefixScan { axis, term: found.term, call })
    })
}

/// Computes a stage by a scan along a data axis, if it has one.
pub(in crate::schedule) fn apply_scan(schedule: &mut Schedule, id: StageId, axis: usize) {
    if let Ok(found) = find_scan(schedule, id, AxisId(axis)) {
        replace_loop(schedule.stage_mut(id), &SCAN, Span::default(), found);
    }
}

/// Replaces the loop over terms of a stage.
fn replace_loop(stage: &mut Stage, directive: &'static Directive, span: Span, scan: Scan) {
    let term = AxisId(stage.rank() + scan.term);
    stage.leaves.retain(|leaf| *leaf != term);
    stage.axis_mut(term).replaced = Some(("scan", span));
    stage.annotate(directive, None, span, scan);
}

/// Returns the scan of a stage along a data axis; the error says why there is none.
fn find_scan(schedule: &Schedule, id: StageId, axis: AxisId) -> std::result::Result<Scan, String> {
    let stage = schedule.stage(id);
    let reduction = conditional_reduction(stage, axis, "scan")?;
    let (name, loop_name) = (&stage.te.name, &stage.axis(axis).name);
    if let Some(replaced) = stage.te.reduce_axes().iter().enumerate().find_map(|(at, _)| {
        let axis = stage.axis(AxisId(stage.rank() + at));
        axis.replaced.map(|(directive, _)| format!("`{directive}` replaced axis `{}`", axis.name))
    }) {
        return Err(replaced);
    }
    if stage.annotation::<Scatter>().is_some() {
        return Err(format!("the terms of `{name}` are scattered"));
    }
    let var = &stage.te.axes[axis.0].var;
    let mut facts = Facts::new();
    schedule.known_facts().iter().for_each(|cond| facts.assume(cond));
    for axis in stage.te.axes.iter().chain(&reduction.axes) {
        facts.bind(&axis.var, &axis.min, &axis.extent);
    }
    let of_axis = |expr: &Expr| mentions(expr, var);
    let links: Vec<Expr> = reduction.conditions().into_iter().filter(of_axis).collect();
    let [link] = &links[..] else {
        return Err(match links.len() {
            0 => format!("its `where=` does not depend on `{loop_name}`"),
            count => format!(
                "{count} conditions of its `where=` depend on `{loop_name}`: from one element to \
                 the next, terms may also be dropped"
            ),
        });
    };
    if reduction.terms.iter().any(of_axis) {
        return Err(format!("its terms depend on `{loop_name}`"));
    }
    if reduction.identity.iter().any(of_axis) {
        return Err(format!("its start value depends on `{loop_name}`"));
    }
    let step = Step { var, reduction, facts: &facts };
    let Some((term, distance, reverse)) = step.of(link) else {
        return Err(format!(
            "its `where=` does not compare a reduction axis with `{loop_name}` plus a distance"
        ));
    };
    let found = &reduction.axes[term];
    let term_name = found.var.name();
    let value = simplify_expr(&Expr::add(Expr::var(var), distance), &facts);
    // The first element in the order of the scan has no predecessor.
    let end = |axis: &te::Axis| {
        let last = Expr::sub(Expr::add(axis.min.clone(), axis.extent.clone()), Expr::index(1));
        if reverse { last } else { axis.min.clone() }
    };
    let first = end(&stage.te.axes[axis.0]);
    let first = substitute(&value, &mut |v| (v == var).then(|| first.clone()));
    let (low, high) = if reverse { (end(found), first) } else { (first, end(found)) };
    if !is_small(&value, &facts) {
        let text = format!("the value of `{term_name}` in an element may need more than 64 bits");
        return Err(text);
    }
    if !facts.prove(&Expr::le(low, high)) {
        let which = if reverse { "last" } else { "first" };
        return Err(format!(
            "the {which} element along `{loop_name}` may have more than one value of \
             `{term_name}`, or that depends on run-time values"
        ));
    }
    Ok(Scan { axis: axis.0, term, value, reverse, within: axis })
}

/// Finds the terms that one element adds to those of its predecessor.
struct Step<'a> {
    var: &'a Var,
    reduction: &'a Reduction,
    facts: &'a Facts,
}

impl Step<'_> {
    /// Returns the reduction axis that a condition compares with the data axis, the distance of the
    /// last term, and whether the condition gives the least term instead: `k <= i + 3` is `(k, 3,
    /// false)`, `k > i` is `(k, 1, true)`.
    fn of(&self, condition: &Expr) -> Option<(usize, Expr, bool)> {
        let (holds, comparison) = match &condition.kind {
            ExprKind::Unary(UnOp::Not, inner) => (false, inner),
            _ => (true, condition),
        };
        let ExprKind::Binary(op, a, b) = &comparison.kind else { return None };
        let (a, b) = (&self.facts.as_index(a)?, &self.facts.as_index(b)?);
        // `small + apart <= large`.
        let (small, large, apart) = match (op, holds) {
            (BinOp::Le, true) | (BinOp::Gt, false) => (a, b, 0),
            (BinOp::Lt, true) | (BinOp::Ge, false) => (a, b, 1),
            (BinOp::Ge, true) | (BinOp::Lt, false) => (b, a, 0),
            (BinOp::Gt, true) | (BinOp::Le, false) => (b, a, 1),
            _ => return None,
        };
        let slack = Expr::sub(Expr::sub(large.clone(), small.clone()), Expr::index(apart));
        let i = Expr::var(self.var);
        self.reduction.axes.iter().enumerate().find_map(|(at, axis)| {
            let k = Expr::var(&axis.var);
            let forward = Expr::add(Expr::sub(slack.clone(), i.clone()), k.clone());
            let backward = Expr::sub(Expr::add(slack.clone(), i.clone()), k);
            [(forward, false), (backward, true)].into_iter().find_map(|(distance, reverse)| {
                let distance = simplify_expr(&distance, self.facts);
                self.is_fixed(&distance).then(|| match reverse {
                    true => (at, Expr::sub(Expr::index(0), distance), true),
                    false => (at, distance, false),
                })
            })
        })
    }

    /// Whether a distance is the same for all elements along the axis and for all terms.
    fn is_fixed(&self, distance: &Expr) -> bool {
        !mentions(distance, self.var)
            && !reads_memory(distance)
            && !self.reduction.axes.iter().any(|axis| mentions(distance, &axis.var))
    }
}

/// Whether a scan gives the same bits as the source.
fn keeps_bits(stage: &Stage, scan: &Scan) -> bool {
    let Body::Reduce(reduction) = &stage.te.body else { return true };
    order_is_free(stage, reduction)
        || (keeps_order(reduction, scan) && (!scan.is_in_blocks() || groups_freely(reduction)))
}

/// Whether a scan combines the terms of each element in the order of the source.
fn keeps_order(reduction: &Reduction, scan: &Scan) -> bool {
    let outermost = reduction.axes[..scan.term].iter().all(|axis| axis.extent.as_int() == Some(1));
    outermost && !scan.reverse
}

/// Whether every grouping of terms in their order gives the same bits.
fn groups_freely(reduction: &Reduction) -> bool {
    let floats = reduction.terms.iter().any(|term| term.ty.dtype.is_float());
    !floats || reduction.combiner.exact || reduction.combiner_in_any_order().is_some()
}

/// Refuses another order of the terms that nothing allows (E0357), and any other order if the
/// reducer is not commutative (E0356).
fn check_order(schedule: &Schedule, call: &Call, scan: &Scan) -> Result<()> {
    let stage = schedule.stage(call.stage());
    let Body::Reduce(reduction) = &stage.te.body else { return Ok(()) };
    if keeps_bits(stage, scan) {
        return Ok(());
    }
    let name = &stage.te.name;
    let term = reduction.axes[scan.term].var.name();
    let in_order = keeps_order(reduction, scan);
    let why = match (scan.reverse, in_order) {
        (true, _) => {
            format!("the scan starts with the largest `{term}`, the source with the smallest")
        }
        (false, false) => {
            let outer = reduction.axes[0].var.name();
            format!("the scan goes through all `{outer}` for each `{term}`")
        }
        (false, true) => {
            "the terms of each block are combined first, and then with those of the blocks before"
                .to_string()
        }
    };
    if !in_order && !reduction.combiner.commutative {
        let reducer = &reduction.combiner.name;
        let text = format!("a scan of `{name}` combines its terms in another order");
        let diag = Diag::new("E0356", call.span, text).note(why);
        return Err(Box::new(diag.note(format!("`{reducer}` is not commutative"))));
    }
    if call.flag(1) || reduction.reassociate || schedule.graph.reassociate {
        return Ok(());
    }
    let axis = &stage.axis(call.axis(0)).name;
    let how = if in_order { "in other groups" } else { "in another order" };
    let text = format!("a scan of `{name}` combines its floating-point terms {how}");
    let diag = Diag::new("E0357", call.span, text).note(why);
    Err(Box::new(diag.help(format!("allow it: `{name}.scan({axis}, reassociate=true)`"))))
}

/// Checks that the elements along the axis are computed one after the other, each as a whole
/// (E0359).
fn check(inference: &Inference, id: StageId, span: Span) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    schedule.checked(check_loops(schedule.stage(id), span))
}

fn check_loops(stage: &Stage, span: Span) -> Result<()> {
    let (_, scan) = stage.annotation::<Scan>().expect("the check is for stages with a scan");
    let axis = AxisId(scan.axis);
    let (name, axis_name) = (&stage.te.name, stage.te.axes[scan.axis].var.name());
    let refuse = |text: String, place: Option<Span>, help: String| {
        let diag = Diag::new("E0359", span, text)
            .note(format!("an element is computed from the one before it along `{axis_name}`"));
        let diag = match place {
            Some(place) => diag.related(place, "here"),
            None => diag,
        };
        Err(Box::new(diag.help(help)))
    };
    // The loops of the axis, and those in which an element has its predecessor.
    let (mut whole, mut parts) = (vec![axis], vec![scan.within]);
    for relation in &stage.relations {
        match relation {
            Relation::Split { parent, outer, inner, tail, span: place, .. } => {
                let replace = |loops: &mut Vec<AxisId>| {
                    let at = loops.iter().position(|part| part == parent);
                    at.inspect(|at| drop(loops.splice(at..=at, [*outer, *inner]))).is_some()
                };
                if replace(&mut whole) && *tail == Some(Tail::Shift) {
                    let text = format!("`tail=shift` on `{axis_name}` of a scan");
                    let help = "write `tail=peel` or `tail=guard`".to_string();
                    return refuse(text, Some(*place), help);
                }
                replace(&mut parts);
            }
            Relation::Fuse { span: place, .. } | Relation::Skew { span: place, .. } => {
                let of_parts = |made: &AxisId| parts.contains(made);
                if let Some(part) = relation.replaced().into_iter().find(of_parts) {
                    let how = stage.axis(part).replaced.map_or("fuse", |(how, _)| how);
                    let text = format!("`{how}` of `{axis_name}`, the axis of a scan");
                    return refuse(text, Some(*place), format!("leave out the `{how}`"));
                }
            }
        }
    }
    for leaf in &parts {
        let loop_axis = stage.axis(*leaf);
        let unrolled = matches!(loop_axis.annotation, Some((Annotation::Unroll, _)));
        let parallel = matches!(loop_axis.annotation, Some((Annotation::Parallel, _)));
        if !unrolled && (parallel || !runs_one_by_one(stage, *leaf)) {
            let (annotation, place) = loop_axis.annotation.expect("it has an annotation");
            let how = annotation.name();
            let text = format!("`{how}` of `{}`, the axis of a scan", loop_axis.name);
            let help = match (stage.rank(), scan.is_in_blocks()) {
                (_, true) => format!("`{how}` the loop over blocks"),
                (1, _) => format!(
                    "leave out the `{how}`, or scan blocks: `let o, q = {name}.split({axis_name}, \
                     factor=4096)`, `let T, P = {name}.scan(q)`, `{name}.{how}(o)`"
                ),
                _ => format!("`{how}` another axis of `{name}`"),
            };
            return refuse(text, Some(place), help);
        }
    }
    let places: Vec<usize> = parts.iter().map(|leaf| stage.place_of(*leaf)).collect();
    if !places.is_sorted() {
        let text = format!("the loops of `{axis_name}` do not run in the order of its values");
        return refuse(text, stage.moved, "keep the outer part of a split outside".to_string());
    }
    let last = places.last().expect("an axis has a loop");
    if let Some(outside) =
        stage.leaves[..*last].iter().find(|leaf| stage.axis(**leaf).kind == AxisKind::Reduce)
    {
        let text = format!(
            "the reduction loop `{}` encloses `{axis_name}`, the axis of a scan",
            stage.axis(*outside).name
        );
        let help = format!("move `{axis_name}` outside of the reduction loops with `reorder`");
        return refuse(text, stage.moved, help);
    }
    Ok(())
}

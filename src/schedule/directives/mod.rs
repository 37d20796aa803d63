//! The table of directives.
//!
//! A directive is one file of this folder and one line of [`DIRECTIVES`]. To add `S.name(…)`:
//!
//! 1. Write `directives/name.rs` with a `static NAME: Directive`: the name, the tensors and
//!    targets that it applies to, its parameters, its usage for messages, and two functions.
//!    - `run` checks names, kinds of axes and arguments, changes the [`Schedule`], and returns the
//!      axes or stages that `let` names. It may change the loops ([`Stage::leaves`],
//!      [`Stage::relations`]), the place of computation ([`Stage::attach`]), or add stages
//!      ([`super::derived_stage`]).
//!    - A directive whose effect comes later records an annotation with [`Stage::annotate`]: a
//!      struct of this file, which [`Stage::annotations_of`] gives to the phase or pass that
//!      implements it. The loop that an annotation names can no longer be split, and an inlined
//!      stage with an annotation is refused (E0379). `check` runs for each annotation when all
//!      bounds are known. A directive that names a loop of another stage annotates that stage too,
//!      so that the loop stays (`compute_with`); `compute_at` is found by
//!      [`Schedule::attached_to`].
//!    - Later directives may still change the loops and places, so `run` checks only what cannot
//!      change, and `check` or a phase the rest. A check whose absence would give wrong results
//!      goes through [`Schedule::checked`]: the fuzzer leaves it out to see that it is needed.
//! 2. Add `mod name;` and `&name::NAME` below.
//! 3. Implement the annotation where it takes effect. Directives that change only the state need no
//!    such step.
//!    - Loops of one stage: `lower::build_loops`.
//!    - Regions, places or the order of stages: a phase of `schedule::phases`. It may use what
//!      earlier phases made: expressions without inlined stages, the reads between stages, and
//!      (after `bound_stages`) regions, extents and guards. `check` runs after `bound_stages`.
//!    - A check of extents that concerns all loops: `schedule::legality`.
//!    - A change of where or with what a stage is computed: also `legality::AttachPoint` (which
//!      readers a loop encloses), `lower::build_loops` (`Nests`), `schedule::tree`
//!      (`--schedule-tree`), `schedule::prepack::flow` (which stages are packed together), and the
//!      passes whose documentation assumes one nest for each stage, as `share_storage` did.
//! 4. Document it in `docs/SCHEDULES.md`, in a table or with an example; a new term in
//!    `docs/GLOSSARY.md`; a line in `docs/CHANGELOG.md`. A new error code is the next free number
//!    of its group in `docs/errors` and needs a page there: a heading, the rule, a program that is
//!    refused with the code, the way out.
//! 5. Test it.
//!    - Goldens (`tests/golden.rs` explains their lines): `tests/golden/lower/NAME.te` (the loops),
//!      `tests/golden/run/NAME.te` (the result), `tests/golden/error/schedule_NAME.te` (each
//!      refusal). A pass that the directive made you change gets one in its own folder.
//!    - The fuzzer, `tests/fuzz/schedule/mod.rs`: a line of `KINDS`, of the weights in `any_kind`
//!      and of the `match` in `step`, and a generator that keeps the model of stages and loops up
//!      to date. Each kind must occur in 5 % of the legal schedules, so a generator makes the loops
//!      that the directive asks for. A code whose refusals are all necessary joins `CHECKS` in
//!      `tests/fuzz/run.rs`.
//!    - The oracle: a method of `Scheduler` in `tests/oracle/schedules.py`, listed in `random`.
//!    - Break the implementation and each check on purpose: a golden or the fuzzer must fail.
//!
//! The parser, the "did you mean" of messages, the checks of targets (E0311) and arguments (E0308,
//! E0309) follow from the table.
//!
//! [`Stage::leaves`]: super::state::Stage::leaves
//! [`Stage::relations`]: super::state::Stage::relations
//! [`Stage::attach`]: super::state::Stage::attach
//! [`Stage::annotate`]: super::state::Stage::annotate
//! [`Stage::annotations_of`]: super::state::Stage::annotations_of
//! [`Schedule::attached_to`]: super::state::Schedule::attached_to
//! [`Schedule::checked`]: super::state::Schedule::checked

mod algebra;
mod annotate_loop;
mod arguments;
mod bind;
mod cache_read;
mod cache_write;
mod call;
mod compute_at;
pub(super) mod compute_with;
mod contract;
mod distribute;
mod double_buffer;
mod fuse;
mod linear_reductions;
mod merge;
pub(super) mod pipeline;
mod pragma;
pub(super) mod prefetch;
mod reorder;
mod rfactor;
mod scan;
mod scan_blocks;
mod scatter;
mod set_scope;
mod skew;
mod split;
mod storage_align;
pub(super) mod store_at;
pub(super) mod store_nontemporal;
mod tensorize;

pub(super) use arguments::{axis_of, check_call, resolve_call};
pub use call::{Argument, Call, Value};
pub(super) use compute_at::auto_inline_injective;
pub use linear_reductions::{Scan, Scatter};
pub use pragma::mark_unrolled;
pub(super) use scan::apply_scan;
pub use scan::{PrefixScan, prefix_scan};
pub(super) use scatter::apply_scatter;
pub use scatter::{ScatteredAxis, is_scattered, scatter_axes, scattered_axes};
pub(super) use storage_align::pad_rows;
pub use storage_align::strides;
pub use tensorize::Tensorize;

use super::phases::Inference;
use super::state::{Attach, Axis, Schedule, Stage, StageId};
use crate::diag::{Diag, Result, Span};
use crate::target::Targets;
use std::fmt;

/// Every directive, in the order of the language reference.
pub static DIRECTIVES: &[&Directive] = &[
    &split::SPLIT,
    &split::TILE,
    &fuse::FUSE,
    &reorder::REORDER,
    &skew::SKEW,
    &annotate_loop::UNROLL,
    &annotate_loop::VECTORIZE,
    &annotate_loop::PARALLEL,
    &bind::BIND,
    &compute_at::COMPUTE_AT,
    &compute_at::COMPUTE_INLINE,
    &compute_at::COMPUTE_ROOT,
    &store_at::STORE_AT,
    &store_at::STORE_ROOT,
    &compute_with::COMPUTE_WITH,
    &storage_align::STORAGE_ALIGN,
    &double_buffer::DOUBLE_BUFFER,
    &store_nontemporal::STORE_NONTEMPORAL,
    &pipeline::PIPELINE,
    &prefetch::PREFETCH,
    &tensorize::TENSORIZE,
    &pragma::PRAGMA,
    &cache_write::CACHE_WRITE,
    &cache_read::CACHE_READ,
    &rfactor::RFACTOR,
    &scan::SCAN,
    &scatter::SCATTER,
    &merge::MERGE,
    &contract::CONTRACT,
    &distribute::DISTRIBUTE,
    &set_scope::SET_SCOPE,
];

/// A directive of the language.
pub struct Directive {
    /// The name in a schedule: `split`.
    pub name: &'static str,
    /// The tensors that it applies to.
    pub subject: Subject,
    /// The targets that have it.
    pub targets: Targets,
    /// The parameters, in positional order.
    pub params: &'static [Param],
    /// The usage for messages: `split(i, factor=f)`.
    pub usage: &'static str,
    /// Checks the arguments and changes the schedule. Returns the axes or stages that `let` names.
    run: fn(&mut Schedule, &Call) -> Result<Vec<Value>>,
    /// Checks an annotation of this directive at a stage when all bounds are known.
    check: Option<CheckAnnotation>,
}

type CheckAnnotation = fn(&Inference, StageId, Span) -> Result<()>;

impl fmt::Debug for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The tensors that a directive applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A stage, which the directive changes.
    Stage,
    /// A stage or an input, whose readers the directive changes.
    Tensor,
}

/// A parameter of a directive.
pub struct Param {
    /// The keyword.
    pub name: &'static str,
    /// The kind of its argument.
    pub kind: ArgKind,
    /// Whether the argument may be left out.
    pub optional: bool,
}

/// The kind of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgKind {
    /// A loop of the directive's own stage.
    Axis,
    /// A loop of the stage that is the argument before.
    AxisOfStage,
    /// All remaining positional arguments: loops of the directive's stage, or `*`.
    Axes,
    /// A stage.
    Stage,
    /// A list of stages.
    Stages,
    /// A stage or an input.
    Tensor,
    /// An integer.
    Int,
    /// A list of integers.
    Ints,
    /// `true` or `false`.
    Bool,
    /// `global`, `shared` or `local`.
    Scope,
    /// One word, dots included: `peel`, `auto_unroll_max_step`, `dot4`.
    Word,
    /// An integer, `true` or `false`.
    IntOrBool,
    /// A list of expressions that the directive itself evaluates.
    Exprs,
}

const fn required(name: &'static str, kind: ArgKind) -> Param {
    Param { name, kind, optional: false }
}

const fn optional(name: &'static str, kind: ArgKind) -> Param {
    Param { name, kind, optional: true }
}

impl Directive {
    /// Refuses a target that does not have the directive (E0311).
    fn check_target(&self, schedule: &Schedule, span: Span) -> Result<()> {
        if self.targets.contain(&schedule.target) {
            return Ok(());
        }
        let (needs, group) = match schedule.target.is_gpu() {
            true => ("a CPU", "cpu"),
            false => ("an nvptx", "nvptx"),
        };
        let diag = Diag::new("E0311", span, format!("`{}` needs {needs} target", self.name));
        Err(Box::new(diag.help(format!("write it in a schedule `for {group}`"))))
    }
}

/// Checks the annotations of all stages. All bounds are known.
pub(super) fn check_annotations(inference: &Inference) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    for stage in &schedule.stages {
        if let (Attach::Inline { span }, Some(directive)) = (stage.attach, own_directive(stage)) {
            return Err(Box::new(inlined_with(stage, directive, span)));
        }
    }
    for id in schedule.order.iter().copied() {
        for annotation in schedule.stage(id).annotations() {
            if let Some(check) = annotation.directive.check {
                check(inference, id, annotation.span)?;
            }
        }
    }
    Ok(())
}

/// Returns the name and the place of a directive that concerns the memory or the loops of a stage.
fn own_directive(stage: &Stage) -> Option<(&'static str, Span)> {
    let annotation = stage.annotations().first().map(|a| (a.directive.name, a.span));
    let of_loop = |axis: &Axis| axis.annotation.map(|(annotation, span)| (annotation.name(), span));
    let moved = stage.moved.map(|span| ("reorder", span));
    annotation
        .or_else(|| stage.axes.iter().find_map(|axis| axis.replaced))
        .or_else(|| stage.axes.iter().find_map(of_loop))
        .or(moved)
}

/// Returns the error for a directive of an inlined stage, which has neither memory nor loops
/// (E0379).
fn inlined_with(stage: &Stage, (directive, span): (&str, Span), inlined: Span) -> Diag {
    let name = &stage.te.name;
    let text = format!("`{name}` is inlined and has no memory or loops for `{directive}`");
    Diag::new("E0379", span, text).related(inlined, "inlined here").help("leave one of the two out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_is_documented() {
        let page = include_str!("../../../docs/SCHEDULES.md");
        for directive in DIRECTIVES {
            let name = directive.name;
            assert!(page.contains(&format!(".{name}(")), "docs/SCHEDULES.md lacks `{name}`");
        }
    }
}

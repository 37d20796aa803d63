//! The space of a kernel: rules that offer choices and write directives.
//!
//! The candidates of a [`Space`] are schedules in the language; a comment over each group of
//! directives names its rule. [`of_kernel`] makes the space of a kernel from [`RULES`],
//! [`of_schedule`] that of a schedule's knobs.
//!
//! The choices and the text are functions of the graph, the target, the number of threads and the
//! decisions. Run-time extents, such as `n: var`, are taken to be large, and every split of them
//! has a tail.

mod algebra;
mod chooser;
mod factor_types;
mod facts;
mod gpu;
mod lanes;
mod place;
mod plan;
mod rows;
mod scan;
mod scatter;
mod shared_copies;
mod sort;
mod staged;
mod template;
mod text;
mod tile;
mod view;
mod warpgroups;
mod warps;
mod waves;

use super::{Candidate, Choice, Space};
use crate::target::Target;
use crate::te::Graph;
use algebra::Variant;
use chooser::Chooser;
use plan::{Planner, StagePlan};
use std::sync::Arc;
use text::ScheduleText;
use view::{Access, AxisView, Stride};

pub use template::of_schedule;

/// A rule for the loops of a stage.
pub struct Rule {
    /// The name in comments and choices.
    pub name: &'static str,
    /// What the rule does, and when it applies.
    pub about: &'static str,
    /// Returns how well the rule suits a stage.
    fits: fn(&Planner, usize) -> Fit,
    /// Writes the directives of the stage's loops.
    apply: fn(&mut Planner, usize),
}

/// How well a rule suits a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    /// It does not apply.
    No,
    /// It applies.
    Possible,
    /// It applies, and is the default.
    Best,
}

/// The rules for the loops of a stage. The rule is a choice; its default is the first that fits
/// best, else the first possible one. Before it, `place` decides where the stage is computed.
pub const RULES: &[Rule] = &[
    Rule {
        name: "scan",
        about: "on a CPU: a prefix reduction: each element from the one before it, several rows or \
                vectors at once; such a stage has no other rule",
        fits: scan::fits,
        apply: scan::apply,
    },
    Rule {
        name: "scatter",
        about: "on a CPU: a reduction whose condition says which element a term belongs to: each \
                term is added to that element; such a stage has no other rule",
        fits: scatter::fits,
        apply: scatter::apply,
    },
    Rule {
        name: "sort",
        about: "on a CPU: a sort: rows in threads, each sorted by one; such a stage has no other \
                rule",
        fits: sort::fits,
        apply: sort::apply,
    },
    Rule {
        name: "tensor",
        about: "on a GPU with tensor cores: a product of matrices of bytes, or of two-byte \
                elements whose terms may be reordered: warps compute tiles, a pipeline copies the \
                factors to shared memory",
        fits: warps::tensor_fits,
        apply: warps::tensor,
    },
    Rule {
        name: "blocks",
        about: "on a GPU: a reduction in tiles, one for each block, virtual thread and thread; the \
                threads of a block fetch its factors into shared memory",
        fits: gpu::blocks_fits,
        apply: gpu::blocks,
    },
    Rule {
        name: "together",
        about: "on a GPU: a reduction of many terms that may be reordered: each thread of a block \
                combines a part of the terms of an element",
        fits: warps::together_fits,
        apply: warps::together,
    },
    Rule {
        name: "staged",
        about: "on a GPU: a reduction along rows whose terms keep their order: the threads of a \
                block copy tiles of their rows into shared memory",
        fits: staged::fits,
        apply: staged::apply,
    },
    Rule {
        name: "threads",
        about: "on a GPU: a thread for each element, or for a few",
        fits: gpu::threads_fits,
        apply: gpu::threads,
    },
    Rule {
        name: "tile",
        about: "a reduction in tiles: a tile of results along two or three axes stays in registers \
                while terms are added; several tiles form a block that stays in a cache; an \
                elementwise reader has the same tiles; factors that are not contiguous are packed",
        fits: tile::fits,
        apply: tile::apply,
    },
    Rule {
        name: "partial",
        about: "a reduction along rows whose terms may be reordered: partial results in lanes",
        fits: rows::partial_fits,
        apply: rows::partial,
    },
    Rule {
        name: "rows",
        about: "a reduction along rows whose terms keep their order: several rows at once",
        fits: rows::rows_fits,
        apply: rows::rows,
    },
    Rule {
        name: "waves",
        about: "on a CPU: a recurrence along two axes: the steps of a row or a diagonal in lanes, \
                or tiles of steps in threads",
        fits: waves::fits,
        apply: waves::apply,
    },
    Rule {
        name: "transpose",
        about: "a stage that reads along one axis and writes along another: square tiles",
        fits: lanes::transpose_fits,
        apply: lanes::transpose,
    },
    Rule {
        name: "lanes",
        about: "all other stages: vectorizes the axis along which memory is contiguous",
        fits: lanes::lanes_fits,
        apply: lanes::lanes,
    },
];

/// Returns the space of the rules for a kernel. `threads` is the number of threads that will run
/// it. If it is 0, the candidates do not depend on the machine, and there are no choices that only
/// a measurement can decide.
pub fn of_kernel(graph: &Graph, target: &Target, threads: usize) -> impl Space + use<> {
    rules(graph, target, threads, false)
}

/// Returns the same space where the user permits reordering of reduction terms although the kernel
/// does not; the schedules state it.
pub fn of_kernel_reassociated(
    graph: &Graph,
    target: &Target,
    threads: usize,
) -> impl Space + use<> {
    rules(graph, target, threads, true)
}

fn rules(graph: &Graph, target: &Target, threads: usize, user_allows_reassociate: bool) -> Rules {
    let declared = Arc::new(Variant::declared(graph, target, user_allows_reassociate));
    Rules { declared, target: target.clone(), threads }
}

/// Returns the candidate with all defaults, which is the same on every machine.
pub fn default_text(graph: &Graph, target: &Target) -> String {
    of_kernel(graph, target, 0).replay(&mut |choice| choice.default).text
}

/// Returns the simple candidate, if no stage gathers what it reads in lanes along its last axis.
pub fn simple_text(graph: &Graph, target: &Target) -> Option<String> {
    let rules = rules(graph, target, 0, false);
    let views = &rules.declared.facts(&vec![false; rules.declared.schedule.stages.len()]).views;
    let in_rows = views.iter().all(|view| {
        let near = |load: &Access, axis: &AxisView| {
            matches!(load.stride_inside(&axis.var), Stride::Zero | Stride::By(1))
        };
        view.data.last().is_none_or(|axis| view.loads.iter().all(|load| near(load, axis)))
    });
    in_rows.then(|| rules.replay(&mut simple).text)
}

/// The space of the rules.
struct Rules {
    /// The stages as declared.
    declared: Arc<Variant>,
    target: Target,
    threads: usize,
}

impl Space for Rules {
    fn replay(&self, answer: &mut dyn FnMut(&Choice) -> usize) -> Candidate {
        let mut chooser = Chooser::new(answer);
        let mut text = ScheduleText::new(&self.declared.schedule);
        let variant = algebra::rewrite(&self.declared, &mut chooser, &mut text);
        let none = vec![false; variant.schedule.stages.len()];
        let mut planner = Planner {
            target: &self.target,
            threads: self.threads,
            facts: variant.facts(&none),
            plain: variant.facts(&none),
            plans: Vec::new(),
            text,
            chooser,
        };
        let inlined = place::inline(&mut planner);
        planner.facts = variant.facts(&inlined);
        let facts = planner.facts.clone();
        planner.plans = facts.views.iter().map(StagePlan::of).collect();
        for stage in (0..facts.views.len()).rev() {
            if facts.views[stage].inlined || planner.plans[stage].done {
                continue;
            }
            place::place(&mut planner, stage);
            loops(&mut planner, stage);
            lanes::stores(&mut planner, stage);
        }
        Candidate { decisions: planner.chooser.decisions, text: planner.text.finish() }
    }

    fn plain(&self) -> Option<Candidate> {
        // With run-time extents, only the call shows whether threads pay.
        let views = &self.declared.facts(&vec![false; self.declared.schedule.stages.len()]).views;
        let mut axes = views.iter().flat_map(|view| view.data.iter().chain(&view.reduce));
        let known = axes.all(|axis| axis.extent.is_some());
        let is_plain = known && !self.target.is_gpu();
        is_plain.then(|| self.replay(&mut simple))
    }
}

/// Answers a choice as the simple candidate does.
fn simple(choice: &Choice) -> usize {
    let what = choice.name.rsplit('.').next().unwrap_or_default();
    let answer = SIMPLE_DECISIONS.iter().find(|(of, _)| *of == what).map(|(_, answer)| *answer);
    let place = |answer| choice.options.iter().position(|option| option == answer);
    match what {
        "width" => 0,
        _ => answer.and_then(place).unwrap_or(choice.default),
    }
}

/// The decisions of the simple candidate: every stage at the root, in declaration order, one vector
/// along an axis in which memory is contiguous.
const SIMPLE_DECISIONS: &[(&str, &str)] = &[
    ("inline", "no"),
    ("at", "root"),
    ("rule", "lanes"),
    ("fused", "1"),
    ("piece", "0"),
    ("chunk", "1"),
    ("parallel", "none"),
    ("stores", "cached"),
];

/// Chooses the rule of a stage's loops, and applies it.
fn loops(planner: &mut Planner, at: usize) {
    let fits: Vec<(&Rule, Fit)> = RULES
        .iter()
        .map(|rule| (rule, (rule.fits)(planner, at)))
        .filter(|(_, fit)| *fit != Fit::No)
        .collect();
    let view = &planner.facts.views[at];
    let only = view.scan.is_some() || !view.scatter.is_empty() || view.sorted_rows.is_some();
    // Rows that begin and end anywhere have few terms in common.
    let ragged = view.ragged_bounds() > 1 && !planner.target.is_gpu();
    let fits: Vec<(&Rule, Fit)> =
        fits.into_iter().filter(|(rule, _)| only || !ragged || rule.name == "lanes").collect();
    let fits = match only {
        true => fits.into_iter().take(1).collect(),
        false => fits,
    };
    let best = fits.iter().position(|(_, fit)| *fit == Fit::Best).unwrap_or(0);
    let names = fits.iter().map(|(rule, _)| rule.name.to_string()).collect();
    let stage = planner.plans[at].name.clone();
    if fits.is_empty() {
        crate::bug!("no rule is for `{stage}`");
    }
    let chosen = planner.chooser.index(&stage, "rule", names, best);
    (fits[chosen].0.apply)(planner, at);
}

//! What there is to decide about a kernel: rules that ask and write.
//!
//! Before: a kernel and a target, or a schedule with knobs. After: a [`Space`] whose candidates
//! are schedules in the language, as somebody would write them, each group of directives under a
//! comment that names its rule. [`of_kernel`] has the rules of [`RULES`]; [`of_schedule`] the
//! knobs of a schedule.
//!
//! The questions and the text are functions of the graph, the target, the number of threads and
//! the answers. What is not known when the kernel is compiled, such as the extents of `n: var`, is
//! taken to be large, and every split of it has a tail.

mod algebra;
mod chooser;
mod facts;
mod gpu;
mod lanes;
mod place;
mod plan;
mod rows;
mod template;
mod text;
mod tile;
mod view;
mod warps;

use super::{Candidate, Choice, Space};
use crate::target::Target;
use crate::te::Graph;
use algebra::Variant;
use chooser::Chooser;
use plan::{Planner, StagePlan};
use std::sync::Arc;
use text::ScheduleText;

pub use template::of_schedule;

/// How the loops of one stage are chosen.
pub struct Rule {
    /// The name in the comments and in questions.
    pub name: &'static str,
    /// What it does and when.
    pub about: &'static str,
    /// How well it is known to suit a stage.
    fits: fn(&Planner, usize) -> Fit,
    /// Writes the directives of the stage's loops.
    apply: fn(&mut Planner, usize),
}

/// Whether a rule is for a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    /// It says nothing about such stages.
    No,
    /// It can be taken.
    Possible,
    /// It is taken where nobody has a reason for another one.
    Best,
}

/// The rules for the loops of a stage. Which one is taken is a question; the default is the first
/// that fits best, else the first that is possible. Before them, `place` decides where a stage is
/// computed.
pub const RULES: &[Rule] = &[
    Rule {
        name: "tensor",
        about: "on a GPU with tensor cores: a product of matrices of two-byte factors whose order \
                may change, by warps together; what a block reads is copied stages ahead",
        fits: warps::tensor_fits,
        apply: warps::tensor,
    },
    Rule {
        name: "blocks",
        about: "on a GPU: a reduction in tiles, one for each block, virtual thread and thread; \
                what a block reads is fetched into shared memory by its threads together",
        fits: gpu::blocks_fits,
        apply: gpu::blocks,
    },
    Rule {
        name: "together",
        about: "on a GPU: a reduction of many terms whose order may change: the threads of a block \
                have a part of the terms of an element each",
        fits: warps::together_fits,
        apply: warps::together,
    },
    Rule {
        name: "threads",
        about: "on a GPU: a thread for each element, or for a few",
        fits: gpu::threads_fits,
        apply: gpu::threads,
    },
    Rule {
        name: "tile",
        about: "a reduction in tiles: a tile of results, along two axes or three, stays in \
                registers while terms are added, some of them make a block that stays in a cache; \
                the stage that reads the results one by one has the tiles; factors that lie apart \
                are packed before",
        fits: tile::fits,
        apply: tile::apply,
    },
    Rule {
        name: "partial",
        about: "a reduction along rows whose order may change: partial results in lanes",
        fits: rows::partial_fits,
        apply: rows::partial,
    },
    Rule {
        name: "rows",
        about: "a reduction along rows whose order stays: several rows at once",
        fits: rows::rows_fits,
        apply: rows::rows,
    },
    Rule {
        name: "transpose",
        about: "what is read along one axis and written along another: square tiles",
        fits: lanes::transpose_fits,
        apply: lanes::transpose,
    },
    Rule {
        name: "lanes",
        about: "everything else: the axis along which memory is contiguous in lanes",
        fits: lanes::lanes_fits,
        apply: lanes::lanes,
    },
];

/// Everything that the rules ask about a kernel. `threads` is how many will run it, 0 if that is
/// not known: then the candidates do not depend on the machine, and nothing is asked that only a
/// measurement can answer.
pub fn of_kernel(graph: &Graph, target: &Target, threads: usize) -> impl Space + use<> {
    rules(graph, target, threads, false)
}

/// The same where the user lets the order of sums change, though the kernel does not say so: the
/// schedules say it.
pub fn of_kernel_reassociated(
    graph: &Graph,
    target: &Target,
    threads: usize,
) -> impl Space + use<> {
    rules(graph, target, threads, true)
}

fn rules(graph: &Graph, target: &Target, threads: usize, granted: bool) -> Rules {
    let declared = Arc::new(Variant::declared(graph, target, granted));
    Rules { declared, target: target.clone(), threads }
}

/// The candidate of all defaults: the same on every machine.
pub fn default_text(graph: &Graph, target: &Target) -> String {
    of_kernel(graph, target, 0).replay(&mut |choice| choice.default).text
}

/// The space of the rules.
struct Rules {
    /// The stages before any rewrite.
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
        let plain = |choice: &Choice| {
            let what = choice.name.rsplit('.').next().unwrap_or_default();
            let answer = PLAIN.iter().find(|(of, _)| *of == what).map(|(_, answer)| *answer);
            let place = |answer| choice.options.iter().position(|option| option == answer);
            match what {
                "width" => 0,
                _ => answer.and_then(place).unwrap_or(choice.default),
            }
        };
        // Where only the call tells the work, it also tells whether threads are worth their start.
        let views = &self.declared.facts(&vec![false; self.declared.schedule.stages.len()]).views;
        let mut axes = views.iter().flat_map(|view| view.data.iter().chain(&view.reduce));
        let known = axes.all(|axis| axis.extent.is_some());
        let is_plain = known && !self.target.is_gpu();
        is_plain.then(|| self.replay(&mut |choice| plain(choice)))
    }
}

/// The answers of the plain candidate: every stage by itself, in the order of its declaration, one
/// vector along an axis in which memory is contiguous.
const PLAIN: &[(&str, &str)] = &[
    ("inline", "no"),
    ("at", "root"),
    ("rule", "lanes"),
    ("fused", "1"),
    ("piece", "0"),
    ("chunk", "1"),
    ("parallel", "none"),
    ("stores", "cached"),
];

/// Asks for the rule of a stage's loops, and applies it.
fn loops(planner: &mut Planner, at: usize) {
    let fits: Vec<(&Rule, Fit)> = RULES
        .iter()
        .map(|rule| (rule, (rule.fits)(planner, at)))
        .filter(|(_, fit)| *fit != Fit::No)
        .collect();
    let best = fits.iter().position(|(_, fit)| *fit == Fit::Best).unwrap_or(0);
    let names = fits.iter().map(|(rule, _)| rule.name.to_string()).collect();
    let stage = planner.plans[at].name.clone();
    if fits.is_empty() {
        crate::bug!("no rule is for `{stage}`");
    }
    let chosen = planner.chooser.index(&stage, "rule", names, best);
    (fits[chosen].0.apply)(planner, at);
}

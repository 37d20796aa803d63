//! `--schedule auto`: a schedule for a kernel that has none, chosen by simple rules.
//!
//! Before: a kernel and a target. After: the text of a schedule in the language, which is
//! parsed and applied like one that a user wrote; each group of directives has a comment that
//! names its rule and says why it was chosen. [`RULES`] is the list of the rules.
//!
//! Every decision is a function of the graph and of the target's name, so the text is too. What
//! is not known when the kernel is compiled, such as the extents of `n: var`, is taken to be
//! large, and every split of it has a tail.

mod lanes;
mod partial;
mod plan;
mod product;
pub(crate) mod text;
mod threads;
pub(crate) mod view;

use super::bounds::infer_bounds;
use super::state::Schedule;
use super::text::apply_text;
use crate::diag::Result;
use crate::target::Target;
use crate::te::Graph;
use plan::Planner;

/// How the loops of one stage are chosen.
pub struct Rule {
    /// The name in the comments.
    pub name: &'static str,
    /// What it does and when.
    pub about: &'static str,
    /// Plans the stage; false if it does not concern it.
    apply: fn(&mut Planner, usize) -> bool,
}

/// The rules for the loops of a stage: the first that applies. Before them, `inline` and `attach`
/// decide where a stage is computed.
pub const RULES: &[Rule] = &[
    Rule { name: "threads", about: "on a GPU: a thread for each element", apply: threads::threads },
    Rule {
        name: "product",
        about: "a sum of products that reads its factors many times: a tile of results in \
                registers, all terms for it inside, factors that lie apart packed before",
        apply: product::product,
    },
    Rule {
        name: "partial",
        about: "a reduction along rows whose order may change: partial results in lanes",
        apply: partial::partial,
    },
    Rule {
        name: "rows",
        about: "a reduction along rows whose order stays: several rows at once",
        apply: partial::rows,
    },
    Rule {
        name: "transpose",
        about: "what is read along one axis and written along another: square tiles",
        apply: lanes::transpose,
    },
    Rule {
        name: "lanes",
        about: "everything else: the axis along which memory is contiguous in lanes",
        apply: lanes::lanes,
    },
];

/// Rules left out, in this order, if a schedule should be refused: a schedule with fewer rules is
/// slower, and there is a note that says so.
const FALLBACKS: &[&[&str]] = &[
    &[],
    &["product"],
    &["product", "partial", "rows", "transpose"],
    &["product", "partial", "rows", "transpose", "attach", "inline"],
];

/// The schedule that the rules choose; a note for each choice that was refused.
pub fn schedule_auto(graph: &Graph, target: &Target, notes: &mut Vec<String>) -> Schedule {
    for without in FALLBACKS {
        let text = text_without(graph, target, without);
        match try_text(graph, target, &text) {
            Ok(schedule) => return schedule,
            Err(diag) => notes.push(format!(
                "the schedule made for `{}` was refused ({}: {}), a simpler one is tried",
                graph.name, diag.code, diag.message
            )),
        }
    }
    Schedule::new(graph.clone(), target)
}

/// The text of the schedule that the rules choose.
pub fn auto_text(graph: &Graph, target: &Target) -> String {
    text_without(graph, target, FALLBACKS[0])
}

fn text_without(graph: &Graph, target: &Target, without: &[&str]) -> String {
    let mut planner = Planner::new(graph, target, without);
    planner.inline();
    for stage in (0..planner.views.len()).rev() {
        if planner.views[stage].inlined || planner.plans[stage].done {
            continue;
        }
        if !target.is_gpu() {
            planner.attach(stage);
        }
        let rules = RULES.iter().filter(|rule| !without.contains(&rule.name));
        for rule in rules {
            if (rule.apply)(&mut planner, stage) {
                break;
            }
        }
    }
    planner.finish()
}

/// Applies the text as if a user had written it.
fn try_text(graph: &Graph, target: &Target, text: &str) -> Result<Schedule> {
    let mut schedule = apply_text(graph, target, &Vec::new(), text)?;
    schedule.auto = true;
    infer_bounds(schedule.clone())?;
    Ok(schedule)
}

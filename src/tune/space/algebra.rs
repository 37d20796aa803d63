//! Algebraic rewrites: merged sums, the order of a chain of products, and factors of other types.
//!
//! `merge`, `contract`, `cache_read` with another type and `distribute` change the stages, so they
//! come first, and all other choices are about the resulting stages. The comment of a rewrite
//! states the operations before and after. A stage is offered rewrites until none is left or taken.

use super::chooser::Chooser;
use super::factor_types::conversions;
use super::facts::StageFacts;
use super::text::ScheduleText;
use super::tile::default_tile::facts_with_tiles;
use super::view::StageView;
use crate::ir::{BinOp, Expr, ExprKind};
use crate::schedule::Schedule;
use crate::schedule::apply_text;
use crate::target::Target;
use crate::te::{Body, Graph};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A rewrite that multiplies the operations by more than this is not offered.
const MAX_REWRITE_FACTOR: f64 = 2.0;
/// `merge` saves a stage: it is the default up to this factor on the operations.
const MERGE_FACTOR: f64 = 1.05;
/// `contract` adds a stage: it is the default only below this factor on the operations.
const CONTRACT_FACTOR: f64 = 0.9;

/// The stages after a sequence of rewrites.
pub(super) struct Variant {
    /// The stages in order of computation, as if declared so.
    pub(super) schedule: Schedule,
    /// The simple operations of all stages.
    operations: f64,
    /// A cache by the set of inlined stages.
    facts: Mutex<FxHashMap<Vec<bool>, Arc<StageFacts>>>,
    /// A cache of the rewrites of each stage, by name.
    rewrites: Mutex<FxHashMap<String, Arc<Vec<Rewrite>>>>,
    user_allows_reassociate: bool,
}

/// A possible rewrite.
struct Rewrite {
    /// The option as it is printed: `merge P`, `contract k`.
    name: String,
    /// The directives.
    lines: Vec<String>,
    /// The stages after it.
    variant: Arc<Variant>,
    /// Whether it is the default.
    gains: bool,
    /// The comment, if it does not tell the operations before and after.
    comment: Option<&'static str>,
}

impl Variant {
    /// Returns the kernel as declared. `user_allows_reassociate` says whether the user permits
    /// reordering of sums.
    pub(super) fn declared(
        graph: &Graph,
        target: &Target,
        user_allows_reassociate: bool,
    ) -> Variant {
        Variant::of(Schedule::new(graph.clone(), target), target, user_allows_reassociate)
    }

    fn of(schedule: Schedule, target: &Target, user_allows_reassociate: bool) -> Variant {
        let none = vec![false; schedule.stages.len()];
        let facts = facts_with_tiles(&schedule, target, &none, user_allows_reassociate);
        let work = |view: &StageView| view.points() as f64 * view.cost as f64;
        let operations = facts.views.iter().map(work).sum();
        let facts = Mutex::new(FxHashMap::from_iter([(none, Arc::new(facts))]));
        Variant { schedule, operations, facts, rewrites: Mutex::default(), user_allows_reassociate }
    }

    /// Returns the facts of the stages, with some of them inlined.
    pub(super) fn facts(&self, inlined: &[bool]) -> Arc<StageFacts> {
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(inlined) {
            return found.clone();
        }
        let target = &self.schedule.target;
        let facts = Arc::new(facts_with_tiles(
            &self.schedule,
            target,
            inlined,
            self.user_allows_reassociate,
        ));
        known.insert(inlined.to_vec(), facts.clone());
        facts
    }

    /// Returns the rewrites of a stage.
    fn rewrites(&self, at: usize) -> Arc<Vec<Rewrite>> {
        let name = &self.schedule.stages[at].te.name;
        let mut known = self.rewrites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(name) {
            return found.clone();
        }
        let rewrites = Arc::new(self.find(at));
        known.insert(name.clone(), rewrites.clone());
        rewrites
    }

    fn find(&self, at: usize) -> Vec<Rewrite> {
        let stage = &self.schedule.stages[at];
        if stage.te.recurrence.is_some() {
            return Vec::new();
        }
        let name = &stage.te.name;
        let none = vec![false; self.schedule.stages.len()];
        let view = &self.facts(&none).views[at];
        let mut found = Vec::new();
        for producer in 0..at {
            let other = &self.schedule.stages[producer].te;
            if view.reads(producer) && matches!(other.body, Body::Reduce(_)) {
                let call = format!("{name}.merge({}", other.name);
                found.extend(self.rewrite(format!("merge {}", other.name), "", call, MERGE_FACTOR));
            }
        }
        let Body::Reduce(sum) = &stage.te.body else { return found };
        // Contraction needs a product.
        if sum.terms.len() == 1 && has_product(&sum.terms[0]) {
            for axis in &sum.axes {
                let (name_of, axis) = (format!("contract {}", axis.var.name()), axis.var.name());
                let made = format!("let {name}_part = ").replace('.', "_");
                let call = format!("{name}.contract({axis}");
                found.extend(self.rewrite(name_of, &made, call, CONTRACT_FACTOR));
            }
        }
        if let Some(lines) = conversions(&self.schedule.target, stage, view) {
            let done = self.variant_after(&lines).map(|variant| Rewrite {
                name: "types".to_string(),
                lines,
                variant: Arc::new(variant),
                gains: true,
                comment: Some("the factors are copied in types that suit the instructions"),
            });
            found.extend(done);
        }
        found
    }

    /// Returns a rewrite, if its directive is legal here.
    fn rewrite(&self, name: String, made: &str, call: String, most: f64) -> Option<Rewrite> {
        let allowed = if self.user_allows_reassociate {
            &[")", ", reassociate=true)"][..]
        } else {
            &[")"][..]
        };
        let (lines, variant) = allowed.iter().find_map(|end| {
            let lines = vec![format!("{made}{call}{end}")];
            let variant = self.variant_after(&lines)?;
            Some((lines, variant))
        })?;
        let times = variant.operations / self.operations.max(1.0);
        let (gains, offered) = (times <= most, times <= MAX_REWRITE_FACTOR);
        offered.then(|| Rewrite { name, lines, variant: Arc::new(variant), gains, comment: None })
    }

    /// Returns the stages after directives, as if declared so; `None` if one is refused.
    fn variant_after(&self, lines: &[String]) -> Option<Variant> {
        let (graph, target) = (&self.schedule.graph, &self.schedule.target);
        let text = format!("schedule {} {{\n    {}\n}}\n", graph.name, lines.join("\n    "));
        let schedule = apply_text(graph, target, &Vec::new(), &text).ok()?;
        let stages = schedule.order.iter().map(|id| schedule.stage(*id).te.clone()).collect();
        let graph = Graph { stages, ..graph.clone() };
        Some(Variant::of(Schedule::new(graph, target), target, self.user_allows_reassociate))
    }
}

/// Chooses the rewrites of each stage, and writes the directives.
pub(super) fn rewrite(
    declared: &Arc<Variant>,
    chooser: &mut Chooser,
    text: &mut ScheduleText,
) -> Arc<Variant> {
    let mut variant = declared.clone();
    let mut at = 0;
    let mut round = 1;
    while at < variant.schedule.stages.len() {
        let stage = variant.schedule.stages[at].te.name.clone();
        let rewrites = variant.rewrites(at);
        let names = std::iter::once("none".to_string());
        let names: Vec<String> = names.chain(rewrites.iter().map(|one| one.name.clone())).collect();
        let gains = rewrites.iter().enumerate().filter(|(_, one)| one.gains);
        let least = gains
            .min_by(|(_, a), (_, b)| f64::total_cmp(&a.variant.operations, &b.variant.operations));
        let default = least.map_or(0, |(at, _)| at + 1);
        let what = if round == 1 { "algebra".to_string() } else { format!("algebra{round}") };
        let chosen = chooser.index(&stage, &what, names, default);
        if chosen == 0 {
            (at, round) = (at + 1, 1);
            continue;
        }
        let one = &rewrites[chosen - 1];
        match one.comment {
            Some(comment) => text.rule("types", comment),
            None => {
                let (before, after) = (about(variant.operations), about(one.variant.operations));
                text.rule("algebra", &format!("{before} operations before, {after} after"));
            }
        }
        one.lines.iter().for_each(|line| text.push(line.clone()));
        variant = one.variant.clone();
        text.learn(&variant.schedule);
        // The stage's index has changed; stages that the rewrite added come before it.
        let stages = &variant.schedule.stages;
        at = stages.iter().position(|other| other.te.name == stage).unwrap_or(at);
        round += 1;
    }
    variant
}

/// `2.1 million`.
fn about(operations: f64) -> String {
    match operations {
        n if n < 1e4 => format!("{n:.0}"),
        n if n < 1e6 => format!("{:.1} thousand", n / 1e3),
        n if n < 1e9 => format!("{:.1} million", n / 1e6),
        n => format!("{:.1} billion", n / 1e9),
    }
}

/// Whether a term is a product.
fn has_product(term: &Expr) -> bool {
    matches!(&term.kind, ExprKind::Binary(BinOp::Mul, ..))
}

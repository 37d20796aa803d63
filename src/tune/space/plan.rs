//! The plan: the loops of each stage so far, and the directives that made them.

use super::chooser::Chooser;
use super::facts::StageFacts;
use super::text::ScheduleText;
use super::view::{StageView, UNKNOWN};
use crate::target::Target;
use std::sync::Arc;

/// Fewer simple operations than this are not worth starting threads.
pub(super) const MIN_PARALLEL_WORK: i64 = 1 << 17;
/// Tasks that keep any number of threads busy.
const ENOUGH_TASKS: i64 = 64;
/// The most loops that are fused for threads.
const MAX_JOINED: usize = 4;

/// A candidate that is being written.
pub(super) struct Planner<'a> {
    pub(super) target: &'a Target,
    /// The threads that will run it; 0 if unknown.
    pub(super) threads: usize,
    pub(super) facts: Arc<StageFacts>,
    /// The facts without inlining.
    pub(super) plain: Arc<StageFacts>,
    pub(super) plans: Vec<StagePlan>,
    pub(super) text: ScheduleText,
    pub(super) chooser: Chooser<'a>,
}

/// A stage's loops, outermost first, and where it is computed.
#[derive(Clone, Default)]
pub(super) struct StagePlan {
    /// The name in directives.
    pub(super) name: String,
    pub(super) leaves: Vec<Leaf>,
    /// The stage at whose loop it is computed, and the index of the loop.
    pub(super) anchor: Option<(usize, usize)>,
    /// The number of outer loops at which producers may be computed.
    pub(super) open: usize,
    /// Whether its loops store each element once, although it is a reduction.
    pub(super) copies: bool,
    /// Whether it must be at the root: a copy at the root reads it, or it is a scan, or it keeps
    /// the steps of a recurrence.
    pub(super) pinned: bool,
    /// Whether one of its loops or an enclosing loop is parallel.
    pub(super) parallel: bool,
    /// The operations of stages computed in its tiles.
    pub(super) tile_work: i64,
    /// Whether the rule of another stage wrote its directives.
    pub(super) done: bool,
}

/// A loop.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Leaf {
    pub(super) name: String,
    /// The data axes that it covers, wholly or in part; empty for a reduction axis.
    pub(super) axes: Vec<usize>,
    pub(super) reduce: bool,
    pub(super) extent: Option<i64>,
    /// Whether it is vectorized or unrolled.
    pub(super) flat: bool,
    /// Whether it is an inner loop of a split.
    pub(super) inner: bool,
    /// Whether it is the outer loop of a split with a tail.
    pub(super) tail: bool,
}

/// A directive that annotates one loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Annotation {
    Vectorize,
    Unroll,
    Parallel,
}

impl Annotation {
    /// The name of the directive.
    pub(super) fn directive(self) -> &'static str {
        match self {
            Annotation::Vectorize => "vectorize",
            Annotation::Unroll => "unroll",
            Annotation::Parallel => "parallel",
        }
    }
}

/// The tail strategy of a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// The compiler chooses.
    Auto,
    Mask,
    Peel,
}

impl Tail {
    /// The name as a choice.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tail::Auto => "auto",
            Tail::Mask => "mask",
            Tail::Peel => "peel",
        }
    }

    /// The argument of `split`, with the comma before it; empty for the default.
    pub(super) fn argument(self) -> String {
        match self {
            Tail::Auto => String::new(),
            tail => format!(", tail={}", tail.name()),
        }
    }
}

impl Leaf {
    pub(super) fn size(&self) -> i64 {
        self.extent.unwrap_or(UNKNOWN)
    }
}

impl Planner<'_> {
    /// Returns the operations of a stage; `i64::MAX` if they are known at run time only.
    pub(super) fn work(&self, at: usize) -> i64 {
        let view = &self.facts.views[at];
        let known = view.data.iter().chain(&view.reduce).all(|axis| axis.extent.is_some());
        if known { view.points().saturating_mul(view.cost) } else { i64::MAX }
    }

    /// Splits a loop so that the inner one has `factor` iterations. Returns the names of the outer
    /// and the inner loop.
    pub(super) fn split(&mut self, at: usize, leaf: usize, factor: i64) -> (String, String) {
        self.split_tail(at, leaf, factor, Tail::Auto)
    }

    /// [`Planner::split`] with a tail strategy.
    pub(super) fn split_tail(
        &mut self,
        at: usize,
        leaf: usize,
        factor: i64,
        tail: Tail,
    ) -> (String, String) {
        let old = self.plans[at].leaves[leaf].clone();
        let outer = self.text.fresh(&old.name, "_o");
        let inner = self.text.fresh(&old.name, "_i");
        let (name, from) = (&self.plans[at].name, &old.name);
        let tail = tail.argument();
        let line = format!("let {outer}, {inner} = {name}.split({from}, factor={factor}{tail})");
        self.text.push(line);
        let parts = old.extent.map(|extent| (extent + factor - 1) / factor);
        let rest = old.extent.is_none_or(|extent| extent % factor != 0);
        let names = (outer.clone(), inner.clone());
        let inner = Leaf { name: inner, extent: Some(factor), inner: true, ..old.clone() };
        let outer = Leaf { name: outer, extent: parts, tail: rest, ..old };
        self.plans[at].leaves.splice(leaf..=leaf, [outer, inner]);
        names
    }

    /// Reorders all loops of a stage, given by name, outermost first.
    pub(super) fn reorder(&mut self, at: usize, names: &[String]) {
        let plan = &mut self.plans[at];
        let find = |name: &String| {
            let mut leaves = plan.leaves.iter();
            leaves.find(|leaf| leaf.name == *name).expect("a loop of the stage").clone()
        };
        let leaves: Vec<Leaf> = names.iter().map(find).collect();
        if leaves == plan.leaves {
            return;
        }
        if leaves.len() != plan.leaves.len() {
            crate::bug!("{} of {} loops are put in order", leaves.len(), plan.leaves.len());
        }
        self.text.push(format!("{}.reorder({})", plan.name, names.join(", ")));
        plan.leaves = leaves;
    }

    /// Returns the names of a stage's loops.
    pub(super) fn names(&self, at: usize) -> Vec<String> {
        self.plans[at].leaves.iter().map(|leaf| leaf.name.clone()).collect()
    }

    /// Returns the index of a loop.
    pub(super) fn leaf(&self, at: usize, name: &str) -> usize {
        let mut leaves = self.plans[at].leaves.iter();
        leaves.position(|leaf| leaf.name == name).expect("a loop of the stage")
    }

    /// Annotates a loop.
    pub(super) fn annotate(&mut self, at: usize, leaf: usize, annotation: Annotation) {
        let plan = &mut self.plans[at];
        let directive = annotation.directive();
        self.text.push(format!("{}.{directive}({})", plan.name, plan.leaves[leaf].name));
        plan.leaves[leaf].flat = annotation != Annotation::Parallel;
    }

    /// Fuses neighbouring loops.
    pub(super) fn fuse(&mut self, at: usize, first: usize, count: usize) {
        if count < 2 {
            return;
        }
        let leaves: Vec<Leaf> = self.plans[at].leaves.drain(first..first + count).collect();
        let names: Vec<&str> = leaves.iter().map(|leaf| &leaf.name[..]).collect();
        let fused = self.text.fresh(&names.join("_"), "");
        self.text.push(format!("let {fused} = {}.fuse({})", self.plans[at].name, names.join(", ")));
        let extent = leaves.iter().try_fold(1i64, |n, leaf| n.checked_mul(leaf.extent?));
        let axes = leaves.iter().flat_map(|leaf| leaf.axes.iter().copied()).collect();
        let leaf = Leaf { name: fused, axes, extent, tail: false, ..leaves[0].clone() };
        self.plans[at].leaves.insert(first, leaf);
    }

    /// Chooses how many of the first `count` loops of a stage at the root are fused to a parallel
    /// loop. Returns the number of loops that fusion removed.
    pub(super) fn parallelize(&mut self, at: usize, count: usize) -> usize {
        let work = self.work(at).saturating_add(self.plans[at].tile_work);
        let count = count.min(MAX_JOINED);
        if self.plans[at].anchor.is_some() || count == 0 || self.threads == 1 {
            return 0;
        }
        let leaves = &self.plans[at].leaves[..count];
        let mut choices = vec!["none".to_string()];
        for joined in 1..=count {
            let names: Vec<&str> = leaves[..joined].iter().map(|leaf| &leaf.name[..]).collect();
            choices.push(names.join(" "));
        }
        let default = if work < MIN_PARALLEL_WORK { 0 } else { self.joined(at, count) };
        if work < MIN_PARALLEL_WORK / 8 {
            choices.truncate(1);
        }
        let stage = self.plans[at].name.clone();
        let joined = self.chooser.index(&stage, "parallel", choices, default);
        if joined == 0 {
            return 0;
        }
        let why = match work {
            i64::MAX => "the work is known at run time only".to_string(),
            _ => format!("{} operations are shared by threads", about(work)),
        };
        self.text.rule("parallel", &why);
        self.fuse(at, 0, joined);
        self.annotate(at, 0, Annotation::Parallel);
        self.plans[at].parallel = true;
        joined - 1
    }

    /// Returns how many of the first loops together have enough iterations for all threads; 0 if
    /// there is a single iteration.
    fn joined(&self, at: usize, count: usize) -> usize {
        let leaves = &self.plans[at].leaves[..count];
        let (mut tasks, mut joined) = (1i64, 0);
        // The tail of a split is peeled only if the loop is not fused.
        while joined < count && tasks < ENOUGH_TASKS && (joined == 0 || !leaves[joined].tail) {
            tasks = tasks.saturating_mul(leaves[joined].size());
            joined += 1;
            if leaves[joined - 1].tail {
                break;
            }
        }
        if tasks <= 1 { 0 } else { joined }
    }
}

/// "about 2 million".
fn about(work: i64) -> String {
    if work < 1_000_000 {
        format!("about {} thousand", (work + 500) / 1000)
    } else if work < 1_000_000_000 {
        format!("about {} million", (work + 500_000) / 1_000_000)
    } else {
        format!("about {} billion", work / 1_000_000_000)
    }
}

impl StagePlan {
    pub(super) fn of(view: &StageView) -> StagePlan {
        let leaf = |name: &str, axes: Vec<usize>, reduce, extent| Leaf {
            name: name.to_string(),
            axes,
            reduce,
            extent,
            flat: false,
            inner: false,
            tail: false,
        };
        let data = view.data.iter().enumerate().skip(view.steps);
        let data = data.map(|(at, axis)| leaf(&axis.name, vec![at], false, axis.extent));
        let reduce = view.reduce.iter().map(|axis| leaf(&axis.name, Vec::new(), true, axis.extent));
        let leaves: Vec<Leaf> = data.chain(reduce).collect();
        // An element of a scan needs all elements before it, and a sort makes a whole row.
        let pinned = view.scan.is_some() || view.sorted_rows.is_some() || view.kept;
        StagePlan { name: view.name.clone(), leaves, pinned, ..StagePlan::default() }
    }

    /// Returns the loop of a data axis that is not split.
    pub(super) fn leaf_of(&self, axis: usize) -> Option<usize> {
        self.leaves.iter().position(|leaf| leaf.axes == [axis] && !leaf.inner)
    }

    /// Returns the number of outermost loops over data axes that are neither vectorized nor
    /// unrolled.
    pub(super) fn outer(&self) -> usize {
        self.leaves.iter().take_while(|leaf| !leaf.reduce && !leaf.flat).count()
    }
}

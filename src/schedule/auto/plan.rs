//! The plan: which loops each stage has so far, and the directives that made them.

use super::super::state::Schedule;
use super::text::Text;
use super::view::{View, views};
use crate::target::Target;
use crate::te::{Body, Graph};

/// Work below this, in simple operations, is not worth the start of threads.
const MIN_PARALLEL_WORK: i64 = 1 << 17;
/// What costs more is not computed twice because two places read one element of it.
const MAX_AGAIN: i64 = 8;
/// As many tasks keep all threads busy, whatever their number.
const ENOUGH_TASKS: i64 = 64;

/// The state of the planning.
pub(super) struct Planner<'a> {
    pub(super) target: &'a Target,
    pub(super) views: Vec<View>,
    pub(super) plans: Vec<Plan>,
    pub(super) text: Text,
    pub(super) reassociate: bool,
    schedule: Schedule,
    without: &'a [&'a str],
}

/// A stage's loops, outermost first, and where it stands.
#[derive(Default)]
pub(super) struct Plan {
    /// The name in directives.
    pub(super) name: String,
    pub(super) leaves: Vec<Leaf>,
    /// The stage in whose loops it is computed.
    pub(super) anchor: Option<usize>,
    /// Per data axis: the data axis of the anchor that it stands still with.
    pub(super) fixed: Vec<Option<usize>>,
    /// A loop of it is parallel, or one around it.
    pub(super) parallel: bool,
    /// The operations of what is computed in its tiles.
    pub(super) tile_work: i64,
    /// The rule of another stage wrote its directives.
    pub(super) done: bool,
}

/// A loop.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Leaf {
    pub(super) name: String,
    /// The data axes that it runs through, all or a part of each; empty for a reduction axis.
    pub(super) axes: Vec<usize>,
    pub(super) reduce: bool,
    pub(super) extent: Option<i64>,
    /// It runs through lanes.
    pub(super) lanes: bool,
    /// It is an inner part of a split.
    pub(super) inner: bool,
    /// It is the outer part of a split whose last step may be a shorter one.
    pub(super) tail: bool,
}

impl<'a> Planner<'a> {
    pub(super) fn new(graph: &Graph, target: &'a Target, without: &'a [&'a str]) -> Planner<'a> {
        let schedule = Schedule::new(graph.clone(), target);
        let text = Text::new(&schedule);
        let none = vec![false; schedule.stages.len()];
        let views = views(&schedule, &none);
        let reassociate = graph.reassociate;
        Planner { target, views, plans: Vec::new(), text, reassociate, schedule, without }
    }

    /// Decides which stages are computed where they are read.
    pub(super) fn inline(&mut self) {
        let count = self.views.len();
        let mut inlined = vec![false; count];
        // How often each stage is computed, in points.
        let mut points: Vec<i64> = self.views.iter().map(View::points).collect();
        for at in (0..count).rev() {
            if self.without.contains(&"inline") {
                break;
            }
            let view = &self.views[at];
            let costly = view.cost > MAX_AGAIN;
            let evaluations: i64 = (at + 1..count)
                .map(|reader| points[reader].saturating_mul(self.views[reader].sites(at, costly)))
                .fold(0, i64::saturating_add);
            let elements = view.elements().max(1);
            let is_map = matches!(self.schedule.stages[at].te.body, Body::Map(_));
            if view.output || view.tuple || !is_map || evaluations == 0 {
                continue;
            }
            let times = evaluations.saturating_add(elements - 1) / elements;
            let why = match (times, view.cost) {
                (..=1, _) => "each element is read once".to_string(),
                (_, ..=1) => "it costs nothing to compute again".to_string(),
                (2..=4, 2) => format!("{times} times one operation is less than a store"),
                _ => continue,
            };
            inlined[at] = true;
            points[at] = evaluations;
            self.text.rule("inline", &why);
            self.text.push(format!("{}.compute_inline()", view.name));
        }
        self.views = views(&self.schedule, &inlined);
        self.plans = self.views.iter().map(Plan::of).collect();
    }

    /// Computes a stage inside the loops of its reader, as far inside as nothing is computed twice.
    pub(super) fn attach(&mut self, at: usize) {
        let alone = self.views[at].output || self.without.contains(&"attach");
        if alone || super::product::is_product(self, at) {
            return;
        }
        if let Some((anchor, depth, fixed)) = self.place(at) {
            // Threads that would have this stage do not have the one around it.
            if !self.plans[anchor].parallel && self.work(at) >= MIN_PARALLEL_WORK {
                return;
            }
            let leaf = &self.plans[anchor].leaves[depth];
            let why = format!("one iteration of `{}` reads what no other one does", leaf.name);
            self.text.rule("attach", &why);
            let (name, of) = (&self.plans[at].name, &self.plans[anchor].name);
            self.text.push(format!("{name}.compute_at({of}, {})", leaf.name));
            let parallel = self.plans[anchor].parallel;
            let plan = &mut self.plans[at];
            for (axis, fixed) in fixed.iter().enumerate() {
                // One iteration reads one element along such an axis.
                let whole = |leaf: &&mut Leaf| leaf.axes == [axis];
                if fixed.is_some()
                    && let Some(leaf) = plan.leaves.iter_mut().find(whole)
                {
                    leaf.extent = Some(1);
                }
            }
            plan.anchor = Some(anchor);
            plan.fixed = fixed;
            plan.parallel = parallel;
        }
    }

    /// The anchor of a stage, the loop there, and which axes stand still in it.
    fn place(&self, at: usize) -> Option<(usize, usize, Vec<Option<usize>>)> {
        let mut anchor = None;
        let mut fixed: Option<Vec<Option<usize>>> = None;
        for reader in at + 1..self.views.len() {
            let view = &self.views[reader];
            if view.inlined {
                continue;
            }
            for load in view.loads.iter().filter(|load| load.of == Some(at)) {
                let of = self.plans[reader].anchor.unwrap_or(reader);
                if *anchor.get_or_insert(of) != of {
                    return None;
                }
                let dims = load.indices.iter().map(|index| {
                    let var = index.as_var()?;
                    let axis = view.data.iter().position(|axis| axis.var == *var)?;
                    match self.plans[reader].anchor {
                        None => Some(axis),
                        Some(_) => self.plans[reader].fixed[axis],
                    }
                });
                let dims: Vec<Option<usize>> = dims.collect();
                fixed = Some(match fixed {
                    None => dims,
                    Some(old) => old.iter().zip(&dims).map(|(a, b)| a.filter(|_| a == b)).collect(),
                });
            }
        }
        let (anchor, mut fixed) = (anchor?, fixed?);
        // Inside a loop over terms an element is computed again for each of them.
        let outer = self.plans[anchor].leaves.iter().take_while(|leaf| {
            let known = leaf.axes.iter().all(|axis| fixed.contains(&Some(*axis)));
            !leaf.reduce && known && !leaf.inner && !leaf.lanes && !leaf.axes.is_empty()
        });
        let depth = outer.count().checked_sub(1)?;
        let inside = &self.plans[anchor].leaves[..=depth];
        for axis in &mut fixed {
            // Part of an axis stands still only in loops that are there.
            let whole = |leaf: &Leaf, a: usize| leaf.axes.contains(&a);
            *axis = axis.filter(|a| inside.iter().any(|leaf| whole(leaf, *a)));
        }
        let split = |a: usize| {
            self.plans[anchor].leaves[depth + 1..].iter().any(|leaf| leaf.axes.contains(&a))
        };
        if fixed.iter().flatten().any(|axis| split(*axis)) {
            return None;
        }
        Some((anchor, depth, fixed))
    }

    /// Splits a loop; what is inside has `factor` iterations.
    pub(super) fn split(&mut self, at: usize, leaf: usize, factor: i64) {
        let old = self.plans[at].leaves[leaf].clone();
        let outer = self.text.fresh(&old.name, "_o");
        let inner = self.text.fresh(&old.name, "_i");
        let name = &self.plans[at].name;
        let (from, by) = (&old.name, factor);
        self.text.push(format!("let {outer}, {inner} = {name}.split({from}, factor={by})"));
        let parts = old.extent.map(|extent| (extent + factor - 1) / factor);
        let tail = old.extent.is_none_or(|extent| extent % factor != 0);
        let inner = Leaf { name: inner, extent: Some(factor), inner: true, ..old.clone() };
        let outer = Leaf { name: outer, extent: parts, tail, ..old };
        self.plans[at].leaves.splice(leaf..=leaf, [outer, inner]);
    }

    /// Gives the loops of a stage another order: all of them by index, outermost first.
    pub(super) fn reorder(&mut self, at: usize, order: &[usize]) {
        let leaves: Vec<Leaf> =
            order.iter().map(|leaf| self.plans[at].leaves[*leaf].clone()).collect();
        if leaves == self.plans[at].leaves {
            return;
        }
        let names: Vec<&str> = leaves.iter().map(|leaf| &leaf.name[..]).collect();
        self.text.push(format!("{}.reorder({})", self.plans[at].name, names.join(", ")));
        self.plans[at].leaves = leaves;
    }

    /// `vectorize`, `unroll` or `parallel`.
    pub(super) fn annotate(&mut self, at: usize, leaf: usize, how: &str) {
        let plan = &mut self.plans[at];
        self.text.push(format!("{}.{how}({})", plan.name, plan.leaves[leaf].name));
        plan.leaves[leaf].lanes = how == "vectorize";
    }

    /// Shares out the outer loops of a stage at the root, if there is enough to do: the outermost
    /// one, joined with those inside it while it has few iterations. The first `count` loops may
    /// be taken.
    pub(super) fn parallelize(&mut self, at: usize, count: usize) {
        let work = self.work(at).saturating_add(self.plans[at].tile_work);
        if self.plans[at].anchor.is_some() || count == 0 || work < MIN_PARALLEL_WORK {
            return;
        }
        let size = |leaf: &Leaf| leaf.extent.unwrap_or(super::view::UNKNOWN);
        let leaves = &self.plans[at].leaves[..count];
        let mut tasks = 1i64;
        let mut joined = 0;
        // The rest of a split is code of its own only while the loop stands alone.
        while joined < count && tasks < ENOUGH_TASKS && (joined == 0 || !leaves[joined].tail) {
            tasks = tasks.saturating_mul(size(&leaves[joined]));
            joined += 1;
            if leaves[joined - 1].tail {
                break;
            }
        }
        if tasks <= 1 {
            return;
        }
        let why = match work {
            i64::MAX => "the work is known at run time only".to_string(),
            _ => format!("{} operations are worth threads", about(work)),
        };
        self.text.rule("parallel", &why);
        if joined > 1 {
            self.fuse(at, 0, joined);
        }
        self.annotate(at, 0, "parallel");
        self.plans[at].parallel = true;
    }

    /// The operations of a stage; the largest number if they are known at run time only.
    pub(super) fn work(&self, at: usize) -> i64 {
        let view = &self.views[at];
        let known = view.data.iter().chain(&view.reduce).all(|axis| axis.extent.is_some());
        if known { view.points().saturating_mul(view.cost) } else { i64::MAX }
    }

    /// Makes one loop of neighbours.
    pub(super) fn fuse(&mut self, at: usize, first: usize, count: usize) {
        let leaves: Vec<Leaf> = self.plans[at].leaves.drain(first..first + count).collect();
        let names: Vec<&str> = leaves.iter().map(|leaf| &leaf.name[..]).collect();
        let fused = self.text.fresh(&names.join("_"), "");
        self.text.push(format!("let {fused} = {}.fuse({})", self.plans[at].name, names.join(", ")));
        let extent = leaves.iter().try_fold(1i64, |n, leaf| n.checked_mul(leaf.extent?));
        let axes = leaves.iter().flat_map(|leaf| leaf.axes.iter().copied()).collect();
        let leaf = Leaf { name: fused, axes, extent, tail: false, ..leaves[0].clone() };
        self.plans[at].leaves.insert(first, leaf);
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.text.finish()
    }
}

/// "about 2 million".
fn about(work: i64) -> String {
    if work < 1_000_000 {
        format!("about {} thousand", (work + 500) / 1000)
    } else if work < 1_000_000_000 {
        format!("about {} million", (work + 500_000) / 1_000_000)
    } else {
        format!("about {} thousand million", work / 1_000_000_000)
    }
}

impl Plan {
    fn of(view: &View) -> Plan {
        let leaf = |name: &str, axes: Vec<usize>, reduce, extent| Leaf {
            name: name.to_string(),
            axes,
            reduce,
            extent,
            lanes: false,
            inner: false,
            tail: false,
        };
        let data = view.data.iter().enumerate();
        let data = data.map(|(at, axis)| leaf(&axis.name, vec![at], false, axis.extent));
        let reduce = view.reduce.iter().map(|axis| leaf(&axis.name, Vec::new(), true, axis.extent));
        Plan { name: view.name.clone(), leaves: data.chain(reduce).collect(), ..Plan::default() }
    }

    /// The loop of a data axis as declared.
    pub(super) fn leaf_of(&self, axis: usize) -> Option<usize> {
        self.leaves.iter().position(|leaf| leaf.axes == [axis] && !leaf.inner)
    }
}

//! Partition: which stages of a network are computed in one kernel.
//!
//! Before: the stages of a network that are computed in each call.
//! After: groups of stages, in an order in which they can run. A group is
//! - a contraction (a matrix product, a convolution), with the elementwise stages after it: bias,
//!   activation, the addition of a residual; or
//! - a chain over rows, such as softmax or a layer normalisation: reductions of rows and the
//!   elementwise stages between and after them; or
//! - another reduction or map, with the elementwise stages after it; or
//! - a recurrence, with the elementwise stages after it.
//!
//! Stages that are read by one group only and continue no other group (padding, transposition,
//! concatenation) belong to their reader, which can compute them in place. A stage that only moves
//! elements is repeated in each reader. An exception: elements at a stride that a contraction reads
//! are stored first, because it reads each of them many times; so are those whose index arithmetic
//! would cut the contraction's long loops into rows.
//! Ensures: no group depends on its own results by way of another group. A group that reads
//! elements of an `inout` tensor which an `update` overwrites comes before the group of the
//! `update`, one that reads the new elements behind it. A group updates a tensor once.

use super::collapse::merges_last_dims;
use super::fold::is_movement;
use super::reads::{Access, is_contraction, is_strided, reads};
use crate::ir::equal::equal;
use crate::ir::{Buffer, Expr};
use crate::te::{Body, Graph, Stage};
use rustc_hash::{FxHashMap, FxHashSet};

/// The largest number of stages of a group, which bounds the search for its schedule.
const MAX_STAGES: usize = 24;

/// Stages by number, ascending, that one kernel computes.
#[derive(Clone, Debug)]
pub struct Group {
    /// The stages. Moves of elements can be in several groups.
    pub stages: Vec<usize>,
    /// The stage that gives the group its name.
    pub main: usize,
}

/// What a group is, and so what can join it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It has a contraction, a reduction over windows, or a recurrence.
    Heavy,
    /// It reduces rows; further stages over the same rows may join.
    Rows,
    /// Maps only.
    Maps,
}

/// Returns the groups of the stages that are not `folded`.
pub fn partition(graph: &Graph, folded: &[bool]) -> Vec<Group> {
    let mut state = Partition::new(graph, folded);
    for stage in state.order(folded) {
        state.add(stage);
    }
    state.absorb();
    state.groups()
}

/// Whether a tensor of shape `a` has at most as many elements as one of shape `b`, whatever the
/// run-time integers are.
fn is_covered(a: &[Expr], b: &[Expr]) -> bool {
    let constant = |shape: &[Expr]| -> i128 { shape.iter().filter_map(Expr::as_int).product() };
    let is_variable = |extent: &&Expr| extent.as_int().is_none();
    let mut rest: Vec<&Expr> = b.iter().filter(is_variable).collect();
    let variables_fit = a.iter().filter(is_variable).all(|extent| {
        let at = rest.iter().position(|other| equal(extent, other));
        at.map(|at| rest.swap_remove(at)).is_some()
    });
    variables_fit && constant(a) <= constant(b)
}

struct Partition<'a> {
    graph: &'a Graph,
    /// What each stage reads of stages that are not folded: the stage, and how.
    producers: Vec<Vec<(usize, Access)>>,
    consumers: Vec<Vec<usize>>,
    /// For each `update`, the stages that have to be computed before it: those that read the
    /// elements which it overwrites, and the `update` of the same tensor before it.
    earlier: Vec<Vec<usize>>,
    /// The group of each stage; folded stages have none.
    group_of: Vec<Option<usize>>,
    kinds: Vec<Kind>,
    members: Vec<Vec<usize>>,
}

impl<'a> Partition<'a> {
    fn new(graph: &'a Graph, folded: &[bool]) -> Partition<'a> {
        let count = graph.stages.len();
        let mut made_by: FxHashMap<Buffer, usize> = FxHashMap::default();
        let mut readers: FxHashMap<Buffer, Vec<usize>> = FxHashMap::default();
        let mut producers = vec![Vec::new(); count];
        let mut consumers = vec![Vec::new(); count];
        let mut earlier = vec![Vec::new(); count];
        for (at, stage) in graph.stages.iter().enumerate().filter(|(at, _)| !folded[*at]) {
            for (buffer, access) in reads(stage) {
                if let Some(producer) = made_by.get(&buffer) {
                    // The axes of an `update` are those of a region of the tensor.
                    let updated = graph.stages[*producer].update.is_some();
                    let access = if updated { Access::General } else { access };
                    producers[at].push((*producer, access));
                    consumers[*producer].push(at);
                }
                readers.entry(buffer).or_default().push(at);
            }
            if let Some(update) = &stage.update {
                let overwritten = readers.get(&update.before).into_iter().flatten();
                earlier[at].extend(overwritten.filter(|reader| **reader != at));
                earlier[at].extend(made_by.get(&update.before));
                made_by.insert(update.after.clone(), at);
            }
            made_by.extend(stage.buffers.iter().map(|buffer| (buffer.clone(), at)));
        }
        let (group_of, kinds, members) = (vec![None; count], Vec::new(), Vec::new());
        Partition { graph, producers, consumers, earlier, group_of, kinds, members }
    }

    fn stage(&self, at: usize) -> &'a Stage {
        &self.graph.stages[at]
    }

    fn group(&self, stage: usize) -> usize {
        self.group_of[stage].expect("the stage is in a group")
    }

    /// Returns the stages that are not `folded` in an order of computation in which the stages of
    /// each recurrence stand next to each other, so that all that they read has a group before
    /// them.
    fn order(&self, folded: &[bool]) -> Vec<usize> {
        let mut order = Vec::new();
        let mut done = folded.to_vec();
        (0..folded.len()).for_each(|at| self.visit_stage(at, &mut done, &mut order));
        order
    }

    fn visit_stage(&self, at: usize, done: &mut [bool], order: &mut Vec<usize>) {
        if done[at] {
            return;
        }
        let Some(id) = self.recurrence(at) else {
            done[at] = true;
            return order.push(at);
        };
        let members: Vec<usize> =
            (0..done.len()).filter(|other| self.recurrence(*other) == Some(id)).collect();
        members.iter().for_each(|member| done[*member] = true);
        // What the recurrence depends on may be declared behind its first stage.
        let mut open = members.clone();
        let mut needed = Vec::new();
        while let Some(next) = open.pop() {
            for producer in self.before(next) {
                if !done[producer] && !needed.contains(&producer) {
                    needed.push(producer);
                    open.push(producer);
                }
            }
        }
        needed.sort_unstable();
        needed.into_iter().for_each(|producer| self.visit_stage(producer, done, order));
        order.extend(members);
    }

    /// The stages that have to be computed before a stage.
    fn before(&self, at: usize) -> impl Iterator<Item = usize> {
        let producers = self.producers[at].iter().map(|(producer, _)| *producer);
        producers.chain(self.earlier[at].iter().copied())
    }

    /// The groups that compute a stage; a moved one has several.
    fn holders(&self, at: usize) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(move |group| self.members[*group].contains(&at))
    }

    fn recurrence(&self, at: usize) -> Option<usize> {
        self.stage(at).recurrence.as_ref().map(|recurrence| recurrence.id)
    }

    /// Puts a stage into the group of one of its producers, or into a new one; the stages of a
    /// recurrence into a group of their own.
    fn add(&mut self, at: usize) {
        if let Some(id) = self.recurrence(at) {
            let of = |members: &Vec<usize>| self.recurrence(members[0]) == Some(id);
            let known = self.members.iter().position(of);
            let group = known.unwrap_or(self.members.len());
            if known.is_none() {
                self.kinds.push(Kind::Heavy);
                self.members.push(Vec::new());
            }
            self.members[group].push(at);
            self.group_of[at] = Some(group);
            return;
        }
        let contraction = is_contraction(self.stage(at));
        let mut candidates: Vec<usize> =
            self.producers[at].iter().map(|(producer, _)| self.group(*producer)).collect();
        candidates.sort_unstable();
        candidates.dedup();
        // The latest group: its other operands are computed by then.
        let joined = candidates.into_iter().rev().find(|group| {
            !contraction
                && self.members[*group].len() < MAX_STAGES
                && self.continues(at, *group)
                && !self.updates_same(at, *group)
                && !self.reaches(*group, at)
        });
        let is_reduction = !matches!(self.stage(at).body, Body::Map(_));
        match joined {
            Some(group) => {
                self.members[group].push(at);
                self.group_of[at] = Some(group);
                if is_reduction {
                    self.kinds[group] = Kind::Rows;
                }
            }
            None => {
                let by_rows = is_reduction
                    && !contraction
                    && reads(self.stage(at)).iter().all(|(_, access)| *access < Access::General);
                let kind = match (is_reduction, by_rows) {
                    (false, _) => Kind::Maps,
                    (true, true) => Kind::Rows,
                    (true, false) => Kind::Heavy,
                };
                self.group_of[at] = Some(self.kinds.len());
                self.kinds.push(kind);
                self.members.push(vec![at]);
            }
        }
    }

    /// Whether a stage continues a group: it is elementwise over the group's results, or over the
    /// same rows.
    fn continues(&self, at: usize, group: usize) -> bool {
        let is_reduction = !matches!(self.stage(at).body, Body::Map(_));
        let mut inside = self.producers[at]
            .iter()
            .filter(|(producer, _)| self.group(*producer) == group)
            .peekable();
        let shape = |at: usize| -> Vec<Expr> {
            self.stage(at).axes.iter().map(|axis| axis.extent.clone()).collect()
        };
        let larger = |at: usize, than: usize| !is_covered(&shape(at), &shape(than));
        match self.kinds[group] {
            Kind::Rows => {
                // The group's largest tensor, read or computed, bounds what joins.
                let widest = self.members[group].iter().flat_map(|member| {
                    let read = reads(self.stage(*member)).into_iter().map(|(buffer, _)| buffer);
                    read.chain(self.stage(*member).buffers.iter().cloned())
                });
                let own = shape(at);
                let fits = widest.into_iter().any(|buffer| is_covered(&own, &buffer.shape));
                fits && inside.all(|(_, access)| *access < Access::General)
            }
            Kind::Heavy => {
                !is_reduction
                    && inside.all(|(producer, access)| {
                        *access == Access::Elementwise && !larger(at, *producer)
                    })
            }
            Kind::Maps => !is_reduction && inside.all(|(_, access)| *access == Access::Elementwise),
        }
    }

    /// Whether a stage updates a tensor that a group updates already. A kernel updates it once.
    fn updates_same(&self, at: usize, group: usize) -> bool {
        let Some(tensor) = self.graph.updated_input(self.stage(at)) else { return false };
        let members = self.members[group].iter();
        members.into_iter().any(|member| {
            self.graph.updated_input(self.stage(*member)).is_some_and(|other| other == tensor)
        })
    }

    /// Whether another group on the way from `group` to the stage `at` would make a cycle.
    fn reaches(&self, group: usize, at: usize) -> bool {
        let others = self.before(at).map(|producer| self.group(producer));
        self.depends(others.filter(|other| *other != group).collect(), group)
    }

    /// Whether one of the groups `open` is `group`, or has to be computed after it.
    fn depends(&self, mut open: Vec<usize>, group: usize) -> bool {
        let mut seen = FxHashSet::default();
        while let Some(next) = open.pop() {
            if next == group {
                return true;
            }
            if seen.insert(next) {
                open.extend(self.inputs_of(next));
            }
        }
        false
    }

    /// The groups that have to be computed before a group.
    fn inputs_of(&self, group: usize) -> Vec<usize> {
        let mut inputs = Vec::new();
        for member in &self.members[group] {
            let producers = self.producers[*member].iter();
            inputs.extend(producers.map(|(producer, _)| self.group(*producer)));
            let earlier = self.earlier[*member].iter();
            inputs.extend(earlier.flat_map(|stage| self.holders(*stage)));
        }
        inputs.retain(|other| *other != group);
        inputs
    }

    /// Whether stages can move to the group `reader`, which is computed later: it must not come
    /// after an `update` of what they read.
    fn can_move(&self, stages: &[usize], reader: usize) -> bool {
        let reads_old =
            |update: &usize| self.earlier[*update].iter().any(|reader| stages.contains(reader));
        let updates = (0..self.earlier.len()).filter(reads_old);
        updates
            .map(|update| self.group(update))
            .all(|update| update == reader || !self.depends(vec![reader], update))
    }

    /// Moves the groups of maps that one group alone reads to that group.
    fn absorb(&mut self) {
        for group in (0..self.members.len()).rev() {
            let is_output = |at: &usize| self.stage(*at).output;
            if self.kinds[group] != Kind::Maps || self.members[group].iter().any(is_output) {
                continue;
            }
            let mut readers: Vec<usize> = self.members[group]
                .iter()
                .flat_map(|member| &self.consumers[*member])
                .map(|reader| self.group(*reader))
                .filter(|reader| *reader != group)
                .collect();
            readers.sort_unstable();
            readers.dedup();
            let [reader] = readers[..] else { continue };
            if self.gathers_for_contraction(group, &[reader]) || self.shortens_rows(group, reader) {
                continue;
            }
            if self.members[group].len() + self.members[reader].len() > MAX_STAGES
                || !self.can_move(&self.members[group], reader)
            {
                continue;
            }
            let moved = std::mem::take(&mut self.members[group]);
            moved.iter().for_each(|at| self.group_of[*at] = Some(reader));
            self.members[reader].extend(moved);
        }
    }

    /// Whether a group moves elements at a stride, and one of its readers has a contraction.
    fn gathers_for_contraction(&self, group: usize, readers: &[usize]) -> bool {
        let strided = |at: &usize| is_strided(self.stage(*at));
        let contracts =
            |reader: &usize| self.members[*reader].iter().any(|at| is_contraction(self.stage(*at)));
        self.members[group].iter().any(strided) && readers.iter().any(contracts)
    }

    /// Whether a contraction of the group `reader` has long loops, over rows and columns as one,
    /// that the index arithmetic of `group` would cut into rows.
    ///
    /// Before: a convolution of 1 x 1 reads `T[c, x_y: 169]`.
    /// With the stage `T[c, x, y] = V[c, x // 4, x % 4, y]`: it reads 13 elements at a time.
    fn shortens_rows(&self, group: usize, reader: usize) -> bool {
        let stages = |group: usize| self.members[group].iter().map(|at| self.stage(*at));
        let contractions = stages(reader).filter(|stage| is_contraction(stage));
        let operands = contractions.flat_map(reads).map(|(operand, _)| operand);
        operands.into_iter().any(|operand| {
            merges_last_dims(stages(reader), &operand)
                && !merges_last_dims(stages(reader).chain(stages(group)), &operand)
        })
    }

    /// Returns the groups in an order in which they can run, with the moves that they repeat.
    fn groups(mut self) -> Vec<Group> {
        self.repeat_moves();
        let mut order = Vec::new();
        let mut done = vec![false; self.members.len()];
        let mut starts: Vec<usize> =
            (0..self.members.len()).filter(|group| !self.members[*group].is_empty()).collect();
        starts.sort_by_key(|group| self.members[*group].iter().max().copied());
        for group in starts {
            self.visit(group, &mut done, &mut order);
        }
        order
            .into_iter()
            .map(|group| {
                let mut stages = self.members[group].clone();
                stages.sort_unstable();
                stages.dedup();
                let is_main = |at: &&usize| !matches!(self.stage(**at).body, Body::Map(_));
                let main = stages.iter().rfind(is_main).or(stages.last());
                let main = *main.expect("a group has stages");
                Group { stages, main }
            })
            .collect()
    }

    /// Gives each reader of a group that only moves elements a copy of its stage.
    fn repeat_moves(&mut self) {
        for group in (0..self.members.len()).rev() {
            let [at] = self.members[group][..] else { continue };
            if self.stage(at).output || !is_movement(self.stage(at)) {
                continue;
            }
            // Its readers may have been repeated themselves.
            let is_reader = |group: &usize| {
                self.members[*group].iter().any(|member| self.consumers[at].contains(member))
            };
            let readers: Vec<usize> = (0..self.members.len()).filter(is_reader).collect();
            if readers.iter().any(|reader| self.members[*reader].len() >= MAX_STAGES)
                || self.gathers_for_contraction(group, &readers)
                || !readers.iter().all(|reader| self.can_move(&[at], *reader))
            {
                continue;
            }
            self.members[group].clear();
            for reader in readers {
                self.members[reader].push(at);
            }
        }
    }

    fn visit(&self, group: usize, done: &mut [bool], order: &mut Vec<usize>) {
        let mut open = vec![(group, false)];
        while let Some((group, leaving)) = open.pop() {
            if leaving {
                order.push(group);
                continue;
            }
            if std::mem::replace(&mut done[group], true) {
                continue;
            }
            open.push((group, true));
            for member in &self.members[group] {
                for (producer, _) in &self.producers[*member] {
                    if !self.members[group].contains(producer) {
                        open.push((self.group(*producer), false));
                    }
                }
                let earlier = self.earlier[*member].iter();
                let holders = earlier.flat_map(|stage| self.holders(*stage));
                open.extend(holders.filter(|holder| *holder != group).map(|other| (other, false)));
            }
        }
    }
}

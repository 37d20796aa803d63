//! The loops over the steps of a recurrence that directives split, reordered or skewed.
//!
//! A read of an earlier step has a distance along each axis of the steps: `D[i - 1, j]` has (1, 0).
//! The distances along the loops follow from it, and all reads must find their step computed: of
//! the loops along which the distance may differ from 0, the outermost one has a positive distance
//! (Wolf and Lam, "A loop transformation theory and an algorithm to maximize parallelism", 1991).
//! That loop *carries* the read. A loop that carries none may be parallel or vectorized.
//!
//! With the reads (1, 0), (0, 1) and (1, 1), `D.skew(i, j)` gives the distances 1, 1 and 2 along
//! the waves: the loop over the waves carries all of them, and that inside a wave none.

use super::state::{AxisId, Factor, Relation, Schedule, Stage, StageId, Tail};
use crate::diag::Span;
use crate::te::StepRead;

/// The loops over the steps of one stage.
pub(super) struct StepLoops<'a> {
    stage: &'a Stage,
    /// Whether each axis is made of the axes of the steps.
    of_steps: Vec<bool>,
    /// The loops that carry a read, each with one of the reads, by their places among the leaves.
    carriers: Vec<(usize, &'a StepRead)>,
    /// A read and the outermost loop that may run its step too late.
    pub(super) violation: Option<(usize, &'a StepRead)>,
}

/// Bounds of a distance; `None` if it is unbounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Distance {
    least: Option<i64>,
    most: Option<i64>,
}

const ANY: Distance = Distance { least: None, most: None };
const ZERO: Distance = Distance { least: Some(0), most: Some(0) };

/// Whether no directive changed the loops over the steps.
pub(super) fn in_declared_order(stage: &Stage, steps: usize) -> bool {
    (0..steps).all(|at| {
        let axis = stage.axis(AxisId(at));
        stage.leaves.get(at) == Some(&AxisId(at)) && axis.annotation.is_none()
    })
}

/// Returns the number of outermost loops of a stage in which the stages of its recurrence run one
/// after the other: the steps as declared, or the loops down to the last one that carries a read.
pub fn step_depth(schedule: &Schedule, id: StageId) -> Option<usize> {
    let stage = schedule.stage(id);
    let steps = stage.te.recurrence.as_ref()?.steps;
    if in_declared_order(stage, steps) {
        return Some(steps);
    }
    Some(StepLoops::of(schedule, id).depth())
}

impl<'a> StepLoops<'a> {
    /// Finds the loops that carry the reads of a recurrence.
    pub(super) fn of(schedule: &'a Schedule, id: StageId) -> StepLoops<'a> {
        let stage = schedule.stage(id);
        let recurrence = stage.te.recurrence.as_ref().expect("it belongs to a recurrence");
        let mut of_steps = vec![false; stage.axes.len()];
        of_steps[..recurrence.steps].fill(true);
        for relation in &stage.relations {
            let any = relation.replaced().iter().any(|axis| of_steps[axis.0]);
            relation.made().iter().for_each(|axis| of_steps[axis.0] |= any);
        }
        let mut loops = StepLoops { stage, of_steps, carriers: Vec::new(), violation: None };
        let members = schedule.graph.stages.iter().filter_map(|te| te.recurrence.as_ref());
        let members = members.filter(|other| other.id == recurrence.id);
        for read in members.flat_map(|member| &member.reads) {
            loops.place(read);
        }
        loops
    }

    /// Returns the number of loops down to the last one that carries a read; at least 1.
    pub(super) fn depth(&self) -> usize {
        self.carriers.iter().map(|(at, _)| at + 1).max().unwrap_or(1)
    }

    /// Returns a read that a loop carries.
    pub(super) fn carried_by(&self, at: usize) -> Option<&'a StepRead> {
        self.carriers.iter().find(|(carrier, _)| *carrier == at).map(|(_, read)| *read)
    }

    /// Whether a loop runs over steps.
    pub(super) fn is_over_steps(&self, leaf: AxisId) -> bool {
        self.of_steps[leaf.0]
    }

    /// Returns the directive that makes loops over steps of which the distances are unknown: a
    /// `fuse`, a `skew` with another axis, or a split whose last part begins earlier.
    pub(super) fn unknown_order(&self) -> Option<(&'static str, Span)> {
        self.stage.relations.iter().find_map(|relation| {
            let replaced = relation.replaced();
            let of_steps = |axis: &AxisId| self.of_steps[axis.0];
            match relation {
                Relation::Split { tail, span, .. } => (of_steps(&replaced[0])
                    && *tail == Some(Tail::Shift))
                .then_some(("split", *span)),
                Relation::Fuse { span, .. } => {
                    replaced.iter().any(of_steps).then_some(("fuse", *span))
                }
                Relation::Skew { span, .. } => {
                    let count = replaced.iter().filter(|axis| of_steps(axis)).count();
                    (count == 1).then_some(("skew", *span))
                }
            }
        })
    }

    /// Describes a loop by the axes of the steps that it is made of, whatever its name.
    pub(super) fn describe(&self, axis: AxisId) -> String {
        let relation = self.stage.relations.iter().find(|one| one.made().contains(&axis));
        match relation {
            None => format!("{}", axis.0),
            Some(Relation::Split { parent, outer, factor, .. }) => {
                let part = if axis == *outer { "outer" } else { "inner" };
                format!("{part} {factor:?} of ({})", self.describe(*parent))
            }
            Some(Relation::Fuse { parts, .. }) => {
                let parts: Vec<String> = parts.iter().map(|part| self.describe(*part)).collect();
                format!("fused ({})", parts.join(", "))
            }
            Some(Relation::Skew { outer, inner, factor, wave, .. }) if axis == *wave => {
                let (outer, inner) = (self.describe(*outer), self.describe(*inner));
                format!("{factor}*({outer}) + ({inner})")
            }
            Some(Relation::Skew { outer, .. }) => {
                format!("position of ({})", self.describe(*outer))
            }
        }
    }

    /// Finds the loops that carry a read.
    fn place(&mut self, read: &'a StepRead) {
        let mut distances = Distances::of(self.stage, read);
        for (at, leaf) in self.stage.leaves.iter().enumerate() {
            if !self.of_steps[leaf.0] {
                continue;
            }
            match distances.0[leaf.0] {
                // No read has such a distance.
                _ if distances.is_impossible() => return,
                ZERO => {}
                Distance { least: Some(least), .. } if least >= 0 => {
                    self.carriers.push((at, read));
                    if least > 0 {
                        return;
                    }
                    distances.0[leaf.0] = ZERO;
                    distances.narrow(self.stage);
                }
                _ => {
                    self.carriers.push((at, read));
                    self.violation = self.violation.or(Some((at, read)));
                    return;
                }
            }
        }
    }
}

/// The distances of a read along all axes of a stage.
struct Distances(Vec<Distance>);

impl Distances {
    fn of(stage: &Stage, read: &StepRead) -> Distances {
        let mut distances = Distances(vec![ANY; stage.axes.len()]);
        for (distance, (least, most)) in distances.0.iter_mut().zip(&read.distances) {
            *distance = Distance { least: *least, most: *most };
        }
        for relation in &stage.relations {
            if let Relation::Split { inner, factor: Factor::Inner(factor), .. } = relation {
                let limit = factor - 1;
                distances.0[inner.0] = Distance { least: Some(-limit), most: Some(limit) };
            }
        }
        distances.narrow(stage);
        distances
    }

    /// Whether a lower bound is larger than the upper bound.
    fn is_impossible(&self) -> bool {
        self.0.iter().any(|one| one.least.zip(one.most).is_some_and(|(least, most)| least > most))
    }

    /// Narrows the bounds by the relations between the axes until nothing changes. Each round
    /// follows one more relation from an axis to another.
    fn narrow(&mut self, stage: &Stage) {
        for _ in 0..=2 * stage.relations.len() {
            let before = self.0.clone();
            for relation in &stage.relations {
                self.narrow_by(relation);
            }
            if self.0 == before || self.is_impossible() {
                return;
            }
        }
    }

    fn narrow_by(&mut self, relation: &Relation) {
        match relation {
            Relation::Split { parent, outer, inner, factor: Factor::Inner(factor), .. } => {
                self.narrow_sum(*parent, (*factor, *outer), *inner);
            }
            Relation::Split { parent, outer, inner, factor: Factor::Outer(_), .. } => {
                // The extent of a part is positive and otherwise unknown.
                let whole = self.0[parent.0];
                let least = whole.least.map(|least| least.min(0));
                let most = whole.most.map(|most| most.max(0));
                self.meet(*outer, Distance { least, most });
                if self.0[outer.0] == ZERO {
                    self.meet(*inner, whole);
                    self.meet(*parent, self.0[inner.0]);
                }
            }
            Relation::Skew { outer, inner, factor, wave, position, .. } => {
                self.narrow_sum(*wave, (*factor, *outer), *inner);
                self.meet(*position, self.0[outer.0]);
                self.meet(*outer, self.0[position.0]);
            }
            Relation::Fuse { .. } => {}
        }
    }

    /// Narrows three axes of which `whole = factor*outer + inner`.
    fn narrow_sum(&mut self, whole: AxisId, (factor, outer): (i64, AxisId), inner: AxisId) {
        let all = |axis: AxisId, this: &Distances| (this.0[axis.0].least, this.0[axis.0].most);
        let times = |bound: Option<i64>| bound.and_then(|bound| bound.checked_mul(factor));
        let add = |a: Option<i64>, b: Option<i64>| a.zip(b).and_then(|(a, b)| a.checked_add(b));
        let less = |a: Option<i64>, b: Option<i64>| a.zip(b).and_then(|(a, b)| a.checked_sub(b));
        let ((low, high), (first, last)) = (all(outer, self), all(inner, self));
        let least = add(times(low), first);
        self.meet(whole, Distance { least, most: add(times(high), last) });
        let (least, most) = all(whole, self);
        self.meet(
            inner,
            Distance { least: less(least, times(high)), most: less(most, times(low)) },
        );
        // outer = (whole - inner) / factor, rounded inwards.
        let least = less(least, last).map(|least| -(-least).div_euclid(factor));
        let most = less(most, first).map(|most| most.div_euclid(factor));
        self.meet(outer, Distance { least, most });
    }

    fn meet(&mut self, axis: AxisId, other: Distance) {
        let one = &mut self.0[axis.0];
        one.least = one.least.max(other.least);
        one.most = match (one.most, other.most) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

//! The stages of recurrences in the model: their steps run in order, and those that only the same
//! step reads are computed in it.

use super::{Loop, Model, Place, Stage};
use crate::tree::Program;

impl Model {
    /// Pins the stages that keep their steps, and attaches the others to the steps of the first
    /// stage that reads them and keeps its own.
    pub(super) fn read_recurrences(&mut self, program: &Program) {
        let infos = &program.stages;
        for at in (0..infos.len()).rev().filter(|at| infos[*at].steps > 0) {
            let name = &infos[at].name;
            let outside = |other: usize| {
                self.stages[other].recurrence != self.stages[at].recurrence
                    && infos[other].reads.contains(name)
            };
            let kept = infos[at].output
                || infos.iter().any(|other| other.earlier.contains(name))
                || (0..infos.len()).any(outside);
            for step in &mut self.stages[at].loops[..infos[at].steps] {
                step.used = true;
            }
            if kept {
                self.stages[at].pinned = true;
                continue;
            }
            let host = |reader: usize| match self.stages[reader].place {
                Place::At(host, _) => host,
                _ => reader,
            };
            let readers = (at + 1..infos.len()).filter(|other| infos[*other].reads.contains(name));
            let Some(host) = readers.map(host).min() else { continue };
            let step = self.stages[host].loops[infos[at].steps - 1].id;
            self.stages[at].place = Place::At(host, step);
        }
    }

    /// Skews the two axes of the steps of a recurrence, or the tiles of these, or changes their
    /// order, for all its stages. The loops inside of the waves may then be parallel and
    /// vectorized, if no step reads along them.
    pub(super) fn skew_steps(&mut self) {
        let is_declared = |stage: &Stage| {
            let root = |l: &Loop| l.root && l.mark.is_none();
            stage.steps == 2 && stage.loops.iter().take(2).all(root)
        };
        let of = |at: usize| self.stages[at].recurrence;
        let members = |id| (0..self.stages.len()).filter(move |at| of(*at) == Some(id));
        let fits = |id: &usize| {
            let at_root = |at: usize| self.stages[at].place == Place::Root;
            members(*id).all(|at| at_root(at) && is_declared(&self.stages[at]))
        };
        let ids: Vec<usize> = (0..self.stages.len()).filter_map(of).filter(fits).collect();
        if ids.is_empty() {
            return;
        }
        let id = self.pick(&ids);
        let group: Vec<usize> =
            (0..self.stages.len()).filter(|at| self.stages[*at].recurrence == Some(id)).collect();
        let (factor, a, b) = (self.pick(&[1, 1, 1, 2, 3, 5]), self.factor(), self.factor());
        let (turned, kind) = (self.chance(15), self.int(0, 9));
        for stage in group {
            let [x, y] = [0, 1].map(|at| self.stages[stage].loops[at].name.clone());
            let name = self.stages[stage].name.clone();
            if kind < 5 {
                self.add_skew(stage, if turned { [1, 0] } else { [0, 1] }, factor);
            } else if kind < 8 && self.named {
                let kids = vec![self.number(a), self.number(b)];
                let names: Vec<String> = ["o", "o", "i", "i"].map(|part| self.fresh(part)).into();
                let call = format!("{name}.tile({x}, {y}, $, $)");
                self.directive("tile", call, kids, &names);
                let parts = |at: usize| [names[at].clone(), names[at + 2].clone()];
                self.divide(stage, 1, Some(b), None, parts(1));
                self.divide(stage, 0, Some(a), None, parts(0));
                self.permute(stage, &[0, 2, 1, 3]);
                self.add_skew(stage, [0, 1], factor);
            } else {
                let call = format!("{name}.reorder({y}, {x})");
                self.directive("reorder", call, vec![], &[]);
                self.permute(stage, &[1, 0]);
            }
            self.also("skew of steps");
            // The loop over the waves carries the reads; the model does not know about others.
            self.stages[stage].steps = 1;
            self.stages[stage].loops[0].used = true;
        }
    }

    /// Returns the place of a stage that a directive adds in front of a reader.
    pub(super) fn place_of_added(&self, reader: usize) -> Place {
        let stage = &self.stages[reader];
        match (stage.recurrence, stage.place) {
            (Some(_), Place::Root) if stage.steps > 0 => {
                Place::At(reader, stage.loops[stage.steps - 1].id)
            }
            (Some(_), place @ Place::At(..)) => place,
            _ => Place::Root,
        }
    }

    /// Whether a loop is a step of a recurrence.
    pub(super) fn is_step(&self, stage: usize, id: usize) -> bool {
        let stage = &self.stages[stage];
        // The steps may be fused.
        stage.loops.iter().take(stage.steps).any(|l| l.id == id)
    }

    /// Returns the stage at the root that a stage is attached to, directly or through others.
    pub(super) fn root_of(&self, mut stage: usize) -> usize {
        for _ in 0..self.stages.len() {
            let Place::At(host, _) = self.stages[stage].place else { break };
            stage = host;
        }
        stage
    }

    /// Whether the loop `at` of `target` is the step of a later stage of its recurrence too.
    pub(super) fn shares_step(&self, target: usize, at: usize, reader: usize) -> bool {
        let root = self.root_of(reader);
        let stage = &self.stages[target];
        stage.recurrence.is_some()
            && stage.place == Place::Root
            && at < stage.steps
            && target <= root
            && self.stages[root].recurrence == stage.recurrence
    }
}

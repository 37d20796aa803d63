//! The stages of recurrences in the model: their steps run in order, and those that only the same
//! step reads are computed in it.

use super::{Model, Place};
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
        stage.loops[..stage.steps].iter().any(|l| l.id == id)
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

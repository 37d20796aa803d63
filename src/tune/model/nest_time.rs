//! The estimated time by nest.

use super::plan::CostPlan;
use std::collections::BTreeSet;

/// The part of an estimate that the outermost loops of a stage take.
#[derive(Clone, Debug, PartialEq)]
pub struct NestTime {
    /// The stages of the loops: the outermost one, and those that are computed inside.
    pub stages: BTreeSet<String>,
    /// Seconds of a call.
    pub seconds: f64,
}

/// The times so far.
pub(super) struct NestTimes {
    /// By frame: its nest. What belongs to the whole kernel has none.
    of_frame: Vec<Option<usize>>,
    nests: Vec<NestTime>,
}

impl NestTimes {
    /// Finds the nests of a plan.
    pub(super) fn new(plan: &CostPlan) -> NestTimes {
        let stage = |at: usize| plan.frames[at].name.split(": ").next().unwrap_or_default();
        let mut outermost: Vec<&str> = Vec::new();
        let mut of_frame = vec![None; plan.frames.len()];
        let mut nests: Vec<NestTime> = Vec::new();
        for at in 1..plan.frames.len() {
            let nest = of_frame[plan.frames[at].parent].unwrap_or_else(|| {
                // Several loops of a stage, such as a body and its border, are one nest.
                outermost.iter().position(|one| *one == stage(at)).unwrap_or_else(|| {
                    outermost.push(stage(at));
                    nests.push(NestTime { stages: BTreeSet::new(), seconds: 0.0 });
                    nests.len() - 1
                })
            });
            of_frame[at] = Some(nest);
            nests[nest].stages.insert(stage(at).to_string());
        }
        NestTimes { of_frame, nests }
    }

    /// Adds seconds to the nest of a frame.
    pub(super) fn add(&mut self, frame: usize, seconds: f64) {
        if let Some(nest) = self.of_frame[frame] {
            self.nests[nest].seconds += seconds;
        }
    }

    /// Returns the nests in the order in which they run.
    pub(super) fn finish(self) -> Vec<NestTime> {
        self.nests
    }
}

//! Directives that place stages, and the readers of a stage.

use super::{Mark, Model, Place, Stage};

impl Model {
    /// Returns the stages that read a stage, also through inlined ones.
    pub(super) fn readers(&self, name: &str) -> Vec<usize> {
        let mut readers = Vec::new();
        for (at, stage) in self.stages.iter().enumerate() {
            if stage.reads.iter().any(|read| read == name) {
                match stage.place {
                    Place::Inline => readers.extend(self.readers(&stage.name)),
                    _ => readers.push(at),
                }
            }
        }
        readers
    }

    /// Returns the loop in which a stage attached to `at` is computed, outside of vector lanes.
    pub(super) fn depth(&self, stage: usize, at: usize) -> Option<usize> {
        let loops = &self.stages[stage].loops;
        let lanes = loops[..=at].iter().position(|l| l.mark == Some(Mark::Vectorize));
        lanes.map_or(Some(at), |lanes| lanes.checked_sub(1))
    }

    /// Whether the loop at `at` of `target` encloses the code of `reader`.
    pub(super) fn encloses(&self, target: usize, at: usize, reader: usize) -> bool {
        if target == reader || self.shares_step(target, at, reader) {
            return true;
        }
        let mut child = reader;
        for _ in 0..self.stages.len() {
            let Place::At(stage, id) = self.stages[child].place else { return false };
            if stage == target {
                let loops = &self.stages[target].loops;
                let Some(place) = loops.iter().position(|l| l.id == id) else { return false };
                return self.depth(target, place) >= self.depth(target, at);
            }
            child = stage;
        }
        false
    }

    pub(super) fn is_within(&self, inner: usize, outer: usize) -> bool {
        let mut child = inner;
        for _ in 0..=self.stages.len() {
            if child == outer {
                return true;
            }
            let Place::At(stage, _) = self.stages[child].place else { return false };
            child = stage;
        }
        false
    }

    pub(super) fn compute_at(&mut self) {
        let movable: Vec<usize> = (0..self.stages.len())
            .filter(|at| {
                !self.stages[*at].output
                    && !self.stages[*at].pinned
                    && !self.stages[*at].stored
                    && self.stages[*at].place != Place::Inline
            })
            .collect();
        if movable.is_empty() {
            return;
        }
        let stage = self.pick(&movable);
        self.attach(stage);
    }

    /// Attaches a stage to a loop around all its readers; false if there is none.
    pub(super) fn attach(&mut self, stage: usize) -> bool {
        let readers = self.readers(&self.stages[stage].name.clone());
        let illegal = self.breaks();
        let mut points = Vec::new();
        for target in 0..self.stages.len() {
            if target == stage || self.stages[target].place == Place::Inline {
                continue;
            }
            for at in 0..self.stages[target].loops.len() {
                let covers = readers.iter().all(|reader| self.encloses(target, at, *reader));
                let last = self.stages[target].steps <= at + 1;
                let inside = self.stages[stage].recurrence.is_none() || last;
                let legal = covers && inside && !readers.is_empty();
                if illegal || (legal && !self.is_within(target, stage)) {
                    points.push((target, at));
                }
            }
        }
        if points.is_empty() {
            return false;
        }
        let (target, at) = self.pick(&points);
        let (name, to) = (self.stages[stage].name.clone(), self.stages[target].name.clone());
        let axis = self.stages[target].loops[at].clone();
        let call = format!("{name}.compute_at({to}, {})", axis.name);
        self.directive("compute_at", call, vec![], &[]);
        self.stages[stage].place = Place::At(target, axis.id);
        self.stages[stage].touched = true;
        self.stages[target].loops[at].used = true;
        for l in &mut self.stages[stage].loops {
            if !l.reduce && l.root {
                l.extent = None;
            }
        }
        true
    }

    pub(super) fn has_guests(&self, stage: usize) -> bool {
        // The stages of a step stand in its loop without a directive.
        let attached = |place: Place| match place {
            Place::At(at, id) => at == stage && !self.is_step(at, id),
            _ => false,
        };
        self.stages.iter().any(|other| attached(other.place))
    }

    pub(super) fn compute_inline(&mut self) {
        let illegal = self.breaks();
        let fits = |at: usize| {
            let stage = &self.stages[at];
            let legal = !stage.output
                && !stage.pinned
                && !stage.reduction
                && !self.has_guests(at)
                && !stage.kept;
            stage.place != Place::Inline && (legal || illegal)
        };
        let fitting: Vec<usize> = (0..self.stages.len()).filter(|at| fits(*at)).collect();
        if fitting.is_empty() {
            return;
        }
        let stage = self.pick(&fitting);
        let call = format!("{}.compute_inline()", self.stages[stage].name);
        self.directive("compute_inline", call, vec![], &[]);
        let breaks = self.stages[stage].output || self.stages[stage].reduction;
        self.stages[stage].is_illegal |= breaks;
        self.inline(stage);
    }

    /// Inlines a stage, after which loops may no longer enclose all readers of attached stages.
    pub(super) fn inline(&mut self, stage: usize) {
        self.stages[stage].place = Place::Inline;
        self.stages[stage].touched = true;
        for at in 0..self.stages.len() {
            self.recheck(at);
        }
    }

    /// Moves a stage to the root if its loop no longer encloses all its readers.
    pub(super) fn recheck(&mut self, stage: usize) {
        let Place::At(target, id) = self.stages[stage].place else { return };
        let readers = self.readers(&self.stages[stage].name.clone());
        let place = self.stages[target].loops.iter().position(|l| l.id == id);
        let covers = |at: usize| readers.iter().all(|reader| self.encloses(target, at, *reader));
        if place.is_some_and(covers) && !readers.is_empty() {
            return;
        }
        if self.breaks() {
            return;
        }
        let call = format!("{}.compute_root()", self.stages[stage].name);
        self.directive("compute_root", call, vec![], &[]);
        (self.stages[stage].place, self.stages[stage].stored) = (Place::Root, false);
    }

    pub(super) fn compute_root(&mut self) {
        let illegal = self.breaks();
        let fits = |stage: &Stage| {
            let inside = stage.recurrence.is_some() && stage.steps == 0;
            !stage.is_illegal && (illegal || !inside)
        };
        let free: Vec<usize> =
            (0..self.stages.len()).filter(|at| fits(&self.stages[*at])).collect();
        if free.is_empty() {
            return;
        }
        let stage = self.pick(&free);
        let call = format!("{}.compute_root()", self.stages[stage].name);
        self.directive("compute_root", call, vec![], &[]);
        (self.stages[stage].place, self.stages[stage].stored) = (Place::Root, false);
        self.stages[stage].touched = true;
        for at in 0..self.stages.len() {
            self.recheck(at);
        }
    }

    pub(super) fn auto_inline(&mut self) {
        self.push("auto_inline_injective", "auto_inline_injective()".to_string(), vec![], vec![]);
        for at in 0..self.stages.len() {
            let stage = &self.stages[at];
            let kept = stage.recurrence.is_some() && stage.pinned;
            if !stage.touched && !stage.output && !stage.reduction && !kept {
                self.stages[at].place = Place::Inline;
                self.stages[at].touched = true;
            }
        }
        for at in 0..self.stages.len() {
            self.recheck(at);
        }
    }
}

//! Directives that keep elements of earlier iterations: `store_at` and `store_root`.

use super::{Loop, Mark, Model, Place, Stage};

/// A loop in which a stage is computed, and the place of its buffer.
#[derive(Clone, Copy, PartialEq)]
struct Window {
    target: usize,
    at: usize,
    /// The loop that has the buffer; the root if `None`.
    inside: Option<usize>,
}

impl Model {
    /// Attaches stages to a loop of a reader and stores them outside of it: mostly several, as
    /// chains of stencils slide together.
    pub(super) fn store_at(&mut self) {
        if self.chance(50) {
            self.split("split factor", None);
        }
        let illegal = self.breaks();
        let mut last: Option<Window> = None;
        for _ in 0..3 {
            let mut found: Vec<(usize, Window)> = Vec::new();
            for stage in 0..self.stages.len() {
                let windows = self.windows(stage, illegal).into_iter();
                found.extend(windows.map(|window| (stage, window)));
            }
            if last.is_some() {
                found.retain(|(_, window)| Some(*window) == last);
            }
            if found.is_empty() {
                return;
            }
            let (stage, window) = self.pick(&found);
            self.slide(stage, window);
            last = Some(window);
            if self.chance(30) {
                return;
            }
        }
    }

    /// Returns the loops in which a stage can be computed with its buffer outside of serial ones.
    fn windows(&self, stage: usize, illegal: bool) -> Vec<Window> {
        let own = &self.stages[stage];
        let shares = |at: usize| {
            self.stages[at].host.is_some() || self.stages.iter().any(|s| s.host == Some(at))
        };
        let is_free = |stage: &Stage| {
            !stage.output && !stage.pinned && !stage.kept && stage.recurrence.is_none()
        };
        if own.place == Place::Inline || !is_free(own) || shares(stage) {
            return Vec::new();
        }
        let readers = self.readers(&own.name);
        let mut windows = Vec::new();
        for (target, reader) in self.stages.iter().enumerate() {
            let fits = target != stage
                && reader.place != Place::Inline
                && reader.recurrence.is_none()
                && !shares(target)
                && !readers.is_empty()
                && !self.is_within(target, stage);
            if !fits {
                continue;
            }
            for at in 0..reader.loops.len() {
                let covers = readers.iter().all(|reader| self.encloses(target, at, *reader));
                if !covers || self.depth(target, at) != Some(at) {
                    continue;
                }
                let serial = |l: &Loop| matches!(l.mark, None | Some(Mark::Unroll)) || illegal;
                let root = (reader.place == Place::Root).then_some(None);
                for inside in root.into_iter().chain((0..at).map(Some)) {
                    let first = inside.map_or(0, |inside| inside + 1);
                    if reader.loops[first..=at].iter().all(serial) {
                        windows.push(Window { target, at, inside });
                    }
                }
            }
        }
        windows
    }

    fn slide(&mut self, stage: usize, window: Window) {
        let Window { target, at, inside } = window;
        let (name, to) = (self.stages[stage].name.clone(), self.stages[target].name.clone());
        let axis = self.stages[target].loops[at].clone();
        self.directive(
            "compute_at",
            format!("{name}.compute_at({to}, {})", axis.name),
            vec![],
            &[],
        );
        let call = match inside {
            None => format!("{name}.store_root()"),
            Some(inside) => {
                let outer = &mut self.stages[target].loops[inside];
                outer.used = true;
                format!("{name}.store_at({to}, {})", outer.name)
            }
        };
        let kind = if inside.is_none() { "store_root" } else { "store_at" };
        self.directive(kind, call, vec![], &[]);
        let first = inside.map_or(0, |inside| inside + 1);
        for l in &mut self.stages[target].loops[first..=at] {
            l.serial = true;
        }
        self.stages[target].loops[at].used = true;
        let own = &mut self.stages[stage];
        own.place = Place::At(target, axis.id);
        (own.touched, own.kept, own.stored) = (true, true, true);
        for l in own.loops.iter_mut().filter(|l| !l.reduce && l.root) {
            l.extent = None;
        }
    }
}

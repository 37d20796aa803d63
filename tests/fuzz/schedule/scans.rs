//! Scans, along a whole axis and in blocks.

use super::{Model, Place, Stage};

impl Model {
    /// Returns a stage whose terms have a condition of this kind and that no directive has changed;
    /// any stage if a rule is broken on purpose.
    pub(super) fn conditional_reduction(
        &mut self,
        wild: bool,
        is_kind: fn(&Stage) -> bool,
    ) -> Option<usize> {
        let fits = |stage: &Stage| {
            let marked = stage.loops.iter().any(|l| l.mark.is_some() || l.used);
            let usual = stage.fresh && is_kind(stage) && !stage.locked;
            stage.place != Place::Inline && !stage.loops.is_empty() && (wild || usual && !marked)
        };
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| fits(&self.stages[*at])).collect();
        (!fitting.is_empty() && self.named).then(|| self.pick(&fitting))
    }

    fn prefix_reduction(&mut self, wild: bool) -> Option<usize> {
        self.conditional_reduction(wild, |stage| stage.prefix.is_some())
    }

    /// Returns the place of the loop over terms that a scan replaces.
    fn term_of_scan(&self, stage: usize) -> Option<usize> {
        let loops = &self.stages[stage].loops;
        let term = loops.iter().position(|l| l.reduce)?;
        // The generator declares the axis that the scan replaces first, or after one other.
        let terms = loops.iter().filter(|l| l.reduce).count();
        let last = terms > 1 && !loops[term].name.starts_with('k');
        Some(term + usize::from(last))
    }

    /// Adds a scan, sometimes along an axis that is split afterwards.
    pub(super) fn scan(&mut self) {
        let wild = self.breaks();
        let Some(stage) = self.prefix_reduction(wild) else { return };
        let (axis, in_order) = match self.stages[stage].prefix.clone() {
            Some(prefix) => prefix,
            None => (self.stages[stage].loops[0].name.clone(), true),
        };
        let old = &self.stages[stage];
        let place = old.loops.iter().position(|l| l.name == axis);
        let allow = !in_order && !old.exact;
        if (allow && !old.commutes && !wild) || place.is_none() {
            return;
        }
        let extra = if allow && !self.breaks() { ", reassociate=true" } else { "" };
        let name = self.stages[stage].name.clone();
        self.directive("scan", format!("{name}.scan({axis}{extra})"), vec![], &[]);
        if !extra.is_empty() {
            self.also("reassociate=true");
        }
        let old = &mut self.stages[stage];
        if !old.fresh
            || old.prefix.is_none()
            || old.loops.iter().any(|l| l.mark.is_some() || l.used)
        {
            old.is_illegal = true;
            return;
        }
        let at = place.expect("it has the loop");
        if let Some(term) = self.term_of_scan(stage) {
            self.stages[stage].loops.remove(term);
        }
        let parts = if self.chance(40) { 2 } else { 1 };
        if parts == 2 {
            let factor = self.factor().min(16);
            let kid = self.number(factor);
            let names = self.part_names(&axis);
            self.directive(
                "split factor",
                format!("{name}.split({axis}, factor=$)"),
                vec![kid],
                &names,
            );
            self.divide(stage, at, Some(factor), None, names);
        }
        for part in at..at + parts {
            self.stages[stage].loops[part].used = true;
        }
        let old = &mut self.stages[stage];
        (old.prefix, old.scatter, old.kept) = (None, None, true);
        self.touch(stage);
    }

    /// Adds a scan in blocks, which adds two stages.
    pub(super) fn scan_blocks(&mut self) {
        let wild = self.breaks();
        let Some(stage) = self.prefix_reduction(wild) else { return };
        let old = self.stages[stage].clone();
        let known = old.prefix.clone().filter(|_| old.fresh && old.place == Place::Root);
        let Some((axis, in_order)) = known else { return };
        let Some(at) = old.loops.iter().position(|l| l.name == axis) else { return };
        // The added stages have an element for each block, and run also if another axis is empty.
        let is_large = old.loops.iter().any(|l| l.extent.is_some_and(|n| n > 1 << 16));
        if (!in_order && !old.exact && !old.commutes && !wild) || self.huge || is_large {
            return;
        }
        let factor = self.factor().clamp(1, 16);
        let kid = self.number(factor);
        let names = self.part_names(&axis);
        let name = old.name.clone();
        let split = format!("{name}.split({axis}, factor=$)");
        self.directive("split factor", split, vec![kid], &names);
        self.divide(stage, at, Some(factor), None, names.clone());
        let extra = if old.exact || self.breaks() { "" } else { ", reassociate=true" };
        let added = [self.fresh("T"), self.fresh("P")];
        let call = format!("{name}.scan({}{extra})", names[1]);
        self.directive("scan blocks", call, vec![], &added);
        if !extra.is_empty() {
            self.also("reassociate=true");
        }
        let Some(term) = self.term_of_scan(stage) else { return };
        let count = self.stages[stage].loops[at].extent;
        let [terms, starts] = added.clone();
        let mut loops = vec![self.new_loop(names[0].clone(), false, count, true)];
        let others = old.declared.iter().filter(|(other, _)| *other != axis);
        let others: Vec<(String, Option<i64>)> = others.cloned().collect();
        for (other, extent) in &others {
            loops.push(self.new_loop(other.clone(), false, *extent, true));
        }
        let mut declared = vec![(names[0].clone(), count)];
        declared.extend(others);
        let first = Stage {
            name: starts.clone(),
            declared: declared.clone(),
            output: false,
            pinned: false,
            dot: false,
            touched: true,
            fresh: false,
            kept: true,
            host: None,
            prefix: None,
            scatter: None,
            reads: vec![terms.clone()],
            ..old.clone()
        };
        let mut sums = Stage { name: terms, fresh: true, kept: false, ..first.clone() };
        sums.reads.clone_from(&old.reads);
        sums.loops.clone_from(&loops);
        for (place, term_loop) in self.stages[stage].loops.clone().into_iter().enumerate() {
            let name = if place == term { names[1].clone() } else { term_loop.name };
            let extent = if place == term { Some(factor) } else { term_loop.extent };
            if term_loop.reduce {
                let new = self.new_loop(name, true, extent, true);
                sums.loops.push(new);
            }
        }
        let mut starting = Stage { loops: Vec::new(), ..first };
        for l in &loops {
            let new = self.new_loop(l.name.clone(), false, l.extent, true);
            starting.loops.push(new);
        }
        starting.loops[0].used = true;
        let old = &mut self.stages[stage];
        old.loops.remove(term);
        old.loops[at + 1].used = true;
        (old.prefix, old.scatter, old.kept) = (None, None, true);
        old.reads.push(starts);
        self.touch(stage);
        self.stages.insert(stage, starting);
        self.shift_places(stage);
        self.stages[stage].place = self.place_of_added(stage + 1);
        self.stages.insert(stage, sums);
        self.shift_places(stage);
        self.stages[stage].place = self.place_of_added(stage + 2);
    }
}

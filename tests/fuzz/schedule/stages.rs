//! Directives that add stages, and directives about memory: copies, `rfactor`, scopes, prefetches.

use super::{Loop, Mark, Model, Place, Stage};

impl Model {
    pub(super) fn scope(&mut self) -> &'static str {
        match self.gpu {
            true => self.pick(&["local", "shared"]),
            false => self.pick(&["local", "local", "global"]),
        }
    }

    pub(super) fn cache_write(&mut self) {
        let illegal = self.breaks();
        let fitting: Vec<usize> = (0..self.stages.len())
            .filter(|at| {
                let stage = &self.stages[*at];
                let used = stage.inner().iter().any(|l| l.used || l.mark.is_some());
                let usual = stage.fresh && stage.place == Place::Root && !self.has_guests(*at);
                illegal || (usual && !used)
            })
            .collect();
        if fitting.is_empty() || !self.named {
            return;
        }
        let stage = self.pick(&fitting);
        let (scope, name) = (self.scope(), self.fresh("W"));
        let call = format!("{}.cache_write({scope})", self.stages[stage].name);
        self.directive("cache_write", call, vec![], std::slice::from_ref(&name));
        let mut new = self.stages[stage].clone();
        for l in &mut new.loops {
            self.ids += 1;
            l.id = self.ids;
        }
        (new.name, new.output, new.touched) = (name.clone(), false, true);
        (new.pinned, new.dot) = (false, false);
        (self.stages[stage].prefix, self.stages[stage].scatter) = (None, None);
        new.scope = self.gpu.then_some(scope);
        let old = &mut self.stages[stage];
        old.loops.retain(|l| !l.reduce);
        (old.reduction, old.exact, old.touched, old.dot) = (false, true, true, false);
        old.reads = vec![name];
        new.steps = 0;
        self.stages.insert(stage, new);
        self.shift_places(stage);
        self.stages[stage].place = self.place_of_added(stage + 1);
    }

    /// Renumbers the stages after an insertion at `stage`.
    pub(super) fn shift_places(&mut self, stage: usize) {
        for other in &mut self.stages {
            if let Place::At(at, _) = &mut other.place
                && *at >= stage
            {
                *at += 1;
            }
            if let Some(host) = &mut other.host
                && *host >= stage
            {
                *host += 1;
            }
        }
    }

    pub(super) fn cache_read(&mut self, layout: bool) {
        if !self.named {
            return;
        }
        let mut sources: Vec<(String, usize)> = self.inputs.clone();
        let stages = self.stages.iter().filter(|stage| stage.place == Place::Root);
        sources.extend(stages.map(|stage| (stage.name.clone(), stage.rank)));
        let (source, rank) = self.pick(&sources);
        let readers: Vec<usize> = (0..self.stages.len())
            .filter(|at| {
                let stage = &self.stages[*at];
                stage.place != Place::Inline && !stage.locked && stage.reads.contains(&source)
            })
            .collect();
        // A copy stands inside a step or after all of them.
        let of = self.stages.iter().find(|stage| stage.name == source);
        let of = of.and_then(|stage| stage.recurrence);
        let inside = |at: &usize| of.is_some() && self.stages[*at].recurrence == of;
        let steps = readers.first().is_some_and(inside);
        let readers: Vec<usize> = match self.breaks() {
            true => readers,
            false => {
                let inside = |at: &usize| of.is_some() && self.stages[*at].recurrence == of;
                readers.into_iter().filter(|at| inside(at) == steps).collect()
            }
        };
        if readers.is_empty() || (layout && rank == 0) {
            return;
        }
        let mut chosen: Vec<usize> = readers.iter().copied().filter(|_| self.chance(70)).collect();
        if chosen.is_empty() {
            chosen.push(readers[0]);
        }
        let (scope, name) = (self.scope(), self.fresh("L"));
        let mut axes: Vec<String> = (0..rank).map(|at| format!("ax{at}")).collect();
        let mut extra = String::new();
        if layout {
            let by = self.pick(&[2, 3, 4]);
            for at in 0..axes.len() {
                let other = self.int(at as i64, axes.len() as i64 - 1) as usize;
                axes.swap(at, other);
            }
            if self.chance(70) {
                let at = self.int(0, axes.len() as i64 - 1) as usize;
                let axis = axes[at].clone();
                axes[at] = format!("{axis} // {by}");
                let place = self.int(at as i64 + 1, axes.len() as i64) as usize;
                // A remainder by another number leaves gaps or overlaps.
                let by = if self.breaks() { by + 1 } else { by };
                axes.insert(place, format!("{axis} % {by}"));
            }
            extra = format!(", layout=[{}]", axes.join(", "));
            axes = (0..axes.len()).map(|at| format!("p{at}")).collect();
        }
        let names: Vec<String> = chosen.iter().map(|at| self.stages[*at].name.clone()).collect();
        let call = format!("{source}.cache_read({scope}, [{}]{extra})", names.join(", "));
        self.directive("cache_read", call, vec![], std::slice::from_ref(&name));
        if layout {
            self.also("layout=");
        }
        for at in &chosen {
            for read in &mut self.stages[*at].reads {
                if *read == source {
                    read.clone_from(&name);
                }
            }
            self.stages[*at].touched = true;
        }
        let rank = axes.len();
        let declared = axes.iter().map(|axis| (axis.clone(), None)).collect();
        let loops = axes.into_iter().map(|axis| self.new_loop(axis, false, None, true)).collect();
        let first = chosen[0];
        self.stages.insert(
            first,
            Stage {
                declared,
                pinned: false,
                dot: false,
                locked: false,
                is_illegal: false,
                name,
                loops,
                rank,
                output: false,
                reduction: false,
                exact: true,
                commutes: true,
                reads: vec![source],
                place: Place::Root,
                touched: true,
                fresh: true,
                kept: layout,
                stored: false,
                scope: self.gpu.then_some(scope),
                host: None,
                prefix: None,
                scatter: None,
                recurrence: of.filter(|_| steps),
                steps: 0,
            },
        );
        self.shift_places(first);
        if steps {
            self.stages[first].place = self.place_of_added(first + 1);
        }
        for at in 0..self.stages.len() {
            self.recheck(at);
        }
    }

    pub(super) fn rfactor(&mut self) {
        let illegal = self.breaks();
        let fits = |stage: &Stage| {
            let usual = stage.reduction && stage.commutes && stage.place == Place::Root;
            let marked = stage.inner().iter().any(|l| l.mark.is_some() || l.used);
            stage.place != Place::Inline && (illegal || (usual && !marked))
        };
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| fits(&self.stages[*at])).collect();
        if fitting.is_empty() || !self.named || self.huge {
            return;
        }
        let stage = self.pick(&fitting);
        let reduce: Vec<usize> = (0..self.stages[stage].loops.len())
            .filter(|at| self.stages[stage].loops[*at].reduce || illegal)
            .collect();
        // The new stage has an element for each iteration, and before the passes it runs those that
        // have no terms.
        let is_large =
            self.stages[stage].loops.iter().any(|l| l.extent.is_some_and(|n| n > 1 << 16));
        if reduce.is_empty() || is_large {
            return;
        }
        let at = self.pick(&reduce);
        let axis = self.stages[stage].loops[at].clone();
        let name = self.fresh("P");
        let allow = !self.stages[stage].exact && !self.breaks();
        let extra = if allow { ", reassociate=true" } else { "" };
        let call = format!("{}.rfactor({}{extra})", self.stages[stage].name, axis.name);
        self.directive("rfactor", call, vec![], std::slice::from_ref(&name));
        if allow {
            self.also("reassociate=true");
        }
        let mut new = self.stages[stage].clone();
        for l in &mut new.loops {
            self.ids += 1;
            l.id = self.ids;
        }
        let mut data = vec![new.loops.remove(at)];
        data[0].reduce = false;
        data[0].root = true;
        for (axis, extent) in new.declared.clone() {
            data.push(self.new_loop(axis, false, extent, true));
        }
        data.extend(new.loops.iter().filter(|l| l.reduce).cloned());
        new.declared.insert(0, (data[0].name.clone(), data[0].extent));
        new.rank += 1;
        new.loops = data;
        (new.name, new.output, new.touched) = (name.clone(), false, true);
        (new.pinned, new.dot, new.host, new.prefix) = (false, false, None, None);
        (new.scatter, new.steps) = (None, 0);
        new.fresh = true;
        let old = &mut self.stages[stage];
        old.loops.retain(|l| !l.reduce);
        let last = Loop { used: false, root: true, ..axis };
        old.loops.push(last);
        (old.touched, old.fresh, old.dot, old.prefix) = (true, false, false, None);
        old.scatter = None;
        old.reads = vec![name];
        self.stages.insert(stage, new);
        self.shift_places(stage);
        self.stages[stage].place = self.place_of_added(stage + 1);
    }

    /// Adds a scatter, sometimes with vectors of start values.
    pub(super) fn scatter(&mut self) {
        let wild = self.breaks();
        let found = self.conditional_reduction(wild, |stage| stage.scatter.is_some());
        let Some(stage) = found else { return };
        let axis = match self.stages[stage].scatter.clone() {
            Some(axis) => axis,
            None => self.stages[stage].loops[0].name.clone(),
        };
        let Some(at) = self.stages[stage].loops.iter().position(|l| l.name == axis) else { return };
        let name = self.stages[stage].name.clone();
        self.directive("scatter", format!("{name}.scatter({axis})"), vec![], &[]);
        let old = &mut self.stages[stage];
        if !old.fresh
            || old.scatter.is_none()
            || old.loops.iter().any(|l| l.mark.is_some() || l.used)
        {
            old.is_illegal = true;
            return;
        }
        let moved = self.stages[stage].loops.remove(at);
        self.stages[stage].loops.push(moved);
        let at = self.stages[stage].loops.len() - 1;
        if self.chance(40) {
            let factor = self.pick(&[4, 8, 16]);
            let kid = self.number(factor);
            let names = self.part_names(&axis);
            let call = format!("{name}.split({axis}, factor=$)");
            self.directive("split factor", call, vec![kid], &names);
            self.divide(stage, at, Some(factor), None, names.clone());
            if self.chance(60) {
                let call = format!("{name}.vectorize({})", names[1]);
                self.directive("vectorize", call, vec![], &[]);
                self.stages[stage].loops[at + 1].mark = Some(Mark::Vectorize);
            }
        }
        for part in &mut self.stages[stage].loops[at..] {
            part.used = true;
        }
        let old = &mut self.stages[stage];
        (old.prefix, old.scatter, old.kept) = (None, None, true);
        self.touch(stage);
    }

    pub(super) fn storage_align(&mut self) {
        let illegal = self.breaks();
        let fits = |stage: &Stage| {
            stage.place != Place::Inline
                && (illegal || (!stage.output && stage.loops.iter().any(|l| l.root && !l.reduce)))
        };
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| fits(&self.stages[*at])).collect();
        if fitting.is_empty() {
            return;
        }
        let stage = self.pick(&fitting);
        let axes: Vec<String> = self.stages[stage]
            .loops
            .iter()
            .filter(|l| illegal || (l.root && !l.reduce))
            .map(|l| l.name.clone())
            .collect();
        if axes.is_empty() {
            return;
        }
        let axis = self.pick(&axes);
        let factor = self.pick(&[1, 2, 4, 8, 16]);
        let offset = self.int(0, factor - 1);
        let kids = vec![self.number(factor), self.number(offset)];
        let call = format!("{}.storage_align({axis}, $, $)", self.stages[stage].name);
        self.directive("storage_align", call, kids, &[]);
        self.stages[stage].touched = true;
        self.stages[stage].kept = true;
    }

    pub(super) fn double_buffer(&mut self) {
        let illegal = self.breaks();
        let fits = |stage: &Stage| match stage.place {
            Place::At(..) if stage.stored && !illegal => false,
            Place::At(target, id) => {
                let loops = &self.stages[target].loops;
                let at = loops.iter().position(|l| l.id == id);
                let serial = |l: &Loop| matches!(l.mark, None | Some(Mark::Unroll));
                let depth = at.and_then(|at| self.depth(target, at));
                let step = stage.recurrence.is_some() && self.is_step(target, id);
                depth.is_some_and(|depth| serial(&loops[depth])) && (illegal || !step)
            }
            Place::Root => illegal,
            Place::Inline => false,
        };
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| fits(&self.stages[*at])).collect();
        if fitting.is_empty() {
            return;
        }
        let stage = self.pick(&fitting);
        let call = format!("{}.double_buffer()", self.stages[stage].name);
        self.directive("double_buffer", call, vec![], &[]);
        self.stages[stage].touched = true;
        self.stages[stage].kept = true;
    }

    pub(super) fn store_nontemporal(&mut self) {
        let illegal = self.breaks();
        let fits = |stage: &Stage| {
            illegal || (stage.output && stage.place == Place::Root && !stage.reduction)
        };
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| fits(&self.stages[*at])).collect();
        if fitting.is_empty() {
            return;
        }
        let stage = self.pick(&fitting);
        let call = format!("{}.store_nontemporal()", self.stages[stage].name);
        self.directive("store_nontemporal", call, vec![], &[]);
        let stage = &mut self.stages[stage];
        (stage.touched, stage.kept, stage.pinned) = (true, true, true);
    }

    /// Adds a pipeline to the loop in which a stage in shared memory is computed.
    pub(super) fn pipeline(&mut self) {
        let fits = |stage: &Stage| match stage.place {
            Place::At(target, id) if stage.scope == Some("shared") => {
                let loops = &self.stages[target].loops;
                let at = loops.iter().position(|l| l.id == id)?;
                let serial = matches!(loops[at].mark, None | Some(Mark::Unroll));
                serial.then_some((target, at))
            }
            _ => None,
        };
        let fitting: Vec<(usize, usize)> = self.stages.iter().filter_map(fits).collect();
        if fitting.is_empty() {
            return;
        }
        let (target, at) = self.pick(&fitting);
        let stages = self.int(2, 7);
        let kids = vec![self.number(stages)];
        let name = &self.stages[target].loops[at].name;
        let call = format!("{}.pipeline({name}, stages=$)", self.stages[target].name);
        self.directive("pipeline", call, kids, &[]);
        self.stages[target].loops[at].used = true;
        self.stages[target].touched = true;
        for stage in &mut self.stages {
            stage.kept |= stage.scope == Some("shared");
        }
    }

    pub(super) fn prefetch(&mut self) {
        let stage = self.stage();
        let reads = self.stages[stage].reads.clone();
        let illegal = self.breaks();
        let moved = |name: &String| {
            let moved = |other: &Stage| other.place != Place::Root || !other.output;
            self.stages.iter().any(|other| other.name == *name && moved(other))
        };
        let reads: Vec<String> = reads.into_iter().filter(|name| illegal || !moved(name)).collect();
        let lanes = |l: &Loop| l.mark == Some(Mark::Vectorize);
        let end = self.stages[stage].loops.iter().position(lanes);
        let end = end.unwrap_or(self.stages[stage].loops.len());
        if reads.is_empty() || end == 0 {
            return;
        }
        let tensor = self.pick(&reads);
        let at = self.int(0, end as i64 - 1) as usize;
        let axis = self.stages[stage].loops[at].name.clone();
        let distance = self.int(1, 4);
        let kids = vec![self.number(distance)];
        let call = format!("{}.prefetch({tensor}, {axis}, $)", self.stages[stage].name);
        self.directive("prefetch", call, kids, &[]);
        self.stages[stage].loops[at].used = true;
        self.stages[stage].kept = true;
        self.stages[stage].touched = true;
    }

    pub(super) fn set_scope(&mut self) {
        let illegal = self.breaks();
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| illegal || !self.stages[*at].output).collect();
        if fitting.is_empty() {
            return;
        }
        let stage = self.pick(&fitting);
        if self.stages[stage].place == Place::Inline {
            return;
        }
        let scope = self.scope();
        let call = format!("{}.set_scope({scope})", self.stages[stage].name);
        self.directive("set_scope", call, vec![], &[]);
        self.stages[stage].touched = true;
        self.stages[stage].kept = true;
    }

    pub(super) fn pragma(&mut self) {
        let stage = self.stage();
        if self.stages[stage].loops.is_empty() {
            return;
        }
        let at = self.int(0, self.stages[stage].loops.len() as i64 - 1) as usize;
        let (name, axis) =
            (self.stages[stage].name.clone(), self.stages[stage].loops[at].name.clone());
        let setting = match self.int(0, 2) {
            0 => "unroll_explicit, true".to_string(),
            1 => "unroll_explicit, false".to_string(),
            _ => format!("auto_unroll_max_step, {}", self.pick(&[0, 4, 16, 64])),
        };
        self.directive("pragma", format!("{name}.pragma({axis}, {setting})"), vec![], &[]);
        self.stages[stage].loops[at].used = true;
        self.stages[stage].kept = true;
        self.stages[stage].touched = true;
    }

    /// Replaces the innermost four terms by an intrinsic; later directives leave the loops of the
    /// stage unchanged.
    pub(super) fn tensorize(&mut self) {
        let whole = |stage: &Stage| {
            let last = stage.loops.last();
            let lanes = |l: &Loop| l.mark == Some(Mark::Vectorize);
            stage.dot
                && stage.place == Place::Root
                && !stage.loops.iter().any(lanes)
                && last.is_some_and(|l| l.reduce && l.root && !l.used && l.mark.is_none())
        };
        let Some(stage) = (0..self.stages.len()).find(|at| whole(&self.stages[*at])) else {
            return;
        };
        let at = self.stages[stage].loops.len() - 1;
        let name = self.stages[stage].name.clone();
        let axis = self.stages[stage].loops[at].name.clone();
        let names = self.part_names(&axis);
        let factor = if self.breaks() { 2 } else { 4 };
        let call = format!("{name}.split({axis}, factor=$)");
        let kids = vec![self.number(factor)];
        self.directive("split factor", call, kids, &names);
        self.divide(stage, at, Some(factor), None, names);
        let inner = self.stages[stage].loops[at + 1].name.clone();
        self.push("tensorize", format!("{name}.tensorize({inner}, dot4_i32)"), vec![], vec![]);
        let stage = &mut self.stages[stage];
        (stage.locked, stage.kept, stage.pinned) = (true, true, true);
        stage.loops.iter_mut().for_each(|l| l.used = true);
    }
}

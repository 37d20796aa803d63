//! Directives for the loops of one stage: `split`, `tile`, `fuse`, `reorder`, annotations.

use super::{Loop, Mark, Model, Place, Stage};
use crate::tree::Node;

impl Model {
    /// Returns a loop of a stage, by its place, that may be split or fused.
    pub(super) fn splittable(&mut self, stage: usize) -> Option<usize> {
        let illegal = self.breaks();
        let free = |l: &Loop| illegal || (l.mark.is_none() && !l.used);
        let loops = &self.stages[stage].loops;
        let fitting: Vec<usize> = (0..loops.len()).filter(|at| free(&loops[*at])).collect();
        (!fitting.is_empty()).then(|| self.pick(&fitting))
    }

    pub(super) fn default_name(&self, stage: usize, name: String) -> String {
        let taken = |name: &str| self.stages[stage].loops.iter().any(|l| l.name == name);
        if !taken(&name) {
            return name;
        }
        (2..).map(|n| format!("{name}_{n}")).find(|name| !taken(name)).expect("a number")
    }

    /// Replaces a loop by two; their places are `at` and `at + 1`.
    pub(super) fn divide(
        &mut self,
        stage: usize,
        at: usize,
        inner: Option<i64>,
        outer: Option<i64>,
        names: [String; 2],
    ) {
        let old = self.stages[stage].loops.remove(at);
        let up = |extent: Option<i64>, by: i64| extent.map(|extent| (extent + by - 1) / by.max(1));
        let (out, inn) = match (inner, outer) {
            (Some(f), _) => (up(old.extent, f), Some(f)),
            (_, Some(p)) => (Some(p), up(old.extent, p)),
            _ => (None, None),
        };
        for (offset, (name, extent)) in names.into_iter().zip([out, inn]).enumerate() {
            let name = if self.named { name } else { self.default_name(stage, name) };
            let new = self.new_loop(name, old.reduce, extent, false);
            self.stages[stage].loops.insert(at + offset, new);
        }
        self.touch(stage);
    }

    pub(super) fn touch(&mut self, stage: usize) {
        self.stages[stage].touched = true;
        self.stages[stage].fresh = false;
    }

    pub(super) fn part_names(&mut self, old: &str) -> [String; 2] {
        match self.named {
            true => [self.fresh("o"), self.fresh("i")],
            false => [format!("{old}_o"), format!("{old}_i")],
        }
    }

    pub(super) fn split(&mut self, kind: &str, tail: Option<&str>) {
        let stage = self.stage();
        let Some(at) = self.splittable(stage) else { return };
        let old = self.stages[stage].loops[at].clone();
        let name = self.stages[stage].name.clone();
        if kind == "split factors" {
            let factors: Vec<i64> = (0..self.int(1, 2)).map(|_| self.factor().min(8)).collect();
            let kids: Vec<Node> = factors.iter().map(|f| self.number(*f)).collect();
            let places = vec!["$"; factors.len()].join(", ");
            let names: Vec<String> = (0..=factors.len())
                .map(|part| match self.named {
                    true => self.fresh("f"),
                    false => format!("{}_{part}", old.name),
                })
                .collect();
            let call = format!("{name}.split({}, factors=[{places}])", old.name);
            self.directive("split factors", call, kids, &names);
            let clash = names.iter().any(|n| self.stages[stage].loops.iter().any(|l| l.name == *n));
            for (place, factor) in factors.iter().enumerate().rev() {
                let outer = if place == 0 { names[0].clone() } else { old.name.clone() };
                let both = [outer, names[place + 1].clone()];
                self.divide(stage, at, Some(*factor), None, both);
            }
            if clash && !self.named {
                // The generator does not track default names of parts of parts.
                self.stages[stage].loops.iter_mut().for_each(|l| l.used = true);
            }
            return;
        }
        let reduction = self.stages[stage].reduction;
        let attached = self.stages[stage].place != Place::Root;
        let mut factor = self.factor();
        let tail = match tail {
            Some(tail) => Some(tail),
            None if self.chance(25) => Some(self.pick(&["guard", "peel", "shift", "mask"])),
            None => None,
        };
        if tail == Some("shift") && !self.breaks() {
            let Some(extent) = old.extent.filter(|_| !reduction && !attached) else { return };
            if extent < 1 {
                return;
            }
            factor = factor.min(extent);
        }
        let inner_lanes = tail == Some("mask");
        // More parts than iterations, or parts larger than the extent.
        if tail.is_none() && self.chance(8) {
            factor = self.pick(&[61, 64, 130, 1 << 16, 1 << 31, 1 << 40]);
        }
        if inner_lanes && (old.reduce || !self.lanes_fit(stage, at)) && !self.breaks() {
            return;
        }
        let names = self.part_names(&old.name);
        let value = self.number(factor);
        let nparts = kind == "split nparts" && !inner_lanes;
        let word = if nparts { "nparts" } else { "factor" };
        let tail_text = tail.map_or(String::new(), |tail| format!(", tail={tail}"));
        let call = format!("{name}.split({}, {word}=${tail_text})", old.name);
        let kind = if nparts { "split nparts" } else { "split factor" };
        self.directive(kind, call, vec![value], &names);
        match tail {
            Some("guard") => self.also("tail=guard"),
            Some("peel") => self.also("tail=peel"),
            Some("mask") => self.also("tail=mask"),
            Some("shift") => self.also("tail=shift"),
            _ => {}
        }
        let (inner, outer) = if nparts { (None, Some(factor)) } else { (Some(factor), None) };
        self.divide(stage, at, inner, outer, names);
        if tail == Some("shift") {
            self.stages[stage].loops[at].overlaps = true;
        }
        if inner_lanes {
            let lanes = self.stages[stage].loops[at + 1].name.clone();
            self.push("vectorize", format!("{name}.vectorize({lanes})"), vec![], vec![]);
            self.stages[stage].loops[at + 1].mark = Some(Mark::Vectorize);
        }
    }

    pub(super) fn tile(&mut self) {
        let stage = self.stage();
        let (Some(x), Some(y)) = (self.splittable(stage), self.splittable(stage)) else { return };
        let loops = self.stages[stage].loops.clone();
        if x == y || (loops[x].reduce || loops[y].reduce) && !self.stages[stage].exact {
            return;
        }
        let (a, b) = (self.factor(), self.factor());
        let name = self.stages[stage].name.clone();
        let (old_x, old_y) = (loops[x].clone(), loops[y].clone());
        let [xo, xi] = self.part_names(&old_x.name);
        let [yo, yi] = self.part_names(&old_y.name);
        let call = format!("{name}.tile({}, {}, $, $)", old_x.name, old_y.name);
        let kids = vec![self.number(a), self.number(b)];
        let names = [xo.clone(), yo.clone(), xi.clone(), yi.clone()];
        self.directive("tile", call, kids, &names);
        self.divide(stage, x, Some(a), None, [xo, xi]);
        let y = self.stages[stage].loops.iter().position(|l| l.id == old_y.id).expect("a loop");
        self.divide(stage, y, Some(b), None, [yo, yi]);
        let x = self.stages[stage].loops.iter().position(|l| l.id == self.ids - 3).expect("xo");
        let y = self.stages[stage].loops.iter().position(|l| l.id == self.ids - 1).expect("yo");
        let order = [x, y, x + 1, y + 1];
        self.permute(stage, &order);
    }

    /// Puts the loops at `order` into their sorted places, in that order.
    pub(super) fn permute(&mut self, stage: usize, order: &[usize]) {
        let loops = self.stages[stage].loops.clone();
        let mut places = order.to_vec();
        places.sort_unstable();
        for (place, from) in places.iter().zip(order) {
            self.stages[stage].loops[*place] = loops[*from].clone();
        }
        self.touch(stage);
    }

    pub(super) fn join(&mut self, stage: usize, at: usize, count: usize, name: String) {
        let gone: Vec<Loop> = self.stages[stage].loops.drain(at..at + count).collect();
        let extent = gone.iter().map(|l| l.extent).try_fold(1, |a, e| Some(a * e?));
        let name = if self.named { name } else { self.default_name(stage, name) };
        let mut new = self.new_loop(name, gone[0].reduce, extent, false);
        new.overlaps = gone.iter().any(|l| l.overlaps);
        self.stages[stage].loops.insert(at, new);
        self.touch(stage);
    }

    pub(super) fn fuse(&mut self) {
        let stage = self.stage();
        let loops = &self.stages[stage].loops;
        if loops.len() < 2 {
            return;
        }
        let free = |l: &Loop| l.mark.is_none() && !l.used;
        let starts: Vec<usize> = (0..loops.len() - 1)
            .filter(|at| {
                let (a, b) = (&loops[*at], &loops[at + 1]);
                free(a) && free(b) && a.reduce == b.reduce
            })
            .collect();
        let illegal = self.breaks();
        let (at, mut count) = match (illegal, starts.is_empty()) {
            (true, _) => (self.int(0, self.stages[stage].loops.len() as i64 - 2) as usize, 2),
            (_, true) => return,
            _ => (self.pick(&starts), 2),
        };
        let loops = self.stages[stage].loops.clone();
        if at + 2 < loops.len()
            && free(&loops[at + 2])
            && loops[at + 2].reduce == loops[at].reduce
            && self.chance(30)
        {
            count = 3;
        }
        let names: Vec<&str> = loops[at..at + count].iter().map(|l| &l.name[..]).collect();
        let name = if self.named { self.fresh("u") } else { names.join("_") };
        let call = format!("{}.fuse({})", self.stages[stage].name, names.join(", "));
        self.directive("fuse", call, vec![], std::slice::from_ref(&name));
        self.join(stage, at, count, name);
    }

    pub(super) fn fuse_all(&mut self) {
        let fits = |stage: &Stage| {
            let data: Vec<usize> =
                (0..stage.loops.len()).filter(|at| !stage.loops[*at].reduce).collect();
            stage.place != Place::Inline
                && data.len() > 1
                && data.windows(2).all(|pair| pair[0] + 1 == pair[1])
                && data.iter().all(|at| stage.loops[*at].mark.is_none() && !stage.loops[*at].used)
        };
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| fits(&self.stages[*at])).collect();
        if fitting.is_empty() {
            return;
        }
        let stage = self.pick(&fitting);
        let loops = &self.stages[stage].loops;
        let at = loops.iter().position(|l| !l.reduce).expect("a data loop");
        let names: Vec<&str> = loops.iter().filter(|l| !l.reduce).map(|l| &l.name[..]).collect();
        let count = names.len();
        let name = names.join("_");
        let name = if self.named { self.fresh("u") } else { name };
        let call = format!("{}.fuse(*)", self.stages[stage].name);
        self.directive("fuse(*)", call, vec![], std::slice::from_ref(&name));
        self.join(stage, at, count, name);
    }

    pub(super) fn reorder(&mut self, star: bool) {
        let stage = self.stage();
        let loops = self.stages[stage].loops.clone();
        if loops.len() < 2 {
            return;
        }
        let mut order: Vec<usize> = (0..loops.len()).filter(|_| self.chance(75)).collect();
        for at in 0..order.len() {
            let other = self.int(at as i64, order.len() as i64 - 1) as usize;
            order.swap(at, other);
        }
        let mut named: Vec<String> = order.iter().map(|at| loops[*at].name.clone()).collect();
        if star {
            let rest: Vec<usize> =
                (0..loops.len()).filter(|at| !order.contains(at) && !loops[*at].reduce).collect();
            let place = self.int(0, order.len() as i64) as usize;
            order.splice(place..place, rest);
            named.insert(place, "*".to_string());
        }
        if order.len() < 2 {
            return;
        }
        let mut extra = "";
        if !self.stages[stage].exact {
            let moved: Vec<usize> = order.iter().copied().filter(|at| loops[*at].reduce).collect();
            if moved.windows(2).any(|pair| pair[0] > pair[1]) {
                if self.stages[stage].commutes && self.chance(30) {
                    extra = ", reassociate=true";
                } else if !self.breaks() {
                    return;
                }
            }
        }
        let before = self.stages[stage].clone();
        self.permute(stage, &order);
        let steps = before.steps;
        let ids = |of: &Stage| of.loops[..steps].iter().map(|l| l.id).collect::<Vec<_>>();
        let late = ids(&before) != ids(&self.stages[stage]);
        if (late || self.lanes_are_around(stage)) && !self.breaks() {
            self.stages[stage] = before;
            return;
        }
        let name = self.stages[stage].name.clone();
        let call = format!("{name}.reorder({}{extra})", named.join(", "));
        let kind = if star { "reorder *" } else { "reorder" };
        self.directive(kind, call, vec![], &[]);
        if !extra.is_empty() {
            self.also("reassociate=true");
        }
    }

    /// Skews two data loops.
    pub(super) fn skew(&mut self) {
        let stage = self.stage();
        let (Some(x), Some(y)) = (self.splittable(stage), self.splittable(stage)) else { return };
        let fits = |l: &Loop| !l.reduce && !l.serial && !l.overlaps;
        let loops = &self.stages[stage].loops;
        if !(x != y && fits(&loops[x]) && fits(&loops[y]) || self.breaks()) {
            return;
        }
        let factor = self.pick(&[1, 1, 1, 2, 3, 5]);
        self.add_skew(stage, [x, y], factor);
    }

    /// Writes a skew and replaces the two loops.
    pub(super) fn add_skew(&mut self, stage: usize, [x, y]: [usize; 2], factor: i64) {
        let of = &self.stages[stage];
        let (old_x, old_y) = (of.loops[x].clone(), of.loops[y].clone());
        let (mut call, mut kids) =
            (format!("{}.skew({}, {}", of.name, old_x.name, old_y.name), vec![]);
        if factor > 1 {
            call.push_str(", factor=$");
            kids.push(self.number(factor));
        }
        let names = match self.named {
            true => ["w", "p"].map(|part| self.fresh(part)),
            false => ["w", "p"].map(|part| format!("{}_{part}", old_x.name)),
        };
        self.directive("skew", format!("{call})"), kids, &names);
        if x == y {
            return;
        }
        let waves = old_x.extent.zip(old_y.extent);
        let waves = waves.map(|(x, y)| factor * (x - 1).max(0) + y);
        let places = [x.min(y), x.max(y)];
        for ((place, name), extent) in places.into_iter().zip(names).zip([waves, old_x.extent]) {
            let name = if self.named { name } else { self.default_name(stage, name) };
            self.stages[stage].loops[place] = self.new_loop(name, old_x.reduce, extent, false);
        }
        self.touch(stage);
    }

    /// Whether a vectorized loop contains vectorized, parallel or bound loops.
    pub(super) fn lanes_are_around(&self, stage: usize) -> bool {
        let loops = &self.stages[stage].loops;
        let lanes = loops.iter().position(|l| l.mark == Some(Mark::Vectorize));
        lanes.is_some_and(|at| {
            let inside = |l: &Loop| {
                matches!(l.mark, Some(Mark::Vectorize | Mark::Parallel | Mark::Bound(_)))
            };
            loops[at + 1..].iter().any(inside)
        })
    }

    /// Whether a loop may be vectorized.
    pub(super) fn lanes_fit(&self, stage: usize, at: usize) -> bool {
        let loops = &self.stages[stage].loops;
        let lanes = |l: &Loop| l.mark == Some(Mark::Vectorize);
        let inside = |l: &Loop| lanes(l) || matches!(l.mark, Some(Mark::Parallel | Mark::Bound(_)));
        !loops[..at].iter().any(lanes) && !loops[at + 1..].iter().any(inside)
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        let stage = self.stage();
        let illegal = self.breaks();
        let attached = self.stages[stage].place != Place::Root;
        let (loops, steps) = (&self.stages[stage].loops, self.stages[stage].steps);
        let copies: i64 = loops
            .iter()
            .filter(|l| l.mark == Some(Mark::Unroll))
            .map(|l| l.extent.unwrap_or(8))
            .product();
        let fits = |at: usize| {
            let l = &loops[at];
            let constant = l.extent.is_some_and(|extent| extent > 0 && !(attached && l.root));
            let breaks = illegal && (!l.reduce || l.root && l.extent.is_some_and(|e| e > 1));
            breaks
                || l.mark.is_none()
                    && at >= steps
                    && match mark {
                        Mark::Unroll => constant && l.extent.is_some_and(|e| e * copies <= 40),
                        Mark::Vectorize => {
                            !l.reduce && !l.serial && constant && self.lanes_fit(stage, at)
                        }
                        Mark::Parallel => {
                            let lanes = |l: &Loop| l.mark == Some(Mark::Vectorize);
                            let free = !l.reduce && !l.overlaps && !l.serial;
                            free && !loops[..at].iter().any(lanes)
                        }
                        Mark::Bound(_) => false,
                    }
        };
        let fitting: Vec<usize> = (0..loops.len()).filter(|at| fits(*at)).collect();
        if fitting.is_empty() {
            return;
        }
        let at = match mark {
            // Users mostly vectorize the innermost loop.
            Mark::Vectorize if self.chance(60) => fitting[fitting.len() - 1],
            Mark::Parallel if self.chance(60) => fitting[0],
            _ => self.pick(&fitting),
        };
        let word = match mark {
            Mark::Unroll => "unroll",
            Mark::Vectorize => "vectorize",
            Mark::Parallel => "parallel",
            Mark::Bound(_) => "bind",
        };
        let (name, axis) =
            (self.stages[stage].name.clone(), self.stages[stage].loops[at].name.clone());
        self.directive(word, format!("{name}.{word}({axis})"), vec![], &[]);
        self.stages[stage].loops[at].mark = Some(mark);
        self.touch(stage);
    }
}

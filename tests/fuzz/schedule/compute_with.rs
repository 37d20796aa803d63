//! `compute_with`: stages that share loops.

use super::{Mark, Model, Place};

impl Model {
    /// Whether a stage reads another one, directly or through others.
    fn depends(&self, reader: usize, producer: usize) -> bool {
        let mut seen = vec![false; self.stages.len()];
        let mut waiting = vec![reader];
        while let Some(at) = waiting.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            let reads = &self.stages[at].reads;
            if reads.contains(&self.stages[producer].name) {
                return true;
            }
            waiting.extend((0..seen.len()).filter(|at| reads.contains(&self.stages[*at].name)));
        }
        false
    }

    /// Returns the number of outer loops that two stages have in common. Loops of unknown extent
    /// count only if `gamble`.
    fn common_loops(&self, a: usize, b: usize, gamble: bool) -> usize {
        let pairs = self.stages[a].loops.iter().zip(&self.stages[b].loops);
        let fits = pairs.take_while(|(a, b)| {
            let known = a.extent.is_some() || gamble;
            (a.reduce, a.mark, a.extent) == (b.reduce, b.mark, b.extent) && known
        });
        fits.count()
    }

    /// Returns the stages that are computed in one nest with this one.
    fn group(&self, stage: usize) -> Vec<usize> {
        let root = |mut at: usize| {
            while let Some(host) = self.stages[at].host {
                at = host;
            }
            at
        };
        (0..self.stages.len()).filter(|at| root(*at) == root(stage)).collect()
    }

    /// Computes two stages in one nest; both often get the same new loops first.
    pub(super) fn compute_with(&mut self) {
        if self.gpu {
            return;
        }
        let illegal = self.breaks();
        let gamble = illegal || self.chance(25);
        let mut pairs = Vec::new();
        for host in 0..self.stages.len() {
            for guest in 0..self.stages.len() {
                let (a, b) = (&self.stages[host], &self.stages[guest]);
                let known = self.group(host).contains(&guest) || b.host.is_some();
                if known || a.place == Place::Inline || b.place == Place::Inline {
                    continue;
                }
                let members = [self.group(host), self.group(guest)];
                let independent = members[0].iter().all(|a| {
                    members[1].iter().all(|b| !self.depends(*a, *b) && !self.depends(*b, *a))
                });
                let common = self.common_loops(host, guest, gamble);
                let free = !b.locked && (!a.locked || members[0].len() > 1) && !b.dot && !a.dot;
                let steps = a.recurrence.is_some() || b.recurrence.is_some();
                let legal = a.place == b.place && independent && common > 0 && free && !steps;
                if legal || (illegal && !a.loops.is_empty()) {
                    pairs.push((host, guest));
                }
            }
        }
        if pairs.is_empty() {
            return;
        }
        let (host, guest) = self.pick(&pairs);
        self.same_loops(host, guest);
        let common = self.common_loops(host, guest, gamble);
        let last = match illegal || common == 0 {
            true => self.stages[host].loops.len(),
            false => common,
        };
        let at = self.int(0, last as i64 - 1) as usize;
        let axis = self.stages[host].loops[at].name.clone();
        let (name, to) = (self.stages[guest].name.clone(), self.stages[host].name.clone());
        let call = format!("{name}.compute_with({to}, {axis})");
        self.directive("compute_with", call, vec![], &[]);
        self.stages[guest].host = Some(host);
        for stage in [host, guest] {
            self.touch(stage);
            self.stages[stage].kept = true;
            self.stages[stage].pinned = true;
            self.stages[stage].locked = true;
            self.stages[stage].loops.iter_mut().take(at + 1).for_each(|l| l.used = true);
        }
    }

    /// Splits a common loop of two stages in the same way, and marks the same loops.
    fn same_loops(&mut self, host: usize, guest: usize) {
        let free = |l: &super::Loop| l.mark.is_none() && !l.used && l.extent.is_some();
        let common = self.common_loops(host, guest, false);
        let fitting: Vec<usize> = (0..common)
            .filter(|at| [host, guest].iter().all(|s| free(&self.stages[*s].loops[*at])))
            .collect();
        if fitting.is_empty() {
            return;
        }
        if self.chance(50) {
            let at = self.pick(&fitting);
            let factor = self.factor().min(16);
            for stage in [host, guest] {
                let old = self.stages[stage].loops[at].clone();
                let names = self.part_names(&old.name);
                let (name, value) = (self.stages[stage].name.clone(), self.number(factor));
                let call = format!("{name}.split({}, factor=$)", old.name);
                self.directive("split factor", call, vec![value], &names);
                self.divide(stage, at, Some(factor), None, names);
            }
        }
        let outer = |stage: usize| self.stages[stage].loops.first();
        let plain = |l: &super::Loop| free(l) && !l.reduce && !l.overlaps;
        let both = [host, guest].iter().all(|stage| outer(*stage).is_some_and(plain));
        let at_root = self.stages[host].place == Place::Root;
        let inside = |stage: usize| {
            self.stages[stage].loops.iter().any(|l| l.mark == Some(Mark::Parallel) || l.overlaps)
        };
        if both && at_root && !inside(host) && !inside(guest) && self.chance(30) {
            for stage in [host, guest] {
                let first = self.stages[stage].loops[0].name.clone();
                let call = format!("{}.parallel({first})", self.stages[stage].name);
                self.push("parallel", call, vec![], vec![]);
                self.stages[stage].loops[0].mark = Some(Mark::Parallel);
            }
        }
    }
}

//! Random schedules for GPUs: root stages are bound to blocks and threads. Other stages are
//! attached, in shared memory, which the threads fill together, or in local memory.

use super::{Loop, Mark, Model, Place};
use crate::tree::{Program, ScheduleText};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// All kinds of directives and scopes that some legal schedules must contain.
pub const KINDS: &[&str] =
    &["blockIdx", "threadIdx", "vthread", "shared", "local", "fetch", "double_buffer", "vectorize"];

/// Gives a program a schedule for GPUs, named `s`.
pub fn add_threads(program: &mut Program, seed: u64, number: u64) {
    let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9e6c_63d0_876a_3f6b) ^ !number);
    let mut model = Model::new(rng);
    model.gpu = true;
    model.read(program);
    model.illegal_percent = if model.chance(15) { 10 } else { 0 };
    model.threads = [model.pick(&[1, 2, 3, 4, 4, 8]), model.pick(&[1, 2, 2, 3]), 2];
    if model.chance(40) {
        model.step("auto_inline_injective");
    }
    for _ in 0..model.int(0, 3) {
        let kind = model.pick(&[
            "cache_write",
            "cache_read",
            "cache_read",
            "layout=",
            "rfactor",
            "compute_inline",
        ]);
        model.step(kind);
    }
    for _ in 0..model.int(0, 3) {
        let kind =
            model.pick(&["split factor", "split nparts", "tile", "fuse", "fuse(*)", "reorder"]);
        model.step(kind);
    }
    // Readers are placed before the stages that they read.
    let mut at = model.stages.len();
    while at > 0 {
        at -= 1;
        model.place_stage(at);
    }
    for _ in 0..model.int(0, 6) {
        let kind = model.pick(&[
            "split factor",
            "reorder",
            "unroll",
            "unroll",
            "vectorize",
            "vectorize",
            "storage_align",
            "double_buffer",
            "pipeline",
            "pipeline",
            "pragma",
        ]);
        model.step(kind);
    }
    let body = std::mem::take(&mut model.lines);
    let target = model.chance(50).then(|| "nvptx".to_string());
    let (name, rest) = ("s".to_string(), ScheduleText::default());
    program.schedules.push(ScheduleText { name, target, body, ..rest });
}

impl Model {
    /// Attaches a stage or binds its loops.
    fn place_stage(&mut self, at: usize) {
        let stage = &self.stages[at];
        if stage.place == Place::Inline {
            return;
        }
        let movable = !stage.output && !stage.pinned;
        let cached = stage.scope.is_some();
        if movable && (cached || self.chance(65)) && self.attach(at) {
            self.place_inside(at);
            return;
        }
        if cached {
            let call = format!("{}.set_scope(global)", self.stages[at].name);
            self.directive("set_scope", call, vec![], &[]);
        }
        self.bind_root(at);
    }

    /// Chooses the memory of an attached stage and the threads that compute it.
    fn place_inside(&mut self, at: usize) {
        let mut scope = self.stages[at].scope;
        let around = self.indices_around(at);
        let default = match around.iter().any(|index| !index.starts_with("block")) {
            true => Some("local"),
            false if around.is_empty() => None,
            false => Some("shared"),
        };
        if scope.is_none() && (default.is_none() || self.chance(70)) {
            let chosen = self.pick(&["shared", "local"]);
            let call = format!("{}.set_scope({chosen})", self.stages[at].name);
            self.directive("set_scope", call, vec![], &[]);
            scope = Some(chosen);
        }
        let scope = scope.or(default).unwrap_or("local");
        self.also(if scope == "shared" { "shared" } else { "local" });
        if scope == "shared" && self.chance(80) {
            self.share_out(at, 0, false);
            if self.chance(50) {
                self.share_out(at, 1, false);
            }
            self.also("fetch");
        }
        if self.chance(10) {
            self.bind_virtual(at);
        }
    }

    /// Returns the indices bound around the place of a stage.
    fn indices_around(&self, at: usize) -> Vec<&'static str> {
        let (mut indices, mut child) = (Vec::new(), at);
        for _ in 0..self.stages.len() {
            let Place::At(stage, id) = self.stages[child].place else { break };
            let loops = &self.stages[stage].loops;
            let place = loops.iter().position(|l| l.id == id);
            let inside = place.and_then(|at| self.depth(stage, at)).map_or(0, |depth| depth + 1);
            indices.extend(loops[..inside].iter().filter_map(|l| match l.mark {
                Some(Mark::Bound(index)) => Some(index),
                _ => None,
            }));
            child = stage;
        }
        indices
    }

    fn bind_root(&mut self, at: usize) {
        if self.breaks() {
            return;
        }
        let threads = self.chance(90);
        if threads {
            self.share_out(at, 0, true);
            if self.chance(40) {
                self.share_out(at, 1, true);
            }
            if self.chance(10) {
                self.share_out(at, 2, true);
            }
        }
        if self.chance(35) {
            self.bind_virtual(at);
        }
        for index in ["blockIdx.x", "blockIdx.y", "blockIdx.z"] {
            let bound =
                self.stages[at].loops.iter().any(|l| matches!(l.mark, Some(Mark::Bound(_))));
            if self.chance(if bound { 55 } else { 100 })
                && let Some(place) = self.free_data_loop(at)
            {
                self.bind(at, place, index);
            }
        }
    }

    /// Returns a data loop without directives.
    fn free_data_loop(&mut self, at: usize) -> Option<usize> {
        let free = |l: &Loop| !l.reduce && l.mark.is_none() && !l.used && !l.overlaps;
        let loops = &self.stages[at].loops;
        let lanes = loops.iter().position(|l| l.mark == Some(Mark::Vectorize));
        let end = lanes.unwrap_or(loops.len());
        let fitting: Vec<usize> = (0..end).filter(|place| free(&loops[*place])).collect();
        (!fitting.is_empty()).then(|| self.pick(&fitting))
    }

    /// Splits a data loop so that a part has as many iterations as there are threads along an
    /// index, and binds that part.
    fn share_out(&mut self, at: usize, dim: usize, root: bool) {
        let index = ["threadIdx.x", "threadIdx.y", "threadIdx.z"][dim];
        let mut count = self.threads[dim];
        if self.breaks() {
            count += 1;
        }
        if let Some(place) = self.split_for(at, count, if root { 25 } else { 60 }) {
            self.bind(at, place, index);
        }
    }

    fn bind_virtual(&mut self, at: usize) {
        let count = self.pick(&[1, 2, 2, 3]);
        if let Some(place) = self.split_for(at, count, 50) {
            self.bind(at, place, "vthread");
        }
    }

    /// Splits a data loop and returns the part of extent `count`: with a chance of `outer` percent,
    /// the outer one.
    fn split_for(&mut self, at: usize, count: i64, outer: u32) -> Option<usize> {
        let place = self.free_data_loop(at)?;
        let old = self.stages[at].loops[place].clone();
        let names = self.part_names(&old.name);
        let stage = self.stages[at].name.clone();
        let kids = vec![self.number(count)];
        let outer = self.chance(outer);
        let word = if outer { "nparts" } else { "factor" };
        let call = format!("{stage}.split({}, {word}=$)", old.name);
        self.directive("split factor", call, kids, &names);
        let (inner, parts) = if outer { (None, Some(count)) } else { (Some(count), None) };
        self.divide(at, place, inner, parts, names);
        Some(if outer { place } else { place + 1 })
    }

    fn bind(&mut self, at: usize, place: usize, index: &'static str) {
        let call = format!("{}.bind({}, {index})", self.stages[at].name, {
            &self.stages[at].loops[place].name
        });
        let kind = index.split('.').next().expect("a word");
        let kind = KINDS.iter().find(|known| **known == kind).expect("a kind");
        self.directive(kind, call, vec![], &[]);
        self.stages[at].loops[place].mark = Some(Mark::Bound(index));
        self.touch(at);
    }
}

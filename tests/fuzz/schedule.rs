//! Random schedules for a program: a model of stages and their loops follows each directive, so
//! that most schedules are legal; some break a rule on purpose.

use crate::tree::{Line, Node, Program, ScheduleText};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use tec::ir::DType;
use tec::schedule::directives::DIRECTIVES;

/// Everything that a legal schedule should now and then hold.
pub const KINDS: &[&str] = &[
    "split factor",
    "split nparts",
    "split factors",
    "tail=guard",
    "tail=peel",
    "tail=mask",
    "tail=shift",
    "tile",
    "fuse",
    "fuse(*)",
    "reorder",
    "reorder *",
    "unroll",
    "vectorize",
    "parallel",
    "compute_at",
    "compute_inline",
    "compute_root",
    "auto_inline_injective",
    "cache_write",
    "cache_read",
    "layout=",
    "rfactor",
    "storage_align",
    "double_buffer",
    "prefetch",
    "set_scope",
    "pragma",
    "parameter",
    "knob",
    "if",
    "for",
    "use",
    "let",
];

/// Whether the compiler knows the directive of a kind.
fn is_known(kind: &str) -> bool {
    let name = match kind {
        "split factor" | "split nparts" | "split factors" => "split",
        "tail=guard" | "tail=peel" | "tail=mask" | "tail=shift" => "split",
        "fuse(*)" => "fuse",
        "reorder *" => "reorder",
        "layout=" => "cache_read",
        "auto_inline_injective" | "parameter" | "knob" | "if" | "for" | "use" | "let" => {
            return true;
        }
        other => other,
    };
    DIRECTIVES.iter().any(|directive| directive.name == name)
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mark {
    Unroll,
    Vectorize,
    Parallel,
}

#[derive(Clone, Debug)]
struct Loop {
    id: usize,
    name: String,
    reduce: bool,
    /// Known when the kernel is compiled; not for boxes of attached stages.
    extent: Option<i64>,
    mark: Option<Mark>,
    /// A stage is attached to it or a directive counts on its iterations.
    used: bool,
    /// A data or reduction axis as declared.
    root: bool,
    /// The last step of this loop overlaps the one before.
    overlaps: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Root,
    At(usize, usize),
    Inline,
}

#[derive(Clone, Debug)]
struct Stage {
    name: String,
    loops: Vec<Loop>,
    rank: usize,
    /// Data axes as declared.
    declared: Vec<(String, Option<i64>)>,
    output: bool,
    /// It stays at the root.
    pinned: bool,
    reduction: bool,
    /// Any order of terms gives the same bits.
    exact: bool,
    commutes: bool,
    reads: Vec<String>,
    place: Place,
    touched: bool,
    /// No loop directive yet.
    fresh: bool,
    /// Directives that need memory or loops.
    kept: bool,
}

struct Model {
    rng: ChaCha8Rng,
    stages: Vec<Stage>,
    /// Inputs with their ranks.
    inputs: Vec<(String, usize)>,
    lines: Vec<Line>,
    /// Numbers with names: parameters, knobs, lets.
    numbers: Vec<(String, i64)>,
    names: usize,
    ids: usize,
    /// Results get names; not in a schedule that another one uses.
    named: bool,
    /// A rule may be broken with this chance in percent.
    wild: u32,
}

/// Gives a program schedules; it is built with the one named `s`. `number` deals out kinds.
pub fn add_schedule(program: &mut Program, seed: u64, number: u64) {
    let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ !number);
    let mut model = Model {
        rng,
        stages: Vec::new(),
        inputs: Vec::new(),
        lines: Vec::new(),
        numbers: Vec::new(),
        names: 0,
        ids: 0,
        named: true,
        wild: 0,
    };
    model.read(program);
    let mut kinds: Vec<&str> = (0..4).map(|turn| deal(number * 4 + turn)).collect();
    model.wild = if model.chance(30) { 15 } else { 0 };
    let mut main = ScheduleText { name: "s".to_string(), ..ScheduleText::default() };
    if kinds.contains(&"parameter") || model.chance(10) {
        let value = model.pick(&[1, 2, 3, 4, 5, 8]);
        let number = Node::leaf(DType::Index, value.to_string());
        main.params.push(Node::stmt("t = $", vec![number]));
        model.numbers.push(("t".to_string(), value));
    }
    if kinds.contains(&"use") || model.chance(8) {
        model.named = false;
        let numbers = std::mem::take(&mut model.numbers);
        for _ in 0..model.int(1, 3) {
            let kind = model.pick(KINDS);
            model.step(kind);
        }
        model.numbers = numbers;
        model.named = true;
        let body = std::mem::take(&mut model.lines);
        if !body.is_empty() {
            let name = "base".to_string();
            program.schedules.push(ScheduleText { name, body, ..ScheduleText::default() });
            model.push("use", "use base".to_string(), vec![], vec![]);
        }
    }
    if kinds.contains(&"knob") || model.chance(8) {
        let value = model.pick(&[2, 4, 8]);
        let form = format!("knob w = {value} in [2, 4, 8]");
        model.push("knob", form, vec![], vec!["w".to_string()]);
        model.numbers.push(("w".to_string(), value));
    }
    if kinds.contains(&"let") || model.chance(8) {
        let value = model.int(1, 4);
        let number = Node::leaf(DType::Index, value.to_string());
        model.push("let", "let q2 = 2 * $".to_string(), vec![number], vec!["q2".to_string()]);
        model.numbers.push(("q2".to_string(), 2 * value));
    }
    let wanted = model.int(8, 18) as usize;
    // Stages come and go first, then they are placed, then their loops change.
    let early = ["cache_write", "cache_read", "layout=", "rfactor"];
    kinds.sort_by_key(|kind| !early.contains(kind));
    for kind in kinds {
        for _ in 0..3 {
            if model.step(kind) {
                break;
            }
        }
    }
    let mut tries = 0;
    while model.lines.len() < wanted && tries < 60 {
        tries += 1;
        let kind = model.any_kind();
        model.step(kind);
    }
    main.body = std::mem::take(&mut model.lines);
    program.schedules.push(main);
}

fn deal(turn: u64) -> &'static str {
    let kinds: Vec<&str> = KINDS.iter().copied().filter(|kind| is_known(kind)).collect();
    kinds[(turn % kinds.len() as u64) as usize]
}

impl Model {
    fn int(&mut self, low: i64, high: i64) -> i64 {
        self.rng.random_range(low..=high)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.rng.random_range(0..list.len())].clone()
    }

    /// True if a rule is broken now.
    fn breaks(&mut self) -> bool {
        self.wild > 0 && self.chance(self.wild)
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn read(&mut self, program: &Program) {
        for node in &program.body {
            let text = node.render();
            let Some(rest) = text.strip_prefix("input ") else { continue };
            let Some((name, rest)) = rest.split_once(':') else { continue };
            if let Some((_, shape)) = rest.split_once('[') {
                let shape = shape.split(']').next().unwrap_or_default();
                let rank = shape.split(',').filter(|dim| !dim.trim().is_empty()).count();
                self.inputs.push((name.to_string(), rank));
            }
        }
        for info in &program.stages {
            let axes = info.axes.iter().map(|axis| (axis, false));
            let axes = axes.chain(info.reduce.iter().map(|axis| (axis, true)));
            let mut loops = Vec::new();
            for ((name, ext), reduce) in axes {
                let extent = ext.constant.then_some(ext.value);
                loops.push(self.new_loop(name.clone(), reduce, extent, true));
            }
            let declared = info
                .axes
                .iter()
                .map(|(name, ext)| (name.clone(), ext.constant.then_some(ext.value)));
            let declared = declared.collect();
            self.stages.push(Stage {
                declared,
                name: info.name.clone(),
                loops,
                rank: info.axes.len(),
                output: info.output,
                pinned: info.pinned,
                reduction: !info.reduce.is_empty(),
                exact: info.exact,
                commutes: info.commutes,
                reads: info.reads.clone(),
                place: Place::Root,
                touched: false,
                fresh: true,
                kept: false,
            });
        }
    }

    fn new_loop(&mut self, name: String, reduce: bool, extent: Option<i64>, root: bool) -> Loop {
        self.ids += 1;
        Loop { id: self.ids, name, reduce, extent, mark: None, used: false, root, overlaps: false }
    }

    fn push(&mut self, kind: &'static str, form: String, kids: Vec<Node>, results: Vec<String>) {
        let node = Node::stmt(form, kids);
        self.lines.push(Line { node, kinds: vec![kind], results });
    }

    fn also(&mut self, kind: &'static str) {
        if let Some(line) = self.lines.last_mut() {
            line.kinds.push(kind);
        }
    }

    /// A number as it is written.
    fn number(&mut self, value: i64) -> Node {
        let named: Vec<String> = self
            .numbers
            .iter()
            .filter(|(_, known)| *known == value)
            .map(|(name, _)| name.clone())
            .collect();
        let text = match named.is_empty() {
            true => value.to_string(),
            false => self.pick(&named),
        };
        Node::leaf(DType::Index, text)
    }

    fn factor(&mut self) -> i64 {
        if !self.numbers.is_empty() && self.chance(40) {
            let numbers = self.numbers.clone();
            return self.pick(&numbers).1;
        }
        self.pick(&[1, 2, 2, 3, 4, 4, 4, 5, 7, 8, 8, 16, 20])
    }

    /// A directive with results that get names, or none.
    fn directive(&mut self, kind: &'static str, call: String, kids: Vec<Node>, names: &[String]) {
        let form = match self.named && !names.is_empty() {
            true => format!("let {} = {call}", names.join(", ")),
            false => call,
        };
        self.push(kind, form, kids, names.to_vec());
    }

    fn any_kind(&mut self) -> &'static str {
        let weights: &[(&str, u32)] = &[
            ("split factor", 14),
            ("split nparts", 4),
            ("split factors", 4),
            ("tile", 6),
            ("fuse", 6),
            ("fuse(*)", 2),
            ("reorder", 8),
            ("reorder *", 3),
            ("unroll", 5),
            ("vectorize", 7),
            ("parallel", 5),
            ("compute_at", 14),
            ("compute_inline", 4),
            ("compute_root", 2),
            ("cache_write", 2),
            ("cache_read", 3),
            ("layout=", 1),
            ("rfactor", 2),
            ("storage_align", 2),
            ("double_buffer", 2),
            ("prefetch", 2),
            ("set_scope", 2),
            ("pragma", 2),
            ("if", 1),
            ("for", 1),
        ];
        let weights: Vec<_> = weights.iter().filter(|(kind, _)| is_known(kind)).collect();
        let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.random_range(0..total);
        for (kind, weight) in weights {
            if at < *weight {
                return kind;
            }
            at -= weight;
        }
        "unroll"
    }

    /// Adds a directive of a kind; false if there is no place for it.
    fn step(&mut self, kind: &str) -> bool {
        let count = self.lines.len();
        if !is_known(kind) {
            return false;
        }
        match kind {
            "split factor" | "split nparts" | "split factors" => self.split(kind, None),
            "tail=guard" | "tail=peel" | "tail=mask" | "tail=shift" => {
                let how = self.pick(&["split factor", "split factor", "split nparts"]);
                let how = if kind == "tail=mask" { "split factor" } else { how };
                self.split(how, Some(&kind["tail=".len()..]));
            }
            "tile" => self.tile(),
            "fuse" => self.fuse(),
            "fuse(*)" => self.fuse_all(),
            "reorder" => self.reorder(false),
            "reorder *" => self.reorder(true),
            "unroll" => self.mark(Mark::Unroll),
            "vectorize" => self.mark(Mark::Vectorize),
            "parallel" => self.mark(Mark::Parallel),
            "compute_at" => self.compute_at(),
            "compute_inline" => self.compute_inline(),
            "compute_root" => self.compute_root(),
            "auto_inline_injective" => self.auto_inline(),
            "cache_write" => self.cache_write(),
            "cache_read" => self.cache_read(false),
            "layout=" => self.cache_read(true),
            "rfactor" => self.rfactor(),
            "storage_align" => self.storage_align(),
            "double_buffer" => self.double_buffer(),
            "prefetch" => self.prefetch(),
            "set_scope" => self.set_scope(),
            "pragma" => self.pragma(),
            "if" => self.conditional(),
            "for" => self.repeated(),
            _ => {}
        }
        self.lines.len() > count
    }

    /// A stage that has loops.
    fn stage(&mut self) -> usize {
        let with_loops: Vec<usize> =
            (0..self.stages.len()).filter(|at| self.stages[*at].place != Place::Inline).collect();
        self.pick(&with_loops)
    }

    /// A loop of a stage, by its place, that may be split or fused.
    fn splittable(&mut self, stage: usize) -> Option<usize> {
        let wild = self.breaks();
        let free = |l: &Loop| wild || (l.mark.is_none() && !l.used);
        let loops = &self.stages[stage].loops;
        let fitting: Vec<usize> = (0..loops.len()).filter(|at| free(&loops[*at])).collect();
        (!fitting.is_empty()).then(|| self.pick(&fitting))
    }

    fn default_name(&self, stage: usize, name: String) -> String {
        let taken = |name: &str| self.stages[stage].loops.iter().any(|l| l.name == name);
        if !taken(&name) {
            return name;
        }
        (2..).map(|n| format!("{name}_{n}")).find(|name| !taken(name)).expect("a number")
    }

    /// Replaces a loop by two; their places are `at` and `at + 1`.
    fn divide(
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

    fn touch(&mut self, stage: usize) {
        self.stages[stage].touched = true;
        self.stages[stage].fresh = false;
    }

    fn part_names(&mut self, old: &str) -> [String; 2] {
        match self.named {
            true => [self.fresh("o"), self.fresh("i")],
            false => [format!("{old}_o"), format!("{old}_i")],
        }
    }

    fn split(&mut self, kind: &str, tail: Option<&str>) {
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
                // Names of parts of parts are not worth guessing.
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

    fn tile(&mut self) {
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

    /// Puts the loops at `order` into the same places in that order.
    fn permute(&mut self, stage: usize, order: &[usize]) {
        let loops = self.stages[stage].loops.clone();
        let mut places = order.to_vec();
        places.sort_unstable();
        for (place, from) in places.iter().zip(order) {
            self.stages[stage].loops[*place] = loops[*from].clone();
        }
        self.touch(stage);
    }

    fn join(&mut self, stage: usize, at: usize, count: usize, name: String) {
        let gone: Vec<Loop> = self.stages[stage].loops.drain(at..at + count).collect();
        let extent = gone.iter().map(|l| l.extent).try_fold(1, |a, e| Some(a * e?));
        let name = if self.named { name } else { self.default_name(stage, name) };
        let mut new = self.new_loop(name, gone[0].reduce, extent, false);
        new.overlaps = gone.iter().any(|l| l.overlaps);
        self.stages[stage].loops.insert(at, new);
        self.touch(stage);
    }

    fn fuse(&mut self) {
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
        let wild = self.breaks();
        let (at, mut count) = match (wild, starts.is_empty()) {
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

    fn fuse_all(&mut self) {
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

    fn reorder(&mut self, star: bool) {
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
        if self.lanes_are_around(stage) && !self.breaks() {
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

    /// Whether lanes or threads lie inside of lanes.
    fn lanes_are_around(&self, stage: usize) -> bool {
        let loops = &self.stages[stage].loops;
        let lanes = loops.iter().position(|l| l.mark == Some(Mark::Vectorize));
        lanes.is_some_and(|at| {
            let inside = |l: &Loop| matches!(l.mark, Some(Mark::Vectorize | Mark::Parallel));
            loops[at + 1..].iter().any(inside)
        })
    }

    /// Whether a loop may be vectorized.
    fn lanes_fit(&self, stage: usize, at: usize) -> bool {
        let loops = &self.stages[stage].loops;
        let lanes = |l: &Loop| l.mark == Some(Mark::Vectorize);
        let inside = |l: &Loop| lanes(l) || l.mark == Some(Mark::Parallel);
        !loops[..at].iter().any(lanes) && !loops[at + 1..].iter().any(inside)
    }

    fn mark(&mut self, mark: Mark) {
        let stage = self.stage();
        let wild = self.breaks();
        let attached = self.stages[stage].place != Place::Root;
        let loops = &self.stages[stage].loops;
        let copies: i64 = loops
            .iter()
            .filter(|l| l.mark == Some(Mark::Unroll))
            .map(|l| l.extent.unwrap_or(8))
            .product();
        let fits = |at: usize| {
            let l = &loops[at];
            let constant = l.extent.is_some_and(|extent| extent > 0 && !(attached && l.root));
            wild || l.mark.is_none()
                && match mark {
                    Mark::Unroll => constant && l.extent.is_some_and(|e| e * copies <= 40),
                    Mark::Vectorize => !l.reduce && constant && self.lanes_fit(stage, at),
                    Mark::Parallel => {
                        let lanes = |l: &Loop| l.mark == Some(Mark::Vectorize);
                        !l.reduce && !l.overlaps && !loops[..at].iter().any(lanes)
                    }
                }
        };
        let fitting: Vec<usize> = (0..loops.len()).filter(|at| fits(*at)).collect();
        if fitting.is_empty() {
            return;
        }
        let at = match mark {
            // The innermost loop is the usual one.
            Mark::Vectorize if self.chance(60) => fitting[fitting.len() - 1],
            Mark::Parallel if self.chance(60) => fitting[0],
            _ => self.pick(&fitting),
        };
        let word = match mark {
            Mark::Unroll => "unroll",
            Mark::Vectorize => "vectorize",
            Mark::Parallel => "parallel",
        };
        let (name, axis) =
            (self.stages[stage].name.clone(), self.stages[stage].loops[at].name.clone());
        self.directive(word, format!("{name}.{word}({axis})"), vec![], &[]);
        self.stages[stage].loops[at].mark = Some(mark);
        self.touch(stage);
    }

    /// Who reads a stage, through inlined ones too.
    fn readers(&self, name: &str) -> Vec<usize> {
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

    /// Inside which loop a stage attached to `at` stands.
    fn depth(&self, stage: usize, at: usize) -> Option<usize> {
        let loops = &self.stages[stage].loops;
        let lanes = loops[..=at].iter().position(|l| l.mark == Some(Mark::Vectorize));
        lanes.map_or(Some(at), |lanes| lanes.checked_sub(1))
    }

    /// Whether the loop at `at` of `target` is around the code of `reader`.
    fn encloses(&self, target: usize, at: usize, reader: usize) -> bool {
        if target == reader {
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

    fn is_within(&self, inner: usize, outer: usize) -> bool {
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

    fn compute_at(&mut self) {
        let movable: Vec<usize> = (0..self.stages.len())
            .filter(|at| {
                !self.stages[*at].output
                    && !self.stages[*at].pinned
                    && self.stages[*at].place != Place::Inline
            })
            .collect();
        if movable.is_empty() {
            return;
        }
        let stage = self.pick(&movable);
        let readers = self.readers(&self.stages[stage].name.clone());
        let wild = self.breaks();
        let mut points = Vec::new();
        for target in 0..self.stages.len() {
            if target == stage || self.stages[target].place == Place::Inline {
                continue;
            }
            for at in 0..self.stages[target].loops.len() {
                let covers = readers.iter().all(|reader| self.encloses(target, at, *reader));
                if wild || (covers && !readers.is_empty() && !self.is_within(target, stage)) {
                    points.push((target, at));
                }
            }
        }
        if points.is_empty() {
            return;
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
    }

    fn has_guests(&self, stage: usize) -> bool {
        self.stages.iter().any(|other| matches!(other.place, Place::At(at, _) if at == stage))
    }

    fn compute_inline(&mut self) {
        let wild = self.breaks();
        let fits = |at: usize| {
            let stage = &self.stages[at];
            let legal = !stage.output
                && !stage.pinned
                && !stage.reduction
                && !self.has_guests(at)
                && !stage.kept;
            stage.place != Place::Inline && (legal || wild)
        };
        let fitting: Vec<usize> = (0..self.stages.len()).filter(|at| fits(*at)).collect();
        if fitting.is_empty() {
            return;
        }
        let stage = self.pick(&fitting);
        let call = format!("{}.compute_inline()", self.stages[stage].name);
        self.directive("compute_inline", call, vec![], &[]);
        if !self.stages[stage].output {
            self.inline(stage);
        }
    }

    /// Stages that were attached where the inlined one's readers are now may not reach them.
    fn inline(&mut self, stage: usize) {
        self.stages[stage].place = Place::Inline;
        self.stages[stage].touched = true;
        for at in 0..self.stages.len() {
            self.recheck(at);
        }
    }

    /// Sends a stage back to the root whose point no longer encloses its readers.
    fn recheck(&mut self, stage: usize) {
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
        self.stages[stage].place = Place::Root;
    }

    fn compute_root(&mut self) {
        let stage = self.pick(&(0..self.stages.len()).collect::<Vec<_>>());
        let call = format!("{}.compute_root()", self.stages[stage].name);
        self.directive("compute_root", call, vec![], &[]);
        self.stages[stage].place = Place::Root;
        self.stages[stage].touched = true;
        for at in 0..self.stages.len() {
            self.recheck(at);
        }
    }

    fn auto_inline(&mut self) {
        self.push("auto_inline_injective", "auto_inline_injective()".to_string(), vec![], vec![]);
        for at in 0..self.stages.len() {
            let stage = &self.stages[at];
            if !stage.touched && !stage.output && !stage.reduction {
                self.stages[at].place = Place::Inline;
                self.stages[at].touched = true;
            }
        }
        for at in 0..self.stages.len() {
            self.recheck(at);
        }
    }

    fn scope(&mut self) -> &'static str {
        self.pick(&["local", "local", "global"])
    }

    fn cache_write(&mut self) {
        let wild = self.breaks();
        let fitting: Vec<usize> = (0..self.stages.len())
            .filter(|at| {
                let stage = &self.stages[*at];
                let used = stage.loops.iter().any(|l| l.used || l.mark.is_some());
                let usual = stage.fresh && stage.place == Place::Root && !self.has_guests(*at);
                wild || (usual && !used)
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
        new.pinned = false;
        let old = &mut self.stages[stage];
        old.loops.retain(|l| !l.reduce);
        (old.reduction, old.exact, old.touched) = (false, true, true);
        old.reads = vec![name];
        self.stages.insert(stage, new);
        self.shift_places(stage);
    }

    /// A stage was inserted at `stage`: those from there on have new numbers.
    fn shift_places(&mut self, stage: usize) {
        for other in &mut self.stages {
            if let Place::At(at, _) = &mut other.place
                && *at >= stage
            {
                *at += 1;
            }
        }
    }

    fn cache_read(&mut self, layout: bool) {
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
                stage.place != Place::Inline && stage.reads.contains(&source)
            })
            .collect();
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
                // A remainder of another number leaves gaps or overlaps.
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
            },
        );
        self.shift_places(first);
        for at in 0..self.stages.len() {
            self.recheck(at);
        }
    }

    fn rfactor(&mut self) {
        let wild = self.breaks();
        let fits = |stage: &Stage| {
            let usual = stage.reduction && stage.commutes && stage.place == Place::Root;
            let marked = stage.loops.iter().any(|l| l.mark.is_some() || l.used);
            stage.place != Place::Inline && (wild || (usual && !marked))
        };
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| fits(&self.stages[*at])).collect();
        if fitting.is_empty() || !self.named {
            return;
        }
        let stage = self.pick(&fitting);
        let reduce: Vec<usize> = (0..self.stages[stage].loops.len())
            .filter(|at| self.stages[stage].loops[*at].reduce || wild)
            .collect();
        if reduce.is_empty() {
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
        new.pinned = false;
        new.fresh = true;
        let old = &mut self.stages[stage];
        old.loops.retain(|l| !l.reduce);
        let last = Loop { used: false, root: true, ..axis };
        old.loops.push(last);
        (old.touched, old.fresh) = (true, false);
        old.reads = vec![name];
        self.stages.insert(stage, new);
        self.shift_places(stage);
    }

    fn storage_align(&mut self) {
        let wild = self.breaks();
        let fits = |stage: &Stage| {
            stage.place != Place::Inline
                && (wild || (!stage.output && stage.loops.iter().any(|l| l.root && !l.reduce)))
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
            .filter(|l| wild || (l.root && !l.reduce))
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

    fn double_buffer(&mut self) {
        let wild = self.breaks();
        let fits = |stage: &Stage| match stage.place {
            Place::At(target, id) => {
                let loops = &self.stages[target].loops;
                let at = loops.iter().position(|l| l.id == id);
                let serial = |l: &Loop| matches!(l.mark, None | Some(Mark::Unroll));
                let depth = at.and_then(|at| self.depth(target, at));
                depth.is_some_and(|depth| serial(&loops[depth]))
            }
            Place::Root => wild,
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

    fn prefetch(&mut self) {
        let stage = self.stage();
        let reads = self.stages[stage].reads.clone();
        let wild = self.breaks();
        let moved = |name: &String| {
            let moved = |other: &Stage| other.place != Place::Root || !other.output;
            self.stages.iter().any(|other| other.name == *name && moved(other))
        };
        let reads: Vec<String> = reads.into_iter().filter(|name| wild || !moved(name)).collect();
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

    fn set_scope(&mut self) {
        let wild = self.breaks();
        let fitting: Vec<usize> =
            (0..self.stages.len()).filter(|at| wild || !self.stages[*at].output).collect();
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

    fn pragma(&mut self) {
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

    /// A directive without results under a condition.
    fn conditional(&mut self) {
        let kinds = ["reorder", "unroll", "vectorize", "parallel", "compute_at"];
        let kind = self.pick(&kinds);
        let count = self.lines.len();
        self.step(kind);
        if self.lines.len() != count + 1 {
            return;
        }
        let line = self.lines.pop().expect("it was added");
        let (name, value) = match self.numbers.first() {
            Some((name, value)) => (name.clone(), *value),
            None => ("1".to_string(), 1),
        };
        let form = match self.chance(50) {
            true => format!("if {name} == {value} {{ $ }} else {{ assert false, \"not taken\" }}"),
            false => format!("if {name} != {value} {{ assert 1 > 2, \"not taken\" }} else {{ $ }}"),
        };
        let kinds = [&line.kinds[..], &["if"]].concat();
        self.lines.push(Line { node: Node::stmt(form, vec![line.node]), kinds, results: vec![] });
    }

    /// Directives for several stages or numbers.
    fn repeated(&mut self) {
        if self.chance(40) {
            let roots: Vec<String> = self
                .stages
                .iter()
                .filter(|stage| stage.place == Place::Root)
                .map(|stage| stage.name.clone())
                .collect();
            let form = format!("for T in [{}] {{ T.compute_root() }}", roots.join(", "));
            self.push("for", form, vec![], vec![]);
            self.also("compute_root");
            for stage in &mut self.stages {
                stage.touched |= roots.contains(&stage.name);
            }
            return;
        }
        let stage = self.stage();
        let fitting: Vec<usize> = (0..self.stages[stage].loops.len())
            .filter(|at| {
                let l = &self.stages[stage].loops[*at];
                l.mark.is_none() && l.extent.is_some_and(|e| (1..=4).contains(&e)) && !l.root
            })
            .take(2)
            .collect();
        if fitting.is_empty() {
            return;
        }
        let name = self.stages[stage].name.clone();
        let first = self.stages[stage].loops[fitting[0]].name.clone();
        self.push("for", format!("for T in [{name}] {{ T.unroll({first}) }}"), vec![], vec![]);
        self.also("unroll");
        self.stages[stage].loops[fitting[0]].mark = Some(Mark::Unroll);
        self.touch(stage);
    }
}

/// Counts of kinds.
pub fn kinds_of(program: &Program) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for schedule in &program.schedules {
        if !schedule.params.is_empty() {
            *counts.entry("parameter").or_default() += 1;
        }
        for line in &schedule.body {
            for kind in &line.kinds {
                *counts.entry(*kind).or_default() += 1;
            }
        }
    }
    counts
}

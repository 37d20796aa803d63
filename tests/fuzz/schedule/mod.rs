//! Random schedules for a program: a model tracks stages and their loops, so that most schedules
//! are legal; some break a rule on purpose.

mod attach;
mod compute_with;
mod loops;
mod recurrence;
mod scans;
mod stages;
mod storage;
mod threads;

use crate::tree::{Line, Node, Program, ScheduleText};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use tec::ir::DType;
use tec::schedule::directives::DIRECTIVES;
pub use threads::{KINDS as GPU_KINDS, add_threads};

/// All kinds of directives that some legal schedules must contain.
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
    "skew",
    "skew of steps",
    "unroll",
    "vectorize",
    "parallel",
    "compute_at",
    "compute_inline",
    "compute_root",
    "store_at",
    "store_root",
    "compute_with",
    "auto_inline_injective",
    "cache_write",
    "cache_read",
    "layout=",
    "rfactor",
    "scan",
    "scan blocks",
    "scatter",
    "storage_align",
    "double_buffer",
    "prefetch",
    "store_nontemporal",
    "set_scope",
    "tensorize",
    "pragma",
    "parameter",
    "knob",
    "if",
    "for",
    "use",
    "let",
    "let in an if",
    "alias",
    "alias of the kernel",
    "for TARGET",
    "versions",
];

/// Whether the compiler knows the directive of a kind.
fn is_known(kind: &str) -> bool {
    let name = match kind {
        "split factor" | "split nparts" | "split factors" => "split",
        "tail=guard" | "tail=peel" | "tail=mask" | "tail=shift" => "split",
        "fuse(*)" => "fuse",
        "reorder *" => "reorder",
        "skew of steps" => "skew",
        "layout=" => "cache_read",
        "scan blocks" => "scan",
        "auto_inline_injective" | "parameter" | "knob" | "if" | "for" | "use" | "let" => {
            return true;
        }
        "let in an if" | "alias" | "alias of the kernel" | "for TARGET" | "versions" => {
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
    /// Bound to this index of a GPU.
    Bound(&'static str),
}

#[derive(Clone, Debug)]
struct Loop {
    id: usize,
    name: String,
    reduce: bool,
    /// The extent if it is a compile-time constant; none for regions of attached stages.
    extent: Option<i64>,
    mark: Option<Mark>,
    /// Whether a stage is attached to it or a directive depends on its iterations.
    used: bool,
    /// A data or reduction axis as declared.
    root: bool,
    /// Whether the last step of this loop overlaps the one before.
    overlaps: bool,
    /// Whether its iterations read elements that earlier ones computed.
    serial: bool,
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
    /// Whether it stays at the root.
    pinned: bool,
    /// Whether an intrinsic may compute it.
    dot: bool,
    /// Whether it takes no more directives.
    locked: bool,
    /// Whether a rule was broken that no later directive may repair.
    is_illegal: bool,
    reduction: bool,
    /// Whether any order of terms gives the same bits.
    exact: bool,
    commutes: bool,
    reads: Vec<String>,
    place: Place,
    touched: bool,
    /// Whether it has no loop directive yet.
    fresh: bool,
    /// Directives that need memory or loops.
    kept: bool,
    /// Whether its buffer is outside of the loop in which it is computed.
    stored: bool,
    /// The storage scope on a GPU, if a directive set it.
    scope: Option<&'static str>,
    /// The stage whose loops it shares (`compute_with`).
    host: Option<usize>,
    /// The axis of a possible scan, and whether that keeps the order of the terms.
    prefix: Option<(String, bool)>,
    /// The axis of a possible scatter.
    scatter: Option<String>,
    /// The recurrence that it belongs to.
    recurrence: Option<usize>,
    /// The number of its first loops that are steps of the recurrence.
    steps: usize,
}

impl Stage {
    /// Returns its loops inside a step.
    fn inner(&self) -> &[Loop] {
        // A wrong directive may have fused the steps.
        self.loops.get(self.steps..).unwrap_or(&[])
    }
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
    /// Whether results get names; not in a schedule that another one uses.
    named: bool,
    /// The probability in percent of breaking a rule on purpose.
    illegal_percent: u32,
    /// Whether the schedule uses an alias of the kernel.
    called: bool,
    /// Whether an extent is so large that a reduction over it, of no terms, would run for hours.
    huge: bool,
    /// Whether the target is a GPU.
    gpu: bool,
    /// Its threads along x, y, z.
    threads: [i64; 3],
}

/// Gives a program schedules; it is built with the one named `s`. `number` selects kinds of
/// directives.
pub fn add_schedule(program: &mut Program, seed: u64, number: u64) {
    let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ !number);
    let mut model = Model::new(rng);
    model.read(program);
    let mut kinds = wanted_kinds(number);
    model.illegal_percent = if model.chance(30) { 15 } else { 0 };
    let mut main = ScheduleText { name: "s".to_string(), ..ScheduleText::default() };
    if kinds.contains(&"alias of the kernel") || model.chance(95) {
        model.call_by_aliases(program);
    }
    if kinds.contains(&"for TARGET") || model.chance(10) {
        main.target = Some("cpu".to_string());
    }
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
            // The one for another target is checked but not used.
            let other = Some("nvptx".to_string());
            let other = ScheduleText { name: name.clone(), target: other, ..Default::default() };
            program.schedules.push(other);
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
    // Stages are added and removed first, then placed, and then their loops change.
    let early =
        ["cache_write", "cache_read", "layout=", "rfactor", "scan", "scan blocks", "scatter"];
    kinds.sort_by_key(|kind| !early.contains(kind));
    let wants_versions = kinds.contains(&"versions");
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
    if wants_versions || model.chance(15) {
        model.make_versions(&program.vars);
    }
    main.body = std::mem::take(&mut model.lines);
    main.by_aliases = model.called;
    program.schedules.push(main);
}

/// The number of these kinds that each schedule should contain, so that all are in 5 % of the legal
/// ones.
const WANTED: u64 = 6;

/// Returns the kinds of directives that the schedule of a program should contain.
pub fn wanted_kinds(number: u64) -> Vec<&'static str> {
    (0..WANTED).map(|turn| deal(number * WANTED + turn)).collect()
}

fn deal(turn: u64) -> &'static str {
    let kinds: Vec<&str> = KINDS.iter().copied().filter(|kind| is_known(kind)).collect();
    kinds[(turn % kinds.len() as u64) as usize]
}

impl Model {
    fn new(rng: ChaCha8Rng) -> Model {
        Model {
            rng,
            stages: Vec::new(),
            inputs: Vec::new(),
            lines: Vec::new(),
            numbers: Vec::new(),
            names: 0,
            ids: 0,
            named: true,
            illegal_percent: 0,
            called: false,
            huge: false,
            gpu: false,
            threads: [1; 3],
        }
    }

    fn int(&mut self, low: i64, high: i64) -> i64 {
        self.rng.random_range(low..=high)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.rng.random_range(0..list.len())].clone()
    }

    /// Decides whether to break a rule here.
    fn breaks(&mut self) -> bool {
        self.illegal_percent > 0 && self.chance(self.illegal_percent)
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn read(&mut self, program: &Program) {
        self.huge = program.vars.iter().any(|(_, value)| *value > 1 << 20);
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
                dot: info.dot,
                locked: false,
                is_illegal: false,
                reduction: !info.reduce.is_empty(),
                exact: info.exact,
                commutes: info.commutes,
                reads: info.reads.clone(),
                place: Place::Root,
                touched: false,
                fresh: true,
                kept: false,
                stored: false,
                scope: None,
                host: None,
                prefix: info.prefix.clone(),
                scatter: info.scatter.clone(),
                recurrence: (info.steps > 0).then_some(info.place),
                steps: info.steps,
            });
        }
        self.read_recurrences(program);
    }

    fn new_loop(&mut self, name: String, reduce: bool, extent: Option<i64>, root: bool) -> Loop {
        self.ids += 1;
        let (mark, used, overlaps, serial) = (None, false, false, false);
        Loop { id: self.ids, name, reduce, extent, mark, used, root, overlaps, serial }
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

    /// Returns a number as text: a literal or a name.
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
        self.pick(&[1, 2, 2, 3, 4, 4, 4, 5, 7, 8, 8, 12, 16, 16, 20, 32, 64])
    }

    /// Adds a directive, with `let` if its results get names.
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
            ("skew", 6),
            ("skew of steps", 5),
            ("unroll", 5),
            ("vectorize", 7),
            ("parallel", 5),
            ("compute_at", 14),
            ("compute_inline", 4),
            ("compute_root", 2),
            ("store_at", 6),
            ("compute_with", 4),
            ("cache_write", 2),
            ("cache_read", 3),
            ("layout=", 1),
            ("rfactor", 2),
            ("scan", 4),
            ("scan blocks", 6),
            ("scatter", 6),
            ("storage_align", 2),
            ("double_buffer", 5),
            ("prefetch", 2),
            ("store_nontemporal", 2),
            ("set_scope", 2),
            ("pragma", 2),
            ("if", 1),
            ("let in an if", 1),
            ("alias", 1),
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
            "skew" => self.skew(),
            "skew of steps" => self.skew_steps(),
            "unroll" => self.mark(Mark::Unroll),
            "vectorize" => self.mark(Mark::Vectorize),
            "parallel" => self.mark(Mark::Parallel),
            "compute_at" => self.compute_at(),
            "compute_inline" => self.compute_inline(),
            "compute_root" => self.compute_root(),
            "store_at" | "store_root" => self.store_at(),
            "compute_with" => self.compute_with(),
            "auto_inline_injective" => self.auto_inline(),
            "cache_write" => self.cache_write(),
            "cache_read" => self.cache_read(false),
            "layout=" => self.cache_read(true),
            "rfactor" => self.rfactor(),
            "scan" => self.scan(),
            "scan blocks" => self.scan_blocks(),
            "scatter" => self.scatter(),
            "storage_align" => self.storage_align(),
            "double_buffer" => self.double_buffer(),
            "pipeline" => self.pipeline(),
            "prefetch" => self.prefetch(),
            "store_nontemporal" => self.store_nontemporal(),
            "set_scope" => self.set_scope(),
            "pragma" => self.pragma(),
            "tensorize" => self.tensorize(),
            "if" => self.conditional(),
            "let in an if" => self.number_in_an_if(),
            "alias" => self.alias(),
            "for" => self.repeated(),
            _ => {}
        }
        self.lines.len() > count
    }

    /// Returns a stage that has loops.
    fn stage(&mut self) -> usize {
        let with_loops: Vec<usize> =
            (0..self.stages.len()).filter(|at| self.stages[*at].place != Place::Inline).collect();
        let free: Vec<usize> =
            with_loops.iter().copied().filter(|at| !self.stages[*at].locked).collect();
        let all: Vec<usize> = (0..self.stages.len()).collect();
        let list = [free, with_loops, all].into_iter().find(|list| !list.is_empty());
        self.pick(&list.expect("there are stages"))
    }

    /// Returns the statement `$` under a condition that holds; the other branch is `otherwise`.
    fn branches(&mut self, otherwise: &str) -> String {
        let (name, value) = match self.numbers.first() {
            Some((name, value)) => (name.clone(), *value),
            None => ("1".to_string(), 1),
        };
        match self.chance(50) {
            true => format!("if {name} == {value} {{ $ }} else {{ {otherwise} }}"),
            false => format!("if {name} != {value} {{ {otherwise} }} else {{ $ }}"),
        }
    }

    /// Adds a directive under a condition; the names that it declares are visible after the braces.
    fn conditional(&mut self) {
        let kinds = ["reorder", "unroll", "vectorize", "parallel", "compute_at"];
        let with_names = ["split factor", "fuse", "tile", "cache_read", "cache_write"];
        let kind = match self.chance(50) {
            true => self.pick(&with_names),
            false => self.pick(&kinds),
        };
        let count = self.lines.len();
        self.step(kind);
        if self.lines.len() != count + 1 {
            return;
        }
        let line = self.lines.pop().expect("it was added");
        let form = self.branches("assert 1 > 2, \"not taken\"");
        let kinds = [&line.kinds[..], &["if"]].concat();
        let (node, results) = (Node::stmt(form, vec![line.node]), line.results);
        self.lines.push(Line { node, kinds, results });
    }

    /// Puts the last few directives under a condition on the run-time integers.
    fn make_versions(&mut self, vars: &[(String, i64)]) {
        if self.gpu || vars.is_empty() || self.lines.is_empty() {
            return;
        }
        let cond = match self.chance(70) {
            true => self.run_time_condition(vars),
            false => {
                let (a, b) = (self.run_time_condition(vars), self.run_time_condition(vars));
                self.pick(&[format!("{a} and {b}"), format!("{a} or not ({b})")])
            }
        };
        let first = self.lines.len() - self.int(1, 4.min(self.lines.len() as i64)) as usize;
        let inside = self.lines.split_off(first);
        let mut kinds: Vec<_> = inside.iter().flat_map(|line| line.kinds.clone()).collect();
        kinds.push("versions");
        let places = vec!["$"; inside.len()].join(" ");
        let form = match self.chance(70) {
            true => format!("if {cond} {{ {places} }}"),
            false => format!("if {cond} {{ let q0 = 1 }} else {{ {places} }}"),
        };
        let node = Node::stmt(form, inside.into_iter().map(|line| line.node).collect());
        self.lines.push(Line { node, kinds, results: Vec::new() });
    }

    /// Returns a condition on run-time integers that may hold in this run or not.
    fn run_time_condition(&mut self, vars: &[(String, i64)]) -> String {
        let (name, value) = self.pick(vars);
        let near = value.clamp(-(1 << 62), 1 << 62) + self.int(-1, 1);
        let bound = self.pick(&[near, near, 0, 16, 64]);
        let compare = self.pick(&["<", "<=", ">", ">=", "==", "!="]);
        let factor = self.pick(&[2, 4, 8]);
        let (other, _) = self.pick(vars);
        self.pick(&[
            format!("{name} {compare} {bound}"),
            format!("{name} {compare} {bound}"),
            format!("{name} % {factor} == 0"),
            format!("{name} * {other} {compare} {bound}"),
            format!("max({name} // {factor}, {other}) {compare} {bound}"),
        ])
    }

    /// Adds a constant that both branches declare; that of the taken one is visible after the
    /// braces.
    fn number_in_an_if(&mut self) {
        if !self.named {
            return;
        }
        let (name, value) = (self.fresh("q"), self.int(1, 9));
        let form = self.branches(&format!("let {name} = {}", value + 1));
        let number = Node::leaf(DType::Index, value.to_string());
        let taken = Node::stmt(format!("let {name} = $"), vec![number]);
        self.push("let in an if", form, vec![taken], vec![name.clone()]);
        self.numbers.push((name, value));
    }

    /// Adds an alias of a stage, sometimes declared in a branch, and uses it from then on.
    fn alias(&mut self) {
        if !self.named {
            return;
        }
        let (stage, alias) = (self.stage(), self.fresh("T"));
        let name = self.stages[stage].name.clone();
        let line = format!("let {alias} = {name}");
        let form = match self.chance(50) {
            true => self.branches("assert 1 > 2, \"not taken\"").replace('$', &line),
            false => line,
        };
        self.push("alias", form, vec![], vec![alias.clone()]);
        self.call(&name, &alias);
    }

    /// Uses another name for a stage or an input from then on.
    fn call(&mut self, name: &str, alias: &str) {
        let stages = self.stages.iter_mut();
        let names = stages.flat_map(|stage| [&mut stage.name].into_iter().chain(&mut stage.reads));
        let names = names.chain(self.inputs.iter_mut().map(|(input, _)| input));
        names.filter(|known| *known == name).for_each(|known| *known = alias.to_string());
    }

    /// Uses the aliases that the kernel declares for stages and inputs.
    fn call_by_aliases(&mut self, program: &Program) {
        for text in program.body.iter().map(Node::render) {
            let Some(text) = text.strip_prefix("let ") else { continue };
            let Some((alias, of)) = text.split_once(" = ") else { continue };
            let inputs = self.inputs.iter().map(|(input, _)| input);
            if self.stages.iter().map(|stage| &stage.name).chain(inputs).any(|name| name == of) {
                self.call(of, alias);
                self.called = true;
            }
        }
    }

    /// Adds a `for` over stages.
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

/// Counts the kinds of directives in the schedules of a program.
pub fn kinds_of(program: &Program) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for schedule in &program.schedules {
        for (kind, there) in [
            ("parameter", !schedule.params.is_empty()),
            ("alias of the kernel", schedule.by_aliases),
            ("for TARGET", schedule.target.is_some()),
        ] {
            if there {
                *counts.entry(kind).or_default() += 1;
            }
        }
        for line in &schedule.body {
            for kind in &line.kinds {
                *counts.entry(*kind).or_default() += 1;
            }
        }
    }
    counts
}

//! Programs with packs: a drawn program is written in two ways, with single axes and extents, and
//! with packs in their place. Both must give the same loops, or the same errors.
//!
//! Before: `compute S1[i: n, j: 3] = A0[i, j] + A1[j]`.
//! After: `compute S1[zq...: [n, 3]...] = A0[zq...] + A1[zq[1]]`; without packs, the axes are `zq0`
//! and `zq1`, the names that the compiler gives the axes of the pack.

use crate::run::Source;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use tec::diag::Span;
use tec::driver::{self, Failure, Options, PassId, Trace};
use tec::ir::print::{Style, print_kernel};
use tec::lang::{Loader, Program, ast};
use tec::target::Target;

/// What a program must contain at least once in a run.
const FORMS: [&str; 9] = [
    "axes",
    "axis alone",
    "extents",
    "element",
    "whole index",
    "split index",
    "reduction axis",
    "slice",
    "error",
];

/// A source text in memory.
struct Text(String);

impl Loader for Text {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path {
            "p.te" => Ok(self.0.clone().into_bytes()),
            _ => Err("no such file".to_string()),
        }
    }
}

/// A name in the source, and what stands for it in both texts.
struct Axis {
    single: String,
    element: String,
    /// The pack and its place there.
    place: Option<(String, usize)>,
}

/// The replacements of a program, for the text with single axes and for that with packs.
struct Rewriter {
    rng: ChaCha8Rng,
    edits: Vec<(Span, String, String)>,
    forms: BTreeMap<&'static str, u64>,
    text: String,
}

impl Rewriter {
    fn count(&mut self, form: &'static str) {
        *self.forms.entry(form).or_default() += 1;
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn at(&self, span: Span) -> String {
        self.text[span.start as usize..span.end as usize].to_string()
    }

    fn kernel(&mut self, kernel: &ast::Kernel) {
        let mut reduced = BTreeMap::new();
        self.statements(&kernel.body, &mut reduced);
    }

    fn statements(&mut self, stmts: &[ast::Stmt], reduced: &mut BTreeMap<String, Axis>) {
        for stmt in stmts {
            match &stmt.kind {
                ast::StmtKind::Input { shape: Some(shape), .. } => self.extents(shape),
                ast::StmtKind::Reduce(axes) => {
                    for axis in axes {
                        self.reduce(axis, reduced);
                    }
                }
                ast::StmtKind::Stage(stage) => self.stage(stage, reduced),
                // Axes of the steps are no packs, and `update` names the axes behind its offsets.
                ast::StmtKind::Scan { stages, .. } => {
                    stages.iter().for_each(|stage| self.expr(&stage.body, reduced));
                }
                ast::StmtKind::Update { stage, .. } => self.expr(&stage.body, reduced),
                ast::StmtKind::If { then, otherwise, .. } => {
                    self.statements(then, reduced);
                    self.statements(otherwise, reduced);
                }
                _ => {}
            }
        }
    }

    /// `float32[n, 3]` as `float32[[n, 3]...]`.
    fn extents(&mut self, shape: &[ast::Expr]) {
        let (Some(first), Some(last)) = (shape.first(), shape.last()) else { return };
        if self.chance(50) {
            return;
        }
        let span = first.span.to(last.span);
        // Extents in parentheses end behind their span.
        if shape.iter().any(|extent| self.at(extent.span).contains(['(', ')'])) {
            return;
        }
        let text = self.at(span);
        if text.contains(['(', ')']) {
            return;
        }
        self.count("extents");
        self.edits.push((span, text.clone(), format!("[{text}]...")));
    }

    /// `reduce k1: 0..n` as `reduce k1_...: 0..[n]...`.
    fn reduce(&mut self, axis: &ast::ReduceAxis, reduced: &mut BTreeMap<String, Axis>) {
        let end = self.at(axis.end.span);
        let name = &axis.name.text;
        if self.chance(50) || end.contains(['(', ')']) || self.at(axis.min.span).contains('(') {
            return;
        }
        self.count("reduction axis");
        self.edits.push((axis.name.span, format!("{name}_0"), format!("{name}_...")));
        self.edits.push((axis.end.span, end.clone(), format!("[{end}]...")));
        let axis = Axis {
            single: format!("{name}_0"),
            element: format!("{name}_[0]"),
            place: Some((format!("{name}_"), 0)),
        };
        reduced.insert(name.clone(), axis);
    }

    fn stage(&mut self, stage: &ast::Stage, reduced: &BTreeMap<String, Axis>) {
        let mut names: BTreeMap<String, Axis> = BTreeMap::new();
        for (name, axis) in reduced {
            let (single, element) = (axis.single.clone(), axis.element.clone());
            names.insert(name.clone(), Axis { single, element, place: axis.place.clone() });
        }
        let axes = &stage.axes;
        // Extents in parentheses end behind their span.
        let plain = axes.iter().all(|(_, extent)| !self.at(extent.span).contains(['(', ')']));
        let whole = match (axes.first(), axes.last()) {
            (Some(first), Some(last)) => Some(first.0.span.to(last.1.span)),
            _ => None,
        };
        let plain = plain && whole.is_some_and(|span| !self.at(span).contains(['(', ')']));
        if let (Some(span), true) = (whole.filter(|_| plain), self.chance(80)) {
            // The first or last axis may stay alone.
            let alone = axes.len() > 1 && self.chance(30);
            let of_pack = if alone { &axes[1..] } else { &axes[..] };
            self.count(if alone { "axis alone" } else { "axes" });
            let first = if alone {
                format!("{}: {}, ", axes[0].0.text, self.at(axes[0].1.span))
            } else {
                String::new()
            };
            let extents: Vec<String> =
                of_pack.iter().map(|(_, extent)| self.at(extent.span)).collect();
            let singles: Vec<String> =
                extents.iter().enumerate().map(|(at, n)| format!("zq{at}: {n}")).collect();
            let (singles, extents) = (singles.join(", "), extents.join(", "));
            let packed = format!("{first}zq...: [{extents}]...");
            self.edits.push((span, format!("{first}{singles}"), packed));
            for (at, (name, _)) in of_pack.iter().enumerate() {
                let (single, element) = (format!("zq{at}"), format!("zq[{at}]"));
                let place = Some(("zq".to_string(), at));
                names.insert(name.text.clone(), Axis { single, element, place });
            }
        }
        self.expr(&stage.body, &names);
    }

    fn expr(&mut self, expr: &ast::Expr, names: &BTreeMap<String, Axis>) {
        use ast::ExprKind::*;
        match &*expr.kind {
            Name(name) => {
                if let Some(axis) = names.get(&name.text) {
                    let (single, element) = (axis.single.clone(), axis.element.clone());
                    self.count("element");
                    self.edits.push((expr.span, single, element));
                }
            }
            Unary(_, a) | Cast(a, _) | Expand(a) => self.expr(a, names),
            Binary(_, a, b, _) => {
                self.expr(a, names);
                self.expr(b, names);
            }
            If(a, b, c) => [a, b, c].into_iter().for_each(|part| self.expr(part, names)),
            Index(_, indices) => self.indices(indices, names),
            Call(_, args) => {
                for arg in args {
                    let is_axis = arg.name.as_ref().is_some_and(|name| name.text == "axis");
                    match is_axis {
                        true => self.axis_list(&arg.value, names),
                        false => self.expr(&arg.value, names),
                    }
                }
            }
            Tuple(parts) | List(parts) => parts.iter().for_each(|part| self.expr(part, names)),
            _ => {}
        }
    }

    /// `axis=[k1, k2]`, where a pack has dots.
    fn axis_list(&mut self, value: &ast::Expr, names: &BTreeMap<String, Axis>) {
        let items = match &*value.kind {
            ast::ExprKind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(value),
        };
        for item in items {
            if let ast::ExprKind::Name(name) = &*item.kind
                && let Some(Axis { single, place: Some((pack, _)), .. }) = names.get(&name.text)
            {
                self.edits.push((item.span, single.clone(), format!("{pack}...")));
            }
        }
    }

    /// `A[zq0, zq1, 3]` as `A[zq..., 3]` or `A[zq[0..1]..., zq[1..2]..., 3]`, else one by one.
    fn indices(&mut self, indices: &[ast::Expr], names: &BTreeMap<String, Axis>) {
        let mut at = 0;
        while at < indices.len() {
            let run = run_of(&indices[at..], names);
            if run.len() < 2 {
                self.expr(&indices[at], names);
                at += 1;
                continue;
            }
            let span = indices[at].span.to(indices[at + run.len() - 1].span);
            let singles: Vec<&str> = run.iter().map(|axis| axis.single.as_str()).collect();
            let (pack, first) = run[0].place.clone().expect("an axis of a pack");
            let end = first + run.len();
            let length = names.values().filter(|axis| is_of(axis, &pack)).count();
            let packed = if first == 0 && end == length && self.chance(60) {
                self.count("whole index");
                format!("{pack}...")
            } else if self.chance(50) {
                self.count("slice");
                format!("{pack}[{first}..{end}]...")
            } else {
                self.count("split index");
                format!("{pack}[{first}..{}]..., {pack}[{}]", end - 1, end - 1)
            };
            self.edits.push((span, singles.join(", "), packed));
            at += run.len();
        }
    }

    /// Returns the text with single axes and that with packs.
    fn texts(&mut self) -> [String; 2] {
        self.edits.sort_by_key(|(span, ..)| span.start);
        let mut texts = [String::new(), String::new()];
        let mut end = 0;
        for (span, single, packed) in &self.edits {
            assert!(span.start as usize >= end, "edits overlap at {}", self.at(*span));
            let between = &self.text[end..span.start as usize];
            texts[0].push_str(&format!("{between}{single}"));
            texts[1].push_str(&format!("{between}{packed}"));
            end = span.end as usize;
        }
        texts.iter_mut().for_each(|text| text.push_str(&self.text[end..]));
        texts
    }
}

fn is_of(axis: &Axis, pack: &str) -> bool {
    axis.place.as_ref().is_some_and(|(own, _)| own == pack)
}

/// Returns the axes of one pack, in its order, with which indices begin.
fn run_of<'n>(indices: &[ast::Expr], names: &'n BTreeMap<String, Axis>) -> Vec<&'n Axis> {
    let mut run: Vec<&Axis> = Vec::new();
    for index in indices {
        let ast::ExprKind::Name(name) = &*index.kind else { break };
        let Some(axis) = names.get(&name.text) else { break };
        let Some((pack, place)) = &axis.place else { break };
        let follows = match run.last().and_then(|last| last.place.as_ref()) {
            None => true,
            Some((before, at)) => before == pack && at + 1 == *place,
        };
        if !follows {
            break;
        }
        run.push(axis);
    }
    run
}

/// Returns the loops of every kernel, or the codes of the errors.
fn loops(text: &str, options: &Options) -> Result<String, Vec<String>> {
    let mut trace = Trace::default();
    let codes = |failure: Failure| -> Vec<String> {
        match failure {
            Failure::User(diags) => diags.iter().map(|diag| diag.code.to_string()).collect(),
            bug => panic!("{bug:?}\n{text}"),
        }
    };
    let program = parsed(text).map_err(|failure| codes(*failure))?;
    let graphs = driver::elaborate(&program, options, &mut trace).map_err(codes)?;
    let bounded = driver::schedule(&program, graphs, options, &mut trace).map_err(codes)?;
    let mut shown = String::new();
    for one in &bounded {
        let last = Some(PassId::LAST_READABLE);
        let kernel = driver::lower(one, options, last, &mut trace).map_err(codes)?;
        shown.push_str(&print_kernel(&kernel, Style::Full));
    }
    Ok(shown)
}

fn parsed(text: &str) -> Result<Program, Box<Failure>> {
    let loader = Text(text.to_string());
    driver::load("p.te", &loader, &mut Trace::default()).map_err(|(_, f)| Box::new(f))
}

/// Compares `n` programs in both ways and panics if two differ.
pub fn agree(n: u64, seed: u64) {
    let mut forms: BTreeMap<&'static str, u64> = BTreeMap::new();
    for number in 0..n {
        let source = if number % 2 == 0 { Source::Plain } else { Source::Scheduled };
        let mut program = source.program(seed, number);
        program.schedules.clear();
        let (name, defines) = (program.name.clone(), program.defines.clone());
        let mut options = Options::new(Target::native());
        options.schedule = Some((Some(name.clone()), "default".to_string()));
        options.defines = defines.into_iter().map(|(n, v)| (Some(name.clone()), n, v)).collect();
        let text = program.text();
        let file = parsed(&text).unwrap_or_else(|_| panic!("does not parse:\n{text}"));
        let mut rewriter = Rewriter {
            rng: ChaCha8Rng::seed_from_u64(seed << 32 | number),
            edits: Vec::new(),
            forms: BTreeMap::new(),
            text,
        };
        for item in &file.files[0].items {
            if let ast::Item::Kernel(kernel) = item {
                rewriter.kernel(kernel);
            }
        }
        let [single, packed] = rewriter.texts();
        let (wanted, found) = (loops(&single, &options), loops(&packed, &options));
        if wanted.is_err() {
            rewriter.count("error");
        }
        assert!(
            wanted == found,
            "program {number} of seed {seed}:\n{single}\n{packed}\n{wanted:?}\n{found:?}"
        );
        for (form, count) in rewriter.forms {
            *forms.entry(form).or_default() += count;
        }
    }
    println!("{n} programs: {forms:?}");
    let missing: Vec<&str> = FORMS.into_iter().filter(|form| !forms.contains_key(form)).collect();
    assert!(n < 200 || missing.is_empty(), "never drawn: {missing:?}");
}

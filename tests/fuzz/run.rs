//! Runs batches of random programs on two threads and reports.

use crate::damage::be_quiet;
use crate::differential::{self, Case, Interpreted, Verdict};
use crate::generate::generate;
use crate::network;
use crate::pipeline::{empty_pipeline, pipeline, pipeline_for_gpu, pipeline_for_network};
use crate::schedule::{GPU_KINDS, KINDS, add_schedule, add_threads, kinds_of};
use crate::shrink::shrink;
use crate::table::Table;
use crate::tree::{Line, Node, Program, ScheduleText};
use crate::unchecked::{UncheckedOutcome, check_unchecked};
use crate::watch::Watch;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tec::driver::{self, FpContract, Options, Trace, with_stack};
use tec::ir::DType;
use tec::lower::outline_simd::Nest;
use tec::schedule::Fallback;
use tec::target::{Processor, Target};
use tec::tune::{Space, space};

/// Programs that share a module.
const BATCH: u64 = 20;
/// One program in this many has empty tensors with one huge extent.
const EMPTY_PERIOD: u64 = 10;
/// The number of findings after which a run stops.
const MAX_FINDINGS: usize = 8;

/// The statistics and findings of a run.
#[derive(Default)]
pub struct Report {
    table: Table,
    same: u64,
    refused_at_entry: u64,
    too_large: u64,
    refused: BTreeMap<String, u64>,
    refused_programs: u64,
    findings: Vec<String>,
    /// The number of legal schedules that contain each kind of directive.
    kinds: BTreeMap<&'static str, u64>,
    /// For each check: the outcomes of refused programs without the check.
    unchecked: BTreeMap<&'static str, Unchecked>,
    /// Vectorized nests that the SIMD back end compiles.
    wide: u64,
    /// Nests that it does not compile, by reason.
    narrow: BTreeMap<String, u64>,
}

/// The outcomes of refused programs without the check that refuses them.
#[derive(Default)]
struct Unchecked {
    wrong: BTreeMap<&'static str, u64>,
    otherwise: u64,
    right: u64,
}

impl Unchecked {
    fn shown(&self) -> u64 {
        self.wrong.values().sum()
    }
}

/// Reasons why a refused program may give correct results.
const NOT_SHOWN: &str = "a loop of one iteration, a later directive that undoes the refused one, \
                         an idempotent operation (min), or data that hides the error";

/// Checks without which results would be wrong. The others refuse what cannot be implemented: names
/// and kinds, factors, layouts without an inverse (E0320 to E0324, E0350 to E0355, E0370, E0371,
/// E0376), an unknown number of lanes or copies (E0330 to E0332, E0336), missing memory or order
/// (E0372, E0374, E0375, E0379), an intrinsic that does not match (E0377, E0378).
const CHECKS: &[&str] = &[
    "E0325", "E0333", "E0334", "E0335", "E0340", "E0341", "E0342", "E0343", "E0349", "E0356",
    "E0357", "E0373",
];

/// The kind of programs and schedules.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Source {
    /// Programs with all features of the language, under the default schedule.
    Plain,
    /// Kernels of several stages with a random schedule.
    Scheduled,
    /// Both kinds of programs, under the automatic schedule.
    Auto,
    /// Kernels of several stages with a random schedule for GPUs.
    Threads,
    /// Both kinds of programs, under a candidate of the tuner's space.
    Space,
    /// The same for GPUs.
    SpaceThreads,
    /// Both kinds of programs, cut into several kernels, some of the inputs as params.
    Network,
}

impl Source {
    /// Returns a program of a run.
    pub fn program(self, seed: u64, number: u64) -> Program {
        let name = format!("p{number}");
        match self {
            Source::Plain if number % EMPTY_PERIOD == 3 => empty_pipeline(seed, number, &name),
            Source::Plain => generate(seed, number, &name),
            Source::Threads => {
                let mut program = pipeline_for_gpu(seed, number, &name);
                if !has_auto(number / BATCH) {
                    add_threads(&mut program, seed, number);
                }
                program
            }
            Source::Auto if number % EMPTY_PERIOD == 7 => empty_pipeline(seed, number, &name),
            Source::Network if number % EMPTY_PERIOD == 7 => {
                pipeline_for_network(seed, number, &name, true)
            }
            Source::Network if number % 3 == 2 => generate(seed, number, &name).into_network(),
            Source::Network => pipeline_for_network(seed, number, &name, false),
            Source::Auto | Source::Space if number % 3 == 2 => generate(seed, number, &name),
            Source::Auto | Source::Space => pipeline(seed, number, &name),
            Source::SpaceThreads => pipeline_for_gpu(seed, number, &name),
            Source::Scheduled => {
                // Some programs have the other features of the language.
                let mut program = match number % 5 {
                    _ if number % EMPTY_PERIOD == 5 => empty_pipeline(seed, number, &name),
                    4 => generate(seed, number, &name),
                    _ => pipeline(seed, number, &name),
                };
                add_schedule(&mut program, seed, number);
                program
            }
        }
    }
}

/// Gives a program a random candidate of its space. A program that is refused without a schedule
/// stays unchanged.
fn add_candidate(program: &mut Program, options: &Options, seed: u64) {
    let name = program.name.clone();
    let defines = program.defines.iter();
    let defines = defines.map(|(k, value)| (Some(name.clone()), k.clone(), value.clone()));
    let kernels = Some(vec![name.clone()]);
    let options = Options { kernels, defines: defines.collect(), ..options.clone() };
    let Ok(loaded) = differential::load(&program.text()) else { return };
    let graphs = driver::elaborate(&loaded, &options, &mut Trace::default());
    let Ok(Some(graph)) = graphs.map(|graphs| graphs.into_iter().next()) else { return };
    let space = space::of_kernel(&graph, &options.target, 2);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let candidate = space.replay(&mut |choice| rng.random_range(0..choice.options.len()));
    let lines = candidate.text.lines().map(str::trim);
    let lines = lines.filter(|line| {
        !line.is_empty() && !line.starts_with(['#', '}']) && !line.starts_with("schedule ")
    });
    let line = |text: &str| Line {
        node: Node::leaf(DType::Index, text),
        kinds: Vec::new(),
        results: Vec::new(),
    };
    let body = lines.map(line).collect();
    let (name, rest) = ("s".to_string(), ScheduleText::default());
    program.schedules = vec![ScheduleText { name, body, ..rest }];
}

/// Whether the GPU schedules of a batch are automatic ones.
fn has_auto(batch: u64) -> bool {
    batch % 5 == 4
}

/// A program with its compile options.
pub struct Setup {
    /// The program.
    pub program: Program,
    /// The options.
    pub options: Options,
}

impl Setup {
    /// Returns the case to run.
    pub fn case(&self) -> Case {
        Case {
            text: self.program.text(),
            kernel: self.program.name.clone(),
            vars: self.program.vars.clone(),
            seed: self.program.seed,
        }
    }

    /// Returns the options with this program's `-D`.
    pub fn options(&self) -> Options {
        let defines = self.program.defines.iter();
        let kernel = Some(self.program.name.clone());
        let defines = defines.map(|(name, value)| (kernel.clone(), name.clone(), value.clone()));
        let name = match (self.program.schedules.is_empty(), self.options.fallback) {
            (true, Fallback::Default) => "default",
            (true, Fallback::Auto) => "auto",
            (false, _) => "s",
        };
        let schedule = Some((Some(self.program.name.clone()), name.to_string()));
        Options { defines: defines.collect(), schedule, ..self.options.clone() }
    }

    /// Runs the program in all ways.
    pub fn compare(&self) -> Verdict {
        match self.program.network {
            true => network::compare_network(&self.case(), &self.options()),
            false => differential::compare_all(&self.case(), &self.options()),
        }
    }

    /// Returns the golden test of a finding.
    pub fn golden(&self) -> String {
        let options = &self.options;
        let mut text = String::from("#! test run\n");
        text.push_str(&format!("#! target {}\n", options.target));
        text.push_str(&format!("#! fp-contract {}\n", options.fp_contract.name()));
        text.push_str(&format!("#! opt {}\n", options.opt));
        text.push_str(&format!("#! seed {}\n", self.program.seed));
        if !self.program.schedules.is_empty() {
            text.push_str("#! schedule s\n");
        } else if options.fallback == Fallback::Auto {
            text.push_str("#! schedule auto\n");
        }
        for (name, value) in &self.program.defines {
            text.push_str(&format!("#! define {name}={value}\n"));
        }
        for (name, value) in &self.program.vars {
            text.push_str(&format!("#! var {name}={value}\n"));
        }
        text + "\n" + &self.program.text()
    }
}

/// Returns the options of a batch: the targets that run here, or GPUs, both modes of
/// `--fp-contract`, and every level of `--opt`, in turn.
fn options(batch: u64, source: Source) -> Options {
    let targets: Vec<Target> = match source {
        Source::Threads | Source::SpaceThreads => {
            let runs = |target: &Target| match differential::gpu_capability() {
                Some(own) => target.gpu.is_some_and(|gpu| match gpu.specific {
                    true => gpu.capability == own,
                    false => gpu.capability <= own,
                }),
                None => true,
            };
            Target::gpus().into_iter().filter(runs).collect()
        }
        _ => {
            let native = Target::native();
            let all = Target::all().into_iter().filter(|target| target.runs_here());
            // The native target has more features than the one of its name.
            all.map(|target| if target.name == native.name { native.clone() } else { target })
                .collect()
        }
    };
    let mut target = targets[(batch % targets.len() as u64) as usize].clone();
    if batch % 4 < 2 {
        // The arguments of programs are small: `prefetch_tiles` would leave them alone.
        target.processor = with_small_cache(target.processor);
    }
    let mut options = Options::new(target);
    let fp_contract = [FpContract::Fast, FpContract::Off];
    options.fp_contract = fp_contract[(batch / 3 % 2) as usize];
    options.opt = [3, 0, 3, 1, 3, 2][(batch % 6) as usize];
    options
}

/// Returns a processor whose first cache is smaller than most tensors.
fn with_small_cache(processor: &'static Processor) -> &'static Processor {
    static SMALL: Mutex<Vec<(&str, &Processor)>> = Mutex::new(Vec::new());
    let mut small = SMALL.lock().expect("no test panics with the lock");
    if let Some((_, known)) = small.iter().find(|(name, _)| *name == processor.name) {
        return known;
    }
    let mut caches = processor.caches.to_vec();
    caches[0].kib = 0;
    let made = Box::leak(Box::new(Processor { caches: caches.leak(), ..*processor }));
    small.push((processor.name, made));
    made
}

/// Checks that no tile requests lines of a buffer that is allocated behind it. Real caches are
/// larger than the buffers of a golden test.
pub fn requests_are_for_visible_buffers() {
    let text = "kernel later(m = 8) {
        reduce k: 0..64
        compute S[] = sum(k as int64, axis=k)
        output T[] = S[]
        reduce r: 0..3
        compute U[i: m] = sum((i + r) as int64, axis=r)
        output V[i: 1, j: m] = U[j]
    }

    schedule later.s {
        V.vectorize(j)
        U.compute_at(V, i)
    }";
    let mut target = Target::parse("x86-avx512").expect("a target");
    target.processor = with_small_cache(target.processor);
    let schedule = Some((Some("later".to_string()), "s".to_string()));
    let options = Options { schedule, ..Options::new(target) };
    let (text, kernel) = (text.to_string(), "later".to_string());
    let case = differential::Case { text, kernel, vars: Vec::new(), seed: 1 };
    let interpreted = differential::interpret(&case, &options);
    assert!(interpreted.is_ok(), "{:?}", interpreted.err());
}

/// Runs `n` programs and panics if one is a finding.
pub fn differential(n: u64, seed: u64, source: Source) {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Report::default());
    let batches = n.div_ceil(BATCH);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (next, total) = (&next, &total);
            scope.spawn(move || {
                with_stack(|| {
                    be_quiet();
                    loop {
                        let batch = next.fetch_add(1, Ordering::Relaxed);
                        if batch >= batches || total.lock().unwrap().findings.len() >= MAX_FINDINGS
                        {
                            return;
                        }
                        let numbers = batch * BATCH..((batch + 1) * BATCH).min(n);
                        let report = run_batch(batch, numbers, seed, source, thread);
                        total.lock().unwrap().merge(report);
                    }
                })
            });
        }
    });
    total.into_inner().unwrap().finish(n, seed, source);
}

fn run_batch(
    batch: u64,
    numbers: std::ops::Range<u64>,
    seed: u64,
    source: Source,
    thread: usize,
) -> Report {
    let mut report = Report::default();
    let mut options = options(batch, source);
    if source == Source::Network {
        options.fallback = if batch.is_multiple_of(2) { Fallback::Default } else { Fallback::Auto };
        options.candidates = 24;
    }
    if source == Source::Auto || (source == Source::Threads && has_auto(batch)) {
        options.fallback = Fallback::Auto;
        // Few candidates are enough: the test needs various schedules, not good ones.
        options.candidates = 24;
    }
    let setup = |number: u64| {
        let mut program = source.program(seed, number);
        if matches!(source, Source::Space | Source::SpaceThreads) {
            add_candidate(&mut program, &options, seed ^ number);
        }
        Setup { program, options: options.clone() }
    };
    let setups: Vec<Setup> = numbers.map(setup).collect();
    if source == Source::Network {
        for setup in &setups {
            let _watch = Watch::start(setup.golden());
            report.add(setup, setup.compare());
        }
        return report;
    }
    let texts: Vec<String> = setups.iter().map(Setup::golden).collect();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{source:?}-{thread}.te"));
    std::fs::write(&path, texts.join("\n")).expect("the target folder can be written");
    let mut interpreted: Vec<(&Setup, Interpreted)> = Vec::new();
    for setup in &setups {
        let _watch = Watch::start(setup.golden());
        match differential::interpret(&setup.case(), &setup.options()) {
            Ok(one) => interpreted.push((setup, one)),
            Err(verdict) => report.add(setup, verdict),
        }
    }
    if matches!(source, Source::Threads | Source::SpaceThreads) {
        let kernels: Vec<&Interpreted> = interpreted.iter().map(|(_, one)| one).collect();
        let on_gpu = differential::gpu_capability().is_some() && !kernels.is_empty();
        let module = on_gpu.then(|| differential::link(&kernels, &options));
        for (setup, one) in &interpreted {
            let same = Verdict::Same { refused_at_entry: one.expected.is_err() };
            let ran = match &module {
                Some(Ok(module)) => differential::call_on_gpu(one, module, &setup.golden()),
                Some(Err(verdict)) => Err(verdict.clone()),
                None => differential::emulate(one, &setup.options()),
            };
            report.add(setup, ran.map_or_else(|verdict| verdict, |()| same));
        }
        return report;
    }
    for (setup, one) in &interpreted {
        match differential::explain(one, &setup.options()) {
            Ok(nests) => report.count_nests(setup, nests),
            Err(verdict) => report.add(setup, verdict),
        }
    }
    if std::env::var_os("TEC_FUZZ_NO_NATIVE").is_some() {
        for (setup, _) in &interpreted {
            report.add(setup, Verdict::Same { refused_at_entry: false });
        }
        return report;
    }
    let kernels: Vec<&Interpreted> = interpreted.iter().map(|(_, one)| one).collect();
    if let Ok(module) = differential::link(&kernels, &options) {
        for (setup, one) in &interpreted {
            let _watch = Watch::start(setup.golden());
            report.add(setup, differential::call(one, &module));
        }
    } else {
        // One of them is wrong: run each by itself.
        for (setup, one) in &interpreted {
            report.add(
                setup,
                match differential::link(&[one], &options) {
                    Ok(module) => differential::call(one, &module),
                    Err(verdict) => verdict,
                },
            );
        }
    }
    if batch % 4 == 3 {
        for (setup, one) in &interpreted {
            for name in ["aarch64", "riscv64"] {
                let target = Target::parse(name).expect("a target");
                let options = Options { target, ..options.clone() };
                if let Err(verdict) = differential::cross_compile(&[one], &options) {
                    let program = setup.program.clone();
                    report.add(&Setup { program, options }, verdict);
                }
            }
        }
    }
    report
}

impl Report {
    fn add(&mut self, setup: &Setup, verdict: Verdict) {
        match verdict {
            Verdict::Same { refused_at_entry } => {
                self.same += 1;
                self.refused_at_entry += u64::from(refused_at_entry);
                self.table.add(&setup.program.tags);
                for kind in kinds_of(&setup.program).into_keys() {
                    *self.kinds.entry(kind).or_default() += 1;
                }
                self.table.add(&[
                    format!("target {}", setup.options.target),
                    format!("opt {}", setup.options.opt),
                    format!("fp-contract {}", setup.options.fp_contract.name()),
                ]);
            }
            Verdict::TooLarge => self.too_large += 1,
            Verdict::Refused(codes, texts) => {
                if std::env::var_os("TEC_FUZZ_SHOW").is_some() {
                    println!("refused {codes:?}\n{texts}\n{}", setup.golden());
                }
                self.refused_programs += 1;
                let mut codes = codes;
                codes.dedup();
                if let [code] = &codes[..]
                    && let Some(code) = CHECKS.iter().find(|check| *check == code)
                {
                    self.leave_out(setup, code, &texts);
                }
                for code in codes {
                    *self.refused.entry(code).or_default() += 1;
                }
            }
            Verdict::Wrong(what, details) => {
                println!("{}: {what}; shrinking", setup.program.name);
                let (small, text) = shrink(setup, &what, &details);
                let text = format!("{}: {text}\n\n{}", setup.program.name, small.golden());
                println!("FINDING {text}\n");
                self.findings.push(text);
            }
        }
    }

    fn count_nests(&mut self, setup: &Setup, nests: Vec<Nest>) {
        for nest in nests {
            let Some(reason) = nest.reason else {
                self.wide += 1;
                continue;
            };
            if std::env::var_os("TEC_FUZZ_SHOW").is_some() {
                println!("not compiled: {}: {reason}\n{}", nest.head, setup.golden());
            }
            // Names of buffers do not matter.
            let words = reason.split('`').enumerate();
            let reason: String =
                words.map(|(at, word)| if at % 2 == 1 { "_" } else { word }).collect();
            *self.narrow.entry(reason).or_default() += 1;
        }
    }

    /// Prints the share of the vectorized nests that the SIMD back end compiles, and the reasons
    /// for the others.
    fn print_nests(&self) {
        let narrow: u64 = self.narrow.values().sum();
        let percent = self.wide as f64 * 100.0 / (self.wide + narrow).max(1) as f64;
        let all = self.wide + narrow;
        println!("the SIMD back end compiles {} of {all} nests ({percent:.1} %)", self.wide);
        for (reason, count) in &self.narrow {
            println!("{count:>8} not compiled: {reason}");
        }
    }

    /// Runs a refused program without the check that refuses it.
    fn leave_out(&mut self, setup: &Setup, code: &'static str, texts: &str) {
        let counts = self.unchecked.entry(code).or_default();
        match check_unchecked(&setup.case(), &setup.options(), code) {
            UncheckedOutcome::Wrong(how) => *counts.wrong.entry(how).or_default() += 1,
            UncheckedOutcome::RefusedOtherwise(_) => counts.otherwise += 1,
            UncheckedOutcome::Right => {
                counts.right += 1;
                if std::env::var_os("TEC_FUZZ_SHOW").is_some() {
                    println!("NOT SHOWN {texts}\n{}", setup.golden());
                }
            }
        }
    }

    fn merge(&mut self, other: Report) {
        self.table.merge(other.table);
        self.same += other.same;
        self.refused_at_entry += other.refused_at_entry;
        self.too_large += other.too_large;
        self.refused_programs += other.refused_programs;
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
        for (code, other) in other.unchecked {
            let counts = self.unchecked.entry(code).or_default();
            counts.otherwise += other.otherwise;
            counts.right += other.right;
            for (how, count) in other.wrong {
                *counts.wrong.entry(how).or_default() += count;
            }
        }
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        self.wide += other.wide;
        for (reason, count) in other.narrow {
            *self.narrow.entry(reason).or_default() += count;
        }
        self.findings.extend(other.findings);
    }

    /// Checks the statistics of a run of scheduled programs, if it was long enough.
    fn check_schedules(&self, n: u64) {
        if n < 500 {
            return;
        }
        let rare = |kind: &&&str| self.kinds.get(**kind).is_none_or(|count| count * 20 < self.same);
        let rare: Vec<_> = KINDS.iter().filter(rare).collect();
        assert!(rare.is_empty(), "in fewer than 5 % of the legal schedules: {rare:?}");
        let (shown, right) = self.shown();
        assert!(
            shown + right < 200 || shown * 10 >= (shown + right) * 9,
            "of {} refused schedules only {shown} are wrong",
            shown + right
        );
    }

    /// Returns the numbers of refused programs with wrong and with correct results.
    fn shown(&self) -> (u64, u64) {
        let counts = || self.unchecked.values();
        (counts().map(Unchecked::shown).sum(), counts().map(|counts| counts.right).sum())
    }

    /// Prints the share of schedules with each directive.
    fn print_kinds(&self) {
        for kind in KINDS {
            let count = self.kinds.get(kind).copied().unwrap_or_default();
            let percent = count as f64 * 100.0 / self.same.max(1) as f64;
            println!("{kind:28}{count:>8}{percent:>7.1} % of the legal schedules");
        }
        println!("refused schedules, run without the check that refuses them:");
        for (code, counts) in &self.unchecked {
            let Unchecked { otherwise, right, .. } = counts;
            let shown = counts.shown();
            let percent = shown as f64 * 100.0 / (shown + right).max(1) as f64;
            println!(
                "{code}: {shown} wrong ({percent:.0} %) {:?}, {otherwise} refused by another \
                 check, {right} correct",
                counts.wrong
            );
        }
        let (shown, right) = self.shown();
        let percent = shown as f64 * 100.0 / (shown + right).max(1) as f64;
        println!("all: {shown} wrong ({percent:.1} %), {right} correct because of {NOT_SHOWN}");
    }

    fn finish(self, n: u64, seed: u64, source: Source) {
        println!("{}", self.table.print());
        if source == Source::Scheduled {
            self.print_kinds();
            self.print_nests();
        }
        let narrow: u64 = self.narrow.values().sum();
        let wide = self.wide;
        let Report { same, refused_at_entry, refused_programs, too_large, .. } = self;
        println!(
            "{n} programs from seed {seed}: {same} agree ({refused_at_entry} of them refused on \
             entry), {refused_programs} refused by the compiler {:?}, {too_large} too large, \
             {} wrong",
            self.refused,
            self.findings.len()
        );
        assert!(self.findings.is_empty(), "{} findings", self.findings.len());
        if source == Source::Threads {
            let rare: Vec<_> = GPU_KINDS
                .iter()
                .filter(|kind| self.kinds.get(**kind).is_none_or(|count| count * 20 < same))
                .collect();
            assert!(n < 500 || rare.is_empty(), "in fewer than 5 % of the schedules: {rare:?}");
        }
        let least = match source {
            Source::Space | Source::SpaceThreads => 90,
            Source::Plain => 85,
            // About half of the schedules are wrong on purpose.
            Source::Scheduled => 40,
            _ => 50,
        };
        assert!(
            (same + too_large) * 100 >= n * least,
            "too few programs compile: the generator does not match the language"
        );
        if source == Source::Scheduled {
            self.check_schedules(n);
            let enough = wide * 10 >= (wide + narrow) * 9;
            assert!(n < 500 || enough, "SIMD compiles only {wide} of {} nests", wide + narrow);
            return;
        }
        if matches!(source, Source::Threads | Source::Space | Source::SpaceThreads) {
            return;
        }
        let missing = self.table.missing();
        assert!(n < 500 || missing.is_empty(), "never drawn: {missing:?}");
    }
}

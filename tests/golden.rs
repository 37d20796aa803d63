//! Golden tests: `tests/golden/COMMAND/NAME.te` holds directives, a program and what is expected.
//!
//! | line | meaning |
//! |---|---|
//! | `#! test lower --simple` | the printed IR must equal the `#=` lines; `--full`, `after=PASS` |
//! | `#! test lower --simple pass=PASS` | the same, with the IR before and after one pass |
//! | `#! test lower --schedule` | the text of the schedule must equal the `#=` lines |
//! | `#! test network` | the plan of `tec lower --groups` must equal the `#=` lines |
//! | `#! test error` | the diagnostics must be the `#~` marks, all of them, on their lines |
//! | `#! test asm` | each `#= has TEXT` or `#= not TEXT` must be true of the listing |
//! | `#! test run` | interpreter and module agree bit by bit (`support/differential.rs`) |
//! | `#! var n=4` | `run`: the value of a run-time integer |
//! | `#! seed 7` | `run`: the seed of the random data |
//! | `#! opt 3`, `#! fp-contract off` | as `--opt`, `--fp-contract` |
//! | `#! schedule fast` | as `--schedule` |
//! | `#! target x86-avx2` | the target; this one if none is given |
//! | `#! define n=4` | as `-D n=4` |
//! | `#! next` | `error`: another program begins here |
//! | `#= text` | an expected line |
//! | `… #~ E0204: text` | a diagnostic on this line |
//! | `#~^ E0204: text` | one on the line above the marks; `#~0`: without a place |
//! | `#~> text` | the help of the last mark; hints for newcomers must be marked |
//!
//! Every file is one test, named by its path: `cargo test --test golden lower/simplify`.
//! `TEC_GOLDEN` selects files by a part of their path (`make golden T=name`). `TEC_BLESS=1`
//! rewrites the `#=` lines (`make bless T=name`); it never writes `#~`.
//!
//! `lower/PASS` holds the tests of one pass of `driver::PASSES`: what it transforms, what it
//! declines, and what it leaves unchanged.

#[allow(dead_code)]
mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use support::Disk;
use support::{differential, network};
use tec::codegen::ObjectOptions;
use tec::diag::Diag;
use tec::diag::hints::{Hint, TABLE};
use tec::driver::{self, Failure, FpContract, Options, PassId, Trace};
use tec::ir::Kernel;
use tec::ir::print::{Style, print_kernel};
use tec::lang::Loader;
use tec::network::print::print_plan;
use tec::target::Target;

/// The directory of the golden files.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// The kinds of tests that every pass needs: it transforms, it declines, it leaves other code
/// unchanged.
const TESTS_PER_PASS: usize = 3;

fn main() {
    let args = Arguments::from_args();
    let filter = std::env::var("TEC_GOLDEN").unwrap_or_default();
    let bless = std::env::var_os("TEC_BLESS").is_some();
    let files = golden_files("");
    let selected = files.into_iter().filter(|file| file.to_str().unwrap().contains(&filter));
    let mut tests: Vec<Trial> =
        selected.map(|file| test(test_name(&file), move || run_file(&file, bless))).collect();
    if tests.is_empty() {
        eprintln!("no golden test matches `{filter}`");
        std::process::exit(1);
    }
    if filter.is_empty() {
        tests.push(test("every_hint_is_shown".to_string(), every_hint_is_shown));
        tests.push(test("every_pass_has_tests".to_string(), every_pass_has_tests));
    }
    libtest_mimic::run(&args, tests).exit();
}

/// Returns a test that runs on a stack large enough for the compiler.
fn test(name: String, run: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(name, || driver::with_stack(run).map_err(Failed::from))
}

/// `lower/simplify/folds_constants`.
fn test_name(file: &Path) -> String {
    let name = file.strip_prefix(ROOT).expect("a golden file").with_extension("");
    name.to_str().expect("UTF-8").to_string()
}

/// Returns the golden files of a directory under [`ROOT`].
fn golden_files(directory: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(&Path::new(ROOT).join(directory), &mut files);
    files.sort();
    files
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a golden directory") {
        let path = entry.unwrap().path();
        // Files that golden tests import stand in `import` directories.
        if path.is_dir() && path.file_name().is_some_and(|name| name != "import") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "te") {
            files.push(path);
        }
    }
}

/// The head of a golden file.
struct Head {
    command: String,
    args: Vec<String>,
    options: Options,
    vars: Vec<(String, i64)>,
    seed: u64,
    /// The errors in the targets.
    targets: Vec<Diag>,
}

fn parse_head(text: &str) -> Result<Head, String> {
    let mut head = Head {
        command: String::new(),
        args: Vec::new(),
        options: Options::new(Target::parse("x86-avx2").expect("a target")),
        vars: Vec::new(),
        seed: 0,
        targets: Vec::new(),
    };
    let number = |text: &str| text.parse::<i64>().map_err(|_| format!("`{text}` is not a number"));
    let lines = text.lines().filter_map(|line| line.strip_prefix("#!"));
    let mut lines: Vec<&str> = lines.collect();
    // A target sets the other options to its defaults.
    lines.sort_by_key(|line| match line.split_whitespace().next() {
        Some("test") => 0,
        Some("target") => 1,
        _ => 2,
    });
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["test", command, ref args @ ..] => {
                head.command = command.to_string();
                head.args = args.iter().map(|arg| arg.to_string()).collect();
            }
            ["target", name] => match Target::parse(name) {
                Ok(target) => {
                    let defines = head.options.defines;
                    head.options = Options { defines, ..Options::new(target) };
                }
                Err(diag) if head.command == "error" => head.targets.push(*diag),
                Err(diag) => return Err(diag.to_string()),
            },
            ["cpu", name] => {
                let target = head.options.target.clone().with_processor(name);
                head.options.target = target.map_err(|diag| diag.to_string())?;
            }
            ["next"] if head.command == "error" => {}
            ["opt", level] => head.options.opt = number(level)? as u8,
            ["schedule", name] => head.options.schedule = Some((None, name.to_string())),
            ["fp-contract", "fast"] => head.options.fp_contract = FpContract::Fast,
            ["fp-contract", "off"] => head.options.fp_contract = FpContract::Off,
            ["seed", seed] => {
                head.seed = seed.parse().map_err(|_| format!("`{seed}` is not a seed"))?;
            }
            ["var", var] => {
                let (name, value) = var.split_once('=').ok_or("var has no value")?;
                head.vars.push((name.to_string(), number(value)?));
            }
            ["define", define] => {
                let (name, value) = define.split_once('=').ok_or("define has no value")?;
                let define = (None, name.to_string(), value.to_string());
                head.options.defines.push(define);
            }
            _ => return Err(format!("unknown directive `#!{line}`")),
        }
    }
    Ok(head)
}

fn run_file(file: &Path, bless: bool) -> Result<(), String> {
    let bytes = std::fs::read(file).expect("a golden file");
    let text = String::from_utf8_lossy(&bytes);
    let head = parse_head(&text)?;
    let path = file.to_str().expect("UTF-8");
    match head.command.as_str() {
        "lower" => compare(file, &text, &lower(path, &head)?, bless),
        "network" => compare(file, &text, &plan(path, &head)?, bless),
        "error" => check_errors(path, &text, &head),
        "run" => run(path, &text, &head),
        "asm" => check_listing(&text, &listing(path, &head)?),
        other => Err(format!("unknown command `{other}`")),
    }
}

fn failure_text(failure: Failure) -> String {
    match failure {
        Failure::User(diags) => diags.iter().map(Diag::to_string).collect::<Vec<_>>().join("\n"),
        Failure::Bug { pass, message, ir } => format!("bug in {pass}: {message}\n{ir}"),
    }
}

/// Returns the printed IR of every kernel: at the end, after one pass, or around one pass.
fn lower(path: &str, head: &Head) -> Result<String, String> {
    let style = match head.args.iter().any(|arg| arg == "--full") {
        true => Style::Full,
        false => Style::Simple,
    };
    let pass_named = |key: &str| -> Result<Option<PassId>, String> {
        let name = head.args.iter().find_map(|arg| arg.strip_prefix(key));
        let parse = |name| PassId::parse(name).ok_or_else(|| format!("no pass `{name}`"));
        name.map(parse).transpose()
    };
    let (after, around) = (pass_named("after=")?, pass_named("pass=")?);
    let mut trace = Trace::default();
    let program = driver::load(path, &Disk, &mut trace).map_err(|(_, f)| failure_text(f))?;
    let graphs = driver::elaborate(&program, &head.options, &mut trace).map_err(failure_text)?;
    let graphs =
        driver::schedule(&program, graphs, &head.options, &mut trace).map_err(failure_text)?;
    let mut text = String::new();
    for graph in &graphs {
        if head.args.iter().any(|arg| arg == "--schedule") {
            text.push_str(&format!("{}\n", graph.schedule.text));
            continue;
        }
        let mut through = |last: PassId| {
            driver::lower(graph, &head.options, Some(last), &mut trace).map_err(failure_text)
        };
        let kernel = through(around.or(after).unwrap_or(PassId::LAST_READABLE))?;
        if graphs.len() > 1 {
            text.push_str(&format!("# {}\n", kernel.name));
        }
        match around {
            None => text.push_str(&print_kernel(&kernel, style)),
            Some(pass) => {
                let before = through(pass_before(pass)?)?;
                text.push_str(&print_change(&before, &kernel, style)?);
            }
        }
    }
    Ok(text)
}

/// Returns the plan of every network of a file.
fn plan(path: &str, head: &Head) -> Result<String, String> {
    let mut trace = Trace::default();
    let program = driver::load(path, &Disk, &mut trace).map_err(|(_, f)| failure_text(f))?;
    let graphs = driver::elaborate(&program, &head.options, &mut trace).map_err(failure_text)?;
    let plan = |graph| print_plan(graph, &tec::network::plan(graph, &tec::network::params(graph)));
    Ok(graphs.iter().map(plan).collect())
}

/// Returns the pass in front of one.
fn pass_before(pass: PassId) -> Result<PassId, String> {
    let at = PassId::ALL.iter().position(|id| *id == pass).expect("a pass");
    let before = at.checked_sub(1);
    let before = before.ok_or_else(|| format!("nothing is lowered before `{}`", pass.name()))?;
    Ok(PassId::ALL[before])
}

/// Both kernels, or one where the pass changed nothing.
fn print_change(before: &Kernel, after: &Kernel, style: Style) -> Result<String, String> {
    let [old, new] = [before, after].map(|kernel| print_kernel(kernel, style));
    let full = |kernel| print_kernel(kernel, Style::Full);
    match (old == new, full(before) == full(after)) {
        (_, true) => Ok(format!("-- unchanged\n{new}")),
        (false, false) => Ok(format!("-- before\n{old}-- after\n{new}")),
        (true, false) => Err("only --full shows what the pass changed".to_string()),
    }
}

/// Elaborates a program and applies all its schedules.
fn front(program: &tec::lang::Program, head: &Head, trace: &mut Trace) -> Result<(), Failure> {
    let graphs = driver::elaborate(program, &head.options, trace)?;
    driver::check_schedules(program, &graphs, &head.options, trace)
}

/// Checks every kernel of the file whose parameters have values.
fn run(path: &str, text: &str, head: &Head) -> Result<(), String> {
    let mut trace = Trace::default();
    let program = driver::load(path, &Disk, &mut trace).map_err(|(_, f)| failure_text(f))?;
    let graphs = driver::elaborate(&program, &head.options, &mut trace).map_err(failure_text)?;
    if graphs.is_empty() {
        return Err("no kernel".to_string());
    }
    for graph in graphs {
        let (vars, seed, kernel) = (head.vars.clone(), head.seed, graph.name.clone());
        let case =
            differential::Case { text: text.to_string(), kernel: kernel.clone(), vars, seed };
        let verdict = match graph.network {
            true => network::compare_network(&case, &head.options),
            false => differential::compare_all(&case, &head.options),
        };
        let wrong = match verdict {
            differential::Verdict::Same { .. } => continue,
            differential::Verdict::TooLarge => "the tensors are too large".to_string(),
            differential::Verdict::Refused(codes, _) => {
                format!("the program is refused: {codes:?}")
            }
            differential::Verdict::Wrong(what, details) => format!("{what}\n{details}"),
        };
        return Err(format!("`{kernel}`: {wrong}"));
    }
    Ok(())
}

fn listing(path: &str, head: &Head) -> Result<String, String> {
    let mut trace = Trace::default();
    let options = &head.options;
    let program = driver::load(path, &Disk, &mut trace).map_err(|(_, f)| failure_text(f))?;
    let graphs = driver::elaborate(&program, options, &mut trace).map_err(failure_text)?;
    let graphs = driver::schedule(&program, graphs, options, &mut trace).map_err(failure_text)?;
    let kernels = graphs
        .iter()
        .map(|graph| driver::lower(graph, options, None, &mut trace).map_err(failure_text))
        .collect::<Result<Vec<_>, _>>()?;
    let module = "golden".to_string();
    let object = ObjectOptions { module, listing: true, opt: 3, ..ObjectOptions::default() };
    let object = driver::compile_object(&kernels, &options.target, &object, &mut trace);
    Ok(object.map_err(failure_text)?.listing.expect("a listing was asked for"))
}

/// Exact comparison with the `#=` lines, trailing space aside.
fn compare(file: &Path, text: &str, actual: &str, bless: bool) -> Result<(), String> {
    let actual: Vec<&str> = actual.lines().map(str::trim_end).collect();
    let expected: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#="))
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
        .collect();
    if actual == expected {
        return Ok(());
    }
    if bless {
        let mut blessed: String = text
            .lines()
            .filter(|line| !line.starts_with("#="))
            .flat_map(|line| [line, "\n"])
            .collect();
        blessed.truncate(blessed.trim_end().len());
        blessed.push_str("\n\n");
        for line in actual {
            blessed.push_str(format!("#= {line}").trim_end());
            blessed.push('\n');
        }
        std::fs::write(file, blessed).expect("a golden file can be written");
        return Ok(());
    }
    let accept = format!("make bless T={}", test_name(file));
    Err(format!("{}\nto accept it: {accept}", diff(&expected, &actual)))
}

/// Returns the difference between two texts, given as lines, in unified form.
fn diff(expected: &[&str], actual: &[&str]) -> String {
    let diff = similar::TextDiff::from_slices(expected, actual);
    diff.unified_diff().context_radius(2).header("expected", "actual").to_string()
}

/// Checks that the diagnostics of a program are exactly its `#~` marks.
fn check_errors(path: &str, text: &str, head: &Head) -> Result<(), String> {
    let mut expected: Vec<(usize, String)> = Vec::new();
    let mut helps: Vec<(usize, String)> = Vec::new();
    let mut last_of_program = 0;
    for (index, line) in text.lines().enumerate() {
        if !line.trim_start().starts_with("#~") {
            last_of_program = index + 1;
        }
        let Some((_, mark)) = line.split_once("#~") else { continue };
        if let Some(help) = mark.strip_prefix('>') {
            let (line, _) = expected.last().ok_or("a help without an error")?;
            helps.push((*line, help.trim().to_string()));
            continue;
        }
        let (number, mark) = match (mark.strip_prefix('^'), mark.strip_prefix('0')) {
            (Some(mark), _) => (last_of_program, mark),
            (_, Some(mark)) => (0, mark),
            _ => (index + 1, mark),
        };
        expected.push((number, mark.trim().to_string()));
    }
    if expected.is_empty() {
        return Err("no `#~` says which error is expected".to_string());
    }
    let diags = diagnose(path, text, head)?;
    let told = |at: usize, help: &str| helps.iter().any(|(line, text)| *line == at && text == help);
    for (line, diag) in diags.iter().filter(|(_, diag)| diag.hint.is_some()) {
        let help = diag.help.as_deref().unwrap_or_default();
        if !told(*line, help) {
            return Err(format!("line {line}: no mark `#~> {help}`"));
        }
    }
    for (at, help) in &helps {
        let helps: Vec<&str> = diags
            .iter()
            .filter_map(|(line, diag)| (line == at).then_some(diag.help.as_deref()?))
            .collect();
        if !helps.contains(&help.as_str()) {
            return Err(format!("line {at}: not the help `{help}` but {helps:?}"));
        }
    }
    let mut actual: Vec<(usize, String)> =
        diags.iter().map(|(line, diag)| (*line, diag.to_string())).collect();
    actual.sort();
    expected.sort();
    if actual == expected {
        return Ok(());
    }
    let show = |list: &[(usize, String)], other: &[(usize, String)], sign: char| {
        let only = list.iter().filter(|entry| !other.contains(entry));
        only.map(|(line, text)| format!("  {sign} line {line}: {text}\n")).collect::<String>()
    };
    Err(show(&expected, &actual, '-') + &show(&actual, &expected, '+'))
}

/// Returns the differences from the marks in each program of a file, with the lines.
fn diagnose(path: &str, text: &str, head: &Head) -> Result<Vec<(usize, Diag)>, String> {
    if !head.targets.is_empty() {
        return Ok(head.targets.iter().map(|diag| (0, diag.clone())).collect());
    }
    let mut found = Vec::new();
    let starts = text.match_indices("\n#! next\n").map(|(at, _)| at + 1);
    let starts: Vec<usize> = [0].into_iter().chain(starts).collect();
    for (i, start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(text.len());
        // Empty lines replace the text before, so that line numbers stay.
        let part = "\n".repeat(text[..*start].matches('\n').count()) + &text[*start..end];
        let loader: &dyn Loader = match starts.len() {
            1 => &Disk,
            _ => &Part(path, &part),
        };
        let mut trace = Trace::default();
        let (sources, failure) = match driver::load(path, loader, &mut trace) {
            Err(failed) => failed,
            Ok(program) => match front(&program, head, &mut trace) {
                Ok(()) => return Err(format!("the program is accepted\n{}", part.trim())),
                Err(failure) => (program.sources, failure),
            },
        };
        let Failure::User(diags) = failure else { return Err(failure_text(failure)) };
        let line = |diag: &Diag| diag.span.map_or(0, |span| sources.line_column(span).0);
        found.extend(diags.into_iter().map(|diag| (line(&diag), diag)));
    }
    Ok(found)
}

/// One program of a file.
struct Part<'a>(&'a str, &'a str);

impl Loader for Part<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == self.0 { Ok(self.1.as_bytes().to_vec()) } else { Disk.read(path) }
    }
}

/// Checks that a golden file shows every row of the table of hints.
fn every_hint_is_shown() -> Result<(), String> {
    let mut shown = std::collections::HashSet::new();
    for file in golden_files("error") {
        let bytes = std::fs::read(&file).expect("a golden file");
        let text = String::from_utf8_lossy(&bytes);
        let head = parse_head(&text)?;
        let diags = diagnose(file.to_str().expect("UTF-8"), &text, &head)?;
        shown.extend(diags.into_iter().filter_map(|(_, diag)| diag.hint));
    }
    let missing: Vec<&Hint> = TABLE.iter().filter(|hint| !shown.contains(hint.pattern)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("{} in no golden file: {missing:#?}", missing.len())),
    }
}

/// `lower/PASS` exists for every pass; its files show a change and a decline.
fn every_pass_has_tests() -> Result<(), String> {
    let mut wrong = Vec::new();
    for pass in driver::PASSES {
        let directory = format!("lower/{}", pass.name);
        if !Path::new(ROOT).join(&directory).is_dir() {
            wrong.push(format!("{directory} does not exist"));
            continue;
        }
        let texts = golden_files(&directory).into_iter().map(|file| {
            let text = std::fs::read_to_string(&file).expect("a golden file");
            if !text.contains(&format!(" pass={}\n", pass.name)) {
                wrong.push(format!("{}: no `pass={}`", file.display(), pass.name));
            }
            text
        });
        let texts: Vec<String> = texts.collect();
        if texts.len() < TESTS_PER_PASS {
            wrong.push(format!("{directory} has {} files", texts.len()));
        }
        for part in ["-- after", "-- unchanged"] {
            if !texts.iter().any(|text| text.contains(&format!("\n#= {part}\n"))) {
                wrong.push(format!("no file of {directory} has `{part}`"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// `#= has TEXT` and `#= not TEXT`, each somewhere in the listing or nowhere.
fn check_listing(text: &str, listing: &str) -> Result<(), String> {
    let mut claims = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("#= ")) {
        claims += 1;
        let holds = match line.split_once(' ') {
            Some(("has", wanted)) => listing.contains(wanted),
            Some(("not", unwanted)) => !listing.contains(unwanted),
            _ => return Err(format!("`#= {line}` is neither `has` nor `not`")),
        };
        if !holds {
            return Err(format!("not true: {line}\n{listing}"));
        }
    }
    if claims > 0 { Ok(()) } else { Err("no claim".to_string()) }
}

//! Measures how well the cost model ranks: Spearman's rank correlation between estimates and
//! measurements of all schedules of a kernel in a file.
//!
//! ```text
//! cargo run --release --example rank -- FILE.te KERNEL TIMES.json [-D n=512] [--threads 2]
//! ```
//!
//! Schedules without a time in TIMES.json are measured, and their times are added. `tools/rank.py`
//! writes files with random schedules and runs this program. `--space N` adds candidates of the
//! tuner's space: the model's best N, and N random ones. `--kept` adds all candidates in
//! TIMES.json. `--list OUT.json` measures nothing, and writes the texts and estimates of all
//! schedules, for a GPU with `--target nvptx-sm_90`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tec::driver::{self, Options, Trace};
use tec::ir::{DType, Kernel, Param};
use tec::lang::{Loader, ParsedLines, Program};
use tec::module::load::{Arg, LoadedModule};
use tec::module::{BuildInfo, KernelInfo, ModuleKind};
use tec::schedule::BoundedSchedule;
use tec::target::Target;
use tec::te::Graph;
use tec::tune::Space;
use tec::tune::model::{self, Estimate, MachineModel, Measured};
use tec::tune::search::{CostPrediction, Search};

/// Alignment of tensors in bytes.
const ALIGNMENT: usize = 64;

/// The number of candidates that `--schedule auto` considers.
const CANDIDATES: usize = 384;

/// The source of a schedule.
enum Source {
    /// A schedule of the file, by name.
    Named(String),
    /// A candidate of the space, as text.
    Text(String),
}

struct Disk;

impl Loader for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error| error.to_string())
    }
}

struct Args {
    file: String,
    kernel: String,
    times: String,
    defines: Vec<(Option<String>, String, String)>,
    threads: usize,
    /// The number of the model's best candidates of the tuner's space to add, and of random ones.
    space: usize,
    /// Whether to add all candidates in TIMES.json.
    kept: bool,
    target: Target,
    /// The file for the texts of all schedules, which are not measured then.
    list: Option<String>,
    /// The candidate whose text is printed.
    show: Option<String>,
    /// Whether every candidate is printed.
    all: bool,
    /// Whether the features are printed.
    features: bool,
}

fn main() -> ExitCode {
    let args = match arguments() {
        Some(args) => args,
        None => {
            eprintln!(
                "usage: rank FILE.te KERNEL TIMES.json [-D NAME=VALUE] [--threads N] \
                 [--space N] [--kept] [--show CANDIDATE] [--all]"
            );
            return ExitCode::from(2);
        }
    };
    match driver::with_stack(|| run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Option<Args> {
    let mut words = std::env::args().skip(1);
    let (mut plain, mut defines) = (Vec::new(), Vec::new());
    let (mut threads, mut space, mut all, mut features) = (2, 0, false, false);
    let (mut show, mut kept, mut list) = (None, false, None);
    let mut target = Target::native();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-D" => {
                let (name, value) =
                    words.next()?.split_once('=').map(|(n, v)| (n.to_string(), v.to_string()))?;
                defines.push((None, name, value));
            }
            "--threads" => threads = words.next()?.parse().ok()?,
            "--space" => space = words.next()?.parse().ok()?,
            "--kept" => kept = true,
            "--target" => target = Target::parse(&words.next()?).ok()?,
            "--list" => list = Some(words.next()?),
            "--show" => show = Some(words.next()?),
            "--all" => all = true,
            "--features" => features = true,
            _ => plain.push(word),
        }
    }
    let [file, kernel, times] = plain.try_into().ok()?;
    Some(Args {
        file,
        kernel,
        times,
        defines,
        threads,
        space,
        kept,
        target,
        list,
        show,
        all,
        features,
    })
}

fn run(args: &Args) -> Result<(), String> {
    let mut trace = Trace::default();
    let program = driver::load(&args.file, &Disk, &mut trace).map_err(|(_, e)| format!("{e:?}"))?;
    let prefix = format!("schedule {}.", args.kernel);
    let text = std::fs::read_to_string(&args.file).map_err(|error| error.to_string())?;
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix))
        .filter_map(|rest| rest.split([' ', '(']).next());
    let mut sources: Vec<(String, Source)> =
        names.map(|name| (name.to_string(), Source::Named(name.to_string()))).collect();
    let known = std::fs::read_to_string(&args.times).unwrap_or_default();
    let mut times: BTreeMap<String, f64> = serde_json::from_str(&known).unwrap_or_default();
    if args.kept {
        let texts = times.keys().filter(|key| key.starts_with("schedule ")).enumerate();
        sources.extend(texts.map(|(at, text)| (format!("any{at}"), Source::Text(text.clone()))));
    }
    sources.extend(candidates(args, &program)?);
    let (mut rows, mut listed) = (Vec::new(), Vec::new());
    let mut modelling = Duration::ZERO;
    for (name, source) in sources {
        let (options, bounded) = match schedule(args, &program, &source) {
            Ok(found) => found,
            Err(message) => {
                eprintln!("{name}: {}", message.chars().take(200).collect::<String>());
                continue;
            }
        };
        let key = match &source {
            Source::Named(name) => name,
            Source::Text(text) => text,
        };
        if args.show.as_ref() == Some(&name) {
            println!("{key}");
        }
        if args.list.is_some() {
            times.insert(key.clone(), f64::NAN);
        } else if !times.contains_key(key) {
            let seconds = measure(args, &options, &bounded)?;
            times.insert(key.clone(), seconds);
        }
        let start = Instant::now();
        let (_, bounded) = schedule(args, &program, &source)?;
        let kernel = driver::lower_to_estimate(&bounded, &options, &mut Trace::default())
            .map_err(|e| format!("{e:?}"))?;
        let estimate = model::estimate(&kernel, &machine(&options, args.threads), args.threads);
        modelling += start.elapsed();
        if args.list.is_some() {
            let terms = estimate.terms.iter();
            let terms = terms.map(|term| (term.kind.name().to_string(), term.alone));
            let terms: BTreeMap<String, f64> = terms.collect();
            let text = bounded.schedule.text.clone();
            listed.push(serde_json::json!({
                "name": name, "schedule": text, "seconds": estimate.seconds, "terms": terms
            }));
        }
        rows.push((name, times[key], estimate));
    }
    if let Some(path) = &args.list {
        let text = serde_json::to_string_pretty(&listed).map_err(|error| error.to_string())?;
        return std::fs::write(path, text).map_err(|error| error.to_string());
    }
    let text = serde_json::to_string_pretty(&times).map_err(|error| error.to_string())?;
    std::fs::write(&args.times, text).map_err(|error| error.to_string())?;
    report(args, &rows, modelling);
    Ok(())
}

fn options(args: &Args) -> Options {
    let mut options = Options::new(args.target.clone());
    options.kernels = Some(vec![args.kernel.clone()]);
    options.defines = args.defines.clone();
    options
}

fn graph(args: &Args, program: &Program) -> Result<Graph, String> {
    let graphs = driver::elaborate(program, &options(args), &mut Trace::default());
    let graphs = graphs.map_err(|failure| format!("{failure:?}"))?;
    graphs.into_iter().next().ok_or_else(|| "no kernel".to_string())
}

fn schedule(
    args: &Args,
    program: &Program,
    source: &Source,
) -> Result<(Options, BoundedSchedule), String> {
    let mut trace = Trace::default();
    let mut options = options(args);
    let failed = |failure: driver::Failure| match failure {
        driver::Failure::User(diags) => diags.iter().map(|diag| diag.message.clone()).collect(),
        other => format!("{other:?}"),
    };
    let bounded = match source {
        Source::Named(name) => {
            options.schedule = Some((Some(args.kernel.clone()), name.clone()));
            let graphs = driver::elaborate(program, &options, &mut trace).map_err(failed)?;
            let bounded =
                driver::schedule(program, graphs, &options, &mut trace).map_err(failed)?;
            bounded.into_iter().next().ok_or("no kernel")?
        }
        Source::Text(text) => {
            let graph = graph(args, program)?;
            tec::schedule::apply_text(&graph, &options.target, &options.defines, text)
                .and_then(tec::schedule::infer_bounds)
                .map_err(|diag| diag.message.clone())?
        }
    };
    Ok((options, bounded))
}

/// Returns candidates of the tuner's space.
fn candidates(args: &Args, program: &Program) -> Result<Vec<(String, Source)>, String> {
    if args.space == 0 {
        return Ok(Vec::new());
    }
    let (options, graph) = (options(args), graph(args, program)?);
    let machine = machine(&options, args.threads);
    let parsed = ParsedLines::default();
    let model = |texts: &[&str]| {
        let (machine, threads) = (&machine, args.threads);
        let all = driver::estimate_texts(&graph, texts, &options, machine, threads, &parsed);
        let prediction = |e: Estimate| CostPrediction {
            seconds: e.seconds,
            features: e.features,
            nests: e.nests,
        };
        all.into_iter().map(|estimate| estimate.ok().map(prediction)).collect()
    };
    let space = tec::tune::space::of_kernel(&graph, &options.target, 0);
    let mut texts: Vec<String> = Vec::new();
    let liked = tec::tune::search::choose_by_model(&space, &model, CANDIDATES, &|| false, 0);
    texts.extend(liked.map(|one| one.text));
    let mut search = Search::new(&space, &model, 0);
    texts.extend(search.propose(args.space).into_iter().map(|one| one.text));
    let top = texts.len();
    let mut state = 1u64;
    for at in 0..args.space {
        let candidate = space.replay(&mut |choice| {
            let mut random = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as usize % below
            };
            match random(args.space) <= at {
                true => random(choice.options.len()),
                false => choice.default,
            }
        });
        if !texts.contains(&candidate.text) {
            texts.push(candidate.text);
        }
    }
    let name = |at: usize| if at < top { format!("top{at}") } else { format!("any{}", at - top) };
    let named = |(at, text): (usize, String)| (name(at), Source::Text(text));
    Ok(texts.into_iter().enumerate().map(named).collect())
}

/// Returns the machine with the limits that `tec bench` measured, if the variable `MACHINE` names
/// their file.
fn machine(options: &Options, threads: usize) -> MachineModel {
    let typical = MachineModel::typical(&options.target);
    let text = std::env::var("MACHINE").ok().and_then(|path| std::fs::read_to_string(path).ok());
    let Some(value) = text.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
    else {
        return typical;
    };
    let levels = value["levels"].as_array().into_iter().flatten();
    let levels = levels.map(|l| (l["bytes"].as_u64(), l["read"].as_f64().unwrap_or(0.0))).collect();
    let peak_f32 = value["peak_f32"].as_f64().unwrap_or(0.0);
    typical.measured(&Measured { threads, peak_f32, levels })
}

/// Returns the seconds of a call: the fastest of several batches.
fn measure(args: &Args, options: &Options, bounded: &BoundedSchedule) -> Result<f64, String> {
    let mut trace = Trace::default();
    let failed = |failure: driver::Failure| format!("{failure:?}");
    let kernel = driver::lower(bounded, options, None, &mut trace).map_err(failed)?;
    let graph = &bounded.schedule.graph;
    let info = BuildInfo {
        module: "rank".to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: Vec::new(),
        kernels: vec![KernelInfo {
            parameters: graph.params.clone(),
            schedule: bounded.schedule.text.clone(),
            automatic: false,
            work: driver::count_work(graph, &options.target).map_err(failed)?,
            prepack_role: None,
        }],
    };
    let built =
        driver::build(std::slice::from_ref(&kernel), &info, ModuleKind::SharedObject, &mut trace)
            .map_err(failed)?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = directory.path().join("rank.so");
    std::fs::write(&path, &built.bytes).map_err(|error| error.to_string())?;
    let module = LoadedModule::open(Path::new(&path)).map_err(|diag| diag.message.clone())?;
    module.set_num_threads(args.threads as i32).map_err(|diag| diag.message.clone())?;
    let loaded = module.kernel(&kernel.name).map_err(|diag| diag.message.clone())?;
    let mut values = values(&kernel);
    let mut call = loaded.bind(values.iter_mut().map(Values::arg).collect());
    let mut once = || call.call().map_err(|diag| diag.message.clone());
    once()?;
    let start = Instant::now();
    once()?;
    let one = start.elapsed().as_secs_f64().max(1e-7);
    let batch = ((0.002 / one) as usize).clamp(1, 100_000);
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    let mut batches = 0;
    while batches < 3 || begin.elapsed().as_secs_f64() < 0.04 {
        let start = Instant::now();
        for _ in 0..batch {
            once()?;
        }
        best = best.min(start.elapsed().as_secs_f64() / batch as f64);
        batches += 1;
        if begin.elapsed().as_secs_f64() > 2.0 {
            break;
        }
    }
    Ok(best)
}

/// A tensor aligned to 64 bytes, like arrays of other libraries.
struct Values {
    dtype: DType,
    shape: Vec<i64>,
    output: bool,
    data: Vec<u8>,
    start: usize,
}

impl Values {
    fn arg(&mut self) -> Arg<'_> {
        let bytes = self.data.len() - ALIGNMENT;
        let data = &mut self.data[self.start..][..bytes];
        match self.output {
            true => Arg::Output(self.dtype, &self.shape, data),
            false => Arg::Input(self.dtype, &self.shape, data),
        }
    }
}

fn values(kernel: &Kernel) -> Vec<Values> {
    let mut state = 1u32;
    let value = |param: &Param| match param {
        Param::Tensor { buffer, role, .. } => {
            let shape: Vec<i64> =
                buffer.shape.iter().map(|e| e.as_int().expect("constant") as i64).collect();
            let bytes = shape.iter().product::<i64>() as usize * buffer.dtype.bytes() as usize;
            let mut data = vec![0; bytes + ALIGNMENT];
            let start = data.as_ptr().align_offset(ALIGNMENT);
            for element in data[start..][..bytes].chunks_exact_mut(4) {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let number = (state >> 8) as f32 / (1 << 24) as f32;
                element.copy_from_slice(&number.to_le_bytes());
            }
            Values {
                dtype: buffer.dtype,
                shape,
                output: *role == tec::ir::Role::Output,
                data,
                start,
            }
        }
        _ => panic!("only kernels of tensors"),
    };
    kernel.params.iter().map(value).collect()
}

fn report(args: &Args, rows: &[(String, f64, Estimate)], modelling: Duration) {
    let measured: Vec<f64> = rows.iter().map(|row| row.1).collect();
    let estimated: Vec<f64> = rows.iter().map(|row| row.2.seconds).collect();
    if args.all {
        let mut sorted: Vec<_> = rows.iter().collect();
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
        for (name, seconds, estimate) in sorted {
            let terms: Vec<String> = estimate
                .terms
                .iter()
                .take(4)
                .map(|term| format!("{} {:.0}", term.kind.name(), term.seconds * 1e6))
                .collect();
            println!(
                "{name:8} {:10.1} us, estimate {:10.1} us, {:5.2}: {}",
                seconds * 1e6,
                estimate.seconds * 1e6,
                estimate.seconds / seconds,
                terms.join(", ")
            );
        }
    }
    if args.features {
        for (name, seconds, estimate) in rows {
            println!("{}", serde_json::json!([name, seconds, estimate.seconds, estimate.features]));
        }
    }
    let best = measured.iter().copied().fold(f64::INFINITY, f64::min);
    let first = rows.iter().min_by(|a, b| a.2.seconds.total_cmp(&b.2.seconds));
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| estimated[*a].total_cmp(&estimated[*b]));
    let ten = order.iter().take(10).map(|at| measured[*at]).fold(f64::INFINITY, f64::min);
    println!(
        "{} candidates, Spearman {:.3}; the first reaches {:.2} of the best, the best of ten \
         {:.2}; {:.0} a second",
        rows.len(),
        spearman(&measured, &estimated),
        best / first.map_or(f64::NAN, |row| row.1),
        best / ten,
        rows.len() as f64 / modelling.as_secs_f64()
    );
}

fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let product: f64 = a.iter().zip(&b).map(|(a, b)| (a - mean) * (b - mean)).sum();
    let square = |all: &[f64]| all.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    product / (square(&a) * square(&b)).sqrt()
}

/// Returns the rank of each value; equal values share their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let same = order[at..].iter().take_while(|i| values[**i] == values[order[at]]).count();
        for i in &order[at..at + same] {
            ranks[*i] = at as f64 + (same as f64 - 1.0) / 2.0;
        }
        at += same;
    }
    ranks
}

//! `tec bench`: times kernels, compares them with each other and with the machine's limits.
//!
//! A *variant* is a file with a schedule. For each value of the sweep and each kernel, the variants
//! are measured interleaved. A measurement becomes a [`Row`]; the table, the JSON and the plot are
//! made from the rows.

mod network;
pub mod plot;
mod report;
pub mod stats;
mod sweep;
pub mod work;

use super::arguments::Arguments;
use super::data::{self, Given};
use super::machine::{Isa, Limit, LimitLoop, Machine};
use super::measure::{AlignedArgs, Timed, measure_interleaved};
use super::options::CompileArgs;
use super::remote::on::{Far, OnArgs};
use super::report::{Error, Reporter, print};
use super::session::{self, Code, Session};
use crate::ir::interp::Value;
use crate::module::manifest::KernelManifest;
use crate::module::write::OutputFile;
use crate::target::Target;
use indicatif::ProgressBar;
use stats::{Ratio, Summary};
use std::cell::RefCell;
use std::path::Path;
use sweep::Sweep;
pub use work::label;
use work::{Roofline, Work};

const EXAMPLES: &str = "\
Examples:
  tec bench matmul.te                                   # time, rates, share of the roofline
  tec bench matmul.te --schedule reorder,block          # compare two schedules
  tec bench before.so after.so                          # compare two modules
  tec bench matmul.te --schedule block --roofline       # measure the limit interleaved
  tec bench matmul.te -D n=64..2048*2 --plot matmul.svg # a curve over the size
  tec bench matmul.te -D matmul.block.tx=8,16,32,64     # values of a knob
  tec bench matmul.te --on 'ssh pi'                     # on another machine";

const SCHEDULE: &str = "Schedules to measure, such as `reorder,block`; also `default` and `auto`";

/// Measure the run time of kernels.
///
/// Warms up, then times batches of calls. GFLOP/s and GB/s are rates of the median time; they count
/// the arithmetic operations of the source and the bytes of all arguments. Several files or
/// schedules are measured interleaved and compared with the first. `-D` and `--var` accept a list
/// of values, `-D n=32,64,128`, or a range, `-D n=64..2048*2` or `-D n=64..512+64`; each value is
/// measured.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("schedule", |arg| arg.help(SCHEDULE).long_help(SCHEDULE)))]
pub struct BenchArgs {
    /// Source files, or modules of `tec build`.
    #[arg(value_name = "FILE.te|MODEL.onnx|MODULE.so", required = true)]
    files: Vec<String>,
    /// Shortest time to measure each kernel, schedule and value, in seconds.
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    min_time: f64,
    /// Limits of the machine to compare with [default without a value: beside]
    #[arg(long, value_enum, default_value = "cached", value_name = "WHEN")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "beside")]
    roofline: RooflineOption,
    /// Networks: time each kernel by itself, and print a table below.
    #[arg(long, conflicts_with = "json")]
    per_kernel: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the rates over the values of `-D` or `--var` as SVG.
    #[arg(long, value_name = "OUT.svg")]
    plot: Option<String>,
    #[command(flatten)]
    on: OnArgs,
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    compile: CompileArgs,
}

/// `--roofline`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum RooflineOption {
    /// The limits measured earlier; they are measured if there are none.
    Cached,
    /// Measure the limits again.
    Fresh,
    /// Also measure the limit that binds, interleaved with the kernels.
    Beside,
    /// No limits.
    Off,
}

/// A measurement of a kernel; times in seconds of one call.
struct Row {
    kernel: String,
    file: String,
    schedule: String,
    target: String,
    /// The value of the sweep.
    point: Option<String>,
    times: Summary,
    rounds: usize,
    calls: usize,
    work: Work,
    /// The limits of the machine for this work.
    roofline: Option<Roofline>,
    /// With `--roofline`: the rate of the limiting resource, and the kernel's rate relative to it.
    beside: Option<(f64, Ratio)>,
    /// The speedup over the first variant; none for the first itself.
    speedup: Option<Ratio>,
}

/// Everything that was measured.
struct Results {
    rows: Vec<Row>,
    /// The name with several values.
    sweep: Option<Sweep>,
    /// One for each instruction set of the kernels.
    machines: Vec<Machine>,
    threads: usize,
    /// The tables of `--per-kernel`.
    tables: Vec<String>,
}

impl Results {
    /// Whether several files have a kernel of the same name.
    fn has_kernels_of_several_files(&self) -> bool {
        let first = |row: &Row| self.rows.iter().find(|other| other.kernel == row.kernel);
        self.rows.iter().any(|row| first(row).is_some_and(|other| other.file != row.file))
    }
}

/// A file with a schedule.
struct Variant<'a> {
    file: &'a str,
    schedule: Option<&'a str>,
}

/// Runs the command.
pub fn run(args: &BenchArgs, reporter: &Reporter) -> Result<(), Error> {
    if !args.min_time.is_finite() || !(0.0..=1e6).contains(&args.min_time) {
        return Err(Error::Usage("--min-time is a number of seconds".to_string()));
    }
    let sweep = sweep::find(&args.compile.define, &args.arguments.var)?;
    let across = plot_axis(args, sweep.as_ref())?;
    let far = args.on.connect()?;
    let mut results = Results {
        rows: Vec::new(),
        sweep,
        machines: Vec::new(),
        threads: args.arguments.threads_on(far.as_ref().map(Far::hello)),
        tables: Vec::new(),
    };
    measure(args, far.map(RefCell::new).as_ref(), &mut results, reporter)?;
    if let (Some(path), Some(across)) = (&args.plot, across) {
        let bytes = plot::svg(&results, &across).into_bytes();
        reporter.write(&[OutputFile { path: path.into(), bytes, executable: false }])?;
    }
    if args.json {
        return print(&report::json(&results));
    }
    let tables = results.tables.iter().map(|table| format!("\n{table}"));
    print(&(report::table(&results) + &tables.collect::<String>()))
}

/// Returns the positions of the plot's points; checked before the measurements.
fn plot_axis(args: &BenchArgs, sweep: Option<&Sweep>) -> Result<Option<Vec<f64>>, Error> {
    let Some(path) = &args.plot else { return Ok(None) };
    let refuse = |text: String| Err(Error::Usage(text));
    if Path::new(path).extension().is_none_or(|ext| ext != "svg") {
        return refuse(format!("`--plot {path}`: the plot is an SVG; name it `OUT.svg`"));
    }
    let Some(sweep) = sweep else {
        let help = "give the sizes as `-D n=64,128,256` or `-D n=64..2048*2`";
        return refuse(format!("--plot draws a curve over several values: {help}"));
    };
    match sweep.numbers() {
        Some(numbers) => Ok(Some(numbers)),
        None => refuse(format!("--plot: the values of `{}` are not all numbers", sweep.name)),
    }
}

fn measure(
    args: &BenchArgs,
    far: Option<&RefCell<Far>>,
    results: &mut Results,
    reporter: &Reporter,
) -> Result<(), Error> {
    let values: Vec<Option<String>> = match &results.sweep {
        Some(sweep) => sweep.values.iter().cloned().map(Some).collect(),
        None => vec![None],
    };
    let progress = reporter.progress(values.len());
    for value in values {
        let (mut compile, mut arguments) = (args.compile.clone(), args.arguments.clone());
        if let (Some(value), Some(sweep)) = (&value, &results.sweep) {
            sweep.set(value, &mut compile.define, &mut arguments.var);
        }
        let mut sessions = Vec::new();
        for variant in variants(args) {
            compile.schedule = variant.schedule.map(String::from).into_iter().collect();
            progress.set_message(format!("compiling {}", variant.file));
            if matches!(args.roofline, RooflineOption::Fresh | RooflineOption::Beside) {
                let help =
                    "leave `--roofline` out: the limits that it measures are those of the CPU";
                session::require_cpu(variant.file, &compile, "tec bench --roofline", help)?;
            }
            let near = far.map(RefCell::borrow);
            let session = session::open(variant.file, &compile, near.as_deref())?;
            let (inputs, compile) = (&args.arguments.input, &args.compile);
            let files = session::files(variant.file, session.source.as_ref(), inputs, compile);
            files.output("--plot", args.plot.as_ref()).check()?;
            if let Code::Here(module, _) = &session.code {
                module.set_num_threads(results.threads as i32)?;
            }
            sessions.push((variant, session));
        }
        let (arguments, sessions, progress) = (&arguments, &sessions, &progress);
        let point = Point { args, far, value, arguments, sessions, progress };
        for name in point.kernels()? {
            point.measure(&name, results)?;
            if args.per_kernel {
                results.tables.push(point.per_kernel(&name, results.threads)?);
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(())
}

/// Returns every file with every schedule.
fn variants(args: &BenchArgs) -> Vec<Variant<'_>> {
    let schedules = &args.compile.schedule;
    let named = schedules.iter().map(|name| Some(&name[..]));
    let schedules: Vec<_> = if schedules.is_empty() { vec![None] } else { named.collect() };
    let of_file = |file| schedules.iter().map(move |&schedule| Variant { file, schedule });
    args.files.iter().flat_map(|file| of_file(&file[..])).collect()
}

/// All variants, compiled for one value of the sweep.
struct Point<'a> {
    args: &'a BenchArgs,
    /// The other machine, if there is one.
    far: Option<&'a RefCell<Far>>,
    value: Option<String>,
    arguments: &'a Arguments,
    sessions: &'a [(Variant<'a>, Session)],
    progress: &'a ProgressBar,
}

/// A kernel of a variant, ready to call.
struct LoadedVariant<'a> {
    variant: &'a Variant<'a>,
    session: &'a Session,
    manifest: &'a KernelManifest,
    work: Work,
}

impl LoadedVariant<'_> {
    /// Returns the name of its schedule.
    fn label(&self) -> &str {
        match self.manifest.automatic {
            true => "auto",
            false => work::schedule_name(&self.manifest.schedule),
        }
    }
}

impl Point<'_> {
    /// Returns the names of the kernels, in the order of the files.
    fn kernels(&self) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = Vec::new();
        for (_, session) in self.sessions {
            for kernel in session.kernels(&self.args.compile.kernel)? {
                if !names.contains(&kernel.name) {
                    names.push(kernel.name.clone());
                }
            }
        }
        Ok(names)
    }

    /// Returns the table of the kernels of a network.
    fn per_kernel(&self, name: &str, threads: usize) -> Result<String, Error> {
        let sources = self.sessions.iter().filter_map(|(_, session)| session.source.as_ref());
        let found = sources.filter_map(|source| Some((source, source.network(name)?))).next();
        let Some((source, network)) = found else {
            let text = format!("`--per-kernel`: `{name}` is not compiled as a network here");
            return Err(Error::Usage(text + "; give the `.te` file or the ONNX model"));
        };
        self.progress.set_message(format!("timing the kernels of {name}"));
        let entry = &network.code.entry;
        let given = Given { tensors: Vec::new(), ..self.arguments.read(entry, &[entry])? };
        network::per_kernel(source, network, &given, (threads, self.args.min_time), self.far)
    }

    /// Measures the variants of a kernel interleaved.
    fn measure(&self, name: &str, results: &mut Results) -> Result<(), Error> {
        let mut loaded_variants: Vec<LoadedVariant<'_>> = Vec::new();
        let (mut kernels, mut arguments, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for (variant, session) in self.sessions {
            let found = session.manifest.kernels.iter().find(|kernel| kernel.name == name);
            let Some(manifest) = found else { continue };
            // A kernel that has none of the schedules is measured once.
            let same = |one: &LoadedVariant<'_>| {
                one.variant.file == variant.file && one.manifest.schedule == manifest.schedule
            };
            if loaded_variants.iter().any(same) {
                continue;
            }
            let params = manifest.to_kernel()?;
            let all = session.manifest.kernels.iter().map(KernelManifest::to_kernel);
            let all = all.collect::<Result<Vec<_>, _>>()?;
            let mut given = self.arguments.read(&params, &all.iter().collect::<Vec<_>>())?;
            let (kernel, mut values) = session.prepare(manifest, &given)?;
            if kernel.params.iter().any(|param| data::random_integers(param, &given).is_some()) {
                let mut far = self.far.map(RefCell::borrow_mut);
                let call = |given: &Given, values: &mut [Value]| {
                    session.run(&kernel, given, values, results.threads, far.as_deref_mut())
                };
                data::call_with_indices(&kernel, &mut given, &mut values, call)?;
            }
            let work = Work::new(manifest, &kernel, &values);
            loaded_variants.push(LoadedVariant { variant, session, manifest, work });
            held.push(values);
            kernels.push(kernel);
            arguments.push(given);
        }
        let rooflines = loaded_variants.iter().map(|one| self.roofline(one, results));
        let rooflines = rooflines.collect::<Result<Vec<_>, Error>>()?;
        let limit = self.limit(&loaded_variants, &rooflines);
        let first_limit = rooflines[0].as_ref().map(|roofline| roofline.limit);
        let of = self.value.as_ref().map_or(String::new(), |value| format!(" at {value}"));
        self.progress.set_message(format!("timing {name}{of}"));
        let (min_time, threads) = (self.args.min_time, results.threads);
        let rounds = match self.far {
            Some(far) => {
                drop(held);
                let mut far = far.borrow_mut();
                let calls = loaded_variants.iter().zip(&arguments).filter_map(|(one, given)| {
                    let Code::There(hash) = &one.session.code else { return None };
                    Some(far.describe(hash, name, given, threads))
                });
                let calls = calls.collect::<Result<Vec<_>, _>>()?;
                far.time(calls, min_time, limit)?
            }
            None => {
                let mut limit = limit.map(|(isa, limit)| LimitLoop::new(isa, limit, threads));
                let held = kernels.iter().zip(held);
                let held = held.map(|(kernel, values)| AlignedArgs::new(kernel, values));
                let mut held: Vec<AlignedArgs> = held.collect();
                let bound = kernels.iter().zip(&mut held).zip(&loaded_variants);
                let calls = bound.filter_map(|((kernel, args), one)| {
                    let Code::Here(module, gpu) = &one.session.code else { return None };
                    let args = args.of(kernel);
                    Some(module.kernel(name).and_then(|function| match gpu {
                        Some(gpu) => Ok(Timed::Gpu(gpu.bind(&function, &args)?)),
                        None => Ok(Timed::Cpu(function.bind(args))),
                    }))
                });
                let mut calls = calls.collect::<Result<Vec<Timed<'_>>, _>>()?;
                measure_interleaved(&mut calls, limit.as_mut(), min_time)?
            }
        };
        for (at, (one, roofline)) in loaded_variants.iter().zip(rooflines).enumerate() {
            let times = &rounds.times[at];
            let measured = |roofline: &&Roofline| {
                !rounds.limit.is_empty() && Some(roofline.limit) == first_limit
            };
            let beside = roofline.as_ref().filter(measured).map(|roofline| {
                let work = roofline.work_of_limit(&one.work);
                let rates: Vec<f64> = times.iter().map(|time| work / time / 1e9).collect();
                (Summary::new(&rounds.limit).median, Ratio::new(&rates, &rounds.limit))
            });
            results.rows.push(Row {
                kernel: name.to_string(),
                file: one.variant.file.to_string(),
                schedule: one.label().to_string(),
                target: one.session.manifest.target.name.clone(),
                point: self.value.clone(),
                times: Summary::new(times),
                rounds: times.len(),
                calls: rounds.calls[at],
                work: one.work,
                roofline,
                beside,
                speedup: (at > 0).then(|| Ratio::new(&rounds.times[0], times)),
            });
        }
        Ok(())
    }

    /// Returns the limits of the machine for a kernel's work; measures the machine when it is first
    /// needed.
    fn roofline(
        &self,
        one: &LoadedVariant<'_>,
        results: &mut Results,
    ) -> Result<Option<Roofline>, Error> {
        let target = Target::parse(&one.session.manifest.target.name)?;
        if self.args.roofline == RooflineOption::Off || target.is_gpu() {
            return Ok(None);
        }
        let isa = Isa::of(&target);
        let known = results.machines.iter().position(|machine| machine.isa == isa);
        let at = match known {
            Some(at) => at,
            None => {
                self.progress.set_message("measuring the machine's limits");
                let fresh = self.args.roofline == RooflineOption::Fresh;
                results.machines.push(match self.far {
                    None => Machine::known(isa, super::cpu::at_most(results.threads), fresh),
                    Some(far) => {
                        let mut far = far.borrow_mut();
                        let threads = results.threads.min(far.hello().machine.cores);
                        far.limits(isa, threads, fresh)?
                    }
                });
                results.machines.len() - 1
            }
        };
        Ok(Roofline::new(&results.machines[at], &one.work))
    }

    /// Returns the limit to measure interleaved with the kernels: that of the first kernel.
    fn limit(
        &self,
        loaded_variants: &[LoadedVariant<'_>],
        rooflines: &[Option<Roofline>],
    ) -> Option<(Isa, Limit)> {
        if self.args.roofline != RooflineOption::Beside {
            return None;
        }
        let roofline = rooflines.first()?.as_ref()?;
        let target = Target::parse(&loaded_variants[0].session.manifest.target.name).ok()?;
        Some((Isa::of(&target), roofline.limit))
    }
}

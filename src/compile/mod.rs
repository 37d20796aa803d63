//! From a file to scheduled kernels and to a module: what the commands and build scripts
//! (`crates/tec-build`) share.

pub mod cache;
pub mod cpu;
pub mod error;
#[cfg(feature = "onnx")]
pub mod model;
#[cfg(feature = "onnx")]
pub mod npy;
mod prefix;
pub mod recorded;
pub mod source;
pub mod text;
pub mod variants;

use crate::codegen::{Code, NetworkCode};
use crate::diag::{Diag, closest};
use crate::driver::{self, Failure, Network, Options, RecordedSchedules, Trace};
use crate::ir::simplify::value_at;
use crate::ir::visit::any_expr;
use crate::ir::{Expr, Kernel, Var};
use crate::lang::ast::Item;
use crate::lang::{LIBRARY, Program};
use crate::module::params::{Params, read_params};
use crate::module::{BuildInfo, BuiltModule, KernelInfo, ModuleKind};
use crate::network::{self, Argument};
use crate::schedule::{BoundedSchedule, Fallback, InputSelector, Origin};
use crate::te::Graph;
use error::Error;
use recorded::{BestRecords, edit, insert_best_schedules};
use source::{EditedLoader, Source};
use std::path::{Path, PathBuf};

/// The files that a program is compiled with beside its source, as in the options of the same
/// names.
#[derive(Clone, Copy, Default, Debug)]
pub struct SideFiles<'a> {
    /// `--records`.
    pub records: Option<&'a str>,
    /// `--params`.
    pub params: Option<&'a str>,
    /// How an ONNX model is imported.
    pub model: ModelFlags<'a>,
}

/// How an ONNX model is imported, as in the options of the same names.
#[derive(Clone, Copy, Default, Debug)]
pub struct ModelFlags<'a> {
    /// `--freeze NAME=VALUE|FILE.npy`.
    pub freeze: &'a [String],
    /// `--no-winograd`.
    pub no_winograd: bool,
}

impl ModelFlags<'_> {
    /// Returns one of the options that are given.
    pub fn given(&self) -> Option<String> {
        let freeze = self.freeze.first().map(|text| format!("--freeze {text}"));
        freeze.or_else(|| self.no_winograd.then(|| "--no-winograd".to_string()))
    }
}

/// Splits the `NAME=VALUE` of an option.
pub fn split_value<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), Error> {
    text.split_once('=').ok_or_else(|| {
        Error::Usage(format!("`{option} {text}` has no value: write `{option} {text}=VALUE`"))
    })
}

/// Refuses two settings `NAME=VALUE` of one name with different values.
pub fn refuse_contradictions(option: &str, settings: &[String]) -> Result<(), Error> {
    let named = |text: &'_ String| text.split_once('=').map(|(name, _)| name.to_string());
    for (at, later) in settings.iter().enumerate() {
        let contradicts = |earlier: &&String| named(earlier) == named(later) && *earlier != later;
        if let (Some(name), Some(earlier)) = (named(later), settings[..at].iter().find(contradicts))
        {
            let text = format!("`{name}` has two values: `{option} {earlier}`, `{option} {later}`");
            return Err(Error::Usage(text));
        }
    }
    Ok(())
}

/// Splits `[KERNEL.]NAME`.
pub fn split_kernel(text: &str) -> (Option<String>, String) {
    match text.split_once('.') {
        Some((kernel, name)) => (Some(kernel.to_string()), name.to_string()),
        None => (None, text.to_string()),
    }
}

/// Opens the source of a command.
fn open(path: &str, options: &Options, flags: ModelFlags<'_>) -> Result<Source, Error> {
    if !source::is_model(path) {
        if let Some(given) = flags.given() {
            let instead = match flags.freeze.is_empty() {
                true => "calls an operator by its name",
                false => "declares a `param`",
            };
            let text = format!("`{given}` is for ONNX models; a `.te` file {instead}");
            return Err(Error::Usage(text));
        }
        return Ok(source::open(options));
    }
    #[cfg(feature = "onnx")]
    return model::open(path, options, flags);
    #[cfg(not(feature = "onnx"))]
    Err(Error::Usage(format!("`{path}`: this build of tec does not import ONNX models")))
}

/// Reads a file and elaborates its kernels.
pub fn elaborate_file(
    path: &str,
    options: &Options,
    trace: &mut Trace,
) -> Result<(Program, Vec<Graph>), Error> {
    elaborate_model(path, options, ModelFlags::default(), trace)
}

/// Like [`elaborate_file`], with options for ONNX models.
pub fn elaborate_model(
    path: &str,
    options: &Options,
    flags: ModelFlags<'_>,
    trace: &mut Trace,
) -> Result<(Program, Vec<Graph>), Error> {
    let source = open(path, options, flags)?;
    elaborate_source(path, &source, trace)
}

fn elaborate_source(
    path: &str,
    source: &Source,
    trace: &mut Trace,
) -> Result<(Program, Vec<Graph>), Error> {
    let program = driver::load(path, &*source.loader, trace)
        .map_err(|(sources, failure)| Error::Compile(sources, failure))?;
    match driver::elaborate(&program, &source.options, trace) {
        Ok(graphs) => Ok((program, graphs)),
        Err(failure) => Err(Error::Compile(program.sources, failure)),
    }
}

/// Reads a file and applies every schedule of its kernels, or the one of `options`.
pub fn check_file(
    path: &str,
    options: &Options,
    flags: ModelFlags<'_>,
    trace: &mut Trace,
) -> Result<(), Error> {
    let (program, graphs) = elaborate_model(path, options, flags, trace)?;
    let checked = match &options.schedule {
        Some(_) => driver::schedule(&program, graphs, options, trace).map(|_| ()),
        None => driver::check_schedules(&program, &graphs, options, trace),
    };
    checked.map_err(|failure| Error::Compile(program.sources, failure))
}

/// A file whose kernels are scheduled and whose networks are lowered.
pub struct Compiled {
    /// The syntax trees and texts.
    pub program: Program,
    /// The kernels.
    pub bounded: Vec<BoundedSchedule>,
    /// The networks.
    pub networks: Vec<Network>,
    /// The files on the disk that it was compiled from: the one that was named first, then the
    /// others, sorted.
    pub inputs: Vec<PathBuf>,
}

/// Reads a file, schedules its kernels as [`schedule_file`] does, and compiles its networks with
/// the elements of `params`, or of the file with the extension `safetensors` beside `path`.
pub fn compile_file(
    path: &str,
    files: SideFiles<'_>,
    options: &Options,
    trace: &mut Trace,
) -> Result<Compiled, Error> {
    let elaborated = Elaborated::read(path, files, options, trace)?;
    elaborated.compile(options, None, trace)
}

/// A file whose kernels and networks are elaborated, with the elements of its params.
struct Elaborated<'a> {
    path: &'a str,
    files: SideFiles<'a>,
    program: Program,
    graphs: Vec<Graph>,
    networks: Vec<Graph>,
    params: Params,
    /// As [`Compiled::inputs`].
    inputs: Vec<PathBuf>,
}

impl<'a> Elaborated<'a> {
    fn read(
        path: &'a str,
        files: SideFiles<'a>,
        options: &Options,
        trace: &mut Trace,
    ) -> Result<Elaborated<'a>, Error> {
        let records = files.records;
        check_choice(options, records)?;
        let source = open(path, options, files.model)?;
        let (program, graphs) = elaborate_source(path, &source, trace)?;
        let (networks, graphs): (Vec<Graph>, Vec<Graph>) =
            graphs.into_iter().partition(|graph| graph.network);
        let params = match (networks.first(), files.params) {
            (None, None) => Params::default(),
            (None, Some(file)) => return Err(no_params(path, file)),
            (Some(first), given) => {
                refuse_schedule_of_network(first, options)?;
                params_of(path, source.params, given)?
            }
        };
        let mut others = source.files;
        others.extend(records.map(PathBuf::from));
        others.extend(params_file(path, files.params).filter(|_| !networks.is_empty()));
        let inputs = inputs(&program, others);
        Ok(Elaborated { path, files, program, graphs, networks, params, inputs })
    }

    /// Schedules the kernels and compiles the networks. `leader` is the same file for the most
    /// capable target of the module, if this is another one.
    fn compile(
        &self,
        options: &Options,
        leader: Option<&Compiled>,
        trace: &mut Trace,
    ) -> Result<Compiled, Error> {
        let (program, graphs) = (self.program.clone(), self.graphs.clone());
        let (program, bounded) = match graphs.is_empty() && !self.networks.is_empty() {
            true => (program, Vec::new()),
            false => {
                let records = self.files.records;
                schedule_graphs(self.path, (program, graphs), options, records, trace)?
            }
        };
        let mut compiled =
            Compiled { program, bounded, networks: Vec::new(), inputs: self.inputs.clone() };
        if let Some(leader) = leader {
            variants::order_kernels(&mut compiled, leader, trace);
        }
        let options = &options_of_networks(options, options.fallback);
        let known = match self.files.records {
            Some(records) if !self.networks.is_empty() => BestRecords::read(Path::new(records))?,
            _ => BestRecords::default(),
        };
        for (at, graph) in self.networks.iter().enumerate() {
            let failed = |failure| Error::Compile(compiled.program.sources.clone(), failure);
            let params = &self.params;
            let recorded = match self.files.records {
                Some(_) => {
                    let kernels = network_kernels(graph, params).map_err(failed)?;
                    known.schedules(kernels.iter().map(|one| &one.graph), &options.target, trace)?
                }
                None => RecordedSchedules::default(),
            };
            let leader = leader.map(|leader| &leader.networks[at]);
            let network = driver::compile_network(graph, params, &recorded, options, leader, trace);
            let sources = &compiled.program.sources;
            let network = network.map_err(|failure| Error::Compile(sources.clone(), failure))?;
            compiled.networks.push(network);
        }
        Ok(compiled)
    }
}

/// Returns the files on the disk that a program was compiled from: its own, and others.
fn inputs(program: &Program, mut others: Vec<PathBuf>) -> Vec<PathBuf> {
    // The files that come with tec are not on the disk.
    let on_disk =
        |path: &PathBuf| !LIBRARY.iter().any(|one| Path::new(one) == path) || path.exists();
    let mut sources = program.sources.files.iter().map(|file| PathBuf::from(&file.path));
    let first = sources.next();
    others.extend(sources.filter(on_disk));
    others.sort();
    others.dedup();
    first.into_iter().chain(others).collect()
}

/// Refuses a schedule that a network cannot have.
pub fn refuse_schedule_of_network(network: &Graph, options: &Options) -> Result<(), Error> {
    let is_known = |name: &str| matches!(name, "auto" | "default");
    let schedule = options.schedule.as_ref().filter(|(_, name)| !is_known(name));
    let Some((_, given)) = schedule else { return Ok(()) };
    let text = format!("`--schedule {given}` has no effect on the network `{}`", network.name);
    let diag = Diag::global("E0703", text);
    let note = "the kernels of a network get automatic schedules, recorded ones (`--records`), or \
                `--schedule default`";
    Err(diag.note(note).into())
}

/// The options for the kernels of a network. `fallback` is for those that `--schedule` does not
/// decide.
fn options_of_networks(options: &Options, fallback: Fallback) -> Options {
    let fallback = match &options.schedule {
        Some((_, name)) if name == "default" => Fallback::Default,
        Some(_) => Fallback::Auto,
        None => fallback,
    };
    Options { fallback, ..options.clone() }
}

/// Returns the elements of the params of a network: those of the model, or of a file.
fn params_of(path: &str, own: Option<Params>, given: Option<&str>) -> Result<Params, Error> {
    match (own, params_file(path, given)) {
        (Some(_), _) if given.is_some() => {
            let text = "--params: an ONNX model has its parameters in itself";
            Err(Error::Usage(text.to_string()))
        }
        (Some(params), _) => Ok(params),
        (None, Some(file)) => Ok(read_params(&file)?),
        (None, None) => Ok(Params::default()),
    }
}

/// A kernel that can be called by itself: of a file, or one that a network is cut into.
pub struct SingleKernel {
    /// Its stage graph.
    pub graph: Graph,
    /// The network that it is a part of.
    pub network: Option<String>,
    /// The number of calls in one call of the network, or 1.
    pub calls: usize,
    /// The value of each run-time integer in the first call, over those of the network.
    pub integers: Vec<Expr>,
}

/// Returns the settings `NAME=VALUE` of run-time integers for `kernels`: for the kernels of a
/// network, with those that these values of the network's own give.
pub fn own_settings(kernels: &[SingleKernel], settings: &[String]) -> Vec<String> {
    let value = |var: &Var| {
        let given = settings.iter().filter_map(|setting| setting.split_once('='));
        let (_, value) = given.into_iter().find(|(name, _)| *name == var.name())?;
        value.parse().ok()
    };
    let of_kernel = |one: &SingleKernel| -> Vec<String> {
        let pairs = one.graph.vars.iter().zip(&one.integers);
        let renamed = pairs.filter(|(var, value)| value.as_var() != Some(*var));
        let setting = |(var, expr): (&Var, &Expr)| {
            let value = value_at(expr, &value)?;
            Some(format!("{}.{}={value}", one.graph.name, var.name()))
        };
        renamed.filter_map(setting).collect()
    };
    // A name that is only the network's is no name of a kernel.
    let is_replaced = |setting: &String| {
        let name = setting.split('=').next().unwrap_or_default();
        let own = |one: &SingleKernel| one.graph.vars.iter().any(|var| var.name() == name);
        let of_network = |one: &SingleKernel| {
            one.integers.iter().any(|value| {
                any_expr(value, &mut |node| node.as_var().is_some_and(|var| var.name() == name))
            })
        };
        !kernels.iter().any(own) && kernels.iter().any(of_network)
    };
    let kept = settings.iter().filter(|setting| !is_replaced(setting)).cloned();
    kept.chain(kernels.iter().flat_map(of_kernel)).collect()
}

/// Reads a file and elaborates its kernels; networks are cut into kernels.
pub fn elaborate_kernels(
    path: &str,
    files: SideFiles<'_>,
    options: &Options,
    trace: &mut Trace,
) -> Result<(Program, Vec<SingleKernel>), Error> {
    let source = open(path, options, files.model)?;
    let (program, graphs) = elaborate_source(path, &source, trace)?;
    let mut kernels = Vec::new();
    let mut params = None;
    let mut own = source.params;
    for graph in graphs {
        if !graph.network {
            let integers = graph.vars.iter().map(Expr::var).collect();
            kernels.push(SingleKernel { graph, network: None, calls: 1, integers });
            continue;
        }
        if params.is_none() {
            params = Some(params_of(path, own.take(), files.params)?);
        }
        let known = params.as_ref().expect("they were read");
        let parts = network_kernels(&graph, known)
            .map_err(|failure| Error::Compile(program.sources.clone(), failure))?;
        kernels.extend(parts);
    }
    Ok((program, kernels))
}

/// Cuts a network into kernels.
fn network_kernels(graph: &Graph, params: &Params) -> Result<Vec<SingleKernel>, Failure> {
    let (plan, name) = (driver::plan_network(graph, params)?.plan, &graph.name);
    let part = |(at, graph): (usize, &Graph)| {
        let calls: Vec<_> = plan.calls.iter().filter(|call| call.kernel == at).collect();
        let arguments = calls.first().map_or(&[][..], |call| &call.arguments);
        let integer = |argument: &Argument| match argument {
            Argument::Integer(value) => Some(value.clone()),
            _ => None,
        };
        SingleKernel {
            graph: graph.clone(),
            network: Some(name.clone()),
            calls: calls.len(),
            integers: arguments.iter().filter_map(integer).collect(),
        }
    };
    Ok(plan.kernels.iter().enumerate().map(part).collect())
}

/// Reads a file and schedules what is lowered to loops: its kernels as [`schedule_file`] does, and
/// the kernels that its networks are cut into as [`compile_file`] does, as if the elements of all
/// params were known. The name `NETWORK.KERNEL` in `options.kernels` is one of the latter.
pub fn schedule_all(
    path: &str,
    files: SideFiles<'_>,
    options: &Options,
    trace: &mut Trace,
) -> Result<(Program, Vec<BoundedSchedule>), Error> {
    check_choice(options, files.records)?;
    let mut parts: Vec<(String, String)> = Vec::new();
    let mut options = options.clone();
    for name in options.kernels.iter_mut().flatten() {
        if let Some((network, part)) = name.split_once('.') {
            parts.push((network.to_string(), part.to_string()));
            *name = network.to_string();
        }
    }
    let (program, graphs) = elaborate_model(path, &options, files.model, trace)?;
    let (networks, graphs): (Vec<Graph>, Vec<Graph>) =
        graphs.into_iter().partition(|graph| graph.network);
    if let (true, Some(file)) = (networks.is_empty(), files.params) {
        return Err(no_params(path, file));
    }
    let (program, mut bounded) = match graphs.is_empty() && !networks.is_empty() {
        true => (program, Vec::new()),
        false => schedule_graphs(path, (program, graphs), &options, files.records, trace)?,
    };
    let options = options_of_networks(&options, Fallback::Auto);
    for network in &networks {
        refuse_schedule_of_network(network, &options)?;
        let own = parts.iter().filter(|(of, _)| *of == network.name);
        let wanted: Vec<&str> = own.map(|(_, part)| part.as_str()).collect();
        let mut kernels = network::plan(network, &network::params(network)).plan.kernels;
        if let Some(unknown) = wanted.iter().find(|name| !kernels.iter().any(is_named(name))) {
            let text = format!("the network `{}` has no kernel `{unknown}`", network.name);
            let close = closest(unknown, kernels.iter().map(|one| one.name.as_str()));
            let help = match close {
                Some(close) => format!("did you mean `{}.{close}`?", network.name),
                None => "`tec lower --groups` lists them".to_string(),
            };
            return Err(Diag::global("E0218", text).help(help).into());
        }
        kernels.retain(|one| wanted.is_empty() || wanted.contains(&one.name.as_str()));
        let recorded = match files.records {
            Some(file) => BestRecords::read(Path::new(file))?.schedules(
                kernels.iter(),
                &options.target,
                trace,
            )?,
            None => RecordedSchedules::default(),
        };
        let scheduled = driver::schedule_parts(&kernels, &recorded, &options, trace);
        bounded.extend(scheduled.map_err(|one| Error::Compile(program.sources.clone(), one))?);
    }
    Ok((program, bounded))
}

fn no_params(path: &str, file: &str) -> Error {
    Error::Usage(format!("`--params {file}`: `{path}` has no network, so it has no params"))
}

fn is_named(name: &str) -> impl Fn(&Graph) -> bool {
    move |graph| graph.name == name
}

/// Returns the file with the elements of params: the one of `--params`, or the one beside the
/// source.
pub fn params_file(path: &str, given: Option<&str>) -> Option<PathBuf> {
    // A model has its parameters in itself.
    if source::is_model(path) {
        return None;
    }
    let beside = || Some(Path::new(path).with_extension("safetensors")).filter(|one| one.exists());
    given.map(PathBuf::from).or_else(beside)
}

fn check_choice(options: &Options, records: Option<&str>) -> Result<(), Error> {
    if records.is_some() && options.schedule.is_some() {
        let text = "--records and --schedule both choose the schedule; give one of them";
        return Err(Error::Usage(text.to_string()));
    }
    Ok(())
}

/// Reads a file, elaborates its kernels and applies the schedules that they are built with: those
/// of the file, or the best ones of a file of records. The result has at least one kernel. Refuses
/// networks (E0703).
pub fn schedule_file(
    path: &str,
    options: &Options,
    records: Option<&str>,
    trace: &mut Trace,
) -> Result<(Program, Vec<BoundedSchedule>), Error> {
    check_choice(options, records)?;
    let (program, graphs) = elaborate_file(path, options, trace)?;
    if let Some(network) = graphs.iter().find(|graph| graph.network) {
        let text = format!("`--emulate` does not take the network `{}`", network.name);
        let diag = Diag::new("E0703", network.span, text);
        let diag = diag.help("networks run on CPUs: `tec run` without `--emulate`");
        return Err(Error::Compile(program.sources, Failure::User(vec![diag])));
    }
    schedule_graphs(path, (program, graphs), options, records, trace)
}

fn schedule_graphs(
    path: &str,
    (program, graphs): (Program, Vec<Graph>),
    options: &Options,
    records: Option<&str>,
    trace: &mut Trace,
) -> Result<(Program, Vec<BoundedSchedule>), Error> {
    if graphs.is_empty() {
        let diag = no_kernel(path, &program);
        return Err(Error::Compile(program.sources, Failure::User(vec![diag])));
    }
    if let Some(records) = records {
        return schedule_recorded(path, (program, graphs), options, records, trace);
    }
    match driver::schedule(&program, graphs, options, trace) {
        Ok(kernels) => Ok((program, kernels)),
        Err(failure) => Err(Error::Compile(program.sources, failure)),
    }
}

/// Returns the error for a file without a kernel that can be compiled.
pub fn no_kernel(path: &str, program: &Program) -> Diag {
    let is_kernel = |item: &Item| matches!(item, Item::Kernel(_));
    if !program.files[0].items.iter().any(is_kernel) {
        return Diag::global("E0540", format!("{path} has no kernel"));
    }
    Diag::global("E0540", format!("{path} has no kernel that can be built"))
        .note("a kernel is built only if every parameter has a value")
        .help("give the value with `-D name=value`")
}

/// Compiles the file as if the recorded schedules were in it.
fn schedule_recorded(
    path: &str,
    (program, graphs): (Program, Vec<Graph>),
    options: &Options,
    records: &str,
    trace: &mut Trace,
) -> Result<(Program, Vec<BoundedSchedule>), Error> {
    let source = &program.sources.files[0].text;
    let (text, notes) =
        insert_best_schedules(Path::new(records), source, &graphs, &options.target)?;
    trace.notes.extend(notes);
    let loader = EditedLoader { path: path.to_string(), text };
    let loaded = driver::load(path, &loader, trace);
    let program = loaded.map_err(|(sources, failure)| Error::Compile(sources, failure))?;
    let tuned = Some((None, edit::NAME.to_string()));
    let options = Options { schedule: tuned, ..options.clone() };
    let scheduled = driver::elaborate(&program, &options, trace)
        .and_then(|graphs| driver::schedule(&program, graphs, &options, trace));
    match scheduled {
        Ok(kernels) => Ok((program, kernels)),
        Err(Failure::User(mut diags)) => {
            // The message shows lines that the user's file does not have.
            let note = format!("the schedule `{}` comes from {records}", edit::NAME);
            diags.iter_mut().for_each(|diag| diag.notes.push(note.clone()));
            Err(Error::Compile(program.sources, Failure::User(diags)))
        }
        Err(failure) => Err(Error::Compile(program.sources, failure)),
    }
}

/// Adds the kernels that pack the selected inputs ahead, and those that take packed inputs. Notes
/// each input that a kernel packs in every call.
pub fn prepack(
    compiled: &mut Compiled,
    selectors: &[InputSelector],
    trace: &mut Trace,
) -> Result<(), Error> {
    let Compiled { program, bounded, .. } = compiled;
    let failed = |failure| Error::Compile(program.sources.clone(), failure);
    for one in bounded.iter() {
        let kernel = &one.schedule.graph.name;
        let packed = driver::packed_in_calls(one, trace).map_err(failed)?;
        let is_selected = |name: &String| {
            let is_for = |(only, input): &InputSelector| {
                input == name && only.as_ref().is_none_or(|only| only == kernel)
            };
            selectors.iter().any(is_for)
        };
        for name in packed.into_iter().filter(|name| !is_selected(name)) {
            trace.notes.push(format!(
                "`{kernel}` packs the `layout_free` input `{name}` in each call; \
                 `--prepack {name}` packs it once"
            ));
        }
    }
    if !selectors.is_empty() {
        let kernels = std::mem::take(bounded);
        *bounded = driver::prepack(kernels, selectors, trace).map_err(failed)?;
    }
    Ok(())
}

/// Lowers the scheduled kernels of a program, and compiles them and its networks to a module.
pub fn build_module(
    compiled: &Compiled,
    options: &Options,
    module: &str,
    kind: ModuleKind,
    trace: &mut Trace,
) -> Result<BuiltModule, Error> {
    let (code, info) = lower_program(compiled, options, module, trace)?;
    let built = driver::build(code.code(), &info, kind, trace);
    built.map_err(|failure| Error::Compile(compiled.program.sources.clone(), failure))
}

/// The lowered functions of a program.
struct Lowered {
    kernels: Vec<Kernel>,
    networks: Vec<NetworkCode>,
}

impl Lowered {
    fn code(&self) -> Code<'_> {
        Code { kernels: &self.kernels, networks: &self.networks }
    }
}

fn lower_program(
    Compiled { program, bounded, networks, .. }: &Compiled,
    options: &Options,
    module: &str,
    trace: &mut Trace,
) -> Result<(Lowered, BuildInfo), Error> {
    let failed = |failure| Error::Compile(program.sources.clone(), failure);
    let mut kernels = Vec::new();
    let mut infos = Vec::new();
    for one in bounded {
        let (schedule, graph) = (&one.schedule, &one.schedule.graph);
        kernels.push(driver::lower(one, options, None, trace).map_err(failed)?);
        infos.push(KernelInfo {
            parameters: graph.params.clone(),
            schedule: schedule.text.clone(),
            automatic: schedule.origin == Origin::Auto,
            work: driver::count_work(graph, &options.target).map_err(failed)?,
            prepack_role: one.prepack_role.clone(),
        });
    }
    infos.extend(networks.iter().map(Network::info));
    let networks: Vec<NetworkCode> = networks.iter().map(|one| one.code.clone()).collect();
    // A module must not depend on the directory that it is built in.
    let name = |path: &str| match path.strip_prefix("lib/") {
        Some(_) => path.to_string(),
        None => path.rsplit('/').next().unwrap_or(path).to_string(),
    };
    let files = program.sources.files.iter();
    let info = BuildInfo {
        module: module.to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: files.map(|file| (name(&file.path), file.text.clone())).collect(),
        kernels: infos,
    };
    Ok((Lowered { kernels, networks }, info))
}

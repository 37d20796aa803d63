//! The compiler as a list of steps: load, elaborate, schedule, lower, build.
//!
//! Nothing here reads or writes files; the command line does.

mod auto;
mod estimate;
mod network;
mod passes;
mod run_pass;
mod trace;
mod work;

pub use auto::ScheduleCache;
pub use estimate::{
    estimate_text, estimate_texts, lower_to_estimate, packed_ahead, packed_in_calls,
    prepacked_kernel, typical_calls,
};
pub use network::{
    Network, NetworkKernel, RecordedSchedules, compile_network, plan_network, schedule_parts,
};
pub use passes::{PASSES, Pass, PassId};
pub use trace::{Dump, Failure, PhaseTimes, SearchTrace, Trace, panic_text};

use crate::codegen::ptx::{self, PtxModule};
use crate::codegen::{self, Code, Object, ObjectOptions};
use crate::diag::{Diag, Sources, Span, hints};
use crate::ir::copy::fresh_copy;
use crate::ir::cost::Work;
use crate::ir::print::{Style, print_kernel};
use crate::ir::{Kernel, interp};
use crate::lang::ast::Item;
use crate::lang::{Loader, Program, load_program};
use crate::lower;
use crate::module::{
    BuildInfo, BuiltModule, ModuleKind, ModuleVariant, build_gpu_module, build_module,
    build_variants,
};
use crate::schedule::{self, BoundedSchedule, Schedule, infer_bounds};
use crate::target::Target;
use crate::te::{self, Graph};
use run_pass::{after_pass, run_pass};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::sync::Arc;

/// Whether products and sums fuse (docs/LANGUAGE.md, "Floating point").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FpContract {
    /// Where the language says so.
    Fast,
    /// Never: each operation is rounded.
    Off,
}

impl FpContract {
    /// `fast`, but `off` if the target has no fused multiply-add.
    pub fn default_for(target: &Target) -> FpContract {
        if target.fma { FpContract::Fast } else { FpContract::Off }
    }

    /// The choice for a module for several CPUs, whose results do not depend on the CPU: `fast` if
    /// one of its targets has a fused multiply-add. The others compute it in software.
    pub fn default_for_all(targets: &[Target]) -> FpContract {
        let fuses = |target| FpContract::default_for(target) == FpContract::Fast;
        if targets.iter().any(fuses) { FpContract::Fast } else { FpContract::Off }
    }

    /// Returns the name on the command line and in manifests.
    pub fn name(self) -> &'static str {
        match self {
            FpContract::Fast => "fast",
            FpContract::Off => "off",
        }
    }
}

/// What to compile, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The target.
    pub target: Target,
    /// The kernels; `None` for all whose parameters have values.
    pub kernels: Option<Vec<String>>,
    /// `-D`: kernel (if given), name, value as written.
    pub defines: Vec<(Option<String>, String, String)>,
    /// `--typical`: run-time integers of typical calls, by name; none for those of the source.
    pub estimates: Vec<Vec<(String, i64)>>,
    /// `--schedule [KERNEL.]NAME`.
    pub schedule: Option<(Option<String>, String)>,
    /// The largest number of candidates to estimate for an automatic schedule.
    pub candidates: usize,
    /// The cache of automatic schedules; none by default.
    pub cache: Option<Arc<dyn ScheduleCache>>,
    /// What a kernel without a schedule of its own gets: the default schedule, or an automatic one
    /// for commands that make machine code.
    pub fallback: schedule::Fallback,
    /// The inputs that the cost model assumes to be packed before the call.
    pub prepacked: schedule::PrepackedInputs,
    /// `--fp-contract`.
    pub fp_contract: FpContract,
    /// `--opt`.
    pub opt: u8,
}

impl Options {
    /// Returns the default options for a target.
    pub fn new(target: Target) -> Options {
        Options {
            fp_contract: FpContract::default_for(&target),
            candidates: auto::default_candidates(&target),
            target,
            kernels: None,
            defines: Vec::new(),
            estimates: Vec::new(),
            schedule: None,
            cache: None,
            fallback: schedule::Fallback::Default,
            prepacked: schedule::PrepackedInputs::None,
            opt: 3,
        }
    }
}

/// The lowest `--opt` that computes integers in narrower types.
const NARROW_OPT: u8 = 2;

/// The stack of [`with_stack`], committed as used.
const STACK_BYTES: usize = 1 << 30;

/// Runs `work` on a thread with a stack of 1 GiB, which is enough for every recursion over a
/// program that the parser accepts.
///
/// # Panics
/// If the system refuses the stack. See [`try_with_stack`].
pub fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    try_with_stack(work).expect("a thread can be started")
}

/// Like [`with_stack`]; returns the error if the system refuses the stack.
pub fn try_with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        match builder.spawn_scoped(scope, work)?.join() {
            Ok(value) => Ok(value),
            Err(payload) => std::panic::resume_unwind(payload),
        }
    })
}

/// Reads and parses a file and its imports.
pub fn load(
    path: &str,
    loader: &dyn Loader,
    trace: &mut Trace,
) -> Result<Program, (Sources, Failure)> {
    match trace.phase("parse", &String::new, || load_program(path, loader)) {
        Ok((program, diags)) if diags.is_empty() => Ok(program),
        Ok((program, diags)) => {
            let failure = errors(&program, diags);
            Err((program.sources, failure))
        }
        Err(failure) => Err((Sources::default(), failure)),
    }
}

/// Elaborates the kernels of `options`: checks types, shapes, bounds and updates in place.
pub fn elaborate(
    program: &Program,
    options: &Options,
    trace: &mut Trace,
) -> Result<Vec<Graph>, Failure> {
    let kernels = options.kernels.as_deref();
    let mut graphs = trace
        .phase("elaborate", &String::new, || te::elaborate(program, kernels, &options.defines))?
        .map_err(|diags| errors(program, diags))?;
    if !options.estimates.is_empty() {
        te::set_estimates(&mut graphs, &options.estimates)
            .map_err(|diags| errors(program, diags))?;
    }
    let check = |graph: &Graph| schedule::check_updates(graph, &options.target).err();
    let wrong: Vec<Diag> = graphs.iter().filter_map(check).map(|diag| *diag).collect();
    if !wrong.is_empty() {
        return Err(errors(program, wrong));
    }
    let graphs = trace.phase("contract_floats", &String::new, || match options.fp_contract {
        FpContract::Fast => graphs.into_iter().map(te::contract_floats).collect(),
        FpContract::Off => graphs,
    })?;
    // A GPU computes integers of 16 bits in registers of 32.
    let narrows = options.opt >= NARROW_OPT && !options.target.is_gpu();
    // The passes over networks look for operations as they are written.
    let narrow = |graph: Graph| if graph.network { graph } else { te::narrow_integers(graph) };
    trace.phase("narrow_integers", &String::new, || match narrows {
        true => graphs.into_iter().map(narrow).collect(),
        false => graphs,
    })
}

/// Applies the schedule that each kernel is built with, and infers all bounds.
pub fn schedule(
    program: &Program,
    graphs: Vec<Graph>,
    options: &Options,
    trace: &mut Trace,
) -> Result<Vec<BoundedSchedule>, Failure> {
    let selector = options.schedule.as_ref();
    let (target, defines) = (&options.target, &options.defines);
    let kernels = graphs.iter().map(|graph| &graph.name[..]);
    let mut notes = schedule::note_ignored_selector(program, kernels, target, selector);
    let search = RefCell::new(SearchTrace::default());
    let schedules = trace
        .phase("schedule", &String::new, || {
            let choice = (selector, options.fallback);
            let auto = |graph: &Graph, notes: &mut Vec<String>| {
                auto::automatic_schedule(graph, options, notes, &search)
            };
            let choose = (choice, &auto as &_);
            schedule::schedule_kernels(program, graphs, target, defines, choose, &mut notes)
        })?
        .map_err(|diags| errors(program, diags))?;
    trace.notes.append(&mut notes);
    trace.search.add(&search.borrow());
    let (bounded, diags) = infer_all_bounds(schedules, trace)?;
    trace.notes.extend(bounded.iter().flat_map(schedule::note_recomputed));
    trace.notes.extend(bounded.iter().filter_map(|kernel| work::note_work(kernel, options)));
    trace.notes.extend(bounded.iter().flat_map(|kernel| work::note_checks(&kernel.schedule.graph)));
    if diags.is_empty() { Ok(bounded) } else { Err(errors(program, diags)) }
}

/// Applies every schedule of the kernels, for this target or others; returns all errors, each once.
pub fn check_schedules(
    program: &Program,
    graphs: &[Graph],
    options: &Options,
    trace: &mut Trace,
) -> Result<(), Failure> {
    let (target, defines) = (&options.target, &options.defines);
    let (schedules, mut diags) = trace.phase("schedule", &String::new, || {
        schedule::schedule_all(program, graphs, target, defines)
    })?;
    let (bounded, more) = infer_all_bounds(schedules, trace)?;
    diags.extend(more);
    // `tensorize` is checked against the loops.
    for one in &bounded {
        let built =
            trace.phase("build_loops", &String::new, || lower::build_loops::build_loops(one))?;
        diags.extend(built.err().map(|diag| *diag));
    }
    diags.sort_by_key(|diag| diag.span.map(|span| (span.file, span.start)));
    let mut seen = FxHashSet::default();
    diags.retain(|diag| seen.insert((diag.code, diag.span)));
    drop_errors_after_unknown_stages(program, &mut diags);
    if diags.is_empty() { Ok(()) } else { Err(errors(program, diags)) }
}

/// Drops the other errors of directives whose stage is unknown (E0306): their arguments are those
/// of a misspelt directive, such as `i.vectorize()` for `C.vectorize(i)`.
fn drop_errors_after_unknown_stages(program: &Program, diags: &mut Vec<Diag>) {
    let statement_of = |span: Span| {
        let items = &program.files[span.file as usize].items;
        let schedules = items.iter().filter_map(|item| match item {
            Item::Schedule(schedule) => Some(schedule),
            _ => None,
        });
        let found = schedules.filter_map(|schedule| schedule.statement_at(span.start)).next();
        found.map(|stmt| stmt.span)
    };
    let unknown: Vec<Span> = diags
        .iter()
        .filter(|diag| diag.code == "E0306")
        .filter_map(|diag| statement_of(diag.span?))
        .collect();
    diags.retain(|diag| {
        diag.code == "E0306"
            || !diag.span.is_some_and(|span| {
                unknown.iter().any(|stmt| {
                    stmt.file == span.file && (stmt.start..stmt.end).contains(&span.start)
                })
            })
    });
}

/// Returns the errors of a program, with hints.
fn errors(program: &Program, mut diags: Vec<Diag>) -> Failure {
    hints::give(&mut diags, &program.sources);
    Failure::User(diags)
}

fn infer_all_bounds(
    schedules: Vec<Schedule>,
    trace: &mut Trace,
) -> Result<(Vec<BoundedSchedule>, Vec<Diag>), Failure> {
    let (mut bounded, mut diags) = (Vec::new(), Vec::new());
    for schedule in schedules {
        match trace.phase("infer_bounds", &String::new, || infer_bounds(schedule))? {
            Ok(one) => bounded.push(one),
            Err(diag) => diags.push(*diag),
        }
    }
    Ok((bounded, diags))
}

/// Adds the kernels that pack inputs ahead, and those that take packed inputs.
pub fn prepack(
    bounded: Vec<BoundedSchedule>,
    selectors: &[schedule::InputSelector],
    trace: &mut Trace,
) -> Result<Vec<BoundedSchedule>, Failure> {
    trace
        .phase("prepack", &String::new, || schedule::prepack_kernels(bounded, selectors))?
        .map_err(Failure::User)
}

/// Lowers a scheduled kernel through every pass that `--opt` runs; if `last` is given, through the
/// passes up to and including it.
pub fn lower(
    bounded: &BoundedSchedule,
    options: &Options,
    last: Option<PassId>,
    trace: &mut Trace,
) -> Result<Kernel, Failure> {
    let versions = bounded.versions.iter().map(|version| {
        let kernel = lower(&version.of, options, last, trace)?;
        // Stages have the same buffers in each version.
        let body = fresh_copy(&kernel.body, &FxHashMap::default());
        Ok((version.cond.clone(), Kernel { body, ..kernel }))
    });
    let versions = versions.collect::<Result<Vec<_>, Failure>>()?;
    let built =
        trace.phase("build_loops", &String::new, || lower::build_loops::build_loops(bounded));
    let other = lower_passes(built??, options, last, trace)?;
    Ok(lower::merge_versions::merge_versions(versions, other))
}

/// Runs the passes after `build_loops` on a kernel.
fn lower_passes(
    mut kernel: Kernel,
    options: &Options,
    last: Option<PassId>,
    trace: &mut Trace,
) -> Result<Kernel, Failure> {
    after_pass(PassId::BuildLoops, None, &kernel, trace)?;
    let end = last.and_then(|last| PassId::ALL.iter().position(|id| *id == last));
    for pass in &PASSES[..end.unwrap_or(PASSES.len())] {
        if pass.runs(&options.target, options.opt) {
            note_before(pass.id, &kernel, &options.target, trace);
        }
        kernel = run_pass(pass.id, kernel, &options.target, options.opt, trace)?;
    }
    Ok(kernel)
}

/// Records what the user can see only in the input of a pass: vectorized nests, dropped hints.
fn note_before(id: PassId, kernel: &Kernel, target: &Target, trace: &mut Trace) {
    match id {
        PassId::OutlineSimd => {
            if let Some(nests) = &mut trace.nests {
                let of_kernel = lower::outline_simd::explain(kernel, target);
                nests.push((kernel.name.clone(), of_kernel));
            }
        }
        PassId::DropHints => trace.notes.extend(dropped_hints(kernel, target)),
        _ => {}
    }
}

/// Returns the notes about the hints that `drop_hints` drops.
fn dropped_hints(kernel: &Kernel, target: &Target) -> Vec<String> {
    let (name, has_simd) = (&kernel.name, target.simd().is_some());
    let mut notes = Vec::new();
    if lower::drop_hints::drops_prefetches(&kernel.body) {
        notes.push(match has_simd {
            false => format!("{target} does not support prefetches; those of `{name}` are dropped"),
            true => format!(
                "{target} supports prefetches in vectorized nests only; the others of `{name}` are \
                 dropped"
            ),
        });
    }
    if lower::drop_hints::drops_nontemporal(&kernel.body) {
        notes.push(match has_simd {
            false => format!(
                "{target} does not support nontemporal stores; `{name}` uses ordinary stores"
            ),
            true => format!(
                "{target} supports nontemporal stores in vectorized nests only; elsewhere `{name}` \
                 uses ordinary stores"
            ),
        });
    }
    notes
}

/// Lowers the default schedule of a kernel without any pass but `expand_math`. All other forms of
/// the kernel are compared with the result. Math functions are expanded because their operations
/// are part of the language.
pub fn lower_unoptimized(graph: &Graph, target: &Target) -> Result<Kernel, Failure> {
    let kernel = lower::build_loops::build_plain_loops(graph, target)?;
    Ok(lower::expand_math::expand_math(kernel, target)?)
}

/// Lowers a scheduled kernel without any pass but `expand_math`. If the schedule changes the order
/// of reduction terms, machine code is compared with the result.
pub fn lower_in_order(
    bounded: &BoundedSchedule,
    options: &Options,
    trace: &mut Trace,
) -> Result<Kernel, Failure> {
    let kernel = lower(bounded, options, Some(PassId::BuildLoops), trace)?;
    Ok(lower::expand_math::expand_math(kernel, &options.target)?)
}

fn print_kernels<'a>(code: impl Into<Code<'a>>) -> String {
    let code = code.into();
    let inner = code.networks.iter().flat_map(|network| &network.kernels);
    let all = code.kernels.iter().chain(inner);
    let texts: Vec<String> = all.map(|k| print_kernel(k, Style::Full)).collect();
    texts.join("\n")
}

/// Compiles lowered kernels to an object file.
pub fn compile_object<'a>(
    code: impl Into<Code<'a>>,
    target: &Target,
    object: &ObjectOptions,
    trace: &mut Trace,
) -> Result<Object, Failure> {
    let code = code.into();
    let compile = || codegen::compile_object(code, target, object);
    Ok(trace.phase("codegen", &|| print_kernels(code), compile)??)
}

/// Compiles lowered kernels to PTX.
pub fn compile_ptx(
    kernels: &[Kernel],
    target: &Target,
    trace: &mut Trace,
) -> Result<PtxModule, Failure> {
    let compile = || ptx::compile_ptx(kernels, target);
    let mut module = trace.phase("codegen_ptx", &|| print_kernels(kernels), compile)??;
    trace.notes.append(&mut module.notes);
    Ok(module)
}

/// Compiles lowered kernels and networks to a module.
pub fn build<'a>(
    code: impl Into<Code<'a>>,
    info: &BuildInfo,
    kind: ModuleKind,
    trace: &mut Trace,
) -> Result<BuiltModule, Failure> {
    let code = code.into();
    let print = || print_kernels(code);
    if info.target.is_gpu() {
        let kernels = code.kernels;
        let ptx = compile_ptx(kernels, &info.target, trace)?;
        let build = || build_gpu_module(kernels, &ptx, info, kind);
        return Ok(trace.phase("build_module", &print, build)??);
    }
    Ok(trace.phase("build_module", &print, || build_module(code, info, kind))??)
}

/// Like [`build`]; if there are several variants, they are for CPUs, the most capable one first.
pub fn build_all(
    variants: &[ModuleVariant<'_>],
    kind: ModuleKind,
    trace: &mut Trace,
) -> Result<BuiltModule, Failure> {
    if let [ModuleVariant { code, info }] = variants {
        return build(*code, info, kind, trace);
    }
    let print = || {
        let texts = variants.iter().map(|variant| print_kernels(variant.code));
        texts.collect::<Vec<_>>().join("\n")
    };
    Ok(trace.phase("build_module", &print, || build_variants(variants, kind))??)
}

/// Counts the arithmetic of a kernel's default schedule, in which scans and scatters visit each
/// term once. Elements that nobody reads count, too: extents are over run-time integers then.
pub fn count_work(graph: &Graph, target: &Target) -> Result<Work, Failure> {
    let mut plain = Schedule::new(graph.clone(), target);
    schedule::apply_linear_work(&mut plain);
    let mut bounded = schedule::infer_bounds(plain)?;
    bounded.compute_unread();
    let kernel = lower::build_loops::build_loops(&bounded)?;
    Ok(crate::ir::cost::count_work(&kernel))
}

/// Runs a kernel in the reference interpreter. Its panics are bugs of `tec`; traps are not.
pub fn interpret(
    kernel: &Kernel,
    args: &mut [interp::Value],
    trace: &mut Trace,
) -> Result<Result<(), interp::Trap>, Failure> {
    let print = || print_kernel(kernel, Style::Full);
    trace.phase("interpret", &print, || interp::run(kernel, args))
}

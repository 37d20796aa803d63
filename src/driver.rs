//! The compiler as a list: what is done to a program, in order, and what can be watched of it.
//!
//! Reads and writes nothing but its arguments; the command line does the rest.

use crate::codegen::Object;
use crate::codegen::clif::{self, ObjectOptions};
use crate::codegen::ptx::{self, PtxModule};
use crate::diag::{Diag, Result, Sources, hints};
use crate::ir::cost::Work;
use crate::ir::launch::launch_unbound_stages;
use crate::ir::print::{Style, print_kernel};
use crate::ir::simplify::{join_divisions, simplify_kernel};
use crate::ir::verify::verify_kernel;
use crate::ir::{Kernel, Part, interp};
use crate::lang::{Loader, Program, load_program};
use crate::lower;
use crate::lower::outline_simd::Nest;
use crate::module::{BuildInfo, BuiltModule, ModuleKind, build_gpu_module, build_module};
use crate::schedule::{self, Origin, Placed, Schedule, infer_bounds};
use crate::target::Target;
use crate::te::{self, Graph};
use crate::tune;
use crate::tune::model::{self, Estimate, MachineModel};
use crate::tune::search::CostPrediction;
use rustc_hash::FxHashSet;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A pass over the loop IR. Its name is the one of `--dump`, `--time` and the golden tests.
pub struct Pass {
    /// `verb_noun`.
    pub name: &'static str,
    /// The lowest `--opt` that runs it.
    pub opt: u8,
    /// For which targets.
    pub machines: Machines,
    /// Before → after.
    pub run: fn(Kernel, &Target) -> Result<Kernel>,
}

/// Targets that a pass is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machines {
    /// All of them.
    All,
    /// CPUs.
    Cpus,
    /// GPUs.
    Gpus,
}

impl Pass {
    /// Whether it is one of the passes for a target at an `--opt`.
    pub fn runs(&self, target: &Target, opt: u8) -> bool {
        let fits = match self.machines {
            Machines::All => true,
            Machines::Cpus => !target.is_gpu(),
            Machines::Gpus => target.is_gpu(),
        };
        fits && opt >= self.opt
    }

    const fn new(
        name: &'static str,
        opt: u8,
        machines: Machines,
        run: fn(Kernel, &Target) -> Result<Kernel>,
    ) -> Pass {
        Pass { name, opt, machines, run }
    }
}

/// The passes, in order, after `build_loops`.
///
/// `share_storage` compares indices, so it wants them flat and simplified; what
/// `tec lower --simple` prints is the program after it. `hoist_invariants` stands before
/// `expand_math`, where a function is still one node.
pub const PASSES: &[Pass] = {
    use Machines::{All, Cpus, Gpus};
    use lower::*;
    &[
        Pass::new(
            "inject_virtual_threads",
            0,
            Gpus,
            inject_virtual_threads::inject_virtual_threads,
        ),
        Pass::new("inject_double_buffer", 0, All, inject_double_buffer::inject_double_buffer),
        Pass::new("flatten_storage", 0, All, flatten_storage::flatten_storage),
        Pass::new("simplify", 1, All, |kernel, _| Ok(simplify_kernel(kernel))),
        Pass::new("partition_loops", 1, All, partition_loops::partition_loops),
        Pass::new("cut_borders", 1, Cpus, cut_borders::cut_borders),
        Pass::new("vectorize_loops", 0, All, vectorize_loops::vectorize_loops),
        Pass::new("unroll_loops", 1, All, unroll_loops::unroll_loops),
        Pass::new("simplify_again", 1, All, |kernel, _| Ok(simplify_kernel(kernel))),
        Pass::new("share_storage", 2, All, share_storage::share_storage),
        Pass::new("hoist_threads", 0, Gpus, hoist_threads::hoist_threads),
        Pass::new("join_divisions", 2, All, |kernel, _| Ok(join_divisions(kernel))),
        Pass::new("promote_accumulators", 2, All, promote_accumulators::promote_accumulators),
        Pass::new("insert_barriers", 0, Gpus, insert_barriers::insert_barriers),
        Pass::new("outline_simd", 1, Cpus, outline_simd::outline_simd),
        Pass::new("drop_hints", 0, All, drop_hints::drop_hints),
        Pass::new("transpose_tiles", 2, Cpus, transpose_tiles::transpose_tiles),
        Pass::new("legalize_vectors", 0, Cpus, legalize_vectors::legalize_vectors),
        Pass::new("hoist_invariants", 3, All, hoist_invariants::hoist_invariants),
        Pass::new("skip_empty_nests", 0, All, skip_empty_nests::skip_empty_nests),
        Pass::new("expand_math", 0, All, expand_math::expand_math),
    ]
};

/// The last pass whose result still looks like the source: `tec lower --simple` shows it.
pub const LAST_READABLE_PASS: &str = "share_storage";

/// Whether products and sums fuse (LANGUAGE.md, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FpContract {
    /// As the source rules say.
    Fast,
    /// Each operation alone.
    Off,
}

impl FpContract {
    /// `fast`, but `off` where the hardware has no fused multiply-add.
    pub fn default_for(target: &Target) -> FpContract {
        if target.fma { FpContract::Fast } else { FpContract::Off }
    }

    /// The name on the command line and in manifests.
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
    /// For which machine.
    pub target: Target,
    /// Only these kernels; all that have their parameters if `None`.
    pub kernels: Option<Vec<String>>,
    /// `-D`: optional kernel, name, value as written.
    pub defines: Vec<(Option<String>, String, String)>,
    /// `--schedule [KERNEL.]NAME`.
    pub schedule: Option<(Option<String>, String)>,
    /// How many candidates the cost model judges where a schedule is made.
    pub candidates: usize,
    /// What a kernel gets without a schedule of its own: the plain loops, but commands that make
    /// machine code have one made.
    pub fallback: schedule::Fallback,
    /// Inputs that the cost model takes to be packed ahead.
    pub free: schedule::Free,
    /// `--fp-contract`.
    pub fp_contract: FpContract,
    /// `--opt`.
    pub opt: u8,
}

impl Options {
    /// Everything by default, for a target.
    pub fn new(target: Target) -> Options {
        let fp_contract = FpContract::default_for(&target);
        let (kernels, defines, schedule) = (None, Vec::new(), None);
        let (fallback, candidates) = (schedule::Fallback::Plain, CANDIDATES);
        let (free, opt) = (schedule::Free::None, 3);
        Options { target, kernels, defines, schedule, candidates, fallback, free, fp_contract, opt }
    }
}

/// Candidates that are judged at most for a schedule that the compiler makes, by default.
const CANDIDATES: usize = 384;
/// What runs for a moment is worth fewer: one for so many operations, and some.
const OPERATIONS: f64 = 1e4;
/// These are judged in any case.
const LEAST: usize = 16;
/// Threads that such a schedule is made for: the module does not depend on this machine's.
const AUTO_THREADS: usize = 4;

/// Why a compilation ended.
#[derive(Debug)]
pub enum Failure {
    /// The program is wrong, or the target cannot do it.
    User(Vec<Diag>),
    /// `tec` is wrong.
    Bug {
        /// The pass or phase at work.
        pass: String,
        /// The panic's text, or the verifier's.
        message: String,
        /// The loop IR that the pass received; empty before lowering.
        ir: String,
    },
}

impl From<Box<Diag>> for Failure {
    fn from(diag: Box<Diag>) -> Failure {
        Failure::User(vec![*diag])
    }
}

/// What may be watched: the IR after passes, and the time of each phase.
#[derive(Debug, Default)]
pub struct Trace {
    /// The pass to dump, or `all`.
    pub dump: Option<String>,
    /// Dumps: kernel, pass, loop IR (`None` if the pass changed nothing).
    pub dumps: Vec<(String, String, Option<String>)>,
    /// Time per phase, in order of first use, summed over kernels.
    pub times: Vec<(String, Duration)>,
    /// What the user should know though nothing is wrong.
    pub notes: Vec<String>,
    /// If wanted: what becomes of the vectorized nests of each kernel.
    pub nests: Option<Vec<(String, Vec<Nest>)>>,
}

impl Trace {
    /// Runs a phase: its time is added up, its panic becomes a [`Failure::Bug`].
    pub fn phase<T>(
        &mut self,
        name: &str,
        ir: &dyn Fn() -> String,
        run: impl FnOnce() -> T,
    ) -> std::result::Result<T, Failure> {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(run));
        let elapsed = start.elapsed();
        match self.times.iter_mut().find(|(known, _)| known == name) {
            Some((_, time)) => *time += elapsed,
            None => self.times.push((name.to_string(), elapsed)),
        }
        result.map_err(|payload| Failure::Bug {
            pass: name.to_string(),
            message: panic_text(&*payload),
            ir: ir(),
        })
    }
}

/// What a caught panic says.
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_string())
}

/// Runs `work` on a thread whose stack (1 GiB, committed as used) is deep enough for every
/// recursion over a program that the parser accepts.
pub fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const STACK: usize = 1 << 30;
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK);
        let thread = builder.spawn_scoped(scope, work).expect("a thread can be made");
        match thread.join() {
            Ok(value) => value,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    })
}

/// Reads and parses a file and what it imports.
pub fn load(
    path: &str,
    loader: &dyn Loader,
    trace: &mut Trace,
) -> std::result::Result<Program, (Sources, Failure)> {
    match trace.phase("parse", &String::new, || load_program(path, loader)) {
        Ok((program, diags)) if diags.is_empty() => Ok(program),
        Ok((program, mut diags)) => {
            hints::give(&mut diags, &program.sources);
            Err((program.sources, Failure::User(diags)))
        }
        Err(failure) => Err((Sources::default(), failure)),
    }
}

/// Elaborates the kernels asked for: types, shapes and bounds are right afterwards.
pub fn elaborate(
    program: &Program,
    options: &Options,
    trace: &mut Trace,
) -> std::result::Result<Vec<Graph>, Failure> {
    let kernels = options.kernels.as_deref();
    let graphs = trace
        .phase("elaborate", &String::new, || te::elaborate(program, kernels, &options.defines))?
        .map_err(|diags| wrong(program, diags))?;
    let graphs = trace.phase("contract_floats", &String::new, || match options.fp_contract {
        FpContract::Fast => graphs.into_iter().map(te::contract_floats).collect(),
        FpContract::Off => graphs,
    })?;
    Ok(graphs)
}

/// Applies the schedules that the kernels are built with, and infers all bounds.
pub fn schedule(
    program: &Program,
    graphs: Vec<Graph>,
    options: &Options,
    trace: &mut Trace,
) -> std::result::Result<Vec<Placed>, Failure> {
    let chosen = options.schedule.as_ref();
    let (target, defines) = (&options.target, &options.defines);
    let kernels = graphs.iter().map(|graph| &graph.name[..]);
    let mut notes = schedule::without_chosen(program, kernels, target, chosen);
    let schedules = trace
        .phase("schedule", &String::new, || {
            let choice = (chosen, options.fallback);
            let auto = |graph: &Graph, notes: &mut Vec<String>| auto(graph, options, notes);
            schedule::schedule_kernels(
                program,
                graphs,
                target,
                defines,
                (choice, &auto),
                &mut notes,
            )
        })?
        .map_err(|diags| wrong(program, diags))?;
    trace.notes.append(&mut notes);
    let (placed, diags) = place(schedules, trace)?;
    if diags.is_empty() { Ok(placed) } else { Err(wrong(program, diags)) }
}

/// Applies every schedule, built or not, for this target or others: all errors in them, each once.
pub fn check_schedules(
    program: &Program,
    graphs: &[Graph],
    options: &Options,
    trace: &mut Trace,
) -> std::result::Result<(), Failure> {
    let (target, defines) = (&options.target, &options.defines);
    let (schedules, mut diags) = trace.phase("schedule", &String::new, || {
        schedule::schedule_all(program, graphs, target, defines)
    })?;
    let (placed, more) = place(schedules, trace)?;
    diags.extend(more);
    // Whether a nest is an intrinsic is seen when its loops are there.
    for one in &placed {
        let built =
            trace.phase("build_loops", &String::new, || lower::build_loops::build_loops(one))?;
        diags.extend(built.err().map(|diag| *diag));
    }
    diags.sort_by_key(|diag| diag.span.map(|span| (span.file, span.start)));
    let mut seen = FxHashSet::default();
    diags.retain(|diag| seen.insert((diag.code, diag.span)));
    if diags.is_empty() { Ok(()) } else { Err(wrong(program, diags)) }
}

/// The errors of a program, with hints.
fn wrong(program: &Program, mut diags: Vec<Diag>) -> Failure {
    hints::give(&mut diags, &program.sources);
    Failure::User(diags)
}

/// Adds the kernels that pack inputs ahead, and those that read them packed.
pub fn prepack(
    placed: Vec<Placed>,
    requests: &[schedule::Request],
    trace: &mut Trace,
) -> std::result::Result<Vec<Placed>, Failure> {
    trace
        .phase("prepack", &String::new, || schedule::prepack_kernels(placed, requests))?
        .map_err(Failure::User)
}

fn place(
    schedules: Vec<Schedule>,
    trace: &mut Trace,
) -> std::result::Result<(Vec<Placed>, Vec<Diag>), Failure> {
    let (mut placed, mut diags) = (Vec::new(), Vec::new());
    for schedule in schedules {
        match trace.phase("infer_bounds", &String::new, || infer_bounds(schedule))? {
            Ok(one) => placed.push(one),
            Err(diag) => diags.push(*diag),
        }
    }
    Ok((placed, diags))
}

/// Lowers a scheduled kernel through every pass that `--opt` runs, or through those up to and
/// including `last`.
pub fn lower(
    placed: &Placed,
    options: &Options,
    last: Option<&str>,
    trace: &mut Trace,
) -> std::result::Result<Kernel, Failure> {
    let built =
        trace.phase("build_loops", &String::new, || lower::build_loops::build_loops(placed));
    let mut kernel = built??;
    after_pass("build_loops", None, &kernel, trace)?;
    for pass in PASSES {
        if last == Some("build_loops") {
            break;
        }
        if pass.runs(&options.target, options.opt) {
            watch(pass, &kernel, options, trace);
            kernel = run_pass(pass, kernel, &options.target, trace)?;
        }
        if last == Some(pass.name) {
            break;
        }
    }
    Ok(kernel)
}

/// Lowers a scheduled kernel as far as the cost model wants it (`tune::model`): with vectors and
/// the nests of the wide back end, but with unrolled loops not written out, which takes most of
/// the time and tells nothing new.
pub fn lower_to_estimate(
    placed: &Placed,
    options: &Options,
    trace: &mut Trace,
) -> std::result::Result<Kernel, Failure> {
    const LAST: &str = "vectorize_loops";
    let mut kernel = lower(placed, options, Some(LAST), trace)?;
    for name in ["outline_simd", "expand_math"] {
        let pass = PASSES.iter().find(|pass| pass.name == name).expect("one of the passes");
        if pass.runs(&options.target, options.opt) {
            kernel = run_pass(pass, kernel, &options.target, trace)?;
        }
    }
    if options.target.is_gpu() {
        kernel.body = launch_unbound_stages(ptx::annotate_unrolled(kernel.body));
    }
    Ok(kernel)
}

/// What is told of a kernel before a pass.
fn watch(pass: &Pass, kernel: &Kernel, options: &Options, trace: &mut Trace) {
    let (name, target) = (&kernel.name, &options.target);
    match pass.name {
        "outline_simd" => {
            if let Some(nests) = &mut trace.nests {
                nests.push((name.clone(), lower::outline_simd::explain(kernel, target)));
            }
        }
        "drop_hints" => trace.notes.extend(dropped_hints(kernel, target)),
        _ => {}
    }
}

/// The notes about hints that `drop_hints` drops.
fn dropped_hints(kernel: &Kernel, target: &Target) -> Vec<String> {
    let (name, wide) = (&kernel.name, target.simd().is_some());
    let mut notes = Vec::new();
    if lower::drop_hints::drops_prefetches(&kernel.body) {
        notes.push(match wide {
            false => format!("{target} has no prefetch; those of `{name}` are dropped"),
            true => format!(
                "only vectorized nests prefetch on {target}; those of `{name}` outside are dropped"
            ),
        });
    }
    if lower::drop_hints::drops_nontemporal(&kernel.body) {
        notes.push(match wide {
            false => format!("{target} has no stores past the caches; `{name}` has ordinary ones"),
            true => format!(
                "only vectorized nests store past the caches on {target}; `{name}` outside of them \
                 has ordinary stores"
            ),
        });
    }
    notes
}

fn run_pass(
    pass: &Pass,
    kernel: Kernel,
    target: &Target,
    trace: &mut Trace,
) -> std::result::Result<Kernel, Failure> {
    let before = kernel.clone();
    let print = || print_kernel(&before, Style::Full);
    let kernel = trace.phase(pass.name, &print, || (pass.run)(kernel, target))??;
    after_pass(pass.name, Some(&before), &kernel, trace)?;
    Ok(kernel)
}

/// A scheduled kernel that reads free inputs as they were packed ahead, if its schedule packs any.
pub fn free_layouts(
    placed: &Placed,
    free: &schedule::Free,
    trace: &mut Trace,
) -> std::result::Result<Option<Placed>, Failure> {
    let made = trace.phase("prepack", &String::new, || schedule::prepack_free(placed, free))?;
    Ok(made.and_then(|mut made| made.pop()))
}

/// The inputs whose layout is free and which each call packs.
pub fn packed_in_calls(
    placed: &Placed,
    trace: &mut Trace,
) -> std::result::Result<Vec<String>, Failure> {
    let ahead = free_layouts(placed, &schedule::Free::All, trace)?;
    Ok(match ahead.and_then(|one| one.part) {
        Some(Part::Prepacked { inputs, .. }) => inputs,
        _ => Vec::new(),
    })
}

/// What the cost model says of a kernel under a schedule given as text.
pub fn estimate_text(
    graph: &Graph,
    text: &str,
    options: &Options,
    machine: &MachineModel,
    threads: usize,
) -> std::result::Result<Estimate, Failure> {
    let trace = &mut Trace::default();
    let (target, defines) = (&options.target, &options.defines);
    let apply = || {
        let schedule = schedule::apply_text(graph, target, defines, text)?;
        infer_bounds(schedule)
    };
    let placed = trace.phase("schedule", &String::new, apply)??;
    let placed = free_layouts(&placed, &options.free, trace)?.unwrap_or(placed);
    let kernel = lower_to_estimate(&placed, options, trace)?;
    let print = || print_kernel(&kernel, Style::Full);
    trace.phase("estimate", &print, || model::estimate(&kernel, machine, threads))
}

/// The same for several, on every core of this machine.
pub fn estimate_texts(
    graph: &Graph,
    texts: &[&str],
    options: &Options,
    machine: &MachineModel,
    threads: usize,
) -> Vec<std::result::Result<Estimate, Failure>> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let one = |text: &&str| estimate_text(graph, text, options, machine, threads);
    let part = |texts: &[&str]| -> Vec<_> { with_stack(|| texts.iter().map(one).collect()) };
    let part = &part;
    std::thread::scope(|scope| {
        let parts = texts.chunks(texts.len().div_ceil(cores).max(1));
        let threads: Vec<_> = parts.map(|texts| scope.spawn(move || part(texts))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<_>>| {
            thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        };
        threads.into_iter().flat_map(join).collect()
    })
}

/// The inputs whose layout is free and which a schedule given as text packs.
pub fn packed_ahead(
    graph: &Graph,
    text: &str,
    options: &Options,
) -> std::result::Result<Vec<String>, Failure> {
    let (target, defines) = (&options.target, &options.defines);
    let schedule = schedule::apply_text(graph, target, defines, text)?;
    packed_in_calls(&infer_bounds(schedule)?, &mut Trace::default())
}

/// The schedule that the compiler makes: of the tuner's candidates the best by the cost model, on
/// a typical machine of the target. What was measured has no part in it.
fn auto(graph: &Graph, options: &Options, notes: &mut Vec<String>) -> Schedule {
    let target = &options.target;
    let why = match best_by_model(graph, options, notes).map(|text| made(graph, target, &text)) {
        Some(Ok(schedule)) => return schedule,
        Some(Err(diag)) => format!("{}: {}", diag.code, diag.message),
        None => "all that were tried".to_string(),
    };
    let name = &graph.name;
    notes.push(format!("a schedule made for `{name}` was refused ({why}); it has the plain loops"));
    Schedule::new(graph.clone(), target)
}

/// A schedule of the compiler's, applied.
fn made(graph: &Graph, target: &Target, text: &str) -> Result<Schedule> {
    let schedule = schedule::apply_text(graph, target, &Vec::new(), text)?;
    infer_bounds(schedule.clone())?;
    Ok(Schedule { origin: Origin::Auto, ..schedule })
}

/// The text of the candidate that the model likes best; none if it refuses all.
fn best_by_model(graph: &Graph, options: &Options, notes: &mut Vec<String>) -> Option<String> {
    let target = &options.target;
    let machine = MachineModel::typical(target);
    let defects = RefCell::new(Vec::new());
    let model = |texts: &[&str]| -> Vec<Option<CostPrediction>> {
        let prediction = |estimate| match estimate {
            Ok(Estimate { seconds, features, .. }) => Some(CostPrediction { seconds, features }),
            Err(Failure::User(_)) => None,
            Err(Failure::Bug { pass, message, .. }) => {
                defects.borrow_mut().push(format!("{message}, in `{pass}`"));
                None
            }
        };
        let estimates = estimate_texts(graph, texts, options, &machine, AUTO_THREADS);
        estimates.into_iter().map(prediction).collect()
    };
    let space = tune::space::of_kernel(graph, target, 0);
    let work = count_work(graph, target).ok().and_then(|work| work.flops.as_int());
    let worth = work.map_or(CANDIDATES, |flops| LEAST + (flops as f64 / OPERATIONS) as usize);
    let count = worth.min(options.candidates);
    let chosen = tune::search::choose_by_model(&space, &model, count, 0);
    if let Some(defect) = defects.borrow().first() {
        notes.push(format!(
            "a schedule tried for `{}` showed a defect of tec: {defect}",
            graph.name
        ));
    }
    chosen.map(|one| one.text)
}

/// Verifies what a pass made (in debug builds) and dumps it if asked to.
fn after_pass(
    name: &str,
    before: Option<&Kernel>,
    kernel: &Kernel,
    trace: &mut Trace,
) -> std::result::Result<(), Failure> {
    if cfg!(debug_assertions)
        && let Err(message) = verify_kernel(kernel)
    {
        let ir = print_kernel(kernel, Style::Full);
        return Err(Failure::Bug { pass: name.to_string(), message, ir });
    }
    if trace.dump.as_deref().is_some_and(|wanted| wanted == name || wanted == "all") {
        let text = print_kernel(kernel, Style::Full);
        let unchanged = before.is_some_and(|before| print_kernel(before, Style::Full) == text);
        let text = (!unchanged).then_some(text);
        trace.dumps.push((kernel.name.clone(), name.to_string(), text));
    }
    Ok(())
}

/// The kernel that every other form is compared with: the plain loop nest, functions expanded
/// (their operations are part of the language), nothing else done to it.
pub fn lower_naively(graph: &Graph, target: &Target) -> std::result::Result<Kernel, Failure> {
    let kernel = lower::build_loops::build_plain_loops(graph, target)?;
    Ok(lower::expand_math::expand_math(kernel, target)?)
}

/// The kernel in the order of its schedule: the loops that the schedule says, functions expanded,
/// no pass over them. What machine code is compared with where the schedule changes the order of
/// terms.
pub fn lower_in_order(
    placed: &Placed,
    options: &Options,
    trace: &mut Trace,
) -> std::result::Result<Kernel, Failure> {
    let kernel = lower(placed, options, Some("build_loops"), trace)?;
    Ok(lower::expand_math::expand_math(kernel, &options.target)?)
}

/// Makes the object file of a module.
pub fn compile_object(
    kernels: &[Kernel],
    target: &Target,
    object: &ObjectOptions,
    trace: &mut Trace,
) -> std::result::Result<Object, Failure> {
    let print = || {
        let texts: Vec<String> = kernels.iter().map(|k| print_kernel(k, Style::Full)).collect();
        texts.join("\n")
    };
    Ok(trace.phase("codegen", &print, || clif::compile_object(kernels, target, object))??)
}

/// Makes a module of lowered kernels.
pub fn build(
    kernels: &[Kernel],
    info: &BuildInfo,
    kind: ModuleKind,
    trace: &mut Trace,
) -> std::result::Result<BuiltModule, Failure> {
    let print = || {
        let texts: Vec<String> = kernels.iter().map(|k| print_kernel(k, Style::Full)).collect();
        texts.join("\n")
    };
    if info.target.is_gpu() {
        let ptx = compile_ptx(kernels, &info.target, trace)?;
        let build = || build_gpu_module(kernels, &ptx, info, kind);
        return Ok(trace.phase("build_module", &print, build)??);
    }
    Ok(trace.phase("build_module", &print, || build_module(kernels, info, kind))??)
}

/// Makes the PTX of lowered kernels.
pub fn compile_ptx(
    kernels: &[Kernel],
    target: &Target,
    trace: &mut Trace,
) -> std::result::Result<PtxModule, Failure> {
    let print = || {
        let texts: Vec<String> = kernels.iter().map(|k| print_kernel(k, Style::Full)).collect();
        texts.join("\n")
    };
    let mut module = trace.phase("codegen_ptx", &print, || ptx::compile_ptx(kernels, target))??;
    trace.notes.append(&mut module.notes);
    Ok(module)
}

/// The arithmetic that a graph's plain loop nest does.
pub fn count_work(graph: &Graph, target: &Target) -> std::result::Result<Work, Failure> {
    let kernel = lower::build_loops::build_plain_loops(graph, target)?;
    Ok(crate::ir::cost::count_work(&kernel))
}

/// Runs a kernel in the reference interpreter; its panics are bugs like any other.
pub fn interpret(
    kernel: &Kernel,
    args: &mut [interp::Value],
    trace: &mut Trace,
) -> std::result::Result<std::result::Result<(), interp::Trap>, Failure> {
    let print = || print_kernel(kernel, Style::Full);
    trace.phase("interpret", &print, || interp::run(kernel, args))
}

/// The names that `--dump` and `lower after=` accept.
pub fn pass_names() -> Vec<&'static str> {
    ["build_loops"].into_iter().chain(PASSES.iter().map(|pass| pass.name)).collect()
}

//! Compiles a network: cuts it into kernels, schedules and lowers each, computes its constants, and
//! makes the list of calls.
//!
//! The steps over the stage graph are in `crate::network`; here are those that need schedules,
//! passes and compiled code.

mod constants;
mod entry;
mod interpret;

use super::{Failure, Options, SearchTrace, Trace, auto, count_work, lower};
use crate::codegen::{CallCode, ConstantBytes, NetworkCode, Operand};
use crate::diag::{Diag, closest};
use crate::ir::cost::Work;
use crate::ir::visit::substitute;
use crate::ir::{Buffer, DType, Expr, Kernel, PrepackRole, Stmt, Var};
use crate::module::KernelInfo;
use crate::module::params::Params;
use crate::network::place::Arena;
use crate::network::{Argument, Plan, Planned, fold, plan};
use crate::schedule::{self, BoundedSchedule, PrepackedInputs, Schedule, infer_bounds};
use crate::te::{Graph, Input};
use crate::tune::workload::workload_hash;
use constants::{Constants, tensor_of};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::sync::Arc;

/// A kernel of a network.
pub struct NetworkKernel {
    /// Its stage graph and schedule, with the inputs as the network has them.
    pub bounded: BoundedSchedule,
    /// The names of the inputs that are packed at build time.
    pub packed: Vec<String>,
}

/// A compiled network.
pub struct Network {
    /// Its stage graph.
    pub graph: Graph,
    /// The lowered kernels, the calls and the constants.
    pub code: NetworkCode,
    /// The kernels before packing; as many as in `code`.
    pub kernels: Vec<NetworkKernel>,
    /// The calls; as many as in `code`.
    pub planned: Planned,
    /// The bytes of the constants.
    pub constant_bytes: u64,
    /// The operations and bytes of a call.
    pub work: Work,
    /// The elements of the known params.
    params: FxHashMap<Buffer, ConstantBytes>,
    /// Computes the constants that depend on params alone.
    fold: Option<Graph>,
}

/// Recorded schedules of kernels, by their workload.
pub type RecordedSchedules = FxHashMap<String, String>;

/// Cuts a network into kernels. `params` are the known elements.
pub fn plan_network(graph: &Graph, params: &Params) -> Result<Planned, Failure> {
    let known: FxHashSet<Buffer> = known_params(graph, params)?.into_keys().collect();
    Ok(plan(graph, &known))
}

/// Compiles a network for a CPU. `params` are the known elements; a `param` without them is an
/// input. A kernel without a recorded schedule gets the one of `options.fallback`. `leader` is the
/// network for the most capable CPU of the module, if this is for another one
/// ([`schedule::order_as`]).
pub fn compile_network(
    graph: &Graph,
    params: &Params,
    recorded: &RecordedSchedules,
    options: &Options,
    leader: Option<&Network>,
    trace: &mut Trace,
) -> Result<Network, Failure> {
    if options.target.is_gpu() {
        let text = format!("the network `{}` cannot be built for {}", graph.name, options.target);
        let diag = Diag::global("E0702", text);
        return Err(Failure::User(vec![
            diag.help("networks are built for CPUs: `--target native`"),
        ]));
    }
    let known = known_params(graph, params)?;
    let known_buffers: FxHashSet<Buffer> = known.keys().cloned().collect();
    let planned = trace.phase("partition", &String::new, || plan(graph, &known_buffers))?;
    let (folded, plan) = (&planned.folded, &planned.plan);
    let mut scheduled = Vec::new();
    for (at, kernel) in plan.kernels.iter().enumerate() {
        let leader = leader.map(|leader| &leader.kernels[at].bounded);
        scheduled.push(schedule_kernel(kernel, recorded, options, leader, trace)?);
    }
    let params = known.clone();
    let fold = fold::fold_graph(graph, folded);
    let made = (fold.as_ref(), plan, &scheduled[..]);
    let constants = Constants::evaluate(known, made, options, trace)?;
    let arena = &planned.arena;
    let entry = entry::entry_kernel(graph, &params, options, trace)?;
    let mut kernels = Vec::new();
    for (at, one) in scheduled.iter().enumerate() {
        let mut kernel = lower(&one.packed, options, None, trace)?;
        kernel.name = format!("{}.{at}.{}", graph.name, plan.kernels[at].name);
        // The entry of the network has checked everything.
        (kernel.checks, kernel.dims) = (Stmt::nothing(), Vec::new());
        kernels.push(kernel);
    }
    let (calls, constants) = call_codes(plan, &scheduled, &entry, arena, constants);
    let work = total_work(plan, options)?;
    let constant_bytes = constants.iter().map(|bytes| (**bytes).as_ref().len() as u64).sum();
    let arena_bytes = arena.bytes.clone();
    let described = plan.kernels.iter().zip(scheduled).map(|(graph, one)| NetworkKernel {
        packed: one.packs.iter().map(|(input, _)| input_name(graph, *input)).collect(),
        bounded: one.bounded,
    });
    Ok(Network {
        graph: graph.clone(),
        kernels: described.collect(),
        code: NetworkCode { entry, kernels, calls, arena_bytes, constants },
        planned,
        constant_bytes,
        work,
        params,
        fold,
    })
}

/// Schedules the kernels of a network as [`compile_network`] does. The result takes constant inputs
/// packed where a schedule packs them.
pub fn schedule_parts(
    kernels: &[Graph],
    recorded: &RecordedSchedules,
    options: &Options,
    trace: &mut Trace,
) -> Result<Vec<BoundedSchedule>, Failure> {
    let schedule =
        |kernel| Ok(schedule_kernel(kernel, recorded, options, None, &mut *trace)?.packed);
    kernels.iter().map(schedule).collect()
}

fn input_name(graph: &Graph, at: usize) -> String {
    match &graph.inputs[at] {
        Input::Tensor { buffer, .. } => buffer.name.clone(),
        Input::Scalar { var, .. } => var.name().to_string(),
    }
}

/// Returns the elements of the params of a network. Refuses those of another type or shape, and if
/// there are any, requires them for every param (E0701).
fn known_params(
    graph: &Graph,
    params: &Params,
) -> Result<FxHashMap<Buffer, ConstantBytes>, Failure> {
    let mut known = FxHashMap::default();
    let mut diags = Vec::new();
    for input in &graph.inputs {
        let Input::Tensor { buffer, param: true, span, .. } = input else { continue };
        let Some(data) = params.get(&buffer.name) else {
            if !params.is_empty() {
                let message = format!("the parameter file has no tensor `{}`", buffer.name);
                let diag = Diag::new("E0701", *span, message);
                let names = params.keys().map(String::as_str);
                diags.push(match closest(&buffer.name, names) {
                    Some(close) => diag.note(format!("it has a tensor `{close}`")),
                    None => diag,
                });
            }
            continue;
        };
        let shape: Option<Vec<u64>> =
            buffer.shape.iter().map(|extent| u64::try_from(extent.as_int()?).ok()).collect();
        if data.dtype != buffer.dtype || shape.as_ref() != Some(&data.shape) {
            let show = |dtype: DType, shape: &[u64]| {
                let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
                format!("`{dtype}[{}]`", shape.join(", "))
            };
            let message = format!(
                "the param `{}` is {}, but {} in the parameter file",
                buffer.name,
                show(buffer.dtype, &shape.unwrap_or_default()),
                show(data.dtype, &data.shape),
            );
            diags.push(Diag::new("E0701", *span, message));
        }
        known.insert(buffer.clone(), data.bytes.clone());
    }
    if diags.is_empty() { Ok(known) } else { Err(Failure::User(diags)) }
}

/// A scheduled kernel, and the kernels that pack its constant inputs at build time.
struct Scheduled {
    /// With the inputs as the network has them.
    bounded: BoundedSchedule,
    /// With packed inputs.
    packed: BoundedSchedule,
    /// The position of each packed input, and the kernel that packs it.
    packs: Vec<(usize, BoundedSchedule)>,
}

fn schedule_kernel(
    graph: &Graph,
    recorded: &RecordedSchedules,
    options: &Options,
    leader: Option<&BoundedSchedule>,
    trace: &mut Trace,
) -> Result<Scheduled, Failure> {
    // Inputs are packed at build time, so packing costs a call nothing.
    let prepacked = PrepackedInputs::All;
    let options = &Options { prepacked: prepacked.clone(), ..options.clone() };
    let (mut notes, search) = (Vec::new(), RefCell::new(SearchTrace::default()));
    let schedule = trace.phase("schedule", &String::new, || {
        if let Some(schedule) = recorded_schedule(graph, recorded, options, &mut notes) {
            return schedule;
        }
        match options.fallback {
            schedule::Fallback::Default => Schedule::new(graph.clone(), &options.target),
            schedule::Fallback::Auto => {
                auto::automatic_schedule(graph, options, &mut notes, &search)
            }
        }
    })?;
    trace.notes.append(&mut notes);
    trace.search.add(&search.borrow());
    let mut bounded = trace.phase("infer_bounds", &String::new, || infer_bounds(schedule))??;
    if let Some(leader) = leader {
        schedule::order_as(&mut bounded, leader);
    }
    let made = trace.phase("prepack", &String::new, || pack_constants(&bounded))?;
    let Some(mut made) = made else {
        return Ok(Scheduled { packed: bounded.clone(), bounded, packs: Vec::new() });
    };
    let packed = made.pop().expect("the kernel that takes packed inputs is last");
    let position = |one: &BoundedSchedule| match &one.prepack_role {
        Some(PrepackRole::Pack { input, .. }) => {
            let inputs = &graph.inputs;
            let is_it = |at: &usize| input_name(graph, *at) == *input;
            (0..inputs.len()).find(is_it).expect("an input of the kernel")
        }
        _ => crate::bug!("not a kernel that packs"),
    };
    let packs = made.into_iter().map(|one| (position(&one), one)).collect();
    Ok(Scheduled { bounded, packed, packs })
}

/// Returns the recorded schedule of a kernel. Notes one that this version refuses, or that names
/// stages of another kernel.
fn recorded_schedule(
    graph: &Graph,
    recorded: &RecordedSchedules,
    options: &Options,
    notes: &mut Vec<String>,
) -> Option<Schedule> {
    if recorded.is_empty() {
        return None;
    }
    let text = recorded.get(&workload_hash(graph))?;
    let applied = schedule::apply_text(graph, &options.target, &options.defines, text);
    let checked = applied.and_then(|schedule| infer_bounds(schedule.clone()).map(|_| schedule));
    match checked {
        Ok(schedule) => Some(schedule),
        Err(diag) => {
            let name = &graph.name;
            notes.push(format!("the recorded schedule of `{name}` is not used: {diag}"));
            None
        }
    }
}

impl Network {
    /// Returns the facts for the manifest. The schedule lists those of the kernels.
    pub fn info(&self) -> KernelInfo {
        let one = |(code, kernel): (&Kernel, &NetworkKernel)| {
            format!("# {}\n{}\n", code.name, kernel.bounded.schedule.text.trim_end())
        };
        KernelInfo {
            parameters: self.graph.params.clone(),
            schedule: self.code.kernels.iter().zip(&self.kernels).map(one).collect(),
            automatic: true,
            work: self.work.clone(),
            prepack_role: None,
        }
    }
}

/// Returns the kernels that pack constant inputs at build time, and then the kernel that takes them
/// packed. A layout that depends on run-time integers is not known at build time.
fn pack_constants(bounded: &BoundedSchedule) -> Option<Vec<BoundedSchedule>> {
    let made = schedule::prepack_layout_free(bounded, &PrepackedInputs::All)?;
    let packs = made.split_last().map_or(&[][..], |(_, packs)| packs);
    let fixed = packs.iter().filter(|one| one.schedule.graph.vars.is_empty());
    let selectors: Vec<_> = fixed
        .filter_map(|one| match &one.prepack_role {
            Some(PrepackRole::Pack { input, .. }) => Some((None, input.clone())),
            _ => None,
        })
        .collect();
    match selectors.len() == packs.len() {
        true => Some(made),
        false => schedule::prepack_layout_free(bounded, &PrepackedInputs::Named(selectors)),
    }
}

/// Returns the calls with places, and the constants that they use.
fn call_codes(
    plan: &Plan,
    scheduled: &[Scheduled],
    entry: &Kernel,
    arena: &Arena,
    constants: Constants,
) -> (Vec<CallCode>, Vec<ConstantBytes>) {
    let mut used: Vec<ConstantBytes> = Vec::new();
    let mut numbers: FxHashMap<*const u8, usize> = FxHashMap::default();
    let mut number = |bytes: &ConstantBytes| {
        let address = Arc::as_ptr(bytes).cast::<u8>();
        *numbers.entry(address).or_insert_with(|| {
            used.push(bytes.clone());
            used.len() - 1
        })
    };
    let param_of = |found: &dyn Fn(&crate::ir::Param) -> bool| entry.params.iter().position(found);
    let calls = plan.calls.iter().map(|call| {
        let packs = &scheduled[call.kernel].packs;
        let operand = |(at, argument): (usize, &Argument)| match argument {
            Argument::Integer(value) => Operand::Integer(value.clone()),
            Argument::Scalar(var) => {
                Operand::Param(param_of(&|param| is_variable(param, var)).expect("a parameter"))
            }
            Argument::Tensor(buffer) => {
                if packs.iter().any(|(input, _)| *input == at) {
                    let key = (call.kernel, at, buffer.clone());
                    return Operand::Constant(number(&constants.packed[&key]));
                }
                if let Some(bytes) = constants.of.get(buffer) {
                    return Operand::Constant(number(bytes));
                }
                match param_of(&|param| is_buffer(param, buffer)) {
                    Some(at) => Operand::Param(at),
                    None => Operand::Arena(arena.offsets[buffer].clone()),
                }
            }
        };
        let operands = call.arguments.iter().enumerate().map(operand).collect();
        CallCode { kernel: call.kernel, operands }
    });
    let calls = calls.collect();
    (calls, used)
}

fn is_variable(param: &crate::ir::Param, wanted: &Var) -> bool {
    match param {
        crate::ir::Param::Scalar { var, .. } | crate::ir::Param::Runtime { var, .. } => {
            var == wanted
        }
        crate::ir::Param::Tensor { .. } => false,
    }
}

fn is_buffer(param: &crate::ir::Param, wanted: &Buffer) -> bool {
    matches!(param, crate::ir::Param::Tensor { buffer, .. } if buffer == wanted)
}

/// Sums the work of all calls.
fn total_work(plan: &Plan, options: &Options) -> Result<Work, Failure> {
    let mut of_kernels = Vec::new();
    for kernel in &plan.kernels {
        of_kernels.push(count_work(kernel, &options.target)?);
    }
    let mut total = Work { flops: Expr::index(0), bytes: Expr::index(0) };
    for call in &plan.calls {
        let vars = &plan.kernels[call.kernel].vars;
        let integers: Vec<&Expr> = call
            .arguments
            .iter()
            .filter_map(|argument| match argument {
                Argument::Integer(value) => Some(value),
                _ => None,
            })
            .collect();
        let rename = |expr: &Expr| {
            substitute(expr, &mut |var| {
                let at = vars.iter().position(|own| own == var)?;
                Some(integers[at].clone())
            })
        };
        let work = &of_kernels[call.kernel];
        total.flops = Expr::add(total.flops, rename(&work.flops));
        total.bytes = Expr::add(total.bytes, rename(&work.bytes));
    }
    let facts = crate::ir::arith::Facts::new();
    let simple = |expr: Expr| crate::ir::simplify::simplify_expr(&expr, &facts);
    Ok(Work { flops: simple(total.flops), bytes: simple(total.bytes) })
}

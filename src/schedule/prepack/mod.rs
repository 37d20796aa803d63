//! Prepacking: the stages that depend on one input only become a kernel of their own.
//!
//! Before: `Packed = B.cache_read(global, [C], layout=[…])` at the root, `C` reads `Packed`, `A`.
//! After:  `NAME_pack_B(B, out)` computes the elements of `Packed` in `out`, and
//! `NAME_prepacked(A, B, C)` is `NAME` without that stage; its `B` has the shape of `Packed`.
//! The stages keep their loops and their order of operations, so no bit changes.

mod flow;

use super::derived_stage::redirect;
use super::directives::prefetch::prefetch_first_input;
use super::directives::strides;
use super::phases::{BoundedSchedule, infer_bounds};
use super::state::{Schedule, StageId};
use crate::diag::{Diag, Result, closest};
use crate::ir::visit::{NodeSet, walk_nodes, walk_stmt};
use crate::ir::{Buffer, Expr, ExprKind, PrepackRole, Scope, Var};
use crate::te::{Body, Graph, Input, check_bounds, replace_shape};
use flow::{Flow, Packing};
use rustc_hash::{FxHashMap, FxHashSet};

/// The input that `--prepack [KERNEL.]INPUT` names; without a kernel, the inputs of this name of
/// all kernels.
pub type InputSelector = (Option<String>, String);

/// Adds, after each kernel that has a selected input, the kernels that pack its inputs and the one
/// that reads them packed.
pub fn prepack_kernels(
    bounded: Vec<BoundedSchedule>,
    selectors: &[InputSelector],
) -> std::result::Result<Vec<BoundedSchedule>, Vec<Diag>> {
    let mut diags: Vec<Diag> =
        selectors.iter().filter_map(|selector| check_selector(&bounded, selector)).collect();
    let mut all = Vec::new();
    for one in bounded {
        let graph = &one.schedule.graph;
        let selected: Vec<usize> = (0..graph.inputs.len())
            .filter(|at| selectors.iter().any(|selector| selects(selector, graph, *at)))
            .collect();
        let made = if selected.is_empty() { Ok(Vec::new()) } else { prepack(&one, &selected) };
        all.push(one);
        match made {
            Ok(made) => all.extend(made),
            Err(more) => diags.extend(more),
        }
    }
    diags.extend(check_names(&all).err().map(|diag| *diag));
    if diags.is_empty() { Ok(all) } else { Err(diags) }
}

/// The `layout_free` inputs that are packed before the call, at no cost for it.
#[derive(Clone, Default, Debug)]
pub enum PrepackedInputs {
    /// None: each call packs the inputs that its schedule packs.
    #[default]
    None,
    /// Those that are prepacked.
    Named(Vec<InputSelector>),
    /// All.
    All,
}

impl PrepackedInputs {
    /// Returns the indices of the inputs of a kernel that are prepacked.
    pub fn selected(&self, graph: &Graph) -> Vec<usize> {
        let is_prepacked = |at: &usize| match (&graph.inputs[*at], self) {
            (Input::Tensor { layout_free: true, .. }, PrepackedInputs::All) => true,
            (Input::Tensor { layout_free: true, .. }, PrepackedInputs::Named(selectors)) => {
                selectors.iter().any(|selector| selects(selector, graph, *at))
            }
            _ => false,
        };
        (0..graph.inputs.len()).filter(is_prepacked).collect()
    }
}

/// Returns the kernels that pack those of the inputs that the schedule allows to prepack, and then
/// the kernel that reads them packed; `None` if there is nothing to pack.
pub fn prepack_layout_free(
    bounded: &BoundedSchedule,
    prepacked: &PrepackedInputs,
) -> Option<Vec<BoundedSchedule>> {
    let schedule = &bounded.schedule;
    let inputs = prepacked.selected(&schedule.graph);
    if inputs.is_empty() || schedule.target.is_gpu() || !bounded.versions.is_empty() {
        return None;
    }
    let flow = Flow::of(schedule);
    let mut packings = Vec::new();
    let mut made = Vec::new();
    for input in inputs {
        let packing = flow.packing(schedule, input);
        let Ok(packing) = packing.and_then(|packing| check_packing(bounded, input, packing)) else {
            continue;
        };
        if let Ok(kernel) = pack_kernel(schedule, input, &packing) {
            made.push(kernel);
            packings.push((input, packing));
        }
    }
    if packings.is_empty() {
        return None;
    }
    made.push(prepacked_kernel(bounded, &packings));
    Some(made)
}

/// Whether a selector names an input of a kernel.
fn selects((kernel, name): &InputSelector, graph: &Graph, input: usize) -> bool {
    let ours = kernel.as_ref().is_none_or(|kernel| *kernel == graph.name);
    ours && matches!(&graph.inputs[input], Input::Tensor { buffer, .. } if buffer.name == *name)
}

/// Returns the error for a selector of an unknown kernel or input (E0553).
fn check_selector(bounded: &[BoundedSchedule], selector: &InputSelector) -> Option<Diag> {
    let (kernel, name) = selector;
    let graphs: Vec<&Graph> = bounded.iter().map(|one| &one.schedule.graph).collect();
    if let Some(kernel) = kernel
        && !graphs.iter().any(|graph| graph.name == *kernel)
    {
        let text = format!("`--prepack {kernel}.{name}`: no kernel `{kernel}` is built");
        return Some(suggest(text, kernel, graphs.iter().map(|graph| &graph.name[..]).collect()));
    }
    let ours = graphs.iter().filter(|graph| kernel.as_ref().is_none_or(|k| *k == graph.name));
    if ours.clone().any(|graph| (0..graph.inputs.len()).any(|at| selects(selector, graph, at))) {
        return None;
    }
    let whose = match (kernel, &graphs[..]) {
        (Some(kernel), _) => format!("`{kernel}` has no input tensor"),
        (None, [graph]) => format!("`{}` has no input tensor", graph.name),
        (None, _) => "no kernel has an input tensor".to_string(),
    };
    let inputs = ours.flat_map(|graph| &graph.inputs).filter_map(|input| match input {
        Input::Tensor { buffer, .. } => Some(&buffer.name[..]),
        Input::Scalar { .. } => None,
    });
    Some(suggest(format!("{whose} `{name}`"), name, inputs.collect()))
}

fn suggest(text: String, name: &str, mut names: Vec<&str>) -> Diag {
    // Several kernels may have an input of the same name.
    let mut seen = FxHashSet::default();
    names.retain(|name| seen.insert(*name));
    let diag = Diag::global("E0553", text);
    match closest(name, names.iter().copied()) {
        Some(close) => diag.help(format!("did you mean `{close}`?")),
        None if names.is_empty() => diag,
        None => diag.note(format!("there are: {}", names.join(", "))),
    }
}

/// Checks that no added function has the name of another one (E0521).
fn check_names(bounded: &[BoundedSchedule]) -> Result<()> {
    let mut taken = FxHashSet::default();
    for one in bounded {
        let name = &one.schedule.graph.name;
        let mut names = vec![name.clone(), format!("{name}_dl")];
        if let Some(PrepackRole::Pack { .. }) = one.prepack_role {
            names.push(format!("{name}_bytes"));
        }
        if let Some(twice) = names.into_iter().find(|name| !taken.insert(name.clone())) {
            let text = format!("two functions of the module would be called `{twice}`");
            return Err(Box::new(
                Diag::global("E0521", text)
                    .note("`--prepack` adds `KERNEL_pack_INPUT`, its `_bytes`, `KERNEL_prepacked`")
                    .help("rename the kernel or the input"),
            ));
        }
    }
    Ok(())
}

/// Returns the kernels that pack these inputs, and the kernel that reads them packed.
fn prepack(
    bounded: &BoundedSchedule,
    inputs: &[usize],
) -> std::result::Result<Vec<BoundedSchedule>, Vec<Diag>> {
    let schedule = &bounded.schedule;
    let name = &schedule.graph.name;
    if schedule.target.is_gpu() {
        let text =
            format!("`{name}` is for {}, but inputs are packed only on CPUs", schedule.target);
        let note = "a schedule for GPUs copies inputs to shared memory in the kernel";
        return Err(vec![Diag::global("E0555", text).note(note)]);
    }
    if !bounded.versions.is_empty() {
        let text = format!("no input of `{name}` can be packed ahead");
        let note = "its schedule branches on run-time integers, and each version may pack another \
                    way";
        let help = "write a schedule without such an `if`";
        return Err(vec![Diag::global("E0554", text).note(note).help(help)]);
    }
    let flow = Flow::of(schedule);
    let (mut packings, mut diags) = (Vec::new(), Vec::new());
    for input in inputs {
        if let Input::Tensor { buffer, .. } = &schedule.graph.inputs[*input]
            && (schedule.graph.update_of(buffer).is_some() || buffer.strides.is_some())
        {
            let input = &buffer.name;
            let text = format!("`{input}` of `{name}` cannot be packed ahead");
            let note = match buffer.strides {
                Some(_) => format!("`{input}` has strides"),
                None => format!("`{name}` updates it in place"),
            };
            diags.push(Diag::global("E0554", text).note(note));
            continue;
        }
        let packing = flow.packing(schedule, *input);
        match packing.and_then(|packing| check_packing(bounded, *input, packing)) {
            Ok(packing) => packings.push((*input, packing)),
            Err(diag) => diags.push(*diag),
        }
    }
    if !diags.is_empty() {
        return Err(diags);
    }
    let mut made = Vec::new();
    for (input, packing) in &packings {
        made.push(pack_kernel(schedule, *input, packing)?);
    }
    made.push(prepacked_kernel(bounded, &packings));
    Ok(made)
}

/// Checks that the packed tensor can be an argument, and that the entry does not read the input
/// (E0554).
fn check_packing(bounded: &BoundedSchedule, input: usize, packing: Packing) -> Result<Packing> {
    let schedule = &bounded.schedule;
    let stage = schedule.stage(packing.last);
    let (name, packed) = (&tensor(&schedule.graph, input).name, &stage.te.name);
    let refuse = |text: String| flow::refuse(schedule, packing.last, text);
    if stage.te.buffers.len() > 1 {
        let text = format!("`{packed}`, computed from `{name}`, is a tuple of tensors");
        return Err(Box::new(refuse(text).note("a packed input is one argument")));
    }
    if strides(stage, &bounded.of(packing.last).shape).is_some() {
        let text =
            format!("the rows of `{packed}` have padding, but an argument must be contiguous");
        return Err(Box::new(refuse(text).help("leave out its `storage_align`")));
    }
    let mut read = false;
    let mut seen = NodeSet::default();
    let buffer = tensor(&schedule.graph, input);
    for check in &schedule.graph.checks {
        walk_stmt(check, &mut |_| {}, &mut |expr| {
            walk_nodes(expr, &mut seen, &mut |e| read |= loads(e) == Some(buffer));
        });
    }
    if read {
        let text =
            format!("the entry of `{}` checks the elements of `{name}`", schedule.graph.name);
        return Err(Box::new(refuse(text).note("it cannot read them in the packed layout")));
    }
    Ok(packing)
}

/// Builds `NAME_pack_INPUT`: the stages that depend on the input only; the last one is its output.
fn pack_kernel(
    schedule: &Schedule,
    input: usize,
    packing: &Packing,
) -> std::result::Result<BoundedSchedule, Vec<Diag>> {
    let graph = &schedule.graph;
    let source = tensor(graph, input).clone();
    let mut new = schedule.clone();
    new.order.retain(|id| packing.stages.contains(id));
    // The new kernel has one input.
    new.stages.iter_mut().for_each(prefetch_first_input);
    let out = if source.name == "out" { "packed" } else { "out" };
    let last = new.stage_mut(packing.last);
    let (dtype, shape) = (last.te.buffers[0].dtype, last.te.buffers[0].shape.clone());
    let out = Buffer::new(out, dtype, shape, Scope::Global);
    let own = std::mem::replace(&mut last.te.buffers, vec![out.clone()]).remove(0);
    last.te.output = true;
    last.scope = None;
    // Stages of its recurrence read it.
    let copies = FxHashMap::from_iter([(own, out.clone())]);
    for id in new.order.clone() {
        redirect(&mut new.stage_mut(id).te.body, &copies, None);
    }
    let stages: Vec<_> = new.order.iter().map(|id| new.stage(*id).te.clone()).collect();
    let used = variables(&source, &stages);
    let mut assumes = graph.assumes.clone();
    assumes.retain(|(cond, ..)| variables_of([cond]).iter().all(|var| used.contains(var)));
    let sums = stages.iter().any(|stage| matches!(stage.body, Body::Reduce(_)));
    new.graph = Graph {
        name: format!("{}_pack_{}", graph.name, source.name),
        vars: graph.vars.iter().filter(|var| used.contains(var)).cloned().collect(),
        inputs: vec![graph.inputs[input].clone()],
        stages,
        outputs: vec![out],
        assumes,
        asserts: Vec::new(),
        dims: Vec::new(),
        checks: Vec::new(),
        ..graph.clone()
    };
    new.reassociated &= sums;
    let mut diags = Vec::new();
    check_bounds(&mut new.graph, &mut diags);
    if !diags.is_empty() {
        return Err(diags);
    }
    let (of, input) = (graph.name.clone(), source.name.clone());
    let mut bounded = infer_bounds(new).map_err(|diag| vec![*diag])?;
    bounded.prepack_role = Some(PrepackRole::Pack { of, input });
    Ok(bounded)
}

/// Builds `NAME_prepacked`: all other stages, with the packed tensors as inputs.
fn prepacked_kernel(bounded: &BoundedSchedule, packings: &[(usize, Packing)]) -> BoundedSchedule {
    let mut new = bounded.clone();
    let old = &bounded.schedule.graph;
    let graph = &mut new.schedule.graph;
    graph.name = format!("{}_prepacked", old.name);
    // Bounds inference used these facts; the entry still checks them.
    let facts = old.known_facts().split_off(old.assumes.len());
    graph.assumes.extend(facts.into_iter().map(|fact| (fact, String::new(), old.span)));
    let (mut copies, mut names) = (FxHashMap::default(), Vec::new());
    for (input, packing) in packings {
        let packed = &bounded.schedule.stage(packing.last).te.buffers[0];
        let Input::Tensor { buffer, layout_free, .. } = &mut graph.inputs[*input] else {
            crate::bug!("a scalar was packed")
        };
        *buffer = Buffer::new(&buffer.name, packed.dtype, packed.shape.clone(), Scope::Global);
        *layout_free = false;
        let buffer = buffer.clone();
        replace_shape(graph, *input, &buffer);
        names.push(buffer.name.clone());
        copies.insert(packed.clone(), buffer);
    }
    let packed = |id: &StageId| packings.iter().any(|(_, packing)| packing.stages.contains(id));
    let schedule = &mut new.schedule;
    schedule.order.retain(|id| !packed(id));
    for id in schedule.order.clone() {
        redirect(&mut schedule.stage_mut(id).te.body, &copies, None);
    }
    schedule.graph.stages =
        schedule.order.iter().map(|id| schedule.stage(*id).te.clone()).collect();
    new.prefetches.retain(|ask| !packed(&ask.stage));
    for ask in &mut new.prefetches {
        if let Some(copy) = copies.get(&ask.buffer) {
            ask.buffer = copy.clone();
        }
    }
    new.prepack_role = Some(PrepackRole::Prepacked { of: old.name.clone(), inputs: names });
    new
}

fn tensor(graph: &Graph, input: usize) -> &Buffer {
    match &graph.inputs[input] {
        Input::Tensor { buffer, .. } => buffer,
        Input::Scalar { .. } => crate::bug!("a scalar is asked for"),
    }
}

/// Returns the variables in a tensor's shape and in stages: run-time integers and axes.
fn variables(source: &Buffer, stages: &[crate::te::Stage]) -> FxHashSet<Var> {
    let mut exprs: Vec<Expr> = source.shape.clone();
    for stage in stages {
        stage.body.for_each_expr(&mut |expr| exprs.push(expr.clone()));
        for axis in stage.axes.iter().chain(stage.reduce_axes()) {
            exprs.extend([axis.min.clone(), axis.extent.clone()]);
        }
    }
    variables_of(&exprs)
}

fn variables_of<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> FxHashSet<Var> {
    let (mut vars, mut seen) = (FxHashSet::default(), NodeSet::default());
    for expr in exprs {
        walk_nodes(expr, &mut seen, &mut |e| vars.extend(e.as_var().cloned()));
    }
    vars
}

/// Returns the buffer that an expression loads from, if it is a load.
fn loads(expr: &Expr) -> Option<&Buffer> {
    match &expr.kind {
        ExprKind::Load { buffer, .. } => Some(buffer),
        _ => None,
    }
}

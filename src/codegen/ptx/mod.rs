//! The PTX back end: kernels for NVIDIA GPUs.
//!
//! [`compile_ptx`] compiles all kernels to one text with an `.entry` for each launch; [`launch`]
//! describes the launches. `split` finds them, `entry` emits one, `stmt`, `expr`, `divide` and
//! `cast` emit its code, `address` and `memory` its accesses, `guarded` and `pending` let latencies
//! overlap. Every float operation specifies its rounding, so results are bit-exact whatever `ptxas`
//! does, except for the approximations of `--fast-math`.
//!
//! A computed value is reused in the code that it dominates (`number`, `scoped`). Index arithmetic
//! is done in 32 bits if constant bounds (`range`) show that it fits.

mod address;
mod ahead;
mod cast;
mod copy;
mod divide;
mod emit;
mod entry;
mod expr;
mod extreme;
mod guarded;
pub mod launch;
mod memory;
mod number;
mod pending;
mod range;
mod scoped;
mod speculate;
mod split;
mod stmt;
mod tensor;
#[cfg(test)]
mod tests;
mod unroll;
mod warpgroup;

pub use unroll::annotate_unrolled;

pub use launch::{Launch, LaunchParam, PtxKernel, PtxModule, Workspace};

use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_kernel;
use crate::ir::visit::checked_tensors;
use crate::ir::{Buffer, Kernel, Param};
use crate::target::Target;
use nvptx_builder::{ErrorKind, Module, Symbol};
use rustc_hash::{FxHashMap, FxHashSet};

/// Compiles lowered kernels to PTX.
pub fn compile_ptx(kernels: &[Kernel], target: &Target) -> Result<PtxModule> {
    let mut module = Module::new(builder_target(target));
    module.comment(&format!("tec {}, target {target}", env!("CARGO_PKG_VERSION")));
    let mut names: FxHashSet<String> = kernels.iter().map(|kernel| kernel.name.clone()).collect();
    let mut tables = FxHashMap::default();
    let (mut compiled, mut notes) = (Vec::new(), Vec::new());
    let fast_math = target.gpu.is_some_and(|gpu| gpu.fast_math);
    for kernel in kernels {
        let one =
            compile_kernel(&mut module, kernel, (&mut names, &mut tables), &mut notes, fast_math);
        notes.extend(note_small_gpus(&one, target));
        notes.extend(note_checked_tensors(kernel));
        compiled.push(one);
    }
    let ptx = match module.finish() {
        Ok(ptx) => ptx,
        Err(errors) => return Err(refuse(&errors.0, target)),
    };
    let version = (u32::from(ptx.version.major), u32::from(ptx.version.minor));
    Ok(PtxModule { text: ptx.text, version, kernels: compiled, notes })
}

/// A note if some GPUs that the module supports have too little shared memory for a kernel.
fn note_small_gpus(kernel: &PtxKernel, target: &Target) -> Option<String> {
    let (large, small): (Vec<Target>, Vec<Target>) =
        target.compatible_gpus().into_iter().partition(|gpu| kernel.fits(gpu));
    if small.is_empty() {
        return None;
    }
    let list = |targets: &[Target]| {
        let names = targets.iter().map(Target::architecture);
        names.collect::<Vec<_>>().join(", ")
    };
    let shared = kernel.launches.iter().map(Launch::shared).max().unwrap_or(0);
    Some(format!(
        "`{}` needs {shared} bytes of shared memory for a block: {} have them, {} do not, and its \
         calls fail there",
        kernel.name,
        list(&large),
        list(&small),
    ))
}

/// A note if the checked entries of a kernel read elements of its inputs.
fn note_checked_tensors(kernel: &Kernel) -> Option<String> {
    let read = checked_tensors(kernel);
    let names: Vec<String> =
        read.iter().map(|index| format!("`{}`", kernel.params[*index].name())).collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "`{}` checks the data of {} on the CPU: a checked call waits for its stream and copies \
         them; limit indices with `clamp` or `%` to avoid it",
        kernel.name,
        names.join(", "),
    ))
}

/// The target as `nvptx_builder` has it.
fn builder_target(target: &Target) -> nvptx_builder::Target {
    match target.architecture().parse() {
        Ok(builder_target) => builder_target,
        Err(_) => crate::bug!("no PTX for target `{target}`"),
    }
}

/// Reports an instruction that the target lacks; any other error is a bug.
fn refuse(errors: &[nvptx_builder::Error], target: &Target) -> Box<Diag> {
    for error in errors {
        if let ErrorKind::Target { needs, .. } = &error.kind {
            let (entry, instruction) = (&error.entry, &error.instruction);
            let message = format!("`{entry}` needs the instruction `{instruction}`");
            let note = format!("it needs {}, the target is {target}", needs.targets());
            return Box::new(Diag::global("E0403", message).note(note));
        }
    }
    crate::bug!("{}", nvptx_builder::Errors(errors.to_vec()))
}

fn compile_kernel(
    module: &mut Module,
    kernel: &Kernel,
    (names, tables): (&mut FxHashSet<String>, &mut FxHashMap<Buffer, Symbol>),
    notes: &mut Vec<String>,
    fast_math: bool,
) -> PtxKernel {
    let (body, changed) = unroll::unroll_locals(kernel.body.clone());
    let mut kernel = Kernel { body, ..kernel.clone() };
    if changed {
        kernel = simplify_kernel(kernel);
    }
    let split = split::split_kernel(&kernel);
    let workspaces: FxHashMap<Buffer, usize> =
        split.workspaces.iter().enumerate().map(|(at, one)| (one.0.clone(), at)).collect();
    let mut facts = Facts::new();
    for fact in &kernel.facts {
        facts.assume(fact);
    }
    for piece in &split.pieces {
        for table in &piece.tables {
            if !tables.contains_key(table) {
                let name = format!("{}_{}", kernel.name, table.name);
                let init = table.init.as_deref().expect("tables have values");
                let symbol = module.global(&name, entry::storage_type(table.dtype), init);
                tables.insert(table.clone(), symbol);
            }
        }
    }
    let context =
        entry::KernelContext { kernel: &kernel, workspaces: &workspaces, tables, facts, fast_math };
    let mut alignments = FxHashMap::default();
    let single = split.pieces.len() == 1;
    let mut launches = Vec::new();
    for (at, piece) in split.pieces.iter().enumerate() {
        let name = match single {
            true => kernel.name.clone(),
            false => {
                // A stage of an operator has a name like `P.M`.
                let stage = piece.stage.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
                unique(names, format!("{}_{at}_{stage}", kernel.name))
            }
        };
        launches.push(entry::emit_entry(module, &name, piece, &context, (&mut alignments, notes)));
    }
    let alignments = kernel.params.iter().map(|param| match param {
        Param::Tensor { buffer, .. } => {
            let wanted = alignments.get(buffer).copied().unwrap_or(1);
            wanted.max(buffer.dtype.bytes() as u32)
        }
        _ => 1,
    });
    let alignments = alignments.collect();
    let workspaces = split.workspaces.into_iter().map(|(_, workspace)| workspace).collect();
    PtxKernel { name: kernel.name, workspaces, launches, alignments }
}

/// Makes a name unique by underscores at its end.
fn unique(names: &mut FxHashSet<String>, wanted: String) -> String {
    let mut name = wanted;
    while !names.insert(name.clone()) {
        name.push('_');
    }
    name
}

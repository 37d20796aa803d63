//! Modules for several CPUs: one file compiled for each target.
//!
//! All variants have the same results, bit by bit: one choice of fused products and sums, and one
//! order of the terms of each sum.

use super::error::Error;
use super::{Compiled, Elaborated, SideFiles, lower_program, prepack};
use crate::diag::Diag;
use crate::driver::{self, Failure, FpContract, Options, Trace};
use crate::module::{BuiltModule, ModuleKind, ModuleVariant};
use crate::schedule::{InputSelector, order_as};
use crate::target::Target;
use crate::tune::workload::named_text;

/// A file that is compiled for one of the targets of a module.
pub struct CompiledVariant {
    /// With the target.
    pub options: Options,
    /// The kernels and networks.
    pub compiled: Compiled,
}

/// Compiles a file for each target, the most capable one first, with the options of `options`, and
/// packs inputs ahead. `fp_contract` is the user's choice.
pub fn compile_variants(
    path: &str,
    files: SideFiles<'_>,
    (options, targets): (&Options, &[Target]),
    fp_contract: Option<FpContract>,
    selectors: &[InputSelector],
    trace: &mut Trace,
) -> Result<Vec<CompiledVariant>, Error> {
    let fp_contract = fp_contract.unwrap_or_else(|| FpContract::default_for_all(targets));
    let options = Options { fp_contract, target: targets[0].clone(), ..options.clone() };
    let elaborated = Elaborated::read(path, files, &options, trace)?;
    if fp_contract == FpContract::Fast && targets.len() > 1 {
        trace.notes.extend(note_software_fma(path, files, &options, &elaborated, targets)?);
    }
    let mut variants: Vec<CompiledVariant> = Vec::new();
    let earlier = std::mem::take(&mut trace.notes);
    let mut notes = Vec::new();
    for target in targets {
        let options = Options { target: target.clone(), ..options.clone() };
        let leader = variants.first().map(|first| &first.compiled);
        let mut work = || {
            let mut compiled = elaborated.compile(&options, leader, trace)?;
            prepack(&mut compiled, selectors, trace)?;
            Ok(compiled)
        };
        let compiled = match work() {
            Ok(compiled) => compiled,
            Err(error) if targets.len() > 1 => return Err(for_target(error, target)),
            Err(error) => return Err(error),
        };
        variants.push(CompiledVariant { options, compiled });
        notes.push(std::mem::take(&mut trace.notes));
    }
    trace.notes = earlier;
    trace.notes.extend(merge_notes(targets, notes));
    Ok(variants)
}

/// Lowers the variants of a program and compiles them to a module.
pub fn build_variants(
    variants: &[CompiledVariant],
    module: &str,
    kind: ModuleKind,
    trace: &mut Trace,
) -> Result<BuiltModule, Error> {
    let mut lowered = Vec::new();
    let earlier = std::mem::take(&mut trace.notes);
    let mut notes = Vec::new();
    for CompiledVariant { options, compiled } in variants {
        lowered.push(lower_program(compiled, options, module, trace)?);
        notes.push(std::mem::take(&mut trace.notes));
    }
    let targets: Vec<Target> = variants.iter().map(|one| one.options.target.clone()).collect();
    trace.notes = earlier;
    trace.notes.extend(merge_notes(&targets, notes));
    let each = lowered.iter().map(|(code, info)| ModuleVariant { code: code.code(), info });
    let built = driver::build_all(&each.collect::<Vec<_>>(), kind, trace);
    let sources = &variants[0].compiled.program.sources;
    built.map_err(|failure| Error::Compile(sources.clone(), failure))
}

/// Gives the kernels of a less capable target the order of summation of `leader`.
pub(super) fn order_kernels(compiled: &mut Compiled, leader: &Compiled, trace: &mut Trace) {
    for (one, leader) in compiled.bounded.iter_mut().zip(&leader.bounded) {
        if order_as(one, leader) {
            let (schedule, leader) = (&one.schedule, &leader.schedule.target);
            trace.notes.push(format!(
                "`{}` adds in another order than the source; {} uses its schedule for {leader}, so \
                 that results do not depend on the CPU",
                schedule.graph.name, schedule.target
            ));
        }
    }
}

/// Returns a note if a target computes fused products and sums in software.
fn note_software_fma(
    path: &str,
    files: SideFiles<'_>,
    options: &Options,
    elaborated: &Elaborated<'_>,
    targets: &[Target],
) -> Result<Option<String>, Error> {
    let without: Vec<String> =
        targets.iter().filter(|target| !target.fma).map(Target::to_string).collect();
    if without.is_empty() {
        return Ok(None);
    }
    let options = Options { fp_contract: FpContract::Off, ..options.clone() };
    let rounded = Elaborated::read(path, files, &options, &mut Trace::default())?;
    let texts = |one: &Elaborated<'_>| -> Vec<String> {
        one.graphs.iter().chain(&one.networks).map(named_text).collect()
    };
    let fuses = texts(&rounded) != texts(elaborated);
    Ok(fuses.then(|| {
        format!(
            "{} has no fused multiply-add and computes it exactly, but slowly, in software, so \
             that results do not depend on the CPU; `--fp-contract off` does without",
            without.join(", ")
        )
    }))
}

/// Tells for which target a file was refused.
fn for_target(error: Error, target: &Target) -> Error {
    match error {
        Error::Compile(sources, Failure::User(diags)) => {
            let add = |diag: Diag| diag.note(format!("compiled for {target}"));
            Error::Compile(sources, Failure::User(diags.into_iter().map(add).collect()))
        }
        error => error,
    }
}

/// Joins the notes of each target: those of all targets once, the others with the target.
fn merge_notes(targets: &[Target], notes: Vec<Vec<String>>) -> Vec<String> {
    let mut merged: Vec<String> = Vec::new();
    for (target, own) in targets.iter().zip(&notes) {
        for note in own {
            let text = match notes.iter().all(|other| other.contains(note)) {
                true => note.clone(),
                false if note.contains(target.name) => note.clone(),
                false => format!("{target}: {note}"),
            };
            if !merged.contains(&text) {
                merged.push(text);
            }
        }
    }
    merged
}

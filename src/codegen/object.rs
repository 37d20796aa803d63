//! Composes an object file: the functions of the kernels from [`clif`], and the entries around them
//! from [`entry`].

use super::entry::{EntryKernel, EntryVariant};
use super::ptx::{PtxKernel, PtxModule};
use super::{Code, Object, ObjectOptions, Variant, clif, entry};
use crate::diag::Result;
use crate::ir::{Expr, Kernel};
use crate::target::Target;

/// Compiles kernels and networks, their checks and their entries into one object file.
pub fn compile_object<'a>(
    code: impl Into<Code<'a>>,
    target: &Target,
    options: &ObjectOptions,
) -> Result<Object> {
    compile_variants(&[Variant { code: code.into(), target }], options)
}

/// Compiles the variants of a module into one object file. If there are several, the most capable
/// one is first, and an entry calls the first one that the CPU can run.
pub fn compile_variants(variants: &[Variant<'_>], options: &ObjectOptions) -> Result<Object> {
    let target = variants[0].target;
    let baseline = clif::baseline_isa(target, options.opt);
    let mut module = clif::new_module(baseline.clone(), target.os, &options.module);
    let mut notes = options.listing.then(Vec::new);
    let functions = clif::compile_variants(&mut module, variants, options, notes.as_mut())?;
    let mut entries = Vec::new();
    // A module that computes nothing in tile registers needs no permission to use them.
    let without = target.without_tiles();
    for (Variant { code, target }, functions) in variants.iter().zip(functions) {
        let target = match variants.len() {
            1 if !code.has_tiles() => &without,
            _ => *target,
        };
        let kernels = code.entries().zip(functions);
        let entry = |(kernel, functions)| EntryKernel { kernel, functions, launches: None };
        entries.push(EntryVariant { target, kernels: kernels.map(entry).collect() });
    }
    entry::emit_entries(&mut module, &*baseline, &entries, None, options)?;
    let bytes = module.finish();
    let listing = notes.map(|notes| clif::write_listing(target.arch, &bytes, &notes));
    Ok(Object { bytes, listing })
}

/// Compiles the entries of kernels that run on GPUs, for this machine's CPU family: they check the
/// arguments and launch the kernels of `ptx`.
pub fn compile_launchers(
    kernels: &[Kernel],
    ptx: &PtxModule,
    target: &Target,
    options: &ObjectOptions,
) -> Result<Object> {
    assert_eq!(kernels.len(), ptx.kernels.len(), "the PTX of these kernels");
    let host = Target::host_baseline();
    let baseline = clif::baseline_isa(&host, options.opt);
    let mut module = clif::new_module(baseline.clone(), host.os, &options.module);
    let launched: Vec<(&Kernel, &PtxKernel)> = kernels.iter().zip(&ptx.kernels).collect();
    let numbers: Vec<(&Kernel, Vec<Expr>)> =
        launched.iter().map(|(kernel, launches)| (*kernel, launches.numbers())).collect();
    let functions = clif::compile_launch_params(&mut module, &numbers, &host, options.opt)?;
    let kernels = (launched.into_iter().zip(functions))
        .map(|((kernel, launches), functions)| EntryKernel {
            kernel,
            functions,
            launches: Some(launches),
        })
        .collect();
    let entries = [EntryVariant { target, kernels }];
    entry::emit_entries(&mut module, &*baseline, &entries, Some(&ptx.text), options)?;
    let bytes = module.finish();
    Ok(Object { bytes, listing: None })
}

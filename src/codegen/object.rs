//! Composes an object file: the functions of the kernels from [`clif`], and the entries around them
//! from [`entry`].

use super::entry::EntryKernel;
use super::ptx::{PtxKernel, PtxModule};
use super::{Code, Object, ObjectOptions, clif, entry};
use crate::diag::Result;
use crate::ir::{Expr, Kernel};
use crate::target::Target;

/// Compiles kernels and networks, their checks and their entries into one object file.
pub fn compile_object<'a>(
    code: impl Into<Code<'a>>,
    target: &Target,
    options: &ObjectOptions,
) -> Result<Object> {
    let code = code.into();
    let baseline = clif::baseline_isa(target.arch, options.opt);
    let mut module = clif::new_module(baseline.clone(), &options.module);
    let mut notes = options.listing.then(Vec::new);
    let functions = clif::compile_kernels(&mut module, code, target, options, notes.as_mut())?;
    let entries: Vec<EntryKernel<'_>> = (code.entries().zip(functions))
        .map(|(kernel, functions)| EntryKernel { kernel, functions, launches: None })
        .collect();
    entry::emit_entries(&mut module, &*baseline, &entries, None, target, options)?;
    let bytes = module.finish().emit().expect("an object in memory is written");
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
    let baseline = clif::baseline_isa(host.arch, options.opt);
    let mut module = clif::new_module(baseline.clone(), &options.module);
    let launched: Vec<(&Kernel, &PtxKernel)> = kernels.iter().zip(&ptx.kernels).collect();
    let numbers: Vec<(&Kernel, Vec<Expr>)> =
        launched.iter().map(|(kernel, launches)| (*kernel, launches.numbers())).collect();
    let functions = clif::compile_launch_params(&mut module, &numbers, &host, options.opt)?;
    let entries: Vec<EntryKernel<'_>> = (launched.into_iter().zip(functions))
        .map(|((kernel, launches), functions)| EntryKernel {
            kernel,
            functions,
            launches: Some(launches),
        })
        .collect();
    entry::emit_entries(&mut module, &*baseline, &entries, Some(&ptx.text), target, options)?;
    let bytes = module.finish().emit().expect("an object in memory is written");
    Ok(Object { bytes, listing: None })
}

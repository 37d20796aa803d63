//! Links objects with the runtime to a shared object.

#[cfg(feature = "link")]
use super::wild;
use crate::bug;
use crate::diag::{Diag, Result};
use crate::target::{Arch, Os, Target};

/// The embedded object files of the runtime.
mod runtimes {
    include!(concat!(env!("OUT_DIR"), "/runtimes.rs"));
}

/// Stands in for the linker without the feature `link`.
#[cfg(not(feature = "link"))]
mod wild {
    pub fn link(_: crate::target::Arch, _: Vec<u8>, _: &[u8]) -> Result<Vec<u8>, &'static str> {
        Err("this build of tec has no linker")
    }
}

/// Links an ELF object with the runtime to a module. The object of a network holds its weights, so
/// nothing here copies it.
pub fn link_module(object: Vec<u8>, arch: Arch) -> Result<Vec<u8>> {
    if !cfg!(feature = "link") {
        let diag = Diag::global("E0522", "this build of tec has no linker");
        let help = "enable its feature `link`; of tec-build the feature `networks`";
        return Err(Box::new(diag.help(help)));
    }
    let runtime = required_runtime(arch, Os::Linux)?;
    match wild::link(arch, object, runtime) {
        Ok(bytes) => Ok(bytes),
        Err(error) => bug!("linking failed: {error:?}"),
    }
}

/// Returns the runtime's object file for a CPU family and a system, or an error if there is none.
pub fn required_runtime(arch: Arch, os: Os) -> Result<&'static [u8]> {
    runtime_object(arch, os).ok_or_else(|| {
        let name = runtime_name(arch, os);
        let text = format!("this `tec` has no runtime for {name} to link with");
        Box::new(
            Diag::global("E0522", text)
                .note(format!("it was built without a C compiler for {name}"))
                .help(format!(
                    "write a `.o` or `.tar`, or build `tec` with a cross compiler in `CC_{name}`"
                )),
        )
    })
}

/// Returns the runtime's object file for a CPU family and a system, if this `tec` has one.
pub fn runtime_object(arch: Arch, os: Os) -> Option<&'static [u8]> {
    runtimes::object(&runtime_name(arch, os))
}

/// The name of a runtime in `src/runtime/flags.in`.
fn runtime_name(arch: Arch, os: Os) -> String {
    match os {
        Os::Linux => arch.name().to_string(),
        os => format!("{}_{}", arch.name(), os.name()),
    }
}

/// Links the entries of a module for GPUs, which are compiled for this machine, with their runtime.
pub fn link_launchers(object: Vec<u8>) -> Vec<u8> {
    let arch = Target::host_baseline().arch;
    match wild::link(arch, object, launcher_runtime()) {
        Ok(bytes) => bytes,
        Err(error) => bug!("linking failed: {error:?}"),
    }
}

/// Returns the runtime's object file with the functions for GPUs; it works for modules for the CPU
/// too.
pub fn launcher_runtime() -> &'static [u8] {
    runtimes::cuda_object()
}

//! Modules: linking, archives, manifest, header, reading and loading. Only this folder and `cli`
//! write files.
//!
//! [`build_module`] turns lowered kernels into the bytes of a module and its side files, and
//! [`write::write_files`] writes them.

pub mod archive;
pub mod depfile;
pub mod extent;
pub mod gpu;
pub mod header;
pub mod input;
pub mod link;
pub mod load;
pub mod manifest;
pub mod params;
pub mod read;
pub mod static_library;
#[cfg(feature = "link")]
mod wild;
pub mod write;

use crate::codegen::ptx::PtxModule;
use crate::codegen::{Code, ObjectOptions, Variant, compile_launchers, compile_variants};
use crate::diag::{Diag, Result};
use crate::ir::cost::Work;
use crate::ir::{Kernel, Param, PrepackRole};
use crate::target::{Os, Target};
use manifest::Manifest;
use std::path::Path;

/// The facts about a module that its lowered kernels do not hold.
#[derive(Clone, Debug)]
pub struct BuildInfo {
    /// The module's name: [`module_name`] of the output, or `--module`.
    pub module: String,
    /// The target.
    pub target: Target,
    /// `fast` or `off`.
    pub fp_contract: String,
    /// `--opt`.
    pub opt: u8,
    /// Name and text of every source file; embedded ones as `lib/NAME.te`.
    pub sources: Vec<(String, String)>,
    /// The kernels, in order.
    pub kernels: Vec<KernelInfo>,
}

/// The facts for the manifest that a lowered kernel does not hold.
#[derive(Clone, Debug)]
pub struct KernelInfo {
    /// Compile-time parameters with their values as text.
    pub parameters: Vec<(String, String)>,
    /// `default`, or the schedule's text.
    pub schedule: String,
    /// Whether the compiler wrote the schedule.
    pub automatic: bool,
    /// The operations and bytes of a call, counted before `expand_math`.
    pub work: Work,
    /// Its role, if prepacking made it.
    pub prepack_role: Option<PrepackRole>,
}

/// The form of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModuleKind {
    /// `.so`: complete, loaded by the host.
    SharedObject,
    /// `.tar`: object, runtime, header, manifest.
    Archive,
    /// `.a`: object and runtime, to be linked into a program.
    StaticLibrary,
    /// `.o`: to be linked with `tec_runtime.o`.
    Object,
    /// An object with the `_dl` entries only, under names of [`linked_prefix`], for programs that
    /// call it through generated bindings. Other names would clash between crates, and with the C
    /// library.
    Linked,
    /// `.s`: an assembly listing, to be read.
    Listing,
    /// `.ptx`: the text for GPUs.
    Ptx,
}

/// A module with its manifest and header.
#[derive(Clone, Debug)]
pub struct BuiltModule {
    /// The contents of the module's file.
    pub bytes: Vec<u8>,
    /// The manifest as JSON.
    pub manifest: String,
    /// The header for C and C++.
    pub header: String,
}

/// Compiles lowered kernels and networks (after `expand_math`) to a module; `info.kernels` is in
/// the order of [`Code::entries`].
pub fn build_module<'a>(
    code: impl Into<Code<'a>>,
    info: &BuildInfo,
    kind: ModuleKind,
) -> Result<BuiltModule> {
    build_variants(&[ModuleVariant { code: code.into(), info }], kind)
}

/// The kernels and networks of a module for one of its targets.
#[derive(Clone, Copy)]
pub struct ModuleVariant<'a> {
    /// Lowered for the target.
    pub code: Code<'a>,
    /// Equal in all variants, but for the target and the facts about kernels.
    pub info: &'a BuildInfo,
}

/// Like [`build_module`], for several CPUs: an entry calls the first variant that the CPU can run.
/// The most capable variant is first. All have the same functions.
pub fn build_variants(variants: &[ModuleVariant<'_>], kind: ModuleKind) -> Result<BuiltModule> {
    let ModuleVariant { code, info } = *variants.last().expect("a module has a variant");
    check_module_name(&info.module)?;
    variants.iter().try_for_each(|other| check_functions(code, info, other))?;
    let manifest = Manifest::of_variants(variants).to_json();
    let header = header::make_header(code, info, variants.len() > 1);
    let options = ObjectOptions {
        module: info.module.clone(),
        symbol_prefix: (kind == ModuleKind::Linked).then(|| linked_prefix(&info.module)),
        manifest: manifest.clone(),
        listing: kind == ModuleKind::Listing,
        opt: info.opt,
        sized: packs(code, info),
    };
    if kind == ModuleKind::Ptx {
        return Err(wrong_form("ptx", &info.target, "end it in `.so`, `.a`, `.tar`, `.o` or `.s`"));
    }
    if kind == ModuleKind::SharedObject && info.target.os != Os::HOST {
        let help = match info.target.os {
            Os::Windows => "end it in `.a`, and link it into a program or a DLL",
            _ => "end it in `.a`, and link it into a program or a `.dylib`",
        };
        return Err(wrong_form("so", &info.target, help));
    }
    let each = variants.iter();
    let each = each.map(|one| Variant { code: one.code, target: &one.info.target });
    let object = compile_variants(&each.collect::<Vec<_>>(), &options)?;
    check_object_size(object.bytes.len() as u64, &info.target)?;
    let bytes = match kind {
        ModuleKind::SharedObject => link::link_module(object.bytes, info.target.arch)?,
        ModuleKind::Archive => {
            archive::make_archive(&info.module, &object.bytes, &header, &manifest, &info.target)
        }
        ModuleKind::StaticLibrary => {
            let runtime = link::required_runtime(info.target.arch, info.target.os)?;
            static_library::with_runtime(&info.module, object.bytes, runtime)
        }
        ModuleKind::Object | ModuleKind::Linked => object.bytes,
        ModuleKind::Listing => object.listing.expect("a listing was asked for").into_bytes(),
        ModuleKind::Ptx => unreachable!("refused above"),
    };
    Ok(BuiltModule { bytes, manifest, header })
}

/// Requires that an object has a size that its format supports: positions in COFF and Mach-O have
/// 32 bits.
fn check_object_size(bytes: u64, target: &Target) -> Result<()> {
    if target.os == Os::Linux || bytes < 1 << 32 {
        return Ok(());
    }
    let gib = bytes as f64 / f64::from(1 << 30);
    let system = target.os.name();
    let text = format!("the module has {gib:.1} GiB, more than an object for {system} can have");
    let help = "build several modules of less than 4 GiB, or pass weights as arguments";
    Err(Box::new(Diag::global("E0404", text).help(help)))
}

/// Requires that a variant has the functions of another one, with the same parameters. Only packed
/// tensors may have other shapes.
fn check_functions(code: Code<'_>, info: &BuildInfo, other: &ModuleVariant<'_>) -> Result<()> {
    let params = |kernel: &Kernel| -> Vec<(String, String)> {
        let kind = |param: &Param| match param {
            Param::Tensor { buffer, role, .. } => format!("{} {role:?}", buffer.declared_dtype()),
            Param::Scalar { dtype, .. } => dtype.to_string(),
            Param::Runtime { source, .. } => format!("{source:?}"),
        };
        kernel.params.iter().map(|param| (param.name().to_string(), kind(param))).collect()
    };
    let text_of = |code: Code<'_>| -> Vec<_> {
        code.entries().map(|kernel| (kernel.name.clone(), params(kernel))).collect()
    };
    let (these, others) = (text_of(code), text_of(other.code));
    if these == others {
        return Ok(());
    }
    let differs = |(this, other): &(&_, &_)| this != other;
    let found =
        these.iter().zip(&others).find(differs).map(|((name, _), _)| format!(" (`{name}`)"));
    let (a, b) = (&other.info.target, &info.target);
    let text = format!(
        "the functions for {a} and {b} differ{}: their schedules pack other inputs",
        found.unwrap_or_default()
    );
    let help = "give one schedule for both, such as `for x86`, or build one module for each target";
    Err(Box::new(Diag::global("E0406", text).help(help)))
}

/// Returns the names of the kernels that pack an input.
fn packs(code: Code<'_>, info: &BuildInfo) -> Vec<String> {
    let packs = code.entries().zip(&info.kernels);
    let packs =
        packs.filter(|(_, info)| matches!(info.prepack_role, Some(PrepackRole::Pack { .. })));
    packs.map(|(kernel, _)| kernel.name.clone()).collect()
}

/// Builds a module of kernels for GPUs, whose code is in `ptx`.
pub fn build_gpu_module(
    kernels: &[Kernel],
    ptx: &PtxModule,
    info: &BuildInfo,
    kind: ModuleKind,
) -> Result<BuiltModule> {
    check_module_name(&info.module)?;
    let described = Manifest::new(kernels.into(), Some(ptx), info);
    let manifest = described.to_json();
    let header = header::make_header(kernels.into(), info, false);
    let object = || {
        let (module, manifest) = (info.module.clone(), manifest.clone());
        let options = ObjectOptions { module, manifest, opt: info.opt, ..Default::default() };
        compile_launchers(kernels, ptx, &info.target, &options)
    };
    let bytes = match kind {
        ModuleKind::Ptx => (ptx.text.clone() + &described.to_comment()).into_bytes(),
        ModuleKind::Archive => {
            let object = object()?.bytes;
            archive::make_ptx_archive(&info.module, &ptx.text, &object, &header, &manifest)
        }
        ModuleKind::SharedObject => link::link_launchers(object()?.bytes),
        ModuleKind::StaticLibrary => {
            let runtime = link::launcher_runtime();
            static_library::with_runtime(&info.module, object()?.bytes, runtime)
        }
        ModuleKind::Object | ModuleKind::Linked => {
            return Err(wrong_form("o", &info.target, "end it in `.ptx`, `.a`, `.tar` or `.so`"));
        }
        ModuleKind::Listing => {
            return Err(wrong_form("s", &info.target, "PTX is a text: end it in `.ptx`"));
        }
    };
    Ok(BuiltModule { bytes, manifest, header })
}

fn wrong_form(extension: &str, target: &Target, help: &str) -> Box<Diag> {
    let text = format!("code for {target} cannot be a `.{extension}` file");
    Box::new(Diag::global("E0528", text).help(help))
}

impl ModuleKind {
    /// Returns the form that a path's extension selects.
    pub fn of_path(path: &Path) -> Result<ModuleKind> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let help = match extension {
            Some("dylib") => "end it in `.a`, and link that into the `.dylib`",
            Some("dll") => "end it in `.a`, and link that into the DLL",
            _ => "end it in `.so`, `.a`, `.tar`, `.o`, `.s` or `.ptx`",
        };
        match extension {
            Some("so") => Ok(ModuleKind::SharedObject),
            Some("a") => Ok(ModuleKind::StaticLibrary),
            Some("tar") => Ok(ModuleKind::Archive),
            Some("o") => Ok(ModuleKind::Object),
            Some("s") => Ok(ModuleKind::Listing),
            Some("ptx") => Ok(ModuleKind::Ptx),
            _ => Err(Box::new(
                Diag::global(
                    "E0526",
                    format!("`{}` does not have the extension of a module", path.display()),
                )
                .help(help),
            )),
        }
    }
}

/// Returns the default module name for an output: its stem, with `_` for characters that C does not
/// allow.
pub fn module_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = stem.chars().map(allowed).collect();
    let fits = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name != "tec";
    if fits { name } else { format!("m{name}") }
}

/// Returns the beginning of the symbols of a module of the kind [`ModuleKind::Linked`].
pub fn linked_prefix(module: &str) -> String {
    format!("tec.{module}.")
}

/// Requires that a module's name can begin a C name.
pub fn check_module_name(name: &str) -> Result<()> {
    let fits = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if fits && name != "tec" {
        return Ok(());
    }
    Err(Box::new(
        Diag::global("E0527", format!("`{name}` cannot be the name of a module"))
            .note("`NAME_last_error` and other C functions are named after it")
            .help("use letters, digits and `_`, a letter first, and not `tec`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_other_systems_have_less_than_4_gib() {
        let check = |bytes, target| check_object_size(bytes, &Target::parse(target).unwrap());
        assert!(check(5 << 30, "aarch64").is_ok());
        assert!(check((1 << 32) - 1, "aarch64-macos").is_ok());
        let error = check(5 << 30, "aarch64-macos").unwrap_err();
        assert_eq!(error.code, "E0404");
        assert!(error.message.contains("5.0 GiB"), "{}", error.message);
    }
}

//! The Cranelift ISAs of a target: one for its kernels, and the baseline of its family for the
//! entry points, which run before the CPU's features are known.

use crate::target::{Arch, Os, Target};
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};

/// The ISA that kernels are compiled for.
pub(super) fn kernel_isa(target: &Target, opt: u8) -> OwnedTargetIsa {
    make_isa(target, &target.features, opt)
}

/// The ISA of the baseline of a target's family, which every supported CPU can run.
pub(in crate::codegen) fn baseline_isa(target: &Target, opt: u8) -> OwnedTargetIsa {
    make_isa(target, &Target::baseline(target.arch).features, opt)
}

fn make_isa(target: &Target, features: &[&str], opt: u8) -> OwnedTargetIsa {
    let is = |holds: bool| if holds { "true" } else { "false" };
    // COFF has no table of addresses like the GOT; code that is not `pic` addresses the symbols of
    // its module relative to itself, so it can lie anywhere, too.
    let has_got = is(target.os != Os::Windows);
    // The linkers and unwinders of Windows and macOS expect tables for every function.
    let has_unwind = is(target.os != Os::Linux);
    // Windows commits the pages of a stack one after the other.
    let is_probed = is(target.os == Os::Windows);
    let mut shared = settings::builder();
    let verifier = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        ("opt_level", if opt == 0 { "none" } else { "speed" }),
        ("is_pic", has_got),
        ("unwind_info", has_unwind),
        ("enable_probestack", is_probed),
        ("probestack_strategy", "inline"),
        ("enable_verifier", verifier),
    ] {
        shared.set(name, value).expect("a setting of this Cranelift");
    }
    let arch = match target.arch {
        Arch::X86_64 => "x86_64",
        Arch::Aarch64 => "aarch64",
        Arch::Riscv64 => "riscv64gc",
        Arch::Nvptx => crate::bug!("Cranelift makes no code for GPUs"),
    };
    let system = match target.os {
        Os::Linux => "unknown-linux-gnu",
        Os::Windows => "pc-windows-msvc",
        // The first version for Apple's own processors.
        Os::MacOs => "apple-macosx11.0.0",
    };
    let triple = format!("{arch}-{system}").parse().expect("a triple of target-lexicon");
    let mut builder = isa::lookup(triple).expect("every Arch is compiled in");
    for flag in features.iter().flat_map(|feature| cranelift_flags(feature)) {
        builder.enable(flag).expect("a flag of this ISA");
    }
    builder.finish(settings::Flags::new(shared)).expect("consistent settings")
}

/// Cranelift's flags for one of our features, with those of the instruction sets that it implies.
/// Nothing else is enabled, because a module checks exactly the features of its target.
fn cranelift_flags(feature: &str) -> &'static [&'static str] {
    match feature {
        "sse4.1" => &["has_sse3", "has_ssse3", "has_sse41"],
        "avx" => &["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_avx"],
        "avx2" => &["has_avx2"],
        "fma" => &["has_fma"],
        "avx512f" => &["has_avx512f"],
        "avx512dq" => &["has_avx512dq"],
        "avx512vl" => &["has_avx512vl"],
        _ => &[],
    }
}

//! Compiles the runtime of `tec` for the program's target, once for all kernels of the program.

use std::env;

include!("runtime/flags.in");

fn main() {
    println!("cargo::rerun-if-changed=runtime");
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let (arch, os) = (variable("CARGO_CFG_TARGET_ARCH"), variable("CARGO_CFG_TARGET_OS"));
    let known = ARCHES.iter().find(|(name, ..)| *name == arch);
    let Some((_, _, flags)) = known.filter(|_| os == "linux") else {
        println!(
            "cargo::error=kernels of tec run on Linux, on x86_64, aarch64 and riscv64; the target \
             is {}",
            variable("TARGET")
        );
        return;
    };
    let mut build = cc::Build::new();
    build.no_default_flags(true).file("runtime/tec_runtime.c").define("TEC_STATIC", None);
    build.flags(FLAGS).flags(*flags).compile("tec_runtime");
}

// How the runtime is compiled: included by the build scripts of `tec` and of `crates/tec-rt`.

/// The CPU families with Debian's cross compiler and the options of each: no calls into libgcc, no
/// linker relaxation.
pub const ARCHES: [(&str, &str, &[&str]); 3] = [
    ("x86_64", "x86_64-linux-gnu-gcc", &["-fcf-protection=none", "-march=x86-64"]),
    ("aarch64", "aarch64-linux-gnu-gcc", &["-march=armv8-a", "-mno-outline-atomics"]),
    ("riscv64", "riscv64-linux-gnu-gcc", &["-march=rv64gc", "-mabi=lp64d", "-mno-relax"]),
];

/// Options for all families: freestanding, reproducible code without calls of helpers.
pub const FLAGS: [&str; 20] = [
    "-std=gnu11",
    "-O2",
    "-g0",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-plt",
    "-fno-tree-loop-distribute-patterns",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-ident",
    "-U_FORTIFY_SOURCE",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",
    "-Wno-unused-function",
];

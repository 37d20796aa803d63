//! Static libraries for Windows: `tests/c/systems.c` calls them under Wine and checks registers and
//! the unwinding of the stack; its output is that of the same program on Linux.

use crate::support::say_skipped;
use crate::support::systems::{refused_in, scratch, succeeds, tec_in, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tec::module::static_library::members;

const GCC: &str = "x86_64-w64-mingw32-gcc";

/// Run-time sizes, arguments on the stack and checks that fail.
const ROWS: &str = "
kernel take_rows(n: var, m: var, k: var) {
    input table: float32[n, m]
    input at: int32[k]
    input scale: float32
    input shift: int64
    output y[i: k, j: m] = scale * exp(table[at[i], j]) + (shift as float32)
}
schedule take_rows for cpu {
    y.parallel(i)
}
kernel spread(n: var, m: var) {
    input x: float64[n]
    assume n == 4 * m
    compute t[i: n] = 2 * x[i]
    output y[i: m] = t[i] + t[i + m] + t[i + 2 * m] + t[i + 3 * m]
}
schedule spread for cpu {
    y.parallel(i)
}
kernel many(n: var) {
    input x: int64[n]
    input a: int8
    input b: int16
    input c: int32
    input d: int64
    input e: uint8
    input f: int8
    input g: int16
    input h: int8
    input i8: int16
    input j: int8
    input k: int32
    input l: uint8
    input m: float32
    compute s[i: n] = (a as int64) + 2 * (b as int64) + 3 * (c as int64) + 4 * d + 5 * (e as int64)
        + 6 * (f as int64) + 7 * (g as int64) + 8 * (h as int64) + 9 * (i8 as int64)
    compute t[i: n] = 10 * (j as int64) + 11 * (k as int64) + 12 * (l as int64) + (m as int64)
    output y[i: n] = x[i] + s[i] + t[i]
}
";
/// A module for several CPUs; `windows.h` defines macros of these names.
const SEVERAL: &str = "
kernel cubes(n: var) {
    input small: float32[n]
    output interface[i: n] = small[i] * small[i] * small[i] + 1
}
";
/// Kernels of few instructions; the frame of the second one is larger than a page.
const SMALL: &str = "
kernel small(n = 24) {
    input A: float32[n, n]
    input B: float32[n, n]
    reduce k: 0..n
    compute P[i: n, j: n] = sum(A[i, k] * B[k, j], axis=k)
    output C[i: n, j: n] = tanh(P[i, j]) + exp(P[j, i])
}
kernel framed(n = 2, m = 1016) {
    input A: float32[n, m]
    compute P[i: n, j: m] = A[i, j] * A[i, j]
    output C[i: n, j: m] = P[i, m - 1 - j] + 1
}
schedule framed for cpu {
    let jo, jl = C.split(j, factor=8)
    C.vectorize(jl)
    P.compute_at(C, i)
    let po, pl = P.split(j, factor=8)
    P.vectorize(pl)
}
";

/// The sources above with their files, also for `tests/macos.rs`.
pub const SOURCES: [(&str, &str); 3] =
    [("rows.te", ROWS), ("several.te", SEVERAL), ("small.te", SMALL)];

/// The modules: name, source, targets, other options.
const MODULES: [(&str, &str, &str, &[&str]); 5] = [
    ("product", "matmul.te", "x86-avx2", &["--schedule", "fast", "-D", "n=320"]),
    ("soft", "softmax.te", "x86-avx2", &["--schedule", "fast", "-D", "m=64", "-D", "n=512"]),
    ("rows", "rows.te", "x86-64", &[]),
    ("several", "several.te", "x86-avx512,x86-avx2,x86-64", &[]),
    ("small", "small.te", "x86-avx2", &[]),
];

/// Builds the modules into a directory; `suffix` follows the name of each target.
fn build(dir: &Path, suffix: &str, extension: &str) {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    for (name, text) in SOURCES {
        fs::write(dir.join(name), text).expect("a file is written");
    }
    for (name, source, targets, options) in MODULES {
        let own = dir.join(source);
        let source = if own.exists() { own } else { samples.join(source) };
        let targets: Vec<String> =
            targets.split(',').map(|target| format!("{target}{suffix}")).collect();
        let output = format!("{name}.{extension}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
        command.arg("build").arg(source).args(["-o", &output, "--target", &targets.join(",")]);
        succeeds(command.args(options).current_dir(dir));
    }
}

/// Compiles and links `systems.c` with static libraries, or with other files in their place.
fn link(dir: &Path, compiler: &str, program: &str, with: &[&str]) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let libraries = MODULES.map(|(name, ..)| format!("{name}.a"));
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I."]).arg("-I").arg(&tests);
    command.arg(tests.join("systems.c")).args(["-o", program]);
    match with {
        [] => command.args(libraries),
        _ => command.args(with),
    };
    succeeds(command.args(["-lm"]).current_dir(dir));
}

/// Wine, if it and the compiler are installed; else prints that the tests are skipped.
fn wine() -> Option<PathBuf> {
    let there = |program: &Path| Command::new(program).arg("--version").output().is_ok();
    if !there(Path::new(GCC)) {
        say_skipped(&format!("programs for Windows: {GCC} is not installed"));
        return None;
    }
    // Debian's package `wine64` alone puts nothing into the path.
    let names = ["wine64", "wine", "/usr/lib/wine/wine64"].map(PathBuf::from);
    let found = names.into_iter().find(|name| there(name));
    if found.is_none() {
        say_skipped("programs for Windows: wine is not installed");
    }
    found
}

/// Runs a program for Windows. Returns its standard output and its messages.
fn run(wine: &Path, dir: &Path, program: &str) -> (String, String) {
    let mut command = Command::new(wine);
    command.arg(program).current_dir(dir).env("WINEDEBUG", "-all").env("TEC_NUM_THREADS", "3");
    if std::env::var_os("WINEPREFIX").is_none() {
        command.env("WINEPREFIX", Path::new(env!("CARGO_TARGET_TMPDIR")).join("wine"));
    }
    let output = succeeds(&mut command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\r', "");
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn programs_for_windows_compute_the_same_bits() {
    let Some(wine) = wine() else { return };
    let (here, there) = (scratch(), scratch());
    build(here.path(), "", "a");
    link(here.path(), "cc", "program", &[]);
    let mut native = Command::new("./program");
    let native = succeeds(native.env("TEC_NUM_THREADS", "3").current_dir(here.path()));
    let expected = String::from_utf8(native.stdout).expect("UTF-8");
    build(there.path(), "-windows", "a");
    link(there.path(), GCC, "program.exe", &[]);
    let (found, messages) = run(&wine, there.path(), "program.exe");
    assert_eq!(found, expected, "{messages}");
    assert!(expected.contains("matmul ") && expected.contains("(in `take_rows("), "{expected}");
    eprint!("{messages}");
}

#[test]
fn objects_for_windows_are_linked_with_one_runtime() {
    let Some(wine) = wine() else { return };
    let dir = scratch();
    build(dir.path(), "-windows", "tar");
    for (name, ..) in MODULES {
        let mut tar = Command::new("tar");
        succeeds(tar.args(["xf", &format!("{name}.tar")]).current_dir(dir.path()));
    }
    let objects = MODULES.map(|(name, ..)| format!("{name}.o"));
    let mut files: Vec<&str> = objects.iter().map(String::as_str).collect();
    files.push("tec_runtime.o");
    link(dir.path(), GCC, "program.exe", &files);
    let (found, messages) = run(&wine, dir.path(), "program.exe");
    assert!(found.contains("matmul "), "{found}{messages}");
    // The source in the archive is that of the object. Wine does not unwind from tail calls.
    let mut compiler = Command::new(GCC);
    compiler.args(["-O2", "-ffp-contract=off", "-fno-optimize-sibling-calls"]);
    compiler.args(["-c", "runtime/tec_runtime.c"]);
    succeeds(compiler.args(["-o", "own.o"]).current_dir(dir.path()));
    *files.last_mut().expect("the runtime") = "own.o";
    link(dir.path(), GCC, "program.exe", &files);
    assert_eq!(run(&wine, dir.path(), "program.exe").0, found);
}

#[test]
fn modules_for_windows_say_what_they_are() {
    let dir = scratch();
    fs::write(dir.path().join("m.te"), SEVERAL).expect("a file is written");
    let tec = |args: &[&str]| tec_in(dir.path(), args);
    let refused = |args: &[&str], parts: &[&str]| refused_in(dir.path(), args, parts);
    let windows = ["--target", "x86-avx2-windows"];
    for output in ["m.o", "m.s", "m.tar"] {
        let built = tec(&[&["build", "m.te", "-o", output][..], &windows].concat());
        assert!(built.status.success(), "{}", text(&built));
    }
    for module in ["m.o", "m.tar"] {
        assert!(text(&tec(&["inspect", module])).contains("target x86-avx2-windows (x86_64)"));
    }
    let listing = fs::read_to_string(dir.path().join("m.s")).expect("a listing");
    assert!(listing.contains("cubes.simd.0:\n") && listing.contains(" FMA, "), "{listing}");
    let first = fs::read(dir.path().join("m.o")).expect("an object");
    assert!(first.starts_with(b"\x64\x86"), "an object of x86-64");
    refused(
        &[&["build", "m.te", "-o", "m.so"][..], &windows].concat(),
        &["E0528", "end it in `.a`"],
    );
    refused(&[&["run", "m.te", "--var", "n=3"][..], &windows].concat(), &["E0545", "-o FILE.a"]);
    refused(&[&["bench", "m.te", "--var", "n=3"][..], &windows].concat(), &["E0545", "-o FILE.a"]);
    refused(&["build", "m.te", "--target", "aarch64-windows"], &["E0401", "x86-avx2-windows"]);
    let mixed = ["build", "m.te", "--target", "x86-avx2-windows,x86-64"];
    refused(&mixed, &["E0406", "for windows, `x86-64` for linux"]);
    let library = tec(&[&["build", "m.te", "-o", "m.a"][..], &windows].concat());
    if !library.status.success() {
        return assert!(text(&library).contains("CC_x86_64_windows"), "{}", text(&library));
    }
    let bytes = fs::read(dir.path().join("m.a")).expect("a library");
    assert_eq!(members(&bytes).len(), 2);
    let again = tec(&[&["build", "m.te", "-o", "m.a"][..], &windows].concat());
    assert!(again.status.success());
    assert_eq!(fs::read(dir.path().join("m.a")).expect("a library"), bytes, "two builds");
}

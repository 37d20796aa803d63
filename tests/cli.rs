//! The command line as a user sees it: exit statuses, messages, and which files are written.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MATMUL: &str = "samples/matmul.te";

fn tec(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tec")).args(args).output().expect("tec starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let output = tec(args);
    assert_eq!(output.status.code(), Some(0), "tec {args:?}\n{}", stderr(&output));
    stdout(&output)
}

#[track_caller]
fn fails(args: &[&str], status: i32, text: &str) -> String {
    let output = tec(args);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "tec {args:?}\n{message}");
    assert!(message.contains(text), "tec {args:?}: no `{text}` in\n{message}");
    message
}

/// Returns a directory of this test's own, removed at the end.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().expect("UTF-8").to_string()
}

fn write(directory: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    std::fs::write(directory.join(name), text).expect("a scratch file");
    path(directory, name)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_wrong_command_line_exits_with_status_2() {
    fails(&[], 2, "Usage");
    fails(&["frobnicate"], 2, "unrecognized subcommand");
    fails(&["build", MATMUL, "-D", "n"], 2, "has no value");
    fails(&["lower", MATMUL, "--dump", "nonsense"], 2, "unknown pass `nonsense`");
    fails(&["build", MATMUL, "--opt", "4"], 2, "--opt");
}

#[test]
fn wrong_names_exit_with_status_1_and_a_code() {
    fails(&["check", "no-such-file.te"], 1, "no-such-file.te");
    fails(&["check", MATMUL, "--target", "x86-avx51"], 1, "E0401");
    fails(&["check", MATMUL, "--target", "nvptx-sm_81"], 1, "E0401");
    fails(&["check", MATMUL, "--kernel", "matmull"], 1, "E0218");
    fails(&["check", MATMUL, "--target", "x86-avx2+vnni"], 1, "E0402");
    fails(&["check", MATMUL, "--target", "x86-avx2", "--cpu", "zen"], 1, "E0407");
    fails(&["check", MATMUL, "-D", "nn=3"], 1, "nn");
    fails(&["check", MATMUL, "-D", "n=three"], 1, "three");
    fails(&["build", MATMUL, "--schedule", "fastest"], 1, "E0303");
    fails(&["explain-error", "E9999"], 1, "error[E0541]: ");
    fails(&["explain-error", "code"], 1, "error[E0541]: unknown error code `code`");
    fails(&["bench", MATMUL, "--target", "nvptx-sm_80", "--roofline"], 1, "E0546");
    fails(&["check", MATMUL, "--target", "x86-64", "--fast-math"], 1, "E0405");
    fails(&["build", MATMUL, "--target", "nvptx-sm_80", "-o", "m.s"], 1, "E0528");
    fails(&["build", MATMUL, "--target", "nvptx-sm_80", "-o", "m.o"], 1, "E0528");
    fails(&["build", MATMUL, "--target", "x86-64", "-o", "m.ptx"], 1, "E0528");
}

/// Errors in schedules that are not used are reported too.
#[test]
fn schedules_that_are_not_used_are_checked() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| scratch.path().join(name).to_str().expect("UTF-8").to_string();
    let kernel = "kernel scale(n = 64) {
    input A: float32[n]
    output C[i: n] = A[i] * 2.0
}
";
    let (file, out) = (at("scale.te"), at("scale.so"));
    let write = |schedule: &str| {
        std::fs::write(&file, format!("{kernel}{schedule}\n")).expect("it can be written");
    };
    for (schedule, code) in [
        ("schedule scale.other for x86-axv512 { C.parallel(i) }", "E0401"),
        ("schedule scale.other { C.paralel(i) }", "E0305"),
        ("schedule scale for nvptx { C.bnid(i, blockIdx.x) }", "E0305"),
        ("schedule scale for nvptx { if 1 > 2 { C.bind(i) } }", "E0308"),
    ] {
        write(schedule);
        fails(&["build", &file, "-o", &out, "--target", "x86-64"], 1, code);
        fails(&["lower", &file, "--target", "x86-64"], 1, code);
        fails(&["check", &file, "--target", "x86-64"], 1, code);
    }
    // Names of axes depend on the kernel's parameters, so `check` reports them.
    write("schedule scale for nvptx { C.bind(x, blockIdx.x) }");
    succeeds(&["lower", &file, "--target", "x86-64"]);
    fails(&["check", &file, "--target", "x86-64"], 1, "E0307");
}

#[test]
fn kernels_for_gpus_are_emulated() {
    const BATCH_NORM: &str = "samples/batch_norm.te";
    let gpu = ["--target", "nvptx-sm_80", "--kernel", "batch_norm"];
    let run = |schedule: &str| {
        let args =
            [&["run", BATCH_NORM, "--emulate", "--verify", "--schedule", schedule], &gpu[..]];
        succeeds(&args.concat())
    };
    let text = run("batch_norm.optimized");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Y: float32[32, 28, 28]  min "), "{text}");
    assert_eq!(lines[1], "Y: bit-identical to the interpreter");
    assert_eq!(lines[2], "no findings");
    assert!(lines[3].starts_with("blocks 25, thread instructions "), "{text}");
    assert!(lines[4].starts_with("global memory: "), "{text}");
    // Each thread reads a row, so accesses of neighbouring threads are not coalesced.
    let sectors = |text: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with("global memory")).expect("a line");
        line.split(' ').nth(2).and_then(|number| number.parse().ok()).expect("a number")
    };
    assert!(sectors(&run("batch_norm.bound")) > 2 * sectors(&text));

    // The terms are in another order than in the source; the interpreter uses the same order.
    let args = ["run", "samples/conv.te", "--emulate", "--verify", "--schedule", "vthread"];
    let text = succeeds(&[&args[..], &gpu[..2]].concat());
    assert!(text.contains("Y: bit-identical to the interpreter, terms in the schedule's order\n"));

    let message = fails(&["run", MATMUL, "--emulate"], 2, "--emulate is for GPUs");
    assert!(message.contains("`--target nvptx-sm_80`"), "{message}");
    fails(&[&["run", "m.so", "--emulate"], &gpu[..2]].concat(), 2, "needs the `.te` file");
    let large = ["run", "samples/vector_add.te", "--emulate", "-D", "n=100000000"];
    fails(&[&large[..], &gpu[..2], &["--schedule", "parallel"]].concat(), 1, "E0549");
}

#[test]
fn schedules_are_chosen_set_and_shown() {
    let tree = succeeds(&["lower", MATMUL, "--schedule-tree", "--schedule", "cached_block"]);
    assert!(tree.starts_with("C: output float32[1024, 1024]\n└─ parallel xy 1024\n"), "{tree}");
    let args = ["lower", MATMUL, "--schedule-tree", "--schedule", "block"];
    let tree = succeeds(&[&args[..], &["-D", "matmul.block.tx=64"]].concat());
    assert!(tree.contains("for xi 64"), "{tree}");
    let message = fails(&[&args[..], &["-D", "matmul.block.tz=64"]].concat(), 1, "block.tz");
    assert!(message.contains("did you mean `block.tx`?"), "{message}");

    // The automatic schedule is valid text of the language, and the same in every run.
    let args = ["lower", MATMUL, "--schedule", "auto", "--schedule-tree"];
    let text = succeeds(&args);
    assert!(text.starts_with("schedule matmul for ") && text.contains("\n# C: output"), "{text}");
    assert_eq!(text, succeeds(&args));

    let args = ["run", MATMUL, "--schedule", "cached_block", "-D", "n=96", "--threads", "3"];
    assert!(succeeds(&[&args[..], &["--verify"]].concat()).contains("bit-identical"));

    let dir = scratch();
    let module = path(dir.path(), "matmul.so");
    let set = ["-D", "matmul.block.tx=64", "-o", &module];
    succeeds(&[&["build", MATMUL, "--schedule", "block"][..], &set].concat());
    let told = succeeds(&["inspect", &module]);
    assert!(told.contains("C.fuse(xo, yo)"), "{told}");
    assert!(told.contains("  # -D matmul.block.tx=64\n"), "{told}");
    let text = "kernel one(n = 8) { input A: float32[n] output C[i: n] = A[i] * 2.0 }\n\
                kernel two(n = 8) { input A: float32[n] output C[i: n] = A[i] * 2.0 }\n\
                schedule one.fast { C.vectorize(i) }\n";
    let file = write(dir.path(), "two.te", text);
    let output = tec(&["lower", &file, "--schedule", "fast", "--target", "x86-avx2"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("note: kernel `two` has no schedule `fast`"));
}

/// If a directive accepts inputs, suggestions include inputs.
#[test]
fn similar_names_are_suggested() {
    let dir = scratch();
    let kernel = "kernel scale(n = 8) {\n    input image: float32[n]\n    \
                  input factor: float32\n    output result[i: n] = image[i] * factor\n}\n";
    let told = |statement: &str, note: &str, help: &str| {
        let text = format!("{kernel}schedule scale {{ {statement} }}\n");
        let file = write(dir.path(), "scale.te", text);
        let message = fails(&["check", &file], 1, "E0306");
        assert!(message.contains(note) && message.contains(help), "{message}");
    };
    let (both, image) = ("stages and inputs: result, image\n", "did you mean `image`?");
    told("result.prefetch(imag, i, 2)", both, image);
    told("let near = imag.cache_read(local)", both, image);
    told("imag.unroll(i)", "stages: result\n", "unknown stage `imag`");
    told("resul.unroll(i)", "stages: result\n", "did you mean `result`?");
    told("result.compute_at(imag, i)", "stages: result\n", "unknown stage `imag`");
}

/// A prefetch is an instruction in a vectorized nest of a wide target; elsewhere a note says that
/// it is dropped.
#[test]
fn dropped_prefetches_are_noted() {
    let dir = scratch();
    let text = "kernel one(n = 64) {\n    input A: float32[n, n]\n    \
                output C[i: n, j: n] = A[i, j] * 2.0\n}\n\
                schedule one.scalar { C.prefetch(A, i, 2) }\n\
                schedule one.vector { C.prefetch(A, i, 2) C.vectorize(j) }\n";
    let file = write(dir.path(), "one.te", text.replace("2) C", "2)\nC"));
    let out = path(dir.path(), "one.s");
    let build = |schedule: &str, target: &str| {
        let args = ["build", &file, "--schedule", schedule, "--target", target, "-o", &out];
        let output = tec(&args);
        assert!(output.status.success(), "{output:?}");
        (stderr(&output), std::fs::read_to_string(&out).expect("a listing"))
    };
    for (schedule, target, told) in [
        ("scalar", "x86-64", "x86-64 does not support prefetches; those of `one` are dropped"),
        ("vector", "aarch64", "aarch64 does not support prefetches; those of `one` are dropped"),
        ("scalar", "x86-avx2", "the others of `one` are dropped"),
    ] {
        let (message, listing) = build(schedule, target);
        assert!(message.contains(told), "{schedule} {target}: {message}");
        assert!(!listing.contains("prefetch"), "{schedule} {target}");
    }
    for target in ["x86-avx2", "x86-avx512"] {
        let (message, listing) = build("vector", target);
        assert!(!message.contains("dropped"), "{target}: {message}");
        assert!(listing.contains("        prefetcht0 "), "{target}:\n{listing}");
    }
}

/// Likewise for nontemporal stores.
#[test]
fn ordinary_stores_in_place_of_nontemporal_ones_are_noted() {
    let dir = scratch();
    let text = "kernel one(n = 64) {\n    input A: float32[n, n]\n    \
                output C[i: n, j: n] = A[i, j] * 2.0\n}\n\
                schedule one.scalar { C.store_nontemporal() }\n\
                schedule one.vector { C.store_nontemporal()\nC.vectorize(j) }\n\
                schedule one.bound { C.store_nontemporal()\nC.bind(i, blockIdx.x) }\n";
    let file = write(dir.path(), "one.te", text);
    let out = path(dir.path(), "one.s");
    for (schedule, target, told) in [
        (
            "scalar",
            "x86-64",
            "x86-64 does not support nontemporal stores; `one` uses ordinary stores",
        ),
        (
            "vector",
            "aarch64",
            "aarch64 does not support nontemporal stores; `one` uses ordinary stores",
        ),
        ("scalar", "x86-avx2", "elsewhere `one` uses ordinary stores"),
        ("bound", "nvptx-sm_80", "nvptx-sm_80 does not support nontemporal stores"),
        ("vector", "x86-avx2", ""),
        ("vector", "x86-avx512", ""),
    ] {
        let args = ["build", &file, "--schedule", schedule, "--target", target, "-o", &out];
        let args = if target.starts_with("nvptx") {
            let ptx = path(dir.path(), "one.ptx");
            let output = tec(&[&args[..7], &[&ptx[..]]].concat());
            assert!(output.status.success(), "{output:?}");
            assert!(stderr(&output).contains(told), "{output:?}");
            continue;
        } else {
            args
        };
        let output = tec(&args);
        assert!(output.status.success(), "{output:?}");
        let (message, listing) = (stderr(&output), std::fs::read_to_string(&out).expect("written"));
        assert!(
            message.contains(told) && message.contains("nontemporal") != told.is_empty(),
            "{message}"
        );
        assert_eq!(listing.contains("        vmovntps "), told.is_empty(), "{schedule} {target}");
    }
}

#[test]
fn extents_that_overflow_are_refused() {
    let dir = scratch();
    let product = "kernel f(n: var, m: var) {\n    input A: float32[n * m]\n    \
                   output B[i: n, j: m] = A[i * m + j]\n}\n";
    let file = write(dir.path(), "f.te", product);
    let large = ["--var", "n=4294967296", "--var", "m=4294967296"];
    fails(&[&["run", &file[..]][..], &large].concat(), 1, "an extent of `A` overflows");
    let copy = "kernel g(n: var, m: var, k: var) {\n    input A: float32[n, m, k]\n    \
                output B[i: n, j: m, l: k] = A[i, j, l]\n}\n";
    let file = write(dir.path(), "g.te", copy);
    let empty = ["--var", "n=1000000000000", "--var", "m=1000000000000", "--var", "k=0"];
    // The entry of the module accepts or refuses empty tensors.
    fails(&[&["run", &file[..]][..], &empty].concat(), 1, "error[E0525]: 64-bit overflow");
    let shifted = "kernel s(n: var, off: var) {\n    input A: float32[n]\n    \
                   output B[i: n] = A[clamp(off + i, 0, n - 1)]\n}\n";
    let file = write(dir.path(), "s.te", shifted);
    let far = ["--var", "n=10", "--var", "off=9223372036854775807"];
    let told = "error[E0525]: `off + i` does not fit 64 bits (in `s(";
    fails(&[&["run", &file[..]][..], &far].concat(), 1, told);
}

#[test]
fn wide_nests_are_explained() {
    let dir = scratch();
    let text = "kernel sums(n = 64) {\n    input A: float32[n]\n    \
                output C[i: n] = A[i] * 2.0\n}\nkernel halves(n = 64) {\n    \
                input A: float64[n]\n    input B: float64[n]\n    \
                output C[i: n] = A[i] as float16\n    output D[i: n] = A[i] + B[i]\n}\n\
                schedule sums {\n    C.vectorize(i)\n}\n\
                schedule halves {\n    for S in [C, D] {\n        S.vectorize(i)\n    }\n}\n";
    let file = write(dir.path(), "nests.te", text);
    let explain = |more: &[&str]| succeeds(&[&["lower", &file, "--explain-simd"], more].concat());
    assert_eq!(
        explain(&["--target", "x86-avx512"]),
        "# sums\n512 bits: C: C[ramp(0, 1, 64)] = …\n\
         # halves\n128 bits: C: C[ramp(0, 1, 64)] = …\n          \
         because there is no instruction that converts float64 to float16\n\
         512 bits: D: D[ramp(0, 1, 64)] = …\n\n\
         2 of 3 vectorized nests at 512 bits (66 %), the others by Cranelift at 128\n"
    );
    assert!(explain(&["--target", "x86-avx2"]).contains("2 of 3 vectorized nests at 256 bits"));
    for (args, text) in [
        (["--target", "x86-64"].as_slice(), "x86-64 has no vectors wider than 128 bits"),
        (&["--target", "aarch64"], "aarch64 has no vectors wider than 128 bits"),
        (&["--target", "x86-avx2", "--opt", "0"], "`--opt 0` Cranelift compiles all"),
        (&["--target", "x86-avx2", "--schedule", "default"], "# halves\nno vectorized nest\n"),
    ] {
        let told = explain(args);
        assert!(told.contains(text), "{args:?}: {told}");
    }
    fails(&["lower", &file, "--explain-simd", "--simple"], 2, "cannot be used with");
}

#[test]
fn check_prints_nothing_without_errors() {
    let samples = std::fs::read_dir("samples").expect("samples/");
    let mut args = vec!["check".to_string()];
    for entry in samples {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "te") {
            args.push(path.to_str().unwrap().to_string());
        }
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(succeeds(&args), "");
}

#[test]
fn check_continues_after_a_wrong_file() {
    let dir = scratch();
    let one = write(dir.path(), "one.te", "kernel k(n = 4) { output C[i: n] = A[i] }\n");
    let two = write(dir.path(), "two.te", "kernel k(n = 4) { output C[i: n] = B[i] }\n");
    let message = fails(&["check", &one, &two], 1, "`A`");
    assert!(message.contains("`B`"), "{message}");
}

#[test]
fn only_the_first_of_many_errors_are_shown() {
    let dir = scratch();
    let line = |i| format!("output C{i}[i: n] = B{i}[i]\n");
    let lines: String = (0..300).map(line).collect();
    let file = write(dir.path(), "many.te", format!("kernel k(n = 4) {{\n{lines}}}\n"));
    let message = fails(&["check", &file], 1, "300 errors, the first 100 shown");
    assert_eq!(message.matches("error[E0201]").count(), 100);
}

#[test]
fn invalid_utf8_is_refused_with_its_offset() {
    let dir = scratch();
    let file = write(dir.path(), "latin1.te", b"# caf\xe9\nkernel k() { }\n");
    fails(&["check", &file], 1, "UTF-8");
}

#[test]
fn kernels_that_cannot_be_built_are_reported_with_the_reason() {
    let dir = scratch();
    let text = "kernel scale(n) { input A: float32[n] output C[i: n] = A[i] * 2.0 }\n";
    let file = write(dir.path(), "scale.te", text);
    fails(&["build", &file], 1, "E0540");
    fails(&["build", &file, "--kernel", "scale"], 1, "E0219");
    let text = "kernel m_manifest(n = 4) { input A: float32[n] output C[i: n] = A[i] * 2.0 }\n";
    let file = write(dir.path(), "m.te", text);
    fails(&["build", &file], 1, "E0521");
    let text = "kernel odd(n: var) {\n    assume n % 2 == 1\n    input A: float32[n]\n    \
                output C[i: n] = A[i] * 2.0\n}\n";
    let file = write(dir.path(), "odd.te", text);
    fails(&["run", &file, "--var", "n=4"], 1, "E0525");
    let text = "kernel scale(n = 4) { input A: float32[n] output C[i: n] = A[i] * 2.0 }\n\
                schedule scale { C.paralel(i) }\n";
    let file = write(dir.path(), "scheduled.te", text);
    fails(&["build", &file], 1, "E0305");
}

#[test]
fn build_writes_module_manifest_and_header() {
    let dir = scratch();
    let out = path(dir.path(), "mm.so");
    succeeds(&["build", MATMUL, "-D", "n=64", "-o", &out]);
    assert_eq!(names(dir.path()), ["mm.h", "mm.json", "mm.so"]);
    let first = std::fs::read(&out).unwrap();
    assert!(first.len() < 36 * 1024, "{} bytes", first.len());
    succeeds(&["build", MATMUL, "-D", "n=64", "-o", &out]);
    assert!(first == std::fs::read(&out).unwrap(), "two builds differ");
    let manifest = std::fs::read_to_string(path(dir.path(), "mm.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    assert_eq!(manifest["kernels"][0]["name"], "matmul");
}

#[test]
fn build_writes_every_kind_of_output() {
    let dir = scratch();
    for name in ["mm.tar", "mm.o", "mm.s"] {
        let out = path(dir.path(), name);
        succeeds(&["build", MATMUL, "-D", "n=16", "--no-sidecars", "-o", &out]);
        let first = std::fs::read(&out).unwrap();
        assert!(!first.is_empty());
        succeeds(&["build", MATMUL, "-D", "n=16", "--no-sidecars", "-o", &out]);
        assert!(first == std::fs::read(&out).unwrap(), "two builds of {name} differ");
    }
    assert_eq!(names(dir.path()), ["mm.o", "mm.s", "mm.tar"]);
    fails(&["build", MATMUL, "-o", &path(dir.path(), "mm.bin")], 1, "end it in `.so`, `.a`");
    for (name, help) in [("mm.dll", "link that into the DLL"), ("mm.dylib", "into the `.dylib`")] {
        fails(&["build", MATMUL, "-o", &path(dir.path(), name)], 1, help);
    }
}

#[test]
fn other_targets_have_objects_and_archives() {
    let dir = scratch();
    for target in ["x86-64", "x86-avx2", "x86-avx512", "aarch64", "riscv64"] {
        for kind in ["o", "tar", "s"] {
            let out = path(dir.path(), &format!("{target}.{kind}"));
            succeeds(&["build", MATMUL, "--target", target, "--no-sidecars", "-o", &out]);
        }
    }
}

#[test]
fn a_failed_build_leaves_no_file() {
    let dir = scratch();
    let file = write(dir.path(), "bad.te", "kernel k(n = 4) { output C[i: n] = A[i] }\n");
    fails(&["build", &file], 1, "`A`");
    assert_eq!(names(dir.path()), ["bad.te"]);
    fails(&["build", MATMUL, "-o", &path(dir.path(), "missing/mm.so")], 1, "mm.so");
    let folder = dir.path().join("folder.so");
    std::fs::create_dir(&folder).unwrap();
    fails(&["build", MATMUL, "-o", folder.to_str().unwrap()], 1, "folder.so");
    assert_eq!(names(dir.path()), ["bad.te", "folder.so"]);
}

/// A limit on file sizes simulates a full disk: writes fail half-way.
#[test]
fn a_full_disk_is_reported_and_leaves_no_files() {
    let dir = scratch();
    let out = path(dir.path(), "mm.so");
    let tec = env!("CARGO_BIN_EXE_tec");
    let script = format!("trap '' XFSZ; ulimit -f 1; exec {tec} build {MATMUL} -o {out}");
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash");
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("cannot write"), "{message}");
    assert_eq!(names(dir.path()), Vec::<String>::new());
    // A device that is always full; the link to it is not replaced.
    let link = dir.path().join("full.so");
    std::os::unix::fs::symlink("/dev/full", &link).unwrap();
    let build = ["build", MATMUL, "--no-sidecars", "-o", link.to_str().unwrap()];
    fails(&build, 1, "full.so`: no space left on device");
    assert_eq!(names(dir.path()), ["full.so"]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let tec = env!("CARGO_BIN_EXE_tec");
    let script = format!("{tec} lower {MATMUL} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}");
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn run_verifies_and_summarises() {
    let text = succeeds(&["run", MATMUL, "-D", "n=32", "--verify"]);
    assert!(text.contains("C: float32[32, 32]"), "{text}");
    assert!(text.contains("bit-identical"), "{text}");
    fails(&["run", "samples/vector_add_var.te"], 1, "--var n=");
    fails(&["run", "samples/vector_add_var.te", "--var", "n=x"], 1, "E0543");
    let text = succeeds(&["run", "samples/vector_add_var.te", "--var", "n=7", "--verify"]);
    assert!(text.contains("[7]"), "{text}");
}

/// If a schedule changes the order of terms, the results are bit-exact in its order, and their
/// distance from the results in the source's order is printed.
#[test]
fn both_orders_of_terms_are_compared() {
    for (args, other) in [
        (&["samples/softmax.te", "--schedule", "fast", "-D", "m=5", "-D", "n=130"][..], true),
        (&["samples/layer_norm.te", "--schedule", "fast", "-D", "m=5", "-D", "n=130"], true),
        (&["samples/sum_rows.te", "--schedule", "fast", "--var", "n=9", "--var", "m=200"], true),
        (&["samples/softmax.te", "--schedule", "default", "-D", "m=5", "-D", "n=130"], false),
    ] {
        let told = succeeds(&[&["run", "--verify"], args].concat());
        assert!(told.contains(": bit-identical to the interpreter"), "{told}");
        let says = |what: &str| assert_eq!(told.contains(what), other, "{args:?}: {what}\n{told}");
        says("terms in the schedule's order\n");
        says("elements differ from the source's order, by ");
        says(" ULP, 0 by more than ");
    }
}

/// An output must not be an input or another output, by whatever path; a refused command changes no
/// file.
#[test]
fn no_output_overwrites_an_input_or_another_output() {
    let dir = scratch();
    let at = |name: &str| path(dir.path(), name);
    let kernel =
        "kernel k(n = 4) { input A: float32[n] output B[i: n] = A[i] output C[i: n] = A[i] }";
    let main = write(dir.path(), "k.te", format!("import \"h.te\"\nimport \"i.svg\"\n{kernel}\n"));
    let svg = write(dir.path(), "i.svg", "def two() = 2\n");
    let import = write(dir.path(), "h.te", "def one() = 1\n");
    std::os::unix::fs::symlink("h.te", at("link")).unwrap();
    std::fs::hard_link(&main, at("hard.so")).unwrap();
    std::fs::create_dir(at("d")).unwrap();
    succeeds(&["run", &main, "--output", &format!("B={}", at("a.npy"))]);
    let input = format!("A={}", at("a.npy"));
    let b = format!("B={}", at("a.npy"));
    let records = write(dir.path(), "r.jsonl", "");
    let before: Vec<(String, Option<Vec<u8>>)> = names(dir.path())
        .into_iter()
        .map(|name| (name.clone(), std::fs::read(at(&name)).ok()))
        .collect();
    let (so, new) = (at("y.so"), at("new"));
    let again = format!("{}/d/../new", dir.path().display());
    for (line, text) in [
        (
            &["build", &main, "-o", &so, "--header", &import][..],
            "--header would overwrite an import",
        ),
        (
            &["build", &main, "-o", &so, "--header", &at("link")],
            "--header would overwrite an import",
        ),
        (
            &["build", &main, "-o", &so, "--manifest", &main],
            "--manifest would overwrite the source",
        ),
        (&["build", &main, "-o", &at("hard.so")], "-o would overwrite the source"),
        (&["build", &main, "-o", &so, "--manifest", &so], "--manifest would overwrite -o"),
        (&["build", &main, "-o", &so, "--manifest", &new, "--header", &again], "--manifest: `"),
        (&["build", &main, "-o", &so, "--header", &at("y.json")], "would overwrite --manifest"),
        (&["run", &main, "--input", &input, "--output", &b], "overwrite the input `A`"),
        (&["run", &main, "--output", &format!("B={import}")], "overwrite an import"),
        (
            &["run", &main, "--output", &format!("B={new}"), "--output", &format!("C={again}")],
            "--output C would overwrite --output B",
        ),
        (&["bench", &main, "-D", "n=4,8", "--plot", &svg], "--plot would overwrite an import"),
        (&["tune", &main, "--records", &import], "--records would overwrite an import"),
        (&["tune", &main, "--input", &input, "--records", &at("a.npy")], "the input `A`"),
        (
            &["tune", &main, "--records", &at("p.svg"), "--plot", &at("p.svg")],
            "overwrite --records",
        ),
        (&["best", &records, "--write-back", &records], "E060"),
        (&["records", "replay", &records, &main, "-o", &main], "-o would overwrite the source"),
    ] {
        let message = fails(line, 1, text);
        assert!(message.contains("E0502") || text == "E060", "{message}");
    }
    for (name, bytes) in &before {
        assert_eq!(&std::fs::read(at(name)).ok(), bytes, "{name}");
    }
    assert_eq!(names(dir.path()).len(), before.len(), "{:?}", names(dir.path()));
    // Any number of outputs may be written to a device.
    succeeds(&["build", &main, "-o", &so, "--header", "/dev/null", "--manifest", "/dev/null"]);
}

/// A pipe without a writer, an endless device and a file that is too large are refused; the command
/// does not block.
#[test]
fn only_regular_files_of_limited_size_are_read() {
    let dir = scratch();
    let at = |name: &str| path(dir.path(), name);
    let fifo = at("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let kernel = "kernel k(n = 4) { input A: float32[n] output B[i: n] = A[i] }";
    let main = write(dir.path(), "k.te", kernel);
    let importer = write(dir.path(), "i.te", format!("import \"fifo\"\n{kernel}"));
    let sparse = |name: &str, bytes: u64| {
        std::fs::File::create(at(name)).and_then(|file| file.set_len(bytes)).expect("a file");
        at(name)
    };
    let (large, module) = (sparse("large.te", (64 << 20) + 1), sparse("m.so", (1 << 30) + 1));
    let input = |path: &str| format!("A={path}");
    for (line, code, why) in [
        (&["check", &fifo][..], "E0120", "it is a pipe, not a regular file"),
        (&["check", &importer], "E0120", "it is a pipe, not a regular file"),
        (&["check", "/dev/zero"], "E0120", "it is a device, not a regular file"),
        (&["check", dir.path().to_str().unwrap()], "E0120", "is a directory"),
        (&["build", ".."], "E0120", "is a directory"),
        (&["build", ""], "E0120", "no such file or directory"),
        (&["check", &large], "E0120", "it is larger than 64 MiB"),
        (&["inspect", &fifo], "E0523", "it is a pipe"),
        (&["inspect", "/dev/zero"], "E0523", "it is a device"),
        (&["inspect", &module], "E0523", "it is larger than 1 GiB"),
        (&["run", &fifo], "E0523", "it is a pipe"),
        (&["run", &main, "--input", &input(&fifo)], "E0542", "it is a pipe"),
        (&["run", &main, "--input", &input("/dev/zero")], "E0542", "it is a device"),
        (&["best", &fifo], "E0604", "it is a pipe"),
        (&["records", "show", "/dev/zero"], "E0604", "it is a device"),
        (&["records", "prune", &fifo], "E0604", "it is a pipe"),
        (&["records", "merge", &fifo, "-o", &at("o.jsonl")], "E0604", "it is a pipe"),
        (&["tune-batch", &fifo, &at("out.json")], "E0602", "it is a pipe"),
    ] {
        // A command that blocks is killed and has another status.
        let tec = ["60", env!("CARGO_BIN_EXE_tec")];
        let output = Command::new("timeout").args(tec).args(line).output().expect("timeout");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "tec {line:?}\n{message}");
        assert!(message.contains(code) && message.contains(why), "tec {line:?}\n{message}");
    }
}

/// Returns the bytes of a `.npy` file of float32.
fn npy(shape: &str, data: &[u8]) -> Vec<u8> {
    let mut head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    head.push_str(&" ".repeat(117 - head.len()));
    [&b"\x93NUMPY\x01\x00\x76\x00"[..], head.as_bytes(), b"\n", data].concat()
}

#[test]
fn arrays_of_another_rank_or_with_trailing_bytes_are_refused() {
    let dir = scratch();
    let run = |bytes: Vec<u8>| {
        let input = format!("A={}", write(dir.path(), "a.npy", bytes));
        tec(&["run", "samples/vector_add_var.te", "--input", &input.replace("A=", "a=")])
    };
    let says = |bytes: Vec<u8>, text: &str| {
        let output = run(bytes);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("E0542") && message.contains(text), "{message}");
    };
    let four = [0; 16];
    assert_eq!(run(npy("(4,)", &four)).status.code(), Some(0));
    says(npy("()", &four[..4]), "but the array in its file has 0");
    says(npy("(2, 2)", &four), "its file has 2: shape [2, 2]");
    says(npy("(3,)", &four), "more bytes follow the 12 of an array of shape [3]");
    says(npy("(5,)", &four), "truncated: 16 of 20 bytes");
    says(npy("(1000000000000,)", &four), "are free");
}

#[test]
fn tuned_schedules_are_used_on_their_target() {
    let dir = scratch();
    let kernel = "kernel k(n = 64) { input A: float32[n] output B[i: n] = A[i] }\n";
    let tree = |text: &str, target: &str, more: &[&str]| {
        let file = write(dir.path(), "k.te", format!("{kernel}{text}"));
        let output =
            tec(&[&["lower", &file, "--schedule-tree", "--target", target], more].concat());
        assert_eq!(output.status.code(), Some(0), "{text}\n{}", stderr(&output));
        (stdout(&output), stderr(&output))
    };
    let tuned = "schedule k.tuned for x86-avx2 { B.unroll(i) }\n";
    let own = "schedule k { B.vectorize(i) }\n";
    for text in [format!("{tuned}{own}"), format!("{own}{tuned}")] {
        let (told, notes) = tree(&text, "x86-avx2", &[]);
        assert!(told.contains("unrolled i") && notes.is_empty(), "{told}{notes}");
        for more in [&[][..], &["--schedule", "tuned"]] {
            let (told, notes) = tree(&text, "x86-64", more);
            assert!(told.contains("vectorized i"), "{told}");
            assert!(notes.contains("for x86-avx2") && notes.contains(" x86-64"), "{notes}");
        }
        let (told, notes) = tree(&text, "x86-64", &["--schedule", "default"]);
        assert!(told.contains("for i 64") && notes.is_empty(), "{told}{notes}");
    }
    // The last one counts: the output of a search may be appended any number of times.
    let (told, _) =
        tree(&format!("{tuned}{}", tuned.replace("unroll", "parallel")), "x86-avx2", &[]);
    assert!(told.contains("parallel i"), "{told}");
    let twice = write(dir.path(), "t.te", format!("{kernel}{tuned}{tuned}"));
    assert_eq!(succeeds(&["check", &twice, "--target", "x86-avx2"]), "");
    let twice = tuned.replace("tuned", "mine").repeat(2);
    let twice = write(dir.path(), "t.te", format!("{kernel}{twice}"));
    fails(&["check", &twice, "--target", "x86-avx2"], 1, "E0304");
    let file = write(dir.path(), "k.te", format!("{kernel}{tuned}"));
    fails(&["build", &file, "--target", "x86-64", "--schedule", "tunde"], 1, "E0303");
}

#[test]
fn an_intermediate_tensor_cannot_be_saved() {
    let dir = scratch();
    let text = "kernel k(n = 4) {\n    compute P[i: n] = 1.0\n    output C[i: n] = P[i]\n}\n";
    let file = write(dir.path(), "k.te", text);
    let text = fails(&["run", &file, "--output", "P=p.npy"], 1, "`P` is an intermediate tensor");
    assert!(text.contains("declare it by `output P[…] = …` instead of `compute`"), "{text}");
    fails(&["run", &file, "--output", "Q=p.npy"], 1, "has no output `Q`");
}

#[test]
fn run_accepts_modules_and_numpy_files() {
    let dir = scratch();
    let out = path(dir.path(), "mm.so");
    let (a, c) = (path(dir.path(), "a.npy"), path(dir.path(), "c.npy"));
    succeeds(&["build", MATMUL, "-D", "n=8", "-o", &out]);
    succeeds(&["run", &out, "--output", &format!("C={c}")]);
    // The result is a valid input of the same shape.
    std::fs::copy(&c, &a).unwrap();
    succeeds(&["run", &out, "--input", &format!("A={a}"), "--output", &format!("C={c}")]);
    fails(&["run", &out, "--input", &format!("Z={a}")], 1, "Z");
    fails(&["run", MATMUL, "-D", "n=9", "--input", &format!("A={a}")], 1, "shape");
    let bytes = std::fs::read(&a).unwrap();
    let cut = write(dir.path(), "cut.npy", &bytes[..bytes.len() - 3]);
    fails(&["run", &out, "--input", &format!("A={cut}")], 1, "E0542");
    let junk = write(dir.path(), "junk.npy", "not a NumPy file");
    fails(&["run", &out, "--input", &format!("A={junk}")], 1, "NumPy");
    let head = bytes.windows(3).position(|w| w == b"<f4").expect("a float32 header");
    let mut other = bytes.clone();
    other[head..head + 3].copy_from_slice(b"<i4");
    let other = write(dir.path(), "int.npy", &other);
    fails(&["run", &out, "--input", &format!("A={other}")], 1, "int32");
    let order = bytes.windows(5).position(|w| w == b"False").expect("an order");
    let mut fortran = bytes.clone();
    fortran[order..order + 5].copy_from_slice(b"True ");
    let fortran = write(dir.path(), "fortran.npy", &fortran);
    fails(&["run", &out, "--input", &format!("A={fortran}")], 1, "Fortran");
}

#[test]
fn inspect_prints_the_manifest() {
    let dir = scratch();
    for name in ["mm.so", "mm.tar"] {
        let out = path(dir.path(), name);
        succeeds(&["build", MATMUL, "-D", "n=8", "--no-sidecars", "-o", &out]);
        assert!(succeeds(&["inspect", &out]).contains("matmul"));
        let json: serde_json::Value =
            serde_json::from_str(&succeeds(&["inspect", &out, "--json"])).expect("JSON");
        assert_eq!(json["kernels"][0]["name"], "matmul");
    }
    let junk = write(dir.path(), "junk.so", "nothing");
    fails(&["inspect", &junk], 1, "junk.so");
}

#[test]
fn every_error_code_is_explained() {
    let mut count = 0;
    for entry in std::fs::read_dir("docs/errors").expect("docs/errors") {
        let path: PathBuf = entry.unwrap().path();
        let code = path.file_stem().unwrap().to_str().unwrap();
        for written in [code, &code.to_lowercase(), code.trim_start_matches(['E', '0'])] {
            assert!(succeeds(&["explain-error", written]).starts_with(&format!("# {code}")));
        }
        count += 1;
    }
    assert!(count > 20, "only {count} codes");
}

#[test]
fn estimates_are_explained() {
    let fixed = ["explain", MATMUL, "--target", "x86-avx512", "--machine", "typical"];
    let told = succeeds(&[&fixed[..], &["--schedule", "fast", "--threads", "2"]].concat());
    assert!(told.starts_with("matmul, schedule fast, x86-avx512, 2 threads, typical machine\n"));
    assert!(told.contains("\nmultiply-adds ") && told.contains(" C: ko: "), "{told}");
    assert!(told.contains("\ntotal "), "{told}");
    assert!(told.ends_with("\nbound by multiply-adds\n"), "{told}");
    let of = |schedule: &str| {
        let text = succeeds(&[&fixed[..], &["--schedule", schedule, "--json"]].concat());
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let kernel = value["kernels"][0].clone();
        let terms = kernel["terms"].as_array().expect("terms");
        let sum: f64 = terms.iter().map(|term| term["seconds"].as_f64().expect("a number")).sum();
        let seconds = kernel["seconds"].as_f64().expect("a number");
        assert!((sum - seconds).abs() < 1e-9 * seconds, "{sum} {seconds}");
        seconds
    };
    assert!(of("fast") < of("block") && of("block") < of("default"));
    let other = ["explain", MATMUL, "--target", "riscv64", "--machine", "measured"];
    fails(&other, 2, "code for riscv64 does not run on this machine");
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(succeeds(&["completions", shell]).contains("tec"), "{shell}");
    }
}

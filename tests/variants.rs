//! Modules for several CPUs (`tec build --target A,B`): equal bits in all variants, the choice of
//! the variant by CPU and by `TEC_MAX_TARGET`, programs in C, and what is refused.

use crate::samples::{CASES, pairs};
use crate::support::{answer, runs_here, say_skipped};
use object::{Object, ObjectSymbol};
use safetensors::tensor::{Dtype, TensorView};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tec::ir::Role;
use tec::module::manifest::{ArgManifest, Manifest};
use tec::module::read::read_manifest;
use tec::target::{Arch, Target};
use tempfile::TempDir;

const TARGETS: [&str; 3] = ["x86-avx512", "x86-avx2", "x86-64"];

const SCALE: &str = "
kernel scale(n: var) {
    input x: float32[n]
    output y[i: n] = 2*x[i] + 1
}
schedule scale for cpu {
    let o, l = y.split(i, factor=target.lanes(float32))
    y.vectorize(l)
}
";

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

/// Runs `tec` in a directory, with a limit of the variant.
fn tec_in(dir: &Path, limit: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
    command.args(args).current_dir(dir).env("TEC_MAX_TARGET", limit);
    command.output().expect("tec starts")
}

#[track_caller]
fn succeeds(dir: &Path, limit: &str, args: &[&str]) -> String {
    let output = tec_in(dir, limit, args);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    assert!(output.status.success(), "tec {args:?} {limit}\n{text}");
    text
}

/// The targets that this machine can run; `x86-64` is always one of them on x86.
fn targets_here() -> Vec<&'static str> {
    let target = |name: &str| Target::parse(name).expect("a target");
    TARGETS.into_iter().filter(|name| runs_here(&target(name), "a variant")).collect()
}

fn is_x86(what: &str) -> bool {
    let is_x86 = Arch::host() == Some(Arch::X86_64);
    if !is_x86 {
        say_skipped(&format!("{what}: this is not an x86 CPU"));
    }
    is_x86
}

/// Runs each kernel of a module under each limit; returns the first kernel whose outputs differ.
fn find_difference(dir: &Path, module: &str, options: &[&str]) -> Option<String> {
    let manifest = read_manifest(&dir.join(module)).expect("a manifest");
    for kernel in &manifest.kernels {
        let mut first: Option<Vec<Vec<u8>>> = None;
        for target in targets_here() {
            let mut args = vec!["run", module, "--kernel", &kernel.name, "--seed", "7"];
            args.extend(options);
            let output = |arg: &ArgManifest| match arg {
                ArgManifest::Tensor { name, role: Role::Output, .. } => {
                    Some(format!("{name}={name}.npy"))
                }
                _ => None,
            };
            let outputs: Vec<String> = kernel.args.iter().filter_map(output).collect();
            args.extend(outputs.iter().flat_map(|output| ["--output", output]));
            succeeds(dir, target, &args);
            let files = outputs.iter().map(|output| output.split_once('=').expect("a file").1);
            let read = |file| fs::read(dir.join(file)).expect("an output");
            let contents: Vec<Vec<u8>> = files.map(read).collect();
            if *first.get_or_insert_with(|| contents.clone()) != contents {
                return Some(format!("{} {target}", kernel.name));
            }
        }
    }
    None
}

#[test]
fn every_sample_has_the_same_bits_on_all_targets() {
    if !is_x86("variants of samples") {
        return;
    }
    let dir = scratch();
    let mut seen = Vec::new();
    let mut wrong = Vec::new();
    for case in CASES {
        if seen.contains(&(case.file, case.kernel)) {
            continue;
        }
        seen.push((case.file, case.kernel));
        let file = format!("{}/samples/{}.te", env!("CARGO_MANIFEST_DIR"), case.file);
        let targets = TARGETS.join(",");
        let mut args = vec!["build", &file, "--kernel", case.kernel, "--target", &targets];
        let defines: Vec<String> =
            pairs(case, "-D").iter().map(|(name, value)| format!("{name}={value}")).collect();
        args.extend(defines.iter().flat_map(|define| ["-D", define]));
        args.extend(["--no-sidecars", "-o", "k.so"]);
        succeeds(dir.path(), "", &args);
        let vars: Vec<String> =
            pairs(case, "--var").iter().map(|(name, value)| format!("{name}={value}")).collect();
        let vars: Vec<&str> = vars.iter().flat_map(|var| ["--var", var]).collect();
        if let Some(which) = find_difference(dir.path(), "k.so", &vars) {
            wrong.push(format!("{}.te {} {}: {which}", case.file, case.kernel, case.options));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn networks_have_the_same_bits_on_all_targets() {
    if !is_x86("variants of networks") {
        return;
    }
    let dir = scratch();
    if targets_here().len() < TARGETS.len() {
        return say_skipped("variants of networks: networks are built where they run");
    }
    fs::write(dir.path().join("net.te"), NETWORK).expect("a file is written");
    write_params(dir.path(), "net.safetensors", 48 * 48, vec![48, 48]);
    let targets = TARGETS.join(",");
    let told = succeeds(dir.path(), "", &["build", "net.te", "--target", &targets, "-o", "net.so"]);
    assert!(told.contains("note: x86-64 has no fused multiply-add"), "{told}");
    assert_eq!(find_difference(dir.path(), "net.so", &[]), None);
    let manifest = read_manifest(&dir.path().join("net.so")).expect("a manifest");
    let own = |name: &str| manifest.clone().for_target(name).kernels.remove(0).workspace_bytes;
    let most = TARGETS.into_iter().map(own).reduce(tec::module::extent::Extent::max);
    assert_eq!(most.as_ref(), Some(&manifest.kernels[0].workspace_bytes));
}

const NETWORK: &str = "
network net(n = 48) reassociate {
    input X: float32[8, n]
    param W: float32[n, n]
    reduce k: 0..n
    compute H[i: 8, j: n] = sum(X[i, k] * W[k, j], axis=k)
    compute S[i: 8] = sum(exp(H[i, k]), axis=k)
    output Y[i: 8, j: n] = H[i, j] / S[i]
}
";

#[test]
fn packed_operands_agree_within_a_process() {
    if !is_x86("variants of packed operands") {
        return;
    }
    let dir = scratch();
    let file = format!("{}/samples/matmul_add.te", env!("CARGO_MANIFEST_DIR"));
    let targets = TARGETS.join(",");
    let sizes = ["-D", "N=64", "-D", "L=64", "-D", "M=64"];
    let build = ["build", &file, "--target", &targets, "--prepack", "B", "--schedule", "fast"];
    let build = [&build[..], &sizes, &["-o", "k.so"]].concat();
    succeeds(dir.path(), "", &build);
    let manifest = read_manifest(&dir.path().join("k.so")).expect("a manifest");
    let shapes = manifest.variants.iter().map(|variant| variant.kernels[1].signature.as_ref());
    assert!(shapes.clone().any(|signature| signature.is_some()), "layouts that differ");
    let mut results = Vec::new();
    for target in targets_here() {
        let run = |args: &[&str]| succeeds(dir.path(), target, &[&["run", "k.so"], args].concat());
        run(&["--kernel", "matmul_add", "--seed", "3", "--output", "out=plain.npy"]);
        // The inputs, as `tec run` makes them from the seed.
        let copy = ["run", "copies.te", "--seed", "3", "--output", "B2=b.npy"];
        fs::write(dir.path().join("copies.te"), COPIES).expect("a file is written");
        succeeds(
            dir.path(),
            "",
            &[&copy[..], &["--output", "A2=a.npy", "--output", "C2=c.npy"]].concat(),
        );
        run(&["--kernel", "matmul_add_pack_B", "--input", "B=b.npy", "--output", "out=packed.npy"]);
        let inputs = ["--input", "A=a.npy", "--input", "B=packed.npy", "--input", "C=c.npy"];
        run(&[&["--kernel", "matmul_add_prepacked", "--output", "out=out.npy"], &inputs[..]]
            .concat());
        results.push(fs::read(dir.path().join("out.npy")).expect("an output"));
        // One that was packed for another target is refused by its shape.
        let signature = |at: usize| manifest.variants[at].kernels[1].signature.clone();
        if target == "x86-64" && targets_here().len() == 3 && signature(0) != signature(2) {
            let args = ["run", "k.so", "--kernel", "matmul_add_prepacked"];
            let args = [&args[..], &inputs].concat();
            let output = tec_in(dir.path(), "x86-avx512", &args);
            assert!(!output.status.success(), "{output:?}");
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "the bits of the variants");
}

/// Copies inputs with the names and shapes of `matmul_add`.
const COPIES: &str = "
kernel copies() {
    input A: float32[64, 64]
    input B: float32[64, 64]
    input C: float32[64, 64]
    output A2[i: 64, j: 64] = A[i, j]
    output B2[i: 64, j: 64] = B[i, j]
    output C2[i: 64, j: 64] = C[i, j]
}
";

/// Builds `scale` as `OUTPUT` in a directory, as module `k`.
fn build_scale(dir: &Path, targets: &str, output: &str) {
    fs::write(dir.join("scale.te"), SCALE).expect("a file is written");
    let args = ["build", "scale.te", "--target", targets, "--module", "k", "-o", output];
    succeeds(dir, "", &[&args[..], &["--header", "k.h"]].concat());
}

/// Compiles a program of `tests/c`.
fn compile_c(dir: &Path, source: &str, args: &[&str]) -> PathBuf {
    let program = dir.join(source.trim_end_matches(".c"));
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-D_GNU_SOURCE", "-I."])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source))
        .args(args)
        .args(["-pthread", "-ldl", "-o"])
        .arg(&program)
        .current_dir(dir)
        .output()
        .expect("a C compiler is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs a program. Returns its exit status.
#[track_caller]
fn run_c(program: &Path, args: &[&str], environment: &[(&str, &str)]) -> i32 {
    let mut command = Command::new(program);
    command.env_remove("TEC_MAX_TARGET").envs(environment.iter().copied());
    let output = command.args(args).current_dir(program.parent().expect("a directory")).output();
    let output = output.expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let code = output.status.code().unwrap_or(-1);
    assert!(code == 0 || code == 77, "{args:?} {environment:?}: {}\n{text}", output.status);
    code
}

/// The extracted runtime of an archive, beside its object.
fn extract(dir: &Path, archive: &str) {
    let bytes = fs::read(dir.join(archive)).expect("an archive");
    tar::Archive::new(&bytes[..]).unpack(dir).expect("it can be unpacked");
}

#[test]
fn programs_run_the_code_for_their_cpu() {
    if !is_x86("variants in C") {
        return;
    }
    let dir = scratch();
    let all = TARGETS.join(",");
    build_scale(dir.path(), &all, "k.so");
    build_scale(dir.path(), &all, "k.tar");
    extract(dir.path(), "k.tar");
    build_scale(dir.path(), &all, "k.o");
    let here = targets_here();
    let forms: [&[&str]; 4] = [
        &["./k.so", "-Wl,-rpath,."],
        &["k.o", "tec_runtime.o", "-fPIE", "-pie"],
        &["k.o", "tec_runtime.o", "-fPIE", "-static-pie"],
        &["k.o", "tec_runtime.o", "-no-pie", "-static"],
    ];
    for form in forms {
        let program = compile_c(dir.path(), "variants.c", form);
        run_c(&program, &[here[0]], &[]);
        run_c(&program, &[here[0]], &[("LD_BIND_NOW", "1"), ("TEC_MAX_TARGET", "")]);
        for target in &here {
            run_c(&program, &[target], &[("TEC_MAX_TARGET", target)]);
        }
        // The features of a name are part of the limit.
        run_c(&program, &[here[0]], &[("TEC_MAX_TARGET", "x86-avx512+vnni+bf16")]);
        for unknown in ["x86-avx3", "x86-avx2+vnni", "x86-avx512+sse9", "x86", "aarch64", " "] {
            let message = format!("TEC_MAX_TARGET={unknown} is not a target: expected x86-64, ");
            run_c(&program, &["-", &message], &[("TEC_MAX_TARGET", unknown)]);
        }
        for (cpu, target) in
            [("Haswell", "x86-avx2"), ("Nehalem", "x86-64"), ("old-system", "x86-64")]
        {
            if here.contains(&target) && run_c(&program, &[cpu, target], &[]) == 77 {
                say_skipped("emulated CPUs: this system cannot trap `cpuid`");
            }
        }
        let message = "no variant of the module can run here: x86-avx512 needs ";
        run_c(&program, &["ancient", "-", message], &[]);
        run_c(&program, &["ancient", "-", "; x86-64 needs sse4.1"], &[]);
    }
    under_qemu(dir.path());
    // Without a baseline, a limit can exclude everything.
    let dir = scratch();
    build_scale(dir.path(), "x86-avx2,x86-avx512", "k.so");
    let program = compile_c(dir.path(), "variants.c", forms[0]);
    let message = "no variant of the module can run here: x86-avx512 exceeds \
                   TEC_MAX_TARGET=x86-64; x86-avx2 exceeds TEC_MAX_TARGET=x86-64";
    run_c(&program, &["-", message], &[("TEC_MAX_TARGET", "x86-64")]);
    run_c(&program, &["Nehalem", "-", "; x86-avx2 needs avx, avx2, f16c, fma"], &[]);
}

/// Runs the static program on CPUs of qemu, which really lack the instructions.
fn under_qemu(dir: &Path) {
    let emulators = ["qemu-x86_64", "qemu-x86_64-static"];
    let there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(qemu) = emulators.iter().find(there) else {
        return say_skipped("variants on other CPUs: qemu-x86_64 is not installed");
    };
    let program = dir.join("variants");
    for (cpu, target) in [("Nehalem", "x86-64"), ("Haswell", "x86-avx2")] {
        let mut command = Command::new(qemu);
        command.args(["-cpu", cpu]).arg(&program).arg(target).env_remove("TEC_MAX_TARGET");
        let output = command.current_dir(dir).output().expect("it was found");
        assert!(output.status.success(), "{cpu}: {output:?}");
    }
}

#[test]
fn a_program_links_two_modules_and_one_runtime() {
    if !is_x86("two modules for several CPUs") {
        return;
    }
    let dir = scratch();
    let (first, second) = (
        "kernel add() {\n input a: float32[100]\n input b: float32[100]\n \
         output c[i: 100] = a[i] + b[i]\n}\n",
        "kernel temporary(n: var) {\n input a: float32[n]\n \
         output c[i: n] = a[i]\n}\n",
    );
    for (name, text, targets) in
        [("first", first, "x86-avx2,x86-64"), ("second", second, "x86-avx512,x86-avx2,x86-64")]
    {
        fs::write(dir.path().join(format!("{name}.te")), text).expect("a file is written");
        let (file, output) = (format!("{name}.te"), format!("{name}.tar"));
        succeeds(dir.path(), "", &["build", &file, "--target", targets, "-o", &output]);
        extract(dir.path(), &output);
    }
    let objects = ["first.o", "second.o", "tec_runtime.o"];
    for more in ["-no-pie", "-static-pie"] {
        let program = compile_c(dir.path(), "variants_linked.c", &[&objects[..], &[more]].concat());
        for limit in targets_here() {
            let first = if limit == "x86-avx512" { "x86-avx2" } else { limit };
            run_c(&program, &[first, limit], &[("TEC_MAX_TARGET", limit)]);
        }
    }
}

#[test]
fn dispatch_is_cheap_and_modules_choose_for_themselves() {
    if !is_x86("loaded variants") {
        return;
    }
    let dir = scratch();
    let here = targets_here();
    build_scale(dir.path(), &TARGETS.join(","), "k.so");
    build_scale(dir.path(), here[0], "single.so");
    let args = ["build", "scale.te", "--target", "x86-avx512+fp16,x86-64", "-o", "other.so"];
    succeeds(dir.path(), "", &args);
    let program = compile_c(dir.path(), "variants_loaded.c", &[]);
    // A module names no library that it needs, so a name space of its own gets the C library
    // through a library that is linked with the module.
    let mut wrapper = Command::new("cc");
    wrapper.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-rpath,.", "-o", "wrapper.so"]);
    wrapper.args(["-x", "c", "/dev/null", "-x", "none", "./k.so"]);
    let output = wrapper.current_dir(dir.path()).output().expect("a C compiler is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let other = if Target::parse("x86-avx512+fp16").expect("a target").runs_here() {
        "x86-avx512+fp16"
    } else {
        "x86-64"
    };
    let mut command = Command::new(&program);
    command.args([here[0], other, "./k.so", "./other.so", "./single.so", "./wrapper.so"]);
    command.env_remove("TEC_MAX_TARGET");
    let output = command.current_dir(dir.path()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "{text}");
}

/// The bytes of the functions of kernels in an object.
fn kernel_code(object: &[u8]) -> u64 {
    let file = object::File::parse(object).expect("an object");
    let is_kernel =
        |name: &str| [".body", ".simd.", ".task."].iter().any(|part| name.contains(part));
    let symbols = file.symbols().filter(|symbol| symbol.name().is_ok_and(is_kernel));
    symbols.map(|symbol| symbol.size()).sum()
}

#[test]
fn what_variants_have_in_common_is_emitted_once() {
    let dir = scratch();
    let file = format!("{}/samples/classifier.te", env!("CARGO_MANIFEST_DIR"));
    let build = |targets: &str, output: &str| {
        let args = ["build", &file, "--target", targets, "--fp-contract", "fast", "-o", output];
        succeeds(dir.path(), "", &[&args[..], &["--schedule", "auto"]].concat());
        fs::read(dir.path().join(output)).expect("an output")
    };
    let (mut code, mut sizes) = (0, Vec::new());
    for target in TARGETS {
        code += kernel_code(&build(target, "k.o"));
        sizes.push(build(target, "k.so").len() as u64 - kernel_code(&build(target, "k.o")));
    }
    let several = build(&TARGETS.join(","), "k.so").len() as u64;
    // Entries, checks, constants, the manifest and the runtime of one module.
    let common = sizes.into_iter().max().expect("three modules");
    println!("{several} bytes: {code} of kernels, {common} beside them in a module for one target");
    assert!(several <= code + common + (8 << 10), "{several} {code} {common}");
}

/// Writes the params of `NETWORK`, and of `SHIFT`.
fn write_params(dir: &Path, name: &str, elements: usize, shape: Vec<usize>) {
    let values = (0..elements).flat_map(|i| ((i * 7 % 97) as f32 / 97.0 - 0.5).to_le_bytes());
    let bytes: Vec<u8> = values.collect();
    let view = TensorView::new(Dtype::F32, shape, &bytes).expect("a tensor");
    let file = safetensors::serialize([("W", view)], None).expect("a file");
    fs::write(dir.join(name), file).expect("a file is written");
}

const SHIFT: &str = "
network shift() {
    input X: float32[4096]
    param W: float32[4096]
    output Y[i: 4096] = X[i] + W[i]
}
";

#[test]
fn constants_of_all_variants_are_one() {
    if targets_here().len() < TARGETS.len() {
        return say_skipped("constants of variants: networks are built where they run");
    }
    let dir = scratch();
    fs::write(dir.path().join("shift.te"), SHIFT).expect("a file is written");
    write_params(dir.path(), "shift.safetensors", 4096, vec![4096]);
    let size = |targets: &str| {
        succeeds(dir.path(), "", &["build", "shift.te", "--target", targets, "-o", "f.o"]);
        fs::read(dir.path().join("f.o")).expect("an object").len()
    };
    let (one, three) = (size("x86-64"), size(&TARGETS.join(",")));
    assert!(one >= 4 * 4096 && three < one + 3 * 4096, "{one} {three}");
}

#[test]
fn targets_that_cannot_be_in_one_module_are_refused() {
    let dir = scratch();
    fs::write(dir.path().join("scale.te"), SCALE).expect("a file is written");
    for (targets, expected) in [
        ("x86-avx2,x86-avx2", "error[E0406]: `x86-avx2` is given twice"),
        (
            "x86-avx512+vnni+fp16,x86-avx512+fp16+vnni",
            "error[E0406]: `x86-avx512+fp16+vnni` is given twice",
        ),
        ("x86-avx2,nvptx-sm_80", "note: `x86-avx2` is for x86_64, `nvptx-sm_80` for nvptx"),
        (
            "nvptx-sm_80,nvptx-sm_90",
            "error[E0406]: `nvptx-sm_80,nvptx-sm_90`: a module for several",
        ),
        ("x86-avx2,aarch64", "note: `x86-avx2` is for x86_64, `aarch64` for aarch64"),
        ("x86-avx2,x86-avx51", "help: did you mean `x86-avx512`?"),
        ("x86-avx2,sm_80", "error[E0401]: unknown target `sm_80`"),
        ("x86-avx2,", "error[E0401]: unknown target ``"),
        ("x86-avx512+bf16,x86-avx2", "error[E0406]: `x86-avx512+bf16,x86-avx2`: all targets of"),
        ("x86-avx2,x86-avx2+vnni", "error[E0402]: target `x86-avx2` has no feature `vnni`"),
    ] {
        let output = tec_in(dir.path(), "", &["build", "scale.te", "--target", targets]);
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!output.status.success() && text.contains(expected), "{targets}: {text}");
        assert!(!dir.path().join("scale.so").exists());
    }
    let (good, said) = answer(&["run", "samples/matmul.te", "--target", "x86-avx2,x86-64"]);
    assert!(
        !good && said.contains("error[E0406]: `x86-avx2,x86-64` names several targets"),
        "{said}"
    );
    assert!(said.contains("help: only `tec build` makes a module for several CPUs"), "{said}");
}

#[test]
fn a_schedule_that_a_target_refuses_is_reported_with_the_target() {
    let dir = scratch();
    let text = SCALE.replace("target.lanes(float32)", "target.lanes(float32) // 8");
    fs::write(dir.path().join("scale.te"), text).expect("a file is written");
    let targets = TARGETS.join(",");
    let output = tec_in(dir.path(), "", &["build", "scale.te", "--target", &targets]);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(text.contains("note: compiled for x86-64"), "{text}");
}

#[test]
fn the_manifest_and_inspect_show_the_variants() {
    let dir = scratch();
    build_scale(dir.path(), "x86-64,x86-avx512+vnni,x86-avx2", "k.so");
    let json = succeeds(dir.path(), "", &["inspect", "k.so", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["target"]["name"], "x86-64");
    assert_eq!(value["fp_contract"], "fast");
    let names = value["variants"].as_array().expect("variants").iter();
    let names: Vec<&str> = names.map(|one| one["target"]["name"].as_str().expect("text")).collect();
    assert_eq!(names, ["x86-avx512+vnni", "x86-avx2", "x86-64"]);
    let manifest = Manifest::from_json(&json, "k.json").expect("a manifest");
    let own = manifest.clone().for_target("x86-avx2");
    assert_eq!((&own.target.name[..], own.variants.len()), ("x86-avx2", 0));
    let described = succeeds(dir.path(), "", &["inspect", "k.so"]);
    let hash = described.lines().find(|line| line.starts_with("source ")).expect("a source");
    let expected = format!(
        "module k, by tec {}
targets x86-avx512+vnni x86-avx2 x86-64 (x86_64)
needs sse4.1
fp-contract fast
{hash}

scale(x: float32[n], y: float32[n])
  schedule scale for cpu {{
      let o, l = y.split(i, factor=target.lanes(float32))
      y.vectorize(l)
  }}
  operations n*2, bytes n*8
  workspace 0 bytes
  for x86-avx512+vnni: workspace 0 bytes
  for x86-avx2: workspace 0 bytes
  for x86-64: workspace 0 bytes
",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(described, expected);
    let expected = include_str!("module/variants.json");
    let hash = value["sources"][0]["sha256"].as_str().expect("a hash");
    let compiler = format!("tec {}", env!("CARGO_PKG_VERSION"));
    let expected = expected.replace("HASH", hash).replace("COMPILER", &compiler);
    assert_eq!(fs::read_to_string(dir.path().join("k.json")).expect("a manifest"), expected);
    // A module for one target has no variants.
    build_scale(dir.path(), "x86-avx2", "one.so");
    assert!(!succeeds(dir.path(), "", &["inspect", "one.so", "--json"]).contains("variants"));
}

/// A product in one tile register, and a kernel without products.
const PRODUCT: &str = "
kernel product() {
    input a: uint8[16, 64]
    input b: int8[16, 64]
    reduce q: 0..16
    reduce k: 0..4
    output c[i: 16, j: 16] =
        sum((a[i, q * 4 + k] as int32) * (b[q, j * 4 + k] as int32), axis=[q, k])
}
schedule product for x86-avx512+amx-int8 {
    c.tensorize(i, tile_u8_i8)
}
kernel negated() {
    input a: int8[64]
    output c[i: 64] = -a[i]
}
";

#[test]
fn a_process_asks_for_tile_registers() {
    const TILES: &str = "x86-avx512+amx-int8";
    let target = Target::parse(TILES).expect("a target");
    if !runs_here(&target, "the permission to use tile registers") {
        return;
    }
    // A module for several targets falls back to the next one; one without products needs none.
    let several = format!("{TILES},x86-avx512");
    let rows = [
        (TILES, "product", "refused"),
        (&several, "product", "x86-avx512"),
        (TILES, "negated", TILES),
    ];
    for (targets, kernel, refused) in rows {
        let dir = scratch();
        fs::write(dir.path().join("product.te"), PRODUCT).expect("a file is written");
        let names = ["build", "product.te", "--kernel", kernel, "--target", targets];
        let files = ["--module", "k", "-o", "k.so", "--header", "k.h"];
        succeeds(dir.path(), "", &[&names[..], &files].concat());
        let only = format!("-DKERNEL_{kernel}");
        let program = compile_c(dir.path(), "tiles.c", &["./k.so", &only]);
        assert_eq!(run_c(&program, &["permitted", TILES], &[]), 0);
        if run_c(&program, &["refused", refused], &[]) == 77 {
            say_skipped("a refused permission: the system has no filters of system calls");
        }
    }
}

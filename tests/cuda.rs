//! Modules for GPUs on a machine without one: `tests/c/fake_cuda.c` stands in for the driver. The
//! tests check what the entries launch, with which arguments, in which context and on which stream,
//! and the message of every failure. The PTX is written by hand; `tests/ptx.rs` tests the PTX that
//! the compiler generates.

use crate::module::kernels;
use kernels::{input, kernel, output, tensor};
use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tec::codegen::ptx::{Launch, LaunchParam, PtxKernel, PtxModule, Workspace};
use tec::ir::{ActualDim, BinOp, DType, Expr, Kernel, Param, Source, Stmt, Var};
use tec::module::read::read_manifest;
use tec::module::{BuiltModule, ModuleKind, build_gpu_module};
use tec::target::Target;
use tempfile::TempDir;

const TARGET: &str = "nvptx-sm_80";

/// Text with entries of these names and types of parameters, which do nothing.
fn text(entries: &[(&str, &[&str])]) -> String {
    let mut text = ".version 7.0\n.target sm_80\n.address_size 64\n".to_string();
    for (name, params) in entries {
        let params = params.iter().enumerate().map(|(i, ty)| format!("    .param .{ty} p{i}"));
        let params: Vec<String> = params.collect();
        text +=
            &format!("\n.visible .entry {name}(\n{}\n)\n{{\n    ret;\n}}\n", params.join(",\n"));
    }
    text
}

fn ceil_div(a: Expr, b: i64) -> Expr {
    Expr::binary(BinOp::FloorDiv, Expr::add(a, Expr::index(b - 1)), Expr::index(b))
}

fn launch(name: &str, grid: [Expr; 3], block: [u32; 3], params: Vec<LaunchParam>) -> Launch {
    Launch { name: name.into(), grid, block, static_shared: 0, dynamic_shared: 0, params }
}

fn ones(x: Expr) -> [Expr; 3] {
    [x, Expr::index(1), Expr::index(1)]
}

/// `c = a + b`, n elements, one launch.
fn add() -> (Kernel, PtxKernel) {
    let n = Var::index("n");
    let [a, b, c] = ["a", "b", "c"].map(|name| tensor(name, DType::Float32, &[Expr::var(&n)]));
    let run_time = Param::Runtime { var: n.clone(), source: Some(Source::Extent(0, 0)) };
    let params = vec![input(&a), input(&b), output(&c), run_time];
    let blocks = ceil_div(Expr::var(&n), 256);
    let launches =
        vec![launch("add", ones(blocks), [256, 1, 1], (0..4).map(LaunchParam::Param).collect())];
    let alignments = vec![16, 16, 4, 1];
    let ptx = PtxKernel { name: "add".into(), workspaces: vec![], alignments, launches };
    (kernel("add", params, Stmt::nothing()), ptx)
}

/// Returns two launches with two temporaries, with scalars of several types and a number that the
/// host computes.
fn chain() -> (Kernel, PtxKernel) {
    let (n, k) = (Var::index("n"), Var::index("k"));
    let [a, c] = ["a", "c"].map(|name| tensor(name, DType::Float32, &[Expr::var(&n)]));
    let scalar = |name: &str, dtype: DType| Param::Scalar {
        var: Var::new(name, dtype.compute_type()),
        dtype,
    };
    let params = vec![
        input(&a),
        scalar("x", DType::Float64),
        scalar("h", DType::Float16),
        scalar("i", DType::Int8),
        scalar("f", DType::Bool),
        output(&c),
        Param::Runtime { var: n.clone(), source: Some(Source::Extent(0, 0)) },
        Param::Runtime { var: k.clone(), source: None },
    ];
    let product = Expr::mul(Expr::var(&n), Expr::var(&k));
    let mut first = launch(
        "chain_0",
        [Expr::var(&n), Expr::var(&k), Expr::index(1)],
        [32, 4, 2],
        vec![
            LaunchParam::Param(0),
            LaunchParam::Param(1),
            LaunchParam::Param(2),
            LaunchParam::Param(3),
            LaunchParam::Param(4),
            LaunchParam::Workspace(0),
            LaunchParam::Index(Expr::add(product.clone(), Expr::index(7))),
        ],
    );
    first.dynamic_shared = 151_552;
    let second = launch(
        "chain_1",
        ones(Expr::index(1)),
        [1, 1, 1],
        vec![
            LaunchParam::Workspace(1),
            LaunchParam::Workspace(0),
            LaunchParam::Param(5),
            LaunchParam::Param(7),
        ],
    );
    let workspace = |name: &str, bytes: Expr| Workspace { name: name.into(), bytes };
    let ptx = PtxKernel {
        name: "chain".into(),
        workspaces: vec![
            workspace("t", Expr::mul(Expr::var(&n), Expr::index(4))),
            workspace("u", product),
        ],
        alignments: vec![4, 1, 1, 1, 1, 4, 1, 1],
        launches: vec![first, second],
    };
    (kernel("chain", params, Stmt::nothing()), ptx)
}

/// Its check reads an input: `at[i]` must be from 0 to n - 1 for all i; `c` has `m + 1` elements.
fn gather() -> (Kernel, PtxKernel) {
    let (n, m, i) = (Var::index("n"), Var::index("m"), Var::index("i"));
    let actual = Var::index("actual");
    let a = tensor("a", DType::Float32, &[Expr::var(&n)]);
    let at = tensor("at", DType::Int32, &[Expr::var(&m)]);
    let longer = Expr::add(Expr::var(&m), Expr::index(1));
    let c = tensor("c", DType::Float32, std::slice::from_ref(&longer));
    let params = vec![
        input(&a),
        input(&at),
        output(&c),
        Param::Runtime { var: n.clone(), source: Some(Source::Extent(0, 0)) },
        Param::Runtime { var: m.clone(), source: Some(Source::Extent(1, 0)) },
    ];
    let value = Expr::cast(DType::Index, Expr::load(&at, vec![Expr::var(&i)]));
    let inside =
        Expr::and(Expr::le(Expr::index(0), value.clone()), Expr::lt(value.clone(), Expr::var(&n)));
    let assert = Stmt::Assert {
        cond: inside,
        message: "`at[{0}]` is {1}".into(),
        values: vec![Expr::var(&i), value],
    };
    let extent = Stmt::Assert {
        cond: Expr::eq(Expr::var(&actual), longer.clone()),
        message: "`c` has extent {0}".into(),
        values: vec![Expr::var(&actual)],
    };
    let params_of = (0..5).map(LaunchParam::Param).collect();
    let launches = vec![launch("gather", ones(Expr::var(&m)), [1, 1, 1], params_of)];
    let alignments = vec![4, 4, 4, 1, 1];
    let ptx = PtxKernel { name: "gather".into(), workspaces: vec![], alignments, launches };
    let kernel = Kernel {
        dims: vec![ActualDim { param: 2, dim: 0, var: actual }],
        checks: Stmt::Block(vec![extent, Stmt::serial(i, Expr::var(&m), assert)]),
        ..kernel("gather", params, Stmt::nothing())
    };
    (kernel, ptx)
}

/// Returns the kernels of most tests.
fn standard() -> (Vec<Kernel>, PtxModule) {
    let (kernels, launched) = [add(), chain(), gather()].into_iter().unzip();
    let text = text(&[
        ("add", &["u64", "u64", "u64", "s64"]),
        ("chain_0", &["u64", "f64", "b16", "s8", "u8", "u64", "s64"]),
        ("chain_1", &["u64", "u64", "u64", "s64"]),
        ("gather", &["u64", "u64", "u64", "s64", "s64"]),
    ]);
    (kernels, PtxModule { text, version: (7, 0), kernels: launched, notes: Vec::new() })
}

fn build(kind: ModuleKind, target: &str) -> BuiltModule {
    let (kernels, ptx) = standard();
    let info = kernels::info("m", &kernels, Target::parse(target).unwrap());
    build_gpu_module(&kernels, &ptx, &info, kind).expect("the module is made")
}

/// `m.so`, `m.h` and the driver in a directory.
fn directory(target: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let built = build(ModuleKind::SharedObject, target);
    std::fs::write(dir.path().join("m.so"), built.bytes).unwrap();
    std::fs::write(dir.path().join("m.h"), built.header).unwrap();
    compile(&dir, "fake_cuda.c", "libfake_cuda.so", &["-shared", "-fPIC", "-pthread"]);
    dir
}

fn compile(dir: &TempDir, source: &str, program: &str, args: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-D_GNU_SOURCE"])
        .arg(sources.join(source))
        .args(["-I.", "-o", program])
        .args(args)
        .current_dir(dir.path())
        .output()
        .expect("a C compiler is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    dir.path().join(program)
}

/// Runs a program in a directory; `driver` is the library that modules load as the CUDA driver.
fn run(dir: &TempDir, program: &Path, args: &[&str], driver: &str) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir.path()).env("TEC_CUDA_LIBRARY", driver);
    command.output().expect("it runs")
}

fn succeeds(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
}

#[test]
fn entries_check_and_launch() {
    let dir = directory(TARGET);
    let args = ["./m.so", "./libfake_cuda.so", "-Wl,-rpath,.", "-pthread", "-ldl"];
    let program = compile(&dir, "cuda.c", "cuda", &args);
    let parts = [
        "launches",
        "checks",
        "failures",
        "contexts",
        "threads",
        "no_pools",
        "small_gpus",
        "lives",
    ];
    for part in parts {
        succeeds(&run(&dir, &program, &[part], "./libfake_cuda.so"));
    }
}

#[test]
fn calls_without_a_gpu_return_an_error() {
    let dir = directory(TARGET);
    let program = compile(&dir, "cuda_without.c", "without", &["./m.so", "-Wl,-rpath,."]);
    let message = |args: &[&str], driver: &str| {
        let output = run(&dir, &program, args, driver);
        succeeds(&output);
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    for entry in ["raw", "dl", "packed", "cpu"] {
        let text = message(&[entry], "./nothing.so");
        assert!(text.starts_with("no CUDA driver: ./nothing.so: cannot open"), "{text}");
        assert!(text.ends_with("(in `add(a: float32[n], b: float32[n], c: float32[n])`)"));
        let text = message(&[entry, "cuInit=100"], "./libfake_cuda.so");
        let expected = "the CUDA driver does not start: no CUDA-capable device is detected \
                        (CUDA_ERROR_NO_DEVICE) (in ";
        assert!(text.starts_with(expected), "{text}");
    }
    // A library that is not a driver.
    let text = message(&["dl"], "./m.so");
    assert!(text.starts_with("the CUDA driver ./m.so has no function cuInit"), "{text}");
}

/// Unloading a module releases the driver's module in a process that continues.
#[test]
fn unloading_frees_what_was_loaded() {
    let dir = directory(TARGET);
    let args = ["./libfake_cuda.so", "-Wl,-rpath,.", "-pthread", "-ldl"];
    let program = compile(&dir, "cuda_unload.c", "unload", &args);
    succeeds(&run(&dir, &program, &[], "./libfake_cuda.so"));
}

#[test]
fn threads_may_call_while_the_process_exits() {
    let dir = directory(TARGET);
    let args = ["./m.so", "./libfake_cuda.so", "-Wl,-rpath,.", "-pthread", "-ldl"];
    let program = compile(&dir, "cuda_exit.c", "exiting", &args);
    for _ in 0..10 {
        succeeds(&run(&dir, &program, &[], "./libfake_cuda.so"));
    }
}

#[test]
fn unusable_driver_libraries_are_closed_and_searched_again() {
    let dir = directory(TARGET);
    compile(
        &dir,
        "fake_ffi.c",
        "libtvm_ffi.so",
        &["-shared", "-fPIC", "-Wl,-soname,libtvm_ffi.so"],
    );
    compile(&dir, "fake_ffi.c", "nothing.so", &["-shared", "-fPIC"]);
    let program =
        compile(&dir, "cuda_libraries.c", "libraries", &["-I.", "-include", "m.h", "-ldl"]);
    succeeds(&run(&dir, &program, &["no_driver"], "./nothing.so"));
    succeeds(&run(&dir, &program, &["late"], "./libfake_cuda.so"));
    let mut command = Command::new(&program);
    command.arg("no_gpu").current_dir(dir.path()).env("TEC_CUDA_LIBRARY", "./libfake_cuda.so");
    succeeds(&command.env("FAKE_CUDA_FAIL", "cuInit=100").output().expect("it runs"));
}

#[test]
fn modules_for_one_capability_run_only_on_it() {
    let dir = directory("nvptx-sm_90a");
    let program = compile(&dir, "cuda_without.c", "without", &["./m.so", "-Wl,-rpath,."]);
    let output = run(&dir, &program, &["dl", "", "100"], "./libfake_cuda.so");
    let text = String::from_utf8_lossy(&output.stdout).to_string();
    let expected = "this GPU has compute capability 10.0: the module was compiled for target \
                    nvptx-sm_90a (in ";
    assert!(text.starts_with(expected), "{text}");
    let text = run(&dir, &program, &["dl", "", "90"], "./libfake_cuda.so").stdout;
    assert_eq!(String::from_utf8_lossy(&text).trim(), "no error");
}

#[test]
fn only_the_interface_is_visible() {
    let built = build(ModuleKind::SharedObject, TARGET);
    let file = object::File::parse(&built.bytes[..]).unwrap();
    let wanted = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    let strong: Vec<String> = wanted
        .filter(|symbol| !symbol.is_weak())
        .map(|symbol| symbol.name().unwrap().to_string())
        .collect();
    let allowed = ["__tls_get_addr", "clock_gettime", "getenv", "mmap", "munmap", "syscall"];
    assert!(strong.iter().all(|name| allowed.contains(&name.as_str())), "{strong:?}");
    let defined = file.dynamic_symbols().filter(|symbol| !symbol.is_undefined());
    assert!(defined.map(|symbol| symbol.name().unwrap()).all(|name| !name.contains("cuda")));
}

#[test]
fn builds_are_reproducible() {
    for kind in [ModuleKind::SharedObject, ModuleKind::Archive, ModuleKind::Ptx] {
        assert_eq!(build(kind, TARGET).bytes, build(kind, TARGET).bytes);
    }
}

#[test]
fn manifests_describe_launches() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifests = Vec::new();
    for (kind, name) in [
        (ModuleKind::SharedObject, "m.so"),
        (ModuleKind::Archive, "m.tar"),
        (ModuleKind::Ptx, "m.ptx"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, build(kind, TARGET).bytes).unwrap();
        manifests.push(read_manifest(&path).unwrap());
    }
    assert!(manifests.windows(2).all(|pair| pair[0] == pair[1]));
    let manifest = &manifests[0];
    assert_eq!(manifest.target.name, TARGET);
    assert_eq!(manifest.target.arch, "nvptx");
    assert_eq!(manifest.ptx_version.as_deref(), Some("7.0"));
    let chain = &manifest.kernels[1];
    assert_eq!(chain.workspace_bytes.to_string(), "n*4 + n*k");
    // 151,552 bytes of shared memory: some of the later GPUs have less.
    assert_eq!(chain.gpus, ["nvptx-sm_80", "nvptx-sm_87", "nvptx-sm_90", "nvptx-sm_100"]);
    assert_eq!(manifest.kernels[0].gpus.len(), 7);
    let launches = serde_json::to_value(&chain.launches).unwrap();
    assert_eq!(
        launches[0],
        serde_json::json!({
            "name": "chain_0",
            "grid": ["n", "k", 1],
            "block": [32, 4, 2],
            "static_shared_bytes": 0,
            "dynamic_shared_bytes": 151552,
            "params": [
                { "kind": "arg", "arg": 0 },
                { "kind": "arg", "arg": 1 },
                { "kind": "arg", "arg": 2 },
                { "kind": "arg", "arg": 3 },
                { "kind": "arg", "arg": 4 },
                { "kind": "workspace", "workspace": 0 },
                { "kind": "index", "value": "n*k + 7" },
            ],
        })
    );
    let text = std::fs::read_to_string(dir.path().join("m.ptx")).unwrap();
    assert!(text.starts_with(&standard().1.text));
}

#[test]
fn archives_contain_the_ptx() {
    let bytes = build(ModuleKind::Archive, TARGET).bytes;
    let mut archive = tar::Archive::new(&bytes[..]);
    let names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    assert_eq!(names, ["m.json", "m.h", "m.ptx", "m.o", "tec_runtime.o"]);
}

/// The entries in the program itself, without a shared object.
#[test]
fn archives_are_linked_into_programs() {
    let dir = directory(TARGET);
    let bytes = build(ModuleKind::Archive, TARGET).bytes;
    tar::Archive::new(&bytes[..]).unpack(dir.path()).expect("it is unpacked");
    let driver = ["./libfake_cuda.so", "-Wl,-rpath,.", "-pthread", "-ldl"];
    let library = build(ModuleKind::StaticLibrary, TARGET).bytes;
    std::fs::write(dir.path().join("m.a"), library).expect("it can be written");
    let objects = ["m.o", "tec_runtime.o"];
    let pie = ["-fPIE", "-pie"];
    for (objects, more) in [(&objects[..], &["-no-pie"][..]), (&objects, &pie), (&["m.a"], &pie)] {
        let args = [objects, &driver[..], more].concat();
        let program = compile(&dir, "cuda.c", "static", &args);
        for part in ["launches", "checks"] {
            succeeds(&run(&dir, &program, &[part], "./libfake_cuda.so"));
        }
    }
}

#[test]
fn outputs_that_a_target_does_not_have_are_refused() {
    let (kernels, ptx) = standard();
    let info = kernels::info("m", &kernels, Target::parse(TARGET).unwrap());
    for (kind, help) in [
        (ModuleKind::Object, "end it in `.ptx`, `.a`, `.tar` or `.so`"),
        (ModuleKind::Listing, "PTX is a text: end it in `.ptx`"),
    ] {
        let error = build_gpu_module(&kernels, &ptx, &info, kind).unwrap_err();
        assert_eq!(error.code, "E0528");
        assert_eq!(error.help.as_deref(), Some(help));
    }
}

/// `tec` in a directory, with a driver.
fn tec(dir: &TempDir, args: &[&str], driver: &str, failing: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
    command.args(args).current_dir(dir.path());
    command.env("TEC_CUDA_LIBRARY", driver).env("FAKE_CUDA_FAIL", failing);
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.to_string())
}

#[test]
fn modules_are_timed_by_gpu_events() {
    let dir = directory(TARGET);
    let driver = "./libfake_cuda.so";
    let args = ["bench", "m.so", "--kernel", "add", "--var", "n=5", "--min-time", "0", "--json"];
    let (success, text) = tec(&dir, &args, driver, "");
    assert!(success, "{text}");
    // The events of this driver are 2 ms apart, around one call.
    assert!(text.contains("\"median_ns\": 2000000.0"), "{text}");
    for (failing, expected) in [
        ("cuEventCreate=2", "an event of the GPU: out of memory"),
        ("cuEventRecord=700", "an event of the GPU: an illegal memory access was encountered"),
        ("cuEventSynchronize=700", "running the kernel: an illegal memory access was encountered"),
        ("cuEventElapsedTime=4711", "running the kernel: error 4711"),
    ] {
        let (success, text) = tec(&dir, &args, driver, failing);
        let head = format!("error[E0548]: {expected}");
        assert!(!success && text.contains(&head), "{failing}: {text}");
    }
    let (success, text) = tec(&dir, &args, "./nothing.so", "");
    assert!(!success && text.contains("error[E0548]: there is no CUDA driver"), "{text}");
    let roofline = [&args[..], &["--roofline=fresh"]].concat();
    let (success, text) = tec(&dir, &roofline, driver, "");
    assert!(!success && text.contains("error[E0546]") && text.contains(TARGET), "{text}");
}

#[test]
fn modules_run_from_the_command_line() {
    let dir = directory(TARGET);
    let driver = "./libfake_cuda.so";
    let args = ["run", "m.so", "--kernel", "add", "--var", "n=5"];
    let (success, text) = tec(&dir, &args, driver, "");
    // This driver launches nothing: the output is what was uploaded.
    assert!(success, "{text}");
    assert_eq!(text, "c: float32[5]  min 0.000000  max 0.000000  mean 0.000000\n");
    for (failing, expected) in [
        ("cuInit=100", "the CUDA driver does not start: no CUDA-capable device is detected"),
        ("cuMemAlloc_v2=2", "memory of the GPU: out of memory"),
        ("cuMemcpyDtoH_v2=700", "copying a result: an illegal memory access was encountered"),
        ("cuStreamSynchronize=700", "running the kernel: an illegal memory access was encount"),
        ("cuMemcpyHtoD_v2=4711", "memory of the GPU: error 4711"),
    ] {
        let (success, text) = tec(&dir, &args, driver, failing);
        let head = format!("error[E0548]: {expected}");
        assert!(!success && text.starts_with(&head), "{failing}: {text}");
    }
    // The module's own message.
    let (success, text) = tec(&dir, &args, driver, "cuLaunchKernel=700");
    assert!(!success && text.starts_with("error[E0525]: launching kernel `add`: "), "{text}");
    let (success, text) = tec(&dir, &args, "./nothing.so", "");
    assert!(!success && text.starts_with("error[E0548]: there is no CUDA driver"), "{text}");
    let (success, text) = tec(&dir, &["inspect", "m.so"], driver, "");
    assert!(success && text.contains("\n  launch chain_0: grid n, k, 1; block 32, 4, 2"), "{text}");
    assert!(text.contains("\n  fits sm_80, sm_87, sm_90, sm_100\n"), "{text}");
}

// ---- tec tune ----

const TUNED: &str = "kernel plus(n = 64) {
    input A: float32[n]
    output B[i: n] = A[i] + 1.0
}

schedule plus.blocks for nvptx {
    knob threads = 32 in [1, 2, 4, 8, 16, 32, 64]
    let b, t = B.split(i, factor=threads)
    B.bind(b, blockIdx.x)
    B.bind(t, threadIdx.x)
}
";

/// Returns a directory with a program and a GPU that computes it.
fn tuning() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory for the test");
    std::fs::write(dir.path().join("p.te"), TUNED).unwrap();
    let second = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/fake_gpu.c");
    let second = second.to_str().expect("a path in UTF-8");
    let args = ["-shared", "-fPIC", "-pthread", second];
    compile(&dir, "fake_cuda.c", "libfake_gpu.so", &args);
    dir
}

/// `tec tune` of the program's knobs: whether it succeeds, and its messages.
fn tune(dir: &TempDir, more: &[&str], set: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
    command.args(["tune", "p.te", "--target", TARGET, "--schedule", "plus.blocks"]);
    command.args(more).current_dir(dir.path());
    command.env("XDG_CACHE_HOME", dir.path().join("cache"));
    command.env("TEC_CUDA_LIBRARY", "./libfake_gpu.so").envs(set.iter().copied());
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.to_string())
}

/// Returns the records of a search: threads of a block, and the verdict or the failure.
fn records(dir: &TempDir) -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(dir.path().join("p.records.jsonl")).expect("records");
    let record = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(record["machine"]["cpu"], "no GPU 0", "{line}");
        let threads = record["decisions"][0][1].as_str().expect("a number").parse().unwrap();
        let failure = record["failure"].to_string();
        let verdict = record["verdict"].as_str().expect("a verdict").to_string();
        (threads, if failure == "null" { verdict } else { failure })
    };
    text.lines().filter(|line| !line.contains("\"in_turns\":true")).map(record).collect()
}

#[test]
fn trials_are_measured_on_a_gpu_and_verified() {
    let dir = tuning();
    let (success, text) = tune(&dir, &[], &[]);
    assert!(success, "{text}");
    assert!(text.contains(&format!("# plus on {TARGET}, no GPU 0: 7 trials in ")), "{text}");
    // The fastest of this GPU's blocks.
    assert!(
        text.contains("the best takes 1.016 ms") && text.contains("let threads = 1\n"),
        "{text}"
    );
    let records = records(&dir);
    assert_eq!(records.len(), 7, "{records:?}");
    assert!(records.iter().all(|(_, verdict)| verdict == "same"), "{records:?}");
}

#[test]
fn a_candidate_that_kills_the_context_is_a_failure_and_the_search_goes_on() {
    let dir = tuning();
    let (success, text) = tune(&dir, &[], &[("FAKE_GPU_KILLS", "32")]);
    assert!(success, "{text}");
    assert!(text.contains("the best takes 1.016 ms"), "{text}");
    let records = records(&dir);
    assert_eq!(records.len(), 7, "{records:?}");
    for (threads, verdict) in records {
        match threads {
            32 => assert!(verdict.contains("illegal memory access"), "{verdict}"),
            _ => assert_eq!(verdict, "same", "{threads}"),
        }
    }
}

#[test]
fn wrong_results_of_a_gpu_are_found() {
    let dir = tuning();
    let (success, text) = tune(&dir, &[], &[("FAKE_GPU_WRONG", "1")]);
    assert!(success, "{text}");
    assert!(text.contains("a bug in tec: p.wrong-1.te holds a wrong candidate"), "{text}");
    assert!(text.contains("let threads = 2\n"), "{text}");
    let wrong: Vec<u64> = records(&dir)
        .into_iter()
        .filter_map(|(threads, verdict)| (verdict == "wrong").then_some(threads))
        .collect();
    assert_eq!(wrong, [1]);
}

#[test]
fn without_a_gpu_the_cost_model_decides_with_a_note() {
    let dir = tuning();
    let missing = [("TEC_CUDA_LIBRARY", "./nothing.so")];
    let (success, text) = tune(&dir, &["--records", "p.records.jsonl"], &missing);
    assert!(success, "{text}");
    let head = format!("# plus on {TARGET}: an estimate, nothing was measured (there is no CUDA");
    assert!(text.contains(&head) && text.contains("the best is estimated to take "), "{text}");
    for part in
        ["7 candidates", "# launches ", "schedule plus.tuned for nvptx", "so nothing is recorded"]
    {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(!dir.path().join("p.records.jsonl").exists());
    // The printed schedule can be pasted into the file.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
    command.args(["tune", "p.te", "--target", TARGET, "--trials", "40"]).current_dir(dir.path());
    let output = command.env("TEC_CUDA_LIBRARY", "./nothing.so").output().expect("it runs");
    assert!(output.status.success());
    let best = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(best.contains("schedule plus.tuned for nvptx-sm_80 {"), "{best}");
    std::fs::write(dir.path().join("p.te"), format!("{TUNED}\n{best}")).unwrap();
    let args = ["run", "p.te", "--target", TARGET, "--emulate", "--verify"];
    let (success, text) = tec(&dir, &args, "./nothing.so", "");
    assert!(success && text.contains("B: bit-identical to the interpreter"), "{text}");
}

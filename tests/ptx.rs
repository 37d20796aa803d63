//! The PTX of the samples, and of programs in `tests/ptx`: `ptxas` accepts it for every
//! architecture, the emulator finds no defects, its results equal the interpreter's bit for bit,
//! and a module launches it as the emulator does.
//!
//! `ptxas` is `TEC_PTXAS`, or the one that `make` installs into `.venv`; without it those tests
//! print "skipped".

use crate::support::{Disk, answer, ptxas, run_alone};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tec::codegen::ptx::{PtxModule, compile_ptx};
use tec::driver::{self, Options, Trace};
use tec::emulate::{Emulator, Orders};
use tec::ir::interp::{Tensor, Value};
use tec::ir::{DType, Kernel, Param, Role, interp};
use tec::module::gpu::Gpu;
use tec::module::load::{LoadedModule, args_of};
use tec::module::{BuildInfo, KernelInfo, ModuleKind, build_gpu_module};
use tec::target::Target;
use tec::te::Graph;

/// Architectures that every sample is assembled for, if it has what the sample needs.
const ARCHES: [&str; 7] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// Sizes of kernels besides the default one, small enough for the interpreter: with partial, single
/// and many blocks and threads. A kernel that is not in the list has only its default size.
const SIZES: &[(&str, &[&str])] = &[
    ("vector_add", &["n=1", "n=64", "n=1000"]),
    ("broadcast_add", &["m1=40 n1=1 m2=40 n2=50", "m1=1 n1=600 m2=70 n2=600"]),
    ("matmul", &["n=64", "n=128 m=64 l=96", "n=130 m=70 l=36"]),
    (
        "matmul_bf16",
        &[
            "n=256 m=128 l=192",
            "n=128 l=192 tensor.stages=3",
            "n=256 m=512 l=384",
            "n=128 m=256 l=320 hopper.stages=3",
            "n=256 m=128 l=192 hopper.wy=2 hopper.groups=8 hopper.stages=2",
            "n=128 m=64 l=64 hopper.groups=8",
        ],
    ),
    ("conv", &["oc=8 ic=3 nh=20 nw=33", "oc=6 ic=4 nh=9 kh=1 ph=0", "oc=4 ic=2 nh=17 sh=2"]),
    ("depthwise_conv", &["ic=3 nh=20 nw=67", "ic=5 nh=16 ph=0 sh=2"]),
    ("max_pool", &["c=3 nh=40", "c=2 nh=21 ph=0 sh=2 kh=2"]),
    ("avg_pool", &["c=3 nh=40", "c=2 nh=21 ph=0 sh=2 kh=2"]),
    ("batch_norm", &["c=3 n=40", "c=1 n=5"]),
    ("index_products", &["n=41"]),
    ("pipelined", &["n=64 m=64 l=16", "n=16 m=16 l=160", "n=33 m=16 l=31", "plain.stages=5"]),
];

/// A schedule for GPUs of a sample.
#[derive(Clone, Debug)]
struct Sample {
    file: PathBuf,
    kernel: String,
    schedule: String,
    /// A target that it is for.
    target: &'static str,
}

/// Returns every schedule for GPUs that the samples have.
fn samples() -> Vec<Sample> {
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in ["samples", "tests/ptx"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let inside = std::fs::read_dir(folder).expect("the samples");
        files.extend(inside.map(|entry| entry.expect("a file").path()));
    }
    files.retain(|file| file.extension().is_some_and(|ending| ending == "te"));
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a sample in UTF-8");
        for rest in text.split("\nschedule ").skip(1) {
            let head = rest.split('{').next().unwrap_or_default();
            let name = head.split(['(', ' ', '\n']).next().unwrap_or_default();
            if let (true, Some((kernel, schedule))) =
                (head.contains("for nvptx"), name.split_once('.'))
            {
                let (kernel, schedule) = (kernel.to_string(), schedule.to_string());
                let of_hopper = head.contains("for nvptx-sm_90a");
                let target = if of_hopper { "nvptx-sm_90a" } else { "nvptx-sm_80" };
                found.push(Sample { file: file.clone(), kernel, schedule, target });
            }
        }
    }
    assert!(found.len() >= 13, "{found:?}");
    found
}

/// A compiled sample.
struct Compiled {
    graph: Graph,
    kernel: Kernel,
    ptx: PtxModule,
    target: Target,
}

/// Compiles a sample with these parameters; the message, if the target cannot do it.
fn compile(sample: &Sample, defines: &str, target: &str) -> Result<Compiled, String> {
    let mut options = Options::new(Target::parse(target).expect("a target"));
    options.kernels = Some(vec![sample.kernel.clone()]);
    options.schedule = Some((Some(sample.kernel.clone()), sample.schedule.clone()));
    let define = |text: &str| {
        let (name, value) = text.split_once('=').expect("a name and a value");
        (Some(sample.kernel.clone()), name.to_string(), value.to_string())
    };
    options.defines = defines.split_whitespace().map(define).collect();
    let mut trace = Trace::default();
    let path = sample.file.to_str().expect("a path in UTF-8");
    let program = driver::load(path, &Disk, &mut trace).map_err(|(_, f)| format!("{f:?}"))?;
    let failed = |failure: driver::Failure| match failure {
        driver::Failure::User(diags) => {
            diags.iter().map(|diag| format!("{}: {}\n", diag.code, diag.message)).collect()
        }
        bug => format!("{bug:?}"),
    };
    let graphs = driver::elaborate(&program, &options, &mut trace).map_err(failed)?;
    let bounded = driver::schedule(&program, graphs, &options, &mut trace).map_err(failed)?;
    let bounded = bounded.into_iter().next().expect("the kernel");
    let kernel = driver::lower(&bounded, &options, None, &mut trace).map_err(failed)?;
    let kernels = std::slice::from_ref(&kernel);
    let ptx = driver::compile_ptx(kernels, &options.target, &mut trace).map_err(failed)?;
    Ok(Compiled { graph: bounded.schedule.graph, kernel, ptx, target: options.target })
}

/// Random arguments of the right shapes; outputs are zero.
fn arguments(kernel: &Kernel, seed: u64) -> Vec<Value> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut argument = |param: &Param| match param {
        Param::Tensor { buffer, role, .. } => {
            let extent = |extent: &tec::ir::Expr| extent.as_int().expect("constant shapes") as i64;
            let shape: Vec<i64> = buffer.shape.iter().map(extent).collect();
            let count = shape.iter().product::<i64>() as usize;
            let mut number = || if *role == Role::Output { 0.0 } else { random.random::<f32>() };
            let data: Vec<u8> = match buffer.dtype {
                DType::Float32 => (0..count).flat_map(|_| number().to_le_bytes()).collect(),
                // Small integers: the sums of tensor cores are exact, whatever their order.
                DType::BFloat16 => (0..count)
                    .flat_map(|_| (number() * 16.0).floor().to_bits().to_be_bytes()[..2].to_vec())
                    .collect::<Vec<u8>>()
                    .chunks(2)
                    .flat_map(|pair| [pair[1], pair[0]])
                    .collect(),
                other => panic!("no arguments of {other}"),
            };
            Value::Tensor(Tensor { dtype: buffer.dtype, shape, data })
        }
        other => panic!("samples for GPUs have tensors alone, not {}", other.name()),
    };
    kernel.params.iter().map(&mut argument).collect()
}

/// The results of the interpreter for the arguments: of the default schedule, or, if the schedule
/// changes the order of terms, of the schedule.
fn interpret(compiled: &Compiled, args: &mut [Value]) {
    let reference = match compiled.kernel.reassociated {
        true => compiled.kernel.clone(),
        false => driver::lower_unoptimized(&compiled.graph, &compiled.target)
            .expect("the default schedule"),
    };
    interp::run(&reference, args).expect("the interpreter accepts the arguments");
}

/// Default and other sizes of a sample's kernel.
fn sizes(sample: &Sample) -> Vec<&'static str> {
    let more = SIZES.iter().find(|(kernel, _)| *kernel == sample.kernel);
    let default = match &sample.kernel[..] {
        "matmul" => "n=32",
        "matmul_bf16" => "n=128",
        _ => "",
    };
    std::iter::once(default)
        .chain(more.into_iter().flat_map(|(_, more)| more.iter().copied()))
        .collect()
}

#[test]
fn the_emulator_agrees_and_finds_no_defects() {
    driver::with_stack(|| {
        for sample in samples() {
            for size in sizes(&sample) {
                let what = format!("{}.{} {size}", sample.kernel, sample.schedule);
                let compiled = match compile(&sample, size, sample.target) {
                    Ok(compiled) => compiled,
                    // A size that a schedule is not for.
                    Err(message) if message.starts_with("E03") => continue,
                    Err(message) => panic!("{what}: {message}"),
                };
                let mut actual = arguments(&compiled.kernel, 1);
                let mut expected = actual.clone();
                interpret(&compiled, &mut expected);
                let emulator = Emulator::new(&compiled.ptx).expect("the text is understood");
                let emulation = emulator.run(&compiled.kernel, 0, &mut actual, Orders::Both);
                let emulation = emulation.expect("it runs");
                assert!(emulation.is_clean(), "{what}:\n{}", emulation.describe());
                assert!(actual == expected, "{what}: results differ");
            }
        }
    });
}

// ---- ptxas ----

/// Returns the registers and bytes of spills that `ptxas -v` reports for each entry.
fn assemble(ptxas: &Path, text: &str, arch: &str) -> Result<(u32, u32), String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let directory = tempfile::tempdir().expect("a directory");
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = directory.path().join(format!("{number}.ptx"));
    std::fs::write(&path, text).expect("the text is written");
    let output = Command::new(ptxas)
        .args(["-v", &format!("-arch={arch}"), "-o", "/dev/null"])
        .arg(&path)
        .output()
        .expect("ptxas runs");
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(said.to_string());
    }
    let number_before = |line: &str, what: &str| -> Option<u32> {
        line.split(what).next()?.split([' ', ',']).rfind(|word| !word.is_empty())?.parse().ok()
    };
    let (mut registers, mut spills) = (0, 0);
    for line in said.lines() {
        if line.contains("bytes spill stores") {
            spills += number_before(line, " bytes spill stores").expect("a number");
        }
        if line.contains(" registers") {
            registers = registers.max(number_before(line, " registers").expect("a number"));
        }
    }
    assert!(registers > 0, "{said}");
    Ok((registers, spills))
}

#[test]
fn ptxas_accepts_every_sample() {
    let Some(ptxas) = ptxas() else { return };
    driver::with_stack(|| {
        for sample in samples() {
            let specific = (sample.target == "nvptx-sm_90a").then_some("sm_90a");
            let arches = if specific.is_some() { &[][..] } else { &ARCHES };
            for arch in arches.iter().copied().chain(specific) {
                let what = format!("{}.{} on {arch}", sample.kernel, sample.schedule);
                let compiled = match compile(&sample, "", &format!("nvptx-{arch}")) {
                    Ok(compiled) => compiled,
                    Err(message) if message.starts_with("E0403") => continue,
                    Err(message) => panic!("{what}: {message}"),
                };
                let (registers, spills) = match assemble(&ptxas, &compiled.ptx.text, arch) {
                    Ok(told) => told,
                    Err(said) => panic!("{what}: {said}"),
                };
                // Two blocks of `tensor` are resident: 128 threads with 255 registers each.
                let most = match &sample.schedule[..] {
                    "fast" => 128,
                    "tensor" => 255,
                    // One block of 256 threads.
                    "hopper" => 255,
                    _ => continue,
                };
                assert_eq!(spills, 0, "{what}: bytes of spills");
                assert!(registers <= most, "{what}: {registers} registers");
            }
        }
    });
}

/// In the loop of a pipeline, no barrier stands between the loads of fragments and products that
/// are independent of them: the fragments of a step are loaded during the products of the one
/// before, those of an iteration's first step after the barrier and before the last products of the
/// previous iteration.
#[test]
fn fragments_are_loaded_while_products_run() {
    driver::with_stack(|| {
        let is_it = |s: &Sample| s.schedule == "tensor";
        let sample = samples().into_iter().find(is_it).expect("a schedule of the sample");
        let compiled = compile(&sample, "n=256 l=512", "nvptx-sm_80").expect("it compiles");
        let lines: Vec<&str> = compiled.ptx.text.lines().map(str::trim).collect();
        let mut loops = 0;
        for (end, line) in lines.iter().enumerate() {
            let Some((_, label)) = line.split_once("bra ") else { continue };
            let head = format!("{}:", label.trim_end_matches(';'));
            let Some(start) = lines[..end].iter().position(|line| *line == head) else { continue };
            let kinds: Vec<char> = lines[start..end]
                .iter()
                .filter_map(|line| match line.split(['.', ' ']).next() {
                    Some("mma") => Some('m'),
                    Some("ldmatrix") => Some('l'),
                    Some("bar") => Some('b'),
                    _ => None,
                })
                .collect();
            let text: String = kinds.into_iter().collect();
            let (before, after) = text.split_once('b').expect("one barrier");
            // Twelve fragments: four of A, eight of B.
            assert_eq!(after, "l".repeat(12) + &"m".repeat(32), "{text}");
            assert_eq!(before.matches('l').count(), 12, "{text}");
            assert!(before.ends_with("mm") && before.matches('m').count() == 32, "{text}");
            loops += 1;
        }
        assert!(loops > 0, "{}", compiled.ptx.text);
    });
}

/// Sizes at which tiles cross the border.
#[test]
fn tiles_at_the_border_spill_no_registers() {
    let Some(ptxas) = ptxas() else { return };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/matmul.te");
    let (kernel, schedule, target) = ("matmul".to_string(), "fast".to_string(), "nvptx-sm_80");
    let sample = Sample { file, kernel, schedule, target };
    driver::with_stack(|| {
        for (size, arch) in [("n=1001", "sm_75"), ("n=1001", "sm_90"), ("n=1000", "sm_80")] {
            let compiled = compile(&sample, size, &format!("nvptx-{arch}")).expect("it compiles");
            let (registers, spills) = assemble(&ptxas, &compiled.ptx.text, arch).expect("PTX");
            let what = format!("{size} on {arch}: {registers} registers, {spills} bytes");
            assert!(registers <= 144 && spills == 0, "{what}");
        }
    });
}

/// Returns the notes of the back end about a kernel.
fn notes(compiled: &Compiled) -> Vec<String> {
    let kernel = std::slice::from_ref(&compiled.kernel);
    compile_ptx(kernel, &compiled.target).expect("PTX").notes
}

/// Every copy of a pipeline is asynchronous, however many stages it has: where one stage begins is
/// a multiple of its size, though a remainder by 3 is computed outside of the loops.
#[test]
fn pipelines_copy_asynchronously_with_any_number_of_stages() {
    driver::with_stack(|| {
        for (kernel, size) in [("matmul_bf16", "n=128 l=512"), ("pipelined", "n=64 m=64 l=160")] {
            let is_it = |one: &Sample| one.kernel == kernel && one.schedule != "hopper";
            let mut all = samples().into_iter().filter(is_it);
            let sample = all.next_back().expect("it has a schedule");
            let copies = |stages: usize| {
                let defines = format!("{size} {}.stages={stages}", sample.schedule);
                let compiled = compile(&sample, &defines, "nvptx-sm_80").expect("it compiles");
                let slow = notes(&compiled).into_iter().find(|note| note.contains("registers"));
                assert_eq!(slow, None);
                let ptx = compiled.ptx;
                assert!(!ptx.text.contains("st.shared"), "{kernel}, {stages} stages");
                ptx.text.matches("cp.async.c").count() - ptx.text.matches("commit_group").count()
            };
            // A group before the loop for each stage but the last, and one in it.
            let group = copies(4) / 4;
            assert!(group > 0);
            for stages in 2..=6 {
                assert_eq!(copies(stages), stages * group, "{kernel}, {stages} stages");
            }
        }
    });
}

/// A module for sm_80 also runs on sm_86, which has less shared memory.
#[test]
fn kernels_that_do_not_fit_every_gpu_are_noted() {
    let mut all = samples().into_iter().filter(|one| one.schedule == "tensor");
    let sample = all.next_back().expect("it has a schedule");
    let notes_of = |target: &'static str| {
        let compile = || compile(&sample, "tensor.stages=6", target).expect("it compiles");
        driver::with_stack(|| notes(&compile()))
    };
    let expected = "`matmul_bf16` needs 113664 bytes of shared memory for a block: sm_80, sm_87, \
                    sm_90, sm_100 have them, sm_86, sm_89, sm_120 do not, and its calls fail there";
    assert_eq!(notes_of("nvptx-sm_80"), [expected]);
    assert_eq!(notes_of("nvptx-sm_90a"), [""; 0]);
}

/// A note names the stages that `cp.async` cannot copy.
#[test]
fn copies_through_registers_are_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bytes.te");
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx/pipeline.te"),
    );
    let text = text.expect("the sample");
    let text = text.replace("input A: float32", "input A: bfloat16");
    let text = text.replace("A[x, k] *", "(A[x, k] as float32) *");
    std::fs::write(&file, text).expect("it is written");
    let (kernel, schedule) = ("pipelined".to_string(), "plain".to_string());
    let sample = Sample { file, kernel, schedule, target: "nvptx-sm_80" };
    let notes =
        driver::with_stack(|| notes(&compile(&sample, "", "nvptx-sm_80").expect("it compiles")));
    let expected = "the pipeline of `pipelined` copies `A.shared` through registers, where threads \
                    wait for it: it is copied in pieces of 2 bytes, `cp.async` takes 4, 8 or 16";
    assert_eq!(notes, [expected]);
}

// ---- modules ----

/// Memory of the driver in `tests/c/fake_cuda.c`: the start of the allocation of an address, and
/// its bytes.
type FindMemory = unsafe extern "C" fn(u64, *mut u64) -> u64;

static FIND_MEMORY: Mutex<Option<FindMemory>> = Mutex::new(None);

/// Runs a launch of the fake driver in the emulator, on the process's memory.
unsafe extern "C" fn emulate_launch(
    ptx: *const std::ffi::c_char,
    kernel: *const std::ffi::c_char,
    grid: *const u32,
    block: *const u32,
    shared: u32,
    count: i32,
    sizes: *const i32,
    params: *const *const u8,
) -> i32 {
    use nvptx_emulator::{Launch, Memory, Module};
    let find = FIND_MEMORY.lock().unwrap().expect("the test set it");
    // SAFETY: the fake driver passes terminated strings, three numbers each, and as many parameters
    // and sizes as it states.
    let (text, name, grid, block, params) = unsafe {
        let text = |text| std::ffi::CStr::from_ptr(text).to_str().expect("UTF-8");
        let three = |at: *const u32| [*at, *at.add(1), *at.add(2)];
        let param = |i: usize| std::slice::from_raw_parts(*params.add(i), *sizes.add(i) as usize);
        let params: Vec<&[u8]> = (0..count as usize).map(param).collect();
        (text(ptx), text(kernel), three(grid), three(block), params)
    };
    let module = Module::parse(text).expect("the text is understood");
    let mut memory = Memory::new();
    let mut launch = Launch::new(&module, name).grid(grid).block(block).shared(shared).partial();
    let mut buffers = Vec::new();
    for param in params {
        let address = param.try_into().map_or(0, u64::from_le_bytes);
        let mut bytes = 0;
        // SAFETY: the function has this signature.
        let start = unsafe { find(address, &mut bytes) };
        if start == 0 {
            launch = launch.bytes(param);
            continue;
        }
        let pointer = std::ptr::with_exposed_provenance_mut::<u8>(start as usize);
        // SAFETY: the driver allocated this many bytes there, and nothing else uses them now.
        let data = unsafe { std::slice::from_raw_parts_mut(pointer, bytes as usize) };
        let buffer = memory.inout("memory", data);
        launch = launch.buffer_at(buffer, address - start);
        buffers.push((buffer, data));
    }
    let report = launch.run(&mut memory).expect("it runs");
    assert!(report.is_clean(), "{report}");
    for (buffer, data) in buffers {
        data.copy_from_slice(memory.bytes(buffer));
    }
    0
}

/// Returns a module of a compiled sample, loaded.
fn module_of(compiled: &Compiled, directory: &Path, number: usize) -> LoadedModule {
    let work =
        tec::ir::cost::Work { flops: tec::ir::Expr::index(0), bytes: tec::ir::Expr::index(0) };
    let info = BuildInfo {
        module: "m".into(),
        target: compiled.target.clone(),
        fp_contract: "fast".into(),
        opt: 3,
        sources: vec![],
        kernels: vec![KernelInfo {
            parameters: vec![],
            schedule: "default".into(),
            automatic: false,
            work,
            prepack_role: None,
        }],
    };
    let kernels = std::slice::from_ref(&compiled.kernel);
    let built = build_gpu_module(kernels, &compiled.ptx, &info, ModuleKind::SharedObject);
    let path = directory.join(format!("m{number}.so"));
    std::fs::write(&path, built.expect("a module").bytes).expect("it is written");
    LoadedModule::open(&path).expect("it loads")
}

/// An environment variable names the driver for the module, and no other test may see it, so the
/// test runs itself in its own process.
#[test]
fn modules_launch_what_the_emulator_runs() {
    const VARIABLE: &str = "TEC_CUDA_LIBRARY";
    let Some(library) = std::env::var_os(VARIABLE) else {
        let directory = tempfile::tempdir().expect("a directory");
        let library = directory.path().join("libfake_cuda.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/fake_cuda.c");
        let compiled = Command::new("cc")
            .args(["-std=c11", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread"])
            .arg(source)
            .arg("-o")
            .arg(&library)
            .status();
        assert!(compiled.expect("a C compiler is there").success());
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        let name = "ptx::modules_launch_what_the_emulator_runs";
        return run_alone(name, command.env(VARIABLE, &library));
    };
    let directory = tempfile::tempdir().expect("a directory");
    // SAFETY: the fake driver's functions have these signatures.
    let driver_library = unsafe {
        let opened = libloading::Library::new(&library).expect("the driver loads");
        let find = opened.get::<FindMemory>(b"fake_memory").expect("its function");
        *FIND_MEMORY.lock().unwrap() = Some(*find);
        type OnLaunch = unsafe extern "C" fn(*const std::ffi::c_void);
        let on_launch = opened.get::<OnLaunch>(b"fake_on_launch").expect("its function");
        on_launch(emulate_launch as *const std::ffi::c_void);
        opened
    };
    driver::with_stack(|| {
        // Its context is current for this thread alone.
        let gpu = Gpu::open().expect("the driver starts");
        // The driver has a GPU of capability 8.0.
        let fits = |sample: &Sample| sample.target == "nvptx-sm_80";
        for (number, sample) in samples().into_iter().filter(fits).enumerate() {
            let size = if sample.kernel.starts_with("matmul") { "n=128" } else { "" };
            let compiled = compile(&sample, size, "nvptx-sm_80").expect("it compiles");
            let mut actual = arguments(&compiled.kernel, 2);
            let mut expected = actual.clone();
            interpret(&compiled, &mut expected);
            let module = module_of(&compiled, directory.path(), number);
            let kernel = module.kernel(&sample.kernel).expect("its kernel");
            gpu.call(&kernel, args_of(&compiled.kernel, &mut actual)).expect("it runs");
            assert!(actual == expected, "{}.{}", sample.kernel, sample.schedule);
        }
    });
    drop(driver_library);
}

#[test]
fn indices_have_32_bits_where_they_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sizes.te");
    // The assumptions on the sizes bound them, and so does the largest grid, with 65,535 blocks
    // along y.
    let text = "kernel assumed(n: var, m: var) {
    assume n <= 4096
    assume m <= 4096
    input A: float32[n, m]
    output C[i: n, j: m] = A[i, j] + 1.0
}

kernel rows(n: var) {
    input A: float32[n, 32]
    output C[i: n, j: 32] = A[i, j] + 1.0
}

schedule rows.by_rows for nvptx {
    C.bind(i, blockIdx.y)
    C.bind(j, threadIdx.x)
}

kernel unknown(n: var) {
    input A: float32[n]
    output C[i: n] = A[i] + 1.0
}
";
    std::fs::write(&file, text).expect("it is written");
    for (kernel, schedule, wide) in
        [("assumed", "auto", false), ("rows", "by_rows", false), ("unknown", "auto", true)]
    {
        let (kernel, schedule) = (kernel.to_string(), schedule.to_string());
        let sample = Sample { file: file.clone(), kernel, schedule, target: "nvptx-sm_80" };
        let ptx = driver::with_stack(|| compile(&sample, "", "nvptx-sm_80").expect("it compiles"));
        let text = ptx.ptx.text;
        let arithmetic = |line: &str| {
            line.contains(".s64") && !line.contains(".param") && !line.contains("wide")
        };
        assert_eq!(text.lines().any(arithmetic), wide, "{text}");
    }
}

// ---- what would go wrong ----

/// Sizes at which every barrier of a kernel is needed: loops run more than twice, and blocks are
/// full.
const WHOLE: &[(&str, &str)] = &[
    ("matmul", "n=128 m=128 l=128"),
    ("matmul_bf16", "n=128 l=192"),
    ("conv", "oc=32 ic=8 nh=32 nw=64"),
];

#[test]
fn every_barrier_is_needed() {
    driver::with_stack(|| {
        let mut removed = 0;
        for sample in samples() {
            let size = WHOLE.iter().find(|(kernel, _)| *kernel == sample.kernel);
            let size = match &sample.schedule[..] {
                "hopper" => "n=128 m=256 l=384",
                _ => size.map_or("", |(_, size)| size),
            };
            let Compiled { kernel, ptx, .. } =
                compile(&sample, size, sample.target).expect("it compiles");
            let lines: Vec<&str> = ptx.text.lines().collect();
            let needed = ["bar.sync", "cp.async.wait", "fence."];
            let waits = |line: &str| needed.iter().any(|what| line.contains(what));
            for at in (0..lines.len()).filter(|at| waits(lines[*at])) {
                let mut without = lines.clone();
                // The line stays, so that the others keep their numbers.
                without[at] = "";
                let without = PtxModule { text: without.join("\n"), ..ptx.clone() };
                let emulator = Emulator::new(&without).expect("the text is understood");
                let mut args = arguments(&kernel, 3);
                let emulation = emulator.run(&kernel, 0, &mut args, Orders::Natural);
                let emulation = emulation.expect("it runs");
                let what =
                    format!("{}.{}: without line {}", sample.kernel, sample.schedule, at + 1);
                assert!(!emulation.is_clean(), "{what} nothing is reported");
                removed += 1;
            }
        }
        assert!(removed >= 6, "{removed} barriers in all samples");
    });
}

#[test]
fn virtual_threads_have_fewer_bank_conflicts() {
    driver::with_stack(|| {
        let conflicts = |schedule: &str| {
            let sample =
                samples().into_iter().find(|s| s.kernel == "conv" && s.schedule == schedule);
            let sample = sample.expect("a schedule of the sample");
            let compiled =
                compile(&sample, "oc=32 ic=8 nh=64", "nvptx-sm_80").expect("it compiles");
            let emulator = Emulator::new(&compiled.ptx).expect("the text is understood");
            let mut args = arguments(&compiled.kernel, 4);
            let emulation = emulator.run(&compiled.kernel, 0, &mut args, Orders::Natural);
            let report = emulation.expect("it runs").report.expect("something is launched");
            let (taken, ideal) = report.counters.wavefronts();
            assert_eq!(report.counters.bank_conflicts(), taken - ideal);
            taken - ideal
        };
        let (tiling, vthread) = (conflicts("tiling"), conflicts("vthread"));
        assert!(0 < vthread && vthread < tiling, "vthread {vthread}, tiling {tiling}");
    });
}

/// Returns the instructions of the loop with the most of `opcode`: all of them, and those. A loop
/// is what is between a label and a branch back to it.
fn loop_with(listing: &str, opcode: &str) -> (usize, usize) {
    let lines: Vec<&str> = listing.lines().map(str::trim).collect();
    let is_instruction = |line: &&&str| line.starts_with("/*") && line.ends_with(';');
    let mut best = (0, 0);
    for (end, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("BRA `(")) {
        let label = line.split("`(").nth(1).and_then(|rest| rest.split(')').next());
        let head = format!("{}:", label.expect("a branch has a target"));
        let Some(start) = lines[..end].iter().position(|line| *line == head) else { continue };
        let body = || lines[start..=end].iter().filter(is_instruction);
        let wanted = body().filter(|line| line.split_whitespace().any(|word| word == opcode));
        let count = wanted.count();
        if count > best.1 {
            best = (body().count(), count);
        }
    }
    best
}

#[test]
fn the_inner_loop_of_matmul_is_multiply_adds() {
    let Some(ptxas) = ptxas() else { return };
    let named = std::env::var_os("TEC_NVDISASM").map(PathBuf::from);
    let disassembler = named.unwrap_or_else(|| ptxas.with_file_name("nvdisasm"));
    if !disassembler.exists() {
        eprintln!("skipped: no nvdisasm beside ptxas");
        return;
    }
    driver::with_stack(|| {
        let is_it = |s: &Sample| s.kernel == "matmul" && s.schedule == "fast";
        let sample = samples().into_iter().find(is_it).expect("a schedule of the sample");
        // 128 divides 1024; 4 divides 4000, whose tiles cross the border; 4001 is odd, and some of
        // the 128 registers that let two blocks share a multiprocessor are spilled.
        let sizes = [("n=1024", 85), ("n=4000", 85), ("n=4001", 80), ("n=513", 80)];
        for ((size, least), arch) in
            sizes.into_iter().flat_map(|size| ARCHES.map(|arch| (size, arch)))
        {
            let compiled = compile(&sample, size, &format!("nvptx-{arch}")).expect("it compiles");
            let directory = tempfile::tempdir().expect("a directory");
            let path = |name: &str| directory.path().join(name);
            std::fs::write(path("fast.ptx"), &compiled.ptx.text).expect("the text is written");
            let run = |program: &Path, args: &[&str]| {
                let output =
                    Command::new(program).args(args).current_dir(directory.path()).output();
                let output = output.expect("it runs");
                assert!(output.status.success(), "{output:?}");
                String::from_utf8(output.stdout).expect("UTF-8")
            };
            run(&ptxas, &[&format!("-arch={arch}"), "fast.ptx", "-o", "fast.cubin"]);
            let listing = run(&disassembler, &["-c", "fast.cubin"]);
            let (all, fused) = loop_with(&listing, "FFMA");
            assert!(fused * 100 >= all * least, "{size}, {arch}: {fused} FFMA of {all}");
        }
    });
}

// ---- defects of assemblers ----

/// `ptxas` 13.0 loses the negation in `max(max(a, -b), c)` of signed 32-bit integers from sm_90 on,
/// however it is written (`codegen::ptx::extreme`).
#[test]
fn maxima_of_negations_are_complements() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_string();
    let reducer = "reducer chosen(a, b) = (if a > b then a else b) identity min_value";
    let terms = ["-A[i, k]", "0 - A[i, k]", "A[i, k] * -1", "5 - A[i, k] - 5", "-abs(A[i, k])"];
    for (name, term) in ["max", "chosen"].into_iter().flat_map(|name| terms.map(|t| (name, t))) {
        let text = format!(
            "{reducer}\nkernel negated(n = 8) {{\n    input A: int32[n, n]\n    \
             reduce k: 0..n\n    output S[i: n] = {name}({term}, axis=k)\n}}\n"
        );
        std::fs::write(path("n.te"), text).expect("a file");
        let out = path("n.ptx");
        let (ok, said) = answer(&[
            "build",
            &path("n.te"),
            "--target",
            "nvptx-sm_75",
            "--schedule",
            "default",
            "-o",
            &out,
        ]);
        assert!(ok, "{said}");
        let text = std::fs::read_to_string(&out).expect("the PTX");
        let both = |what: &str| text.matches(what).count();
        let extremes = both("min.s32") + both("selp.s32");
        // Both operands and the result are complemented.
        assert!(extremes > 0 && both("max.s32") == 0, "{name} {term}:\n{text}");
        assert_eq!(both("not.b32"), 3 * extremes, "{name} {term}:\n{text}");
    }
}

//! Modules from hand-built kernels: their exports, the checks of their entries, and calls from Rust
//! and from C (`tests/c`).

pub mod kernels;

use crate::support::run_alone;
use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;
use tec::ir::interp::{self, Tensor, Value};
use tec::ir::{DType, Expr, Kernel, Param, Var, arith, simplify, visit};
use tec::module::load::{Arg, LoadedModule, args_of};
use tec::module::manifest::Manifest;
use tec::module::read::read_manifest;
use tec::module::write::{OutputFile, write_files};
use tec::module::{BuiltModule, ModuleKind, build_module, link, module_name};
use tec::target::{Arch, Os, Target};
use tempfile::TempDir;

/// A module with its header in a directory of its own.
struct Built {
    dir: TempDir,
    module: BuiltModule,
}

impl Built {
    fn new(module: &str, kernels: &[Kernel], kind: ModuleKind, target: Target) -> Built {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let built = Built { module: build(module, kernels, kind, target), dir };
        let ending = if kind == ModuleKind::Object { "o" } else { "so" };
        built.write(&format!("{module}.{ending}"), &built.module.bytes);
        built.write(&format!("{module}.h"), built.module.header.as_bytes());
        built
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).expect("the test's directory can be written");
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn load(&self, name: &str) -> LoadedModule {
        LoadedModule::open(&self.path(name)).expect("the module loads")
    }
}

fn build(module: &str, kernels: &[Kernel], kind: ModuleKind, target: Target) -> BuiltModule {
    let info = kernels::info(module, kernels, target);
    build_module(kernels, &info, kind).expect("the kernels compile")
}

/// Returns the module of most tests.
fn standard() -> Built {
    Built::new("m", &kernels::all(), ModuleKind::SharedObject, Target::native())
}

/// Runs a program of `tests/c`; `args` are more arguments of the compiler.
fn run_c(built: &Built, source: &str, args: &[&str]) {
    let program = compile_c(built, source, args);
    let output = Command::new(&program).current_dir(built.dir.path()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source}: {}\n{text}", output.status);
}

fn compile_c(built: &Built, source: &str, args: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let program = built.path(source.trim_end_matches(".c"));
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-D_GNU_SOURCE"])
        .arg(sources.join(source))
        .args(["-I.", "-o"])
        .arg(&program)
        .args(args)
        .current_dir(built.dir.path())
        .output()
        .expect("a C compiler is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn rust_calls_a_kernel() {
    let built = standard();
    let module = built.load("m.so");
    let a = floats((0..100).map(|i| i as f32));
    let mut c = vec![0; 400];
    for name in ["add", "add_n"] {
        let args = vec![
            Arg::Input(DType::Float32, &[100], &a),
            Arg::Input(DType::Float32, &[100], &a),
            Arg::Output(DType::Float32, &[100], &mut c),
        ];
        module.kernel(name).unwrap().call(args).unwrap();
        assert_eq!(c, floats((0..100).map(|i| 2.0 * i as f32)));
    }
    let mut call = module.kernel("add_n").unwrap().bind(vec![
        Arg::Input(DType::Float32, &[100], &a),
        Arg::Input(DType::Float32, &[99], &a),
        Arg::Output(DType::Float32, &[100], &mut c),
    ]);
    let error = call.call().unwrap_err();
    assert_eq!(
        error.message,
        "argument 2 `b`: expected extent 100 in dimension 0 (`n`, from dimension 0 of argument 1 \
         `a`), got 99 (in `add_n(a: float32[n], b: float32[n], c: float32[n])`)"
    );
    assert_eq!(module.kernel("sub").unwrap_err().code, "E0524");
}

#[test]
fn wide_scalars_reach_the_kernel() {
    let built = standard();
    let kernel = built.load("m.so").kernel("scalars").unwrap();
    let sizes: Vec<u64> = DType::ALL.iter().map(|ty| ty.bytes()).chain([8]).collect();
    let mut outputs: Vec<Vec<u8>> = sizes.iter().map(|bytes| vec![0; *bytes as usize]).collect();
    let mut args: Vec<Arg<'_>> = DType::ALL
        .iter()
        .map(|ty| match ty {
            DType::Uint64 => Arg::Uint(u64::MAX),
            DType::Bool => Arg::Bool(true),
            ty if ty.is_float() => Arg::Float(-0.5),
            _ => Arg::Int(17),
        })
        .collect();
    let dtypes = DType::ALL.into_iter().chain([DType::Int64]);
    args.extend(dtypes.zip(&mut outputs).map(|(ty, bytes)| Arg::Output(ty, &[1], bytes)));
    args.push(Arg::Int(i64::MIN));
    kernel.call(args).unwrap();
    assert_eq!(outputs[0], (-0.5f64).to_le_bytes());
    assert_eq!(outputs[2], half::f16::from_f32(-0.5).to_le_bytes());
    assert_eq!(outputs[3], half::bf16::from_f32(-0.5).to_le_bytes());
    assert_eq!(outputs[6], 17i32.to_le_bytes());
    assert_eq!(outputs[11], u64::MAX.to_le_bytes());
    assert_eq!(outputs[12], [1]);
    assert_eq!(outputs[13], i64::MIN.to_le_bytes());
}

#[test]
fn interpreter_values_convert_to_arguments() {
    let built = standard();
    let kernel = kernels::outer();
    for (n, m) in [(3, 2), (0, 2), (3, 0)] {
        let data = floats((0..n).map(|i| i as f32 + 0.25));
        let zeros = vec![0; 4 * (n * m) as usize];
        let tensor = |shape: Vec<i64>, data| Tensor { dtype: DType::Float32, shape, data };
        let mut values = vec![
            Value::Tensor(tensor(vec![n], data)),
            Value::Float(0.5),
            Value::Tensor(tensor(vec![m, n], zeros)),
            Value::Index(n),
            Value::Index(m),
        ];
        let mut expected = values.clone();
        interp::run(&kernel, &mut expected).unwrap();
        built.load("m.so").kernel("outer").unwrap().call(args_of(&kernel, &mut values)).unwrap();
        assert_eq!(values, expected);
    }
}

#[test]
fn long_messages_stay_utf8() {
    let kernel = standard().load("m.so").kernel("verbose").unwrap();
    let message = kernel.call(vec![Arg::Int(1)]).unwrap_err().message;
    assert!(message.len() > 2000 && message.len() < 2048, "{} bytes", message.len());
    assert_eq!(message.trim_start_matches('é'), "...");
}

#[test]
fn no_dtype_is_accepted_as_another() {
    let built = standard();
    let module = built.load("m.so");
    for declared in DType::ALL {
        let kernel = module.kernel(&format!("copy_{declared}")).unwrap();
        for given in DType::ALL {
            let a: Vec<u8> = (0..5 * given.bytes() as u8).map(|i| i & 1).collect();
            let mut c = vec![9; 5 * declared.bytes() as usize];
            let args = vec![Arg::Input(given, &[5], &a), Arg::Output(declared, &[5], &mut c)];
            let result = kernel.call(args);
            if given == declared {
                result.unwrap();
                assert_eq!(c, a, "{declared}");
            } else {
                let message = result.unwrap_err().message;
                let expected = format!("argument 1 `a`: expected dtype {declared}, got {given} (");
                assert!(message.starts_with(&expected), "{message}");
                assert!(c.iter().all(|byte| *byte == 9));
            }
        }
    }
}

#[test]
fn c_calls_every_entry() {
    run_c(&standard(), "entries.c", &["./m.so", "-Wl,-rpath,."]);
}

#[test]
fn the_fast_path_accepts_only_valid_calls() {
    run_c(&standard(), "fast_path.c", &["./m.so", "-Wl,-rpath,."]);
}

#[test]
fn floating_point_mode_is_the_modules_own() {
    run_c(&standard(), "float_mode.c", &["./m.so", "-Wl,-rpath,."]);
}

#[test]
fn calls_from_several_threads_are_independent() {
    run_c(&standard(), "threads.c", &["./m.so", "-Wl,-rpath,.", "-pthread"]);
}

#[test]
fn hosts_run_parallel_loops() {
    let target = Target::native();
    let built = Built::new("p", &[kernels::shared_rows()], ModuleKind::SharedObject, target);
    run_c(&built, "parallel.c", &["./p.so", "-Wl,-rpath,.", "-pthread"]);
}

/// The same under emulators, if they are installed with the libraries of their systems.
#[test]
fn hosts_of_other_families_run_parallel_loops() {
    for family in ["aarch64", "riscv64"] {
        let (compiler, emulator) = (format!("{family}-linux-gnu-gcc"), format!("qemu-{family}"));
        let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
        let target = Target::parse(family).expect("a target of this name");
        if !there(&compiler)
            || !there(&emulator)
            || link::runtime_object(target.arch, target.os).is_none()
        {
            eprintln!("skipped {family}: no compiler, emulator or runtime");
            continue;
        }
        let runtime = link::runtime_object(target.arch, target.os).expect("it was found");
        let built = Built::new("p", &[kernels::shared_rows()], ModuleKind::SharedObject, target);
        built.write("tec_runtime.o", runtime);
        let compile = |source: &str, output: &str, args: &[&str]| {
            let compiled = Command::new(&compiler)
                .args(["-std=c11", "-O1", "-D_GNU_SOURCE", "-DEMULATED", "-I.", "-pthread"])
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source))
                .args(["-o", output])
                .args(args)
                .current_dir(built.dir.path())
                .output()
                .expect("it was found");
            assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        };
        compile("pool_library.c", "libpool.so", &["tec_runtime.o", "-shared", "-fPIC"]);
        for program in ["parallel", "pool_threads", "pool_stress", "pool_memory"] {
            let args = ["./p.so", "-Wl,-rpath,.", "-ldl", "-rdynamic"];
            compile(&format!("{program}.c"), program, &args);
            let root = format!("/usr/{family}-linux-gnu");
            let output = Command::new(&emulator)
                .args(["-L", &root, &format!("./{program}")])
                .current_dir(built.dir.path())
                .output()
                .expect("it was found");
            assert!(output.status.success(), "{family}, {program}: {output:?}");
        }
    }
}

/// A program of `tests/c` that loads the runtime alone, as the library that `pool_library.c` makes
/// of this object.
fn run_pool_test(source: &str, runtime: &str, built: &Built, args: &[&str]) {
    let library = [&[runtime, "-shared", "-fPIC"], args].concat();
    let library = compile_c(built, "pool_library.c", &library);
    std::fs::rename(library, built.path("libpool.so")).expect("the library can be renamed");
    run_c(built, source, &[&["-pthread", "-ldl", "-rdynamic"], args].concat());
}

/// Returns a directory with the runtime that goes into modules of this machine.
fn with_runtime() -> Built {
    let built = standard();
    let runtime =
        link::runtime_object(Target::native().arch, Os::HOST).expect("the host's runtime");
    built.write("tec_runtime.o", runtime);
    built
}

#[test]
fn modules_have_threads() {
    run_pool_test("pool_threads.c", "tec_runtime.o", &with_runtime(), &[]);
}

#[test]
fn workspaces_are_reused_and_freed() {
    run_pool_test("pool_memory.c", "tec_runtime.o", &with_runtime(), &[]);
}

#[test]
fn the_thread_pool_withstands_stress() {
    run_pool_test("pool_stress.c", "tec_runtime.o", &with_runtime(), &[]);
}

#[test]
fn threads_do_not_race() {
    let built = standard();
    let flag = "-fsanitize=thread";
    let empty = built.write("empty.c", b"int main(void) { return 0; }\n");
    let sanitizer =
        Command::new("cc").args([flag, "-o"]).arg(built.path("empty")).arg(empty).output();
    let there = sanitizer.is_ok_and(|output| output.status.success())
        && Command::new(built.path("empty")).status().is_ok_and(|status| status.success());
    if !there {
        eprintln!("skipped: the C compiler has no ThreadSanitizer");
        return;
    }
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runtime/tec_runtime.c");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-ffreestanding"])
        .args(["-fno-builtin", "-fno-strict-aliasing", flag, "-c", "-o", "checked.o"])
        .arg(runtime)
        .current_dir(built.dir.path())
        .output()
        .expect("a C compiler is there");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    run_pool_test("pool_stress.c", "checked.o", &built, &["-g", flag]);
}

/// Prints the cost of a parallel loop (`cargo test -- --nocapture`); the times are not checked.
#[test]
fn parallel_loops_are_measured() {
    let built = with_runtime();
    let program = compile_c(&built, "launch_cost.c", &["tec_runtime.o"]);
    let output = Command::new(&program).args(["1", "2"]).output().expect("it runs");
    assert!(output.status.success());
    println!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_checked_call_has_little_overhead() {
    let one = Kernel { name: "add_one".into(), ..kernels::add_of(1) };
    let built = Built::new("one", &[one], ModuleKind::SharedObject, Target::native());
    let program = compile_c(&built, "call_cost.c", &["./one.so", "-Wl,-rpath,."]);
    let output = Command::new(&program).current_dir(built.dir.path()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success());
    // Far above the measured cost (docs/ABI.md), so that other load on the machine does not fail
    // the test.
    for line in text.lines() {
        let cost: f64 = line.split(' ').nth(2).and_then(|ns| ns.parse().ok()).expect("a number");
        assert!(cost < 100.0, "{line}");
    }
}

#[test]
fn software_fma_is_exact() {
    if Target::native().arch != Arch::X86_64 {
        eprintln!("skipped: this CPU family always has the instruction");
        return;
    }
    let runtime = link::runtime_object(Arch::X86_64, Os::Linux).expect("the host's runtime");
    let built = standard();
    built.write("tec_runtime.o", runtime);
    run_c(&built, "fma.c", &["tec_runtime.o", "-lm"]);
}

#[test]
fn two_modules_load_into_one_program() {
    let kernels = kernels::all();
    let of = |names: [&str; 2]| -> Vec<Kernel> {
        kernels.iter().filter(|k| names.contains(&k.name.as_str())).cloned().collect()
    };
    let target = Target::native();
    let first = Built::new("first", &of(["add", "window"]), ModuleKind::Object, target.clone());
    let second = build("second", &of(["temporary", "rows"]), ModuleKind::Object, target.clone());
    first.write("second.o", &second.bytes);
    first.write("second.h", second.header.as_bytes());
    first.write(
        "tec_runtime.o",
        link::runtime_object(target.arch, target.os).expect("the host's runtime"),
    );
    for more in [&["-no-pie"][..], &["-fPIE", "-pie"]] {
        let objects = ["first.o", "second.o", "tec_runtime.o"];
        run_c(&first, "two_modules.c", &[&objects[..], more].concat());
    }
}

#[test]
fn every_host_receives_the_error_message() {
    let built = standard();
    let program = compile_c(&built, "host.c", &["-ldl"]);
    let options = ["-shared", "-fPIC", "-Wl,-soname,libtvm_ffi.so"];
    let library = compile_c(&built, "fake_tvm_ffi.c", &options);
    std::fs::rename(library, built.path("libtvm_ffi.so")).unwrap();
    for order in ["without", "before", "after", "hidden"] {
        for bind in ["lazy", "now"] {
            let run =
                Command::new(&program).args([order, bind]).current_dir(built.dir.path()).output();
            let output = run.expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{order} {bind}: {}\n{text}", output.status);
        }
    }
}

#[test]
fn missing_cpu_features_are_reported() {
    // No CPU of this family has the other family's feature.
    let feature = if Target::native().arch == Arch::Aarch64 { "avx2" } else { "neon" };
    let mut target = Target::native();
    target.features.push(feature);
    let built = Built::new("m", &[kernels::add()], ModuleKind::SharedObject, target);
    let error = built.load("m.so").kernel("add").unwrap().call(vec![]).unwrap_err();
    let expected = format!("this CPU lacks {feature}: the module was compiled for target ");
    assert!(error.message.starts_with(&expected), "{}", error.message);
}

#[test]
fn only_the_interface_is_visible() {
    let kernels = [kernels::add()];
    let built = build("m", &kernels, ModuleKind::SharedObject, Target::native());
    let file = object::File::parse(&built.bytes[..]).unwrap();
    let mut defined = Vec::new();
    let mut wanted = Vec::new();
    for symbol in file.dynamic_symbols() {
        let name = symbol.name().unwrap().to_string();
        let mark = if symbol.is_weak() { " weak" } else { "" };
        let list = if symbol.is_undefined() { &mut wanted } else { &mut defined };
        list.push(name + mark);
    }
    defined.sort();
    wanted.sort();
    assert_eq!(
        defined,
        [
            "__tvm_ffi__doc_add",
            "__tvm_ffi__metadata_add",
            "__tvm_ffi_add",
            "add",
            "add_dl",
            "m_last_error",
            "m_manifest",
            "m_set_num_threads",
            "m_set_parallel_for",
            "tec_last_error weak",
            "tec_manifest weak",
            "tec_set_num_threads weak",
            "tec_set_parallel_for weak",
        ]
    );
    assert_eq!(
        wanted,
        [
            "TVMFFIErrorSetRaisedFromCStr weak",
            "TVMFFIStringFromByteArray weak",
            "__tls_get_addr",
            "clock_gettime",
            "dlclose weak",
            "dlopen weak",
            "dlsym weak",
            "getenv",
            "mmap",
            "munmap",
            "pthread_attr_destroy weak",
            "pthread_attr_init weak",
            "pthread_attr_setstacksize weak",
            "pthread_create weak",
            "pthread_join weak",
            "syscall",
        ]
    );
    assert!(built.bytes.len() < 34 << 10, "{} bytes", built.bytes.len());
}

#[test]
fn shared_objects_have_safe_segments() {
    use object::elf;
    use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
    let built = build("m", &kernels::all(), ModuleKind::SharedObject, Target::native());
    let file: ElfFile64<'_> = ElfFile64::parse(&built.bytes[..]).unwrap();
    let endian = file.endian();
    let mut stacks = 0;
    for segment in file.elf_program_headers() {
        let flags = segment.p_flags(endian);
        if segment.p_type(endian) == elf::PT_GNU_STACK {
            stacks += 1;
            assert_eq!(flags, elf::PF_R | elf::PF_W);
        }
        if segment.p_type(endian) == elf::PT_LOAD {
            assert_ne!(flags & (elf::PF_W | elf::PF_X), elf::PF_W | elf::PF_X);
            assert_eq!(
                segment.p_offset(endian) % segment.p_align(endian),
                segment.p_vaddr(endian) % segment.p_align(endian)
            );
        }
        if let Ok(Some(entries)) = segment.dynamic(endian, &built.bytes[..]) {
            for entry in entries {
                let tag = entry.d_tag(endian);
                assert_ne!(tag, elf::DT_NEEDED);
                assert_ne!(tag, elf::DT_TEXTREL);
                assert_ne!(tag, elf::DT_JMPREL, "calls bind when the module is loaded");
            }
        }
    }
    assert_eq!(stacks, 1);
    let header = file.elf_header();
    assert_eq!(header.e_type(endian), elf::ET_DYN);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    use ModuleKind::*;
    for kind in [SharedObject, Archive, Object, Listing] {
        let make = || build("m", &kernels::all(), kind, Target::native());
        let (first, second) = (make(), make());
        assert!(first.bytes == second.bytes, "{kind:?}");
        assert_eq!(first.manifest, second.manifest);
        assert_eq!(first.header, second.header);
    }
}

#[test]
fn headers_are_cpp_too() {
    let built = standard();
    let source =
        built.write("use.cpp", b"#include \"m.h\"\n#include \"m.h\"\nint main() { return 0; }\n");
    let compile = Command::new("c++")
        .args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"])
        .arg(source)
        .output();
    match compile {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => eprintln!("skipped: no C++ compiler"),
    }
}

#[test]
fn every_output_contains_the_manifest() {
    let kernels = kernels::all();
    let built = standard();
    let expected =
        Manifest::new(kernels[..].into(), None, &kernels::info("m", &kernels, Target::native()));
    assert_eq!(built.load("m.so").manifest().unwrap(), expected.to_json());
    for (kind, name) in [
        (ModuleKind::SharedObject, "x.so"),
        (ModuleKind::Object, "x.o"),
        (ModuleKind::Archive, "x.tar"),
    ] {
        let module = build("m", &kernels, kind, Target::native());
        assert_eq!(module.manifest, expected.to_json());
        let path = built.write(name, &module.bytes);
        assert_eq!(read_manifest(&path).unwrap(), expected);
    }
    let path = built.write("y.so", b"\x7fELF");
    let error = read_manifest(&path).unwrap_err();
    assert_eq!(error.code, "E0523");
    assert!(error.message.ends_with("is not a module of tec"), "{}", error.message);
    let error = read_manifest(&built.path("none.so")).unwrap_err();
    assert!(error.message.ends_with("no such file or directory"), "{}", error.message);
    let newer = expected.to_json().replacen("\"tec_manifest\": 1", "\"tec_manifest\": 9", 1);
    let error = Manifest::from_json(&newer, "x.so").unwrap_err();
    assert_eq!(error.message, "x.so: manifest of version 9");
}

#[test]
fn a_manifest_lists_the_arguments() {
    let kernels = kernels::all();
    let manifest =
        Manifest::new(kernels[..].into(), None, &kernels::info("m", &kernels, Target::native()));
    let find = |name: &str| manifest.kernels.iter().find(|k| k.name == name).unwrap();
    let json = serde_json::to_value(find("window")).unwrap();
    assert_eq!(json["args"][1]["shape"][0], "n - 2");
    assert_eq!(json["args"][2]["source"]["arg"], 0);
    assert_eq!(json["args"][3]["source"], serde_json::Value::Null);
    assert_eq!(json["parameters"]["n"], 100);
    assert_eq!(json["parameters"]["T"], "float32");
    let m = Var::index("m");
    let bytes = find("temporary").workspace_bytes.to_expr(&|_| Some(m.clone())).unwrap();
    let bytes = visit::substitute(&bytes, &mut |_| Some(Expr::index(100)));
    let bytes = simplify::simplify_expr(&bytes, &arith::Facts::new());
    assert_eq!(bytes.as_int(), Some(448), "100 floats, rounded up to a multiple of 64");
    for (kernel, manifest) in kernels.iter().zip(&manifest.kernels) {
        let again = manifest.to_kernel().unwrap();
        let texts = |kernel: &Kernel| -> Vec<String> {
            kernel
                .params
                .iter()
                .map(|param| match param {
                    Param::Tensor { buffer, role, .. } => {
                        let shape = buffer.shape.iter().map(tec::ir::print::print_expr);
                        format!("{} {role:?} {:?}", buffer.name, shape.collect::<Vec<_>>())
                    }
                    Param::Scalar { var, dtype } => format!("{} {dtype}", var.name()),
                    Param::Runtime { var, source } => format!("{} {source:?}", var.name()),
                })
                .collect()
        };
        assert_eq!(texts(&again), texts(kernel));
    }
}

#[test]
fn every_field_of_the_manifest_is_documented() {
    let page = include_str!("../docs/MANIFEST.md");
    let kernels = kernels::all();
    let manifest =
        Manifest::new(kernels[..].into(), None, &kernels::info("m", &kernels, Target::native()));
    fn keys(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    found.push(key.clone());
                    if key != "parameters" {
                        keys(value, found);
                    }
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    keys(&serde_json::to_value(&manifest).unwrap(), &mut found);
    found.sort();
    found.dedup();
    for key in found {
        assert!(page.contains(&format!("`{key}`")), "{key} is not in docs/MANIFEST.md");
    }
}

#[test]
fn archives_contain_every_part() {
    let names = |target: &str| -> Vec<String> {
        let target = Target::parse(target).unwrap();
        let module = build("m", &[kernels::add()], ModuleKind::Archive, target);
        let mut archive = tar::Archive::new(&module.bytes[..]);
        let entries = archive.entries().unwrap();
        entries.map(|e| e.unwrap().path().unwrap().display().to_string()).collect()
    };
    assert_eq!(names("native"), ["m.json", "m.h", "m.o", "tec_runtime.o"]);
    let foreign = if Target::native().arch == Arch::Riscv64 { "aarch64" } else { "riscv64" };
    let names = names(foreign);
    assert_eq!(names[..3], ["m.json", "m.h", "m.o"]);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runtime");
    for file in std::fs::read_dir(sources).unwrap() {
        let name = format!("runtime/{}", file.unwrap().file_name().display());
        // The options of the compiler are in the README of the archive.
        assert!(names.contains(&name) || name.ends_with("/flags.in"), "{name} is missing");
    }
}

#[test]
fn shared_objects_need_the_runtime_of_their_cpu_family() {
    for name in ["x86-64", "aarch64", "riscv64"] {
        let target = Target::parse(name).unwrap();
        let kernels = [kernels::add()];
        let info = kernels::info("m", &kernels, target.clone());
        let result = build_module(&kernels, &info, ModuleKind::SharedObject);
        match link::runtime_object(target.arch, target.os) {
            Some(_) => assert_eq!(&result.unwrap().bytes[..4], b"\x7fELF"),
            None => assert_eq!(result.unwrap_err().code, "E0522"),
        }
        build_module(&kernels, &info, ModuleKind::Object).unwrap();
    }
}

#[test]
fn module_names_come_from_the_output() {
    let name = |path: &str| module_name(Path::new(path));
    assert_eq!(name("out/matmul.so"), "matmul");
    assert_eq!(name("conv-2d.v1.tar"), "conv_2d_v1");
    assert_eq!(name("3d.so"), "m3d");
    assert_eq!(name("tec.so"), "mtec");
    let kernels = [kernels::add()];
    let info = kernels::info("a b", &kernels, Target::native());
    assert_eq!(build_module(&kernels, &info, ModuleKind::Object).unwrap_err().code, "E0527");
    let clash = [Kernel { name: "x_manifest".into(), ..kernels::add() }];
    let info = kernels::info("x", &clash, Target::native());
    let error = build_module(&clash, &info, ModuleKind::Object).unwrap_err();
    assert_eq!(error.message, "kernel `x_manifest` has the name of a function of module `x`");
    assert_eq!(ModuleKind::of_path(Path::new("x.dll")).unwrap_err().code, "E0526");
    assert_eq!(ModuleKind::of_path(Path::new("x.ptx")).unwrap(), ModuleKind::Ptx);
    let info = kernels::info("m", &kernels, Target::native());
    assert_eq!(build_module(&kernels, &info, ModuleKind::Ptx).unwrap_err().code, "E0528");
}

fn file(path: &Path, bytes: &[u8]) -> OutputFile {
    OutputFile { path: path.to_path_buf(), bytes: bytes.to_vec(), executable: false }
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_are_written_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_files(&[file(&at("a"), b"1"), file(&at("b"), b"2")]).unwrap();
    write_files(&[file(&at("a"), b"3")]).unwrap();
    assert_eq!(std::fs::read(at("a")).unwrap(), b"3");
    std::os::unix::fs::symlink("a", at("link")).unwrap();
    write_files(&[file(&at("link"), b"4")]).unwrap();
    assert_eq!(std::fs::read(at("a")).unwrap(), b"4");
    assert!(at("link").is_symlink());

    let none = at("none/c");
    let error = write_files(&[file(&at("a"), b"5"), file(&none, b"")]).unwrap_err();
    assert_eq!(error.code, "E0501");
    let expected = format!("cannot write `{}`: no such file or directory", none.display());
    assert_eq!(error.message, expected);
    let error = write_files(&[file(&at("a"), b"5"), file(dir.path(), b"")]).unwrap_err();
    assert!(error.message.ends_with(": it is a directory"), "{}", error.message);
    let error = write_files(&[file(&at("a/x"), b"")]).unwrap_err();
    assert!(error.message.ends_with(": not a directory"), "{}", error.message);
    assert_eq!(std::fs::read(at("a")).unwrap(), b"4");
    assert_eq!(names_in(dir.path()), ["a", "b", "link"]);

    let error = write_files(&[file(Path::new("/dev/full"), b"6")]).unwrap_err();
    assert_eq!(error.message, "cannot write `/dev/full`: no space left on device");
    assert!(!Path::new("/dev/full").is_file(), "a device is not replaced");
}

/// Simulates a full disk by a limit on file sizes, under which the test runs itself again.
#[test]
fn a_full_disk_leaves_no_partial_files() {
    const VARIABLE: &str = "TEC_TEST_FULL_DISK";
    let Some(directory) = std::env::var_os(VARIABLE) else {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("m.so"), b"old").unwrap();
        let mut limited = Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]);
        limited.arg(std::env::current_exe().unwrap()).env(VARIABLE, dir.path());
        run_alone("module::a_full_disk_leaves_no_partial_files", &mut limited);
        assert_eq!(names_in(dir.path()), ["m.so"]);
        assert_eq!(std::fs::read(dir.path().join("m.so")).unwrap(), b"old");
        return;
    };
    let at = |name: &str| Path::new(&directory).join(name);
    let files = [file(&at("m.json"), b"{}"), file(&at("m.so"), &vec![1; 1 << 20])];
    let error = write_files(&files).unwrap_err();
    assert!(error.message.ends_with("m.so`: file too large"), "{}", error.message);
}

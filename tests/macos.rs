//! Static libraries for macOS: Zig links `tests/c/systems.c` with them, and a loader
//! (`tests/c/macho_loader.c`) runs the program on Linux, for AArch64 under qemu. Its output is that
//! of the same program for Linux. `TEC_ZIG` names a Zig beside the one that `make test` installs.

use crate::support::say_skipped;
use crate::support::systems::{refused_in, scratch, succeeds, tec_in, text};
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, elf, macho};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tec::module::static_library::{members, with_runtime};
use tempfile::TempDir;

/// The name of a module, its source, its targets for x86, the options there, and those for AArch64,
/// for which schedules that depend on the lanes would add in another order.
type ModuleRow = (&'static str, &'static str, &'static str, Options, Options);
type Options = &'static [&'static str];

const MODULES: [ModuleRow; 5] = [
    ("product", "matmul.te", "x86-avx2", FAST_PRODUCT, FAST_PRODUCT),
    ("soft", "softmax.te", "x86-avx2", FAST_ROWS, PLAIN_ROWS),
    ("rows", "rows.te", "x86-64", &[], &[]),
    ("several", "several.te", "x86-avx512,x86-avx2,x86-64", &[], &[]),
    ("small", "small.te", "x86-avx2", &[], &[]),
];
const FAST_PRODUCT: Options = &["--schedule", "fast", "-D", "n=320"];
const PLAIN_ROWS: Options = &["--schedule", "default", "-D", "m=64", "-D", "n=512"];
const FAST_ROWS: Options = &["--schedule", "fast", "-D", "m=64", "-D", "n=512"];

/// The processors of macOS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Processor {
    X86,
    Arm,
}

impl Processor {
    /// The name in triples of Zig.
    fn name(self) -> &'static str {
        match self {
            Processor::X86 => "x86_64",
            Processor::Arm => "aarch64",
        }
    }
}

/// Builds the modules into a directory, with the options for `options`, as objects or archives.
fn build(dir: &Path, targets: impl Fn(&str) -> String, options: Processor, extension: &str) {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    for (name, text) in crate::windows::SOURCES {
        fs::write(dir.join(name), text).expect("a file is written");
    }
    for (name, source, of_x86, options_of_x86, options_of_arm) in MODULES {
        let own = dir.join(source);
        let source = if own.exists() { own } else { samples.join(source) };
        let options = if options == Processor::X86 { options_of_x86 } else { options_of_arm };
        let output = format!("{name}.{extension}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
        command.arg("build").arg(source).args(["-o", &output, "--target", &targets(of_x86)]);
        succeeds(command.args(options).current_dir(dir));
    }
}

/// The targets of a module for macOS.
fn for_macos(of_x86: &str, processor: Processor) -> String {
    let names = if processor == Processor::X86 { of_x86 } else { "aarch64" };
    let names: Vec<String> = names.split(',').map(|name| format!("{name}-macos")).collect();
    names.join(",")
}

/// Zig, which compiles C for macOS and links it; prints that tests are skipped if there is none.
fn zig() -> Option<PathBuf> {
    let named = std::env::var_os("TEC_ZIG").map(PathBuf::from);
    let found = named.or_else(|| {
        let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/lib");
        let mut pythons = lib.read_dir().ok()?.flatten();
        pythons.find_map(|python| {
            let zig = python.path().join("site-packages/ziglang/zig");
            zig.exists().then_some(zig)
        })
    });
    if found.is_none() {
        say_skipped("programs for macOS: no Zig (`make test` installs it into .venv)");
    }
    found
}

/// Compiles C without warnings, for a triple of Zig.
fn compile(zig: &Path, triple: &str, dir: &Path, arguments: &[&str]) {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zig");
    let mut command = Command::new(zig);
    command.env("ZIG_GLOBAL_CACHE_DIR", &cache).env("ZIG_LOCAL_CACHE_DIR", &cache);
    command.args(["cc", "-target", triple, "-std=gnu11", "-Wall", "-Wextra", "-Werror"]);
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    command.args(arguments).arg("-I.").arg("-I").arg(tests);
    succeeds(command.current_dir(dir));
}

/// Compiles the runtime for macOS from the source in a module's archive.
fn compile_runtime(zig: &Path, processor: Processor, dir: &Path) {
    let triple = format!("{}-macos", processor.name());
    let options = [
        "-O2",
        "-ffp-contract=off",
        "-fvisibility=hidden",
        "-ffreestanding",
        "-Wno-unused-function",
        "-c",
        "runtime/tec_runtime.c",
        "-o",
        "tec_runtime.o",
    ];
    compile(zig, &triple, dir, &options);
}

fn unpack(dir: &Path) {
    for (name, ..) in MODULES {
        let mut tar = Command::new("tar");
        succeeds(tar.args(["xf", &format!("{name}.tar")]).current_dir(dir));
    }
}

fn program_source() -> String {
    format!("{}/tests/c/systems.c", env!("CARGO_MANIFEST_DIR"))
}

/// Links `systems.c` with files to a program for macOS.
fn link(zig: &Path, processor: Processor, dir: &Path, with: &[String]) {
    let source = program_source();
    let mut arguments = vec!["-O1", source.as_str()];
    arguments.extend(with.iter().map(String::as_str));
    arguments.extend(["-o", "program"]);
    compile(zig, &format!("{}-macos", processor.name()), dir, &arguments);
}

/// Runs a program for macOS on Linux; none if that needs an emulator that is not installed. Returns
/// its standard output and its messages.
fn run(zig: &Path, processor: Processor, dir: &Path) -> Option<(String, String)> {
    let emulator = ["qemu-aarch64", "qemu-aarch64-static"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok());
    if processor == Processor::Arm && emulator.is_none() {
        say_skipped("programs for macOS on AArch64: qemu-aarch64 is not installed");
        return None;
    }
    let loader = format!("{}/tests/c/macho_loader.c", env!("CARGO_MANIFEST_DIR"));
    let arguments = ["-O1", "-fno-omit-frame-pointer", &loader, "-lm", "-o", "loader"];
    if processor == Processor::X86 {
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-pthread"]);
        succeeds(compiler.args(arguments).current_dir(dir));
    } else {
        let arguments = [&["-fno-sanitize=all"][..], &arguments].concat();
        compile(zig, "aarch64-linux-musl", dir, &arguments);
    }
    let mut command = match emulator {
        Some(emulator) if processor == Processor::Arm => {
            let mut command = Command::new(emulator);
            command.arg("./loader");
            command
        }
        _ => Command::new("./loader"),
    };
    let output = succeeds(command.arg("program").env("TEC_NUM_THREADS", "3").current_dir(dir));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&output.stdout), text(&output.stderr)))
}

/// The output of the program for Linux.
fn expected(options: Processor) -> String {
    let dir = scratch();
    build(dir.path(), str::to_string, options, "a");
    let libraries = MODULES.map(|(name, ..)| format!("{name}.a"));
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-I.", "-I"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")).arg(program_source());
    command.args(libraries).args(["-lm", "-o", "program"]);
    succeeds(command.current_dir(dir.path()));
    let mut program = Command::new("./program");
    let output = succeeds(program.env("TEC_NUM_THREADS", "3").current_dir(dir.path()));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn is_on_x86() -> bool {
    let is_on_x86 = cfg!(target_arch = "x86_64");
    if !is_on_x86 {
        say_skipped("programs for macOS: their output is compared with that on x86-64");
    }
    is_on_x86
}

fn computes_the_same_bits(processor: Processor) {
    let Some(zig) = zig().filter(|_| is_on_x86()) else { return };
    let dir = scratch();
    build(dir.path(), |of_x86| for_macos(of_x86, processor), processor, "tar");
    unpack(dir.path());
    compile_runtime(&zig, processor, dir.path());
    let runtime = fs::read(dir.path().join("tec_runtime.o")).expect("the runtime");
    for (name, ..) in MODULES {
        let object = fs::read(dir.path().join(format!("{name}.o"))).expect("an object");
        let library = with_runtime(name, object, &runtime);
        fs::write(dir.path().join(format!("{name}.a")), library).expect("a file is written");
    }
    link(&zig, processor, dir.path(), &MODULES.map(|(name, ..)| format!("{name}.a")));
    let Some((found, messages)) = run(&zig, processor, dir.path()) else { return };
    let expected = expected(processor);
    assert_eq!(found, expected, "{messages}");
    assert!(expected.contains("matmul ") && expected.contains("(in `take_rows("), "{expected}");
    let described = messages.lines().find_map(|line| line.strip_suffix(" frames of __eh_frame"));
    let described: u32 = described.and_then(|count| count.parse().ok()).expect("a count");
    assert!(described >= 4, "two walks through an entry and a body: {messages}");
}

#[test]
fn programs_for_macos_on_x86_compute_the_same_bits() {
    computes_the_same_bits(Processor::X86);
}

#[test]
fn programs_for_macos_on_aarch64_compute_the_same_bits() {
    computes_the_same_bits(Processor::Arm);
}

#[test]
fn objects_for_macos_are_linked_with_one_runtime() {
    let Some(zig) = zig().filter(|_| is_on_x86()) else { return };
    let dir = scratch();
    build(dir.path(), |of_x86| for_macos(of_x86, Processor::X86), Processor::X86, "tar");
    unpack(dir.path());
    compile_runtime(&zig, Processor::X86, dir.path());
    let mut files = MODULES.map(|(name, ..)| format!("{name}.o")).to_vec();
    files.push("tec_runtime.o".to_string());
    link(&zig, Processor::X86, dir.path(), &files);
    let run = run(&zig, Processor::X86, dir.path());
    let (found, messages) = run.expect("no emulator is needed");
    assert_eq!(found, expected(Processor::X86), "{messages}");
}

/// A dynamic library exports the functions of a module, and nothing of its runtime.
#[test]
fn static_libraries_become_dynamic_ones() {
    let Some(zig) = zig() else { return };
    for processor in [Processor::X86, Processor::Arm] {
        let dir = scratch();
        build(dir.path(), |of_x86| for_macos(of_x86, processor), processor, "tar");
        unpack(dir.path());
        compile_runtime(&zig, processor, dir.path());
        let read = |name: &str| fs::read(dir.path().join(name)).expect("a file");
        let library = with_runtime("product", read("product.o"), &read("tec_runtime.o"));
        fs::write(dir.path().join("product.a"), library).expect("a file is written");
        let options = ["-dynamiclib", "-Wl,-u,_matmul", "product.a", "-o", "product.dylib"];
        compile(&zig, &format!("{}-macos", processor.name()), dir.path(), &options);
        let bytes = read("product.dylib");
        let file = object::File::parse(&*bytes).expect("a Mach-O file");
        let exported = file.symbols().filter(|one| one.is_global() && one.is_definition());
        let names: Vec<&str> = exported.map(|one| one.name().expect("UTF-8")).collect();
        for name in ["_matmul", "_matmul_dl", "___tvm_ffi_matmul", "_product_last_error"] {
            assert!(names.contains(&name), "{processor:?}: {name} in {names:?}");
        }
        assert!(!names.iter().any(|name| name.starts_with("_tec_rt_")), "{names:?}");
    }
}

/// A relocation without its format: what the field holds, and whose address.
type Fixup = (u64, &'static str, String);

/// A function or a constant: its bytes without relocated fields, and the relocations.
#[derive(PartialEq, Eq, Debug)]
struct Piece {
    bytes: Vec<u8>,
    fixups: Vec<Fixup>,
}

fn kind_of(flags: RelocationFlags) -> &'static str {
    match flags {
        RelocationFlags::Elf { r_type } => match r_type {
            elf::R_X86_64_PC32 => "relative",
            elf::R_X86_64_PLT32 => "call",
            elf::R_X86_64_GOTPCREL => "got",
            other => panic!("relocation {other:?} of ELF"),
        },
        RelocationFlags::MachO { r_type, .. } => match r_type {
            macho::X86_64_RELOC_SIGNED => "relative",
            macho::X86_64_RELOC_BRANCH => "call",
            macho::X86_64_RELOC_GOT | macho::X86_64_RELOC_GOT_LOAD => "got",
            other => panic!("relocation {other:?} of Mach-O"),
        },
        other => panic!("relocation {other:?}"),
    }
}

/// The functions and constants of an object for x86, by name. The data behind the code is part of a
/// function; padding behind a symbol is not compared.
fn pieces(object: &[u8], sizes: Option<&BTreeMap<String, Piece>>) -> BTreeMap<String, Piece> {
    let file = object::File::parse(object).expect("an object");
    let prefix = if file.format() == object::BinaryFormat::MachO { "_" } else { "" };
    // The functions of a variant have the name of its target.
    let name_of = |name: &str| name.strip_prefix(prefix).map(|name| name.replace("_macos", ""));
    let mut found = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
        let Some(name) = symbol.name().ok().and_then(name_of) else { continue };
        let Some(section) = symbol.section_index() else { continue };
        let section = file.section_by_index(section).expect("a section");
        let size = match sizes {
            Some(sizes) => match sizes.get(&name) {
                Some(piece) => piece.bytes.len() as u64,
                None => continue,
            },
            None => symbol.size(),
        };
        let start = symbol.address() - section.address();
        let data = section.data().expect("its bytes");
        let mut bytes = data[start as usize..(start + size) as usize].to_vec();
        let mut fixups = Vec::new();
        for (offset, relocation) in section.relocations() {
            let Some(at) = offset.checked_sub(start).filter(|at| *at < size) else { continue };
            let RelocationTarget::Symbol(target) = relocation.target() else {
                panic!("a relocation of {name} with {relocation:?}");
            };
            let target = file.symbol_by_index(target).expect("a symbol").name().expect("a name");
            let target = name_of(target).expect("a name of C");
            fixups.push((at, kind_of(relocation.flags()), target));
            bytes[at as usize..at as usize + 4].fill(0);
        }
        fixups.sort();
        if size > 0 {
            found.insert(name, Piece { bytes, fixups });
        }
    }
    found
}

/// On x86 both systems have one calling convention, so only the format differs.
#[test]
fn code_for_macos_on_x86_is_that_for_linux() {
    let (here, there) = (scratch(), scratch());
    build(here.path(), str::to_string, Processor::X86, "o");
    build(there.path(), |of_x86| for_macos(of_x86, Processor::X86), Processor::X86, "o");
    for (name, ..) in MODULES {
        let read = |dir: &TempDir| fs::read(dir.path().join(format!("{name}.o"))).expect("a file");
        let (elf, macho) = (read(&here), read(&there));
        let mut expected = pieces(&elf, None);
        // The text of the manifest has the name of the target.
        expected.retain(|_, piece| !piece.bytes.starts_with(b"{"));
        let found = pieces(&macho, Some(&expected));
        assert!(expected.len() > 10, "{name}: {}", expected.len());
        for (symbol, piece) in &expected {
            assert_eq!(Some(piece), found.get(symbol), "{symbol} of {name}");
        }
    }
}

#[test]
fn modules_for_macos_say_what_they_are() {
    let dir = scratch();
    let [_, (_, several), _] = crate::windows::SOURCES;
    fs::write(dir.path().join("m.te"), several).expect("a file is written");
    let tec = |args: &[&str]| tec_in(dir.path(), args);
    let refused = |args: &[&str], parts: &[&str]| refused_in(dir.path(), args, parts);
    for (target, arch) in [("x86-avx2-macos", "x86_64"), ("aarch64-macos", "aarch64")] {
        let macos = ["--target", target];
        let build = |output| tec(&[&["build", "m.te", "-o", output][..], &macos].concat());
        for output in ["m.o", "m.s", "m.tar"] {
            let built = build(output);
            assert!(built.status.success(), "{}", text(&built));
        }
        for module in ["m.o", "m.tar"] {
            let expected = format!("target {target} ({arch})");
            assert!(text(&tec(&["inspect", module])).contains(&expected));
        }
        let listing = fs::read_to_string(dir.path().join("m.s")).expect("a listing");
        assert!(listing.contains("cubes.body:\n") && !listing.contains("\n_cubes"), "{listing}");
        let first = fs::read(dir.path().join("m.o")).expect("an object");
        let file = object::File::parse(&*first).expect("a Mach-O object");
        assert_eq!(file.format(), object::BinaryFormat::MachO);
        assert!(file.section_by_name("__eh_frame").is_some_and(|section| section.size() > 100));
        refused(
            &[&["build", "m.te", "-o", "m.so"][..], &macos].concat(),
            &["E0528", "end it in `.a`", "`.dylib`"],
        );
        refused(
            &[&["build", "m.te", "-o", "m.dylib"][..], &macos].concat(),
            &["E0526", "end it in `.a`", "`.dylib`"],
        );
        refused(&[&["run", "m.te", "--var", "n=3"][..], &macos].concat(), &["E0545", "-o FILE.a"]);
        let library = build("m.a");
        if !library.status.success() {
            let variable = format!("CC_{arch}_macos");
            assert!(text(&library).contains(&variable), "{}", text(&library));
            continue;
        }
        let bytes = fs::read(dir.path().join("m.a")).expect("a library");
        assert_eq!(members(&bytes).len(), 2);
        assert!(text(&tec(&["inspect", "m.a"])).contains(target));
        assert!(build("m.a").status.success());
        assert_eq!(fs::read(dir.path().join("m.a")).expect("a library"), bytes, "two builds");
    }
    refused(&["build", "m.te", "--target", "riscv64-macos"], &["E0401", "aarch64-macos"]);
    let mixed = ["build", "m.te", "--target", "x86-avx2-macos,x86-64"];
    refused(&mixed, &["E0406", "for macos, `x86-64` for linux"]);
}

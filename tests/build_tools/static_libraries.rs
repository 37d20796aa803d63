//! `tec build -o k.a`.

use super::{root, run, scratch, succeeds, text_of, write};
use object::{Object, ObjectSymbol};
use std::fs;
use std::path::Path;
use tec::module::link::runtime_object;
use tec::module::static_library::members;
use tec::target::{Arch, Os, Target};

/// Two modules whose parallel loops need the runtime; `tests/c/static_libraries.c` calls them.
const FIRST: &str = "
kernel twice(n: var) {
    input x: float32[n]
    output y[i: n] = 2*x[i]
}
schedule twice for cpu {
    let o, l = y.split(i, factor=1024)
    y.parallel(o)
}
";
const SECOND: &str = "
kernel thrice(n: var) {
    input x: float32[n]
    output y[i: n] = 3*x[i]
}
schedule thrice for cpu {
    let o, l = y.split(i, factor=1024)
    y.parallel(o)
}
";

fn build_both(dir: &Path) {
    write(dir, "first.te", FIRST);
    write(dir, "second.te", SECOND);
    let base = Target::baseline(Arch::host().expect("a CPU that tec knows")).to_string();
    for name in ["first", "second"] {
        let (file, library) = (format!("{name}.te"), format!("{name}.a"));
        succeeds(dir, "tec", &["build", &file, "-o", &library, "--target", &base]);
    }
}

/// Links a program of both libraries. Returns its path.
#[track_caller]
fn link(dir: &Path, args: &[&str]) -> String {
    let source = root().join("tests/c/static_libraries.c");
    let source = source.to_str().expect("UTF-8");
    let common = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I.", source, "-o", "program"];
    let said = succeeds(dir, "cc", &[&common[..], args].concat());
    // The C library warns about a static program that calls `dlopen`.
    let is_static = args.contains(&"-static-pie");
    assert!(said.is_empty() || is_static, "{said}");
    "./program".to_string()
}

/// Returns how many functions a program has of this name with a version.
fn count(program: &Path, name: &str) -> usize {
    let bytes = fs::read(program).expect("a program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    // The C compiler calls parts of functions `NAME.part.0`.
    let version = |symbol: &str| symbol.strip_prefix(name)?.strip_prefix('.')?.chars().next();
    let is_one = |symbol: &str| version(symbol).is_some_and(|first| first.is_ascii_digit());
    file.symbols().filter(|one| one.name().is_ok_and(is_one)).count()
}

#[test]
fn programs_link_two_libraries_and_one_runtime() {
    let dir = scratch();
    build_both(dir.path());
    for options in [&[][..], &["-static-pie", "-fPIE"], &["-Wl,--gc-sections", "-no-pie"]] {
        for order in [["first.a", "second.a"], ["second.a", "first.a"]] {
            let program = link(dir.path(), &[&order[..], options, &["-pthread"]].concat());
            succeeds(dir.path(), &program, &[]);
            let program = dir.path().join(program);
            assert_eq!(count(&program, "tec_rt_parallel_for"), 1, "{options:?}");
        }
    }
}

#[test]
fn libraries_of_two_versions_have_a_runtime_each() {
    let dir = scratch();
    build_both(dir.path());
    let path = dir.path().join("second.a");
    let mut bytes = fs::read(&path).expect("a library");
    let version = concat!(".", env!("CARGO_PKG_VERSION"), ".").as_bytes();
    let places: Vec<usize> =
        (0..bytes.len() - version.len()).filter(|at| bytes[*at..].starts_with(version)).collect();
    for at in places {
        bytes[at + 1] = b'9';
    }
    fs::write(&path, bytes).expect("it can be written");
    let program = link(dir.path(), &["first.a", "second.a", "-pthread"]);
    succeeds(dir.path(), &program, &[]);
    assert_eq!(count(&dir.path().join(program), "tec_rt_parallel_for"), 2);
}

#[test]
fn a_program_links_libraries_of_one_file_with_prefixes() {
    let dir = scratch();
    let source = "
kernel product(n = 8) {
    input A: float32[n]
    input B: float32[n]
    output C[i: n] = A[i] * B[i] * n
}
schedule product for cpu {
    let P = B.cache_read(global, [C])
}
network both(n = 8) {
    input A: float32[n]
    output C[i: n] = A[i] + n
}
";
    write(dir.path(), "source.te", source);
    for (prefix, n) in [("small_", "n=8"), ("large_", "n=16")] {
        let library = format!("{prefix}.a");
        let options = ["--prefix", prefix, "-D", n, "--prepack", "product.B", "-o", &library];
        succeeds(dir.path(), "tec", &[&["build", "source.te"][..], &options].concat());
    }
    let program = "
#include \"small_.h\"
#include \"large_.h\"
int main(void) {
    float a[16], b[16], packed[16], c[16];
    for (int i = 0; i < 16; i++) a[i] = b[i] = (float)i;
    if (small_product(a, b, c) || c[7] != 7 * 7 * 8) return 1;
    if (large_product(a, b, c) || c[15] != 15 * 15 * 16) return 2;
    if (large_product_pack_B_bytes() != 64 || large_product_pack_B(b, packed)) return 3;
    if (large_product_prepacked(a, packed, c) || c[15] != 15 * 15 * 16) return 4;
    if (small_both(a, c) || c[7] != 15 || large_both(a, c) || c[15] != 31) return 5;
    return 0;
}
";
    write(dir.path(), "program.c", program);
    let files = ["program.c", "small_.a", "large_.a", "-Wall", "-Werror", "-o", "program"];
    succeeds(dir.path(), "cc", &files);
    succeeds(dir.path(), "./program", &[]);
    let shown = succeeds(dir.path(), "tec", &["inspect", "small_.a"]);
    assert!(
        shown.contains("small_product(A: float32[8], B: float32[8], C: float32[8])"),
        "{shown}"
    );
    for prefix in ["_", "1", "a-", "tec_"] {
        let output = run(dir.path(), "tec", &["build", "source.te", "--prefix", prefix]);
        let (done, said) = (output.status.success(), text_of(&output));
        let text = format!("error[E0203]: a kernel cannot be named `{prefix}product`");
        assert!(!done && said.contains(&text), "{said}");
    }
}

#[test]
fn a_library_has_its_header_and_manifest_and_no_free_names() {
    let dir = scratch();
    build_both(dir.path());
    for name in ["first.h", "first.json"] {
        assert!(dir.path().join(name).exists(), "{name}");
    }
    let shown = succeeds(dir.path(), "tec", &["inspect", "first.a"]);
    assert!(shown.contains("twice(x: float32[n], y: float32[n])"), "{shown}");
    assert_eq!(succeeds(dir.path(), "ar", &["t", "first.a"]), "tec_runtime.o\nfirst.o\n");
    let symbols = succeeds(dir.path(), "nm", &["-s", "first.a"]);
    let runtime = |line: &&str| line.contains("tec_rt_") && !line.contains(" t ");
    assert!(symbols.lines().any(|line| runtime(&line)), "{symbols}");
    let version = concat!(".", env!("CARGO_PKG_VERSION"), ".");
    for line in symbols.lines().filter(runtime) {
        assert!(line.contains(version), "`{line}` fits every version");
    }
    let bytes = fs::read(dir.path().join("first.a")).expect("a library");
    assert_eq!(members(&bytes).len(), 2);
    succeeds(dir.path(), "tec", &["build", "first.te", "-o", "again.a", "--module", "first"]);
    let native = fs::read(dir.path().join("again.a")).expect("a library");
    succeeds(dir.path(), "tec", &["build", "first.te", "-o", "again.a", "--module", "first"]);
    assert_eq!(native, fs::read(dir.path().join("again.a")).expect("a library"), "two builds");
    // Damage is no panic.
    for size in [8, 20, 68, 90, 1000, bytes.len() - 1] {
        fs::write(dir.path().join("cut.a"), &bytes[..size]).expect("it can be written");
        let output = run(dir.path(), "tec", &["inspect", "cut.a"]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{size}: {}", text_of(&output));
    }
}

#[test]
fn a_library_needs_the_runtime_of_its_cpu_family() {
    let dir = scratch();
    write(dir.path(), "first.te", FIRST);
    for arch in [Arch::Aarch64, Arch::Riscv64, Arch::X86_64] {
        let target = Target::baseline(arch).to_string();
        let (library, header) = (format!("{arch}.a"), format!("{arch}.h"));
        let output =
            run(dir.path(), "tec", &["build", "first.te", "-o", &library, "--target", &target]);
        let text = text_of(&output);
        match runtime_object(arch, Os::Linux) {
            Some(_) => assert!(output.status.success(), "{text}"),
            None => {
                assert!(text.contains("error[E0522]") && text.contains("CC_"), "{text}");
                let exists = |name: &str| dir.path().join(name).exists();
                assert!(!exists(&library) && !exists(&header));
            }
        }
    }
    // The other commands need a module that can be loaded.
    succeeds(dir.path(), "tec", &["build", "first.te", "-o", "m.a"]);
    let output = run(dir.path(), "tec", &["run", "m.a", "--var", "n=3"]);
    assert_eq!(output.status.code(), Some(1), "{}", text_of(&output));
}

//! Compiles programs as a build script does, without Cargo.

use super::*;
use std::fs;

/// Compiles a program of one file.
fn build(text: &str, config: &Config) -> Result<Built, Error> {
    let folder = std::env::temp_dir().join(format!("tec-build-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let name = std::thread::current().name().unwrap().replace("::", "_");
    let path = folder.join(format!("{name}.te"));
    fs::write(&path, text).unwrap();
    let result = config.build(&path, &Surroundings::for_tests("x86_64", "sse4.1"));
    fs::remove_file(path).unwrap();
    result
}

const ADD: &str = "
kernel add(n: var) {
    input a: float32[n]
    input b: float32[n]
    output c[i: n] = a[i] + b[i]
}
schedule add.plain for cpu { }
";

#[test]
fn bindings_are_typed_and_symbols_are_the_package_s_own() {
    let built = build(ADD, Config::new().module("sums").schedule("plain")).unwrap();
    let expected = "pub fn add(a: &[f32], b: &[f32], c: &mut [f32]) -> Result<(), Error> {";
    assert!(built.bindings.contains(expected), "{}", built.bindings);
    assert!(built.bindings.contains("pub mod sums {"), "{}", built.bindings);
    assert!(built.bindings.contains("\"tec.ptest_0_1_0_sums.add_dl\""), "{}", built.bindings);
    let library = static_library(&[("sums", &built.module.bytes)]);
    assert!(library.starts_with(b"!<arch>\n"));
    let has = |text: &str| library.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("tec.ptest_0_1_0_sums.add_dl\0") && has("sums.o/\n"));
    // Neither the names of docs/ABI.md nor a weak symbol that several modules would share.
    assert!(!has("\0add\0") && !has("__tvm_ffi") && !has("tec_manifest"), "other exports");
    assert_eq!(library, static_library(&[("sums", &built.module.bytes)]));
}

#[test]
fn constants_disappear_from_the_arguments() {
    let built = build(ADD, Config::new().define("n", 8).schedule("plain")).unwrap();
    assert!(built.bindings.contains("let shape = [Int::from(8_i64)];"), "{}", built.bindings);
}

#[test]
fn typical_sizes_name_run_time_integers() {
    let with = |name: &str| build(ADD, Config::new().typical([(name, 64)]).typical([("n", 4096)]));
    assert!(with("n").is_ok());
    let error = with("m").map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("error[E0248]"), "{error}");
    let negative = build(ADD, Config::new().typical([("n", -1)])).map(|_| ());
    assert!(negative.unwrap_err().to_string().starts_with("error[E0248]"));
}

#[test]
fn several_targets_are_one_module() {
    let text = format!("{ADD}{}", PRODUCT);
    let targets = ["x86-64", "x86-avx512", "x86-avx2"];
    let built = build(&text, Config::new().targets(targets).kernel("add").schedule("plain"));
    let bindings = built.unwrap().bindings;
    assert!(bindings.contains("for `x86-avx512`, `x86-avx2`, `x86-64`."), "{bindings}");
    let error = |config: &mut Config| build(&text, config).map(|_| ()).unwrap_err().to_string();
    let twice = error(Config::new().targets(["x86-avx2", "x86-avx2"]));
    assert!(twice.starts_with("error[E0406]: `x86-avx2` is given twice"), "{twice}");
    let foreign = error(Config::new().targets(["aarch64"]));
    assert!(foreign.contains("target `aarch64` is not for x86_64"), "{foreign}");
    let unknown = error(Config::new().target("x86-avx2").cpu("zen99"));
    assert!(unknown.starts_with("error[E0407]: unknown processor `zen99`"), "{unknown}");
    let scheduled = build(&text, Config::new().targets(targets).kernel("add").cpu("zen4"));
    let manifest = scheduled.unwrap().module.manifest.replace(' ', "");
    assert!(manifest.contains("\"processor\":\"zen4\""), "{manifest}");
    // The type of a packed operand has one layout.
    let packed = error(Config::new().targets(targets).kernel("product").prepack("B"));
    assert!(packed.starts_with("error[E0406]: `product_pack_B`: the layout of"), "{packed}");
    let same = build(
        &text,
        Config::new()
            .targets(["x86-64", "x86-avx2"])
            .define("product.w", 8)
            .kernel("product")
            .prepack("B"),
    );
    assert!(same.unwrap().bindings.contains("struct ProductPackedB"));
}

const PRODUCT: &str = "
kernel product(n = 32, w = 0) {
    input A: float32[n, n]
    input B: float32[n, n]
    reduce k: 0..n
    output C[x: n, y: n] = sum(A[x, k] * B[k, y], axis=k)
}
schedule product for cpu {
    let width = if w == 0 then target.lanes(float32) else w
    let P = B.cache_read(global, [C], layout=[ax1 // width, ax0, ax1 % width])
}
";

#[test]
fn errors_are_diagnostics() {
    let error = build("kernel f() { output a[i: 2] = b }", &Config::new()).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("error[E0201]"), "{error}");
    assert!(format!("{error:?}").contains(".te:1:31"), "{error:?}");
    let path = Path::new("no such file.te");
    let surroundings = Surroundings::for_tests("x86_64", "");
    let error = Config::new().build(path, &surroundings).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("no such file.te"), "{error}");
    let error = Config::new().build(Path::new("m.onnx"), &surroundings).map(|_| ()).unwrap_err();
    let expected = if cfg!(feature = "networks") { "m.onnx" } else { "feature `networks`" };
    assert!(error.to_string().contains(expected), "{error}");
    for name in ["a-b", "", "1st", "tec"] {
        let error = build(ADD, Config::new().module(name)).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("error[E0527]: `{name}` cannot be")), "{error}");
    }
}

#[test]
fn two_modules_of_one_name_are_refused() {
    take_name("twice").unwrap();
    assert!(take_name("twice").unwrap_err().to_string().contains("Config::module"));
}

#[test]
fn only_slow_compilers_without_optimisation_get_a_warning() {
    let path = Path::new("a.te");
    assert_eq!(slow_compiler(path, "0", Duration::from_millis(100)), None);
    assert_eq!(slow_compiler(path, "2", Duration::from_secs(9)), None);
    let text = slow_compiler(path, "0", Duration::from_secs(9)).unwrap();
    assert!(text.contains("9.0 s for a.te") && text.contains("build-override"), "{text}");
}

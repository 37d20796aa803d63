//! `--fast-math`: every function of float32 uses approximate instructions, stays within the bound
//! of `docs/MATH.md` in the emulator, and is assembled by `ptxas` if it is installed. Targets
//! without such instructions refuse the option.

use crate::support::{answer, ptxas, tec};
use std::path::Path;
use std::process::Command;

/// The functions with the instruction that each uses.
const FUNCTIONS: [(&str, &str); 17] = [
    ("exp(x[i])", "ex2.approx.f32"),
    ("exp2(x[i])", "ex2.approx.f32"),
    ("log(abs(x[i]))", "lg2.approx.f32"),
    ("log2(abs(x[i]))", "lg2.approx.f32"),
    ("rsqrt(abs(x[i]) + 0.01)", "rsqrt.approx.f32"),
    ("sqrt(abs(x[i]))", "sqrt.approx.f32"),
    ("sigmoid(x[i])", "rcp.approx.f32"),
    ("tanh(x[i])", "tanh.approx.f32"),
    ("sin(x[i])", "sin.approx.f32"),
    ("cos(x[i])", "cos.approx.f32"),
    ("tan(x[i] * 0.2)", "sin.approx.f32"),
    ("expm1(x[i])", "fma.rn.f32"),
    ("erf(x[i])", "fma.rn.f32"),
    ("atan(x[i])", "div.full.f32"),
    ("pow(x[i], 3.0)", "lg2.approx.f32"),
    ("x[i] / (abs(x[i]) + 1.0)", "div.full.f32"),
    ("1.0 / (abs(x[i]) + 1.0)", "rcp.approx.f32"),
];

fn source(folder: &Path, body: &str) -> String {
    let path = folder.join("f.te");
    // From -8 to 8.
    let text = format!(
        "kernel f(n = 512) {{\n    compute x[i: n] = (i as float32) * 0.03125 - 8.0\n    \
         output y[i: n] = {body}\n}}\n"
    );
    std::fs::write(&path, text).expect("it is written");
    path.to_str().expect("UTF-8").to_string()
}

#[test]
fn approximate_functions_stay_within_their_bounds() {
    let folder = tempfile::tempdir().expect("a folder");
    let ptx = folder.path().join("f.ptx");
    let ptx = ptx.to_str().expect("UTF-8");
    for (body, instruction) in FUNCTIONS {
        let file = source(folder.path(), body);
        let how = ["--target", "nvptx-sm_75", "--fast-math"];
        let run = [&["run", &file, "--emulate", "--verify"][..], &how].concat();
        let (good, said) = answer(&run);
        assert!(good && said.contains("no findings"), "{body}:\n{said}");
        let (good, said) = answer(&[&["build", &file, "-o", ptx][..], &how].concat());
        assert!(good, "{body}:\n{said}");
        let text = std::fs::read_to_string(ptx).expect("the text");
        assert!(text.contains(instruction), "{body}:\n{text}");
        assert!(text.contains("\"fast_math\":true"), "{body}: the manifest");
        assert!(!text.contains("div.rn.f32") && !text.contains("sqrt.rn.f32"), "{body}:\n{text}");
        if let Some(ptxas) = ptxas() {
            let output = Command::new(ptxas).args(["-arch=sm_75", "-o", "/dev/null", ptx]).output();
            let output = output.expect("ptxas runs");
            assert!(output.status.success(), "{body}: {output:?}");
        }
    }
}

#[test]
fn functions_are_exact_without_fast_math() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = source(folder.path(), "exp(x[i]) / (sqrt(abs(x[i])) + 2.0)");
    let run = ["run", &file, "--target", "nvptx-sm_80", "--emulate", "--verify"];
    let (good, said) = answer(&run);
    assert!(good && said.contains("bit-identical"), "{said}");
    assert!(!said.contains("approx"), "{said}");
}

#[test]
fn double_precision_is_not_approximated() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = source(folder.path(), "exp(x[i] as float64) / 3.5");
    let run = ["run", &file, "--target", "nvptx-sm_80", "--emulate", "--verify", "--fast-math"];
    let (good, said) = answer(&run);
    assert!(good && said.contains("bit-identical"), "{said}");
}

#[test]
fn fast_math_is_refused_for_cpus_and_modules() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = source(folder.path(), "exp(x[i])");
    let (good, said) = answer(&["run", &file, "--fast-math"]);
    assert!(!good && said.contains("error[E0405]: `--fast-math` is for GPUs"), "{said}");
    let module = folder.path().join("f.so");
    let module = module.to_str().expect("UTF-8");
    assert!(tec(&["build", &file, "-o", module]).status.success());
    let (good, said) = answer(&["run", module, "--fast-math"]);
    assert!(!good && said.contains("error[E0547]"), "{said}");
}

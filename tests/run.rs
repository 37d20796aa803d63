//! What `tec run` tells: results, wrong arguments, files that it cannot run.

use crate::support::tec;
use std::path::Path;

/// `gather` needs indices below 50, `gather_far` indices from 100.
const KERNELS: &str = "\
kernel scale(n = 8) {
    input x: float32[n]
    output small[i: n] = x[i] * 1e-10
    output count[i: n] = 200 as uint8
    output none[i: n] = x[i] * (inf(float32) - inf(float32))
}

kernel gather(n = 8) {
    input table: float32[50]
    input at: int32[n]
    reduce k: 0..n
    output y[i: n] = table[at[i]]
    output largest[] = max(at[k], axis=k)
}

kernel gather_far(n = 8) {
    input table: float32[50]
    input at: int32[n]
    output y[i: n] = table[at[i] - 100]
}
";

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = tec(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn kernels(dir: &Path) -> String {
    let path = dir.join("kernels.te");
    std::fs::write(&path, KERNELS).expect("a scratch file");
    path.to_str().expect("UTF-8").to_string()
}

#[test]
fn numbers_have_their_digits() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    // A kernel that is named twice runs once.
    let args = ["run", &file, "--kernel", "scale", "--kernel", "scale"];
    let (status, out, error) = run(&args);
    assert_eq!(status, Some(0), "{error}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].starts_with("small: float32[8]  min ") && lines[0].contains("e-11"), "{out}");
    assert_eq!(lines[1], "count: uint8[8]  min 200  max 200  mean 200.000000");
    assert_eq!(lines[2], "none: float32[8]  all NaN");
}

#[test]
fn random_indices_lie_in_their_table() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    let (status, out, error) = run(&["run", &file, "--kernel", "gather", "-D", "n=1000"]);
    assert_eq!(status, Some(0), "{error}");
    assert!(out.contains("largest: int32[]  min 49  max 49"), "{out}");
}

#[test]
fn a_random_integer_that_is_no_index_is_explained() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    let (status, _, error) = run(&["run", &file, "--kernel", "gather_far"]);
    assert_eq!(status, Some(1), "{error}");
    assert!(error.contains("but the extent is 50"), "{error}");
    let help = "random integers are 0 to 99; give indices: `--input at=FILE.npy`";
    assert!(error.contains(help), "{error}");
}

#[test]
fn an_output_that_no_kernel_has_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    let (status, out, error) = run(&["run", &file, "--output", "smal=s.npy"]);
    assert_eq!((status, &out[..]), (Some(1), ""), "{error}");
    assert!(error.contains("`scale` has no output `smal`"), "{error}");
    assert!(error.contains("did you mean `small`?"), "{error}");
}

#[test]
fn modules_to_link_are_not_loaded() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    for name in ["k.o", "k.a", "k.tar"] {
        let module = dir.path().join(name);
        let module = module.to_str().expect("UTF-8");
        let (status, _, error) = run(&["build", &file, "-o", module]);
        assert_eq!(status, Some(0), "{error}");
        let (status, _, error) = run(&["run", module]);
        assert_eq!(status, Some(1), "{error}");
        assert!(error.contains("is no shared object, and cannot be loaded"), "{error}");
    }
}

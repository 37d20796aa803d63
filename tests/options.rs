//! Options that contradict each other or would change nothing are told. `--dump` and `--time`.

use crate::support::tec;
use std::path::Path;

const MATMUL: &str = "samples/matmul.te";

const KERNELS: &str = "\
kernel scale(n: var) {
    input x: float32[n]
    output y[i: n] = x[i] * 2.0
}

kernel shift(n: var, by = 1) {
    input x: float32[n]
    input c: float32
    output z[i: n] = x[i] + c * by
}

schedule scale.lanes(width = 8) {
    let io, ii = y.split(i, factor=width)
    y.vectorize(ii)
}
";

fn kernels(dir: &Path) -> String {
    let path = dir.join("kernels.te");
    std::fs::write(&path, KERNELS).expect("a scratch file");
    path.to_str().expect("UTF-8").to_string()
}

/// Runs `tec`, which must fail, and returns its message.
fn refused(args: &[&str]) -> String {
    let output = tec(args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn notes(args: &[&str]) -> String {
    let output = tec(args);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success(), "{args:?}\n{text}");
    text
}

#[test]
fn two_values_of_one_name_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    let message = refused(&["check", &file, "-D", "by=1", "-D", "by=2"]);
    assert!(message.contains("`by` has two values: `-D by=1`, `-D by=2`"), "{message}");
    notes(&["check", &file, "-D", "by=2", "-D", "by=2"]);
    let message = refused(&["run", &file, "--var", "n=4", "--var", "n=5"]);
    assert!(message.contains("`n` has two values: `--var n=4`, `--var n=5`"), "{message}");
}

#[test]
fn an_argument_can_be_for_one_of_several_kernels() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    let both = ["run", &file[..], "--var", "n=3", "--var", "shift.n=5", "--scalar", "shift.c=0"];
    let output = tec(&both);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("y: float32[3]") && text.contains("z: float32[5]"), "{text}");
    let message = refused(&["run", &file, "--var", "n=3", "--scalar", "scale.c=0"]);
    assert!(message.contains("`scale` has no scalar input `c`"), "{message}");
    let message = refused(&["run", &file, "--var", "n=3", "--var", "other.n=5"]);
    assert!(message.contains("no run-time integer `other.n`"), "{message}");
}

#[test]
fn a_value_for_a_schedule_that_is_not_used_is_noted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    let width = ["-D", "scale.lanes.width=16", "--kernel", "scale"];
    let text = notes(&[&["lower", &file], &width[..]].concat());
    assert!(text.contains("`-D scale.lanes.width=16` changes nothing"), "{text}");
    let used = notes(&[&["lower", &file, "--schedule", "lanes"], &width[..]].concat());
    assert_eq!(used, "");
    let auto = notes(&[&["lower", &file, "--schedule", "auto"], &width[..]].concat());
    assert!(auto.contains("does not use its schedule `lanes`"), "{auto}");
}

#[test]
fn options_of_other_commands_and_outputs_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = kernels(dir.path());
    let message = refused(&["check", &file, "--dump", "simplify"]);
    assert!(message.contains("`tec check` runs no passes"), "{message}");
    let message = refused(&["lower", &file, "--simple", "--schedule-tree"]);
    assert!(message.contains("cannot be used with"), "{message}");
    let message = refused(&["lower", &file, "--freeze", "x=x.npy"]);
    assert!(message.contains("`--freeze x=x.npy` is for ONNX models"), "{message}");
    let message = refused(&["lower", &file, "--params", "x.safetensors"]);
    assert!(message.contains("has no network, so it has no params"), "{message}");
}

#[test]
fn dump_and_time_print_to_stderr() {
    let output = tec(&["lower", MATMUL, "--dump", "all", "--time"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    for text in ["# matmul after simplify", "build_loops", "ms  total"] {
        assert!(message.contains(text), "no `{text}` in\n{message}");
    }
}

#[test]
fn time_shows_what_the_search_for_a_schedule_takes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = dir.path().join("mm.so").display().to_string();
    let output = tec(&["build", MATMUL, "-D", "n=64", "--schedule", "auto", "--time", "-o", &out]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let mut lines = message.lines().skip_while(|line| !line.ends_with("ms  schedule")).skip(1);
    let head = lines.next().expect("a line about the candidates").trim_start();
    let (count, rest) = head.split_once(' ').expect("a number");
    assert!(count.parse::<u32>().is_ok_and(|count| count > 1), "{message}");
    assert!(rest.starts_with("candidates, "), "{message}");
    let phases: Vec<&str> = lines.take_while(|line| line.starts_with("    ")).collect();
    for phase in ["infer_bounds", "simplify", "estimate"] {
        assert!(phases.iter().any(|line| line.ends_with(phase)), "no {phase} in\n{message}");
    }
}

/// A network can take minutes to compile.
#[test]
fn a_folder_that_is_missing_is_told_before_anything_is_compiled() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("wrong.te");
    std::fs::write(&source, "kernel wrong(").expect("a scratch file");
    let source = source.to_str().expect("UTF-8");
    let inside = dir.path().join("missing/out.so");
    let inside = inside.to_str().expect("UTF-8");
    let message = refused(&["build", source, "-o", inside]);
    assert!(message.contains("E0501") && message.contains("missing/out.so"), "{message}");
    let there = dir.path().join("out.so");
    let there = there.to_str().expect("UTF-8");
    let message = refused(&["build", source, "-o", there, "--depfile", inside]);
    assert!(message.contains("E0501"), "{message}");
    // Nothing stays behind.
    refused(&["build", source, "-o", there]);
    let files = std::fs::read_dir(dir.path()).expect("a folder").count();
    assert_eq!(files, 1);
}

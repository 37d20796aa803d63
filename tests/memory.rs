//! Commands that need more memory than is free fail with a message; the system does not kill them.

use std::process::{Command, Output};

const MATMUL: &str = "samples/matmul.te";

fn tec(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tec")).args(args).output().expect("tec starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let output = tec(args);
    assert_eq!(output.status.code(), Some(0), "tec {args:?}\n{}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[track_caller]
fn fails(args: &[&str], status: i32, text: &str) -> String {
    let output = tec(args);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "tec {args:?}\n{message}");
    assert!(message.contains(text), "tec {args:?}: no `{text}` in\n{message}");
    message
}

/// Arguments that are larger than the memory are refused before they are allocated.
#[test]
fn runs_that_need_too_much_memory_are_refused() {
    let message = fails(&["run", MATMUL, "-D", "n=500000"], 1, "E0543");
    assert!(message.contains("the arguments of `matmul` take 3000.0 GB"), "{message}");
    fails(&["run", MATMUL, "--threads", "513"], 2, "not in 1..=512");
}

/// The module computes `S` element by element; the interpreter stores all of it.
#[test]
fn too_little_memory_for_the_interpreter_is_not_a_bug() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sums.te");
    let text = "\
kernel sums(n: var, m: var) {
    input a: float32[m, n]
    reduce k: 0..n
    compute S[j: m] = sum(a[j, k], axis=k)
    output c[j: m, i: n] = a[j, i] + S[j]
}
schedule sums.s {
    S.compute_at(c, j)
}
";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let sizes = ["--var", "n=0", "--var", "m=1099511627776"];
    let run = [&["run", file, "--schedule", "s"], &sizes[..]].concat();
    assert!(succeeds(&run).contains("empty"));
    let message = fails(&[&run[..], &["--verify"]].concat(), 1, "E0543");
    assert!(message.contains("`S[1099511627776]`"), "{message}");
    assert!(message.contains("GB of memory are free"), "{message}");

    let gpu = "    S.bind(j, blockIdx.x)
    c.bind(i, blockIdx.x)";
    std::fs::write(file, text.replace("    S.compute_at(c, j)", gpu)).unwrap();
    let target = ["--target", "nvptx-sm_80", "--emulate"];
    let message = fails(&[&run[..], &target].concat(), 1, "E0543");
    assert!(message.contains("no memory for `S`, 4398046511104 bytes"), "{message}");
}

/// The memory limit of the process can be lower than the free memory of the system.
#[test]
fn arguments_beyond_the_limit_of_the_process_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("first.te");
    let text = "kernel first(n: var) { assume n > 0 input a: uint8[n] output c[i: 1] = a[i] }";
    std::fs::write(&file, text).unwrap();
    let (tec, file) = (env!("CARGO_BIN_EXE_tec"), file.display());
    let run = format!("{tec} run {file} --schedule default --var n=2600000000");
    let script = format!("ulimit -v 2500000; exec {run}");
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("no memory for"), "{}", stderr(&output));
}

/// A limit on virtual memory below the compiler's stack is an error, not a bug.
#[test]
fn a_limit_below_the_stack_is_an_error() {
    let script = format!("ulimit -v 900000 && exec {} check {MATMUL}", env!("CARGO_BIN_EXE_tec"));
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("`tec` needs 1 GiB of address space for its stack"), "{message}");
}

/// With address space for one stack only, the candidates of `auto` are estimated one by one.
#[test]
fn an_automatic_schedule_allocates_one_stack() {
    let build = format!("{} build {MATMUL} --schedule auto -o", env!("CARGO_BIN_EXE_tec"));
    let dir = tempfile::tempdir().unwrap();
    let [limited, free] = ["limited", "free"].map(|name| dir.path().join(name).join("m.so"));
    for path in [&limited, &free] {
        std::fs::create_dir(path.parent().unwrap()).unwrap();
    }
    let script =
        format!("{build} {} && ulimit -v 2000000 && {build} {}", free.display(), limited.display());
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(std::fs::read(limited).unwrap() == std::fs::read(free).unwrap());
}

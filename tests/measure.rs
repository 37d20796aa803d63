//! Measuring candidates in worker processes, and the records of the measurements.

use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const PROGRAM: &str = "# A product.
kernel product(n = 48) {
    input A: float32[n, n]
    input B: float32[n, n]
    reduce k: 0..n
    output C[i: n, j: n] = sum(A[i, k] * B[k, j], axis=k)
}
";

/// A kernel whose schedules can be too slow, too large or wrong. `zero` is 0 in the declared order
/// of terms only: every other order differs by more than the bound of `reassociate`, which is
/// relative to the largest result.
const FAULTS: &str = "kernel faults(n = 192, m = 16384) reassociate {
    input A: float32[n, n]
    input W: float32[m, 2]
    reduce k: 0..n
    compute S[i: n] = sum(A[i, k], axis=k)
    compute T[i: n] = sum(A[i, k], axis=k)
    compute P[i: n] = sum(A[i, k], axis=k)
    compute Q[i: n] = sum(A[i, k] * P[k], axis=k)
    compute R[i: n] = sum(A[i, k] * Q[k], axis=k)
    output zero[i: n] = S[i] - T[i]
    output chain[i: n] = sum(A[i, k] * R[k], axis=k)
    output rows[i: m] = W[i, 0] + W[i, 1]
}
";

/// Recomputes each stage for every term of its reader, which takes minutes on one thread.
const SLOW: &str = "R.compute_at(chain, k)\n    Q.compute_at(R, k)\n    P.compute_at(Q, k)";
/// A copy of `W` with rows of 256 KiB: 4 GiB.
const LARGE: &str = "let L = W.cache_read(global, [rows])\n    L.storage_align(ax0, 65536, 0)";
/// Reorders the terms of `S`, but not those of `T`.
const WRONG: &str = "let ko, ki = S.split(k, factor=8)\n    let L = S.rfactor(ki)";

/// Seconds of CPU time after which the system kills a process of [`Place::limited`].
const CPU_SECONDS: u32 = 4;
/// That signal: SIGXCPU.
const CPU_SIGNAL: i32 = 24;

/// Returns a schedule of `faults` with these directives.
fn faults(directives: &str) -> String {
    format!("schedule faults for {} {{\n    {directives}\n}}\n", native())
}

/// Returns a correct schedule of `faults`, another one for each factor.
fn correct(factor: usize) -> String {
    faults(&format!("let io, ii = chain.split(i, factor={factor})"))
}

/// A directory with the program in it, and a cache of its own.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a temporary directory"));
        place.write("p.te", PROGRAM);
        place.write("f.te", FAULTS);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("a scratch file");
        self.path(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file that was written")
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
        command.args(line).current_dir(self.0.path());
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    /// Returns the same for processes that the system kills after [`CPU_SECONDS`].
    fn limited(&self, line: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let script = format!("ulimit -S -t {CPU_SECONDS} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tec")]).args(line);
        command.current_dir(self.0.path()).env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    fn tec(&self, line: &[&str]) -> Output {
        self.command(line).output().expect("tec starts")
    }

    #[track_caller]
    fn succeeds(&self, line: &[&str]) -> String {
        let output = self.tec(line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "tec {line:?}\n{errors}");
        String::from_utf8(output.stdout).expect("UTF-8") + &errors
    }

    #[track_caller]
    fn fails(&self, line: &[&str], text: &str) {
        let output = self.tec(line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "tec {line:?}\n{errors}");
        assert!(errors.contains(text), "tec {line:?}: no `{text}` in\n{errors}");
    }

    /// Measures schedules of a kernel as a runner's job does; the outcomes and the notes.
    #[track_caller]
    fn measure(&self, setup: Value, texts: &[String], in_turns: Option<f64>) -> (Value, Value) {
        let jobs: Vec<Value> = texts.iter().map(|text| job(text, 1)).collect();
        self.measure_jobs(setup, &jobs, in_turns)
    }

    #[track_caller]
    fn measure_jobs(&self, setup: Value, jobs: &[Value], in_turns: Option<f64>) -> (Value, Value) {
        let batch =
            json!({"format": 1, "setup": setup, "jobs": jobs, "in_turns": in_turns, "best": null});
        self.write("in.json", &batch.to_string());
        let output = self.limited(&["tune-batch", "in.json", "out.json"]).output();
        let output = output.expect("tec starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{errors}");
        let mut out: Value = serde_json::from_str(&self.read("out.json")).expect("JSON");
        (out["outcomes"].take(), out["notes"].take())
    }

    fn records(&self, name: &str) -> Vec<Value> {
        let text = self.read(name);
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Returns a schedule to measure, with a time limit in seconds for its first call.
fn job(text: &str, seconds: u64) -> Value {
    json!({"text": text, "limit": {"secs": seconds, "nanos": 0}})
}

/// Returns a candidate during whose first call the worker is killed.
fn crashing() -> Value {
    job(&faults(SLOW), 60)
}

fn crash() -> Value {
    json!({"failed": {"crash": {"signal": CPU_SIGNAL}}})
}

fn setup(file: &str, kernel: &str) -> Value {
    json!({
        "file": file, "kernel": kernel, "target": native(), "define": [], "fp_contract": "fast",
        "opt": 3, "input": [], "var": [], "scalar": [], "seed": 0, "threads": 2,
        "memory": 2u64 << 30
    })
}

fn native() -> String {
    tec::target::Target::native().to_string()
}

/// Schedules that differ, with a comment in each.
fn schedule(factor: usize, comment: &str) -> String {
    let target = native();
    format!(
        "schedule product for {target} {{\n    # {comment}\n    \
         let io, ii = C.split(i, factor={factor})\n    C.parallel(io)\n}}\n"
    )
}

/// Records of schedules that an earlier version measured elsewhere.
fn unmeasured(schedules: &[String]) -> String {
    unmeasured_of("product", PROGRAM, schedules)
}

fn unmeasured_of(kernel: &str, program: &str, schedules: &[String]) -> String {
    let line = |workload: &str, schedule: &str| {
        json!({
            "format": 1, "workload": workload, "kernel": kernel, "target": native(),
            "machine": {"cpu": "another", "cores": 1}, "threads": 1, "fp_contract": "fast",
            "schedule": schedule, "times": [1.0], "verdict": "same", "seed": 0, "tec": "0.0.1"
        })
        .to_string()
            + "\n"
    };
    let workload = workload_of(program);
    schedules.iter().map(|schedule| line(&workload, schedule)).collect()
}

struct Text(String);

impl tec::lang::Loader for Text {
    fn read(&self, _: &str) -> Result<Vec<u8>, String> {
        Ok(self.0.clone().into_bytes())
    }
}

fn workload_of(text: &str) -> String {
    let options = tec::driver::Options::new(tec::target::Target::native());
    let mut trace = tec::driver::Trace::default();
    let program = tec::driver::load("p.te", &Text(text.to_string()), &mut trace);
    let program = program.unwrap_or_else(|(_, failure)| panic!("{failure:?}"));
    let graphs = tec::driver::elaborate(&program, &options, &mut trace).expect("a right program");
    tec::tune::workload::workload_hash(&graphs[0])
}

#[track_caller]
fn assert_right(outcome: &Value) {
    assert_eq!(outcome["measured"]["verdict"], "same", "{outcome}");
    let times = outcome["measured"]["times"].as_array().expect("times");
    assert!(times.iter().all(|time| time.as_f64().is_some_and(|time| time > 0.0)), "{outcome}");
}

#[track_caller]
fn assert_wrong(outcome: &Value) {
    let ulp = outcome["measured"]["verdict"]["wrong"]["ulp"].as_u64();
    assert!(ulp > Some(0), "{outcome}");
}

#[test]
fn reports_each_kind_of_failure_and_measures_the_other_candidates() {
    let place = Place::new();
    let mut jobs: Vec<Value> = [
        correct(4),
        faults(SLOW),
        faults(SLOW),
        correct(6),
        faults(LARGE),
        faults(WRONG),
        "schedule faults { chain.foo(i) }".to_string(),
        "schedule other { chain.parallel(i) }".to_string(),
        correct(8),
    ]
    .iter()
    .map(|text| job(text, 1))
    .collect();
    jobs[1] = crashing();
    let (outcomes, notes) = place.measure_jobs(setup("f.te", "faults"), &jobs, None);
    for at in [0, 3, 8] {
        assert_right(&outcomes[at]);
    }
    assert_eq!(outcomes[1], crash());
    assert_eq!(outcomes[2], json!({"failed": "timeout"}));
    assert_eq!(outcomes[4], json!({"failed": "memory"}));
    assert_wrong(&outcomes[5]);
    let refused = |at: usize, text: &str| {
        let said = outcomes[at]["failed"]["refused"].as_str().unwrap_or_default();
        assert!(said.contains(text), "{}", outcomes[at]);
    };
    refused(6, "E0305");
    refused(7, "the schedule is for kernel `other`, not for `faults`");
    assert!(notes.to_string().contains("compared with those of the default schedule"), "{notes}");
    // The reference output is cached.
    let (_, notes) = place.measure_jobs(setup("f.te", "faults"), &jobs[..1], None);
    assert!(notes.to_string().contains("with cached ones: of the default schedule"), "{notes}");
}

#[test]
fn compares_candidates_interleaved_and_leaves_out_those_that_fail() {
    let place = Place::new();
    let setup = || setup("f.te", "faults");
    let texts = [correct(4), correct(6), faults(WRONG)];
    let (outcomes, _) = place.measure(setup(), &texts, Some(0.2));
    assert_right(&outcomes[0]);
    assert_right(&outcomes[1]);
    let rounds = |at: usize| outcomes[at]["measured"]["times"].as_array().map(Vec::len);
    assert_eq!(rounds(0), rounds(1));
    assert!(rounds(0) >= Some(3), "{outcomes}");
    assert_wrong(&outcomes[2]);
    let alone = |place: &Place| {
        let out: Value = serde_json::from_str(&place.read("out.json")).expect("JSON");
        out["alone"].as_bool().expect("a boolean")
    };
    let jobs = [job(&correct(4), 1), crashing()];
    let (outcomes, _) = place.measure_jobs(setup(), &jobs, Some(0.2));
    assert_right(&outcomes[0]);
    assert_eq!(outcomes[1], crash());
    assert!(alone(&place), "no other candidate is left to compare with");
    // The other candidates are compared without it.
    let jobs = [job(&correct(4), 1), crashing(), job(&correct(6), 1)];
    let (outcomes, notes) = place.measure_jobs(setup(), &jobs, Some(0.2));
    assert_right(&outcomes[0]);
    assert_right(&outcomes[2]);
    assert_eq!(outcomes[1], crash());
    assert!(notes.to_string().contains("of 2 candidates"), "{notes}");
    assert!(!alone(&place));
}

#[test]
fn a_slow_kernel_is_compared_with_a_verified_automatic_schedule() {
    let place = Place::new();
    place.write("big.te", &PROGRAM.replace("n = 48", "n = 1100"));
    let text = format!(
        "schedule product for {} {{\n    let io, jo, ii, ji = C.tile(i, j, 4, 64)\n    \
         C.reorder(io, jo, k, ii, ji)\n    C.parallel(io)\n    C.vectorize(ji)\n}}",
        native()
    );
    let mut big = setup("big.te", "product");
    big["memory"] = json!(4u64 << 30);
    let (outcomes, notes) = place.measure(big, &[text], None);
    assert_eq!(outcomes[0]["measured"]["verdict"], "same", "{outcomes}");
    assert!(notes.to_string().contains("1000 elements of which"), "{notes}");
}

/// Returns the reply of a worker to a setup whose reference output is not that of the default
/// schedule.
fn compared_by_samples(place: &Place, setup: Value) -> String {
    let mut child = place
        .command(&["tune-worker"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tec starts");
    let line = json!({"setup": {"setup": setup, "reference": "auto"}}).to_string() + "\n";
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(line.as_bytes()).expect("it listens");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_string()
}

#[test]
fn reference_elements_are_verified_for_every_kind_of_kernel() {
    let place = Place::new();
    let samples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples");
    let kernels = [
        ("matmul_add.te", "matmul_add", &["N=64"][..]),
        ("softmax.te", "softmax", &["m=40", "n=50"][..]),
    ];
    for (file, kernel, define) in kernels {
        let file = samples.join(file);
        let mut setup = setup(file.to_str().expect("UTF-8"), kernel);
        setup["define"] = json!(define);
        let said = compared_by_samples(&place, setup);
        let ready = said.starts_with("{\"ready\"");
        assert!(ready && said.contains("1000 elements of which"), "{kernel}: {said}");
    }
    // Two outputs, one of which reads the other; a tuple; a result without axes.
    let program = "kernel several(n = 30, m = 50) {
    input A: float32[n, m]
    reduce k: 0..m
    reduce l: 0..m
    reduce i: 0..n
    output top[x: n] = max(A[x, k], axis=k)
    compute E[x: n, y: m] = exp(A[x, y] - top[x])
    compute S[x: n] = sum(E[x, l], axis=l)
    output out[x: n, y: m] = E[x, y] / S[x]
    output all[] = sum(S[i], axis=i)
}";
    place.write("several.te", program);
    let said = compared_by_samples(&place, setup("several.te", "several"));
    // 30 of 30, 1000 of 1500, 1 of 1.
    assert!(said.contains("1031 elements of which"), "{said}");
}

/// Waits until the file has `lines` lines, then kills the process.
fn kill_after(place: &Place, lines: usize) -> usize {
    let mut child = place
        .command(&["records", "replay", "old.jsonl", "p.te", "-o", "new.jsonl", "--threads", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tec starts");
    let count = || {
        let text = std::fs::read_to_string(place.path("new.jsonl")).unwrap_or_default();
        text.matches('\n').count()
    };
    while count() < lines && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it can be killed");
    let output = child.wait_with_output().expect("it ends");
    // The record was written before the line was printed.
    String::from_utf8_lossy(&output.stdout).matches("product ").count()
}

#[test]
fn a_killed_search_loses_only_the_current_trial_and_resumes() {
    let place = Place::new();
    let schedules: Vec<String> = (1..=24).map(|factor| schedule(factor, "right")).collect();
    place.write("old.jsonl", &unmeasured(&schedules));
    let mut said = 0;
    for lines in [1, 4, 9, 15] {
        said += kill_after(&place, lines);
        assert!(place.records("new.jsonl").len() >= said, "{said} trials were said to be kept");
        // An incomplete write.
        let text = place.read("new.jsonl") + "{\"format\":1,\"workload\":\"";
        place.write("new.jsonl", &text);
    }
    let replay = ["records", "replay", "old.jsonl", "p.te", "-o", "new.jsonl", "--threads", "2"];
    let text = place.succeeds(&replay);
    assert!(text.contains("product "), "something was left to do:\n{text}");
    let records = place.records("new.jsonl");
    let mut measured: Vec<&str> =
        records.iter().map(|record| record["schedule"].as_str().expect("a text")).collect();
    measured.sort_unstable();
    let mut wanted: Vec<&str> = schedules.iter().map(|text| &text[..]).collect();
    wanted.sort_unstable();
    assert_eq!(measured, wanted, "each once");
    assert!(records.iter().all(|record| record["tec"] == env!("CARGO_PKG_VERSION")));
    let text = place.succeeds(&replay);
    assert!(text.contains("every record of `product` has been measured"), "{text}");
}

#[test]
fn the_best_schedule_is_printed_written_back_and_built() {
    let place = Place::new();
    let schedules: Vec<String> = [2, 3, 8].map(|factor| schedule(factor, "right")).into();
    place.write("r.jsonl", &unmeasured(&schedules));
    place.succeeds(&["records", "replay", "r.jsonl", "p.te", "--threads", "2"]);
    let shown = place.succeeds(&["records", "show", "r.jsonl"]);
    assert_eq!(shown.lines().count(), 6, "{shown}");
    assert_eq!(shown.matches("  best").count(), 1, "{shown}");
    let best = place.tec(&["best", "r.jsonl"]);
    let best = String::from_utf8(best.stdout).expect("UTF-8");
    assert!(best.starts_with("schedule product.tuned for "), "{best}");
    for (form, name) in [("so", "a.so"), ("s", "a.s")] {
        let line = ["build", "p.te", "--records", "r.jsonl", "--no-sidecars", "-o", name];
        let said = place.succeeds(&line);
        assert!(said.contains("recorded by tec"), "{said}");
        let recorded = std::fs::read(place.path(name)).expect("a module");
        // The schedule pasted by hand at the end of the file.
        place.write("p.te", &format!("{PROGRAM}\n{best}"));
        place.succeeds(&["build", "p.te", "--schedule", "tuned", "--no-sidecars", "-o", name]);
        let pasted = std::fs::read(place.path(name)).expect("a module");
        assert!(recorded == pasted, "{form} differs");
        place.write("p.te", PROGRAM);
        place.succeeds(&["build", "p.te", "--no-sidecars", "-o", name]);
        assert!(recorded != std::fs::read(place.path(name)).unwrap(), "the schedule is used");
    }
    place.succeeds(&["best", "r.jsonl", "--write-back", "p.te"]);
    assert_eq!(place.read("p.te"), format!("{PROGRAM}\n{best}"));
    place.succeeds(&["best", "r.jsonl", "--write-back", "p.te"]);
    assert_eq!(place.read("p.te"), format!("{PROGRAM}\n{best}"), "once more");
    // `tec build` then uses it without a note, even if it was appended twice.
    place.succeeds(&["build", "p.te", "--schedule", "tuned", "--no-sidecars", "-o", "a.so"]);
    let asked = std::fs::read(place.path("a.so")).expect("a module");
    place.write("p.te", &format!("{PROGRAM}\n{best}\n{best}"));
    place.succeeds(&["build", "p.te", "--no-sidecars", "-o", "a.so"]);
    let plain = std::fs::read(place.path("a.so")).expect("a module");
    assert!(asked.len() == plain.len(), "the written schedule is used");
    place.succeeds(&["best", "r.jsonl", "--write-back", "p.te"]);
    assert_eq!(place.read("p.te").matches(".tuned").count(), 1, "one is left");
    place.write("p.te", &format!("{PROGRAM}\n{best}"));
    let lowered = place.succeeds(&["lower", "p.te", "--simple", "--records", "r.jsonl"]);
    let tuned = place.succeeds(&["lower", "p.te", "--simple", "--schedule", "tuned"]);
    assert!(lowered.contains(tuned.trim()), "{lowered}\n{tuned}");
    let verified = ["run", "p.te", "--records", "r.jsonl", "--verify", "--threads", "2"];
    assert!(place.succeeds(&verified).contains("bit-identical"));
    // Another size is another workload.
    place.fails(&["build", "p.te", "-D", "n=32", "--records", "r.jsonl"], "E0605");
    place.write("p.te", "kernel q(n = 4) {\n input A: float32[n]\n output B[i: n] = A[i]\n}\n");
    place.fails(&["best", "r.jsonl", "--write-back", "p.te"], "the file has no kernel `product`");
    let usage = place.tec(&["build", "p.te", "--records", "r.jsonl", "--schedule", "auto"]);
    assert_eq!(usage.status.code(), Some(2), "one or the other");
}

#[test]
fn records_are_merged_and_pruned() {
    let place = Place::new();
    let texts: Vec<String> = [2, 3].map(|factor| schedule(factor, "right")).into();
    let both = unmeasured(&texts);
    let first = unmeasured(&texts[..1]);
    place.write("a.jsonl", &first);
    place.write("b.jsonl", &(both.clone() + "{\"format\": 1"));
    let said = place.succeeds(&["records", "merge", "a.jsonl", "b.jsonl", "-o", "c.jsonl"]);
    assert!(said.contains("b.jsonl: line 3 was not written to its end"), "{said}");
    assert_eq!(place.records("c.jsonl").len(), 2);
    place.succeeds(&["records", "prune", "c.jsonl", "--keep", "1"]);
    assert_eq!(place.records("c.jsonl").len(), 1);
    assert_eq!(place.tec(&["records", "prune", "c.jsonl", "--keep", "0"]).status.code(), Some(2));
    // `prune` keeps lines that this version cannot read, and refuses a file to which a search still
    // appends.
    place.write("later.jsonl", &(both.clone() + "{\"format\": 9}\n"));
    place.fails(&["records", "prune", "later.jsonl"], "would lose 1 line");
    place.succeeds(&["records", "prune", "later.jsonl", "-o", "d.jsonl"]);
    let searching = std::fs::File::open(place.path("b.jsonl")).expect("a file");
    searching.lock_shared().expect("nobody has it");
    place.fails(&["records", "prune", "b.jsonl"], "a search adds to it");
    drop(searching);
    place.succeeds(&["records", "prune", "b.jsonl"]);
    // Nothing is added to another kind of file.
    place.fails(&["best", "p.te"], "p.te is not a file of records: line");
    place.write("text", PROGRAM);
    place
        .fails(&["tune", "p.te", "--trials", "1", "--records", "text"], "is not a file of records");
    assert_eq!(place.read("text"), PROGRAM);
    place.fails(&["tune", "p.te", "--trials", "1", "--records", "p.te"], "overwrite the source");
    assert_eq!(place.read("p.te"), PROGRAM);
    place.fails(&["tune", "p.te", "--trials", "1", "--records", "/dev/full"], "E0604");
    place.fails(&["best", "/dev/zero"], "is a device");
    place.write("damaged.jsonl", &both.replace("schedule product", "schedul product"));
    place.fails(&["best", "damaged.jsonl"], "the schedule of `product` comes from damaged.jsonl");
    place.fails(
        &["best", "a.jsonl", "--kernel", "q", "--threads", "1"],
        "of `q` with 1 thread that gave correct results",
    );
    place.fails(&["records", "show", "no-such.jsonl"], "E0604");
    place.fails(&["best", "no-such.jsonl"], "E0604");
    place.write("empty.jsonl", "");
    place.fails(&["best", "empty.jsonl"], "E0605");
}

#[test]
fn a_wrong_candidate_is_kept_as_a_failing_case() {
    let place = Place::new();
    let texts = [faults(WRONG), correct(2)];
    place.write("f.records.jsonl", &unmeasured_of("faults", FAULTS, &texts));
    let line = ["records", "replay", "f.records.jsonl", "f.te", "--threads", "2", "--seed", "5"];
    let said = place.succeeds(&line);
    assert!(said.contains("a bug in tec: f.wrong-1.te computes wrongly"), "{said}");
    let kept = place.read("f.wrong-1.te");
    assert!(kept.contains(FAULTS) && kept.contains("S.rfactor"), "{kept}");
    assert!(kept.contains("# tec run f.wrong-1.te --kernel faults --schedule tuned"), "{kept}");
    assert!(kept.contains("--seed 5 --threads 2 --verify"), "{kept}");
    let records = place.records("f.records.jsonl");
    let wrong = records.iter().find(|record| record["verdict"] == "wrong").expect("a record");
    assert!(wrong["ulp"].as_u64() > Some(0), "{wrong}");
    // It is recorded, but it is never the best.
    assert!(!place.succeeds(&["best", "f.records.jsonl"]).contains("S.rfactor"));
}

#[test]
fn a_runner_measures_by_any_command() {
    let place = Place::new();
    let texts = [correct(4), faults(SLOW), correct(2)];
    place.write("old.jsonl", &unmeasured_of("faults", FAULTS, &texts));
    let replay = |runner: &str| {
        let line = ["records", "replay", "old.jsonl", "f.te", "-o", "new.jsonl", "--limit", "60"];
        let line = [&line[..], &["--threads", "2", "--runner", runner]].concat();
        place.limited(&line).output().expect("tec starts")
    };
    let output = replay("sh {}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = place.records("new.jsonl");
    let verdicts: Vec<&str> =
        records.iter().map(|record| record["verdict"].as_str().expect("a verdict")).collect();
    assert_eq!(verdicts, ["same", "failed", "same"]);
    assert_eq!(records[1]["failure"], crash()["failed"]);
    for (runner, why) in [
        ("echo no node >&2; false {}", "failed (exit status: 1): no node"),
        ("true {}", "ended without an out.json"),
        ("printf garbage > \"$(dirname {})/out.json\"", "out.json is damaged"),
    ] {
        // The error comes before the first measurement.
        std::fs::remove_file(place.path("new.jsonl")).expect("it is there");
        let output = replay(runner);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("E0603") && said.contains(why), "{runner}: {said}");
        assert!(!place.path("new.jsonl").exists(), "{runner}");
        // A runner that fails later.
        let later = format!("if mkdir begun; then sh {{}}; else {runner}; fi");
        assert!(replay(&later).status.success(), "{runner}");
        let record = &place.records("new.jsonl")[2];
        let said = record["failure"]["runner"].as_str().unwrap_or_default();
        assert!(said.contains(why), "{runner}: {record}");
        std::fs::remove_dir(place.path("begun")).expect("it was made");
    }
    // Candidates that the runner did not measure remain.
    assert!(replay("sh {}").status.success());
    assert_eq!(place.records("new.jsonl").len(), 6);
    // The runner reports the machine on which it measured.
    std::fs::remove_file(place.path("new.jsonl")).expect("it is there");
    let other = "sh {} && sed -i 's/\"cpu\": \"[^\"]*\"/\"cpu\": \"another\"/' \
                 \"$(dirname {})/out.json\"";
    assert!(replay(other).status.success());
    let records = place.records("new.jsonl");
    assert!(records.iter().all(|record| record["machine"]["cpu"] == "another"), "{records:?}");
    let left: Vec<_> = std::fs::read_dir(place.0.path())
        .expect("a directory")
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("batch"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::remove_file(place.path("new.jsonl")).expect("it is there");
    let output = replay("sh");
    assert!(String::from_utf8_lossy(&output.stderr).contains("E0603"));
}

#[test]
fn kernels_that_cannot_be_measured_are_refused_before_the_first_candidate() {
    let place = Place::new();
    let program = PROGRAM.replace("n = 48", "n: var");
    place.write("v.te", &program);
    let line = unmeasured(&[schedule(4, "right")]);
    let line = line.replace(&workload_of(PROGRAM), &workload_of(&program));
    place.write("v.jsonl", &line);
    place.fails(&["records", "replay", "v.jsonl", "v.te"], "E0601");
    place.succeeds(&["records", "replay", "v.jsonl", "v.te", "--var", "n=20"]);
    assert_eq!(place.records("v.jsonl")[1]["vars"], json!({"n": 20}));
    place.fails(&["tune-batch", "p.te", "out.json"], "E0602");
    assert!(!place.path("out.json").exists());
}

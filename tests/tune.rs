//! `tec tune` as a user runs it: its output, its records, resumed searches, and refused options.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const PROGRAM: &str = "kernel product(n = 40) {
    input A: float32[n, n]
    input B: float32[n, n] layout_free
    reduce k: 0..n
    output C[i: n, j: n] = sum(A[i, k] * B[k, j], axis=k)
}

kernel row_sums(n = 40) {
    input A: float32[n, n]
    reduce k: 0..n
    output S[i: n] = sum(A[i, k], axis=k)
}

schedule product.knobs {
    knob rows = 2 in [1, 2, 4]
    let io, ii = C.split(i, factor=rows)
    C.unroll(ii)
}
";

/// A directory with the program in it, and a cache of its own.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a temporary directory"));
        std::fs::write(place.path("p.te"), PROGRAM).expect("a scratch file");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file that was written")
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
        command.args(line).current_dir(self.0.path()).env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    fn tec(&self, line: &[&str]) -> Output {
        self.command(line).output().expect("tec starts")
    }

    #[track_caller]
    fn succeeds(&self, line: &[&str]) -> (String, String) {
        let output = self.tec(line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "tec {line:?}\n{errors}");
        (String::from_utf8(output.stdout).expect("UTF-8"), errors)
    }

    /// Returns the schedules of all records, in order.
    fn tried(&self, name: &str) -> Vec<Value> {
        let text = self.read(name);
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|record| record["in_turns"] != true).collect()
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}:\n{text}"))
}

#[test]
fn the_best_schedules_are_printed_as_a_part_of_the_file() {
    let place = Place::new();
    let (text, _) = place.succeeds(&["tune", "p.te", "--trials", "24", "--plot", "c.svg"]);
    assert!(text.starts_with("# product on "), "{text}");
    for part in ["schedule product.tuned for ", "schedule row_sums.tuned for ", "the best takes "] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(!text.contains("defect"), "{text}");
    assert_eq!(place.tried("p.records.jsonl").len(), 24);
    assert!(place.read("c.svg").contains("seconds of the search"));
    // Pasted into the file, the schedule is used and its results agree; the output of another
    // search may follow.
    std::fs::write(place.path("q.te"), format!("{PROGRAM}\n{text}")).expect("a scratch file");
    place.succeeds(&["run", "q.te", "--verify"]);
    let (tree, _) = place.succeeds(&["lower", "q.te", "--simple"]);
    assert_eq!(place.succeeds(&["lower", "q.te", "--simple", "--schedule", "tuned"]).0, tree);
    assert_ne!(place.succeeds(&["lower", "p.te", "--simple"]).0, tree);
    std::fs::write(place.path("q.te"), format!("{PROGRAM}\n{text}\n{text}")).expect("a file");
    assert_eq!(place.succeeds(&["lower", "q.te", "--simple"]).0, tree);
}

/// A `layout_free` input is packed before the timed calls, and the output says so.
#[test]
fn prepacked_inputs_are_reported() {
    let place = Place::new();
    let schedule = "schedule product.packs {
    knob rows = 2 in [1, 2, 4]
    let Packed = B.cache_read(global, [C], layout=[ax1 // 8, ax0, ax1 % 8])
    let io, ii = C.split(i, factor=rows)
    let jo, ji = C.split(j, factor=8)
    C.reorder(io, jo, k, ii, ji)
    C.vectorize(ji)
}
";
    // Run-time integers, a second packed input, and an input that may not be packed.
    let several = "kernel several(n: var, m = 24) {
    input A: float32[n, m] layout_free
    input B: float32[m, m] layout_free
    input D: float32[m, m]
    reduce k: 0..m
    compute P[i: n, j: m] = sum(A[i, k] * B[k, j], axis=k)
    output C[i: n, j: m] = P[i, j] + D[j, i % 24]
}

schedule several.packs {
    knob f = 4 in [2, 4]
    let PackedA = A.cache_read(global, [P], layout=[ax1, ax0])
    let PackedB = B.cache_read(global, [P], layout=[ax1, ax0])
    let PackedD = D.cache_read(global, [C], layout=[ax1, ax0])
    C.split(j, factor=f)
}
";
    std::fs::write(place.path("p.te"), format!("{PROGRAM}{schedule}")).expect("a scratch file");
    std::fs::write(place.path("s.te"), several).expect("a scratch file");
    let packs = ["--schedule", "packs", "--trials", "3"];
    let (text, _) =
        place.succeeds(&[&["tune", "p.te", "--kernel", "product"], &packs[..]].concat());
    let line = "# this time is with `B` packed ahead: tec build --prepack B\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("\n# otherwise each call packs, which takes about "), "{text}");
    assert!(!text.contains(" failed") && !text.contains("defect"), "{text}");
    let tune = ["tune", "s.te", "--var", "n=17", "--json"];
    let (text, _) = place.succeeds(&[&tune[..], &packs[..]].concat());
    let best = serde_json::from_str::<Value>(&text).expect("JSON")["kernels"][0]["best"].clone();
    assert_eq!(best["prepack"], serde_json::json!(["A", "B"]), "{text}");
    let trials = place.tried("s.records.jsonl");
    assert!(!trials.is_empty() && trials.iter().all(|one| one["failure"].is_null()), "{trials:?}");
    // The same by the cost model alone, and not without `layout_free`.
    let (text, _) = place.succeeds(&[&["tune", "s.te", "--estimate"], &packs[..]].concat());
    assert!(text.contains("tec build --prepack A --prepack B\n"), "{text}");
    let fixed = several.replace(" layout_free", "");
    std::fs::write(place.path("s.te"), fixed).expect("a scratch file");
    let (text, _) = place.succeeds(&[&["tune", "s.te", "--estimate"], &packs[..]].concat());
    assert!(!text.contains("packed"), "{text}");
}

#[test]
fn a_search_resumes_recorded_trials_and_repeats_none() {
    let place = Place::new();
    let tune = ["tune", "p.te", "--kernel", "product", "--trials", "12"];
    place.succeeds(&tune);
    let (_, notes) = place.succeeds(&tune);
    assert!(notes.contains("product: "), "{notes}");
    assert!(notes.contains(" resumed from p.records.jsonl"), "{notes}");
    let tried = place.tried("p.records.jsonl");
    let mut texts: Vec<&str> = tried.iter().filter_map(|one| one["schedule"].as_str()).collect();
    assert_eq!(texts.len(), 24);
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), 24, "a schedule was tried twice");
    // Records that this version refuses are ignored with a note.
    let text = place.read("p.records.jsonl").replace(".vectorize(", ".vectorise(");
    std::fs::write(place.path("p.records.jsonl"), text).expect("a scratch file");
    let (_, notes) = place.succeeds(&["tune", "p.te", "--kernel", "product", "--trials", "1"]);
    assert!(notes.contains("ignored, whose schedules this version refuses, E0305:"), "{notes}");
}

#[test]
fn a_killed_search_keeps_its_records() {
    let place = Place::new();
    let line = ["tune", "p.te", "--kernel", "product", "--budget", "60s"];
    let mut search = place.command(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let search = search.as_mut().expect("tec starts");
    let path = place.path("p.records.jsonl");
    let lines = || std::fs::read_to_string(&path).map_or(0, |text| text.matches('\n').count());
    for _ in 0..600 {
        if lines() >= 3 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    search.kill().expect("it runs");
    search.wait().expect("it ran");
    let kept = lines();
    assert!(kept >= 3, "{kept} records after a minute");
    let (_, notes) = place.succeeds(&["tune", "p.te", "--kernel", "product", "--trials", "1"]);
    assert!(notes.contains("resumed from"), "{notes}");
    assert!(lines() > kept);
}

#[test]
fn a_search_takes_over_the_batches_of_a_killed_search() {
    let place = Place::new();
    let line = ["tune", "p.te", "--kernel", "product", "--runner", "sh {}", "--trials"];
    let mut search = place.command(&[&line[..], &["64"]].concat());
    let search = search.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut search = search.expect("tec starts");
    let batch = |name: &str| {
        let entries = std::fs::read_dir(place.path(".")).expect("a directory");
        let mut paths = entries.map(|entry| entry.expect("an entry").path().join(name));
        paths.find(|path| path.parent().unwrap().to_string_lossy().contains(".tec-batch-"))
    };
    let lines = |path: &std::path::Path| {
        std::fs::read_to_string(path).map_or(0, |text| text.matches('\n').count())
    };
    let wait_for = |what: &dyn Fn() -> bool| {
        assert!(
            (0..3000).any(|_| what() || {
                std::thread::sleep(Duration::from_millis(20));
                false
            }),
            "after a minute"
        );
    };
    wait_for(&|| batch("out.jsonl").is_some_and(|path| lines(&path) >= 1));
    search.kill().expect("it runs");
    search.wait().expect("it ran");
    let kept = lines(&place.path("p.records.jsonl"));
    // The job continues.
    wait_for(&|| batch("out.json").is_some_and(|path| path.exists()));
    let (_, notes) = place.succeeds(&[&line[..], &["1"]].concat());
    assert!(notes.contains("note: product: 4 trials whose search had ended are added"), "{notes}");
    assert!(
        notes.contains(&format!("{} trials resumed from p.records.jsonl", kept + 4)),
        "{notes}"
    );
    assert!(batch("in.json").is_none());
}

#[test]
fn the_knobs_of_a_schedule_are_a_space() {
    let place = Place::new();
    let line = ["tune", "p.te", "--schedule", "product.knobs", "--kernel", "product", "--json"];
    let (text, _) = place.succeeds(&line);
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let kernel = &result["kernels"][0];
    assert_eq!((&kernel["trials"], &kernel["exhausted"]), (&3.into(), &true.into()), "{text}");
    let schedule = kernel["best"]["schedule"].as_str().expect("a schedule");
    assert!(schedule.contains("schedule product.knobs") && !schedule.contains("knob rows"));
    assert!(kernel["best"]["seconds"].as_f64().expect("a number") > 0.0);
}

/// A search of a schedule's knobs ignores records of schedules that the rules wrote.
#[test]
fn a_knob_search_ignores_records_of_other_schedules() {
    let place = Place::new();
    let line = ["tune", "p.te", "--kernel", "product", "--trials", "4"];
    place.succeeds(&line);
    let knobs = [&line[..], &["--schedule", "knobs"]].concat();
    let (text, notes) = place.succeeds(&knobs);
    assert!(text.contains("schedule product.tuned"), "{text}");
    assert!(!notes.contains("resumed from"), "{notes}");
    let (text, notes) = place.succeeds(&knobs);
    assert!(text.contains("schedule product.tuned"), "{text}");
    assert!(notes.contains("resumed from"), "{notes}");
}

/// Each kernel uses the options for its own run-time integers.
#[test]
fn kernels_with_different_arguments_are_tuned_together() {
    let place = Place::new();
    let text = "kernel one(n: var) { input A: float32[n] output C[i: n] = A[i] * 2.0 }\n\
                kernel two(n: var, m: var) {\n    input A: float32[n, m]\n    \
                output C[i: n, j: m] = A[i, j] * 2.0\n}\n\
                kernel three(n = 30) { input A: float32[n] output C[i: n] = A[i] * 2.0 }\n";
    std::fs::write(place.path("v.te"), text).expect("a scratch file");
    let line = ["tune", "v.te", "--trials", "6", "--var", "n=20", "--var", "m=30"];
    let (text, _) = place.succeeds(&line);
    for kernel in ["one", "two", "three"] {
        assert!(text.contains(&format!("# {kernel} on ")), "{text}");
    }
    let line = ["tune", "v.te", "--trials", "0", "--records", "no.jsonl", "--kernel", "three"];
    let (text, _) = place.succeeds(&line);
    assert!(text.contains("no candidate was tried"), "{text}");
}

/// Each size is searched, the best schedules are compared at all sizes, and what is printed is what
/// `tec best` writes and `tec build --records` builds.
#[test]
fn several_sizes_make_one_schedule() {
    let place = Place::new();
    let program = "kernel scaled(n: var, m: var) {
    input A: float32[n, m]
    output B[i: n, j: m] = A[i, j] * 2.0
}

schedule scaled.knobs {
    knob lanes = 8 in [4, 8, 16]
    let jo, ji = B.split(j, factor=lanes)
    B.vectorize(ji)
}

kernel row(l: var) {
    input A: float32[l]
    output B[i: l] = A[i] + 1.0
}
";
    std::fs::write(place.path("s.te"), program).expect("a scratch file");
    let vars = ["--var", "n=1,300", "--var", "m=7,200", "--var", "l=50"];
    let tune = [&["tune", "s.te", "--trials", "20"], &vars[..]].concat();
    let (text, _) = place.succeeds(&tune);
    for size in ["n=1 m=7", "n=1 m=200", "n=300 m=7", "n=300 m=200"] {
        assert!(text.contains(&format!("# scaled {size} on ")), "no {size} in\n{text}");
    }
    assert_eq!(text.matches("schedule scaled.tuned for ").count(), 1, "{text}");
    assert!(text.contains("# row on ") && text.contains("schedule row.tuned for "), "{text}");
    // The three ways to use the result are the same.
    let (best, _) = place.succeeds(&["best", "s.records.jsonl", "--kernel", "scaled"]);
    assert!(text.contains(&best), "{text}\n{best}");
    std::fs::write(place.path("q.te"), format!("{program}\n{text}")).expect("a scratch file");
    let (pasted, _) = place.succeeds(&["lower", "q.te", "--simple"]);
    let recorded = ["lower", "s.te", "--simple", "--records", "s.records.jsonl"];
    assert_eq!(place.succeeds(&recorded).0, pasted);
    for (n, m) in [("n=0", "m=5"), ("n=1", "m=33"), ("n=400", "m=129")] {
        let run = ["run", "q.te", "--kernel", "scaled", "--verify", "--var", n, "--var", m];
        place.succeeds(&run);
    }
    // The knobs of a schedule, too; these sizes have no trials of it.
    let knobs = [&tune[..2], &["--kernel", "scaled", "--schedule", "knobs"]].concat();
    let knobs = [&knobs[..], &["--trials", "8", "--json"], &vars[..4]].concat();
    let found = json(&place.succeeds(&knobs).0);
    assert_eq!(found["kernels"].as_array().map(Vec::len), Some(4), "{found}");
    assert!(found["versions"]["scaled"].is_string(), "{found}");
    // The best schedule of a size was measured at the others, too.
    let lines: Vec<Value> = place.read("s.records.jsonl").lines().map(json).collect();
    let sizes = found["kernels"].as_array().expect("a list");
    for (size, one) in sizes.iter().flat_map(|size| sizes.iter().map(move |one| (size, one))) {
        let measured = lines.iter().any(|line| {
            line["vars"] == size["vars"]
                && line["in_turns"] == true
                && line["schedule"] == one["best"]["schedule"]
        });
        assert!(measured, "{} at {}", one["best"]["schedule"], size["vars"]);
    }
}

#[test]
fn lists_of_sizes_are_refused_where_there_are_no_versions() {
    let place = Place::new();
    let program = "kernel row(l: var) {
    input A: float32[l]
    output B[i: l] = A[i] + 1.0
}
";
    std::fs::write(place.path("s.te"), program).expect("a scratch file");
    let many: Vec<String> = (1..18).map(|n| n.to_string()).collect();
    for (option, list, why) in [
        ("--estimate", "l=1,2", "sizes are compared by measurements"),
        ("--target=nvptx-sm_80", "l=1,2", "schedules for GPUs have no versions"),
        ("--trials=1", &format!("l={}", many.join(",")), "17 sizes; a schedule has 16 versions"),
        ("--trials=1", "l=1,x", "`x` is not an integer"),
        ("--trials=1", "l=1,", "`` is not an integer"),
    ] {
        let output = place.tec(&["tune", "s.te", option, "--var", list]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(why), "{option} {list}: {errors}");
    }
}

#[test]
fn the_stage_graph_is_printed() {
    let place = Place::new();
    let (text, _) = place.succeeds(&["tune", "p.te", "--dag"]);
    let expected = "# product
A = PLACEHOLDER [40, 40]
B = PLACEHOLDER [40, 40]
C(i, j) += (A[i, k]*B[k, j])

# row_sums
A = PLACEHOLDER [40, 40]
S(i) += A[i, k]
";
    assert_eq!(text, expected);
}

#[test]
fn sums_are_reordered_only_with_permission() {
    let place = Place::new();
    let line = ["tune", "p.te", "--kernel", "row_sums", "--trials", "8"];
    let (text, _) = place.succeeds(&line);
    assert!(!text.contains("reassociate=true"), "{text}");
    let (text, _) = place.succeeds(&[&line[..], &["--reassociate", "--json"]].concat());
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["kernels"][0]["failures"], serde_json::json!({}), "{text}");
    let tried = place.tried("p.records.jsonl");
    let says =
        |one: &Value| one["schedule"].as_str().is_some_and(|t| t.contains("reassociate=true"));
    assert!(tried.iter().any(says));
}

#[test]
fn kernels_that_cannot_be_tuned_are_refused() {
    let place = Place::new();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["tune", "p.so"], 2, "takes a `.te` file or an ONNX model, not p.so"),
        (&["tune", "p.te", "--budget", "soon"], 2, "write it as 60s, 5m or 1h"),
        (&["tune", "p.te", "--plot", "c.png"], 2, "the plot is an SVG"),
        (&["tune", "p.te", "--schedule", "nobs"], 1, "no schedule `nobs`"),
        (&["tune", "p.te", "--schedule", "auto"], 1, "the file has no schedule `auto`"),
        (&["tune", "p.te", "--schedule", "knobs", "-D", "product.knobs.rows=2"], 1, "E0217"),
        (&["tune", "p.te", "--budget", "-3s"], 2, "write it as 60s, 5m or 1h"),
        (&["tune", "p.te", "--trials", "-1"], 2, "invalid value '-1' for '--trials"),
        (&["tune", "p.te", "--threads", "513"], 2, "not in 1..=512"),
        (&["tune", "p.te", "--plot", "none/c.svg"], 1, "there is no folder none"),
        (&["tune", "p.te", "--opt", "0"], 2, "fully optimised code is measured"),
        (&["tune", "p.te", "--dump", "all"], 2, "give them to `tec build`"),
        (&["tune", "p.te", "--var", "m=3", "--trials", "1"], 1, "has no run-time integer `m`"),
        (&["tune", "p.te", "-D", "n=500000"], 1, "times the arguments of `product` take"),
        (&["tune", "p.te", "--runner", "no-such {}"], 1, "the runner failed (exit status: 127)"),
        (&["tune", "p.te", "--target", "riscv64"], 1, "does not run on this machine"),
        (&["tune", "none.te"], 1, "cannot read `none.te`"),
    ];
    for (line, status, text) in cases {
        let output = place.tec(line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(*status), "tec {line:?}\n{errors}");
        assert!(errors.contains(text), "tec {line:?}: no `{text}` in\n{errors}");
    }
}

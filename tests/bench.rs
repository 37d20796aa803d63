//! `tec bench` as a user runs it: the contents of the table, the JSON and the plot, and what is
//! refused. No test depends on times.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const MATMUL: &str = "samples/matmul.te";

/// The options of every quick measurement.
const QUICK: [&str; 3] = ["--min-time=0.01", "--roofline=off", "bench"];

/// Runs `tec bench` with a cache directory of the test's own.
fn tec(cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
    command.env("XDG_CACHE_HOME", cache).args(args).output().expect("tec starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[track_caller]
fn succeeds(cache: &Path, args: &[&str]) -> String {
    let output = tec(cache, args);
    assert_eq!(output.status.code(), Some(0), "tec {args:?}\n{}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the shortest measurement, without limits.
#[track_caller]
fn quick(args: &[&str]) -> String {
    let [min_time, roofline, bench] = QUICK;
    let args = [&[bench], args, &[min_time, roofline]].concat();
    succeeds(Path::new("/nonexistent"), &args)
}

#[track_caller]
fn fails(args: &[&str], status: i32, part: &str) {
    let [min_time, roofline, bench] = QUICK;
    let args = [&[bench], args, &[min_time, roofline]].concat();
    let output = tec(Path::new("/nonexistent"), &args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "tec {args:?}\n{message}");
    assert!(message.contains(part), "tec {args:?}: no `{part}` in\n{message}");
    assert_eq!(text(&output.stdout), "", "tec {args:?}");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[track_caller]
fn positive(value: &Value) -> f64 {
    let number = value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"));
    assert!(number > 0.0 && number.is_finite(), "{number}");
    number
}

#[test]
fn json_holds_every_number() {
    let one = ["-D", "n=32", "--threads", "1", "--schedule", "block", "--json"];
    let all = json(&quick(&[&[MATMUL][..], &one].concat()));
    assert_eq!(all["threads"], 1);
    assert_eq!(all["sweep"], Value::Null);
    assert_eq!(all["machines"].as_array().map(Vec::len), Some(0));
    let row = &all["results"][0];
    assert_eq!((row["kernel"].as_str(), row["schedule"].as_str()), (Some("matmul"), Some("block")));
    assert_eq!(row["flops"], 2.0 * 32.0 * 32.0 * 32.0);
    assert_eq!(row["bytes"], 3.0 * 4.0 * 32.0 * 32.0);
    let times = ["min_ns", "q1_ns", "median_ns", "q3_ns"].map(|name| positive(&row[name]));
    assert!(times.is_sorted(), "{times:?}");
    for name in ["gflops", "gbs", "rounds", "calls"] {
        positive(&row[name]);
    }
    for name in ["point", "roofline", "beside", "speedup"] {
        assert_eq!(row[name], Value::Null, "{name}");
    }
}

#[test]
fn several_schedules_are_compared_with_the_first() {
    let sizes = [MATMUL, "-D", "n=32", "--threads", "2"];
    let lists: [&[&str]; 2] =
        [&["--schedule", "reorder,block"], &["--schedule", "reorder", "--schedule", "block"]];
    for list in lists {
        let all = json(&quick(&[&sizes[..], list, &["--json"]].concat()));
        let rows = all["results"].as_array().expect("rows");
        let names: Vec<&str> = rows.iter().filter_map(|row| row["schedule"].as_str()).collect();
        assert_eq!(names, ["reorder", "block"]);
        assert_eq!(rows[0]["rounds"], rows[1]["rounds"], "one of each a round");
        assert_eq!(rows[0]["speedup"], Value::Null);
        let ratio = ["low", "value", "high"].map(|name| positive(&rows[1]["speedup"][name]));
        assert!(ratio[0] <= ratio[2], "{ratio:?}");
    }
    let table = quick(&[&sizes[..], lists[0]].concat());
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.lines().next().is_some_and(|head| head.ends_with("speed")), "{table}");
}

#[test]
fn every_schedule_has_its_label() {
    let dir = scratch();
    let file = dir.path().join("k.te");
    let text = "kernel k(n = 64) { input A: float32[n] output B[i: n] = A[i] * 2.0 }\n\
                schedule k { B.unroll(i) }\nschedule k.own { B.vectorize(i) }\n";
    std::fs::write(&file, text).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let labels = |more: &[&str]| {
        let all = json(&quick(&[&[file][..], more, &["--json"]].concat()));
        let rows = all["results"].as_array().expect("rows").clone();
        rows.iter().map(|row| row["schedule"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(labels(&["--schedule", "default,auto,own"]), ["default", "auto", "own"]);
    assert_eq!(labels(&[]), ["unnamed"]);
    let module = dir.path().join("k.so");
    let module = module.to_str().expect("UTF-8");
    for schedule in ["auto", "own", "default"] {
        succeeds(dir.path(), &["build", file, "--schedule", schedule, "-o", module]);
        let all = json(&quick(&[module, "--json"]));
        assert_eq!(all["results"][0]["schedule"], schedule, "of a module");
    }
}

/// A kernel is compared with the peak of the type that it multiplies, whatever the type of its
/// results.
#[test]
fn the_peak_matches_the_element_type() {
    let dir = scratch();
    let file = dir.path().join("k.te");
    let text = "kernel product(n = 64) {\n    input A: int8[n, n]\n    input B: uint8[n, n]\n    \
                input s: float32[n]\n    reduce k: 0..n\n    compute S[i: n, j: n] = \
                sum((A[i, k] as int32) * (B[k, j] as int32), axis=k)\n    \
                output C[i: n, j: n] = (S[i, j] as float32) * s[j]\n}\n\
                kernel mask(n = 64) {\n    input A: float32[n, n]\n    input m: int8[n]\n    \
                output C[i: n, j: n] = if m[j] == 0 then A[i, j] else 0.0\n}\n\
                kernel halves(n = 64) {\n    input A: int16[n, n]\n    input s: float32[n]\n    \
                output C[i: n, j: n] = (A[i, j] as float32) * s[j]\n}\n";
    std::fs::write(&file, text).expect("a file");
    let args = ["bench", file.to_str().unwrap(), "--min-time=0.01", "--threads=1", "--json"];
    let all = json(&succeeds(dir.path(), &args));
    let peak = |row: usize| all["results"][row]["roofline"]["peak_gflops"].clone();
    let machine = &all["machines"][0];
    assert_eq!([peak(0), peak(1)], ["peak_i8", "peak_f32"].map(|name| machine[name].clone()));
    assert_eq!(peak(2), Value::Null);
    assert!(positive(&machine["peak_i8"]) > positive(&machine["peak_f32"]), "{machine}");
}

/// One default for every command: that of a module.
#[test]
fn the_default_number_of_threads_is_that_of_a_module() {
    let dir = scratch();
    let threads = |line: &[&str], named: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
        command.args(line).env("XDG_CACHE_HOME", dir.path()).env("TEC_NUM_THREADS", named);
        let output = command.output().expect("tec starts");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        json(&text(&output.stdout))["threads"].clone()
    };
    let bench = ["bench", MATMUL, "-D", "n=8", "--min-time=0.01", "--roofline=off", "--json"];
    let explain = ["explain", MATMUL, "-D", "n=8", "--machine", "typical", "--json"];
    let tune = ["tune", MATMUL, "-D", "n=8", "--estimate", "--trials", "2", "--json"];
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    for line in [&bench[..], &explain, &tune] {
        assert_eq!(threads(line, "3"), 3, "{line:?}");
        assert_eq!(threads(line, "none"), cpus, "{line:?}");
        assert_eq!(threads(&[line, &["--threads", "2"]].concat(), "3"), 2, "{line:?}");
    }
}

#[test]
fn estimates_take_run_time_integers() {
    let dir = scratch();
    let file = dir.path().join("two.te");
    let two = "kernel copy(n: var) { input A: float32[n] output B[i: n] = A[i] }\n\
               kernel twice(m: var) { input A: float32[m] output B[i: m] = A[i] * 2.0 }\n";
    std::fs::write(&file, two).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let fixed = ["explain", file, "--machine", "typical", "--target", "x86-avx2", "--threads", "1"];
    let seconds = |vars: &[&str]| {
        let all = json(&succeeds(dir.path(), &[&fixed[..], &["--json"], vars].concat()));
        [0, 1].map(|at| positive(&all["kernels"][at]["seconds"]))
    };
    let short = seconds(&["--var", "n=251", "--var", "m=251"]);
    let long = seconds(&["--var", "n=251", "--var", "m=251000"]);
    assert_eq!(short[0], long[0]);
    assert!(long[1] > 100.0 * short[1], "{long:?} {short:?}");
    assert_eq!(seconds(&["--var", "n=251", "--var", "twice.m=251000"]), long);
    seconds(&["--var", "n=-1", "--var", "m=9223372036854775807"]);

    for (var, part) in [
        ("nn=3", "it has: n"),
        ("n=x", "`x` is not an integer"),
        ("twice.n=3", "`twice` has no run-time integer `n`"),
    ] {
        let output = tec(dir.path(), &[&fixed[..], &["--var", var]].concat());
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(1) && told.contains(part), "{var}: {told}");
    }
}

#[test]
fn modules_are_compared_too() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_string();
    let (one, two, file) = (path("one.so"), path("two.so"), path("small.te"));
    let sample = std::fs::read_to_string(MATMUL).expect("the sample");
    std::fs::write(&file, sample.replace("n = 1024", "n = 32")).expect("a file");
    for (out, schedule) in [(&one, "reorder"), (&two, "block")] {
        succeeds(dir.path(), &["build", &file, "--schedule", schedule, "-o", out]);
    }
    let all = json(&quick(&[&one, &two, &file, "--json"]));
    let rows = all["results"].as_array().expect("rows");
    let files: Vec<&str> = rows.iter().filter_map(|row| row["file"].as_str()).collect();
    assert_eq!(files, [&one, &two, &file]);
    assert_eq!(rows[1]["schedule"], "block");
    positive(&rows[2]["speedup"]["value"]);

    fails(&[&one, "-D", "n=64"], 1, "E0547");
    fails(&[&one, "--schedule", "block"], 1, "E0547");
    fails(&[&one, "--kernel", "conv"], 1, "E0543");
}

#[test]
fn a_kernel_without_the_schedules_is_measured_once() {
    let dir = scratch();
    let file = dir.path().join("two.te");
    let text = "kernel one(n = 8) { input A: float32[n] output C[i: n] = A[i] * 2.0 }\n\
                kernel two(n = 8) { input A: float32[n] output C[i: n] = A[i] * 3.0 }\n\
                schedule one.a { C.vectorize(i) }\nschedule one.b { C.unroll(i) }\n";
    std::fs::write(&file, text).expect("a file");
    let all = json(&quick(&[file.to_str().unwrap(), "--schedule", "a,b", "--json"]));
    let rows = all["results"].as_array().expect("rows").iter();
    let names = rows.map(|row| format!("{} {}", row["kernel"], row["schedule"]).replace('"', ""));
    assert_eq!(names.collect::<Vec<_>>(), ["one a", "one b", "two auto"]);
}

#[test]
fn every_value_of_a_list_or_range_is_measured() {
    let points = |args: &[&str]| -> Vec<String> {
        let all = json(&quick(&[args, &["--json"]].concat()));
        let rows = all["results"].as_array().expect("rows").iter();
        rows.map(|row| row["point"].as_str().expect("a point").to_string()).collect()
    };
    assert_eq!(points(&[MATMUL, "-D", "n=8,16,24"]), ["8", "16", "24"]);
    assert_eq!(points(&[MATMUL, "-D", "matmul.n=8..32*2"]), ["8", "16", "32"]);
    let var = ["samples/vector_add_var.te", "--var", "n=10..20+5"];
    assert_eq!(points(&var), ["10", "15", "20"]);
    let knob = [MATMUL, "-D", "n=32", "--schedule=block", "-D", "matmul.block.tx=8,16"];
    assert_eq!(points(&knob), ["8", "16"]);
    let table = quick(&[MATMUL, "-D", "n=8,16"]);
    assert!(table.lines().next().is_some_and(|head| head.contains("  n  ")), "{table}");
}

/// Returns the tags of an SVG, properly nested, and its texts.
fn texts_of(svg: &str) -> Vec<String> {
    let (mut open, mut texts) = (Vec::new(), Vec::new());
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        match (tag.strip_prefix('/'), tag.ends_with('/')) {
            (Some(name), _) => assert_eq!(open.pop(), Some(name), "in\n{svg}"),
            (None, true) => {}
            (None, false) => open.push(tag.split(' ').next().expect("a name")),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if !text.trim().is_empty() {
            texts.push(text.to_string());
        }
    }
    assert!(open.is_empty(), "{open:?} are open");
    texts
}

#[test]
fn a_plot_has_a_curve_for_each_schedule() {
    let dir = scratch();
    let path = dir.path().join("curve.svg");
    let out = format!("--plot={}", path.display());
    let sizes = ["bench", MATMUL, "-D", "n=8..64*2", "--min-time=0.01", &out];
    let args = [&sizes[..], &["--schedule", "reorder,block"]].concat();
    let table = succeeds(dir.path(), &args);
    assert!(table.contains("of roofline"), "{table}");
    let svg = std::fs::read_to_string(&path).expect("the picture");
    let texts = texts_of(&svg);
    for text in ["reorder", "block", "GFLOP/s", "n", "8", "64", "0"] {
        assert!(texts.iter().any(|known| known == text), "no `{text}` in {texts:?}");
    }
    assert!(texts.iter().any(|text| text.starts_with("roofline")), "{texts:?}");
    assert_eq!(svg.matches("<polyline").count(), 3);
    assert_eq!(svg.matches("<circle").count(), 2 * 4);
    assert_eq!(svg.matches("stroke-dasharray").count(), 2);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");

    let args = [&sizes[..3], &["n=8,16", "--roofline=off", "--min-time=0.01", &out]].concat();
    succeeds(dir.path(), &args);
    let svg = std::fs::read_to_string(&path).expect("the picture");
    assert_eq!(svg.matches("<polyline").count(), 1);
    texts_of(&svg);
}

#[test]
fn impossible_plots_are_refused_before_anything_runs() {
    let dir = scratch();
    let path = dir.path().join("curve.svg").to_str().expect("UTF-8").to_string();
    fails(&[MATMUL, "--plot", &path], 2, "-D n=64..2048*2");
    fails(&[MATMUL, "-D", "n=8,16", "--plot", "curve.png"], 2, "curve.png");
    fails(&["samples/vector_add_dtypes.te", "-D", "T=float32,int32", "--plot", &path], 2, "`T`");
    fails(&[MATMUL, "-D", "n=8,16", "--plot", "/nonexistent/curve.svg"], 1, "E0501");
    assert!(!dir.path().join("curve.svg").exists());
}

#[test]
fn malformed_sweeps_are_refused() {
    fails(&[MATMUL, "-D", "n=8,,16"], 2, "between the commas");
    fails(&[MATMUL, "-D", "n=8..16"], 2, "64..512+64");
    fails(&[MATMUL, "-D", "n=8..4*2"], 2, "8 is greater than 4");
    fails(&[MATMUL, "-D", "n=8,8"], 2, "twice");
    fails(&[MATMUL, "-D", "n=1..100000+1"], 2, "1000");
    fails(&[MATMUL, "-D", "n=8,16", "-D", "m=8,16"], 2, "`n` and `m`");
    fails(&[MATMUL, "-D", "nn=8,16"], 1, "nn");
    fails(&[MATMUL, "--schedule", "reorder,blok"], 1, "E0303");
    fails(&[MATMUL, "--min-time=-1"], 2, "--min-time");
    fails(&[], 2, "FILE");
    let args = ["build", MATMUL, "--schedule", "reorder,block"];
    let output = tec(Path::new("/nonexistent"), &args);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--schedule takes one schedule here"));
}

/// The limits are measured once; a damaged file is measured again and replaced.
#[test]
fn limits_are_cached_and_measured_interleaved() {
    let dir = scratch();
    let args = ["bench", MATMUL, "-D", "n=32", "--min-time=0.01", "--threads=1", "--json"];
    let first = json(&succeeds(dir.path(), &args));
    let machine = &first["machines"][0];
    assert_eq!(machine["threads"], 1);
    ["peak_f32", "peak_f64", "peak_i8"]
        .iter()
        .for_each(|name| assert!(positive(&machine[*name]) > 0.0));
    let levels = machine["levels"].as_array().expect("levels");
    assert_eq!(levels.last().map(|level| &level["name"]), Some(&Value::from("DRAM")));
    for level in levels {
        positive(&level["read"]);
        positive(&level["triad"]);
    }
    let roof = &first["results"][0]["roofline"];
    for name in ["bound_ns", "bandwidth_gbs", "peak_gflops", "of_peak", "of_roofline"] {
        positive(&roof[name]);
    }
    assert_eq!(roof["level"], "L1");
    assert_eq!(first["results"][0]["beside"], Value::Null);

    let kept = std::fs::read_dir(dir.path().join("tec")).expect("the cache");
    let kept: Vec<_> = kept.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let beside = json(&succeeds(dir.path(), &[&args[..], &["--roofline"]].concat()));
    assert_eq!(beside["machines"], first["machines"], "not measured again");
    let beside = &beside["results"][0]["beside"];
    assert_eq!(beside["limit"], roof["limit"]);
    positive(&beside["rate"]);
    let ratio = ["low", "value", "high"].map(|name| positive(&beside["ratio"][name]));
    assert!(ratio[0] <= ratio[2], "{ratio:?}");

    let whole = std::fs::read_to_string(&kept[0]).expect("a file");
    std::fs::write(&kept[0], &whole[..whole.len() / 2]).expect("a file");
    let again = json(&succeeds(dir.path(), &args));
    positive(&again["machines"][0]["peak_f32"]);
    let text = std::fs::read_to_string(&kept[0]).expect("a file");
    assert_eq!(json(&text), again["machines"][0]);
    succeeds(dir.path(), &[&args[..], &["--roofline=fresh"]].concat());
}

#[test]
fn a_cache_that_cannot_be_written_is_noted() {
    let dir = scratch();
    let file = dir.path().join("file");
    std::fs::write(&file, "in the way").expect("a file");
    let output = tec(&file, &["bench", MATMUL, "-D", "n=8", "--min-time=0.01"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("note: the machine's limits are not kept"));
    assert!(text(&output.stdout).contains("of roofline"));
}

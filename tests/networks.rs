//! Networks from the command line: params in files, ONNX models, what is written and refused.
//! `tests/golden/network` and `tests/golden/run/network` show how networks are cut into kernels;
//! the fuzzer's `networks_agree` compares random ones with the interpreter.

#[path = "../crates/tec-onnx/tests/common/mod.rs"]
mod onnx;

use onnx::{FLOAT, INT64, Model};
use safetensors::tensor::{Dtype, TensorView};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A dense layer with scaled weights, then softmax.
const LAYER: &str = "import \"nn.te\" as nn\n
network layer(n = 16, m = 8) {
    input X: float32[4, n]
    param W: float32[m, n]
    param g: float32[m]
    param b: float32[m]
    compute S[i: m, j: n] = W[i, j] * g[i]
    let D = nn.dense(X, S, b)
    let R = nn.relu(D)
    output P = nn.softmax(R)
}
";

fn tec(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tec"));
    command.env("TEC_NO_CACHE", "1").args(args).output().expect("tec starts")
}

#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let output = tec(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "tec {args:?}\n{errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[track_caller]
fn fails(args: &[&str], text: &str) {
    let output = tec(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "tec {args:?}\n{errors}");
    assert!(errors.contains(text), "tec {args:?}: no `{text}` in\n{errors}");
}

fn write(folder: &Path, name: &str, contents: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, contents).expect("a scratch file");
    path.to_str().expect("UTF-8").to_string()
}

/// Elements that differ from each other.
fn elements(count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| ((at * 37 % 101) as f32 / 50.0 - 1.0).to_le_bytes()).collect()
}

fn parameter_file(tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, dtype, shape)| {
            let mut bytes = elements(shape.iter().product());
            bytes.resize(shape.iter().product::<usize>() * dtype.bitsize() / 8, 0);
            bytes
        })
        .collect();
    let views: Vec<_> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, dtype, shape), bytes)| {
            (*name, TensorView::new(*dtype, shape.to_vec(), bytes).expect("a tensor"))
        })
        .collect();
    safetensors::serialize(views, None).expect("a file")
}

/// The params of [`LAYER`].
const PARAMS: [(&str, Dtype, &[usize]); 3] =
    [("W", Dtype::F32, &[8, 16]), ("g", Dtype::F32, &[8]), ("b", Dtype::F32, &[8])];

#[test]
fn params_are_in_the_module_or_inputs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "layer.te", LAYER);
    let signature = |args: &[&str]| {
        let module = folder.path().join("m.so");
        let module = module.to_str().expect("UTF-8");
        succeeds(&[&["build", &file, "-o", module][..], args].concat());
        succeeds(&["inspect", module])
    };
    let inputs = signature(&[]);
    assert!(
        inputs.contains("layer(X: float32[4, 16], W: float32[8, 16], g: float32[8]"),
        "{inputs}"
    );
    let same = succeeds(&["run", &file, "--verify"]);
    assert!(same.contains("P: bit-identical to the interpreter"), "{same}");

    let params = write(folder.path(), "other.safetensors", parameter_file(&PARAMS));
    let constants = signature(&["--params", &params]);
    assert!(constants.contains("layer(X: float32[4, 16], P: float32[4, 8])"), "{constants}");
    // The file beside the source is found by its name.
    std::fs::rename(&params, folder.path().join("layer.safetensors")).expect("renamed");
    assert_eq!(signature(&[]), constants);
    let same = succeeds(&["run", &file, "--verify"]);
    assert!(same.contains("P: bit-identical to the interpreter"), "{same}");
    let first = std::fs::read(folder.path().join("m.so")).expect("a module");
    signature(&[]);
    assert_eq!(std::fs::read(folder.path().join("m.so")).expect("a module"), first);
}

#[test]
fn wrong_params_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "layer.te", LAYER);
    let build = |bytes: &[u8], text: &str| {
        let params = write(folder.path(), "p.safetensors", bytes);
        fails(&["build", &file, "--params", &params], text);
    };
    let mut lacking = PARAMS;
    lacking[1].0 = "G";
    build(&parameter_file(&lacking), "E0701");
    build(&parameter_file(&lacking), "the parameter file has no tensor `g`");
    let mut narrow = PARAMS;
    narrow[0].2 = &[16, 8];
    build(
        &parameter_file(&narrow),
        "the param `W` is `float32[8, 16]`, but `float32[16, 8]` in the parameter file",
    );
    let mut wide = PARAMS;
    wide[2].1 = Dtype::F64;
    build(&parameter_file(&wide), "but `float64[8]` in the parameter file");
    let whole = parameter_file(&PARAMS);
    build(&whole[..whole.len() - 1], "it is not a safetensors file");
    build(b"", "it is not a safetensors file");
    fails(&["build", &file, "--params", "missing.safetensors"], "E0701");
}

#[test]
fn kernels_of_networks_are_lowered() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "layer.te", LAYER);
    // The names are those of the plan.
    let groups = succeeds(&["lower", "--groups", &file]);
    assert!(groups.contains("0 D_XW(X, S, b) -> R"), "{groups}");
    let loops = succeeds(&["lower", &file]);
    assert!(loops.contains("kernel D_XW") && loops.contains("kernel P_"), "{loops}");
    let one = succeeds(&["lower", &file, "--kernel", "layer.D_XW", "--simple"]);
    assert!(one.contains("R[") && !one.contains("P["), "{one}");
    let tree = succeeds(&["lower", &file, "--kernel", "layer.D_XW", "--schedule-tree"]);
    assert!(tree.contains("schedule D_XW for "), "{tree}");
    fails(&["lower", &file, "--kernel", "layer.D_XV"], "did you mean `layer.D_XW`?");
    fails(&["lower", &file, "--kernel", "layer.other"], "`tec lower --groups` lists them");
}

#[test]
fn images_of_run_time_sizes_have_one_long_axis() {
    let folder = tempfile::tempdir().unwrap();
    let text = "import \"onnx.te\" as onnx\n
        network images(n: var, h: var, w: var) {
            estimate n = 1, h = 256, w = 256
            input X: float32[n, 16, (h + 3) // 4, (w + 3) // 4]
            param V: float32[16, 16, 1, 1]
            let A = onnx.conv2d(X, V)
            output B[i: n, c: 16, x: (h + 3) // 4, y: (w + 3) // 4] = max(A[i, c, x, y], 0.0)
        }";
    let file = write(folder.path(), "images.te", text);
    let tree = succeeds(&["lower", "--schedule-tree", "--target", "x86-avx512", &file]);
    // The operator computes its extents by another formula, for a window of one element.
    assert!(tree.contains("along `x_y`") && !tree.contains("for y "), "{tree}");
}

#[test]
fn schedules_are_for_the_estimated_calls() {
    let folder = tempfile::tempdir().unwrap();
    let text = "kernel dense(rows: var) {
            assume rows < 5000
            input X: float32[rows, 256]
            input W: float32[256, 256]
            reduce k: 0..256
            output Y[i: rows, j: 256] = sum(X[i, k] * W[k, j], axis=k)
        }";
    let file = write(folder.path(), "dense.te", text);
    let schedule = |estimates: &[&str]| {
        let options = ["lower", "--schedule-tree", "--schedule", "auto", "--target", "x86-avx512"];
        succeeds(&[&options[..], estimates, &[&file[..]]].concat())
    };
    assert!(schedule(&[]).contains("if rows <= "));
    let (one, many) = (schedule(&["--typical", "rows=1"]), schedule(&["--typical", "rows=4000"]));
    assert!(!one.contains("if rows <= ") && !many.contains("if rows <= ") && one != many);
    // A block of rows does not pay for one row, and for both calls something else may be best.
    assert!(many.contains("rows along `i`") && !one.contains("rows along `i`"), "{one}\n{many}");
    schedule(&["--typical", "rows=1", "--typical", "rows=4000"]);
    for (estimate, error) in [
        ("row=1", "did you mean `rows`?"),
        ("rows=1,rows=2", "`rows` has two values"),
        ("rows=many", "`many` is not a size"),
        ("rows=-1", "`-1` is not a size"),
        ("rows=9000", "no call has these values: `rows < 5000` is false"),
    ] {
        fails(&["lower", "--typical", estimate, &file], error);
    }
}

#[test]
fn what_networks_lack_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "layer.te", LAYER);
    fails(&["run", &file, "--emulate", "--target", "nvptx-sm_80"], "E0703");
    fails(&["lower", &file, "--schedule", "fast"], "E0703");
    fails(&["build", &file, "--schedule", "fast"], "`--schedule fast` has no effect");
    fails(&["build", &file, "--target", "nvptx-sm_80"], "E0702");
    write(folder.path(), "layer.safetensors", parameter_file(&PARAMS));
    fails(&["build", &file, "--target", "aarch64", "-o", "layer.o"], "E0702");
    let indices = "network rows(n = 8) {
    input X: float32[n]
    param first: int32[4]
    output Y[i: 4] = X[first[i]]
}
";
    let file = write(folder.path(), "rows.te", indices);
    // 9 is outside of `X`.
    let wrong = [3i32, 0, 9, 1].map(i32::to_le_bytes).concat();
    let views = [("first", TensorView::new(Dtype::I32, vec![4], &wrong).expect("a tensor"))];
    let bytes = safetensors::serialize(views, None).expect("a file");
    write(folder.path(), "rows.safetensors", bytes);
    fails(&["build", &file], "E0704");
    // The check runs for batches that are not empty; the build evaluates it for all.
    let batched = |n: usize| {
        format!(
            "network rows(batch: var) {{
    input X: float32[batch, {n}]
    param first: int32[4]
    output Y[b: batch, i: 4] = X[b, first[i]]
}}
"
        )
    };
    let file = write(folder.path(), "rows.te", batched(9));
    fails(&["build", &file], "whether it is in range depends on the arguments");
    let file = write(folder.path(), "rows.te", batched(10));
    succeeds(&["build", &file]);
}

/// A model with run-time rows: two layers.
fn layers() -> PathBuf {
    let model = Model::new(13)
        .input("x", FLOAT, "rows 16")
        .weights("w", &[16, 8])
        .floats("bias", &[0.5, -3.0, 1.0, 2.0, -9.0, 0.0, 7.0, 0.25])
        .node("MatMul", "x w", "product", &[])
        .node("Add", "product bias", "sum", &[])
        .node("Relu", "sum", "hidden/out", &[])
        .node("Softmax", "hidden/out", "y", &[])
        .output("y");
    model.save("networks_layers")
}

#[test]
fn models_are_imported_as_text_and_built() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = layers();
    let model = model.to_str().expect("UTF-8");
    let text = folder.path().join("layers.te");
    let text = text.to_str().expect("UTF-8");
    let signature = succeeds(&["import", model, "-o", text, "--name", "layers"]);
    assert!(signature.starts_with("input x: float32[rows, 16]\n"), "{signature}");
    let written = std::fs::read_to_string(text).expect("a text");
    assert!(written.contains("network layers(rows: var) reassociate {"), "{written}");
    let groups = succeeds(&["lower", "--groups", text]);
    // Bias and activation belong to the product, also with run-time rows.
    assert_eq!(groups.lines().filter(|line| line.contains("->")).count(), 2, "{groups}");
    let same = succeeds(&["run", text, "--verify", "--var", "rows=5"]);
    assert!(same.contains("y: bit-identical to the interpreter"), "{same}");
    let same = succeeds(&["run", model, "--verify", "-D", "rows=3"]);
    assert!(same.contains("y: float32[3, 8]"), "{same}");
    fails(&["import", model, "-o", text, "--name", "3x"], "named by letters");
    fails(&["build", model, "-D", "columns=3"], "the model has no dimension `columns`");
    fails(&["build", model, "--params", "p.safetensors"], "an ONNX model has its parameters");
    let table = succeeds(&["bench", model, "-D", "rows=64", "--per-kernel", "--min-time", "0.01"]);
    assert!(table.contains("calls") && table.contains("sum"), "{table}");
}

#[test]
fn the_kernels_of_a_network_are_estimated() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "layer.te", LAYER);
    let explain = |more: &[&str]| {
        let how = ["--threads", "2", "--target", "x86-avx2", "--machine", "typical"];
        succeeds(&[&["explain", &file][..], &how, more].concat())
    };
    let table = explain(&[]);
    assert!(table.starts_with("layer, x86-avx2, 2 threads, typical machine\n\nkernel "), "{table}");
    assert!(table.contains("  share  bound by\n") && table.contains("\ntotal "), "{table}");
    let terms = explain(&["--terms"]);
    let kernels = table.lines().count() - 4;
    assert!(terms.starts_with(&table), "{terms}");
    assert_eq!(terms.matches("\nbound by ").count(), kernels, "{terms}");
    let json: serde_json::Value = serde_json::from_str(&explain(&["--json"])).expect("JSON");
    assert_eq!(json["kernels"][0]["network"]["name"], "layer");
    assert_eq!(json["kernels"][0]["network"]["calls"], 1);
}

#[test]
fn the_kernels_of_a_network_are_tuned() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("layers.te");
    let text = text.to_str().expect("UTF-8");
    succeeds(&["import", layers().to_str().expect("UTF-8"), "-o", text, "--name", "layers"]);
    // The size of a call is a run-time integer of each kernel.
    let size = ["--var", "rows=20", "--threads", "1"];
    let found = succeeds(&[&["tune", text, "--trials", "20"][..], &size].concat());
    let records = text.replace(".te", ".records.jsonl");
    assert!(found.ends_with(&format!("\ntec build {text} --records {records}\n")), "{found}");
    assert_eq!(found.matches("# the best takes ").count(), 2, "{found}");
    assert!(!found.contains("schedule "), "{found}");
    let built = tec(&["run", text, "--records", &records, "--verify", "--var", "rows=5"]);
    let notes = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && notes.contains("all 2 kernels have schedules"), "{notes}");
    let printed = String::from_utf8_lossy(&built.stdout);
    assert!(printed.contains("y: bit-identical to the interpreter"), "{printed}");
    let replayed = succeeds(&[&["records", "replay", &records, text][..], &size].concat());
    assert!(replayed.is_empty(), "all are measured: {replayed}");
    fails(&["tune", text, "--schedule", "fast"], "E0703");
    fails(&["build", text, "--schedule", "fast"], "E0703");
    write(folder.path(), "other.te", "kernel k() {\n    output Y[i: 4] = i as int32\n}\n");
    let other = folder.path().join("other.te");
    let other = other.to_str().expect("UTF-8");
    succeeds(&["tune", other, "--trials", "1", "--threads", "1"]);
    fails(&["build", text, "--records", &other.replace(".te", ".records.jsonl")], "E0605");
}

#[test]
fn kernels_that_gather_are_not_tuned() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = "network rows(n = 8) {
    input X: float32[n]
    input first: int32[4]
    output Y[i: 4] = X[clamp(first[i], 0, n - 1)]
}
";
    let file = write(folder.path(), "rows.te", source);
    fails(&["tune", &file, "--trials", "1"], "no kernel of the network can be measured");
}

/// A NumPy file of a vector of int64.
fn vector(values: &[i64]) -> Vec<u8> {
    let header =
        format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    file.extend((length as u16).to_le_bytes());
    file.extend(format!("{header:<0$}\n", length - 1).bytes());
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    file
}

#[test]
fn values_of_run_time_have_the_declared_shapes() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Model::new(18)
        .input("x", FLOAT, "2 3 4")
        .input("shape", INT64, "2")
        .input("axes", INT64, "1")
        .node("Reshape", "x shape", "r", &[])
        .node("ReduceSum", "x axes", "s", &[onnx::int("keepdims", 1)])
        .shaped_output("r", "6 4")
        .shaped_output("s", "2 1 4")
        .save("networks_run_time");
    let model = model.to_str().expect("UTF-8");
    let given = |shape: &[i64], axis: i64| {
        let shape = write(folder.path(), "shape.npy", vector(shape));
        let axes = write(folder.path(), "axes.npy", vector(&[axis]));
        [format!("shape={shape}"), format!("axes={axes}")]
    };
    let run = |values: &[String; 2], verify: bool| {
        let mut args = vec!["run", model, "--input", &values[0], "--input", &values[1]];
        args.extend(verify.then_some("--verify"));
        tec(&args)
    };
    for (shape, axis) in [([6, 4], 1), ([-1, 4], -2), ([6, -1], 1)] {
        let output = run(&given(&shape, axis), true);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{shape:?}: {errors}");
    }
    let wrong = [
        ([4, 6], 1, "r: the shape must be [6, 4]"),
        ([-1, -1], 1, "r: the shape must be [6, 4]"),
        ([6, 0], 1, "r: the shape must be [6, 4]"),
        ([6, 4], 2, "s: the axes contradict the declared shape"),
        ([6, 4], i64::MAX, "s: the axes contradict the declared shape"),
    ];
    for (shape, axis, text) in wrong {
        let output = run(&given(&shape, axis), false);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(text), "{shape:?}: {errors}");
    }
}

#[test]
fn assertions_about_params_are_evaluated_by_the_build() {
    let folder = tempfile::tempdir().expect("a folder");
    let network = |condition: &str| {
        format!(
            "network scaled() {{\n    input X: float32[4]\n    param g: float32[4]\n    \
             assert {condition}, \"not these\"\n    output Y[i: 4] = X[i] * g[i]\n}}\n"
        )
    };
    write(folder.path(), "scaled.safetensors", parameter_file(&[("g", Dtype::F32, &[4])]));
    let build = |condition: &str, params: &[&str]| {
        let source = write(folder.path(), "scaled.te", network(condition));
        tec(&[&["build", &source][..], params].concat())
    };
    assert!(build("g[0] < 0.0", &[]).status.success());
    for (condition, text) in [
        ("g[0] > 0.0", "not these"),
        ("g[0] < X[0]", "an `assert` compares the param `g` with arguments"),
    ] {
        let output = build(condition, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("E0704") && errors.contains(text), "{errors}");
    }
}

#[test]
fn models_that_cannot_be_imported_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let damaged = write(folder.path(), "damaged.onnx", [7; 100]);
    fails(&["build", &damaged], "E0705");
    fails(&["import", "samples/exp.te"], "E0705");
    fails(&["build", "missing.onnx"], "cannot read `missing.onnx`: no such file or directory");
    fails(&["build", "samples/exp.te", "--params", "p.safetensors"], "has no network");
    let model = Model::new(13)
        .input("x", FLOAT, "8")
        .input("starts", INT64, "1")
        .input("ends", INT64, "1")
        .node("Slice", "x starts ends", "y", &[])
        .output("y");
    let model = model.save("networks_sliced");
    let model = model.to_str().expect("UTF-8");
    fails(&["build", model], "--freeze starts=FILE.npy");
    // The option reaches every command.
    let frozen = ["--freeze", "starts=missing.npy"];
    fails(&[&["lower", "--groups", model][..], &frozen].concat(), "missing.npy");
    fails(&[&["check", model][..], &frozen].concat(), "missing.npy");
    fails(&["run", "samples/exp.te", "--freeze", "x=y.npy"], "is for ONNX models");
    fails(&["run", "samples/exp.te", "--no-winograd"], "is for ONNX models");
}

/// A cache that two calls append to.
const CACHE: &str = "network cache(n: var, r: var, p: var, d = 6) {
    input x: float32[r, d]
    inout K: float32[n, d]
    assume p >= 0
    assume p + r <= n
    reduce j: 0..d, t: 0..n
    update K[p + i: r, k: d] = x[i, k]
    compute S[t: n] = sum(K[t, j] * x[0, j], axis=j)
    output y[k: d] = sum(S[t] * K[t, k], axis=t, where=t < p + r)
}
";

#[test]
fn networks_update_arguments_in_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "cache.te", CACHE);
    let sizes = ["--var", "n=9", "--var", "r=2", "--var", "p=4"];
    let same = succeeds(&[&["run", &file, "--verify"][..], &sizes].concat());
    for tensor in ["K", "y"] {
        assert!(same.contains(&format!("{tensor}: bit-identical to the interpreter")), "{same}");
    }
    let outside = ["--var", "n=9", "--var", "r=2", "--var", "p=8"];
    fails(&[&["run", &file][..], &outside].concat(), "p + r <= n");
    let module = folder.path().join("cache.so");
    let module = module.to_str().expect("UTF-8");
    succeeds(&["build", &file, "-o", module]);
    let signature = "cache(x: float32[r, 6], K: float32[n, 6], y: float32[6], p: int)";
    let shown = succeeds(&["inspect", module]);
    assert!(shown.contains(signature), "{shown}");
    let manifest: serde_json::Value =
        serde_json::from_str(&succeeds(&["inspect", "--json", module])).expect("JSON");
    assert_eq!(manifest["kernels"][0]["args"][1]["role"], "inout");
    let header = std::fs::read_to_string(module.replace(".so", ".h")).expect("a header");
    let raw = "cache(const float *x, float *K, float *y, int64_t n, int64_t r, int64_t p)";
    assert!(header.contains(raw), "{header}");
    let table =
        succeeds(&[&["bench", &file, "--per-kernel", "--min-time", "0.01"][..], &sizes].concat());
    assert!(table.contains("calls") && table.contains("sum"), "{table}");
    let found =
        succeeds(&[&["tune", &file, "--trials", "4", "--threads", "1"][..], &sizes].concat());
    assert!(found.contains("# the best takes "), "{found}");
}

/// An attention layer of a decoder whose cache of keys grows.
fn cached_model() -> PathBuf {
    let model = Model::new(17)
        .input("q", FLOAT, "1 new 8")
        .input("k", FLOAT, "1 new 8")
        .input("past.0.key", FLOAT, "1 past 8")
        .node("Concat", "past.0.key k", "present.0.key", &[onnx::int("axis", 1)])
        .node("Transpose", "present.0.key", "columns", &[onnx::ints("perm", &[0, 2, 1])])
        .node("MatMul", "q columns", "scores", &[])
        .node("Softmax", "scores", "weights", &[])
        .node("MatMul", "weights present.0.key", "y", &[])
        .output("y")
        .output("present.0.key");
    model.save("networks_cache")
}

/// A NumPy file of float32.
fn array(shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape},), }}");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    file.extend((length as u16).to_le_bytes());
    file.extend(format!("{header:<0$}\n", length - 1).bytes());
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    file
}

#[test]
fn caches_of_models_are_updated_in_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = cached_model();
    let model = model.to_str().expect("UTF-8");
    let text = folder.path().join("cache.te");
    let text = text.to_str().expect("UTF-8");
    let pair = "past.*.key=present.*.key";
    let told = succeeds(&["import", model, "-o", text, "--in-place", pair]);
    assert!(told.contains("inout past_0_key: float32[1, capacity, 8]"), "{told}");
    // The cache is read where it is: there is one copy of rows, the new ones.
    let groups = succeeds(&["lower", "--groups", text]);
    assert!(groups.contains("(k, past_0_key, new, past, capacity) -> past_0_key"), "{groups}");
    assert!(!groups.contains("-> present"), "{groups}");

    // Both forms compute the same. The rows behind the new ones have no effect, and stay.
    let numbers = |count: usize, seed: usize| -> Vec<f32> {
        (0..count).map(|at| ((at * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect()
    };
    let (past, k, q) = (numbers(3 * 8, 1), numbers(2 * 8, 2), numbers(2 * 8, 3));
    let cache = [&past[..], &numbers(4 * 8, 4)].concat();
    let file =
        |name: &str, shape: &str, values: &[f32]| write(folder.path(), name, array(shape, values));
    let q = format!("q={}", file("q.npy", "1, 2, 8", &q));
    let new = format!("k={}", file("k.npy", "1, 2, 8", &k));
    let output = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_string();
    let past_file = file("past.npy", "1, 3, 8", &past);
    let first = output("first.npy");
    succeeds(&[
        "run",
        model,
        "--input",
        &q,
        "--input",
        &new,
        "--input",
        &format!("past.0.key={past_file}").replace(".0.key", "_0_key"),
        "--output",
        &format!("y={first}"),
    ]);
    let (second, rows) = (output("second.npy"), output("rows.npy"));
    let cache_file = file("cache.npy", "1, 7, 8", &cache);
    let same = succeeds(&[
        "run",
        text,
        "--verify",
        "--input",
        &q,
        "--input",
        &new,
        "--input",
        &format!("past_0_key={cache_file}"),
        "--var",
        "past=3",
        "--output",
        &format!("y={second}"),
        "--output",
        &format!("past_0_key={rows}"),
    ]);
    assert!(same.contains("past_0_key: bit-identical to the interpreter"), "{same}");
    let read = |file: &str| -> Vec<f32> {
        let bytes = std::fs::read(file).expect("an output");
        let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let values = bytes[start..].chunks_exact(4);
        values.map(|value| f32::from_le_bytes(value.try_into().expect("4 bytes"))).collect()
    };
    for (a, b) in read(&first).iter().zip(read(&second)) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    let mut expected = cache;
    expected[3 * 8..5 * 8].copy_from_slice(&k);
    assert_eq!(read(&rows), expected);
}

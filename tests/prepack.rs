//! Inputs packed ahead: under random schedules the packed kernels give the results of the default
//! schedule, bit for bit; inputs that cannot be packed are refused with the reason; C programs can
//! call the kernels.

use crate::support::data::{Data, make_args};
use crate::support::{Memory, Random, tec};
use std::path::Path;
use std::process::{Command, Output};
use tec::driver::{self, Failure, Options, Trace};
use tec::ir::interp::{Evaluator, Tensor, Trap, Value};
use tec::ir::{Kernel, Param, PrepackRole, Role, Var};
use tec::module::load::{LoadedModule, args_of};
use tec::module::{BuildInfo, KernelInfo, ModuleKind};
use tec::schedule::{BoundedSchedule, PrepackedInputs};
use tec::target::Target;
use tec::te::Graph;
use tec::tune::model::MachineModel;

/// Weights `B`, and `W`, which another stage transforms before it is read; an extent that is an
/// expression.
const KERNEL: &str = "
kernel k(m: var, n: var, l = 10, T: dtype = float32) {
    input A: T[m, l]
    input B: T[l, n] layout_free
    input W: T[n + 1, 3]
    input s: T
    assume n <= 40
    compute U[i: n, j: 3] = W[i, j] + W[i + 1, j] * W[i, j]
    reduce k: 0..l
    compute P[x: m, y: n] = sum(A[x, k] * B[k, y], axis=k)
    output D[x: m, y: n] = P[x, y] * s + U[y, x % 3]
}
";

/// Returns the kernel alone, and followed by the kernels of its packed inputs.
fn compile(
    text: String,
    options: &Options,
    inputs: &[&str],
) -> Result<(Graph, Vec<BoundedSchedule>), Failure> {
    let mut trace = Trace::default();
    let program =
        driver::load("k.te", &Memory("k.te", &text), &mut trace).map_err(|(_, failure)| failure)?;
    let graphs = driver::elaborate(&program, options, &mut trace)?;
    let bounded = driver::schedule(&program, graphs, options, &mut trace)?;
    let requests: Vec<_> = inputs.iter().map(|name| (None, name.to_string())).collect();
    let graph = bounded[0].schedule.graph.clone();
    Ok((graph, driver::prepack(bounded, &requests, &mut trace)?))
}

/// A product of few rows, in which packing `B` is most of the work.
const FEW_ROWS: &str = "
kernel rows(m = 2, n = 512) {
    input A: float32[m, n]
    input B: float32[n, n] layout_free
    reduce k: 0..n
    output C[x: m, y: n] = sum(A[x, k] * B[k, y], axis=k)
}
";

const PACKING: &str = "schedule rows for cpu {
    let Packed = B.cache_read(global, [C], layout=[ax1 // 16, ax0, ax1 % 16])
    let o, l = C.split(y, factor=16)
    C.reorder(o, x, k, l)
    C.vectorize(l)
}
";

fn graph_of(text: &str, options: &Options) -> Graph {
    let mut trace = Trace::default();
    let program = driver::load("k.te", &Memory("k.te", text), &mut trace).expect("it parses");
    driver::elaborate(&program, options, &mut trace).expect("it is right").remove(0)
}

#[test]
fn layout_free_inputs_are_packed_at_no_cost() {
    let target = Target::parse("x86-avx2").expect("a target");
    let machine = MachineModel::typical(&target);
    let seconds = |text: &str, schedule: &str, prepacked: PrepackedInputs| {
        let options = Options { prepacked, ..Options::new(target.clone()) };
        let graph = graph_of(text, &options);
        let estimate = driver::estimate_text(&graph, schedule, &options, &machine, 1);
        estimate.expect("it is legal").seconds
    };
    let named =
        |name: &str| PrepackedInputs::Named(vec![(Some("rows".to_string()), name.to_string())]);
    let charged = seconds(FEW_ROWS, PACKING, PrepackedInputs::None);
    let prepacked = seconds(FEW_ROWS, PACKING, PrepackedInputs::All);
    assert!(prepacked < 0.8 * charged, "{prepacked} of {charged}");
    assert_eq!(seconds(FEW_ROWS, PACKING, named("B")), prepacked);
    assert_eq!(seconds(FEW_ROWS, PACKING, named("A")), charged);
    // Without the permission, without a copy at the root, or on a GPU all is charged.
    let fixed = FEW_ROWS.replace(" layout_free", "");
    assert_eq!(seconds(&fixed, PACKING, PrepackedInputs::All), charged);
    let inside = PACKING.replace("C.vectorize(l)", "C.vectorize(l)\n    Packed.compute_at(C, o)");
    let inside = |prepacked: PrepackedInputs| seconds(FEW_ROWS, &inside, prepacked);
    assert_eq!(inside(PrepackedInputs::All), inside(PrepackedInputs::None));
    let gpu = Target::parse("nvptx-sm_80").expect("a target");
    let options = Options { prepacked: PrepackedInputs::All, ..Options::new(gpu) };
    let text = "schedule rows { C.bind(y, threadIdx.x) }";
    let packed = driver::packed_ahead(&graph_of(FEW_ROWS, &options), text, &options);
    assert_eq!(packed.expect("it is legal"), Vec::<String>::new());
}

#[test]
fn automatic_schedules_for_prepacked_inputs_pack_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_string();
    let text = FEW_ROWS.replace("m = 2, n = 512", "m = 200, n = 200");
    let fixed = text.replace(" layout_free", "");
    std::fs::write(at("free.te"), text.clone()).expect("it can be written");
    std::fs::write(at("fixed.te"), fixed).expect("it can be written");
    std::fs::write(at("own.te"), FEW_ROWS.to_string() + PACKING).expect("it can be written");
    let build = |file: &str, more: &[&str]| {
        let args = ["build", &at(file), "-o", &at("m.so"), "--target", "x86-avx512"];
        let output = tec(&[&args[..], more].concat());
        (output.status.success(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    // With `layout_free`, the automatic schedule assumes calls with a packed `B`.
    assert_eq!(build("free.te", &["--prepack", "B"]), (true, String::new()));
    let (built, message) = build("fixed.te", &["--prepack", "B"]);
    assert!(!built && message.contains("E0554"), "{message}");
    // A schedule that packs is used with or without `layout_free`; with it, a note is printed.
    let (built, message) = build("own.te", &[]);
    assert!(
        built && message.contains("`rows` packs the `layout_free` input `B` in each call"),
        "{message}"
    );
    assert!(message.contains("`--prepack B`"), "{message}");
    assert_eq!(build("own.te", &["--prepack", "rows.B"]), (true, String::new()));
    let own = FEW_ROWS.replace(" layout_free", "") + PACKING;
    std::fs::write(at("own.te"), own).expect("it can be written");
    assert_eq!(build("own.te", &[]), (true, String::new()));
    assert_eq!(build("own.te", &["--prepack", "B"]), (true, String::new()));
    // `explain` prints a line about the time that packing ahead saves.
    std::fs::write(at("own.te"), FEW_ROWS.to_string() + PACKING).expect("it can be written");
    let output = tec(&["explain", &at("own.te"), "--target", "x86-avx2", "--machine", "typical"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("\nwith `tec build --prepack B`: "), "{text}");
}

const LAYOUTS: [&str; 5] = [
    "",
    ", layout=[ax1, ax0]",
    ", layout=[ax1 // 4, ax0, ax1 % 4]",
    ", layout=[ax0 // 3, ax1 // 2, ax0 % 3, ax1 % 2]",
    ", layout=[ax1 // 16, ax0 * 16 + ax1 % 16]",
];

/// Directives on the kernel above; the copies are `PA`, `PB` and `PW`.
fn draw(random: &mut Random) -> String {
    let mut text = String::new();
    for (input, of, reader) in [("A", "A", "P"), ("B", "B", "P"), ("W", "U", "D")] {
        if random.below(4) > 0 {
            let (scope, layout) = (random.pick(&["global", "local"]), random.pick(&LAYOUTS));
            text += &format!("let P{input} = {of}.cache_read({scope}, [{reader}]{layout})\n");
            let axis = if layout.is_empty() { "ax0" } else { "p0" };
            let copy = format!("P{input}");
            text += &match random.below(3) {
                0 => String::new(),
                1 => format!("{copy}.parallel({axis})\n"),
                _ => format!("let q, r = {copy}.split({axis}, factor=3)\n{copy}.unroll(r)\n"),
            };
            if random.below(4) == 0 {
                text += &format!("let L{input} = P{input}.cache_read(local, [{reader}])\n");
            }
        }
    }
    text += random.pick(&["", "U.compute_inline()\n", "U.compute_at(D, x)\n"]);
    if random.chance() {
        text += "let yo, yi = P.split(y, factor=4)\nP.reorder(yo, x, k, yi)\n";
        text += random.pick(&["", "P.vectorize(yi)\n", "P.parallel(yo)\n"]);
        if text.contains("let PB") && !text.contains("let LB") && random.chance() {
            text += "P.prefetch(PB, k, 2)\n";
        }
    }
    text
}

/// Returns the values of a kernel's parameters: those that `known` names, and outputs to be filled.
fn values(kernel: &Kernel, known: &[(String, Value)]) -> Vec<Value> {
    let find = |name: &str| known.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let runtime: Vec<(Var, u64)> = kernel
        .params
        .iter()
        .filter_map(|param| match (param, find(param.name())) {
            (Param::Runtime { var, .. }, Some(Value::Index(value))) => {
                Some((var.clone(), value as u64))
            }
            _ => None,
        })
        .collect();
    let (vars, numbers): (Vec<Var>, Vec<u64>) = runtime.into_iter().unzip();
    let value = |param: &Param| match param {
        Param::Tensor { buffer, role: Role::Output | Role::Inout, .. } => {
            let shape = Evaluator::new(&buffer.shape, &vars).unwrap().eval(&numbers).unwrap();
            let shape: Vec<i64> = shape.into_iter().map(|extent| extent as i64).collect();
            let bytes = shape.iter().product::<i64>() as usize * buffer.dtype.bytes() as usize;
            Value::Tensor(Tensor { dtype: buffer.dtype, shape, data: vec![0x55; bytes] })
        }
        param => find(param.name()).expect("every input is known"),
    };
    kernel.params.iter().map(value).collect()
}

/// Runs the kernels that pack and then the one that reads the packed inputs, and returns its
/// output.
fn run_packed(
    parts: &[(Kernel, Option<PrepackRole>)],
    known: &[(String, Value)],
    run: &mut dyn FnMut(&Kernel, &mut [Value]),
) -> Value {
    let mut known = known.to_vec();
    for (kernel, part) in parts {
        let mut args = values(kernel, &known);
        match part {
            None => {}
            Some(PrepackRole::Pack { of, input }) => {
                assert_eq!((&of[..], &kernel.name), ("k", &format!("k_pack_{input}")));
                run(kernel, &mut args);
                // A packed input is added under another name, so packing other inputs does not read
                // it.
                known.insert(0, (format!("packed {input}"), args[1].clone()));
            }
            Some(PrepackRole::Prepacked { inputs, .. }) => {
                for input in inputs {
                    let at = kernel.params.iter().position(|param| param.name() == input);
                    let packed = known.iter().find(|(name, _)| *name == format!("packed {input}"));
                    args[at.unwrap()] = packed.unwrap().1.clone();
                }
                run(kernel, &mut args);
                let is_output = |param: &Param| param.is_written();
                return args.swap_remove(kernel.params.iter().position(is_output).unwrap());
            }
        }
    }
    panic!("no kernel reads what is packed")
}

fn link(bounded: &[BoundedSchedule], kernels: &[Kernel], options: &Options) -> LoadedModule {
    let describe = |one: &BoundedSchedule| KernelInfo {
        parameters: Vec::new(),
        schedule: one.schedule.text.clone(),
        automatic: false,
        work: driver::count_work(&one.schedule.graph, &options.target).expect("it is counted"),
        prepack_role: one.prepack_role.clone(),
    };
    let info = BuildInfo {
        module: "k".to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: Vec::new(),
        kernels: bounded.iter().map(describe).collect(),
    };
    let built = driver::build(kernels, &info, ModuleKind::SharedObject, &mut Trace::default());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("k.so");
    std::fs::write(&path, &built.expect("the kernels compile").bytes).expect("it is written");
    LoadedModule::open(&path).expect("the module loads")
}

fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::Tensor(tensor) => &tensor.data,
        other => panic!("{other:?} is not a tensor"),
    }
}

/// Whether a random schedule lets some inputs be packed; if so, checks that all forms of the kernel
/// agree.
fn check_program(random: &mut Random, seed: u64) -> bool {
    let directives = draw(random);
    let dtype = random.pick(&["float32", "float64", "int8"]);
    let text = format!("{KERNEL}\nschedule k.s for cpu {{\n{directives}}}\n");
    let mut options = Options::new(Target::native());
    options.schedule = Some((None, "s".to_string()));
    options.defines = vec![(None, "T".to_string(), dtype.to_string())];
    let inputs: Vec<&str> = ["A", "B", "W"].into_iter().filter(|_| random.chance()).collect();
    let vars = ["m", "n"].map(|name| (name.to_string(), random.below(36) as i64));
    let (graph, bounded) = match compile(text, &options, &inputs) {
        Ok(compiled) => compiled,
        Err(Failure::User(diags)) => {
            let fits = |code: &str| code == "E0554" || code.starts_with("E03");
            assert!(diags.iter().all(|diag| fits(diag.code)), "{diags:?}\n{directives}");
            return false;
        }
        Err(failure) => panic!("{failure:?}\n{directives}"),
    };
    if inputs.is_empty() {
        return false;
    }
    let default_loops = driver::lower_unoptimized(&graph, &options.target).expect("it is lowered");
    let args = make_args(&default_loops, &vars, seed, Data::Rough).expect("small tensors");
    let names = default_loops.params.iter().map(|param| param.name().to_string());
    let known: Vec<(String, Value)> = names.zip(args.clone()).collect();
    let mut trace = Trace::default();
    let mut expected = args;
    match driver::interpret(&default_loops, &mut expected, &mut trace).expect("no bug") {
        Ok(()) => {}
        // Some arguments have a wrong shape.
        Err(Trap::Check(_)) => return false,
        Err(trap) => panic!("{trap:?}"),
    }
    let expected = &expected[4];
    let lower = |one: &BoundedSchedule| driver::lower(one, &options, None, &mut Trace::default());
    let kernels: Vec<Kernel> =
        bounded.iter().map(|one| lower(one).expect("it is lowered")).collect();
    let parts: Vec<(Kernel, Option<PrepackRole>)> =
        kernels.iter().cloned().zip(bounded.iter().map(|one| one.prepack_role.clone())).collect();
    assert_eq!(parts.len(), inputs.len() + 2, "{directives}");
    let interpreted = run_packed(&parts, &known, &mut |kernel, args| {
        let result = driver::interpret(kernel, args, &mut Trace::default()).expect("no bug");
        result.unwrap_or_else(|trap| panic!("{}: {trap:?}\n{directives}", kernel.name));
    });
    assert_eq!(bytes(&interpreted), bytes(expected), "interpreted, {dtype}\n{directives}");
    let module = link(&bounded, &kernels, &options);
    let called = run_packed(&parts, &known, &mut |kernel, args| {
        let entry = module.kernel(&kernel.name).expect("an entry");
        entry.call(args_of(kernel, args)).unwrap_or_else(|error| panic!("{error}\n{directives}"));
    });
    assert_eq!(bytes(&called), bytes(expected), "called, {dtype}\n{directives}");
    true
}

#[test]
fn packed_kernels_compute_the_same() {
    let mut random = Random(11);
    let packed =
        driver::with_stack(|| (0..160).filter(|seed| check_program(&mut random, *seed)).count());
    assert!(packed >= 40, "{packed} schedules pack what they are asked to");
}

fn refusal(directives: &str, inputs: &[&str], kernel: &str) -> String {
    let text = format!("{kernel}\nschedule k.s for cpu {{\n{directives}}}\n");
    let mut options = Options::new(Target::native());
    options.schedule = Some((None, "s".to_string()));
    match driver::with_stack(|| compile(text, &options, inputs)) {
        Err(Failure::User(diags)) => {
            let texts = diags.iter().map(|diag| {
                let more: Vec<&String> = diag.notes.iter().chain(&diag.help).collect();
                format!("{diag} {more:?}")
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn inputs_that_cannot_be_packed_are_refused() {
    let none = "C.parallel(x)\n";
    let plain = "kernel k(n = 8) {
        input A: float32[n, n]
        input B: float32[n, n]
        input s: float32
        compute T[i: n, j: n] = B[i, j] * s
        compute V[i: n, j: n] = B[j, i] * B[i, j]
        output C[x: n, y: n] = A[x, y] + T[y, x] + V[x, y]
        output E[x: n, y: n] = V[y, x]
    }";
    let indexed = "kernel k(n = 8) {
        input I: int32[n]
        input A: float32[n]
        output C[x: n] = A[I[x]]
    }";
    let named = "kernel k(n = 8) {
        input weights: float32[n]
        output C[x: n] = weights[x]
    }";
    for (directives, inputs, kernel, parts) in [
        (none, &["A"][..], plain, &["E0554", "does not pack `A`", "`C` reads `A`"][..]),
        (
            "let P = A.cache_read(local)\nP.compute_at(C, x)\n",
            &["A"],
            plain,
            &["E0554", "`P`, a copy of `A`", "in a loop of `C`", "leave out"],
        ),
        (none, &["B"], plain, &["E0554", "`T` is computed from `B` and also from `s`", "`V`"]),
        ("T.compute_inline()\n", &["B"], plain, &["E0554", "`C` reads `B`", "`V` is computed"]),
        (
            "let P = A.cache_read(global)\nP.storage_align(ax0, 16, 4)\n",
            &["A"],
            plain,
            &["E0554", "have padding", "storage_align"],
        ),
        (
            "let P = I.cache_read(global)\n",
            &["I"],
            indexed,
            &["E0554", "checks the elements of `I`"],
        ),
        (none, &["weigths"], named, &["E0553", "no input tensor `weigths`", "mean `weights`"]),
        (none, &["s"], plain, &["E0553", "no input tensor `s`"]),
    ] {
        let text = refusal(directives, inputs, kernel);
        parts.iter().for_each(|part| assert!(text.contains(part), "no {part} in {text}"));
    }
    let two = "kernel k(n = 8) {
        input B: float32[n, n]
        input A: float32[n, n]
        output C[x: n, y: n] = A[x, y] + B[x, y]
        output D[x: n, y: n] = A[x, y] + B[y, x]
    }";
    let copies = "let P = B.cache_read(global, [C])\nlet Q = B.cache_read(global, [D])\n";
    let text = refusal(copies, &["B"], two);
    assert!(text.contains("E0554") && text.contains("more than one tensor"), "{text}");
}

#[track_caller]
fn succeeds(output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    text.into_owned()
}

/// A product with run-time extents, whose two inputs are packed.
const RUN_TIME: &str = "
kernel rt(n: var, l: var, m: var) {
    input A: float32[n, l]
    input B: float32[l, m]
    reduce k: 0..l
    output C[i: n, j: m] = sum(A[i, k] * B[k, j], axis=k)
}

schedule rt.fast for cpu {
    let Columns = B.cache_read(global, [C], layout=[ax1 // 32, ax0, ax1 % 32])
    let Rows = A.cache_read(global, [C], layout=[ax0 // 4, ax1, ax0 % 4])
    let io, jo, ii, ji = C.tile(i, j, 4, 32)
    C.reorder(jo, io, k, ii, ji)
    C.vectorize(ji)
    C.parallel(jo)
}
";

#[test]
fn a_c_program_packs_once_and_calls_many_times() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_string();
    std::fs::write(at("rt.te"), RUN_TIME).expect("it is written");
    let sample = "samples/matmul_add.te";
    let fast = ["--schedule", "fast", "--prepack"];
    let (mm, rt, rt_so) = (at("mm.so"), at("rt.te"), at("rt.so"));
    succeeds(tec(&[&["build", sample, "-D", "N=70", "-o", &mm], &fast[..], &["B"]].concat()));
    let more = ["B", "--prepack", "rt.A"];
    succeeds(tec(&[&["build", &rt, "-o", &rt_so], &fast[..], &more].concat()));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-D_GNU_SOURCE"])
        .arg(sources.join("prepack.c"))
        .args(["-I.", "-o", "prepack", "./mm.so", "./rt.so", "-Wl,-rpath,."])
        .current_dir(directory.path())
        .output();
    succeeds(compiled.expect("a C compiler is there"));
    let run = Command::new(at("prepack")).current_dir(directory.path()).output();
    succeeds(run.expect("it runs"));
}

#[test]
fn commands_show_the_kernels_that_prepack_adds() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_string();
    let (sample, out) = ("samples/matmul_add.te", at("mm.so"));
    let fast = ["-D", "N=70", "--schedule", "fast"];
    succeeds(tec(
        &[&["build", sample, "-o", &out, "--prepack", "matmul_add.B"], &fast[..]].concat()
    ));
    let text = succeeds(tec(&["inspect", &out]));
    assert!(text.contains("  packs B for matmul_add_prepacked, "), "{text}");
    assert!(text.contains("  is matmul_add with packed B\n"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(tec(&["inspect", &out, "--json"]))).expect("JSON");
    let kernels = json["kernels"].as_array().expect("kernels");
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["matmul_add", "matmul_add_pack_B", "matmul_add_prepacked"]);
    assert!(kernels[0].get("prepack").is_none());
    assert_eq!(kernels[1]["prepack"]["role"], "pack");
    assert_eq!(kernels[1]["prepack"]["of"], "matmul_add");
    assert_eq!(kernels[2]["prepack"]["inputs"][0], "B");
    assert_eq!(kernels[2]["workspace_bytes"], 0, "the packing needs no memory any more");
    assert_ne!(kernels[0]["workspace_bytes"], 0);
    let text = succeeds(tec(&["run", &out]));
    assert!(text.contains("# matmul_add_prepacked\nout: float32[70, 70]"), "{text}");

    let refused = |args: &[&str], part: &str| {
        let output = tec(&[&["build", sample, "-o", &at("no.so"), "--prepack"], args].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(part), "{text}");
        assert!(!Path::new(&at("no.so")).exists());
    };
    refused(&["matmul.B"], "E0553");
    refused(&["b"], "E0553");
    refused(&["A"], "E0554");
    std::fs::write(
        at("twice.te"),
        RUN_TIME.to_string() + "kernel rt_prepacked(n = 4) { output C[i: n] = 1.0 }\n",
    )
    .expect("it is written");
    let twice = ["build", &at("twice.te"), "--schedule", "fast", "--prepack", "B"];
    let output = tec(&twice);
    assert!(String::from_utf8_lossy(&output.stderr).contains("E0521"), "{output:?}");
    let gpu = ["build", "samples/matmul.te", "--target", "nvptx-sm_80", "-o", &at("m.ptx")];
    let output = tec(&[&gpu[..], &["--prepack", "B"]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("E0555"), "{output:?}");
}

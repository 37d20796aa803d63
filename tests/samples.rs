//! Every kernel of `samples/` in machine code and in the reference interpreter: the results are the
//! same bits. The sizes are small, because the interpreter is slow.

use crate::support::data::{Data, make_args};
use crate::support::differential::{self, Interpreted, Verdict};
use crate::support::{self, Disk};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use tec::driver::{self, FpContract, Options, Trace};
use tec::ir::Kernel;
use tec::ir::interp::Value;
use tec::ir::print::{Style, print_kernel};
use tec::lang::Program;
use tec::schedule::BoundedSchedule;
use tec::target::Target;

/// A kernel and the options that make it small: definitions, run-time integers, scalars.
pub struct Case {
    pub file: &'static str,
    pub kernel: &'static str,
    pub options: &'static str,
}

const fn case(file: &'static str, kernel: &'static str, options: &'static str) -> Case {
    Case { file, kernel, options }
}

pub const CASES: &[Case] = &[
    case("vector_add", "vector_add", ""),
    case("vector_add", "vector_add", "-D n=20000"),
    case("vector_add_dtypes", "vector_add_t", "-D T=uint16"),
    case("vector_add_dtypes", "vector_add_float64", ""),
    case("vector_add_dtypes", "vector_add_float32", ""),
    case("vector_add_dtypes", "vector_add_float16", ""),
    case("vector_add_dtypes", "vector_add_bfloat16", ""),
    case("vector_add_dtypes", "vector_add_int8", ""),
    case("vector_add_dtypes", "vector_add_int16", ""),
    case("vector_add_dtypes", "vector_add_int32", ""),
    case("vector_add_dtypes", "vector_add_int64", ""),
    case("vector_add_dtypes", "vector_add_uint8", ""),
    case("vector_add_dtypes", "vector_add_uint16", ""),
    case("vector_add_dtypes", "vector_add_uint32", ""),
    case("vector_add_dtypes", "vector_add_uint64", ""),
    case("vector_add_dtypes", "vector_or_bool", ""),
    case("vector_add_cast", "vector_add_cast", "-D T=uint64"),
    case("vector_add_cast", "vector_add_cast_int8", ""),
    case("vector_add_cast", "vector_add_cast_float64", ""),
    case("vector_add_cast", "vector_add_cast_float16", ""),
    case("vector_add_var", "vector_add_var", "--var n=37"),
    case("vector_add_nd", "add_1d", "--var n=5"),
    case("vector_add_nd", "add_2d", "--var n=5 --var m=4"),
    case("vector_add_nd", "add_3d", "--var n=5 --var m=4 --var l=3"),
    case("vector_add_nd", "add_4d", "--var n=5 --var m=4 --var l=3 --var o=2"),
    case("transpose", "transpose", "--var n=7 --var m=9"),
    case("transpose", "transpose", "--var n=33 --var m=20"),
    case("reshape_flat", "reshape_flat", "--var n=7 --var m=9"),
    case("reshape_flat", "reshape_flat_fixed", ""),
    case("reshape", "reshape", "--var n=6 --var m=8 --var p=4 --var q=12"),
    case("reshape", "reshape_prefix", "--var n=6 --var m=8 --var p=5 --var q=9"),
    case("slice", "slice", "--var n=11 --var m=13 --var bi=1 --var si=2 --var bj=4 --var sj=3"),
    case("sum_rows", "sum_rows", "--var n=7 --var m=19"),
    case("sum_rows", "sum_rows", "--var n=11 --var m=300"),
    case("sum_all", "sum_all", "--var n=7 --var m=19"),
    case("min_max_rows", "min_max_rows", "--var n=7 --var m=19"),
    case("min_max_rows", "any_all_rows", "--var n=7 --var m=3"),
    case("prod_rows", "prod_rows", "--var n=7 --var m=19"),
    case("lower_triangle", "lower_triangle", "--var n=7 --var m=5"),
    case("padding", "padding", "--var n=4 --var m=3 -D p=2"),
    case("broadcast_add", "broadcast_add", ""),
    case("broadcast_add", "broadcast_add", "-D m1=9 -D m2=9 -D n2=150"),
    case("broadcast_add", "broadcast_add_column", "--var m=4 --var n=5"),
    case("broadcast_add", "broadcast_add_row", "--var m=4 --var n=5"),
    case("broadcast_add", "broadcast_add_outer", "--var m=4 --var n=5"),
    case("broadcast_add", "broadcast_add_one", "--var m=4 --var n=5"),
    case("broadcast_add", "broadcast_add_same", "--var m=4 --var n=5"),
    case("matmul", "matmul", "-D n=9 -D m=17 -D l=33"),
    case("matmul", "matmul", "-D n=64"),
    case("padding_nd", "padding_2d", ""),
    case("padding_nd", "padding_3d", ""),
    case("padding_nd", "padding_4d", ""),
    case("conv", "conv", "-D ic=3 -D nh=9 -D nw=8 -D kw=2 -D sh=2"),
    case("conv", "conv", "-D ic=3 -D nh=6 -D ph=0"),
    case("conv", "conv", "-D oc=2 -D ic=3 -D nh=16"),
    case("conv", "conv", "-D oc=9 -D ic=2 -D nh=3 -D nw=130"),
    case("depthwise_conv", "depthwise_conv", "-D ic=3 -D pw=0 -D sw=2"),
    case("depthwise_conv", "depthwise_conv", "-D ic=2 -D nh=9 -D nw=37"),
    case("packed_conv", "packed_conv", "-D oc=4 -D ic=6 -D toc=2 -D tic=3 -D nh=5 -D nw=10"),
    case("packed_conv", "packed_conv", "-D oc=8 -D ic=4 -D toc=8 -D tic=2 -D nh=7 -D ph=0 -D sw=2"),
    case("packed_depthwise_conv", "packed_depthwise_conv", "-D ic=6 -D tc=3 -D nh=7 -D nw=9"),
    case("packed_depthwise_conv", "packed_depthwise_conv", "-D ic=8 -D nh=5 -D nw=6"),
    case("max_pool", "max_pool", "-D nh=7 -D kw=2 -D sh=2"),
    case("max_pool", "max_pool", "-D c=2 -D nh=9 -D nw=37"),
    case("avg_pool", "avg_pool", "-D nh=7 -D kw=2 -D sh=2"),
    case("avg_pool", "avg_pool", "-D c=2 -D nh=9 -D nw=37"),
    case("batch_norm", "batch_norm", "-D c=3 -D n=5"),
    case("batch_norm", "batch_norm", "-D c=2 -D n=13"),
    case("batch_norm", "batch_norm_folded", "-D c=3 -D n=5"),
    case("batch_norm", "batch_norm_folded", "-D c=2 -D n=13"),
    case("matmul_add", "matmul_add", "-D N=9 -D L=17 -D M=5"),
    case("matmul_add", "matmul_add", "-D N=14 -D L=7 -D M=150"),
    case("matmul_add", "matmul_add", "-D N=9 -D L=17 -D M=5 -D T=int8"),
    case("dot_int8", "dot_int8", "-D n=16 -D m=64 -D l=12"),
    case("dot_bf16", "dot_bf16", "-D n=16 -D m=64 -D l=12"),
    case("conv_bwd_weight", "conv_bwd_weight_steps", "-D batch=2 -D in_channel=3 -D in_h=6"),
    case("conv_bwd_weight", "conv_bwd_weight", "-D batch=2 -D in_channel=3 -D in_h=6"),
    case("conv_bwd_weight", "conv_bwd_weight", "-D batch=2 -D in_channel=33 -D in_h=5"),
    case("exp", "exp_vector", "-D n=1000"),
    case("exp", "exp_vector", "-D n=5000"),
    case("softmax", "softmax", "-D m=5 -D n=33"),
    case("softmax", "softmax", "-D m=3 -D n=200"),
    case("softmax", "softmax_reciprocal", "-D m=3 -D n=130"),
    case("layer_norm", "layer_norm", "-D m=5 -D n=33"),
    case("layer_norm", "layer_norm", "-D m=2 -D n=200"),
    case("matmul_bf16", "matmul_bf16", "-D n=24 -D m=17 -D l=9"),
    case("argmax", "argmax_rows", "--var n=5 --var m=12"),
    case("argmax", "argbest_rows", "--var n=5 --var m=12"),
    case("conv_block", "conv_block", "-D oc=2 -D ic=2 -D n=8"),
    case("classifier", "classifier", "-D rows=3 -D features=12"),
    case("any_rank", "any_rank_relu", "-D S=[2,3,1,17]"),
    case("any_rank", "any_rank_relu", "-D S=[var,3,var] --var S0=4 --var S2=21 -D T=int16"),
    case("any_rank", "any_rank_add", ""),
    case("any_rank", "any_rank_add", "-D A=[] -D B=[3,7]"),
    case("any_rank", "any_rank_transpose", "-D S=[2,3,4,5] -D perm=[3,1,0,2]"),
    case("any_rank", "any_rank_sum", ""),
    case("any_rank", "any_rank_sum", "-D S=[4,5] -D axes=[]"),
    case("any_rank", "any_rank_layer", ""),
    case("gemm", "gemm", "-D n=33 -D m=70 -D l=19"),
    case("gemm", "gemm", "-D n=12 -D m=64 -D l=40"),
    case("decode", "decode", "--var n=21 --var at=13 -D heads=3 -D d=16"),
    case("lstm", "lstm", "--var steps=5 -D batch=2 -D inputs=11 -D units=40"),
    case("iir", "iir", "--var steps=9 -D channels=21"),
    case("heat", "heat", "--var steps=5 -D n=35"),
    case("edges", "edges", "-D h=23 -D w=37"),
    case("edges", "edges", "-D h=200 -D w=20 -D T=uint8"),
    case("cholesky", "cholesky", "--var n=19"),
    case("cholesky", "triangular_solve", "--var n=9 --var m=21"),
    case("edit_distance", "edit_distance", "--var n=7 --var m=9"),
    case("edit_distance", "distance", "--var n=7 --var m=9"),
    case("edit_distance", "viterbi", "--var steps=6"),
    case("sort", "sort_rows", "--var n=5 --var m=60 -D T=float16"),
    case("sort", "argsort_rows", "--var n=3 --var m=250"),
    case("sort", "topk", "--var n=3 --var m=3000 --var k=7 -D T=int16"),
    case("sort", "median", "--var n=4 --var m=33"),
];

fn samples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples")
}

/// The note of `tec` about an illegal automatic schedule.
const REFUSED: &str = "was refused";

/// Names of the schedules for CPUs that a sample has for a kernel.
fn schedules(case: &Case) -> Vec<String> {
    let path = samples().join(format!("{}.te", case.file));
    let text = std::fs::read_to_string(&path).expect("a sample in UTF-8");
    let head = format!("\nschedule {}.", case.kernel);
    let named = text.split(&head[..]).skip(1);
    let here = |rest: &&str| !rest.split('{').next().unwrap().contains("for nvptx");
    named.filter(here).map(|rest| rest.split(['(', ' ']).next().unwrap().to_string()).collect()
}

/// Pairs of a name and a value that follow `option`: `-D` or `--var`.
pub fn pairs<'a>(case: &'a Case, option: &str) -> Vec<(&'a str, &'a str)> {
    let words: Vec<&str> = case.options.split_whitespace().collect();
    let given = words.chunks(2).filter(|pair| pair[0] == option);
    given.map(|pair| pair[1].split_once('=').expect("name=value")).collect()
}

fn load(case: &Case) -> Program {
    let path = samples().join(format!("{}.te", case.file));
    let loaded = driver::load(path.to_str().expect("UTF-8"), &Disk, &mut Trace::default());
    loaded.map_err(|(_, failure)| failure).expect("a sample that parses")
}

/// Returns the options of a case with a schedule.
fn options_of(case: &Case, schedule: &str, options: &Options) -> Options {
    let defines = pairs(case, "-D").into_iter();
    Options {
        kernels: Some(vec![case.kernel.to_string()]),
        defines: defines.map(|(name, value)| (None, name.into(), value.into())).collect(),
        schedule: Some((None, schedule.to_string())),
        ..options.clone()
    }
}

/// Applies a schedule to the kernel of a case.
fn schedule(program: &Program, options: &Options) -> Result<BoundedSchedule, String> {
    let trace = &mut Trace::default();
    let graphs = driver::elaborate(program, options, trace);
    let bounded = graphs.and_then(|graphs| driver::schedule(program, graphs, options, trace));
    if let Some(note) = trace.notes.iter().find(|note| note.contains(REFUSED)) {
        return Err(note.clone());
    }
    let mut bounded = bounded.map_err(|failure| format!("{failure:?}"))?;
    bounded.pop().ok_or_else(|| "no kernel".to_string())
}

/// Arguments, and what the interpreter computes from them.
type Reference = (Vec<Value>, Result<Vec<Value>, String>);

/// The reference results by the text of the default schedule, which several targets and schedules
/// share.
static REFERENCES: LazyLock<Mutex<HashMap<String, Arc<OnceLock<Reference>>>>> =
    LazyLock::new(Mutex::default);

/// Runs the default schedule of a case in the interpreter, once for all schedules and targets.
fn reference(case: &Case, default_loops: &Kernel, reassociates: bool) -> Reference {
    let key = format!("{} {}", case.options, print_kernel(default_loops, Style::Full));
    let slot = REFERENCES.lock().expect("no panic").entry(key).or_default().clone();
    let compute = || {
        let vars: Vec<(String, i64)> = pairs(case, "--var")
            .into_iter()
            .map(|(name, value)| (name.to_string(), value.parse().expect("an integer")))
            .collect();
        let data = if reassociates { Data::Rough } else { Data::Any };
        // Some seeds make shapes that the kernel refuses.
        let runs = (0..16).map(|seed| {
            let args = make_args(default_loops, &vars, seed, data).expect("small tensors");
            let expected = differential::run(default_loops, &args, "default")
                .expect("the interpreter runs it");
            (args, expected)
        });
        runs.into_iter().find(|(_, expected)| expected.is_ok()).expect("arguments that fit")
    };
    slot.get_or_init(compute).clone()
}

/// Compiles a case up to the last pass, with the results that its module must have.
fn lower(case: &Case, program: &Program, options: &Options) -> Result<Interpreted, String> {
    let bounded = schedule(program, options)?;
    let graph = bounded.schedule.graph.clone();
    let failed = |failure| format!("{failure:?}");
    let default_loops = driver::lower_unoptimized(&graph, &options.target).map_err(failed)?;
    let kernel = driver::lower(&bounded, options, None, &mut Trace::default()).map_err(failed)?;
    let (args, expected) = reference(case, &default_loops, graph.reassociate);
    let mut interpreted = Interpreted { graph, bounded, kernel, args, expected, bound: None };
    if interpreted.kernel.reassociated {
        let text = |verdict| format!("{verdict:?}");
        let in_order = driver::lower_in_order(&interpreted.bounded, options, &mut Trace::default());
        let scheduled =
            differential::run(&in_order.map_err(failed)?, &interpreted.args, "scheduled")
                .map_err(text)?;
        interpreted.bound = Some(differential::BOUND);
        differential::compare(&interpreted, &scheduled, "the scheduled interpreter")
            .map_err(text)?;
        (interpreted.expected, interpreted.bound) = (scheduled, None);
    }
    Ok(interpreted)
}

/// Verifies every case with the default schedule, the automatic schedule and each of its own; lists
/// all that differ.
fn verify_all(options: &Options) {
    let mut wrong = Vec::new();
    for case in CASES {
        let program = load(case);
        let own = schedules(case).into_iter();
        let names: Vec<String> =
            ["default", "auto"].map(String::from).into_iter().chain(own).collect();
        let mut tell = |name: &str, what: String| {
            let Case { file, kernel, options: own } = case;
            let (target, opt) = (&options.target, options.opt);
            wrong.push(format!("{file}.te {kernel} {own} {name}, {target} --opt {opt}\n{what}"));
        };
        let mut lowered = Vec::new();
        for name in &names {
            match lower(case, &program, &options_of(case, name, options)) {
                Ok(mut interpreted) => {
                    interpreted.kernel.name = format!("{}_{}", case.kernel, lowered.len());
                    lowered.push((name, interpreted));
                }
                Err(what) => tell(name, what),
            }
        }
        let kernels: Vec<&Interpreted> =
            lowered.iter().map(|(_, interpreted)| interpreted).collect();
        let module = differential::link(&kernels, options).expect("the module links");
        for (name, interpreted) in &lowered {
            let verdict = differential::call(interpreted, &module);
            if verdict != (Verdict::Same { refused_at_entry: false }) {
                tell(name, format!("{verdict:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_kernel_has_a_case() {
    let mut declared = BTreeSet::new();
    for entry in std::fs::read_dir(samples()).expect("the samples") {
        let path = entry.expect("a readable entry").path();
        if path.extension().is_none_or(|extension| extension != "te") {
            continue;
        }
        let file = path.file_stem().unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(&path).expect("a sample in UTF-8");
        for line in text.lines().filter_map(|line| line.strip_prefix("kernel ")) {
            let name = line.split(['(', ' ']).next().unwrap().to_string();
            declared.insert((file.clone(), name));
        }
    }
    let tested: BTreeSet<_> =
        CASES.iter().map(|case| (case.file.to_string(), case.kernel.to_string())).collect();
    assert_eq!(declared, tested);
}

/// Automatic schedules are legal for every target; `verify_all` covers the targets that run here.
#[test]
fn auto_is_legal_everywhere() {
    // Without this check, the test would miss a reworded note.
    assert!(include_str!("../src/driver/auto/mod.rs").contains(REFUSED));
    let mut wrong = Vec::new();
    let targets = Target::cpus().into_iter().filter(|target| !target.runs_here());
    for (case, target) in CASES.iter().flat_map(|case| targets.clone().map(move |t| (case, t))) {
        let options = options_of(case, "auto", &Options::new(target));
        let bounded = schedule(&load(case), &options);
        let kernel = bounded.and_then(|bounded| {
            let lowered = driver::lower(&bounded, &options, None, &mut Trace::default());
            lowered.map_err(|failure| format!("{failure:?}"))
        });
        if let Err(what) = kernel {
            wrong.push(format!("{}.te {} {}\n{what}", case.file, case.kernel, options.target));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn native() -> Options {
    Options::new(Target::parse("native").expect("a target"))
}

#[test]
fn machine_code_agrees_with_the_interpreter() {
    verify_all(&native());
}

#[test]
fn unoptimised_code_agrees_with_the_interpreter() {
    verify_all(&Options { opt: 0, ..native() });
}

#[test]
fn code_without_fused_operations_agrees_with_the_interpreter() {
    verify_all(&Options { fp_contract: FpContract::Off, ..native() });
}

/// The same for a target, where its code runs.
fn verify_all_on(target: &str) {
    let parsed = Target::parse(target).expect("a target");
    if support::runs_here(&parsed, "the samples' machine code") {
        verify_all(&Options::new(parsed));
    }
}

#[test]
fn code_for_the_baseline_target_agrees_with_the_interpreter() {
    verify_all_on("x86-64");
}

#[test]
fn code_with_half_as_wide_vectors_agrees_with_the_interpreter() {
    verify_all_on("x86-avx2");
}

/// Returns the output of `tec` with these arguments.
fn printed(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tec")).args(args).output().expect("tec starts");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success(), "tec {args:?}\n{error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Every vectorized nest of every schedule, at the sizes of the file, runs on the wide vectors of
/// the target; the innermost loops of schedules named `fast` spill nothing.
#[test]
fn vectorized_nests_use_wide_vectors() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let out = scratch.path().join("listing.s");
    let mut wrong = Vec::new();
    let mut nests = 0;
    let mut seen = BTreeSet::new();
    for case in CASES {
        for name in schedules(case) {
            if !seen.insert((case.file, case.kernel, name.clone())) {
                continue;
            }
            let file = samples().join(format!("{}.te", case.file));
            for target in ["x86-avx512", "x86-avx2"] {
                let file = file.to_str().expect("UTF-8");
                let ways = ["--kernel", case.kernel, "--schedule", &name, "--target", target];
                let told = printed(&[&["lower", file, "--explain-simd"], &ways[..]].concat());
                nests += told.matches(" bits: ").count();
                if told.contains("128 bits: ") {
                    wrong.push(format!("{ways:?}\n{told}"));
                }
                if name == "fast" {
                    let out = out.to_str().expect("UTF-8");
                    printed(&[&["build", file, "-o", out], &ways[..]].concat());
                    let listing = std::fs::read_to_string(out).expect("a listing");
                    // So may those of borders: many rows at once, the few ends of a wave.
                    let borders = ["edges", "edit_distance"].contains(&case.file);
                    // Addresses of prefetches between the parts of a reduction may be spilled.
                    let table = listing.lines().skip_while(|line| !line.contains(" instr "));
                    let spill = |row: &str| row.split_whitespace().nth(6).is_some_and(|n| n != "0");
                    let spilled = table.skip(1).filter(|row| spill(row) && !borders);
                    wrong.extend(spilled.map(|line| format!("{ways:?}\n{line}")));
                }
            }
        }
    }
    assert!(nests > 20, "{nests} vectorized nests");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

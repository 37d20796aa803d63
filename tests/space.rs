//! Candidates of the tuner's space, drawn at random: nearly all are accepted, and the accepted ones
//! compute the results of the default schedule.

#[allow(dead_code)]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use support::Random;
use support::differential;
use support::differential::{Case, Verdict};
use tec::driver::{self, Options, PassId, Trace};
use tec::emulate::{Emulator, Orders};
use tec::lang::Program;
use tec::schedule::infer_bounds;
use tec::target::Target;
use tec::te::Graph;
use tec::tune::{Candidate, Space, space};

/// A kernel of the samples: definitions of its usual size and of a small one, run-time integers.
struct Sample {
    file: &'static str,
    kernel: &'static str,
    usual: &'static str,
    small: &'static str,
    vars: &'static str,
}

const fn sample(
    file: &'static str,
    kernel: &'static str,
    usual: &'static str,
    small: &'static str,
    vars: &'static str,
) -> Sample {
    Sample { file, kernel, usual, small, vars }
}

const SAMPLES: &[Sample] = &[
    sample("matmul", "matmul", "n=512", "n=21 m=37 l=70", ""),
    sample("matmul_add", "matmul_add", "", "N=18 L=66 M=45", ""),
    sample("conv", "conv", "oc=64 ic=64 nh=56", "oc=5 ic=7 nh=9 nw=19", ""),
    sample("depthwise_conv", "depthwise_conv", "ic=64 nh=56", "ic=3 nh=9 nw=19", ""),
    sample("max_pool", "max_pool", "c=64 nh=56", "nh=9 nw=19", ""),
    sample("avg_pool", "avg_pool", "c=64 nh=56", "nh=9 nw=19", ""),
    sample("batch_norm", "batch_norm", "", "c=3 n=11", ""),
    sample("batch_norm", "batch_norm_folded", "", "c=3 n=11", ""),
    sample("softmax", "softmax", "", "m=5 n=130", ""),
    sample("softmax", "softmax_reciprocal", "", "m=3 n=37", ""),
    sample("layer_norm", "layer_norm", "", "m=5 n=130", ""),
    sample("conv_bwd_weight", "conv_bwd_weight", "", "batch=2 in_channel=19 in_h=5", ""),
    sample("conv_bwd_weight", "conv_bwd_weight_steps", "", "batch=2 in_channel=9 in_h=5", ""),
    sample("sum_rows", "sum_rows", "", "", "n=11 m=75"),
    sample("sum_all", "sum_all", "", "", "n=7 m=19"),
    sample("min_max_rows", "min_max_rows", "", "", "n=7 m=19"),
    sample("argmax", "argmax_rows", "", "", "n=5 m=12"),
    sample("transpose", "transpose", "", "", "n=37 m=21"),
    sample("exp", "exp_vector", "", "n=1000", ""),
    sample("broadcast_add", "broadcast_add", "m1=100 m2=100 n2=5000", "m1=9 m2=9 n2=150", ""),
    sample("broadcast_add", "broadcast_add_outer", "", "", "m=9 n=37"),
    sample("vector_add", "vector_add", "n=1000000", "n=133", ""),
    sample("conv_block", "conv_block", "", "oc=2 ic=2 n=8", ""),
    sample("classifier", "classifier", "", "rows=3 features=12", ""),
    sample("packed_conv", "packed_conv", "", "oc=4 ic=6 toc=2 tic=3 nh=5 nw=10", ""),
];

/// The same for GPUs, where run-time extents have fewer rules.
const GPU_SAMPLES: &[Sample] = &[
    sample("matmul", "matmul", "n=512", "n=21 m=37 l=18", ""),
    sample("matmul_add", "matmul_add", "", "N=18 L=10 M=45", ""),
    sample("conv", "conv", "oc=64 ic=64 nh=56", "oc=5 ic=3 nh=9 nw=11", ""),
    sample("depthwise_conv", "depthwise_conv", "ic=64 nh=56", "ic=3 nh=9 nw=11", ""),
    sample("avg_pool", "avg_pool", "c=64 nh=56", "c=2 nh=9 nw=11", ""),
    sample("batch_norm", "batch_norm", "", "c=3 n=7", ""),
    sample("softmax", "softmax", "", "m=5 n=33", ""),
    sample("vector_add", "vector_add", "n=1000000", "n=132", ""),
    sample("transpose", "transpose", "", "", "n=17 m=9"),
    sample("sum_rows", "sum_rows", "", "", "n=3 m=300"),
    sample("conv_bwd_weight", "conv_bwd_weight", "", "batch=2 in_channel=9 in_h=5", ""),
];

/// Kernels whose terms may be reordered, and the best rule for them.
const GPU_PROGRAMS: &[(&str, &str)] = &[
    (
        "kernel product(n = 64) reassociate {
    input A: bfloat16[n, n]
    input B: bfloat16[n, n]
    reduce k: 0..n
    output C[x: n, y: n] = sum((A[x, k] as float32) * (B[k, y] as float32), axis=k)
}
",
        "tensor",
    ),
    (
        "kernel bytes(n = 64, l = 128) {
    input A: uint8[n, l]
    input B: int8[l, n]
    reduce k: 0..l
    output C[x: n, y: n] = sum((A[x, k] as int32) * (B[k, y] as int32), axis=k)
}
",
        "tensor",
    ),
    (
        "kernel turned(n = 64, l = 128) {
    input A: int8[l, n]
    input B: int8[n, l]
    reduce k: 0..l
    output C[x: n, y: n] = sum((A[k, x] as int32) * (B[y, k] as int32), axis=k)
}
",
        "tensor",
    ),
    (
        "kernel rows(m = 8, n = 1024) reassociate {
    input A: float32[m, n]
    reduce k: 0..n
    output S[i: m] = sum(A[i, k] * A[i, k], axis=k)
}
",
        "together",
    ),
];

fn text(sample: &Sample) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples");
    std::fs::read_to_string(path.join(format!("{}.te", sample.file))).expect("a sample")
}

fn options(sample: &Sample, target: &str, defines: &str) -> Options {
    let mut options = Options::new(Target::parse(target).expect("a target"));
    options.kernels = Some(vec![sample.kernel.to_string()]);
    for define in defines.split_whitespace() {
        let (name, value) = define.split_once('=').expect("a definition");
        let kernel = Some(sample.kernel.to_string());
        options.defines.push((kernel, name.to_string(), value.to_string()));
    }
    options
}

fn elaborate(text: &str, options: &Options) -> (Program, Graph) {
    let program = differential::load(text).expect("it parses");
    let graphs = driver::elaborate(&program, options, &mut Trace::default()).expect("it is right");
    (program, graphs.into_iter().next().expect("a kernel"))
}

/// Returns a candidate with random decisions.
fn draw(space: &impl Space, random: &mut Random) -> Candidate {
    space.replay(&mut |choice| random.below(choice.options.len() as u64) as usize)
}

/// Why a candidate is refused.
fn refusal(graph: &Graph, target: &Target, text: &str) -> Option<String> {
    let file = match tec::lang::parse_file(text, 0) {
        Ok(file) => file,
        Err(diag) => return Some(diag.to_string()),
    };
    let source = tec::diag::SourceFile { path: String::new(), text: text.to_string() };
    let sources = tec::diag::Sources { files: vec![source] };
    let program = Program::new(sources, vec![file], vec![Vec::new()]);
    let item = program.files[0].items.iter().find_map(|item| match item {
        tec::lang::ast::Item::Schedule(schedule) => Some(schedule),
        _ => None,
    });
    let item = item.expect("a schedule");
    let applied = tec::schedule::apply(&program, graph.clone(), target, &Vec::new(), item);
    let bounds = applied.and_then(infer_bounds);
    bounds.err().map(|diag| {
        let span = diag.span.map_or(0..0, |span| span.start as usize..span.end as usize);
        format!("{} {} at `{}`", diag.code, diag.message, &text[span])
    })
}

/// How many of `n` candidates are accepted; the reasons of the others, counted by code.
fn rate(sample: &Sample, target: &str, n: usize, seed: u64) -> (usize, BTreeMap<String, usize>) {
    let options = options(sample, target, sample.usual);
    let (_, graph) = elaborate(&text(sample), &options);
    let space = space::of_kernel(&graph, &options.target, 2);
    let mut random = Random(seed);
    let mut reasons = BTreeMap::new();
    let mut accepted = 0;
    for _ in 0..n {
        let candidate = draw(&space, &mut random);
        match refusal(&graph, &options.target, &candidate.text) {
            None => accepted += 1,
            Some(reason) => {
                if std::env::var("TEC_SHOW").is_ok() && !reasons.contains_key(&reason[..5]) {
                    println!("{}\n{}\n{reason}", sample.kernel, candidate.text);
                }
                *reasons.entry(reason[..5].to_string()).or_insert(0) += 1;
            }
        }
    }
    (accepted, reasons)
}

fn picked() -> impl Iterator<Item = &'static Sample> {
    chosen(SAMPLES)
}

fn chosen(samples: &'static [Sample]) -> impl Iterator<Item = &'static Sample> {
    let only = std::env::var("TEC_CASE").unwrap_or_default();
    samples.iter().filter(move |sample| sample.kernel.contains(&only))
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn candidates_are_accepted() {
    let n = number("TEC_N", 100);
    let mut low = Vec::new();
    driver::with_stack(|| {
        let gpus = chosen(GPU_SAMPLES).map(|sample| (sample, &["nvptx-sm_80"][..]));
        let cpus = picked().map(|sample| (sample, &["x86-avx512", "x86-avx2"][..]));
        for (sample, targets) in cpus.chain(gpus) {
            for target in targets {
                let (accepted, reasons) = rate(sample, target, n, 1);
                println!("{} {target}: {accepted} of {n} {reasons:?}", sample.kernel);
                if accepted * 10 < n * 9 {
                    low.push(sample.kernel);
                }
            }
        }
    });
    assert!(low.is_empty(), "{low:?}");
}

#[test]
fn defaults_are_accepted() {
    driver::with_stack(|| {
        for sample in picked() {
            for target in ["x86-avx512", "x86-avx2", "x86-64", "riscv64"] {
                for defines in [sample.usual, sample.small] {
                    let options = options(sample, target, defines);
                    let (_, graph) = elaborate(&text(sample), &options);
                    let space = space::of_kernel(&graph, &options.target, 0);
                    let candidate = space.replay(&mut |choice| choice.default);
                    let reason = refusal(&graph, &options.target, &candidate.text);
                    if std::env::var("TEC_SHOW").is_ok() {
                        println!("{}", candidate.text);
                    }
                    assert!(reason.is_none(), "{}\n{}", candidate.text, reason.unwrap());
                }
            }
        }
    });
}

#[test]
fn candidates_compute_the_same() {
    let n = number("TEC_N", 20);
    driver::with_stack(|| {
        let cpus = picked().map(|sample| (sample, "x86-avx2"));
        let gpus = chosen(GPU_SAMPLES).map(|sample| (sample, "nvptx-sm_80"));
        for (sample, target) in cpus.chain(gpus) {
            let options = options(sample, target, sample.small);
            let source = text(sample);
            let (_, graph) = elaborate(&source, &options);
            let space = space::of_kernel(&graph, &options.target, 2);
            let mut random = Random(2);
            let (mut same, mut refused) = (0, 0);
            for seed in 0..n as u64 {
                let candidate = draw(&space, &mut random);
                let text = format!("{source}\n{}", candidate.text);
                let vars = sample.vars.split_whitespace().map(|var| {
                    let (name, value) = var.split_once('=').expect("a variable");
                    (name.to_string(), value.parse().expect("an integer"))
                });
                let kernel = sample.kernel.to_string();
                let case = Case { text, kernel, vars: vars.collect(), seed };
                match differential::interpret(&case, &options) {
                    Ok(_) => same += 1,
                    Err(Verdict::Refused(..)) => refused += 1,
                    Err(verdict) => panic!("{verdict:?}\n{}", candidate.text),
                }
            }
            println!("{} {target}: {same} the same, {refused} refused", sample.kernel);
            assert!(same * 10 >= n * 9, "{} {target}: {refused} of {n} refused", sample.kernel);
        }
    });
}

/// Allocations of each thread, a measure of work that does not depend on the machine or its load.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's doing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of `run`, in this thread.
fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

/// A search writes thousands of candidates, so writing one must take microseconds: a limited number
/// of allocations, which does not grow with the kernel's sizes.
#[test]
fn writing_a_candidate_takes_few_operations() {
    const CANDIDATES: u64 = 200;
    let sample = picked().find(|sample| sample.kernel == "matmul_add").expect("a sample");
    let work = |defines: &str| {
        let options = options(sample, "x86-avx512", defines);
        let (_, graph) = elaborate(&text(sample), &options);
        let space = space::of_kernel(&graph, &options.target, 2);
        let mut random = Random(1);
        allocations(|| (0..CANDIDATES).for_each(|_| drop(draw(&space, &mut random)))) / CANDIDATES
    };
    let (usual, large) = (work(""), work("N=16384 L=16384 M=16384"));
    println!("{usual} allocations for a candidate, {large} for one of a large kernel");
    assert!((100..1500).contains(&usual), "{usual} allocations");
    assert!(large < 2 * usual, "{large} allocations, {usual} for a smaller kernel");
}

/// A sample's schedule with the decisions that lead to a similar one; decisions that are not named
/// have their defaults.
struct SimilarSchedule {
    file: &'static str,
    kernel: &'static str,
    defines: &'static str,
    schedule: &'static str,
    answers: &'static [(&'static str, &'static str)],
}

const SIMILAR_SCHEDULES: &[SimilarSchedule] = &[
    SimilarSchedule {
        file: "matmul",
        kernel: "matmul",
        defines: "n=1024",
        schedule: "fast",
        answers: &[
            ("C.lanes", "y"),
            ("C.width", "64"),
            ("C.rows along", "x"),
            ("C.rows", "6"),
            ("C.sums", "in place"),
            ("C.order", "y x"),
            ("C.pack B", "yes"),
            ("C.unroll", "4"),
            ("C.parallel", "y_o x_o"),
        ],
    },
    SimilarSchedule {
        file: "matmul_add",
        kernel: "matmul_add",
        defines: "",
        schedule: "fast",
        answers: &[
            ("matmul.lanes", "j"),
            ("matmul.width", "64"),
            ("matmul.rows along", "i"),
            ("matmul.rows", "6"),
            ("matmul.order", "j i"),
            ("matmul.pack B", "yes"),
            ("matmul.unroll", "none"),
            ("matmul.unroll rows", "yes"),
            ("out.parallel", "j_o i_o"),
        ],
    },
    SimilarSchedule {
        file: "conv",
        kernel: "conv",
        defines: "oc=64 ic=64 nh=56",
        schedule: "fast",
        answers: &[
            ("Y.lanes", "j"),
            ("Y.width", "64"),
            ("Y.rows along", "c"),
            ("Y.rows", "4"),
            ("Y.block i", "2"),
            ("Y.order", "i c j"),
            ("Y.unroll", "rkw"),
            ("Y.parallel", "i_o c_o"),
            ("PaddedX.outermost", "i1"),
            ("PaddedX.width", "58"),
            ("PaddedX.parallel", "i1"),
        ],
    },
    SimilarSchedule {
        file: "conv_bwd_weight",
        kernel: "conv_bwd_weight",
        defines: "",
        schedule: "fast",
        answers: &[
            ("result.lanes", "ci"),
            ("result.width", "32"),
            ("result.rows along", "co"),
            ("result.also along", "kw"),
            ("result.also", "3"),
            ("result.rows", "4"),
            ("result.order", "co kh ci"),
            ("result.unroll", "none"),
            ("result.parallel", "co_o kh"),
        ],
    },
    SimilarSchedule {
        file: "depthwise_conv",
        kernel: "depthwise_conv",
        defines: "ic=64 nh=56",
        schedule: "fast",
        answers: &[("Y.rows", "4"), ("Y.order", "c i j"), ("PaddedX.at", "c")],
    },
    SimilarSchedule {
        file: "max_pool",
        kernel: "max_pool",
        defines: "c=64 nh=56",
        schedule: "fast",
        answers: &[("PoolMax.rows", "8"), ("PaddedX.at", "k")],
    },
    SimilarSchedule {
        file: "avg_pool",
        kernel: "avg_pool",
        defines: "c=64 nh=56",
        schedule: "fast",
        answers: &[("PoolSum.rows", "8"), ("PaddedX.at", "k")],
    },
    SimilarSchedule {
        file: "batch_norm",
        kernel: "batch_norm",
        defines: "",
        schedule: "fast",
        answers: &[("Y.fused", "2"), ("Y.width", "64"), ("T_sqrt.at", "ax0")],
    },
    SimilarSchedule {
        file: "softmax",
        kernel: "softmax",
        defines: "",
        schedule: "fast",
        answers: &[
            ("Y.width", "32"),
            ("E.width", "32"),
            ("M.vectors", "4"),
            ("M.finish", "lanes"),
            ("S.at", "i"),
            ("S.finish", "lanes"),
        ],
    },
    SimilarSchedule {
        file: "layer_norm",
        kernel: "layer_norm",
        defines: "m=512",
        schedule: "fast",
        answers: &[
            ("Y.width", "32"),
            ("Y.parallel", "i"),
            ("Squares.at", "i"),
            ("Sum.finish", "lanes"),
            ("Squares.finish", "lanes"),
        ],
    },
    SimilarSchedule {
        file: "sum_rows",
        kernel: "sum_rows",
        defines: "",
        schedule: "fast",
        answers: &[
            ("b.chunk", "8"),
            ("b.vectors", "8"),
            ("b.finish", "lanes"),
            ("b.parallel", "i_o"),
        ],
    },
    SimilarSchedule {
        file: "transpose",
        kernel: "transpose",
        defines: "",
        schedule: "fast",
        answers: &[],
    },
    SimilarSchedule {
        file: "exp",
        kernel: "exp_vector",
        defines: "",
        schedule: "fast",
        answers: &[("y.width", "32"), ("y.piece", "4096")],
    },
    SimilarSchedule {
        file: "broadcast_add",
        kernel: "broadcast_add",
        defines: "m1=128 m2=128 n2=4096",
        schedule: "fast",
        answers: &[("C.chunk", "8"), ("C.width", "64"), ("C.parallel", "x_o")],
    },
];

/// Returns an extent with one name for all loops.
fn nameless(extent: &str) -> String {
    const KEPT: [&str; 6] = ["n", "m", "floordiv", "floormod", "min", "max"];
    let (mut text, mut word) = (String::new(), String::new());
    for c in extent.chars().chain(['\n']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        let is_loop = word.starts_with(char::is_alphabetic) && !KEPT.contains(&&word[..]);
        text.push_str(if is_loop { "x" } else { &word });
        text.push(c);
        word.clear();
    }
    text
}

/// Returns the loops of a program, outermost first, without their names: those that run once left
/// out.
fn nest(text: &str) -> Vec<String> {
    let mut loops = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let Some((kind, rest)) = trimmed.split_once(" (") else { continue };
        if kind != "for" && kind != "parallel" {
            continue;
        }
        let mut parts = rest.splitn(3, ", ").skip(2);
        let extent = parts.next().expect("an extent").trim_end_matches(") {");
        let extent = nameless(extent);
        loops.push(format!("{kind} {extent}"));
    }
    loops
}

#[test]
fn the_space_contains_schedules_like_those_of_the_samples() {
    let only = std::env::var("TEC_CASE").unwrap_or_default();
    driver::with_stack(|| {
        for like in SIMILAR_SCHEDULES.iter().filter(|like| like.kernel.contains(&only)) {
            let sample = sample(like.file, like.kernel, "", "", "");
            let mut options = options(&sample, "x86-avx512", like.defines);
            let source = text(&sample);
            let (_, graph) = elaborate(&source, &options);
            let space = space::of_kernel(&graph, &options.target, 2);
            let mut asked = Vec::new();
            let mut names = Vec::new();
            let candidate = space.replay(&mut |choice| {
                names.push(format!("{}: {:?}", choice.name, choice.options));
                let given = like.answers.iter().find(|(name, _)| *name == choice.name);
                let Some((name, answer)) = given else { return choice.default };
                asked.push(*name);
                let at = choice.options.iter().position(|option| option == answer);
                at.unwrap_or_else(|| panic!("{name} = {answer}: {:?}", choice.options))
            });
            for (name, _) in like.answers {
                assert!(asked.contains(name), "{}: `{name}` is not asked: {names:#?}", like.kernel);
            }
            let mut simple = |source: &str, schedule: Option<&str>| {
                options.schedule =
                    schedule.map(|name| (Some(like.kernel.to_string()), name.to_string()));
                let (program, graph) = elaborate(source, &options);
                let mut trace = Trace::default();
                let bounded = driver::schedule(&program, vec![graph], &options, &mut trace);
                let bounded = bounded.expect("it is legal");
                let last = Some(PassId::LAST_READABLE);
                let kernel = driver::lower(&bounded[0], &options, last, &mut trace);
                let kernel = kernel.expect("it is lowered");
                tec::ir::print::print_kernel(&kernel, tec::ir::print::Style::Simple)
            };
            let fast = simple(&source, Some(like.schedule));
            let ours = simple(&format!("{source}\n{}", candidate.text), None);
            if std::env::var("TEC_SHOW").is_ok() {
                println!("{}\n{fast}\n{ours}", candidate.text);
            }
            // The vector loop over channels is inside the loop over rows in the sample, and outside
            // of it in the rules' schedule.
            let part = |text: &str| match like.kernel {
                "conv_bwd_weight" => {
                    text[text.find("produce result {").expect("it is there")..].to_string()
                }
                _ => text.to_string(),
            };
            let (fast, ours) = (part(&fast), part(&ours));
            let same = nest(&fast) == nest(&ours);
            println!("{} {}: {same}", like.kernel, like.schedule);
            assert!(same, "{:?}\n{:?}", nest(&fast), nest(&ours));
        }
    });
}

/// Returns the questions about a sample, some answered as given and the others by default, and the
/// text.
fn asked(sample: &Sample, answers: &[(&str, &str)]) -> (Vec<String>, String) {
    let options = options(sample, "x86-avx512", sample.usual);
    let (_, graph) = elaborate(&text(sample), &options);
    let space = space::of_kernel(&graph, &options.target, 2);
    let mut names = Vec::new();
    let candidate = space.replay(&mut |choice| {
        names.push(choice.name.clone());
        let given = answers.iter().find(|(name, _)| *name == choice.name);
        let place = |answer: &str| choice.options.iter().position(|option| option == answer);
        let known = |answer| place(answer).unwrap_or_else(|| panic!("{answer}: {choice:?}"));
        given.map_or(choice.default, |(_, answer)| known(answer))
    });
    assert_eq!(refusal(&graph, &options.target, &candidate.text), None, "{}", candidate.text);
    (names, candidate.text)
}

/// A tensor that the next kernel of a network reads is not written past the caches, unless it fills
/// a quarter of the last one, which has 32 MB.
#[test]
fn tensors_between_kernels_stay_in_caches() {
    driver::with_stack(|| {
        let offered = |size: &'static str, part_of_network: bool| {
            let vectors = sample("vector_add", "vector_add", size, "", "");
            let options = options(&vectors, "x86-avx512", size);
            let (_, graph) = elaborate(&text(&vectors), &options);
            let graph = Graph { part_of_network, ..graph };
            let mut names = Vec::new();
            space::of_kernel(&graph, &options.target, 2).replay(&mut |choice| {
                names.push(choice.name.clone());
                choice.default
            });
            names.iter().any(|name| name.ends_with(".stores"))
        };
        assert!(offered("n=1000000", false) && !offered("n=1000000", true));
        assert!(offered("n=10000000", false) && offered("n=10000000", true));
    });
}

#[test]
fn a_tile_of_a_product_may_have_a_third_axis() {
    driver::with_stack(|| {
        let gradient = sample("conv_bwd_weight", "conv_bwd_weight", "", "", "");
        let (_, text) = asked(&gradient, &[]);
        assert!(text.contains(", 3 along `k"), "{text}");
        // A part of an axis is split off, all of it is not; blocks of terms have tiles as well.
        let (_, text) = asked(
            &gradient,
            &[("result.lanes", "ci"), ("result.also along", "kh"), ("result.also", "2")],
        );
        assert!(text.contains("split(kh, factor=2)") && !text.contains("split(kw"), "{text}");
        let conv = sample("conv", "conv", "oc=64 ic=64 nh=56", "", "");
        let with_rows =
            [("Y.lanes", "j"), ("Y.rows along", "c"), ("Y.also along", "i"), ("Y.block c", "2")];
        let (names, text) = asked(&conv, &with_rows);
        assert!(names.iter().any(|name| name == "Y.block ric"), "{names:?}");
        assert!(text.contains("split(i, factor="), "{text}");
        // Nothing is reused along a third axis, or there is none.
        for (file, usual) in [("depthwise_conv", "ic=64 nh=56"), ("matmul", "n=512")] {
            let (names, _) = asked(&sample(file, file, usual, "", ""), &[]);
            assert!(!names.iter().any(|name| name.ends_with("also along")), "{names:?}");
        }
    });
}

#[test]
fn threads_may_compute_the_padded_rows_that_they_read() {
    driver::with_stack(|| {
        let conv = sample("conv", "conv", "oc=64 ic=64 nh=56", "", "");
        let by_rows = [("Y.order", "i c j"), ("PaddedX.outermost", "i1")];
        let (_, text) = asked(&conv, &by_rows);
        assert!(text.contains("PaddedX.reorder(i1, i0, i2)"), "{text}");
        // If channels are distributed over threads, each thread reads all rows.
        let (names, _) = asked(&conv, &[("Y.order", "c i j")]);
        assert!(!names.iter().any(|name| name == "PaddedX.outermost"), "{names:?}");
    });
}

#[test]
fn knobs_become_decisions() {
    driver::with_stack(|| {
        let sample = sample("matmul_add", "matmul_add", "", "", "");
        let options = options(&sample, "x86-avx512", "N=64");
        let (program, graph) = elaborate(&text(&sample), &options);
        let item = program.files[0].items.iter().find_map(|item| match item {
            tec::lang::ast::Item::Schedule(schedule) => Some(schedule),
            _ => None,
        });
        let item = item.expect("a schedule");
        let space = space::of_schedule(&program, &graph, &options.target, &Vec::new(), item)
            .expect("it is legal");
        let candidate = space.replay(&mut |choice| choice.default);
        let answers: Vec<&str> = candidate.decisions.iter().map(|d| d.answer()).collect();
        assert_eq!(answers, ["6", "4"]);
        assert!(candidate.text.contains("let rows = 6\n"), "{}", candidate.text);
        assert_eq!(refusal(&graph, &options.target, &candidate.text), None);
    });
}

/// Runs a candidate in the emulator, and checks its results and that there are no findings. False
/// if nothing is launched, because the entry refuses arguments of wrong shapes.
fn emulate(interpreted: &differential::Interpreted, target: &Target, text: &str) -> bool {
    let kernels = std::slice::from_ref(&interpreted.kernel);
    let ptx = driver::compile_ptx(kernels, target, &mut Trace::default());
    let ptx = ptx.unwrap_or_else(|failure| panic!("{failure:?}\n{text}"));
    if interpreted.expected.is_err() {
        return false;
    }
    let mut actual = interpreted.args.clone();
    let emulator = Emulator::new(&ptx).expect("the text is understood");
    let emulation = emulator.run(&interpreted.kernel, 0, &mut actual, Orders::Both);
    let emulation = emulation.unwrap_or_else(|diag| panic!("{diag}\n{text}"));
    assert!(emulation.is_clean(), "{}\n{text}", emulation.describe());
    let compared = differential::compare(interpreted, &Ok(actual), "the emulator");
    compared.unwrap_or_else(|verdict| panic!("{verdict:?}\n{text}"));
    true
}

#[test]
fn candidates_for_gpus_run_in_the_emulator() {
    let n = number("TEC_N", 6);
    driver::with_stack(|| {
        let gpus = chosen(GPU_SAMPLES).map(|sample| (sample, "nvptx-sm_80"));
        for (sample, target) in gpus.filter(|(sample, _)| sample.vars.is_empty()) {
            let options = options(sample, target, sample.small);
            let source = text(sample);
            let (_, graph) = elaborate(&source, &options);
            let space = space::of_kernel(&graph, &options.target, 1);
            let mut random = Random(3);
            let mut emulated = 0;
            for seed in 0..n as u64 {
                let candidate = draw(&space, &mut random);
                let text = format!("{source}\n{}", candidate.text);
                let kernel = sample.kernel.to_string();
                let case = Case { text, kernel, vars: Default::default(), seed };
                match differential::interpret(&case, &options) {
                    Ok(interpreted) => {
                        let launched = emulate(&interpreted, &options.target, &candidate.text);
                        emulated += usize::from(launched);
                    }
                    Err(Verdict::Refused(..)) => {}
                    Err(verdict) => panic!("{verdict:?}\n{}", candidate.text),
                }
            }
            println!("{}: {emulated} of {n} emulated", sample.kernel);
            assert!(emulated * 2 >= n, "{}: {emulated} of {n} emulated", sample.kernel);
        }
    });
}

#[test]
fn threads_share_a_reduction_if_its_order_is_free() {
    let n = number("TEC_N", 40);
    driver::with_stack(|| {
        for (source, rule) in GPU_PROGRAMS {
            let mut options = Options::new(Target::parse("nvptx-sm_80").expect("a target"));
            options.defines = Vec::new();
            let (_, graph) = elaborate(source, &options);
            let space = space::of_kernel(&graph, &options.target, 1);
            let usual = space.replay(&mut |choice| choice.default);
            assert!(usual.text.contains(&format!("# {rule}: ")), "{}", usual.text);
            assert_eq!(refusal(&graph, &options.target, &usual.text), None, "{}", usual.text);
            let mut random = Random(4);
            let (mut accepted, mut emulated) = (0, 0);
            for seed in 0..n as u64 {
                let candidate = match seed {
                    0 => usual.clone(),
                    _ => draw(&space, &mut random),
                };
                let reason = refusal(&graph, &options.target, &candidate.text);
                if let Some(reason) = reason {
                    println!("{reason}\n{}", candidate.text);
                    continue;
                }
                accepted += 1;
                // The interpreter is slow.
                if !candidate.text.contains(&format!("# {rule}: ")) || emulated >= 4 {
                    continue;
                }
                let (kernel, vars) = (graph.name.clone(), Default::default());
                let case =
                    Case { text: format!("{source}\n{}", candidate.text), kernel, vars, seed };
                emulated += match differential::interpret(&case, &options) {
                    Ok(interpreted) => {
                        usize::from(emulate(&interpreted, &options.target, &candidate.text))
                    }
                    Err(Verdict::Refused(..)) => continue,
                    Err(verdict) => panic!("{verdict:?}\n{}", candidate.text),
                };
            }
            println!("{}: {accepted} of {n} accepted, {emulated} emulated", graph.name);
            assert!(accepted * 10 >= n * 9 && emulated > 0, "{accepted} of {n}, {emulated}");
        }
    });
}

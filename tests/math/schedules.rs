//! Functions in vectorized schedules, as machine code: every lane has the bits that the scalar
//! expansion gives, for every number of lanes and every target that runs here.

use super::flat::float_bits;
use super::{Program, Random, UNARY, program, results, sweep_f64, sweep_pow, value};
use crate::support::Memory;
use tec::driver::{self, Failure, Options, Trace, with_stack};
use tec::ir::interp::{Tensor, Value};
use tec::ir::print::{Style, print_kernel};
use tec::ir::{DType, Intrinsic, Kernel};
use tec::module::load::{LoadedModule, args_of};
use tec::module::{BuildInfo, KernelInfo, ModuleKind};
use tec::target::Target;

/// Elements of a tensor: not a multiple of any number of lanes, so that there is a tail.
const LEN: usize = 1003;

/// Lanes of the schedules: fewer than fit a register, as many as fit the registers of each target,
/// and more.
const LANES: [u32; 5] = [2, 4, 8, 16, 32];

const DTYPES: [DType; 2] = [DType::Float32, DType::Float64];

fn functions() -> impl Iterator<Item = (Intrinsic, DType)> {
    let all = UNARY.into_iter().map(|(function, _)| function).chain([Intrinsic::Pow]);
    all.flat_map(|function| DTYPES.map(|dtype| (function, dtype)))
}

/// Returns a kernel for each function and type, each with a schedule for each number of lanes.
fn source() -> String {
    let kernel = |(function, dtype): (Intrinsic, DType)| {
        let name = function.name();
        let args = if function == Intrinsic::Pow { "a[i], e[i]" } else { "a[i]" };
        let kernel = format!("{name}_{dtype}");
        let mut text = format!(
            "kernel {kernel}() {{\n    input a: {dtype}[{LEN}]\n    input e: {dtype}[{LEN}]\n    \
             output y[i: {LEN}] = {name}({args})\n}}\n"
        );
        for lanes in LANES {
            text += &format!(
                "schedule {kernel}.lanes_{lanes} {{\n    let o, v = y.split(i, factor={lanes})\n    \
                 y.vectorize(v)\n}}\n"
            );
        }
        text
    };
    functions().map(kernel).collect()
}

fn shown<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// Returns the kernels of [`source`] under a schedule, after all passes.
fn lower(schedule: &str, target: &Target) -> (Vec<Kernel>, BuildInfo) {
    let mut trace = Trace::default();
    let loaded = driver::load("math.te", &Memory("math.te", &source()), &mut trace);
    let loaded = shown(loaded.map_err(|(_, failure)| failure));
    let mut options = Options::new(target.clone());
    options.schedule = Some((None, schedule.to_string()));
    let graphs = shown(driver::elaborate(&loaded, &options, &mut trace));
    let infos = graphs.iter().map(|graph| KernelInfo {
        parameters: graph.params.clone(),
        schedule: schedule.to_string(),
        automatic: false,
        work: shown(driver::count_work(graph, target)),
        prepack_role: None,
    });
    let info = BuildInfo {
        module: "math".to_string(),
        target: target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: vec![("math.te".to_string(), String::new())],
        kernels: infos.collect(),
    };
    let bounded = shown(driver::schedule(&loaded, graphs, &options, &mut trace));
    assert!(trace.notes.is_empty(), "{:?}", trace.notes);
    let lowered = bounded.iter().map(|bounded| driver::lower(bounded, &options, None, &mut trace));
    (lowered.map(shown).collect(), info)
}

/// Returns the kernels of [`source`] under a schedule, and their module.
fn compile(schedule: &str, target: &Target) -> (Vec<Kernel>, LoadedModule) {
    let (kernels, info) = lower(schedule, target);
    let kind = ModuleKind::SharedObject;
    let built = shown(driver::build(&kernels, &info, kind, &mut Trace::default()));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("math.so");
    std::fs::write(&path, &built.bytes).expect("the module can be written");
    let module = LoadedModule::open(&path).expect("the module loads");
    (kernels, module)
}

/// Arguments of every kind: special values between ordinary ones.
fn arguments(dtype: DType) -> Vec<[u64; 2]> {
    let bits = |x: f64| float_bits(dtype, x);
    let tiny = if dtype == DType::Float32 { f32::MIN_POSITIVE as f64 } else { f64::MIN_POSITIVE };
    let largest = if dtype == DType::Float32 { f32::MAX as f64 } else { f64::MAX };
    let mut all = sweep_pow(dtype, 120);
    all.extend(sweep_f64(100).iter().map(|x| [bits(f64::from_bits(*x)), bits(0.5)]));
    let specials = [0.0, f64::INFINITY, f64::NAN, tiny, largest, 1.0, 0.5, 88.7, 103.9, 745.0];
    // Both types need their smallest and largest subnormal number as a literal.
    let denormal = [[1, bits(tiny) - 1], [bits(tiny) - 1, 1]];
    let mut random = Random(3);
    for _ in 0..4 {
        for x in specials {
            let other = specials[(random.next() % specials.len() as u64) as usize];
            all.extend([[bits(x), bits(other)], [bits(-x), bits(-other)]]);
        }
        all.extend(denormal);
        all.extend(denormal.map(|pair| pair.map(|x| x | bits(-0.0))));
    }
    // Neighbours differ in kind, so that the lanes of one vector do.
    for i in (1..all.len()).rev() {
        all.swap(i, (random.next() % (i as u64 + 1)) as usize);
    }
    assert!(all.len() >= LEN);
    all.truncate(LEN);
    all
}

/// Returns the results of a kernel of the module.
fn call(kernel: &Kernel, module: &LoadedModule, dtype: DType, args: &[[u64; 2]]) -> Vec<u64> {
    let bytes = dtype.bytes() as usize;
    let column = |i: usize| {
        let words = args.iter().flat_map(|pair| pair[i].to_le_bytes()[..bytes].to_vec());
        Value::Tensor(Tensor { dtype, shape: vec![args.len() as i64], data: words.collect() })
    };
    let mut values = [column(0), column(1), column(1)];
    let entry = module.kernel(&kernel.name).expect("the module has the kernel");
    entry.call(args_of(kernel, &mut values)).expect("the kernel runs");
    let [_, _, Value::Tensor(output)] = values else { panic!("an output") };
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64);
    output.data.chunks(bytes).map(word).collect()
}

#[test]
fn functions_of_equal_lane_widths_become_vector_code() {
    let target = Target::parse("aarch64").expect("a target");
    let kernels = with_stack(|| lower("lanes_8", &target).0);
    for (kernel, (function, dtype)) in kernels.iter().zip(functions()) {
        let program = program(function, dtype);
        // Table lookups, and elements of 8 bytes next to those of 4, are computed lane by lane.
        let one_width = dtype == DType::Float64 || program.count_wide() == 0;
        let text = print_kernel(kernel, Style::Full);
        let vectors = text.contains(&format!("{dtype}x{}", 16 / dtype.bytes()));
        assert_eq!(vectors, one_width && !program.has_tables(), "{}:\n{text}", kernel.name);
    }
}

#[test]
fn vectorized_functions_have_the_bits_of_scalar_ones() {
    let cases: Vec<_> = functions()
        .map(|(function, dtype)| {
            let args = arguments(dtype);
            let scalar: Program = program(function, dtype);
            let expected = results(&scalar, &args);
            (function, dtype, args, expected)
        })
        .collect();
    let targets: Vec<Target> = Target::all().into_iter().filter(Target::runs_here).collect();
    assert!(!targets.is_empty(), "no target runs on this machine");
    for target in &targets {
        for lanes in LANES {
            let (kernels, module) = with_stack(|| compile(&format!("lanes_{lanes}"), target));
            for (kernel, (function, dtype, args, expected)) in kernels.iter().zip(&cases) {
                let got = call(kernel, &module, *dtype, args);
                for (i, (got, wanted)) in got.iter().zip(expected).enumerate() {
                    let [g, w] = [*got, *wanted].map(|bits| value(*dtype, bits));
                    let same = got == wanted || (g.is_nan() && w.is_nan());
                    let [x, y] = args[i].map(|bits| value(*dtype, bits));
                    let name = function.name();
                    assert!(
                        same,
                        "{name}({x:e}, {y:e}), {dtype}, {lanes}, {target}: {g:e}, not {w:e}"
                    );
                }
            }
        }
    }
}

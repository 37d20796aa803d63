//! Every schedule of `samples/` for GPUs in the reference interpreter, before and after every pass:
//! the results are those of the default schedule, bit for bit, in every order of threads, and there
//! are no races.

use crate::support::Disk;
use std::path::PathBuf;
use tec::driver::{self, Failure, Options, PassId, Trace, with_stack};
use tec::ir::interp::{Order, Tensor, Value, run_in_order};
use tec::ir::print::{Style, print_kernel};
use tec::ir::verify::verify_kernel;
use tec::ir::{DType, Kernel, Param, Role};
use tec::schedule::{BoundedSchedule, Fallback};
use tec::target::Target;

/// A kernel, its schedule, and the options that make it small.
struct Case {
    file: &'static str,
    kernel: &'static str,
    schedule: &'static str,
    defines: &'static str,
}

const fn case(
    file: &'static str,
    kernel: &'static str,
    schedule: &'static str,
    defines: &'static str,
) -> Case {
    Case { file, kernel, schedule, defines }
}

const CASES: &[Case] = &[
    case("vector_add", "vector_add", "parallel", "n=256"),
    case("vector_add", "vector_add", "parallel", "n=100"),
    case("broadcast_add", "broadcast_add", "continuous", "m1=8 m2=8 n2=9 nt=4 nb=3"),
    case("broadcast_add", "broadcast_add", "continuous", "m1=8 m2=8 n2=9"),
    case("broadcast_add", "broadcast_add", "alternate", "m1=8 m2=8 n2=9 nt=4 nb=3"),
    case("broadcast_add", "broadcast_add", "alternate", "m1=16 m2=16 n2=64 nt=16 nb=8"),
    case("matmul", "matmul", "blocked", "n=16 nt=2 tx=2 ty=4 tk=4"),
    case("matmul", "matmul", "blocked", "n=13 m=19 l=9 nt=2 tx=4 ty=2 tk=4"),
    case("matmul", "matmul", "blocked", "n=128 m=64 l=32"),
    case("matmul", "matmul", "fast", "n=128 l=32"),
    case("matmul", "matmul", "fast", "n=100 m=150 l=13"),
    case("matmul", "matmul", "fast", "n=3 m=40 l=9"),
    case("matmul", "matmul", "fast", "n=130 m=8 l=8 tk=16"),
    case("conv", "conv", "bound", "oc=2 ic=3 nh=7 nw=6 sh=2"),
    case("conv", "conv", "tiling", "oc=4 ic=2 nh=8 tc=2 nc=2 th=2 nh=2 tw=2 nw=2"),
    case("conv", "conv", "tiling", "oc=32 ic=2 nh=4 nw=64"),
    case("conv", "conv", "tiling", "oc=5 ic=2 nh=7 nw=10 kw=2 sh=2 tc=2 nc=2 tw=2 nw=2 nrw=2"),
    case("conv", "conv", "vthread", "oc=4 ic=2 nh=8 tc=2 nc=2 th=2 nh=2 tw=2 nw=2"),
    case("conv", "conv", "vthread", "oc=5 ic=3 nh=7 nw=10 tc=2 nc=2 tw=2 nw=1"),
    case("conv", "conv", "vthread", "oc=32 ic=2 nh=4 nw=64"),
    case("conv", "conv", "tiling", "oc=4 ic=2 nh=10 nw=9 ph=0 tc=2 nc=2 th=2 nh=2 tw=2 nw=2"),
    case("conv", "conv", "vthread", "oc=4 ic=2 nh=10 nw=9 ph=0 tc=2 nc=2 th=2 nh=2 tw=2 nw=2"),
    case("depthwise_conv", "depthwise_conv", "bound", "ic=3 nh=9 nw=7"),
    case("depthwise_conv", "depthwise_conv", "tiling", "ic=2 nh=16 nw=64"),
    case("depthwise_conv", "depthwise_conv", "tiling", "ic=3 nh=9 nw=13 th=2 tw=4 nw=2"),
    case("depthwise_conv", "depthwise_conv", "tiling", "ic=2 nh=11 nw=9 ph=0 th=2 tw=4 nw=2"),
    case("max_pool", "max_pool", "optimized", "c=2 nh=9 nw=37"),
    case("max_pool", "max_pool", "optimized", "c=2 nh=9 nw=7 nt=32"),
    case("avg_pool", "avg_pool", "optimized", "c=2 nh=9 nw=37"),
    case("avg_pool", "avg_pool", "optimized", "c=2 nh=9 nw=7 nt=32"),
    case("batch_norm", "batch_norm", "bound", "c=3 n=13"),
    case("batch_norm", "batch_norm", "optimized", "c=3 n=13"),
];

fn failure_text(failure: Failure) -> String {
    match failure {
        Failure::User(diags) => diags.iter().map(|diag| format!("{diag}\n")).collect(),
        Failure::Bug { pass, message, ir } => format!("bug in {pass}: {message}\n{ir}"),
    }
}

/// Returns the kernel of a case under its schedule. A name is the schedule's if that has it.
fn place(case: &Case, options: &mut Options) -> Result<BoundedSchedule, String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("samples").join(format!("{}.te", case.file));
    let path = path.to_str().expect("a path in UTF-8");
    let text = std::fs::read_to_string(path).expect("a sample");
    let head = format!("schedule {}.{}(", case.kernel, case.schedule);
    // The last one is that for GPUs.
    let header = text.rsplit(&head).next().filter(|_| text.contains(&head)).unwrap_or_default();
    let header = header.split('{').next().unwrap_or_default();
    for define in case.defines.split_whitespace() {
        let (name, value) = define.split_once('=').expect("a definition");
        let kernel_has = text.contains(&format!("kernel {}(", case.kernel))
            && text.split(&format!("kernel {}(", case.kernel)).nth(1).is_some_and(|rest| {
                let params = rest.split(") {").next().unwrap_or_default();
                params.split([',', ' ', '\n']).any(|word| word == name)
            });
        let own = header.split([',', ' ', '\n', '(']).any(|word| word == name);
        // `nh=8` of a case is the kernel's the first time, then the schedule's.
        let given = options.defines.iter().any(|(_, known, _)| known == name);
        let full = match own && (!kernel_has || given) {
            true => format!("{}.{name}", case.schedule),
            false => name.to_string(),
        };
        options.defines.push((Some(case.kernel.to_string()), full, value.to_string()));
    }
    options.kernels = Some(vec![case.kernel.to_string()]);
    options.schedule = Some((Some(case.kernel.to_string()), case.schedule.to_string()));
    let mut trace = Trace::default();
    let program =
        driver::load(path, &Disk, &mut trace).map_err(|(_, failure)| failure_text(failure))?;
    let graphs = driver::elaborate(&program, options, &mut trace).map_err(failure_text)?;
    let bounded = driver::schedule(&program, graphs, options, &mut trace).map_err(failure_text)?;
    bounded.into_iter().next().ok_or_else(|| "no kernel".to_string())
}

/// Numbers whose sums are rounded; outputs hold values that must not be read.
fn arguments(kernel: &Kernel) -> Vec<Value> {
    let mut seed = 1u64;
    let mut number = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / 1e5 - 40.0
    };
    let tensor = |param: &Param| {
        let Param::Tensor { buffer, role, .. } = param else { panic!("tensors only") };
        let shape: Vec<i64> =
            buffer.shape.iter().map(|extent| extent.as_int().expect("constant") as i64).collect();
        // A variance is not negative.
        let value = |value: f32| if buffer.name == "Var" { value.abs() } else { value };
        let data = (0..shape.iter().product::<i64>())
            .flat_map(|_| {
                if *role == Role::Output { f32::NAN } else { value(number()) }.to_le_bytes()
            })
            .collect();
        Value::Tensor(Tensor { dtype: DType::Float32, shape, data })
    };
    kernel.params.iter().map(tensor).collect()
}

fn run(kernel: &Kernel, form: &str, order: Order) -> Result<Vec<Vec<u8>>, String> {
    let text = || print_kernel(kernel, Style::Full);
    verify_kernel(kernel).map_err(|error| format!("{form}: {error}\n{}", text()))?;
    let mut args = arguments(kernel);
    run_in_order(kernel, &mut args, order).map_err(|t| format!("{form}: {t:?}\n{}", text()))?;
    let bytes = |value: Value| match value {
        Value::Tensor(tensor) => tensor.data,
        _ => panic!("tensors only"),
    };
    Ok(args.into_iter().map(bytes).collect())
}

/// Runs the schedule in the interpreter before and after every pass.
fn check(case: &Case) -> Result<(), String> {
    let mut options = Options::new(Target::parse("nvptx-sm_80").expect("a target"));
    options.fallback = Fallback::Default;
    let bounded = place(case, &mut options)?;
    let graph = &bounded.schedule.graph;
    let default_loops = driver::lower_unoptimized(graph, &options.target).map_err(failure_text)?;
    let mut expected = run(&default_loops, "default", Order::Ascending)?;
    let passes = PassId::ALL.iter().copied().take_while(|pass| *pass != PassId::HoistInvariants);
    for pass in passes.chain([PassId::ExpandMath]) {
        let name = pass.name();
        let mut trace = Trace::default();
        let kernel = driver::lower(&bounded, &options, Some(pass), &mut trace);
        let kernel = kernel.map_err(failure_text)?;
        // Math functions are expanded as in the default schedule.
        let kernel = tec::lower::expand_math::expand_math(kernel, &options.target)
            .map_err(|diag| diag.to_string())?;
        let order = if pass == PassId::BuildLoops { Order::Ascending } else { Order::Shuffled(7) };
        let actual = run(&kernel, name, order)?;
        if kernel.reassociated && pass == PassId::BuildLoops {
            expected = actual;
        } else if actual != expected {
            return Err(format!("{name}: other results\n{}", print_kernel(&kernel, Style::Full)));
        }
    }
    Ok(())
}

#[test]
fn gpu_schedules_match_the_default_schedule() {
    let only = std::env::var("TEC_CASE").unwrap_or_default();
    let wrong: Vec<String> = with_stack(|| {
        let picked = CASES.iter().filter(|case| case.kernel.contains(&only));
        picked
            .filter_map(|case| {
                let error = check(case).err()?;
                let Case { kernel, schedule, defines, .. } = case;
                Some(format!("{kernel}.{schedule} {defines}\n{error}"))
            })
            .collect()
    });
    assert!(wrong.is_empty(), "{} fail\n{}", wrong.len(), wrong.join("\n"));
}

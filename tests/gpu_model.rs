//! The cost model of GPUs: its counts are those of the emulator, and it estimates better schedules
//! of the samples to be faster.

use std::path::PathBuf;
use tec::driver::{self, Options, Trace, with_stack};
use tec::emulate::{Emulator, Orders};
use tec::ir::interp::{Tensor, Value};
use tec::ir::{Kernel, Param};
use tec::lang::Loader;
use tec::target::Target;
use tec::tune::model::{Estimate, MachineModel, WarpCounts, estimate};

struct Disk;

impl Loader for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error| error.to_string())
    }
}

/// A schedule of a sample's kernel in a size; the plain name of a rule's schedule is `auto`.
struct Case {
    file: &'static str,
    kernel: &'static str,
    schedule: &'static str,
    defines: &'static str,
    /// The largest relative error of the model's counts of wavefronts and sectors.
    off: [f64; 2],
}

const fn case(
    file: &'static str,
    kernel: &'static str,
    schedule: &'static str,
    defines: &'static str,
    off: [f64; 2],
) -> Case {
    Case { file, kernel, schedule, defines, off }
}

const CASES: &[Case] = &[
    case("matmul", "matmul", "naive", "n=64 l=600", [0.0, 0.0]),
    case("matmul", "matmul", "blocked", "n=256", [0.0, 0.0]),
    case("matmul", "matmul", "fast", "n=256", [0.0, 0.0]),
    case("matmul", "matmul", "fast", "n=100 m=150 l=13", [0.25, 0.25]),
    case("conv", "conv", "bound", "oc=8 ic=4 nh=16", [0.25, 0.25]),
    case("conv", "conv", "tiling", "oc=16 ic=16 nh=16", [0.05, 0.25]),
    case("conv", "conv", "vthread", "oc=16 ic=16 nh=16", [0.05, 0.25]),
    case("depthwise_conv", "depthwise_conv", "bound", "ic=4 nh=16", [0.25, 0.25]),
    case("depthwise_conv", "depthwise_conv", "tiling", "ic=4 nh=16 nw=64", [0.25, 0.25]),
    case("max_pool", "max_pool", "optimized", "c=4 nh=20", [0.25, 0.25]),
    case("avg_pool", "avg_pool", "optimized", "c=4 nh=20", [0.25, 0.25]),
    case("batch_norm", "batch_norm", "bound", "c=4 n=28", [0.25, 0.25]),
    case("batch_norm", "batch_norm", "optimized", "c=4 n=28", [0.25, 0.25]),
    case("vector_add", "vector_add", "parallel", "n=4096", [0.0, 0.0]),
    case("broadcast_add", "broadcast_add", "continuous", "m1=64 m2=64 n2=64", [0.25, 0.25]),
    case("broadcast_add", "broadcast_add", "alternate", "m1=64 m2=64 n2=64", [0.25, 0.25]),
    case("matmul_bf16", "matmul_bf16", "tensor", "n=256", [0.0, 0.0]),
    case("matmul_bf16", "matmul_bf16", "tensor", "n=256 tensor.stages=3", [0.0, 0.0]),
];

/// Schedules that are not in the files.
const MORE: &str = "
schedule matmul.naive for nvptx {
    let xb, xt = C.split(x, factor=16)
    let yb, yt = C.split(y, factor=16)
    C.reorder(xb, yb, xt, yt)
    C.bind(xb, blockIdx.y)
    C.bind(yb, blockIdx.x)
    C.bind(xt, threadIdx.y)
    C.bind(yt, threadIdx.x)
}
";

/// A sample with one more schedule.
struct Text(String);

impl Loader for Text {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == "text.te" { Ok(self.0.clone().into_bytes()) } else { Disk.read(path) }
    }
}

/// Returns the estimate of a case, and its loops as the back end gets them.
fn compile(case: &Case, target: &str) -> (Estimate, Kernel, Options) {
    let mut options = Options::new(Target::parse(target).expect("a target"));
    options.kernels = Some(vec![case.kernel.to_string()]);
    options.schedule = Some((Some(case.kernel.to_string()), case.schedule.to_string()));
    let define = |text: &str| {
        let (name, value) = text.split_once('=').expect("a name and a value");
        (Some(case.kernel.to_string()), name.to_string(), value.to_string())
    };
    options.defines = case.defines.split_whitespace().map(define).collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples");
    let path = path.join(format!("{}.te", case.file));
    let mut text = std::fs::read_to_string(path).expect("a sample");
    if case.schedule == "naive" {
        text.push_str(MORE);
    }
    let mut trace = Trace::default();
    let program = driver::load("text.te", &Text(text), &mut trace);
    let program = program.unwrap_or_else(|(_, failure)| panic!("{failure:?}"));
    let graphs = driver::elaborate(&program, &options, &mut trace).expect("a kernel");
    let bounded = driver::schedule(&program, graphs, &options, &mut trace).expect("legal");
    let near = driver::lower_to_estimate(&bounded[0], &options, &mut trace).expect("loops");
    let machine = MachineModel::typical(&options.target);
    let kernel = driver::lower(&bounded[0], &options, None, &mut trace).expect("loops");
    (estimate(&near, &machine, 1), kernel, options)
}

fn zeros(kernel: &Kernel) -> Vec<Value> {
    let zero = |param: &Param| match param {
        Param::Tensor { buffer, .. } => {
            let extent = |extent: &tec::ir::Expr| extent.as_int().expect("constant shapes") as i64;
            let shape: Vec<i64> = buffer.shape.iter().map(extent).collect();
            let bytes = shape.iter().product::<i64>() as usize * buffer.dtype.bytes() as usize;
            Value::Tensor(Tensor { dtype: buffer.dtype, shape, data: vec![0; bytes] })
        }
        other => panic!("samples for GPUs have tensors alone, not {}", other.name()),
    };
    kernel.params.iter().map(zero).collect()
}

/// Returns the counts of the emulator.
fn emulated(kernel: &Kernel, options: &Options) -> WarpCounts {
    let kernels = std::slice::from_ref(kernel);
    let mut trace = Trace::default();
    let ptx = driver::compile_ptx(kernels, &options.target, &mut trace).expect("PTX");
    let emulator = Emulator::new(&ptx).expect("the text is understood");
    let emulation = emulator.run(kernel, 0, &mut zeros(kernel), Orders::Natural).expect("it runs");
    let counters = emulation.report.expect("a launch").counters;
    let mut counts = WarpCounts::default();
    for one in &counters.instructions {
        counts.wavefronts += one.wavefronts as f64;
        counts.ideal_wavefronts += one.ideal_wavefronts as f64;
        counts.sectors += one.sectors as f64;
        counts.ideal_sectors += one.ideal_sectors as f64;
    }
    counts
}

#[test]
fn the_model_counts_what_the_emulator_counts() {
    let only = std::env::var("TEC_CASE").unwrap_or_default();
    let mut far = Vec::new();
    with_stack(|| {
        for case in CASES.iter().filter(|case| case.kernel.contains(&only)) {
            let (estimate, kernel, options) = compile(case, "nvptx-sm_80");
            let ours = estimate.warps.expect("a GPU's");
            let theirs = emulated(&kernel, &options);
            let what = format!("{}.{} {}", case.kernel, case.schedule, case.defines);
            let pairs = [
                ("wavefronts", ours.wavefronts, theirs.wavefronts, case.off[0]),
                ("sectors", ours.sectors, theirs.sectors, case.off[1]),
            ];
            let ideal = (ours.ideal_wavefronts, theirs.ideal_wavefronts);
            let sectors = (ours.ideal_sectors, theirs.ideal_sectors);
            println!("{what}: ideal {ideal:?} {sectors:?}");
            for (name, ours, theirs, off) in pairs {
                println!("{what}: {name} {ours:.0}, emulated {theirs}");
                if (ours - theirs).abs() > off * theirs + 0.5 {
                    far.push(format!("{what}: {name} {ours:.0}, emulated {theirs}"));
                }
            }
        }
    });
    assert!(far.is_empty(), "{far:#?}");
}

/// A kernel's schedules, the slower ones first.
struct Order {
    file: &'static str,
    kernel: &'static str,
    defines: &'static str,
    schedules: &'static [&'static str],
}

const ORDERS: &[Order] = &[
    Order {
        file: "matmul",
        kernel: "matmul",
        defines: "n=1024",
        schedules: &["naive", "blocked", "fast"],
    },
    Order {
        file: "matmul",
        kernel: "matmul",
        defines: "n=4096",
        schedules: &["naive", "blocked", "fast"],
    },
    Order {
        file: "conv",
        kernel: "conv",
        defines: "oc=64 ic=64 nh=64",
        schedules: &["bound", "tiling"],
    },
    // Wait as long for global memory as `tiling`, so the model does not order these two.
    Order {
        file: "conv",
        kernel: "conv",
        defines: "oc=64 ic=64 nh=64",
        schedules: &["bound", "vthread"],
    },
    Order {
        file: "depthwise_conv",
        kernel: "depthwise_conv",
        defines: "ic=64 nh=64",
        schedules: &["bound", "tiling"],
    },
    Order {
        file: "batch_norm",
        kernel: "batch_norm",
        defines: "c=64 n=112",
        schedules: &["bound", "optimized"],
    },
];

#[test]
fn better_schedules_are_estimated_to_be_faster() {
    let only = std::env::var("TEC_CASE").unwrap_or_default();
    let mut wrong = Vec::new();
    with_stack(|| {
        for order in ORDERS.iter().filter(|order| order.kernel.contains(&only)) {
            let Order { file, kernel, defines, schedules } = *order;
            for target in ["nvptx-sm_75", "nvptx-sm_80", "nvptx-sm_90"] {
                let seconds = schedules.iter().map(|schedule| {
                    let case = Case { file, kernel, schedule, defines, off: [0.0; 2] };
                    compile(&case, target).0.seconds
                });
                let seconds: Vec<f64> = seconds.collect();
                println!("{kernel} {defines} {target}: {schedules:?} {seconds:?}");
                if seconds.windows(2).any(|pair| pair[0] <= pair[1]) {
                    wrong.push(format!("{kernel} {defines} {target}: {seconds:?}"));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

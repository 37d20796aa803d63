//! Small kernels with schedules for GPUs, including those of the samples.

use super::build::verified;
use super::passes::{check_barriers_are_needed, check_passes_against};
use crate::support::Memory;
use std::path::Path;
use tec::driver::{self, Options, Trace, with_stack};
use tec::ir::Kernel;
use tec::lower::build_loops::build_loops;
use tec::target::Target;

/// Returns the loops of the default schedule of a kernel, and those of its schedule.
fn build(text: &str, kernel: &str, schedule: &str, defines: &str) -> (Kernel, Kernel) {
    let target = Target::parse("nvptx-sm_80").expect("a target");
    let mut options = Options::new(target.clone());
    options.kernels = Some(vec![kernel.to_string()]);
    options.schedule = Some((Some(kernel.to_string()), schedule.to_string()));
    options.defines = defines
        .split_whitespace()
        .map(|define| {
            let (name, value) = define.split_once('=').expect("NAME=VALUE");
            (Some(kernel.to_string()), name.to_string(), value.to_string())
        })
        .collect();
    let mut trace = Trace::default();
    let program = driver::load("test.te", &Memory("test.te", text), &mut trace)
        .unwrap_or_else(|(_, failure)| panic!("{failure:?}"));
    let graphs = driver::elaborate(&program, &options, &mut trace)
        .unwrap_or_else(|failure| panic!("{failure:?}"));
    let plain = driver::lower_unoptimized(&graphs[0], &target)
        .unwrap_or_else(|failure| panic!("{failure:?}"));
    let bounded = driver::schedule(&program, graphs, &options, &mut trace)
        .unwrap_or_else(|failure| panic!("{failure:?}"));
    (plain, build_loops(&bounded[0]).unwrap_or_else(|diag| panic!("{diag}")))
}

/// Checks a schedule after every pass, and returns its number of barriers.
fn check(text: &str, kernel: &str, schedule: &str, defines: &str) -> usize {
    let (text, kernel) = (text.to_string(), kernel.to_string());
    let (schedule, defines) = (schedule.to_string(), defines.to_string());
    with_stack(move || {
        let (plain, built) = build(&text, &kernel, &schedule, &defines);
        let expected = verified(&plain);
        assert_eq!(verified(&built), expected, "{kernel}.{schedule} {defines}");
        check_passes_against(&built, 0, &expected);
        check_barriers_are_needed(&check_passes_against(&built, 3, &expected))
    })
}

fn sample(file: &str, schedule: &str, defines: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("samples/{file}.te"));
    let text = std::fs::read_to_string(path).expect("a sample");
    check(&text, file, schedule, defines)
}

#[test]
fn samples_without_shared_memory_need_no_barrier() {
    assert_eq!(sample("vector_add", "parallel", "n=130"), 0);
    assert_eq!(sample("broadcast_add", "continuous", ""), 0);
    let large = "m1=9 m2=9 n2=11 continuous.nt=8 continuous.nb=3";
    assert_eq!(sample("broadcast_add", "continuous", large), 0);
    let large = "m1=9 m2=9 n2=11 alternate.nt=8 alternate.nb=3";
    assert_eq!(sample("broadcast_add", "alternate", large), 0);
    assert_eq!(sample("conv", "bound", "ic=2 nh=5"), 0);
    assert_eq!(sample("depthwise_conv", "bound", "ic=2 nh=5"), 0);
    assert_eq!(sample("max_pool", "optimized", "optimized.nt=32 c=2 nh=7"), 0);
    assert_eq!(sample("avg_pool", "optimized", "optimized.nt=32 c=2 nh=7"), 0);
    assert_eq!(sample("batch_norm", "bound", "c=3 n=5"), 0);
    assert_eq!(sample("batch_norm", "optimized", "optimized.nt=64 c=3 n=5"), 0);
}

#[test]
fn samples_with_shared_memory_need_all_their_barriers() {
    let small = "blocked.nt=4 blocked.tx=2 blocked.ty=2 blocked.tk=4";
    assert_eq!(sample("matmul", "blocked", &format!("n=16 {small}")), 2);
    // The last block of terms is partial.
    assert_eq!(sample("matmul", "blocked", &format!("n=13 m=9 l=10 {small}")), 4);
    let small = "oc=5 ic=3 nh=9";
    let tiles = "tiling.tc=2 tiling.nc=2 tiling.th=2 tiling.nh=2 tiling.tw=4 tiling.nw=2";
    assert_eq!(sample("conv", "tiling", &format!("{small} {tiles}")), 2);
    let small = "oc=4 ic=2 nh=8";
    let tiles = "vthread.vc=2 vthread.tc=1 vthread.nc=2 vthread.th=2 vthread.nh=2 vthread.vw=2 \
                 vthread.tw=2 vthread.nw=2";
    assert_eq!(sample("conv", "vthread", &format!("{small} {tiles}")), 2);
    let tiles = "tiling.th=2 tiling.nh=3 tiling.tw=8";
    assert_eq!(sample("depthwise_conv", "tiling", &format!("ic=3 nh=7 {tiles}")), 1);
}

const MATMUL: &str = "kernel matmul(n = 16, m = n, l = n) {
    input A: float32[n, l]
    input B: float32[l, m]
    reduce k: 0..l
    output C[x: n, y: m] = sum(A[x, k] * B[k, y], axis=k)
}
schedule matmul.gpu(nt = 4, tx = 2, ty = 2, tk = 4) for nvptx {
    let AS = A.cache_read(shared, [C])
    let AL = AS.cache_read(local, [C])
    let BS = B.cache_read(shared, [C])
    let BL = BS.cache_read(local, [C])
    let CL = C.cache_write(local)
    let xb, xo, xi = C.split(x, factors=[nt, tx])
    let yb, yo, yi = C.split(y, factors=[nt, ty])
    C.reorder(xb, yb, xo, yo, xi, yi)
    C.bind(yb, blockIdx.x)
    C.bind(xb, blockIdx.y)
    C.bind(yo, threadIdx.x)
    C.bind(xo, threadIdx.y)
    CL.compute_at(C, yo)
    let ko, ki = CL.split(k, factor=tk)
    CL.reorder(ko, ki, x, y)
    for (S, L) in [(AS, AL), (BS, BL)] {
        S.compute_at(CL, ko)
        L.compute_at(CL, ki)
        # before
        let so, si = S.split(ax0, nparts=nt)
        let to, ti = S.split(ax1, nparts=nt)
        S.reorder(so, to, si, ti)
        S.bind(so, threadIdx.y)
        S.bind(to, threadIdx.x)
    }
    # more
}";

fn matmul(more: &str, defines: &str) -> usize {
    check(&MATMUL.replace("# more", more), "matmul", "gpu", defines)
}

#[test]
fn a_double_buffer_needs_one_barrier_per_iteration() {
    let double = "AS.double_buffer()\n BS.double_buffer()";
    // One in the loop, one before the peeled last iteration.
    assert_eq!(matmul(double, ""), 2);
    assert_eq!(matmul(double, "n=13 m=9 l=10"), 2);
    assert_eq!(matmul(double, "l=4"), 1);
    // B is not double-buffered; the last iteration is peeled and loads no A.
    assert_eq!(matmul("AS.double_buffer()", ""), 4);
}

#[test]
fn unrolled_and_vectorized_loops_keep_their_barriers() {
    assert_eq!(matmul("CL.unroll(ki)\n CL.unroll(x)\n CL.unroll(y)", ""), 2);
    assert_eq!(matmul("CL.unroll(ki)\n CL.vectorize(y)\n C.vectorize(yi)", ""), 2);
    assert_eq!(matmul("CL.unroll(ko)", "l=8"), 3);
    let align = MATMUL.replace("# before", "S.storage_align(ax0, 8, 1)");
    assert_eq!(check(&align, "matmul", "gpu", ""), 2);
    assert_eq!(matmul("CL.unroll(ko)\n AS.double_buffer()\n BS.double_buffer()", "l=12"), 3);
}

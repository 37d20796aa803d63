//! Properties of the model: what must cost more does, on a machine of the tables.

use super::{
    Estimate, FEATURES, MachineModel, Measured, RunTimeValues, TermKind, estimate, estimate_at,
};
use crate::driver::{self, Options, Trace};
use crate::ir::{Kernel, Param};
use crate::lang::Program;
use crate::lang::ast::Item;
use crate::target::Target;
use std::collections::BTreeSet;

const TARGET: &str = "x86-avx512";

/// Reads no other files.
struct One(String);

impl crate::lang::Loader for One {
    fn read(&self, _path: &str) -> Result<Vec<u8>, String> {
        Ok(self.0.clone().into_bytes())
    }
}

fn estimate_with(text: &str, machine: &MachineModel, threads: usize) -> Estimate {
    estimate(&lowered(text, machine), machine, threads)
}

fn lowered(text: &str, machine: &MachineModel) -> Kernel {
    let (text, machine) = (text.to_string(), machine.clone());
    driver::with_stack(move || {
        let mut trace = Trace::default();
        let program = driver::load("k.te", &One(text), &mut trace).expect("a program");
        let options = Options::new(machine.target.clone());
        let graphs = driver::elaborate(&program, &options, &mut trace).expect("kernels");
        let bounded = driver::schedule(&program, graphs, &options, &mut trace).expect("schedules");
        driver::lower_to_estimate(&bounded[0], &options, &mut trace).expect("loops")
    })
}

fn machine() -> MachineModel {
    MachineModel::typical(&Target::parse(TARGET).expect("a target"))
}

fn estimated(text: &str) -> Estimate {
    estimate_with(text, &machine(), 1)
}

fn product(n: usize, schedule: &str) -> Estimate {
    estimated(&format!(
        "kernel k(n = {n}) {{\n input A: float32[n, n]\n input B: float32[n, n]\n \
         reduce k: 0..n\n output C[x: n, y: n] = sum(A[x, k] * B[k, y], axis=k)\n}}\n\
         schedule k {{\n{schedule}\n}}\n"
    ))
}

/// A tile of so many rows and vectors in registers.
fn tile(rows: usize, vectors: usize) -> String {
    format!(
        "let xo, yo, xi, yi = C.tile(x, y, {rows}, {})\nlet yv, yl = C.split(yi, factor=16)\n\
         C.reorder(xo, yo, k, xi, yv, yl)\nC.unroll(xi)\nC.unroll(yv)\nC.vectorize(yl)",
        16 * vectors
    )
}

fn map(size: usize, read: &str, schedule: &str) -> Estimate {
    estimated(&format!(
        "kernel k(n = {size}) {{\n input A: float32[n, n]\n \
         output C[i: n, j: n] = A[{read}] * 2.0\n}}\nschedule k {{\n{schedule}\n}}\n"
    ))
}

fn alone(estimate: &Estimate, kind: TermKind) -> f64 {
    estimate.terms.iter().find(|term| term.kind == kind).map_or(0.0, |term| term.alone)
}

#[test]
fn the_terms_make_the_total() {
    let one = product(256, &tile(6, 4));
    let sum: f64 = one.terms.iter().map(|term| term.seconds).sum();
    assert!((sum - one.seconds).abs() < 1e-12, "{sum} {}", one.seconds);
    assert!(one.terms.windows(2).all(|pair| pair[0].seconds >= pair[1].seconds));
    assert!(one.terms.iter().all(|term| term.seconds <= term.alone * 1.0001));
    assert_eq!(one.features.len(), FEATURES);
    assert!(one.features.iter().all(|feature| feature.is_finite()));
    assert_eq!(one.features, product(256, &tile(6, 4)).features);
}

#[test]
fn a_product_in_registers_is_near_the_peak() {
    // 512 times 256² multiply-adds of 16 lanes, two in a cycle.
    let peak = machine().seconds(256f64.powi(3) / 32.0);
    let good = product(256, &tile(8, 2));
    assert_eq!(good.terms[0].kind, TermKind::MultiplyAdds);
    assert!((1.0..1.6).contains(&(good.seconds / peak)), "{}", good.seconds / peak);
    let plain = product(256, "");
    assert_eq!(plain.terms[0].kind, TermKind::Latency, "{:?}", plain.terms);
    assert!(plain.seconds > 20.0 * good.seconds);
}

#[test]
fn a_tile_that_spills_costs_more_than_one_that_fits() {
    let (fits, spills) = (product(256, &tile(8, 2)), product(256, &tile(8, 4)));
    assert_eq!(alone(&fits, TermKind::Spills), 0.0);
    assert!(alone(&spills, TermKind::Spills) > 0.0);
    assert!(spills.seconds > fits.seconds);
    // More than 32 running values are not kept in registers at all.
    let memory = product(256, &tile(16, 4));
    assert!(memory.seconds > 1.3 * spills.seconds, "{} {}", memory.seconds, spills.seconds);
}

#[test]
fn a_tile_too_small_to_hide_the_latency_costs_more() {
    let (few, many) = (product(256, &tile(2, 1)), product(256, &tile(8, 2)));
    assert!(few.seconds > 1.5 * many.seconds, "{} {}", few.seconds, many.seconds);
}

#[test]
fn sums_of_blocks_stay_in_registers() {
    // Blocks of 64 terms are added to what earlier ones left in memory.
    let blocks = "let ko, ki = C.split(k, factor=64)\nC.reorder(ko, xo, yo, ki, xi, yv, yl)";
    let whole = product(256, &tile(8, 2));
    let split = product(256, &format!("{}\n{blocks}", tile(8, 2)));
    assert_eq!(split.terms[0].kind, TermKind::MultiplyAdds, "{:?}", split.terms);
    assert!((0.8..1.3).contains(&(split.seconds / whole.seconds)), "{split:?}");
}

#[test]
fn nontemporal_stores_of_parts_of_lines_are_slow() {
    let lanes = |factor: u32| {
        format!(
            "let o, v = C.split(j, factor={factor})\nC.reorder(o, i, v)\nC.vectorize(v)\n\
             C.store_nontemporal()"
        )
    };
    let (whole, part) = (map(4096, "i, j", &lanes(16)), map(4096, "i, j", &lanes(8)));
    assert!(part.seconds > 4.0 * whole.seconds, "{} {}", part.seconds, whole.seconds);
}

#[test]
fn nontemporal_pieces_that_begin_inside_of_lines_are_slow() {
    // Rows of 16,400 bytes: every fourth one begins with a line.
    let rows = |schedule: &str| {
        estimated(&format!(
            "kernel k(n = 4100) {{\n input A: float32[n, n]\n \
             output C[i: n, j: n] = A[i, j] * 2.0\n}}\nschedule k {{\n\
             let o, v = C.split(j, factor=16)\n{schedule}C.vectorize(v)\n\
             C.store_nontemporal()\n}}\n"
        ))
    };
    let pieces = "let io, ii = C.split(i, factor=16)\nC.reorder(io, o, ii, v)\n";
    let (whole, part) = (rows(""), rows(pieces));
    assert!(part.seconds > 4.0 * whole.seconds, "{} {}", part.seconds, whole.seconds);
}

#[test]
fn chains_of_long_vectors_wait_like_those_of_short_ones() {
    let lanes = |count: usize| {
        estimated(&format!(
            "kernel k(n = 2048) {{\n input A: float32[n]\n \
             output C[i: n] = tanh(exp(A[i]) * A[i])\n}}\nschedule k {{\n\
             let o, v = C.split(i, factor={count})\nC.vectorize(v)\n}}\n"
        ))
    };
    let ratio = lanes(128).seconds / lanes(16).seconds;
    assert!((0.8..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn tiles_side_by_side_share_no_lines() {
    // The first and the last tile of a row are copies beside the loop over the others.
    let lines = |count: usize| {
        let estimate = estimated(&format!(
            "kernel k(n = 4096) {{\n input A: float32[n, n]\n \
             output C[i: n, j: n] =\n \
             A[i, clamp(j - 1, 0, n - 1)] + A[i, clamp(j + 1, 0, n - 1)]\n}}\n\
             schedule k {{\nlet o, v = C.split(j, factor={count})\nC.vectorize(v)\n}}\n"
        ));
        alone(&estimate, TermKind::MemoryTraffic)
    };
    let ratio = lines(1024) / lines(64);
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn twice_the_traffic_costs_twice_as_much() {
    let lanes = "let o, v = C.split(j, factor=16)\nC.vectorize(v)";
    let (small, large) = (map(4096, "i, j", lanes), map(8192, "i, j", lanes));
    assert_eq!(large.terms[0].kind, TermKind::MemoryTraffic, "{:?}", large.terms);
    let ratio = large.seconds / small.seconds;
    assert!((3.8..4.2).contains(&ratio), "{ratio}");
    // What stays in the second cache moves nothing from memory.
    assert_eq!(alone(&map(256, "i, j", lanes), TermKind::MemoryTraffic), 0.0);
}

#[test]
fn strided_access_costs_more_than_contiguous() {
    let lanes = "let o, v = C.split(j, factor=16)\nC.vectorize(v)";
    let rows = map(2048, "i, j", lanes);
    let columns = map(2048, "j, i", lanes);
    assert!(columns.seconds > 3.0 * rows.seconds, "{} {}", columns.seconds, rows.seconds);
    let order = map(2048, "i, j", "C.reorder(j, i)");
    let plain = map(2048, "i, j", "");
    assert!(order.seconds > 3.0 * plain.seconds, "{} {}", order.seconds, plain.seconds);
    // Blocks use whole lines of what they read by columns.
    let blocks = map(2048, "j, i", "let io, jo, ii, ji = C.tile(i, j, 16, 16)");
    let scalars = map(2048, "j, i", "");
    assert!(blocks.seconds < scalars.seconds, "{} {}", blocks.seconds, scalars.seconds);
}

#[test]
fn rows_a_power_of_two_apart_meet_in_few_sets() {
    let columns = |n: usize| map(n, "j, i", "let o, v = C.split(i, factor=16)\nC.reorder(o, j, v)");
    let per_element = |n: usize| columns(n).seconds / (n * n) as f64;
    assert!(
        per_element(1024) > 1.2 * per_element(1000),
        "{} {}",
        per_element(1024),
        per_element(1000)
    );
}

#[test]
fn threads_share_what_is_parallel_and_pay_for_the_start() {
    let text = |n: usize, schedule: &str| {
        format!(
            "kernel k(n = {n}) {{\n input A: float32[n, 512]\n reduce k: 0..512\n \
             output C[i: n] = sum(A[i, k], axis=k)\n}}\nschedule k {{\n{schedule}\n}}\n"
        )
    };
    let seconds =
        |n, schedule, threads| estimate_with(&text(n, schedule), &machine(), threads).seconds;
    let (one, two) = (seconds(4096, "C.parallel(i)", 1), seconds(4096, "C.parallel(i)", 2));
    assert!((1.8..2.1).contains(&(one / two)), "{}", one / two);
    assert_eq!(seconds(4096, "", 1), seconds(4096, "", 2));
    // Three iterations on two threads take as long as four.
    let (three, four) = (seconds(3, "C.parallel(i)", 2), seconds(4, "C.parallel(i)", 2));
    assert!((three - four).abs() < 0.1 * four, "{three} {four}");
    assert!(seconds(2, "C.parallel(i)", 2) > seconds(2, "", 2));
}

#[test]
fn tails_and_gathers_cost_what_they_add() {
    let even = map(512, "i, j", "let o, v = C.split(j, factor=16)\nC.vectorize(v)");
    let odd = map(511, "i, j", "let o, v = C.split(j, factor=16)\nC.vectorize(v)");
    assert!(odd.seconds > even.seconds * 0.95, "{} {}", odd.seconds, even.seconds);
    let gather = map(512, "i, (j * 7) % 512", "let o, v = C.split(j, factor=16)\nC.vectorize(v)");
    assert!(gather.seconds > 2.0 * even.seconds, "{} {}", gather.seconds, even.seconds);
    // Every second element, and elements in reverse, are shuffled from contiguous loads.
    let reversed = map(512, "i, 511 - j", "let o, v = C.split(j, factor=16)\nC.vectorize(v)");
    assert!(reversed.seconds < 2.0 * even.seconds, "{} {}", reversed.seconds, even.seconds);
}

#[test]
fn fused_loops_cost_what_the_loops_cost() {
    let two = product(256, &tile(8, 2));
    let fused = tile(8, 2) + "\nC.fuse(xo, yo)";
    let one = product(256, &fused);
    let ratio = one.seconds / two.seconds;
    assert!((0.97..1.03).contains(&ratio), "{ratio}");
}

#[test]
fn measurements_replace_the_table() {
    let typical = machine();
    let levels = vec![
        (Some(96 << 10), 2000.0),
        (Some(2 << 20), 512.0),
        (Some(64 << 20), 256.0),
        (None, 64.0),
    ];
    let measured = Measured { threads: 2, peak_f32: 512.0, levels };
    let machine = typical.clone().measured(&measured);
    assert_eq!(machine.ghz, 4.0);
    let bytes: Vec<f64> = machine.caches.iter().map(|cache| cache.bytes).collect();
    assert_eq!(bytes, [49152.0, 1048576.0, 67108864.0]);
    let cycles: Vec<f64> = machine.caches.iter().map(|cache| cache.prefetched_cycles).collect();
    assert_eq!(cycles, [1.0, 2.0, 8.0]);
    assert_eq!(machine.seconds(4.0), 1e-9);
}

/// The product of the samples on a GPU.
fn on_a_gpu(schedule: &str) -> Estimate {
    let text = std::fs::read_to_string("samples/matmul.te").expect("a sample");
    let machine = MachineModel::typical(&Target::parse("nvptx-sm_80").expect("a target"));
    driver::with_stack(move || {
        let mut trace = Trace::default();
        let program = driver::load("matmul.te", &One(text), &mut trace).expect("a program");
        let mut options = Options::new(machine.target.clone());
        options.schedule = Some((None, schedule.to_string()));
        let graphs = driver::elaborate(&program, &options, &mut trace).expect("kernels");
        let bounded = driver::schedule(&program, graphs, &options, &mut trace).expect("schedules");
        let kernel = driver::lower_to_estimate(&bounded[0], &options, &mut trace).expect("loops");
        estimate(&kernel, &machine, 1)
    })
}

#[test]
fn tiles_in_shared_memory_and_registers_are_faster_on_a_gpu() {
    let (auto, blocked, fast) = (on_a_gpu("auto"), on_a_gpu("blocked"), on_a_gpu("fast"));
    let all = (auto.seconds, blocked.seconds, fast.seconds);
    assert!(fast.seconds < blocked.seconds && auto.seconds < fast.seconds, "{all:?}");
    // 1024³ multiply-adds at no more than 64 in a cycle of a multiprocessor: `fast` has blocks for
    // 64 of the 108.
    let peak = 1024f64.powi(3) / (64.0 * 64.0 * 1.41e9);
    assert!((1.0..1.5).contains(&(fast.seconds / peak)), "{}", fast.seconds / peak);
    assert_eq!(fast.terms[0].kind, TermKind::MultiplyAdds);
}

/// Warps on a multiprocessor, and what they do, of a kernel with a schedule.
fn scaled(schedule: &str) -> (Estimate, String) {
    let text = format!(
        "kernel k(n = 65536) {{\n input A: float32[n]\n output B[i: n] = A[i] * 2.0\n}}\n\
         schedule k {{\n{schedule}\n}}\n"
    );
    let machine = MachineModel::typical(&Target::parse("nvptx-sm_80").expect("a target"));
    let estimate = estimate_with(&text, &machine, 1);
    let latency = estimate.terms.iter().find(|term| term.kind == TermKind::Latency);
    let about = latency.expect("there is some").about.clone();
    (estimate, about)
}

#[test]
fn blocks_are_shared_out_evenly_and_the_fullest_processor_counts() {
    let split = |threads: usize| {
        scaled(&format!(
            "let b, t = B.split(i, factor={threads})\nB.bind(b, blockIdx.x)\n\
             B.bind(t, threadIdx.x)"
        ))
    };
    // 2048 blocks of one warp are 19 for the multiprocessor with the most of them.
    let (small, about) = split(32);
    assert!(about.ends_with("19 of 64 warps on a multiprocessor (by the grid), 1 wave"), "{about}");
    let (large, about) = split(1024);
    assert!(about.ends_with("32 of 64 warps on a multiprocessor (by the grid), 1 wave"), "{about}");
    // The same bytes.
    assert_eq!(small.warps, large.warps);
    assert_eq!(small.warps.expect("a GPU's").sectors, 2.0 * 65536.0 / 8.0);
}

#[test]
fn vectors_of_a_thread_make_fewer_instructions_of_the_same_sectors() {
    let (one, _) =
        scaled("let b, t = B.split(i, factor=256)\nB.bind(b, blockIdx.x)\nB.bind(t, threadIdx.x)");
    let (four, _) = scaled(
        "let b, t, e = B.split(i, factors=[256, 4])\nB.bind(b, blockIdx.x)\n\
         B.bind(t, threadIdx.x)\nB.vectorize(e)",
    );
    assert_eq!(one.warps, four.warps);
    assert!(alone(&four, TermKind::Instructions) < 0.7 * alone(&one, TermKind::Instructions));
}

#[test]
fn neighbours_that_read_neighbours_are_faster_on_a_gpu() {
    let copy = |read: &str| {
        let text = format!(
            "kernel k(n = 4096) {{\n input A: float32[n, n]\n \
             output C[i: n, j: n] = A[{read}] * 2.0\n}}\nschedule k {{\n\
             let b, t = C.split(j, factor=256)\nC.bind(i, blockIdx.y)\n\
             C.bind(b, blockIdx.x)\nC.bind(t, threadIdx.x)\n}}\n"
        );
        let machine = MachineModel::typical(&Target::parse("nvptx-sm_80").expect("a target"));
        estimate_with(&text, &machine, 1)
    };
    let (rows, columns) = (copy("i, j"), copy("j, i"));
    assert!(columns.seconds > 1.5 * rows.seconds, "{} {}", columns.seconds, rows.seconds);
    // 128 MB at 1555 GB/s, at best.
    assert!((0.8e-4..3e-4).contains(&rows.seconds), "{:?}", rows.terms);
}

#[test]
fn the_terms_of_a_product_on_the_table_s_machine() {
    let one = product(256, &tile(8, 2));
    let line = |term: &super::Term| {
        let (seconds, alone) = (term.seconds * 1e6, term.alone * 1e6);
        format!("{} {seconds:.2} us, {alone:.2} alone: {}", term.kind.name(), term.about)
    };
    let lines: Vec<String> = one.terms.iter().map(line).collect();
    let expected = [
        "multiply-adds 157.27 us, 157.27 alone: C: k: 65536 iterations of 8.40 cycles",
        "L2 traffic 24.81 us, 124.05 alone: C: k: 163840 lines",
        "loop ends 1.44 us, 1.44 alone: C: k: 256 times",
        "stores 1.17 us, 1.17 alone: C: yo: 256 iterations of 16 cycles",
        "TLB 0.03 us, 0.16 alone: C: k: 128 lines",
        "calls 0.01 us, 0.01 alone: k: 40 cycles, 1 time",
        "issue 0.01 us, 0.01 alone: C: xo: 32 iterations of 1 cycle",
    ];
    assert_eq!(lines, expected);
}

/// Reads files.
struct Disk;

impl crate::lang::Loader for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error| error.to_string())
    }
}

#[test]
fn every_sample_has_an_estimate_on_every_kind_of_machine() {
    let estimates = driver::with_stack(|| {
        let mut estimates = 0;
        for entry in std::fs::read_dir("samples").expect("samples") {
            let path = entry.expect("a file").path();
            let path = path.to_str().expect("UTF-8");
            if !path.ends_with(".te") {
                continue;
            }
            let targets = ["x86-avx512", "x86-avx2", "aarch64", "riscv64", "nvptx-sm_80"];
            for target in targets {
                estimates += of_file(path, target);
            }
        }
        estimates
    });
    assert!(estimates > 200, "{estimates}");
}

/// Estimates the kernels of a file with each of its schedules for a target, and says how many.
fn of_file(path: &str, target: &str) -> usize {
    let mut trace = Trace::default();
    let program = driver::load(path, &Disk, &mut trace).expect("a program");
    let items = program.files.iter().flat_map(|file| &file.items);
    let schedules = items.filter_map(|item| match item {
        Item::Schedule(schedule) => schedule.name.as_ref().map(|name| name.text.clone()),
        _ => None,
    });
    let names: BTreeSet<String> = schedules.chain(["default".to_string()]).collect();
    names.iter().map(|name| of_schedule(&program, name, target)).sum()
}

/// The same with the schedules of a name.
fn of_schedule(program: &Program, name: &str, target: &str) -> usize {
    let mut trace = Trace::default();
    let machine = MachineModel::typical(&Target::parse(target).expect("a target"));
    let mut options = Options::new(machine.target.clone());
    options.schedule = Some((None, name.to_string()));
    let graphs = driver::elaborate(program, &options, &mut trace).expect("kernels");
    // Some schedules are for other targets.
    let Ok(bounded) = driver::schedule(program, graphs, &options, &mut trace) else { return 0 };
    for one in &bounded {
        let kernel = driver::lower_to_estimate(one, &options, &mut trace).expect("loops");
        let estimate = estimate(&kernel, &machine, 2);
        let name = &kernel.name;
        let seconds = estimate.seconds;
        assert!(seconds.is_finite() && seconds > 0.0, "{name} on {target}: {seconds}");
        assert!(!estimate.terms.is_empty(), "{name} on {target}");
        assert!(estimate.features.iter().all(|feature| feature.is_finite()), "{name} on {target}");
    }
    bounded.len()
}

#[test]
fn windows_that_overlap_share_what_they_load() {
    let window = |unrolled: &str| {
        estimated(&format!(
            "kernel k(n = 64) {{\n input A: float32[n + 2, 512]\n reduce r: 0..3\n \
             output C[i: n, j: 512] = max(A[i + r, j], axis=r)\n}}\nschedule k {{\n \
             let io, jo, ii, ji = C.tile(i, j, 8, 16)\n C.reorder(io, jo, ii, r, ji)\n \
             C.vectorize(ji)\n C.unroll(r)\n{unrolled}}}\n"
        ))
    };
    // 10 rows for 8 results, or 3 for each.
    let (all, each) = (window(" C.unroll(ii)\n"), window(""));
    let ratio = alone(&each, TermKind::Loads) / alone(&all, TermKind::Loads).max(1e-12);
    assert!(ratio > 2.0 || alone(&all, TermKind::Loads) == 0.0, "{ratio}: {:?}", all.terms);
}

#[test]
fn columns_side_by_side_are_taken_from_rows() {
    let columns = |rows: &str| {
        map(
            2048,
            "j, i",
            &format!(
                "let io, jo, ii, ji = C.tile(i, j, 16, 16)\n{rows}C.vectorize(ji)\nC.unroll(ii)"
            ),
        )
    };
    assert_eq!(alone(&columns(""), TermKind::Gathers), 0.0);
    assert!(alone(&columns("C.reorder(ii, io, jo, ji)\n"), TermKind::Gathers) > 0.0);
}

#[test]
fn short_nests_with_nontemporal_stores_wait_at_their_fences() {
    let text = |piece: usize, hint: &str| {
        format!(
            "kernel k(n = 16777216) {{\n input A: float32[n]\n output C[i: n] = A[i] * 2.0\n}}\n\
             schedule k {{\nlet o, r = C.split(i, factor={piece})\n\
             let v, l = C.split(r, factor=64)\nC.vectorize(l)\nC.parallel(o)\n{hint}}}\n"
        )
    };
    let seconds = |piece, hint| estimate_with(&text(piece, hint), &machine(), 2).seconds;
    let (long, short) = (seconds(65536, ""), seconds(128, ""));
    assert!(short < 3.0 * long, "{short} {long}");
    let nontemporal = "C.store_nontemporal()\n";
    assert!(seconds(65536, nontemporal) < long);
    assert!(seconds(128, nontemporal) > 3.0 * short);
}

#[test]
fn strided_loads_of_unrolled_loops_are_not_prefetched() {
    // Vectors side by side, from a tensor that only the last cache holds: all of a row at once, or
    // one by one.
    let sums = |unroll: &str| {
        let text = format!(
            "kernel k(m = 4096, n = 32) {{\n input A: float32[m, n, 16]\n reduce r: 0..m, s: 0..n\n \
             output C[j: 16] = sum(A[r, s, j], axis=[r, s])\n}}\nschedule k {{\n \
             C.reorder(r, s, j)\n C.vectorize(j)\n {unroll}\n}}\n"
        );
        alone(&estimated(&text), TermKind::L3Traffic)
    };
    assert!(sums("C.unroll(s)") > 1.5 * sums(""), "{} {}", sums("C.unroll(s)"), sums(""));
}

#[test]
fn a_chain_of_stages_in_a_short_row_costs_its_latency() {
    let rows = |columns: usize| {
        estimated(&format!(
            "kernel k(m = 4096, n = {columns}) reassociate {{\n input A: float32[m, n]\n \
             reduce r: 0..n\n compute S[i: m] = sum(A[i, r], axis=r)\n \
             output C[i: m, j: n] = A[i, j] / S[i]\n}}\nschedule k {{\n \
             let ro, rl = S.split(r, factor=16)\n let L = S.rfactor(rl)\n \
             S.compute_at(C, i)\n L.compute_at(S, i)\n L.reorder(i, ro, rl)\n L.vectorize(rl)\n \
             let jo, jl = C.split(j, factor=16)\n C.vectorize(jl)\n}}\n"
        ))
    };
    assert!(alone(&rows(64), TermKind::Latency) > 0.0, "{:?}", rows(64).terms);
}

#[test]
fn an_instruction_under_a_mask_costs_as_much_as_scalars() {
    let seconds = |n: usize| {
        let text = format!(
            "kernel k(n = {n}) {{\n input A: uint8[n, 256]\n input B: int8[256, n]\n \
             reduce k: 0..256\n \
             output C[x: n, y: n] = sum((A[x, k] as int32) * (B[k, y] as int32), axis=k)\n}}\n\
             schedule k {{\n \
             B.cache_read(global, [C], layout=[ax1 // 16, ax0 // 4, ax1 % 16, ax0 % 4])\n \
             let yo, yl = C.split(y, factor=16)\n let yoo, yoi = C.split(yo, factor=4)\n \
             let ko, ki = C.split(k, factor=4)\n \
             C.reorder(yoo, x, yoi, ko, yl, ki)\n C.tensorize(yl, dot4_u8_i8)\n \
             let f = C.fuse(yoo, x)\n C.parallel(f)\n}}\n"
        );
        let target = Target::parse("x86-avx512+vnni").expect("a target");
        estimate_with(&text, &MachineModel::typical(&target), 1).seconds
    };
    let (whole, masked) = (seconds(256), seconds(250));
    assert!(masked > 2.0 * whole, "{masked} {whole}");
}

#[test]
fn clamped_vectors_are_loads_under_masks() {
    // A row is one vector, so that no interior is cut off.
    let read = |index: &str| {
        let text = format!(
            "kernel k(h = 64) {{\n input X: float32[h, 16]\n input W: float32[3]\n \
             reduce b: 0..3\n output Y[i: h, j: 16] = sum({index} * W[b], axis=b)\n}}\n\
             schedule k {{\n Y.reorder(i, b, j)\n Y.vectorize(j)\n}}\n"
        );
        estimated(&text)
    };
    let (clamped, gathered) = (read("X[i, clamp(j + b - 1, 0, 15)]"), read("X[i, j * b % 16]"));
    assert_eq!(alone(&clamped, TermKind::Gathers), 0.0);
    assert!(alone(&gathered, TermKind::Gathers) > 0.0);
}

#[test]
fn the_parts_of_a_row_are_one_stream() {
    // The first and the last vector of a row of four are not in the loop over vectors.
    let map = |read: &str| {
        let text = format!(
            "kernel k(n = 1024) {{\n input A: float32[n, 64]\n \
             output B[i: n, j: 64] = {read} * 2.0\n}}\n\
             schedule k {{\n B.split(j, factor=16)\n B.vectorize(j_i)\n}}\n"
        );
        alone(&estimated(&text), TermKind::L2Traffic)
    };
    let (parts, whole) = (map("A[i, clamp(j - 1, 0, 63)]"), map("A[i, j]"));
    assert!(parts < 1.5 * whole, "{parts} {whole}");
}

#[test]
fn divided_indices_take_instructions() {
    let copy = |index: &str, extent: usize| {
        let text = format!(
            "kernel k(n = {extent}) {{\n input A: float32[n]\n \
             output B[i: n] = A[{index}] * 2.0\n}}\nschedule k {{\n}}\n"
        );
        estimated(&text).seconds
    };
    let (divided, plain) = (copy("i * 2 // 3", 3000), copy("i", 3000));
    assert!(divided > 1.5 * plain, "{divided} {plain}");
    // A division is no loop of its own.
    let ends = |index: &str| {
        let text = format!(
            "kernel k(n = 3000) {{\n input A: float32[n]\n \
             output B[i: n] = A[{index}] * 2.0\n}}\nschedule k {{\n}}\n"
        );
        alone(&estimated(&text), TermKind::LoopEnds)
    };
    assert!(ends("i // 3") < 2.0 * ends("i"), "{} {}", ends("i // 3"), ends("i"));
}

#[test]
fn many_scalar_sums_are_spilled() {
    let spills = |rows: usize| {
        let text = format!(
            "kernel k(n = 256) {{\n input A: float32[n, n]\n input C: float32[n]\n \
             reduce r: 0..n\n output S[i: n] = sum(A[i, r] * C[i * r % n], axis=r)\n}}\n\
             schedule k {{\n let o, l = S.split(i, factor={rows})\n S.reorder(o, r, l)\n \
             S.unroll(l)\n}}\n"
        );
        alone(&estimated(&text), TermKind::Spills)
    };
    assert_eq!(spills(4), 0.0);
    assert!(spills(16) > 0.0);
}

#[test]
fn several_streams_come_faster_where_that_is_known() {
    let rows = |rows: usize, cpu: &str| {
        let text = format!(
            "kernel k(n = 8000) reassociate {{\n input A: float32[n, n]\n reduce r: 0..n\n \
             output S[i: n] = sum(A[i, r], axis=r)\n}}\nschedule k {{\n \
             let o, l = S.split(i, factor={rows})\n let ro, rl = S.split(r, factor=16)\n \
             let P = S.rfactor(rl)\n P.compute_at(S, o)\n P.set_scope(local)\n \
             P.reorder(ro, i, rl)\n P.unroll(i)\n P.vectorize(rl)\n}}\n"
        );
        let target = Target::parse(TARGET).and_then(|target| target.with_processor(cpu));
        let machine = MachineModel::typical(&target.expect("a target"));
        alone(&estimate_with(&text, &machine, 1), TermKind::MemoryTraffic)
    };
    let known = "sapphire-rapids";
    assert!(rows(4, known) < 0.8 * rows(1, known), "{} {}", rows(4, known), rows(1, known));
    assert!(rows(4, "zen5") > 0.9 * rows(1, "zen5"), "{} {}", rows(4, "zen5"), rows(1, "zen5"));
}

#[test]
fn blocks_of_a_triangle_have_its_terms() {
    let chains = |terms: &str| {
        let text = format!(
            "kernel k(n = 512) {{\n input A: float32[n, n]\n input B: float32[n, n]\n \
             reduce k: 0..n\n output C[x: n, y: n] = sum(A[x, k] * B[k, y], axis=k{terms})\n}}\n\
             schedule k {{\n let yo, yi = C.split(y, factor=64)\n \
             let ko, ki = C.split(k, factor=256)\n C.reorder(x, yo, ko, ki, yi)\n \
             C.vectorize(yi)\n}}\n"
        );
        alone(&estimated(&text), TermKind::Latency)
    };
    let part = chains(", where=k <= x") / chains("");
    assert!((0.35..0.75).contains(&part), "{part}");
}

#[test]
fn patterns_of_loops_are_predicted() {
    let branches = |cond: &str| {
        let text = format!(
            "kernel k(n = 1000) {{\n input A: float32[n]\n input F: uint8[n]\n \
             reduce r: 0..n\n output S[i: n] = sum(A[r], axis=r, where={cond})\n}}\n\
             schedule k {{\n}}\n"
        );
        estimated(&text).seconds
    };
    let (pattern, data) = (branches("(i + r) % 2 == 0"), branches("F[r] == 0"));
    assert!(pattern < 0.7 * data, "{pattern} {data}");
}

#[test]
fn estimates_for_several_numbers_of_threads_are_those_for_each() {
    // The matrices fit the last cache of one thread, but not its part if four share it.
    for parallel in ["", " C.parallel(x)\n"] {
        let text = format!(
            "kernel k(n = 1500) {{\n input A: float32[n, n]\n input B: float32[n, n]\n \
             reduce k: 0..n\n output C[x: n, y: n] = sum(A[x, k] * B[k, y], axis=k)\n}}\n\
             schedule k {{\n C.reorder(x, k, y)\n C.vectorize(y)\n{parallel}}}\n"
        );
        let machine = machine();
        let kernel = lowered(&text, &machine);
        let all = estimate_at(&kernel, &machine, &[1, 4], &RunTimeValues::default());
        let each = [1, 4].map(|threads| estimate(&kernel, &machine, threads));
        for (one, other) in all.iter().zip(&each) {
            assert_eq!(one.seconds, other.seconds);
            assert_eq!(one.features, other.features);
        }
        assert_eq!(each[1].seconds < each[0].seconds, !parallel.is_empty());
    }
}

/// The estimate of a kernel for calls with these run-time integers.
fn estimated_at(text: &str, given: &[i64]) -> Estimate {
    let machine = machine();
    let kernel = lowered(text, &machine);
    let vars = kernel.params.iter().filter_map(|param| match param {
        Param::Runtime { var, .. } => Some(var.clone()),
        _ => None,
    });
    let values: RunTimeValues = vars.zip(given.iter().copied()).collect();
    estimate_at(&kernel, &machine, &[1], &values).remove(0)
}

/// The estimate of a transposition `B[j, i] = A[i, j]` of run-time extents under a schedule.
fn transposed(n: i64, m: i64, schedule: &str) -> Estimate {
    let text = format!(
        "kernel k(n: var, m: var) {{\n input A: float32[n, m]\n \
         output B[j: m, i: n] = A[i, j]\n}}\nschedule k {{\n{schedule}\n}}\n"
    );
    estimated_at(&text, &[n, m])
}

/// Tiles that are read by rows and written by columns.
const TILES: &str = "let jo, ji = B.split(j, factor=16)\nlet io, ii = B.split(i, factor=128)\n\
                     let iio, iii = B.split(ii, factor=16)\nB.reorder(jo, io, iio, ji, iii)\n\
                     B.unroll(ji)\nB.vectorize(iii)";

#[test]
fn a_run_time_divisor_is_no_constant() {
    // The fused loop divides by `n` to find its place; 12 cycles on Emerald Rapids for each.
    let (fused, nested) = (transposed(16, 400, "B.fuse(j, i)"), transposed(16, 400, ""));
    assert!(fused.seconds > 4.0 * nested.seconds, "{} {}", fused.seconds, nested.seconds);
}

#[test]
fn rows_of_a_tile_are_loaded_once() {
    // Rows of 4 KB share one set of L1, which holds less than the 16 rows of a tile.
    let (conflict, none) = (transposed(16, 1024, TILES), transposed(16, 1000, TILES));
    assert!(conflict.seconds < 2.0 * none.seconds, "{} {}", conflict.seconds, none.seconds);
    // The condition that a tile is whole stands around the tile.
    assert!(alone(&none, TermKind::Gathers) < 0.1 * none.seconds, "{:?}", none.terms);
    let vectors = "let io, ii = B.split(i, factor=16)\nB.vectorize(ii)";
    let columns = transposed(16, 1024, vectors);
    assert!(columns.seconds > 1.1 * conflict.seconds, "{} {}", columns.seconds, conflict.seconds);
}

#[test]
fn a_run_time_number_of_lanes_is_no_constant_mask() {
    // Every second element is shuffled from whole vectors, but gathered under a mask that is known
    // at run time only.
    let text = "kernel k(n: var) {\n input A: float32[2*n]\n output B[i: n] = A[2*i]\n}\n\
                schedule k {\n let o, v = B.split(i, factor=64)\n B.vectorize(v)\n}\n";
    let gathers = |n: i64| alone(&estimated_at(text, &[n]), TermKind::Gathers);
    assert!(gathers(64) == 0.0 && gathers(48) > 0.0, "{} {}", gathers(64), gathers(48));
}

#[test]
fn permutations_of_avx2_delay_multiply_adds_on_a_zen_3() {
    let target = Target::parse("x86-avx2").and_then(|target| target.with_processor("zen3"));
    let zen3 = MachineModel::typical(&target.expect("a processor"));
    let beside = MachineModel { permutation: 0.0, ..zen3.clone() };
    let product = |index: &str, machine: &MachineModel| {
        let text = format!(
            "kernel k() {{\n input X: float32[64, 128]\n input W: float32[48, 64]\n \
             reduce c: 0..64\n output Y[k: 48, j: 64] = sum(X[c, {index}] * W[k, c], axis=c)\n}}\n\
             schedule k {{\nlet ko, jo, ki, ji = Y.tile(k, j, 6, 16)\n\
             Y.reorder(ko, jo, c, ki, ji)\nY.unroll(ki)\nY.vectorize(ji)\n}}\n"
        );
        estimate_with(&text, machine, 1).seconds
    };
    assert_eq!(product("j", &zen3), product("j", &beside));
    // Two vectors of a step are permuted, beside twelve multiply-adds in six cycles and the loads.
    let ratio = product("2*j", &zen3) / product("2*j", &beside);
    assert!((1.15..1.4).contains(&ratio), "{ratio}");
}

/// The nests of an estimate, with their seconds in percent of all.
fn nests(text: &str, threads: usize) -> Vec<(String, f64)> {
    let estimate = estimate_with(text, &machine(), threads);
    let percent = |seconds: f64| (100.0 * seconds / estimate.seconds).round();
    let names = |stages: &BTreeSet<String>| stages.iter().cloned().collect::<Vec<_>>().join(" ");
    estimate.nests.iter().map(|nest| (names(&nest.stages), percent(nest.seconds))).collect()
}

#[test]
fn each_nest_has_its_part_of_the_time() {
    let text = "kernel k() {\n input A: float32[64, 512]\n input B: float32[512, 64]\n \
                reduce k: 0..512\n reduce l: 0..64\n \
                compute P[x: 64, y: 64] = A[x, y] + 1\n \
                compute C[x: 64, y: 64] = sum(A[x, k] * B[k, y], axis=k)\n \
                output D[x: 64, y: 64] = sum(C[x, l] * P[l, y], axis=l)\n}\n";
    let apart = nests(text, 1);
    let names: Vec<&str> = apart.iter().map(|(names, _)| &names[..]).collect();
    assert_eq!(names, ["P", "C", "D"]);
    let sum: f64 = apart.iter().map(|(_, percent)| percent).sum();
    assert!(apart[1].1 > 5.0 * apart[2].1 && apart[2].1 > apart[0].1, "{apart:?}");
    assert!((97.0..=101.0).contains(&sum), "{apart:?}");
    let attached = nests(&format!("{text}schedule k {{ P.compute_at(D, x) }}"), 1);
    assert_eq!(attached[1].0, "D P");
}

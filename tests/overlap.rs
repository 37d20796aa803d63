//! What lets `ptxas` overlap the latency of loads in kernels for GPUs: predicates in place of
//! branches, and enough registers. An H200 and the machine code showed each of them.

use crate::support::answer;

/// A branch around a copy to shared memory would keep the next copy's load waiting for its value.
#[test]
fn copies_under_a_condition_are_predicated() {
    let copies = |options: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("copies.ptx");
        let mut command: Vec<&str> = options.split(' ').collect();
        command.extend(["-o", out.to_str().expect("UTF-8")]);
        let (ok, said) = answer(&command);
        assert!(ok, "{said}");
        let text = std::fs::read_to_string(out).expect("the PTX");
        let between = text.split("bar.sync").nth(1).expect("copies between two barriers");
        let loads: Vec<usize> = between.match_indices("ld.global").map(|(at, _)| at).collect();
        let stores: Vec<usize> = between.match_indices("st.shared").map(|(at, _)| at).collect();
        assert!(!between.contains("bra"), "{between}");
        assert!(loads.iter().max() < stores.iter().min(), "a load after a store:\n{between}");
        (loads.len(), stores.len())
    };
    let conv = "build samples/conv.te --schedule tiling --target nvptx-sm_80 -D oc=64 -D ic=64 \
                -D nh=64";
    assert_eq!(copies(conv), (4, 4));
    // Values that are loaded under a condition themselves, in an inlined padding.
    let padded = "build tests/golden/run/launch_padded_copies.te --schedule s --target nvptx-sm_80";
    assert_eq!(copies(padded), (4, 4));
}

/// `ptxas` takes the registers that it needs to load ahead only if it is told that few blocks share
/// a multiprocessor.
#[test]
fn blocks_that_copy_tiles_ask_for_registers() {
    let directory = tempfile::tempdir().expect("a directory");
    let sums = directory.path().join("sums.te");
    let text = "kernel sums(n = 2048, m = 64) {\n    input A: float32[m, n]\n    \
                reduce k: 0..m\n    \
                output C[i: n] = sum(A[k, i], axis=k)\n}\nschedule sums.s {\n    \
                let io, ii = C.split(i, factor=256)\n    C.bind(io, blockIdx.x)\n    \
                C.bind(ii, threadIdx.x)\n}\n";
    std::fs::write(&sums, text).expect("a file is written");
    let asked = |file: &str, schedule: &str| {
        let out = directory.path().join("asked.ptx");
        let out = out.to_str().expect("UTF-8");
        let target = ["--target", "nvptx-sm_80", "-o", out];
        let (ok, said) = answer(&[&["build", file, "--schedule", schedule][..], &target].concat());
        assert!(ok, "{said}");
        let text = std::fs::read_to_string(out).expect("the PTX");
        text.lines().find_map(|line| line.strip_prefix(".minnctapersm ")).map(str::to_string)
    };
    // 256 threads with 64 sums each.
    assert_eq!(asked("samples/matmul.te", "fast").as_deref(), Some("2"));
    // Large blocks without tiles hide latency by many warps.
    assert_eq!(asked(sums.to_str().expect("UTF-8"), "s"), None);
}

/// `ptxas` moves no load across the branches around the terms of a sum.
#[test]
fn terms_under_a_condition_are_predicated() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("terms.ptx");
    let out = out.to_str().expect("UTF-8");
    let file = "tests/golden/run/launch_conditional_terms.te";
    let command = ["build", file, "--schedule", "s", "--target", "nvptx-sm_80", "-o", out];
    let (ok, said) = answer(&command);
    assert!(ok, "{said}");
    let text = std::fs::read_to_string(out).expect("the PTX");
    let sum = text.split(".entry").nth(1).expect("the launch of `Y`");
    let count = |what: &str| sum.matches(what).count();
    // 12 rows of three terms, of which the outer two have conditions; one branch keeps threads
    // beyond the end away.
    assert_eq!((count("fma.rn"), count("bra ")), (36, 1), "{sum}");
    let predicated = sum.lines().filter(|line| line.trim().starts_with('@'));
    assert_eq!(predicated.filter(|line| line.contains("fma.rn")).count(), 24, "{sum}");
}

//! Each kind of defect is reported at its line, and correct variants are clean.

use nvptx_emulator::{BufferId, FindingKind, Launch, Memory, Module, Report};

/// Returns a kernel with one statement per line; the first line of `body` is line 12.
fn text(decls: &str, body: &str) -> String {
    format!(
        ".version 8.0
.target sm_90
.address_size 64
.visible .entry t(.param .u64 pa, .param .u64 pb) {{
.reg .pred %p<8>; .reg .b32 %r<16>; .reg .b16 %h<4>; .reg .b64 %rd<16>; .reg .f32 %f<8>;
{decls}
ld.param.u64 %rd0, [pa];
ld.param.u64 %rd1, [pb];
mov.u32 %r0, %tid.x;
mul.wide.u32 %rd2, %r0, 4;
add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2; shl.b32 %r1, %r0, 2;
{body}
ret;
}}
"
    )
}

struct Run {
    decls: &'static str,
    grid: u32,
    block: u32,
    bytes: usize,
}

impl Default for Run {
    fn default() -> Self {
        Run { decls: "", grid: 1, block: 64, bytes: 256 }
    }
}

impl Run {
    /// `pa` is an input of 64 words, `pb` a workspace.
    fn run(&self, body: &str) -> Report {
        let module = Module::parse(&text(self.decls, body)).unwrap();
        let mut memory = Memory::new();
        let a = memory.input("A", &(0..64).collect::<Vec<u32>>());
        let b = memory.workspace("B", self.bytes);
        self.launch(&module, a, b).run(&mut memory).unwrap()
    }

    fn launch<'a>(&self, module: &'a Module, a: BufferId, b: BufferId) -> Launch<'a> {
        let launch = Launch::new(module, "t").grid([self.grid, 1, 1]).block([self.block, 1, 1]);
        launch.buffer(a).buffer(b).limit(1_000_000)
    }

    /// Checks that the only finding has this kind and line of the body, from 1.
    #[track_caller]
    fn finds(&self, kind: FindingKind, line: u32, body: &str) {
        let report = self.run(body);
        let found: Vec<_> = report.findings.iter().map(|f| (f.kind, f.line)).collect();
        assert_eq!(found, [(kind, Some(11 + line))], "{report}");
        assert!(!report.findings[0].message.is_empty());
    }

    #[track_caller]
    fn is_clean(&self, body: &str) {
        let report = self.run(body);
        assert!(report.is_clean(), "{report}");
    }
}

const SHARED: &str = ".shared .align 16 .b8 s[256]; .shared .align 16 .b8 t[256];";

fn shared() -> Run {
    Run { decls: SHARED, ..Run::default() }
}

/// Computes the address of the thread's word of `s`.
const AT: &str = "mov.u32 %r2, s; add.u32 %r2, %r2, %r1;";

#[test]
fn shared_races_are_found() {
    let run = shared();
    run.is_clean(&format!("{AT}\nst.shared.u32 [%r2], %r0;\nld.shared.u32 %r3, [%r2];"));
    let neighbour = "xor.b32 %r4, %r2, 4;";
    let read = |sync: &str| {
        format!("{AT} {neighbour}\nst.shared.u32 [%r2], %r0;\n{sync}\nld.shared.u32 %r3, [%r4];")
    };
    run.is_clean(&read("bar.sync 0;"));
    run.is_clean(&read("bar.warp.sync -1;"));
    run.finds(FindingKind::SharedRace, 4, &read(""));
    // A shuffle synchronises lanes but does not order memory.
    run.finds(FindingKind::SharedRace, 4, &read("shfl.sync.idx.b32 %r5, %r0, 0, 31, -1;"));
    // A warp barrier does not order different warps.
    let across = read("bar.warp.sync -1;").replace("xor.b32 %r4, %r2, 4", "xor.b32 %r4, %r2, 128");
    let report = run.run(&across);
    assert!(report.has(FindingKind::SharedRace), "{report}");
    // Write after read; all threads write one word.
    let write = format!(
        "{AT} {neighbour}\nst.shared.u32 [%r2], 0;\nbar.sync 0;\nld.shared.u32 %r3, [%r4];\n\
             st.shared.u32 [%r2], 1;"
    );
    run.finds(FindingKind::SharedRace, 5, &write);
    run.finds(FindingKind::SharedRace, 1, "st.shared.u32 [s], %r0;");
    // Adjacent bytes and halves are different granules.
    run.is_clean("mov.u32 %r2, s; add.u32 %r2, %r2, %r0; st.shared.u8 [%r2], 1;");
    run.is_clean(
        "mov.u32 %r2, s; shl.b32 %r3, %r0, 1; add.u32 %r2, %r2, %r3; st.shared.b16 [%r2], 1;",
    );
    // Atomics do not race with each other, but with plain reads.
    let zero = "setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [s], 0; bar.sync 0;";
    run.is_clean(&format!(
        "{zero}\nred.shared.add.u32 [s], 1;\nbar.sync 0; ld.shared.u32 %r3, [s];"
    ));
    let one = Run { block: 32, ..shared() };
    one.finds(
        FindingKind::SharedRace,
        3,
        &format!("{zero}\nred.shared.add.u32 [s], 1;\nld.shared.u32 %r3, [s];"),
    );
}

#[test]
fn global_races_are_found() {
    let run = Run::default();
    run.is_clean("st.global.u32 [%rd4], %r0;");
    run.finds(FindingKind::GlobalRace, 1, "st.global.u32 [%rd1], %r0;");
    let next = "xor.b64 %rd5, %rd4, 4;";
    let body = |sync: &str| {
        format!("st.global.u32 [%rd4], %r0; {next}\n{sync}\nld.global.u32 %r2, [%rd5];")
    };
    run.is_clean(&body("bar.sync 0;"));
    run.finds(FindingKind::GlobalRace, 3, &body("membar.gl;"));
    let two = Run { grid: 2, block: 32, ..Run::default() };
    two.finds(FindingKind::BlockRace, 1, "st.global.u32 [%rd4], %r0;");
    two.is_clean(
        "mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %r2, 32, %r0; mul.wide.u32 %rd5, %r2, 4;
         add.s64 %rd5, %rd1, %rd5; st.global.u32 [%rd5], 0;",
    );
    // One block writes, another one reads: barriers do not order blocks.
    two.finds(
        FindingKind::BlockRace,
        3,
        "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p0, %r2, 0;\n@%p0 st.global.u32 [%rd4], %r0;\n\
             @!%p0 ld.global.u32 %r3, [%rd4];",
    );
}

#[test]
fn launches_do_not_race_with_each_other() {
    let source =
        text("", "xor.b64 %rd5, %rd4, 4; mov.u32 %r2, %ctaid.x;\nst.global.u32 [%rd5], %r0;");
    let module = Module::parse(&source).unwrap();
    let mut memory = Memory::new();
    let a = memory.input("A", &[0u32; 64]);
    let b = memory.workspace("B", 256);
    let run = Run::default();
    assert!(run.launch(&module, a, b).run(&mut memory).unwrap().is_clean());
    let source = text("", "ld.global.u32 %r2, [%rd4];\nst.global.u32 [%rd4], %r2;");
    let module = Module::parse(&source).unwrap();
    let report = run.launch(&module, a, b).run(&mut memory).unwrap();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn programs_of_several_kernels_are_checked() {
    let text = "
.version 7.0
.target sm_75
.address_size 64
.global .u32 launches = 5;
.visible .entry first(.param .u64 w) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [w]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4;
    add.s64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r0;
    red.global.add.u32 [launches], 1;
    ret;
}
.visible .entry second(.param .u64 w, .param .u64 c) {
    .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd0, [w]; ld.param.u64 %rd2, [c]; mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4; xor.b64 %rd3, %rd1, 4; add.s64 %rd0, %rd0, %rd3;
    add.s64 %rd2, %rd2, %rd1; ld.global.nc.u32 %r1, [%rd0];
    ld.global.u32 %r2, [launches]; add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd2], %r1;
    ret;
}";
    let module = Module::parse(text).unwrap();
    let mut memory = Memory::new();
    let (w, c) = (memory.workspace("W", 32), memory.output("C", 32));
    let first = Launch::new(&module, "first").block([8, 1, 1]).buffer(w);
    let second = Launch::new(&module, "second").block([8, 1, 1]).buffer(w).buffer(c);
    // In the wrong order the second kernel reads unwritten memory.
    assert!(second.run(&mut memory.clone()).unwrap().has(FindingKind::UninitialisedRead));
    let mut report = first.run(&mut memory).unwrap();
    report.add(second.run(&mut memory).unwrap());
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.counters.blocks, 2);
    assert_eq!(memory.read::<u32>(c), [14, 13, 16, 15, 18, 17, 20, 19]);
}

#[test]
fn barrier_defects_are_found() {
    let run = Run::default();
    run.is_clean(
        "setp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.sync 0;\nbra B;\nA: bar.sync 0;\n\
         B: mov.u32 %r2, 0;",
    );
    let report = run.run("setp.lt.u32 %p0, %r0, 16;\n@%p0 bra A;\nbar.sync 0;\nA: mov.u32 %r2, 0;");
    assert!(report.has(FindingKind::DivergentBarrier), "{report}");
    run.finds(
        FindingKind::DivergentBarrier,
        2,
        "setp.lt.u32 %p0, %r0, 16;\n@%p0 bar.sync 0;\n@!%p0 barrier.sync 0;",
    );
    run.finds(FindingKind::ExitedThreads, 3, "setp.lt.u32 %p0, %r0, 32;\n@%p0 ret;\nbar.sync 0;");
    run.finds(
        FindingKind::NoProgress,
        3,
        "setp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.sync 1, 64;\nA: mov.u32 %r2, 0;",
    );
    let report = run.run(
        "setp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.sync 1;\nbra B;\n\
         A: bar.sync 2;\nB: mov.u32 %r2, 0;",
    );
    assert_eq!(report.of(FindingKind::NoProgress).count(), 2, "{report}");
    run.finds(FindingKind::DivergentBarrier, 1, "bar.sync 0, 48;");
    for endless in ["A: bra A;", "A: bar.sync 0; bra A;"] {
        let report = run.run(endless);
        assert!(report.has(FindingKind::NoProgress), "{report}");
    }
}

#[test]
fn divergent_warps_are_found() {
    let run = Run::default();
    run.is_clean(
        "setp.lt.u32 %p0, %r0, 16;\n@%p0 bra A;\nmov.u32 %r2, 1;\nbra B;\n\
         A: mov.u32 %r2, 2;\nB: shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;",
    );
    let half = "and.b32 %r2, %r0, 16; setp.eq.u32 %p0, %r2, 0;";
    run.is_clean(&format!("{half}\n@%p0 shfl.sync.bfly.b32 %r3, %r0, 1, 31, 0xffff;"));
    run.finds(
        FindingKind::DivergentWarp,
        2,
        &format!("{half}\n@%p0 shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;"),
    );
    run.finds(
        FindingKind::DivergentWarp,
        3,
        &format!("{half}\n@%p0 ret;\nvote.sync.ballot.b32 %r3, %p0, -1;"),
    );
    run.finds(FindingKind::DivergentWarp, 1, "bar.warp.sync 0xffff;");
    // A lane reads from a lane outside of the mask.
    run.finds(
        FindingKind::DivergentWarp,
        2,
        &format!("{half}\n@%p0 shfl.sync.bfly.b32 %r3, %r0, 16, 31, 0xffff;"),
    );
}

#[test]
fn invalid_addresses_are_found() {
    let run = shared();
    run.finds(FindingKind::Misaligned, 1, "ld.global.v2.u32 {%r2, %r3}, [%rd0+4];");
    run.finds(FindingKind::Misaligned, 1, "st.shared.u32 [s+2], %r0;");
    run.finds(FindingKind::OutOfBounds, 1, "ld.global.u32 %r2, [%rd0+256];");
    run.finds(FindingKind::OutOfBounds, 1, "ld.global.u32 %r2, [%rd0+-4];");
    run.finds(FindingKind::OutOfBounds, 2, "mov.u64 %rd5, 0;\nld.global.u32 %r2, [%rd5];");
    run.finds(FindingKind::OutOfBounds, 1, "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd0+256];");
    run.finds(FindingKind::OutOfBounds, 1, "ld.shared.u32 %r2, [s+256];");
    run.finds(FindingKind::OutOfBounds, 1, "st.shared.u32 [t+1024], %r0;");
    run.finds(FindingKind::ReadOnly, 1, "st.global.u32 [%rd3], %r0;");
    let local = Run { decls: ".local .align 4 .b8 l[16];", ..Run::default() };
    local.is_clean("st.local.u32 [l+12], %r0; ld.local.u32 %r2, [l+12];");
    local.finds(FindingKind::OutOfBounds, 1, "st.local.u32 [l+16], %r0;");
    // An output for half of the threads.
    let half = Run { bytes: 128, ..Run::default() };
    half.finds(FindingKind::OutOfBounds, 1, "st.global.u32 [%rd4], %r0;");
}

#[test]
fn uninitialised_reads_are_found() {
    let run = shared();
    run.finds(FindingKind::UninitialisedRead, 1, "ld.shared.u32 %r2, [s];");
    run.finds(FindingKind::UninitialisedRead, 1, "ld.global.u32 %r2, [%rd4];");
    run.finds(FindingKind::UninitialisedRegister, 1, "add.u32 %r2, %r3, 1;");
    run.finds(
        FindingKind::UninitialisedRegister,
        2,
        "setp.lt.u32 %p0, %r0, 7;\n@%p1 mov.u32 %r2, 1;",
    );
    // Only some threads wrote the register.
    run.finds(
        FindingKind::UninitialisedRegister,
        3,
        "setp.lt.u32 %p0, %r0, 7;\n@%p0 mov.u32 %r2, 1;\nadd.u32 %r3, %r2, 1;",
    );
    run.is_clean("setp.lt.u32 %p0, %r0, 7;\n@%p0 mov.u32 %r2, 1;\n@%p0 add.u32 %r3, %r2, 1;");
    // Half of a word was written.
    run.finds(
        FindingKind::UninitialisedRead,
        3,
        "mov.u32 %r2, s; add.u32 %r2, %r2, %r1;\nst.shared.b16 [%r2], 1;\n\
             ld.shared.u32 %r3, [%r2];",
    );
    // The next block does not see shared memory of this one.
    let two = Run { grid: 2, block: 1, decls: SHARED, ..Run::default() };
    two.finds(
        FindingKind::UninitialisedRead,
        3,
        "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p0, %r2, 0;\n@%p0 st.shared.u32 [s], 1;\n\
             ld.shared.u32 %r3, [s];",
    );
    let local = Run { decls: ".local .align 4 .b8 l[16];", ..Run::default() };
    local.finds(FindingKind::UninitialisedRead, 1, "ld.local.u32 %r2, [l+4];");
}

#[test]
fn unwritten_outputs_are_found() {
    let source = text("", "setp.ne.u32 %p0, %r0, 5;\n@%p0 st.global.u32 [%rd4], %r0;");
    let module = Module::parse(&source).unwrap();
    let mut memory = Memory::new();
    let a = memory.input("A", &[0u32; 64]);
    let b = memory.output("B", 256);
    let launch = Run::default().launch(&module, a, b);
    assert!(launch.clone().partial().run(&mut memory).unwrap().is_clean());
    let report = launch.run(&mut memory).unwrap();
    let finding = report.of(FindingKind::Unwritten).next().unwrap();
    assert!(finding.message.contains("4 of 256 bytes of `B`"), "{report}");
    assert!(finding.message.contains("at byte 20"), "{report}");
    assert_eq!(memory.unwritten(b), 4);
}

#[test]
fn accesses_to_copies_in_flight_are_found() {
    let run = shared();
    let copy = format!("{AT}\ncp.async.ca.shared.global [%r2], [%rd3], 4;\n");
    let read = "\nld.shared.u32 %r3, [%r2];";
    run.is_clean(&format!("{copy}cp.async.commit_group; cp.async.wait_group 0;{read}"));
    run.is_clean(&format!("{copy}cp.async.wait_all;{read}"));
    run.finds(FindingKind::InFlight, 4, &format!("{copy}cp.async.commit_group;{read}"));
    run.finds(
        FindingKind::InFlight,
        4,
        &format!("{copy}cp.async.commit_group; cp.async.wait_group 1;{read}"),
    );
    // The wait covers committed groups only.
    run.finds(FindingKind::InFlight, 4, &format!("{copy}cp.async.wait_group 0;{read}"));
    run.finds(FindingKind::InFlight, 4, &format!("{copy}\nst.shared.u32 [%r2], 1;"));
    // Another thread needs a barrier after the wait of the copying thread.
    let other = "\nxor.b32 %r4, %r2, 4; ld.shared.u32 %r3, [%r4];";
    run.is_clean(&format!("{copy}cp.async.wait_all; bar.sync 0;{other}"));
    run.finds(FindingKind::SharedRace, 4, &format!("{copy}cp.async.wait_all;{other}"));
    // A barrier does not replace the wait.
    run.finds(FindingKind::InFlight, 4, &format!("{copy}bar.sync 0;{other}"));
    // Zero fill; a copy of no bytes needs no valid address.
    run.is_clean(&format!(
        "{AT} mov.u64 %rd5, 0;\ncp.async.ca.shared.global [%r2], [%rd5], 4, 0;\n\
             cp.async.wait_all;{read}"
    ));
    run.finds(
        FindingKind::OutOfBounds,
        2,
        &format!("{AT}\ncp.async.ca.shared.global [%r2], [%rd3+256], 4;\ncp.async.wait_all;"),
    );
}

#[test]
fn other_defects_are_found() {
    let run = Run::default();
    run.finds(FindingKind::DivisionByZero, 1, "rem.u32 %r2, 5, %r0;");
    run.is_clean("add.u32 %r2, %r0, 1; div.u32 %r2, 5, %r2;");
    run.finds(FindingKind::Trap, 2, "setp.eq.u32 %p0, %r0, 9;\n@%p0 trap;");
    run.is_clean("ld.global.nc.u32 %r2, [%rd3];");
    run.finds(
        FindingKind::NonCoherent,
        2,
        "st.global.u32 [%rd4], 1;\nld.global.nc.u32 %r2, [%rd4];",
    );
}

#[test]
fn results_that_depend_on_the_order_are_reported() {
    // Blocks take numbers by an atomic: no race, but the order changes the results.
    let source = text(
        "",
        "mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd5, %rd1, %rd5;
         atom.global.add.u32 %r3, [%rd0], 1; st.global.u32 [%rd5], %r3;",
    );
    let module = Module::parse(&source).unwrap();
    let mut memory = Memory::new();
    let a = memory.inout("A", &[0u32]);
    let b = memory.output("B", 32);
    let run = Run { grid: 8, block: 1, ..Run::default() };
    let report = run.launch(&module, a, b).run(&mut memory).unwrap();
    assert!(report.is_clean(), "{report}");
    let mut memory = Memory::new();
    let a = memory.inout("A", &[0u32]);
    let b = memory.output("B", 32);
    let report = run.launch(&module, a, b).run_twice(&mut memory).unwrap();
    assert!(report.has(FindingKind::OrderDependent), "{report}");
    assert_eq!(memory.read::<u32>(b), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn wavefronts_and_sectors_are_counted() {
    let run = shared();
    let report = run.run(&format!("{AT} st.shared.u32 [%r2], %r0;"));
    assert_eq!(report.counters.wavefronts(), (2, 2));
    let report = run.run(
        "shl.b32 %r2, %r0, 1; and.b32 %r2, %r2, 63; shl.b32 %r2, %r2, 2; mov.u32 %r3, s;\
                          add.u32 %r3, %r3, %r2; setp.lt.u32 %p0, %r0, 32;\n\
         @%p0 st.shared.u32 [%r3], %r0;",
    );
    assert_eq!(report.counters.wavefronts(), (2, 1), "{report}");
    assert_eq!(report.counters.bank_conflicts(), 1);
    let report = run.run("ld.global.u32 %r2, [%rd3];");
    assert_eq!(report.counters.sectors(), (8, 8));
    let report =
        run.run("xor.b64 %rd5, %rd3, 32; ld.global.u32 %r2, [%rd5];\nld.global.u32 %r3, [%rd0];");
    assert_eq!(report.counters.sectors(), (8 + 2, 8 + 2));
    assert_eq!(report.counters.count("ld.global"), 128);
    assert_eq!(report.counters.count("ld"), 256);
    assert_eq!(report.counters.count("l"), 0);
    assert_eq!(report.counters.by_line()[&13], 64);
}

#[test]
fn reports_are_readable() {
    let report = shared().run(&format!(
        "{AT} xor.b32 %r4, %r2, 4;\nst.shared.u32 [%r2], %r0;\nld.shared.u32 %r3, [%r4];"
    ));
    let shown = report.to_string();
    assert!(shown.contains(
        "race in shared memory: line 14: thread (0, 0, 0) of block (0, 0, 0) reads byte 4 of `s` \
         that thread (1, 0, 0) wrote at line 13, with no barrier between (64 times)"
    ), "{shown}");
    assert!(shown.contains("   13 | st.shared.u32 [%r2], %r0;"), "{shown}");
    assert!(shown.contains("   14 | ld.shared.u32 %r3, [%r4];"), "{shown}");
}

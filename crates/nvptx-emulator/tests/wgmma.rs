//! Products of a warpgroup: every layout of the factors against scalar products, and the defects
//! that only the hardware would show.

mod common;

use common::{line_of, numbers, replace_nth};
use half::{bf16, f16};
use nvptx_emulator::{FindingKind, Launch, Memory, Module, Report};

/// Rows, columns and terms.
const M: usize = 64;
const N: usize = 24;
const K: usize = 16;
/// Bytes of each factor's part of shared memory.
const PART: usize = 8192;

/// How a factor lies in shared memory: pieces of a swizzled row, whether a piece has rows of one
/// term, and the two distances of a descriptor.
#[derive(Clone, Copy, Debug)]
struct Layout {
    width: usize,
    transposed: bool,
    leading: usize,
    stride: usize,
}

impl Layout {
    /// The layouts in 8-by-8 blocks that are padded, and those with a swizzle.
    fn all() -> Vec<Layout> {
        let mut all = Vec::new();
        for transposed in [false, true] {
            all.push(Layout { width: 1, transposed, leading: 1040, stride: 128 });
            all.push(Layout { width: 1, transposed, leading: 128, stride: 272 });
            for width in [2, 4, 8] {
                all.push(Layout { width, transposed, leading: 2048, stride: 128 * width });
            }
        }
        all
    }

    /// The byte of an element.
    fn at(&self, row: usize, term: usize) -> usize {
        let Layout { width, transposed, leading, stride } = *self;
        let (line, pitch) = (8 * width, 16 * width);
        let at = match (width, transposed) {
            (1, false) => row / 8 * stride + term / 8 * leading + row % 8 * 16 + term % 8 * 2,
            (1, true) => row / 8 * stride + term / 8 * leading + term % 8 * 16 + row % 8 * 2,
            (_, false) => row / 8 * stride + row % 8 * pitch + term * 2,
            (_, true) => {
                row / line * leading + term / 8 * stride + term % 8 * pitch + row % line * 2
            }
        };
        at ^ ((at >> 7 & (width - 1)) << 4)
    }

    fn descriptor(&self) -> u64 {
        let mode = [0, 0, 3, 0, 2, 0, 0, 0, 1][self.width];
        (self.leading as u64 / 16) << 16 | (self.stride as u64 / 16) << 32 | mode << 62
    }
}

/// Two products in a group, which add twice the product of the factors to C.
fn text(element: &str, a: Layout, b: Layout) -> String {
    let regs: Vec<String> = (0..N / 2).map(|i| format!("%f{i}")).collect();
    let regs = regs.join(", ");
    let transposed = (u32::from(a.transposed), u32::from(b.transposed));
    let product = format!(
        "wgmma.mma_async.sync.aligned.m64n{N}k16.f32.{element}.{element} {{{regs}}}, %da, %db, %p, \
         1, 1, {}, {};\n",
        transposed.0, transposed.1
    );
    let (mut loads, mut stores) = (String::new(), String::new());
    for i in 0..N / 2 {
        let at = (i / 2 % 2 * 8 * N + i / 4 * 8 + i % 2) * 4;
        loads += &format!("ld.global.f32 %f{i}, [%c+{at}];\n");
        stores += &format!("st.global.f32 [%c+{at}], %f{i};\n");
    }
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.entry t(.param .u64 s, .param .u64 c, \
         .param .u64 a, .param .u64 b) {{\n.shared .align 1024 .b8 m[{}];\n.reg .f32 %f<{}>;\n\
         .reg .b32 %r<20>; .reg .b64 %s, %c, %da, %db, %at; .reg .pred %p, %more;\n\
         mov.u32 %r0, %tid.x;\nld.param.u64 %s, [s];\nld.param.u64 %c, [c];\n\
         mov.u32 %r1, m;\nmad.lo.u32 %r2, %r0, 16, %r1;\nmul.wide.u32 %at, %r0, 16;\n\
         add.u64 %s, %s, %at;\nmov.u32 %r3, 0;\n\
         L: ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%s];\n\
         st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};\nadd.u32 %r2, %r2, 2048;\n\
         add.u64 %s, %s, 2048;\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %more, %r3, {};\n@%more bra L;\n\
         fence.proxy.async.shared::cta;\nbar.sync 0;\n\
         shr.u32 %r8, %r0, 5; mul.lo.u32 %r9, %r8, 16; and.b32 %r10, %r0, 31;\n\
         shr.u32 %r11, %r10, 2; add.u32 %r9, %r9, %r11; and.b32 %r12, %r10, 3;\n\
         mul.lo.u32 %r13, %r9, {N}; mad.lo.u32 %r13, %r12, 2, %r13;\n\
         mul.wide.u32 %at, %r13, 4; add.u64 %c, %c, %at;\n{loads}\
         shr.u32 %r14, %r1, 4; cvt.u64.u32 %at, %r14;\n\
         ld.param.u64 %da, [a]; add.u64 %da, %da, %at;\n\
         ld.param.u64 %db, [b]; add.u64 %db, %db, %at; add.u64 %db, %db, {};\n\
         setp.eq.u32 %p, %r1, %r1;\n\
         wgmma.fence.sync.aligned;\n{product}{product}wgmma.commit_group.sync.aligned;\n\
         // running\nwgmma.wait_group.sync.aligned 0;\n{stores}ret;\n}}\n",
        2 * PART,
        N / 2,
        2 * PART / 2048,
        PART / 16,
    )
}

/// Runs the text; returns the report, and the result with what is expected.
fn run(text: &str, half: fn(f32) -> u16, a: Layout, b: Layout) -> (Report, Vec<f32>, Vec<f32>) {
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let small = |count, seed| -> Vec<f32> {
        numbers(count, seed).iter().map(|v| (v * 16.0).round() / 8.0).collect()
    };
    let (left, right, old) = (small(M * K, 1), small(N * K, 2), small(M * N, 3));
    let mut image = vec![0u8; 2 * PART];
    let mut put = |at: usize, value: f32| {
        image[at..at + 2].copy_from_slice(&half(value).to_le_bytes());
    };
    (0..M * K).for_each(|i| put(a.at(i / K, i % K), left[i]));
    (0..N * K).for_each(|i| put(PART + b.at(i / K, i % K), right[i]));
    let mut memory = Memory::new();
    let (ps, pc) = (memory.input("s", &image), memory.inout("c", &old));
    let report = Launch::new(&module, "t")
        .block([128, 1, 1])
        .buffer(ps)
        .buffer(pc)
        .value(a.descriptor())
        .value(b.descriptor())
        .run(&mut memory)
        .unwrap();
    let expected = (0..M * N).map(|i| {
        let (row, column) = (i / N * K, i % N * K);
        let sum: f32 = (0..K).map(|k| left[row + k] * right[column + k]).sum();
        2.0 * sum + old[i]
    });
    let expected = expected.collect();
    (report, memory.read(pc), expected)
}

fn plain() -> (String, Layout, Layout) {
    let all = Layout::all();
    (text("bf16", all[0], all[6]), all[0], all[6])
}

fn defect(text: &str) -> Report {
    let (_, a, b) = plain();
    run(text, |v| bf16::from_f32(v).to_bits(), a, b).0
}

#[test]
fn every_layout_of_the_factors_gives_the_product() {
    for (at, a) in Layout::all().into_iter().enumerate() {
        for b in Layout::all() {
            let (report, got, expected) = match at % 2 {
                0 => run(&text("bf16", a, b), |v| bf16::from_f32(v).to_bits(), a, b),
                _ => run(&text("f16", a, b), |v| f16::from_f32(v).to_bits(), a, b),
            };
            assert!(report.is_clean(), "{a:?} {b:?}\n{report}");
            assert_eq!(got, expected, "{a:?} {b:?}");
        }
    }
}

#[test]
fn missing_fences_are_found() {
    let (text, ..) = plain();
    for fence in ["wgmma.fence.sync.aligned;", "fence.proxy.async.shared::cta;"] {
        let report = defect(&replace_nth(&text, fence, "", 0));
        let found: Vec<_> = report.findings.iter().map(|f| (f.kind, f.line)).collect();
        let line = line_of(&text, "mma_async", 0);
        assert!(found.contains(&(FindingKind::MissingFence, Some(line))), "{fence}\n{report}");
        assert!(found.iter().all(|f| f.0 == FindingKind::MissingFence), "{fence}\n{report}");
    }
    // A fence after the barrier does not order what other threads wrote.
    let late = text.replace(
        "fence.proxy.async.shared::cta;\nbar.sync 0;",
        "bar.sync 0;\nfence.proxy.async.shared::cta;",
    );
    assert!(!defect(&late).is_clean());
}

#[test]
fn sums_in_flight_are_not_accessed() {
    let (text, ..) = plain();
    for (what, change) in
        [("a store", "st.global.f32 [%c], %f0;"), ("a write", "mov.f32 %f5, 0f00000000;")]
    {
        let report = defect(&text.replace("// running", change));
        assert!(report.has(FindingKind::InFlight), "{what}\n{report}");
    }
    let never = text.replace("wgmma.wait_group.sync.aligned 0;", "");
    assert!(defect(&never).has(FindingKind::InFlight));
    let too_few = text.replace("wait_group.sync.aligned 0", "wait_group.sync.aligned 1");
    assert!(defect(&too_few).has(FindingKind::InFlight));
}

#[test]
fn factors_in_flight_are_not_written() {
    let (text, ..) = plain();
    let write = "bar.sync 0;\nst.shared.b32 [%r1], %r0;";
    let report = defect(&text.replace("// running", write));
    assert!(report.has(FindingKind::InFlight), "{report}");
    let report = defect(&replace_nth(&text, "bar.sync 0;", "", 0));
    assert!(report.has(FindingKind::SharedRace), "{report}");
}

#[test]
fn descriptors_are_checked() {
    let (text, a, b) = plain();
    let outside = text.replace("add.u64 %db, %db, %at;", "add.u64 %db, %db, 9999;");
    assert!(defect(&outside).has(FindingKind::OutOfBounds));
    let differing = text.replace("add.u64 %da, %da, %at;", "cvt.u64.u32 %da, %r0;");
    assert!(defect(&differing).has(FindingKind::DivergentWarp));
    let module = Module::parse(&text.replace(".target sm_90a", ".target sm_90"));
    let Err(error) = module else { panic!("only sm_90a has the instruction") };
    let error = error.to_string();
    assert!(error.contains("sm_90a"), "{error}");
    let half = |v| bf16::from_f32(v).to_bits();
    assert!(run(&text, half, a, b).0.is_clean());
}

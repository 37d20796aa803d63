//! Unsupported text is an error with its line; a launch that cannot start names the reason.

use nvptx_emulator::{Launch, Memory, Module};

/// Returns the error of a kernel with this body; its first line is line 6.
#[track_caller]
fn error(body: &str) -> String {
    let text = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.entry t(.param .u64 p) {{\n\
         .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .shared .b32 s[4];\n\
         {body}\n}}\n"
    );
    Module::parse(&text).expect_err("the text is wrong").to_string()
}

#[test]
fn unknown_text_is_refused() {
    let table = [
        ("frobnicate.u32 %r0, %r1;", "unknown instruction `frobnicate.u32`"),
        ("add.u32.fast %r0, %r1, %r2;", "`add.u32.fast`: unknown or unfit modifier `.fast`"),
        ("add.q32 %r0, %r1, %r2;", "`add.q32`: needs a type"),
        ("add.u32 %r0, %r1, %r9;", "`%r9` is not declared"),
        ("add.u32 %r0, %r1;", "2 operands, expected 3"),
        ("add.u32 %r0, %r1, %rd2;", "register `%rd2` of type .b64 does not fit"),
        ("add.f32 %f0, %f1, 1;", "an integer constant does not fit type .f32"),
        ("fma.f32 %f0, %f1, %f2, %f3;", "`fma.f32`: needs a rounding such as `.rn`"),
        ("div.f32 %f0, %f1, %f2;", "`div.f32`: needs a rounding such as `.rn`"),
        ("ex2.f32 %f0, %f1;", "`ex2.f32`: needs `.approx`"),
        ("add.u32 %tid.x, %r1, %r2;", "`%tid.x` cannot be written"),
        ("mov.u32 %laneid, 1;", "`%laneid` cannot be written"),
        ("bra NOWHERE;", "label `NOWHERE` does not exist"),
        ("A: A: ret;", "label `A` twice"),
        ("ld.global.u32 %r0, [%r1];", "`ld.global.u32`: needs a 64-bit address"),
        ("ld.global.u32 %r0, [s];", "the variable is of another state space"),
        ("ld.global.v2.u32 %r0, [%rd0];", "`ld.global.v2.u32`: 1 registers for 2 elements"),
        ("st.param.u32 [p], %r0;", "this state space is read-only"),
        ("cp.async.cg.shared.global [s], [%rd0], 8;", "no copy of 8 bytes"),
        ("shfl.bfly.b32 %r0, %r1, 1, 31;", "only the `.sync` form exists since sm_70"),
        ("call f;", "`call`: calls are not supported: inline the function"),
        ("cvt.f32.s32 %f0, %r0;", "`cvt.f32.s32`: the rounding does not fit these types"),
        (
            "mma.sync.aligned.m16n8k16.row.row.f32.bf16.bf16.f32 {}, {}, {}, {};",
            "expected an operand",
        ),
        ("wgmma.fence.sync;", "`wgmma.fence.sync`: only the `.sync.aligned` form exists"),
        ("wgmma.fence.sync.aligned;", "`wgmma.fence.sync.aligned` needs `.target sm_90a`"),
        ("add.ftz.f64 %rd0, %rd1, %rd2;", "unknown instruction `add.ftz.f64`"),
        ("ex2.approx.bf16x2 %r0, %r1;", "`ex2.approx.bf16x2`: needs `.ftz`"),
        ("fma.rn.ftz.f16x2 %r0, %r1, %r2, %r3;", "`.ftz` is not supported for this type"),
        ("cvt.ftz.u32.u64 %r0, %rd0;", "`.ftz` is for conversions of `.f32`"),
        ("mad.lo.sat.u32 %r0, %r1, %r2, %r3;", "unknown instruction `mad.lo.sat.u32`"),
        ("mov.u32 %r0, 0x1g;", "bad number `0x1g`"),
        ("mov.u32 %r0, %r1", "expected `;`, found `}`"),
        ("mov.u32 %r0, #;", "unknown character '#'"),
        (".magic 3;", "unknown directive `.magic`"),
        (".reg .b128 %q;", "128-bit registers are not supported"),
    ];
    for (body, expected) in table {
        let got = error(body);
        assert!(got.contains(expected), "{body}: {got}");
        let line = if body.ends_with(';') { "PTX line 6: " } else { "PTX line 7: " };
        assert!(got.starts_with(line), "{body}: {got}");
    }
}

#[test]
fn unknown_directives_of_modules_are_refused() {
    let table = [
        (".version 7.0\n.target sm_80\n.surprise 1", "PTX line 3: unknown directive `.surprise`"),
        (".target sm_80\n.address_size 64", "PTX line 1: the text needs `.version` and `.target`"),
        (".version 7.0\n.target sm_80\n.address_size 32", "PTX line 3: address size 32"),
        (".version 7.0\n.target sm_80\n.func f() { ret; }", "PTX line 3: `.func` is not supported"),
        (".version 7.0\n.target sm_80\n.entry k(", "the text ends too early"),
    ];
    for (text, expected) in table {
        let got = Module::parse(text).unwrap_err().to_string();
        assert!(got.contains(expected) || got.contains("expected a name"), "{text}: {got}");
    }
}

#[test]
fn launches_that_cannot_start_are_refused() {
    let text = ".version 7.0\n.target sm_80\n.address_size 64\n\
        .extern .shared .align 16 .b8 dynamic[];\n\
        .entry t(.param .u64 p, .param .u32 n) .maxntid 128 {\n\
        .reg .b32 %r<4>; mov.u32 %r0, dynamic; ret; }";
    let module = Module::parse(text).unwrap();
    assert_eq!(module.kernels().collect::<Vec<_>>(), ["t"]);
    assert_eq!((module.version(), module.target()), ("7.0", "sm_80"));
    let mut memory = Memory::new();
    let b = memory.input("B", &[0u8; 16]);
    let good = Launch::new(&module, "t").buffer(b).value(7u32);
    assert!(good.run(&mut memory).unwrap().is_clean());
    let mut fails = |launch: Launch<'_>, expected: &str| {
        let got = launch.run(&mut memory).unwrap_err().to_string();
        assert!(got.contains(expected), "{got}");
    };
    fails(Launch::new(&module, "u"), "no kernel `u`, there are: t");
    fails(Launch::new(&module, "t").buffer(b), "1 arguments, the kernel has 2 parameters");
    fails(Launch::new(&module, "t").buffer(b).buffer(b), "parameter `n` is not an address");
    fails(
        Launch::new(&module, "t").buffer(b).value(7u64),
        "8 bytes for parameter `n`, which has 4",
    );
    fails(good.clone().block([256, 1, 1]), "256 threads, `.maxntid` allows [128, 1, 1]");
    fails(good.clone().block([2048, 1, 1]), "exceeds the limits");
    fails(good.clone().grid([1, 70000, 1]), "exceeds the limits");
    fails(good.clone().grid([1 << 22, 1, 1]), "the emulator runs at most");
    // More than the GPU of this target has, but not of another one.
    fails(good.shared(200_000), "200000 bytes of shared memory, the limit is 166912");
}

/// Directives and comments of nvcc and Triton are accepted.
#[test]
fn dialects_of_nvcc_and_triton_are_accepted() {
    let nvcc = "//
// Generated by NVIDIA NVVM Compiler
//

.version 7.8
.target sm_80
.address_size 64

\t// .globl\t_Z3addPfS_i
.global .align 4 .f32 scale = 0f40000000;
.const .align 4 .b8 table[8] = {1, 0, 0, 0, 2};

.visible .entry _Z3addPfS_i(
\t.param .u64 _Z3addPfS_i_param_0,
\t.param .u64 .ptr .global .align 4 _Z3addPfS_i_param_1,
\t.param .u32 _Z3addPfS_i_param_2
)
.maxntid 256, 1, 1
.minnctapersm 2
{
\t.reg .pred \t%p<2>;
\t.reg .b16 \t%rs<3>;
\t.reg .f32 \t%f<5>;
\t.reg .b32 \t%r<6>;
\t.reg .b64 \t%rd<8>;

\tld.param.u64 \t%rd1, [_Z3addPfS_i_param_0];
\tld.param.u64 \t%rd2, [_Z3addPfS_i_param_1];
\tld.param.u32 \t%r2, [_Z3addPfS_i_param_2];
\tmov.u32 \t%r1, %tid.x;
\tsetp.ge.s32 \t%p1, %r1, %r2;
\t@%p1 bra \t$L__BB0_2;

\tcvta.to.global.u64 \t%rd3, %rd1;
\tmul.wide.s32 \t%rd4, %r1, 4;
\tadd.s64 \t%rd5, %rd3, %rd4;
\tadd.s64 \t%rd6, %rd2, %rd4;
\tld.global.nc.f32 \t%f1, [%rd5];
\tld.global.f32 \t%f2, [scale];
\tmov.u64 %rd7, table;
\tld.const.u32 \t%r5, [%rd7+4];
\t// begin inline asm
\t{  cvt.rn.f16.f32 %rs1, %f1;}

\t// end inline asm
\t{.reg .f32 %f<9>; mov.f32 %f8, 0f3F800000;
\tmov.b32 \t%r3, %f8;}
\tmov.b32 %f3, %r3;
\tfma.rn.f32 \t%f4, %f1, %f2, %f3;
\tst.global.f32 \t[%rd6], %f4;

$L__BB0_2:
\tret;

}
";
    let module = Module::parse(nvcc).unwrap();
    let mut memory = Memory::new();
    let x = memory.input("x", &[1f32, 2.0, 3.0]);
    let y = memory.output("y", 12);
    let launch = Launch::new(&module, "_Z3addPfS_i").block([32, 1, 1]);
    let report = launch.buffer(x).buffer(y).value(3).run(&mut memory).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(memory.read::<f32>(y), [3.0, 5.0, 7.0]);
    let triton = "//
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(
\t.param .u64 .ptr .global .align 1 k_param_0
)
.reqntid 128
{
\t.reg .pred \t%p<2>;
\t.reg .b32 \t%r<8>;
\t.reg .b64 \t%rd<3>;
\t.loc\t1 19 0
$L__func_begin0:
\t.loc\t1 19 0
\tld.param.b64 \t%rd1, [k_param_0];
\tmov.u32 \t%r1, %tid.x;
\tmul.wide.u32 %rd2, %r1, 4;
\tadd.s64 %rd1, %rd1, %rd2;
\tmov.b32 \t%r2, 0x0;
\tsetp.ne.b32 %p1, %r2, 1;
\t// begin inline asm
\t@%p1 st.global.b32 [ %rd1 + 0 ], { %r1 };
\t// end inline asm
\tret;
$L__tmp1:
$L__func_end0:
}
\t.file\t1 \"/tmp/k.py\"
\t.section\t.debug_abbrev
\t{
.b8 1                                   // Abbreviation Code
.b32 $L__func_begin0
\t}
\t.section\t.debug_macinfo\t{\t}
";
    let module = Module::parse(triton).unwrap();
    let mut memory = Memory::new();
    let y = memory.output("y", 512);
    let report = Launch::new(&module, "k").block([128, 1, 1]).buffer(y).run(&mut memory).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(memory.read::<u32>(y), (0..128).collect::<Vec<_>>());
}

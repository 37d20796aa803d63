//! The semantics of each arithmetic instruction, as tables of operands and results in bits.

use nvptx_emulator::{Launch, Memory, Module};

/// A row: instruction, operands with their widths, width of the result, result.
type Row = (&'static str, Vec<(u32, u64)>, u32, u64);

/// Operands and result of 32 bits.
fn w32(op: &'static str, operands: &[u32], result: u32) -> Row {
    (op, operands.iter().map(|v| (32, u64::from(*v))).collect(), 32, result.into())
}

fn w64(op: &'static str, operands: &[u64], result: u64) -> Row {
    (op, operands.iter().map(|v| (64, *v)).collect(), 64, result)
}

fn w16(op: &'static str, operands: &[u32], result: u32) -> Row {
    (op, operands.iter().map(|v| (16, u64::from(*v))).collect(), 16, result.into())
}

fn mixed(op: &'static str, operands: &[(u32, u64)], width: u32, result: u64) -> Row {
    (op, operands.to_vec(), width, result)
}

fn float(op: &'static str, operands: &[f32], result: f32) -> Row {
    w32(op, &operands.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), result.to_bits())
}

fn double(op: &'static str, operands: &[f64], result: f64) -> Row {
    w64(op, &operands.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), result.to_bits())
}

/// Runs every row in a thread and compares the result. Operands are in untyped registers, so that
/// only the instruction determines their type.
fn check(rows: &[Row]) {
    let mut body = String::new();
    for (i, (op, operands, width, _)) in rows.iter().enumerate() {
        let mut names = vec![format!("%d{width}")];
        for (j, (width, value)) in operands.iter().enumerate() {
            body += &format!("mov.b{width} %s{width}_{j}, {value:#x};\n");
            names.push(format!("%s{width}_{j}"));
        }
        // An operand that must be a constant follows the opcode after a space.
        let (op, rest) = op.split_once(' ').map_or((*op, ""), |(op, rest)| (op, rest));
        body += &format!("{op} {}{rest};\n", names.join(", "));
        body += &format!("st.global.b{width} [%out+{}], %d{width};\n", 8 * i);
    }
    let text = format!(
        ".version 8.8\n.target sm_100\n.address_size 64\n.visible .entry t(.param .u64 p) {{\n\
         .reg .b16 %s16_<4>, %d16; .reg .b32 %s32_<4>, %d32; .reg .b64 %s64_<4>, %d64, %out;\n\
         ld.param.u64 %out, [p];\n{body}ret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| {
        panic!("{e}: {}", text.lines().nth(e.line.unwrap_or(1) as usize - 1).unwrap())
    });
    let mut memory = Memory::new();
    let out = memory.workspace("out", 8 * rows.len());
    let report = Launch::new(&module, "t").buffer(out).run(&mut memory).unwrap();
    assert!(report.is_clean(), "{report}");
    let got = memory.read::<u64>(out);
    for ((op, operands, width, expected), got) in rows.iter().zip(got) {
        let got = if *width == 64 { got } else { got & ((1 << width) - 1) };
        assert_eq!(got, *expected, "{op} of {operands:x?}: got {got:#x}, expected {expected:#x}");
    }
}

const MIN32: u32 = 1 << 31;
const NAN: u32 = 0x7fff_ffff;
/// The smallest subnormal, the largest one, the smallest normal number.
const TINY: u32 = 1;
const SUB: u32 = 0x007f_ffff;
const NORMAL: u32 = 0x0080_0000;

#[test]
fn integers_follow_the_manual() {
    check(&[
        w32("add.s32", &[7, !0], 6),
        w32("add.u32", &[!0, 1], 0),
        w32("add.sat.s32", &[0x7fff_ffff, 1], 0x7fff_ffff),
        w32("sub.sat.s32", &[MIN32, 1], MIN32),
        w32("sub.s32", &[3, 5], !1),
        w64("add.s64", &[!0, 2], 1),
        w64("sub.u64", &[0, 1], !0),
        w16("add.s16", &[0xffff, 2], 1),
        w16("sub.u16", &[0, 1], 0xffff),
        w32("mul.lo.s32", &[!2, 5], !14),
        w32("mul.hi.s32", &[!0, 5], !0),
        w32("mul.hi.u32", &[!0, 5], 4),
        w64("mul.lo.s64", &[1 << 40, 1 << 30], 0),
        w64("mul.hi.u64", &[1 << 40, 1 << 30], 1 << 6),
        w64("mul.hi.s64", &[!0, 3], !0),
        w16("mul.lo.u16", &[0x300, 0x300], 0),
        w16("mul.hi.u16", &[0x300, 0x300], 9),
        w16("mul.hi.s16", &[0xffff, 2], 0xffff),
        mixed("mul.wide.s32", &[(32, 0xffff_fffe), (32, 3)], 64, !5),
        mixed("mul.wide.u32", &[(32, 0xffff_fffe), (32, 3)], 64, 0x2_ffff_fffa),
        mixed("mul.wide.s16", &[(16, 0xffff), (16, 7)], 32, 0xffff_fff9),
        mixed("mul.wide.u16", &[(16, 0xffff), (16, 7)], 32, 0x6fff9),
        w32("mad.lo.s32", &[3, 4, !0], 11),
        w32("mad.hi.u32", &[!0, 5, 1], 5),
        w64("mad.lo.s64", &[3, 4, 5], 17),
        mixed("mad.wide.s32", &[(32, 0xffff_ffff), (32, 4), (64, 8)], 64, 4),
        mixed("mad.wide.u32", &[(32, 0xffff_ffff), (32, 4), (64, 8)], 64, 0x4_0000_0004),
        w32("mul24.lo.u32", &[0xff00_0003, 5], 15),
        w32("mul24.lo.s32", &[0x00ff_ffff, 5], !4),
        w32("mad24.lo.s32", &[0x00ff_ffff, 5, 6], 1),
        w32("sad.s32", &[!0, 3, 10], 14),
        w32("sad.u32", &[1, 4, 10], 13),
        w32("div.s32", &[(-7i32) as u32, 2], (-3i32) as u32),
        w32("div.u32", &[!0, 16], 0x0fff_ffff),
        w32("rem.s32", &[(-7i32) as u32, 2], !0),
        w32("rem.u32", &[7, 4], 3),
        w32("div.s32", &[MIN32, !0], MIN32),
        w64("div.s64", &[(-9i64) as u64, 4], (-2i64) as u64),
        w64("rem.u64", &[1 << 40, 1000], (1u64 << 40) % 1000),
        w16("div.s16", &[0xfff9, 2], 0xfffd),
        w16("rem.s16", &[0xfff9, 2], 0xffff),
        w32("min.s32", &[!0, 1], !0),
        w32("min.u32", &[!0, 1], 1),
        w32("max.s32", &[!0, 1], 1),
        w64("max.u64", &[!0, 1], !0),
        w64("min.s64", &[!0, 1], !0),
        w16("max.s16", &[0x8000, 1], 1),
        w16("min.u16", &[0x8000, 1], 1),
        w32("abs.s32", &[!4], 5),
        w32("abs.s32", &[MIN32], MIN32),
        w64("abs.s64", &[!4], 5),
        w32("neg.s32", &[5], !4),
        w16("neg.s16", &[1], 0xffff),
        w32("dp4a.s32.s32", &[0xff02_0304, 0x0102_0304, 10], 10 + 16 + 9 + 4 - 1),
        w32("dp4a.u32.u32", &[0xff02_0304, 0x0102_0304, 10], 10 + 16 + 9 + 4 + 255),
        w32("dp4a.u32.s32", &[0xff00_0000, 0xff00_0000, 0], (-255i32) as u32),
    ]);
}

#[test]
fn bit_operations_follow_the_manual() {
    check(&[
        w32("and.b32", &[0xff0f, 0x0ff0], 0x0f00),
        w32("or.b32", &[0xff0f, 0x0ff0], 0xffff),
        w32("xor.b32", &[0xff0f, 0x0ff0], 0xf0ff),
        w64("and.b64", &[!0, 1 << 40], 1 << 40),
        w16("xor.b16", &[0xffff, 1], 0xfffe),
        w32("not.b32", &[0], !0),
        w16("not.b16", &[1], 0xfffe),
        w64("not.b64", &[0], !0),
        w32("cnot.b32", &[0], 1),
        w32("cnot.b32", &[7], 0),
        w32("popc.b32", &[0xf0f0], 8),
        mixed("popc.b64", &[(64, !0)], 32, 64),
        w32("clz.b32", &[1], 31),
        w32("clz.b32", &[0], 32),
        mixed("clz.b64", &[(64, 1)], 32, 63),
        w32("brev.b32", &[1], MIN32),
        w64("brev.b64", &[1], 1 << 63),
        w32("bfind.u32", &[0x100], 8),
        w32("bfind.u32", &[0], !0),
        w32("bfind.s32", &[!0x100], 8),
        w32("bfind.s32", &[!0], !0),
        w32("bfind.shiftamt.u32", &[0x100], 23),
        mixed("bfind.u64", &[(64, 1 << 40)], 32, 40),
        w32("shl.b32", &[3, 4], 48),
        w32("shl.b32", &[3, 32], 0),
        w32("shl.b32", &[3, 0xffff_ffff], 0),
        w32("shr.u32", &[MIN32, 31], 1),
        w32("shr.u32", &[MIN32, 32], 0),
        w32("shr.s32", &[MIN32, 31], !0),
        w32("shr.s32", &[MIN32, 99], !0),
        mixed("shl.b64", &[(64, 1), (32, 40)], 64, 1 << 40),
        mixed("shr.s64", &[(64, 1 << 63), (32, 64)], 64, !0),
        mixed("shr.u64", &[(64, 1 << 63), (32, 63)], 64, 1),
        mixed("shl.b16", &[(16, 0x8001), (32, 1)], 16, 2),
        mixed("shr.s16", &[(16, 0x8000), (32, 4)], 16, 0xf800),
        mixed("shr.u16", &[(16, 0x8000), (32, 4)], 16, 0x0800),
        w32("shf.l.wrap.b32", &[0x8000_0001, 0x1234_5678, 4], 0x2345_6788),
        w32("shf.r.wrap.b32", &[0x8000_0001, 0x1234_5678, 4], 0x8800_0000),
        w32("shf.l.clamp.b32", &[0x8000_0001, 0x1234_5678, 40], 0x8000_0001),
        w32("shf.l.wrap.b32", &[0x8000_0001, 0x1234_5678, 36], 0x2345_6788),
        w32("shf.r.clamp.b32", &[0x8000_0001, 0x1234_5678, 32], 0x1234_5678),
        w32("bfe.u32", &[0xabcd_1234, 8, 8], 0x12),
        w32("bfe.s32", &[0xabcd_1234, 16, 8], 0xffff_ffcd),
        w32("bfe.s32", &[0x8000_0000, 28, 8], 0xffff_fff8),
        w32("bfe.u32", &[!0, 0, 0], 0),
        mixed("bfe.u64", &[(64, 0xab_0000_0000), (32, 32), (32, 8)], 64, 0xab),
        mixed("bfe.s64", &[(64, 0xab_0000_0000), (32, 32), (32, 8)], 64, !0x54),
        w32("bfi.b32", &[0xff, 0, 8, 4], 0xf00),
        w32("bfi.b32", &[0xff, !0, 40, 4], !0),
        mixed("bfi.b64", &[(64, 0x5), (64, !0), (32, 60), (32, 8)], 64, 0x5fff_ffff_ffff_ffff),
        w32("prmt.b32", &[0x3322_1100, 0x7766_5544, 0x7531], 0x7755_3311),
        w32("prmt.b32", &[0x0000_0080, 0, 0x0088], 0x8080_ffff),
        w32("lop3.b32 , 0xe8", &[0b1100, 0b1010, 0b1001], 0b1000),
        w32("lop3.b32 , 0x96", &[0b1100, 0b1010, 0b1001], 0b1111),
    ]);
}

#[test]
fn floats_follow_the_manual() {
    let third = 1f32 / 3.0;
    let up = |v: f32| f32::from_bits(v.to_bits() + 1);
    let down = |v: f32| f32::from_bits(v.to_bits() - 1);
    let e = 2f32.powi(-24);
    check(&[
        float("add.f32", &[1.0, 2.0], 3.0),
        float("add.rn.f32", &[1.0, e], 1.0),
        float("add.rp.f32", &[1.0, e], up(1.0)),
        float("add.rm.f32", &[1.0, -e / 2.0], down(1.0)),
        float("add.rz.f32", &[-1.0, -e], -1.0),
        float("add.rm.f32", &[1.0, -1.0], -0.0),
        float("add.rn.f32", &[1.0, -1.0], 0.0),
        float("sub.rn.f32", &[1.0, 3.0], -2.0),
        float("mul.rn.f32", &[3.0, -2.0], -6.0),
        float("mul.rz.f32", &[up(1.0), up(1.0)], 1.0 + 2f32.powi(-22)),
        float("mul.rp.f32", &[up(1.0), up(1.0)], 1.0 + 3.0 * 2f32.powi(-23)),
        float("mul.sat.f32", &[3.0, 2.0], 1.0),
        float("mul.sat.f32", &[3.0, -2.0], 0.0),
        w32("mul.sat.f32", &[NAN, 0], 0),
        w32("add.f32", &[0x7fc0_1234, 0], NAN),
        w32("mul.f32", &[0x7f80_0000, 0], NAN),
        w32("add.f32", &[TINY, TINY], 2),
        w32("add.ftz.f32", &[TINY, TINY], 0),
        w32("add.ftz.f32", &[MIN32 | TINY, MIN32 | TINY], MIN32),
        w32("mul.ftz.f32", &[NORMAL, 0x3f00_0000], 0),
        w32("mul.f32", &[NORMAL, 0x3f00_0000], 0x0040_0000),
        w32("mul.ftz.f32", &[MIN32 | NORMAL, 0x3f00_0000], MIN32),
        float("fma.rn.f32", &[up(1.0), up(1.0), -1.0], 2f32.powi(-22) + 2f32.powi(-46)),
        float("fma.rn.f32", &[2.0, 3.0, 4.0], 10.0),
        float("fma.rz.f32", &[1.0, 1.0, e], 1.0),
        float("fma.rp.f32", &[1.0, 1.0, e], up(1.0)),
        float("fma.rn.sat.f32", &[2.0, 3.0, 4.0], 1.0),
        w32("fma.rn.f32", &[0x7f80_0000, 0, 0], NAN),
        w32("fma.rn.ftz.f32", &[0x3f80_0000, SUB, SUB], 0),
        float("mad.rn.f32", &[2.0, 3.0, 4.0], 10.0),
        float("div.rn.f32", &[1.0, 3.0], third),
        float("div.rz.f32", &[1.0, 3.0], down(third)),
        float("div.rp.f32", &[1.0, 3.0], third),
        float("div.rm.f32", &[-1.0, 3.0], -third),
        float("div.full.f32", &[1.0, 3.0], third),
        float("div.approx.f32", &[1.0, 4.0], 0.25),
        float("div.rn.f32", &[1.0, -0.0], f32::NEG_INFINITY),
        float("rcp.rn.f32", &[3.0], third),
        float("rcp.approx.ftz.f32", &[4.0], 0.25),
        float("rcp.rm.f32", &[3.0], down(third)),
        float("sqrt.rn.f32", &[2.0], 2f32.sqrt()),
        float("sqrt.rp.f32", &[2.0], up(2f32.sqrt())),
        float("sqrt.rn.f32", &[-0.0], -0.0),
        w32("sqrt.rn.f32", &[0xbf80_0000], NAN),
        float("sqrt.approx.f32", &[9.0], 3.0),
        float("rsqrt.approx.f32", &[0.25], 2.0),
        float("ex2.approx.f32", &[3.0], 8.0),
        w32("ex2.approx.ftz.f32", &[(-140f32).to_bits()], 0),
        float("lg2.approx.f32", &[8.0], 3.0),
        float("lg2.approx.f32", &[0.0], f32::NEG_INFINITY),
        float("sin.approx.f32", &[0.5], 0.5f64.sin() as f32),
        float("cos.approx.f32", &[0.5], 0.5f64.cos() as f32),
        float("tanh.approx.f32", &[0.5], 0.5f64.tanh() as f32),
        float("min.f32", &[1.0, 2.0], 1.0),
        float("min.f32", &[0.0, -0.0], -0.0),
        float("max.f32", &[-0.0, 0.0], 0.0),
        w32("min.f32", &[NAN, 0x3f80_0000], 0x3f80_0000),
        w32("max.f32", &[0x3f80_0000, NAN], 0x3f80_0000),
        w32("max.f32", &[NAN, 0x7fc0_0001], NAN),
        w32("max.NaN.f32", &[NAN, 0x3f80_0000], NAN),
        w32("min.NaN.f32", &[0x3f80_0000, 0x4000_0000], 0x3f80_0000),
        w32("max.ftz.f32", &[TINY, 0], 0),
        float("max.f32", &[1.0, 5.0, 3.0], 5.0),
        w32("neg.f32", &[0], MIN32),
        w32("abs.f32", &[0xbf80_0000], 0x3f80_0000),
        w32("abs.ftz.f32", &[MIN32 | TINY], 0),
        float("copysign.f32", &[-1.0, 5.0], -5.0),
        w64("add.rn.f32x2", &[0x3f80_0000_4000_0000, 0x3f80_0000_3f80_0000], 0x4000_0000_4040_0000),
        w64("mul.rn.f32x2", &[0x3f80_0000_4000_0000, 0x4040_0000_4000_0000], 0x4040_0000_4080_0000),
        w64(
            "fma.rn.f32x2",
            &[0x3f80_0000_4000_0000, 0x4040_0000_4000_0000, 0x3f80_0000_0000_0000],
            0x4080_0000_4080_0000,
        ),
        double("add.rn.f64", &[1.0, 2.5], 3.5),
        double("sub.f64", &[1.0, 2.5], -1.5),
        double("mul.rn.f64", &[3.0, 2.5], 7.5),
        double("fma.rn.f64", &[3.0, 2.5, 0.5], 8.0),
        double("div.rn.f64", &[1.0, 3.0], 1.0 / 3.0),
        double("rcp.rn.f64", &[3.0], 1.0 / 3.0),
        double("sqrt.rn.f64", &[2.0], 2f64.sqrt()),
        double("min.f64", &[f64::NAN, 2.0], 2.0),
        double("max.f64", &[-0.0, 0.0], 0.0),
        double("neg.f64", &[1.0], -1.0),
        double("abs.f64", &[-1.0], 1.0),
    ]);
}

#[test]
fn halves_follow_the_manual() {
    // 0x3c00 is 1, 0x0001 the smallest subnormal, 0x7bff the largest number of f16.
    check(&[
        w16("add.f16", &[0x3c00, 0x3c00], 0x4000),
        w16("add.rn.f16", &[0x3c00, 0x1000], 0x3c00),
        w16("add.rn.f16", &[0x3c00, 0x1001], 0x3c01),
        w16("sub.f16", &[0x3c00, 0x4000], 0xbc00),
        w16("mul.f16", &[0x7bff, 0x4000], 0x7c00),
        w16("mul.f16", &[0x0001, 0x3800], 0x0000),
        w16("fma.rn.f16", &[0x3c00, 0x3c00, 0x0001], 0x3c00),
        w16("fma.rn.f16", &[0x4000, 0x4200, 0x3c00], 0x4700),
        w16("fma.rn.sat.f16", &[0x4000, 0x4200, 0x3c00], 0x3c00),
        w16("fma.rn.relu.f16", &[0x4000, 0xc200, 0x3c00], 0x0000),
        w16("min.f16", &[0x7e00, 0x3c00], 0x3c00),
        w16("max.NaN.f16", &[0x7e00, 0x3c00], 0x7fff),
        w16("neg.f16", &[0x3c00], 0xbc00),
        w16("abs.f16", &[0xbc00], 0x3c00),
        w16("ex2.approx.f16", &[0x4000], 0x4400),
        w16("tanh.approx.f16", &[0x0000], 0x0000),
        w32("add.f16x2", &[0x3c00_4000, 0x3c00_3c00], 0x4000_4200),
        w32("fma.rn.f16x2", &[0x3c00_4000, 0x4200_4200, 0x0000_3c00], 0x4200_4700),
        w16("add.rn.bf16", &[0x3f80, 0x3f80], 0x4000),
        w16("ex2.approx.ftz.bf16", &[0x4000], 0x4080),
        w16("ex2.approx.ftz.bf16", &[0xc308], 0),
        w16("fma.rn.bf16", &[0x3f80, 0x4000, 0x3f80], 0x4040),
        w32("fma.rn.bf16x2", &[0x3f80_3f80, 0x4000_4040, 0x0000_0000], 0x4000_4040),
        w32("max.bf16x2", &[0x3f80_c000, 0x4000_bf80], 0x4000_bf80),
    ]);
}

#[test]
fn conversions_follow_the_manual() {
    let f = |v: f32| u64::from(v.to_bits());
    let d = |v: f64| v.to_bits();
    let b32 = |v: i32| u64::from(v as u32);
    check(&[
        mixed("cvt.u64.u32", &[(32, 0xffff_ffff)], 64, 0xffff_ffff),
        mixed("cvt.s64.s32", &[(32, 0xffff_ffff)], 64, !0),
        mixed("cvt.u32.u64", &[(64, 0x1_0000_0007)], 32, 7),
        mixed("cvt.s32.s16", &[(16, 0x8000)], 32, 0xffff_8000),
        mixed("cvt.u32.u16", &[(16, 0x8000)], 32, 0x8000),
        mixed("cvt.s32.s8", &[(32, 0x1ff)], 32, 0xffff_ffff),
        mixed("cvt.u32.u8", &[(32, 0x1ff)], 32, 0xff),
        mixed("cvt.u16.u32", &[(32, 0x1_2345)], 16, 0x2345),
        mixed("cvt.sat.u8.s32", &[(32, 300)], 32, 255),
        mixed("cvt.sat.u8.s32", &[(32, b32(-5))], 32, 0),
        mixed("cvt.sat.s8.s32", &[(32, b32(-500))], 32, 0xffff_ff80),
        mixed("cvt.s8.s32", &[(32, 0x80)], 32, 0xffff_ff80),
        mixed("cvt.sat.s32.s64", &[(64, 1 << 40)], 32, 0x7fff_ffff),
        mixed("cvt.rn.f32.s32", &[(32, b32(-7))], 32, f(-7.0)),
        mixed("cvt.rn.f32.s32", &[(32, 16_777_217)], 32, f(16_777_216.0)),
        mixed("cvt.rp.f32.s32", &[(32, 16_777_217)], 32, f(16_777_218.0)),
        mixed("cvt.rz.f32.u32", &[(32, 0xffff_ffff)], 32, f(4_294_967_040.0)),
        mixed("cvt.rn.f32.u64", &[(64, !0)], 32, f(18_446_744_073_709_551_616.0)),
        mixed("cvt.rn.f32.s64", &[(64, (1 << 60) + (1 << 36))], 32, f(1_152_921_504_606_846_976.0)),
        mixed(
            "cvt.rn.f32.s64",
            &[(64, (1 << 60) + (1 << 36) + 1)],
            32,
            f(1_152_921_642_045_800_448.0),
        ),
        mixed("cvt.rn.f64.s32", &[(32, b32(-7))], 64, d(-7.0)),
        mixed("cvt.rn.f64.u64", &[(64, !0)], 64, d(18_446_744_073_709_551_616.0)),
        mixed("cvt.rn.f16.s32", &[(32, 5)], 16, 0x4500),
        mixed("cvt.rzi.s32.f32", &[(32, f(-2.7))], 32, b32(-2)),
        mixed("cvt.rni.s32.f32", &[(32, f(2.5))], 32, 2),
        mixed("cvt.rni.s32.f32", &[(32, f(3.5))], 32, 4),
        mixed("cvt.rmi.s32.f32", &[(32, f(-2.1))], 32, b32(-3)),
        mixed("cvt.rpi.s32.f32", &[(32, f(2.1))], 32, 3),
        mixed("cvt.rzi.s32.f32", &[(32, f(3e9))], 32, 0x7fff_ffff),
        mixed("cvt.rzi.s32.f32", &[(32, f(-3e9))], 32, 0x8000_0000),
        mixed("cvt.rzi.u32.f32", &[(32, f(-3.0))], 32, 0),
        mixed("cvt.rzi.s32.f32", &[(32, u64::from(NAN))], 32, 0),
        mixed("cvt.rzi.s64.f32", &[(32, u64::from(NAN))], 64, 1 << 63),
        mixed("cvt.rzi.s32.f64", &[(64, f64::NAN.to_bits())], 32, 0x8000_0000),
        mixed("cvt.rzi.s64.f64", &[(64, d(-3.9))], 64, !2),
        mixed("cvt.rzi.u8.f32", &[(32, f(300.0))], 32, 255),
        mixed("cvt.rni.f32.f32", &[(32, f(2.5))], 32, f(2.0)),
        mixed("cvt.rmi.f32.f32", &[(32, f(-0.5))], 32, f(-1.0)),
        mixed("cvt.rzi.f32.f32", &[(32, f(-0.5))], 32, f(-0.0)),
        mixed("cvt.sat.f32.f32", &[(32, f(1.5))], 32, f(1.0)),
        mixed("cvt.ftz.f32.f32", &[(32, 1)], 32, 0),
        mixed("cvt.f64.f32", &[(32, f(0.1))], 64, d(f64::from(0.1f32))),
        mixed("cvt.rn.f32.f64", &[(64, d(0.1))], 32, f(0.1)),
        mixed("cvt.rz.f32.f64", &[(64, d(1.0 - 1e-12))], 32, 0x3f7f_ffff),
        mixed("cvt.rn.f16.f32", &[(32, f(1.0 + 1.0 / 2048.0))], 16, 0x3c00),
        mixed("cvt.rp.f16.f32", &[(32, f(1.0 + 1.0 / 4096.0))], 16, 0x3c01),
        mixed("cvt.rn.f16.f32", &[(32, f(1e6))], 16, 0x7c00),
        mixed("cvt.rz.f16.f32", &[(32, f(1e6))], 16, 0x7bff),
        mixed("cvt.f32.f16", &[(16, 0x0001)], 32, f(2f32.powi(-24))),
        mixed("cvt.f64.f16", &[(16, 0xc000)], 64, d(-2.0)),
        mixed("cvt.rn.bf16.f32", &[(32, 0x3f80_8000)], 16, 0x3f80),
        mixed("cvt.rn.bf16.f32", &[(32, 0x3f81_8000)], 16, 0x3f82),
        mixed("cvt.rz.bf16.f32", &[(32, 0x3f80_ffff)], 16, 0x3f80),
        mixed("cvt.rn.relu.bf16.f32", &[(32, f(-3.0))], 16, 0),
        mixed("cvt.f32.bf16", &[(16, 0x4040)], 32, f(3.0)),
        mixed("cvt.rn.f16x2.f32", &[(32, f(1.0)), (32, f(2.0))], 32, 0x3c00_4000),
        mixed("cvt.rn.bf16x2.f32", &[(32, f(1.0)), (32, f(3.0))], 32, 0x3f80_4040),
        mixed("cvt.rn.satfinite.e4m3x2.f32", &[(32, f(448.0)), (32, f(1.0))], 16, 0x7e38),
        mixed("cvt.rn.satfinite.e4m3x2.f32", &[(32, f(-1e9)), (32, u64::from(NAN))], 16, 0xfe7f),
        mixed("cvt.rn.satfinite.e4m3x2.f32", &[(32, f(0.001)), (32, f(-0.015625))], 16, 0x0188),
        mixed("cvt.rn.satfinite.e5m2x2.f32", &[(32, f(1e9)), (32, f(-1.0))], 16, 0x7bbc),
        mixed("cvt.rn.f16x2.e4m3x2", &[(16, 0x7e01)], 32, 0x5f00_1800),
        mixed("cvt.rn.f16x2.e5m2x2", &[(16, 0x7c3c)], 32, 0x7c00_3c00),
        mixed("cvt.rna.tf32.f32", &[(32, 0x3f80_1000)], 32, 0x3f80_2000),
        mixed("cvt.rn.tf32.f32", &[(32, 0x3f80_1000)], 32, 0x3f80_0000),
        mixed("cvt.rna.tf32.f32", &[(32, 0x3f80_0fff)], 32, 0x3f80_0000),
    ]);
}

#[test]
fn comparisons_that_set_values_follow_the_manual() {
    let nan = NAN;
    let (one, two) = (1f32.to_bits(), 2f32.to_bits());
    check(&[
        w32("set.lt.u32.s32", &[!0, 1], !0),
        w32("set.lt.u32.u32", &[!0, 1], 0),
        w32("set.eq.f32.s32", &[5, 5], one),
        w32("set.lt.u32.f32", &[one, two], !0),
        w32("set.lt.u32.f32", &[one, nan], 0),
        w32("set.ltu.u32.f32", &[one, nan], !0),
        w32("set.ne.u32.f32", &[one, nan], 0),
        w32("set.neu.u32.f32", &[one, nan], !0),
        w32("set.eq.u32.f32", &[nan, nan], 0),
        w32("set.equ.u32.f32", &[nan, nan], !0),
        w32("set.ge.u32.f32", &[two, one], !0),
        w32("set.leu.u32.f32", &[two, one], 0),
        w32("set.geu.u32.f32", &[one, nan], !0),
        w32("set.gtu.u32.f32", &[two, one], !0),
        w32("set.num.u32.f32", &[one, two], !0),
        w32("set.nan.u32.f32", &[one, nan], !0),
        w32("set.eq.u32.f32", &[0, MIN32], !0),
        w32("set.eq.ftz.u32.f32", &[1, 0], !0),
        w32("set.hi.u32.u32", &[2, 1], !0),
        w32("set.ls.u32.u32", &[2, 1], 0),
        mixed("set.gt.u32.f64", &[(64, 2f64.to_bits()), (64, 1f64.to_bits())], 32, 0xffff_ffff),
        mixed("set.lt.u32.s64", &[(64, !0), (64, 0)], 32, 0xffff_ffff),
        mixed("set.lt.u32.s16", &[(16, 0xffff), (16, 0)], 32, 0xffff_ffff),
    ]);
}

/// Runs the body of a kernel with one warp; `out` has a 32-bit word for each lane.
fn warp(decls: &str, body: &str) -> Vec<u32> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 p) {{\n\
         .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b16 %h<8>; .reg .b64 %rd<8>;\n{decls}\n\
         ld.param.u64 %rd0, [p];\nmov.u32 %r0, %laneid;\n\
         mul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd0, %rd0, %rd1;\n{body}\n\
         st.global.u32 [%rd0], %r1;\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let out = memory.output("out", 128);
    let launch = Launch::new(&module, "t").block([32, 1, 1]).buffer(out);
    let report = launch.run(&mut memory).unwrap();
    assert!(report.is_clean(), "{report}");
    memory.read(out)
}

fn lanes(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles_and_votes_follow_the_manual() {
    let out = warp("", "shfl.sync.bfly.b32 %r1, %r0, 5, 31, -1;");
    assert_eq!(out, lanes(|i| i ^ 5));
    let out = warp("", "shfl.sync.up.b32 %r1|%p0, %r0, 3, 0, -1; @!%p0 mov.u32 %r1, 99;");
    assert_eq!(out, lanes(|i| if i < 3 { 99 } else { i - 3 }));
    let out = warp("", "shfl.sync.down.b32 %r1|%p0, %r0, 4, 0x181f, -1; @!%p0 mov.u32 %r1, 99;");
    assert_eq!(out, lanes(|i| if i % 8 < 4 { i + 4 } else { 99 }));
    let out = warp("", "shfl.sync.idx.b32 %r1, %r0, 7, 31, 0xffffffff;");
    assert_eq!(out, lanes(|_| 7));
    let out = warp("", "setp.lt.u32 %p0, %r0, 5; vote.sync.ballot.b32 %r1, %p0, -1;");
    assert_eq!(out, lanes(|_| 31));
    let vote = |kind: &str| {
        warp(
            "",
            &format!(
                "setp.lt.u32 %p0, %r0, 5; vote.sync.{kind}.pred %p1, %p0, -1; \
                 selp.u32 %r1, 1, 0, %p1;"
            ),
        )[0]
    };
    assert_eq!([vote("all"), vote("any"), vote("uni")], [0, 1, 0]);
    let out = warp("", "and.b32 %r2, %r0, 1; match.any.sync.b32 %r1, %r2, -1;");
    assert_eq!(out, lanes(|i| if i % 2 == 0 { 0x5555_5555 } else { 0xaaaa_aaaa }));
    assert_eq!(warp("", "redux.sync.add.s32 %r1, %r0, -1;"), lanes(|_| 496));
    assert_eq!(warp("", "sub.s32 %r2, %r0, 3; redux.sync.min.s32 %r1, %r2, -1;"), lanes(|_| !2));
    assert_eq!(warp("", "redux.sync.xor.b32 %r1, %r0, -1;"), lanes(|_| 0));
    assert_eq!(warp("", "activemask.b32 %r1;"), lanes(|_| !0));
    assert_eq!(warp("", "mov.u32 %r1, %lanemask_lt;"), lanes(|i| (1 << i) - 1));
    let out = warp("", "elect.sync %r1|%p0, -1; @%p0 mov.u32 %r1, 77;");
    assert_eq!(out, lanes(|i| if i == 0 { 77 } else { 0 }));
}

#[test]
fn predicates_and_moves_follow_the_manual() {
    let out = warp(
        "",
        "setp.ge.u32 %p2, %r0, 4; setp.lt.and.u32 %p0|%p1, %r0, 8, %p2;
         selp.u32 %r1, 1, 0, %p0; @%p1 add.u32 %r1, %r1, 2;",
    );
    // The second predicate is the negated comparison, combined in the same way.
    assert_eq!(
        out,
        lanes(|i| if (4..8).contains(&i) {
            1
        } else if i >= 8 {
            2
        } else {
            0
        })
    );
    let out = warp(
        "",
        "setp.gt.u32 %p0, %r0, 3; not.pred %p1, %p0; and.pred %p1, %p1, %p0; \
         or.pred %p1, %p1, %p0; xor.pred %p1, %p1, 1; selp.u32 %r1, 1, 0, %p1;",
    );
    assert_eq!(out, lanes(|i| u32::from(i <= 3)));
    let out = warp("", "mov.b64 %rd2, {%r0, %r0}; shr.u64 %rd2, %rd2, 32; mov.b64 {%r1, _}, %rd2;");
    assert_eq!(out, lanes(|i| i));
    let out = warp("", "mov.b32 {%h0, %h1}, %r0; mov.b32 %r1, {%h1, %h0};");
    assert_eq!(out, lanes(|i| i << 16));
    let out = warp("", "add.cc.u32 %r2, %r0, -1; addc.u32 %r1, 0, 0;");
    assert_eq!(out, lanes(|i| u32::from(i > 0)));
    let out = warp("", "sub.cc.u32 %r2, %r0, 1; subc.u32 %r1, 5, 0;");
    assert_eq!(out, lanes(|i| if i == 0 { 4 } else { 5 }));
    let out =
        warp("", "cvt.rn.f32.u32 %r2, %r0; testp.normal.f32 %p0, %r2; selp.u32 %r1, 1, 0, %p0;");
    assert_eq!(out, lanes(|i| u32::from(i > 0)));
}

#[test]
fn divergence_and_loops_follow_the_manual() {
    // The length of the 3n + 1 sequence, which differs by lane.
    let body = "
        add.u32 %r2, %r0, 1;
        mov.u32 %r1, 0;
    LOOP:
        setp.eq.u32 %p0, %r2, 1;
        @%p0 bra DONE;
        and.b32 %r3, %r2, 1;
        setp.eq.u32 %p1, %r3, 0;
        @%p1 bra EVEN;
        mad.lo.u32 %r2, %r2, 3, 1;
        bra NEXT;
    EVEN:
        shr.u32 %r2, %r2, 1;
    NEXT:
        add.u32 %r1, %r1, 1;
        bra.uni LOOP;
    DONE:
        bar.sync 0;";
    let steps = |i: u32| {
        let (mut n, mut count) = (i + 1, 0);
        while n != 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            count += 1;
        }
        count
    };
    assert_eq!(warp("", body), lanes(steps));
    let body = "
        and.b32 %r2, %r0, 3;
        TABLE: .branchtargets A, B, C, A;
        brx.idx %r2, TABLE;
        A: mov.u32 %r1, 10; bra END;
        B: mov.u32 %r1, 20; bra END;
        C: mov.u32 %r1, 30;
        END: bar.warp.sync -1;";
    assert_eq!(warp("", body), lanes(|i| [10, 20, 30, 10][i as usize & 3]));
}

#[test]
fn memory_of_all_kinds_follows_the_manual() {
    // Sign and zero extension, vectors, generic addresses of shared and local memory.
    let shared = ".shared .align 16 .b8 s[256];";
    let body = "
        mov.u32 %r2, s; shl.b32 %r3, %r0, 2; add.u32 %r2, %r2, %r3;
        neg.s32 %r4, %r0; st.shared.s8 [%r2], %r4; st.shared.u8 [%r2+1], 7;
        cvt.u16.u32 %h0, %r0; st.shared.u16 [%r2+2], %h0;
        bar.sync 0;
        ld.shared.s8 %r5, [%r2]; ld.shared.u8 %r6, [%r2+1]; ld.shared.u16 %r7, [%r2+2];
        add.s32 %r1, %r5, %r6; add.s32 %r1, %r1, %r7;";
    assert_eq!(warp(shared, body), lanes(|_| 7));
    let local = ".local .align 8 .b8 l[32]; .shared .align 16 .b8 s[256];";
    let body = "
        mov.u64 %rd2, l; cvta.local.u64 %rd2, %rd2;
        st.v2.u32 [%rd2+8], {%r0, 5}; ld.local.v2.u32 {%r2, %r3}, [l+8];
        mov.u64 %rd3, s; cvta.shared.u64 %rd3, %rd3; mul.wide.u32 %rd4, %r0, 4;
        add.u64 %rd3, %rd3, %rd4; st.u32 [%rd3], %r2; ld.u32 %r4, [%rd3];
        isspacep.shared %p0, %rd3; selp.u32 %r5, 100, 0, %p0;
        add.u32 %r1, %r4, %r3; add.u32 %r1, %r1, %r5;";
    assert_eq!(warp(local, body), lanes(|i| i + 105));
}

#[test]
fn atomics_follow_the_manual() {
    let shared = ".shared .align 8 .b8 s[64];";
    let zero = "setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [s], 5; bar.sync 0;";
    let run = |op: &str| {
        let body = format!("{zero} {op} bar.sync 0; ld.shared.u32 %r1, [s];");
        warp(shared, &body)[0]
    };
    assert_eq!(run("red.shared.add.u32 [s], %r0;"), 5 + 496);
    assert_eq!(run("atom.shared.max.u32 %r2, [s], %r0;"), 31);
    assert_eq!(run("atom.shared.min.s32 %r2, [s], %r0;"), 0);
    assert_eq!(run("red.shared.or.b32 [s], %r0;"), 31);
    assert_eq!(run("red.shared.xor.b32 [s], 1;"), 5);
    assert_eq!(run("atom.shared.inc.u32 %r2, [s], 9;"), (5 + 32) % 10);
    assert_eq!(run("atom.shared.dec.u32 %r2, [s], 9;"), 3);
    assert_eq!(run("atom.shared.exch.b32 %r2, [s], 8;"), 8);
    assert_eq!(run("atom.shared.cas.b32 %r2, [s], 5, 6;"), 6);
    let sum = run("cvt.rn.f32.u32 %r3, %r0; atom.shared.exch.b32 %r2, [s], 0; bar.sync 0; \
         red.shared.add.f32 [s], %r3;");
    assert_eq!(f32::from_bits(sum), 496.0);
}

#[test]
fn barriers_reduce_and_have_names() {
    let out = warp("", "setp.lt.u32 %p0, %r0, 9; bar.red.popc.u32 %r1, 0, %p0;");
    assert_eq!(out, lanes(|_| 9));
    let out = warp(
        "",
        "setp.lt.u32 %p0, %r0, 9; barrier.red.or.pred %p1, 3, 32, !%p0; selp.u32 %r1, 1, 0, %p1;",
    );
    assert_eq!(out, lanes(|_| 1));
    // Two warps: one writes and arrives, the other waits and reads.
    let text = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry t(.param .u64 p) {
    .shared .align 4 .b8 s[128];
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [p];
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 31;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, s;
    add.u32 %r3, %r3, %r2;
    setp.ge.u32 %p0, %r0, 32;
    @%p0 bra CONSUMER;
    st.shared.u32 [%r3], %r0;
    bar.arrive 1, 64;
    bra END;
CONSUMER:
    bar.sync 1, 64;
    ld.shared.u32 %r4, [%r3];
    cvt.u64.u32 %rd1, %r2;
    add.u64 %rd0, %rd0, %rd1;
    st.global.u32 [%rd0], %r4;
END:
    ret;
}";
    let run = |text: &str| {
        let module = Module::parse(text).unwrap();
        let mut memory = Memory::new();
        let out = memory.output("out", 128);
        let launch = Launch::new(&module, "t").block([64, 1, 1]).buffer(out);
        let report = launch.run_twice(&mut memory).unwrap();
        (report, memory.read::<u32>(out))
    };
    let (report, out) = run(text);
    assert!(report.is_clean(), "{report}");
    assert_eq!(out, lanes(|i| i));
    let (report, _) = run(&text.replace("bar.sync 1, 64;", ""));
    assert!(report.has(nvptx_emulator::FindingKind::SharedRace), "{report}");
}

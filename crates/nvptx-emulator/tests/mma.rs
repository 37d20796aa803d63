//! Compares matrix instructions with scalar products; fragments follow the tables of the ISA: group
//! `g = lane / 4`, thread of the group `t = lane % 4`.

mod common;

use common::numbers;
use half::{bf16, f16};
use nvptx_emulator::{Launch, Memory, Module};

/// Runs an instruction in a warp. `a`, `b` and `c` hold the registers of all lanes, register by
/// register. Returns the `count` registers of the result.
fn run(op: &str, bits: usize, a: &[u64], b: &[u64], c: &[u64], count: usize) -> Vec<u64> {
    let bytes = bits / 8;
    let mut body = String::new();
    let mut list = |name: &str, pointer: &str, regs: usize, loads: bool, width: usize| {
        let names: Vec<_> = (0..regs).map(|i| format!("%{name}{i}")).collect();
        if loads {
            for (i, reg) in names.iter().enumerate() {
                let at = i * 32 * 8;
                body += &format!("ld.global.b{width} {reg}, [{pointer}+{at}];\n");
            }
        }
        format!("{{{}}}", names.join(", "))
    };
    let ra = list("a", "%pa", a.len() / 32, true, bits);
    let rb = list("b", "%pb", b.len() / 32, true, bits);
    let rc = list("c", "%pc", c.len() / 32, true, bits);
    let rd = list("d", "%pd", count, false, bits);
    body += &format!("{op} {rd}, {ra}, {rb}, {rc};\n");
    for i in 0..count {
        body += &format!("st.global.b{bits} [%pd+{}], %d{i};\n", i * 32 * 8);
    }
    let text = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.entry t(.param .u64 a, .param .u64 b, \
         .param .u64 c, .param .u64 d) {{\n.reg .b{bits} %a<8>, %b<8>, %c<8>, %d<8>;\n\
         .reg .b64 %pa, %pb, %pc, %pd, %at; .reg .b32 %lane;\nmov.u32 %lane, %tid.x;\n\
         mul.wide.u32 %at, %lane, 8;\nld.param.u64 %pa, [a];\nld.param.u64 %pb, [b];\n\
         ld.param.u64 %pc, [c];\nld.param.u64 %pd, [d];\nadd.u64 %pa, %pa, %at;\n\
         add.u64 %pb, %pb, %at;\nadd.u64 %pc, %pc, %at;\nadd.u64 %pd, %pd, %at;\n{body}ret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let [pa, pb, pc] = [a, b, c].map(|v| memory.input("in", v));
    let pd = memory.workspace("d", 8 * 32 * count);
    let launch = Launch::new(&module, "t").block([32, 1, 1]);
    let launch = launch.buffer(pa).buffer(pb).buffer(pc).buffer(pd);
    let report = launch.run(&mut memory).unwrap();
    assert!(report.is_clean(), "{report}");
    let mask = if bytes == 8 { !0 } else { 0xffff_ffff };
    memory.read::<u64>(pd).into_iter().map(|v| v & mask).collect()
}

/// Returns registers by lane, from a function of group, thread and register.
fn fragment(regs: usize, f: impl Fn(usize, usize, usize) -> u64) -> Vec<u64> {
    (0..regs * 32).map(|i| f(i % 32 / 4, i % 4, i / 32)).collect()
}

/// Returns the row and column of a register, group and thread in a 16x8 or 8x8 result.
fn place(reg: usize, g: usize, t: usize) -> (usize, usize) {
    (g + 8 * (reg / 2), 2 * t + reg % 2)
}

fn bits(v: f32) -> u64 {
    v.to_bits().into()
}

/// Returns a matrix of small numbers that are exact with 8 bits of mantissa.
fn matrix(rows: usize, columns: usize, seed: u64) -> Vec<Vec<f32>> {
    let values = numbers(rows * columns, seed);
    values.chunks(columns).map(|r| r.iter().map(|v| (v * 16.0).round() / 8.0).collect()).collect()
}

fn expected(a: &[Vec<f32>], b: &[Vec<f32>], c: &[Vec<f32>], i: usize, j: usize) -> f32 {
    let sum: f64 = (0..b.len()).map(|k| f64::from(a[i][k]) * f64::from(b[k][j])).sum();
    (sum + f64::from(c[i][j])) as f32
}

fn pair(low: f32, high: f32, half: fn(f32) -> u16) -> u64 {
    u64::from(half(low)) | u64::from(half(high)) << 16
}

#[test]
fn halves_are_multiplied() {
    type Half = fn(f32) -> u16;
    let kinds: [(&str, Half); 2] =
        [("f16", |v| f16::from_f32(v).to_bits()), ("bf16", |v| bf16::from_f32(v).to_bits())];
    for (name, half) in kinds {
        for k in [16, 8] {
            let (a, b, c) = (matrix(16, k, 1), matrix(k, 8, 2), matrix(16, 8, 3));
            let fa = fragment(k / 4, |g, t, r| {
                let (row, column) = (g + 8 * (r % 2), 2 * t + 8 * (r / 2));
                pair(a[row][column], a[row][column + 1], half)
            });
            let fb =
                fragment(k / 8, |g, t, r| pair(b[2 * t + 8 * r][g], b[2 * t + 1 + 8 * r][g], half));
            let fc = fragment(4, |g, t, r| {
                let (row, column) = place(r, g, t);
                bits(c[row][column])
            });
            let op = format!("mma.sync.aligned.m16n8k{k}.row.col.f32.{name}.{name}.f32");
            let got = run(&op, 32, &fa, &fb, &fc, 4);
            let wanted = fragment(4, |g, t, r| {
                let (row, column) = place(r, g, t);
                bits(expected(&a, &b, &c, row, column))
            });
            assert_eq!(got, wanted, "{op}");
        }
    }
}

#[test]
fn halves_are_added_to_half_accumulators() {
    let half = |v| f16::from_f32(v).to_bits();
    let (a, b, c) = (matrix(16, 8, 1), matrix(8, 8, 2), matrix(16, 8, 3));
    let fa = fragment(2, |g, t, r| pair(a[g + 8 * r][2 * t], a[g + 8 * r][2 * t + 1], half));
    let fb = fragment(1, |g, t, _| pair(b[2 * t][g], b[2 * t + 1][g], half));
    let fc = fragment(2, |g, t, r| pair(c[g + 8 * r][2 * t], c[g + 8 * r][2 * t + 1], half));
    let got = run("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", 32, &fa, &fb, &fc, 2);
    let wanted = fragment(2, |g, t, r| {
        let at = |j| expected(&a, &b, &c, g + 8 * r, 2 * t + j);
        pair(at(0), at(1), half)
    });
    assert_eq!(got, wanted);
}

#[test]
fn tf32_numbers_are_multiplied() {
    for k in [8, 4] {
        let (a, b, c) = (matrix(16, k, 4), matrix(k, 8, 5), matrix(16, 8, 6));
        // The low bits of the operands are ignored.
        let junk = 0x1fff;
        let fa = fragment(k / 2, |g, t, r| bits(a[g + 8 * (r % 2)][t + 4 * (r / 2)]) | junk);
        let fb = fragment(k / 4, |g, t, r| bits(b[t + 4 * r][g]) | junk);
        let fc = fragment(4, |g, t, r| {
            let (row, column) = place(r, g, t);
            bits(c[row][column])
        });
        let op = format!("mma.sync.aligned.m16n8k{k}.row.col.f32.tf32.tf32.f32");
        let wanted = fragment(4, |g, t, r| {
            let (row, column) = place(r, g, t);
            bits(expected(&a, &b, &c, row, column))
        });
        assert_eq!(run(&op, 32, &fa, &fb, &fc, 4), wanted, "{op}");
    }
}

#[test]
fn floats_of_eight_bits_are_multiplied() {
    // Powers of two times 1 or 1.5, as bits of e4m3 (bias 7) and e5m2 (bias 15).
    let e4m3 = |i: usize| ((6 + i % 3) << 3 | (i % 2) << 2) as u64;
    let e5m2 = |i: usize| ((14 + i % 3) << 2 | (i % 2) << 1) as u64;
    let value = |i: usize| (1.0 + (i % 2) as f32 / 2.0) * 2f32.powi(i as i32 % 3 - 1);
    for (sa, sb) in [("e4m3", "e5m2"), ("e5m2", "e5m2"), ("e4m3", "e4m3")] {
        let bits = |kind: &str, i: usize| if kind == "e4m3" { e4m3(i) } else { e5m2(i) };
        let four = |f: &dyn Fn(usize) -> u64| (0..4).fold(0, |v, i| v | f(i) << (8 * i));
        let at = |i: usize, j: usize| i * 5 + j * 3;
        let fa = fragment(4, |g, t, r| {
            four(&|i| bits(sa, at(g + 8 * (r % 2), 4 * t + i + 16 * (r / 2))))
        });
        let fb = fragment(2, |g, t, r| four(&|i| bits(sb, at(4 * t + i + 16 * r, g + 1))));
        let fc = fragment(4, |_, _, r| self::bits(r as f32));
        let op = format!("mma.sync.aligned.m16n8k32.row.col.f32.{sa}.{sb}.f32");
        let wanted = fragment(4, |g, t, r| {
            let (row, column) = place(r, g, t);
            let products = (0..32).map(|k| value(at(row, k)) * value(at(k, column + 1)));
            self::bits(products.sum::<f32>() + r as f32)
        });
        assert_eq!(run(&op, 32, &fa, &fb, &fc, 4), wanted, "{op}");
    }
}

#[test]
fn bytes_are_multiplied() {
    let value = |i: usize, j: usize, seed: usize| (i * 37 + j * 101 + seed * 59) as u8;
    let wide = |v: u8, signed: bool| if signed { i64::from(v as i8) } else { i64::from(v) };
    for (shape, rows, k) in [("m16n8k32", 16, 32), ("m16n8k16", 16, 16), ("m8n8k16", 8, 16)] {
        for (sa, sb) in [(true, true), (false, true), (true, false), (false, false)] {
            let four =
                |f: &dyn Fn(usize) -> u8| (0..4).fold(0, |v, i| v | u64::from(f(i)) << (8 * i));
            let blocks = rows / 8;
            let fa = fragment(rows * k / 128, |g, t, r| {
                four(&|i| value(g + 8 * (r % blocks), 4 * t + i + 16 * (r / blocks), 1))
            });
            let fb = fragment(k / 16, |g, t, r| four(&|i| value(4 * t + i + 16 * r, g, 2)));
            let fc = fragment(rows / 4, |g, t, r| (g * 1000 + t * 10 + r) as u64);
            let name = |signed| if signed { "s8" } else { "u8" };
            let op = format!("mma.sync.aligned.{shape}.row.col.s32.{}.{}.s32", name(sa), name(sb));
            let wanted = fragment(rows / 4, |g, t, r| {
                let (row, column) = place(r, g, t);
                let sum: i64 = (0..k)
                    .map(|i| wide(value(row, i, 1), sa) * wide(value(i, column, 2), sb))
                    .sum();
                (sum + (g * 1000 + t * 10 + r) as i64) as u32 as u64
            });
            assert_eq!(run(&op, 32, &fa, &fb, &fc, rows / 4), wanted, "{op}");
        }
    }
    // Saturation.
    let fa = fragment(4, |_, _, _| 0x7f7f_7f7f);
    let fb = fragment(2, |_, _, _| 0x7f7f_7f7f);
    let fc = fragment(4, |_, _, _| 0x7fff_ff00);
    let op = "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32";
    assert_eq!(run(op, 32, &fa, &fb, &fc, 4), fragment(4, |_, _, _| 0x7fff_ffff));
}

#[test]
fn doubles_are_multiplied() {
    let (a, b, c) = (matrix(8, 4, 7), matrix(4, 8, 8), matrix(8, 8, 9));
    let wide = |v: f32| f64::from(v).to_bits();
    let fa = fragment(1, |g, t, _| wide(a[g][t]));
    let fb = fragment(1, |g, t, _| wide(b[t][g]));
    let fc = fragment(2, |g, t, r| wide(c[g][2 * t + r]));
    let wanted = fragment(2, |g, t, r| wide(expected(&a, &b, &c, g, 2 * t + r)));
    let op = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64";
    assert_eq!(run(op, 64, &fa, &fb, &fc, 2), wanted);
}

#[test]
fn matrices_of_shared_memory_are_loaded() {
    // Thread t of group g receives columns 2t and 2t + 1 of row g, or their transposes.
    let body = |trans: &str| {
        format!(
            ".version 8.4\n.target sm_90\n.address_size 64\n.entry t(.param .u64 p) {{\n\
             .shared .align 16 .b8 s[512]; .shared .align 16 .b8 u[512];\n\
             .reg .b32 %r<16>; .reg .b64 %rd<4>; .reg .b16 %h<2>;\n\
             ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, s;\n\
             add.u32 %r2, %r2, %r1; shl.b32 %r3, %r0, 3; mul.wide.u32 %rd1, %r0, 16;\n\
             add.u64 %rd0, %rd0, %rd1;\n{}\
             bar.sync 0; ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16\n\
             {{%r4, %r5, %r6, %r7}}, [%r2];\n\
             mov.u32 %r9, u; add.u32 %r9, %r9, %r1;\n\
             stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r9], {{%r4, %r5, %r6, %r7}};\n\
             bar.sync 0; ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r9];\n\
             st.global.v4.u32 [%rd0], {{%r4, %r5, %r6, %r7}};\n\
             st.global.v4.u32 [%rd0+512], {{%r10, %r11, %r12, %r13}}; ret;\n}}\n",
            (0..8)
                .map(|i| format!(
                    "add.u32 %r8, %r3, {i}; cvt.u16.u32 %h0, %r8; st.shared.u16 [%r2+{}], %h0;\n",
                    2 * i
                ))
                .collect::<String>()
        )
    };
    for trans in ["", ".trans"] {
        let module = Module::parse(&body(trans)).unwrap();
        let mut memory = Memory::new();
        let out = memory.output("out", 1024);
        let launch = Launch::new(&module, "t").block([32, 1, 1]).buffer(out);
        let report = launch.run(&mut memory).unwrap();
        assert!(report.is_clean(), "{report}");
        let got = memory.read::<u16>(out);
        for (lane, values) in got[..256].chunks(8).enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            for (i, value) in values.iter().enumerate() {
                let (matrix, column) = (i / 2, 2 * t + i % 2);
                let (row, column) = if trans.is_empty() { (g, column) } else { (column, g) };
                // Row `row` of matrix `m` was written by lane 8 m + row.
                assert_eq!(usize::from(*value), (8 * matrix + row) * 8 + column, "lane {lane}");
            }
        }
        // `stmatrix` is the inverse of `ldmatrix`.
        assert!(got[256..].iter().enumerate().all(|(i, v)| i == usize::from(*v)), "{trans}");
    }
}

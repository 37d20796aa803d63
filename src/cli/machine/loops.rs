//! Loops that reach the limits of a machine: multiply-adds on registers, and streams through
//! memory. On x86-64 they are inline assembly, so that no optimizer changes what is measured;
//! elsewhere they are Rust loops.

use super::{Isa, Numbers};

/// A cache line, aligned for every vector load.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [f32; 16]);

/// Lines of one step of a stream; the size of an array is a multiple.
pub const STEP: usize = 4;

/// Runs multiply-adds on registers, and returns the number of operations.
pub fn multiply_add(isa: Isa, numbers: Numbers, iterations: u64) -> f64 {
    let bytes = match isa {
        Isa::Avx512 => 64.0,
        Isa::Avx2 => 32.0,
        Isa::Sse => 16.0,
        Isa::Portable => return portable::multiply_add(numbers, iterations),
    };
    x86::multiply_add(isa, numbers, iterations);
    // SSE has no fused multiply-add: half of its 28 instructions multiply, half add.
    let floats = if isa == Isa::Sse { 28.0 } else { 56.0 };
    let operations = match numbers {
        Numbers::Float32 => floats * bytes / 4.0,
        Numbers::Float64 => floats * bytes / 8.0,
        // A product and a sum for each byte, by one instruction or by three.
        Numbers::Int8 => 56.0 * bytes,
    };
    iterations as f64 * operations
}

/// Reads an array once.
pub fn read(isa: Isa, from: &[Line]) {
    assert_eq!(from.len() % STEP, 0, "a whole number of steps");
    match isa {
        Isa::Portable => portable::read(from),
        _ => x86::read(isa, from),
    }
}

/// `c = a + s * b` once.
pub fn triad(isa: Isa, c: &mut [Line], a: &[Line], b: &[Line]) {
    assert!(c.len() == a.len() && a.len() == b.len(), "three arrays of one length");
    assert_eq!(c.len() % STEP, 0, "a whole number of steps");
    match isa {
        Isa::Portable => portable::triad(c, a, b),
        _ => x86::triad(isa, c, a, b),
    }
}

/// Portable Rust loops.
mod portable {
    use super::{Line, Numbers};
    use std::hint::black_box;

    pub fn multiply_add(numbers: Numbers, iterations: u64) -> f64 {
        const CHAINS: usize = 32;
        if numbers == Numbers::Int8 {
            let x: [i8; CHAINS] = black_box([3; CHAINS]);
            let mut sums = [0_i32; CHAINS];
            for _ in 0..iterations {
                let y = black_box(5_i8);
                let terms = sums.iter_mut().zip(x);
                terms.for_each(|(sum, x)| *sum = sum.wrapping_add(i32::from(x) * i32::from(y)));
            }
            black_box(sums);
        } else if numbers == Numbers::Float64 {
            let (x, y) = black_box((0.999_f64, 0.001_f64));
            let mut sums = [y; CHAINS];
            for _ in 0..iterations {
                sums.iter_mut().for_each(|sum| *sum = *sum * x + y);
            }
            black_box(sums);
        } else {
            let (x, y) = black_box((0.999_f32, 0.001_f32));
            let mut sums = [y; CHAINS];
            for _ in 0..iterations {
                sums.iter_mut().for_each(|sum| *sum = *sum * x + y);
            }
            black_box(sums);
        }
        iterations as f64 * 2.0 * CHAINS as f64
    }

    pub fn read(from: &[Line]) {
        let mut sums = [0.0_f32; 16];
        for line in from {
            sums.iter_mut().zip(&line.0).for_each(|(sum, value)| *sum += value);
        }
        black_box(sums);
    }

    pub fn triad(c: &mut [Line], a: &[Line], b: &[Line]) {
        let scale = black_box(3.0_f32);
        for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
            for ((c, a), b) in c.0.iter_mut().zip(&a.0).zip(&b.0) {
                *c = a + scale * b;
            }
        }
        black_box(c);
    }
}

/// Other architectures have no such loops.
#[cfg(not(target_arch = "x86_64"))]
mod x86 {
    use super::super::{Isa, Numbers};
    use super::Line;

    pub fn multiply_add(isa: Isa, _numbers: Numbers, _iterations: u64) {
        crate::bug!("{isa:?} is not of this machine");
    }

    pub fn read(isa: Isa, _from: &[Line]) {
        crate::bug!("{isa:?} is not of this machine");
    }

    pub fn triad(isa: Isa, _c: &mut [Line], _a: &[Line], _b: &[Line]) {
        crate::bug!("{isa:?} is not of this machine");
    }
}

/// Instructions for each width. Registers 0 to 13 hold the results of arithmetic, 14 and 15 the
/// operands.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::{Isa, Numbers};
    use super::Line;
    use std::arch::asm;

    /// Fourteen instructions on registers 0 to 13; two ports with a latency of four need eight.
    macro_rules! fourteen {
        ($before:literal, $reg:literal, $after:literal) => {
            fourteen!($before, $reg, $after, 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
        };
        ($before:literal, $reg:literal, $after:literal, $($n:literal)*) => {
            concat!($($before, " ", $reg, $n, $after, "\n",)*)
        };
    }

    /// A loop of 28 arithmetic steps on a register each: `$body` holds fourteen.
    macro_rules! register_loop {
        ($name:ident, $features:literal, $load:literal, $reg:literal, $body:expr, $end:literal) => {
            #[target_feature(enable = $features)]
            fn $name(iterations: u64, x: &Line, y: &Line) {
                // SAFETY: reads one line from each reference, and changes only the registers named
                // below; the function's features have every instruction.
                unsafe {
                    asm!(
                        concat!($load, " ", $reg, "14, [{x}]"),
                        concat!($load, " ", $reg, "15, [{y}]"),
                        fourteen!($load, $reg, ", [{y}]"),
                        "2:",
                        $body,
                        $body,
                        "dec {n}",
                        "jnz 2b",
                        $end,
                        x = in(reg) x, y = in(reg) y, n = inout(reg) iterations => _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                        out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                        out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                        out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                        options(nostack, readonly),
                    );
                }
            }
        };
    }

    macro_rules! fused {
        ($suffix:literal, $reg:literal) => {
            fused!($suffix, $reg, 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
        };
        ($suffix:literal, $reg:literal, $($n:literal)*) => {
            concat!($("vfmadd213", $suffix, " ", $reg, $n, ", ", $reg, "14, ", $reg, "15\n",)*)
        };
    }

    macro_rules! separate {
        ($suffix:literal, $($even:literal $odd:literal)*) => {
            concat!($(
                "mul", $suffix, " xmm", $even, ", xmm14\n",
                "add", $suffix, " xmm", $odd, ", xmm15\n",
            )*)
        };
    }

    register_loop!(zmm_f32, "avx512f", "vmovups", "zmm", fused!("ps", "zmm"), "vzeroupper");
    register_loop!(zmm_f64, "avx512f", "vmovups", "zmm", fused!("pd", "zmm"), "vzeroupper");
    register_loop!(ymm_f32, "avx2,fma", "vmovups", "ymm", fused!("ps", "ymm"), "vzeroupper");
    register_loop!(ymm_f64, "avx2,fma", "vmovups", "ymm", fused!("pd", "ymm"), "vzeroupper");
    register_loop!(
        xmm_f32,
        "sse2",
        "movups",
        "xmm",
        separate!("ps", 0 1 2 3 4 5 6 7 8 9 10 11 12 13),
        ""
    );
    register_loop!(
        xmm_f64,
        "sse2",
        "movups",
        "xmm",
        separate!("pd", 0 1 2 3 4 5 6 7 8 9 10 11 12 13),
        ""
    );

    macro_rules! pairs {
        ($reg:literal) => {
            pairs!($reg, 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
        };
        ($reg:literal, $($n:literal)*) => {
            concat!($("vpdpbusd ", $reg, $n, ", ", $reg, "14, ", $reg, "15\n",)*)
        };
    }

    /// The same by three instructions: products of pairs, sums of four, and the accumulation.
    macro_rules! pairs_apart {
        ($reg:literal) => {
            pairs_apart!($reg, 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
        };
        ($reg:literal, $($n:literal)*) => {
            concat!($(
                "vpmaddubsw ", $reg, $n, ", ", $reg, "14, ", $reg, "15\n",
                "vpmaddwd ", $reg, $n, ", ", $reg, $n, ", ", $reg, "14\n",
                "vpaddd ", $reg, $n, ", ", $reg, $n, ", ", $reg, "15\n",
            )*)
        };
    }

    macro_rules! pairs_in_place {
        ($($n:literal)*) => {
            concat!($(
                "pmaddubsw xmm", $n, ", xmm14\n",
                "pmaddwd xmm", $n, ", xmm15\n",
                "paddd xmm", $n, ", xmm14\n",
            )*)
        };
    }

    register_loop!(zmm_i8, "avx512f,avx512vnni", "vmovups", "zmm", pairs!("zmm"), "vzeroupper");
    register_loop!(
        zmm_i8_apart,
        "avx512f,avx512bw",
        "vmovups",
        "zmm",
        pairs_apart!("zmm"),
        "vzeroupper"
    );
    register_loop!(ymm_i8, "avx2", "vmovups", "ymm", pairs_apart!("ymm"), "vzeroupper");
    register_loop!(
        xmm_i8,
        "ssse3",
        "movups",
        "xmm",
        pairs_in_place!(0 1 2 3 4 5 6 7 8 9 10 11 12 13),
        ""
    );

    /// Returns a line of equal `f32` or of equal `f64`.
    fn line_of(double: bool, value: f64) -> Line {
        if !double {
            return Line([value as f32; 16]);
        }
        let bits = value.to_bits();
        let halves = [f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)];
        Line(std::array::from_fn(|at| halves[at % 2]))
    }

    pub fn multiply_add(isa: Isa, numbers: Numbers, iterations: u64) {
        let double = numbers == Numbers::Float64;
        // The values stay near 1: no infinities, no denormals.
        let (x, y) = match isa {
            Isa::Sse => (line_of(double, 1.0), line_of(double, 1.0)),
            _ => (line_of(double, 0.5), line_of(double, 0.5)),
        };
        let dots = std::is_x86_feature_detected!("avx512vnni");
        let function: unsafe fn(u64, &Line, &Line) = match (isa, numbers) {
            (Isa::Avx512, Numbers::Float32) => zmm_f32,
            (Isa::Avx512, Numbers::Float64) => zmm_f64,
            (Isa::Avx512, Numbers::Int8) if dots => zmm_i8,
            (Isa::Avx512, Numbers::Int8) => zmm_i8_apart,
            (Isa::Avx2, Numbers::Float32) => ymm_f32,
            (Isa::Avx2, Numbers::Float64) => ymm_f64,
            (Isa::Avx2, Numbers::Int8) => ymm_i8,
            (_, Numbers::Float32) => xmm_f32,
            (_, Numbers::Float64) => xmm_f64,
            (_, Numbers::Int8) => xmm_i8,
        };
        isa.assert_available();
        // SAFETY: the CPU has the features.
        unsafe { function(iterations.max(1), &x, &y) }
    }

    macro_rules! loads {
        ($load:literal, $reg:literal, $($n:literal $offset:literal)*) => {
            concat!($($load, " ", $reg, $n, ", [{p} + ", $offset, "]\n",)*)
        };
    }

    /// Loads four lines per iteration and discards them.
    macro_rules! read_loop {
        ($name:ident, $features:literal, $body:expr, $end:literal) => {
            #[target_feature(enable = $features)]
            fn $name(from: &[Line]) {
                let range = from.as_ptr_range();
                if range.start == range.end {
                    return;
                }
                // SAFETY: the pointer goes through the slice in whole steps of four lines.
                unsafe {
                    asm!(
                        "2:",
                        $body,
                        "add {p}, 256",
                        "cmp {p}, {end}",
                        "jb 2b",
                        $end,
                        p = inout(reg) range.start => _, end = in(reg) range.end,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                        options(nostack, readonly),
                    );
                }
            }
        };
    }

    read_loop!(read_zmm, "avx512f", loads!("vmovaps", "zmm", 0 0 1 64 2 128 3 192), "vzeroupper");
    read_loop!(
        read_ymm,
        "avx2",
        loads!("vmovaps", "ymm", 0 0 1 32 2 64 3 96 0 128 1 160 2 192 3 224),
        "vzeroupper"
    );
    read_loop!(
        read_xmm,
        "sse2",
        loads!("movaps", "xmm", 0 0 1 16 2 32 3 48 0 64 1 80 2 96 3 112 0 128 1 144 2 160 3 176
            0 192 1 208 2 224 3 240),
        ""
    );

    pub fn read(isa: Isa, from: &[Line]) {
        isa.assert_available();
        let function = match isa {
            Isa::Avx512 => read_zmm,
            Isa::Avx2 => read_ymm,
            _ => read_xmm,
        };
        // SAFETY: the CPU has the features.
        unsafe { function(from) }
    }

    macro_rules! fused_triads {
        ($reg:literal, $($n:literal $offset:literal)*) => {
            concat!($(
                "vmovaps ", $reg, $n, ", [{b} + {i} + ", $offset, "]\n",
                "vfmadd213ps ", $reg, $n, ", ", $reg, "4, [{a} + {i} + ", $offset, "]\n",
                "vmovaps [{c} + {i} + ", $offset, "], ", $reg, $n, "\n",
            )*)
        };
    }

    macro_rules! separate_triads {
        ($($n:literal $offset:literal)*) => {
            concat!($(
                "movaps xmm", $n, ", [{b} + {i} + ", $offset, "]\n",
                "mulps xmm", $n, ", xmm4\n",
                "addps xmm", $n, ", [{a} + {i} + ", $offset, "]\n",
                "movaps [{c} + {i} + ", $offset, "], xmm", $n, "\n",
            )*)
        };
    }

    /// Processes four lines of each array per iteration.
    macro_rules! triad_loop {
        ($name:ident, $features:literal, $load:literal, $body:expr, $end:literal) => {
            #[target_feature(enable = $features)]
            fn $name(c: &mut [Line], a: &[Line], b: &[Line]) {
                let bytes = size_of_val(c);
                if bytes == 0 {
                    return;
                }
                let scale = Line([3.0; 16]);
                // SAFETY: the index goes through three slices of that size in whole steps.
                unsafe {
                    asm!(
                        concat!($load, "4, [{s}]"),
                        "2:",
                        $body,
                        "add {i}, 256",
                        "cmp {i}, {bytes}",
                        "jb 2b",
                        $end,
                        a = in(reg) a.as_ptr(), b = in(reg) b.as_ptr(), c = in(reg) c.as_mut_ptr(),
                        s = in(reg) &scale, i = inout(reg) 0_usize => _, bytes = in(reg) bytes,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                        options(nostack),
                    );
                }
            }
        };
    }

    triad_loop!(
        triad_zmm,
        "avx512f",
        "vmovaps zmm",
        fused_triads!("zmm", 0 0 1 64 2 128 3 192),
        "vzeroupper"
    );
    triad_loop!(
        triad_ymm,
        "avx2,fma",
        "vmovaps ymm",
        fused_triads!("ymm", 0 0 1 32 2 64 3 96 0 128 1 160 2 192 3 224),
        "vzeroupper"
    );
    triad_loop!(
        triad_xmm,
        "sse2",
        "movaps xmm",
        separate_triads!(0 0 1 16 2 32 3 48 0 64 1 80 2 96 3 112 0 128 1 144 2 160 3 176
            0 192 1 208 2 224 3 240),
        ""
    );

    pub fn triad(isa: Isa, c: &mut [Line], a: &[Line], b: &[Line]) {
        isa.assert_available();
        let function = match isa {
            Isa::Avx512 => triad_zmm,
            Isa::Avx2 => triad_ymm,
            _ => triad_xmm,
        };
        // SAFETY: the CPU has the features.
        unsafe { function(c, a, b) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_computes_the_triad() {
        for isa in Isa::available() {
            for lines in [0, STEP, 7 * STEP] {
                let line = |at: usize| Line(std::array::from_fn(|lane| (16 * at + lane) as f32));
                let a: Vec<Line> = (0..lines).map(line).collect();
                let b: Vec<Line> = (0..lines).map(|at| line(2 * at + 1)).collect();
                let mut c = vec![Line([0.0; 16]); lines];
                triad(isa, &mut c, &a, &b);
                read(isa, &c);
                for at in 0..lines {
                    for lane in 0..16 {
                        let expected = a[at].0[lane] + 3.0 * b[at].0[lane];
                        assert_eq!(c[at].0[lane], expected, "{isa:?}, line {at}, lane {lane}");
                    }
                }
            }
        }
    }

    #[test]
    fn operations_scale_with_the_vector_width() {
        for isa in Isa::available() {
            let counts = Numbers::ALL.map(|numbers| multiply_add(isa, numbers, 100));
            match isa {
                Isa::Avx512 => assert_eq!(counts, [89_600.0, 44_800.0, 358_400.0]),
                Isa::Avx2 => assert_eq!(counts, [44_800.0, 22_400.0, 179_200.0]),
                Isa::Sse => assert_eq!(counts, [11_200.0, 5_600.0, 89_600.0]),
                Isa::Portable => assert_eq!(counts, [6_400.0, 6_400.0, 6_400.0]),
            }
        }
    }
}

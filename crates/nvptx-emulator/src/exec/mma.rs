//! `mma.sync`: converts fragments to matrices, multiplies, and converts back.
//!
//! Model of the sum: products of the elements are exact. `f16`, `bf16`, `tf32` and 8-bit float
//! products are added to the accumulator in `f64` in ascending order of k and rounded once, to
//! nearest, to the type of the result. The hardware aligns and truncates the terms of a sum
//! instead, so results agree within a tolerance, not bit by bit. `f64` is a chain of fused
//! multiply-adds, integers are exact modulo 2^32 (or saturate with `.satfinite`). The low 13 bits
//! of `tf32` operands are ignored.

use super::Machine;
use super::warp::Warp;
use crate::decode::op::{Elem, Mma};
use crate::float::{F16, NAN16, NAN32, Round, bf16_to_f32, e4m3_to_f32, e5m2_to_f32, f16_to_f32};
use crate::report::FindingKind;
use crate::ty::Ty;

/// The largest number of elements of `a`: that of m16n8k32.
const MAX: usize = 16 * 32;

impl Machine<'_> {
    pub(super) fn mma(&mut self, warp: &mut Warp, mma: &Mma, active: u32, pc: u32) {
        if active != !0 {
            self.find(FindingKind::DivergentWarp, warp, active.trailing_zeros(), pc, || {
                format!("runs a matrix instruction with lanes {active:#010x} only")
            });
        }
        match mma.a_ty {
            Elem::S8 | Elem::U8 => self.mma_int(warp, mma, active),
            Elem::F64 => self.mma_f64(warp, mma, active),
            _ => self.mma_float(warp, mma, active),
        }
    }

    fn mma_float(&self, warp: &mut Warp, mma: &Mma, active: u32) {
        let value = |ty: Elem, bits: u32| match ty {
            Elem::F16 => f64::from(f16_to_f32(bits)),
            Elem::BF16 => f64::from(bf16_to_f32(bits)),
            Elem::E4M3 => f64::from(e4m3_to_f32(bits)),
            Elem::E5M2 => f64::from(e5m2_to_f32(bits)),
            _ => f64::from(f32::from_bits(bits & !0x1fff)),
        };
        let width = match mma.a_ty {
            Elem::TF32 => 32,
            Elem::E4M3 | Elem::E5M2 => 8,
            _ => 16,
        };
        let (m, n, k) = (mma.m as usize, mma.n as usize, mma.k as usize);
        let (mut a, mut b) = ([0.0; MAX], [0.0; MAX / 2]);
        self.input(warp, mma.a, (m, k), width, |row, column, bits| {
            a[row * k + column] = value(mma.a_ty, bits);
        });
        // The fragment of b is that of a, with n instead of m.
        self.input(warp, mma.b, (n, k), width, |column, row, bits| {
            b[row * n + column] = value(mma.b_ty, bits);
        });
        let mut sums: [[f64; 8]; 16] = [[0.0; 8]; 16];
        self.accumulator(warp, mma, |row, column, bits| {
            sums[row][column] = match mma.c_ty {
                Ty::F16 => f64::from(f16_to_f32(bits)),
                _ => f64::from(f32::from_bits(bits)),
            };
        });
        fast_product(&a, &b, &mut sums[..m], k);
        self.result(warp, mma, active, |row, column| {
            let sum = sums[row][column];
            match mma.d_ty {
                Ty::F16 if sum.is_nan() => NAN16,
                Ty::F16 => F16.round(sum, Round::Rn) as u32,
                _ if sum.is_nan() => NAN32,
                _ => (sum as f32).to_bits(),
            }
        });
    }

    fn mma_int(&self, warp: &mut Warp, mma: &Mma, active: u32) {
        let value = |ty: Elem, bits: u32| {
            if ty == Elem::S8 { i32::from(bits as u8 as i8) } else { i32::from(bits as u8) }
        };
        let (m, n, k) = (mma.m as usize, mma.n as usize, mma.k as usize);
        let (mut a, mut b) = ([0i32; MAX], [0i32; MAX / 2]);
        self.input(warp, mma.a, (m, k), 8, |row, column, bits| {
            a[row * k + column] = value(mma.a_ty, bits);
        });
        self.input(warp, mma.b, (n, k), 8, |column, row, bits| {
            b[row * n + column] = value(mma.b_ty, bits);
        });
        let mut c = [[0i32; 8]; 16];
        self.accumulator(warp, mma, |row, column, bits| c[row][column] = bits as i32);
        self.result(warp, mma, active, |row, column| {
            let products = (0..k).map(|i| i64::from(a[row * k + i] * b[i * n + column]));
            let sum = i64::from(c[row][column]) + products.sum::<i64>();
            if mma.saturates {
                sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32
            } else {
                sum as u32
            }
        });
    }

    /// m8n8k4: lane `l` holds a[l / 4][l % 4], b[l % 4][l / 4] and two adjacent elements of c.
    fn mma_f64(&self, warp: &mut Warp, mma: &Mma, active: u32) {
        let row =
            |list: u32, i: u32| *warp.s64(self.kernel, self.kernel.lists[(list + i) as usize]);
        let (a, b) = (row(mma.a, 0), row(mma.b, 0));
        let mut c = [row(mma.c, 0), row(mma.c, 1)];
        for lane in 0..32 {
            for (i, part) in c.iter_mut().enumerate() {
                let column = 2 * (lane % 4) + i;
                let mut sum = f64::from_bits(part[lane]);
                for k in 0..4 {
                    let x = f64::from_bits(a[lane / 4 * 4 + k]);
                    let y = f64::from_bits(b[column * 4 + k]);
                    sum = x.mul_add(y, sum);
                }
                part[lane] = sum.to_bits();
            }
        }
        for (i, part) in c.iter().enumerate() {
            warp.set64(self.kernel.lists[mma.d as usize + i], active, part);
        }
    }

    /// Calls `f` for each element of a fragment of `rows` x `k`. Each register of lane `l` holds
    /// adjacent elements of row `l / 4`; the registers advance by 8 rows first, then by columns.
    fn input(
        &self,
        warp: &Warp,
        list: u32,
        (rows, k): (usize, usize),
        width: usize,
        mut put: impl FnMut(usize, usize, u32),
    ) {
        let per_reg = 32 / width;
        let blocks = rows / 8;
        let regs = rows * k / 32 / per_reg;
        let mask = if width == 32 { !0 } else { (1 << width) - 1 };
        for reg in 0..regs {
            let values = warp.s32(self.kernel, self.kernel.lists[list as usize + reg]);
            let (down, right) = (reg % blocks, reg / blocks);
            for (lane, value) in values.iter().enumerate() {
                let row = lane / 4 + 8 * down;
                for i in 0..per_reg {
                    let column = right * 4 * per_reg + lane % 4 * per_reg + i;
                    put(row, column, value >> (width * i) & mask);
                }
            }
        }
    }

    /// Calls `f` for each element of the accumulator fragment: pairs of adjacent elements of row
    /// `l / 4`, then of the row 8 below.
    fn accumulator(&self, warp: &Warp, mma: &Mma, mut put: impl FnMut(usize, usize, u32)) {
        let pairs = mma.m as usize / 8;
        for pair in 0..pairs {
            for i in 0..2 {
                let at = 2 * pair + i;
                let is_half = mma.c_ty == Ty::F16;
                let reg = mma.c as usize + if is_half { pair } else { at };
                let values = warp.s32(self.kernel, self.kernel.lists[reg]);
                for (lane, value) in values.iter().enumerate() {
                    let bits = if is_half { value >> (16 * i) & 0xffff } else { *value };
                    put(lane / 4 + 8 * pair, 2 * (lane % 4) + i, bits);
                }
            }
        }
    }

    fn result(&self, warp: &mut Warp, mma: &Mma, active: u32, get: impl Fn(usize, usize) -> u32) {
        let is_half = mma.d_ty == Ty::F16;
        for pair in 0..mma.m as usize / 8 {
            let at = |lane: usize, i: usize| get(lane / 4 + 8 * pair, 2 * (lane % 4) + i);
            let rows: [[u32; 32]; 2] =
                std::array::from_fn(|i| std::array::from_fn(|lane| at(lane, i)));
            if is_half {
                let both = std::array::from_fn(|l| rows[0][l] | rows[1][l] << 16);
                warp.set32(self.kernel.lists[mma.d as usize + pair], active, &both);
                continue;
            }
            for (i, row) in rows.iter().enumerate() {
                warp.set32(self.kernel.lists[mma.d as usize + 2 * pair + i], active, row);
            }
        }
    }
}

/// Adds the products to the sums, in ascending order of k. Products are exact, so a fused
/// multiply-add gives the same as a product and a sum.
#[inline(always)]
fn product(a: &[f64], b: &[f64], sums: &mut [[f64; 8]], k: usize, fused: bool) {
    for (out, row) in sums.iter_mut().zip(a.chunks_exact(k)) {
        let mut sum = *out;
        for (x, line) in row.iter().zip(b.chunks_exact(8)) {
            for (sum, y) in sum.iter_mut().zip(line) {
                *sum = if fused { x.mul_add(*y, *sum) } else { *sum + x * y };
            }
        }
        *out = sum;
    }
}

/// Computes `product` with the widest instructions of the processor.
pub(super) fn fast_product(a: &[f64], b: &[f64], sums: &mut [[f64; 8]], k: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn wide(a: &[f64], b: &[f64], sums: &mut [[f64; 8]], k: usize) {
            product(a, b, sums, k, true);
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        {
            // SAFETY: the features were detected.
            return unsafe { wide(a, b, sums, k) };
        }
    }
    product(a, b, sums, k, false);
}

//! Conversions between the types of data, with the semantics of `Cast` in each lane.

use super::inst::{Arg, Width};
use super::nest::{Selector, Val};
use super::table::VOp;
use super::value::width_of;
use crate::ir::{BinOp, DType, Type};
use crate::simd_ops::{Conversion, conversion};
use crate::target::SimdIsa::{Avx2, Avx512};
use iced_x86::Code::{self, *};
use regalloc2::VReg;

/// Immediate of `vcvtps2ph`: round to nearest, ties to even.
const NEAREST: i64 = 0;

impl Selector<'_> {
    /// A value of type `from` as `to`.
    pub(super) fn convert(&mut self, value: Val, from: Type, to: DType) -> VReg {
        use DType::*;
        let lanes = from.lanes;
        let ty = |dtype| Type { dtype, lanes };
        if from.dtype == to {
            return value.reg();
        }
        match conversion(from.dtype, to, self.b.isa) {
            None => crate::bug!("no conversion of {from:?} to {to}"),
            Some(_) if lanes == 1 && from.dtype == Index => {
                return self.convert_index(value.reg(), to);
            }
            Some(Conversion::Via(between)) => {
                let first = self.convert(value, from, between);
                return self.convert(Val::Vec(first), ty(between), to);
            }
            Some(Conversion::Truncate(between)) => {
                return self.float_to_int(value.reg(), from, between, to);
            }
            Some(Conversion::Direct) => {}
        }
        match (from.dtype, to) {
            (Bool, _) => {
                let one = if to.is_float() { one_of(to) } else { 1 };
                self.ones_where(value, one, ty(to))
            }
            (Index, _) => self.convert(value, ty(Int64), to),
            (_, Index) => self.convert(value, from, Int64),
            (Float16, Float32) => self.widen_half(value.reg(), lanes),
            (Float32, Float16) => self.narrow_half(value.reg(), lanes),
            (BFloat16, Float32) => {
                let wide = self.convert(value, ty(Uint16), Uint32);
                let by = self.constant(16, 4, width_of(ty(Uint32)));
                self.b.op2(VOp::SllvD, width_of(ty(Uint32)), wide, by)
            }
            (Float32, BFloat16) => self.narrow_bfloat(value.reg(), lanes),
            (Float32, Float64) => self.float_to_double(value.reg(), lanes),
            (Float64, Float32) => self.double_to_float(value.reg(), lanes),
            (_, Float32 | Float64) => self.int_to_float(value.reg(), from, to),
            _ => self.int_to_int(value.reg(), from, to),
        }
    }

    /// A scalar index as data.
    fn convert_index(&mut self, value: VReg, to: DType) -> VReg {
        if !to.is_float() {
            return self.of_gpr(value);
        }
        let zero = self.b.zero();
        let code = match (self.b.isa, to) {
            (Avx2, DType::Float64) => VEX_Vcvtsi2sd_xmm_xmm_rm64,
            (Avx2, _) => VEX_Vcvtsi2ss_xmm_xmm_rm64,
            (Avx512, DType::Float64) => EVEX_Vcvtsi2sd_xmm_xmm_rm64_er,
            (Avx512, _) => EVEX_Vcvtsi2ss_xmm_xmm_rm64_er,
        };
        let result = self.b.make(code, &[Arg::Use(zero), Arg::Use(value)]);
        match to.is_half() {
            true => self.convert(Val::Vec(result), DType::Float32.into(), to),
            false => result,
        }
    }

    fn widen_half(&mut self, x: VReg, lanes: u32) -> VReg {
        let code = self.b.form(
            Width::of(u64::from(lanes) * 4),
            [
                VEX_Vcvtph2ps_xmm_xmmm64,
                VEX_Vcvtph2ps_ymm_xmmm128,
                EVEX_Vcvtph2ps_xmm_k1z_xmmm64,
                EVEX_Vcvtph2ps_ymm_k1z_xmmm128,
                EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae,
            ],
        );
        self.b.make(code, &[Arg::Use(x)])
    }

    fn narrow_half(&mut self, x: VReg, lanes: u32) -> VReg {
        let code = self.b.form(
            Width::of(u64::from(lanes) * 4),
            [
                VEX_Vcvtps2ph_xmmm64_xmm_imm8,
                VEX_Vcvtps2ph_xmmm128_ymm_imm8,
                EVEX_Vcvtps2ph_xmmm64_k1z_xmm_imm8,
                EVEX_Vcvtps2ph_xmmm128_k1z_ymm_imm8,
                EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae,
            ],
        );
        self.b.make(code, &[Arg::Use(x), Arg::Imm(NEAREST)])
    }

    /// Rounds to nearest even by adding half a unit. NaN stays NaN.
    fn narrow_bfloat(&mut self, x: VReg, lanes: u32) -> VReg {
        let ty = Type { dtype: DType::Uint32, lanes };
        let width = width_of(ty);
        let sixteen = self.constant(16, 4, width);
        let high = self.b.op2(VOp::SrlvD, width, x, sixteen);
        let one = self.constant(1, 4, width);
        let odd = self.b.op2(VOp::And, width, high, one);
        let half = self.constant(0x7fff, 4, width);
        let sum = self.b.op2(VOp::AddD, width, x, half);
        let sum = self.b.op2(VOp::AddD, width, sum, odd);
        let rounded = self.b.op2(VOp::SrlvD, width, sum, sixteen);
        let quiet = self.constant(0x7fc0, 4, width);
        let float = Type { dtype: DType::Float32, lanes };
        let nan = self.compare_regs(BinOp::Ne, float, x, x);
        let result = self.blend(nan, quiet, rounded, ty);
        self.int_to_int(result, ty, DType::Uint16)
    }

    fn float_to_double(&mut self, x: VReg, lanes: u32) -> VReg {
        let code = self.b.form(
            Width::of(u64::from(lanes) * 8),
            [
                VEX_Vcvtps2pd_xmm_xmmm64,
                VEX_Vcvtps2pd_ymm_xmmm128,
                EVEX_Vcvtps2pd_xmm_k1z_xmmm64b32,
                EVEX_Vcvtps2pd_ymm_k1z_xmmm128b32,
                EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae,
            ],
        );
        self.b.make(code, &[Arg::Use(x)])
    }

    fn double_to_float(&mut self, x: VReg, lanes: u32) -> VReg {
        let code = self.b.form(
            Width::of(u64::from(lanes) * 8),
            [
                VEX_Vcvtpd2ps_xmm_xmmm128,
                VEX_Vcvtpd2ps_xmm_ymmm256,
                EVEX_Vcvtpd2ps_xmm_k1z_xmmm128b64,
                EVEX_Vcvtpd2ps_xmm_k1z_ymmm256b64,
                EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er,
            ],
        );
        self.b.make(code, &[Arg::Use(x)])
    }

    /// Extends or truncates integers.
    pub(super) fn int_to_int(&mut self, x: VReg, from: Type, to: DType) -> VReg {
        let (mut now, wanted) = (from.dtype.bytes(), to.bytes());
        if now == wanted {
            return x;
        }
        let lanes = u64::from(from.lanes);
        if now < wanted {
            let code =
                self.extension(now, wanted, from.dtype.is_signed(), Width::of(lanes * wanted));
            return self.b.make(code, &[Arg::Use(x)]);
        }
        if from.lanes == 1 {
            return x;
        }
        if self.b.is_evex() {
            let code = truncation(now, wanted, Width::of(lanes * now));
            return self.b.make(code, &[Arg::Use(x)]);
        }
        let mut value = x;
        while now > wanted {
            value = self.halve(value, now, lanes);
            now /= 2;
        }
        value
    }

    /// The lower halves of elements, in registers of 16 bytes, where AVX2 packs.
    fn halve(&mut self, x: VReg, bytes: u64, lanes: u64) -> VReg {
        let (low, high) = match Width::of(bytes * lanes) {
            Width::X => (x, x),
            _ => (x, self.quarter(x, 1)),
        };
        match bytes {
            8 => {
                const EVEN: i64 = 0x88;
                let args = [Arg::Use(low), Arg::Use(high), Arg::Imm(EVEN)];
                self.b.make(VEX_Vshufps_xmm_xmm_xmmm128_imm8, &args)
            }
            4 => {
                let rest = self.constant(0xffff, 4, Width::X);
                let low = self.b.op2(VOp::And, Width::X, low, rest);
                let high = self.b.op2(VOp::And, Width::X, high, rest);
                self.b.op2(VOp::PackUsDw, Width::X, low, high)
            }
            _ => {
                let rest = self.constant(0x00ff, 2, Width::X);
                let low = self.b.op2(VOp::And, Width::X, low, rest);
                let high = self.b.op2(VOp::And, Width::X, high, rest);
                self.b.op2(VOp::PackUsWb, Width::X, low, high)
            }
        }
    }

    pub(super) fn extension(&self, from: u64, to: u64, signed: bool, width: Width) -> Code {
        macro_rules! forms {
            ($vx:ident, $vy:ident, $ex:ident, $ey:ident, $ez:ident) => {
                [$vx, $vy, $ex, $ey, $ez]
            };
        }
        let forms = match (from, to, signed) {
            (1, 2, true) => forms!(
                VEX_Vpmovsxbw_xmm_xmmm64,
                VEX_Vpmovsxbw_ymm_xmmm128,
                EVEX_Vpmovsxbw_xmm_k1z_xmmm64,
                EVEX_Vpmovsxbw_ymm_k1z_xmmm128,
                EVEX_Vpmovsxbw_zmm_k1z_ymmm256
            ),
            (1, 4, true) => forms!(
                VEX_Vpmovsxbd_xmm_xmmm32,
                VEX_Vpmovsxbd_ymm_xmmm64,
                EVEX_Vpmovsxbd_xmm_k1z_xmmm32,
                EVEX_Vpmovsxbd_ymm_k1z_xmmm64,
                EVEX_Vpmovsxbd_zmm_k1z_xmmm128
            ),
            (1, 8, true) => forms!(
                VEX_Vpmovsxbq_xmm_xmmm16,
                VEX_Vpmovsxbq_ymm_xmmm32,
                EVEX_Vpmovsxbq_xmm_k1z_xmmm16,
                EVEX_Vpmovsxbq_ymm_k1z_xmmm32,
                EVEX_Vpmovsxbq_zmm_k1z_xmmm64
            ),
            (2, 4, true) => forms!(
                VEX_Vpmovsxwd_xmm_xmmm64,
                VEX_Vpmovsxwd_ymm_xmmm128,
                EVEX_Vpmovsxwd_xmm_k1z_xmmm64,
                EVEX_Vpmovsxwd_ymm_k1z_xmmm128,
                EVEX_Vpmovsxwd_zmm_k1z_ymmm256
            ),
            (2, 8, true) => forms!(
                VEX_Vpmovsxwq_xmm_xmmm32,
                VEX_Vpmovsxwq_ymm_xmmm64,
                EVEX_Vpmovsxwq_xmm_k1z_xmmm32,
                EVEX_Vpmovsxwq_ymm_k1z_xmmm64,
                EVEX_Vpmovsxwq_zmm_k1z_xmmm128
            ),
            (_, _, true) => forms!(
                VEX_Vpmovsxdq_xmm_xmmm64,
                VEX_Vpmovsxdq_ymm_xmmm128,
                EVEX_Vpmovsxdq_xmm_k1z_xmmm64,
                EVEX_Vpmovsxdq_ymm_k1z_xmmm128,
                EVEX_Vpmovsxdq_zmm_k1z_ymmm256
            ),
            (1, 2, false) => forms!(
                VEX_Vpmovzxbw_xmm_xmmm64,
                VEX_Vpmovzxbw_ymm_xmmm128,
                EVEX_Vpmovzxbw_xmm_k1z_xmmm64,
                EVEX_Vpmovzxbw_ymm_k1z_xmmm128,
                EVEX_Vpmovzxbw_zmm_k1z_ymmm256
            ),
            (1, 4, false) => forms!(
                VEX_Vpmovzxbd_xmm_xmmm32,
                VEX_Vpmovzxbd_ymm_xmmm64,
                EVEX_Vpmovzxbd_xmm_k1z_xmmm32,
                EVEX_Vpmovzxbd_ymm_k1z_xmmm64,
                EVEX_Vpmovzxbd_zmm_k1z_xmmm128
            ),
            (1, 8, false) => forms!(
                VEX_Vpmovzxbq_xmm_xmmm16,
                VEX_Vpmovzxbq_ymm_xmmm32,
                EVEX_Vpmovzxbq_xmm_k1z_xmmm16,
                EVEX_Vpmovzxbq_ymm_k1z_xmmm32,
                EVEX_Vpmovzxbq_zmm_k1z_xmmm64
            ),
            (2, 4, false) => forms!(
                VEX_Vpmovzxwd_xmm_xmmm64,
                VEX_Vpmovzxwd_ymm_xmmm128,
                EVEX_Vpmovzxwd_xmm_k1z_xmmm64,
                EVEX_Vpmovzxwd_ymm_k1z_xmmm128,
                EVEX_Vpmovzxwd_zmm_k1z_ymmm256
            ),
            (2, 8, false) => forms!(
                VEX_Vpmovzxwq_xmm_xmmm32,
                VEX_Vpmovzxwq_ymm_xmmm64,
                EVEX_Vpmovzxwq_xmm_k1z_xmmm32,
                EVEX_Vpmovzxwq_ymm_k1z_xmmm64,
                EVEX_Vpmovzxwq_zmm_k1z_xmmm128
            ),
            (_, _, false) => forms!(
                VEX_Vpmovzxdq_xmm_xmmm64,
                VEX_Vpmovzxdq_ymm_xmmm128,
                EVEX_Vpmovzxdq_xmm_k1z_xmmm64,
                EVEX_Vpmovzxdq_ymm_k1z_xmmm128,
                EVEX_Vpmovzxdq_zmm_k1z_ymmm256
            ),
        };
        self.b.form(width, forms)
    }

    /// Integers to floats, rounded once.
    fn int_to_float(&mut self, x: VReg, from: Type, to: DType) -> VReg {
        use DType::*;
        let lanes = from.lanes;
        let ty = |dtype| Type { dtype, lanes };
        let signed = from.dtype.is_signed();
        match (from.dtype.bytes(), to) {
            (4, Float32) if signed => self.b.op1(VOp::CvtDq2Ps, width_of(ty(Float32)), x),
            (4, Float32) if self.b.is_evex() => {
                self.b.op1(VOp::CvtUdq2Ps, width_of(ty(Float32)), x)
            }
            (4, Float32) => self.unsigned_to_float(x, lanes),
            (4, _) if signed || self.b.is_evex() => {
                let code = self.b.form(
                    width_of(ty(Float64)),
                    match signed {
                        true => [
                            VEX_Vcvtdq2pd_xmm_xmmm64,
                            VEX_Vcvtdq2pd_ymm_xmmm128,
                            EVEX_Vcvtdq2pd_xmm_k1z_xmmm64b32,
                            EVEX_Vcvtdq2pd_ymm_k1z_xmmm128b32,
                            EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er,
                        ],
                        false => [
                            INVALID,
                            INVALID,
                            EVEX_Vcvtudq2pd_xmm_k1z_xmmm64b32,
                            EVEX_Vcvtudq2pd_ymm_k1z_xmmm128b32,
                            EVEX_Vcvtudq2pd_zmm_k1z_ymmm256b32_er,
                        ],
                    },
                );
                self.b.make(code, &[Arg::Use(x)])
            }
            (4, _) => {
                // 2^52 + x, made of its bits, minus 2^52.
                let width = width_of(ty(Float64));
                let wide = self.int_to_int(x, from, Uint64);
                let magic = self.constant(0x4330_0000_0000_0000, 8, width);
                let sum = self.b.op2(VOp::OrQ, width, wide, magic);
                self.b.op2(VOp::SubPd, width, sum, magic)
            }
            (_, Float64) if self.b.is_evex() => {
                let op = if signed { VOp::CvtQq2Pd } else { VOp::CvtUqq2Pd };
                self.b.op1(op, width_of(ty(Float64)), x)
            }
            (_, Float32) if self.b.is_evex() => {
                let code = self.b.form(
                    width_of(from),
                    match signed {
                        true => [
                            INVALID,
                            INVALID,
                            EVEX_Vcvtqq2ps_xmm_k1z_xmmm128b64,
                            EVEX_Vcvtqq2ps_xmm_k1z_ymmm256b64,
                            EVEX_Vcvtqq2ps_ymm_k1z_zmmm512b64_er,
                        ],
                        false => [
                            INVALID,
                            INVALID,
                            EVEX_Vcvtuqq2ps_xmm_k1z_xmmm128b64,
                            EVEX_Vcvtuqq2ps_xmm_k1z_ymmm256b64,
                            EVEX_Vcvtuqq2ps_ymm_k1z_zmmm512b64_er,
                        ],
                    },
                );
                self.b.make(code, &[Arg::Use(x)])
            }
            _ => self.quadwords_to_float(x, lanes, to),
        }
    }

    /// Converts the upper and the lower half exactly and adds them with one rounding.
    fn unsigned_to_float(&mut self, x: VReg, lanes: u32) -> VReg {
        let width = Width::of(u64::from(lanes) * 4);
        let sixteen = self.constant(16, 4, width);
        let rest = self.constant(0xffff, 4, width);
        let high = self.b.op2(VOp::SrlvD, width, x, sixteen);
        let high_magic = self.constant(0x5300_0000, 4, width);
        let high = self.b.op2(VOp::Or, width, high, high_magic);
        let low = self.b.op2(VOp::And, width, x, rest);
        let low_magic = self.constant(0x4b00_0000, 4, width);
        let low = self.b.op2(VOp::Or, width, low, low_magic);
        // 2^39 + 2^23
        let both = self.constant(0x5300_0080, 4, width);
        let high = self.b.op2(VOp::SubPs, width, high, both);
        self.b.op2(VOp::AddPs, width, high, low)
    }

    /// Converts 64-bit integers one at a time, as AVX2 requires.
    fn quadwords_to_float(&mut self, x: VReg, lanes: u32, to: DType) -> VReg {
        let bytes = to.bytes();
        let (convert, insert) = match to {
            DType::Float64 => (VEX_Vcvtsi2sd_xmm_xmm_rm64, VEX_Vpunpcklqdq_xmm_xmm_xmmm128),
            _ => (VEX_Vcvtsi2ss_xmm_xmm_rm64, VEX_Vinsertps_xmm_xmm_xmmm32_imm8),
        };
        let mut parts: Vec<VReg> = Vec::new();
        for lane in 0..lanes {
            let one = self.extract(x, 8, lane);
            let one = self.move_to_gpr(one, 8);
            let zero = self.b.zero();
            let one = self.b.make(convert, &[Arg::Use(zero), Arg::Use(one)]);
            let place = lane % (16 / bytes as u32);
            if place == 0 {
                parts.push(one);
                continue;
            }
            let part = parts.pop().expect("its first lane");
            let mut args = vec![Arg::Use(part), Arg::Use(one)];
            if bytes == 4 {
                args.push(Arg::Imm(i64::from(place) << 4));
            }
            let joined = self.b.make(insert, &args);
            parts.push(joined);
        }
        self.join(parts)
    }

    /// Floats to integers: towards zero, saturated, NaN to 0. The floats are truncated to `between`
    /// before they are narrowed.
    fn float_to_int(&mut self, x: VReg, from: Type, between: DType, to: DType) -> VReg {
        use DType::*;
        let lanes = from.lanes;
        let ty = |dtype| Type { dtype, lanes };
        let width = width_of(from);
        let bytes = from.dtype.bytes();
        // The bounds of the integers as floats. If the upper one is no float, larger values are
        // replaced afterwards.
        let (low, high) = to.int_range();
        let exact_high = from.dtype.round_float(high as f64) as i128 == high
            && from.dtype.round_float(high as f64) < high as f64 + 1.0;
        let number = self.compare_regs(BinOp::Eq, from, x, x);
        let zero = self.b.zero();
        let known = self.blend(number, x, zero, from);
        let bits = |value: f64| match from.dtype {
            Float64 => value.to_bits(),
            _ => u64::from((value as f32).to_bits()),
        };
        let (min, max) = match bytes {
            8 => (VOp::MinPd, VOp::MaxPd),
            _ => (VOp::MinPs, VOp::MaxPs),
        };
        let low = self.constant(bits(low as f64), bytes, width);
        let clamped = self.b.op2(max, width, known, low);
        if exact_high {
            let high = self.constant(bits(high as f64), bytes, width);
            let clamped = self.b.op2(min, width, clamped, high);
            let result = self.truncate_float(clamped, from, between);
            return self.int_to_int(result, ty(between), to);
        }
        let result = self.truncate_float(clamped, from, between);
        let result = self.int_to_int(result, ty(between), to);
        let limit = self.constant(bits(high as f64), bytes, width);
        let above = self.compare_regs(BinOp::Ge, from, clamped, limit);
        let most = self.constant(high as u64, to.bytes(), width_of(ty(to)));
        self.blend(above, most, result, ty(to))
    }

    /// Truncates floats that are in range, by one instruction of the instruction set.
    pub(super) fn truncate_float(&mut self, x: VReg, from: Type, to: DType) -> VReg {
        use DType::*;
        let lanes = from.lanes;
        let wide = Width::of(u64::from(lanes) * from.dtype.bytes().max(to.bytes()));
        match (from.dtype, to) {
            (Float32, Int32) => self.b.op1(VOp::CvtTps2Dq, wide, x),
            (Float32, Uint32) if self.b.is_evex() => self.b.op1(VOp::CvtTps2Udq, wide, x),
            (Float64, Int64) if self.b.is_evex() => self.b.op1(VOp::CvtTpd2Qq, wide, x),
            (Float64, Uint64) if self.b.is_evex() => self.b.op1(VOp::CvtTpd2Uqq, wide, x),
            (Float64, Int32) => {
                let code = self.b.form(
                    wide,
                    [
                        VEX_Vcvttpd2dq_xmm_xmmm128,
                        VEX_Vcvttpd2dq_xmm_ymmm256,
                        EVEX_Vcvttpd2dq_xmm_k1z_xmmm128b64,
                        EVEX_Vcvttpd2dq_xmm_k1z_ymmm256b64,
                        EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae,
                    ],
                );
                self.b.make(code, &[Arg::Use(x)])
            }
            (Float64, Uint32) if self.b.is_evex() => {
                let code = self.b.form(
                    wide,
                    [
                        INVALID,
                        INVALID,
                        EVEX_Vcvttpd2udq_xmm_k1z_xmmm128b64,
                        EVEX_Vcvttpd2udq_xmm_k1z_ymmm256b64,
                        EVEX_Vcvttpd2udq_ymm_k1z_zmmm512b64_sae,
                    ],
                );
                self.b.make(code, &[Arg::Use(x)])
            }
            (Float32, Int64 | Uint64) if self.b.is_evex() => {
                let code = self.b.form(
                    wide,
                    match to {
                        Int64 => [
                            INVALID,
                            INVALID,
                            EVEX_Vcvttps2qq_xmm_k1z_xmmm64b32,
                            EVEX_Vcvttps2qq_ymm_k1z_xmmm128b32,
                            EVEX_Vcvttps2qq_zmm_k1z_ymmm256b32_sae,
                        ],
                        _ => [
                            INVALID,
                            INVALID,
                            EVEX_Vcvttps2uqq_xmm_k1z_xmmm64b32,
                            EVEX_Vcvttps2uqq_ymm_k1z_xmmm128b32,
                            EVEX_Vcvttps2uqq_zmm_k1z_ymmm256b32_sae,
                        ],
                    },
                );
                self.b.make(code, &[Arg::Use(x)])
            }
            (Float32, Int64) => {
                let code = VEX_Vcvttss2si_r64_xmmm32;
                self.truncate_lanes(x, lanes, 4, code)
            }
            (Float64, Int64) => {
                let code = VEX_Vcvttsd2si_r64_xmmm64;
                self.truncate_lanes(x, lanes, 8, code)
            }
            _ => crate::bug!("no conversion of {from:?} to {to}"),
        }
    }

    /// Truncates to 64-bit integers one at a time, as AVX2 requires.
    fn truncate_lanes(&mut self, x: VReg, lanes: u32, bytes: u64, code: Code) -> VReg {
        let mut parts: Vec<VReg> = Vec::new();
        for lane in 0..lanes {
            let one = self.extract(x, bytes, lane);
            let one = self.b.make_gpr(code, &[Arg::Use(one)]);
            let one = self.of_gpr(one);
            if lane % 2 == 0 {
                parts.push(one);
                continue;
            }
            let part = parts.pop().expect("its first lane");
            let joined = self.b.op2(VOp::UnpckLQdq, Width::X, part, one);
            parts.push(joined);
        }
        self.join(parts)
    }
}

/// The bits of 1.0.
fn one_of(dtype: DType) -> u64 {
    match dtype {
        DType::Float64 => 1f64.to_bits(),
        DType::Float32 => 1f32.to_bits().into(),
        DType::Float16 => 0x3c00,
        _ => 0x3f80,
    }
}

/// `vpmov…` for the lower parts of elements in registers of this width.
fn truncation(from: u64, to: u64, width: Width) -> Code {
    use Width::*;
    match (from, to, width) {
        (2, _, X) => EVEX_Vpmovwb_xmmm64_k1z_xmm,
        (2, _, Y) => EVEX_Vpmovwb_xmmm128_k1z_ymm,
        (2, _, Z) => EVEX_Vpmovwb_ymmm256_k1z_zmm,
        (4, 1, X) => EVEX_Vpmovdb_xmmm32_k1z_xmm,
        (4, 1, Y) => EVEX_Vpmovdb_xmmm64_k1z_ymm,
        (4, 1, Z) => EVEX_Vpmovdb_xmmm128_k1z_zmm,
        (4, _, X) => EVEX_Vpmovdw_xmmm64_k1z_xmm,
        (4, _, Y) => EVEX_Vpmovdw_xmmm128_k1z_ymm,
        (4, _, Z) => EVEX_Vpmovdw_ymmm256_k1z_zmm,
        (_, 1, X) => EVEX_Vpmovqb_xmmm16_k1z_xmm,
        (_, 1, Y) => EVEX_Vpmovqb_xmmm32_k1z_ymm,
        (_, 1, Z) => EVEX_Vpmovqb_xmmm64_k1z_zmm,
        (_, 2, X) => EVEX_Vpmovqw_xmmm32_k1z_xmm,
        (_, 2, Y) => EVEX_Vpmovqw_xmmm64_k1z_ymm,
        (_, 2, Z) => EVEX_Vpmovqw_xmmm128_k1z_zmm,
        (_, _, X) => EVEX_Vpmovqd_xmmm64_k1z_xmm,
        (_, _, Y) => EVEX_Vpmovqd_xmmm128_k1z_ymm,
        (_, _, Z) => EVEX_Vpmovqd_ymmm256_k1z_zmm,
    }
}

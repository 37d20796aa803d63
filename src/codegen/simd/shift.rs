//! Shifts of integers by a constant.

use super::inst::{Arg, Width};
use super::nest::Selector;
use super::table::VOp;
use super::value::{sub_of, width_of};
use crate::ir::{BinOp, Type};
use iced_x86::Code::*;
use regalloc2::VReg;

impl Selector<'_> {
    /// A shift by a constant below the width of the type.
    pub(super) fn shift_const(&mut self, op: BinOp, ty: Type, x: VReg, amount: u32) -> VReg {
        if amount == 0 {
            return x;
        }
        let width = width_of(ty);
        let forms = match (op, ty.dtype.is_signed(), ty.dtype.bytes()) {
            (_, _, 1) => return self.shift_bytes(op, ty, x, amount as u8),
            (BinOp::Shl, _, 2) => return self.shift_words(x, amount as u8, true, width),
            (_, false, 2) => return self.shift_words(x, amount as u8, false, width),
            (_, true, 2) => [
                VEX_Vpsraw_xmm_xmm_imm8,
                VEX_Vpsraw_ymm_ymm_imm8,
                EVEX_Vpsraw_xmm_k1z_xmmm128_imm8,
                EVEX_Vpsraw_ymm_k1z_ymmm256_imm8,
                EVEX_Vpsraw_zmm_k1z_zmmm512_imm8,
            ],
            (BinOp::Shl, _, 4) => [
                VEX_Vpslld_xmm_xmm_imm8,
                VEX_Vpslld_ymm_ymm_imm8,
                EVEX_Vpslld_xmm_k1z_xmmm128b32_imm8,
                EVEX_Vpslld_ymm_k1z_ymmm256b32_imm8,
                EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8,
            ],
            (BinOp::Shl, _, _) => [
                VEX_Vpsllq_xmm_xmm_imm8,
                VEX_Vpsllq_ymm_ymm_imm8,
                EVEX_Vpsllq_xmm_k1z_xmmm128b64_imm8,
                EVEX_Vpsllq_ymm_k1z_ymmm256b64_imm8,
                EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8,
            ],
            (_, false, 4) => [
                VEX_Vpsrld_xmm_xmm_imm8,
                VEX_Vpsrld_ymm_ymm_imm8,
                EVEX_Vpsrld_xmm_k1z_xmmm128b32_imm8,
                EVEX_Vpsrld_ymm_k1z_ymmm256b32_imm8,
                EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8,
            ],
            (_, false, _) => [
                VEX_Vpsrlq_xmm_xmm_imm8,
                VEX_Vpsrlq_ymm_ymm_imm8,
                EVEX_Vpsrlq_xmm_k1z_xmmm128b64_imm8,
                EVEX_Vpsrlq_ymm_k1z_ymmm256b64_imm8,
                EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8,
            ],
            (_, true, 4) => [
                VEX_Vpsrad_xmm_xmm_imm8,
                VEX_Vpsrad_ymm_ymm_imm8,
                EVEX_Vpsrad_xmm_k1z_xmmm128b32_imm8,
                EVEX_Vpsrad_ymm_k1z_ymmm256b32_imm8,
                EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8,
            ],
            (_, true, _) if self.b.is_evex() => [
                INVALID,
                INVALID,
                EVEX_Vpsraq_xmm_k1z_xmmm128b64_imm8,
                EVEX_Vpsraq_ymm_k1z_ymmm256b64_imm8,
                EVEX_Vpsraq_zmm_k1z_zmmm512b64_imm8,
            ],
            (_, true, _) => {
                let amount = self.constant(amount.into(), 8, width);
                return self.shift_by(op, ty, x, amount);
            }
        };
        let code = self.b.form(width, forms);
        self.b.make(code, &[Arg::Use(x), Arg::Imm(amount.into())])
    }

    /// Words shifted by a constant.
    pub(super) fn shift_words(&mut self, x: VReg, by: u8, left: bool, width: Width) -> VReg {
        let forms = match left {
            true => [
                VEX_Vpsllw_xmm_xmm_imm8,
                VEX_Vpsllw_ymm_ymm_imm8,
                EVEX_Vpsllw_xmm_k1z_xmmm128_imm8,
                EVEX_Vpsllw_ymm_k1z_ymmm256_imm8,
                EVEX_Vpsllw_zmm_k1z_zmmm512_imm8,
            ],
            false => [
                VEX_Vpsrlw_xmm_xmm_imm8,
                VEX_Vpsrlw_ymm_ymm_imm8,
                EVEX_Vpsrlw_xmm_k1z_xmmm128_imm8,
                EVEX_Vpsrlw_ymm_k1z_ymmm256_imm8,
                EVEX_Vpsrlw_zmm_k1z_zmmm512_imm8,
            ],
        };
        let code = self.b.form(width, forms);
        self.b.make(code, &[Arg::Use(x), Arg::Imm(by.into())])
    }

    /// Bytes shifted as words, without the bits of the other byte.
    fn shift_bytes(&mut self, op: BinOp, ty: Type, x: VReg, amount: u8) -> VReg {
        let width = width_of(ty);
        let left = op == BinOp::Shl;
        let kept = if left { 0xffu8 << amount } else { 0xff >> amount };
        let shifted = self.shift_words(x, amount, left, width);
        let kept = self.constant(kept.into(), 1, width);
        let shifted = self.b.op2(VOp::And, width, shifted, kept);
        if left || !ty.dtype.is_signed() {
            return shifted;
        }
        // Extends the shifted sign bit.
        let sign = self.constant(0x80 >> amount, 1, width);
        let flipped = self.b.op2(VOp::Xor, width, shifted, sign);
        self.b.op2(sub_of(1), width, flipped, sign)
    }
}

//! Arithmetic on data, with sequences for operations that an instruction set lacks.

use super::inst::Width;
use super::nest::{Selector, Val};
use super::table::VOp;
use super::value::width_of;
use crate::ir::{BinOp, DType, Expr, Type};
use crate::simd_ops::{
    BinaryForm, ProductForm, binary_form, constant_amount, constant_divisor, product_form,
    shifted_type,
};
use regalloc2::VReg;

impl Selector<'_> {
    /// `x op y` of a type.
    pub(super) fn arithmetic(&mut self, op: BinOp, ty: Type, x: VReg, y: VReg, by: &Expr) -> VReg {
        let Some(form) = binary_form(op, ty.dtype, self.b.isa) else {
            crate::bug!("{op:?} of {ty:?}")
        };
        match form {
            BinaryForm::Direct => self.b.op2(direct(op, ty.dtype), width_of(ty), x, y),
            BinaryForm::CompareAndBlend => {
                let op = if op == BinOp::Min { BinOp::Lt } else { BinOp::Gt };
                let mask = self.compare_regs(op, ty, x, y);
                self.blend(mask, x, y, ty)
            }
            BinaryForm::Multiply => self.multiply_ints(ty, x, y),
            BinaryForm::Shift(_) => match constant_amount(by, ty.dtype) {
                Some(amount) => self.shift_const(op, ty, x, amount),
                None => self.shift(op, ty, x, y),
            },
            BinaryForm::DivideAsFloat64 => match constant_divisor(by) {
                Some(divisor) => self.divide_by_constant(op, ty, x, y, divisor),
                None => self.divide_as_doubles(op, ty, x, y),
            },
            BinaryForm::DivideLanes => match constant_divisor(by) {
                Some(divisor) => self.divide_by_constant(op, ty, x, y, divisor),
                None => self.divide_quadwords(op, ty, x, y),
            },
        }
    }

    /// A product of integers: by a shift, or by one instruction if the factors are shorter.
    pub(super) fn integer_product(&mut self, ty: Type, a: &Expr, b: &Expr) -> VReg {
        match product_form(ty.dtype, a, b) {
            ProductForm::Shift { of_first, amount } => {
                let x = self.reg(if of_first { a } else { b });
                self.shift_const(BinOp::Shl, ty, x, amount)
            }
            form => {
                let (x, y) = (self.reg(a), self.reg(b));
                match form {
                    ProductForm::Signed => self.b.op2(VOp::MulDq, width_of(ty), x, y),
                    ProductForm::Unsigned => self.b.op2(VOp::MulUdq, width_of(ty), x, y),
                    _ => self.multiply_ints(ty, x, y),
                }
            }
        }
    }

    /// A product of integers, modulo their size.
    pub(super) fn multiply_ints(&mut self, ty: Type, x: VReg, y: VReg) -> VReg {
        let width = width_of(ty);
        match ty.dtype.bytes() {
            2 => self.b.op2(VOp::MulW, width, x, y),
            4 => self.b.op2(VOp::MulD, width, x, y),
            8 if self.b.is_evex() => self.b.op2(VOp::MulQ, width, x, y),
            8 => self.multiply_quadwords(width, x, y),
            _ => self.multiply_bytes(width, x, y),
        }
    }

    /// Multiplies even and odd bytes as words.
    fn multiply_bytes(&mut self, width: Width, x: VReg, y: VReg) -> VReg {
        let low = self.constant(0x00ff, 2, width);
        let even = self.b.op2(VOp::MulW, width, x, y);
        let even = self.b.op2(VOp::And, width, even, low);
        let (x, y) = (self.shift_words(x, 8, false, width), self.shift_words(y, 8, false, width));
        let odd = self.b.op2(VOp::MulW, width, x, y);
        let odd = self.shift_words(odd, 8, true, width);
        self.b.op2(VOp::Or, width, even, odd)
    }

    /// `low * low + (low * high + high * low << 32)`.
    fn multiply_quadwords(&mut self, width: Width, x: VReg, y: VReg) -> VReg {
        let half = self.constant(32, 8, width);
        let high_x = self.b.op2(VOp::SrlvQ, width, x, half);
        let high_y = self.b.op2(VOp::SrlvQ, width, y, half);
        let low = self.b.op2(VOp::MulUdq, width, x, y);
        let a = self.b.op2(VOp::MulUdq, width, high_x, y);
        let b = self.b.op2(VOp::MulUdq, width, x, high_y);
        let cross = self.b.op2(VOp::AddQ, width, a, b);
        let cross = self.b.op2(VOp::SllvQ, width, cross, half);
        self.b.op2(VOp::AddQ, width, low, cross)
    }

    /// A shift by an amount modulo the width of the type. Elements that are too short for an
    /// instruction are widened.
    fn shift(&mut self, op: BinOp, ty: Type, x: VReg, amount: VReg) -> VReg {
        let bytes = ty.dtype.bytes();
        let width = width_of(ty);
        let most = self.constant(bytes * 8 - 1, bytes, width);
        let amount = self.b.op2(VOp::And, width, amount, most);
        let wide = shifted_type(ty.dtype, self.b.isa);
        if wide != ty.dtype {
            let x = self.convert(Val::Vec(x), ty, wide);
            let amount = self.convert(Val::Vec(amount), ty, wide);
            let wide_ty = Type { dtype: wide, lanes: ty.lanes };
            let shifted = self.shift_by(op, wide_ty, x, amount);
            return self.convert(Val::Vec(shifted), wide_ty, ty.dtype);
        }
        self.shift_by(op, ty, x, amount)
    }

    /// A shift by less than the width.
    pub(super) fn shift_by(&mut self, op: BinOp, ty: Type, x: VReg, amount: VReg) -> VReg {
        let width = width_of(ty);
        let op = match (op, ty.dtype.is_signed(), ty.dtype.bytes()) {
            (BinOp::Shl, _, 2) => VOp::SllvW,
            (BinOp::Shl, _, 4) => VOp::SllvD,
            (BinOp::Shl, _, _) => VOp::SllvQ,
            (_, false, 2) => VOp::SrlvW,
            (_, false, 4) => VOp::SrlvD,
            (_, false, _) => VOp::SrlvQ,
            (_, true, 2) => VOp::SravW,
            (_, true, 4) => VOp::SravD,
            (_, true, _) if self.b.is_evex() => VOp::SravQ,
            (_, true, _) => {
                // Extends the shifted sign bit.
                let logical = self.b.op2(VOp::SrlvQ, width, x, amount);
                let sign = self.constant(1 << 63, 8, width);
                let sign = self.b.op2(VOp::SrlvQ, width, sign, amount);
                let flipped = self.b.op2(VOp::XorQ, width, logical, sign);
                return self.b.op2(VOp::SubQ, width, flipped, sign);
            }
        };
        self.b.op2(op, width, x, amount)
    }

    /// The absolute value of signed integers.
    pub(super) fn absolute(&mut self, ty: Type, x: VReg) -> VReg {
        let width = width_of(ty);
        let op = match ty.dtype.bytes() {
            1 => VOp::AbsB,
            2 => VOp::AbsW,
            4 => VOp::AbsD,
            _ if self.b.is_evex() => VOp::AbsQ,
            _ => {
                let zero = self.b.zero();
                let sign = self.b.op2(VOp::CmpGtQ, width, zero, x);
                let flipped = self.b.op2(VOp::Xor, width, x, sign);
                return self.b.op2(VOp::SubQ, width, flipped, sign);
            }
        };
        self.b.op1(op, width, x)
    }

    /// The number of one bits: a table gives that of each half byte, then they are added up.
    pub(super) fn popcount(&mut self, ty: Type, x: VReg) -> VReg {
        let (width, bytes) = (width_of(ty), ty.dtype.bytes());
        let counts = [0u8, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4];
        let table = self.constant_bytes(counts.repeat(width.bytes() as usize / 16));
        let nibble = self.constant(0x0f, 1, width);
        let low = self.b.op2(VOp::And, width, x, nibble);
        let high = self.shift_words(x, 4, false, width);
        let high = self.b.op2(VOp::And, width, high, nibble);
        let low = self.b.op2(VOp::ShufB, width, table, low);
        let high = self.b.op2(VOp::ShufB, width, table, high);
        let mut sum = self.b.op2(VOp::AddB, width, low, high);
        if bytes == 1 {
            return sum;
        }
        if bytes == 2 {
            // AVX2 shifts words by constants only.
            let moved = self.shift_words(sum, 8, true, width);
            sum = self.b.op2(VOp::AddB, width, sum, moved);
            return self.shift_words(sum, 8, false, width);
        }
        if bytes == 8 {
            // The differences from zero of eight bytes are summed up.
            let zero = self.b.zero();
            return self.b.op2(VOp::SadBw, width, sum, zero);
        }
        // Products with ones: neighbours are summed up twice.
        let ones = self.constant(1, 1, width);
        let words = self.b.op2(VOp::MulAddUbSw, width, sum, ones);
        let ones = self.constant(1, 2, width);
        self.b.op2(VOp::MulAddW, width, words, ones)
    }
}

pub(super) fn unsigned_of(bytes: u64) -> DType {
    match bytes {
        1 => DType::Uint8,
        2 => DType::Uint16,
        4 => DType::Uint32,
        _ => DType::Uint64,
    }
}

/// The instruction of an operation with [`BinaryForm::Direct`], which AVX2 and AVX-512 both have
/// except for the minimum and maximum of 64-bit integers.
pub(super) fn direct(op: BinOp, dtype: DType) -> VOp {
    use BinOp::*;
    use VOp::*;
    let signed = dtype.is_signed();
    match (op, dtype) {
        (Add, DType::Float32) => AddPs,
        (Add, DType::Float64) => AddPd,
        (Sub, DType::Float32) => SubPs,
        (Sub, DType::Float64) => SubPd,
        (Mul, DType::Float32) => MulPs,
        (Mul, DType::Float64) => MulPd,
        (Div, DType::Float32) => DivPs,
        (Div, DType::Float64) => DivPd,
        (Min, DType::Float32) => MinPs,
        (Min, DType::Float64) => MinPd,
        (Max, DType::Float32) => MaxPs,
        (Max, DType::Float64) => MaxPd,
        _ => match (op, dtype.bytes(), signed) {
            (Add, 1, _) => AddB,
            (Add, 2, _) => AddW,
            (Add, 4, _) => AddD,
            (Add, 8, _) => AddQ,
            (Sub, 1, _) => SubB,
            (Sub, 2, _) => SubW,
            (Sub, 4, _) => SubD,
            (Sub, 8, _) => SubQ,
            (Min, 1, true) => MinSB,
            (Min, 2, true) => MinSW,
            (Min, 4, true) => MinSD,
            (Min, 8, true) => MinSQ,
            (Min, 1, false) => MinUB,
            (Min, 2, false) => MinUW,
            (Min, 4, false) => MinUD,
            (Min, 8, false) => MinUQ,
            (Max, 1, true) => MaxSB,
            (Max, 2, true) => MaxSW,
            (Max, 4, true) => MaxSD,
            (Max, 8, true) => MaxSQ,
            (Max, 1, false) => MaxUB,
            (Max, 2, false) => MaxUW,
            (Max, 4, false) => MaxUD,
            (Max, 8, false) => MaxUQ,
            (BitAnd, 8, _) => AndQ,
            (BitAnd, ..) => VOp::And,
            (BitOr, 8, _) => OrQ,
            (BitOr, ..) => VOp::Or,
            (BitXor, 8, _) => XorQ,
            (BitXor, ..) => Xor,
            _ => crate::bug!("no instruction for {op:?} of {dtype}"),
        },
    }
}

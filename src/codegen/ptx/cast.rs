//! Conversions between element types, exactly as the loop IR specifies them.

use super::emit::{Emitter, Val, constant_bits, ty_of, view};
use crate::ir::DType;
use nvptx_builder::{Cmp, Convert, Feature, Operand, Reg, Source, Ty};

impl Emitter<'_> {
    /// Converts a value as `ExprKind::Cast` specifies.
    pub(super) fn cast(&mut self, from: DType, to: DType, x: Val) -> Val {
        if from == to {
            return x;
        }
        match (from, to) {
            (_, DType::Bool) => self.is_nonzero(from, x),
            (DType::Bool, _) => self.number_of_bool(to, x),
            _ => match (from.is_float(), to.is_float()) {
                (false, false) => self.int_to_int(from, to, x),
                (false, true) => self.int_to_float(from, to, x),
                (true, true) => self.float_to_float(from, to, x),
                (true, false) => self.float_to_int(from, to, x),
            },
        }
    }

    /// `x != 0`; true for NaN.
    fn is_nonzero(&mut self, from: DType, x: Val) -> Val {
        if from.is_half() {
            let bits = view(x, Ty::B16);
            let magnitude = self.e.and(bits, Operand::bits(Ty::B16, 0x7fff));
            let zero = Operand::bits(Ty::B16, 0);
            return self.e.setp(Cmp::Ne, magnitude.operand(), zero).erase().operand();
        }
        let cmp = if from.is_float() { Cmp::Neu } else { Cmp::Ne };
        self.e.setp(cmp, x, Operand::bits(x.ty(), 0)).erase().operand()
    }

    fn number_of_bool(&mut self, to: DType, x: Val) -> Val {
        let pred = x.reg().and_then(|reg| reg.typed()).expect("truth values are predicates");
        let (zero, one) = match to {
            DType::Float64 => (Operand::f64(0.0), Operand::f64(1.0)),
            DType::Float32 => (Operand::f32(0.0), Operand::f32(1.0)),
            DType::Float16 => (Operand::bits(Ty::F16, 0), Operand::bits(Ty::F16, 0x3c00)),
            DType::BFloat16 => (Operand::bits(Ty::Bf16, 0), Operand::bits(Ty::Bf16, 0x3f80)),
            DType::Index => (Operand::int(Ty::S32, 0), Operand::int(Ty::S32, 1)),
            _ => (Operand::int(ty_of(to), 0), Operand::int(ty_of(to), 1)),
        };
        self.e.selp(one, zero, pred).operand()
    }

    fn int_to_int(&mut self, from: DType, to: DType, x: Val) -> Val {
        // A 32-bit signed value is a narrow index already.
        if to == DType::Index {
            return match from {
                DType::Int64 => x,
                DType::Uint64 => view(x, Ty::S64),
                DType::Uint32 => {
                    let wide = self.e.cvt_as(Ty::U64, Convert::Usual, x);
                    view(wide.operand(), Ty::S64)
                }
                _ => view(x, Ty::S32),
            };
        }
        let target = ty_of(to);
        let moved = match (x.ty().bits(), target.bits()) {
            (32, 64) => self.extend(x, target),
            (64, 32) if x.reg().is_none() => Operand::bits(target, constant_bits(x)),
            (64, 32) => {
                let low = self.e.cvt_as(Ty::U32, Convert::Usual, view(x, Ty::U64));
                // The low half of a negation is one.
                self.set_negation(low);
                view(low.operand(), target)
            }
            _ => view(x, target),
        };
        let narrower = to.bits() < 32;
        let (lo, hi) = to.int_range();
        let fits = from.bits() <= 16 && from.int_range().0 >= lo && from.int_range().1 <= hi;
        match moved.reg() {
            Some(reg) if narrower && !fits => self.wrap(to, reg),
            Some(_) => moved,
            None => {
                let value = to.wrap(i128::from(constant_bits(moved) as i64));
                Operand::bits(target, value as u64)
            }
        }
    }

    /// Extends 32 bits to 64 by the signedness of the value's type.
    fn extend(&mut self, x: Val, target: Ty) -> Val {
        let wide = if x.ty().is_signed() { Ty::S64 } else { Ty::U64 };
        match x.reg() {
            Some(_) => {
                let wide = self.e.cvt_as(wide, Convert::Usual, x);
                view(wide.operand(), target)
            }
            None if x.ty().is_signed() => Operand::int(target, i64::from(constant_bits(x) as i32)),
            None => Operand::bits(target, constant_bits(x)),
        }
    }

    fn int_to_float(&mut self, _from: DType, to: DType, x: Val) -> Val {
        let x = if x.reg().is_none() { self.e.mov(x).operand() } else { x };
        // Halves go through float32, as specified.
        let float = self.e.cvt_as(ty_of(to.compute_type()), Convert::Usual, x);
        if to.is_half() { self.narrow_half(to, float.operand()) } else { float.operand() }
    }

    fn float_to_int(&mut self, from: DType, to: DType, x: Val) -> Val {
        let x = if from.is_half() { self.widen_half(from, x) } else { x };
        let x = if x.reg().is_none() { self.e.mov(x).operand() } else { x };
        let target = ty_of(to);
        let wide = match to.bits() {
            8 | 16 => Ty::S32,
            _ => target,
        };
        let value = self.e.cvt_as(wide, Convert::Usual, x).operand();
        // Narrow results are clamped in 32 bits.
        if to.bits() < 32 {
            let (lo, hi) = to.int_range();
            let value = self.e.max(value, Operand::int(wide, lo as i64));
            let value = self.e.min(value.operand(), Operand::int(wide, hi as i64)).operand();
            let value = self.zero_if_nan(x, value);
            return view(value, target);
        }
        self.zero_if_nan(x, value)
    }

    /// Replaces the result by 0 for NaN. `cvt` itself gives 0 only from and to at most 32 bits.
    fn zero_if_nan(&mut self, x: Val, value: Val) -> Val {
        if x.ty() == Ty::F32 && value.ty().bits() <= 32 {
            return value;
        }
        let nan = self.e.setp(Cmp::Nan, x, x);
        self.e.selp(Operand::int(value.ty(), 0), value, nan).operand()
    }

    fn float_to_float(&mut self, from: DType, to: DType, x: Val) -> Val {
        let wide = if from.is_half() { self.widen_half(from, x) } else { x };
        let wide = if wide.reg().is_none() { self.e.mov(wide).operand() } else { wide };
        match to {
            DType::Float64 => self.e.cvt_as(Ty::F64, Convert::Usual, wide).operand(),
            DType::Float32 if from == DType::Float64 => {
                self.e.cvt_as(Ty::F32, Convert::Usual, wide).operand()
            }
            DType::Float32 => wide,
            DType::Float16 => self.e.cvt_as(Ty::F16, Convert::Usual, wide).operand(),
            _ if from == DType::Float64 => {
                let odd = self.demote_to_odd(wide);
                self.narrow_half(to, odd)
            }
            _ => self.narrow_half(to, wide),
        }
    }

    /// Converts a half to float32, which is exact.
    pub(super) fn widen_half(&mut self, half: DType, x: Val) -> Val {
        let x = if x.reg().is_none() { self.e.mov(x).operand() } else { x };
        if half == DType::Float16 {
            return self.e.cvt_as(Ty::F32, Convert::Usual, x).operand();
        }
        let bits = self.e.cvt_as(Ty::U32, Convert::Usual, view(x, Ty::U16)).operand();
        let sixteen = Operand::int(Ty::U32, 16).typed().expect("it is a u32");
        let shifted = self.e.shl(bits, sixteen);
        self.e.bitcast_as(Ty::F32, shifted).operand()
    }

    /// Rounds a float32 to a half.
    fn narrow_half(&mut self, half: DType, x: Val) -> Val {
        let native = Feature::CvtToBf16.needs().met_by(self.e.target());
        match half {
            DType::Float16 => self.e.cvt_as(Ty::F16, Convert::Usual, x).operand(),
            _ if native => self.e.cvt_as(Ty::Bf16, Convert::Usual, x).operand(),
            _ => self.narrow_bf16(x),
        }
    }

    /// Rounds to bf16 by integer arithmetic, for targets without the instruction.
    fn narrow_bf16(&mut self, x: Val) -> Val {
        let bits = self.e.bitcast_as(Ty::U32, x).operand();
        let sixteen = Operand::int(Ty::U32, 16).typed().expect("it is a u32");
        let odd = self.e.shr(bits, sixteen);
        let odd = self.e.and(odd.operand(), Operand::int(Ty::U32, 1));
        let sum = self.e.add(bits, Operand::int(Ty::U32, 0x7fff));
        let sum = self.e.add(sum.operand(), odd.operand());
        let rounded = self.e.shr(sum.operand(), sixteen);
        let nan = self.e.setp(Cmp::Nan, x, x);
        let quiet = Operand::int(Ty::U32, 0x7fc0);
        let result = self.e.selp(quiet, rounded.operand(), nan);
        let low = self.e.cvt_as(Ty::U16, Convert::Usual, result);
        view(low.operand(), Ty::Bf16)
    }

    /// Rounds a float64 to float32, to odd: towards zero, with the last bit set if that was
    /// inexact. Rounding the result to a half then equals rounding the float64 once.
    fn demote_to_odd(&mut self, x: Val) -> Val {
        let truncated = self.e.cvt_as(Ty::F32, Convert::Rz, x).operand();
        let back = self.e.cvt_as(Ty::F64, Convert::Usual, truncated).operand();
        let inexact = self.e.setp(Cmp::Ne, back, x);
        let bits = self.e.bitcast_as(Ty::U32, truncated).operand();
        // Overflow truncates to the largest number, which is odd; infinity and NaN are exact.
        let odd = self.e.or(bits, Operand::int(Ty::U32, 1));
        let result = self.e.selp(odd.operand(), bits, inexact);
        self.e.bitcast_as(Ty::F32, result).operand()
    }

    /// Reinterprets the bits as another type of the same size.
    pub(super) fn bitcast(&mut self, from: DType, to: DType, x: Val) -> Val {
        let x = if from == DType::Index { self.widen(x) } else { x };
        let target = ty_of(to);
        match (from.bits(), from.is_half(), to.is_half()) {
            (16, true, true) => view(x, target),
            (16, true, false) => {
                let x = if x.reg().is_none() { self.e.mov(x).operand() } else { x };
                let wide = self.e.cvt_as(Ty::U32, Convert::Usual, view(x, Ty::U16));
                let wide: Reg = wide.view(target).expect("both have 32 bits");
                self.wrap(to, wide)
            }
            (16, false, true) => {
                let x = if x.reg().is_none() { self.e.mov(x).operand() } else { x };
                let low = self.e.cvt_as(Ty::U16, Convert::Usual, view(x, Ty::U32));
                view(low.operand(), target)
            }
            (8 | 16, ..) => match x.reg() {
                Some(reg) => {
                    let reg = reg.view(target).expect("both have 32 bits");
                    self.wrap(to, reg)
                }
                None => {
                    let value = to.wrap(i128::from(constant_bits(x) as i64));
                    Operand::bits(target, value as u64)
                }
            },
            _ if from.is_float() != to.is_float() => {
                let x = if x.reg().is_none() { self.e.mov(x).operand() } else { x };
                self.e.bitcast_as(target, x).operand()
            }
            _ => view(x, target),
        }
    }

    /// `a and b` of predicates, where one may be absent.
    pub(super) fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.e.and(a, b)),
            (one, other) => one.or(other),
        }
    }
}

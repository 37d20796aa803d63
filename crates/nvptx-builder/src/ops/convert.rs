//! Conversions.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::{Operand, Reg, Source, Value};
use crate::ty::*;

/// The rounding of `cvt`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Convert {
    /// To nearest even for floats, towards zero for integers.
    Usual,
    /// To a float, to nearest even.
    Rn,
    /// To a float, towards zero.
    Rz,
    /// To a float, towards −∞.
    Rm,
    /// To a float, towards +∞.
    Rp,
    /// To tf32, ties away from zero.
    Rna,
    /// To an integer (or an integer in a float), to nearest even.
    Rni,
    /// To an integer, towards zero.
    Rzi,
    /// To an integer, towards −∞.
    Rmi,
    /// To an integer, towards +∞.
    Rpi,
    /// As `Usual`, and saturated: integers to the range of the result, floats to 0 … 1.
    Sat,
}

impl Convert {
    fn name(self) -> &'static str {
        match self {
            Convert::Usual => "",
            Convert::Rn => ".rn",
            Convert::Rz => ".rz",
            Convert::Rm => ".rm",
            Convert::Rp => ".rp",
            Convert::Rna => ".rna",
            Convert::Rni => ".rni",
            Convert::Rzi => ".rzi",
            Convert::Rmi => ".rmi",
            Convert::Rpi => ".rpi",
            Convert::Sat => ".sat",
        }
    }
}

/// Whether `cvt` converts single floats of this type.
fn is_real(ty: Ty) -> bool {
    matches!(ty, Ty::F16 | Ty::Bf16 | Ty::F32 | Ty::F64 | Ty::Tf32)
}

/// Returns the bits of the mantissa.
fn precision(ty: Ty) -> u32 {
    match ty {
        Ty::F64 => 53,
        Ty::F32 => 24,
        _ => 11,
    }
}

impl Entry {
    /// Emits `cvt`: converts the value to another type.
    pub fn cvt<U: Static, T: Kind>(&mut self, how: Convert, a: impl Source<T>) -> Reg<U> {
        self.cvt_as(U::STATIC, how, a).cast(U::STATIC)
    }

    /// Like [`Entry::cvt`], to a type known at run time. Results of 8 bits are in 16-bit registers.
    pub fn cvt_as<T: Kind>(&mut self, to: Ty, how: Convert, a: impl Source<T>) -> Reg {
        let a = a.operand().value;
        let from = a.ty();
        let known = |ty: Ty| is_real(ty) || ty.is_int();
        if !known(from) || !known(to) || from == Ty::Tf32 {
            self.refuse("cvt", &format!("there is no conversion from {from} to {to}"));
        }
        let rounding = self.cvt_rounding(from, to, how);
        let feature = match (from, to) {
            (Ty::F32, Ty::Tf32) if how == Convert::Rna => Feature::CvtTf32,
            (Ty::F32, Ty::Tf32) => Feature::CvtTf32Rn,
            (Ty::F32, Ty::Bf16) => Feature::CvtToBf16,
            (Ty::Bf16, Ty::F32) => Feature::CvtFromBf16,
            (Ty::Bf16, _) | (_, Ty::Bf16) => Feature::Bf16Add,
            _ => Feature::Base,
        };
        self.inst(feature, &format!("cvt{rounding}.{to}.{from}"), to, &[(a, from)])
    }

    fn cvt_rounding(&mut self, from: Ty, to: Ty, how: Convert) -> String {
        use Convert::*;
        let to_nearest = matches!(how, Usual | Rn | Rz | Rm | Rp);
        let to_integer = matches!(how, Usual | Rni | Rzi | Rmi | Rpi);
        let usual = |usual: &str| match how {
            Usual => usual.to_string(),
            Sat => format!("{usual}.sat"),
            _ => how.name().to_string(),
        };
        let fits = match (is_real(from), is_real(to)) {
            (false, false) => matches!(how, Usual | Sat),
            (true, false) => to_integer || how == Sat,
            (false, true) => to_nearest,
            (true, true) if to == Ty::Tf32 => matches!(how, Rna | Rn | Usual),
            (true, true) if from == to => to_integer && how != Usual || how == Sat,
            (true, true) => to_nearest || how == Sat,
        };
        if !fits {
            self.refuse("cvt", &format!("{how:?} is no rounding from {from} to {to}"));
        }
        match (is_real(from), is_real(to)) {
            (false, false) => usual(""),
            (true, false) => usual(".rzi"),
            (false, true) => usual(".rn"),
            (true, true) if from == to => usual(""),
            (true, true) if precision(to) > precision(from) => usual(""),
            (true, true) => usual(".rn"),
        }
    }

    /// Emits `cvt.s32.s8` and so on within a register: sign- or zero-extends the low bits, whose
    /// type is `low` (8 or 16 bits).
    pub fn extend_low<T: Int>(&mut self, low: Ty, a: Reg<T>) -> Reg<T> {
        let ty = a.ty();
        if !low.is_int() || low.bits() >= ty.bits() || !ty.is_int() {
            self.refuse("cvt", &format!("the low bits of a {ty} are no {low}"));
        }
        // The source may be wider than the type says; the type of the operand is that of `a`.
        let (name, a) = (format!("cvt.{ty}.{low}"), Value::Reg(a.erase()));
        self.inst(Feature::Base, &name, ty, &[(a, ty)])
    }

    /// Emits `cvt.rn.bf16x2.f32` and so on: packs two floats as halves, `lo` in the low half.
    pub fn cvt_pair<U: Static>(&mut self, hi: impl Source<F32>, lo: impl Source<F32>) -> Reg<U> {
        self.cvt_pair_as(U::STATIC, hi, lo).cast(U::STATIC)
    }

    /// Like [`Entry::cvt_pair`], to a type known at run time: `f16x2`, `bf16x2`, `e4m3x2`,
    /// `e5m2x2`.
    pub fn cvt_pair_as(&mut self, to: Ty, hi: impl Source<F32>, lo: impl Source<F32>) -> Reg {
        let (feature, saturate) = match to {
            Ty::F16x2 | Ty::Bf16x2 => (Feature::CvtToBf16, ""),
            Ty::E4m3x2 | Ty::E5m2x2 => (Feature::CvtFp8, ".satfinite"),
            _ => {
                self.refuse("cvt", &format!("{to} is no pair"));
                (Feature::Base, "")
            }
        };
        let srcs = [(hi.operand().value, Ty::F32), (lo.operand().value, Ty::F32)];
        self.inst(feature, &format!("cvt.rn{saturate}.{to}.f32"), to, &srcs)
    }

    /// Emits `cvt.rn.f16x2.e4m3x2`: converts two 8-bit floats to halves, exactly.
    pub fn cvt_from_fp8<T: Kind>(&mut self, a: Reg<T>) -> Reg<F16x2> {
        let from = a.ty();
        if !matches!(from, Ty::E4m3x2 | Ty::E5m2x2) {
            self.refuse("cvt", &format!("{from} is no pair of 8-bit floats"));
        }
        let name = format!("cvt.rn.f16x2.{from}");
        self.inst(Feature::CvtFp8, &name, Ty::F16x2, &[(Value::Reg(a.erase()), from)])
    }

    /// Converts a `bf16` to a float by a shift: exact like `cvt`, and available on every target.
    pub fn bf16_to_f32(&mut self, a: Reg<Bf16>) -> Reg<F32> {
        let zero = self.mov(Operand::int(Ty::B16, 0));
        let bits: Reg<B32> = self.pack(&[zero, a.b16().erase()]);
        self.bitcast(bits)
    }
}

//! Arithmetic of integers and floats. Float instructions always have a rounding modifier, so that
//! `ptxas` does not fuse a product and a sum.

use crate::entry::Entry;
use crate::needs::Feature;
use crate::reg::{Reg, Source, Value};
use crate::ty::*;

/// The rounding of a float result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rounding {
    /// To nearest, ties to even.
    Rn,
    /// Towards zero.
    Rz,
    /// Towards −∞.
    Rm,
    /// Towards +∞.
    Rp,
}

impl Rounding {
    fn name(self) -> &'static str {
        match self {
            Rounding::Rn => ".rn",
            Rounding::Rz => ".rz",
            Rounding::Rm => ".rm",
            Rounding::Rp => ".rp",
        }
    }
}

/// The approximate functions of f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Approx {
    /// `1 / x`
    Rcp,
    /// The square root.
    Sqrt,
    /// `1 / sqrt(x)`
    Rsqrt,
    /// 2 to the x.
    Ex2,
    /// The logarithm to base 2.
    Lg2,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
    /// The hyperbolic tangent, to eleven bits.
    Tanh,
}

impl Approx {
    fn name(self) -> &'static str {
        match self {
            Approx::Rcp => "rcp",
            Approx::Sqrt => "sqrt",
            Approx::Rsqrt => "rsqrt",
            Approx::Ex2 => "ex2",
            Approx::Lg2 => "lg2",
            Approx::Sin => "sin",
            Approx::Cos => "cos",
            Approx::Tanh => "tanh",
        }
    }
}

fn is_number(ty: Ty) -> bool {
    is_integer(ty) || is_real(ty)
}

fn is_integer(ty: Ty) -> bool {
    ty.is_int() && ty.bits() >= 16
}

fn is_real(ty: Ty) -> bool {
    ty.is_float() || ty.is_half()
}

/// Returns the feature for sums and products of a type: bf16 came later than f16.
fn half_feature(ty: Ty) -> Feature {
    match ty {
        Ty::Bf16 | Ty::Bf16x2 => Feature::Bf16Add,
        _ => Feature::Base,
    }
}

impl Entry {
    /// Emits `add`: integers wrap, floats round to nearest even.
    pub fn add<T: Num>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.sum("add", Rounding::Rn, a.operand().value, b.operand().value)
    }

    /// Emits `add` of floats with a rounding.
    pub fn add_rounded<T: Float>(
        &mut self,
        rounding: Rounding,
        a: impl Source<T>,
        b: impl Source<T>,
    ) -> Reg<T> {
        self.sum("add", rounding, a.operand().value, b.operand().value)
    }

    /// Emits `sub`: integers wrap, floats round to nearest even.
    pub fn sub<T: Num>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.sum("sub", Rounding::Rn, a.operand().value, b.operand().value)
    }

    /// Emits `sub` of floats with a rounding.
    pub fn sub_rounded<T: Float>(
        &mut self,
        rounding: Rounding,
        a: impl Source<T>,
        b: impl Source<T>,
    ) -> Reg<T> {
        self.sum("sub", rounding, a.operand().value, b.operand().value)
    }

    /// Emits `mul` of floats, to nearest even; `mul.lo` of integers.
    pub fn mul<T: Num>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.sum("mul", Rounding::Rn, a.operand().value, b.operand().value)
    }

    /// Emits `mul` of floats with a rounding.
    pub fn mul_rounded<T: Float>(
        &mut self,
        rounding: Rounding,
        a: impl Source<T>,
        b: impl Source<T>,
    ) -> Reg<T> {
        self.sum("mul", rounding, a.operand().value, b.operand().value)
    }

    fn sum<T: Kind>(&mut self, op: &str, rounding: Rounding, a: Value, b: Value) -> Reg<T> {
        let ty = self.checked(op, a, is_number, "numbers");
        let modifier = match (is_integer(ty), op) {
            (true, "mul") => ".lo",
            (true, _) => "",
            (false, _) => rounding.name(),
        };
        if ty.is_half() && rounding != Rounding::Rn {
            self.refuse(op, "halves are rounded to nearest only");
        }
        let name = format!("{op}{modifier}.{ty}");
        self.inst(half_feature(ty), &name, ty, &[(a, ty), (b, ty)])
    }

    /// Emits `fma`: `a * b + c`, rounded once, to nearest even.
    pub fn fma<T: Float>(
        &mut self,
        a: impl Source<T>,
        b: impl Source<T>,
        c: impl Source<T>,
    ) -> Reg<T> {
        self.fma_rounded(Rounding::Rn, a, b, c)
    }

    /// Emits `fma` with a rounding.
    pub fn fma_rounded<T: Float>(
        &mut self,
        rounding: Rounding,
        a: impl Source<T>,
        b: impl Source<T>,
        c: impl Source<T>,
    ) -> Reg<T> {
        let (a, b, c) = (a.operand().value, b.operand().value, c.operand().value);
        let ty = self.checked("fma", a, is_real, "floats");
        if ty.is_half() && rounding != Rounding::Rn {
            self.refuse("fma", "halves are rounded to nearest only");
        }
        let feature = match ty {
            Ty::Bf16 | Ty::Bf16x2 => Feature::Bf16Fma,
            _ => Feature::Base,
        };
        let name = format!("fma{}.{ty}", rounding.name());
        self.inst(feature, &name, ty, &[(a, ty), (b, ty), (c, ty)])
    }

    /// Emits `add.rn.f32x2`: two sums at once.
    pub fn add_x2(&mut self, a: Reg<F32x2>, b: Reg<F32x2>) -> Reg<F32x2> {
        self.pairs("add", &[a, b])
    }

    /// Emits `mul.rn.f32x2`: two products at once.
    pub fn mul_x2(&mut self, a: Reg<F32x2>, b: Reg<F32x2>) -> Reg<F32x2> {
        self.pairs("mul", &[a, b])
    }

    /// Emits `fma.rn.f32x2`: two fused multiply-adds at once.
    pub fn fma_x2(&mut self, a: Reg<F32x2>, b: Reg<F32x2>, c: Reg<F32x2>) -> Reg<F32x2> {
        self.pairs("fma", &[a, b, c])
    }

    fn pairs(&mut self, op: &str, regs: &[Reg<F32x2>]) -> Reg<F32x2> {
        let srcs: Vec<_> = regs.iter().map(|reg| (reg.operand().value, Ty::F32x2)).collect();
        self.inst(Feature::F32x2, &format!("{op}.rn.f32x2"), Ty::F32x2, &srcs)
    }

    /// Emits `mul.hi`: the upper half of the product.
    pub fn mul_hi<T: Int>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.integers("mul.hi", &[a.operand().value, b.operand().value])
    }

    /// Emits `mul.wide`: the whole product, twice as wide.
    pub fn mul_wide<T: Widen>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T::Wide> {
        let (a, b) = (a.operand().value, b.operand().value);
        let (ty, wide) = self.widened("mul.wide", a);
        self.inst(Feature::Base, &format!("mul.wide.{ty}"), wide, &[(a, ty), (b, ty)])
    }

    /// Emits `mad.lo`: the lower half of the product, plus `c`.
    pub fn mad<T: Int>(
        &mut self,
        a: impl Source<T>,
        b: impl Source<T>,
        c: impl Source<T>,
    ) -> Reg<T> {
        self.integers("mad.lo", &[a.operand().value, b.operand().value, c.operand().value])
    }

    /// Emits `mad.hi`: the upper half of the product, plus `c`.
    pub fn mad_hi<T: Int>(
        &mut self,
        a: impl Source<T>,
        b: impl Source<T>,
        c: impl Source<T>,
    ) -> Reg<T> {
        self.integers("mad.hi", &[a.operand().value, b.operand().value, c.operand().value])
    }

    /// Emits `mad.wide`: the whole product, plus `c`.
    pub fn mad_wide<T: Widen>(
        &mut self,
        a: impl Source<T>,
        b: impl Source<T>,
        c: impl Source<T::Wide>,
    ) -> Reg<T::Wide> {
        let (a, b, c) = (a.operand().value, b.operand().value, c.operand().value);
        let (ty, wide) = self.widened("mad.wide", a);
        let srcs = [(a, ty), (b, ty), (c, wide)];
        self.inst(Feature::Base, &format!("mad.wide.{ty}"), wide, &srcs)
    }

    fn widened(&mut self, name: &str, a: Value) -> (Ty, Ty) {
        let has = |ty: Ty| ty.widened().is_some();
        let ty = self.checked(name, a, has, "integers of 16 or 32 bits");
        (ty, ty.widened().unwrap_or(ty))
    }

    fn integers<T: Kind>(&mut self, op: &str, values: &[Value]) -> Reg<T> {
        let ty = self.checked(op, values[0], is_integer, "integers");
        let srcs: Vec<_> = values.iter().map(|&value| (value, ty)).collect();
        self.inst(Feature::Base, &format!("{op}.{ty}"), ty, &srcs)
    }

    /// Emits `div` of integers, towards zero (division by 0 is undefined); `div.rn` of floats.
    pub fn div<T: Num>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        let (a, b) = (a.operand().value, b.operand().value);
        let has = |ty: Ty| is_integer(ty) || ty.is_float();
        let ty = self.checked("div", a, has, "integers, f32 or f64");
        let rn = if ty.is_float() { ".rn" } else { "" };
        self.inst(Feature::Base, &format!("div{rn}.{ty}"), ty, &[(a, ty), (b, ty)])
    }

    /// Emits `div.full.f32`: error at most 2 ulp in the whole range.
    pub fn div_full(&mut self, a: impl Source<F32>, b: impl Source<F32>) -> Reg<F32> {
        self.singles(Feature::Base, "div.full.f32", &[a.operand().value, b.operand().value])
    }

    /// Emits `div.approx.f32`: error at most 2 ulp for divisors from 2^-126 to 2^126.
    pub fn div_approx(&mut self, a: impl Source<F32>, b: impl Source<F32>) -> Reg<F32> {
        self.singles(Feature::Base, "div.approx.f32", &[a.operand().value, b.operand().value])
    }

    fn singles(&mut self, feature: Feature, name: &str, values: &[Value]) -> Reg<F32> {
        let srcs: Vec<_> = values.iter().map(|&value| (value, Ty::F32)).collect();
        self.inst(feature, name, Ty::F32, &srcs)
    }

    /// Emits `rem`: the remainder of [`Entry::div`], with the sign of `a`.
    pub fn rem<T: Int>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.integers("rem", &[a.operand().value, b.operand().value])
    }

    /// Emits `min`. Of floats: the other operand if one is NaN.
    pub fn min<T: Num>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.extreme("min", a.operand().value, b.operand().value)
    }

    /// Emits `max`. Of floats: the other operand if one is NaN.
    pub fn max<T: Num>(&mut self, a: impl Source<T>, b: impl Source<T>) -> Reg<T> {
        self.extreme("max", a.operand().value, b.operand().value)
    }

    fn extreme<T: Kind>(&mut self, op: &str, a: Value, b: Value) -> Reg<T> {
        let ty = self.checked(op, a, is_number, "numbers");
        let feature = if ty.is_half() { Feature::NanMinMax } else { Feature::Base };
        self.inst(feature, &format!("{op}.{ty}"), ty, &[(a, ty), (b, ty)])
    }

    /// Emits `min.NaN.f32`: NaN if an operand is NaN.
    pub fn min_nan(&mut self, a: impl Source<F32>, b: impl Source<F32>) -> Reg<F32> {
        self.singles(Feature::NanMinMax, "min.NaN.f32", &[a.operand().value, b.operand().value])
    }

    /// Emits `max.NaN.f32`: NaN if an operand is NaN.
    pub fn max_nan(&mut self, a: impl Source<F32>, b: impl Source<F32>) -> Reg<F32> {
        self.singles(Feature::NanMinMax, "max.NaN.f32", &[a.operand().value, b.operand().value])
    }

    /// Emits `min.f32` of three.
    pub fn min3(&mut self, a: Reg<F32>, b: Reg<F32>, c: Reg<F32>) -> Reg<F32> {
        let values = [a, b, c].map(|reg| reg.operand().value);
        self.singles(Feature::ThreeInputs, "min.f32", &values)
    }

    /// Emits `max.f32` of three.
    pub fn max3(&mut self, a: Reg<F32>, b: Reg<F32>, c: Reg<F32>) -> Reg<F32> {
        let values = [a, b, c].map(|reg| reg.operand().value);
        self.singles(Feature::ThreeInputs, "max.f32", &values)
    }

    /// Emits `neg`: integers wrap (unsigned ones like signed ones), floats flip the sign bit.
    pub fn neg<T: Num>(&mut self, a: impl Source<T>) -> Reg<T> {
        self.sign("neg", a.operand().value)
    }

    /// Emits `abs` of signed integers (the least one is unchanged) and floats.
    pub fn abs<T: Num>(&mut self, a: impl Source<T>) -> Reg<T> {
        let a = a.operand().value;
        let has = |ty: Ty| is_number(ty) && (ty.is_signed() || is_real(ty));
        self.checked("abs", a, has, "signed");
        self.sign("abs", a)
    }

    fn sign<T: Kind>(&mut self, op: &str, a: Value) -> Reg<T> {
        let ty = self.checked(op, a, is_number, "numbers");
        let signed = match ty {
            Ty::U16 => Ty::S16,
            Ty::U32 => Ty::S32,
            Ty::U64 => Ty::S64,
            _ => ty,
        };
        let feature = match ty {
            Ty::Bf16 | Ty::Bf16x2 => Feature::Bf16Fma,
            Ty::F16 | Ty::F16x2 if op == "abs" => Feature::HalfAbs,
            _ => Feature::Base,
        };
        self.inst(feature, &format!("{op}.{signed}"), ty, &[(a, ty)])
    }

    /// Emits `rcp.rn`: `1 / a`, correctly rounded.
    pub fn rcp<T: Float>(&mut self, a: impl Source<T>) -> Reg<T> {
        self.exact("rcp", a.operand().value)
    }

    /// Emits `sqrt.rn`: correctly rounded.
    pub fn sqrt<T: Float>(&mut self, a: impl Source<T>) -> Reg<T> {
        self.exact("sqrt", a.operand().value)
    }

    fn exact<T: Kind>(&mut self, op: &str, a: Value) -> Reg<T> {
        let ty = self.checked(op, a, Ty::is_float, "f32 or f64");
        self.inst(Feature::Base, &format!("{op}.rn.{ty}"), ty, &[(a, ty)])
    }

    /// Emits `ex2.approx.f32` and so on, with subnormals.
    pub fn approx(&mut self, function: Approx, a: impl Source<F32>) -> Reg<F32> {
        self.approximate(function, "", a.operand().value)
    }

    /// Emits `ex2.approx.ftz.f32` and so on: flushes subnormals to zero, which is faster.
    pub fn approx_ftz(&mut self, function: Approx, a: impl Source<F32>) -> Reg<F32> {
        let ftz = if function == Approx::Tanh { "" } else { ".ftz" };
        self.approximate(function, ftz, a.operand().value)
    }

    fn approximate(&mut self, function: Approx, ftz: &str, a: Value) -> Reg<F32> {
        let feature = if function == Approx::Tanh { Feature::Tanh } else { Feature::Base };
        self.singles(feature, &format!("{}.approx{ftz}.f32", function.name()), &[a])
    }

    /// Emits `dp4a`: the dot product of four 8-bit integers, plus `c`. An `s32` operand holds
    /// signed bytes, a `u32` operand unsigned ones.
    pub fn dp4a<T: Int, A: Int, B: Int>(
        &mut self,
        a: impl Source<A>,
        b: impl Source<B>,
        c: impl Source<T>,
    ) -> Reg<T> {
        let (a, b, c) = (a.operand().value, b.operand().value, c.operand().value);
        let has = |ty: Ty| matches!(ty, Ty::U32 | Ty::S32);
        let at = self.checked("dp4a", a, has, "u32 or s32");
        let bt = self.checked("dp4a", b, has, "u32 or s32");
        let sign = if at.is_signed() || bt.is_signed() { Ty::S32 } else { Ty::U32 };
        let ct = self.checked("dp4a", c, has, "u32 or s32");
        if ct != sign {
            self.refuse("dp4a", &format!("the sum of {at} and {bt} bytes is {sign}, not {ct}"));
        }
        self.inst(Feature::Base, &format!("dp4a.{at}.{bt}"), ct, &[(a, at), (b, bt), (c, ct)])
    }
}

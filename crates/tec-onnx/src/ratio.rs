//! Floats that are fractions of run-time integers, as in `int(height * 2.5)`.

use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::{Graph, Tensor};

/// The largest power of 2 that divides a fraction by which a float is multiplied.
const MAX_POWER: i64 = 1 << 8;

/// The float `num / den`. Operations leave `num` as it is or enlarge it, so that all of them are
/// exact if `num` is exact in the type.
#[derive(Clone, Debug)]
pub(crate) struct Ratio {
    num: Dim,
    /// Positive. If it is no power of 2, the float is rounded, but its floor is exact.
    den: i64,
    dtype: DType,
}

impl Ratio {
    fn is_exact(&self) -> bool {
        self.den.count_ones() == 1
    }

    /// `self * factor / divisor`.
    fn scaled(self, factor: i64, divisor: i64) -> Option<Ratio> {
        let den = self.den.checked_mul(divisor).filter(|den| *den < 1 << 20)?;
        (self.is_exact() && factor > 0).then(|| Ratio { num: self.num * factor, den, ..self })
    }

    /// Both numerators over one denominator.
    fn common(self, other: Ratio) -> Option<(Dim, Dim, i64)> {
        let both = self.is_exact() && other.is_exact() && self.dtype == other.dtype;
        let den = self.den.max(other.den);
        both.then(|| (self.num * (den / self.den), other.num * (den / other.den), den))
    }

    fn floor(self) -> Ratio {
        Ratio { num: self.num.div(&self.den.into()), den: 1, ..self }
    }

    fn ceil(self) -> Ratio {
        Ratio { num: (self.num + (self.den - 1)).div(&self.den.into()), den: 1, ..self }
    }
}

/// A positive constant as a fraction of small numbers.
fn fraction(value: f64) -> Option<(i64, i64)> {
    let mut power = 1;
    while power < MAX_POWER && (value * power as f64).fract() != 0.0 {
        power *= 2;
    }
    let factor = value * power as f64;
    (factor.fract() == 0.0 && (1.0..1e6).contains(&factor)).then_some((factor as i64, power))
}

impl Graph {
    /// The fraction that a tensor of one float is.
    pub(crate) fn ratio_of(&self, tensor: &Tensor) -> Option<Ratio> {
        let crate::graph::Def::Compute { body, reduce: None } = &tensor.def else { return None };
        let is_one = tensor.dtype.is_float() && tensor.len() == Some(1) && tensor.vals.is_none();
        if is_one { self.ratio(body, tensor.dtype) } else { None }
    }

    /// The fraction that an expression of a tensor of one element is.
    fn ratio(&self, body: &E, dtype: DType) -> Option<Ratio> {
        let constant = |e: &E| match e.eval(self, &|_| Some(Dim::zero()))? {
            Val::Float(value) => Some(value),
            _ => None,
        };
        let of = |e: &E| -> Option<Ratio> {
            match constant(e) {
                Some(value) => {
                    let (num, den) = fraction(value.abs())?;
                    let num = if value < 0.0 { -num } else { num };
                    Some(Ratio { num: num.into(), den, dtype })
                }
                None => self.ratio(e, dtype),
            }
        };
        match body {
            E::Load(tensor, _) => self.ratios.get(tensor).cloned(),
            E::Cast(inner, to) if to.is_float() => match inner.eval(self, &|_| Some(Dim::zero())) {
                Some(Val::Int(num)) => Some(Ratio { num, den: 1, dtype: *to }),
                _ => None,
            },
            E::Call("floor", args) => Some(of(&args[0])?.floor()),
            E::Call("ceil", args) => Some(of(&args[0])?.ceil()),
            E::Call("trunc", args) => {
                Some(of(&args[0])?).filter(|ratio| ratio.num.is_nonnegative()).map(Ratio::floor)
            }
            E::Bin("*", a, b) => match (constant(a), constant(b)) {
                (None, Some(value)) | (Some(value), None) => {
                    let (factor, divisor) = fraction(value)?;
                    let other = if constant(a).is_some() { b } else { a };
                    self.ratio(other, dtype)?.scaled(factor, divisor)
                }
                _ => None,
            },
            E::Bin("/", a, b) => {
                let (factor, divisor) = fraction(constant(b)?)?;
                self.ratio(a, dtype)?.scaled(divisor, factor)
            }
            E::Bin(op @ ("+" | "-"), a, b) => {
                let (x, y, den) = of(a)?.common(of(b)?)?;
                Some(Ratio { num: if *op == "+" { x + y } else { x - y }, den, dtype })
            }
            E::Call(name @ ("min" | "max"), args) if args.len() == 2 => {
                let (x, y, den) = of(&args[0])?.common(of(&args[1])?)?;
                let num = if *name == "min" { x.minimum(&y) } else { x.maximum(&y) };
                Some(Ratio { num, den, dtype })
            }
            _ => None,
        }
        .filter(|ratio| ratio.dtype == dtype && !ratio.num.is_poison())
    }

    /// The integer that a conversion makes of a float, if that is a fraction. Notes that the float
    /// must be exact.
    pub(crate) fn truncated(&self, e: &E) -> Option<Dim> {
        let E::Load(tensor, _) = e else { return None };
        let ratio = self.ratios.get(tensor)?;
        if ratio.den != 1 && !ratio.num.is_nonnegative() {
            return None;
        }
        self.note_exact(&ratio.num, ratio.dtype);
        Some(ratio.clone().floor().num)
    }

    /// The integer that a tensor of one float is. Notes that the float must be exact.
    pub(crate) fn whole(&self, tensor: crate::graph::T) -> Option<Dim> {
        let ratio = self.ratios.get(&tensor).filter(|ratio| ratio.den == 1)?;
        self.note_exact(&ratio.num, ratio.dtype);
        Some(ratio.num.clone())
    }
}

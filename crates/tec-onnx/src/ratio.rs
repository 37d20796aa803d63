//! Floats that are fractions of run-time integers, as in `int(height * 2.5)`.

use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::{Graph, T, Tensor, unflatten};
use std::collections::BTreeSet;

/// The largest number of roundings in a fraction: a model may combine any number of them.
const MAX_ROUNDED: usize = 16;

/// The largest power of 2 that divides a fraction by which a float is multiplied.
const MAX_POWER: i64 = 1 << 8;

/// The float `num / den`. Operations but those that round leave `num` as it is or enlarge it, so that
/// all of them are exact if `num`, and what was rounded, are exact in the type.
#[derive(Clone, Debug)]
pub(crate) struct Ratio {
    num: Dim,
    /// Positive. If it is no power of 2, the float is rounded, but its floor is exact.
    den: i64,
    dtype: DType,
    /// The numerators before they were rounded, at most [`MAX_ROUNDED`].
    rounded: BTreeSet<Dim>,
}

impl Ratio {
    fn new(num: Dim, den: i64, dtype: DType) -> Ratio {
        Ratio { num, den, dtype, rounded: BTreeSet::new() }
    }

    fn is_exact(&self) -> bool {
        self.den.count_ones() == 1
    }

    /// `self * factor / divisor`.
    fn scaled(self, factor: i64, divisor: i64) -> Option<Ratio> {
        let den = self.den.checked_mul(divisor).filter(|den| *den < 1 << 20)?;
        (self.is_exact() && factor > 0).then(|| Ratio { num: self.num * factor, den, ..self })
    }

    /// Both numerators over one denominator, combined.
    fn combined(self, other: Ratio, combine: impl Fn(Dim, Dim) -> Dim) -> Option<Ratio> {
        if !self.is_exact() || !other.is_exact() || self.dtype != other.dtype {
            return None;
        }
        let den = self.den.max(other.den);
        let num = combine(self.num * (den / self.den), other.num * (den / other.den));
        let rounded: BTreeSet<Dim> = self.rounded.into_iter().chain(other.rounded).collect();
        Some(Ratio { num, den, dtype: self.dtype, rounded })
    }

    fn floor(mut self) -> Ratio {
        self.rounded.insert(self.num.clone());
        Ratio { num: self.num.div(&self.den.into()), den: 1, ..self }
    }

    fn ceil(mut self) -> Ratio {
        self.rounded.insert(self.num.clone());
        Ratio { num: (self.num + (self.den - 1)).div(&self.den.into()), den: 1, ..self }
    }
}

/// A positive constant as a fraction of small numbers.
pub(crate) fn fraction(value: f64) -> Option<(i64, i64)> {
    let mut power = 1;
    while power < MAX_POWER && (value * power as f64).fract() != 0.0 {
        power *= 2;
    }
    let factor = value * power as f64;
    (factor.fract() == 0.0 && (1.0..1e6).contains(&factor)).then_some((factor as i64, power))
}

/// The largest number of elements of a list of fractions: sizes or scales of the axes of a tensor.
const MAX_RATIOS: usize = 8;

/// The value of each axis of a computed tensor.
type Axes<'a> = &'a dyn Fn(u16) -> Option<Dim>;

impl Graph {
    /// The fractions that the elements of a short list of floats are.
    pub(crate) fn ratios_of(&self, tensor: &Tensor) -> Option<Vec<Ratio>> {
        let crate::graph::Def::Compute { body, reduce: None } = &tensor.def else { return None };
        let len = tensor.len().filter(|len| (1..=MAX_RATIOS).contains(len))?;
        if !tensor.dtype.is_float() || tensor.vals.is_some() {
            return None;
        }
        let extents: Vec<usize> = tensor.shape.iter().map(Dim::as_extent).collect::<Option<_>>()?;
        let element = |flat| {
            let at = unflatten(flat, &extents);
            let axis = |id| at.get(usize::from(id)).copied().map(Dim::from);
            self.fraction_or_constant(body, tensor.dtype, &axis)
        };
        (0..len).map(element).collect()
    }

    /// The fraction that an expression is, constant or not.
    fn fraction_or_constant(&self, e: &E, dtype: DType, axis: Axes<'_>) -> Option<Ratio> {
        match self.float(e, axis) {
            Some(0.0) => Some(Ratio::new(Dim::zero(), 1, dtype)),
            Some(value) => {
                let (num, den) = fraction(value.abs())?;
                let num = if value < 0.0 { -num } else { num };
                Some(Ratio::new(num.into(), den, dtype))
            }
            None => self.ratio(e, dtype, axis),
        }
    }

    /// The value of a float that is known.
    fn float(&self, e: &E, axis: Axes<'_>) -> Option<f64> {
        match e.eval(self, axis)? {
            Val::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The fraction that an expression is which is not constant.
    fn ratio(&self, body: &E, dtype: DType, axis: Axes<'_>) -> Option<Ratio> {
        let of = |e: &E| self.fraction_or_constant(e, dtype, axis);
        let constant = |e: &E| self.float(e, axis);
        match body {
            E::Load(tensor, index) => self.element_ratio(*tensor, index, axis).cloned(),
            E::If(cond, yes, no) => match cond.eval(self, axis)? {
                Val::Bool(true) => of(yes),
                Val::Bool(false) => of(no),
                _ => None,
            },
            E::Cast(inner, to) if to.is_float() => match inner.eval(self, axis) {
                Some(Val::Int(num)) => Some(Ratio::new(num, 1, *to)),
                _ => self.ratio(inner, *to, axis),
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
                    self.ratio(other, dtype, axis)?.scaled(factor, divisor)
                }
                _ => None,
            },
            E::Bin("/", a, b) => {
                let (factor, divisor) = fraction(constant(b)?)?;
                self.ratio(a, dtype, axis)?.scaled(divisor, factor)
            }
            E::Bin(op @ ("+" | "-"), a, b) => {
                of(a)?.combined(of(b)?, |x, y| if *op == "+" { x + y } else { x - y })
            }
            E::Call(name @ ("min" | "max"), args) if args.len() == 2 => {
                let least = *name == "min";
                let combine = |x: Dim, y: Dim| if least { x.minimum(&y) } else { x.maximum(&y) };
                of(&args[0])?.combined(of(&args[1])?, combine)
            }
            _ => None,
        }
        .filter(|ratio| ratio.dtype == dtype && !ratio.num.is_poison())
        .filter(|ratio| ratio.rounded.len() <= MAX_ROUNDED)
    }

    /// The fraction that an element of a tensor is.
    fn element_ratio(&self, tensor: T, index: &[E], axis: Axes<'_>) -> Option<&Ratio> {
        let ratios = self.ratios.get(&tensor)?;
        let mut flat = 0;
        for (e, extent) in index.iter().zip(&self[tensor].shape) {
            let at = usize::try_from(e.eval(self, axis)?.as_int()?).ok()?;
            flat = flat * extent.as_extent().filter(|extent| at < *extent)? + at;
        }
        ratios.get(flat)
    }

    /// The integer that a conversion makes of a float, if that is a fraction. Notes that the float
    /// must be exact.
    pub(crate) fn truncated(&self, e: &E, axis: Axes<'_>) -> Option<Dim> {
        let E::Load(tensor, index) = e else { return None };
        let ratio = self.element_ratio(*tensor, index, axis)?;
        if ratio.den != 1 && !ratio.num.is_nonnegative() {
            return None;
        }
        self.note_exact_ratio(ratio);
        Some(ratio.clone().floor().num)
    }

    /// The integer that a tensor of one float is. Notes that the float must be exact.
    pub(crate) fn whole(&self, tensor: T) -> Option<Dim> {
        let [ratio] = &self.ratios.get(&tensor)?[..] else { return None };
        if ratio.den != 1 {
            return None;
        }
        self.note_exact_ratio(ratio);
        Some(ratio.num.clone())
    }

    fn note_exact_ratio(&self, ratio: &Ratio) {
        for num in ratio.rounded.iter().chain([&ratio.num]) {
            self.note_exact(num, ratio.dtype);
        }
    }
}

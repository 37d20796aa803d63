//! Real constants: exact rationals with a signed zero, as floats have.
//!
//! `-0.0` differs from `0.0` (`1 / -0.0` is −∞), so a rational does not suffice. Infinity and NaN
//! are not real constants: they have a type, as `inf(float32)` has, and operations on them use that
//! type.

use super::constants::{self, round_half_even};
use crate::ir::DType;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, Zero};
use std::cmp::Ordering;
use std::fmt;

/// An exact number. Compares as floats do: both zeros are equal.
#[derive(Clone, Debug)]
pub struct Real {
    exact: BigRational,
    /// Whether it is the negative zero.
    minus_zero: bool,
}

impl Real {
    /// Returns a number; its zero is positive.
    pub fn new(exact: BigRational) -> Real {
        Real { exact, minus_zero: false }
    }

    /// Returns a number; if it is zero, `negative` is its sign.
    fn signed(exact: BigRational, negative: bool) -> Real {
        let minus_zero = negative && exact.is_zero();
        Real { exact, minus_zero }
    }

    /// Returns an integer; integers have no negative zero.
    pub fn from_integer(value: BigInt) -> Real {
        Real::new(BigRational::from_integer(value))
    }

    /// Returns the value of a finite float.
    pub fn from_float(value: f64) -> Option<Real> {
        Some(Real::signed(BigRational::from_float(value)?, value.is_sign_negative()))
    }

    /// Its value; both zeros are 0.
    pub fn exact(&self) -> &BigRational {
        &self.exact
    }

    /// True for both zeros.
    pub fn is_zero(&self) -> bool {
        self.exact.is_zero()
    }

    /// True below zero and for the negative zero.
    fn is_negative(&self) -> bool {
        self.minus_zero || self.exact.is_negative()
    }

    /// `-self`.
    pub fn negated(&self) -> Real {
        Real::signed(-self.exact.clone(), !self.is_negative())
    }

    /// `self + other`: zero is negative only as the sum of two negative zeros.
    pub fn plus(&self, other: &Real) -> Real {
        let negative = self.is_negative() && other.is_negative();
        Real::signed(&self.exact + &other.exact, negative)
    }

    /// `self - other`.
    pub fn minus(&self, other: &Real) -> Real {
        self.plus(&other.negated())
    }

    /// `self * other`: the sign of zero is the product of the signs.
    pub fn times(&self, other: &Real) -> Real {
        let negative = self.is_negative() != other.is_negative();
        Real::signed(&self.exact * &other.exact, negative)
    }

    /// `self / other`; `None` if `other` is zero.
    pub fn over(&self, other: &Real) -> Option<Real> {
        let negative = self.is_negative() != other.is_negative();
        (!other.is_zero()).then(|| Real::signed(&self.exact / &other.exact, negative))
    }

    /// Returns the magnitude.
    pub fn abs(&self) -> Real {
        Real::new(self.exact.abs())
    }

    /// Rounds down to an integer.
    pub fn floor(&self) -> Real {
        Real::signed(self.exact.floor(), self.is_negative())
    }

    /// Rounds up to an integer; −0.5 becomes the negative zero.
    pub fn ceil(&self) -> Real {
        Real::signed(self.exact.ceil(), self.is_negative())
    }

    /// Rounds towards zero.
    pub fn trunc(&self) -> Real {
        Real::signed(self.exact.trunc(), self.is_negative())
    }

    /// Rounds to the nearest integer, half to even.
    pub fn round(&self) -> Real {
        let nearest = BigRational::from_integer(round_half_even(&self.exact));
        Real::signed(nearest, self.is_negative())
    }

    /// Rounds to nearest even in a floating-point type; `None` if the value is too large.
    pub fn to_float(&self, dtype: DType) -> Option<f64> {
        if self.minus_zero { Some(-0.0) } else { constants::to_float(&self.exact, dtype) }
    }

    /// Rounds to nearest even in a floating-point type; too large values become infinity.
    pub fn to_float_or_infinity(&self, dtype: DType) -> f64 {
        let infinity = if self.is_negative() { f64::NEG_INFINITY } else { f64::INFINITY };
        self.to_float(dtype).unwrap_or(infinity)
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.exact == other.exact
    }
}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Real) -> Option<Ordering> {
        self.exact.partial_cmp(&other.exact)
    }
}

/// The shortest decimal if it is a binary64 number, else a fraction.
impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.minus_zero { "-" } else { "" };
        write!(f, "{sign}{}", constants::show_real(&self.exact))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of a few floats, both zeros among them, against the arithmetic of floats.
    #[test]
    fn signs_of_zero_are_those_of_floats() {
        let values = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.0, -2.0];
        let real = |value: f64| Real::from_float(value).expect("finite");
        let check = |found: Real, expected: f64, what: &str| {
            let found = found.to_float(DType::Float64).expect("small");
            assert_eq!(found.to_bits(), expected.to_bits(), "{what}");
        };
        for x in values {
            check(real(x).negated(), -x, "-x");
            check(real(x).abs(), x.abs(), "abs");
            check(real(x).floor(), x.floor(), "floor");
            check(real(x).ceil(), x.ceil(), "ceil");
            check(real(x).trunc(), x.trunc(), "trunc");
            check(real(x).round(), x.round_ties_even(), "round");
            for y in values {
                let what = format!("{x:?}, {y:?}");
                check(real(x).plus(&real(y)), x + y, &what);
                check(real(x).minus(&real(y)), x - y, &what);
                check(real(x).times(&real(y)), x * y, &what);
                assert_eq!(real(x).partial_cmp(&real(y)), x.partial_cmp(&y), "{what}");
                match real(x).over(&real(y)) {
                    Some(quotient) if y != 0.0 => {
                        check(quotient.times(&real(y)), x / y * y, &what);
                        assert_eq!(quotient.is_negative(), (x / y).is_sign_negative(), "{what}");
                    }
                    quotient => assert!(y == 0.0 && quotient.is_none(), "{what}"),
                }
            }
        }
    }

    #[test]
    fn prints_the_negative_zero() {
        assert_eq!(Real::from_float(-0.0).expect("finite").to_string(), "-0.0");
        assert_eq!(Real::from_integer(BigInt::from(0)).to_string(), "0.0");
        assert_eq!(Real::from_float(f64::INFINITY).map(|real| real.to_string()), None);
    }

    #[test]
    fn underflow_keeps_the_sign() {
        let tiny = Real::new(constants::parse_real("1e-400").expect("small enough"));
        let bits = |real: &Real| real.to_float(DType::Float64).map(f64::to_bits);
        assert_eq!(bits(&tiny), Some(0));
        assert_eq!(bits(&tiny.negated()), Some((-0.0f64).to_bits()));
        let huge = Real::from_float(-1e39).expect("finite");
        assert_eq!(huge.to_float(DType::Float32), None);
        assert_eq!(huge.to_float_or_infinity(DType::Float32), f64::NEG_INFINITY);
    }
}

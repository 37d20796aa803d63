//! Arithmetic on extents. Nothing wraps: a result that 64 bits do not hold is refused.

use std::ops::{Add, Mul, Sub};

/// An integer of an extent, or none after an overflow or a division by 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Int(pub(crate) Option<i64>);

impl From<i64> for Int {
    #[inline]
    fn from(value: i64) -> Int {
        Int(Some(value))
    }
}

impl From<usize> for Int {
    #[inline]
    fn from(value: usize) -> Int {
        Int(i64::try_from(value).ok())
    }
}

impl Int {
    fn with(self, other: Int, operation: fn(i64, i64) -> Option<i64>) -> Int {
        Int(match (self.0, other.0) {
            (Some(a), Some(b)) => operation(a, b),
            _ => None,
        })
    }

    /// Returns the quotient, rounded down.
    pub fn floor_div(self, other: Int) -> Int {
        self.with(other, |a, b| {
            let quotient = a.checked_div(b)?;
            Some(quotient - i64::from(a % b != 0 && (a < 0) != (b < 0)))
        })
    }

    /// Returns the remainder of [`Int::floor_div`].
    pub fn floor_mod(self, other: Int) -> Int {
        self - self.floor_div(other) * other
    }

    /// Returns the smaller one.
    pub fn min(self, other: Int) -> Int {
        self.with(other, |a, b| Some(a.min(b)))
    }

    /// Returns the larger one.
    pub fn max(self, other: Int) -> Int {
        self.with(other, |a, b| Some(a.max(b)))
    }

    /// Returns the absolute value.
    pub fn abs(self) -> Int {
        Int(self.0.and_then(i64::checked_abs))
    }

    /// Compares: -1, 0 or 1; none if one side is none.
    pub fn compare(self, other: Int) -> Option<i64> {
        self.with(other, |a, b| Some(a.cmp(&b) as i64)).0
    }

    /// Returns `a` if `condition` holds and `b` if not.
    pub fn select(condition: Option<bool>, a: Int, b: Int) -> Int {
        match condition {
            Some(true) => a,
            Some(false) => b,
            None => Int(None),
        }
    }
}

impl Add for Int {
    type Output = Int;

    fn add(self, other: Int) -> Int {
        self.with(other, i64::checked_add)
    }
}

impl Sub for Int {
    type Output = Int;

    fn sub(self, other: Int) -> Int {
        self.with(other, i64::checked_sub)
    }
}

impl Mul for Int {
    type Output = Int;

    fn mul(self, other: Int) -> Int {
        self.with(other, i64::checked_mul)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_checked_and_rounds_down() {
        let int = |value: i64| Int::from(value);
        for a in [-7, -6, -1, 0, 1, 6, 7] {
            for b in [-3, -2, -1, 1, 2, 3] {
                let exact = (a as f64 / b as f64).floor() as i64;
                assert_eq!(int(a).floor_div(int(b)), int(exact), "{a} // {b}");
                assert_eq!(int(a).floor_mod(int(b)), int(a - exact * b), "{a} % {b}");
            }
        }
        let none = Int(None);
        assert_eq!(int(1).floor_div(int(0)), none);
        assert_eq!(int(1).floor_mod(int(0)), none);
        assert_eq!(int(i64::MIN).floor_div(int(-1)), none);
        assert_eq!(int(i64::MAX) + int(1), none);
        assert_eq!(int(i64::MIN) - int(1), none);
        assert_eq!(int(1 << 40) * int(1 << 40), none);
        assert_eq!(int(i64::MIN).abs(), none);
        assert_eq!(Int::from(usize::MAX), none);
        assert_eq!(none + int(1), none);
        assert_eq!(Int::select(none.compare(int(1)).map(|sign| sign < 0), int(1), int(2)), none);
        assert_eq!(Int::select(int(0).compare(int(1)).map(|s| s < 0), int(1), int(2)), int(1));
    }
}

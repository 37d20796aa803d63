//! Intervals of constants; either end may be infinite.

use super::poly::floor_div;

/// `lo ..= hi`; `i128::MIN` and `i128::MAX` as ends mean unbounded. Empty if `lo > hi`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interval {
    pub(crate) lo: i128,
    pub(crate) hi: i128,
}

impl Interval {
    pub(crate) const ALL: Interval = Interval { lo: i128::MIN, hi: i128::MAX };

    pub(crate) fn new(lo: i128, hi: i128) -> Interval {
        Interval { lo, hi }
    }

    pub(crate) fn point(value: i128) -> Interval {
        Interval { lo: value, hi: value }
    }

    pub(crate) fn has_lo(self) -> bool {
        self.lo != i128::MIN
    }

    pub(crate) fn has_hi(self) -> bool {
        self.hi != i128::MAX
    }

    /// Whether `other` lies inside.
    pub(crate) fn covers(self, other: Interval) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }

    pub(crate) fn intersect(self, other: Interval) -> Interval {
        Interval::new(self.lo.max(other.lo), self.hi.min(other.hi))
    }

    /// Returns the smallest interval that contains both.
    pub(crate) fn hull(self, other: Interval) -> Interval {
        Interval::new(self.lo.min(other.lo), self.hi.max(other.hi))
    }

    pub(crate) fn add(self, other: Interval) -> Interval {
        let lo = match self.has_lo() && other.has_lo() {
            true => self.lo.saturating_add(other.lo),
            false => i128::MIN,
        };
        let hi = match self.has_hi() && other.has_hi() {
            true => self.hi.saturating_add(other.hi),
            false => i128::MAX,
        };
        Interval::new(lo, hi)
    }

    pub(crate) fn neg(self) -> Interval {
        let lo = if self.has_hi() { self.hi.saturating_neg() } else { i128::MIN };
        let hi = if self.has_lo() { self.lo.saturating_neg() } else { i128::MAX };
        Interval::new(lo, hi)
    }

    pub(crate) fn mul(self, other: Interval) -> Interval {
        if self.lo == self.hi {
            return other.scaled(self.lo);
        }
        if other.lo == other.hi {
            return self.scaled(other.lo);
        }
        let products = [
            mul_ends(self.lo, other.lo),
            mul_ends(self.lo, other.hi),
            mul_ends(self.hi, other.lo),
            mul_ends(self.hi, other.hi),
        ];
        let lo = products.iter().copied().min().expect("four products");
        let hi = products.iter().copied().max().expect("four products");
        Interval::new(lo, hi)
    }

    /// Returns the product with a number.
    fn scaled(self, factor: i128) -> Interval {
        let (a, b) = (mul_ends(self.lo, factor), mul_ends(self.hi, factor));
        Interval::new(a.min(b), a.max(b))
    }

    /// Returns `self` to the power `n`.
    pub(crate) fn pow(self, n: usize) -> Interval {
        let product = (1..n).fold(self, |acc, _| acc.mul(self));
        if n.is_multiple_of(2) { product.intersect(Interval::new(0, i128::MAX)) } else { product }
    }

    /// Returns the floor quotient. As in the loop IR, division by 0 gives 0.
    pub(crate) fn floor_div(self, divisor: Interval) -> Interval {
        if divisor.lo >= 1 {
            // Monotone in the dividend and in the divisor, so the extremes are at the corners.
            let candidates = [
                div_ends(self.lo, divisor.lo),
                div_ends(self.lo, divisor.hi),
                div_ends(self.hi, divisor.lo),
                div_ends(self.hi, divisor.hi),
            ];
            let lo = candidates.iter().copied().min().expect("four quotients");
            let hi = candidates.iter().copied().max().expect("four quotients");
            return Interval::new(lo, hi);
        }
        if divisor.hi <= -1 && divisor.has_lo() {
            return self.neg().floor_div(divisor.neg());
        }
        if self.lo >= 0 && divisor.lo >= 0 {
            return Interval::new(0, self.hi);
        }
        // No quotient has a larger magnitude than the dividend.
        let magnitude = self.hull(self.neg());
        magnitude.hull(Interval::point(0))
    }

    /// Returns the floor remainder. As in the loop IR, modulo 0 gives 0.
    pub(crate) fn floor_mod(self, divisor: Interval) -> Interval {
        let hi = if divisor.has_hi() { (divisor.hi - 1).max(0) } else { i128::MAX };
        let lo = if divisor.has_lo() { (divisor.lo + 1).min(0) } else { i128::MIN };
        let result = Interval::new(lo, hi);
        if divisor.lo >= 0 && self.lo >= 0 {
            return result.intersect(Interval::new(0, self.hi));
        }
        result
    }

    pub(crate) fn min(self, other: Interval) -> Interval {
        Interval::new(self.lo.min(other.lo), self.hi.min(other.hi))
    }

    pub(crate) fn max(self, other: Interval) -> Interval {
        Interval::new(self.lo.max(other.lo), self.hi.max(other.hi))
    }

    /// Returns both ends; `None` if infinite.
    pub(crate) fn ends(self) -> (Option<i128>, Option<i128>) {
        (self.has_lo().then_some(self.lo), self.has_hi().then_some(self.hi))
    }
}

fn is_infinite(end: i128) -> bool {
    end == i128::MIN || end == i128::MAX
}

fn mul_ends(a: i128, b: i128) -> i128 {
    // The product of two numbers of 64 bits does not overflow.
    if let (Ok(a), Ok(b)) = (i64::try_from(a), i64::try_from(b)) {
        i128::from(a) * i128::from(b)
    } else if a == 0 || b == 0 {
        0
    } else if is_infinite(a) || is_infinite(b) {
        if (a < 0) == (b < 0) { i128::MAX } else { i128::MIN }
    } else {
        a.saturating_mul(b)
    }
}

/// Returns `a // b` for `b >= 1`; both may be infinite.
fn div_ends(a: i128, b: i128) -> i128 {
    if is_infinite(a) {
        a
    } else if is_infinite(b) {
        if a < 0 { -1 } else { 0 }
    } else {
        floor_div(a, b)
    }
}

//! Integer expressions of symbols and axes: extents of tensors and their indices.
//!
//! A [`Dim`] is a polynomial with integer coefficients. Its atoms are symbols, axes, and quotients,
//! remainders, minima and maxima of other expressions. Sums and products are always expanded, so
//! equal polynomials are equal values; quotients and remainders are simplified with the ranges of
//! the axes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::{Add, Mul, Neg, Sub};
use std::rc::Rc;

/// The largest number of atoms in an expression. Shape arithmetic of models has a few; the limit
/// keeps hostile models from building expressions of exponential size.
const MAX_ATOMS: usize = 400;

/// The number of atoms that a proof replaces by their bounds one after the other.
const MAX_BOUNDS: usize = 4;

/// The message about an expression that is [`Dim::is_poison`].
pub(crate) const TOO_LARGE: &str = "an extent overflows, or depends on dimensions in a way that \
     is too complicated; `-D NAME=SIZE` makes dimensions constant";

/// A factor of a monomial.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Atom {
    /// A dimension that is known at run time only. It is not negative.
    Sym(Rc<str>),
    /// An axis of a stage with its extent; from [`REDUCE`] on, a reduction axis.
    Axis(u16, Box<Dim>),
    /// `floor(a / b)`.
    Div(Box<Dim>, Box<Dim>),
    /// `a - b * floor(a / b)`.
    Mod(Box<Dim>, Box<Dim>),
    Min(Box<Dim>, Box<Dim>),
    Max(Box<Dim>, Box<Dim>),
    /// The result of an overflow, or of an expression beyond the size limit.
    Poison,
}

/// The number of the first reduction axis.
pub(crate) const REDUCE: u16 = 100;

/// A polynomial: coefficients by monomial, none of them 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Dim {
    terms: BTreeMap<Vec<Atom>, i64>,
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        let mut terms = BTreeMap::new();
        if value != 0 {
            terms.insert(Vec::new(), value);
        }
        Dim { terms }
    }
}

impl From<Atom> for Dim {
    fn from(atom: Atom) -> Self {
        Dim { terms: BTreeMap::from([(vec![atom], 1)]) }
    }
}

impl Dim {
    pub(crate) fn zero() -> Self {
        Dim::default()
    }

    pub(crate) fn symbol(name: &str) -> Self {
        Atom::Sym(name.into()).into()
    }

    pub(crate) fn axis(id: usize, extent: &Dim) -> Self {
        // An axis of extent 1 is always 0.
        if extent.as_const() == Some(1) {
            return Dim::zero();
        }
        Atom::Axis(id as u16, Box::new(extent.clone())).into()
    }

    fn poison() -> Self {
        Atom::Poison.into()
    }

    /// Whether an operation overflowed or the expression became too large.
    pub(crate) fn is_poison(&self) -> bool {
        self.terms.keys().any(|atoms| atoms.contains(&Atom::Poison))
    }

    pub(crate) fn as_const(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// Returns the number if it is constant and not negative.
    pub(crate) fn as_extent(&self) -> Option<usize> {
        self.as_const().and_then(|value| usize::try_from(value).ok())
    }

    pub(crate) fn is_one(&self) -> bool {
        self.as_const() == Some(1)
    }

    /// The number of operators and operands.
    pub(crate) fn size(&self) -> usize {
        let atom = |atom: &Atom| match atom {
            Atom::Sym(_) | Atom::Axis(..) | Atom::Poison => 1,
            Atom::Div(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                1 + a.size() + b.size()
            }
        };
        self.terms.keys().map(|atoms| 1 + atoms.iter().map(atom).sum::<usize>()).sum()
    }

    fn checked(self) -> Self {
        if self.size() > MAX_ATOMS || self.is_poison() { Dim::poison() } else { self }
    }

    fn combine(mut self, other: &Dim, factor: i64) -> Self {
        for (atoms, coefficient) in &other.terms {
            let Some(term) = coefficient.checked_mul(factor) else { return Dim::poison() };
            let old = self.terms.remove(atoms).unwrap_or(0);
            let Some(sum) = old.checked_add(term) else { return Dim::poison() };
            if sum != 0 {
                self.terms.insert(atoms.clone(), sum);
            }
        }
        self.checked()
    }

    /// Splits the terms into those that `divisor`, a monomial, divides, as quotients, and others.
    fn split(&self, divisor: &Dim) -> Option<(Dim, Dim)> {
        let (atoms, coefficient) = divisor.terms.first_key_value()?;
        if divisor.terms.len() != 1 {
            return None;
        }
        let (mut quotient, mut rest) = (Dim::zero(), Dim::zero());
        for (own, value) in &self.terms {
            let mut left = own.clone();
            let divides = value % coefficient == 0
                && atoms.iter().all(|atom| {
                    let found = left.iter().position(|own| own == atom);
                    found.map(|at| left.remove(at)).is_some()
                });
            if divides {
                // -1 as a divisor of the least integer overflows.
                let value = value.checked_div(*coefficient)?;
                quotient.terms.insert(left, value);
            } else {
                rest.terms.insert(own.clone(), *value);
            }
        }
        Some((quotient, rest))
    }

    /// Returns the quotient if the division leaves no remainder, for a divisor that is not 0.
    pub(crate) fn exact_div(&self, divisor: &Dim) -> Option<Dim> {
        if self == divisor {
            return Some(1.into());
        }
        let (quotient, rest) = self.split(divisor)?;
        (rest == Dim::zero()).then_some(quotient)
    }

    /// Divides two monomials by their common factors, for an equation of extents.
    pub(crate) fn without_common_factors(&self, other: &Dim) -> (Dim, Dim) {
        let (mut a, mut b) = (self.clone(), other.clone());
        let factors = a.terms.first_key_value().map(|(atoms, _)| atoms.clone()).unwrap_or_default();
        for atom in factors {
            let factor = Dim::from(atom);
            if let (Some(x), Some(y)) = (a.exact_div(&factor), b.exact_div(&factor)) {
                (a, b) = (x, y);
            }
        }
        let divisor = |dim: &Dim| dim.terms.values().fold(0_u64, |d, v| gcd(d, v.unsigned_abs()));
        let common = i64::try_from(gcd(divisor(&a), divisor(&b))).unwrap_or(1).max(1);
        let divide = |dim: &Dim| dim.exact_div(&common.into());
        match (divide(&a), divide(&b)) {
            (Some(a), Some(b)) => (a, b),
            _ => (a, b),
        }
    }

    /// `floor(self / divisor)`; 0 if the divisor is 0.
    pub(crate) fn div(&self, divisor: &Dim) -> Dim {
        match (self.as_const(), divisor.as_const()) {
            (_, Some(0)) => return Dim::zero(),
            (Some(a), Some(b)) => {
                return a.checked_div_euclid(b).map_or(Dim::poison(), |_| floor_div(a, b).into());
            }
            _ => {}
        }
        let Some((quotient, rest)) = self.split(divisor) else {
            if self == divisor {
                return 1.into();
            }
            return Dim::from(Atom::Div(Box::new(self.clone()), Box::new(divisor.clone())))
                .checked();
        };
        if rest.is_within(divisor) {
            return quotient;
        }
        if let Some(divisor) = divisor.as_const().filter(|divisor| *divisor > 1) {
            let (whole, constant) = rest.constant_parts(divisor);
            // floor((g * x + c) / (g * d)) is floor((x + floor(c / g)) / d).
            let factor = rest.terms.iter().filter(|(atoms, _)| !atoms.is_empty());
            let factor = factor.fold(divisor as u64, |g, (_, own)| gcd(g, own.unsigned_abs()));
            let factor = i64::try_from(factor).unwrap_or(1);
            if whole != 0 || factor > 1 {
                let scaled = (rest.clone() - &rest.constant().into()).exact_div(&factor.into());
                let scaled = scaled.unwrap_or_else(Dim::poison) + constant / factor;
                return scaled.div(&(divisor / factor).into()) + quotient + whole;
            }
        }
        if let Some((factor, whole, _)) = rest.without_factor(divisor) {
            return (quotient + whole.div(&factor)).checked();
        }
        // floor((floor(x / a) + c) / b) is floor((x + a * c) / (a * b)) for positive a and b.
        let constant = Dim::from(rest.constant());
        let nested = match (rest.clone() - &constant).single_atom() {
            Some(Atom::Div(x, a)) if a.is_positive_const() && divisor.is_positive_const() => {
                Some(((**x).clone() + &**a * &constant).div(&(&**a * divisor)))
            }
            _ => None,
        };
        let rest = nested
            .unwrap_or_else(|| Atom::Div(Box::new(rest.clone()), Box::new(divisor.clone())).into());
        (quotient + rest).checked()
    }

    /// The remainder of the division that rounds towards minus infinity; 0 if the divisor is 0.
    pub(crate) fn rem(&self, divisor: &Dim) -> Dim {
        match (self.as_const(), divisor.as_const()) {
            (_, Some(0 | 1)) => return Dim::zero(),
            (Some(a), Some(b)) => return (a.wrapping_sub(b.wrapping_mul(floor_div(a, b)))).into(),
            _ => {}
        }
        let mut rest = self.split(divisor).map_or(self.clone(), |(_, rest)| rest);
        if let Some(divisor) = divisor.as_const().filter(|divisor| *divisor > 1) {
            rest = rest.without_remainders(divisor);
            rest = rest.split(&divisor.into()).map_or(rest.clone(), |(_, rest)| rest);
            let (_, constant) = rest.constant_parts(divisor);
            rest = rest.clone() - &rest.constant().into() + constant;
            // The padding to a multiple, `-n % 4`, is `4 * ((n + 3) // 4) - n`.
            let is_negative = |(atoms, value): (&Vec<Atom>, &i64)| atoms.is_empty() || *value < 0;
            if rest.as_const().is_none() && rest.terms.iter().all(is_negative) && !rest.has_axes() {
                let multiple = (-rest.clone() + (divisor - 1)).div(&divisor.into()) * divisor;
                return (rest + multiple).checked();
            }
        }
        if rest == Dim::zero() || rest == *divisor {
            return Dim::zero();
        }
        if rest.is_within(divisor) {
            return rest;
        }
        if let Some((left, whole, part)) = rest.without_factor(divisor) {
            let factor = divisor.exact_div(&left).unwrap_or_else(Dim::poison);
            return (&factor * &whole.rem(&left) + part).checked();
        }
        Dim::from(Atom::Mod(Box::new(rest), Box::new(divisor.clone()))).checked()
    }

    /// Replaces remainders by their dividends where that leaves the remainder by `divisor`.
    fn without_remainders(&self, divisor: i64) -> Dim {
        let mut sum = Dim::zero();
        for (atoms, value) in &self.terms {
            sum = sum
                + match &atoms[..] {
                    [Atom::Mod(x, m)]
                        if m.as_const()
                            .and_then(|m| m.checked_mul(*value))
                            .is_some_and(|m| m != 0 && m % divisor == 0) =>
                    {
                        (**x).clone() * *value
                    }
                    _ => Dim { terms: BTreeMap::from([(atoms.clone(), *value)]) },
                };
        }
        sum
    }

    /// Whether the value depends on axes.
    fn has_axes(&self) -> bool {
        let atom = |atom: &Atom| match atom {
            Atom::Axis(..) => true,
            Atom::Sym(_) | Atom::Poison => false,
            Atom::Div(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                a.has_axes() || b.has_axes()
            }
        };
        self.terms.keys().flatten().any(atom)
    }

    /// Splits off an atom `f` of a divisor `f * d`: returns `(d, a, b)` if this is `f * a + b` with a
    /// `b` in `0..f`. The quotient is that of `a` and `d`, and the remainder `f` times theirs plus
    /// `b`. So the place of `(h * i + j) // (4 * h)` is `i // 4`.
    fn without_factor(&self, divisor: &Dim) -> Option<(Dim, Dim, Dim)> {
        let (atoms, _) = divisor.terms.first_key_value()?;
        if divisor.terms.len() != 1 || !divisor.is_nonnegative() {
            return None;
        }
        atoms.iter().find_map(|atom| {
            let factor = Dim::from(atom.clone());
            let (whole, part) = self.split(&factor)?;
            let fits = whole != Dim::zero() && part.is_within(&factor);
            Some((divisor.exact_div(&factor).filter(|_| fits)?, whole, part))
        })
    }

    pub(crate) fn minimum(&self, other: &Dim) -> Dim {
        if (other.clone() - self).is_nonnegative() {
            self.clone()
        } else if (self.clone() - other).is_nonnegative() {
            other.clone()
        } else {
            Dim::from(Atom::Min(Box::new(self.clone()), Box::new(other.clone()))).checked()
        }
    }

    pub(crate) fn maximum(&self, other: &Dim) -> Dim {
        if (other.clone() - self).is_nonnegative() {
            other.clone()
        } else if (self.clone() - other).is_nonnegative() {
            self.clone()
        } else {
            Dim::from(Atom::Max(Box::new(self.clone()), Box::new(other.clone()))).checked()
        }
    }

    /// The constant term.
    pub(crate) fn constant(&self) -> i64 {
        self.terms.get(&Vec::new()).copied().unwrap_or(0)
    }

    /// The quotient of the constant term and a positive divisor, rounded down, and the remainder.
    fn constant_parts(&self, divisor: i64) -> (i64, i64) {
        let constant = self.constant();
        (constant.div_euclid(divisor), constant.rem_euclid(divisor))
    }

    fn is_positive_const(&self) -> bool {
        self.as_const().is_some_and(|value| value > 0)
    }

    /// The operands of a minimum.
    pub(crate) fn as_minimum(&self) -> Option<(&Dim, &Dim)> {
        match self.single_atom() {
            Some(Atom::Min(a, b)) => Some((a, b)),
            _ => None,
        }
    }

    fn single_atom(&self) -> Option<&Atom> {
        let (atoms, coefficient) = self.terms.first_key_value()?;
        (self.terms.len() == 1 && *coefficient == 1 && atoms.len() == 1).then(|| &atoms[0])
    }

    /// Whether the value is at least 0 for all symbols and axes, as far as its signs and the bounds
    /// of minima, maxima, quotients and remainders show.
    pub(crate) fn is_nonnegative(&self) -> bool {
        self.has_nonnegative_terms() || self.is_nonnegative_by_bounds(MAX_BOUNDS)
    }

    /// Whether a minimum that is subtracted, or a maximum that is added, may be replaced by one of
    /// its operands, and a quotient or a remainder by its bound, so that the value is at least 0.
    fn is_nonnegative_by_bounds(&self, left: usize) -> bool {
        let bounds = self.terms.iter().find_map(|(atoms, value)| match (&atoms[..], *value >= 0) {
            ([Atom::Min(a, b)], false) | ([Atom::Max(a, b)], true) => {
                Some((atoms, *value, vec![(**a).clone(), (**b).clone()]))
            }
            ([Atom::Mod(_, b)], false) if b.as_const().is_some_and(|b| b > 0) => {
                Some((atoms, *value, vec![(**b).clone() - 1]))
            }
            _ => None,
        });
        if left == 0 {
            return false;
        }
        let Some((atoms, value, bounds)) = bounds else {
            return self.multiple_without_quotients().is_some_and(|own| {
                own.has_nonnegative_terms() || own.is_nonnegative_by_bounds(left - 1)
            });
        };
        let mut rest = self.clone();
        rest.terms.remove(atoms);
        bounds.into_iter().any(|bound| {
            let own = rest.clone() + bound * value;
            own.has_nonnegative_terms() || own.is_nonnegative_by_bounds(left - 1)
        })
    }

    /// Replaces quotients by constants by their bounds, `y - b < b * (y // b) <= y`, in a multiple `m`
    /// of this number plus `m - 1`. If the result is at least 0, so is this number.
    fn multiple_without_quotients(&self) -> Option<Dim> {
        let divisor = |atoms: &[Atom]| match atoms {
            [Atom::Div(_, b)] => b.as_const().filter(|b| *b > 1),
            _ => None,
        };
        let multiple =
            self.terms.keys().filter_map(|atoms| divisor(atoms)).try_fold(1, |m, b| {
                Some(m / gcd(m as u64, b as u64) as i64 * b).filter(|m| *m < 1 << 20)
            })?;
        let mut sum = Dim::from(multiple - 1);
        for (atoms, value) in &self.terms {
            sum = sum
                + match (&atoms[..], divisor(atoms)) {
                    ([Atom::Div(y, _)], Some(b)) => {
                        let least =
                            if *value > 0 { (**y).clone() - (b - 1) } else { (**y).clone() };
                        least * (multiple / b) * *value
                    }
                    _ => Dim { terms: BTreeMap::from([(atoms.clone(), *value)]) } * multiple,
                };
        }
        (multiple > 1).then_some(sum)
    }

    /// Whether each term is at least 0.
    fn has_nonnegative_terms(&self) -> bool {
        let atom = |atom: &Atom| match atom {
            Atom::Sym(_) | Atom::Axis(..) => true,
            Atom::Div(a, b) => a.is_nonnegative() && b.is_nonnegative(),
            Atom::Mod(_, b) => b.is_nonnegative(),
            Atom::Min(a, b) => a.is_nonnegative() && b.is_nonnegative(),
            Atom::Max(a, b) => a.is_nonnegative() || b.is_nonnegative(),
            Atom::Poison => false,
        };
        self.terms.iter().all(|(atoms, value)| *value >= 0 && atoms.iter().all(atom))
    }

    /// Whether the value is in `0..end` for all values of the axes.
    pub(crate) fn is_within(&self, end: &Dim) -> bool {
        self.is_nonnegative() && {
            let last = self.substitute(&|atom| match atom {
                Atom::Axis(_, extent) => Some((**extent).clone() - &1.into()),
                Atom::Mod(_, b) => Some((**b).clone() - &1.into()),
                _ => None,
            });
            let room = end.clone() - &last - &1.into();
            room.is_nonnegative()
        }
    }

    /// Replaces atoms, from the outside inwards.
    fn substitute(&self, value_of: &dyn Fn(&Atom) -> Option<Dim>) -> Dim {
        let mut sum = Dim::zero();
        for (atoms, coefficient) in &self.terms {
            let mut product = Dim::from(*coefficient);
            for atom in atoms {
                let value = value_of(atom).unwrap_or_else(|| match atom {
                    Atom::Sym(_) | Atom::Axis(..) | Atom::Poison => atom.clone().into(),
                    Atom::Div(a, b) => a.substitute(value_of).div(&b.substitute(value_of)),
                    Atom::Mod(a, b) => a.substitute(value_of).rem(&b.substitute(value_of)),
                    Atom::Min(a, b) => a.substitute(value_of).minimum(&b.substitute(value_of)),
                    Atom::Max(a, b) => a.substitute(value_of).maximum(&b.substitute(value_of)),
                });
                product = &product * &value;
            }
            sum = sum + product;
        }
        sum
    }

    /// Replaces symbols by values.
    pub(crate) fn with_symbols(&self, value_of: &dyn Fn(&str) -> Option<i64>) -> Dim {
        self.substitute(&|atom| match atom {
            Atom::Sym(name) => Some(value_of(name)?.into()),
            _ => None,
        })
    }

    /// Replaces axes by values.
    pub(crate) fn at(&self, value_of: &dyn Fn(u16) -> Option<Dim>) -> Dim {
        self.substitute(&|atom| match atom {
            Atom::Axis(id, _) => value_of(*id),
            _ => None,
        })
    }

    /// Writes the expression; `axis` names the axes.
    pub(crate) fn text(&self, axis: &dyn Fn(u16) -> String) -> String {
        self.print(axis).0
    }

    /// Returns the text and how tightly its outermost operator binds: 0 for sums, 1 for products,
    /// 2 for anything else.
    pub(crate) fn print(&self, axis: &dyn Fn(u16) -> String) -> (String, u8) {
        let mut terms: Vec<_> = self.terms.iter().collect();
        // The positive terms first, the constant last.
        terms.sort_by_key(|(atoms, value)| (**value < 0, atoms.is_empty()));
        let (mut text, mut level) = (String::new(), 2);
        for (at, (atoms, value)) in terms.into_iter().enumerate() {
            let mut factors = Vec::new();
            let mut quotient = false;
            for atom in atoms {
                let wrap = |dim: &Dim, least: u8| {
                    let (text, level) = dim.print(axis);
                    if level < least { format!("({text})") } else { text }
                };
                factors.push(match atom {
                    Atom::Sym(name) => name.to_string(),
                    Atom::Axis(id, _) => axis(*id),
                    Atom::Div(a, b) => {
                        quotient = true;
                        format!("{} // {}", wrap(a, 2), wrap(b, 2))
                    }
                    Atom::Mod(a, b) => {
                        quotient = true;
                        format!("{} % {}", wrap(a, 2), wrap(b, 2))
                    }
                    Atom::Min(a, b) => format!("min({}, {})", a.text(axis), b.text(axis)),
                    Atom::Max(a, b) => format!("max({}, {})", a.text(axis), b.text(axis)),
                    Atom::Poison => "overflow".to_string(),
                });
            }
            let magnitude = value.unsigned_abs();
            let alone = factors.len() == 1 && magnitude == 1;
            if quotient && !alone {
                for factor in &mut factors {
                    if factor.contains(" // ") || factor.contains(" % ") {
                        *factor = format!("({factor})");
                    }
                }
            }
            if magnitude != 1 || factors.is_empty() {
                factors.push(magnitude.to_string());
            }
            let term = factors.join("*");
            match (at, *value < 0) {
                (0, false) => text += &term,
                (0, true) => write!(text, "-{term}").expect("a string"),
                (_, false) => write!(text, " + {term}").expect("a string"),
                (_, true) => write!(text, " - {term}").expect("a string"),
            }
            let own = if factors.len() > 1 || (quotient && alone) { 1 } else { 2 };
            level = if at > 0 || *value < 0 { 0 } else { own };
        }
        if text.is_empty() { ("0".to_string(), 2) } else { (text, level) }
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The quotient rounded towards minus infinity; the caller excludes a divisor of 0.
pub(crate) fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

impl Add<Dim> for Dim {
    type Output = Dim;
    fn add(self, other: Dim) -> Dim {
        self.combine(&other, 1)
    }
}

impl Add<&Dim> for Dim {
    type Output = Dim;
    fn add(self, other: &Dim) -> Dim {
        self.combine(other, 1)
    }
}

impl Add<i64> for Dim {
    type Output = Dim;
    fn add(self, other: i64) -> Dim {
        self.combine(&other.into(), 1)
    }
}

impl Sub<Dim> for Dim {
    type Output = Dim;
    fn sub(self, other: Dim) -> Dim {
        self.combine(&other, -1)
    }
}

impl Sub<&Dim> for Dim {
    type Output = Dim;
    fn sub(self, other: &Dim) -> Dim {
        self.combine(other, -1)
    }
}

impl Sub<i64> for Dim {
    type Output = Dim;
    fn sub(self, other: i64) -> Dim {
        self.combine(&other.into(), -1)
    }
}

impl Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        Dim::zero().combine(&self, -1)
    }
}

impl Mul<&Dim> for &Dim {
    type Output = Dim;
    fn mul(self, other: &Dim) -> Dim {
        let mut product = Dim::zero();
        if self.terms.len().saturating_mul(other.terms.len()) > MAX_ATOMS {
            return Dim::poison();
        }
        for (left, a) in &self.terms {
            for (right, b) in &other.terms {
                let Some(value) = a.checked_mul(*b) else { return Dim::poison() };
                let mut atoms = [left.as_slice(), right.as_slice()].concat();
                atoms.sort();
                let term = Dim { terms: BTreeMap::from([(atoms, value)]) };
                product = product.combine(&term, 1);
            }
        }
        product.checked()
    }
}

impl Mul<i64> for Dim {
    type Output = Dim;
    fn mul(self, other: i64) -> Dim {
        &self * &Dim::from(other)
    }
}

/// The product of extents.
pub(crate) fn product(dims: &[Dim]) -> Dim {
    dims.iter().fold(1.into(), |product, dim| &product * dim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(dim: &Dim) -> String {
        dim.text(&|id| format!("i{id}"))
    }

    #[test]
    fn quotients_use_the_ranges_of_axes() {
        let n = Dim::symbol("n");
        let (i, j) = (Dim::axis(0, &n), Dim::axis(1, &64.into()));
        let flat = i.clone() * 64 + j.clone();
        assert_eq!(flat.div(&64.into()), i);
        assert_eq!(flat.rem(&64.into()), j);
        assert_eq!(show(&flat.div(&8.into())), "i0*8 + i1 // 8");
        assert_eq!(show(&flat.rem(&48.into())), "(i0*64 + i1) % 48");
        let outer = &Dim::axis(2, &5.into()) * &n + i.clone();
        assert_eq!(outer.div(&n), Dim::axis(2, &5.into()));
        assert_eq!(outer.rem(&n), i);
    }

    #[test]
    fn bounds_of_minima_and_remainders_show_signs() {
        let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
        let least = n.minimum(&512.into());
        assert!((Dim::from(512) - &least).is_nonnegative());
        assert!((n.clone() - &least).is_nonnegative());
        assert!(!(Dim::from(511) - &least).is_nonnegative());
        assert!((Dim::from(7) - &n.rem(&8.into())).is_nonnegative());
        assert!(!(Dim::from(6) - &n.rem(&8.into())).is_nonnegative());
        assert!((n.maximum(&m) - &n.minimum(&m)).is_nonnegative());
        assert!((Dim::from(14) - &n.rem(&8.into()) - &m.rem(&8.into())).is_nonnegative());
    }

    #[test]
    fn a_padding_to_a_multiple_gives_a_multiple() {
        let n = Dim::symbol("n").div(&4.into());
        let four = Dim::from(4);
        let padding = (four.clone() - &n.rem(&four)).rem(&four);
        assert_eq!(show(&padding), "((n + 12) // 16)*4 - n // 4");
        assert!(padding.is_nonnegative() && padding.is_within(&four));
        let padded = n + padding;
        assert_eq!(show(&padded), "((n + 12) // 16)*4");
        assert_eq!(show(&padded.div(&four)), "(n + 12) // 16");
        assert_eq!(padded.rem(&four), Dim::zero());
    }

    #[test]
    fn quotients_and_remainders_by_constants_have_one_form() {
        let n = Dim::symbol("n");
        assert_eq!(show(&(n.clone() * 2 + 3).div(&2.into())), "n + 1");
        assert_eq!(show(&(n.clone() * 2 + 3).rem(&2.into())), "1");
        assert_eq!(show(&(n.clone() * 2 + 7).div(&4.into())), "(n + 1) // 2 + 1");
        assert_eq!(show(&(n.clone() - 1).div(&3.into())), "(n + 2) // 3 - 1");
        assert_eq!(show(&((n.clone() + 1).div(&2.into()) + 1).div(&2.into())), "(n + 3) // 4");
        let coefficients = [-7, -6, -4, -1, 1, 2, 3, 6, 8];
        for (a, c) in coefficients.into_iter().flat_map(|a| (-9..10).map(move |c| (a, c))) {
            for divisor in [2, 3, 4, 6, 8, 12] {
                let value = n.clone() * a + c;
                let (quotient, rest) = (value.div(&divisor.into()), value.rem(&divisor.into()));
                for own in 0..30_i64 {
                    let at = |dim: &Dim| {
                        let value = |atom: &Atom| matches!(atom, Atom::Sym(_)).then(|| own.into());
                        dim.substitute(&value).as_const()
                    };
                    let exact = a * own + c;
                    assert_eq!(at(&quotient), Some(exact.div_euclid(divisor)), "{a} {c} {own}");
                    assert_eq!(at(&rest), Some(exact.rem_euclid(divisor)), "{a} {c} {own}");
                }
            }
        }
    }

    #[test]
    fn an_overflow_is_no_number() {
        let large = Dim::from(i64::MAX);
        assert!((large.clone() + 1).is_poison());
        assert!((&large * &large).is_poison());
        assert!(Dim::from(i64::MIN).div(&Dim::from(-1)).is_poison());
        let mut power = Dim::symbol("n") + 1;
        for _ in 0..64 {
            power = &power * &(Dim::symbol("n") + Dim::symbol("m"));
        }
        assert!(power.is_poison());
    }

    #[test]
    fn places_in_rows_of_a_run_time_length_are_known() {
        let (h, w) = (Dim::symbol("h"), Dim::symbol("w"));
        let (i, j, k) = (Dim::axis(0, &32.into()), Dim::axis(1, &h), Dim::axis(2, &w));
        let place = &(&h * &w) * &i + &(&w * &j) + &k;
        let group = &(&h * &w) * &4.into();
        assert_eq!(show(&place.div(&group)), "i0 // 4");
        assert_eq!(place.rem(&group), &(&h * &w) * &i.rem(&4.into()) + &(&w * &j) + &k);
        assert_eq!(place.rem(&w), k);
        // An axis that may be longer than the row stays in the quotient.
        let long = Dim::axis(2, &(w.clone() + 1));
        assert_ne!((&w * &i + &long).div(&(&w * &4.into())), i.div(&4.into()));
    }

    #[test]
    fn texts_have_the_needed_parentheses() {
        let n = Dim::symbol("n");
        assert_eq!(show(&((n.clone() + 1).div(&2.into()) * 3 - 2)), "((n + 1) // 2)*3 - 2");
        assert_eq!(show(&(Dim::from(3) - &n)), "3 - n");
        assert_eq!(show(&-n.clone()), "-n");
        assert_eq!(show(&n.minimum(&4.into())), "min(n, 4)");
    }
}

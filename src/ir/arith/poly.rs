//! Polynomials with integer coefficients over atoms, the normal form the prover works on.
//!
//! An atom is a variable or a term that is not a polynomial (`i // m`, `min(a, b)`, a load); see
//! [`super::atoms`]. Every operation is exact: a coefficient outside 128 bits gives `None`.

/// Number of an atom in its arena.
pub(crate) type Atom = u32;

/// More terms than this are not multiplied out.
const MAX_TERMS: usize = 64;

/// `constant + Σ coefficient · monomial`. Terms are sorted by monomial, a monomial's atoms too, no
/// coefficient is zero: equal polynomials are equal values.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Poly {
    pub(crate) terms: Vec<(Vec<Atom>, i128)>,
    pub(crate) constant: i128,
}

impl Poly {
    pub(crate) fn of_constant(value: i128) -> Poly {
        Poly { terms: Vec::new(), constant: value }
    }

    pub(crate) fn atom(atom: Atom) -> Poly {
        Poly { terms: vec![(vec![atom], 1)], constant: 0 }
    }

    /// From terms in any order, with repetitions.
    pub(crate) fn from_terms(mut terms: Vec<(Vec<Atom>, i128)>, constant: i128) -> Option<Poly> {
        terms.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut merged: Vec<(Vec<Atom>, i128)> = Vec::with_capacity(terms.len());
        for (mono, coefficient) in terms {
            match merged.last_mut() {
                Some(last) if last.0 == mono => last.1 = last.1.checked_add(coefficient)?,
                _ => merged.push((mono, coefficient)),
            }
        }
        merged.retain(|term| term.1 != 0);
        Some(Poly { terms: merged, constant })
    }

    pub(crate) fn as_constant(&self) -> Option<i128> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// `self + other * factor`.
    pub(crate) fn plus_scaled(&self, other: &Poly, factor: i128) -> Option<Poly> {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut left, mut right) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(a), Some(b)) => a.0.cmp(&b.0),
            };
            let mut term = (Vec::new(), 0i128);
            if order.is_le() {
                term = left.next().expect("peeked").clone();
            }
            if order.is_ge() {
                let (mono, coefficient) = right.next().expect("peeked");
                term.1 = term.1.checked_add(coefficient.checked_mul(factor)?)?;
                term.0.clone_from(mono);
            }
            if term.1 != 0 {
                terms.push(term);
            }
        }
        let constant = self.constant.checked_add(other.constant.checked_mul(factor)?)?;
        Some(Poly { terms, constant })
    }

    pub(crate) fn add(&self, other: &Poly) -> Option<Poly> {
        self.plus_scaled(other, 1)
    }

    pub(crate) fn minus(&self, other: &Poly) -> Option<Poly> {
        self.plus_scaled(other, -1)
    }

    pub(crate) fn add_constant(&self, value: i128) -> Option<Poly> {
        let constant = self.constant.checked_add(value)?;
        Some(Poly { terms: self.terms.clone(), constant })
    }

    pub(crate) fn scale(&self, factor: i128) -> Option<Poly> {
        if factor == 0 {
            return Some(Poly::default());
        }
        let mut terms = self.terms.clone();
        for term in &mut terms {
            term.1 = term.1.checked_mul(factor)?;
        }
        Some(Poly { terms, constant: self.constant.checked_mul(factor)? })
    }

    pub(crate) fn neg(&self) -> Option<Poly> {
        self.scale(-1)
    }

    /// The product, multiplied out; `None` also where it would be large.
    pub(crate) fn mul(&self, other: &Poly) -> Option<Poly> {
        if let Some(factor) = other.as_constant() {
            return self.scale(factor);
        }
        if let Some(factor) = self.as_constant() {
            return other.scale(factor);
        }
        if self.terms.len() * other.terms.len() > MAX_TERMS {
            return None;
        }
        let mut terms = Vec::new();
        for (a, ca) in &self.terms {
            for (b, cb) in &other.terms {
                let mut mono = [a.as_slice(), b.as_slice()].concat();
                mono.sort_unstable();
                terms.push((mono, ca.checked_mul(*cb)?));
            }
            if other.constant != 0 {
                terms.push((a.clone(), ca.checked_mul(other.constant)?));
            }
        }
        if self.constant != 0 {
            for (b, cb) in &other.terms {
                terms.push((b.clone(), cb.checked_mul(self.constant)?));
            }
        }
        Poly::from_terms(terms, self.constant.checked_mul(other.constant)?)
    }

    pub(crate) fn contains(&self, atom: Atom) -> bool {
        self.terms.iter().any(|(mono, _)| mono.contains(&atom))
    }

    /// `(a, b)` with `self = a * atom + b` and neither containing `atom`; `None` for higher powers.
    pub(crate) fn split(&self, atom: Atom) -> Option<(Poly, Poly)> {
        let mut factor = Poly::default();
        let mut rest = Poly { terms: Vec::new(), constant: self.constant };
        let mut factors = Vec::new();
        for (mono, coefficient) in &self.terms {
            match mono.iter().position(|&a| a == atom) {
                None => rest.terms.push((mono.clone(), *coefficient)),
                Some(at) => {
                    let mut others = mono.clone();
                    others.remove(at);
                    if others.contains(&atom) {
                        return None;
                    }
                    if others.is_empty() {
                        factor.constant = *coefficient;
                    } else {
                        factors.push((others, *coefficient));
                    }
                }
            }
        }
        let factor = Poly::from_terms(factors, factor.constant)?;
        Some((factor, rest))
    }

    /// `self` with `atom` replaced, in the first power only.
    pub(crate) fn substitute(&self, atom: Atom, value: &Poly) -> Option<Poly> {
        let (factor, rest) = self.split(atom)?;
        factor.mul(value)?.add(&rest)
    }

    /// Number of terms, the constant left out.
    pub(crate) fn term_count(&self) -> usize {
        self.terms.len()
    }

    /// The distinct atoms, ascending.
    pub(crate) fn atoms(&self) -> Vec<Atom> {
        let mut atoms: Vec<Atom> = self.terms.iter().flat_map(|t| t.0.iter().copied()).collect();
        atoms.sort_unstable();
        atoms.dedup();
        atoms
    }

    /// Greatest common divisor of the coefficients, the constant left out; 0 without terms.
    pub(crate) fn gcd(&self) -> i128 {
        self.terms.iter().fold(0, |g, term| gcd(g, term.1))
    }
}

/// Greatest common divisor, never negative.
pub(crate) fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i128::try_from(a).unwrap_or(1)
}

/// Floor division by a divisor that is not 0.
pub(crate) fn floor_div(a: i128, b: i128) -> i128 {
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// Floor modulo by a divisor that is not 0.
pub(crate) fn floor_mod(a: i128, b: i128) -> i128 {
    let r = a.wrapping_rem(b);
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

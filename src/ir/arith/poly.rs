//! Polynomials with integer coefficients over atoms: linear sums whose terms are monomials.
//!
//! An atom is a variable or a term that is no polynomial (`i // m`, `min(a, b)`, a load). Each user
//! has its own atoms: [`super::atoms`] for proofs, `codegen::simd` and `codegen::ptx` for
//! addresses.
//!
//! A monomial is the sorted list of its atoms, `[i, i, n]` for `i²·n`. It is never empty, because
//! the constant is separate. Together with the order of [`Linear`], which also says what an
//! overflow does, this makes equal polynomials equal values. It is the expanded canonical form of
//! computer algebra (Geddes, Czapor and Labahn, Algorithms for Computer Algebra, chapter 3).
//!
//! Polynomials cannot represent fractions, divisions or negative powers; there is no factoring.

use super::linear::{Coefficient, Linear, TOTAL, Total};
use smallvec::{SmallVec, smallvec};
use std::ops::Mul;

/// The number of an atom of the prover in its arena.
pub(crate) type Atom = u32;

/// The sorted atoms of a product. Few monomials have more than this many atoms, so most need no
/// memory of their own.
pub(crate) type Monomial<A> = SmallVec<[A; 4]>;

/// `constant + Σ coefficient · monomial`.
pub(crate) type Polynomial<A, C = i128> = Linear<Monomial<A>, C>;

/// The normal form on which the prover works.
pub(crate) type Poly = Polynomial<Atom>;

/// [`Poly::mul`] gives up if the product may have more terms than this.
const MAX_TERMS: usize = 64;

impl<A: Ord + Clone, C: Coefficient> Linear<Monomial<A>, C> {
    pub(crate) fn atom(atom: A) -> Polynomial<A, C> {
        Linear::of_term(smallvec![atom])
    }

    /// Returns `coefficient · monomial`; a monomial without atoms is 1.
    pub(crate) fn monomial(monomial: Monomial<A>, coefficient: C) -> Polynomial<A, C> {
        let zero = coefficient == C::default();
        match monomial.is_empty() || zero {
            true => Linear::of_constant(coefficient),
            false => Linear { terms: vec![(monomial, coefficient)], constant: C::default() },
        }
    }

    /// Returns the product, multiplied out.
    pub(crate) fn product(&self, other: &Polynomial<A, C>) -> Option<Polynomial<A, C>> {
        if let Some(factor) = other.as_constant() {
            return self.scale(factor);
        }
        if let Some(factor) = self.as_constant() {
            return other.scale(factor);
        }
        let mut terms = Vec::new();
        for (a, ca) in &self.terms {
            for (b, cb) in &other.terms {
                let mut monomial: Monomial<A> = a.iter().chain(b).cloned().collect();
                monomial.sort_unstable();
                terms.push((monomial, ca.times(*cb)?));
            }
            if other.constant != C::default() {
                terms.push((a.clone(), ca.times(other.constant)?));
            }
        }
        if self.constant != C::default() {
            for (b, cb) in &other.terms {
                terms.push((b.clone(), cb.times(self.constant)?));
            }
        }
        Linear::from_terms(terms, self.constant.times(other.constant)?)
    }

    /// Returns `(a, b)` with `self = a * atom + b`, neither containing `atom`; `None` for higher
    /// powers.
    pub(crate) fn split(&self, atom: A) -> Option<(Polynomial<A, C>, Polynomial<A, C>)> {
        Some((self.factor(atom.clone())?, self.without(atom)))
    }

    /// Returns the factor of an atom; `None` for higher powers.
    pub(crate) fn factor(&self, atom: A) -> Option<Polynomial<A, C>> {
        let mut factor = Polynomial::default();
        for (monomial, coefficient) in &self.terms {
            let Some(at) = monomial.iter().position(|other| *other == atom) else { continue };
            let mut others = monomial.clone();
            others.remove(at);
            if others.contains(&atom) {
                return None;
            }
            match others.is_empty() {
                true => factor.constant = *coefficient,
                false => factor.terms.push((others, *coefficient)),
            }
        }
        // Without the atom, the monomials may have another order.
        Linear::from_terms(factor.terms, factor.constant)
    }

    /// Returns the sum of the terms without an atom.
    pub(crate) fn without(&self, atom: A) -> Polynomial<A, C> {
        let rest = self.terms.iter().filter(|(monomial, _)| !monomial.contains(&atom));
        Linear { terms: rest.cloned().collect(), constant: self.constant }
    }

    /// Replaces the atoms. `f` must keep their order and map no two to one.
    pub(crate) fn rename(&self, f: impl Fn(&A) -> A) -> Polynomial<A, C> {
        let renamed = |(monomial, c): &(Monomial<A>, C)| (monomial.iter().map(&f).collect(), *c);
        Linear { terms: self.terms.iter().map(renamed).collect(), constant: self.constant }
    }

    pub(crate) fn contains(&self, atom: A) -> bool {
        self.terms.iter().any(|(monomial, _)| monomial.contains(&atom))
    }

    /// Returns the distinct atoms, ascending.
    pub(crate) fn atoms(&self) -> Vec<A> {
        let mut atoms: Vec<A> = self.terms.iter().flat_map(|t| t.0.iter().cloned()).collect();
        atoms.sort_unstable();
        atoms.dedup();
        atoms
    }
}

impl<A: Ord + Clone, C: Total> Mul for &Linear<Monomial<A>, C> {
    type Output = Linear<Monomial<A>, C>;

    fn mul(self, other: &Linear<Monomial<A>, C>) -> Linear<Monomial<A>, C> {
        self.product(other).expect(TOTAL)
    }
}

impl Poly {
    /// Returns the product, multiplied out; `None` also if it may have more than [`MAX_TERMS`]
    /// terms.
    pub(crate) fn mul(&self, other: &Poly) -> Option<Poly> {
        (self.terms.len() * other.terms.len() <= MAX_TERMS).then(|| self.product(other))?
    }

    /// Replaces `atom` by `value`; `None` if a higher power of the atom occurs.
    pub(crate) fn substitute(&self, atom: Atom, value: &Poly) -> Option<Poly> {
        let (factor, rest) = self.split(atom)?;
        factor.mul(value)?.add(&rest)
    }
}

impl<T> Linear<T, i128> {
    /// Returns the greatest common divisor of the coefficients without the constant; 0 without
    /// terms.
    pub(crate) fn gcd(&self) -> i128 {
        self.terms.iter().fold(0, |g, term| gcd(g, term.1))
    }
}

/// Returns the greatest common divisor, never negative; 1 if it is 2^127.
pub(crate) fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i128::try_from(a).unwrap_or(1)
}

/// Divides by a divisor that is not 0, rounding down.
pub(crate) fn floor_div(a: i128, b: i128) -> i128 {
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// Returns the remainder of [`floor_div`].
pub(crate) fn floor_mod(a: i128, b: i128) -> i128 {
    let r = a.wrapping_rem(b);
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

#[cfg(test)]
mod tests {
    use super::super::Facts;
    use super::super::linear::{collect, collect_wrapping};
    use super::*;
    use crate::ir::{BinOp, Expr, ExprKind, UnOp, Var};
    use num_bigint::BigInt;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::num::Wrapping;

    const SEEDS: u64 = 4000;

    /// Random sums and products over three variables, and random values of the variables.
    struct Sample {
        random: ChaCha8Rng,
        vars: Vec<Var>,
        values: Vec<i64>,
    }

    impl Sample {
        fn new(seed: u64) -> Sample {
            let vars = ["a", "b", "c"].map(Var::index).to_vec();
            let mut sample =
                Sample { random: ChaCha8Rng::seed_from_u64(seed), vars, values: Vec::new() };
            sample.values = (0..3).map(|_| sample.integer()).collect();
            sample
        }

        fn integer(&mut self) -> i64 {
            let near: i64 = self.random.random_range(-3..=3);
            let ends = [0, 0, 0, 1 << 31, 1 << 32, 1 << 62, -1 << 62, i64::MAX, i64::MIN];
            match self.random.random_range(0..=ends.len()) {
                at if at < ends.len() => near.wrapping_add(ends[at]),
                _ => self.random.random(),
            }
        }

        /// Draws sums and products, and divisions by literals if `divisions`.
        fn expr_with(&mut self, depth: u32, divisions: bool) -> Expr {
            if depth == 0 || self.random.random_range(0..8) == 0 {
                return match self.random.random_range(0..3) {
                    0 => Expr::index(self.integer()),
                    _ => Expr::var(&self.vars[self.random.random_range(0..3)]),
                };
            }
            let a = self.expr_with(depth - 1, divisions);
            if divisions && self.random.random_range(0..4) == 0 {
                let op = if self.random.random() { BinOp::FloorDiv } else { BinOp::FloorMod };
                let small = self.random.random_range(-12..=12);
                let by = if self.random.random() { small } else { self.integer() };
                return Expr::binary(op, a, Expr::index(by));
            }
            // A shared operand is one node with two parents.
            let b = if self.random.random_range(0..6) == 0 {
                a.clone()
            } else {
                self.expr_with(depth - 1, divisions)
            };
            match self.random.random_range(0..8) {
                0 => Expr::unary(UnOp::Neg, a),
                1..=3 => Expr::binary(BinOp::Add, a, b),
                4 | 5 => Expr::binary(BinOp::Sub, a, b),
                _ => Expr::binary(BinOp::Mul, a, b),
            }
        }

        fn expr(&mut self, depth: u32) -> Expr {
            self.expr_with(depth, false)
        }

        fn exact(&self, expr: &Expr) -> BigInt {
            if let Some(value) = expr.as_int() {
                return value.into();
            }
            match &expr.kind {
                ExprKind::Var(var) => BigInt::from(self.values[self.atom(var)]),
                ExprKind::Unary(UnOp::Neg, a) => -self.exact(a),
                ExprKind::Binary(op, a, b) => {
                    let (a, b) = (self.exact(a), self.exact(b));
                    match op {
                        BinOp::Add => a + b,
                        BinOp::Sub => a - b,
                        BinOp::Mul => a * b,
                        _ if b == BigInt::ZERO => b,
                        BinOp::FloorDiv => divide(&a, &b),
                        _ => &a - divide(&a, &b) * &b,
                    }
                }
                _ => unreachable!("no other node is made"),
            }
        }

        fn atom(&self, var: &Var) -> usize {
            self.vars.iter().position(|known| known == var).expect("one of the three")
        }

        fn poly<C: Coefficient>(&self, expr: &Expr) -> Option<Polynomial<usize, C>> {
            if let Some(value) = expr.as_int() {
                return Some(Polynomial::of_constant(C::of(value)));
            }
            match &expr.kind {
                ExprKind::Var(var) => Some(Polynomial::atom(self.atom(var))),
                ExprKind::Unary(UnOp::Neg, a) => self.poly(a)?.neg(),
                ExprKind::Binary(op, a, b) => {
                    let (a, b) = (self.poly(a)?, self.poly(b)?);
                    match op {
                        BinOp::Add => a.add(&b),
                        BinOp::Sub => a.minus(&b),
                        _ => a.product(&b),
                    }
                }
                _ => unreachable!("no other node is made"),
            }
        }

        fn value(&self, poly: &Polynomial<usize>) -> BigInt {
            let term = |(monomial, c): &(Monomial<usize>, i128)| {
                let atoms = monomial.iter().map(|atom| BigInt::from(self.values[*atom]));
                atoms.product::<BigInt>() * *c
            };
            poly.terms.iter().map(term).sum::<BigInt>() + poly.constant
        }

        fn wrapped(&self, poly: &Polynomial<usize, Wrapping<i64>>) -> i64 {
            let term = |(monomial, c): &(Monomial<usize>, Wrapping<i64>)| {
                let atoms = monomial.iter().map(|atom| Wrapping(self.values[*atom]));
                atoms.product::<Wrapping<i64>>() * c
            };
            (poly.terms.iter().map(term).sum::<Wrapping<i64>>() + poly.constant).0
        }
    }

    /// Returns `a / b`, rounded down.
    fn divide(a: &BigInt, b: &BigInt) -> BigInt {
        let inexact = a % b != BigInt::ZERO;
        let negative = (a < &BigInt::ZERO) != (b < &BigInt::ZERO);
        a / b - i32::from(inexact && negative)
    }

    /// Returns the lowest 64 bits.
    fn low(value: &BigInt) -> i64 {
        let modulus = BigInt::from(1) << 64;
        let low = ((value % &modulus) + &modulus) % &modulus;
        u64::try_from(low).expect("it is below 2^64") as i64
    }

    #[track_caller]
    fn assert_normal<A: Ord, C: Coefficient>(poly: &Polynomial<A, C>) {
        assert!(
            poly.terms.iter().all(|(monomial, _)| !monomial.is_empty() && monomial.is_sorted())
        );
        assert!(poly.terms.iter().all(|(_, coefficient)| *coefficient != C::default()));
        assert!(poly.terms.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn checked_polynomials_are_exact_or_unknown() {
        let mut unknown = 0;
        for seed in 0..SEEDS {
            let mut sample = Sample::new(seed);
            let expr = sample.expr(5);
            let Some(poly) = sample.poly::<i128>(&expr) else {
                unknown += 1;
                continue;
            };
            assert_normal(&poly);
            assert_eq!(sample.value(&poly), sample.exact(&expr), "seed {seed}");
        }
        assert!((SEEDS / 50..SEEDS / 2).contains(&unknown), "{unknown} of {SEEDS} are unknown");
    }

    #[test]
    fn wrapping_polynomials_agree_with_machine_arithmetic() {
        for seed in 0..SEEDS {
            let mut sample = Sample::new(seed);
            let expr = sample.expr(5);
            let poly = sample.poly(&expr).expect("it wraps");
            assert_normal(&poly);
            assert_eq!(sample.wrapped(&poly), low(&sample.exact(&expr)), "seed {seed}");
        }
    }

    #[test]
    fn normal_forms_keep_the_value_of_an_index() {
        let mut rebuilt = 0;
        for seed in 0..SEEDS {
            let mut sample = Sample::new(seed);
            let expr = sample.expr_with(5, true);
            let facts = Facts::new();
            let Some(normal) = facts.poly_expr(&facts.poly(&expr)) else { continue };
            rebuilt += 1;
            let text = crate::ir::print::print_expr(&expr);
            assert_eq!(sample.exact(&normal), sample.exact(&expr), "seed {seed}: {text}");
        }
        assert!(rebuilt > SEEDS / 2, "only {rebuilt} of {SEEDS} were rebuilt");
    }

    #[test]
    fn flattened_sums_agree_with_the_expression() {
        let mut unknown = 0;
        for seed in 0..SEEDS {
            let mut sample = Sample::new(seed);
            let expr = sample.expr(6);
            let exact = sample.exact(&expr);
            let wrapping = collect_wrapping(&expr);
            let terms = wrapping.terms.iter().map(|(leaf, c)| sample.exact(leaf) * c.0);
            let sum = terms.sum::<BigInt>() + wrapping.constant.0;
            assert_eq!(low(&sum), low(&exact), "seed {seed}");
            let Some(checked) = collect(&expr) else {
                unknown += 1;
                continue;
            };
            let terms = checked.terms.iter().map(|(leaf, c)| sample.exact(leaf) * *c);
            assert_eq!(terms.sum::<BigInt>() + checked.constant, exact, "seed {seed}");
        }
        assert!((1..SEEDS / 2).contains(&unknown), "{unknown} of {SEEDS} are unknown");
    }

    #[test]
    fn equal_polynomials_are_equal_values() {
        for seed in 0..SEEDS {
            let mut sample = Sample::new(seed);
            let [a, b, c] = [2, 3, 2].map(|depth| sample.expr(depth));
            let [a, b, c] = [a, b, c].map(|e| sample.poly::<Wrapping<i64>>(&e).expect("it wraps"));
            assert_eq!(&(&a + &b) * &c, &(&a * &c) + &(&b * &c), "seed {seed}");
            assert_eq!(&(&a - &b) + &b, a, "seed {seed}");
            assert_eq!(&a * &b, &b * &a, "seed {seed}");
            let mut shuffled = b.terms.clone();
            shuffled.shuffle(&mut sample.random);
            assert_eq!(Linear::from_terms(shuffled, b.constant).as_ref(), Some(&b), "seed {seed}");
        }
    }

    #[test]
    fn split_isolates_the_first_power_of_an_atom() {
        let mut split = 0;
        for seed in 0..SEEDS {
            let mut sample = Sample::new(seed);
            let expr = sample.expr(4);
            let Some(poly) = sample.poly::<i128>(&expr) else { continue };
            let Some((factor, rest)) = poly.split(0) else { continue };
            split += usize::from(factor != Polynomial::default());
            assert_normal(&factor);
            assert_normal(&rest);
            assert!(!factor.contains(0) && !rest.contains(0));
            let joined = factor.product(&Polynomial::atom(0)).and_then(|p| p.add(&rest));
            assert_eq!(joined, Some(poly), "seed {seed}");
        }
        assert!(split > 500, "only {split} polynomials contain the atom");
    }
}

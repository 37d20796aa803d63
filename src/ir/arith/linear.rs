//! Linear sums, `constant + Σ coefficient · term`: the data type of all index arithmetic.
//!
//! The term type decides the order. Terms with an order ([`Ord`]) are sorted, so equal sums are
//! equal values. Expressions have none: they stay in the order of their first occurrence, which
//! becomes the order of the emitted code. No coefficient is 0.
//!
//! The coefficient type ([`Coefficient`]) decides what an overflow does:
//!
//! | coefficient | overflow | used by |
//! |---|---|---|
//! | `i128` | the operation returns `None`, "not known" | proofs, the simplifier, `codegen::ptx` |
//! | `Wrapping<i64>` | wraps modulo 2^64, as the machine does | `codegen::clif`, `codegen::simd` |
//! | `f64` | rounds | the cost model |
//!
//! The last two never fail ([`Total`]) and have the operators `+`, `-` and `*` instead of methods
//! that return an `Option`.
//!
//! | sum | term | built by |
//! |---|---|---|
//! | `Linear<Expr, _>` | a node that is no sum | [`collect`], [`collect_wrapping`] |
//! | [`super::poly`] | a product of atoms | the prover, `codegen::simd`, `codegen::ptx` |
//! | `Linear<Dim, f64>` | a loop | `tune::model::index` |
//!
//! A linear sum cannot represent products of two variables (a polynomial can), divisions, moduli,
//! minima or choices. These are opaque terms, or atoms of a polynomial. The digits of a layout
//! (`schedule::layout`) are no linear sum: equal digits must not merge.
//!
//! [`collect`] flattens an expression: `((i + 1)*14 + j) - i` becomes `13·i + 1·j + 14`. It hands
//! coefficients from parents to children in topological order, as reverse-mode differentiation
//! does, so it visits each shared node once.

use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp};
use rustc_hash::FxHashMap;
use std::num::Wrapping;
use std::ops::{Add, Mul, Sub};

/// A number type of coefficients. It determines what an overflow does.
pub(crate) trait Coefficient: Copy + PartialEq + Default {
    /// Converts an integer literal.
    fn of(value: i128) -> Self;

    /// Returns `self + other`; `None` if it is not representable.
    fn plus(self, other: Self) -> Option<Self>;

    /// Returns `self * other`; `None` if it is not representable.
    fn times(self, other: Self) -> Option<Self>;
}

/// A coefficient type with arithmetic that never fails.
pub(crate) trait Total: Coefficient {}

impl Coefficient for i128 {
    fn of(value: i128) -> i128 {
        value
    }

    fn plus(self, other: i128) -> Option<i128> {
        self.checked_add(other)
    }

    fn times(self, other: i128) -> Option<i128> {
        self.checked_mul(other)
    }
}

impl Coefficient for Wrapping<i64> {
    fn of(value: i128) -> Wrapping<i64> {
        Wrapping(value as i64)
    }

    fn plus(self, other: Wrapping<i64>) -> Option<Wrapping<i64>> {
        Some(self + other)
    }

    fn times(self, other: Wrapping<i64>) -> Option<Wrapping<i64>> {
        Some(self * other)
    }
}

impl Total for Wrapping<i64> {}

impl Coefficient for f64 {
    fn of(value: i128) -> f64 {
        value as f64
    }

    fn plus(self, other: f64) -> Option<f64> {
        Some(self + other)
    }

    fn times(self, other: f64) -> Option<f64> {
        Some(self * other)
    }
}

impl Total for f64 {}

/// `constant + Σ coefficient · term`; see the module's documentation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Linear<T, C = i128> {
    pub(crate) terms: Vec<(T, C)>,
    pub(crate) constant: C,
}

impl<T, C: Coefficient> Default for Linear<T, C> {
    fn default() -> Linear<T, C> {
        Linear { terms: Vec::new(), constant: C::default() }
    }
}

impl<T, C: Coefficient> Linear<T, C> {
    pub(crate) fn of_constant(constant: C) -> Linear<T, C> {
        Linear { terms: Vec::new(), constant }
    }

    /// Returns `1 · term`.
    pub(crate) fn of_term(term: T) -> Linear<T, C> {
        Linear { terms: vec![(term, C::of(1))], constant: C::default() }
    }

    pub(crate) fn as_constant(&self) -> Option<C> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Returns the number of terms without the constant.
    pub(crate) fn term_count(&self) -> usize {
        self.terms.len()
    }

    /// Drops the terms with coefficient 0.
    pub(crate) fn without_zeros(mut self) -> Linear<T, C> {
        self.terms.retain(|term| term.1 != C::default());
        self
    }
}

impl<T: Clone, C: Coefficient> Linear<T, C> {
    pub(crate) fn add_constant(&self, value: C) -> Option<Linear<T, C>> {
        Some(Linear { terms: self.terms.clone(), constant: self.constant.plus(value)? })
    }

    /// Returns `self * factor`.
    pub(crate) fn scale(&self, factor: C) -> Option<Linear<T, C>> {
        if factor == C::default() {
            return Some(Linear::default());
        }
        let scaled = |(term, c): &(T, C)| Some((term.clone(), c.times(factor)?));
        let terms = self.terms.iter().map(scaled).collect::<Option<_>>()?;
        // Modulo 2^64, a product of two coefficients may be 0.
        Some(Linear { terms, constant: self.constant.times(factor)? }.without_zeros())
    }

    pub(crate) fn neg(&self) -> Option<Linear<T, C>> {
        self.scale(C::of(-1))
    }
}

impl<T: Ord + Clone, C: Coefficient> Linear<T, C> {
    /// Creates a sum of terms that may be in any order and repeated.
    pub(crate) fn from_terms(mut terms: Vec<(T, C)>, constant: C) -> Option<Linear<T, C>> {
        terms.sort_by(|a, b| a.0.cmp(&b.0));
        let mut merged: Vec<(T, C)> = Vec::with_capacity(terms.len());
        for (term, coefficient) in terms {
            match merged.last_mut() {
                Some(last) if last.0 == term => last.1 = last.1.plus(coefficient)?,
                _ => merged.push((term, coefficient)),
            }
        }
        Some(Linear { terms: merged, constant }.without_zeros())
    }

    /// Returns `self + other * factor`.
    pub(crate) fn plus_scaled(&self, other: &Linear<T, C>, factor: C) -> Option<Linear<T, C>> {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let mut left = self.terms.iter().peekable();
        for (term, coefficient) in &other.terms {
            while let Some(before) = left.next_if(|before| before.0 < *term) {
                terms.push(before.clone());
            }
            let mut sum = coefficient.times(factor)?;
            if let Some(same) = left.next_if(|same| same.0 == *term) {
                sum = same.1.plus(sum)?;
            }
            if sum != C::default() {
                terms.push((term.clone(), sum));
            }
        }
        terms.extend(left.cloned());
        let constant = self.constant.plus(other.constant.times(factor)?)?;
        Some(Linear { terms, constant })
    }

    pub(crate) fn add(&self, other: &Linear<T, C>) -> Option<Linear<T, C>> {
        self.plus_scaled(other, C::of(1))
    }

    pub(crate) fn minus(&self, other: &Linear<T, C>) -> Option<Linear<T, C>> {
        self.plus_scaled(other, C::of(-1))
    }
}

/// Why an `expect` of [`Total`] arithmetic cannot fail.
pub(super) const TOTAL: &str = "this arithmetic never fails";

impl<T: Ord + Clone, C: Total> Add for &Linear<T, C> {
    type Output = Linear<T, C>;

    fn add(self, other: &Linear<T, C>) -> Linear<T, C> {
        Linear::add(self, other).expect(TOTAL)
    }
}

impl<T: Ord + Clone, C: Total> Sub for &Linear<T, C> {
    type Output = Linear<T, C>;

    fn sub(self, other: &Linear<T, C>) -> Linear<T, C> {
        self.minus(other).expect(TOTAL)
    }
}

impl<T: Clone, C: Total> Mul<C> for &Linear<T, C> {
    type Output = Linear<T, C>;

    fn mul(self, factor: C) -> Linear<T, C> {
        self.scale(factor).expect(TOTAL)
    }
}

/// Flattens the sums, differences and products with a literal in an `index`. No term is a sum. A
/// node occurs in one term only, but equal nodes at different addresses are different terms. `None`
/// if a coefficient leaves 128 bits.
pub(crate) fn collect(expr: &Expr) -> Option<Linear<Expr>> {
    flatten(expr)
}

/// Like [`collect`], modulo 2^64.
pub(crate) fn collect_wrapping(expr: &Expr) -> Linear<Expr, Wrapping<i64>> {
    flatten(expr).expect(TOTAL)
}

fn flatten<C: Coefficient>(expr: &Expr) -> Option<Linear<Expr, C>> {
    if let Some(value) = expr.as_int() {
        return Some(Linear::of_constant(C::of(value)));
    }
    if operands(expr).is_none() {
        return Some(Linear::of_term(expr.clone()));
    }
    let (mut small, mut nodes) = (Linear::default(), MAX_SMALL_NODES);
    if let Some(added) = add_small(expr, C::of(1), &mut small, &mut nodes) {
        return added.then(|| small.without_zeros());
    }
    flatten_by_table(expr)
}

fn flatten_by_table<C: Coefficient>(expr: &Expr) -> Option<Linear<Expr, C>> {
    let mut sums = Sums { slots: FxHashMap::default(), order: Vec::new(), leaves: Vec::new() };
    sums.visit(expr);
    let Sums { slots, order, leaves } = sums;
    let mut coefficients = vec![C::default(); slots.len()];
    coefficients[slots[&expr.id()]] = C::of(1);
    let mut constant = C::default();
    for node in order.iter().rev() {
        let coefficient = coefficients[slots[&node.id()]];
        for (child, factor) in operands(node).into_iter().flatten().flatten() {
            let share = coefficient.times(C::of(factor))?;
            match child.as_int() {
                Some(value) => constant = constant.plus(share.times(C::of(value))?)?,
                None => {
                    let slot = &mut coefficients[slots[&child.id()]];
                    *slot = slot.plus(share)?;
                }
            }
        }
    }
    let terms = leaves.into_iter().map(|leaf| {
        let coefficient = coefficients[slots[&leaf.id()]];
        (leaf, coefficient)
    });
    Some(Linear { terms: terms.collect(), constant }.without_zeros())
}

/// The largest number of nodes of a sum that is flattened without a table: most sums are smaller.
const MAX_SMALL_NODES: u32 = 24;

/// Adds `factor` times an expression to a sum, node by node. Returns whether all coefficients are
/// representable; `None` if the expression has more than `nodes` nodes.
fn add_small<C: Coefficient>(
    expr: &Expr,
    factor: C,
    sum: &mut Linear<Expr, C>,
    nodes: &mut u32,
) -> Option<bool> {
    *nodes = nodes.checked_sub(1)?;
    if let Some(value) = expr.as_int() {
        let constant = factor.times(C::of(value)).and_then(|more| sum.constant.plus(more));
        sum.constant = constant.unwrap_or_default();
        return Some(constant.is_some());
    }
    let Some(children) = operands(expr) else {
        match sum.terms.iter_mut().find(|(term, _)| term.same(expr)) {
            Some((_, known)) => {
                let both = known.plus(factor);
                *known = both.unwrap_or_default();
                return Some(both.is_some());
            }
            None => sum.terms.push((expr.clone(), factor)),
        }
        return Some(true);
    };
    for (child, of_child) in children.into_iter().flatten() {
        let Some(share) = factor.times(C::of(of_child)) else { return Some(false) };
        if !add_small(child, share, sum, nodes)? {
            return Some(false);
        }
    }
    Some(true)
}

struct Sums {
    /// The number of each visited node, by [`Expr::id`].
    slots: FxHashMap<usize, usize>,
    /// Sums, children before parents.
    order: Vec<Expr>,
    /// The other nodes, in the order of their first occurrence.
    leaves: Vec<Expr>,
}

impl Sums {
    fn visit(&mut self, expr: &Expr) {
        if expr.as_int().is_some() || self.slots.contains_key(&expr.id()) {
            return;
        }
        self.slots.insert(expr.id(), self.slots.len());
        match operands(expr) {
            None => self.leaves.push(expr.clone()),
            Some(children) => {
                children.into_iter().flatten().for_each(|(child, _)| self.visit(child));
                self.order.push(expr.clone());
            }
        }
    }
}

/// Returns the summands of a linear node with their factors; `None` for every other node.
fn operands(expr: &Expr) -> Option<[Option<(&Expr, i128)>; 2]> {
    if expr.ty != DType::Index.into() {
        return None;
    }
    match &expr.kind {
        ExprKind::Binary(BinOp::Add, a, b) => Some([Some((a, 1)), Some((b, 1))]),
        ExprKind::Binary(BinOp::Sub, a, b) => Some([Some((a, 1)), Some((b, -1))]),
        ExprKind::Binary(BinOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
            (_, Some(factor)) => Some([Some((a, factor)), None]),
            (Some(factor), None) => Some([Some((b, factor)), None]),
            _ => None,
        },
        ExprKind::Unary(UnOp::Neg, a) => Some([Some((a, -1)), None]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Var;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn sums_are_flattened_alike_with_and_without_a_table() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut large = 0;
        for _ in 0..500 {
            let mut nodes: Vec<Expr> = (0..3).map(|_| Expr::var(&Var::index("x"))).collect();
            nodes.extend([Expr::index(0), Expr::index(-2), Expr::index(i64::MAX)]);
            for _ in 0..random.random_range(1..16) {
                // Of the last ones, so that nodes are shared.
                let [a, b] = [0; 2].map(|_| nodes[nodes.len() - random.random_range(1..4)].clone());
                nodes.push(match random.random_range(0..5) {
                    0 => Expr::unary(UnOp::Neg, a),
                    1 => Expr::mul(a, Expr::index(random.random_range(-3..4))),
                    2 => Expr::sub(a, b),
                    _ => Expr::add(a, b),
                });
            }
            let sum = nodes.last().expect("nodes");
            let (one, other) = (flatten::<i128>(sum), flatten_by_table::<i128>(sum));
            let parts = |sum: Option<Linear<Expr>>| {
                let sum = sum.expect("no overflow");
                let terms = sum.terms.iter().map(|(term, factor)| (term.id(), *factor));
                (terms.collect::<Vec<_>>(), sum.constant)
            };
            // A tree with more nodes than the limit goes by the table in both.
            let mut all = MAX_SMALL_NODES;
            let small = add_small(sum, 1i128, &mut Linear::default(), &mut all);
            large += u32::from(small.is_none());
            if operands(sum).is_some() {
                assert_eq!(parts(one), parts(other), "{sum:?}");
            }
        }
        assert!((20..480).contains(&large), "{large} large sums");
    }
}

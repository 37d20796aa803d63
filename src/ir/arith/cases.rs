//! Bounds of sums of minima, maxima and quotients, by cases.
//!
//! Before: `min(max(8*o + 1, 0), n - 1) - min(max(8*o - 1, 0), n - 1)`, whose operands differ
//! widely for most `o`.
//! After: between 0 and 2, the bounds of the differences of corresponding operands.
//!
//! A sum is at most `c` if
//!
//! - it contains a maximum with a positive factor or a minimum with a negative one, and it is at
//!   most `c` with each of the operands instead;
//! - it contains a minimum with a positive factor or a maximum with a negative one, and it is at
//!   most `c` with one of the operands instead;
//! - it contains `p // m - q // m`, and it is at most `c` with `ceil(d / m)` instead, where `d` is
//!   an upper bound of `p - q`;
//! - the prover proves that bound.
//!
//! Lower bounds are upper bounds of the negated sum.

use super::Facts;
use super::atoms::AtomKind;
use super::poly::{Atom, Poly, floor_div};
use crate::ir::Expr;
use crate::ir::visit::any_expr;
use std::rc::Rc;

/// The largest number of sums that are examined for one bound. A pair of clamped indices takes
/// fewer than 40.
const MAX_SUMS: u32 = 400;

impl Facts {
    /// Returns bounds of an `index` expression, both inclusive; `None` if no bound was found. The
    /// bounds are constants, or contain no loop variables.
    pub(crate) fn bounds_by_cases(&self, expr: &Expr) -> (Option<Expr>, Option<Expr>) {
        let poly = self.poly(expr);
        let upper = |poly: &Poly| Cases { facts: self, sums: MAX_SUMS }.upper(poly);
        let low = poly.neg().and_then(|poly| upper(&poly)?.neg());
        let to_expr = |bound: Option<Poly>| bound.and_then(|bound| self.poly_expr(&bound));
        (to_expr(low), to_expr(upper(&poly)))
    }
}

struct Cases<'a> {
    facts: &'a Facts,
    /// The number of sums that may still be examined.
    sums: u32,
}

impl Cases<'_> {
    fn upper(&mut self, poly: &Poly) -> Option<Poly> {
        if poly.as_constant().is_some() {
            return Some(poly.clone());
        }
        self.sums = self.sums.checked_sub(1)?;
        let known = self.known(poly);
        let found = match self.alternatives(poly, true) {
            Some((a, b)) => self.upper_of_both(&a?, &b?),
            None => match self.alternatives(poly, false) {
                Some((a, b)) => {
                    let a = a.and_then(|a| self.upper(&a));
                    let b = b.and_then(|b| self.upper(&b));
                    self.least(a, b)
                }
                None => self.upper_of_quotients(poly),
            },
        };
        let found = self.least(known, found);
        // Intervals ignore how loops and run-time extents depend on each other.
        let is_loose = found.as_ref().is_none_or(|found| found.as_constant() > Some(0));
        if is_loose && self.facts.at_least(&poly.neg()?, 0) {
            return Some(Poly::default());
        }
        found
    }

    /// Returns a bound from the intervals of the terms, or the sum itself if it has no loop
    /// variables.
    fn known(&self, poly: &Poly) -> Option<Poly> {
        if let (_, Some(high)) = self.facts.poly_interval(poly).ends() {
            return Some(Poly::of_constant(high));
        }
        let expr = self.facts.poly_expr(poly)?;
        let is_loop = |e: &Expr| e.as_var().is_some_and(|var| self.facts.is_loop(var));
        (!any_expr(&expr, &mut |e| is_loop(e))).then(|| poly.clone())
    }

    /// Returns the sum with either operand in place of a term: of one for which both sums must be
    /// bounded (`both`), or of one for which one bounded sum suffices. `None` if there is no such
    /// term.
    fn alternatives(&self, poly: &Poly, both: bool) -> Option<(Option<Poly>, Option<Poly>)> {
        let (atom, a, b) = poly.terms.iter().find_map(|(monomial, factor)| {
            let [atom] = monomial[..] else { return None };
            let alone = poly.terms.iter().filter(|(other, _)| other.contains(&atom)).count() == 1;
            let (needs_both, a, b) = match self.facts.arena.borrow().kind(atom) {
                AtomKind::Min(a, b) => (*factor < 0, Rc::clone(a), Rc::clone(b)),
                AtomKind::Max(a, b) => (*factor > 0, Rc::clone(a), Rc::clone(b)),
                AtomKind::Choose(_, a, b) => (true, Rc::clone(a), Rc::clone(b)),
                _ => return None,
            };
            (alone && needs_both == both).then_some((atom, a, b))
        })?;
        Some((poly.substitute(atom, &a), poly.substitute(atom, &b)))
    }

    /// Returns an upper bound of both sums.
    fn upper_of_both(&mut self, a: &Poly, b: &Poly) -> Option<Poly> {
        let covers = |bound: &Poly, other: &Poly| {
            bound.minus(other).is_some_and(|rest| self.facts.at_least(&rest, 0))
        };
        match (self.upper(a), self.upper(b)) {
            (Some(high), _) if covers(&high, b) => Some(high),
            (_, Some(high)) if covers(&high, a) => Some(high),
            (Some(high), Some(other)) if covers(&high, &other) => Some(high),
            (Some(high), Some(other)) if covers(&other, &high) => Some(other),
            _ => None,
        }
    }

    /// Returns the lower one of two bounds of a sum; prefers constants.
    fn least(&self, a: Option<Poly>, b: Option<Poly>) -> Option<Poly> {
        let (Some(x), Some(y)) = (&a, &b) else { return a.or(b) };
        match (x.as_constant(), y.as_constant()) {
            (Some(x), Some(y)) => Some(Poly::of_constant(x.min(y))),
            (None, Some(_)) => b,
            _ => a,
        }
    }

    /// Returns an upper bound of a sum that contains a difference of two quotients with one
    /// divisor.
    fn upper_of_quotients(&mut self, poly: &Poly) -> Option<Poly> {
        let mut quotients: Vec<(Atom, i128, Rc<Poly>, i128)> = Vec::new();
        for (monomial, factor) in &poly.terms {
            let [atom] = monomial[..] else { continue };
            if let AtomKind::Div(a, b) = self.facts.arena.borrow().kind(atom)
                && let Some(by) = b.as_constant().filter(|by| *by > 0)
            {
                quotients.push((atom, *factor, Rc::clone(a), by));
            }
        }
        for (x, plus, p, by) in &quotients {
            for (y, minus, q, other) in &quotients {
                if by != other || *plus < 0 || *minus > 0 {
                    continue;
                }
                let Some(apart) = self.upper(&p.minus(q)?).and_then(|high| high.as_constant())
                else {
                    continue;
                };
                let count = (*plus).min(minus.checked_neg()?);
                let rest = poly.plus_scaled(&Poly::atom(*x), -count)?;
                let rest = rest.plus_scaled(&Poly::atom(*y), count)?;
                let most = floor_div(apart.checked_add(by - 1)?, *by).checked_mul(count)?;
                if let Some(high) = self.upper(&rest) {
                    return high.add_constant(most);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::evaluate;
    use super::*;
    use crate::ir::{BinOp, Var};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn clamp(x: Expr, low: Expr, high: Expr) -> Expr {
        Expr::binary(BinOp::Min, Expr::binary(BinOp::Max, x, low), high)
    }

    #[test]
    fn differences_of_clamped_indices_are_bounded() {
        let (o, n, d) = (Var::index("o"), Var::index("n"), Var::index("d"));
        let mut facts = Facts::new();
        let at = |by: i64| Expr::add(Expr::mul(Expr::var(&o), Expr::index(8)), Expr::index(by));
        let last = Expr::sub(Expr::var(&n), Expr::index(1));
        let blocks = Expr::add(Expr::var(&n), Expr::index(7));
        let blocks = Expr::binary(BinOp::FloorDiv, blocks, Expr::index(8));
        facts.bind(&o, &Expr::index(0), &blocks);
        facts.assume(&Expr::le(Expr::index(0), Expr::var(&d)));
        let clamped = |by| clamp(at(by), Expr::index(0), last.clone());
        let bounds = |expr: &Expr| {
            let (low, high) = facts.bounds_by_cases(expr);
            (low.and_then(|e| e.as_int()), high.and_then(|e| e.as_int()))
        };
        assert_eq!(bounds(&Expr::sub(clamped(1), clamped(-1))), (Some(0), Some(2)));
        assert_eq!(bounds(&Expr::sub(clamped(0), at(0))), (Some(0), Some(0)));
        assert_eq!(bounds(&Expr::sub(at(0), clamped(-1))), (Some(0), Some(1)));
        // The distance of the ends is not bounded.
        assert_eq!(bounds(&Expr::sub(clamped(1), Expr::index(0))).1, None);
        // A run-time distance.
        let far = Expr::add(at(0), Expr::var(&d));
        let (_, high) = facts.bounds_by_cases(&Expr::sub(far, clamped(0)));
        assert!(facts.prove(&Expr::eq(high.expect("a bound"), Expr::var(&d))));
        let third = |by| Expr::binary(BinOp::FloorDiv, at(by), Expr::index(3));
        assert_eq!(bounds(&Expr::sub(third(4), third(0))), (Some(1), Some(2)));
    }

    fn random_expr(random: &mut ChaCha8Rng, vars: &[Var], depth: u32) -> Expr {
        if depth == 0 || random.random_range(0..6) == 0 {
            return match random.random_range(0..3) {
                0 => Expr::index(random.random_range(-4..9)),
                _ => Expr::var(&vars[random.random_range(0..vars.len())]),
            };
        }
        let a = random_expr(random, vars, depth - 1);
        let b = random_expr(random, vars, depth - 1);
        match random.random_range(0..9) {
            0 | 1 => Expr::add(a, b),
            2 => Expr::sub(a, b),
            3 => Expr::mul(a, Expr::index(random.random_range(-3..4))),
            4 => Expr::binary(BinOp::FloorDiv, a, Expr::index(random.random_range(1..5))),
            5 | 6 => Expr::binary(BinOp::Min, a, b),
            _ => Expr::binary(BinOp::Max, a, b),
        }
    }

    #[test]
    fn no_value_exceeds_a_bound() {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let mut bounded = 0;
        for _ in 0..400 {
            let vars = [Var::index("x"), Var::index("y"), Var::index("n")];
            let mut facts = Facts::new();
            facts.bind(&vars[0], &Expr::index(0), &Expr::index(5));
            facts.bind(&vars[1], &Expr::index(-2), &Expr::var(&vars[2]));
            let a = random_expr(&mut random, &vars, 4);
            let b = random_expr(&mut random, &vars, 4);
            let expr = Expr::sub(a, b);
            let (low, high) = facts.bounds_by_cases(&expr);
            bounded += u32::from(high.is_some());
            for n in 1..6 {
                for (x, y) in (0..5).flat_map(|x| (-2..n - 2).map(move |y| (x, y))) {
                    let at: Vec<(Var, i64)> = vars.iter().cloned().zip([x, y, n]).collect();
                    let value = |e: &Expr| evaluate(e, &at).expect("nothing overflows");
                    let now = value(&expr);
                    assert!(low.as_ref().is_none_or(|low| value(low) <= now), "{expr:?}: {low:?}");
                    assert!(high.as_ref().is_none_or(|h| value(h) >= now), "{expr:?}: {high:?}");
                }
            }
        }
        assert!(bounded > 130, "only {bounded} have a bound");
    }
}

//! Simplifies `index` arithmetic: sums become flat, with their terms in the order of first
//! occurrence and the constant last; terms that the divisor divides leave divisions and moduli.

use super::{Simplifier, fold};
use crate::ir::arith::{
    Facts, Interval, Linear, Poly, build_sum, collect, floor_div, floor_mod, gcd,
};
use crate::ir::visit::map_children;
use crate::ir::{BinOp, DType, Expr, ExprKind};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Sums with a number of at least this magnitude keep their form, so that no intermediate value of
/// the new form overflows if none of the old form did.
const MAX_MAGNITUDE: u128 = 1 << 62;

/// A linear sum of terms with different normal forms, in the order of their first occurrence. While
/// it is built, coefficients may be 0.
#[derive(Default)]
pub(super) struct Sum {
    linear: Linear<Expr>,
    /// The normal form of each term.
    polys: Vec<Rc<Poly>>,
    /// The place of each term, by normal form, if there are many.
    at: FxHashMap<Rc<Poly>, usize>,
}

/// The largest number of terms among which one is found by comparison.
const MAX_COMPARED_TERMS: usize = 8;

impl Sum {
    fn of_constant(value: i128) -> Sum {
        Sum { linear: Linear::of_constant(value), ..Sum::default() }
    }

    /// Adds `factor` times a simplified expression. `None` if a number leaves 128 bits.
    pub(super) fn add(&mut self, facts: &Facts, expr: &Expr, factor: i128) -> Option<()> {
        let Linear { terms, constant } = collect(expr)?.scale(factor)?;
        self.add_constant(constant)?;
        for (term, coefficient) in terms {
            let poly = facts.poly(&term);
            match self.place(&poly) {
                Some(at) => {
                    let sum = &mut self.linear.terms[at].1;
                    *sum = sum.checked_add(coefficient)?;
                }
                None => {
                    self.linear.terms.push((term, coefficient));
                    self.polys.push(poly);
                }
            }
        }
        Some(())
    }

    /// Returns the place of the term with a normal form.
    fn place(&mut self, poly: &Rc<Poly>) -> Option<usize> {
        if self.polys.len() <= MAX_COMPARED_TERMS {
            return self.polys.iter().position(|known| Rc::ptr_eq(known, poly) || known == poly);
        }
        for at in self.at.len()..self.polys.len() {
            self.at.insert(self.polys[at].clone(), at);
        }
        self.at.get(poly).copied()
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.linear.terms.swap(a, b);
        self.polys.swap(a, b);
        self.at.clear();
    }

    fn add_constant(&mut self, value: i128) -> Option<()> {
        self.linear.constant = self.linear.constant.checked_add(value)?;
        Some(())
    }

    /// Returns the terms and the constant.
    pub(super) fn into_parts(self) -> (Vec<(Expr, i128)>, i128) {
        let Linear { terms, constant } = self.linear.without_zeros();
        (terms, constant)
    }

    fn build(self) -> Option<Expr> {
        let (terms, constant) = self.into_parts();
        Sum::rebuild(terms, constant)
    }

    /// Returns the expression of a sum; `None` if a number exceeds [`MAX_MAGNITUDE`].
    pub(super) fn rebuild(terms: Vec<(Expr, i128)>, constant: i128) -> Option<Expr> {
        let large = |value: i128| value.unsigned_abs() >= MAX_MAGNITUDE;
        if large(constant) || terms.iter().any(|term| large(term.1)) {
            return None;
        }
        Some(build_sum(terms, constant))
    }

    /// Returns the normal form of the whole, with products multiplied out, if it has fewer terms.
    fn expanded(&self, facts: &Facts) -> Option<Poly> {
        let terms = &self.linear.terms;
        let live = terms.iter().filter(|term| term.1 != 0).count();
        if live > 32 || terms.iter().all(|(term, _)| facts.poly(term).term_count() <= 1) {
            return None;
        }
        let mut sum = Poly::of_constant(self.linear.constant);
        for (term, factor) in terms {
            sum = sum.plus_scaled(&facts.poly(term), *factor)?;
        }
        (sum.term_count() < live).then_some(sum)
    }
}

impl Simplifier<'_> {
    /// Simplifies a scalar `index` expression.
    pub(super) fn index(&mut self, expr: &Expr) -> Expr {
        match self.sum(expr) {
            Some(sum) => self.reuse(expr, sum),
            None => map_children(expr, &mut |child| self.expr(child)),
        }
    }

    fn sum(&mut self, expr: &Expr) -> Option<Expr> {
        let Linear { terms, constant } = collect(expr)?;
        let mut sum = Sum::of_constant(constant);
        for (leaf, factor) in terms {
            let simple = if leaf.same(expr) { self.leaf(&leaf)? } else { self.expr(&leaf) };
            sum.add(&self.facts, &simple, factor)?;
        }
        self.shrink(sum)?.build()
    }

    /// Joins divisions and moduli, and multiplies products out if that leaves fewer terms.
    pub(super) fn shrink(&mut self, mut sum: Sum) -> Option<Sum> {
        self.join_div_mod(&mut sum)?;
        let Some(poly) = sum.expanded(&self.facts) else { return Some(sum) };
        let mut shrunk = Sum::default();
        shrunk.add(&self.facts, &self.facts.poly_expr(&poly)?, 1)?;
        Some(shrunk)
    }

    /// Returns `new` if it may be the operand of a comparison or division. The value of an operand
    /// must fit in 64 bits, unlike that of a part of a sum: `new` must equal one of `old`, or
    /// provably fit.
    pub(super) fn operand(&self, new: Expr, old: &[&Expr]) -> Option<Expr> {
        let known = |poly: &Rc<Poly>| old.iter().any(|old| self.facts.poly(old) == *poly);
        (known(&self.facts.poly(&new)) || self.fits(&new)).then_some(new)
    }

    /// Whether the value of a sum provably fits in 64 bits, given that the values of its terms do.
    fn fits(&self, sum: &Expr) -> bool {
        let (lo, hi) = DType::Index.int_range();
        Interval::new(lo, hi).covers(self.range(sum))
    }

    /// Returns constant bounds of an expression whose parts, except for products and sums, fit in
    /// 64 bits.
    fn range(&self, expr: &Expr) -> Interval {
        let Some(Linear { terms, constant }) = collect(expr) else { return Interval::ALL };
        let sum = terms.iter().fold(Interval::point(constant), |sum, (term, factor)| {
            let range = match &term.kind {
                ExprKind::Binary(BinOp::Mul, a, b) => self.range(a).mul(self.range(b)),
                _ => {
                    let (lo, hi) = DType::Index.int_range();
                    self.facts.interval(term).intersect(Interval::new(lo, hi))
                }
            };
            sum.add(range.mul(Interval::point(*factor)))
        });
        sum.intersect(self.facts.interval(expr))
    }

    /// Simplifies a node that is no sum, with operands that are not simplified yet.
    fn leaf(&mut self, expr: &Expr) -> Option<Expr> {
        match &expr.kind {
            ExprKind::Binary(BinOp::Mul, a, b) => {
                let (a, b) = (self.expr(a), self.expr(b));
                self.product(&a, &b)
            }
            ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, divisor) => {
                let (a, b) = (self.expr(a), self.expr(divisor));
                if self.divides_at_run_time(&a, divisor) {
                    return Some(Expr::binary(*op, a, divisor.clone()));
                }
                match op {
                    BinOp::FloorDiv => self.divide(&a, &b),
                    _ => self.modulo(&a, &b),
                }
            }
            ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => {
                let (a, b) = (self.expr(a), self.expr(b));
                Some(self.min_max(*op, a, b))
            }
            ExprKind::Select(..) | ExprKind::IfThenElse(..) => Some(self.choice(expr)),
            ExprKind::Let(var, value, body) => Some(self.let_in(expr, var, value, body)),
            ExprKind::Var(_) | ExprKind::Const(_) => Some(self.expr(expr)),
            _ => Some(fold::fold_node(map_children(expr, &mut |child| self.expr(child)))),
        }
    }

    /// Returns the product of simplified operands, with the constant factor at the right end.
    fn product(&mut self, a: &Expr, b: &Expr) -> Option<Expr> {
        for (a, b) in [(a, b), (b, a)] {
            if let Some(factor) = b.as_int() {
                let mut sum = Sum::default();
                sum.add(&self.facts, a, factor)?;
                return sum.build();
            }
        }
        let single = |expr: &Expr| -> Option<(Expr, i128)> {
            let Linear { mut terms, constant } = collect(expr)?;
            match terms.len() == 1 && constant == 0 {
                true => terms.pop(),
                false => Some((expr.clone(), 1)),
            }
        };
        let ((a, ca), (b, cb)) = (single(a)?, single(b)?);
        Sum::rebuild(vec![(Expr::mul(a, b), ca.checked_mul(cb)?)], 0)
    }

    /// Returns `a // b` for simplified operands.
    fn divide(&mut self, a: &Expr, b: &Expr) -> Option<Expr> {
        match b.as_int() {
            Some(0) => Some(Expr::index(0)),
            Some(1) => Some(a.clone()),
            Some(c) if c < 0 => {
                let negative = self.scaled(a, -1)?;
                self.divide_constant(&negative, -c)
            }
            Some(c) => self.divide_constant(a, c),
            None => self.divide_symbolic(a, b),
        }
    }

    /// Returns `a // c` for `c > 0`: multiples of c leave the division, common factors cancel,
    /// nested divisions become one.
    fn divide_constant(&mut self, a: &Expr, c: i128) -> Option<Expr> {
        if c == 1 {
            return Some(a.clone());
        }
        let Linear { terms, constant } = collect(a)?;
        let (mut quotient, mut rest): (Vec<_>, Vec<_>) =
            terms.into_iter().partition(|term| term.1 % c == 0);
        quotient.iter_mut().for_each(|term| term.1 /= c);
        let mut whole = floor_div(constant, c);
        let mut low = floor_mod(constant, c);
        let mut c = c;
        let g = gcd(rest.iter().fold(0, |g, term| gcd(g, term.1)), c);
        if g > 1 && !rest.is_empty() {
            rest.iter_mut().for_each(|term| term.1 /= g);
            low = floor_div(low, g);
            c /= g;
        }
        let remainder = Sum::rebuild(rest.clone(), low)?;
        if c == 1 {
            return self.joined(quotient, whole, remainder);
        }
        let remainder = self.operand(remainder, &[a])?;
        let range = self.facts.interval(&remainder);
        if range.has_lo() && range.has_hi() && floor_div(range.lo, c) == floor_div(range.hi, c) {
            whole += floor_div(range.lo, c);
            return Sum::rebuild(quotient, whole);
        }
        if let [(term, 1)] = rest.as_slice()
            && let ExprKind::Binary(op, x, d) = &term.kind
            && let Some(d) = d.as_int().filter(|d| *d > 0)
        {
            if *op == BinOp::FloorDiv {
                let inner = self.shifted(x, low.checked_mul(d)?)?;
                let inner = self.operand(inner, &[x])?;
                let joined = self.divide_constant(&inner, d.checked_mul(c)?)?;
                return self.joined(quotient, whole, joined);
            }
            if *op == BinOp::FloorMod && low == 0 && d % c == 0 {
                let inner = self.divide_constant(x, c)?;
                let reduced = self.modulo_constant(&inner, d / c)?;
                return self.joined(quotient, whole, reduced);
            }
        }
        if let Some((coarse, c)) = self.drop_small_terms(&rest, low, c) {
            let coarse = self.operand(Sum::rebuild(coarse, 0)?, &[])?;
            let divided = self.divide_constant(&coarse, c)?;
            return self.joined(quotient, whole, divided);
        }
        // `(x + y//d) // c` is `(d*x + y) // (d*c)`.
        let inner = rest.iter().position(|(term, factor)| {
            *factor == 1
                && matches!(&term.kind, ExprKind::Binary(BinOp::FloorDiv, _, d)
                if d.as_int().is_some_and(|d| d > 0))
        });
        if let Some(at) = inner
            && let ExprKind::Binary(_, y, d) = &rest[at].0.kind
            && let Some(d) = d.as_int()
        {
            let mut sum = Sum::of_constant(low.checked_mul(d)?);
            for (place, (term, factor)) in rest.iter().enumerate() {
                match place == at {
                    true => sum.add(&self.facts, y, 1)?,
                    false => sum.add(&self.facts, term, factor.checked_mul(d)?)?,
                }
            }
            let inner = self.operand(sum.build()?, &[y])?;
            let joined = self.divide_constant(&inner, d.checked_mul(c)?)?;
            return self.joined(quotient, whole, joined);
        }
        let divided = Expr::binary(BinOp::FloorDiv, remainder, Expr::index(i64::try_from(c).ok()?));
        self.joined(quotient, whole, divided)
    }

    /// Drops terms that cannot change a quotient: `(16*x + y) // 64` is `x // 4` if `0 <= y < 16`.
    /// Returns the other terms, divided, and their divisor.
    #[allow(clippy::type_complexity)]
    fn drop_small_terms(
        &self,
        terms: &[(Expr, i128)],
        low: i128,
        c: i128,
    ) -> Option<(Vec<(Expr, i128)>, i128)> {
        let mut steps: Vec<i128> = terms.iter().map(|term| gcd(term.1, c)).collect();
        steps.retain(|step| *step > 1);
        steps.sort_unstable_by(|a, b| b.cmp(a));
        steps.dedup();
        steps.into_iter().find_map(|step| {
            let (mut coarse, fine): (Vec<_>, Vec<_>) =
                terms.iter().cloned().partition(|term| term.1 % step == 0);
            if fine.is_empty() {
                return None;
            }
            let range = self.facts.interval(&Sum::rebuild(fine, low)?);
            if range.lo < 0 || range.hi >= step {
                return None;
            }
            coarse.iter_mut().for_each(|term| term.1 /= step);
            Some((coarse, c / step))
        })
    }

    fn divide_symbolic(&mut self, a: &Expr, b: &Expr) -> Option<Expr> {
        if a.as_int() == Some(0) {
            return Some(Expr::index(0));
        }
        let (quotient, rest, constant) = self.split_multiples(a, b)?;
        if !quotient.is_empty() && self.is_nonzero(b) {
            let remainder = self.operand(Sum::rebuild(rest, constant)?, &[a])?;
            let divided = match self.inside(&remainder, b) {
                true => Expr::index(0),
                false if remainder.as_int() == Some(0) => Expr::index(0),
                false => Expr::binary(BinOp::FloorDiv, remainder, b.clone()),
            };
            return self.joined(quotient, 0, divided);
        }
        Some(match self.inside(a, b) {
            true => Expr::index(0),
            false => Expr::binary(BinOp::FloorDiv, a.clone(), b.clone()),
        })
    }

    /// Returns `a % b` for simplified operands.
    fn modulo(&mut self, a: &Expr, b: &Expr) -> Option<Expr> {
        match b.as_int() {
            Some(0) => Some(Expr::index(0)),
            Some(c) if c < 0 => {
                let negative = self.scaled(a, -1)?;
                let reduced = self.modulo_constant(&negative, -c)?;
                self.scaled(&reduced, -1)
            }
            Some(c) => self.modulo_constant(a, c),
            None => {
                // Multiples of `b` do not change the remainder. If `b` is 0, both remainders are 0.
                let (_, rest, constant) = self.split_multiples(a, b)?;
                let remainder = self.operand(Sum::rebuild(rest, constant)?, &[a])?;
                if remainder.as_int() == Some(0) || self.inside(&remainder, b) {
                    return Some(remainder);
                }
                Some(Expr::binary(BinOp::FloorMod, remainder, b.clone()))
            }
        }
    }

    /// Returns `a % c` for `c > 0`.
    fn modulo_constant(&mut self, a: &Expr, c: i128) -> Option<Expr> {
        if c == 1 {
            return Some(Expr::index(0));
        }
        let poly = self.facts.poly(a);
        if let Some(value) = self.facts.residue(&poly, c) {
            return Sum::rebuild(Vec::new(), value);
        }
        let Linear { terms, constant } = collect(a)?;
        let mut rest: Vec<_> = terms.into_iter().filter(|term| term.1 % c != 0).collect();
        let low = floor_mod(constant, c);
        let g = gcd(rest.iter().fold(0, |g, term| gcd(g, term.1)), c);
        if g > 1 && !rest.is_empty() {
            rest.iter_mut().for_each(|term| term.1 /= g);
            let inner = self.operand(Sum::rebuild(rest, floor_div(low, g))?, &[])?;
            let inner = self.modulo_constant(&inner, c / g)?;
            let scaled = self.scaled(&inner, g)?;
            return self.shifted(&scaled, floor_mod(low, g));
        }
        let remainder = self.operand(Sum::rebuild(rest.clone(), low)?, &[a])?;
        let range = self.facts.interval(&remainder);
        if range.has_lo() && range.has_hi() && floor_div(range.lo, c) == floor_div(range.hi, c) {
            let period = floor_div(range.lo, c).checked_mul(c)?;
            return self.shifted(&remainder, -period);
        }
        if let [(term, 1)] = rest.as_slice()
            && let ExprKind::Binary(BinOp::FloorMod, x, d) = &term.kind
            && d.as_int().is_some_and(|d| d > 0 && d % c == 0)
        {
            let inner = self.shifted(x, low)?;
            let inner = self.operand(inner, &[x])?;
            return self.modulo_constant(&inner, c);
        }
        let c = Expr::index(i64::try_from(c).ok()?);
        Some(Expr::binary(BinOp::FloorMod, remainder, c))
    }

    fn min_max(&mut self, op: BinOp, a: Expr, b: Expr) -> Expr {
        let (pa, pb) = (self.facts.poly(&a), self.facts.poly(&b));
        let least = op == BinOp::Min;
        if pb.minus(&pa).is_some_and(|d| self.facts.at_least(&d, 0)) {
            return if least { a } else { b };
        }
        if pa.minus(&pb).is_some_and(|d| self.facts.at_least(&d, 0)) {
            return if least { b } else { a };
        }
        Expr::binary(op, a, b)
    }

    /// Replaces `k*c*(a // c) + k*(a % c)` by `k*a`, and `k*c*(a // c)` by `k*(a - r)` if `a % c`
    /// is known to be r. `None` if a number leaves 128 bits.
    fn join_div_mod(&mut self, sum: &mut Sum) -> Option<()> {
        if sum.linear.terms.len() < 2 && self.facts.knows_no_congruence() {
            return Some(());
        }
        let mut at = 0;
        let mut budget = 4 * sum.linear.terms.len();
        while at < sum.linear.terms.len() && budget > 0 {
            budget -= 1;
            let (term, k) = sum.linear.terms[at].clone();
            at += 1;
            let ExprKind::Binary(op, a, b) = &term.kind else { continue };
            if k == 0 {
                continue;
            }
            if *op == BinOp::FloorDiv
                && let Some(c) = b.as_int().filter(|c| *c > 1 && k % c == 0)
            {
                let poly = self.facts.poly(a);
                if let Some(r) = self.facts.residue(&poly, c) {
                    sum.linear.terms[at - 1].1 = 0;
                    sum.add(&self.facts, a, k / c)?;
                    sum.add_constant(r.checked_mul(-(k / c))?)?;
                    at = 0;
                }
                continue;
            }
            let joins = self.join_symbolic || b.as_int().is_some();
            if *op != BinOp::FloorMod || !joins || !self.is_nonzero(b) {
                continue;
            }
            // The remainder by a run-time integer is already in its simplest form, so the
            // simplifier finds nothing simpler for the quotient either.
            let quotient = match b.as_int() {
                Some(_) => self.divide(a, b)?,
                None => Expr::binary(BinOp::FloorDiv, a.clone(), b.clone()),
            };
            let product = collect(&self.product(&quotient, b)?)?;
            let [(part, factor)] = product.terms.as_slice() else { continue };
            let Some(other) = sum.place(&self.facts.poly(part)) else { continue };
            if sum.linear.terms[other].1 != k.checked_mul(*factor)? {
                continue;
            }
            // a == b*(a // b) + a % b, and the product is factor*part + constant.
            sum.linear.terms[at - 1].1 = 0;
            sum.linear.terms[other].1 = 0;
            sum.add_constant(product.constant.checked_mul(k.checked_neg()?)?)?;
            let place = other.min(at - 1);
            self.add_at(sum, place, a, k)?;
            at = 0;
        }
        Some(())
    }

    /// Adds `k*a`. If the first term of `a` is new, it takes `place`, that of a removed term.
    fn add_at(&mut self, sum: &mut Sum, place: usize, a: &Expr, k: i128) -> Option<()> {
        let before = sum.linear.terms.len();
        sum.add(&self.facts, a, k)?;
        if sum.linear.terms.len() > before {
            sum.swap(place, before);
        }
        Some(())
    }

    /// Whether constant bounds show that `a` is not 0.
    fn is_nonzero(&self, a: &Expr) -> bool {
        let range = self.facts.interval(a);
        range.lo >= 1 || range.hi <= -1
    }

    /// Whether `0 <= a < b` provably holds.
    fn inside(&self, a: &Expr, b: &Expr) -> bool {
        let (a, b) = (self.facts.poly(a), self.facts.poly(b));
        b.minus(&a).is_some_and(|d| self.facts.at_least(&d, 1)) && self.facts.at_least(&a, 0)
    }

    /// Returns the terms of `a` that `b` divides, divided by `b`; the other terms; and the
    /// constant.
    #[allow(clippy::type_complexity)]
    fn split_multiples(
        &mut self,
        a: &Expr,
        b: &Expr,
    ) -> Option<(Vec<(Expr, i128)>, Vec<(Expr, i128)>, i128)> {
        let Linear { terms, constant } = collect(a)?;
        let (mut quotient, mut rest) = (Vec::new(), Vec::new());
        let divisor = factors(b);
        for (term, coefficient) in terms {
            match self.without_factors(&term, &divisor) {
                Some(left) => quotient.push((left, coefficient)),
                None => rest.push((term, coefficient)),
            }
        }
        Some((quotient, rest, constant))
    }

    /// Returns `term` without the factors of a divisor; `None` if it lacks one of them.
    fn without_factors(&mut self, term: &Expr, divisor: &[Expr]) -> Option<Expr> {
        let mut left = factors(term);
        for factor in divisor {
            let poly = self.facts.poly(factor);
            let at = left.iter().position(|other| self.facts.poly(other) == poly)?;
            left.remove(at);
        }
        Some(left.into_iter().reduce(Expr::mul).unwrap_or_else(|| Expr::index(1)))
    }

    fn scaled(&mut self, a: &Expr, factor: i128) -> Option<Expr> {
        let mut sum = Sum::default();
        sum.add(&self.facts, a, factor)?;
        sum.build()
    }

    fn shifted(&mut self, a: &Expr, by: i128) -> Option<Expr> {
        let mut sum = Sum::default();
        sum.add(&self.facts, a, 1)?;
        sum.add_constant(by)?;
        sum.build()
    }

    fn joined(&mut self, terms: Vec<(Expr, i128)>, constant: i128, last: Expr) -> Option<Expr> {
        let mut sum = Sum::of_constant(constant);
        for (term, factor) in terms {
            sum.add(&self.facts, &term, factor)?;
        }
        sum.add(&self.facts, &last, 1)?;
        sum.build()
    }
}

/// Returns the factors of a product, left to right.
fn factors(expr: &Expr) -> Vec<Expr> {
    match &expr.kind {
        ExprKind::Binary(BinOp::Mul, a, b) => [factors(a), factors(b)].concat(),
        _ => vec![expr.clone()],
    }
}

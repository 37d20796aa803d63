//! Learning: turns conditions into inequalities, congruences and constant ranges.

use super::atoms::{AtomKind, is_exact_integer};
use super::interval::Interval;
use super::poly::{Atom, Poly, floor_div, floor_mod};
use super::prove::{negated, prove_directly};
use super::{Facts, Undo};
use crate::ir::{BinOp, Expr, ExprKind, UnOp};
use std::rc::Rc;

/// The largest number of stored inequalities: more would make proofs slow.
const MAX_INEQUALITIES: usize = 256;
/// The largest number of steps of range propagation after a new inequality.
const MAX_PROPAGATION: usize = 64;

impl Facts {
    /// Learns that `cond` has the value `truth`.
    pub(crate) fn assume_truth(&mut self, cond: &Expr, truth: bool) {
        match &cond.kind {
            ExprKind::Unary(UnOp::Not, a) => self.assume_truth(a, !truth),
            ExprKind::Unary(UnOp::Likely, a) => self.assume_truth(a, truth),
            ExprKind::Binary(BinOp::And, a, b) if truth => {
                self.assume_truth(a, true);
                self.assume_truth(b, true);
            }
            ExprKind::Binary(BinOp::Or, a, b) if !truth => {
                self.assume_truth(a, false);
                self.assume_truth(b, false);
            }
            ExprKind::Binary(BinOp::Or, a, b) => self.assume_either(a.clone(), b.clone()),
            ExprKind::Binary(BinOp::And, a, b) => {
                self.assume_either(Expr::not(a.clone()), Expr::not(b.clone()));
            }
            ExprKind::Binary(op, a, b)
                if op.is_comparison() && a.ty.is_scalar() && is_exact_integer(a.ty.dtype) =>
            {
                self.assume_comparison(*op, a, b, truth);
            }
            _ => {
                let key = self.key(cond);
                if let std::collections::hash_map::Entry::Vacant(slot) = self.truths.entry(key) {
                    slot.insert(truth);
                    self.note(Undo::Truth(key));
                }
            }
        }
    }

    fn assume_either(&mut self, a: Expr, b: Expr) {
        if prove_directly(self, &a, false) {
            self.assume(&b);
        } else if prove_directly(self, &b, false) {
            self.assume(&a);
        } else {
            self.disjunctions.push([a, b]);
            self.note(Undo::Disjunction);
        }
    }

    fn assume_comparison(&mut self, op: BinOp, a: &Expr, b: &Expr, truth: bool) {
        let (a, b) = (self.poly(a), self.poly(b));
        let op = if truth { op } else { negated(op) };
        let less = |a: &Poly, b: &Poly, by: i128| b.minus(a).and_then(|d| d.add_constant(-by));
        match op {
            BinOp::Lt => self.add_inequality(less(&a, &b, 1)),
            BinOp::Le => self.add_inequality(less(&a, &b, 0)),
            BinOp::Gt => self.add_inequality(less(&b, &a, 1)),
            BinOp::Ge => self.add_inequality(less(&b, &a, 0)),
            BinOp::Eq => {
                self.add_inequality(less(&a, &b, 0));
                self.add_inequality(less(&b, &a, 0));
                if let Some(difference) = a.minus(&b) {
                    self.learn_congruence(&difference);
                }
            }
            BinOp::Ne => {
                if let Some(difference) = a.minus(&b) {
                    self.add_nonzero(difference);
                }
            }
            _ => crate::bug!("{op:?} is no comparison"),
        }
        // Of the remainders of a division, one may be left.
        if let Some(difference) = a.minus(&b)
            && let [(mono, 1 | -1)] = difference.terms.as_slice()
            && let [atom] = mono.as_slice()
        {
            let left = self.atom_interval(*atom);
            if left.lo == left.hi {
                self.learn_remainder(*atom, left.lo);
            }
        }
    }

    /// Learns `poly >= 0`; nothing if `poly` is `None`.
    pub(super) fn add_inequality(&mut self, poly: Option<Poly>) {
        let Some(poly) = poly else { return };
        let Some(poly) = tightened(poly) else { return };
        // An inequality without atoms is trivial or contradicts the facts; in the latter case the
        // code is dead.
        let Some((monomial, _)) = poly.terms.first() else { return };
        if self.inequalities.len() >= MAX_INEQUALITIES || poly.terms.len() > 64 {
            return;
        }
        let similar = self.mentions.get(&monomial[0]).map_or(&[][..], |list| list);
        if similar.iter().any(|&at| *self.inequalities[at] == poly) {
            return;
        }
        self.forget_intervals();
        let at = self.inequalities.len();
        for atom in poly.atoms() {
            self.mentions.entry(atom).or_default().push(at);
        }
        self.inequalities.push(Rc::new(poly));
        self.note(Undo::Inequality);
        self.propagate(at);
    }

    /// Learns `poly != 0`. At an end of its range, which may be a variable, the range is one less:
    /// `i != n - 1` and `i <= n - 1` give `i <= n - 2`.
    fn add_nonzero(&mut self, poly: Poly) {
        let negative = poly.neg();
        if self.at_least_directly(&poly, 0) {
            self.add_inequality(poly.add_constant(-1));
        } else if let Some(negative) = negative.filter(|p| self.at_least_directly(p, 0)) {
            self.add_inequality(negative.add_constant(-1));
        } else {
            self.nonzero.push(Rc::new(poly));
            self.note(Undo::Nonzero);
        }
    }

    /// Learns a congruence from `difference == 0`, if it has the form `x % m == r` or `x == m*y +
    /// r`.
    fn learn_congruence(&mut self, difference: &Poly) {
        if let [(mono, factor @ (1 | -1))] = difference.terms.as_slice()
            && let [atom] = mono.as_slice()
            && self.learn_remainder(*atom, -difference.constant * factor)
        {
            return;
        }
        for (mono, coefficient) in &difference.terms {
            if let ([atom], 1 | -1) = (mono.as_slice(), coefficient) {
                let Some((_, rest)) = difference.split(*atom) else { continue };
                let (m, r) = self.congruence(&rest);
                if m > 1 {
                    self.set_congruence(*atom, m, floor_mod(-r * coefficient, m));
                }
            }
        }
    }

    /// Learns a congruence from `atom == r`, if the atom is a remainder `x % m`.
    fn learn_remainder(&mut self, atom: Atom, r: i128) -> bool {
        let AtomKind::Mod(x, m) = self.arena.borrow().kind(atom).clone() else { return false };
        let Some(m) = m.as_constant() else { return false };
        let [(inner, unit @ (1 | -1))] = x.terms.as_slice() else { return false };
        let [x_atom] = inner.as_slice() else { return false };
        // x is unit·x_atom + k.
        self.set_congruence(*x_atom, m, floor_mod((r - x.constant) * unit, m));
        true
    }

    fn set_congruence(&mut self, atom: Atom, m: i128, r: i128) {
        if m <= 1 {
            return;
        }
        let old = self.congruences.get(&atom).copied();
        if old.is_none_or(|(old, _)| m % old == 0) {
            self.congruences.insert(atom, (m, r));
            self.note(Undo::Congruence(atom, old));
        }
    }

    /// Narrows the constant ranges of atoms up to the fixed point or the limit of steps.
    fn propagate(&mut self, start: usize) {
        let mut queue = vec![start];
        let mut steps = 0;
        while let Some(at) = queue.pop() {
            steps += 1;
            if steps > MAX_PROPAGATION {
                return;
            }
            let poly = self.inequalities[at].clone();
            for (atom, range) in self.consequences(&poly) {
                let old = self.ranges.get(&atom).copied();
                let new = old.unwrap_or(Interval::ALL).intersect(range);
                if old == Some(new)
                    || self.atom_interval(atom).intersect(range) == self.atom_interval(atom)
                {
                    continue;
                }
                self.ranges.insert(atom, new);
                self.note(Undo::Range(atom, old));
                self.forget_intervals();
                queue.extend(self.mentions[&atom].iter().rev().take(16));
            }
        }
    }

    /// Returns the ranges of the atoms of an inequality that follow from it.
    fn consequences(&self, poly: &Poly) -> Vec<(Atom, Interval)> {
        let mut ranges = Vec::new();
        for (at, (mono, coefficient)) in poly.terms.iter().enumerate() {
            // coefficient·mono >= -rest >= -(the largest value of the rest).
            let most = self.interval_without(poly, at);
            if !most.has_hi() || most.hi.checked_neg().is_none() {
                continue;
            }
            let range = match *coefficient > 0 {
                true => Interval::new(-floor_div(most.hi, *coefficient), i128::MAX),
                false => Interval::new(i128::MIN, floor_div(most.hi, -coefficient)),
            };
            match mono.as_slice() {
                [atom] => ranges.push((*atom, range)),
                // If a product of non-negative factors is at least 1, so is each factor.
                factors
                    if range.lo >= 1
                        && factors.iter().all(|&atom| self.atom_interval(atom).lo >= 0) =>
                {
                    ranges.extend(factors.iter().map(|&a| (a, Interval::new(1, i128::MAX))));
                }
                _ => {}
            }
        }
        ranges
    }
}

/// Divides an inequality by the common factor of its coefficients and rounds the constant down: it
/// has the same integer solutions.
fn tightened(mut poly: Poly) -> Option<Poly> {
    let g = poly.gcd();
    if g > 1 {
        for term in &mut poly.terms {
            term.1 /= g;
        }
        poly.constant = floor_div(poly.constant, g);
    }
    Some(poly)
}

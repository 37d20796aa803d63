//! Symbolic minima and maxima: a monotone expression is extreme at a corner of the ranges.

use super::Facts;
use super::atoms::AtomKind;
use super::poly::{Atom, Poly};
use crate::ir::{Expr, Var};

/// The least or greatest value of an expression, and the point where it occurs.
#[derive(Clone, Debug)]
pub(crate) struct Extreme {
    pub(crate) value: Expr,
    /// The values there of the variables that the expression depends on, outermost first.
    pub(crate) at: Vec<(Var, Expr)>,
}

impl Facts {
    /// Returns the extreme of `expr` over the ranges of `over`, which are not empty; `None` if it
    /// is not exact. A range may depend on variables that were bound before.
    pub(crate) fn extreme(&self, expr: &Expr, over: &[Var], maximum: bool) -> Option<Extreme> {
        let mut poly = (*self.poly(expr)).clone();
        let mut atoms: Vec<(Atom, &Var)> =
            over.iter().map(|var| (self.arena.borrow_mut().var(var), var)).collect();
        atoms.sort_by_key(|(atom, _)| std::cmp::Reverse(self.rank.get(atom).copied().unwrap_or(0)));
        let mut at: Vec<(&Var, Poly)> = Vec::new();
        for (atom, var) in atoms {
            if !self.depends(&poly, atom) {
                continue;
            }
            let (mut low, mut high) = self.range_of(atom)?;
            let rising = match self.is_monotone(&poly, atom) {
                Some(rising) => rising,
                None => {
                    let (rising, period) = self.is_periodic(&poly, atom)?;
                    (low, high) = one_period(&low, &high, period)?;
                    rising
                }
            };
            let value = if rising == maximum { high } else { low };
            poly = self.replace(&poly, atom, &value)?;
            for (_, earlier) in &mut at {
                *earlier = self.replace(earlier, atom, &value)?;
            }
            at.push((var, value));
        }
        // `replace` removed the outer variables from the values of the inner ones.
        let at = at.iter().rev().map(|(var, value)| Some(((*var).clone(), self.poly_expr(value)?)));
        Some(Extreme { value: self.poly_expr(&poly)?, at: at.collect::<Option<_>>()? })
    }

    /// Returns `(a, b)` if the normal form of an expression is `a*var + b` with a constant `a` and
    /// a `b` that does not depend on `var`.
    pub(crate) fn affine(&self, expr: &Expr, var: &Var) -> Option<(i128, Poly)> {
        let atom = self.arena.borrow_mut().var(var);
        let (slope, start) = self.poly(expr).split(atom)?;
        let slope = slope.as_constant()?;
        (!self.depends(&start, atom)).then_some((slope, start))
    }

    /// Returns the first and the last value of a loop variable.
    fn range_of(&self, atom: Atom) -> Option<(Poly, Poly)> {
        let mut ends = (None, None);
        for &at in self.mentions.get(&atom)? {
            let (factor, rest) = self.inequalities[at].split(atom)?;
            let earlier = rest.atoms().iter().all(|a| !self.depends_on_later(*a, atom));
            match factor.as_constant() {
                Some(1) if ends.0.is_none() && earlier => ends.0 = rest.neg(),
                Some(-1) if ends.1.is_none() && earlier => ends.1 = Some(rest),
                _ => {}
            }
        }
        Some((ends.0?, ends.1?))
    }

    fn depends_on_later(&self, other: Atom, atom: Atom) -> bool {
        let rank = |atom| self.rank.get(&atom).copied().unwrap_or(0);
        rank(other) >= rank(atom) && rank(other) > 0
    }

    /// Whether `atom` occurs in `poly`, also inside other atoms.
    fn depends(&self, poly: &Poly, atom: Atom) -> bool {
        poly.atoms().iter().any(|&a| {
            let kind = self.arena.borrow().kind(a).clone();
            a == atom
                || match &kind {
                    AtomKind::Div(x, y)
                    | AtomKind::Mod(x, y)
                    | AtomKind::Min(x, y)
                    | AtomKind::Max(x, y) => self.depends(x, atom) || self.depends(y, atom),
                    AtomKind::Narrow(_, x) => self.depends(x, atom),
                    AtomKind::Choose(..) | AtomKind::Opaque(_) => true,
                    AtomKind::Var(_) => false,
                }
        })
    }

    /// Returns `true` if `poly` is non-decreasing in `atom`, `false` if it is non-increasing;
    /// `None` if neither is proved.
    fn is_monotone(&self, poly: &Poly, atom: Atom) -> Option<bool> {
        let mut rising = None;
        let mut join = |next: bool| match rising.replace(next) {
            Some(before) if before != next => None,
            _ => Some(()),
        };
        let (direct, rest) = poly.split(atom)?;
        if direct != Poly::default() {
            join(self.sign_of(&direct)?)?;
        }
        if direct.atoms().iter().any(|&a| self.depends(&Poly::atom(a), atom)) {
            return None;
        }
        for composite in rest.atoms() {
            if !self.depends(&Poly::atom(composite), atom) {
                continue;
            }
            let (factor, others) = rest.split(composite)?;
            let entangled = factor.atoms().iter().any(|&a| self.depends(&Poly::atom(a), atom));
            if entangled || others.contains(composite) {
                return None;
            }
            let up = self.sign_of(&factor)?;
            let kind = self.arena.borrow().kind(composite).clone();
            let inner = match &kind {
                AtomKind::Div(x, y) if !self.depends(y, atom) => {
                    let up = self.sign_of(y)?;
                    self.is_monotone(x, atom)? == up
                }
                AtomKind::Min(x, y) | AtomKind::Max(x, y) => {
                    match (self.depends(x, atom), self.depends(y, atom)) {
                        (true, false) => self.is_monotone(x, atom)?,
                        (false, true) => self.is_monotone(y, atom)?,
                        _ => {
                            let up = self.is_monotone(x, atom)?;
                            if self.is_monotone(y, atom)? != up {
                                return None;
                            }
                            up
                        }
                    }
                }
                _ => return None,
            };
            join(inner == up)?;
        }
        rising
    }

    /// Returns the period of `poly` if only the remainder of `atom` is in it, and whether it rises
    /// in each period.
    fn is_periodic(&self, poly: &Poly, atom: Atom) -> Option<(bool, i128)> {
        let depends = |other: &Atom| self.depends(&Poly::atom(*other), atom);
        let atoms = poly.atoms();
        let mut dependent = atoms.iter().filter(|other| depends(other));
        let (remainder, None) = (*dependent.next()?, dependent.next()) else { return None };
        let AtomKind::Mod(a, period) = self.arena.borrow().kind(remainder).clone() else {
            return None;
        };
        let (factor, rest) = poly.split(remainder)?;
        let alone =
            *a == Poly::atom(atom) && !factor.contains(remainder) && !rest.contains(remainder);
        alone.then_some((self.sign_of(&factor)?, period.as_constant()?))
    }

    fn sign_of(&self, factor: &Poly) -> Option<bool> {
        if self.at_least(factor, 0) {
            return Some(true);
        }
        self.at_least(&factor.neg()?, 0).then_some(false)
    }

    /// Returns `poly` with `atom` replaced, also inside other atoms.
    fn replace(&self, poly: &Poly, atom: Atom, value: &Poly) -> Option<Poly> {
        let mut result = Poly::of_constant(poly.constant);
        for (mono, coefficient) in &poly.terms {
            let mut product = Poly::of_constant(*coefficient);
            for &factor in mono {
                product = product.mul(&self.replace_atom(factor, atom, value)?)?;
            }
            result = result.add(&product)?;
        }
        Some(result)
    }

    fn replace_atom(&self, factor: Atom, atom: Atom, value: &Poly) -> Option<Poly> {
        if factor == atom {
            return Some(value.clone());
        }
        let kind = self.arena.borrow().kind(factor).clone();
        let inner = |poly: &Poly| self.replace(poly, atom, value);
        match &kind {
            AtomKind::Div(x, y) => {
                let (x, y) = (inner(x)?, inner(y)?);
                self.arena.borrow_mut().div(&x, &y)
            }
            AtomKind::Mod(x, y) => {
                let (x, y) = (inner(x)?, inner(y)?);
                self.arena.borrow_mut().modulo(&x, &y)
            }
            AtomKind::Min(x, y) | AtomKind::Max(x, y) => {
                let (x, y) = (inner(x)?.into(), inner(y)?.into());
                let op = match kind {
                    AtomKind::Min(..) => crate::ir::BinOp::Min,
                    _ => crate::ir::BinOp::Max,
                };
                Some(self.arena.borrow_mut().min_max(op, x, y))
            }
            _ => Some(Poly::atom(factor)),
        }
    }
}

/// Returns the first and the last value of the first whole period of a range.
fn one_period(low: &Poly, high: &Poly, period: i128) -> Option<(Poly, Poly)> {
    let (low, high) = (low.as_constant()?, high.as_constant()?);
    if period <= 0 {
        return None;
    }
    let first = low.checked_add(low.checked_neg()?.rem_euclid(period))?;
    let last = first.checked_add(period - 1)?;
    (last <= high).then(|| (Poly::of_constant(first), Poly::of_constant(last)))
}

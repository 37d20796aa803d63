//! Examples: values of the variables that satisfy all facts.
//!
//! Before: the facts `n >= 1`, `0 <= i < n`; the goal `n - 2*i >= 0`.
//! After: `n = 5`, `i = 4` satisfies the facts, and the goal is `-3` there. So it has no proof.
//!
//! An example shows in microseconds that a goal has no proof; a search would spend its whole
//! budget. It never shows that a goal holds. Whether a goal is proved does not depend on the
//! examples that are found, because every rule of the prover keeps the truth of the facts.
//!
//! An example is built in the order in which the facts were learnt: each variable gets a value
//! between the bounds that the inequalities give for the values so far, and every inequality is
//! checked as soon as its variables have values. The examples of a scope continue those of the
//! scope around it. Expressions that are opaque for the prover are variables, too; an example has
//! no value for a choice.

use super::Facts;
use super::atoms::{AtomKind, is_exact_integer};
use super::interval::Interval;
use super::poly::{Atom, Poly, floor_div, floor_mod};
use crate::ir::{BinOp, Expr, ExprKind, UnOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::rc::Rc;

/// The number of examples that are tried for a set of facts.
const MAX_EXAMPLES: usize = 12;
/// The number of values that are tried for a variable.
const MAX_VALUES: usize = 6;
/// Distances from a bound, for variables without a bound on the other side.
const DISTANCES: [i128; 12] = [250, 1003, 0, 37, 397, 1, 131, 5, 1789, 64, 2, 511];
/// The largest width of a range from which any value is drawn; from wider ranges, values near an
/// end.
const MAX_WIDTH: i128 = 4096;

/// The examples of a scope by number; `None` if none was found.
pub(super) type Examples = FxHashMap<usize, Option<Rc<Example>>>;

/// Values of the variables that occur in facts.
#[derive(Debug, Default)]
pub(super) struct Example {
    /// The number, which decides the values.
    number: usize,
    /// The number of inequalities that it satisfies.
    satisfied: usize,
    values: FxHashMap<Atom, i128>,
    /// The values of other atoms, once `values` is complete.
    derived: Option<RefCell<FxHashMap<Atom, i128>>>,
}

impl Facts {
    /// Whether an example of the facts is found in which `goal` is negative.
    pub(super) fn has_counterexample(&self, goal: &Poly) -> bool {
        drop(self.cache());
        let scope = self.caches.borrow().len() - 1;
        (0..MAX_EXAMPLES).any(|number| {
            let example = self.example(scope, number);
            example.and_then(|example| example.value(self, goal)).is_some_and(|value| value < 0)
        })
    }

    /// Whether `goal` is negative in an example that was needed for an earlier goal.
    pub(super) fn has_known_counterexample(&self, goal: &Poly) -> bool {
        let innermost = self.caches.borrow().last().map(|cache| Rc::clone(&cache.proofs));
        let Some(proofs) = innermost else { return false };
        let examples = &proofs.borrow().examples;
        let value = |example: &Rc<Example>| example.value(self, goal);
        examples.values().flatten().any(|example| value(example).is_some_and(|value| value < 0))
    }

    /// Whether an example of the facts, with a true alternative of each disjunction, is found in
    /// which `cond` does not have the value `truth`. No case distinction proves such a condition.
    pub(super) fn is_refuted(&self, cond: &Expr, truth: bool) -> bool {
        drop(self.cache());
        let scope = self.caches.borrow().len() - 1;
        (0..MAX_EXAMPLES).filter_map(|number| self.example(scope, number)).any(|example| {
            let is = |cond: &Expr, truth| example.truth(self, cond) == Some(truth);
            is(cond, !truth)
                && self.disjunctions.iter().all(|cases| cases.iter().any(|case| is(case, true)))
        })
    }

    /// Returns an example of the facts of an open scope; 0 is the outermost one.
    fn example(&self, scope: usize, number: usize) -> Option<Rc<Example>> {
        let (proofs, count) = {
            let caches = self.caches.borrow();
            let inner = caches.get(scope + 1);
            let count = inner.map_or(self.inequalities.len(), |inner| inner.inequalities_around);
            (Rc::clone(&caches[scope].proofs), count)
        };
        if let Some(known) = proofs.borrow().examples.get(&number) {
            return known.clone();
        }
        let around = scope.checked_sub(1).and_then(|around| self.example(around, number));
        let continued = around.and_then(|around| self.continue_example(&around, count));
        let example = continued.or_else(|| {
            let nothing = Example { number, ..Example::default() };
            self.continue_example(&nothing, count)
        });
        let example = example.map(Rc::new);
        proofs.borrow_mut().examples.insert(number, example.clone());
        example
    }

    /// Returns an example with the same values that also satisfies the inequalities up to `count`.
    fn continue_example(&self, from: &Example, count: usize) -> Option<Example> {
        let Example { number, satisfied, .. } = *from;
        let mut example =
            Example { number, satisfied: count, values: from.values.clone(), derived: None };
        // The new variables in order, and for each the inequalities whose last variable it is.
        let mut free: Vec<Atom> = Vec::new();
        let mut seen: FxHashSet<Atom> = example.values.keys().copied().collect();
        let mut checks: Vec<Vec<usize>> = Vec::new();
        for at in satisfied..count {
            self.free_atoms(&self.inequalities[at], &mut seen, &mut free);
            checks.resize_with(free.len(), Vec::new);
            match checks.last_mut() {
                Some(checks) => checks.push(at),
                None if self.satisfies(&example, at) => {}
                None => return None,
            }
        }
        for (place, (atom, checks)) in free.into_iter().zip(checks).enumerate() {
            let range = example.range(self, atom, count);
            let place = example.values.len() + place;
            let found = (0..MAX_VALUES).any(|attempt| {
                let value = self.pick_congruent(&example, atom, range, (place, attempt));
                let Some(value) = value else { return false };
                example.values.insert(atom, value);
                checks.iter().all(|at| self.satisfies(&example, *at))
            });
            if !found {
                return None;
            }
        }
        example.derived = Some(RefCell::default());
        Some(example)
    }

    fn satisfies(&self, example: &Example, at: usize) -> bool {
        example.value(self, &self.inequalities[at]).is_some_and(|value| value >= 0)
    }

    /// Adds the atoms without a definition on which a polynomial depends, each once.
    fn free_atoms(&self, poly: &Poly, seen: &mut FxHashSet<Atom>, free: &mut Vec<Atom>) {
        for &atom in poly.terms.iter().flat_map(|(monomial, _)| monomial) {
            if !seen.insert(atom) {
                continue;
            }
            let kind = self.arena.borrow().kind(atom).clone();
            match &kind {
                AtomKind::Var(_) | AtomKind::Opaque(_) => free.push(atom),
                AtomKind::Div(a, b)
                | AtomKind::Mod(a, b)
                | AtomKind::Min(a, b)
                | AtomKind::Max(a, b) => {
                    self.free_atoms(a, seen, free);
                    self.free_atoms(b, seen, free);
                }
                AtomKind::Narrow(_, a) => self.free_atoms(a, seen, free),
                AtomKind::Choose(..) => {}
            }
        }
    }

    /// Returns a value in a range that the known congruence of the atom allows.
    fn pick_congruent(
        &self,
        example: &Example,
        atom: Atom,
        range: Interval,
        by: (usize, usize),
    ) -> Option<i128> {
        let value = example.pick(range, by)?;
        match self.congruences.get(&atom) {
            Some(&(m, r)) if m > 1 => {
                let value = value.checked_sub(floor_mod(value.checked_sub(r)?, m))?;
                if value >= range.lo { Some(value) } else { value.checked_add(m) }
            }
            _ => Some(value),
        }
    }
}

impl Example {
    /// Returns the bounds of an atom that follow from the values so far and the inequalities up to
    /// `count`.
    fn range(&self, facts: &Facts, atom: Atom, count: usize) -> Interval {
        let bound = |at: usize| {
            let (a, b) = facts.inequalities[at].split(atom)?;
            let (a, b) = (self.value(facts, &a)?, self.value(facts, &b)?);
            // a*x + b >= 0
            match a {
                0 => None,
                1.. => Some(Interval::new(-floor_div(b, a), i128::MAX)),
                _ => Some(Interval::new(i128::MIN, floor_div(b, a.checked_neg()?))),
            }
        };
        let about = facts.mentions.get(&atom).map_or(&[][..], |list| list);
        let bounds = about.iter().filter(|at| **at < count).filter_map(|at| bound(*at));
        bounds.fold(facts.atom_interval(atom), Interval::intersect)
    }

    /// Returns a value in a range; `None` if the range is empty. Place and attempt select the
    /// value.
    fn pick(&self, range: Interval, (place, attempt): (usize, usize)) -> Option<i128> {
        if range.lo > range.hi {
            return None;
        }
        let mixed = mix([self.number, place, attempt]);
        let distance = DISTANCES[(self.number + attempt + mixed % 3) % DISTANCES.len()];
        let width = match range.has_lo() && range.has_hi() {
            true => range.hi.checked_sub(range.lo).filter(|width| *width <= MAX_WIDTH),
            false => None,
        };
        match width {
            Some(width) => Some(match mixed % 4 {
                0 => range.lo,
                1 => range.hi,
                _ => range.lo + (mixed / 4) as i128 % (width + 1),
            }),
            None if range.has_lo() => range.lo.checked_add(distance),
            None if range.has_hi() => range.hi.checked_sub(distance),
            None => Some(if mixed.is_multiple_of(2) { distance } else { -distance }),
        }
    }

    /// Returns the value of a polynomial; `None` if it is unknown or leaves 128 bits.
    fn value(&self, facts: &Facts, poly: &Poly) -> Option<i128> {
        poly.terms.iter().try_fold(poly.constant, |sum, (monomial, coefficient)| {
            let product = monomial.iter().try_fold(*coefficient, |product: i128, atom| {
                product.checked_mul(self.atom_value(facts, *atom)?)
            });
            sum.checked_add(product?)
        })
    }

    /// Returns the value of a condition; `None` if it is unknown.
    fn truth(&self, facts: &Facts, cond: &Expr) -> Option<bool> {
        if let Some(value) = cond.as_int() {
            return Some(value != 0);
        }
        match &cond.kind {
            ExprKind::Unary(UnOp::Not, a) => self.truth(facts, a).map(|value| !value),
            ExprKind::Unary(UnOp::Likely, a) => self.truth(facts, a),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                let decides = *op == BinOp::Or;
                match (self.truth(facts, a), self.truth(facts, b)) {
                    (Some(a), Some(b)) => Some(if decides { a || b } else { a && b }),
                    (a, b) => (a == Some(decides) || b == Some(decides)).then_some(decides),
                }
            }
            ExprKind::Binary(op, a, b)
                if op.is_comparison() && a.ty.is_scalar() && is_exact_integer(a.ty.dtype) =>
            {
                let (a, b) = (facts.poly(a), facts.poly(b));
                let order = self.value(facts, &a)?.cmp(&self.value(facts, &b)?);
                match op {
                    BinOp::Lt => Some(order.is_lt()),
                    BinOp::Le => Some(order.is_le()),
                    BinOp::Gt => Some(order.is_gt()),
                    BinOp::Ge => Some(order.is_ge()),
                    BinOp::Eq => Some(order.is_eq()),
                    BinOp::Ne => Some(order.is_ne()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn atom_value(&self, facts: &Facts, atom: Atom) -> Option<i128> {
        if let Some(value) = self.values.get(&atom) {
            return Some(*value);
        }
        let known = |derived: &RefCell<FxHashMap<Atom, i128>>| derived.borrow().get(&atom).copied();
        if let Some(value) = self.derived.as_ref().and_then(known) {
            return Some(value);
        }
        let kind = facts.arena.borrow().kind(atom).clone();
        let of = |poly: &Poly| self.value(facts, poly);
        let value = match &kind {
            AtomKind::Div(a, b) => match (of(a)?, of(b)?) {
                (_, 0) => 0,
                (a, b) => floor_div(a, b),
            },
            AtomKind::Mod(a, b) => match (of(a)?, of(b)?) {
                (_, 0) => 0,
                (a, b) => floor_mod(a, b),
            },
            AtomKind::Min(a, b) => of(a)?.min(of(b)?),
            AtomKind::Max(a, b) => of(a)?.max(of(b)?),
            AtomKind::Narrow(ty, a) => ty.wrap(of(a)?),
            // No inequality depends on it.
            AtomKind::Var(_) | AtomKind::Opaque(_) if self.derived.is_some() => {
                self.pick(facts.atom_interval(atom), (atom as usize, 0))?
            }
            AtomKind::Var(_) | AtomKind::Opaque(_) | AtomKind::Choose(..) => return None,
        };
        if let Some(derived) = &self.derived {
            derived.borrow_mut().insert(atom, value);
        }
        Some(value)
    }
}

/// Returns a number that looks random, the same for the same arguments.
fn mix(parts: [usize; 3]) -> usize {
    let mixed = parts.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |mixed, part| {
        (mixed ^ *part as u64).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
    });
    (mixed >> 33) as usize
}

#[cfg(test)]
mod tests {
    use super::super::prove::is_proved_without_examples;
    use super::super::tests::Generator;
    use super::*;
    use crate::ir::Var;

    #[test]
    fn a_goal_with_a_counterexample_has_no_proof() {
        let (mut refuted, mut proved) = (0, 0);
        for seed in 0..600 {
            let mut generator = Generator::new(seed);
            let (mut facts, _) = generator.facts();
            // More facts may use up the budget of a proof, but what is proved without them holds.
            let mut check = |facts: &Facts, goal: &Poly, known: bool| {
                let found = is_proved_without_examples(facts, goal);
                assert!(!(found && facts.has_counterexample(goal)), "seed {seed}: {goal:?}");
                let holds = facts.at_least(goal, 0);
                assert!(holds == found || holds && known, "seed {seed}: {goal:?}");
                refuted += u32::from(!found && facts.has_counterexample(goal));
                proved += u32::from(found);
                found
            };
            for _ in 0..4 {
                let (outer, inner) = (generator.term(3), generator.term(3));
                let (outer, inner) = (facts.poly(&outer), facts.poly(&inner));
                let known = check(&facts, &outer, false);
                // The examples of the scope continue those of the facts around it.
                facts.push();
                facts.assume(&generator.condition(2));
                check(&facts, &outer, known);
                check(&facts, &inner, false);
                facts.pop();
                check(&facts, &inner, false);
            }
        }
        assert!(refuted > 1500 && proved > 500, "{refuted} refuted, {proved} proved");
    }

    #[test]
    fn a_condition_that_is_false_in_an_alternative_has_no_proof_by_cases() {
        let [x, y, z] = ["x", "y", "z"].map(|name| Expr::var(&Var::index(name)));
        let mut facts = Facts::new();
        for var in [&x, &y, &z] {
            facts.assume(&Expr::le(Expr::index(0), var.clone()));
        }
        facts.assume(&Expr::or(Expr::le(x.clone(), y.clone()), Expr::le(z.clone(), y.clone())));
        // Neither `x <= y` nor `z <= y` holds in all of both cases.
        assert!(facts.is_refuted(&Expr::le(x.clone(), y.clone()), true));
        assert!(facts.is_refuted(&Expr::lt(y.clone(), z.clone()), true));
        // This one does.
        let least = Expr::binary(BinOp::Min, x, z);
        let holds = Expr::le(least, y);
        assert!(!facts.is_refuted(&holds, true) && facts.prove(&holds));
    }

    #[test]
    fn examples_satisfy_nested_blocks_of_run_time_loops() {
        let mut facts = Facts::new();
        let [n, m, block, i] = ["n", "m", "block", "i"].map(Var::index);
        let (zero, size) = (Expr::index(0), Expr::index(16));
        for size in [&n, &m] {
            facts.assume(&Expr::le(Expr::index(1), Expr::var(size)));
        }
        let div = |a: Expr, b: &Expr| Expr::binary(crate::ir::BinOp::FloorDiv, a, b.clone());
        facts.push();
        let blocks = div(Expr::add(Expr::var(&n), Expr::index(15)), &size);
        facts.bind(&block, &zero, &Expr::mul(blocks.clone(), Expr::var(&m)));
        facts.push();
        facts.bind(&i, &div(Expr::var(&n), &size), &blocks);
        // True in many cases, and false in others.
        for goal in [
            Expr::sub(blocks.clone(), Expr::var(&block)),
            Expr::sub(Expr::var(&block), blocks),
            Expr::sub(Expr::var(&n), Expr::mul(Expr::var(&block), size.clone())),
            Expr::sub(Expr::var(&n), Expr::mul(Expr::var(&i), size)),
        ] {
            assert!(facts.has_counterexample(&facts.poly(&goal)), "{goal:?}");
        }
    }
}

//! Proof search: conditions by cases, inequalities by elimination of atoms. The documentation of
//! [`super`] explains the method.

use super::atoms::{AtomKind, is_exact_integer};
use super::budget;
use super::cache::{Cache, SPLITS};
use super::poly::{Atom, Poly};
use super::{Facts, Undo};
use crate::ir::visit::any_expr;
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::rc::Rc;

/// The budget of a proof. A combination of two inequalities costs 1, a new goal [`GOAL`].
const EFFORT: i32 = 900;
/// The cost of a new goal.
const GOAL: i32 = 4;
/// The effort of a proof before examples are tried, about as much as these cost.
const EFFORT_BEFORE_EXAMPLES: i32 = 40;
/// The largest number of nested eliminations.
const MAX_DEPTH: u32 = 9;

/// Whether `cond` is proved to have the value `truth`.
pub(super) fn prove(facts: &Facts, cond: &Expr, truth: bool) -> bool {
    prove_cases(facts, cond, truth, SPLITS)
}

/// Like [`prove`], without case distinctions. For learning: case distinctions learn, too.
pub(super) fn prove_directly(facts: &Facts, cond: &Expr, truth: bool) -> bool {
    prove_cases(facts, cond, truth, 0)
}

fn prove_cases(facts: &Facts, cond: &Expr, truth: bool, splits: u32) -> bool {
    if let Some(value) = cond.as_int() {
        return (value != 0) == truth;
    }
    if !cond.ty.is_scalar() {
        return false;
    }
    match &cond.kind {
        ExprKind::Unary(UnOp::Not, a) => prove_cases(facts, a, !truth, splits),
        ExprKind::Unary(UnOp::Likely, a) => prove_cases(facts, a, truth, splits),
        ExprKind::Binary(BinOp::And | BinOp::Or, ..) => prove_logic(facts, cond, truth, splits),
        ExprKind::Binary(op, a, b) if op.is_comparison() && is_exact_integer(a.ty.dtype) => {
            prove_comparison(facts, if truth { *op } else { negated(*op) }, (a, b), splits)
                || by_cases(facts, cond, truth, splits)
        }
        ExprKind::Binary(op, a, b) if op.is_comparison() && a.ty.dtype == DType::Uint64 => {
            prove_by_intervals(facts, if truth { *op } else { negated(*op) }, a, b)
        }
        ExprKind::Select(c, t, f) | ExprKind::IfThenElse(c, t, f) => {
            let branch = |assumed: bool, value: &Expr| {
                let mut inner = facts.clone();
                inner.assume_truth(c, assumed);
                prove_cases(&inner, value, truth, splits - 1)
            };
            splits > 0 && branch(true, t) && branch(false, f)
        }
        _ => {
            let key = facts.key(cond);
            facts.truths.get(&key) == Some(&truth)
        }
    }
}

/// Proves `and` and `or`. Flattens them, so that long chains take linear time.
fn prove_logic(facts: &Facts, cond: &Expr, truth: bool, splits: u32) -> bool {
    let ExprKind::Binary(op, ..) = cond.kind else { crate::bug!("a connective is expected") };
    let parts = flatten_logic(op, cond);
    let all = (op == BinOp::And) == truth;
    if all {
        return parts.iter().all(|part| prove_cases(facts, part, truth, splits));
    }
    // One part suffices. The proof of a part may assume that the parts before it are false.
    if parts.iter().any(|part| prove_cases(facts, part, truth, splits)) {
        return true;
    }
    if splits == 0 || parts.len() > 8 || facts.is_refuted(cond, truth) {
        return false;
    }
    let mut inner = facts.clone();
    parts.iter().any(|part| {
        let proved = prove_cases(&inner, part, truth, splits - 1);
        inner.assume_truth(part, !truth);
        proved
    })
}

/// Returns the operands of nested `op`s, in order.
pub(crate) fn flatten_logic(op: BinOp, cond: &Expr) -> Vec<Expr> {
    let mut parts = Vec::new();
    let mut stack = vec![cond];
    while let Some(next) = stack.pop() {
        match &next.kind {
            ExprKind::Binary(inner, a, b) if *inner == op => stack.extend([b, a]),
            _ => parts.push(next.clone()),
        }
    }
    parts
}

/// Proves `cond` under each alternative of a known disjunction.
fn by_cases(facts: &Facts, cond: &Expr, truth: bool, splits: u32) -> bool {
    if splits == 0 || budget::is_spent() || facts.disjunctions.is_empty() {
        return false;
    }
    let mut vars = FxHashSet::default();
    any_expr(cond, &mut |e| {
        vars.extend(e.as_var().cloned());
        false
    });
    let is_related = |at: &usize| {
        let is_shared = &mut |e: &Expr| e.as_var().is_some_and(|var| vars.contains(var));
        facts.disjunctions[*at].iter().any(|case| any_expr(case, is_shared))
    };
    let related: Vec<usize> =
        (0..facts.disjunctions.len()).rev().filter(is_related).take(3).collect();
    if related.is_empty() || facts.is_refuted(cond, truth) {
        return false;
    }
    related.into_iter().any(|at| {
        facts.disjunctions[at].iter().all(|case| {
            let mut inner = facts.clone();
            inner.disjunctions.remove(at);
            // The trail only counts disjunctions, so the scopes of this copy cannot be closed any
            // more. The copy is dropped at the end of this block.
            inner.trail.retain(|undo| !matches!(undo, Undo::Disjunction));
            inner.forget_proofs();
            inner.assume(case);
            prove_cases(&inner, cond, truth, splits - 1)
        })
    })
}

fn prove_comparison(facts: &Facts, op: BinOp, (a, b): (&Expr, &Expr), splits: u32) -> bool {
    let (a, b) = (facts.poly(a), facts.poly(b));
    let (Some(up), Some(down)) = (b.minus(&a), a.minus(&b)) else { return false };
    let at_least = |poly: &Poly, least| facts.at_least_in_cases(poly, least, splits);
    match op {
        BinOp::Lt => at_least(&up, 1),
        BinOp::Le => at_least(&up, 0),
        BinOp::Gt => at_least(&down, 1),
        BinOp::Ge => at_least(&down, 0),
        BinOp::Eq => at_least(&up, 0) && at_least(&down, 0),
        BinOp::Ne => facts.differs_from_zero(&up, splits),
        _ => crate::bug!("{op:?} is no comparison"),
    }
}

fn prove_by_intervals(facts: &Facts, op: BinOp, a: &Expr, b: &Expr) -> bool {
    let (a, b) = (facts.interval(a), facts.interval(b));
    match op {
        BinOp::Lt => a.hi < b.lo,
        BinOp::Le => a.hi <= b.lo,
        BinOp::Gt => a.lo > b.hi,
        BinOp::Ge => a.lo >= b.hi,
        BinOp::Eq => a.lo == a.hi && a == b,
        BinOp::Ne => a.hi < b.lo || b.hi < a.lo,
        _ => crate::bug!("{op:?} is no comparison"),
    }
}

impl Facts {
    /// Whether `poly >= least` is proved.
    pub(crate) fn at_least(&self, poly: &Poly, least: i128) -> bool {
        self.at_least_in_cases(poly, least, SPLITS)
    }

    /// Like [`Facts::at_least`], without case distinctions. For learning.
    pub(super) fn at_least_directly(&self, poly: &Poly, least: i128) -> bool {
        self.at_least_in_cases(poly, least, 0)
    }

    fn at_least_in_cases(&self, poly: &Poly, least: i128, splits: u32) -> bool {
        let Some(goal) = poly.add_constant(-least) else { return false };
        let range = self.poly_interval(&goal);
        if range.lo >= 0 || range.hi < 0 || goal.terms.is_empty() {
            return range.lo >= 0;
        }
        let known = |cache: &Cache| {
            let proofs = cache.proofs.borrow();
            proofs.results.get(&goal).and_then(|results| results[splits as usize])
        };
        let caches = self.caches.borrow();
        if let Some(known) = caches.last().and_then(known) {
            return known;
        }
        // What is proved in an outer scope holds in this one.
        if caches.iter().rev().skip(1).any(|outer| known(outer) == Some(true)) {
            return true;
        }
        drop(caches);
        let failed = FxHashMap::default();
        let (effort, doubted) = match budget::is_spent() {
            true => (EFFORT_BEFORE_EXAMPLES, None),
            false => (EFFORT, Some((self, &goal))),
        };
        let mut search = ProofSearch { effort, failed, doubted };
        let proved = !self.has_known_counterexample(&goal)
            && search.non_negative(self, &goal, MAX_DEPTH, splits);
        let cache = self.cache();
        let mut proofs = cache.proofs.borrow_mut();
        proofs.results.entry(goal).or_default()[splits as usize] = Some(proved);
        proved
    }

    /// Whether `poly != 0` is proved.
    fn differs_from_zero(&self, poly: &Poly, splits: u32) -> bool {
        if let Some(value) = poly.as_constant() {
            return value != 0;
        }
        let (m, r) = self.congruence(poly);
        if m != 1 && r != 0 {
            return true;
        }
        let negative = poly.neg();
        self.nonzero.iter().any(|known| **known == *poly || Some(&**known) == negative.as_ref())
            || self.at_least_in_cases(poly, 1, splits)
            || negative.is_some_and(|negative| self.at_least_in_cases(&negative, 1, splits))
    }
}

/// Whether a search that tries no examples proves `goal >= 0`.
#[cfg(test)]
pub(super) fn is_proved_without_examples(facts: &Facts, goal: &Poly) -> bool {
    let mut search = ProofSearch { effort: EFFORT, failed: FxHashMap::default(), doubted: None };
    search.non_negative(facts, goal, MAX_DEPTH, SPLITS)
}

struct ProofSearch<'a> {
    effort: i32,
    /// The goal, until examples were tried.
    doubted: Option<(&'a Facts, &'a Poly)>,
    /// Goals that were not proved, with the depth that was allowed.
    failed: FxHashMap<Poly, u32>,
}

impl ProofSearch<'_> {
    fn non_negative(&mut self, facts: &Facts, goal: &Poly, depth: u32, splits: u32) -> bool {
        let range = facts.poly_interval(goal);
        if range.lo >= 0 {
            return true;
        }
        if range.hi < 0 || depth == 0 || goal.terms.is_empty() || goal.terms.len() > 64 {
            return false;
        }
        if self.failed.get(goal).is_some_and(|tried| *tried >= depth) {
            return false;
        }
        self.effort -= GOAL;
        budget::spend(goal.terms.len() as i64);
        if self.effort < 0 {
            return false;
        }
        if is_known(facts, goal) {
            return true;
        }
        // A goal that is false for some values has no proof: end the search.
        if self.effort < EFFORT - EFFORT_BEFORE_EXAMPLES
            && let Some((facts, goal)) = self.doubted.take()
            && facts.has_counterexample(goal)
        {
            self.effort = -1;
            return false;
        }
        let found = match self.split(facts, goal, depth, splits) {
            Some(found) => found,
            None => self.eliminate(facts, goal, depth, splits),
        };
        if !found {
            self.failed.insert(goal.clone(), depth);
        }
        found
    }

    /// Proves both cases of a minimum, maximum or choice; `None` if the goal has none.
    fn split(&mut self, facts: &Facts, goal: &Poly, depth: u32, splits: u32) -> Option<bool> {
        let find = |atom: &Atom| {
            let arena = facts.arena.borrow();
            let kind = arena.kind(*atom);
            let case = matches!(
                kind,
                AtomKind::Min(..) | AtomKind::Max(..) | AtomKind::Choose(..) | AtomKind::Narrow(..)
            );
            case.then(|| (*atom, kind.clone()))
        };
        let candidates: Vec<_> = goal.atoms().iter().rev().filter_map(find).collect();
        for (atom, kind) in candidates {
            if let AtomKind::Narrow(ty, value) = &kind {
                let (lo, hi) = ty.int_range();
                let range = facts.poly_interval(value);
                if range.lo >= lo && range.hi <= hi {
                    let goal = goal.substitute(atom, value)?;
                    return Some(self.non_negative(facts, &goal, depth, splits));
                }
                continue;
            }
            if splits == 0 {
                continue;
            }
            let mut cases = Vec::new();
            match &kind {
                AtomKind::Min(a, b) => {
                    cases.push((a, b.minus(a), None));
                    cases.push((b, a.minus(b), None));
                }
                AtomKind::Max(a, b) => {
                    cases.push((a, a.minus(b), None));
                    cases.push((b, b.minus(a), None));
                }
                AtomKind::Choose(c, t, f) => {
                    let c = facts.arena.borrow().expr(*c);
                    cases.push((t, None, Some((c.clone(), true))));
                    cases.push((f, None, Some((c, false))));
                }
                _ => continue,
            }
            return Some(cases.into_iter().all(|(value, known, cond)| {
                let Some(goal) = goal.substitute(atom, value) else { return false };
                let mut inner = facts.clone();
                inner.add_inequality(known);
                if let Some((cond, truth)) = cond {
                    inner.assume_truth(&cond, truth);
                }
                // A goal that failed without the case may hold in it.
                let outer = std::mem::take(&mut self.failed);
                let found = self.non_negative(&inner, &goal, depth - 1, splits - 1);
                self.failed = outer;
                found
            }));
        }
        None
    }

    fn eliminate(&mut self, facts: &Facts, goal: &Poly, depth: u32, splits: u32) -> bool {
        let mut atoms = goal.atoms();
        atoms.sort_by_key(|atom| std::cmp::Reverse(rank(facts, *atom)));
        for &atom in atoms.iter().take(6) {
            let Some((a, b)) = goal.split(atom) else { continue };
            let Some(up) = self.sign(facts, &a, depth) else { continue };
            for known in self.known_about(facts, goal, atom) {
                self.effort -= 1;
                let Some(next) = self.combine(facts, (&a, &b), up, &known, atom) else { continue };
                if self.non_negative(facts, &next, depth - 1, splits) {
                    return true;
                }
                if self.effort < 0 {
                    return false;
                }
            }
        }
        self.eliminate_products(facts, goal, depth, splits)
    }

    /// Eliminates whole products: a known `d·M + … >= 0` cancels `c·M` of the same sign.
    fn eliminate_products(&mut self, facts: &Facts, goal: &Poly, depth: u32, splits: u32) -> bool {
        for (mono, c) in goal.terms.iter().filter(|term| term.0.len() > 1) {
            let about = facts.mentions.get(&mono[0]).map_or(&[][..], |list| list);
            for &at in about.iter().rev().take(12) {
                let known = facts.inequalities[at].clone();
                let Some((_, d)) = known.terms.iter().find(|term| term.0 == *mono) else {
                    continue;
                };
                if (*c > 0) != (*d > 0) {
                    continue;
                }
                let next = goal
                    .scale(d.abs())
                    .and_then(|p| p.plus_scaled(&known, -c.abs()))
                    .and_then(|p| p.add_constant(d.abs() - 1));
                if next.is_some_and(|next| self.non_negative(facts, &next, depth - 1, splits)) {
                    return true;
                }
            }
        }
        false
    }

    /// Returns `true` if `factor >= 0` is proved, `false` if `factor <= 0` is.
    fn sign(&mut self, facts: &Facts, factor: &Poly, depth: u32) -> Option<bool> {
        let range = facts.poly_interval(factor);
        if range.lo >= 0 {
            return Some(true);
        }
        if range.hi <= 0 {
            return Some(false);
        }
        if depth < 3 {
            return None;
        }
        if self.non_negative(facts, factor, depth - 3, 0) {
            return Some(true);
        }
        let negative = factor.neg()?;
        self.non_negative(facts, &negative, depth - 3, 0).then_some(false)
    }

    /// Returns inequalities that mention `atom`: those that define it, then learnt ones, newest
    /// first.
    fn known_about(&mut self, facts: &Facts, goal: &Poly, atom: Atom) -> Vec<Rc<Poly>> {
        let mut known: Vec<Rc<Poly>> = Vec::new();
        let kind = facts.arena.borrow().kind(atom).clone();
        let x = Poly::atom(atom);
        match &kind {
            AtomKind::Div(a, b) if self.is_positive(facts, b) => {
                // b·x <= a <= b·x + b - 1
                if let Some(product) = b.mul(&x) {
                    known.extend(a.minus(&product).map(Rc::new));
                    let above = product.add(b).and_then(|p| p.add_constant(-1));
                    known.extend(above.and_then(|p| p.minus(a)).map(Rc::new));
                }
            }
            AtomKind::Mod(a, b) if self.is_positive(facts, b) => {
                known.push(Rc::new(x.clone()));
                known.extend(b.add_constant(-1).and_then(|p| p.minus(&x)).map(Rc::new));
                if facts.poly_interval(a).lo >= 0 {
                    known.extend(a.minus(&x).map(Rc::new));
                }
                // x = a - b·(a // b), if the quotient is in the goal, too.
                let quotient = AtomKind::Div(a.clone(), b.clone());
                let quotient = facts.arena.borrow().find(&quotient);
                if let Some(quotient) = quotient.filter(|q| goal.contains(*q))
                    && let Some(value) =
                        b.mul(&Poly::atom(quotient)).and_then(|product| a.minus(&product))
                {
                    let both = value.minus(&x).into_iter().chain(x.minus(&value));
                    known.splice(0..0, both.map(Rc::new));
                }
            }
            _ => {}
        }
        let learnt = facts.mentions.get(&atom).map_or(&[][..], |list| list);
        known.extend(learnt.iter().rev().take(12).map(|&at| Rc::clone(&facts.inequalities[at])));
        known
    }

    fn is_positive(&mut self, facts: &Facts, poly: &Poly) -> bool {
        facts.poly_interval(poly).lo >= 1
    }

    /// Eliminates `atom` from the goal by a known inequality; `None` if the signs differ.
    fn combine(
        &mut self,
        facts: &Facts,
        (a, b): (&Poly, &Poly),
        up: bool,
        known: &Poly,
        atom: Atom,
    ) -> Option<Poly> {
        let alpha = known.factor(atom)?;
        let range = facts.poly_interval(&alpha);
        let magnitude = match up {
            true if range.lo >= 1 => alpha,
            false if range.hi <= -1 => alpha.neg()?,
            _ => return None,
        };
        let r = known.without(atom);
        if let (Some(factor), Some(scale)) = (a.as_constant(), magnitude.as_constant()) {
            let scaled = if scale == 1 { Cow::Borrowed(b) } else { Cow::Owned(b.scale(scale)?) };
            let mut next =
                scaled.plus_scaled(&r, if up { factor.checked_neg()? } else { factor })?;
            next.constant = next.constant.checked_add(scale)?.checked_sub(1)?;
            return Some(next);
        }
        let other = a.mul(&r)?;
        let scaled = magnitude.mul(b)?;
        let next = if up { scaled.minus(&other)? } else { scaled.add(&other)? };
        next.add(&magnitude)?.add_constant(-1)
    }
}

/// Whether a learnt inequality is the goal, up to a constant. It may mention a minimum or maximum;
/// a case distinction would remove these from the goal.
fn is_known(facts: &Facts, goal: &Poly) -> bool {
    let Some(atom) = goal.terms.iter().filter_map(|(mono, _)| mono.last()).max() else {
        return false;
    };
    let learnt = facts.mentions.get(atom).map_or(&[][..], |list| list);
    learnt.iter().rev().take(12).any(|&at| {
        let known = &facts.inequalities[at];
        known.constant <= goal.constant && known.terms == goal.terms
    })
}

/// Returns the rank of an atom for elimination, highest first: composite atoms (newer ones depend
/// on older ones), then loop variables from the innermost out, then the rest.
fn rank(facts: &Facts, atom: Atom) -> u64 {
    match facts.arena.borrow().kind(atom) {
        AtomKind::Var(_) => facts.rank.get(&atom).copied().unwrap_or(0).into(),
        AtomKind::Opaque(_) => 0,
        _ => (1 << 32) + u64::from(atom),
    }
}

/// Returns the comparison that holds for the integers for which `op` does not.
pub(super) fn negated(op: BinOp) -> BinOp {
    match op {
        BinOp::Lt => BinOp::Ge,
        BinOp::Le => BinOp::Gt,
        BinOp::Gt => BinOp::Le,
        BinOp::Ge => BinOp::Lt,
        BinOp::Eq => BinOp::Ne,
        BinOp::Ne => BinOp::Eq,
        _ => crate::bug!("{op:?} is no comparison"),
    }
}

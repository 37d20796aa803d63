//! The prover: facts about integers, and conclusions from them.
//!
//! Almost every decision of the compiler about indices is a question to [`Facts`]: does an access
//! stay inside its tensor, can a guard be dropped, do two threads touch the same element, is an
//! address aligned. The answer "yes" must be right, because nothing is checked again at run time.
//! The answer "no" only means "not proved". This page says what can be proved, how, what cannot,
//! and what the caller must guarantee. `tests::the_examples_of_the_documentation_hold` runs the
//! examples.
//!
//! # Questions
//!
//! | function | answer |
//! |---|---|
//! | `Facts::prove` | whether a condition holds for all values that satisfy the facts |
//! | `Facts::disprove` | whether a condition is false for all of them |
//! | `Facts::const_bounds` | an interval of constants that contains all values |
//! | `Facts::bounds` | the exact least and greatest value over some loops, symbolic |
//! | `divisor` | a number that divides all values; needs no facts |
//!
//! Facts come from loops ([`Facts::bind`]), conditions ([`Facts::assume`]) and `let`s
//! ([`Facts::define`]). [`Facts::push`] and [`Facts::pop`] bracket a scope.
//!
//! # Integers
//!
//! `index` expressions are mathematical integers: their arithmetic does not overflow in a valid
//! execution. Machine integers wrap, so `x + 1` of type `int32` is an opaque value; its interval is
//! that of the sum if the sum cannot wrap, else that of the type. `uint64` has intervals only.
//! There is no reasoning about floats: a condition on floats holds only if it was assumed in the
//! same form.
//!
//! # The normal form
//!
//! [`poly`] and [`atoms`] turn an expression into a polynomial with integer coefficients over
//! *atoms*: variables, and all terms that are not polynomials themselves (`i // m`, `i % m`, `min`,
//! `max`, choices, narrowing casts, loads). The operands of an atom are polynomials again. Equal
//! polynomials are equal values, so commuted and expanded forms need no proof: `(i + 1)*n - i*n`
//! and `n` are the same. Division by a constant is normalized: multiples come out, common factors
//! cancel, nested divisions join. `(8*i + j) // 8` is `i + j // 8`, and `i // 4 * 4 + i % 4` is
//! `i`. [`linear`] flattens the sums first, in time linear in their nodes.
//!
//! # What is stored
//!
//! - *Inequalities* `p >= 0`, divided by the common factor of their coefficients: `2*i - 1 >= 0`
//!   becomes `i - 1 >= 0`, since `i` is an integer.
//! - *Intervals* of atoms, propagated from each new inequality ([`assume`]). After `i*n < 64`
//!   with `i >= 2` and `n >= 1`, `n <= 31`.
//! - *Congruences* of atoms: after `n % 4 == 0`, `2*n + 3` is `3` modulo 8.
//! - *Disjunctions*, *values that are not 0*, and *other conditions* by their structure.
//!
//! # How a goal is proved
//!
//! A condition is split at its connectives. A comparison becomes the goal `g >= 0` (or two of
//! them). [`prove`] then tries, in this order:
//!
//! 1. **Intervals.** The sum of the intervals of the terms ([`ranges`]). For `0 <= i < 10`,
//!    `3*i + 2 < 30`.
//! 2. **A stored inequality** that differs from the goal by a constant.
//! 3. **Cases.** `min(a, b)` is `a` where `a <= b`, and `b` where `b <= a`; choices likewise.
//! 4. **Elimination.** The goal is `a*x + b >= 0` for an atom `x`, and a known inequality is
//!    `c*x + r >= 0` with `a` and `c` of the same sign. Then `|c|*b - sgn(c)*a*r + |c| - 1 >= 0`
//!    suffices, without `x` (the last two summands round, since values are integers). `a` may be
//!    any polynomial whose sign can be proved. Divisions and moduli bring the inequalities that
//!    define them: `q = x // m` gives `m*q <= x <= m*q + m - 1` for `m >= 1`.
//! 5. **The alternatives** of a stored disjunction with a variable of the goal, each as a further
//!    fact.
//!
//! A search for a proof that does not exist spends its whole budget. A search that takes longer
//! than usual therefore tries [`examples`], values that satisfy all facts: a goal that is false for
//! one of them has no proof. Likewise, no alternatives are tried for a condition that is false for
//! one of them. Answers are kept until a fact is added ([`cache`]), also for copies of the facts;
//! what is proved in an outer scope holds in inner ones.
//!
//! Atoms are eliminated from the most composite to variables, and loop variables from the innermost
//! out: a bound of a loop mentions outer variables only, so this order ends.
//!
//! Example: `i*m + j < n*m` for `0 <= i < n` and `0 <= j < m`.
//!
//! ```text
//! n*m - i*m - j - 1 >= 0   the goal
//! n*m - i*m - m >= 0       j, with the factor -1, eliminated by m - 1 - j >= 0
//! 0 >= 0                   i, with the factor -m, eliminated by n - 1 - i >= 0; -m is negative
//!                          because the loop over j has m >= 1
//! ```
//!
//! Symbolic extremes ([`extremes`]) replace each variable by the end of its range at which a
//! monotone expression is extreme, innermost first: `i*n - j` over `i < 8` and `j < n` is at most
//! `7*n`.
//!
//! # What it cannot prove
//!
//! - Products of atoms whose signs and intervals are unknown: `x*y >= 0` from "both positive or
//!   both negative" holds only by cases that the facts name.
//! - Divisibility by run-time integers: `(k*n) % n == 0`.
//! - Bit operations beyond the interval of their result.
//! - Anything that needs induction, a witness ("there is an `i`"), or values in memory.
//! - Goals beyond the limits: each goal has a budget ([`prove`]), 9 nested eliminations and 4
//!   nested cases; polynomials have at most 64 terms and coefficients of 128 bits. A goal beyond a
//!   limit is "not proved", so limits cost precision but never soundness. The budget counts steps,
//!   not time: the same program gives the same answers on every machine.
//!
//! # What is trusted
//!
//! - The facts. [`Facts::bind`] also states that the loop has an iteration, so its facts hold
//!   inside the body only. If facts contradict each other, everything holds: the code is dead.
//! - No overflow of `index`: `te::check_bounds` proves it or emits a check on entry.
//! - Loads are atoms by structure: two loads of one element count as the same value. A caller that
//!   learns from loads must forget the facts before a store that may change them.
//! - A variable has one value as long as facts about it are in force.
//! - The rules above. Random conditions, facts and assignments test them: no accepted condition may
//!   be false ([`tests`], `tests/passes.rs`, and the fuzzers through every pass).

mod assume;
mod atoms;
pub mod budget;
mod cache;
mod cases;
mod divisor;
mod examples;
mod extremes;
mod interval;
mod linear;
mod poly;
mod prove;
mod ranges;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use atoms::{Key, build_sum};
pub(crate) use divisor::divisor;
pub(crate) use interval::Interval;
pub(crate) use linear::{Linear, collect, collect_wrapping};
pub(crate) use poly::{Monomial, Poly, Polynomial, floor_div, floor_mod, gcd};
pub(crate) use prove::flatten_logic;

use super::{DType, Expr, ExprKind, Var};
use atoms::Arena;
use poly::Atom;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// The facts in force at a point of the program.
///
/// For an inner scope, clone them or use [`Facts::push`] and [`Facts::pop`], which is cheaper.
/// Clones share the tables of expressions.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    arena: Rc<RefCell<Arena>>,
    /// Polynomials that are at least 0.
    inequalities: Vec<Rc<Poly>>,
    /// The inequalities that mention an atom, by position.
    mentions: FxHashMap<Atom, Vec<usize>>,
    /// Polynomials that are not 0.
    nonzero: Vec<Rc<Poly>>,
    /// Other conditions, by key.
    truths: FxHashMap<Key, bool>,
    /// Pairs of conditions of which at least one holds.
    disjunctions: Vec<[Expr; 2]>,
    /// Constant bounds that follow from the inequalities.
    ranges: FxHashMap<Atom, Interval>,
    /// `(m, r)`: the atom is congruent to `r` modulo `m`.
    congruences: FxHashMap<Atom, (i128, i128)>,
    /// The depths of loop variables, 1 for the outermost.
    rank: FxHashMap<Atom, u32>,
    /// The results of each open scope. Copies with the same facts share them.
    caches: RefCell<Vec<cache::Cache>>,
    trail: Vec<Undo>,
    marks: Vec<usize>,
}

/// A change that [`Facts::pop`] reverts.
#[derive(Clone, Debug)]
enum Undo {
    Inequality,
    Nonzero,
    Truth(Key),
    Disjunction,
    Range(Atom, Option<Interval>),
    Congruence(Atom, Option<(i128, i128)>),
    Rank(Atom, Option<u32>),
}

impl Facts {
    /// Creates an empty set of facts.
    pub fn new() -> Facts {
        Facts::default()
    }

    /// Learns `min <= var < min + extent` and `extent >= 1`: the facts of a loop body.
    pub fn bind(&mut self, var: &Var, min: &Expr, extent: &Expr) {
        let atom = self.arena.borrow_mut().var(var);
        let rank = self.rank.len() as u32 + 1;
        let old = self.rank.insert(atom, rank);
        self.note(Undo::Rank(atom, old));
        let (min, extent) = (self.poly(min), self.poly(extent));
        let var = Poly::atom(atom);
        self.add_inequality(extent.add_constant(-1));
        self.add_inequality(var.minus(&min));
        let last = min.add(&extent).and_then(|end| end.add_constant(-1));
        self.add_inequality(last.and_then(|last| last.minus(&var)));
    }

    /// Whether `var` is a loop variable that [`Facts::bind`] bound.
    pub fn is_loop(&self, var: &Var) -> bool {
        let atom = self.arena.borrow_mut().var(var);
        self.rank.contains_key(&atom)
    }

    /// Learns that `cond` holds.
    pub fn assume(&mut self, cond: &Expr) {
        self.assume_truth(cond, true);
    }

    /// Learns `var == value`. Learns nothing if the type is not an integer that fits `index`.
    pub fn define(&mut self, var: &Var, value: &Expr) {
        if value.ty.is_scalar() && atoms::is_exact_integer(value.ty.dtype) {
            let (var, value) = (self.poly(&Expr::var(var)), self.poly(value));
            self.add_inequality(var.minus(&value));
            self.add_inequality(value.minus(&var));
        }
    }

    /// Opens a scope. The matching [`Facts::pop`] forgets the facts learnt since.
    pub fn push(&mut self) {
        self.marks.push(self.trail.len());
        self.caches.get_mut().push(cache::Cache::new(self.inequalities.len()));
    }

    /// Closes the innermost scope.
    pub fn pop(&mut self) {
        let mark = self.marks.pop().expect("a scope is open");
        while self.trail.len() > mark {
            self.undo();
        }
        self.caches.get_mut().pop();
    }

    /// Returns a scalar integer as an `index` of the same value; `None` for a `uint64`, and for an
    /// `index` that a cast might change.
    pub fn as_index(&self, value: &Expr) -> Option<Expr> {
        let dtype = value.ty.dtype;
        if !value.ty.is_scalar() || !dtype.is_int() || dtype == DType::Uint64 {
            return None;
        }
        match &value.kind {
            ExprKind::Cast(inner) if inner.ty == DType::Index.into() => {
                let (least, greatest) = dtype.int_range();
                match self.const_bounds(inner) {
                    _ if dtype == DType::Int64 => Some(inner.clone()),
                    (Some(low), Some(high)) if low >= least && high <= greatest => {
                        Some(inner.clone())
                    }
                    _ => None,
                }
            }
            _ => Some(Expr::cast(DType::Index, value.clone())),
        }
    }

    /// Whether `cond` is proved to hold.
    pub fn prove(&self, cond: &Expr) -> bool {
        prove::prove(self, cond, true)
    }

    /// Whether `cond` is proved to be false.
    pub fn disprove(&self, cond: &Expr) -> bool {
        prove::prove(self, cond, false)
    }

    /// Returns constant bounds of an integer expression, both inclusive; `None` if unbounded.
    pub fn const_bounds(&self, expr: &Expr) -> (Option<i128>, Option<i128>) {
        self.interval(expr).ends()
    }

    /// Returns the least and the greatest value of an `index` expression over the ranges of `over`,
    /// which are not empty, as expressions of the other variables. `None` if they are not exact.
    pub fn bounds(&self, expr: &Expr, over: &[Var]) -> Option<(Expr, Expr)> {
        let low = self.extreme(expr, over, false)?;
        let high = self.extreme(expr, over, true)?;
        Some((low.value, high.value))
    }

    /// Returns the normal form of an integer expression.
    pub(crate) fn poly(&self, expr: &Expr) -> Rc<Poly> {
        self.arena.borrow_mut().poly(expr)
    }

    /// Returns a key that is the same for structurally equal expressions only.
    pub(crate) fn key(&self, expr: &Expr) -> Key {
        self.arena.borrow_mut().key(expr)
    }

    /// Returns the expression of a normal form; `None` if a coefficient does not fit 64 bits.
    pub(crate) fn poly_expr(&self, poly: &Poly) -> Option<Expr> {
        self.arena.borrow().to_expr(poly)
    }

    /// Notes a change for [`Facts::pop`].
    fn note(&mut self, undo: Undo) {
        self.trail.push(undo);
        self.forget_proofs();
    }

    fn undo(&mut self) {
        match self.trail.pop().expect("the trail reaches back to the mark") {
            Undo::Inequality => {
                let poly = self.inequalities.pop().expect("it was added");
                for atom in poly.atoms() {
                    self.mentions.get_mut(&atom).expect("it is mentioned").pop();
                }
            }
            Undo::Nonzero => drop(self.nonzero.pop()),
            Undo::Truth(key) => drop(self.truths.remove(&key)),
            Undo::Disjunction => drop(self.disjunctions.pop()),
            Undo::Range(atom, old) => restore(&mut self.ranges, atom, old),
            Undo::Congruence(atom, old) => restore(&mut self.congruences, atom, old),
            Undo::Rank(atom, old) => restore(&mut self.rank, atom, old),
        }
    }
}

fn restore<V>(map: &mut FxHashMap<Atom, V>, atom: Atom, old: Option<V>) {
    match old {
        Some(value) => map.insert(atom, value),
        None => map.remove(&atom),
    };
}

//! What is known about integers: intervals, linear inequalities, congruences, proofs.
//!
//! `index` expressions are mathematical integers here (their arithmetic never overflows in a valid
//! execution); machine integers are seen through where nothing can wrap. A proof is sound: what
//! [`Facts::prove`] accepts holds for every assignment that satisfies the facts. It is not
//! complete, and its effort is bounded.
//!
//! Parts: [`linear`] is the data type of sums, [`poly`] and [`atoms`] are the normal form,
//! [`interval`] and [`ranges`] constant bounds, [`prove`] the prover, [`extremes`] symbolic minima
//! and maxima.

mod assume;
mod atoms;
mod divisor;
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
pub(crate) use poly::{Poly, Polynomial, floor_div, floor_mod, gcd};
pub(crate) use prove::flatten_logic;

use super::{Expr, Var};
use atoms::Arena;
use poly::Atom;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// Facts in force at a point of the program.
///
/// Either clone it for an inner scope, or bracket the scope with [`Facts::push`] and
/// [`Facts::pop`], which is cheaper. Clones share the tables of expressions.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    arena: Rc<RefCell<Arena>>,
    /// Each is at least 0.
    inequalities: Vec<Rc<Poly>>,
    /// Which of them mention an atom.
    mentions: FxHashMap<Atom, Vec<usize>>,
    /// None is 0.
    nonzero: Vec<Rc<Poly>>,
    /// Conditions of another kind, by key.
    truths: FxHashMap<Key, bool>,
    /// One of each list holds.
    disjunctions: Vec<[Expr; 2]>,
    /// Constant bounds that follow from the inequalities.
    ranges: FxHashMap<Atom, Interval>,
    /// `(m, r)`: the atom is r modulo m.
    congruences: FxHashMap<Atom, (i128, i128)>,
    /// Loop variables: how deep they were bound, outermost 1.
    rank: FxHashMap<Atom, u32>,
    caches: RefCell<Vec<ranges::Cache>>,
    trail: Vec<Undo>,
    marks: Vec<usize>,
}

/// What [`Facts::pop`] takes back.
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
    /// No facts.
    pub fn new() -> Facts {
        Facts::default()
    }

    /// `min <= var < min + extent`; as long as it is in force, `extent >= 1`.
    pub fn bind(&mut self, var: &Var, min: &Expr, extent: &Expr) {
        let atom = self.arena.borrow_mut().var(var);
        let rank = self.rank.len() as u32 + 1;
        let old = self.rank.insert(atom, rank);
        self.trail.push(Undo::Rank(atom, old));
        let (min, extent) = (self.poly(min), self.poly(extent));
        let var = Poly::atom(atom);
        self.add_inequality(extent.add_constant(-1));
        self.add_inequality(var.minus(&min));
        let last = min.add(&extent).and_then(|end| end.add_constant(-1));
        self.add_inequality(last.and_then(|last| last.minus(&var)));
    }

    /// Whether [`Facts::bind`] made the variable known: it is the variable of a loop.
    pub fn is_loop(&self, var: &Var) -> bool {
        let atom = self.arena.borrow_mut().var(var);
        self.rank.contains_key(&atom)
    }

    /// `cond` holds.
    pub fn assume(&mut self, cond: &Expr) {
        self.assume_truth(cond, true);
    }

    /// `var` has the value `value`, of an integer type (otherwise nothing is learnt).
    pub fn define(&mut self, var: &Var, value: &Expr) {
        if value.ty.is_scalar() && atoms::is_exact_integer(value.ty.dtype) {
            let (var, value) = (self.poly(&Expr::var(var)), self.poly(value));
            self.add_inequality(var.minus(&value));
            self.add_inequality(value.minus(&var));
        }
    }

    /// Opens a scope: what is learnt from here on is forgotten by the next [`Facts::pop`].
    pub fn push(&mut self) {
        self.marks.push(self.trail.len());
        self.caches.get_mut().push(ranges::Cache::default());
    }

    /// Closes the innermost scope.
    pub fn pop(&mut self) {
        let mark = self.marks.pop().expect("a scope is open");
        while self.trail.len() > mark {
            self.undo();
        }
        self.caches.get_mut().pop();
    }

    /// True if `cond` certainly holds.
    pub fn prove(&self, cond: &Expr) -> bool {
        prove::prove(self, cond, true)
    }

    /// True if `cond` is certainly false.
    pub fn disprove(&self, cond: &Expr) -> bool {
        prove::prove(self, cond, false)
    }

    /// Constant bounds, both inclusive, of an integer expression; `None` where unbounded.
    pub fn const_bounds(&self, expr: &Expr) -> (Option<i128>, Option<i128>) {
        self.interval(expr).ends()
    }

    /// Smallest and largest value of an `index` expression while the variables of `over` run
    /// through their ranges (none of them empty), as expressions of the other variables; exact
    /// or `None`.
    pub fn bounds(&self, expr: &Expr, over: &[Var]) -> Option<(Expr, Expr)> {
        let low = self.extreme(expr, over, false)?;
        let high = self.extreme(expr, over, true)?;
        Some((low.value, high.value))
    }

    /// The normal form of an integer expression.
    pub(crate) fn poly(&self, expr: &Expr) -> Rc<Poly> {
        self.arena.borrow_mut().poly(expr)
    }

    /// Equal for structurally equal expressions only.
    pub(crate) fn key(&self, expr: &Expr) -> Key {
        self.arena.borrow_mut().key(expr)
    }

    /// The expression of a normal form; `None` if a coefficient leaves 64 bits.
    pub(crate) fn poly_expr(&self, poly: &Poly) -> Option<Expr> {
        self.arena.borrow().to_expr(poly)
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

//! Results that hold under the facts of a scope: intervals, proofs, examples.

use super::Facts;
use super::atoms::Key;
use super::examples::Examples;
use super::interval::Interval;
use super::poly::{Atom, Poly};
use rustc_hash::FxHashMap;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;

/// The largest number of nested case distinctions.
pub(super) const SPLITS: u32 = 4;

/// The results of a scope. A new fact makes new tables, so copies of [`Facts`] share only results
/// that hold under the same facts.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    pub(super) intervals: Rc<RefCell<Intervals>>,
    /// The number of inequalities that were known when the scope was opened.
    pub(super) inequalities_around: usize,
    pub(super) proofs: Rc<RefCell<Proofs>>,
}

#[derive(Debug, Default)]
pub(super) struct Intervals {
    pub(super) atoms: FxHashMap<Atom, Interval>,
    pub(super) exprs: FxHashMap<Key, Interval>,
}

impl Cache {
    /// Returns empty tables for a new scope.
    pub(super) fn new(inequalities_around: usize) -> Cache {
        Cache { inequalities_around, ..Cache::default() }
    }
}

/// The results for goals `g >= 0` under the facts of a scope.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// Whether a goal is proved with 0, 1, … nested case distinctions.
    pub(super) results: FxHashMap<Poly, [Option<bool>; SPLITS as usize + 1]>,
    pub(super) examples: Examples,
}

impl Proofs {
    fn clear(&mut self) {
        self.results.clear();
        self.examples.clear();
    }
}

impl Facts {
    /// Returns the tables of this scope.
    pub(super) fn cache(&self) -> RefMut<'_, Cache> {
        let mut caches = self.caches.borrow_mut();
        if caches.is_empty() {
            caches.push(Cache::default());
        }
        RefMut::map(caches, |caches| caches.last_mut().expect("one was made"))
    }

    /// Forgets the intervals of this scope after a fact was added that may narrow them.
    pub(super) fn forget_intervals(&mut self) {
        if let Some(cache) = self.caches.get_mut().last_mut() {
            renew(&mut cache.intervals, |intervals| {
                intervals.atoms.clear();
                intervals.exprs.clear();
            });
        }
    }

    /// Forgets the proofs of this scope after a fact was added.
    pub(super) fn forget_proofs(&mut self) {
        if let Some(cache) = self.caches.get_mut().last_mut() {
            renew(&mut cache.proofs, Proofs::clear);
        }
    }
}

/// Empties a table; copies of the facts keep theirs.
fn renew<T: Default>(shared: &mut Rc<RefCell<T>>, clear: impl FnOnce(&mut T)) {
    match Rc::get_mut(shared) {
        Some(own) => clear(own.get_mut()),
        None => *shared = Rc::default(),
    }
}

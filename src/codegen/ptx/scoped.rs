//! A table whose entries live as long as their scope.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// The values that are available because dominating code computed them.
pub(super) struct Scoped<K, V> {
    map: FxHashMap<K, V>,
    log: Vec<K>,
    marks: Vec<usize>,
}

impl<K: Clone + Eq + Hash, V: Clone> Scoped<K, V> {
    pub(super) fn new() -> Scoped<K, V> {
        Scoped { map: FxHashMap::default(), log: Vec::new(), marks: Vec::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.map.get(key).cloned()
    }

    /// Adds an entry unless the key has one.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.map.entry(key.clone()) {
            entry.insert(value);
            self.log.push(key);
        }
    }

    pub(super) fn push(&mut self) {
        self.marks.push(self.log.len());
    }

    pub(super) fn pop(&mut self) {
        let mark = self.marks.pop().expect("a scope is open");
        for key in self.log.drain(mark..) {
            self.map.remove(&key);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.marks.is_empty(), "a scope is open");
        self.map.clear();
        self.log.clear();
    }
}

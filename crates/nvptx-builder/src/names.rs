//! Unique names of symbols, labels and registers.

use std::collections::{HashMap, HashSet};

/// The names in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    taken: HashSet<String>,
    /// The highest number for each name; the search for the next one starts there.
    numbers: HashMap<String, u32>,
}

impl Names {
    /// Takes a name; returns whether it was free.
    pub(crate) fn insert(&mut self, name: String) -> bool {
        self.taken.insert(name)
    }

    /// Takes `wanted`, or the first free of `wanted_2`, `wanted_3`, …
    pub(crate) fn unique(&mut self, wanted: String) -> String {
        if self.insert(wanted.clone()) { wanted } else { self.numbered(wanted, "") }
    }

    /// Takes the first free of `wanted_2`, `wanted_3`, …, each followed by `end`.
    pub(crate) fn numbered(&mut self, wanted: String, end: &str) -> String {
        let mut number = self.numbers.get(&wanted).copied().unwrap_or(1);
        let name = loop {
            number += 1;
            let name = format!("{wanted}_{number}{end}");
            if self.taken.insert(name.clone()) {
                break name;
            }
        };
        self.numbers.insert(wanted, number);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_where_they_are_taken() {
        let mut names = Names::default();
        assert!(names.insert("x_3".to_string()));
        let mut unique = || names.unique("x".to_string());
        assert_eq!([unique(), unique(), unique()], ["x", "x_2", "x_4"]);
    }

    /// Without the highest number, the search would be quadratic in the number of names.
    #[test]
    fn many_of_one_name_are_quick() {
        let mut names = Names::default();
        let last = (0..200_000).map(|_| names.unique("label".to_string())).last();
        assert_eq!(last.as_deref(), Some("label_200000"));
    }
}

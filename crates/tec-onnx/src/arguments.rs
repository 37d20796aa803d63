//! Arguments of the network whose values are not tensors of a type of the language.

use crate::dim::Dim;
use crate::graph::T;
use crate::import::{Importer, reason};
use crate::narrow::Narrow;
use crate::ops::Special;

impl Importer<'_> {
    /// An input of numbers with at most 8 bits.
    pub(crate) fn narrow_input(&mut self, name: &str, own: Narrow, extents: Vec<Dim>) -> Option<T> {
        let value = match self.context.narrow_input(name, own, extents) {
            Ok((input, numbers)) => {
                self.set(name, Some(numbers));
                return Some(input);
            }
            Err(refusal) => reason(&refusal),
        };
        self.refuse("input", name, value);
        self.set(name, None);
        None
    }

    /// The tensors of an output of the network, and their names: one for each element of a
    /// sequence.
    pub(crate) fn output(&mut self, name: &str, value: T) -> Vec<(String, T)> {
        match self.context.specials.get(&value).cloned() {
            Some(Special::Sequence(list)) => {
                let element = |(at, own): (usize, &T)| self.output(&format!("{name}_{at}"), *own);
                return list.iter().enumerate().flat_map(element).collect();
            }
            Some(Special::Absent) => {
                self.refuse("output", name, "the value is not there".to_string());
                return Vec::new();
            }
            None => {}
        }
        let Some(own) = self.context.narrow(value) else { return vec![(name.to_string(), value)] };
        match self.context.narrow_output(name, own, value) {
            Ok(codes) => vec![(name.to_string(), codes)],
            Err(refusal) => {
                self.refuse("output", name, reason(&refusal));
                Vec::new()
            }
        }
    }
}

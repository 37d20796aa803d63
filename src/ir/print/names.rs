//! The names under which variables and buffers are printed.

use crate::ir::{Buffer, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// The names in scope at a point of the text. Variables and buffers have separate name spaces.
#[derive(Default)]
pub struct Names {
    /// The stages of the enclosing `produce` statements, outermost first.
    pub stages: Vec<String>,
    vars: FxHashMap<Var, String>,
    taken_vars: TakenNames,
    buffers: FxHashMap<Buffer, String>,
    taken_buffers: TakenNames,
}

impl Names {
    /// Returns the name that `var` is bound to, or [`Var::name`] if it is not bound.
    pub fn var<'a>(&'a self, var: &'a Var) -> &'a str {
        self.vars.get(var).map_or(var.name(), |name| name)
    }

    /// Whether `var` is bound.
    pub fn is_bound(&self, var: &Var) -> bool {
        self.vars.contains_key(var)
    }

    /// Like [`Names::var`], for buffers.
    pub fn buffer<'a>(&'a self, buffer: &'a Buffer) -> &'a str {
        self.buffers.get(buffer).map_or(&buffer.name, |name| name)
    }

    /// Returns a name for `var` that is not in scope.
    pub fn free_name(&self, var: &Var) -> String {
        self.taken_vars.free_name(var.name())
    }

    /// Like [`Names::free_name`], but tries `STAGE.x` before `x_2`.
    pub fn free_loop_name(&self, var: &Var) -> String {
        match self.stages.last() {
            Some(stage) if self.taken_vars.contains(var.name()) => {
                self.taken_vars.free_name(&format!("{stage}.{}", var.name()))
            }
            _ => self.free_name(var),
        }
    }

    /// Binds `var` to `name`.
    pub fn bind(&mut self, var: &Var, name: String) {
        self.taken_vars.take(&name);
        self.vars.insert(var.clone(), name);
    }

    /// Binds `var` to a name that is not in scope.
    pub fn bind_var(&mut self, var: &Var) {
        self.bind(var, self.free_name(var));
    }

    /// Ends the scope of `var`.
    pub fn unbind_var(&mut self, var: &Var) {
        if let Some(name) = self.vars.remove(var) {
            self.taken_vars.release(&name);
        }
    }

    /// Like [`Names::bind_var`], for buffers.
    pub fn bind_buffer(&mut self, buffer: &Buffer) {
        let name = self.taken_buffers.free_name(&buffer.name);
        self.taken_buffers.take(&name);
        self.buffers.insert(buffer.clone(), name);
    }

    /// Like [`Names::unbind_var`], for buffers.
    pub fn unbind_buffer(&mut self, buffer: &Buffer) {
        if let Some(name) = self.buffers.remove(buffer) {
            self.taken_buffers.release(&name);
        }
    }
}

/// The names in use in one name space.
#[derive(Default)]
struct TakenNames {
    taken: FxHashSet<String>,
    /// For a name: the smallest `k >= 2` for which `name_k` is not taken; 2 if absent.
    first_free: FxHashMap<String, usize>,
}

impl TakenNames {
    fn contains(&self, name: &str) -> bool {
        self.taken.contains(name)
    }

    /// Returns `name`, or the first free of `name_2`, `name_3`, ….
    fn free_name(&self, name: &str) -> String {
        if !self.contains(name) {
            return name.to_string();
        }
        format!("{name}_{}", self.first_free(name))
    }

    fn take(&mut self, name: &str) {
        self.taken.insert(name.to_string());
        if let Some((base, number)) = split_number(name)
            && number == self.first_free(base)
        {
            let mut next = number + 1;
            while self.contains(&format!("{base}_{next}")) {
                next += 1;
            }
            self.first_free.insert(base.to_string(), next);
        }
    }

    fn release(&mut self, name: &str) {
        self.taken.remove(name);
        if let Some((base, number)) = split_number(name)
            && number < self.first_free(base)
        {
            self.first_free.insert(base.to_string(), number);
        }
    }

    fn first_free(&self, name: &str) -> usize {
        self.first_free.get(name).copied().unwrap_or(2)
    }
}

/// Splits `name_k`, `k >= 2` without leading zeros, into `name` and `k`.
fn split_number(name: &str) -> Option<(&str, usize)> {
    let (base, digits) = name.rsplit_once('_')?;
    let number = digits.parse().ok().filter(|number| *number >= 2)?;
    (!digits.starts_with(['0', '+'])).then_some((base, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clashing_name_gets_the_smallest_free_number() {
        let mut names = TakenNames::default();
        let mut take = |name: &str| {
            let free = names.free_name(name);
            names.take(&free);
            free
        };
        assert_eq!(
            ["x", "x_3", "x", "x", "x_3"].map(&mut take),
            ["x", "x_3", "x_2", "x_4", "x_3_2"]
        );
        names.release("x_2");
        assert_eq!(names.free_name("x"), "x_2");
        names.release("x");
        assert_eq!(names.free_name("x"), "x");
    }

    /// Quadratic numbering would take minutes.
    #[test]
    fn numbering_takes_linear_time() {
        let mut names = TakenNames::default();
        for _ in 0..200_000 {
            let free = names.free_name("x");
            names.take(&free);
        }
        assert_eq!(names.free_name("x"), "x_200001");
    }
}

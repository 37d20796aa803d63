//! Which name every variable and buffer is printed under.

use crate::ir::{Buffer, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// Names in force at a point of the text. Variables and buffers have name spaces of their own.
#[derive(Default)]
pub struct Names {
    /// The stages whose `produce` is around, outermost first.
    pub stages: Vec<String>,
    vars: FxHashMap<Var, String>,
    taken_vars: FxHashSet<String>,
    buffers: FxHashMap<Buffer, String>,
    taken_buffers: FxHashSet<String>,
}

impl Names {
    /// Where it is bound, its name there; elsewhere the one it was made with.
    pub fn var<'a>(&'a self, var: &'a Var) -> &'a str {
        self.vars.get(var).map_or(var.name(), |name| name)
    }

    /// Whether `var` has a name here.
    pub fn is_bound(&self, var: &Var) -> bool {
        self.vars.contains_key(var)
    }

    /// As [`Names::var`].
    pub fn buffer<'a>(&'a self, buffer: &'a Buffer) -> &'a str {
        self.buffers.get(buffer).map_or(&buffer.name, |name| name)
    }

    /// A name for `var` that nothing around it has.
    pub fn free_name(&self, var: &Var) -> String {
        numbered(var.name(), &self.taken_vars)
    }

    /// As [`Names::free_name`], the stage's name helping.
    pub fn free_loop_name(&self, var: &Var) -> String {
        match self.stages.last() {
            Some(stage) if self.taken_vars.contains(var.name()) => {
                numbered(&format!("{stage}.{}", var.name()), &self.taken_vars)
            }
            _ => self.free_name(var),
        }
    }

    /// From here on `var` is `name`.
    pub fn bind(&mut self, var: &Var, name: String) {
        self.taken_vars.insert(name.clone());
        self.vars.insert(var.clone(), name);
    }

    /// From here on `var` has a name that nothing around it has.
    pub fn bind_var(&mut self, var: &Var) {
        self.bind(var, self.free_name(var));
    }

    /// The end of the variable's scope.
    pub fn unbind_var(&mut self, var: &Var) {
        if let Some(name) = self.vars.remove(var) {
            self.taken_vars.remove(&name);
        }
    }

    /// As [`Names::bind_var`].
    pub fn bind_buffer(&mut self, buffer: &Buffer) {
        let name = numbered(&buffer.name, &self.taken_buffers);
        self.taken_buffers.insert(name.clone());
        self.buffers.insert(buffer.clone(), name);
    }

    /// As [`Names::unbind_var`].
    pub fn unbind_buffer(&mut self, buffer: &Buffer) {
        if let Some(name) = self.buffers.remove(buffer) {
            self.taken_buffers.remove(&name);
        }
    }
}

/// `name`, or the first free of `name_2`, `name_3`, …
fn numbered(name: &str, taken: &FxHashSet<String>) -> String {
    if !taken.contains(name) {
        return name.to_string();
    }
    let mut number = 2;
    loop {
        let candidate = format!("{name}_{number}");
        if !taken.contains(&candidate) {
            return candidate;
        }
        number += 1;
    }
}

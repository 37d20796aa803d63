//! Distinct names for variables and buffers.

use crate::ir::{Buffer, Var};
use std::collections::{HashMap, HashSet};

/// The names in use while printing.
#[derive(Default)]
pub struct Names {
    vars: HashMap<Var, String>,
    buffers: HashMap<Buffer, String>,
    used: HashSet<String>,
    used_buffers: HashSet<String>,
}

impl Names {
    /// Names a variable that is visible to the end.
    pub fn bind(&mut self, var: &Var) {
        self.enter(var, "");
    }

    /// Names a variable of an inner scope; [`Names::leave`] ends it. The first clash takes the
    /// stage's name in front.
    pub fn enter(&mut self, var: &Var, stage: &str) -> Var {
        let mut name = var.name().to_string();
        if self.used.contains(&name) && !stage.is_empty() {
            name = format!("{stage}.{name}");
        }
        let name = distinct(name, &self.used);
        self.used.insert(name.clone());
        self.vars.insert(var.clone(), name);
        var.clone()
    }

    /// Ends the scope of a variable; its name is free again.
    pub fn leave(&mut self, var: Var) {
        if let Some(name) = self.vars.remove(&var) {
            self.used.remove(&name);
        }
    }

    /// Names a buffer, once.
    pub fn bind_buffer(&mut self, buffer: &Buffer) {
        if self.buffers.contains_key(buffer) {
            return;
        }
        let name = distinct(buffer.name.clone(), &self.used_buffers);
        self.used_buffers.insert(name.clone());
        self.buffers.insert(buffer.clone(), name);
    }

    /// A variable's name; its own where it is bound nowhere.
    pub fn of(&self, var: &Var) -> String {
        self.vars.get(var).cloned().unwrap_or_else(|| var.name().to_string())
    }

    /// A buffer's name; its own where it is bound nowhere.
    pub fn of_buffer(&self, buffer: &Buffer) -> String {
        self.buffers.get(buffer).cloned().unwrap_or_else(|| buffer.name.clone())
    }
}

fn distinct(name: String, used: &HashSet<String>) -> String {
    if !used.contains(&name) {
        return name;
    }
    (2..)
        .map(|number| format!("{name}_{number}"))
        .find(|name| !used.contains(name))
        .expect("there is always another number")
}

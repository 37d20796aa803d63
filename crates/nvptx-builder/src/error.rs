//! What is wrong with a module.

use crate::needs::Needs;
use crate::target::{Target, Version};
use std::fmt;

/// Why an instruction, an entry or a module cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The entry it is in; empty if it is in none.
    pub entry: String,
    /// The instruction or directive, as far as it could be written.
    pub instruction: String,
    /// What is wrong with it.
    pub kind: ErrorKind,
}

/// The kinds of [`Error`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The target does not have the instruction.
    Target {
        /// What the instruction needs.
        needs: Needs,
        /// What the module is made for.
        target: Target,
    },
    /// The instruction is of a later version of PTX than [`Module::limit_version`] allows.
    ///
    /// [`Module::limit_version`]: crate::Module::limit_version
    Version {
        /// The lowest version that has it, on the target.
        needs: Version,
        /// The highest that is allowed.
        limit: Version,
    },
    /// Operands, modifiers, names or sizes do not fit: the sentence says which.
    Form(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.entry.is_empty() {
            write!(f, "entry `{}`: ", self.entry)?;
        }
        write!(f, "`{}`", self.instruction)?;
        match &self.kind {
            ErrorKind::Target { needs, target } => {
                write!(f, " needs {}, the target is {target}", needs.targets())
            }
            ErrorKind::Version { needs, limit } => {
                write!(f, " needs PTX {needs}, the limit is {limit}")
            }
            ErrorKind::Form(message) => write!(f, ": {message}"),
        }
    }
}

impl std::error::Error for Error {}

/// Everything that is wrong with a module, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errors(pub Vec<Error>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

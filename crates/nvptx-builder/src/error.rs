//! Errors of a module.

use crate::needs::Needs;
use crate::target::{Target, Version};
use std::fmt;

/// An error of an instruction, an entry or a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The name of the entry; empty outside of entries.
    pub entry: String,
    /// The instruction or directive, as far as it was formed.
    pub instruction: String,
    /// The kind of the error.
    pub kind: ErrorKind,
}

/// The kinds of [`Error`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The target does not have the instruction.
    Target {
        /// The requirements of the instruction.
        needs: Needs,
        /// The target of the module.
        target: Target,
    },
    /// The instruction needs a later version of PTX than [`Module::limit_version`] allows.
    ///
    /// [`Module::limit_version`]: crate::Module::limit_version
    Version {
        /// The lowest version that has it, on the target.
        needs: Version,
        /// The highest allowed version.
        limit: Version,
    },
    /// Operands, modifiers, names or sizes are wrong; the text says which.
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

/// All errors of a module, in order.
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

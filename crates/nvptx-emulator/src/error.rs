//! The errors of this crate: unsupported text, and launches that cannot start.
//!
//! Defects of a *running* program are not errors but findings of a [`Report`](crate::Report).

use std::fmt;

/// Why PTX text was refused or a launch could not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The line of the PTX text, from 1, if the error has one.
    pub line: Option<u32>,
    /// The message, in lower case, without a final period.
    pub message: String,
}

impl Error {
    pub(crate) fn at(line: u32, message: impl Into<String>) -> Self {
        Error { line: Some(line), message: message.into() }
    }

    pub(crate) fn launch(message: impl Into<String>) -> Self {
        Error { line: None, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "PTX line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

pub(crate) type Result<T> = std::result::Result<T, Error>;

//! Why a compilation failed, and the text of it.

use crate::diag::{Diag, Sources, render};
use crate::driver::Failure;
use std::fmt::Write;

/// The largest number of errors shown. Showing one takes a pass over the text of its file.
const MAX_SHOWN: usize = 100;

/// Why a command failed.
#[derive(Debug)]
pub enum Error {
    /// A compilation failed: status 1, or 101 for a bug.
    Compile(Sources, Failure),
    /// Another error: status 1.
    Plain(Box<Diag>),
    /// An error that was printed already: status 1.
    Silent,
    /// An error on the command line: status 2.
    Usage(String),
    /// The reader closed the pipe of stdout: status 0.
    BrokenPipe,
}

impl From<Diag> for Error {
    fn from(diag: Diag) -> Error {
        Error::Plain(Box::new(diag))
    }
}

impl From<Box<Diag>> for Error {
    fn from(diag: Box<Diag>) -> Error {
        Error::Plain(diag)
    }
}

impl Error {
    /// Returns the message, with a final newline; ANSI colours if `color`. Empty if there is
    /// nothing to print.
    pub fn text(&self, color: bool) -> String {
        match self {
            Error::Silent | Error::BrokenPipe => String::new(),
            Error::Plain(diag) => render(diag, &Sources::default(), color),
            Error::Usage(text) => format!("error: {text}\n"),
            Error::Compile(sources, Failure::User(diags)) => {
                let shown = diags.iter().take(MAX_SHOWN);
                let mut text: String = shown.map(|diag| render(diag, sources, color)).collect();
                let _ = match diags.len() {
                    0 | 1 => Ok(()),
                    count if count > MAX_SHOWN => {
                        writeln!(text, "{count} errors, the first {MAX_SHOWN} shown")
                    }
                    count => writeln!(text, "{count} errors"),
                };
                text
            }
            Error::Compile(_, Failure::Bug { pass, message, ir }) => {
                let mut text = format!(
                    "{message}\n\nThis is a bug in tec, in `{pass}`, not in your program.\n\
                     Please report it with the file, the command and this text.\n"
                );
                if !ir.is_empty() {
                    let _ = writeln!(text, "\nloop IR before `{pass}`:\n{ir}");
                }
                text
            }
        }
    }
}

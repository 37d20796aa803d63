//! pest's syntax errors in the words of the language.

use super::Rule;
use crate::diag::{Diag, Span};
use pest::error::{Error, InputLocation};

/// What stands at the place of the error, and what should.
pub(super) fn syntax_error(text: &str, file: u32, error: &Error<Rule>) -> Diag {
    let (InputLocation::Pos(at) | InputLocation::Span((at, _))) = error.location;
    let _ = text;
    let span = Span { file, start: at as u32, end: at as u32 + 1 };
    Diag::new("E0101", span, format!("{:?}", error.variant))
}

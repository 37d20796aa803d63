//! Source positions, diagnostics and their rendering.
//!
//! Three kinds of failure: the user's program is wrong ([`Diag`], exit status 1), a target cannot
//! do what was asked (also a [`Diag`], naming the target and the feature), or `tec` is wrong
//! ([`bug!`](crate::bug), exit status 101).

pub mod codes;
pub mod hints;
mod render;
pub mod scan;

pub use render::render;

use std::fmt;

/// A range of bytes in one source file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Span {
    /// Index into [`Sources`].
    pub file: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `other`, in the same file.
    pub fn to(self, other: Span) -> Span {
        Span { end: other.end.max(self.end), ..self }
    }
}

/// A source text and the name it is shown under.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path as the user wrote it, or `lib/nn.te` for an embedded file.
    pub path: String,
    /// The text.
    pub text: String,
}

/// Every file read for a compilation; [`Span::file`] is an index into it.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// In the order they were read; the first is the file given to `tec`.
    pub files: Vec<SourceFile>,
}

impl Sources {
    /// Line and column of a span's start, counted from 1, columns in characters.
    pub fn line_column(&self, span: Span) -> (usize, usize) {
        let text = &self.files[span.file as usize].text;
        let mut start = (span.start as usize).min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// One error message.
#[derive(Clone, Debug, PartialEq)]
pub struct Diag {
    /// `E0312`; [`codes::explain`] has the long form.
    pub code: &'static str,
    /// The marked source text; none for errors without a place in a file.
    pub span: Option<Span>,
    /// Lower case, no final period, with the names and values of the program.
    pub message: String,
    /// Text beside the caret.
    pub label: Option<String>,
    /// Other places, each with a text.
    pub related: Vec<(Span, String)>,
    /// Further lines, such as values that violate a condition.
    pub notes: Vec<String>,
    /// What to write instead.
    pub help: Option<String>,
    /// The pattern of the row of [`hints::TABLE`] that `help` comes from, if any.
    pub hint: Option<&'static str>,
}

impl Diag {
    /// Returns an error at a place.
    pub fn new(code: &'static str, span: Span, message: impl Into<String>) -> Diag {
        Diag { span: Some(span), ..Diag::global(code, message) }
    }

    /// Returns an error without a place.
    pub fn global(code: &'static str, message: impl Into<String>) -> Diag {
        let (label, related, notes, help) = (None, Vec::new(), Vec::new(), None);
        Diag { code, span: None, message: message.into(), label, related, notes, help, hint: None }
    }

    /// Adds the text beside the caret.
    pub fn label(mut self, text: impl Into<String>) -> Diag {
        self.label = Some(text.into());
        self
    }

    /// Adds another place.
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Diag {
        self.related.push((span, text.into()));
        self
    }

    /// Adds a line.
    pub fn note(mut self, text: impl Into<String>) -> Diag {
        self.notes.push(text.into());
        self
    }

    /// Says what to write instead.
    pub fn help(mut self, text: impl Into<String>) -> Diag {
        self.help = Some(text.into());
        self
    }
}

impl fmt::Display for Diag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Diag {}

/// The result of a phase that stops at the first error.
pub type Result<T> = std::result::Result<T, Box<Diag>>;

/// Panics because of a bug of `tec`. The driver reports it with the pass and its IR.
#[macro_export]
macro_rules! bug {
    ($($arg:tt)*) => { panic!("bug in tec: {}", format_args!($($arg)*)) };
}

/// Returns the name closest to a misspelt one by edit distance, for "did you mean"; none if all
/// differ in more than a third of their letters.
pub fn closest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|candidate| (strsim::levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(name.len()) / 3 + 1)
        .filter(|(distance, candidate)| *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

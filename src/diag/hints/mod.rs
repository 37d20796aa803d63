//! Hints for newcomers who write syntax of TVM, NumPy, Halide, C or Python: what to write instead.
//! [`TABLE`] lists them. A row has the error codes that it applies to, a pattern of the source
//! around the error, and the help, which repeats names that the pattern matched.
//!
//! A pattern is a list of elements, separated by spaces:
//!
//! | element | matches |
//! |---|---|
//! | `@` | nothing; marks the place of the error, which is otherwise the pattern's beginning |
//! | `word`, `a\|b` | this token; one of these tokens |
//! | `$x` | a name or a number; the same text at each `$x` |
//! | `$x:f` | a name or a number that ends in `f`; `x` is the text before `f` |
//! | `#x` | a number |
//! | `'x` | a string, in single or double quotes; `x` is its text |
//! | `%x` | an operand: a name, a number or parentheses, with its indices and arguments |
//! | `*x` | one or more tokens, few if possible, brackets balanced; at the end, all of the line |
//! | `**` | any number of tokens, up to the next statement |
//! | `<t>` | the name of an element type in any language; `t` is its `.te` name |
//! | `\@`, `\**` | the signs `@` and `**` |
//! | `<m>` | a module and a dot before a name, such as `np.` or `tvm.te.`, or nothing |
//!
//! A help repeats a match as `{x}`, or as `{(x)}` in parentheses if `as` needs them.

mod matching;
mod table;

use super::scan::{Token, tokens};
use super::{Diag, Sources};
use matching::Match;
pub use table::TABLE;

/// One row of the table.
#[derive(Debug)]
pub struct Hint {
    /// The part of the file that the error must be in.
    pub place: Place,
    /// The error codes; `?` after a code: only if the error has no help of its own.
    pub codes: &'static str,
    /// The pattern of the source around the error.
    pub pattern: &'static str,
    /// What to write instead.
    pub help: &'static str,
}

/// The part of a file that an error is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Outside of kernels and schedules.
    File,
    /// From the word `kernel` to its last brace.
    Kernel,
    /// From the word `schedule` to its last brace.
    Schedule,
    /// Any part of a file.
    Anywhere,
    /// The value of an option instead of a file.
    Option,
}

/// The largest number of errors that get hints: each costs time.
const MAX_HINTED: usize = 100;

/// Gives each error the hint that matches the source around it.
pub fn give(diags: &mut [Diag], sources: &Sources) {
    let mut files: Vec<Option<Vec<Token>>> = vec![None; sources.files.len()];
    for diag in diags.iter_mut().take(MAX_HINTED) {
        let Some(span) = diag.span.filter(|_| TABLE.iter().any(|hint| hint.is_for(diag))) else {
            continue;
        };
        let Some(file) = sources.files.get(span.file as usize) else { continue };
        let tokens = files[span.file as usize]
            .get_or_insert_with(|| tokens(&file.text, 0).collect::<Vec<_>>());
        let at = tokens.partition_point(|token| token.end() <= span.start as usize);
        let place = place_of(tokens, at);
        attach(diag, &file.text, tokens, at, place);
    }
}

/// Gives an error the hint that matches the value of an option.
pub fn give_option(diag: &mut Diag, value: &str) {
    let tokens: Vec<Token> = tokens(value, 0).collect();
    attach(diag, value, &tokens, 0, Place::Option);
}

impl Hint {
    fn is_for(&self, diag: &Diag) -> bool {
        self.codes.split(' ').any(|code| match code.strip_suffix('?') {
            Some(code) => code == diag.code && diag.help.is_none(),
            None => code == diag.code,
        })
    }
}

/// Uses the first row that matches.
fn attach(diag: &mut Diag, text: &str, tokens: &[Token], at: usize, place: Place) {
    for hint in TABLE {
        let is_there = match hint.place {
            Place::Anywhere => place != Place::Option,
            other => other == place,
        };
        if !is_there || !hint.is_for(diag) {
            continue;
        }
        if let Some(found) = Match::find(hint.pattern, text, tokens, at) {
            diag.help = Some(found.fill(hint.help));
            diag.hint = Some(hint.pattern);
            return;
        }
    }
}

/// Finds the part of the file that a token is in by counting braces.
fn place_of(tokens: &[Token], at: usize) -> Place {
    let before = &tokens[..at];
    let Some(start) = before.iter().rposition(|t| matches!(t.text, "kernel" | "schedule")) else {
        return Place::File;
    };
    let (mut depth, mut was_open) = (0usize, false);
    for token in &before[start..] {
        match token.text {
            "{" => (depth, was_open) = (depth + 1, true),
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    match before[start].text {
        _ if was_open && depth == 0 => Place::File,
        "kernel" => Place::Kernel,
        _ => Place::Schedule,
    }
}

#[cfg(test)]
mod tests;

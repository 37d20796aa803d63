//! Hints for newcomers: what is written in TVM, NumPy, Halide, C or Python, and what to write
//! instead. [`TABLE`] is the only list of them. A row says for which errors it is, what stands in
//! the source around the place of the error, and the help that is shown then, in the user's own
//! names.
//!
//! A pattern is a row of elements with spaces between them:
//!
//! | element | matches |
//! |---|---|
//! | `@` | nothing: here is the place of the error; without one, it is at the pattern's beginning |
//! | `word`, `a\|b` | this token; one of these |
//! | `$x` | a name or a number; the same text wherever `$x` stands again |
//! | `$x:f` | a name or a number that ends in `f`; `x` is what stands before that |
//! | `#x` | a number |
//! | `'x` | a string, in whatever quotes; `x` is its text |
//! | `%x` | an operand: a name, a number or parentheses, with its indices and arguments |
//! | `*x` | one or more tokens, as few as possible, brackets in pairs; at the end all on a line |
//! | `**` | any tokens, none too, up to the next statement |
//! | `<t>` | the word for an element type in any language; `t` is ours |
//! | `\@`, `\**` | the signs `@` and `**` |
//! | `<m>` | a module and a dot before a name, such as `np.` or `tvm.te.`, or nothing |
//!
//! A help shows what was matched as `{x}`, as `{(x)}` in parentheses where `as` needs them.

mod matching;
mod table;

use super::scan::{Token, tokens};
use super::{Diag, Sources};
use matching::Match;
pub use table::TABLE;

/// One row of the table.
#[derive(Debug)]
pub struct Hint {
    /// Where the error is.
    pub place: Place,
    /// The codes that it is for; with `?`, only where the error has no help of its own.
    pub codes: &'static str,
    /// What stands there.
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
    /// The same of `schedule`.
    Schedule,
    /// Any of these.
    Anywhere,
    /// No file: the value of an option.
    Option,
}

/// Among many errors only the first ones have hints: each looks at the text around its place.
const MAX_HINTED: usize = 100;

/// Gives each error the hint that fits what stands at its place.
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

/// Gives an error the hint that fits the value of an option.
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

/// The first row that fits counts.
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

/// The kernel or schedule that is open at a token, by its braces.
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

//! Finds the nesting depth of a text before the parser recurses into it.

use crate::diag::scan::{Token, TokenKind, tokens};
use crate::diag::{Diag, Result, Span};

/// The largest nesting depth that is parsed.
const MAX_DEPTH: usize = 256;

/// Refuses a text that is nested deeper than [`MAX_DEPTH`]. Brackets, nested `if`s and consecutive
/// prefix operators count. Counting ends at an unmatched closing bracket, where the parser reports
/// an error.
pub(super) fn check_nesting(text: &str, file: u32) -> Result<()> {
    let mut nesting = Nesting::default();
    for token in tokens(text, 0) {
        if !nesting.read(&token) {
            return Ok(());
        }
        if nesting.depth() > MAX_DEPTH {
            return Err(Box::new(too_deep(Span {
                file,
                start: token.start as u32,
                end: token.end() as u32,
            })));
        }
    }
    Ok(())
}

/// Returns the error for a text that is nested too deep.
pub(super) fn too_deep(span: Span) -> Diag {
    let message = format!("nested deeper than {MAX_DEPTH} levels");
    Diag::new("E0102", span, message)
        .help("name a part of it: a constant with `let`, a value with a `compute` stage")
}

/// The constructs that are open at a place of a text.
#[derive(Default)]
struct Nesting {
    /// The open brackets, each with the number of open `if`s directly inside the bracket around it.
    open: Vec<(u8, usize)>,
    /// The number of open `if`s.
    ifs: usize,
    /// The number of open `if`s directly inside the innermost bracket.
    ifs_here: usize,
    /// The number of prefix operators directly before this place.
    prefixes: usize,
}

impl Nesting {
    fn depth(&self) -> usize {
        self.open.len() + self.ifs + self.prefixes
    }

    /// Reads a token; returns false for an unmatched closing bracket.
    fn read(&mut self, token: &Token) -> bool {
        let is_prefix = matches!(token.text, "-" | "~" | "not");
        self.prefixes = if is_prefix { self.prefixes + 1 } else { 0 };
        match (token.kind, token.text) {
            (TokenKind::Sign, "(" | "[" | "{") => {
                if token.text == "{" {
                    self.end_expression();
                }
                self.open.push((token.text.as_bytes()[0], self.ifs_here));
                self.ifs_here = 0;
            }
            (TokenKind::Sign, ")") => return self.close(b'('),
            (TokenKind::Sign, "]") => return self.close(b'['),
            (TokenKind::Sign, "}") => return self.close(b'{'),
            (TokenKind::Word, "if") => {
                self.ifs += 1;
                self.ifs_here += 1;
            }
            // The parser does not recurse for `else if`, so `else` closes an `if`.
            (TokenKind::Word, "else") => {
                let closed = self.ifs_here.min(1);
                self.ifs -= closed;
                self.ifs_here -= closed;
            }
            (
                TokenKind::Word,
                "import" | "def" | "reducer" | "kernel" | "schedule" | "input" | "reduce"
                | "compute" | "output" | "let" | "assume" | "assert" | "for" | "use" | "knob",
            ) => self.end_expression(),
            _ => {}
        }
        true
    }

    fn end_expression(&mut self) {
        self.ifs -= self.ifs_here;
        self.ifs_here = 0;
    }

    fn close(&mut self, opener: u8) -> bool {
        self.end_expression();
        match self.open.pop() {
            Some((bracket, ifs_before)) if bracket == opener => {
                self.ifs_here = ifs_before;
                true
            }
            _ => false,
        }
    }
}

//! How deep a text is nested, found before the parser recurses into it.

use crate::diag::scan::{Kind, Token, tokens};
use crate::diag::{Diag, Result, Span};

/// The deepest nesting that is parsed.
const MAX_DEPTH: usize = 256;

/// Refuses a text that is nested deeper than [`MAX_DEPTH`]: by brackets, by `if`s without brackets,
/// and by prefix operators in a row. Counting ends at a closing bracket that closes nothing: there
/// the parser finds an error.
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

/// The error for a text nested too deep.
pub(super) fn too_deep(span: Span) -> Diag {
    let message = format!("nested deeper than {MAX_DEPTH} levels");
    Diag::new("E0102", span, message)
        .help("name a part of it: a constant by `let`, a value by a `compute` stage")
}

/// The open constructs at a place of a text.
#[derive(Default)]
struct Nesting {
    /// The brackets, each with the `if`s around it that are in the same pair of brackets.
    open: Vec<(u8, usize)>,
    /// The open `if`s, all together.
    ifs: usize,
    /// Those in the innermost brackets.
    ifs_here: usize,
    /// Prefix operators directly before this place.
    prefixes: usize,
}

impl Nesting {
    fn depth(&self) -> usize {
        self.open.len() + self.ifs + self.prefixes
    }

    /// Goes past a token; false if it closes nothing that is open.
    fn read(&mut self, token: &Token) -> bool {
        let is_prefix = matches!(token.text, "-" | "~" | "not");
        self.prefixes = if is_prefix { self.prefixes + 1 } else { 0 };
        match (token.kind, token.text) {
            (Kind::Sign, "(" | "[" | "{") => {
                if token.text == "{" {
                    self.end_expression();
                }
                self.open.push((token.text.as_bytes()[0], self.ifs_here));
                self.ifs_here = 0;
            }
            (Kind::Sign, ")") => return self.close(b'('),
            (Kind::Sign, "]") => return self.close(b'['),
            (Kind::Sign, "}") => return self.close(b'{'),
            (Kind::Word, "if") => {
                self.ifs += 1;
                self.ifs_here += 1;
            }
            // What follows `else` is not nested in brackets of the parser's making: `else if` goes
            // on with the same `if`.
            (Kind::Word, "else") => {
                let closed = self.ifs_here.min(1);
                self.ifs -= closed;
                self.ifs_here -= closed;
            }
            (
                Kind::Word,
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

//! A tokenizer that accepts any text. It finds deep nesting before the parser recurses, and the
//! token at an error.

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// An identifier or a reserved word.
    Word,
    /// A number, well-formed or not: a digit and all that follows without a gap.
    Number,
    /// A string in double quotes.
    String,
    /// A string that is not closed on its line.
    OpenString,
    /// Anything else.
    Sign,
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub struct Token<'i> {
    /// Its kind.
    pub kind: TokenKind,
    /// Its first byte.
    pub start: usize,
    /// As written.
    pub text: &'i str,
}

impl Token<'_> {
    /// Returns the offset after its last byte.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Signs of more than one character, including those of other languages.
const SIGNS: [&str; 21] = [
    "==", "!=", "<=", ">=", "<<", ">>", "//", "/*", "...", "..", "&&", "||", "->", "=>", "**",
    "+=", "-=", "*=", "/=", ":=", "::",
];

/// The reserved words of the language.
pub const RESERVED: [&str; 27] = [
    "import",
    "def",
    "reducer",
    "kernel",
    "schedule",
    "input",
    "reduce",
    "compute",
    "output",
    "let",
    "if",
    "then",
    "else",
    "assume",
    "assert",
    "for",
    "in",
    "use",
    "knob",
    "or",
    "and",
    "not",
    "as",
    "identity",
    "true",
    "false",
    "auto_inline_injective",
];

/// Returns the tokens of a text from byte `at` on, which must be the start of a token.
pub fn tokens(text: &str, at: usize) -> impl Iterator<Item = Token<'_>> {
    let mut at = at;
    std::iter::from_fn(move || {
        at = skip_blank(text, at);
        let rest = &text[at..];
        let first = rest.chars().next()?;
        let (kind, length) = match first {
            'a'..='z' | 'A'..='Z' | '_' => (TokenKind::Word, word_length(rest)),
            '0'..='9' => (TokenKind::Number, number_length(rest)),
            '"' => match rest[1..].find(['"', '\n']) {
                Some(i) if rest.as_bytes()[i + 1] == b'"' => (TokenKind::String, i + 2),
                Some(i) => (TokenKind::OpenString, i + 1),
                None => (TokenKind::OpenString, rest.len()),
            },
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                (TokenKind::Sign, sign.map_or(first.len_utf8(), |sign| sign.len()))
            }
        };
        let token = Token { kind, start: at, text: &rest[..length] };
        at += length;
        Some(token)
    })
}

/// Skips white space and comments.
fn skip_blank(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'#' => at = text[at..].find('\n').map_or(text.len(), |i| at + i),
            _ => break,
        }
    }
    at
}

fn is_word_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

fn word_length(text: &str) -> usize {
    text.bytes().take_while(is_word_byte).count()
}

/// Returns the length of a number with all that follows without a gap: `12abc`, `1.`, `1e+`.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut length = word_length(text);
    loop {
        let is_exponent = matches!(bytes[length - 1], b'e' | b'E') && !text.starts_with("0x");
        match bytes.get(length) {
            Some(b'+' | b'-') if is_exponent => length += 1,
            Some(b'.') if bytes.get(length + 1) != Some(&b'.') => length += 1,
            _ => return length,
        }
        length += word_length(&text[length..]);
    }
}

//! Patterns of hints against the tokens of a file.

use super::table::{MODULES, TYPES};
use crate::diag::scan::{RESERVED, Token, TokenKind, tokens};

/// The largest number of tokens from the beginning of a pattern to the error.
const MAX_BEFORE: usize = 200;

/// The largest number of elements that are tried for one pattern.
const MAX_STEPS: usize = 20_000;

/// The largest number of characters of a capture that a help repeats.
const MAX_SHOWN: usize = 60;

/// Words that begin a statement; `*x` and `**` end before them.
const STATEMENTS: [&str; 14] = [
    "import", "def", "reducer", "kernel", "schedule", "input", "reduce", "compute", "output",
    "let", "assume", "assert", "use", "knob",
];

/// A match of a pattern, with its captures.
pub struct Match<'t, 'p> {
    text: &'t str,
    tokens: &'t [Token<'t>],
    at: usize,
    captures: Vec<(&'p str, String)>,
    steps: usize,
}

impl<'t, 'p> Match<'t, 'p> {
    /// Matches a pattern around the token `at`, from the nearest possible beginning.
    pub fn find(
        pattern: &'p str,
        text: &'t str,
        tokens: &'t [Token<'t>],
        at: usize,
    ) -> Option<Match<'t, 'p>> {
        let mut elements: Vec<&'p str> = pattern.split(' ').collect();
        if !elements.contains(&"@") {
            elements.insert(0, "@");
        }
        let first = match elements[0] {
            "@" => at,
            _ => at.saturating_sub(MAX_BEFORE),
        };
        let mut found = Match { text, tokens, at, captures: Vec::new(), steps: 0 };
        for start in (first..=at).rev() {
            found.captures.clear();
            if found.fits(&elements, start) {
                return Some(found);
            }
        }
        None
    }

    /// Returns a help with the captures filled in.
    pub fn fill(&self, help: &str) -> String {
        let mut text = help.to_string();
        for (name, value) in &self.captures {
            text = text.replace(&format!("{{{name}}}"), value);
            text = text.replace(&format!("{{({name})}}"), &as_operand(value));
        }
        text
    }

    fn fits(&mut self, elements: &[&'p str], at: usize) -> bool {
        self.steps += 1;
        let Some((element, rest)) = elements.split_first() else { return true };
        if self.steps > MAX_STEPS || (at > self.at && elements.contains(&"@")) {
            return false;
        }
        if *element == "@" {
            return at == self.at && self.fits(rest, at);
        }
        if *element == "**" {
            return self.fits_run(rest, at);
        }
        if *element == "<m>" {
            return self.fits_module(rest, at);
        }
        if let Some(name) = named(element, '*') {
            return self.fits_balanced(name, rest, at);
        }
        if let Some(name) = named(element, '%') {
            return operand_end(self.tokens, at)
                .is_some_and(|end| self.fits_captured(name, self.shown(at, end), rest, end));
        }
        let Some(token) = self.tokens.get(at).copied() else { return false };
        let is_value = match token.kind {
            TokenKind::Word => !RESERVED.contains(&token.text),
            TokenKind::Number => true,
            _ => false,
        };
        if let Some(name) = named(element, '$') {
            let (name, end) = name.split_once(':').unwrap_or((name, ""));
            return match token.text.strip_suffix(end).filter(|rest| is_value && !rest.is_empty()) {
                Some(value) => self.fits_captured(name, value.to_string(), rest, at + 1),
                None => false,
            };
        }
        if let Some(name) = named(element, '#') {
            let value = token.text.to_string();
            return token.kind == TokenKind::Number
                && self.fits_captured(name, value, rest, at + 1);
        }
        if let Some(name) = named(element, '\'') {
            let Some(end) = self.string_end(at) else { return false };
            return self.fits_captured(name, self.shown(at, end), rest, end);
        }
        if *element == "<t>" {
            let ours = TYPES.iter().find(|(words, _)| words.split(' ').any(|w| w == token.text));
            let ours = ours.map(|(_, ours)| if ours.is_empty() { token.text } else { *ours });
            return ours
                .is_some_and(|ours| self.fits_captured("t", ours.to_string(), rest, at + 1));
        }
        is_literal(element, token.text) && self.fits(rest, at + 1)
    }

    /// Adds a capture and matches the rest. A repeated name must have captured the same text.
    fn fits_captured(&mut self, name: &'p str, value: String, rest: &[&'p str], at: usize) -> bool {
        if let Some((_, known)) = self.captures.iter().find(|(other, _)| *other == name) {
            return *known == value && self.fits(rest, at);
        }
        self.captures.push((name, value));
        let known = self.captures.len();
        if self.fits(rest, at) {
            return true;
        }
        self.captures.truncate(known - 1);
        false
    }

    fn fits_run(&mut self, rest: &[&'p str], at: usize) -> bool {
        for end in at..=self.tokens.len().min(at + MAX_BEFORE) {
            if self.fits(rest, end) {
                return true;
            }
            if self.tokens.get(end).is_none_or(|token| STATEMENTS.contains(&token.text)) {
                break;
            }
        }
        false
    }

    fn fits_balanced(&mut self, name: &'p str, rest: &[&'p str], at: usize) -> bool {
        let mut end = at;
        while let Some(next) = balanced_end(self.tokens, end).filter(|n| *n <= at + MAX_BEFORE) {
            end = next;
            // The last element of a pattern takes the rest of the line.
            if rest.is_empty() && balanced_end(self.tokens, end).is_some() && !self.ends_line(end) {
                continue;
            }
            if self.fits_captured(name, self.shown(at, end), rest, end) {
                return true;
            }
        }
        false
    }

    fn ends_line(&self, end: usize) -> bool {
        let [before, after] = [&self.tokens[end - 1], &self.tokens[end]];
        self.text[before.end()..after.start].contains('\n')
    }

    /// `tvm . te .`, `std ::`, or nothing.
    fn fits_module(&mut self, rest: &[&'p str], at: usize) -> bool {
        let mut end = at;
        while let [module, dot, ..] = &self.tokens[end.min(self.tokens.len())..]
            && MODULES.contains(&module.text)
            && matches!(dot.text, "." | "::")
        {
            end += 2;
        }
        self.fits(rest, end) || (end > at && self.fits(rest, at))
    }

    /// Returns the end of a string in double, single or typographic quotes.
    fn string_end(&self, at: usize) -> Option<usize> {
        if self.tokens[at].kind == TokenKind::String {
            return Some(at + 1);
        }
        let is_quote = |token: &Token| matches!(token.text, "'" | "‘" | "’" | "“" | "”" | "„");
        let inside = &self.tokens[at + 1..];
        let length = inside.iter().take(8).position(is_quote)?;
        is_quote(&self.tokens[at]).then_some(at + length + 2)
    }

    /// Returns the text of a capture.
    fn shown(&self, from: usize, to: usize) -> String {
        let Some((first, last)) = self.tokens.get(from).zip(self.tokens[..to].last()) else {
            return String::new();
        };
        let text = &self.text[first.start..last.end()];
        let text = text.trim_matches(['"', '\'', '‘', '’', '“', '”', '„', ';']);
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        if text.is_empty() || text.len() > MAX_SHOWN || text.contains('#') || !is_plain {
            return "…".to_string();
        }
        text.to_string()
    }
}

/// Returns the name of an element that begins with a sign: `x` of `$x`.
fn named(element: &str, sign: char) -> Option<&str> {
    element.strip_prefix(sign).filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Removes `\`, which makes an element literal.
fn is_literal(element: &str, text: &str) -> bool {
    let element = element.strip_prefix('\\').unwrap_or(element);
    element == text || (!element.contains("||") && element.split('|').any(|one| one == text))
}

fn is_open(token: &Token) -> bool {
    matches!(token.text, "(" | "[" | "{")
}

fn is_closed(token: &Token) -> bool {
    matches!(token.text, ")" | "]" | "}")
}

/// Returns the end of the token at `at`, or of its bracket; none if it closes an outer bracket or
/// begins a statement.
fn balanced_end(tokens: &[Token], at: usize) -> Option<usize> {
    let token = tokens.get(at)?;
    if is_closed(token) || STATEMENTS.contains(&token.text) {
        return None;
    }
    if !is_open(token) {
        return Some(at + 1);
    }
    let mut depth = 0usize;
    for (i, token) in tokens[at..].iter().enumerate().take(MAX_BEFORE) {
        depth += usize::from(is_open(token));
        depth -= usize::from(is_closed(token));
        if depth == 0 {
            return Some(at + i + 1);
        }
    }
    None
}

/// Returns the end of an operand.
fn operand_end(tokens: &[Token], at: usize) -> Option<usize> {
    let token = tokens.get(at)?;
    let mut end = match token.kind {
        TokenKind::Word if !RESERVED.contains(&token.text) => at + 1,
        TokenKind::Number | TokenKind::String => return Some(at + 1),
        _ if token.text == "(" => balanced_end(tokens, at)?,
        _ => return None,
    };
    while tokens.get(end).is_some_and(|token| matches!(token.text, "(" | "[")) {
        end = balanced_end(tokens, end)?;
    }
    Some(end)
}

/// Returns a text as an operand of `as`, in parentheses if it needs them.
fn as_operand(text: &str) -> String {
    let tokens: Vec<Token> = tokens(text, 0).collect();
    match operand_end(&tokens, 0) == Some(tokens.len()) || text == "…" {
        true => text.to_string(),
        false => format!("({text})"),
    }
}

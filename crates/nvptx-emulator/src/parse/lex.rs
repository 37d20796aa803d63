//! Splits PTX text into tokens with their line numbers.
//!
//! A word begins like an identifier, a directive, a register or a label, and may contain dots and
//! double colons: `ld.global.L1::no_allocate.v4.f32`, `%tid.x` and `.reg` are one word each.

use crate::error::{Error, Result};

/// A token; its text is a slice of the source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tok<'a> {
    Word(&'a str),
    Number(&'a str),
    Str(&'a str),
    Punct(char),
}

/// A token with its line, from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub tok: Tok<'a>,
    pub line: u32,
}

pub(crate) fn lex(text: &str) -> Result<Vec<Token<'_>>> {
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut out = Vec::with_capacity(text.len() / 4);
    while at < bytes.len() {
        let c = bytes[at];
        let start = at;
        let tok = match c {
            b'\n' => {
                line += 1;
                at += 1;
                continue;
            }
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = text[at + 2..].find("*/");
                let end = end.ok_or_else(|| Error::at(line, "comment without its end"))?;
                let stop = at + 2 + end + 2;
                line += bytes[at..stop].iter().filter(|b| **b == b'\n').count() as u32;
                at = stop;
                continue;
            }
            b'"' => {
                let end = text[at + 1..].find('"');
                let end = end.ok_or_else(|| Error::at(line, "string without its end"))?;
                at += end + 2;
                Tok::Str(&text[start + 1..at - 1])
            }
            b'0'..=b'9' => {
                at = number_end(bytes, at);
                Tok::Number(&text[start..at])
            }
            b'.' | b'_' | b'$' | b'%' | b'a'..=b'z' | b'A'..=b'Z' => {
                at = word_end(bytes, at);
                Tok::Word(&text[start..at])
            }
            b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b',' | b';' | b':' | b'+'
            | b'-' | b'@' | b'!' | b'|' | b'=' | b'*' => {
                at += 1;
                Tok::Punct(c as char)
            }
            _ => {
                let c = text[at..].chars().next().expect("at is inside of the text");
                return Err(Error::at(line, format!("unknown character {c:?}")));
            }
        };
        out.push(Token { tok, line });
    }
    Ok(out)
}

fn word_end(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while at < bytes.len() {
        match bytes[at] {
            b'.' | b'_' | b'$' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => at += 1,
            b':' if bytes.get(at + 1) == Some(&b':') => at += 2,
            _ => break,
        }
    }
    at
}

/// Returns the end of a number: digits, letters (hexadecimal, `0f`, `U`, exponents) and one point.
/// A sign belongs to the number only after the `e` of a decimal number.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let hex = bytes[start] == b'0'
        && matches!(bytes.get(start + 1), Some(b'x' | b'X' | b'f' | b'F' | b'd' | b'D'));
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => at += 1,
            b'.' if !hex => at += 1,
            b'+' | b'-' if !hex && matches!(bytes[at - 1], b'e' | b'E') => at += 1,
            _ => break,
        }
    }
    at
}

//! Turns syntax errors of pest into messages: what was expected, what was found, and a suggestion.
//! `diag::hints` has the suggestions for syntax of other languages.

use super::Rule;
use super::depth::too_deep;
use crate::diag::scan::{RESERVED, Token, TokenKind, tokens};
use crate::diag::{Diag, Span, closest};
use pest::error::{Error, ErrorVariant, InputLocation};

/// Returns the diagnostic for a syntax error.
pub(super) fn syntax_error(text: &str, file: u32, error: &Error<Rule>) -> Diag {
    let (InputLocation::Pos(at) | InputLocation::Span((at, _))) = error.location;
    let ErrorVariant::ParsingError { positives, .. } = &error.variant else {
        // The stack is full, which happens only on a thread with a smaller stack than `tec` uses.
        return too_deep(Span { file, start: at as u32, end: at as u32 });
    };
    let place = Place::find(text, file, at, positives);
    let special = [wrong_number, open_string, chained, foreign_sign, reserved_name];
    let mut diag =
        special.iter().find_map(|special| special(&place)).unwrap_or_else(|| place.unexpected());
    if diag.code == "E0101" {
        diag.help = diag.help.or_else(|| help(&place));
        diag.related.extend(place.unclosed());
    }
    diag
}

/// The place of an error.
struct Place<'a> {
    file: u32,
    text: &'a str,
    /// The token at the error; none at the end of the file.
    found: Option<Token<'a>>,
    /// The token before it.
    before: Option<Token<'a>>,
    /// The token before that one.
    before_that: Option<Token<'a>>,
    /// The innermost open bracket.
    opener: Option<Token<'a>>,
    /// Whether the place is in a schedule.
    in_schedule: bool,
    /// The rules that might have matched.
    rules: &'a [Rule],
}

impl<'a> Place<'a> {
    fn find(text: &'a str, file: u32, at: usize, rules: &'a [Rule]) -> Place<'a> {
        let mut open = Vec::new();
        let (mut before, mut before_that, mut in_schedule) = (None, None, false);
        let mut found = None;
        for token in tokens(text, 0) {
            if token.end() > at {
                found = Some(token);
                break;
            }
            match token.text {
                "(" | "[" | "{" => open.push(token),
                ")" | "]" | "}" => {
                    open.pop();
                }
                "schedule" | "kernel" | "network" | "template" if open.is_empty() => {
                    in_schedule = matches!(token.text, "schedule" | "template");
                }
                _ => {}
            }
            before_that = before.replace(token);
        }
        let opener = open.pop();
        Place { file, text, found, before, before_that, opener, in_schedule, rules }
    }

    fn span_of(&self, token: &Token) -> Span {
        Span { file: self.file, start: token.start as u32, end: token.end() as u32 }
    }

    fn span(&self) -> Span {
        match (&self.found, &self.before) {
            (Some(found), _) => self.span_of(found),
            (None, Some(before)) => Span { start: before.end() as u32, ..self.span_of(before) },
            (None, None) => Span { file: self.file, start: 0, end: 0 },
        }
    }

    fn found(&self) -> &'a str {
        self.found.map_or("", |token| token.text)
    }

    fn expects(&self, rule: Rule) -> bool {
        self.rules.contains(&rule)
    }

    fn expects_expression(&self) -> bool {
        let rules = [Rule::expr, Rule::spread, Rule::element, Rule::arg, Rule::number];
        rules.into_iter().any(|rule| self.expects(rule))
    }

    fn expects_operator(&self) -> bool {
        self.expects(Rule::add)
    }

    fn expects_statement(&self) -> bool {
        self.expects(Rule::stmt) || self.expects(Rule::schedule_stmt)
    }

    fn expects_item(&self) -> bool {
        self.expects(Rule::item) || self.expects(Rule::file)
    }

    /// Whether there is a line break between two places.
    fn breaks_line(&self, from: usize, to: usize) -> bool {
        self.text[from..to].contains('\n')
    }

    /// `expected `)` or `,`, found `x``
    fn unexpected(&self) -> Diag {
        let found = match self.found {
            None => "the end of the file".to_string(),
            Some(token) if token.kind == TokenKind::String => "a string".to_string(),
            Some(token) => quote(token.text),
        };
        let message = match self.expected() {
            expected if expected.is_empty() => format!("unexpected {found}"),
            expected => format!("expected {expected}, found {found}"),
        };
        Diag::new("E0101", self.span(), message)
    }

    fn expected(&self) -> String {
        let mut words: Vec<&str> = if self.expects_expression() {
            let others = self.rules.iter().filter(|rule| is_after_expression(**rule));
            ["an expression"].into_iter().chain(others.filter_map(|rule| word(*rule))).collect()
        } else {
            let is_operand = self.expects_operator();
            let rules = self.rules.iter();
            let rules = rules.filter(|rule| !is_operand || !continues_operand(**rule));
            // Few indices are slices.
            let is_index = is_operand && self.expects(Rule::rbracket);
            let rules = rules.filter(|rule| !is_index || **rule != Rule::dots);
            rules.filter_map(|rule| word(*rule)).collect()
        };
        words.sort_by_key(|word| (!word.starts_with('`'), *word));
        words.dedup();
        if words.is_empty() && self.expects_operator() {
            words.push("an operator");
        }
        match words.split_last() {
            Some((last, [])) => last.to_string(),
            Some((last, [.., _])) if words.len() > 6 => format!("one of {}", words.join(", "))
                .replace(&format!(", {last}"), &format!(" or {last}")),
            Some((last, before)) => format!("{} or {last}", before.join(", ")),
            None => String::new(),
        }
    }

    /// Returns the open bracket, if the error may come from its not being closed.
    fn unclosed(&self) -> Option<(Span, String)> {
        let opener = self.opener?;
        let closer = match opener.text {
            "(" => Rule::rparen,
            "[" => Rule::rbracket,
            _ => Rule::rbrace,
        };
        let end = self.found.map_or(self.text.len(), |token| token.start);
        let is_open = match closer {
            Rule::rbrace => self.found.is_none_or(|token| ITEMS.contains(&token.text)),
            _ => self.found.is_none() || self.breaks_line(opener.start, end),
        };
        (self.expects(closer) && is_open)
            .then(|| (self.span_of(&opener), format!("this `{}` is not closed", opener.text)))
    }
}

/// Returns a token in back quotes, cut if it is long; control characters are escaped.
fn quote(token: &str) -> String {
    let mut text: String = token.chars().take(40).flat_map(visible).collect();
    if token.chars().nth(40).is_some() {
        text.push('…');
    }
    format!("`{text}`")
}

fn visible(c: char) -> impl Iterator<Item = char> {
    let shown = if c.is_control() || c.is_whitespace() || is_invisible(c) {
        c.escape_unicode().to_string()
    } else {
        c.to_string()
    };
    shown.chars().collect::<Vec<_>>().into_iter()
}

/// Whether a character is invisible or changes the direction of text.
fn is_invisible(c: char) -> bool {
    let ranges = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{206f}'];
    c == '\u{feff}' || ranges.iter().any(|range| range.contains(&c))
}

/// Rules that are named beside `an expression`.
fn is_after_expression(rule: Rule) -> bool {
    matches!(rule, Rule::rparen | Rule::rbracket | Rule::rbrace)
}

/// Rules that only continue the operand before the error. They are not named if something else is
/// expected.
fn continues_operand(rule: Rule) -> bool {
    matches!(rule, Rule::lparen | Rule::lbracket | Rule::dot | Rule::as_kw | Rule::assign)
}

/// Returns the name of a rule in messages; none for operators.
fn word(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::file | Rule::item => {
            "`import`, `def`, `reducer`, `kernel`, `network`, `schedule` or `template`"
        }
        Rule::stmt | Rule::schedule_stmt => "a statement",
        Rule::name | Rule::components | Rule::results | Rule::result | Rule::result_name => {
            "a name"
        }
        Rule::param => "a parameter",
        Rule::axis | Rule::step | Rule::reduce_axis | Rule::member_axis | Rule::place => "an axis",
        Rule::member => "a `compute` or `output` stage",
        Rule::string => "a string in double quotes",
        Rule::target => "a target",
        Rule::expr | Rule::spread | Rule::element => "an expression",
        Rule::block | Rule::schedule_block | Rule::lbrace => "`{`",
        Rule::params | Rule::args | Rule::lparen => "`(`",
        Rule::shape
        | Rule::axes
        | Rule::member_axes
        | Rule::places
        | Rule::index
        | Rule::list
        | Rule::lbracket => "`[`",
        Rule::rparen => "`)`",
        Rule::rbracket => "`]`",
        Rule::rbrace => "`}`",
        Rule::comma => "`,`",
        Rule::colon => "`:`",
        Rule::assign => "`=`",
        Rule::dots => "`..`",
        Rule::dot => "`.`",
        Rule::then_kw => "`then`",
        Rule::else_kw => "`else`",
        Rule::for_kw => "`for`",
        Rule::in_kw => "`in`",
        Rule::as_kw => "`as`",
        Rule::identity_kw => "`identity`",
        Rule::reassociate => "`reassociate`",
        Rule::where_word => "`where`",
        _ => return None,
    })
}

/// `12abc`, `1.`, `.5`
fn wrong_number(place: &Place) -> Option<Diag> {
    let found = place.found?;
    let text = found.text;
    let digit_follows = || place.text[found.end()..].starts_with(|c: char| c.is_ascii_digit());
    if text == "." && place.expects_expression() && digit_follows() {
        let number = tokens(place.text, found.end()).next()?;
        let span = Span { end: number.end() as u32, ..place.span() };
        let message = format!("malformed number `.{}`", number.text);
        let help = format!("write a digit before the point: `0.{}`", number.text);
        return Some(Diag::new("E0103", span, message).help(help));
    }
    if found.kind != TokenKind::Number || !place.expects_expression() {
        return None;
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let help = match rest.bytes().next() {
        _ if text.starts_with("0x") => "hexadecimal digits follow `0x`, nothing else".to_string(),
        Some(b'.') if rest.len() == 1 => format!("write digits after the point: `{text}0`"),
        Some(b'.') => "a number has one point, with digits on both sides".to_string(),
        Some(b'_') => "digits are written without `_`".to_string(),
        Some(b'e' | b'E') => format!("an exponent has digits: `{number}e5`, `{number}e-5`"),
        _ => format!("a letter cannot follow a number; a product is `{number} * {rest}`"),
    };
    Some(Diag::new("E0103", place.span(), format!("malformed number {}", quote(text))).help(help))
}

/// `"text` without its end
fn open_string(place: &Place) -> Option<Diag> {
    let found = place.found.filter(|token| token.kind == TokenKind::OpenString)?;
    let span = Span { end: found.start as u32 + 1, ..place.span() };
    let message = "this string is not closed on its line";
    Some(Diag::new("E0105", span, message).help("a string ends with `\"` and has no line breaks"))
}

/// `a < b < c`
fn chained(place: &Place) -> Option<Diag> {
    let is_comparison = matches!(place.found(), "==" | "!=" | "<" | "<=" | ">" | ">=");
    if !is_comparison || !place.expects_operator() {
        return None;
    }
    Some(Diag::new("E0107", place.span(), "comparisons do not chain"))
}

/// Signs of other languages.
const FOREIGN: [&str; 20] = [
    ";", "&&", "||", "!", "**", "?", "'", "->", "=>", "::", ":=", "@", "$", "`", "\\", "+=", "-=",
    "*=", "/=", "/*",
];

/// `;`, `&&`, `!` and other signs of other languages
fn foreign_sign(place: &Place) -> Option<Diag> {
    let found = place.found.filter(|token| token.kind == TokenKind::Sign)?;
    let is_comment =
        found.text == "//" && (place.expects_expression() || place.expects_statement());
    if !is_comment && !FOREIGN.contains(&found.text) && found.text.is_ascii() {
        return None;
    }
    let message = format!("the language has no {}", quote(found.text));
    let message = if found.text == "//" { "unexpected `//`".to_string() } else { message };
    let diag = Diag::new("E0106", place.span(), message);
    Some(match found.text.is_ascii() {
        true => diag,
        false => diag.help("only comments and strings may contain other characters than ASCII"),
    })
}

/// `let input = 1`
fn reserved_name(place: &Place) -> Option<Diag> {
    let found = place.found.filter(|token| RESERVED.contains(&token.text))?;
    let is_name = place.expects(Rule::name)
        || place.expects(Rule::param)
        || place.expects(Rule::axis)
        || place.expects(Rule::step)
        || place.expects(Rule::reduce_axis)
        || place.expects(Rule::result)
        || place.expects(Rule::results)
        || place.expects(Rule::components)
        || place.expects_expression();
    let before = place.before?;
    if !is_name || place.breaks_line(before.end(), found.start) {
        return None;
    }
    if place.expects_expression() && (starts_statement(found.text) || found.text == "not") {
        // `A[input, 0]` and `input + 1` use it as a name; `let x = let y = 1` does not.
        let next = tokens(place.text, found.end()).next().map_or("", |token| token.text);
        if found.text == "not" || next.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
    }
    let is_operator = matches!(found.text, "if" | "then" | "else" | "and" | "or" | "as" | "in");
    if place.expects_expression() && is_operator {
        return None;
    }
    let message = format!("`{}` is a reserved word, not a name", found.text);
    let help = format!("choose another name, such as `{}_`", found.text);
    Some(Diag::new("E0104", place.span(), message).help(help))
}

const KERNEL_STATEMENTS: [&str; 7] =
    ["input", "reduce", "compute", "output", "let", "assume", "assert"];
const SCHEDULE_STATEMENTS: [&str; 6] =
    ["let", "for", "use", "knob", "assert", "auto_inline_injective"];
const ITEMS: [&str; 6] = ["import", "def", "reducer", "kernel", "schedule", "template"];

fn starts_statement(word: &str) -> bool {
    word == "if" || KERNEL_STATEMENTS.contains(&word) || SCHEDULE_STATEMENTS.contains(&word)
}

/// Returns a suggestion for common mistakes.
fn help(place: &Place) -> Option<String> {
    let found = place.found();
    if place.expects_expression() {
        return None;
    }
    // Only the axes of a `scan` are followed by a block.
    if found == ".." && place.expects(Rule::lbrace) && place.expects(Rule::comma) {
        return Some("the steps of a `scan` begin at 0: write `scan t: n`".to_string());
    }
    if place.in_schedule && place.expects(Rule::dot) {
        let name = place.before?.text;
        return match place.found?.kind {
            TokenKind::Word => closest(name, SCHEDULE_STATEMENTS)
                .map(|word| format!("did you mean `{word}` for `{name}`?")),
            _ => None,
        };
    }
    if place.expects_item() {
        if found == "}" {
            return Some("no `{` is open here".to_string());
        }
        let statement = KERNEL_STATEMENTS.contains(&found) || found == "if";
        return match closest(found, ITEMS) {
            _ if statement => Some(format!("`{found}` is allowed only in a kernel")),
            Some(item) if place.found?.kind == TokenKind::Word => {
                Some(format!("did you mean `{item}`?"))
            }
            _ => None,
        };
    }
    if place.expects_statement() {
        return statement_help(place, found);
    }
    None
}

/// Returns a suggestion for a wrong beginning of a statement.
fn statement_help(place: &Place, found: &str) -> Option<String> {
    let word = place.found.filter(|token| token.kind == TokenKind::Word)?;
    if ITEMS.contains(&found) {
        return None;
    }
    let (own, others, other_place) = match place.in_schedule {
        true => (&SCHEDULE_STATEMENTS[..], &KERNEL_STATEMENTS[..], "kernel"),
        false => (&KERNEL_STATEMENTS[..], &SCHEDULE_STATEMENTS[..], "schedule"),
    };
    if others.contains(&found) {
        return Some(format!("`{found}` is allowed only in a {other_place}"));
    }
    let mut after = tokens(place.text, word.end());
    let next = after.next().map_or("", |token| token.text);
    if next == "=" {
        return Some(format!("a constant is declared by `let {found} = …`"));
    }
    if next == "[" && !place.in_schedule {
        return Some(format!("a stage is declared by `compute {found}[…] = …` or `output`"));
    }
    if next == "." && !place.in_schedule {
        return Some("directives belong in a `schedule`".to_string());
    }
    let is_operand = |token: Token| matches!(token.kind, TokenKind::Word | TokenKind::Number);
    let same_line = place.before.is_some_and(|t| !place.breaks_line(t.end(), word.start));
    if same_line && place.before.is_some_and(is_operand) && place.before_that.is_some() {
        return None;
    }
    closest(found, own.iter().copied()).map(|word| format!("did you mean `{word}`?"))
}

//! Diagnostics as text: `file:line:column`, the source line, a caret, notes, help.
//!
//! The renderer gets only the lines that it shows, long ones cut around the caret, so that a
//! message costs at most one pass over the text.

use super::{Diag, Sources, Span};
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use std::ops::Range;

/// The largest number of characters of a line that are shown.
const MAX_COLUMNS: usize = 120;

/// The largest number of characters that are shown before the caret.
const COLUMNS_BEFORE: usize = 40;

/// The largest span that is shown whole; of a larger one the first line is shown.
const MAX_BYTES: usize = 4096;

/// Returns the text of one diagnostic, with a final newline; ANSI colours if `color`.
pub fn render(diag: &Diag, sources: &Sources, color: bool) -> String {
    let excerpt = diag.span.and_then(|span| Excerpt::new(sources, span));
    let related: Vec<(Excerpt, &str)> = diag
        .related
        .iter()
        .filter_map(|(span, text)| Some((Excerpt::new(sources, *span)?, text.as_str())))
        .collect();
    let title = Level::ERROR.primary_title(diag.message.as_str()).id(diag.code);
    let mut group = Group::with_title(title);
    if let Some(excerpt) = &excerpt {
        group = group.element(excerpt.snippet(diag.label.as_deref()));
    }
    let notes = diag.notes.iter().map(|note| Level::NOTE.message(note.as_str()));
    let help = diag.help.iter().map(|help| Level::HELP.message(help.as_str()));
    let mut report = vec![group.elements(notes).elements(help)];
    for (excerpt, text) in &related {
        let group = Group::with_title(Level::NOTE.secondary_title(*text));
        report.push(group.element(excerpt.snippet(None)));
    }
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let mut text = own_positions(&renderer.render(&report));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The lines of a span, ready to be shown.
struct Excerpt {
    /// `path:line:column` of the span's start, and [`POSITION_END`].
    position: String,
    /// The number of the first line.
    line: usize,
    text: String,
    /// The span in `text`.
    marked: Range<usize>,
}

impl Excerpt {
    /// None for a file that was never read.
    fn new(sources: &Sources, span: Span) -> Option<Excerpt> {
        let file = sources.files.get(span.file as usize)?;
        let (line, column) = sources.line_column(span);
        let text = file.text.as_str();
        let start = boundary(text, span.start as usize);
        let end = boundary(text, span.end as usize).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = end_of_line(text, start);
        let is_long = |line: &str| line.len() > MAX_COLUMNS;
        let last_end = end_of_line(text, end);
        let is_whole = end - line_start <= MAX_BYTES
            && last_end - line_start <= 2 * MAX_BYTES
            && !text[line_start..last_end].split('\n').any(is_long);
        let (text, marked) = if is_whole {
            (text[line_start..last_end].to_string(), start - line_start..end - line_start)
        } else {
            let marked = start - line_start..end.min(line_end) - line_start;
            cut(&text[line_start..line_end], marked)
        };
        let position = format!("{}:{line}:{column}{POSITION_END}", file.path);
        Some(Excerpt { position, line, text, marked })
    }

    fn snippet<'s>(&'s self, label: Option<&'s str>) -> Snippet<'s, Annotation<'s>> {
        let mark = AnnotationKind::Primary.span(self.marked.clone()).label(label);
        let snippet = Snippet::source(self.text.as_str()).path(self.position.as_str());
        snippet.line_start(self.line).annotation(mark)
    }
}

/// Ends the position that [`Excerpt`] writes. The renderer appends its own, which is wrong if the
/// line is cut; [`own_positions`] removes it.
const POSITION_END: char = '\u{e000}';

fn own_positions(text: &str) -> String {
    let mut parts = text.split(POSITION_END);
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| {
        text + part.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit())
    })
}

/// Returns the start of the character at a byte.
fn boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

fn end_of_line(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |i| at + i);
    if text[at..end].ends_with('\r') { end - 1 } else { end }
}

/// Returns the part of a long line around the marked bytes, and the marked bytes in it.
fn cut(line: &str, marked: Range<usize>) -> (String, Range<usize>) {
    let back = |(i, _): (usize, char)| i;
    let first = line[..marked.start].char_indices().rev().map(back).nth(COLUMNS_BEFORE);
    let from = first.unwrap_or(0);
    let to = line[from..].char_indices().nth(MAX_COLUMNS).map_or(line.len(), |(i, _)| from + i);
    let (before, after) =
        (if from > 0 { "..." } else { "" }, if to < line.len() { "..." } else { "" });
    let start = marked.start - from + before.len();
    let end = marked.end.min(to) - from + before.len();
    (format!("{before}{}{after}", &line[from..to]), start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::SourceFile;

    fn sources(text: &str) -> Sources {
        Sources { files: vec![SourceFile { path: "a.te".to_string(), text: text.to_string() }] }
    }

    fn span(start: usize, end: usize) -> Span {
        Span { file: 0, start: start as u32, end: end as u32 }
    }

    fn show(diag: &Diag, text: &str) -> String {
        render(diag, &sources(text), false)
    }

    #[test]
    fn diagnostics_show_position_line_caret_notes_and_help() {
        let text = "kernel f() {\n    let x = y\n}\n";
        let diag = Diag::new("E0201", span(25, 26), "unknown name `y`")
            .label("here")
            .related(span(7, 8), "in this kernel")
            .note("known is nothing")
            .help("declare `y`");
        assert_eq!(
            show(&diag, text),
            "\
error[E0201]: unknown name `y`
 --> a.te:2:13
  |
2 |     let x = y
  |             ^ here
  |
  = note: known is nothing
  = help: declare `y`
note: in this kernel
 --> a.te:1:8
  |
1 | kernel f() {
  |        ^
"
        );
        assert!(render(&diag, &sources(text), true).contains("\u{1b}["));
        let global = Diag::global("E0120", "cannot read `x`").help("try");
        assert_eq!(show(&global, ""), "error[E0120]: cannot read `x`\n |\n = help: try\n");
    }

    #[test]
    fn a_span_of_several_lines_is_marked() {
        let text = "let x = (\n    a\n)\n";
        let shown = show(&Diag::new("E0201", span(8, 17), "too deep"), text);
        assert!(shown.contains("1 |   let x = (\n") && shown.contains("3 | | )\n"), "{shown}");
    }

    #[test]
    fn carets_are_right_after_tabs_and_wide_characters() {
        let shown = show(&Diag::new("E0201", span(6, 7), "no"), "\té = x\n");
        assert!(shown.contains("a.te:1:6\n"), "{shown}");
        assert!(shown.contains("1 |     é = x\n  |         ^\n"), "{shown}");
    }

    #[test]
    fn long_lines_are_cut() {
        let line = format!("{}!{}", "x".repeat(5_000_000), "y".repeat(5_000_000));
        let text = format!("{}{line}\n", "# comment\n".repeat(100_000));
        let at = 1_000_000 + 5_000_000;
        let shown = show(&Diag::new("E0101", span(at, at + 1), "no"), &text);
        assert!(shown.contains("a.te:100001:5000001\n"), "{shown}");
        assert!(
            shown.contains("...xxx") && shown.contains("yyy...") && shown.len() < 600,
            "{shown}"
        );
        let everything = show(&Diag::new("E0101", span(0, text.len()), "no"), &text);
        assert!(everything.contains("1 | # comment\n  | ^"), "{everything}");
        assert!(everything.len() < 600);
    }

    #[test]
    fn rendering_never_panics() {
        for text in ["", "\n", "a", "é\r\n\r\nb", "\t\u{0}\u{202e}\u{200b}", "日本語\n\n"] {
            for start in 0..=text.len() + 2 {
                for end in 0..=text.len() + 2 {
                    let diag = Diag::new("E0101", span(start, end), "m")
                        .related(span(end, start), "r")
                        .note("")
                        .help("a\nb");
                    assert!(show(&diag, text).contains("a.te:"));
                }
            }
        }
        let elsewhere = Diag::new("E0101", Span { file: 7, start: 0, end: 1 }, "m");
        assert_eq!(show(&elsewhere, ""), "error[E0101]: m\n");
    }
}

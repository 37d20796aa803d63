//! Diagnostics as text: `file:line:column`, the source line, a caret, notes, help.

use super::{Diag, Sources};

/// The text of one diagnostic, with a final newline; ANSI colours if `color`.
pub fn render(diag: &Diag, sources: &Sources, color: bool) -> String {
    let _ = (sources, color);
    format!("{diag}\n")
}

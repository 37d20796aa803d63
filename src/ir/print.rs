//! The loop IR as text.

use super::{Expr, Kernel};

/// How much is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// The pseudo-C of LANGUAGE.md, section 5.
    Simple,
    /// Everything: parameters, types, scopes.
    Full,
}

/// A kernel.
pub fn print_kernel(kernel: &Kernel, style: Style) -> String {
    let _ = (kernel, style);
    String::new()
}

/// An expression in the simple style, for messages. Names may clash.
pub fn print_expr(expr: &Expr) -> String {
    format!("{expr:?}")
}

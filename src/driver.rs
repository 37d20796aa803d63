//! The compiler as a list.

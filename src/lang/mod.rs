//! From text to syntax tree. No names are resolved here.

pub mod ast;
mod intrinsics;
mod library;
mod parse;
mod source;

pub use intrinsics::intrinsics;
pub use library::LIBRARY;
pub use parse::{ParsedLines, parse_file};
pub use source::{Imported, Loader, Program, load_program};

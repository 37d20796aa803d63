//! From text to syntax tree. No names are resolved here.

pub mod ast;
mod library;
mod parse;
mod source;

pub use library::{LIBRARY, intrinsics};
pub use parse::parse_file;
pub use source::{Imported, Loader, Program, load_program};

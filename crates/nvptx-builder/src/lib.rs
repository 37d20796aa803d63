#![doc = include_str!("../README.md")]

mod entry;
mod error;
mod module;
mod names;
mod needs;
mod ops;
mod reg;
mod target;
mod ty;

pub use entry::Entry;
pub use error::{Error, ErrorKind, Errors};
pub use module::{Module, Ptx};
pub use needs::{Feature, Needs};
pub use ops::*;
pub use reg::{Address, Guard, Label, Operand, Reg, Source, Space, Symbol};
pub use target::{Target, UnknownTarget, Variant, Version};
pub use ty::*;

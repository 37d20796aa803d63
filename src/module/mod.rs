//! Modules: linking, archives, manifest, header. The only code beside `cli` that writes files.

pub mod link;
pub mod load;

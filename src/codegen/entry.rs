//! The entry points of ABI.md.

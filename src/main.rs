//! The `tec` binary.

fn main() {}

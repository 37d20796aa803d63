//! `tec`: an ahead-of-time compiler for tensor expressions. Start at `docs/ARCHITECTURE.md`.

pub mod diag;
pub mod target;

pub mod lang;
pub mod te;

pub mod ir;
pub mod schedule;
pub mod simd_ops;

pub mod lower;

pub mod codegen;
pub mod module;
pub mod network;

pub mod tune;

pub mod driver;
pub mod emulate;

pub mod cli;

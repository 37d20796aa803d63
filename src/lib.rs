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
#[cfg(feature = "emulator")]
pub mod emulate;

pub mod compile;

#[cfg(feature = "cli")]
pub mod cli;

/// The level at which this crate was optimised, as Cargo writes it: `0` is many times slower than
/// `2` or `3`.
pub const OPT_LEVEL: &str = env!("TEC_OPT_LEVEL");

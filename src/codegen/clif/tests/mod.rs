//! Kernels built by hand, compiled, linked and run in this process.

mod harness;
mod loops;
mod ops;

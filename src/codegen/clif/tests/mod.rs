//! Kernels built by hand, compiled, linked and run in this process.

mod harness;
mod limits;
mod loops;
mod ops;
mod random;
mod vectors;
mod wide;
mod wide_nests;

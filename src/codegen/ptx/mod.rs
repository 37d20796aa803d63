//! The PTX back end: kernels for NVIDIA GPUs.
//!
//! [`launch`] says what comes out of it.

pub mod launch;

pub use launch::{Launch, LaunchParam, PtxKernel, PtxModule, Workspace};

//! Every test that needs no harness of its own, in one program that is linked once and runs its
//! tests in parallel. The modules are the files beside this one. Programs of their own are `golden`
//! (one test for each file), `fuzz` (long runs on request) and `space` (it counts allocations).
//!
//! `cargo test --test suite ptx::` runs the tests of one module.

mod amx;
mod bench;
mod build_tools;
mod cache;
mod cli;
mod copies;
mod cuda;
mod divide;
mod docs;
mod dot;
mod fast_math;
mod gpu;
mod gpu_model;
mod help;
mod hostile_params;
mod launches;
mod macos;
mod math;
mod measure;
mod memory;
mod module;
mod networks;
mod notes;
mod options;
mod overlap;
mod passes;
mod prepack;
mod processors;
mod ptx;
mod regions;
mod run;
mod rust_crates;
mod samples;
mod storage;
mod strided;
mod structure;
#[allow(dead_code)]
mod support;
mod syntax;
mod tensor;
mod tidy;
mod tiles;
mod tune;
mod variants;
mod windows;

//! The `tec` binary.

use std::process::ExitCode;

/// Automatic schedules allocate many small expressions: with this allocator they take 15 % less
/// CPU time than with glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tec::cli::main()
}

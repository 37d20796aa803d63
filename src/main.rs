//! The `tec` binary.

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// The passes make and drop millions of small nodes; the allocator of glibc takes a quarter of the
/// time of `--schedule auto`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tec::cli::main()
}

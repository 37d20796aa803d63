//! Refuses constructs that this back end cannot compile before any code is emitted, so that the
//! emitter need not report errors.

use crate::diag::{Diag, Result};
use crate::ir::{ForKind, Kernel, Scope, Stmt, visit};
use crate::target::Target;

/// Returns an error if `kernel` contains a construct that is not supported.
pub(super) fn check_supported(kernel: &Kernel, target: &Target) -> Result<()> {
    let mut finding = None;
    for stmt in [&kernel.checks, &kernel.body] {
        visit::walk_stmt(
            stmt,
            &mut |stmt| {
                if let Some(what) = unsupported_stmt(stmt) {
                    finding.get_or_insert(what);
                }
            },
            &mut |_| {},
        );
    }
    match finding {
        None => Ok(()),
        Some(what) => Err(Box::new(
            Diag::global(
                "E0403",
                format!("kernel `{}` needs {what}, not supported on `{target}`", kernel.name),
            )
            .help("build with `--schedule default`"),
        )),
    }
}

fn unsupported_stmt(stmt: &Stmt) -> Option<&'static str> {
    match stmt {
        Stmt::For { kind: ForKind::Vectorized, .. } => Some("a vectorized loop"),
        Stmt::For { kind: ForKind::Thread(_), .. } => Some("GPU threads"),
        Stmt::Barrier | Stmt::AwaitCopies { .. } | Stmt::CopyGroup { .. } => Some("a GPU barrier"),
        Stmt::Allocate { buffer, .. } if buffer.scope == Scope::Shared => {
            Some("memory shared by GPU threads")
        }
        _ => None,
    }
}

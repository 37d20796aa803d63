//! Refuses, before any code is made, what this back end cannot compile, so that the emitter
//! itself need not fail.

use crate::diag::{Diag, Result};
use crate::ir::{Expr, ExprKind, ForKind, Kernel, Scope, Stmt, visit};
use crate::target::Target;
use std::collections::HashSet;

/// An error that names the kernel and the construct if `kernel` holds one that is not supported.
pub(super) fn check_supported(kernel: &Kernel, target: &Target) -> Result<()> {
    let (mut finding, mut in_expr) = (None, None);
    let mut seen = HashSet::new();
    for stmt in [&kernel.checks, &kernel.body] {
        visit::walk_stmt(
            stmt,
            &mut |stmt| {
                if let Some(what) = unsupported_stmt(stmt) {
                    finding.get_or_insert(what);
                }
            },
            &mut |expr| scan_expr(expr, &mut seen, &mut in_expr),
        );
    }
    match finding.or(in_expr) {
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
        Stmt::Barrier => Some("a GPU barrier"),
        Stmt::Allocate { buffer, .. } if buffer.scope == Scope::Shared => {
            Some("memory shared by GPU threads")
        }
        Stmt::Store { mask: Some(_), .. } => Some("a masked store"),
        _ => None,
    }
}

fn scan_expr(expr: &Expr, seen: &mut HashSet<usize>, finding: &mut Option<&'static str>) {
    if !seen.insert(expr.id()) {
        return;
    }
    let masked = matches!(&expr.kind, ExprKind::Load { mask: Some(_), .. });
    if expr.ty.lanes != 1 {
        finding.get_or_insert("vector operations");
    } else if masked {
        finding.get_or_insert("a masked load");
    }
    visit::for_each_child(expr, &mut |child| scan_expr(child, seen, finding));
}

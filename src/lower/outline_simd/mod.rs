//! Outline SIMD: marks the largest nests with vectors that the SIMD back end can compile.
//!
//! Before: `parallel (i, 0, n) { for (j, 0, m) { C[ramp(…, 1, 16)] = … } }`
//! After:  `parallel (i, 0, n) { simd_kernel { for (j, 0, m) { C[ramp(…, 1, 16)] = … } } }`
//! Needs: one index per access; accumulators in registers (`promote_accumulators`), because a nest
//! allocates its own. Stands before `drop_hints`, `transpose_tiles` and `legalize_vectors`, which
//! treat nests and other statements differently.
//! Ensures: a `simd_kernel` has only operations of `simd_ops` and is as large as possible.
//! Declines: targets without the SIMD back end; parallel loops, assertions, barriers; large
//! allocations; scalar stores at places that are read; nests that are too large for one register
//! allocation. These run on vectors of 16 bytes, or as scalars; [`explain`] lists them with the
//! reason.

mod nest_checker;

use crate::diag::Result;
use crate::ir::print::print_expr;
use crate::ir::visit::{for_each_expr, for_each_stmt, map_stmts};
use crate::ir::{Kernel, Stmt};
use crate::target::Target;
use nest_checker::{NestChecker, has_vectors};

/// Marks the nests of the SIMD back end.
pub fn outline_simd(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let Some(isa) = target.simd() else { return Ok(kernel) };
    let mut checker = NestChecker::new(isa);
    let body = outline(kernel.body, &mut checker);
    Ok(Kernel { body, ..kernel })
}

fn outline(stmt: Stmt, checker: &mut NestChecker) -> Stmt {
    if !has_vectors(&stmt) {
        return stmt;
    }
    match checker.check(&stmt) {
        Ok(()) => Stmt::SimdKernel { body: Box::new(stmt) },
        Err(_) => match stmt {
            Stmt::Block(stmts) => Stmt::Block(outline_block(stmts, checker)),
            other => map_stmts(other, &mut |inner| outline(inner, checker)),
        },
    }
}

/// Makes one nest of consecutive statements.
fn outline_block(stmts: Vec<Stmt>, checker: &mut NestChecker) -> Vec<Stmt> {
    let mut done: Vec<Stmt> = Vec::new();
    let mut run: Vec<Stmt> = Vec::new();
    let close = |run: &mut Vec<Stmt>, done: &mut Vec<Stmt>| {
        let vectors = run.iter().any(has_vectors);
        let mut body = std::mem::take(run);
        match (vectors, body.len()) {
            (false, _) => done.append(&mut body),
            (true, 1) => done.push(Stmt::SimdKernel { body: Box::new(body.remove(0)) }),
            (true, _) => done.push(Stmt::SimdKernel { body: Box::new(Stmt::Block(body)) }),
        }
    };
    for stmt in stmts {
        if checker.check(&stmt).is_ok() {
            run.push(stmt);
            continue;
        }
        close(&mut run, &mut done);
        done.push(outline(stmt, checker));
    }
    close(&mut run, &mut done);
    done
}

/// A vectorized nest, and whether it is outlined.
#[derive(Clone, Debug)]
pub struct Nest {
    /// The stages around it and its first line, as the printer writes it.
    pub head: String,
    /// Why it runs on vectors of 16 bytes; `None` if it is outlined.
    pub reason: Option<String>,
}

/// Returns the vectorized nests of a kernel in textual order, with the decisions of
/// [`outline_simd`].
pub fn explain(kernel: &Kernel, target: &Target) -> Vec<Nest> {
    let mut nests = Vec::new();
    if let Some(isa) = target.simd() {
        explain_stmt(&kernel.body, "", &mut NestChecker::new(isa), &mut nests);
    }
    nests
}

/// Adds the nests of a statement; `stages` names the enclosing stages, each with a colon.
fn explain_stmt(stmt: &Stmt, stages: &str, checker: &mut NestChecker, nests: &mut Vec<Nest>) {
    if !has_vectors(stmt) {
        return;
    }
    let head = || format!("{stages}{}", head_of(stmt));
    match checker.check(stmt) {
        Ok(()) => nests.push(Nest { head: head(), reason: None }),
        Err(reason) => {
            // The innermost declined statement has the most precise reason.
            let before = nests.len();
            let stages = match stmt {
                Stmt::Produce { name, .. } => &format!("{stages}{name}: "),
                _ => stages,
            };
            for_each_stmt(stmt, &mut |inner| explain_stmt(inner, stages, checker, nests));
            let told = nests[before..].iter().any(|nest| nest.reason.is_some());
            let mut own = false;
            for_each_expr(stmt, &mut |expr| own |= expr.ty.lanes > 1);
            if own && !told {
                nests.push(Nest { head: head(), reason: Some(reason) });
            }
        }
    }
}

/// Returns the first line of a statement that is not a name or an allocation.
fn head_of(stmt: &Stmt) -> String {
    match stmt {
        Stmt::Block(stmts) => {
            let first = stmts.iter().find(|stmt| has_vectors(stmt)).or(stmts.first());
            first.map_or(String::new(), head_of)
        }
        Stmt::For { var, min, extent, .. } => {
            format!("for ({}, {}, {})", var.name(), print_expr(min), print_expr(extent))
        }
        Stmt::If { cond, .. } => format!("if ({})", print_expr(cond)),
        Stmt::Store { buffer, indices, .. } => {
            format!("{}[{}] = …", buffer.name, print_expr(&indices[0]))
        }
        Stmt::Let { var, .. } => format!("let {} = …", var.name()),
        Stmt::Allocate { body, .. } => head_of(body),
        Stmt::Produce { name, body } => format!("{name}: {}", head_of(body)),
        Stmt::Tensorize { name, .. } => format!("intrinsic {name}"),
        _ => "a statement".to_string(),
    }
}

//! Injected faults: the fuzzer must find a small mistake in a scheduled kernel within a limited
//! number of programs.

use crate::differential::{self, Interpreted, Verdict};
use crate::run::{Setup, Source};
use tec::driver::{Options, with_stack};
use tec::ir::visit::{map_stmts, rewrite_expr, rewrite_exprs};
use tec::ir::{BinOp, Buffer, Expr, ExprKind, Kernel, Param, Scope, Stmt};
use tec::schedule::{Attach, BoundedSchedule, Relation};
use tec::target::Target;

/// The number of programs within which a bug must be found.
const MAX_PROGRAMS: u64 = 2000;

/// Injects a fault in every program that has a place for it, until it is found.
pub fn find(name: &str, inject: fn(&mut BoundedSchedule) -> bool) {
    let found = with_stack(|| {
        crate::damage::be_quiet();
        (0..MAX_PROGRAMS).find(|number| {
            let program = Source::Scheduled.program(0, *number);
            let setup = Setup { program, options: Options::new(Target::native()) };
            let mut injected = false;
            let result =
                differential::interpret_damaged(&setup.case(), &setup.options(), &mut |bounded| {
                    injected = inject(bounded);
                });
            injected && matches!(result, Err(Verdict::Wrong(..)))
        })
    });
    match found {
        Some(number) => println!("{name}: found by program {number}"),
        None => panic!("{name}: {MAX_PROGRAMS} programs did not find it"),
    }
}

/// Injects a fault into the nests that the SIMD back end compiles, as if the back end had it, in
/// every program that has a place for it, until the results of the machine code differ.
pub fn find_in_code(name: &str, target: &str, inject: fn(&Expr) -> Option<Expr>) {
    let target = Target::parse(target).expect("a target");
    if !crate::support::runs_here(&target, name) {
        return;
    }
    let options = Options::new(target);
    let wrong = |number: &u64| {
        let program = Source::Scheduled.program(0, *number);
        let setup = Setup { program, options: options.clone() };
        let Ok(interpreted) = differential::interpret(&setup.case(), &setup.options()) else {
            return false;
        };
        let mut injected = false;
        let arguments = interpreted.kernel.params.iter().filter_map(|param| match param {
            Param::Tensor { buffer, .. } => Some(buffer.clone()),
            _ => None,
        });
        let arguments: Vec<Buffer> = arguments.collect();
        let body = in_nests(interpreted.kernel.body.clone(), (&arguments, false), &mut |expr| {
            let damaged = inject(&expr);
            injected |= damaged.is_some();
            damaged.unwrap_or(expr)
        });
        if !injected {
            return false;
        }
        let kernel = Kernel { body, ..interpreted.kernel.clone() };
        let damaged = Interpreted { kernel, ..interpreted };
        match differential::link(&[&damaged], &setup.options()) {
            Ok(module) => matches!(differential::call(&damaged, &module), Verdict::Wrong(..)),
            Err(_) => false,
        }
    };
    let found = with_stack(|| {
        crate::damage::be_quiet();
        (0..MAX_PROGRAMS).find(wrong)
    });
    match found {
        Some(number) => println!("{name}: found by program {number}"),
        None => panic!("{name}: {MAX_PROGRAMS} programs did not find it"),
    }
}

/// Rewrites the stores of the SIMD back end's nests to arguments, which have guard bytes. A wrong
/// store to a temporary on the stack could crash the process instead of becoming a finding.
fn in_nests(
    stmt: Stmt,
    (arguments, inside): (&[Buffer], bool),
    f: &mut dyn FnMut(Expr) -> Expr,
) -> Stmt {
    let inside = inside || matches!(stmt, Stmt::SimdKernel { .. });
    match stmt {
        Stmt::Store { ref buffer, .. } if inside && arguments.contains(buffer) => {
            rewrite_exprs(stmt, &mut |expr| rewrite_expr(expr, &mut *f))
        }
        other => map_stmts(other, &mut |stmt| in_nests(stmt, (arguments, inside), f)),
    }
}

/// Widens the mask of a tail by one lane.
pub fn widen_mask(expr: &Expr) -> Option<Expr> {
    let ExprKind::Binary(BinOp::Lt, a, b) = &expr.kind else { return None };
    let counts = matches!(a.kind, ExprKind::Ramp(..)) && matches!(b.kind, ExprKind::Broadcast(_));
    counts.then(|| Expr::binary(BinOp::Le, a.clone(), b.clone()))
}

/// Swaps the operands of a minimum or a maximum, which matters if one is NaN.
pub fn swap_minimum(expr: &Expr) -> Option<Expr> {
    let ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) = &expr.kind else { return None };
    let vector = expr.ty.dtype.is_float() && expr.ty.lanes > 1;
    vector.then(|| Expr::binary(*op, b.clone(), a.clone()))
}

/// Shuffles the wrong column of a tile in registers.
pub fn shuffle_wrongly(expr: &Expr) -> Option<Expr> {
    let ExprKind::Load { buffer, indices, .. } = &expr.kind else { return None };
    let ExprKind::Ramp(base, stride) = &indices[0].kind else { return None };
    let step = stride.as_int().filter(|step| *step > 1 && buffer.scope == Scope::Register)?;
    let (first, row) = (base.as_int()? % step, base.as_int()? / step * step);
    let base = Expr::index((row + (first + 1) % step) as i64);
    let index = Expr::new(indices[0].ty, ExprKind::Ramp(base, stride.clone()));
    Some(Expr::load(buffer, vec![index]))
}

/// Broadcasts the element after the right one.
pub fn broadcast_another(expr: &Expr) -> Option<Expr> {
    let ExprKind::Broadcast(one) = &expr.kind else { return None };
    let ExprKind::Load { buffer, indices, .. } = &one.kind else { return None };
    if buffer.scope == Scope::Register {
        return None;
    }
    let next = Expr::add(indices[0].clone(), Expr::index(1));
    let other = Expr::load(buffer, vec![next]);
    Some(Expr::new(expr.ty, ExprKind::Broadcast(other)))
}

/// Drops the condition of a tail.
pub fn drop_guard(bounded: &mut BoundedSchedule) -> bool {
    let guarded = bounded.bounds.iter_mut().flatten().find(|bounds| !bounds.guards.is_empty());
    guarded.map(|bounds| bounds.guards.pop()).is_some()
}

/// Computes one row too few of an attached stage.
pub fn drop_row(bounded: &mut BoundedSchedule) -> bool {
    for (stage, bounds) in bounded.schedule.stages.iter().zip(&mut bounded.bounds) {
        let (Attach::At { .. }, Some(bounds)) = (stage.attach, bounds) else { continue };
        for leaf in stage.leaves.iter().filter(|leaf| leaf.0 < stage.rank()) {
            let extent = &mut bounds.extents[leaf.0];
            if extent.as_int().is_some_and(|rows| rows > 1) {
                *extent = Expr::binary(BinOp::Sub, extent.clone(), Expr::index(1));
                return true;
            }
        }
    }
    false
}

/// Swaps the quotient and the remainder of a fused axis.
pub fn swap_fused(bounded: &mut BoundedSchedule) -> bool {
    for (stage, bounds) in bounded.schedule.stages.iter().zip(&mut bounded.bounds) {
        let Some(bounds) = bounds else { continue };
        for relation in &stage.relations {
            let Relation::Fuse { parts, .. } = relation else { continue };
            let (a, b) = (parts[0].0, parts[1].0);
            if a < stage.rank() && b < stage.rank() {
                bounds.values.swap(a, b);
                bounds.locals.swap(a, b);
                return true;
            }
        }
    }
    false
}

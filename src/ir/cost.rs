//! Counts the work of a kernel (arithmetic on data, bytes of the arguments), and estimates the
//! number of instructions of a statement.

use super::visit::{Memo, NodeSet, for_each_child, for_each_expr, for_each_stmt, substitute};
use super::{
    BinOp, Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Kernel, Param, Role, Stmt, UnOp, Var,
};
use rustc_hash::FxHashMap;

/// The work of a kernel, as expressions over its run-time integers.
#[derive(Clone, Debug)]
pub struct Work {
    /// The arithmetic operations on data, not on indices. A fused multiply-add counts 2, a math
    /// function 1, a comparison or conversion 0, a choice as its costlier branch.
    pub flops: Expr,
    /// The bytes of all tensor arguments: a lower bound of the memory traffic.
    pub bytes: Expr,
}

/// Counts the work of a kernel. Must run before `expand_math`.
pub fn count_work(kernel: &Kernel) -> Work {
    let bytes = kernel
        .params
        .iter()
        .filter_map(|param| match param {
            Param::Tensor { buffer, .. } => Some(bytes_of(buffer)),
            _ => None,
        })
        .reduce(Expr::add)
        .unwrap_or_else(|| Expr::index(0));
    let facts = super::arith::Facts::new();
    Work {
        flops: super::simplify::simplify_expr(&count_stmt(&kernel.body), &facts),
        bytes: super::simplify::simplify_expr(&bytes, &facts),
    }
}

/// Estimates the number of instructions on data that a statement executes after all passes: loads,
/// stores and operations, scalar or vector. The result contains extents that are not constant, if
/// `known` accepts them; otherwise it is `None`. An inner loop counts as in the first iteration of
/// the outer one. A branch counts as the costlier side, or as the one that can be counted.
pub fn count_steps(stmt: &Stmt, known: &dyn Fn(&Expr) -> bool) -> Option<Expr> {
    Steps { known, first: FxHashMap::default() }.of(stmt)
}

struct Steps<'a> {
    known: &'a dyn Fn(&Expr) -> bool,
    /// The values of the enclosing loop variables in their first iterations.
    first: FxHashMap<Var, Expr>,
}

impl Steps<'_> {
    fn of(&mut self, stmt: &Stmt) -> Option<Expr> {
        let (mut own, mut seen) =
            (u64::from(matches!(stmt, Stmt::Store { .. })), NodeSet::default());
        for_each_expr(stmt, &mut |expr| own += count_nodes(expr, &mut seen));
        let own = Expr::index(own as i64);
        match stmt {
            Stmt::If { then, otherwise: Some(otherwise), .. } => {
                let larger = |a, b| Expr::binary(BinOp::Max, a, b);
                let branch = match (self.of(then), self.of(otherwise)) {
                    (Some(a), Some(b)) => bounded(a, b, i128::max, larger),
                    (a, b) => a.or(b)?,
                };
                Some(bounded(own, branch, i128::saturating_add, Expr::add))
            }
            Stmt::For { var, min, extent, body, .. } => {
                let at_first = |expr: &Expr| substitute(expr, &mut |v| self.first.get(v).cloned());
                let (min, extent) = (at_first(min), at_first(extent));
                if !(self.known)(&extent) {
                    return None;
                }
                self.first.insert(var.clone(), min);
                let steps = self.of(body)?;
                let steps = bounded(own, steps, i128::saturating_add, Expr::add);
                Some(bounded(steps, extent, i128::saturating_mul, Expr::mul))
            }
            _ => {
                let mut steps = Some(own);
                for_each_stmt(stmt, &mut |inner| {
                    let both = steps.take().and_then(|steps| Some((steps, self.of(inner)?)));
                    steps = both.map(|(a, b)| bounded(a, b, i128::saturating_add, Expr::add));
                });
                steps
            }
        }
    }
}

/// Combines two step counts. Constants saturate at `MAX_STEPS`.
fn bounded(
    a: Expr,
    b: Expr,
    numbers: fn(i128, i128) -> i128,
    exprs: fn(Expr, Expr) -> Expr,
) -> Expr {
    const MAX_STEPS: i128 = 1 << 40;
    match (a.as_int(), b.as_int()) {
        (Some(a), Some(b)) => Expr::index(numbers(a, b).clamp(0, MAX_STEPS) as i64),
        _ => exprs(a, b),
    }
}

/// Counts the nodes on data of an expression that are not in `seen`.
fn count_nodes(expr: &Expr, seen: &mut NodeSet) -> u64 {
    if expr.ty.dtype == DType::Index || !seen.insert(expr) {
        return 0;
    }
    let mut count = match &expr.kind {
        ExprKind::Const(_) | ExprKind::Var(_) | ExprKind::Let(..) | ExprKind::Broadcast(_) => 0,
        _ => 1,
    };
    for_each_child(expr, &mut |child| count += count_nodes(child, seen));
    count
}

/// Returns the bytes of the outputs of a kernel.
pub fn output_bytes(kernel: &Kernel) -> Expr {
    let outputs = kernel.params.iter().filter_map(|param| match param {
        Param::Tensor { buffer, role: Role::Output | Role::Inout, .. } => Some(bytes_of(buffer)),
        _ => None,
    });
    outputs.reduce(Expr::add).unwrap_or_else(|| Expr::index(0))
}

fn bytes_of(buffer: &Buffer) -> Expr {
    // Strides add no elements.
    let elements = buffer.shape.iter().cloned().reduce(Expr::mul);
    let elements = elements.unwrap_or_else(|| Expr::index(1));
    Expr::mul(elements, Expr::index(buffer.dtype.bytes() as i64))
}

fn count_stmt(stmt: &Stmt) -> Expr {
    match stmt {
        Stmt::Block(stmts) => sum(stmts.iter().map(count_stmt)),
        Stmt::For { extent, body, kind, .. } => {
            debug_assert!(!matches!(kind, ForKind::Thread(_)), "threads are counted on GPUs");
            let body = count_stmt(body);
            // Without work, an extent that depends on an outer loop must not appear in the result.
            if body.as_int() == Some(0) { body } else { Expr::mul(extent.clone(), body) }
        }
        Stmt::If { then, otherwise, .. } => match otherwise {
            None => count_stmt(then),
            Some(otherwise) => Expr::binary(BinOp::Max, count_stmt(then), count_stmt(otherwise)),
        },
        Stmt::Store { value, .. } => count_expr(value),
        Stmt::Let { value, body, .. } => sum([count_expr(value), count_stmt(body)].into_iter()),
        Stmt::Allocate { body, .. }
        | Stmt::Produce { body, .. }
        | Stmt::Tensorize { body, .. }
        | Stmt::SimdKernel { body }
        | Stmt::CopyGroup { body } => count_stmt(body),
        Stmt::Sort(_)
        | Stmt::Prefetch { .. }
        | Stmt::Assert { .. }
        | Stmt::Barrier
        | Stmt::AwaitCopies { .. } => Expr::index(0),
    }
}

fn sum(terms: impl Iterator<Item = Expr>) -> Expr {
    terms
        .filter(|term| term.as_int() != Some(0))
        .reduce(|a, b| match (a.as_int(), b.as_int()) {
            (Some(x), Some(y)) => Expr::int(DType::Index, x + y),
            _ => Expr::add(a, b),
        })
        .unwrap_or_else(|| Expr::index(0))
}

fn count_expr(expr: &Expr) -> Expr {
    Expr::index(operations(expr, &mut Memo::default()))
}

/// Counts the operations of an expression, those of shared nodes at each use.
fn operations(expr: &Expr, known: &mut Memo<i64>) -> i64 {
    if let Some(count) = known.get(expr) {
        return *count;
    }
    let mut count: i64 = match &expr.kind {
        ExprKind::IfThenElse(c, t, f) => {
            let branches = operations(t, known).max(operations(f, known));
            let count = operations(c, known).saturating_add(branches);
            known.insert(expr, count);
            return count;
        }
        _ if matches!(expr.ty.dtype, DType::Index | DType::Bool) => 0,
        ExprKind::Binary(..) | ExprKind::Unary(UnOp::Sqrt, _) => 1,
        ExprKind::Call(Intrinsic::Fma, _) => 2,
        // A rounding, like a cast.
        ExprKind::Call(Intrinsic::Tf32, _) => 0,
        ExprKind::Call(..) => 1,
        _ => 0,
    };
    for_each_child(expr, &mut |child| count = count.saturating_add(operations(child, known)));
    known.insert(expr, count);
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Scope, Var};

    /// Returns `A[0] = A[0] + 1` in loops, the last one innermost: a load, an addition, a store.
    fn nest(extents: &[Expr]) -> Stmt {
        let a = Buffer::new("A", DType::Float32, vec![Expr::index(64)], Scope::Global);
        let read = Expr::load(&a, vec![Expr::index(0)]);
        let sum = Expr::add(read, Expr::float(DType::Float32, 1.0));
        let store = Stmt::store(&a, vec![Expr::index(0)], sum);
        extents
            .iter()
            .rev()
            .fold(store, |body, extent| Stmt::serial(Var::index("i"), extent.clone(), body))
    }

    #[test]
    fn steps_are_instructions_times_iterations() {
        let steps = |stmt: &Stmt| count_steps(stmt, &|_| true).expect("known").as_int();
        assert_eq!(steps(&nest(&[])), Some(3));
        assert_eq!(steps(&nest(&[Expr::index(5), Expr::index(7)])), Some(105));
        let huge = vec![Expr::index(1 << 40); 4];
        assert_eq!(steps(&nest(&huge)), Some(1 << 40));
    }

    #[test]
    fn unknown_extents_appear_in_the_result() {
        let n = Var::index("n");
        let steps = count_steps(&nest(&[Expr::var(&n), Expr::index(7)]), &|_| true).expect("known");
        assert_eq!(steps.as_int(), None);
        let facts = crate::ir::arith::Facts::new();
        let at = |value: i64| {
            let steps = crate::ir::visit::substitute(&steps, &mut |var| {
                (*var == n).then(|| Expr::index(value))
            });
            crate::ir::simplify::simplify_expr(&steps, &facts).as_int()
        };
        assert_eq!((at(0), at(10)), (Some(0), Some(210)));
    }

    #[test]
    fn a_branch_counts_as_the_side_that_can_be_counted() {
        let n = Var::index("n");
        let branches = |extent: Expr| Stmt::If {
            cond: Expr::lt(Expr::var(&n), Expr::index(9)),
            then: Box::new(nest(&[Expr::index(5)])),
            otherwise: Some(Box::new(nest(&[extent]))),
        };
        let known = |extent: &Expr| extent.as_int().is_some();
        let steps = |stmt: &Stmt| count_steps(stmt, &known).and_then(|steps| steps.as_int());
        let condition = steps(&branches(Expr::index(5))).expect("known") - 15;
        assert_eq!(steps(&branches(Expr::index(7))), Some(21 + condition));
        assert_eq!(steps(&branches(Expr::var(&n))), Some(15 + condition));
        assert_eq!(steps(&nest(&[Expr::var(&n)])), None);
        // A triangular nest counts as the square of its first row.
        let row = Var::index("row");
        let triangle = |body: Stmt| Stmt::serial(row.clone(), Expr::index(6), body);
        let rest = Expr::sub(Expr::index(6), Expr::var(&row));
        let steps = count_steps(&triangle(nest(&[rest])), &|extent| {
            crate::ir::simplify::simplify_expr(extent, &crate::ir::arith::Facts::new())
                .as_int()
                .is_some()
        });
        let steps = crate::ir::simplify::simplify_expr(
            &steps.expect("known"),
            &crate::ir::arith::Facts::new(),
        );
        assert_eq!(steps.as_int(), Some(108));
    }

    /// Random nests with huge, negative, triangular and run-time extents.
    #[test]
    fn counting_never_overflows() {
        let n = Var::index("n");
        let extremes = [0, 1, -1, 7, 1 << 40, i64::MAX - 1, i64::MAX, i64::MIN];
        let mut state = 1u64;
        let mut draw = |most: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % most
        };
        for round in 0..2000 {
            let mut stmt = nest(&[]);
            let loops: Vec<Var> = (0..6).map(|at| Var::index(format!("i{at}").as_str())).collect();
            for (at, var) in loops.iter().enumerate().rev() {
                let outer = Expr::var(if at > 0 { &loops[draw(at)] } else { &n });
                let number = Expr::index(extremes[draw(extremes.len())]);
                let extent = match draw(6) {
                    0 => outer,
                    1 => Expr::sub(number, outer),
                    2 => Expr::mul(Expr::var(&n), number),
                    3 => Expr::binary(BinOp::FloorDiv, outer, Expr::index(1 + draw(9) as i64)),
                    _ => number,
                };
                let min = Expr::index(extremes[draw(extremes.len())]);
                let (kind, body) = (ForKind::Serial, Box::new(stmt.clone()));
                let one = Stmt::For { var: var.clone(), min, extent, kind, body };
                stmt = match draw(4) {
                    0 => Stmt::Block(vec![one, stmt]),
                    1 => {
                        let cond = Expr::lt(Expr::var(&n), Expr::index(9));
                        let otherwise = Some(Box::new(stmt));
                        Stmt::If { cond, then: Box::new(one), otherwise }
                    }
                    _ => one,
                };
            }
            let steps = count_steps(&stmt, &|_| true).expect("everything is known");
            if let Some(steps) = steps.as_int() {
                assert!((0..=1 << 40).contains(&steps), "{round}: {steps}");
            }
            let facts = crate::ir::arith::Facts::new();
            for value in extremes {
                let at = |var: &Var| (*var == n).then(|| Expr::index(value));
                let steps = substitute(&steps, &mut |var| at(var));
                crate::ir::simplify::simplify_expr(&steps, &facts);
            }
        }
    }
}

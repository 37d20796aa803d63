//! Expand math: replaces mathematical functions by fixed sequences of loop IR operations, the same
//! ones on every target, so that results are bit-exact. No library is called.
//!
//! Before: `B[i] = exp(A[i])`
//! After:  `B[i] = (let exp = … in …)`: arithmetic, `fma`, bit operations, `select`, tables
//! Needs: calls on Float32 and Float64 (halves are widened when they are loaded). The last pass,
//! because for the others, mainly `hoist_invariants`, a function is one node.
//! Ensures: no call but `fma` remains, and `scalef` in nests of the SIMD back end; no branches, so
//! that vectors have the same operations.
//! Declines: with `--fast-math`, calls that are one approximating instruction ([`approx`]);
//! products by warps (`ir::warp`), which stay whole.
//!
//! Each function's file states its method; `docs/MATH.md` lists the errors.

mod approx;
mod atan;
mod builder;
mod erf;
mod erf_table;
mod exp;
mod expm1;
mod log;
mod log_table;
mod pow;
mod reduce_angle;
mod rsqrt;
mod sigmoid;
mod sums;
mod tf32;
mod trig;

use crate::diag::Result;
use crate::ir::tile::is_whole_product;
use crate::ir::visit::{Memo, map_children, map_exprs, map_stmts};
use crate::ir::{Expr, ExprKind, Intrinsic, Kernel, Stmt};
use crate::target::{SimdIsa, Target};
use builder::{Builder, Tables, Value};

/// Replaces mathematical functions by their fixed sequences of operations.
pub fn expand_math(mut kernel: Kernel, target: &Target) -> Result<Kernel> {
    let fast = target.gpu.is_some_and(|gpu| gpu.fast_math);
    let mut ctx = Ctx { fast, simd: target.simd(), ..Ctx::default() };
    kernel.checks = ctx.rewrite_stmt(kernel.checks);
    kernel.body = ctx.rewrite_stmt(kernel.body);
    Ok(kernel)
}

/// Expands every call in an expression of a nest of the SIMD back end.
pub fn expand_in_nest(expr: &Expr, isa: SimdIsa) -> Expr {
    Ctx { simd: Some(isa), in_simd_kernel: true, ..Ctx::default() }.rewrite(expr)
}

/// Expands every call but `fma` in `expr`.
pub fn expand_expr(expr: &Expr) -> Expr {
    Ctx::default().rewrite(expr)
}

#[derive(Default)]
struct Ctx {
    /// The results, by node.
    done: Memo<Expr>,
    tables: Tables,
    /// Whether float32 functions are approximated (`--fast-math`).
    fast: bool,
    /// The instruction set of nests of the SIMD back end.
    simd: Option<SimdIsa>,
    /// Whether the statement is in such a nest.
    in_simd_kernel: bool,
}

impl Ctx {
    fn rewrite_stmt(&mut self, stmt: Stmt) -> Stmt {
        if is_whole_product(&stmt) {
            return stmt;
        }
        if let Stmt::SimdKernel { body } = stmt {
            // A node outside may be one of the nest, too, but has other instructions.
            let outside = std::mem::take(&mut self.done);
            self.in_simd_kernel = true;
            let body = Box::new(self.rewrite_stmt(*body));
            (self.in_simd_kernel, self.done) = (false, outside);
            return Stmt::SimdKernel { body };
        }
        let stmt = map_exprs(stmt, &mut |expr| self.rewrite(expr));
        map_stmts(stmt, &mut |inner| self.rewrite_stmt(inner))
    }

    fn rewrite(&mut self, expr: &Expr) -> Expr {
        if let Some(after) = self.done.get(expr) {
            return after.clone();
        }
        let mapped = map_children(expr, &mut |child| self.rewrite(child));
        let after = match &mapped.kind {
            ExprKind::Call(function, args) if !function.is_operation() => {
                self.expand_call(*function, args)
            }
            _ => mapped,
        };
        self.done.insert(expr, after.clone());
        after
    }

    fn expand_call(&mut self, function: Intrinsic, args: &[Expr]) -> Expr {
        let has_scalef = self.in_simd_kernel && self.simd == Some(SimdIsa::Avx512);
        let (name, lanes) = (function.name(), args[0].ty.lanes);
        let builder = Builder::new(name, lanes, has_scalef, self.tables.clone());
        let values: Vec<Value> = args.iter().map(|arg| builder.argument(arg.clone())).collect();
        let x = values[0];
        if let (true, Some(near)) = (self.fast, approx::approximate(function, &values)) {
            return builder.finish(near);
        }
        let result = match function {
            Intrinsic::Exp => exp::exp(x),
            Intrinsic::Exp2 => exp::exp2(x),
            Intrinsic::Expm1 => expm1::expm1(x),
            Intrinsic::Log => log::log(x),
            Intrinsic::Log2 => log::log2(x),
            Intrinsic::Rsqrt => rsqrt::rsqrt(x),
            Intrinsic::Sigmoid => sigmoid::sigmoid(x),
            Intrinsic::Tanh => sigmoid::tanh(x),
            Intrinsic::Erf => erf::erf(x),
            Intrinsic::Sin => trig::sin(x),
            Intrinsic::Cos => trig::cos(x),
            Intrinsic::Tan => trig::tan(x),
            Intrinsic::Atan => atan::atan(x),
            Intrinsic::Pow => pow::pow(x, values[1]),
            Intrinsic::Tf32 => tf32::tf32(x),
            Intrinsic::Fma | Intrinsic::Scalef => {
                crate::bug!("expand_math: {} is not expanded", function.name())
            }
        };
        builder.finish(result)
    }
}

//! Expand math: mathematical functions become fixed sequences of loop IR operations, the same ones
//! on every target, so that results agree to the last bit everywhere. No library is called.
//!
//! Before: `B[i] = exp(A[i])`
//! After:  `B[i] = (let exp = … in …)`: arithmetic, `fma`, bit operations, `select`, tables
//! Needs: calls on Float32 and Float64 (halves are widened where they are loaded).
//! Ensures: no call but `fma` remains; no branches, so vectors are as good as scalars.
//!
//! Each function's file states its method; `docs/MATH.md` lists the errors.

mod atan;
mod builder;
mod erf;
mod erf_table;
mod exp;
mod log;
mod log_table;
mod pow;
mod reduce_angle;
mod rsqrt;
mod sigmoid;
mod sums;
mod trig;

use crate::diag::Result;
use crate::ir::visit::{map_children, rewrite_exprs};
use crate::ir::{Expr, ExprKind, Intrinsic, Kernel};
use crate::target::Target;
use builder::{Builder, Tables, Value};
use std::collections::HashMap;

/// Replaces mathematical functions by their fixed sequences of operations.
pub fn expand_math(mut kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let mut ctx = Ctx::default();
    kernel.checks = rewrite_exprs(kernel.checks, &mut |expr| ctx.rewrite(expr));
    kernel.body = rewrite_exprs(kernel.body, &mut |expr| ctx.rewrite(expr));
    Ok(kernel)
}

/// `expr` with every call but `fma` expanded.
pub fn expand_expr(expr: &Expr) -> Expr {
    Ctx::default().rewrite(expr)
}

#[derive(Default)]
struct Ctx {
    /// What nodes became, by [`Expr::id`]; the node is kept so that its address stays its own.
    done: HashMap<usize, (Expr, Expr)>,
    tables: Tables,
}

impl Ctx {
    fn rewrite(&mut self, expr: &Expr) -> Expr {
        if let Some((_, after)) = self.done.get(&expr.id()) {
            return after.clone();
        }
        let mapped = map_children(expr, &mut |child| self.rewrite(child));
        let after = match &mapped.kind {
            ExprKind::Call(function, args) if *function != Intrinsic::Fma => {
                self.expand_call(*function, args)
            }
            _ => mapped,
        };
        self.done.insert(expr.id(), (expr.clone(), after.clone()));
        after
    }

    fn expand_call(&mut self, function: Intrinsic, args: &[Expr]) -> Expr {
        let builder = Builder::new(function.name(), args[0].ty.lanes, self.tables.clone());
        let values: Vec<Value> = args.iter().map(|arg| builder.argument(arg.clone())).collect();
        let x = values[0];
        let result = match function {
            Intrinsic::Exp => exp::exp(x),
            Intrinsic::Exp2 => exp::exp2(x),
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
            Intrinsic::Fma => crate::bug!("expand_math: fma is not expanded"),
        };
        builder.finish(result)
    }
}

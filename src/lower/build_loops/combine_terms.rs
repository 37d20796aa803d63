//! The statement that combines the running value of an element with the next term.

use crate::ir::visit::{Memo, for_each_child, substitute};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Intrinsic, Stmt, Var};
use crate::te::Reduction;

/// Builds `acc = combine(acc, term)`.
pub(super) fn build_update(
    buffers: &[Buffer],
    reduction: &Reduction,
    indices: &[Expr],
    terms: Vec<Expr>,
) -> Stmt {
    let load = |buffer: &Buffer| {
        let load = Expr::load(buffer, indices.to_vec());
        Expr::cast(buffer.dtype.compute_type(), load)
    };
    let store = |buffer: &Buffer, value: Expr| {
        Stmt::store(buffer, indices.to_vec(), Expr::cast(buffer.dtype, value))
    };
    if reduction.fused {
        let buffer = &buffers[0];
        let ExprKind::Binary(BinOp::Mul, x, y) = &terms[0].kind else {
            crate::bug!("the term of a fused reduction is not a product");
        };
        let value = Expr::call(Intrinsic::Fma, vec![x.clone(), y.clone(), load(buffer)]);
        return store(buffer, value);
    }
    // Operands that the combiner reads more than once become lets; the others are substituted.
    let combiner = &reduction.combiner;
    let olds = buffers.iter().map(load);
    let operands = combiner.lhs.iter().chain(&combiner.rhs).zip(olds.chain(terms));
    let mut lets: Vec<(Var, Expr)> = Vec::new();
    let mut values: Vec<(Var, Expr)> = Vec::new();
    for (var, value) in operands {
        let uses = combiner.result.iter().map(|result| count_uses(result, var)).sum::<usize>();
        if uses > 1 && !is_trivial(&value) {
            let fresh = Var::new(var.name(), value.ty);
            values.push((var.clone(), Expr::var(&fresh)));
            lets.push((fresh, value));
        } else {
            values.push((var.clone(), value));
        }
    }
    let mut results: Vec<Expr> = Vec::new();
    for result in &combiner.result {
        results.push(substitute(result, &mut |var| {
            values.iter().find(|(v, _)| v == var).map(|(_, value)| value.clone())
        }));
    }
    let update = if let [result] = &results[..] {
        store(&buffers[0], result.clone())
    } else {
        store_tuple(buffers, results, &store)
    };
    lets.into_iter().rev().fold(update, |body, (var, value)| Stmt::Let {
        var,
        value,
        body: Box::new(body),
    })
}

/// Stores the components of a tuple after all of them are computed.
fn store_tuple(
    buffers: &[Buffer],
    results: Vec<Expr>,
    store: &dyn Fn(&Buffer, Expr) -> Stmt,
) -> Stmt {
    let vars: Vec<Var> =
        buffers.iter().zip(&results).map(|(b, r)| Var::new(&b.name, r.ty)).collect();
    let stores = buffers.iter().zip(&vars).map(|(b, v)| store(b, Expr::var(v))).collect();
    vars.into_iter().zip(results).rev().fold(Stmt::Block(stores), |body, (var, value)| Stmt::Let {
        var,
        value,
        body: Box::new(body),
    })
}

/// Returns how often an expression uses a variable, by every use of a shared node.
fn count_uses(expr: &Expr, var: &Var) -> usize {
    fn count(expr: &Expr, var: &Var, known: &mut Memo<usize>) -> usize {
        if let Some(uses) = known.get(expr) {
            return *uses;
        }
        let mut uses = usize::from(expr.as_var() == Some(var));
        for_each_child(expr, &mut |child| uses = uses.saturating_add(count(child, var, known)));
        known.insert(expr, uses);
        uses
    }
    count(expr, var, &mut Memo::default())
}

fn is_trivial(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Const(_) | ExprKind::Var(_))
        || matches!(&expr.kind, ExprKind::Cast(x) if x.ty.dtype == DType::Index && is_trivial(x))
}

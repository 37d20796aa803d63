//! Gives a kernel of a network its extents as run-time integers of its own.
//!
//! Before: `Y[c: 8, x_y: (h + 7) // 8 * ((w + 3) // 4)]`, called with `h` and `w`
//! After:  `Y[c: 8, x_y: h_8_w_4]`, called with `(h + 7) // 8 * ((w + 3) // 4)`
//!
//! A kernel in the middle of a network often depends on the sizes of the inputs by a few quotients
//! only. With a name for each, bounds and conditions are short and cheap to prove, and kernels for
//! other layers can be equal. An integer `n` is replaced
//!
//! 1. by `(n + a) // d`, if all that the kernel needs of it are quotients of this one:
//!    `(n + a + b*d) // (q*d)` is `((n + a) // d + b) // q`;
//! 2. then several by an expression of them, if they occur in this expression only. A constant
//!    factor stays, because it tells what divides the extent.

use super::collapse::{replace_tensors, reshaped, tensors};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::simplify::{simplify_expr, value_at};
use crate::ir::visit::{any_expr, for_each_child, mentions, replace_nodes, substitute};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Var};
use crate::te::Graph;
use rustc_hash::FxHashMap;

/// Replaces the run-time integers of a kernel. Returns the value of each new one, in the order of
/// [`Graph::vars`], over the integers of the network.
pub fn own_extents(mut graph: Graph) -> (Graph, Vec<Expr>) {
    let mut values: Vec<Expr> = graph.vars.iter().map(Expr::var).collect();
    for var in graph.vars.clone() {
        if let Some(quotient) = quotient_of(&graph, &var) {
            let own = named(&graph, format!("{}_{}", var.name(), quotient.divisor));
            let value = quotient.value(&var);
            replace(&mut graph, &mut values, (&own, &value), std::slice::from_ref(&var), &|expr| {
                quotient.replaced(expr, &var, &own)
            });
        }
    }
    while let Some(extent) = sole_extent(&graph) {
        let vars: Vec<Var> =
            graph.vars.iter().filter(|var| mentions(&extent, var)).cloned().collect();
        let names: Vec<&str> = vars.iter().map(Var::name).collect();
        let own = named(&graph, names.join("_"));
        replace(&mut graph, &mut values, (&own, &extent), &vars, &|expr| {
            equal(expr, &extent).then(|| Expr::var(&own))
        });
    }
    (graph, values)
}

/// Returns a new integer with a name that no other one of the kernel has: the conditions of
/// schedules name them.
fn named(graph: &Graph, mut name: String) -> Var {
    while graph.vars.iter().any(|var| var.name() == name) {
        name.push('_');
    }
    Var::index(name)
}

/// Calls `f` with each expression of a kernel that may mention run-time integers.
fn for_each_expr(graph: &Graph, f: &mut dyn FnMut(&Expr)) {
    for buffer in tensors(graph) {
        buffer.shape.iter().for_each(&mut *f);
    }
    for stage in &graph.stages {
        for axis in stage.axes.iter().chain(stage.reduce_axes()) {
            f(&axis.min);
            f(&axis.extent);
        }
        let offsets = stage.update.iter().flat_map(|update| &update.offsets);
        offsets.for_each(&mut *f);
        stage.body.for_each_expr(&mut *f);
    }
}

/// Replaces expressions of `old` integers by the integer `own`, whose value over them is `value`.
fn replace(
    graph: &mut Graph,
    values: &mut Vec<Expr>,
    (own, value): (&Var, &Expr),
    old: &[Var],
    replaced: &dyn Fn(&Expr) -> Option<Expr>,
) {
    let facts = Facts::new();
    let rewrite = |expr: &Expr| replace_nodes(expr, &mut |node| replaced(node));
    let rewritten = |expr: &Expr| match old.iter().any(|var| mentions(expr, var)) {
        true => simplify_expr(&rewrite(expr), &facts),
        false => expr.clone(),
    };
    let is_old = |expr: &Expr| old.iter().any(|var| mentions(expr, var));
    let mut new: FxHashMap<Buffer, Buffer> = FxHashMap::default();
    for buffer in tensors(graph) {
        if buffer.shape.iter().any(is_old) {
            let shape = buffer.shape.iter().map(rewritten).collect();
            new.insert(buffer.clone(), reshaped(&buffer, shape));
        }
    }
    for stage in &mut graph.stages {
        for axis in stage.axes.iter_mut().chain(stage.body.axes_mut()) {
            (axis.min, axis.extent) = (rewritten(&axis.min), rewritten(&axis.extent));
        }
        let offsets = stage.update.iter_mut().flat_map(|update| &mut update.offsets);
        offsets.for_each(|offset| *offset = rewritten(offset));
        stage.body.map_exprs(&mut |expr| rewrite(expr));
        stage.load_spans.clear();
    }
    replace_tensors(graph, &new, &|_, indices| indices.to_vec());
    // An assumption about something else of an integer is not known in this kernel.
    for (condition, ..) in &mut graph.assumes {
        *condition = rewritten(condition);
    }
    graph.assumes.retain(|(condition, ..)| !is_old(condition));
    for call in &mut graph.estimates {
        let size = value_at(value, &|var| call.value(var));
        call.values.retain(|(var, _)| !old.contains(var));
        call.values.extend(size.map(|size| (own.clone(), size)));
    }
    graph.estimates.retain(|call| !call.values.is_empty());
    // The new integer has the place of the first old one.
    let at = graph.vars.iter().position(|var| *var == old[0]).expect("an integer of the kernel");
    let of_network = |var: &Var| {
        let at = graph.vars.iter().position(|own| own == var)?;
        Some(values[at].clone())
    };
    let value = simplify_expr(&substitute(value, &mut |var| of_network(var)), &facts);
    (graph.vars[at], values[at]) = (own.clone(), value);
    let kept: Vec<bool> = graph.vars.iter().map(|var| !old.contains(var)).collect();
    let mut keep = kept.iter();
    graph.vars.retain(|_| *keep.next().expect("one for each integer"));
    let mut keep = kept.iter();
    values.retain(|_| *keep.next().expect("one for each integer"));
}

/// `(n + offset) // divisor`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Quotient {
    offset: i64,
    divisor: i64,
}

impl Quotient {
    /// Returns the quotient of an integer by a constant that an expression is, if it is one.
    fn of(expr: &Expr, var: &Var) -> Option<Quotient> {
        let ExprKind::Binary(BinOp::FloorDiv, sum, divisor) = &expr.kind else { return None };
        let literal = |expr: &Expr| i64::try_from(expr.as_int()?).ok();
        let divisor = literal(divisor).filter(|divisor| *divisor > 1)?;
        let offset = match &sum.kind {
            ExprKind::Var(own) if own == var => 0,
            ExprKind::Binary(BinOp::Add, own, offset) if own.as_var() == Some(var) => {
                literal(offset)?
            }
            ExprKind::Binary(BinOp::Sub, own, offset) if own.as_var() == Some(var) => {
                literal(offset)?.checked_neg()?
            }
            _ => return None,
        };
        Some(Quotient { offset, divisor })
    }

    fn value(&self, var: &Var) -> Expr {
        let sum = Expr::add(Expr::var(var), Expr::index(self.offset));
        let quotient = Expr::binary(BinOp::FloorDiv, sum, Expr::index(self.divisor));
        simplify_expr(&quotient, &Facts::new())
    }

    /// The numbers `(b, q)` with which `other` is `(self + b) // q`.
    fn relation(&self, other: Quotient) -> Option<(i64, i64)> {
        let between = other.offset.checked_sub(self.offset)?;
        let exact = other.divisor % self.divisor == 0 && between % self.divisor == 0;
        exact.then(|| (between / self.divisor, other.divisor / self.divisor))
    }

    /// Returns an expression of `own`, which has the value of `self`, if `expr` is a quotient.
    fn replaced(&self, expr: &Expr, var: &Var, own: &Var) -> Option<Expr> {
        let (b, q) = self.relation(Quotient::of(expr, var)?)?;
        let sum = Expr::add(Expr::var(own), Expr::index(b));
        Some(Expr::binary(BinOp::FloorDiv, sum, Expr::index(q)))
    }
}

/// Returns the quotient of an integer from which a kernel can compute all that it needs of it.
fn quotient_of(graph: &Graph, var: &Var) -> Option<Quotient> {
    let (mut quotients, mut is_alone) = (Vec::new(), true);
    fn collect(expr: &Expr, var: &Var, quotients: &mut Vec<Quotient>, is_alone: &mut bool) {
        match Quotient::of(expr, var) {
            Some(quotient) if quotients.contains(&quotient) => {}
            Some(quotient) => quotients.push(quotient),
            None => {
                *is_alone &= expr.as_var() != Some(var);
                for_each_child(expr, &mut |child| collect(child, var, quotients, is_alone));
            }
        }
    }
    for_each_expr(graph, &mut |expr| {
        if mentions(expr, var) {
            collect(expr, var, &mut quotients, &mut is_alone);
        }
    });
    let least = quotients.iter().copied().min_by_key(|quotient| quotient.divisor)?;
    let related = quotients.iter().all(|other| least.relation(*other).is_some());
    (is_alone && related).then_some(least)
}

/// Returns an extent, without its constant factor, whose integers occur nowhere else; none if it is
/// an integer alone.
fn sole_extent(graph: &Graph) -> Option<Expr> {
    let mut all: Vec<Expr> = Vec::new();
    for_each_expr(graph, &mut |expr| collect_extents(graph, expr, &mut all));
    let vars = |extent: &Expr| -> Vec<&Var> {
        graph.vars.iter().filter(|var| mentions(extent, var)).collect()
    };
    let is_sole = |extent: &&Expr| {
        let own = vars(extent);
        let elsewhere =
            |other: &&Expr| !equal(other, extent) && own.iter().any(|var| mentions(other, var));
        extent.as_var().is_none() && !all.iter().any(|other| elsewhere(&other))
    };
    all.iter().find(is_sole).cloned()
}

/// Collects the largest expressions of run-time integers alone, without constant factors.
fn collect_extents(graph: &Graph, expr: &Expr, all: &mut Vec<Expr>) {
    let is_integer = |var: &Var| graph.vars.contains(var) && var.ty().dtype == DType::Index;
    let is_any = any_expr(expr, &mut |node| node.as_var().is_some_and(is_integer));
    if !is_any {
        return;
    }
    let is_extent = |expr: &Expr| {
        let foreign = |node: &Expr| match &node.kind {
            ExprKind::Var(var) => !is_integer(var),
            ExprKind::Const(_) => false,
            ExprKind::Binary(op, ..) => {
                !matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::FloorDiv)
            }
            _ => true,
        };
        expr.ty.dtype == DType::Index && !any_expr(expr, &mut |node| foreign(node))
    };
    match &expr.kind {
        ExprKind::Binary(BinOp::Mul, extent, factor)
            if factor.as_int().is_some() && is_extent(extent) =>
        {
            collect_extents(graph, extent, all);
        }
        _ if is_extent(expr) => {
            if !all.iter().any(|known| equal(known, expr)) {
                all.push(expr.clone());
            }
        }
        _ => for_each_child(expr, &mut |child| collect_extents(graph, child, all)),
    }
}

//! Hoist invariants: what a loop computes anew in every iteration is computed before it, and what
//! a statement computes twice is computed once.
//!
//! Before: `for j { Y[i, j] = exp(X[i, j])/sqrt(V[i]) + exp(X[i, j]) }`
//! After:  `let a = sqrt(V[i]); for j { let b = exp(X[i, j]); Y[i, j] = b/a + b }`
//! In a launch nothing leaves the loops over indices, and what other threads may have written when
//! they met in the loop is not read before it.
//! Needs: one index per access.  Ensures: nothing is evaluated that the program did not evaluate
//! except operations that cannot trap.  Breaks: simplified form.
//! Placed before `expand_math`, where a function is still one node. Index arithmetic is left to
//! the back end.

use crate::diag::Result;
use crate::ir::equal::{ExprHasher, equal};
use crate::ir::launch::has_barrier;
use crate::ir::visit::{
    Memo, for_each_child, map_children, map_exprs, map_stmts, mentions_any, reads_memory, walk_stmt,
};
use crate::ir::warp::is_warp_product;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Kernel, Param, Scope, Stmt, UnOp, Var};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// Hoists out of every loop, innermost first, then shares within statements.
pub fn hoist_invariants(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let inputs = kernel.params.iter().filter_map(|param| match param {
        Param::Tensor { buffer, output: false, .. } => Some(buffer.clone()),
        _ => None,
    });
    let mut names = Names { last: 0, inputs: inputs.collect() };
    let body = hoist(kernel.body, &mut names);
    Ok(Kernel { body, ..kernel })
}

/// Numbers for the new variables, in the manner of TVM's `cse_var_1`; and what nothing writes.
struct Names {
    last: usize,
    inputs: FxHashSet<Buffer>,
}

impl Names {
    fn fresh(&mut self, value: &Expr) -> Var {
        self.last += 1;
        Var::new(format!("cse_var_{}", self.last), value.ty)
    }
}

fn hoist(stmt: Stmt, names: &mut Names) -> Stmt {
    if is_warp_product(&stmt) {
        return stmt;
    }
    let stmt = map_stmts(stmt, &mut |inner| hoist(inner, names));
    match stmt {
        Stmt::For { ref kind, .. } if kind.gpu_index().is_none() => hoist_loop(stmt, names),
        Stmt::Store { .. } => share_in_store(stmt, names),
        other => other,
    }
}

fn wrap_lets(lets: Vec<(Var, Expr)>, body: Stmt) -> Stmt {
    lets.into_iter().rev().fold(body, |body, (var, value)| Stmt::Let {
        var,
        value,
        body: Box::new(body),
    })
}

fn hoist_loop(stmt: Stmt, names: &mut Names) -> Stmt {
    let Stmt::For { var, min, extent, kind, body } = stmt else {
        crate::bug!("hoist_loop of another statement");
    };
    let mut hoister = Hoister::new(&var, &body, names);
    let body = hoister.visit_stmt(*body);
    let lets = hoister.lets;
    let reads = lets.iter().any(|(_, value)| reads_memory(value));
    let cond = Expr::lt(Expr::index(0), extent.clone());
    let runs = extent.as_int().is_some_and(|extent| extent > 0);
    let nest = Stmt::For { var, min, extent, kind, body: Box::new(body) };
    let nest = wrap_lets(lets, nest);
    // What a loop without iterations does not read may lie outside its buffer.
    if reads && !runs {
        return Stmt::If { cond, then: Box::new(nest), otherwise: None };
    }
    nest
}

/// Takes invariant expressions out of one loop's body.
struct Hoister<'a> {
    /// Variables bound by the loop or inside it.
    bound: FxHashSet<Var>,
    /// Buffers that the loop writes.
    stored: FxHashSet<Buffer>,
    /// Threads meet in the loop.
    meets: bool,
    /// By node; the expression keeps the address taken.
    known: Memo<Traits>,
    lets: Vec<(Var, Expr)>,
    /// Positions in `lets` by hash of the value.
    by_hash: FxHashMap<u64, Vec<usize>>,
    hasher: ExprHasher,
    names: &'a mut Names,
}

/// What matters of an expression to one loop.
#[derive(Clone, Copy)]
struct Traits {
    invariant: bool,
    reads: bool,
    /// Loads, divisions, roots and functions; additions and the like the back end hoists itself.
    worth: bool,
}

impl<'a> Hoister<'a> {
    fn new(var: &Var, body: &Stmt, names: &'a mut Names) -> Hoister<'a> {
        let mut bound = FxHashSet::from_iter([var.clone()]);
        let mut stored = FxHashSet::default();
        walk_stmt(
            body,
            &mut |stmt| match stmt {
                Stmt::For { var, .. } | Stmt::Let { var, .. } => {
                    bound.insert(var.clone());
                }
                Stmt::Store { buffer, .. } | Stmt::Allocate { buffer, .. } => {
                    stored.insert(buffer.clone());
                }
                _ => {}
            },
            &mut |_| {},
        );
        let (known, by_hash) = (Memo::default(), FxHashMap::default());
        let (lets, hasher) = (Vec::new(), ExprHasher::default());
        let meets = has_barrier(body);
        Hoister { bound, stored, meets, known, lets, by_hash, hasher, names }
    }

    /// Whether other threads may write a buffer while the loop runs.
    fn is_changed(&self, buffer: &Buffer) -> bool {
        let common = matches!(buffer.scope, Scope::Shared | Scope::Global);
        self.stored.contains(buffer) || self.meets && common && !self.names.inputs.contains(buffer)
    }

    /// Only statements that every iteration runs; what an inner loop or branch could give up it
    /// has given up already.
    fn visit_stmt(&mut self, stmt: Stmt) -> Stmt {
        let stmt = map_exprs(stmt, &mut |expr| self.visit_expr(expr, false));
        match stmt {
            // A nest is compiled on its own: nothing in it becomes a value outside. What is one
            // instruction stays whole.
            Stmt::For { .. }
            | Stmt::If { .. }
            | Stmt::SimdKernel { .. }
            | Stmt::Tensorize { .. } => stmt,
            other => map_stmts(other, &mut |inner| self.visit_stmt(inner)),
        }
    }

    /// `lazy`: the expression might not be evaluated, so nothing that reads memory moves.
    fn visit_expr(&mut self, expr: &Expr, lazy: bool) -> Expr {
        let traits = self.traits(expr);
        // A ramp says that elements are consecutive, and a vector of indices how many lanes a mask
        // has; a variable does not.
        let is_ramp = matches!(expr.kind, ExprKind::Ramp(..))
            || expr.ty.dtype == DType::Index && expr.ty.lanes > 1;
        if traits.invariant && traits.worth && !is_ramp && !(lazy && traits.reads) {
            return self.replace(expr);
        }
        if traits.invariant && !is_ramp && !(lazy && traits.worth) {
            return expr.clone();
        }
        match &expr.kind {
            ExprKind::IfThenElse(c, t, f) => Expr::new(
                expr.ty,
                ExprKind::IfThenElse(
                    self.visit_expr(c, lazy),
                    self.visit_expr(t, true),
                    self.visit_expr(f, true),
                ),
            ),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                Expr::binary(*op, self.visit_expr(a, lazy), self.visit_expr(b, true))
            }
            ExprKind::Let(var, value, body) => {
                self.bound.insert(var.clone());
                self.known.clear();
                let value = self.visit_expr(value, lazy);
                Expr::let_in(var.clone(), value, self.visit_expr(body, lazy))
            }
            _ => map_children(expr, &mut |child| self.visit_expr(child, lazy)),
        }
    }

    fn replace(&mut self, expr: &Expr) -> Expr {
        let hash = self.hasher.hash(expr);
        let known = self.by_hash.entry(hash).or_default();
        if let Some(index) = known.iter().find(|index| equal(&self.lets[**index].1, expr)) {
            return Expr::var(&self.lets[*index].0);
        }
        known.push(self.lets.len());
        let var = self.names.fresh(expr);
        self.lets.push((var.clone(), expr.clone()));
        Expr::var(&var)
    }

    fn traits(&mut self, expr: &Expr) -> Traits {
        if let Some(traits) = self.known.get(expr) {
            return *traits;
        }
        let mut traits = match &expr.kind {
            ExprKind::Var(var) | ExprKind::Let(var, ..) => {
                Traits { invariant: !self.bound.contains(var), reads: false, worth: false }
            }
            ExprKind::Load { buffer, .. } => {
                Traits { invariant: !self.is_changed(buffer), reads: true, worth: true }
            }
            _ => Traits { invariant: true, reads: false, worth: is_costly(expr) },
        };
        for_each_child(expr, &mut |child| {
            let inner = self.traits(child);
            traits.invariant &= inner.invariant;
            traits.reads |= inner.reads;
            traits.worth |= inner.worth;
        });
        self.known.insert(expr, traits);
        traits
    }
}

fn is_costly(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Call(..) | ExprKind::Unary(UnOp::Sqrt, _) => true,
        ExprKind::Binary(BinOp::Div | BinOp::FloorDiv | BinOp::FloorMod, _, divisor) => {
            divisor.as_int().is_none_or(|divisor| divisor.count_ones() != 1)
        }
        _ => false,
    }
}

/// Gives a variable to each costly expression that the statement evaluates more than once.
fn share_in_store(stmt: Stmt, names: &mut Names) -> Stmt {
    let Stmt::Store { buffer, indices, value, mask, nontemporal } = stmt else {
        crate::bug!("share_in_store of another statement");
    };
    let mut lets = Vec::new();
    let value = share_in_expr(&value, names, &mut lets);
    wrap_lets(lets, Stmt::Store { buffer, indices, value, mask, nontemporal })
}

fn share_in_expr(expr: &Expr, names: &mut Names, lets: &mut Vec<(Var, Expr)>) -> Expr {
    let mut sharer = Sharer::default();
    sharer.count(expr, false, &FxHashSet::default());
    if sharer.seen.iter().all(|seen| !seen.is_shared()) {
        return expr.clone();
    }
    let shared = sharer.replace(expr, names);
    for seen in sharer.seen {
        if let Some(var) = seen.var {
            let value = share_in_expr(&seen.expr, names, lets);
            lets.push((var, value));
        }
    }
    shared
}

/// An expression met while counting.
struct Seen {
    expr: Expr,
    always: usize,
    total: usize,
    var: Option<Var>,
}

impl Seen {
    fn is_shared(&self) -> bool {
        self.always > 0 && self.total > 1
    }
}

#[derive(Default)]
struct Sharer {
    hasher: ExprHasher,
    by_hash: FxHashMap<u64, Vec<usize>>,
    seen: Vec<Seen>,
}

impl Sharer {
    fn find(&mut self, expr: &Expr) -> Option<usize> {
        let hash = self.hasher.hash(expr);
        let candidates = self.by_hash.get(&hash)?;
        candidates.iter().copied().find(|index| equal(&self.seen[*index].expr, expr))
    }

    /// Counts the costly expressions, those that use a variable of an inner `let` excepted.
    fn count(&mut self, expr: &Expr, lazy: bool, inner: &FxHashSet<Var>) {
        if is_costly(expr) && (inner.is_empty() || !mentions_any(expr, inner)) {
            let index = self.find(expr).unwrap_or_else(|| {
                let hash = self.hasher.hash(expr);
                self.by_hash.entry(hash).or_default().push(self.seen.len());
                self.seen.push(Seen { expr: expr.clone(), always: 0, total: 0, var: None });
                self.seen.len() - 1
            });
            self.seen[index].total += 1;
            self.seen[index].always += usize::from(!lazy);
            if self.seen[index].total > 1 && self.seen[index].always > 0 {
                return;
            }
        }
        match &expr.kind {
            ExprKind::IfThenElse(c, t, f) => {
                self.count(c, lazy, inner);
                self.count(t, true, inner);
                self.count(f, true, inner);
            }
            ExprKind::Binary(BinOp::And | BinOp::Or, a, b) => {
                self.count(a, lazy, inner);
                self.count(b, true, inner);
            }
            ExprKind::Let(var, value, body) => {
                self.count(value, lazy, inner);
                let mut inner = inner.clone();
                inner.insert(var.clone());
                self.count(body, lazy, &inner);
            }
            _ => for_each_child(expr, &mut |child| {
                self.count(child, lazy, inner);
            }),
        }
    }

    /// Replaces the outermost shared expressions by variables.
    fn replace(&mut self, expr: &Expr, names: &mut Names) -> Expr {
        if is_costly(expr)
            && let Some(index) = self.find(expr)
            && self.seen[index].is_shared()
        {
            if self.seen[index].var.is_none() {
                self.seen[index].var = Some(names.fresh(expr));
            }
            let var = self.seen[index].var.as_ref().expect("just set");
            return Expr::var(var);
        }
        map_children(expr, &mut |child| self.replace(child, names))
    }
}

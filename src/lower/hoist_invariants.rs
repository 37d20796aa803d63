//! Hoist invariants: moves invariant computations in front of the loop, and computes repeated
//! expressions of consecutive stores once.
//!
//! Before: `for j { Y[i, j] = exp(X[i, j])/sqrt(V[i]) + exp(X[i, j]) }`
//! After:  `let a = sqrt(V[i]); for j { let b = exp(X[i, j]); Y[i, j] = b/a + b }`
//! Needs: one index per access; vectors of the target's length (`legalize_vectors`), because a
//! variable that holds a longer vector would be in memory. Stands before `expand_math`, while a
//! function is still one node.
//! Ensures: nothing new is evaluated except operations that cannot trap.  Breaks: simplified form.
//! Declines: index arithmetic and cheap operations, which the back ends hoist themselves; anything
//! out of the loops over GPU indices; loads in loops with barriers from buffers that other threads
//! may write; everything out of a `simd_kernel` or an intrinsic, which stay whole.

use crate::diag::Result;
use crate::ir::equal::{ExprHasher, equal};
use crate::ir::launch::has_barrier;
use crate::ir::tile::is_whole_product;
use crate::ir::visit::{
    Memo, for_each_child, map_children, map_exprs, map_stmts, mentions_any, reads_any,
    reads_memory, stored_buffers, walk_stmt,
};
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, Kernel, Param, Role, Scope, Stmt, UnOp, Var,
};
use crate::simd_ops::lane_offsets;
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// Hoists out of every loop, innermost first, then shares within statements.
pub fn hoist_invariants(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let inputs = kernel.params.iter().filter_map(|param| match param {
        Param::Tensor { buffer, role: Role::Input, .. } => Some(buffer.clone()),
        _ => None,
    });
    let mut names = Names { last: 0, inputs: inputs.collect() };
    let body = share(hoist(kernel.body, &mut names), &mut names);
    Ok(Kernel { body, ..kernel })
}

/// The names of new variables, `cse_var_1` as in TVM, and the inputs, which nothing writes.
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
    if is_whole_product(&stmt) {
        return stmt;
    }
    let stmt = map_stmts(stmt, &mut |inner| hoist(inner, names));
    match stmt {
        Stmt::For { ref kind, .. } if kind.gpu_index().is_none() => hoist_loop(stmt, names),
        other => other,
    }
}

/// Shares within each run of consecutive stores, such as the copies of an unrolled loop's body.
fn share(stmt: Stmt, names: &mut Names) -> Stmt {
    if is_whole_product(&stmt) {
        return stmt;
    }
    let stmts = match stmt {
        Stmt::Store { .. } => return share_in_stores(vec![stmt], names),
        Stmt::Block(stmts) => stmts,
        other => return map_stmts(other, &mut |inner| share(inner, names)),
    };
    let (mut done, mut run) = (Vec::new(), Vec::new());
    for stmt in stmts {
        if matches!(stmt, Stmt::Store { .. }) {
            run.push(stmt);
            continue;
        }
        if !run.is_empty() {
            done.push(share_in_stores(std::mem::take(&mut run), names));
        }
        done.push(share(stmt, names));
    }
    if !run.is_empty() {
        done.push(share_in_stores(run, names));
    }
    Stmt::Block(done)
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
    // If the loop has no iterations, the element may lie outside of the buffer.
    if reads && !runs {
        return Stmt::If { cond, then: Box::new(nest), otherwise: None };
    }
    nest
}

/// Moves invariant expressions out of the body of one loop.
struct Hoister<'a> {
    /// Variables bound by the loop or inside it.
    bound: FxHashSet<Var>,
    /// Buffers that the loop writes.
    stored: FxHashSet<Buffer>,
    /// Whether the loop has barriers.
    has_barriers: bool,
    /// The traits of each node.
    known: Memo<Traits>,
    /// The results of [`Hoister::visit_expr`] for expressions that are always evaluated, and for
    /// those that might not be.
    visited: [Memo<Expr>; 2],
    lets: Vec<(Var, Expr)>,
    /// Positions in `lets` by hash of the value.
    by_hash: FxHashMap<u64, Vec<usize>>,
    hasher: ExprHasher,
    names: &'a mut Names,
}

/// The properties of an expression in one loop.
#[derive(Clone, Copy)]
struct Traits {
    invariant: bool,
    reads: bool,
    /// Whether it has a load, division, root or function; the back end hoists cheaper operations
    /// itself.
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
        let has_barriers = has_barrier(body);
        let visited = Default::default();
        Hoister { bound, stored, has_barriers, known, visited, lets, by_hash, hasher, names }
    }

    /// Whether other threads may write a buffer while the loop runs.
    fn is_changed(&self, buffer: &Buffer) -> bool {
        let common = matches!(buffer.scope, Scope::Shared | Scope::Global);
        self.stored.contains(buffer)
            || self.has_barriers && common && !self.names.inputs.contains(buffer)
    }

    /// Visits the statements that every iteration runs. Invariants of inner loops have been moved
    /// out before; those of branches stay.
    fn visit_stmt(&mut self, stmt: Stmt) -> Stmt {
        let stmt = map_exprs(stmt, &mut |expr| self.visit_expr(expr, false));
        match stmt {
            // A nest is compiled as a function of its own, and an intrinsic is one instruction.
            Stmt::For { .. }
            | Stmt::If { .. }
            | Stmt::SimdKernel { .. }
            | Stmt::Tensorize { .. } => stmt,
            other => map_stmts(other, &mut |inner| self.visit_stmt(inner)),
        }
    }

    /// Replaces the invariant parts of an expression. If `lazy`, the expression might not be
    /// evaluated, so loads stay.
    fn visit_expr(&mut self, expr: &Expr, lazy: bool) -> Expr {
        if let Some(known) = self.visited[usize::from(lazy)].get(expr) {
            return known.clone();
        }
        let result = self.rewrite(expr, lazy);
        self.visited[usize::from(lazy)].insert(expr, result.clone());
        result
    }

    fn rewrite(&mut self, expr: &Expr, lazy: bool) -> Expr {
        let traits = self.traits(expr);
        // Later passes look for ramps in indices and masks, which a variable would hide.
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
                self.visited = Default::default();
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
            // Constant lanes need no instructions, and a variable would hide a mask of them.
            _ => {
                let worth = is_costly(expr) && lane_offsets(expr).is_none();
                Traits { invariant: true, reads: false, worth }
            }
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

/// Whether a statement that uses an expression twice computes it once. Constant lanes need no
/// instructions, and a variable would hide them, and ramps, from the SIMD back end.
fn is_worth_sharing(expr: &Expr) -> bool {
    let costly = match &expr.kind {
        ExprKind::Broadcast(scalar) => is_costly(scalar),
        _ => is_costly(expr),
    };
    let is_index = expr.ty.dtype == DType::Index && expr.ty.lanes > 1;
    costly && !is_index && lane_offsets(expr).is_none()
}

/// Binds each costly expression that consecutive stores evaluate more than once to a variable.
fn share_in_stores(mut stores: Vec<Stmt>, names: &mut Names) -> Stmt {
    let mut lets = Vec::new();
    if stores.len() > 1 {
        let written = stores.iter().flat_map(stored_buffers).collect();
        let mut values: Vec<&mut Expr> = stores.iter_mut().map(value_of).collect();
        share_in_values(&mut values, written, names, &mut lets);
    }
    // An expression that reads what the stores write is shared within its own store only.
    let mut shared = stores.into_iter().map(|mut store| {
        let mut lets = Vec::new();
        share_in_values(&mut [value_of(&mut store)], FxHashSet::default(), names, &mut lets);
        wrap_lets(lets, store)
    });
    let body = match (shared.next().expect("a store"), shared.next()) {
        (first, None) => first,
        (first, Some(second)) => Stmt::Block([first, second].into_iter().chain(shared).collect()),
    };
    wrap_lets(lets, body)
}

fn value_of(store: &mut Stmt) -> &mut Expr {
    let Stmt::Store { value, .. } = store else {
        crate::bug!("value_of another statement");
    };
    value
}

/// Replaces what the values share by variables, whose definitions it adds to `lets`; `written` are
/// the buffers that change between the values.
fn share_in_values(
    values: &mut [&mut Expr],
    written: FxHashSet<Buffer>,
    names: &mut Names,
    lets: &mut Vec<(Var, Expr)>,
) {
    let mut sharer = Sharer { written, ..Sharer::default() };
    for value in values.iter() {
        sharer.count(value, false, &FxHashSet::default());
    }
    if sharer.seen.iter().all(|seen| !seen.is_shared()) {
        return;
    }
    for value in values {
        **value = sharer.replace(value, names);
    }
    let Sharer { seen, written, .. } = sharer;
    for CountedExpr { mut expr, var, .. } in seen {
        if let Some(var) = var {
            share_in_values(&mut [&mut expr], written.clone(), names, lets);
            lets.push((var, expr));
        }
    }
}

/// A costly expression with its number of uses.
struct CountedExpr {
    expr: Expr,
    /// The uses that are always evaluated.
    always: usize,
    total: usize,
    var: Option<Var>,
}

impl CountedExpr {
    fn is_shared(&self) -> bool {
        self.always > 0 && self.total > 1
    }
}

#[derive(Default)]
struct Sharer {
    /// Buffers whose elements have no fixed value.
    written: FxHashSet<Buffer>,
    hasher: ExprHasher,
    by_hash: FxHashMap<u64, Vec<usize>>,
    seen: Vec<CountedExpr>,
    /// How often each node was counted where it is always evaluated, and where it might not be.
    counted: [Memo<u8>; 2],
    replaced: Memo<Expr>,
}

impl Sharer {
    fn find(&mut self, expr: &Expr) -> Option<usize> {
        let hash = self.hasher.hash(expr);
        let candidates = self.by_hash.get(&hash)?;
        candidates.iter().copied().find(|index| equal(&self.seen[*index].expr, expr))
    }

    /// Counts the costly expressions, except those that use a variable of an inner `let` or read a
    /// buffer in `written`.
    fn count(&mut self, expr: &Expr, lazy: bool, inner: &FxHashSet<Var>) {
        // Whether there is more than one use is all that matters.
        let times = self.counted[usize::from(lazy)].get(expr).copied().unwrap_or(0);
        if times == 2 {
            return;
        }
        self.counted[usize::from(lazy)].insert(expr, times + 1);
        if is_worth_sharing(expr)
            && (inner.is_empty() || !mentions_any(expr, inner))
            && !reads_any(expr, &self.written)
        {
            let index = self.find(expr).unwrap_or_else(|| {
                let hash = self.hasher.hash(expr);
                self.by_hash.entry(hash).or_default().push(self.seen.len());
                self.seen.push(CountedExpr { expr: expr.clone(), always: 0, total: 0, var: None });
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
        if let Some(known) = self.replaced.get(expr) {
            return known.clone();
        }
        let result = self.replace_in(expr, names);
        self.replaced.insert(expr, result.clone());
        result
    }

    fn replace_in(&mut self, expr: &Expr, names: &mut Names) -> Expr {
        if is_worth_sharing(expr)
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

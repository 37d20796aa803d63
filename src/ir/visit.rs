//! Walks and rewrites of the loop IR. A pass matches only the nodes that it changes; rewrites
//! return unchanged subtrees as they are.
//!
//! Expressions are DAGs: nodes are shared, and the tree of an expression can be exponentially
//! larger than the number of its nodes. All walks and rewrites here take linear time. A function
//! that calls itself in [`for_each_child`] or [`map_children`] needs a [`NodeSet`] or a [`Memo`].

use super::{Buffer, Expr, ExprKind, Kernel, Param, SortAxis, Stmt, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// A result for each node of some expressions, by identity. Holds the expressions, so that no
/// address is used twice while the memo exists.
#[derive(Clone, Debug)]
pub struct Memo<T>(FxHashMap<usize, (Expr, T)>);

impl<T> Default for Memo<T> {
    fn default() -> Memo<T> {
        Memo(FxHashMap::default())
    }
}

impl<T> Memo<T> {
    /// Returns the result for `expr`, if there is one.
    pub fn get(&self, expr: &Expr) -> Option<&T> {
        self.0.get(&expr.id()).map(|(_, result)| result)
    }

    /// Whether there is a result for `expr`.
    pub fn contains(&self, expr: &Expr) -> bool {
        self.0.contains_key(&expr.id())
    }

    /// Sets the result for `expr`; returns the previous one.
    pub fn insert(&mut self, expr: &Expr, result: T) -> Option<T> {
        self.0.insert(expr.id(), (expr.clone(), result)).map(|(_, result)| result)
    }

    /// Removes all results.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// A set of nodes, by identity. Does not hold the expressions: they must outlive the set.
#[derive(Clone, Default, Debug)]
pub struct NodeSet(FxHashSet<usize>);

impl NodeSet {
    /// Adds `expr`; returns whether it was new.
    pub fn insert(&mut self, expr: &Expr) -> bool {
        self.0.insert(expr.id())
    }

    /// Whether `expr` is in the set.
    pub fn contains(&self, expr: &Expr) -> bool {
        self.0.contains(&expr.id())
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Calls `f` on the direct operands of `expr`.
pub fn for_each_child(expr: &Expr, f: &mut dyn FnMut(&Expr)) {
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Var(_) => {}
        ExprKind::Unary(_, a)
        | ExprKind::Cast(a)
        | ExprKind::Bitcast(a)
        | ExprKind::Broadcast(a) => f(a),
        ExprKind::Binary(_, a, b) | ExprKind::Ramp(a, b) | ExprKind::Let(_, a, b) => {
            f(a);
            f(b);
        }
        ExprKind::Select(a, b, c) | ExprKind::IfThenElse(a, b, c) => {
            f(a);
            f(b);
            f(c);
        }
        ExprKind::Load { indices, mask, .. } => {
            indices.iter().for_each(&mut *f);
            mask.iter().for_each(f);
        }
        ExprKind::Call(_, args) => args.iter().for_each(f),
    }
}

/// Replaces every direct operand of `expr` by `f` of it; returns the same node if none changed.
pub fn map_children(expr: &Expr, f: &mut dyn FnMut(&Expr) -> Expr) -> Expr {
    let mut changed = |child: &Expr| Some(f(child)).filter(|new| !new.same(child));
    replace_children(expr, &mut changed).unwrap_or_else(|| expr.clone())
}

/// Replaces the direct operands of `expr` for which `f` returns another one; `None` if it does for
/// none.
fn replace_children(expr: &Expr, f: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Option<Expr> {
    let or = |new: Option<Expr>, old: &Expr| new.unwrap_or_else(|| old.clone());
    let kind = match &expr.kind {
        ExprKind::Const(_) | ExprKind::Var(_) => return None,
        ExprKind::Unary(op, a) => ExprKind::Unary(*op, f(a)?),
        ExprKind::Cast(a) => ExprKind::Cast(f(a)?),
        ExprKind::Bitcast(a) => ExprKind::Bitcast(f(a)?),
        ExprKind::Broadcast(a) => ExprKind::Broadcast(f(a)?),
        ExprKind::Binary(_, a, b) | ExprKind::Ramp(a, b) | ExprKind::Let(_, a, b) => {
            let (new_a, new_b) = match (f(a), f(b)) {
                (None, None) => return None,
                (new_a, new_b) => (or(new_a, a), or(new_b, b)),
            };
            match &expr.kind {
                ExprKind::Binary(op, ..) => ExprKind::Binary(*op, new_a, new_b),
                ExprKind::Let(var, ..) => ExprKind::Let(var.clone(), new_a, new_b),
                _ => ExprKind::Ramp(new_a, new_b),
            }
        }
        ExprKind::Select(a, b, c) | ExprKind::IfThenElse(a, b, c) => {
            let (new_a, new_b, new_c) = match (f(a), f(b), f(c)) {
                (None, None, None) => return None,
                (new_a, new_b, new_c) => (or(new_a, a), or(new_b, b), or(new_c, c)),
            };
            match &expr.kind {
                ExprKind::Select(..) => ExprKind::Select(new_a, new_b, new_c),
                _ => ExprKind::IfThenElse(new_a, new_b, new_c),
            }
        }
        ExprKind::Load { buffer, indices, mask } => {
            let new_indices = replace_all(indices, f);
            let new_mask = mask.as_ref().and_then(f);
            if new_indices.is_none() && new_mask.is_none() {
                return None;
            }
            ExprKind::Load {
                buffer: buffer.clone(),
                indices: new_indices.unwrap_or_else(|| indices.clone()),
                mask: new_mask.or_else(|| mask.clone()),
            }
        }
        ExprKind::Call(function, args) => ExprKind::Call(*function, replace_all(args, f)?),
    };
    Some(Expr::new(expr.ty, kind))
}

/// Replaces the expressions for which `f` returns another one; `None` if it does for none.
fn replace_all(all: &[Expr], f: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Option<Vec<Expr>> {
    let mut new: Option<Vec<Expr>> = None;
    for (at, expr) in all.iter().enumerate() {
        match (f(expr), &mut new) {
            (Some(changed), None) => {
                new = Some(all[..at].iter().cloned().chain([changed]).collect());
            }
            (Some(changed), Some(new)) => new.push(changed),
            (None, Some(new)) => new.push(expr.clone()),
            (None, None) => {}
        }
    }
    new
}

/// Calls `f` on `expr` and everything below it, operands after the node. The number of visits of a
/// shared node is between one and the number of its uses, and all together take linear time.
pub fn walk_expr(expr: &Expr, f: &mut dyn FnMut(&Expr)) {
    any_expr(expr, &mut |node| {
        f(node);
        false
    });
}

/// Calls `f` on each node of `expr` that is not in `seen`, operands after the node, and adds it.
pub fn walk_nodes(expr: &Expr, seen: &mut NodeSet, f: &mut dyn FnMut(&Expr)) {
    if seen.insert(expr) {
        f(expr);
        for_each_child(expr, &mut |child| walk_nodes(child, seen, f));
    }
}

/// A function of the buffer, the indices and the mask of a load.
pub type LoadVisitor<'a> = dyn FnMut(&Buffer, &[Expr], Option<&Expr>) + 'a;

/// Calls `f` with buffer, indices and mask of each load of `expr` that is not in `seen`. Adds all
/// nodes of `expr` to `seen`.
pub fn for_each_load(expr: &Expr, seen: &mut NodeSet, f: &mut LoadVisitor) {
    walk_nodes(expr, seen, &mut |node| {
        if let ExprKind::Load { buffer, indices, mask } = &node.kind {
            f(buffer, indices, mask.as_ref());
        }
    });
}

/// Returns the buffers that a statement stores to.
pub fn stored_buffers(stmt: &Stmt) -> FxHashSet<Buffer> {
    let mut stored = FxHashSet::default();
    walk_stmt(
        stmt,
        &mut |stmt| match stmt {
            Stmt::Store { buffer, .. } => drop(stored.insert(buffer.clone())),
            Stmt::Sort(sort) => drop(stored.insert(sort.order.clone())),
            _ => {}
        },
        &mut |_| {},
    );
    stored
}

/// The number of nodes that are visited before shared ones are looked for: most expressions are
/// smaller.
const UNTRACKED_NODES: u32 = 64;

/// Returns the positions of the parameters whose elements the kernel's own checks read, in
/// ascending order.
pub fn checked_tensors(kernel: &Kernel) -> Vec<usize> {
    let (mut read, mut seen) = (FxHashSet::default(), NodeSet::default());
    let mut on_expr = |expr: &Expr| {
        for_each_load(expr, &mut seen, &mut |buffer, _, _| {
            read.insert(buffer.clone());
        });
    };
    walk_stmt(&kernel.checks, &mut |_| {}, &mut on_expr);
    let is_read = |param: &Param| match param {
        Param::Tensor { buffer, .. } => read.contains(buffer),
        Param::Scalar { .. } | Param::Runtime { .. } => false,
    };
    (0..kernel.params.len()).filter(|index| is_read(&kernel.params[*index])).collect()
}

/// Whether `f` holds for a node of `expr`. Stops at the first one.
pub fn any_expr(expr: &Expr, f: &mut dyn FnMut(&Expr) -> bool) -> bool {
    fn search(
        expr: &Expr,
        visited: &mut u32,
        seen: &mut NodeSet,
        f: &mut dyn FnMut(&Expr) -> bool,
    ) -> bool {
        *visited = visited.saturating_add(1);
        if *visited > UNTRACKED_NODES && !seen.insert(expr) {
            return false;
        }
        let mut found = f(expr);
        for_each_child(expr, &mut |child| found = found || search(child, visited, seen, f));
        found
    }
    search(expr, &mut 0, &mut NodeSet::default(), f)
}

/// Whether `expr` uses `var`.
pub fn mentions(expr: &Expr, var: &Var) -> bool {
    any_expr(expr, &mut |e| e.as_var() == Some(var))
}

/// Whether `expr` uses one of `vars`.
pub fn mentions_any(expr: &Expr, vars: &FxHashSet<Var>) -> bool {
    any_expr(expr, &mut |e| e.as_var().is_some_and(|var| vars.contains(var)))
}

/// Whether `expr` contains a load.
pub fn reads_memory(expr: &Expr) -> bool {
    any_expr(expr, &mut |e| matches!(e.kind, ExprKind::Load { .. }))
}

/// Whether `expr` reads elements that might not exist, so that the conditions around it decide
/// whether it may be evaluated. Elements at constant indices in constant extents always exist.
pub fn needs_guard(expr: &Expr) -> bool {
    any_expr(expr, &mut |e| match &e.kind {
        ExprKind::Load { buffer, indices, mask } => mask.is_some() || !buffer.always_has(indices),
        _ => false,
    })
}

/// Whether `expr` contains a load of `buffer`.
pub fn reads_buffer(expr: &Expr, buffer: &Buffer) -> bool {
    any_expr(
        expr,
        &mut |e| matches!(&e.kind, ExprKind::Load { buffer: read, .. } if read == buffer),
    )
}

/// Whether `expr` contains a load of one of `buffers`.
pub fn reads_any(expr: &Expr, buffers: &FxHashSet<Buffer>) -> bool {
    any_expr(
        expr,
        &mut |e| matches!(&e.kind, ExprKind::Load { buffer, .. } if buffers.contains(buffer)),
    )
}

/// Rewrites bottom up: `f` gets each node with its operands already rewritten.
///
/// `f` must be a function of the node: it is called once or several times for a shared one, all
/// together in linear time.
pub fn rewrite_expr(expr: &Expr, f: &mut dyn FnMut(Expr) -> Expr) -> Expr {
    fn rewrite(
        expr: &Expr,
        visited: &mut u32,
        done: &mut Memo<Expr>,
        f: &mut dyn FnMut(Expr) -> Expr,
    ) -> Expr {
        *visited = visited.saturating_add(1);
        let tracked = *visited > UNTRACKED_NODES;
        if tracked && let Some(known) = done.get(expr) {
            return known.clone();
        }
        let inner = map_children(expr, &mut |child| rewrite(child, visited, done, f));
        let result = f(inner);
        if tracked {
            done.insert(expr, result.clone());
        }
        result
    }
    rewrite(expr, &mut 0, &mut Memo::default(), f)
}

/// Replaces nodes bottom up: `f` gets each node with its operands already replaced, and returns
/// `None` to keep it. Like [`rewrite_expr`], but costs less where few nodes change.
pub fn replace_nodes(expr: &Expr, f: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Expr {
    fn replace(
        expr: &Expr,
        visited: &mut u32,
        done: &mut Memo<Option<Expr>>,
        f: &mut dyn FnMut(&Expr) -> Option<Expr>,
    ) -> Option<Expr> {
        *visited = visited.saturating_add(1);
        let tracked = *visited > UNTRACKED_NODES;
        if tracked && let Some(known) = done.get(expr) {
            return known.clone();
        }
        let inner = replace_children(expr, &mut |child| replace(child, visited, done, f));
        let result = f(inner.as_ref().unwrap_or(expr)).or(inner);
        if tracked {
            done.insert(expr, result.clone());
        }
        result
    }
    replace(expr, &mut 0, &mut Memo::default(), f).unwrap_or_else(|| expr.clone())
}

/// Replaces the variables for which `f` returns an expression. Bound variables are distinct by
/// identity, so none is captured.
pub fn substitute(expr: &Expr, f: &mut dyn FnMut(&Var) -> Option<Expr>) -> Expr {
    replace_nodes(expr, &mut |node| node.as_var().and_then(&mut *f))
}

/// Calls `f` on the expressions that stand directly in `stmt` (not in nested statements).
pub fn for_each_expr(stmt: &Stmt, f: &mut dyn FnMut(&Expr)) {
    match stmt {
        Stmt::Block(_)
        | Stmt::Allocate { .. }
        | Stmt::Produce { .. }
        | Stmt::Tensorize { .. }
        | Stmt::SimdKernel { .. }
        | Stmt::CopyGroup { .. }
        | Stmt::AwaitCopies { .. }
        | Stmt::Barrier => {}
        Stmt::For { min, extent, .. } => {
            f(min);
            f(extent);
        }
        Stmt::If { cond, .. } => f(cond),
        Stmt::Store { indices, value, mask, .. } => {
            indices.iter().for_each(&mut *f);
            f(value);
            mask.iter().for_each(f);
        }
        Stmt::Prefetch { indices, .. } => indices.iter().for_each(f),
        Stmt::Let { value, .. } => f(value),
        Stmt::Sort(sort) => {
            for expr in [&sort.count, &sort.min, &sort.extent, &sort.key] {
                f(expr);
            }
        }
        Stmt::Assert { cond, values, .. } => {
            f(cond);
            values.iter().for_each(f);
        }
    }
}

/// Calls `f` on the statements directly inside `stmt`.
pub fn for_each_stmt(stmt: &Stmt, f: &mut dyn FnMut(&Stmt)) {
    match stmt {
        Stmt::Block(stmts) => stmts.iter().for_each(f),
        Stmt::For { body, .. }
        | Stmt::Let { body, .. }
        | Stmt::Allocate { body, .. }
        | Stmt::Produce { body, .. }
        | Stmt::Tensorize { body, .. }
        | Stmt::SimdKernel { body }
        | Stmt::CopyGroup { body } => f(body),
        Stmt::If { then, otherwise, .. } => {
            f(then);
            if let Some(otherwise) = otherwise {
                f(otherwise);
            }
        }
        Stmt::Store { .. }
        | Stmt::Sort(_)
        | Stmt::Prefetch { .. }
        | Stmt::Assert { .. }
        | Stmt::Barrier
        | Stmt::AwaitCopies { .. } => {}
    }
}

/// Calls `on_stmt` on `stmt` and everything below, parents first, and `on_expr` on every whole
/// expression of each.
pub fn walk_stmt(stmt: &Stmt, on_stmt: &mut dyn FnMut(&Stmt), on_expr: &mut dyn FnMut(&Expr)) {
    on_stmt(stmt);
    for_each_expr(stmt, on_expr);
    for_each_stmt(stmt, &mut |inner| walk_stmt(inner, on_stmt, on_expr));
}

/// Replaces every expression that stands directly in `stmt`.
pub fn map_exprs(stmt: Stmt, f: &mut dyn FnMut(&Expr) -> Expr) -> Stmt {
    match stmt {
        Stmt::For { var, min, extent, kind, body } => {
            Stmt::For { var, min: f(&min), extent: f(&extent), kind, body }
        }
        Stmt::If { cond, then, otherwise } => Stmt::If { cond: f(&cond), then, otherwise },
        Stmt::Store { buffer, indices, value, mask, nontemporal } => Stmt::Store {
            buffer,
            indices: indices.iter().map(&mut *f).collect(),
            value: f(&value),
            mask: mask.as_ref().map(f),
            nontemporal,
        },
        Stmt::Prefetch { buffer, indices } => {
            Stmt::Prefetch { buffer, indices: indices.iter().map(f).collect() }
        }
        Stmt::Let { var, value, body } => Stmt::Let { var, value: f(&value), body },
        Stmt::Sort(sort) => Stmt::Sort(Box::new(SortAxis {
            count: f(&sort.count),
            min: f(&sort.min),
            extent: f(&sort.extent),
            key: f(&sort.key),
            ..*sort
        })),
        Stmt::Assert { cond, message, values } => {
            let cond = f(&cond);
            Stmt::Assert { cond, message, values: values.iter().map(f).collect() }
        }
        other => other,
    }
}

/// Replaces every statement directly inside `stmt`.
pub fn map_stmts(stmt: Stmt, f: &mut dyn FnMut(Stmt) -> Stmt) -> Stmt {
    match stmt {
        Stmt::Block(stmts) => Stmt::Block(stmts.into_iter().map(f).collect()),
        Stmt::For { var, min, extent, kind, body } => {
            Stmt::For { var, min, extent, kind, body: Box::new(f(*body)) }
        }
        Stmt::Let { var, value, body } => Stmt::Let { var, value, body: Box::new(f(*body)) },
        Stmt::Allocate { buffer, body } => Stmt::Allocate { buffer, body: Box::new(f(*body)) },
        Stmt::Produce { name, body } => Stmt::Produce { name, body: Box::new(f(*body)) },
        Stmt::SimdKernel { body } => Stmt::SimdKernel { body: Box::new(f(*body)) },
        Stmt::CopyGroup { body } => Stmt::CopyGroup { body: Box::new(f(*body)) },
        Stmt::Tensorize { name, body } => Stmt::Tensorize { name, body: Box::new(f(*body)) },
        Stmt::If { cond, then, otherwise } => {
            let then = Box::new(f(*then));
            Stmt::If { cond, then, otherwise: otherwise.map(|s| Box::new(f(*s))) }
        }
        other => other,
    }
}

/// Rewrites every expression in `stmt`, nested statements included.
pub fn rewrite_exprs(stmt: Stmt, f: &mut dyn FnMut(&Expr) -> Expr) -> Stmt {
    let stmt = map_exprs(stmt, f);
    map_stmts(stmt, &mut |inner| rewrite_exprs(inner, f))
}

/// Returns another place for an access of a buffer at these indices, or none to keep it.
pub type MoveAccess<'a> = dyn FnMut(&Buffer, &[Expr]) -> Option<(Buffer, Vec<Expr>)> + 'a;

/// Replaces the buffer and the indices of every load, store and prefetch in `stmt`, nested
/// statements included, where `f` returns others.
pub fn map_accesses(stmt: Stmt, f: &mut MoveAccess) -> Stmt {
    let stmt = map_exprs(stmt, &mut |expr| {
        rewrite_expr(expr, &mut |e| match &e.kind {
            ExprKind::Load { buffer, indices, mask } => match f(buffer, indices) {
                Some((buffer, indices)) => {
                    Expr::new(e.ty, ExprKind::Load { buffer, indices, mask: mask.clone() })
                }
                None => e,
            },
            _ => e,
        })
    });
    match stmt {
        Stmt::Store { buffer, indices, value, mask, nontemporal } => {
            let (buffer, indices) = f(&buffer, &indices).unwrap_or((buffer, indices));
            Stmt::Store { buffer, indices, value, mask, nontemporal }
        }
        Stmt::Prefetch { buffer, indices } => {
            let (buffer, indices) = f(&buffer, &indices).unwrap_or((buffer, indices));
            Stmt::Prefetch { buffer, indices }
        }
        other => map_stmts(other, &mut |inner| map_accesses(inner, f)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x + x`, doubled until a tree would have 2^60 leaves.
    fn shared(x: &Var) -> Expr {
        (0..60).fold(Expr::var(x), |sum, _| Expr::add(sum.clone(), sum))
    }

    #[test]
    fn shared_nodes_are_walked_and_rewritten_in_linear_time() {
        let (x, y) = (Var::index("x"), Var::index("y"));
        let mut visits = 0;
        walk_expr(&shared(&x), &mut |_| visits += 1);
        assert!((61..1000).contains(&visits), "{visits} visits");
        let rewritten = substitute(&shared(&x), &mut |v| (*v == x).then(|| Expr::var(&y)));
        assert!(mentions(&rewritten, &y) && !mentions(&rewritten, &x));
        let mut seen = NodeSet::default();
        walk_nodes(&rewritten, &mut seen, &mut |_| {});
        // Nodes that are rewritten before they are known to be shared are no longer shared.
        assert!((61..1000).contains(&seen.count()), "{} nodes", seen.count());
    }
}

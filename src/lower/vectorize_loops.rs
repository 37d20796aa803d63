//! Vectorize loops: turns vectorized loops into vector operations, one lane for each iteration.
//!
//! Before: `vectorized (i, 0, 8) { C[x*8 + i] = A[x] + B[x*8 + i] }`
//! After:  `C[ramp(x*8, 1, 8)] = x8(A[x]) + B[ramp(x*8, 1, 8)]`
//! Values that are the same in every lane stay scalar and are broadcast where a vector operation
//! uses them. A condition that differs between lanes becomes a mask of stores and loads; a choice
//! becomes a `select` with masked loads, but for elements that the statement reads in any case and
//! for contiguous ones of inputs that exist in all lanes.
//! Needs: flat indices; no vectorized loop inside another; borders cut (`cut_borders`), because
//! their conditions would become masks. Stands before `unroll_loops`, so that vectors are copied,
//! and before all passes that look for vectors.
//! Ensures: no vectorized loop is left; equal values in a vector store are one node.  Breaks:
//! simplified form.
//! Declines: statements without a vector form, which run as a serial loop over lanes; loops without
//! a constant extent.

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::equal::{Sharer, equal};
use crate::ir::scopes::ScopedRewrite;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{
    NodeSet, any_expr, for_each_child, for_each_load, map_children, mentions, needs_guard,
    reads_any, reads_memory, rewrite_expr, rewrite_exprs, stored_buffers, substitute, walk_stmt,
};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Kernel, Scope, Stmt, Type, Var};
use crate::simd_ops::masks_elements;
use crate::target::{SimdIsa, Target};
use rustc_hash::{FxHashMap, FxHashSet};

/// Vectorizes every vectorized loop.
pub fn vectorize_loops(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let mut body = kernel.body;
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    if target.is_gpu() {
        body = DecideOnce(facts.clone()).stmt(body);
    }
    let stored = stored_buffers(&body);
    let body = Vectorizer { facts, isa: target.simd(), stored }.stmt(body);
    Ok(Kernel { body, ..kernel })
}

/// The facts around the vectorized loops, and the instructions of the SIMD back end.
struct Vectorizer {
    facts: Facts,
    isa: Option<SimdIsa>,
    /// The buffers that the kernel writes.
    stored: FxHashSet<Buffer>,
}

impl ScopedRewrite for Vectorizer {
    fn facts(&mut self) -> &mut Facts {
        &mut self.facts
    }

    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        let Stmt::For { var, min, extent, kind: ForKind::Vectorized, body } = stmt else {
            return self.children(stmt);
        };
        let lanes = extent.as_int().and_then(|lanes| u32::try_from(lanes).ok());
        // One lane is a scalar: the simplifier replaces its variable.
        let Some(lanes) = lanes.filter(|lanes| *lanes > 1) else {
            return Stmt::For { var, min, extent, kind: ForKind::Serial, body };
        };
        let (isa, vectors) = (self.isa, FxHashMap::default());
        let (outside, stored) = (&self.facts, &self.stored);
        let mut all = Lanes {
            isa,
            outside,
            stored,
            var,
            min,
            lanes,
            vectors,
            conditions: Vec::new(),
            read: AlwaysRead::default(),
        };
        all.body(*body)
    }
}

/// Replaces comparisons that have the same result in all lanes by that of the first lane: of
/// `x*4 + i < 4000` with `i` in `0..4`, it is `x < 1000`. In the same way, `(x*4 + i) % 8` becomes
/// `(x*4) % 8 + i`. A GPU accesses the lanes of a mask or of a gather one by one.
struct DecideOnce(Facts);

impl ScopedRewrite for DecideOnce {
    fn facts(&mut self) -> &mut Facts {
        &mut self.0
    }

    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        let Stmt::For { var, min, extent, kind: ForKind::Vectorized, body } = stmt else {
            return self.children(stmt);
        };
        let lanes = extent.as_int().and_then(|lanes| i64::try_from(lanes).ok());
        let body = match lanes {
            Some(lanes) => rewrite_exprs(*body, &mut |expr| {
                rewrite_expr(expr, &mut |e| self.operation(e, &var, &min, lanes))
            }),
            None => *body,
        };
        Stmt::For { var, min, extent, kind: ForKind::Vectorized, body: Box::new(body) }
    }
}

impl DecideOnce {
    /// Returns an operation on indices in a form in which the lanes differ in no quotient,
    /// remainder or comparison, if there is one.
    fn operation(&self, whole: Expr, var: &Var, min: &Expr, lanes: i64) -> Expr {
        let ExprKind::Binary(op, a, _) = &whole.kind else { return whole };
        let divides = matches!(op, BinOp::FloorDiv | BinOp::FloorMod);
        let fits = (divides || op.is_comparison()) && a.ty == DType::Index.into();
        if !fits || !mentions(&whole, var) || reads_memory(&whole) {
            return whole;
        }
        let simple = |expr: Expr| simplify_expr(&expr, &self.0);
        let of_lane = |lane: i64| {
            let value = Expr::add(min.clone(), Expr::index(lane));
            simple(substitute(&whole, &mut |other| (other == var).then(|| value.clone())))
        };
        let first = of_lane(0);
        if (1..lanes).all(|lane| equal(&of_lane(lane), &first)) {
            return first;
        }
        let follows = |lane: i64| {
            let distance = simple(Expr::sub(of_lane(lane), first.clone()));
            distance.as_int() == Some(lane.into())
        };
        match divides && (1..lanes).all(follows) {
            true => Expr::add(first, Expr::sub(Expr::var(var), min.clone())),
            false => whole,
        }
    }
}

/// The state of vectorizing one loop.
struct Lanes<'a> {
    /// The instructions of the SIMD back end.
    isa: Option<SimdIsa>,
    /// What holds around the loop.
    outside: &'a Facts,
    /// The buffers that the kernel writes.
    stored: &'a FxHashSet<Buffer>,
    var: Var,
    min: Expr,
    lanes: u32,
    /// The vector variables that replace scalar ones with values that differ between lanes.
    vectors: FxHashMap<Var, Var>,
    /// The enclosing conditions, in their form for one lane.
    conditions: Vec<Expr>,
    /// What the current value reads in all lanes that the statement has.
    read: AlwaysRead,
}

/// The elements that a value reads whatever the conditions in it are.
#[derive(Default)]
struct AlwaysRead {
    /// Their loads, in the form for one lane.
    loads: Vec<Expr>,
    /// The lanes of the statement; all if absent.
    mask: Option<Expr>,
}

impl Lanes<'_> {
    /// Returns the statement for all lanes: in vectors, or else lane by lane.
    fn body(&mut self, stmt: Stmt) -> Stmt {
        match self.stmt(&stmt, None) {
            Some(stmt) => stmt,
            None => self.serial(&stmt),
        }
    }

    fn serial(&self, stmt: &Stmt) -> Stmt {
        let var = Var::index(self.var.name());
        let free = FxHashMap::from_iter([(self.var.clone(), Expr::var(&var))]);
        let guarded = self.conditions.iter().rev().fold(stmt.clone(), |body, cond| Stmt::If {
            cond: cond.clone(),
            then: Box::new(body),
            otherwise: None,
        });
        let body = Box::new(crate::ir::copy::fresh_copy(&guarded, &free));
        let extent = Expr::index(self.lanes.into());
        Stmt::For { var, min: self.min.clone(), extent, kind: ForKind::Serial, body }
    }

    /// Returns the vector form of a statement under a mask; `None` if there is none.
    fn stmt(&mut self, stmt: &Stmt, mask: Option<&Expr>) -> Option<Stmt> {
        if mask.is_none() && !self.varies(stmt) {
            return Some(stmt.clone());
        }
        match stmt {
            Stmt::Block(stmts) => {
                let stmts = stmts.iter().map(|inner| self.part(inner, mask));
                Some(Stmt::Block(stmts.collect::<Option<_>>()?))
            }
            Stmt::For { var, min, extent, kind, body } => {
                let (min, extent) = (self.expr(min, mask), self.expr(extent, mask));
                if !min.ty.is_scalar() || !extent.ty.is_scalar() || *kind == ForKind::Vectorized {
                    return None;
                }
                let body = Box::new(self.part(body, mask)?);
                Some(Stmt::For { var: var.clone(), min, extent, kind: kind.clone(), body })
            }
            Stmt::If { cond, then, otherwise } => {
                self.if_stmt(cond, then, otherwise.as_deref(), mask)
            }
            Stmt::Store { buffer, indices, value, mask: None, nontemporal } => {
                let value = self.value(value, mask);
                let indices: Vec<Expr> = indices.iter().map(|i| self.expr(i, mask)).collect();
                if indices.iter().all(|index| index.ty.is_scalar()) {
                    return None;
                }
                let mut sharer = Sharer::default();
                let widened = indices.into_iter().map(|index| self.widen(index));
                let indices = widened.map(|index| sharer.share(&index)).collect();
                let mask = mask.map(|mask| sharer.share(mask));
                let value = sharer.share(&self.widen(value));
                let (buffer, nontemporal) = (buffer.clone(), *nontemporal);
                Some(Stmt::Store { buffer, indices, value, mask, nontemporal })
            }
            Stmt::Let { var, value, body } => {
                let value = self.value(value, mask);
                if value.ty.is_scalar() {
                    let body = Box::new(self.stmt(body, mask)?);
                    return Some(Stmt::Let { var: var.clone(), value, body });
                }
                let vector = Var::new(var.name(), value.ty);
                self.vectors.insert(var.clone(), vector.clone());
                let body = self.stmt(body, mask);
                self.vectors.remove(var);
                Some(Stmt::Let { var: vector, value, body: Box::new(body?) })
            }
            Stmt::Produce { name, body } => {
                Some(Stmt::Produce { name: name.clone(), body: Box::new(self.part(body, mask)?) })
            }
            // One hint for all lanes: the first lane's.
            Stmt::Prefetch { buffer, indices } if self.vectors.is_empty() => {
                let first = |index: &Expr| {
                    substitute(index, &mut |var| (*var == self.var).then(|| self.min.clone()))
                };
                let indices = indices.iter().map(first).collect();
                Some(Stmt::Prefetch { buffer: buffer.clone(), indices })
            }
            _ => None,
        }
    }

    /// Vectorizes a part of a statement, or runs it lane by lane if no enclosing variable is a
    /// vector.
    fn part(&mut self, stmt: &Stmt, mask: Option<&Expr>) -> Option<Stmt> {
        match self.stmt(stmt, mask) {
            Some(stmt) => Some(stmt),
            None if self.can_go_serial() => Some(self.serial(stmt)),
            None => None,
        }
    }

    /// Whether the enclosing conditions can be evaluated again for each lane.
    fn can_go_serial(&self) -> bool {
        self.vectors.is_empty() && !self.conditions.iter().any(reads_memory)
    }

    fn if_stmt(
        &mut self,
        cond: &Expr,
        then: &Stmt,
        otherwise: Option<&Stmt>,
        mask: Option<&Expr>,
    ) -> Option<Stmt> {
        let lanes = self.expr(cond, mask);
        if lanes.ty.is_scalar() {
            let then = Box::new(self.part(then, mask)?);
            let otherwise = match otherwise {
                Some(stmt) => Some(Box::new(self.part(stmt, mask)?)),
                None => None,
            };
            return Some(Stmt::If { cond: lanes, then, otherwise });
        }
        // A condition on memory that a branch writes is kept in a variable, and one that must be
        // evaluated lane by lane, so that the branches need not be.
        let changes = [Some(then), otherwise]
            .into_iter()
            .flatten()
            .map(stored_buffers)
            .any(|stored| reads_any(&lanes, &stored));
        let kept = reads_memory(&lanes) && (changes || !self.has_vectors(&lanes));
        let held = kept.then(|| Var::new("mask", lanes.ty));
        let taken = held.as_ref().map_or(lanes.clone(), Expr::var);
        let mut stmts = Vec::new();
        let branches = [(Some(then), true), (otherwise, false)];
        for (stmt, truth) in branches {
            let Some(stmt) = stmt else { continue };
            let own = if truth { taken.clone() } else { Expr::not(taken.clone()) };
            let scalar = if truth { cond.clone() } else { Expr::not(cond.clone()) };
            self.conditions.push(scalar);
            let inner = self.stmt(stmt, Some(&both(mask, own)));
            // Lane by lane, the condition would be evaluated again after the first branch.
            let inner = match inner {
                None if self.can_go_serial() => Some(self.serial(stmt)),
                inner => inner,
            };
            self.conditions.pop();
            stmts.push(inner?);
        }
        let body = Stmt::Block(stmts);
        Some(match held {
            Some(var) => Stmt::Let { var, value: lanes, body: Box::new(body) },
            None => body,
        })
    }

    /// Whether the SIMD back end has the masked loads of a condition.
    fn has_vectors(&self, cond: &Expr) -> bool {
        let Some(isa) = self.isa else { return false };
        let mut fits = true;
        for_each_load(cond, &mut NodeSet::default(), &mut |buffer, _, mask| {
            fits &= mask.is_none() || masks_elements(buffer.dtype.bytes(), isa);
        });
        fits
    }

    /// Whether anything in a statement differs between lanes.
    fn varies(&self, stmt: &Stmt) -> bool {
        let mut varies = false;
        walk_stmt(stmt, &mut |_| {}, &mut |expr| varies |= self.expr_varies(expr));
        varies
    }

    fn expr_varies(&self, expr: &Expr) -> bool {
        any_expr(expr, &mut |e| {
            e.as_var().is_some_and(|var| *var == self.var || self.vectors.contains_key(var))
        })
    }

    /// Whether an element exists whatever condition the lanes have: a load of it needs no mask, and
    /// stays one for all lanes.
    fn has(&self, buffer: &Buffer, indices: &[Expr]) -> bool {
        matches!(indices, [index] if self.has_elements(buffer, index, 0))
    }

    /// Whether the consecutive elements of all lanes exist and have a value whatever condition the
    /// lanes have.
    fn has_all(&self, buffer: &Buffer, indices: &[Expr]) -> bool {
        let [index] = indices else { return false };
        let ExprKind::Ramp(first, stride) = &index.kind else { return false };
        let more = i128::from(self.lanes) - 1;
        // A temporary may have elements without a value.
        let is_input = !self.stored.contains(buffer);
        is_input && stride.as_int() == Some(1) && self.has_elements(buffer, first, more)
    }

    /// Whether a buffer has the element at `first` and the `more` after it, whatever conditions the
    /// lanes have.
    fn has_elements(&self, buffer: &Buffer, first: &Expr, more: i128) -> bool {
        let size = buffer
            .shape
            .iter()
            .map(Expr::as_int)
            .try_fold(1i128, |size, extent| extent.and_then(|extent| size.checked_mul(extent)));
        let Some(size) = size else { return false };
        let (least, largest) = self.outside.const_bounds(first);
        matches!(buffer.scope, Scope::Global | Scope::Constant)
            && buffer.strides.is_none()
            && !reads_memory(first)
            && least.is_some_and(|least| least >= 0)
            && largest.is_some_and(|largest| largest < size - more)
    }

    /// Vectorizes the value of a statement under a mask. Elements that it always reads are read in
    /// all lanes of the statement, so that both sides of a choice share them.
    fn value(&mut self, value: &Expr, mask: Option<&Expr>) -> Expr {
        let mut loads = Vec::new();
        if any_expr(value, &mut is_choice) {
            always_read(value, &mut NodeSet::default(), &mut loads);
        }
        let own = AlwaysRead { loads, mask: mask.cloned() };
        let outer = std::mem::replace(&mut self.read, own);
        let value = self.expr(value, mask);
        self.read = outer;
        value
    }

    /// Returns the value in all lanes, a scalar if they agree. Lanes that `mask` turns off read no
    /// memory but what the statement always reads.
    fn expr(&mut self, expr: &Expr, mask: Option<&Expr>) -> Expr {
        match &expr.kind {
            ExprKind::Var(var) if *var == self.var => {
                let kind = ExprKind::Ramp(self.min.clone(), Expr::index(1));
                Expr::new(Type { dtype: DType::Index, lanes: self.lanes }, kind)
            }
            ExprKind::Var(var) => self.vectors.get(var).map_or(expr.clone(), Expr::var),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                let a = self.expr(a, mask);
                let first = if *op == BinOp::And { a.clone() } else { Expr::not(a.clone()) };
                // Lanes that the first operand decides must not read the second one.
                let b = match a.ty.is_scalar() && mask.is_none() && !self.expr_varies(b) {
                    true => b.clone(),
                    false if needs_guard(b) => {
                        let first = self.widen(first);
                        self.expr(b, Some(&both(mask, first)))
                    }
                    false => self.expr(b, mask),
                };
                self.binary(*op, a, b)
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expr(a, mask), self.expr(b, mask));
                self.binary(*op, a, b)
            }
            ExprKind::IfThenElse(c, t, f) => self.if_then_else(c, t, f, mask),
            ExprKind::Select(c, t, f) => {
                let (c, t, f) = (self.expr(c, mask), self.expr(t, mask), self.expr(f, mask));
                match [&c, &t, &f].iter().all(|e| e.ty.is_scalar()) {
                    true => Expr::select(c, t, f),
                    false => Expr::select(c, self.widen(t), self.widen(f)),
                }
            }
            ExprKind::Load { buffer, indices, mask: None } if buffer.always_has(indices) => {
                expr.clone()
            }
            ExprKind::Load { buffer, indices, mask: None } => {
                let always = mask.is_some() && self.read.loads.iter().any(|one| equal(one, expr));
                let own = if always { self.read.mask.clone() } else { mask.cloned() };
                let mask = own.as_ref();
                let indices: Vec<Expr> = indices.iter().map(|i| self.expr(i, mask)).collect();
                let is_scalar = indices.iter().all(|index| index.ty.is_scalar());
                if is_scalar && (mask.is_none() || self.has(buffer, &indices)) {
                    return Expr::load(buffer, indices);
                }
                let indices: Vec<Expr> = indices.into_iter().map(|i| self.widen(i)).collect();
                let ty = Type { dtype: buffer.dtype, lanes: self.lanes };
                let mask = mask.filter(|_| !self.has_all(buffer, &indices)).cloned();
                let buffer = buffer.clone();
                Expr::new(ty, ExprKind::Load { buffer, indices, mask })
            }
            ExprKind::Call(function, args) => {
                let args: Vec<Expr> = args.iter().map(|arg| self.expr(arg, mask)).collect();
                match args.iter().all(|arg| arg.ty.is_scalar()) {
                    true => Expr::call(*function, args),
                    false => {
                        Expr::call(*function, args.into_iter().map(|a| self.widen(a)).collect())
                    }
                }
            }
            ExprKind::Let(var, value, body) => {
                let value = self.expr(value, mask);
                if value.ty.is_scalar() {
                    let body = self.expr(body, mask);
                    return Expr::let_in(var.clone(), value, body);
                }
                let vector = Var::new(var.name(), value.ty);
                self.vectors.insert(var.clone(), vector.clone());
                let body = self.expr(body, mask);
                self.vectors.remove(var);
                Expr::let_in(vector, value, self.widen(body))
            }
            ExprKind::Ramp(..) | ExprKind::Broadcast(_) | ExprKind::Load { .. } => {
                crate::bug!("a vector inside a vectorized loop")
            }
            ExprKind::Const(_) | ExprKind::Unary(..) | ExprKind::Cast(_) | ExprKind::Bitcast(_) => {
                let wide = map_children(expr, &mut |child| self.expr(child, mask));
                let mut lanes = 1;
                for_each_child(&wide, &mut |child| lanes = child.ty.lanes);
                retype(wide, lanes)
            }
        }
    }

    /// Vectorizes a choice. If it differs between lanes, each lane reads only the side that it
    /// takes.
    fn if_then_else(&mut self, c: &Expr, t: &Expr, f: &Expr, mask: Option<&Expr>) -> Expr {
        let c = self.expr(c, mask);
        if c.ty.is_scalar() {
            let (t, f) = (self.expr(t, mask), self.expr(f, mask));
            return match t.ty.is_scalar() && f.ty.is_scalar() {
                true => Expr::if_then_else(c, t, f),
                false => Expr::if_then_else(c, self.widen(t), self.widen(f)),
            };
        }
        let t = match needs_guard(t) {
            true => self.expr(t, Some(&both(mask, c.clone()))),
            false => self.expr(t, mask),
        };
        let f = match needs_guard(f) {
            true => self.expr(f, Some(&both(mask, Expr::not(c.clone())))),
            false => self.expr(f, mask),
        };
        Expr::select(c, self.widen(t), self.widen(f))
    }

    /// Creates a binary operation. Sums and products of ramps stay ramps if possible.
    fn binary(&self, op: BinOp, a: Expr, b: Expr) -> Expr {
        if a.ty.is_scalar() && b.ty.is_scalar() {
            return Expr::binary(op, a, b);
        }
        let ramp = |base: Expr, stride: Expr| {
            let ty = Type { dtype: base.ty.dtype, lanes: self.lanes };
            Expr::new(ty, ExprKind::Ramp(base, stride))
        };
        let zero = |of: &Expr| Expr::int(of.ty.dtype, 0);
        match (op, &a.kind, &b.kind) {
            (BinOp::Add | BinOp::Sub, ExprKind::Ramp(x, s), ExprKind::Ramp(y, t)) => {
                let (x, s) = (x.clone(), s.clone());
                return ramp(Expr::binary(op, x, y.clone()), stride(op, s, t.clone()));
            }
            (BinOp::Add | BinOp::Sub, ExprKind::Ramp(x, s), _) if b.ty.is_scalar() => {
                return ramp(Expr::binary(op, x.clone(), b), s.clone());
            }
            (BinOp::Add | BinOp::Sub, _, ExprKind::Ramp(y, t)) if a.ty.is_scalar() => {
                let stride = stride(op, zero(t), t.clone());
                return ramp(Expr::binary(op, a, y.clone()), stride);
            }
            (BinOp::Mul, ExprKind::Ramp(x, s), _) if b.ty.is_scalar() => {
                return ramp(Expr::mul(x.clone(), b.clone()), stride(op, s.clone(), b));
            }
            (BinOp::Mul, _, ExprKind::Ramp(y, t)) if a.ty.is_scalar() => {
                return ramp(Expr::mul(a.clone(), y.clone()), stride(op, a, t.clone()));
            }
            _ => {}
        }
        Expr::binary(op, self.widen(a), self.widen(b))
    }

    /// Broadcasts a scalar to all lanes.
    fn widen(&self, expr: Expr) -> Expr {
        if expr.ty.lanes == self.lanes {
            return expr;
        }
        let ty = Type { dtype: expr.ty.dtype, lanes: self.lanes };
        Expr::new(ty, ExprKind::Broadcast(expr))
    }
}

/// Creates the stride of a combined ramp. Constants are folded: `outline_simd` and the cost model,
/// which choose between moves and gathers by the stride, run before the next simplification.
fn stride(op: BinOp, a: Expr, b: Expr) -> Expr {
    let folded = match (op, a.as_int(), b.as_int()) {
        _ if a.ty.dtype != DType::Index => None,
        (BinOp::Add, Some(a), Some(b)) => a.checked_add(b),
        (BinOp::Sub, Some(a), Some(b)) => a.checked_sub(b),
        (BinOp::Mul, Some(a), Some(b)) => a.checked_mul(b),
        _ => None,
    };
    match folded.and_then(|stride| i64::try_from(stride).ok()) {
        Some(stride) => Expr::index(stride),
        None => Expr::binary(op, a, b),
    }
}

/// Gives a node the lanes of its operands.
fn retype(expr: Expr, lanes: u32) -> Expr {
    if expr.ty.lanes == lanes {
        return expr;
    }
    let ty = Type { dtype: expr.ty.dtype, lanes };
    let kind = match &expr.kind {
        ExprKind::Unary(op, a) => ExprKind::Unary(*op, a.clone()),
        ExprKind::Cast(a) => ExprKind::Cast(a.clone()),
        ExprKind::Bitcast(a) => ExprKind::Bitcast(a.clone()),
        _ => crate::bug!("no operation on one operand"),
    };
    Expr::new(ty, kind)
}

/// Whether an operation may leave an operand out.
fn is_choice(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::IfThenElse(..) | ExprKind::Binary(BinOp::And | BinOp::Or, ..))
}

/// Collects the loads that a value does whatever its conditions are.
fn always_read(expr: &Expr, seen: &mut NodeSet, loads: &mut Vec<Expr>) {
    if !seen.insert(expr) {
        return;
    }
    match &expr.kind {
        ExprKind::IfThenElse(first, ..) | ExprKind::Binary(BinOp::And | BinOp::Or, first, _) => {
            always_read(first, seen, loads);
        }
        kind => {
            if let ExprKind::Load { mask, .. } = kind {
                if mask.is_some() {
                    return;
                }
                loads.push(expr.clone());
            }
            for_each_child(expr, &mut |child| always_read(child, seen, loads));
        }
    }
}

/// Returns the lanes in which both masks hold.
fn both(mask: Option<&Expr>, own: Expr) -> Expr {
    match mask {
        Some(mask) => Expr::and(mask.clone(), own),
        None => own,
    }
}

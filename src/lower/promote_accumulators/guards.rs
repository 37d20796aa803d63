//! Elements of rows that may not exist: the sums of the last tile stay in registers, too.
//!
//! Before: `C[i] = 0; if (r < n) { C[i + m] = 0 }
//!          for k { C[i] = C[i] + A[j + k]; if (r < n) { C[i + m] = C[i + m] + A[j + l + k] } }`
//! After:  `C[i] = 0; allocate C.acc: register; C.acc[0] = 0
//!          for k { C[i] = C[i] + A[j + k]; C.acc[0] = C.acc[0] + A[j + k + select(r < n, l, 0)] }
//!          if (r < n) { C[i + m] = C.acc[0] }`
//!
//! A row that does not exist computes what an existing one computes, its sibling, and stores
//! nothing: it reads no other elements and needs no branch. An update that differs from those of
//! its sibling in more than indices of loads keeps its condition.

use super::elements::{Element, GuardedElement};
use super::{MAX_PROMOTED_ELEMENTS, Promoter, bind_vars, flatten, mentions_or_reads};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{for_each_child, map_children, map_stmts, reads_memory};
use crate::ir::{Buffer, Expr, ExprKind, Stmt, Var};
use rustc_hash::FxHashSet;

/// A store: its buffer, index, value and mask.
type Parts<'a> = (&'a Buffer, &'a Expr, &'a Expr, Option<&'a Expr>);

/// Whether a statement is a condition that reads no memory, around stores.
pub(super) fn is_guarded_store(stmt: &Stmt) -> bool {
    let Stmt::If { cond, then, otherwise: None } = stmt else { return false };
    !reads_memory(cond) && stores_of(then).is_some()
}

/// Returns the stores that a statement consists of.
pub(super) fn stores_of(stmt: &Stmt) -> Option<Vec<&Stmt>> {
    match stmt {
        Stmt::Store { nontemporal: false, .. } => Some(vec![stmt]),
        Stmt::Block(stmts) => {
            let all: Option<Vec<_>> = stmts.iter().map(stores_of).collect();
            Some(all?.concat())
        }
        _ => None,
    }
}

fn parts(store: &Stmt) -> Option<Parts<'_>> {
    let Stmt::Store { buffer, indices, value, mask, .. } = store else { return None };
    Some((buffer, &indices[0], value, mask.as_ref()))
}

/// A guarded element, and the existing one whose values it has where it does not exist.
struct Row {
    element: GuardedElement,
    /// The index of the existing element, once an update has shown it.
    sibling: Option<Expr>,
}

impl Promoter<'_> {
    /// Promotes the elements that a group of stores before a loop initializes, where some of them
    /// exist under a condition. `None` if none does, or if one of these must stay in memory.
    pub(super) fn promote_guarded(&self, group: &[Stmt], nest: &Stmt) -> Option<Stmt> {
        if !group.iter().any(is_guarded_store) {
            return None;
        }
        let mut bound = FxHashSet::default();
        bind_vars(nest, &mut bound);
        let mut rows = Vec::new();
        // The stores in their order, those of a row with its number.
        let mut inits: Vec<(&Stmt, Option<usize>)> = Vec::new();
        for stmt in group {
            let Stmt::If { cond, then, .. } = stmt else {
                inits.push((stmt, None));
                continue;
            };
            if mentions_or_reads(cond, &bound) {
                return None;
            }
            for store in stores_of(then)? {
                let (buffer, index, ..) = parts(store)?;
                let (buffer, index) = (buffer.clone(), index.clone());
                inits.push((store, Some(rows.len())));
                let element = GuardedElement { buffer, index, cond: cond.clone() };
                rows.push(Row { element, sibling: None });
            }
        }
        let is_stored_once = |row: &Row| {
            let same =
                inits.iter().filter_map(|(store, _)| parts(store)).filter(|(buffer, index, ..)| {
                    **buffer == row.element.buffer && equal(index, &row.element.index)
                });
            same.count() == 1
        };
        if inits.len() > MAX_PROMOTED_ELEMENTS || !rows.iter().all(is_stored_once) {
            return None;
        }
        let nest = Unguard { bound: &bound, rows: &mut rows }.stmt(nest.clone());
        let mut stores = Vec::new();
        for (store, row) in &inits {
            let Some(row) = row.map(|at| &rows[at]) else {
                stores.push((*store).clone());
                continue;
            };
            let siblings = inits.iter().filter(|(sibling, other)| {
                other.is_none()
                    && parts(sibling).is_some_and(|(_, index, ..)| row.may_be_like(index))
            });
            let values = siblings.filter_map(|(sibling, _)| row.like(store, sibling, &bound));
            stores.push(values.min_by_key(|(_, changes)| *changes)?.0);
        }
        let elements: Vec<GuardedElement> = rows.into_iter().map(|row| row.element).collect();
        self.promote_all(stores, nest, Vec::new(), &elements)
    }
}

/// Takes the updates of guarded elements out of their conditions.
struct Unguard<'a> {
    /// The variables that the nest binds.
    bound: &'a FxHashSet<Var>,
    rows: &'a mut [Row],
}

impl Unguard<'_> {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        let Stmt::Block(stmts) = stmt else {
            return map_stmts(stmt, &mut |inner| self.stmt(inner));
        };
        let mut flat = Vec::new();
        flatten(stmts, &mut flat);
        let existing: Vec<Stmt> =
            flat.iter().filter(|stmt| matches!(stmt, Stmt::Store { .. })).cloned().collect();
        let mut done = Vec::new();
        for stmt in flat {
            match self.unguarded(&stmt, &existing) {
                Some(stores) => done.extend(stores),
                None => done.push(self.stmt(stmt)),
            }
        }
        Stmt::Block(done)
    }

    /// Returns the stores of a conditional update without the condition; `None` if one of them has
    /// no sibling.
    fn unguarded(&mut self, stmt: &Stmt, existing: &[Stmt]) -> Option<Vec<Stmt>> {
        let Stmt::If { cond, then, otherwise: None } = stmt else { return None };
        let mut done = Vec::new();
        let mut siblings = Vec::new();
        for store in stores_of(then)? {
            let (buffer, index, ..) = parts(store)?;
            let at = self.rows.iter().position(|row| {
                row.element.buffer == *buffer
                    && equal(&row.element.index, index)
                    && equal(&row.element.cond, cond)
            })?;
            let row = &self.rows[at];
            let candidates = existing.iter().filter_map(|sibling| {
                let (_, index, ..) = parts(sibling)?;
                let fits = row.may_be_like(index);
                let (store, changes) = row.like(store, sibling, self.bound).filter(|_| fits)?;
                Some((changes, store, index))
            });
            let (_, store, index) = candidates.min_by_key(|(changes, ..)| *changes)?;
            siblings.push((at, index.clone()));
            done.push(store);
        }
        for (at, index) in siblings {
            self.rows[at].sibling = Some(index);
        }
        Some(done)
    }
}

impl Row {
    /// Whether the element at an index may be the sibling.
    fn may_be_like(&self, index: &Expr) -> bool {
        self.sibling.as_ref().is_none_or(|sibling| equal(sibling, index))
    }

    /// Returns a store to the element without the condition: where it is false, the value is that
    /// of `sibling`, another store. Also returns the number of indices that depend on the
    /// condition. `None` if the stores differ in more than indices.
    fn like(&self, store: &Stmt, sibling: &Stmt, bound: &FxHashSet<Var>) -> Option<(Stmt, usize)> {
        let (buffer, index, value, mask) = parts(store)?;
        let (other, other_index, other_value, other_mask) = parts(sibling)?;
        let same_lanes = index.ty == other_index.ty && equal_masks(mask, other_mask);
        if buffer != other || !same_lanes {
            return None;
        }
        let element = Element::new(buffer, index, mask);
        let mut choice = Choice { row: self, element: &element, bound, changes: 0 };
        let value = choice.expr(value, other_value)?;
        let (buffer, indices, mask) = (buffer.clone(), vec![index.clone()], mask.cloned());
        let store = Stmt::Store { buffer, indices, value, mask, nontemporal: false };
        Some((store, choice.changes))
    }
}

/// Chooses between the values of an element and of its sibling.
struct Choice<'a> {
    row: &'a Row,
    element: &'a Element,
    bound: &'a FxHashSet<Var>,
    changes: usize,
}

impl Choice<'_> {
    /// Returns an expression with the value of `a` where the condition holds, else of `b`; only
    /// indices of loads depend on the condition.
    fn expr(&mut self, a: &Expr, b: &Expr) -> Option<Expr> {
        if equal(a, b) {
            return Some(a.clone());
        }
        if let (
            ExprKind::Load { buffer, indices, mask },
            ExprKind::Load { buffer: other, indices: other_indices, mask: other_mask },
        ) = (&a.kind, &b.kind)
        {
            if *buffer == self.element.buffer && equal(&indices[0], &self.element.index) {
                return Some(a.clone());
            }
            if buffer != other || !equal_masks(mask.as_ref(), other_mask.as_ref()) {
                return None;
            }
            let indices = vec![self.index(&indices[0], &other_indices[0])?];
            let kind = ExprKind::Load { buffer: buffer.clone(), indices, mask: mask.clone() };
            return Some(Expr::new(a.ty, kind));
        }
        let (of_a, of_b) = (children(a), children(b));
        let mut next = of_a.iter();
        // The other children fit into one of the two only if the operation is the same.
        let is_same = of_a.len() == of_b.len()
            && equal(&map_children(b, &mut |_| next.next().expect("as many").clone()), a);
        if !is_same {
            return None;
        }
        let pairs: Option<Vec<Expr>> =
            of_a.iter().zip(&of_b).map(|(a, b)| self.expr(a, b)).collect();
        let mut pairs = pairs?.into_iter();
        Some(map_children(a, &mut |_| pairs.next().expect("as many")))
    }

    /// Returns the index `a` where the condition holds, else `b`. Their distance must be the same
    /// in all iterations, so that it is chosen once.
    fn index(&mut self, a: &Expr, b: &Expr) -> Option<Expr> {
        match (&a.kind, &b.kind) {
            (ExprKind::Ramp(first, stride), ExprKind::Ramp(other, other_stride))
                if equal(stride, other_stride) =>
            {
                let first = self.index(first, other)?;
                Some(Expr::new(a.ty, ExprKind::Ramp(first, stride.clone())))
            }
            (ExprKind::Broadcast(one), ExprKind::Broadcast(other)) => {
                Some(Expr::new(a.ty, ExprKind::Broadcast(self.index(one, other)?)))
            }
            _ if equal(a, b) => Some(a.clone()),
            _ if a.ty.lanes == 1 => {
                let distance = Expr::sub(a.clone(), b.clone());
                let distance = simplify_expr(&distance, &Facts::new());
                if mentions_or_reads(&distance, self.bound) {
                    return None;
                }
                self.changes += 1;
                let none = Expr::index(0);
                let chosen = Expr::select(self.row.element.cond.clone(), distance, none);
                Some(Expr::add(b.clone(), chosen))
            }
            _ => None,
        }
    }
}

fn equal_masks(a: Option<&Expr>, b: Option<&Expr>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => equal(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn children(expr: &Expr) -> Vec<Expr> {
    let mut all = Vec::new();
    for_each_child(expr, &mut |child| all.push(child.clone()));
    all
}

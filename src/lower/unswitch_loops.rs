//! Unswitch loops: decides conditions in front of the loops that repeat them, in copies of these
//! loops.
//!
//! Before: `for (k, 0, n) { a = …; if (i + 1 < m) { b = … }; if (i + 2 < m) { c = … } }`
//! After:  `if (i + 2 < m) { for (k, 0, n) { a = …; b = …; c = … } } else if (i + 1 < m) { for
//! (k, 0, n) { a = …; b = … } } else { for (k, 0, n) { a = … } }`
//! The rows of a tile that may not exist, at the end of a run-time extent, otherwise need a branch
//! for each term of a sum.
//! Needs: simplified conditions; loops over the rows of a tile are written out, so it stands behind
//! `unroll_loops`. Stands before `promote_accumulators`, which keeps what is stored without a
//! condition in registers.
//! Ensures: nothing for later passes.  Breaks: nothing.
//! Declines: conditions that read memory or are no comparisons of indices; those that no loop
//! repeats, or that guard no term of a sum; copies beyond `MAX_STORES`. Of many conditions, the
//! weakest and the middle one are decided; the others stay where these do not decide them.

use crate::diag::Result;
use crate::ir::arith::{Facts, Poly};
use crate::ir::copy::fresh_copy;
use crate::ir::visit::{any_expr, for_each_stmt, map_stmts, mentions, stored_buffers};
use crate::ir::{BinOp, DType, Expr, ExprKind, ForKind, Kernel, Stmt, Var};
use crate::target::Target;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The largest number of stores in all copies of a statement.
const MAX_STORES: usize = 1024;

/// The largest number of conditions that differ by a constant and that are all decided.
const MAX_DECIDED: usize = 3;

/// Decides conditions in front of loops.
pub fn unswitch_loops(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let mut pass = Unswitch { facts: Facts::new(), room: 2 * MAX_STORES };
    let body = pass.loops(kernel.body);
    Ok(Kernel { body, ..kernel })
}

struct Unswitch {
    facts: Facts,
    /// The number of stores that may still be added to the kernel.
    room: usize,
}

/// A condition `form + constant >= 0`.
struct Condition {
    form: Poly,
    constant: i128,
}

/// Conditions that differ by a constant only, by that constant: the least is the strongest.
#[derive(Default)]
struct Group {
    conditions: BTreeMap<i128, Expr>,
    count: usize,
    /// Whether a loop repeats one of them, and it guards terms of a sum.
    is_repeated: bool,
}

/// The conditions of a group that are decided: those whose constant is at least `holds`, and those
/// whose constant is at most `fails`.
#[derive(Clone, Copy)]
struct Decided {
    holds: i128,
    fails: i128,
}

impl Unswitch {
    /// Decides conditions in the bodies of all loops of a statement.
    fn loops(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::For { var, min, extent, kind, body } => {
                let runs = matches!(kind, ForKind::Serial | ForKind::Parallel);
                let body = if runs { self.decide(*body) } else { *body };
                let body = Box::new(self.loops(body));
                Stmt::For { var, min, extent, kind, body }
            }
            other => map_stmts(other, &mut |inner| self.loops(inner)),
        }
    }

    /// Decides the conditions of a statement that do not depend on its own variables.
    fn decide(&mut self, stmt: Stmt) -> Stmt {
        let mut groups: Vec<(Poly, Group)> = Vec::new();
        self.collect(&stmt, &mut Vec::new(), false, &mut groups);
        groups.retain(|(_, group)| group.is_repeated);
        // Of equally frequent ones, the first.
        match groups.iter().rev().max_by_key(|(_, group)| group.count) {
            Some((form, group)) => self.place(stmt, form, group),
            None => stmt,
        }
    }

    /// Puts the choice around the part of a statement that has all conditions of a group.
    fn place(&mut self, stmt: Stmt, form: &Poly, group: &Group) -> Stmt {
        let has_conditions = |unswitch: &Unswitch, part: &Stmt| {
            let mut count = 0;
            unswitch.count(part, form, &mut count);
            count > 0
        };
        match stmt {
            Stmt::Block(stmts) => {
                let mut of_group = (0..).zip(&stmts).filter(|(_, part)| has_conditions(self, part));
                let (first, others) = (of_group.next(), of_group.next());
                // `promote_accumulators` wants initial values directly before their loop.
                let initializes = |(at, part): (usize, &Stmt)| {
                    let updated = stored_buffers(part);
                    let stores = |stmt: &Stmt| match stmt {
                        Stmt::Store { buffer, .. } => updated.contains(buffer),
                        _ => false,
                    };
                    stmts[..at].iter().any(stores)
                };
                if others.is_some() || first.is_none_or(initializes) {
                    return self.choose(Stmt::Block(stmts), form, group);
                }
                let parts = stmts.into_iter().map(|part| match has_conditions(self, &part) {
                    true => self.place(part, form, group),
                    false => part,
                });
                Stmt::Block(parts.collect())
            }
            Stmt::If { cond, then, otherwise: Some(otherwise) }
                if self.condition(&cond).is_none_or(|own| own.form != *form) =>
            {
                match (has_conditions(self, &then), has_conditions(self, &otherwise)) {
                    (true, true) => {
                        let otherwise = Some(otherwise);
                        self.choose(Stmt::If { cond, then, otherwise }, form, group)
                    }
                    (true, false) => {
                        let then = Box::new(self.place(*then, form, group));
                        Stmt::If { cond, then, otherwise: Some(otherwise) }
                    }
                    _ => {
                        let otherwise = Some(Box::new(self.place(*otherwise, form, group)));
                        Stmt::If { cond, then, otherwise }
                    }
                }
            }
            Stmt::Let { var, value, body } => {
                let body = Box::new(self.place(*body, form, group));
                Stmt::Let { var, value, body }
            }
            Stmt::Allocate { buffer, body } => {
                let body = Box::new(self.place(*body, form, group));
                Stmt::Allocate { buffer, body }
            }
            Stmt::Produce { name, body } => {
                let body = Box::new(self.place(*body, form, group));
                Stmt::Produce { name, body }
            }
            other => self.choose(other, form, group),
        }
    }

    /// Returns a choice between copies of a statement in which the conditions are decided.
    fn choose(&mut self, stmt: Stmt, form: &Poly, group: &Group) -> Stmt {
        let all: Vec<i128> = group.conditions.keys().copied().collect();
        // The strongest first; the weakest one says whether there is any second row.
        let decided = match all.len() {
            ..=MAX_DECIDED => all,
            many => vec![all[many / 2], all[many - 1]],
        };
        let mut cases: Vec<(Option<i128>, Decided)> = Vec::new();
        let mut fails = i128::MIN;
        for constant in &decided {
            cases.push((Some(*constant), Decided { holds: *constant, fails }));
            fails = *constant;
        }
        cases.push((None, Decided { holds: i128::MAX, fails }));
        let parts: Vec<Stmt> = cases
            .iter()
            .map(|(_, decided)| self.with(fresh_copy(&stmt, &FxHashMap::default()), form, *decided))
            .collect();
        let stores: usize = parts.iter().map(count_stores).sum();
        let added = stores.saturating_sub(count_stores(&stmt));
        if stores > MAX_STORES || added > self.room {
            return stmt;
        }
        self.room -= added;
        let mut rest: Option<Stmt> = None;
        for ((constant, _), part) in cases.into_iter().zip(parts).rev() {
            rest = Some(match (constant, rest) {
                (Some(constant), Some(rest)) => {
                    let (cond, otherwise) = (group.conditions[&constant].clone(), Box::new(rest));
                    Stmt::If { cond, then: Box::new(part), otherwise: Some(otherwise) }
                }
                _ => part,
            });
        }
        rest.unwrap_or(stmt)
    }

    /// Returns a statement in which the conditions of a group are decided.
    fn with(&self, stmt: Stmt, form: &Poly, decided: Decided) -> Stmt {
        match stmt {
            Stmt::If { cond, then, otherwise } => {
                let own = self.condition(&cond).filter(|own| own.form == *form);
                let otherwise = otherwise.map(|stmt| self.with(*stmt, form, decided));
                match own {
                    Some(own) if own.constant >= decided.holds => self.with(*then, form, decided),
                    Some(own) if own.constant <= decided.fails => {
                        otherwise.unwrap_or_else(Stmt::nothing)
                    }
                    _ => {
                        let then = Box::new(self.with(*then, form, decided));
                        Stmt::If { cond, then, otherwise: otherwise.map(Box::new) }
                    }
                }
            }
            other => map_stmts(other, &mut |inner| self.with(inner, form, decided)),
        }
    }

    /// Adds the conditions of a statement that depend on none of the variables that it binds.
    fn collect(
        &self,
        stmt: &Stmt,
        bound: &mut Vec<Var>,
        in_loop: bool,
        groups: &mut Vec<(Poly, Group)>,
    ) {
        let (mut binds, mut in_loop) = (None, in_loop);
        match stmt {
            Stmt::For { var, kind, .. } => {
                binds = Some(var);
                in_loop |= matches!(kind, ForKind::Serial | ForKind::Parallel);
            }
            Stmt::Let { var, .. } => binds = Some(var),
            Stmt::If { cond, then, .. } if !bound.iter().any(|var| mentions(cond, var)) => {
                if let Some(Condition { form, constant }) = self.condition(cond) {
                    let at = groups.iter().position(|(own, _)| *own == form);
                    let at = at.unwrap_or_else(|| {
                        groups.push((form, Group::default()));
                        groups.len() - 1
                    });
                    let group = &mut groups[at].1;
                    group.conditions.insert(constant, cond.clone());
                    group.count += 1;
                    group.is_repeated |= in_loop && adds(then);
                }
            }
            _ => {}
        }
        bound.extend(binds.cloned());
        for_each_stmt(stmt, &mut |inner| self.collect(inner, bound, in_loop, groups));
        if binds.is_some() {
            bound.pop();
        }
    }

    /// Counts the conditions of a group.
    fn count(&self, stmt: &Stmt, form: &Poly, count: &mut usize) {
        if let Stmt::If { cond, .. } = stmt
            && self.condition(cond).is_some_and(|own| own.form == *form)
        {
            *count += 1;
        }
        for_each_stmt(stmt, &mut |inner| self.count(inner, form, count));
    }

    /// Returns the normal form of a comparison of indices.
    fn condition(&self, cond: &Expr) -> Option<Condition> {
        let ExprKind::Binary(op @ (BinOp::Lt | BinOp::Le), a, b) = &cond.kind else { return None };
        if a.ty != DType::Index.into()
            || any_expr(cond, &mut |e| matches!(e.kind, ExprKind::Load { .. }))
        {
            return None;
        }
        let slack = self.facts.poly(b).minus(&self.facts.poly(a))?;
        let constant = slack.constant - i128::from(*op == BinOp::Lt);
        let form = Poly { constant: 0, ..slack };
        (!form.terms.is_empty()).then_some(Condition { form, constant })
    }
}

/// Whether a statement adds something to an element.
fn adds(stmt: &Stmt) -> bool {
    let mut found = match stmt {
        Stmt::Store { buffer, value, .. } => any_expr(
            value,
            &mut |e| matches!(&e.kind, ExprKind::Load { buffer: own, .. } if own == buffer),
        ),
        _ => false,
    };
    for_each_stmt(stmt, &mut |inner| found = found || adds(inner));
    found
}

fn count_stores(stmt: &Stmt) -> usize {
    let mut count = usize::from(matches!(stmt, Stmt::Store { .. }));
    for_each_stmt(stmt, &mut |inner| count += count_stores(inner));
    count
}

//! Partition loops: splits loops so that the part where `likely` conditions hold runs without them.
//!
//! Before: `for (xo, 0, 13) { for (xi, 0, 8) { if (likely(xo*8 + xi < 100)) { … } } }`
//! After:  `for (xo, 0, 12) { for (xi, 0, 8) { … } }  for (xi, 0, 4) { … 96 + xi … }`
//! Iterations that would do nothing are left out. A parallel loop stays one loop with a choice in
//! its body, and so does a loop with a boundary that is not affine in its variable.
//! Needs: simplified conditions, as margins are linear forms. Stands before `vectorize_loops` and
//! `unroll_loops`, which then handle loops without conditions and copy less.
//! Ensures: no `likely` is left; conditions that stay are ordinary ones.  Breaks: simplified form.
//! Declines: conditions that are not comparisons of indices; a boundary that differs between the
//! threads of a block, which must all run the same parts; loops over GPU indices; everything after
//! `MAX_COPIES` copies in a kernel.

use super::loop_range::{Affine, iterations_where};
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::launch::Varying;
use crate::ir::scopes::ScopedRewrite;
use crate::ir::simplify::{extremum, simplify_expr};
use crate::ir::visit::{for_each_stmt, map_stmts, mentions, replace_nodes, rewrite_exprs};
use crate::ir::{BinOp, DType, Expr, ExprKind, ForKind, Kernel, Stmt, UnOp, Var};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// The largest number of copies of loop bodies that the pass makes in one kernel.
const MAX_COPIES: usize = 64;

/// Partitions every loop around `likely` conditions.
pub fn partition_loops(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let body = apart(kernel.body);
    if !has_likely(&body, &|_| true) {
        return Ok(Kernel { body, ..kernel });
    }
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let mut partitioner = Partitioner { facts, copies: 0, varying: None };
    let body = partitioner.stmt(body);
    Ok(Kernel { body: drop_marks(body), ..kernel })
}

/// Takes `likely` conditions out of conjunctions with others: a tail of a sum whose terms have a
/// condition on data, too.
///
/// Before: `if (likely(i < n) && 0 < A[i]) { … }`
/// After:  `if (likely(i < n)) { if (0 < A[i]) { … } }`
fn apart(stmt: Stmt) -> Stmt {
    let stmt = map_stmts(stmt, &mut apart);
    let Stmt::If { cond, then, otherwise: None } = stmt else { return stmt };
    let (mut likely, mut others) = (Vec::new(), Vec::new());
    operands(&cond, &mut likely, &mut others);
    if likely.is_empty() || others.is_empty() {
        return Stmt::If { cond, then, otherwise: None };
    }
    let inner = others.into_iter().reduce(Expr::and);
    inner.into_iter().chain(likely.into_iter().rev()).fold(*then, |body, cond| Stmt::If {
        cond,
        then: Box::new(body),
        otherwise: None,
    })
}

/// Adds the operands of a conjunction, in order.
fn operands(cond: &Expr, likely: &mut Vec<Expr>, others: &mut Vec<Expr>) {
    match &cond.kind {
        ExprKind::Binary(BinOp::And, a, b) if cond.ty.is_scalar() => {
            operands(a, likely, others);
            operands(b, likely, others);
        }
        _ if is_likely(cond) => likely.push(cond.clone()),
        _ => others.push(cond.clone()),
    }
}

/// Whether a statement contains a `likely` condition with a property.
fn has_likely(stmt: &Stmt, property: &dyn Fn(&Expr) -> bool) -> bool {
    let mut found = matches!(stmt, Stmt::If { cond, .. } if is_likely(cond) && property(cond));
    for_each_stmt(stmt, &mut |inner| found = found || has_likely(inner, property));
    found
}

fn is_likely(cond: &Expr) -> bool {
    matches!(cond.kind, ExprKind::Unary(UnOp::Likely, _))
}

/// Makes the conditions that were not moved out ordinary ones.
fn drop_marks(stmt: Stmt) -> Stmt {
    rewrite_exprs(stmt, &mut |expr| {
        replace_nodes(expr, &mut |e| match &e.kind {
            ExprKind::Unary(UnOp::Likely, cond) => Some(cond.clone()),
            _ => None,
        })
    })
}

struct Partitioner {
    facts: Facts,
    copies: usize,
    /// The variables that differ between threads, in a launch.
    varying: Option<Varying>,
}

/// A loop's head.
#[derive(Clone)]
struct Head {
    var: Var,
    min: Expr,
    extent: Expr,
    kind: ForKind,
}

/// A `likely` condition in the body of a loop that depends on its variable.
struct LikelyCondition {
    /// The condition with its mark.
    cond: Expr,
    /// If this is at least 0, the condition holds in all iterations of inner loops.
    margin: Expr,
    /// If this is below 0, the condition holds in no iteration of inner loops; `None` if unknown.
    reach: Option<Expr>,
    /// Whether it depends on no inner loop, so that a negative margin means that it fails.
    exact: bool,
}

impl ScopedRewrite for Partitioner {
    fn facts(&mut self) -> &mut Facts {
        &mut self.facts
    }

    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::For { var, min, extent, kind, body } => {
                self.for_loop(Head { var, min, extent, kind }, *body)
            }
            Stmt::Let { ref var, ref value, .. } => {
                if let Some(varying) = &mut self.varying {
                    varying.enter_let(var, value);
                }
                self.children(stmt)
            }
            other => self.children(other),
        }
    }
}

impl Partitioner {
    fn for_loop(&mut self, head: Head, body: Stmt) -> Stmt {
        let (min, extent) = (self.simple(&head.min), self.simple(&head.extent));
        let head = Head { min, extent, ..head };
        if matches!(head.kind, ForKind::Thread(_)) {
            self.varying.get_or_insert_default();
        }
        if let Some(varying) = &mut self.varying {
            varying.enter_loop(&head.var, &head.kind, &head.min, &head.extent);
        }
        if matches!(head.kind, ForKind::Thread(_)) {
            return self.inside(head, body);
        }
        match head.extent.as_int() {
            Some(..=0) => return Stmt::nothing(),
            Some(1) => {
                let value = FxHashMap::from_iter([(head.var.clone(), head.min.clone())]);
                return self.stmt(fresh_copy(&body, &value));
            }
            _ => {}
        }
        let found = self.find(&head, &body);
        let differs = self
            .varying
            .as_ref()
            .is_some_and(|varying| found.iter().any(|one| !varying.agrees(&one.margin)));
        if found.is_empty() || differs || self.copies >= MAX_COPIES {
            return self.inside(head, body);
        }
        let margins: Vec<&Expr> = found.iter().map(|one| &one.margin).collect();
        let range = self.affine_range(&head, &margins);
        let alone = found.iter().all(|one| one.exact && is_nothing_without(&body, &[&one.cond]));
        let lanes = head.kind == ForKind::Vectorized;
        match range {
            Some((first, end)) if alone => {
                let extent = self.simple(&Expr::sub(end, first.clone()));
                let fixed = matches!(head.kind, ForKind::Vectorized | ForKind::Unrolled);
                if fixed && extent.as_int().is_none() {
                    return self.inside(head, body);
                }
                let body = without(body, &found);
                self.within(Head { min: first, extent, ..head }, body)
            }
            _ if lanes => self.inside(head, body),
            Some((first, end)) if head.kind != ForKind::Parallel => {
                self.cut(head, body, &found, first, end)
            }
            _ => self.choose(head, body, &found, alone),
        }
    }

    /// Partitions the body of a loop whose conditions are not moved out of it again. A loop of one
    /// iteration is partitioned as before.
    fn within(&mut self, head: Head, body: Stmt) -> Stmt {
        match head.extent.as_int() {
            Some(..=1) => self.for_loop(head, body),
            _ => self.inside(head, body),
        }
    }

    /// Keeps the loop whole and partitions its body.
    fn inside(&mut self, head: Head, body: Stmt) -> Stmt {
        let (Head { var, min, extent, kind }, body) = (head, Box::new(body));
        self.children(Stmt::For { var, min, extent, kind, body })
    }

    /// Cuts a loop into up to three: before the part where all conditions hold, that part, after
    /// it.
    fn cut(
        &mut self,
        head: Head,
        body: Stmt,
        found: &[LikelyCondition],
        first: Expr,
        end: Expr,
    ) -> Stmt {
        let last = self.simple(&Expr::add(head.min.clone(), head.extent.clone()));
        let (begin, last) = match self.reached(&head, &body, found) {
            Some((begin, reached)) => (
                self.pick(BinOp::Min, begin, first.clone()),
                self.pick(BinOp::Max, reached, end.clone()),
            ),
            None => (head.min.clone(), last),
        };
        let parts = [(begin, first.clone(), false), (first, end.clone(), true), (end, last, false)];
        let extents: Vec<Expr> = parts
            .iter()
            .map(|(from, to, _)| self.simple(&Expr::sub(to.clone(), from.clone())))
            .collect();
        // The part without conditions must not be empty, and unrolled parts need constant extents.
        let empty = extents[1].as_int().is_some_and(|extent| extent <= 0);
        let fixed = head.kind == ForKind::Unrolled;
        if empty || (fixed && extents.iter().any(|extent| extent.as_int().is_none())) {
            return self.inside(head, body);
        }
        let main = without(body.clone(), found);
        let mut stmts = Vec::new();
        for ((from, _, holds), extent) in parts.into_iter().zip(extents) {
            if extent.as_int() == Some(0) {
                continue;
            }
            let part = if holds { &main } else { &body };
            let var = Var::index(head.var.name());
            let free = FxHashMap::from_iter([(head.var.clone(), Expr::var(&var))]);
            let part = fresh_copy(part, &free);
            self.copies += 1;
            let head = Head { var, min: from, extent, kind: head.kind.clone() };
            stmts.push(if holds { self.for_loop(head, part) } else { self.within(head, part) });
        }
        Stmt::Block(stmts)
    }

    /// Returns the range of iterations that may have an effect; `None` if all may.
    fn reached(
        &mut self,
        head: &Head,
        body: &Stmt,
        found: &[LikelyCondition],
    ) -> Option<(Expr, Expr)> {
        let reaches = self.guards(body, found);
        if reaches.is_empty() { None } else { self.affine_range(head, &reaches) }
    }

    /// Returns expressions that are negative only in iterations that do nothing.
    fn guards<'f>(&self, body: &Stmt, found: &'f [LikelyCondition]) -> Vec<&'f Expr> {
        let agrees = |reach: &Expr| self.varying.as_ref().is_none_or(|all| all.agrees(reach));
        let reaches = found.iter().filter_map(|one| one.reach.as_ref());
        let guards = reaches.filter(|reach| self.decides(reach, body, found));
        guards.filter(|reach| agrees(reach)).collect()
    }

    /// Whether a body does nothing if this reach is negative. So are those that are less by a
    /// constant, such as the reaches of other terms of an unrolled loop. Several conditions may
    /// have the same one, such as those of the initial store of a sum and of its updates.
    fn decides(&self, reach: &Expr, body: &Stmt, found: &[LikelyCondition]) -> bool {
        let wanted = self.facts.poly(reach);
        let fails = |one: &&LikelyCondition| {
            one.reach.as_ref().is_some_and(|its| {
                let less = wanted.plus_scaled(&self.facts.poly(its), -1);
                less.and_then(|less| less.as_constant()).is_some_and(|less| less >= 0)
            })
        };
        let conds: Vec<&Expr> = found.iter().filter(fails).map(|one| &one.cond).collect();
        is_nothing_without(body, &conds)
    }

    /// Makes one loop with a choice in its body between a copy without conditions and the original.
    fn choose(&mut self, head: Head, body: Stmt, found: &[LikelyCondition], alone: bool) -> Stmt {
        let zero = Expr::index(0);
        let holds = found.iter().map(|one| Expr::le(zero.clone(), one.margin.clone()));
        let cond = holds.reduce(Expr::and).expect("something was found");
        self.facts.push();
        self.facts.bind(&head.var, &head.min, &head.extent);
        let cond = self.simple(&cond);
        let main = without(body.clone(), found);
        self.facts.push();
        self.facts.assume(&cond);
        let then = Box::new(self.stmt(fresh_copy(&main, &FxHashMap::default())));
        self.facts.pop();
        self.copies += 2;
        let otherwise = match alone {
            true => None,
            false => {
                let reached = self.guards(&body, found).into_iter();
                let reached = reached.map(|reach| Expr::le(Expr::index(0), reach.clone()));
                let reached = reached.reduce(Expr::and).map(|cond| self.simple(&cond));
                let body = self.stmt(body);
                Some(Box::new(match reached.filter(|cond| cond.as_int() != Some(1)) {
                    Some(cond) => Stmt::If { cond, then: Box::new(body), otherwise: None },
                    None => body,
                }))
            }
        };
        self.facts.pop();
        let Head { var, min, extent, kind } = head;
        let body = Box::new(Stmt::If { cond, then, otherwise });
        Stmt::For { var, min, extent, kind, body }
    }

    /// Finds the `likely` conditions in the body that depend on the loop's variable and have a
    /// known margin.
    fn find(&mut self, head: &Head, body: &Stmt) -> Vec<LikelyCondition> {
        self.facts.push();
        self.facts.bind(&head.var, &head.min, &head.extent);
        let mut found = Vec::new();
        self.search(&head.var, body, &mut Vec::new(), &mut found);
        self.facts.pop();
        found
    }

    fn search(
        &mut self,
        var: &Var,
        stmt: &Stmt,
        inner: &mut Vec<Var>,
        found: &mut Vec<LikelyCondition>,
    ) {
        match stmt {
            // Without a condition to find, the facts of the loop are not needed.
            Stmt::For { body, .. } if !has_likely(body, &|cond| mentions(cond, var)) => {}
            Stmt::For { var: own, min, extent, body, .. } => {
                self.facts.push();
                self.facts.bind(own, min, extent);
                inner.push(own.clone());
                self.search(var, body, inner, found);
                inner.pop();
                self.facts.pop();
            }
            Stmt::If { cond, then, otherwise } => {
                if is_likely(cond)
                    && let Some(one) = self.margin(var, cond, inner)
                {
                    found.push(one);
                }
                self.search(var, then, inner, found);
                if let Some(otherwise) = otherwise {
                    self.search(var, otherwise, inner, found);
                }
            }
            other => for_each_stmt(other, &mut |stmt| self.search(var, stmt, inner, found)),
        }
    }

    fn margin(&self, var: &Var, cond: &Expr, inner: &[Var]) -> Option<LikelyCondition> {
        let ExprKind::Unary(UnOp::Likely, bare) = &cond.kind else { return None };
        if !mentions(bare, var) {
            return None;
        }
        let ExprKind::Binary(op, a, b) = &bare.kind else { return None };
        if a.ty != DType::Index.into() {
            return None;
        }
        let slack = Expr::sub(b.clone(), a.clone());
        let slack = match op {
            BinOp::Lt => Expr::sub(slack, Expr::index(1)),
            BinOp::Le => slack,
            _ => return None,
        };
        let moving: Vec<Var> = inner.iter().filter(|var| mentions(bare, var)).cloned().collect();
        let (margin, reach) = if moving.is_empty() {
            let slack = self.simple(&slack);
            (slack.clone(), slack)
        } else {
            let (margin, reach) = self.facts.bounds(&slack, &moving)?;
            (self.simple(&margin), self.simple(&reach))
        };
        let fits = |one: &Expr| !inner.iter().any(|own| mentions(one, own)) && mentions(one, var);
        let exact = moving.is_empty();
        let reach = Some(reach).filter(fits);
        fits(&margin).then(|| LikelyCondition { cond: cond.clone(), margin, reach, exact })
    }

    /// Returns the range `first .. end` of iterations in which all margins are at least 0; `None`
    /// if one of them is not affine in the variable.
    fn affine_range(&self, head: &Head, margins: &[&Expr]) -> Option<(Expr, Expr)> {
        // The stages of a tile have the same tails.
        let mut seen = FxHashSet::default();
        let distinct = margins.iter().filter(|margin| seen.insert(self.facts.poly(margin)));
        let affine = |margin: &&Expr| Affine::new(margin, &head.var, &self.facts);
        let margins: Vec<Affine> = distinct.map(affine).collect::<Option<_>>()?;
        let end = Expr::add(head.min.clone(), head.extent.clone());
        let margins: Vec<&Affine> = margins.iter().collect();
        Some(iterations_where(&margins, (&head.min, &end), &self.facts))
    }

    fn pick(&self, op: BinOp, a: Expr, b: Expr) -> Expr {
        extremum(op, a, b, &self.facts)
    }

    fn simple(&self, expr: &Expr) -> Expr {
        simplify_expr(expr, &self.facts)
    }
}

/// Removes these conditions, which hold, from the statement.
fn without(stmt: Stmt, found: &[LikelyCondition]) -> Stmt {
    match stmt {
        Stmt::If { cond, then, .. } if found.iter().any(|one| one.cond.same(&cond)) => {
            without(*then, found)
        }
        other => map_stmts(other, &mut |inner| without(inner, found)),
    }
}

/// Whether the statement does nothing if all these conditions are false.
fn is_nothing_without(stmt: &Stmt, conds: &[&Expr]) -> bool {
    match stmt {
        Stmt::If { cond, otherwise, .. } if conds.iter().any(|one| one.same(cond)) => {
            otherwise.as_ref().is_none_or(|stmt| is_nothing_without(stmt, conds))
        }
        Stmt::Block(stmts) => stmts.iter().all(|stmt| is_nothing_without(stmt, conds)),
        Stmt::For { body, .. }
        | Stmt::Let { body, .. }
        | Stmt::Allocate { body, .. }
        | Stmt::Produce { body, .. }
        | Stmt::Tensorize { body, .. } => is_nothing_without(body, conds),
        Stmt::If { then, otherwise, .. } => {
            is_nothing_without(then, conds)
                && otherwise.as_ref().is_none_or(|stmt| is_nothing_without(stmt, conds))
        }
        _ => false,
    }
}

//! Skips loop nests that store nothing.
//!
//! Before: `for (j, 0, m) { for (i, 0, n) { c[…] = … } }`
//! After:  `if (0 < n) { for (j, 0, m) { for (i, 0, n) { c[…] = … } } }`
//! If one extent of a tensor is 0, another one may be huge; without the condition, a call without
//! work could run for years. The loops of tiles and waves do not always show that they are empty:
//! the number of elements that the nest stores to does, in front of the outermost loop.
//! Loops over GPU indices are unchanged: they define the launch.

use super::arith::Facts;
use super::equal::equal;
use super::simplify::simplify_expr;
use super::visit::{
    NodeSet, for_each_expr, for_each_load, for_each_stmt, map_stmts, mentions, reads_memory,
    substitute,
};
use super::{BinOp, Buffer, Expr, ExprKind, ForKind, Kernel, Param, Stmt, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// The largest number of comparisons in front of a loop.
const MAX_COMPARISONS: usize = 12;

/// When a statement has an effect outside of itself.
enum Effect {
    Never,
    /// Only if all extents of at least one list are positive.
    If(Vec<Vec<Expr>>),
    /// Possibly in every case.
    Always,
}

/// Returns the body of a kernel with a condition in front of each nest that may store nothing.
pub fn skip_empty_nests(kernel: &Kernel) -> Stmt {
    let given = kernel.facts.clone();
    let accesses = count_accesses(&kernel.body);
    let mut guard = Guard { accesses, given, known: Vec::new(), depth: 0 };
    for param in &kernel.params {
        if let Param::Tensor { buffer, .. } = param {
            // A parameter is never private to a nest, because the caller reads it.
            *guard.accesses.entry(buffer.clone()).or_default() += 1;
        }
    }
    guard.stmt(kernel.body.clone())
}

struct Guard {
    /// The number of statements in the kernel that access each buffer.
    accesses: FxHashMap<Buffer, usize>,
    /// What holds in the whole kernel.
    given: Vec<Expr>,
    /// Extents that are positive at the current statement.
    known: Vec<Expr>,
    /// The number of loops around it.
    depth: usize,
}

impl Guard {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        let Stmt::For { var, min, extent, kind, body } = stmt else {
            return map_stmts(stmt, &mut |inner| self.stmt(inner));
        };
        let before = self.known.len();
        let cond = match (&kind, self.effect(&body, &self.private(&body))) {
            (ForKind::Thread(_), _) => None,
            (_, Effect::If(lists)) => {
                let lists = over_loop(lists, &var, &min, &extent);
                match effect_if(self.unknown(lists, &extent)) {
                    Effect::If(lists) => {
                        if let [list] = &lists[..] {
                            self.known.extend(list.iter().cloned());
                        }
                        condition(&lists)
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        self.known.push(extent.clone());
        self.depth += 1;
        let body = Box::new(self.stmt(*body));
        self.depth -= 1;
        self.known.truncate(before);
        let nest = Stmt::For { var, min, extent, kind, body };
        match cond {
            Some(cond) => Stmt::If { cond, then: Box::new(nest), otherwise: None },
            None => nest,
        }
    }

    /// Returns the buffers that are accessed only inside `stmt`.
    fn private(&self, stmt: &Stmt) -> FxHashSet<Buffer> {
        let inside = count_accesses(stmt);
        let is_all = |(buffer, count): &(Buffer, usize)| self.accesses.get(buffer) == Some(count);
        inside.into_iter().filter(is_all).map(|(buffer, _)| buffer).collect()
    }

    fn effect(&self, stmt: &Stmt, private: &FxHashSet<Buffer>) -> Effect {
        match stmt {
            Stmt::Store { buffer, .. } if private.contains(buffer) => Effect::Never,
            Stmt::Prefetch { .. } => Effect::Never,
            Stmt::Sort(sort) if private.contains(&sort.order) => Effect::Never,
            Stmt::For { kind: ForKind::Thread(_), .. } => Effect::Always,
            Stmt::For { var, min, extent, body, .. } => {
                let lists = match self.effect(body, private) {
                    Effect::Never => return Effect::Never,
                    Effect::If(lists) => over_loop(lists, var, min, extent),
                    Effect::Always => vec![Vec::new()],
                };
                if reads_memory(extent) || self.is_positive(extent) {
                    return effect_if(lists);
                }
                let with = |mut list: Vec<Expr>| {
                    if !list.iter().any(|other| equal(other, extent)) {
                        list.push(extent.clone());
                    }
                    list
                };
                effect_if(lists.into_iter().map(with).collect())
            }
            Stmt::Let { var, value, body } => match self.effect(body, private) {
                Effect::If(lists) if reads_memory(value) => {
                    effect_if(without_dependent(lists, var))
                }
                Effect::If(lists) => {
                    let replace =
                        |e: &Expr| substitute(e, &mut |v| (v == var).then(|| value.clone()));
                    effect_if(lists.iter().map(|list| list.iter().map(replace).collect()).collect())
                }
                other => other,
            },
            // An extent under a false condition may overflow. Its value then does not matter: the
            // nest stores nothing.
            Stmt::Block(_)
            | Stmt::If { .. }
            | Stmt::Allocate { .. }
            | Stmt::Produce { .. }
            | Stmt::Tensorize { .. }
            | Stmt::SimdKernel { .. } => {
                let mut all = Vec::new();
                for_each_stmt(stmt, &mut |inner| all.push(self.effect(inner, private)));
                any_of(all)
            }
            Stmt::Store { buffer, .. } => match elements(buffer) {
                // One test for a whole nest is enough.
                _ if self.depth > 0 => Effect::Always,
                count if count.as_int().is_some() || reads_memory(&count) => Effect::Always,
                count => Effect::If(vec![vec![count]]),
            },
            Stmt::Sort(_)
            | Stmt::Assert { .. }
            | Stmt::Barrier
            | Stmt::CopyGroup { .. }
            | Stmt::AwaitCopies { .. } => Effect::Always,
        }
    }

    /// Returns the extents that are not positive wherever the loops around them have iterations.
    /// The first one of each list is the number of elements of a buffer, which may follow from the
    /// others.
    fn unknown(&self, lists: Vec<Vec<Expr>>, extent: &Expr) -> Vec<Vec<Expr>> {
        let mut facts = Facts::new();
        self.given.iter().for_each(|cond| facts.assume(cond));
        let positive = |extent: &Expr| Expr::lt(Expr::index(0), extent.clone());
        for known in self.known.iter().chain([extent]) {
            facts.assume(&positive(known));
        }
        let unknown = |list: Vec<Expr>| {
            let mut rest: Vec<Expr> =
                list.into_iter().filter(|extent| !facts.prove(&positive(extent))).collect();
            let mut others = facts.clone();
            rest.iter().skip(1).for_each(|extent| others.assume(&positive(extent)));
            if rest.first().is_some_and(|count| others.prove(&positive(count))) {
                rest.remove(0);
            }
            rest
        };
        lists.into_iter().map(unknown).collect()
    }

    fn is_positive(&self, extent: &Expr) -> bool {
        match extent.as_int() {
            Some(extent) => extent > 0,
            None => self.known.iter().any(|known| equal(known, extent)),
        }
    }
}

/// Returns the number of elements of a buffer.
fn elements(buffer: &Buffer) -> Expr {
    let product = buffer.shape.iter().cloned().reduce(Expr::mul).unwrap_or(Expr::index(1));
    simplify_expr(&product, &Facts::new())
}

/// Returns the effect of several statements together.
fn any_of(effects: impl IntoIterator<Item = Effect>) -> Effect {
    let mut all = Vec::new();
    for effect in effects {
        match effect {
            Effect::Never => {}
            Effect::If(lists) => all.extend(lists),
            Effect::Always => return Effect::Always,
        }
    }
    if all.is_empty() { Effect::Never } else { effect_if(all) }
}

/// Returns the effect where the extents of one list are positive. Of too many extents, the first
/// one of each list counts, which is the number of elements of a buffer.
fn effect_if(lists: Vec<Vec<Expr>>) -> Effect {
    let mut lists = without_repeated(lists);
    let count = |lists: &[Vec<Expr>]| lists.iter().map(Vec::len).sum::<usize>();
    if count(&lists) > MAX_COMPARISONS {
        lists.iter_mut().for_each(|list| list.truncate(1));
        lists = without_repeated(lists);
    }
    match lists.iter().any(Vec::is_empty) || count(&lists) > MAX_COMPARISONS {
        true => Effect::Always,
        false => Effect::If(lists),
    }
}

fn without_repeated(lists: Vec<Vec<Expr>>) -> Vec<Vec<Expr>> {
    let mut different: Vec<Vec<Expr>> = Vec::new();
    for list in lists {
        let is_same = |other: &Vec<Expr>| {
            other.len() == list.len() && other.iter().zip(&list).all(|(a, b)| equal(a, b))
        };
        if !different.iter().any(is_same) {
            different.push(list);
        }
    }
    different
}

/// Replaces the extents that depend on the variable of a loop by their maxima. An unknown maximum
/// may be positive. A minimum is positive only if both operands are, so a known one counts alone.
fn over_loop(lists: Vec<Vec<Expr>>, var: &Var, min: &Expr, extent: &Expr) -> Vec<Vec<Expr>> {
    let mut facts = Facts::new();
    facts.bind(var, min, extent);
    let most = |list: Expr| match mentions(&list, var) {
        true => Some(facts.extreme(&list, std::slice::from_ref(var), true)?.value),
        false => Some(list),
    };
    let most_of_all = |list: Vec<Expr>| {
        let mut operands = Vec::new();
        for extent in list {
            match mentions(&extent, var) {
                true => split_minimum(extent, &mut operands),
                false => operands.push(extent),
            }
        }
        operands.into_iter().filter_map(most).collect()
    };
    lists.into_iter().map(most_of_all).collect()
}

/// Adds the operands of nested minima.
fn split_minimum(expr: Expr, operands: &mut Vec<Expr>) {
    match &expr.kind {
        ExprKind::Binary(BinOp::Min, a, b) => {
            split_minimum(a.clone(), operands);
            split_minimum(b.clone(), operands);
        }
        _ => operands.push(expr),
    }
}

/// Removes the extents that depend on `var`: they may be positive for some value.
fn without_dependent(lists: Vec<Vec<Expr>>, var: &Var) -> Vec<Vec<Expr>> {
    let without = |mut list: Vec<Expr>| {
        list.retain(|extent| !mentions(extent, var));
        list
    };
    lists.into_iter().map(without).collect()
}

/// Returns the condition that all extents of at least one list are positive.
fn condition(lists: &[Vec<Expr>]) -> Option<Expr> {
    let positive = |extent: &Expr| Expr::lt(Expr::index(0), extent.clone());
    let all = |list: &Vec<Expr>| list.iter().map(positive).reduce(Expr::and);
    lists.iter().filter_map(all).reduce(Expr::or)
}

/// Returns the number of statements that access each buffer.
fn count_accesses(stmt: &Stmt) -> FxHashMap<Buffer, usize> {
    let mut counts: FxHashMap<Buffer, usize> = FxHashMap::default();
    count_in_stmt(stmt, &mut counts);
    counts
}

fn count_in_stmt(stmt: &Stmt, counts: &mut FxHashMap<Buffer, usize>) {
    let mut seen = NodeSet::default();
    let mut touched = FxHashSet::default();
    match stmt {
        Stmt::Store { buffer, .. } => drop(touched.insert(buffer.clone())),
        Stmt::Sort(sort) => drop(touched.insert(sort.order.clone())),
        _ => {}
    }
    for_each_expr(stmt, &mut |expr| {
        for_each_load(expr, &mut seen, &mut |buffer, _, _| {
            touched.insert(buffer.clone());
        });
    });
    for buffer in touched {
        *counts.entry(buffer).or_default() += 1;
    }
    for_each_stmt(stmt, &mut |inner| count_in_stmt(inner, counts));
}

//! Nests that store nothing: a loop asks first whether anything inside of it has an iteration.
//!
//! Before: `for (j, 0, m) { for (i, 0, n) { c[…] = … } }`
//! After:  `if (0 < n) { for (j, 0, m) { for (i, 0, n) { c[…] = … } } }`
//! An empty tensor may have another extent that is as large as you like, so without the question
//! a call that has nothing to do might take for ever. The indices of a GPU's blocks and threads
//! stay as they are: what is launched says `ir::launch`.

use super::equal::equal;
use super::visit::{
    NodeSet, for_each_expr, for_each_load, for_each_stmt, map_stmts, mentions, reads_memory,
    substitute,
};
use super::{Buffer, Expr, ForKind, Kernel, Param, Stmt, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// More questions than this are not asked before one loop.
const MOST: usize = 12;

/// When a statement does anything that is seen outside of it.
enum Acts {
    Never,
    /// Where one list of extents, at least, is all positive.
    When(Vec<Vec<Expr>>),
    Always,
}

/// The body of a kernel with every loop in question asking first.
pub fn skip_empty_nests(kernel: &Kernel) -> Stmt {
    let mut guard = Guard { accesses: count_accesses(&kernel.body), known: Vec::new() };
    for param in &kernel.params {
        if let Param::Tensor { buffer, .. } = param {
            // What the caller sees is never private.
            *guard.accesses.entry(buffer.clone()).or_default() += 1;
        }
    }
    guard.stmt(kernel.body.clone())
}

struct Guard {
    /// In how many statements of the whole kernel each buffer is written or read.
    accesses: FxHashMap<Buffer, usize>,
    /// Extents that are positive here.
    known: Vec<Expr>,
}

impl Guard {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        let Stmt::For { var, min, extent, kind, body } = stmt else {
            return map_stmts(stmt, &mut |inner| self.stmt(inner));
        };
        let before = self.known.len();
        let cond = match (&kind, self.acts(&body, &self.private(&body))) {
            (ForKind::Thread(_), _) => None,
            (_, Acts::When(lists)) => match when(independent(lists, &var)) {
                Acts::When(lists) => {
                    if let [list] = &lists[..] {
                        self.known.extend(list.iter().cloned());
                    }
                    question(&lists)
                }
                _ => None,
            },
            _ => None,
        };
        self.known.push(extent.clone());
        let body = Box::new(self.stmt(*body));
        self.known.truncate(before);
        let nest = Stmt::For { var, min, extent, kind, body };
        match cond {
            Some(cond) => Stmt::If { cond, then: Box::new(nest), otherwise: None },
            None => nest,
        }
    }

    /// Buffers that nobody uses outside of a statement.
    fn private(&self, stmt: &Stmt) -> FxHashSet<Buffer> {
        let inside = count_accesses(stmt);
        let is_all = |(buffer, count): &(Buffer, usize)| self.accesses.get(buffer) == Some(count);
        inside.into_iter().filter(is_all).map(|(buffer, _)| buffer).collect()
    }

    fn acts(&self, stmt: &Stmt, private: &FxHashSet<Buffer>) -> Acts {
        match stmt {
            Stmt::Store { buffer, .. } if private.contains(buffer) => Acts::Never,
            Stmt::Prefetch { .. } => Acts::Never,
            Stmt::For { kind: ForKind::Thread(_), .. } => Acts::Always,
            Stmt::For { var, extent, body, .. } => {
                let lists = match self.acts(body, private) {
                    Acts::Never => return Acts::Never,
                    Acts::When(lists) => independent(lists, var),
                    Acts::Always => vec![Vec::new()],
                };
                if reads_memory(extent) || self.is_positive(extent) {
                    return when(lists);
                }
                let with = |mut list: Vec<Expr>| {
                    if !list.iter().any(|other| equal(other, extent)) {
                        list.push(extent.clone());
                    }
                    list
                };
                when(lists.into_iter().map(with).collect())
            }
            Stmt::Let { var, value, body } => match self.acts(body, private) {
                Acts::When(lists) if reads_memory(value) => when(independent(lists, var)),
                Acts::When(lists) => {
                    let replace =
                        |e: &Expr| substitute(e, &mut |v| (v == var).then(|| value.clone()));
                    when(lists.iter().map(|list| list.iter().map(replace).collect()).collect())
                }
                other => other,
            },
            // Behind a condition an extent need not fit 64 bits where the condition is false; then
            // it does not matter what comes out.
            Stmt::Block(_)
            | Stmt::If { .. }
            | Stmt::Allocate { .. }
            | Stmt::Produce { .. }
            | Stmt::Tensorize { .. }
            | Stmt::SimdKernel { .. } => {
                let mut all = Vec::new();
                let mut always = false;
                for_each_stmt(stmt, &mut |inner| match self.acts(inner, private) {
                    Acts::Never => {}
                    Acts::When(lists) => all.extend(lists),
                    Acts::Always => always = true,
                });
                match all.is_empty() {
                    _ if always => Acts::Always,
                    true => Acts::Never,
                    false => when(all),
                }
            }
            Stmt::Store { .. }
            | Stmt::Assert { .. }
            | Stmt::Barrier
            | Stmt::CopyGroup { .. }
            | Stmt::AwaitCopies { .. } => Acts::Always,
        }
    }

    fn is_positive(&self, extent: &Expr) -> bool {
        match extent.as_int() {
            Some(extent) => extent > 0,
            None => self.known.iter().any(|known| equal(known, extent)),
        }
    }
}

fn when(lists: Vec<Vec<Expr>>) -> Acts {
    let mut different: Vec<Vec<Expr>> = Vec::new();
    for list in lists {
        let is_same = |other: &Vec<Expr>| {
            other.len() == list.len() && other.iter().zip(&list).all(|(a, b)| equal(a, b))
        };
        if !different.iter().any(is_same) {
            different.push(list);
        }
    }
    let count: usize = different.iter().map(Vec::len).sum();
    match different.iter().any(Vec::is_empty) || count > MOST {
        true => Acts::Always,
        false => Acts::When(different),
    }
}

/// Without the extents that depend on a variable, which may be positive.
fn independent(lists: Vec<Vec<Expr>>, var: &Var) -> Vec<Vec<Expr>> {
    let without = |mut list: Vec<Expr>| {
        list.retain(|extent| !mentions(extent, var));
        list
    };
    lists.into_iter().map(without).collect()
}

/// Whether one list is all positive.
fn question(lists: &[Vec<Expr>]) -> Option<Expr> {
    let positive = |extent: &Expr| Expr::lt(Expr::index(0), extent.clone());
    let all = |list: &Vec<Expr>| list.iter().map(positive).reduce(Expr::and);
    lists.iter().filter_map(all).reduce(Expr::or)
}

/// In how many statements each buffer is written or read.
fn count_accesses(stmt: &Stmt) -> FxHashMap<Buffer, usize> {
    let mut counts: FxHashMap<Buffer, usize> = FxHashMap::default();
    count_in_stmt(stmt, &mut counts);
    counts
}

fn count_in_stmt(stmt: &Stmt, counts: &mut FxHashMap<Buffer, usize>) {
    let mut seen = NodeSet::default();
    let mut touched = FxHashSet::default();
    if let Stmt::Store { buffer, .. } = stmt {
        touched.insert(buffer.clone());
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

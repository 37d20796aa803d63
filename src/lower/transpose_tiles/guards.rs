//! Conditions of unrolled iterations in a tail: in the row tail, rows run as whole tiles or not at
//! all.
//!
//! Before: `A0; if (x + 1 < n) { A1 }; if (x + 2 < n) { A2 }; if (x + 3 < n) { A3 }`
//! After:  `if (x + 3 < n) { A0; A1; A2; A3 } else { A0; if (x + 1 < n) { A1; if (x + 2 < n) … } }`
//!
//! If the last iteration of a tile runs, the earlier ones run, too; if it does not run, none of the
//! later ones does.

use super::columns::{columns_of, count_nodes};
use super::{Loop, Tiler, block_of};
use crate::ir::copy::fresh_copy;
use crate::ir::visit::{mentions, reads_memory};
use crate::ir::{Expr, ForKind, Stmt, Var};
use rustc_hash::FxHashMap;

/// The largest number of expression nodes of a run; a part of the run is written twice.
const MAX_NODES: usize = 4096;

/// A store and its condition.
struct Guarded {
    /// `None` if it always runs.
    cond: Option<Expr>,
    store: Stmt,
}

impl Tiler {
    /// Groups stores under conditions that read columns.
    pub(super) fn group_guards(&mut self, stmts: Vec<Stmt>) -> Vec<Stmt> {
        let mut done = Vec::new();
        let mut run: Vec<Guarded> = Vec::new();
        for stmt in stmts {
            let next = self.guarded(&stmt);
            let goes_on = match (run.last(), &next) {
                (Some(last), Some(next)) => self.follows(last, next),
                _ => false,
            };
            if !goes_on {
                self.finish(std::mem::take(&mut run), &mut done);
            }
            match next {
                Some(next) => run.push(next),
                None => done.push(stmt),
            }
        }
        self.finish(run, &mut done);
        done
    }

    /// Matches a store that reads columns, perhaps under a condition on indices.
    fn guarded(&self, stmt: &Stmt) -> Option<Guarded> {
        let (cond, store) = match stmt {
            Stmt::If { cond, then, otherwise: None } if !reads_memory(cond) => {
                (Some(cond), &**then)
            }
            _ => (None, stmt),
        };
        let reads_columns = !columns_of(store, self.isa).is_empty();
        reads_columns.then(|| Guarded { cond: cond.cloned(), store: store.clone() })
    }

    /// Whether `first` provably runs if `next` does.
    fn follows(&mut self, first: &Guarded, next: &Guarded) -> bool {
        let Some(after) = &next.cond else { return first.cond.is_none() };
        let Some(before) = &first.cond else { return true };
        self.facts.push();
        self.facts.assume(after);
        let proved = self.facts.prove(before);
        self.facts.pop();
        proved
    }

    fn finish(&self, run: Vec<Guarded>, done: &mut Vec<Stmt>) {
        let nodes: usize = run.iter().map(|one| count_nodes(&one.store)).sum();
        let chunk = run.first().and_then(|one| {
            columns_of(&one.store, self.isa).iter().map(|column| column.chunk()).max()
        });
        match chunk {
            Some(chunk) if nodes <= MAX_NODES => done.extend(group(&run, chunk as usize)),
            _ => done.extend(run.iter().map(|one| one.with(Vec::new()))),
        }
    }
}

impl Guarded {
    /// Returns the statement, followed by others under its condition.
    fn with(&self, then: Vec<Stmt>) -> Stmt {
        let mut stmts = vec![fresh_copy(&self.store, &FxHashMap::default())];
        stmts.extend(then);
        let body = Box::new(block_of(stmts));
        match &self.cond {
            Some(cond) => Stmt::If { cond: cond.clone(), then: body, otherwise: None },
            None => *body,
        }
    }
}

/// Moves an invariant choice in a loop's body outside of the loop.
pub(super) fn unswitch(of: Loop) -> Stmt {
    let Loop { var, min, extent, body } = of;
    let over = |var: Var, body: Stmt| Stmt::For {
        var,
        min: min.clone(),
        extent: extent.clone(),
        kind: ForKind::Serial,
        body: Box::new(body),
    };
    match body {
        Stmt::If { cond, then, otherwise: Some(otherwise) }
            if !mentions(&cond, &var) && !reads_memory(&cond) =>
        {
            let own = Var::index(var.name());
            let free = FxHashMap::from_iter([(var.clone(), Expr::var(&own))]);
            let otherwise = over(own, fresh_copy(&otherwise, &free));
            let (then, otherwise) = (Box::new(over(var, *then)), Some(Box::new(otherwise)));
            Stmt::If { cond, then, otherwise }
        }
        body => over(var, body),
    }
}

/// Groups stores into tiles of `chunk` columns; each store runs if the next one does.
fn group(run: &[Guarded], chunk: usize) -> Vec<Stmt> {
    let Some((tile, rest)) = run.split_at_checked(chunk) else { return nested(run) };
    let mut done: Vec<Stmt> = tile.iter().map(|one| one.store.clone()).collect();
    done.extend(group(rest, chunk));
    match &tile[chunk - 1].cond {
        Some(cond) => {
            let otherwise = Some(Box::new(block_of(nested(&tile[..chunk - 1]))));
            vec![Stmt::If { cond: cond.clone(), then: Box::new(block_of(done)), otherwise }]
        }
        None => done,
    }
}

/// Nests each store in the condition of the one before it.
fn nested(run: &[Guarded]) -> Vec<Stmt> {
    let Some((first, rest)) = run.split_first() else { return Vec::new() };
    if first.cond.is_some() {
        return vec![first.with(nested(rest))];
    }
    let mut done = vec![first.with(Vec::new())];
    done.extend(nested(rest));
    done
}

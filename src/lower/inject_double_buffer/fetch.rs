//! What fills shared memory ahead, in two parts: values are fetched from global memory before the
//! work of an iteration, which hides how long that takes, and stored after it.
//!
//! Before: `produce S { for j { S[t*2 + j] = A[i, t*2 + j] } }`
//! After:  `for j { S.next[j] = A[i, t*2 + j] }`  and  `produce S { for j { S[t*2 + j] = S.next[j] } }`

use crate::ir::copy::fresh_copy;
use crate::ir::visit::{walk_expr, walk_stmt};
use crate::ir::{Buffer, Expr, ExprKind, ForKind, Scope, Stmt, Var};
use std::collections::{HashMap, HashSet};

/// A thread keeps no more elements than this, which are registers.
const MAX_ELEMENTS: i128 = 32;

/// The two parts, and what a thread keeps in between.
pub struct Parts {
    pub kept: Vec<Buffer>,
    pub fetch: Stmt,
    pub store: Stmt,
}

/// Takes apart what fills `buffers`, if they are shared and it only copies or combines what global
/// memory holds; `work` is what stands in between.
pub fn take_apart(fill: &Stmt, buffers: &[Buffer], work: &Stmt) -> Option<Parts> {
    if !buffers.iter().all(|buffer| buffer.scope == Scope::Shared) {
        return None;
    }
    let mut stored = HashSet::new();
    let mut see = |stmt: &Stmt| {
        if let Stmt::Store { buffer, .. } = stmt {
            stored.insert(buffer.clone());
        }
    };
    walk_stmt(work, &mut see, &mut |_| {});
    let mut splitter =
        Splitter { buffers, stored, loops: Vec::new(), kept: Vec::new(), room: MAX_ELEMENTS };
    let (fetch, store) = splitter.stmt(fill)?;
    Some(Parts { kept: splitter.kept, fetch, store: fresh_copy(&store, &HashMap::new()) })
}

struct Splitter<'a> {
    buffers: &'a [Buffer],
    /// What the work writes.
    stored: HashSet<Buffer>,
    /// Variable and extent of the loops around, from 0.
    loops: Vec<(Var, i128)>,
    kept: Vec<Buffer>,
    /// Elements that may be kept yet.
    room: i128,
}

impl Splitter<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Option<(Stmt, Stmt)> {
        match stmt {
            Stmt::Block(stmts) => {
                let parts =
                    stmts.iter().map(|inner| self.stmt(inner)).collect::<Option<Vec<_>>>()?;
                let (fetches, stores) = parts.into_iter().unzip();
                Some((Stmt::Block(fetches), Stmt::Block(stores)))
            }
            Stmt::Produce { name, body } => {
                let (fetch, store) = self.stmt(body)?;
                Some((fetch, Stmt::Produce { name: name.clone(), body: Box::new(store) }))
            }
            Stmt::If { cond, then, otherwise: None } if self.is_kept(cond) => {
                let (fetch, store) = self.stmt(then)?;
                let wrap = |then| {
                    let (cond, then) = (cond.clone(), Box::new(then));
                    Stmt::If { cond, then, otherwise: None }
                };
                Some((wrap(fetch), wrap(store)))
            }
            Stmt::For { var, min, extent, kind, body } => {
                let thread = kind.gpu_index().is_some();
                if !thread {
                    let extent = extent.as_int().filter(|_| min.as_int() == Some(0))?;
                    self.loops.push((var.clone(), extent));
                }
                let (fetch, store) = self.stmt(body)?;
                if !thread {
                    self.loops.pop();
                }
                let wrap = |body, kind: ForKind| {
                    let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
                    Stmt::For { var, min, extent, kind, body: Box::new(body) }
                };
                Some((wrap(fetch, kind.clone()), wrap(store, kind.clone())))
            }
            Stmt::Store { buffer, indices, value, mask: None } => {
                let fits = self.buffers.contains(buffer)
                    && self.is_kept(value)
                    && indices.iter().all(|index| self.is_kept(index));
                if !fits {
                    return None;
                }
                let kept = self.keep(buffer)?;
                let at = || self.loops.iter().map(|(var, _)| Expr::var(var)).collect();
                let fetch = Stmt::store(&kept, at(), value.clone());
                let store = Stmt::store(buffer, indices.clone(), Expr::load(&kept, at()));
                self.kept.push(kept);
                Some((fetch, store))
            }
            _ => None,
        }
    }

    /// A place for the values of a store, one for each iteration of the loops around.
    fn keep(&mut self, buffer: &Buffer) -> Option<Buffer> {
        let elements = self
            .loops
            .iter()
            .try_fold(1, |product: i128, (_, extent)| product.checked_mul(*extent))?;
        self.room -= elements;
        let shape = self.loops.iter().map(|(_, extent)| i64::try_from(*extent).map(Expr::index));
        let shape = shape.collect::<Result<Vec<_>, _>>().ok()?;
        let name = format!("{}.next", buffer.name);
        (self.room >= 0).then(|| Buffer::new(name, buffer.dtype, shape, Scope::Local))
    }

    /// Whether an expression is the same before the work and after it, wherever it is evaluated.
    fn is_kept(&self, expr: &Expr) -> bool {
        let mut kept = true;
        walk_expr(expr, &mut |e| {
            if let ExprKind::Load { buffer, .. } = &e.kind {
                kept &= matches!(buffer.scope, Scope::Global | Scope::Constant)
                    && !self.stored.contains(buffer);
            }
        });
        kept
    }
}

//! Double buffers of GPUs: threads load the data of the next iteration into registers before the
//! work of the current one, and store it to shared memory afterwards, so that the loads overlap
//! with the work.
//!
//! Before: `produce S { for (j, 0, 4) { S[1, f(j)] = A[g(j)] } }`
//! After:  `produce S { for (j, 0, 4) { S.next[j] = A[g(j)] } }` and, after the readers,
//!         `produce S { for (j, 0, 4) { S[1, f(j)] = S.next[j] } }`

use crate::ir::copy::fresh_copy;
use crate::ir::visit::{map_stmts, stored_buffers, walk_expr};
use crate::ir::{Buffer, Expr, ExprKind, ForKind, Scope, Stmt, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// The largest number of elements that a thread keeps in registers. More would leave too few
/// registers for the work.
const MAX_ELEMENTS: i128 = 16;

/// The two parts of the statement that fills a buffer.
pub(super) struct Staged {
    /// The registers.
    pub(super) buffer: Buffer,
    /// Loads from memory into registers.
    pub(super) load: Stmt,
    /// Stores from registers into the buffer.
    pub(super) store: Stmt,
}

/// Splits a statement that fills a shared buffer; `work` stands between the two parts. The
/// statement must be one store of a value from global memory that `work` does not write, in loops
/// of few iterations besides those over GPU indices.
pub(super) fn stage(fill: &Stmt, work: &Stmt) -> Option<Staged> {
    let mut search = FillSearch { written: stored_buffers(work), ..FillSearch::default() };
    search.visit(fill)?;
    let target = search.buffer?;
    let elements: i128 = search.loops.iter().map(|(_, extent)| *extent).product();
    if target.scope != Scope::Shared || elements > MAX_ELEMENTS {
        return None;
    }
    let shape = search.loops.iter().map(|(_, extent)| Expr::index(*extent as i64)).collect();
    let name = format!("{}.next", target.name);
    let buffer = Buffer::new(name, target.dtype, shape, Scope::Local);
    let places: Vec<Expr> = search.loops.iter().map(|(var, _)| Expr::var(var)).collect();
    let load =
        rewrite(fill.clone(), &mut |_, _, value| Stmt::store(&buffer, places.clone(), value));
    let store = rewrite(fill.clone(), &mut |target, indices, _| {
        Stmt::store(&target, indices, Expr::load(&buffer, places.clone()))
    });
    // Every variable is bound once.
    let store = fresh_copy(&store, &FxHashMap::default());
    Some(Staged { buffer, load, store })
}

#[derive(Default)]
struct FillSearch {
    /// The loops that are not over GPU indices, outermost first.
    loops: Vec<(Var, i128)>,
    buffer: Option<Buffer>,
    /// The buffers that the work between the two parts writes.
    written: FxHashSet<Buffer>,
}

impl FillSearch {
    /// Collects the loops and the buffer; `None` if the statement has another form.
    fn visit(&mut self, stmt: &Stmt) -> Option<()> {
        match stmt {
            Stmt::Block(stmts) => stmts.iter().try_for_each(|stmt| self.visit(stmt)),
            Stmt::Produce { body, .. } => self.visit(body),
            Stmt::If { then, otherwise: None, .. } => self.visit(then),
            Stmt::For { kind, body, .. } if kind.gpu_index().is_some() => self.visit(body),
            Stmt::For { var, min, extent, kind, body } => {
                let counted = matches!(
                    kind,
                    ForKind::Serial | ForKind::Unrolled | ForKind::UnrollHint | ForKind::Vectorized
                );
                let extent = extent.as_int().filter(|extent| *extent > 0)?;
                if !counted || min.as_int() != Some(0) || self.buffer.is_some() {
                    return None;
                }
                self.loops.push((var.clone(), extent));
                self.visit(body)
            }
            Stmt::Store { buffer, value, mask: None, .. } => {
                let (mut reads, mut global) = (false, true);
                walk_expr(value, &mut |e| {
                    if let ExprKind::Load { buffer, .. } = &e.kind {
                        reads = true;
                        global &= buffer.scope == Scope::Global && !self.written.contains(buffer);
                    }
                });
                let first = self.buffer.replace(buffer.clone()).is_none();
                (first && reads && global).then_some(())
            }
            _ => None,
        }
    }
}

/// Replaces the innermost store of a nest. Its loops become unrolled, as registers have no index.
fn rewrite(stmt: Stmt, store: &mut dyn FnMut(Buffer, Vec<Expr>, Expr) -> Stmt) -> Stmt {
    match stmt {
        Stmt::Store { buffer, indices, value, .. } => store(buffer, indices, value),
        Stmt::For { var, min, extent, kind, body } => {
            let kind = match kind {
                ForKind::Serial | ForKind::UnrollHint => ForKind::Unrolled,
                kind => kind,
            };
            let body = Box::new(rewrite(*body, store));
            Stmt::For { var, min, extent, kind, body }
        }
        other => map_stmts(other, &mut |inner| rewrite(inner, store)),
    }
}

//! Storage of launches: all of it is allocated right inside the outermost loop over an index, and
//! buffers of one scope that live one after the other use one allocation.

use super::rename_buffers;
use crate::ir::launch::map_launches;
use crate::ir::visit::map_stmts;
use crate::ir::{Buffer, Expr, Scope, Stmt};
use rustc_hash::FxHashMap;

/// Hoists and merges the allocations of every launch.
pub fn share_in_launches(body: Stmt) -> Stmt {
    map_launches(body, &mut |launch| {
        let Stmt::Produce { name, body } = launch else { crate::bug!("a launch is a produce") };
        Stmt::Produce { name, body: Box::new(outermost_threads(*body)) }
    })
}

fn outermost_threads(stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::For { var, min, extent, kind, body } if kind.gpu_index().is_some() => {
            let body = Box::new(share(*body));
            Stmt::For { var, min, extent, kind, body }
        }
        other => map_stmts(other, &mut outermost_threads),
    }
}

fn share(body: Stmt) -> Stmt {
    let mut storage = Storage::default();
    let body = storage.collect(body, &[]);
    let renamed = storage.renamed();
    let body = rename_buffers(body, &renamed);
    let merged = storage.homes.into_iter().map(|home| home.merged);
    merged.rev().fold(body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) })
}

/// An allocation and the buffers that use it one after the other.
struct Home {
    tenants: Vec<Buffer>,
    /// A buffer as long as the longest of them.
    merged: Buffer,
    /// One of them is visible at present.
    busy: bool,
}

#[derive(Default)]
struct Storage {
    homes: Vec<Home>,
}

impl Storage {
    /// The statement without allocations. A buffer lives where it is visible; a shared one only
    /// as far as it is accessed, if nothing follows. `ending` are the homes of those around that
    /// nothing accesses behind the statement.
    fn collect(&mut self, stmt: Stmt, ending: &[usize]) -> Stmt {
        match stmt {
            Stmt::Allocate { buffer, body } if is_stored(&buffer) => {
                let dead = ending.iter().copied().find(|home| {
                    let visible = self.homes[*home].tenants.last().expect("one at least");
                    alike(visible, &buffer) && !accesses(&body, visible)
                });
                let home = match dead {
                    Some(home) => self.move_in(home, &buffer),
                    None => self.settle(&buffer),
                };
                let mut inner = ending.to_vec();
                if dead.is_none() && buffer.scope == Scope::Shared {
                    inner.push(home);
                }
                let body = self.collect(*body, &inner);
                if dead.is_none() {
                    self.homes[home].busy = false;
                }
                body
            }
            Stmt::Block(stmts) => {
                let last = stmts.len().saturating_sub(1);
                let stmts = stmts.into_iter().enumerate();
                let stmts = stmts.map(|(position, inner)| match position == last {
                    true => self.collect(inner, ending),
                    false => self.collect(inner, &[]),
                });
                Stmt::Block(stmts.collect())
            }
            // The next iteration follows.
            Stmt::For { ref kind, .. } if kind.gpu_index().is_none() => {
                map_stmts(stmt, &mut |inner| self.collect(inner, &[]))
            }
            other => map_stmts(other, &mut |inner| self.collect(inner, ending)),
        }
    }

    fn move_in(&mut self, at: usize, buffer: &Buffer) -> usize {
        let home = &mut self.homes[at];
        home.tenants.push(buffer.clone());
        if length(buffer) > length(&home.merged) {
            home.merged = buffer.clone();
        }
        at
    }

    fn settle(&mut self, buffer: &Buffer) -> usize {
        let free = self.homes.iter().position(|home| !home.busy && alike(&home.tenants[0], buffer));
        let at = free.unwrap_or_else(|| {
            let (tenants, merged, busy) = (Vec::new(), buffer.clone(), true);
            self.homes.push(Home { tenants, merged, busy });
            self.homes.len() - 1
        });
        self.homes[at].busy = true;
        self.move_in(at, buffer)
    }

    /// The buffer in whose place another one stands.
    fn renamed(&mut self) -> FxHashMap<Buffer, Buffer> {
        let mut renamed = FxHashMap::default();
        for home in &mut self.homes {
            // Under the name of the first.
            if home.merged != home.tenants[0] {
                let (first, longest) = (&home.tenants[0], &home.merged);
                let shape = vec![Expr::int(crate::ir::DType::Index, length(longest).unwrap_or(1))];
                home.merged = Buffer::new(&first.name, first.dtype, shape, first.scope);
            }
            for tenant in home.tenants.iter().filter(|tenant| **tenant != home.merged) {
                renamed.insert(tenant.clone(), home.merged.clone());
            }
        }
        renamed
    }
}

/// Whether two buffers may have the same memory.
fn alike(a: &Buffer, b: &Buffer) -> bool {
    (a.dtype, a.scope) == (b.dtype, b.scope) && length(a).is_some() && length(b).is_some()
}

fn accesses(stmt: &Stmt, buffer: &Buffer) -> bool {
    let mut found = false;
    super::for_each_access(stmt, &mut |accessed| found |= accessed == buffer);
    found
}

/// Registers stay where they are.
fn is_stored(buffer: &Buffer) -> bool {
    matches!(buffer.scope, Scope::Shared | Scope::Local)
}

fn length(buffer: &Buffer) -> Option<i128> {
    buffer.shape.iter().try_fold(1, |product, extent| Some(product * extent.as_int()?))
}

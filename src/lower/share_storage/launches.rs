//! Storage of launches: allocates shared and local memory directly inside the outermost loop over
//! a GPU index, and lets buffers of one scope with disjoint live ranges share an allocation.

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
    let merged = storage.allocations.into_iter().map(|allocation| allocation.merged);
    merged.rev().fold(body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) })
}

/// An allocation and the buffers that use it one after the other.
struct Allocation {
    users: Vec<Buffer>,
    /// A buffer as long as the longest of them.
    merged: Buffer,
    /// Whether one of them is visible at the current statement.
    is_live: bool,
}

#[derive(Default)]
struct Storage {
    allocations: Vec<Allocation>,
}

impl Storage {
    /// Returns the statement without allocations. A buffer is live where it is visible, or, if it
    /// is shared and nothing follows, up to its last access. `ending` are the allocations of
    /// enclosing buffers that nothing accesses after the statement.
    fn collect(&mut self, stmt: Stmt, ending: &[usize]) -> Stmt {
        match stmt {
            Stmt::Allocate { buffer, body } if is_stored(&buffer) => {
                let dead = ending.iter().copied().find(|allocation| {
                    let visible = self.allocations[*allocation].users.last().expect("one at least");
                    can_share(visible, &buffer) && !accesses(&body, visible)
                });
                let allocation = match dead {
                    Some(allocation) => self.add_user(allocation, &buffer),
                    None => self.place(&buffer),
                };
                let mut inner = ending.to_vec();
                if dead.is_none() && buffer.scope == Scope::Shared {
                    inner.push(allocation);
                }
                let body = self.collect(*body, &inner);
                if dead.is_none() {
                    self.allocations[allocation].is_live = false;
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
            // The next iteration follows and may access any buffer.
            Stmt::For { ref kind, .. } if kind.gpu_index().is_none() => {
                map_stmts(stmt, &mut |inner| self.collect(inner, &[]))
            }
            other => map_stmts(other, &mut |inner| self.collect(inner, ending)),
        }
    }

    /// Adds a buffer to an allocation.
    fn add_user(&mut self, at: usize, buffer: &Buffer) -> usize {
        let allocation = &mut self.allocations[at];
        allocation.users.push(buffer.clone());
        if length(buffer) > length(&allocation.merged) {
            allocation.merged = buffer.clone();
        }
        at
    }

    /// Places a buffer in a free allocation or in a new one, and returns its number.
    fn place(&mut self, buffer: &Buffer) -> usize {
        let free = self
            .allocations
            .iter()
            .position(|allocation| !allocation.is_live && can_share(&allocation.users[0], buffer));
        let at = free.unwrap_or_else(|| {
            let (users, merged, is_live) = (Vec::new(), buffer.clone(), true);
            self.allocations.push(Allocation { users, merged, is_live });
            self.allocations.len() - 1
        });
        self.allocations[at].is_live = true;
        self.add_user(at, buffer)
    }

    /// Maps each buffer that is placed in another one's allocation to the merged buffer.
    fn renamed(&mut self) -> FxHashMap<Buffer, Buffer> {
        let mut renamed = FxHashMap::default();
        for allocation in &mut self.allocations {
            // The merged buffer has the name of the first one.
            if allocation.merged != allocation.users[0] {
                let (first, longest) = (&allocation.users[0], &allocation.merged);
                let shape = vec![Expr::int(crate::ir::DType::Index, length(longest).unwrap_or(1))];
                allocation.merged = Buffer::new(&first.name, first.dtype, shape, first.scope);
            }
            for user in allocation.users.iter().filter(|user| **user != allocation.merged) {
                renamed.insert(user.clone(), allocation.merged.clone());
            }
        }
        renamed
    }
}

/// Whether two buffers may have the same memory.
fn can_share(a: &Buffer, b: &Buffer) -> bool {
    (a.dtype, a.scope) == (b.dtype, b.scope) && length(a).is_some() && length(b).is_some()
}

fn accesses(stmt: &Stmt, buffer: &Buffer) -> bool {
    let mut found = false;
    super::for_each_access(stmt, &mut |accessed| found |= accessed == buffer);
    found
}

/// Whether a buffer is moved; registers stay where they are.
fn is_stored(buffer: &Buffer) -> bool {
    matches!(buffer.scope, Scope::Shared | Scope::Local)
}

fn length(buffer: &Buffer) -> Option<i128> {
    buffer.shape.iter().try_fold(1, |product, extent| Some(product * extent.as_int()?))
}

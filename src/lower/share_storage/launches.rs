//! Storage of launches: all of it is allocated right inside the outermost loop over an index, and
//! buffers of one scope that live one after the other use one allocation.

use super::rename_buffers;
use crate::ir::launch::map_launches;
use crate::ir::visit::map_stmts;
use crate::ir::{Buffer, Expr, Scope, Stmt};
use std::collections::HashMap;

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
    let body = storage.collect(body);
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
    /// The statement without allocations. A buffer lives where it is visible.
    fn collect(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Allocate { buffer, body } if is_stored(&buffer) => {
                let home = self.settle(&buffer);
                let body = self.collect(*body);
                self.homes[home].busy = false;
                body
            }
            other => map_stmts(other, &mut |inner| self.collect(inner)),
        }
    }

    fn settle(&mut self, buffer: &Buffer) -> usize {
        let fits = |home: &Home| {
            let first = &home.tenants[0];
            let alike = (first.dtype, first.scope) == (buffer.dtype, buffer.scope);
            !home.busy && alike && length(first).is_some() && length(buffer).is_some()
        };
        let at = match self.homes.iter().position(fits) {
            Some(at) => at,
            None => {
                let (tenants, merged, busy) = (Vec::new(), buffer.clone(), true);
                self.homes.push(Home { tenants, merged, busy });
                self.homes.len() - 1
            }
        };
        let home = &mut self.homes[at];
        home.busy = true;
        home.tenants.push(buffer.clone());
        if length(buffer) > length(&home.merged) {
            home.merged = buffer.clone();
        }
        at
    }

    /// The buffer in whose place another one stands.
    fn renamed(&mut self) -> HashMap<Buffer, Buffer> {
        let mut renamed = HashMap::new();
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

/// Registers stay where they are.
fn is_stored(buffer: &Buffer) -> bool {
    matches!(buffer.scope, Scope::Shared | Scope::Local)
}

fn length(buffer: &Buffer) -> Option<i128> {
    buffer.shape.iter().try_fold(1, |product, extent| Some(product * extent.as_int()?))
}

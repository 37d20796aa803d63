//! Sums that an outer loop continues: `for ko { for i { for ki { C[i] = C[i] + … } } }`. During the
//! inner loop they are in registers; it loads them first and stores them at its end
//! (`lower::promote_accumulators`).

use super::nest::{copies_of, has_fixed_indices, mentioned, serial_vars};
use super::walk::Walker;
use crate::ir::equal::equal;
use crate::ir::tile::is_whole_product;
use crate::ir::visit::for_each_load;
use crate::ir::{BinOp, Buffer, Expr, ExprKind, ForKind, Stmt};

impl Walker<'_> {
    /// Walks a serial loop whose updates stay in registers, and that no store before it
    /// initializes. Returns whether it is one.
    pub(super) fn partial_sums(&mut self, nest: &Stmt) -> bool {
        let Stmt::For { extent, kind: ForKind::Serial, .. } = nest else { return false };
        // A loop of one iteration keeps its elements in memory, and one that may have none.
        let repeats = match extent.as_int() {
            Some(extent) => extent > 1,
            None => self.guards.iter().any(|guard| is_positive(guard, extent)),
        };
        if self.in_launch || !repeats {
            return false;
        }
        let mut updates = Vec::new();
        collect_updates(nest, &mut updates);
        if updates.is_empty() {
            return false;
        }
        let moved = serial_vars(nest);
        let mut promoted: Vec<(Buffer, Expr, f64)> = Vec::new();
        updates.retain(|(buffer, index, copy)| {
            let copies = copies_of(&[copy], index);
            let known = self.in_registers.contains_key(buffer)
                || promoted.iter().any(|(other, ..)| other == buffer);
            let held = !known
                && self.fits_registers(buffer, index, copies)
                && has_fixed_indices(nest, buffer, &moved);
            if held {
                promoted.push((buffer.clone(), index.clone(), copies));
            }
            held
        });
        if promoted.is_empty() {
            return false;
        }
        updates.iter().for_each(|(_, _, copy)| self.read_before(copy));
        self.with_promoted(&promoted, |this| this.stmt(nest));
        updates.iter().for_each(|(_, _, copy)| self.write_back(copy, &promoted));
        true
    }

    /// Counts the loads of the elements that `copy` stores.
    fn read_before(&mut self, copy: &Stmt) {
        match copy {
            Stmt::For { var, min, extent, body, .. } => {
                let count = self.count(extent);
                let min_sum = self.indices.sum(min);
                self.unrolled(var, min_sum, count, |this| this.read_before(body));
            }
            Stmt::Store { value, .. } => {
                self.value(value);
            }
            _ => {}
        }
    }
}

/// Whether a condition says that an extent is positive.
fn is_positive(cond: &Expr, extent: &Expr) -> bool {
    match &cond.kind {
        ExprKind::Binary(BinOp::And, a, b) => is_positive(a, extent) || is_positive(b, extent),
        ExprKind::Binary(BinOp::Lt, zero, value) => {
            zero.as_int() == Some(0) && equal(value, extent)
        }
        _ => false,
    }
}

/// Collects the updates of a nest that have no condition: the buffer, the index, and a store of the
/// elements to themselves, in the unrolled loops that the index depends on.
fn collect_updates(stmt: &Stmt, updates: &mut Vec<(Buffer, Expr, Stmt)>) {
    match stmt {
        _ if is_whole_product(stmt) => {}
        Stmt::For { var, min, extent, kind, body } => {
            let first = updates.len();
            collect_updates(body, updates);
            if *kind != ForKind::Unrolled {
                return;
            }
            for (_, index, copy) in &mut updates[first..] {
                let mut depends = false;
                mentioned(index, &mut |other| depends |= other == var);
                if depends {
                    let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
                    let body = Box::new(copy.clone());
                    *copy = Stmt::For { var, min, extent, kind: ForKind::Unrolled, body };
                }
            }
        }
        Stmt::Block(stmts) => stmts.iter().for_each(|inner| collect_updates(inner, updates)),
        Stmt::Let { body, .. } | Stmt::Produce { body, .. } => collect_updates(body, updates),
        Stmt::Store { buffer, indices, value, mask: None, nontemporal: false } => {
            let [index] = &indices[..] else { return };
            let same = |known: &Buffer, other: &Expr| known == buffer && equal(other, index);
            let mut is_update = false;
            for_each_load(value, &mut Default::default(), &mut |read, indices, _| {
                is_update |= same(read, &indices[0]);
            });
            if is_update && !updates.iter().any(|(known, other, _)| same(known, other)) {
                let value = Expr::load(buffer, vec![index.clone()]);
                let (buffer, indices) = (buffer.clone(), vec![index.clone()]);
                let (mask, nontemporal) = (None, false);
                let copy =
                    Stmt::Store { buffer: buffer.clone(), indices, value, mask, nontemporal };
                updates.push((buffer, index.clone(), copy));
            }
        }
        _ => {}
    }
}

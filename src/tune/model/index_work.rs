//! The integer instructions of indices. Sums and products are parts of addresses, or advance with
//! the loops; divisions, remainders and clamps are instructions.

use super::ops::{CONSTANT_DIVISION_OPERATIONS, REMAINDER_OPERATIONS, key};
use super::walk::Walker;
use crate::ir::visit::{NodeSet, walk_nodes};
use crate::ir::{BinOp, Expr, ExprKind};
use crate::simd_ops::constant_divisor;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Integer instructions that take as long as a division of 64-bit integers.
const LONG_DIVISION_OPERATIONS: f64 = 30.0;
/// Instructions of a minimum or maximum.
const CLAMP_OPERATIONS: f64 = 2.0;

impl Walker<'_> {
    /// Counts the operations of an index, those of each lane by themselves.
    pub(super) fn index_work(&mut self, index: &Expr) {
        walk_nodes(index, &mut NodeSet::default(), &mut |node| self.index_node(node));
    }

    /// Counts the operation at the root of an index, once in a loop for the same operands.
    pub(super) fn index_node(&mut self, node: &Expr) {
        let ExprKind::Binary(op, a, b) = &node.kind else { return };
        let operations = match (op, constant_divisor(b)) {
            _ if self.in_launch => return,
            (BinOp::FloorDiv | BinOp::FloorMod, Some(by)) if by > 0 && by & (by - 1) == 0 => 1.0,
            (BinOp::FloorDiv, Some(_)) => CONSTANT_DIVISION_OPERATIONS,
            (BinOp::FloorMod, Some(_)) => REMAINDER_OPERATIONS,
            (BinOp::FloorDiv | BinOp::FloorMod, None) => LONG_DIVISION_OPERATIONS,
            (BinOp::Min | BinOp::Max, _) => CLAMP_OPERATIONS,
            _ => return,
        };
        // A remainder by a constant needs the quotient.
        let with_quotient = *op == BinOp::FloorMod && operations == REMAINDER_OPERATIONS;
        let deps = self.index_deps(node);
        let (frame, copies) = self.placement(deps);
        let (a, b) = (self.indices.sum(a), self.indices.sum(b));
        let lanes = node.ty.lanes;
        let mut is_new = |op: BinOp| {
            let mut hasher = DefaultHasher::new();
            (op, key(&a, lanes), key(&b, lanes)).hash(&mut hasher);
            self.index_work.insert((frame, hasher.finish()))
        };
        if !is_new(*op) {
            return;
        }
        let quotient = match with_quotient && is_new(BinOp::FloorDiv) {
            true => CONSTANT_DIVISION_OPERATIONS,
            false => 0.0,
        };
        let amount = copies * self.weight * f64::from(lanes) * (operations + quotient);
        self.plan.frames[frame].work.integers += amount;
    }
}

//! The rest of a vectorized loop whose accesses have no masks: strided, gathered and, with AVX2,
//! short elements.
//!
//! Before: `C[ramp(b, 1, 64)] = A[ramp(a, -1, 64)] if ramp(b, 1, 64) < x64(n)`
//! After:  64 lanes if the condition holds in all; else 32 if it holds in these, then 16 of the
//!         rest if it holds in these, then 8, 4, 2, 1

use super::simd_lanes::simd_lanes;
use super::{Legalizer, MAX_NODES, Slicer, Store, size_of, touches_registers};
use crate::ir::equal::Sharer;
use crate::ir::visit::replace_nodes;
use crate::ir::{Expr, ExprKind, Stmt, Var};
use crate::simd_ops::{first_lanes, without_operand};

impl Legalizer {
    /// Returns a store under a mask of the first lanes as stores without it: of all lanes if they
    /// are in the mask, else of half the lanes, a quarter, and so on. `None` if the mask is not
    /// like that, or not the reason why the store runs lane by lane.
    pub(super) fn in_halves(&mut self, store: &Store, lanes: u32) -> Option<Stmt> {
        let isa = self.isa?;
        let width = |Store { buffer, index, value, mask, .. }: &Store| {
            simd_lanes(index, value, mask.as_ref(), buffer, 0..lanes, true, isa)
        };
        let steps = lanes.ilog2() as usize + 1;
        if width(store) > 1 || touches_registers(store) || size_of(store) * steps > MAX_NODES {
            return None;
        }
        let mask = store.mask.as_ref()?;
        let cond = first_lanes(mask)?;
        let value = replace_nodes(&store.value, &mut |node| match &node.kind {
            ExprKind::Load { buffer, indices, mask: Some(mask) } => {
                let (buffer, indices) = (buffer.clone(), indices.clone());
                let load = ExprKind::Load { buffer, indices, mask: without_operand(mask, &cond) };
                Some(Expr::new(node.ty, load))
            }
            _ => None,
        });
        // Few nodes are replaced one by one, also where they are one node.
        let value = Sharer::default().share(&value);
        let mask = without_operand(mask, &cond);
        let first = Store { value, mask, ..store.clone() };
        if width(&first) == 1 {
            return None;
        }
        Some(Stmt::If {
            cond: self.lane(&cond, Expr::index((lanes - 1).into())),
            then: Box::new(self.simd_store(&first, 0, lanes)),
            otherwise: Some(Box::new(self.halves(
                &first,
                &cond,
                Expr::index(0),
                (lanes - 1).ilog2(),
            ))),
        })
    }

    /// Stores the lanes from `start` on in which `cond` holds, less than twice `1 << log`.
    fn halves(&mut self, store: &Store, cond: &Expr, start: Expr, log: u32) -> Stmt {
        let lanes = 1 << log;
        let lane = |number: u32| match start.as_int() {
            Some(0) => Expr::index(number.into()),
            _ => Expr::add(start.clone(), Expr::index(number.into())),
        };
        let all = self.lane(cond, lane(lanes - 1));
        let then = match self.part(store, &start, lanes) {
            Stmt::Store { buffer, mut indices, value, mask, nontemporal } if lanes > 1 => {
                let index = indices.remove(0);
                self.simd_store(&Store { buffer, index, value, mask, nontemporal }, 0, lanes)
            }
            scalar => scalar,
        };
        let then = Stmt::If { cond: all.clone(), then: Box::new(then), otherwise: None };
        if log == 0 {
            return then;
        }
        let next = Var::index("lane");
        let value = Expr::select(all, lane(lanes), start);
        let body = Box::new(self.halves(store, cond, Expr::var(&next), log - 1));
        Stmt::Block(vec![then, Stmt::Let { var: next, value, body }])
    }

    /// Returns one lane of a condition.
    fn lane(&self, cond: &Expr, lane: Expr) -> Expr {
        Slicer::new(lane, 1, &self.in_memory, true).slice(cond)
    }
}

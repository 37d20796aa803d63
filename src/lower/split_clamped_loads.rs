//! Split clamped loads: loads vectors at clamped or wrapped indices as a contiguous part and the
//! elements at the borders.
//!
//! Before: `B[ramp(i, 1, 16)] = A[max(ramp(i - 1, 1, 16), x16(0))]`
//! After:  `B[ramp(i, 1, 16)] = select(ramp(i - 1, 1, 16) < x16(0),
//!          A[x16(0)] if (ramp(i - 1, 1, 16) < x16(0)),
//!          A[ramp(i - 1, 1, 16)] if (x16(0) <= ramp(i - 1, 1, 16)))`
//! A lane loads at its own index, as before, or not at all, so no access needs a proof. An index
//! `ramp(b, 1, 16) % x16(n)` wraps at most once if `n` is at least 16, and is split at `n`; for
//! other run-time `n` the lanes stay as they are.
//! Needs: one index per access, simplified; vectors (`vectorize_loops`). `cut_borders` has cut the
//! interior of most loops with constant extents, which needs no masks. Stands before
//! `outline_simd`, which would refuse lanes with such indices.
//! Ensures: nothing for later passes.  Breaks: simplified form.
//! Declines: targets without masked loads of such elements; indices whose lanes are not
//! consecutive before they are clamped.

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{rewrite_expr, rewrite_exprs};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Kernel, Type};
use crate::simd_ops::masks_elements;
use crate::target::{SimdIsa, Target};

/// Splits the vector loads of a kernel.
pub fn split_clamped_loads(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let Some(isa) = target.simd() else { return Ok(kernel) };
    let mut rewrite = |expr: &Expr| {
        rewrite_expr(expr, &mut |expr| {
            // 16-bit floats are converted before they are chosen.
            let (load, convert) = match &expr.kind {
                ExprKind::Cast(load) if load.ty.dtype.is_half() => (load, true),
                _ => (&expr, false),
            };
            match &load.kind {
                ExprKind::Load { buffer, indices, mask }
                    if indices[0].ty.lanes > 1 && convert == buffer.dtype.is_half() =>
                {
                    let to = expr.ty.dtype;
                    split(buffer, &indices[0], mask.as_ref(), to, isa).unwrap_or(expr)
                }
                _ => expr,
            }
        })
    };
    let body = rewrite_exprs(kernel.body, &mut rewrite);
    Ok(Kernel { body, ..kernel })
}

/// An index `outer + f(core)`, lane by lane.
struct Bent {
    /// `ramp(first, 1, lanes)`.
    first: Expr,
    /// What `f` does, innermost first.
    steps: Vec<Step>,
    outer: Expr,
}

enum Step {
    /// `min` or `max` with a bound that is the same in all lanes.
    Clamp(BinOp, Expr),
    /// `% period`.
    Wrap(Expr),
}

/// Splits a load whose lanes are converted to a type, if they do not have it.
fn split(
    buffer: &Buffer,
    index: &Expr,
    mask: Option<&Expr>,
    to: DType,
    isa: SimdIsa,
) -> Option<Expr> {
    if !masks_elements(buffer.dtype.bytes(), isa) {
        return None;
    }
    let bent = bent(index)?;
    let pieces = Pieces { buffer, mask, to, outer: &bent.outer, lanes: index.ty.lanes };
    match &bent.steps[..] {
        [Step::Wrap(period)] => pieces.wrapped(&bent.first, period, index),
        steps => {
            let clamps: Option<Vec<(BinOp, &Expr)>> = steps
                .iter()
                .map(|step| match step {
                    Step::Clamp(op, bound) => Some((*op, bound)),
                    Step::Wrap(_) => None,
                })
                .collect();
            pieces.clamped(&bent.first, &clamps?)
        }
    }
}

/// Matches an index that is consecutive but for clamps or one wrap.
fn bent(index: &Expr) -> Option<Bent> {
    match &index.kind {
        ExprKind::Ramp(first, stride) if stride.as_int() == Some(1) => {
            Some(Bent { first: first.clone(), steps: Vec::new(), outer: Expr::index(0) })
        }
        ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => {
            let (lanes, same) = match (&a.kind, &b.kind) {
                (_, ExprKind::Broadcast(same)) => (a, same),
                (ExprKind::Broadcast(same), _) if *op == BinOp::Add => (b, same),
                _ => return None,
            };
            let mut found = bent(lanes)?;
            let at = if found.steps.is_empty() { &mut found.first } else { &mut found.outer };
            *at = Expr::binary(*op, at.clone(), same.clone());
            Some(found)
        }
        ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => {
            let (lanes, bound) = match (&a.kind, &b.kind) {
                (_, ExprKind::Broadcast(bound)) => (a, bound),
                (ExprKind::Broadcast(bound), _) => (b, bound),
                _ => return None,
            };
            let mut found = bent(lanes)?;
            found.steps.push(Step::Clamp(*op, bound.clone()));
            (found.outer.as_int() == Some(0)).then_some(found)
        }
        ExprKind::Binary(BinOp::FloorMod, lanes, period) => {
            let ExprKind::Broadcast(period) = &period.kind else { return None };
            let mut found = bent(lanes)?;
            found.steps.is_empty().then(|| found.steps.push(Step::Wrap(period.clone())))?;
            Some(found)
        }
        _ => None,
    }
}

/// Loads of parts of a vector.
struct Pieces<'a> {
    buffer: &'a Buffer,
    mask: Option<&'a Expr>,
    /// The type of the lanes.
    to: DType,
    /// What is added to the index of each piece.
    outer: &'a Expr,
    lanes: u32,
}

impl Pieces<'_> {
    fn all(&self, same: &Expr) -> Expr {
        Expr::new(index_lanes(self.lanes), ExprKind::Broadcast(simplified(same)))
    }

    fn consecutive(&self, first: &Expr) -> Expr {
        let kind = ExprKind::Ramp(simplified(first), Expr::index(1));
        Expr::new(index_lanes(self.lanes), kind)
    }

    /// Loads the lanes in which `cond` holds.
    fn load(&self, index: Expr, cond: Expr) -> Expr {
        let mask = match self.mask {
            Some(mask) => Expr::and(mask.clone(), cond),
            None => cond,
        };
        Expr::cast(self.to, masked_load(self.buffer, index, Some(mask)))
    }

    /// At most one bound below and one above.
    fn clamped(&self, first: &Expr, clamps: &[(BinOp, &Expr)]) -> Option<Expr> {
        let bound = |wanted: BinOp| {
            let mut found = clamps.iter().filter(|(op, _)| *op == wanted).map(|(_, bound)| *bound);
            (found.next(), found.next().is_none())
        };
        let ((low, one_low), (high, one_high)) = (bound(BinOp::Max), bound(BinOp::Min));
        if clamps.is_empty() || !one_low || !one_high {
            return None;
        }
        let lanes = self.consecutive(first);
        let end = |bound: &Expr| {
            let clamp = |value: Expr, (op, bound): &(BinOp, &Expr)| {
                Expr::binary(*op, value, (*bound).clone())
            };
            let clamped = clamps.iter().fold(bound.clone(), clamp);
            self.all(&Expr::add(self.outer.clone(), clamped))
        };
        let inside = [
            low.map(|low| Expr::le(self.all(low), lanes.clone())),
            high.map(|high| Expr::le(lanes.clone(), self.all(high))),
        ];
        let inside = inside.into_iter().flatten().reduce(Expr::and)?;
        let at = self.consecutive(&Expr::add(self.outer.clone(), first.clone()));
        let mut value = self.load(at, inside);
        if let Some(high) = high {
            let above = Expr::lt(self.all(high), lanes.clone());
            value = Expr::select(above.clone(), self.load(end(high), above), value);
        }
        if let Some(low) = low {
            let below = Expr::lt(lanes, self.all(low));
            value = Expr::select(below.clone(), self.load(end(low), below), value);
        }
        Some(value)
    }

    fn wrapped(&self, first: &Expr, period: &Expr, index: &Expr) -> Option<Expr> {
        let least = i128::from(self.lanes);
        if period.as_int().is_some_and(|period| period < least) {
            return None;
        }
        let begin = Expr::binary(BinOp::FloorMod, first.clone(), period.clone());
        let lanes = self.consecutive(&begin);
        let before = Expr::lt(lanes.clone(), self.all(period));
        let behind = Expr::le(self.all(period), lanes);
        let at = Expr::add(self.outer.clone(), begin);
        let next = Expr::sub(at.clone(), period.clone());
        let value = Expr::select(
            before.clone(),
            self.load(self.consecutive(&at), before),
            self.load(self.consecutive(&next), behind),
        );
        if period.as_int().is_some() {
            return Some(value);
        }
        let whole =
            Expr::cast(self.to, masked_load(self.buffer, index.clone(), self.mask.cloned()));
        let is_long = Expr::le(Expr::index(i64::from(self.lanes)), period.clone());
        Some(Expr::if_then_else(is_long, value, whole))
    }
}

fn simplified(expr: &Expr) -> Expr {
    simplify_expr(expr, &Facts::new())
}

fn index_lanes(lanes: u32) -> Type {
    Type { dtype: DType::Index, lanes }
}

fn masked_load(buffer: &Buffer, index: Expr, mask: Option<Expr>) -> Expr {
    let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
    Expr::new(ty, ExprKind::Load { buffer: buffer.clone(), indices: vec![index], mask })
}

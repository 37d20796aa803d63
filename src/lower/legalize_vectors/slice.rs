//! Extracts some lanes of a vector expression as an expression of their own.

use super::{broadcast, ramp};
use crate::ir::visit::Memo;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Var};
use crate::ir::{Type, visit};
use rustc_hash::FxHashMap;

/// Extracts lanes `start .. start + width` of expressions: a scalar for one lane, else a vector.
pub(super) struct Slicer<'a> {
    start: Expr,
    width: u32,
    in_memory: &'a FxHashMap<Var, Buffer>,
    /// Whether loads of vectors keep their masks.
    masks: bool,
    /// The variables that replace vectors bound in the expression.
    vars: FxHashMap<Var, Var>,
    /// The results, by node.
    done: Memo<Expr>,
}

impl<'a> Slicer<'a> {
    /// Creates a slicer of `width` lanes from `start` on; `in_memory` has the vectors that a buffer
    /// holds, and `masks` says whether loads keep their masks.
    pub(super) fn new(
        start: Expr,
        width: u32,
        in_memory: &'a FxHashMap<Var, Buffer>,
        masks: bool,
    ) -> Slicer<'a> {
        Slicer { start, width, in_memory, masks, vars: FxHashMap::default(), done: Memo::default() }
    }

    /// Returns the lanes of a vector. A scalar stays scalar.
    pub(super) fn slice(&mut self, expr: &Expr) -> Expr {
        if matches!(expr.kind, ExprKind::Const(_)) {
            return expr.clone();
        }
        if let Some(done) = self.done.get(expr) {
            return done.clone();
        }
        let result = self.compute(expr);
        self.done.insert(expr, result.clone());
        result
    }

    fn compute(&mut self, expr: &Expr) -> Expr {
        match &expr.kind {
            ExprKind::Load { buffer, indices, mask } => {
                self.load(buffer, &indices[0], mask.as_ref())
            }
            _ if expr.ty.lanes == 1 => visit::map_children(expr, &mut |child| self.slice(child)),
            ExprKind::Const(_) => crate::bug!("a constant with lanes"),
            ExprKind::Var(var) => self.variable(var),
            ExprKind::Ramp(base, stride) => {
                let (base, stride) = (self.slice(base), self.slice(stride));
                let first = self.lane_of_ramp(base, &stride);
                if self.width == 1 { first } else { ramp(first, stride, self.width) }
            }
            ExprKind::Broadcast(value) => {
                let value = self.slice(value);
                if self.width == 1 { value } else { broadcast(value, self.width) }
            }
            ExprKind::Unary(op, a) => Expr::unary(*op, self.slice(a)),
            ExprKind::Binary(op, a, b) => Expr::binary(*op, self.slice(a), self.slice(b)),
            ExprKind::Select(c, t, f) => {
                let c = match &c.kind {
                    ExprKind::Broadcast(c) => self.slice(c),
                    _ => self.slice(c),
                };
                Expr::select(c, self.slice(t), self.slice(f))
            }
            ExprKind::IfThenElse(c, t, f) => {
                Expr::if_then_else(self.slice(c), self.slice(t), self.slice(f))
            }
            ExprKind::Cast(a) => Expr::cast(expr.ty.dtype, self.slice(a)),
            ExprKind::Bitcast(a) => Expr::bitcast(expr.ty.dtype, self.slice(a)),
            ExprKind::Call(function, args) => {
                Expr::call(*function, args.iter().map(|arg| self.slice(arg)).collect())
            }
            ExprKind::Let(var, value, body) => {
                let value = self.slice(value);
                let var = match value.ty == var.ty() {
                    true => var.clone(),
                    false => self
                        .vars
                        .entry(var.clone())
                        .or_insert_with(|| Var::new(var.name(), value.ty))
                        .clone(),
                };
                Expr::let_in(var, value, self.slice(body))
            }
        }
    }

    /// Returns the lanes of a variable that holds a vector, in memory or bound inside.
    fn variable(&self, var: &Var) -> Expr {
        if let Some(buffer) = self.in_memory.get(var) {
            let index = match self.width {
                1 => self.start.clone(),
                _ => ramp(self.start.clone(), Expr::index(1), self.width),
            };
            return Expr::cast(var.ty().dtype, Expr::load(buffer, vec![index]));
        }
        Expr::var(self.vars.get(var).unwrap_or(var))
    }

    /// Returns `base + stride * start`, in the type of the ramp.
    fn lane_of_ramp(&self, base: Expr, stride: &Expr) -> Expr {
        let dtype = base.ty.dtype;
        let offset = match (self.start.as_int(), stride.as_int()) {
            (Some(0), _) => return base,
            (Some(start), Some(stride)) => Expr::int(dtype, start.wrapping_mul(stride)),
            (_, Some(1)) => Expr::cast(dtype, self.start.clone()),
            _ => Expr::mul(Expr::cast(dtype, self.start.clone()), stride.clone()),
        };
        match (base.as_int(), offset.as_int()) {
            (Some(0), _) => offset,
            (Some(base), Some(offset)) => Expr::int(dtype, base.wrapping_add(offset)),
            _ => Expr::binary(BinOp::Add, base, offset),
        }
    }

    /// Returns the lanes of a load. Lanes that the mask turns off are 0 and are not read.
    fn load(&mut self, buffer: &Buffer, index: &Expr, mask: Option<&Expr>) -> Expr {
        let load = match &index.kind {
            // One element for all lanes.
            ExprKind::Broadcast(index) if self.width > 1 && (mask.is_none() || !self.masks) => {
                broadcast(Expr::load(buffer, vec![self.slice(index)]), self.width)
            }
            _ => Expr::load(buffer, vec![self.slice(index)]),
        };
        let Some(mask) = mask else { return load };
        let cond = match &mask.kind {
            ExprKind::Broadcast(cond) => self.slice(cond),
            _ => self.slice(mask),
        };
        if self.masks && self.width > 1 && cond.ty.lanes > 1 {
            let indices = vec![self.slice(index)];
            let (buffer, mask) = (buffer.clone(), Some(cond));
            return Expr::new(load.ty, ExprKind::Load { buffer, indices, mask });
        }
        if !load.ty.dtype.is_half() {
            return Expr::if_then_else(cond, load.clone(), zero(load.ty));
        }
        // Choices of halves are made on their bits, because back ends have no operations on halves.
        let bits = Expr::bitcast(DType::Uint16, load.clone());
        let chosen = Expr::if_then_else(cond, bits.clone(), zero(bits.ty));
        Expr::bitcast(load.ty.dtype, chosen)
    }
}

fn zero(ty: Type) -> Expr {
    let zero = match ty.dtype.is_float() {
        true => Expr::float(ty.dtype, 0.0),
        false => Expr::int(ty.dtype, 0),
    };
    if ty.lanes == 1 { zero } else { broadcast(zero, ty.lanes) }
}

//! The operations that Cranelift has on 128-bit vectors: those on lanes of one width, 4 or 8 bytes.
//! Stores are to consecutive elements, loads from these or from one element.

use super::{Legalizer, NATIVE_BYTES, Store};
use crate::ir::visit::{Memo, for_each_child};
use crate::ir::{BinOp, DType, Expr, ExprKind, Intrinsic, Type, UnOp, Var};
use crate::lower::expand_math::expand_expr;

impl Legalizer {
    /// Returns the number of lanes of the vectors that a store can be split into; 1 if it must be
    /// scalar.
    pub(super) fn native_lanes(&self, store: &Store, lanes: u32) -> u32 {
        let dtype = store.buffer.dtype;
        let bytes = dtype.bytes() as u32;
        if bytes != 4 && bytes != 8 || store.mask.is_some() || !is_consecutive(&store.index) {
            return 1;
        }
        let width = NATIVE_BYTES / bytes;
        let mut checker = NativeChecker {
            bytes,
            has_fma: self.has_fma,
            known: Memo::default(),
            reading: Memo::default(),
        };
        if lanes >= width && checker.is_native(&store.value) { width } else { 1 }
    }
}

fn is_consecutive(index: &Expr) -> bool {
    matches!(&index.kind, ExprKind::Ramp(_, stride) if stride.as_int() == Some(1))
}

/// Decides which expressions are native for lanes of one width.
struct NativeChecker {
    bytes: u32,
    has_fma: bool,
    known: Memo<bool>,
    /// Whether an expression reads memory.
    reading: Memo<bool>,
}

impl NativeChecker {
    fn is_native(&mut self, expr: &Expr) -> bool {
        // Scalars are computed once, then broadcast.
        if expr.ty.lanes == 1 {
            return true;
        }
        if let Some(known) = self.known.get(expr) {
            return *known;
        }
        let native = self.fits(expr.ty) && self.has_operation(expr);
        self.known.insert(expr, native);
        native
    }

    /// Whether the lanes of a type have the width; masks are as wide as the compared lanes.
    fn fits(&self, ty: Type) -> bool {
        ty.dtype == DType::Bool || ty.dtype.bytes() == u64::from(self.bytes)
    }

    fn has_operation(&mut self, expr: &Expr) -> bool {
        let dtype = expr.ty.dtype;
        let is_bool = dtype == DType::Bool;
        match &expr.kind {
            ExprKind::Const(_) => false,
            ExprKind::Var(_) | ExprKind::Broadcast(_) | ExprKind::Ramp(..) => !is_bool,
            ExprKind::Load { indices, mask, .. } => {
                let one = |expr: &Expr| matches!(expr.kind, ExprKind::Broadcast(_));
                let readable = is_consecutive(&indices[0]) || one(&indices[0]);
                !is_bool && readable && mask.as_ref().is_none_or(one)
            }
            ExprKind::Unary(op, a) => *op != UnOp::Popcount && self.is_native(a),
            ExprKind::Binary(op, a, b) => self.has_binary(*op, a, b),
            ExprKind::Select(c, t, f) => {
                let cond = matches!(c.kind, ExprKind::Broadcast(_)) || self.is_native(c);
                cond && !is_bool && self.is_native(t) && self.is_native(f)
            }
            ExprKind::IfThenElse(_, t, f) => !is_bool && self.is_native(t) && self.is_native(f),
            ExprKind::Cast(a) => has_cast(a.ty.dtype, dtype) && self.is_native(a),
            ExprKind::Bitcast(a) => !is_bool && a.ty.dtype != DType::Bool && self.is_native(a),
            ExprKind::Call(Intrinsic::Fma, args) => {
                self.has_fma && args.iter().all(|arg| self.is_native(arg))
            }
            ExprKind::Call(function, args) => {
                args.iter().all(|arg| self.is_native(arg)) && self.has_function(*function, args)
            }
            ExprKind::Let(var, value, body) => {
                var.ty().dtype != DType::Bool && self.is_native(value) && self.is_native(body)
            }
        }
    }

    /// Whether the operations that a function is expanded into are native.
    fn has_function(&self, function: Intrinsic, args: &[Expr]) -> bool {
        let vars = args.iter().map(|arg| Expr::var(&Var::new("x", arg.ty))).collect();
        let expanded = expand_expr(&Expr::call(function, vars));
        // The expansion is freed afterwards, so its addresses must not stay in the tables.
        let (known, reading) = (Memo::default(), Memo::default());
        NativeChecker { bytes: self.bytes, has_fma: self.has_fma, known, reading }
            .is_native(&expanded)
    }

    fn reads(&mut self, expr: &Expr) -> bool {
        if let Some(reads) = self.reading.get(expr) {
            return *reads;
        }
        let mut reads = matches!(expr.kind, ExprKind::Load { .. });
        for_each_child(expr, &mut |child| reads = reads || self.reads(child));
        self.reading.insert(expr, reads);
        reads
    }

    fn has_binary(&mut self, op: BinOp, a: &Expr, b: &Expr) -> bool {
        use BinOp::*;
        let dtype = a.ty.dtype;
        let has = match op {
            Add | Sub | Mul | Min | Max => dtype != DType::Bool,
            Div => true,
            FloorDiv | FloorMod => false,
            BitAnd | BitOr | BitXor => true,
            Shl | Shr => matches!(b.kind, ExprKind::Broadcast(_)),
            // If the left side decides, the right side must not be read.
            And | Or => !self.reads(b),
            Eq | Ne | Lt | Le | Gt | Ge => dtype != DType::Bool,
        };
        has && self.is_native(a) && self.is_native(b)
    }
}

/// Whether a cast is native; both types have the same width in lanes.
fn has_cast(from: DType, to: DType) -> bool {
    if from == DType::Bool || to == DType::Bool {
        return false;
    }
    let ints = from.is_int() && to.is_int();
    ints || from.bytes() == 4 && to.bytes() == 4
}

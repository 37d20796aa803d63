//! Operations on vectors of 16 bytes; `legalize_vectors` leaves no others. A bool vector has lanes
//! of all ones or all zeros, as wide as the compared lanes.

use super::emit::{Emitter, clif_type_of};
use crate::ir::{BinOp, DType, Expr, ExprKind, Intrinsic, Type, UnOp};
use crate::target::Arch;
use cranelift_codegen::ir::{ConstantData, InstBuilder, MemFlagsData, Value};

impl Emitter<'_, '_> {
    /// Emits a vector expression.
    pub(super) fn vector_operation(&mut self, expr: &Expr) -> Value {
        match &expr.kind {
            ExprKind::Unary(op, a) => {
                let value = self.expr(a);
                self.vector_unary(*op, a.ty.dtype, value)
            }
            ExprKind::Binary(op, a, b) => self.vector_binary(*op, a, b),
            ExprKind::Select(c, t, f) => {
                let (cond, t, f) = (self.expr(c), self.expr(t), self.expr(f));
                match c.ty.lanes {
                    1 => self.b.ins().select(cond, t, f),
                    _ => self.choose_lanes(cond, t, f),
                }
            }
            ExprKind::IfThenElse(c, t, f) => self.if_then_else(c, t, f),
            ExprKind::Cast(a) => {
                let value = self.expr(a);
                self.vector_cast(a.ty.dtype, expr.ty, value)
            }
            ExprKind::Bitcast(a) => {
                let value = self.expr(a);
                self.vector_of_bits(expr.ty, value)
            }
            ExprKind::Load { buffer, indices, .. } => self.load(buffer, indices),
            ExprKind::Call(Intrinsic::Fma, args) => {
                let args: Vec<Value> = args.iter().map(|arg| self.expr(arg)).collect();
                self.fma(expr.ty.dtype, &args)
            }
            ExprKind::Let(var, value, body) => {
                self.bind_let(var, value);
                self.expr(body)
            }
            ExprKind::Broadcast(a) => {
                let value = self.expr(a);
                self.splat(expr.ty, value)
            }
            ExprKind::Ramp(base, stride) => self.ramp(expr.ty, base, stride),
            ExprKind::Call(..) => crate::bug!("legalize_vectors left {expr:?}"),
            ExprKind::Const(_) | ExprKind::Var(_) => unreachable!("leaves are handled before"),
        }
    }

    /// Broadcasts a scalar to all lanes.
    pub(super) fn splat(&mut self, ty: Type, value: Value) -> Value {
        self.b.ins().splat(clif_type_of(ty), value)
    }

    /// Loads a vector of any alignment. Without AVX, Cranelift would fold the load into a float
    /// comparison, whose memory operand must be aligned; a bitcast between them prevents that.
    pub(super) fn load_vector(
        &mut self,
        ty: Type,
        flags: MemFlagsData,
        address: Value,
        offset: i32,
    ) -> Value {
        let target = self.unit.target;
        let hides = target.arch == Arch::X86_64 && !target.features.contains(&"avx");
        if !hides || !ty.dtype.is_float() {
            return self.b.ins().load(clif_type_of(ty), flags, address, offset);
        }
        let bits = if ty.dtype == DType::Float64 { DType::Int64 } else { DType::Int32 };
        let bits = clif_type_of(ty.with_dtype(bits));
        let value = self.b.ins().load(bits, flags, address, offset);
        self.vector_of_bits(ty, value)
    }

    fn vector_unary(&mut self, op: UnOp, dtype: DType, x: Value) -> Value {
        match op {
            UnOp::Not => self.b.ins().bnot(x),
            UnOp::Abs if dtype.is_signed() => self.b.ins().iabs(x),
            UnOp::Popcount => crate::bug!("popcount of a vector"),
            _ => self.unary(op, dtype, x),
        }
    }

    fn vector_binary(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Value {
        let dtype = a.ty.dtype;
        let x = self.expr(a);
        if let (BinOp::Shl | BinOp::Shr, ExprKind::Broadcast(amount)) = (op, &b.kind) {
            let amount = self.expr(amount);
            return self.binary(op, dtype, x, amount);
        }
        let y = self.expr(b);
        match op {
            // `legalize_vectors` left the same amount for all lanes, which got a name since.
            BinOp::Shl | BinOp::Shr if b.as_var().is_some() => {
                let amount = self.b.ins().extractlane(y, 0);
                self.binary(op, dtype, x, amount)
            }
            BinOp::And => self.b.ins().band(x, y),
            BinOp::Or => self.b.ins().bor(x, y),
            // On x86 these two spellings are one instruction each for floats.
            BinOp::Min => {
                let less = self.compare(BinOp::Lt, dtype, x, y);
                self.choose_lanes(less, x, y)
            }
            BinOp::Max => {
                let less = self.compare(BinOp::Lt, dtype, y, x);
                self.choose_lanes(less, x, y)
            }
            BinOp::FloorDiv | BinOp::FloorMod | BinOp::Shl | BinOp::Shr => {
                crate::bug!("{op:?} of vectors")
            }
            _ => self.binary(op, dtype, x, y),
        }
    }

    /// Selects `t` in the lanes where `cond` is all ones, else `f`.
    fn choose_lanes(&mut self, cond: Value, t: Value, f: Value) -> Value {
        let ty = self.b.func.dfg.value_type(t);
        let cond = if self.b.func.dfg.value_type(cond) == ty {
            cond
        } else {
            self.b.ins().bitcast(ty, MemFlagsData::new(), cond)
        };
        self.b.ins().bitselect(cond, t, f)
    }

    fn vector_of_bits(&mut self, ty: Type, x: Value) -> Value {
        let ty = clif_type_of(ty);
        match self.b.func.dfg.value_type(x) == ty {
            true => x,
            false => self.b.ins().bitcast(ty, MemFlagsData::new(), x),
        }
    }

    /// Conversions between types of one width.
    fn vector_cast(&mut self, from: DType, to: Type, x: Value) -> Value {
        let ty = clif_type_of(to);
        match (from.is_float(), to.dtype.is_float()) {
            (false, true) if from.is_signed() => self.b.ins().fcvt_from_sint(ty, x),
            (false, true) => self.b.ins().fcvt_from_uint(ty, x),
            (true, false) if to.dtype.is_signed() => self.b.ins().fcvt_to_sint_sat(ty, x),
            (true, false) => self.b.ins().fcvt_to_uint_sat(ty, x),
            _ => x,
        }
    }

    fn ramp(&mut self, ty: Type, base: &Expr, stride: &Expr) -> Value {
        let (bytes, vector) = (ty.dtype.bytes() as usize, clif_type_of(ty));
        let step = stride.as_int().unwrap_or(1);
        let lanes: Vec<u8> = (0..i128::from(ty.lanes))
            .flat_map(|lane| lane.wrapping_mul(step).to_le_bytes().into_iter().take(bytes))
            .collect();
        let constant = self.b.func.dfg.constants.insert(ConstantData::from(&lanes[..]));
        let mut offsets = self.b.ins().vconst(vector, constant);
        if stride.as_int().is_none() {
            let stride = self.expr(stride);
            let stride = self.splat(ty, stride);
            offsets = self.b.ins().imul(offsets, stride);
        }
        let base = self.expr(base);
        let base = self.splat(ty, base);
        self.b.ins().iadd(base, offsets)
    }
}

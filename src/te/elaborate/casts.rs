//! Types of values: constants that adapt to a type, operands of different types, explicit casts,
//! indices.
//!
//! A constant takes the type of the other operand if it is exact in that type; a real constant
//! never takes an integer type. Any other difference of types is an error that shows the cast to
//! write.

use super::Elaborator;
use super::constants::{self, is_exact};
use super::reals::Real;
use super::values::{SourceType, Typed, Value};
use crate::diag::{Diag, Span};
use crate::ir::visit::any_expr;
use crate::ir::{BinOp, Const, DType, Expr, ExprKind, UnOp};
use crate::lang::ast;
use num_traits::{ToPrimitive, Zero};

/// The value of an operand, and its syntax for messages.
pub type Operand<'e, 'a> = (&'e Value, &'a ast::Expr);

impl<'a> Elaborator<'a> {
    /// Returns the common type of operands: that of the typed ones, else the default of constants.
    /// `None` if there is none, which is reported, or if an operand is poison.
    pub fn common_type(
        &mut self,
        operands: &[Operand<'_, 'a>],
        what: &str,
        span: Span,
    ) -> Option<SourceType> {
        if operands.iter().any(|(value, _)| matches!(value, Value::Poison)) {
            return None;
        }
        let fixed = |(value, expr): &Operand<'_, 'a>| match value {
            Value::Scalar(typed) if typed.choice.is_none() => Some((typed.ty, *expr)),
            _ => None,
        };
        let Some((ty, first)) = operands.iter().find_map(fixed) else {
            return Some(default_type(operands.iter().map(|(value, _)| *value)));
        };
        for (value, expr) in operands {
            let Value::Scalar(other) = value else { continue };
            if other.ty != ty && !other.adapts_to(ty) {
                if !self.reports_untyped_stage(&[first, *expr], ty, other.ty) {
                    self.error(self.type_mismatch((ty, first), (other.ty, *expr), what, span));
                }
                return None;
            }
        }
        Some(ty)
    }

    /// Whether the types differ because a stage declares no type, which is reported once.
    fn reports_untyped_stage(
        &mut self,
        exprs: &[&ast::Expr],
        a: SourceType,
        b: SourceType,
    ) -> bool {
        let stored = SourceType::Data(DType::Int64);
        let wanted = if a == stored { b } else { a };
        let read = exprs.iter().find_map(|expr| self.untyped_reads.get(&expr.span));
        let (Some((name, declared)), SourceType::Data(dtype)) = (read, wanted) else {
            return false;
        };
        let (name, declared) = (name.clone(), *declared);
        if a != stored && b != stored || self.muted || dtype == DType::Bool {
            return false;
        }
        if self.reported_untyped.insert(declared) {
            let span = exprs.iter().find(|expr| self.untyped_reads.contains_key(&expr.span));
            let span = span.expect("it is one of them").span;
            let message = format!("`{name}` is `int64` here, but `{dtype}` is needed");
            let diag = Diag::new("E0207", span, message);
            let related = format!("`{name}` has no declared type, so it is `int64`");
            let help = format!("give it the type where it is declared: `{name}[…]: {dtype} = …`");
            self.error(diag.related(declared, related).help(help));
        }
        true
    }

    /// Reports that the type of a stage's value differs from its declared type (E0228).
    pub fn wrong_element(&mut self, expr: &'a ast::Expr, found: SourceType, declared: DType) {
        if self.reports_untyped_stage(&[expr], found, SourceType::Data(declared)) {
            return;
        }
        let message =
            format!("the stage is declared `{declared}`, but its expression is `{found}`");
        let help = format!("write `{}`", self.with_cast(expr, declared));
        self.error(Diag::new("E0228", expr.span, message).help(help));
    }

    fn type_mismatch(
        &self,
        (a, a_expr): (SourceType, &ast::Expr),
        (b, b_expr): (SourceType, &ast::Expr),
        what: &str,
        span: Span,
    ) -> Diag {
        let diag = Diag::new("E0207", span, format!("`{a}` and `{b}` do not mix in {what}"));
        if [a, b].contains(&SourceType::Data(DType::Bool)) {
            return diag.help("compare, or cast the `bool` to a number with `as`");
        }
        let Some(dtype) = wider(a, b) else {
            let signed = if a == SourceType::Data(DType::Uint64) { b_expr } else { a_expr };
            let cast = self.with_cast(signed, DType::Uint64);
            return diag.help(format!("write `{cast}` if it is never negative"));
        };
        let diag = match &*b_expr.kind {
            ast::ExprKind::Cast(operand, to) if SourceType::Data(dtype) == a => {
                match self.cast_of_operand(a_expr, what, operand, to) {
                    Some(note) => diag.note(note),
                    None => diag,
                }
            }
            _ => diag,
        };
        let casts = [(a, a_expr), (b, b_expr)]
            .into_iter()
            .filter(|(ty, _)| *ty != SourceType::Data(dtype))
            .map(|(_, expr)| format!("`{}`", self.with_cast(expr, dtype)));
        diag.help(format!("write {}", casts.collect::<Vec<_>>().join(" and ")))
    }

    /// Returns a note on a cast of the right operand, where that of the result may be meant.
    fn cast_of_operand(
        &self,
        left: &ast::Expr,
        operator: &str,
        right: &ast::Expr,
        to: &ast::Name,
    ) -> Option<String> {
        let sign = operator.trim_matches('`');
        let is_sign = operator.starts_with('`') && !sign.starts_with(char::is_alphabetic);
        let (left, right, to) = (self.excerpt(left), self.excerpt(right), &to.text);
        is_sign.then(|| {
            format!(
                "`as` binds tighter than {operator}: `({left} {sign} {right}) as {to}` casts the \
                 result"
            )
        })
    }

    /// Converts a constant to type `ty`; a scalar must have it. Reports an error otherwise.
    pub fn adapt(&mut self, (value, expr): Operand<'_, 'a>, ty: SourceType) -> Option<Typed> {
        let wrong = match value {
            Value::Poison => return None,
            Value::Scalar(typed) if typed.ty == ty => return Some(typed.clone()),
            Value::Scalar(typed) if typed.adapts_to(ty) => {
                return self.adapt_choice(typed, expr, ty);
            }
            Value::Int(int) => match ty {
                SourceType::Data(DType::Bool) => None,
                SourceType::Index if is_exact(int, DType::Int64) => return constant(value, ty),
                SourceType::Data(dtype) if is_exact(int, dtype) => return constant(value, ty),
                _ => {
                    let text = match ty.is_float() {
                        true => format!("`{int}` is not exact in `{ty}`"),
                        false => format!("`{int}` is outside of the range of `{ty}`"),
                    };
                    let mut diag = Diag::new("E0210", expr.span, text);
                    if ty.is_float() {
                        diag = diag.help(format!("write a real constant, `{int}.0`, to round it"));
                    }
                    self.error(diag);
                    return None;
                }
            },
            Value::Real(real) if ty.is_float() => match constant(value, ty) {
                Some(typed) => return Some(typed),
                None => {
                    let text = format!("`{real}` is too large for `{ty}`");
                    self.error(Diag::new("E0210", expr.span, text));
                    return None;
                }
            },
            Value::Bool(_) if ty == SourceType::Data(DType::Bool) => return constant(value, ty),
            Value::Scalar(typed) => Some(typed.ty),
            _ => None,
        };
        let found = wrong.map_or_else(|| value.describe(), |ty| format!("`{ty}`"));
        let message = format!("{found} does not fit where `{ty}` is needed");
        let mut diag = Diag::new("E0207", expr.span, message);
        if let SourceType::Data(dtype) = ty
            && dtype != DType::Bool
            && !matches!(
                value,
                Value::Tensor(_) | Value::DType(_) | Value::ReduceAxis(_) | Value::Pack(_)
            )
        {
            diag = diag.help(format!("write `{}`", self.with_cast(expr, dtype)));
        }
        self.error(diag);
        None
    }

    /// Converts a choice between constants to a type.
    fn adapt_choice(
        &mut self,
        typed: &Typed,
        expr: &'a ast::Expr,
        ty: SourceType,
    ) -> Option<Typed> {
        let choice = typed.choice.clone()?;
        let then = self.adapt((&choice.then, expr), ty)?;
        let otherwise = self.adapt((&choice.otherwise, expr), ty)?;
        let chosen = (choice.make)(choice.condition.clone(), then.expr, otherwise.expr);
        Some(Typed { ty, expr: chosen, size: typed.size, choice: Some(choice) })
    }

    /// Converts operands to their common type. Returns the type, the values and their total size.
    pub fn unify(
        &mut self,
        operands: &[Operand<'_, 'a>],
        what: &str,
        span: Span,
    ) -> Option<(SourceType, Vec<Expr>, u64)> {
        let ty = self.common_type(operands, what, span)?;
        let mut exprs = Vec::with_capacity(operands.len());
        let mut size = 0u64;
        if !ty.is_float() && operands.iter().any(|(value, _)| matches!(value, Value::Real(_))) {
            self.refuse_real(ty, operands, what, span);
            return None;
        }
        for operand in operands {
            let typed = self.adapt(*operand, ty)?;
            size = size.saturating_add(typed.size);
            exprs.push(typed.expr);
        }
        Some((ty, exprs, size))
    }

    /// Reports a real constant next to an integer, with the cast to write.
    fn refuse_real(
        &mut self,
        ty: SourceType,
        operands: &[Operand<'_, 'a>],
        what: &str,
        span: Span,
    ) {
        let message = format!("`{ty}` and a real constant do not mix in {what}");
        let mut diag = Diag::new("E0207", span, message);
        if ty != SourceType::Data(DType::Bool)
            && let Some((_, expr)) = operands.iter().find(|(v, _)| matches!(v, Value::Scalar(_)))
        {
            let help = match ty {
                // Where an index is needed, its operands stay integers.
                SourceType::Index => "write an integer constant, or `… as float32`".to_string(),
                _ => format!("write `{}`", self.with_cast(expr, DType::Float32)),
            };
            diag = diag.help(help);
        }
        self.error(diag);
    }

    /// Converts a value to its default element type: a real constant is `float32`, an `index` is
    /// stored as `int64`.
    pub fn stored(&mut self, operand: Operand<'_, 'a>) -> Option<(DType, Typed)> {
        let ty = match operand.0 {
            Value::Poison => return None,
            Value::Scalar(typed) => typed.ty,
            Value::Int(_) => SourceType::Data(DType::Int64),
            value => default_type([value]),
        };
        match ty {
            SourceType::Data(dtype) => Some((dtype, self.adapt(operand, ty)?)),
            SourceType::Index => {
                let typed = self.adapt(operand, ty)?;
                Some((DType::Int64, cast(&typed, DType::Int64)))
            }
        }
    }

    /// Converts a value to an element type. A constant is rounded once, to that type. (An operand
    /// of a 16-bit float type is rounded to `float32`.)
    pub fn adapt_stored(&mut self, operand: Operand<'_, 'a>, dtype: DType) -> Option<Typed> {
        let ty = SourceType::Data(dtype);
        if let Value::Scalar(Typed { choice: Some(choice), size, .. }) = operand.0
            && dtype.is_half()
        {
            let then = self.adapt_stored((&choice.then, operand.1), dtype)?;
            let otherwise = self.adapt_stored((&choice.otherwise, operand.1), dtype)?;
            let chosen = (choice.make)(choice.condition.clone(), then.expr, otherwise.expr);
            return Some(Typed { ty, expr: chosen, size: *size, choice: None });
        }
        let typed = self.adapt(operand, ty)?;
        let Some(real) = operand.0.as_real().filter(|_| dtype.is_half()) else {
            return Some(typed);
        };
        match real.to_float(dtype) {
            Some(rounded) => Some(Typed::new(ty, Expr::float(ty.compute(), rounded), 0)),
            None => {
                let message = format!("`{real}` is too large for `{ty}`");
                self.error(Diag::new("E0210", operand.1.span, message));
                None
            }
        }
    }

    /// Evaluates `expr as dtype` of a scalar or constant.
    pub fn cast_value(&mut self, value: &Value, dtype: DType, expr: &'a ast::Expr) -> Value {
        let typed = match value {
            Value::Scalar(typed) => cast(typed, dtype),
            Value::Int(_) | Value::Real(_) | Value::Bool(_) => match cast_constant(value, dtype) {
                Some(typed) => typed,
                None => {
                    let message = format!("{} is too large to be cast", value.describe());
                    self.error(Diag::new("E0210", expr.span, message));
                    return Value::Poison;
                }
            },
            Value::Poison => return Value::Poison,
            Value::DType(_) | Value::Tensor(_) | Value::ReduceAxis(_) | Value::Pack(_) => {
                crate::bug!("cast of {}", value.describe())
            }
        };
        Value::Scalar(typed)
    }

    /// Converts an index of a tensor to type `index`.
    pub fn tensor_index(&mut self, (value, expr): Operand<'_, 'a>) -> Option<Typed> {
        let found = match value {
            Value::Poison => return None,
            Value::Int(_) => return self.adapt((value, expr), SourceType::Index),
            Value::Scalar(typed) if typed.ty.is_int() => return Some(cast_to_index(typed)),
            Value::Scalar(typed) => format!("`{}`", typed.ty),
            other => other.describe(),
        };
        let diag =
            Diag::new("E0206", expr.span, format!("an index must be an integer, not {found}"));
        self.error(match value {
            Value::Scalar(_) => {
                diag.help(format!("write `{}`", self.with_cast(expr, DType::Int64)))
            }
            _ => diag,
        });
        None
    }

    /// Converts an extent or a bound of a reduction, an integer over run-time integers.
    pub fn extent(&mut self, (value, expr): Operand<'_, 'a>, what: &str) -> Option<Expr> {
        match value {
            Value::Poison => None,
            Value::Int(_) => Some(self.adapt((value, expr), SourceType::Index)?.expr),
            Value::Scalar(typed) if typed.ty == SourceType::Index => {
                if has_bit_operation(&typed.expr) {
                    let message =
                        format!("{what} cannot contain bit operations on run-time integers");
                    let help = "write it with the operators `*`, `//`, `%`, `-`";
                    self.error(Diag::new("E0211", expr.span, message).help(help));
                    return None;
                }
                Some(typed.expr.clone())
            }
            Value::Pack(_) => {
                self.number(value.clone(), expr);
                None
            }
            other => {
                let found = other.describe();
                let message =
                    format!("{what} must be an integer of constants and run-time integers");
                self.error(
                    Diag::new("E0211", expr.span, message).label(format!("this is {found}")),
                );
                None
            }
        }
    }
}

/// Whether an extent has an operation that a manifest cannot express.
fn has_bit_operation(expr: &Expr) -> bool {
    use BinOp::{BitAnd, BitOr, BitXor, Shl, Shr};
    any_expr(expr, &mut |expr| match &expr.kind {
        ExprKind::Unary(op, _) => !matches!(op, UnOp::Neg | UnOp::Abs | UnOp::Not),
        ExprKind::Binary(op, ..) => matches!(op, BitAnd | BitOr | BitXor | Shl | Shr),
        _ => false,
    })
}

/// Returns the smallest type that holds the values of both types; none for uint64 with a signed
/// type. An integer with a 16-bit float gives `float32`, because 16-bit floats hold integers up to
/// 2048 only.
pub(super) fn wider(a: SourceType, b: SourceType) -> Option<DType> {
    let of = |ty| match ty {
        SourceType::Index => DType::Int64,
        SourceType::Data(dtype) => dtype,
    };
    let (a, b) = (of(a), of(b));
    match (a.is_float(), b.is_float()) {
        (true, true) if a.bits() == b.bits() => Some(DType::Float32),
        (true, true) => Some(if a.bits() > b.bits() { a } else { b }),
        (false, false) if a.is_signed() == b.is_signed() => {
            Some(if a.bits() >= b.bits() { a } else { b })
        }
        (false, false) => {
            let (signed, unsigned) = if a.is_signed() { (a, b) } else { (b, a) };
            let holds = |dtype: &DType| dtype.bits() > unsigned.bits();
            let types = [signed, DType::Int16, DType::Int32, DType::Int64];
            types.into_iter().find(|dtype| holds(dtype) && dtype.bits() >= signed.bits())
        }
        (float, _) => {
            let float = if float { a } else { b };
            Some(if float.bits() < 32 { DType::Float32 } else { float })
        }
    }
}

/// Returns the type of constants without another operand to adapt to.
fn default_type<'v>(values: impl IntoIterator<Item = &'v Value>) -> SourceType {
    let mut ty = SourceType::Data(DType::Bool);
    for value in values {
        match value {
            Value::Real(_) => return SourceType::Data(DType::Float32),
            Value::Int(_) => ty = SourceType::Index,
            Value::Scalar(typed) if typed.ty.is_float() => return typed.ty,
            Value::Scalar(typed) => ty = typed.ty,
            _ => {}
        }
    }
    ty
}

/// Converts a constant to a type; `None` if the type cannot hold it. A real is rounded once. A real
/// of a 16-bit float type is rounded to `Float32`, in which such types are computed.
fn constant(value: &Value, ty: SourceType) -> Option<Typed> {
    let compute = ty.compute();
    let expr = match value {
        Value::Bool(value) => Expr::bool(*value),
        Value::Int(value) if ty.is_float() => {
            Expr::float(compute, Real::from_integer(value.clone()).to_float(compute)?)
        }
        Value::Int(value) => Expr::int(compute, value.to_i128()?),
        Value::Real(value) => Expr::float(compute, value.to_float(compute)?),
        _ => return None,
    };
    Some(Typed::new(ty, expr, 0))
}

/// Evaluates `constant as dtype` exactly; `None` for an integer beyond 64 bits that stays an
/// integer.
fn cast_constant(value: &Value, dtype: DType) -> Option<Typed> {
    let ty = SourceType::Data(dtype);
    let expr = match value {
        Value::Bool(value) if dtype.is_float() => {
            Expr::float(ty.compute(), f64::from(u8::from(*value)))
        }
        Value::Bool(value) => Expr::int(dtype, i128::from(*value)),
        _ if dtype.is_float() => {
            Expr::float(ty.compute(), value.as_real()?.to_float_or_infinity(dtype))
        }
        Value::Int(value) if dtype == DType::Bool => Expr::bool(!value.is_zero()),
        Value::Int(value) => {
            let value = value.to_i128()?;
            let range = DType::Int64.int_range().0..=DType::Uint64.int_range().1;
            Expr::int(dtype, range.contains(&value).then_some(value)?)
        }
        Value::Real(value) if dtype == DType::Bool => Expr::bool(!value.is_zero()),
        Value::Real(value) => Expr::int(dtype, constants::truncate(value.exact(), dtype)),
        _ => return None,
    };
    Some(Typed::new(ty, expr, 0))
}

/// Evaluates `typed as dtype`. A cast to a 16-bit float type rounds to it.
pub fn cast(typed: &Typed, dtype: DType) -> Typed {
    let ty = SourceType::Data(dtype);
    if dtype.is_half() && !is_rounded_to(&typed.expr, dtype) {
        let (exact, size) = match dtype {
            DType::BFloat16 if typed.expr.ty.dtype.bits() == 64 && typed.ty.is_int() => {
                (before_bfloat16(&typed.expr), typed.size.saturating_mul(5) + 9)
            }
            DType::BFloat16 => (before_bfloat16(&typed.expr), typed.size + 1),
            _ => (typed.expr.clone(), typed.size),
        };
        let rounded = Expr::cast(dtype, exact);
        return Typed::new(ty, Expr::cast(DType::Float32, rounded), size + 1);
    }
    if typed.expr.ty.dtype == ty.compute() {
        return Typed { ty, choice: None, ..typed.clone() };
    }
    Typed::new(ty, Expr::cast(ty.compute(), typed.expr.clone()), typed.size)
}

/// Finds, in an expression of constants and functions of constants, the first argument of each
/// function whose arguments are plain constants. Returns whether the expression is of this kind.
pub(super) fn find_constants<'e>(expr: &'e ast::Expr, found: &mut Vec<&'e ast::Expr>) -> bool {
    use ast::ExprKind::*;
    match &*expr.kind {
        Int(_) | Real(_) => true,
        Unary(_, a) => find_constants(a, found),
        Binary(_, a, b, _) => find_constants(a, found) && find_constants(b, found),
        Call(_, args) => {
            let before = found.len();
            let constant = args.iter().all(|arg| find_constants(&arg.value, found));
            if constant && found.len() == before {
                found.extend(args.first().map(|arg| &arg.value));
            }
            constant
        }
        _ => false,
    }
}

/// Returns an integer as a number that a cast to `bfloat16` rounds once. (The loop IR converts
/// integers through float32, which would round those of more than 24 bits before.)
fn before_bfloat16(x: &Expr) -> Expr {
    let dtype = x.ty.dtype;
    match dtype {
        DType::Int32 | DType::Uint32 => Expr::cast(DType::Float64, x.clone()),
        DType::Int64 | DType::Uint64 | DType::Index => {
            // Float64 has 53 bits. Of more, the last 11 become one bit that is set if one of them
            // was: the number stays on its side of every tie.
            const EXACT: i128 = 1 << 53;
            let above = Expr::lt(Expr::int(dtype, EXACT), x.clone());
            let large = match dtype.is_signed() {
                true => Expr::or(Expr::lt(x.clone(), Expr::int(dtype, -EXACT)), above),
                false => above,
            };
            let bits = match dtype {
                DType::Index => Expr::cast(DType::Int64, x.clone()),
                _ => x.clone(),
            };
            let int = |value: i128| Expr::int(bits.ty.dtype, value);
            let last = Expr::binary(BinOp::BitAnd, bits.clone(), int(0x7ff));
            let odd = Expr::select(Expr::eq(last, int(0)), int(0), int(0x800));
            let first = Expr::binary(BinOp::BitAnd, bits.clone(), int(!0x7ff));
            let rounded = Expr::binary(BinOp::BitOr, first, odd);
            Expr::cast(DType::Float64, Expr::select(large, rounded, bits))
        }
        _ => x.clone(),
    }
}

/// Whether a `Float32` expression is already a value of the 16-bit float type `dtype`.
fn is_rounded_to(expr: &Expr, dtype: DType) -> bool {
    fn visit(expr: &Expr, dtype: DType, depth: u32) -> bool {
        let both = |a, b| depth > 0 && visit(a, dtype, depth - 1) && visit(b, dtype, depth - 1);
        match &expr.kind {
            ExprKind::Const(Const::Float(value)) => {
                dtype.round_float(*value).to_bits() == value.to_bits()
            }
            ExprKind::Cast(inner) => inner.ty.dtype == dtype,
            ExprKind::Unary(UnOp::Neg | UnOp::Abs, a) => depth > 0 && visit(a, dtype, depth - 1),
            ExprKind::Binary(BinOp::Min | BinOp::Max, a, b) => both(a, b),
            ExprKind::Select(_, a, b) | ExprKind::IfThenElse(_, a, b) => both(a, b),
            _ => false,
        }
    }
    expr.ty.dtype == DType::Float32 && visit(expr, dtype, 8)
}

/// Converts an integer to an index. A round trip of an index through `int64` is removed.
pub(super) fn cast_to_index(typed: &Typed) -> Typed {
    let expr = match &typed.expr.kind {
        ExprKind::Cast(inner)
            if typed.expr.ty.dtype == DType::Int64 && inner.ty.dtype == DType::Index =>
        {
            inner.clone()
        }
        ExprKind::Const(_) => match typed.expr.as_int() {
            Some(value) => Expr::int(DType::Index, value),
            None => Expr::cast(DType::Index, typed.expr.clone()),
        },
        _ => Expr::cast(DType::Index, typed.expr.clone()),
    };
    Typed::new(SourceType::Index, expr, typed.size)
}

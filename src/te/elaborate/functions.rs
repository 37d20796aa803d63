//! The built-in functions: the types that they take and their loop IR.

use super::Elaborator;
use super::casts::Operand;
use super::expressions::{Env, count};
use super::reals::Real;
use super::values::{SourceType, Typed, Value};
use crate::diag::{Diag, Span};
use crate::ir::{BinOp, DType, Expr, ExprKind, Intrinsic, UnOp};
use crate::lang::ast::{self, BinaryOp};
use num_traits::ToPrimitive;

/// A built-in function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Builtin {
    /// `min(a, b)`.
    Min,
    /// `max(a, b)`.
    Max,
    /// `clamp(x, l, h)`.
    Clamp,
    /// `select(c, a, b)`.
    Select,
    /// `any(c, …)`.
    Any,
    /// `all(c, …)`.
    All,
    /// A function of one operand, with the types that it takes.
    Unary(UnOp, OperandTypes),
    /// A function of floats, with its number of operands.
    Math(Intrinsic, usize),
    /// `min_value(T)`.
    MinValue,
    /// `max_value(T)`.
    MaxValue,
    /// `inf(T)`.
    Inf,
}

/// The types that a function of one operand takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandTypes {
    /// Integers and floats.
    Numbers,
    /// Integers.
    Integers,
    /// Floats.
    Floats,
    /// `float32` only.
    Singles,
}

const BUILTINS: [(&str, Builtin); 33] = [
    ("min", Builtin::Min),
    ("max", Builtin::Max),
    ("clamp", Builtin::Clamp),
    ("select", Builtin::Select),
    ("any", Builtin::Any),
    ("all", Builtin::All),
    ("abs", Builtin::Unary(UnOp::Abs, OperandTypes::Numbers)),
    ("floor", Builtin::Unary(UnOp::Floor, OperandTypes::Floats)),
    ("ceil", Builtin::Unary(UnOp::Ceil, OperandTypes::Floats)),
    ("round", Builtin::Unary(UnOp::Round, OperandTypes::Floats)),
    ("trunc", Builtin::Unary(UnOp::Trunc, OperandTypes::Floats)),
    ("sqrt", Builtin::Unary(UnOp::Sqrt, OperandTypes::Floats)),
    ("popcount", Builtin::Unary(UnOp::Popcount, OperandTypes::Integers)),
    ("is_nan", Builtin::Unary(UnOp::IsNan, OperandTypes::Floats)),
    ("rsqrt", Builtin::Math(Intrinsic::Rsqrt, 1)),
    ("exp", Builtin::Math(Intrinsic::Exp, 1)),
    ("exp2", Builtin::Math(Intrinsic::Exp2, 1)),
    ("expm1", Builtin::Math(Intrinsic::Expm1, 1)),
    ("log", Builtin::Math(Intrinsic::Log, 1)),
    ("log2", Builtin::Math(Intrinsic::Log2, 1)),
    ("tanh", Builtin::Math(Intrinsic::Tanh, 1)),
    ("sigmoid", Builtin::Math(Intrinsic::Sigmoid, 1)),
    ("erf", Builtin::Math(Intrinsic::Erf, 1)),
    ("sin", Builtin::Math(Intrinsic::Sin, 1)),
    ("cos", Builtin::Math(Intrinsic::Cos, 1)),
    ("tan", Builtin::Math(Intrinsic::Tan, 1)),
    ("atan", Builtin::Math(Intrinsic::Atan, 1)),
    ("pow", Builtin::Math(Intrinsic::Pow, 2)),
    ("fma", Builtin::Math(Intrinsic::Fma, 3)),
    ("tf32", Builtin::Math(Intrinsic::Tf32, 1)),
    ("min_value", Builtin::MinValue),
    ("max_value", Builtin::MaxValue),
    ("inf", Builtin::Inf),
];

impl Builtin {
    /// Returns the function of this name.
    pub fn from_name(name: &str) -> Option<Builtin> {
        BUILTINS.iter().find(|(known, _)| *known == name).map(|(_, builtin)| *builtin)
    }

    /// Returns the names of all functions.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTINS.iter().map(|(name, _)| *name)
    }

    /// Returns the number of arguments; `None` for any number from 1.
    fn arity(self) -> Option<usize> {
        match self {
            Builtin::Min | Builtin::Max => Some(2),
            Builtin::Clamp | Builtin::Select => Some(3),
            Builtin::Any | Builtin::All => None,
            Builtin::Math(_, n) => Some(n),
            Builtin::Unary(..) | Builtin::MinValue | Builtin::MaxValue | Builtin::Inf => Some(1),
        }
    }
}

impl<'a> Elaborator<'a> {
    /// Evaluates a call of a built-in function.
    pub fn call_builtin(
        &mut self,
        builtin: Builtin,
        name: &'a ast::Name,
        args: &'a [ast::Arg],
        expr: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Value {
        if let Some(keyword) = args.iter().find_map(|arg| arg.name.as_ref()) {
            let message = format!("`{}` has no argument `{}`", name.text, keyword.text);
            self.error(Diag::new("E0216", keyword.span, message));
            return Value::Poison;
        }
        let values = match builtin {
            Builtin::MinValue | Builtin::MaxValue | Builtin::Inf => Some(Vec::new()),
            _ => self.arguments(args, env),
        };
        let Some(values) = values else { return Value::Poison };
        let expands = args.iter().any(|arg| matches!(*arg.value.kind, ast::ExprKind::Expand(_)));
        let folds = expands && matches!(builtin, Builtin::Min | Builtin::Max);
        let given = if values.is_empty() && !expands { args.len() } else { values.len() };
        if !folds && !self.check_arguments(builtin, name, given, expands) {
            return Value::Poison;
        }
        if let Builtin::MinValue | Builtin::MaxValue | Builtin::Inf = builtin {
            return self.limit(builtin, name, &args[0].value, env);
        }
        let operands: Vec<Operand<'_, 'a>> =
            values.iter().map(|(value, expr)| (value, *expr)).collect();
        if folds {
            return self.fold(&operands, None, expr.span, |this, a, b| {
                this.apply(builtin, name, &[a, b], expr.span)
            });
        }
        if let Builtin::Select = builtin {
            let Some(condition) = self.condition(operands[0]) else { return Value::Poison };
            let (then, otherwise) = (operands[1], operands[2]);
            return self.choose(operands[0].0, condition, then, otherwise, expr.span, Expr::select);
        }
        if let Builtin::Any | Builtin::All = builtin {
            return self.conditions(builtin, &operands, expr.span);
        }
        self.apply(builtin, name, &operands, expr.span)
    }

    /// Evaluates the arguments of a function, some of them packs that are expanded.
    fn arguments(
        &mut self,
        args: &'a [ast::Arg],
        env: Env<'_, 'a>,
    ) -> Option<Vec<(Value, &'a ast::Expr)>> {
        let values = self.expanded(args.iter().map(|arg| &arg.value), env)?;
        Some(values.into_iter().map(|(value, expr)| (self.number(value, expr), expr)).collect())
    }

    /// Evaluates `sum(S...)` and `prod(S...)`.
    pub fn fold_pack(
        &mut self,
        name: &'a ast::Name,
        args: &'a [ast::Arg],
        expr: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Value {
        if let Some(keyword) = args.iter().find_map(|arg| arg.name.as_ref()) {
            let message = format!("`{}` of a pack has no argument `{}`", name.text, keyword.text);
            self.error(Diag::new("E0216", keyword.span, message));
            return Value::Poison;
        }
        let Some(values) = self.arguments(args, env) else { return Value::Poison };
        let operands: Vec<Operand<'_, 'a>> =
            values.iter().map(|(value, expr)| (value, *expr)).collect();
        let (op, start) = match &name.text[..] {
            "sum" => (BinaryOp::Add, 0),
            _ => (BinaryOp::Mul, 1),
        };
        self.fold(&operands, Some(start), expr.span, |this, a, b| this.binary(op, a, b, expr.span))
    }

    /// Applies a function to its operands.
    fn apply(
        &mut self,
        builtin: Builtin,
        name: &'a ast::Name,
        operands: &[Operand<'_, 'a>],
        span: Span,
    ) -> Value {
        let values: Vec<Value> = operands.iter().map(|(value, _)| (*value).clone()).collect();
        if let Some(folded) = fold(builtin, &values) {
            return folded;
        }
        let what = format!("`{}`", name.text);
        if self.refuses_quantized(operands, &what, span) {
            return Value::Poison;
        }
        let Some((ty, exprs, size)) = self.unify(operands, &what, span) else {
            return Value::Poison;
        };
        if !self.check_type(builtin, name, ty, operands) {
            return Value::Poison;
        }
        let mut exprs = exprs.into_iter();
        let mut next = || exprs.next().expect("as many operands as the arity");
        let result = match builtin {
            Builtin::Min => Expr::binary(BinOp::Min, next(), next()),
            Builtin::Max => Expr::binary(BinOp::Max, next(), next()),
            Builtin::Clamp => {
                let at_least = Expr::binary(BinOp::Max, next(), next());
                Expr::binary(BinOp::Min, at_least, next())
            }
            Builtin::Unary(op, _) => Expr::unary(op, next()),
            Builtin::Math(function, _) => Expr::call(function, exprs.collect()),
            _ => crate::bug!("{builtin:?} was handled before"),
        };
        let ty = match builtin {
            Builtin::Unary(UnOp::IsNan, _) => SourceType::Data(DType::Bool),
            _ => ty,
        };
        self.limit_size(Typed::new(ty, result, size.saturating_add(1)), span)
    }

    fn check_arguments(
        &mut self,
        builtin: Builtin,
        name: &ast::Name,
        given: usize,
        expands: bool,
    ) -> bool {
        let wanted = builtin.arity();
        if wanted == Some(given) || (wanted.is_none() && (given > 0 || expands)) {
            return true;
        }
        let takes = wanted.map_or("at least 1 argument".to_string(), |n| count(n, "argument"));
        let message = format!("`{}` takes {takes}, not {given}", name.text);
        self.error(Diag::new("E0216", name.span, message));
        false
    }

    fn check_type(
        &mut self,
        builtin: Builtin,
        name: &ast::Name,
        ty: SourceType,
        operands: &[Operand<'_, 'a>],
    ) -> bool {
        let takes = match builtin {
            Builtin::Unary(_, takes) => takes,
            Builtin::Math(Intrinsic::Tf32, _) => OperandTypes::Singles,
            Builtin::Math(..) => OperandTypes::Floats,
            _ => OperandTypes::Numbers,
        };
        let (fits, wanted) = match takes {
            OperandTypes::Numbers => (ty.is_int() || ty.is_float(), "numbers"),
            OperandTypes::Integers => (ty.is_int(), "integers"),
            OperandTypes::Floats => (ty.is_float(), "floats"),
            OperandTypes::Singles => (ty == SourceType::Data(DType::Float32), "float32"),
        };
        if fits {
            return true;
        }
        let message = format!("`{}` takes {wanted}, not `{ty}`", name.text);
        let mut diag = Diag::new("E0209", name.span, message);
        if takes == OperandTypes::Floats && ty.is_int() {
            let cast = self.with_cast(operands[0].1, DType::Float32);
            diag = diag.help(format!("write `{}({cast})`", name.text));
        }
        self.error(diag);
        false
    }

    /// Evaluates `any` and `all`: `or` and `and` of conditions.
    fn conditions(&mut self, builtin: Builtin, operands: &[Operand<'_, 'a>], span: Span) -> Value {
        let (op, decides) = match builtin {
            Builtin::Any => (BinOp::Or, true),
            _ => (BinOp::And, false),
        };
        let mut all: Option<Typed> = None;
        let (mut poison, mut decided) = (false, false);
        for operand in operands {
            let Some(condition) = self.condition(*operand) else {
                poison = true;
                continue;
            };
            match operand.0 {
                // Conditions after a constant that decides are not evaluated.
                Value::Bool(value) if *value == decides && all.is_none() => decided = true,
                Value::Bool(value) if *value != decides => {}
                _ if decided => {}
                _ => {
                    all = Some(match all {
                        None => condition,
                        Some(left) => {
                            let size = left.size.saturating_add(condition.size);
                            Typed::new(left.ty, join(op, left.expr, condition.expr), size)
                        }
                    });
                }
            }
        }
        match all {
            _ if poison => Value::Poison,
            _ if decided => Value::Bool(decides),
            None => Value::Bool(!decides),
            Some(typed) => self.limit_size(typed, span),
        }
    }

    /// Evaluates `min_value(T)`, `max_value(T)`, `inf(T)`.
    fn limit(
        &mut self,
        builtin: Builtin,
        name: &ast::Name,
        arg: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Value {
        let dtype = match self.eval(arg, env) {
            Value::DType(dtype) => dtype,
            Value::Poison => return Value::Poison,
            other => {
                let message = format!("`{}` takes a type, not {}", name.text, other.describe());
                self.error(Diag::new("E0209", arg.span, message));
                return Value::Poison;
            }
        };
        match limit_of(builtin, dtype) {
            Some(typed) => Value::Scalar(typed),
            None => {
                let message = format!("`{}` is not defined for `{dtype}`", name.text);
                self.error(Diag::new("E0209", arg.span, message));
                Value::Poison
            }
        }
    }
}

/// Returns `a op b` with the conditions of `b` in one row with those of `a`: `any(a, b or c)` is
/// `(a or b) or c`.
fn join(op: BinOp, a: Expr, b: Expr) -> Expr {
    match &b.kind {
        ExprKind::Binary(inner, first, second) if *inner == op => {
            join(op, join(op, a, first.clone()), second.clone())
        }
        _ => Expr::binary(op, a, b),
    }
}

/// Returns the smallest, the largest finite or the infinite value of a type, if it has one.
pub fn limit_of(builtin: Builtin, dtype: DType) -> Option<Typed> {
    let compute = dtype.compute_type();
    let largest = match dtype {
        DType::Float64 => f64::MAX,
        DType::Float32 => f64::from(f32::MAX),
        DType::Float16 => half::f16::MAX.to_f64(),
        DType::BFloat16 => half::bf16::MAX.to_f64(),
        DType::Float8E4M3 => 448.0,
        DType::Float8E5M2 => 57344.0,
        _ => 0.0,
    };
    let expr = match builtin {
        _ if dtype == DType::Bool => return None,
        Builtin::Inf if dtype == DType::Float8E4M3 => return None,
        Builtin::Inf if dtype.is_float() => Expr::float(compute, f64::INFINITY),
        Builtin::MaxValue if dtype.is_float() => Expr::float(compute, largest),
        Builtin::MinValue if dtype.is_float() => Expr::float(compute, -largest),
        Builtin::MaxValue => Expr::int(dtype, dtype.int_range().1),
        Builtin::MinValue => Expr::int(dtype, dtype.int_range().0),
        _ => return None,
    };
    Some(Typed::new(SourceType::Data(dtype), expr, 0))
}

/// Returns the exact value of a function of constants, if it has one.
fn fold(builtin: Builtin, values: &[Value]) -> Option<Value> {
    let exact: Vec<_> = values.iter().map(Value::as_real).collect::<Option<_>>()?;
    let real = values.iter().any(|value| matches!(value, Value::Real(_)));
    let number = |value: Real| match real {
        true => Value::real(value),
        false => Value::Int(value.exact().to_integer()),
    };
    let mut exact = exact.into_iter();
    let x = exact.next()?;
    Some(match (builtin, exact.next(), exact.next()) {
        (Builtin::Min, Some(y), None) => number(if x < y { x } else { y }),
        (Builtin::Max, Some(y), None) => number(if x > y { x } else { y }),
        (Builtin::Clamp, Some(l), Some(h)) => {
            let at_least = if x > l { x } else { l };
            number(if at_least < h { at_least } else { h })
        }
        (Builtin::Unary(UnOp::Abs, _), None, None) => number(x.abs()),
        (Builtin::Unary(UnOp::Floor, _), None, None) if real => Value::real(x.floor()),
        (Builtin::Unary(UnOp::Ceil, _), None, None) if real => Value::real(x.ceil()),
        (Builtin::Unary(UnOp::Trunc, _), None, None) if real => Value::real(x.trunc()),
        (Builtin::Unary(UnOp::Round, _), None, None) if real => Value::real(x.round()),
        (Builtin::Unary(UnOp::IsNan, _), None, None) if real => Value::Bool(false),
        (Builtin::Unary(UnOp::Popcount, _), None, None) if !real => {
            Value::int(x.exact().to_integer().to_i64()?.count_ones())
        }
        _ => return None,
    })
}

//! What expressions stand for during elaboration: exact constants, typed loop IR expressions,
//! tensors, types.

use super::reals::Real;
use crate::diag::Span;
use crate::ir::{Buffer, DType, Expr};
use num_bigint::BigInt;
use std::fmt;
use std::rc::Rc;

/// The type of a value in the source. A value of a 16-bit float type is computed in `Float32`,
/// so its expression has another type than its source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SourceType {
    /// Axes, run-time integers and expressions of them.
    Index,
    /// An element type.
    Data(DType),
}

impl SourceType {
    /// The type of the loop IR expression.
    pub fn compute(self) -> DType {
        match self {
            SourceType::Index => DType::Index,
            SourceType::Data(dtype) => dtype.compute_type(),
        }
    }

    /// True for the integer types and `index`.
    pub fn is_int(self) -> bool {
        self.compute().is_int()
    }

    /// True for the floating-point types.
    pub fn is_float(self) -> bool {
        self.compute().is_float()
    }
}

impl fmt::Display for SourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceType::Index => f.write_str("index"),
            SourceType::Data(dtype) => dtype.fmt(f),
        }
    }
}

/// A value known only at run time.
#[derive(Clone, Debug)]
pub struct Typed {
    /// Type in the source.
    pub ty: SourceType,
    /// Has type `ty.compute()`.
    pub expr: Expr,
    /// Nodes of `expr` written out as a tree, saturating.
    pub size: u64,
    /// Set where the value is one of two constants, which take another type as one alone does.
    pub choice: Option<Rc<Choice>>,
}

/// `if c then 255 else 0`, with what it was made of.
#[derive(Debug)]
pub struct Choice {
    /// The condition.
    pub condition: Expr,
    /// A constant, or a choice again.
    pub then: Value,
    /// The same.
    pub otherwise: Value,
    /// What makes an expression of the three.
    pub make: fn(Expr, Expr, Expr) -> Expr,
}

impl Choice {
    /// None if not all values are numbers without a type of their own.
    pub fn new(
        condition: &Expr,
        then: &Value,
        otherwise: &Value,
        make: fn(Expr, Expr, Expr) -> Expr,
    ) -> Option<Choice> {
        let is_free = |value: &Value| match value {
            Value::Int(_) | Value::Real(_) => true,
            Value::Scalar(typed) => typed.choice.is_some(),
            _ => false,
        };
        let (condition, then, otherwise) = (condition.clone(), then.clone(), otherwise.clone());
        (is_free(&then) && is_free(&otherwise)).then_some(Choice {
            condition,
            then,
            otherwise,
            make,
        })
    }
}

impl Typed {
    /// A value with as many nodes as its operands and one more.
    pub fn new(ty: SourceType, expr: Expr, operands: u64) -> Typed {
        Typed { ty, expr, size: operands.saturating_add(1), choice: None }
    }

    /// Whether it is a choice between constants that are numbers of type `ty` too.
    pub fn adapts_to(&self, ty: SourceType) -> bool {
        self.choice.is_some() && (ty.is_float() || (ty.is_int() && self.ty.is_int()))
    }
}

/// A tensor that expressions may read.
#[derive(Debug)]
pub struct Tensor {
    /// Name for messages.
    pub name: String,
    /// Number of dimensions.
    pub rank: usize,
    /// None if the declaration was wrong; reading it gives [`Value::Poison`].
    pub buffer: Option<Buffer>,
    /// The declaration, where neither that nor the value gave the elements their type.
    pub untyped: Option<Span>,
}

/// A declared reduction axis; each stage that reduces over it makes its own variable.
#[derive(Debug)]
pub struct ReduceAxis {
    /// First value.
    pub min: Expr,
    /// Number of values.
    pub extent: Expr,
}

/// What a name or an expression stands for.
#[derive(Clone, Debug)]
pub enum Value {
    /// Something wrong that has been reported already.
    Poison,
    /// An exact integer constant.
    Int(BigInt),
    /// An exact real constant.
    Real(Rc<Real>),
    /// `true`, `false`.
    Bool(bool),
    /// An element type.
    DType(DType),
    /// A value known only at run time, or a constant of a fixed type.
    Scalar(Typed),
    /// A tensor as a whole.
    Tensor(Rc<Tensor>),
    /// A reduction axis outside of a reduction.
    ReduceAxis(Rc<ReduceAxis>),
}

impl Value {
    /// An integer constant.
    pub fn int(value: impl Into<BigInt>) -> Value {
        Value::Int(value.into())
    }

    /// A real constant.
    pub fn real(value: Real) -> Value {
        Value::Real(Rc::new(value))
    }

    /// An expression of type `index`, a constant where it is one.
    pub fn index(expr: &Expr) -> Value {
        match expr.as_int() {
            Some(value) => Value::int(value),
            None => Value::Scalar(Typed::new(SourceType::Index, expr.clone(), 0)),
        }
    }

    /// The exact value of a number.
    pub fn as_real(&self) -> Option<Real> {
        match self {
            Value::Int(value) => Some(Real::from_integer(value.clone())),
            Value::Real(value) => Some((**value).clone()),
            _ => None,
        }
    }

    /// What it is, for messages: "the integer constant `3`", "`float32`", "tensor `A`".
    pub fn describe(&self) -> String {
        match self {
            Value::Poison => "an error".to_string(),
            Value::Int(value) => format!("the integer constant `{value}`"),
            Value::Real(value) => format!("the real constant `{value}`"),
            Value::Bool(value) => format!("the constant `{value}`"),
            Value::DType(dtype) => format!("the type `{dtype}`"),
            Value::Scalar(typed) => format!("a value of type `{}`", typed.ty),
            Value::Tensor(tensor) => format!("the tensor `{}`", tensor.name),
            Value::ReduceAxis(_) => "a reduction axis".to_string(),
        }
    }
}

/// A name of a kernel and what it stands for.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it stands for.
    pub value: Value,
    /// "parameter", "constant", "tensor" …, for messages.
    pub what: &'static str,
    /// Declaration.
    pub span: Span,
}

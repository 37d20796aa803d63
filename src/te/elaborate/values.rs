//! The values of elaboration: exact constants, typed loop IR expressions, tensors, types.

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
    /// Returns the type of the loop IR expression.
    pub fn compute(self) -> DType {
        match self {
            SourceType::Index => DType::Index,
            SourceType::Data(dtype) => dtype.compute_type(),
        }
    }

    /// Whether it is an integer type or `index`.
    pub fn is_int(self) -> bool {
        self.compute().is_int()
    }

    /// Whether it is a floating-point type.
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
    /// The type in the source.
    pub ty: SourceType,
    /// The expression, of type `ty.compute()`.
    pub expr: Expr,
    /// The nodes of `expr` as a tree, saturating.
    pub size: u64,
    /// The choice, if the value is one of two constants: they adapt to another type as constants
    /// do.
    pub choice: Option<Rc<Choice>>,
}

/// The parts of a choice between constants, such as `if c then 255 else 0`.
#[derive(Debug)]
pub struct Choice {
    /// The condition.
    pub condition: Expr,
    /// A constant, or a choice again.
    pub then: Value,
    /// The same.
    pub otherwise: Value,
    /// Makes the expression: `if_then_else` or `select`.
    pub make: fn(Expr, Expr, Expr) -> Expr,
}

impl Choice {
    /// Returns a choice; `None` if a value is not an untyped number.
    pub fn new(
        condition: &Expr,
        then: &Value,
        otherwise: &Value,
        make: fn(Expr, Expr, Expr) -> Expr,
    ) -> Option<Choice> {
        let is_adaptable = |value: &Value| match value {
            Value::Int(_) | Value::Real(_) => true,
            Value::Scalar(typed) => typed.choice.is_some(),
            _ => false,
        };
        let (condition, then, otherwise) = (condition.clone(), then.clone(), otherwise.clone());
        (is_adaptable(&then) && is_adaptable(&otherwise)).then_some(Choice {
            condition,
            then,
            otherwise,
            make,
        })
    }
}

impl Typed {
    /// Returns a value whose operands have `operands` nodes.
    pub fn new(ty: SourceType, expr: Expr, operands: u64) -> Typed {
        Typed { ty, expr, size: operands.saturating_add(1), choice: None }
    }

    /// Whether it is a choice between constants that can have type `ty`.
    pub fn adapts_to(&self, ty: SourceType) -> bool {
        self.choice.is_some() && (ty.is_float() || (ty.is_int() && self.ty.is_int()))
    }
}

/// A tensor that expressions may read.
#[derive(Debug)]
pub struct Tensor {
    /// The name, for messages.
    pub name: String,
    /// The number of dimensions.
    pub rank: usize,
    /// The buffer; `None` if the declaration was wrong, so that reads give [`Value::Poison`].
    pub buffer: Option<Buffer>,
    /// The declaration, if neither it nor the value determined the element type.
    pub untyped: Option<Span>,
    /// Its part in a recurrence.
    pub member: Option<Member>,
}

/// What makes a tensor part of a recurrence.
#[derive(Debug)]
pub struct Member {
    /// The recurrence.
    pub recurrence: usize,
    /// The place of the stage among those of the scan.
    pub place: usize,
    /// The buffer that stands for the results of earlier steps.
    pub previous: Option<Buffer>,
    /// Whether the declaration does not determine the element type, and the value is not known yet.
    pub is_untyped: bool,
}

/// A declared reduction axis. Each stage that reduces over it has its own variable.
#[derive(Debug)]
pub struct ReduceAxis {
    /// First value.
    pub min: Expr,
    /// Number of values.
    pub extent: Expr,
}

/// The value of a name or an expression.
#[derive(Clone, Debug)]
pub enum Value {
    /// A wrong value, which was reported.
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
    /// Extents, axes or constants that are expanded together.
    Pack(Rc<Pack>),
}

/// A list of extents, axes or constants.
#[derive(Debug)]
pub struct Pack {
    /// Integer constants, values of type `index`, reduction axes or poison.
    pub elements: Vec<Value>,
}

impl Pack {
    /// Describes it for messages.
    pub fn describe(&self) -> String {
        match self.elements.len() {
            0 => "an empty pack".to_string(),
            1 => "a pack of 1 element".to_string(),
            n => format!("a pack of {n} elements"),
        }
    }

    /// Returns the elements as a list: `[3, n]`.
    pub fn text(&self) -> String {
        let element = |value: &Value| match value {
            Value::Int(value) => value.to_string(),
            Value::Scalar(typed) => typed.expr.as_var().map_or("…", |var| var.name()).to_string(),
            _ => "…".to_string(),
        };
        format!("[{}]", self.elements.iter().map(element).collect::<Vec<_>>().join(", "))
    }
}

impl Value {
    /// Returns an integer constant.
    pub fn int(value: impl Into<BigInt>) -> Value {
        Value::Int(value.into())
    }

    /// Returns a real constant.
    pub fn real(value: Real) -> Value {
        Value::Real(Rc::new(value))
    }

    /// Returns a pack.
    pub fn pack(elements: Vec<Value>) -> Value {
        Value::Pack(Rc::new(Pack { elements }))
    }

    /// Returns the value of an expression of type `index`.
    pub fn index(expr: &Expr) -> Value {
        match expr.as_int() {
            Some(value) => Value::int(value),
            None => Value::Scalar(Typed::new(SourceType::Index, expr.clone(), 0)),
        }
    }

    /// Returns the exact value of a number.
    pub fn as_real(&self) -> Option<Real> {
        match self {
            Value::Int(value) => Some(Real::from_integer(value.clone())),
            Value::Real(value) => Some((**value).clone()),
            _ => None,
        }
    }

    /// Describes it for messages: "the integer constant `3`", "the tensor `A`".
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
            Value::Pack(pack) => pack.describe(),
        }
    }
}

/// The meaning of a name of a kernel.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// "parameter", "constant", "tensor" …, for messages.
    pub what: &'static str,
    /// The declaration.
    pub span: Span,
}

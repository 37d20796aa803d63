//! A builder for the expression of one function call. Values are combined with Rust's operators,
//! and a value with several uses becomes a `let`.
//!
//! Every value has the lanes of the call, so the same text gives scalar and vector code. A constant
//! takes the type of the other operand.

use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Intrinsic, Type, UnOp, Var};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Sub};
use std::rc::Rc;

/// The tables of one kernel, by name, which all calls share.
pub type Tables = Rc<RefCell<FxHashMap<&'static str, Buffer>>>;

/// The operations of one call, in the order of their construction.
pub struct Builder {
    /// The name of the `let` variables.
    name: &'static str,
    lanes: u32,
    /// Whether the target multiplies by a power of two in one instruction.
    has_scalef: bool,
    tables: Tables,
    nodes: RefCell<Vec<Op>>,
    /// The node of each operation, so that equal operations share one.
    ids: RefCell<FxHashMap<Key, usize>>,
}

/// The identity of an operation.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    /// An argument of the call, by [`Expr::id`].
    Leaf(usize),
    /// A constant by its bits.
    Float(DType, u64),
    Int(DType, i128),
    Unary(UnOp, usize),
    Binary(BinOp, usize, usize),
    Select(usize, usize, usize),
    Fma(usize, usize, usize),
    Scalef(usize, usize),
    Cast(DType, usize),
    Bitcast(DType, usize),
    Load(Buffer, usize),
    Call(Intrinsic, usize),
}

/// A value of a [`Builder`].
#[derive(Clone, Copy)]
pub struct Value<'b> {
    builder: &'b Builder,
    id: usize,
    dtype: DType,
}

/// One operation; operands are indices of earlier ones.
enum Op {
    Leaf(Expr),
    Unary(UnOp, usize),
    Binary(BinOp, usize, usize),
    Select(usize, usize, usize),
    Fma(usize, usize, usize),
    Scalef(usize, usize),
    Cast(DType, usize),
    Bitcast(DType, usize),
    Load(Buffer, usize),
    Call(Intrinsic, usize),
}

impl Op {
    fn operands(&self) -> Vec<usize> {
        match *self {
            Op::Leaf(_) => vec![],
            Op::Unary(_, a)
            | Op::Cast(_, a)
            | Op::Bitcast(_, a)
            | Op::Load(_, a)
            | Op::Call(_, a) => vec![a],
            Op::Binary(_, a, b) | Op::Scalef(a, b) => vec![a, b],
            Op::Select(a, b, c) | Op::Fma(a, b, c) => vec![a, b, c],
        }
    }

    fn key(&self, dtype: DType) -> Key {
        match self {
            Op::Leaf(expr) => {
                let scalar = match &expr.kind {
                    ExprKind::Broadcast(scalar) => scalar,
                    _ => expr,
                };
                match (scalar.as_float(), scalar.as_int()) {
                    (Some(value), _) => Key::Float(dtype, value.to_bits()),
                    (_, Some(value)) => Key::Int(dtype, value),
                    _ => Key::Leaf(expr.id()),
                }
            }
            Op::Unary(op, a) => Key::Unary(*op, *a),
            Op::Binary(op, a, b) => Key::Binary(*op, *a, *b),
            Op::Select(c, t, f) => Key::Select(*c, *t, *f),
            Op::Fma(a, b, c) => Key::Fma(*a, *b, *c),
            Op::Scalef(a, n) => Key::Scalef(*a, *n),
            Op::Cast(dtype, a) => Key::Cast(*dtype, *a),
            Op::Bitcast(dtype, a) => Key::Bitcast(*dtype, *a),
            Op::Load(buffer, a) => Key::Load(buffer.clone(), *a),
            Op::Call(function, a) => Key::Call(*function, *a),
        }
    }

    fn expr(&self, operands: &[Expr]) -> Expr {
        let at = |i: usize| operands[i].clone();
        match self {
            Op::Leaf(expr) => expr.clone(),
            Op::Unary(op, a) => Expr::unary(*op, at(*a)),
            Op::Binary(op, a, b) => Expr::binary(*op, at(*a), at(*b)),
            Op::Select(c, t, f) => Expr::select(at(*c), at(*t), at(*f)),
            Op::Fma(a, b, c) => Expr::call(Intrinsic::Fma, vec![at(*a), at(*b), at(*c)]),
            Op::Scalef(a, n) => Expr::call(Intrinsic::Scalef, vec![at(*a), at(*n)]),
            Op::Cast(dtype, a) => Expr::cast(*dtype, at(*a)),
            Op::Bitcast(dtype, a) => Expr::bitcast(*dtype, at(*a)),
            Op::Load(buffer, a) => Expr::load(buffer, vec![at(*a)]),
            Op::Call(function, a) => Expr::call(*function, vec![at(*a)]),
        }
    }
}

/// An operand beside a value: another value or a constant.
pub trait Operand<'b> {
    /// Returns it as a value of the type of `like`.
    fn beside(self, like: Value<'b>) -> Value<'b>;
}

impl<'b> Operand<'b> for Value<'b> {
    fn beside(self, _: Value<'b>) -> Value<'b> {
        self
    }
}
impl<'b> Operand<'b> for f64 {
    fn beside(self, like: Value<'b>) -> Value<'b> {
        like.builder.constant(like.dtype, Expr::float(like.dtype, self))
    }
}
impl<'b> Operand<'b> for i64 {
    fn beside(self, like: Value<'b>) -> Value<'b> {
        like.builder.constant(like.dtype, Expr::int(like.dtype, self as i128))
    }
}

impl Builder {
    /// Creates a builder for one call on values of `lanes` lanes.
    pub fn new(name: &'static str, lanes: u32, has_scalef: bool, tables: Tables) -> Builder {
        Builder {
            name,
            lanes,
            has_scalef,
            tables,
            nodes: RefCell::default(),
            ids: RefCell::default(),
        }
    }

    /// Adds an argument of the call.
    pub fn argument(&self, expr: Expr) -> Value<'_> {
        let dtype = expr.ty.dtype;
        self.push(dtype, Op::Leaf(expr))
    }

    fn constant(&self, dtype: DType, expr: Expr) -> Value<'_> {
        let expr = match self.lanes {
            1 => expr,
            lanes => Expr::new(Type { dtype, lanes }, ExprKind::Broadcast(expr)),
        };
        self.push(dtype, Op::Leaf(expr))
    }

    /// Adds `op`, or returns the value of an earlier equal operation.
    fn push(&self, dtype: DType, op: Op) -> Value<'_> {
        let mut nodes = self.nodes.borrow_mut();
        let id = *self.ids.borrow_mut().entry(op.key(dtype)).or_insert_with(|| {
            nodes.push(op);
            nodes.len() - 1
        });
        Value { builder: self, id, dtype }
    }

    /// Returns the expression of `result`. Operations with one use are substituted, those with more
    /// are bound by `let`, and unused ones are dropped.
    pub fn finish(&self, result: Value<'_>) -> Expr {
        let nodes = self.nodes.borrow();
        let mut uses = vec![0u32; nodes.len()];
        uses[result.id] = 1;
        for (id, op) in nodes.iter().enumerate().rev() {
            if uses[id] > 0 {
                op.operands().into_iter().for_each(|operand| uses[operand] += 1);
            }
        }
        let mut exprs: Vec<Expr> = Vec::with_capacity(nodes.len());
        let mut bound = Vec::new();
        for (id, op) in nodes.iter().enumerate() {
            let expr = op.expr(&exprs);
            // Most machines have no registers for masks, and instruction selection shares equal
            // comparisons.
            let is_bool = expr.ty.dtype == DType::Bool;
            if uses[id] > 1 && !is_bool && !is_atom(&expr) {
                let var = Var::new(self.name, expr.ty);
                exprs.push(Expr::var(&var));
                bound.push((var, expr));
            } else {
                exprs.push(expr);
            }
        }
        let body = exprs[result.id].clone();
        bound.into_iter().rev().fold(body, |body, (var, value)| Expr::let_in(var, value, body))
    }
}

/// Whether an expression takes no instruction, so that it needs no variable.
fn is_atom(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Var(_) => true,
        ExprKind::Broadcast(inner) => is_atom(inner),
        _ => false,
    }
}

/// The layout of a floating-point type.
#[derive(Clone, Copy)]
pub struct Format {
    /// The number of explicit bits of the significand.
    pub mantissa: i64,
    /// The exponent bias.
    pub bias: i64,
    /// `1.5 * 2^mantissa`: adding it rounds to an integer, which then is in the low bits.
    pub magic: f64,
    /// The unsigned integer of the same size.
    pub bits: DType,
    /// The sign bit as an integer of that type.
    pub sign: i64,
}

impl<'b> Value<'b> {
    /// Returns the type.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// Whether the type is Float32.
    pub fn is_f32(self) -> bool {
        self.dtype == DType::Float32
    }

    /// Returns the layout of the floating-point type.
    pub fn format(self) -> Format {
        let (mantissa, bias, bits, sign) = match self.dtype {
            DType::Float32 => (23, 127, DType::Uint32, 1 << 31),
            DType::Float64 => (52, 1023, DType::Uint64, i64::MIN),
            other => crate::bug!("expand_math: a function of {other}"),
        };
        Format { mantissa, bias, magic: 1.5 * (1i64 << mantissa) as f64, bits, sign }
    }

    fn unary(self, op: UnOp) -> Value<'b> {
        self.builder.push(self.dtype, Op::Unary(op, self.id))
    }

    fn binary(self, op: BinOp, other: impl Operand<'b>) -> Value<'b> {
        let other = other.beside(self);
        let dtype = if op.gives_bool() { DType::Bool } else { self.dtype };
        self.builder.push(dtype, Op::Binary(op, self.id, other.id))
    }

    /// Returns a constant of the type of this value.
    pub fn constant(self, value: impl Operand<'b>) -> Value<'b> {
        value.beside(self)
    }

    /// Returns `self * factor + addend`, rounded once.
    pub fn fma(self, factor: impl Operand<'b>, addend: impl Operand<'b>) -> Value<'b> {
        let (factor, addend) = (factor.beside(self), addend.beside(self));
        self.builder.push(self.dtype, Op::Fma(self.id, factor.id, addend.id))
    }

    /// Whether the target has an instruction for [`Value::scalef`].
    pub fn has_scalef(self) -> bool {
        self.builder.has_scalef
    }

    /// Returns `self * 2^n` for an integral `n`, rounded once; `None` if the target has no
    /// instruction for it.
    pub fn scalef(self, n: Value<'b>) -> Option<Value<'b>> {
        let builder = self.builder;
        builder.has_scalef.then(|| builder.push(self.dtype, Op::Scalef(self.id, n.id)))
    }

    /// Returns `c[0] + self * (c[1] + self * …)` by Horner's rule.
    pub fn polynomial(self, coefficients: &[f64]) -> Value<'b> {
        let (last, rest) = coefficients.split_last().expect("a polynomial has coefficients");
        let start = self.constant(*last);
        rest.iter().rev().fold(start, |sum, c| sum.fma(self, *c))
    }

    /// Returns `if self then yes else no`; both are evaluated.
    pub fn select(self, yes: Value<'b>, no: impl Operand<'b>) -> Value<'b> {
        let no = no.beside(yes);
        self.builder.push(yes.dtype, Op::Select(self.id, yes.id, no.id))
    }

    /// Returns `self < other`, false for NaN; so are the other comparisons.
    pub fn lt(self, other: impl Operand<'b>) -> Value<'b> {
        self.binary(BinOp::Lt, other)
    }
    /// Returns `self != other`, true for NaN.
    pub fn ne(self, other: impl Operand<'b>) -> Value<'b> {
        self.binary(BinOp::Ne, other)
    }
    /// Returns `self > other`.
    pub fn gt(self, other: impl Operand<'b>) -> Value<'b> {
        self.binary(BinOp::Gt, other)
    }
    /// Returns `self == other`.
    pub fn eq(self, other: impl Operand<'b>) -> Value<'b> {
        self.binary(BinOp::Eq, other)
    }

    /// Returns `self`, but at most `limit`; NaN stays NaN.
    pub fn at_most(self, limit: f64) -> Value<'b> {
        limit.beside(self).binary(BinOp::Min, self)
    }
    /// Returns `self`, but at least `limit`; NaN stays NaN.
    pub fn at_least(self, limit: f64) -> Value<'b> {
        limit.beside(self).binary(BinOp::Max, self)
    }

    /// Returns the smaller integer.
    pub fn min(self, other: i64) -> Value<'b> {
        self.binary(BinOp::Min, other)
    }
    /// Returns the larger integer.
    pub fn max(self, other: i64) -> Value<'b> {
        self.binary(BinOp::Max, other)
    }
    /// Returns the absolute value.
    pub fn abs(self) -> Value<'b> {
        self.unary(UnOp::Abs)
    }
    /// Returns the correctly rounded square root.
    pub fn sqrt(self) -> Value<'b> {
        self.unary(UnOp::Sqrt)
    }
    /// Calls a function that is one instruction of the target.
    pub fn call(self, function: Intrinsic) -> Value<'b> {
        self.builder.push(self.dtype, Op::Call(function, self.id))
    }
    /// Returns the nearest integer, ties to even.
    pub fn round(self) -> Value<'b> {
        self.unary(UnOp::Round)
    }

    /// Returns the bits of a float as an unsigned integer.
    pub fn bits(self) -> Value<'b> {
        self.bitcast(self.format().bits)
    }
    /// Returns the same bits as a value of another type.
    pub fn bitcast(self, dtype: DType) -> Value<'b> {
        self.builder.push(dtype, Op::Bitcast(dtype, self.id))
    }
    /// Converts the value to another type.
    pub fn cast(self, dtype: DType) -> Value<'b> {
        self.builder.push(dtype, Op::Cast(dtype, self.id))
    }
    /// Returns `self << amount`.
    pub fn shl(self, amount: i64) -> Value<'b> {
        self.binary(BinOp::Shl, amount)
    }
    /// Returns `self >> amount`, arithmetic on signed types.
    pub fn shr(self, amount: i64) -> Value<'b> {
        self.binary(BinOp::Shr, amount)
    }
    /// Returns `table[self]`; the Float64 elements are computed on the first use of the table.
    pub fn load(self, table: &'static str, elements: impl FnOnce() -> Vec<f64>) -> Value<'b> {
        let mut tables = self.builder.tables.borrow_mut();
        let buffer = tables.entry(table).or_insert_with(|| {
            let bits = elements().into_iter().map(f64::to_bits).collect();
            Buffer::constant(table, DType::Float64, bits)
        });
        let index = self.cast(DType::Index);
        self.builder.push(buffer.dtype, Op::Load(buffer.clone(), index.id))
    }

    /// Returns `self`, which is not negative, with the sign of `other`.
    pub fn with_sign_of(self, other: Value<'b>) -> Value<'b> {
        let sign = other.bits() & other.format().sign;
        (self.bits() | sign).bitcast(self.dtype)
    }
}

impl<'b> Neg for Value<'b> {
    type Output = Value<'b>;
    fn neg(self) -> Value<'b> {
        self.unary(UnOp::Neg)
    }
}
impl<'b, T: Operand<'b>> Add<T> for Value<'b> {
    type Output = Value<'b>;
    fn add(self, other: T) -> Value<'b> {
        self.binary(BinOp::Add, other)
    }
}
impl<'b, T: Operand<'b>> Sub<T> for Value<'b> {
    type Output = Value<'b>;
    fn sub(self, other: T) -> Value<'b> {
        self.binary(BinOp::Sub, other)
    }
}
impl<'b, T: Operand<'b>> Mul<T> for Value<'b> {
    type Output = Value<'b>;
    fn mul(self, other: T) -> Value<'b> {
        self.binary(BinOp::Mul, other)
    }
}
impl<'b, T: Operand<'b>> Div<T> for Value<'b> {
    type Output = Value<'b>;
    fn div(self, other: T) -> Value<'b> {
        self.binary(BinOp::Div, other)
    }
}
impl<'b, T: Operand<'b>> BitAnd<T> for Value<'b> {
    type Output = Value<'b>;
    fn bitand(self, other: T) -> Value<'b> {
        self.binary(BinOp::BitAnd, other)
    }
}
impl<'b, T: Operand<'b>> BitOr<T> for Value<'b> {
    type Output = Value<'b>;
    fn bitor(self, other: T) -> Value<'b> {
        self.binary(BinOp::BitOr, other)
    }
}
impl<'b, T: Operand<'b>> BitXor<T> for Value<'b> {
    type Output = Value<'b>;
    fn bitxor(self, other: T) -> Value<'b> {
        self.binary(BinOp::BitXor, other)
    }
}
impl<'b> Sub<Value<'b>> for f64 {
    type Output = Value<'b>;
    fn sub(self, other: Value<'b>) -> Value<'b> {
        self.beside(other) - other
    }
}
impl<'b> Div<Value<'b>> for f64 {
    type Output = Value<'b>;
    fn div(self, other: Value<'b>) -> Value<'b> {
        self.beside(other) / other
    }
}

//! Expressions of the loop IR. The comment of each variant is its specification: the interpreter
//! follows it, and every back end is compared with the interpreter.

use super::types::{DType, Type};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A variable: a loop index, a run-time integer, a scalar argument or a `let`. Variables are equal
/// by identity, not by name.
#[derive(Clone, Debug)]
pub struct Var(Arc<VarData>);

#[derive(Debug)]
struct VarData {
    name: String,
    ty: Type,
}

impl Var {
    /// Creates a new variable. The name need not be unique; the printer numbers clashing names.
    pub fn new(name: impl Into<String>, ty: impl Into<Type>) -> Var {
        Var(Arc::new(VarData { name: name.into(), ty: ty.into() }))
    }

    /// Creates a new variable of type `index`.
    pub fn index(name: impl Into<String>) -> Var {
        Var::new(name, DType::Index)
    }

    /// Returns the name, which need not be unique.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the type.
    pub fn ty(&self) -> Type {
        self.0.ty
    }
}

impl PartialEq for Var {
    fn eq(&self, other: &Var) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Var {}
/// Hashes the identity. Never iterate over a hash map of variables: the order differs from run to
/// run.
impl Hash for Var {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// The kind of memory of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// An argument, or workspace memory. On GPUs: device memory, allocated around launches.
    Global,
    /// Shared by the threads of a GPU block; in launches only.
    Shared,
    /// Private to a thread; on CPUs the stack, or the workspace if large.
    Local,
    /// Registers: a few elements, accessed with constant indices only.
    Register,
    /// Read-only data of the module, in [`BufferData::init`].
    Constant,
}

impl Scope {
    /// Returns the name in schedules and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Global => "global",
            Scope::Shared => "shared",
            Scope::Local => "local",
            Scope::Register => "register",
            Scope::Constant => "constant",
        }
    }
}

/// How far ahead a buffer in a loop is filled. `inject_double_buffer` makes as many copies of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffering {
    /// In the iteration that reads it.
    Single,
    /// One iteration ahead.
    Double,
    /// With `n` copies: `n - 1` iterations ahead, by asynchronous copies.
    Pipeline(u32),
}

/// A tensor in memory: row-major, contiguous unless it has strides, elements aligned to their size.
/// Buffers are equal by identity, like [`Var`].
#[derive(Clone, Debug)]
pub struct Buffer(Arc<BufferData>);

/// The properties of a [`Buffer`].
#[derive(Debug)]
pub struct BufferData {
    /// The name in dumps; need not be unique.
    pub name: String,
    /// The element type; never `Index`.
    pub dtype: DType,
    /// The extents, of type `index`, over run-time integers only. Before `flatten_storage` an
    /// access has one index per dimension, afterwards exactly one. Rank 0 is one element.
    pub shape: Vec<Expr>,
    /// The kind of memory.
    pub scope: Scope,
    /// The stride of each dimension in elements, of type `index`, over run-time integers; `None` if
    /// contiguous. After `flatten_storage`, only arguments have strides.
    pub strides: Option<Vec<Expr>>,
    /// Before `inject_double_buffer`: how far ahead of its readers it is filled.
    pub buffering: Buffering,
    /// The elements of a `Constant` buffer as zero-extended bit patterns.
    pub init: Option<Vec<u64>>,
    /// What callers see, if it is an argument of a quantized type: the type and the extents in
    /// elements. `dtype` and `shape` are those of its bytes then.
    pub declared: Option<(DType, Vec<Expr>)>,
}

impl Buffer {
    /// Creates a new buffer.
    pub fn new(name: impl Into<String>, dtype: DType, shape: Vec<Expr>, scope: Scope) -> Buffer {
        Buffer::with_layout(name, dtype, shape, scope, None, Buffering::Single)
    }

    /// Creates a new buffer with strides, or one that is filled ahead of its readers.
    pub fn with_layout(
        name: impl Into<String>,
        dtype: DType,
        shape: Vec<Expr>,
        scope: Scope,
        strides: Option<Vec<Expr>>,
        buffering: Buffering,
    ) -> Buffer {
        let (name, init, declared) = (name.into(), None, None);
        let data = BufferData { name, dtype, shape, scope, strides, buffering, init, declared };
        Buffer(Arc::new(data))
    }

    /// Returns this new buffer of bytes as an argument that callers see with another type and other
    /// extents.
    pub fn declared_as(self, dtype: DType, shape: Vec<Expr>) -> Buffer {
        let data = Arc::into_inner(self.0).expect("nothing refers to a new buffer");
        Buffer(Arc::new(BufferData { declared: Some((dtype, shape)), ..data }))
    }

    /// Returns the element type that callers see.
    pub fn declared_dtype(&self) -> DType {
        self.declared.as_ref().map_or(self.dtype, |(dtype, _)| *dtype)
    }

    /// Returns the extents that callers see, in elements.
    pub fn declared_shape(&self) -> &[Expr] {
        self.declared.as_ref().map_or(&self.shape, |(_, shape)| shape)
    }

    /// Creates a read-only table of the module.
    pub fn constant(name: impl Into<String>, dtype: DType, init: Vec<u64>) -> Buffer {
        let shape = vec![Expr::index(init.len() as i64)];
        let init = Some(init);
        Buffer(Arc::new(BufferData {
            name: name.into(),
            dtype,
            shape,
            scope: Scope::Constant,
            strides: None,
            buffering: Buffering::Single,
            init,
            declared: None,
        }))
    }

    /// Whether the element at these indices exists in every call, because the indices and all
    /// extents are constants.
    pub fn always_has(&self, indices: &[Expr]) -> bool {
        let is_inside = |(index, extent): (&Expr, &Expr)| match (index.as_int(), extent.as_int()) {
            (Some(index), Some(extent)) => (0..extent).contains(&index),
            _ => false,
        };
        matches!(self.scope, Scope::Global | Scope::Constant)
            && self.strides.is_none()
            && indices.len() == self.shape.len()
            && indices.iter().zip(&self.shape).all(is_inside)
    }

    /// Creates a new buffer with the properties of this one.
    pub fn duplicate(&self) -> Buffer {
        Buffer(Arc::new(BufferData {
            name: self.name.clone(),
            dtype: self.dtype,
            shape: self.shape.clone(),
            scope: self.scope,
            init: self.init.clone(),
            strides: self.strides.clone(),
            buffering: self.buffering,
            declared: self.declared.clone(),
        }))
    }

    /// Returns the number of elements to allocate: the product of the extents (1 for rank 0), or
    /// with strides the outermost extent times the outermost stride.
    pub fn len(&self) -> Expr {
        if let (Some([stride, ..]), [extent, ..]) = (self.strides.as_deref(), &self.shape[..]) {
            return Expr::mul(extent.clone(), stride.clone());
        }
        self.shape
            .iter()
            .cloned()
            .reduce(|a, b| Expr::binary(BinOp::Mul, a, b))
            .unwrap_or_else(|| Expr::index(1))
    }
}

impl std::ops::Deref for Buffer {
    type Target = BufferData;
    fn deref(&self) -> &BufferData {
        &self.0
    }
}
impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Buffer {}
impl Hash for Buffer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// The value of a constant. Its type is that of the node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Const {
    /// Integers, `Index` and `Bool` (0 or 1); always in the range of the type.
    Int(i128),
    /// Floats, exactly representable in the type of the node, also halves. To distinguish −0 from
    /// 0, or NaNs, compare bits.
    Float(f64),
}

/// Operations on one operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnOp {
    /// `-x`. Integers wrap (`-MIN = MIN`); floats flip the sign bit, NaN and zero included.
    Neg,
    /// Bitwise complement of integers.
    BitNot,
    /// Logical not of `bool`.
    Not,
    /// Integers: `abs(MIN) = MIN`, identity on unsigned. Floats: clears the sign bit.
    Abs,
    /// Floats: round towards −∞. Keeps −0, infinities, NaN.
    Floor,
    /// Floats: round towards +∞.
    Ceil,
    /// Floats: to nearest, ties to even.
    Round,
    /// Floats: towards zero.
    Trunc,
    /// Floats: correctly rounded square root; NaN below −0.
    Sqrt,
    /// Integers: number of one bits, in the operand's type.
    Popcount,
    /// Floats: `bool`, true for NaN.
    IsNan,
    /// `bool`: the operand itself. Marks a condition that holds in almost every iteration, such as
    /// the guard of a split, for `partition_loops`.
    Likely,
}

/// Operations on two operands of one type. The result has the same type; comparisons give `bool`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinOp {
    /// Integers wrap; floats round to nearest even. A NaN result has unspecified sign and payload.
    Add,
    /// Like `Add`.
    Sub,
    /// Like `Add`.
    Mul,
    /// Floats only: IEEE 754 division; never traps.
    Div,
    /// Integers: floor division; `x // 0 = 0`, `MIN // -1 = MIN`.
    FloorDiv,
    /// Integers: floor modulo, with the sign of the divisor; `x % 0 = 0`, `MIN % -1 = 0`.
    FloorMod,
    /// `if a < b then a else b`; so `b` for a NaN operand or two zeros.
    Min,
    /// `if a > b then a else b`; so `b` for a NaN operand or two zeros.
    Max,
    /// Integers and `bool`: bitwise.
    BitAnd,
    /// Integers and `bool`: bitwise.
    BitOr,
    /// Integers and `bool`: bitwise.
    BitXor,
    /// Integers: left shift, amount modulo the width.
    Shl,
    /// Integers: right shift, arithmetic on signed types, amount modulo the width.
    Shr,
    /// Comparison; false if an operand is NaN.
    Eq,
    /// Comparison; true if an operand is NaN.
    Ne,
    /// Comparison; false if an operand is NaN.
    Lt,
    /// Comparison; false if an operand is NaN.
    Le,
    /// Comparison; false if an operand is NaN.
    Gt,
    /// Comparison; false if an operand is NaN.
    Ge,
    /// Logical and of `bool`; the right operand is evaluated only if the left one is true.
    And,
    /// Logical or of `bool`; the right operand is evaluated only if the left one is false.
    Or,
}

impl BinOp {
    /// Whether it is one of the six comparisons.
    pub fn is_comparison(self) -> bool {
        use BinOp::*;
        matches!(self, Eq | Ne | Lt | Le | Gt | Ge)
    }

    /// Whether the result is `bool` for all operand types.
    pub fn gives_bool(self) -> bool {
        self.is_comparison() || matches!(self, BinOp::And | BinOp::Or)
    }
}

/// A function of one or more floats. `Fma` is rounded once. `expand_math` replaces the others by
/// a fixed sequence of operations; docs/LANGUAGE.md states the error bounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Intrinsic {
    /// `fma(a, b, c)`: `a*b + c`, rounded once.
    Fma,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// e to the x.
    Exp,
    /// 2 to the x.
    Exp2,
    /// `exp(x) - 1`, without cancellation near 0.
    Expm1,
    /// Natural logarithm.
    Log,
    /// Base 2 logarithm.
    Log2,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The error function.
    Erf,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Tangent of radians.
    Tan,
    /// Arc tangent.
    Atan,
    /// `pow(x, y)`, with the special cases of C99, Annex F.
    Pow,
    /// Rounds float32 to ten fraction bits, to nearest, ties away from zero.
    Tf32,
    /// `scalef(x, n)`: `x * 2^n` for an integral float `n`, rounded once. Only `expand_math` makes
    /// it, where the target has an instruction for it.
    Scalef,
}

impl Intrinsic {
    /// Whether the back ends have it as an instruction; `expand_math` replaces the others.
    pub fn is_operation(self) -> bool {
        matches!(self, Intrinsic::Fma | Intrinsic::Scalef)
    }

    /// Returns the name in `.te` files and dumps.
    pub fn name(self) -> &'static str {
        use Intrinsic::*;
        match self {
            Fma => "fma",
            Rsqrt => "rsqrt",
            Exp => "exp",
            Exp2 => "exp2",
            Expm1 => "expm1",
            Log => "log",
            Log2 => "log2",
            Tanh => "tanh",
            Sigmoid => "sigmoid",
            Erf => "erf",
            Sin => "sin",
            Cos => "cos",
            Tan => "tan",
            Atan => "atan",
            Pow => "pow",
            Tf32 => "tf32",
            Scalef => "scalef",
        }
    }
}

/// An immutable expression. Cheap to clone: clones share the node.
#[derive(Clone, Debug)]
pub struct Expr(Arc<Node>);

/// A node of an expression.
#[derive(Debug)]
pub struct Node {
    /// The type of the value.
    pub ty: Type,
    /// The operation.
    pub kind: ExprKind,
}

/// The operations. Operations on vectors act lane by lane. Evaluation has no side effects; the
/// order matters only if a variant says that an operand is not evaluated.
#[derive(Debug)]
pub enum ExprKind {
    /// A scalar constant.
    Const(Const),
    /// The value of a variable.
    Var(Var),
    /// One operand.
    Unary(UnOp, Expr),
    /// Two operands of one type.
    Binary(BinOp, Expr, Expr),
    /// `select(c, t, f)`: evaluates all operands.
    Select(Expr, Expr, Expr),
    /// `if_then_else(c, t, f)`: scalar condition; evaluates only the chosen branch.
    IfThenElse(Expr, Expr, Expr),
    /// Conversion of the value to the type of the node. Integer to integer wraps. Integer to float
    /// rounds to nearest even. Float to float rounds to nearest even. Float to integer truncates
    /// towards zero and saturates; NaN gives 0. To `bool`: `x != 0`, so NaN gives true. `bool` to a
    /// number: 0 or 1. To and from `Index` as for `Int64`. Integer to a half goes through Float32
    /// (two roundings; the casts of the language go through Float64 where that differs).
    Cast(Expr),
    /// The same bits as another type of the same size (Float32 with Int32/Uint32, Float64 with
    /// Int64/Uint64, and integers of one size).
    Bitcast(Expr),
    /// `buffer[indices]`. Every index is inside the shape; the interpreter traps otherwise. Lanes
    /// whose `mask` is false read nothing and are 0.
    Load {
        /// The buffer that is read.
        buffer: Buffer,
        /// One per dimension before `flatten_storage`, exactly one after.
        indices: Vec<Expr>,
        /// The lanes that are read, of type `bool`; all if absent.
        mask: Option<Expr>,
    },
    /// `base + stride * lane`, for scalar operands of an integer type.
    Ramp(Expr, Expr),
    /// A scalar in every lane.
    Broadcast(Expr),
    /// A math function.
    Call(Intrinsic, Vec<Expr>),
    /// `let var = value; body`. Evaluates `value` once, before `body`.
    Let(Var, Expr, Expr),
}

impl std::ops::Deref for Expr {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.0
    }
}

// Constructors are associated functions rather than operators: they allocate and may panic.
#[allow(clippy::should_implement_trait)]
impl Expr {
    /// Creates a node of the given type. Prefer the constructors below, which derive the type.
    pub fn new(ty: impl Into<Type>, kind: ExprKind) -> Expr {
        Expr(Arc::new(Node { ty: ty.into(), kind }))
    }

    /// Whether both are the same node: a quick test for "unchanged".
    pub fn same(&self, other: &Expr) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the address of the node; see [`visit::Memo`](super::visit::Memo) for tables by node.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Creates an `index` constant.
    pub fn index(value: i64) -> Expr {
        Expr::int(DType::Index, value as i128)
    }

    /// Creates an integer or `bool` constant, wrapped into the type.
    pub fn int(dtype: DType, value: i128) -> Expr {
        Expr::new(dtype, ExprKind::Const(Const::Int(dtype.wrap(value))))
    }

    /// Creates a `bool` constant.
    pub fn bool(value: bool) -> Expr {
        Expr::int(DType::Bool, value as i128)
    }

    /// Creates a floating-point constant, rounded to `dtype`.
    pub fn float(dtype: DType, value: f64) -> Expr {
        assert!(dtype.is_float(), "float constant of type {dtype}");
        let value = dtype.round_float(value);
        Expr::new(dtype, ExprKind::Const(Const::Float(value)))
    }

    /// Creates a use of a variable.
    pub fn var(var: &Var) -> Expr {
        Expr::new(var.ty(), ExprKind::Var(var.clone()))
    }

    /// Creates an operation on one operand.
    pub fn unary(op: UnOp, x: Expr) -> Expr {
        let ty = match op {
            UnOp::IsNan => x.ty.with_dtype(DType::Bool),
            _ => x.ty,
        };
        Expr::new(ty, ExprKind::Unary(op, x))
    }

    /// Creates an operation on two operands of one type.
    ///
    /// # Panics
    /// If the types differ.
    pub fn binary(op: BinOp, a: Expr, b: Expr) -> Expr {
        assert_eq!(a.ty, b.ty, "operands of {op:?}");
        let ty = if op.gives_bool() { a.ty.with_dtype(DType::Bool) } else { a.ty };
        Expr::new(ty, ExprKind::Binary(op, a, b))
    }

    /// Creates `a + b`.
    pub fn add(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinOp::Add, a, b)
    }
    /// Creates `a - b`.
    pub fn sub(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinOp::Sub, a, b)
    }
    /// Creates `a * b`.
    pub fn mul(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinOp::Mul, a, b)
    }
    /// Creates `a < b`.
    pub fn lt(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinOp::Lt, a, b)
    }
    /// Creates `a <= b`.
    pub fn le(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinOp::Le, a, b)
    }
    /// Creates `a == b`.
    pub fn eq(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinOp::Eq, a, b)
    }
    /// Creates `a and b`.
    pub fn and(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinOp::And, a, b)
    }
    /// Creates `a or b`.
    pub fn or(a: Expr, b: Expr) -> Expr {
        Expr::binary(BinOp::Or, a, b)
    }
    /// Creates `not a`.
    pub fn not(a: Expr) -> Expr {
        Expr::unary(UnOp::Not, a)
    }

    /// Creates `select(c, t, f)`.
    pub fn select(c: Expr, t: Expr, f: Expr) -> Expr {
        assert_eq!(t.ty, f.ty, "branches of select");
        Expr::new(t.ty, ExprKind::Select(c, t, f))
    }

    /// Creates `if_then_else(c, t, f)`.
    pub fn if_then_else(c: Expr, t: Expr, f: Expr) -> Expr {
        assert_eq!(t.ty, f.ty, "branches of if_then_else");
        Expr::new(t.ty, ExprKind::IfThenElse(c, t, f))
    }

    /// Creates a conversion; returns `x` if it has the type already.
    pub fn cast(dtype: DType, x: Expr) -> Expr {
        if x.ty.dtype == dtype {
            return x;
        }
        Expr::new(x.ty.with_dtype(dtype), ExprKind::Cast(x))
    }

    /// Creates a bitcast.
    pub fn bitcast(dtype: DType, x: Expr) -> Expr {
        assert_eq!(x.ty.dtype.bytes(), dtype.bytes(), "bitcast");
        Expr::new(x.ty.with_dtype(dtype), ExprKind::Bitcast(x))
    }

    /// Creates a load `buffer[indices]` with the lanes of the indices.
    pub fn load(buffer: &Buffer, indices: Vec<Expr>) -> Expr {
        let lanes = indices.iter().map(|i| i.ty.lanes).max().unwrap_or(1);
        let ty = Type { dtype: buffer.dtype, lanes };
        Expr::new(ty, ExprKind::Load { buffer: buffer.clone(), indices, mask: None })
    }

    /// Creates a call of a math function. The result has the type of the arguments.
    pub fn call(function: Intrinsic, args: Vec<Expr>) -> Expr {
        Expr::new(args[0].ty, ExprKind::Call(function, args))
    }

    /// Creates `let var = value; body`.
    pub fn let_in(var: Var, value: Expr, body: Expr) -> Expr {
        assert_eq!(var.ty(), value.ty, "let {}", var.name());
        Expr::new(body.ty, ExprKind::Let(var, value, body))
    }

    /// Returns the value of an integer, `index` or `bool` constant.
    pub fn as_int(&self) -> Option<i128> {
        match self.kind {
            ExprKind::Const(Const::Int(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a floating-point constant.
    pub fn as_float(&self) -> Option<f64> {
        match self.kind {
            ExprKind::Const(Const::Float(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the variable, if the expression is one.
    pub fn as_var(&self) -> Option<&Var> {
        match &self.kind {
            ExprKind::Var(var) => Some(var),
            _ => None,
        }
    }
}

//! The syntax tree of a `.te` file, with source spans. Names are not resolved.

use crate::diag::Span;

/// An identifier.
#[derive(Clone, PartialEq, Debug)]
pub struct Name {
    /// The text.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// A file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct File {
    /// In source order.
    pub items: Vec<Item>,
}

/// A top-level item.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// `import "file.te" as name`.
    Import(Import),
    /// `def f(a, b) = expr`.
    Def(Def),
    /// `reducer r(a, b) = expr identity expr`.
    Reducer(Reducer),
    /// `kernel k(params) { … }`.
    Kernel(Kernel),
    /// `schedule k.name(params) for target { … }`.
    Schedule(Schedule),
    /// `template t(params) { … }`.
    Template(Template),
}

/// `import "file.te" as name`.
#[derive(Clone, PartialEq, Debug)]
pub struct Import {
    /// The text between the quotes.
    pub path: String,
    /// `name` of `as name`: the prefix of the names of its items.
    pub alias: Option<Name>,
    /// The quoted text.
    pub span: Span,
}

/// `def f(a, b) = body`.
#[derive(Clone, PartialEq, Debug)]
pub struct Def {
    /// Function name.
    pub name: Name,
    /// Parameter names.
    pub params: Vec<Name>,
    /// Value.
    pub body: Expr,
}

/// `reducer r((ai, av), (bi, bv)) = (…, …) identity (…, …) where …`.
#[derive(Clone, PartialEq, Debug)]
pub struct Reducer {
    /// Name.
    pub name: Name,
    /// Names of the accumulated value's components (one unless a tuple).
    pub lhs: Vec<Name>,
    /// Names of the next value's components.
    pub rhs: Vec<Name>,
    /// Combined value, one expression per component.
    pub result: Vec<Expr>,
    /// Identity, one expression per component.
    pub identity: Vec<Expr>,
    /// `where`: a condition over the components of `lhs` that every combined value satisfies.
    pub domain: Option<Expr>,
    /// The whole item.
    pub span: Span,
}

/// `kernel name(params) reassociate { stmts }`, or `network …`.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Whether it is a `network`, which is compiled as several kernels.
    pub network: bool,
    /// Exported name.
    pub name: Name,
    /// Compile-time parameters and run-time integers.
    pub params: Vec<Param>,
    /// `reassociate` after the parameters.
    pub reassociate: bool,
    /// Body.
    pub body: Vec<Stmt>,
    /// The whole item.
    pub span: Span,
}

/// A parameter of a kernel or schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Name.
    pub name: Name,
    /// Its kind.
    pub kind: ParamKind,
    /// Default value.
    pub default: Option<Expr>,
}

/// The kinds of parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// `n = 100` or `n`: compile-time integer.
    Index,
    /// `n: var`: run-time integer.
    Var,
    /// `T: dtype = float32`.
    DType,
    /// `eps: real = 1e-5`.
    Real,
    /// `relu: bool = false`.
    Bool,
    /// `S: shape = [3, 4]`: a pack of extents.
    Shape,
    /// `padding: list = 0`: a pack of compile-time integers, or one that stands for each element.
    List,
}

/// A statement of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// The whole statement.
    pub span: Span,
}

/// The statements of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub enum StmtKind {
    /// `input A: float32[n, l] layout_free`, `param A: float32[n, l]` or `inout A: float32[n]`.
    Input {
        /// Which of the three it is.
        kind: InputKind,
        /// Name.
        name: Name,
        /// Element type: a type's name or a `dtype` parameter.
        dtype: Name,
        /// Extents, some of them [`ExprKind::Expand`]; `None` for a scalar passed by value, empty
        /// for `float32[]`.
        shape: Option<Vec<Expr>>,
        /// Its strides, if it need not be contiguous.
        strides: Option<Strides>,
        /// `layout_free`.
        layout_free: bool,
    },
    /// `reduce k: 0..l, r: 1..3`.
    Reduce(Vec<ReduceAxis>),
    /// `compute P[i: n] = expr` and `output C[i: n]: float16 = expr`.
    Stage(Stage),
    /// `update C[p + i: n, j: m] = expr`.
    Update {
        /// The new elements: a stage with the name of the tensor.
        stage: Stage,
        /// What is added to each axis to give the index in the tensor; `None` for 0.
        offsets: Vec<Option<Expr>>,
    },
    /// `scan t: n { compute h[t, i: m]: float32 = … }`.
    Scan {
        /// The axes of the steps, outermost first, with their extents.
        axes: Vec<(Name, Expr)>,
        /// The stages. Their axes without an extent in the text have the extent of the scan's.
        stages: Vec<Stage>,
    },
    /// `output C = operator(…)`.
    OutputCall {
        /// The new name.
        name: Name,
        /// The call.
        value: Expr,
    },
    /// `let a, b = expr`; a `_` is `None`.
    Let {
        /// New names.
        names: Vec<Option<Name>>,
        /// Value.
        value: Expr,
    },
    /// `if c { … } else { … }`; `else if` is an `If` alone in `otherwise`.
    If {
        /// Condition.
        cond: Expr,
        /// Taken if true.
        then: Vec<Stmt>,
        /// Taken if false.
        otherwise: Vec<Stmt>,
    },
    /// `assume n % 16 == 0`.
    Assume(Expr),
    /// `assert n >= k, "text"`.
    Assert(Expr, String),
    /// `estimate n = 128, m = 64`: run-time integers of a typical call.
    Estimate(Vec<(Name, Expr)>),
}

/// The strides of a tensor of the caller, in elements.
#[derive(Clone, PartialEq, Debug)]
pub struct Strides {
    /// `strides=[lda, 1]`; `None` for `strided`, any strides.
    pub given: Option<Vec<Expr>>,
    /// The whole clause.
    pub span: Span,
}

/// The kinds of inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// `input`: the kernel reads it.
    Input,
    /// `param`: an input of a network whose elements can be known at build time.
    Param,
    /// `inout`: the kernel reads it, and an `update` writes it in place.
    Inout,
}

/// `k: 0..l`, `k...: 0..K...`.
#[derive(Clone, PartialEq, Debug)]
pub struct ReduceAxis {
    /// Name.
    pub name: Name,
    /// Whether it is a pack of axes, `k...`.
    pub is_pack: bool,
    /// First value.
    pub min: Expr,
    /// One past the last.
    pub end: Expr,
}

/// A stage.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// `output`, not `compute`.
    pub output: bool,
    /// One name, or several for a tuple reduction, each with an optional type (`(I: int32, V)`).
    pub names: Vec<(Name, Option<Name>)>,
    /// Axes and extents. The extents of a pack of axes, `i...: S...`, are an [`ExprKind::Expand`].
    pub axes: Vec<(Name, Expr)>,
    /// Explicit element type after the axes.
    pub dtype: Option<Name>,
    /// The strides of an output, if it need not be contiguous.
    pub strides: Option<Strides>,
    /// Value.
    pub body: Expr,
}

/// An expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: Box<ExprKind>,
    /// The whole expression, outer parentheses excluded.
    pub span: Span,
}

/// The kinds of expressions.
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// `12`, `0x1f`: the digits as written.
    Int(String),
    /// `0.5`, `1e-5`: as written.
    Real(String),
    /// `true`, `false`.
    Bool(bool),
    /// A name.
    Name(Name),
    /// `target.cores`, `blockIdx.x`, `P.S`: only in schedules.
    Dotted(Vec<Name>),
    /// `-x`, `~x`, `not x`.
    Unary(UnaryOp, Expr),
    /// `a + b`; the span is the operator's.
    Binary(BinaryOp, Expr, Expr, Span),
    /// `x as float32`.
    Cast(Expr, Name),
    /// `A[i, j]`, `S[0]`, `S[1..]`.
    Index(Name, Vec<Expr>),
    /// `f(x, axis=k)`; the name of an item imported under a name has a dot: `nn.f`.
    Call(Name, Vec<Arg>),
    /// `target.lanes(T)`, `target.cache_bytes(2)`: only in schedules.
    DottedCall(Vec<Name>, Vec<Arg>),
    /// `if c then a else b`.
    If(Expr, Expr, Expr),
    /// `(a, b)`: only where a tuple is reduced.
    Tuple(Vec<Expr>),
    /// `[a, b]`.
    List(Vec<Expr>),
    /// `x...`: the elements of a pack, only as an element of a list or an argument.
    Expand(Expr),
    /// `a..b`, `a..`, `..b`: only in brackets.
    Range(Option<Expr>, Option<Expr>),
    /// `*`: only as an argument of a directive.
    Star,
}

/// An argument: positional, or `name=value`.
#[derive(Clone, PartialEq, Debug)]
pub struct Arg {
    /// Keyword.
    pub name: Option<Name>,
    /// Value.
    pub value: Expr,
}

/// Prefix operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryOp {
    /// `-`.
    Neg,
    /// `~`.
    BitNot,
    /// `not`.
    Not,
}

/// Infix operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// `+`.
    Add,
    /// `-`.
    Sub,
    /// `*`.
    Mul,
    /// `/`.
    Div,
    /// `//`.
    FloorDiv,
    /// `%`.
    Mod,
    /// `&`.
    BitAnd,
    /// `|`.
    BitOr,
    /// `^`.
    BitXor,
    /// `<<`.
    Shl,
    /// `>>`.
    Shr,
    /// `==`.
    Eq,
    /// `!=`.
    Ne,
    /// `<`.
    Lt,
    /// `<=`.
    Le,
    /// `>`.
    Gt,
    /// `>=`.
    Ge,
    /// `and`.
    And,
    /// `or`.
    Or,
}

impl BinaryOp {
    /// Returns the operator in source text.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::FloorDiv => "//",
            Self::Mod => "%",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::Shl => "<<",
            Self::Shr => ">>",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::And => "and",
            Self::Or => "or",
        }
    }
}

/// `schedule kernel.name(params) for target { … }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// Which kernel.
    pub kernel: Name,
    /// Its own name.
    pub name: Option<Name>,
    /// Parameters.
    pub params: Vec<Param>,
    /// `x86-avx512`, as written.
    pub target: Option<Name>,
    /// Body.
    pub body: Vec<ScheduleStmt>,
    /// The whole item.
    pub span: Span,
}

impl Schedule {
    /// Returns the innermost statement around a byte of the file; none outside of the body.
    pub fn statement_at(&self, byte: u32) -> Option<&ScheduleStmt> {
        fn find(body: &[ScheduleStmt], byte: u32) -> Option<&ScheduleStmt> {
            let around = |stmt: &&ScheduleStmt| (stmt.span.start..stmt.span.end).contains(&byte);
            let stmt = body.iter().find(around)?;
            let inner = match &stmt.kind {
                ScheduleStmtKind::If { then, otherwise, .. } => {
                    find(then, byte).or_else(|| find(otherwise, byte))
                }
                ScheduleStmtKind::For { body, .. } => find(body, byte),
                _ => None,
            };
            inner.or(Some(stmt))
        }
        find(&self.body, byte)
    }
}

/// `template t(C: tensor, x: axis, rows = 4) { … }`: statements that schedules of any kernel use.
#[derive(Clone, PartialEq, Debug)]
pub struct Template {
    /// Name.
    pub name: Name,
    /// Parameters.
    pub params: Vec<TemplateParam>,
    /// Body.
    pub body: Vec<ScheduleStmt>,
    /// The whole item.
    pub span: Span,
}

/// A parameter of a template.
#[derive(Clone, PartialEq, Debug)]
pub struct TemplateParam {
    /// Name.
    pub name: Name,
    /// Its kind.
    pub kind: TemplateParamKind,
    /// Default value.
    pub default: Option<Expr>,
}

/// The kinds of parameters of templates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TemplateParamKind {
    /// `C: tensor`: a stage or an input.
    Tensor,
    /// `x: axis`: a loop of the stage that is the last `tensor` before it.
    Axis,
    /// `rows = 4`: an integer.
    Index,
    /// `pack: bool = true`.
    Bool,
    /// `T: dtype`.
    DType,
}

/// A statement of a schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleStmt {
    /// What it is.
    pub kind: ScheduleStmtKind,
    /// The whole statement.
    pub span: Span,
}

/// The statements of a schedule.
#[derive(Clone, PartialEq, Debug)]
pub enum ScheduleStmtKind {
    /// `let xo, xi = C.split(x, factor=4)`.
    Directive {
        /// Names for the results; `None` for `_`; empty without `let`.
        results: Vec<Option<Name>>,
        /// `C`, or `P.S`.
        stage: Vec<Name>,
        /// `split`.
        directive: Name,
        /// Arguments.
        args: Vec<Arg>,
    },
    /// `let t = n * n`, `let S = P`.
    Let {
        /// New names.
        names: Vec<Option<Name>>,
        /// Value.
        value: Expr,
    },
    /// `if c { … } else { … }`.
    If {
        /// Condition.
        cond: Expr,
        /// Taken if true.
        then: Vec<ScheduleStmt>,
        /// Taken if false.
        otherwise: Vec<ScheduleStmt>,
    },
    /// `for (S, L) in [(AS, AL)] { … }`.
    For {
        /// Loop names: one, or one for each component of the tuples.
        names: Vec<Name>,
        /// The list's elements.
        items: Vec<Expr>,
        /// Body.
        body: Vec<ScheduleStmt>,
    },
    /// `use NAME`.
    Use(Name),
    /// `use tile(C, x, rows=8)`, `use lib.tile(C, x)`.
    UseTemplate {
        /// `lib.tile`.
        path: Vec<Name>,
        /// Arguments.
        args: Vec<Arg>,
    },
    /// `knob t = 32 in [8, 16]`.
    Knob {
        /// Name.
        name: Name,
        /// The value if no other is chosen.
        default: Expr,
        /// All values.
        choices: Vec<Expr>,
    },
    /// `assert c, "text"`.
    Assert(Expr, String),
    /// `auto_inline_injective()`.
    AutoInlineInjective,
}

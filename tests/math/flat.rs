//! A second evaluator of loop IR expressions, for speed: the expression becomes a list of
//! operations, each of which runs over many arguments at once.

use std::collections::HashMap;
use tec::ir::{BinOp, Const, DType, Expr, ExprKind, Intrinsic, UnOp, Var};

/// Arguments that are evaluated together.
pub const BATCH: usize = 512;

/// A value's bits, zero-extended, for each argument.
type Lanes = [u64; BATCH];

type Unary = fn(&Lanes, &mut Lanes);
type Binary = fn(&Lanes, &Lanes, &mut Lanes);
type Ternary = fn(&Lanes, &Lanes, &Lanes, &mut Lanes);

enum Op {
    Arg(usize),
    Const(u64),
    Unary(Unary, usize),
    Binary(Binary, usize, usize),
    Ternary(Ternary, usize, usize, usize),
    Load(Vec<u64>, usize),
    /// The same bits.
    Same(usize),
}

/// An expression of some variables, ready to run.
pub struct Program {
    ops: Vec<Op>,
    result: usize,
    /// Operations that read or write elements of 8 bytes.
    wide: usize,
    /// The factors of products of floats.
    products: Vec<(DType, usize, usize)>,
}

impl Program {
    /// Number of operations, without arguments, constants and bitcasts.
    pub fn len(&self) -> usize {
        self.ops.iter().filter(|op| !matches!(op, Op::Arg(_) | Op::Const(_) | Op::Same(_))).count()
    }

    /// Those of [`Program::len`] that read or write elements of 8 bytes.
    pub fn count_wide(&self) -> usize {
        self.wide
    }

    /// Whether it reads tables.
    pub fn has_tables(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Load(..)))
    }

    /// Compiles `expr`, whose free variables are `args`.
    pub fn new(expr: &Expr, args: &[Var]) -> Program {
        let ops = (0..args.len()).map(Op::Arg).collect();
        let vars = args.iter().cloned().enumerate().map(|(i, var)| (var, i)).collect();
        let (done, products) = (HashMap::new(), Vec::new());
        let mut compiler = Compiler { ops, vars, done, wide: 0, products };
        let result = compiler.expr(expr);
        let Compiler { ops, wide, products, .. } = compiler;
        Program { ops, result, wide, products }
    }

    /// The factors of each product of floats in the last run, as bits, for one of the arguments.
    pub fn products<'r>(
        &'r self,
        registers: &'r [Lanes],
        lane: usize,
    ) -> impl Iterator<Item = (DType, u64, u64)> + 'r {
        let factors = move |(ty, a, b): &(DType, usize, usize)| {
            (*ty, registers[*a][lane], registers[*b][lane])
        };
        self.products.iter().map(factors)
    }

    /// Memory for a run.
    pub fn registers(&self) -> Vec<Lanes> {
        let mut registers = vec![[0; BATCH]; self.ops.len()];
        for (op, register) in self.ops.iter().zip(&mut registers) {
            if let Op::Const(bits) = op {
                register.fill(*bits);
            }
        }
        registers
    }

    /// Returns the results for a batch of arguments.
    pub fn run<'r>(&self, args: &[&Lanes], registers: &'r mut [Lanes]) -> &'r Lanes {
        for (i, op) in self.ops.iter().enumerate() {
            let (before, rest) = registers.split_at_mut(i);
            let out = &mut rest[0];
            match op {
                Op::Arg(arg) => out.copy_from_slice(args[*arg]),
                Op::Const(_) => {}
                Op::Same(a) => out.copy_from_slice(&before[*a]),
                Op::Unary(f, a) => f(&before[*a], out),
                Op::Binary(f, a, b) => f(&before[*a], &before[*b], out),
                Op::Ternary(f, a, b, c) => f(&before[*a], &before[*b], &before[*c], out),
                Op::Load(table, a) => {
                    for (index, out) in before[*a].iter().zip(out) {
                        *out = table[*index as usize];
                    }
                }
            }
        }
        &registers[self.result]
    }
}

struct Compiler {
    ops: Vec<Op>,
    vars: HashMap<Var, usize>,
    done: HashMap<usize, usize>,
    wide: usize,
    products: Vec<(DType, usize, usize)>,
}

impl Compiler {
    fn expr(&mut self, expr: &Expr) -> usize {
        if let Some(register) = self.done.get(&expr.id()) {
            return *register;
        }
        let register = match &expr.kind {
            ExprKind::Let(var, value, body) => {
                let value = self.expr(value);
                self.vars.insert(var.clone(), value);
                self.expr(body)
            }
            ExprKind::Var(var) => self.vars[var],
            kind => {
                let op = self.op(kind, expr.ty.dtype);
                self.wide += usize::from(is_wide(expr));
                self.ops.push(op);
                self.ops.len() - 1
            }
        };
        self.done.insert(expr.id(), register);
        register
    }

    fn op(&mut self, kind: &ExprKind, ty: DType) -> Op {
        match kind {
            ExprKind::Const(Const::Int(value)) => Op::Const(int_bits(ty, *value)),
            ExprKind::Const(Const::Float(value)) => Op::Const(float_bits(ty, *value)),
            ExprKind::Unary(op, a) => Op::Unary(unary(*op, ty), self.expr(a)),
            ExprKind::Binary(op, a, b) => {
                let (left, right) = (self.expr(a), self.expr(b));
                if *op == BinOp::Mul && ty.is_float() {
                    self.products.push((ty, left, right));
                }
                Op::Binary(binary(*op, a.ty.dtype), left, right)
            }
            ExprKind::Select(c, t, f) => {
                let select: Ternary = |c, t, f, out| {
                    for i in 0..BATCH {
                        out[i] = if c[i] != 0 { t[i] } else { f[i] };
                    }
                };
                Op::Ternary(select, self.expr(c), self.expr(t), self.expr(f))
            }
            ExprKind::Cast(a) => Op::Unary(cast(a.ty.dtype, ty), self.expr(a)),
            ExprKind::Bitcast(a) => {
                assert_eq!(a.ty.dtype.bytes(), ty.bytes());
                Op::Same(self.expr(a))
            }
            ExprKind::Call(Intrinsic::Fma, args) => {
                let [a, b, c] = [0, 1, 2].map(|i| self.expr(&args[i]));
                Op::Ternary(if ty == DType::Float32 { fma_f32 } else { fma_f64 }, a, b, c)
            }
            ExprKind::Load { buffer, indices, mask: None } => {
                let table = buffer.init.clone().expect("a table of constants");
                Op::Load(table, self.expr(&indices[0]))
            }
            other => panic!("expanded mathematics holds {other:?}"),
        }
    }
}

/// Whether an operation of [`Program::len`] reads or writes elements of 8 bytes; indices do not
/// count.
fn is_wide(expr: &Expr) -> bool {
    let wide = |expr: &Expr| expr.ty.dtype.bytes() == 8 && expr.ty.dtype != DType::Index;
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Bitcast(_) => false,
        ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Binary(_, a, _) => {
            wide(expr) || wide(a)
        }
        _ => wide(expr),
    }
}

fn int_bits(ty: DType, value: i128) -> u64 {
    let bits = value as u64;
    if ty.bytes() == 8 { bits } else { bits & ((1 << ty.bits()) - 1) }
}

/// Returns the bits of a constant.
pub fn float_bits(ty: DType, value: f64) -> u64 {
    if ty == DType::Float32 { (value as f32).to_bits() as u64 } else { value.to_bits() }
}

/// Values and their zero-extended bits.
trait Bits: Copy {
    fn get(bits: u64) -> Self;
    fn put(self) -> u64;
}
macro_rules! bits {
    ($($ty:ty, $bits:ident, $get:expr, $put:expr;)*) => {$(
        impl Bits for $ty {
            fn get($bits: u64) -> $ty { $get }
            fn put(self) -> u64 { let $bits = self; $put }
        }
    )*};
}
bits! {
    f32, x, f32::from_bits(x as u32), x.to_bits() as u64;
    f64, x, f64::from_bits(x), x.to_bits();
    i32, x, x as i32, x as u32 as u64;
    u32, x, x as u32, x as u64;
    i64, x, x as i64, x as u64;
    u64, x, x, x;
    bool, x, x != 0, x as u64;
}

macro_rules! on1 {
    ($ty:ty, |$a:ident| $e:expr) => {
        |a, out| {
            for i in 0..BATCH {
                let $a = <$ty as Bits>::get(a[i]);
                out[i] = Bits::put($e);
            }
        }
    };
}
macro_rules! on2 {
    ($ty:ty, |$a:ident, $b:ident| $e:expr) => {
        |a, b, out| {
            for i in 0..BATCH {
                let ($a, $b) = (<$ty as Bits>::get(a[i]), <$ty as Bits>::get(b[i]));
                out[i] = Bits::put($e);
            }
        }
    };
}

fn unary(op: UnOp, ty: DType) -> Unary {
    match (op, ty) {
        (UnOp::Neg, DType::Float32) => on1!(f32, |a| -a),
        (UnOp::Neg, DType::Float64) => on1!(f64, |a| -a),
        (UnOp::Abs, DType::Float32) => on1!(f32, |a| a.abs()),
        (UnOp::Abs, DType::Float64) => on1!(f64, |a| a.abs()),
        (UnOp::Sqrt, DType::Float32) => on1!(f32, |a| a.sqrt()),
        (UnOp::Sqrt, DType::Float64) => on1!(f64, |a| a.sqrt()),
        (UnOp::Round, DType::Float32) => on1!(f32, |a| a.round_ties_even()),
        (UnOp::Round, DType::Float64) => on1!(f64, |a| a.round_ties_even()),
        (UnOp::Trunc, DType::Float32) => on1!(f32, |a| a.trunc()),
        (UnOp::Trunc, DType::Float64) => on1!(f64, |a| a.trunc()),
        (UnOp::Not, DType::Bool) => on1!(bool, |a| !a),
        other => panic!("expanded mathematics holds {other:?}"),
    }
}

fn binary(op: BinOp, ty: DType) -> Binary {
    match ty {
        DType::Float32 => float_f32(op),
        DType::Float64 => float_f64(op),
        DType::Int32 => match op {
            BinOp::Shr => on2!(i32, |a, b| a.wrapping_shr(b as u32)),
            _ => word_32(op),
        },
        DType::Uint32 => match op {
            BinOp::Shr => on2!(u32, |a, b| a.wrapping_shr(b)),
            _ => word_32(op),
        },
        DType::Int64 => match op {
            BinOp::Shr => on2!(i64, |a, b| a.wrapping_shr(b as u32)),
            BinOp::Min => on2!(i64, |a, b| a.min(b)),
            BinOp::Max => on2!(i64, |a, b| a.max(b)),
            _ => word_64(op),
        },
        DType::Uint64 => match op {
            BinOp::Shr => on2!(u64, |a, b| a.wrapping_shr(b as u32)),
            _ => word_64(op),
        },
        DType::Bool => word_64(op),
        other => panic!("expanded mathematics holds {op:?} of {other}"),
    }
}

/// Operations that do not depend on the sign.
fn word_32(op: BinOp) -> Binary {
    match op {
        BinOp::Add => on2!(u32, |a, b| a.wrapping_add(b)),
        BinOp::Sub => on2!(u32, |a, b| a.wrapping_sub(b)),
        BinOp::Mul => on2!(u32, |a, b| a.wrapping_mul(b)),
        BinOp::Shl => on2!(u32, |a, b| a.wrapping_shl(b)),
        _ => word_64(op),
    }
}

fn word_64(op: BinOp) -> Binary {
    match op {
        BinOp::Add => on2!(u64, |a, b| a.wrapping_add(b)),
        BinOp::Sub => on2!(u64, |a, b| a.wrapping_sub(b)),
        BinOp::Mul => on2!(u64, |a, b| a.wrapping_mul(b)),
        BinOp::Shl => on2!(u64, |a, b| a.wrapping_shl(b as u32)),
        BinOp::BitAnd => on2!(u64, |a, b| a & b),
        BinOp::BitOr => on2!(u64, |a, b| a | b),
        BinOp::BitXor => on2!(u64, |a, b| a ^ b),
        BinOp::Eq => on2!(u64, |a, b| a == b),
        BinOp::Ne => on2!(u64, |a, b| a != b),
        other => panic!("expanded mathematics holds {other:?}"),
    }
}

macro_rules! float_ops {
    ($name:ident, $ty:ty) => {
        fn $name(op: BinOp) -> Binary {
            match op {
                BinOp::Add => on2!($ty, |a, b| a + b),
                BinOp::Sub => on2!($ty, |a, b| a - b),
                BinOp::Mul => on2!($ty, |a, b| a * b),
                BinOp::Div => on2!($ty, |a, b| a / b),
                BinOp::Min => on2!($ty, |a, b| if a < b { a } else { b }),
                BinOp::Max => on2!($ty, |a, b| if a > b { a } else { b }),
                BinOp::Eq => on2!($ty, |a, b| a == b),
                BinOp::Ne => on2!($ty, |a, b| a != b),
                BinOp::Lt => on2!($ty, |a, b| a < b),
                BinOp::Le => on2!($ty, |a, b| a <= b),
                BinOp::Gt => on2!($ty, |a, b| a > b),
                BinOp::Ge => on2!($ty, |a, b| a >= b),
                other => panic!("expanded mathematics holds {other:?} of floats"),
            }
        }
    };
}
float_ops!(float_f32, f32);
float_ops!(float_f64, f64);

fn cast(from: DType, to: DType) -> Unary {
    use DType::*;
    match (from, to) {
        (Float32, Float64) => on1!(f32, |a| a as f64),
        (Float64, Float32) => on1!(f64, |a| a as f32),
        (Int32, Float32) => on1!(i32, |a| a as f32),
        (Int32, Float64) => on1!(i32, |a| a as f64),
        (Uint32 | Uint64 | Int64, Index) => |a, out| out.copy_from_slice(a),
        (Int64 | Uint64, Int32 | Uint32) => on1!(u64, |a| a as u32),
        (Uint32, Uint64 | Int64) => on1!(u32, |a| a as u64),
        (Int32, Int64 | Uint64) => on1!(i32, |a| a as i64),
        other => panic!("expanded mathematics holds a cast {other:?}"),
    }
}

macro_rules! fma {
    ($name:ident, $hardware:ident, $ty:ty) => {
        fn $name(a: &Lanes, b: &Lanes, c: &Lanes, out: &mut Lanes) {
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("fma") {
                #[target_feature(enable = "avx2,fma")]
                fn $hardware(a: &Lanes, b: &Lanes, c: &Lanes, out: &mut Lanes) {
                    for i in 0..BATCH {
                        let [a, b, c] = [a[i], b[i], c[i]].map(<$ty as Bits>::get);
                        out[i] = a.mul_add(b, c).put();
                    }
                }
                // SAFETY: the features were detected above (every CPU with FMA here has AVX2).
                return unsafe { $hardware(a, b, c, out) };
            }
            for i in 0..BATCH {
                let [a, b, c] = [a[i], b[i], c[i]].map(<$ty as Bits>::get);
                out[i] = a.mul_add(b, c).put();
            }
        }
    };
}
fma!(fma_f32, hardware_fma_f32, f32);
fma!(fma_f64, hardware_fma_f64, f64);

//! Random kernels with sharing, lazy conditions, guarded loads and accumulators, against the
//! interpreter. Each library has many kernels, so that linking takes little of the time.

use super::harness::{Native, kernel};
use crate::ir::interp::{self, Tensor, Value};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Kernel, Param, Role, Scope, Stmt};
use crate::ir::{UnOp, Var};
use crate::target::Target;
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;

/// Elements of every tensor.
const LEN: i64 = 8;
/// Types of the computations.
const TYPES: [DType; 7] = [
    DType::Float64,
    DType::Float32,
    DType::Int64,
    DType::Int32,
    DType::Uint8,
    DType::Int16,
    DType::Bool,
];

struct Generator {
    rng: ChaCha8Rng,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    /// Loop variables in scope, each within `0 .. LEN`.
    loops: Vec<Var>,
    /// Expressions to be shared, without variables that are bound inside.
    pool: Vec<Expr>,
}

impl Generator {
    fn new(seed: u64) -> Generator {
        let tensor = |prefix: &str, dtype: DType| {
            Buffer::new(format!("{prefix}_{dtype}"), dtype, vec![Expr::index(LEN)], Scope::Global)
        };
        Generator {
            rng: ChaCha8Rng::seed_from_u64(seed),
            inputs: DType::ALL.iter().map(|dtype| tensor("in", *dtype)).collect(),
            outputs: TYPES.iter().map(|dtype| tensor("out", *dtype)).collect(),
            loops: Vec::new(),
            pool: Vec::new(),
        }
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list.choose(&mut self.rng).expect("not empty").clone()
    }

    fn load(&mut self, buffer: &Buffer, index: Expr) -> Expr {
        let kind = ExprKind::Load { buffer: buffer.clone(), indices: vec![index], mask: None };
        Expr::new(buffer.dtype, kind)
    }

    /// An index inside every tensor.
    fn index(&mut self, depth: u32) -> Expr {
        let eight = Expr::index(LEN);
        match self.rng.random_range(0..6) {
            0..3 if !self.loops.is_empty() => Expr::var(&self.pick(&self.loops.clone())),
            3 if depth > 0 => {
                let value = self.expr(DType::Int32, depth - 1);
                let value = Expr::cast(DType::Index, value);
                Expr::binary(BinOp::FloorMod, value, eight)
            }
            4 if !self.loops.is_empty() => {
                let (a, b) = (self.pick(&self.loops.clone()), self.pick(&self.loops.clone()));
                let sum = Expr::add(Expr::mul(Expr::var(&a), Expr::index(3)), Expr::var(&b));
                let op = if self.rng.random() { BinOp::FloorMod } else { BinOp::FloorDiv };
                let result = Expr::binary(op, sum, eight);
                Expr::binary(BinOp::Min, result, Expr::index(LEN - 1))
            }
            _ => Expr::index(self.rng.random_range(0..LEN)),
        }
    }

    fn constant(&mut self, dtype: DType) -> Expr {
        if dtype.is_float() {
            let value = self.pick(&[0.0, -0.0, 1.0, -2.5, 1e30, f64::INFINITY, 0.1, f64::NAN]);
            Expr::float(dtype, value)
        } else {
            let (min, max) = dtype.int_range();
            let value = self.pick(&[0, 1, -1, 2, 3, 7, 100, min, max]);
            Expr::int(dtype, value)
        }
    }

    fn expr(&mut self, dtype: DType, depth: u32) -> Expr {
        let shared: Vec<Expr> =
            self.pool.iter().filter(|expr| expr.ty.dtype == dtype).cloned().collect();
        if !shared.is_empty() && self.rng.random_range(0..4) == 0 {
            return self.pick(&shared);
        }
        let expr = self.new_expr(dtype, depth);
        self.pool.push(expr.clone());
        expr
    }

    fn new_expr(&mut self, dtype: DType, depth: u32) -> Expr {
        if depth == 0 {
            return match self.rng.random_range(0..3) {
                0 => self.constant(dtype),
                _ => self.input(dtype, depth),
            };
        }
        match self.rng.random_range(0..10) {
            0 => self.input(dtype, depth),
            1 => {
                let from = self.pick(&TYPES);
                Expr::cast(dtype, self.expr(from, depth - 1))
            }
            2 => {
                let (c, t) = (self.expr(DType::Bool, depth - 1), self.expr(dtype, depth - 1));
                Expr::select(c, t, self.expr(dtype, depth - 1))
            }
            3 | 4 => {
                let (c, t) = (self.expr(DType::Bool, depth - 1), self.expr(dtype, depth - 1));
                Expr::if_then_else(c, t, self.expr(dtype, depth - 1))
            }
            5 => self.guarded(dtype),
            6 => {
                let from = self.pick(&TYPES);
                let var = Var::new("v", from);
                let value = self.expr(from, depth - 1);
                let body = Expr::cast(dtype, Expr::var(&var));
                Expr::new(dtype, ExprKind::Let(var, value, body))
            }
            7 => self.unary(dtype, depth),
            _ => self.binary(dtype, depth),
        }
    }

    fn input(&mut self, dtype: DType, depth: u32) -> Expr {
        let index = self.index(depth);
        let buffer = self.pick(&self.inputs.clone());
        let load = self.load(&buffer, index);
        Expr::cast(dtype, load)
    }

    /// A load that is in bounds only if its condition holds.
    fn guarded(&mut self, dtype: DType) -> Expr {
        let far = Expr::index(1 << 40);
        let at = self.index(0);
        let cond = Expr::lt(at.clone(), Expr::index(self.rng.random_range(0..LEN)));
        let offset = Expr::select(cond.clone(), Expr::index(0), far);
        let buffer = self.pick(&self.inputs.clone());
        let load = self.load(&buffer, Expr::add(at, offset));
        let value = Expr::cast(dtype, load);
        match dtype {
            DType::Bool if self.rng.random() => Expr::and(cond, value),
            DType::Bool if self.rng.random() => Expr::or(Expr::not(cond), value),
            _ => Expr::if_then_else(cond, value, self.constant(dtype)),
        }
    }

    fn unary(&mut self, dtype: DType, depth: u32) -> Expr {
        use UnOp::*;
        let op = match dtype {
            DType::Bool => Not,
            _ if dtype.is_float() => self.pick(&[Neg, Abs, Floor, Ceil, Round, Trunc, Sqrt]),
            _ => self.pick(&[Neg, BitNot, Abs, Popcount]),
        };
        Expr::unary(op, self.expr(dtype, depth - 1))
    }

    fn binary(&mut self, dtype: DType, depth: u32) -> Expr {
        use BinOp::*;
        if dtype == DType::Bool && self.rng.random() {
            let from = self.pick(&TYPES[..6]);
            let op = self.pick(&[Eq, Ne, Lt, Le, Gt, Ge]);
            let a = self.expr(from, depth - 1);
            return Expr::binary(op, a, self.expr(from, depth - 1));
        }
        let op = match dtype {
            DType::Bool => self.pick(&[And, Or, BitXor]),
            _ if dtype.is_float() => self.pick(&[Add, Sub, Mul, Div, Min, Max]),
            _ => self.pick(&[
                Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, BitAnd, BitOr, BitXor, Shl, Shr,
            ]),
        };
        let a = self.expr(dtype, depth - 1);
        Expr::binary(op, a, self.expr(dtype, depth - 1))
    }

    fn stmt(&mut self, depth: u32) -> Stmt {
        match self.rng.random_range(0..6) {
            0 if depth > 0 => Stmt::Block((0..2).map(|_| self.stmt(depth - 1)).collect()),
            1 | 2 if depth > 0 => {
                let var = Var::index("i");
                self.loops.push(var.clone());
                let pool = std::mem::take(&mut self.pool);
                let body = self.stmt(depth - 1);
                self.pool = pool;
                self.loops.pop();
                // A trip count that is known only at run time, or a constant one.
                let extent = match self.loops.last() {
                    Some(outer) if self.rng.random() => Expr::var(outer),
                    _ => Expr::index(self.rng.random_range(0..LEN)),
                };
                Stmt::serial(var, extent, body)
            }
            3 if depth > 0 => {
                let cond = self.expr(DType::Bool, 2);
                let pool = self.pool.clone();
                let then = Box::new(self.stmt(depth - 1));
                self.pool = pool;
                let otherwise = self.rng.random::<bool>().then(|| Box::new(self.stmt(depth - 1)));
                Stmt::If { cond, then, otherwise }
            }
            4 if depth > 0 => {
                let stmt = self.stmt(depth - 1);
                self.in_parallel(stmt)
            }
            _ => self.store(),
        }
    }

    /// `stmt` in one iteration of a parallel loop; the others do nothing.
    fn in_parallel(&mut self, stmt: Stmt) -> Stmt {
        let var = Var::index("p");
        let (min, extent) = (self.rng.random_range(-3..3), self.rng.random_range(1..6));
        let chosen = Expr::index(self.rng.random_range(min..min + extent));
        let cond = Expr::eq(Expr::var(&var), chosen);
        let body = Box::new(Stmt::If { cond, then: Box::new(stmt), otherwise: None });
        let (min, extent) = (Expr::index(min), Expr::index(extent));
        Stmt::For { var, min, extent, kind: ForKind::Parallel, body }
    }

    /// A store; every second one updates an element.
    fn store(&mut self) -> Stmt {
        let buffer = self.pick(&self.outputs.clone());
        let index = self.index(0);
        let mut value = self.expr(buffer.dtype, 3);
        if self.rng.random() {
            let old = self.load(&buffer, index.clone());
            let op = if buffer.dtype == DType::Bool { BinOp::BitXor } else { BinOp::Add };
            value = Expr::binary(op, old, value);
        }
        Stmt::store(&buffer, vec![index], value)
    }

    fn kernel(mut self, name: &str) -> Kernel {
        let mut stmts = Vec::new();
        for buffer in self.outputs.clone() {
            let var = Var::index("z");
            let zero = Expr::cast(buffer.dtype, Expr::int(DType::Int32, 0));
            let store = Stmt::store(&buffer, vec![Expr::var(&var)], zero);
            stmts.push(Stmt::serial(var, Expr::index(LEN), store));
        }
        for _ in 0..4 {
            self.pool.clear();
            stmts.push(self.stmt(4));
        }
        let param = |buffer: &Buffer, output: bool| Param::Tensor {
            buffer: buffer.clone(),
            role: if output { Role::Output } else { Role::Input },
            layout_free: false,
        };
        let mut params: Vec<Param> = self.inputs.iter().map(|b| param(b, false)).collect();
        params.extend(self.outputs.iter().map(|b| param(b, true)));
        kernel(name, params, Stmt::Block(stmts))
    }
}

/// Inputs with few distinct, special elements.
fn arguments(seed: u64) -> Vec<Tensor> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut tensors = Vec::new();
    for dtype in DType::ALL {
        let data = (0..LEN)
            .flat_map(|_| {
                let bits = match dtype {
                    DType::Bool => rng.random_range(0..2),
                    _ => match rng.random_range(0..4) {
                        0 => 0,
                        1 => rng.random_range(0..8),
                        2 => u64::MAX << rng.random_range(0..64),
                        _ => rng.random(),
                    },
                };
                bits.to_le_bytes().into_iter().take(dtype.bytes() as usize)
            })
            .collect();
        tensors.push(Tensor { dtype, shape: vec![LEN], data });
    }
    for dtype in TYPES {
        let data = vec![0x55; (LEN as u64 * dtype.bytes()) as usize];
        tensors.push(Tensor { dtype, shape: vec![LEN], data });
    }
    tensors
}

/// The bytes of a tensor with all NaNs made equal.
pub(super) fn canonical(tensor: &Tensor) -> Vec<u8> {
    let mut data = tensor.data.clone();
    match tensor.dtype {
        DType::Float32 => data.chunks_mut(4).for_each(|bytes| {
            if f32::from_le_bytes(bytes.try_into().unwrap()).is_nan() {
                bytes.fill(0xff);
            }
        }),
        DType::Float64 => data.chunks_mut(8).for_each(|bytes| {
            if f64::from_le_bytes(bytes.try_into().unwrap()).is_nan() {
                bytes.fill(0xff);
            }
        }),
        DType::Float16 | DType::BFloat16 => data.chunks_mut(2).for_each(|bytes| {
            let infinity = if tensor.dtype == DType::Float16 { 0x7c00 } else { 0x7f80 };
            if u16::from_le_bytes([bytes[0], bytes[1]]) & 0x7fff > infinity {
                bytes.fill(0xff);
            }
        }),
        _ => {}
    }
    data
}

#[test]
fn random_kernels_equal_the_interpreter() {
    let count: u64 = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let first: u64 = std::env::var("SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let kernels: Vec<Kernel> = (first..first + count)
        .map(|seed| Generator::new(seed).kernel(&format!("random_{seed}")))
        .collect();
    let baseline = Target::parse("x86-64").unwrap();
    let targets = [(Target::native(), 3), (Target::native(), 0), (baseline, 3)];
    for (target, opt) in targets.into_iter().filter(|(target, _)| target.runs_here()) {
        let native = Native::build_at(&kernels, &target, opt);
        for (seed, kernel) in (first..).zip(&kernels) {
            let mut tensors = arguments(seed);
            let mut values: Vec<Value> = tensors.iter().cloned().map(Value::Tensor).collect();
            interp::run(kernel, &mut values).unwrap_or_else(|trap| panic!("{seed}: {trap:?}"));
            let words: Vec<u64> =
                tensors.iter_mut().map(|tensor| tensor.data.as_mut_ptr() as u64).collect();
            assert_eq!(native.call(&format!("{}_body", kernel.name), &words), 0);
            for (native, expected) in tensors.iter().zip(&values) {
                let Value::Tensor(expected) = expected else { unreachable!("all are tensors") };
                let dtype = native.dtype;
                let equal = canonical(native) == canonical(expected);
                assert!(equal, "SEED={seed}: {dtype} differs on {target}, --opt {opt}");
            }
        }
    }
}

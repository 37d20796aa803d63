//! Random nests for the SIMD back end: loops with run-time trip counts (some 0 or negative), every
//! kind of access, masks that count lanes, guards, bindings, buffers in the frame and in registers.
//! Each tensor ends at an inaccessible page.

use super::harness::{Native, kernel, object};
use super::random::canonical;
use super::wide::{legal, simd_targets};
use crate::ir::interp::{self, Tensor, Value};
use crate::ir::print::{Style, print_kernel};
use crate::ir::verify::verify_kernel;
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Kernel, Param, Role, Scope,
};
use crate::ir::{Stmt, Type, UnOp, Var};
use crate::target::Target;
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;

/// Elements of every tensor.
const LEN: i64 = 512;
/// The center of accesses, far enough from both ends for every loop, stride and lane.
const MIDDLE: i64 = 208;
/// The index of an element that must not be accessed.
const FAR: i64 = 1 << 40;
/// Types of the computations.
const TYPES: [DType; 11] = [
    DType::Float32,
    DType::Float64,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Uint8,
    DType::Uint16,
    DType::Uint32,
    DType::Uint64,
    DType::Bool,
];
/// Types of scalar arguments.
const SCALARS: [DType; 5] =
    [DType::Float32, DType::Float64, DType::Int8, DType::Uint64, DType::Bool];

struct Generator {
    rng: ChaCha8Rng,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    /// `n`, `m` and `s`: within 0 ..= 9, -3 ..= 3 and 1 ..= 3.
    runtime: Vec<Var>,
    scalars: Vec<Var>,
    /// Lanes of the current statement.
    lanes: u32,
    /// Loop variables in scope, each within -6 ..= 16.
    loops: Vec<Var>,
    lets: Vec<Var>,
    /// Initialised buffers of [`MEMORY`] elements.
    frame: Vec<Buffer>,
}

/// Elements of a buffer in the frame.
const MEMORY: i64 = 64;

fn broadcast(expr: Expr, lanes: u32) -> Expr {
    if lanes == 1 || expr.ty.lanes > 1 {
        return expr;
    }
    Expr::new(Type { dtype: expr.ty.dtype, lanes }, ExprKind::Broadcast(expr))
}

fn ramp(base: Expr, stride: Expr, lanes: u32) -> Expr {
    if lanes == 1 {
        return base;
    }
    Expr::new(Type { dtype: base.ty.dtype, lanes }, ExprKind::Ramp(base, stride))
}

fn masked(buffer: &Buffer, index: Expr, mask: Option<Expr>) -> Expr {
    let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
    Expr::new(ty, ExprKind::Load { buffer: buffer.clone(), indices: vec![index], mask })
}

impl Generator {
    fn new(seed: u64) -> Generator {
        let tensor = |prefix: &str, dtype: DType| {
            Buffer::new(format!("{prefix}_{dtype}"), dtype, vec![Expr::index(LEN)], Scope::Global)
        };
        Generator {
            rng: ChaCha8Rng::seed_from_u64(seed),
            inputs: DType::ALL.iter().map(|dtype| tensor("in", *dtype)).collect(),
            outputs: DType::ALL.iter().map(|dtype| tensor("out", *dtype)).collect(),
            runtime: ["n", "m", "s"].map(Var::index).to_vec(),
            scalars: SCALARS.iter().map(|dtype| Var::new(format!("p_{dtype}"), *dtype)).collect(),
            lanes: 1,
            loops: Vec::new(),
            lets: Vec::new(),
            frame: Vec::new(),
        }
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list.choose(&mut self.rng).expect("not empty").clone()
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    fn input(&self, dtype: DType) -> Buffer {
        self.inputs.iter().find(|buffer| buffer.dtype == dtype).expect("all").clone()
    }

    fn output(&self, dtype: DType) -> Buffer {
        self.outputs.iter().find(|buffer| buffer.dtype == dtype).expect("all").clone()
    }

    /// A scalar index within 90 of zero.
    fn offset(&mut self) -> Expr {
        let mut sum = Expr::index(self.rng.random_range(-8..8));
        for _ in 0..self.rng.random_range(0..3) {
            let Some(var) = self.loops.choose(&mut self.rng).cloned() else { break };
            let var = Expr::var(&var);
            sum = match self.rng.random_range(0..6) {
                0 => Expr::add(sum, Expr::mul(var, Expr::index(2))),
                1 => Expr::sub(sum, var),
                2 => Expr::add(sum, Expr::mul(var, Expr::var(&self.runtime[1]))),
                3 => {
                    let op = self.pick(&[BinOp::FloorDiv, BinOp::FloorMod]);
                    let by = match self.chance(4) {
                        true => Expr::var(&self.runtime[1]),
                        false => Expr::index(self.pick(&[1, 2, 3, 4, 7, -3])),
                    };
                    Expr::add(sum, Expr::binary(op, var, by))
                }
                4 => {
                    let op = self.pick(&[BinOp::Min, BinOp::Max]);
                    let with = Expr::var(&self.runtime[0]);
                    Expr::add(sum, Expr::binary(op, var, with))
                }
                _ => Expr::add(sum, var),
            };
        }
        if self.chance(5) {
            sum = Expr::add(sum, Expr::var(&self.runtime[0]));
        }
        sum
    }

    fn base(&mut self) -> Expr {
        Expr::add(Expr::index(MIDDLE), self.offset())
    }

    /// The longest stride between lanes that stays in bounds.
    fn most_stride(&self) -> i64 {
        match self.lanes {
            ..=24 => 3,
            25..=36 => 2,
            _ => 1,
        }
    }

    /// An index for each lane, all in bounds of every tensor.
    fn index(&mut self) -> Expr {
        let lanes = self.lanes;
        match self.rng.random_range(0..12) {
            0 => {
                let indices = vec![ramp(self.base(), Expr::index(1), lanes)];
                let list = self.input(DType::Int32);
                let value = Expr::cast(DType::Index, Expr::load(&list, indices));
                Expr::binary(BinOp::BitAnd, value, broadcast(Expr::index(LEN - 1), lanes))
            }
            1 => broadcast(self.base(), lanes),
            2 | 3 => {
                let stride = self.pick(&[2, 3, -1, 0, 1]).min(self.most_stride());
                let stride = match self.chance(3) && lanes <= 24 {
                    true => Expr::var(&self.runtime[2]),
                    false => Expr::index(stride),
                };
                ramp(self.base(), stride, lanes)
            }
            _ => ramp(self.base(), Expr::index(1), lanes),
        }
    }

    /// The mask of the lanes of `first + 0, 1, 2 …` that are below a bound.
    fn lane_count(&mut self, first: Expr, bound: Expr) -> Expr {
        use BinOp::*;
        let (lanes, op) = (self.lanes, self.pick(&[Lt, Lt, Le, Gt, Ge]));
        let (a, b) = (ramp(first, Expr::index(1), lanes), broadcast(bound, lanes));
        if self.rng.random() { Expr::binary(op, a, b) } else { Expr::binary(op, b, a) }
    }

    /// A condition for each lane.
    fn mask(&mut self) -> Expr {
        let lanes = self.lanes;
        match self.rng.random_range(0..8) {
            0..4 => {
                let (first, bound) = (self.offset(), self.offset());
                self.lane_count(first, bound)
            }
            4 => broadcast(self.condition(), lanes),
            5 => {
                let op = self.pick(&[BinOp::And, BinOp::Or, BinOp::BitXor, BinOp::Eq]);
                let first = self.mask();
                Expr::binary(op, first, self.mask())
            }
            6 => Expr::not(self.mask()),
            _ => self.expr(DType::Bool, 1),
        }
    }

    /// A scalar condition.
    fn condition(&mut self) -> Expr {
        use BinOp::*;
        match self.rng.random_range(0..4) {
            0 => {
                let at = self.base();
                let value = Expr::load(&self.input(DType::Int32), vec![at]);
                Expr::lt(value, Expr::int(DType::Int32, 3))
            }
            1 => Expr::var(&self.scalars[4]),
            _ => {
                let (op, a) = (self.pick(&[Lt, Le, Gt, Ge, Eq, Ne]), self.offset());
                Expr::binary(op, a, self.offset())
            }
        }
    }

    fn load(&mut self, buffer: &Buffer) -> Expr {
        if self.chance(8) {
            return self.tail(buffer);
        }
        let index = self.index();
        let mask = match self.rng.random_range(0..8) {
            0 | 1 => Some(self.mask()),
            _ => None,
        };
        masked(buffer, index, mask)
    }

    /// Accesses the last elements of a tensor; lanes behind them are masked or guarded.
    fn tail(&mut self, buffer: &Buffer) -> Expr {
        let (lanes, some) = (self.lanes, self.rng.random_range(1..9));
        let first = Expr::index(LEN - some);
        let index = ramp(first.clone(), Expr::index(1), lanes);
        let end = broadcast(Expr::index(LEN), lanes);
        let mask = match self.rng.random() {
            true => Expr::binary(BinOp::Lt, index.clone(), end),
            false => Expr::binary(BinOp::Gt, end, index.clone()),
        };
        masked(buffer, index, Some(mask))
    }

    fn constant(&mut self, dtype: DType) -> Expr {
        let scalar = if dtype.is_float() {
            Expr::float(dtype, self.pick(&[0.0, -0.0, 1.0, -2.5, 1e30, f64::INFINITY, f64::NAN]))
        } else {
            let (min, max) = dtype.int_range();
            Expr::int(dtype, self.pick(&[0, 1, -1, 2, 7, 100, min, max]).clamp(min, max))
        };
        broadcast(scalar, self.lanes)
    }

    fn leaf(&mut self, dtype: DType) -> Expr {
        let lanes = self.lanes;
        let known: Vec<Var> = self.lets.iter().filter(|v| v.ty().dtype == dtype).cloned().collect();
        if !known.is_empty() && self.rng.random() {
            let var = self.pick(&known);
            if var.ty().lanes == 1 || var.ty().lanes == lanes {
                return broadcast(Expr::var(&var), lanes);
            }
        }
        match self.rng.random_range(0..12) {
            0 => self.constant(dtype),
            1 => {
                let var = self.pick(&self.scalars.clone());
                broadcast(Expr::cast(dtype, Expr::var(&var)), lanes)
            }
            2 => broadcast(Expr::cast(dtype, self.offset()), lanes),
            3 => Expr::cast(dtype, ramp(self.offset(), Expr::index(2), lanes)),
            4 if !self.frame.is_empty() => {
                let buffer = self.pick(&self.frame.clone());
                let first = Expr::index(self.rng.random_range(0..=MEMORY - i64::from(lanes)));
                Expr::cast(dtype, masked(&buffer, ramp(first, Expr::index(1), lanes), None))
            }
            // Every second or third short integer, which a shuffle makes longer.
            5 => {
                let from = self.pick(&[DType::Int8, DType::Uint8, DType::Int16, DType::Uint16]);
                let stride = self.pick(&[2, 3]).min(self.most_stride());
                let index = ramp(self.base(), Expr::index(stride), lanes);
                Expr::cast(dtype, masked(&self.input(from), index, None))
            }
            _ => {
                let from = if self.chance(3) { self.pick(&DType::ALL) } else { dtype };
                let buffer = if self.chance(6) { self.output(from) } else { self.input(from) };
                let load = self.load(&buffer);
                Expr::cast(dtype, load)
            }
        }
    }

    fn expr(&mut self, dtype: DType, depth: u32) -> Expr {
        use BinOp::*;
        if depth == 0 {
            return self.leaf(dtype);
        }
        match self.rng.random_range(0..9) {
            0 => Expr::cast(dtype, {
                let from = self.pick(&TYPES);
                self.expr(from, depth - 1)
            }),
            1 => {
                let (c, t) = (self.mask(), self.expr(dtype, depth - 1));
                Expr::select(c, t, self.expr(dtype, depth - 1))
            }
            2 => {
                let (c, t) = (self.condition(), self.expr(dtype, depth - 1));
                Expr::if_then_else(c, t, self.expr(dtype, depth - 1))
            }
            3 => self.guarded(dtype),
            4 => {
                let from = self.pick(&TYPES[..10]);
                let value = self.expr(from, depth - 1);
                let var = Var::new("v", value.ty);
                self.lets.push(var.clone());
                let body = self.expr(dtype, depth - 1);
                self.lets.pop();
                Expr::let_in(var, value, body)
            }
            5 if dtype.is_float() && self.rng.random() => {
                let args = (0..3).map(|_| self.expr(dtype, depth - 1)).collect();
                Expr::call(Intrinsic::Fma, args)
            }
            5 => {
                let op = match dtype {
                    DType::Bool => UnOp::Not,
                    _ if dtype.is_float() => {
                        use UnOp::*;
                        self.pick(&[Neg, Abs, Floor, Ceil, Round, Trunc, Sqrt])
                    }
                    _ => self.pick(&[UnOp::Neg, UnOp::Abs, UnOp::BitNot, UnOp::Popcount]),
                };
                Expr::unary(op, self.expr(dtype, depth - 1))
            }
            6 if dtype == DType::Bool => {
                let of = self.pick(&TYPES[..10]);
                let op = self.pick(&[Lt, Le, Gt, Ge, Eq, Ne]);
                let a = self.expr(of, depth - 1);
                Expr::binary(op, a, self.expr(of, depth - 1))
            }
            _ => {
                let op = match dtype {
                    DType::Bool => self.pick(&[And, Or, BitXor, Eq]),
                    _ if dtype.is_float() => self.pick(&[Add, Sub, Mul, Div, Min, Max]),
                    _ => self.pick(&[
                        Add, Sub, Mul, Min, Max, BitAnd, BitOr, BitXor, Shl, Shr, FloorDiv,
                        FloorMod,
                    ]),
                };
                let a = self.expr(dtype, depth - 1);
                Expr::binary(op, a, self.expr(dtype, depth - 1))
            }
        }
    }

    /// A load that is in bounds only if its condition holds.
    fn guarded(&mut self, dtype: DType) -> Expr {
        let (cond, lanes) = (self.condition(), self.lanes);
        let offset = Expr::select(cond.clone(), Expr::index(MIDDLE), Expr::index(FAR));
        let buffer = self.input(dtype);
        let load = masked(&buffer, ramp(offset, Expr::index(1), lanes), None);
        Expr::if_then_else(cond, load, self.constant(dtype))
    }

    fn store(&mut self) -> Stmt {
        let dtype = self.pick(&DType::ALL);
        let (buffer, index) = (self.output(dtype), self.index());
        let mut value = self.expr(dtype.compute_type(), 3);
        if self.chance(3) {
            let old = Expr::cast(dtype.compute_type(), masked(&buffer, index.clone(), None));
            let op = if dtype == DType::Bool { BinOp::BitXor } else { BinOp::Add };
            value = Expr::binary(op, old, value);
        }
        let mask = if self.chance(3) { Some(self.mask()) } else { None };
        let (indices, value) = (vec![index], Expr::cast(dtype, value));
        Stmt::Store { buffer, indices, value, mask, nontemporal: false }
    }

    fn loop_(&mut self, depth: u32) -> Stmt {
        let var = Var::index("i");
        let (n, m) = (Expr::var(&self.runtime[0]), Expr::var(&self.runtime[1]));
        let min = self.pick(&[Expr::index(0), Expr::index(0), Expr::index(-3), m.clone()]);
        let inner = self.loops.last().map(Expr::var);
        let extent = match self.rng.random_range(0..7) {
            0 => Expr::index(self.rng.random_range(0..6)),
            1 => Expr::sub(n, Expr::index(3)),
            2 => m,
            3 if inner.is_some() => Expr::binary(BinOp::Min, inner.expect("some"), n),
            4 => Expr::index(1),
            _ => n,
        };
        self.loops.push(var.clone());
        let body = Box::new(self.stmt(depth - 1));
        self.loops.pop();
        Stmt::For { var, min, extent, kind: ForKind::Serial, body }
    }

    /// Sums in a buffer with constant indices, which lives in registers.
    fn accumulate(&mut self) -> Stmt {
        let dtype = self.pick(&TYPES[..10]);
        let lanes = self.lanes;
        let rows = self.rng.random_range(1..4);
        let shape = vec![Expr::index(rows * i64::from(lanes))];
        let buffer = Buffer::new("acc", dtype, shape, Scope::Local);
        let at = |row: i64| ramp(Expr::index(row * i64::from(lanes)), Expr::index(1), lanes);
        let start = (0..rows).map(|row| Stmt::store(&buffer, vec![at(row)], self.constant(dtype)));
        let mut stmts: Vec<Stmt> = start.collect();
        let var = Var::index("k");
        self.loops.push(var.clone());
        let mut update = |row: i64| {
            let old = masked(&buffer, at(row), None);
            let value = match dtype.is_float() && self.rng.random() {
                true => {
                    let (a, b) = (self.expr(dtype, 1), self.leaf(dtype));
                    Expr::call(Intrinsic::Fma, vec![a, b, old])
                }
                false => Expr::add(old, self.expr(dtype, 2)),
            };
            Stmt::store(&buffer, vec![at(row)], value)
        };
        let body = Stmt::Block((0..rows).map(&mut update).collect());
        let body = match self.chance(4) {
            true => Stmt::If { cond: self.condition(), then: Box::new(body), otherwise: None },
            false => body,
        };
        self.loops.pop();
        let extent = self.pick(&[Expr::index(3), Expr::var(&self.runtime[0])]);
        stmts.push(Stmt::serial(var, extent, body));
        let output = self.output(dtype);
        for row in 0..rows {
            let index = self.index();
            let value = masked(&buffer, at(row), None);
            stmts.push(Stmt::store(&output, vec![index], value));
        }
        Stmt::Allocate { buffer, body: Box::new(Stmt::Block(stmts)) }
    }

    /// A buffer in the frame that a loop writes and later statements read.
    fn allocate(&mut self, depth: u32) -> Stmt {
        let dtype = self.pick(&TYPES);
        let buffer = Buffer::new("local", dtype, vec![Expr::index(MEMORY)], Scope::Local);
        let var = Var::index("w");
        let first = Expr::mul(Expr::var(&var), Expr::index(8));
        let lanes = std::mem::replace(&mut self.lanes, 8);
        let value = self.expr(dtype, 1);
        self.lanes = lanes;
        let store = Stmt::store(&buffer, vec![ramp(first, Expr::index(1), 8)], value);
        let fill = Stmt::serial(var, Expr::index(MEMORY / 8), store);
        self.frame.push(buffer.clone());
        let body = self.stmt(depth - 1);
        self.frame.pop();
        Stmt::Allocate { buffer, body: Box::new(Stmt::Block(vec![fill, body])) }
    }

    fn stmt(&mut self, depth: u32) -> Stmt {
        match self.rng.random_range(0..12) {
            0..3 if depth > 0 => self.loop_(depth),
            3 if depth > 0 => {
                let cond = self.condition();
                let then = Box::new(self.stmt(depth - 1));
                let otherwise = self.rng.random::<bool>().then(|| Box::new(self.stmt(depth - 1)));
                Stmt::If { cond, then, otherwise }
            }
            4 if depth > 0 => {
                let of = self.pick(&TYPES[..10]);
                let value = match self.rng.random() {
                    true => self.expr(of, 2),
                    false => {
                        let lanes = std::mem::replace(&mut self.lanes, 1);
                        let value = self.expr(of, 2);
                        self.lanes = lanes;
                        value
                    }
                };
                let var = Var::new("w", value.ty);
                self.lets.push(var.clone());
                let body = Box::new(Stmt::Block(vec![self.stmt(0), self.stmt(depth - 1)]));
                self.lets.pop();
                Stmt::Let { var, value, body }
            }
            5 if depth > 0 => self.allocate(depth),
            6 => self.accumulate(),
            7 if depth > 0 => Stmt::Block((0..3).map(|_| self.stmt(depth - 1)).collect()),
            8 => {
                let (buffer, indices) = (self.input(DType::Float32), vec![self.offset()]);
                Stmt::Block(vec![Stmt::Prefetch { buffer, indices }, self.store()])
            }
            _ => self.store(),
        }
    }

    fn kernel(mut self, name: &str) -> Kernel {
        let mut stmts = Vec::new();
        for (from, to) in self.inputs.iter().zip(&self.outputs) {
            let z = Var::index("z");
            let copy = Stmt::store(to, vec![Expr::var(&z)], masked(from, Expr::var(&z), None));
            stmts.push(Stmt::serial(z, Expr::index(LEN), copy));
        }
        for _ in 0..4 {
            self.lanes = self.pick(&[2, 3, 4, 5, 7, 8, 8, 12, 16, 16, 24, 32, 64]);
            stmts.push(self.stmt(3));
        }
        let param = |buffer: &Buffer, output: bool| Param::Tensor {
            buffer: buffer.clone(),
            role: if output { Role::Output } else { Role::Input },
            layout_free: false,
        };
        let mut params: Vec<Param> = self.inputs.iter().map(|b| param(b, false)).collect();
        params.extend(self.outputs.iter().map(|b| param(b, true)));
        let scalar = |var: &Var| Param::Scalar { var: var.clone(), dtype: var.ty().dtype };
        params.extend(self.scalars.iter().map(scalar));
        let runtime = |var: &Var| Param::Runtime { var: var.clone(), source: None };
        params.extend(self.runtime.iter().map(runtime));
        kernel(name, params, Stmt::Block(stmts))
    }
}

/// Tensors with special and random elements, and values of the other parameters.
fn arguments(seed: u64, run: u64) -> (Vec<Tensor>, Vec<Value>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed << 8 | run);
    let mut tensors = Vec::new();
    for dtype in DType::ALL.into_iter().chain(DType::ALL) {
        let mut element = || match (dtype, rng.random_range(0..4)) {
            (DType::Bool, _) => rng.random_range(0..2),
            (_, 0) => 0,
            (_, 1) => rng.random_range(0..8),
            (_, 2) => u64::MAX << rng.random_range(0..64),
            _ => rng.random(),
        };
        let bytes = dtype.bytes() as usize;
        let data = (0..LEN).flat_map(|_| element().to_le_bytes().into_iter().take(bytes)).collect();
        tensors.push(Tensor { dtype, shape: vec![LEN], data });
    }
    let others = vec![
        Value::Float(f64::from(rng.random_range(-9..9) as f32) * 0.37),
        Value::Float(1.0 / 3.0),
        Value::Int(rng.random_range(-128..128)),
        Value::Int(rng.random::<u64>().into()),
        Value::Int(rng.random_range(0..2)),
        Value::Index([0, 1, 2, 5, 9][rng.random_range(0..5)]),
        Value::Index(rng.random_range(-3..=3)),
        Value::Index(rng.random_range(1..=3)),
    ];
    (tensors, others)
}

/// Values as words of a call.
fn words_of(others: &[Value]) -> Vec<u64> {
    let word = |(position, value): (usize, &Value)| match value {
        Value::Float(value) if position == 0 => (*value as f32).to_bits().into(),
        Value::Float(value) => value.to_bits(),
        Value::Int(value) => *value as u64,
        Value::Index(value) => *value as u64,
        Value::Tensor(_) => unreachable!("not among the others"),
    };
    others.iter().enumerate().map(word).collect()
}

/// Returns the tensors after a run by the interpreter, or an error if the kernel accesses outside
/// of them.
fn interpret(kernel: &Kernel, seed: u64, run: u64) -> Result<Vec<Vec<u8>>, String> {
    let (tensors, others) = arguments(seed, run);
    let mut values: Vec<Value> = tensors.into_iter().map(Value::Tensor).collect();
    values.extend(others);
    interp::run(kernel, &mut values).map_err(|trap| format!("{trap:?}"))?;
    let tensors = values.iter().filter_map(|value| match value {
        Value::Tensor(tensor) => Some(canonical(tensor)),
        _ => None,
    });
    Ok(tensors.collect())
}

/// Runs of each kernel, with different arguments.
const RUNS: u64 = 3;

/// Compares a run of machine code with the interpreter's, and describes the difference.
fn compare(
    native: &Native,
    name: &str,
    seed: u64,
    run: u64,
    expected: &[Vec<u8>],
) -> Result<(), String> {
    let (tensors, others) = arguments(seed, run);
    let memory: Vec<*mut u8> = tensors.iter().map(|tensor| native.guarded(&tensor.data)).collect();
    let mut words: Vec<u64> = memory.iter().map(|at| *at as u64).collect();
    words.extend(words_of(&others));
    assert_eq!(native.call(&format!("{name}_body"), &words), 0);
    let mut result = Ok(());
    for ((tensor, at), expected) in tensors.into_iter().zip(memory).zip(expected) {
        // SAFETY: `guarded` returned memory of this many bytes.
        let data = unsafe { std::slice::from_raw_parts(at, tensor.data.len()) };
        let got = canonical(&Tensor { data: data.to_vec(), ..tensor.clone() });
        if let Some(place) = (0..got.len()).find(|i| got[*i] != expected[*i]) {
            let (dtype, element) = (tensor.dtype, place / tensor.dtype.bytes() as usize);
            result = Err(format!("run {run}: element {element} of {dtype} differs, {others:?}"));
        }
    }
    native.free_guarded();
    result
}

/// Legalizes kernels for the back end. Prints them if `TEC_SHOW` is set.
fn compile(kernels: &[Kernel], first: u64, target: &Target) -> (Vec<Kernel>, u64) {
    let (mut compiled, mut taken) = (Vec::new(), 0);
    for (seed, kernel) in (first..).zip(kernels) {
        let (legal, wide) = legal(kernel, target);
        taken += u64::from(wide);
        for form in [kernel, &legal] {
            let text = || print_kernel(form, Style::Full);
            if std::env::var_os("TEC_SHOW").is_some() {
                println!("SEED={seed} for {target}\n{}", text());
            }
            verify_kernel(form).unwrap_or_else(|e| panic!("SEED={seed}: {e}\n{}", text()));
        }
        compiled.push(legal);
    }
    (compiled, taken)
}

#[test]
fn random_nests_equal_the_interpreter() {
    let count: u64 = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let first: u64 = std::env::var("SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let kernels: Vec<Kernel> = (first..first + count)
        .map(|seed| Generator::new(seed).kernel(&format!("random_{seed}")))
        .collect();
    let mut wrong = Vec::new();
    for target in simd_targets() {
        let (compiled, taken) = compile(&kernels, first, &target);
        println!("{taken} of {count} kernels have wide nests on {target}");
        assert!(taken * 10 >= count * 9);
        for (seed, kernel) in (first..).zip(&compiled) {
            let alone = || object(std::slice::from_ref(kernel), &target, 3);
            if std::panic::catch_unwind(alone).is_err() {
                wrong.push(format!("SEED={seed} on {target}: the compiler panics"));
            }
        }
        if !wrong.is_empty() {
            break;
        }
        let native = Native::build(&compiled, &target);
        for (seed, kernel) in (first..).zip(&kernels) {
            for run in 0..RUNS {
                let expected = interpret(kernel, seed, run);
                let expected = expected.unwrap_or_else(|trap| panic!("SEED={seed}: {trap}"));
                if let Err(message) = compare(&native, &kernel.name, seed, run, &expected) {
                    wrong.push(format!("SEED={seed} on {target}: {message}"));
                    break;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

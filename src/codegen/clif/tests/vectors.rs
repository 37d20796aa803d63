//! Random statements on vectors of every length: strides, gathers, masks, stores to elements that
//! they read. The interpreter runs them before and after `legalize_vectors`, the machine code after
//! it.

use super::harness::{Native, emulate, kernel};
use super::random::canonical;
use crate::codegen::{ObjectOptions, compile_object};
use crate::ir::interp::{self, Tensor, Value};
use crate::ir::print::{Style, print_kernel};
use crate::ir::verify::verify_kernel;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Kernel, Param, Role, Scope, Stmt, Type};
use crate::ir::{ForKind, Intrinsic, UnOp, Var};
use crate::lower::expand_math::expand_math;
use crate::lower::hoist_invariants::hoist_invariants;
use crate::lower::legalize_vectors::legalize_vectors;
use crate::lower::outline_simd::outline_simd;
use crate::lower::promote_accumulators::promote_accumulators;
use crate::target::Target;
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;

/// Elements of every tensor.
const LEN: i64 = 96;
/// Types of the computations.
const TYPES: [DType; 10] = [
    DType::Float32,
    DType::Float32,
    DType::Float64,
    DType::Int32,
    DType::Int64,
    DType::Uint32,
    DType::Uint64,
    DType::Uint8,
    DType::Int16,
    DType::Bool,
];

struct Generator {
    rng: ChaCha8Rng,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    /// Lanes of the current statement.
    lanes: u32,
    /// Whether to use only operations that vector instructions have, on types of one width.
    tame: bool,
    /// Loop variables in scope, each within `0 .. 4`.
    loops: Vec<Var>,
    /// Variables bound to a vector or a scalar.
    lets: Vec<Var>,
}

/// `expr` in `lanes` lanes.
fn broadcast(expr: Expr, lanes: u32) -> Expr {
    if lanes == 1 || expr.ty.lanes > 1 {
        return expr;
    }
    Expr::new(Type { dtype: expr.ty.dtype, lanes }, ExprKind::Broadcast(expr))
}

fn ramp(base: Expr, stride: i64, lanes: u32) -> Expr {
    if lanes == 1 {
        return base;
    }
    let stride = Expr::int(base.ty.dtype, stride.into());
    Expr::new(Type { dtype: base.ty.dtype, lanes }, ExprKind::Ramp(base, stride))
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
            lanes: 1,
            tame: false,
            loops: Vec::new(),
            lets: Vec::new(),
        }
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list.choose(&mut self.rng).expect("not empty").clone()
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    /// An index for each lane, all in bounds of every tensor.
    fn index(&mut self) -> Expr {
        let lanes = self.lanes;
        let choice = self.rng.random_range(0..12);
        if choice == 0 && !self.tame {
            let indices = vec![ramp(Expr::index(3), 1, lanes)];
            let list = self.inputs[6].clone();
            let value = Expr::cast(DType::Index, Expr::load(&list, indices));
            return Expr::binary(BinOp::FloorMod, value, broadcast(Expr::index(LEN), lanes));
        }
        if choice == 1 {
            let at = Expr::index(self.rng.random_range(0..LEN));
            return broadcast(at, lanes);
        }
        let stride = match choice {
            2 if !self.tame => self.pick(&[2, -1, 3, 4, 0]),
            _ => 1,
        };
        let reach = stride * (i64::from(lanes) - 1);
        let (low, high) = (-reach.min(0), LEN - 1 - reach.max(0) - 3);
        if low > high {
            return ramp(Expr::index(0), 1, lanes);
        }
        let mut base = Expr::index(self.rng.random_range(low..=high));
        if let Some(var) = self.loops.last() {
            base = Expr::add(base, Expr::var(var));
        }
        ramp(base, stride, lanes)
    }

    fn load(&mut self, buffer: &Buffer) -> Expr {
        let index = self.index();
        let mask = match self.rng.random_range(0..12) {
            0 => Some(broadcast(self.scalar_condition(), self.lanes)),
            1 if !self.tame => Some(self.expr(DType::Bool, 1)),
            _ => None,
        };
        let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
        let kind = ExprKind::Load { buffer: buffer.clone(), indices: vec![index], mask };
        Expr::new(ty, kind)
    }

    fn scalar_condition(&mut self) -> Expr {
        let at = Expr::index(self.rng.random_range(0..LEN));
        let value = Expr::load(&self.inputs[6], vec![at]);
        Expr::lt(value, Expr::int(DType::Int32, 3))
    }

    /// An element of an input or output, as `dtype`.
    fn input(&mut self, dtype: DType) -> Expr {
        let from = match self.rng.random_range(0..4) {
            0 if !self.tame => self.pick(&DType::ALL),
            _ => dtype,
        };
        let list = if self.chance(6) { &self.outputs } else { &self.inputs };
        let buffer = list.iter().find(|buffer| buffer.dtype == from).expect("all").clone();
        let load = self.load(&buffer);
        Expr::cast(dtype, load)
    }

    fn constant(&mut self, dtype: DType) -> Expr {
        let scalar = if dtype.is_float() {
            Expr::float(dtype, self.pick(&[0.0, -0.0, 1.0, -2.5, 1e30, f64::INFINITY, f64::NAN]))
        } else {
            let (min, max) = dtype.int_range();
            Expr::int(dtype, self.pick(&[0, 1, -1, 2, 7, 100, min, max]))
        };
        broadcast(scalar, self.lanes)
    }

    fn expr(&mut self, dtype: DType, depth: u32) -> Expr {
        let lanes = self.lanes;
        let known: Vec<Var> =
            self.lets.iter().filter(|var| var.ty().dtype == dtype).cloned().collect();
        if !known.is_empty() && self.chance(4) {
            let var = self.pick(&known);
            if var.ty().lanes == 1 || var.ty().lanes == lanes {
                return broadcast(Expr::var(&var), lanes);
            }
        }
        if depth == 0 {
            return if self.chance(3) { self.constant(dtype) } else { self.input(dtype) };
        }
        match self.rng.random_range(0..12) {
            0 => self.input(dtype),
            1 if !self.tame => {
                let from = self.pick(&TYPES);
                Expr::cast(dtype, self.expr(from, depth - 1))
            }
            1 | 2 => {
                let c = match self.rng.random_range(0..3) {
                    0 => self.scalar_condition(),
                    _ => self.expr(DType::Bool, depth - 1),
                };
                let t = self.expr(dtype, depth - 1);
                Expr::select(c, t, self.expr(dtype, depth - 1))
            }
            3 => {
                let c = self.scalar_condition();
                let t = self.expr(dtype, depth - 1);
                Expr::if_then_else(c, t, self.expr(dtype, depth - 1))
            }
            4 => {
                let from = if self.tame { dtype } else { self.pick(&TYPES) };
                let value = self.expr(from, depth - 1);
                let var = Var::new("v", value.ty);
                self.lets.push(var.clone());
                let body = self.expr(dtype, depth - 1);
                self.lets.pop();
                Expr::let_in(var, value, body)
            }
            5 if dtype == DType::Int32 || dtype == DType::Int64 => {
                ramp(Expr::int(dtype, self.rng.random_range(-9..9)), 5, lanes)
            }
            6 => self.unary(dtype, depth),
            _ => self.binary(dtype, depth),
        }
    }

    fn unary(&mut self, dtype: DType, depth: u32) -> Expr {
        use UnOp::*;
        let op = match dtype {
            DType::Bool => Not,
            _ if dtype.is_float() => self.pick(&[Neg, Abs, Floor, Ceil, Round, Trunc, Sqrt]),
            _ => self.pick(&[Neg, Abs, BitNot, Popcount]),
        };
        Expr::unary(op, self.expr(dtype, depth - 1))
    }

    fn binary(&mut self, dtype: DType, depth: u32) -> Expr {
        use BinOp::*;
        if dtype == DType::Bool && self.chance(2) {
            let of = if self.tame { DType::Float32 } else { self.pick(&TYPES[..9]) };
            let op = self.pick(&[Lt, Le, Gt, Ge, Eq, Ne]);
            let a = self.expr(of, depth - 1);
            return Expr::binary(op, a, self.expr(of, depth - 1));
        }
        if dtype.is_float() && self.chance(6) {
            let args = (0..3).map(|_| self.expr(dtype, depth - 1)).collect();
            return Expr::call(Intrinsic::Fma, args);
        }
        let op = match dtype {
            DType::Bool => self.pick(&[And, Or, BitXor]),
            _ if dtype.is_float() => self.pick(&[Add, Sub, Mul, Div, Min, Max]),
            _ => {
                let ops = [Add, Sub, Mul, Min, Max, BitAnd, BitOr, BitXor, Shl, Shr, FloorDiv];
                self.pick(if self.tame { &ops[..10] } else { &ops })
            }
        };
        let a = self.expr(dtype, depth - 1);
        let b = match op {
            Shl | Shr if self.chance(2) => self.constant(dtype),
            _ => self.expr(dtype, depth - 1),
        };
        Expr::binary(op, a, b)
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

    fn store(&mut self) -> Stmt {
        let dtype = self.pick(&DType::ALL);
        let dtype = if self.tame { self.pick(&TYPES[..7]) } else { dtype };
        let buffer = self.outputs.iter().find(|buffer| buffer.dtype == dtype).unwrap().clone();
        let index = self.index();
        let mut value = self.expr(dtype.compute_type(), 3);
        if self.chance(2) {
            let old = Expr::cast(dtype.compute_type(), Expr::load(&buffer, vec![index.clone()]));
            let op = if dtype == DType::Bool { BinOp::BitXor } else { BinOp::Add };
            value = Expr::binary(op, old, value);
        }
        let mask = match self.rng.random_range(0..8) {
            0 => Some(broadcast(self.scalar_condition(), self.lanes)),
            1 | 2 if !self.tame => Some(self.expr(DType::Bool, 1)),
            _ => None,
        };
        let (indices, value) = (vec![index], Expr::cast(dtype, value));
        Stmt::Store { buffer, indices, value, mask, nontemporal: false }
    }

    fn stmt(&mut self, depth: u32) -> Stmt {
        match self.rng.random_range(0..7) {
            0 if depth > 0 => {
                let var = Var::index("i");
                self.loops.push(var.clone());
                let body = self.stmt(depth - 1);
                self.loops.pop();
                Stmt::serial(var, Expr::index(3), body)
            }
            1 if depth > 0 => {
                let dtype = if self.chance(4) { DType::Bool } else { self.pick(&TYPES) };
                let value = self.expr(dtype, 2);
                let var = Var::new("w", value.ty);
                self.lets.push(var.clone());
                let body = Box::new(Stmt::Block(vec![self.stmt(0), self.stmt(0)]));
                self.lets.pop();
                Stmt::Let { var, value, body }
            }
            2 if depth > 0 => {
                let stmt = self.stmt(depth - 1);
                self.in_parallel(stmt)
            }
            3 => self.accumulate(),
            _ => self.store(),
        }
    }

    /// Sets elements, possibly overlapping ones, and updates them in a loop.
    fn accumulate(&mut self) -> Stmt {
        let dtype = self.pick(&TYPES[..7]);
        let buffer = self.outputs.iter().find(|buffer| buffer.dtype == dtype).unwrap().clone();
        let elements: Vec<Expr> = (0..self.rng.random_range(1..4)).map(|_| self.index()).collect();
        let mut stmts: Vec<Stmt> = elements
            .iter()
            .map(|at| {
                Stmt::store(&buffer, vec![at.clone()], broadcast(self.constant(dtype), at.ty.lanes))
            })
            .collect();
        let var = Var::index("k");
        self.loops.push(var.clone());
        let updates = elements.iter().map(|at| {
            let from = self.pick(&elements);
            let value = Expr::add(Expr::load(&buffer, vec![from]), self.expr(dtype, 2));
            Stmt::store(&buffer, vec![at.clone()], value)
        });
        let body = Stmt::Block(updates.collect());
        self.loops.pop();
        stmts.push(Stmt::serial(var, Expr::index(3), body));
        Stmt::Block(stmts)
    }

    fn kernel(mut self, name: &str) -> Kernel {
        let mut stmts = Vec::new();
        for buffer in self.outputs.clone() {
            let var = Var::index("z");
            let value = Expr::load(&self.inputs[6], vec![Expr::var(&var)]);
            let store =
                Stmt::store(&buffer, vec![Expr::var(&var)], Expr::cast(buffer.dtype, value));
            stmts.push(Stmt::serial(var, Expr::index(LEN), store));
        }
        for _ in 0..5 {
            self.lanes = match self.rng.random_range(0..8) {
                0 => self.pick(&[28, 32, 64, 80]),
                _ => self.rng.random_range(1..=20),
            };
            self.tame = self.rng.random();
            stmts.push(self.stmt(2));
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
    for dtype in DType::ALL {
        let data = vec![0x55; (LEN as u64 * dtype.bytes()) as usize];
        tensors.push(Tensor { dtype, shape: vec![LEN], data });
    }
    tensors
}

fn interpret(kernel: &Kernel, seed: u64) -> Vec<Vec<u8>> {
    let mut values: Vec<Value> = arguments(seed).into_iter().map(Value::Tensor).collect();
    interp::run(kernel, &mut values).unwrap_or_else(|trap| panic!("SEED={seed}: {trap:?}"));
    let tensor = |value: &Value| match value {
        Value::Tensor(tensor) => canonical(tensor),
        _ => unreachable!("all are tensors"),
    };
    values.iter().map(tensor).collect()
}

/// Legalizes a kernel for the back end, with all passes before it or only the required ones.
fn legal(kernel: &Kernel, target: &Target, all: bool) -> Kernel {
    let mut kernel = kernel.clone();
    if all {
        kernel = promote_accumulators(kernel, target).expect("it never fails");
    }
    kernel = outline_simd(kernel, target).expect("it never fails");
    kernel = legalize_vectors(kernel, target).expect("it never fails");
    if all { hoist_invariants(kernel, target).expect("it never fails") } else { kernel }
}

#[test]
fn random_vectors_equal_the_interpreter() {
    let count: u64 = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let first: u64 = std::env::var("SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let kernels: Vec<Kernel> = (first..first + count)
        .map(|seed| Generator::new(seed).kernel(&format!("random_{seed}")))
        .collect();
    let expected: Vec<Vec<Vec<u8>>> =
        (first..).zip(&kernels).map(|(seed, kernel)| interpret(kernel, seed)).collect();
    for target in Target::all().into_iter().filter(Target::runs_here) {
        let legal: Vec<Kernel> = kernels
            .iter()
            .enumerate()
            .map(|(at, kernel)| legal(kernel, &target, at % 2 == 1))
            .collect();
        for ((seed, kernel), expected) in (first..).zip(&legal).zip(&expected) {
            let text = || print_kernel(kernel, Style::Full);
            verify_kernel(kernel).unwrap_or_else(|e| panic!("SEED={seed}: {e}\n{}", text()));
            let got = interpret(kernel, seed);
            for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
                let dtype = DType::ALL[at % 13];
                assert!(got == expected, "SEED={seed}: legalize_vectors, {dtype}:\n{}", text());
            }
        }
        let native = Native::build(&legal, &target);
        for ((seed, kernel), expected) in (first..).zip(&legal).zip(&expected) {
            let mut tensors = arguments(seed);
            let words: Vec<u64> =
                tensors.iter_mut().map(|tensor| tensor.data.as_mut_ptr() as u64).collect();
            assert_eq!(native.call(&format!("{}_body", kernel.name), &words), 0);
            for (tensor, expected) in tensors.iter().zip(expected) {
                let equal = canonical(tensor) == *expected;
                assert!(equal, "SEED={seed}: {} differs on {target}", tensor.dtype);
            }
        }
    }
}

/// The same on other CPU families under QEMU, if it is installed.
#[test]
fn random_vectors_equal_the_interpreter_elsewhere() {
    let seeds = 700..800;
    let kernels: Vec<Kernel> =
        seeds.clone().map(|seed| Generator::new(seed).kernel(&format!("random_{seed}"))).collect();
    let tensors: Vec<Vec<Vec<u8>>> = seeds
        .clone()
        .map(|seed| arguments(seed).into_iter().map(|tensor| tensor.data).collect())
        .collect();
    for name in ["aarch64", "riscv64"] {
        let target = Target::parse(name).unwrap();
        let legal: Vec<Kernel> =
            kernels.iter().map(|kernel| legal(kernel, &target, true)).collect();
        let Some(results) = emulate(&legal, &target, &tensors) else { continue };
        for ((seed, kernel), results) in seeds.clone().zip(&kernels).zip(results) {
            let expected = interpret(kernel, seed);
            for ((tensor, data), expected) in arguments(seed).into_iter().zip(results).zip(expected)
            {
                let got = canonical(&Tensor { data, ..tensor.clone() });
                assert!(got == expected, "SEED={seed}: {} differs on {target}", tensor.dtype);
            }
        }
    }
}

/// `legalize_vectors` leaves no operation that a target lacks.
#[test]
fn vectors_compile_for_every_target() {
    let kernels: Vec<Kernel> =
        (500..560).map(|seed| Generator::new(seed).kernel(&format!("random_{seed}"))).collect();
    for target in Target::cpus() {
        let legal: Vec<Kernel> = kernels
            .iter()
            .map(|kernel| legalize_vectors(kernel.clone(), &target).expect("it never fails"))
            .collect();
        super::harness::object(&legal, &target, 3);
    }
}

/// `C[r*m + 0..16] += A[r*l + k] * B[k*m + 0..16]` for four rows and the 16 columns from 16.
fn tile(rows: i64, fma: bool) -> Kernel {
    let (f32, l, m) = (DType::Float32, 9, 40);
    let tensor = |name: &str, n: i64| Buffer::new(name, f32, vec![Expr::index(n)], Scope::Global);
    let (a, b, c) = (tensor("A", rows * l), tensor("B", l * m), tensor("C", rows * m));
    let (k, lanes) = (Var::index("k"), 16);
    let k_l = Expr::var(&k);
    let at = |row: i64| ramp(Expr::index(row * m + 16), 1, lanes);
    let zero = broadcast(Expr::float(f32, 0.0), lanes);
    let init = (0..rows).map(|row| Stmt::store(&c, vec![at(row)], zero.clone())).collect();
    let b_k = Expr::add(Expr::mul(k_l.clone(), Expr::index(m)), Expr::index(16));
    let b_k = Expr::load(&b, vec![ramp(b_k, 1, lanes)]);
    let update = (0..rows).map(|row| {
        let a_k = Expr::load(&a, vec![Expr::add(Expr::index(row * l), k_l.clone())]);
        let (x, y, old) = (broadcast(a_k, lanes), b_k.clone(), Expr::load(&c, vec![at(row)]));
        let value = match fma {
            true => Expr::call(Intrinsic::Fma, vec![x, y, old]),
            false => Expr::add(Expr::mul(x, y), old),
        };
        Stmt::store(&c, vec![at(row)], value)
    });
    let nest = Stmt::serial(k.clone(), Expr::index(l), Stmt::Block(update.collect()));
    let param = |buffer: &Buffer, output| Param::Tensor {
        buffer: buffer.clone(),
        role: if output { Role::Output } else { Role::Input },
        layout_free: false,
    };
    let params = vec![param(&a, false), param(&b, false), param(&c, true)];
    kernel("tile", params, Stmt::Block(vec![Stmt::Block(init), nest]))
}

/// `R[ramp(0, 1, lanes)] = f(A[ramp(0, 1, lanes)])`, or the same element by element.
fn function(f: Intrinsic, dtype: DType, name: String, lanes: Option<u32>) -> Kernel {
    let shape = || vec![Expr::index(LEN)];
    let [a, r] = ["A", "R"].map(|name| Buffer::new(name, dtype, shape(), Scope::Global));
    let i = Var::index("i");
    let index = match lanes {
        Some(lanes) => ramp(Expr::var(&i), 1, lanes),
        None => Expr::var(&i),
    };
    let x = Expr::load(&a, vec![index.clone()]);
    let args = if f == Intrinsic::Pow { vec![x.clone(), x] } else { vec![x] };
    let store = Stmt::store(&r, vec![index], Expr::call(f, args));
    let param = |buffer: &Buffer, output| Param::Tensor {
        buffer: buffer.clone(),
        role: if output { Role::Output } else { Role::Input },
        layout_free: false,
    };
    let params = vec![param(&a, false), param(&r, true)];
    let count = LEN - i64::from(lanes.unwrap_or(1)) + 1;
    kernel(&name, params, Stmt::serial(i, Expr::index(count), store))
}

/// A math function gives the same bits in a lane as for a scalar, on targets with and without
/// vectors of its type, and in nests of the SIMD back end.
#[test]
fn functions_on_vectors_equal_scalars() {
    use Intrinsic::*;
    let functions =
        [Exp, Exp2, Expm1, Log, Log2, Tanh, Sigmoid, Rsqrt, Erf, Sin, Cos, Tan, Atan, Pow];
    for target in Target::all().into_iter().filter(Target::runs_here) {
        let (mut kernels, mut native_ones) = (Vec::new(), Vec::new());
        for (f, dtype) in
            functions.iter().flat_map(|f| [DType::Float32, DType::Float64].map(|dtype| (*f, dtype)))
        {
            let name = |form: &str| format!("{}_{dtype}_{form}", f.name());
            let vector = function(f, dtype, name("vector"), Some(19));
            let vector = legalize_vectors(vector, &target).unwrap();
            if !print_kernel(&vector, Style::Full).contains("for (lane") {
                native_ones.push(name("vector"));
            }
            let nest = outline_simd(function(f, dtype, name("nest"), Some(16)), &target).unwrap();
            let nest = legalize_vectors(nest, &target).unwrap();
            for kernel in [function(f, dtype, name("scalar"), None), vector, nest] {
                kernels.push(expand_math(kernel, &target).unwrap());
            }
        }
        let wanted = |name: &&str| native_ones.iter().any(|native| native == name);
        let easy = ["exp_float32_vector", "tanh_float32_vector", "exp_float64_vector"];
        assert!(!target.fma || easy.iter().all(wanted), "{target}: {native_ones:?}");
        let native = Native::build(&kernels, &target);
        for same in kernels.chunks(3) {
            let wide = same[0].name.contains("float64");
            let bits = |i: i64| match (i % 6, wide) {
                (0, _) => i as u64,
                (1, false) => (i as f32 * 0.37 - 12.0).to_bits().into(),
                (1, true) => (i as f64 * 0.37 - 12.0).to_bits(),
                (2, false) => (i as f32 * 9.5 - 200.0).to_bits().into(),
                (2, true) => (i as f64 * 40.0 - 1000.0).to_bits(),
                (3, false) => u64::from(f32::NAN.to_bits()),
                (3, true) => f64::INFINITY.to_bits(),
                (4, _) => 0x7f80_0000,
                (_, false) => 0x8000_0000,
                (_, true) => 1 << 63,
            };
            let size = if wide { 8 } else { 4 };
            let mut a: Vec<u8> =
                (0..LEN).flat_map(|i| bits(i).to_le_bytes().into_iter().take(size)).collect();
            let run = |name: &str, a: &mut Vec<u8>| {
                let mut data = vec![0u8; LEN as usize * size];
                let words = [a.as_mut_ptr() as u64, data.as_mut_ptr() as u64];
                assert_eq!(native.call(&format!("{name}_body"), &words), 0);
                let dtype = if wide { DType::Float64 } else { DType::Float32 };
                canonical(&Tensor { dtype, shape: vec![LEN], data })
            };
            let alone = run(&same[0].name, &mut a);
            for vectors in &same[1..] {
                assert!(alone == run(&vectors.name, &mut a), "{} on {target}", vectors.name);
            }
        }
    }
}

/// The listing shows tasks with their names and loops.
#[test]
fn listings_show_vectors_and_tasks() {
    let target = Target::parse("x86-avx2").unwrap();
    let kernel = promote_accumulators(tile(2, true), &target).unwrap();
    let kernel = legalize_vectors(kernel, &target).unwrap();
    let (var, min, extent) = (Var::index("i"), Expr::index(0), Expr::index(3));
    let (kind, body) = (ForKind::Parallel, Box::new(kernel.body.clone()));
    let body = Stmt::For { var, min, extent, kind, body };
    let options = ObjectOptions { listing: true, opt: 3, ..ObjectOptions::default() };
    let object = compile_object(&[Kernel { body, ..kernel }], &target, &options).unwrap();
    let text = object.listing.expect("asked for");
    let (_, task) = text.split_once("\ntile.task.0:").expect("it is listed");
    let task = task.split_once(".type").map_or(task, |(task, _)| task);
    assert_eq!(task.matches("vfmadd").count(), 8, "{task}");
    assert!(task.contains("# C.acc[ramp(4, 1, 4)] = ..."), "{task}");
}

/// All rows of a register tile accumulate in vector registers.
#[test]
fn tiles_of_matmul_are_in_registers() {
    let rows = 4;
    for target in Target::all().into_iter().filter(Target::runs_here) {
        let after = promote_accumulators(tile(rows, target.fma), &target).unwrap();
        let after = legalize_vectors(after, &target).unwrap();
        verify_kernel(&after).expect("both passes keep the rules");
        let text = print_kernel(&after, Style::Full);
        assert_eq!(text.matches("register").count(), 4, "{text}");
        let inside = text.split_once("for (k").expect("the loop is there").1;
        let inside = inside.split_once("  }").expect("it ends").0;
        assert!(!inside.contains("C["), "{text}");
        let native = Native::build(std::slice::from_ref(&after), &target);
        let mut a: Vec<f32> = (0..36).map(|i| i as f32 * 0.37 - 3.0).collect();
        let mut b: Vec<f32> = (0..360).map(|i| 2.0 - i as f32 * 0.11).collect();
        let mut c = vec![1f32; 160];
        let words = [&mut a, &mut b, &mut c].map(|list| list.as_mut_ptr() as u64);
        assert_eq!(native.call("tile_body", &words), 0);
        for (at, got) in c.iter().enumerate() {
            let (row, column) = (at / 40, at % 40);
            let inside = (16..32).contains(&column);
            let terms = (0..9).map(|k| (a[row * 9 + k], b[k * 40 + column]));
            let sum = terms.fold(0f32, |sum, (x, y)| match target.fma {
                true => x.mul_add(y, sum),
                false => x * y + sum,
            });
            assert_eq!(*got, if inside { sum } else { 1.0 }, "C[{row}, {column}] on {target}");
        }
    }
}

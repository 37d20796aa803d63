//! Every operation on every element type, on special values, against the interpreter; and the
//! same kernels compiled for the targets that do not run here.

use super::harness::{Native, kernel, object};
use crate::ir::interp::{self, Tensor, Value};
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, Intrinsic, Kernel, Param, Role, Scope, Stmt,
};
use crate::ir::{Type, UnOp, Var};
use crate::lower::legalize_vectors::legalize_vectors;
use crate::target::Target;

/// Bit patterns of the special values of a type.
fn special_values(dtype: DType) -> Vec<u64> {
    if dtype.is_float() {
        return special_floats(dtype);
    }
    if dtype == DType::Bool {
        return vec![0, 1];
    }
    let (min, max) = dtype.int_range();
    let mut values = vec![min, min + 1, min / 2, max / 2, max / 2 + 1, max - 1, max];
    values.extend([-100, -17, -8, -7, -3, -2, -1, 0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, 100]);
    let mut bits: Vec<u64> =
        values.into_iter().map(|value| dtype.wrap(value) as u64 & mask(dtype)).collect();
    bits.sort_unstable();
    bits.dedup();
    bits
}

fn mask(dtype: DType) -> u64 {
    if dtype.bits() == 64 { u64::MAX } else { (1 << dtype.bits()) - 1 }
}

fn special_floats(dtype: DType) -> Vec<u64> {
    let (mantissa, bits) = match dtype {
        DType::Float64 => (52, 64),
        DType::Float32 => (23, 32),
        DType::Float16 => (10, 16),
        _ => (7, 16),
    };
    let exponent_max = (1u64 << (bits - 1 - mantissa)) - 1;
    let infinity = exponent_max << mantissa;
    let mut magnitudes = vec![0, 1, 2, 3, (1 << mantissa) - 1, 1 << mantissa, (1 << mantissa) + 1];
    magnitudes.extend([infinity - 1, infinity, infinity + (1 << (mantissa - 1))]);
    let numbers = [
        0.25,
        0.5,
        0.75,
        1.0,
        1.5,
        2.0,
        2.5,
        3.0,
        3.5,
        100.25,
        126.9,
        127.5,
        128.0,
        254.5,
        255.9,
        256.0,
        32767.5,
        32768.0,
        65504.0,
        65519.9,
        65520.0,
        65535.9,
        65536.0,
        2147483647.5,
        2147483648.0,
        4294967295.5,
        4294967296.0,
        9.2e18,
        9223372036854775808.0,
        1.8e19,
        18446744073709551616.0,
        5.9e-8,
        2.9e-8,
        2.98e-8,
        6.1e-5,
        6.0975e-5,
        1e-40,
        1e38,
        3.4028235e38,
        3.40282357e38,
        1.00048828125,
        1.0014648,
        1.00390625,
        1.01171875,
        1.000488281251,
        1.00146484374,
        0.1,
        1e300,
    ];
    magnitudes.extend(numbers.map(|value: f64| match dtype {
        DType::Float64 => value.to_bits(),
        DType::Float32 => (value as f32).to_bits().into(),
        DType::Float16 => half::f16::from_f64(dtype.round_float(value)).to_bits().into(),
        half => half::bf16::from_f64(half.round_float(value)).to_bits().into(),
    }));
    magnitudes.sort_unstable();
    magnitudes.dedup();
    magnitudes.iter().flat_map(|m| [*m, m | 1 << (bits - 1)]).collect()
}

/// A kernel `R[i] = f(inputs[i]…)` with the data of its inputs.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) kernel: Kernel,
    pub(super) inputs: Vec<Tensor>,
    pub(super) result: DType,
    pub(super) count: usize,
}

/// Least number of elements of a case, more than the lanes of any vector.
const MIN_ELEMENTS: usize = 72;

impl Case {
    /// A case of these columns; short columns are repeated.
    pub(super) fn new(
        name: String,
        columns: &[(DType, Vec<u64>)],
        f: impl Fn(&[Expr]) -> Expr,
    ) -> Case {
        let count = columns[0].1.len().max(MIN_ELEMENTS);
        let shape = vec![Expr::index(count as i64)];
        let i = Var::index("i");
        let (mut params, mut inputs, mut operands) = (Vec::new(), Vec::new(), Vec::new());
        for (position, (dtype, bits)) in columns.iter().enumerate() {
            let name = format!("A{position}");
            let buffer = Buffer::new(name, *dtype, shape.clone(), Scope::Global);
            let indices = vec![Expr::var(&i)];
            let load = ExprKind::Load { buffer: buffer.clone(), indices, mask: None };
            operands.push(Expr::new(*dtype, load));
            params.push(Param::Tensor { buffer, role: Role::Input, layout_free: false });
            let bytes = dtype.bytes() as usize;
            let bits = bits.iter().cycle().take(count);
            let data = bits.flat_map(|b| b.to_le_bytes().into_iter().take(bytes)).collect();
            inputs.push(Tensor { dtype: *dtype, shape: vec![count as i64], data });
        }
        let value = f(&operands);
        let result = value.ty.dtype;
        let buffer = Buffer::new("R", result, shape, Scope::Global);
        let store = Stmt::store(&buffer, vec![Expr::var(&i)], value);
        params.push(Param::Tensor { buffer, role: Role::Output, layout_free: false });
        let body = Stmt::serial(i, Expr::index(count as i64), store);
        Case { kernel: kernel(&name, params, body), inputs, result, count }
    }

    /// The same operation on vectors of `lanes` lanes; the last vector ends at the last element.
    pub(super) fn in_vectors(&self, lanes: u32) -> Case {
        let Stmt::For { extent, body, .. } = &self.kernel.body else {
            unreachable!("made by `new`")
        };
        let Stmt::Store { buffer, value, .. } = &**body else { unreachable!("made by `new`") };
        let step = i64::from(lanes);
        let last = Expr::index(self.count as i64 - step);
        let part = Var::index("part");
        let first = Expr::binary(BinOp::Min, Expr::mul(Expr::var(&part), Expr::index(step)), last);
        let index = match lanes {
            1 => first,
            _ => {
                let ty = Type { dtype: DType::Index, lanes };
                Expr::new(ty, ExprKind::Ramp(first, Expr::index(1)))
            }
        };
        let store = Stmt::store(buffer, vec![index.clone()], widen(value, &index));
        let parts = (extent.as_int().expect("a constant") as i64 + step - 1) / step;
        let body = Stmt::serial(part, Expr::index(parts), store);
        Case { kernel: Kernel { body, ..self.kernel.clone() }, ..self.clone() }
    }

    fn native(&self, native: &Native) -> Vec<u8> {
        let mut inputs = self.inputs.clone();
        let mut output = vec![0xaau8; self.count * self.result.bytes() as usize];
        let mut words: Vec<u64> =
            inputs.iter_mut().map(|tensor| tensor.data.as_mut_ptr() as u64).collect();
        words.push(output.as_mut_ptr() as u64);
        assert_eq!(native.call(&format!("{}_body", self.kernel.name), &words), 0);
        output
    }

    pub(super) fn interpreted(&self) -> Vec<u8> {
        let shape = vec![self.count as i64];
        let data = vec![0; self.count * self.result.bytes() as usize];
        let mut args: Vec<Value> = self.inputs.iter().cloned().map(Value::Tensor).collect();
        args.push(Value::Tensor(Tensor { dtype: self.result, shape, data }));
        interp::run(&self.kernel, &mut args).expect("it runs");
        match args.pop() {
            Some(Value::Tensor(tensor)) => tensor.data,
            _ => unreachable!("the output was put there"),
        }
    }

    fn compare(&self, native: &Native) {
        if let Err(message) = self.compare_with(native, &self.interpreted()) {
            panic!("{message}");
        }
    }

    /// Compares the result of machine code, and describes the first difference.
    pub(super) fn compare_with(&self, native: &Native, expected: &[u8]) -> Result<(), String> {
        let got = self.native(native);
        let bytes = self.result.bytes() as usize;
        for index in 0..self.count {
            let part = |data: &[u8]| {
                let mut word = [0; 8];
                word[..bytes].copy_from_slice(&data[index * bytes..][..bytes]);
                canonical(self.result, u64::from_le_bytes(word))
            };
            let (got, expected) = (part(&got), part(expected));
            if got != expected {
                let operands: Vec<String> = self
                    .inputs
                    .iter()
                    .map(|tensor| {
                        let size = tensor.dtype.bytes() as usize;
                        let hex = tensor.data[index * size..][..size].iter().rev();
                        hex.map(|byte| format!("{byte:02x}")).collect()
                    })
                    .collect();
                let name = &self.kernel.name;
                return Err(format!(
                    "{name} of {operands:?}: {got:x}, the interpreter has {expected:x}"
                ));
            }
        }
        Ok(())
    }
}

/// `expr` in as many lanes as the index `ramp` has.
fn widen(expr: &Expr, ramp: &Expr) -> Expr {
    let lift = |expr: &Expr| widen(expr, ramp);
    match &expr.kind {
        ExprKind::Const(_) if ramp.ty.lanes == 1 => expr.clone(),
        ExprKind::Const(_) => {
            let ty = Type { dtype: expr.ty.dtype, lanes: ramp.ty.lanes };
            Expr::new(ty, ExprKind::Broadcast(expr.clone()))
        }
        ExprKind::Load { buffer, .. } => Expr::load(buffer, vec![ramp.clone()]),
        ExprKind::Unary(op, a) => Expr::unary(*op, lift(a)),
        ExprKind::Binary(op, a, b) => Expr::binary(*op, lift(a), lift(b)),
        ExprKind::Cast(a) => Expr::cast(expr.ty.dtype, lift(a)),
        ExprKind::Bitcast(a) => Expr::bitcast(expr.ty.dtype, lift(a)),
        ExprKind::Select(c, t, f) => Expr::select(lift(c), lift(t), lift(f)),
        ExprKind::Call(function, args) => Expr::call(*function, args.iter().map(lift).collect()),
        _ => unreachable!("no case has {expr:?}"),
    }
}

/// Replaces all NaNs by one.
fn canonical(dtype: DType, bits: u64) -> u64 {
    let (magnitude, infinity) = match dtype {
        DType::Float64 => (bits & i64::MAX as u64, f64::INFINITY.to_bits()),
        DType::Float32 => (bits & i32::MAX as u64, f32::INFINITY.to_bits().into()),
        DType::Float16 => (bits & i16::MAX as u64, 0x7c00),
        DType::BFloat16 => (bits & i16::MAX as u64, 0x7f80),
        _ => return bits,
    };
    if magnitude > infinity { u64::MAX } else { bits }
}

/// Every pair of two lists, as two columns.
fn pairs(a: &[u64], b: &[u64]) -> (Vec<u64>, Vec<u64>) {
    a.iter().flat_map(|x| b.iter().map(move |y| (*x, *y))).unzip()
}

pub(super) fn binary_cases() -> Vec<Case> {
    use BinOp::*;
    let mut cases = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_half()) {
        let mut ops = vec![Min, Max, Eq, Ne, Lt, Le, Gt, Ge];
        if dtype.is_float() {
            ops.extend([Add, Sub, Mul, Div]);
        } else if dtype == DType::Bool {
            ops = vec![Eq, Ne, Lt, Le, Gt, Ge, BitAnd, BitOr, BitXor, And, Or];
        } else {
            ops.extend([Add, Sub, Mul, FloorDiv, FloorMod, BitAnd, BitOr, BitXor, Shl, Shr]);
        }
        let values = special_values(dtype);
        let (a, b) = pairs(&values, &values);
        for op in ops {
            let columns = [(dtype, a.clone()), (dtype, b.clone())];
            cases.push(Case::new(format!("{op:?}_{dtype}"), &columns, |x| {
                Expr::binary(op, x[0].clone(), x[1].clone())
            }));
        }
    }
    cases
}

pub(super) fn unary_cases() -> Vec<Case> {
    use UnOp::*;
    let mut cases = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_half()) {
        let ops = match dtype {
            DType::Bool => vec![Not],
            _ if dtype.is_float() => vec![Neg, Abs, Floor, Ceil, Round, Trunc, Sqrt, IsNan],
            _ => vec![Neg, BitNot, Abs, Popcount],
        };
        for op in ops {
            let columns = [(dtype, special_values(dtype))];
            cases.push(Case::new(format!("{op:?}_{dtype}"), &columns, |x| {
                Expr::unary(op, x[0].clone())
            }));
        }
    }
    cases
}

pub(super) fn cast_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for from in DType::ALL {
        for to in DType::ALL {
            let columns = [(from, special_values(from))];
            cases.push(Case::new(format!("{from}_to_{to}"), &columns, |x| {
                Expr::cast(to, x[0].clone())
            }));
        }
    }
    for (a, b) in [
        (DType::Float32, DType::Int32),
        (DType::Uint32, DType::Float32),
        (DType::Float64, DType::Uint64),
        (DType::Int64, DType::Float64),
        (DType::Int8, DType::Uint8),
        (DType::Uint16, DType::Int16),
    ] {
        let columns = [(a, special_values(a))];
        cases.push(Case::new(format!("{a}_as_{b}"), &columns, |x| {
            Expr::new(b, ExprKind::Bitcast(x[0].clone()))
        }));
    }
    cases
}

/// Division by constants, and a fused multiply-add of three lists.
pub(super) fn other_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let values = special_values(dtype);
        for (position, bits) in values.iter().enumerate() {
            let divisor = || Expr::int(dtype, i128::from(*bits));
            for op in [BinOp::FloorDiv, BinOp::FloorMod, BinOp::Mul, BinOp::Shl, BinOp::Shr] {
                let columns = [(dtype, values.clone())];
                cases.push(Case::new(format!("{op:?}_{dtype}_{position}"), &columns, |x| {
                    Expr::binary(op, x[0].clone(), divisor())
                }));
            }
        }
    }
    for dtype in [DType::Float32, DType::Float64] {
        let values = special_values(dtype);
        let short: Vec<u64> = values.iter().copied().step_by(7).collect();
        let (a, b) = pairs(&values, &values);
        let (ab, c) = pairs(&(0..a.len() as u64).collect::<Vec<_>>(), &short);
        let pick = |list: &[u64]| ab.iter().map(|i| list[*i as usize]).collect::<Vec<u64>>();
        let columns = [(dtype, pick(&a)), (dtype, pick(&b)), (dtype, c)];
        cases.push(Case::new(format!("fma_{dtype}"), &columns, |x| {
            Expr::new(dtype, ExprKind::Call(Intrinsic::Fma, x.to_vec()))
        }));
    }
    cases
}

/// `Select` of every type, by a comparison of another one.
pub(super) fn select_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (position, dtype) in DType::ALL.into_iter().filter(|dtype| !dtype.is_half()).enumerate() {
        let others = [DType::Int8, DType::Int16, DType::Float32, DType::Float64, DType::Uint64];
        let mut by = vec![dtype, others[position % 5], others[(position + 2) % 5]];
        by.dedup();
        for by in by {
            let (a, b) = pairs(&special_values(by), &special_values(dtype));
            let c: Vec<u64> = a.iter().rev().copied().collect();
            let d: Vec<u64> = b.iter().rev().copied().collect();
            let columns = [(by, a), (by, c), (dtype, b), (dtype, d)];
            let op = if by == DType::Bool { BinOp::Ne } else { BinOp::Lt };
            cases.push(Case::new(format!("select_{dtype}_by_{by}"), &columns, |x| {
                let [a, c, b, d] = x else { unreachable!("four columns") };
                Expr::select(Expr::binary(op, a.clone(), c.clone()), b.clone(), d.clone())
            }));
        }
    }
    cases
}

fn all_cases() -> Vec<Case> {
    let mut cases = binary_cases();
    cases.extend(unary_cases());
    cases.extend(cast_cases());
    cases.extend(other_cases());
    cases.extend(select_cases());
    cases
}

#[test]
fn operations_equal_the_interpreter() {
    let cases = all_cases();
    let kernels: Vec<Kernel> = cases.iter().map(|case| case.kernel.clone()).collect();
    for target in Target::all().into_iter().filter(Target::runs_here) {
        let levels: &[u8] = if target.name == Target::native().name { &[0, 3] } else { &[3] };
        for opt in levels.iter().copied() {
            let native = Native::build_at(&kernels, &target, opt);
            cases.iter().for_each(|case| case.compare(&native));
        }
    }
}

#[test]
fn operations_on_vectors_equal_the_interpreter() {
    for target in Target::all().into_iter().filter(Target::runs_here) {
        let legal = |case: Case| {
            let Case { kernel, .. } = case.in_vectors(8);
            let kernel = legalize_vectors(kernel, &target).expect("it never fails");
            Case { kernel, ..case }
        };
        let cases: Vec<Case> = all_cases().into_iter().map(legal).collect();
        let kernels: Vec<Kernel> = cases.iter().map(|case| case.kernel.clone()).collect();
        let native = Native::build(&kernels, &target);
        cases.iter().for_each(|case| case.compare(&native));
    }
}

/// No target needs a function of libc or libm: only the runtime's names are undefined.
#[test]
fn operations_compile_for_every_target() {
    use object::{Object, ObjectSymbol};
    let kernels: Vec<Kernel> = all_cases().into_iter().map(|case| case.kernel).collect();
    for target in Target::cpus() {
        let bytes = object(&kernels, &target, 3);
        let file = object::File::parse(&*bytes).unwrap();
        let names = file.symbols().filter(|symbol| symbol.is_undefined());
        let names: Vec<&str> = names.map(|symbol| symbol.name().unwrap()).collect();
        let foreign = names.iter().find(|name| !name.is_empty() && !name.starts_with("tec_rt_"));
        assert_eq!(foreign, None, "{target}");
    }
}

//! The interpreter, operation by operation.

use super::*;
use crate::ir::{BinOp, ExprKind, ForKind, Intrinsic, Scope, Source, Type, UnOp};

/// Returns a kernel without checks with these inputs and outputs.
fn kernel(inputs: &[&Buffer], outputs: &[&Buffer], body: Stmt) -> Kernel {
    let param = |buffer: &&Buffer, output| Param::Tensor {
        buffer: (*buffer).clone(),
        role: if output { Role::Output } else { Role::Input },
        layout_free: false,
    };
    let inputs = inputs.iter().map(|buffer| param(buffer, false));
    let params = inputs.chain(outputs.iter().map(|buffer| param(buffer, true))).collect();
    Kernel::new("test", params, body)
}

fn global(name: &str, dtype: DType, shape: &[i64]) -> Buffer {
    let shape = shape.iter().map(|extent| Expr::index(*extent)).collect();
    Buffer::new(name, dtype, shape, Scope::Global)
}

fn floats(shape: &[i64], value: impl Fn(usize) -> f32) -> Value {
    let len = shape.iter().product::<i64>() as usize;
    let data = (0..len).flat_map(|i| value(i).to_le_bytes()).collect();
    Value::Tensor(Tensor { dtype: DType::Float32, shape: shape.to_vec(), data })
}

fn read_floats(value: &Value) -> Vec<f32> {
    let Value::Tensor(tensor) = value else { panic!("no tensor") };
    tensor.data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn serial(var: &Var, extent: i64, body: Stmt) -> Stmt {
    Stmt::serial(var.clone(), Expr::index(extent), body)
}

/// Evaluates an expression without variables.
fn value(expr: &Expr) -> u64 {
    Evaluator::new(std::slice::from_ref(expr), &[]).unwrap().eval(&[]).unwrap()[0]
}

fn int(dtype: DType, value: i128) -> Expr {
    Expr::int(dtype, value)
}

fn float(value: f64) -> Expr {
    Expr::float(DType::Float32, value)
}

fn matmul(n: i64) -> (Kernel, Vec<Value>) {
    let shape = [n, n];
    let [a, b, c] = ["A", "B", "C"].map(|name| global(name, DType::Float32, &shape));
    let [x, y, k] = ["x", "y", "k"].map(Var::index);
    let at = |i: &Var, j: &Var| vec![Expr::var(i), Expr::var(j)];
    let load = |buffer: &Buffer, i: &Var, j: &Var| Expr::load(buffer, at(i, j));
    let fma = vec![load(&a, &x, &k), load(&b, &k, &y), load(&c, &x, &y)];
    let update = Stmt::store(&c, at(&x, &y), Expr::call(Intrinsic::Fma, fma));
    let init = Stmt::store(&c, at(&x, &y), float(0.0));
    let body = serial(&x, n, serial(&y, n, Stmt::Block(vec![init, serial(&k, n, update)])));
    let args = vec![
        floats(&shape, |i| (i % 7) as f32),
        floats(&shape, |i| (i % 5) as f32),
        floats(&shape, |_| f32::NAN),
    ];
    (kernel(&[&a, &b], &[&c], body), args)
}

#[test]
fn multiplies_matrices() {
    let (kernel, mut args) = matmul(16);
    run(&kernel, &mut args).unwrap();
    let (a, b, c) = (read_floats(&args[0]), read_floats(&args[1]), read_floats(&args[2]));
    for (i, c) in c.iter().enumerate() {
        let (x, y) = (i / 16, i % 16);
        let sum: f32 = (0..16).map(|k| a[x * 16 + k] * b[k * 16 + y]).sum();
        assert_eq!(*c, sum);
    }
}

#[test]
fn integers_follow_the_specification() {
    use DType::*;
    let op = |op, dtype, a, b| {
        let result = Expr::binary(op, int(dtype, a), int(dtype, b));
        decode_int(result.ty.dtype, value(&result))
    };
    assert_eq!(op(BinOp::Add, Int8, 127, 1), -128);
    assert_eq!(op(BinOp::Mul, Uint16, 65535, 65535), 1);
    assert_eq!(op(BinOp::FloorDiv, Int32, -7, 2), -4);
    assert_eq!(op(BinOp::FloorDiv, Int32, 7, -2), -4);
    assert_eq!(op(BinOp::FloorMod, Int32, -7, 2), 1);
    assert_eq!(op(BinOp::FloorMod, Int32, 7, -2), -1);
    assert_eq!(op(BinOp::FloorDiv, Int8, -128, -1), -128);
    assert_eq!(op(BinOp::FloorMod, Int8, -128, -1), 0);
    assert_eq!(op(BinOp::FloorDiv, Uint64, 5, 0), 0);
    assert_eq!(op(BinOp::FloorMod, Uint64, 5, 0), 0);
    assert_eq!(op(BinOp::FloorMod, Uint8, 250, 7), 5);
    assert_eq!(op(BinOp::Shl, Int8, 1, 9), 2);
    assert_eq!(op(BinOp::Shr, Int8, -128, 15), -1);
    assert_eq!(op(BinOp::Shr, Uint8, 128, 7), 1);
    assert_eq!(op(BinOp::Lt, Uint64, 1, u64::MAX as i128), 1);
    assert_eq!(op(BinOp::FloorDiv, Index, -7, 2), -4);
    assert_eq!(op(BinOp::FloorDiv, Index, 7, -2), -4);
    assert_eq!(op(BinOp::FloorDiv, Index, -6, -2), 3);
    let abs = Expr::unary(UnOp::Abs, int(Int16, -32768));
    assert_eq!(decode_int(Int16, value(&abs)), -32768);
    let ones = Expr::unary(UnOp::Popcount, int(Int8, -1));
    assert_eq!(value(&ones), 8);
}

#[test]
fn conversions_follow_the_specification() {
    use DType::*;
    let to_int = |value_: f64, dtype| {
        let cast = Expr::cast(dtype, Expr::float(Float64, value_));
        decode_int(dtype, value(&cast))
    };
    assert_eq!(to_int(-1.9, Int8), -1);
    assert_eq!(to_int(1e30, Int64), i64::MAX as i128);
    assert_eq!(to_int(-5.0, Uint32), 0);
    assert_eq!(to_int(f64::NAN, Int16), 0);
    assert_eq!(to_int(f64::NAN, Bool), 1);
    assert_eq!(to_int(-0.0, Bool), 0);
    assert_eq!(to_int(f64::INFINITY, Uint64), u64::MAX as i128);
    let wraps = Expr::cast(Int8, int(Uint64, u64::MAX as i128));
    assert_eq!(decode_int(Int8, value(&wraps)), -1);
    // Through float32 first: 2049 + tiny would round up, 16777217 ties down to 16777216.
    let half = Expr::cast(Float16, int(Int32, 2049));
    assert_eq!(decode_float(Float16, value(&half)), 2048.0);
    let same = Expr::bitcast(Int32, float(-0.0));
    assert_eq!(decode_int(Int32, value(&same)), i32::MIN as i128);
    let back = Expr::bitcast(Float32, int(Int32, -1));
    assert!(decode_float(Float32, value(&back)).is_nan());
}

#[test]
fn min_and_max_return_the_second_operand_if_neither_is_less() {
    let bits = |op, a: f64, b: f64| value(&Expr::binary(op, float(a), float(b)));
    let f = |x: f64| encode_float(DType::Float32, x);
    assert_eq!(bits(BinOp::Max, f64::NAN, 1.0), f(1.0));
    assert_eq!(bits(BinOp::Min, 0.0, -0.0), f(-0.0));
    assert_eq!(bits(BinOp::Max, -0.0, 0.0), f(0.0));
    assert!(decode_float(DType::Float32, bits(BinOp::Min, 1.0, f64::NAN)).is_nan());
}

#[test]
fn branches_are_lazy_and_shared_nodes_are_evaluated_once() {
    let a = global("A", DType::Float32, &[4]);
    let c = global("C", DType::Float32, &[8]);
    let i = Var::index("i");
    let inside = Expr::lt(Expr::var(&i), Expr::index(4));
    let load = Expr::load(&a, vec![Expr::var(&i)]);
    // x is first used in a branch and shared through forty levels; the tree has 2^40 nodes.
    let mut x = Expr::if_then_else(inside.clone(), load, float(-1.0));
    for level in 0..40 {
        let cond = Expr::lt(Expr::var(&i), Expr::index(level % 6));
        let (t, f) = (Expr::add(x.clone(), float(1.0)), Expr::add(x, float(2.0)));
        x = Expr::if_then_else(cond, t, f);
    }
    let body = serial(&i, 8, Stmt::store(&c, vec![Expr::var(&i)], x));
    let mut args = vec![floats(&[4], |i| i as f32), floats(&[8], |_| 0.0)];
    run(&kernel(&[&a], &[&c], body), &mut args).unwrap();
    let expected = (0..8).map(|i| {
        let start = if i < 4 { i as f32 } else { -1.0 };
        start + (0..40).map(|level| if i < level % 6 { 1.0 } else { 2.0 }).sum::<f32>()
    });
    assert_eq!(read_floats(&args[1]), expected.collect::<Vec<_>>());
}

#[test]
fn vectors_masks_and_loop_kinds() {
    let a = global("A", DType::Float32, &[6]);
    let c = global("C", DType::Float32, &[8]);
    let ramp = Expr::new(
        Type { dtype: DType::Index, lanes: 8 },
        ExprKind::Ramp(Expr::index(0), Expr::index(1)),
    );
    let six = Type { dtype: DType::Index, lanes: 8 };
    let six = Expr::new(six, ExprKind::Broadcast(Expr::index(6)));
    let mask = Expr::lt(ramp.clone(), six);
    let ty = Type { dtype: DType::Float32, lanes: 8 };
    let load =
        ExprKind::Load { buffer: a.clone(), indices: vec![ramp.clone()], mask: Some(mask.clone()) };
    let loaded = Expr::new(ty, load);
    let value = Expr::select(mask, Expr::add(loaded.clone(), loaded.clone()), loaded);
    let body = Stmt::store(&c, vec![ramp], value);
    let body = Stmt::For {
        var: Var::index("p"),
        min: Expr::index(3),
        extent: Expr::index(2),
        kind: ForKind::Parallel,
        body: Box::new(body),
    };
    let mut args = vec![floats(&[6], |i| i as f32), floats(&[8], |_| 9.0)];
    run(&kernel(&[&a], &[&c], body), &mut args).unwrap();
    assert_eq!(read_floats(&args[1]), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 0.0, 0.0]);
}

#[test]
fn bugs_are_trapped() {
    let trap = |body: Stmt, c: &Buffer| {
        let mut args = vec![floats(&[2, 4], |_| 0.0)];
        match run(&kernel(&[], &[c], body), &mut args) {
            Err(Trap::Bug(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    let c = global("C", DType::Float32, &[2, 4]);
    let i = Var::index("i");
    let at = |i: Expr, j: i64| vec![i, Expr::index(j)];
    let outside = serial(&i, 3, Stmt::store(&c, at(Expr::var(&i), 0), float(1.0)));
    assert_eq!(
        trap(outside, &c),
        "outside of C: index 0 is 2, the extent 2\n  in C[i, 0] = 1f\n  i = 2"
    );
    let load = Expr::load(&c, at(Expr::index(0), 1));
    let unwritten = Stmt::store(&c, at(Expr::index(0), 0), load);
    assert!(trap(unwritten, &c).starts_with("read of C[1], which was never written"));
    let large = Expr::add(Expr::index(i64::MAX), Expr::index(1));
    let overflow = Stmt::store(&c, vec![large, Expr::index(0)], float(1.0));
    assert!(trap(overflow, &c).starts_with("overflow of 64 bits"));
    let local = global("L", DType::Float32, &[1]);
    let load = Expr::load(&local, vec![Expr::index(0)]);
    let read = Stmt::Block(vec![
        Stmt::store(&c, at(Expr::var(&i), 0), load),
        Stmt::store(&local, vec![Expr::index(0)], float(1.0)),
    ]);
    let body = Stmt::Allocate { buffer: local, body: Box::new(read) };
    let again = trap(serial(&i, 2, body), &c);
    assert!(again.starts_with("read of L[0], which was never written"), "{again}");
}

#[test]
fn entry_checks_report_values() {
    let n = Var::index("n");
    let c = Buffer::new("C", DType::Float32, vec![Expr::var(&n)], Scope::Global);
    let mut kernel = kernel(&[], &[&c], Stmt::nothing());
    kernel.params.push(Param::Runtime { var: n.clone(), source: Some(Source::Extent(0, 0)) });
    let square = Expr::mul(Expr::var(&n), Expr::mul(Expr::var(&n), Expr::var(&n)));
    kernel.checks = Stmt::Assert {
        cond: Expr::lt(square.clone(), Expr::index(100)),
        message: "n is {0}, its cube {1}".into(),
        values: vec![Expr::var(&n), square],
    };
    let go = |n: i64, shape: i64| run(&kernel, &mut [floats(&[shape], |_| 0.0), Value::Index(n)]);
    assert_eq!(go(3, 3), Ok(()));
    assert_eq!(go(5, 5), Err(Trap::Check("n is 5, its cube 125".into())));
    let expected = "test: argument C: expected shape[0] to be 3, got 4";
    assert_eq!(go(3, 4), Err(Trap::Check(expected.into())));
    let overflow = run(
        &Kernel { params: vec![kernel.params[1].clone()], ..kernel.clone() },
        &mut [Value::Index(1 << 40)],
    );
    assert_eq!(
        overflow,
        Err(Trap::Check("n is {0}, its cube {1}: the computation overflows 64 bits".into()))
    );
}

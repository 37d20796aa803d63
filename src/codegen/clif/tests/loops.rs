//! Loops, storage, checks.

use super::harness::{Native, kernel, object, pointer};
use crate::codegen::clif::workspace_bytes;
use crate::ir::copy::fresh_copy;
use crate::ir::equal::equal;
use crate::ir::visit::map_stmts;
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Kernel, Param, Role, Scope, Source,
    Stmt, Var,
};
use crate::target::Target;
use rustc_hash::FxHashMap;

fn tensor(name: &str, dtype: DType, shape: Vec<Expr>) -> Buffer {
    Buffer::new(name, dtype, shape, Scope::Global)
}

fn input(buffer: &Buffer) -> Param {
    Param::Tensor { buffer: buffer.clone(), role: Role::Input, layout_free: false }
}

fn output(buffer: &Buffer) -> Param {
    Param::Tensor { buffer: buffer.clone(), role: Role::Output, layout_free: false }
}

fn load(buffer: &Buffer, index: Expr) -> Expr {
    let kind = ExprKind::Load { buffer: buffer.clone(), indices: vec![index], mask: None };
    Expr::new(buffer.dtype, kind)
}

/// `C[x*m + y] = sum over k of A[x*l + k] * B[k*m + y]`, the accumulator in memory.
fn matmul(n: Expr, m: Expr, l: Expr, runtime: Vec<Param>, fma: bool) -> Kernel {
    let f32 = DType::Float32;
    let a = tensor("A", f32, vec![n.clone(), l.clone()]);
    let b = tensor("B", f32, vec![l.clone(), m.clone()]);
    let c = tensor("C", f32, vec![n.clone(), m.clone()]);
    let (x, y, k) = (Var::index("x"), Var::index("y"), Var::index("k"));
    let at =
        |i: &Var, n: &Expr, j: &Var| Expr::add(Expr::mul(Expr::var(i), n.clone()), Expr::var(j));
    let c_xy = at(&x, &m, &y);
    let (a_xk, b_ky) = (load(&a, at(&x, &l, &k)), load(&b, at(&k, &m, &y)));
    let old = load(&c, c_xy.clone());
    let value = if fma {
        Expr::new(f32, ExprKind::Call(Intrinsic::Fma, vec![a_xk, b_ky, old]))
    } else {
        Expr::add(old, Expr::mul(a_xk, b_ky))
    };
    let update = Stmt::store(&c, vec![c_xy.clone()], value);
    let init = Stmt::store(&c, vec![c_xy], Expr::float(f32, 0.0));
    let body = Stmt::Block(vec![init, Stmt::serial(k, l, update)]);
    let nest = Stmt::serial(x, n, Stmt::serial(y, m, body));
    let mut params = vec![input(&a), input(&b), output(&c)];
    params.extend(runtime);
    kernel("matmul", params, nest)
}

#[test]
fn matmul_of_constant_and_of_run_time_shape() {
    let (n, m, l) = (5usize, 7usize, 9usize);
    let index = |v: usize| Expr::index(v as i64);
    let vars = [Var::index("n"), Var::index("m"), Var::index("l")];
    let runtime = vars.iter().map(|v| Param::Runtime { var: v.clone(), source: None }).collect();
    let var = |i: usize| Expr::var(&vars[i]);
    let kernels = [
        matmul(index(n), index(m), index(l), Vec::new(), false),
        Kernel { name: "dynamic".into(), ..matmul(var(0), var(1), var(2), runtime, true) },
    ];
    let native = Native::build(&kernels, &Target::native());
    let mut a: Vec<f32> = (0..n * l).map(|i| i as f32 * 0.5 - 3.0).collect();
    let mut b: Vec<f32> = (0..l * m).map(|i| 2.0 - i as f32 * 0.25).collect();
    let mut expected = vec![0f32; n * m];
    for (i, out) in expected.iter_mut().enumerate() {
        *out = (0..l).map(|k| a[i / m * l + k] * b[k * m + i % m]).sum();
    }
    let mut c = vec![f32::NAN; n * m];
    let words = [pointer(&mut a), pointer(&mut b), pointer(&mut c)];
    assert_eq!(native.call("matmul_body", &words), 0);
    assert_eq!(c, expected);
    let mut c = vec![f32::NAN; n * m];
    let words = [pointer(&mut a), pointer(&mut b), pointer(&mut c), n as u64, m as u64, l as u64];
    assert_eq!(native.call("dynamic_body", &words), 0);
    assert_eq!(c, expected);
}

#[test]
fn objects_are_equal_and_exist_for_every_target() {
    let index = |v: i64| Expr::index(v);
    for target in Target::cpus() {
        let make = || {
            let kernels = [matmul(index(64), index(64), index(64), Vec::new(), true)];
            object(&kernels, &target, 3)
        };
        let bytes = make();
        assert_eq!(bytes, make(), "{target}");
    }
}

/// Writes a temporary and reads it backwards: `T[i] = A[i] * 2` for all i, then `C[i] = T[n - 1 -
/// i]`.
fn reversed(name: &str, n: Expr, scope: Scope, runtime: Vec<Param>) -> Kernel {
    let int = DType::Int32;
    let a = tensor("A", int, vec![n.clone()]);
    let c = tensor("C", int, vec![n.clone()]);
    let t = Buffer::new("T", int, vec![n.clone()], scope);
    let (i, j) = (Var::index("i"), Var::index("j"));
    let double = Expr::mul(load(&a, Expr::var(&i)), Expr::int(int, 2));
    let write = Stmt::store(&t, vec![Expr::var(&i)], double);
    let mirrored = Expr::sub(Expr::sub(n.clone(), Expr::index(1)), Expr::var(&j));
    let read = Stmt::store(&c, vec![Expr::var(&j)], load(&t, mirrored));
    let body = Stmt::Block(vec![Stmt::serial(i, n.clone(), write), Stmt::serial(j, n, read)]);
    let mut params = vec![input(&a), output(&c)];
    params.extend(runtime);
    kernel(name, params, Stmt::Allocate { buffer: t, body: Box::new(body) })
}

#[test]
fn temporaries_live_on_the_stack_or_in_the_workspace() {
    let n = Var::index("n");
    let runtime = vec![Param::Runtime { var: n.clone(), source: Some(Source::Extent(0, 0)) }];
    let kernels = [
        reversed("stack", Expr::index(100), Scope::Local, Vec::new()),
        reversed("fixed", Expr::index(5000), Scope::Global, Vec::new()),
        reversed("dynamic", Expr::var(&n), Scope::Global, runtime),
    ];
    let native = Native::build(&kernels, &Target::native());
    for (name, len, words) in [("stack", 100, 0), ("fixed", 5000, 0), ("dynamic", 77, 1)] {
        let mut a: Vec<i32> = (0..len).collect();
        let mut c = vec![-1; len as usize];
        let mut args = vec![pointer(&mut a), pointer(&mut c)];
        args.extend(std::iter::repeat_n(len as u64, words));
        assert_eq!(native.call(&format!("{name}_body"), &args), 0);
        assert!(c.iter().enumerate().all(|(i, x)| *x == 2 * (len - 1 - i as i32)), "{name}");
        assert_eq!(native.blocks_in_use(), 0);
    }
    // Impossible sizes are refused before any loop runs; with negative sizes no loop runs.
    let sizes = [(1u64 << 40, 1), (1 << 61, 1), (1 << 62, 1), (u64::MAX, 0), (1 << 63, 0)];
    for (n, status) in sizes {
        assert_eq!(native.call("dynamic_body", &[8, 8, n]), status, "{n:x}");
        assert_eq!(native.blocks_in_use(), 0);
    }
    let (mut a, mut c) = ([0i32; 0], [0i32; 0]);
    assert_eq!(native.call("dynamic_body", &[pointer(&mut a), pointer(&mut c), 0]), 0);
}

/// Makes all loops parallel. A failure of one releases the workspace, too.
fn in_parallel(stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::For { var, min, extent, body, .. } => {
            Stmt::For { var, min, extent, kind: ForKind::Parallel, body }
        }
        other => map_stmts(other, &mut in_parallel),
    }
}

/// `if n < 100 { … } else { … }` around two nests with temporaries.
#[test]
fn versions_have_temporaries_of_their_own() {
    let n = Var::index("n");
    let runtime = vec![Param::Runtime { var: n.clone(), source: Some(Source::Extent(0, 0)) }];
    let mut versions = reversed("versions", Expr::var(&n), Scope::Global, runtime);
    let one = workspace_bytes(&versions);
    versions.body = in_parallel(versions.body);
    versions.body = Stmt::If {
        cond: Expr::lt(Expr::var(&n), Expr::index(100)),
        then: Box::new(fresh_copy(&versions.body, &FxHashMap::default())),
        otherwise: Some(Box::new(versions.body)),
    };
    assert!(equal(&workspace_bytes(&versions), &one), "the larger of two equal sizes");
    let native = Native::build(&[versions], &Target::native());
    for len in [0, 7, 99, 100, 5000] {
        let mut a: Vec<i32> = (0..len).collect();
        let mut c = vec![-1; len as usize];
        let args = [pointer(&mut a), pointer(&mut c), len as u64];
        assert_eq!(native.call("versions_body", &args), 0);
        assert!(c.iter().enumerate().all(|(i, x)| *x == 2 * (len - 1 - i as i32)), "{len}");
        assert_eq!(native.blocks_in_use(), 0);
    }
}

/// A guard keeps loads in bounds: `C[i] = if 2 <= i and A[i - 2] > 0 then A[i - 2] else -1`.
#[test]
fn conditions_guard_loads() {
    let int = DType::Int64;
    let n = Var::index("n");
    let a = tensor("A", int, vec![Expr::var(&n)]);
    let c = tensor("C", int, vec![Expr::var(&n)]);
    let i = Var::index("i");
    let before = load(&a, Expr::sub(Expr::var(&i), Expr::index(1 << 40)));
    let zero = Expr::int(int, 0);
    let guard = Expr::le(Expr::index(1 << 40), Expr::var(&i));
    let guard = Expr::and(guard, Expr::lt(zero.clone(), before.clone()));
    let choice = Expr::if_then_else(guard.clone(), before.clone(), Expr::int(int, -1));
    // The same load under the negated guard, in statements.
    let unguarded = Expr::or(Expr::not(guard), Expr::lt(zero, before));
    let store = |value: Expr| Stmt::store(&c, vec![Expr::var(&i)], value);
    let body = Stmt::If {
        cond: unguarded,
        then: Box::new(store(choice)),
        otherwise: Some(Box::new(store(Expr::int(int, 7)))),
    };
    let runtime = Param::Runtime { var: n.clone(), source: None };
    let params = vec![input(&a), output(&c), runtime];
    let nest = Stmt::serial(i, Expr::var(&n), body);
    let native = Native::build(&[kernel("guarded", params, nest)], &Target::native());
    let (mut a, mut c) = ([5i64; 9], [0i64; 9]);
    assert_eq!(native.call("guarded_body", &[pointer(&mut a), pointer(&mut c), 9]), 0);
    assert_eq!(c, [-1; 9]);
    assert_eq!(native.call("guarded_body", &[8, 8, 0]), 0, "nothing is read of an empty tensor");
}

/// Registers, constants, a reduction in nested loops, and a scalar argument of each kind.
#[test]
fn registers_constants_and_scalars() {
    let f64 = DType::Float64;
    let c = tensor("C", f64, vec![Expr::index(3)]);
    let table = Buffer::constant("table", DType::Uint16, vec![3, 50000, 7]);
    let acc = Buffer::new("acc", f64, vec![Expr::index(2)], Scope::Register);
    let scalars = [DType::Float32, DType::Float16, DType::BFloat16, DType::Int8, DType::Bool];
    let vars: Vec<Var> = scalars.iter().map(|dtype| Var::new("s", dtype.compute_type())).collect();
    let (i, j) = (Var::index("i"), Var::index("j"));
    let element = |at: i64| load(&acc, Expr::index(at));
    let set = |at: i64, value: Expr| Stmt::store(&acc, vec![Expr::index(at)], value);
    let entry = Expr::cast(f64, load(&table, Expr::var(&i)));
    let sum: Expr = vars
        .iter()
        .map(|var| Expr::cast(f64, Expr::var(var)))
        .reduce(Expr::add)
        .expect("there are scalars");
    let body = Stmt::Block(vec![
        set(0, entry),
        set(1, sum),
        Stmt::serial(j, Expr::index(4), set(0, Expr::add(element(0), element(1)))),
        Stmt::store(&c, vec![Expr::var(&i)], element(0)),
    ]);
    let body = Stmt::Allocate { buffer: acc.clone(), body: Box::new(body) };
    let mut params = vec![output(&c)];
    for (var, dtype) in vars.iter().zip(scalars) {
        params.push(Param::Scalar { var: var.clone(), dtype });
    }
    let native = Native::build(
        &[kernel("mixed", params, Stmt::serial(i, Expr::index(3), body))],
        &Target::native(),
    );
    let mut c = [0f64; 3];
    let words = [
        pointer(&mut c),
        1.5f32.to_bits().into(),
        half::f16::from_f32(0.25).to_bits().into(),
        half::bf16::from_f32(-8.0).to_bits().into(),
        0xf0,
        0x80,
    ];
    assert_eq!(native.call("mixed_body", &words), 0);
    let each = 4.0 * (1.5 + 0.25 - 8.0 - 16.0 + 1.0);
    assert_eq!(c, [3.0 + each, 50000.0 + each, 7.0 + each]);
}

/// Checks report the first failing assertion, its values, and overflow.
#[test]
fn checks_report_the_first_failure() {
    let (n, m, i, p) = (Var::index("n"), Var::index("m"), Var::index("i"), Var::index("p"));
    let at = tensor("I", DType::Int32, vec![Expr::var(&m)]);
    let actual = Var::index("d");
    let product = Expr::mul(Expr::var(&n), Expr::var(&m));
    let check = |cond: Expr, values: Vec<Expr>| Stmt::Assert { cond, message: "no".into(), values };
    let loaded = Expr::cast(DType::Index, load(&at, Expr::var(&i)));
    let inside = Expr::and(
        Expr::le(Expr::index(0), loaded.clone()),
        Expr::lt(loaded.clone(), Expr::var(&p)),
    );
    let never = check(Expr::bool(false), vec![]);
    let checks = Stmt::Block(vec![
        check(
            Expr::eq(Expr::var(&actual), Expr::add(Expr::var(&n), Expr::index(1))),
            vec![Expr::var(&actual), Expr::var(&n)],
        ),
        Stmt::Let {
            var: p.clone(),
            value: product.clone(),
            body: Box::new(Stmt::Block(vec![
                Stmt::serial(Var::index("none"), Expr::index(0), never),
                // The product is not evaluated if n is 0.
                check(
                    Expr::or(
                        Expr::le(Expr::var(&n), Expr::index(0)),
                        Expr::lt(Expr::index(0), Expr::var(&p)),
                    ),
                    vec![],
                ),
                Stmt::serial(i, Expr::var(&m), check(inside, vec![loaded])),
            ])),
        },
    ]);
    let run_time = |var: &Var| Param::Runtime { var: var.clone(), source: None };
    let dim = crate::ir::ActualDim { param: 0, dim: 0, var: actual };
    let kernel = Kernel {
        checks,
        dims: vec![dim],
        ..kernel("k", vec![input(&at), run_time(&n), run_time(&m)], Stmt::nothing())
    };
    let native = Native::build(&[kernel], &Target::native());
    let run = |list: &mut [i32], n: i64, m: i64, d: i64| {
        let mut values = [99i64; 4];
        let words = [pointer(list), n as u64, m as u64, d as u64, pointer(&mut values)];
        (native.call("k_check", &words), values)
    };
    let overflow = crate::codegen::common::CHECK_OVERFLOW;
    assert_eq!(run(&mut [0, 5, 2], 2, 3, 3).0, 0);
    assert_eq!(run(&mut [0, 5, 2], 2, 3, 4), (1, [4, 2, 99, 99]));
    assert_eq!(run(&mut [0, 6, -2], 2, 3, 3), (4, [6, 99, 99, 99]));
    assert_eq!(run(&mut [0, 5, -2], 2, 3, 3), (4, [-2, 99, 99, 99]));
    assert_eq!(run(&mut [0], i64::MAX, 3, i64::MIN).0, 1 | overflow);
    assert_eq!(run(&mut [0], 1 << 40, 1 << 40, (1 << 40) + 1).0, 3 | overflow);
    assert_eq!(run(&mut [0], 1 << 40, -(1 << 40), (1 << 40) + 1).0, 3 | overflow);
    assert_eq!(run(&mut [], -5, -4, -4).0, 0, "20 is no overflow, and the loop is empty");
    assert_eq!(run(&mut [], i64::MIN, -1, i64::MIN + 1).0, 0, "the product is not used");
}

/// The step estimate of a parallel loop is computed even if its inner loops are not reached. It
/// must not trap on products that exceed 64 bits, negative extents and divisions.
#[test]
fn estimates_of_steps_never_fail() {
    let (n, out) = (Var::index("n"), tensor("C", DType::Int32, vec![Expr::index(4)]));
    let (p, rows) = (Var::index("p"), ["r", "s", "t"].map(Var::index));
    let one = Stmt::store(&out, vec![Expr::var(&p)], Expr::int(DType::Int32, 1));
    let size = Expr::var(&n);
    let extents = [
        Expr::mul(size.clone(), Expr::index(1 << 40)),
        Expr::sub(Expr::mul(size.clone(), size.clone()), Expr::var(&rows[0])),
        Expr::binary(BinOp::FloorDiv, Expr::sub(Expr::index(i64::MIN), size), Expr::index(-1)),
    ];
    let nest = rows
        .iter()
        .zip(extents)
        .rev()
        .fold(one.clone(), |body, (var, extent)| Stmt::serial(var.clone(), extent, body));
    let never = Expr::lt(Expr::var(&p), Expr::index(0));
    let guarded = Stmt::If { cond: never, then: Box::new(nest), otherwise: None };
    let body = Box::new(Stmt::Block(vec![one, guarded]));
    let (kind, min) = (ForKind::Parallel, Expr::index(0));
    let body = Stmt::For { var: p.clone(), min, extent: Expr::index(4), kind, body };
    let params = vec![output(&out), Param::Runtime { var: n, source: None }];
    for opt in [0, 3] {
        let native =
            Native::build_at(&[kernel("k", params.clone(), body.clone())], &Target::native(), opt);
        for n in [0, 1, -1, 1 << 40, i64::MAX, i64::MIN] {
            let mut values = [0i32; 4];
            assert_eq!(native.call("k_body", &[pointer(&mut values), n as u64]), 0, "{n}");
            assert_eq!(values, [1; 4], "{n}");
        }
    }
}

//! Loops, storage, checks.

use super::harness::{Native, kernel, object, pointer};
use crate::ir::{Buffer, DType, Expr, ExprKind, Intrinsic, Kernel, Param, Scope, Stmt, Var};
use crate::target::Target;

fn tensor(name: &str, dtype: DType, shape: Vec<Expr>) -> Buffer {
    Buffer::new(name, dtype, shape, Scope::Global)
}

fn input(buffer: &Buffer) -> Param {
    Param::Tensor { buffer: buffer.clone(), output: false, layout_free: false }
}

fn output(buffer: &Buffer) -> Param {
    Param::Tensor { buffer: buffer.clone(), output: true, layout_free: false }
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
    for target in Target::all() {
        let make = || {
            let kernels = [matmul(index(64), index(64), index(64), Vec::new(), true)];
            object(&kernels, &target)
        };
        let bytes = make();
        assert_eq!(bytes, make(), "{target}");
        if let Ok(dir) = std::env::var("DUMP") {
            std::fs::write(format!("{dir}/{target}.o"), bytes).unwrap();
            let kernels = [matmul(index(64), index(64), index(64), Vec::new(), true)];
            let o =
                crate::codegen::clif::ObjectOptions { listing: true, opt: 3, ..Default::default() };
            let o = crate::codegen::clif::compile_object(&kernels, &target, &o).unwrap();
            std::fs::write(format!("{dir}/{target}.s"), o.listing.unwrap()).unwrap();
        }
    }
}

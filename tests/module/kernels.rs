//! Hand-built kernels in the form that the last pass produces.

use tec::ir::cost::Work;
use tec::ir::{
    ActualDim, Buffer, DType, Expr, ForKind, Kernel, Param, Role, Scope, Source, Stmt, Var,
};
use tec::module::{BuildInfo, KernelInfo};
use tec::target::Target;

/// Returns the kernels of the module `m` of most tests.
pub fn all() -> Vec<Kernel> {
    let mut kernels = vec![add(), add_n(), window(), rows(), fixed(), single(), both(), scalars()];
    kernels.extend([temporary(), no_tensors(), empty(), verbose(), outer()]);
    kernels.extend([checked_only("quick", false), checked_only("thorough", true)]);
    kernels.extend(DType::ALL.map(copy));
    kernels
}

/// Build information that fits any kernels.
pub fn info(module: &str, kernels: &[Kernel], target: Target) -> BuildInfo {
    let work = Work { flops: Expr::index(100), bytes: Expr::index(1200) };
    let kernel = KernelInfo {
        parameters: vec![("n".into(), "100".into()), ("T".into(), "float32".into())],
        schedule: "default".into(),
        automatic: false,
        work,
        prepack_role: None,
    };
    BuildInfo {
        module: module.into(),
        target,
        fp_contract: "fast".into(),
        opt: 3,
        sources: vec![("m.te".into(), "kernel add() {}\n".into())],
        kernels: vec![kernel; kernels.len()],
    }
}

pub fn kernel(name: &str, params: Vec<Param>, body: Stmt) -> Kernel {
    Kernel::new(name, params, body)
}

pub fn tensor(name: &str, dtype: DType, shape: &[Expr]) -> Buffer {
    Buffer::new(name, dtype, shape.to_vec(), Scope::Global)
}

pub fn input(buffer: &Buffer) -> Param {
    Param::Tensor { buffer: buffer.clone(), role: Role::Input, layout_free: false }
}

pub fn output(buffer: &Buffer) -> Param {
    Param::Tensor { buffer: buffer.clone(), role: Role::Output, layout_free: false }
}

pub fn for_each(extent: Expr, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let i = Var::index("i");
    Stmt::serial(i.clone(), extent, body(Expr::var(&i)))
}

fn load(buffer: &Buffer, index: Expr) -> Expr {
    Expr::load(buffer, vec![index])
}

fn sum(a: &Buffer, b: &Buffer, c: &Buffer, n: Expr) -> Stmt {
    for_each(n, |i| Stmt::store(c, vec![i.clone()], Expr::add(load(a, i.clone()), load(b, i))))
}

/// `c = a + b`, 100 elements.
pub fn add() -> Kernel {
    add_of(100)
}

/// Returns the same of another size.
pub fn add_of(n: i64) -> Kernel {
    let [a, b, c] = ["a", "b", "c"].map(|name| tensor(name, DType::Float32, &[Expr::index(n)]));
    let body = sum(&a, &b, &c, Expr::index(n));
    kernel("add", vec![input(&a), input(&b), output(&c)], body)
}

/// `c = a + b`, n elements.
fn add_n() -> Kernel {
    let n = Var::index("n");
    let [a, b, c] = ["a", "b", "c"].map(|name| tensor(name, DType::Float32, &[Expr::var(&n)]));
    let body = sum(&a, &b, &c, Expr::var(&n));
    let run_time = Param::Runtime { var: n, source: Some(Source::Extent(0, 0)) };
    kernel("add_n", vec![input(&a), input(&b), output(&c), run_time], body)
}

/// `c[i] = a[i] + a[i + 2]`, `c` of n - 2 elements: its extent is compared by the kernel's check,
/// as is `k * k >= 0`, which can overflow.
fn window() -> Kernel {
    let (n, k, actual) = (Var::index("n"), Var::index("k"), Var::index("actual"));
    let two = || Expr::index(2);
    let a = tensor("a", DType::Float32, &[Expr::var(&n)]);
    let shorter = Expr::sub(Expr::var(&n), two());
    let c = tensor("c", DType::Float32, std::slice::from_ref(&shorter));
    let body = for_each(shorter.clone(), |i| {
        let right = load(&a, Expr::add(i.clone(), two()));
        Stmt::store(&c, vec![i.clone()], Expr::add(load(&a, i), right))
    });
    let params = vec![
        input(&a),
        output(&c),
        Param::Runtime { var: n.clone(), source: Some(Source::Extent(0, 0)) },
        Param::Runtime { var: k.clone(), source: None },
    ];
    let square = Expr::mul(Expr::var(&k), Expr::var(&k));
    Kernel {
        dims: vec![ActualDim { param: 1, dim: 0, var: actual.clone() }],
        checks: Stmt::Block(vec![
            Stmt::Assert {
                cond: Expr::eq(Expr::var(&actual), shorter.clone()),
                message: "`c` has extent {0}, but `n - 2` is {1} – too bad".into(),
                values: vec![Expr::var(&actual), shorter],
            },
            Stmt::Assert {
                cond: Expr::le(Expr::index(0), square.clone()),
                message: "square {0}".into(),
                values: vec![square],
            },
        ]),
        ..kernel("window", params, body)
    }
}

/// Returns a copy of n × m elements.
fn rows() -> Kernel {
    let (n, m) = (Var::index("n"), Var::index("m"));
    let shape = [Expr::var(&n), Expr::var(&m)];
    let (a, c) = (tensor("a", DType::Float32, &shape), tensor("c", DType::Float32, &shape));
    let body = for_each(a.len(), |i| Stmt::store(&c, vec![i.clone()], load(&a, i)));
    let params = vec![
        input(&a),
        output(&c),
        Param::Runtime { var: n, source: Some(Source::Extent(0, 0)) },
        Param::Runtime { var: m, source: Some(Source::Extent(0, 1)) },
    ];
    kernel("rows", params, body)
}

/// Returns a copy of 3 × 1 × 4 elements.
fn fixed() -> Kernel {
    let shape = [3, 1, 4].map(Expr::index);
    let (a, c) = (tensor("a", DType::Float64, &shape), tensor("c", DType::Float64, &shape));
    let body = for_each(Expr::index(12), |i| Stmt::store(&c, vec![i.clone()], load(&a, i)));
    kernel("fixed", vec![input(&a), output(&c)], body)
}

/// Returns a copy of one element of rank 0.
fn single() -> Kernel {
    let (a, c) = (tensor("a", DType::Float32, &[]), tensor("c", DType::Float32, &[]));
    let body = Stmt::store(&c, vec![Expr::index(0)], load(&a, Expr::index(0)));
    kernel("single", vec![input(&a), output(&c)], body)
}

/// Returns two outputs, both `a`.
fn both() -> Kernel {
    let [a, c, d] = ["a", "c", "d"].map(|n| tensor(n, DType::Float32, &[Expr::index(8)]));
    let body = for_each(Expr::index(8), |i| {
        let copy = |to: &Buffer| Stmt::store(to, vec![i.clone()], load(&a, i.clone()));
        Stmt::Block(vec![copy(&c), copy(&d)])
    });
    kernel("both", vec![input(&a), output(&c), output(&d)], body)
}

/// Returns a scalar of every type, each stored into an output of its own; and a run-time integer.
fn scalars() -> Kernel {
    let one = [Expr::index(1)];
    let zero = || vec![Expr::index(0)];
    let (mut inputs, mut outputs, mut stores) = (vec![], vec![], vec![]);
    for dtype in DType::ALL {
        let var = Var::new(format!("s_{dtype}"), dtype.compute_type());
        let out = tensor(&format!("o_{dtype}"), dtype, &one);
        let value = Expr::cast(dtype, Expr::var(&var));
        stores.push(Stmt::store(&out, zero(), value));
        outputs.push(output(&out));
        inputs.push(Param::Scalar { var, dtype });
    }
    let k = Var::index("k");
    let out = tensor("o_k", DType::Int64, &one);
    stores.push(Stmt::store(&out, zero(), Expr::cast(DType::Int64, Expr::var(&k))));
    outputs.push(output(&out));
    inputs.extend(outputs);
    inputs.push(Param::Runtime { var: k, source: None });
    kernel("scalars", inputs, Stmt::Block(stores))
}

/// `c = a` through a temporary of `m` elements, of which it uses 100.
fn temporary() -> Kernel {
    let m = Var::index("m");
    let [a, c] = ["a", "c"].map(|n| tensor(n, DType::Float32, &[Expr::index(100)]));
    let t = tensor("t", DType::Float32, &[Expr::var(&m)]);
    let copy = |from: &Buffer, to: &Buffer| {
        for_each(Expr::index(100), |i| Stmt::store(to, vec![i.clone()], load(from, i)))
    };
    let body = Stmt::Allocate {
        buffer: t.clone(),
        body: Box::new(Stmt::Block(vec![copy(&a, &t), copy(&t, &c)])),
    };
    let run_time = Param::Runtime { var: m, source: None };
    kernel("temporary", vec![input(&a), output(&c), run_time], body)
}

/// `c[i] = sum over j < 100 of a[i] * alpha * j`, through a temporary shared by all threads and one
/// of `m` elements for each thread; the loops over `i` are parallel, as is one inside them.
pub fn shared_rows() -> Kernel {
    let (f32, alpha) = (DType::Float32, Var::new("alpha", DType::Float32));
    let (n, m) = (Var::index("n"), Var::index("m"));
    let size = |var: &Var| [Expr::var(var)];
    let [a, c, s] = ["a", "c", "s"].map(|name| tensor(name, f32, &size(&n)));
    let t = tensor("t", f32, &size(&m));
    let hundred = || Expr::index(100);
    let scaled = parallel(Expr::var(&n), |i| {
        let value = Expr::mul(load(&a, i.clone()), Expr::var(&alpha));
        Stmt::store(&s, vec![i], value)
    });
    let summed = parallel(Expr::var(&n), |i| {
        let products = parallel(hundred(), |j| {
            let value = Expr::mul(load(&s, i.clone()), Expr::cast(f32, j.clone()));
            Stmt::store(&t, vec![j], value)
        });
        let init = Stmt::store(&c, vec![i.clone()], Expr::float(f32, 0.0));
        let sum = for_each(hundred(), |j| {
            let value = Expr::add(load(&c, i.clone()), load(&t, Expr::sub(Expr::index(99), j)));
            Stmt::store(&c, vec![i.clone()], value)
        });
        let body = Box::new(Stmt::Block(vec![products, init, sum]));
        Stmt::Allocate { buffer: t.clone(), body }
    });
    let body = Box::new(Stmt::Block(vec![scaled, summed]));
    let params = vec![
        input(&a),
        Param::Scalar { var: alpha, dtype: f32 },
        output(&c),
        Param::Runtime { var: n, source: Some(Source::Extent(0, 0)) },
        Param::Runtime { var: m, source: None },
    ];
    kernel("shared_rows", params, Stmt::Allocate { buffer: s, body })
}

fn parallel(extent: Expr, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let (var, min) = (Var::index("i"), Expr::index(0));
    let body = Box::new(body(Expr::var(&var)));
    Stmt::For { var, min, extent, kind: ForKind::Parallel, body }
}

/// Returns a kernel with an integer only.
fn no_tensors() -> Kernel {
    kernel(
        "no_tensors",
        vec![Param::Runtime { var: Var::index("k"), source: None }],
        Stmt::nothing(),
    )
}

/// Returns a tensor that has no elements.
fn empty() -> Kernel {
    let shape = [Expr::index(4), Expr::index(0)];
    let (a, c) = (tensor("a", DType::Float32, &shape), tensor("c", DType::Float32, &shape));
    kernel("empty", vec![input(&a), output(&c)], Stmt::nothing())
}

/// Returns a copy of 5 elements of any type.
fn copy(dtype: DType) -> Kernel {
    let [a, c] = ["a", "c"].map(|n| tensor(n, dtype, &[Expr::index(5)]));
    let body = for_each(Expr::index(5), |i| Stmt::store(&c, vec![i.clone()], load(&a, i)));
    kernel(&format!("copy_{dtype}"), vec![input(&a), output(&c)], body)
}

/// Fails with a message of 2-byte characters, too long for the buffer.
pub fn verbose() -> Kernel {
    let k = Var::index("k");
    let params = vec![Param::Runtime { var: k.clone(), source: None }];
    let checks = Stmt::Assert {
        cond: Expr::eq(Expr::var(&k), Expr::index(0)),
        message: "é".repeat(3000),
        values: vec![],
    };
    Kernel { checks, ..kernel("verbose", params, Stmt::nothing()) }
}

/// `c[j, i] = a[i] * s`, for arguments from the interpreter.
pub fn outer() -> Kernel {
    let (n, m) = (Var::index("n"), Var::index("m"));
    let a = tensor("a", DType::Float32, &[Expr::var(&n)]);
    let c = tensor("c", DType::Float32, &[Expr::var(&m), Expr::var(&n)]);
    let s = Var::new("s", DType::Float32);
    let (i, j) = (Var::index("i"), Var::index("j"));
    let at = Expr::add(Expr::mul(Expr::var(&j), Expr::var(&n)), Expr::var(&i));
    let value = Expr::mul(load(&a, Expr::var(&i)), Expr::var(&s));
    let row = Stmt::serial(i, Expr::var(&n), Stmt::store(&c, vec![at], value));
    let params = vec![
        input(&a),
        Param::Scalar { var: s, dtype: DType::Float16 },
        output(&c),
        Param::Runtime { var: n, source: Some(Source::Extent(0, 0)) },
        Param::Runtime { var: m.clone(), source: Some(Source::Extent(2, 0)) },
    ];
    kernel("outer", params, Stmt::serial(j, Expr::var(&m), row))
}

/// Does nothing with `a[n, m]`, `b[m, 3]` and `c[n, 3]`. A half scalar rules out the fast path.
fn checked_only(name: &str, half: bool) -> Kernel {
    let (n, m, three) = (Var::index("n"), Var::index("m"), Expr::index(3));
    let float = |name: &str, shape: [Expr; 2]| tensor(name, DType::Float32, &shape);
    let a = float("a", [Expr::var(&n), Expr::var(&m)]);
    let b = float("b", [Expr::var(&m), three.clone()]);
    let c = float("c", [Expr::var(&n), three]);
    let mut params = vec![input(&a), input(&b), output(&c)];
    if half {
        let var = Var::new("h", DType::Float32);
        params.push(Param::Scalar { var, dtype: DType::Float16 });
    }
    params.push(Param::Runtime { var: n, source: Some(Source::Extent(0, 0)) });
    params.push(Param::Runtime { var: m, source: Some(Source::Extent(0, 1)) });
    kernel(name, params, Stmt::nothing())
}

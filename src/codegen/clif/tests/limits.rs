//! Deep, wide and shared expressions, and refused kernels.

use super::harness::{Native, kernel, pointer};
use crate::codegen::{ObjectOptions, compile_object};
use crate::ir::{
    Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Kernel, Param, Role, Scope, Stmt,
    ThreadIndex, Var,
};
use crate::target::Target;

/// `R[0] = value`, where `value` may read `A[0]`.
fn single(name: &str, value: impl FnOnce(Expr) -> Expr) -> Kernel {
    let dtype = DType::Int64;
    let tensor = |name: &str| Buffer::new(name, dtype, vec![Expr::index(4)], Scope::Global);
    let (a, r) = (tensor("A"), tensor("R"));
    let load = ExprKind::Load { buffer: a.clone(), indices: vec![Expr::index(0)], mask: None };
    let value = value(Expr::new(dtype, load));
    let params = vec![
        Param::Tensor { buffer: a, role: Role::Input, layout_free: false },
        Param::Tensor { buffer: r.clone(), role: Role::Output, layout_free: false },
    ];
    kernel(name, params, Stmt::store(&r, vec![Expr::index(0)], value))
}

fn run(kernel: Kernel, input: i64) -> i64 {
    let name = format!("{}_body", kernel.name);
    let native = Native::build(&[kernel], &Target::native());
    let (mut a, mut r) = ([input; 4], [0; 4]);
    assert_eq!(native.call(&name, &[pointer(&mut a), pointer(&mut r)]), 0);
    r[0]
}

/// Runs `f` on a stack like that of the compiler's thread.
fn deeply(f: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(1 << 30).spawn(f).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_sum_of_many_terms() {
    deeply(|| {
        let sum = single("sum", |a| {
            (0..20_000).fold(a.clone(), |sum, i| {
                let term = Expr::mul(a.clone(), Expr::int(DType::Int64, i));
                Expr::add(sum, Expr::select(Expr::lt(sum_bound(i), a.clone()), term, a.clone()))
            })
        });
        assert_eq!(run(sum, 1 << 30), (1i64 << 30) * (1 + 20_000 * 19_999 / 2));
    });
}

fn sum_bound(i: i128) -> Expr {
    Expr::int(DType::Int64, i)
}

#[test]
fn shared_operands_are_compiled_once() {
    // Every link reads the previous one twice, which would be 2^60 operations without memoisation.
    let doubled = single("doubled", |a| (0..60).fold(a, |x, _| Expr::add(x.clone(), x)));
    assert_eq!(run(doubled, 3), 3 << 60);
    // The same in both branches of a condition that needs a branch.
    let chain = single("chain", |a| {
        (0..60).fold(a.clone(), |x, i| {
            let is_odd = Expr::eq(Expr::int(DType::Int64, i), a.clone());
            let costly = |y: Expr| Expr::binary(crate::ir::BinOp::FloorDiv, y, a.clone());
            let one = Expr::int(DType::Int64, 1);
            let then = Expr::add(costly(Expr::add(x.clone(), a.clone())), one.clone());
            Expr::if_then_else(is_odd, then, Expr::sub(costly(Expr::mul(x, a.clone())), one))
        })
    });
    let expected = (0..60).fold(7i64, |x, i| if i == 7 { (x + 7) / 7 + 1 } else { x - 1 });
    assert_eq!(run(chain, 7), expected);
}

#[test]
fn one_variable_in_two_lets() {
    let var = Var::new("v", DType::Int64);
    let square = Expr::mul(Expr::var(&var), Expr::var(&var));
    let with =
        |value: Expr| Expr::new(DType::Int64, ExprKind::Let(var.clone(), value, square.clone()));
    let kernel = single("lets", |a| {
        let next = Expr::add(a.clone(), Expr::int(DType::Int64, 1));
        Expr::sub(with(next), with(a))
    });
    assert_eq!(run(kernel, 10), 121 - 100);
}

#[test]
fn too_much_code_is_an_error() {
    deeply(|| {
        // Each link is used in only one branch of each side, so it is compiled twice.
        let kernel = single("huge", |a| {
            (0..40).fold(a.clone(), |x, i| {
                let test = |k: i128| Expr::lt(Expr::int(DType::Int64, k * 100 + i), a.clone());
                let costly = |y: Expr| Expr::binary(crate::ir::BinOp::FloorDiv, y, a.clone());
                let side = |k: i128| {
                    Expr::if_then_else(test(k), costly(x.clone()), Expr::int(DType::Int64, k))
                };
                Expr::if_then_else(test(3), side(1), side(2))
            })
        });
        let error =
            compile_object(&[kernel], &Target::native(), &ObjectOptions::default()).unwrap_err();
        assert_eq!(error.code, "E0404");
        assert_eq!(error.message, "kernel `huge` is too large to compile");
    });
}

#[test]
fn schedule_annotations_without_an_instruction_are_refused() {
    let target = Target::parse("x86-avx2").unwrap();
    let refused = |body: Stmt| {
        let kernel = kernel("k", Vec::new(), body);
        compile_object(&[kernel], &target, &ObjectOptions::default()).unwrap_err()
    };
    let loop_of = |kind: ForKind| Stmt::For {
        var: Var::index("i"),
        min: Expr::index(0),
        extent: Expr::index(8),
        kind,
        body: Box::new(Stmt::nothing()),
    };
    let error = refused(loop_of(ForKind::Vectorized));
    assert_eq!(error.code, "E0403");
    assert_eq!(error.message, "kernel `k` needs a vectorized loop, not supported on `x86-avx2`");
    let error = refused(loop_of(ForKind::Thread(ThreadIndex::Thread(0))));
    assert_eq!(error.message, "kernel `k` needs GPU threads, not supported on `x86-avx2`");
}

#[test]
#[should_panic(expected = "bug in tec: `exp` is left over from expand_math")]
fn unexpanded_functions_are_a_bug() {
    let f32 = DType::Float32;
    let call = Expr::new(f32, ExprKind::Call(Intrinsic::Exp, vec![Expr::float(f32, 1.0)]));
    let r = Buffer::new("R", f32, vec![], Scope::Global);
    let body = Stmt::store(&r, vec![Expr::index(0)], call);
    let params = vec![Param::Tensor { buffer: r, role: Role::Output, layout_free: false }];
    let kernel = kernel("k", params, body);
    let _ = compile_object(&[kernel], &Target::native(), &ObjectOptions::default());
}

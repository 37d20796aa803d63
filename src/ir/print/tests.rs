//! Printed forms.

use super::*;
use crate::ir::Var;

fn float(value: f64) -> Expr {
    Expr::float(DType::Float32, value)
}

#[test]
fn floats_have_their_shortest_digits() {
    let check = |dtype, value: f64, expected: &str| {
        assert_eq!(format_float(dtype, value), expected);
    };
    check(DType::Float32, 0.0, "0f");
    check(DType::Float32, -0.0, "-0f");
    check(DType::Float32, 1e-5f32 as f64, "1e-05f");
    check(DType::Float32, (1.0f32 / 9.0) as f64, "0.11111111f");
    check(DType::Float32, f32::MIN as f64, "-3.4028235e+38f");
    check(DType::Float32, f64::NEG_INFINITY, "-inff");
    check(DType::Float32, 100000.0, "100000f");
    check(DType::Float32, 1e6, "1e+06f");
    check(DType::Float32, 16777216.0, "16777216f");
    check(DType::Float32, 0.0001f32 as f64, "0.0001f");
    check(DType::Float32, 123.5, "123.5f");
    check(DType::Float64, 2.0, "2.0");
    check(DType::Float64, 0.1, "0.1");
    check(DType::Float64, 1e-300, "1e-300");
    check(DType::Float64, f64::NAN, "nan");
    check(DType::Float16, 0.5, "0.5h");
    check(DType::BFloat16, 3.0, "3bf");
}

#[test]
fn expressions_print_as_in_the_reference() {
    let (x, y) = (Expr::var(&Var::index("x")), Expr::var(&Var::index("y")));
    let index = Expr::add(Expr::mul(x.clone(), Expr::index(64)), y.clone());
    assert_eq!(print_expr(&index), "((x*64) + y)");
    let c = Expr::or(Expr::lt(x.clone(), Expr::index(1)), Expr::le(Expr::index(13), y));
    let buffer = Buffer::new("A", DType::Float32, vec![Expr::index(9)], Scope::Global);
    let load = Expr::load(&buffer, vec![x.clone()]);
    let e = Expr::if_then_else(c, float(0.0), load.clone());
    assert_eq!(print_expr(&e), "if_then_else(((x < 1) || (13 <= y)), 0f, A[x])");
    let neg = |e: &Expr| Expr::unary(UnOp::Neg, e.clone());
    let fma = |a: Expr, b, c| Expr::call(Intrinsic::Fma, vec![a, b, c]);
    let (two, three) = (float(2.0), float(3.0));
    let check = |e: Expr, expected: &str| assert_eq!(print_expr(&e), expected);
    check(fma(load.clone(), two.clone(), three.clone()), "(3f + (A[x]*2f))");
    check(fma(neg(&load), two.clone(), three.clone()), "(3f - (A[x]*2f))");
    check(fma(two.clone(), three.clone(), neg(&load)), "((2f*3f) - A[x])");
    check(fma(neg(&load), three, neg(&load)), "(-A[x] - (A[x]*3f))");
    check(Expr::cast(DType::Int8, load), "int8(A[x])");
    check(Expr::int(DType::Uint8, 2), "(uint8)2");
    check(neg(&neg(&x)), "-(-x)");
}

#[test]
fn an_inner_loop_of_the_same_name_gets_the_stage() {
    let out = Buffer::new("C", DType::Float32, vec![Expr::index(4)], Scope::Global);
    let (outer, inner, third) = (Var::index("x"), Var::index("x"), Var::index("x"));
    let store = Stmt::store(&out, vec![Expr::var(&third)], float(1.0));
    let loops = Stmt::serial(
        outer.clone(),
        Expr::index(4),
        Stmt::serial(inner, Expr::var(&outer), Stmt::serial(third, Expr::index(1), store)),
    );
    let produce = Stmt::Produce { name: "C".into(), body: Box::new(loops) };
    let expected = "\
produce C {
  for (x, 0, 4) {
    for (C.x, 0, x) {
      for (C.x_2, 0, 1) {
        C[C.x_2] = 1f
      }
    }
  }
}
";
    assert_eq!(print_stmt(&produce), expected);
}

#[test]
fn shared_subtrees_do_not_explode() {
    let mut e = Expr::var(&Var::new("x", DType::Float32));
    for _ in 0..100 {
        e = Expr::add(e.clone(), e);
    }
    assert!(print_expr(&e).len() < 5000);
}

#[test]
fn a_long_sum_prints_in_linear_time() {
    let run = || {
        let mut e = Expr::var(&Var::new("x", DType::Float32));
        for i in 0..100_000 {
            e = Expr::add(e, float(i as f64));
        }
        assert!(print_expr(&e).starts_with("((((("));
        // Dropping the expression recurses, too.
        drop(e);
    };
    std::thread::Builder::new().stack_size(1 << 30).spawn(run).unwrap().join().unwrap();
}

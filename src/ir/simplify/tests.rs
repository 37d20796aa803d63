//! Tables of inputs and expected texts, and equality of values under random assignments.

use super::*;
use crate::ir::arith::tests::{Generator, evaluate};
use crate::ir::print::print_expr;
use crate::ir::{Buffer, Intrinsic, Kernel, Scope, Stmt, Type};

fn index(value: i64) -> Expr {
    Expr::index(value)
}

fn bin(op: BinOp, a: &Expr, b: &Expr) -> Expr {
    Expr::binary(op, a.clone(), b.clone())
}

/// Loop variables `i` in 0..14, `j` in 0..100 and `k` in 0..3; `n` and `m` with the facts of
/// extents.
struct Names {
    facts: Facts,
    i: Expr,
    j: Expr,
    k: Expr,
    n: Expr,
    m: Expr,
}

fn names() -> Names {
    let mut facts = Facts::new();
    let runtime = ["n", "m"].map(Var::index);
    for var in &runtime {
        facts.assume(&Expr::le(index(0), Expr::var(var)));
        facts.assume(&Expr::le(Expr::var(var), index(1 << 47)));
    }
    let loops = [("i", 14), ("j", 100), ("k", 3)].map(|(name, extent)| {
        let var = Var::index(name);
        facts.bind(&var, &index(0), &index(extent));
        Expr::var(&var)
    });
    let ([n, m], [i, j, k]) = (runtime.map(|var| Expr::var(&var)), loops);
    Names { facts, i, j, k, n, m }
}

#[track_caller]
fn check(facts: &Facts, expr: &Expr, expect: &str) {
    let simple = simplify_expr(expr, facts);
    assert_eq!(print_expr(&simple), expect);
    let again = simplify_expr(&simple, facts);
    assert!(again.same(&simple), "not idempotent: {}", print_expr(&again));
}

fn add(a: &Expr, b: &Expr) -> Expr {
    bin(BinOp::Add, a, b)
}
fn sub(a: &Expr, b: &Expr) -> Expr {
    bin(BinOp::Sub, a, b)
}
fn mul(a: &Expr, b: &Expr) -> Expr {
    bin(BinOp::Mul, a, b)
}
fn div(a: &Expr, b: &Expr) -> Expr {
    bin(BinOp::FloorDiv, a, b)
}
fn rem(a: &Expr, b: &Expr) -> Expr {
    bin(BinOp::FloorMod, a, b)
}

#[test]
fn indices_print_as_in_tvm() {
    let Names { facts, i, j, k, n, m } = &names();
    let padded = add(&mul(&sub(i, &index(1)), &index(12)), &sub(j, &index(1)));
    check(facts, &padded, "(((i*12) + j) - 13)");
    let window = add(&mul(&add(i, k), &index(14)), j);
    check(facts, &window, "(((i*14) + (k*14)) + j)");
    check(facts, &add(&mul(i, m), j), "((i*m) + j)");
    check(facts, &add(&mul(&div(i, m), m), &rem(i, m)), "((floordiv(i, m)*m) + floormod(i, m))");
    check(facts, &sub(&sub(n, &index(1)), i), "((n - i) - 1)");
    check(facts, &sub(&index(99), i), "(99 - i)");
    check(facts, &sub(&sub(i, i), &index(2)), "-2");
    check(facts, &add(&mul(i, n), &mul(n, i)), "((i*n)*2)");
}

#[test]
fn divisions_are_simplified() {
    let Names { facts, i, j, k, n, .. } = &names();
    let row = add(&mul(i, &index(100)), j);
    check(facts, &div(&row, &index(100)), "i");
    check(facts, &rem(&row, &index(100)), "j");
    check(facts, &div(&row, &index(50)), "((i*2) + floordiv(j, 50))");
    check(facts, &add(&mul(&div(n, &index(7)), &index(7)), &rem(n, &index(7))), "n");
    let (six, three, two) = (index(6), index(3), index(2));
    let whole = add(
        &add(&mul(&div(n, &six), &six), &mul(&rem(&div(n, &three), &two), &three)),
        &rem(n, &three),
    );
    check(facts, &whole, "n");
    check(facts, &div(&div(n, &three), &two), "floordiv(n, 6)");
    check(facts, &rem(&rem(n, &six), &three), "floormod(n, 3)");
    check(facts, &div(&rem(n, &six), &three), "floormod(floordiv(n, 3), 2)");
    check(facts, &div(&add(&mul(n, &two), &index(5)), &six), "floordiv((n + 2), 3)");
    check(facts, &rem(&add(&mul(n, &two), &index(5)), &six), "((floormod((n + 2), 3)*2) + 1)");
    check(facts, &div(k, &index(3)), "0");
    check(facts, &div(n, &index(0)), "0");
    check(facts, &div(n, &index(-4)), "floordiv(-n, 4)");
    let tail = add(&mul(i, n), k);
    check(facts, &rem(&tail, n), "floormod(k, n)");
}

#[test]
fn comparisons_are_simplified() {
    let Names { facts, i, j, n, .. } = &names();
    let cmp = |op, a: &Expr, b: &Expr| bin(op, a, b);
    check(facts, &cmp(BinOp::Lt, i, &index(1)), "(i < 1)");
    check(facts, &cmp(BinOp::Ge, i, &add(&index(12), &index(1))), "(13 <= i)");
    check(facts, &cmp(BinOp::Ge, i, j), "(j <= i)");
    check(facts, &cmp(BinOp::Ge, i, &add(n, &index(1))), "((n + 1) <= i)");
    check(facts, &cmp(BinOp::Lt, &sub(i, &index(1)), n), "(i < (n + 1))");
    check(facts, &cmp(BinOp::Lt, &mul(i, &index(2)), &index(9)), "(i < 5)");
    check(facts, &cmp(BinOp::Le, &mul(i, &index(2)), &index(9)), "(i <= 4)");
    check(facts, &cmp(BinOp::Eq, &mul(i, &index(2)), &index(9)), "false");
    check(facts, &cmp(BinOp::Lt, i, &index(14)), "true");
    check(facts, &cmp(BinOp::Gt, i, &index(13)), "false");
    check(facts, &Expr::not(cmp(BinOp::Lt, i, &index(3))), "(3 <= i)");
    let inside = Expr::and(cmp(BinOp::Ge, i, &index(0)), cmp(BinOp::Lt, j, &index(5)));
    check(facts, &inside, "(j < 5)");
    let both = Expr::or(cmp(BinOp::Lt, i, &index(1)), cmp(BinOp::Ge, i, &index(13)));
    check(facts, &Expr::not(Expr::not(both)), "((i < 1) || (13 <= i))");
}

/// A run-time integer may have any value: a term is not moved if a sum might not fit 64 bits.
#[test]
fn any_integer() {
    let Names { facts, i, n, .. } = &names();
    let [s, t] = ["s", "t"].map(|name| Expr::var(&Var::index(name)));
    let cmp = |op, a: &Expr, b: &Expr| bin(op, a, b);
    check(facts, &cmp(BinOp::Lt, i, &s), "(i < s)");
    check(facts, &cmp(BinOp::Lt, i, &sub(&t, &s)), "(i < (t - s))");
    check(facts, &cmp(BinOp::Lt, &sub(&s, &index(5)), n), "(s < (n + 5))");
    check(facts, &cmp(BinOp::Lt, &sub(&s, i), &index(0)), "(s < i)");
    check(
        facts,
        &div(&add(&add(&mul(i, &index(16)), &s), &t), &index(16)),
        "floordiv((((i*16) + s) + t), 16)",
    );
    check(facts, &div(&add(&mul(i, &index(16)), &s), &index(16)), "(i + floordiv(s, 16))");
}

#[test]
fn choices_are_simplified() {
    let Names { facts, i, n, .. } = &names();
    let near = Expr::lt(i.clone(), index(3));
    let nested = Expr::if_then_else(near.clone(), i.clone(), n.clone());
    let outer = Expr::if_then_else(near.clone(), nested, n.clone());
    check(facts, &outer, "if_then_else((i < 3), i, n)");
    check(facts, &Expr::if_then_else(near.clone(), i.clone(), i.clone()), "i");
    let low = bin(BinOp::Min, i, &index(5));
    check(
        facts,
        &Expr::if_then_else(near.clone(), low.clone(), n.clone()),
        "if_then_else((i < 3), i, n)",
    );
    check(facts, &Expr::select(near, low, n.clone()), "select((i < 3), min(i, 5), n)");
    check(facts, &bin(BinOp::Max, i, &index(-1)), "i");
}

#[test]
fn conditions_of_vectors() {
    let Names { facts, i, k, n, .. } = &names();
    let lanes = |dtype: DType| Type { dtype, lanes: 8 };
    let ramp = |base: &Expr, stride: i64| {
        Expr::new(lanes(DType::Index), ExprKind::Ramp(base.clone(), index(stride)))
    };
    let all = |value: &Expr| Expr::new(lanes(value.ty.dtype), ExprKind::Broadcast(value.clone()));
    let cmp = |op, a: &Expr, b: &Expr| {
        Expr::new(lanes(DType::Bool), ExprKind::Binary(op, a.clone(), b.clone()))
    };
    // Eight consecutive elements from i*8, of 14*8.
    let at = mul(i, &index(8));
    check(facts, &cmp(BinOp::Lt, &ramp(&at, 1), &all(&index(112))), "x8(true)");
    check(facts, &cmp(BinOp::Lt, &ramp(&at, 1), &all(&index(0))), "x8(false)");
    check(facts, &cmp(BinOp::Lt, &ramp(k, -1), &all(&index(3))), "x8(true)");
    check(facts, &cmp(BinOp::Le, &all(&index(1)), &all(i)), "x8((1 <= i))");
    let some = cmp(BinOp::Lt, &ramp(&at, 1), &all(n));
    check(facts, &some, "(ramp((i*8), 1, 8) < x8(n))");
    check(facts, &cmp(BinOp::Eq, &ramp(&index(0), 1), &all(&index(7))), "(ramp(0, 1, 8) == x8(7))");
    let mixed = cmp(BinOp::Lt, &ramp(&index(1), 1), &all(&index(4)));
    check(facts, &mixed, "(ramp(1, 1, 8) < x8(4))");
    let none = cmp(BinOp::Lt, &ramp(&at, 1), &all(&index(0)));
    let or = |a: &Expr, b: &Expr| cmp(BinOp::Or, a, b);
    let and = |a: &Expr, b: &Expr| cmp(BinOp::And, a, b);
    check(facts, &or(&none, &some), "(ramp((i*8), 1, 8) < x8(n))");
    check(facts, &and(&some, &none), "x8(false)");
    let outside = Expr::new(lanes(DType::Bool), ExprKind::Unary(UnOp::Not, some.clone()));
    check(facts, &outside, "(x8(n) <= ramp((i*8), 1, 8))");

    let buffer = Buffer::new("A", DType::Float32, vec![index(112)], Scope::Global);
    let float = |value: f64| all(&Expr::float(DType::Float32, value));
    let read = |mask: &Expr| {
        let (buffer, indices) = (buffer.clone(), vec![ramp(&at, 1)]);
        Expr::new(
            lanes(DType::Float32),
            ExprKind::Load { buffer, indices, mask: Some(mask.clone()) },
        )
    };
    let pick = |cond: &Expr, a: Expr, b: Expr| {
        Expr::new(lanes(DType::Float32), ExprKind::Select(cond.clone(), a, b))
    };
    check(facts, &pick(&none, float(1.0), float(2.0)), "x8(2f)");
    let masked = "(A[ramp((i*8), 1, 8)] if (ramp((i*8), 1, 8) < x8(n)))";
    check(facts, &pick(&some, read(&some), float(0.0)), masked);
    check(facts, &pick(&outside, float(0.0), read(&some)), masked);
    let cond = "(ramp((i*8), 1, 8) < x8(n))";
    let choice = |other: &str| format!("select({cond}, {masked}, x8({other}))");
    check(facts, &pick(&outside, float(1.0), read(&some)), &choice("1f"));
    check(facts, &pick(&some, read(&some), float(-0.0)), &choice("-0f"));
    // The order of two masked reads is kept.
    let both =
        format!("select({cond}, {masked}, (A[ramp((i*8), 1, 8)] if (x8(n) <= ramp((i*8), 1, 8))))");
    check(facts, &pick(&some, read(&some), read(&outside)), &both);
    let divided_by = |op, base: &Expr, by: i64| {
        let kind = ExprKind::Binary(op, ramp(base, 1), all(&index(by)));
        Expr::new(lanes(DType::Index), kind)
    };
    let divided = |op, base: &Expr| divided_by(op, base, 3);
    // All lanes are in one period of 24, those of the second vector in two.
    let whole = mul(i, &index(8));
    let wrapped = "ramp((floormod(i, 3)*8), 1, 8)";
    check(facts, &divided_by(BinOp::FloorMod, &whole, 24), wrapped);
    check(facts, &divided_by(BinOp::FloorDiv, &whole, 24), "x8(floordiv(i, 3))");
    let apart = add(&whole, &index(1));
    let two = "floormod(ramp(((i*8) + 1), 1, 8), x8(24))";
    check(facts, &divided_by(BinOp::FloorMod, &apart, 24), two);
    let base = add(&mul(i, &index(6)), &index(4));
    check(facts, &divided(BinOp::FloorMod, &base), "floormod(ramp(1, 1, 8), x8(3))");
    let quotient = "(x8(((i*2) + 1)) + floordiv(ramp(1, 1, 8), x8(3)))";
    check(facts, &divided(BinOp::FloorDiv, &base), quotient);
    check(facts, &divided(BinOp::FloorMod, i), "floormod(ramp(i, 1, 8), x8(3))");
    check(
        facts,
        &divided(BinOp::FloorDiv, &index(-1)),
        "(x8(-1) + floordiv(ramp(2, 1, 8), x8(3)))",
    );
    // Clamps that no lane needs, and what all lanes have in common.
    let clamped = |op, first: i64, bound: i64| {
        let kind = ExprKind::Binary(op, ramp(&index(first), 1), all(&index(bound)));
        let lane = Expr::new(lanes(DType::Index), kind);
        Expr::new(lanes(DType::Index), ExprKind::Binary(BinOp::Add, all(n), lane))
    };
    check(facts, &clamped(BinOp::Max, 0, 0), "ramp(n, 1, 8)");
    check(facts, &clamped(BinOp::Min, 2, 9), "ramp((n + 2), 1, 8)");
    check(facts, &clamped(BinOp::Max, -9, 0), "x8(n)");
    check(facts, &clamped(BinOp::Min, 2, 8), "(x8(n) + min(ramp(2, 1, 8), x8(8)))");
    let holds = Expr::new(lanes(DType::Bool), ExprKind::Unary(UnOp::Not, none));
    check(facts, &read(&holds), "A[ramp((i*8), 1, 8)]");
    check(facts, &read(&cmp(BinOp::Lt, &ramp(&index(4), 1), &all(&index(4)))), "x8(0f)");
}

#[test]
fn machine_integers_and_floats_keep_their_operations() {
    let facts = Facts::new();
    let x = Expr::var(&Var::new("x", DType::Int32));
    let int = |value| Expr::int(DType::Int32, value);
    check(&facts, &add(&add(&x, &int(1)), &int(2)), "((x + 1) + 2)");
    check(&facts, &add(&int(i32::MAX as i128), &int(1)), "-2147483648");
    check(&facts, &mul(&x, &int(1)), "x");
    check(&facts, &sub(&x, &x), "0");
    let y = Expr::var(&Var::new("y", DType::Float32));
    let float = |value| Expr::float(DType::Float32, value);
    check(&facts, &add(&y, &float(0.0)), "(y + 0f)");
    check(&facts, &mul(&y, &float(1.0)), "y");
    check(&facts, &sub(&y, &float(0.0)), "y");
    check(&facts, &mul(&float(0.1), &float(3.0)), "0.3f");
    check(&facts, &bin(BinOp::Gt, &y, &float(0.0)), "(0f < y)");
    let less = Expr::not(Expr::lt(y.clone(), float(0.0)));
    check(&facts, &less, &format!("!{}", print_expr(&Expr::lt(y.clone(), float(0.0)))));
    check(&facts, &Expr::call(Intrinsic::Exp, vec![add(&float(1.0), &float(1.0))]), "exp(2f)");
    check(&facts, &sub(&y, &y), "(y - y)");
}

#[test]
fn congruences_divide() {
    let mut facts = Facts::new();
    let n = Expr::var(&Var::index("n"));
    facts.assume(&Expr::eq(rem(&n, &index(16)), index(0)));
    check(&facts, &rem(&n, &index(16)), "0");
    check(&facts, &rem(&add(&n, &index(5)), &index(8)), "5");
    check(&facts, &mul(&div(&n, &index(16)), &index(16)), "n");
}

#[test]
fn a_pass_of_its_own_joins_symbolic_divisions() {
    let a = Buffer::new("a", DType::Float32, vec![index(64)], Scope::Global);
    let ([n, m], i) = (["n", "m"].map(|name| Expr::var(&Var::index(name))), Var::index("i"));
    let at = Expr::var(&i);
    let at = add(&mul(&div(&at, &m), &m), &rem(&at, &m));
    let store = Stmt::store(&a, vec![at], Expr::float(DType::Float32, 0.0));
    let positive = [&n, &m].map(|var| Expr::le(index(0), var.clone()));
    let kernel = Kernel {
        facts: positive.to_vec(),
        ..Kernel::new("k", Vec::new(), Stmt::serial(i, mul(&n, &m), store))
    };
    for (joined, expect) in [(false, "((floordiv(i, m)*m) + floormod(i, m))"), (true, "i")] {
        let kernel = kernel.clone();
        let kernel = if joined { join_divisions(kernel) } else { simplify_kernel(kernel) };
        let Stmt::For { body, .. } = kernel.body else { panic!("a loop") };
        let Stmt::Store { indices, .. } = *body else { panic!("a store") };
        assert_eq!(print_expr(&indices[0]), expect);
    }
}

#[test]
fn statements_are_simplified() {
    let a = Buffer::new("a", DType::Float32, vec![index(64)], Scope::Global);
    let (i, j, n) = (Var::index("i"), Var::index("j"), Var::index("n"));
    let store = |at: Expr| Stmt::store(&a, vec![at], Expr::float(DType::Float32, 0.0));
    let sum = add(&Expr::var(&i), &Expr::var(&j));
    let inner = Stmt::If {
        cond: Expr::lt(Expr::var(&i), index(8)),
        then: Box::new(Stmt::serial(j, index(1), store(sum))),
        otherwise: Some(Box::new(store(index(9)))),
    };
    let empty = Stmt::serial(Var::index("e"), sub(&Expr::var(&n), &Expr::var(&n)), store(index(1)));
    let body = Stmt::Block(vec![Stmt::Block(vec![empty]), Stmt::serial(i, index(8), inner)]);
    let kernel = Kernel::new("k", Vec::new(), body);
    let Stmt::For { body, .. } = simplify_kernel(kernel).body else { panic!("one loop remains") };
    let Stmt::Store { indices, .. } = *body else { panic!("one store remains") };
    assert_eq!(print_expr(&indices[0]), "i");
}

#[test]
fn random_expressions_keep_their_values() {
    let seeds = std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    for seed in 0..seeds {
        let mut generator = Generator::new(seed);
        let (facts, mut assignments) = generator.facts();
        assignments.truncate(24);
        for cond in [false, true] {
            let expr = if cond { generator.condition(4) } else { generator.term(4) };
            let simple = simplify_expr(&expr, &facts);
            for assignment in &assignments {
                let (Some(before), after) =
                    (evaluate(&expr, assignment), evaluate(&simple, assignment))
                else {
                    continue;
                };
                let texts = (print_expr(&expr), print_expr(&simple));
                assert_eq!(Some(before), after, "seed {seed}: {texts:?} at {assignment:?}");
            }
            let again = simplify_expr(&simple, &facts);
            let texts = (print_expr(&expr), print_expr(&simple), print_expr(&again));
            assert!(again.same(&simple), "seed {seed} is not idempotent: {texts:?}");
        }
    }
}

/// Frames of a debug build are large: runs in a thread with the stack of the compiler's threads.
fn deep(work: impl FnOnce() + Send) {
    crate::driver::with_stack(work);
}

#[test]
fn long_sums_take_linear_time() {
    deep(|| {
        let facts = Facts::new();
        let (x, y) = (Var::index("x"), Var::new("y", DType::Float32));
        let mut sum = Expr::var(&x);
        let mut float = Expr::var(&y);
        let mut cond = Expr::lt(Expr::var(&y), Expr::float(DType::Float32, -1.0));
        for at in 0..100_000 {
            // One term in five is distinct.
            sum = add(&sum, &rem(&Expr::var(&x), &index(at % 20_000 + 2)));
            float = add(&float, &Expr::float(DType::Float32, 0.5));
            let next = Expr::lt(Expr::var(&y), Expr::float(DType::Float32, at as f64));
            cond = Expr::or(cond, next);
        }
        for expr in [sum, float, cond] {
            simplify_expr(&expr, &facts);
        }
    });
}

#[test]
fn equal_terms_of_long_sums_are_joined() {
    // More terms than are compared one by one.
    let vars: Vec<Expr> = (0..12).map(|_| Expr::var(&Var::index("x"))).collect();
    let halves = |by: i64| vars.iter().map(move |x| div(&add(x, &index(by)), &index(7)));
    let twice = halves(3).chain(halves(3)).reduce(|a, b| add(&a, &b)).expect("terms");
    let facts = Facts::new();
    let expected = halves(3).map(|x| mul(&x, &index(2))).reduce(|a, b| add(&a, &b)).expect("terms");
    let (twice, expected) = (simplify_expr(&twice, &facts), simplify_expr(&expected, &facts));
    assert!(crate::ir::equal::equal(&twice, &expected), "{twice:?}\n{expected:?}");
}

#[test]
fn shared_subterms_are_simplified_once() {
    let facts = Facts::new();
    let mut sum = Expr::var(&Var::index("x"));
    let mut choice = Expr::var(&Var::new("z", DType::Int32));
    for at in 0..60 {
        sum = add(&sum, &sum);
        let cond = Expr::lt(choice.clone(), Expr::int(DType::Int32, at));
        let other = add(&choice, &Expr::int(DType::Int32, 1));
        choice = if at < 18 { Expr::if_then_else(cond, choice, other) } else { choice };
    }
    assert_eq!(print_expr(&simplify_expr(&sum, &facts)), "(x*1152921504606846976)");
    simplify_expr(&choice, &facts);
}

#[test]
fn copies_of_a_let_are_distinct() {
    let (t, x) = (Var::new("t", DType::Float32), Var::new("x", DType::Float32));
    let body = Expr::add(Expr::var(&t), Expr::var(&t));
    let one = Expr::let_in(t.clone(), Expr::float(DType::Float32, 1.0), body.clone());
    let value = Expr::unary(UnOp::Neg, Expr::var(&x));
    let other = Expr::let_in(t, value, body);
    let simple = simplify_expr(&Expr::mul(one, other), &Facts::new());
    assert_eq!(print_expr(&simple), "(2f*(let t = -x in (t + t)))");
}

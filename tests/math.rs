//! Expanded mathematical functions against the reference: error bounds over the whole range,
//! special values exactly.
//!
//! `make test-exhaustive F=exp` evaluates one function on every Float32 argument and prints the
//! largest error; with `STRIDE=17`, every 17th.

mod flat;
mod schedules;

use flat::{BATCH, Program};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_PI_2, FRAC_PI_4, LOG2_E, PI, SQRT_2};
use tec::ir::Intrinsic::{self, *};
use tec::ir::verify::verify_kernel;
use tec::ir::visit::walk_expr;
use tec::ir::{
    BinOp, Buffer, Const, DType, Expr, ExprKind, Kernel, Param, Role, Scope, Stmt, Type, Var,
    interp, reference,
};
use tec::lower::expand_math::{expand_expr, expand_in_nest, expand_math};
use tec::target::{SimdIsa, Target};

/// Functions of one argument with their documented bounds.
const UNARY: [(Intrinsic, f64); 13] = [
    (Rsqrt, 1.0),
    (Exp, 1.0),
    (Exp2, 1.0),
    (Expm1, 1.0),
    (Log, 1.0),
    (Log2, 1.0),
    (Tanh, 2.0),
    (Sigmoid, 2.0),
    (Erf, 2.0),
    (Sin, 2.0),
    (Cos, 2.0),
    (Tan, 2.0),
    (Atan, 2.0),
];

/// Returns the expansion of `function` in `dtype`.
fn program(function: Intrinsic, dtype: DType) -> Program {
    let arity = if function == Pow { 2 } else { 1 };
    let args: Vec<Var> = (0..arity).map(|i| Var::new(format!("x{i}"), dtype)).collect();
    let call = Expr::call(function, args.iter().map(Expr::var).collect());
    Program::new(&expand_expr(&call), &args)
}

fn value(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::Float32 => f32::from_bits(bits as u32) as f64,
        _ => f64::from_bits(bits),
    }
}

/// The largest error over some arguments, and where it is.
#[derive(Clone, Copy)]
struct Worst {
    error: f64,
    args: [u64; 2],
    got: u64,
}

impl Worst {
    const NONE: Worst = Worst { error: -1.0, args: [0; 2], got: 0 };

    fn or(self, other: Worst) -> Worst {
        if other.error > self.error { other } else { self }
    }
}

/// Returns the largest error of a function of one argument on `bits`.
fn worst(
    function: Intrinsic,
    dtype: DType,
    program: &Program,
    bits: impl Iterator<Item = u64>,
) -> Worst {
    worst_of_two(function, dtype, program, bits.map(|x| [x, 0]))
}

fn worst_of_two(
    function: Intrinsic,
    dtype: DType,
    program: &Program,
    mut bits: impl Iterator<Item = [u64; 2]>,
) -> Worst {
    let mut registers = program.registers();
    let mut worst = Worst::NONE;
    let mut batches = [[0; BATCH]; 2];
    loop {
        let mut count = 0;
        for args in bits.by_ref().take(BATCH) {
            batches[0][count] = args[0];
            batches[1][count] = args[1];
            count += 1;
        }
        if count == 0 {
            return worst;
        }
        let results = program.run(&[&batches[0], &batches[1]], &mut registers);
        for i in 0..count {
            let args = [batches[0][i], batches[1][i]];
            let values = args.map(|x| value(dtype, x));
            let exact = reference::evaluate_exact(function, dtype, &values);
            let error = exact.error_of(dtype, value(dtype, results[i]));
            worst = worst.or(Worst { error, args, got: results[i] });
        }
    }
}

/// Fails if `worst` is above `bound`.
fn check(function: Intrinsic, dtype: DType, bound: f64, worst: Worst) {
    let Worst { error, args, got } = worst;
    let [x, y] = args.map(|x| value(dtype, x));
    let exact = reference::evaluate(function, dtype, &[x, y]);
    let name = function.name();
    println!("{name} {dtype}: {error:.3} ULP at {x:e} ({y:e})");
    assert!(
        error <= bound,
        "{name}({x:e} [{:#x}], {y:e} [{:#x}]) in {dtype} = {:e}, not {exact:e}: {error:.3} ULP",
        args[0],
        args[1],
        value(dtype, got)
    );
}

/// Float32 arguments: a stride over all patterns, and the neighbourhood of every exponent's ends
/// and of the limits of each function.
fn sweep_f32() -> Vec<u64> {
    let mut all: Vec<u64> = (0..200_000).map(|i| i * 21_473 % (1 << 32)).collect();
    for field in 0..512u64 {
        all.extend((0..16).map(|i| ((field << 23) + i).wrapping_sub(8) & 0xffff_ffff));
    }
    let limits = [
        1.0, 0.5, 2.0, 88.72284, -87.33655, -103.97208, 128.0, -126.0, -149.0, -150.0, 9.01, 10.0,
        0.34657, 17.329, -104.0, 3.92, 4.0, 0.70710677, SQRT_2, FRAC_PI_4, FRAC_PI_2, PI, 16.63,
        -17.33,
    ];
    for limit in limits {
        for signed in [limit, -limit] {
            let bits = (signed as f32).to_bits() as u64;
            all.extend((0..200).map(|i| bits.wrapping_add(i).wrapping_sub(100) & 0xffff_ffff));
        }
    }
    all
}

#[test]
fn float32_functions_stay_within_their_bounds() {
    let sweep = sweep_f32();
    for (function, bound) in UNARY {
        let program = program(function, DType::Float32);
        let found = worst(function, DType::Float32, &program, sweep.iter().copied());
        check(function, DType::Float32, bound, found);
    }
}

/// Float64 arguments: random patterns, random numbers of common size, exponents' ends, and the
/// neighbourhood of the points where a function is hard.
fn sweep_f64(count: usize) -> Vec<u64> {
    let mut random = Random(1);
    let mut all: Vec<u64> = (0..count).map(|_| random.next()).collect();
    for limit in [1.0, 2.0, 10.0, 40.0, 800.0, 1e5, 1e22] {
        all.extend((0..count / 4).map(|_| (random.unit() * limit).to_bits()));
    }
    // Near 1 for the logarithm, near multiples of pi/2 for the sine.
    for _ in 0..count / 2 {
        let step = 2f64.powi(-((random.next() % 50) as i32));
        all.push((1.0 + random.unit() * step).to_bits());
        let quarters = (random.unit() * 2f64.powi((random.next() % 40) as i32)).round();
        let close = (quarters * FRAC_PI_2).to_bits();
        all.push(close.wrapping_add(random.next() % 5).wrapping_sub(2));
    }
    for field in (0..4096u64).step_by(7).chain(1000..1060) {
        all.extend((0..3).map(|i| (field << 52).wrapping_add(i).wrapping_sub(1)));
    }
    let limits = [
        709.782712893384,
        -708.3964185322641,
        -745.1332191019411,
        1024.0,
        -1022.0,
        -1074.0,
        -1075.0,
        5.921587195794507,
        6.0,
        19.06,
        20.0,
        36.7,
        37.43,
        0.34657,
        0.4375,
        0.6875,
        1.1875,
        2.4375,
        0.125,
        1.125,
        // The Float64 number that is closest to a multiple of pi/2, and other hard cases.
        5.319372648326541e255,
        6.381956970095103e18,
        2.608_370_868_684_383_6e16,
        1e300,
        FRAC_PI_4,
        f64::MAX,
        f64::MIN_POSITIVE,
    ];
    for limit in limits {
        for signed in [limit, -limit] {
            all.extend((0..9).map(|i| signed.to_bits().wrapping_add(i).wrapping_sub(4)));
        }
    }
    all
}

/// A pseudo-random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * 2f64.powi(-52) - 1.0
    }
}

/// Number of random Float64 arguments of each kind; `TEC_MATH_POINTS` sets another.
fn points() -> usize {
    std::env::var("TEC_MATH_POINTS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

#[test]
fn float64_functions_stay_within_their_bounds() {
    let sweep = sweep_f64(points());
    for (function, bound) in UNARY {
        let program = program(function, DType::Float64);
        let found = worst(function, DType::Float64, &program, sweep.iter().copied());
        check(function, DType::Float64, bound, found);
    }
}

/// Arguments of `pow`: random patterns, and pairs whose power is an ordinary number.
fn sweep_pow(dtype: DType, count: usize) -> Vec<[u64; 2]> {
    let bits = |x: f64| flat::float_bits(dtype, x);
    let mut random = Random(2);
    let mut all = Vec::new();
    for _ in 0..count {
        all.push([bits(value(dtype, random.next())), bits(value(dtype, random.next()))]);
        let range = if dtype == DType::Float32 { 150.0 } else { 1080.0 };
        // The exponent of the result covers the whole range, subnormal numbers included.
        let exponent = random.unit() * range;
        let scale = 2f64.powi((random.next() % 60) as i32 - 50);
        let base = (1.0 + random.unit() * scale.min(0.999)) * scale.max(1.0);
        all.push([bits(base), bits(exponent / base.log2())]);
        let whole = (random.unit() * 20.0).round();
        all.push([bits(-base), bits(whole)]);
    }
    all
}

#[test]
fn powers_stay_within_their_bounds() {
    for (dtype, count) in [(DType::Float32, 100_000), (DType::Float64, points())] {
        let program = program(Pow, dtype);
        let found = worst_of_two(Pow, dtype, &program, sweep_pow(dtype, count).into_iter());
        check(Pow, dtype, 4.0, found);
    }
}

/// Bits of the results of `program`.
fn results(program: &Program, args: &[[u64; 2]]) -> Vec<u64> {
    let mut registers = program.registers();
    let mut results = Vec::new();
    for chunk in args.chunks(BATCH) {
        let mut batches = [[0; BATCH]; 2];
        for (i, [x, y]) in chunk.iter().enumerate() {
            (batches[0][i], batches[1][i]) = (*x, *y);
        }
        let batch = program.run(&[&batches[0], &batches[1]], &mut registers);
        results.extend_from_slice(&batch[..chunk.len()]);
    }
    results
}

#[test]
fn special_values_are_exact() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    // The results for 0, -0, infinity, -infinity and NaN, then one more exact case.
    let cases: [(Intrinsic, [f64; 5], [f64; 2]); 13] = [
        (Rsqrt, [INF, -INF, 0.0, NAN, NAN], [4.0, 0.5]),
        (Exp, [1.0, 1.0, INF, 0.0, NAN], [-2000.0, 0.0]),
        (Exp2, [1.0, 1.0, INF, 0.0, NAN], [-3.0, 0.125]),
        (Expm1, [0.0, -0.0, INF, -1.0, NAN], [-50.0, -1.0]),
        (Log, [-INF, -INF, INF, NAN, NAN], [1.0, 0.0]),
        (Log2, [-INF, -INF, INF, NAN, NAN], [0.125, -3.0]),
        (Tanh, [0.0, -0.0, 1.0, -1.0, NAN], [-50.0, -1.0]),
        (Sigmoid, [0.5, 0.5, 1.0, 0.0, NAN], [60.0, 1.0]),
        (Erf, [0.0, -0.0, 1.0, -1.0, NAN], [-7.0, -1.0]),
        (Sin, [0.0, -0.0, NAN, NAN, NAN], [-1e-30, -1e-30]),
        (Cos, [1.0, 1.0, NAN, NAN, NAN], [1e-30, 1.0]),
        (Tan, [0.0, -0.0, NAN, NAN, NAN], [-1e-30, -1e-30]),
        (Atan, [0.0, -0.0, FRAC_PI_2, -FRAC_PI_2, NAN], [-1e-30, -1e-30]),
    ];
    for dtype in [DType::Float32, DType::Float64] {
        let bits = |x: f64| flat::float_bits(dtype, x);
        for (function, expected, [x, y]) in cases {
            let args = [0.0, -0.0, INF, -INF, NAN, x].map(|x| [bits(x), 0]);
            let got = results(&program(function, dtype), &args);
            for ((arg, got), expected) in args.iter().zip(got).zip(expected.into_iter().chain([y]))
            {
                let (arg, got) = (value(dtype, arg[0]), value(dtype, got));
                let expected = value(dtype, bits(expected));
                let same =
                    got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
                assert!(same, "{}({arg}) in {dtype} is {got}, not {expected}", function.name());
            }
        }
        // Powers of two have exact logarithms and are exact powers.
        let exponents: Vec<f64> = (-126..128).map(f64::from).collect();
        let whole: Vec<[u64; 2]> = exponents.iter().map(|e| [bits(*e), 0]).collect();
        let powers: Vec<[u64; 2]> = exponents.iter().map(|e| [bits(e.exp2()), 0]).collect();
        let bare = |args: &[[u64; 2]]| args.iter().map(|x| x[0]).collect::<Vec<u64>>();
        assert_eq!(results(&program(Exp2, dtype), &whole), bare(&powers));
        assert_eq!(results(&program(Log2, dtype), &powers), bare(&whole));
    }
}

#[test]
fn special_powers_follow_annex_f() {
    let inf = f64::INFINITY;
    let nan = f64::NAN;
    let bases = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, inf, -inf, nan, 1e-40, -3e38];
    let exponents = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        1e30,
        -1e30,
        16777215.0,
        16777217.0,
        -8388607.5,
        9007199254740991.0,
        inf,
        -inf,
        nan,
        1e-40,
        1e-320,
    ];
    for dtype in [DType::Float32, DType::Float64] {
        let program = program(Pow, dtype);
        for base in bases {
            for exponent in exponents {
                let args = [base, exponent].map(|x| flat::float_bits(dtype, x));
                let [x, y] = args.map(|x| value(dtype, x));
                let got = value(dtype, results(&program, &[args])[0]);
                // The standard library follows Annex F; Float64 is exact enough for Float32 powers.
                let expected = value(dtype, flat::float_bits(dtype, x.powf(y)));
                let close = (got - expected).abs() <= expected.abs() * 1e-6;
                let same = got.to_bits() == expected.to_bits()
                    || (got.is_nan() && expected.is_nan())
                    || (got.is_finite() && got != 0.0 && close);
                assert!(same, "pow({x:e}, {y:e}) in {dtype} is {got:e}, not {expected:e}");
            }
        }
    }
}

/// `B[i] = function(A[i])`, by loops or as one vector.
fn kernel(function: Intrinsic, dtype: DType, count: i64, vector: bool) -> Kernel {
    let buffer = |name: &str| Buffer::new(name, dtype, vec![Expr::index(count)], Scope::Global);
    let inputs = [buffer("A"), buffer("E")];
    let output = buffer("B");
    let arity = if function == Pow { 2 } else { 1 };
    let var = Var::index("i");
    let index = if vector {
        let ty = Type { dtype: DType::Index, lanes: count as u32 };
        Expr::new(ty, ExprKind::Ramp(Expr::index(0), Expr::index(1)))
    } else {
        Expr::var(&var)
    };
    let args = inputs[..arity].iter().map(|input| Expr::load(input, vec![index.clone()]));
    let call = Expr::call(function, args.collect());
    let store = Stmt::store(&output, vec![index], call);
    let tensor = |buffer: &Buffer, output| Param::Tensor {
        buffer: buffer.clone(),
        role: if output { Role::Output } else { Role::Input },
        layout_free: false,
    };
    let mut params: Vec<Param> = inputs[..arity].iter().map(|input| tensor(input, false)).collect();
    params.push(tensor(&output, true));
    Kernel::new(
        "map",
        params,
        if vector { store } else { Stmt::serial(var, Expr::index(count), store) },
    )
}

/// Returns the output of [`kernel`] by the interpreter.
fn interpret(kernel: &Kernel, dtype: DType, args: &[[u64; 2]]) -> Vec<u64> {
    let bytes = dtype.bytes() as usize;
    let mut values: Vec<interp::Value> = (0..kernel.params.len())
        .map(|i| {
            let bits = args.iter().map(|args| args[i % 2].to_le_bytes());
            let data = bits.flat_map(|word| word[..bytes].to_vec()).collect();
            interp::Value::Tensor(interp::Tensor { dtype, shape: vec![args.len() as i64], data })
        })
        .collect();
    interp::run(kernel, &mut values).expect("the kernel runs");
    let Some(interp::Value::Tensor(output)) = values.pop() else { panic!("an output") };
    output
        .data
        .chunks(bytes)
        .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64))
        .collect()
}

#[test]
fn the_interpreter_agrees_on_scalars_vectors_and_nests() {
    let (native, avx512) = (Target::native(), Target::parse("x86-avx512").expect("a target"));
    for (function, _) in UNARY.into_iter().chain([(Pow, 4.0)]) {
        for dtype in [DType::Float32, DType::Float64] {
            let mut args = sweep_pow(dtype, 40);
            args.extend(
                sweep_f64(40).iter().map(|x| [flat::float_bits(dtype, f64::from_bits(*x)), 0]),
            );
            args.truncate(256);
            let expected = results(&program(function, dtype), &args);
            for (vector, nest) in [(false, false), (true, false), (true, true)] {
                let mut kernel = kernel(function, dtype, args.len() as i64, vector);
                if nest {
                    kernel.body = Stmt::SimdKernel { body: Box::new(kernel.body) };
                }
                let target = if nest { &avx512 } else { &native };
                let kernel = expand_math(kernel, target).expect("every function is known");
                verify_kernel(&kernel).expect("expanded mathematics is well formed");
                let got = interpret(&kernel, dtype, &args);
                for ((args, got), expected) in args.iter().zip(got).zip(&expected) {
                    let [x, got_value, wanted] = [args[0], got, *expected].map(|x| value(dtype, x));
                    let same = got == *expected || (got_value.is_nan() && wanted.is_nan());
                    assert!(same, "{}({x:e}): {got_value:e}, not {wanted:e}", function.name());
                }
            }
        }
    }
}

/// A product near the denormal numbers takes 40 ns a vector on a Golden Cove: `exp` of elements
/// that a mask makes very negative is to avoid it, and so is a power of 0.
#[test]
fn masked_arguments_have_no_products_near_the_denormal_numbers() {
    let masks = [f64::NEG_INFINITY, f64::MIN, f32::MIN.into(), -1e9, -1e4];
    let arguments = masks.map(|mask| [mask, 0.0]);
    let powers = [[0.0, 2.0], [0.0, 2.2], [0.0, 1e30]];
    for dtype in [DType::Float32, DType::Float64] {
        let (normal, far) =
            if dtype == DType::Float32 { (-126.0, -160.0) } else { (-1022.0, -1088.0) };
        for (function, all) in [(Exp, &arguments[..]), (Exp2, &arguments), (Pow, &powers)] {
            let program = program(function, dtype);
            let mut registers = program.registers();
            let mut batches = [[0; BATCH]; 2];
            for (lane, args) in all.iter().enumerate() {
                for (batch, arg) in batches.iter_mut().zip(args) {
                    batch[lane] = flat::float_bits(dtype, *arg);
                }
            }
            program.run(&[&batches[0], &batches[1]], &mut registers);
            for (lane, args) in all.iter().enumerate() {
                for (ty, a, b) in program.products(&registers, lane) {
                    let (a, b) = (value(ty, a), value(ty, b));
                    let exponent = a.abs().log2() + b.abs().log2();
                    let slow = ty == dtype && exponent < normal && exponent > far;
                    assert!(!slow, "{}({args:?}) in {dtype}: {a:e} * {b:e}", function.name());
                }
            }
        }
        // The instruction for `2^n` is fast from other exponents on.
        let far = if dtype == DType::Float32 { -512.0 } else { -4099.0 };
        for (function, unit) in [(Exp, LOG2_E), (Exp2, 1.0)] {
            let call = Expr::call(function, vec![Expr::var(&Var::new("x", dtype))]);
            let mut lowest: f64 = 0.0;
            walk_expr(&expand_in_nest(&call, SimdIsa::Avx512), &mut |expr| {
                if let ExprKind::Binary(BinOp::Max, limit, _) = &expr.kind
                    && let ExprKind::Const(Const::Float(limit)) = limit.kind
                {
                    lowest = lowest.min(limit);
                }
            });
            assert!(lowest * unit <= far, "{} in {dtype}: {lowest}", function.name());
        }
    }
}

#[test]
fn expansions_have_no_branches_and_no_calls() {
    for (function, _) in UNARY.into_iter().chain([(Pow, 4.0)]) {
        for dtype in [DType::Float32, DType::Float64] {
            let arg = Expr::var(&Var::new("x", dtype));
            let expanded = expand_expr(&Expr::call(function, vec![arg.clone(), arg]));
            walk_expr(&expanded, &mut |expr| match &expr.kind {
                ExprKind::IfThenElse(..) => panic!("{} branches", function.name()),
                ExprKind::Call(call, _) => assert_eq!(*call, Fma, "{}", function.name()),
                _ => {}
            });
        }
    }
}

#[test]
fn the_documented_costs_are_right() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/MATH.md");
    let page = std::fs::read_to_string(path).expect("docs/MATH.md");
    let costs = page.split("## Cost").nth(1).expect("a section about costs");
    for (function, _) in UNARY.into_iter().chain([(Pow, 4.0)]) {
        let [single, double] = [DType::Float32, DType::Float64].map(|ty| program(function, ty));
        let wide = match single.count_wide() {
            0 => String::new(),
            wide => format!(" ({wide})"),
        };
        let name = function.name();
        let row = costs.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let counts = [format!("{}{wide}", single.len()), double.len().to_string()];
        assert_eq!([cells[2], cells[4]], counts, "{name}");
    }
}

#[test]
fn shared_nodes_are_expanded_once() {
    let mut expr = Expr::var(&Var::new("x", DType::Float32));
    for _ in 0..64 {
        let sin = Expr::call(Sin, vec![expr]);
        expr = Expr::add(sin.clone(), sin);
    }
    // Without sharing, this would be a tree of 2^64 nodes.
    assert!(Program::new(&expand_expr(&expr), &[expr_var(&expr)]).len() < 64 * 60);
}

/// Returns the only free variable of an expression with shared nodes.
fn expr_var(expr: &Expr) -> Var {
    let mut expr = expr.clone();
    loop {
        expr = match &expr.kind {
            ExprKind::Var(var) => return var.clone(),
            ExprKind::Binary(_, a, _) => a.clone(),
            ExprKind::Call(_, args) => args[0].clone(),
            other => panic!("{other:?}"),
        };
    }
}

#[test]
fn tf32_rounds_to_nearest_with_ties_away_from_zero() {
    let program = program(Tf32, DType::Float32);
    let sweep = sweep_f32();
    let args: Vec<[u64; 2]> = sweep.iter().map(|bits| [*bits, 0]).collect();
    for (bits, result) in sweep.iter().zip(results(&program, &args)) {
        let (x, y) = (f32::from_bits(*bits as u32), f32::from_bits(result as u32));
        let reference = tec::ir::reference::evaluate(Tf32, DType::Float32, &[f64::from(x)]);
        if x.is_nan() {
            assert!(y.is_nan() && reference.is_nan());
            continue;
        }
        assert_eq!(y.to_bits(), (reference as f32).to_bits(), "{x:e}");
        assert_eq!(y.to_bits() & 0x1fff, 0, "{x:e} has bits left");
        // The neighbours with ten bits.
        let down = f32::from_bits(x.to_bits() & !0x1fff);
        let up = f32::from_bits((x.to_bits() & !0x1fff).wrapping_add(0x2000));
        if x.is_finite() && up.is_finite() {
            let (below, above) = ((x - down).abs(), (up - x).abs());
            let nearest = if below < above { down } else { up };
            assert_eq!(y.to_bits(), nearest.to_bits(), "{x:e}");
        }
    }
}

#[test]
fn the_reference_rounds_correctly() {
    // Values from an independent source (mpmath with 300 bits, rounded to nearest even).
    let cases: [(Intrinsic, f64, f64); 42] = [
        (Exp, 1.25, 3.4903429574618414),
        (Exp, -745.0, 5e-324),
        (Exp, -720.5, 1.2326102893e-313),
        (Exp, 709.7, 1.6549840276802644e+308),
        (Exp2, 0.3, 1.2311444133449163),
        (Exp2, -1073.4, 1e-323),
        (Exp2, 1023.99, 1.7852755613304564e+308),
        (Expm1, 1e-20, 1e-20),
        (Expm1, 0.35, 0.41906754859325723),
        (Expm1, -0.3, -0.2591817793182821),
        (Expm1, -30.0, -0.9999999999999064),
        (Expm1, 3e-320, 3e-320),
        (Log, 0.9999999999, -1.000000082790371e-10),
        (Log, 5e-324, -744.4400719213812),
        (Log, 1.5e+300, 691.1809930063218),
        (Log2, 1.0000001, 1.4426949695965583e-07),
        (Log2, 3e-310, -1028.212746914361),
        (Log2, 7.0, 2.807354922057604),
        (Tanh, 1e-05, 9.999999999666668e-06),
        (Tanh, 0.3, 0.2913126124515909),
        (Tanh, 18.0, 0.9999999999999996),
        (Sigmoid, -740.0, 4.2e-322),
        (Sigmoid, -3.0, 0.04742587317756678),
        (Sigmoid, 30.0, 0.9999999999999064),
        (Erf, 1e-310, 1.1283791670955e-310),
        (Erf, 0.1, 0.1124629160182849),
        (Erf, 2.5, 0.999593047982555),
        (Erf, 5.5, 0.9999999999999927),
        (Sin, 5.319372648326541e+255, 1.0),
        (Sin, 1e+22, -0.8522008497671888),
        (Sin, PI, 1.2246467991473532e-16),
        (Cos, 5.319372648326541e+255, -4.687165924254628e-19),
        (Cos, 6.381956970095103e+18, -0.6072712225520142),
        (Cos, FRAC_PI_2, 6.123233995736766e-17),
        (Tan, FRAC_PI_2, 1.633123935319537e+16),
        (Tan, 1e+300, 1.4214488238747245),
        (Atan, 0.7, 0.6107259643892086),
        (Atan, 10000000000.0, 1.5707963266948965),
        (Atan, 3e-320, 3e-320),
        (Rsqrt, 3e-310, 5.773502691896267e+154),
        (Rsqrt, 2.0, FRAC_1_SQRT_2),
        (Rsqrt, 1.7e+308, 7.669649888473705e-155),
    ];
    for (function, x, expected) in cases {
        let got = reference::evaluate(function, DType::Float64, &[x]);
        assert_eq!(got, expected, "{}({x:e})", function.name());
    }
}

#[test]
fn exhaustive() {
    let Ok(name) = std::env::var("TEC_EXHAUSTIVE") else { return };
    let (function, bound) = *UNARY
        .iter()
        .find(|(function, _)| function.name() == name)
        .unwrap_or_else(|| panic!("TEC_EXHAUSTIVE={name}: no function of one argument"));
    let stride = std::env::var("TEC_STRIDE").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let program = program(function, DType::Float32);
    println!("{name}: {} operations", program.len());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
    let found = std::thread::scope(|scope| {
        let part = |i: u64| (1u64 << 32) * i / threads;
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let program = &program;
                let bits = (part(i)..part(i + 1)).step_by(stride);
                scope.spawn(move || worst(function, DType::Float32, program, bits))
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).fold(Worst::NONE, Worst::or)
    });
    check(function, DType::Float32, bound, found);
}

//! Expanded mathematical functions against the reference: error bounds over the whole range,
//! special values exactly.
//!
//! `TEC_EXHAUSTIVE=exp cargo test --release --test math exhaustive` goes through every Float32
//! argument of one function and prints the largest error.

mod flat;

use flat::{BATCH, Program};
use tec::ir::Intrinsic::{self, *};
use tec::ir::{DType, Expr, Var, reference};

/// Functions of one argument with their documented bounds.
const UNARY: [(Intrinsic, f64); 12] = [
    (Rsqrt, 1.0),
    (Exp, 1.0),
    (Exp2, 1.0),
    (Log, 1.0),
    (Log2, 1.0),
    (Tanh, 2.0),
    (Sigmoid, 1.0),
    (Erf, 2.0),
    (Sin, 2.0),
    (Cos, 2.0),
    (Tan, 2.0),
    (Atan, 2.0),
];

/// The expansion of `function` in `dtype`.
fn program(function: Intrinsic, dtype: DType) -> Program {
    let arity = if function == Pow { 2 } else { 1 };
    let args: Vec<Var> = (0..arity).map(|i| Var::new(format!("x{i}"), dtype)).collect();
    let call = Expr::call(function, args.iter().map(Expr::var).collect());
    Program::new(&tec::lower::expand_math::expand_expr(&call), &args)
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

/// The largest error of a function of one argument on `bits`.
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
        -104.0, 3.92, 0.70710677, 1.4142135, 0.7853982, 1.5707964, 3.1415927, 16.63, -17.33,
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
fn float32_functions_keep_their_bounds() {
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
        let close = (quarters * std::f64::consts::FRAC_PI_2).to_bits();
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
        0.4375,
        0.6875,
        1.1875,
        2.4375,
        0.125,
        1.125,
        // The Float64 number that is closest to a multiple of pi/2, and a few more bad ones.
        5.319372648326541e255,
        6.381956970095103e18,
        2.608_370_868_684_383_6e16,
        1e300,
        0.7853981633974483,
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

/// A small generator of pseudo-random numbers (splitmix64).
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
fn float64_functions_keep_their_bounds() {
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
        // The result is 2 to the power of something in the range, denormal numbers included.
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
fn powers_keep_their_bounds() {
    for (dtype, count) in [(DType::Float32, 100_000), (DType::Float64, points())] {
        let program = program(Pow, dtype);
        let found = worst_of_two(Pow, dtype, &program, sweep_pow(dtype, count).into_iter());
        check(Pow, dtype, 4.0, found);
    }
}

#[test]
fn exhaustive() {
    let Ok(name) = std::env::var("TEC_EXHAUSTIVE") else { return };
    let (function, bound) = *UNARY
        .iter()
        .find(|(function, _)| function.name() == name)
        .unwrap_or_else(|| panic!("TEC_EXHAUSTIVE={name}: no function of one argument"));
    let program = program(function, DType::Float32);
    println!("{name}: {} operations", program.len());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
    let found = std::thread::scope(|scope| {
        let part = |i: u64| (1u64 << 32) * i / threads;
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let program = &program;
                scope.spawn(move || worst(function, DType::Float32, program, part(i)..part(i + 1)))
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).fold(Worst::NONE, Worst::or)
    });
    check(function, DType::Float32, bound, found);
}

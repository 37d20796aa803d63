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
const UNARY: [(Intrinsic, f64); 7] = [
    (Rsqrt, 1.0),
    (Exp, 1.0),
    (Exp2, 1.0),
    (Log, 1.0),
    (Log2, 1.0),
    (Tanh, 2.0),
    (Sigmoid, 1.0),
    /*(Erf, 2.0),
    (Sin, 2.0),
    (Cos, 2.0),
    (Tan, 2.0),
    (Atan, 2.0),*/
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

/// The distance of neighbours in the binade of `x`.
fn ulp(dtype: DType, x: f64) -> f64 {
    let (digits, least) = if dtype == DType::Float32 { (23, -149) } else { (52, -1074) };
    let exponent = if x == 0.0 { -2000 } else { exponent(x) };
    let unit = (exponent - digits).max(least);
    if unit >= -1022 { 2f64.powi(unit) } else { f64::from_bits(1 << (unit + 1074)) }
}

/// `floor(log2(|x|))` of a finite number that is not zero.
fn exponent(x: f64) -> i32 {
    match (x.to_bits() >> 52) as i32 & 0x7ff {
        0 => exponent(x * 2f64.powi(64)) - 64,
        field => field - 1023,
    }
}

/// The error of `got` in units of the last place; infinite where the kinds of value differ.
fn error(dtype: DType, got: f64, (nearest, rest): (f64, f64)) -> f64 {
    if nearest.is_nan() || got.is_nan() {
        return if nearest.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == nearest && got.is_infinite() {
        return 0.0;
    }
    // One step beyond the largest number counts as the next power of two.
    let next = if dtype == DType::Float32 { 2f64.powi(128) } else { f64::INFINITY };
    if nearest.is_infinite() || got.is_infinite() {
        let largest = if dtype == DType::Float32 { f32::MAX as f64 } else { f64::MAX };
        let finite = if nearest.is_infinite() { got } else { nearest };
        let same_sign = nearest.is_sign_negative() == got.is_sign_negative();
        return match finite.abs() == largest && same_sign {
            true if next.is_finite() && got.is_infinite() => {
                (next - largest - rest.abs()) / ulp(dtype, largest)
            }
            true => 1.0,
            false => f64::INFINITY,
        };
    }
    // A zero result has the sign of the reference.
    if got == 0.0 && nearest == 0.0 && got.is_sign_negative() != nearest.is_sign_negative() {
        return f64::INFINITY;
    }
    // The exact value may lie just below a power of two that it was rounded to.
    let below = nearest != 0.0 && nearest.to_bits() << 12 == 0 && rest != 0.0;
    let below = below && (rest > 0.0) != (nearest > 0.0);
    let unit = ulp(dtype, if below { nearest * 0.75 } else { nearest });
    ((got - nearest) - rest).abs() / unit
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
            let exact = reference::evaluate_pair(function, dtype, &values);
            let error = error(dtype, value(dtype, results[i]), exact);
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

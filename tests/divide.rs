//! Divisions of integer vectors by constants: quotients and remainders against plain arithmetic on
//! integers, for all dividends of 8 and 16 bits, and for those of 32 and 64 bits that are near the
//! ends of the range or near multiples of the divisor, or random. The vectors have tails.

use crate::support;
use crate::support::{Random, compile};
use tec::driver::{self, Options};
use tec::ir::DType;
use tec::ir::interp::{Tensor, Value};
use tec::module::load::args_of;
use tec::target::Target;

/// Divisors, as far as they are in the range of a type.
const DIVISORS: [i128; 48] = [
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    9,
    10,
    11,
    13,
    14,
    18,
    25,
    28,
    63,
    64,
    100,
    127,
    128,
    200,
    254,
    255,
    256,
    257,
    641,
    1000,
    10007,
    32767,
    32768,
    40000,
    65534,
    65535,
    1_000_000,
    10_226_113,
    715_827_883,
    2_147_483_647,
    2_147_483_648,
    4_294_967_294,
    4_294_967_295,
    4_294_967_297,
    86_400_000_000,
    6_148_914_691_236_517_206,
    9_223_372_036_854_775_807,
    9_223_372_036_854_775_808,
    9_223_372_036_854_775_809,
    18_446_744_073_709_551_614,
    18_446_744_073_709_551_615,
];

/// Negative ones, which have no reciprocal.
const NEGATIVE: [i128; 7] = [-1, -3, -7, -128, -32768, -2_147_483_648, -9_223_372_036_854_775_808];

/// Lanes of the vectors, one after the other.
const LANES: [u32; 5] = [64, 16, 5, 32, 8];

fn dividends(dtype: DType, divisors: &[i128]) -> Vec<i128> {
    let (low, high) = dtype.int_range();
    if dtype.bytes() <= 2 {
        // Three more than all, so that the last vector is not full.
        return (low..=high).chain(low..low + 3).collect();
    }
    let mut random = Random(5);
    let mut all: Vec<i128> = (0..100).flat_map(|i| [low + i, high - i, i]).collect();
    for divisor in divisors {
        let last = high / divisor;
        let quotients = (0..20).map(|i| last - i).chain((0..20).map(|i| low / divisor + i));
        let multiples = quotients.chain(-10..10).map(|quotient| quotient * divisor);
        all.extend(multiples.flat_map(|x| [x - 1, x, x + 1]));
    }
    all.extend((0..4000).map(|_| low + i128::from(random.below((high - low) as u64))));
    all.retain(|x| (low..=high).contains(x));
    all.truncate(all.len() / 64 * 64 - 27);
    all
}

fn encode(dtype: DType, values: &[i128]) -> Vec<u8> {
    let bytes = dtype.bytes() as usize;
    values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(bytes)).collect()
}

/// The quotient that is rounded down, and its remainder, in the type.
fn divided(dtype: DType, x: i128, divisor: i128) -> [i128; 2] {
    let (mut quotient, mut rest) = (x / divisor, x % divisor);
    if rest != 0 && (rest < 0) != (divisor < 0) {
        quotient -= 1;
        rest += divisor;
    }
    // The least value divided by -1 is itself.
    if dtype.is_signed() && quotient == 1 << (dtype.bits() - 1) {
        quotient = -quotient;
    }
    [quotient, rest]
}

fn check(dtype: DType, divisors: &[i128], options: &Options) {
    let xs = dividends(dtype, divisors);
    let mut text = format!("kernel k(n = {}) {{\n    input x: {dtype}[n]\n", xs.len());
    let mut schedule = String::new();
    for (number, divisor) in divisors.iter().enumerate() {
        text += &format!("    output q{number}[i: n] = x[i] // ({divisor})\n");
        text += &format!("    output r{number}[i: n] = x[i] % ({divisor})\n");
        for name in ["q", "r"] {
            let lanes = LANES[number % LANES.len()];
            schedule += &format!("    {name}{number}.split(i, factor={lanes})\n");
            schedule += &format!("    {name}{number}.vectorize(i_i)\n");
        }
    }
    text += &format!("}}\nschedule k.s for cpu {{\n{schedule}}}\n");
    let (kernel, module) = compile(&text, options);
    let tensor = |data| Value::Tensor(Tensor { dtype, shape: vec![xs.len() as i64], data });
    let data = encode(dtype, &xs);
    let mut values = vec![tensor(data.clone())];
    values.resize(kernel.params.len(), tensor(vec![0x55; data.len()]));
    module.kernel("k").expect("a kernel").call(args_of(&kernel, &mut values)).expect("it runs");
    for (number, divisor) in divisors.iter().enumerate() {
        let expected: Vec<[i128; 2]> = xs.iter().map(|x| divided(dtype, *x, *divisor)).collect();
        for (which, value) in values[1 + 2 * number..][..2].iter().enumerate() {
            let Value::Tensor(Tensor { data, .. }) = value else { panic!("an output") };
            let expected: Vec<i128> = expected.iter().map(|both| both[which]).collect();
            let expected = encode(dtype, &expected);
            let size = dtype.bytes() as usize;
            let wrong = expected.chunks(size).zip(data.chunks(size)).position(|(a, b)| a != b);
            if let Some(at) = wrong {
                let (op, x) = (["//", "%"][which], xs[at]);
                panic!("{} {dtype}: {x} {op} {divisor}, element {at}", options.target);
            }
        }
    }
}

fn quotients_and_remainders(target: &str) {
    let target = Target::parse(target).expect("a target");
    if !support::runs_here(&target, "divisions of vectors by constants") {
        return;
    }
    let mut options = Options::new(target);
    options.schedule = Some((None, "s".to_string()));
    for dtype in ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"] {
        let dtype = DType::from_name(dtype).expect("a type");
        let (low, high) = dtype.int_range();
        let all = DIVISORS.into_iter().chain(NEGATIVE);
        let all: Vec<i128> = all.filter(|d| (low..=high).contains(d)).collect();
        for divisors in all.chunks(10) {
            check(dtype, divisors, &options);
        }
    }
}

#[test]
fn quotients_and_remainders_avx2() {
    driver::with_stack(|| quotients_and_remainders("x86-avx2"));
}

#[test]
fn quotients_and_remainders_avx512() {
    driver::with_stack(|| quotients_and_remainders("x86-avx512"));
}

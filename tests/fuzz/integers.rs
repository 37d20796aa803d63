//! Random arithmetic on integers of all types: windows, differences and tables of small ones that
//! are computed in wide types. `te::narrow_integers` gives many of them narrower types; the judge
//! computes them as they are written.

use crate::differential::{Case, Verdict, compare_all, load};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tec::driver::{self, Options, Trace};
use tec::schedule::Fallback;
use tec::target::Target;
use tec::tune::workload::workload_hash;

/// Runs `n` programs; fails at the first wrong one, or if too few are legal or get narrower types.
pub fn integers(n: u64, seed: u64) {
    let targets = ["native", "x86-avx512", "x86-avx2", "x86-64"];
    let targets: Vec<Target> = targets.iter().filter_map(|name| Target::parse(name).ok()).collect();
    let targets: Vec<&Target> = targets.iter().filter(|target| target.runs_here()).collect();
    let (mut legal, mut narrowed) = (0u64, 0u64);
    for number in 0..n {
        let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9).wrapping_add(number));
        let mut writer = Writer { rng, stages: Vec::new(), tight: number % 4 != 0 };
        let text = writer.program();
        let vars = vec![("h".to_string(), writer.below(6)), ("w".to_string(), writer.below(150))];
        let case = Case { text, kernel: "f".to_string(), vars, seed: number };
        let target = targets[number as usize % targets.len()].clone();
        let fallback = if writer.chance(3) { Fallback::Default } else { Fallback::Auto };
        let options = Options { fallback, ..Options::new(target) };
        match compare_all(&case, &options) {
            Verdict::Same { .. } => {
                legal += 1;
                narrowed += u64::from(is_narrowed(&case.text, &options));
            }
            Verdict::TooLarge => {}
            Verdict::Refused(_, why) => panic!("{}\nrefused: {why}", case.text),
            Verdict::Wrong(what, details) => {
                let target = &options.target;
                panic!("seed {seed}, program {number}, {target}: {what}\n{}\n{details}", case.text)
            }
        }
    }
    println!("integers: {legal} of {n} agree, {narrowed} with narrower types");
    assert!(legal * 2 > n, "{legal} of {n} are legal");
    assert!(narrowed * 3 > n, "{narrowed} of {n} have narrower types");
}

/// Whether optimisation changes the types that a program computes with.
fn is_narrowed(text: &str, options: &Options) -> bool {
    let hash = |opt: u8| {
        let options = Options { opt, ..options.clone() };
        let program = load(text).expect("it was compiled");
        let graphs = driver::elaborate(&program, &options, &mut Trace::default());
        workload_hash(&graphs.expect("it was compiled")[0])
    };
    hash(0) != hash(3)
}

/// Types with their bits, and whether they are signed.
const TYPES: [(&str, u32); 8] = [
    ("uint8", 8),
    ("int8", 8),
    ("int16", 16),
    ("uint16", 16),
    ("int32", 32),
    ("uint32", 32),
    ("int64", 64),
    ("uint64", 64),
];

/// Inputs with their types.
const INPUTS: [(&str, &str); 5] =
    [("A", "uint8"), ("B", "int8"), ("C", "uint16"), ("D", "int16"), ("E", "int32")];

struct Writer {
    rng: ChaCha8Rng,
    /// The stages so far, with their types.
    stages: Vec<(String, &'static str)>,
    /// Whether all operands are bytes and constants near the ends of the ranges of types, so that
    /// most values fit a narrower type, or just do not.
    tight: bool,
}

/// Factors, divisors and other constants that bring values to the ends of ranges.
const ENDS: [i64; 18] =
    [0, 1, 2, 3, 9, 100, 127, 128, 129, 255, 256, 257, 258, 511, 32767, 32768, 65535, 65536];

impl Writer {
    fn below(&mut self, end: i64) -> i64 {
        self.rng.random_range(0..end)
    }

    fn chance(&mut self, of: i64) -> bool {
        self.below(of) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.random_range(0..of.len())]
    }

    fn program(&mut self) -> String {
        let mut text = String::from("kernel f(h: var, w: var) {\n");
        for (name, dtype) in INPUTS {
            text.push_str(&format!("    input {name}: {dtype}[h, w]\n"));
        }
        text.push_str("    input s: int16\n    reduce a: 0..3, b: 0..3\n");
        for number in 0..self.rng.random_range(0..3) {
            // Mostly types in which not every value is needed.
            let dtype = self.pick(&["int32", "int32", "uint32", "int64", "int16", "uint16"]);
            let name = format!("S{number}");
            let value = self.value(dtype);
            text.push_str(&format!("    compute {name}[y: h, x: w] = {value}\n"));
            self.stages.push((name, dtype));
        }
        let dtype = self.pick(&TYPES).0;
        let value = self.value(dtype);
        text.push_str(&format!("    output Y[y: h, x: w] = {value}\n"));
        if self.chance(2) {
            let value = self.integer("int32", 2, false);
            text.push_str(&format!("    output Z[y: h, x: w] = ({value}) as float32\n"));
        }
        text + "}\n"
    }

    /// The value of a stage: a window or an expression.
    fn value(&mut self, dtype: &str) -> String {
        if !self.chance(3) {
            return self.integer(dtype, 3, false);
        }
        let term = self.integer(dtype, 1, true);
        let reduction = self.pick(&["sum", "sum", "sum", "min", "max"]);
        let mut options = String::new();
        if self.chance(3) {
            // The same for all terms of an element, or of each.
            let (depth, window) = (self.below(2) as u32, self.chance(2));
            let cond = self.condition(depth, window);
            options.push_str(&format!(", where={cond}"));
        }
        if self.chance(4) {
            let start = self.constant(dtype);
            options.push_str(&format!(", init={start}"));
        }
        format!("{reduction}({term}, axis=[a, b]{options})")
    }

    fn constant(&mut self, dtype: &str) -> String {
        let bits = TYPES.iter().find(|(name, _)| *name == dtype).expect("a type").1;
        let negative = !dtype.starts_with('u') && self.chance(3);
        if self.tight || self.chance(2) {
            let signed = u32::from(!dtype.starts_with('u'));
            let fits = ENDS.iter().filter(|value| **value < 1 << (bits - signed).min(40));
            let fits: Vec<i64> = fits.copied().collect();
            let value = self.pick(&fits);
            return format!("({}{value} as {dtype})", if negative { "-" } else { "" });
        }
        let most = match self.below(4) {
            0 => 3,
            1 => 1 << 7,
            2 if bits >= 16 => 1 << 15,
            _ if bits >= 32 => 1 << 20,
            _ => 100,
        };
        let value = self.below(most);
        format!("({}{value} as {dtype})", if negative { "-" } else { "" })
    }

    /// An element of an input or stage, in a window around the element or at it.
    fn element(&mut self, window: bool) -> (String, &'static str) {
        let inputs: Vec<(String, &'static str)> =
            INPUTS.iter().map(|(name, dtype)| (name.to_string(), *dtype)).collect();
        let all: Vec<&(String, &'static str)> = inputs.iter().chain(&self.stages).collect();
        // Small types more often than others.
        let at = match self.rng.random_range(0..3) {
            0 if !self.tight => self.rng.random_range(0..all.len()),
            0 if all.len() > INPUTS.len() => self.rng.random_range(INPUTS.len()..all.len()),
            _ => self.rng.random_range(0..2),
        };
        let (name, dtype) = all[at].clone();
        let index = match (window, self.rng.random_range(0..3)) {
            (true, 0) => "clamp(y + a - 1, 0, h - 1), clamp(x + b - 1, 0, w - 1)",
            (true, 1) => "(y + a) % h, x",
            _ => "y, x",
        };
        (format!("{name}[{index}]"), dtype)
    }

    /// A value of a type.
    fn integer(&mut self, dtype: &str, depth: u32, window: bool) -> String {
        if depth == 0 || self.chance(8) {
            return match self.below(10) {
                0 => self.constant(dtype),
                1 if !self.tight => format!("(s as {dtype})"),
                2 if !self.tight => format!("(x as {dtype})"),
                3 => format!("(({}) as {dtype})", self.condition(0, window)),
                _ => {
                    let (element, own) = self.element(window);
                    if own == dtype { element } else { format!("({element} as {dtype})") }
                }
            };
        }
        let below = depth - 1;
        let a = self.integer(dtype, below, window);
        match self.below(21) {
            0..=2 => format!("({a} + {})", self.integer(dtype, below, window)),
            3..=4 => format!("({a} - {})", self.integer(dtype, below, window)),
            5 => format!("({a} * {})", self.integer(dtype, below, window)),
            6 => format!("({a} * {})", self.constant(dtype)),
            7 => {
                let by = self.pick(&[1, 2, 3, 9, 16, 18, 100]);
                format!("({a} // ({by} as {dtype}))")
            }
            8 => {
                let by = self.pick(&[1, 2, 3, 7, 16, 100]);
                format!("({a} % ({by} as {dtype}))")
            }
            9 => {
                let by = self.pick(&[0, 1, 2, 4, 7, 8, 15, 31, 33]);
                let op = self.pick(&["<<", ">>"]);
                format!("({a} {op} {by})")
            }
            10 => {
                let op = self.pick(&["&", "|", "^"]);
                let other = match self.chance(2) {
                    true => self.constant(dtype),
                    false => self.integer(dtype, below, window),
                };
                format!("({a} {op} {other})")
            }
            11 => {
                let name = self.pick(&["min", "max"]);
                format!("{name}({a}, {})", self.integer(dtype, below, window))
            }
            12 => format!("clamp({a}, {}, {})", self.constant(dtype), self.constant(dtype)),
            13 if !dtype.starts_with('u') => format!("abs({a})"),
            15 if !dtype.starts_with('u') => format!("(-{a})"),
            14 => {
                // By way of another type, which may wrap.
                let other = self.pick(&TYPES).0;
                let inner = self.integer(other, below, window);
                if other == dtype { inner } else { format!("({inner} as {dtype})") }
            }
            16..=19 => {
                // A large value that becomes small, or wraps.
                let b = self.integer(dtype, below, window);
                let op = self.pick(&["*", "*", "+", "-"]);
                let large = format!("({a} {op} {b})");
                let by = self.pick(&[1, 4, 8]);
                let (divisor, mask) = (self.pick(&[3, 9, 100]), self.pick(&[7, 127, 255]));
                match self.below(6) {
                    0 => format!("({large} >> {by})"),
                    1 => format!("({large} // ({divisor} as {dtype}))"),
                    2 => format!("({large} % ({divisor} as {dtype}))"),
                    3 => format!("({large} & ({mask} as {dtype}))"),
                    4 => format!("min({large}, ({mask} as {dtype}))"),
                    _ => {
                        let other = self.pick(&["uint8", "int8", "int16", "uint16"]);
                        match other == dtype {
                            true => large,
                            false => format!("(({large} as {other}) as {dtype})"),
                        }
                    }
                }
            }
            _ => {
                let cond = self.condition(below, window);
                let b = self.integer(dtype, below, window);
                format!("(if {cond} then {a} else {b})")
            }
        }
    }

    fn condition(&mut self, depth: u32, window: bool) -> String {
        let dtype = self.pick(&["int32", "int32", "int16", "int64", "uint32"]);
        let op = self.pick(&["<", "<=", "==", "!=", ">", ">="]);
        let a = self.integer(dtype, depth, window);
        let b = match self.chance(2) {
            true => self.constant(dtype),
            false => self.integer(dtype, depth, window),
        };
        format!("{a} {op} {b}")
    }
}

//! Checks of reducers: that they are associative, that the identity is neutral, and whether they
//! are commutative.
//!
//! Sums, products, minima, maxima, logical and bitwise operations of each component with its
//! counterpart are associative and commutative (floats within rounding). All other reducers are
//! tried on values: small ones in every combination, so that messages have simple numbers, then
//! seeded random ones with the special values of each type. Floats are compared with a tolerance;
//! results that are NaN, or that overflow on finite values, are ignored.
//!
//! A reducer with a domain (`where`) is tried on values of the domain only. The domain must contain
//! the identity and every combination of two of its values.

use super::Combiner;
use crate::ir::interp::{Evaluator, decode_float, decode_int, encode_float, encode_int};
use crate::ir::visit::any_expr;
use crate::ir::{BinOp, DType, Expr, ExprKind, Intrinsic};
use rustc_hash::FxHashSet;

/// Checks a combiner and sets `commutative`. An error has the values that show it. Known forms are
/// correct by construction, others are sampled.
pub fn check_reducer(combiner: &mut Combiner) -> Result<(), String> {
    let known = is_known(combiner);
    let trial = Trial::new(combiner)?;
    trial.check_domain()?;
    let commutative = known || trial.check_associative()?;
    trial.check_identity()?;
    combiner.commutative = commutative;
    Ok(())
}

/// Whether every component is an associative operation of its two counterparts.
fn is_known(combiner: &Combiner) -> bool {
    let pairs = combiner.lhs.iter().zip(&combiner.rhs);
    combiner.result.iter().zip(pairs).all(|(result, (lhs, rhs))| {
        let ExprKind::Binary(op, a, b) = &result.kind else { return false };
        use BinOp::*;
        let associative = matches!(op, Add | Mul | Min | Max | BitAnd | BitOr | BitXor | And | Or);
        let (a, b) = (a.as_var(), b.as_var());
        let both = a == Some(lhs) && b == Some(rhs) || a == Some(rhs) && b == Some(lhs);
        associative && both
    })
}

/// A value of all components, in registers of the interpreter.
type Sample = Vec<u64>;

/// The number of random triples; functions that are slow to evaluate get fewer.
const RANDOM_TRIPLES: usize = 600;

/// The number of different values of a domain that a check needs.
const MIN_SAMPLES: usize = 4;

/// The number of random draws for each value that is needed, for values outside the domain.
const DRAWS: usize = 50;

/// A combiner under trial.
struct Trial<'a> {
    combiner: &'a Combiner,
    dtypes: Vec<DType>,
    evaluator: Evaluator,
    domain: Domain,
    /// Small values; the first ones are best for messages.
    small: Vec<Sample>,
    random: Vec<Sample>,
}

impl<'a> Trial<'a> {
    fn new(combiner: &'a Combiner) -> Result<Trial<'a>, String> {
        let vars: Vec<_> = combiner.lhs.iter().chain(&combiner.rhs).cloned().collect();
        let evaluator = Evaluator::new(&combiner.result, &vars)
            .unwrap_or_else(|trap| crate::bug!("reducer {}: {trap:?}", combiner.name));
        let dtypes: Vec<DType> = combiner.lhs.iter().map(|var| var.ty().dtype).collect();
        let domain = Domain::of(combiner);
        let slow = calls_functions(&combiner.result);
        let small = small_samples(&dtypes, &domain, if slow { 4 } else { 9 });
        let count = if slow { RANDOM_TRIPLES / 20 } else { RANDOM_TRIPLES };
        let random = random_samples(&dtypes, &domain, 3 * count);
        let different: FxHashSet<&Sample> = small.iter().chain(&random).collect();
        if combiner.domain.is_some() && different.len() < MIN_SAMPLES {
            let found = different.len();
            return Err(format!("only {found} of the values tried satisfy its `where`"));
        }
        Ok(Trial { combiner, dtypes, evaluator, domain, small, random })
    }

    fn combine(&self, a: &Sample, b: &Sample) -> Sample {
        let values: Vec<u64> = a.iter().chain(b).copied().collect();
        self.evaluator
            .eval(&values)
            .unwrap_or_else(|trap| crate::bug!("reducer {}: {trap:?}", self.combiner.name))
    }

    /// Refuses a domain without the identity or without a combination of two of its values.
    fn check_domain(&self) -> Result<(), String> {
        if self.combiner.domain.is_none() {
            return Ok(());
        }
        let identity = self.evaluate_identity();
        if !self.domain.admits(&identity) {
            let identity = self.show(&identity);
            return Err(format!("identity {identity} does not satisfy its `where`"));
        }
        let check = |a: &Sample, b: &Sample| {
            let combined = self.combine(a, b);
            if self.domain.admits(&combined) || self.undecided(&combined, &combined, &[a, b]) {
                return Ok(());
            }
            let call = self.show_call(&self.show(a), &self.show(b));
            Err(format!("{call} = {} does not satisfy its `where`", self.show(&combined)))
        };
        for a in &self.small {
            self.small.iter().try_for_each(|b| check(a, b))?;
        }
        self.random.chunks_exact(2).try_for_each(|pair| check(&pair[0], &pair[1]))
    }

    fn check_identity(&self) -> Result<(), String> {
        let identity = self.evaluate_identity();
        for sample in self.small.iter().chain(&self.random) {
            for (a, b) in [(&identity, sample), (sample, &identity)] {
                let combined = self.combine(a, b);
                if !self.agree(&combined, sample, &[a, b]) {
                    return Err(format!(
                        "identity {} is not neutral: {} = {}",
                        self.show(&identity),
                        self.show_call(&self.show(a), &self.show(b)),
                        self.show(&combined),
                    ));
                }
            }
        }
        Ok(())
    }

    fn evaluate_identity(&self) -> Sample {
        Evaluator::new(&self.combiner.identity, &[])
            .and_then(|evaluator| evaluator.eval(&[]))
            .unwrap_or_else(|trap| crate::bug!("identity of {}: {trap:?}", self.combiner.name))
    }

    /// Refuses a combiner that is not associative. Returns whether it is commutative.
    fn check_associative(&self) -> Result<bool, String> {
        let mut commutative = true;
        // Three different values give the clearest message.
        if let [a, b, c, ..] = &self.small[..] {
            self.check_triple(a, b, c)?;
        }
        for a in &self.small {
            for b in &self.small {
                for c in &self.small {
                    self.check_triple(a, b, c)?;
                }
                commutative &= self.commutes(a, b);
            }
        }
        for triple in self.random.chunks_exact(3) {
            self.check_triple(&triple[0], &triple[1], &triple[2])?;
            commutative &= self.commutes(&triple[0], &triple[1]);
        }
        Ok(commutative)
    }

    fn commutes(&self, a: &Sample, b: &Sample) -> bool {
        self.agree(&self.combine(a, b), &self.combine(b, a), &[a, b])
    }

    fn check_triple(&self, a: &Sample, b: &Sample, c: &Sample) -> Result<(), String> {
        let (ab, bc) = (self.combine(a, b), self.combine(b, c));
        let (left, right) = (self.combine(&ab, c), self.combine(a, &bc));
        if self.agree(&left, &right, &[a, b, c, &ab, &bc]) {
            return Ok(());
        }
        let [sa, sb, sc] = [a, b, c].map(|sample| self.show(sample));
        Err(format!(
            "not associative: {} = {}, but {} = {}",
            self.show_call(&self.show_call(&sa, &sb), &sc),
            self.show(&left),
            self.show_call(&sa, &self.show_call(&sb, &sc)),
            self.show(&right),
        ))
    }

    /// Returns the floats among the components.
    fn floats(&self, sample: &Sample) -> Vec<f64> {
        let floats = self.dtypes.iter().zip(sample).filter(|(dtype, _)| dtype.is_float());
        floats.map(|(dtype, bits)| decode_float(*dtype, *bits)).collect()
    }

    /// Whether two results prove nothing: one is NaN, or finite values overflow. The first three of
    /// `others` are the operands.
    fn undecided(&self, x: &Sample, y: &Sample, others: &[&Sample]) -> bool {
        let given_infinite =
            others.iter().take(3).flat_map(|s| self.floats(s)).any(f64::is_infinite);
        let mut values = others.iter().copied().chain([x, y]).flat_map(|s| self.floats(s));
        values.any(|value| value.is_nan() || (value.is_infinite() && !given_infinite))
    }

    /// Whether two results are equal or prove nothing. `others` are the operands and intermediate
    /// values, whose magnitude bounds the rounding error.
    fn agree(&self, x: &Sample, y: &Sample, others: &[&Sample]) -> bool {
        if self.undecided(x, y, others) {
            return true;
        }
        let everything = others.iter().copied().chain([x, y]);
        let values: Vec<f64> = everything.flat_map(|sample| self.floats(sample)).collect();
        let finite = values.iter().filter(|value| value.is_finite());
        let scale = finite.fold(0.0f64, |scale, value| scale.max(value.abs()));
        self.dtypes.iter().zip(x.iter().zip(y)).all(|(dtype, (x, y))| {
            if !dtype.is_float() {
                return x == y;
            }
            let (x, y) = (decode_float(*dtype, *x), decode_float(*dtype, *y));
            let tolerance = if *dtype == DType::Float64 { 1e-10 } else { 1e-4 };
            x == y || (x - y).abs() <= tolerance * scale
        })
    }

    fn show(&self, sample: &Sample) -> String {
        let parts = self.dtypes.iter().zip(sample).map(|(dtype, bits)| match dtype {
            DType::Bool => (*bits != 0).to_string(),
            DType::Float32 => (decode_float(*dtype, *bits) as f32).to_string(),
            _ if dtype.is_float() => decode_float(*dtype, *bits).to_string(),
            _ => decode_int(*dtype, *bits).to_string(),
        });
        let parts: Vec<String> = parts.collect();
        if parts.len() == 1 { parts.concat() } else { format!("({})", parts.join(", ")) }
    }

    fn show_call(&self, a: &str, b: &str) -> String {
        format!("{}({a}, {b})", self.combiner.name)
    }
}

/// The condition on the values of a reducer.
struct Domain(Option<Evaluator>);

impl Domain {
    fn of(combiner: &Combiner) -> Domain {
        let compile = |domain: &Expr| {
            Evaluator::new(std::slice::from_ref(domain), &combiner.lhs)
                .unwrap_or_else(|trap| crate::bug!("domain of {}: {trap:?}", combiner.name))
        };
        Domain(combiner.domain.as_ref().map(compile))
    }

    fn admits(&self, sample: &Sample) -> bool {
        let Some(evaluator) = &self.0 else { return true };
        let held = evaluator.eval(sample);
        held.unwrap_or_else(|trap| crate::bug!("domain of a reducer: {trap:?}"))[0] != 0
    }
}

/// Whether expressions call math functions, which are slow to interpret.
fn calls_functions(exprs: &[Expr]) -> bool {
    let calls = |e: &Expr| matches!(&e.kind, ExprKind::Call(f, _) if *f != Intrinsic::Fma);
    exprs.iter().any(|expr| any_expr(expr, &mut |e| calls(e)))
}

/// Returns the register of a small integer of any type.
fn small_value(dtype: DType, value: i64) -> u64 {
    match dtype {
        DType::Bool => u64::from(value & 1 != 0),
        _ if dtype.is_float() => encode_float(dtype, value as f64),
        _ => encode_int(dtype, value.into()),
    }
}

/// At most `count` values of the domain whose components are small integers, some of them equal.
fn small_samples(dtypes: &[DType], domain: &Domain, count: usize) -> Vec<Sample> {
    let values: &[i64] = match dtypes {
        [DType::Bool] => &[1, 0],
        [dtype] if dtype.is_int() && !dtype.is_signed() => &[1, 2, 3, 0, 5, 7, 4, 6, 9],
        [_] => &[1, 2, 3, 0, -1, 5, -2, 7, -4],
        // Small tuples are numbered: the digits of 1, 5, 9 … in base 3 are their components.
        _ => &[1, 5, 9, 4, 2, 3, 7, 0, 8],
    };
    let digits = |mut number: i64| -> Sample {
        let digit = |dtype: &DType| {
            let value = if dtypes.len() == 1 { number } else { number % 3 };
            number /= 3;
            small_value(*dtype, value)
        };
        dtypes.iter().map(digit).collect()
    };
    // A domain may exclude some of these.
    let more = if domain.0.is_some() { 10..243 } else { 0..0 };
    let samples = values.iter().copied().chain(more).map(digits);
    samples.filter(|sample| domain.admits(sample)).take(count).collect()
}

fn random_samples(dtypes: &[DType], domain: &Domain, count: usize) -> Vec<Sample> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut draw = move || -> Sample {
        dtypes.iter().map(|dtype| random_value(*dtype, &mut random)).collect()
    };
    let samples = (0..DRAWS * count).map(|_| draw());
    samples.filter(|sample| domain.admits(sample)).take(count).collect()
}

/// Returns a random value: sometimes a special value of the type, else a moderate one, often equal
/// to others.
fn random_value(dtype: DType, random: &mut Random) -> u64 {
    if dtype == DType::Bool {
        return random.below(2);
    }
    if !dtype.is_float() {
        let (min, max) = dtype.int_range();
        return match random.below(4) {
            0 => encode_int(dtype, [min, max, min + 1, max - 1][random.below(4) as usize]),
            1 => encode_int(dtype, i128::from(random.next())),
            _ => small_value(dtype, random.below(16) as i64 - 8),
        };
    }
    match random.below(8) {
        0 => encode_float(dtype, [f64::INFINITY, f64::NEG_INFINITY][random.below(2) as usize]),
        1 => encode_float(dtype, [0.0, -0.0][random.below(2) as usize]),
        2 | 3 => small_value(dtype, random.below(8) as i64 - 4),
        _ => encode_float(dtype, (random.below(2_000_001) as f64 - 1e6) / 1e4),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Intrinsic, Var};

    /// Returns a combiner of `name` over components of these types.
    fn combiner(
        name: &str,
        dtypes: &[DType],
        identity: Vec<Expr>,
        result: impl Fn(&[Expr], &[Expr]) -> Vec<Expr>,
    ) -> Combiner {
        let vars = |name| dtypes.iter().map(|dtype| Var::new(name, *dtype)).collect::<Vec<_>>();
        let (lhs, rhs) = (vars("a"), vars("b"));
        let exprs = |vars: &[Var]| vars.iter().map(Expr::var).collect::<Vec<_>>();
        let result = result(&exprs(&lhs), &exprs(&rhs));
        Combiner {
            name: name.into(),
            lhs,
            rhs,
            result,
            identity,
            domain: None,
            commutative: false,
            exact: false,
            in_order: None,
        }
    }

    fn int(value: i64) -> Expr {
        Expr::int(DType::Int32, value.into())
    }

    fn float(value: f64) -> Expr {
        Expr::float(DType::Float32, value)
    }

    fn accept(mut combiner: Combiner, commutative: bool) {
        assert_eq!(check_reducer(&mut combiner), Ok(()));
        assert_eq!(combiner.commutative, commutative);
    }

    fn refuse(mut combiner: Combiner, why: &str) {
        assert_eq!(check_reducer(&mut combiner), Err(why.to_string()));
    }

    #[test]
    fn accepts_known_operations() {
        use DType::*;
        let of = |op, dtype, identity| {
            combiner("r", &[dtype], vec![identity], |a, b| {
                vec![Expr::binary(op, a[0].clone(), b[0].clone())]
            })
        };
        accept(of(BinOp::Mul, Float32, float(1.0)), true);
        accept(of(BinOp::Add, Int8, Expr::int(Int8, 0)), true);
        accept(of(BinOp::BitXor, Uint16, Expr::int(Uint16, 0)), true);
        accept(of(BinOp::Max, Float64, Expr::float(Float64, f64::NEG_INFINITY)), true);
        accept(of(BinOp::And, Bool, Expr::bool(true)), true);
        refuse(of(BinOp::Mul, Int32, int(2)), "identity 2 is not neutral: r(2, 1) = 2");
        refuse(of(BinOp::Max, Float32, float(0.0)), "identity 0 is not neutral: r(0, -1) = 0");
        let infinite = float(f64::INFINITY);
        refuse(of(BinOp::Add, Float32, infinite), "identity inf is not neutral: r(inf, 1) = inf");
    }

    #[test]
    fn refuses_reducers_that_are_not_associative_with_values() {
        let minus = |a: &[Expr], b: &[Expr]| vec![Expr::sub(a[0].clone(), b[0].clone())];
        let text = "not associative: minus(minus(1, 2), 3) = -4, but minus(1, minus(2, 3)) = 2";
        refuse(combiner("minus", &[DType::Int32], vec![int(0)], minus), text);
        let shifted = |a: &[Expr], b: &[Expr]| {
            let product = Expr::mul(a[0].clone(), b[0].clone());
            let large = Expr::lt(float(5.0), product.clone());
            vec![Expr::select(large, Expr::add(product.clone(), float(1.0)), product)]
        };
        let refused =
            check_reducer(&mut combiner("r", &[DType::Float32], vec![float(1.0)], shifted));
        assert!(refused.is_err());
    }

    #[test]
    fn accepts_associative_expressions() {
        // (1 + a)*(1 + b) - 1, in floats and wrapping.
        let circle = |a: &[Expr], b: &[Expr]| {
            let product = Expr::mul(a[0].clone(), b[0].clone());
            vec![Expr::add(Expr::add(a[0].clone(), b[0].clone()), product)]
        };
        accept(combiner("r", &[DType::Float32], vec![float(0.0)], circle), true);
        accept(combiner("r", &[DType::Int32], vec![int(0)], circle), true);
        // log(exp(a) + exp(b)) with its maximum taken out.
        let logsumexp = |a: &[Expr], b: &[Expr]| {
            let (a, b) = (&a[0], &b[0]);
            let max = Expr::binary(BinOp::Max, a.clone(), b.clone());
            let exp =
                |x: &Expr| Expr::call(Intrinsic::Exp, vec![Expr::sub(x.clone(), max.clone())]);
            let log = Expr::call(Intrinsic::Log, vec![Expr::add(exp(a), exp(b))]);
            vec![Expr::add(max.clone(), log)]
        };
        let none = float(f64::NEG_INFINITY);
        accept(combiner("r", &[DType::Float32], vec![none], logsumexp), true);
    }

    #[test]
    fn checks_all_components_of_tuples() {
        let types = [DType::Int32, DType::Float32];
        let best = |first_wins: bool| {
            let identity = vec![int(i32::MAX as i64), float(f64::NEG_INFINITY)];
            combiner("argbest", &types, identity, move |a, b| {
                let more = Expr::lt(b[1].clone(), a[1].clone());
                let tie = Expr::eq(a[1].clone(), b[1].clone());
                let tie = if first_wins {
                    tie
                } else {
                    Expr::and(tie, Expr::lt(a[0].clone(), b[0].clone()))
                };
                let index = Expr::if_then_else(Expr::or(more, tie), a[0].clone(), b[0].clone());
                vec![index, Expr::binary(BinOp::Max, a[1].clone(), b[1].clone())]
            })
        };
        accept(best(false), true);
        // Of equal values the first: associative, but the order matters. With this identity a row
        // of −∞ would keep its index, so that is refused.
        let mut first = best(true);
        let why = check_reducer(&mut first).unwrap_err();
        assert!(why.starts_with("identity (2147483647, -inf) is not neutral"), "{why}");
        let projection = combiner("last", &types, vec![int(0), float(0.0)], |a, b| {
            let given = Expr::not(Expr::eq(b[0].clone(), int(0)));
            let pick = |i: usize| Expr::select(given.clone(), b[i].clone(), a[i].clone());
            vec![pick(0), pick(1)]
        });
        let mut projection = projection;
        assert!(check_reducer(&mut projection).is_err());
    }
}

//! Soundness: a proved condition holds for every assignment that satisfies the facts.

use super::*;
use crate::ir::{BinOp, Const, DType, ExprKind, UnOp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The values of variables.
pub(crate) type Assignment = Vec<(Var, i64)>;

/// Evaluates an `index` or `bool` expression by the specification of the IR; `None` if an `index`
/// overflows or a variable has no value.
pub(crate) fn evaluate(expr: &Expr, values: &Assignment) -> Option<i64> {
    let of = |e: &Expr| evaluate(e, values);
    match &expr.kind {
        ExprKind::Const(Const::Int(value)) => i64::try_from(*value).ok(),
        ExprKind::Var(var) => values.iter().find(|(known, _)| known == var).map(|v| v.1),
        ExprKind::Unary(UnOp::Not, a) => Some(i64::from(of(a)? == 0)),
        ExprKind::Unary(UnOp::Neg, a) => of(a)?.checked_neg(),
        ExprKind::Unary(UnOp::Abs, a) => of(a)?.checked_abs(),
        ExprKind::Binary(BinOp::And, a, b) => {
            if of(a)? == 0 {
                Some(0)
            } else {
                of(b)
            }
        }
        ExprKind::Binary(BinOp::Or, a, b) => {
            if of(a)? != 0 {
                Some(1)
            } else {
                of(b)
            }
        }
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (of(a)?, of(b)?);
            match op {
                BinOp::Add => a.checked_add(b),
                BinOp::Sub => a.checked_sub(b),
                BinOp::Mul => a.checked_mul(b),
                BinOp::FloorDiv if b == 0 => Some(0),
                BinOp::FloorDiv => Some((a as f64 / b as f64).floor() as i64),
                BinOp::FloorMod if b == 0 => Some(0),
                BinOp::FloorMod => Some(a - b * (a as f64 / b as f64).floor() as i64),
                BinOp::Min => Some(a.min(b)),
                BinOp::Max => Some(a.max(b)),
                BinOp::Eq => Some((a == b).into()),
                BinOp::Ne => Some((a != b).into()),
                BinOp::Lt => Some((a < b).into()),
                BinOp::Le => Some((a <= b).into()),
                BinOp::Gt => Some((a > b).into()),
                BinOp::Ge => Some((a >= b).into()),
                _ => None,
            }
        }
        ExprKind::Select(c, t, f) | ExprKind::IfThenElse(c, t, f) => {
            if of(c)? != 0 {
                of(t)
            } else {
                of(f)
            }
        }
        _ => None,
    }
}

/// Random facts, terms and conditions over a few loop variables and run-time integers.
pub(crate) struct Generator {
    random: ChaCha8Rng,
    vars: Vec<Var>,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        let vars = ["n", "m", "i", "j"].map(Var::index).to_vec();
        Generator { random: ChaCha8Rng::seed_from_u64(seed), vars }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())].clone()
    }

    fn literal(&mut self) -> Expr {
        let value = self.pick(&[-7, -2, -1, 0, 1, 1, 2, 3, 4, 6, 12]);
        Expr::index(value)
    }

    /// Draws facts, and assignments that satisfy them.
    pub(crate) fn facts(&mut self) -> (Facts, Vec<Assignment>) {
        let mut facts = Facts::new();
        let mut conds = Vec::new();
        let [n, m, i, j] = [0, 1, 2, 3].map(|at| self.vars[at].clone());
        for var in [&n, &m] {
            conds.push(Expr::le(Expr::index(0), Expr::var(var)));
        }
        for _ in 0..self.random.random_range(0..2) {
            conds.push(self.condition(2));
        }
        conds.iter().for_each(|cond| facts.assume(cond));
        let mut bind = |generator: &mut Generator, var: &Var, others: &[Expr]| {
            let mut ends = vec![Expr::index(5), Expr::index(13)];
            ends.extend_from_slice(others);
            let (min, extent) = (generator.pick(&[0, 0, -2]), generator.pick(&ends));
            let min = Expr::index(min);
            facts.bind(var, &min, &extent);
            (var.clone(), min, extent)
        };
        let (n_expr, m_expr) = (Expr::var(&n), Expr::var(&m));
        let product = Expr::mul(n_expr.clone(), m_expr.clone());
        let first = bind(self, &i, &[n_expr.clone(), product]);
        let second = bind(self, &j, &[n_expr, m_expr, Expr::var(&i)]);
        for _ in 0..self.random.random_range(0..3) {
            let cond = self.condition(2);
            facts.assume(&cond);
            conds.push(cond);
        }
        (facts, self.assignments(&conds, &[first, second]))
    }

    fn assignments(&mut self, conds: &[Expr], loops: &[(Var, Expr, Expr)]) -> Vec<Assignment> {
        let mut found = Vec::new();
        for _ in 0..300 {
            let mut values: Assignment = Vec::new();
            for at in 0..2 {
                let value = self.pick(&[0, 1, 2, 3, 5, 8, 16]);
                values.push((self.vars[at].clone(), value));
            }
            let inside = loops.iter().all(|(var, min, extent)| {
                let (Some(min), Some(extent)) = (evaluate(min, &values), evaluate(extent, &values))
                else {
                    return false;
                };
                if extent < 1 {
                    return false;
                }
                values.push((var.clone(), min + self.random.random_range(0..extent)));
                true
            });
            if inside && conds.iter().all(|cond| evaluate(cond, &values) == Some(1)) {
                found.push(values);
            }
        }
        found
    }

    pub(crate) fn term(&mut self, depth: u32) -> Expr {
        if depth == 0 || self.random.random_range(0..6) == 0 {
            return match self.random.random_range(0..3) {
                0 => self.literal(),
                _ => {
                    let vars = self.vars.clone();
                    Expr::var(&self.pick(&vars))
                }
            };
        }
        let op = self.pick(&[
            BinOp::Add,
            BinOp::Add,
            BinOp::Sub,
            BinOp::Sub,
            BinOp::Mul,
            BinOp::FloorDiv,
            BinOp::FloorMod,
            BinOp::Min,
            BinOp::Max,
        ]);
        match self.random.random_range(0..12) {
            0 => {
                let cond = self.condition(depth - 1);
                let (a, b) = (self.term(depth - 1), self.term(depth - 1));
                if self.random.random() {
                    Expr::select(cond, a, b)
                } else {
                    Expr::if_then_else(cond, a, b)
                }
            }
            1 => Expr::unary(UnOp::Neg, self.term(depth - 1)),
            _ => {
                let a = self.term(depth - 1);
                let b = match self.random.random_range(0..3) {
                    0 => self.literal(),
                    _ => self.term(depth - 1),
                };
                Expr::binary(op, a, b)
            }
        }
    }

    pub(crate) fn condition(&mut self, depth: u32) -> Expr {
        match self.random.random_range(0..if depth == 0 { 1 } else { 5 }) {
            1 => Expr::and(self.condition(depth - 1), self.condition(depth - 1)),
            2 => Expr::or(self.condition(depth - 1), self.condition(depth - 1)),
            3 => Expr::not(self.condition(depth - 1)),
            _ => {
                let op =
                    self.pick(&[BinOp::Eq, BinOp::Ne, BinOp::Lt, BinOp::Le, BinOp::Gt, BinOp::Ge]);
                let depth = depth.saturating_sub(1).min(2);
                Expr::binary(op, self.term(depth), self.term(depth))
            }
        }
    }
}

#[test]
fn proofs_are_sound() {
    let mut proved = 0;
    let seeds = std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4000);
    for seed in 0..seeds {
        let mut generator = Generator::new(seed);
        let (facts, assignments) = generator.facts();
        for _ in 0..4 {
            let cond = generator.condition(2);
            for truth in [true, false] {
                let certain = if truth { facts.prove(&cond) } else { facts.disprove(&cond) };
                if !certain {
                    continue;
                }
                proved += 1;
                for assignment in &assignments {
                    let value = evaluate(&cond, assignment);
                    let text = crate::ir::print::print_expr(&cond);
                    let wrong = value == Some(i64::from(!truth));
                    assert!(!wrong, "seed {seed}: {text} is not {truth} at {assignment:?}");
                }
            }
        }
    }
    assert!(proved > 1000, "only {proved} conditions were proved");
}

#[test]
fn bounds_are_sound_and_attained() {
    let mut exact = 0;
    let seeds = std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    for seed in 0..seeds {
        let mut generator = Generator::new(seed);
        let (facts, assignments) = generator.facts();
        let term = generator.term(3);
        let over = [generator.vars[2].clone(), generator.vars[3].clone()];
        let (low, high) = facts.const_bounds(&term);
        let symbolic = facts.bounds(&term, &over);
        exact += usize::from(symbolic.is_some());
        for assignment in &assignments {
            let Some(value) = evaluate(&term, assignment) else { continue };
            let text = crate::ir::print::print_expr(&term);
            let inside = low.is_none_or(|low| low <= value.into())
                && high.is_none_or(|high| high >= value.into());
            assert!(inside, "seed {seed}: {text} = {value} at {assignment:?}: {low:?} {high:?}");
            let Some((least, most)) = &symbolic else { continue };
            let ends = (evaluate(least, assignment), evaluate(most, assignment));
            if let (Some(least), Some(most)) = ends {
                let inside = (least..=most).contains(&value);
                assert!(inside, "seed {seed}: {text} = {value} at {assignment:?}: {ends:?}");
            }
        }
    }
    assert!(exact > 300, "only {exact} terms had symbolic bounds");
}

#[test]
fn remainders_have_bounds_over_whole_periods() {
    let mut facts = Facts::new();
    let n = runtime(&mut facts, "n");
    let bounds = |min: i64, extent: i64| {
        let mut facts = facts.clone();
        let (lane_var, lane) = var("lane");
        facts.bind(&lane_var, &Expr::index(min), &Expr::index(extent));
        let rest = bin(BinOp::FloorMod, &lane, &Expr::index(4));
        let (low, high) = facts.bounds(&Expr::sub(n.clone(), rest), &[lane_var])?;
        let least = facts.prove(&Expr::eq(low, Expr::sub(n.clone(), Expr::index(3))));
        Some(least && facts.prove(&Expr::eq(high, n.clone())))
    };
    assert_eq!(bounds(0, 64), Some(true));
    assert_eq!(bounds(2, 6), Some(true));
    assert_eq!(bounds(-3, 7), Some(true));
    // 2 to 6 have no whole period.
    assert_eq!(bounds(2, 5), None);
}

fn var(name: &str) -> (Var, Expr) {
    let var = Var::index(name);
    let expr = Expr::var(&var);
    (var, expr)
}

fn bin(op: BinOp, a: &Expr, b: &Expr) -> Expr {
    Expr::binary(op, a.clone(), b.clone())
}

/// Returns `0 <= index < extent`.
fn inside(index: &Expr, extent: &Expr) -> Expr {
    Expr::and(Expr::le(Expr::index(0), index.clone()), Expr::lt(index.clone(), extent.clone()))
}

fn runtime(facts: &mut Facts, name: &str) -> Expr {
    let (_, expr) = var(name);
    facts.assume(&Expr::le(Expr::index(0), expr.clone()));
    expr
}

#[test]
fn a_reshape_stays_inside() {
    let mut facts = Facts::new();
    let (n, m) = (runtime(&mut facts, "n"), runtime(&mut facts, "m"));
    let (i_var, i) = var("i");
    facts.bind(&i_var, &Expr::index(0), &bin(BinOp::Mul, &n, &m));
    assert!(facts.prove(&inside(&bin(BinOp::FloorDiv, &i, &m), &n)));
    assert!(facts.prove(&inside(&bin(BinOp::FloorMod, &i, &m), &m)));
    assert!(!facts.prove(&inside(&bin(BinOp::FloorDiv, &i, &n), &n)));
}

#[test]
fn a_reshape_of_equal_sizes_stays_inside() {
    let mut facts = Facts::new();
    let [n, m, p, q] = ["n", "m", "p", "q"].map(|name| runtime(&mut facts, name));
    facts.assume(&Expr::eq(bin(BinOp::Mul, &p, &q), bin(BinOp::Mul, &n, &m)));
    let ((i_var, i), (j_var, j)) = (var("i"), var("j"));
    facts.bind(&i_var, &Expr::index(0), &p);
    facts.bind(&j_var, &Expr::index(0), &q);
    let flat = Expr::add(bin(BinOp::Mul, &i, &q), j);
    assert!(facts.prove(&inside(&flat, &bin(BinOp::Mul, &p, &q))));
    assert!(facts.prove(&inside(&bin(BinOp::FloorDiv, &flat, &m), &n)));
    assert!(facts.prove(&inside(&bin(BinOp::FloorMod, &flat, &m), &m)));
}

#[test]
fn a_convolution_stays_inside() {
    let mut facts = Facts::new();
    let [n, k, p] = ["n", "k", "p"].map(|name| runtime(&mut facts, name));
    let (s_var, s) = var("s");
    facts.assume(&Expr::le(Expr::index(1), Expr::var(&s_var)));
    // (n - k + 2*p) // s + 1 windows over n + 2*p elements.
    let padded = Expr::add(n.clone(), bin(BinOp::Mul, &Expr::index(2), &p));
    let steps = bin(BinOp::FloorDiv, &Expr::sub(padded.clone(), k.clone()), &s);
    let windows = Expr::add(steps, Expr::index(1));
    let ((i_var, i), (r_var, r)) = (var("i"), var("r"));
    facts.bind(&i_var, &Expr::index(0), &windows);
    facts.bind(&r_var, &Expr::index(0), &k);
    let at = Expr::add(bin(BinOp::Mul, &i, &s), r);
    assert!(facts.prove(&inside(&at, &padded)));
    assert!(!facts.prove(&inside(&at, &n)));
}

#[test]
fn padding_is_guarded() {
    let mut facts = Facts::new();
    let [n, p] = ["n", "p"].map(|name| runtime(&mut facts, name));
    let (i_var, i) = var("i");
    let extent = Expr::add(n.clone(), bin(BinOp::Mul, &Expr::index(2), &p));
    facts.bind(&i_var, &Expr::index(0), &extent);
    let border = Expr::or(
        Expr::lt(i.clone(), p.clone()),
        bin(BinOp::Ge, &i, &Expr::add(n.clone(), p.clone())),
    );
    let index = Expr::sub(i, p);
    assert!(!facts.prove(&inside(&index, &n)));
    facts.push();
    facts.assume(&Expr::not(border));
    assert!(facts.prove(&inside(&index, &n)));
    facts.pop();
    assert!(!facts.prove(&inside(&index, &n)));
}

#[test]
fn an_end_that_is_excluded_is_no_end() {
    let mut facts = Facts::new();
    let n = runtime(&mut facts, "n");
    let (i_var, i) = var("i");
    facts.bind(&i_var, &Expr::index(0), &n);
    let last = Expr::sub(n.clone(), Expr::index(1));
    let next = Expr::add(i.clone(), Expr::index(1));
    let before = Expr::sub(i.clone(), Expr::index(1));
    let is = |index: &Expr, end: &Expr| bin(BinOp::Eq, index, end);
    for (end, inside_without) in [(last, next), (Expr::index(0), before)] {
        assert!(!facts.prove(&inside(&inside_without, &n)));
        facts.push();
        facts.assume(&Expr::not(is(&i, &end)));
        assert!(facts.prove(&inside(&inside_without, &n)));
        facts.pop();
        assert!(!facts.prove(&inside(&inside_without, &n)));
    }
}

#[test]
fn data_dependent_indices_are_clamped() {
    let mut facts = Facts::new();
    let n = runtime(&mut facts, "n");
    facts.assume(&Expr::lt(Expr::index(0), n.clone()));
    for ty in [DType::Int32, DType::Int64, DType::Uint8] {
        let x = Expr::var(&Var::new("x", ty));
        let last = Expr::int(ty, 9);
        let clamped = bin(BinOp::Min, &bin(BinOp::Max, &x, &Expr::int(ty, 0)), &last);
        let index = Expr::cast(DType::Index, clamped);
        assert!(facts.prove(&inside(&index, &Expr::index(10))), "clamp of {ty}");
        let cyclic = Expr::cast(DType::Index, bin(BinOp::FloorMod, &x, &Expr::int(ty, 10)));
        assert!(facts.prove(&inside(&cyclic, &Expr::index(10))), "modulo of {ty}");
    }
    let x = Expr::var(&Var::new("x", DType::Int64));
    let wide = Expr::cast(DType::Int64, n.clone());
    let cyclic = Expr::cast(DType::Index, bin(BinOp::FloorMod, &x, &wide));
    assert!(facts.prove(&inside(&cyclic, &n)));
    let last = Expr::sub(wide.clone(), Expr::int(DType::Int64, 1));
    let clamped = bin(BinOp::Min, &bin(BinOp::Max, &x, &Expr::int(DType::Int64, 0)), &last);
    // By its type, `n - 1` of int64 may wrap, so the subtraction must be of type index.
    assert!(!facts.prove(&inside(&Expr::cast(DType::Index, clamped), &n)));
    let last = Expr::cast(DType::Int64, Expr::sub(n.clone(), Expr::index(1)));
    let clamped = bin(BinOp::Min, &bin(BinOp::Max, &x, &Expr::int(DType::Int64, 0)), &last);
    assert!(facts.prove(&inside(&Expr::cast(DType::Index, clamped), &n)));
}

#[test]
fn long_conjunctions_take_linear_time() {
    crate::driver::with_stack(|| {
        let (_, x) = var("x");
        let mut cond = Expr::lt(Expr::index(0), x.clone());
        for at in 0..100_000 {
            cond = Expr::and(cond, Expr::lt(x.clone(), Expr::index(2_000_000 - at)));
        }
        let mut facts = Facts::new();
        facts.assume(&cond);
        assert!(facts.prove(&Expr::lt(Expr::index(0), x)));
    });
}

#[test]
fn the_examples_of_the_documentation_hold() {
    let at = Expr::index;
    let mul = |a: &Expr, b: &Expr| bin(BinOp::Mul, a, b);
    let mut facts = Facts::new();
    let (n, m) = (runtime(&mut facts, "n"), runtime(&mut facts, "m"));
    let ((i_var, i), (j_var, j)) = (var("i"), var("j"));
    let key = |expr: &Expr| facts.poly(expr);
    let expanded = Expr::sub(mul(&Expr::add(i.clone(), at(1)), &n), mul(&i, &n));
    assert_eq!(key(&expanded), key(&n));
    let divided = bin(BinOp::FloorDiv, &Expr::add(mul(&at(8), &i), j.clone()), &at(8));
    assert_eq!(key(&divided), key(&Expr::add(i.clone(), bin(BinOp::FloorDiv, &j, &at(8)))));
    let whole = mul(&bin(BinOp::FloorDiv, &i, &at(4)), &at(4));
    assert_eq!(key(&Expr::add(whole, bin(BinOp::FloorMod, &i, &at(4)))), key(&i));

    let mut learnt = facts.clone();
    learnt.assume(&Expr::lt(at(0), mul(&at(2), &i)));
    assert!(learnt.prove(&Expr::le(at(1), i.clone())));
    learnt.assume(&Expr::and(Expr::le(at(2), i.clone()), Expr::le(at(1), n.clone())));
    learnt.assume(&Expr::lt(mul(&i, &n), at(64)));
    assert!(learnt.prove(&Expr::le(n.clone(), at(31))));

    let mut learnt = facts.clone();
    learnt.assume(&Expr::eq(bin(BinOp::FloorMod, &m, &at(4)), at(0)));
    let sum = Expr::add(mul(&at(2), &m), at(3));
    assert_eq!(learnt.residue(&learnt.poly(&sum), 8), Some(3));

    // Of three remainders, two are excluded.
    let mut learnt = facts.clone();
    let third = bin(BinOp::FloorMod, &m, &at(3));
    learnt.assume(&bin(BinOp::Ne, &third, &at(0)));
    assert_eq!(learnt.residue(&learnt.poly(&m), 3), None);
    learnt.push();
    learnt.assume(&bin(BinOp::Ne, &third, &at(1)));
    assert_eq!(learnt.residue(&learnt.poly(&m), 3), Some(2));
    learnt.pop();
    assert_eq!(learnt.residue(&learnt.poly(&m), 3), None);

    let mut loops = facts.clone();
    loops.bind(&i_var, &at(0), &at(10));
    assert!(loops.prove(&Expr::lt(Expr::add(mul(&at(3), &i), at(2)), at(30))));

    let mut loops = facts.clone();
    loops.bind(&i_var, &at(0), &n);
    loops.bind(&j_var, &at(0), &m);
    assert!(loops.prove(&Expr::lt(Expr::add(mul(&i, &m), j.clone()), mul(&n, &m))));
    assert!(!loops.prove(&Expr::eq(bin(BinOp::FloorMod, &mul(&i, &n), &n), at(0))));

    let mut loops = facts.clone();
    loops.bind(&i_var, &at(0), &at(8));
    loops.bind(&j_var, &at(0), &n);
    let (_, most) = loops.bounds(&Expr::sub(mul(&i, &n), j), &[i_var, j_var]).expect("exact");
    assert_eq!(loops.poly(&most), loops.poly(&mul(&n, &at(7))));
}

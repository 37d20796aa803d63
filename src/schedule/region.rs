//! Interval analysis: the values of an index over the iterations of some loops, for fixed
//! iterations of the others.
//!
//! Before: `y*2 + ky`, `y = yo*8 + yi`, `yo` fixed, `yi` in 0..8, `ky` in 0..3.
//! After: from `yo*16`, 16 more.
//! An [`Interval`] covers every value; for sums of multiples of variables it is exact.

use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{any_expr, walk_expr};
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp, Var};
use rustc_hash::FxHashMap;

/// The values `min ..= min + width`: `min` over fixed variables, `width` over run-time integers
/// only.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) min: Expr,
    pub(super) width: Expr,
}

impl Interval {
    /// Returns the interval of one value.
    pub(super) fn point(value: Expr) -> Interval {
        Interval { min: value, width: Expr::index(0) }
    }

    /// Returns the last value.
    pub(super) fn last(&self) -> Expr {
        Expr::add(self.min.clone(), self.width.clone())
    }
}

/// Evaluates expressions to intervals.
pub(super) struct IntervalEvaluator<'a> {
    /// The variables of running loops, with their values. All others are fixed.
    pub(super) moving: &'a FxHashMap<Var, Interval>,
    /// Facts about the fixed variables.
    pub(super) facts: &'a Facts,
}

impl IntervalEvaluator<'_> {
    /// Returns the values of an expression; `None` if they are unknown.
    pub(super) fn interval(&self, expr: &Expr) -> Option<Interval> {
        let mut moves = false;
        let mut opaque = expr.ty != DType::Index.into();
        walk_expr(expr, &mut |e| match &e.kind {
            ExprKind::Var(var) => moves |= self.moving.contains_key(var),
            ExprKind::Load { .. } => opaque = true,
            _ => {}
        });
        if opaque {
            return None;
        }
        if !moves {
            return Some(Interval::point(self.simple(expr)));
        }
        match &expr.kind {
            ExprKind::Var(var) => self.moving.get(var).cloned(),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b),
            ExprKind::Unary(UnOp::Neg, a) => {
                let a = self.interval(a)?;
                Some(self.make(Expr::sub(Expr::index(0), a.last()), a.width))
            }
            ExprKind::Unary(UnOp::Abs, a) => {
                let a = self.interval(a)?;
                let mirrored = Expr::sub(Expr::index(0), a.last());
                let far = Expr::binary(BinOp::Max, a.min, mirrored);
                Some(self.make(Expr::binary(BinOp::Max, far, Expr::index(0)), a.width))
            }
            ExprKind::Select(_, a, b) | ExprKind::IfThenElse(_, a, b) => {
                self.union(self.interval(a)?, self.interval(b)?)
            }
            _ => None,
        }
    }

    /// Returns the values of an index of a tensor, as [`IntervalEvaluator::interval`]. Elements
    /// outside of the tensor are not computed, so the interval may start before it if its start is
    /// simpler then: `max(x, 0)` over `x` from `o*8 - 1` to `o*8 + 6` gives the values of `x`, and
    /// 0, which is one of them.
    pub(super) fn index_interval(&self, index: &Expr) -> Option<Interval> {
        let not_negative = |expr: &Expr| self.facts.prove(&Expr::le(Expr::index(0), expr.clone()));
        match &index.kind {
            ExprKind::Binary(BinOp::Max, a, b) if is_zero(a) || is_zero(b) => {
                let inner = self.index_interval(if is_zero(a) { b } else { a });
                if inner.as_ref().is_some_and(|inner| not_negative(&inner.last())) {
                    return inner;
                }
            }
            ExprKind::Binary(BinOp::Min, a, b) => {
                let (a, b) = (self.index_interval(a)?, self.index_interval(b)?);
                let width = Expr::binary(BinOp::Max, a.width, b.width);
                return Some(self.make(Expr::binary(BinOp::Min, a.min, b.min), width));
            }
            ExprKind::Unary(UnOp::Abs, a) => {
                let inner = self.index_interval(a);
                // The largest magnitude is that of the last value, which is not negative.
                let is_last =
                    |inner: &Interval| not_negative(&Expr::add(inner.min.clone(), inner.last()));
                if inner.as_ref().is_some_and(is_last) {
                    return inner;
                }
            }
            _ => {}
        }
        self.interval(index)
    }

    fn binary(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Interval> {
        match op {
            BinOp::Add => {
                let (a, b) = (self.interval(a)?, self.interval(b)?);
                Some(self.make(Expr::add(a.min, b.min), Expr::add(a.width, b.width)))
            }
            BinOp::Sub => {
                let (a, b) = (self.interval(a)?, self.interval(b)?);
                let high = Expr::add(b.min, b.width.clone());
                Some(self.make(Expr::sub(a.min, high), Expr::add(a.width, b.width)))
            }
            BinOp::Mul => {
                let (a, b) = (self.interval(a)?, self.interval(b)?);
                let (interval, factor) = match (is_zero(&a.width), is_zero(&b.width)) {
                    (false, true) => (a, b.min),
                    (true, false) => (b, a.min),
                    // The running loops have one iteration.
                    (true, true) => {
                        let product = Expr::mul(a.min, b.min);
                        return Some(self.make(product, Expr::index(0)));
                    }
                    (false, false) => return None,
                };
                self.scale(interval, factor)
            }
            BinOp::FloorDiv | BinOp::FloorMod => {
                let divisor = b.as_int().and_then(|b| i64::try_from(b).ok()).filter(|b| *b > 0)?;
                let interval = self.interval(a)?;
                match op {
                    BinOp::FloorDiv => self.quotient(interval, divisor),
                    _ => self.remainder(interval, divisor),
                }
            }
            BinOp::Min | BinOp::Max => {
                let (a, b) = (self.interval(a)?, self.interval(b)?);
                let min = Expr::binary(op, a.min, b.min);
                Some(self.make(min, Expr::binary(BinOp::Max, a.width, b.width)))
            }
            _ => None,
        }
    }

    /// Returns an interval times a fixed factor.
    fn scale(&self, interval: Interval, factor: Expr) -> Option<Interval> {
        // A width must not depend on loops.
        if !self.is_runtime(&factor) {
            return None;
        }
        let zero = Expr::index(0);
        if self.facts.prove(&Expr::le(zero.clone(), factor.clone())) {
            let min = Expr::mul(interval.min, factor.clone());
            return Some(self.make(min, Expr::mul(interval.width, factor)));
        }
        if self.facts.prove(&Expr::le(factor.clone(), zero.clone())) {
            let high = Expr::add(interval.min, interval.width.clone());
            let width = Expr::mul(interval.width, Expr::sub(zero, factor.clone()));
            return Some(self.make(Expr::mul(high, factor), width));
        }
        None
    }

    fn quotient(&self, interval: Interval, divisor: i64) -> Option<Interval> {
        let by = Expr::index(divisor);
        // The exact width, if the remainder of the first value is constant.
        let rest = self.simple(&Expr::binary(BinOp::FloorMod, interval.min.clone(), by.clone()));
        let most = rest.as_int().map_or(Expr::index(divisor - 1), |_| rest.clone());
        let width = Expr::binary(BinOp::FloorDiv, Expr::add(interval.width, most), by.clone());
        Some(self.make(Expr::binary(BinOp::FloorDiv, interval.min, by), width))
    }

    fn remainder(&self, interval: Interval, divisor: i64) -> Option<Interval> {
        let by = Expr::index(divisor);
        let rest = self.simple(&Expr::binary(BinOp::FloorMod, interval.min.clone(), by.clone()));
        let wraps = match (self.facts.const_bounds(&rest).1, interval.width.as_int()) {
            (Some(rest), Some(width)) => rest + width >= i128::from(divisor),
            _ => true,
        };
        Some(match wraps {
            false => Interval { min: rest, width: interval.width },
            true => Interval { min: Expr::index(0), width: Expr::index(divisor - 1) },
        })
    }

    /// Returns an interval that covers both, the smallest one that can be proved; `None` if none
    /// can.
    pub(super) fn union(&self, a: Interval, b: Interval) -> Option<Interval> {
        let step = self.simple(&Expr::sub(b.min.clone(), a.min.clone()));
        let (low, high) = self.bounds(&step);
        let (low, high) = (low?, high?);
        let max = |a, b| Expr::binary(BinOp::Max, a, b);
        let zero = Expr::index(0);
        let after_a = Expr::add(b.width.clone(), high.clone());
        let after_b = Expr::sub(a.width.clone(), low.clone());
        if self.facts.prove(&Expr::le(zero.clone(), low)) {
            return Some(self.make(a.min, max(a.width, after_a)));
        }
        if self.facts.prove(&Expr::le(high, zero)) {
            return Some(self.make(b.min, max(b.width, after_b)));
        }
        let width = max(max(a.width, after_b), max(b.width, after_a));
        Some(self.make(Expr::binary(BinOp::Min, a.min, b.min), width))
    }

    /// Bounds of an expression over fixed variables: constants if possible, else over run-time
    /// integers.
    pub(super) fn bounds(&self, expr: &Expr) -> (Option<Expr>, Option<Expr>) {
        let constant = |end: Option<i128>| end.and_then(|end| i64::try_from(end).ok());
        let (low, high) = self.facts.const_bounds(expr);
        if low.is_some() && low == high {
            let end = constant(low).map(Expr::index);
            return (end.clone(), end);
        }
        let (low, high) = self.facts.bounds_by_cases(expr);
        let usable = |end: &Expr| self.is_runtime(end);
        (low.filter(usable), high.filter(usable))
    }

    /// Whether the expression contains no loop variable: `facts` binds every fixed one.
    fn is_runtime(&self, expr: &Expr) -> bool {
        let is_loop = |var: &Var| self.facts.is_loop(var) || self.moving.contains_key(var);
        !any_expr(expr, &mut |e| e.as_var().is_some_and(is_loop))
    }

    pub(super) fn make(&self, min: Expr, width: Expr) -> Interval {
        Interval { min: self.simple(&min), width: self.simple(&width) }
    }

    pub(super) fn simple(&self, expr: &Expr) -> Expr {
        simplify_expr(expr, self.facts)
    }
}

fn is_zero(expr: &Expr) -> bool {
    expr.as_int() == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::arith::tests::evaluate;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Returns a random index over `vars`, mostly sums of multiples.
    fn index(random: &mut ChaCha8Rng, vars: &[Var], depth: usize) -> Expr {
        let int = |random: &mut ChaCha8Rng, low, high| Expr::index(random.random_range(low..=high));
        if depth == 0 || random.random_range(0..6) == 0 {
            return match random.random_range(0..4) {
                0 => int(random, -5, 9),
                _ => Expr::var(&vars[random.random_range(0..vars.len())]),
            };
        }
        let a = index(random, vars, depth - 1);
        let b = |random: &mut ChaCha8Rng| index(random, vars, depth - 1);
        match random.random_range(0..14) {
            12 => Expr::unary(UnOp::Abs, a),
            13 => Expr::unary(UnOp::Neg, a),
            0..=4 => Expr::add(a, b(random)),
            5 => Expr::sub(a, b(random)),
            6 | 7 => Expr::mul(a, int(random, -3, 4)),
            8 => Expr::binary(BinOp::FloorDiv, a, int(random, 1, 5)),
            9 => Expr::binary(BinOp::FloorMod, a, int(random, 1, 5)),
            10 => Expr::binary(BinOp::Min, a, b(random)),
            _ => Expr::binary(BinOp::Max, a, b(random)),
        }
    }

    #[test]
    fn an_interval_covers_every_value() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut exact = 0;
        for _ in 0..2000 {
            let fixed = [Var::index("f"), Var::index("g")];
            let moving = [Var::index("x"), Var::index("y")];
            let mut facts = Facts::new();
            let sizes: Vec<i64> = (0..4).map(|_| random.random_range(1..6)).collect();
            for (var, size) in fixed.iter().zip(&sizes) {
                facts.bind(var, &Expr::index(0), &Expr::index(*size));
            }
            let intervals = moving.iter().zip(&sizes[2..]).map(|(var, size)| {
                let width = Expr::index(size - 1);
                (var.clone(), Interval { min: Expr::index(0), width })
            });
            let intervals: FxHashMap<Var, Interval> = intervals.collect();
            let vars: Vec<Var> = fixed.iter().chain(&moving).cloned().collect();
            let expr = simplify_expr(&index(&mut random, &vars, 4), &facts);
            let evaluator = IntervalEvaluator { moving: &intervals, facts: &facts };
            let Some(interval) = evaluator.interval(&expr) else { continue };
            let width = interval.width.as_int().expect("all extents are constants");
            let mut tight = false;
            for (f, g) in (0..sizes[0]).flat_map(|f| (0..sizes[1]).map(move |g| (f, g))) {
                let here = vec![(fixed[0].clone(), f), (fixed[1].clone(), g)];
                let value = |expr: &Expr, at: &Vec<(Var, i64)>| {
                    i128::from(evaluate(expr, at).expect("nothing overflows"))
                };
                let points = (0..sizes[2]).flat_map(|x| (0..sizes[3]).map(move |y| (x, y)));
                let values: Vec<i128> = points
                    .map(|(x, y)| {
                        let mut at = here.clone();
                        at.extend([(moving[0].clone(), x), (moving[1].clone(), y)]);
                        value(&expr, &at)
                    })
                    .collect();
                let min = value(&interval.min, &here);
                let low = *values.iter().min().expect("not empty");
                let high = *values.iter().max().expect("not empty");
                assert!(min <= low && high <= min + width, "{expr:?}: {interval:?}");
                tight |= min == low && high == min + width;
            }
            exact += u32::from(tight);
        }
        assert!(exact > 1000, "only {exact} are exact somewhere");
    }
}

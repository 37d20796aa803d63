//! Indices as linear sums of loops: the stride of an access in each enclosing loop.
//!
//! A loop variable is a sum of *dimensions*, each of which runs from 0 and has a factor. Most loops
//! have one dimension. If a variable is divided, because its loop is the fusion of several, it has
//! one for each of these, so that an index that depends on only one of them has stride 0 in the
//! others.
//!
//! Coefficients are `f64`, because the sums are estimates: unknown extents have the value
//! [`ASSUMED_VALUE`], and divisions that do not come out even are not rounded.

use super::RunTimeValues;
use crate::ir::arith::Linear;
use crate::ir::visit::{walk_expr, walk_stmt};
use crate::ir::{BinOp, Expr, ExprKind, Stmt, UnOp, Var};
use rustc_hash::FxHashMap;

/// The number of a dimension: those of inner loops are larger.
pub(super) type Dim = usize;

/// An index as a linear sum of dimensions, and how it differs between the lanes of a vector.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) linear: Linear<Dim, f64>,
    pub(super) lane: Lane,
    /// Whether the index depends on data or is no linear sum. `linear` is then a rough estimate.
    pub(super) irregular: bool,
    /// The dimensions that are clamped or divided with a remainder, a bit for each: their factor is
    /// a mean, not the step of each iteration.
    pub(super) uneven: u64,
}

/// How an index changes from lane to lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Lane {
    /// Not at all.
    #[default]
    Same,
    /// By a constant.
    By(f64),
    /// In an unknown way.
    Irregular,
}

impl Sum {
    fn constant(value: f64) -> Sum {
        Sum { linear: Linear::of_constant(value), ..Sum::default() }
    }

    /// `factor · dim`.
    fn term(dim: Dim, factor: f64) -> Sum {
        Sum { linear: Linear { terms: vec![(dim, factor)], constant: 0.0 }, ..Sum::default() }
    }

    /// The value, if no loop, lane or data changes it.
    fn as_constant(&self) -> Option<f64> {
        self.linear.as_constant().filter(|_| self.lane == Lane::Same && !self.irregular)
    }

    fn scale(self, factor: f64) -> Sum {
        if factor == 0.0 {
            return Sum::default();
        }
        let lane = match self.lane {
            Lane::By(step) => Lane::By(step * factor),
            other => other,
        };
        Sum { linear: &self.linear * factor, lane, ..self }
    }

    /// The same sum, whose dimensions have no constant step.
    fn uneven(self) -> Sum {
        let dims = self.linear.terms.iter().map(|(dim, _)| 1 << (*dim).min(63));
        let uneven = dims.fold(self.uneven, |all, dim: u64| all | dim);
        Sum { uneven, ..self }
    }

    fn plus(self, other: Sum) -> Sum {
        let lane = match (self.lane, other.lane) {
            (Lane::Same, lane) | (lane, Lane::Same) => lane,
            (Lane::By(a), Lane::By(b)) => Lane::By(a + b),
            _ => Lane::Irregular,
        };
        let irregular = self.irregular || other.irregular;
        let uneven = self.uneven | other.uneven;
        Sum { linear: &self.linear + &other.linear, lane, irregular, uneven }
    }

    fn irregular(self) -> Sum {
        Sum { irregular: true, ..self }
    }

    /// Splits a sum into the terms that are multiples of `by` and the others. The step between
    /// lanes goes with the multiples if it is one, else with the others.
    fn parted(self, by: f64) -> (Sum, Sum) {
        let whole = |value: f64| value % by == 0.0;
        let Linear { terms, constant } = self.linear;
        let (multiples, rest) = terms.into_iter().partition(|term| whole(term.1));
        let quotient = (constant / by).floor() * by;
        let (lane, rest_lane) = match self.lane {
            Lane::By(step) if whole(step) => (self.lane, Lane::Same),
            lane => (Lane::Same, lane),
        };
        let (irregular, uneven) = (self.irregular, self.uneven);
        let multiples = Linear { terms: multiples, constant: quotient };
        let rest = Linear { terms: rest, constant: constant - quotient };
        (
            Sum { linear: multiples, lane, irregular, uneven },
            Sum { linear: rest, lane: rest_lane, irregular, uneven },
        )
    }
}

/// The variables in scope as sums.
#[derive(Default)]
pub(super) struct Indices {
    /// The variables of open loops and of `let`s.
    vars: FxHashMap<Var, Sum>,
    /// The extent of each dimension.
    pub(super) extents: Vec<f64>,
    /// The divisors of each variable, ascending.
    divisors: FxHashMap<Var, Vec<f64>>,
}

/// The assumed value of a run-time integer. A prime, so that no number of lanes divides it.
pub const ASSUMED_VALUE: f64 = 251.0;

impl Indices {
    /// Prepares for the loops of a statement, in which run-time integers have these values.
    pub(super) fn new(body: &Stmt, values: &RunTimeValues) -> Indices {
        let mut divisors = FxHashMap::default();
        walk_stmt(body, &mut |_| {}, &mut |expr| {
            walk_expr(expr, &mut |node| collect_divisors(node, values, &mut divisors));
        });
        let vars = values.iter().map(|(var, at)| (var.clone(), Sum::constant(*at as f64)));
        Indices { divisors, vars: vars.collect(), ..Indices::default() }
    }

    /// Returns the dimensions of a loop of `count` iterations, outermost first, each as an extent
    /// and a factor.
    pub(super) fn split(&self, var: &Var, count: f64) -> Vec<(f64, f64)> {
        let mut parts = Vec::new();
        let mut below = 1.0;
        for by in self.divisors.get(var).into_iter().flatten() {
            if *by < count && by % below == 0.0 && *by > below {
                parts.insert(0, (by / below, below));
                below = *by;
            }
        }
        parts.insert(0, ((count / below).ceil(), below));
        parts
    }

    /// Defines the variable of a loop that begins at `min` by new dimensions, each with an extent
    /// and a factor.
    pub(super) fn open(&mut self, var: &Var, min: Sum, parts: &[(f64, f64)]) -> Vec<Dim> {
        let mut sum = min;
        let mut dims = Vec::new();
        for (extent, factor) in parts {
            let dim = self.extents.len();
            self.extents.push(*extent);
            dims.push(dim);
            sum = sum.plus(Sum::term(dim, *factor));
        }
        self.vars.insert(var.clone(), sum);
        dims
    }

    /// Defines a variable that equals an existing dimension.
    pub(super) fn alias(&mut self, var: &Var, dim: Dim) {
        self.vars.insert(var.clone(), Sum::term(dim, 1.0));
    }

    /// Defines the variable of a `let`.
    pub(super) fn define(&mut self, var: &Var, value: &Expr) {
        let sum = self.sum(value);
        self.vars.insert(var.clone(), sum);
    }

    /// Returns the largest value that the terms can have, lanes and constant left out.
    fn span(&self, sum: &Sum) -> f64 {
        let terms = sum.linear.terms.iter();
        terms.map(|(dim, factor)| factor.abs() * (self.extents[*dim] - 1.0)).sum()
    }

    /// Returns an index as a sum.
    pub(super) fn sum(&self, expr: &Expr) -> Sum {
        if let Some(value) = expr.as_int() {
            return Sum::constant(value as f64);
        }
        match &expr.kind {
            ExprKind::Var(var) => {
                self.vars.get(var).cloned().unwrap_or_else(|| Sum::constant(ASSUMED_VALUE))
            }
            ExprKind::Unary(UnOp::Neg, a) => self.sum(a).scale(-1.0),
            ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Broadcast(a) => self.sum(a),
            ExprKind::Ramp(base, step) => {
                let lane = self.sum(step).as_constant().map_or(Lane::Irregular, Lane::By);
                self.sum(base).plus(Sum { lane, ..Sum::default() })
            }
            ExprKind::Binary(op, a, b) => self.binary(*op, self.sum(a), self.sum(b), expr.ty.lanes),
            ExprKind::Select(_, a, b) | ExprKind::IfThenElse(_, a, b) => {
                self.moving(self.sum(a), self.sum(b))
            }
            ExprKind::Let(_, _, body) => self.sum(body).irregular(),
            _ => Sum { lane: lane_of(expr), irregular: true, ..Sum::default() },
        }
    }

    fn binary(&self, op: BinOp, a: Sum, b: Sum, lanes: u32) -> Sum {
        match (op, a.as_constant(), b.as_constant()) {
            (BinOp::Add, ..) => a.plus(b),
            (BinOp::Sub, ..) => a.plus(b.scale(-1.0)),
            (BinOp::Mul, _, Some(factor)) => a.scale(factor),
            (BinOp::Mul, Some(factor), None) => b.scale(factor),
            (BinOp::FloorDiv, _, Some(by)) if by > 0.0 => self.divided(a, by, lanes),
            (BinOp::FloorMod, _, Some(by)) if by > 0.0 => {
                let rest = a.parted(by).1;
                let same = self.lanes_share_quotient(&rest, by, lanes);
                let lane = if same { rest.lane } else { Lane::Irregular };
                let wraps = self.span(&rest) + rest.linear.constant >= by;
                let rest = Sum { lane, ..rest };
                if wraps { rest.uneven() } else { rest }
            }
            (BinOp::Min | BinOp::Max, ..) => self.moving(a, b),
            (_, Some(_), Some(_)) => Sum::default(),
            _ => a.plus(b).irregular(),
        }
    }

    /// Returns the operand that varies with more dimensions. Where the lanes of the operands
    /// differ, each lane may take another one: simplification has removed the others before.
    fn moving(&self, a: Sum, b: Sum) -> Sum {
        let lane = if a.lane == b.lane { a.lane } else { Lane::Irregular };
        let most = if a.linear.term_count() >= b.linear.term_count() { a } else { b };
        Sum { lane, ..most }.uneven()
    }

    /// Returns `sum // by`. If the terms that are no multiples of `by` may reach it, they are
    /// divided without rounding.
    fn divided(&self, sum: Sum, by: f64, lanes: u32) -> Sum {
        let (multiples, rest) = sum.parted(by);
        let multiples = multiples.scale(1.0 / by);
        let same = self.lanes_share_quotient(&rest, by, lanes);
        if same && self.span(&rest) + rest.linear.constant < by {
            return multiples;
        }
        let lane = if same { Lane::Same } else { Lane::Irregular };
        let mut rest = Sum { lane, ..rest.scale(1.0 / by) };
        rest.linear.constant = 0.0;
        multiples.plus(rest.uneven())
    }

    /// Whether all lanes of a sum, none of whose terms is a multiple of `by`, have the same
    /// quotient by it: they lie between two multiples of the greatest common divisor, or of `by`.
    fn lanes_share_quotient(&self, rest: &Sum, by: f64, lanes: u32) -> bool {
        let step = match rest.lane {
            Lane::Same => return true,
            Lane::By(step) => step * f64::from(lanes - 1),
            Lane::Irregular => return false,
        };
        let factors = rest.linear.terms.iter().map(|term| term.1);
        let apart = factors.fold(by, gcd);
        let first = rest.linear.constant.rem_euclid(apart);
        let holds = |first: f64, last: f64| first.min(last) >= 0.0 && first.max(last) < apart;
        holds(first, first + step)
    }
}

/// Returns the greatest common divisor of two numbers of elements or bytes.
pub(super) fn gcd(a: f64, b: f64) -> f64 {
    let (mut a, mut b) = (a.round().abs() as u64, b.round().abs() as u64);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as f64
}

fn lane_of(expr: &Expr) -> Lane {
    if expr.ty.lanes > 1 { Lane::Irregular } else { Lane::Same }
}

/// Returns the variables that are terms of a sum: `y` for `(y + 1) % 4`, the row of a ring.
fn terms(sum: &Expr) -> Vec<&Var> {
    match &sum.kind {
        ExprKind::Var(var) => vec![var],
        ExprKind::Binary(BinOp::Add | BinOp::Sub, a, b) => [terms(a), terms(b)].concat(),
        _ => Vec::new(),
    }
}

/// Collects the divisors of each variable in a node, those of nested divisions multiplied.
fn collect_divisors(expr: &Expr, values: &RunTimeValues, divisors: &mut FxHashMap<Var, Vec<f64>>) {
    if let ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, a, by) = &expr.kind
        && let Some(by) = value_at(by, values)
    {
        let (vars, by) = match &a.kind {
            ExprKind::Binary(BinOp::FloorDiv, inner, first) => {
                (inner.as_var().into_iter().collect(), by * value_at(first, values).unwrap_or(0.0))
            }
            _ => (terms(a), by),
        };
        for var in vars.into_iter().filter(|_| by > 1.0) {
            let known = divisors.entry(var.clone()).or_default();
            if let Err(at) = known.binary_search_by(|known| known.total_cmp(&by)) {
                known.insert(at, by);
            }
        }
    }
}

/// Returns the value of a divisor; `None` if it depends on more than `values`.
fn value_at(divisor: &Expr, values: &RunTimeValues) -> Option<f64> {
    match &divisor.kind {
        ExprKind::Var(var) => values.get(var).map(|value| *value as f64),
        ExprKind::Binary(BinOp::Mul, a, b) => Some(value_at(a, values)? * value_at(b, values)?),
        _ => divisor.as_int().map(|value| value as f64),
    }
}

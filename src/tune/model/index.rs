//! Indices as sums: how far an access moves in memory with each loop around it.
//!
//! A loop variable is the sum of its *dimensions*, each of which runs from 0 with a factor. Most
//! loops have one. One whose variable is divided, because it stands for several loops that were
//! fused, has one for each of those, so that what moves with one of them is seen to rest in the
//! others.

use crate::ir::visit::{for_each_child, walk_stmt};
use crate::ir::{BinOp, Expr, ExprKind, Stmt, UnOp, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// The number of a dimension: those of inner loops are larger.
pub(super) type Dim = usize;

/// `constant + Σ factor·dimension + lane·(number of the lane)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sum {
    /// Ascending by dimension, no factor 0.
    pub(super) terms: Vec<(Dim, f64)>,
    pub(super) constant: f64,
    pub(super) lane: Lane,
    /// Depends on data, or in a way that is no sum.
    pub(super) irregular: bool,
}

/// How an index moves from lane to lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Lane {
    /// Not at all.
    #[default]
    Same,
    /// By a constant.
    By(f64),
    /// In a way that is not known.
    Apart,
}

impl Sum {
    fn constant(value: f64) -> Sum {
        Sum { constant: value, ..Sum::default() }
    }

    fn is_constant(&self) -> bool {
        self.terms.is_empty() && self.lane == Lane::Same && !self.irregular
    }

    fn scale(mut self, factor: f64) -> Sum {
        if factor == 0.0 {
            return Sum::default();
        }
        self.terms.iter_mut().for_each(|term| term.1 *= factor);
        self.constant *= factor;
        if let Lane::By(step) = &mut self.lane {
            *step *= factor;
        }
        self
    }

    fn plus(mut self, other: Sum) -> Sum {
        for (dim, factor) in other.terms {
            match self.terms.binary_search_by_key(&dim, |term| term.0) {
                Ok(at) => self.terms[at].1 += factor,
                Err(at) => self.terms.insert(at, (dim, factor)),
            }
        }
        self.terms.retain(|term| term.1 != 0.0);
        self.constant += other.constant;
        self.lane = match (self.lane, other.lane) {
            (Lane::Same, lane) | (lane, Lane::Same) => lane,
            (Lane::By(a), Lane::By(b)) => Lane::By(a + b),
            _ => Lane::Apart,
        };
        self.irregular |= other.irregular;
        self
    }

    fn irregular(self) -> Sum {
        Sum { irregular: true, ..self }
    }

    /// The terms that are multiples of `by`, and the rest; lanes are with the part that they fit.
    fn parted(self, by: f64) -> (Sum, Sum) {
        let whole = |value: f64| value % by == 0.0;
        let (multiples, rest) = self.terms.into_iter().partition(|term| whole(term.1));
        let quotient = (self.constant / by).floor() * by;
        let (lane, rest_lane) = match self.lane {
            Lane::By(step) if whole(step) => (self.lane, Lane::Same),
            lane => (Lane::Same, lane),
        };
        let irregular = self.irregular;
        (
            Sum { terms: multiples, constant: quotient, lane, irregular },
            Sum { terms: rest, constant: self.constant - quotient, lane: rest_lane, irregular },
        )
    }
}

/// What is known of variables.
#[derive(Default)]
pub(super) struct Indices {
    /// Loops that are open, and `let`s.
    vars: FxHashMap<Var, Sum>,
    /// How often each dimension runs.
    pub(super) extents: Vec<f64>,
    /// By what variables are divided, ascending.
    divisors: FxHashMap<Var, Vec<f64>>,
}

/// An extent that only a call tells: one that no vector divides.
pub(super) const UNKNOWN: f64 = 251.0;

impl Indices {
    /// Ready for the loops of a statement.
    pub(super) fn new(body: &Stmt) -> Indices {
        let mut divisors = FxHashMap::default();
        let mut seen = FxHashSet::default();
        walk_stmt(body, &mut |_| {}, &mut |expr| collect_divisors(expr, &mut seen, &mut divisors));
        Indices { divisors, ..Indices::default() }
    }

    /// The extents of the dimensions of a loop that runs `count` times, outermost first, each with
    /// its factor.
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

    /// Makes a loop known by its dimensions, of which each has an extent and a factor.
    pub(super) fn open(&mut self, var: &Var, min: Sum, parts: &[(f64, f64)]) -> Vec<Dim> {
        let mut sum = min;
        let mut dims = Vec::new();
        for (extent, factor) in parts {
            let dim = self.extents.len();
            self.extents.push(*extent);
            dims.push(dim);
            sum = sum.plus(Sum { terms: vec![(dim, *factor)], ..Sum::default() });
        }
        self.vars.insert(var.clone(), sum);
        dims
    }

    /// Makes a variable known that is a dimension that there is.
    pub(super) fn alias(&mut self, var: &Var, dim: Dim) {
        self.vars.insert(var.clone(), Sum { terms: vec![(dim, 1.0)], ..Sum::default() });
    }

    /// Makes a `let` known.
    pub(super) fn define(&mut self, var: &Var, value: &Expr) {
        let sum = self.sum(value);
        self.vars.insert(var.clone(), sum);
    }

    /// The largest value of the terms, lanes apart.
    fn span(&self, sum: &Sum) -> f64 {
        sum.terms.iter().map(|(dim, factor)| factor.abs() * (self.extents[*dim] - 1.0)).sum()
    }

    /// An index as a sum.
    pub(super) fn sum(&self, expr: &Expr) -> Sum {
        if let Some(value) = expr.as_int() {
            return Sum::constant(value as f64);
        }
        match &expr.kind {
            ExprKind::Var(var) => {
                self.vars.get(var).cloned().unwrap_or_else(|| Sum::constant(UNKNOWN))
            }
            ExprKind::Unary(UnOp::Neg, a) => self.sum(a).scale(-1.0),
            ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Broadcast(a) => self.sum(a),
            ExprKind::Ramp(base, step) => {
                let step = self.sum(step);
                let lane = if step.is_constant() { Lane::By(step.constant) } else { Lane::Apart };
                self.sum(base).plus(Sum { lane, ..Sum::default() })
            }
            ExprKind::Binary(op, a, b) => self.binary(*op, self.sum(a), self.sum(b)),
            ExprKind::Select(_, a, b) | ExprKind::IfThenElse(_, a, b) => {
                self.moving(self.sum(a), self.sum(b))
            }
            ExprKind::Let(_, _, body) => self.sum(body).irregular(),
            _ => Sum { lane: lane_of(expr), irregular: true, ..Sum::default() },
        }
    }

    fn binary(&self, op: BinOp, a: Sum, b: Sum) -> Sum {
        match op {
            BinOp::Add => a.plus(b),
            BinOp::Sub => a.plus(b.scale(-1.0)),
            BinOp::Mul if b.is_constant() => a.scale(b.constant),
            BinOp::Mul if a.is_constant() => b.scale(a.constant),
            BinOp::FloorDiv if b.is_constant() && b.constant > 0.0 => self.divided(a, b.constant),
            BinOp::FloorMod if b.is_constant() && b.constant > 0.0 => a.parted(b.constant).1,
            BinOp::Min | BinOp::Max => self.moving(a, b),
            _ if a.is_constant() && b.is_constant() => Sum::default(),
            _ => a.plus(b).irregular(),
        }
    }

    /// The one of two that moves.
    fn moving(&self, a: Sum, b: Sum) -> Sum {
        if a.terms.len() + usize::from(a.lane != Lane::Same)
            >= b.terms.len() + usize::from(b.lane != Lane::Same)
        {
            a
        } else {
            b
        }
    }

    fn divided(&self, sum: Sum, by: f64) -> Sum {
        let (multiples, rest) = sum.parted(by);
        let multiples = multiples.scale(1.0 / by);
        let lanes = if rest.lane == Lane::Same { Lane::Same } else { Lane::Apart };
        if self.span(&rest) + rest.constant < by {
            // Lanes of a rest that stays below are of one quotient.
            return multiples;
        }
        let rest = Sum { constant: 0.0, lane: lanes, ..rest.scale(1.0 / by) };
        multiples.plus(rest)
    }
}

fn lane_of(expr: &Expr) -> Lane {
    if expr.ty.lanes > 1 { Lane::Apart } else { Lane::Same }
}

/// Notes by what each variable is divided.
fn collect_divisors(
    expr: &Expr,
    seen: &mut FxHashSet<usize>,
    divisors: &mut FxHashMap<Var, Vec<f64>>,
) {
    if !seen.insert(expr.id()) {
        return;
    }
    if let ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, a, by) = &expr.kind
        && let Some(by) = by.as_int()
    {
        let (var, by) = match &a.kind {
            ExprKind::Var(var) => (Some(var), by),
            ExprKind::Binary(BinOp::FloorDiv, inner, first) => {
                (inner.as_var(), by * first.as_int().unwrap_or(0))
            }
            _ => (None, by),
        };
        if let Some(var) = var
            && by > 1
        {
            let known = divisors.entry(var.clone()).or_default();
            if let Err(at) = known.binary_search_by(|known| known.total_cmp(&(by as f64))) {
                known.insert(at, by as f64);
            }
        }
    }
    for_each_child(expr, &mut |child| collect_divisors(child, seen, divisors));
}

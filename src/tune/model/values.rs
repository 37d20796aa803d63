//! Estimates of integer expressions: iterations of loops, chances of conditions.

use super::index::ASSUMED_VALUE;
use super::nest::mentioned;
use super::walk::{EnclosingLoop, Walker};
use crate::ir::visit::{NodeSet, any_expr, for_each_child, reads_memory, rewrite_expr};
use crate::ir::{BinOp, Expr, ExprKind, UnOp, Var};
use rustc_hash::FxHashSet;

/// A loaded bound beyond all ranges.
const FAR: f64 = 1e15;

/// The least number of iterations that are assumed for a row of ragged data, unless its range is
/// shorter.
const MIN_PART: f64 = 8.0;

/// Whether an extent is a minimum or maximum, or contains one.
fn is_bounded(extent: &Expr) -> bool {
    any_expr(extent, &mut |e| matches!(e.kind, ExprKind::Binary(BinOp::Min | BinOp::Max, ..)))
}

impl Walker<'_> {
    /// Returns the iterations of a loop at the midpoint of its enclosing loops; their mean if there
    /// are none at the midpoint, or if the loop has a bound where several loops are in parts: a
    /// triangle whose rows are cut into blocks.
    pub(super) fn count(&self, extent: &Expr) -> f64 {
        if let Some(count) = self.count_by_data(extent) {
            return count;
        }
        let count = self.middle(extent).max(0.0);
        let mut unknown: FxHashSet<Var> = FxHashSet::default();
        mentioned(extent, &mut |var| {
            if !self.places.contains_key(var) {
                unknown.insert(var.clone());
            }
        });
        match unknown.len() {
            0 if count > 0.0 && !self.in_launch && is_bounded(extent) => {
                self.sampled(extent, |value| value.map_or(count, |value| value.max(0.0)))
            }
            _ if count > 0.0 => count,
            0 | 1 => self.mean_count(extent),
            // A difference of two run-time integers.
            _ => ASSUMED_VALUE,
        }
    }

    /// Returns the iterations of a loop whose bounds are loaded: of one with one such bound, half
    /// of its range, as if the bound was anywhere in it; of one with two, its part of the range, as
    /// if the enclosing iterations shared it, as the rows of a sparse matrix do. A loop for several
    /// rows with one bound is as long as the longest, one with two as all together.
    ///
    /// Before: `max(L[i], L[i + 1])` with bounds 0 and 60. After: 40.
    fn count_by_data(&self, extent: &Expr) -> Option<f64> {
        let (begin, end) = match &extent.kind {
            ExprKind::Binary(BinOp::Sub, end, begin) => (self.definition(begin), end),
            _ => (Expr::index(0), extent),
        };
        let end = self.definition(end);
        let (from, to) = (loads_of(&begin), loads_of(&end));
        if from.is_empty() && to.is_empty() {
            return None;
        }
        let middle = |var: &Var| {
            let open = &self.enclosing[*self.places.get(var)?];
            Some(open.min + (open.count / 2.0).floor())
        };
        let last = self.evaluate_with(&end, &middle, Some(FAR), 0)?;
        let range = (last - self.evaluate_with(&begin, &middle, Some(-FAR), 0)?).max(0.0);
        let rows = from.len().max(to.len()) as f64;
        if from.is_empty() || to.is_empty() {
            return Some(range * rows / (rows + 1.0));
        }
        let mut sharing: FxHashSet<usize> = FxHashSet::default();
        for load in &from {
            mentioned(load, &mut |var| sharing.extend(self.places.get(var)));
        }
        let shares: f64 =
            sharing.iter().map(|place| self.enclosing[*place].count.max(1.0)).product();
        let part =
            (range / (shares * rows)).clamp(MIN_PART.min(range), ASSUMED_VALUE.max(MIN_PART));
        Some((part * rows).min(range))
    }

    /// Returns the definition of a `let` variable; another expression as it is.
    fn definition(&self, expr: &Expr) -> Expr {
        match expr.as_var().and_then(|var| self.defined.get(var)) {
            Some(defined) if reads_memory(defined) => defined.clone(),
            _ => expr.clone(),
        }
    }

    pub(super) fn middle(&self, expr: &Expr) -> f64 {
        match expr.as_int() {
            Some(value) => value as f64,
            None => {
                let value = |var: &Var| {
                    let open = &self.enclosing[*self.places.get(var)?];
                    Some(open.min + (open.count / 2.0).floor())
                };
                self.evaluate(&self.middles_of_parts(expr), &value).unwrap_or(ASSUMED_VALUE)
            }
        }
    }

    /// Replaces `v % c` and `v // d % c` by `c // 2` if `v` is a loop of several periods: its
    /// midpoint is mostly the beginning of one of them.
    fn middles_of_parts(&self, expr: &Expr) -> Expr {
        let is_part = |e: &Expr| match &e.kind {
            ExprKind::Binary(BinOp::FloorMod, a, b) => {
                let (var, part) = match &a.kind {
                    ExprKind::Binary(BinOp::FloorDiv, var, part) => (var, part.as_int()?),
                    _ => (a, 1),
                };
                let open = var.as_var().and_then(|var| self.places.get(var));
                let period = b.as_int().filter(|period| *period > 0)?;
                let count = period as f64 * part as f64;
                open.filter(|place| self.enclosing[**place].count > count)?;
                i64::try_from(period).ok()
            }
            _ => None,
        };
        if !any_expr(expr, &mut |e| is_part(e).is_some()) {
            return expr.clone();
        }
        rewrite_expr(expr, &mut |e| is_part(&e).map_or(e, |period| Expr::index(period / 2)))
    }

    /// Returns the fraction of cases in which a condition holds.
    pub(super) fn chance(&self, cond: &Expr) -> f64 {
        if let Some(value) = cond.as_int() {
            return if value == 0 { 0.0 } else { 1.0 };
        }
        self.sampled(cond, |value| value.map_or(0.5, |value| f64::from(u8::from(value != 0.0))))
    }

    /// Returns the mean of a property of an expression's value over iterations of the enclosing
    /// loops. The value is unknown if it reads memory.
    fn sampled(&self, expr: &Expr, property: impl Fn(Option<f64>) -> f64) -> f64 {
        // Multiples of the golden ratio are evenly distributed.
        const SAMPLES: usize = 64;
        let one = self.only_loop(expr).filter(|open| open.count <= 1024.0);
        let samples = one.map_or(SAMPLES, |open| open.count.max(1.0) as usize);
        let mut sum = 0.0;
        for sample in 0..samples {
            let value = |var: &Var| {
                let place = *self.places.get(var)?;
                let open = &self.enclosing[place];
                let part = match one {
                    Some(_) => (sample as f64 + 0.5) / samples as f64,
                    None => {
                        let step = 0.618_033_988_749_894_9 / (1.0 + 0.324_717_957 * place as f64);
                        ((sample as f64 + 0.5) * step).fract()
                    }
                };
                Some(open.min + (open.count * part).floor())
            };
            sum += property(self.evaluate(expr, &value));
        }
        sum / samples as f64
    }

    /// Returns the loop that an expression depends on, if it is a single one.
    fn only_loop(&self, expr: &Expr) -> Option<&EnclosingLoop> {
        let mut found = None;
        let mut single = true;
        mentioned(expr, &mut |var| match (self.places.get(var), found) {
            (Some(place), None) => found = Some(*place),
            (Some(place), Some(known)) => single &= *place == known,
            (None, _) => single = false,
        });
        found.filter(|_| single).map(|place| &self.enclosing[place])
    }

    /// Evaluates an integer expression for values of the loop variables; none if it reads memory.
    pub(super) fn evaluate(&self, expr: &Expr, value: &dyn Fn(&Var) -> Option<f64>) -> Option<f64> {
        self.evaluate_with(expr, value, None, 0)
    }

    /// The same with a value for every load; `depth` counts the definitions around the expression.
    fn evaluate_with(
        &self,
        expr: &Expr,
        value: &dyn Fn(&Var) -> Option<f64>,
        load: Option<f64>,
        depth: usize,
    ) -> Option<f64> {
        if let Some(value) = expr.as_int() {
            return Some(value as f64);
        }
        let of = |e: &Expr| self.evaluate_with(e, value, load, depth);
        let truth = |holds: bool| f64::from(u8::from(holds));
        Some(match &expr.kind {
            ExprKind::Var(var) => match (value(var), self.defined.get(var)) {
                (Some(value), _) => value,
                (None, Some(defined)) if depth < 8 => {
                    self.evaluate_with(defined, value, load, depth + 1)?
                }
                _ => ASSUMED_VALUE,
            },
            ExprKind::Load { .. } => load?,
            ExprKind::Unary(UnOp::Not, a) => truth(of(a)? == 0.0),
            ExprKind::Unary(UnOp::Neg, a) => -of(a)?,
            ExprKind::Unary(UnOp::Likely, a) | ExprKind::Cast(a) | ExprKind::Broadcast(a) => of(a)?,
            ExprKind::Ramp(base, _) => of(base)?,
            // The last rows of a tile have no bounds.
            ExprKind::IfThenElse(_, bound, _) if load.is_some() && reads_memory(bound) => {
                of(bound)?
            }
            ExprKind::Select(c, a, b) | ExprKind::IfThenElse(c, a, b) => {
                if of(c)? != 0.0 {
                    of(a)?
                } else {
                    of(b)?
                }
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                match op {
                    BinOp::Add => a + b,
                    BinOp::Sub => a - b,
                    BinOp::Mul => a * b,
                    BinOp::FloorDiv => {
                        if b == 0.0 {
                            0.0
                        } else {
                            (a / b).floor()
                        }
                    }
                    BinOp::FloorMod => {
                        if b == 0.0 {
                            0.0
                        } else {
                            a - (a / b).floor() * b
                        }
                    }
                    BinOp::Min => a.min(b),
                    BinOp::Max => a.max(b),
                    BinOp::Eq => truth(a == b),
                    BinOp::Ne => truth(a != b),
                    BinOp::Lt => truth(a < b),
                    BinOp::Le => truth(a <= b),
                    BinOp::Gt => truth(a > b),
                    BinOp::Ge => truth(a >= b),
                    BinOp::And => truth(a != 0.0 && b != 0.0),
                    BinOp::Or => truth(a != 0.0 || b != 0.0),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }
}

/// Returns the loads of an expression that are not indices of others.
fn loads_of(expr: &Expr) -> Vec<Expr> {
    fn visit(expr: &Expr, seen: &mut NodeSet, loads: &mut Vec<Expr>) {
        if !seen.insert(expr) {
            return;
        }
        match &expr.kind {
            ExprKind::Load { .. } => loads.push(expr.clone()),
            _ => for_each_child(expr, &mut |child| visit(child, seen, loads)),
        }
    }
    let mut loads = Vec::new();
    visit(expr, &mut NodeSet::default(), &mut loads);
    loads
}

//! The iterations of loops that run only near the ends of the loops around them, such as the rest
//! that `partition_loops` leaves of a loop.

use super::nest::mentioned;
use super::walk::Walker;
use crate::ir::{Expr, Var};

/// Points of the enclosing loops at which an extent is evaluated.
const POINTS: usize = 64;

impl Walker<'_> {
    /// Returns the mean number of iterations of a loop over the iterations of its enclosing loops.
    ///
    /// Before: `min(8, 31 - i*8)` in a loop `i` of 5 iterations. After: 6.2.
    pub(super) fn mean_count(&self, extent: &Expr) -> f64 {
        let mut vars: Vec<Var> = Vec::new();
        mentioned(extent, &mut |var| {
            if self.places.contains_key(var) && !vars.contains(var) {
                vars.push(var.clone());
            }
        });
        let each = match vars.len() {
            0 => return 0.0,
            1 => POINTS,
            2 => POINTS.isqrt(),
            3 => POINTS.isqrt().isqrt() + 1,
            _ => 2,
        };
        // Each variable has points with weights; the last iteration is one of them.
        let mut axes: Vec<Vec<(f64, f64)>> = Vec::new();
        for var in &vars {
            let Some(place) = self.places.get(var) else { return 0.0 };
            let (min, count) = (self.enclosing[*place].min, self.enclosing[*place].count.max(1.0));
            let points = (count.ceil() as usize).min(each);
            let weight = (1.0 - 1.0 / count) / (points.max(2) - 1) as f64;
            let step = (count - 1.0) / (points.max(2) - 1) as f64;
            let inner = (0..points - 1).map(|at| (min + (step * at as f64).floor(), weight));
            axes.push(inner.chain([(min + count.ceil() - 1.0, 1.0 / count)]).collect());
        }
        let all = axes.iter().map(Vec::len).product();
        let mut mean = 0.0;
        for number in 0..all {
            let (mut rest, mut weight, mut at) = (number, 1.0, Vec::new());
            for axis in &axes {
                let (value, part) = axis[rest % axis.len()];
                rest /= axis.len();
                weight *= part;
                at.push(value);
            }
            let value = |var: &Var| vars.iter().position(|other| other == var).map(|of| at[of]);
            mean += weight * self.evaluate(extent, &value).unwrap_or(0.0).max(0.0);
        }
        mean
    }
}

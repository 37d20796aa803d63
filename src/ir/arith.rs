//! What is known about integers: intervals, modulus facts, proofs.

use super::{Expr, Var};

/// Facts in force at a point of the program.
#[derive(Clone, Debug, Default)]
pub struct Facts {}

impl Facts {
    /// No facts.
    pub fn new() -> Facts {
        Facts::default()
    }

    /// `min <= var < min + extent`.
    pub fn bind(&mut self, var: &Var, min: &Expr, extent: &Expr) {
        let _ = (var, min, extent);
    }

    /// `cond` holds.
    pub fn assume(&mut self, cond: &Expr) {
        let _ = cond;
    }

    /// True if `cond` certainly holds.
    pub fn prove(&self, cond: &Expr) -> bool {
        let _ = cond;
        false
    }

    /// Constant bounds, both inclusive, of an integer expression; `None` where unbounded.
    pub fn const_bounds(&self, expr: &Expr) -> (Option<i128>, Option<i128>) {
        let _ = expr;
        (None, None)
    }

    /// Smallest and largest value of an `index` expression while the variables of `over` run
    /// through their ranges, as expressions of the other variables; exact or `None`.
    pub fn bounds(&self, expr: &Expr, over: &[Var]) -> Option<(Expr, Expr)> {
        let _ = (expr, over);
        None
    }
}

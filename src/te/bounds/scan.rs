//! Builds entry checks: an `Assert` inside the loops and conditions that it depends on.

use super::walker::{EntryCheck, Walker};
use crate::ir::visit::substitute;
use crate::ir::{Expr, Stmt, Var};
use rustc_hash::FxHashMap;

impl Walker<'_> {
    /// Adds a check without axes. It runs if no enclosing axis is empty.
    pub(super) fn add_check(&mut self, check: EntryCheck) {
        self.add_scan(check, &[], &[]);
    }

    /// Adds a check for every point of these axes (indices of the enclosing axes) where these
    /// conditions hold. It runs if no other axis is empty.
    pub(super) fn add_scan(&mut self, check: EntryCheck, axes: &[usize], guards: &[(Expr, bool)]) {
        let state = if guards.is_empty() { None } else { Some(self.state) };
        let key = self.checker.facts.key(&check.cond);
        if !self.checker.made.insert((key, check.message.clone(), state, self.axes.len())) {
            return;
        }
        let mut fresh: FxHashMap<Var, Var> = FxHashMap::default();
        for &at in axes {
            let var = &self.axes[at].var;
            fresh.insert(var.clone(), Var::index(var.name()));
        }
        let rename = |expr: &Expr| substitute(expr, &mut |var| fresh.get(var).map(Expr::var));
        let mut stmt = Stmt::Assert {
            cond: rename(&check.cond),
            message: check.message,
            values: check.values.iter().map(rename).collect(),
        };
        for (cond, truth) in guards.iter().rev() {
            let cond = if *truth { cond.clone() } else { Expr::not(cond.clone()) };
            stmt = Stmt::If { cond: rename(&cond), then: Box::new(stmt), otherwise: None };
        }
        for (at, axis) in self.axes.iter().enumerate().rev() {
            if axes.contains(&at) {
                let var = fresh[&axis.var].clone();
                let (min, extent) = (rename(&axis.min), rename(&axis.extent));
                let kind = crate::ir::ForKind::Serial;
                stmt = Stmt::For { var, min, extent, kind, body: Box::new(stmt) };
            } else if axis.extent.as_int().is_none() {
                let cond = Expr::lt(Expr::index(0), axis.extent.clone());
                stmt = Stmt::If { cond, then: Box::new(stmt), otherwise: None };
            }
        }
        self.checker.checks.push(stmt);
    }
}

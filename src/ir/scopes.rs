//! Rewrites of statements under the facts that hold at each statement.

use super::Stmt;
use super::arith::Facts;
use super::visit::map_stmts;

/// A rewrite of statements under the facts of their scopes.
pub trait ScopedRewrite {
    /// Returns the facts that hold at the current statement.
    fn facts(&mut self) -> &mut Facts;

    /// Rewrites a statement.
    fn stmt(&mut self, stmt: Stmt) -> Stmt;

    /// Rewrites the direct children of a statement, each with the facts of its scope: the range of
    /// a loop, the condition of the first branch of an `if`, the value of a `let`.
    fn children(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::For { var, min, extent, kind, body } => {
                self.facts().push();
                self.facts().bind(&var, &min, &extent);
                let body = Box::new(self.stmt(*body));
                self.facts().pop();
                Stmt::For { var, min, extent, kind, body }
            }
            Stmt::If { cond, then, otherwise } => {
                self.facts().push();
                self.facts().assume(&cond);
                let then = Box::new(self.stmt(*then));
                self.facts().pop();
                let otherwise = otherwise.map(|stmt| Box::new(self.stmt(*stmt)));
                Stmt::If { cond, then, otherwise }
            }
            Stmt::Let { var, value, body } => {
                self.facts().push();
                self.facts().define(&var, &value);
                let body = Box::new(self.stmt(*body));
                self.facts().pop();
                Stmt::Let { var, value, body }
            }
            other => map_stmts(other, &mut |inner| self.stmt(inner)),
        }
    }
}

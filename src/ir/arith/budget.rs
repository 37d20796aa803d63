//! The budget of all proofs of a pass. A proof that fails tries many combinations, and a pass asks
//! for many proofs, so each alone can be bounded while all together take minutes.
//!
//! Passes use proofs only to simplify: without one, the code is correct and slower.

use std::cell::Cell;

thread_local! {
    /// What is left, in terms of polynomials; without a limit outside of [`within`].
    static LEFT: Cell<i64> = const { Cell::new(i64::MAX) };
    /// What was taken so far, on this thread.
    static SPENT: Cell<i64> = const { Cell::new(0) };
}

/// Runs `f`, whose proofs may look at `terms` terms of polynomials; when they have, each is tried
/// briefly. The result of `f` depends on its input alone, not on time.
pub fn within<T>(terms: i64, f: impl FnOnce() -> T) -> T {
    /// Restores what was left around the pass, also if the pass panics: the next one runs.
    struct Around(i64);
    impl Drop for Around {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _around = Around(LEFT.replace(terms));
    f()
}

/// Takes from the budget.
pub(super) fn spend(terms: i64) {
    LEFT.set(LEFT.get().saturating_sub(terms));
    SPENT.set(SPENT.get().saturating_add(terms));
}

/// Returns what was taken so far by this thread, in terms: a measure of time that is the same on
/// every machine.
pub fn spent() -> i64 {
    SPENT.get()
}

/// Whether nothing is left.
pub(super) fn is_spent() -> bool {
    LEFT.get() <= 0
}

#[cfg(test)]
mod tests {
    use super::super::Facts;
    use super::*;
    use crate::ir::{DType, Expr, Var};

    #[test]
    fn a_spent_budget_leaves_brief_proofs_and_ends_with_the_pass() {
        let var = |name| Expr::var(&Var::new(name, DType::Index));
        let (x, y) = (var("x"), var("y"));
        let mut facts = Facts::new();
        facts.assume(&Expr::le(Expr::index(0), x.clone()));
        facts.assume(&Expr::or(
            Expr::le(x.clone(), y.clone()),
            Expr::le(Expr::add(x.clone(), Expr::index(5)), y.clone()),
        ));
        // By one step; by the two cases of the disjunction.
        let brief = Expr::le(Expr::index(-1), x.clone());
        let by_cases = Expr::le(x, y);
        within(0, || {
            assert!(facts.prove(&brief));
            assert!(!facts.prove(&by_cases));
        });
        let panicked = std::panic::catch_unwind(|| within(0, || panic!("a bug in a pass")));
        assert!(panicked.is_err());
        facts.assume(&Expr::le(Expr::index(-2), var("z")));
        assert!(facts.prove(&by_cases));
    }
}

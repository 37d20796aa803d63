//! Merge versions: one kernel from the versions of its schedule.
//!
//! Before: a kernel for calls with `n <= 16`, and one for all others.
//! After:  `if n <= 16 { … } else { … }`
//! Needs: kernels of one graph; they share parameters and no variable or buffer of their bodies.

use crate::ir::equal::equal;
use crate::ir::{Expr, Kernel, Stmt};

/// Merges the versions of a kernel, each with its condition, and the one for all other calls. The
/// first version whose condition holds is used.
pub fn merge_versions(versions: Vec<(Expr, Kernel)>, other: Kernel) -> Kernel {
    versions.into_iter().rev().fold(other, |other, (cond, version)| {
        let mut facts = other.facts;
        facts.retain(|fact| version.facts.iter().any(|of| equal(fact, of)));
        let (then, otherwise) = (Box::new(version.body), Some(Box::new(other.body)));
        let body = Stmt::If { cond, then, otherwise };
        let reassociated = other.reassociated || version.reassociated;
        Kernel { body, facts, reassociated, ..other }
    })
}

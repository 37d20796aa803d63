//! The annotations of `scan` and `scatter`, of which a stage can have only one kind.

use crate::ir::Expr;

/// The annotation of a stage that is computed by a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The data axis, by its index among the declared ones.
    pub axis: usize,
    /// The reduction axis whose loop the scan replaces, by its index among the declared ones.
    pub term: usize,
    /// The value of the reduction axis in the terms that an element adds to those of its
    /// predecessor, over the declared data axes.
    pub value: Expr,
    /// Whether elements are computed from the last to the first.
    pub reverse: bool,
}

/// The annotation of a stage whose terms are scattered along a data axis.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The data axis, by its index among the declared ones.
    pub axis: usize,
}

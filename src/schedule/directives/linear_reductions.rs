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
    /// The place of the condition that gives the value of the axis, among those whose conjunction
    /// is the `where=`. The ones before it do not depend on the axis.
    pub place: usize,
    /// The value of the axis for a term, over the other declared axes that are not scattered. It
    /// can be evaluated if the conditions before its own hold.
    pub value: Expr,
}

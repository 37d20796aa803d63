//! The accesses of a stage to other tensors, as far as fusion depends on them.

use crate::ir::visit::{NodeSet, for_each_load};
use crate::ir::{BinOp, Buffer, Expr, ExprKind, Var};
use crate::te::{Axis, Stage};

/// How a stage reads a tensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Each element from the same position: `A[i, j]` in `B[i, j]`.
    Elementwise,
    /// The indices are different axes of the stage, or constants: rows, broadcasts, transpositions.
    Projection,
    /// Anything else: windows, reshapes, gathers.
    General,
}

/// Calls `f` for each load of a stage's body.
pub fn for_each_read(stage: &Stage, f: &mut dyn FnMut(&Buffer, &[Expr])) {
    let mut seen = NodeSet::default();
    stage.body.for_each_expr(&mut |expr| {
        for_each_load(expr, &mut seen, &mut |buffer, indices, _| f(buffer, indices));
    });
}

/// Returns the tensors that a stage reads, in order of occurrence, with the most general access to
/// each.
pub fn reads(stage: &Stage) -> Vec<(Buffer, Access)> {
    let mut found: Vec<(Buffer, Access)> = Vec::new();
    for_each_read(stage, &mut |buffer, indices| {
        let access = access_of(stage, indices);
        match found.iter_mut().find(|(known, _)| known == buffer) {
            Some((_, known)) => *known = access.max(*known),
            None => found.push((buffer.clone(), access)),
        }
    });
    found
}

fn access_of(stage: &Stage, indices: &[Expr]) -> Access {
    // An axis of extent 1 has one position.
    let is = |axis: &Axis, index: &Expr| {
        index.as_var() == Some(&axis.var)
            || (axis.extent.as_int() == Some(1) && index.as_int() == Some(0))
    };
    if stage.reduce_axes().is_empty()
        && indices.len() == stage.axes.len()
        && stage.axes.iter().zip(indices).all(|(axis, index)| is(axis, index))
    {
        return Access::Elementwise;
    }
    let mut used: Vec<&Var> = Vec::new();
    for index in indices {
        match index.as_var() {
            Some(var) if !used.contains(&var) => used.push(var),
            None if index.as_int().is_some() => {}
            _ => return Access::General,
        }
    }
    Access::Projection
}

/// Whether a reduction combines tensors of which each lacks an axis that the other has, as matrix
/// products and convolutions do: it reuses every element that it reads.
pub fn is_contraction(stage: &Stage) -> bool {
    let axes: Vec<&Var> = stage.axes.iter().map(|axis| &axis.var).collect();
    let mut used: Vec<(Buffer, Vec<bool>)> = Vec::new();
    for_each_read(stage, &mut |buffer, indices| {
        let uses = |axis: &&Var| indices.iter().any(|index| mentions(index, axis));
        used.push((buffer.clone(), axes.iter().map(uses).collect()));
    });
    let lacks = |a: &[bool], b: &[bool]| a.iter().zip(b).any(|(a, b)| !a && *b);
    let reused = |(a, x): &(Buffer, Vec<bool>), (b, y): &(Buffer, Vec<bool>)| {
        a != b && lacks(x, y) && lacks(y, x)
    };
    !stage.reduce_axes().is_empty()
        && used.iter().enumerate().any(|(k, a)| used[k + 1..].iter().any(|b| reused(a, b)))
}

fn mentions(expr: &Expr, var: &Var) -> bool {
    crate::ir::visit::any_expr(expr, &mut |node| node.as_var() == Some(var))
}

/// Whether a stage reads a tensor at a stride along its last axis, such as `A[i, 2*j]`.
pub fn is_strided(stage: &Stage) -> bool {
    let Some(last) = stage.axes.last() else { return false };
    let mut found = false;
    for_each_read(stage, &mut |_, indices| {
        let Some(index) = indices.last() else { return };
        found |= crate::ir::visit::any_expr(index, &mut |node| match &node.kind {
            ExprKind::Binary(BinOp::Mul, a, b) => {
                let scales = |x: &Expr, y: &Expr| {
                    x.as_var() == Some(&last.var) && y.as_int().is_some_and(|factor| factor > 1)
                };
                scales(a, b) || scales(b, a)
            }
            _ => false,
        });
    });
    found
}

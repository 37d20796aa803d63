//! `argmax` and `argmin` in any order of the terms.
//!
//! Before: `argmax((k, A[k]), axis=k)`, of equal values the first: `(ai, av)` with `(bi, bv)` is
//! the latter if `bv > av`. After: of equal values the one with the lesser position, `bv > av or
//! (bv == av and bi < ai)`. Terms in the order of the source have increasing positions, so both
//! give the same, and the second form does not depend on the order. A NaN is never greater, and
//! equals nothing; 0.0 and -0.0 are equal, and the first of them is taken with its sign.

use super::elaborate::arg_combiner;
use super::{Combiner, Reduction};
use crate::ir::equal::equal;
use crate::ir::{BinOp, DType, Expr, ExprKind};

impl Reduction {
    /// Returns the combiner of the same reduction for any order of its terms, with the same bits;
    /// `None` if there is none.
    pub fn combiner_in_any_order(&self) -> Option<Combiner> {
        let combiner = &self.combiner;
        let of_max = match combiner.name.as_str() {
            "argmax" => true,
            "argmin" => false,
            _ => return None,
        };
        // A start value has a position of its own.
        let starts = self.identity.iter().zip(&combiner.identity);
        if combiner.commutative || !starts.into_iter().all(|(own, none)| equal(own, none)) {
            return None;
        }
        let [axis] = &self.axes[..] else { return None };
        let position = match &self.terms[0].kind {
            ExprKind::Cast(inner) => inner,
            _ => &self.terms[0],
        };
        if position.as_var() != Some(&axis.var) {
            return None;
        }
        let last = match self.terms[0].ty.dtype {
            DType::Int32 => i128::from(i32::MAX),
            DType::Int64 | DType::Index => i128::from(i64::MAX),
            _ => return None,
        };
        let unwrapped = axis.min.as_int() == Some(0)
            && (last > i128::from(i32::MAX) || axis.extent.as_int().is_some_and(|n| n <= last));
        unwrapped.then(|| smaller_position(combiner, of_max))
    }

    /// Returns the same reduction with positions of 32 bits, which take half of the registers;
    /// `None` if they are not 64-bit positions, or might not fit.
    pub fn with_short_positions(&self) -> Option<Reduction> {
        self.combiner_in_any_order()?;
        let position = self.terms[0].ty.dtype;
        let fits = self.axes[0].extent.as_int().is_some_and(|n| n <= i128::from(i32::MAX));
        if position.bits() != 64 || !fits {
            return None;
        }
        let value = self.combiner.lhs[1].ty().dtype;
        let of_max = self.combiner.name == "argmax";
        let mut short = self.clone();
        short.combiner = arg_combiner(of_max, &self.combiner.name, &[DType::Int32, value]);
        short.identity[0] = short.combiner.identity[0].clone();
        short.terms[0] = Expr::cast(DType::Int32, Expr::var(&self.axes[0].var));
        Some(short)
    }
}

/// Returns the combiner that takes the lesser position of equal values; no position is negative but
/// that of the identity.
fn smaller_position(combiner: &Combiner, of_max: bool) -> Combiner {
    let (lhs, rhs) = (&combiner.lhs, &combiner.rhs);
    let [ai, av, bi, bv] = [&lhs[0], &lhs[1], &rhs[0], &rhs[1]].map(Expr::var);
    let op = if of_max { BinOp::Gt } else { BinOp::Lt };
    let zero = Expr::int(lhs[0].ty().dtype, 0);
    let better = Expr::binary(op, bv.clone(), av.clone());
    let earlier = Expr::binary(BinOp::Lt, bi.clone(), ai.clone());
    let none = Expr::binary(BinOp::Lt, ai.clone(), zero.clone());
    let one = Expr::binary(BinOp::Ge, bi.clone(), zero);
    let first =
        Expr::and(Expr::eq(bv.clone(), av.clone()), Expr::and(one, Expr::or(none, earlier)));
    let takes = Expr::or(better, first);
    Combiner {
        result: vec![Expr::select(takes.clone(), bi, ai), Expr::select(takes, bv, av)],
        commutative: true,
        ..combiner.clone()
    }
}

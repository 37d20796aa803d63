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

/// Why `argmax` or another reducer needs the order of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderMatters {
    /// The operands of the reducer cannot be exchanged.
    Reducer,
    /// A start value, by `init=`, has a position of its own.
    Start,
    /// The position is not the value of the only reduction axis, which begins at 0.
    Position,
    /// The positions might wrap around in this type.
    Width(DType),
}

impl Reduction {
    /// Returns the combiner of the same reduction for any order of its terms, with the same bits;
    /// `None` if there is none, or if its own is commutative.
    pub fn combiner_in_any_order(&self) -> Option<Combiner> {
        if self.combiner.commutative {
            return None;
        }
        self.order_matters().is_none().then(|| {
            let of_max = self.combiner.name == "argmax";
            smaller_position(&self.combiner, of_max)
        })
    }

    /// Returns why the terms must keep their order; `None` if there is a combiner for any order.
    pub fn order_matters(&self) -> Option<OrderMatters> {
        let combiner = &self.combiner;
        if combiner.commutative {
            return None;
        }
        if !["argmax", "argmin"].contains(&combiner.name.as_str()) {
            return Some(OrderMatters::Reducer);
        }
        let mut starts = self.identity.iter().zip(&combiner.identity);
        if !starts.all(|(own, none)| equal(own, none)) {
            return Some(OrderMatters::Start);
        }
        let [axis] = &self.axes[..] else { return Some(OrderMatters::Position) };
        let position = match &self.terms[0].kind {
            ExprKind::Cast(inner) => inner,
            _ => &self.terms[0],
        };
        if position.as_var() != Some(&axis.var) || axis.min.as_int() != Some(0) {
            return Some(OrderMatters::Position);
        }
        let dtype = self.terms[0].ty.dtype;
        let (_, last) = dtype.int_range();
        // The position of the start value is -1, which an unsigned type has as its last number.
        let count = if dtype.is_signed() { last + 1 } else { last };
        let fits = count > i128::from(i64::MAX)
            || axis.extent.as_int().is_some_and(|extent| extent <= count);
        (!fits).then_some(OrderMatters::Width(dtype))
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

/// Returns the combiner that takes the lesser position of equal values. The position of the
/// identity is -1, which is greater than all others if the type has no sign.
fn smaller_position(combiner: &Combiner, of_max: bool) -> Combiner {
    let (lhs, rhs) = (&combiner.lhs, &combiner.rhs);
    let [ai, av, bi, bv] = [&lhs[0], &lhs[1], &rhs[0], &rhs[1]].map(Expr::var);
    let op = if of_max { BinOp::Gt } else { BinOp::Lt };
    let better = Expr::binary(op, bv.clone(), av.clone());
    let mut earlier = Expr::binary(BinOp::Lt, bi.clone(), ai.clone());
    if lhs[0].ty().dtype.is_signed() {
        let zero = Expr::int(lhs[0].ty().dtype, 0);
        let none = Expr::binary(BinOp::Lt, ai.clone(), zero.clone());
        let one = Expr::binary(BinOp::Ge, bi.clone(), zero);
        earlier = Expr::and(one, Expr::or(none, earlier));
    }
    let first = Expr::and(Expr::eq(bv.clone(), av.clone()), earlier);
    let takes = Expr::or(better, first);
    Combiner {
        result: vec![Expr::select(takes.clone(), bi, ai), Expr::select(takes, bv, av)],
        commutative: true,
        ..combiner.clone()
    }
}

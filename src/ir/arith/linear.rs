//! A sum of `index` terms, flattened: `((i + 1)*14 + j) - i` becomes `13·i + 14 + 1·j`.
//!
//! One pass over the tree however deep it is, and over each shared node once: coefficients are
//! handed down from parents to children in topological order.

use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp};
use rustc_hash::FxHashMap;

/// Terms in the order of their first occurrence, none with coefficient 0, none a sum itself; the
/// same node once, but equal nodes at different places are different terms.
pub(crate) struct Linear {
    pub(crate) terms: Vec<(Expr, i128)>,
    pub(crate) constant: i128,
}

/// Flattens sums, differences and products with a literal; `None` if a coefficient leaves 128 bits.
pub(crate) fn collect(expr: &Expr) -> Option<Linear> {
    if let Some(value) = expr.as_int() {
        return Some(Linear { terms: Vec::new(), constant: value });
    }
    if operands(expr).is_none() {
        return Some(Linear { terms: vec![(expr.clone(), 1)], constant: 0 });
    }
    let mut sums = Sums { slots: FxHashMap::default(), order: Vec::new(), leaves: Vec::new() };
    sums.visit(expr);
    let Sums { slots, order, leaves } = sums;
    let mut coefficients = vec![0i128; slots.len()];
    coefficients[slots[&expr.id()]] = 1;
    let mut constant = 0i128;
    for node in order.iter().rev() {
        let coefficient = coefficients[slots[&node.id()]];
        for (child, factor) in operands(node).into_iter().flatten().flatten() {
            let share = coefficient.checked_mul(factor)?;
            match child.as_int() {
                Some(value) => constant = constant.checked_add(share.checked_mul(value)?)?,
                None => {
                    let slot = &mut coefficients[slots[&child.id()]];
                    *slot = slot.checked_add(share)?;
                }
            }
        }
    }
    let terms = leaves.into_iter().map(|leaf| {
        let coefficient = coefficients[slots[&leaf.id()]];
        (leaf, coefficient)
    });
    Some(Linear { terms: terms.filter(|term| term.1 != 0).collect(), constant })
}

struct Sums {
    /// Number of each node met, by [`Expr::id`].
    slots: FxHashMap<usize, usize>,
    /// Sums, children before parents.
    order: Vec<Expr>,
    /// The other nodes, in the order of their first occurrence.
    leaves: Vec<Expr>,
}

impl Sums {
    fn visit(&mut self, expr: &Expr) {
        if expr.as_int().is_some() || self.slots.contains_key(&expr.id()) {
            return;
        }
        self.slots.insert(expr.id(), self.slots.len());
        match operands(expr) {
            None => self.leaves.push(expr.clone()),
            Some(children) => {
                children.into_iter().flatten().for_each(|(child, _)| self.visit(child));
                self.order.push(expr.clone());
            }
        }
    }
}

/// The summands of a linear node with their factors; `None` for every other node.
fn operands(expr: &Expr) -> Option<[Option<(&Expr, i128)>; 2]> {
    if expr.ty != DType::Index.into() {
        return None;
    }
    match &expr.kind {
        ExprKind::Binary(BinOp::Add, a, b) => Some([Some((a, 1)), Some((b, 1))]),
        ExprKind::Binary(BinOp::Sub, a, b) => Some([Some((a, 1)), Some((b, -1))]),
        ExprKind::Binary(BinOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
            (_, Some(factor)) => Some([Some((a, factor)), None]),
            (Some(factor), None) => Some([Some((b, factor)), None]),
            _ => None,
        },
        ExprKind::Unary(UnOp::Neg, a) => Some([Some((a, -1)), None]),
        _ => None,
    }
}

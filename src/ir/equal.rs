//! Structural equality, hashing and sharing of expressions.

use super::visit::{Memo, for_each_child, replace_nodes};
use super::{Const, Expr, ExprKind};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

/// Whether two expressions have the same structure: the same operations, variables and buffers (by
/// identity), and constants (floats by their bits).
pub fn equal(a: &Expr, b: &Expr) -> bool {
    Comparison::default().equal(a, b)
}

/// The pairs that [`equal`] compares before it remembers any: most expressions are small.
const UNTRACKED_PAIRS: u32 = 64;

/// A comparison of two expressions, which takes linear time if they share nodes.
#[derive(Default)]
struct Comparison {
    pairs: u32,
    /// Pairs of nodes that are equal.
    known: FxHashSet<(usize, usize)>,
}

impl Comparison {
    fn equal(&mut self, a: &Expr, b: &Expr) -> bool {
        if a.same(b) {
            return true;
        }
        if a.ty != b.ty {
            return false;
        }
        self.pairs = self.pairs.saturating_add(1);
        let tracked = self.pairs > UNTRACKED_PAIRS;
        if tracked && self.known.contains(&(a.id(), b.id())) {
            return true;
        }
        let equal = self.equal_kinds(a, b);
        if tracked && equal {
            self.known.insert((a.id(), b.id()));
        }
        equal
    }

    fn equal_kinds(&mut self, a: &Expr, b: &Expr) -> bool {
        use ExprKind::*;
        match (&a.kind, &b.kind) {
            (Const(x), Const(y)) => equal_consts(*x, *y),
            (Var(x), Var(y)) => x == y,
            (Unary(op, x), Unary(other, y)) => op == other && self.equal(x, y),
            (Cast(x), Cast(y)) | (Bitcast(x), Bitcast(y)) | (Broadcast(x), Broadcast(y)) => {
                self.equal(x, y)
            }
            (Binary(op, x, y), Binary(other, z, w)) => {
                op == other && self.equal(x, z) && self.equal(y, w)
            }
            (Ramp(x, y), Ramp(z, w)) => self.equal(x, z) && self.equal(y, w),
            (Let(v, x, y), Let(w, z, u)) => v == w && self.equal(x, z) && self.equal(y, u),
            (Select(x, y, z), Select(u, v, w)) | (IfThenElse(x, y, z), IfThenElse(u, v, w)) => {
                self.equal(x, u) && self.equal(y, v) && self.equal(z, w)
            }
            (
                Load { buffer, indices, mask },
                Load { buffer: other, indices: other_indices, mask: other_mask },
            ) => {
                buffer == other
                    && self.equal_all(indices, other_indices)
                    && match (mask, other_mask) {
                        (None, None) => true,
                        (Some(x), Some(y)) => self.equal(x, y),
                        _ => false,
                    }
            }
            (Call(f, x), Call(g, y)) => f == g && self.equal_all(x, y),
            _ => false,
        }
    }

    fn equal_all(&mut self, a: &[Expr], b: &[Expr]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(x, y)| self.equal(x, y))
    }
}

fn equal_consts(a: Const, b: Const) -> bool {
    match (a, b) {
        (Const::Int(x), Const::Int(y)) => x == y,
        (Const::Float(x), Const::Float(y)) => x.to_bits() == y.to_bits(),
        _ => false,
    }
}

/// Makes equal nodes of some expressions one node, so that what visits each node once computes each
/// value once.
#[derive(Default)]
pub struct Sharer {
    hasher: ExprHasher,
    /// The nodes of the results, by hash.
    nodes: FxHashMap<u64, Vec<Expr>>,
}

impl Sharer {
    /// Returns an equal expression whose nodes are shared with each other and with the results
    /// before it.
    pub fn share(&mut self, expr: &Expr) -> Expr {
        replace_nodes(expr, &mut |node| {
            let known = self.nodes.entry(self.hasher.hash(node)).or_default();
            let same = known.iter().find(|other| equal(other, node)).cloned();
            if same.is_none() {
                known.push(node.clone());
            }
            same.filter(|other| !other.same(node))
        })
    }
}

/// Computes hashes that agree with [`equal`], once for each node.
#[derive(Default)]
pub struct ExprHasher {
    known: Memo<u64>,
}

impl ExprHasher {
    /// Returns the hash of `expr`. It differs from run to run, so output must not depend on it.
    pub fn hash(&mut self, expr: &Expr) -> u64 {
        if let Some(hash) = self.known.get(expr) {
            return *hash;
        }
        let mut state = FxHasher::default();
        std::mem::discriminant(&expr.kind).hash(&mut state);
        expr.ty.hash(&mut state);
        match &expr.kind {
            ExprKind::Const(Const::Int(value)) => value.hash(&mut state),
            ExprKind::Const(Const::Float(value)) => value.to_bits().hash(&mut state),
            ExprKind::Var(var) | ExprKind::Let(var, ..) => var.hash(&mut state),
            ExprKind::Unary(op, _) => op.hash(&mut state),
            ExprKind::Binary(op, ..) => op.hash(&mut state),
            ExprKind::Call(function, _) => function.hash(&mut state),
            ExprKind::Load { buffer, .. } => buffer.hash(&mut state),
            _ => {}
        }
        for_each_child(expr, &mut |child| self.hash(child).hash(&mut state));
        let hash = state.finish();
        self.known.insert(expr, hash);
        hash
    }
}

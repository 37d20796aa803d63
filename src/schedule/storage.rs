//! Where the elements of a stage are stored.
//!
//! Before: a stage computes the region `yo*32 + y - 1`, one row, in each iteration of `y`.
//! After: its buffer has 4 rows, and row `i` is stored in row `i % 4` of the buffer.

use super::bounds::StageBounds;
use crate::ir::{BinOp, Expr};

/// The elements that a stage computes in each iteration of the enclosing loops, and where it stores
/// them.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// The first index, for each data axis.
    pub(super) mins: Vec<Expr>,
    /// The extents.
    pub(super) shape: Vec<Expr>,
    /// Where they are stored.
    pub(super) storage: Storage,
}

/// Where the elements of a stage are stored.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The first index that is stored, for each data axis.
    pub mins: Vec<Expr>,
    /// The extents of the buffer.
    pub shape: Vec<Expr>,
    /// The dimension of which only the last indices are stored.
    pub ring: Option<Ring>,
    /// The two dimensions that are stored by waves.
    pub waves: Option<Waves>,
    /// The dimensions along which elements of earlier iterations are kept.
    pub sliding: Vec<usize>,
    /// The indices that are stored in these dimensions.
    pub(super) limits: Vec<Limit>,
}

/// A dimension in which index `i` is stored at `i % extent`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    /// The dimension.
    pub dim: usize,
    /// A power of two.
    pub extent: i64,
}

/// Two dimensions in which index `(i, j)` is stored at `(factor*i + j, i)`: the first of them has
/// the waves of a skew, the second one the positions in a wave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waves {
    /// The dimension of `i`.
    pub outer: usize,
    /// The dimension of `j`.
    pub inner: usize,
    /// How many waves lie between two values of `i`.
    pub factor: i64,
}

impl Waves {
    /// Returns the wave and the position in it of an element.
    pub(super) fn of(&self, indices: &[Expr]) -> (Expr, Expr) {
        let (outer, inner) = (indices[self.outer].clone(), indices[self.inner].clone());
        let first = Expr::mul(outer.clone(), Expr::index(self.factor));
        (Expr::add(first, inner), outer)
    }

    /// Returns the dimensions of the waves and of the positions.
    pub(super) fn dims(&self) -> (usize, usize) {
        (self.outer.min(self.inner), self.outer.max(self.inner))
    }
}

/// The first index of a dimension that is stored, or the one behind the last.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) dim: usize,
    pub(super) end: LimitEnd,
}

/// An end of the indices that are stored.
#[derive(Clone, Debug)]
pub(super) enum LimitEnd {
    First(Expr),
    Behind(Expr),
}

impl Region {
    /// Returns a region that is stored while one iteration runs.
    pub(super) fn new(mins: Vec<Expr>, shape: Vec<Expr>) -> Region {
        let storage = Storage {
            mins: mins.clone(),
            shape: shape.clone(),
            ring: None,
            waves: None,
            sliding: Vec::new(),
            limits: Vec::new(),
        };
        Region { mins, shape, storage }
    }

    /// Returns the region of a stage with known bounds.
    pub(super) fn of(bounds: &StageBounds) -> Region {
        let StageBounds { mins, shape, storage, .. } = bounds;
        Region { mins: mins.clone(), shape: shape.clone(), storage: storage.clone() }
    }
}

impl Storage {
    /// Whether it is the region that one iteration computes.
    pub(super) fn is_region(&self) -> bool {
        self.sliding.is_empty()
    }

    /// Whether elements of earlier iterations are kept along a dimension.
    pub(super) fn slides_along(&self, dim: usize) -> bool {
        self.sliding.contains(&dim)
    }

    /// Returns the indices in the buffer of the element with these indices.
    pub fn place(&self, mut indices: Vec<Expr>) -> Vec<Expr> {
        if let Some(waves) = &self.waves {
            let dims = waves.dims();
            (indices[dims.0], indices[dims.1]) = waves.of(&indices);
        }
        let place = |(dim, index): (usize, Expr)| match self.ring {
            Some(ring) if ring.dim == dim => {
                Expr::binary(BinOp::FloorMod, index, Expr::index(ring.extent))
            }
            _ => self.relative(dim, index),
        };
        indices.into_iter().enumerate().map(place).collect()
    }

    /// Returns an index relative to the first one that is stored.
    fn relative(&self, dim: usize, index: Expr) -> Expr {
        let first = &self.mins[dim];
        match first.as_int() {
            Some(0) => index,
            _ => Expr::sub(index, first.clone()),
        }
    }
}

impl Limit {
    /// Returns the condition that an index is inside.
    pub(super) fn inside(&self, index: &Expr) -> Expr {
        match &self.end {
            LimitEnd::First(first) => Expr::le(first.clone(), index.clone()),
            LimitEnd::Behind(end) => Expr::lt(index.clone(), end.clone()),
        }
    }
}

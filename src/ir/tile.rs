//! Tile products: products of small matrices that one instruction of AMX adds to a matrix in a tile
//! register.
//!
//! The loop IR holds the nest that the instruction stands for, in this order:
//!
//! ```text
//! for i in 0..rows, j in 0..columns, q in 0..groups, k in 0..terms:
//!   c[i, j] = c[i, j] + a[i, q*terms + k] * b[q, j*terms + k]
//! ```
//!
//! The last dimension of each matrix is consecutive in memory; its rows have any distance. `terms`
//! is what fills 32 bits: 4 bytes or 2 halves (Intel SDM, volume 2: TDPBUSD, TDPBF16PS).

use super::steps::{at_zero, step_of};
use super::visit::{substitute, walk_stmt};
use super::warp::is_warp_product;
use super::{BinOp, Buffer, Const, DType, Expr, ExprKind, ForKind, Intrinsic, Stmt, Var};
use rustc_hash::FxHashMap;

/// Rows of a tile register, and groups of 32 bits in a row (Intel SDM, volume 1: palette 1).
pub const MAX_TILE_SIDE: i64 = 16;

/// The tile registers.
pub const TILE_REGISTERS: usize = 8;

/// A kind of tile product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileProduct {
    /// The name in `lib/intrinsics.te`.
    pub name: &'static str,
    /// The element type of `a`.
    pub a: DType,
    /// The element type of `b`.
    pub b: DType,
    /// The element type of `c`.
    pub sum: DType,
    /// The intrinsic that adds the terms of a group in the lanes of a vector.
    pub in_lanes: Option<&'static str>,
}

impl TileProduct {
    /// All tile products.
    pub const ALL: [TileProduct; 5] = {
        use DType::{BFloat16, Float32, Int8, Int32, Uint8};
        const fn kind(
            name: &'static str,
            (a, b, sum): (DType, DType, DType),
            in_lanes: Option<&'static str>,
        ) -> TileProduct {
            TileProduct { name, a, b, sum, in_lanes }
        }
        [
            kind("tile_u8_i8", (Uint8, Int8, Int32), Some("dot4_u8_i8")),
            kind("tile_i8_u8", (Int8, Uint8, Int32), Some("dot4_i8_u8")),
            kind("tile_i8_i8", (Int8, Int8, Int32), None),
            kind("tile_u8_u8", (Uint8, Uint8, Int32), None),
            kind("tile_bf16", (BFloat16, BFloat16, Float32), Some("dot2_bf16")),
        ]
    };

    /// Returns the tile product with this name.
    pub fn of(name: &str) -> Option<TileProduct> {
        TileProduct::ALL.into_iter().find(|product| product.name == name)
    }

    /// Returns the terms of a group.
    pub fn terms(self) -> i64 {
        4 / self.a.bytes() as i64
    }
}

/// Whether a statement is a product whose nest passes must not change: the back end matches it.
pub fn is_whole_product(stmt: &Stmt) -> bool {
    let is_tile = |name: &str| TileProduct::of(name).is_some();
    is_warp_product(stmt) || matches!(stmt, Stmt::Tensorize { name, .. } if is_tile(name))
}

/// Whether a statement contains a tile product.
pub fn has_tile_product(stmt: &Stmt) -> bool {
    let mut found = false;
    let mut see = |stmt: &Stmt| {
        found |= matches!(stmt, Stmt::Tensorize { name, .. } if TileProduct::of(name).is_some());
    };
    walk_stmt(stmt, &mut see, &mut |_| {});
    found
}

/// A matrix of a tile product.
#[derive(Clone, Debug)]
pub struct TilePart {
    /// The tensor that it is a part of.
    pub buffer: Buffer,
    /// The index of its first element.
    pub first: Expr,
    /// Elements from a row to the next one.
    pub stride: Expr,
}

/// What a nest of a tile product does.
#[derive(Clone, Debug)]
pub enum TileStep {
    /// Sets all elements of `c` to 0.
    Start {
        /// The sums.
        c: TilePart,
        /// Rows and columns of `c`.
        shape: (i64, i64),
    },
    /// Adds a product.
    Product {
        /// The sums.
        c: TilePart,
        /// The first factor.
        a: TilePart,
        /// The second factor.
        b: TilePart,
        /// Rows, columns, groups of terms.
        shape: (i64, i64, i64),
    },
}

/// Matches the nest of a tile product with flat indices. It has all its loops: `tensorize` refuses
/// extents of 1, which the simplifier removes.
pub fn tile_step(product: TileProduct, nest: &Stmt) -> Option<TileStep> {
    let (mut loops, mut lets) = (Vec::new(), FxHashMap::default());
    let Stmt::Store { buffer, indices, value, mask: None, .. } =
        inside(nest, &mut loops, &mut lets)
    else {
        return None;
    };
    let vars: Vec<Var> = loops.iter().map(|(var, _)| var.clone()).collect();
    let part = |buffer: &Buffer, index: &Expr, row: usize| {
        let index = substitute(index, &mut |var| lets.get(var).cloned());
        let stride = step_of(&index, &vars[row], &vars)?;
        Some(TilePart { buffer: buffer.clone(), first: at_zero(&index, &vars), stride })
    };
    match (&loops[..], &indices[0].kind) {
        ([rows], ExprKind::Ramp(base, step)) if step.as_int() == Some(1) => {
            let shape = (rows.1, i64::from(indices[0].ty.lanes));
            is_zero(value).then_some(TileStep::Start { c: part(buffer, base, 0)?, shape })
        }
        ([rows, columns, groups, _], _) => {
            let (x, y) = factors(value)?;
            let ((x, a), (y, b)) = (load_of(x)?, load_of(y)?);
            // `b` moves with the columns, `a` never does. Rows may all be one.
            let moves = |index: &Expr| {
                let index = substitute(index, &mut |var| lets.get(var).cloned());
                step_of(&index, &vars[1], &vars).and_then(|step| step.as_int()) != Some(0)
            };
            let swapped = moves(a);
            let ((x, a), (y, b)) = if swapped { ((y, b), (x, a)) } else { ((x, a), (y, b)) };
            if x.dtype != product.a || y.dtype != product.b {
                return None;
            }
            Some(TileStep::Product {
                c: part(buffer, &indices[0], 0)?,
                a: part(x, a, 0)?,
                b: part(y, b, 2)?,
                shape: (rows.1, columns.1, groups.1),
            })
        }
        _ => None,
    }
}

/// Whether all bits of a constant are 0.
pub fn is_zero(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Broadcast(one) => is_zero(one),
        ExprKind::Const(Const::Int(value)) => *value == 0,
        ExprKind::Const(Const::Float(value)) => value.to_bits() == 0,
        _ => false,
    }
}

/// Returns the innermost statement of a nest; adds its loops and definitions.
fn inside<'s>(
    stmt: &'s Stmt,
    loops: &mut Vec<(Var, i64)>,
    lets: &mut FxHashMap<Var, Expr>,
) -> &'s Stmt {
    match stmt {
        Stmt::Block(stmts) if stmts.len() == 1 => inside(&stmts[0], loops, lets),
        Stmt::For { var, min, extent, kind: ForKind::Serial, body } if min.as_int() == Some(0) => {
            let Some(extent) = extent.as_int() else { return stmt };
            loops.push((var.clone(), extent as i64));
            inside(body, loops, lets)
        }
        Stmt::Let { var, value, body } => {
            let value = substitute(value, &mut |var| lets.get(var).cloned());
            lets.insert(var.clone(), value);
            inside(body, loops, lets)
        }
        _ => stmt,
    }
}

/// Returns the factors of `c + x*y`.
fn factors(value: &Expr) -> Option<(&Expr, &Expr)> {
    match &value.kind {
        ExprKind::Call(Intrinsic::Fma, args) => Some((&args[0], &args[1])),
        ExprKind::Binary(BinOp::Add, p, q) => match (&p.kind, &q.kind) {
            (_, ExprKind::Binary(BinOp::Mul, x, y)) | (ExprKind::Binary(BinOp::Mul, x, y), _) => {
                Some((x, y))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the element that a factor converts.
fn load_of(factor: &Expr) -> Option<(&Buffer, &Expr)> {
    let ExprKind::Cast(inner) = &factor.kind else { return None };
    match &inner.kind {
        ExprKind::Load { buffer, indices, mask: None } => Some((buffer, &indices[0])),
        _ => None,
    }
}

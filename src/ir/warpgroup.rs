//! The factors of warpgroup products in shared memory.
//!
//! `wgmma` reads blocks of 8 rows and 8 terms, each 128 consecutive bytes: 8 pieces of 16 bytes.
//! A piece has the terms of a row, or the rows of a term (columns, for the second factor). Blocks
//! have any distance along the rows, and any along the terms, that is a multiple of 16 bytes.
//!
//! Example: `cache_read(shared, layout=[ax1 // 8, ax0, ax1 % 8])` of a matrix by rows. The pieces of
//! eight neighbouring terms lie below each other, so a block has eight consecutive rows.

use super::arith::Facts;
use super::simplify::simplify_expr;
use super::visit::{substitute, walk_expr};
use super::warp::{COLUMNS, GROUP_WARPS, HALVES, ThreadPart, WarpProduct};
use super::{BinOp, Expr, ExprKind, Var};

/// Rows and terms of a block.
const BLOCK: i64 = 8;
/// Bytes of a piece.
pub const PIECE_BYTES: i64 = 16;
/// The largest distance of two blocks in pieces (PTX ISA: matrix descriptors).
const MAX_PIECES: i64 = (1 << 14) - 1;
/// Threads of a warp.
const LANES: i64 = 32;

/// Where the blocks of a factor are, in elements of its buffer.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// The first element, the same for all threads of the warpgroup.
    pub first: Expr,
    /// The distance of blocks along the rows (columns, for the second factor).
    pub along_rows: i64,
    /// The distance of blocks along the terms.
    pub along_terms: i64,
    /// Whether a piece has the rows of a term.
    pub transposed: bool,
}

/// The thread indices of a warpgroup: `threadIdx.x`, the lane, and `threadIdx.y`, the warp.
#[derive(Clone, Copy)]
pub struct Threads<'a> {
    /// The lane in its warp.
    pub lane: &'a Var,
    /// The warp in its warpgroup.
    pub warp: &'a Var,
}

/// Finds the blocks of a factor from the flat index of a thread's element; `which` is 0 for `a`, 1
/// for `b`. Variables with a known value are `fixed`.
///
/// # Errors
/// The first difference, in words for the user, without the name of the buffer.
pub fn blocks_of(
    product: WarpProduct,
    part: &ThreadPart<'_>,
    (which, index): (usize, &Expr),
    threads: Threads<'_>,
    (facts, fixed): (&Facts, &[(Var, i64)]),
) -> Result<Blocks, String> {
    let (group, groups) = part.group.expect("a product by a warpgroup has a loop over groups");
    let [half, column, term] = part.vars;
    let of_threads = [half, column, term, group, threads.lane, threads.warp];
    let index = substitute(index, &mut |var| {
        let known = fixed.iter().find(|(other, _)| other == var);
        known.map(|(_, value)| Expr::index(*value))
    });
    let zero = |var: &Var| of_threads.contains(&var).then(|| Expr::index(0));
    let first = simplify_expr(&substitute(&index, &mut |var| zero(var)), facts);
    let distance = simplify_expr(&Expr::sub(index, first.clone()), facts);
    let own = match which {
        0 => [half, threads.warp, threads.lane, term],
        _ => [group, column, threads.lane, term],
    };
    let mut other = None;
    walk_expr(&distance, &mut |e| {
        if let ExprKind::Var(var) = &e.kind
            && !own.contains(&var)
        {
            other = Some(var.clone());
        }
    });
    if let Some(var) = other {
        return Err(match of_threads.contains(&&var) {
            true => format!("depends on `{}`, which must not matter", var.name()),
            false => format!("has distances that depend on `{}`", var.name()),
        });
    }
    let at = |row: i64, term_at: i64| -> Option<i64> {
        let (rest, lane) = match which {
            0 => ([row / BLOCK % HALVES, row / (BLOCK * HALVES)], row % BLOCK * 4),
            _ => ([row / COLUMNS, row % 2], row % COLUMNS / 2),
        };
        let values = [(own[0], rest[0]), (own[1], rest[1]), (own[2], lane), (own[3], term_at)];
        evaluate(&distance, &values)
    };
    let rows = if which == 0 { BLOCK * HALVES * GROUP_WARPS } else { COLUMNS * groups };
    let irregular = || "has irregular distances".to_string();
    let at = |row: i64, term: i64| at(row, term).ok_or_else(irregular);
    let (row_step, term_step) = (at(1, 0)?, at(0, 1)?);
    let (along_rows, along_terms) = (at(BLOCK, 0)?, at(0, BLOCK)?);
    let transposed = match (row_step, term_step) {
        (8, 1) => false,
        (1, 8) => true,
        _ => {
            return Err(format!(
                "has its rows {row_step} and its terms {term_step} elements apart; blocks of 8 \
                 times 8 consecutive elements are expected"
            ));
        }
    };
    for row in 0..rows {
        for term in 0..product.terms {
            let blocks = row / BLOCK * along_rows + term / BLOCK * along_terms;
            let expected = blocks + row % BLOCK * row_step + term % BLOCK * term_step;
            let found = at(row, term)?;
            if found != expected {
                return Err(format!(
                    "has row {row} of term {term} {found} elements from its first one; {expected} \
                     are expected"
                ));
            }
        }
    }
    // Lanes of the same row read the same terms.
    let same = |lane: i64| {
        let values = own.map(|var| (var, if var == threads.lane { lane } else { 0 }));
        let group = if which == 0 { lane / 4 * row_step } else { lane % 4 * 2 * row_step };
        evaluate(&distance, &values) == Some(group)
    };
    if !(0..LANES).all(same) {
        return Err(irregular());
    }
    let piece = product.row();
    for (what, apart) in [("rows", along_rows), ("terms", along_terms)] {
        if apart % piece != 0 || !(1..=MAX_PIECES).contains(&(apart / piece)) {
            return Err(format!(
                "has blocks {apart} elements apart along the {what}; a multiple of {piece} is \
                 expected"
            ));
        }
    }
    let rest = Expr::binary(BinOp::FloorMod, first.clone(), Expr::index(piece));
    match simplify_expr(&rest, facts).as_int() {
        Some(0) => Ok(Blocks { first, along_rows, along_terms, transposed }),
        _ => Err(format!(
            "begins at `{}`, which is not provably a multiple of {piece}",
            super::print::print_expr(&first)
        )),
    }
}

/// The value of an index with these values of its variables.
fn evaluate(index: &Expr, values: &[(&Var, i64)]) -> Option<i64> {
    let value = |e: &Expr| evaluate(e, values);
    match &index.kind {
        ExprKind::Var(var) => values.iter().find(|(other, _)| *other == var).map(|(_, v)| *v),
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (value(a)?, value(b)?);
            match op {
                BinOp::Add => a.checked_add(b),
                BinOp::Sub => a.checked_sub(b),
                BinOp::Mul => a.checked_mul(b),
                BinOp::FloorDiv if b > 0 => Some(a.div_euclid(b)),
                BinOp::FloorMod if b > 0 => Some(a.rem_euclid(b)),
                _ => None,
            }
        }
        _ => index.as_int().and_then(|value| i64::try_from(value).ok()),
    }
}

//! The factors of warpgroup products in shared memory.
//!
//! `wgmma` reads a factor in lines of 64 elements, 128 bytes: a line has terms of a row, or rows of
//! a term (columns, for the second factor). Eight lines are 1024 consecutive bytes. The hardware
//! expects the pieces of 16 bytes of a line in another order, which depends on the line
//! ([`swizzle`]), so that pieces at the same place of eight lines lie in different banks. The back
//! end stores such buffers in this order; the loop IR has the plain one.
//!
//! Example: `cache_read(shared, layout=[ax1 // 64, ax0, ax1 % 64])`.
//!
//! Lines of 8 elements, 16 bytes, are the other form: `layout=[ax1 // 8, ax0, ax1 % 8]`. They are
//! not reordered, may be padded, and are read several times as slowly.

use super::arith::Facts;
use super::simplify::simplify_expr;
use super::visit::{substitute, walk_expr};
use super::warp::{COLUMNS, GROUP_WARPS, HALVES, ThreadPart, WarpProduct};
use super::{BinOp, Expr, ExprKind, Var};

/// Lines that follow each other.
const BLOCK: i64 = 8;
/// Elements of a line that is reordered.
const LINE: i64 = 64;
/// Bytes of a piece.
pub const PIECE_BYTES: i64 = 16;
/// Bytes of lines that are reordered in the same way, and the alignment of their buffers.
pub const SWIZZLE_BYTES: i64 = 1024;
/// The largest distance in pieces (PTX ISA: matrix descriptors).
const MAX_PIECES: i64 = (1 << 14) - 1;
/// Threads of a warp.
const LANES: i64 = 32;

/// Where the lines of a factor are, in elements of its buffer.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The first element, the same for all threads of the warpgroup.
    pub first: Expr,
    /// The distances as descriptors have them (PTX ISA: `wgmma`). `stride`: from eight rows to the
    /// next ones, or, if rows lie in long lines, from eight terms to the next ones. `leading`: the
    /// other distance.
    pub stride: i64,
    /// See `stride`.
    pub leading: i64,
    /// Whether the lines have 64 elements and are reordered.
    pub swizzled: bool,
    /// Whether a line has the rows of a term.
    pub transposed: bool,
}

/// Returns the place of a byte in a buffer with reordered lines.
pub fn swizzle(byte: i64) -> i64 {
    byte ^ ((byte >> 7 & 7) << 4)
}

/// The thread indices of a warpgroup: `threadIdx.x`, the lane, and `threadIdx.y`, the warp.
#[derive(Clone, Copy)]
pub struct Threads<'a> {
    /// The lane in its warp.
    pub lane: &'a Var,
    /// The warp in its warpgroup.
    pub warp: &'a Var,
}

/// A factor of a product, with the distance of each of its elements from the first one.
struct Factor<'a> {
    first: Expr,
    distance: Expr,
    /// The variables of the row (two), of the lane and of the term.
    own: [&'a Var; 4],
    which: usize,
    rows: i64,
}

impl<'a> Factor<'a> {
    fn new(
        part: &ThreadPart<'a>,
        (which, index): (usize, &Expr),
        threads: Threads<'a>,
        (facts, fixed): (&Facts, &[(Var, i64)]),
    ) -> Result<Factor<'a>, String> {
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
        let rows = if which == 0 { BLOCK * HALVES * GROUP_WARPS } else { COLUMNS * groups };
        Ok(Factor { first, distance, own, which, rows })
    }

    /// The distance of an element from the first one.
    fn at(&self, row: i64, term: i64) -> Result<i64, String> {
        let (rest, lane) = match self.which {
            0 => ([row / BLOCK % HALVES, row / (BLOCK * HALVES)], row % BLOCK * 4),
            _ => ([row / COLUMNS, row % 2], row % COLUMNS / 2),
        };
        let values = [rest[0], rest[1], lane, term];
        let values: Vec<(&Var, i64)> = self.own.into_iter().zip(values).collect();
        evaluate(&self.distance, &values).ok_or_else(irregular)
    }

    /// The distances from row to row and from term to term.
    fn steps(&self) -> Result<(i64, i64), String> {
        Ok((self.at(1, 0)?, self.at(0, 1)?))
    }

    /// Whether lanes read the elements of their own row alone.
    fn lanes_agree(&self, row_step: i64) -> bool {
        (0..LANES).all(|lane| {
            let value = |at: usize| if at == 2 { lane } else { 0 };
            let values = self.own.into_iter().enumerate().map(|(at, var)| (var, value(at)));
            let values: Vec<(&Var, i64)> = values.collect();
            let row = if self.which == 0 { lane / 4 } else { lane % 4 * 2 };
            evaluate(&self.distance, &values) == Some(row * row_step)
        })
    }
}

fn irregular() -> String {
    "has irregular distances".to_string()
}

/// Whether the lines of a factor are reordered; it was matched before.
pub fn is_swizzled(
    part: &ThreadPart<'_>,
    factor: (usize, &Expr),
    threads: Threads<'_>,
) -> Result<bool, String> {
    let (row, term) = Factor::new(part, factor, threads, (&Facts::new(), &[]))?.steps()?;
    Ok(row.max(term) == LINE)
}

/// Finds the lines of a factor from the flat index of a thread's element; `which` is 0 for `a`, 1
/// for `b`. Variables with a known value are `fixed`.
///
/// # Errors
/// The first difference, in words for the user, without the name of the buffer.
pub fn lines_of(
    product: WarpProduct,
    part: &ThreadPart<'_>,
    factor: (usize, &Expr),
    threads: Threads<'_>,
    known: (&Facts, &[(Var, i64)]),
) -> Result<Lines, String> {
    let facts = known.0;
    let factor = Factor::new(part, factor, threads, known)?;
    let (row_step, term_step) = factor.steps()?;
    let (swizzled, transposed) = match (row_step, term_step) {
        (BLOCK, 1) => (false, false),
        (1, BLOCK) => (false, true),
        (LINE, 1) => (true, false),
        (1, LINE) => (true, true),
        _ => {
            return Err(format!(
                "has its rows {row_step} and its terms {term_step} elements apart; lines of {LINE} \
                 consecutive elements are expected"
            ));
        }
    };
    // The second distance matters only if there are such elements.
    let apart = |row: i64, term: i64| match row < factor.rows && term < product.terms {
        true => factor.at(row, term),
        false => Ok(if swizzled { LINE * BLOCK } else { BLOCK }),
    };
    let line = if swizzled { LINE } else { BLOCK };
    let (by_row, by_term) = match (swizzled, transposed) {
        (false, _) => ((BLOCK, apart(BLOCK, 0)?), (BLOCK, apart(0, BLOCK)?)),
        (true, false) => ((BLOCK, apart(BLOCK, 0)?), (line, apart(0, line)?)),
        (true, true) => ((line, apart(line, 0)?), (BLOCK, apart(0, BLOCK)?)),
    };
    for row in 0..factor.rows {
        for term in 0..product.terms {
            let outer = row / by_row.0 * by_row.1 + term / by_term.0 * by_term.1;
            let expected = outer + row % by_row.0 * row_step + term % by_term.0 * term_step;
            let found = factor.at(row, term)?;
            if found != expected {
                return Err(format!(
                    "has row {row} of term {term} {found} elements from its first one; {expected} \
                     are expected"
                ));
            }
        }
    }
    if !factor.lanes_agree(row_step) {
        return Err(irregular());
    }
    let piece = product.row();
    let unit = if swizzled { LINE * BLOCK } else { piece };
    for apart in [by_row.1, by_term.1] {
        if apart % unit != 0 || !(1..=MAX_PIECES).contains(&(apart / piece)) {
            return Err(format!(
                "has groups of eight lines {apart} elements apart; a multiple of {unit} is expected"
            ));
        }
    }
    let first = factor.first;
    let rest = |of: i64| {
        let rest = Expr::binary(BinOp::FloorMod, first.clone(), Expr::index(of));
        simplify_expr(&rest, facts)
    };
    // A factor may begin inside its first line, at other terms.
    let inside = match facts.const_bounds(&rest(unit)) {
        (Some(low), Some(high)) => low >= 0 && high < if transposed { 1 } else { i128::from(line) },
        _ => false,
    };
    if rest(piece).as_int() != Some(0) || swizzled && !inside {
        return Err(format!(
            "begins at `{}`, which is not provably a multiple of {unit}",
            super::print::print_expr(&first)
        ));
    }
    let (stride, leading) = match (swizzled, transposed) {
        (true, true) => (by_term.1, by_row.1),
        // The terms of a product are in one line.
        (true, false) => (by_row.1, piece),
        _ => (by_row.1, by_term.1),
    };
    Ok(Lines { first, stride, leading, swizzled, transposed })
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

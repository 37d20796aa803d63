//! The default tile: the one with the fewest cycles by a simple estimate.

use super::super::facts::{StageFacts, Tile, elements, registers};
use super::super::view::{Access, AxisView, StageView, Stride};
use crate::schedule::Schedule;
use crate::target::Target;

/// Fewer terms than this do not pay for a register tile.
const MIN_TERMS: i64 = 8;
/// The most vectors of a tile's row.
pub(in super::super) const MAX_VECTORS: i64 = 4;
/// The most rows of a tile.
const MAX_ROWS: i64 = 14;
/// The most equal parts of an extent that are rows of a tile; with more, the tail is short anyway.
const MAX_PARTS: i64 = 8;
/// The longest axis of which a tile may have all elements, such as the taps of a window.
const MAX_TAPS: i64 = 4;
/// Factors up to this size in bytes are not packed.
const PACK_BYTES: i64 = 1 << 15;
/// Addresses a multiple of this apart share a set of L1, in which [`WAYS`] rows fit besides the
/// other factor.
const SET_BYTES: i64 = 1 << 12;
const WAYS: i64 = 8;

/// Returns the facts about the stages of a schedule, with the default tiles of its products.
pub(in super::super) fn facts_with_tiles(
    schedule: &Schedule,
    target: &Target,
    inlined: &[bool],
    user_allows_reassociate: bool,
) -> StageFacts {
    let mut facts = StageFacts::new(schedule, inlined, user_allows_reassociate);
    let tiles = |at: usize| match facts.views[at].reduction {
        Some(_) if !target.is_gpu() => best_tiles(&facts, target, at),
        _ => Vec::new(),
    };
    facts.tiles = (0..facts.views.len()).map(tiles).collect();
    let best =
        |tiles: &Vec<Tile>| tiles.iter().copied().min_by(|a, b| a.cycles.total_cmp(&b.cycles));
    facts.products = facts.tiles.iter().map(best).collect();
    facts
}

/// Returns the tile with the fewest cycles for each axis of the lanes; none if nothing is reused.
fn best_tiles(facts: &StageFacts, target: &Target, at: usize) -> Vec<Tile> {
    let view = &facts.views[at];
    let terms = view.reduce.iter().fold(1i64, |n, axis| n.saturating_mul(axis.size()));
    if view.tuple || terms < MIN_TERMS {
        return Vec::new();
    }
    let lanes = 0..view.data.len();
    lanes.filter_map(|lane| best_tile(facts, target, at, lane)).collect()
}

/// Returns the tile with lanes along an axis that has the fewest cycles.
fn best_tile(facts: &StageFacts, target: &Target, at: usize, lane: usize) -> Option<Tile> {
    let view = &facts.views[at];
    let mut best: Option<Tile> = None;
    for row in (0..view.data.len()).filter(|row| *row != lane) {
        let Some(extra) = reuse(facts, target, at, row, lane) else { continue };
        let short = |axis: &usize| view.data[*axis].extent.is_some_and(|n| n <= MAX_TAPS);
        let taps = third_axes(view, row, lane).filter(short).map(Some);
        for taps in std::iter::once(None).chain(taps) {
            let Some(mut tile) = sized(target, view, row, lane, taps) else { continue };
            tile.cycles += extra;
            if best.as_ref().is_none_or(|best| tile.cycles < best.cycles) {
                best = Some(tile);
            }
        }
    }
    best
}

/// Returns the axes along which a tile may have several elements, too: those along which a read of
/// the rows or lanes is reused.
pub(super) fn third_axes(view: &StageView, row: usize, lane: usize) -> impl Iterator<Item = usize> {
    let again = move |axis: &usize| {
        let moves = |load: &&Access, axis: usize| load.mentions(&view.data[axis].var);
        let mut loads = view.loads.iter().filter(|l| moves(l, row) || moves(l, lane));
        *axis != row && *axis != lane && loads.any(|load| !moves(&load, *axis))
    };
    let several = |axis: &usize| view.data[*axis].extent.is_none_or(|extent| extent >= 2);
    (0..view.data.len()).filter(several).filter(again)
}

/// Returns the cycles for packing and for the results, if a factor is reused along each of both
/// axes.
fn reuse(facts: &StageFacts, target: &Target, at: usize, row: usize, lane: usize) -> Option<f64> {
    let view = &facts.views[at];
    let lanes = f64::from(target.lanes(view.dtype));
    let (rows, columns) = (&view.data[row], &view.data[lane]);
    let moves = |load: &Access, axis: &AxisView| load.mentions(&axis.var);
    let of_lanes: Vec<&Access> = view.loads.iter().filter(|l| moves(l, columns)).collect();
    let of_rows = view.loads.iter().any(|load| moves(load, rows));
    if !of_rows || of_lanes.is_empty() || of_lanes.iter().any(|load| moves(load, rows)) {
        return None;
    }
    let mut cycles = 0.0;
    for load in of_lanes {
        let contiguous = load.stride(&columns.var) == Stride::By(1);
        if !contiguous && facts.packed_dim(at, load, lane).is_none() {
            return None;
        }
        if packs(facts, at, load, lane) && !load.packed_once {
            let each = if contiguous { 4.0 / lanes } else { 2.0 };
            cycles += elements(load).unwrap_or(0) as f64 * each;
        }
    }
    let last = lane + 1 == view.data.len();
    // Results along another axis than the last one are transposed in registers.
    let each = if last { 2.0 / lanes } else { (6.0 / lanes).min(1.0) };
    cycles += view.elements() as f64 * each;
    Some(cycles)
}

/// Whether packing a factor pays: its vectors are not contiguous, or it is large.
pub(super) fn packs(facts: &StageFacts, at: usize, load: &Access, axis: usize) -> bool {
    let bytes = elements(load).map(|n| n.saturating_mul(load.buffer.dtype.bytes() as i64));
    let apart = load.stride(&facts.views[at].data[axis].var) != Stride::By(1);
    facts.packed_dim(at, load, axis).is_some() && (apart || bytes.is_some_and(|b| b > PACK_BYTES))
}

/// Returns the best size of a tile with the given axes.
fn sized(
    target: &Target,
    view: &StageView,
    row: usize,
    lane: usize,
    taps: Option<usize>,
) -> Option<Tile> {
    let lanes = i64::from(target.lanes(view.dtype));
    let registers = registers(target, lanes);
    let (rows, columns) = (view.data[row].size(), view.data[lane].size());
    let steps = view.points() as f64 / (rows as f64 * columns as f64).max(1.0);
    // Elements along the third axis, and how many of them read other data of the rows or lanes.
    let third = taps.map_or(1, |axis| view.data[axis].size());
    let other = |axis: usize| {
        let mut loads = view.loads.iter().filter(|load| load.mentions(&view.data[axis].var));
        let moves = taps.is_some_and(|t| loads.any(|load| load.mentions(&view.data[t].var)));
        if moves { third } else { 1 }
    };
    let (of_row, of_lane) = (other(row), other(lane));
    let steps = steps / third as f64;
    let mut best: Option<Tile> = None;
    // Adjacent rows use whole cache lines.
    let near = |load: &Access| match load.stride(&view.data[row].var) {
        Stride::Zero => true,
        Stride::By(step) => step.abs() <= 16,
        Stride::Far => false,
    };
    let lines = if view.loads.iter().all(near) { 1.0 } else { 1.01 };
    let bytes = |load: &Access| match load.stride(&view.data[row].var) {
        Stride::By(step) => step.saturating_mul(load.buffer.dtype.bytes() as i64),
        _ => 1,
    };
    let shares_sets = view.loads.iter().any(|load| bytes(load) % SET_BYTES == 0);
    for width in widths(columns, lanes) {
        let most = MAX_ROWS.min(rows);
        for height in (2..=most).chain(equal_parts(rows).filter(|height| *height > most)) {
            let parts = |n: i64| (n + lanes - 1) / lanes;
            if (height * third + of_lane) * parts(width) + 1 > registers {
                continue;
            }
            let cycles = |height: i64, width: i64| {
                let vectors = parts(width);
                let used = (height * vectors * third) as f64;
                let loads = (height * of_row + vectors * of_lane) as f64;
                // Two multiply-adds and two loads in a cycle; a result takes four.
                (used / 2.0).max(loads / 2.0).max(4.0) + 0.5
            };
            // Whole tiles, and the tails in both directions.
            let mut total = 0.0;
            for (high, down) in pieces(rows, height) {
                for (wide, across) in pieces(columns, width) {
                    total += down as f64 * across as f64 * cycles(high, wide);
                }
            }
            let rest = if rows % height == 0 { 1.0 } else { 1.03 };
            let rest = if columns % width == 0 { rest } else { rest * 1.05 };
            let crowded = if height > WAYS && shares_sets { 1.15 } else { 1.0 };
            let cycles = steps * total * lines * rest * crowded;
            if best.as_ref().is_none_or(|best| cycles < best.cycles) {
                best = Some(Tile { row, lane, rows: height, width, taps, cycles });
            }
        }
    }
    best
}

/// Returns the options for the width of a tile: whole vectors, and divisors of the extent.
pub(super) fn widths(extent: i64, lanes: i64) -> Vec<i64> {
    // Without vectors, a few scalars side by side.
    let step = lanes.max(if lanes == 1 { 4 } else { 1 });
    let most = MAX_VECTORS * step;
    let whole = (1..=MAX_VECTORS).map(|vectors| vectors * step).filter(|width| *width <= extent);
    let parts = (step / 2..=most).filter(|width| *width > 0 && extent % width == 0);
    let all = (1..step).contains(&extent).then_some(extent);
    whole.chain(parts).chain(all).collect()
}

/// Returns the size and number of whole pieces of an extent, and of its rest.
fn pieces(extent: i64, size: i64) -> impl Iterator<Item = (i64, i64)> {
    let rest = extent % size;
    [(size, extent / size), (rest, i64::from(rest > 0))].into_iter().filter(|piece| piece.1 > 0)
}

/// Returns the options for the rows of a tile.
pub(super) fn heights(extent: i64, vectors: i64, registers: i64) -> Vec<i64> {
    let fits = |rows: &i64| *rows <= extent && (rows + 1) * vectors < registers + vectors;
    let usual = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14].into_iter();
    usual.chain(equal_parts(extent)).filter(fits).collect()
}

/// Returns the sizes of a few nearly equal parts of an extent.
fn equal_parts(extent: i64) -> impl Iterator<Item = i64> {
    (1..=MAX_PARTS).map(move |parts| (extent + parts - 1) / parts)
}

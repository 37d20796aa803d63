//! The choices of a tiling.

use super::super::facts::{registers, stores_along};
use super::super::plan::{Planner, Tail};
use super::super::view::{Access, AxisView, StageView, Stride, coefficient};
use super::default_tile::{MAX_VECTORS, heights, packs, third_axes, widths};
use super::dot::{self, Dot, SUMS, Sides};
use super::{
    MAX_DEFAULT_UNROLLED_VECTORS, MAX_UNROLLED_VECTORS, MAX_WINDOW, Pack, Subject, Tiling, Unroll,
    is_window, lane_axes, terms,
};
use crate::ir::tile::TILE_REGISTERS;
use crate::ir::visit::any_expr;
use crate::ir::{Expr, ExprKind};
use rustc_hash::FxHashMap;

/// The most loop orders that are offered.
const MAX_ORDERS: usize = 24;
/// A factor is packed only from this size in bytes on.
const MIN_PACK_BYTES: i64 = 1 << 14;
/// Elements of a factor at a larger stride stay where they are.
const MAX_PHASES: i64 = 4;
/// A factor whose elements are read this often along an axis is copied in phases.
const FEWEST_READS: i64 = 8;
/// Options for the elements of a tile along a third axis.
const THIRD_AXIS_ELEMENTS: [i64; 3] = [2, 3, 4];
/// The most tile registers of sums: two hold factors.
const MOST_TILES: i64 = TILE_REGISTERS as i64 - 2;
/// Terms of a block: fewer do not pay for loading the sums again, more are as good as all.
const BLOCK_TERMS: std::ops::RangeInclusive<i64> = 4..=1024;

pub(super) fn choose(planner: &mut Planner, subject: &Subject) -> Tiling {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = planner.plans[subject.sum].name.clone();
    let attached = planner.plans[subject.home].anchor.is_some();
    let product = facts.products[subject.sum].filter(|_| !attached);
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let axis_name = |axis: &usize| view.data[*axis].name.clone();

    let can = lane_axes(&facts, subject.sum, !attached);
    let stored = can.iter().position(|axis| stores_along(view, *axis));
    let lane = product.and_then(|tile| can.iter().position(|axis| *axis == tile.lane));
    let lane = lane.or(stored).unwrap_or(can.len() - 1);
    let lane =
        can[planner.chooser.index(&name, "lanes", can.iter().map(axis_name).collect(), lane)];
    let along = facts.tiles[subject.sum].iter().find(|tile| tile.lane == lane).copied();
    let same = along.filter(|_| !attached);

    let size = view.data[lane].size();
    let mut dot = choose_dot(planner, subject, lane);
    let mut wide = widths(size, lanes);
    wide.extend(same.map(|tile| tile.width));
    // Whole vectors for all of a short axis, with unused lanes.
    let whole = (size + lanes - 1) / lanes * lanes;
    wide.extend((lanes > 1 && whole <= MAX_VECTORS * lanes).then_some(whole));
    if dot.is_some() {
        wide = vectors_of_sums(size);
    }
    let tiles = dot.is_some_and(|dot| dot.tile.is_some());
    wide.sort_unstable();
    wide.dedup();
    let usual = wide.iter().copied().filter(|width| *width <= lanes).max().unwrap_or(wide[0]);
    let width = match tiles {
        true => usual_width(&wide),
        false => same.map_or(usual, |tile| tile.width),
    };
    let width = planner.chooser.pick(&name, "width", &wide, &width);

    let (row, third, rows) = match &mut dot {
        Some(dot) if tiles => choose_tiles(planner, subject, dot, lane, width),
        _ => choose_rows(planner, subject, lane, width),
    };
    let in_place = match subject.home == subject.sum {
        true => attached || planner.chooser.is_second(&name, "sums", ["apart", "in place"], false),
        false => false,
    };
    let mut form = Tiling {
        lane,
        width,
        row,
        rows,
        third,
        in_place,
        dot,
        blocks: vec![1; view.data.len()],
        outer: (0..view.data.len()).collect(),
        inner: Vec::new(),
        terms: 0,
        unroll: Unroll::Nothing,
        by_row: false,
        packed: Vec::new(),
        prefetched: None,
        flat_rows: true,
        tail: Tail::Auto,
    };
    if !attached {
        choose_blocks(planner, subject, &mut form);
        choose_packing(planner, subject, &mut form);
    }
    let window = form.terms == 0 && form.dot.is_none() && is_window(planner, subject.sum);
    if let Some(row) = form.row.filter(|_| window) {
        // Rows that share no vectors can be computed one after the other.
        let of_row = &view.data[row].var;
        let mut vectors = view.loads.iter().filter(|l| l.mentions(&view.data[lane].var));
        let apart = !form.in_place && vectors.all(|load| load.mentions(of_row));
        let single = view.loads.len() == 1;
        form.by_row = planner.chooser.whether(&name, "row by row", apart && single);
    }
    choose_unroll(planner, subject, &mut form);
    choose_prefetch(planner, subject, &mut form);
    if size % width != 0 {
        // Only vectorized loops have masks; the loop of the output is vectorized only along its
        // last axis.
        let last = subject.map[lane] + 1 == subject.map.len();
        let masks = lanes > 1 && (form.in_place || last);
        let mut tails = vec![Tail::Auto, Tail::Mask, Tail::Peel];
        tails.retain(|tail| masks || *tail != Tail::Mask);
        let names = tails.iter().map(|tail| tail.name().to_string());
        form.tail = tails[planner.chooser.index(&name, "tail", names.collect(), 0)];
    }
    form
}

/// Returns the widths of a tile in whole vectors of an instruction's sums.
fn vectors_of_sums(size: i64) -> Vec<i64> {
    let widths = (1..=MAX_VECTORS).map(|vectors| vectors * SUMS);
    widths.filter(|width| *width <= size).collect()
}

/// Chooses the instruction that adds the terms.
fn choose_dot(planner: &mut Planner, subject: &Subject, lane: usize) -> Option<Dot> {
    let view = &planner.facts.views[subject.sum];
    let attached = planner.plans[subject.home].anchor.is_some();
    if attached || vectors_of_sums(view.data[lane].size()).is_empty() {
        return None;
    }
    let name = planner.plans[subject.sum].name.clone();
    let [tile, in_lanes] = dot::dots(planner, subject.sum, lane);
    if tile.is_none() {
        return in_lanes.filter(|_| planner.chooser.whether(&name, "tensorize", true));
    }
    let mut ways = vec![("tiles", tile)];
    ways.extend(in_lanes.map(|dot| ("lanes", Some(dot))));
    ways.push(("no", None));
    let names = ways.iter().map(|(name, _)| name.to_string()).collect();
    ways[planner.chooser.index(&name, "tensorize", names, 0)].1
}

/// Returns the usual width of several tile registers.
fn usual_width(wide: &[i64]) -> i64 {
    if wide.contains(&(2 * SUMS)) { 2 * SUMS } else { wide[0] }
}

/// Chooses the axis of the rows of tile registers, how many registers of sums there are along it
/// and along a third axis, and the number of rows of all.
fn choose_tiles(
    planner: &mut Planner,
    subject: &Subject,
    dot: &mut Dot,
    lane: usize,
    width: i64,
) -> (Option<usize>, Option<(usize, i64)>, i64) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = planner.plans[subject.sum].name.clone();
    let axes: Vec<usize> = dot::row_axes(planner, subject.sum, lane, dot.load).collect();
    // Cycles for each row; of equal axes, the last one.
    let cost = |axis: usize| {
        let data = &view.data[axis];
        dot::rows_of_tile(data).1 as f64 / data.extent.unwrap_or(SUMS) as f64
    };
    let best = (0..axes.len()).rev().min_by(|a, b| cost(axes[*a]).total_cmp(&cost(axes[*b])));
    let names = axes.iter().map(|axis| view.data[*axis].name.clone()).collect();
    let row = axes[planner.chooser.index(&name, "rows along", names, best.unwrap_or(0))];
    let (side, _) = dot::rows_of_tile(&view.data[row]);
    dot.tile = dot.tile.map(|sides| Sides { rows: side, ..sides });
    // Two by two registers read each factor twice as seldom as one; a narrow tile has more rows.
    let usual = match width / SUMS {
        1 => 3,
        2 => 2,
        _ => 1,
    };
    let parts = view.data[row].size() / side;
    let most = (MOST_TILES * SUMS / width).min(4);
    // The usual number, or one beside it, without a rest.
    let whole = (1..=most.min(usual + 1)).rev().find(|count| parts % count == 0).unwrap_or(1);
    let third = third_axes(view, row, lane)
        .find(|axis| view.data[*axis].extent.is_some_and(|extent| extent >= 2) && whole < usual);
    let third = third.and_then(|axis| {
        let extent = view.data[axis].size();
        let mut counts: Vec<i64> = (1..=most.min(extent)).collect();
        counts.retain(|count| extent % count == 0 || *count <= 2);
        let whole = counts.iter().rev().find(|count| extent % **count == 0 && **count <= usual);
        let count = whole.copied().filter(|count| *count > 1).unwrap_or(usual.min(extent));
        let count = planner.chooser.pick(&name, "also", &counts, &count);
        (count > 1).then_some((axis, count))
    });
    let most = most / third.map_or(1, |(_, count)| count);
    let counts: Vec<i64> = (1..=most.min(parts)).collect();
    let count = match (third, whole) {
        (Some(_), _) => 1,
        (None, 1) => usual.min(parts),
        (None, count) => count,
    };
    let rows: Vec<i64> = counts.iter().map(|count| count * side).collect();
    (Some(row), third, planner.chooser.pick(&name, "rows", &rows, &(count * side)))
}

/// Chooses the axis of the rows, a third axis with its elements, and the number of rows.
fn choose_rows(
    planner: &mut Planner,
    subject: &Subject,
    lane: usize,
    width: i64,
) -> (Option<usize>, Option<(usize, i64)>, i64) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = planner.plans[subject.sum].name.clone();
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let attached = planner.plans[subject.home].anchor.is_some();
    let along = facts.tiles[subject.sum].iter().find(|tile| tile.lane == lane).copied();
    let same = along.filter(|_| !attached);
    let several =
        |axis: &usize| *axis != lane && view.data[*axis].extent.is_none_or(|extent| extent >= 2);
    let others: Vec<usize> = (0..view.data.len()).filter(several).collect();
    let mut names = vec!["none".to_string()];
    names.extend(others.iter().map(|axis| view.data[*axis].name.clone()));
    // By default rows that read the same vectors, else the axis next to the lanes.
    let shares = |axis: &usize| {
        let mut moving = view.loads.iter().filter(|load| load.mentions(&view.data[lane].var));
        moving.all(|load| !load.mentions(&view.data[*axis].var))
    };
    let default = match same {
        Some(tile) => others.iter().position(|axis| *axis == tile.row),
        None => others.iter().rposition(shares).or(others.len().checked_sub(1)),
    };
    let row = planner.chooser.index(&name, "rows along", names, default.map_or(0, |at| at + 1));
    let Some(row) = row.checked_sub(1).map(|at| others[at]) else { return (None, None, 1) };
    let vectors = (width + lanes - 1) / lanes;
    let same = same.filter(|tile| tile.row == row && tile.width == width);
    let of_registers = |vectors: i64| {
        let mut high = heights(view.data[row].size(), vectors, registers(planner.target, lanes));
        high.retain(|rows| *rows > 1);
        high
    };
    let product = facts.products[subject.sum].is_some() && !attached;
    let fits = |count: i64| product && !of_registers(count * vectors).is_empty();
    let taps = same.and_then(|tile| tile.taps);
    let third = choose_third(planner, subject.sum, (row, lane), taps, &fits);
    let mut high = of_registers(vectors * third.map_or(1, |(_, count)| count));
    let same = same.filter(|tile| tile.taps == third.map(|(axis, _)| axis));
    high.extend(same.map(|tile| tile.rows));
    if high.is_empty() {
        return (None, None, 1);
    }
    high.sort_unstable();
    high.dedup();
    // A stage that reads one tensor needs few registers.
    let most = if view.loads.len() == 1 { (lanes / 2).max(1) } else { 4 };
    let usual = high.iter().copied().filter(|rows| *rows <= most).max().unwrap_or(high[0]);
    let rows = same.map_or(usual, |tile| tile.rows);
    (Some(row), third, planner.chooser.pick(&name, "rows", &high, &rows))
}

/// Chooses a third axis of a tile, and its elements along it; by default as many as fit into
/// registers.
fn choose_third(
    planner: &mut Planner,
    at: usize,
    (row, lane): (usize, usize),
    default: Option<usize>,
    fits: &dyn Fn(i64) -> bool,
) -> Option<(usize, i64)> {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let name = planner.plans[at].name.clone();
    let counts = |axis: usize| -> Vec<i64> {
        let extent = view.data[axis].size();
        THIRD_AXIS_ELEMENTS.into_iter().filter(|count| *count <= extent && fits(*count)).collect()
    };
    let axes: Vec<usize> =
        third_axes(view, row, lane).filter(|axis| !counts(*axis).is_empty()).collect();
    let mut names = vec!["none".to_string()];
    names.extend(axes.iter().map(|axis| view.data[*axis].name.clone()));
    let usual = axes.iter().position(|axis| Some(*axis) == default);
    let chosen = planner.chooser.index(&name, "also along", names, usual.map_or(0, |at| at + 1));
    let axis = axes[chosen.checked_sub(1)?];
    let counts = counts(axis);
    let most = *counts.last().expect("an axis without a count is not asked for");
    Some((axis, planner.chooser.pick(&name, "also", &counts, &most)))
}

/// Chooses the tiles of blocks, the loop orders, and the terms of a block.
fn choose_blocks(planner: &mut Planner, subject: &Subject, form: &mut Tiling) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = planner.plans[subject.sum].name.clone();
    for (axis, data) in view.data.iter().enumerate() {
        let tiles = (data.size() + form.factor(axis) - 1) / form.factor(axis);
        let mut sizes = vec![1];
        sizes.extend([2, 4, 8, 16, 32].into_iter().filter(|size| *size < tiles));
        if tiles > 1 {
            sizes.push(0);
        }
        let names = sizes.iter().map(|size| match size {
            0 => "all".to_string(),
            size => size.to_string(),
        });
        let what = format!("block {}", data.name);
        form.blocks[axis] = sizes[planner.chooser.index(&name, &what, names.collect(), 0)];
    }
    let mut usual = usual_order(planner, subject, form);
    usual.retain(|axis| *axis >= view.steps && Some(*axis) != form.whole(view));
    let outer = usual.iter().copied().filter(|axis| form.blocks[*axis] != 0).collect();
    let inner: Vec<usize> = usual.iter().copied().filter(|axis| form.blocks[*axis] != 1).collect();
    let third = form.third.map(|(axis, _)| axis);
    let moving: Vec<usize> = form.row.into_iter().chain(third).chain([form.lane]).collect();
    form.outer = choose_order(planner, subject.sum, "order", outer, &moving);
    form.inner = choose_order(planner, subject.sum, "order in blocks", inner, &moving);
    let blocks = !form.inner.is_empty() && (form.in_place || !form.outer.is_empty());
    let Some(first) = view.reduce.first().filter(|_| blocks) else { return };
    let rest = view.reduce[1..].iter().fold(1i64, |n, axis| n.saturating_mul(axis.size()));
    let mut sizes = vec![0];
    sizes.extend([2, 4, 8, 16, 32, 64, 128, 256, 512].into_iter().filter(|size: &i64| {
        BLOCK_TERMS.contains(&size.saturating_mul(rest)) && 2 * size <= first.size()
    }));
    if let Some(dot) = form.dot.filter(|dot| dot.axis == 0) {
        // Blocks consist of whole instructions.
        sizes.retain(|size| size % dot.step() == 0);
    }
    let names = sizes.iter().map(|size| match size {
        0 => "all".to_string(),
        size => size.to_string(),
    });
    let what = format!("block {}", first.name);
    form.terms = sizes[planner.chooser.index(&name, &what, names.collect(), 0)];
}

/// Returns the loop order over tiles with the most reuse in L1: loops on which the vectors of a
/// tile do not depend are innermost.
fn usual_order(planner: &Planner, subject: &Subject, form: &Tiling) -> Vec<usize> {
    let view = &planner.facts.views[subject.sum];
    let lane = &view.data[form.lane];
    let moves = |axis: usize| {
        let mut vectors = view.loads.iter().filter(|load| load.mentions(&lane.var));
        vectors.any(|load| load.mentions(&view.data[axis].var))
    };
    if form.row.is_none_or(moves) {
        return (0..view.data.len()).collect();
    }
    let others = (0..view.data.len()).filter(|axis| *axis != form.lane && Some(*axis) != form.row);
    let (mut order, inside): (Vec<usize>, Vec<usize>) = others.partition(|axis| moves(*axis));
    let tail = lane.extent.is_none_or(|extent| extent % form.width != 0);
    let row = form.row;
    // The tail of the columns is peeled if the columns are not parallel.
    match (tail, inside.is_empty()) {
        (false, _) => {
            order.push(form.lane);
            order.extend(inside);
            order.extend(row);
        }
        (true, false) => {
            order.extend(inside);
            order.push(form.lane);
            order.extend(row);
        }
        (true, true) => {
            order.extend(row);
            order.push(form.lane);
        }
    }
    order
}

/// Chooses a loop order; `usual` is the default. If there are many orders, only the axes in
/// `moving` move.
fn choose_order(
    planner: &mut Planner,
    at: usize,
    what: &str,
    usual: Vec<usize>,
    moving: &[usize],
) -> Vec<usize> {
    let facts = planner.facts.clone();
    let name = planner.plans[at].name.clone();
    let mut orders = vec![usual.clone()];
    if (2..=4).contains(&usual.len()) {
        let mut sorted = usual.clone();
        sorted.sort_unstable();
        permutations(&mut Vec::new(), &sorted, &mut orders);
    } else if usual.len() > 4 {
        // The others stay in order.
        let mut others = usual.clone();
        others.retain(|axis| !moving.contains(axis));
        others.sort_unstable();
        let mut found = vec![others];
        for axis in moving.iter().filter(|axis| usual.contains(axis)) {
            let insert = |order: &Vec<usize>| {
                let put = |at| [&order[..at], &[*axis], &order[at..]].concat();
                (0..=order.len()).map(put).collect::<Vec<_>>()
            };
            found = found.iter().flat_map(insert).collect();
        }
        orders.extend(found);
    }
    let mut distinct: Vec<Vec<usize>> = Vec::new();
    for order in orders {
        if !distinct.contains(&order) {
            distinct.push(order);
        }
    }
    distinct.truncate(MAX_ORDERS);
    let text = |order: &Vec<usize>| {
        let names: Vec<&str> =
            order.iter().map(|axis| &facts.views[at].data[*axis].name[..]).collect();
        names.join(" ")
    };
    let names = distinct.iter().map(text).collect();
    let chosen = planner.chooser.index(&name, what, names, 0);
    distinct.swap_remove(chosen)
}

fn permutations(head: &mut Vec<usize>, all: &[usize], found: &mut Vec<Vec<usize>>) {
    if head.len() == all.len() {
        found.push(head.clone());
        return;
    }
    for item in all {
        if !head.contains(item) {
            head.push(*item);
            permutations(head, all, found);
            head.pop();
        }
    }
}

/// Chooses the packed factors.
fn choose_packing(planner: &mut Planner, subject: &Subject, form: &mut Tiling) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = planner.plans[subject.sum].name.clone();
    if let Some(Dot { load, .. }) = form.dot {
        // The instruction reads the terms of the other factor where they are.
        form.packed.push((load, Pack::Panels(form.lane)));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (at, load) in view.loads.iter().enumerate() {
        let buffer = &load.buffer.name[..];
        let several = view.loads.iter().filter(|other| other.buffer == load.buffer).count() > 1;
        let moves = |axis: usize| load.mentions(&view.data[axis].var);
        let axis = match form.row {
            _ if moves(form.lane) => form.lane,
            Some(row) if moves(row) => row,
            _ => continue,
        };
        if seen.contains(&buffer) {
            continue;
        }
        if let Some(stride) = phases(view, load, form.lane).filter(|_| !several) {
            seen.push(buffer);
            if planner.chooser.whether(&name, &format!("phases {buffer}"), true) {
                form.packed.push((at, Pack::Phases(stride)));
            }
            continue;
        }
        if facts.packed_dim(subject.sum, load, axis).is_none() {
            continue;
        }
        seen.push(buffer);
        let apart = load.stride(&view.data[axis].var) != Stride::By(1);
        let bytes = super::super::facts::elements(load)
            .map_or(0, |n| n.saturating_mul(load.buffer.dtype.bytes() as i64));
        let in_lanes = axis == form.lane;
        let product = facts.products[subject.sum].is_some();
        let must = in_lanes && apart && (product || load.packed_once);
        if several || (!must && bytes < MIN_PACK_BYTES) {
            if must {
                form.packed.push((at, Pack::Panels(axis)));
            }
            continue;
        }
        let default = in_lanes && product && packs(&facts, subject.sum, load, axis);
        let packed = must || planner.chooser.whether(&name, &format!("pack {buffer}"), default);
        if packed {
            form.packed.push((at, Pack::Panels(axis)));
        }
    }
}

/// Returns the stride in the last dimension at which a factor is read along the lanes, if a copy
/// with such elements next to each other is read often enough.
fn phases(view: &StageView, load: &Access, lane: usize) -> Option<i64> {
    let var = &view.data[lane].var;
    let last = load.indices.last()?;
    let step = coefficient(last, var, &mut FxHashMap::default())?;
    // The last dimension alone makes the stride.
    let alone = load.stride(var) == Stride::By(step);
    let again = |axis: &AxisView| axis.size() >= FEWEST_READS && !load.mentions(&axis.var);
    let read_again = view.data.iter().any(again);
    // Under a condition, the lanes of the copy would be masked one by one.
    let is_choice = |node: &Expr| matches!(node.kind, ExprKind::IfThenElse(..));
    let always = view.reduction.as_ref().is_some_and(|sum| {
        sum.condition.is_none()
            && !sum.terms.iter().any(|term| any_expr(term, &mut |e| is_choice(e)))
    });
    let pays = (2..=MAX_PHASES).contains(&step) && alone && read_again && always;
    (pays && view.direct.contains(&load.buffer) && !load.earlier).then_some(step)
}

/// Chooses which reduction loops are unrolled, and whether rows are unrolled where results are
/// stored.
fn choose_unroll(planner: &mut Planner, subject: &Subject, form: &mut Tiling) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = planner.plans[subject.sum].name.clone();
    let lanes = i64::from(planner.target.lanes(view.dtype));
    let high = form.rows * form.third.map_or(1, |(_, count)| count);
    let vectors = high * ((form.width + lanes - 1) / lanes);
    let mut choices = vec![("none".to_string(), Unroll::Nothing)];
    let mut steps = 1i64;
    let mut default = 0;
    let window = terms(&facts, subject.sum).is_some_and(|terms| terms <= MAX_WINDOW);
    // An instruction adds several terms already.
    let loops = if form.dot.is_some() { 0 } else { view.reduce.len() };
    for count in 1..=loops {
        let axis = &view.reduce[view.reduce.len() - count];
        // A block of terms is a part of the first axis.
        let blocked = form.terms > 0 && count == view.reduce.len();
        let extent = if blocked { Some(form.terms) } else { axis.extent };
        let Some(extent) = extent else { break };
        steps = steps.saturating_mul(extent);
        if steps > MAX_WINDOW || steps.saturating_mul(vectors) > MAX_UNROLLED_VECTORS {
            break;
        }
        let names: Vec<&str> =
            view.reduce[view.reduce.len() - count..].iter().map(|a| &a.name[..]).collect();
        choices.push((names.join(" "), Unroll::Loops(count)));
        let small = count == 1 && steps.saturating_mul(vectors) <= MAX_DEFAULT_UNROLLED_VECTORS;
        if window || small {
            default = choices.len() - 1;
        }
    }
    let last = view.reduce.last().map_or(1, |axis| axis.size());
    let last = if form.terms > 0 && view.reduce.len() == 1 { form.terms } else { last };
    for part in [2, 4, 8] {
        if form.dot.is_none() && 2 * part <= last && part * vectors <= MAX_UNROLLED_VECTORS {
            choices.push((part.to_string(), Unroll::Part(part)));
        }
    }
    let names = choices.iter().map(|(name, _)| name.clone()).collect();
    form.unroll = choices[planner.chooser.index(&name, "unroll", names, default)].1;
    let last = |axis: usize| subject.map[axis] + 1 == subject.map.len();
    let stored = last(form.lane) || form.row.is_some_and(last);
    form.flat_rows = !form.in_place && form.row.is_some() && stored;
    if form.flat_rows {
        form.flat_rows = planner.chooser.whether(&name, "unroll rows", high <= 16);
    }
}

/// Chooses the prefetch distance. Hardware prefetchers mostly suffice, and only a measurement shows
/// a benefit, so there is no choice without measurements.
fn choose_prefetch(planner: &mut Planner, subject: &Subject, form: &mut Tiling) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let target = planner.target;
    let has_instruction = target.simd().is_some();
    // Fully unrolled loops have no later iteration.
    let all = form.unroll == Unroll::Loops(view.reduce.len());
    if planner.threads == 0 || !has_instruction || all || is_window(planner, subject.sum) {
        return;
    }
    let lane = &view.data[form.lane].var;
    let there = |at: usize| {
        let load = &view.loads[at];
        load.mentions(lane)
            && (load.producer.is_none() || form.packed.iter().any(|(one, _)| *one == at))
    };
    let Some(read) = (0..view.loads.len()).find(|at| there(*at)) else { return };
    let name = planner.plans[subject.sum].name.clone();
    let what = format!("prefetch {}", view.loads[read].buffer.name);
    let distance = planner.chooser.pick(&name, &what, &[0, 4, 16], &0);
    form.prefetched = (distance > 0).then_some((read, distance));
}

impl Tiling {
    /// Returns the values of `of` for the unrolled axes of a tile, outermost first.
    pub(super) fn rows_of<T>(&self, of: impl Fn(usize) -> Option<T>) -> Vec<T> {
        let third = self.third.map(|(axis, _)| axis);
        third.into_iter().chain(self.row).filter_map(of).collect()
    }

    /// Returns the third axis, if a tile has all of it.
    pub(super) fn whole(&self, view: &StageView) -> Option<usize> {
        let (axis, count) = self.third?;
        (view.data[axis].extent == Some(count)).then_some(axis)
    }

    /// Returns the elements of a tile along an axis.
    pub(super) fn factor(&self, axis: usize) -> i64 {
        match axis {
            axis if axis == self.lane => self.width,
            axis if Some(axis) == self.row => self.rows,
            axis => self.third.filter(|(third, _)| *third == axis).map_or(1, |(_, count)| count),
        }
    }
}

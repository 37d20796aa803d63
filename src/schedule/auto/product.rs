//! The rule for matrix products and convolutions: `product`.
//!
//! `C[x, y] = sum(A[x, k] * B[k, y])`: a tile of `rows` × `vectors` results stays in registers
//! while `k` runs, so that each element of `A` is used for all lanes and each vector of `B` for
//! all rows. Which axis is in lanes, which one is the rows, and how large the tile is follows from
//! an estimate of the cycles. A stage that only reads the results one by one (an added bias, a
//! rectifier) is computed with them.

use super::plan::Planner;
use super::view::{Access, AxisView, Stride, View};
use crate::target::Arch;

/// Fewer terms than this leave a tile in registers no time to pay.
const MIN_TERMS: i64 = 8;
/// Vectors of a tile's row.
const MAX_VECTORS: i64 = 4;
/// Rows of a tile.
const MAX_ROWS: i64 = 14;
/// Factors up to this size, in bytes, are read where they are.
const PACK_BYTES: i64 = 1 << 15;
/// What lies a multiple of so many bytes apart shares a set of the first cache, of which each has
/// room for [`WAYS`] lines and those of the other factor.
const SET_BYTES: i64 = 1 << 12;
const WAYS: i64 = 8;

/// How a product is computed.
struct Tile {
    /// Data axes of the reduction.
    row: usize,
    lane: usize,
    rows: i64,
    /// Lanes of all vectors together.
    width: i64,
    /// Cycles, estimated.
    cycles: f64,
}

/// A tile of results in registers.
pub(super) fn product(planner: &mut Planner, at: usize) -> bool {
    if planner.plans[at].anchor.is_some() {
        return false;
    }
    let (stage, map) = match planner.views[at].reduction {
        Some(_) => (at, (0..planner.views[at].data.len()).collect()),
        None => match producer(planner, at) {
            Some(found) => found,
            None => return false,
        },
    };
    let Some(tile) = best_tile(planner, stage) else { return false };
    write(planner, at, stage, &map, &tile);
    true
}

/// Whether a stage is one that is computed in tiles.
pub(super) fn is_product(planner: &Planner, at: usize) -> bool {
    planner.views[at].reduction.is_some() && best_tile(planner, at).is_some()
}

/// The product that a stage without reduction reads one by one, and for each axis of the product
/// the axis of the reader.
fn producer(planner: &Planner, at: usize) -> Option<(usize, Vec<usize>)> {
    let reader = &planner.views[at];
    for stage in (0..at).rev() {
        let view = &planner.views[stage];
        let readers = planner.views.iter().filter(|v| !v.inlined && v.reads(stage)).count();
        if view.reduction.is_none() || view.output || readers != 1 || !reader.reads(stage) {
            continue;
        }
        let mut maps = reader.loads.iter().filter(|load| load.of == Some(stage)).map(|load| {
            let axis = |index: &crate::ir::Expr| {
                let var = index.as_var()?;
                reader.data.iter().position(|axis| axis.var == *var)
            };
            load.indices.iter().map(axis).collect::<Option<Vec<usize>>>()
        });
        let Some(Some(map)) = maps.next() else { continue };
        let all = (0..reader.data.len()).all(|axis| map.contains(&axis));
        let same = |axis: usize| reader.data[map[axis]].extent == view.data[axis].extent;
        let one_by_one = all && map.len() == reader.data.len() && (0..map.len()).all(same);
        if one_by_one && maps.all(|other| other.as_ref() == Some(&map)) {
            return Some((stage, map));
        }
    }
    None
}

/// The tile that takes the fewest cycles; none if nothing is read more than once.
fn best_tile(planner: &Planner, stage: usize) -> Option<Tile> {
    let view = &planner.views[stage];
    let terms = view.reduce.iter().fold(1i64, |n, axis| n.saturating_mul(axis.size()));
    if view.tuple || terms < MIN_TERMS {
        return None;
    }
    let mut best: Option<Tile> = None;
    for lane in 0..view.data.len() {
        for row in (0..view.data.len()).filter(|row| *row != lane) {
            let Some(extra) = reuse(planner, stage, row, lane) else { continue };
            let Some(mut tile) = sized(planner, view, row, lane) else { continue };
            tile.cycles += extra;
            if best.as_ref().is_none_or(|best| tile.cycles < best.cycles) {
                best = Some(tile);
            }
        }
    }
    best
}

/// If some factor is used again along both axes: the cycles for packing and for the results.
fn reuse(planner: &Planner, stage: usize, row: usize, lane: usize) -> Option<f64> {
    let view = &planner.views[stage];
    let lanes = f64::from(planner.target.lanes(view.dtype));
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
        if !contiguous && packed_dim(planner, stage, load, columns).is_none() {
            return None;
        }
        if packs(planner, stage, load, columns) {
            let each = if contiguous { 4.0 / lanes } else { 2.0 };
            cycles += elements(load).unwrap_or(0) as f64 * each;
        }
    }
    let last = lane + 1 == view.data.len();
    cycles += view.elements() as f64 * if last { 2.0 / lanes } else { 1.0 };
    Some(cycles)
}

/// The best size of a tile with the given axes.
fn sized(planner: &Planner, view: &View, row: usize, lane: usize) -> Option<Tile> {
    let target = planner.target;
    let lanes = i64::from(target.lanes(view.dtype));
    // Without vectors a few scalars side by side.
    let step = lanes.max(if lanes == 1 { 4 } else { 1 });
    let registers = if target.name == "x86-avx512" || lanes < 4 || target.arch == Arch::Aarch64 {
        32
    } else {
        16
    };
    let (rows, columns) = (view.data[row].size(), view.data[lane].size());
    let steps = view.points() as f64 / (rows as f64 * columns as f64).max(1.0);
    let mut best: Option<Tile> = None;
    // Rows next to each other in memory use whole lines of the cache.
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
    for width in widths(columns, step) {
        for height in 2..=MAX_ROWS.min(rows) {
            let parts = |n: i64| (n + lanes.max(1) - 1) / lanes.max(1);
            if (height + 1) * parts(width) + 1 > registers {
                break;
            }
            let cycles = |height: i64, width: i64| {
                let vectors = parts(width);
                let (used, loads) = ((height * vectors) as f64, (height + vectors) as f64);
                // Two multiply-adds and two loads in a cycle; a result takes four.
                (used / 2.0).max(loads / 2.0).max(4.0) + 0.5
            };
            // Whole tiles, and the rest in both directions.
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
                best = Some(Tile { row, lane, rows: height, width, cycles });
            }
        }
    }
    best
}

/// The widths that a tile may have: some vectors, or a part of the extent without a rest.
fn widths(extent: i64, step: i64) -> Vec<i64> {
    let most = MAX_VECTORS * step;
    let whole = (1..=MAX_VECTORS).map(|vectors| vectors * step).filter(|width| *width <= extent);
    let parts = (step / 2..=most).filter(|width| extent % width == 0);
    whole.chain(parts).chain((extent < step).then_some(extent)).collect()
}

/// An extent in pieces: their size and number, and the same of the rest.
fn pieces(extent: i64, size: i64) -> impl Iterator<Item = (i64, i64)> {
    let rest = extent % size;
    [(size, extent / size), (rest, i64::from(rest > 0))].into_iter().filter(|piece| piece.1 > 0)
}

/// Elements of what is read, if that is known.
fn elements(load: &Access) -> Option<i64> {
    load.buffer
        .shape
        .iter()
        .try_fold(1i64, |n, extent| n.checked_mul(i64::try_from(extent.as_int()?).ok()?))
}

/// The dimension of a factor that the axis alone indexes, where the factor can be packed.
fn packed_dim(planner: &Planner, stage: usize, load: &Access, axis: &AxisView) -> Option<usize> {
    elements(load)?;
    let directly = planner.views[stage].direct.contains(&load.buffer);
    let dim = load.indices.iter().position(|index| index.as_var() == Some(&axis.var))?;
    let alone = load.indices.iter().enumerate().all(|(at, index)| {
        at == dim || super::view::coefficient(index, &axis.var, &mut Default::default()) == Some(0)
    });
    (directly && alone).then_some(dim)
}

/// Whether a factor is packed: its vectors lie apart in memory, and it is too large for that not
/// to matter.
fn packs(planner: &Planner, stage: usize, load: &Access, axis: &AxisView) -> bool {
    let bytes = elements(load).map(|n| n.saturating_mul(load.buffer.dtype.bytes() as i64));
    packed_dim(planner, stage, load, axis).is_some()
        && (load.stride(&axis.var) != Stride::By(1) || bytes.is_some_and(|b| b > PACK_BYTES))
}

/// Writes the directives: `at` has the loops of the tiles, `stage` is computed in them.
fn write(planner: &mut Planner, at: usize, stage: usize, map: &[usize], tile: &Tile) {
    let view = &planner.views[stage];
    let (row, lane) = (view.data[tile.row].clone(), view.data[tile.lane].clone());
    let lanes = planner.target.lanes(view.dtype) > 1;
    let columns = if lanes { "lanes" } else { "columns" };
    let why = format!(
        "{} rows along `{}` and {} {columns} along `{}` stay in registers while the terms are \
         summed",
        tile.rows, row.name, tile.width, lane.name
    );
    let product = planner.plans[stage].name.clone();
    let name = planner.plans[at].name.clone();
    planner.text.rule("product", &why);
    let sum = match at == stage {
        true => {
            let sum = planner.text.fresh(&name, "_tile");
            planner.text.push(format!("let {sum} = {name}.cache_write(local)"));
            sum
        }
        false => product,
    };
    pack(planner, stage, &sum, &lane, tile.width);
    if at != stage {
        planner.plans[at].tile_work = planner.work(stage);
    }
    tiles(planner, at, stage, map, tile);
    let leaves = &planner.plans[at].leaves;
    let place = leaves[leaves.len() - 3].name.clone();
    planner.text.push(format!("{sum}.compute_at({name}, {place})"));
    if at != stage {
        planner.text.push(format!("{sum}.set_scope(local)"));
    }
    let view = &planner.views[stage];
    let others = view.data.iter().filter(|axis| axis.var != row.var && axis.var != lane.var);
    let loops = others.chain(&view.reduce).chain([&row, &lane]);
    let loops: Vec<&str> = loops.map(|axis| &axis.name[..]).collect();
    planner.text.push(format!("{sum}.reorder({})", loops.join(", ")));
    planner.text.push(format!("{sum}.unroll({})", row.name));
    let how = if lanes { "vectorize" } else { "unroll" };
    planner.text.push(format!("{sum}.{how}({})", lane.name));
    if at != stage {
        let plan = &mut planner.plans[stage];
        plan.done = true;
        // Nothing is computed in its loops: they run once for each tile.
        plan.leaves.clear();
    }
}

/// Splits the loops of the results: tiles outside, one tile inside.
fn tiles(planner: &mut Planner, at: usize, stage: usize, map: &[usize], tile: &Tile) {
    let (row, lane) = (map[tile.row], map[tile.lane]);
    let count = planner.views[at].data.len();
    // Leaves that leave: the product's terms are another stage's now.
    planner.plans[at].leaves.truncate(count);
    let (first, second) = (row.max(lane), row.min(lane));
    let factor = |axis: usize| if axis == row { tile.rows } else { tile.width };
    planner.split(at, first, factor(first));
    planner.split(at, second, factor(second));
    let outer_of = |axis: usize| axis + usize::from(axis > second);
    let (row_o, lane_o) = (outer_of(row), outer_of(lane));
    // What the vectors of a tile do not depend on runs inside of the tiles' columns.
    let view = &planner.views[stage];
    let lane_var = &view.data[tile.lane].var;
    let (mut outside, mut inside) = (Vec::new(), Vec::new());
    for (axis, other) in view.data.iter().enumerate() {
        if axis == tile.row || axis == tile.lane {
            continue;
        }
        let mut columns = view.loads.iter().filter(|load| load.mentions(lane_var));
        let moves = columns.any(|load| load.mentions(&other.var));
        let leaf = map[axis] + usize::from(map[axis] > first) + usize::from(map[axis] > second);
        if moves { outside.push(leaf) } else { inside.push(leaf) }
    }
    let mut order = outside;
    // The rest of the columns is code of its own where threads do not share out the columns.
    let leaves = &planner.plans[at].leaves;
    match (leaves[lane_o].tail, inside.is_empty()) {
        (false, _) => {
            order.push(lane_o);
            order.extend(inside);
            order.push(row_o);
        }
        (true, false) => {
            order.extend(inside);
            order.extend([lane_o, row_o]);
        }
        (true, true) => order.extend([row_o, lane_o]),
    }
    // The tile itself runs as the results lie in memory.
    order.extend([outer_of(second) + 1, outer_of(first) + 1]);
    planner.reorder(at, &order);
    let vectors = planner.target.lanes(planner.views[at].dtype) > 1;
    if vectors && first + 1 == count {
        let inner = planner.plans[at].leaves.len() - 1;
        planner.annotate(at, inner, "vectorize");
    }
    let leaves = &planner.plans[at].leaves;
    let outer = leaves.len() - 2;
    let columns = leaves.iter().take(outer).take_while(|leaf| leaf.axes != [lane] || !leaf.tail);
    let shared = columns.count();
    planner.parallelize(at, shared);
}

/// Packs the factors whose vectors lie apart.
fn pack(planner: &mut Planner, stage: usize, reader: &str, lane: &AxisView, width: i64) {
    let count = planner.views[stage].loads.len();
    let mut done: Vec<String> = Vec::new();
    for load in 0..count {
        let access = &planner.views[stage].loads[load];
        let name = access.buffer.name.clone();
        if !access.mentions(&lane.var)
            || !packs(planner, stage, access, lane)
            || done.contains(&name)
        {
            continue;
        }
        let dim = packed_dim(planner, stage, access, lane).expect("it packs");
        let contiguous = access.stride(&lane.var) == Stride::By(1);
        let why = format!("the vectors of `{name}` along `{}` become neighbours", lane.name);
        copy(planner, stage, load, (reader, dim, width), &why, contiguous);
        done.push(name);
    }
}

/// A copy in which `width` elements of dimension `dim` are neighbours.
fn copy(
    planner: &mut Planner,
    stage: usize,
    load: usize,
    (reader, dim, width): (&str, usize, i64),
    why: &str,
    contiguous: bool,
) {
    let access = &planner.views[stage].loads[load];
    let (name, rank) = (access.buffer.name.clone(), access.indices.len());
    let dtype = access.buffer.dtype;
    let extent = |dim: usize| access.buffer.shape[dim].as_int().unwrap_or(1) as i64;
    let extents: Vec<i64> = (0..rank).map(extent).collect();
    let lanes = i64::from(planner.target.lanes(dtype));
    planner.text.rule("pack", why);
    let packed = planner.text.fresh(&name, "_packed");
    let mut layout = vec![format!("ax{dim} // {width}")];
    layout.extend((0..rank).filter(|other| *other != dim).map(|other| format!("ax{other}")));
    layout.push(format!("ax{dim} % {width}"));
    let layout = layout.join(", ");
    planner
        .text
        .push(format!("let {packed} = {name}.cache_read(global, [{reader}], layout=[{layout}])"));
    // The dimension along which the source is contiguous goes in pieces of a vector: together
    // with the lanes a transposition in registers.
    let along = rank - 1;
    if !contiguous && dim != along && lanes > 1 && extents[along] >= lanes {
        let (outer, inner) = (planner.text.fresh(&packed, "_o"), planner.text.fresh(&packed, "_i"));
        let axis = format!("p{along}");
        planner.text.push(format!("let {outer}, {inner} = {packed}.split({axis}, factor={lanes})"));
        planner.text.push(format!("{packed}.unroll({inner})"));
    }
    if lanes > 1 {
        planner.text.push(format!("{packed}.vectorize(p{rank})"));
    }
    let parts = (extents[dim] + width - 1) / width;
    if extents.iter().product::<i64>() >= 1 << 16 && parts > 1 {
        planner.text.push(format!("{packed}.parallel(p0)"));
    }
}

//! The directives of a tiling.

use super::super::plan::{Annotation, Planner, Tail};
use super::dot::{self, Dot, Sides};
use super::pack::{pack, pack_phases};
use super::{Pack, Subject, Tiling, Unroll};

/// The loops of an axis of the home, by level.
#[derive(Default)]
struct Loops {
    outer: Option<String>,
    inner: Option<String>,
    tile: Option<String>,
}

/// A prefetched tensor, and the distance in iterations.
struct Prefetch {
    name: String,
    distance: i64,
}

pub(super) fn write(planner: &mut Planner, subject: &Subject, form: &Tiling) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let (home, name) = (subject.home, planner.plans[subject.home].name.clone());
    let columns = if planner.target.lanes(view.dtype) > 1 { "lanes" } else { "columns" };
    let mut why = match form.row {
        Some(row) => format!("{} rows along `{}`", form.rows, view.data[row].name),
        None => String::new(),
    };
    if let Some((axis, count)) = form.third {
        why += &format!(", {count} along `{}`", view.data[axis].name);
    }
    why += if form.row.is_some() { " and " } else { "" };
    let lane = &view.data[form.lane].name;
    why +=
        &format!("{} {columns} along `{lane}` stay in registers while terms are added", form.width);
    planner.text.rule("tile", &why);
    if let Some(Dot { intrinsic, terms, tile, .. }) = form.dot {
        let sums = dot::SUMS;
        let why = match tile {
            Some(Sides { rows, groups }) => {
                format!("an instruction adds {} terms to {rows} x {sums} sums", groups * terms)
            }
            None => format!("an instruction adds {terms} terms in {sums} lanes"),
        };
        planner.text.rule("tensorize", &why);
        planner.text.need_intrinsic(intrinsic);
    }
    let sum = match (form.in_place, home == subject.sum) {
        (true, _) => name.clone(),
        (false, true) => {
            let sum = planner.text.fresh(&name, "_tile");
            let scope = if form.terms > 0 { "global" } else { "local" };
            planner.text.push(format!("let {sum} = {name}.cache_write({scope})"));
            sum
        }
        (false, false) => planner.plans[subject.sum].name.clone(),
    };
    let mut ahead = form
        .prefetched
        .map(|(load, distance)| Prefetch { name: view.loads[load].buffer.name.clone(), distance });
    for (load, order) in &form.packed {
        let packed = match order {
            Pack::Panels(axis) => pack(planner, subject.sum, &sum, (*load, *axis), form),
            Pack::Phases(stride) => {
                pack_phases(planner, (subject.sum, *load), &sum, (*stride, form.lane))
            }
        };
        if let (Some(ahead), Some((at, _))) = (&mut ahead, form.prefetched)
            && at == *load
        {
            ahead.name = packed;
        }
    }
    if home != subject.sum {
        planner.plans[home].tile_work = planner.work(subject.sum);
    }
    let reduce = planner.plans[subject.sum].leaves.clone();
    let reduce: Vec<String> =
        reduce.iter().filter(|leaf| leaf.reduce).map(|leaf| leaf.name.clone()).collect();
    planner.plans[home].copies = !form.in_place;
    if !form.in_place {
        // The reduction is another stage now.
        planner.plans[home].leaves.retain(|leaf| !leaf.reduce);
    }
    if form.in_place {
        in_place(planner, subject, form, reduce, ahead);
    } else {
        write_separate_sums(planner, subject, form, &sum, reduce, ahead);
    }
}

/// Splits the axes of the home.
fn split(planner: &mut Planner, subject: &Subject, form: &Tiling) -> Vec<Loops> {
    let home = subject.home;
    let facts = planner.facts.clone();
    let whole = form.whole(&facts.views[subject.sum]);
    let mut loops: Vec<Loops> = Vec::new();
    for axis in 0..subject.map.len() {
        let mut of = Loops::default();
        let Some(mut leaf) = planner.plans[home].leaf_of(subject.map[axis]) else {
            // A step of a recurrence.
            loops.push(of);
            continue;
        };
        let mut name = planner.plans[home].leaves[leaf].name.clone();
        if Some(axis) == whole {
            loops.push(Loops { tile: Some(name), ..of });
            continue;
        }
        if form.factor(axis) > 1 || axis == form.lane || Some(axis) == form.row {
            let tail = if axis == form.lane { form.tail } else { Tail::Auto };
            let (outer, tile) = planner.split_tail(home, leaf, form.factor(axis), tail);
            name = outer;
            leaf = planner.leaf(home, &name);
            of.tile = Some(tile);
        }
        match form.blocks[axis] {
            0 => of.inner = Some(name),
            1 => of.outer = Some(name),
            size => {
                let (outer, inner) = planner.split(home, leaf, size);
                (of.outer, of.inner) = (Some(outer), Some(inner));
            }
        }
        loops.push(of);
    }
    loops
}

/// Returns the loops over blocks, those over the tiles of a block, and those of a tile in the order
/// of the output's axes.
fn levels(subject: &Subject, form: &Tiling, loops: &[Loops]) -> [Vec<String>; 3] {
    let outer = form.outer.iter().filter_map(|axis| loops[*axis].outer.clone()).collect();
    let inner = form.inner.iter().filter_map(|axis| loops[*axis].inner.clone()).collect();
    let mut tile: Vec<usize> =
        (0..loops.len()).filter(|axis| loops[*axis].tile.is_some()).collect();
    tile.sort_by_key(|axis| subject.map[*axis]);
    let tile = tile.iter().filter_map(|axis| loops[*axis].tile.clone()).collect();
    [outer, inner, tile]
}

/// Writes sums in the output: all loops belong to one stage.
fn in_place(
    planner: &mut Planner,
    subject: &Subject,
    form: &Tiling,
    reduce: Vec<String>,
    ahead: Option<Prefetch>,
) {
    let home = subject.home;
    let loops = split(planner, subject, form);
    let [outer, inner, _] = levels(subject, form, &loops);
    let mut terms = reduce;
    let mut block = None;
    if form.terms > 0 {
        let leaf = planner.leaf(home, &terms[0]);
        let (outside, inside) = planner.split(home, leaf, form.terms);
        block = Some(outside);
        terms[0] = inside;
    }
    let mut flat = unrolled(form, &terms);
    if let Unroll::Part(part) = form.unroll {
        let last = terms.pop().expect("a reduction has terms");
        let leaf = planner.leaf(home, &last);
        let (outside, inside) = planner.split(home, leaf, part);
        terms.extend([outside, inside.clone()]);
        flat = vec![inside];
    }
    let mut rows = form.rows_of(|axis| loops[axis].tile.clone());
    let lane = loops[form.lane].tile.clone().expect("lanes are split off");
    let mut inside = vec![lane.clone()];
    if let Some(dot) = form.dot {
        let mut split = |planner: &mut Planner, name: &str, factor: i64| {
            let leaf = planner.leaf(home, name);
            planner.split(home, leaf, factor)
        };
        inside = split_for(planner, form, dot, (&mut terms, &mut rows, lane), &mut split);
    }
    let named = inside[0].clone();
    let over_terms = terms.iter().rfind(|name| !flat.contains(name)).cloned();
    let shared = outer.len() + if block.is_none() { inner.len() } else { 0 };
    let mut order = outer;
    order.extend(block);
    order.extend(inner);
    order.extend(over_tile(form, terms, &rows));
    order.extend(inside);
    planner.reorder(home, &order);
    for name in flat.iter().chain(&rows) {
        let leaf = planner.leaf(home, name);
        planner.annotate(home, leaf, Annotation::Unroll);
    }
    let name = planner.plans[home].name.clone();
    if let Some(Dot { intrinsic, .. }) = form.dot {
        let permission = planner.facts.permission(subject.sum);
        planner.text.push(format!("{name}.tensorize({named}, {intrinsic}{permission})"));
    } else {
        let annotation = lane_annotation(planner, subject.sum);
        let leaf = planner.leaf(home, &named);
        planner.annotate(home, leaf, annotation);
    }
    prefetch(planner, &name, over_terms, ahead);
    planner.parallelize(home, shared);
    planner.plans[home].open = planner.plans[home].outer();
}

/// Splits the loops of an instruction off those of a tile: the loops over terms, those over rows
/// and vectors, and the one over lanes. Returns the instruction's loops, outermost first.
fn split_for(
    planner: &mut Planner,
    form: &Tiling,
    dot: Dot,
    (terms, rows, lane): (&mut [String], &mut Vec<String>, String),
    split: &mut dyn FnMut(&mut Planner, &str, i64) -> (String, String),
) -> Vec<String> {
    let (outer, mut step) = split(planner, &terms[dot.axis], dot.step());
    terms[dot.axis] = outer;
    let mut inside = Vec::new();
    if let Some(Sides { rows: side, .. }) = dot.tile {
        let mut row = rows.pop().expect("tile registers have rows");
        if form.rows > side {
            let (outer, inner) = split(planner, &row, side);
            rows.push(outer);
            row = inner;
        }
        inside.push(row);
    }
    let mut lanes = lane;
    if form.width > dot::SUMS {
        let (vectors, sums) = split(planner, &lanes, dot::SUMS);
        rows.push(vectors);
        lanes = sums;
    }
    inside.push(lanes);
    if dot.tile.is_some() {
        let (groups, group) = split(planner, &step, dot.terms);
        inside.push(groups);
        step = group;
    }
    inside.push(step);
    inside
}

/// The annotation of a loop over lanes.
fn lane_annotation(planner: &Planner, at: usize) -> Annotation {
    let lanes = planner.target.lanes(planner.facts.views[at].dtype) > 1;
    if lanes { Annotation::Vectorize } else { Annotation::Unroll }
}

/// Returns the loops over a tile's terms and rows, in order.
fn over_tile(form: &Tiling, terms: Vec<String>, rows: &[String]) -> Vec<String> {
    let rows = rows.iter().cloned();
    if form.by_row { rows.chain(terms).collect() } else { terms.into_iter().chain(rows).collect() }
}

/// Returns the reduction loops that are unrolled.
fn unrolled(form: &Tiling, terms: &[String]) -> Vec<String> {
    match form.unroll {
        Unroll::Loops(count) => terms[terms.len() - count..].to_vec(),
        _ => Vec::new(),
    }
}

/// Writes sums in a separate buffer, computed at the loops over tiles.
fn write_separate_sums(
    planner: &mut Planner,
    subject: &Subject,
    form: &Tiling,
    sum: &str,
    reduce: Vec<String>,
    ahead: Option<Prefetch>,
) {
    let home = subject.home;
    let loops = split(planner, subject, form);
    let [outer, inner, tile] = levels(subject, form, &loops);
    // A block of terms is added to all tiles of a block before the next one.
    let around = if form.terms > 0 { outer.len() } else { outer.len() + inner.len() };
    let order: Vec<String> = [&outer[..], &inner, &tile].concat();
    planner.reorder(home, &order);
    let last = planner.plans[home].leaves.len() - 1;
    let contiguous = |axis: usize| subject.map[axis] + 1 == subject.map.len();
    let lanes = planner.target.lanes(planner.facts.views[home].dtype) > 1;
    if lanes && (contiguous(form.lane) || form.row.is_some_and(contiguous)) {
        planner.annotate(home, last, Annotation::Vectorize);
    }
    for row in 1..tile.len() {
        if form.flat_rows {
            planner.annotate(home, last - row, Annotation::Unroll);
        }
    }
    let gone = planner.parallelize(home, around);
    let place = (around - gone).checked_sub(1);
    planner.plans[home].open = around - gone;
    if let Some(place) = place {
        let (name, at) = (&planner.plans[home].name, &planner.plans[home].leaves[place].name);
        planner.text.push(format!("{sum}.compute_at({name}, {at})"));
    }
    if home != subject.sum && form.terms == 0 {
        planner.text.push(format!("{sum}.set_scope(local)"));
    }
    sums(planner, subject, form, sum, reduce, ahead);
    if home != subject.sum {
        let plan = &mut planner.plans[subject.sum];
        plan.done = true;
        // No stage is computed at its loops.
        plan.leaves.clear();
        plan.anchor = place.map(|place| (home, place));
    }
}

/// Writes the loops of the sums: of one tile, or of the tiles of a block.
fn sums(
    planner: &mut Planner,
    subject: &Subject,
    form: &Tiling,
    sum: &str,
    reduce: Vec<String>,
    ahead: Option<Prefetch>,
) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = |axis: usize| view.data[axis].name.clone();
    let mut order: Vec<String> = Vec::new();
    let mut terms = reduce;
    let mut lane = name(form.lane);
    let mut rows = form.rows_of(|axis| Some(name(axis)));
    if form.terms > 0 {
        let mut tiles: Vec<Option<String>> = (0..view.data.len()).map(|a| Some(name(a))).collect();
        let (block, inside) = split_in(planner, sum, &terms[0], form.terms, Tail::Auto);
        terms[0] = inside;
        let (outer, tile) = split_in(planner, sum, &lane, form.width, form.tail);
        tiles[form.lane] = Some(outer);
        lane = tile;
        let axes = form.rows_of(Some);
        for (at, row) in axes.into_iter().zip(&mut rows) {
            if form.whole(view) == Some(at) {
                tiles[at] = None;
                continue;
            }
            let (outer, tile) = split_in(planner, sum, row, form.factor(at), Tail::Auto);
            tiles[at] = Some(outer);
            *row = tile;
        }
        order.push(block);
        // Axes without a loop in a block have a single tile.
        let single = (0..tiles.len()).filter(|axis| !form.inner.contains(axis));
        let axes: Vec<usize> = single.chain(form.inner.iter().copied()).collect();
        order.extend(axes.iter().filter_map(|axis| tiles[*axis].clone()));
    } else {
        let in_tile = form.rows_of(Some);
        let others = (0..view.data.len()).filter(|a| *a != form.lane && !in_tile.contains(a));
        order.extend(others.map(name));
    }
    let mut flat = unrolled(form, &terms);
    if let Unroll::Part(part) = form.unroll {
        let last = terms.pop().expect("a reduction has terms");
        let (outside, inside) = split_in(planner, sum, &last, part, Tail::Auto);
        terms.extend([outside, inside.clone()]);
        flat = vec![inside];
    }
    let mut inside = vec![lane.clone()];
    if let Some(dot) = form.dot {
        let mut split = |planner: &mut Planner, name: &str, factor: i64| {
            split_in(planner, sum, name, factor, Tail::Auto)
        };
        inside = split_for(planner, form, dot, (&mut terms, &mut rows, lane), &mut split);
    }
    let named = inside[0].clone();
    let over_terms = terms.iter().rfind(|name| !flat.contains(name)).cloned();
    order.extend(over_tile(form, terms, &rows));
    order.extend(inside);
    planner.text.push(format!("{sum}.reorder({})", order.join(", ")));
    for axis in flat.iter().chain(&rows) {
        planner.text.push(format!("{sum}.unroll({axis})"));
    }
    planner.text.push(match form.dot {
        Some(Dot { intrinsic, .. }) => {
            let permission = planner.facts.permission(subject.sum);
            format!("{sum}.tensorize({named}, {intrinsic}{permission})")
        }
        None => {
            let directive = lane_annotation(planner, subject.sum).directive();
            format!("{sum}.{directive}({named})")
        }
    });
    prefetch(planner, sum, over_terms, ahead);
}

/// Writes the prefetch for a later iteration of a reduction loop.
fn prefetch(
    planner: &mut Planner,
    stage: &str,
    over_terms: Option<String>,
    ahead: Option<Prefetch>,
) {
    if let (Some(axis), Some(Prefetch { name, distance })) = (over_terms, ahead) {
        planner.text.push(format!("{stage}.prefetch({name}, {axis}, {distance})"));
    }
}

/// Splits a loop of a stage that has no plan.
fn split_in(
    planner: &mut Planner,
    stage: &str,
    axis: &str,
    factor: i64,
    tail: Tail,
) -> (String, String) {
    let (outer, inner) = (planner.text.fresh(axis, "_o"), planner.text.fresh(axis, "_i"));
    let tail = tail.argument();
    let line = format!("let {outer}, {inner} = {stage}.split({axis}, factor={factor}{tail})");
    planner.text.push(line);
    (outer, inner)
}

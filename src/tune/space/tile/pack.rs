//! The directives of packed copies of factors.

use super::super::facts::{elements, extent_or_unknown};
use super::super::plan::Planner;
use super::super::view::{Stride, UNKNOWN};
use super::Tiling;

/// Fewer panels than this do not keep all threads busy.
const FEW_PARTS: i64 = 16;
/// Vectors of a row that are copied side by side.
const LONGEST_VECTORS: i64 = 4;

/// Writes a packed copy of a factor in which the elements of a tile along an axis are adjacent, and
/// returns its name. For an instruction, the terms of each of these elements are adjacent, too.
pub(super) fn pack(
    planner: &mut Planner,
    sum: usize,
    reader: &str,
    (load, axis): (usize, usize),
    form: &Tiling,
) -> String {
    let width = form.factor(axis);
    let terms = form.dot.filter(|dot| dot.load == load).map(|dot| (dot.dim, dot.terms));
    let facts = planner.facts.clone();
    let view = &facts.views[sum];
    let (access, axis_name) = (&view.loads[load], &view.data[axis].name);
    let dim = facts.packed_dim(sum, access, axis).expect("it can be packed");
    let contiguous = access.stride(&view.data[axis].var) == Stride::By(1);
    let (name, rank) = (access.buffer.name.clone(), access.indices.len());
    let extent =
        |dim: usize| extent_or_unknown(&access.buffer.shape[dim]).expect("it can be packed");
    let extents: Vec<i64> = (0..rank).map(extent).collect();
    let lanes = i64::from(planner.target.lanes(access.buffer.dtype));
    let text = &mut planner.text;
    text.rule(
        "pack",
        &format!("{width} elements of `{name}` along `{axis_name}` become neighbours"),
    );
    let packed = text.fresh(&name, "_packed");
    let mut layout = vec![format!("ax{dim} // {width}")];
    layout.extend((0..rank).filter(|other| *other != dim).map(|other| match terms {
        Some((dim, terms)) if dim == other => format!("ax{other} // {terms}"),
        _ => format!("ax{other}"),
    }));
    layout.push(format!("ax{dim} % {width}"));
    layout.extend(terms.map(|(dim, terms)| format!("ax{dim} % {terms}")));
    let layout = layout.join(", ");
    text.push(format!("let {packed} = {name}.cache_read(global, [{reader}], layout=[{layout}])"));
    // The contiguous dimension of the source is split by the vector length: with the lanes, this is
    // a transposition in registers.
    let along = rank - 1;
    // Rows of terms are read in turns. With other layouts and in short tails, lanes are the terms.
    let whole = extents[dim] % width == 0 || extents[dim] >= 4 * width;
    let group = terms.map_or(1, |(_, terms)| width * terms);
    if terms.is_some() && contiguous && dim == along && whole && group >= lanes {
        let fused = text.fresh(&packed, "_terms");
        text.push(format!("let {fused} = {packed}.fuse(p{rank}, p{})", rank + 1));
        let mut vector = fused.clone();
        if group > lanes {
            let outer = text.fresh(&fused, "_o");
            vector = text.fresh(&fused, "_i");
            text.push(format!("let {outer}, {vector} = {packed}.split({fused}, factor={lanes})"));
        }
        text.push(format!("{packed}.vectorize({vector})"));
    } else if terms.is_some() {
        text.push(format!("{packed}.vectorize(p{})", rank + 1));
    } else if !contiguous && dim != along && lanes > 1 && extents[along] >= lanes {
        let (outer, inner) = (text.fresh(&packed, "_o"), text.fresh(&packed, "_i"));
        let axis = format!("p{along}");
        text.push(format!("let {outer}, {inner} = {packed}.split({axis}, factor={lanes})"));
        text.push(format!("{packed}.unroll({inner})"));
    }
    if lanes > 1 && width > 1 && terms.is_none() {
        text.push(format!("{packed}.vectorize(p{rank})"));
    }
    let parts = (extents[dim] + width - 1) / width;
    let large = extents.iter().product::<i64>() >= 1 << 16;
    if large && parts >= FEW_PARTS && planner.threads != 1 {
        text.push(format!("{packed}.parallel(p0)"));
    } else if large && rank > 2 && planner.threads != 1 {
        let rows = text.fresh(&packed, "_rows");
        text.push(format!("let {rows} = {packed}.fuse(p0, p1)"));
        text.push(format!("{packed}.parallel({rows})"));
    } else if large && parts > 1 && planner.threads != 1 {
        text.push(format!("{packed}.parallel(p0)"));
    }
    if let Some(stage) = access.producer {
        planner.plans[stage].pinned = true;
    }
    packed
}

/// Writes a copy of a factor in which the elements at a stride in the last dimension are adjacent,
/// and returns its name.
pub(super) fn pack_phases(
    planner: &mut Planner,
    (sum, load): (usize, usize),
    reader: &str,
    (stride, lane): (i64, usize),
) -> String {
    let facts = planner.facts.clone();
    let (access, axis) = (&facts.views[sum].loads[load], &facts.views[sum].data[lane].name);
    let (name, rank) = (access.buffer.name.clone(), access.indices.len());
    let lanes = i64::from(planner.target.lanes(access.buffer.dtype));
    let text = &mut planner.text;
    text.rule(
        "phases",
        &format!("elements of `{name}` at stride {stride} along `{axis}` become neighbours"),
    );
    let packed = text.fresh(&name, "_phases");
    let mut layout: Vec<String> = (0..rank - 1).map(|dim| format!("ax{dim}")).collect();
    layout.extend([format!("ax{} % {stride}", rank - 1), format!("ax{} // {stride}", rank - 1)]);
    let layout = layout.join(", ");
    text.push(format!("let {packed} = {name}.cache_read(global, [{reader}], layout=[{layout}])"));
    let last = access.buffer.shape.last().and_then(extent_or_unknown).unwrap_or(UNKNOWN) / stride;
    let longest = LONGEST_VECTORS * lanes;
    let mut vector = format!("p{rank}");
    if lanes > 1 && last > longest {
        let (outer, inner) = (text.fresh(&packed, "_o"), text.fresh(&packed, "_i"));
        text.push(format!("let {outer}, {inner} = {packed}.split({vector}, factor={longest})"));
        vector = inner;
    }
    if lanes > 1 {
        text.push(format!("{packed}.vectorize({vector})"));
    }
    let large = elements(access).is_some_and(|n| n >= 1 << 16);
    if large && planner.threads != 1 {
        let rows: Vec<String> = (0..rank - 1).map(|dim| format!("p{dim}")).collect();
        match &rows[..] {
            [] => {}
            [row] => text.push(format!("{packed}.parallel({row})")),
            rows => {
                let fused = text.fresh(&packed, "_rows");
                text.push(format!("let {fused} = {packed}.fuse({})", rows.join(", ")));
                text.push(format!("{packed}.parallel({fused})"));
            }
        }
    }
    if let Some(stage) = access.producer {
        planner.plans[stage].pinned = true;
    }
    packed
}

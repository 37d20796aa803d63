//! The rule `staged` for GPUs: a thread for each row, whose terms pass through shared memory.
//!
//! The terms of a row keep their order, so one thread adds them. Neighbouring threads would read
//! the same column of neighbouring rows, which are far apart in memory. So the threads of a block
//! copy a tile of rows and columns together, each warp along a row, and then read their own rows.

use super::Fit;
use super::plan::Planner;
use super::view::{Access, StageView, Stride};

/// Columns of a tile: a warp copies a row of them at once.
const TILE_COLUMNS: i64 = 32;
/// Bytes of shared memory for the tiles of a block.
const ROOM: i64 = 40 << 10;

pub(super) fn fits(planner: &Planner, at: usize) -> Fit {
    let view = &planner.facts.views[at];
    let able = planner.target.is_gpu() && view.reduction.is_some() && !view.data.is_empty();
    let Some(terms) = view.reduce.last() else { return Fit::No };
    if !able || terms.extent.is_some_and(|extent| extent < TILE_COLUMNS) {
        return Fit::No;
    }
    if staged(view).is_empty() { Fit::No } else { Fit::Best }
}

/// Returns the reads of rows that are contiguous along the innermost terms, each of another tensor.
fn staged(view: &StageView) -> Vec<&Access> {
    let (Some(row), Some(terms)) = (view.data.last(), view.reduce.last()) else {
        return Vec::new();
    };
    let alone = |load: &&Access| {
        view.loads.iter().filter(|other| other.buffer == load.buffer).count() == 1
            && view.direct.contains(&load.buffer)
            && !load.earlier
    };
    let of_rows = |load: &&Access| {
        let along = load.indices.last().and_then(|index| index.as_var());
        along == Some(&terms.var)
            && load.stride(&terms.var) == Stride::By(1)
            && load.indices.iter().filter(|index| index.as_var() == Some(&row.var)).count() == 1
    };
    let rows = view.loads.iter().filter(|load| alone(load) && of_rows(load));
    let rows: Vec<&Access> = rows.collect();
    // The smallest tiles of all of them must fit.
    if bytes_of_row(&rows) * TILE_COLUMNS <= ROOM { rows } else { Vec::new() }
}

/// The bytes of a row of the tiles, with its padding.
fn bytes_of_row(loads: &[&Access]) -> i64 {
    let bytes: i64 = loads.iter().map(|load| load.buffer.dtype.bytes() as i64).sum();
    bytes * (TILE_COLUMNS + 1)
}

pub(super) fn apply(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let stage = planner.plans[at].name.clone();
    let loads = staged(view);
    let bytes = bytes_of_row(&loads);
    let row = view.data.last().expect("the rule fits");
    let terms = view.reduce.last().expect("the rule fits");
    let fits = |rows: &i64| bytes * rows <= ROOM && row.extent.is_none_or(|extent| extent >= *rows);
    let mut sizes: Vec<i64> = [32, 64, 128, 256].into_iter().filter(fits).collect();
    if sizes.is_empty() {
        sizes.push(32);
    }
    let rows = planner.chooser.pick(&stage, "rows", &sizes, &sizes[0]);
    let flat = planner.chooser.pick(&stage, "copies at once", &[4, 8, 16, 32], &16);
    let ahead = planner.chooser.whether(&stage, "ahead", false);
    let text = &mut planner.text;
    let why = format!(
        "a thread adds the terms of a row, and {rows} threads copy {TILE_COLUMNS} columns of their \
         rows together"
    );
    text.rule("staged", &why);
    let copies: Vec<String> = loads
        .iter()
        .map(|load| {
            let name = &load.buffer.name;
            let copy = text.fresh(name, "_shared");
            text.push(format!("let {copy} = {name}.cache_read(shared, [{stage}])"));
            copy
        })
        .collect();
    let [b, t] = ["_b", "_t"].map(|suffix| text.fresh(&row.name, suffix));
    let [o, i] = ["_o", "_i"].map(|suffix| text.fresh(&terms.name, suffix));
    text.push(format!("let {b}, {t} = {stage}.split({}, factor={rows})", row.name));
    text.push(format!("let {o}, {i} = {stage}.split({}, factor={TILE_COLUMNS})", terms.name));
    text.push(format!("{stage}.bind({b}, blockIdx.x)"));
    text.push(format!("{stage}.bind({t}, threadIdx.x)"));
    let others: Vec<&str> =
        view.data[..view.data.len() - 1].iter().map(|axis| &axis.name[..]).collect();
    match &others[..] {
        [] => {}
        [only] => text.push(format!("{stage}.bind({only}, blockIdx.y)")),
        _ => {
            let fused = text.fresh(&stage, "_rest");
            text.push(format!("let {fused} = {stage}.fuse({})", others.join(", ")));
            text.push(format!("{stage}.bind({fused}, blockIdx.y)"));
        }
    }
    text.push(format!("{stage}.unroll({i})"));
    for (copy, load) in copies.iter().zip(&loads) {
        let rank = load.indices.len();
        text.push(format!("{copy}.compute_at({stage}, {o})"));
        // An odd number of words between rows: the threads read different banks.
        let word = (4 / load.buffer.dtype.bytes() as i64).max(1);
        text.push(format!("{copy}.storage_align(ax{}, {}, {word})", rank - 2, 2 * word));
        if ahead {
            text.push(format!("{copy}.double_buffer()"));
        }
        let all = text.fresh(copy, "_all");
        let [rest, thread] = ["_r", "_x"].map(|suffix| text.fresh(copy, suffix));
        let some = text.fresh(copy, "_e");
        text.push(format!("let {all} = {copy}.fuse(*)"));
        text.push(format!("let {rest}, {thread} = {copy}.split({all}, factor={rows})"));
        text.push(format!("let _, {some} = {copy}.split({rest}, factor={flat})"));
        text.push(format!("{copy}.bind({thread}, threadIdx.x)"));
        text.push(format!("{copy}.unroll({some})"));
    }
}

//! Rules for GPUs: `blocks` and `threads`.
//!
//! `blocks` is multi-level tiling (SSSRRSRS): blocks, virtual threads, threads; blocks of reduction
//! terms, for which the threads of a block load their common inputs into shared memory; and the
//! elements of a thread in registers.

use super::Fit;
use super::place::range;
use super::plan::{Annotation, Planner};
use super::tile::{Subject, producer};
use super::view::{Access, Stride};
use crate::target::Gpu;

/// Usual threads of a block: a few warps, so that a multiprocessor has several resident blocks.
const USUAL_BLOCK_THREADS: i64 = 256;
/// The most bytes that a thread accesses at once.
const MAX_ACCESS_BYTES: i64 = 16;
/// The most sums that a thread keeps in registers.
const MAX_SUMS: i64 = 128;
/// The most unrolled terms of a sum, and of all sums of a thread.
const MAX_UNROLLED_TERMS: i64 = 64;
const MAX_UNROLLED: i64 = 2048;
/// Fewer terms than this do not pay for loads into shared memory.
const MIN_TERMS: i64 = 4;
/// Elements of a vector load into shared memory.
const FETCH_LANES: i64 = 4;

/// One tiled axis.
struct TiledAxis {
    /// Data axis of the reduction.
    axis: usize,
    virtuals: i64,
    threads: i64,
    each: i64,
}

impl TiledAxis {
    fn size(&self) -> i64 {
        self.virtuals * self.threads * self.each
    }
}

pub(super) fn threads_fits(planner: &Planner, _: usize) -> Fit {
    if planner.target.is_gpu() { Fit::Possible } else { Fit::No }
}

/// Writes a stage with one or a few elements per thread.
pub(super) fn threads(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let stage = planner.plans[at].name.clone();
    let axes: Vec<String> = view.data.iter().map(|axis| axis.name.clone()).collect();
    if axes.is_empty() {
        let why = format!("`{stage}` is a single element, and one thread has it");
        planner.text.rule("threads", &why);
        return;
    }
    let known = view.data.iter().try_fold(1i64, |n, axis| n.checked_mul(axis.extent?));
    let last = view.data.last().and_then(|axis| axis.extent);
    let mut each = vec![1];
    if view.reduction.is_none() {
        let most = MAX_ACCESS_BYTES / view.dtype.bytes() as i64;
        let fits =
            |n: &i64| *n <= most && last.is_some_and(|last| last % n == 0) && known.is_some();
        each.extend([2, 4, 8, 16].into_iter().filter(fits));
    }
    let each = planner.chooser.pick(&stage, "each", &each, &1);
    let elements = known.map(|n| n / each);
    let usual =
        elements.map_or(USUAL_BLOCK_THREADS, |elements| elements.clamp(1, USUAL_BLOCK_THREADS));
    let mut sizes = vec![32, 64, 128, USUAL_BLOCK_THREADS, 512, 1024];
    // With a run-time size, small blocks would be too many if it is large.
    let many = elements.is_none() && view.reduction.is_none();
    let least = if many { USUAL_BLOCK_THREADS } else { 1 };
    sizes.retain(|size| *size >= least && elements.is_none_or(|elements| *size <= elements));
    if !sizes.contains(&usual) {
        sizes.push(usual);
    }
    let block = planner.chooser.pick(&stage, "threads", &sizes, &usual);
    let text = &mut planner.text;
    let what = if each == 1 { "each element".to_string() } else { format!("{each} elements") };
    text.rule("threads", &format!("a thread for {what}, {block} in a block"));
    let mut all = axes.clone();
    let mut lanes = None;
    if each > 1 {
        let from = all.pop().expect("a last axis");
        let (outer, inner) = (text.fresh(&from, "_o"), text.fresh(&from, "_i"));
        text.push(format!("let {outer}, {inner} = {stage}.split({from}, factor={each})"));
        all.push(outer);
        lanes = Some(inner);
    }
    let joined = match &all[..] {
        [only] => only.clone(),
        _ => {
            let fused = text.fresh(&stage, "_all");
            text.push(format!("let {fused} = {stage}.fuse({})", all.join(", ")));
            fused
        }
    };
    let (blocks, inner) = (text.fresh(&stage, "_b"), text.fresh(&stage, "_t"));
    text.push(format!("let {blocks}, {inner} = {stage}.split({joined}, factor={block})"));
    text.push(format!("{stage}.bind({blocks}, blockIdx.x)"));
    text.push(format!("{stage}.bind({inner}, threadIdx.x)"));
    if let Some(lanes) = lanes {
        text.push(format!("{stage}.vectorize({lanes})"));
    }
}

pub(super) fn blocks_fits(planner: &Planner, at: usize) -> Fit {
    if !planner.target.is_gpu() {
        return Fit::No;
    }
    let Some(subject) = subject(planner, at) else { return Fit::No };
    let view = &planner.facts.views[subject.sum];
    let constant = view.data.iter().chain(&view.reduce).all(|axis| axis.extent.is_some());
    let several = |axis: usize| view.data[axis].size() >= 2;
    let sides = (0..view.data.len()).filter(|axis| several(*axis)).count();
    let terms = view.reduce.iter().fold(1i64, |n, axis| n.saturating_mul(axis.size()));
    let again = |load: &Access| {
        (0..view.data.len()).any(|axis| several(axis) && !load.mentions(&view.data[axis].var))
    };
    if !constant || sides < 2 || terms < MIN_TERMS {
        return Fit::No;
    }
    if view.loads.iter().any(again) { Fit::Best } else { Fit::Possible }
}

fn subject(planner: &Planner, at: usize) -> Option<Subject> {
    let views = &planner.facts.views;
    if views[at].tuple {
        return None;
    }
    if views[at].reduction.is_some() {
        return Some(Subject { home: at, sum: at, map: (0..views[at].data.len()).collect() });
    }
    let (sum, map) = producer(planner, at)?;
    Some(Subject { home: at, sum, map })
}

/// The tile of a block.
struct Blocks {
    row: TiledAxis,
    lane: TiledAxis,
    /// Values of the first reduction axis that are loaded at once; 0 for all.
    terms: i64,
    unroll: bool,
    vectorize: bool,
    /// Copies of the loaded data: two are a double buffer, more a pipeline.
    stages: i64,
    /// The tensors in shared memory.
    shared: Vec<Fetch>,
}

/// A tensor in shared memory, by its index among the loads without inlining.
struct Fetch {
    load: usize,
    local: bool,
    vectors: bool,
    /// Padding of rows in elements; 0 for none.
    padding: i64,
    /// Whether it is transposed, so that neighbours along the rows are adjacent.
    transposed: bool,
    /// Whether a thread reads its elements as vectors.
    wide: bool,
}

pub(super) fn blocks(planner: &mut Planner, at: usize) {
    let subject = subject(planner, at).expect("the rule fits");
    let blocks = choose_blocks(planner, &subject);
    write(planner, &subject, &blocks);
}

fn choose_blocks(planner: &mut Planner, subject: &Subject) -> Blocks {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = planner.plans[subject.sum].name.clone();
    let axes: Vec<usize> =
        (0..view.data.len()).filter(|axis| view.data[*axis].size() >= 2).collect();
    let names = |axes: &[usize]| axes.iter().map(|a| view.data[*a].name.clone()).collect();
    let lane = planner.chooser.index(&name, "columns along", names(&axes), axes.len() - 1);
    let lane = axes[lane];
    let others: Vec<usize> = axes.iter().copied().filter(|axis| *axis != lane).collect();
    let shares = |axis: &usize| {
        let mut moving = view.loads.iter().filter(|load| load.mentions(&view.data[lane].var));
        moving.all(|load| !load.mentions(&view.data[*axis].var))
    };
    let usual = others.iter().rposition(shares).unwrap_or(others.len() - 1);
    let row = others[planner.chooser.index(&name, "rows along", names(&others), usual)];
    let lane = choose_side(planner, subject.sum, lane, None);
    let row = choose_side(planner, subject.sum, row, Some(&lane));
    let first = view.reduce[0].size();
    let rest = view.reduce[1..].iter().fold(1i64, |n, axis| n.saturating_mul(axis.size()));
    let mut sizes: Vec<i64> = [1, 2, 4, 8, 16, 32]
        .into_iter()
        .filter(|size| *size < first && (MIN_TERMS..=64).contains(&(size * rest)))
        .collect();
    if sizes.is_empty() {
        sizes.push(if first > 1 { 1 } else { 0 });
    }
    let usual = sizes.iter().copied().filter(|size| size * rest <= 8).max().unwrap_or(sizes[0]);
    let terms = planner.chooser.pick(&name, "terms at once", &sizes, &usual);
    let flat = terms.max(1) * rest;
    let sums = row.virtuals * row.each * lane.virtuals * lane.each;
    // Longer code spills, and misses the instruction cache.
    let unroll = flat <= MAX_UNROLLED_TERMS
        && flat * sums <= MAX_UNROLLED
        && planner.chooser.whether(&name, "unroll terms", flat <= 16);
    let last = lane.axis + 1 == view.data.len() && view.data[lane.axis].size() % lane.each == 0;
    let vectorize =
        last && [2, 4].contains(&lane.each) && planner.chooser.whether(&name, "vectorize", true);
    let piped = terms > 0 && planner.target.gpu.is_some_and(|gpu| gpu.capability >= 80);
    let counts: &[i64] = if piped { &[1, 2, 3, 4] } else { &[1, 2] };
    let stages = match terms {
        0 => 1,
        _ => planner.chooser.pick(&name, "stages", counts, &1),
    };
    let shared = Vec::new();
    let mut blocks = Blocks { row, lane, terms, unroll, vectorize, stages, shared };
    choose_fetches(planner, subject, &mut blocks);
    blocks
}

/// Chooses threads, elements of a thread and virtual threads along an axis.
fn choose_side(
    planner: &mut Planner,
    at: usize,
    axis: usize,
    other: Option<&TiledAxis>,
) -> TiledAxis {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let (name, of) = (planner.plans[at].name.clone(), &view.data[axis].name);
    let size = view.data[axis].size();
    let most = i64::from(Gpu::MAX_THREADS) / other.map_or(1, |side| side.threads);
    let fits = |n: &i64| *n <= most && (*n <= size || *n == 1);
    let threads: Vec<i64> = [1, 2, 4, 8, 16, 32, 64].into_iter().filter(fits).collect();
    let usual = threads.iter().copied().filter(|n| *n <= 16).max().unwrap_or(1);
    // At least a warp.
    let threads = match other {
        Some(side) => threads.into_iter().filter(|n| n * side.threads >= 32.min(usual)).collect(),
        None => threads,
    };
    let threads = planner.chooser.pick(&name, &format!("threads {of}"), &threads, &usual);
    let sums = other.map_or(16, |side| MAX_SUMS / (side.each * side.virtuals));
    let fits = |n: &i64| *n <= sums && (n * threads <= size || *n == 1);
    let each: Vec<i64> = [1, 2, 4, 8].into_iter().filter(fits).collect();
    let usual = each.iter().copied().filter(|n| *n <= 4).max().unwrap_or(1);
    let each = planner.chooser.pick(&name, &format!("each {of}"), &each, &usual);
    let fits = |n: &i64| n * each <= sums && (n * each * threads <= size || *n == 1);
    let virtuals: Vec<i64> = [1, 2, 4].into_iter().filter(fits).collect();
    let usual = if virtuals.contains(&2) && each == 4 { 2 } else { 1 };
    let virtuals = planner.chooser.pick(&name, &format!("vthreads {of}"), &virtuals, &usual);
    TiledAxis { axis, virtuals, threads, each }
}

/// Chooses the tensors that the threads of a block load together.
fn choose_fetches(planner: &mut Planner, subject: &Subject, blocks: &mut Blocks) {
    let plain = planner.plain.clone();
    let view = &plain.views[subject.sum];
    let name = planner.plans[subject.sum].name.clone();
    let mut spans: Vec<Option<i64>> = vec![Some(1); view.data.len()];
    for side in [&blocks.row, &blocks.lane] {
        spans[side.axis] = Some(side.size());
    }
    let mut room = planner.target.gpu.map_or(0, |gpu| i64::from(gpu.shared_bytes.min(48 << 10)));
    let mut seen: Vec<&str> = Vec::new();
    for (at, load) in view.loads.iter().enumerate() {
        let buffer = &load.buffer.name[..];
        if seen.contains(&buffer) || load.indices.is_empty() || load.earlier {
            continue;
        }
        seen.push(buffer);
        let sizes = load.indices.iter().zip(&load.buffer.shape).map(|(index, extent)| {
            let whole = i64::try_from(extent.as_int()?).ok()?;
            let mut reach = range(view, &spans, index)?;
            if let Some(step) = super::place::step(index, &view.reduce[0].var)
                && blocks.terms > 0
            {
                // Only a block of the terms is loaded.
                reach.1 -= step.abs() * (view.reduce[0].size() - blocks.terms);
            }
            Some((reach.1 - reach.0 + 1).min(whole))
        });
        let Some(sizes) = sizes.collect::<Option<Vec<i64>>>() else { continue };
        let several = view.loads.iter().filter(|l| l.buffer == load.buffer).count() > 1;
        let bytes =
            sizes.iter().fold(load.buffer.dtype.bytes() as i64, |n, s| n.saturating_mul(*s));
        // The copies of a double buffer or pipeline count.
        let bytes = bytes.saturating_mul(blocks.stages);
        if several || bytes > room || sizes.iter().any(|size| *size < 1) {
            continue;
        }
        let again = [&blocks.row, &blocks.lane]
            .iter()
            .any(|side| side.threads > 1 && !load.mentions(&view.data[side.axis].var));
        if !planner.chooser.whether(&name, &format!("share {buffer}"), again) {
            continue;
        }
        let chooser = &mut planner.chooser;
        let local = chooser.whether(&name, &format!("registers {buffer}"), true);
        let whole = sizes.last().is_some_and(|size| size % FETCH_LANES == 0);
        let mut along = view.reduce.iter().chain(&view.data);
        let near = along.any(|axis| load.stride(&axis.var) == Stride::By(1));
        let vectors =
            whole && near && chooser.whether(&name, &format!("fetch {buffer} in vectors"), false);
        let element = load.buffer.dtype.bytes() as i64;
        let along = |index: usize, side: &TiledAxis| {
            let var = &view.data[side.axis].var;
            super::place::step(&load.indices[index], var) == Some(1)
        };
        let (rank, first) = (sizes.len(), &view.reduce[0].var);
        let by_terms = rank == 2 && super::place::step(&load.indices[1], first) == Some(1);
        let transposed = by_terms
            && along(0, &blocks.row)
            && chooser.whether(&name, &format!("turn {buffer}"), false);
        let side = if transposed { &blocks.row } else { &blocks.lane };
        let neighbours = transposed || rank > 0 && along(rank - 1, side);
        let wide = local
            && neighbours
            && [2, 4].contains(&side.each)
            && side.each * element <= 16
            && chooser.whether(&name, &format!("wide {buffer}"), true);
        let pads = rank > 1 && 2 * bytes <= room && element <= 4;
        let pads = pads && chooser.whether(&name, &format!("pad {buffer}"), false);
        let padding = if pads { 16 / element } else { 0 };
        room -= bytes * if pads { 2 } else { 1 };
        blocks.shared.push(Fetch { load: at, local, vectors, padding, transposed, wide });
    }
}

fn write(planner: &mut Planner, subject: &Subject, blocks: &Blocks) {
    let facts = planner.facts.clone();
    let view = &facts.views[subject.sum];
    let name = planner.plans[subject.home].name.clone();
    let (row, lane) = (&blocks.row, &blocks.lane);
    let why = format!(
        "a block computes {} along `{}` times {} along `{}`, a thread {} times {}",
        row.size(),
        view.data[row.axis].name,
        lane.size(),
        view.data[lane.axis].name,
        row.virtuals * row.each,
        lane.virtuals * lane.each
    );
    planner.text.rule("blocks", &why);
    let sum = match subject.home == subject.sum {
        true => {
            let sum = planner.text.fresh(&name, "_sums");
            planner.text.push(format!("let {sum} = {name}.cache_write(local)"));
            sum
        }
        false => planner.plans[subject.sum].name.clone(),
    };
    let copies = copies(planner, subject, blocks, &sum);
    let place = home(planner, subject, blocks);
    planner.text.push(format!("{sum}.compute_at({name}, {place})"));
    if subject.home != subject.sum {
        planner.text.push(format!("{sum}.set_scope(local)"));
    }
    let mut terms: Vec<String> = view.reduce.iter().map(|axis| axis.name.clone()).collect();
    let mut fetched = None;
    if blocks.terms > 0 {
        let text = &mut planner.text;
        let (outer, inner) = (text.fresh(&terms[0], "_o"), text.fresh(&terms[0], "_i"));
        let by = blocks.terms;
        text.push(format!("let {outer}, {inner} = {sum}.split({}, factor={by})", terms[0]));
        terms[0] = inner;
        fetched = Some(outer);
    }
    let mut order: Vec<String> = fetched.iter().cloned().chain(terms.iter().cloned()).collect();
    let others = (0..view.data.len()).filter(|a| *a != row.axis && *a != lane.axis);
    let data: Vec<usize> = others.chain([row.axis, lane.axis]).collect();
    order.extend(data.iter().map(|axis| view.data[*axis].name.clone()));
    planner.text.push(format!("{sum}.reorder({})", order.join(", ")));
    let flat = if blocks.unroll { &terms[..] } else { &[] };
    let sides = [row.axis, lane.axis].map(|axis| view.data[axis].name.clone());
    for axis in flat.iter().chain(&sides) {
        planner.text.push(format!("{sum}.unroll({axis})"));
    }
    for (fetch, (shared, local)) in blocks.shared.iter().zip(&copies) {
        let rank = planner.plain.views[subject.sum].loads[fetch.load].indices.len();
        let at = match &fetched {
            Some(outer) => format!("{shared}.compute_at({sum}, {outer})"),
            None => format!("{shared}.compute_at({name}, {place})"),
        };
        planner.text.push(at);
        if blocks.stages == 2 {
            planner.text.push(format!("{shared}.double_buffer()"));
        }
        if fetch.padding > 0 {
            let dim = if fetch.transposed { "p0".to_string() } else { format!("ax{}", rank - 2) };
            let padding = fetch.padding;
            planner.text.push(format!("{shared}.storage_align({dim}, {}, {padding})", 8 * padding));
        }
        if let Some(local) = local {
            let innermost = terms.last().expect("a reduction has terms");
            planner.text.push(format!("{local}.compute_at({sum}, {innermost})"));
            if fetch.wide {
                planner.text.push(format!("{local}.vectorize(ax{})", rank - 1));
            }
        }
        fetch_cooperatively(planner, shared, rank, blocks, fetch);
    }
    if let Some(outer) = fetched.filter(|_| blocks.stages > 2 && !blocks.shared.is_empty()) {
        planner.text.push(format!("{sum}.pipeline({outer}, stages={})", blocks.stages));
    }
    if subject.home != subject.sum {
        planner.plans[subject.sum].done = true;
    }
}

/// Writes the copies in shared memory and in registers.
fn copies(
    planner: &mut Planner,
    subject: &Subject,
    blocks: &Blocks,
    sum: &str,
) -> Vec<(String, Option<String>)> {
    let plain = planner.plain.clone();
    let mut made = Vec::new();
    for fetch in &blocks.shared {
        let read = &plain.views[subject.sum].loads[fetch.load].buffer.name;
        let text = &mut planner.text;
        let shared = text.fresh(read, "_shared");
        let layout = if fetch.transposed { ", layout=[ax1, ax0]" } else { "" };
        text.push(format!("let {shared} = {read}.cache_read(shared, [{sum}]{layout})"));
        let local = fetch.local.then(|| {
            let local = text.fresh(read, "_local");
            text.push(format!("let {local} = {shared}.cache_read(local, [{sum}])"));
            local
        });
        made.push((shared, local));
    }
    made
}

/// Writes the loops of the output; returns the innermost thread loop.
fn home(planner: &mut Planner, subject: &Subject, blocks: &Blocks) -> String {
    let home = subject.home;
    let name = planner.plans[home].name.clone();
    planner.plans[home].leaves.retain(|leaf| !leaf.reduce);
    let mut levels: [Vec<String>; 4] = Default::default();
    let mut binds = Vec::new();
    let sides = [(&blocks.row, "y"), (&blocks.lane, "x")];
    for (side, dim) in sides {
        let axis = planner.facts.views[home].data[subject.map[side.axis]].name.clone();
        let text = &mut planner.text;
        let parts = ["_b", "_v", "_t", "_e"].map(|suffix| text.fresh(&axis, suffix));
        let [b, v, t, e] = &parts;
        let (nv, nt, ne) = (side.virtuals, side.threads, side.each);
        text.push(format!(
            "let {b}, {v}, {t}, {e} = {name}.split({axis}, factors=[{nv}, {nt}, {ne}])"
        ));
        binds.push(format!("{name}.bind({b}, blockIdx.{dim})"));
        binds.push(format!("{name}.bind({v}, vthread)"));
        binds.push(format!("{name}.bind({t}, threadIdx.{dim})"));
        for (level, part) in levels.iter_mut().zip(parts) {
            level.push(part);
        }
    }
    let data = &planner.facts.views[home].data;
    let tiled = [subject.map[blocks.row.axis], subject.map[blocks.lane.axis]];
    let others: Vec<String> = (0..data.len())
        .filter(|axis| !tiled.contains(axis))
        .map(|axis| data[axis].name.clone())
        .collect();
    let order: Vec<String> = others.iter().chain(levels.iter().flatten()).cloned().collect();
    let text = &mut planner.text;
    text.push(format!("{name}.reorder({})", order.join(", ")));
    match &others[..] {
        [] => {}
        [only] => text.push(format!("{name}.bind({only}, blockIdx.z)")),
        _ => {
            let fused = text.fresh(&others.join("_"), "");
            text.push(format!("let {fused} = {name}.fuse({})", others.join(", ")));
            text.push(format!("{name}.bind({fused}, blockIdx.z)"));
        }
    }
    for bind in binds {
        text.push(bind);
    }
    text.push(format!("{name}.unroll({})", levels[3][0]));
    let annotation = if blocks.vectorize { Annotation::Vectorize } else { Annotation::Unroll };
    text.push(format!("{name}.{}({})", annotation.directive(), levels[3][1]));
    levels[2][1].clone()
}

/// Distributes the elements of a copy over the threads of a block.
fn fetch_cooperatively(
    planner: &mut Planner,
    shared: &str,
    rank: usize,
    blocks: &Blocks,
    fetch: &Fetch,
) {
    let text = &mut planner.text;
    let mut all = "ax0".to_string();
    if fetch.transposed {
        // Neighbouring threads read adjacent elements.
        text.push(format!("{shared}.reorder(p1, p0)"));
    }
    if rank > 1 {
        all = text.fresh(shared, "_all");
        text.push(format!("let {all} = {shared}.fuse(*)"));
    }
    if fetch.vectors {
        let (outer, inner) = (text.fresh(shared, "_o"), text.fresh(shared, "_v"));
        text.push(format!("let {outer}, {inner} = {shared}.split({all}, factor={FETCH_LANES})"));
        text.push(format!("{shared}.vectorize({inner})"));
        all = outer;
    }
    for (side, dim) in [(&blocks.lane, "x"), (&blocks.row, "y")] {
        let (rest, thread) = (text.fresh(shared, "_r"), text.fresh(shared, &format!("_{dim}")));
        let by = side.threads;
        text.push(format!("let {rest}, {thread} = {shared}.split({all}, factor={by})"));
        text.push(format!("{shared}.bind({thread}, threadIdx.{dim})"));
        all = rest;
    }
}

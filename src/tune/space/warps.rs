//! Rules for GPUs in which threads cooperate on one result: `tensor` and `together`.

use super::plan::Planner;
use super::shared_copies::{parts, share};
use super::text::ScheduleText;
use super::view::{StageView, Stride};
use super::{Fit, warpgroups};
use crate::ir::warp::{FIRST_WITH_PRODUCTS, WarpProduct};
use crate::ir::{BinOp, ExprKind};

/// Rows and columns of a warp product.
const PRODUCT: (i64, i64) = (16, 8);
/// Rows of a tile that neighbouring threads copy: as many as `ldmatrix` reads at once.
const COPY_ROWS: i64 = 8;
/// Terms that a thread gathers into a word when it transposes bytes.
const WORD: i64 = 4;
/// Fewer terms are added by one thread.
const MANY_TERMS: i64 = 256;
/// Elements that keep all threads busy with one thread each.
const ENOUGH_ELEMENTS: i64 = 1 << 15;
/// The assumed number of terms if it is known at run time only.
const UNKNOWN_TERMS: i64 = 1 << 16;
/// The parts of all elements, one for each block: as many as keep a GPU busy, and the most.
const USUAL_PARTS: i64 = 1 << 10;
const MAX_PARTS: i64 = 1 << 14;
/// The most parts that a thread adds at the end.
const LAST_PARTS: i64 = 32;

pub(super) fn tensor_fits(planner: &Planner, at: usize) -> Fit {
    let able = planner.target.gpu.is_some_and(|gpu| gpu.capability >= FIRST_WITH_PRODUCTS);
    let view = &planner.facts.views[at];
    match able && factors(view).is_some() && planner.facts.order_may_change(at) {
        true => Fit::Best,
        false => Fit::No,
    }
}

/// The factors of a product of matrices.
struct Factors {
    product: WarpProduct,
    /// The factor with the rows, then that with the columns.
    sides: [Side; 2],
}

/// A factor of a product of matrices.
struct Side {
    /// Its index among the loads.
    load: usize,
    /// Whether neighbouring elements in memory are terms, and not rows or columns.
    terms_last: bool,
}

/// Matches `sum(A[x, k] * B[k, y])` with elements cast to the type of the sum and extents that are
/// multiples of a warp product's. Either factor may be transposed.
fn factors(view: &StageView) -> Option<Factors> {
    let reduction = view.reduction.as_ref()?;
    let [x, y] = &view.data[..] else { return None };
    let [k] = &view.reduce[..] else { return None };
    let is_product = |term: &crate::ir::Expr| {
        let cast = |factor: &crate::ir::Expr| match &factor.kind {
            ExprKind::Cast(inner) => matches!(inner.kind, ExprKind::Load { .. }),
            _ => false,
        };
        matches!(&term.kind, ExprKind::Binary(BinOp::Mul, a, b) if cast(a) && cast(b))
    };
    let is_sum = reduction.combiner.is_sum() && reduction.condition.is_none() && !view.tuple;
    if !is_sum || !matches!(&reduction.terms[..], [term] if is_product(term)) {
        return None;
    }
    let [a, b] = &view.loads[..] else { return None };
    let side = |load: usize, own: &crate::ir::Var| {
        let access = &view.loads[load];
        let vars: Vec<_> = access.indices.iter().map(|index| index.as_var()).collect();
        let last = if vars == [Some(own), Some(&k.var)] { &k.var } else { own };
        let fits = last == &k.var || vars == [Some(&k.var), Some(own)];
        let side = Side { load, terms_last: last == &k.var };
        (fits && !access.earlier && access.stride(last) == Stride::By(1)).then_some(side)
    };
    let sides = |x_at, y_at| Some([side(x_at, &x.var)?, side(y_at, &y.var)?]);
    let sides = sides(0, 1).or_else(|| sides(1, 0)).filter(|_| a.buffer != b.buffer)?;
    let [left, right] = [0, 1].map(|at: usize| view.loads[sides[at].load].buffer.dtype);
    let same = |one: &WarpProduct| (one.a, one.b, one.sum) == (left, right, view.dtype);
    let product = WarpProduct::ALL.into_iter().find(same)?;
    let multiple = |extent: Option<i64>, of: i64| extent.is_some_and(|extent| extent % of == 0);
    let sizes = multiple(x.extent, PRODUCT.0)
        && multiple(y.extent, PRODUCT.1)
        && multiple(k.extent, product.terms);
    sizes.then_some(Factors { product, sides })
}

/// Writes a tile of warps on tensor cores, like that of `samples/matmul_bf16.te`.
pub(super) fn tensor(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let Factors { product, sides } = factors(view).expect("the rule fits");
    if let Some(product) = warpgroups::product(planner, view, product) {
        let factors = sides.map(|side| view.loads[side.load].buffer.name.clone());
        return warpgroups::tensor(planner, at, product, factors);
    }
    let stage = planner.plans[at].name.clone();
    let [x, y, k] = [&view.data[0], &view.data[1], &view.reduce[0]];
    let chooser = &mut planner.chooser;
    let rows = chooser.pick(&stage, "rows", &parts(x.size(), PRODUCT.0, &[1, 2, 4]), &4);
    let high = parts(x.size(), PRODUCT.0 * rows, &[1, 2, 4]);
    let high = chooser.pick(&stage, "warps along rows", &high, &2);
    let columns = chooser.pick(&stage, "columns", &parts(y.size(), PRODUCT.1, &[1, 2, 4, 8]), &4);
    let wide = parts(y.size(), PRODUCT.1 * columns, &[1, 2, 4]);
    let wide = chooser.pick(&stage, "warps along columns", &wide, &4);
    // Rows of 64 bytes are usual.
    let bytes = product.a.bytes() as i64;
    let terms = [32, 64, 128].map(|row| row / bytes);
    let terms = chooser.pick(&stage, "terms at once", &parts(k.size(), 1, &terms), &(64 / bytes));
    let most = (k.size() / terms).clamp(1, 4);
    let stages: Vec<i64> = (1..=most).collect();
    let stages = chooser.pick(&stage, "stages", &stages, &most);
    let why = format!(
        "{} times {} warps make {rows} times {columns} products of 16 times 8 elements each",
        high, wide
    );
    let permission = facts.permission(at);
    let text = &mut planner.text;
    text.rule("tensor", &why);
    let mut fresh = |base: &str, suffix: &str| text.fresh(base, suffix);
    let (x, y, k) = (&x.name, &y.name, &k.name);
    let sums = fresh(&stage, "_sums");
    let copies = [0, 1].map(|at: usize| {
        let side = &sides[at];
        let name = view.loads[side.load].buffer.name.clone();
        // The instruction has halves in either order, but of bytes it has the terms in words.
        let turned = !side.terms_last && bytes == 1;
        Copy { copy: fresh(&name, "_shared"), name, turned }
    });
    let [xb, xw, xv, xg] = ["_b", "_w", "_v", "_g"].map(|suffix| fresh(x, suffix));
    let [yb, yw, yv, yt, yi] = ["_b", "_w", "_v", "_t", "_i"].map(|suffix| fresh(y, suffix));
    let lane = fresh(&stage, "_lane");
    let [ko, kt, ki] = ["_o", "_t", "_i"].map(|suffix| fresh(k, suffix));
    let [row, half] = ["_row", "_half"].map(|suffix| fresh(&stage, suffix));
    let layout = format!("[{x} // 8, {x} % 8, {y} // 8, {y} % 8 // 2, {y} % 2]");
    text.push(format!("let {sums} = {stage}.cache_write(local, layout={layout})"));
    for Copy { copy, name, turned } in &copies {
        let layout = if *turned { ", layout=[ax1, ax0]" } else { "" };
        text.push(format!("let {copy} = {name}.cache_read(shared, [{sums}]{layout})"));
    }
    let double = rows * 2;
    text.push(format!(
        "let {xb}, {xw}, {xv}, {xg} = {stage}.split({x}, factors=[{high}, {double}, 8])"
    ));
    text.push(format!(
        "let {yb}, {yw}, {yv}, {yt}, {yi} = {stage}.split({y}, factors=[{wide}, {columns}, 4, 2])"
    ));
    text.push(format!("{stage}.reorder({xb}, {yb}, {xw}, {yw}, {xg}, {yt}, {xv}, {yv}, {yi})"));
    text.push(format!("let {lane} = {stage}.fuse({xg}, {yt})"));
    let binds = [(&xb, "blockIdx.y"), (&yb, "blockIdx.x"), (&xw, "threadIdx.z")];
    for (axis, index) in binds.into_iter().chain([(&yw, "threadIdx.y"), (&lane, "threadIdx.x")]) {
        text.push(format!("{stage}.bind({axis}, {index})"));
    }
    text.push(format!("{stage}.vectorize({yi})"));
    text.push(format!("{sums}.compute_at({stage}, {lane})"));
    let (each, intrinsic) = (product.terms, product.name);
    let steps = terms / each;
    text.push(format!("let {ko}, {kt}, {ki} = {sums}.split({k}, factors=[{steps}, {each}])"));
    text.push(format!("let {row}, {half} = {sums}.split(p0, factor=2)"));
    text.push(format!("{sums}.reorder({ko}, {kt}, {row}, p1, p2, p3, {half}, p4, {ki})"));
    text.push(format!("{sums}.unroll({kt})"));
    if stages > 1 {
        text.push(format!("{sums}.pipeline({ko}, stages={stages})"));
    }
    text.push(format!("{sums}.tensorize({half}, {intrinsic}{permission})"));
    for copy in &copies {
        planner.text.push(format!("{}.compute_at({sums}, {ko})", copy.copy));
        match copy.turned {
            true => fetch_turned(planner, &copy.copy, stages, (high, wide)),
            false => fetch(planner, &copy.copy, product.row(), (high, wide)),
        }
    }
}

/// A copy of a factor in shared memory.
struct Copy {
    copy: String,
    /// The factor.
    name: String,
    /// Whether it is transposed.
    turned: bool,
}

/// Writes a copy in shared memory by all warps of a block, `piece` elements at once; its rows are
/// padded to avoid bank conflicts.
fn fetch(planner: &mut Planner, copy: &str, piece: i64, (high, wide): (i64, i64)) {
    let text = &mut planner.text;
    let [ro, ri, so, si] = ["_ro", "_ri", "_so", "_si"].map(|suffix| text.fresh(copy, suffix));
    let chunk = text.fresh(copy, "_chunk");
    text.push(format!("{copy}.storage_align(ax0, {}, {piece})", 2 * piece));
    text.push(format!("let {ro}, {ri} = {copy}.split(ax0, factor={COPY_ROWS})"));
    text.push(format!("let {so}, {si} = {copy}.split(ax1, factor={piece})"));
    text.push(format!("{copy}.reorder({ro}, {so}, {ri}, {si})"));
    text.push(format!("let {chunk} = {copy}.fuse({ro}, {so}, {ri})"));
    share(planner, copy, &chunk, (high, wide));
    planner.text.push(format!("{copy}.vectorize({si})"));
}

/// Writes a transposed copy of bytes by all warps of a block: neighbouring threads read adjacent
/// bytes, and a thread gathers the terms of a word.
fn fetch_turned(planner: &mut Planner, copy: &str, stages: i64, (high, wide): (i64, i64)) {
    let text = &mut planner.text;
    let [po, pi] = ["_po", "_pi"].map(|suffix| text.fresh(copy, suffix));
    let chunk = text.fresh(copy, "_chunk");
    text.push(format!("{copy}.storage_align(p0, 32, 16)"));
    if stages > 1 {
        // Single bytes are not copied asynchronously, so the pipeline would wait for them.
        text.push(format!("{copy}.double_buffer()"));
    }
    text.push(format!("let {po}, {pi} = {copy}.split(p1, factor={WORD})"));
    text.push(format!("{copy}.reorder({po}, p0, {pi})"));
    text.push(format!("let {chunk} = {copy}.fuse({po}, p0)"));
    share(planner, copy, &chunk, (high, wide));
    planner.text.push(format!("{copy}.vectorize({pi})"));
}

pub(super) fn together_fits(planner: &Planner, at: usize) -> Fit {
    let view = &planner.facts.views[at];
    if !planner.target.is_gpu() || view.reduce.is_empty() || !planner.facts.order_may_change(at) {
        return Fit::No;
    }
    let known = view.reduce.iter().all(|axis| axis.extent.is_some());
    // A single element would be left to one thread.
    if known && terms_of(view) < MANY_TERMS && !view.data.is_empty() {
        return Fit::No;
    }
    if view.elements() < ENOUGH_ELEMENTS { Fit::Best } else { Fit::Possible }
}

/// The number of terms of an element.
fn terms_of(view: &StageView) -> i64 {
    view.reduce.iter().fold(1i64, |n, axis| n.saturating_mul(axis.size()))
}

/// Writes partial results of the threads of a block, which one thread adds. If there are few
/// elements, several blocks share the terms of each.
pub(super) fn together(planner: &mut Planner, at: usize) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let stage = planner.plans[at].name.clone();
    let terms = match view.reduce.iter().all(|axis| axis.extent.is_some()) {
        true => terms_of(view),
        // A run-time number may be large.
        false => UNKNOWN_TERMS.max(terms_of(view)),
    };
    let sizes = [32, 64, 128, 256, 512, 1024];
    let threads: Vec<i64> = sizes.into_iter().filter(|n| *n == 32 || terms >= 2 * n).collect();
    let usual = threads.iter().copied().filter(|n| *n <= 256 && terms >= 8 * n).max();
    let threads = planner.chooser.pick(&stage, "threads", &threads, &usual.unwrap_or(32));
    // A block of each part has some terms for every thread.
    let fits = |n: &i64| *n == 1 || terms >= n * threads * 8 && view.elements() * n <= MAX_PARTS;
    let counts: Vec<i64> = [1, 4, 16, 64, 256, 1024].into_iter().filter(fits).collect();
    let usual = counts.iter().copied().filter(|n| view.elements() * n <= USUAL_PARTS).max();
    let blocks = planner.chooser.pick(&stage, "blocks", &counts, &usual.unwrap_or(1));
    let flat = planner.chooser.pick(&stage, "unroll terms", &[1, 2, 4, 8], &4);
    let why = match blocks {
        1 => format!("the order of the terms does not matter: {threads} threads share an element"),
        _ => format!(
            "the order of the terms does not matter: {blocks} blocks of {threads} threads share \
             an element"
        ),
    };
    let text = &mut planner.text;
    text.rule("together", &why);
    let axes: Vec<String> = view.data.iter().map(|axis| axis.name.clone()).collect();
    let work = Shared { axes, threads, flat, permission: facts.permission(at) };
    let names: Vec<String> = view.reduce.iter().map(|axis| axis.name.clone()).collect();
    if blocks == 1 {
        share_terms(planner, &stage, &work, &[], &names);
        return;
    }
    let text = &mut planner.text;
    let terms = join(text, &stage, &names);
    let [part, rest] = ["_p", "_r"].map(|suffix| text.fresh(&view.reduce[0].name, suffix));
    let parts = text.fresh(&stage, "_blocks");
    let permission = work.permission;
    text.push(format!("let {part}, {rest} = {stage}.split({terms}, nparts={blocks})"));
    text.push(format!("let {parts} = {stage}.rfactor({part}{permission})"));
    share_terms(planner, &parts, &work, std::slice::from_ref(&part), &[rest]);
    if work.axes.is_empty() {
        let last = Shared { threads: blocks.min(LAST_PARTS), flat: 1, ..work };
        share_terms(planner, &stage, &last, &[], &[part]);
        return;
    }
    // A thread adds the parts of an element.
    let text = &mut planner.text;
    let joined = join(text, &stage, &work.axes);
    let [b, t] = ["_b", "_t"].map(|suffix| text.fresh(&stage, suffix));
    text.push(format!("let {b}, {t} = {stage}.split({joined}, factor=32)"));
    text.push(format!("{stage}.bind({b}, blockIdx.x)"));
    text.push(format!("{stage}.bind({t}, threadIdx.x)"));
    let some = text.fresh(&part, "_e");
    text.push(format!("let _, {some} = {stage}.split({part}, factor={})", blocks.min(8)));
    text.push(format!("{stage}.unroll({some})"));
}

/// Fuses loops, if they are several. Returns the loop.
fn join(text: &mut ScheduleText, stage: &str, axes: &[String]) -> String {
    let [only] = axes else {
        let fused = text.fresh(stage, "_all");
        text.push(format!("let {fused} = {stage}.fuse({})", axes.join(", ")));
        return fused;
    };
    only.clone()
}

/// How threads share the terms of an element.
struct Shared {
    /// The names of the data axes.
    axes: Vec<String>,
    threads: i64,
    /// The terms that a thread loads at once.
    flat: i64,
    permission: &'static str,
}

/// Writes the loops of a stage: a block for each element, whose threads share the loops `terms`.
/// `outer` are its data axes before those of `work`.
fn share_terms(
    planner: &mut Planner,
    stage: &str,
    work: &Shared,
    outer: &[String],
    terms: &[String],
) {
    let Shared { axes, threads, flat, permission } = work;
    let text = &mut planner.text;
    let elements: Vec<String> = outer.iter().chain(axes).cloned().collect();
    // Thread 0 adds the parts in a register, and stores the sum once.
    let sums = match elements.is_empty() {
        true => stage.to_string(),
        false => text.fresh(stage, "_sums"),
    };
    if sums != stage {
        text.push(format!("let {sums} = {stage}.cache_write(local)"));
    }
    let terms = &join(text, &sums, terms);
    let [o, i] = ["_o", "_i"].map(|suffix| text.fresh(terms, suffix));
    let partial = text.fresh(stage, "_parts");
    text.push(format!("let {o}, {i} = {sums}.split({terms}, factor={threads})"));
    text.push(format!("let {partial} = {sums}.rfactor({i}{permission})"));
    if *flat > 1 {
        let inner = text.fresh(&o, "_e");
        text.push(format!("let _, {inner} = {partial}.split({o}, factor={flat})"));
        text.push(format!("{partial}.unroll({inner})"));
    }
    text.push(format!("{sums}.unroll({i})"));
    text.push(format!("{partial}.bind({i}, threadIdx.x)"));
    // Without data axes the parts are a launch of their own.
    if sums != stage {
        let element = join(text, stage, &elements);
        text.push(format!("{stage}.bind({element}, blockIdx.x)"));
        text.push(format!("{sums}.compute_at({stage}, {element})"));
        text.push(format!("{partial}.compute_at({stage}, {element})"));
        text.push(format!("{partial}.set_scope(shared)"));
    }
}

//! The rule `tensor` on GPUs with products by warpgroups.

use super::plan::Planner;
use super::shared_copies::{parts, share};
use super::view::StageView;
use crate::ir::warp::{COLUMNS, GROUP_WARPS, WARPGROUP_GPU, WarpProduct};
use crate::target::Gpu;

/// Rows of a warpgroup.
const ROWS: i64 = 64;
/// Terms at once: a line of 128 bytes, which the tensor cores read fastest.
const TERMS: i64 = 64;
/// Registers of a thread for addresses and counters.
const OTHER_REGISTERS: i64 = 40;

/// Returns the product by warpgroups that can take the place of a warp's.
pub(super) fn product(
    planner: &Planner,
    view: &StageView,
    product: WarpProduct,
) -> Option<WarpProduct> {
    let able = |gpu: Gpu| gpu.specific && gpu.capability == WARPGROUP_GPU;
    let [x, y] = &view.data[..] else { return None };
    let [k] = &view.reduce[..] else { return None };
    let multiple = |extent: Option<i64>| extent.is_some_and(|extent| extent % TERMS == 0);
    let sizes = [x.extent, y.extent, k.extent].into_iter().all(multiple);
    if !planner.target.gpu.is_some_and(able) || !sizes {
        return None;
    }
    let same =
        |one: &WarpProduct| one.is_by_warpgroup() && (one.a, one.b) == (product.a, product.b);
    WarpProduct::ALL.into_iter().find(same)
}

/// Writes a tile of warpgroups, like the schedule `hopper` of `samples/matmul_bf16.te`; `factors`
/// are the names of the one with the rows and that with the columns.
pub(super) fn tensor(planner: &mut Planner, at: usize, product: WarpProduct, factors: [String; 2]) {
    let facts = planner.facts.clone();
    let view = &facts.views[at];
    let stage = planner.plans[at].name.clone();
    let [x, y, k] = [&view.data[0], &view.data[1], &view.reduce[0]];
    let shared = planner.target.gpu.map_or(0, |gpu| i64::from(gpu.shared_bytes));
    let chooser = &mut planner.chooser;
    let groups = parts(y.size(), COLUMNS, &[8, 16, 32]);
    let groups = chooser.pick(&stage, "groups of columns", &groups, &32);
    // The sums stay in registers; `ptxas` refuses products whose sums do not fit.
    let threads = |groups_of_warps: i64| groups_of_warps * GROUP_WARPS * i64::from(Gpu::WARP);
    let fits = |groups_of_warps: &i64| {
        threads(*groups_of_warps) * (4 * groups + OTHER_REGISTERS) <= Gpu::BLOCK_REGISTERS.into()
    };
    let mut high = parts(x.size(), ROWS, &[1, 2, 4]);
    high.retain(fits);
    let high = chooser.pick(&stage, "warpgroups along rows", &high, &2);
    let mut wide = parts(y.size(), COLUMNS * groups, &[1, 2]);
    wide.retain(|wide| fits(&(wide * high)));
    let wide = chooser.pick(&stage, "warpgroups along columns", &wide, &1);
    let bytes = product.a.bytes() as i64;
    // A line of 128 bytes.
    let terms = TERMS;
    let tile = (ROWS * high + COLUMNS * groups * wide) * terms * bytes;
    let most = (k.size() / terms).clamp(1, 4).min((shared / tile).max(1));
    // From four stages on, products run while the next tiles are copied. Fewer were slower for
    // every tile measured on an H200.
    let stages: Vec<i64> = (if most == 4 { 4 } else { 1 }..=most).collect();
    let stages = chooser.pick(&stage, "stages", &stages, &most);
    let why = format!(
        "{high} times {wide} warpgroups make products of {ROWS} times {} elements each",
        COLUMNS * groups
    );
    let permission = facts.permission(at);
    let text = &mut planner.text;
    text.rule("tensor", &why);
    let mut fresh = |base: &str, suffix: &str| text.fresh(base, suffix);
    let (x, y, k) = (&x.name, &y.name, &k.name);
    let sums = fresh(&stage, "_sums");
    let copies = factors.map(|name| (fresh(&name, "_shared"), name));
    let [xb, xg, xw, xv, xl] = ["_b", "_g", "_w", "_v", "_l"].map(|suffix| fresh(x, suffix));
    let [yb, yg, yv, yt, yi] = ["_b", "_g", "_v", "_t", "_i"].map(|suffix| fresh(y, suffix));
    let [group, lane] = ["_group", "_lane"].map(|suffix| fresh(&stage, suffix));
    let [ko, kt, ki] = ["_o", "_t", "_i"].map(|suffix| fresh(k, suffix));
    let layout = format!("[{x} // 8, {x} % 8, {y} // 8, {y} % 8 // 2, {y} % 2]");
    text.push(format!("let {sums} = {stage}.cache_write(local, layout={layout})"));
    for (copy, name) in &copies {
        let layout = "[ax1 // 64, ax0, ax1 % 64]";
        text.push(format!("let {copy} = {name}.cache_read(shared, [{sums}], layout={layout})"));
    }
    text.push(format!(
        "let {xb}, {xg}, {xw}, {xv}, {xl} = {stage}.split({x}, factors=[{high}, 4, 2, 8])"
    ));
    text.push(format!(
        "let {yb}, {yg}, {yv}, {yt}, {yi} = {stage}.split({y}, factors=[{wide}, {groups}, 4, 2])"
    ));
    text.push(format!(
        "{stage}.reorder({xb}, {yb}, {xg}, {yg}, {xw}, {xl}, {yt}, {xv}, {yv}, {yi})"
    ));
    text.push(format!("let {group} = {stage}.fuse({xg}, {yg})"));
    text.push(format!("let {lane} = {stage}.fuse({xl}, {yt})"));
    let binds = [(&xb, "blockIdx.y"), (&yb, "blockIdx.x"), (&group, "threadIdx.z")];
    for (axis, index) in binds.into_iter().chain([(&xw, "threadIdx.y"), (&lane, "threadIdx.x")]) {
        text.push(format!("{stage}.bind({axis}, {index})"));
    }
    text.push(format!("{stage}.vectorize({yi})"));
    text.push(format!("{sums}.compute_at({stage}, {lane})"));
    let (each, intrinsic) = (product.terms, product.name);
    let steps = terms / each;
    text.push(format!("let {ko}, {kt}, {ki} = {sums}.split({k}, factors=[{steps}, {each}])"));
    text.push(format!("{sums}.reorder({ko}, {kt}, p1, p3, p0, p2, p4, {ki})"));
    text.push(format!("{sums}.unroll({kt})"));
    if stages > 1 {
        text.push(format!("{sums}.pipeline({ko}, stages={stages})"));
    }
    text.push(format!("{sums}.tensorize(p0, {intrinsic}{permission})"));
    for (copy, _) in &copies {
        let text = &mut planner.text;
        let [so, si, chunk] = ["_so", "_si", "_chunk"].map(|suffix| text.fresh(copy, suffix));
        text.push(format!("{copy}.compute_at({sums}, {ko})"));
        text.push(format!("let {so}, {si} = {copy}.split(p2, factor={})", product.row()));
        text.push(format!("{copy}.reorder(p1, p0, {so}, {si})"));
        text.push(format!("let {chunk} = {copy}.fuse(p1, p0, {so})"));
        share(planner, copy, &chunk, (high * wide, GROUP_WARPS));
        planner.text.push(format!("{copy}.vectorize({si})"));
    }
}

//! The rule for GPUs: a thread for each element.

use super::plan::Planner;

/// Threads of a block: a few warps, so that a multiprocessor has several blocks at once.
const BLOCK: i64 = 256;

/// Shares a stage out to threads.
pub(super) fn threads(planner: &mut Planner, at: usize) -> bool {
    if !planner.target.is_gpu() {
        return false;
    }
    let plan = &planner.plans[at];
    let name = plan.name.clone();
    let axes: Vec<String> =
        plan.leaves.iter().filter(|l| !l.reduce).map(|l| l.name.clone()).collect();
    let elements = planner.views[at]
        .data
        .iter()
        .try_fold(1i64, |product, axis| Some(product.saturating_mul(axis.extent?)));
    let threads = elements.map_or(BLOCK, |elements| elements.clamp(1, BLOCK));
    let text = &mut planner.text;
    let all = match &axes[..] {
        [] => {
            text.rule("threads", &format!("`{name}` is a single element, and one thread has it"));
            return true;
        }
        [axis] => axis.clone(),
        _ => text.fresh(&name, "_all"),
    };
    let (blocks, inner) = (text.fresh(&name, "_b"), text.fresh(&name, "_t"));
    text.rule("threads", &format!("a thread for each element, {threads} in a block"));
    if axes.len() > 1 {
        text.push(format!("let {all} = {name}.fuse(*)"));
    }
    text.push(format!("let {blocks}, {inner} = {name}.split({all}, factor={threads})"));
    text.push(format!("{name}.bind({blocks}, blockIdx.x)"));
    text.push(format!("{name}.bind({inner}, threadIdx.x)"));
    true
}

//! What the rules for tensor cores share: sizes of tiles, and copies by all threads of a block.

use super::plan::Planner;

/// Returns the options that divide an extent.
pub(super) fn parts(extent: i64, unit: i64, choices: &[i64]) -> Vec<i64> {
    choices.iter().copied().filter(|count| extent % (unit * count) == 0).collect()
}

/// Distributes the pieces of a copy over the threads of a block.
pub(super) fn share(planner: &mut Planner, copy: &str, chunk: &str, (high, wide): (i64, i64)) {
    let text = &mut planner.text;
    let [rest, z, y, x] = ["_rest", "_z", "_y", "_x"].map(|suffix| text.fresh(copy, suffix));
    text.push(format!(
        "let {rest}, {z}, {y}, {x} = {copy}.split({chunk}, factors=[{high}, {wide}, 32])"
    ));
    for (axis, index) in [(z, "threadIdx.z"), (y, "threadIdx.y"), (x, "threadIdx.x")] {
        text.push(format!("{copy}.bind({axis}, {index})"));
    }
}

//! Random schedules of copies and partial reductions: `cache_write`, `cache_read` with layouts,
//! `rfactor`, loops around them. The interpreter gives the results of the default schedule for the
//! scheduled kernel, bit for bit.

use crate::support::Random;
use crate::support::differential;
use crate::support::differential::{Case, Verdict};
use tec::driver::{self, Options};
use tec::target::Target;

const KERNEL: &str = "
reducer best((ai, av), (bi, bv)) =
    (if av > bv or (av == bv and ai < bi) then ai else bi, max(av, bv))
    identity (max_value, min_value)

kernel k(m: var, n = 7, l = 10) {
    input A: int32[m, l]
    input B: float16[l, n]
    reduce k: 0..l, r: 1..4
    compute T[i: m, j: l] = A[i, j] * 3
    compute H[i: l, j: n] = B[i, j] as float32
    output C[x: m, y: n] = sum(
        T[x, k] * T[m - 1 - x, y] * r as int32, axis=[k, r], where=A[x, k] != 1)
    output (I: int32, V: int32)[x: m] = best((k, T[x, k]), axis=k)
    output D[x: m, y: n] = sum(H[k, y] * (T[x, k] as float32), axis=k)
}
";

const LAYOUTS: [&str; 9] = [
    "[ax0, ax1]",
    "[ax1, ax0]",
    "[ax1 // 4, ax0, ax1 % 4]",
    "[ax0 // 3, ax1 // 2, ax0 % 3, ax1 % 2]",
    "[ax0 * 10 + ax1]",
    "[ax0 * 16 + ax1]",
    "[ax1 % 4, ax0 * 4 + ax1 // 4]",
    "[(ax1 // 2) % 3, ax1 // 6, ax0, ax1 % 2]",
    "[ax0 // 4, ax1 * 4 + ax0 % 4]",
];

/// Directives on the kernel above.
fn draw(random: &mut Random) -> String {
    let mut text = String::new();
    let scope = |random: &mut Random| random.pick(&["local", "global"]);
    if random.chance() {
        text += "T.compute_inline()\n";
    }
    for (tensor, readers) in
        [("T", "[C, D]"), ("T", "[I]"), ("A", "[T]"), ("B", "[H]"), ("H", "[D]")]
    {
        if random.chance() {
            let (scope, layout) = (scope(random), random.pick(&LAYOUTS));
            let layout = if random.chance() { format!(", layout={layout}") } else { String::new() };
            text += &format!("{tensor}.cache_read({scope}, {readers}{layout})\n");
        }
    }
    for (stage, axes) in [("C", &["k", "r"][..]), ("I", &["k"]), ("D", &[])] {
        let mut owner = stage.to_string();
        if random.chance() {
            let (scope, factor) = (scope(random), 1 + random.below(5));
            text += &format!("let {stage}L = {stage}.cache_write({scope})\n");
            text += &format!("let {stage}o, {stage}i = {stage}.split(x, factor={factor})\n");
            owner = format!("{stage}L");
            if random.chance() {
                text += &format!("{owner}.compute_at({stage}, {stage}o)\n");
            }
        }
        let Some(mut axis) = (!axes.is_empty()).then(|| random.pick(axes).to_string()) else {
            continue;
        };
        if random.chance() {
            let (how, factor) = (random.pick(&["factor", "nparts"]), 1 + random.below(6));
            let tail = random.pick(&["", ", tail=guard", ", tail=peel"]);
            text +=
                &format!("let {stage}p, {stage}q = {owner}.split({axis}, {how}={factor}{tail})\n");
            axis = format!("{stage}{}", random.pick(&["p", "q"]));
        }
        if random.chance() {
            text += &format!("let {stage}R = {owner}.rfactor({axis})\n");
            if random.chance() {
                text += &format!("{stage}R.parallel({axis})\n");
            }
            if random.chance() {
                text += &format!("{stage}R.reorder(x, {axis})\n");
            }
        }
    }
    text
}

#[test]
fn copies_change_no_result() {
    let options = Options::new(Target::parse("x86-avx2").expect("a target"));
    let mut random = Random(3);
    let (mut same, mut refused) = (0, Vec::new());
    driver::with_stack(|| {
        for seed in 0..300 {
            let directives = draw(&mut random);
            let text = format!("{KERNEL}\nschedule k {{\n{directives}}}\n");
            let vars = vec![("m".to_string(), random.below(9) as i64)];
            let case = Case { text, kernel: "k".to_string(), vars, seed };
            match differential::interpret(&case, &options) {
                Ok(_) => same += 1,
                Err(Verdict::Refused(codes, _)) => refused.push((codes, directives)),
                Err(verdict) => panic!("{verdict:?}\n{directives}"),
            }
        }
    });
    assert!(same >= 200, "{same} legal; {:?}", refused.first());
}

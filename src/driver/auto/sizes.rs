//! Automatic schedules of kernels with run-time integers: one for calls in which an integer is
//! small, where packing an input does not pay, one for calls in which all are small, where tiles
//! are mostly tails, and one for others.
//!
//! ```text
//! schedule mm for x86-avx512 {
//!     if n <= 8 {
//!         …
//!     } else {
//!         …
//!     }
//! }
//! ```

use super::super::Options;
use super::affordable;
use super::estimator::{Estimator, THREADS, geometric_mean};
use crate::ir::Var;
use crate::schedule::with_all_features;
use crate::te::{Graph, Input};
use crate::tune;
use crate::tune::model::{ASSUMED_VALUE, RunTimeValues};
use std::collections::BTreeSet;

/// The values of integers that are not small; estimates are for all of them. The sides of matrices
/// that fit the first-level cache, whose tails matter, and of others.
const USUAL: [i64; 2] = [61, ASSUMED_VALUE as i64];
/// The number of these values for which threads do not count: their calls are short.
const SERIAL: usize = 1;
/// The largest value for which the first one stands.
const MEDIUM: i64 = 64;
/// The elements of the largest tensor of a call with large values: a few MB, more than a
/// second-level cache holds.
const LARGE_ELEMENTS: f64 = (1 << 20) as f64;
/// The small values of an integer, such as the rows of a small batch. With the first one, the other
/// integers have the usual value, with the second one the large value.
const FEW: [i64; 2] = [1, 4];
/// The values up to which an integer may count as small, each with the value that is estimated:
/// most sizes leave a tail of a tile.
const LIMITS: [(i64, i64); 7] = [(1, 1), (2, 2), (4, 3), (8, 7), (16, 13), (32, 29), (64, 61)];
/// The values up to which all integers together may count as small. For larger ones, the estimates
/// of tiles that are mostly tails are not good enough.
const ALL_LIMITS: [(i64, i64); 4] = [(2, 2), (4, 3), (8, 7), (16, 13)];
/// The schedule for small values must be faster by this factor there; else one schedule is enough.
const MIN_GAIN: f64 = 1.25;
/// And by this many seconds: a version of its own is not worth less.
const MIN_SAVING: f64 = 3e-8;
/// Schedules for small values that take at most this many times as long as the best one may be
/// chosen instead, if they are faster than the usual one up to larger values.
const NEAR_BEST: f64 = 1.15;
/// The most of these that are compared, and the most if the searches took all of their effort.
const MOST_NEAR: usize = 4;
const FEWEST_NEAR: usize = 2;
/// No estimate of a schedule for small values may be longer than that of the usual one by this
/// factor, where it is used.
const MAX_LOSS: f64 = 1.5;
/// An estimate takes about this many times as long as one of a kernel with constant sizes, whose
/// loops have no tails of unknown lengths: fewer candidates fit into the same time.
const ESTIMATE_COST: usize = 2;
/// One in this many candidates of the search is for the small values of an integer.
const FEW_INTERVAL: usize = 4;
/// What the estimates of both searches may take.
const USUAL_EFFORT: i64 = 400_000;
const FEW_EFFORT: i64 = 250_000;

/// Whether a kernel may get several schedules. One with estimates gets the best for these calls.
/// Functions that pack inputs ahead have one layout, and launches on a GPU are the same in each
/// call.
pub(super) fn depends_on_sizes(graph: &Graph, options: &Options) -> bool {
    let packs = !options.prepacked.selected(graph).is_empty();
    let sizes_are_known = graph.vars.is_empty() || !graph.estimates.is_empty();
    !packs && !options.target.is_gpu() && !sizes_are_known
}

/// Returns the best of about `count` candidates, or a text with several of them.
pub(super) fn choose(estimator: &Estimator, count: usize) -> Option<String> {
    let vars = &estimator.graph.vars;
    let all = |value: &i64| vars.iter().map(|var| (var.clone(), *value)).collect();
    let large = large(estimator.graph);
    let values: Vec<RunTimeValues> = USUAL.iter().chain(&large).map(all).collect();
    let before = estimator.effort();
    let usual_end = before + USUAL_EFFORT;
    let usual = affordable(estimator, count / ESTIMATE_COST, &values, USUAL_EFFORT);
    let usual = estimator.choose((&values, SERIAL), (usual, usual_end), &mut Vec::new())?;
    let usual_value = ASSUMED_VALUE as i64;
    let others = [usual_value, large.unwrap_or(usual_value)];
    let few = |var| [0, 1].map(|at| small(vars, var, FEW[at], others[at]));
    let small: Vec<RunTimeValues> = vars.iter().flat_map(few).collect();
    let mut seen = Vec::new();
    let few_end = estimator.effort() + FEW_EFFORT;
    let few = affordable(estimator, count / FEW_INTERVAL, &small, FEW_EFFORT);
    estimator.choose((&small, 0), (few, few_end), &mut seen);
    let is_spent = estimator.effort() - before >= USUAL_EFFORT + FEW_EFFORT;
    let most_near = if is_spent { FEWEST_NEAR } else { MOST_NEAR };
    let mut more = serial_versions(&seen, vars.len(), most_near);
    // Where every size is small, tiles are mostly tails.
    let simple = tune::space::simple_text(estimator.graph, &estimator.options.target);
    more.extend(simple.clone());
    for text in more {
        let seconds = estimator.seconds(&text, &small, &THREADS);
        seen.extend(seconds.map(|seconds| (text, seconds)));
    }
    let Some(of_usual) = estimator.seconds(&usual, &small, &THREADS) else { return Some(usual) };
    // The best schedule for each small integer, with the conditions under which it is used.
    let mut versions: Vec<(&str, Vec<String>)> = Vec::new();
    for (at, var) in vars.iter().enumerate() {
        let mean = |seconds: &[f64]| mean_of(at, seconds);
        let mut near: Vec<(f64, &str)> =
            seen.iter().map(|(text, seconds)| (mean(seconds), &text[..])).collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some((best, _)) = near.first().copied() else { continue };
        if mean(&of_usual) < (MIN_GAIN * best).max(best + MIN_SAVING) {
            continue;
        }
        near.dedup_by_key(|(_, text)| *text);
        near.retain(|(mean, _)| *mean <= NEAR_BEST * best);
        near.truncate(most_near);
        let others: Vec<i64> = USUAL[SERIAL..].iter().copied().chain(large).collect();
        let texts: Vec<&str> = near.iter().map(|(_, text)| *text).collect();
        let Some(Range { limit, text, if_all_are_small }) =
            longest(estimator, var, &others, &texts, &usual)
        else {
            continue;
        };
        let mut cond = format!("{} <= {limit}", var.name());
        if !if_all_are_small && let Some(others) = one_is_larger(vars, var) {
            cond.push_str(&format!(" and {others}"));
        }
        match versions.iter_mut().find(|(version, _)| *version == text) {
            Some((_, conditions)) => conditions.push(cond),
            None => versions.push((text, vec![cond])),
        }
    }
    if versions.is_empty() && vars.len() < 2 {
        return Some(usual);
    }
    // What is known in a version may make a directive illegal that was legal without it.
    let points: Vec<RunTimeValues> = ALL_LIMITS.iter().map(|(_, value)| all(value)).collect();
    let seconds = |text: &str| estimator.seconds(text, &points, &THREADS[..1]);
    let joined = |versions: &[(&str, Vec<String>)]| {
        let text = if versions.is_empty() { Some(usual.clone()) } else { join(versions, &usual) };
        text.and_then(|text| seconds(&text).map(|seconds| (text, seconds)))
    };
    let Some((chosen, of_chosen)) = joined(&versions) else { return Some(usual) };
    if vars.len() < 2 {
        return Some(chosen);
    }
    let mut near: Vec<(f64, &str)> =
        seen.iter().map(|(text, seconds)| (geometric_mean(seconds), &text[..])).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    near.dedup_by_key(|(_, text)| *text);
    let near = near.iter().map(|(_, text)| *text).take(FEWEST_NEAR);
    let texts = simple.as_deref().into_iter().chain(near).filter_map(|text| {
        let limit = limit_of_all(&seconds(text)?, &of_chosen)?;
        Some((limit, text))
    });
    let Some((limit, text)) = texts.reduce(|a, b| if b.0 > a.0 { b } else { a }) else {
        return Some(chosen);
    };
    let each: Vec<String> = vars.iter().map(|var| format!("{} <= {limit}", var.name())).collect();
    let mut conditions = vec![each.join(" and ")];
    if let Some(at) = versions.iter().position(|(version, _)| *version == text) {
        conditions.extend(versions.remove(at).1);
    }
    versions.insert(0, (text, conditions));
    joined(&versions).map(|(text, _)| text).or(Some(chosen))
}

/// Returns up to which value of all integers a schedule is clearly faster than the chosen one,
/// whose times for [`ALL_LIMITS`] are `chosen`; `None` if it is not, or saves too little.
fn limit_of_all(seconds: &[f64], chosen: &[f64]) -> Option<i64> {
    let pairs = seconds.iter().zip(chosen).zip(ALL_LIMITS);
    let ((own, chosen), (limit, _)) =
        pairs.take_while(|((own, chosen), _)| *own * MIN_GAIN < **chosen).last()?;
    (chosen - own >= MIN_SAVING).then_some(limit)
}

/// Returns the mean of the seconds of calls in which the integer number `at` is small.
fn mean_of(at: usize, seconds: &[f64]) -> f64 {
    let of_var = &seconds[at * FEW.len()..][..FEW.len()];
    of_var.iter().product::<f64>().powf(1.0 / FEW.len() as f64)
}

/// Returns the `count` best schedules for each of `vars` small integers without their parallel
/// loops. The search tries few candidates, and calls with small integers are often too short for
/// threads.
fn serial_versions(seen: &[(String, Vec<f64>)], vars: usize, count: usize) -> BTreeSet<String> {
    let best = |at: usize| {
        let mut all: Vec<&(String, Vec<f64>)> = seen.iter().collect();
        all.sort_by(|a, b| mean_of(at, &a.1).total_cmp(&mean_of(at, &b.1)));
        all.into_iter().take(count)
    };
    let versions = (0..vars).flat_map(best).map(|(text, _)| without_threads(text));
    versions.filter(|text| seen.iter().all(|(known, _)| known != text)).collect()
}

/// Returns a schedule without its parallel loops and the comments on them.
fn without_threads(text: &str) -> String {
    let kept = |line: &&str| {
        let line = line.trim_start();
        !line.starts_with("# parallel:") && !line.contains(".parallel(")
    };
    text.split_inclusive('\n').filter(kept).collect()
}

/// Where a schedule is faster than the usual one.
struct Range<'t> {
    /// The largest value of the small integer.
    limit: i64,
    /// The schedule.
    text: &'t str,
    /// Whether it is also faster in calls in which the other integers are medium.
    if_all_are_small: bool,
}

/// Returns the schedule that is faster than the usual one up to the largest value of an integer: in
/// the mean of calls in which the other integers have the values `others`, with one thread and with
/// several, and in none of them much slower. `None` if no schedule is.
fn longest<'t>(
    estimator: &Estimator,
    var: &Var,
    others: &[i64],
    texts: &[&'t str],
    usual: &str,
) -> Option<Range<'t>> {
    let vars = &estimator.graph.vars;
    let others = [&USUAL[..SERIAL], others].concat();
    let values: Vec<RunTimeValues> = LIMITS
        .iter()
        .flat_map(|(_, value)| others.iter().map(|other| small(vars, var, *value, *other)))
        .collect();
    let of_usual = estimator.each(usual, &values)?;
    let range = |text: &&'t str| {
        let of_text = estimator.each(text, &values)?;
        let pairs = of_text.chunks(others.len()).zip(of_usual.chunks(others.len())).zip(LIMITS);
        let ratios = |text: &[Vec<f64>], usual: &[Vec<f64>]| -> Vec<f64> {
            let pairs = text.iter().flatten().zip(usual.iter().flatten());
            pairs.map(|(text, usual)| text / usual).collect()
        };
        let (mut last, mut of_medium) = (None, 1.0);
        for ((text, usual), (limit, _)) in pairs {
            let of_large = ratios(&text[SERIAL..], &usual[SERIAL..]);
            if of_large.iter().product::<f64>() >= 1.0
                || of_large.iter().any(|ratio| *ratio >= MAX_LOSS)
            {
                break;
            }
            last = Some(limit);
            of_medium *= ratios(&text[..SERIAL], &usual[..SERIAL]).iter().product::<f64>();
        }
        Some(Range { limit: last?, text, if_all_are_small: of_medium < 1.0 })
    };
    // The best one of several that reach as far.
    let ranges = texts.iter().filter_map(range);
    ranges.reduce(|best, next| if next.limit > best.limit { next } else { best })
}

/// Returns the condition that one of the other integers is larger than [`MEDIUM`]; `None` if there
/// is no other one.
fn one_is_larger(vars: &[Var], var: &Var) -> Option<String> {
    let others = vars.iter().filter(|other| *other != var);
    let larger: Vec<String> = others.map(|other| format!("{} > {MEDIUM}", other.name())).collect();
    match &larger[..] {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("({})", several.join(" or "))),
    }
}

/// Returns the large value of a kernel's integers, a power of two, at which strides conflict in
/// caches; `None` if it is not larger than the usual ones.
fn large(graph: &Graph) -> Option<i64> {
    let of_inputs = graph.inputs.iter().filter_map(|input| match input {
        Input::Tensor { buffer, .. } => Some(buffer),
        Input::Scalar { .. } => None,
    });
    let values = of_inputs.chain(&graph.outputs).filter_map(|tensor| {
        let constant = tensor.shape.iter().filter_map(|extent| extent.as_int());
        let rank = tensor.shape.len() - constant.clone().count();
        let elements = LARGE_ELEMENTS / constant.map(|extent| extent as f64).product::<f64>();
        (rank > 0).then(|| elements.log2() / rank as f64)
    });
    // Of no elements, and of too many for any value.
    let exponent = values.min_by(f64::total_cmp)?.clamp(0.0, LARGE_ELEMENTS.log2());
    Some(1 << exponent as u32).filter(|value| *value > ASSUMED_VALUE as i64)
}

/// All integers with the value `others`, but one with the value `few`.
fn small(vars: &[Var], var: &Var, few: i64, others: i64) -> RunTimeValues {
    let value = |one: &Var| if one == var { few } else { others };
    vars.iter().map(|one| (one.clone(), value(one))).collect()
}

/// Returns the text of a schedule that chooses between several.
fn join(versions: &[(&str, Vec<String>)], other: &str) -> Option<String> {
    let (head, other) = parts(other)?;
    let mut heads = vec![head];
    let mut branches = String::new();
    for (text, conditions) in versions {
        let (head, body) = parts(text)?;
        heads.push(head);
        let cond = conditions.join(" or ");
        branches.push_str(&format!("if {cond} {{\n{}    }} else ", indented(body)));
    }
    let body = format!("    {branches}{{\n{}    }}\n", indented(other));
    // The target is the last word of a head.
    Some(format!("{} {{\n{body}}}\n", with_all_features(heads)))
}

/// Indents the lines of a block.
fn indented(body: &str) -> String {
    body.lines().map(|line| format!("    {line}\n")).collect()
}

/// Returns `schedule KERNEL for TARGET` and the statements.
fn parts(text: &str) -> Option<(&str, &str)> {
    let (head, body) = text.strip_suffix("}\n")?.split_once(" {\n")?;
    Some((head, body))
}

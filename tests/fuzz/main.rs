//! The differential fuzzer: random programs (`generate`, `pipeline`) with the default schedule,
//! random schedules (`schedule`), the automatic schedule and candidates of the tuner's space, and
//! as networks of several kernels (`network`). Each program runs in several ways that must agree
//! bit for bit (`differential`): the default schedule, the schedule forwards and backwards, the
//! loops after all passes, machine code. No two threads may write one element (`rewrite`).
//! Schedules that a legality check refuses run without the check and must give wrong results
//! (`unchecked`). Sums of products are rewritten by `merge` and
//! `contract` (`algebra`), and computed in tiles that end outside of their tensors (`tiles`).
//! Sums over run-time sizes have rows that may not exist (`rows`). Vectors of partial results are
//! reduced in steps (`lanes`). Channels of pixels are fused with columns (`pixels`), rows are
//! clamped at their ends (`borders`). Integers of many types are computed in narrower ones
//! (`integers`).
//! Programs with packs give the loops of the same programs without (`packs`).
//! Injected faults must be found (`faults`), and nearly every barrier must be necessary
//! (`barriers`). Damaged inputs of every kind must give an error or a result, never a panic
//! (`damage`).
//!
//! `make fuzz N=10000 SEED=1` runs many programs; it sets `TEC_FUZZ_N` and `TEC_FUZZ_SEED`. A
//! program depends only on the seed and its number. A finding is shrunk and printed as a golden
//! test for `tests/golden/run`. While a batch runs, its programs are in
//! `target/tmp/Plain-THREAD.te`, `Scheduled-THREAD.te` or `Auto-THREAD.te`, in case the process
//! dies.

mod algebra;
mod barriers;
mod batch;
mod borders;
mod damage;
mod express;
mod faults;
mod generate;
mod integers;
mod lanes;
mod packs;
mod pipeline;
mod pixels;
mod recurrence;
mod rows;
mod run;
mod schedule;
mod shrink;
mod sort;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
mod survey;
mod table;
mod tiles;
mod tree;
mod unchecked;
mod watch;

use support::{data, differential, network, rewrite};

/// Returns a number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn random_programs_agree() {
    let n = setting("TEC_FUZZ_N", 200);
    run::differential(n, setting("TEC_FUZZ_SEED", 0), run::Source::Plain);
}

#[test]
fn scheduled_programs_agree() {
    let n = setting("TEC_FUZZ_N", 300);
    run::differential(n, setting("TEC_FUZZ_SEED", 0), run::Source::Scheduled);
}

#[test]
fn requests_are_for_visible_buffers() {
    run::requests_are_for_visible_buffers();
}

#[test]
fn launches_agree() {
    let n = setting("TEC_FUZZ_N", 200);
    run::differential(n, setting("TEC_FUZZ_SEED", 0), run::Source::Threads);
}

#[test]
fn barriers_of_launches_are_needed() {
    let n = setting("TEC_FUZZ_N", 240);
    barriers::are_needed(n, setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn programs_agree_under_auto() {
    let n = setting("TEC_FUZZ_N", 200);
    run::differential(n, setting("TEC_FUZZ_SEED", 0), run::Source::Auto);
}

#[test]
fn networks_agree() {
    let n = setting("TEC_FUZZ_N", 200);
    run::differential(n, setting("TEC_FUZZ_SEED", 0), run::Source::Network);
}

#[test]
fn candidates_agree() {
    let n = setting("TEC_FUZZ_N", 300);
    run::differential(n, setting("TEC_FUZZ_SEED", 0), run::Source::Space);
}

#[test]
fn candidates_for_gpus_agree() {
    let n = setting("TEC_FUZZ_N", 100);
    run::differential(n, setting("TEC_FUZZ_SEED", 0), run::Source::SpaceThreads);
}

#[test]
fn programs_with_packs_agree() {
    packs::agree(setting("TEC_FUZZ_N", 400), setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn sums_of_products_agree() {
    algebra::algebra(setting("TEC_FUZZ_N", 200), setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn rows_that_may_not_exist_agree() {
    rows::rows(setting("TEC_FUZZ_N", 80), setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn reductions_in_lanes_agree() {
    lanes::lanes(setting("TEC_FUZZ_N", 200), setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn borders_agree() {
    borders::borders(setting("TEC_FUZZ_N", 200), setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn pixels_agree() {
    pixels::pixels(setting("TEC_FUZZ_N", 200), setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn tiles_of_products_agree() {
    tiles::tiles(setting("TEC_FUZZ_N", 200), setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn narrower_integers_agree() {
    integers::integers(setting("TEC_FUZZ_N", 150), setting("TEC_FUZZ_SEED", 0));
}

#[test]
fn injected_faults_are_found() {
    faults::find("a tail without its condition", faults::drop_guard);
    faults::find("a row that is not computed", faults::drop_row);
    faults::find("two fused axes swapped", faults::swap_fused);
}

#[test]
fn injected_faults_of_the_simd_back_end_are_found() {
    for target in ["x86-avx2", "x86-avx512"] {
        faults::find_in_code("a mask of one lane more", target, faults::widen_mask);
        faults::find_in_code("a minimum with its operands swapped", target, faults::swap_minimum);
        faults::find_in_code("a wrong column of a tile", target, faults::shuffle_wrongly);
        faults::find_in_code("a broadcast of another element", target, faults::broadcast_another);
    }
}

/// Feeds `TEC_FUZZ_N` damaged inputs of a kind, or without the variable as many as fit in
/// `seconds`.
fn feed_damaged(kind: &dyn damage::Kind, seconds: u64) {
    let n = setting("TEC_FUZZ_N", u64::MAX);
    let time = (n == u64::MAX).then_some(std::time::Duration::from_secs(seconds));
    damage::feed(kind, n, setting("TEC_FUZZ_SEED", 0), time);
}

#[test]
fn damaged_programs_never_panic() {
    feed_damaged(&damage::source::Sources::new(setting("TEC_FUZZ_SEED", 0)), 6);
}

#[test]
fn damaged_modules_never_panic() {
    feed_damaged(&damage::files::Modules::new(), 2);
}

#[test]
fn damaged_records_never_panic() {
    feed_damaged(&damage::files::Records::new(), 2);
}

#[test]
fn damaged_arrays_never_panic() {
    feed_damaged(&damage::files::Arrays::new(), 2);
}

#[test]
fn damaged_ptx_never_panics() {
    feed_damaged(&damage::ptx::Texts::new(), 3);
}

#[test]
fn damaged_replies_of_a_far_side_never_panic() {
    feed_damaged(&damage::frames::Replies::new(), 2);
}

#[test]
fn damaged_requests_to_a_far_side_never_panic() {
    feed_damaged(&damage::frames::Requests::new(), 2);
}

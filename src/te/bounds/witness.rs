//! Searches for values of axes that violate a condition: at the corners of the domain, then at
//! every point of a small domain or at samples of a large one.

use super::tape::Tape;
use crate::ir::{Const, Expr, Var};

/// The largest domain, in points, that is searched completely.
const MAX_POINTS: u128 = 1 << 22;
/// The number of samples of a larger domain.
const SAMPLES: u64 = 1 << 14;

/// The result of a search.
pub(super) enum SearchResult {
    /// A point, one value for each axis, and the value of the index there (`None` if it overflows).
    Violated(Vec<i64>, Option<i128>),
    /// No point of the domain violates the condition.
    Holds,
    /// No sample violates the condition.
    Unknown,
}

/// Axes with constant ranges, and the conditions under which an expression is evaluated.
pub(super) struct Domain<'a> {
    pub(super) axes: &'a [(Var, i64, i64)],
    pub(super) guards: &'a [(Expr, bool)],
}

/// Searches for a point where the guards hold and `value` is outside `low ..= high`. `None` if the
/// expressions cannot be evaluated.
pub(super) fn find_violation(
    domain: &Domain,
    value: &Expr,
    low: i128,
    high: i128,
) -> Option<SearchResult> {
    let vars: Vec<Var> = domain.axes.iter().map(|axis| axis.0.clone()).collect();
    let mut tape = Tape::default();
    let mut guards = Vec::new();
    for (cond, truth) in domain.guards {
        guards.push((tape.add(cond, &vars)?, *truth));
    }
    let value = tape.add(value, &vars)?;
    let mut values = Vec::new();
    let mut violation = |point: &[i64]| -> Option<Option<i128>> {
        tape.run(point, &mut values);
        let holds = |(at, truth): &(usize, bool)| match values[*at] {
            Some(Const::Int(cond)) => (cond != 0) == *truth,
            _ => false,
        };
        if !guards.iter().all(holds) {
            return None;
        }
        match values[value] {
            Some(Const::Int(value)) if (low..=high).contains(&value) => None,
            Some(Const::Int(value)) => Some(Some(value)),
            _ => Some(None),
        }
    };
    let found = |point: Vec<i64>, value| Some(SearchResult::Violated(point, value));
    for point in corners(domain.axes) {
        if let Some(value) = violation(&point) {
            return found(point, value);
        }
    }
    let points = domain.axes.iter().fold(1u128, |n, axis| n.saturating_mul(axis.2 as u128));
    if points > MAX_POINTS {
        for point in samples(domain.axes) {
            if let Some(value) = violation(&point) {
                return found(point, value);
            }
        }
        return Some(SearchResult::Unknown);
    }
    let mut point: Vec<i64> = domain.axes.iter().map(|axis| axis.1).collect();
    loop {
        if let Some(value) = violation(&point) {
            return found(point, value);
        }
        // Advance to the next point; the last axis varies fastest.
        let mut at = point.len();
        loop {
            if at == 0 {
                return Some(SearchResult::Holds);
            }
            at -= 1;
            let (_, min, extent) = domain.axes[at];
            point[at] += 1;
            if point[at] < min + extent {
                break;
            }
            point[at] = min;
        }
    }
}

/// Returns the corners of the domain: the last values first, with both ends of the first six axes
/// only.
fn corners(axes: &[(Var, i64, i64)]) -> Vec<Vec<i64>> {
    let count = 1u32 << axes.len().min(6);
    let corner = |mask: u32| {
        let pick = |(at, (_, min, extent)): (usize, &(Var, i64, i64))| {
            if at >= 6 || mask & (1 << at) != 0 { min + extent - 1 } else { *min }
        };
        axes.iter().enumerate().map(pick).collect()
    };
    (0..count).rev().map(corner).collect()
}

/// Pseudo-random points, always the same.
fn samples(axes: &[(Var, i64, i64)]) -> impl Iterator<Item = Vec<i64>> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..SAMPLES).map(move |_| {
        let mut next = |(_, min, extent): &(Var, i64, i64)| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            min + ((state >> 1) % *extent as u64) as i64
        };
        axes.iter().map(&mut next).collect()
    })
}

//! Typical sizes of run-time dimensions, which the `estimate` statements of a network give.
//!
//! A model says which dimensions are known at run time only, not how large they usually are. The
//! place of a dimension in the shapes of inputs, and its name, say what it is: the batch, a side of
//! an image, or the length of a sequence. The sizes here are common ones; whoever knows better
//! edits the text of the network.

use crate::context::Context;
use crate::dim::Dim;
use crate::graph::T;
use std::collections::{BTreeMap, BTreeSet};

/// The sizes that are tried for a side of an image, the most usual one first.
const SIDES: [i64; 12] = [320, 256, 224, 640, 128, 64, 48, 32, 16, 8, 4, 1];
/// The same for a sequence; the large ones are samples of audio.
const LENGTHS: [i64; 12] = [128, 256, 512, 1024, 16_000, 64, 48, 32, 16, 8, 4, 1];
/// The sizes of a batch: a single call, and one of many.
const BATCHES: [i64; 2] = [1, 16];
/// The most combinations of sizes that are tried.
const MAX_TRIALS: usize = 2_000;

/// What a dimension counts, the weakest first: a dimension that is the first one of an input and
/// the last one of another is no batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Role {
    Batch,
    Length,
    Side,
}

impl Role {
    fn sizes(self) -> &'static [i64] {
        match self {
            Role::Batch => &BATCHES,
            Role::Length => &LENGTHS,
            Role::Side => &SIDES,
        }
    }
}

/// Returns the sizes of all run-time dimensions in typical calls, in the order of `symbols`; none
/// if no usual sizes satisfy what the network assumes.
pub(crate) fn typical_calls(
    symbols: &[String],
    inputs: &[Vec<Dim>],
    assumptions: &[(Dim, &'static str, Dim)],
    context: &Context,
    live: &BTreeSet<T>,
) -> Vec<Vec<i64>> {
    // What an assertion about sizes allows is not evaluated here.
    let reads = |e: &crate::expr::E| e.contains(&|e| matches!(e, crate::expr::E::Load(..)));
    if symbols.is_empty() || context.asserts.iter().any(|one| !reads(&one.cond)) {
        return Vec::new();
    }
    let extents: BTreeSet<&Dim> = live
        .iter()
        .flat_map(|tensor| &context.graph[*tensor].shape)
        .filter(|extent| extent.as_const().is_none() && !context.split_rows.contains(*extent))
        .collect();
    let leaders = leaders(symbols, assumptions);
    let mut roles: Vec<Role> = symbols.iter().map(|symbol| role(symbol, inputs)).collect();
    for (at, leader) in leaders.iter().enumerate() {
        roles[*leader] = roles[*leader].min(roles[at]);
    }
    let roles: Vec<Role> = leaders.iter().map(|leader| roles[*leader]).collect();
    let is_batch = |name: &str| {
        symbols.iter().zip(&roles).any(|(own, role)| own == name && *role == Role::Batch)
    };
    let of_batch =
        |extent: &Dim| extent.with_symbols(&|name| is_batch(name).then_some(1)).as_const();
    let of_others: Vec<&Dim> =
        extents.iter().copied().filter(|one| of_batch(one).is_none()).collect();
    // The number of axes with several elements, but those of batches, if the network allows the
    // sizes.
    let fitness = |sizes: &[i64]| -> Option<usize> {
        let values: BTreeMap<&str, i64> =
            symbols.iter().map(String::as_str).zip(sizes.iter().copied()).collect();
        let at = |dim: &Dim| dim.with_symbols(&|name| values.get(name).copied()).as_const();
        let holds = |(a, op, b): &(Dim, &'static str, Dim)| match (at(a), at(b), *op) {
            (Some(a), Some(b), "==") => a == b,
            (Some(a), Some(b), "!=") => a != b,
            (Some(a), Some(b), "<=") => a <= b,
            (Some(a), Some(b), ">=") => a >= b,
            _ => false,
        };
        let allowed = assumptions.iter().all(holds) && extents.iter().all(|one| at(one) >= Some(1));
        allowed.then(|| of_others.iter().filter(|one| at(one) >= Some(2)).count())
    };
    let fits = |sizes: &[i64]| fitness(sizes).is_some();
    // Sizes at which no axis has a single element say more about others.
    let free: Vec<Role> =
        (0..roles.len()).filter(|at| leaders[*at] == *at).map(|at| roles[at]).collect();
    let mut best: Option<(usize, Vec<i64>)> = None;
    for sizes in combinations(&free).take(MAX_TRIALS) {
        let mut sizes = sizes.into_iter();
        let mut all: Vec<i64> = Vec::with_capacity(symbols.len());
        for (at, leader) in leaders.iter().enumerate() {
            let size = if *leader == at { sizes.next() } else { all.get(*leader).copied() };
            all.extend(size);
        }
        if let Some(fitness) = fitness(&all)
            && best.as_ref().is_none_or(|(most, _)| fitness > *most)
        {
            best = Some((fitness, all));
            if fitness == of_others.len() {
                break;
            }
        }
    }
    let Some((_, first)) = best else { return Vec::new() };
    let in_batches = |size: i64| -> Vec<i64> {
        let of = |(role, one): (&Role, &i64)| if *role == Role::Batch { size } else { *one };
        roles.iter().zip(&first).map(of).collect()
    };
    let mut calls = vec![first.clone()];
    // A decoder computes one token after the other, and the first time those of the prompt.
    let is_step = |name: &String| context.new_tokens == Some(Dim::symbol(name));
    if let Some(at) = symbols.iter().position(is_step) {
        let mut step = first.clone();
        step[at] = 1;
        if fits(&step) {
            calls.insert(0, step);
            return calls;
        }
    }
    if roles.contains(&Role::Batch) {
        let others = BATCHES.map(in_batches).into_iter();
        calls.extend(others.filter(|sizes| *sizes != first && fits(sizes)));
    }
    calls
}

/// Returns for each symbol the position of the first one that it is equal to in all calls.
fn leaders(symbols: &[String], assumptions: &[(Dim, &'static str, Dim)]) -> Vec<usize> {
    let mut leaders: Vec<usize> = (0..symbols.len()).collect();
    let place = |dim: &Dim| symbols.iter().position(|symbol| *dim == Dim::symbol(symbol));
    for (a, op, b) in assumptions {
        if let ("==", Some(a), Some(b)) = (*op, place(a), place(b)) {
            let (low, high) = (leaders[a].min(leaders[b]), leaders[a].max(leaders[b]));
            leaders.iter_mut().filter(|own| **own == high).for_each(|own| *own = low);
        }
    }
    leaders
}

/// Returns the role of a dimension by its name, or by its places in the shapes of inputs.
fn role(symbol: &str, inputs: &[Vec<Dim>]) -> Role {
    let name = symbol.to_ascii_lowercase();
    if name.contains("batch") || ["n", "b", "bs"].contains(&&*name) {
        return Role::Batch;
    }
    if ["seq", "len", "time", "frame", "token"].iter().any(|word| name.contains(word)) {
        return Role::Length;
    }
    let places = inputs.iter().flat_map(|shape| {
        let axes = shape.iter().enumerate().filter(|(_, dim)| **dim == Dim::symbol(symbol));
        axes.map(|(axis, _)| match (axis, shape.len()) {
            (0, 2..) => Role::Batch,
            (2.., 4..) => Role::Side,
            _ => Role::Length,
        })
    });
    places.max().unwrap_or(Role::Length)
}

/// Returns combinations of sizes, those with the most usual ones first: one dimension after the
/// other leaves its first size.
fn combinations(roles: &[Role]) -> impl Iterator<Item = Vec<i64>> {
    let ranks = roles.iter().map(|role| role.sizes().len() - 1).sum::<usize>();
    (0..=ranks).flat_map(move |rank| {
        let mut all = Vec::new();
        with_rank(roles, rank, &mut Vec::new(), &mut all);
        all
    })
}

/// Adds the combinations whose positions in the lists of sizes have the sum `rank`.
fn with_rank(roles: &[Role], rank: usize, sizes: &mut Vec<i64>, all: &mut Vec<Vec<i64>>) {
    let Some((role, rest)) = roles.split_first() else {
        if rank == 0 {
            all.push(sizes.clone());
        }
        return;
    };
    let most: usize = rest.iter().map(|role| role.sizes().len() - 1).sum();
    for (at, size) in role.sizes().iter().enumerate().take(rank + 1) {
        if all.len() >= MAX_TRIALS {
            return;
        }
        // The others must be able to have the rest of the sum.
        if rank - at > most {
            continue;
        }
        sizes.push(*size);
        with_rank(rest, rank - at, sizes, all);
        sizes.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_by_name_and_place() {
        let [n, h, x] = ["n", "h", "x"].map(Dim::symbol);
        let image = vec![n.clone(), 3.into(), h.clone(), h.clone()];
        let text = vec![x.clone(), n.clone()];
        assert_eq!(role("n", std::slice::from_ref(&image)), Role::Batch);
        assert_eq!(role("h", &[image]), Role::Side);
        assert_eq!(role("x", std::slice::from_ref(&text)), Role::Batch);
        assert_eq!(role("x", &[text.clone(), vec![n, x.clone()]]), Role::Length);
        assert_eq!(role("x", &[vec![x]]), Role::Length);
        assert_eq!(role("sequence_length", &[text]), Role::Length);
        assert_eq!(role("dynamic_batch", &[]), Role::Batch);
    }

    #[test]
    fn equal_dimensions_have_one_leader() {
        let symbols = ["a", "b", "c", "d"].map(str::to_string);
        let [a, b, c, d] = ["a", "b", "c", "d"].map(Dim::symbol);
        let equal = [(d.clone(), "==", b), (c.clone(), "<=", a), (c, "==", d)];
        assert_eq!(leaders(&symbols, &equal), [0, 1, 1, 1]);
    }

    #[test]
    fn usual_sizes_come_first_and_all_come() {
        let all: Vec<Vec<i64>> = combinations(&[Role::Batch, Role::Side]).collect();
        assert_eq!(all[..4], [vec![1, 320], vec![1, 256], vec![16, 320], vec![1, 224]]);
        assert_eq!(all.len(), BATCHES.len() * SIDES.len());
        // Many dimensions take a bounded time.
        let many = combinations(&[Role::Length; 40]).take(MAX_TRIALS);
        assert_eq!(many.count(), MAX_TRIALS);
    }
}

//! Match product: checks that a loop nest is one thread's part of a product that a warp computes
//! (`ir::warp`).
//!
//! The nest, in a launch with `threadIdx.x` in 0..32:
//! `for (h, 0, 2) { for (j, 0, 2) { for (k, 0, 16) {`
//! `C[h, j] = C[h, j] + A[h*8 + threadIdx.x//4, k] * B[k, threadIdx.x%4*2 + j] } } }`
//! `A` and `B` may begin anywhere in shared memory, and be stored by rows or by columns. Together,
//! the threads of the warp then read a tile of each, which the instruction reads as a whole.
//! The factors of a warpgroup product consist of lines instead (`ir::warpgroup`).
//!
//! A step of `build_loops`.

use super::flatten_storage::flat_index;
use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::print::print_expr;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::mentions;
use crate::ir::warp::{Element, GROUP_WARPS, ThreadPart, WarpProduct, index_at, thread_part};
use crate::ir::warpgroup::{Threads, lines_of};
use crate::ir::{BinOp, Expr, Scope, Stmt, ThreadIndex, Var};
use crate::schedule::{BoundedSchedule, Stage, StageId, Tensorize, loop_min, threads_around};
use crate::target::Gpu;

/// Registers of a thread besides the sums of warpgroup products (as `ptxas` demands).
const OTHER_REGISTERS: i128 = 26;

/// Checks that `nest`, the loops of a stage from `tensorize.axis` inwards, is a thread's part
/// (E0378).
pub fn match_product(
    product: WarpProduct,
    (bounded, id, stage): (&BoundedSchedule, StageId, &Stage),
    tensorize: &Tensorize,
    nest: &Stmt,
) -> Result<()> {
    let matched = lane_of(bounded, id).and_then(|lane| {
        let warp = product.is_by_warpgroup().then(|| warp_of(bounded, id)).transpose()?;
        let part = thread_part(product, nest)?;
        let (facts, fixed) = enclosing_facts(bounded, id, stage);
        if warp.is_some() {
            check_registers(&part, &threads_around(bounded, id))?;
        }
        Matcher { product, part, lane, warp, facts, fixed }.part()
    });
    matched.map_err(|difference| {
        let (name, axis) = (&stage.te.name, &stage.axis(tensorize.axis).name);
        let text =
            format!("the loops of `{name}` from `{axis}` inwards do not match `{}`", product.name);
        let part = part_of(product);
        Box::new(Diag::new("E0378", tensorize.span, text).note(difference).note(part))
    })
}

/// Shows the part of a thread, for messages.
fn part_of(product: WarpProduct) -> String {
    let WarpProduct { name, terms, .. } = product;
    if product.is_by_warpgroup() {
        return format!(
            "each thread must compute this part of `{name}`, where `lane` is `threadIdx.x`, `warp` \
             is `threadIdx.y` and `n` is a multiple of 8, at least 16 and at most 256:\n\
             for (half, 0, 2) {{\n  for (group, 0, n/8) {{\n    for (column, 0, 2) {{\n      \
             for (k, 0, {terms}) {{\n        c[half, group, column] = (c[half, group, column] + \
             (a[(((warp*16) + (half*8)) + floordiv(lane, 4)), k]*b[k, ((group*8) + \
             ((floormod(lane, 4)*2) + column))]))\n      }}\n    }}\n  }}\n}}"
        );
    }
    format!(
        "each thread must compute this part of `{name}`, where `lane` is `threadIdx.x`:\n\
         for (half, 0, 2) {{\n  for (column, 0, 2) {{\n    for (k, 0, {terms}) {{\n      \
         c[half, column] = (c[half, column] + (a[((half*8) + floordiv(lane, 4)), k]*b[k, \
         ((floormod(lane, 4)*2) + column)]))\n    }}\n  }}\n}}"
    )
}

/// An error describes the first difference between the nest and a thread's part.
type Matched<T> = std::result::Result<T, String>;

/// Returns the variable of `threadIdx.x`, whose values are the lanes of a warp.
fn lane_of(bounded: &BoundedSchedule, id: StageId) -> Matched<Var> {
    let threads = threads_around(bounded, id);
    let along_x = threads.iter().find(|(index, ..)| *index == ThreadIndex::Thread(0));
    match along_x {
        Some((_, var, extent)) if extent.as_int() == Some(Gpu::WARP.into()) => Ok(var.clone()),
        Some((.., extent)) => Err(format!(
            "`threadIdx.x` has {} iterations; it must have {}, one for each thread of a warp",
            print_expr(extent),
            Gpu::WARP
        )),
        None => Err(format!(
            "no axis is bound to `threadIdx.x`; bind one with {} iterations, the threads of a warp",
            Gpu::WARP
        )),
    }
}

/// Returns the variable of `threadIdx.y`, whose values are the warps of a warpgroup.
fn warp_of(bounded: &BoundedSchedule, id: StageId) -> Matched<Var> {
    let threads = threads_around(bounded, id);
    let along_y = threads.iter().find(|(index, ..)| *index == ThreadIndex::Thread(1));
    match along_y {
        Some((_, var, extent)) if extent.as_int() == Some(GROUP_WARPS.into()) => Ok(var.clone()),
        Some((.., extent)) => Err(format!(
            "`threadIdx.y` has {} iterations; it must have {GROUP_WARPS}, one for each warp of a \
             warpgroup",
            print_expr(extent)
        )),
        None => Err(format!(
            "no axis is bound to `threadIdx.y`; bind one with {GROUP_WARPS} iterations, the warps \
             of a warpgroup"
        )),
    }
}

/// Checks that the sums of warpgroup products fit into registers, which the instruction requires.
fn check_registers(part: &ThreadPart<'_>, threads: &[(ThreadIndex, Var, Expr)]) -> Matched<()> {
    let product = |extents: &mut dyn Iterator<Item = &Expr>| -> i128 {
        extents.map(|extent| extent.as_int().unwrap_or(1)).product()
    };
    let of_block = threads.iter().filter(|(index, ..)| matches!(index, ThreadIndex::Thread(_)));
    let threads = product(&mut of_block.map(|(.., extent)| extent)).max(1);
    let sums = product(&mut part.c.buffer.shape.iter());
    let room = (i128::from(Gpu::BLOCK_REGISTERS) / threads).min(Gpu::MAX_REGISTERS.into());
    match sums + OTHER_REGISTERS <= room {
        true => Ok(()),
        false => Err(format!(
            "a thread has {sums} elements of `{}` and needs {OTHER_REGISTERS} more registers; a \
             block of {threads} threads has {room} for each",
            part.c.buffer.name
        )),
    }
}

/// Returns the facts inside the loops of a stage, and the variables of loops with one iteration
/// with their values.
fn enclosing_facts(
    bounded: &BoundedSchedule,
    id: StageId,
    stage: &Stage,
) -> (Facts, Vec<(Var, i64)>) {
    let (mut facts, mut fixed) = (Facts::new(), Vec::new());
    bounded.schedule.known_facts().iter().for_each(|cond| facts.assume(cond));
    let bounds = bounded.of(id);
    let own = stage.leaves.iter().map(|leaf| {
        let var = stage.axis(*leaf).var.clone();
        (var, loop_min(stage, *leaf), bounds.extents[leaf.0].clone())
    });
    for (var, min, extent) in bounds.enclosing_loops.iter().cloned().chain(own) {
        facts.bind(&var, &min, &extent);
        if let (Some(min), Some(1)) = (min.as_int(), extent.as_int()) {
            fixed.push((var, min as i64));
        }
    }
    (facts, fixed)
}

struct Matcher<'a> {
    product: WarpProduct,
    part: ThreadPart<'a>,
    lane: Var,
    /// For a warpgroup product.
    warp: Option<Var>,
    /// Facts of the enclosing loops.
    facts: Facts,
    /// The variables among them with one value.
    fixed: Vec<(Var, i64)>,
}

impl Matcher<'_> {
    fn part(&self) -> Matched<()> {
        self.sum()?;
        if let Some(warp) = &self.warp {
            return [&self.part.a, &self.part.b]
                .into_iter()
                .enumerate()
                .try_for_each(|(which, element)| self.lines(element, which, warp));
        }
        self.factor(&self.part.a, 0, |lane| lane / 4, 8)?;
        self.factor(&self.part.b, 1, |lane| lane % 4 * 2, 1)
    }

    /// Checks that the running sum is private to the thread and stays in place while terms are
    /// added.
    fn sum(&self) -> Matched<()> {
        let c = &self.part.c;
        if c.buffer.scope != Scope::Local {
            return Err(format!("`{}` is not in `local` memory", c.buffer.name));
        }
        let flat = flat_index(c.buffer, c.indices);
        if self.step(&flat, 2) != Some(0) {
            return Err(format!(
                "the index of `{}` changes with the reduction axis; it must stay the same",
                shown(c)
            ));
        }
        let in_warp = (0..Gpu::WARP.into()).all(|lane| self.distance(&flat, lane) == Some(0));
        let mentioned = self.warp.as_ref().is_some_and(|warp| mentions(&flat, warp));
        match in_warp && !mentioned {
            true => Ok(()),
            false => Err(format!(
                "the index of `{}` differs between threads; all threads must use the same one: \
                 `cache_write(local, layout=[…])` with a dimension for each loop of the part",
                shown(c)
            )),
        }
    }

    /// Checks that a factor of a warpgroup product consists of lines.
    fn lines(&self, element: &Element<'_>, which: usize, warp: &Var) -> Matched<()> {
        self.is_shared(element)?;
        let flat = flat_index(element.buffer, element.indices);
        let threads = Threads { lane: &self.lane, warp };
        let place = (&self.facts, &self.fixed[..]);
        match lines_of(self.product, &self.part, (which, &flat), threads, place) {
            Ok(_) => Ok(()),
            Err(difference) => Err(format!(
                "`{}` {difference}; a copy in lines: `cache_read(shared, …, layout=[ax1 // 64, \
                 ax0, ax1 % 64])`",
                shown(element)
            )),
        }
    }

    fn is_shared(&self, element: &Element<'_>) -> Matched<()> {
        let name = &element.buffer.name;
        match element.buffer.scope {
            Scope::Shared => Ok(()),
            _ => Err(format!(
                "`{name}` is not in `shared` memory; copy it inside the stage: \
                 `cache_read(shared, …)`"
            )),
        }
    }

    /// Checks that a factor is a tile: `row_of` returns the row that a lane reads; each iteration
    /// of loop `own` reads `rows` rows further.
    fn factor(
        &self,
        element: &Element<'_>,
        own: usize,
        row_of: impl Fn(i64) -> i64,
        rows: i64,
    ) -> Matched<()> {
        let shown = shown(element);
        self.is_shared(element)?;
        let flat = flat_index(element.buffer, element.indices);
        let irregular = || format!("the distance between reads of `{shown}` is not constant");
        let step = |at: usize| self.step(&flat, at).ok_or_else(irregular);
        let var = |at: usize| self.part.vars[at].name();
        if step(1 - own)? != 0 {
            return Err(format!(
                "`{shown}` depends on loop `{}`; all its iterations must read the same element",
                var(1 - own)
            ));
        }
        let (own_step, term) = (step(own)?, step(2)?);
        let row = own_step / rows;
        if own_step % rows != 0 {
            return Err(format!(
                "`{shown}` moves by {own_step} elements per iteration of `{}`; this must be {rows} \
                 rows",
                var(own)
            ));
        }
        for lane in 0..Gpu::WARP.into() {
            let distance = self.distance(&flat, lane).ok_or_else(irregular)?;
            let expected = row_of(lane) * row;
            if distance != expected {
                return Err(format!(
                    "`{shown}` reads {distance} elements further in lane {lane} than in lane 0; \
                     expected {expected}"
                ));
            }
        }
        let halves = self.product.a.bytes() == 2;
        let other = match (term, row) {
            (1, row) => row,
            (term, 1) if halves => term,
            _ => {
                let by = if halves { "rows or columns" } else { "terms" };
                return Err(format!(
                    "`{shown}` moves by {term} elements per iteration of `{}`; its {by} must be \
                     consecutive",
                    var(2)
                ));
            }
        };
        self.aligned(element, &flat, other)
    }

    /// Checks that the rows of a tile, 16 bytes each, are aligned to 16 bytes; `other` is the
    /// number of elements from row to row.
    fn aligned(&self, element: &Element<'_>, flat: &Expr, other: i64) -> Matched<()> {
        let (row, name) = (self.product.row(), &element.buffer.name);
        let zero: Vec<(&Var, i64)> = self.zero();
        let first = self.index_at(flat, &zero);
        let rest = Expr::binary(BinOp::FloorMod, first.clone(), Expr::index(row));
        let rest = simplify_expr(&rest, &self.facts);
        if other % row != 0 {
            return Err(format!(
                "rows of `{name}` are {other} elements apart; this must be a multiple of {row}: \
                 use `storage_align`"
            ));
        }
        match rest.as_int() {
            Some(0) => Ok(()),
            _ => Err(format!(
                "the tile of `{name}` begins at `{}`, which is not provably a multiple of {row}",
                print_expr(&first)
            )),
        }
    }

    fn index_at(&self, index: &Expr, values: &[(&Var, i64)]) -> Expr {
        simplify_expr(&index_at(index, values), &self.facts)
    }

    /// Returns the fixed variables with their values, and 0 for the loops of the nest and, last,
    /// for the lane.
    fn zero(&self) -> Vec<(&Var, i64)> {
        let fixed = self.fixed.iter().map(|(var, value)| (var, *value));
        fixed.chain(self.part.vars.iter().copied().chain([&self.lane]).map(|v| (v, 0))).collect()
    }

    /// Returns the increase of an index with loop `at`, if it is constant.
    fn step(&self, flat: &Expr, at: usize) -> Option<i64> {
        let var = self.part.vars[at];
        let next = Expr::add(Expr::var(var), Expr::index(1));
        let after = crate::ir::visit::substitute(flat, &mut |v| (v == var).then(|| next.clone()));
        let step = simplify_expr(&Expr::sub(after, flat.clone()), &self.facts);
        step.as_int().and_then(|step| i64::try_from(step).ok())
    }

    /// Returns the distance in elements from the access of lane 0 to that of `lane`.
    fn distance(&self, flat: &Expr, lane: i64) -> Option<i64> {
        let mut values = self.zero();
        let first = self.index_at(flat, &values);
        values.last_mut().expect("the lane is there").1 = lane;
        let here = self.index_at(flat, &values);
        let distance = simplify_expr(&Expr::sub(here, first), &self.facts);
        distance.as_int().and_then(|distance| i64::try_from(distance).ok())
    }
}

fn shown(element: &Element<'_>) -> String {
    print_expr(&Expr::load(element.buffer, element.indices.to_vec()))
}

//! Prefetch tiles: requests, while a tile is reduced, the lines that its results need and the
//! operands of the next tile, so that the memory works while the tile computes.
//!
//! Before: `for (k, 0, 512) { acc[…] = fma(…) }  C[ramp(i, 1, 16)] = acc[…] + R[ramp(i, 1, 16)] …`
//! After:  `for (part, 0, 8) { prefetch(C[i + part*n])  prefetch(R[i + part*n])
//!          for (k, 0, 64) { … } }  C[…] = …`
//! A hardware prefetcher follows the rows of a tile only after its first misses, and then the next
//! tile is elsewhere. Stores need their lines too: they retire in order and wait for them. The
//! requests stand between parts of the reduction, because few lines are in flight at a time: all
//! of them in front of it would delay its own loads. If the tiles in an iteration of an outer loop
//! read the same operands in turns, they also request those of the next iteration, a part each.
//! Needs: nests (`outline_simd`) whose accesses have their final form (`transpose_tiles`,
//! `legalize_vectors`). Stands before `hoist_invariants`, which shares the indices.
//! Ensures: nothing for later passes.  Breaks: simplified form.
//! Declines: everything outside of a `simd_kernel`, because other code has no such instruction;
//! reductions with an unknown number of steps, with too few to pay for the requests, or that
//! cannot be cut into equal parts; buffers that fit into the first cache; rows that are not evenly
//! apart; indices that are bound or loaded where the request would stand.

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::equal::equal;
use crate::ir::simplify::simplify_expr;
use crate::ir::tile::is_whole_product;
use crate::ir::visit::{
    NodeSet, for_each_child, for_each_load, for_each_stmt, map_stmts, mentions, reads_memory,
    substitute,
};
use crate::ir::{BinOp, Buffer, Expr, ExprKind, Kernel, Scope, Stmt, Var};
use crate::target::Target;

const LINE_BYTES: i64 = 64;
/// A reduction pays for the request of a line if it executes this many stores for it. A store of a
/// reduction is about one multiply-add.
const STEPS_PER_LINE: i64 = 32;
/// The largest number of rows of results.
const MAX_ROWS: usize = 64;
/// The aim for the number of lines of operands that are requested between two parts, and the
/// largest number of an operand's or of a result's.
const LINES_PER_PART: i64 = 16;
const MAX_LINES_PER_PART: i64 = 64;
/// The largest number of parts.
const MAX_PARTS: i64 = 1024;
/// Larger extents and distances in elements are declined, so that products of them fit in 64 bits.
const MAX_DISTANCE: i64 = 1 << 40;

/// Adds the requests to the nests of a kernel.
pub fn prefetch_tiles(kernel: Kernel, target: &Target) -> Result<Kernel> {
    if target.simd().is_none() {
        return Ok(kernel);
    }
    let bytes = |level: usize| target.processor.caches.get(level).map_or(0, |cache| cache.bytes());
    let (near, own) = (bytes(0), bytes(1) / 2);
    let mut nests = Nests { near, own, loops: Vec::new(), inside: false };
    let body = nests.stmt(kernel.body, &mut Vec::new());
    Ok(Kernel { body, ..kernel })
}

/// Elements that are accessed side by side.
#[derive(Clone)]
struct Run {
    buffer: Buffer,
    first: Expr,
    elements: i64,
}

impl Run {
    /// Adds a run that overlaps this one or is adjacent to it; false if it is apart.
    fn join(&mut self, other: &Run) -> bool {
        if self.buffer != other.buffer {
            return false;
        }
        let Some(apart) = difference(&other.first, &self.first) else { return false };
        if !(-other.elements..=self.elements).contains(&apart) {
            return false;
        }
        let end = self.elements.max(apart + other.elements);
        if apart < 0 {
            self.first = other.first.clone();
        }
        self.elements = end - apart.min(0);
        true
    }

    /// The number of elements of a line.
    fn line(&self) -> i64 {
        LINE_BYTES / self.buffer.dtype.bytes() as i64
    }

    fn lines(&self) -> i64 {
        (self.elements + self.line() - 1) / self.line()
    }

    /// One element of each line.
    fn requests(&self) -> Vec<Stmt> {
        let mut offsets: Vec<i64> = (0..self.elements).step_by(self.line() as usize).collect();
        // A run that does not begin with a line ends in one more.
        let within = Expr::binary(BinOp::FloorMod, self.first.clone(), Expr::index(self.line()));
        if self.elements > 1 && simplified(&within).as_int() != Some(0) {
            offsets.push(self.elements - 1);
        }
        let at = |offset| simplified(&Expr::add(self.first.clone(), Expr::index(offset)));
        let request =
            |offset| Stmt::Prefetch { buffer: self.buffer.clone(), indices: vec![at(offset)] };
        offsets.into_iter().map(request).collect()
    }
}

/// A loop: the variable, its first value and the number of iterations.
struct Around {
    var: Var,
    min: Expr,
    extent: Expr,
}

/// What the reduction of the next tile reads of a buffer.
struct Operand {
    run: Run,
    /// The position of the current tile among those that read the same elements, and their number:
    /// each requests a part.
    tile: Expr,
    tiles: i64,
}

impl Operand {
    fn lines_per_tile(&self) -> i64 {
        (self.run.lines() + self.tiles - 1) / self.tiles
    }

    /// The requests in one of the parts of a reduction, and their condition: there may be fewer
    /// shares than parts.
    fn requests(&self, part: &Var, parts: i64) -> (Option<Expr>, Vec<Stmt>) {
        let line = self.run.line();
        let share = (self.run.elements + self.tiles * parts - 1) / (self.tiles * parts);
        let elements = (share + line - 1) / line * line;
        let whole = Expr::mul(self.tile.clone(), Expr::index(parts));
        let at = Expr::mul(Expr::add(whole, Expr::var(part)), Expr::index(elements));
        let at = simplified(&at);
        let first = Expr::add(self.run.first.clone(), at.clone());
        let requests = Run { first, elements, ..self.run.clone() }.requests();
        let all = self.run.elements * 5 / 4;
        let there = || simplified(&Expr::lt(at, Expr::index(self.run.elements)));
        ((elements * self.tiles * parts > all).then(there), requests)
    }
}

/// Walks backwards; `after` are the runs that the statements behind the current one access,
/// the last one first.
struct Nests {
    /// The bytes of the first cache.
    near: i64,
    /// The bytes that a buffer can have in the second cache, beside what is requested for later.
    own: i64,
    /// The loops around the statement, outermost first.
    loops: Vec<Around>,
    /// Whether the statement is in a nest.
    inside: bool,
}

impl Nests {
    fn stmt(&mut self, stmt: Stmt, after: &mut Vec<Run>) -> Stmt {
        match stmt {
            Stmt::SimdKernel { body } => {
                self.inside = true;
                let body = Box::new(self.stmt(*body, &mut Vec::new()));
                self.inside = false;
                Stmt::SimdKernel { body }
            }
            Stmt::Block(stmts) => {
                let mut done: Vec<Stmt> =
                    stmts.into_iter().rev().map(|stmt| self.stmt(stmt, after)).collect();
                done.reverse();
                Stmt::Block(done)
            }
            Stmt::Let { var, value, body } => {
                let body = Box::new(self.stmt(*body, after));
                after.retain(|run| !mentions(&run.first, &var));
                Stmt::Let { var, value, body }
            }
            Stmt::Allocate { buffer, body } => {
                let body = Box::new(self.stmt(*body, after));
                after.retain(|run| run.buffer != buffer);
                Stmt::Allocate { buffer, body }
            }
            Stmt::For { .. } if self.inside && is_reduction(&stmt) => {
                let results = std::mem::take(after);
                self.reduction(stmt, results)
            }
            Stmt::For { var, min, extent, kind, body } => {
                let (own, first, count) = (var.clone(), min.clone(), extent.clone());
                self.loops.push(Around { var: own, min: first, extent: count });
                let mut own = Vec::new();
                let body = Box::new(self.stmt(*body, &mut own));
                self.loops.pop();
                unrolled(&own, &var, &min, &extent, after);
                Stmt::For { var, min, extent, kind, body }
            }
            Stmt::If { cond, then, otherwise } => {
                let then = Box::new(self.stmt(*then, &mut after.clone()));
                let otherwise = otherwise.map(|stmt| Box::new(self.stmt(*stmt, after)));
                after.clear();
                Stmt::If { cond, then, otherwise }
            }
            Stmt::Store { ref buffer, ref indices, ref value, .. } => {
                let mut add = |buffer: &Buffer, index: &Expr| {
                    if let Some(run) = self.run(buffer, index).filter(|run| run.elements > 1) {
                        push(run, after);
                    }
                };
                add(buffer, &indices[0]);
                let seen = &mut NodeSet::default();
                for_each_load(value, seen, &mut |buffer, indices, _| add(buffer, &indices[0]));
                stmt
            }
            other if is_whole_product(&other) => {
                after.clear();
                other
            }
            other => map_stmts(other, &mut |inner| self.stmt(inner, after)),
        }
    }

    /// Returns the elements of an access, if they may be far away.
    fn run(&self, buffer: &Buffer, index: &Expr) -> Option<Run> {
        let elements = buffer.shape.iter().try_fold(buffer.dtype.bytes() as i64, |n, extent| {
            n.checked_mul(i64::try_from(extent.as_int()?).ok()?)
        });
        if buffer.scope != Scope::Global || elements.is_some_and(|bytes| bytes <= self.near) {
            return None;
        }
        let first = match &index.kind {
            ExprKind::Ramp(first, stride) if stride.as_int() == Some(1) => first,
            _ if index.ty.lanes == 1 => index,
            _ => return None,
        };
        let (first, elements) = (first.clone(), index.ty.lanes.into());
        (!reads_memory(&first)).then(|| Run { buffer: buffer.clone(), first, elements })
    }

    /// Cuts a reduction into parts with requests between them.
    fn reduction(&self, stmt: Stmt, mut results: Vec<Run>) -> Stmt {
        let work = steps(&stmt);
        let Stmt::For { var, min, extent, kind, body } = &stmt else { return stmt };
        let Some(extent) = extent.as_int().and_then(|n| i64::try_from(n).ok()) else { return stmt };
        results.reverse();
        let mut results = rows(&results);
        results.retain(|rows| work >= STEPS_PER_LINE * rows.count * rows.first.lines());
        let mut operands = self.operands(var, min, body, extent);
        operands.retain(|operand| work >= STEPS_PER_LINE * operand.lines_per_tile());
        let rows = results.iter().map(|rows| rows.count);
        let lines: i64 = operands.iter().map(Operand::lines_per_tile).sum();
        let aim = rows.max().unwrap_or(0).max(lines / LINES_PER_PART);
        let Some(parts) = parts(extent, aim) else { return stmt };
        results.retain(|rows| rows.per_part(parts) * rows.first.lines() <= MAX_LINES_PER_PART);
        let few = |operand: &Operand| operand.lines_per_tile() <= parts * MAX_LINES_PER_PART;
        operands.retain(few);
        if results.is_empty() && operands.is_empty() {
            return stmt;
        }
        let steps = extent / parts;
        let part = Var::index(format!("{}_part", var.name()));
        let begin = Expr::mul(Expr::var(&part), Expr::index(steps));
        let results = results.iter().map(|rows| rows.requests(&part, parts));
        let operands = operands.iter().map(|operand| operand.requests(&part, parts));
        let mut stmts = under_conditions(results.chain(operands));
        let inner = Var::index(var.name());
        let now = simplified(&Expr::add(Expr::add(min.clone(), begin), Expr::var(&inner)));
        let body = Box::new(fresh_copy(body, &[(var.clone(), now)].into_iter().collect()));
        let (min, extent, kind) = (Expr::index(0), Expr::index(steps), kind.clone());
        stmts.push(Stmt::For { var: inner, min, extent, kind, body });
        Stmt::serial(part, Expr::index(parts), Stmt::Block(stmts))
    }

    /// Returns what the reduction of the next tile reads of each buffer.
    fn operands(&self, var: &Var, min: &Expr, body: &Stmt, extent: i64) -> Vec<Operand> {
        let mut loops: Vec<(Var, Expr, i64)> = vec![(var.clone(), min.clone(), extent)];
        if !inner_loops(body, &mut loops) {
            return Vec::new();
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut read = |stmt: &Stmt| {
            let Stmt::Store { value, .. } = stmt else { return };
            let seen = &mut NodeSet::default();
            for_each_load(value, seen, &mut |buffer, indices, _| {
                self.run(buffer, &indices[0]).into_iter().for_each(|run| push(run, &mut runs));
            });
        };
        each_stmt(body, &mut read);
        let tiles = runs.into_iter().filter_map(|run| whole(run, &loops));
        tiles.flat_map(|run| self.next_tile(&run).into_iter().chain(self.next_block(run))).collect()
    }

    /// Moves what the reduction of this tile reads to the next tile that reads something else.
    fn next_tile(&self, run: &Run) -> Option<Operand> {
        let at = self.loops.iter().rposition(|around| mentions(&run.first, &around.var))?;
        self.operand(run.clone(), at)
    }

    /// Returns what the next iteration of an outer loop reads for the first time, if the tiles of
    /// one iteration read their elements several times: they are in the second cache then, and the
    /// next ones are not.
    fn next_block(&self, mut run: Run) -> Option<Operand> {
        // The loop that is the next to read other elements, and those of an iteration.
        let mut found: Option<(usize, Run)> = None;
        let mut is_outer = false;
        for (at, Around { var, min, extent }) in self.loops.iter().enumerate().rev() {
            let reads_others = mentions(&run.first, var);
            let reads_again = !reads_others || divisor(&run.first, var)? > 1;
            if reads_again && found.is_some() && extent.as_int() != Some(1) {
                if run.elements * run.buffer.dtype.bytes() as i64 > self.own {
                    break;
                }
                (found, is_outer) = (None, true);
            }
            if reads_others {
                found = found.or_else(|| Some((at, run.clone())));
                let extent = i64::try_from(extent.as_int()?).ok()?;
                match whole(run, &[(var.clone(), min.clone(), extent)]) {
                    Some(all) => run = all,
                    None => break,
                }
            }
        }
        found.filter(|_| is_outer).and_then(|(at, run)| self.operand(run, at))
    }

    /// Moves what one iteration of a loop reads to the next one that reads something else.
    fn operand(&self, mut run: Run, at: usize) -> Option<Operand> {
        let Around { var, min, .. } = &self.loops[at];
        // The variable of fused loops, divided by the extents of the inner ones.
        let again = divisor(&run.first, var)?;
        run.first = moved(&run.first, var, again);
        let from_first = Expr::sub(Expr::var(var), min.clone());
        let mut tile = Expr::binary(BinOp::FloorMod, from_first, Expr::index(again));
        let mut tiles = again;
        for Around { var, min, extent } in &self.loops[at + 1..] {
            let extent = i64::try_from(extent.as_int()?).ok()?;
            tiles = tiles.checked_mul(extent).filter(|n| (1..=MAX_DISTANCE).contains(n))?;
            let from_first = Expr::sub(Expr::var(var), min.clone());
            tile = Expr::add(Expr::mul(tile, Expr::index(extent)), from_first);
        }
        Some(Operand { run, tile: simplified(&tile), tiles })
    }
}

/// Returns the run of an access in all iterations of loops (variable, first value, extent); nothing
/// if they leave gaps, or read the same elements again.
fn whole(mut run: Run, loops: &[(Var, Expr, i64)]) -> Option<Run> {
    let mut dims: Vec<(i64, i64)> = Vec::new();
    for (at, (var, min, extent)) in loops.iter().enumerate() {
        if mentions(&run.first, var) {
            dims.push((difference(&moved(&run.first, var, 1), &run.first)?, *extent));
            run.first = substitute(&run.first, &mut |v| (v == var).then(|| min.clone()));
        } else if at == 0 {
            return None;
        }
    }
    dims.sort();
    for (stride, extent) in dims {
        if !(1..=run.elements).contains(&stride) {
            return None;
        }
        let reach = stride.checked_mul(extent - 1).filter(|reach| *reach <= MAX_DISTANCE)?;
        run.elements += reach;
    }
    Some(run)
}

/// Rows of a buffer that are evenly apart.
struct Rows {
    first: Run,
    count: i64,
    stride: i64,
}

impl Rows {
    fn per_part(&self, parts: i64) -> i64 {
        (self.count + parts - 1) / parts
    }

    /// The requests in one of the parts of a reduction, and their condition: there may be fewer
    /// rows than parts.
    fn requests(&self, part: &Var, parts: i64) -> (Option<Expr>, Vec<Stmt>) {
        let each = self.per_part(parts);
        let groups = (self.count + each - 1) / each;
        let at = Expr::mul(Expr::var(part), Expr::index(each * self.stride));
        let row = |row: i64| {
            let offset = Expr::add(Expr::index(row * self.stride), at.clone());
            let first = Expr::add(self.first.first.clone(), offset);
            Run { first, ..self.first.clone() }.requests()
        };
        let some = || Expr::lt(Expr::var(part), Expr::index(groups));
        ((groups < parts).then(some), (0..each).flat_map(row).collect())
    }
}

/// Groups runs by buffer, without the buffers whose rows are not evenly apart or of equal length.
fn rows(runs: &[Run]) -> Vec<Rows> {
    let mut buffers: Vec<Vec<&Run>> = Vec::new();
    for run in runs {
        match buffers.iter_mut().find(|rows| rows[0].buffer == run.buffer) {
            Some(rows) => rows.push(run),
            None => buffers.push(vec![run]),
        }
    }
    let even = |rows: &Vec<&Run>| {
        let apart = |pair: &[&Run]| difference(&pair[1].first, &pair[0].first);
        let stride = rows.windows(2).next().map_or(Some(0), apart)?;
        let same = rows.iter().all(|row| row.elements == rows[0].elements)
            && rows.windows(2).all(|pair| apart(pair) == Some(stride));
        same.then(|| Rows { first: rows[0].clone(), count: rows.len() as i64, stride })
    };
    buffers.iter().filter_map(even).collect()
}

/// Returns the number of equal parts that is nearest to `aim`, each with a few steps.
fn parts(extent: i64, aim: i64) -> Option<i64> {
    const MIN_STEPS: i64 = 4;
    let possible = (2..=(extent / MIN_STEPS).min(MAX_PARTS)).filter(|parts| extent % parts == 0);
    possible.min_by_key(|parts| (parts - aim).abs())
}

/// Joins requests under equal conditions.
fn under_conditions(all: impl Iterator<Item = (Option<Expr>, Vec<Stmt>)>) -> Vec<Stmt> {
    let mut groups: Vec<(Option<Expr>, Vec<Stmt>)> = Vec::new();
    for (cond, requests) in all {
        let same = |known: &Option<Expr>| match (known, &cond) {
            (Some(a), Some(b)) => equal(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        match groups.iter_mut().find(|(known, _)| same(known)) {
            Some((_, stmts)) => stmts.extend(requests),
            None => groups.push((cond, requests)),
        }
    }
    let stmt = |(cond, requests)| match cond {
        None => requests,
        Some(cond) => {
            let then = Box::new(Stmt::Block(requests));
            vec![Stmt::If { cond, then, otherwise: None }]
        }
    };
    groups.into_iter().flat_map(stmt).collect()
}

fn push(run: Run, runs: &mut Vec<Run>) {
    if !runs.iter_mut().any(|known| known.join(&run)) {
        runs.push(run);
    }
}

/// Adds the runs of the iterations of a short loop of stores, which is a part of the results; a
/// long one separates what stands behind it from what stands in front.
fn unrolled(own: &[Run], var: &Var, min: &Expr, extent: &Expr, after: &mut Vec<Run>) {
    let (Some(min), Some(extent)) = (min.as_int(), extent.as_int()) else { return after.clear() };
    if extent * own.len().max(1) as i128 > MAX_ROWS as i128 {
        return after.clear();
    }
    for at in (min..min + extent).rev() {
        for run in own {
            let here = |other: &Var| (other == var).then(|| Expr::index(at as i64));
            let first = simplified(&substitute(&run.first, &mut |v| here(v)));
            push(Run { first, ..run.clone() }, after);
        }
    }
}

/// Whether a statement stores to the memory of the nest only.
fn is_reduction(stmt: &Stmt) -> bool {
    let mut all = true;
    each_stmt(stmt, &mut |stmt| match stmt {
        Stmt::Store { buffer, .. } => all &= buffer.scope != Scope::Global,
        Stmt::Tensorize { .. } | Stmt::Prefetch { .. } => all = false,
        _ => {}
    });
    all
}

fn each_stmt(stmt: &Stmt, f: &mut dyn FnMut(&Stmt)) {
    f(stmt);
    for_each_stmt(stmt, &mut |inner| each_stmt(inner, f));
}

/// Adds the loops inside a reduction; false if one has an unknown extent, or if other statements
/// bind variables.
fn inner_loops(stmt: &Stmt, loops: &mut Vec<(Var, Expr, i64)>) -> bool {
    let mut known = true;
    each_stmt(stmt, &mut |stmt| match stmt {
        Stmt::For { var, min, extent, .. } => match extent.as_int() {
            Some(extent) => loops.push((var.clone(), min.clone(), extent as i64)),
            None => known = false,
        },
        Stmt::Let { .. } => known = false,
        _ => {}
    });
    known
}

/// Returns how many iterations of a loop an index stays the same for: the least number that it
/// divides the variable by.
fn divisor(index: &Expr, var: &Var) -> Option<i64> {
    match &index.kind {
        ExprKind::Binary(BinOp::FloorDiv, a, by) if a.as_var() == Some(var) => by
            .as_int()
            .and_then(|by| i64::try_from(by).ok())
            .filter(|by| (1..=MAX_DISTANCE).contains(by)),
        ExprKind::Var(own) => (own == var).then_some(1),
        _ => {
            let mut least: Option<i64> = None;
            for_each_child(index, &mut |child| {
                least = least.into_iter().chain(divisor(child, var)).min();
            });
            least
        }
    }
}

/// Returns the number of stores that a statement executes; loops of unknown extents count once.
fn steps(stmt: &Stmt) -> i64 {
    let mut inner = 0i64;
    for_each_stmt(stmt, &mut |stmt| inner = inner.saturating_add(steps(stmt)));
    match stmt {
        Stmt::Store { .. } => 1,
        Stmt::For { extent, .. } => {
            let extent = extent.as_int().map_or(1, |n| i64::try_from(n).unwrap_or(i64::MAX));
            extent.max(0).saturating_mul(inner)
        }
        _ => inner,
    }
}

/// Returns an index some iterations of a loop later.
fn moved(index: &Expr, var: &Var, iterations: i64) -> Expr {
    let next = Expr::add(Expr::var(var), Expr::index(iterations));
    substitute(index, &mut |v| (v == var).then(|| next.clone()))
}

/// Returns the constant difference of two indices.
fn difference(a: &Expr, b: &Expr) -> Option<i64> {
    let apart = simplified(&Expr::sub(a.clone(), b.clone())).as_int()?;
    i64::try_from(apart).ok().filter(|apart| apart.abs() <= MAX_DISTANCE)
}

fn simplified(expr: &Expr) -> Expr {
    simplify_expr(expr, &Facts::new())
}

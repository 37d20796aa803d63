//! Transpose tiles: replaces neighbouring strided vector loads by a tile that is loaded by rows
//! into registers and read by columns.
//!
//! Before: `for (i, 0, 16) { B[ramp(i*n, 1, 16)] = A[ramp(i, m, 16)] }`
//! After:  `allocate tile: float32[256] register`, `tile[ramp(0, 1, 4)] = A[ramp(0, 1, 4)]; …`,
//! `B[ramp(0, 1, 16)] = tile[ramp(0, 16, 16)]; B[ramp(n, 1, 16)] = tile[ramp(1, 16, 16)]; …`
//! The SIMD back end transposes such a tile by shuffles (`simd::tile`). A loop becomes one over
//! strips with as many iterations as the tile has columns, and one over the remaining iterations.
//! If a mask counts the lanes, as in a tail, the rows after the last lane are not read; the store
//! has the same mask. Copies of elements of several rows in turns load row by row, too (`turns`).
//! Needs: one index per access; nests (`outline_simd`). Stands before `legalize_vectors`, while
//! each load is still one vector.
//! Ensures: nothing for later passes.  Breaks: simplified form.
//! Declines: everything outside of a `simd_kernel`; loads that a condition may skip, or from
//! buffers that the strip writes, because the tile is loaded before the statements of the strip;
//! loops with other statements than stores and prefetches; masks that do not count lanes.

mod columns;
mod guards;
mod turns;

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::scopes::ScopedRewrite;
use crate::ir::visit::stored_buffers;
use crate::ir::{Buffer, Expr, ExprKind, ForKind, Kernel, Scope, Stmt, Type, Var};
use crate::target::{SimdIsa, Target};
use columns::{Column, Rewriter, columns_of, count_nodes};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// The largest number of expression nodes in all iterations of a strip.
const MAX_NODES: usize = 4096;

/// Loads tiles by rows in place of strided loads by columns.
pub fn transpose_tiles(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let Some(isa) = target.simd() else { return Ok(kernel) };
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let body = Tiler { facts, isa, inside: false }.stmt(kernel.body);
    Ok(Kernel { body, ..kernel })
}

struct Tiler {
    facts: Facts,
    isa: SimdIsa,
    /// Whether the statement is in a `simd_kernel`.
    inside: bool,
}

/// A serial loop.
struct Loop {
    var: Var,
    min: Expr,
    extent: Expr,
    body: Stmt,
}

impl ScopedRewrite for Tiler {
    fn facts(&mut self) -> &mut Facts {
        &mut self.facts
    }

    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::SimdKernel { body } => {
                self.inside = true;
                let body = Box::new(self.stmt(*body));
                self.inside = false;
                Stmt::SimdKernel { body }
            }
            // The back end matches the loads of an intrinsic itself.
            Stmt::Tensorize { .. } => stmt,
            Stmt::For { var, min, extent, kind: ForKind::Serial, body } if self.inside => {
                self.strips(Loop { var, min, extent, body: *body })
            }
            Stmt::Block(stmts) if self.inside => self.block(stmts),
            Stmt::Store { .. } if self.inside => turns::load_rows(stmt, self.isa),
            other => self.children(other),
        }
    }
}

impl Tiler {
    /// Splits a loop into loops over strips, and one over the remaining iterations.
    fn strips(&mut self, whole: Loop) -> Stmt {
        let mut done = Vec::new();
        let mut left = whole;
        let mut most = u32::MAX;
        while let Some(columns) = self.strip(&left, most) {
            let Loop { var, min, extent, body } = left;
            let (count, per_strip) = (i128::from(columns), Expr::index(columns.into()));
            let strips = match extent.as_int() {
                Some(extent) => Expr::index((extent / count) as i64),
                None => Expr::binary(crate::ir::BinOp::FloorDiv, extent.clone(), per_strip.clone()),
            };
            let strip = Var::index(format!("{}.strip", var.name()));
            let at = match strips.as_int() {
                Some(1) => min.clone(),
                _ => Expr::add(min.clone(), Expr::mul(Expr::var(&strip), per_strip.clone())),
            };
            self.facts.push();
            self.facts.bind(&strip, &Expr::index(0), &strips);
            let copy = |number: u32| {
                let value = Expr::add(at.clone(), Expr::index(number.into()));
                fresh_copy(&body, &FxHashMap::from_iter([(var.clone(), value)]))
            };
            let tiled = self.block((0..columns).map(copy).collect());
            self.facts.pop();
            let covered = Expr::mul(strips.clone(), per_strip);
            done.push(match strips.as_int() {
                Some(1) => tiled,
                _ => Stmt::serial(strip, strips, tiled),
            });
            let rest = match extent.as_int() {
                Some(extent) if extent % count == 0 => return block_of(done),
                Some(extent) => Expr::index((extent % count) as i64),
                None => Expr::sub(extent, covered.clone()),
            };
            let own = Var::index(var.name());
            let free = FxHashMap::from_iter([(var, Expr::var(&own))]);
            let (min, body) = (Expr::add(min, covered), fresh_copy(&body, &free));
            left = Loop { var: own, min, extent: rest, body };
            most = columns - 1;
        }
        let Loop { var, min, extent, body } = left;
        self.facts.push();
        self.facts.bind(&var, &min, &extent);
        let body = Box::new(self.stmt(body));
        self.facts.pop();
        done.push(guards::unswitch(Loop { var, min, extent, body: *body }));
        block_of(done)
    }

    /// Returns the number of iterations, at most `most`, whose columns make a tile; `None` if there
    /// is no tile.
    fn strip(&mut self, of: &Loop, most: u32) -> Option<u32> {
        let mut stmts = Vec::new();
        flatten(of.body.clone(), &mut stmts);
        if !stmts.iter().all(|stmt| matches!(stmt, Stmt::Store { .. } | Stmt::Prefetch { .. })) {
            return None;
        }
        self.facts.push();
        self.facts.bind(&of.var, &of.min, &of.extent);
        let columns = self.columns(&stmts);
        self.facts.pop();
        let moving = columns.iter().filter(|(_, column)| column.moves_with(&of.var, &self.facts));
        let moving: Vec<&Column> = moving.map(|(_, column)| column).collect();
        let least = moving.iter().map(|column| column.chunk()).max()?;
        let bytes: u64 = moving.iter().map(|column| self.bytes_of_column(column)).sum();
        let nodes: usize = stmts.iter().map(count_nodes).sum();
        let extent = of.extent.as_int().unwrap_or(i128::MAX);
        // Under masks, each chunk of a row takes a register of its own.
        let masked = moving.iter().any(|column| column.rows.is_some());
        [4, 2, 1].map(|chunks| chunks * least).into_iter().find(|count| {
            if masked && *count > least {
                return false;
            }
            let fits = u64::from(*count) * bytes <= self.tile_bytes() || *count == least;
            fits && *count <= most
                && i128::from(*count) <= extent
                && *count as usize * nodes <= MAX_NODES
        })
    }

    /// Returns the bytes of the registers that tiles may take: half of all.
    fn tile_bytes(&self) -> u64 {
        u64::from(self.isa.registers() / 2 * self.isa.bytes())
    }

    /// Returns the bytes of the register that a column takes.
    fn bytes_of_column(&self, column: &Column) -> u64 {
        let bytes = column.buffer.dtype.bytes() * u64::from(column.lanes);
        bytes.next_multiple_of(self.isa.bytes().into())
    }

    /// Returns the columns that statements always read and never write, each with the position of
    /// its statement.
    fn columns(&self, stmts: &[Stmt]) -> Vec<(usize, Column)> {
        let mut columns = Vec::new();
        let mut written = FxHashSet::default();
        for (place, stmt) in stmts.iter().enumerate() {
            written.extend(stored_buffers(stmt));
            let found = columns_of(stmt, self.isa);
            columns.extend(found.into_iter().map(|column| (place, column)));
        }
        columns.retain(|(_, column)| !written.contains(&column.buffer));
        columns
    }

    /// Introduces tiles in consecutive statements, in inner statements first.
    fn block(&mut self, stmts: Vec<Stmt>) -> Stmt {
        let mut flat = Vec::new();
        stmts.into_iter().for_each(|stmt| flatten(stmt, &mut flat));
        let grouped = self.group_guards(flat);
        let stmts: Vec<Stmt> = grouped
            .into_iter()
            .map(|stmt| match stmt {
                Stmt::Store { .. } => stmt,
                other => self.stmt(other),
            })
            .collect();
        let columns = self.columns(&stmts);
        if columns.is_empty() {
            let load_rows = |stmt| turns::load_rows(stmt, self.isa);
            return block_of(stmts.into_iter().map(load_rows).collect());
        }
        // Columns are neighbours if their indices differ by a constant.
        let mut groups: Vec<BTreeMap<i128, Vec<&(usize, Column)>>> = Vec::new();
        let mut known = FxHashMap::default();
        for column in &columns {
            let (key, at) = column.1.key(&self.facts);
            let group = *known.entry(key).or_insert_with(|| {
                groups.push(BTreeMap::new());
                groups.len() - 1
            });
            groups[group].entry(at).or_default().push(column);
        }
        let mut rewriter = Rewriter::default();
        let mut fills: Vec<(usize, Vec<Stmt>)> = Vec::new();
        let mut tiles = Vec::new();
        for group in &groups {
            for run in self.runs(group) {
                let tile = Tile::new(&run);
                let first = run.iter().flat_map(|same| same.iter()).map(|(place, _)| *place).min();
                fills.push((first.expect("a tile is read"), tile.fill()));
                for (number, same) in run.iter().enumerate() {
                    for (_, column) in same.iter() {
                        rewriter.replace(&column.load, tile.column(number as u32));
                    }
                }
                tiles.push(tile.buffer);
            }
        }
        let mut done = Vec::new();
        for (place, stmt) in stmts.into_iter().enumerate() {
            for (_, fill) in fills.iter_mut().filter(|(first, _)| *first == place) {
                done.append(fill);
            }
            done.push(match rewriter.stmt(stmt) {
                store @ Stmt::Store { .. } => turns::load_rows(store, self.isa),
                other => other,
            });
        }
        let body = block_of(done);
        tiles.into_iter().fold(body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) })
    }

    /// Returns the runs of neighbouring columns that make tiles, each a multiple of a row chunk.
    fn runs<'c>(
        &self,
        group: &BTreeMap<i128, Vec<&'c (usize, Column)>>,
    ) -> Vec<Vec<Vec<&'c (usize, Column)>>> {
        let Some((_, column)) = group.values().next().map(|same| same[0]) else {
            return Vec::new();
        };
        let chunk = column.chunk() as usize;
        let fit = (self.tile_bytes() / self.bytes_of_column(column)) as usize;
        let most = match column.rows {
            Some(_) => chunk,
            None => (fit / chunk * chunk).clamp(chunk, 4 * chunk),
        };
        let (mut runs, mut run) = (Vec::new(), Vec::new());
        let mut next = None;
        for (at, same) in group {
            if next != Some(*at) {
                cut(&mut run, chunk, most, &mut runs);
            }
            run.push(same.clone());
            next = Some(at + 1);
        }
        cut(&mut run, chunk, most, &mut runs);
        runs
    }
}

/// Takes whole tiles from the beginning of `run`; the other columns stay strided loads.
fn cut<T>(run: &mut Vec<T>, chunk: usize, most: usize, runs: &mut Vec<Vec<T>>) {
    let mut left = std::mem::take(run);
    while left.len() >= chunk {
        let rest = left.split_off((left.len() / chunk * chunk).min(most));
        runs.push(std::mem::replace(&mut left, rest));
    }
}

/// A tile in registers.
struct Tile {
    buffer: Buffer,
    /// The number of columns.
    width: u32,
    /// The first column.
    first: Column,
}

impl Tile {
    fn new(run: &[Vec<&(usize, Column)>]) -> Tile {
        let first = run[0][0].1.clone();
        let width = run.len() as u32;
        let elements = Expr::index(i64::from(width) * i64::from(first.lanes));
        let name = format!("{}.tile", first.buffer.name);
        let buffer = Buffer::new(name, first.buffer.dtype, vec![elements], Scope::Register);
        Tile { buffer, width, first }
    }

    /// Returns the statements that load it by rows, in chunks.
    fn fill(&self) -> Vec<Stmt> {
        let Column { buffer, base, stride, lanes, rows, .. } = &self.first;
        let chunk = self.first.chunk();
        let mut stmts = Vec::new();
        for row in 0..*lanes {
            let start = match stride.as_int() {
                Some(stride) => Expr::index((stride * i128::from(row)) as i64),
                None => Expr::mul(stride.clone(), Expr::index(row.into())),
            };
            let mask = rows.as_ref().map(|count| {
                let is_read = Expr::lt(Expr::index(row.into()), count.clone());
                let ty = Type { dtype: is_read.ty.dtype, lanes: chunk };
                Expr::new(ty, ExprKind::Broadcast(is_read))
            });
            let start = Expr::add(base.clone(), start);
            for column in (0..self.width).step_by(chunk as usize) {
                let from = Expr::add(start.clone(), Expr::index(column.into()));
                let to = Expr::index((row * self.width + column).into());
                let indices = vec![ramp(from, 1, chunk)];
                let ty = Type { dtype: buffer.dtype, lanes: chunk };
                let (buffer, mask) = (buffer.clone(), mask.clone());
                let value = Expr::new(ty, ExprKind::Load { buffer, indices, mask });
                stmts.push(Stmt::store(&self.buffer, vec![ramp(to, 1, chunk)], value));
            }
        }
        stmts
    }

    /// Returns the expression that replaces the load of a column.
    fn column(&self, number: u32) -> Expr {
        let index = ramp(Expr::index(number.into()), self.width, self.first.lanes);
        Expr::load(&self.buffer, vec![index])
    }
}

fn ramp(base: Expr, stride: u32, lanes: u32) -> Expr {
    let ty = Type { dtype: base.ty.dtype, lanes };
    Expr::new(ty, ExprKind::Ramp(base, Expr::index(stride.into())))
}

fn flatten(stmt: Stmt, into: &mut Vec<Stmt>) {
    match stmt {
        Stmt::Block(stmts) => stmts.into_iter().for_each(|stmt| flatten(stmt, into)),
        other => into.push(other),
    }
}

fn block_of(mut stmts: Vec<Stmt>) -> Stmt {
    if stmts.len() == 1 { stmts.remove(0) } else { Stmt::Block(stmts) }
}

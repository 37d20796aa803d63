//! Fragments ahead: the fragments of the next warp products are loaded while the present ones run.
//!
//! The products of a pipeline's iteration form steps, in each of which every sum occurs once. Two
//! sets of registers hold the fragments of two steps. The first step of the next iteration is
//! loaded before the last one of this iteration is multiplied, so that no barrier stands between a
//! load and products that hide its latency.
//!
//! Before: `for (ko) { await; copy; load 0; multiply 0; load 1; multiply 1 }`
//! After:  `await; load 0 of the first iteration`
//!         `for (ko) {`
//!         `  copy; load 1; multiply 0`
//!         `  if an iteration follows { await; load 0 of that }`
//!         `  multiply 1`
//!         `}`
//! A thread passes the barrier of `await` after all its loads of the present iteration, as before,
//! so the copies of the next iteration overwrite nothing that is still needed.
//! Declines loops with other statements, iterations of a single step, and products whose two sets
//! of fragments do not fit into registers.

use super::emit::{Emitter, Place, Val};
use super::tensor::{Tile, sums};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::warp::WarpProduct;
use crate::ir::{Expr, Stmt, Var};
use crate::target::Gpu;
use nvptx_builder::{Cmp, Operand, Reg, Source, Ty};

/// The most registers of a thread (PTX ISA).
const THREAD_REGISTERS: u64 = 255;
/// Registers for addresses and counters.
const OTHER_REGISTERS: u64 = 32;

/// A loop whose fragments are loaded ahead.
pub(super) struct Ahead<'s> {
    /// The wait for the copies that an iteration reads.
    wait: &'s Stmt,
    copies: Vec<&'s Stmt>,
    /// At least two steps.
    steps: Vec<Vec<(WarpProduct, &'s Stmt)>>,
    /// The fragments of each step.
    tiles: Vec<Vec<Tile>>,
    /// The registers for the fragments of the first step.
    first: Vec<Vec<Reg>>,
}

impl Emitter<'_> {
    /// Plans the loop over a body; `None` if it is not of this form.
    pub(super) fn plan_ahead<'s>(&mut self, body: &'s Stmt) -> Option<Ahead<'s>> {
        let mut stmts = Vec::new();
        flatten(body, &mut stmts);
        let (wait, rest) = stmts.split_first()?;
        let copies: Vec<&Stmt> =
            rest.iter().copied().take_while(|s| matches!(s, Stmt::CopyGroup { .. })).collect();
        if !matches!(wait, Stmt::AwaitCopies { .. }) {
            return None;
        }
        let (mut steps, mut seen) = (vec![Vec::new()], Vec::new());
        let mut most = 0;
        for stmt in &rest[copies.len()..] {
            let Stmt::Tensorize { name, body } = stmt else { return None };
            let product = WarpProduct::of(name).filter(|one| !one.is_by_warpgroup())?;
            let (buffer, indices) = sums(product, body);
            if !matches!(self.place(&buffer), Place::Registers(_)) {
                return None;
            }
            let sum = (buffer, indices[0].as_int()?);
            if seen.contains(&sum) {
                steps.push(Vec::new());
                seen.clear();
            }
            seen.push(sum);
            most = most.max(seen.len() * indices.len());
            steps.last_mut().expect("one is there").push((product, &**body));
        }
        if steps.len() < 2 {
            return None;
        }
        let tiles: Vec<Vec<Tile>> = steps.iter().map(|step| self.tiles(step)).collect();
        let (first, last) = (&tiles[0], &tiles[tiles.len() - 1]);
        // The first fragments are overwritten before the last products.
        let shared = first.iter().any(|one| last.iter().any(|other| one.is(other)));
        let known = first.iter().all(|tile| self.tile_key(tile).is_some());
        let held = |tiles: &Vec<Tile>| tiles.iter().map(|tile| tile.count).sum::<usize>();
        let fragments = 2 * tiles.iter().map(held).max().unwrap_or(0);
        let needed = (most + fragments) as u64 + OTHER_REGISTERS;
        let room = u64::from(Gpu::BLOCK_REGISTERS) / self.block_threads.max(1);
        if shared || !known || needed > room.min(THREAD_REGISTERS) {
            return None;
        }
        let mut registers =
            |tile: &Tile| -> Vec<Reg> { (0..tile.count).map(|_| self.e.reg_as(Ty::B32)).collect() };
        let first: Vec<Vec<Reg>> = first.iter().map(&mut registers).collect();
        self.mutable.extend(first.iter().flatten().copied());
        Some(Ahead { wait, copies, steps, tiles, first })
    }

    /// The distinct fragments of a step.
    fn tiles(&mut self, step: &[(WarpProduct, &Stmt)]) -> Vec<Tile> {
        let mut tiles: Vec<Tile> = Vec::new();
        for (product, nest) in step {
            for which in [0, 1] {
                let tile = self.tile_of(*product, nest, which);
                if !tiles.iter().any(|other| other.is(&tile)) {
                    tiles.push(tile);
                }
            }
        }
        tiles
    }

    /// Emits what comes before the loop over `var` from `min` on.
    pub(super) fn start_ahead(&mut self, ahead: &Ahead<'_>, var: &Var, min: &Expr) {
        self.push();
        self.stmt(ahead.wait);
        self.load_first(ahead, var, min);
        self.pop();
    }

    /// Loads the fragments of the first step of the iteration in which `var` is `value`.
    fn load_first(&mut self, ahead: &Ahead<'_>, var: &Var, value: &Expr) {
        for (tile, registers) in ahead.tiles[0].iter().zip(&ahead.first) {
            let index = substitute(&tile.index, &mut |v| (v == var).then(|| value.clone()));
            let tile = Tile { index: simplify_expr(&index, &Facts::new()), ..tile.clone() };
            self.load_tile(&tile, Some(registers));
        }
    }

    /// Emits the body of the loop; `counter` is the register of `var`, `end` is one past its last
    /// value.
    pub(super) fn body_ahead(&mut self, ahead: &Ahead<'_>, var: &Var, (counter, end): (Reg, Val)) {
        ahead.copies.iter().for_each(|copy| self.stmt(copy));
        for (tile, registers) in ahead.tiles[0].iter().zip(&ahead.first) {
            let key = self.tile_key(tile).expect("it was looked at");
            self.loads.insert(key, registers.iter().map(|reg| reg.operand()).collect());
        }
        let last = ahead.steps.len() - 1;
        for (step, next) in ahead.steps[..last].iter().zip(&ahead.tiles[1..]) {
            // Loads are spread over the products.
            let mut loads = next.iter();
            for (at, (product, nest)) in step.iter().enumerate() {
                let share = |at: usize| (at * next.len()).div_ceil(step.len());
                for tile in loads.by_ref().take(share(at + 1) - share(at)) {
                    self.load_tile(tile, None);
                }
                self.warp_product(*product, nest);
            }
        }
        self.flush();
        let one = Operand::int(counter.ty(), 1);
        let next = self.e.add(counter.operand(), one);
        let more = self.e.setp(Cmp::Lt, next.operand(), end);
        let skip = self.e.label("last");
        self.e.when(!more, |e| e.bra(skip));
        self.push();
        self.stmt(ahead.wait);
        self.load_first(ahead, var, &Expr::add(Expr::var(var), Expr::index(1)));
        self.pop();
        // After the label, memory is as before the loads of the last step.
        self.all_changes -= 1;
        self.e.place(skip);
        for (product, nest) in &ahead.steps[last] {
            self.warp_product(*product, nest);
        }
        self.all_changes += 1;
    }
}

impl Tile {
    /// Whether two fragments have the same elements.
    fn is(&self, other: &Tile) -> bool {
        (self.memory.id, self.count, self.transposed)
            == (other.memory.id, other.count, other.transposed)
            && equal(&self.index, &other.index)
    }
}

/// The statements of nested blocks, in order.
pub(super) fn flatten<'s>(stmt: &'s Stmt, out: &mut Vec<&'s Stmt>) {
    match stmt {
        Stmt::Block(stmts) => stmts.iter().for_each(|one| flatten(one, out)),
        other => out.push(other),
    }
}

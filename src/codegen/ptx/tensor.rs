//! Warp products (`ir::warp`) by `ldmatrix` and `mma.sync`.
//!
//! The nest describes the computation of one thread. The warp loads the tiles of all its threads as
//! a whole, so that the registers of each thread hold the fragment that the instruction expects. A
//! tile is loaded once until its memory changes.

use super::emit::{Emitter, Memory, Place, Val, ty_of, view};
use super::memory::Loaded;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::warp::{Element, HALVES, ThreadPart, WarpProduct, index_at, thread_part};
use crate::ir::{BinOp, Buffer, DType, Expr, Stmt, Var};
use nvptx_builder::{B32, Convert, Mma, Reg, Source, Ty};

/// Rows of a matrix that `ldmatrix` loads; a row has 16 bytes.
const MATRIX_ROWS: i64 = 8;

/// The part of a factor that a warp loads by one instruction.
#[derive(Clone)]
pub(super) struct Tile {
    pub(super) memory: Memory,
    pub(super) dtype: DType,
    /// The element at which the row of a lane begins.
    pub(super) index: Expr,
    /// The registers of a thread.
    pub(super) count: usize,
    pub(super) transposed: bool,
}

/// The flat indices of the elements of the sum that a thread holds, in the order of the
/// instruction.
pub(super) fn sums(product: WarpProduct, nest: &Stmt) -> (Buffer, Vec<Expr>) {
    let part = part_of(product, nest);
    let each = (0..HALVES).flat_map(|half| (0..HALVES).map(move |column| (half, column)));
    let in_group = |group: i64| each.clone().map(move |(half, column)| (group, half, column));
    let groups = part.group.map_or(1, |(_, groups)| groups);
    let indices = (0..groups).flat_map(in_group).map(|(group, half, column)| {
        let mut values = vec![(part.vars[0], half), (part.vars[1], column)];
        values.extend(part.group.map(|(var, _)| (var, group)));
        index_at(flat(&part.c), &values)
    });
    (part.c.buffer.clone(), indices.collect())
}

pub(super) fn part_of(product: WarpProduct, nest: &Stmt) -> ThreadPart<'_> {
    match thread_part(product, nest) {
        Ok(part) => part,
        Err(difference) => crate::bug!("a pass changed a `{}`: {difference}", product.name),
    }
}

pub(super) fn flat<'e>(element: &Element<'e>) -> &'e Expr {
    match element.indices {
        [index] => index,
        _ => crate::bug!("access to `{}` is not flat", element.buffer.name),
    }
}

fn instruction(product: WarpProduct) -> Mma {
    match (product.a, product.b) {
        (DType::BFloat16, DType::BFloat16) => Mma::BF16,
        (DType::Float16, DType::Float16) => Mma::F16,
        (DType::Float32, DType::Float32) => Mma::TF32,
        (DType::Int8, DType::Int8) => Mma::S8,
        (DType::Uint8, DType::Uint8) => Mma::U8,
        (DType::Uint8, DType::Int8) => Mma::U8_S8,
        (DType::Int8, DType::Uint8) => Mma::S8_U8,
        _ => crate::bug!("no product of {}", product.factors()),
    }
}

impl Emitter<'_> {
    /// Emits a warp product; `body` is its nest.
    pub(super) fn warp_product(&mut self, product: WarpProduct, body: &Stmt) {
        let a = self.fragment(product, body, 0);
        let b = self.fragment(product, body, 1);
        let (buffer, indices) = sums(product, body);
        let how = instruction(product);
        match self.place(&buffer) {
            Place::Registers(regs) => {
                let at = |index: &Expr| match index.as_int().map(usize::try_from) {
                    Some(Ok(at)) => regs[at],
                    _ => crate::bug!("an index of `{}` is not constant", buffer.name),
                };
                let sums: Vec<Reg> = indices.iter().map(at).collect();
                self.multiply(how, &sums, &a, &b);
            }
            Place::Memory(memory) => {
                let ty = ty_of(buffer.dtype);
                let sums: Vec<Reg> = indices
                    .iter()
                    .map(|index| {
                        let old = self.expr(&Expr::load(&buffer, vec![index.clone()]));
                        let sum = self.e.reg_as(ty);
                        self.e.to(sum).mov(old);
                        sum
                    })
                    .collect();
                self.multiply(how, &sums, &a, &b);
                for (index, sum) in indices.iter().zip(&sums) {
                    let address = self.address(&memory, buffer.dtype.bytes() as u32, index);
                    self.store_chunk(&memory, buffer.dtype, address, &[sum.operand()], None);
                }
                *self.changes.entry(memory.id).or_insert(0) += 1;
            }
        }
        self.next_statement();
    }

    fn multiply(&mut self, how: Mma, sums: &[Reg], a: &[Val], b: &[Val]) {
        let words = |values: &[Val]| -> Vec<Reg<B32>> {
            values.iter().map(|value| value.reg().and_then(Reg::typed).expect("a word")).collect()
        };
        let (a, b) = (words(a), words(b));
        self.e.to_all(sums).mma(how, &a, &b, sums);
    }

    /// The registers of a factor; `which` is 0 for `a`, 1 for `b`.
    fn fragment(&mut self, product: WarpProduct, nest: &Stmt, which: usize) -> Vec<Val> {
        let tile = self.tile_of(product, nest, which);
        self.load_tile(&tile, None)
    }

    /// What a warp loads of a factor; `which` is 0 for `a`, 1 for `b`.
    pub(super) fn tile_of(&mut self, product: WarpProduct, nest: &Stmt, which: usize) -> Tile {
        let part = part_of(product, nest);
        let element = if which == 0 { &part.a } else { &part.b };
        let memory = match self.place(element.buffer) {
            Place::Memory(memory) => memory,
            Place::Registers(_) => crate::bug!("`{}` is in registers", element.buffer.name),
        };
        let lane = self.lane.clone().expect("the launch has lanes");
        let index = flat(element);
        let zero: Vec<(&Var, i64)> =
            part.vars.iter().copied().chain([&lane]).map(|var| (var, 0)).collect();
        let first = index_at(index, &zero);
        let apart = if which == 0 { MATRIX_ROWS } else { 1 };
        let row = step(index, part.vars[which]) / apart;
        let term = step(index, part.vars[2]);
        let transposed = term != 1;
        let place = lane_row_offset(&lane, which, (row, term), product.row());
        let index = simplify_expr(&Expr::add(first, place), &Facts::new());
        let count = if which == 0 { 4 } else { 2 };
        Tile { memory, dtype: element.buffer.dtype, index, count, transposed }
    }

    /// The key of the loaded fragment, if its index has one.
    pub(super) fn tile_key(&mut self, tile: &Tile) -> Option<Loaded> {
        self.loaded_matrices(&tile.memory, &tile.index, (tile.count, tile.transposed))
    }

    /// Loads a fragment, into these registers if some are given, unless it was loaded before.
    pub(super) fn load_tile(&mut self, tile: &Tile, into: Option<&Vec<Reg>>) -> Vec<Val> {
        let key = self.tile_key(tile).filter(|_| into.is_none());
        if let Some(values) = key.as_ref().and_then(|key| self.loads.get(key)) {
            return values;
        }
        let address = self.address(&tile.memory, tile.dtype.bytes() as u32, &tile.index);
        let is_float = tile.dtype == DType::Float32;
        if let (Some(registers), false) = (into, is_float) {
            self.e.to_all(registers).ldmatrix_as(tile.count, tile.transposed, address);
            return registers.iter().map(|reg| reg.operand()).collect();
        }
        let regs = self.e.ldmatrix_as(tile.count, tile.transposed, address);
        let mut values: Vec<Val> = regs.iter().map(|reg| reg.erase().operand()).collect();
        if is_float {
            // The instruction would truncate the mantissa.
            let round = |value: Val| {
                let float = self.bitcast(DType::Uint32, DType::Float32, view(value, Ty::U32));
                let rounded = self.e.cvt_as(Ty::Tf32, Convert::Rna, float);
                view(rounded.operand(), Ty::B32)
            };
            values = values.into_iter().map(round).collect();
        }
        for (register, value) in into.into_iter().flatten().zip(&values) {
            self.e.to(*register).mov(*value);
        }
        if let Some(key) = key {
            self.loads.insert(key, values.clone());
        }
        values
    }
}

/// The row whose address a lane passes to `ldmatrix`, as an element offset in the tile. Lanes 0 to
/// 7 pass the rows of the first matrix, 8 to 15 those of the second, and so on. `row` and `term`
/// are the strides of the tile; `wide` elements have 16 bytes.
fn lane_row_offset(lane: &Var, which: usize, (row, term): (i64, i64), wide: i64) -> Expr {
    let lane = || Expr::var(lane);
    let rest = |x: Expr, by: i64| Expr::binary(BinOp::FloorMod, x, Expr::index(by));
    let part = |x: Expr, by: i64| Expr::binary(BinOp::FloorDiv, x, Expr::index(by));
    let times = |x: Expr, by: i64| Expr::mul(x, Expr::index(by));
    match (which, term == 1) {
        // Rows from 0 and from 8 of the first terms, then of the last terms.
        (0, true) => Expr::add(times(rest(lane(), 16), row), times(part(lane(), 16), wide)),
        (0, false) => {
            let terms = Expr::add(rest(lane(), 8), times(part(lane(), 16), MATRIX_ROWS));
            Expr::add(times(terms, term), times(rest(part(lane(), 8), 2), MATRIX_ROWS))
        }
        // The first terms, then the last ones.
        (_, true) => {
            let second = rest(part(lane(), 8), 2);
            Expr::add(times(rest(lane(), 8), row), times(second, wide))
        }
        (_, false) => times(rest(lane(), 16), term),
    }
}

/// The step of an index in a loop.
fn step(index: &Expr, var: &Var) -> i64 {
    let next = Expr::add(Expr::var(var), Expr::index(1));
    let after = substitute(index, &mut |v| (v == var).then(|| next.clone()));
    let step = simplify_expr(&Expr::sub(after, index.clone()), &Facts::new());
    match step.as_int().map(i64::try_from) {
        Some(Ok(step)) => step,
        _ => crate::bug!("a factor moves irregularly with `{}`", var.name()),
    }
}

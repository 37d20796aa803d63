//! Products by weights that are quantised in blocks, with a scale and a zero point for each.

use super::slicing;
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::{Def, T};
use crate::narrow::Narrow;
use crate::node::Outcome;

/// The largest number of rows for which the product reads packed weights. For 2048 x 2048 weights,
/// each row takes 80 us; of unpacked weights, 9 rows take 530 us, 64 rows 2.4 ms (Zen 5, one
/// thread).
const MOST_ROWS: i64 = 6;

/// The numbers of columns that are computed in lanes, the best one first. With 64, a byte of each
/// column is a line of the caches.
const LANES: [i64; 3] = [64, 32, 16];

/// The bits of an element of a byte, the first element in the lowest ones.
pub(super) fn bits_of(byte: E, place: &Dim, bits: i64) -> E {
    let int = |value: i64| E::int(value, DType::Int32);
    // In 32 bits, two elements share the conversion of their byte.
    let byte = byte.cast(DType::Int32);
    let last = 8 / bits - 1;
    let part = |at: i64, byte: E| {
        let low = if at == 0 { byte } else { byte.bin(">>", int(at * bits)) };
        if at == last { low } else { low.bin("&", int((1 << bits) - 1)) }
    };
    let at = place.rem(&(last + 1).into());
    if let Some(at) = at.as_const() {
        return part(at, byte);
    }
    (0..last).rev().fold(part(last, byte.clone()), |rest, own| {
        let here = E::Idx(at.clone()).bin("==", E::Idx(own.into()));
        here.choose(part(own, byte.clone()), rest)
    })
}

/// Weights of [column, element], packed.
#[derive(Clone)]
pub(crate) struct Blocks {
    pub(super) bits: i64,
    /// The numbers of elements and columns, of the elements of a block, and of the blocks.
    pub(super) k: i64,
    pub(super) n: i64,
    pub(super) size: i64,
    pub(super) count: i64,
    /// The weights, [column, block, byte].
    pub(super) bytes: T,
    /// The scales and the zero points, [column, block].
    pub(super) scales: T,
    pub(super) zeros: Option<T>,
    /// The zero point of all blocks, if there is no other.
    pub(super) zero: i64,
}

/// Dequantised weights whose product is computed from the packed ones.
#[derive(Clone)]
pub(crate) struct Dequantized {
    /// The weights, scales and zero points as they are.
    data: T,
    scales: T,
    zeros: Option<T>,
    /// The axis of the weights along which the blocks lie, and the size of a block.
    axis: usize,
    size: i64,
    /// Whether the operand of the product is the transposition of the weights.
    is_transposed: bool,
}

/// The tables of a product, in tiles of columns.
struct Tiles {
    lanes: i64,
    /// The weights, [tile, block, byte, column of the tile].
    bytes: T,
    /// The scales and zero points, [tile, block, column of the tile].
    scales: T,
    zeros: Option<T>,
}

impl Tiles {
    /// The extents of the result of rows of these extents.
    fn extents(&self, blocks: &Blocks, rows: &[Dim]) -> Vec<Dim> {
        let mut shape = rows.to_vec();
        shape.extend([((blocks.n + self.lanes - 1) / self.lanes).into(), self.lanes.into()]);
        shape
    }
}

/// An element of a table, in float32.
fn wide(cx: &Context, table: T, at: [&Dim; 3]) -> E {
    let value = cx.load(table, at.map(Dim::clone));
    if cx.dtype(table) == DType::Float32 { value } else { value.cast(DType::Float32) }
}

impl Blocks {
    /// The product of rows and the weights, in float32. A few rows read packed weights, many read
    /// unpacked ones; which of them, a call decides if the number of rows is that of run time.
    pub(super) fn product(&self, cx: &mut Context, x: T) -> Outcome<T> {
        let wide = DType::Float32;
        let shape = cx.shape(x);
        let Some((last, rows)) = shape.split_last() else {
            return Err("products of scalars are not supported".into());
        };
        cx.require_equal(last, &self.k.into())?;
        let x = cx.cast("left", x, wide)?;
        let x = self.padded(cx, x)?;
        let tiles = self.tiles(cx)?;
        let is_known = |dim: &Dim| dim.as_const().is_some();
        let known: Vec<Dim> = rows.iter().filter(|dim| is_known(dim)).cloned().collect();
        let known = crate::dim::product(&known).as_const().unwrap_or(1);
        let axis = rows.iter().rposition(|dim| !is_known(dim));
        let mut to = rows.to_vec();
        to.push(self.n.into());
        let own = axes(&to);
        let column = &own[rows.len()];
        let mut at = own[..rows.len()].to_vec();
        at.extend([column.div(&tiles.lanes.into()), column.rem(&tiles.lanes.into())]);
        let body = match axis {
            _ if known > MOST_ROWS => {
                let sum = self.unpacked(cx, x, &tiles, rows)?;
                cx.load(sum, at)
            }
            // Unpacked weights of 8 bits would become a param: they take four times the bytes.
            Some(axis) if self.bits < 8 => {
                // All rows or none of them.
                let count = &rows[axis];
                let is_few = Dim::from(MOST_ROWS / known + 1) - count;
                let is_few = is_few.minimum(&1.into()).maximum(&Dim::zero());
                let few = count * &is_few;
                let many = count.clone() - &few;
                cx.split_rows.extend([few.clone(), many.clone()]);
                let mut part = rows.to_vec();
                part[axis] = few.clone();
                let first = self.packed(cx, x, &tiles, &part)?;
                part[axis] = many.clone();
                let second = self.unpacked(cx, x, &tiles, &part)?;
                let row = E::Idx(own[axis].clone());
                let (first, second) = (cx.load(first, at.clone()), cx.load(second, at));
                let rest = row.clone().bin("<", E::Idx(many)).choose(second, E::float(0.0, wide));
                row.bin("<", E::Idx(few)).choose(first, rest)
            }
            _ => {
                let sum = self.packed(cx, x, &tiles, rows)?;
                cx.load(sum, at)
            }
        };
        cx.compute("product", wide, to, body)
    }

    /// The rows with zeros behind the last element, as the last block has weights there.
    fn padded(&self, cx: &mut Context, x: T) -> Outcome<T> {
        let behind = self.count * self.size - self.k;
        if behind == 0 {
            return Ok(x);
        }
        let mut around = vec![(Dim::zero(), Dim::zero()); cx.rank(x) - 1];
        around.push((Dim::zero(), behind.into()));
        slicing::pad_with(cx, "padded", x, &around, E::float(0.0, DType::Float32))
    }

    /// The tables in tiles of columns.
    fn tiles(&self, cx: &mut Context) -> Outcome<Tiles> {
        let most = if self.n < LANES[0] { LANES[LANES.len() - 1] } else { LANES[0] };
        let lanes = LANES.into_iter().find(|lanes| self.n % lanes == 0).unwrap_or(most);
        let bytes = self.tiled(cx, "tiled_bytes", self.bytes, lanes)?;
        let scales = self.tiled(cx, "tiled_scales", self.scales, lanes)?;
        let zeros = match self.zeros {
            None => None,
            Some(zeros) => Some(self.tiled(cx, "tiled_zeros", zeros, lanes)?),
        };
        Ok(Tiles { lanes, bytes, scales, zeros })
    }

    /// A table of [column, …] as [tile, …, column in the tile], so that the columns of a tile are
    /// neighbours.
    fn tiled(&self, cx: &mut Context, part: &str, x: T, lanes: i64) -> Outcome<T> {
        let mut shape = cx.shape(x);
        shape[0] = ((self.n + lanes - 1) / lanes).into();
        shape.push(lanes.into());
        let own = axes(&shape);
        let column = own[0].clone() * lanes + &own[own.len() - 1];
        // The last column stands for those behind it.
        let column = match self.n % lanes {
            0 => E::Idx(column),
            _ => E::call("min", [E::Idx(column), E::Idx((self.n - 1).into())]),
        };
        let mut at: Vec<E> = own[..own.len() - 1].iter().cloned().map(E::Idx).collect();
        at[0] = column;
        let (dtype, body) = (cx.dtype(x), cx.load_at(x, at));
        cx.compute(part, dtype, shape, body)
    }

    /// The product that reads the packed weights: each term has the elements of a byte.
    ///
    /// A term is `(w0*x0 + (w1*x1 - zero*(x0 + x1))) * scale`, so that the zero point takes one
    /// operation for all elements of a byte.
    fn packed(&self, cx: &mut Context, x: T, tiles: &Tiles, rows: &[Dim]) -> Outcome<T> {
        let each = 8 / self.bits;
        let extents = vec![Dim::from(self.count), Dim::from(self.size / each)];
        let last = rows.len();
        let element = |cx: &Context, own: &[Dim], block: &Dim, byte: &Dim, part: i64| {
            let mut at = own[..last].to_vec();
            at.push(block.clone() * self.size + &(byte.clone() * each) + part);
            cx.load(x, at)
        };
        // What the zero points take from a term, without them if they differ.
        let mut places = rows.to_vec();
        places.extend(extents.iter().cloned());
        let own = axes(&places);
        let parts = (0..each).map(|part| element(cx, &own, &own[last], &own[last + 1], part));
        let both = parts.reduce(|a, b| a.bin("+", b)).ok_or("a byte has no element")?;
        let both = match self.zeros {
            Some(_) => both,
            None => both.bin("*", E::float(-self.zero as f64, DType::Float32)),
        };
        let both = cx.compute("offsets", DType::Float32, places, both)?;
        let shape = tiles.extents(self, rows);
        let own = axes(&shape);
        let (block, byte) = (reduce_axis(0, &extents[0]), reduce_axis(1, &extents[1]));
        let mut at = own[..last].to_vec();
        at.extend([block.clone(), byte.clone()]);
        let offset = cx.load(both, at);
        let of_block = |cx: &Context, table| wide(cx, table, [&own[last], &block, &own[last + 1]]);
        let product = |cx: &Context, part: i64| {
            let at = [own[last].clone(), block.clone(), byte.clone(), own[last + 1].clone()];
            let weight = bits_of(cx.load(tiles.bytes, at), &part.into(), self.bits);
            weight.cast(DType::Float32).bin("*", element(cx, &own, &block, &byte, part))
        };
        let first = product(cx, each - 1);
        let first = match tiles.zeros {
            Some(zeros) => first.bin("-", offset.bin("*", of_block(cx, zeros))),
            None => first.bin("+", offset),
        };
        let term = (0..each - 1).rev().fold(first, |sum, part| product(cx, part).bin("+", sum));
        let term = term.bin("*", of_block(cx, tiles.scales));
        cx.fold("tiles", "sum", DType::Float32, shape, extents, term)
    }

    /// The product by unpacked weights.
    fn unpacked(&self, cx: &mut Context, x: T, tiles: &Tiles, rows: &[Dim]) -> Outcome<T> {
        let each = 8 / self.bits;
        let mut shape = tiles.extents(self, &[]);
        shape.splice(1..1, [Dim::from(self.count), Dim::from(self.size)]);
        let own = axes(&shape);
        let at = [own[0].clone(), own[1].clone(), own[2].div(&each.into()), own[3].clone()];
        let value = bits_of(cx.load(tiles.bytes, at), &own[2], self.bits).cast(DType::Float32);
        let of_block = |table| wide(cx, table, [&own[0], &own[1], &own[3]]);
        let zero = match tiles.zeros {
            None => E::float(self.zero as f64, DType::Float32),
            Some(zeros) => of_block(zeros),
        };
        let body = value.bin("-", zero).bin("*", of_block(tiles.scales));
        let weights = cx.compute("weights", DType::Float32, shape, body)?;
        let shape = tiles.extents(self, rows);
        let own = axes(&shape);
        let last = rows.len();
        let extents = vec![Dim::from(self.count), Dim::from(self.size)];
        let (block, place) = (reduce_axis(0, &extents[0]), reduce_axis(1, &extents[1]));
        let mut at = own[..last].to_vec();
        at.push(block.clone() * self.size + &place);
        let weight = cx.load(weights, [own[last].clone(), block, place, own[last + 1].clone()]);
        let term = cx.load(x, at).bin("*", weight);
        cx.fold("unpacked_tiles", "sum", DType::Float32, shape, extents, term)
    }
}

/// The code of a number whose type has a sign: the zero point of its type becomes the middle one.
fn code(value: u8, signed: bool, bits: usize) -> u8 {
    let half = 1_u8 << (bits - 1);
    let mask = ((1_u16 << bits) - 1) as u8;
    if signed { value.wrapping_add(half) & mask } else { value & mask }
}

/// Notes weights that are dequantised in blocks.
pub(super) fn note(
    cx: &mut Context,
    result: T,
    (data, scales, zeros): (T, T, Option<T>),
    axis: usize,
    size: i64,
) {
    let own = &cx.graph[data];
    let bits = cx.narrow(data).map_or(8, Narrow::bits);
    let is_known = matches!(own.def, Def::Data(_));
    let is_matrix = own.shape.len() == 2 && cx.rank(scales) == 2;
    let is_byte = matches!(own.dtype, DType::Int8 | DType::Uint8);
    // A block has whole bytes.
    let is_whole = size >= 16 && size % (8 / bits as i64) == 0;
    if is_known && is_matrix && is_byte && is_whole {
        let own = Dequantized { data, scales, zeros, axis, size, is_transposed: false };
        cx.blocks.insert(result, own);
    }
}

/// Notes that a tensor is the transposition of one that was noted.
pub(super) fn note_transposed(cx: &mut Context, x: T, result: T) {
    if let Some(own) = cx.blocks.get(&x).cloned() {
        cx.blocks.insert(result, Dequantized { is_transposed: !own.is_transposed, ..own });
    }
}

/// The product by weights that were noted, if their blocks lie along its sum.
pub(super) fn product_of(cx: &mut Context, x: T, weights: T) -> Outcome<Option<T>> {
    let Some(own) = cx.blocks.get(&weights).cloned() else { return Ok(None) };
    // The sum runs over the first dimension of the weights, or the last before a transposition.
    if own.axis != usize::from(own.is_transposed) {
        return Ok(None);
    }
    let Some(blocks) = own.packed(cx)? else { return Ok(None) };
    let sum = blocks.product(cx, x)?;
    let dtype = cx.dtype(weights);
    cx.cast("", sum, dtype).map(Some)
}

impl Dequantized {
    /// The packed weights; the sum runs over the axis of the blocks.
    fn packed(&self, cx: &mut Context) -> Outcome<Option<Blocks>> {
        let axis = self.axis;
        let own = &cx.graph[self.data];
        let Def::Data(data) = &own.def else { return Ok(None) };
        let bits = cx.narrow(self.data).map_or(8, Narrow::bits);
        let signed = own.dtype == DType::Int8;
        let extents: Option<Vec<usize>> = own.shape.iter().map(Dim::as_extent).collect();
        let Some(extents) = extents else { return Ok(None) };
        let (k, n) = (extents[axis], extents[1 - axis]);
        if k == 0 || n == 0 || data.len() != k * n {
            return Ok(None);
        }
        let size = self.size as usize;
        let (count, each) = (k.div_ceil(size), 8 / bits);
        let mut bytes = vec![0_u8; n * count * size / each];
        let row = count * size;
        for column in 0..n {
            for at in 0..k {
                let from = if axis == 1 { column * k + at } else { at * n + column };
                let to = column * row + at;
                bytes[to / each] |= code(data[from], signed, bits) << (bits * (to % each));
            }
        }
        let hint = std::mem::replace(&mut cx.hint, cx.graph[self.data].name.clone());
        let extents = [n, count, size / each].map(|extent| Dim::from(extent as i64)).to_vec();
        let bytes = cx.data("packed", DType::Uint8, extents, bytes.into());
        let by_column = |cx: &mut Context, part: &str, x: T| {
            if axis == 1 { Ok(x) } else { slicing::permute(cx, part, x, &[1, 0]) }
        };
        let scales = by_column(cx, "scales", self.scales);
        let zero = if signed { 1 << (bits - 1) } else { 0 };
        let zeros = match self.zeros {
            None => Ok(None),
            Some(zeros) => by_column(cx, "zeros", zeros).and_then(|zeros| {
                let shape = cx.shape(zeros);
                let value = cx.load(zeros, axes(&shape)).cast(DType::Int32);
                let body = value.bin("+", E::int(zero, DType::Int32)).cast(DType::Uint8);
                cx.compute("zero_points", DType::Uint8, shape, body).map(Some)
            }),
        };
        cx.hint = hint;
        let (bytes, scales, zeros) = (bytes?, scales?, zeros?);
        let shape = [n, count].map(|extent| Dim::from(extent as i64));
        let tables = [Some(scales), zeros];
        if tables.into_iter().flatten().any(|table| cx.shape(table) != shape) {
            return Ok(None);
        }
        let [k, n, count, bits] = [k, n, count, bits].map(|number| number as i64);
        Ok(Some(Blocks { bits, k, n, size: self.size, count, bytes, scales, zeros, zero }))
    }
}

//! Weights that are quantised in blocks, with a scale and a zero point for each.

use super::{apply, named};
use crate::context::{Context, axes, axis_of, reduce_axis};
use crate::dim::{Dim, product};
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::{Handler, elementwise, gather, movement, product, slicing};

/// The largest constant number of rows for which the weights are unpacked inside of the sum. With
/// 64 rows of 2048 elements the product of unpacked weights takes half of the time, with 8 rows
/// 1.6 times as long (Zen 5, one thread).
const MOST_ROWS: i64 = 16;

/// The numbers of columns that are computed in lanes, the best one first. With 64, a byte of each
/// column is a line of the caches.
const LANES: [i64; 3] = [64, 32, 16];

/// The bits of an element of a byte, the first element in the lowest ones.
fn bits_of(byte: E, place: &Dim, bits: i64) -> E {
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

/// The operands of `MatMulNBits`.
struct Blocks {
    /// The bits, the extents of the weights, the elements of a block, and the number of blocks.
    bits: i64,
    k: i64,
    n: i64,
    size: i64,
    count: i64,
    /// The weights [column, block, byte], the scales and the zero points [column, block].
    bytes: T,
    scales: T,
    zeros: Option<T>,
}

impl Blocks {
    fn of(cx: &mut Context, node: &Node) -> Outcome<Self> {
        let (packed, scales) = (node.input(1)?, node.input(2)?);
        let (k, n) = (node.int("K", 0), node.int("N", 0));
        let (bits, size) = (node.int("bits", 4), node.int("block_size", 32));
        let sizes = [k, n, size];
        if ![2, 4, 8].contains(&bits)
            || size < 16
            || sizes.iter().any(|v| !(1..1 << 31).contains(v))
        {
            return Err("the number of bits or the size of the blocks is not supported".into());
        }
        if node.int("weight_prepacked", 0) != 0 {
            return Err("`weight_prepacked` is not supported: its layout is that of a GPU".into());
        }
        if size % (8 / bits) != 0 {
            return Err("a block must have whole bytes".into());
        }
        let count = (k + size - 1) / size;
        let each = 8 / bits;
        let bytes = reshaped(cx, "bytes", packed, &[n, count, size / each])?;
        let scales = reshaped(cx, "scales", scales, &[n, count])?;
        let zeros = match node.optional(3) {
            None => None,
            Some(zeros) if cx.dtype(zeros).is_float() => {
                Some(reshaped(cx, "zeros", zeros, &[n, count])?)
            }
            Some(zeros) => {
                let zeros = reshaped(cx, "zeros", zeros, &[n, (count + each - 1) / each])?;
                let shape = vec![Dim::from(n), Dim::from(count)];
                let own = axes(&shape);
                let byte = cx.load(zeros, [own[0].clone(), own[1].div(&each.into())]);
                let body = bits_of(byte, &own[1], bits).cast(DType::Uint8);
                Some(cx.compute("zero_points", DType::Uint8, shape, body)?)
            }
        };
        let own = Blocks { bits, k, n, size, count, bytes, scales, zeros };
        own.check_order(cx, node)?;
        Ok(own)
    }

    /// Refuses groups that are no blocks of neighbours.
    fn check_order(&self, cx: &Context, node: &Node) -> Outcome<()> {
        let Some(groups) = node.optional(4) else { return Ok(()) };
        let own = &cx.graph[groups];
        let crate::graph::Def::Data(data) = &own.def else {
            return Err("`g_idx` must be constant".into());
        };
        let in_order = (0..self.k).all(|at| {
            let value = crate::dtype::read_element(own.dtype, data, at as usize);
            value.and_then(|value| value.as_int()) == Some(at / self.size)
        });
        if own.len() != Some(self.k as usize) || !in_order {
            return Err("`g_idx` is not supported: the groups are no blocks of neighbours".into());
        }
        Ok(())
    }

    /// The product by unpacked weights.
    fn unpacked(&self, cx: &mut Context, x: T) -> Outcome<T> {
        let wide = DType::Float32;
        let shape: Vec<Dim> = vec![self.n.into(), self.k.into()];
        let own = axes(&shape);
        let (block, place) = (own[1].div(&self.size.into()), own[1].rem(&self.size.into()));
        let byte = place.div(&(8 / self.bits).into());
        let value =
            bits_of(cx.load(self.bytes, [own[0].clone(), block.clone(), byte]), &place, self.bits);
        let of_block = |table: T| {
            let value = cx.load(table, [own[0].clone(), block.clone()]);
            if cx.dtype(table) == wide { value } else { value.cast(wide) }
        };
        let zero = match self.zeros {
            None => E::float(f64::from(1_u32 << (self.bits - 1)), wide),
            Some(zeros) => of_block(zeros),
        };
        let body = value.cast(wide).bin("-", zero).bin("*", of_block(self.scales));
        let weights = cx.compute("weights", wide, shape, body)?;
        let weights = slicing::permute(cx, "transposed", weights, &[1, 0])?;
        product::product(cx, "product", x, weights)
    }

    /// A table of [column, …] as [tile, …, column in the tile], so that the columns of a tile are
    /// neighbours.
    fn tiled(&self, cx: &mut Context, part: &str, x: T, lanes: i64) -> Outcome<T> {
        let mut shape = cx.shape(x);
        shape[0] = (self.n / lanes).into();
        shape.push(lanes.into());
        let own = axes(&shape);
        let mut at = own[..own.len() - 1].to_vec();
        at[0] = own[0].clone() * lanes + &own[own.len() - 1];
        let (dtype, body) = (cx.dtype(x), cx.load(x, at));
        cx.compute(part, dtype, shape, body)
    }

    /// The product that reads the packed weights: each term has the elements of a byte.
    ///
    /// A term is `(w0*x0 + (w1*x1 - zero*(x0 + x1))) * scale`, so that the zero point takes one
    /// operation for all elements of a byte. Tiles of columns are computed in lanes.
    fn packed(&self, cx: &mut Context, x: T) -> Outcome<T> {
        let wide = DType::Float32;
        let mut shape = cx.shape(x);
        let last = shape.len() - 1;
        // The last block may have weights behind the last element.
        let behind = self.count * self.size - self.k;
        let x = if behind == 0 {
            x
        } else {
            let mut around = vec![(Dim::zero(), Dim::zero()); last];
            around.push((Dim::zero(), behind.into()));
            slicing::pad_with(cx, "padded", x, &around, E::float(0.0, wide))?
        };
        let each = 8 / self.bits;
        let extents = vec![Dim::from(self.count), Dim::from(self.size / each)];
        let element = |cx: &Context, rows: &[Dim], block: &Dim, byte: &Dim, part: i64| {
            let mut at = rows[..last].to_vec();
            at.push(block.clone() * self.size + &(byte.clone() * each) + part);
            cx.load(x, at)
        };
        // What the zero points take from a term, without them if they differ.
        let mut places = shape[..last].to_vec();
        places.extend(extents.iter().cloned());
        let own = axes(&places);
        let parts = (0..each).map(|part| element(cx, &own, &own[last], &own[last + 1], part));
        let both = parts.reduce(|a, b| a.bin("+", b)).ok_or("a byte has no element")?;
        let both = match self.zeros {
            Some(_) => both,
            None => both.bin("*", E::float(-f64::from(1_u32 << (self.bits - 1)), wide)),
        };
        let both = cx.compute("offsets", wide, places, both)?;
        let lanes = LANES.into_iter().find(|lanes| self.n % lanes == 0).unwrap_or(self.n);
        let bytes = self.tiled(cx, "tiled_bytes", self.bytes, lanes)?;
        let scales = self.tiled(cx, "tiled_scales", self.scales, lanes)?;
        let zeros = match self.zeros {
            None => None,
            Some(zeros) => Some(self.tiled(cx, "tiled_zeros", zeros, lanes)?),
        };
        shape[last] = (self.n / lanes).into();
        shape.push(lanes.into());
        let own = axes(&shape);
        let (block, byte) = (reduce_axis(0, &extents[0]), reduce_axis(1, &extents[1]));
        let mut at = own[..last].to_vec();
        at.extend([block.clone(), byte.clone()]);
        let offset = cx.load(both, at);
        let of_block = |cx: &Context, table: T| {
            let own = [own[last].clone(), block.clone(), own[last + 1].clone()];
            let value = cx.load(table, own);
            if cx.dtype(table) == wide { value } else { value.cast(wide) }
        };
        let product = |cx: &Context, part: i64| {
            let at = [own[last].clone(), block.clone(), byte.clone(), own[last + 1].clone()];
            let weight = bits_of(cx.load(bytes, at), &part.into(), self.bits);
            weight.cast(wide).bin("*", element(cx, &own, &block, &byte, part))
        };
        let first = product(cx, each - 1);
        let first = match zeros {
            Some(zeros) => first.bin("-", offset.bin("*", of_block(cx, zeros))),
            None => first.bin("+", offset),
        };
        let term = (0..each - 1).rev().fold(first, |sum, part| product(cx, part).bin("+", sum));
        let term = term.bin("*", of_block(cx, scales));
        let sum = cx.fold("tiles", "sum", wide, shape.clone(), extents, term)?;
        shape.truncate(last);
        shape.push(self.n.into());
        movement::reshape_to(cx, "product", sum, shape)
    }
}

pub(super) fn matmul_n_bits(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (dtype, wide) = (cx.dtype(x), DType::Float32);
    let own = Blocks::of(cx, node)?;
    let shape = cx.shape(x);
    let Some((last, rows)) = shape.split_last() else {
        return Err("products of scalars are not supported".into());
    };
    cx.require_equal(last, &own.k.into())?;
    let x = cx.cast("left", x, wide)?;
    let sum = match product(rows).as_const() {
        Some(rows) if rows > MOST_ROWS => own.unpacked(cx, x)?,
        _ => own.packed(cx, x)?,
    };
    let sum = match node.optional(5) {
        None => sum,
        Some(bias) => {
            let bias = cx.cast("bias", bias, wide)?;
            let one: (&str, Handler) = ("Add", elementwise::add);
            apply(cx, "biased", one, &[Some(sum), Some(bias)], named(&[]))?
        }
    };
    Ok(vec![cx.cast("", sum, dtype)?])
}

/// Rows of a quantised table.
pub(super) fn gather_blocks(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (data, indices, scales) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (dtype, wide) = (cx.dtype(scales), DType::Float32);
    let (shape, inner) = (cx.shape(data), cx.shape(indices));
    let narrow = cx.narrow(data);
    let is_packed = cx.dtype(data) == DType::Uint8 && narrow.is_none();
    let bits = node.int("bits", 4);
    if !is_packed && narrow.is_none() || is_packed && ![2, 4, 8].contains(&bits) {
        return Err("the type of the table or the number of bits is not supported".into());
    }
    let each = if is_packed { 8 / bits } else { 1 };
    let axis = axis_of(node.int("gather_axis", 0), shape.len())?;
    let blocked = axis_of(node.int("quantize_axis", 1), shape.len())?;
    let last = shape.len() - 1;
    if axis == blocked || each > 1 && axis == last {
        return Err("rows that are not whole blocks are not supported".into());
    }
    let size = node.int("block_size", 128);
    let mut full = shape.clone();
    full[last] = shape[last].clone() * each;
    // One block has the whole axis.
    let size = if size == 0 { full[blocked].clone() } else { Dim::from(size) };
    let scale_shape = cx.shape(scales);
    if scale_shape.len() != shape.len() {
        return Err("the scales must have the rank of the table".into());
    }
    let mut to = full[..axis].to_vec();
    to.extend(inner.iter().cloned());
    to.extend(full[axis + 1..].iter().cloned());
    let own = axes(&to);
    let at = own[axis..axis + inner.len()].iter().cloned().map(E::Idx).collect();
    let row = gather::place(cx, indices, at, &full[axis]);
    // The place of an element in the table.
    let mut places = own[..axis].to_vec();
    places.push(Dim::zero());
    places.extend(own[axis + inner.len()..].iter().cloned());
    let index = |of: &dyn Fn(usize, &Dim) -> Dim, is_one: &dyn Fn(usize) -> bool| -> Vec<E> {
        let each = places.iter().enumerate().map(|(at, place)| match at {
            _ if is_one(at) => E::Idx(Dim::zero()),
            _ if at == axis => row.clone(),
            _ => E::Idx(of(at, place)),
        });
        each.collect()
    };
    let in_bytes =
        |at: usize, place: &Dim| if at == last { place.div(&each.into()) } else { place.clone() };
    let code = cx.load_at(data, index(&in_bytes, &|_| false));
    let code = if is_packed { bits_of(code, &places[last], bits) } else { code };
    let block = |at: usize, place: &Dim| {
        if at == blocked { place.div(&size) } else { place.clone() }
    };
    let scale = cx.load_at(scales, index(&block, &|at| scale_shape[at].is_one()));
    let scale = if dtype == wide { scale } else { scale.cast(wide) };
    let int = |cx: &Context, e: E| match e.dtype(&cx.graph) {
        Some(DType::Int32) => e,
        _ => e.cast(DType::Int32),
    };
    let difference = match node.optional(3) {
        None if is_packed => int(cx, code).bin("-", E::int(1 << (bits - 1), DType::Int32)),
        None => code,
        Some(zeros) => {
            let zero_shape = cx.shape(zeros);
            if zero_shape.len() != shape.len() {
                return Err("the zero points must have the rank of the table".into());
            }
            let at_zero = |at: usize, place: &Dim| in_bytes(at, &block(at, place));
            let is_one = |at: usize| scale_shape[at].is_one() && zero_shape[at].is_one();
            let zero = cx.load_at(zeros, index(&at_zero, &is_one));
            let place = block(last, &places[last]);
            let zero = if is_packed { bits_of(zero, &place, bits) } else { zero };
            int(cx, code).bin("-", int(cx, zero))
        }
    };
    let body = difference.cast(wide).bin("*", scale);
    let body = if dtype == wide { body } else { body.cast(dtype) };
    Ok(vec![cx.compute("", dtype, to, body)?])
}

/// Gives an operand a shape of as many elements.
fn reshaped(cx: &mut Context, part: &str, x: T, to: &[i64]) -> Outcome<T> {
    let to: Vec<Dim> = to.iter().map(|n| Dim::from(*n)).collect();
    if cx.graph[x].len().map(|n| n as i64) != product(&to).as_const() {
        return Err("an operand has a wrong number of elements".into());
    }
    movement::reshape_to(cx, part, x, to)
}

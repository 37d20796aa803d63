//! Operators with weights that are quantised in blocks.

use super::{apply, named};
use crate::context::{Context, axes, axis_of};
use crate::dim::{Dim, product};
use crate::dtype::{DType, read_element};
use crate::expr::E;
use crate::graph::{Def, T};
use crate::node::{Node, Outcome};
use crate::ops::blocks::{Blocks, bits_of};
use crate::ops::{Handler, elementwise, gather, movement};

/// The operands of `MatMulNBits`.
fn blocks(cx: &mut Context, node: &Node) -> Outcome<Blocks> {
    let (packed, scales) = (node.input(1)?, node.input(2)?);
    let (k, n) = (node.int("K", 0), node.int("N", 0));
    let (bits, size) = (node.int("bits", 4), node.int("block_size", 32));
    let sizes = [k, n, size];
    if ![2, 4, 8].contains(&bits) || size < 16 || sizes.iter().any(|v| !(1..1 << 31).contains(v)) {
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
    let own = Blocks { bits, k, n, size, count, bytes, scales, zeros, zero: 1 << (bits - 1) };
    check_order(&own, cx, node)?;
    Ok(own)
}

/// Refuses groups that are no blocks of neighbours.
fn check_order(own: &Blocks, cx: &Context, node: &Node) -> Outcome<()> {
    let Some(groups) = node.optional(4) else { return Ok(()) };
    let list = &cx.graph[groups];
    let Def::Data(data) = &list.def else {
        return Err("`g_idx` must be constant".into());
    };
    let in_order = (0..own.k).all(|at| {
        let value = read_element(list.dtype, data, at as usize);
        value.and_then(|value| value.as_int()) == Some(at / own.size)
    });
    if list.len() != Some(own.k as usize) || !in_order {
        return Err("`g_idx` is not supported: the groups are no blocks of neighbours".into());
    }
    Ok(())
}

pub(super) fn matmul_n_bits(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (dtype, wide) = (cx.dtype(x), DType::Float32);
    let own = blocks(cx, node)?;
    let sum = own.product(cx, x)?;
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

//! Types that only arguments and casts have: integers of 4 bits, floats of 8 bits.
//!
//! Before: `W[i, k] as float32` with `W: int4[n, m]`.
//! After: `((W[i, k // 2] as int32) << (28 - 4*(k % 2)) >> 28) as float32` with bytes `W`.
//! Before: `Y[i: n, j: m] = x as int4`.
//! After: `Y[i: n, j: m//2]`, where element `2*j` is in the low half of a byte, `2*j + 1` in the
//! high one.
//!
//! So schedules, passes and back ends know bytes only. A value of 8 bits is its bits, as `uint8`;
//! one of 4 bits is an `int8` or `uint8`, and so are the elements of stages that are no outputs.
//! Elaboration allows nothing but reads, choices and casts of such values. Conversions are integer
//! operations, whose results are the same on every target.

use super::{Body, Graph, Input, Stage};
use crate::bug;
use crate::ir::argument::{argument_buffer, byte_extents};
use crate::ir::fp8;
use crate::ir::visit::{Memo, map_children, rewrite_exprs, substitute};
use crate::ir::{BinOp, Buffer, Const, DType, Expr, ExprKind, Var};
use rustc_hash::FxHashMap;

/// Replaces the quantized types of a checked graph.
pub fn expand_quantized(graph: &mut Graph) {
    let mut expander = Expander::new(graph);
    for input in &mut graph.inputs {
        if let Input::Tensor { buffer, .. } = input {
            *buffer = expander.renamed(buffer);
        }
    }
    for buffer in &mut graph.outputs {
        *buffer = expander.renamed(buffer);
    }
    for stage in &mut graph.stages {
        expander.stage(stage);
    }
    for assertion in &mut graph.asserts {
        assertion.cond = expander.visit(&assertion.cond);
        expander.move_spans(&mut assertion.load_spans);
    }
    let checks = std::mem::take(&mut graph.checks);
    let checks =
        checks.into_iter().map(|check| rewrite_exprs(check, &mut |expr| expander.visit(expr)));
    graph.checks = checks.collect();
}

/// Returns the type of a value: its bits for floats of 8 bits, a byte for integers of 4 bits.
fn value_type(dtype: DType) -> DType {
    match dtype {
        DType::Int4 => DType::Int8,
        DType::Uint4 | DType::Float8E4M3 | DType::Float8E5M2 => DType::Uint8,
        _ => dtype,
    }
}

struct Expander {
    /// The new buffers of quantized types.
    buffers: FxHashMap<Buffer, Buffer>,
    done: Memo<Expr>,
    /// The new node of each load.
    loads: FxHashMap<usize, usize>,
}

impl Expander {
    fn new(graph: &Graph) -> Expander {
        let mut buffers = FxHashMap::default();
        let inputs = graph.inputs.iter().filter_map(|input| match input {
            Input::Tensor { buffer, .. } => Some(buffer),
            Input::Scalar { .. } => None,
        });
        for buffer in inputs.chain(&graph.outputs).filter(|buffer| buffer.dtype.is_quantized()) {
            buffers.insert(buffer.clone(), argument(buffer));
        }
        for stage in &graph.stages {
            if let Some(update) = stage.update.as_ref().filter(|u| u.after.dtype.is_quantized()) {
                buffers.insert(update.after.clone(), argument(&update.after));
            }
            let previous = stage.recurrence.iter().flat_map(|recurrence| &recurrence.previous);
            for buffer in stage.buffers.iter().chain(previous) {
                if buffer.dtype.is_quantized() && !buffers.contains_key(buffer) {
                    let (dtype, shape) = (value_type(buffer.dtype), buffer.shape.clone());
                    let (strides, how) = (buffer.strides.clone(), buffer.buffering);
                    let new =
                        Buffer::with_layout(&buffer.name, dtype, shape, buffer.scope, strides, how);
                    buffers.insert(buffer.clone(), new);
                }
            }
        }
        Expander { buffers, done: Memo::default(), loads: FxHashMap::default() }
    }

    fn renamed(&self, buffer: &Buffer) -> Buffer {
        self.buffers.get(buffer).unwrap_or(buffer).clone()
    }

    /// Gives the places of loads to the new loads.
    fn move_spans(&self, spans: &mut [(usize, crate::diag::Span)]) {
        for (id, _) in spans {
            *id = *self.loads.get(id).unwrap_or(id);
        }
    }

    fn stage(&mut self, stage: &mut Stage) {
        let is_packed = |buffer: &Buffer| stage.output && buffer.dtype.bits() < 8;
        match &mut stage.body {
            Body::Map(values) if stage.buffers.iter().any(is_packed) => {
                let [value] = &values[..] else { bug!("a tuple of quantized values") };
                let low = self.nibble(value);
                stage.body = Body::Map(vec![pack(stage, &low)]);
                let extents = byte_extents(&stage.buffers[0].shape);
                for (axis, extent) in stage.axes.iter_mut().zip(extents) {
                    axis.extent = extent;
                }
            }
            _ if stage.buffers.iter().any(is_packed) => bug!("a reduction of quantized values"),
            body => body.map_exprs(&mut |expr| self.visit(expr)),
        }
        self.move_spans(&mut stage.load_spans);
        let renamed = |buffer: &mut Buffer| *buffer = self.renamed(buffer);
        stage.buffers.iter_mut().for_each(renamed);
        if let Some(recurrence) = &mut stage.recurrence {
            recurrence.previous.iter_mut().for_each(renamed);
        }
        if let Some(update) = &mut stage.update {
            [&mut update.before, &mut update.after].into_iter().for_each(renamed);
        }
    }

    /// Rewrites an expression; a node that several expressions share is rewritten once.
    fn visit(&mut self, expr: &Expr) -> Expr {
        if let Some(done) = self.done.get(expr) {
            return done.clone();
        }
        let result = self.rewrite(expr);
        self.done.insert(expr, result.clone());
        result
    }

    fn rewrite(&mut self, expr: &Expr) -> Expr {
        let dtype = expr.ty.dtype;
        match &expr.kind {
            ExprKind::Const(value) if dtype.is_quantized() => match value {
                Const::Int(value) => Expr::int(value_type(dtype), *value),
                Const::Float(value) => {
                    Expr::int(DType::Uint8, i128::from(fp8::bits(*value, dtype)))
                }
            },
            ExprKind::Cast(from) if from.ty.dtype.is_quantized() || dtype.is_quantized() => {
                self.cast(from, dtype)
            }
            ExprKind::Load { buffer, indices, .. } if self.buffers.contains_key(buffer) => {
                let value = match self.packed(buffer) {
                    true => Expr::cast(value_type(dtype), self.unpacked(expr, buffer, indices)),
                    false => self.load(expr, buffer, indices).0,
                };
                Expr::cast(value_type(dtype), value)
            }
            _ if dtype.is_quantized() => self.choice(expr, &mut |this, value| this.visit(value)),
            _ => map_children(expr, &mut |child| self.visit(child)),
        }
    }

    /// Rewrites a choice between quantized values, which become `branch` of them.
    fn choice(&mut self, expr: &Expr, branch: &mut dyn FnMut(&mut Self, &Expr) -> Expr) -> Expr {
        match &expr.kind {
            ExprKind::Select(c, a, b) => {
                Expr::select(self.visit(c), branch(self, a), branch(self, b))
            }
            ExprKind::IfThenElse(c, a, b) => {
                Expr::if_then_else(self.visit(c), branch(self, a), branch(self, b))
            }
            _ => bug!("an operation on {}", expr.ty),
        }
    }

    /// Whether two elements of a buffer share a byte: it is an argument of 4-bit elements.
    fn packed(&self, buffer: &Buffer) -> bool {
        self.buffers[buffer].declared.is_some() && buffer.dtype.bits() < 8
    }

    /// Returns the load of the byte of an element, and the number of the element in it.
    fn load(&mut self, expr: &Expr, buffer: &Buffer, indices: &[Expr]) -> (Expr, Expr) {
        let mut indices: Vec<Expr> = indices.iter().map(|index| self.visit(index)).collect();
        let mut place = Expr::index(0);
        if let (true, Some(last)) = (self.packed(buffer), indices.last_mut()) {
            place = Expr::binary(BinOp::FloorMod, last.clone(), Expr::index(2));
            *last = Expr::binary(BinOp::FloorDiv, last.clone(), Expr::index(2));
        }
        let load = Expr::load(&self.buffers[buffer], indices);
        self.loads.insert(expr.id(), load.id());
        (load, place)
    }

    /// Returns an element of 4 bits as an `int32`.
    fn unpacked(&mut self, expr: &Expr, buffer: &Buffer, indices: &[Expr]) -> Expr {
        let (byte, place) = self.load(expr, buffer, indices);
        let byte = Expr::cast(DType::Int32, byte);
        let place = Expr::cast(DType::Int32, place);
        let bits = Expr::mul(place, int(4));
        match buffer.dtype {
            DType::Int4 => {
                let high = Expr::binary(BinOp::Shl, byte, Expr::sub(int(28), bits));
                Expr::binary(BinOp::Shr, high, int(28))
            }
            _ => Expr::binary(BinOp::BitAnd, Expr::binary(BinOp::Shr, byte, bits), int(15)),
        }
    }

    /// Returns the value of an element of 4 bits in the lower half of a byte. The upper half has
    /// any bits.
    fn nibble(&mut self, expr: &Expr) -> Expr {
        match &expr.kind {
            ExprKind::Cast(from) if from.ty.dtype.is_int() && !from.ty.dtype.is_quantized() => {
                Expr::cast(DType::Uint8, self.visit(from))
            }
            ExprKind::Select(..) | ExprKind::IfThenElse(..) => {
                self.choice(expr, &mut |this, value| this.nibble(value))
            }
            _ => Expr::cast(DType::Uint8, self.visit(expr)),
        }
    }

    /// Returns `from as dtype`, one of which is quantized.
    fn cast(&mut self, from: &Expr, dtype: DType) -> Expr {
        let value = match (&from.kind, from.ty.dtype) {
            (ExprKind::Const(Const::Float(value)), from) if from.is_quantized() => {
                Expr::float(DType::Float32, *value)
            }
            (_, source @ (DType::Float8E4M3 | DType::Float8E5M2)) => {
                decode(&self.visit(from), source)
            }
            (ExprKind::Load { buffer, indices, .. }, DType::Int4 | DType::Uint4)
                if self.packed(buffer) =>
            {
                self.unpacked(from, buffer, indices)
            }
            _ => self.visit(from),
        };
        match dtype {
            DType::Float8E4M3 | DType::Float8E5M2 => encode(&value, dtype),
            DType::Int4 | DType::Uint4 => to_four_bits(&value, dtype),
            _ => Expr::cast(dtype, value),
        }
    }
}

/// Returns the bytes of an argument.
fn argument(buffer: &Buffer) -> Buffer {
    let (dtype, shape) = (buffer.dtype, buffer.shape.clone());
    argument_buffer(&buffer.name, dtype, shape, buffer.strides.clone())
}

/// Returns the byte of two elements of a stage, whose last axis counts bytes then.
fn pack(stage: &Stage, nibble: &Expr) -> Expr {
    let low = |nibble: Expr| Expr::binary(BinOp::BitAnd, nibble, byte(15));
    let Some(axis) = stage.axes.last() else { return low(nibble.clone()) };
    let at = |place: i64| {
        let twice = Expr::mul(Expr::var(&axis.var), Expr::index(2));
        if place == 0 { twice } else { Expr::add(twice, Expr::index(place)) }
    };
    let of =
        |place: i64| substitute(nibble, &mut |var: &Var| (*var == axis.var).then(|| at(place)));
    let mut high = Expr::binary(BinOp::Shl, of(1), byte(4));
    let is_even = axis.extent.as_int().is_some_and(|extent| extent % 2 == 0);
    // Rows of tensors have an even number of elements.
    if stage.axes.len() == 1 && !is_even {
        high = Expr::if_then_else(Expr::lt(at(1), axis.extent.clone()), high, byte(0));
    }
    Expr::binary(BinOp::BitOr, low(of(0)), high)
}

fn byte(value: i128) -> Expr {
    Expr::int(DType::Uint8, value)
}

fn int(value: i128) -> Expr {
    Expr::int(DType::Int32, value)
}

/// Returns `value as int4`: integers drop bits, floats truncate and saturate.
fn to_four_bits(value: &Expr, dtype: DType) -> Expr {
    let to = value_type(dtype);
    let (least, largest) = dtype.int_range();
    if let Some(known) = value.as_int() {
        return Expr::int(to, dtype.wrap(known));
    }
    let (least, largest) = (Expr::int(to, least), Expr::int(to, largest));
    let source = value.ty.dtype;
    let narrow = Expr::cast(to, value.clone());
    match dtype {
        _ if source == DType::Bool => narrow,
        _ if source.is_float() => {
            let above = Expr::binary(BinOp::Max, narrow, least);
            Expr::binary(BinOp::Min, above, largest)
        }
        DType::Int4 => {
            let four = Expr::int(to, 4);
            let high = Expr::binary(BinOp::Shl, narrow, four.clone());
            Expr::binary(BinOp::Shr, high, four)
        }
        _ => Expr::binary(BinOp::BitAnd, narrow, largest),
    }
}

/// A format of 8 bits beside one of 32 or 64 bits.
struct Formats {
    /// The integer type of the wide format.
    int: DType,
    /// Bits of the wide fraction that the narrow one lacks.
    shift: i128,
    /// The difference of the biases, at the place of the narrow exponent.
    bias: i128,
    /// The bits of the least number that is normal in the narrow format, wide and narrow.
    normal: (i128, i128),
    /// The bits of the wide infinity.
    infinity: i128,
    /// The exponent of the least number of the narrow format.
    least: i32,
    /// The exponent of the number whose last bit is the least number, and its bits.
    magic: (i32, i128),
}

impl Formats {
    fn new(wide: DType, narrow: DType) -> Formats {
        let (int, fraction, wide_bias, infinity) = match wide {
            DType::Float64 => (DType::Int64, 52, 1023, 0x7ff0_0000_0000_0000),
            _ => (DType::Int32, 23, 127, 0x7f80_0000),
        };
        let (narrow_fraction, narrow_bias) = match narrow {
            DType::Float8E4M3 => (3, 7),
            _ => (2, 15),
        };
        let least = 1 - narrow_bias - narrow_fraction;
        Formats {
            int,
            shift: fraction - narrow_fraction,
            bias: (wide_bias - narrow_bias) << narrow_fraction,
            normal: ((wide_bias - narrow_bias + 1) << fraction, 1 << narrow_fraction),
            infinity,
            least: least as i32,
            magic: ((fraction + least) as i32, (wide_bias + fraction + least) << fraction),
        }
    }
}

/// Returns the value of the float with these bits as a `float32`, which holds all of them.
fn decode(bits: &Expr, dtype: DType) -> Expr {
    if let Some(known) = bits.as_int() {
        return Expr::float(DType::Float32, fp8::value(known as u8, dtype));
    }
    let formats = Formats::new(DType::Float32, dtype);
    let binary = |op, a: &Expr, b| Expr::binary(op, a.clone(), int(b));
    let bits = Expr::cast(DType::Int32, bits.clone());
    let magnitude = binary(BinOp::BitAnd, &bits, 0x7f);
    let sign = binary(BinOp::Shl, &binary(BinOp::BitAnd, &bits, 0x80), 24);
    let moved = binary(BinOp::Shl, &magnitude, formats.shift);
    let normal = binary(BinOp::Add, &moved, formats.bias << formats.shift);
    // Numbers below the normal ones are multiples of the least one.
    let quantum = Expr::float(DType::Float32, 2f64.powi(formats.least));
    let multiple = Expr::mul(Expr::cast(DType::Float32, magnitude.clone()), quantum);
    let small = Expr::bitcast(DType::Int32, multiple);
    let is_small = Expr::lt(magnitude.clone(), int(formats.normal.1));
    let number = Expr::select(is_small, small, normal);
    let value = match dtype {
        DType::Float8E4M3 => Expr::select(Expr::eq(magnitude, int(0x7f)), int(0x7fc0_0000), number),
        // The exponent of infinity and NaN is the largest one in both formats.
        _ => {
            let beyond = binary(BinOp::Add, &number, 112 << 23);
            Expr::select(Expr::le(int(0x7c), magnitude), beyond, number)
        }
    };
    Expr::bitcast(DType::Float32, Expr::binary(BinOp::BitOr, value, sign))
}

/// Returns the bits of `value` as a float of 8 bits, rounded once, to nearest even.
fn encode(value: &Expr, dtype: DType) -> Expr {
    let value = match value.ty.dtype {
        DType::Float32 | DType::Float64 => value.clone(),
        // Far beyond the largest number, and exact in `float32` up to there.
        source @ (DType::Int32 | DType::Int64 | DType::Index | DType::Uint32 | DType::Uint64) => {
            let most = 1 << 20;
            let mut clamped = Expr::binary(BinOp::Min, value.clone(), Expr::int(source, most));
            if source.is_signed() {
                clamped = Expr::binary(BinOp::Max, clamped, Expr::int(source, -most));
            }
            Expr::cast(DType::Float32, Expr::cast(DType::Int32, clamped))
        }
        _ => Expr::cast(DType::Float32, value.clone()),
    };
    if let Some(known) = value.as_float() {
        return Expr::int(DType::Uint8, i128::from(fp8::bits(known, dtype)));
    }
    let wide = value.ty.dtype;
    let formats = Formats::new(wide, dtype);
    let int = |value| Expr::int(formats.int, value);
    let binary = |op, a: &Expr, b| Expr::binary(op, a.clone(), int(b));
    let bits = Expr::bitcast(formats.int, value);
    let top = i128::from(formats.int.bits()) - 8;
    let sign = binary(BinOp::BitAnd, &binary(BinOp::Shr, &bits, top), 0x80);
    let magnitude = binary(BinOp::BitAnd, &bits, formats.int.int_range().1);
    // The sum with a number whose last bit is the least number rounds to multiples of that.
    let magic = Expr::float(wide, 2f64.powi(formats.magic.0));
    let sum = Expr::add(Expr::bitcast(wide, magnitude.clone()), magic);
    let magic = Expr::int(formats.int, formats.magic.1);
    let small = Expr::sub(Expr::bitcast(formats.int, sum), magic);
    // Adds half of the last bit that stays, less one if that is even.
    let finite = binary(BinOp::Min, &magnitude, formats.infinity);
    let last = binary(BinOp::BitAnd, &binary(BinOp::Shr, &finite, formats.shift), 1);
    let half = binary(BinOp::Add, &finite, (1 << (formats.shift - 1)) - 1);
    let rounded = binary(BinOp::Shr, &Expr::add(half, last), formats.shift);
    let normal = binary(BinOp::Sub, &rounded, formats.bias);
    let is_small = Expr::lt(magnitude.clone(), int(formats.normal.0));
    let number = Expr::select(is_small, small, normal);
    let code = match dtype {
        DType::Float8E4M3 => {
            let is_nan = Expr::lt(int(0x7e), number.clone());
            Expr::select(is_nan, int(0x7f), Expr::binary(BinOp::BitOr, number, sign))
        }
        _ => {
            let number = Expr::binary(BinOp::BitOr, binary(BinOp::Min, &number, 0x7c), sign);
            Expr::select(Expr::lt(int(formats.infinity), magnitude), int(0x7e), number)
        }
    };
    Expr::cast(DType::Uint8, code)
}

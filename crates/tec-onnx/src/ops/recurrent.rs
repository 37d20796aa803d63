//! Recurrent layers: `gate_inputs`, and `rnn`, `gru` or `lstm` of the library for each direction.
//! `quantized_gate_inputs` and `quantized_lstm` are those with integer weights.

use super::movement::concat_along;
use super::quant::dynamically_quantized;
use super::slicing::permute;
use crate::context::{Context, axes};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// Which layer.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Rnn,
    Gru { linear_before_reset: bool },
    Lstm,
}

impl Cell {
    fn gates(self) -> i64 {
        match self {
            Cell::Rnn => 1,
            Cell::Gru { .. } => 3,
            Cell::Lstm => 4,
        }
    }

    fn default_activations(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru { .. } => &["Sigmoid", "Tanh"],
            Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// The activations in the numbering of the library.
const ACTIVATIONS: [&str; 3] = ["Sigmoid", "Tanh", "Relu"];

/// Returns the numbers of the activations of all directions.
fn activations(node: &Node, cell: Cell, directions: usize) -> Outcome<Vec<usize>> {
    let given = node.strings("activations");
    let names: Vec<String> = if given.is_empty() {
        cell.default_activations().repeat(directions).into_iter().map(String::from).collect()
    } else {
        given
    };
    if names.len() != cell.default_activations().len() * directions {
        return Err("the number of activations is wrong".into());
    }
    let number = |name: &String| ACTIVATIONS.iter().position(|known| known == name);
    let refused = |name: &String| {
        format!("the activation {} is not supported", crate::error::short(name)).into()
    };
    names.iter().map(|name| number(name).ok_or_else(|| refused(name))).collect()
}

pub(crate) fn rnn(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    layer(cx, node, Cell::Rnn, false)
}

pub(crate) fn gru(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let linear_before_reset = node.flag("linear_before_reset", false);
    layer(cx, node, Cell::Gru { linear_before_reset }, false)
}

pub(crate) fn lstm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    layer(cx, node, Cell::Lstm, false)
}

/// `DynamicQuantizeLSTM` of `com.microsoft`: integer weights, whose matrices are transposed, with
/// scales and zero points of a direction or of each of its columns (operands 8 to 11). The input is
/// quantised as a whole, the hidden states of a batch in each step.
pub(crate) fn dynamic_quantize_lstm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    layer(cx, node, Cell::Lstm, true)
}

/// The operands of a layer, and the extents.
struct Layer<'a> {
    node: &'a Node<'a>,
    cell: Cell,
    dtype: DType,
    /// [steps, batch, inputs].
    x: T,
    /// [directions, gates × units, inputs].
    w: T,
    /// [directions, gates × units, units].
    r: T,
    bias: Option<T>,
    /// The number of steps of each sequence.
    lens: Option<T>,
    batch_first: bool,
    steps: Dim,
    batch: Dim,
    units: Dim,
    /// The input in uint8 with its scale and zero point, if the weights are integers.
    quantized: Option<[T; 3]>,
}

/// The states of one direction.
struct Direction {
    reverse: bool,
    /// The hidden states [steps, batch, units] in the order of the layer's steps; the cells follow
    /// the hidden states along the last axis if `cells`.
    states: T,
    runs: T,
}

impl Layer<'_> {
    /// The state before the first step: operand `at`, or zeros.
    fn initial(&self, cx: &mut Context, at: usize, part: &str, number: i64) -> Outcome<T> {
        let to = vec![self.batch.clone(), self.units.clone()];
        let own = axes(&to);
        // A state of another rank is refused where it is read.
        let batch = self
            .node
            .optional(at)
            .and_then(|all| cx.shape(all).get(usize::from(!self.batch_first)).cloned());
        if let Some(batch) = batch {
            cx.require_equal(&batch, &self.batch)?;
        }
        let body = match self.node.optional(at) {
            None => E::num(0.0, self.dtype),
            Some(all) if self.batch_first => {
                cx.load(all, [own[0].clone(), number.into(), own[1].clone()])
            }
            Some(all) => cx.load(all, [number.into(), own[0].clone(), own[1].clone()]),
        };
        cx.compute(part, self.dtype, to, body)
    }

    /// The position of a step in the input.
    fn place(&self, step: &Dim, reverse: bool) -> Dim {
        if reverse { self.steps.clone() - 1 - step } else { step.clone() }
    }

    /// Whether each sequence runs in each step.
    fn runs(&self, cx: &mut Context, part: &str, reverse: bool) -> Outcome<T> {
        let shape = vec![self.steps.clone(), self.batch.clone()];
        let own = axes(&shape);
        let body = match self.lens {
            None => E::flag(true),
            Some(lens) => {
                let len = cx.load(lens, [own[1].clone()]).cast(DType::Int64);
                E::dim(&self.place(&own[0], reverse), DType::Int64).bin("<", len)
            }
        };
        cx.compute(part, DType::Bool, shape, body)
    }

    /// The part of an operand for one direction, which is packed and stored on its own.
    fn of_direction(&self, cx: &mut Context, part: &str, operand: T, number: i64) -> Outcome<T> {
        let mut shape = cx.shape(operand);
        if shape[0].is_one() {
            return Ok(operand);
        }
        shape[0] = 1.into();
        let mut own = axes(&shape);
        own[0] = number.into();
        let body = cx.load(operand, own);
        let dtype = cx.dtype(operand);
        cx.compute(part, dtype, shape, body)
    }

    /// The scales (float32) or the zero points (int32) of the columns of a weight, of which operand
    /// `at` has one for each direction, or for each column of each.
    fn of_columns(
        &self,
        cx: &mut Context,
        part: &str,
        (at, dtype): (usize, DType),
        number: i64,
    ) -> Outcome<T> {
        let shape = vec![self.units.clone() * self.cell.gates()];
        let own = axes(&shape);
        let body = match self.node.optional(at) {
            None if dtype == DType::Int32 => E::int(0, dtype),
            None => return Err("the scale of the weights is missing".into()),
            Some(all) => match &cx.shape(all)[..] {
                [_] => cx.load(all, [number.into()]),
                [_, columns] => {
                    let columns = columns.clone();
                    cx.require_equal(&columns, &shape[0])?;
                    cx.load(all, [number.into(), own[0].clone()])
                }
                _ => return Err("the shape of the scale is not supported".into()),
            },
        };
        cx.compute(part, dtype, shape, body.cast(dtype))
    }

    /// Runs one direction. `cells` asks for the cells of an LSTM, too.
    fn direction(
        &self,
        cx: &mut Context,
        tag: &str,
        (number, reverse): (i64, bool),
        names: &[usize],
        cells: bool,
    ) -> Outcome<Direction> {
        let (gates, wide) = (self.units.clone() * self.cell.gates(), self.dtype);
        let w = self.of_direction(cx, &format!("{tag}W"), self.w, number)?;
        let r = self.of_direction(cx, &format!("{tag}R"), self.r, number)?;
        let mut args = match self.quantized {
            None => vec![self.x, w],
            Some([x, scale, zero]) => {
                let scales = self.of_columns(cx, &format!("{tag}W_scale"), (8, wide), number)?;
                let zeros =
                    self.of_columns(cx, &format!("{tag}W_zero"), (9, DType::Int32), number)?;
                vec![x, scale, zero, w, scales, zeros]
            }
        };
        let mut keys = Vec::new();
        if reverse {
            keys.push(("reverse", "true".to_string()));
        }
        let linear = self.cell == Cell::Gru { linear_before_reset: true };
        if let Some(bias) = self.bias {
            args.push(self.of_direction(cx, &format!("{tag}B"), bias, number)?);
            keys.push(("bias", "true".to_string()));
            if linear {
                let both = self.units.clone() * 2;
                keys.push(("both", format!("({})", both.text(&|_| String::new()))));
            }
        }
        let shape = vec![self.steps.clone(), self.batch.clone(), gates];
        let op = match self.quantized {
            None => "gate_inputs",
            Some(_) => "rare.quantized_gate_inputs",
        };
        let inputs = cx.call(&format!("{tag}input"), self.dtype, shape, op, args, keys)?;
        let h0 = self.initial(cx, 5, &format!("{tag}h0"), number)?;
        let runs = self.runs(cx, &format!("{tag}runs"), reverse)?;
        let mut args = vec![inputs, r];
        if self.quantized.is_some() {
            args.push(self.of_columns(cx, &format!("{tag}R_scale"), (10, wide), number)?);
            args.push(self.of_columns(cx, &format!("{tag}R_zero"), (11, DType::Int32), number)?);
        }
        args.push(h0);
        let mut keys = Vec::new();
        let letters = ["f", "g", "h"];
        keys.extend(
            letters.into_iter().zip(names).map(|(letter, name)| (letter, name.to_string())),
        );
        let op = match self.cell {
            Cell::Rnn => "rnn",
            Cell::Gru { .. } => "gru",
            Cell::Lstm if self.quantized.is_some() => "rare.quantized_lstm",
            Cell::Lstm => "lstm",
        };
        if self.cell == Cell::Lstm {
            args.push(self.initial(cx, 6, &format!("{tag}c0"), number)?);
        }
        args.push(runs);
        if linear {
            keys.push(("linear", "true".to_string()));
            let shape = vec![self.units.clone()];
            let own = axes(&shape);
            let body = match self.bias {
                None => E::num(0.0, self.dtype),
                Some(bias) => cx.load(bias, [number.into(), self.units.clone() * 5 + &own[0]]),
            };
            args.push(cx.compute(&format!("{tag}bias"), self.dtype, shape, body)?);
        }
        if let Some(peepholes) = self.node.optional(7).filter(|_| self.cell == Cell::Lstm) {
            args.push(self.of_direction(cx, &format!("{tag}P"), peepholes, number)?);
            keys.push(("peepholes", "true".to_string()));
        }
        let width = if cells { self.units.clone() * 2 } else { self.units.clone() };
        if cells {
            keys.push(("cells", "true".to_string()));
        }
        let shape = vec![self.steps.clone(), self.batch.clone(), width];
        let states = cx.call(&format!("{tag}states"), self.dtype, shape, op, args, keys)?;
        Ok(Direction { reverse, states, runs })
    }

    /// The hidden states in the order of the input, [steps, 1, batch, units]; 0 behind the end of a
    /// sequence.
    fn rows(&self, cx: &mut Context, part: &str, direction: &Direction) -> Outcome<T> {
        let shape = vec![self.steps.clone(), 1.into(), self.batch.clone(), self.units.clone()];
        let own = axes(&shape);
        let step = self.place(&own[0], direction.reverse);
        let mut body = cx.load(direction.states, [step.clone(), own[2].clone(), own[3].clone()]);
        if self.lens.is_some() {
            let runs = cx.load(direction.runs, [step, own[2].clone()]);
            body = runs.choose(body, E::num(0.0, self.dtype));
        }
        cx.compute(part, self.dtype, shape, body)
    }

    /// The states after the last step, [1, batch, units], from column `first` on.
    fn last(&self, cx: &mut Context, part: &str, states: T, first: &Dim) -> Outcome<T> {
        let shape = vec![1.into(), self.batch.clone(), self.units.clone()];
        let own = axes(&shape);
        let column = first.clone() + &own[2];
        let body = cx.load(states, [self.steps.clone() - 1, own[1].clone(), column]);
        cx.compute(part, self.dtype, shape, body)
    }
}

fn layer(cx: &mut Context, node: &Node, cell: Cell, integers: bool) -> Outcome<Vec<T>> {
    let (x, w, r) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let dtype = cx.dtype(x);
    if dtype.is_half() {
        return Err("16-bit floats are not supported".into());
    }
    if node.has("clip") || node.flag("input_forget", false) {
        return Err("`clip` and `input_forget` are not supported".into());
    }
    if cx.rank(x) != 3 || cx.rank(w) != 3 || cx.rank(r) != 3 {
        return Err("the operands must have three dimensions".into());
    }
    let batch_first = node.flag("layout", false);
    let x = if batch_first { permute(cx, "by_time", x, &[1, 0, 2])? } else { x };
    let shape = cx.shape(x);
    // The weights of a layer with integers are transposed.
    let (rows, columns) = if integers { (2, 1) } else { (1, 2) };
    let units = cx.shape(r)[columns].clone();
    let reverse: &[bool] = match node.text("direction", "forward") {
        "forward" => &[false],
        "reverse" => &[true],
        _ => &[false, true],
    };
    let directions = reverse.len() as i64;
    for (weights, read) in [(w, &shape[2]), (r, &units)] {
        let own = cx.shape(weights);
        cx.require_equal(&own[0], &directions.into())?;
        cx.require_equal(&own[rows], &(units.clone() * cell.gates()))?;
        cx.require_equal(&own[columns], read)?;
        if integers && !matches!(cx.dtype(weights), DType::Int8 | DType::Uint8) {
            return Err("the weights must be int8 or uint8".into());
        }
    }
    cx.require_elements(&shape[0]);
    let names = activations(node, cell, reverse.len())?;
    let quantized = if integers { Some(dynamically_quantized(cx, "x", x)?) } else { None };
    let layer = Layer {
        node,
        cell,
        dtype,
        x,
        w,
        r,
        bias: node.optional(3),
        lens: node.optional(4),
        batch_first,
        steps: shape[0].clone(),
        batch: shape[1].clone(),
        units: units.clone(),
        quantized,
    };
    let cells = cell == Cell::Lstm && node.has_output(2);
    let (mut rows, mut last_h, mut last_c) = (Vec::new(), Vec::new(), Vec::new());
    for (number, reverse) in reverse.iter().enumerate() {
        let tag = if directions == 1 { String::new() } else { format!("d{number}_") };
        let count = cell.default_activations().len();
        let names = &names[number * count..][..count];
        let one = layer.direction(cx, &tag, (number as i64, *reverse), names, cells)?;
        rows.push(layer.rows(cx, &format!("{tag}rows"), &one)?);
        let first = Dim::zero();
        last_h.push(layer.last(cx, &format!("{tag}last_h"), one.states, &first)?);
        if cells {
            last_c.push(layer.last(cx, &format!("{tag}last_c"), one.states, &units)?);
        }
    }
    let mut outputs = vec![concat_along(cx, "y", &rows, 1)?, concat_along(cx, "y_h", &last_h, 0)?];
    if cells {
        outputs.push(concat_along(cx, "y_c", &last_c, 0)?);
    }
    if batch_first {
        outputs[0] = permute(cx, "y_by_batch", outputs[0], &[2, 0, 1, 3])?;
        for (at, last) in outputs.iter_mut().enumerate().skip(1) {
            *last = permute(cx, &format!("last{at}"), *last, &[1, 0, 2])?;
        }
    }
    Ok(outputs)
}

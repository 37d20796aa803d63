//! Recurrent layers of few steps, which are written out.

use super::movement::{concat_along, reshape_to};
use super::slicing::permute;
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The largest number of steps that are written out.
const MAX_STEPS: i64 = 4;

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

/// Names of activations as functions of the language.
fn activations(node: &Node, cell: Cell, directions: usize) -> Outcome<Vec<String>> {
    let given = node.strings("activations");
    let names: Vec<String> = if given.is_empty() {
        cell.default_activations().repeat(directions).into_iter().map(String::from).collect()
    } else {
        given
    };
    if names.len() != cell.default_activations().len() * directions {
        return Err("the number of activations is wrong".into());
    }
    if let Some(name) = names.iter().find(|n| !["Sigmoid", "Tanh", "Relu"].contains(&&n[..])) {
        return Err(format!("the activation {} is not supported", crate::error::short(name)).into());
    }
    Ok(names)
}

fn activate(name: &str, x: E, dtype: DType) -> E {
    match name {
        "Sigmoid" => E::call("sigmoid", [x]),
        "Tanh" => E::call("tanh", [x]),
        _ => E::call("max", [x, E::num(0.0, dtype)]),
    }
}

/// The operands of one direction.
struct Direction<'a> {
    cell: Cell,
    number: i64,
    hidden: Dim,
    batch: Dim,
    dtype: DType,
    /// Products of the input with the weights and all biases of it: [time, batch, gate × hidden].
    projected: T,
    recurrence: T,
    bias: Option<T>,
    peephole: Option<T>,
    names: &'a [String],
}

impl Direction<'_> {
    /// The sum over the hidden state for a gate, without the recurrent bias of the layer.
    fn recurrent(&self, cx: &Context, state: T, gate: i64, own: &[Dim]) -> E {
        let k = reduce_axis(0, &self.hidden);
        let row = self.row(gate, own);
        let x = cx.load(state, [own[0].clone(), k.clone()]);
        x.bin("*", cx.load(self.recurrence, [self.number.into(), row, k]))
    }

    /// The row of a gate in weights and biases.
    fn row(&self, gate: i64, own: &[Dim]) -> Dim {
        self.hidden.clone() * gate + &own[1]
    }

    fn gate_sum(
        &self,
        cx: &mut Context,
        part: &str,
        state: T,
        step: i64,
        gate: i64,
        with_recurrent_bias: bool,
    ) -> Outcome<T> {
        let shape = vec![self.batch.clone(), self.hidden.clone()];
        let own = axes(&shape);
        let term = self.recurrent(cx, state, gate, &own);
        let extents = vec![self.hidden.clone()];
        let product =
            cx.fold(&format!("{part}_product"), "sum", self.dtype, shape.clone(), extents, term)?;
        let mut body = cx.load(self.projected, [step.into(), own[0].clone(), self.row(gate, &own)]);
        body = body.bin("+", cx.load(product, own.clone()));
        if let Some(bias) = self.bias.filter(|_| with_recurrent_bias) {
            let row = self.hidden.clone() * (self.cell.gates() + gate) + &own[1];
            body = body.bin("+", cx.load(bias, [self.number.into(), row]));
        }
        cx.compute(part, self.dtype, shape, body)
    }

    /// A value of the state at the axes.
    fn pointwise(
        &self,
        cx: &mut Context,
        part: &str,
        inputs: &[T],
        body: impl FnOnce(Vec<E>) -> E,
    ) -> Outcome<T> {
        cx.elementwise(part, self.dtype, inputs, body)
    }

    fn peephole(&self, cx: &mut Context, part: &str, at: i64) -> Outcome<Option<T>> {
        let Some(all) = self.peephole else { return Ok(None) };
        let shape = vec![1.into(), self.hidden.clone()];
        let own = axes(&shape);
        let place = self.hidden.clone() * at + &own[1];
        let body = cx.load(all, [self.number.into(), place]);
        cx.compute(&format!("{part}_peephole"), self.dtype, shape, body).map(Some)
    }

    /// One step: the new hidden state and, for LSTM, the new cell state.
    fn step(
        &self,
        cx: &mut Context,
        tag: &str,
        step: i64,
        h: T,
        c: Option<T>,
    ) -> Outcome<(T, Option<T>)> {
        let dtype = self.dtype;
        let part = |name: &str| format!("{tag}_{name}");
        let act = |e: E, at: usize| activate(&self.names[at], e, dtype);
        match (self.cell, c) {
            (Cell::Rnn, _) => {
                let sum = self.gate_sum(cx, &part("sum"), h, step, 0, true)?;
                let h = self.pointwise(cx, &part("h"), &[sum], |mut e| act(e.remove(0), 0))?;
                Ok((h, None))
            }
            (Cell::Gru { linear_before_reset }, _) => {
                let z = self.gate_sum(cx, &part("z"), h, step, 0, true)?;
                let r = self.gate_sum(cx, &part("r"), h, step, 1, true)?;
                let r = self.pointwise(cx, &part("reset"), &[r], |mut e| act(e.remove(0), 0))?;
                let candidate = if linear_before_reset {
                    self.linear_candidate(cx, tag, step, h, r)?
                } else {
                    let reset = self.pointwise(cx, &part("old"), &[r, h], |mut e| {
                        let h = e.remove(1);
                        e.remove(0).bin("*", h)
                    })?;
                    self.gate_sum(cx, &part("candidate"), reset, step, 2, true)?
                };
                let h = self.pointwise(cx, &part("h"), &[z, candidate, h], |mut e| {
                    let (h, candidate) = (e.remove(2), act(e.remove(1), 1));
                    let z = act(e.remove(0), 0);
                    let rest = E::num(1.0, dtype).bin("-", z.clone());
                    rest.bin("*", candidate).bin("+", z.bin("*", h))
                })?;
                Ok((h, None))
            }
            (Cell::Lstm, Some(c)) => {
                let mut gates = Vec::new();
                for (gate, name) in ["i", "o", "f", "g"].into_iter().enumerate() {
                    gates.push(self.gate_sum(cx, &part(name), h, step, gate as i64, true)?);
                }
                let pi = self.peephole(cx, &part("i"), 0)?;
                let po = self.peephole(cx, &part("o"), 1)?;
                let pf = self.peephole(cx, &part("f"), 2)?;
                let mut inputs = vec![gates[0], gates[2], gates[3], c];
                inputs.extend(pi.iter().chain(&pf));
                let with = |gate: E, peephole: Option<E>, c: &E| match peephole {
                    Some(peephole) => gate.bin("+", peephole.bin("*", c.clone())),
                    None => gate,
                };
                let c = self.pointwise(cx, &part("c"), &inputs, |mut e| {
                    let pf = (e.len() > 5).then(|| e.remove(5));
                    let pi = (e.len() > 4).then(|| e.remove(4));
                    let c = e.remove(3);
                    let (g, f) = (act(e.remove(2), 1), act(with(e.remove(1), pf, &c), 0));
                    let i = act(with(e.remove(0), pi, &c), 0);
                    f.bin("*", c).bin("+", i.bin("*", g))
                })?;
                let mut inputs = vec![gates[1], c];
                inputs.extend(po);
                let h = self.pointwise(cx, &part("h"), &inputs, |mut e| {
                    let po = (e.len() > 2).then(|| e.remove(2));
                    let c = e.remove(1);
                    act(with(e.remove(0), po, &c), 0).bin("*", act(c, 2))
                })?;
                Ok((h, Some(c)))
            }
            _ => Err("the cell state is missing".into()),
        }
    }

    /// The candidate of a GRU whose reset follows the product.
    fn linear_candidate(&self, cx: &mut Context, tag: &str, step: i64, h: T, r: T) -> Outcome<T> {
        let shape = vec![self.batch.clone(), self.hidden.clone()];
        let own = axes(&shape);
        let term = self.recurrent(cx, h, 2, &own);
        let extents = vec![self.hidden.clone()];
        let part = format!("{tag}_candidate_product");
        let product = cx.fold(&part, "sum", self.dtype, shape.clone(), extents, term)?;
        let mut inner = cx.load(product, own.clone());
        if let Some(bias) = self.bias {
            let row = self.hidden.clone() * 5 + &own[1];
            inner = inner.bin("+", cx.load(bias, [self.number.into(), row]));
        }
        let x = cx.load(self.projected, [step.into(), own[0].clone(), self.row(2, &own)]);
        let body = x.bin("+", cx.load(r, own).bin("*", inner));
        cx.compute(&format!("{tag}_candidate"), self.dtype, shape, body)
    }
}

pub(crate) fn rnn(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    layer(cx, node, Cell::Rnn)
}

pub(crate) fn gru(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    layer(cx, node, Cell::Gru { linear_before_reset: node.flag("linear_before_reset", false) })
}

pub(crate) fn lstm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    layer(cx, node, Cell::Lstm)
}

fn layer(cx: &mut Context, node: &Node, cell: Cell) -> Outcome<Vec<T>> {
    let (x, w, r) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (bias, lens) = (node.optional(3), node.optional(4));
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
    let steps = match shape[0].as_const() {
        Some(steps) if (1..=MAX_STEPS).contains(&steps) => steps,
        _ => return Err("recurrences of more than 4 steps are not supported".into()),
    };
    let (batch, inputs) = (shape[1].clone(), shape[2].clone());
    let hidden = cx.shape(r)[2].clone();
    let reverse: &[bool] = match node.text("direction", "forward") {
        "forward" => &[false],
        "reverse" => &[true],
        _ => &[false, true],
    };
    let names = activations(node, cell, reverse.len())?;
    let count = reverse.len() as i64;
    let state = |cx: &mut Context, at: usize, part: &str, number: i64| -> Outcome<T> {
        let to = vec![batch.clone(), hidden.clone()];
        let own = axes(&to);
        let body = match node.optional(at) {
            None => E::num(0.0, dtype),
            Some(all) if batch_first => {
                cx.load(all, [own[0].clone(), number.into(), own[1].clone()])
            }
            Some(all) => cx.load(all, [number.into(), own[0].clone(), own[1].clone()]),
        };
        cx.compute(part, dtype, to, body)
    };
    let (mut rows, mut last_h, mut last_c) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..count {
        let tag = if count == 1 { String::new() } else { format!("d{number}_") };
        // The products with the inputs of all steps.
        let wide = vec![steps.into(), batch.clone(), hidden.clone() * cell.gates()];
        let own = axes(&wide);
        let k = reduce_axis(0, &inputs);
        let term = cx.load(x, [own[0].clone(), own[1].clone(), k.clone()]);
        let term = term.bin("*", cx.load(w, [number.into(), own[2].clone(), k]));
        let part = format!("{tag}input_product");
        let mut projected =
            cx.fold(&part, "sum", dtype, wide.clone(), vec![inputs.clone()], term)?;
        if let Some(bias) = bias {
            let body = cx.load(projected, own.clone());
            let body = body.bin("+", cx.load(bias, [number.into(), own[2].clone()]));
            projected = cx.compute(&format!("{tag}input"), dtype, wide, body)?;
        }
        let own_names = cell.default_activations().len();
        let first = number as usize * own_names;
        let direction = Direction {
            cell,
            number,
            hidden: hidden.clone(),
            batch: batch.clone(),
            dtype,
            projected,
            recurrence: r,
            bias,
            peephole: node.optional(7).filter(|_| cell == Cell::Lstm),
            names: &names[first..first + own_names],
        };
        let mut h = state(cx, 5, &format!("{tag}h0"), number)?;
        let mut c = match cell {
            Cell::Lstm => Some(state(cx, 6, &format!("{tag}c0"), number)?),
            _ => None,
        };
        let mut results: Vec<Option<T>> = vec![None; steps as usize];
        for at in 0..steps {
            let step = if reverse[number as usize] { steps - 1 - at } else { at };
            let name = format!("{tag}step{step}");
            let (mut new_h, mut new_c) = direction.step(cx, &name, step, h, c)?;
            let mut result = new_h;
            if let Some(lens) = lens {
                let to = vec![batch.clone(), hidden.clone()];
                let own = axes(&to);
                let len_type = cx.dtype(lens);
                let runs = E::int(step, len_type).bin("<", cx.load(lens, [own[0].clone()]));
                let keep = |cx: &mut Context, part: &str, new: T, old: E| {
                    let body = runs.clone().choose(cx.load(new, own.clone()), old);
                    cx.compute(&format!("{name}_{part}"), dtype, to.clone(), body)
                };
                result = keep(cx, "y", new_h, E::num(0.0, dtype))?;
                let old = cx.load(h, own.clone());
                new_h = keep(cx, "kept_h", new_h, old)?;
                if let (Some(new), Some(old)) = (new_c, c) {
                    let old = cx.load(old, own.clone());
                    new_c = Some(keep(cx, "kept_c", new, old)?);
                }
            }
            results[step as usize] = Some(result);
            (h, c) = (new_h, new_c);
        }
        let to = vec![1.into(), 1.into(), batch.clone(), hidden.clone()];
        let mut own_rows = Vec::new();
        for row in results.into_iter().flatten() {
            own_rows.push(reshape_to(cx, &format!("{tag}row"), row, to.clone())?);
        }
        rows.push(concat_along(cx, &format!("{tag}rows"), &own_rows, 0)?);
        let to = vec![1.into(), batch.clone(), hidden.clone()];
        last_h.push(reshape_to(cx, &format!("{tag}last_h"), h, to.clone())?);
        if let Some(c) = c {
            last_c.push(reshape_to(cx, &format!("{tag}last_c"), c, to)?);
        }
    }
    let mut outputs = vec![concat_along(cx, "y", &rows, 1)?, concat_along(cx, "y_h", &last_h, 0)?];
    if cell == Cell::Lstm {
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

//! Loops of few iterations, which are written out.

use crate::context::axis_of;
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::error::Error;
use crate::expr::E;
use crate::graph::T;
use crate::import::Importer;
use crate::node::{Node, Outcome, Refusal};
use crate::ops::{self, Special};

/// The largest number of iterations of a loop that is written out.
const MAX_ITERATIONS: i64 = 32;

impl<'a> Importer<'a> {
    /// Imports the body of a loop of few iterations as often as it runs.
    pub(crate) fn unrolled_loop(&mut self, node: &Node<'a>) -> Result<Outcome<Vec<T>>, Error> {
        let Some(body) = node.attribute("body").and_then(|body| body.g.as_ref()) else {
            return Ok(Err("the body is missing".into()));
        };
        let states = node.inputs.len().saturating_sub(2);
        // Results of all iterations say how many there are.
        let length = (states..node.outputs.len()).find_map(|at| self.context.declared(at));
        let length = length.and_then(|shape| shape.first().and_then(Dim::as_const));
        let trip = match self.trip_count(node, length) {
            Ok(trip) => trip,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut condition = node.optional(1);
        if let (Some(own), Some(1..)) = (condition, length) {
            match self.loop_must_run(own) {
                Ok(false) => {}
                Ok(true) => condition = None,
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        let mut state: Vec<T> = Vec::new();
        for at in 2..node.inputs.len() {
            match node.input(at) {
                Ok(value) => state.push(value),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        let scans = node.outputs.len().saturating_sub(state.len());
        let mut collected: Vec<Vec<T>> = vec![Vec::new(); scans];
        let mut iteration = 0;
        loop {
            if let Some(condition) = condition {
                match self.context.graph.scalar(condition) {
                    Some(Val::Bool(true)) => {}
                    Some(Val::Bool(false)) => break,
                    _ => {
                        let role = "the condition of the loop".to_string();
                        return Ok(Err(Refusal::NotConstant(role, condition)));
                    }
                }
            }
            if iteration >= trip {
                break;
            }
            if iteration >= MAX_ITERATIONS {
                return Ok(Err(format!(
                    "loops of more than {MAX_ITERATIONS} iterations are not supported"
                )
                .into()));
            }
            let hint = self.context.hint.clone();
            let count = self.context.known(
                "iteration",
                DType::Int64,
                vec![],
                vec![Val::Int(iteration.into())],
            );
            let go = self.context.known("condition", DType::Bool, vec![], vec![Val::Bool(true)]);
            let (count, go) = match (count, go) {
                (Ok(count), Ok(go)) => (count, go),
                _ => return Ok(Err("the loop has no constants".into())),
            };
            let arguments: Vec<T> = [count, go].into_iter().chain(state.iter().copied()).collect();
            let results = match self.body(body, &arguments)? {
                Ok(results) => results,
                Err(refusal) => return Ok(Err(refusal)),
            };
            self.context.hint = hint;
            if results.len() != 1 + state.len() + scans {
                return Ok(Err("the body has a wrong number of results".into()));
            }
            condition = Some(results[0]);
            state = results[1..=state.len()].to_vec();
            for (list, value) in collected.iter_mut().zip(&results[1 + state.len()..]) {
                list.push(*value);
            }
            iteration += 1;
        }
        let mut values = state;
        for list in collected {
            match ops::stack(&mut self.context, &list) {
                Ok(value) => values.push(value),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        Ok(Ok(values))
    }

    /// The largest number of iterations of a loop. A number of run time must be that of the
    /// declared results.
    fn trip_count(&mut self, node: &Node<'a>, length: Option<i64>) -> Outcome<i64> {
        let Some(trip) = node.optional(0) else { return Ok(i64::MAX) };
        match (self.context.ints(trip, "the trip count"), length) {
            (Ok(trip), _) if trip.len() == 1 => Ok(trip[0]),
            (Ok(_), _) => Err("the trip count must have one element".into()),
            (Err(refusal), None) => Err(refusal),
            (Err(_), Some(length)) => {
                let elements = self.context.elements(trip, "the trip count")?;
                let [count] = &elements.list[..] else {
                    return Err("the trip count must have one element".into());
                };
                let text = format!("the number of iterations must be {length}");
                let same = count.clone().bin("==", E::int(length, DType::Int64));
                self.context.assert(same, &text)?;
                Ok(length)
            }
        }
    }

    /// Whether the condition of the first iteration is known at run time only; the entry of the
    /// network then refuses a false one.
    fn loop_must_run(&mut self, condition: T) -> Outcome<bool> {
        if self.context.graph.scalar(condition).is_some() {
            return Ok(false);
        }
        let elements = self.context.elements(condition, "the condition of the loop")?;
        let [go] = &elements.list[..] else {
            return Err("the condition must have one element".into());
        };
        self.context.assert(go.clone(), "the condition of the first iteration must be true")?;
        Ok(true)
    }

    /// Imports the body of a map for each element of a sequence.
    pub(crate) fn sequence_map(&mut self, node: &Node<'a>) -> Result<Outcome<Vec<T>>, Error> {
        let Some(body) = node.attribute("body").and_then(|body| body.g.as_ref()) else {
            return Ok(Err("the body is missing".into()));
        };
        let inputs = (0..node.inputs.len()).map(|at| node.input(at)).collect();
        let inputs: Vec<T> = match inputs {
            Ok(inputs) => inputs,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let count = match inputs.first().map(|first| self.context.sequence(*first)) {
            Some(Ok(list)) => list.len(),
            Some(Err(refusal)) => return Ok(Err(refusal)),
            None => return Ok(Err("input 0 is missing".into())),
        };
        let mut lists = vec![Vec::new(); node.outputs.len()];
        for at in 0..count {
            let mut arguments = Vec::new();
            for input in &inputs {
                match self.context.sequence(*input) {
                    Err(_) => arguments.push(*input),
                    Ok(list) => match list.get(at) {
                        Some(element) => arguments.push(*element),
                        None => return Ok(Err("the sequences have different lengths".into())),
                    },
                }
            }
            let results = match self.body(body, &arguments)? {
                Ok(results) => results,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if results.len() < lists.len() {
                return Ok(Err("the body has a wrong number of results".into()));
            }
            for (list, result) in lists.iter_mut().zip(results) {
                list.push(result);
            }
        }
        let lists = lists.into_iter().map(|list| self.context.special(Special::Sequence(list)));
        Ok(lists.collect())
    }

    /// Imports an attention whose scores and probabilities graphs may change.
    pub(crate) fn flex_attention(&mut self, node: &Node<'a>) -> Result<Outcome<Vec<T>>, Error> {
        let hint = self.context.hint.clone();
        let mut value = ops::flex_scores(&mut self.context, node);
        for name in ["score_mod", "prob_mod"] {
            if let (Ok(own), Some(graph)) = (&value, node.attribute(name)) {
                let Some(graph) = &graph.g else {
                    return Ok(Err(format!("the graph `{name}` is missing").into()));
                };
                let (before, dtype) = (self.context.shape(*own), self.context.dtype(*own));
                let results = self.body(graph, &[*own])?;
                self.context.hint = hint.clone();
                value = results.and_then(|results| match results[..] {
                    [result] if self.context.shape(result) == before => {
                        self.context.cast(name, result, dtype)
                    }
                    _ => Err(format!("the graph `{name}` must keep the shape").into()),
                });
            }
            if name == "score_mod" {
                value = value.and_then(|own| ops::flex_softmax(&mut self.context, own));
            }
        }
        let result = value.and_then(|own| ops::flex_result(&mut self.context, node, own));
        Ok(result.map(|result| vec![result]))
    }

    /// Imports the body of a scan of few iterations as often as it runs.
    pub(crate) fn unrolled_scan(&mut self, node: &Node<'a>) -> Result<Outcome<Vec<T>>, Error> {
        let Some(body) = node.attribute("body").and_then(|body| body.g.as_ref()) else {
            return Ok(Err("the body is missing".into()));
        };
        let setup = match self.scan_setup(node) {
            Ok(setup) => setup,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut state = setup.state;
        let scans = node.outputs.len().saturating_sub(state.len());
        let mut collected: Vec<Vec<T>> = vec![Vec::new(); scans];
        let hint = self.context.hint.clone();
        for iteration in 0..setup.length {
            let mut arguments = state.clone();
            for (at, (sequence, axis, reverse)) in setup.sequences.iter().enumerate() {
                self.context.hint = format!("{hint}_{at}_{iteration}");
                let place = if *reverse { setup.length - 1 - iteration } else { iteration };
                match ops::element(&mut self.context, *sequence, *axis, place) {
                    Ok(element) => arguments.push(element),
                    Err(refusal) => return Ok(Err(refusal)),
                }
            }
            let results = match self.body(body, &arguments)? {
                Ok(results) => results,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if results.len() != state.len() + scans {
                return Ok(Err("the body has a wrong number of results".into()));
            }
            let count = state.len();
            state = results[..count].to_vec();
            for (list, value) in collected.iter_mut().zip(&results[count..]) {
                list.push(*value);
            }
        }
        let directions = node.ints("scan_output_directions").unwrap_or(&[]);
        let axes = node.ints("scan_output_axes").unwrap_or(&[]);
        let mut values = state;
        for (at, mut list) in collected.into_iter().enumerate() {
            if directions.get(at) == Some(&1) {
                list.reverse();
            }
            self.context.hint = format!("{hint}_{at}");
            let axis = axes.get(at).copied().unwrap_or(0);
            let stacked = ops::stack(&mut self.context, &list);
            match stacked.and_then(|own| ops::first_axis_to(&mut self.context, own, axis)) {
                Ok(value) => values.push(value),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        Ok(Ok(values))
    }

    fn scan_setup(&self, node: &Node<'a>) -> Outcome<Scan> {
        if node.opset < 9 {
            return Err("batched scans are not supported".into());
        }
        let sequences = usize::try_from(node.int("num_scan_inputs", 0)).unwrap_or(usize::MAX);
        let states = node.inputs.len().checked_sub(sequences);
        let states = states.ok_or("the number of scanned inputs is wrong")?;
        let mut setup = Scan { state: Vec::new(), sequences: Vec::new(), length: 0 };
        for at in 0..states {
            setup.state.push(node.input(at)?);
        }
        let axes = node.ints("scan_input_axes").unwrap_or(&[]);
        let directions = node.ints("scan_input_directions").unwrap_or(&[]);
        for at in 0..sequences {
            let sequence = node.input(states + at)?;
            let rank = self.context.rank(sequence);
            let axis = axis_of(axes.get(at).copied().unwrap_or(0), rank)?;
            let length = self.context.graph[sequence].shape[axis].clone();
            setup.length = match length.as_const() {
                Some(length) if (1..=MAX_ITERATIONS).contains(&length) => length,
                _ => {
                    let most = MAX_ITERATIONS;
                    return Err(format!("scans of more than {most} steps are not supported").into());
                }
            };
            setup.sequences.push((sequence, axis, directions.get(at) == Some(&1)));
        }
        let lengths = setup.sequences.iter();
        let same = lengths.clone().all(|(sequence, axis, _)| {
            self.context.graph[*sequence].shape[*axis] == Dim::from(setup.length)
        });
        if !same || setup.sequences.is_empty() {
            return Err("the scanned inputs differ in length".into());
        }
        Ok(setup)
    }
}

/// The operands of a scan.
struct Scan {
    state: Vec<T>,
    /// Tensor, axis, and whether it is scanned from its end.
    sequences: Vec<(T, usize, bool)>,
    length: i64,
}

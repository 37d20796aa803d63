//! Branches of constant conditions, and loops of few iterations, which are written out.

use crate::context::{axes, axis_of};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::error::Error;
use crate::graph::T;
use crate::import::Importer;
use crate::node::{Node, Outcome, Refusal};
use crate::ops;

/// The largest number of iterations of a loop that is written out.
const MAX_ITERATIONS: i64 = 32;

impl<'a> Importer<'a> {
    /// Imports the branch of a constant condition.
    pub(crate) fn branch(&mut self, node: &Node<'a>) -> Result<Outcome<Vec<T>>, Error> {
        let condition = match node.input(0) {
            Ok(condition) => condition,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let taken = match self.context.graph.scalar(condition) {
            Some(Val::Bool(taken)) => *taken,
            _ => return self.both_branches(node, condition),
        };
        let body = node.attribute(if taken { "then_branch" } else { "else_branch" });
        let Some(body) = body.and_then(|body| body.g.as_ref()) else {
            return Ok(Err("the branch is missing".into()));
        };
        self.body(body, &[])
    }

    /// Imports both branches of a condition of run time, whose results must have equal shapes, and
    /// chooses by element.
    fn both_branches(&mut self, node: &Node<'a>, condition: T) -> Result<Outcome<Vec<T>>, Error> {
        let refuse = || Refusal::NotConstant("the condition".to_string(), condition);
        let mut results = Vec::new();
        for name in ["then_branch", "else_branch"] {
            let Some(body) = node.attribute(name).and_then(|body| body.g.as_ref()) else {
                return Ok(Err("the branch is missing".into()));
            };
            // A check of one branch would be one of each call.
            let checks = (self.context.asserts.len(), self.context.assumptions.len());
            let hint = self.context.hint.clone();
            match self.body(body, &[])? {
                Ok(values) => results.push(values),
                Err(refusal) => return Ok(Err(refusal)),
            }
            self.context.hint = hint;
            if checks != (self.context.asserts.len(), self.context.assumptions.len()) {
                return Ok(Err(refuse()));
            }
        }
        let cx = &mut self.context;
        let len = cx.graph[condition].len();
        let mut chosen = Vec::new();
        for (at, (yes, no)) in results[0].iter().zip(&results[1]).enumerate() {
            let (shape, dtype) = (cx.shape(*yes), cx.dtype(*yes));
            if shape != cx.shape(*no) || dtype != cx.dtype(*no) || len != Some(1) {
                return Ok(Err(refuse()));
            }
            let index = axes(&shape);
            let flag = cx.load(condition, vec![Dim::zero(); cx.rank(condition)]);
            let body = flag.choose(cx.load(*yes, index.clone()), cx.load(*no, index));
            let part = if at == 0 { String::new() } else { at.to_string() };
            match cx.compute(&part, dtype, shape, body) {
                Ok(value) => chosen.push(value),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        Ok(Ok(chosen))
    }

    /// Imports the body of a loop of few iterations as often as it runs.
    pub(crate) fn unrolled_loop(&mut self, node: &Node<'a>) -> Result<Outcome<Vec<T>>, Error> {
        let Some(body) = node.attribute("body").and_then(|body| body.g.as_ref()) else {
            return Ok(Err("the body is missing".into()));
        };
        let trip =
            match node.optional(0).map(|trip| (trip, self.context.ints(trip, "the trip count"))) {
                None => i64::MAX,
                Some((_, Ok(trip))) if trip.len() == 1 => trip[0],
                Some((_, Ok(_))) => return Ok(Err("the trip count must have one element".into())),
                Some((_, Err(refusal))) => return Ok(Err(refusal)),
            };
        let mut condition = node.optional(1);
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

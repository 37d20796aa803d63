//! Elements of a result by the interpreter, without the rest of it: each output is computed at a
//! thousand places, and of what it reads as much as one place needs.
//!
//! The plain schedule with every stage attached to the innermost loop of the output says what an
//! element needs. Its loops over the output become one loop over the places, which read their
//! coordinates from tables. What the interpreter then runs are the same stages in the same order.

use super::reference::SAMPLES;
use super::worker::Bench;
use crate::driver::{self, Trace};
use crate::ir::cost::count_work;
use crate::ir::interp::{Tensor, Trap, Value};
use crate::ir::visit::{map_stmts, walk_expr};
use crate::ir::{Buffer, DType, Expr, ExprKind, Kernel, Param, Stmt, Var};
use crate::lower::{build_loops, expand_math};
use crate::schedule::{Attach, AxisKind, Schedule, StageId, infer_bounds};
use crate::te::{Graph, Stage};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;

/// Operations that the interpreter is given at most, which takes it about a minute.
const MOST: f64 = 2e9;

/// Why elements were not compared, or not found equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// They cannot be computed alone, or not soon.
    Unsampled(String),
    /// They differ, or the interpreter stops: a defect.
    Wrong(String),
}

impl From<String> for Trouble {
    fn from(text: String) -> Trouble {
        Trouble::Wrong(text)
    }
}

/// Compares elements of the outputs with the interpreter's: how many.
pub fn check(bench: &Bench, outputs: &[Tensor]) -> Result<usize, Trouble> {
    let mut count = 0;
    for stage in bench.graph.stages.iter().filter(|stage| stage.output) {
        count += check_stage(bench, stage, outputs)?;
    }
    Ok(count)
}

fn check_stage(bench: &Bench, stage: &Stage, outputs: &[Tensor]) -> Result<usize, Trouble> {
    let names = outputs_of(&bench.plain);
    let place = |buffer: &Buffer| names.iter().position(|name| *name == buffer.name);
    let place = |buffer: &Buffer| place(buffer).expect("it is an output");
    let shape = &outputs[place(&stage.buffers[0])].shape;
    if shape.contains(&0) {
        return Ok(0);
    }
    let points = choose(shape, bench.setup.seed);
    let kernel = at_points(bench, stage, &points).map_err(Trouble::Unsampled)?;
    let work = count_work(&kernel).flops.as_int().map_or(f64::INFINITY, |flops| flops as f64);
    if work > MOST {
        let text = format!("{SAMPLES} elements take the interpreter {work:.0e} operations");
        return Err(Trouble::Unsampled(text));
    }
    let target = &bench.judge.target;
    let expanded = expand_math::expand_math(kernel, target);
    let kernel = expanded.map_err(|diag| Trouble::Unsampled(diag.to_string()))?;
    let mut values = arguments(bench, &kernel, outputs);
    let result = driver::interpret(&kernel, &mut values, &mut Trace::default());
    match result {
        Ok(Ok(())) => {}
        Ok(Err(Trap::Memory(text))) => return Err(Trouble::Unsampled(text)),
        Ok(Err(Trap::Check(text) | Trap::Bug(text))) => return Err(Trouble::Wrong(text)),
        Err(failure) => return Err(Trouble::Wrong(format!("{failure:?}"))),
    }
    for (param, value) in kernel.params.iter().zip(&values) {
        let (Param::Tensor { buffer, output: true, .. }, Value::Tensor(expected)) = (param, value)
        else {
            continue;
        };
        let compared = compare(&outputs[place(buffer)], expected, &points, &buffer.name);
        compared.map_err(Trouble::Wrong)?;
    }
    Ok(points.len() * stage.buffers.len())
}

/// Places of a tensor, drawn, none left out of a small one; the corners are among them.
fn choose(shape: &[i64], seed: u64) -> Vec<Vec<i64>> {
    let count: i64 = shape.iter().product();
    let split = |mut at: i64| {
        let mut point = vec![0; shape.len()];
        for (coordinate, extent) in point.iter_mut().zip(shape).rev() {
            *coordinate = at % extent;
            at /= extent;
        }
        point
    };
    if count <= SAMPLES as i64 {
        return (0..count).map(split).collect();
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut points = vec![split(0), split(count - 1)];
    let mut seen = FxHashSet::from_iter([0, count - 1]);
    while points.len() < SAMPLES {
        let at = random.random_range(0..count);
        if seen.insert(at) {
            points.push(split(at));
        }
    }
    points
}

/// The kernel that computes the stage at these places only.
fn at_points(bench: &Bench, stage: &Stage, points: &[Vec<i64>]) -> Result<Kernel, String> {
    let graph = restrict(&bench.graph, stage);
    let mut schedule = Schedule::new(graph, &bench.judge.target);
    let last = StageId(schedule.stages.len() - 1);
    let own = schedule.stage(last);
    let mut data = own.leaves.iter().filter(|axis| own.axes[axis.0].kind == AxisKind::Data);
    let innermost = data.next_back().copied();
    if let Some(axis) = innermost {
        let span = stage.span;
        for id in (0..last.0).map(StageId) {
            schedule.stage_mut(id).attach = Attach::At { stage: last, axis, span };
        }
    }
    let placed = infer_bounds(schedule).map_err(|diag| diag.to_string())?;
    let mut kernel = build_loops::build_loops(&placed).map_err(|diag| diag.to_string())?;
    let axes: Vec<Var> =
        placed.schedule.stage(last).te.axes.iter().map(|axis| axis.var.clone()).collect();
    let index = Var::index("place");
    let tables: Vec<Expr> = (0..axes.len())
        .map(|dim| {
            let values = points.iter().map(|point| point[dim] as u64).collect();
            let table = Buffer::constant(format!("places{dim}"), DType::Int64, values);
            Expr::cast(DType::Index, Expr::load(&table, vec![Expr::var(&index)]))
        })
        .collect();
    let places = Places { axes: &axes, tables, index, count: points.len() as i64 };
    let mut replaced = 0;
    kernel.body = places.replace(kernel.body, &mut replaced);
    if replaced != axes.len() {
        crate::bug!("{replaced} loops of {} were found, not {}", stage.name, axes.len());
    }
    Ok(kernel)
}

/// The loop over places that stands for those over an output.
struct Places<'a> {
    axes: &'a [Var],
    /// The coordinate of each axis at the place that `index` counts.
    tables: Vec<Expr>,
    index: Var,
    count: i64,
}

impl Places<'_> {
    fn replace(&self, stmt: Stmt, replaced: &mut usize) -> Stmt {
        let stmt = map_stmts(stmt, &mut |inner| self.replace(inner, replaced));
        let Stmt::For { var, min, extent, kind, body } = stmt else { return stmt };
        let Some(at) = self.axes.iter().position(|axis| *axis == var) else {
            return Stmt::For { var, min, extent, kind, body };
        };
        *replaced += 1;
        let inner = Stmt::Let { var, value: self.tables[at].clone(), body };
        match at {
            0 => Stmt::serial(self.index.clone(), Expr::index(self.count), inner),
            _ => inner,
        }
    }
}

/// The part of a graph that one stage needs, with that stage as its only output.
fn restrict(graph: &Graph, stage: &Stage) -> Graph {
    let at = graph.stages.iter().position(|one| one.buffers == stage.buffers);
    let at = at.expect("it is a stage of the graph");
    let mut needed: FxHashSet<Buffer> = stage.buffers.iter().cloned().collect();
    let mut stages: Vec<Stage> = Vec::new();
    for one in graph.stages[..=at].iter().rev() {
        if !one.buffers.iter().any(|buffer| needed.contains(buffer)) {
            continue;
        }
        one.body.for_each_expr(&mut |expr| {
            walk_expr(expr, &mut |node| {
                if let ExprKind::Load { buffer, .. } = &node.kind {
                    needed.insert(buffer.clone());
                }
            });
        });
        stages.push(Stage { output: one.buffers == stage.buffers, ..one.clone() });
    }
    stages.reverse();
    Graph { stages, outputs: stage.buffers.clone(), ..graph.clone() }
}

fn outputs_of(kernel: &Kernel) -> Vec<&str> {
    let outputs = kernel.params.iter().filter(|p| matches!(p, Param::Tensor { output: true, .. }));
    outputs.map(Param::name).collect()
}

/// The arguments of a kernel that has the same inputs and some of the outputs.
fn arguments(bench: &Bench, kernel: &Kernel, outputs: &[Tensor]) -> Vec<Value> {
    let names = outputs_of(&bench.plain);
    let value = |param: &Param| match param {
        Param::Tensor { buffer, output: true, .. } => {
            let at = names.iter().position(|name| *name == buffer.name).expect("it is an output");
            let data = vec![0; outputs[at].data.len()];
            Value::Tensor(Tensor { data, ..outputs[at].clone() })
        }
        other => {
            let at = bench.plain.params.iter().position(|param| param.name() == other.name());
            bench.values[at.expect("it has the same inputs")].clone()
        }
    };
    kernel.params.iter().map(value).collect()
}

fn compare(
    actual: &Tensor,
    expected: &Tensor,
    points: &[Vec<i64>],
    name: &str,
) -> Result<(), String> {
    let size = actual.dtype.bytes() as usize;
    for point in points {
        let at = point.iter().zip(&actual.shape).fold(0, |at, (x, extent)| at * extent + x);
        let bytes = at as usize * size..(at as usize + 1) * size;
        let (a, b) = (&actual.data[bytes.clone()], &expected.data[bytes]);
        let value = |data: &[u8]| {
            let data = data.to_vec();
            let one = Tensor { dtype: actual.dtype, shape: Vec::new(), data };
            super::super::data::element(&one, 0)
        };
        let (x, y) = (value(a), value(b));
        if a != b && !(x.is_nan() && y.is_nan()) {
            let text = format!("{name}{point:?} is {x:e}, by the interpreter {y:e}");
            return Err(text + ": this is a bug in tec");
        }
    }
    Ok(())
}

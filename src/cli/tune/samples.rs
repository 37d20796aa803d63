//! Compares elements of an output with the interpreter: it computes a thousand elements, and only
//! the parts of other stages that these need.
//!
//! With every stage attached to the innermost loop of the output, bounds inference gives the part
//! of each stage that one element needs. One loop over the sampled elements, which reads their
//! coordinates from tables, replaces the loops over the output. The interpreter then runs the same
//! stages in the same order.

use super::harness::Harness;
use crate::driver::{self, Trace};
use crate::ir::cost::count_work;
use crate::ir::interp::{Tensor, Trap, Value};
use crate::ir::visit::{map_stmts, walk_expr};
use crate::ir::{Buffer, DType, Expr, ExprKind, Kernel, Param, Role, Stmt, Var};
use crate::lower::{build_loops, expand_math};
use crate::schedule::{Attach, AxisKind, Schedule, StageId, infer_bounds};
use crate::te::{Graph, Stage};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;

/// Elements of a stage's outputs that are compared.
const SAMPLES: usize = 1000;
/// The most operations that the interpreter runs, which takes about a minute.
const MAX_OPERATIONS: f64 = 2e9;

/// Why elements were not compared, or are not equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SampleError {
    /// The interpreter cannot compute single elements, or only with too many operations.
    Unavailable(String),
    /// They differ, or the interpreter traps: a bug of `tec`.
    Mismatch(String),
}

impl From<String> for SampleError {
    fn from(text: String) -> SampleError {
        SampleError::Mismatch(text)
    }
}

/// Compares elements of the outputs with the interpreter's, and returns how many.
pub fn check(harness: &Harness, outputs: &[Tensor]) -> Result<usize, SampleError> {
    if harness.builder.graph.stages.iter().any(|stage| stage.update.is_some()) {
        let text = "the kernel updates an argument in place";
        return Err(SampleError::Unavailable(text.to_string()));
    }
    let mut count = 0;
    for stage in harness.builder.graph.stages.iter().filter(|stage| stage.output) {
        count += check_stage(harness, stage, outputs)?;
    }
    Ok(count)
}

fn check_stage(harness: &Harness, stage: &Stage, outputs: &[Tensor]) -> Result<usize, SampleError> {
    let names = outputs_of(&harness.subject.kernel);
    let place = |buffer: &Buffer| names.iter().position(|name| *name == buffer.name);
    let place = |buffer: &Buffer| place(buffer).expect("it is an output");
    let shape = &outputs[place(&stage.buffers[0])].shape;
    if shape.contains(&0) {
        return Ok(0);
    }
    let points = choose(shape, harness.builder.setup.seed);
    let kernel = at_points(harness, stage, &points).map_err(SampleError::Unavailable)?;
    let work = count_work(&kernel).flops.as_int().map_or(f64::INFINITY, |flops| flops as f64);
    if work > MAX_OPERATIONS {
        let text = format!("{SAMPLES} elements take the interpreter {work:.0e} operations");
        return Err(SampleError::Unavailable(text));
    }
    let target = &harness.builder.reference_options.target;
    let expanded = expand_math::expand_math(kernel, target);
    let kernel = expanded.map_err(|diag| SampleError::Unavailable(diag.to_string()))?;
    let mut values = arguments(harness, &kernel, outputs);
    let result = driver::interpret(&kernel, &mut values, &mut Trace::default());
    match result {
        Ok(Ok(())) => {}
        Ok(Err(Trap::Memory(text))) => return Err(SampleError::Unavailable(text)),
        Ok(Err(Trap::Check(text) | Trap::Bug(text))) => return Err(SampleError::Mismatch(text)),
        Err(failure) => return Err(SampleError::Mismatch(format!("{failure:?}"))),
    }
    for (param, value) in kernel.params.iter().zip(&values) {
        let (
            Param::Tensor { buffer, role: Role::Output | Role::Inout, .. },
            Value::Tensor(expected),
        ) = (param, value)
        else {
            continue;
        };
        let compared = compare(&outputs[place(buffer)], expected, &points, &buffer.name);
        compared.map_err(SampleError::Mismatch)?;
    }
    Ok(points.len() * stage.buffers.len())
}

/// Draws elements of a tensor, the first and the last among them; all of a small tensor.
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

/// Returns the kernel that computes the stage at these points only.
fn at_points(harness: &Harness, stage: &Stage, points: &[Vec<i64>]) -> Result<Kernel, String> {
    let graph = restrict(&harness.builder.graph, stage);
    let mut schedule = Schedule::new(graph, &harness.builder.reference_options.target);
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
    let bounded = infer_bounds(schedule).map_err(|diag| diag.to_string())?;
    let mut kernel = build_loops::build_loops(&bounded).map_err(|diag| diag.to_string())?;
    let axes: Vec<Var> =
        bounded.schedule.stage(last).te.axes.iter().map(|axis| axis.var.clone()).collect();
    let index = Var::index("place");
    let tables: Vec<Expr> = (0..axes.len())
        .map(|dim| {
            let values = points.iter().map(|point| point[dim] as u64).collect();
            let table = Buffer::constant(format!("places{dim}"), DType::Int64, values);
            Expr::cast(DType::Index, Expr::load(&table, vec![Expr::var(&index)]))
        })
        .collect();
    let points_loop = Points { axes: &axes, tables, index, count: points.len() as i64 };
    let mut replaced = 0;
    kernel.body = points_loop.replace(kernel.body, &mut replaced);
    if replaced != axes.len() {
        crate::bug!("{replaced} loops of {} were found, not {}", stage.name, axes.len());
    }
    Ok(kernel)
}

/// The loop over points that replaces the loops over an output.
struct Points<'a> {
    axes: &'a [Var],
    /// The coordinate of each axis at point number `index`.
    tables: Vec<Expr>,
    index: Var,
    count: i64,
}

impl Points<'_> {
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

/// Returns the part of a graph that one stage needs, with that stage as its only output.
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
    let outputs = kernel.params.iter().filter(|p| p.is_written());
    outputs.map(Param::name).collect()
}

/// Returns the arguments of a kernel that has the same inputs and some of the outputs.
fn arguments(harness: &Harness, kernel: &Kernel, outputs: &[Tensor]) -> Vec<Value> {
    let names = outputs_of(&harness.subject.kernel);
    let value = |param: &Param| match param {
        Param::Tensor { buffer, role: Role::Output | Role::Inout, .. } => {
            let at = names.iter().position(|name| *name == buffer.name).expect("it is an output");
            let data = vec![0; outputs[at].data.len()];
            Value::Tensor(Tensor { data, ..outputs[at].clone() })
        }
        other => {
            let at =
                harness.subject.kernel.params.iter().position(|param| param.name() == other.name());
            harness.subject.values[at.expect("it has the same inputs")].clone()
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
            let text = format!("{name}{point:?} is {x:e}, but the interpreter computes {y:e}");
            return Err(text + ": this is a bug in tec");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{MEMORY, Reference};
    use super::*;
    use crate::target::Target;

    fn setup(file: &str, kernel: &str, define: &[&str]) -> super::super::protocol::Setup {
        super::super::protocol::Setup {
            file: format!("samples/{file}"),
            kernel: kernel.to_string(),
            network: None,
            params: None,
            freeze: Vec::new(),
            no_winograd: false,
            target: Target::native().to_string(),
            cpu: None,
            define: define.iter().map(|text| text.to_string()).collect(),
            fp_contract: "fast".to_string(),
            opt: 3,
            input: Vec::new(),
            var: Vec::new(),
            scalar: Vec::new(),
            seed: 0,
            threads: 1,
            memory: MEMORY,
            elsewhere: false,
        }
    }

    #[test]
    fn finds_one_wrong_bit_of_a_reference_output() {
        driver::with_stack(|| {
            let setups = [
                setup("matmul_add.te", "matmul_add", &["N=64"]),
                setup("softmax.te", "softmax", &["m=40", "n=50"]),
            ];
            for setup in setups {
                let mut harness = Harness::open(setup).expect("a kernel");
                let bounded = harness.schedule_reference(Reference::Auto).expect("a schedule");
                let mut loaded = harness.load_reference(&bounded).expect("code");
                let mut outputs = harness.run_reference(&mut loaded).expect("a call");
                assert_eq!(check(&harness, &outputs), Ok(SAMPLES));
                outputs[0].data[0] ^= 1;
                let Err(SampleError::Mismatch(text)) = check(&harness, &outputs) else {
                    panic!("the wrong bit is not found");
                };
                assert!(text.ends_with("this is a bug in tec"), "{text}");
            }
        });
    }
}

//! Counts the elements that the loops of a kernel store, to find kernels that do far more work than
//! their arguments have elements.
//!
//! `sum(A[k], axis=k, where=k <= i)` for each of a million `i` stores 5·10^11 partial sums. Nothing
//! is wrong with it, but the call runs for minutes, and the user should learn that from the
//! compiler.

use super::{BinOp, Buffer, Expr, ExprKind, Kernel, Param, Stmt, Var};
use rustc_hash::FxHashMap;

/// The value that every run-time integer is assumed to have.
const ASSUMED_EXTENT: f64 = 1_048_576.0;
/// A kernel is reported from this number of stored elements on: scalar loops take about 5 s.
const MIN_STORES: f64 = 1e10;
/// A kernel is reported if it stores more elements than this factor times the power 3/2 of the
/// number of elements of its arguments. Matrix products store less than their power 3/2.
const MIN_FACTOR: f64 = 64.0;

/// Whether loops with these extents store so many elements that a kernel may be reported; extents
/// that depend on run-time integers are `None`.
pub fn are_many(extents: impl Iterator<Item = Option<i128>>) -> bool {
    let extents = extents.map(|extent| extent.map_or(ASSUMED_EXTENT, |extent| extent as f64));
    extents.product::<f64>() >= MIN_STORES
}

/// Returns a note if the loops of a buffer store far more elements than the arguments have. Loops
/// whose extents depend on data count as one iteration, so that they never cause a note. Reads the
/// default loops of a kernel, before `promote_accumulators` keeps partial results in registers.
pub fn note_superlinear_work(kernel: &Kernel) -> Option<String> {
    let mut values = FxHashMap::default();
    for param in &kernel.params {
        if let Param::Runtime { var, .. } = param {
            values.insert(var.clone(), ASSUMED_EXTENT);
        }
    }
    let mut elements = 0.0;
    for param in &kernel.params {
        if let Param::Tensor { buffer, .. } = param {
            let extents = buffer.shape.iter().map(|extent| evaluate(extent, &values));
            elements += extents.product::<Option<f64>>()?;
        }
    }
    let assumed = !values.is_empty();
    let mut stores = Stores { values, runs: 1.0, buffers: Vec::new() };
    stores.count(&kernel.body);
    let (buffer, stored) = stores.buffers.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if *stored < MIN_STORES || *stored <= MIN_FACTOR * elements.powf(1.5) {
        return None;
    }
    let condition = match assumed {
        true => format!(" if every run-time integer is {ASSUMED_EXTENT}"),
        false => String::new(),
    };
    Some(format!(
        "`{}` runs {stored:.1e} iterations in the loops of `{}` for {elements:.1e} elements of \
         inputs and outputs{condition}: each output visits all terms (docs/LIMITS.md has faster \
         forms)",
        kernel.name, buffer.name
    ))
}

/// The walk over the statements.
struct Stores {
    /// Run-time integers, and loop variables in the middle of their ranges.
    values: FxHashMap<Var, f64>,
    /// How often the current statement runs.
    runs: f64,
    /// The number of stored elements of each buffer.
    buffers: Vec<(Buffer, f64)>,
}

impl Stores {
    fn count(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For { var, min, extent, body, .. } => {
                let outer = self.runs;
                let count = evaluate(extent, &self.values).map(|count| count.max(0.0));
                self.runs *= count.unwrap_or(1.0);
                if let (Some(min), Some(count)) = (evaluate(min, &self.values), count) {
                    self.values.insert(var.clone(), min + (count / 2.0).floor());
                }
                self.count(body);
                self.values.remove(var);
                self.runs = outer;
            }
            Stmt::Let { var, value, body } => {
                if let Some(value) = evaluate(value, &self.values) {
                    self.values.insert(var.clone(), value);
                }
                self.count(body);
                self.values.remove(var);
            }
            Stmt::Store { buffer, value, .. } => {
                let stored = self.runs * f64::from(value.ty.lanes);
                match self.buffers.iter_mut().find(|(known, _)| known == buffer) {
                    Some((_, sum)) => *sum += stored,
                    None => self.buffers.push((buffer.clone(), stored)),
                }
            }
            Stmt::Block(stmts) => stmts.iter().for_each(|stmt| self.count(stmt)),
            Stmt::If { then, otherwise, .. } => {
                self.count(then);
                otherwise.iter().for_each(|stmt| self.count(stmt));
            }
            Stmt::Allocate { body, .. }
            | Stmt::Produce { body, .. }
            | Stmt::Tensorize { body, .. }
            | Stmt::SimdKernel { body }
            | Stmt::CopyGroup { body } => self.count(body),
            Stmt::Sort(_)
            | Stmt::Prefetch { .. }
            | Stmt::Assert { .. }
            | Stmt::Barrier
            | Stmt::AwaitCopies { .. } => {}
        }
    }
}

/// Returns the value of an integer expression; `None` if it reads memory or an unknown variable.
fn evaluate(expr: &Expr, values: &FxHashMap<Var, f64>) -> Option<f64> {
    if let Some(value) = expr.as_int() {
        return Some(value as f64);
    }
    match &expr.kind {
        ExprKind::Var(var) => values.get(var).copied(),
        ExprKind::Cast(a) => evaluate(a, values),
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (evaluate(a, values)?, evaluate(b, values)?);
            Some(match op {
                BinOp::Add => a + b,
                BinOp::Sub => a - b,
                BinOp::Mul => a * b,
                BinOp::Min => a.min(b),
                BinOp::Max => a.max(b),
                BinOp::FloorDiv if b != 0.0 => (a / b).floor(),
                BinOp::FloorMod if b != 0.0 => a - b * (a / b).floor(),
                _ => return None,
            })
        }
        _ => None,
    }
}

//! `tec run --verify`: compares results with those of the reference interpreter.

use super::cpu;
use super::data::{self, outputs};
use super::report::{Error, Reporter};
use super::session::Source;
use super::tune::verify::bound;
use crate::diag::Diag;
use crate::driver::{self, Failure, Trace};
use crate::ir::arith::Facts;
use crate::ir::interp::{Tensor, Trap, Value};
use crate::ir::print::{Style, print_kernel};
use crate::ir::simplify::simplify_expr;
use crate::ir::tile::TileProduct;
use crate::ir::visit::{substitute, walk_stmt};
use crate::ir::warp::WarpProduct;
use crate::ir::{Expr, Kernel, Param, Stmt, Var};

/// Bound on the error of a sum on tensor cores or in tile registers, relative to the sum of its
/// absolute terms: 2^-13. Tensor cores add terms in an unspecified order and truncate them, tile
/// registers in an order of their own.
const WARP_BOUND: f64 = 1.0 / 8192.0;

/// Bound on the error of an element under `--fast-math`, relative to the largest magnitude of its
/// output: 2^-10. The least precise instruction has errors of 2^-11.
const FAST_BOUND: f64 = 1.0 / 1024.0;

/// Absolute bound on the error of an element that `vdpbf16ps` computes: 2^-96. The instruction
/// flushes subnormal numbers, which are below 2^-126, to 0, and is exact otherwise.
const DOT2_BF16_BOUND: f64 = 1.262177448353619e-29;

/// The intrinsic of `vdpbf16ps`.
const DOT2_BF16: &str = "dot2_bf16";

/// The allowed difference from the interpreter that uses the same order of reduction terms.
enum Allowed {
    /// None: the bits must be equal.
    Nothing,
    /// `DOT2_BF16_BOUND`.
    Subnormals,
    /// `WARP_BOUND` times the sums of absolute terms, one tensor for each output.
    PartOfTerms(Vec<Tensor>),
    /// `FAST_BOUND` times the largest magnitude.
    PartOfLargest,
}

impl Allowed {
    /// Counts the elements of an output beyond the bound, and describes the bound.
    fn beyond(&self, at: usize, actual: &Tensor, expected: &Tensor) -> Option<(usize, String)> {
        Some(match self {
            Allowed::Nothing => return None,
            Allowed::Subnormals => {
                let far = data::beyond(actual, expected, &data::ones(expected), DOT2_BF16_BOUND);
                (far, "2^-96".to_string())
            }
            Allowed::PartOfTerms(terms) => {
                let far = data::beyond(actual, expected, &terms[at], WARP_BOUND);
                (far, "2^-13 of their absolute terms".to_string())
            }
            Allowed::PartOfLargest => {
                let far = data::beyond_largest(actual, expected, FAST_BOUND);
                (far, "2^-10 of the largest".to_string())
            }
        })
    }
}

/// Whether `body` has a tensorized nest whose intrinsic `fits`.
fn has_intrinsic(body: &Stmt, fits: &dyn Fn(&str) -> bool) -> bool {
    let mut found = false;
    let mut see = |stmt: &Stmt| {
        if let Stmt::Tensorize { name, .. } = stmt {
            found |= fits(name);
        }
    };
    walk_stmt(body, &mut see, &mut |_| {});
    found
}

/// Runs the program in the interpreter on the same inputs, in the source's order of reduction
/// terms. If the schedule changes the order, also runs it in the schedule's order. Returns a line
/// for each comparison, and whether all results are right.
pub fn verify(
    source: &Source,
    kernel: &Kernel,
    actual: &[Value],
    inputs: Vec<Value>,
    reporter: &Reporter,
) -> Result<(String, bool), Error> {
    let failed = |failure| Error::Compile(source.program.sources.clone(), failure);
    let options = &source.options;
    let trace = &mut Trace::default();
    let progress = reporter.spinner(format!("interpreting {}", kernel.name));
    let interpret = |kernel: &Kernel, mut values: Vec<Value>| -> Result<Vec<Value>, Error> {
        check_memory(kernel, &values)?;
        let result = driver::interpret(kernel, &mut values, &mut Trace::default());
        match result.map_err(failed)? {
            Ok(()) => Ok(values),
            Err(Trap::Memory(what)) => Err(no_memory(kernel, &what).into()),
            Err(Trap::Check(message) | Trap::Bug(message)) => {
                let ir = print_kernel(kernel, Style::Full);
                let pass = "interpret".to_string();
                Err(failed(Failure::Bug { pass, message, ir }))
            }
        }
    };
    let Some(bounded) = source.bounded_schedule(&kernel.name) else {
        let network = source.network(&kernel.name).expect("a kernel or a network");
        let (whole, values) = network.whole_kernel(options, &inputs).map_err(failed)?;
        let of_source = interpret(&whole, values)?;
        let of_source = outputs(&whole, &of_source).map(|(_, tensor)| tensor.clone()).collect();
        let of_schedule = network.interpret_calls(options, &inputs, &mut |kernel, values| {
            progress.set_message(format!("interpreting {}", kernel.name));
            interpret(kernel, values).map_err(Stop::Error)
        });
        let of_schedule = match of_schedule {
            Ok(values) => outputs(kernel, &values).map(|(_, tensor)| tensor.clone()).collect(),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Failure(failure)) => return Err(failed(failure)),
        };
        progress.finish_and_clear();
        let found = (of_source, Some(of_schedule));
        return Ok(compare_all(kernel, actual, found, &Allowed::Nothing, bound(&network.graph)));
    };
    let graph = &bounded.schedule.graph;
    let default_loops = driver::lower_unoptimized(graph, &options.target).map_err(failed)?;
    let in_order = match kernel.reassociated {
        true => Some(driver::lower_in_order(bounded, options, trace).map_err(failed)?),
        false => None,
    };
    let body = &in_order.as_ref().unwrap_or(&default_loops).body;
    let adds_floats = |name: &str| {
        WarpProduct::of(name).is_some_and(|product| product.sum.is_float())
            || TileProduct::of(name).is_some_and(|product| product.sum.is_float())
    };
    let tensors = |values: &[Value]| -> Vec<Tensor> {
        outputs(kernel, values).map(|(_, tensor)| tensor.clone()).collect()
    };
    let allowed = if options.target.gpu.is_some_and(|gpu| gpu.fast_math) {
        Allowed::PartOfLargest
    } else if has_intrinsic(body, &adds_floats) {
        Allowed::PartOfTerms(tensors(&interpret(&default_loops, data::absolute(&inputs))?))
    } else if has_intrinsic(body, &|name| name == DOT2_BF16) {
        Allowed::Subnormals
    } else {
        Allowed::Nothing
    };
    let of_source = tensors(&interpret(&default_loops, inputs.clone())?);
    let of_schedule = match &in_order {
        Some(in_order) => Some(tensors(&interpret(in_order, inputs)?)),
        None => None,
    };
    progress.finish_and_clear();
    Ok(compare_all(kernel, actual, (of_source, of_schedule), &allowed, bound(graph)))
}

/// Why the interpretation of a network stopped.
enum Stop {
    Error(Error),
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}

/// Compares all outputs with those of the interpreter: in the order of the source and, if that is
/// another one, in the order of the schedule.
fn compare_all(
    kernel: &Kernel,
    actual: &[Value],
    (of_source, of_schedule): (Vec<Tensor>, Option<Vec<Tensor>>),
    allowed: &Allowed,
    bound: f64,
) -> (String, bool) {
    let mut all = (String::new(), true);
    for (at, (name, actual)) in outputs(kernel, actual).enumerate() {
        let expected = of_schedule.as_ref().map_or(&of_source[at], |of_schedule| &of_schedule[at]);
        let (line, right) = compare(name, actual, expected, of_schedule.is_some(), (allowed, at));
        all.0.push_str(&line);
        all.1 &= right;
        if of_schedule.is_some() {
            let (line, right) = compare_orders(name, expected, &of_source[at], bound);
            all.0.push_str(&line);
            all.1 &= right;
        }
    }
    all
}

/// Bytes that the interpreter needs for an element: its value and whether it was written.
const ELEMENT_BYTES: u64 = 9;

/// Refuses a kernel for which the interpreter needs more memory than is free: the system would kill
/// the process. The temporaries of the default schedule may be larger than those of the schedule.
fn check_memory(kernel: &Kernel, values: &[Value]) -> Result<(), Error> {
    let value_of = |var: &Var| {
        let at = kernel.params.iter().position(|param| match param {
            Param::Runtime { var: own, .. } => own == var,
            _ => false,
        });
        at.and_then(|at| match values[at] {
            Value::Index(value) => Some(Expr::index(value)),
            _ => None,
        })
    };
    // An extent that depends on a loop is that of a part of a tensor: it counts as 1.
    let extent = |extent: &Expr| {
        let value = simplify_expr(&substitute(extent, &mut |var| value_of(var)), &Facts::new());
        value.as_int().map_or(1, |value| u64::try_from(value).unwrap_or(0))
    };
    let elements = values.iter().map(|value| match value {
        Value::Tensor(tensor) => tensor.data.len() as u64 / tensor.dtype.bytes(),
        _ => 0,
    });
    let (mut needed, mut most) = (elements.sum::<u64>(), (0, String::new()));
    let mut see = |stmt: &Stmt| {
        if let Stmt::Allocate { buffer, .. } = stmt {
            let extents: Vec<u64> = buffer.shape.iter().map(&extent).collect();
            let count = match extents.contains(&0) {
                true => 0,
                false => extents.iter().fold(1, |count: u64, extent| count.saturating_mul(*extent)),
            };
            needed = needed.saturating_add(count);
            if count > most.0 {
                let extents: Vec<String> = extents.iter().map(u64::to_string).collect();
                most = (count, format!("`{}[{}]`", buffer.name, extents.join(", ")));
            }
        }
    };
    walk_stmt(&kernel.body, &mut see, &mut |_| {});
    let bytes = needed.saturating_mul(ELEMENT_BYTES);
    match cpu::available_memory() {
        Some(free) if free < bytes => {
            let with = match most.0 {
                0 => String::new(),
                _ => format!(" with {}", most.1),
            };
            let (bytes, free) = (bytes as f64 / 1e9, free as f64 / 1e9);
            let what = format!("it takes {bytes:.1} GB{with}, and {free:.1} GB of memory are free");
            Err(no_memory(kernel, &what).into())
        }
        _ => Ok(()),
    }
}

/// Returns the error for a kernel that the interpreter has no memory for.
fn no_memory(kernel: &Kernel, what: &str) -> Box<Diag> {
    let text = format!("the interpreter cannot run `{}`: {what}", kernel.name);
    let help = "give smaller sizes, with `-D` or `--var`, or leave `--verify` out";
    Box::new(Diag::global("E0543", text).help(help))
}

/// Compares an output with the interpreter's: a line, and whether it is right.
fn compare(
    name: &str,
    actual: &Tensor,
    expected: &Tensor,
    in_order: bool,
    (allowed, at): (&Allowed, usize),
) -> (String, bool) {
    let difference = data::compare(actual, expected);
    let order = if in_order { ", terms in the schedule's order" } else { "" };
    let (count, absolute) = (difference.elements, difference.absolute);
    if count == 0 {
        return (format!("{name}: bit-identical to the interpreter{order}\n"), true);
    }
    let head = format!("{name}: {count} elements differ from the interpreter{order}");
    match allowed.beyond(at, actual, expected) {
        None => (format!("{head}, by {absolute:e} at most, {} ULP\n", difference.ulp), false),
        Some((beyond, what)) => {
            let line = format!("{head}, by {absolute:e} at most, {beyond} by more than {what}\n");
            (line, beyond == 0)
        }
    }
}

/// Compares an output in the schedule's order of terms with that in the source's order: a line, and
/// whether they are near enough.
fn compare_orders(
    name: &str,
    of_schedule: &Tensor,
    of_source: &Tensor,
    bound: f64,
) -> (String, bool) {
    let difference = data::compare(of_schedule, of_source);
    if difference.elements == 0 {
        return (format!("{name}: the same bits in the source's order\n"), true);
    }
    let data::Difference { elements, absolute, ulp } = difference;
    let beyond = data::beyond_largest(of_schedule, of_source, bound);
    let line = format!(
        "{name}: {elements} elements differ from the source's order, by {absolute:e} at most, \
         {ulp} ULP, {beyond} by more than {bound:e} of the largest\n"
    );
    (line, beyond == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;

    fn tensor(values: &[f32]) -> Tensor {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { dtype: DType::Float32, shape: vec![values.len() as i64], data }
    }

    #[test]
    fn another_order_must_be_within_the_bound() {
        let source = tensor(&[1.0, -8.0, f32::NAN]);
        let near = tensor(&[1.0 + 1e-6, -8.0, f32::NAN]);
        let of = |tensor: &Tensor, bound| compare_orders("Y", tensor, &source, bound);
        assert_eq!(of(&source, 0.0), ("Y: the same bits in the source's order\n".into(), true));
        assert!(of(&near, 1e-6).1, "{}", of(&near, 1e-6).0);
        let (line, right) = of(&near, 1e-8);
        assert!(line.contains("1 elements differ") && line.contains("1 by more than 1e-8"));
        assert!(!right);
        assert!(!of(&tensor(&[1.0, -8.0, 0.0]), 0.125).1);
    }

    #[test]
    fn bits_must_be_equal_except_for_inexact_instructions() {
        let expected = tensor(&[1.0, 0.0]);
        let tiny = tensor(&[1.0, f32::MIN_POSITIVE / 2.0]);
        let of = |actual: &Tensor, allowed: Allowed| {
            compare("Y", actual, &expected, true, (&allowed, 0)).1
        };
        assert!(of(&expected, Allowed::Nothing));
        assert!(!of(&tiny, Allowed::Nothing));
        assert!(of(&tiny, Allowed::Subnormals));
        let next = tensor(&[f32::from_bits(1.0f32.to_bits() + 1), 0.0]);
        assert!(!of(&next, Allowed::Subnormals));
        assert!(of(&next, Allowed::PartOfTerms(vec![expected.clone()])));
        assert!(!of(&tiny, Allowed::PartOfTerms(vec![expected.clone()])));
        assert!(of(&next, Allowed::PartOfLargest));
    }
}

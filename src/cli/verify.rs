//! `tec run --verify`: results beside those of the reference interpreter.

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
use crate::ir::visit::{substitute, walk_stmt};
use crate::ir::warp::WarpProduct;
use crate::ir::{Expr, Kernel, Param, Stmt, Var};

/// How far a sum on tensor cores may be from the interpreter's, as a part of the sum of its
/// absolute terms: 2^-13. A product of matrices adds its terms in an order of its own and cuts
/// them off.
const WARP_BOUND: f64 = 1.0 / 8192.0;

/// How far an element may be off under `--fast-math`, as a part of the largest magnitude among its
/// output's: 2^-10. The coarsest instruction has errors of 2^-11.
const FAST_BOUND: f64 = 1.0 / 1024.0;

/// How far an element may be off where `vdpbf16ps` adds: 2^-96. The instruction takes subnormal
/// numbers, which are below 2^-126, for 0, and is exact otherwise.
const PAIRS_BOUND: f64 = 1.262177448353619e-29;

/// The intrinsic that this instruction computes.
const PAIRS: &str = "dot2_bf16";

/// What a result may differ by from the interpreter in the same order of terms.
enum Allowed {
    /// Nothing: the bits are the same.
    Nothing,
    /// `PAIRS_BOUND`.
    Subnormals,
    /// `WARP_BOUND` of the absolute terms, which these are, one for each output.
    PartOfTerms(Vec<Tensor>),
    /// `FAST_BOUND` of the largest.
    PartOfLargest,
}

impl Allowed {
    /// The elements of an output that are farther off than that, and the bound in words.
    fn beyond(&self, at: usize, actual: &Tensor, expected: &Tensor) -> Option<(usize, String)> {
        Some(match self {
            Allowed::Nothing => return None,
            Allowed::Subnormals => {
                let far = data::beyond(actual, expected, &data::ones(expected), PAIRS_BOUND);
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

/// Whether a nest that is tensorized as an intrinsic of such a name is in it.
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

/// Runs the program in the interpreter on the same inputs: in the order of the source, or, where
/// the schedule changes the order of terms, in its order, and then in the source's, too. A line per
/// comparison, and whether every result is as it has to be.
pub fn verify(
    source: &Source,
    kernel: &Kernel,
    actual: &[Value],
    inputs: Vec<Value>,
    reporter: &Reporter,
) -> Result<(String, bool), Error> {
    let failed = |failure| Error::Compile(source.program.sources.clone(), failure);
    let placed =
        source.placed_as(&kernel.name).expect("every kernel of the manifest was scheduled");
    let (graph, options) = (&placed.schedule.graph, &source.options);
    let trace = &mut Trace::default();
    let naive = driver::lower_naively(graph, &options.target).map_err(failed)?;
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
    let in_order = match kernel.reassociated {
        true => Some(driver::lower_in_order(placed, options, trace).map_err(failed)?),
        false => None,
    };
    let body = &in_order.as_ref().unwrap_or(&naive).body;
    let adds_floats =
        |name: &str| WarpProduct::of(name).is_some_and(|product| product.sum.is_float());
    let tensors = |values: &[Value]| -> Vec<Tensor> {
        outputs(kernel, values).map(|(_, tensor)| tensor.clone()).collect()
    };
    let allowed = if options.target.gpu.is_some_and(|gpu| gpu.fast_math) {
        Allowed::PartOfLargest
    } else if has_intrinsic(body, &adds_floats) {
        Allowed::PartOfTerms(tensors(&interpret(&naive, data::absolute(&inputs))?))
    } else if has_intrinsic(body, &|name| name == PAIRS) {
        Allowed::Subnormals
    } else {
        Allowed::Nothing
    };
    let of_source = tensors(&interpret(&naive, inputs.clone())?);
    let of_schedule = match &in_order {
        Some(in_order) => Some(tensors(&interpret(in_order, inputs)?)),
        None => None,
    };
    progress.finish_and_clear();
    let mut all = (String::new(), true);
    for (at, (name, actual)) in outputs(kernel, actual).enumerate() {
        let expected = of_schedule.as_ref().map_or(&of_source[at], |of_schedule| &of_schedule[at]);
        let (line, right) = compare(name, actual, expected, of_schedule.is_some(), (&allowed, at));
        all.0.push_str(&line);
        all.1 &= right;
        if of_schedule.is_some() {
            let (line, right) = compare_orders(name, expected, &of_source[at], bound(graph));
            all.0.push_str(&line);
            all.1 &= right;
        }
    }
    Ok(all)
}

/// Bytes that the interpreter needs for an element: its value, and whether it was written.
const ELEMENT_BYTES: u64 = 9;

/// Refuses what takes the interpreter more memory than there is: the system might end the process.
/// Its temporaries are those of the plain program, which may be larger than the schedule's.
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
    // What depends on a loop is part of a tensor.
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
    match data::available_memory() {
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

/// `what` is too large for the interpreter.
fn no_memory(kernel: &Kernel, what: &str) -> Box<Diag> {
    let text = format!("the interpreter cannot run `{}`: {what}", kernel.name);
    let help = "give smaller sizes, with `-D` or `--var`, or leave `--verify` out";
    Box::new(Diag::global("E0543", text).help(help))
}

/// A line about an output beside the interpreter's, and whether it is what it has to be.
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

/// A line about an output in the schedule's order of terms beside the source's order, and whether
/// it is near enough.
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
    fn another_order_is_right_within_the_bound_only() {
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
    fn bits_are_to_be_the_same_but_for_what_an_instruction_does() {
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

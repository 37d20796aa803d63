//! The work of a kernel, and its least time on the machine (roofline).

use super::super::machine::{Limit, Machine, Numbers};
use crate::ir::interp::Value;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::{DType, Expr, Kernel, Param, Var, cost};
use crate::module::extent::Extent;
use crate::module::manifest::KernelManifest;
use crate::schedule::{Origin, Schedule};

/// The work of one call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// Arithmetic operations of the source.
    pub flops: f64,
    /// Bytes of all arguments.
    pub bytes: f64,
    /// Bytes of the outputs.
    pub written: f64,
    /// The element type of most arithmetic, if the machine has a peak for it.
    pub numbers: Option<Numbers>,
}

/// The roofline of some work: the larger of the time of its operations at the peak and the time of
/// its bytes from the nearest memory that holds them.
#[derive(Clone, PartialEq, Debug)]
pub struct Roofline {
    /// The peak in 10^9 operations per second, if one is known for the element type.
    pub peak: Option<f64>,
    /// The level that holds the arguments.
    pub level: String,
    /// Its bandwidth in GB/s.
    pub bandwidth: f64,
    /// The least time of a call.
    pub seconds: f64,
    /// The limiting resource.
    pub limit: Limit,
    /// The name of the limiting resource.
    pub limit_name: String,
}

impl Work {
    /// Returns the work of a kernel with these arguments.
    pub fn new(manifest: &KernelManifest, kernel: &Kernel, values: &[Value]) -> Work {
        Work::given(
            evaluate(&manifest.flops, kernel, values),
            evaluate(&manifest.bytes, kernel, values),
            kernel,
            &runtime_values(kernel, values),
        )
    }

    /// Returns the counted work of a kernel's default schedule for these run-time integers.
    pub fn counted(counted: &cost::Work, kernel: &Kernel, vars: &[(Var, i64)]) -> Work {
        Work::given(number(&counted.flops, vars), number(&counted.bytes, vars), kernel, vars)
    }

    fn given(flops: f64, bytes: f64, kernel: &Kernel, vars: &[(Var, i64)]) -> Work {
        let numbers = numbers_of(kernel, vars);
        Work { flops, bytes, written: number(&cost::output_bytes(kernel), vars), numbers }
    }

    /// Returns 10^9 operations per second for a call of `seconds`.
    pub fn gflops(&self, seconds: f64) -> f64 {
        self.flops / seconds / 1e9
    }

    /// Returns GB/s for a call of `seconds`.
    pub fn gbs(&self, seconds: f64) -> f64 {
        self.bytes / seconds / 1e9
    }
}

impl Roofline {
    /// Returns the roofline of some work; none if there is no work that the machine limits.
    pub fn new(machine: &Machine, work: &Work) -> Option<Roofline> {
        let at = machine.level_of(work.bytes);
        // A kernel that writes little is limited by reads.
        let stream =
            if work.written * 10.0 <= work.bytes { Limit::Read(at) } else { Limit::Triad(at) };
        let peak = work.numbers.map(|numbers| (numbers, machine.rate(Limit::Peak(numbers))));
        let bandwidth = machine.rate(stream);
        let moving = machine.seconds_to_move(work.bytes, |level| match stream {
            Limit::Read(_) => machine.levels[level].read,
            _ => machine.levels[level].triad,
        });
        let (seconds, limit) = match peak {
            Some((numbers, peak)) if work.flops / peak / 1e9 > moving => {
                (work.flops / peak / 1e9, Limit::Peak(numbers))
            }
            _ => (moving, stream),
        };
        (seconds > 0.0).then(|| Roofline {
            peak: peak.map(|(_, peak)| peak),
            level: machine.levels[at].name.clone(),
            bandwidth,
            seconds,
            limit,
            limit_name: machine.name_of(limit),
        })
    }

    /// Returns the work in units of the limit: operations, or bytes of the limiting level. Bytes of
    /// nearer levels count as the bytes that take the same time in the limiting level.
    pub fn work_of_limit(&self, work: &Work) -> f64 {
        match self.limit {
            Limit::Peak(_) => work.flops,
            _ => self.seconds * self.bandwidth * 1e9,
        }
    }
}

/// Returns the element type of most arithmetic, by the argument types: 8-bit integers if most
/// inputs are, else the widest floats; none for 16-bit integers and kernels without floats, for
/// which no peak is measured.
fn numbers_of(kernel: &Kernel, vars: &[(Var, i64)]) -> Option<Numbers> {
    let tensors = || {
        kernel.params.iter().filter_map(|param| match param {
            Param::Tensor { buffer, role, .. } => Some((buffer, role.is_written())),
            _ => None,
        })
    };
    let elements = |of: &[DType]| -> f64 {
        let inputs = tensors().filter(|(buffer, output)| !output && of.contains(&buffer.dtype));
        let counts = inputs.map(|(buffer, _)| {
            buffer.shape.iter().map(|extent| number(extent, vars)).product::<f64>()
        });
        counts.sum()
    };
    let floats = [DType::Float16, DType::BFloat16, DType::Float32, DType::Float64];
    let (of_floats, of_bytes) = (elements(&floats), elements(&[DType::Int8, DType::Uint8]));
    let of_halves = elements(&[DType::Int16, DType::Uint16]);
    if of_bytes > of_floats.max(of_halves) {
        return Some(Numbers::Int8);
    }
    let widest = tensors().map(|(buffer, _)| buffer.dtype).filter(|dtype| dtype.is_float());
    match widest.max_by_key(|dtype| dtype.bytes())? {
        _ if of_halves > of_floats => None,
        DType::Float64 => Some(Numbers::Float64),
        _ => Some(Numbers::Float32),
    }
}

/// Evaluates a number of the manifest for these run-time integers; 0 if it depends on others.
fn evaluate(extent: &Extent, kernel: &Kernel, values: &[Value]) -> f64 {
    let vars = runtime_values(kernel, values);
    let var_of = |name: &str| vars.iter().find(|(v, _)| v.name() == name).map(|(v, _)| v.clone());
    extent.to_expr(&var_of).map_or(0.0, |expr| number(&expr, &vars))
}

fn runtime_values(kernel: &Kernel, values: &[Value]) -> Vec<(Var, i64)> {
    let value = |(param, value): (&Param, &Value)| match (param, value) {
        (Param::Runtime { var, .. }, Value::Index(value)) => Some((var.clone(), *value)),
        _ => None,
    };
    kernel.params.iter().zip(values).filter_map(value).collect()
}

/// Evaluates an expression over run-time integers; 0 if it depends on others.
fn number(expr: &Expr, vars: &[(Var, i64)]) -> f64 {
    let expr = substitute(expr, &mut |var| {
        vars.iter().find(|(known, _)| known == var).map(|(_, value)| Expr::index(*value))
    });
    let expr = simplify_expr(&expr, &crate::ir::arith::Facts::new());
    expr.as_int().map_or(0.0, |value| value as f64)
}

/// Returns the name in a schedule's text, which begins `schedule KERNEL.NAME…`, if it has one.
pub fn schedule_name(text: &str) -> &str {
    let head = text.lines().find_map(|line| line.strip_prefix("schedule "));
    let Some(head) = head else { return text.lines().next().unwrap_or("default").trim() };
    let end = head.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
    let full = head[..end.unwrap_or(head.len())].trim();
    full.split_once('.').map_or("unnamed", |(_, name)| name)
}

/// Returns the name of a schedule; `auto` for an automatic one.
pub fn label(schedule: &Schedule) -> &str {
    match schedule.origin {
        Origin::Auto => "auto",
        Origin::Default | Origin::User => schedule_name(&schedule.text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::tests::machine;
    use super::*;

    fn work(flops: f64, bytes: f64, written: f64, numbers: Option<Numbers>) -> Work {
        Work { flops, bytes, written, numbers }
    }

    #[test]
    fn the_slower_of_arithmetic_and_transfers_is_the_limit() {
        let machine = machine(10_000);
        let roofline = |work: &Work| Roofline::new(&machine, work).expect("a limit");
        let product = roofline(&work(2e9, 12e6, 4e6, Some(Numbers::Float32)));
        assert_eq!((product.limit, product.seconds), (Limit::Peak(Numbers::Float32), 0.01));
        let wide = roofline(&work(2e9, 24e6, 8e6, Some(Numbers::Float64)));
        assert_eq!((wide.limit, wide.seconds), (Limit::Peak(Numbers::Float64), 0.02));
        let sum = roofline(&work(1e6, 4e6, 4e3, Some(Numbers::Float32)));
        assert_eq!((sum.limit, &sum.limit_name[..]), (Limit::Read(1), "DRAM read"));
        assert_eq!(sum.seconds, 1e4 / 80.0 / 1e9 + 3.99e6 / 20.0 / 1e9);
        let small = roofline(&work(1e3, 9e3, 3e3, Some(Numbers::Float32)));
        assert_eq!((small.limit, &small.level[..]), (Limit::Triad(0), "L1"));
        let bytes = roofline(&work(2e9, 12e5, 4e5, Some(Numbers::Int8)));
        assert_eq!((bytes.limit, &bytes.limit_name[..]), (Limit::Peak(Numbers::Int8), "int8 peak"));
        let integers = roofline(&work(2e9, 12e6, 4e6, None));
        assert_eq!((integers.peak, integers.limit), (None, Limit::Triad(1)));
        assert_eq!(Roofline::new(&machine, &work(0.0, 0.0, 0.0, None)), None);
    }

    #[test]
    fn schedule_names_come_from_their_text() {
        assert_eq!(schedule_name("default"), "default");
        assert_eq!(schedule_name("schedule matmul.block(tx = 8) {\n}"), "block");
        assert_eq!(schedule_name("schedule matmul {\n}"), "unnamed");
        assert_eq!(schedule_name("schedule matmul.fast for x86-avx2 {\n}"), "fast");
    }
}

//! What a kernel has to do, and how long the machine needs for it at least.

use super::machine::{Limit, Machine};
use crate::ir::interp::Value;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::{DType, Expr, Kernel, Param, Var, cost};
use crate::module::extent::Extent;
use crate::module::manifest::KernelManifest;

/// The work of one call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// Arithmetic operations of the source.
    pub flops: f64,
    /// Bytes of all arguments.
    pub bytes: f64,
    /// Those of the outputs.
    pub written: f64,
    /// The widest floating-point type of the arguments, if there is one.
    pub float: Option<DType>,
}

/// The roofline model for some work: no call takes less time than its operations take at the peak,
/// nor less than its bytes take from the nearest memory that holds them.
#[derive(Clone, PartialEq, Debug)]
pub struct Roof {
    /// 10^9 operations a second, for floating-point work.
    pub peak: Option<f64>,
    /// The level that holds the arguments.
    pub level: String,
    /// Its 10^9 bytes a second.
    pub bandwidth: f64,
    /// The least time of a call.
    pub seconds: f64,
    /// What it comes from.
    pub limit: Limit,
    /// Its name.
    pub limit_name: String,
}

impl Work {
    /// Of a kernel with these values.
    pub fn new(manifest: &KernelManifest, kernel: &Kernel, values: &[Value]) -> Work {
        Work::given(
            evaluate(&manifest.flops, kernel, values),
            evaluate(&manifest.bytes, kernel, values),
            kernel,
            &runtime_values(kernel, values),
        )
    }

    /// Of a kernel's plain loops, whose operations and bytes are counted, with these values of the
    /// run-time integers.
    pub fn counted(counted: &cost::Work, kernel: &Kernel, vars: &[(Var, i64)]) -> Work {
        Work::given(number(&counted.flops, vars), number(&counted.bytes, vars), kernel, vars)
    }

    fn given(flops: f64, bytes: f64, kernel: &Kernel, vars: &[(Var, i64)]) -> Work {
        let floats = kernel.params.iter().filter_map(|param| match param {
            Param::Tensor { buffer, .. } if buffer.dtype.is_float() => Some(buffer.dtype),
            _ => None,
        });
        let float = floats.max_by_key(|dtype| dtype.bytes());
        Work { flops, bytes, written: number(&cost::output_bytes(kernel), vars), float }
    }

    /// 10^9 operations a second if a call takes so long.
    pub fn gflops(&self, seconds: f64) -> f64 {
        self.flops / seconds / 1e9
    }

    /// 10^9 bytes a second if a call takes so long.
    pub fn gbs(&self, seconds: f64) -> f64 {
        self.bytes / seconds / 1e9
    }
}

impl Roof {
    /// For some work, if there is any that the machine's limits bind.
    pub fn new(machine: &Machine, work: &Work) -> Option<Roof> {
        let at = machine.level_of(work.bytes);
        // A kernel that hardly writes is bound by reading alone.
        let stream =
            if work.written * 10.0 <= work.bytes { Limit::Read(at) } else { Limit::Triad(at) };
        let peak = work.float.and_then(|dtype| machine.peak(dtype).map(|peak| (dtype, peak)));
        let bandwidth = machine.rate(stream);
        let moving = work.bytes / bandwidth / 1e9;
        let (seconds, limit) = match peak {
            Some((dtype, peak)) if work.flops / peak / 1e9 > moving => {
                (work.flops / peak / 1e9, Limit::Peak(dtype == DType::Float64))
            }
            _ => (moving, stream),
        };
        (seconds > 0.0).then(|| Roof {
            peak: peak.map(|(_, peak)| peak),
            level: machine.levels[at].name.clone(),
            bandwidth,
            seconds,
            limit,
            limit_name: machine.name_of(limit),
        })
    }

    /// The part of some work that the limit is about: operations or bytes.
    pub fn work_of_limit(&self, work: &Work) -> f64 {
        if matches!(self.limit, Limit::Peak(_)) { work.flops } else { work.bytes }
    }
}

/// A number of the manifest for these run-time integers; 0 where it depends on more.
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

/// An expression over run-time integers; 0 where it depends on more.
fn number(expr: &Expr, vars: &[(Var, i64)]) -> f64 {
    let expr = substitute(expr, &mut |var| {
        vars.iter().find(|(known, _)| known == var).map(|(_, value)| Expr::index(*value))
    });
    let expr = simplify_expr(&expr, &crate::ir::arith::Facts::new());
    expr.as_int().map_or(0.0, |value| value as f64)
}

/// The name in a schedule's text, which begins `schedule KERNEL.NAME…`; the kernel's own, which has
/// none, is called as the kernel.
pub fn schedule_name(text: &str) -> &str {
    let head = text.lines().find_map(|line| line.strip_prefix("schedule "));
    let Some(head) = head else { return text.lines().next().unwrap_or("default").trim() };
    let end = head.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
    let full = head[..end.unwrap_or(head.len())].trim();
    full.split_once('.').map_or(full, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    fn work(flops: f64, bytes: f64, written: f64, float: Option<DType>) -> Work {
        Work { flops, bytes, written, float }
    }

    #[test]
    fn the_slower_of_computing_and_moving_binds() {
        let machine = machine(10_000);
        let roof = |work: &Work| Roof::new(&machine, work).expect("a limit");
        let product = roof(&work(2e9, 12e6, 4e6, Some(DType::Float32)));
        assert_eq!((product.limit, product.seconds), (Limit::Peak(false), 0.01));
        let wide = roof(&work(2e9, 24e6, 8e6, Some(DType::Float64)));
        assert_eq!((wide.limit, wide.seconds), (Limit::Peak(true), 0.02));
        let sum = roof(&work(1e6, 4e6, 4e3, Some(DType::Float32)));
        assert_eq!((sum.limit, &sum.limit_name[..]), (Limit::Read(1), "DRAM read"));
        assert_eq!(sum.seconds, 4e6 / 20.0 / 1e9);
        let small = roof(&work(1e3, 9e3, 3e3, Some(DType::Float32)));
        assert_eq!((small.limit, &small.level[..]), (Limit::Triad(0), "L1"));
        let integers = roof(&work(2e9, 12e6, 4e6, Some(DType::Int32).filter(|d| d.is_float())));
        assert_eq!((integers.peak, integers.limit), (None, Limit::Triad(1)));
        assert_eq!(Roof::new(&machine, &work(0.0, 0.0, 0.0, None)), None);
    }

    #[test]
    fn schedules_have_names() {
        assert_eq!(schedule_name("default"), "default");
        assert_eq!(schedule_name("schedule matmul.block(tx = 8) {\n}"), "block");
        assert_eq!(schedule_name("schedule matmul {\n}"), "matmul");
        assert_eq!(schedule_name("schedule matmul.fast for x86-avx2 {\n}"), "fast");
    }
}

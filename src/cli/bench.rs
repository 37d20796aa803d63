//! `tec bench`: how fast kernels are.

use super::options::CompileArgs;
use super::report::{self, Error, Reporter, print};
use super::run::Arguments;
use super::session::{self, Session};
use crate::ir::interp::Value;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::{Expr, Kernel, Param};
use crate::module::extent::Extent;
use crate::module::load::args_of;
use crate::module::manifest::KernelManifest;
use std::time::{Duration, Instant};

/// Time kernels of a file or module.
///
/// Warms up, then times batches of calls for at least --min-time seconds in all. The rates are
/// those of the median: arithmetic operations of the source, bytes of all arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A `.te` file, or a `.so` that `tec build` made.
    #[arg(value_name = "FILE.te|MODULE.so")]
    file: String,
    /// Seconds of measurement.
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    min_time: f64,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// Draw a curve.
    #[arg(long, value_name = "OUT.svg")]
    plot: Option<String>,
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    compile: CompileArgs,
}

/// What was measured of a kernel; times of one call.
struct Measurement {
    kernel: String,
    median: f64,
    minimum: f64,
    calls: usize,
    flops: f64,
    bytes: f64,
}

/// Runs the command.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Error> {
    if args.plot.is_some() {
        return Err(report::not_in_this_version("--plot"));
    }
    if !args.min_time.is_finite() || args.min_time < 0.0 {
        return Err(Error::Usage("--min-time is a number of seconds".to_string()));
    }
    let session = session::open(&args.file, &args.compile)?;
    session.module.set_num_threads(args.arguments.threads.unwrap_or(1))?;
    let wanted = session.kernels(&args.compile.kernel)?;
    let mut measurements = Vec::new();
    for manifest in wanted {
        let progress = reporter.spinner(format!("timing {}", manifest.name));
        let measurement = measure(args, &session, manifest);
        progress.finish_and_clear();
        measurements.push(measurement?);
    }
    print(&if args.json { json(&session, &measurements) } else { table(&measurements) })
}

fn measure(
    args: &Args,
    session: &Session,
    manifest: &KernelManifest,
) -> Result<Measurement, Error> {
    let params = manifest.to_kernel()?;
    let all = session.manifest.kernels.iter().map(KernelManifest::to_kernel);
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let given = args.arguments.read(&params, &all.iter().collect::<Vec<_>>())?;
    let (loaded, kernel, mut values) = session.prepare(manifest, &given)?;
    let flops = evaluate(&manifest.flops, &kernel, &values);
    let bytes = evaluate(&manifest.bytes, &kernel, &values);
    let mut call = loaded.bind(args_of(&kernel, &mut values));
    call.call()?;
    let start = Instant::now();
    call.call()?;
    // A batch lasts a hundredth of the whole, a warm-up as long as a tenth.
    let one = start.elapsed().as_secs_f64().max(1e-9);
    let batch = ((args.min_time / 100.0 / one) as usize).clamp(1, 1 << 24);
    let warm = Instant::now();
    while warm.elapsed().as_secs_f64() < args.min_time / 10.0 {
        call.call()?;
    }
    let mut times: Vec<f64> = Vec::new();
    let all = Instant::now();
    while all.elapsed() < Duration::from_secs_f64(args.min_time) || times.len() < 3 {
        let start = Instant::now();
        for _ in 0..batch {
            call.call()?;
        }
        times.push(start.elapsed().as_secs_f64() / batch as f64);
    }
    times.sort_by(f64::total_cmp);
    let kernel = kernel.name.clone();
    let (median, minimum) = (times[times.len() / 2], times[0]);
    Ok(Measurement { kernel, median, minimum, calls: times.len() * batch, flops, bytes })
}

/// A number of the manifest for these run-time integers; 0 where it depends on more.
fn evaluate(extent: &Extent, kernel: &Kernel, values: &[Value]) -> f64 {
    let vars: Vec<_> = kernel
        .params
        .iter()
        .zip(values)
        .filter_map(|(param, value)| match (param, value) {
            (Param::Runtime { var, .. }, Value::Index(value)) => Some((var.clone(), *value)),
            _ => None,
        })
        .collect();
    let var_of = |name: &str| vars.iter().find(|(v, _)| v.name() == name).map(|(v, _)| v.clone());
    let Some(expr) = extent.to_expr(&var_of) else { return 0.0 };
    let expr = substitute(&expr, &mut |var| {
        vars.iter().find(|(known, _)| known == var).map(|(_, value)| Expr::index(*value))
    });
    let expr = simplify_expr(&expr, &crate::ir::arith::Facts::new());
    expr.as_int().map_or(0.0, |value| value as f64)
}

fn table(measurements: &[Measurement]) -> String {
    let width = measurements.iter().map(|m| m.kernel.len()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{:width$}  {:>11}  {:>11}  {:>8}  {:>8}\n",
        "kernel", "median", "minimum", "GFLOP/s", "GB/s"
    );
    for m in measurements {
        let (median, minimum) = (time_text(m.median), time_text(m.minimum));
        let (gflops, gbs) = (m.flops / m.median / 1e9, m.bytes / m.median / 1e9);
        text.push_str(&format!(
            "{:width$}  {median:>11}  {minimum:>11}  {gflops:>8.2}  {gbs:>8.2}\n",
            m.kernel
        ));
    }
    text
}

fn time_text(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.1} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}

fn json(session: &Session, measurements: &[Measurement]) -> String {
    let list: Vec<serde_json::Value> = measurements
        .iter()
        .map(|m| {
            serde_json::json!({
                "kernel": m.kernel,
                "target": session.manifest.target.name,
                "median_ns": m.median * 1e9,
                "min_ns": m.minimum * 1e9,
                "calls": m.calls,
                "gflops": m.flops / m.median / 1e9,
                "gbs": m.bytes / m.median / 1e9,
            })
        })
        .collect();
    serde_json::to_string_pretty(&list).expect("plain data") + "\n"
}

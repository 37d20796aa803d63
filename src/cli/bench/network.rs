//! `tec bench --per-kernel`: times each kernel of a network by itself.
//!
//! The kernels run on random data, with their arguments in the caches if they fit, so the sum can
//! be below the time of the network. Integers that a kernel uses as indices are 0: the entry of the
//! network checks indices, a kernel does not.

use super::super::measure::{AlignedArgs, Timed, measure_interleaved};
use super::report::{percent, time_text};
use crate::cli::data::{self, Given};
use crate::cli::remote::on::Far;
use crate::cli::report::Error;
use crate::cli::session::{Code, Source};
use crate::driver::{self, Network, Trace};
use crate::ir::simplify::value_at;
use crate::ir::{Kernel, Param, Var};
use crate::module::load::LoadedModule;
use crate::module::{BuildInfo, KernelInfo, ModuleKind};
use crate::network::Argument;
use std::cell::RefCell;

/// A measured kernel.
struct Row {
    name: String,
    calls: usize,
    /// Seconds of one call.
    seconds: f64,
    /// Operations of one call.
    flops: f64,
}

/// Returns a table of the kernels of a network, the most expensive first.
pub fn per_kernel(
    source: &Source,
    network: &Network,
    given: &Given,
    (threads, min_time): (usize, f64),
    far: Option<&RefCell<Far>>,
) -> Result<String, Error> {
    let failed = |failure| Error::Compile(source.program.sources.clone(), failure);
    let options = &source.options;
    let entry = |(at, kernel): (usize, &Kernel)| {
        let kernel = Kernel { name: format!("k{at}"), ..kernel.clone() };
        kernel.with_all_dims()
    };
    let kernels: Vec<Kernel> = network.code.kernels.iter().enumerate().map(entry).collect();
    let mut infos = Vec::new();
    for one in &network.kernels {
        let graph = &one.bounded.schedule.graph;
        let work = driver::count_work(graph, &options.target).map_err(failed)?;
        let (parameters, schedule) = (Vec::new(), String::new());
        infos.push(KernelInfo { parameters, schedule, automatic: true, work, prepack_role: None });
    }
    let works: Vec<_> = infos.iter().map(|info| info.work.flops.clone()).collect();
    let info = BuildInfo {
        module: "kernels".to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: Vec::new(),
        kernels: infos,
    };
    let kind = ModuleKind::SharedObject;
    let built = driver::build(&kernels, &info, kind, &mut Trace::default()).map_err(failed)?;
    let code = match far {
        Some(far) => Code::There(far.borrow().add(&built.bytes)?),
        None => {
            let module = LoadedModule::from_bytes(&built.bytes)?;
            module.set_num_threads(threads as i32)?;
            Code::Here(module, None)
        }
    };
    let calls = &network.planned.plan.calls;
    let whole = data::find_sizes(&network.code.entry, given)?;
    let mut rows = Vec::new();
    for (at, kernel) in kernels.iter().enumerate() {
        let mut given = given.clone();
        given.vars.extend(integers(network, at, kernel, &whole));
        let sizes = data::find_sizes(kernel, &given)?;
        if network.planned.plan.kernels[at].reads_at_loaded_indices() {
            for param in &kernel.params {
                if let Some(buffer) = data::random_integers(param, &given) {
                    let zeros = data::zeros(buffer, data::shape_of(buffer, &sizes)?)?;
                    given.tensors.push((buffer.name.clone(), zeros));
                }
            }
        }
        let flops = value_at(&works[at], &|var| value_of(&sizes, var)).unwrap_or(0);
        let rounds = match (&code, far) {
            (Code::There(hash), Some(far)) => {
                let mut far = far.borrow_mut();
                let call = far.describe(hash, &kernel.name, &given, threads)?;
                far.time(vec![call], min_time, None)?
            }
            (Code::Here(module, _), _) => {
                let function = module.kernel(&kernel.name)?;
                let mut held = AlignedArgs::new(kernel, data::make_args(kernel, &given)?);
                let mut timed = [Timed::Cpu(function.bind(held.of(kernel)))];
                measure_interleaved(&mut timed, None, min_time)?
            }
            (Code::There(_), None) => crate::bug!("the connection is gone"),
        };
        let mut times = rounds.times[0].clone();
        times.sort_by(f64::total_cmp);
        rows.push(Row {
            name: network.planned.plan.kernels[at].name.clone(),
            calls: calls.iter().filter(|call| call.kernel == at).count(),
            seconds: times[times.len() / 2],
            flops: flops as f64,
        });
    }
    Ok(table(rows))
}

/// Returns the run-time integers of a kernel in its first call, for these sizes of the network.
fn integers(
    network: &Network,
    at: usize,
    kernel: &Kernel,
    sizes: &[(Var, i64)],
) -> Vec<(String, i64)> {
    let call = network.planned.plan.calls.iter().find(|call| call.kernel == at);
    let arguments = call.map_or(&[][..], |call| &call.arguments);
    let pairs = kernel.params.iter().zip(arguments);
    let value = |(param, argument): (&Param, &Argument)| match (param, argument) {
        (Param::Runtime { var, .. }, Argument::Integer(value)) => {
            Some((var.name().to_string(), value_at(value, &|var| value_of(sizes, var))?))
        }
        _ => None,
    };
    pairs.filter_map(value).collect()
}

fn value_of(sizes: &[(Var, i64)], var: &Var) -> Option<i64> {
    sizes.iter().find(|(own, _)| own.name() == var.name()).map(|(_, value)| *value)
}

fn table(mut rows: Vec<Row>) -> String {
    let total = |row: &Row| row.seconds * row.calls as f64;
    rows.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let sum: f64 = rows.iter().map(total).sum();
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(6);
    let mut text = format!("{:<width$}  calls     median      total   share  GFLOP/s\n", "kernel",);
    for row in &rows {
        text += &format!(
            "{:<width$}  {:>5}  {:>9}  {:>9}  {:>6}  {:>7.1}\n",
            row.name,
            row.calls,
            time_text(row.seconds),
            time_text(total(row)),
            percent(total(row) / sum),
            row.flops / row.seconds / 1e9,
        );
    }
    text + &format!("{:<width$}  {:>5}  {:>9}  {:>9}\n", "sum", "", "", time_text(sum))
}

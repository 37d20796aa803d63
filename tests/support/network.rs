//! Differential testing of networks: the interpreter on the whole graph under the default schedule
//! against a module of several kernels, whose params are constants.

use super::data::{Data, make_args};
use super::differential::{self, Case, Interpreted, Verdict, failed, run, wrong};
use std::sync::Arc;
use tec::codegen::Code;
use tec::driver::{self, Failure, Network, Options, Trace};
use tec::ir::interp::Value;
use tec::ir::{Kernel, Param};
use tec::module::load::LoadedModule;
use tec::module::params::{ParamData, Params};
use tec::module::{BuildInfo, ModuleKind};
use tec::schedule::{Schedule, infer_bounds};
use tec::te::{Graph, Input};

/// A network that the interpreter has run, and the module of its kernels.
pub struct Compared {
    /// The compiled network.
    pub network: Network,
    /// What its module must compute.
    pub interpreted: Interpreted,
}

/// Runs a network in both ways.
pub fn compare_network(case: &Case, options: &Options) -> Verdict {
    compare_or_verdict(case, options).unwrap_or_else(|verdict| verdict)
}

fn compare_or_verdict(case: &Case, options: &Options) -> Result<Verdict, Verdict> {
    let program = differential::load(&case.text).or_else(failed)?;
    let mut trace = Trace::default();
    let options = &Options { kernels: Some(vec![case.kernel.clone()]), ..options.clone() };
    let graphs = driver::elaborate(&program, options, &mut trace).or_else(failed)?;
    let Some(graph) = graphs.into_iter().next() else {
        return wrong("no network", "elaboration gave no graph");
    };
    let compared = compile(&graph, case, options)?;
    let module = load(&compared.network, options).or_else(failed)?;
    Ok(differential::call(&compared.interpreted, &module))
}

fn compile(graph: &Graph, case: &Case, options: &Options) -> Result<Compared, Verdict> {
    let whole = driver::lower_unoptimized(graph, &options.target).or_else(failed)?;
    let data = if graph.reassociate { Data::Small } else { Data::Any };
    let Some(mut args) = make_args(&whole, &case.vars, case.seed, data) else {
        return Err(Verdict::TooLarge);
    };
    let mut params = Params::default();
    for (input, value) in graph.inputs.iter().zip(&mut args) {
        if let (Input::Tensor { buffer, param: true, .. }, Value::Tensor(tensor)) = (input, value) {
            // Some arguments have a wrong shape on purpose; a param cannot.
            let extents = buffer.shape.iter().map(|extent| extent.as_int().expect("a constant"));
            tensor.shape = extents.map(|extent| extent as i64).collect();
            let elements = tensor.shape.iter().product::<i64>() as u64;
            tensor.data.resize((elements * tensor.dtype.bytes()) as usize, 0);
            let shape = tensor.shape.iter().map(|extent| *extent as u64).collect();
            let bytes = Arc::new(tensor.data.clone());
            let data = ParamData { dtype: tensor.dtype, shape, bytes };
            params.insert(buffer.name.clone(), data);
        }
    }
    let network = driver::compile_network(
        graph,
        &params,
        &driver::RecordedSchedules::default(),
        options,
        None,
        &mut Trace::default(),
    );
    let network = network.or_else(|failure| match failure {
        // The entry would have to check the elements of a param.
        Failure::User(diags) if diags.iter().all(|diag| diag.code == "E0704") => {
            failed(Failure::User(diags))
        }
        Failure::User(diags) => {
            let texts: Vec<String> = diags.iter().map(|diag| diag.to_string()).collect();
            wrong("the network is refused after the front end", texts.join("\n"))
        }
        bug => failed(bug),
    })?;
    let expected = run(&whole, &args, "default")?;
    let entry = network.code.entry.clone();
    let own = |values: &[Value]| public(&whole, &entry, values);
    let (args, mut expected) = (own(&args), expected.map(|values| own(&values)));
    if entry.reassociated
        && let Ok(values) = &mut expected
    {
        // Kernels may use other orders of terms, and the interpreter follows them.
        let mut interpret = |kernel: &Kernel, values: Vec<Value>| -> Result<_, Stop> {
            match run(kernel, &values, "calls") {
                Ok(Ok(values)) => Ok(values),
                Ok(Err(message)) => {
                    Err(Stop(Verdict::Wrong("a check of a kernel".into(), message)))
                }
                Err(verdict) => Err(Stop(verdict)),
            }
        };
        *values = network.interpret_calls(options, &args, &mut interpret).map_err(|stop| stop.0)?;
    }
    let schedule = Schedule::new(graph.clone(), &options.target);
    let bounded = infer_bounds(schedule).or_else(|diag| failed(diag.into()))?;
    let (graph, bound) = (graph.clone(), None);
    let interpreted = Interpreted { graph, bounded, kernel: entry, args, expected, bound };
    Ok(Compared { network, interpreted })
}

/// Why the interpretation stopped.
struct Stop(Verdict);

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop(failed::<()>(failure).expect_err("a failure"))
    }
}

/// Returns those of the values of `whole` that the entry has as parameters.
fn public(whole: &Kernel, entry: &Kernel, values: &[Value]) -> Vec<Value> {
    let value = |param: &Param| {
        let same = |own: &Param| match (own, param) {
            (Param::Tensor { buffer: a, .. }, Param::Tensor { buffer: b, .. }) => a == b,
            (Param::Tensor { .. }, _) | (_, Param::Tensor { .. }) => false,
            (a, b) => a.name() == b.name(),
        };
        let at = whole.params.iter().position(same).expect("a parameter of the whole network");
        values[at].clone()
    };
    entry.params.iter().map(value).collect()
}

fn load(network: &Network, options: &Options) -> Result<LoadedModule, Failure> {
    let info = BuildInfo {
        module: "fuzz".to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: vec![("fuzz.te".to_string(), String::new())],
        kernels: vec![network.info()],
    };
    let networks = std::slice::from_ref(&network.code);
    let code = Code { kernels: &[], networks };
    let built = driver::build(code, &info, ModuleKind::SharedObject, &mut Trace::default())?;
    Ok(LoadedModule::from_bytes(&built.bytes)?)
}

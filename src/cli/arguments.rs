//! The options that give a kernel its arguments: `--input`, `--var`, `--scalar`, `--threads`.

use super::compile::{refuse_contradictions, split_value};
use super::data::Given;
use super::npy;
use super::remote::message::Hello;
use super::report::Error;
use super::threads::{self, MAX_THREADS};
use crate::diag::{Diag, closest};
use crate::ir::{DType, Kernel, Param, Role};

/// The arguments that a kernel is called with.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Kernel arguments")]
pub struct Arguments {
    /// Read an input from a NumPy file (repeatable) [default: random values]
    ///
    /// Here, and with `--var` and `--scalar`, `KERNEL.NAME` is for one of several kernels.
    #[arg(long, value_name = "A=a.npy")]
    pub input: Vec<String>,
    /// Set a run-time integer that no shape of an `--input` gives (repeatable).
    #[arg(long, value_name = "n=100")]
    pub var: Vec<String>,
    /// Set a scalar input (repeatable) [default: a random value]
    #[arg(long, value_name = "alpha=0.5")]
    pub scalar: Vec<String>,
    /// Seed of the random inputs.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Threads for parallel loops, 512 at most [default: $TEC_NUM_THREADS, else one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=MAX_THREADS))]
    pub threads: Option<i32>,
}

impl Arguments {
    /// Reads the arguments of `kernel`. An argument may belong to another one of `kernels`; a name
    /// that none of them has is an error.
    pub fn read(&self, kernel: &Kernel, kernels: &[&Kernel]) -> Result<Given, Error> {
        let mut given = Given { seed: self.seed, ..Given::default() };
        for (option, settings) in [("--input", &self.input), ("--scalar", &self.scalar)] {
            refuse_contradictions(option, settings)?;
        }
        for (text, kernels) in &own(&self.input, kernel, kernels) {
            let (name, path) = split_value("--input", text)?;
            let is_tensor = |param: &Param| {
                matches!(param, Param::Tensor { role: Role::Input | Role::Inout, .. })
            };
            if let Some(dtype) = find("input tensor", name, kernel, kernels, &is_tensor)? {
                given.tensors.push((name.to_string(), npy::read(path, name, dtype)?));
            }
        }
        given.vars = run_time_integers(&self.var, kernel, kernels)?;
        for (text, kernels) in &own(&self.scalar, kernel, kernels) {
            let (name, value) = split_value("--scalar", text)?;
            let is_scalar = |param: &Param| matches!(param, Param::Scalar { .. });
            find("scalar input", name, kernel, kernels, &is_scalar)?;
            given.scalars.push((name.to_string(), value.to_string()));
        }
        Ok(given)
    }

    /// Returns the number of threads for parallel loops.
    pub fn threads(&self) -> usize {
        self.threads.map_or_else(threads::usual, |threads| threads as usize)
    }

    /// Returns the number of threads on another machine, if there is one.
    pub fn threads_on(&self, hello: Option<&Hello>) -> usize {
        let usual = |hello: &Hello| self.threads.map_or(hello.threads, |threads| threads as usize);
        hello.map_or_else(|| self.threads(), usual)
    }

    /// Returns the arguments that a kernel has parameters for.
    pub fn of(&self, kernel: &Kernel) -> Arguments {
        let has = |text: &String| {
            let name = text.split('=').next().unwrap_or_default();
            kernel.params.iter().any(|param| param.name() == name)
        };
        let kernels = [kernel];
        let [input, var, scalar] = [&self.input, &self.var, &self.scalar].map(|all| {
            let all = own(all, kernel, &kernels);
            all.into_iter().map(|(text, _)| text).filter(has).collect()
        });
        Arguments { input, var, scalar, ..self.clone() }
    }
}

/// Reads the settings `--var [KERNEL.]NAME=VALUE` for `kernel`. One may belong to another one of
/// `kernels`; a name that none of them has is an error.
pub fn run_time_integers(
    settings: &[String],
    kernel: &Kernel,
    kernels: &[&Kernel],
) -> Result<Vec<(String, i64)>, Error> {
    refuse_contradictions("--var", settings)?;
    let mut vars = Vec::new();
    for (text, kernels) in &own(settings, kernel, kernels) {
        let (name, value) = split_value("--var", text)?;
        let is_var = |param: &Param| matches!(param, Param::Runtime { .. });
        let found = find("run-time integer", name, kernel, kernels, &is_var)?;
        let value = value.parse().map_err(|_| {
            Diag::global("E0543", format!("`--var {text}`: `{value}` is not an integer"))
        })?;
        if found.is_some() {
            vars.push((name.to_string(), value));
        }
    }
    Ok(vars)
}

/// Returns the settings `[KERNEL.]NAME=VALUE` that are not for another one of `kernels`, without
/// `KERNEL.`, and the kernels that may have the name. Those for `kernel` alone come first and take
/// the place of the others.
fn own<'k>(
    settings: &[String],
    kernel: &Kernel,
    kernels: &'k [&'k Kernel],
) -> Vec<(String, &'k [&'k Kernel])> {
    let kernel_of = |text: &str| {
        let of = text.split('=').next()?.split_once('.')?.0;
        kernels.iter().map(|kernel| &kernel.name).find(|name| *name == of)
    };
    let named = |text: &String| {
        let rest = || text[kernel.name.len() + 1..].to_string();
        (kernel_of(text) == Some(&kernel.name)).then(rest)
    };
    let only: &[&Kernel] = &[];
    let mut own: Vec<_> = settings.iter().filter_map(named).map(|text| (text, only)).collect();
    for text in settings.iter().filter(|text| kernel_of(text).is_none()) {
        let name = text.split('=').next();
        if !own.iter().any(|(known, _)| known.split('=').next() == name) {
            own.push((text.clone(), kernels));
        }
    }
    own
}

/// Returns the element type of the parameter `name` of `kernel`; none if only another one of
/// `kernels` has it.
pub fn find(
    what: &str,
    name: &str,
    kernel: &Kernel,
    kernels: &[&Kernel],
    fits: &dyn Fn(&Param) -> bool,
) -> Result<Option<DType>, Error> {
    let named = |kernel: &Kernel| {
        let params = kernel.params.iter();
        params.filter(|param| fits(param)).find(|param| param.name() == name).cloned()
    };
    if let Some(param) = named(kernel) {
        return Ok(Some(match param {
            Param::Tensor { buffer, .. } => buffer.declared_dtype(),
            Param::Scalar { dtype, .. } => dtype,
            Param::Runtime { .. } => DType::Index,
        }));
    }
    if kernels.iter().any(|kernel| named(kernel).is_some()) {
        return Ok(None);
    }
    let all = kernel.params.iter().filter(|param| fits(param)).map(Param::name);
    let all: Vec<&str> = all.collect();
    let text = format!("`{}` has no {what} `{name}`", kernel.name);
    let mut diag = Diag::global("E0543", text);
    if let Some(close) = closest(name, all.iter().copied()) {
        diag = diag.help(format!("did you mean `{close}`?"));
    } else if !all.is_empty() {
        diag = diag.note(format!("it has: {}", all.join(", ")));
    }
    Err(diag.into())
}

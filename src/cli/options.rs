//! The options of every command that compiles.

use super::compile::{ModelFlags, SideFiles, refuse_contradictions, split_kernel, split_value};
use super::remote::message::Hello;
use super::report::Error;
use crate::diag::Diag;
use crate::driver::{Dump, FpContract, Options, PassId, Trace};
use crate::schedule::Fallback;
use crate::target::Target;

/// What to compile, and how.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Compilation options")]
pub struct CompileArgs {
    /// Compile only this kernel (repeatable) [default: all kernels]
    #[arg(long, value_name = "NAME")]
    pub kernel: Vec<String>,
    /// Target to compile for; `tec targets` lists them. `build` takes several CPUs, `A,B`.
    #[arg(long, default_value = "native", value_name = "TARGET")]
    pub target: String,
    /// Processor that automatic schedules are made for; `tec targets --describe` lists them.
    ///
    /// A module runs on every CPU with its target's features, whatever this option says. Without it
    /// `--target native` takes this machine's processor, and other targets a typical one.
    #[arg(long, value_name = "NAME")]
    pub cpu: Option<String>,
    /// Set a parameter, such as `-D n=512` (repeatable).
    ///
    /// `-D matmul.n=512` sets a parameter of one kernel, `-D matmul.block.tx=8` a parameter or knob
    /// of one schedule. A run-time integer becomes a constant.
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Give the run-time integers of a typical call, such as `--typical n=1,m=512` (repeatable).
    ///
    /// The automatic schedule is the best one for these calls, instead of those that the `estimate`
    /// statements of the source describe. Results do not depend on it.
    #[arg(long, value_name = "NAME=VALUE,…")]
    pub typical: Vec<String>,
    /// Schedule to use: a name, `default` or `auto`.
    ///
    /// `KERNEL.NAME` applies to one kernel only. `default` computes every stage by itself, with the
    /// loops in declaration order; `auto` is the schedule that the compiler writes. Without this
    /// option a kernel gets its schedule `tuned`, else its unnamed schedule, else `auto` (`lower`
    /// and `check`: `default`).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub schedule: Vec<String>,
    /// Use the best schedules that `tec tune` recorded in this file.
    #[arg(long, value_name = "FILE")]
    pub records: Option<String>,
    /// Networks: take the elements of `param`s from this file.
    ///
    /// By default FILE.safetensors is read if it lies beside FILE.te. Params without elements are
    /// inputs.
    #[arg(long, value_name = "FILE.safetensors")]
    pub params: Option<String>,
    /// ONNX models: make an input a constant (repeatable).
    ///
    /// The value is a number, `true` or `false` for each element, or a NumPy file.
    #[arg(long, value_name = "NAME=VALUE|FILE.npy")]
    pub freeze: Vec<String>,
    /// ONNX models: compute no convolution by Winograd's algorithm.
    ///
    /// Convolutions with three rows of weights take half of the multiplications with it. Their
    /// results are rounded differently (docs/NETWORKS.md).
    #[arg(long)]
    pub no_winograd: bool,
    /// Fuse products and sums, or not [default: fast; off on targets without FMA]
    #[arg(long, value_name = "fast|off", value_enum)]
    pub fp_contract: Option<Contract>,
    /// GPUs: compute float32 functions approximately.
    ///
    /// Division, square roots and math functions use approximate instructions; docs/MATH.md gives
    /// their error bounds.
    #[arg(long)]
    pub fast_math: bool,
    /// Optimisation level; it never changes a result.
    ///
    /// 0: no optimisation. 1: simplified indices, vectors of 256 and 512 bits, Cranelift's
    /// optimiser. 2: also shared storage and accumulators in registers. 3: also hoisted loop
    /// invariants.
    #[arg(long, default_value_t = 3, value_name = "0-3")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    pub opt: u8,
    /// Search for automatic schedules again, and do not cache them.
    ///
    /// `TEC_NO_CACHE=1` in the environment does the same.
    #[arg(long)]
    pub no_cache: bool,
    /// Print the loop IR after this pass, or after `all` passes, to stderr.
    #[arg(long, value_name = "PASS|all")]
    pub dump: Option<String>,
    /// Print the time of each phase to stderr, in milliseconds.
    #[arg(long)]
    pub time: bool,
}

/// `--fp-contract`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Contract {
    /// Fuse where the language says so (docs/LANGUAGE.md).
    Fast,
    /// Round each operation.
    Off,
}

impl CompileArgs {
    /// Returns the options for a machine whose target and processor `native` means.
    pub fn for_native(&self, hello: &Hello) -> CompileArgs {
        let (target, is_native) = match self.target.strip_prefix("native") {
            Some(rest) if rest.is_empty() || rest.starts_with('+') => {
                (format!("{}{rest}", hello.target), true)
            }
            _ => (self.target.clone(), false),
        };
        let cpu = match self.cpu.as_deref() {
            None if !is_native => None,
            None | Some("native") => Some(hello.processor.clone()),
            Some(name) => Some(name.to_string()),
        };
        CompileArgs { target, cpu, ..self.clone() }
    }

    /// Returns a target with the processor of `--cpu`.
    fn with_cpu(&self, target: Target) -> Result<Target, Error> {
        match &self.cpu {
            Some(name) => Ok(target.with_processor(name)?),
            None => Ok(target),
        }
    }

    /// Returns the driver's options. Kernels without a schedule get the default schedule.
    pub fn options(&self) -> Result<Options, Error> {
        self.options_for(self.with_cpu(Target::parse(&self.target)?)?)
    }

    /// Returns the targets of a module, the most capable one first, and the options of
    /// [`CompileArgs::options_to_run`] for the first one.
    pub fn options_for_targets(&self) -> Result<(Options, Vec<Target>), Error> {
        let targets = Target::parse_list(&self.target)?.into_iter();
        let targets = targets.map(|one| self.with_cpu(one)).collect::<Result<Vec<_>, _>>()?;
        let options = self.options_for(targets[0].clone())?;
        // Only one target can be a GPU.
        let targets = match &targets[..] {
            [_] => vec![options.target.clone()],
            _ => targets,
        };
        Ok((Options { fallback: Fallback::Auto, ..options }, targets))
    }

    /// Returns the value of `--fp-contract`.
    pub fn contract(&self) -> Option<FpContract> {
        self.fp_contract.map(|contract| match contract {
            Contract::Fast => FpContract::Fast,
            Contract::Off => FpContract::Off,
        })
    }

    fn options_for(&self, target: Target) -> Result<Options, Error> {
        let mut options = Options::new(target);
        let mut kernels = self.kernel.clone();
        kernels.sort();
        kernels.dedup();
        options.kernels = (!kernels.is_empty()).then_some(kernels);
        options.defines = parse_defines(&self.define)?;
        options.estimates =
            self.typical.iter().map(|text| parse_typical(text)).collect::<Result<_, _>>()?;
        options.schedule = match &self.schedule[..] {
            [] => None,
            [one] => Some(split_kernel(one)),
            several => {
                let names = several.join("`, `");
                let text = format!("--schedule takes one schedule here, not `{names}`");
                return Err(Error::Usage(text + "; `tec bench` compares several"));
            }
        };
        options.opt = self.opt;
        options.cache = super::cache::schedules(self.no_cache);
        if self.fast_math {
            let Some(gpu) = &mut options.target.gpu else {
                let text = format!("`--fast-math` is for GPUs, not for {}", options.target);
                return Err(Diag::global("E0405", text)
                    .note("on CPUs all math functions are bit-exact")
                    .help("leave it out, or give a target such as `--target nvptx-sm_80`")
                    .into());
            };
            gpu.fast_math = true;
        }
        if let Some(contract) = self.contract() {
            options.fp_contract = contract;
        }
        Ok(options)
    }

    /// Returns the driver's options for a command that has only `-D`.
    pub fn defines(define: &[String]) -> Result<Options, Error> {
        Ok(Options { defines: parse_defines(define)?, ..Options::new(Target::native()) })
    }

    /// Returns the driver's options for machine code. Kernels without a schedule get an automatic
    /// one.
    pub fn options_to_run(&self) -> Result<Options, Error> {
        Ok(Options { fallback: Fallback::Auto, ..self.options()? })
    }

    /// Returns the options for ONNX models.
    pub fn model_flags(&self) -> ModelFlags<'_> {
        ModelFlags { freeze: &self.freeze, no_winograd: self.no_winograd }
    }

    /// Returns the files that are named beside the source.
    pub fn side_files(&self) -> SideFiles<'_> {
        let (records, params) = (self.records.as_deref(), self.params.as_deref());
        SideFiles { records, params, model: self.model_flags() }
    }

    /// Returns a trace that records what `--dump` asks for.
    pub fn trace(&self) -> Result<Trace, Error> {
        let dump = match self.dump.as_deref() {
            None => None,
            Some("all") => Some(Dump::All),
            Some(name) => match PassId::parse(name) {
                Some(pass) => Some(Dump::After(pass)),
                None => {
                    let names: Vec<&str> = PassId::ALL.iter().map(|pass| pass.name()).collect();
                    let text = format!("unknown pass `{name}`; passes: all, {}", names.join(", "));
                    return Err(Error::Usage(text));
                }
            },
        };
        Ok(Trace { dump, ..Trace::default() })
    }
}

fn parse_defines(texts: &[String]) -> Result<Vec<(Option<String>, String, String)>, Error> {
    refuse_contradictions("-D", texts)?;
    let parse = |text: &String| {
        let (name, value) = split_value("-D", text)?;
        let (kernel, name) = split_kernel(name);
        Ok((kernel, name, value.to_string()))
    };
    texts.iter().map(parse).collect()
}

/// Parses the values of a typical call.
fn parse_typical(text: &str) -> Result<Vec<(String, i64)>, Error> {
    let parse = |setting: &str| {
        let (name, value) = split_value("--typical", setting)?;
        match value.parse::<i64>() {
            Ok(value) => Ok((name.to_string(), value)),
            Err(_) => {
                let text = format!("`--typical`: `{value}` is not a size");
                Err(Error::from(Diag::global("E0248", text)))
            }
        }
    };
    text.split(',').map(parse).collect()
}

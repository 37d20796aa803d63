//! A kernel in this process with its arguments: compiles schedules of it and calls them.

use super::super::bench::measure::{AlignedArgs, Timed};
use super::super::compile;
use super::super::data::{self, Given};
use super::super::report::Error;
use super::packed::PackedCall;
use super::protocol::{Reference, Setup};
use crate::diag::Diag;
use crate::driver::{self, Failure, Options, Trace};
use crate::ir::Kernel;
use crate::ir::interp::{Tensor, Value};
use crate::module::gpu::Gpu;
use crate::module::load::{Arg, LoadedKernel, LoadedModule};
use crate::module::write::{OutputFile, write_files};
use crate::module::{BuildInfo, KernelInfo, ModuleKind};
use crate::schedule::{self, BoundedSchedule, PrepackedInputs, Schedule};
use crate::target::Target;
use crate::te::Graph;
use crate::tune::TrialFailure;
use std::time::{Duration, Instant};

/// A kernel with its arguments, ready for candidates.
pub struct Harness {
    /// The kernel and how it is measured.
    pub setup: Setup,
    /// The stage graph.
    pub graph: Graph,
    /// The options of candidates.
    pub options: Options,
    /// The options of the reference output: those of candidates, but for this machine's CPU if
    /// candidates run on a GPU.
    pub reference_options: Options,
    /// The GPU of candidates; none if they run on the CPU.
    pub gpu: Option<Gpu>,
    /// The loops of the default schedule.
    pub default_loops: Kernel,
    /// The arguments, in the order of the kernel's parameters.
    pub values: Vec<Value>,
    /// The arguments of calls.
    pub args: AlignedArgs,
    work: crate::ir::cost::Work,
}

/// A compiled candidate, loaded into this process.
pub struct Compiled {
    kernel: LoadedKernel,
    /// The call with packed inputs, if the schedule packs `layout_free` inputs.
    pub packed: Option<PackedCall>,
    /// Whether the schedule changes the order of reduction terms.
    pub reassociated: bool,
}

impl Compiled {
    /// Returns the kernel, its code and its arguments; `default_loops` and `usual` are those of a
    /// candidate that packs nothing.
    pub fn called<'a>(
        &'a mut self,
        default_loops: &'a Kernel,
        usual: &'a mut AlignedArgs,
    ) -> (&'a Kernel, &'a LoadedKernel, &'a mut AlignedArgs) {
        match &mut self.packed {
            Some(packed) => {
                let (kernel, args) = packed.call();
                (kernel, &self.kernel, args)
            }
            None => (default_loops, &self.kernel, usual),
        }
    }
}

impl Harness {
    /// Compiles the file and makes the arguments; the error is a message.
    pub fn open(setup: Setup) -> Result<(Harness, Given), String> {
        let (compile, arguments) = (setup.compile(), setup.arguments());
        let mut trace = Trace::default();
        let options = compile.options().map_err(text_of)?;
        let options = Options { prepacked: PrepackedInputs::All, ..options };
        let files = compile.side_files();
        let elaborated = compile::elaborate_kernels(&setup.file, files, &options, &mut trace);
        let (program, kernels) = elaborated.map_err(text_of)?;
        let graph = kernels.into_iter().map(|one| one.graph);
        let Some(graph) = graph.into_iter().find(|graph| graph.name == setup.kernel) else {
            return Err(format!("{} has no kernel `{}`", setup.file, setup.kernel));
        };
        let failed = |failure| text_of(Error::Compile(program.sources.clone(), failure));
        let default_loops = driver::lower_unoptimized(&graph, &options.target).map_err(failed)?;
        let work = driver::count_work(&graph, &options.target).map_err(failed)?;
        let given: Given = arguments.read(&default_loops, &[&default_loops]).map_err(text_of)?;
        // Three copies: the values, the arguments of calls, the reference output.
        data::check_memory(&default_loops, &given, 3).map_err(|diag| diag.message.clone())?;
        let values = data::make_args(&default_loops, &given).map_err(|diag| diag.to_string())?;
        let args = AlignedArgs::new(&default_loops, values.clone());
        let (mut reference_options, mut gpu) = (options.clone(), None);
        if options.target.is_gpu() {
            gpu = Some(Gpu::open().map_err(|diag| diag.message.clone())?);
            let native = Target::parse("native").map_err(|diag| diag.to_string())?;
            reference_options.target = native;
        }
        let harness = Harness {
            setup,
            graph,
            options,
            reference_options,
            gpu,
            default_loops,
            values,
            args,
            work,
        };
        Ok((harness, given))
    }

    /// Applies the schedule of the reference output.
    pub fn schedule_reference(&self, reference: Reference) -> Result<BoundedSchedule, String> {
        let target = &self.reference_options.target;
        let schedule = match reference {
            Reference::Default | Reference::DefaultUnlimited => {
                Schedule::new(self.graph.clone(), target)
            }
            Reference::Auto => {
                // The reference adds the terms in the declared order.
                let mut graph = self.graph.clone();
                graph.forbid_reassociation();
                let text = crate::tune::space::default_text(&graph, target);
                schedule::apply_text(&graph, target, &Vec::new(), &text)
                    .map_err(|diag| diag.to_string())?
            }
        };
        schedule::infer_bounds(schedule).map_err(|diag| diag.to_string())
    }

    /// Calls the reference and returns its outputs.
    pub fn run_reference(&mut self, compiled: &Compiled) -> Result<Vec<Tensor>, String> {
        let Harness { default_loops, args, values, .. } = self;
        args.reset_outputs(default_loops);
        compiled.kernel.call(args.of(default_loops)).map_err(|diag| diag.message.clone())?;
        let outputs = values.iter().zip(&default_loops.params).filter_map(|(value, param)| {
            let is_output = param.is_written();
            match value {
                Value::Tensor(tensor) if is_output => Some(tensor.clone()),
                _ => None,
            }
        });
        let results = args.results(default_loops);
        let outputs = outputs.zip(results);
        Ok(outputs.map(|(out, bytes)| Tensor { data: bytes.to_vec(), ..out }).collect())
    }

    /// Compiles a schedule, given as text.
    pub fn compile(&self, text: &str) -> Result<Compiled, TrialFailure> {
        let (target, defines) = (&self.options.target, &self.options.defines);
        let mut trace = Trace::default();
        let apply = || schedule::apply_text(&self.graph, target, defines, text);
        let schedule = trace.phase("schedule", &String::new, apply).map_err(failure_of)?;
        let schedule = schedule.map_err(|diag| TrialFailure::Refused(diag.to_string()))?;
        let infer = || schedule::infer_bounds(schedule);
        let bounded = trace.phase("infer_bounds", &String::new, infer).map_err(failure_of)?;
        let bounded = bounded.map_err(|diag| TrialFailure::Refused(diag.to_string()))?;
        let pack = || schedule::prepack_layout_free(&bounded, &self.options.prepacked);
        let made = trace.phase("prepack", &String::new, pack).map_err(failure_of)?;
        match made {
            Some(made) => self.compile_packed(&made, &mut trace),
            None => self.compile_bounded(&bounded, &self.options, &mut trace),
        }
    }

    /// Compiles a scheduled kernel and loads it.
    pub fn compile_bounded(
        &self,
        bounded: &BoundedSchedule,
        options: &Options,
        trace: &mut Trace,
    ) -> Result<Compiled, TrialFailure> {
        let bounded = std::slice::from_ref(bounded);
        let (module, lowered) = self.compile_all(bounded, options, trace)?;
        let [lowered] = &lowered[..] else { crate::bug!("one kernel became several") };
        let kernel = module.kernel(&lowered.name).map_err(broken)?;
        Ok(Compiled { kernel, packed: None, reassociated: lowered.reassociated })
    }

    /// Compiles kernels that pack inputs, and the last one, which reads the packed inputs.
    fn compile_packed(
        &self,
        made: &[BoundedSchedule],
        trace: &mut Trace,
    ) -> Result<Compiled, TrialFailure> {
        let (module, mut lowered) = self.compile_all(made, &self.options, trace)?;
        let last = lowered.pop().unwrap_or_else(|| crate::bug!("no kernel"));
        let mut packs = Vec::new();
        for (one, pack) in made.iter().zip(lowered) {
            let code = module.kernel(&pack.name).map_err(broken)?;
            let role =
                one.prepack_role.clone().unwrap_or_else(|| crate::bug!("it packs something"));
            packs.push((role, pack, code));
        }
        let (kernel, reassociated) =
            (module.kernel(&last.name).map_err(broken)?, last.reassociated);
        let packed = Some(PackedCall::new(last, packs));
        Ok(Compiled { kernel, packed, reassociated })
    }

    fn compile_all(
        &self,
        bounded: &[BoundedSchedule],
        options: &Options,
        trace: &mut Trace,
    ) -> Result<(LoadedModule, Vec<Kernel>), TrialFailure> {
        let mut lowered = Vec::new();
        for one in bounded {
            lowered.push(driver::lower(one, options, None, trace).map_err(failure_of)?);
        }
        let info_of = |one: &BoundedSchedule| KernelInfo {
            parameters: self.graph.params.clone(),
            schedule: one.schedule.text.clone(),
            automatic: false,
            work: self.work.clone(),
            prepack_role: one.prepack_role.clone(),
        };
        let info = BuildInfo {
            module: "candidate".to_string(),
            target: options.target.clone(),
            fp_contract: self.setup.fp_contract.clone(),
            opt: options.opt,
            sources: Vec::new(),
            kernels: bounded.iter().map(info_of).collect(),
        };
        let kind = ModuleKind::SharedObject;
        let built = driver::build(&lowered, &info, kind, trace).map_err(failure_of)?;
        let module = load(built.bytes).map_err(TrialFailure::Runner)?;
        let threads = match self.gpu {
            None => self.setup.threads,
            Some(_) => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        };
        module.set_num_threads(threads as i32).map_err(broken)?;
        Ok((module, lowered))
    }

    /// Calls a candidate, which leaves its results in the arguments, and returns the time.
    pub fn call(&mut self, compiled: &mut Compiled) -> Result<Duration, TrialFailure> {
        let (kernel, code, args) = compiled.called(&self.default_loops, &mut self.args);
        let args = args.of(kernel);
        let called = match &self.gpu {
            Some(gpu) => {
                let start = Instant::now();
                gpu.call(code, args).map(|()| start.elapsed())
            }
            None => {
                let mut call = code.bind(args);
                let start = Instant::now();
                call.call().map(|()| start.elapsed())
            }
        };
        called.map_err(|diag| call_failure(&diag))
    }
}

/// Binds a call to be timed on the CPU or the GPU.
pub fn timed<'a>(
    gpu: Option<&'a Gpu>,
    kernel: &LoadedKernel,
    args: Vec<Arg<'a>>,
) -> crate::diag::Result<Timed<'a>> {
    Ok(match gpu {
        None => Timed::Cpu(kernel.bind(args)),
        Some(gpu) => Timed::Gpu(gpu.bind(kernel, &args)?),
    })
}

/// Loads a module from its bytes. The dynamic loader needs a file, which may be removed once it is
/// mapped.
fn load(bytes: Vec<u8>) -> Result<LoadedModule, String> {
    let directory = tempfile::tempdir().map_err(|error| {
        format!("cannot make a temporary directory: {}", crate::module::input::io_text(&error))
    })?;
    let path = directory.path().join("candidate.so");
    write_files(&[OutputFile { path: path.clone(), bytes, executable: true }])
        .map_err(|diag| diag.message.clone())?;
    LoadedModule::open(&path).map_err(|diag| match diag.notes.first() {
        Some(note) => format!("{}: {note}", diag.message),
        None => diag.message.clone(),
    })
}

fn failure_of(failure: Failure) -> TrialFailure {
    match failure {
        Failure::User(diags) => {
            let first = diags.first().map(ToString::to_string);
            TrialFailure::Refused(first.unwrap_or_else(|| "refused".to_string()))
        }
        Failure::Bug { pass, message, .. } => TrialFailure::Bug(format!("{pass}: {message}")),
    }
}

fn broken(diag: Box<Diag>) -> TrialFailure {
    TrialFailure::Bug(diag.to_string())
}

/// Returns the failure of a call that returned an error.
pub fn call_failure(diag: &Diag) -> TrialFailure {
    if diag.message.contains("out of memory") {
        return TrialFailure::Memory;
    }
    TrialFailure::Call(diag.message.clone())
}

/// Returns the message of an error in one line.
fn text_of(error: Error) -> String {
    match error {
        Error::Compile(_, Failure::User(diags)) => {
            diags.first().map_or_else(|| "the program is wrong".to_string(), ToString::to_string)
        }
        Error::Compile(_, Failure::Bug { pass, message, .. }) => format!("{pass}: {message}"),
        Error::Plain(diag) => diag.to_string(),
        Error::Usage(text) => text,
        Error::Silent | Error::BrokenPipe => "an error without a message".to_string(),
    }
}

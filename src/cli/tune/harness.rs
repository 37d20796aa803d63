//! The compiler of a search: a kernel whose schedules become modules, with its arguments.

use super::super::compile;
use super::super::data::{self, Given};
use super::super::report::Error;
use super::protocol::{Reference, Setup};
use super::subject::{Loaded, Subject};
use crate::driver::{self, Failure, Options, Trace};
use crate::ir::Kernel;
use crate::ir::interp::Tensor;
use crate::module::gpu::Gpu;
use crate::module::load::LoadedModule;
use crate::module::{BuildInfo, KernelInfo, ModuleKind};
use crate::schedule::{self, BoundedSchedule, PrepackedInputs, Schedule};
use crate::target::Target;
use crate::te::Graph;
use crate::tune::TrialFailure;

/// A kernel whose schedules are compiled.
pub struct Builder {
    /// The kernel and how it is measured.
    pub setup: Setup,
    /// The stage graph.
    pub graph: Graph,
    /// The options of candidates.
    pub options: Options,
    /// The options of the reference output: those of candidates, but for this machine's CPU if
    /// candidates run on a GPU or elsewhere.
    pub reference_options: Options,
    work: crate::ir::cost::Work,
}

/// A kernel whose schedules are compiled, with its arguments.
pub struct Harness {
    /// Compiles schedules.
    pub builder: Builder,
    /// The loops of the default schedule, and the arguments.
    pub subject: Subject,
    /// The arguments of the command line.
    pub given: Given,
}

impl Harness {
    /// Compiles the file and makes the arguments; the error is a message.
    pub fn open(setup: Setup) -> Result<Harness, String> {
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
        let (mut reference_options, mut gpu) = (options.clone(), None);
        if options.target.is_gpu() && !setup.elsewhere {
            gpu = Some(Gpu::open().map_err(|diag| diag.message.clone())?);
        }
        if !options.target.runs_here() {
            reference_options.target = Target::native();
        }
        let subject = Subject::new(default_loops, values, gpu, setup.threads);
        let builder = Builder { setup, graph, options, reference_options, work };
        Ok(Harness { builder, subject, given })
    }

    /// Applies the schedule of the reference output.
    pub fn schedule_reference(&self, reference: Reference) -> Result<BoundedSchedule, String> {
        let target = &self.builder.reference_options.target;
        let schedule = match reference {
            Reference::Default | Reference::DefaultUnlimited => {
                Schedule::new(self.builder.graph.clone(), target)
            }
            Reference::Auto => {
                // The reference adds the terms in the declared order.
                let mut graph = self.builder.graph.clone();
                graph.forbid_reassociation();
                let text = crate::tune::space::default_text(&graph, target);
                schedule::apply_text(&graph, target, &Vec::new(), &text)
                    .map_err(|diag| diag.to_string())?
            }
        };
        schedule::infer_bounds(schedule).map_err(|diag| diag.to_string())
    }

    /// Compiles the reference and loads it.
    pub fn load_reference(&self, bounded: &BoundedSchedule) -> Result<Loaded, TrialFailure> {
        let bounded = std::slice::from_ref(bounded);
        let options = &self.builder.reference_options;
        let bytes = self.builder.build_all(bounded, options, &mut Trace::default())?;
        self.subject.load(load(&bytes)?)
    }

    /// Calls the reference and returns its outputs.
    pub fn run_reference(&mut self, loaded: &mut Loaded) -> Result<Vec<Tensor>, String> {
        // It runs on the CPU, whatever candidates do.
        let gpu = self.subject.gpu.take();
        self.subject.reset_outputs(loaded);
        let called = self.subject.call(loaded);
        self.subject.gpu = gpu;
        called.map_err(|failure| match failure {
            TrialFailure::Call(why) => why,
            other => format!("{other:?}"),
        })?;
        let results = self.subject.results(loaded);
        let outputs = self.subject.outputs().zip(results);
        Ok(outputs.map(|(out, bytes)| Tensor { data: bytes.to_vec(), ..out.clone() }).collect())
    }
}

impl Builder {
    /// Compiles a schedule, given as text, to a module.
    pub fn build(&self, text: &str) -> Result<Vec<u8>, TrialFailure> {
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
            Some(made) => self.build_all(&made, &self.options, &mut trace),
            None => self.build_all(std::slice::from_ref(&bounded), &self.options, &mut trace),
        }
    }

    fn build_all(
        &self,
        bounded: &[BoundedSchedule],
        options: &Options,
        trace: &mut Trace,
    ) -> Result<Vec<u8>, TrialFailure> {
        let mut lowered: Vec<Kernel> = Vec::new();
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
        Ok(driver::build(&lowered, &info, kind, trace).map_err(failure_of)?.bytes)
    }
}

/// Loads a module from its bytes.
pub fn load(bytes: &[u8]) -> Result<LoadedModule, TrialFailure> {
    LoadedModule::from_bytes(bytes).map_err(|diag| {
        TrialFailure::Runner(match diag.notes.first() {
            Some(note) => format!("{}: {note}", diag.message),
            None => diag.message.clone(),
        })
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

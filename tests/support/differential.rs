//! Differential testing: runs a program in three ways and compares the results bit for bit: the
//! interpreter on the default schedule, the interpreter after all passes, and the module called
//! through its checked entry.

use super::data::{Data, make_args};
use super::placed::Placed;
use super::rewrite::{backwards, with_owners};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tec::driver::{self, Failure, Options, PassId, Trace};
use tec::emulate::{Emulator, Orders};
use tec::ir::arith::Facts;
use tec::ir::empty::skip_empty_nests;
use tec::ir::interp::{Order, Tensor, Trap, Value, run_in_order};
use tec::ir::print::{Style, print_kernel};
use tec::ir::simplify::simplify_expr;
use tec::ir::verify::verify_kernel;
use tec::ir::visit::substitute;
use tec::ir::{Buffer, DType, Expr, Kernel, Param, Role, Source, Var};
use tec::lang::{Loader, Program};
use tec::lower::expand_math::expand_math;
use tec::lower::outline_simd::{self, Nest};
use tec::module::gpu::Gpu;
use tec::module::load::{Arg, LoadedModule, args_of};
use tec::module::{BuildInfo, KernelInfo, ModuleKind};
use tec::schedule::{BoundedSchedule, Origin};
use tec::te::Graph;

/// A program to run and compare.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file.
    pub text: String,
    /// Its kernel.
    pub kernel: String,
    /// Values of run-time integers.
    pub vars: Vec<(String, i64)>,
    /// The seed of the random data.
    pub seed: u64,
}

/// The outcome of a program.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// All ways agree; an entry check may have failed in all of them.
    Same { refused_at_entry: bool },
    /// The front end refuses it: the codes of the errors, and their texts.
    Refused(Vec<String>, String),
    /// Its tensors would be too large.
    TooLarge,
    /// A finding: a summary, and the details.
    Wrong(String, String),
}

pub fn wrong<T>(what: impl Into<String>, details: impl Into<String>) -> Result<T, Verdict> {
    Err(Verdict::Wrong(what.into(), details.into()))
}

/// A program in memory.
struct Memory<'a>(&'a str);

impl Loader for Memory<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path {
            "fuzz.te" => Ok(self.0.as_bytes().to_vec()),
            _ => Err("there is only one file".to_string()),
        }
    }
}

/// Returns the program of a text, parsed.
pub fn load(text: &str) -> Result<Program, Failure> {
    let loaded = driver::load("fuzz.te", &Memory(text), &mut Trace::default());
    loaded.map_err(|(_, failure)| failure)
}

pub fn failed<T>(failure: Failure) -> Result<T, Verdict> {
    match failure {
        Failure::User(diags) => {
            let codes = diags.iter().map(|diag| diag.code.to_string()).collect();
            let texts: Vec<String> = diags.iter().map(|diag| diag.to_string()).collect();
            Err(Verdict::Refused(codes, texts.join("\n")))
        }
        Failure::Bug { pass, message, ir } => wrong(format!("bug in {pass}: {message}"), ir),
    }
}

/// A kernel that the interpreter has run.
pub struct Interpreted {
    /// As elaborated.
    pub graph: Graph,
    /// As scheduled.
    pub bounded: BoundedSchedule,
    /// After all passes.
    pub kernel: Kernel,
    /// Arguments.
    pub args: Vec<Value>,
    /// Results, or the message of the entry check that failed.
    pub expected: Result<Vec<Value>, String>,
    /// The allowed relative difference of the results; they must be equal if none.
    pub bound: Option<f64>,
}

/// Compiles a program through all passes and compares the interpreter's runs.
pub fn interpret(case: &Case, options: &Options) -> Result<Interpreted, Verdict> {
    interpret_damaged(case, options, &mut |_| {})
}

/// Does the same with a scheduled kernel that `damage` may change first, to inject a fault.
pub fn interpret_damaged(
    case: &Case,
    options: &Options,
    damage: &mut dyn FnMut(&mut BoundedSchedule),
) -> Result<Interpreted, Verdict> {
    let mut trace = Trace::default();
    let program = load(&case.text).or_else(failed)?;
    let options = Options { kernels: Some(vec![case.kernel.clone()]), ..options.clone() };
    let graphs = driver::elaborate(&program, &options, &mut trace).or_else(failed)?;
    let bounded = driver::schedule(&program, graphs, &options, &mut trace).or_else(failed)?;
    let Some(mut bounded) = bounded.into_iter().next() else {
        return wrong("no kernel", "elaboration gave no kernel");
    };
    // The compiler must not refuse its own schedules.
    if let Some(note) = trace.notes.iter().find(|note| note.contains("was refused")) {
        return wrong("a schedule that the compiler made is refused", note.clone());
    }
    damage(&mut bounded);
    let graph = bounded.schedule.graph.clone();
    // Without optimisation, integers are computed in the types of the source.
    let plain = Options { opt: 0, ..options.clone() };
    let as_written = driver::elaborate(&program, &plain, &mut trace).or_else(failed)?;
    // After the front end, an error is a bug of the compiler.
    let late = |failure| match failure {
        // Only building the loops shows whether an intrinsic matches.
        Failure::User(diags) if diags.iter().all(|diag| diag.code == "E0378") => {
            failed(Failure::User(diags))
        }
        Failure::User(diags) => {
            let codes: Vec<&str> = diags.iter().map(|diag| diag.code).collect();
            let texts: Vec<String> = diags.iter().map(|diag| diag.to_string()).collect();
            wrong(format!("refused after the front end: {}", codes.join(" ")), texts.join("\n"))
        }
        bug => failed(bug),
    };
    let default_loops = driver::lower_unoptimized(&as_written[0], &options.target).or_else(late)?;
    let built =
        driver::lower(&bounded, &options, Some(PassId::BuildLoops), &mut trace).or_else(late)?;
    let kernel = driver::lower(&bounded, &options, None, &mut trace).or_else(late)?;
    let built = expand_math(built, &options.target).or_else(|diag| late(diag.into()))?;
    // A schedule may place a huge loop outside of an empty one.
    let built = Kernel { body: skip_empty_nests(&built), ..built };
    for kernel in [&default_loops, &built, &kernel] {
        if let Err(message) = verify_kernel(kernel) {
            return wrong(format!("ill-formed: {message}"), print_kernel(kernel, Style::Full));
        }
    }
    let data = if kernel.reassociated { Data::Small } else { Data::Any };
    let Some(args) = make_args(&default_loops, &case.vars, case.seed, data) else {
        return Err(Verdict::TooLarge);
    };
    let expected = run(&default_loops, &args, "default")?;
    let mut interpreted = Interpreted { graph, bounded, kernel, args, expected, bound: None };
    // Nothing to compare.
    if interpreted.expected.is_ok() && writes_nothing(&interpreted) {
        return Ok(interpreted);
    }
    if interpreted.bounded.schedule.origin == Origin::Default {
        let actual = run(&interpreted.kernel, &interpreted.args, "passes")?;
        compare(&interpreted, &actual, "the interpreter after all passes")?;
        return Ok(interpreted);
    }
    let scheduled = run(&built, &interpreted.args, "scheduled")?;
    if interpreted.kernel.reassociated {
        // A partial product may overflow in one order but not in another, and rounding to integers
        // can turn the smallest difference into 1, so no bound holds.
        let unbounded = ["prod", " as int", " as uint", " as bool", "floor", "ceil", "round"];
        if !unbounded.iter().any(|word| case.text.contains(word)) {
            interpreted.bound = Some(BOUND);
            compare(&interpreted, &scheduled, "the scheduled interpreter")?;
        }
        // From here on, reordered sums must be equal too.
        interpreted.expected = scheduled;
        interpreted.bound = None;
    } else {
        compare(&interpreted, &scheduled, "the scheduled interpreter")?;
    }
    if options.target.is_gpu() {
        for (kernel, form) in
            [(&built, "the scheduled interpreter"), (&interpreted.kernel, "passes")]
        {
            let mut values = interpreted.args.clone();
            let actual = match run_in_order(kernel, &mut values, Order::Shuffled(case.seed)) {
                Ok(()) => Ok(values),
                Err(Trap::Check(message)) => Err(message),
                Err(Trap::Memory(_)) => return Err(Verdict::TooLarge),
                Err(Trap::Bug(message)) => {
                    let text = print_kernel(kernel, Style::Full);
                    return wrong(format!("trap (shuffled, {form}): {message}"), text);
                }
            };
            compare(&interpreted, &actual, &format!("{form} in another order of threads"))?;
        }
        let actual = run(&interpreted.kernel, &interpreted.args, "passes")?;
        compare(&interpreted, &actual, "the interpreter after all passes")?;
        return Ok(interpreted);
    }
    if let Some(backwards) = backwards(&built) {
        let actual = run(&backwards, &interpreted.args, "backwards")?;
        compare(&interpreted, &actual, "the scheduled interpreter backwards")?;
    }
    if has_race(&built, &interpreted.args, false)? {
        return wrong("race: two iterations write one element", print_kernel(&built, Style::Full));
    }
    let actual = run(&interpreted.kernel, &interpreted.args, "passes")?;
    compare(&interpreted, &actual, "the interpreter after all passes")?;
    Ok(interpreted)
}

/// Whether two iterations of a parallel loop, or with `lanes` of a vectorized one, write one
/// element.
pub fn has_race(built: &Kernel, args: &[Value], lanes: bool) -> Result<bool, Verdict> {
    let Some(kernel) = with_owners(built, lanes) else { return Ok(false) };
    let mut args = args.to_vec();
    args.push(Value::Tensor(Tensor { dtype: DType::Int32, data: vec![0; 4], shape: Vec::new() }));
    let Ok(values) = run(&kernel, &args, "owners")? else { return Ok(false) };
    Ok(matches!(values.last(), Some(Value::Tensor(race)) if race.data != [0; 4]))
}

/// The allowed difference between sums in another order and those in the order of the source,
/// relative to the largest value of the tensor.
pub const BOUND: f64 = 1e-3;

/// Runs the interpreter: the results, or the message of the check that failed.
pub fn run(
    kernel: &Kernel,
    args: &[Value],
    form: &str,
) -> Result<Result<Vec<Value>, String>, Verdict> {
    let mut values = args.to_vec();
    match driver::interpret(kernel, &mut values, &mut Trace::default()) {
        Ok(Ok(())) => Ok(Ok(values)),
        Ok(Err(Trap::Check(message))) => Ok(Err(message)),
        // Splits of splits with tails give a box with many elements that are not read.
        Ok(Err(Trap::Memory(_))) => Err(Verdict::TooLarge),
        Ok(Err(Trap::Bug(message))) => {
            wrong(format!("trap ({form}): {message}"), print_kernel(kernel, Style::Full))
        }
        Err(failure) => failed(failure),
    }
}

/// Compares results with the expected ones.
pub fn compare(
    interpreted: &Interpreted,
    actual: &Result<Vec<Value>, String>,
    who: &str,
) -> Result<(), Verdict> {
    match (&interpreted.expected, actual) {
        (Err(_), Err(_)) => Ok(()),
        (Ok(_), Err(message)) => wrong(format!("check fails only in {who}"), message),
        (Err(message), Ok(_)) => wrong(format!("check passes only in {who}"), message),
        (Ok(expected), Ok(actual)) => {
            for ((param, expected), actual) in
                interpreted.kernel.params.iter().zip(expected).zip(actual)
            {
                if let (Value::Tensor(expected), Value::Tensor(actual)) = (expected, actual)
                    && let Some(difference) = difference(expected, actual)
                    && !interpreted.bound.is_some_and(|bound| is_close(expected, actual, bound))
                {
                    let details = format!("{}: {difference}", param.name());
                    return wrong(format!("{who} differs from the default schedule"), details);
                }
            }
            Ok(())
        }
    }
}

/// Whether all tensors that a kernel writes are empty.
fn writes_nothing(interpreted: &Interpreted) -> bool {
    let mut params = interpreted.kernel.params.iter().zip(&interpreted.args);
    params.all(|(param, value)| match (param, value) {
        (Param::Tensor { role: Role::Input, .. }, _) => true,
        (_, Value::Tensor(tensor)) => tensor.data.is_empty(),
        _ => true,
    })
}

/// Returns the first element that differs; any NaN equals any NaN.
fn difference(expected: &Tensor, actual: &Tensor) -> Option<String> {
    let size = expected.dtype.bytes() as usize;
    let pairs = expected.data.chunks_exact(size).zip(actual.data.chunks_exact(size));
    let mut bad = pairs.enumerate().filter(|(_, (expected_bits, actual_bits))| {
        let is_nan = |bits| show(expected.dtype, bits).1;
        expected_bits != actual_bits && !(is_nan(expected_bits) && is_nan(actual_bits))
    });
    let (at, (a, b)) = bad.next()?;
    let (a, b) = (show(expected.dtype, a).0, show(expected.dtype, b).0);
    let more = bad.count();
    Some(format!("element {at} should be {a}, is {b} ({more} more of {:?})", expected.shape))
}

/// Whether all elements are within a bound. Elements that overflow are not compared, because the
/// order decides whether they overflow.
fn is_close(expected: &Tensor, actual: &Tensor, bound: f64) -> bool {
    if !expected.dtype.is_float() {
        return false;
    }
    let size = expected.dtype.bytes() as usize;
    let values = |tensor: &Tensor| -> Vec<f64> {
        tensor.data.chunks_exact(size).map(|bytes| float_value(tensor.dtype, bytes)).collect()
    };
    let (expected, actual) = (values(expected), values(actual));
    let finite = expected.iter().chain(&actual).filter(|value| value.is_finite());
    let largest = finite.fold(0.0, |a: f64, b| a.max(b.abs()));
    let close =
        |(a, b): (&f64, &f64)| !a.is_finite() || !b.is_finite() || (a - b).abs() <= bound * largest;
    expected.iter().zip(&actual).all(close)
}

fn float_value(dtype: DType, bytes: &[u8]) -> f64 {
    let mut bits = [0; 8];
    bits[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(bits);
    match dtype {
        DType::Float64 => f64::from_bits(bits),
        DType::Float32 => f64::from(f32::from_bits(bits as u32)),
        DType::Float16 => half::f16::from_bits(bits as u16).to_f64(),
        _ => half::bf16::from_bits(bits as u16).to_f64(),
    }
}

/// Returns an element as text, and whether it is NaN.
fn show(dtype: DType, bytes: &[u8]) -> (String, bool) {
    let mut bits = [0; 8];
    bits[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(bits);
    let value = match dtype {
        DType::Bool => return (bits.to_string(), false),
        _ if dtype.is_float() => float_value(dtype, bytes),
        _ => return (dtype.wrap(i128::from(bits)).to_string(), false),
    };
    (format!("{value:e} (0x{bits:x})"), value.is_nan())
}

fn info(interpreted: &[&Interpreted], options: &Options) -> Result<BuildInfo, Failure> {
    let mut kernels = Vec::new();
    for one in interpreted {
        kernels.push(KernelInfo {
            parameters: one.graph.params.clone(),
            schedule: "default".to_string(),
            automatic: false,
            work: driver::count_work(&one.graph, &options.target)?,
            prepack_role: None,
        });
    }
    Ok(BuildInfo {
        module: "fuzz".to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: vec![("fuzz.te".to_string(), String::new())],
        kernels,
    })
}

/// Returns the vectorized nests of a kernel, and which of them the SIMD back end compiles.
pub fn explain(interpreted: &Interpreted, options: &Options) -> Result<Vec<Nest>, Verdict> {
    let wide = options.target.simd().is_some() && options.opt > 0;
    if !wide {
        return Ok(Vec::new());
    }
    let before = match options.opt {
        0 | 1 => PassId::SimplifyAgain,
        _ => PassId::PromoteAccumulators,
    };
    let kernel = driver::lower(&interpreted.bounded, options, Some(before), &mut Trace::default());
    Ok(outline_simd::explain(&kernel.or_else(failed)?, &options.target))
}

/// Makes one module of kernels and loads it.
pub fn link(interpreted: &[&Interpreted], options: &Options) -> Result<LoadedModule, Verdict> {
    let info = info(interpreted, options).or_else(failed)?;
    let kernels: Vec<Kernel> = interpreted.iter().map(|one| one.kernel.clone()).collect();
    let mut trace = Trace::default();
    let kind = ModuleKind::SharedObject;
    let built = driver::build(&kernels, &info, kind, &mut trace).or_else(failed)?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("fuzz.so");
    std::fs::write(&path, &built.bytes).expect("the module can be written");
    let module = LoadedModule::open(&path);
    let module = module.or_else(|diag| wrong("the module does not load", diag.to_string()))?;
    if options.target.is_gpu() {
        return Ok(module);
    }
    // Parallel loops run on 1 to 8 threads of the module, or on those of a host in uneven ranges;
    // the choice depends only on the program.
    let set = match built.bytes.iter().map(|byte| i32::from(*byte)).sum::<i32>() % 9 {
        0 => module.lend_threads(3),
        threads => module.set_num_threads(threads),
    };
    set.or_else(|diag| wrong("the module takes no threads", diag.to_string()))?;
    Ok(module)
}

/// Runs the PTX of a kernel in the emulator, in two orders of threads: the results must agree,
/// without findings.
pub fn emulate(interpreted: &Interpreted, options: &Options) -> Result<(), Verdict> {
    let mut trace = Trace::default();
    let kernel = &interpreted.kernel;
    let kernels = std::slice::from_ref(kernel);
    let ptx = driver::compile_ptx(kernels, &options.target, &mut trace).or_else(failed)?;
    let emulator = Emulator::new(&ptx);
    let emulator = emulator.or_else(|diag| wrong(diag.to_string(), ptx.text.clone()))?;
    let mut values = interpreted.args.clone();
    match emulator.run(kernel, 0, &mut values, Orders::Both) {
        Ok(emulation) => {
            compare(interpreted, &Ok(values), "the emulator")?;
            match emulation.is_clean() {
                true => Ok(()),
                false => {
                    let text = emulation.describe() + &ptx.text;
                    wrong("the emulator finds something", text)
                }
            }
        }
        Err(diag) if diag.code == "E0525" => {
            compare(interpreted, &Err(diag.to_string()), "the emulator")
        }
        Err(diag) => wrong(format!("the emulator: {diag}"), ptx.text.clone()),
    }
}

/// Whether programs for GPUs run on the first GPU of this machine instead of in the emulator:
/// `TEC_FUZZ_GPU` is its compute capability, `90` for 9.0.
pub fn gpu_capability() -> Option<u32> {
    let text = std::env::var("TEC_FUZZ_GPU").ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("TEC_FUZZ_GPU={text}")))
}

thread_local! {
    /// Its context is current for the thread that opened it.
    static GPU: Gpu = Gpu::open().expect("TEC_FUZZ_GPU needs a GPU");
}

/// Calls a kernel of a loaded module on the first GPU and compares.
///
/// If the kernel fails there, no later call can succeed: prints `text`, the program, and ends the
/// process.
pub fn call_on_gpu(
    interpreted: &Interpreted,
    module: &LoadedModule,
    text: &str,
) -> Result<(), Verdict> {
    let name = &interpreted.kernel.name;
    let kernel = module.kernel(name).expect("the module has its kernels");
    let mut values = interpreted.args.clone();
    let args = args_of(&interpreted.kernel, &mut values);
    let result = GPU.with(|gpu| gpu.call(&kernel, args)).map_err(|diag| diag.message.clone());
    if let (Err(message), Ok(_)) = (&result, &interpreted.expected) {
        println!("FINDING {name} on the GPU: {message}\n\n{text}");
        std::process::exit(1);
    }
    compare(interpreted, &result.map(|()| values), "the GPU")
}

/// Compiles the kernels to an object for another machine.
pub fn cross_compile(interpreted: &[&Interpreted], options: &Options) -> Result<(), Verdict> {
    let mut trace = Trace::default();
    let mut kernels = Vec::new();
    for one in interpreted {
        kernels.push(driver::lower(&one.bounded, options, None, &mut trace).or_else(failed)?);
    }
    let info = info(interpreted, options).or_else(failed)?;
    let built = driver::build(&kernels, &info, ModuleKind::Object, &mut trace);
    built.map(|_| ()).or_else(failed)
}

/// The message of a module that cannot allocate its temporaries.
const NO_MEMORY: &str = "out of memory for the temporary tensors";

/// Calls a kernel of a loaded module and compares.
pub fn call(interpreted: &Interpreted, module: &LoadedModule) -> Verdict {
    call_and_compare(interpreted, module).unwrap_or_else(|verdict| verdict)
}

fn call_and_compare(interpreted: &Interpreted, module: &LoadedModule) -> Result<Verdict, Verdict> {
    let kernel = match module.kernel(&interpreted.kernel.name) {
        Ok(kernel) => kernel,
        Err(diag) => return wrong("the module lacks the kernel", diag.to_string()),
    };
    let seed = interpreted
        .kernel
        .name
        .bytes()
        .fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let params = interpreted.kernel.params.iter().zip(&interpreted.args);
    let place = |(param, value): (&Param, &Value)| match (param, value) {
        (Param::Tensor { buffer, .. }, Value::Tensor(tensor)) => {
            let last = last_extent(interpreted, buffer);
            Some(Placed::new(buffer, tensor, last, &mut rng))
        }
        _ => None,
    };
    let mut memory: Vec<Option<Placed>> = params.map(place).collect();
    let before = memory.clone();
    let params = interpreted.kernel.params.iter().zip(&interpreted.args).zip(&mut memory);
    let args: Vec<Arg<'_>> = params
        .filter_map(|((param, value), memory)| match memory {
            Some(placed) => Some(placed.argument(param.is_written())),
            None => argument(param, value),
        })
        .collect();
    let result = kernel.call(args).map_err(|diag| diag.message);
    for ((param, before), after) in interpreted.kernel.params.iter().zip(&before).zip(&memory) {
        let (Some(before), Some(after)) = (before, after) else { continue };
        if !after.is_kept(before, param.is_written() && result.is_ok()) {
            return wrong("the module writes where it must not", param.name());
        }
    }
    let values = interpreted.args.iter().zip(&memory).map(|(value, memory)| match memory {
        Some(placed) => Value::Tensor(placed.tensor()),
        None => value.clone(),
    });
    let actual = result.map(|()| values.collect());
    // A schedule may store temporaries that another order of loops does not need.
    if actual.as_ref().is_err_and(|message| message.starts_with(NO_MEMORY)) {
        return Err(Verdict::TooLarge);
    }
    compare(interpreted, &actual, "the module")?;
    Ok(Verdict::Same { refused_at_entry: actual.is_err() })
}

/// Returns the last extent of an argument in elements: the one that the interpreter was given, or
/// the value of an expression of run-time integers.
fn last_extent(interpreted: &Interpreted, buffer: &Buffer) -> Option<i64> {
    let pairs = || interpreted.kernel.params.iter().zip(&interpreted.args);
    let is_last = |source: &Option<Source>| match source {
        Some(Source::Extent(param, dim)) => {
            let Param::Tensor { buffer: own, .. } = &interpreted.kernel.params[*param] else {
                return false;
            };
            own == buffer && dim + 1 == buffer.shape.len()
        }
        _ => false,
    };
    let given = pairs().find_map(|(param, value)| match (param, value) {
        (Param::Runtime { source, .. }, Value::Index(value)) if is_last(source) => Some(*value),
        _ => None,
    });
    let value = |var: &Var| {
        pairs().find_map(|(param, value)| match (param, value) {
            (Param::Runtime { var: own, .. }, Value::Index(value)) if own == var => {
                Some(Expr::index(*value))
            }
            _ => None,
        })
    };
    let computed = || {
        let known = substitute(buffer.declared_shape().last()?, &mut |var| value(var));
        simplify_expr(&known, &Facts::new()).as_int().and_then(|known| i64::try_from(known).ok())
    };
    given.or_else(computed)
}

fn argument(param: &Param, value: &Value) -> Option<Arg<'static>> {
    match (param, value) {
        (Param::Scalar { dtype, .. }, Value::Int(value)) => Some(match dtype {
            DType::Bool => Arg::Bool(*value != 0),
            DType::Uint64 => Arg::Uint(*value as u64),
            _ => Arg::Int(*value as i64),
        }),
        (Param::Scalar { .. }, Value::Float(value)) => Some(Arg::Float(*value)),
        (Param::Runtime { source: None, .. }, Value::Index(value)) => Some(Arg::Int(*value)),
        _ => None,
    }
}

/// Runs one program in all ways: on the module if the target runs here, in the emulator for GPUs,
/// and otherwise only by compiling it.
pub fn compare_all(case: &Case, options: &Options) -> Verdict {
    let interpreted = match interpret(case, options) {
        Ok(interpreted) => interpreted,
        Err(verdict) => return verdict,
    };
    let same = Verdict::Same { refused_at_entry: interpreted.expected.is_err() };
    if options.target.is_gpu() {
        let ran = match gpu_capability() {
            Some(_) => link(&[&interpreted], options)
                .and_then(|m| call_on_gpu(&interpreted, &m, &case.text)),
            None => emulate(&interpreted, options),
        };
        return ran.map_or_else(|verdict| verdict, |()| same);
    }
    if !options.target.runs_here() {
        return cross_compile(&[&interpreted], options).map_or_else(|verdict| verdict, |()| same);
    }
    match link(&[&interpreted], options) {
        Ok(module) => call(&interpreted, &module),
        Err(verdict) => verdict,
    }
}

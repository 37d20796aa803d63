//! The differential fuzzer: random programs in the reference interpreter (the plain loop nest), in
//! the interpreter after every pass, and as machine code. All results are the same bits.
//!
//! `TEC_FUZZ_N` programs are tried, from seed `TEC_FUZZ_SEED` on (`make fuzz N=10000 SEED=0`). A
//! program that fails is made smaller and printed; the one at work lies in
//! `target/tmp/fuzzed.te`, should the process die.

#[path = "../common/mod.rs"]
mod common;
mod generate;
mod program;
mod shrink;

use common::{call_args, elaborate, failure_text, first_difference, load_native, make_args};
use generate::{Coverage, generate};
use program::Program;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tec::driver::{self, FpContract, Options, Trace};
use tec::ir::interp::{Trap, Value};
use tec::target::Target;

/// How a program is compiled and called.
#[derive(Clone, Debug)]
struct Setting {
    options: Options,
    vars: [i64; 2],
    data: u64,
}

/// What became of a program.
enum Outcome {
    /// All results agree.
    Same,
    /// All forms refuse the arguments.
    Refused,
    /// The kind of failure, and what there is to see.
    Failed(&'static str, String),
}

#[test]
fn native_code_and_every_pass_agree_with_the_interpreter() {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    };
    let (count, first) = (number("TEC_FUZZ_N", 250), number("TEC_FUZZ_SEED", 0));
    let mut coverage = Coverage::new();
    let mut refused = 0;
    driver::with_stack(|| {
        for seed in first..first + count {
            let program = generate(seed, &mut coverage);
            let setting = setting(seed);
            match run(&program, &setting) {
                Outcome::Same => {}
                Outcome::Refused => refused += 1,
                Outcome::Failed(kind, text) => fail(seed, program, &setting, kind, &text),
            }
        }
    });
    println!("{count} programs from seed {first}, {refused} refused by their entry checks");
    for (feature, times) in &coverage {
        println!("{times:>8}  {feature}");
    }
    // Generated programs may ask for what their arguments do not give, but rarely.
    assert!(refused * 10 <= count, "{refused} of {count} programs were refused");
}

/// Two programs of one seed are compiled alike.
fn setting(seed: u64) -> Setting {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x5e77_1136);
    let here: Vec<Target> = Target::all().into_iter().filter(Target::runs_here).collect();
    let target = match random.random_range(0..3) {
        0 => here[random.random_range(0..here.len())].clone(),
        _ => Target::native(),
    };
    let mut options = Options::new(target);
    if random.random_range(0..4) == 0 {
        options.fp_contract = match options.fp_contract {
            FpContract::Fast => FpContract::Off,
            FpContract::Off => FpContract::Fast,
        };
    }
    options.opt = [3, 3, 3, 0, 1, 2][random.random_range(0..6)];
    options.kernels = Some(vec!["fuzzed".to_string()]);
    let mut var = || if random.random_range(0..12) == 0 { 0 } else { random.random_range(1..7) };
    let vars = [var(), var()];
    Setting { options, vars, data: random.random() }
}

fn run(program: &Program, setting: &Setting) -> Outcome {
    let text = program.text();
    let running = format!("{}/fuzzed.te", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&running, &text).expect("the program can be written");
    match compare(&text, setting) {
        Ok(outcome) => outcome,
        Err((kind, text)) => Outcome::Failed(kind, text),
    }
}

fn compare(text: &str, setting: &Setting) -> Result<Outcome, (&'static str, String)> {
    let options = &setting.options;
    let failed = |kind| move |failure| (kind, failure_text(&failure));
    let mut trace = Trace::default();
    let graphs = elaborate(text, options).map_err(failed("rejected"))?;
    let graph = &graphs[0];
    let naive = driver::lower_naively(graph, &options.target).map_err(failed("naive lowering"))?;
    let lowered = driver::lower(graph, options, None, &mut trace).map_err(failed("lowering"))?;
    let value_of = |name: &str| setting.vars[usize::from(name == "m")];
    let mut expected = make_args(&naive, &value_of, &|name| name == "small", setting.data);
    let args = expected.clone();
    let mut trace = Trace::default();
    let mut interpret = |kernel, args: &mut Vec<Value>, kind| {
        let result = driver::interpret(kernel, args, &mut trace).map_err(failed(kind))?;
        match result {
            Ok(()) => Ok(true),
            Err(Trap::Check(_)) => Ok(false),
            Err(Trap::Bug(text)) => Err((kind, text)),
        }
    };
    let ran = interpret(&naive, &mut expected, "naive interpretation")?;
    let mut actual = args.clone();
    let ran_lowered = interpret(&lowered, &mut actual, "interpretation after the passes")?;
    let verdict = |ran: bool| if ran { "runs" } else { "refuses its arguments" };
    if ran != ran_lowered {
        let text = format!("naive {}, after the passes {}", verdict(ran), verdict(ran_lowered));
        return Err(("passes and checks", text));
    }
    if let Some(text) = first_difference(&naive, &expected, &actual) {
        return Err(("passes", text));
    }
    let module = load_native(graph, &lowered, options).map_err(failed("code generation"))?;
    let kernel = module.kernel("fuzzed").expect("the module has its kernel");
    let mut actual = args;
    let called = kernel.call(call_args(&lowered, &mut actual));
    if ran != called.is_ok() {
        let text = format!("interpreter {}, native {called:?}", verdict(ran));
        return Err(("native checks", text));
    }
    if let Some(text) = first_difference(&naive, &expected, &actual) {
        return Err(("native", text));
    }
    Ok(if ran { Outcome::Same } else { Outcome::Refused })
}

/// Shows a program that fails, as small as it can be made.
fn fail(seed: u64, program: Program, setting: &Setting, kind: &'static str, text: &str) {
    println!("seed {seed}: {kind}: {text}\n{}\n", program.text());
    // A rejected program is the generator's fault or a wrong error: it is shown as it is.
    let small = match kind {
        "rejected" => program,
        _ => shrink::shrink(
            program,
            &mut |candidate| matches!(run(candidate, setting), Outcome::Failed(other, _) if other == kind),
        ),
    };
    let Outcome::Failed(_, text) = run(&small, setting) else {
        panic!("seed {seed} fails once and not again: {kind}: {text}");
    };
    let Options { target, fp_contract, opt, .. } = &setting.options;
    let [n, m] = setting.vars;
    panic!(
        "seed {seed}: {kind}: {text}\n\
         # tec run --verify --kernel fuzzed --target {target} --fp-contract {} --opt {opt} \
         --var n={n} --var m={m}\n{}",
        fp_contract.name(),
        small.text()
    );
}

/// The features that must have been generated: without them the fuzzer tests less than it says.
#[test]
fn the_generator_covers_the_language() {
    let mut coverage = Coverage::new();
    for seed in 0..3000 {
        generate(seed, &mut coverage);
    }
    let mut wanted = vec!["init=".to_string(), "where=".into(), "operator".into(), "alias".into()];
    for dtype in tec::ir::DType::ALL {
        wanted.push(format!("input {dtype}"));
        wanted.push(format!("map of {dtype}"));
        wanted.push(format!("literal {dtype}"));
        for other in tec::ir::DType::ALL.into_iter().filter(|other| *other != dtype) {
            wanted.push(format!("cast {dtype} to {other}"));
        }
    }
    for reducer in ["sum", "prod", "min", "max", "any", "all", "argmin", "argmax"] {
        wanted.push(format!("reducer {reducer}"));
    }
    let missing: Vec<&String> =
        wanted.iter().filter(|feature| !coverage.contains_key(*feature)).collect();
    assert!(missing.is_empty(), "never generated: {missing:?}");
}

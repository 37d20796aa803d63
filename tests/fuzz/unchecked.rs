//! Runs refused schedules without the check that refuses them. The check is necessary only if their
//! results are wrong.

use crate::data::{Data, make_args};
use crate::differential::{Case, Interpreted, compare, has_race, load, run};
use crate::rewrite::backwards;
use tec::driver::{self, Failure, Options, PassId, Trace};
use tec::ir::verify::verify_kernel;
use tec::lower::expand_math::expand_math;
use tec::schedule::{self, Legality, infer_bounds};

/// The outcome of a refused schedule.
#[derive(Clone, PartialEq, Debug)]
pub enum UncheckedOutcome {
    /// Its results are wrong, in this way.
    Wrong(&'static str),
    /// Another check refuses it too.
    RefusedOtherwise(String),
    /// No run shows a wrong result.
    Right,
}

/// Runs a refused program with the check of `code` left out.
pub fn check_unchecked(case: &Case, options: &Options, code: &'static str) -> UncheckedOutcome {
    let result = run_unchecked(case, options, code);
    result.map_or_else(|outcome| outcome, |()| UncheckedOutcome::Right)
}

fn run_unchecked(
    case: &Case,
    options: &Options,
    code: &'static str,
) -> Result<(), UncheckedOutcome> {
    let mut trace = Trace::default();
    let options = Options { kernels: Some(vec![case.kernel.clone()]), ..options.clone() };
    let stop = |failure: Failure| match failure {
        Failure::User(diags) => UncheckedOutcome::RefusedOtherwise(diags[0].code.to_string()),
        Failure::Bug { .. } => UncheckedOutcome::Wrong("cannot be built"),
    };
    let program = load(&case.text).map_err(stop)?;
    let graph = driver::elaborate(&program, &options, &mut trace).map_err(stop)?.remove(0);
    let name = options.schedule.as_ref().map_or("default", |(_, name)| &name[..]);
    let bounded = trace.phase("schedule", &String::new, || {
        let (target, defines) = (&options.target, &options.defines);
        let item = schedule::find(&program, &graph.name, name, target).expect("the schedule");
        let policy = Legality::AllBut(code);
        let schedule =
            schedule::apply_with_legality(&program, graph.clone(), target, defines, item, policy)?;
        infer_bounds(schedule)
    });
    let bounded = bounded.map_err(stop)?.map_err(|diag| stop(diag.into()))?;
    let graph = &bounded.schedule.graph;
    let default_loops = driver::lower_unoptimized(graph, &options.target).map_err(stop)?;
    let built = driver::lower(&bounded, &options, Some(PassId::BuildLoops), &mut trace);
    let built = expand_math(built.map_err(stop)?, &options.target).map_err(|d| stop(d.into()))?;
    if verify_kernel(&built).is_err() {
        return Err(UncheckedOutcome::Wrong("cannot be built"));
    }
    let forms = [Some(built.clone()), backwards(&built)];
    for turn in 0..12 {
        let data = [Data::Rough, Data::Ties, Data::Any][turn % 3];
        let seed = case.seed.wrapping_add(turn as u64 / 3);
        // Loops of few iterations would hide most errors.
        let larger = [0, 0, 0, 13, 22, 9, 40, 0, 17, 5, 31, 64][turn];
        let vars = case.vars.iter().map(|(name, value)| (name.clone(), larger.max(*value)));
        let vars: Vec<_> = vars.collect();
        let Some(args) = make_args(&default_loops, &vars, seed, data) else { continue };
        let Ok(expected) = run(&default_loops, &args, "default") else { continue };
        let bound = None;
        let (graph, bounded, kernel) = (graph.clone(), bounded.clone(), built.clone());
        let interpreted = Interpreted { graph, bounded, kernel, args, expected, bound };
        for form in forms.iter().flatten() {
            let Ok(actual) = run(form, &interpreted.args, "unchecked") else {
                return Err(UncheckedOutcome::Wrong(
                    "accesses out of bounds, or reads uninitialized memory",
                ));
            };
            if compare(&interpreted, &actual, "unchecked").is_err() {
                return Err(UncheckedOutcome::Wrong("another result"));
            }
        }
        if has_race(&built, &interpreted.args, true) != Ok(false) {
            return Err(UncheckedOutcome::Wrong("race"));
        }
    }
    // A check is also necessary if the passes cannot lower the schedule.
    let lowered = driver::lower(&bounded, &options, None, &mut trace).map_err(stop)?;
    match verify_kernel(&lowered) {
        Ok(()) => Ok(()),
        Err(_) => Err(UncheckedOutcome::Wrong("cannot be built")),
    }
}

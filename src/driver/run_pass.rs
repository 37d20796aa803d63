//! Runs one pass: verifies and dumps its result.

use super::passes::PassId;
use super::trace::{Failure, Trace};
use crate::ir::Kernel;
use crate::ir::arith::budget;
use crate::ir::print::{Style, print_kernel};
use crate::ir::verify::verify_kernel;
use crate::target::Target;

/// The terms of polynomials that the proofs of a pass may look at, which takes 0.1 to 0.2 seconds.
/// The kernels of `bench/cliffs` need 24,000 at most.
const PROOF_TERMS: i64 = 50_000;

/// Runs a pass if the target and `--opt` have it; verifies and dumps its result.
pub(super) fn run_pass(
    id: PassId,
    kernel: Kernel,
    target: &Target,
    opt: u8,
    trace: &mut Trace,
) -> Result<Kernel, Failure> {
    let Some(pass) = id.pass().filter(|pass| pass.runs(target, opt)) else { return Ok(kernel) };
    let before = (!trace.brief).then(|| kernel.clone());
    let print = || before.as_ref().map_or(String::new(), |ir| print_kernel(ir, Style::Full));
    let run = || budget::within(PROOF_TERMS, || (pass.run)(kernel, target));
    let kernel = trace.phase(pass.name, &print, run)??;
    after_pass(id, before.as_ref(), &kernel, trace)?;
    Ok(kernel)
}

/// Verifies the result of a pass (in debug builds) and dumps it if `--dump` asks for it.
pub(super) fn after_pass(
    id: PassId,
    before: Option<&Kernel>,
    kernel: &Kernel,
    trace: &mut Trace,
) -> Result<(), Failure> {
    if cfg!(debug_assertions)
        && let Err(message) = verify_kernel(kernel)
    {
        let ir = print_kernel(kernel, Style::Full);
        return Err(Failure::Bug { pass: id.name().to_string(), message, ir });
    }
    if trace.dump.is_some_and(|dump| dump.shows(id)) {
        let text = print_kernel(kernel, Style::Full);
        let unchanged = before.is_some_and(|before| print_kernel(before, Style::Full) == text);
        let text = (!unchanged).then_some(text);
        trace.dumps.push((kernel.name.clone(), id.name(), text));
    }
    Ok(())
}

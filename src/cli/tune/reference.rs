//! What the results of every candidate are compared with: the outputs of one schedule, made once
//! for each workload and set of arguments, and kept.

use super::super::data::Given;
use super::plant::spoils_reference;
use super::samples::Trouble;
use super::worker::Bench;
use super::{cache, protocol::Reference, samples};
use crate::driver::Trace;
use crate::ir::interp::Tensor;
use crate::tune::workload::workload_hash;
use sha2::{Digest, Sha256};

/// Elements of a reference output that are compared with the interpreter.
pub const SAMPLES: usize = 1000;

/// The reference output, from the cache or made; `begin` is called before it is made.
pub fn make(
    bench: &mut Bench,
    given: &Given,
    reference: Reference,
    begin: &mut dyn FnMut(),
    notes: &mut Vec<String>,
) -> Result<Vec<Tensor>, Trouble> {
    let key = key(bench, given);
    let kernel = bench.setup.kernel.clone();
    if let Some((outputs, how)) = cache::load(&key) {
        notes.push(format!("the results of `{kernel}` are compared with those kept: {how}"));
        return Ok(outputs);
    }
    let how = match reference {
        Reference::Default | Reference::Patient => "of the plain loops",
        Reference::Auto => "of the rules' schedule",
    };
    let placed = bench.place_reference(reference).map_err(Trouble::Unsampled)?;
    if placed.schedule.reassociated {
        let text = "the schedule of the reference output changes the order of sums";
        return Err(Trouble::Unsampled(text.to_string()));
    }
    let compiled = bench.compile_placed(&placed, &bench.judge, &mut Trace::default());
    let failed = |failure| Trouble::Wrong(format!("the reference output: {failure:?}"));
    let compiled = compiled.map_err(failed)?;
    begin();
    let mut outputs = bench.run_reference(&compiled).map_err(Trouble::Wrong)?;
    if spoils_reference() {
        outputs[0].data[0] ^= 1;
    }
    let how = match reference {
        Reference::Default | Reference::Patient => how.to_string(),
        Reference::Auto => {
            let count = samples::check(bench, &outputs)?;
            format!("{how}, {count} elements of which the interpreter computed too")
        }
    };
    if let Err(why) = cache::store(&key, &how, &outputs) {
        notes.push(format!("the reference output is not kept: {why}"));
    }
    notes.push(format!("the results of `{kernel}` are compared with those {how}"));
    Ok(outputs)
}

/// What the outputs are a function of; the target and the version are in it so that a defect of
/// one does not outlive it.
fn key(bench: &Bench, given: &Given) -> String {
    let mut hash = Sha256::new();
    let setup = &bench.setup;
    hash.update(workload_hash(&bench.graph));
    let words = [env!("CARGO_PKG_VERSION"), &setup.target, &setup.fp_contract];
    words.iter().for_each(|word| hash.update(format!("\n{word}")));
    hash.update(format!("\n{}\n{:?}\n{:?}", given.seed, given.vars, given.scalars));
    for (name, tensor) in &given.tensors {
        hash.update(format!("\n{name} {:?} ", tensor.shape));
        hash.update(&tensor.data);
    }
    cache::hex(&hash.finalize()[..16])
}

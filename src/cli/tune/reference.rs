//! The reference output, with which the results of every candidate are compared: the outputs of one
//! schedule, computed once for each workload and set of arguments, and cached.

use super::super::cache::hex;
use super::harness::Harness;
use super::samples::SampleError;
use super::{cache, protocol::Reference, samples};
use crate::ir::interp::Tensor;
use crate::tune::workload::workload_hash;
use sha2::{Digest, Sha256};

/// Returns the reference output from the cache, or computes it after a call of `begin`.
pub fn make(
    harness: &mut Harness,
    reference: Reference,
    begin: &mut dyn FnMut(),
    notes: &mut Vec<String>,
) -> Result<Vec<Tensor>, SampleError> {
    let key = key(harness);
    let kernel = harness.builder.setup.kernel.clone();
    if let Some((outputs, how)) = cache::load(&key) {
        notes.push(format!("the results of `{kernel}` are compared with cached ones: {how}"));
        return Ok(outputs);
    }
    let how = match reference {
        Reference::Default | Reference::DefaultUnlimited => "of the default schedule",
        Reference::Auto => "of the automatic schedule",
    };
    let bounded = harness.schedule_reference(reference).map_err(SampleError::Unavailable)?;
    if bounded.schedule.reassociated {
        let text = "the schedule of the reference output reorders sums";
        return Err(SampleError::Unavailable(text.to_string()));
    }
    let failed = |failure| SampleError::Mismatch(format!("the reference output: {failure:?}"));
    let mut loaded = harness.load_reference(&bounded).map_err(failed)?;
    begin();
    let outputs = harness.run_reference(&mut loaded).map_err(SampleError::Mismatch)?;
    let how = match reference {
        Reference::Default | Reference::DefaultUnlimited => how.to_string(),
        Reference::Auto => {
            let count = samples::check(harness, &outputs)?;
            format!("{how}, {count} elements of which the interpreter computed too")
        }
    };
    if let Err(why) = cache::store(&key, &how, &outputs) {
        notes.push(format!("the reference output is not cached: {why}"));
    }
    notes.push(format!("the results of `{kernel}` are compared with those {how}"));
    Ok(outputs)
}

/// Returns the cache key: a hash of everything that determines the outputs. It includes the target
/// and the version of `tec`, so that a wrong output of a defective version is not used again.
fn key(harness: &Harness) -> String {
    let given = &harness.given;
    let mut hash = Sha256::new();
    let setup = &harness.builder.setup;
    hash.update(workload_hash(&harness.builder.graph));
    let words = [env!("CARGO_PKG_VERSION"), &setup.target, &setup.fp_contract];
    words.iter().for_each(|word| hash.update(format!("\n{word}")));
    hash.update(format!("\n{}\n{:?}\n{:?}", given.seed, given.vars, given.scalars));
    for (name, tensor) in &given.tensors {
        hash.update(format!("\n{name} {:?} ", tensor.shape));
        hash.update(&tensor.data);
    }
    hex(&hash.finalize()[..16])
}

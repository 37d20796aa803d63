//! Interleaved timing: a round is a batch of calls of each kernel, so that disturbances of the
//! machine and drifts of the clock affect all kernels alike.

use super::machine::LimitLoop;
use crate::diag::Result;
use crate::ir::interp::Value;
use crate::ir::{Kernel, Param, Role};
use crate::module::gpu::TimedCall;
use crate::module::load::{Arg, BoundCall, args_of};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// A call to time.
pub enum Timed<'a> {
    /// On the CPU, timed by its clock.
    Cpu(BoundCall<'a>),
    /// On a GPU, timed by events of the GPU, without the host's time.
    Gpu(TimedCall<'a>),
}

impl Timed<'_> {
    /// Makes `count` calls and returns the seconds.
    pub fn seconds(&mut self, count: usize) -> Result<f64> {
        let call = match self {
            Timed::Cpu(call) => call,
            Timed::Gpu(call) => return call.seconds(count),
        };
        let start = Instant::now();
        for _ in 0..count {
            call.call()?;
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

/// The result of a measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rounds {
    /// For each kernel, the seconds of one call in each round.
    pub times: Vec<Vec<f64>>,
    /// For each kernel, the number of calls.
    pub calls: Vec<usize>,
    /// The rate of the limit's loop in each round, if there is one.
    pub limit: Vec<f64>,
}

/// The fewest rounds for a median.
const MIN_ROUNDS: usize = 3;

/// A call that takes fewer seconds than this runs once untimed before its batch, because the other
/// kernels have evicted its data from the caches.
const SHORT_CALL_SECONDS: f64 = 0.02;

/// Seconds of a batch on a GPU, at least: its first call starts some 20 microseconds after the
/// event before it.
const MIN_GPU_BATCH_SECONDS: f64 = 5e-4;

/// Measures for `min_time` seconds per kernel; each round includes the limit's loop, if any.
pub fn measure_interleaved(
    calls: &mut [Timed<'_>],
    mut limit: Option<&mut LimitLoop>,
    min_time: f64,
) -> Result<Rounds> {
    // Most short batches are undisturbed on a busy system.
    let batch_time = min_time / 250.0;
    let mut batches = Vec::new();
    for call in &mut *calls {
        let least = match call {
            Timed::Cpu(_) => 0.0,
            Timed::Gpu(_) => MIN_GPU_BATCH_SECONDS,
        };
        batches.push(warm_up(call, batch_time.max(least), min_time / 10.0)?);
    }
    let turns = calls.len() > 1 || limit.is_some();
    let mut rounds = Rounds {
        times: vec![Vec::new(); calls.len()],
        calls: vec![0; calls.len()],
        limit: Vec::new(),
    };
    let enough = min_time * calls.len() as f64;
    let mut measured = 0.0;
    while measured < enough || rounds.times[0].len() < MIN_ROUNDS {
        for (at, call) in calls.iter_mut().enumerate() {
            let Batch { count, one } = batches[at];
            if turns && one < SHORT_CALL_SECONDS {
                call.seconds(1)?;
            }
            let elapsed = call.seconds(count)?;
            measured += elapsed;
            rounds.times[at].push(elapsed / count as f64);
            rounds.calls[at] += count;
        }
        if let Some(limit) = &mut limit {
            rounds.limit.push(limit.window(batch_time.max(0.002)));
        }
    }
    Ok(rounds)
}

/// The batches of a kernel.
struct Batch {
    /// Calls of a batch.
    count: usize,
    /// Approximate seconds of one call.
    one: f64,
}

/// Calls for `time` seconds, and returns the number of calls of a batch.
fn warm_up(call: &mut Timed<'_>, batch_time: f64, time: f64) -> Result<Batch> {
    call.seconds(1)?;
    let begin = Instant::now();
    let mut count = 1;
    loop {
        let one = call.seconds(count)?.max(1e-9) / count as f64;
        let wanted = ((batch_time / one) as usize).clamp(1, 1 << 24);
        if wanted <= 2 * count && begin.elapsed().as_secs_f64() >= time {
            return Ok(Batch { count: wanted, one });
        }
        count = wanted.min(64 * count);
    }
}

/// Arguments with tensors aligned to 64 bytes, like arrays of other libraries.
pub struct AlignedArgs {
    values: Vec<Value>,
    /// The offset of each tensor's first element in its data.
    starts: Vec<usize>,
    /// The elements of each tensor that calls update in place, before the first one.
    initial: Vec<Option<Vec<u8>>>,
}

/// Alignment in bytes.
const ALIGNMENT: usize = 64;

impl AlignedArgs {
    /// Copies the tensors of a call of `kernel` to aligned addresses.
    pub fn new(kernel: &Kernel, mut values: Vec<Value>) -> AlignedArgs {
        let (mut starts, mut initial) = (Vec::new(), Vec::new());
        for (param, value) in kernel.params.iter().zip(&mut values) {
            let Value::Tensor(tensor) = value else { continue };
            let is_inout = matches!(param, Param::Tensor { role: Role::Inout, .. });
            initial.push(is_inout.then(|| tensor.data.clone()));
            let bytes = tensor.data.len();
            let mut data = vec![0; bytes + ALIGNMENT];
            let start = data.as_ptr().align_offset(ALIGNMENT);
            data[start..start + bytes].copy_from_slice(&tensor.data);
            tensor.data = data;
            starts.push(start);
        }
        AlignedArgs { values, starts, initial }
    }

    /// Returns the bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let bytes = |value: &Value| match value {
            Value::Tensor(tensor) => tensor.data.len() as u64,
            _ => 0,
        };
        self.values.iter().map(bytes).sum()
    }

    /// Returns the bytes of each output, in order.
    pub fn results(&self, kernel: &Kernel) -> Vec<&[u8]> {
        let mut starts = self.starts.iter();
        let mut results = Vec::new();
        for (param, value) in kernel.params.iter().zip(&self.values) {
            let Value::Tensor(tensor) = value else { continue };
            let start = *starts.next().expect("one per tensor");
            if param.is_written() {
                results.push(&tensor.data[start..][..tensor.data.len() - ALIGNMENT]);
            }
        }
        results
    }

    /// Fills the outputs with a pattern, so that elements that are not written differ from the
    /// reference. Tensors that calls update in place get their first elements again.
    pub fn reset_outputs(&mut self, kernel: &Kernel) {
        let mut tensors = self.starts.iter().zip(&self.initial);
        for (param, value) in kernel.params.iter().zip(&mut self.values) {
            let Value::Tensor(tensor) = value else { continue };
            let (start, initial) = tensors.next().expect("one per tensor");
            match initial {
                Some(initial) => {
                    tensor.data[*start..][..initial.len()].copy_from_slice(initial);
                }
                None if param.is_written() => tensor.data.fill(0xa5),
                None => {}
            }
        }
    }

    /// Whether a call changes the arguments of the next one.
    pub fn are_updated(&self) -> bool {
        self.initial.iter().any(Option::is_some)
    }

    /// Returns the arguments of the kernel's checked entry.
    pub fn of(&mut self, kernel: &Kernel) -> Vec<Arg<'_>> {
        let mut starts = self.starts.iter();
        let mut next = || *starts.next().expect("one per tensor");
        let args = args_of(kernel, &mut self.values).into_iter();
        args.map(|arg| match arg {
            Arg::Input(dtype, shape, data) => Arg::Input(dtype, shape, &data[next()..]),
            Arg::Output(dtype, shape, data) => Arg::Output(dtype, shape, &mut data[next()..]),
            Arg::Quantized(dtype, shape, data) => Arg::Quantized(dtype, shape, &mut data[next()..]),
            other => other,
        })
        .collect()
    }
}

//! Timing calls in turns: a round is a batch of calls of each, so that whatever disturbs the
//! machine disturbs all alike, and ratios stay true while the clock drifts.

use super::machine::LimitLoop;
use crate::diag::Result;
use crate::ir::interp::Value;
use crate::ir::{Kernel, Param};
use crate::module::gpu::TimedCall;
use crate::module::load::{Arg, BoundCall, args_of};
use std::time::Instant;

/// A call that is measured.
pub enum Timed<'a> {
    /// On the CPU, by its clock.
    Cpu(BoundCall<'a>),
    /// On a GPU, by events of the GPU: what the host does is not in it.
    Gpu(TimedCall<'a>),
}

impl Timed<'_> {
    /// Seconds of so many calls.
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

/// What was measured.
pub struct Rounds {
    /// Of each call, seconds of one in each round.
    pub times: Vec<Vec<f64>>,
    /// Of each call, how many there were.
    pub calls: Vec<usize>,
    /// The limit's rate in each round, if there was one.
    pub limit: Vec<f64>,
}

/// Rounds at least: a median of fewer says nothing.
const MIN_ROUNDS: usize = 3;

/// A call that takes less than this runs once before its batch, untimed, because the others had
/// the caches in between.
const SHORT: f64 = 0.02;

/// Measures for `min_time` seconds for each call; a limit's loop has its turn in every round.
pub fn in_turns(
    calls: &mut [Timed<'_>],
    mut limit: Option<&mut LimitLoop>,
    min_time: f64,
) -> Result<Rounds> {
    // Short batches, of which a busy system leaves most alone.
    let batch_time = min_time / 250.0;
    let mut batches = Vec::new();
    for call in &mut *calls {
        batches.push(warm_up(call, batch_time, min_time / 10.0)?);
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
            if turns && one < SHORT {
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

/// How a call is measured.
struct Batch {
    /// Calls of a batch.
    count: usize,
    /// Seconds of one, about.
    one: f64,
}

/// Calls for `time` seconds, and finds how many calls last as long as a batch.
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

/// Arguments whose tensors begin at multiples of 64 bytes, as arrays of other libraries do.
pub struct AlignedArgs {
    values: Vec<Value>,
    /// Where each tensor's first element is in its data.
    starts: Vec<usize>,
}

/// The boundary.
const ALIGNMENT: usize = 64;

impl AlignedArgs {
    /// Moves the tensors' elements to the boundary.
    pub fn new(mut values: Vec<Value>) -> AlignedArgs {
        let mut starts = Vec::new();
        for value in &mut values {
            let Value::Tensor(tensor) = value else { continue };
            let bytes = tensor.data.len();
            let mut data = vec![0; bytes + ALIGNMENT];
            let start = data.as_ptr().align_offset(ALIGNMENT);
            data[start..start + bytes].copy_from_slice(&tensor.data);
            tensor.data = data;
            starts.push(start);
        }
        AlignedArgs { values, starts }
    }

    /// What all tensors take.
    pub fn bytes(&self) -> u64 {
        let bytes = |value: &Value| match value {
            Value::Tensor(tensor) => tensor.data.len() as u64,
            _ => 0,
        };
        self.values.iter().map(bytes).sum()
    }

    /// The bytes of each output, in order.
    pub fn results(&self, kernel: &Kernel) -> Vec<&[u8]> {
        let mut starts = self.starts.iter();
        let mut results = Vec::new();
        for (param, value) in kernel.params.iter().zip(&self.values) {
            let Value::Tensor(tensor) = value else { continue };
            let start = *starts.next().expect("one per tensor");
            if matches!(param, Param::Tensor { output: true, .. }) {
                results.push(&tensor.data[start..][..tensor.data.len() - ALIGNMENT]);
            }
        }
        results
    }

    /// Fills the outputs with a pattern that no result is, so that what is not written shows.
    pub fn spoil(&mut self, kernel: &Kernel) {
        for (param, value) in kernel.params.iter().zip(&mut self.values) {
            if let (Param::Tensor { output: true, .. }, Value::Tensor(tensor)) = (param, value) {
                tensor.data.fill(0xa5);
            }
        }
    }

    /// The arguments of the kernel's checked entry.
    pub fn of(&mut self, kernel: &Kernel) -> Vec<Arg<'_>> {
        let mut starts = self.starts.iter();
        let mut next = || *starts.next().expect("one per tensor");
        let args = args_of(kernel, &mut self.values).into_iter();
        args.map(|arg| match arg {
            Arg::Input(dtype, shape, data) => Arg::Input(dtype, shape, &data[next()..]),
            Arg::Output(dtype, shape, data) => Arg::Output(dtype, shape, &mut data[next()..]),
            other => other,
        })
        .collect()
    }
}

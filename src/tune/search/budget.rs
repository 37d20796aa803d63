//! Several kernels share one budget: the next batch goes to the kernel that is expected to gain
//! the most of it.
//!
//! The expected gain of a kernel is what a further batch may take off its time: a fraction of it
//! that falls with the batches that brought nothing, and never more than what the machine's limits
//! leave (Ansor, section 6, with the limits of the cost model in place of a prediction).

/// What is known of one kernel's search.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Seconds of the best after each batch, the last one at the end; nothing while none is right.
    pub best: Vec<Option<f64>>,
    /// No candidate is faster than this, as the machine's limits say; 0 if they say nothing.
    pub floor: f64,
    /// Its space holds nothing new.
    pub exhausted: bool,
}

/// Batches back to look for a gain.
const WINDOW: usize = 3;

impl Progress {
    /// Nothing measured yet.
    pub fn new(floor: f64) -> Progress {
        Progress { best: Vec::new(), floor, exhausted: false }
    }

    /// Seconds that another batch is expected to save; without end while nothing is known.
    pub fn gain(&self) -> f64 {
        let Some(Some(last)) = self.best.last().copied() else { return f64::INFINITY };
        let batches = self.best.len();
        let back = batches.saturating_sub(1 + WINDOW);
        let recent = match self.best[back] {
            Some(before) if batches > 1 => (before - last) / (batches - 1 - back).max(1) as f64,
            // The first that is right is the first of many.
            _ => last,
        };
        // Where nothing was gained of late something may still be, the less the longer it was
        // looked for.
        let hope = last / (batches * batches) as f64;
        recent.max(hope).min((last - self.floor).max(0.0))
    }
}

/// Whose turn it is: the largest expected gain, the first of those alike; none if nobody has
/// anything left to try.
pub fn next(all: &[Progress]) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (at, progress) in all.iter().enumerate().filter(|(_, progress)| !progress.exhausted) {
        let gain = progress.gain();
        if best.is_none_or(|(_, most)| gain > most) {
            best = Some((at, gain));
        }
    }
    best.map(|(at, _)| at)
}

//! Distributes a budget among kernels: the next batch goes to the kernel with the largest expected
//! gain.
//!
//! The expected gain is the time that another batch may save: recent gains, or a fraction of the
//! time that falls with the number of batches, limited by the machine's roofline (Ansor, section
//! 6).

/// The progress of one kernel's search.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The best seconds after each batch, in order; none before the first right result.
    pub best: Vec<Option<f64>>,
    /// The least seconds by the machine's roofline; 0 if it is unknown.
    pub floor: f64,
    /// Whether its space has no more candidates.
    pub exhausted: bool,
    /// The number of calls that count: those of one call of its network, or 1.
    pub calls: usize,
}

/// Batches over which a recent gain is measured.
const WINDOW: usize = 3;

impl Progress {
    /// Returns the progress before the first batch.
    pub fn new(floor: f64) -> Progress {
        Progress { best: Vec::new(), floor, exhausted: false, calls: 1 }
    }

    /// Returns the seconds that another batch is expected to save in all `calls` together; infinite
    /// before the first result.
    pub fn gain(&self) -> f64 {
        let Some(Some(last)) = self.best.last().copied() else { return f64::INFINITY };
        let batches = self.best.len();
        let back = batches.saturating_sub(1 + WINDOW);
        let recent = match self.best[back] {
            Some(before) if batches > 1 => (before - last) / (batches - 1 - back).max(1) as f64,
            // No right result before: large gains are likely.
            _ => last,
        };
        // Without a recent gain, the expectation falls with the number of batches.
        let hope = last / (batches * batches) as f64;
        recent.max(hope).min((last - self.floor).max(0.0)) * self.calls as f64
    }
}

/// Returns the kernel with the largest expected gain, the first of equals; none if all are
/// exhausted.
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

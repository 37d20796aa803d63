//! Damaged inputs of every kind that `tec` reads: programs (`source`), modules, records, NumPy
//! files (`files`), PTX (`ptx`) and the connections of `--on` (`frames`). Whatever the bytes are,
//! the outcome is an error or a result, never a panic, within the time limit of the kind.
//!
//! An input depends only on the seed and its number. While an input is processed, it is in
//! `target/tmp/damaged-KIND-THREAD`, in case the process dies.

pub mod files;
pub mod frames;
pub mod ptx;
pub mod source;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tec::driver::with_stack;

/// An input that takes longer counts as a hang, and the process is killed.
const HANG_LIMIT: Duration = Duration::from_secs(120);

/// The number of inputs between two progress lines of a long run.
const PROGRESS_INTERVAL: u64 = 50_000;

/// The number of findings after which a thread stops.
const MAX_FINDINGS: usize = 5;

thread_local! {
    /// Whether panics of this thread are findings, which are printed with their input.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Suppresses the messages of panics on this thread.
pub fn be_quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.with(Cell::get) || std::env::var_os("TEC_FUZZ_LOUD").is_some() {
                print(info);
            }
        }));
    });
    QUIET.with(|quiet| quiet.set(true));
}

/// A kind of input.
pub trait Kind: Sync {
    /// Its name in messages and files.
    fn name(&self) -> &'static str;

    /// Returns the time limit of one input.
    fn limit(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// Returns the extension of its files.
    fn ending(&self, _number: u64) -> &'static str {
        "bin"
    }

    /// Returns an input.
    fn make(&self, rng: &mut ChaCha8Rng, number: u64) -> Vec<u8>;

    /// Feeds an input, which is also in the file `path`, to its reader. Returns whether it was
    /// accepted; an error describes a defect of `tec`.
    fn feed(&self, bytes: &[u8], number: u64, path: &Path) -> Result<bool, String>;
}

/// Feeds `n` damaged inputs from a seed on, or as many as fit `time`; panics with the findings.
/// Some inputs must be accepted and some refused: otherwise either the code after the first check
/// is not tested, or nothing is damaged.
pub fn feed(kind: &dyn Kind, n: u64, seed: u64, time: Option<Duration>) {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let work = |thread: usize| {
        be_quiet();
        let stem = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("damaged-{}-{thread}", kind.name()));
        let mut tally = Tally::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let late = time.is_some_and(|time| start.elapsed() > time);
            if number >= n || late || tally.findings.len() >= MAX_FINDINGS {
                return tally;
            }
            if number > 0 && number.is_multiple_of(PROGRESS_INTERVAL) {
                println!("{number} damaged inputs of kind {}", kind.name());
            }
            let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9) ^ number);
            let path = stem.with_extension(kind.ending(number));
            tally.add(kind, number, &kind.make(&mut rng, number), &path);
        }
    };
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let work = &work;
        let start = |thread| scope.spawn(move || with_stack(|| work(thread)));
        let threads: Vec<_> = (0..2).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a quiet thread")).collect()
    });
    let tried: u64 = tallies.iter().map(|tally| tally.tried).sum();
    let accepted: u64 = tallies.iter().map(|tally| tally.accepted).sum();
    let slowest = tallies.iter().map(|tally| tally.slowest).max().unwrap_or_default();
    println!(
        "{tried} damaged inputs of kind {} from seed {seed}: {accepted} accepted, slowest {:.3} s \
         (number {})",
        kind.name(),
        slowest.0.as_secs_f64(),
        slowest.1,
    );
    let findings: Vec<String> = tallies.into_iter().flat_map(|tally| tally.findings).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
    assert!(tried < 100 || (1..tried).contains(&accepted), "{accepted} of {tried} were accepted");
}

/// The outcomes of the inputs of a thread.
#[derive(Default)]
struct Tally {
    tried: u64,
    accepted: u64,
    /// The longest time, with its input's number.
    slowest: (Duration, u64),
    findings: Vec<String>,
}

impl Tally {
    fn add(&mut self, kind: &dyn Kind, number: u64, bytes: &[u8], path: &Path) {
        std::fs::write(path, bytes).expect("the target folder can be written");
        let watch = Watch::new(path);
        let attempt = || {
            let start = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(|| kind.feed(bytes, number, path)));
            (result, start.elapsed())
        };
        let (result, mut elapsed) = attempt();
        if elapsed > kind.limit() {
            // The machine may have been busy.
            elapsed = elapsed.min(attempt().1);
        }
        drop(watch);
        self.tried += 1;
        self.slowest = self.slowest.max((elapsed, number));
        let finding = match result {
            Ok(Ok(_)) if elapsed > kind.limit() => format!("takes {elapsed:?}"),
            Ok(Ok(accepted)) => {
                self.accepted += u64::from(accepted);
                return;
            }
            Ok(Err(finding)) => finding,
            Err(panic) => format!("panics: {}", tec::driver::panic_text(&*panic)),
        };
        let kept = path.with_file_name(format!("finding-{}-{number}", kind.name()));
        let kept = kept.with_extension(kind.ending(number));
        std::fs::write(&kept, bytes).expect("the target folder can be written");
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let text = text.unwrap_or("(binary)");
        self.findings.push(format!(
            "{}: {finding}\n--- number {number}, {}\n{text}",
            kind.name(),
            kept.display()
        ));
    }
}

/// Aborts the process if it is not dropped in time, because a thread that hangs cannot be stopped.
struct Watch(#[expect(dead_code, reason = "dropped with the watch")] std::sync::mpsc::Sender<()>);

impl Watch {
    fn new(path: &Path) -> Watch {
        let (done, over) = std::sync::mpsc::channel::<()>();
        let path = path.to_path_buf();
        std::thread::spawn(move || {
            if over.recv_timeout(HANG_LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                println!("hangs: {}", path.display());
                std::process::abort();
            }
        });
        Watch(done)
    }
}

/// Numbers at or near limits.
const NUMBERS: [&str; 19] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "255",
    "256",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "1e308",
    "1e-400",
    "0x7fffffff",
    "1.5",
    "-0.0",
];

/// Splits a text into words, numbers, signs and white space.
pub fn tokens(text: &str) -> Vec<String> {
    let kind = |c: char| match c {
        _ if c.is_alphanumeric() || c == '_' => 0,
        _ if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut tokens: Vec<String> = Vec::new();
    let mut last = 3;
    for c in text.chars() {
        match kind(c) {
            now if now == last && now < 2 => tokens.last_mut().expect("one").push(c),
            now => {
                tokens.push(c.to_string());
                last = now;
            }
        }
    }
    tokens
}

pub fn mutate_tokens(tokens: &mut Vec<String>, rng: &mut ChaCha8Rng) {
    if tokens.is_empty() {
        return;
    }
    let (at, other) = (rng.random_range(0..tokens.len()), rng.random_range(0..tokens.len()));
    match rng.random_range(0..8) {
        0 => drop(tokens.remove(at)),
        1 => tokens.swap(at, other),
        2 | 3 => tokens[at] = tokens[other].clone(),
        4 => tokens.insert(at, tokens[other].clone()),
        5 => {
            let end = (at + rng.random_range(1..12)).min(tokens.len());
            let copy = tokens[at..end].to_vec();
            let other = other.min(tokens.len());
            drop(tokens.splice(other..other, copy));
        }
        _ => {
            let numbers: Vec<usize> = (0..tokens.len())
                .filter(|at| tokens[*at].starts_with(|c: char| c.is_ascii_digit()))
                .collect();
            if !numbers.is_empty() {
                let at = numbers[rng.random_range(0..numbers.len())];
                tokens[at] = NUMBERS[rng.random_range(0..NUMBERS.len())].to_string();
            }
        }
    }
}

/// Damages a text: some of its words, or some of its bytes.
pub fn damage_text(text: &str, rng: &mut ChaCha8Rng) -> Vec<u8> {
    if rng.random_bool(0.1) {
        return damage_bytes(text.as_bytes(), rng);
    }
    let mut tokens = tokens(text);
    for _ in 0..rng.random_range(1..5) {
        mutate_tokens(&mut tokens, rng);
    }
    tokens.concat().into_bytes()
}

/// Damages bytes by one to four changes, insertions, deletions, copies and truncations.
pub fn damage_bytes(base: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for _ in 0..rng.random_range(1..5) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.random_range(0..bytes.len());
        let end = (at + rng.random_range(1..16)).min(bytes.len());
        match rng.random_range(0..8) {
            0 => bytes[at] = rng.random_range(0..=255),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, rng.random_range(0..=255)),
            3 => drop(bytes.drain(at..end)),
            4 => bytes[at..end].fill([0, 0x7f, 0x80, 0xff][rng.random_range(0..4)]),
            5 => {
                let copy = bytes[at..end].to_vec();
                let place = rng.random_range(0..=bytes.len());
                drop(bytes.splice(place..place, copy));
            }
            _ => bytes[at] ^= 1 << rng.random_range(0..8),
        }
    }
    bytes
}

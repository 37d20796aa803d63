//! Damaged programs and random words: whatever the input is, the compiler answers with errors or
//! code, never with a panic, and soon.

use crate::generate::generate;
use crate::judge;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tec::codegen::clif::ObjectOptions;
use tec::driver::{self, Failure, FpContract, Options, Trace, with_stack};
use tec::target::Target;

/// What one program may take.
const TIME: Duration = Duration::from_secs(10);
/// After this time a program hangs, and the process is ended with its text in the file.
const HANGS: Duration = Duration::from_secs(120);

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "2",
    "255",
    "256",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "1e308",
    "1e-400",
    "0x7fffffff",
    "1.5",
];

thread_local! {
    /// Panics of this thread are findings, shown with their program.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Panics on this thread print nothing from now on.
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

/// Feeds `n` damaged texts to the compiler, or as many as fit `time`.
pub fn damaged(n: u64, seed: u64, time: Option<Duration>) {
    let start = Instant::now();
    let samples = samples();
    let (next, tried) = (AtomicU64::new(0), AtomicU64::new(0));
    let next = &next;
    let findings: Vec<String> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (samples, tried) = (&samples, &tried);
            move || {
                with_stack(|| {
                    be_quiet();
                    let mut findings = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let late = time.is_some_and(|time| start.elapsed() > time);
                        if number >= n || late || findings.len() > 4 {
                            return findings;
                        }
                        tried.fetch_add(1, Ordering::Relaxed);
                        let text = text(samples, seed, number);
                        findings.extend(attempt(&text, number, thread));
                    }
                })
            }
        };
        let threads: Vec<_> = (0..2).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a quiet thread")).collect()
    });
    println!("{} damaged programs from seed {seed}", tried.load(Ordering::Relaxed));
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
}

fn samples() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    for folder in ["samples", "lib"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("a folder of the repository");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        let programs = paths.iter().filter(|path| path.extension().is_some_and(|e| e == "te"));
        texts.extend(programs.map(|path| std::fs::read_to_string(path).expect("UTF-8")));
    }
    texts
}

/// The text of a number: mostly a damaged sample or random program, sometimes words at random.
fn text(samples: &[String], seed: u64, number: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9) ^ number);
    let base = match rng.random_bool(0.4) {
        true => generate(seed, number, "p").text(),
        false => samples[rng.random_range(0..samples.len())].clone(),
    };
    let mut tokens = tokens(&base);
    match rng.random_range(0..10) {
        0 => bytes(&base, &mut rng),
        1 => {
            let other = &samples[rng.random_range(0..samples.len())];
            let pool: Vec<String> = tokens.into_iter().chain(self::tokens(other)).collect();
            let count = rng.random_range(1..60);
            let words: Vec<String> =
                (0..count).map(|_| pool[rng.random_range(0..pool.len())].clone()).collect();
            // Half of the soups stand where expressions do.
            match rng.random_bool(0.5) {
                true => format!(
                    "kernel k(n: var) {{ input A: float32[n] output C[i: n] = {} }}",
                    words.join(" ")
                ),
                false => words.join(" "),
            }
        }
        _ => {
            for _ in 0..rng.random_range(1..5) {
                mutate(&mut tokens, &mut rng);
            }
            tokens.concat()
        }
    }
}

/// Words, numbers, signs and the blanks between them.
fn tokens(text: &str) -> Vec<String> {
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

fn mutate(tokens: &mut Vec<String>, rng: &mut ChaCha8Rng) {
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

fn bytes(text: &str, rng: &mut ChaCha8Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..4) {
            0 => bytes[at] = rng.random_range(0..=255),
            1 => bytes.truncate(at.max(1)),
            2 => bytes.insert(at, rng.random_range(0..=255)),
            _ => bytes[at] ^= 1 << rng.random_range(0..7),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Compiles a text as far as it goes; what is wrong with the compiler, if anything.
fn attempt(text: &str, number: u64, thread: usize) -> Option<String> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("damaged-{thread}.te"));
    std::fs::write(&path, text).expect("the target folder can be written");
    let (done, over) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if over.recv_timeout(HANGS) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            println!("hangs: {}", path.display());
            std::process::abort();
        }
    });
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| compile(text, number)));
    let mut elapsed = start.elapsed();
    if elapsed > TIME {
        // The machine may have been busy.
        let start = Instant::now();
        let _ = catch_unwind(AssertUnwindSafe(|| compile(text, number)));
        elapsed = elapsed.min(start.elapsed());
    }
    drop(done);
    let failure = match result {
        Ok(Ok(()) | Err(Failure::User(_))) if elapsed <= TIME => return None,
        Ok(Ok(()) | Err(Failure::User(_))) => format!("takes {elapsed:?}"),
        Ok(Err(Failure::Bug { pass, message, .. })) => format!("bug in {pass}: {message}"),
        Err(_) => "a panic outside of every phase".to_string(),
    };
    Some(format!("{failure}\n--- number {number}\n{text}"))
}

fn compile(text: &str, number: u64) -> Result<(), Failure> {
    let program = judge::load(text)?;
    let targets = Target::cpus();
    let mut options = Options::new(targets[number as usize % targets.len()].clone());
    options.fp_contract = [FpContract::Off, FpContract::Fast][number as usize / 5 % 2];
    options.opt = [3, 0, 1, 2][number as usize / 10 % 4];
    let mut trace = Trace::default();
    let graphs = driver::elaborate(&program, &options, &mut trace)?;
    let graphs = driver::schedule(&program, graphs, &options, &mut trace)?;
    let kernels = graphs
        .iter()
        .map(|graph| driver::lower(graph, &options, None, &mut trace))
        .collect::<Result<Vec<_>, _>>()?;
    let object = ObjectOptions { module: "fuzz".to_string(), ..ObjectOptions::default() };
    driver::compile_object(&kernels, &options.target, &object, &mut trace)?;
    Ok(())
}

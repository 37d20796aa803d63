//! Damaged programs: samples, library files and random programs with words, numbers and bytes
//! changed, and random words. The compiler must return errors or code for each.

use super::{Kind, damage_text, tokens};
use crate::differential;
use crate::generate::generate;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::Duration;
use tec::codegen::ObjectOptions;
use tec::driver::{self, Failure, FpContract, Options, Trace};
use tec::lang::ast::Item;
use tec::target::Target;

/// Damaged programs for the compiler.
pub struct Sources {
    samples: Vec<String>,
    seed: u64,
}

impl Sources {
    /// Takes the samples, the library files and the tests of packs of the repository, and random
    /// programs of a seed.
    pub fn new(seed: u64) -> Sources {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut samples = Vec::new();
        for folder in ["samples", "lib", "tests/golden/run/pack", "tests/golden/lower/pack"] {
            let entries = std::fs::read_dir(root.join(folder)).expect("a folder of the repository");
            let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
            paths.sort();
            let programs = paths.iter().filter(|path| path.extension().is_some_and(|e| e == "te"));
            samples.extend(programs.map(|path| std::fs::read_to_string(path).expect("UTF-8")));
        }
        Sources { samples, seed }
    }

    /// Returns random words of two texts; half of the results are expressions of a kernel.
    fn soup(&self, base: &str, rng: &mut ChaCha8Rng) -> String {
        let other = &self.samples[rng.random_range(0..self.samples.len())];
        let pool: Vec<String> = tokens(base).into_iter().chain(tokens(other)).collect();
        let count = rng.random_range(1..60);
        let words: Vec<&str> =
            (0..count).map(|_| &pool[rng.random_range(0..pool.len())][..]).collect();
        let words = words.join(" ");
        match rng.random_bool(0.5) {
            true => format!("kernel k(n: var) {{ input A: float32[n] output C[i: n] = {words} }}"),
            false => words,
        }
    }
}

impl Kind for Sources {
    fn name(&self) -> &'static str {
        "source"
    }

    /// Returns the time limit of one program, with extents of any size and all its schedules.
    fn limit(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn ending(&self, _number: u64) -> &'static str {
        "te"
    }

    fn make(&self, rng: &mut ChaCha8Rng, number: u64) -> Vec<u8> {
        let base = match rng.random_bool(0.4) {
            true => generate(self.seed, number, "p").text(),
            false => self.samples[rng.random_range(0..self.samples.len())].clone(),
        };
        match rng.random_bool(0.1) {
            true => self.soup(&base, rng).into_bytes(),
            false => damage_text(&base, rng),
        }
    }

    fn feed(&self, bytes: &[u8], number: u64, _path: &Path) -> Result<bool, String> {
        accepted(compile(&String::from_utf8_lossy(bytes), number))
    }
}

/// Whether a compilation succeeded; a bug is an error.
pub fn accepted(result: Result<(), Failure>) -> Result<bool, String> {
    match result {
        Ok(()) => Ok(true),
        Err(Failure::User(_)) => Ok(false),
        Err(Failure::Bug { pass, message, .. }) => Err(format!("bug in {pass}: {message}")),
    }
}

/// Compiles a text as far as possible. The number selects the target, the options and the schedule;
/// the other schedules are checked.
pub fn compile(text: &str, number: u64) -> Result<(), Failure> {
    let number = number as usize;
    let program = differential::load(text)?;
    let targets = Target::all();
    let mut options = Options::new(targets[number % targets.len()].clone());
    options.fp_contract = [FpContract::Off, FpContract::Fast][number / 5 % 2];
    options.opt = [3, 0, 1, 2][number / 10 % 4];
    let items = program.files.iter().flat_map(|file| &file.items);
    let names: Vec<&str> = items
        .filter_map(|item| match item {
            Item::Schedule(schedule) => schedule.name.as_ref().map(|name| &name.text[..]),
            _ => None,
        })
        .collect();
    if !names.is_empty() && !number.is_multiple_of(4) {
        options.schedule = Some((None, names[number / 4 % names.len()].to_string()));
    }
    let mut trace = Trace::default();
    let graphs = driver::elaborate(&program, &options, &mut trace)?;
    if number.is_multiple_of(3) {
        driver::check_schedules(&program, &graphs, &options, &mut trace)?;
    }
    let graphs = driver::schedule(&program, graphs, &options, &mut trace)?;
    let kernels = graphs
        .iter()
        .map(|graph| driver::lower(graph, &options, None, &mut trace))
        .collect::<Result<Vec<_>, _>>()?;
    if options.target.is_gpu() {
        driver::compile_ptx(&kernels, &options.target, &mut trace)?;
        return Ok(());
    }
    let object = ObjectOptions { module: "fuzz".to_string(), ..ObjectOptions::default() };
    driver::compile_object(&kernels, &options.target, &object, &mut trace)?;
    Ok(())
}

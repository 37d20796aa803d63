//! Shared helpers of tests: random numbers, programs as texts, `tec` and `ptxas` as commands.

pub mod data;
pub mod differential;
pub mod network;
pub mod placed;
pub mod rewrite;
pub mod systems;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tec::driver::{self, Options, Trace};
use tec::ir::Kernel;
use tec::lang::Loader;
use tec::module::load::LoadedModule;
use tec::module::{BuildInfo, KernelInfo, ModuleKind};
use tec::target::{Arch, Target};

/// SplitMix64 (Steele, Lea, Flood, 2014).
pub struct Random(pub u64);

impl Random {
    /// Returns a number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Returns true with probability 1/2.
    pub fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Returns one of a list.
    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A program as a text with its file name; imports are read from files.
pub struct Memory<'a>(pub &'static str, pub &'a str);

impl Loader for Memory<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == self.0 {
            return Ok(self.1.as_bytes().to_vec());
        }
        Disk.read(path)
    }
}

/// Programs in files.
pub struct Disk;

impl Loader for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error| error.kind().to_string())
    }
}

/// Runs `tec`.
pub fn tec(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tec")).args(args).output().expect("tec starts")
}

/// Runs `tec`: whether it succeeded, and its output and messages.
pub fn answer(args: &[&str]) -> (bool, String) {
    let output = tec(args);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("UTF-8"))
}

/// Compiles the only kernel of a program: it after all passes, and its module.
pub fn compile(text: &str, options: &Options) -> (Kernel, LoadedModule) {
    let mut trace = Trace::default();
    let program = driver::load("k.te", &Memory("k.te", text), &mut trace)
        .unwrap_or_else(|(_, failure)| panic!("{failure:?}\n{text}"));
    let graphs = driver::elaborate(&program, options, &mut trace).expect("it is elaborated");
    let bounded = driver::schedule(&program, graphs, options, &mut trace).expect("a schedule");
    let kernel = driver::lower(&bounded[0], options, None, &mut trace).expect("it is lowered");
    let graph = &bounded[0].schedule.graph;
    let info = BuildInfo {
        module: "k".to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: Vec::new(),
        kernels: vec![KernelInfo {
            parameters: Vec::new(),
            schedule: bounded[0].schedule.text.clone(),
            automatic: false,
            work: driver::count_work(graph, &options.target).expect("it is counted"),
            prepack_role: None,
        }],
    };
    let kernels = std::slice::from_ref(&kernel);
    let built = driver::build(kernels, &info, ModuleKind::SharedObject, &mut trace);
    let module = LoadedModule::from_bytes(&built.expect("the kernel compiles").bytes);
    (kernel, module.expect("the module loads"))
}

/// Prints that something was skipped, even if the output of passing tests is captured.
pub fn say_skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}");
}

/// Whether code for a target runs here; if not, prints that `what` is skipped, and why. The
/// operating system must confirm that features are missing, so that a machine with them skips
/// nothing.
pub fn runs_here(target: &Target, what: &str) -> bool {
    if target.runs_here() {
        return true;
    }
    if Some(target.arch) != Arch::host() {
        say_skipped(&format!("{what}: code for {target} does not run on this kind of processor"));
        return false;
    }
    let kernel_name = |feature: &str| match feature {
        "sse4.1" => "sse4_1".to_string(),
        "bf16" | "fp16" | "vnni" => format!("avx512_{feature}"),
        "amx-bf16" | "amx-int8" => feature.replace('-', "_"),
        other => other.to_string(),
    };
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = known.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |feature: &str| flags.split_whitespace().any(|flag| flag == kernel_name(feature));
    let missing: Vec<&str> = target.features.iter().copied().filter(|name| !has(name)).collect();
    assert!(
        !missing.is_empty(),
        "{what}: this processor has all of {target}, and tec says it has not"
    );
    say_skipped(&format!("{what}: this processor has no {}", missing.join(", ")));
    false
}

/// NVIDIA's assembler: that of `TEC_PTXAS`, or the one that `make test` installs. If there is none,
/// prints that something is skipped.
pub fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("TEC_PTXAS").map(PathBuf::from);
    let found = named.or_else(|| {
        let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/lib");
        let pythons = lib.read_dir().ok()?.flatten();
        pythons
            .map(|python| python.path().join("site-packages/nvidia/cu13/bin/ptxas"))
            .find(|path| path.exists())
    });
    if found.is_none() {
        say_skipped("no ptxas (`make test` installs it into .venv)");
    }
    found
}

/// Runs the test `name` of this program in a process of its own, started by `command`, whose last
/// arguments are the test's. Fails unless that one test ran and passed.
pub fn run_alone(name: &str, command: &mut Command) {
    let output = command.args(["--exact", name]).output().expect("the process starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{name}\n{said}");
}

//! Damaged PTX in the emulator: it is refused, or it runs to its end or to the limit on
//! instructions.

use super::files::build;
use super::{Kind, damage_text, tokens};
use nvptx_emulator::{Launch, Memory, Module};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::Duration;
use tec::module::extent::Extent;
use tec::module::manifest::{
    ArgManifest, KernelManifest, LaunchManifest, LaunchParamManifest, Manifest,
};
use tec::module::read::read_manifest;

/// Thread instructions that a launch may run.
const INSTRUCTIONS: u64 = 200_000;
/// Bytes of every buffer: enough for some accesses, too few for others.
const BYTES: usize = 1 << 14;

/// The texts to damage, with the manifests that describe their launches.
pub struct Texts(Vec<(String, Manifest)>);

impl Texts {
    /// Returns the PTX of samples: guards, shared memory, barriers, both kinds of copies, tensor
    /// cores, vectors, math functions.
    pub fn new() -> Texts {
        let bases = [
            ("vector_add_var.te", &["--target", "nvptx-sm_75"][..], "damaged-add.ptx"),
            ("matmul.te", &["--target", "nvptx-sm_80", "--schedule", "fast"], "damaged-matmul.ptx"),
            (
                "matmul_bf16.te",
                &["--target", "nvptx-sm_80", "--schedule", "tensor"],
                "damaged-bf16.ptx",
            ),
            ("softmax.te", &["--target", "nvptx-sm_90"], "damaged-softmax.ptx"),
            (
                "broadcast_add.te",
                &["--target", "nvptx-sm_80", "--schedule", "continuous"],
                "damaged-broadcast.ptx",
            ),
        ];
        let base = |(sample, options, output): (&str, &[&str], &str)| {
            let path = build(sample, options, output);
            let text = std::fs::read_to_string(&path).expect("the text is there");
            (text, read_manifest(&path).expect("with its manifest"))
        };
        Texts(bases.map(base).into())
    }
}

impl Kind for Texts {
    fn name(&self) -> &'static str {
        "ptx"
    }

    fn ending(&self, _number: u64) -> &'static str {
        "ptx"
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn make(&self, rng: &mut ChaCha8Rng, number: u64) -> Vec<u8> {
        let (text, _) = &self.0[number as usize % self.0.len()];
        let text = text.split(Manifest::COMMENT).next().expect("what is before it");
        match rng.random_bool(0.3) {
            true => damage_text(text, rng),
            false => damage_lines(text, rng).into_bytes(),
        }
    }

    fn feed(&self, bytes: &[u8], number: u64, _path: &Path) -> Result<bool, String> {
        let (_, manifest) = &self.0[number as usize % self.0.len()];
        let Ok(module) = Module::parse(&String::from_utf8_lossy(bytes)) else { return Ok(false) };
        let mut ran = false;
        for kernel in &manifest.kernels {
            for launched in &kernel.launches {
                ran |= launch(&module, kernel, launched);
            }
        }
        Ok(ran)
    }
}

/// Damages a text so that much of it still parses: drops, copies and swaps lines, and replaces
/// registers and numbers by others of the text.
fn damage_lines(text: &str, rng: &mut ChaCha8Rng) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for _ in 0..rng.random_range(1..4) {
        let [at, other] = [(); 2].map(|()| rng.random_range(0..lines.len()));
        match rng.random_range(0..6) {
            0 => drop(lines.remove(at)),
            1 => lines.swap(at, other),
            2 => lines.insert(at, lines[other].clone()),
            _ => {
                // Registers look like `%r12`: a sign, then a word.
                let is_word = |word: &str| word.starts_with(|c: char| c.is_ascii_alphanumeric());
                let kind =
                    |word: &str| word.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
                let words: Vec<String> = tokens(&lines[other]);
                let words: Vec<&String> = words.iter().filter(|word| is_word(word)).collect();
                if words.is_empty() {
                    continue;
                }
                let word = words[rng.random_range(0..words.len())].clone();
                let mut line = tokens(&lines[at]);
                let mut places: Vec<&mut String> = line
                    .iter_mut()
                    .filter(|other| is_word(other) && kind(other) == kind(&word))
                    .collect();
                if !places.is_empty() {
                    let place = rng.random_range(0..places.len());
                    *places[place] = word;
                    lines[at] = line.concat();
                }
            }
        }
        if lines.is_empty() {
            break;
        }
    }
    lines.join("\n")
}

/// Runs a launch with small buffers and integers. Returns whether it ran to its end.
fn launch(module: &Module, kernel: &KernelManifest, launched: &LaunchManifest) -> bool {
    let mut memory = Memory::new();
    let grid = launched.grid.each_ref().map(|extent| match extent {
        Extent::Number(blocks) => (*blocks).clamp(1, 2) as u32,
        Extent::Expression(_) => 2,
    });
    let mut launch = Launch::new(module, &launched.name)
        .grid(grid)
        .block(launched.block)
        .shared(launched.dynamic_shared_bytes)
        .limit(INSTRUCTIONS);
    for param in &launched.params {
        launch = match param {
            LaunchParamManifest::Arg { arg } => match &kernel.args[*arg] {
                ArgManifest::Tensor { name, .. } => launch.buffer(memory.output(name, BYTES)),
                ArgManifest::Scalar { .. } => launch.value(1.0f32),
                ArgManifest::Runtime { .. } => launch.value(100i64),
            },
            LaunchParamManifest::Workspace { .. } => launch.buffer(memory.workspace("w", BYTES)),
            LaunchParamManifest::Index { .. } => launch.value(100i64),
        };
    }
    match launch.run(&mut memory) {
        Ok(report) => !report.to_string().is_empty(),
        Err(_) => false,
    }
}

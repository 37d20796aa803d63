//! Damaged modules, records and NumPy files, made from files that `tec` wrote.

use super::source::{accepted, compile};
use super::{Kind, damage_bytes, damage_text};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tec::cli::{inspect, npy};
use tec::ir::DType;
use tec::ir::interp::Tensor;
use tec::module::read::read_manifest;
use tec::tune::records::{Context, Filter, Machine, Record, best, merge, parse, prune};
use tec::tune::{Outcome, TrialFailure, Verdict};

/// Builds a sample with `tec` into the target folder; returns the path of the module.
pub fn build(sample: &str, options: &[&str], output: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sample = root.join("samples").join(sample);
    let output = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(output);
    let mut tec = Command::new(env!("CARGO_BIN_EXE_tec"));
    let said = tec.arg("build").arg(sample).arg("-o").arg(&output).args(options).output();
    let said = said.expect("tec starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    output
}

/// Modules whose manifest `tec inspect` and `tec run` read.
pub struct Modules(Vec<(&'static str, Vec<u8>)>);

impl Modules {
    /// Builds the modules: one of each form, with run-time extents, packed inputs and launches.
    pub fn new() -> Modules {
        let bases = [
            ("vector_add_var.te", &["--target", "x86-64"][..], "damaged-base.so"),
            (
                "matmul_add.te",
                &["--target", "x86-avx2", "--schedule", "fast", "--prepack", "B"],
                "damaged-base.tar",
            ),
            ("softmax.te", &["--target", "aarch64"], "damaged-base.o"),
            ("vector_add_var.te", &["--target", "x86-64"], "damaged-base.a"),
            ("softmax.te", &["--target", "nvptx-sm_80"], "damaged-base.ptx"),
        ];
        let base = |(sample, options, output): (&str, &[&str], &'static str)| {
            let path = build(sample, options, output);
            let ending = output.rsplit('.').next().expect("an ending");
            (ending, std::fs::read(path).expect("the module is there"))
        };
        Modules(bases.map(base).into())
    }

    fn base(&self, number: u64) -> &(&'static str, Vec<u8>) {
        &self.0[number as usize % self.0.len()]
    }
}

/// Returns the place of the manifest in a module.
fn manifest_range(bytes: &[u8]) -> std::ops::Range<usize> {
    let find = |from: usize, what: &[u8]| {
        let at = bytes[from..].windows(what.len()).position(|window| window == what);
        at.map(|at| from + at)
    };
    let key = find(0, b"\"tec_manifest\"").expect("the module has a manifest");
    let start = bytes[..key].iter().rposition(|byte| *byte == b'{').expect("it begins there");
    let end =
        bytes[start..].iter().position(|byte| !(b' '..=b'~').contains(byte) && *byte != b'\n');
    start..end.map_or(bytes.len(), |end| start + end)
}

impl Kind for Modules {
    fn name(&self) -> &'static str {
        "module"
    }

    fn ending(&self, number: u64) -> &'static str {
        self.base(number).0
    }

    /// Most damage is in the manifest, which is a small part of the file.
    fn make(&self, rng: &mut ChaCha8Rng, number: u64) -> Vec<u8> {
        let (ending, base) = self.base(number);
        if rng.random_bool(0.3) {
            return damage_bytes(base, rng);
        }
        let range = manifest_range(base);
        let text = std::str::from_utf8(&base[range.clone()]).expect("JSON");
        let mut manifest = damage_text(text, rng);
        // Sections and members have fixed sizes, so white space pads the JSON.
        if *ending != "ptx" {
            manifest.resize(range.len(), b' ');
        }
        [&base[..range.start], &manifest, &base[range.end..]].concat()
    }

    fn feed(&self, _bytes: &[u8], _number: u64, path: &Path) -> Result<bool, String> {
        let Ok(manifest) = read_manifest(path) else { return Ok(false) };
        inspect::describe(&manifest);
        manifest.to_json();
        let kernels: Vec<_> = manifest.kernels.iter().map(|kernel| kernel.to_kernel()).collect();
        Ok(kernels.iter().all(Result::is_ok))
    }
}

/// Files of records, and the schedules in them.
pub struct Records {
    program: String,
    base: String,
}

impl Records {
    /// Returns records of schedules of a sample.
    pub fn new() -> Records {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = std::fs::read_to_string(root.join("samples/matmul.te")).expect("the sample");
        let context = Context {
            workload: "0123456789abcdef".to_string(),
            kernel: "matmul".to_string(),
            target: "x86-avx2".to_string(),
            machine: Machine { cpu: "a processor".to_string(), cores: 2 },
            threads: 2,
            fp_contract: "fast".to_string(),
            vars: BTreeMap::from([("n".to_string(), 1000)]),
            seed: 1,
            tec: "0.5.0".to_string(),
        };
        let schedule = |tile: u32| {
            format!(
                "schedule matmul for x86-avx2 {{\n    let xo, yo, xi, yi = C.tile(x, y, {tile}, \
                 {tile})\n    C.reorder(xo, yo, k, xi, yi)\n    C.vectorize(yi)\n    \
                 C.parallel(xo)\n}}"
            )
        };
        let outcomes = [
            Outcome::Measured { times: vec![1.5e-3, 1.25e-3], verdict: Verdict::Same },
            Outcome::Measured { times: vec![2e-3], verdict: Verdict::Within { ulp: 3 } },
            Outcome::Measured { times: vec![3e-3], verdict: Verdict::Wrong { ulp: 1 << 40 } },
            Outcome::Failed(TrialFailure::Runner("it was not there".to_string())),
        ];
        let record = |(at, outcome): (usize, &Outcome)| {
            let decisions = vec![("tile".to_string(), "16 x 16".to_string())];
            let schedule = schedule(8 << at);
            Record::new(&context, &schedule, decisions, at == 0, outcome).to_line()
        };
        Records { program, base: outcomes.iter().enumerate().map(record).collect() }
    }
}

impl Kind for Records {
    fn name(&self) -> &'static str {
        "records"
    }

    fn ending(&self, _number: u64) -> &'static str {
        "jsonl"
    }

    /// Returns a higher limit, because a schedule is compiled.
    fn limit(&self) -> std::time::Duration {
        std::time::Duration::from_secs(10)
    }

    fn make(&self, rng: &mut ChaCha8Rng, _number: u64) -> Vec<u8> {
        damage_text(&self.base, rng)
    }

    fn feed(&self, bytes: &[u8], number: u64, _path: &Path) -> Result<bool, String> {
        let records = parse(bytes).records;
        let whole = records.len();
        let merged = merge(vec![records.clone(), records]);
        let kept = prune(merged, 2);
        let Some(record) = best(&kept, &Filter::default()) else { return Ok(false) };
        if number.is_multiple_of(8) {
            accepted(compile(&format!("{}\n{}", self.program, record.schedule), number))?;
        }
        Ok(whole > 3)
    }
}

/// NumPy files, as `--input` reads them.
pub struct Arrays(Vec<(DType, Vec<u8>)>);

impl Arrays {
    /// Returns arrays of several types and ranks.
    pub fn new() -> Arrays {
        let shapes =
            [(DType::Float32, vec![3, 5]), (DType::BFloat16, vec![8]), (DType::Bool, vec![])];
        let base = |(dtype, shape): (DType, Vec<i64>)| {
            let count: i64 = shape.iter().product();
            let data = vec![0; count as usize * dtype.bytes() as usize];
            (dtype, npy::to_file("a.npy", &Tensor { dtype, shape, data }).bytes)
        };
        Arrays(shapes.map(base).into())
    }
}

impl Kind for Arrays {
    fn name(&self) -> &'static str {
        "npy"
    }

    fn ending(&self, _number: u64) -> &'static str {
        "npy"
    }

    fn make(&self, rng: &mut ChaCha8Rng, number: u64) -> Vec<u8> {
        let (_, base) = &self.0[number as usize % self.0.len()];
        // The header is magic, version, length and a Python dictionary.
        let (head, text) = base.split_at(10);
        match rng.random_bool(0.5) {
            true => damage_bytes(base, rng),
            false => {
                let text: String = text.iter().map(|byte| char::from(*byte)).collect();
                [head, &damage_text(&text, rng)].concat()
            }
        }
    }

    fn feed(&self, bytes: &[u8], number: u64, path: &Path) -> Result<bool, String> {
        let (dtype, _) = self.0[number as usize % self.0.len()];
        let path = path.to_str().expect("UTF-8");
        let Ok(tensor) = npy::read(path, "`a`", dtype) else { return Ok(false) };
        let count = tensor.shape.iter().product::<i64>();
        match count as usize * dtype.bytes() as usize == tensor.data.len() {
            true => Ok(true),
            false => Err(format!(
                "{} bytes of shape {:?}, of {}",
                tensor.data.len(),
                tensor.shape,
                bytes.len()
            )),
        }
    }
}

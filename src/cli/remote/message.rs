//! The messages between `tec --on` and `tec serve`.
//!
//! The far side answers each [`Request`] with one [`Reply`]. [`Request::Put`] is followed by the
//! file, in frames of data, and so is [`Reply::File`]. Both sides check what they read: the other
//! side may be another program.

use super::frame::printable;
use super::store::{Hash, Store};
use crate::cli::data::Given;
use crate::cli::machine::{Isa, Limit, Machine as Limits};
use crate::cli::measure::Rounds;
use crate::ir::DType;
use crate::ir::interp::Tensor;
use crate::module::manifest::KernelManifest;
use crate::target::Target;
use crate::tune::records::Machine;
use crate::tune::{Compared, Outcome};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of the protocol. Programs of different versions also refuse each other, because a
/// search compares times.
pub const PROTOCOL: u32 = 1;

/// The first message of the far side. `tec` and `protocol` are in those of every version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The version of `tec`.
    pub tec: String,
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The native target, with its features.
    pub target: String,
    /// The native processor.
    pub processor: String,
    /// Every feature of a target that the CPU has.
    pub features: Vec<String>,
    /// The processor.
    pub machine: Machine,
    /// The usual number of threads.
    pub threads: usize,
    /// Free memory in bytes; none if the system does not report it.
    pub memory: Option<u64>,
    /// The first GPU.
    pub gpu: Option<String>,
}

impl Hello {
    /// Reads a hello, and refuses that of another version, or one that cannot be true.
    pub fn parse(json: &[u8]) -> Result<Hello, String> {
        #[derive(Deserialize)]
        struct Version {
            tec: String,
            protocol: u32,
        }
        let own = env!("CARGO_PKG_VERSION");
        let unreadable = |error: serde_json::Error| format!("its hello is unreadable: {error}");
        let Version { tec, protocol } = serde_json::from_slice(json).map_err(unreadable)?;
        if tec != own || protocol != PROTOCOL {
            let tec = printable(&tec);
            return Err(format!(
                "it is tec {tec} with protocol {protocol}, but this is tec {own} with protocol \
                 {PROTOCOL}"
            ));
        }
        let mut hello: Hello = serde_json::from_slice(json).map_err(unreadable)?;
        hello.machine.cpu = printable(&hello.machine.cpu);
        hello.gpu = hello.gpu.map(|name| printable(&name));
        let impossible = |what: String| Err(format!("its hello cannot be true: {what}"));
        if !(1..=1 << 16).contains(&hello.machine.cores) || hello.machine.cpu.is_empty() {
            let Machine { cpu, cores } = &hello.machine;
            return impossible(format!("a machine with {cores} cores of `{cpu}`"));
        }
        if !(1..=512).contains(&hello.threads) {
            return impossible(format!("{} threads", hello.threads));
        }
        let named = printable(&hello.target);
        let target = Target::parse(&hello.target);
        if let Ok(target) = &target
            && target.clone().with_processor(&hello.processor).is_err()
        {
            let processor = printable(&hello.processor);
            return impossible(format!("the processor `{processor}` for `{named}`"));
        }
        match target {
            Ok(target) if hello.target.starts_with("native") || target.is_gpu() => {
                impossible(format!("`{named}` as the target of a CPU"))
            }
            Ok(target) => match hello.missing(&target) {
                None => Ok(hello),
                Some(feature) => impossible(format!("`{named}` without the feature `{feature}`")),
            },
            Err(_) => impossible(format!("`{named}` is no target of this version")),
        }
    }

    /// Returns the native target of the far side.
    pub fn target(&self) -> Target {
        Target::parse(&self.target).expect("it was checked when the hello came")
    }

    /// Returns a feature of a target that the CPU lacks.
    fn missing(&self, target: &Target) -> Option<&'static str> {
        let features = target.features.iter().copied();
        features.into_iter().find(|name| !self.features.iter().any(|known| known == name))
    }

    /// Returns why code for a target does not run there.
    pub fn why_not(&self, target: &Target) -> Option<String> {
        if target.is_gpu() {
            let none = || format!("{target} needs a GPU, and it has none");
            return self.gpu.is_none().then(none);
        }
        let own = self.target();
        if own.arch != target.arch {
            return Some(format!("code for {target} does not run on its CPU, which is {own}"));
        }
        if own.os != target.os {
            let system = own.os.name();
            return Some(format!("code for {target} does not run on its system, {system}"));
        }
        let feature = self.missing(target)?;
        Some(format!("code for {target} needs `{feature}`, which its CPU ({own}) lacks"))
    }

    /// Returns the machine that measures code for a target, as records name it.
    pub fn machine_for(&self, target: &Target) -> Machine {
        match &self.gpu {
            Some(name) if target.is_gpu() => Machine { cpu: name.clone(), cores: 1 },
            _ => self.machine.clone(),
        }
    }
}

/// A tensor whose elements are a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TensorFile {
    /// The element type.
    pub dtype: String,
    /// The extents.
    pub shape: Vec<i64>,
    /// The elements.
    pub hash: Hash,
}

impl TensorFile {
    /// Writes the elements to a store.
    pub fn save(tensor: &Tensor, store: &Store) -> Result<TensorFile, String> {
        let hash = store.put(&tensor.data)?;
        Ok(TensorFile { dtype: tensor.dtype.to_string(), shape: tensor.shape.clone(), hash })
    }

    /// Reads the tensor from a store.
    pub fn load(&self, store: &Store) -> Result<Tensor, String> {
        self.tensor(store.read(&self.hash)?)
    }

    /// Returns the tensor with these elements.
    pub fn tensor(&self, data: Vec<u8>) -> Result<Tensor, String> {
        let TensorFile { dtype, shape, .. } = self;
        let wrong = || {
            let (bytes, dtype) = (data.len(), printable(dtype));
            format!("{bytes} bytes are no tensor of {dtype} and shape {shape:?}")
        };
        let parsed = DType::from_name(dtype).ok_or_else(wrong)?;
        let bytes = |extent: &i64| u64::try_from(*extent).ok();
        let all: Option<Vec<u64>> = shape.iter().map(bytes).collect();
        let count = |all: Vec<u64>| match all.contains(&0) {
            true => Some(0),
            false => all.iter().try_fold(parsed.bytes(), |product, one| product.checked_mul(*one)),
        };
        match all.and_then(count) {
            Some(bytes) if bytes == data.len() as u64 => {
                Ok(Tensor { dtype: parsed, shape: shape.clone(), data })
            }
            _ => Err(wrong()),
        }
    }
}

/// The arguments of a call. Random elements are drawn where they are needed, from the seed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GivenFiles {
    /// As in [`Given`].
    pub tensors: Vec<(String, TensorFile)>,
    /// As in [`Given`].
    pub vars: Vec<(String, i64)>,
    /// As in [`Given`].
    pub scalars: Vec<(String, String)>,
    /// As in [`Given`].
    pub seed: u64,
}

impl GivenFiles {
    /// Writes the tensors to a store.
    pub fn save(given: &Given, store: &Store) -> Result<GivenFiles, String> {
        let tensor = |(name, tensor): &(String, Tensor)| {
            Ok((name.clone(), TensorFile::save(tensor, store)?))
        };
        let tensors = given.tensors.iter().map(tensor).collect::<Result<_, String>>()?;
        let (vars, scalars, seed) = (given.vars.clone(), given.scalars.clone(), given.seed);
        Ok(GivenFiles { tensors, vars, scalars, seed })
    }

    /// Reads the tensors from a store.
    pub fn load(&self, store: &Store) -> Result<Given, String> {
        let tensor = |(name, file): &(String, TensorFile)| Ok((name.clone(), file.load(store)?));
        let tensors = self.tensors.iter().map(tensor).collect::<Result<_, String>>()?;
        let (vars, scalars, seed) = (self.vars.clone(), self.scalars.clone(), self.seed);
        Ok(Given { tensors, vars, scalars, seed })
    }

    /// Returns the files.
    pub fn files(&self) -> impl Iterator<Item = &Hash> {
        self.tensors.iter().map(|(_, tensor)| &tensor.hash)
    }
}

/// A kernel whose candidates are measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Prepared {
    /// The kernel; only its parameters count.
    pub kernel: KernelManifest,
    /// The target of the candidates.
    pub target: String,
    /// The arguments.
    pub given: GivenFiles,
    /// The reference output.
    pub expected: Vec<TensorFile>,
    /// The bound of differences where reduction terms may be reordered.
    pub bound: f64,
    /// Threads of parallel loops.
    pub threads: usize,
    /// The memory limit of a candidate in bytes, without the arguments.
    pub memory: u64,
}

impl Prepared {
    /// Returns the files.
    pub fn files(&self) -> Vec<Hash> {
        let expected = self.expected.iter().map(|tensor| &tensor.hash);
        self.given.files().chain(expected).cloned().collect()
    }
}

/// A candidate to measure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// Its code.
    pub code: Code,
    /// The time limit of a call.
    pub limit: Duration,
}

/// The code of a candidate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A schedule, which the worker compiles.
    Schedule(String),
    /// A module of the store.
    Module(Hash),
}

/// A kernel of a module with the arguments of its call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The module.
    pub module: Hash,
    /// The kernel.
    pub kernel: String,
    /// The arguments.
    pub given: GivenFiles,
    /// Threads of parallel loops.
    pub threads: usize,
}

/// Work of the far side besides a search.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Call a kernel, and store its outputs.
    Call(Call),
    /// Time kernels interleaved.
    Time {
        /// The kernels.
        calls: Vec<Call>,
        /// Seconds for each kernel.
        min_time: f64,
        /// A limit of the machine to measure beside them.
        limit: Option<(Isa, Limit)>,
    },
    /// Measure the limits of the machine.
    Limits {
        /// The instruction set.
        isa: Isa,
        /// Threads.
        threads: usize,
        /// Whether limits that were measured earlier do not count.
        fresh: bool,
    },
}

/// What a worker answers to [`Work`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// The outputs of a call, in order.
    Called(Vec<TensorFile>),
    /// The times of kernels.
    Timed(Rounds),
    /// The limits of the machine.
    Limits(Limits),
    /// It failed.
    Failed(Failure),
}

/// A message to the far side.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Which of these files are missing?
    Missing(Vec<Hash>),
    /// A file, which follows.
    Put {
        /// Its hash.
        hash: Hash,
        /// Its size in bytes.
        size: u64,
    },
    /// Send a file.
    Get(Hash),
    /// Begin with the candidates of a kernel.
    Prepare(Box<Prepared>),
    /// Measure a candidate of the last kernel.
    Measure {
        /// The candidate; a module.
        candidate: Candidate,
        /// Seconds of the best call so far.
        best: Option<f64>,
    },
    /// Measure candidates interleaved.
    Compare {
        /// The candidates; modules.
        candidates: Vec<Candidate>,
        /// Seconds of the measurement, about.
        seconds: f64,
    },
    /// Other work.
    Work(Work),
}

/// A message from the far side.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The missing files.
    Missing(Vec<Hash>),
    /// The file is stored.
    Stored,
    /// A file, which follows.
    File {
        /// Its size in bytes.
        size: u64,
    },
    /// Candidates can be measured.
    Ready {
        /// Notes for the user.
        notes: Vec<String>,
    },
    /// The outcome of a candidate.
    Measured(Outcome),
    /// The outcomes of candidates.
    Compared {
        /// One for each candidate.
        compared: Compared,
        /// Notes for the user.
        notes: Vec<String>,
    },
    /// The result of other work.
    Done(Done),
    /// The request failed.
    Failed(Failure),
}

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The machine cannot do it: no memory, no space, another search.
    Machine(String),
    /// The program's own error, such as a violated `assume`.
    Program(String),
}

/// Whether times that the far side reports can be times.
pub fn are_times(times: &[f64]) -> bool {
    times.len() <= 1 << 20 && times.iter().all(|time| time.is_finite() && *time > 0.0)
}

/// Whether an outcome can be one of a measurement.
pub fn is_outcome(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Measured { times, .. } => !times.is_empty() && are_times(times),
        Outcome::Failed(_) => true,
    }
}

/// Whether limits can be those that were asked for.
pub fn are_limits(limits: &Limits, isa: Isa, threads: usize) -> bool {
    let rates = [limits.peak_f32, limits.peak_f64, limits.peak_i8].into_iter();
    let levels = limits.levels.iter();
    let mut rates = rates.chain(levels.flat_map(|level| [level.read, level.triad]));
    (limits.isa, limits.threads) == (isa, threads)
        && (1..=16).contains(&limits.levels.len())
        && limits.levels.last().is_some_and(|level| level.bytes.is_none())
        && rates.all(|rate| rate.is_finite() && rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> serde_json::Value {
        serde_json::json!({
            "tec": env!("CARGO_PKG_VERSION"), "protocol": PROTOCOL, "target": "x86-avx2",
            "features": ["avx", "avx2", "f16c", "fma", "sse4.1"], "processor": "haswell",
            "machine": {"cpu": "a CPU", "cores": 4}, "threads": 4, "memory": null, "gpu": null
        })
    }

    fn parse(value: &serde_json::Value) -> Result<Hello, String> {
        Hello::parse(value.to_string().as_bytes())
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        for (field, value) in [("tec", serde_json::json!("0.1.9")), ("protocol", 7.into())] {
            let mut other = hello();
            other[field] = value.clone();
            // A hello of another version may lack every other field.
            other.as_object_mut().unwrap().remove("machine");
            let why = parse(&other).unwrap_err();
            let value = value.as_str().map_or(value.to_string(), String::from);
            assert!(why.contains(&value) && why.contains(env!("CARGO_PKG_VERSION")), "{why}");
        }
    }

    #[test]
    fn a_hello_that_cannot_be_true_is_refused() {
        assert!(parse(&hello()).is_ok());
        let lies = [
            ("target", serde_json::json!("x86-avx512")),
            ("target", "vax".into()),
            ("target", "native".into()),
            ("target", "nvptx-sm_80".into()),
            ("threads", 0.into()),
            ("threads", 513.into()),
            ("machine", serde_json::json!({"cpu": "a CPU", "cores": 0})),
            ("machine", serde_json::json!({"cpu": "\n", "cores": 1})),
            ("features", serde_json::json!(["avx2"])),
        ];
        for (field, value) in lies {
            let mut other = hello();
            other[field] = value.clone();
            let why = parse(&other).unwrap_err();
            assert!(why.contains("cannot be true"), "{field} {value}: {why}");
        }
        let mut colours = hello();
        colours["machine"]["cpu"] = "\x1b[31ma CPU\x07".into();
        assert_eq!(parse(&colours).unwrap().machine.cpu, "[31ma CPU");
    }

    #[test]
    fn targets_that_do_not_run_there_are_told() {
        let hello = parse(&hello()).unwrap();
        let why = |name: &str| hello.why_not(&Target::parse(name).unwrap());
        assert_eq!(why("x86-64"), None);
        assert_eq!(why("x86-avx2"), None);
        assert!(why("x86-avx512").unwrap().contains("needs `avx512bw`"));
        assert!(why("aarch64").unwrap().contains("does not run on its CPU"));
        assert!(why("nvptx-sm_80").unwrap().contains("needs a GPU"));
    }

    #[test]
    fn a_tensor_has_the_bytes_of_its_shape() {
        let of = |dtype: &str, shape: &[i64], bytes: usize| {
            let (dtype, hash) = (dtype.to_string(), Hash::of(b""));
            TensorFile { dtype, shape: shape.to_vec(), hash }.tensor(vec![0; bytes]).is_ok()
        };
        assert!(of("float32", &[2, 3], 24) && of("int8", &[], 1));
        assert!(of("float64", &[0, i64::MAX, i64::MAX], 0));
        assert!(!of("float32", &[2, 3], 23) && !of("float99", &[1], 4));
        assert!(!of("int8", &[-1, -1], 1) && !of("int8", &[i64::MAX, i64::MAX], 1));
    }
}

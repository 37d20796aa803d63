//! Damaged connections of `--on`: what the far side says, and what the near side says. Half of the
//! damage is inside of messages whose frames are intact.

use super::{Kind, damage_bytes, damage_text};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tec::cli::machine::{Isa, Level, Limit, Machine as Limits};
use tec::cli::measure::Rounds;
use tec::cli::remote::client::{Client, FarResult, Link};
use tec::cli::remote::frame::{Frame, MAGIC, skip_noise};
use tec::cli::remote::message::{
    Call, Candidate, Code, Done, Failure, GivenFiles, PROTOCOL, Prepared, Reply, Request,
    TensorFile, Work,
};
use tec::cli::remote::store::{Hash, Store};
use tec::cli::serve::{Backend, Server};
use tec::ir::DType;
use tec::ir::interp::Tensor;
use tec::module::manifest::KernelManifest;
use tec::tune::{Compared, Outcome, TrialFailure, Verdict};

/// What both sides talk about.
struct Talk {
    folder: PathBuf,
    output: Tensor,
    module: Hash,
    prepared: Prepared,
    candidate: Candidate,
    call: Call,
}

const LIMIT: (Isa, Limit) = (Isa::Avx2, Limit::Read(1));

impl Talk {
    fn new(name: &str) -> Talk {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("the target folder can be written");
        let store = Store::at(&folder, 1 << 20);
        let module = store.put(&[7; 1000]).expect("space");
        let output = Tensor { dtype: DType::Float32, shape: vec![2, 3], data: vec![1; 24] };
        let file = TensorFile::save(&output, &store).expect("space");
        let manifest = json!({
            "name": "k", "signature": "", "parameters": {}, "schedule": "",
            "args": [
                {"kind": "runtime", "name": "n", "source": {"arg": 1, "dim": 0}},
                {"kind": "tensor", "name": "A", "role": "input", "dtype": "float32",
                 "shape": ["n", 3], "layout_free": false},
                {"kind": "scalar", "name": "alpha", "dtype": "float32"},
            ],
            "workspace_bytes": 0, "flops": 0, "bytes": 0, "reassociated": false
        });
        let kernel: KernelManifest = serde_json::from_value(manifest).expect("a manifest");
        let given = GivenFiles {
            tensors: vec![("A".to_string(), file.clone())],
            vars: vec![("n".to_string(), 2)],
            scalars: vec![("alpha".to_string(), "0.5".to_string())],
            seed: 1,
        };
        let prepared = Prepared {
            kernel,
            target: "x86-avx2".to_string(),
            given: given.clone(),
            expected: vec![file],
            bound: 1e-3,
            threads: 2,
            memory: 1 << 30,
        };
        let limit = Duration::from_secs(1);
        let candidate = Candidate { code: Code::Module(module.clone()), limit };
        let call = Call { module: module.clone(), kernel: "k".to_string(), given, threads: 2 };
        Talk { folder, output, module, prepared, candidate, call }
    }

    fn store(&self) -> Store {
        Store::at(&self.folder, 1 << 20)
    }

    fn hello(&self) -> Vec<u8> {
        let hello = json!({
            "tec": env!("CARGO_PKG_VERSION"), "protocol": PROTOCOL, "target": "x86-avx2",
            "features": ["avx", "avx2", "f16c", "fma", "sse4.1"], "processor": "haswell",
            "machine": {"cpu": "a CPU", "cores": 4}, "threads": 4, "memory": 1 << 30, "gpu": null
        });
        hello.to_string().into_bytes()
    }

    /// Everything that a far side answers, to [`Talk::ask_everything`].
    fn replies(&self) -> Vec<Frame> {
        let measured =
            || Outcome::Measured { times: vec![1e-3, 2e-3], verdict: Verdict::Within { ulp: 3 } };
        let failed = Outcome::Failed(TrialFailure::Call("no".to_string()));
        let level =
            |name: &str, bytes| Level { name: name.to_string(), bytes, read: 2., triad: 1. };
        let limits = Limits {
            tec: "0".to_string(),
            cpu: "a CPU".to_string(),
            cpus: 4,
            threads: 2,
            isa: Isa::Avx2,
            peak_f32: 1.0,
            peak_f64: 1.0,
            peak_i8: 1.0,
            levels: vec![level("L1", Some(1 << 15)), level("DRAM", None)],
        };
        let rounds = Rounds { times: vec![vec![1e-3; 3]], calls: vec![9], limit: vec![1.0; 3] };
        let outcomes = vec![measured(), failed];
        let compared = Compared { outcomes, in_turns: true };
        let hash = self.prepared.expected[0].hash.clone();
        let replies = [
            Reply::Missing(vec![hash]),
            Reply::Stored,
            Reply::Ready { notes: vec!["a note".to_string()] },
            Reply::Stored,
            Reply::Measured(measured()),
            Reply::Compared { compared, notes: Vec::new() },
            Reply::Done(Done::Called(self.prepared.expected.clone())),
            Reply::File { size: 24 },
            Reply::Done(Done::Timed(rounds)),
            Reply::Done(Done::Limits(limits)),
        ];
        let mut frames: Vec<Frame> = replies.iter().map(message).collect();
        frames.insert(8, Frame::Data(self.output.data.clone()));
        frames.insert(4, Frame::Alive);
        frames
    }

    /// Asks a far side for everything.
    fn ask_everything<L: Link>(&self, link: L) -> FarResult<()> {
        let store = self.store();
        let mut client = Client::open(link)?;
        client.prepare(&store, &self.prepared)?;
        client.measure(&store, self.candidate.clone(), &self.module, Some(0.5))?;
        let two = vec![self.candidate.clone(), self.candidate.clone()];
        client.compare(&store, two, std::slice::from_ref(&self.module), 0.1)?;
        client.call(&store, self.call.clone(), &[&self.output])?;
        client.time(&store, vec![self.call.clone()], 0.1, Some(LIMIT))?;
        client.limits(Isa::Avx2, 2, false)?;
        Ok(())
    }

    /// Everything that a near side asks for.
    fn requests(&self) -> Vec<Frame> {
        let data = vec![3; 300];
        let hash = Hash::of(&data);
        let (candidate, call) = (self.candidate.clone(), self.call.clone());
        let candidates = vec![candidate.clone(), candidate.clone()];
        let work = Work::Time { calls: vec![call.clone()], min_time: 0.1, limit: Some(LIMIT) };
        let requests = [
            Request::Missing(vec![self.module.clone(), hash.clone()]),
            Request::Put { hash: hash.clone(), size: 300 },
            Request::Get(hash),
            Request::Prepare(Box::new(self.prepared.clone())),
            Request::Measure { candidate, best: Some(0.5) },
            Request::Compare { candidates, seconds: 0.5 },
            Request::Work(Work::Call(call)),
            Request::Work(work),
            Request::Work(Work::Limits { isa: Isa::Sse, threads: 2, fresh: true }),
        ];
        let mut frames: Vec<Frame> = requests.iter().map(message).collect();
        frames.insert(2, Frame::Data(data[100..].to_vec()));
        frames.insert(2, Frame::Data(data[..100].to_vec()));
        frames
    }
}

fn message(value: &impl serde::Serialize) -> Frame {
    Frame::Message(serde_json::to_vec(value).expect("plain data"))
}

/// Damages a message, or the bytes.
fn damage(head: &[u8], mut frames: Vec<Frame>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    if rng.random_bool(0.5) {
        let at = rng.random_range(0..frames.len());
        let changed = match &frames[at] {
            Frame::Message(json) => {
                let text = std::str::from_utf8(json).expect("JSON");
                Some(Frame::Message(damage_text(text, rng)))
            }
            Frame::Data(data) => Some(Frame::Data(damage_bytes(data, rng))),
            Frame::Alive => None,
        };
        match changed {
            Some(frame) if rng.random_bool(0.9) => frames[at] = frame,
            _ if rng.random_bool(0.5) => drop(frames.remove(at)),
            _ => {
                let other = rng.random_range(0..frames.len());
                frames.swap(at, other);
            }
        }
        return bytes(head, &frames);
    }
    damage_bytes(&bytes(head, &frames), rng)
}

fn bytes(head: &[u8], frames: &[Frame]) -> Vec<u8> {
    let mut bytes = head.to_vec();
    frames.iter().for_each(|frame| bytes.extend(frame.bytes()));
    bytes
}

/// A far side that says these bytes.
struct Said<'a>(&'a [u8]);

impl Link for Said<'_> {
    fn send(&mut self, frame: &Frame) -> Result<(), String> {
        let _ = frame.bytes();
        Ok(())
    }

    fn receive(&mut self) -> Result<Frame, String> {
        Frame::read(&mut self.0).map_err(|error| format!("{error:?}"))
    }

    fn receive_hello(&mut self) -> Result<Frame, String> {
        skip_noise(&mut self.0).map_err(|error| format!("{error:?}"))?;
        self.receive()
    }
}

/// What a far side says.
pub struct Replies(Talk);

impl Replies {
    /// Makes the intact connection, which must be accepted whole and not if it is cut.
    pub fn new() -> Replies {
        let talk = Talk::new("damaged-replies");
        let (head, frames) = (Replies::head(), Replies::frames(&talk));
        let all = bytes(&head, &frames);
        assert_eq!(talk.ask_everything(Said(&all)), Ok(()));
        for cut in 0..all.len() {
            assert!(talk.ask_everything(Said(&all[..cut])).is_err(), "cut behind {cut} bytes");
        }
        Replies(talk)
    }

    fn head() -> Vec<u8> {
        [b"Last login: never\n", MAGIC].concat()
    }

    fn frames(talk: &Talk) -> Vec<Frame> {
        [vec![Frame::Message(talk.hello())], talk.replies()].concat()
    }
}

impl Kind for Replies {
    fn name(&self) -> &'static str {
        "reply"
    }

    fn make(&self, rng: &mut ChaCha8Rng, _number: u64) -> Vec<u8> {
        damage(&Replies::head(), Replies::frames(&self.0), rng)
    }

    fn feed(&self, bytes: &[u8], _number: u64, _path: &Path) -> Result<bool, String> {
        Ok(self.0.ask_everything(Said(bytes)).is_ok())
    }
}

/// A far side that runs nothing, but reads what it is told.
struct Nothing;

impl Backend for Nothing {
    fn prepare(&mut self, prepared: Prepared, store: &Store) -> Result<Vec<String>, Failure> {
        let no = |_| Failure::Program("no".to_string());
        prepared.kernel.to_kernel().map_err(|diag| Failure::Program(diag.message))?;
        prepared.given.load(store).map_err(no)?;
        for expected in &prepared.expected {
            expected.load(store).map_err(no)?;
        }
        Ok(Vec::new())
    }

    fn measure(&mut self, _: &Candidate, _: Option<f64>) -> Result<Outcome, Failure> {
        Ok(Outcome::Failed(TrialFailure::Timeout))
    }

    fn compare(
        &mut self,
        candidates: &[Candidate],
        _: f64,
    ) -> Result<(Compared, Vec<String>), Failure> {
        let outcomes = vec![Outcome::Failed(TrialFailure::Timeout); candidates.len()];
        Ok((Compared { outcomes, in_turns: true }, Vec::new()))
    }

    fn work(&mut self, work: Work, store: &Store) -> Done {
        if let Work::Call(call) = work {
            let _ = call.given.load(store);
        }
        Done::Called(Vec::new())
    }
}

/// What a near side says.
pub struct Requests(Talk);

impl Requests {
    /// Makes the intact connection, all of whose requests must be answered.
    pub fn new() -> Requests {
        let requests = Requests(Talk::new("damaged-requests"));
        let frames = bytes(&[], &requests.0.requests());
        assert_eq!(requests.answer(&frames), Ok(0));
        requests
    }

    /// Answers all frames; returns the number of failures.
    fn answer(&self, mut bytes: &[u8]) -> Result<usize, String> {
        let mut server = Server::new(self.0.store(), Nothing);
        let mut failures = 0;
        while !bytes.is_empty() {
            let frame = Frame::read(&mut bytes).map_err(|error| format!("{error:?}"))?;
            server.answer(frame, &mut |frame| {
                if let Frame::Message(json) = frame {
                    failures += usize::from(json.starts_with(b"{\"failed\""));
                }
                true
            })?;
        }
        Ok(failures)
    }
}

impl Kind for Requests {
    fn name(&self) -> &'static str {
        "request"
    }

    fn make(&self, rng: &mut ChaCha8Rng, _number: u64) -> Vec<u8> {
        damage(&[], self.0.requests(), rng)
    }

    fn feed(&self, bytes: &[u8], _number: u64, _path: &Path) -> Result<bool, String> {
        Ok(self.answer(bytes) == Ok(0))
    }
}

//! The near side of a connection: sends requests, and files that the far side does not have.

use super::frame::{Frame, MAX_DATA, MAX_MESSAGE, printable};
use super::message::{
    Call, Candidate, Done, Failure, GivenFiles, Hello, Prepared, Reply, Request, TensorFile, Work,
    are_limits, are_times, is_outcome,
};
use super::store::{Hash, Store};
use crate::cli::machine::{Isa, Limit, Machine as Limits};
use crate::cli::measure::Rounds;
use crate::diag::Diag;
use crate::ir::interp::Tensor;
use crate::tune::{Compared, Outcome, TrialFailure};
use rustc_hash::FxHashSet;
use std::fs::File;
use std::io::Read;

/// Where frames go and come from. Errors are sentences.
pub trait Link {
    /// Sends a frame.
    fn send(&mut self, frame: &Frame) -> Result<(), String>;

    /// Waits for a frame.
    fn receive(&mut self) -> Result<Frame, String>;

    /// Waits for the first frame behind the magic word.
    fn receive_hello(&mut self) -> Result<Frame, String>;
}

/// Why the far side did not answer a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FarError {
    /// The connection is lost, with the reason: the far side ended, hangs or talks nonsense.
    Lost(String),
    /// The machine cannot do it.
    Machine(String),
    /// The program's own error.
    Program(String),
}

impl FarError {
    /// Returns the error of a command; `name` is that of the far side.
    pub fn diag(self, name: &str) -> Box<Diag> {
        Box::new(match self {
            FarError::Lost(why) => Diag::global("E0606", format!("`{name}`: {why}"))
                .help("docs/REMOTE.md says what `--on` needs"),
            FarError::Machine(why) => Diag::global("E0607", format!("`{name}`: {why}")),
            FarError::Program(why) => Diag::global("E0525", why).note(format!("on `{name}`")),
        })
    }

    /// Returns the reason.
    pub fn why(&self) -> &str {
        match self {
            FarError::Lost(why) | FarError::Machine(why) | FarError::Program(why) => why,
        }
    }
}

impl From<Failure> for FarError {
    fn from(failure: Failure) -> FarError {
        match failure {
            Failure::Machine(why) => FarError::Machine(printable(&why)),
            Failure::Program(why) => FarError::Program(printable(&why)),
        }
    }
}

/// The result of a request.
pub type FarResult<T> = Result<T, FarError>;

/// The most files in one question, so that it fits into a message.
const MAX_ASKED: usize = 10_000;

/// A connection to a far side.
pub struct Client<L> {
    link: L,
    hello: Hello,
    /// Files that the far side has.
    sent: FxHashSet<Hash>,
}

impl<L: Link> Client<L> {
    /// Waits for the hello of the far side.
    pub fn open(mut link: L) -> FarResult<Client<L>> {
        let hello = match link.receive_hello().map_err(FarError::Lost)? {
            Frame::Message(json) => Hello::parse(&json).map_err(FarError::Lost)?,
            _ => return Err(nonsense("a file before its hello")),
        };
        Ok(Client { link, hello, sent: FxHashSet::default() })
    }

    /// What the far side is.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    fn send(&mut self, request: &Request) -> FarResult<()> {
        let json = serde_json::to_vec(request).expect("plain data");
        if json.len() > MAX_MESSAGE {
            return Err(FarError::Program("the request is too long for a message".to_string()));
        }
        self.link.send(&Frame::Message(json)).map_err(FarError::Lost)
    }

    /// Waits for a reply; a failure is an error.
    fn receive(&mut self) -> FarResult<Reply> {
        loop {
            match self.link.receive().map_err(FarError::Lost)? {
                Frame::Alive => {}
                Frame::Data(_) => return Err(nonsense("a piece of a file")),
                Frame::Message(json) => {
                    let reply = serde_json::from_slice(&json);
                    return match reply.map_err(|error| nonsense(&error.to_string()))? {
                        Reply::Failed(failure) => Err(failure.into()),
                        reply => Ok(reply),
                    };
                }
            }
        }
    }

    fn ask(&mut self, request: &Request) -> FarResult<Reply> {
        self.send(request)?;
        self.receive()
    }

    /// Sends the files of a store that the far side does not have.
    pub fn send_missing(&mut self, store: &Store, files: &[Hash]) -> FarResult<()> {
        let unknown: Vec<Hash> =
            files.iter().filter(|hash| !self.sent.contains(*hash)).cloned().collect();
        for some in unknown.chunks(MAX_ASKED) {
            let missing = match self.ask(&Request::Missing(some.to_vec()))? {
                Reply::Missing(missing) if missing.iter().all(|one| some.contains(one)) => missing,
                other => return Err(unexpected(&other)),
            };
            for hash in &missing {
                self.put(store, hash)?;
                match self.receive()? {
                    Reply::Stored => {}
                    other => return Err(unexpected(&other)),
                }
            }
            self.sent.extend(some.iter().cloned());
        }
        Ok(())
    }

    /// Sends a file. The far side will answer.
    fn put(&mut self, store: &Store, hash: &Hash) -> FarResult<()> {
        let own = |error: std::io::Error| {
            let why = crate::module::input::io_text(&error);
            FarError::Lost(format!("a temporary file cannot be read here: {why}"))
        };
        let mut file = File::open(store.path(hash)).map_err(own)?;
        let size = file.metadata().map_err(own)?.len();
        self.send(&Request::Put { hash: hash.clone(), size })?;
        let mut left = size;
        while left > 0 {
            let mut piece = vec![0; left.min(MAX_DATA as u64) as usize];
            file.read_exact(&mut piece).map_err(own)?;
            left -= piece.len() as u64;
            self.link.send(&Frame::Data(piece)).map_err(FarError::Lost)?;
        }
        Ok(())
    }

    /// Receives a file of `size` bytes.
    fn get(&mut self, hash: &Hash, size: u64) -> FarResult<Vec<u8>> {
        match self.ask(&Request::Get(hash.clone()))? {
            Reply::File { size: announced } if announced == size => {}
            Reply::File { size: other } => {
                return Err(nonsense(&format!("a file of {other} bytes in place of {size}")));
            }
            other => return Err(unexpected(&other)),
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            match self.link.receive().map_err(FarError::Lost)? {
                Frame::Data(piece) if (bytes.len() + piece.len()) as u64 <= size => {
                    bytes.extend(piece);
                }
                Frame::Alive => {}
                _ => return Err(nonsense("something else within a file")),
            }
        }
        match Hash::of(&bytes) == *hash {
            true => Ok(bytes),
            false => Err(nonsense("a file whose contents have another hash")),
        }
    }

    /// Begins with the candidates of a kernel, whose files are in `store`; returns notes.
    pub fn prepare(&mut self, store: &Store, prepared: &Prepared) -> FarResult<Vec<String>> {
        self.send_missing(store, &prepared.files())?;
        match self.ask(&Request::Prepare(Box::new(prepared.clone())))? {
            Reply::Ready { notes } => Ok(notes.iter().map(|note| printable(note)).collect()),
            other => Err(unexpected(&other)),
        }
    }

    /// Measures a candidate, a file of `store`.
    pub fn measure(
        &mut self,
        store: &Store,
        candidate: Candidate,
        module: &Hash,
        best: Option<f64>,
    ) -> FarResult<Outcome> {
        // The module and the request travel together, because the way may be long.
        let is_new = !self.sent.contains(module);
        if is_new {
            self.put(store, module)?;
        }
        self.send(&Request::Measure { candidate, best })?;
        let stored = if is_new { self.receive() } else { Ok(Reply::Stored) };
        if let Err(FarError::Lost(why)) = stored {
            return Err(FarError::Lost(why));
        }
        let outcome = self.receive();
        match stored? {
            Reply::Stored => _ = self.sent.insert(module.clone()),
            other => return Err(unexpected(&other)),
        }
        match outcome? {
            Reply::Measured(outcome) if is_outcome(&outcome) => Ok(clean(outcome)),
            other => Err(unexpected(&other)),
        }
    }

    /// Measures candidates interleaved; returns notes too.
    pub fn compare(
        &mut self,
        store: &Store,
        candidates: Vec<Candidate>,
        modules: &[Hash],
        seconds: f64,
    ) -> FarResult<(Compared, Vec<String>)> {
        self.send_missing(store, modules)?;
        let count = candidates.len();
        match self.ask(&Request::Compare { candidates, seconds })? {
            Reply::Compared { compared, notes }
                if compared.outcomes.len() == count && compared.outcomes.iter().all(is_outcome) =>
            {
                let outcomes = compared.outcomes.into_iter().map(clean).collect();
                let notes = notes.iter().map(|note| printable(note)).collect();
                Ok((Compared { outcomes, ..compared }, notes))
            }
            other => Err(unexpected(&other)),
        }
    }

    fn work(&mut self, work: Work) -> FarResult<Done> {
        match self.ask(&Request::Work(work))? {
            Reply::Done(Done::Failed(failure)) => Err(failure.into()),
            Reply::Done(done) => Ok(done),
            other => Err(unexpected(&other)),
        }
    }

    /// Calls a kernel, whose files are in `store`, and returns the outputs; `expected` has tensors
    /// of their types and shapes.
    pub fn call(
        &mut self,
        store: &Store,
        call: Call,
        expected: &[&Tensor],
    ) -> FarResult<Vec<Tensor>> {
        let mut files: Vec<Hash> = call.given.files().cloned().collect();
        files.push(call.module.clone());
        self.send_missing(store, &files)?;
        let outputs = match self.work(Work::Call(call))? {
            Done::Called(outputs) => outputs,
            other => return Err(unexpected(&other)),
        };
        let same = |(file, tensor): (&TensorFile, &&Tensor)| {
            file.dtype == tensor.dtype.to_string() && file.shape == tensor.shape
        };
        if outputs.len() != expected.len() || !outputs.iter().zip(expected).all(same) {
            return Err(nonsense("outputs of another kernel"));
        }
        let mut tensors = Vec::new();
        for (file, tensor) in outputs.iter().zip(expected) {
            let bytes = self.get(&file.hash, tensor.data.len() as u64)?;
            tensors.push(file.tensor(bytes).map_err(|why| nonsense(&why))?);
        }
        Ok(tensors)
    }

    /// Times kernels interleaved.
    pub fn time(
        &mut self,
        store: &Store,
        calls: Vec<Call>,
        min_time: f64,
        limit: Option<(Isa, Limit)>,
    ) -> FarResult<Rounds> {
        let given = calls.iter().flat_map(|call| call.given.files());
        let files: Vec<Hash> =
            given.chain(calls.iter().map(|call| &call.module)).cloned().collect();
        self.send_missing(store, &files)?;
        let (count, limited) = (calls.len(), limit.is_some());
        match self.work(Work::Time { calls, min_time, limit })? {
            Done::Timed(rounds) => {
                let number = rounds.times.first().map_or(0, Vec::len);
                let sound = |times: &Vec<f64>| times.len() == number && are_times(times);
                let limits = if limited { number } else { 0 };
                let complete = rounds.times.len() == count && rounds.calls.len() == count;
                let all = rounds.times.iter().all(sound) && number > 0;
                match complete && all && rounds.limit.len() == limits && are_times(&rounds.limit) {
                    true => Ok(rounds),
                    false => Err(nonsense("times that cannot be")),
                }
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the limits of the machine.
    pub fn limits(&mut self, isa: Isa, threads: usize, fresh: bool) -> FarResult<Limits> {
        match self.work(Work::Limits { isa, threads, fresh })? {
            Done::Limits(mut limits) if are_limits(&limits, isa, threads) => {
                limits.cpu = printable(&limits.cpu);
                let levels = limits.levels.iter_mut();
                levels.for_each(|level| level.name = printable(&level.name));
                Ok(limits)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Writes the tensors of a call to a store.
    pub fn given(store: &Store, given: &crate::cli::data::Given) -> FarResult<GivenFiles> {
        GivenFiles::save(given, store).map_err(FarError::Program)
    }
}

/// Returns an outcome without control characters.
fn clean(outcome: Outcome) -> Outcome {
    let Outcome::Failed(failure) = outcome else { return outcome };
    Outcome::Failed(match failure {
        TrialFailure::Refused(text) => TrialFailure::Refused(printable(&text)),
        TrialFailure::Bug(text) => TrialFailure::Bug(printable(&text)),
        TrialFailure::Call(text) => TrialFailure::Call(printable(&text)),
        TrialFailure::Runner(text) => TrialFailure::Runner(printable(&text)),
        other => other,
    })
}

fn nonsense(what: &str) -> FarError {
    FarError::Lost(format!("its answer makes no sense: {}", printable(what)))
}

fn unexpected(reply: &impl std::fmt::Debug) -> FarError {
    let text: String = format!("{reply:?}").chars().take(80).collect();
    nonsense(&format!("{text}…"))
}

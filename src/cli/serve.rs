//! `tec serve --stdio`: the far side of `--on`. It runs modules that `tec` compiled elsewhere, and
//! answers one request after the other; a client that goes away ends it.

use super::compile::cpu;
use super::recorded::machine;
use super::remote::frame::{Frame, FrameError, MAGIC, MAX_DATA, MAX_MESSAGE};
use super::remote::message::{
    Candidate, Code, Done, Failure, Hello, PROTOCOL, Prepared, Reply, Request, Work,
};
use super::remote::store::{Hash, Incoming, Store};
use super::report::Error;
use super::threads;
use super::tune::pool::{self, Pool};
use crate::diag::Diag;
use crate::module::gpu::Gpu;
use crate::target::Target;
use crate::tune::{Compared, Outcome};
use rustc_hash::FxHashSet;
use std::fs::{File, TryLockError};
use std::io::{BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  tec serve --stdio                               # started by: tec run f.te --on 'ssh pi'
  taskset -c 2-3 tec serve --stdio --memory 2     # on two of the CPUs, with 2 GiB

In `~/.ssh/authorized_keys`, a key that may do nothing else:
  command=\"tec serve --stdio\",restrict ssh-ed25519 AAAA… user@host";

/// Run modules for `tec run --on`, `tec bench --on` and `tec tune --on`.
///
/// The other side of the connection is standard input and output; no port is opened. Who can start
/// this command can run any code (docs/REMOTE.md).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Talk over standard input and output.
    #[arg(long, required = true)]
    stdio: bool,
    /// Most memory of a candidate of `tec tune`, in GiB, without its arguments.
    #[arg(long, value_name = "GIB", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory: u64,
    /// Most space for files that are kept for the next connection, in GiB.
    #[arg(long, value_name = "GIB", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    disk: u64,
}

/// The time without a request after which another process may measure: the near side may be lost
/// without a notice.
const REST: Duration = Duration::from_secs(10);
/// The time without a request after which the process ends, for the same reason.
const GIVE_UP: Duration = Duration::from_secs(3600);
/// How long a process waits for the one that measures.
const LEASE_WAIT: Duration = Duration::from_secs(12);
/// The time between two signs of life while a request takes long.
const BEAT: Duration = Duration::from_secs(1);

/// What runs the modules of a [`Server`].
pub trait Backend {
    /// Begins with the candidates of a kernel; returns notes.
    fn prepare(&mut self, prepared: Prepared, store: &Store) -> Result<Vec<String>, Failure>;

    /// Measures a candidate.
    fn measure(&mut self, candidate: &Candidate, best: Option<f64>) -> Result<Outcome, Failure>;

    /// Measures candidates interleaved; returns notes too.
    fn compare(
        &mut self,
        candidates: &[Candidate],
        seconds: f64,
    ) -> Result<(Compared, Vec<String>), Failure>;

    /// Does other work.
    fn work(&mut self, work: Work, store: &Store) -> Done;

    /// No request has come for a while.
    fn rest(&mut self) {}
}

/// Answers the frames of a client, whatever they are.
pub struct Server<B> {
    store: Store,
    backend: B,
    /// Files that were found intact in this connection.
    known: FxHashSet<Hash>,
    /// The file that is being received.
    incoming: Option<Receiving>,
}

/// A file that is being received.
struct Receiving {
    hash: Hash,
    /// Bytes that will come.
    left: u64,
    /// Where they go; or why they go nowhere.
    file: Result<Incoming, Failure>,
}

/// Sends a frame; false if nobody reads it.
pub type Send<'a> = &'a mut dyn FnMut(&Frame) -> bool;

impl<B: Backend> Server<B> {
    /// Serves from a store.
    pub fn new(store: Store, backend: B) -> Server<B> {
        Server { store, backend, known: FxHashSet::default(), incoming: None }
    }

    /// Answers a frame. An error ends the connection: the frame cannot be understood.
    pub fn answer(&mut self, frame: Frame, send: Send<'_>) -> Result<(), String> {
        let request = match frame {
            Frame::Alive => return Ok(()),
            Frame::Data(piece) => return self.receive(&piece, send),
            Frame::Message(json) if self.incoming.is_none() => {
                let request = serde_json::from_slice::<Request>(&json);
                request.map_err(|error| format!("a request cannot be read: {error}"))?
            }
            Frame::Message(_) => return Err("a message within a file".to_string()),
        };
        let reply = match request {
            Request::Missing(files) => {
                let missing = files.into_iter().filter(|hash| !self.has(hash));
                Reply::Missing(missing.collect())
            }
            Request::Put { hash, size } => {
                let file = self.store.receive(hash.clone(), size).map_err(Failure::Machine);
                self.incoming = Some(Receiving { hash, left: size, file });
                return self.receive(&[], send);
            }
            Request::Get(hash) => return self.send_file(&hash, send),
            Request::Prepare(prepared) => match self.lacks(&prepared.files()) {
                Some(failure) => Reply::Failed(failure),
                None => match self.backend.prepare(*prepared, &self.store) {
                    Ok(notes) => Reply::Ready { notes },
                    Err(failure) => Reply::Failed(failure),
                },
            },
            Request::Measure { candidate, best } => match self.check(&[&candidate]) {
                Some(failure) => Reply::Failed(failure),
                None => match self.backend.measure(&candidate, best) {
                    Ok(outcome) => Reply::Measured(outcome),
                    Err(failure) => Reply::Failed(failure),
                },
            },
            Request::Compare { candidates, seconds } => {
                let all: Vec<&Candidate> = candidates.iter().collect();
                match self.check(&all) {
                    Some(failure) => Reply::Failed(failure),
                    None if !(0.0..=1e6).contains(&seconds) => {
                        Reply::Failed(Failure::Program(format!("{seconds} seconds")))
                    }
                    None => match self.backend.compare(&candidates, seconds) {
                        Ok((compared, notes)) => Reply::Compared { compared, notes },
                        Err(failure) => Reply::Failed(failure),
                    },
                }
            }
            Request::Work(work) => match self.lacks(&files_of(&work)) {
                Some(failure) => Reply::Failed(failure),
                None => Reply::Done(self.backend.work(work, &self.store)),
            },
        };
        send_reply(&reply, send);
        Ok(())
    }

    fn has(&mut self, hash: &Hash) -> bool {
        let has = self.known.contains(hash) || self.store.has(hash);
        if has {
            self.known.insert(hash.clone());
        }
        has
    }

    /// Returns the failure of a request whose files are not here.
    fn lacks(&mut self, files: &[Hash]) -> Option<Failure> {
        let missing = files.iter().any(|hash| !self.has(hash));
        missing.then(|| Failure::Machine("a file of the request is not there".to_string()))
    }

    fn check(&mut self, candidates: &[&Candidate]) -> Option<Failure> {
        for candidate in candidates {
            let failure = match &candidate.code {
                Code::Module(hash) => self.lacks(std::slice::from_ref(hash)),
                Code::Schedule(_) => {
                    Some(Failure::Program("it takes modules, not schedules".to_string()))
                }
            };
            if failure.is_some() || candidate.limit > Duration::from_secs(1 << 20) {
                let too_long = || Failure::Program("a limit of more than 12 days".to_string());
                return Some(failure.unwrap_or_else(too_long));
            }
        }
        None
    }

    /// Takes a piece of a file; answers after the last one.
    fn receive(&mut self, piece: &[u8], send: Send<'_>) -> Result<(), String> {
        let Some(receiving) = &mut self.incoming else {
            return Err("a piece of no file".to_string());
        };
        let left = receiving.left.checked_sub(piece.len() as u64);
        receiving.left = left.ok_or("a file is longer than announced")?;
        if let Ok(file) = &mut receiving.file
            && let Err(why) = file.add(piece)
        {
            receiving.file = Err(Failure::Machine(why));
        }
        if receiving.left > 0 {
            return Ok(());
        }
        let Receiving { hash, file, .. } = self.incoming.take().expect("it was there");
        let stored = file.and_then(|file| file.finish().map_err(Failure::Machine));
        send_reply(
            &match stored {
                Ok(()) => {
                    self.known.insert(hash);
                    Reply::Stored
                }
                Err(failure) => Reply::Failed(failure),
            },
            send,
        );
        Ok(())
    }

    fn send_file(&mut self, hash: &Hash, send: Send<'_>) -> Result<(), String> {
        let opened = File::open(self.store.path(hash));
        let opened = opened.and_then(|file| Ok((file.metadata()?.len(), file)));
        let Ok((size, mut file)) = opened else {
            let failure = Failure::Machine("a file of the request is not there".to_string());
            send_reply(&Reply::Failed(failure), send);
            return Ok(());
        };
        send_reply(&Reply::File { size }, send);
        let mut left = size;
        while left > 0 {
            let mut piece = vec![0; left.min(MAX_DATA as u64) as usize];
            file.read_exact(&mut piece).map_err(|_| "a file of the store is cut".to_string())?;
            left -= piece.len() as u64;
            if !send(&Frame::Data(piece)) {
                break;
            }
        }
        Ok(())
    }
}

fn send_reply(reply: &Reply, send: Send<'_>) {
    let mut json = serde_json::to_vec(reply).expect("plain data");
    if json.len() > MAX_MESSAGE {
        let why = "the answer is too long for a message".to_string();
        json = serde_json::to_vec(&Reply::Failed(Failure::Machine(why))).expect("plain data");
    }
    send(&Frame::Message(json));
}

fn files_of(work: &Work) -> Vec<Hash> {
    let calls = match work {
        Work::Call(call) => std::slice::from_ref(call),
        Work::Time { calls, .. } => &calls[..],
        Work::Limits { .. } => &[],
    };
    let of = |call: &super::remote::message::Call| {
        let given: Vec<Hash> = call.given.files().cloned().collect();
        given.into_iter().chain([call.module.clone()])
    };
    calls.iter().flat_map(of).collect()
}

/// Runs modules in worker processes.
struct Workers {
    /// The last prepared kernel.
    pool: Option<Pool>,
    /// The most memory of a candidate.
    memory: u64,
    /// The file that the process has locked that measures on this machine.
    lock: PathBuf,
    /// Held while this process measures.
    lease: Option<File>,
}

impl Workers {
    /// Makes this process the only one that measures on this machine. Waits a while: the other one
    /// may be about to notice that its connection is lost.
    fn lease(&mut self) -> Result<(), Failure> {
        if self.lease.is_some() {
            return Ok(());
        }
        let cannot = |error: std::io::Error| {
            let why = crate::module::input::io_text(&error);
            Failure::Machine(format!("cannot lock {}: {why}", self.lock.display()))
        };
        let file = File::options().create(true).append(true).open(&self.lock).map_err(cannot)?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => {
                    self.lease = Some(file);
                    return Ok(());
                }
                Err(TryLockError::WouldBlock) if begin.elapsed() > LEASE_WAIT => {
                    let text = "another `tec serve` measures on this machine; two would disturb \
                                each other";
                    return Err(Failure::Machine(text.to_string()));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(100)),
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
        }
    }

    fn prepared(&mut self) -> Result<&mut Pool, Failure> {
        let none = || Failure::Machine("no kernel is prepared".to_string());
        self.pool.as_mut().ok_or_else(none)
    }
}

impl Backend for Workers {
    fn prepare(&mut self, prepared: Prepared, store: &Store) -> Result<Vec<String>, Failure> {
        self.lease()?;
        // The last one's memory comes free first.
        self.pool = None;
        let memory = prepared.memory.min(self.memory);
        let pool = Pool::of_modules(Prepared { memory, ..prepared }, store.folder());
        let pool = self.pool.insert(pool.map_err(Failure::Machine)?);
        Ok(crate::tune::Measure::notes(pool))
    }

    fn measure(&mut self, candidate: &Candidate, best: Option<f64>) -> Result<Outcome, Failure> {
        self.lease()?;
        let pool = self.prepared()?;
        pool.set_best(best);
        Ok(pool.measure_one(candidate))
    }

    fn compare(
        &mut self,
        candidates: &[Candidate],
        seconds: f64,
    ) -> Result<(Compared, Vec<String>), Failure> {
        self.lease()?;
        let pool = self.prepared()?;
        let compared = pool.compare_all(candidates, seconds);
        Ok((compared, crate::tune::Measure::notes(pool)))
    }

    fn work(&mut self, work: Work, store: &Store) -> Done {
        if !matches!(work, Work::Call(_))
            && let Err(failure) = self.lease()
        {
            return Done::Failed(failure);
        }
        pool::work(work, store.folder())
    }

    fn rest(&mut self) {
        self.lease = None;
    }
}

/// Returns the hello of this machine.
fn hello() -> Hello {
    let target = Target::native();
    Hello {
        tec: env!("CARGO_PKG_VERSION").to_string(),
        protocol: PROTOCOL,
        target: target.to_string(),
        processor: target.processor.name.to_string(),
        features: Target::host_features().into_iter().map(String::from).collect(),
        machine: machine(&target.to_string()),
        threads: threads::usual(),
        memory: cpu::available_memory(),
        gpu: Gpu::find().ok(),
    }
}

/// Runs the command.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    if std::io::stdin().is_terminal() || std::io::stdout().is_terminal() {
        let text = "`tec serve --stdio` is on a terminal: `tec run --on 'ssh HOST'` starts it, \
                    without `-t`";
        return Err(Diag::global("E0606", text).into());
    }
    let gib = |number: u64| number << 30;
    let store = Store::of_user(gib(args.disk)).map_err(|why| Diag::global("E0607", why))?;
    let output = Arc::new(Mutex::new(std::io::stdout()));
    let write = |bytes: &[u8]| {
        let mut output = output.lock().expect("no holder panics");
        output.write_all(bytes).and_then(|()| output.flush()).is_ok()
    };
    let json = serde_json::to_vec(&hello()).expect("plain data");
    if !write(MAGIC) || !write(&Frame::Message(json).bytes()) {
        return Ok(());
    }
    let busy = Arc::new(AtomicBool::new(false));
    let (beating, beat_output) = (busy.clone(), output.clone());
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(BEAT);
            let mut output = beat_output.lock().expect("no holder panics");
            if beating.load(Ordering::SeqCst) && Frame::Alive.write(&mut *output).is_err() {
                std::process::exit(0);
            }
        }
    });
    // The client goes away while a request is worked on: the workers end with this process.
    let (sender, frames) = sync_channel::<Result<Frame, FrameError>>(2);
    let working = busy.clone();
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin().lock());
        loop {
            let frame = Frame::read(&mut input);
            let last = frame.is_err();
            if last && working.load(Ordering::SeqCst) {
                std::process::exit(0);
            }
            if sender.send(frame).is_err() || last {
                break;
            }
        }
    });
    let (memory, lock) = (gib(args.memory), store.folder().join("lock"));
    let workers = Workers { pool: None, memory, lock, lease: None };
    let mut server = Server::new(store, workers);
    let mut last = Instant::now();
    loop {
        let frame = match frames.recv_timeout(REST) {
            Ok(Ok(frame)) => frame,
            Err(RecvTimeoutError::Timeout) if last.elapsed() > GIVE_UP => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                server.backend.rest();
                continue;
            }
            Ok(Err(FrameError::Ended | FrameError::Cut)) | Err(RecvTimeoutError::Disconnected) => {
                return Ok(());
            }
            Ok(Err(error)) => return Err(violation(&format!("{error:?}"))),
        };
        busy.store(true, Ordering::SeqCst);
        let mut alive = true;
        let answered = server.answer(frame, &mut |frame| {
            alive &= write(&frame.bytes());
            alive
        });
        busy.store(false, Ordering::SeqCst);
        last = Instant::now();
        answered.map_err(|why| violation(&why))?;
        if !alive {
            return Ok(());
        }
    }
}

fn violation(why: &str) -> Error {
    Diag::global("E0606", format!("the client of `tec serve` does not follow the protocol: {why}"))
        .into()
}

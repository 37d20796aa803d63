//! `tec tune --on COMMAND`: candidates are compiled here and measured on other machines.
//!
//! Each machine is a *station*: a thread with the connection, and with a worker process that
//! compiles. A farm gives the next candidate to a station that is free. A station whose connection
//! is lost connects again and repeats the candidate under way. One that fails drops out with a
//! note, and another station takes its candidate.

use super::pool::{Pool, correct_seconds};
use super::protocol::Setup;
use crate::cli::machine::{Isa, Machine as Limits};
use crate::cli::remote::client::{Client, FarError, FarResult};
use crate::cli::remote::message::{Candidate, Code, Hello, Prepared};
use crate::cli::remote::on::{check, connect};
use crate::cli::remote::process::Process;
use crate::cli::remote::store::{Hash, Store};
use crate::diag::{self, Diag};
use crate::driver::panic_text;
use crate::target::Target;
use crate::tune::records::Machine;
use crate::tune::{Compared, Job, Measure, Outcome, TrialFailure};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Candidates in a row that a station may lose.
const MAX_LOST: usize = 3;

/// Machines of one kind.
pub struct Farm {
    stations: Vec<Handle>,
    hello: Hello,
    /// Kernels that were opened.
    kernels: usize,
    notes: Vec<String>,
    /// Why the last station dropped out.
    lost: String,
}

/// The near end of a station.
struct Handle {
    name: String,
    /// None if it dropped out.
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What a station's thread is told.
type Order = Box<dyn FnOnce(&mut Station) + Send>;

/// A machine, with its compiler here.
struct Station {
    command: String,
    wait: Option<Duration>,
    /// What the machine was at first.
    hello: Hello,
    /// None if the connection is lost.
    client: Option<Client<Process>>,
    /// The kernels that are compiled for it.
    kernels: BTreeMap<usize, Opened>,
    /// The kernel that the far side has prepared.
    prepared: Option<usize>,
    /// Candidates that were lost in a row.
    lost: usize,
}

/// A kernel that is compiled for a station.
struct Opened {
    builder: Pool,
    store: Store,
    prepared: Prepared,
}

impl Drop for Farm {
    fn drop(&mut self) {
        for station in &mut self.stations {
            station.orders = None;
        }
        for station in &mut self.stations {
            let _ = station.thread.take().map(JoinHandle::join);
        }
    }
}

impl Farm {
    /// Connects to machines; those that fail are left out with a note. They must be of one kind,
    /// because a search compares their times.
    pub fn connect(commands: &[String], wait: Option<Duration>) -> diag::Result<Farm> {
        let clients: Vec<FarResult<Client<Process>>> = std::thread::scope(|scope| {
            let commands = commands.iter();
            let threads = commands.map(|command| scope.spawn(move || connect(command, wait)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        let mut found: Vec<(String, Client<Process>)> = Vec::new();
        let (mut notes, mut failed) = (Vec::new(), None);
        for (command, client) in commands.iter().zip(clients) {
            match client {
                Ok(client) => found.push((command.clone(), client)),
                Err(error) => {
                    notes.push(format!("`{command}` takes no part: {}", error.why()));
                    failed.get_or_insert(error.diag(command));
                }
            }
        }
        let Some((first, client)) = found.first() else {
            return Err(failed.unwrap_or_else(|| crate::bug!("`--on` without a command")));
        };
        let hello = client.hello().clone();
        for (other, client) in &found[1..] {
            if let Some(why) = difference(&hello, client.hello()) {
                let text = format!("`{first}` and `{other}` are of two kinds: {why}");
                let help = "a search compares times: give it machines of one kind";
                return Err(Box::new(Diag::global("E0607", text).help(help)));
            }
        }
        let stations =
            found.into_iter().map(|(command, client)| Handle::new(command, client, wait));
        let stations = stations.collect();
        let lost = String::new();
        Ok(Farm { stations, hello, kernels: 0, notes, lost })
    }

    /// What the machines are.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the machine that measures code for a target, as records name it.
    pub fn machine_for(&self, target: &Target) -> Machine {
        self.hello.machine_for(target)
    }

    /// Refuses a target whose code does not run there.
    pub fn check(&self, target: &Target) -> diag::Result<()> {
        check(&self.stations[0].name, &self.hello, target)
    }

    /// Returns new notes for the user.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns why nothing can be measured any more, if so.
    pub fn lost(&self) -> Option<&str> {
        let none = self.stations.iter().all(|station| station.orders.is_none());
        none.then_some(&self.lost[..])
    }

    /// Returns the stations that take part.
    fn present(&self) -> Vec<usize> {
        let all = 0..self.stations.len();
        all.filter(|at| self.stations[*at].orders.is_some()).collect()
    }

    /// Sends an order to a station; its result goes to `results` with its number.
    fn order<T: Send + 'static>(
        &self,
        station: usize,
        results: &Sender<(usize, FarResult<T>)>,
        order: impl FnOnce(&mut Station) -> FarResult<T> + Send + 'static,
    ) {
        let results = results.clone();
        let run: Order = Box::new(move |own| {
            let result = catch_unwind(AssertUnwindSafe(|| order(own)));
            let bug = |payload: Box<dyn std::any::Any + Send>| {
                Err(FarError::Machine(format!("a bug in tec: {}", panic_text(&*payload))))
            };
            // The farm may be gone.
            let _ = results.send((station, result.unwrap_or_else(bug)));
        });
        let orders = self.stations[station].orders.as_ref().expect("it takes part");
        orders.send(run).expect("its thread runs until it is dropped");
    }

    /// Lets one station after the other try, until one does not fail.
    fn any<T: Send + 'static>(
        &mut self,
        order: impl Fn(&mut Station) -> FarResult<T> + Clone + Send + 'static,
    ) -> FarResult<T> {
        let mut failure = FarError::Machine("no machine is left".to_string());
        for station in self.present() {
            let (results, result) = channel();
            let order = order.clone();
            self.order(station, &results, move |own| order(own));
            match result.recv().expect("the order sends a result").1 {
                Ok(value) => return Ok(value),
                Err(FarError::Program(why)) => return Err(FarError::Program(why)),
                Err(error) => {
                    self.leave(station, &error);
                    failure = error;
                }
            }
        }
        Err(failure)
    }

    /// Lets a station drop out.
    fn leave(&mut self, station: usize, error: &FarError) {
        let own = &mut self.stations[station];
        own.orders = None;
        self.lost = format!("`{}`: {}", own.name, error.why());
        self.notes.push(format!("`{}` drops out: {}", own.name, error.why()));
    }

    /// Returns the limits of the machines.
    pub fn limits(&mut self, isa: Isa, threads: usize) -> diag::Result<Limits> {
        let threads = threads.min(self.hello.machine.cores);
        let limits = self.any(move |station| {
            station.repeated(|station| station.client()?.limits(isa, threads, false))
        });
        limits.map_err(|error| error.diag(&self.stations[0].name))
    }
}

impl Handle {
    fn new(command: String, client: Client<Process>, wait: Option<Duration>) -> Handle {
        let (orders, received) = channel::<Order>();
        let (name, hello) = (command.clone(), client.hello().clone());
        let mut station = Station {
            command,
            wait,
            hello,
            client: Some(client),
            kernels: BTreeMap::new(),
            prepared: None,
            lost: 0,
        };
        // The workers that compile end with the thread that started them.
        let thread = std::thread::spawn(move || {
            for order in received {
                order(&mut station);
            }
        });
        Handle { name, orders: Some(orders), thread: Some(thread) }
    }
}

/// Returns why times of two machines cannot be compared.
fn difference(one: &Hello, other: &Hello) -> Option<String> {
    let describe = |hello: &Hello| {
        let Hello { machine: Machine { cpu, cores }, target, gpu, .. } = hello;
        let gpu = gpu.as_ref().map_or(String::new(), |gpu| format!(", {gpu}"));
        format!("{cpu}, {cores} cores, {target}{gpu}")
    };
    let (one, other) = (describe(one), describe(other));
    (one != other).then(|| format!("{one}; {other}"))
}

impl Station {
    /// Returns the connection; connects again if it is lost.
    fn client(&mut self) -> FarResult<&mut Client<Process>> {
        if self.client.is_none() {
            self.prepared = None;
            let client = connect(&self.command, self.wait)?;
            if let Some(why) = difference(&self.hello, client.hello()) {
                return Err(FarError::Machine(format!("it is another machine now: {why}")));
            }
            self.client = Some(client);
        }
        Ok(self.client.as_mut().expect("it is connected"))
    }

    /// Tries twice, the second time over a new connection.
    fn repeated<T>(&mut self, run: impl Fn(&mut Station) -> FarResult<T>) -> FarResult<T> {
        match run(self) {
            Err(FarError::Program(why)) => Err(FarError::Program(why)),
            Err(_) => {
                self.client = None;
                // What the far side had is gone, perhaps.
                self.client()?;
                run(self).inspect_err(|_| self.client = None)
            }
            result => result,
        }
    }

    /// Starts the compiler of a kernel.
    fn open(&mut self, kernel: usize, setup: &Setup) -> FarResult<Vec<String>> {
        if self.kernels.contains_key(&kernel) {
            return Ok(Vec::new());
        }
        let own = FarError::Program;
        let store = Store::temporary().map_err(own)?;
        let builder = Pool::to_build(setup.clone(), store.folder());
        let mut builder = builder.map_err(|diag| own(diag.message.clone()))?;
        let prepared = builder.export();
        let prepared = prepared.map_err(|failure| own(super::pool::describe(&failure)))?;
        let notes = Measure::notes(&mut builder);
        self.kernels.insert(kernel, Opened { builder, store, prepared });
        Ok(notes)
    }

    /// Makes a kernel the one that the far side measures; returns notes.
    fn prepare(&mut self, kernel: usize) -> FarResult<Vec<String>> {
        self.client()?;
        if self.prepared == Some(kernel) {
            return Ok(Vec::new());
        }
        let (Some(client), Some(opened)) = (&mut self.client, self.kernels.get(&kernel)) else {
            crate::bug!("kernel {kernel} is not open")
        };
        let notes = client.prepare(&opened.store, &opened.prepared)?;
        self.prepared = Some(kernel);
        Ok(notes)
    }

    /// Compiles a candidate.
    fn build(&mut self, kernel: usize, job: &Job) -> Result<(Candidate, Hash), TrialFailure> {
        let opened = self.kernels.get_mut(&kernel).expect("it was opened");
        let hash = opened.builder.build(&job.text)?;
        Ok((Candidate { code: Code::Module(hash.clone()), limit: job.limit }, hash))
    }

    /// Compiles a candidate and measures it.
    fn measure(
        &mut self,
        (kernel, setup): (usize, &Setup),
        job: &Job,
        best: Option<f64>,
    ) -> FarResult<Outcome> {
        self.open(kernel, setup)?;
        let (candidate, hash) = match self.build(kernel, job) {
            Ok(built) => built,
            Err(failure) => return Ok(Outcome::Failed(failure)),
        };
        let outcome = self.repeated(|station| {
            station.prepare(kernel)?;
            let (Some(client), Some(opened)) = (&mut station.client, station.kernels.get(&kernel))
            else {
                crate::bug!("kernel {kernel} is not open")
            };
            client.measure(&opened.store, candidate.clone(), &hash, best)
        });
        // A trial needs its module once; the last comparison compiles again.
        if let Some(opened) = self.kernels.get(&kernel) {
            let _ = std::fs::remove_file(opened.store.path(&hash));
        }
        match outcome {
            // It was lost twice, perhaps by its own fault: the station goes on without it.
            Err(FarError::Lost(why)) if self.lost + 1 < MAX_LOST => {
                self.lost += 1;
                self.client()?;
                Ok(Outcome::Failed(TrialFailure::Runner(why)))
            }
            Ok(outcome) => {
                self.lost = 0;
                Ok(outcome)
            }
            failed => failed,
        }
    }

    /// Compiles candidates and measures them interleaved; returns notes too.
    fn compare(
        &mut self,
        (kernel, setup): (usize, &Setup),
        jobs: &[Job],
        seconds: f64,
    ) -> FarResult<(Compared, Vec<String>)> {
        self.open(kernel, setup)?;
        let mut outcomes: Vec<Option<Outcome>> = vec![None; jobs.len()];
        let mut built = Vec::new();
        for (at, job) in jobs.iter().enumerate() {
            match self.build(kernel, job) {
                Ok((candidate, hash)) => built.push((at, candidate, hash)),
                Err(failure) => outcomes[at] = Some(Outcome::Failed(failure)),
            }
        }
        let candidates: Vec<Candidate> = built.iter().map(|(_, one, _)| one.clone()).collect();
        let modules: Vec<Hash> = built.iter().map(|(.., hash)| hash.clone()).collect();
        let (compared, notes) = self.repeated(|station| {
            station.prepare(kernel)?;
            let (Some(client), Some(opened)) = (&mut station.client, station.kernels.get(&kernel))
            else {
                crate::bug!("kernel {kernel} is not open")
            };
            client.compare(&opened.store, candidates.clone(), &modules, seconds)
        })?;
        for ((at, ..), outcome) in built.iter().zip(compared.outcomes) {
            outcomes[*at] = Some(outcome);
        }
        let outcomes = outcomes.into_iter().map(|one| one.expect("each has one")).collect();
        Ok((Compared { outcomes, in_turns: compared.in_turns }, notes))
    }
}

/// Measures a kernel on a farm.
pub struct FarKernel {
    farm: Rc<RefCell<Farm>>,
    kernel: usize,
    setup: Setup,
    best: Option<f64>,
    notes: Vec<String>,
}

impl FarKernel {
    /// Compiles the reference output of a kernel, and sends it to a machine.
    pub fn open(farm: &Rc<RefCell<Farm>>, setup: Setup) -> diag::Result<FarKernel> {
        let setup = Setup { elsewhere: true, ..setup };
        let (kernel, first, opened) = {
            let mut farm = farm.borrow_mut();
            let kernel = farm.kernels;
            farm.kernels += 1;
            let own = setup.clone();
            let opened = farm.any(move |station| {
                let mut notes = station.open(kernel, &own)?;
                notes.extend(station.repeated(|station| station.prepare(kernel))?);
                Ok(notes)
            });
            (kernel, farm.stations[0].name.clone(), opened)
        };
        let notes = opened.map_err(|error| match error {
            FarError::Program(why) => Box::new(Diag::global("E0601", why)),
            error => error.diag(&first),
        })?;
        Ok(FarKernel { farm: farm.clone(), kernel, setup, best: None, notes })
    }
}

impl Measure for FarKernel {
    fn measure(&mut self, jobs: &[Job], done: &mut dyn FnMut(usize, &Outcome)) -> Vec<Outcome> {
        let mut farm = self.farm.borrow_mut();
        let (results, received) = channel();
        let mut idle = farm.present();
        let mut running = BTreeMap::new();
        let mut waiting: VecDeque<usize> = (0..jobs.len()).collect();
        let mut outcomes: Vec<Option<Outcome>> = vec![None; jobs.len()];
        loop {
            while let (Some(at), Some(station)) = (waiting.front().copied(), idle.first().copied())
            {
                waiting.pop_front();
                idle.remove(0);
                running.insert(station, at);
                let (kernel, setup) = (self.kernel, self.setup.clone());
                let (job, best) = (jobs[at].clone(), self.best);
                farm.order(station, &results, move |own| own.measure((kernel, &setup), &job, best));
            }
            if running.is_empty() {
                break;
            }
            let (station, result) = received.recv().expect("a sender is here");
            let at = running.remove(&station).expect("it had an order");
            match result {
                Ok(outcome) => {
                    if let Some(seconds) = correct_seconds(&outcome) {
                        self.best = Some(self.best.map_or(seconds, |best| best.min(seconds)));
                    }
                    done(at, &outcome);
                    outcomes[at] = Some(outcome);
                    idle.push(station);
                }
                Err(error) => {
                    farm.leave(station, &error);
                    waiting.push_front(at);
                }
            }
        }
        let lost = || Outcome::Failed(TrialFailure::Runner(farm.lost.clone()));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(lost)).collect()
    }

    fn compare(&mut self, jobs: &[Job], seconds: f64) -> Compared {
        let (kernel, setup, own) = (self.kernel, self.setup.clone(), jobs.to_vec());
        let compared = self
            .farm
            .borrow_mut()
            .any(move |station| station.compare((kernel, &setup), &own, seconds));
        match compared {
            Ok((compared, notes)) => {
                self.notes.extend(notes);
                compared
            }
            Err(error) => {
                let failure = TrialFailure::Runner(error.why().to_string());
                Compared { outcomes: vec![Outcome::Failed(failure); jobs.len()], in_turns: false }
            }
        }
    }

    fn notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.farm.borrow_mut().notes());
        notes
    }

    fn width(&self) -> usize {
        self.farm.borrow().present().len()
    }

    fn lost(&self) -> Option<String> {
        self.farm.borrow().lost().map(String::from)
    }
}

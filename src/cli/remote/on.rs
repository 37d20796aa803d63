//! `--on COMMAND`: opens connections.

use super::client::{Client, FarError, FarResult};
use super::message::{Call, Hello};
use super::process::{HELLO_LIMIT, Limits, Process};
use super::push::PushArgs;
use super::store::{Hash, Store};
use crate::cli::data::Given;
use crate::cli::machine::{Isa, Limit, Machine};
use crate::cli::measure::Rounds;
use crate::diag::Diag;
use crate::ir::interp::Tensor;
use crate::target::Target;
use std::time::Duration;

/// What a command without it gets at its end.
const SERVE: &str = "tec serve --stdio";

/// `--on` of commands that use one machine.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OnArgs {
    /// Compile here, and run on the machine that this command reaches, such as `ssh pi`.
    ///
    /// The command gets `tec serve --stdio` as its last words, unless it has them. `native` is the
    /// target of that machine (docs/REMOTE.md).
    #[arg(long, value_name = "COMMAND")]
    pub on: Option<String>,
    /// Time until the machine answers, such as 60s, 5m or 1h [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "on")]
    pub on_wait: Option<Duration>,
    /// The copy of `tec` that is started there.
    #[command(flatten)]
    pub push: PushArgs,
}

/// Parses a time such as `60s`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| "write it as 60s, 5m or 1h".to_string())?;
    let unit = match &text[end..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("write it as 60s, 5m or 1h".to_string()),
    };
    let seconds = number * unit;
    if !(0.1..=1e7).contains(&seconds) {
        return Err("the time must be between 0.1 s and 1e7 s".to_string());
    }
    Ok(Duration::from_secs_f64(seconds))
}

impl OnArgs {
    /// Connects, if there is a command.
    pub fn connect(&self) -> Result<Option<Far>, Box<Diag>> {
        let Some(command) = &self.on else { return Ok(None) };
        let limit = self.on_wait.unwrap_or(HELLO_LIMIT);
        let started = self.push.command(command, limit).map_err(|error| error.diag(command))?;
        Far::connect(&started, self.on_wait).map(Some)
    }
}

/// A connected machine.
pub struct Far {
    name: String,
    client: Client<Process>,
    store: Store,
}

/// Starts a command, and waits for the hello of the far side.
pub fn connect(command: &str, wait: Option<Duration>) -> FarResult<Client<Process>> {
    let line = match command.contains("serve --stdio") {
        true => command.to_string(),
        false => format!("{command} {SERVE}"),
    };
    let usual = Limits::default();
    let limits = Limits { hello: wait.unwrap_or(usual.hello), ..usual };
    Client::open(Process::start(&line, limits).map_err(FarError::Lost)?)
}

impl Far {
    /// Connects to a machine.
    pub fn connect(command: &str, wait: Option<Duration>) -> Result<Far, Box<Diag>> {
        let client = connect(command, wait).map_err(|error| error.diag(command))?;
        let store = Store::temporary().map_err(|why| Box::new(Diag::global("E0501", why)))?;
        Ok(Far { name: command.to_string(), client, store })
    }

    /// What the far side is.
    pub fn hello(&self) -> &Hello {
        self.client.hello()
    }

    /// Refuses a target whose code does not run there.
    pub fn check(&self, target: &Target) -> Result<(), Box<Diag>> {
        check(&self.name, self.hello(), target)
    }

    /// Keeps a module to be sent.
    pub fn add(&self, module: &[u8]) -> Result<Hash, Box<Diag>> {
        self.store.put(module).map_err(|why| Box::new(Diag::global("E0501", why)))
    }

    /// Describes a call.
    pub fn describe(
        &self,
        module: &Hash,
        kernel: &str,
        given: &Given,
        threads: usize,
    ) -> Result<Call, Box<Diag>> {
        let given = Client::<Process>::given(&self.store, given).map_err(|e| e.diag(&self.name))?;
        Ok(Call { module: module.clone(), kernel: kernel.to_string(), given, threads })
    }

    /// Calls a kernel; `expected` has tensors of the types and shapes of its outputs.
    pub fn call(&mut self, call: Call, expected: &[&Tensor]) -> Result<Vec<Tensor>, Box<Diag>> {
        self.client.call(&self.store, call, expected).map_err(|error| error.diag(&self.name))
    }

    /// Times kernels interleaved.
    pub fn time(
        &mut self,
        calls: Vec<Call>,
        min_time: f64,
        limit: Option<(Isa, Limit)>,
    ) -> Result<Rounds, Box<Diag>> {
        let rounds = self.client.time(&self.store, calls, min_time, limit);
        rounds.map_err(|error| error.diag(&self.name))
    }

    /// Returns the limits of the machine.
    pub fn limits(&mut self, isa: Isa, threads: usize, fresh: bool) -> Result<Machine, Box<Diag>> {
        self.client.limits(isa, threads, fresh).map_err(|error| error.diag(&self.name))
    }
}

/// Refuses a target whose code does not run on a machine.
pub fn check(name: &str, hello: &Hello, target: &Target) -> Result<(), Box<Diag>> {
    match hello.why_not(target) {
        None => Ok(()),
        Some(why) => {
            let help = format!("leave out `--target`; it is {}", hello.target);
            Err(Box::new(Diag::global("E0607", format!("`{name}`: {why}")).help(help)))
        }
    }
}

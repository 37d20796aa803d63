//! The commands of the tuner: measuring candidates and keeping records.
//!
//! [`pool::Pool`] measures in a worker process, [`runner::Runner`] gives batches to a job system;
//! [`open`] opens either. [`super::recorded`] reads and writes the files of records.

pub mod batch;
pub mod best;
pub mod cache;
pub mod command;
pub mod comparison;
pub mod far;
pub mod harness;
pub mod log;
pub mod manage;
pub mod packed;
pub mod pool;
pub mod protocol;
pub mod reference;
pub mod report;
pub mod runner;
pub mod samples;
pub mod sizes;
pub mod subject;
pub mod task;
pub mod unmeasured;
pub mod verify;
pub mod worker;

use super::recorded::machine;
use super::report::Error;
use crate::tune::Measure;
use crate::tune::records::Machine;
use protocol::{Owner, Setup};

/// Opens a [`Measure`] for one kernel, and returns the machine that it measures on: a worker
/// process on this machine, or `--runner COMMAND`, whose files lie beside the owner's records.
pub fn open(
    setup: Setup,
    runner: Option<&str>,
    owner: Owner,
) -> Result<(Box<dyn Measure>, Machine), Error> {
    let here = machine(&setup.target);
    Ok(match runner {
        Some(command) => {
            let (runner, machine) = runner::Runner::new(setup, command, owner)?;
            (Box::new(runner), machine.unwrap_or(here))
        }
        None => (Box::new(pool::Pool::open(setup)?), here),
    })
}

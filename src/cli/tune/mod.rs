//! Tuning from the command line: where candidates are measured, and where records are kept.
//!
//! [`pool::Pool`] measures in a worker process of its own, [`runner::Runner`] hands batches to a
//! job system; [`open`] is either. [`records`] keeps what they find.

pub mod ahead;
pub mod batch;
pub mod best;
pub mod cache;
pub mod command;
pub mod edit;
pub mod leaders;
pub mod log;
pub mod manage;
pub mod plant;
pub mod pool;
pub mod protocol;
pub mod records;
pub mod reference;
pub mod report;
pub mod runner;
pub mod samples;
pub mod task;
pub mod unmeasured;
pub mod verify;
pub mod worker;

use super::report::Error;
use crate::tune::Measure;
use crate::tune::records::Machine;
use protocol::{Owner, Setup};

/// A [`Measure`] for one kernel, and the machine that it measures on: by a process on this one, or
/// by `--runner COMMAND`, whose files lie beside the owner's records.
pub fn open(
    setup: Setup,
    runner: Option<&str>,
    owner: Owner,
) -> Result<(Box<dyn Measure>, Machine), Error> {
    let here = log::machine(&setup.target);
    Ok(match runner {
        Some(command) => {
            let (runner, machine) = runner::Runner::new(setup, command, owner)?;
            (Box::new(runner), machine.unwrap_or(here))
        }
        None => (Box::new(pool::Pool::open(setup)?), here),
    })
}

//! `tec tune-batch IN OUT`: what a runner's job does. It measures the candidates of one file and
//! writes another, which appears complete or not at all.

use super::super::report::{Error, Reporter};
use super::pool::Pool;
use super::protocol::{BATCH_FORMAT, BatchIn, BatchOut};
use crate::diag::Diag;
use crate::module::write::OutputFile;
use crate::tune::Measure;
use std::path::PathBuf;

/// Measure the candidates of a batch: the job that `tec tune --runner` makes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The batch, JSON.
    input: PathBuf,
    /// Where the outcomes go, JSON.
    output: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Error> {
    let refuse = |why: String| {
        let text = format!("{} is no batch of candidates: {why}", args.input.display());
        Error::from(Diag::global("E0602", text))
    };
    let text = std::fs::read(&args.input)
        .map_err(|error| refuse(super::super::options::io_text(&error)))?;
    let batch: BatchIn = serde_json::from_slice(&text).map_err(|why| refuse(why.to_string()))?;
    if batch.format != BATCH_FORMAT {
        let format = batch.format;
        return Err(refuse(format!("it is of format {format}, this `tec` reads {BATCH_FORMAT}")));
    }
    let mut pool = Pool::open(batch.setup)?;
    pool.set_best(batch.best);
    let outcomes = match batch.in_turns {
        Some(seconds) => pool.compare(&batch.jobs, seconds),
        None => pool.measure(&batch.jobs, &mut |_, _| {}),
    };
    let out = BatchOut { format: BATCH_FORMAT, outcomes, notes: pool.notes() };
    let bytes = serde_json::to_vec_pretty(&out).expect("plain data");
    reporter.write(&[OutputFile { path: args.output.clone(), bytes, executable: false }])
}

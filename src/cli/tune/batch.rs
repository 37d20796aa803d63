//! `tec tune-batch IN OUT`: the job of a runner. It measures the candidates of one file and writes
//! another one atomically; until then, `OUT` with the extension `.jsonl` has a line for each
//! finished candidate.

use super::super::paths::Files;
use super::super::recorded::machine;
use super::super::report::{Error, Reporter};
use super::pool::Pool;
use super::protocol::{BATCH_FORMAT, BatchIn, BatchLine, BatchOut};
use crate::diag::Diag;
use crate::module::input;
use crate::module::write::OutputFile;
use crate::tune::{Compared, Job, Measure};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Measure the candidates of a batch, as a job of `tec tune --runner`.
#[derive(Debug, clap::Args)]
pub struct BatchArgs {
    /// Batch of candidates, as JSON.
    input: PathBuf,
    /// Write the outcomes here, as JSON.
    output: PathBuf,
}

/// Runs the command.
pub fn run(args: &BatchArgs, reporter: &Reporter) -> Result<(), Error> {
    let refuse = |why: String| {
        let text = format!("{} is not a batch of candidates: {why}", args.input.display());
        Error::from(Diag::global("E0602", text))
    };
    let files = Files::default().input("the batch", &args.input).output("OUT", Some(&args.output));
    files.output("OUT", Some(lines_of(&args.output))).check()?;
    let text = input::read(&args.input, input::RECORDS).map_err(refuse)?;
    let batch: BatchIn = serde_json::from_slice(&text).map_err(|why| refuse(why.to_string()))?;
    if batch.format != BATCH_FORMAT {
        let format = batch.format;
        return Err(refuse(format!(
            "its format is {format}, but this `tec` reads format {BATCH_FORMAT}"
        )));
    }
    let machine = Some(machine(&batch.setup.target));
    let mut pool = Pool::open(batch.setup)?;
    pool.set_best(batch.best);
    let Compared { outcomes, in_turns } = match batch.in_turns {
        Some(seconds) => pool.compare(&batch.jobs, seconds),
        None => measure(&mut pool, &batch.jobs, &args.output)?,
    };
    let alone = batch.in_turns.is_some() && !in_turns;
    let out = BatchOut { format: BATCH_FORMAT, outcomes, alone, machine, notes: pool.notes() };
    let bytes = serde_json::to_vec_pretty(&out).expect("plain data");
    reporter.write(&[OutputFile { path: args.output.clone(), bytes, executable: false }])
}

/// Returns the path of the intermediate output.
fn lines_of(output: &Path) -> PathBuf {
    output.with_extension("jsonl")
}

/// Measures candidates one by one, and writes a line of `OUT.jsonl` before the next begins, because
/// the search may have ended when the batch ends.
fn measure(pool: &mut Pool, jobs: &[Job], output: &Path) -> Result<Compared, Error> {
    let path = lines_of(output);
    let cannot = |error: std::io::Error| {
        let why = crate::module::input::io_text(&error);
        Error::from(Diag::global("E0602", format!("cannot write {}: {why}", path.display())))
    };
    let mut file = File::create(&path).map_err(cannot)?;
    let mut written = Ok(());
    let outcomes = pool.measure(jobs, &mut |at, outcome| {
        let line = BatchLine { at, outcome: outcome.clone() };
        let line = serde_json::to_string(&line).expect("plain data") + "\n";
        if written.is_ok() {
            written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        }
    });
    written.map_err(cannot)?;
    Ok(Compared { outcomes, in_turns: false })
}

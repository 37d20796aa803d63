//! `--runner 'COMMAND {}'`: batches are measured wherever a command runs a shell script: on
//! another machine, by a job system.
//!
//! For each batch there is a directory beside the records, so that every machine that sees the
//! records sees it: `in.json`, `out.json` and `job.sh`, whose path takes the place of `{}`.
//! The command has to wait for the script's end.

use super::pool::right_seconds;
use super::protocol::{BATCH_FORMAT, BatchIn, BatchOut, Setup};
use crate::diag::Diag;
use crate::module::write::{OutputFile, write_files};
use crate::tune::{Job, Measure, Outcome, TrialFailure};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Measures by a command.
pub struct Runner {
    setup: Setup,
    command: String,
    /// Where the batches' directories are made.
    place: PathBuf,
    best: Option<f64>,
    notes: Vec<String>,
}

impl Runner {
    /// For a command with a `{}` in it; its files lie beside `records`.
    pub fn new(mut setup: Setup, command: &str, records: &Path) -> Result<Runner, Box<Diag>> {
        if !command.contains("{}") {
            let text = format!("`--runner {command}` does not say where the script goes");
            let help = "write `{}` there: `--runner 'srun sh {}'`";
            return Err(Box::new(Diag::global("E0603", text).help(help)));
        }
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|error| {
                let why = super::super::options::io_text(&error);
                Box::new(Diag::global("E0603", format!("{}: {why}", path.display())))
            })
        };
        setup.file = absolute(Path::new(&setup.file))?.to_string_lossy().into_owned();
        let place = absolute(records)?.parent().map(Path::to_path_buf).unwrap_or_default();
        let (command, notes) = (command.to_string(), Vec::new());
        Ok(Runner { setup, command, place, best: None, notes })
    }

    fn run(&mut self, jobs: &[Job], in_turns: Option<f64>) -> Result<Vec<Outcome>, String> {
        let io = |error: std::io::Error| super::super::options::io_text(&error);
        let directory = tempfile::Builder::new()
            .prefix(".tec-batch-")
            .tempdir_in(&self.place)
            .map_err(|error| format!("cannot make a directory for the batch: {}", io(error)))?;
        let path = |name: &str| directory.path().join(name);
        let batch = BatchIn {
            format: BATCH_FORMAT,
            setup: self.setup.clone(),
            jobs: jobs.to_vec(),
            in_turns,
            best: self.best,
        };
        let program = std::env::current_exe().map_err(io)?;
        let here = std::env::current_dir().map_err(io)?;
        let script = format!(
            "#!/bin/sh\ncd {} || exit 1\nexec {} tune-batch {} {}\n",
            quoted(&here),
            quoted(&program),
            quoted(&path("in.json")),
            quoted(&path("out.json"))
        );
        let input = serde_json::to_vec_pretty(&batch).expect("plain data");
        write_files(&[
            OutputFile { path: path("in.json"), bytes: input, executable: false },
            OutputFile { path: path("job.sh"), bytes: script.into_bytes(), executable: true },
        ])
        .map_err(|diag| diag.message.clone())?;
        let line = self.command.replace("{}", &quoted(&path("job.sh")));
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&line).stdin(Stdio::null()).stdout(Stdio::null());
        // Ctrl-C is for the search; what a job system runs goes on to its end.
        command.process_group(0);
        let output = command.output().map_err(io)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or("it says nothing").to_string();
        let read = std::fs::read(path("out.json"));
        let text = match read {
            Ok(text) => text,
            Err(_) if output.status.success() => {
                let text = format!("`{line}` ended without an out.json: {said}");
                return Err(text + "; it has to wait for the script's end");
            }
            Err(_) => return Err(format!("`{line}` failed ({}): {said}", output.status)),
        };
        let out: BatchOut = serde_json::from_slice(&text)
            .map_err(|error| format!("the runner's out.json is damaged: {error}"))?;
        if out.format != BATCH_FORMAT || out.outcomes.len() != jobs.len() {
            return Err("the runner's out.json is not about this batch".to_string());
        }
        self.notes.extend(out.notes);
        Ok(out.outcomes)
    }

    fn outcomes(&mut self, jobs: &[Job], in_turns: Option<f64>) -> Vec<Outcome> {
        let outcomes = self
            .run(jobs, in_turns)
            .unwrap_or_else(|why| vec![Outcome::Failed(TrialFailure::Runner(why)); jobs.len()]);
        for seconds in outcomes.iter().filter_map(right_seconds) {
            self.best = Some(self.best.map_or(seconds, |best| best.min(seconds)));
        }
        outcomes
    }
}

impl Measure for Runner {
    fn measure(&mut self, jobs: &[Job], done: &mut dyn FnMut(usize, &Outcome)) -> Vec<Outcome> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let outcomes = self.outcomes(jobs, None);
        outcomes.iter().enumerate().for_each(|(at, outcome)| done(at, outcome));
        outcomes
    }

    fn compare(&mut self, jobs: &[Job], seconds: f64) -> Vec<Outcome> {
        if jobs.is_empty() { Vec::new() } else { self.outcomes(jobs, Some(seconds)) }
    }

    fn notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.dedup();
        notes
    }
}

/// A path as one word of a shell's line.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

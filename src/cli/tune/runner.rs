//! `--runner 'COMMAND {}'`: measures batches by a command that runs a shell script, for example on
//! another machine by a job system.
//!
//! Each batch has a directory beside the records, so that every machine with access to the records
//! can read it: `in.json`, `out.json` and `job.sh`, whose path replaces `{}`. The command must wait
//! for the end of the script. If the search is killed meanwhile, the job continues, and the next
//! search takes its outcomes ([`leftovers`]).

use super::pool::correct_seconds;
use super::protocol::{BATCH_FORMAT, BatchIn, BatchLine, BatchOut, Owner, Setup};
use crate::diag::Diag;
use crate::module::write::{OutputFile, write_files};
use crate::tune::records::Machine;
use crate::tune::{Compared, Job, Measure, Outcome, TrialFailure};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The prefix of the directories of batches.
const PREFIX: &str = ".tec-batch-";

/// Measures by a command.
pub struct Runner {
    setup: Setup,
    owner: Owner,
    command: String,
    best: Option<f64>,
    notes: Vec<String>,
}

impl Runner {
    /// Takes a command that contains `{}`. Runs an empty batch to check the command, and returns
    /// the machine that it measures on, if the job reports one.
    pub fn new(
        setup: Setup,
        command: &str,
        owner: Owner,
    ) -> Result<(Runner, Option<Machine>), Box<Diag>> {
        if !command.contains("{}") {
            let text = format!("`--runner {command}` has no `{{}}` for the script");
            let help = "write `{}` where the script's path goes: `--runner 'srun sh {}'`";
            return Err(Box::new(Diag::global("E0603", text).help(help)));
        }
        let (setup, owner) = with_absolute_paths(setup, owner)?;
        let (command, notes) = (command.to_string(), Vec::new());
        let runner = Runner { setup, owner, command, best: None, notes };
        let first = runner.run(&[], None).map_err(|why| {
            let help =
                "`--runner 'sh {}'` measures here; docs/TUNING.md says what a runner must do";
            Box::new(Diag::global("E0603", why).help(help))
        })?;
        // The first candidates repeat its notes.
        Ok((runner, first.machine))
    }

    fn run(&self, jobs: &[Job], in_turns: Option<f64>) -> Result<BatchOut, String> {
        let io = |error: std::io::Error| crate::module::input::io_text(&error);
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(batch_parent(&self.owner))
            .map_err(|error| format!("cannot make a directory for the batch: {}", io(error)))?;
        let path = |name: &str| directory.path().join(name);
        let batch = BatchIn {
            format: BATCH_FORMAT,
            setup: self.setup.clone(),
            owner: self.owner.clone(),
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
        // The lock keeps other searches from taking this batch while this process lives.
        let lock = File::open(path("in.json")).map_err(io)?;
        lock.try_lock().map_err(|error| format!("the batch cannot be locked: {error}"))?;
        let line = self.command.replace("{}", &quoted(&path("job.sh")));
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&line).stdin(Stdio::null()).stdout(Stdio::null());
        // Ctrl-C goes to the search only; the job continues to its end.
        command.process_group(0);
        let output = command.output().map_err(io)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or("it printed nothing").to_string();
        let read = std::fs::read(path("out.json"));
        let text = match read {
            Ok(text) => text,
            Err(_) if output.status.success() => {
                let text = format!("the runner ended without an out.json: {said}");
                return Err(text + "; it must wait until the script has ended");
            }
            Err(_) => return Err(format!("the runner failed ({}): {said}", output.status)),
        };
        let out: BatchOut = serde_json::from_slice(&text)
            .map_err(|error| format!("the runner's out.json is damaged: {error}"))?;
        if out.format != BATCH_FORMAT || out.outcomes.len() != jobs.len() {
            return Err("the runner's out.json belongs to another batch".to_string());
        }
        Ok(out)
    }

    fn outcomes(&mut self, jobs: &[Job], in_turns: Option<f64>) -> Compared {
        let compared = match self.run(jobs, in_turns) {
            Ok(BatchOut { outcomes, alone, notes, .. }) => {
                self.notes.extend(notes);
                Compared { outcomes, in_turns: in_turns.is_some() && !alone }
            }
            Err(why) => {
                let outcomes = vec![Outcome::Failed(TrialFailure::Runner(why)); jobs.len()];
                Compared { outcomes, in_turns: false }
            }
        };
        for seconds in compared.outcomes.iter().filter_map(correct_seconds) {
            self.best = Some(self.best.map_or(seconds, |best| best.min(seconds)));
        }
        compared
    }
}

impl Measure for Runner {
    fn measure(&mut self, jobs: &[Job], done: &mut dyn FnMut(usize, &Outcome)) -> Vec<Outcome> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let outcomes = self.outcomes(jobs, None).outcomes;
        outcomes.iter().enumerate().for_each(|(at, outcome)| done(at, outcome));
        outcomes
    }

    fn compare(&mut self, jobs: &[Job], seconds: f64) -> Compared {
        match jobs.is_empty() {
            true => Compared { outcomes: Vec::new(), in_turns: true },
            false => self.outcomes(jobs, Some(seconds)),
        }
    }

    fn notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.dedup();
        notes
    }
}

/// Returns the outcomes of jobs whose search ended before them: batches of the same owner and setup
/// that no process has locked. Removes their directories.
pub fn leftovers(setup: Setup, owner: Owner) -> Result<Vec<(Job, Outcome)>, Box<Diag>> {
    let (setup, owner) = with_absolute_paths(setup, owner)?;
    let mut found = Vec::new();
    // Without a readable directory, nothing is left.
    let Ok(entries) = std::fs::read_dir(batch_parent(&owner)) else { return Ok(found) };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(PREFIX)))
        .collect();
    paths.sort();
    for path in paths {
        let Ok(file) = File::open(path.join("in.json")) else { continue };
        let Ok(batch) = serde_json::from_reader::<_, BatchIn>(&file) else { continue };
        let same = batch.format == BATCH_FORMAT && batch.setup == setup && batch.owner == owner;
        // Interleaved measurements are repeated.
        if !same || file.try_lock().is_err() {
            continue;
        }
        if batch.in_turns.is_none() {
            found.extend(finished(&path, batch.jobs));
        }
        let _ = std::fs::remove_dir_all(&path);
    }
    Ok(found)
}

/// Returns the outcomes of a batch so far.
fn finished(directory: &Path, jobs: Vec<Job>) -> Vec<(Job, Outcome)> {
    let read = |name: &str| std::fs::read(directory.join(name)).unwrap_or_default();
    if let Ok(out) = serde_json::from_slice::<BatchOut>(&read("out.json"))
        && out.format == BATCH_FORMAT
        && out.outcomes.len() == jobs.len()
    {
        return jobs.into_iter().zip(out.outcomes).collect();
    }
    let lines = read("out.jsonl");
    let lines = lines.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<BatchLine>(line).ok());
    lines.filter_map(|line| Some((jobs.get(line.at)?.clone(), line.outcome))).collect()
}

/// Makes paths absolute.
fn with_absolute_paths(mut setup: Setup, owner: Owner) -> Result<(Setup, Owner), Box<Diag>> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| {
            let why = crate::module::input::io_text(&error);
            Box::new(Diag::global("E0603", format!("{}: {why}", path.display())))
        })
    };
    setup.file = absolute(Path::new(&setup.file))?.to_string_lossy().into_owned();
    let records = absolute(&owner.records)?;
    Ok((setup, Owner { records, ..owner }))
}

/// Returns the parent of the directories of batches.
fn batch_parent(owner: &Owner) -> &Path {
    owner.records.parent().unwrap_or(Path::new("/"))
}

/// Quotes a path for the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

//! Messages and exit statuses, and files written by commands.

pub use crate::compile::error::Error;
use crate::diag::Diag;
use crate::driver::{Failure, SearchTrace, Trace};
use crate::module::write::{OutputFile, write_files};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock};

/// When messages are coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Writes messages, and files.
#[derive(Debug)]
pub struct Reporter {
    color: bool,
    /// Held while files are written, so that Ctrl-C waits for them. Created with the handler.
    writing: OnceLock<Arc<Mutex<()>>>,
}

impl Reporter {
    /// Decides whether messages are coloured.
    pub fn new(color: Color) -> Reporter {
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let plain = std::env::var_os("NO_COLOR").is_some()
                    || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                std::io::stderr().is_terminal() && !plain
            }
        };
        Reporter { color, writing: OnceLock::new() }
    }

    /// Writes all files or none. Ctrl-C takes effect before or after.
    pub fn write(&self, files: &[OutputFile]) -> Result<(), Error> {
        let writing = self.writing.get_or_init(|| {
            let writing = Arc::new(Mutex::new(()));
            let waiting = writing.clone();
            // Without a handler Ctrl-C ends the process at once.
            let _ = ctrlc::set_handler(move || {
                let _done = waiting.lock();
                std::process::exit(130);
            });
            writing
        });
        let _guard = writing.lock();
        Ok(write_files(files)?)
    }

    /// Returns a spinner on a terminal; the caller clears it.
    pub fn spinner(&self, text: String) -> indicatif::ProgressBar {
        if !std::io::stderr().is_terminal() {
            return indicatif::ProgressBar::hidden();
        }
        let spinner = indicatif::ProgressBar::new_spinner().with_message(text);
        spinner.enable_steady_tick(std::time::Duration::from_millis(100));
        spinner
    }

    /// Returns a progress bar over `steps` steps on a terminal; the caller clears it.
    pub fn progress(&self, steps: usize) -> indicatif::ProgressBar {
        if steps < 2 {
            return self.spinner(String::new());
        }
        if !std::io::stderr().is_terminal() {
            return indicatif::ProgressBar::hidden();
        }
        let style = indicatif::ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
        let bar = indicatif::ProgressBar::new(steps as u64);
        bar.set_style(style.expect("a template without mistakes"));
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        bar
    }

    /// Prints an error and returns the exit status.
    pub fn fail(&self, error: Error) -> ExitCode {
        // If stderr is closed, the message is lost.
        let _ = std::io::stderr().write_all(error.text(self.color).as_bytes());
        match error {
            Error::BrokenPipe => ExitCode::SUCCESS,
            Error::Silent | Error::Plain(_) | Error::Compile(_, Failure::User(_)) => {
                ExitCode::from(1)
            }
            Error::Usage(_) => {
                eprintln!("\nFor more information, try '--help'.");
                ExitCode::from(2)
            }
            Error::Compile(_, Failure::Bug { .. }) => ExitCode::from(101),
        }
    }
}

/// Writes to stdout.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Error::BrokenPipe,
        _ => Diag::global("E0501", {
            let why = crate::module::input::io_text(&error);
            format!("cannot write to standard output: {why}")
        })
        .into(),
    })
}

/// Prints the times of the candidates for automatic schedules, whose phases run on all cores.
fn show_search(search: &SearchTrace) {
    let SearchTrace { candidates, refused, times, .. } = search;
    if *candidates == 0 {
        return;
    }
    eprintln!("               {candidates} candidates, {refused} refused; on all cores together:");
    for (phase, time) in times {
        eprintln!("{:>14.3} ms  {phase}", time.as_secs_f64() * 1e3);
    }
}

/// Prints the notes, dumps and times of a trace to stderr.
pub fn show_trace(trace: &Trace, time: bool) {
    for note in &trace.notes {
        eprintln!("note: {note}");
    }
    for (kernel, pass, text) in &trace.dumps {
        match text {
            Some(text) => eprintln!("# {kernel} after {pass}\n{}", text.trim_end()),
            None => eprintln!("# {kernel} after {pass} (unchanged)"),
        }
    }
    if time {
        let total: std::time::Duration = trace.times.iter().map(|(_, time)| *time).sum();
        for (phase, time) in &trace.times {
            eprintln!("{:>10.3} ms  {phase}", time.as_secs_f64() * 1e3);
            if phase == "schedule" {
                show_search(&trace.search);
            }
        }
        eprintln!("{:>10.3} ms  total", total.as_secs_f64() * 1e3);
    }
}

//! Messages and exit statuses, and files written by commands.

use crate::diag::{Diag, Sources, render};
use crate::driver::{Failure, Trace};
use crate::module::write::{OutputFile, write_files};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock};

/// The largest number of errors shown. Showing one takes a pass over the text of its file.
const MAX_SHOWN: usize = 100;

/// When messages are coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Why a command failed.
#[derive(Debug)]
pub enum Error {
    /// A compilation failed: status 1, or 101 for a bug.
    Compile(Sources, Failure),
    /// Another error: status 1.
    Plain(Box<Diag>),
    /// An error that was printed already: status 1.
    Silent,
    /// An error on the command line: status 2.
    Usage(String),
    /// The reader closed the pipe of stdout: status 0.
    BrokenPipe,
}

impl From<Diag> for Error {
    fn from(diag: Diag) -> Error {
        Error::Plain(Box::new(diag))
    }
}

impl From<Box<Diag>> for Error {
    fn from(diag: Box<Diag>) -> Error {
        Error::Plain(diag)
    }
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
                std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
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
        match error {
            Error::Silent => ExitCode::from(1),
            Error::BrokenPipe => ExitCode::SUCCESS,
            Error::Plain(diag) => {
                self.show(&diag, &Sources::default());
                ExitCode::from(1)
            }
            Error::Usage(text) => {
                eprintln!("error: {text}\n\nFor more information, try '--help'.");
                ExitCode::from(2)
            }
            Error::Compile(sources, Failure::User(diags)) => {
                diags.iter().take(MAX_SHOWN).for_each(|diag| self.show(diag, &sources));
                match diags.len() {
                    0 | 1 => {}
                    count if count > MAX_SHOWN => {
                        eprintln!("{count} errors, the first {MAX_SHOWN} shown");
                    }
                    count => eprintln!("{count} errors"),
                }
                ExitCode::from(1)
            }
            Error::Compile(_, Failure::Bug { pass, message, ir }) => {
                eprintln!("{message}\n\nThis is a bug in tec, in `{pass}`, not in your program.");
                eprintln!("Please report it with the file, the command and this text.");
                if !ir.is_empty() {
                    eprintln!("\nloop IR before `{pass}`:\n{ir}");
                }
                ExitCode::from(101)
            }
        }
    }

    fn show(&self, diag: &Diag, sources: &Sources) {
        // If stderr is closed, the message is lost.
        let _ = write!(std::io::stderr(), "{}", render(diag, sources, self.color));
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
        }
        eprintln!("{:>10.3} ms  total", total.as_secs_f64() * 1e3);
    }
}

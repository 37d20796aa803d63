//! Files of records: reads them, and appends lines.
//!
//! A record is written as one line by one write to a file opened for appending, so a killed process
//! leaves complete lines and at most one incomplete line, at the end. The next writer ends an
//! incomplete line first, so that only this record is lost. Every line is synced to disk before the
//! next trial begins.

use crate::diag::{Diag, Result};
use crate::module::input;
use crate::tune::records::{Parsed, Record, parse};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A file to which records are added.
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Opens or creates a file, and ends an incomplete last line. Returns the contents too.
    pub fn open(path: &Path) -> Result<(Writer, Parsed)> {
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
            let text = format!("{} cannot hold records: it is not a regular file", path.display());
            return Err(Box::new(Diag::global("E0604", text)));
        }
        let parsed = read_or_empty(path)?;
        let cannot = |error| cannot("write", path, &error);
        let mut file = OpenOptions::new().append(true).create(true).open(path).map_err(cannot)?;
        // `tec records prune` locks the file while it replaces it. Not all file systems have locks.
        if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            let text = format!("{} is being replaced by another `tec`", path.display());
            return Err(Box::new(Diag::global("E0604", text).help("try again")));
        }
        if parsed.incomplete_line.is_some() {
            file.write_all(b"\n").map_err(cannot)?;
        }
        Ok((Writer { path: path.to_path_buf(), file }, parsed))
    }

    /// Adds a record.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        let line = record.to_line();
        self.file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(|error| cannot("write", &self.path, &error))
    }
}

/// Locks a file against writers while the returned handle lives.
pub fn lock(path: &Path) -> Result<File> {
    let file = input::open(path).map_err(|why| unreadable(path, &why))?;
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        let text = format!("{} is in use: a search adds to it", path.display());
        let help = "wait until it has ended, or write the result to another file, `-o OUT`";
        return Err(Box::new(Diag::global("E0604", text).help(help)));
    }
    Ok(file)
}

/// Reads a file of records.
pub fn read(path: &Path) -> Result<Parsed> {
    match input::read(path, input::RECORDS) {
        Ok(text) => require_records(path, parse(&text)),
        Err(why) => Err(unreadable(path, &why)),
    }
}

/// Refuses a file without a single record, so that nothing is appended to another kind of file.
fn require_records(path: &Path, parsed: Parsed) -> Result<Parsed> {
    match parsed.notes.first() {
        Some(note) if parsed.records.is_empty() && parsed.has_foreign_lines => {
            let text = format!("{} is not a file of records: {note}", path.display());
            Err(Box::new(Diag::global("E0604", text)))
        }
        _ => Ok(parsed),
    }
}

/// Reads a file of records; a missing file is empty.
pub fn read_or_empty(path: &Path) -> Result<Parsed> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Parsed::default()),
        _ => read(path),
    }
}

/// Prints the first notes about a file to standard error.
pub fn show_notes(path: &Path, parsed: &Parsed) {
    const MAX_NOTES: usize = 8;
    for note in parsed.notes.iter().take(MAX_NOTES) {
        eprintln!("note: {}: {note}", path.display());
    }
    if let Some(more) = parsed.notes.len().checked_sub(MAX_NOTES).filter(|more| *more > 0) {
        eprintln!("note: {}: and {more} more like these", path.display());
    }
}

fn unreadable(path: &Path, why: &str) -> Box<Diag> {
    Box::new(Diag::global("E0604", format!("cannot read records in {}: {why}", path.display())))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Box<Diag> {
    let why = crate::module::input::io_text(error);
    let diag = Diag::global("E0604", format!("cannot {what} records in {}: {why}", path.display()));
    Box::new(match error.kind() {
        ErrorKind::StorageFull => diag.help(
            "earlier records are kept; with more space, the same command continues from them",
        ),
        _ => diag,
    })
}

//! Files of records: appended to line by line, read whole.
//!
//! A record is one write of one line to a file that is opened for appending, so a process that is
//! killed leaves whole lines and at most one torn one, at the end. Whoever appends next ends a
//! torn line first, so that it stays the only one that is lost. Every line is handed to the disk
//! before the next trial begins.

use crate::diag::{Diag, Result};
use crate::tune::records::{Parsed, Record, parse};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A file to which records are added.
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Opens or makes a file, and ends a torn last line; with what the file holds.
    pub fn open(path: &Path) -> Result<(Writer, Parsed)> {
        let parsed = read_if_there(path)?;
        let cannot = |error| cannot("write", path, &error);
        let mut file = OpenOptions::new().append(true).create(true).open(path).map_err(cannot)?;
        if parsed.torn.is_some() {
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

/// What a file of records holds.
pub fn read(path: &Path) -> Result<Parsed> {
    match std::fs::read(path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) => Err(cannot("read", path, &error)),
    }
}

/// The same; nothing if there is no such file.
pub fn read_if_there(path: &Path) -> Result<Parsed> {
    match std::fs::read(path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Parsed::default()),
        Err(error) => Err(cannot("read", path, &error)),
    }
}

/// A file's notes on standard error.
pub fn show_notes(path: &Path, parsed: &Parsed) {
    for note in &parsed.notes {
        eprintln!("note: {}: {note}", path.display());
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Box<Diag> {
    let why = super::super::options::io_text(error);
    Box::new(Diag::global("E0604", format!("cannot {what} records in {}: {why}", path.display())))
}

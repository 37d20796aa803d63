//! Writes files so that they appear complete or not at all: each goes to a temporary file beside
//! the target, which is then renamed.

use super::input::io_text;
use crate::diag::{Diag, Result};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file to be written.
#[derive(Clone, Debug)]
pub struct OutputFile {
    /// The path.
    pub path: PathBuf,
    /// The contents.
    pub bytes: Vec<u8>,
    /// Whether it is a program or shared object.
    pub executable: bool,
}

/// Writes all files or none: the first rename comes after all temporary files are written.
pub fn write_files(files: &[OutputFile]) -> Result<()> {
    let pending = files.iter().map(Pending::write).collect::<Result<Vec<_>>>()?;
    pending.into_iter().try_for_each(Pending::persist)
}

/// Checks that files can be written, before work is done for them.
///
/// # Errors
///
/// E0501 for a folder that does not exist or must not be written, and for a path that is a folder.
pub fn check_writable<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    for path in paths {
        let file = OutputFile { path: path.to_path_buf(), bytes: Vec::new(), executable: false };
        // The temporary file is removed at once.
        drop(Pending::write(&file)?);
    }
    Ok(())
}

/// A file that is written, but not in place.
enum Pending<'a> {
    /// Written under a temporary name.
    Temporary(&'a OutputFile, NamedTempFile, PathBuf),
    /// Not a regular file (a pipe, `/dev/stdout`), which cannot be replaced. Nothing is written
    /// yet.
    Special(&'a OutputFile),
}

impl<'a> Pending<'a> {
    fn write(file: &'a OutputFile) -> Result<Pending<'a>> {
        // A symbolic link stays one: its target is replaced.
        let target = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        match fs::metadata(&target) {
            Ok(meta) if meta.is_dir() => {
                return Err(cannot_write(&file.path, "it is a directory"));
            }
            Ok(meta) if !meta.is_file() => return Ok(Pending::Special(file)),
            _ => {}
        }
        Pending::write_temporary(file, &target)
            .map(|temporary| Pending::Temporary(file, temporary, target))
            .map_err(|error| cannot_write(&file.path, &io_text(&error)))
    }

    fn write_temporary(file: &OutputFile, target: &Path) -> io::Result<NamedTempFile> {
        let directory = match target.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        // The process's umask clears some of these bits.
        let mode = if file.executable { 0o777 } else { 0o666 };
        let mut temporary = tempfile::Builder::new()
            .prefix(".tec-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)?;
        temporary.write_all(&file.bytes)?;
        temporary.flush()?;
        Ok(temporary)
    }

    fn persist(self) -> Result<()> {
        match self {
            Pending::Temporary(file, temporary, target) => temporary
                .persist(target)
                .map(|_| ())
                .map_err(|error| cannot_write(&file.path, &io_text(&error.error))),
            Pending::Special(file) => fs::write(&file.path, &file.bytes)
                .map_err(|error| cannot_write(&file.path, &io_text(&error))),
        }
    }
}

fn cannot_write(path: &Path, why: &str) -> Box<Diag> {
    Box::new(Diag::global("E0501", format!("cannot write `{}`: {why}", path.display())))
}

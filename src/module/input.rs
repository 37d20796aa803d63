//! Reads files that the user names: only regular files up to a size limit, so that a pipe without a
//! writer or an endless device cannot hang the process.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Most bytes of a source file.
pub const SOURCE: u64 = 64 << 20;
/// Most bytes of a module, an object or a PTX file.
pub const MODULE: u64 = 1 << 30;
/// Most bytes of a file of records or a batch of candidates.
pub const RECORDS: u64 = 1 << 30;

/// Reads a regular file of at most `limit` bytes. The error is the reason as text.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // A file may grow while it is read, and files in `/proc` report no length.
    open(path)?.take(limit + 1).read_to_end(&mut bytes).map_err(|error| io_text(&error))?;
    match bytes.len() as u64 > limit {
        true => Err(format!("it is larger than {}, the limit for such a file", size(limit))),
        false => Ok(bytes),
    }
}

/// Reads a text file of at most `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> Result<String, String> {
    String::from_utf8(read(path, limit)?).map_err(|_| "it is not UTF-8".to_string())
}

/// Opens a regular file for reading.
pub fn open(path: &Path) -> Result<File, String> {
    let meta = std::fs::metadata(path).map_err(|error| io_text(&error))?;
    match kind(&meta) {
        None => File::open(path).map_err(|error| io_text(&error)),
        Some("directory") => Err("is a directory".to_string()),
        Some(kind) => Err(format!("it is a {kind}, not a regular file")),
    }
}

/// Returns the kind of a file that is not regular.
fn kind(meta: &Metadata) -> Option<&'static str> {
    let kind = meta.file_type();
    Some(match () {
        () if kind.is_file() => return None,
        () if kind.is_dir() => "directory",
        () if kind.is_fifo() => "pipe",
        () if kind.is_socket() => "socket",
        () => "device",
    })
}

/// Returns the operating system's message without its number.
pub fn io_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_lowercase().to_string()).unwrap_or_default();
    first + chars.as_str()
}

fn size(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes >> 20),
        gib => format!("{gib} GiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_limit_is_enforced_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(read(&path, 1 << 20).map(|bytes| bytes.len()), Ok(1 << 20));
        file.set_len((1 << 20) + 1).unwrap();
        let why = read(&path, 1 << 20).unwrap_err();
        assert_eq!(why, "it is larger than 1 MiB, the limit for such a file");
        assert_eq!(read(directory.path(), 9).unwrap_err(), "is a directory");
        let why = read(Path::new("/dev/zero"), 9).unwrap_err();
        assert_eq!(why, "it is a device, not a regular file");
        assert_eq!(size(SOURCE), "64 MiB");
        assert_eq!(size(MODULE), "1 GiB");
    }
}

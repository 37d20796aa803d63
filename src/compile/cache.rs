//! The user's cache directory, `$XDG_CACHE_HOME/tec` or `~/.cache/tec`: files by kind and key, and
//! the automatic schedules in it.
//!
//! An entry with a hash is a line of JSON (the key, what the entry is about, the hash of its data),
//! then the data. Entries that are damaged or have another key are ignored, and replaced by the
//! next one that is stored. Several processes may use the directory at once.

use crate::driver::ScheduleCache;
use crate::module::input;
use crate::module::write::{OutputFile, write_files};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A kind of entries: their names are prefix, key, suffix.
pub struct EntryKind {
    /// The start of the names.
    pub prefix: &'static str,
    /// The end of the names.
    pub suffix: &'static str,
    /// Bytes of all entries together; the least recently used ones are removed.
    pub max_bytes: u64,
}

impl EntryKind {
    /// Returns the contents of an entry, and marks it as used.
    pub fn load(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(&directory()?, key);
        let bytes = input::read(&path, self.max_bytes).ok()?;
        // A failure only means that the entry is removed earlier.
        if let Ok(file) = std::fs::File::open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(bytes)
    }

    /// Writes an entry; the error is a message. Does nothing without a cache directory.
    pub fn store(&self, key: &str, bytes: Vec<u8>) -> Result<(), String> {
        match directory() {
            Some(directory) => self.store_in(&directory, key, bytes),
            None => Ok(()),
        }
    }

    fn store_in(&self, directory: &Path, key: &str, bytes: Vec<u8>) -> Result<(), String> {
        std::fs::create_dir_all(directory).map_err(|error| {
            let why = input::io_text(&error);
            format!("cannot make {}: {why}", directory.display())
        })?;
        let path = self.path(directory, key);
        // Writing to a pipe without a reader would not return.
        if std::fs::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            return Err(format!("{} is not a regular file", path.display()));
        }
        self.make_room(directory, bytes.len() as u64);
        let file = OutputFile { path, bytes, executable: false };
        write_files(&[file]).map_err(|diag| diag.message.clone())
    }

    fn path(&self, directory: &Path, key: &str) -> PathBuf {
        directory.join(format!("{}{key}{}", self.prefix, self.suffix))
    }

    /// Removes the least recently used entries until `bytes` bytes fit.
    pub fn make_room(&self, directory: &Path, bytes: u64) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name().into_string().ok()?;
                let ours = name.starts_with(self.prefix) && name.ends_with(self.suffix);
                let meta = entry.metadata().ok().filter(|_| ours)?;
                Some((meta.modified().ok()?, meta.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if total + bytes <= self.max_bytes {
                return;
            }
            // Another process may have removed it.
            let _ = std::fs::remove_file(path);
            total -= length;
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Header<A> {
    key: String,
    about: A,
    sha256: String,
}

/// Returns an entry with a hash.
pub fn encode(key: &str, about: &impl Serialize, data: &[u8]) -> Vec<u8> {
    let header = Header { key: key.to_string(), about, sha256: hex(&Sha256::digest(data)) };
    let mut bytes = serde_json::to_vec(&header).expect("plain data");
    bytes.push(b'\n');
    bytes.extend(data);
    bytes
}

/// Returns what an entry with a hash is about, and its data.
pub fn decode<'a, A: DeserializeOwned>(bytes: &'a [u8], key: &str) -> Option<(A, &'a [u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let header: Header<A> = serde_json::from_slice(&bytes[..end]).ok()?;
    let data = &bytes[end + 1..];
    let intact = header.key == key && header.sha256 == hex(&Sha256::digest(data));
    intact.then_some((header.about, data))
}

/// Hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `$XDG_CACHE_HOME/tec`, or `~/.cache/tec`.
pub fn directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("tec"))
}

/// Automatic schedules. A schedule takes about 2 KB, so these are a few thousand.
const SCHEDULES: EntryKind = EntryKind { prefix: "schedule-", suffix: ".txt", max_bytes: 8 << 20 };

/// Returns the cache of automatic schedules, unless `--no-cache` or `TEC_NO_CACHE` turns it off.
pub fn schedules(no_cache: bool) -> Option<Arc<dyn ScheduleCache>> {
    let by_environment =
        std::env::var_os("TEC_NO_CACHE").is_some_and(|value| !value.is_empty() && value != "0");
    (!no_cache && !by_environment).then(|| Arc::new(StoredSchedules) as Arc<dyn ScheduleCache>)
}

/// The automatic schedules in the user's cache directory.
#[derive(Debug)]
struct StoredSchedules;

/// The build that chose a schedule, for readers of the file. It is part of the key.
#[derive(Serialize, Deserialize)]
struct Origin {
    tec: String,
}

impl ScheduleCache for StoredSchedules {
    fn load(&self, key: &str) -> Option<String> {
        let bytes = SCHEDULES.load(key)?;
        let (_, text) = decode::<Origin>(&bytes, key)?;
        String::from_utf8(text.to_vec()).ok()
    }

    fn store(&self, key: &str, text: &str) {
        let origin = Origin { tec: env!("CARGO_PKG_VERSION").to_string() };
        // A directory that cannot be written is no reason for a message: nothing is lost but time.
        let _ = SCHEDULES.store(key, encode(key, &origin, text.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn damaged_entries_and_those_of_other_keys_are_ignored() {
        let bytes = encode("key", &7, b"data\n");
        assert_eq!(decode::<u32>(&bytes, "key"), Some((7, &b"data\n"[..])));
        assert_eq!(decode::<String>(&bytes, "key"), None);
        assert_eq!(decode::<u32>(&bytes, "other"), None);
        for length in 0..bytes.len() {
            assert_eq!(decode::<u32>(&bytes[..length], "key"), None, "{length} bytes");
        }
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() = b' ';
        assert_eq!(decode::<u32>(&changed, "key"), None);
    }

    #[test]
    fn the_least_recently_used_entries_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let kind = EntryKind { prefix: "some-", suffix: ".bin", max_bytes: 30 };
        let store = |key: &str, age: u64| {
            kind.store_in(directory.path(), key, vec![0; 10]).unwrap();
            let file = std::fs::File::open(kind.path(directory.path(), key)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        std::fs::write(directory.path().join("other-a.bin"), [0; 100]).unwrap();
        for (key, age) in [("a", 10), ("b", 30), ("c", 20), ("d", 0)] {
            store(key, age);
        }
        let exists = |name: &str| directory.path().join(name).exists();
        let kept = ["some-a.bin", "some-b.bin", "some-c.bin", "some-d.bin", "other-a.bin"];
        assert_eq!(kept.map(exists), [true, false, true, true, true]);
    }
}

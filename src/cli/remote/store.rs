//! Files by the hash of their contents: modules, inputs and outputs. What the far side has is not
//! sent again. The least recently used files are removed where space runs out.

use crate::compile::cache::{EntryKind, directory, hex};
use crate::module::input::io_text;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::{NamedTempFile, TempDir};

/// The SHA-256 of a file.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash(String);

impl TryFrom<String> for Hash {
    type Error = String;

    /// Takes 64 hexadecimal digits: a hash becomes the name of a file.
    fn try_from(text: String) -> Result<Hash, String> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == 64 && text.bytes().all(is_digit) {
            true => Ok(Hash(text)),
            false => Err("a hash has 64 hexadecimal digits".to_string()),
        }
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        hash.0
    }
}

impl Hash {
    /// Returns the hash of some bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(hex(&Sha256::digest(bytes)))
    }
}

const SUFFIX: &str = ".blob";

/// A folder of files.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    max_bytes: u64,
    /// The folder, if it lives as long as this.
    _own: Option<TempDir>,
}

impl Store {
    /// Opens a folder that another process made.
    pub fn at(folder: &Path, max_bytes: u64) -> Store {
        Store { folder: folder.to_path_buf(), max_bytes, _own: None }
    }

    /// Makes a folder that is removed with the store.
    pub fn temporary() -> Result<Store, String> {
        let own = tempfile::Builder::new().prefix("tec-").tempdir();
        let own = own.map_err(|e| format!("cannot make a temporary folder: {}", io_text(&e)))?;
        Ok(Store { folder: own.path().to_path_buf(), max_bytes: u64::MAX / 2, _own: Some(own) })
    }

    /// Opens the folder in the user's cache directory; a temporary one if there is none.
    pub fn of_user(max_bytes: u64) -> Result<Store, String> {
        let Some(cache) = directory() else {
            return Ok(Store { max_bytes, ..Store::temporary()? });
        };
        let folder = cache.join("serve");
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {}", folder.display(), io_text(&error)))?;
        remove_remains(&folder);
        Ok(Store { folder, max_bytes, _own: None })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a file.
    pub fn path(&self, hash: &Hash) -> PathBuf {
        self.folder.join(format!("{}{SUFFIX}", hash.0))
    }

    /// Whether the store has a file. One whose contents have another hash is removed.
    pub fn has(&self, hash: &Hash) -> bool {
        let path = self.path(hash);
        let Ok(mut file) = File::open(&path) else { return false };
        let mut found = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            found.update(&buffer[..count]);
        }
        if hex(&found.finalize()) != hash.0 {
            let _ = std::fs::remove_file(&path);
            return false;
        }
        // A failure only means that the file is removed earlier.
        let _ = file.set_modified(SystemTime::now());
        true
    }

    /// Reads a file.
    pub fn read(&self, hash: &Hash) -> Result<Vec<u8>, String> {
        let bytes = std::fs::read(self.path(hash))
            .map_err(|error| format!("a file of the store is gone: {}", io_text(&error)))?;
        match Hash::of(&bytes) == *hash {
            true => Ok(bytes),
            false => Err("a file of the store is damaged".to_string()),
        }
    }

    /// Writes a file, and returns its hash.
    pub fn put(&self, bytes: &[u8]) -> Result<Hash, String> {
        let hash = Hash::of(bytes);
        if !self.has(&hash) {
            let mut incoming = self.receive(hash.clone(), bytes.len() as u64)?;
            incoming.add(bytes)?;
            incoming.finish()?;
        }
        Ok(hash)
    }

    /// Begins a file of `size` bytes.
    pub fn receive(&self, hash: Hash, size: u64) -> Result<Incoming, String> {
        if size > self.max_bytes {
            let most = self.max_bytes;
            return Err(format!("a file of {size} bytes is over the limit of {most} bytes"));
        }
        let kind = EntryKind { prefix: "", suffix: SUFFIX, max_bytes: self.max_bytes };
        kind.make_room(&self.folder, size);
        let file = tempfile::Builder::new().prefix(".tec-").tempfile_in(&self.folder);
        let file = file.map_err(|error| self.cannot(&error))?;
        Ok(Incoming { path: self.path(&hash), hash, left: size, file, found: Sha256::new() })
    }

    fn cannot(&self, error: &std::io::Error) -> String {
        format!("cannot write to {}: {}", self.folder.display(), io_text(error))
    }
}

/// Removes files that processes left which were killed while they received them.
fn remove_remains(folder: &Path) {
    const OLD: Duration = Duration::from_secs(24 * 3600);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = || entry.metadata().ok()?.modified().ok()?.elapsed().ok().map(|age| age > OLD);
        if entry.file_name().to_string_lossy().starts_with(".tec-") && is_old() == Some(true) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A file that is being received. It appears in the store when it is complete.
pub struct Incoming {
    path: PathBuf,
    hash: Hash,
    left: u64,
    file: NamedTempFile,
    found: Sha256,
}

impl Incoming {
    /// Bytes that are missing.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err("a file is longer than announced".to_string());
        };
        self.left = left;
        self.found.update(bytes);
        self.file.write_all(bytes).map_err(|error| {
            let folder = self.path.parent().unwrap_or(Path::new("")).display();
            format!("cannot write to {folder}: {}", io_text(&error))
        })
    }

    /// Puts the file in its place.
    pub fn finish(mut self) -> Result<(), String> {
        if self.left > 0 || hex(&self.found.finalize_reset()) != self.hash.0 {
            return Err("the contents of a file are not those of its hash".to_string());
        }
        let written = self.file.persist(&self.path).map_err(|error| error.error);
        written.map(|_| ()).map_err(|error| format!("cannot keep a file: {}", io_text(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_not_there_and_a_wrong_one_is_refused() {
        let store = Store::temporary().unwrap();
        let hash = store.put(b"bytes").unwrap();
        assert!(store.has(&hash));
        assert_eq!(store.read(&hash), Ok(b"bytes".to_vec()));
        std::fs::write(store.path(&hash), b"bites").unwrap();
        assert!(store.read(&hash).is_err());
        assert!(!store.has(&hash) && !store.path(&hash).exists());
        std::fs::write(store.path(&hash), b"bites").unwrap();
        assert_eq!(store.put(b"bytes").map(|hash| store.has(&hash)), Ok(true));
        std::fs::remove_file(store.path(&hash)).unwrap();
        let mut incoming = store.receive(hash.clone(), 5).unwrap();
        assert!(incoming.add(b"longer").is_err());
        let mut incoming = store.receive(hash.clone(), 5).unwrap();
        incoming.add(b"bite").unwrap();
        assert_eq!(incoming.left(), 1);
        assert!(incoming.finish().is_err());
        assert!(!store.has(&hash));
    }

    #[test]
    fn the_least_recently_used_files_make_room() {
        let own = Store::temporary().unwrap();
        let store = Store::at(own.folder(), 10);
        let old = store.put(b"12345").unwrap();
        let past = SystemTime::now() - Duration::from_secs(60);
        File::open(store.path(&old)).unwrap().set_modified(past).unwrap();
        let used = store.put(b"678").unwrap();
        store.put(b"abcde").unwrap();
        assert!(!store.has(&old) && store.has(&used));
        assert!(store.put(b"more than ten bytes").unwrap_err().contains("over the limit of 10"));
    }

    #[test]
    fn a_hash_is_no_path() {
        for text in ["", "../../etc/passwd", &"A".repeat(64), &"é".repeat(32), &"a".repeat(65)] {
            assert!(Hash::try_from(text.to_string()).is_err(), "{text}");
        }
        assert!(Hash::try_from("0a".repeat(32)).is_ok());
    }
}

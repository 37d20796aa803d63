//! The cache of reference outputs: a file for each in the user's cache directory.
//!
//! The first line is JSON: the key, the shapes, and the hash of the bytes that follow. A damaged
//! file is ignored. The least recently used files are removed to keep the cache below a gigabyte.

use super::super::bench::machine::cache::directory;
use crate::ir::DType;
use crate::ir::interp::Tensor;
use crate::module::write::{OutputFile, write_files};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes of all files together.
const MAX_BYTES: u64 = 1 << 30;

#[derive(PartialEq, Debug, Serialize, Deserialize)]
struct Header {
    key: String,
    how: String,
    tensors: Vec<(String, Vec<i64>)>,
    sha256: String,
}

/// Returns the cached outputs of a key, and how they were computed.
pub fn load(key: &str) -> Option<(Vec<Tensor>, String)> {
    let path = path(key)?;
    let found = parse(&std::fs::read(&path).ok()?, key)?;
    // Marks the file as used; a failure only means that it is removed earlier.
    if let Ok(file) = std::fs::File::open(&path) {
        let _ = file.set_modified(SystemTime::now());
    }
    Some(found)
}

/// Writes outputs to the cache; the error is a message. Does nothing without a cache directory.
pub fn store(key: &str, how: &str, outputs: &[Tensor]) -> Result<(), String> {
    let Some(path) = path(key) else { return Ok(()) };
    let bytes: u64 = outputs.iter().map(|tensor| tensor.data.len() as u64).sum();
    if bytes > MAX_BYTES / 4 {
        return Ok(());
    }
    let directory = path.parent().expect("a file in a directory");
    std::fs::create_dir_all(directory).map_err(|error| {
        let why = crate::module::input::io_text(&error);
        format!("cannot make {}: {why}", directory.display())
    })?;
    make_room(directory, bytes);
    let file = OutputFile { path, bytes: encode(key, how, outputs), executable: false };
    write_files(&[file]).map_err(|diag| diag.message.clone())
}

fn path(key: &str) -> Option<PathBuf> {
    Some(directory()?.join(format!("reference-{key}.bin")))
}

fn encode(key: &str, how: &str, outputs: &[Tensor]) -> Vec<u8> {
    let data: Vec<u8> = outputs.iter().flat_map(|tensor| tensor.data.iter().copied()).collect();
    let tensors = outputs.iter().map(|one| (one.dtype.name().to_string(), one.shape.clone()));
    let head = Header {
        key: key.to_string(),
        how: how.to_string(),
        tensors: tensors.collect(),
        sha256: hex(&Sha256::digest(&data)),
    };
    let mut bytes = serde_json::to_vec(&head).expect("plain data");
    bytes.push(b'\n');
    bytes.extend(data);
    bytes
}

fn parse(bytes: &[u8], key: &str) -> Option<(Vec<Tensor>, String)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: Header = serde_json::from_slice(&bytes[..end]).ok()?;
    let mut data = &bytes[end + 1..];
    if head.key != key || head.sha256 != hex(&Sha256::digest(data)) {
        return None;
    }
    let mut tensors = Vec::new();
    for (dtype, shape) in head.tensors {
        let dtype = DType::from_name(&dtype)?;
        let count: i64 = shape.iter().product();
        let (own, rest) = data.split_at_checked(count as usize * dtype.bytes() as usize)?;
        tensors.push(Tensor { dtype, shape, data: own.to_vec() });
        data = rest;
    }
    data.is_empty().then_some((tensors, head.how))
}

/// Hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes the least recently used files until `bytes` bytes fit.
fn make_room(directory: &Path, bytes: u64) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let meta = entry.metadata().ok()?;
            let ours = name.starts_with("reference-") && name.ends_with(".bin");
            ours.then_some((meta.modified().ok()?, meta.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
    for (_, length, path) in files {
        if total + bytes <= MAX_BYTES {
            return;
        }
        // Another process may have removed it.
        let _ = std::fs::remove_file(path);
        total -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_damaged_files_and_those_of_other_keys() {
        let outputs = [
            Tensor { dtype: DType::Float32, shape: vec![2, 1], data: vec![1, 2, 3, 4, 5, 6, 7, 8] },
            Tensor { dtype: DType::Int8, shape: vec![3], data: vec![10, 10, 10] },
        ];
        let bytes = encode("key", "how", &outputs);
        assert_eq!(parse(&bytes, "key"), Some((outputs.to_vec(), "how".to_string())));
        assert_eq!(parse(&bytes, "other"), None);
        assert_eq!(parse(&bytes[..bytes.len() - 1], "key"), None);
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() = 11;
        assert_eq!(parse(&changed, "key"), None);
        assert_eq!(parse(b"", "key"), None);
    }
}

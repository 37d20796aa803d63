//! The cache of reference outputs: a file for each in the user's cache directory.

use super::super::cache::{EntryKind, decode, encode};
use crate::ir::DType;
use crate::ir::interp::Tensor;
use serde::{Deserialize, Serialize};

const OUTPUTS: EntryKind = EntryKind { prefix: "reference-", suffix: ".bin", max_bytes: 1 << 30 };

#[derive(Serialize, Deserialize)]
struct About {
    how: String,
    tensors: Vec<(String, Vec<i64>)>,
}

/// Returns the cached outputs of a key, and how they were computed.
pub fn load(key: &str) -> Option<(Vec<Tensor>, String)> {
    parse(&OUTPUTS.load(key)?, key)
}

/// Writes outputs to the cache; the error is a message. Does nothing without a cache directory.
pub fn store(key: &str, how: &str, outputs: &[Tensor]) -> Result<(), String> {
    let bytes: u64 = outputs.iter().map(|tensor| tensor.data.len() as u64).sum();
    if bytes > OUTPUTS.max_bytes / 4 {
        return Ok(());
    }
    OUTPUTS.store(key, write(key, how, outputs))
}

fn write(key: &str, how: &str, outputs: &[Tensor]) -> Vec<u8> {
    let data: Vec<u8> = outputs.iter().flat_map(|tensor| tensor.data.iter().copied()).collect();
    let tensors = outputs.iter().map(|one| (one.dtype.name().to_string(), one.shape.clone()));
    encode(key, &About { how: how.to_string(), tensors: tensors.collect() }, &data)
}

fn parse(bytes: &[u8], key: &str) -> Option<(Vec<Tensor>, String)> {
    let (about, mut data) = decode::<About>(bytes, key)?;
    let mut tensors = Vec::new();
    for (dtype, shape) in about.tensors {
        let dtype = DType::from_name(&dtype)?;
        let count: i64 = shape.iter().product();
        let (own, rest) = data.split_at_checked(count as usize * dtype.bytes() as usize)?;
        tensors.push(Tensor { dtype, shape, data: own.to_vec() });
        data = rest;
    }
    data.is_empty().then_some((tensors, about.how))
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
        let bytes = write("key", "how", &outputs);
        assert_eq!(parse(&bytes, "key"), Some((outputs.to_vec(), "how".to_string())));
        assert_eq!(parse(&bytes, "other"), None);
        assert_eq!(parse(&bytes[..bytes.len() - 1], "key"), None);
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() = 11;
        assert_eq!(parse(&changed, "key"), None);
        assert_eq!(parse(b"", "key"), None);
    }
}

//! Damaged `.safetensors` files: an error, or tensors whose bytes have their shape.
//! `TEC_PARAMS_MUTANTS=100000` sets the number of files, `TEC_PARAMS_SEED` the first one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tec::ir::DType;
use tec::module::params::read_params;

/// A file with three tensors.
fn file() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},
        "W":{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]},
        "b":{"dtype":"I64","shape":[2],"data_offsets":[128,144]},
        "s":{"dtype":"BF16","shape":[],"data_offsets":[144,146]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend((0..146_u8).map(|byte| byte.wrapping_mul(37)));
    file
}

/// A generator of pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as usize % end.max(1)
    }
}

fn change(file: &mut Vec<u8>, random: &mut Random) {
    const TEXTS: [&str; 12] = [
        "18446744073709551615",
        "9223372036854775808",
        "4294967296",
        "-1",
        "0",
        "[]",
        "[[[[",
        "{}",
        "\"F64\"",
        "\"F4\"",
        "null",
        "1e400",
    ];
    let at = random.below(file.len());
    match random.below(7) {
        0 => file.truncate(at),
        1 => file[at] ^= 1 << random.below(8),
        2 => {
            let lengths = [0, 1, 7, 1 << 20, 1 << 32, 1 << 63, u64::MAX, file.len() as u64];
            let length = lengths[random.below(lengths.len())];
            file.splice(..8.min(file.len()), length.to_le_bytes());
        }
        3 | 4 => {
            let text = TEXTS[random.below(TEXTS.len())];
            let end = (at + random.below(4)).min(file.len());
            file.splice(at..end, text.bytes());
        }
        5 => {
            let end = (at + random.below(60)).min(file.len());
            let copy = file[at..end].to_vec();
            file.splice(at..at, copy);
        }
        _ => drop(file.drain(at..(at + random.below(20)).min(file.len()))),
    }
}

#[test]
fn damaged_parameter_files_are_errors() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).map_or(default, |value| value.parse().expect("a number"))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("damaged.safetensors");
    let first = number("TEC_PARAMS_SEED", 1);
    let mut read = 0;
    for seed in first..first + number("TEC_PARAMS_MUTANTS", 2000) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut damaged = file();
        for _ in 0..1 + random.below(3) {
            if !damaged.is_empty() {
                change(&mut damaged, &mut random);
            }
        }
        std::fs::write(&path, &damaged).expect("a scratch file");
        let outcome = catch_unwind(AssertUnwindSafe(|| read_params(&path)));
        let Ok(outcome) = outcome else { panic!("a panic for seed {seed}") };
        let Ok(params) = outcome else { continue };
        read += 1;
        for data in params.values() {
            let len = data.shape.iter().try_fold(1_u64, |n, extent| n.checked_mul(*extent));
            let bytes = len.map(|len| len * u64::from(bytes_of(data.dtype)));
            assert_eq!(bytes, Some((*data.bytes).as_ref().len() as u64), "seed {seed}");
        }
    }
    println!("{read} files have tensors");
}

fn bytes_of(dtype: DType) -> u32 {
    dtype.bytes() as u32
}

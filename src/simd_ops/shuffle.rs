//! Shuffles of the bytes of a register, and the loads in front of them.

use crate::target::SimdIsa;

/// Bytes of the groups that `vpshufb` shuffles.
pub(super) const GROUP_BYTES: usize = 16;

/// The place of a byte that `vpshufb` sets to zero.
pub(super) const ZERO: u8 = 0x80;

/// A shuffle of the bytes of a register: first of doublewords, then of bytes in each group of 16.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shuffle {
    /// The doublewords that `vpermd` takes; `None` if they stay where they are.
    pub doublewords: Option<Vec<u32>>,
    /// The bytes that `vpshufb` takes, 0x80 for a zero; `None` if they stay where they are.
    pub bytes: Option<Vec<u8>>,
}

impl Shuffle {
    /// Returns the shuffle that moves these elements of a register into the lanes of another;
    /// `None` if a group of 16 bytes needs bytes that are further apart.
    pub(super) fn of(elements: &[usize], bytes: usize) -> Option<Shuffle> {
        let from = |at: usize| elements[at / bytes] * bytes + at % bytes;
        let (mut doublewords, mut shuffled) = (Vec::new(), Vec::new());
        let length = elements.len() * bytes;
        for group in (0..length).step_by(GROUP_BYTES) {
            let group: Vec<usize> = (group..length.min(group + GROUP_BYTES)).map(from).collect();
            if bytes >= 4 {
                doublewords.extend(group.iter().step_by(4).map(|byte| *byte as u32 / 4));
                continue;
            }
            let start = group.iter().min()? / 4;
            if group.iter().any(|byte| byte - start * 4 >= GROUP_BYTES) {
                return None;
            }
            doublewords.extend((0..4).map(|word| (start + word) as u32));
            shuffled.extend(group.iter().map(|byte| (byte - start * 4) as u8));
        }
        let moves = (0..).zip(&doublewords).any(|(at, from)| at != *from);
        let turns =
            shuffled.iter().enumerate().any(|(at, from)| at % GROUP_BYTES != *from as usize);
        Some(Shuffle {
            doublewords: moves.then_some(doublewords),
            bytes: turns.then_some(shuffled),
        })
    }
}

/// Whether one load reads this number of bytes: AVX2 has masks of doublewords only.
pub(super) fn loads(length: u64, isa: SimdIsa) -> bool {
    length.is_power_of_two() || isa == SimdIsa::Avx512 || length.is_multiple_of(4)
}

//! Loads of elements of one or two bytes into longer lanes.

use super::joined_load::PartLoad;
use super::lane_offsets::LaneOffsets;
use super::offset_load::OffsetLoad;
use super::shuffle::{GROUP_BYTES, Shuffle, ZERO};
use crate::target::SimdIsa;

impl LaneOffsets {
    /// Returns the load of elements of `from` bytes into the low bytes of lanes of `to` bytes, with
    /// zeros above, or, if `high`, into the high bytes, if a group of 16 bytes of the result needs
    /// no more than 16 bytes of memory.
    pub fn widened_load(&self, from: u64, to: u64, high: bool, isa: SimdIsa) -> Option<PartLoad> {
        if !matches!(self.load(from, isa)?, OffsetLoad::Joined(_) | OffsetLoad::EverySecond { .. })
        {
            return None;
        }
        let (first, last) = (*self.offsets.iter().min()?, *self.offsets.iter().max()?);
        let (lanes, group) = (self.offsets.len() as u64, GROUP_BYTES as u64);
        let in_group = group / to;
        if lanes * to > isa.bytes().into() || in_group < 2 {
            return None;
        }
        let count = (last - first) as u64 + 1;
        let span = count * from;
        let places: Vec<u64> =
            self.offsets.iter().map(|offset| (offset - first) as u64 * from).collect();
        let groups = places.chunks(in_group as usize);
        let whole = groups.len() > 2 && isa == SimdIsa::Avx512 && span <= isa.bytes().into();
        let start = |places: &[u64]| {
            let place = *places.iter().min()?;
            match whole {
                // A group begins with a doubleword.
                true => Some(place / 4 * 4),
                false => Some(place.min(span.checked_sub(group)?)),
            }
        };
        let starts: Vec<u64> = groups.map(start).collect::<Option<_>>()?;
        let source = |at: u64| {
            let (lane, byte) = (at / to, at % to);
            let byte = if high { byte.checked_sub(to - from) } else { Some(byte) };
            let byte = byte.filter(|byte| lane < lanes && *byte < from);
            byte.map(|byte| places[lane as usize] + byte - starts[(lane / in_group) as usize])
        };
        let sources = (0..starts.len() as u64 * group).map(source);
        let sources: Vec<Option<u64>> = sources.collect();
        if sources.iter().flatten().any(|source| *source >= group) {
            return None;
        }
        let bytes = sources.iter().map(|source| source.map_or(ZERO, |source| source as u8));
        let words =
            starts.iter().flat_map(|start| (0..4).map(move |word| (start / 4 + word) as u32));
        let words: Vec<u32> = words.collect();
        let moves = whole && (0..).zip(&words).any(|(at, from)| at != *from);
        let shuffle = Shuffle { doublewords: moves.then_some(words), bytes: Some(bytes.collect()) };
        Some(PartLoad { first, groups: (!whole).then_some(starts), count, shuffle })
    }
}

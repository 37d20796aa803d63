//! Vectors of elements of one or two bytes whose places are constants but not consecutive: loads
//! whose bytes `vpshufb` moves into lanes, with zeros in the other lanes.
//!
//! `vpshufb` moves bytes in groups of 16. A part has a window of 16 bytes of memory for each group
//! of the result: pieces of one load, which `vpermd` moves, or loads of their own.

use super::shuffle::{GROUP_BYTES, Shuffle, ZERO, loads};
use crate::target::SimdIsa;

/// A load whose bytes a shuffle moves into lanes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartLoad {
    /// The offset of the first element.
    pub first: i64,
    /// For a load of 16 bytes for each group, the bytes between the first element and it; `None`
    /// for one load of consecutive elements.
    pub groups: Option<Vec<u64>>,
    /// The number of elements from the first to the last one, both included.
    pub count: u64,
    /// The shuffle that moves the elements into lanes.
    pub shuffle: Shuffle,
}

impl PartLoad {
    /// Returns the numbers of loads and of shuffles.
    pub fn instructions(&self) -> (usize, usize) {
        let Shuffle { doublewords, bytes } = &self.shuffle;
        let shuffles = usize::from(doublewords.is_some()) + usize::from(bytes.is_some());
        match &self.groups {
            Some(starts) => (starts.len(), starts.len() - 1 + shuffles),
            None => (1, shuffles),
        }
    }
}

/// Returns the parts of a vector of elements of one or two bytes at these offsets; `None` if the
/// lanes are better loaded one by one.
pub(super) fn joined(offsets: &[i64], bytes: u64, isa: SimdIsa) -> Option<Vec<PartLoad>> {
    let first = *offsets.iter().min()?;
    let place = |offset: &i64| {
        let elements = u64::try_from(offset.checked_sub(first)?).ok()?;
        elements.checked_mul(bytes).filter(|place| i64::try_from(*place).is_ok())
    };
    let places: Vec<u64> = offsets.iter().map(place).collect::<Option<_>>()?;
    let span = places.iter().max()? + bytes;
    let lanes = Lanes { first, bytes, span, places, isa };
    // Joining groups reads memory by the same instructions; parts are joined by `vpor`.
    let instructions = |parts: &Vec<PartLoad>| -> usize {
        let of_part = |part: &PartLoad| {
            let (loads, shuffles) = part.instructions();
            loads + shuffles + 1 - part.groups.as_ref().map_or(0, |groups| groups.len() - 1)
        };
        parts.iter().map(of_part).sum()
    };
    // Loads of groups cross fewer lines: they are the first of equal ones.
    let plans = [lanes.of_groups(), lanes.of_whole_loads()].into_iter().flatten();
    plans.min_by_key(instructions).filter(|parts| instructions(parts) <= offsets.len())
}

/// The place of each lane of a part among the bytes that `vpshufb` takes for its group; `None` for
/// lanes of other parts.
type Sources = Vec<Option<u8>>;

/// A part of a vector.
struct Part {
    load: PartLoad,
    sources: Sources,
}

/// The lanes of a vector.
struct Lanes {
    /// The least offset.
    first: i64,
    /// Bytes of an element.
    bytes: u64,
    /// Bytes from the first to the last element, both included.
    span: u64,
    /// Bytes between the first element and that of each lane.
    places: Vec<u64>,
    isa: SimdIsa,
}

impl Lanes {
    /// Returns parts with one load each.
    fn of_whole_loads(&self) -> Option<Vec<PartLoad>> {
        let lengths = [64, 32, 16].into_iter().filter(|length| *length <= self.isa.bytes().into());
        let lengths: Vec<u64> = lengths.collect();
        self.parts(&mut |left| {
            // A shorter load is better if it has all lanes of the longest one.
            let loads = lengths.iter().filter_map(|length| self.whole_load(left, *length));
            let lanes = |part: &Part| part.sources.iter().flatten().count();
            loads.reduce(|best, next| if lanes(&next) == lanes(&best) { next } else { best })
        })
    }

    /// Returns a part of at most `longest` bytes.
    fn whole_load(&self, left: &[Option<u64>], longest: u64) -> Option<Part> {
        // The last load ends with the last element.
        let base = left.iter().flatten().min()?;
        let base = (*base).min(self.span.saturating_sub(longest));
        // Windows begin with a doubleword.
        let window = |group: &[Option<u64>]| {
            let from = group.iter().flatten().min().map_or(base, |place| *place) - base;
            (from / 4 * 4).min(longest - GROUP_BYTES as u64)
        };
        let windows: Vec<u64> = self.groups(left).map(window).collect();
        let length = longest.min(self.span - base);
        if !loads(length, self.isa) {
            return None;
        }
        let sources = self.sources(left, |group| (base + windows[group], base + length));
        let doublewords = windows.iter().flat_map(|window| (0..4).map(move |at| window / 4 + at));
        let doublewords: Vec<u32> = doublewords.map(|at| at as u32).collect();
        let moves = (0..).zip(&doublewords).any(|(at, from)| at != *from);
        let shuffle = self.shuffle(&sources, moves.then_some(doublewords));
        let first = self.first + (base / self.bytes) as i64;
        let load = PartLoad { first, groups: None, count: length / self.bytes, shuffle };
        Some(Part { load, sources })
    }

    /// Returns parts with a load of 16 bytes for each group.
    fn of_groups(&self) -> Option<Vec<PartLoad>> {
        let last = self.span.checked_sub(GROUP_BYTES as u64)?;
        self.parts(&mut |left| {
            let start = |group: &[Option<u64>]| {
                group.iter().flatten().min().map_or(0, |place| (*place).min(last))
            };
            let starts: Vec<u64> = self.groups(left).map(start).collect();
            let sources = self.sources(left, |group| (starts[group], self.span));
            let shuffle = self.shuffle(&sources, None);
            let (first, count) = (self.first, self.span / self.bytes);
            let load = PartLoad { first, groups: Some(starts), count, shuffle };
            Some(Part { load, sources })
        })
    }

    /// Makes parts until each lane is in one; `part` takes the places of the lanes that are left.
    fn parts(&self, part: &mut dyn FnMut(&[Option<u64>]) -> Option<Part>) -> Option<Vec<PartLoad>> {
        let mut left: Vec<Option<u64>> = self.places.iter().copied().map(Some).collect();
        let mut parts = Vec::new();
        while left.iter().any(Option::is_some) && parts.len() < left.len() {
            let Part { load, sources } = part(&left)?;
            parts.push(load);
            for (place, source) in left.iter_mut().zip(sources) {
                *place = place.filter(|_| source.is_none());
            }
        }
        left.iter().all(Option::is_none).then_some(parts)
    }

    /// The lanes by group of 16 bytes.
    fn groups<'a>(&self, left: &'a [Option<u64>]) -> impl Iterator<Item = &'a [Option<u64>]> {
        left.chunks(GROUP_BYTES / self.bytes as usize)
    }

    /// Returns the place of each lane that is left in the window of its group; `None` if it is
    /// outside. `window` gives the first byte of a group's window, and the end of what is loaded.
    fn sources(&self, left: &[Option<u64>], window: impl Fn(usize) -> (u64, u64)) -> Sources {
        let in_group = GROUP_BYTES / self.bytes as usize;
        let source = |(lane, place): (usize, &Option<u64>)| {
            let ((start, end), place) = (window(lane / in_group), (*place)?);
            let fits = place + self.bytes <= end.min(start + GROUP_BYTES as u64);
            place.checked_sub(start).filter(|_| fits).map(|source| source as u8)
        };
        left.iter().enumerate().map(source).collect()
    }

    /// Returns the shuffle of bytes that follows a permutation of doublewords.
    fn shuffle(&self, sources: &[Option<u8>], doublewords: Option<Vec<u32>>) -> Shuffle {
        let of_lane = |source: &Option<u8>| {
            let source = *source;
            (0..self.bytes as u8).map(move |byte| source.map_or(ZERO, |source| source + byte))
        };
        let mut bytes: Vec<u8> = sources.iter().flat_map(of_lane).collect();
        bytes.resize(bytes.len().next_multiple_of(GROUP_BYTES), ZERO);
        let stays = |(at, byte): (usize, &u8)| usize::from(*byte) == at % GROUP_BYTES;
        let stay = bytes.iter().enumerate().all(stays);
        Shuffle { doublewords, bytes: (!stay).then_some(bytes) }
    }
}

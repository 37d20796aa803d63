//! Loads of vectors whose lanes are a scalar plus constants: contiguous loads and shuffles take the
//! place of a gather.

use super::joined_load::{PartLoad, joined};
use super::lane_offsets::LaneOffsets;
use super::masks_elements;
use super::shuffle::{Shuffle, loads};
use crate::target::SimdIsa;
use std::ops::Range;

/// The largest number of runs of consecutive elements in a vector; each takes a masked load.
const MAX_RUNS: usize = 3;

/// The largest number of vectors from whose elements of four or eight bytes one is taken.
const MAX_VECTORS: i64 = 4;

/// Lanes with consecutive elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first lane.
    pub lane: u32,
    /// The number of lanes.
    pub lanes: u32,
    /// The offset of the first lane.
    pub offset: i64,
}

/// Consecutive elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The offset of the first one.
    pub start: i64,
    /// The number of elements.
    pub count: u32,
}

/// How the elements of a [`LaneOffsets`] are loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OffsetLoad {
    /// One element in all lanes.
    OneElement,
    /// All elements between the first and the last one by one load, then a shuffle.
    Shuffled {
        /// The least offset.
        first: i64,
        /// The number of elements.
        count: u64,
        /// The shuffle that moves them into lanes.
        shuffle: Shuffle,
    },
    /// The same by two loads of `half` bytes that overlap, where no load has the length: the first
    /// ones and the last ones, one behind the other in a register.
    Halves {
        /// The least offset.
        first: i64,
        /// The offset of the second load.
        second: i64,
        /// Bytes of a load: 4 or 8.
        half: u64,
        /// The shuffle that moves the elements into lanes.
        shuffle: Shuffle,
    },
    /// Runs of consecutive elements, each under a mask.
    Runs(Vec<Run>),
    /// Vectors as long as the result, or parts of vectors from rows that are far apart, from whose
    /// doublewords those of the result are taken.
    Vectors {
        /// The vectors. The last one ends with the greatest offset.
        vectors: Vec<Span>,
        /// The places of doublewords in all vectors, one behind the other.
        doublewords: Vec<u32>,
    },
    /// Elements of one or two bytes of several rows in turns, which fill doublewords: consecutive
    /// elements of each row, widened, shifted and joined.
    Interleaved {
        /// The offset of the first element of each row.
        rows: Vec<i64>,
    },
    /// Every second of elements of one or two bytes: those at even places of a vector as long as
    /// the result, and those at odd places of another one.
    EverySecond {
        /// The offset of the first element of the first vector: the least one.
        first: i64,
        /// The offset of the first element of the second vector, which ends with the greatest one.
        second: i64,
    },
    /// Elements of one or two bytes at other places: parts with zeros in the lanes that others
    /// have, joined by `vpor`.
    Joined(Vec<PartLoad>),
}

/// Parts of rows as [`OffsetLoad::Vectors`].
struct Rows {
    vectors: Vec<Span>,
    doublewords: Vec<u32>,
}

impl LaneOffsets {
    /// Returns how the elements of `bytes` bytes are loaded; `None` if a gather or single loads are
    /// needed. Reads no byte before the first or after the last element.
    pub fn load(&self, bytes: u64, isa: SimdIsa) -> Option<OffsetLoad> {
        let (first, last) = (self.offsets.iter().min()?, self.offsets.iter().max()?);
        if first == last {
            return Some(OffsetLoad::OneElement);
        }
        let lanes = self.offsets.len() as u64;
        if lanes * bytes > isa.bytes().into() {
            return None;
        }
        let count = u64::try_from(i128::from(*last) - i128::from(*first) + 1).ok()?;
        let length = count.checked_mul(bytes)?;
        if length <= isa.bytes().into() && loads(length, isa) {
            let elements = self.offsets.iter().map(|offset| (offset - first) as usize);
            if let Some(shuffle) = Shuffle::of(&elements.collect::<Vec<_>>(), bytes as usize) {
                return Some(OffsetLoad::Shuffled { first: *first, count, shuffle });
            }
        }
        if let Some(halves) = self.halves(*first, length, bytes) {
            return Some(halves);
        }
        let runs = self.runs();
        let masked = masks_elements(bytes, isa) && lanes * bytes >= 16;
        if masked && runs.len() <= MAX_RUNS {
            return Some(OffsetLoad::Runs(runs));
        }
        self.interleaved(bytes).or_else(|| self.vectors(bytes, isa, (*first, *last)))
    }

    /// Returns the load of up to 15 bytes in two halves.
    fn halves(&self, first: i64, length: u64, bytes: u64) -> Option<OffsetLoad> {
        let half = match length {
            5..=7 => 4,
            9..=15 => 8,
            _ => return None,
        };
        // Bytes of the second half are counted from its end, which is that of the elements.
        let place = |offset: &i64| {
            let at = (offset - first) as u64 * bytes;
            let at = if at + bytes <= half { at } else { at + 2 * half - length };
            (at % bytes == 0).then_some((at / bytes) as usize)
        };
        let elements: Vec<usize> = self.offsets.iter().map(place).collect::<Option<_>>()?;
        let shuffle = Shuffle::of(&elements, bytes as usize)?;
        let second = first + ((length - half) / bytes) as i64;
        Some(OffsetLoad::Halves { first, second, half, shuffle })
    }

    /// Returns the load of elements of several rows in turns.
    fn interleaved(&self, bytes: u64) -> Option<OffsetLoad> {
        let count = match bytes {
            1 | 2 => 4 / bytes as usize,
            _ => return None,
        };
        let length = self.offsets.len() as u64 * bytes;
        let rows = self.offsets.get(..count)?.to_vec();
        let fits = |(lane, offset): (usize, &i64)| {
            rows[lane % count].checked_add((lane / count) as i64) == Some(*offset)
        };
        let all = self.offsets.iter().enumerate().all(fits);
        ([16, 32, 64].contains(&length) && all).then_some(OffsetLoad::Interleaved { rows })
    }

    /// Returns the load of elements that are a few vectors apart, such as every second or third
    /// one.
    fn vectors(&self, bytes: u64, isa: SimdIsa, (first, last): (i64, i64)) -> Option<OffsetLoad> {
        let lanes = self.offsets.len() as i64;
        let span = i128::from(last) - i128::from(first) + 1;
        let length = self.offsets.len() as u64 * bytes;
        let second = last - (lanes - 1);
        if bytes < 4 {
            let is_second = |pair: &[i64]| pair[1].checked_sub(pair[0]) == Some(2);
            if [16, 32, 64].contains(&length) && self.offsets.windows(2).all(is_second) {
                return Some(OffsetLoad::EverySecond { first, second });
            }
            return joined(&self.offsets, bytes, isa).map(OffsetLoad::Joined);
        }
        // `vpermd` has no form for 16 bytes.
        let has_form = match isa {
            SimdIsa::Avx512 => length >= 16,
            SimdIsa::Avx2 => length > 16,
        };
        if !has_form {
            return None;
        }
        let count = i64::try_from((span + i128::from(lanes) - 1) / i128::from(lanes)).ok()?;
        // Parts that need masks are better only if they have no gaps and are fewer than whole
        // vectors.
        let rows = self.rows(bytes, isa).filter(|rows| {
            let needs_mask = |row: &Span| !(u64::from(row.count) * bytes).is_power_of_two();
            let elements: u64 = rows.vectors.iter().map(|row| u64::from(row.count)).sum();
            let few = count > MAX_VECTORS || (rows.vectors.len() as i64) < count;
            few && elements <= lanes as u64 || !rows.vectors.iter().any(needs_mask)
        });
        if let Some(Rows { vectors, doublewords }) = rows {
            return Some(OffsetLoad::Vectors { vectors, doublewords });
        }
        let span = span as i64;
        if !(1..=MAX_VECTORS).contains(&count) || span < lanes {
            return None;
        }
        // The vectors begin at a distance of `lanes` elements, or, with AVX2, of one less: then
        // every second, third or fourth element is in another lane of each, and blends join them.
        let at_distance = |distance: i64| {
            let number = |offset: &i64| ((offset - first) / distance).min(count - 1);
            let starts = (0..count).map(|number| first + (number * distance).min(span - lanes));
            let starts: Vec<i64> = starts.collect();
            let words = bytes as u32 / 4;
            let doublewords = self.offsets.iter().flat_map(|offset| {
                let number = number(offset);
                let from = (number * lanes + offset - starts[number as usize]) as u32 * words;
                from..from + words
            });
            let doublewords = doublewords.collect();
            let vectors = starts.into_iter().map(|start| Span { start, count: lanes as u32 });
            OffsetLoad::Vectors { vectors: vectors.collect(), doublewords }
        };
        let apart = || (span - 1 == count * (lanes - 1)).then(|| at_distance(lanes - 1));
        let blends = |load: &OffsetLoad| match load {
            OffsetLoad::Vectors { doublewords, .. } => blend_lanes(doublewords).is_some(),
            _ => false,
        };
        let blended = if isa == SimdIsa::Avx2 { apart().filter(blends) } else { None };
        Some(blended.unwrap_or_else(|| at_distance(lanes)))
    }

    /// Returns the load of neighbours from two to four rows that are further apart than a vector is
    /// long.
    fn rows(&self, bytes: u64, isa: SimdIsa) -> Option<Rows> {
        let lanes = self.offsets.len() as i64;
        let mut sorted = self.offsets.clone();
        sorted.sort_unstable();
        let mut rows: Vec<Range<i64>> = Vec::new();
        for offset in sorted {
            let end = offset.checked_add(1)?;
            match rows.last_mut() {
                Some(row) if end.checked_sub(row.start)? <= lanes => row.end = end,
                _ => rows.push(offset..end),
            }
        }
        // A vector of two elements of each row takes fewer instructions than a gather.
        let few =
            (2..=MAX_VECTORS as usize).contains(&rows.len()) && 2 * rows.len() <= lanes as usize;
        let has_load = |row: &Range<i64>| loads((row.end - row.start) as u64 * bytes, isa);
        if !few || rows.iter().any(|row| row.end - row.start == lanes) || !rows.iter().all(has_load)
        {
            return None;
        }
        let words = bytes as i64 / 4;
        let doublewords = self.offsets.iter().flat_map(|offset| {
            let row = rows.iter().position(|row| row.contains(offset)).expect("one of the rows");
            let from = (row as i64 * lanes + offset - rows[row].start) * words;
            (from..from + words).map(|word| word as u32)
        });
        let doublewords = doublewords.collect();
        let row = |row: &Range<i64>| Span { start: row.start, count: (row.end - row.start) as u32 };
        Some(Rows { vectors: rows.iter().map(row).collect(), doublewords })
    }

    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (lane, offset) in (0..).zip(&self.offsets) {
            match runs.last_mut() {
                Some(run) if run.offset.checked_add(run.lanes.into()) == Some(*offset) => {
                    run.lanes += 1;
                }
                _ => runs.push(Run { lane, lanes: 1, offset: *offset }),
            }
        }
        runs
    }
}

/// Returns the doublewords that blends take from each vector, as bits, if no two vectors have
/// theirs in the same place; a permutation of the blended ones is then the result. `places` are
/// those of [`OffsetLoad::Vectors`].
pub fn blend_lanes(places: &[u32]) -> Option<Vec<u32>> {
    let count = places.len() as u32;
    let mut taken: Vec<u32> = Vec::new();
    for place in places {
        let (vector, bit) = ((place / count) as usize, 1 << (place % count));
        taken.resize(taken.len().max(vector + 1), 0);
        if (0..).zip(&taken).any(|(other, bits)| other != vector && bits & bit != 0) {
            return None;
        }
        taken[vector] |= bit;
    }
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Expr;

    #[test]
    fn loads_stay_between_elements() {
        let load = |offsets: &[i64], bytes, isa| {
            LaneOffsets { base: Expr::index(0), offsets: offsets.to_vec() }.load(bytes, isa)
        };
        use SimdIsa::{Avx2, Avx512};
        assert_eq!(load(&[5; 8], 4, Avx2), Some(OffsetLoad::OneElement));
        let Some(OffsetLoad::Shuffled { first: 3, count: 4, .. }) =
            load(&[3, 3, 4, 4, 5, 5, 6, 6], 4, Avx2)
        else {
            panic!("a shuffle");
        };
        let runs = [Run { lane: 0, lanes: 1, offset: 63 }, Run { lane: 1, lanes: 3, offset: 0 }];
        assert_eq!(load(&[63, 0, 1, 2], 4, Avx2), Some(OffsetLoad::Runs(runs.to_vec())));
        assert_eq!(load(&[0, 9, 40, 80, 120, 160, 200, 240], 4, Avx512), None);
        // Every second element, the last vector ending with the last one.
        let even: Vec<i64> = (0..8).map(|lane| 2 * lane).collect();
        let doublewords = vec![0, 2, 4, 6, 9, 11, 13, 15];
        let vectors = |starts: &[i64], count| -> Vec<Span> {
            starts.iter().map(|start| Span { start: *start, count }).collect()
        };
        let two = OffsetLoad::Vectors { vectors: vectors(&[0, 7], 8), doublewords };
        assert_eq!(load(&even, 4, Avx2), Some(two));
        assert_eq!(blend_lanes(&[0, 2, 4, 6, 9, 11, 13, 15]), Some(vec![0x55, 0xaa]));
        assert_eq!(blend_lanes(&[0, 2, 4, 6, 8, 10, 12, 14]), None);
        let Some(OffsetLoad::Vectors { vectors: two, doublewords }) = load(&even[..4], 8, Avx2)
        else {
            panic!("two vectors");
        };
        assert_eq!(two, vectors(&[0, 3], 4));
        assert_eq!(doublewords, [0, 1, 4, 5, 10, 11, 14, 15]);
        assert_eq!(load(&even[..4], 8, Avx512).map(|_| ()), Some(()));
        // Bytes and halves have no permutation of two registers.
        let all: Vec<i64> = (0..32).map(|lane| 2 * lane + 5).collect();
        let every_second = Some(OffsetLoad::EverySecond { first: 5, second: 36 });
        assert_eq!(load(&all, 1, Avx2), every_second);
        assert_eq!(load(&all, 2, Avx512), every_second);
        assert_eq!(load(&all, 2, Avx2), None);
        // Bytes in longer lanes need no permutation.
        let known = LaneOffsets { base: Expr::index(0), offsets: all };
        let widened = known.widened_load(1, 2, false, Avx512).expect("a load and a shuffle");
        assert_eq!((widened.groups, widened.count, widened.first), (None, 63, 5));
        assert_eq!(widened.shuffle.doublewords, None);
        assert_eq!(widened.shuffle.bytes.expect("a shuffle")[..4], [0, 0x80, 2, 0x80]);
        // Four rows of bytes in turns, and two of halves.
        let turns = |rows: &[i64], lanes: usize| -> Vec<i64> {
            (0..lanes).map(|lane| rows[lane % rows.len()] + (lane / rows.len()) as i64).collect()
        };
        let rows = [7, 107, 207, 307].to_vec();
        let in_turns = Some(OffsetLoad::Interleaved { rows: rows.clone() });
        assert_eq!(load(&turns(&rows, 64), 1, Avx512), in_turns);
        assert_eq!(load(&turns(&rows, 32), 1, Avx2), in_turns);
        let is_joined = |load| matches!(load, Some(OffsetLoad::Joined(_)));
        assert!(is_joined(load(&turns(&rows, 24), 1, Avx2)));
        assert!(is_joined(load(&turns(&rows, 16), 2, Avx2)));
        let rows = [300, 0].to_vec();
        assert_eq!(load(&turns(&rows, 16), 2, Avx2), Some(OffsetLoad::Interleaved { rows }));
        // Thirteen bytes of four pixels, the alpha of each in four lanes.
        let alpha: Vec<i64> = (0..16).map(|lane| lane / 4 * 4 + 3).collect();
        let Some(OffsetLoad::Halves { first: 3, second: 8, half: 8, shuffle }) =
            load(&alpha, 1, Avx2)
        else {
            panic!("two halves");
        };
        assert_eq!(
            shuffle.bytes.expect("a shuffle")[..],
            [0, 4, 11, 15].map(|at| [at; 4]).concat()
        );
        assert!(matches!(load(&alpha, 1, Avx512), Some(OffsetLoad::Shuffled { .. })));
        // Every third byte: 46 of them hold 16 elements.
        let third: Vec<i64> = (0..32).map(|lane| 3 * lane + 1).collect();
        let starts = |load: Option<OffsetLoad>| -> Vec<(i64, Option<Vec<u64>>, u64)> {
            let Some(OffsetLoad::Joined(parts)) = load else { panic!("parts") };
            parts.into_iter().map(|part| (part.first, part.groups, part.count)).collect()
        };
        let of_groups = |all: &[&[u64]], count| -> Vec<_> {
            all.iter().map(|groups| (1, Some(groups.to_vec()), count)).collect()
        };
        let one = of_groups(&[&[0], &[18], &[30]], 46);
        assert_eq!(starts(load(&third[..16], 1, Avx2)), one);
        let two = of_groups(&[&[0, 48], &[18, 66], &[36, 78]], 94);
        assert_eq!(starts(load(&third, 1, Avx2)), two);
        assert!(matches!(load(&third[..6], 1, Avx2), Some(OffsetLoad::Shuffled { .. })));
        assert!(matches!(load(&third[..5], 1, Avx2), Some(OffsetLoad::Halves { .. })));
        assert_eq!(load(&[0, 2], 1, Avx2), None);
        // Three rows of bytes in turns: a load of each, 5 or 6 bytes of which are in a group.
        let rows = turns(&[0, 1000, 2000], 64);
        let whole = vec![(0, None, 32), (1000, None, 32), (1989, None, 32)];
        assert_eq!(starts(load(&rows, 1, Avx512)), whole);
        // Of four bytes: 6, 5 and 5 of them.
        let rows = turns(&[0, 1000, 2000], 16);
        let Some(OffsetLoad::Vectors { vectors: rows, doublewords }) = load(&rows, 4, Avx512)
        else {
            panic!("three rows");
        };
        assert_eq!(rows.iter().map(|row| row.count).collect::<Vec<_>>(), [6, 5, 5]);
        assert_eq!(doublewords[..5], [0, 16, 32, 1, 17]);
        // Pixels with their colors in reverse.
        let reverse: Vec<i64> = (0..64).map(|lane| lane / 3 * 3 + 2 - lane % 3).collect();
        let Some(OffsetLoad::Joined(parts)) = load(&reverse, 1, Avx512) else { panic!("parts") };
        assert_eq!(parts.len(), 2);
        // Four of them are in 16 bytes.
        let known = LaneOffsets { base: Expr::index(0), offsets: third[..8].to_vec() };
        let widened = known.widened_load(1, 4, false, Avx2).expect("two loads and a shuffle");
        assert_eq!(widened.groups, Some(vec![0, 6]));
        let places = widened.shuffle.bytes.expect("a shuffle");
        assert_eq!(places[..6], [0, 0x80, 0x80, 0x80, 3, 0x80]);
        assert_eq!(places[16..22], [6, 0x80, 0x80, 0x80, 9, 0x80]);
        let known = LaneOffsets { base: Expr::index(0), offsets: third[..16].to_vec() };
        let widened = known.widened_load(1, 4, true, Avx512).expect("a load and two shuffles");
        assert_eq!((widened.groups, widened.count), (None, 46));
        let words = widened.shuffle.doublewords.expect("a permutation");
        assert_eq!(words, [0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12]);
        assert_eq!(widened.shuffle.bytes.expect("a shuffle")[..4], [0x80, 0x80, 0x80, 0]);
        assert_eq!(known.widened_load(1, 2, false, Avx512), None);
        // Every third one needs three vectors, every fifth one more than four.
        let third: Vec<i64> = (0..8).map(|lane| 3 * lane).collect();
        let doublewords = vec![0, 3, 6, 10, 13, 17, 20, 23];
        let three = OffsetLoad::Vectors { vectors: vectors(&[0, 7, 14], 8), doublewords };
        assert_eq!(load(&third, 4, Avx2), Some(three));
        // Every fourth one, in reverse; every third one of four lanes has no such places.
        let fourth: Vec<i64> = (0..8).map(|lane| 28 - 4 * lane).collect();
        let Some(OffsetLoad::Vectors { vectors: four, doublewords }) = load(&fourth, 4, Avx2)
        else {
            panic!("four vectors");
        };
        assert_eq!(four, vectors(&[0, 7, 14, 21], 8));
        assert_eq!(blend_lanes(&doublewords), Some(vec![0x11, 0x22, 0x44, 0x88]));
        let Some(OffsetLoad::Vectors { vectors: three, doublewords }) = load(&third[..4], 8, Avx2)
        else {
            panic!("three vectors");
        };
        assert_eq!(three, vectors(&[0, 4, 6], 4));
        assert_eq!(blend_lanes(&doublewords), None);
        let fifth: Vec<i64> = (0..8).map(|lane| 5 * lane).collect();
        assert_eq!(load(&fifth, 4, Avx2), None);
        // Elements of two rows in turns.
        let turns: Vec<i64> = (0..8).map(|lane| lane / 2 + lane % 2 * 100 + 3).collect();
        let doublewords = vec![0, 8, 1, 9, 2, 10, 3, 11];
        let rows = OffsetLoad::Vectors { vectors: vectors(&[3, 103], 4), doublewords };
        assert_eq!(load(&turns, 4, Avx2), Some(rows));
        let extremes = [i64::MIN, i64::MAX, 0, 1, i64::MIN, i64::MAX, 0, 1];
        assert_eq!(load(&extremes, 4, Avx2), None);
        // Seven bytes are no doublewords, but two that overlap.
        let bytes: Vec<i64> = (0..7).chain(0..7).collect();
        assert!(matches!(load(&bytes, 1, Avx2), Some(OffsetLoad::Halves { half: 4, .. })));
        assert!(matches!(load(&bytes, 1, Avx512), Some(OffsetLoad::Shuffled { .. })));
    }

    #[test]
    fn parts_have_each_lane_once_and_stay_between_elements() {
        let patterns = (2..9).flat_map(|d| [-7, -1, 2, 5, 40, 333].map(|far| (d, far)));
        for (d, far) in patterns {
            for lanes in [8, 12, 16, 31, 32, 64] {
                let offsets: Vec<i64> =
                    (0..lanes).map(|lane| lane / d * 2 + lane % d * far).collect();
                let (first, last) =
                    (*offsets.iter().min().unwrap(), *offsets.iter().max().unwrap());
                for (bytes, isa) in [(1, SimdIsa::Avx2), (1, SimdIsa::Avx512), (2, SimdIsa::Avx512)]
                {
                    if offsets.len() as u64 * bytes > isa.bytes().into() {
                        continue;
                    }
                    let Some(parts) = joined(&offsets, bytes, isa) else { continue };
                    let mut taken = vec![0; offsets.len() * bytes as usize];
                    for part in parts {
                        let end = part.first + part.count as i64 - 1;
                        assert!(first <= part.first && end <= last, "{offsets:?}: {part:?}");
                        let shuffled = part.shuffle.bytes.unwrap_or_else(|| vec![0; taken.len()]);
                        for (count, from) in taken.iter_mut().zip(shuffled) {
                            *count += i32::from(from < 0x80);
                        }
                    }
                    assert!(taken.iter().all(|count| *count == 1), "{offsets:?}: {taken:?}");
                }
            }
        }
    }
}

//! Indices whose lanes are a scalar plus constants, such as `x16(b) + ramp(0, 1, 16) // x16(2)`.
//! Their lanes need no arithmetic at run time.

use super::masks_elements;
use crate::ir::arith::{floor_div, floor_mod};
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp};
use crate::target::SimdIsa;
use std::ops::Range;

/// The largest number of nodes of an index that are visited.
const MAX_NODES: usize = 32;

/// The largest number of runs of consecutive elements in a vector; each takes a masked load.
const MAX_RUNS: usize = 3;

/// Bytes of the groups that `vpshufb` shuffles.
const GROUP_BYTES: usize = 16;

/// The largest stride of elements of one or two bytes that are shuffled from several loads.
const MAX_SHUFFLED_STRIDE: i64 = 4;

/// The largest number of vectors from whose elements of four or eight bytes one is taken.
const MAX_VECTORS: i64 = 4;

/// An index whose lanes are a scalar plus constants.
#[derive(Clone, Debug)]
pub struct LaneOffsets {
    /// The scalar.
    pub base: Expr,
    /// The constant that each lane adds to it.
    pub offsets: Vec<i64>,
}

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

/// A shuffle of the bytes of a register: first of doublewords, then of bytes in each group of 16.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shuffle {
    /// The doublewords that `vpermd` takes; `None` if they stay where they are.
    pub doublewords: Option<Vec<u32>>,
    /// The bytes that `vpshufb` takes; `None` if they stay where they are.
    pub bytes: Option<Vec<u8>>,
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
        /// The offsets of their first elements. The last vector ends with the greatest offset.
        starts: Vec<i64>,
        /// The number of elements of each.
        each: u32,
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
    /// Elements of one or two bytes at a larger stride, or at stride 2 in a vector of another
    /// length: from several loads of 16 bytes for each group of 16 bytes of the result, `vpshufb`
    /// takes the elements that are there.
    EveryNth {
        /// The offset of the first element.
        first: i64,
        /// The distance of elements.
        stride: u64,
        /// The loads: for each one, the bytes between the first element and the load, by group.
        loads: Vec<Vec<u64>>,
    },
}

/// How the elements of an [`OffsetLoad::EveryNth`] are loaded as longer integers. A group of 16
/// bytes of these needs no more than 16 bytes of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WidenedLoad {
    /// The offset of the first element.
    pub first: i64,
    /// For a load of 16 bytes for each group, the bytes between the first element and it; `None`
    /// for one load of all elements and what is between them.
    pub groups: Option<Vec<u64>>,
    /// The number of elements between the first and the last one, both included.
    pub count: u64,
    /// The shuffle that moves the elements to the low bytes of the lanes, or to the high ones.
    pub shuffle: Shuffle,
}

/// Matches an index that is a scalar plus constants. Divisions must have a constant dividend, as
/// they have after `simplify`, which takes multiples of the divisor out.
pub fn lane_offsets(index: &Expr) -> Option<LaneOffsets> {
    let is_vector = index.ty.dtype == DType::Index && index.ty.lanes > 1;
    is_vector.then(|| offsets_of(index, &mut { MAX_NODES }))?
}

/// Returns the lanes of an index vector of constants.
pub fn constant_lanes(index: &Expr) -> Option<Vec<i64>> {
    let LaneOffsets { base, offsets } = lane_offsets(index)?;
    let base = i64::try_from(base.as_int()?).ok()?;
    offsets.into_iter().map(|offset| offset.checked_add(base)).collect()
}

/// Returns the lanes of a mask that depends on constants only.
pub fn constant_mask(mask: &Expr) -> Option<Vec<bool>> {
    use BinOp::{And, BitAnd, BitOr, Or};
    let both = |a: &Expr, b: &Expr, f: fn(bool, bool) -> bool| {
        let (a, b) = (constant_mask(a)?, constant_mask(b)?);
        Some(a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect())
    };
    match &mask.kind {
        ExprKind::Broadcast(value) => Some(vec![value.as_int()? != 0; mask.ty.lanes as usize]),
        ExprKind::Unary(UnOp::Likely, a) => constant_mask(a),
        ExprKind::Unary(UnOp::Not, a) => Some(constant_mask(a)?.into_iter().map(|a| !a).collect()),
        ExprKind::Binary(And | BitAnd, a, b) => both(a, b, |a, b| a && b),
        ExprKind::Binary(Or | BitOr, a, b) => both(a, b, |a, b| a || b),
        ExprKind::Binary(op, a, b) if op.is_comparison() && a.ty.dtype == DType::Index => {
            let (a, b) = (constant_lanes(a)?, constant_lanes(b)?);
            let holds = |(a, b): (i64, i64)| match op {
                BinOp::Eq => a == b,
                BinOp::Ne => a != b,
                BinOp::Lt => a < b,
                BinOp::Le => a <= b,
                BinOp::Gt => a > b,
                _ => a >= b,
            };
            Some(a.into_iter().zip(b).map(holds).collect())
        }
        _ => None,
    }
}

/// The elements of a load under a constant mask whose lanes differ by constants. Lanes that are off
/// may read what another one reads, so that no mask is needed.
pub struct MaskedOffsets {
    offsets: LaneOffsets,
    active: Vec<bool>,
}

impl MaskedOffsets {
    /// Matches such an index and mask.
    pub fn of(index: &Expr, mask: &Expr) -> Option<MaskedOffsets> {
        Some(MaskedOffsets { offsets: lane_offsets(index)?, active: constant_mask(mask)? })
    }

    /// Returns the lanes that are read.
    pub fn active(&self) -> &[bool] {
        &self.active
    }

    /// Returns the offsets of some lanes. Those of lanes that are off are replaced by the offset of
    /// the lane before them that is on, or of the first one. `None` if no lane is on.
    pub fn part(&self, lanes: Range<usize>) -> Option<LaneOffsets> {
        let (own, active) = (self.offsets.part(lanes.clone())?, self.active.get(lanes)?);
        let mut last = own.offsets[active.iter().position(|active| *active)?];
        let spread = own.offsets.iter().zip(active).map(|(offset, active)| {
            last = if *active { *offset } else { last };
            last
        });
        Some(LaneOffsets { offsets: spread.collect(), ..own })
    }

    /// Whether each vector of `width` of the lanes has a load of elements of `bytes` bytes.
    pub fn fits(&self, lanes: Range<usize>, width: usize, bytes: u64, isa: SimdIsa) -> bool {
        let mut parts = lanes.clone().step_by(width);
        parts.all(|first| {
            let own = first..(first + width).min(lanes.end);
            let is_off = self.active[own.clone()].iter().all(|active| !active);
            is_off || self.part(own).is_some_and(|part| part.load(bytes, isa).is_some())
        })
    }
}

fn offsets_of(index: &Expr, nodes: &mut usize) -> Option<LaneOffsets> {
    *nodes = nodes.checked_sub(1)?;
    let with =
        |base: Expr, offsets: Option<Vec<i64>>| Some(LaneOffsets { base, offsets: offsets? });
    match &index.kind {
        ExprKind::Broadcast(base) => with(base.clone(), Some(vec![0; index.ty.lanes as usize])),
        ExprKind::Ramp(base, stride) => {
            let stride = i64::try_from(stride.as_int()?).ok()?;
            let lanes = 0..i64::from(index.ty.lanes);
            with(base.clone(), lanes.map(|lane| stride.checked_mul(lane)).collect())
        }
        ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => {
            let (a, b) = (offsets_of(a, nodes)?, offsets_of(b, nodes)?);
            let add = |(x, y): (&i64, &i64)| match op {
                BinOp::Add => x.checked_add(*y),
                _ => x.checked_sub(*y),
            };
            let base = match (a.base.as_int(), b.base.as_int(), op) {
                (Some(0), _, BinOp::Add) => b.base,
                (_, Some(0), _) => a.base,
                (Some(x), Some(y), BinOp::Add) => constant(x.checked_add(y)?)?,
                (Some(x), Some(y), _) => constant(x.checked_sub(y)?)?,
                _ => Expr::binary(*op, a.base, b.base),
            };
            with(base, a.offsets.iter().zip(&b.offsets).map(add).collect())
        }
        ExprKind::Binary(BinOp::Mul, a, b) => {
            let (a, factor) = match (all_lanes(a), all_lanes(b)) {
                (_, Some(factor)) => (a, factor),
                (Some(factor), None) => (b, factor),
                _ => return None,
            };
            let LaneOffsets { base, offsets } = offsets_of(a, nodes)?;
            let base = match base.as_int() {
                Some(base) => constant(base.checked_mul(factor.into())?)?,
                None => Expr::mul(base, Expr::index(factor)),
            };
            with(base, offsets.iter().map(|offset| offset.checked_mul(factor)).collect())
        }
        ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => {
            let (a, b) = (offsets_of(a, nodes)?, offsets_of(b, nodes)?);
            let value = |of: &LaneOffsets, offset: i64| {
                i64::try_from(of.base.as_int()?).ok()?.checked_add(offset)
            };
            let clamped = |(x, y): (&i64, &i64)| {
                let (x, y) = (value(&a, *x)?, value(&b, *y)?);
                Some(if *op == BinOp::Min { x.min(y) } else { x.max(y) })
            };
            with(Expr::index(0), a.offsets.iter().zip(&b.offsets).map(clamped).collect())
        }
        ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, divisor) => {
            let divisor = i128::from(all_lanes(divisor).filter(|divisor| *divisor > 0)?);
            let LaneOffsets { base, offsets } = offsets_of(a, nodes)?;
            let base = base.as_int()?;
            let divided = |offset: &i64| {
                let value = i64::try_from(base.checked_add((*offset).into())?).ok()?;
                let value = match op {
                    BinOp::FloorDiv => floor_div(value.into(), divisor),
                    _ => floor_mod(value.into(), divisor),
                };
                i64::try_from(value).ok()
            };
            with(Expr::index(0), offsets.iter().map(divided).collect())
        }
        _ => None,
    }
}

fn constant(value: i128) -> Option<Expr> {
    Some(Expr::index(i64::try_from(value).ok()?))
}

/// Returns the constant that all lanes have.
fn all_lanes(expr: &Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Broadcast(value) => i64::try_from(value.as_int()?).ok(),
        _ => None,
    }
}

impl LaneOffsets {
    /// Returns the index of some of the lanes.
    pub fn part(&self, lanes: Range<usize>) -> Option<LaneOffsets> {
        let offsets = self.offsets.get(lanes)?.to_vec();
        Some(LaneOffsets { base: self.base.clone(), offsets })
    }

    /// Returns the offsets, if they fit into 32 bits.
    pub fn short(&self) -> Option<Vec<i32>> {
        self.offsets.iter().map(|offset| i32::try_from(*offset).ok()).collect()
    }

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
        // AVX2 loads other numbers of bytes by doublewords.
        let loads = length.is_power_of_two() || isa == SimdIsa::Avx512 || length % 4 == 0;
        if length <= isa.bytes().into() && loads {
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

    /// Returns the load of elements of `from` bytes into the low bytes of lanes of `to` bytes, with
    /// zeros above, or, if `high`, into the high bytes.
    pub fn widened_load(
        &self,
        from: u64,
        to: u64,
        high: bool,
        isa: SimdIsa,
    ) -> Option<WidenedLoad> {
        let (first, stride) = match self.load(from, isa)? {
            OffsetLoad::EveryNth { first, stride, .. } => (first, stride),
            OffsetLoad::EverySecond { first, .. } => (first, 2),
            _ => return None,
        };
        let lanes = self.offsets.len() as u64;
        let in_group = GROUP_BYTES as u64 / to;
        if lanes * to > isa.bytes().into() || in_group < 2 {
            return None;
        }
        let count = (lanes - 1) * stride + 1;
        let span = count * from;
        let all_groups = || (0..lanes.div_ceil(in_group)).map(|group| group * in_group);
        let groups = all_groups().count();
        let whole = groups > 2 && isa == SimdIsa::Avx512 && span <= isa.bytes().into();
        let starts: Vec<u64> = all_groups()
            .map(|lane| match whole {
                // A group begins with a doubleword.
                true => Some(lane * stride * from / 4 * 4),
                false => Some((lane * stride * from).min(span.checked_sub(GROUP_BYTES as u64)?)),
            })
            .collect::<Option<_>>()?;
        let place = |at: u64| {
            let (lane, byte) = (at / to, at % to);
            let byte = if high { byte.checked_sub(to - from) } else { Some(byte) };
            let byte = byte.filter(|byte| lane < lanes && *byte < from);
            byte.map(|byte| lane * stride * from + byte - starts[(lane / in_group) as usize])
        };
        let places: Vec<Option<u64>> = (0..groups as u64 * GROUP_BYTES as u64).map(place).collect();
        if places.iter().flatten().any(|place| *place >= GROUP_BYTES as u64) {
            return None;
        }
        const NONE: u8 = 0x80;
        let bytes = places.iter().map(|place| place.map_or(NONE, |place| place as u8)).collect();
        let words =
            starts.iter().flat_map(|start| (0..4).map(move |word| (start / 4 + word) as u32));
        let words: Vec<u32> = words.collect();
        let moves = whole && (0..).zip(&words).any(|(at, from)| at != *from);
        let shuffle = Shuffle { doublewords: moves.then_some(words), bytes: Some(bytes) };
        Some(WidenedLoad { first, groups: (!whole).then_some(starts), count, shuffle })
    }

    /// Returns the load of elements that are a few vectors apart, such as every second or third
    /// one.
    fn vectors(&self, bytes: u64, isa: SimdIsa, (first, last): (i64, i64)) -> Option<OffsetLoad> {
        let lanes = self.offsets.len() as i64;
        let span = i128::from(last) - i128::from(first) + 1;
        let length = self.offsets.len() as u64 * bytes;
        let second = last - (lanes - 1);
        if bytes < 4 {
            let stride = self.stride()?;
            if stride == 2 && [16, 32, 64].contains(&length) {
                return Some(OffsetLoad::EverySecond { first, second });
            }
            let loads = (2..=MAX_SHUFFLED_STRIDE).contains(&stride);
            let loads = loads.then(|| every_nth(length, span as u64 * bytes, stride as u64))??;
            return Some(OffsetLoad::EveryNth { first, stride: stride as u64, loads });
        }
        // `vpermd` has no form for 16 bytes.
        let has_form = match isa {
            SimdIsa::Avx512 => length >= 16,
            SimdIsa::Avx2 => length > 16,
        };
        if has_form && let Some(rows) = self.rows(bytes) {
            return Some(rows);
        }
        let span = i64::try_from(span).ok()?;
        let count = (span + lanes - 1) / lanes;
        if !has_form || !(1..=MAX_VECTORS).contains(&count) || span < lanes {
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
            OffsetLoad::Vectors { starts, each: lanes as u32, doublewords }
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
    fn rows(&self, bytes: u64) -> Option<OffsetLoad> {
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
        let each = rows[0].end - rows[0].start;
        let even = rows.iter().all(|row| row.end - row.start == each);
        if !(2..=MAX_VECTORS as usize).contains(&rows.len())
            || !even
            || !(2..lanes).contains(&each)
            || !(each as u64 * bytes).is_power_of_two()
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
        let starts = rows.iter().map(|row| row.start).collect();
        Some(OffsetLoad::Vectors { starts, each: each as u32, doublewords })
    }

    /// The distance of all neighbouring lanes, if it is the same.
    fn stride(&self) -> Option<i64> {
        let mut distances = self.offsets.windows(2).map(|pair| pair[1].checked_sub(pair[0]));
        let first = distances.next()??;
        distances.all(|distance| distance == Some(first)).then_some(first)
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

/// Returns the loads of [`OffsetLoad::EveryNth`] for a result of `length` bytes. The elements with
/// what is between them have `span` bytes; `None` if these are fewer than those of a load.
fn every_nth(length: u64, span: u64, stride: u64) -> Option<Vec<Vec<u64>>> {
    let group = GROUP_BYTES as u64;
    // The last load ends with the last element.
    let last = span.checked_sub(group)?;
    let count = span.min(stride * group).div_ceil(group);
    let load = |number: u64| {
        let starts = (0..length.div_ceil(group)).map(|at| (at * stride + number) * group);
        starts.map(|start| start.min(last)).collect()
    };
    Some((0..count).map(load).collect())
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

impl Shuffle {
    /// Returns the shuffle that moves these elements of a register into the lanes of another;
    /// `None` if a group of 16 bytes needs bytes that are further apart.
    fn of(elements: &[usize], bytes: usize) -> Option<Shuffle> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Type, Var};

    fn ramp(base: i64, stride: i64, lanes: u32) -> Expr {
        let ty = Type { dtype: DType::Index, lanes };
        Expr::new(ty, ExprKind::Ramp(Expr::index(base), Expr::index(stride)))
    }

    fn all(value: Expr, lanes: u32) -> Expr {
        Expr::new(Type { dtype: DType::Index, lanes }, ExprKind::Broadcast(value))
    }

    fn offsets(index: &Expr) -> Vec<i64> {
        lane_offsets(index).expect("constants").offsets
    }

    #[test]
    fn quotients_and_remainders_are_floored() {
        let by = |op, base, c| offsets(&Expr::binary(op, ramp(base, 2, 4), all(Expr::index(c), 4)));
        assert_eq!(by(BinOp::FloorDiv, -3, 2), [-2, -1, 0, 1]);
        assert_eq!(by(BinOp::FloorMod, -3, 4), [1, 3, 1, 3]);
        assert_eq!(by(BinOp::FloorDiv, i64::MIN, i64::MAX), [-2, -1, -1, -1]);
    }

    #[test]
    fn overflowing_and_varying_indices_have_no_offsets() {
        let over = Expr::binary(BinOp::FloorMod, ramp(i64::MAX - 2, 1, 4), all(Expr::index(7), 4));
        assert!(lane_offsets(&over).is_none());
        let by_zero = Expr::binary(BinOp::FloorDiv, ramp(0, 1, 4), all(Expr::index(0), 4));
        assert!(lane_offsets(&by_zero).is_none());
        let var = all(Expr::var(&Var::index("i")), 4);
        let unknown = Expr::binary(BinOp::FloorDiv, var, all(Expr::index(2), 4));
        assert!(lane_offsets(&unknown).is_none());
    }

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
        let two = OffsetLoad::Vectors { starts: vec![0, 7], each: 8, doublewords };
        assert_eq!(load(&even, 4, Avx2), Some(two));
        assert_eq!(blend_lanes(&[0, 2, 4, 6, 9, 11, 13, 15]), Some(vec![0x55, 0xaa]));
        assert_eq!(blend_lanes(&[0, 2, 4, 6, 8, 10, 12, 14]), None);
        let Some(OffsetLoad::Vectors { starts, doublewords, .. }) = load(&even[..4], 8, Avx2)
        else {
            panic!("two vectors");
        };
        assert_eq!(starts, [0, 3]);
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
        assert_eq!(load(&turns(&rows, 24), 1, Avx2), None);
        assert_eq!(load(&turns(&rows, 16), 2, Avx2), None);
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
        let one =
            OffsetLoad::EveryNth { first: 1, stride: 3, loads: vec![vec![0], vec![16], vec![30]] };
        assert_eq!(load(&third[..16], 1, Avx2), Some(one));
        let Some(OffsetLoad::EveryNth { loads, .. }) = load(&third, 1, Avx2) else {
            panic!("loads and shuffles");
        };
        assert_eq!(loads, [[0, 48], [16, 64], [32, 78]]);
        // Fewer lanes, down to those in 16 bytes.
        let Some(OffsetLoad::EveryNth { loads, .. }) = load(&third[..18], 1, Avx512) else {
            panic!("loads and shuffles");
        };
        assert_eq!(loads, [[0, 36], [16, 36], [32, 36]]);
        assert!(matches!(load(&third[..6], 1, Avx2), Some(OffsetLoad::Shuffled { .. })));
        assert!(matches!(load(&third[..5], 1, Avx2), Some(OffsetLoad::Halves { .. })));
        assert_eq!(load(&[0, 2], 1, Avx2), None);
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
        let three = OffsetLoad::Vectors { starts: vec![0, 7, 14], each: 8, doublewords };
        assert_eq!(load(&third, 4, Avx2), Some(three));
        // Every fourth one, in reverse; every third one of four lanes has no such places.
        let fourth: Vec<i64> = (0..8).map(|lane| 28 - 4 * lane).collect();
        let Some(OffsetLoad::Vectors { starts, doublewords, .. }) = load(&fourth, 4, Avx2) else {
            panic!("four vectors");
        };
        assert_eq!(starts, [0, 7, 14, 21]);
        assert_eq!(blend_lanes(&doublewords), Some(vec![0x11, 0x22, 0x44, 0x88]));
        let Some(OffsetLoad::Vectors { starts, doublewords, .. }) = load(&third[..4], 8, Avx2)
        else {
            panic!("three vectors");
        };
        assert_eq!(starts, [0, 4, 6]);
        assert_eq!(blend_lanes(&doublewords), None);
        let fifth: Vec<i64> = (0..8).map(|lane| 5 * lane).collect();
        assert_eq!(load(&fifth, 4, Avx2), None);
        // Elements of two rows in turns.
        let turns: Vec<i64> = (0..8).map(|lane| lane / 2 + lane % 2 * 100 + 3).collect();
        let doublewords = vec![0, 8, 1, 9, 2, 10, 3, 11];
        let rows = OffsetLoad::Vectors { starts: vec![3, 103], each: 4, doublewords };
        assert_eq!(load(&turns, 4, Avx2), Some(rows));
        let extremes = [i64::MIN, i64::MAX, 0, 1, i64::MIN, i64::MAX, 0, 1];
        assert_eq!(load(&extremes, 4, Avx2), None);
        // Seven bytes are no doublewords, but two that overlap.
        let bytes: Vec<i64> = (0..7).chain(0..7).collect();
        assert!(matches!(load(&bytes, 1, Avx2), Some(OffsetLoad::Halves { half: 4, .. })));
        assert!(matches!(load(&bytes, 1, Avx512), Some(OffsetLoad::Shuffled { .. })));
    }
}

//! Indices whose lanes are a scalar plus constants: loads of their elements, their values, and
//! their divisions by constants.

use super::inst::{Access, AccessKind, Arg, Inst, Width};
use super::memory::masked_move;
use super::nest::{Selector, Val};
use super::table::VOp;
use super::value::width_of;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Type};
use crate::simd_ops::{
    Conversion, LaneOffsets, MaskedOffsets, OffsetLoad, PartLoad, Run, Shuffle, Span, blend_lanes,
    conversion, has_masked_move, lane_offsets,
};
use iced_x86::Code::*;
use regalloc2::VReg;

impl Selector<'_> {
    /// The lanes of a load under a constant mask at constant distances, the others 0; `None` if an
    /// instruction with a mask is better or needed.
    pub(super) fn load_masked_offsets(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        mask: &Expr,
    ) -> Option<VReg> {
        let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
        let bytes = ty.dtype.bytes();
        let masked = MaskedOffsets::of(index, mask)?;
        if has_masked_move(index, bytes, self.b.isa) {
            return None;
        }
        let Some(constant) = masked.part(0..ty.lanes as usize) else { return Some(self.b.zero()) };
        constant.load(bytes, self.b.isa)?;
        let value = self.load_offsets(buffer, &constant, ty);
        let of_lane =
            |active: &bool| std::iter::repeat_n(if *active { 0xff } else { 0 }, bytes as usize);
        let on = self.constant_lanes(masked.active().iter().flat_map(of_lane).collect());
        Some(self.b.op2(VOp::And, width_of(ty), value, on))
    }

    /// The lanes of [`AccessForm::Offsets`](crate::simd_ops::AccessForm::Offsets).
    pub(super) fn load_offsets(
        &mut self,
        buffer: &Buffer,
        constant: &LaneOffsets,
        ty: Type,
    ) -> VReg {
        let bytes = ty.dtype.bytes();
        let at = |offset: i64| Expr::add(constant.base.clone(), Expr::index(offset));
        match constant.load(bytes, self.b.isa) {
            Some(OffsetLoad::OneElement) => {
                let mem = self.address(buffer, &at(constant.offsets[0]));
                self.read(buffer, mem, bytes, true, width_of(ty))
            }
            Some(OffsetLoad::Shuffled { first, count, shuffle }) => {
                let mem = self.address(buffer, &at(first));
                let length = count * bytes;
                let value = self.read(buffer, mem, length, false, Width::of(length));
                self.shuffle(value, length, &shuffle)
            }
            Some(OffsetLoad::Halves { first, second, half, shuffle }) => {
                let halves = [first, second].map(|offset| {
                    let mem = self.address(buffer, &at(offset));
                    self.read(buffer, mem, half, false, Width::X)
                });
                let joined = self.join_halves(halves, half);
                self.shuffle(joined, 2 * half, &shuffle)
            }
            Some(OffsetLoad::Runs(runs)) => {
                let parts = runs.into_iter().map(|run| {
                    let first = at(run.offset.wrapping_sub(run.lane.into()));
                    self.load_run(buffer, &first, run, ty)
                });
                let parts: Vec<VReg> = parts.collect();
                let or = |a, b| self.b.op2(VOp::Or, width_of(ty), a, b);
                parts.into_iter().reduce(or).expect("a run")
            }
            Some(OffsetLoad::Vectors { vectors, doublewords }) => {
                let vector = |Span { start, count }: Span| {
                    self.load_vector(buffer, &at(start), Type { lanes: count, ..ty })
                };
                let vectors: Vec<VReg> = vectors.into_iter().map(vector).collect();
                self.of_vectors(&vectors, &doublewords)
            }
            Some(OffsetLoad::Interleaved { rows }) => {
                let rows: Vec<Expr> = rows.into_iter().map(at).collect();
                self.interleaved(buffer, &rows, ty)
            }
            Some(OffsetLoad::EverySecond { first, second }) => {
                let low = self.load_vector(buffer, &at(first), ty);
                let high = self.load_vector(buffer, &at(second), ty);
                let key = (low, high, vec![bytes as u32]);
                self.shuffled(key, |selector| selector.every_second(low, high, ty))
            }
            Some(OffsetLoad::Joined(parts)) => {
                let parts =
                    parts.iter().map(|part| self.load_windows(buffer, &constant.base, part));
                let parts = parts.collect();
                self.join_lanes(parts, width_of(ty))
            }
            None => crate::bug!("no load for the offsets of `{}`", buffer.name),
        }
    }

    /// The first bytes of two registers, one behind the other.
    fn join_halves(&mut self, [low, high]: [VReg; 2], half: u64) -> VReg {
        let op = if half == 4 { VOp::UnpckLDq } else { VOp::UnpckLQdq };
        self.b.op2(op, Width::X, low, high)
    }

    /// Elements of rows in turns, which begin at these indices.
    fn interleaved(&mut self, buffer: &Buffer, rows: &[Expr], ty: Type) -> VReg {
        let each = Type { lanes: ty.lanes / rows.len() as u32, ..ty };
        let rows = rows.iter().map(|first| self.load_vector(buffer, first, each)).collect();
        self.in_turns(rows, ty)
    }

    /// The elements of rows in turns: each row is widened to doublewords and shifted to its place
    /// in them.
    pub(super) fn in_turns(&mut self, rows: Vec<VReg>, ty: Type) -> VReg {
        let bytes = ty.dtype.bytes();
        let wide = Type { dtype: DType::Uint32, lanes: ty.lanes / rows.len() as u32 };
        let code = self.extension(bytes, wide.dtype.bytes(), false, width_of(wide));
        let mut parts = Vec::new();
        for (number, row) in (0..).zip(rows) {
            let row = self.b.make(code, &[Arg::Use(row)]);
            parts.push(self.shift_const(BinOp::Shl, wide, row, 8 * bytes as u32 * number));
        }
        let or = |a, b| self.b.op2(VOp::Or, width_of(ty), a, b);
        parts.into_iter().reduce(or).expect("there are rows")
    }

    /// Consecutive elements, as many as a type has lanes.
    fn load_vector(&mut self, buffer: &Buffer, first: &Expr, ty: Type) -> VReg {
        let length = u64::from(ty.lanes) * ty.dtype.bytes();
        let mem = self.address(buffer, first);
        self.read(buffer, mem, length, false, Width::of(length))
    }

    /// The lanes of a run; the others are 0 and not read. `first` is the index that lane 0 had.
    fn load_run(&mut self, buffer: &Buffer, first: &Expr, run: Run, ty: Type) -> VReg {
        let (bytes, width) = (ty.dtype.bytes(), width_of(ty));
        let mem = self.address(buffer, first);
        let access = Some(Access { buffer: self.number(buffer), kind: AccessKind::Read });
        let lanes = run.lane..run.lane + run.lanes;
        let to = self.b.vec();
        let inst = if self.b.is_evex() {
            let bits = lanes.fold(0u64, |bits, lane| bits | 1 << lane);
            let bits = self.b.imm(bits as i64);
            let mask = self.b.make_mask(VEX_Kmovq_kr_r64, &[Arg::Use(bits)]);
            let code = self.moved(bytes, width, false);
            let mut inst = Inst::new(code, vec![Arg::Def(to), Arg::Mem(mem)]);
            inst.mask = Some((mask, true));
            inst
        } else {
            let all = (0..ty.lanes).flat_map(|lane| {
                let byte = if lanes.contains(&lane) { 0xff } else { 0 };
                std::iter::repeat_n(byte, bytes as usize)
            });
            let mask = self.constant_lanes(all.collect());
            let code = masked_move(bytes, width, false);
            Inst::new(code, vec![Arg::Def(to), Arg::Use(mask), Arg::Mem(mem)])
        };
        self.b.push(Inst { access, ..inst });
        to
    }

    /// A shuffle of a register of which the first `length` bytes are used.
    fn shuffle(&mut self, value: VReg, length: u64, shuffle: &Shuffle) -> VReg {
        let words = shuffle.doublewords.iter().flatten().copied();
        let bytes = shuffle.bytes.iter().flatten().map(|byte| u32::from(*byte));
        // No doubleword has the number that separates the two lists.
        let key = words.chain([u32::MAX]).chain(bytes).collect();
        self.shuffled((value, value, key), |selector| selector.shuffle_anew(value, length, shuffle))
    }

    /// Returns the shuffle that `make` emits, or the same one that was emitted before: rows of a
    /// tile share their elements.
    fn shuffled(
        &mut self,
        key: (VReg, VReg, Vec<u32>),
        make: impl FnOnce(&mut Self) -> VReg,
    ) -> VReg {
        if let Some(known) = self.scopes.iter().rev().find_map(|scope| scope.shuffles.get(&key)) {
            return *known;
        }
        let value = make(self);
        self.scopes.last_mut().expect("a scope").shuffles.insert(key, value);
        value
    }

    fn shuffle_anew(&mut self, value: VReg, length: u64, shuffle: &Shuffle) -> VReg {
        let mut value = value;
        if let Some(from) = &shuffle.doublewords {
            // `vpermd` has no form for 16 bytes.
            let used = length.max(from.len() as u64 * 4).max(32);
            let mut from: Vec<u8> = from.iter().flat_map(|word| word.to_le_bytes()).collect();
            from.resize(used.next_power_of_two() as usize, 0);
            let width = Width::of(from.len() as u64);
            let from = self.constant_bytes(from);
            value = self.b.op2(VOp::PermD, width, from, value);
        }
        if let Some(from) = &shuffle.bytes {
            let from = self.constant_lanes(from.clone());
            let width = Width::of(shuffle.bytes.iter().map(|from| from.len() as u64).sum());
            value = self.b.op2(VOp::ShufB, width, value, from);
        }
        value
    }

    /// The doublewords of registers at these places: those of the first two, then with those of
    /// the third one, and so on.
    fn of_vectors(&mut self, vectors: &[VReg], places: &[u32]) -> VReg {
        let count = places.len() as u32;
        if !self.b.is_evex()
            && let Some(lanes) = blend_lanes(places)
        {
            return self.of_blended(vectors, places, &lanes);
        }
        let mut all = vectors[0];
        for (number, vector) in (1..).zip(&vectors[1..]) {
            // Lanes of later vectors keep what is there.
            let place = |(lane, place): (u32, &u32)| match place / count {
                from if from == number => count + place % count,
                0 if number == 1 => *place,
                _ => lane,
            };
            let places: Vec<u32> = (0..).zip(places).map(place).collect();
            all = self.of_both(all, *vector, &places);
        }
        all
    }

    /// The same by one permutation, of registers whose doublewords are at different places: `lanes`
    /// are those of each one, as bits.
    fn of_blended(&mut self, vectors: &[VReg], places: &[u32], lanes: &[u32]) -> VReg {
        let count = places.len() as u32;
        let width = Width::of(u64::from(count) * 4);
        let mut all = vectors[0];
        for (vector, bits) in vectors.iter().zip(lanes).skip(1) {
            let blend =
                |selector: &mut Self| selector.b.blend_doublewords(width, all, *vector, *bits);
            all = self.shuffled((all, *vector, vec![u32::MAX, *bits]), blend);
        }
        let doublewords = places.iter().map(|place| place % count).collect();
        let shuffle = Shuffle { doublewords: Some(doublewords), bytes: None };
        self.shuffle(all, width.bytes(), &shuffle)
    }

    /// The doublewords of two registers at these places.
    fn of_both(&mut self, low: VReg, high: VReg, places: &[u32]) -> VReg {
        let make = |selector: &mut Self| selector.of_both_anew(low, high, places);
        self.shuffled((low, high, places.to_vec()), make)
    }

    fn of_both_anew(&mut self, low: VReg, high: VReg, places: &[u32]) -> VReg {
        let bytes = |places: &mut dyn Iterator<Item = u32>| -> Vec<u8> {
            places.flat_map(u32::to_le_bytes).collect()
        };
        let count = places.len() as u32;
        let width = Width::of(u64::from(count) * 4);
        if self.b.is_evex() {
            // The instruction counts the doublewords of whole registers.
            let unused = width.bytes() as u32 / 4 - count;
            let place = |place: &u32| if *place < count { *place } else { place + unused };
            let from = self.constant_lanes(bytes(&mut places.iter().map(place)));
            return self.b.accumulate(VOp::PermT2D, width, from, high, low);
        }
        // Places of the other register are taken modulo the number of doublewords, and not used.
        let unused = (count..width.bytes() as u32 / 4).map(|_| 0);
        let places_in_one = places.iter().map(|place| place % count);
        let from = self.constant_bytes(bytes(&mut places_in_one.chain(unused)));
        let stays = (0..).zip(places).all(|(lane, place)| *place == lane || *place >= count);
        let low = if stays { low } else { self.b.op2(VOp::PermD, width, from, low) };
        let high = self.b.op2(VOp::PermD, width, from, high);
        let of_high = (0..).zip(places).filter(|(_, place)| **place >= count);
        let of_high = of_high.fold(0, |bits, (lane, _)| bits | 1 << lane);
        self.b.blend_doublewords(width, low, high, of_high)
    }

    /// The elements at even places of `low`, then those at odd places of `high`, in lanes of one or
    /// two bytes: `vpshufb` picks them in each 16-byte group, `vpermd` joins the 8-byte halves.
    fn every_second(&mut self, low: VReg, high: VReg, ty: Type) -> VReg {
        let bytes = ty.dtype.bytes() as u8;
        let groups = ty.lanes as usize * usize::from(bytes) / 16;
        let width = width_of(ty);
        let mut take = |from: VReg, first: u8, half: u8| {
            let source = |to: u8| match to / 8 == half {
                true => (to % 8 / bytes * 2 + first) * bytes + to % bytes,
                false => 0x80,
            };
            let group: Vec<u8> = (0..16).map(source).collect();
            let places = self.constant_bytes(group.repeat(groups));
            self.b.op2(VOp::ShufB, width, from, places)
        };
        let (low, high) = (take(low, 0, 0), take(high, 1, 1));
        let both = self.b.op2(VOp::Or, width, low, high);
        if groups == 1 {
            return both;
        }
        let halves = (0..groups as u32).map(|group| 2 * group);
        let halves = halves.clone().chain(halves.map(|half| half + 1));
        let doublewords = halves.flat_map(|half| [2 * half, 2 * half + 1]);
        let places = self.constant_bytes(doublewords.flat_map(u32::to_le_bytes).collect());
        self.b.op2(VOp::PermD, width, places, both)
    }

    /// The lanes of a part, the others 0. `base` is what is added to all offsets.
    fn load_windows(&mut self, buffer: &Buffer, base: &Expr, part: &PartLoad) -> VReg {
        let PartLoad { first, groups, count, shuffle } = part;
        let at = |offset: i64| Expr::add(base.clone(), Expr::index(first + offset));
        let (value, length) = match groups {
            Some(starts) => (self.load_groups(buffer, &at, starts), starts.len() as u64 * 16),
            None => {
                let length = count * buffer.dtype.bytes();
                let mem = self.address(buffer, &at(0));
                (self.read(buffer, mem, length, false, Width::of(length)), length)
            }
        };
        self.shuffle(value, length, shuffle)
    }

    /// Vectors joined by `vpor`, in a tree of few levels.
    fn join_lanes(&mut self, mut parts: Vec<VReg>, width: Width) -> VReg {
        while parts.len() > 1 {
            let pairs = parts.chunks(2);
            parts = pairs
                .map(|pair| match *pair {
                    [a, b] => self.b.op2(VOp::Or, width, a, b),
                    _ => pair[0],
                })
                .collect();
        }
        parts[0]
    }

    /// Loads of 16 bytes in one register. They begin this many bytes behind the first element.
    fn load_groups(&mut self, buffer: &Buffer, at: &dyn Fn(i64) -> Expr, starts: &[u64]) -> VReg {
        let group = |start: &u64| {
            let mem = self.address(buffer, &at((start / buffer.dtype.bytes()) as i64));
            self.read(buffer, mem, 16, false, Width::X)
        };
        let groups = starts.iter().map(group).collect();
        self.join(groups)
    }

    /// A conversion of a vector of strided elements to longer integers or floats, whose shuffle
    /// leaves room for the longer lanes; `None` if no [`PartLoad`] has all lanes.
    pub(super) fn widened_load(&mut self, a: &Expr, to: DType) -> Option<VReg> {
        let ExprKind::Load { buffer, indices, mask: None } = &a.kind else { return None };
        let from = a.ty.dtype;
        if from.is_float() || from == DType::Bool || self.registers.contains_key(buffer) {
            return None;
        }
        let between = match conversion(from, to, self.b.isa)? {
            Conversion::Direct if to.is_int() => to,
            Conversion::Via(between) if between.is_int() => between,
            // A float32 between is exact.
            Conversion::Via(_) => DType::Int32,
            _ => return None,
        };
        // AVX2 has no arithmetic shift of quadwords.
        let (bytes, signed) = (between.bytes(), from.is_signed());
        if bytes <= from.bytes() || signed && bytes > 4 {
            return None;
        }
        let constant = lane_offsets(&indices[0])?;
        let load = constant.widened_load(from.bytes(), bytes, signed, self.b.isa)?;
        let mut value = self.load_windows(buffer, &constant.base, &load);
        let ty = Type { dtype: between, lanes: a.ty.lanes };
        if signed {
            let unused = (bytes - from.bytes()) as u32 * 8;
            let dtype = if bytes == 2 { DType::Int16 } else { DType::Int32 };
            let signed = Type { dtype, lanes: ty.lanes };
            value = self.shift_const(BinOp::Shr, signed, value, unused);
        }
        Some(self.convert(Val::Vec(value), ty, to))
    }

    /// A constant vector in the lanes of a register, padded with zeros.
    pub(super) fn constant_lanes(&mut self, mut bytes: Vec<u8>) -> VReg {
        bytes.resize(Width::of(bytes.len() as u64).bytes() as usize, 0);
        self.constant_bytes(bytes)
    }

    /// `a // divisor` or `a % divisor` of a scalar plus constants. The scalar is divided by itself.
    /// Its remainder plus the constants is at least 0 and below 2^31 =: N, so that a product with
    /// `m = N * 2^l // divisor + 1`, where `2^l` is the least power of two above the divisor, gives
    /// the quotient (Granlund and Montgomery, "Division by invariant integers using
    /// multiplication", theorem 4.2). `None` if a lane might wrap or the numbers are too large.
    pub(super) fn divide_offsets(
        &mut self,
        op: BinOp,
        a: &Expr,
        divisor: i128,
        ty: Type,
    ) -> Option<VReg> {
        const LIMIT: i128 = 1 << 31;
        let LaneOffsets { base, offsets } = lane_offsets(a)?;
        let (first, last) = (*offsets.iter().min()?, *offsets.iter().max()?);
        let span = i128::from(last) - i128::from(first);
        let usual = (2..LIMIT).contains(&divisor) && divisor & (divisor - 1) != 0;
        let small = first.unsigned_abs() < 1 << 60 && span + divisor <= LIMIT;
        if !usual || !small || !self.is_moderate(&base) {
            return None;
        }
        let base = Expr::add(base, Expr::index(first));
        let width = width_of(ty);
        let quotient = self.divide(&base, divisor as i64, true);
        let product = self.b.mul_imm(quotient, divisor as i64);
        let start = self.index_value(&base);
        let rest = self.b.sub(start, product);
        let rest = self.of_gpr(rest);
        let rest = self.splat(rest, 8, width);
        let offsets = offsets.iter().flat_map(|offset| (offset - first).to_le_bytes());
        let offsets = self.constant_lanes(offsets.collect());
        let dividend = self.b.op2(VOp::AddQ, width, rest, offsets);
        let log = (divisor as u64).next_power_of_two().trailing_zeros();
        let inverse = (LIMIT << log) / divisor + 1;
        let inverse = self.constant(inverse as u64, 8, width);
        let scaled = self.b.op2(VOp::MulUdq, width, dividend, inverse);
        let shift = self.constant(31 + u64::from(log), 8, width);
        let short = self.b.op2(VOp::SrlvQ, width, scaled, shift);
        if op == BinOp::FloorMod {
            let divisor = self.constant(divisor as u64, 8, width);
            let product = self.b.op2(VOp::MulUdq, width, short, divisor);
            return Some(self.b.op2(VOp::SubQ, width, dividend, product));
        }
        let quotient = self.of_gpr(quotient);
        let quotient = self.splat(quotient, 8, width);
        Some(self.b.op2(VOp::AddQ, width, quotient, short))
    }

    /// The lanes of an index in an integer type: the sum modulo its size.
    pub(super) fn narrowed(&mut self, constant: &LaneOffsets, dtype: DType) -> VReg {
        let bytes = dtype.bytes();
        let lane = |offset: i64| offset.to_le_bytes().into_iter().take(bytes as usize);
        let known = constant.base.as_int().map(|base| base as i64);
        let offsets = constant.offsets.iter();
        let all = offsets.flat_map(|offset| lane(offset.wrapping_add(known.unwrap_or(0))));
        let offsets = self.constant_lanes(all.collect());
        if known.is_some() {
            return offsets;
        }
        let width = Width::of(bytes * constant.offsets.len() as u64);
        let base = self.index_value(&constant.base);
        let base = self.of_gpr(base);
        let base = self.splat(base, bytes, width);
        self.b.op2(super::value::add_of(bytes), width, base, offsets)
    }
}

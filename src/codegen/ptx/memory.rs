//! Loads and stores: registers for buffers that live in them, vector instructions if the access is
//! aligned, else single elements.

use super::address::Term;
use super::emit::{Base, Emitter, Memory, Place, Val, memory_type, ty_of, view};
use super::speculate::{COPY_BUDGET, SPECULATION_BUDGET};
use crate::ir::async_copy::{elements_at_once, loaded_at_once};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Intrinsic};
use nvptx_builder::{Address, Cmp, Entry, Ld, Operand, Reg, Source, Space, St, Ty};

/// The addresses of the lanes of an access.
enum Lanes {
    /// The address of the first lane, and the bytes from one to the next.
    Strided(Address, i64),
    /// One address for each lane.
    Each(Vec<Address>),
}

impl Lanes {
    fn at(&self, lane: usize) -> Address {
        match self {
            Lanes::Strided(first, step) => first.clone().plus(step * lane as i64),
            Lanes::Each(all) => all[lane].clone(),
        }
    }
}

/// The key of a load's result: the buffer, its number of changes, the index and the lanes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Loaded {
    memory: u32,
    changes: (u32, u32),
    terms: Vec<Term>,
    constant: i128,
    lanes: u32,
    /// The predicate of the load; its value is 0 where that is false.
    guard: Option<Reg>,
}

impl Emitter<'_> {
    /// Loads all lanes.
    pub(super) fn load(&mut self, expr: &Expr) -> Vec<Val> {
        let ExprKind::Load { buffer, indices, mask } = &expr.kind else {
            crate::bug!("no load");
        };
        let index = flat(buffer, indices);
        let memory = match self.place(buffer) {
            Place::Registers(regs) => {
                let elements = constant_elements(buffer, index);
                return elements.map(|at| regs[at].operand()).collect();
            }
            Place::Memory(memory) => memory,
        };
        let key = self.loaded(&memory, index).filter(|_| mask.is_none());
        if let Some(values) = key.as_ref().and_then(|key| self.known_load(key)) {
            return values;
        }
        if memory.space == Space::Shared {
            self.wait_for_copies();
        }
        self.flush_for(&memory, index);
        let masks = mask.as_ref().map(|mask| self.lanes(mask));
        let (count, dtype) = (index.ty.lanes as usize, buffer.dtype);
        let lanes = self.locate(&memory, dtype, index);
        let chunk = match masks {
            None => self.chunk(buffer, &memory, index),
            Some(_) => 1,
        };
        let mut values = Vec::with_capacity(count);
        for lane in (0..count).step_by(chunk) {
            let mask = masks.as_ref().map(|masks| masks[lane].reg().expect("a predicate"));
            let guard = self.both(self.guard, mask);
            let regs = self.load_chunk(&memory, dtype, chunk, lanes.at(lane), guard);
            values.extend(regs.into_iter().map(|reg| self.loaded_value(dtype, reg)));
        }
        if let Some(key) = key {
            self.loads.insert(key, values.clone());
        }
        values
    }

    /// The values of an earlier load, under the same predicate or under none.
    fn known_load(&self, key: &Loaded) -> Option<Vec<Val>> {
        self.loads.get(key).or_else(|| self.loads.get(&Loaded { guard: None, ..key.clone() }))
    }

    /// The key of a load; `None` for a gather.
    fn loaded(&mut self, memory: &Memory, index: &Expr) -> Option<Loaded> {
        let (first, lanes) = match &index.kind {
            ExprKind::Ramp(base, stride) if stride.as_int() == Some(1) => (base, index.ty.lanes),
            _ if index.ty.is_scalar() => (index, 1),
            _ => return None,
        };
        let (terms, constant) = self.access_key(first)?;
        let changes = match memory.read_only {
            true => (0, 0),
            false => (self.changes.get(&memory.id).copied().unwrap_or(0), self.all_changes),
        };
        let guard = self.guard;
        Some(Loaded { memory: memory.id, changes, terms, constant, lanes, guard })
    }

    /// The key of a load of `count` matrices.
    pub(super) fn loaded_matrices(
        &mut self,
        memory: &Memory,
        index: &Expr,
        (count, transposed): (usize, bool),
    ) -> Option<Loaded> {
        // No vector has this many lanes.
        let lanes = (u32::MAX / 2) + 2 * count as u32 + u32::from(transposed);
        Some(Loaded { lanes, ..self.loaded(memory, index)? })
    }

    /// Emits `buffer[index] = value`.
    pub(super) fn store(
        &mut self,
        buffer: &Buffer,
        indices: &[Expr],
        value: &Expr,
        mask: Option<&Expr>,
    ) {
        let index = flat(buffer, indices);
        let memory = match self.place(buffer) {
            Place::Registers(regs) => {
                if mask.is_some() {
                    crate::bug!("a masked store to registers of `{}`", buffer.name);
                }
                let elements: Vec<usize> = constant_elements(buffer, index).collect();
                return match elements[..] {
                    [at] => self.compute_into(regs[at], value),
                    _ => {
                        let values = self.lanes(value);
                        let values: Vec<Val> =
                            values.into_iter().map(|value| self.copy_if_mutable(value)).collect();
                        for (at, value) in elements.into_iter().zip(values) {
                            self.e.to(regs[at]).mov(value);
                            self.note_move(regs[at], value);
                        }
                    }
                };
            }
            Place::Memory(memory) => memory,
        };
        if mask.is_none() && self.copy_async((buffer, &memory), index, value) {
            *self.changes.entry(memory.id).or_insert(0) += 1;
            return;
        }
        let delays = mask.is_none() && self.can_delay(&memory, value);
        if delays {
            self.speculation = COPY_BUDGET;
        }
        let values = self.lanes(value);
        self.speculation = SPECULATION_BUDGET;
        if memory.space == Space::Shared {
            self.wait_for_copies();
        }
        let masks = mask.map(|mask| self.lanes(mask));
        let (count, dtype) = (index.ty.lanes as usize, buffer.dtype);
        let lanes = self.locate(&memory, dtype, index);
        let chunk = match masks {
            None => self.chunk(buffer, &memory, index),
            Some(_) => 1,
        };
        let values: Vec<Val> = values.into_iter().map(|x| self.stored_value(dtype, x)).collect();
        *self.changes.entry(memory.id).or_insert(0) += 1;
        // Delayed stores keep their order, so those before this one need not be done.
        if delays && let Some(touched) = self.touched_elements(index) {
            let chunks = values.chunks(chunk).enumerate();
            let stores = chunks.map(|(at, values)| (lanes.at(at * chunk), values.to_vec()));
            return self.delay(&memory, touched, dtype, stores.collect());
        }
        self.flush_for(&memory, index);
        for lane in (0..count).step_by(chunk) {
            let mask = masks.as_ref().map(|masks| masks[lane].reg().expect("a predicate"));
            let guard = self.both(self.guard, mask);
            let values = &values[lane..lane + chunk];
            self.store_chunk(&memory, dtype, lanes.at(lane), values, guard);
        }
    }

    /// Computes an expression into a register, under the predicate if there is one.
    fn compute_into(&mut self, dst: Reg, value: &Expr) {
        let float = value.ty.dtype.is_float();
        match &value.kind {
            ExprKind::Call(Intrinsic::Fma, args) => {
                let args: Vec<Val> = args.iter().map(|arg| self.float_operand(arg)).collect();
                self.under_guard(|e| e.to(dst).fma(args[0], args[1], args[2]));
            }
            ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub | BinOp::Mul), a, b) if float => {
                let (x, y) = (self.float_operand(a), self.float_operand(b));
                self.under_guard(|e| match op {
                    BinOp::Add => e.to(dst).add(x, y),
                    BinOp::Sub => e.to(dst).sub(x, y),
                    _ => e.to(dst).mul(x, y),
                });
            }
            _ => {
                let value = self.expr(value);
                self.under_guard(|e| e.to(dst).mov(value));
                self.note_move(dst, value);
            }
        }
    }

    fn under_guard<R>(&mut self, emit: impl FnOnce(&mut Entry) -> R) {
        match self.guard {
            Some(guard) => self.e.when(guard, emit),
            None => emit(self.e),
        };
    }

    pub(super) fn place(&self, buffer: &Buffer) -> Place {
        match self.places.get(buffer) {
            Some(place) => place.clone(),
            None => crate::bug!("buffer `{}` is not visible here", buffer.name),
        }
    }

    fn locate(&mut self, memory: &Memory, dtype: DType, index: &Expr) -> Lanes {
        let bytes = dtype.bytes() as u32;
        if let (true, ExprKind::Ramp(base, stride)) = (memory.swizzled, &index.kind) {
            let lane = |at: u32| {
                let at = Expr::mul(stride.clone(), Expr::index(at.into()));
                self.address(memory, bytes, &Expr::add(base.clone(), at))
            };
            return Lanes::Each((0..index.ty.lanes).map(lane).collect());
        }
        match &index.kind {
            _ if index.ty.is_scalar() => Lanes::Strided(self.address(memory, bytes, index), 0),
            ExprKind::Ramp(base, stride) if stride.as_int().is_some() => {
                let step = stride.as_int().expect("it was looked at") as i64 * i64::from(bytes);
                Lanes::Strided(self.address(memory, bytes, base), step)
            }
            _ => {
                let indices = self.lanes(index);
                let each = |index| self.address_of_lane(memory, bytes, index);
                Lanes::Each(indices.into_iter().map(each).collect())
            }
        }
    }

    /// The lanes that one instruction accesses: the most that are provably aligned.
    pub(super) fn chunk(&mut self, buffer: &Buffer, memory: &Memory, index: &Expr) -> usize {
        self.chunk_of(buffer, memory, index, loaded_at_once(buffer.dtype))
    }

    /// [`Emitter::chunk`] for an instruction that accesses up to `most` elements.
    pub(super) fn chunk_of(
        &mut self,
        buffer: &Buffer,
        memory: &Memory,
        index: &Expr,
        most: u32,
    ) -> usize {
        let bytes = buffer.dtype.bytes() as u32;
        let chunk = elements_at_once(buffer.dtype, index, (most, memory.align), |base, n| {
            self.is_multiple(base, n)
        });
        if chunk > 1 {
            let wanted = self.alignments.entry(buffer.clone()).or_insert(1);
            *wanted = (*wanted).max(chunk * bytes);
            return chunk as usize;
        }
        let ExprKind::Ramp(base, stride) = &index.kind else { return 1 };
        if stride.as_int() != Some(1) {
            return 1;
        }
        let lanes = index.ty.lanes;
        if lanes.is_multiple_of(2) && bytes < memory.align && self.is_odd(base) {
            let is_noted = self.unaligned.iter().any(|(name, _)| *name == buffer.name);
            if !is_noted {
                self.unaligned.push((buffer.name.clone(), lanes));
            }
        }
        1
    }

    /// Loads consecutive elements, in their memory type.
    fn load_chunk(
        &mut self,
        memory: &Memory,
        dtype: DType,
        lanes: usize,
        address: Address,
        guard: Option<Reg>,
    ) -> Vec<Reg> {
        let how = Ld::from(memory.space);
        let how = if memory.read_only && memory.space == Space::Global { how.nc() } else { how };
        let packed = lanes == 8;
        let (mem, reg, count) = match packed {
            true => (Ty::B32, Ty::B32, 4),
            false => (memory_type(dtype), register_type(dtype), lanes),
        };
        let regs = match guard {
            None => self.e.ld_vec_extended(mem, reg, count, how, address),
            Some(guard) => {
                let zero = Operand::bits(reg, 0);
                let regs: Vec<Reg> = (0..count).map(|_| self.e.mov(zero)).collect();
                self.e.when(guard, |e| {
                    e.to_all(&regs).ld_vec_extended(mem, reg, count, how, address)
                });
                regs
            }
        };
        if !packed {
            return regs;
        }
        regs.into_iter().flat_map(|word| self.e.unpack_as(ty_of(dtype), word)).collect()
    }

    /// Stores consecutive elements.
    pub(super) fn store_chunk(
        &mut self,
        memory: &Memory,
        dtype: DType,
        address: Address,
        values: &[Val],
        guard: Option<Reg>,
    ) {
        let how = St::to(memory.space);
        let mut mem = memory_type(dtype);
        let mut values = values.to_vec();
        if values.len() == 8 {
            let halves: Vec<Reg> = values
                .iter()
                .map(|value| value.reg().unwrap_or_else(|| self.e.mov(*value)))
                .collect();
            let pairs = halves.chunks(2);
            values = pairs.map(|pair| self.e.pack_as(Ty::B32, pair).operand()).collect();
            mem = Ty::B32;
        }
        match guard {
            None => self.e.st_vec_truncated(mem, how, address, &values),
            Some(guard) => {
                self.e.when(guard, |e| e.st_vec_truncated(mem, how, address, &values));
            }
        }
    }

    /// Converts a loaded element to its register type.
    fn loaded_value(&mut self, dtype: DType, loaded: Reg) -> Val {
        match dtype {
            DType::Bool => {
                let zero = Operand::int(Ty::U32, 0);
                self.e.setp(Cmp::Ne, loaded.operand(), zero).erase().operand()
            }
            _ => loaded.operand(),
        }
    }

    /// Converts a value to its memory type.
    fn stored_value(&mut self, dtype: DType, value: Val) -> Val {
        match dtype {
            DType::Bool => {
                let pred = value.reg().and_then(|reg| reg.typed()).expect("a predicate");
                let (zero, one) = (Operand::int(Ty::U32, 0), Operand::int(Ty::U32, 1));
                self.e.selp(one, zero, pred).operand()
            }
            _ => view(value, ty_of(dtype)),
        }
    }

    /// The place of a tensor or a temporary in global memory.
    pub(super) fn global(&mut self, base: Base, read_only: bool, align: u32) -> Place {
        let id = self.memory_id();
        let (space, swizzled) = (Space::Global, false);
        Place::Memory(Memory { id, space, base, read_only, align, swizzled })
    }
}

/// The type of the register that an element is loaded into.
fn register_type(dtype: DType) -> Ty {
    if dtype == DType::Bool { Ty::U32 } else { ty_of(dtype) }
}

/// The single index of a flat access.
fn flat<'e>(buffer: &Buffer, indices: &'e [Expr]) -> &'e Expr {
    match indices {
        [index] => index,
        _ => crate::bug!("access to `{}` is not flat", buffer.name),
    }
}

/// The elements of an access to a buffer in registers.
fn constant_elements(buffer: &Buffer, index: &Expr) -> std::vec::IntoIter<usize> {
    match constant_lanes(index) {
        Some(lanes) => lanes.into_iter(),
        None => crate::bug!("an index of `{}` is not constant", buffer.name),
    }
}

/// The elements of an access whose index is constant.
pub(super) fn constant_lanes(index: &Expr) -> Option<Vec<usize>> {
    let (first, step) = match &index.kind {
        ExprKind::Ramp(base, stride) => (base.as_int()?, stride.as_int()?),
        _ if index.ty.is_scalar() => (index.as_int()?, 0),
        _ => return None,
    };
    let lanes = 0..i128::from(index.ty.lanes);
    lanes.map(|lane| usize::try_from(first + step * lane).ok()).collect()
}

//! Loads, stores and prefetches.

use super::inst::{Access, AccessKind, Arg, Cond, Inst, Mem, Width};
use super::mask::{constant_bits, first_lanes};
use super::nest::{LoadKey, Selector, Val};
use super::nontemporal::has_nontemporal;
use super::plan;
use super::table::VOp;
use crate::ir::visit::reads_buffer;
use crate::ir::{Buffer, DType, Expr, Type};
use crate::simd_ops::{AccessForm, TableLookup, VectorAccess, access_form, lane_offsets};
use crate::target::SimdIsa::{Avx2, Avx512};
use iced_x86::Code::{self, *};
use regalloc2::VReg;

impl Selector<'_> {
    /// The value of `buffer[index]`.
    pub(super) fn load(&mut self, buffer: &Buffer, index: &Expr, mask: Option<&Expr>) -> Val {
        let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
        if let Some(value) = self.load_part(buffer, index) {
            return Val::Vec(value);
        }
        if ty.lanes == 1 {
            let mem = self.address(buffer, index);
            if ty.dtype == DType::Bool {
                return Val::Gpr(self.load_bool(buffer, mem));
            }
            return Val::Vec(self.read(buffer, mem, ty.dtype.bytes(), true, Width::X));
        }
        if let Some(value) = mask.and_then(|mask| self.load_masked_offsets(buffer, index, mask)) {
            return match ty.dtype {
                DType::Bool => self.mask_of_bytes(value, ty.lanes),
                _ => Val::Vec(value),
            };
        }
        if mask.is_none()
            && let Some(table) = TableLookup::of(buffer, index)
            && table.pays(ty.lanes, self.b.isa)
        {
            return Val::Vec(self.look_up(buffer, &table, ty));
        }
        let bytes = ty.dtype.bytes() * u64::from(ty.lanes);
        let form = self.access_form(buffer, index, mask.is_some(), false);
        let value = match (form, mask) {
            (AccessForm::Move(base), _) => {
                let mem = self.address(buffer, base);
                self.read(buffer, mem, bytes, false, Width::of(bytes))
            }
            (AccessForm::MaskedMove(base), Some(mask)) => {
                let mem = self.address(buffer, base);
                match first_bytes(mask, ty.dtype.bytes()) {
                    Some(first) => self.read(buffer, mem, first, false, Width::of(bytes)),
                    None => {
                        let mask = self.value(mask);
                        self.masked_load(buffer, mem, ty, mask, false)
                    }
                }
            }
            (AccessForm::MaskedBroadcast(one), Some(mask)) => {
                let mask = self.value(mask);
                let mem = self.address(buffer, one);
                match self.b.isa {
                    Avx512 => self.masked_load(buffer, mem, ty, mask, true),
                    Avx2 => self.broadcast_if_any(buffer, mem, ty, mask),
                }
            }
            (AccessForm::OneElement(one), _) => {
                let mem = self.address(buffer, one);
                self.read(buffer, mem, ty.dtype.bytes(), true, Width::of(bytes))
            }
            (AccessForm::Offsets, _) => {
                let constant = lane_offsets(index).expect("a scalar plus constants");
                self.load_offsets(buffer, &constant, ty)
            }
            (AccessForm::Indexed, mask) => {
                let mask = mask.map(|mask| self.value(mask));
                self.gather(buffer, index, ty, mask)
            }
            (AccessForm::EachLane, _) => self.gather_lanes(buffer, index, ty),
            (form, None) => crate::bug!("a mask is expected for {form:?}"),
        };
        match ty.dtype {
            DType::Bool => self.mask_of_bytes(value, ty.lanes),
            _ => Val::Vec(value),
        }
    }

    /// The form of a vector access; the nest was outlined because it has one.
    pub(super) fn access_form<'e>(
        &self,
        buffer: &Buffer,
        index: &'e Expr,
        masked: bool,
        is_store: bool,
    ) -> AccessForm<'e> {
        let access = VectorAccess { bytes: buffer.dtype.bytes(), masked, is_store };
        match access_form(access, index, index.ty.lanes, self.b.isa) {
            Some(form) => form,
            None => crate::bug!("no instruction for {access:?} of `{}`", buffer.name),
        }
    }

    /// The part or tile column that an access reads of a buffer in registers; `None` if the buffer
    /// is in memory.
    fn load_part(&mut self, buffer: &Buffer, index: &Expr) -> Option<VReg> {
        let parts = self.registers.get(buffer)?;
        if let Some(column) = plan::tile_column(index) {
            return Some(self.tile_column(buffer, column));
        }
        if let Some(rows) = plan::rows_of_turns(index, buffer.dtype, self.b.isa) {
            let part = |first: &i64| parts[first].unwrap_or_else(|| self.b.zero());
            let rows: Vec<VReg> = rows.iter().map(part).collect();
            let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
            return Some(self.in_turns(rows, ty));
        }
        let first = plan::first_index(index).and_then(Expr::as_int).expect("constant") as i64;
        let of = parts.keys().copied().filter(|part| *part <= first).max();
        let part = of.expect("a part or lanes of one");
        match parts[&part] {
            Some(value) => {
                let (bytes, lanes) = (buffer.dtype.bytes(), u64::from(index.ty.lanes));
                Some(self.lanes(value, (first - part) as u64 * bytes, lanes * bytes))
            }
            // A part that was never written may have any value.
            None => Some(self.b.zero()),
        }
    }

    /// Loads a scalar `bool`; any byte but 0 is true.
    fn load_bool(&mut self, buffer: &Buffer, mem: Mem) -> VReg {
        let access = Access { buffer: self.number(buffer), kind: AccessKind::Read };
        let to = self.b.gpr();
        let mut inst = Inst::new(Movzx_r32_rm8, vec![Arg::Def(to), Arg::Mem(mem)]);
        inst.access = Some(access);
        self.b.push(inst);
        self.b.cmp_imm(to, 0);
        self.b.set(Cond::Ne)
    }

    /// The number of a buffer, for [`Access`].
    pub(super) fn number(&mut self, buffer: &Buffer) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(buffer.clone()).or_insert(next)
    }

    /// Reads `bytes` bytes from lane 0 on, or, if `broadcast`, one element of that length into all
    /// lanes. A value that was read before in the scope is reused.
    pub(super) fn read(
        &mut self,
        buffer: &Buffer,
        mem: Mem,
        bytes: u64,
        broadcast: bool,
        width: Width,
    ) -> VReg {
        let key = LoadKey { mem, bytes: bytes << 8 | width.bytes(), broadcast, mask: None };
        if let Some(value) = self.loaded(&key) {
            return value;
        }
        let buffer_number = self.number(buffer);
        let value = self.read_as(buffer_number, mem, bytes, broadcast, width);
        let scope = self.scopes.last_mut().expect("a scope");
        scope.loads.insert(key, (buffer.clone(), value));
        value
    }

    /// A value that was loaded before in the scope.
    fn loaded(&self, key: &LoadKey) -> Option<VReg> {
        self.scopes.iter().rev().find_map(|scope| Some(scope.loads.get(key)?.1))
    }

    /// Emits the load of [`Selector::read`].
    pub(super) fn read_as(
        &mut self,
        buffer: u32,
        mem: Mem,
        bytes: u64,
        broadcast: bool,
        width: Width,
    ) -> VReg {
        let to = self.b.vec();
        if !bytes.is_power_of_two() {
            let inst = self.partial(mem, to, bytes, false);
            self.b.push(Inst { access: Some(Access { buffer, kind: AccessKind::Read }), ..inst });
            return to;
        }
        let code = match broadcast {
            true => self.broadcast_load(bytes, width),
            false => self.plain_load(bytes),
        };
        let mut inst = Inst::new(code, vec![Arg::Def(to), Arg::Mem(mem)]);
        let kind = match broadcast {
            true => AccessKind::Broadcast(bytes as u8),
            false => AccessKind::Load(bytes as u8),
        };
        inst.access = Some(Access { buffer, kind });
        self.b.push(inst);
        to
    }

    fn plain_load(&self, bytes: u64) -> Code {
        match (bytes, self.b.isa) {
            (64, Avx512) => EVEX_Vmovups_zmm_k1z_zmmm512,
            (32, Avx512) => EVEX_Vmovups_ymm_k1z_ymmm256,
            (16, Avx512) => EVEX_Vmovups_xmm_k1z_xmmm128,
            (8, Avx512) => EVEX_Vmovq_xmm_xmmm64,
            (4, Avx512) => EVEX_Vmovd_xmm_rm32,
            (2, Avx512) => EVEX_Vpbroadcastw_xmm_k1z_xmmm16,
            (1, Avx512) => EVEX_Vpbroadcastb_xmm_k1z_xmmm8,
            (32, Avx2) => VEX_Vmovups_ymm_ymmm256,
            (16, Avx2) => VEX_Vmovups_xmm_xmmm128,
            (8, Avx2) => VEX_Vmovq_xmm_xmmm64,
            (4, Avx2) => VEX_Vmovd_xmm_rm32,
            (2, Avx2) => VEX_Vpbroadcastw_xmm_xmmm16,
            (1, Avx2) => VEX_Vpbroadcastb_xmm_xmmm8,
            _ => crate::bug!("a load of {bytes} bytes"),
        }
    }

    fn broadcast_load(&self, bytes: u64, width: Width) -> Code {
        match bytes {
            4 => self.b.form(
                width,
                [
                    VEX_Vbroadcastss_xmm_m32,
                    VEX_Vbroadcastss_ymm_m32,
                    EVEX_Vbroadcastss_xmm_k1z_xmmm32,
                    EVEX_Vbroadcastss_ymm_k1z_xmmm32,
                    EVEX_Vbroadcastss_zmm_k1z_xmmm32,
                ],
            ),
            16 => self.b.form(
                width,
                [
                    VEX_Vmovups_xmm_xmmm128,
                    VEX_Vbroadcasti128_ymm_m128,
                    EVEX_Vmovups_xmm_k1z_xmmm128,
                    EVEX_Vbroadcasti32x4_ymm_k1z_m128,
                    EVEX_Vbroadcasti32x4_zmm_k1z_m128,
                ],
            ),
            _ => self.broadcast_code(bytes, width),
        }
    }

    /// The broadcast of an element from lane 0 of a register or from memory.
    fn broadcast_code(&self, bytes: u64, width: Width) -> Code {
        let forms = match bytes {
            1 => [
                VEX_Vpbroadcastb_xmm_xmmm8,
                VEX_Vpbroadcastb_ymm_xmmm8,
                EVEX_Vpbroadcastb_xmm_k1z_xmmm8,
                EVEX_Vpbroadcastb_ymm_k1z_xmmm8,
                EVEX_Vpbroadcastb_zmm_k1z_xmmm8,
            ],
            2 => [
                VEX_Vpbroadcastw_xmm_xmmm16,
                VEX_Vpbroadcastw_ymm_xmmm16,
                EVEX_Vpbroadcastw_xmm_k1z_xmmm16,
                EVEX_Vpbroadcastw_ymm_k1z_xmmm16,
                EVEX_Vpbroadcastw_zmm_k1z_xmmm16,
            ],
            4 => [
                VEX_Vpbroadcastd_xmm_xmmm32,
                VEX_Vpbroadcastd_ymm_xmmm32,
                EVEX_Vpbroadcastd_xmm_k1z_xmmm32,
                EVEX_Vpbroadcastd_ymm_k1z_xmmm32,
                EVEX_Vpbroadcastd_zmm_k1z_xmmm32,
            ],
            _ => [
                VEX_Vpbroadcastq_xmm_xmmm64,
                VEX_Vpbroadcastq_ymm_xmmm64,
                EVEX_Vpbroadcastq_xmm_k1z_xmmm64,
                EVEX_Vpbroadcastq_ymm_k1z_xmmm64,
                EVEX_Vpbroadcastq_zmm_k1z_xmmm64,
            ],
        };
        self.b.form(width, forms)
    }

    /// Broadcasts lane 0.
    pub(super) fn splat(&mut self, value: VReg, bytes: u64, width: Width) -> VReg {
        let code = self.broadcast_code(bytes, width);
        self.b.make(code, &[Arg::Use(value)])
    }

    /// A constant with these bits in all lanes.
    pub(super) fn constant(&mut self, bits: u64, bytes: u64, width: Width) -> VReg {
        if bits == 0 {
            return self.b.zero();
        }
        for scope in self.scopes.iter().rev() {
            if let Some(value) = scope.constants.get(&(bits, bytes, width)) {
                return *value;
            }
        }
        let element = &bits.to_le_bytes()[..bytes as usize];
        if self.b.is_evex() && bytes >= 4 {
            let mem = self.b.pool(element.to_vec());
            return self.read_as(Access::CONSTANT, mem, bytes, true, width);
        }
        let all = element.repeat((width.bytes() / bytes) as usize);
        self.constant_bytes(all)
    }

    /// A constant vector.
    pub(super) fn constant_bytes(&mut self, bytes: Vec<u8>) -> VReg {
        let (len, mem) = (bytes.len() as u64, self.b.pool(bytes));
        if let Some(value) = self.scopes.last().and_then(|scope| scope.pool.get(&mem)) {
            return *value;
        }
        let value = self.read_as(Access::CONSTANT, mem, len, false, Width::of(len));
        self.scopes.last_mut().expect("a scope").pool.insert(mem, value);
        value
    }

    /// `0, step, 2 * step, …` in lanes of `bytes` bytes.
    pub(super) fn progression(&mut self, step: i64, bytes: u64, width: Width) -> VReg {
        let lanes = width.bytes() / bytes;
        let lane = |lane: u64| step.wrapping_mul(lane as i64).to_le_bytes();
        let all: Vec<u8> =
            (0..lanes).flat_map(|i| lane(i).into_iter().take(bytes as usize)).collect();
        self.constant_bytes(all)
    }

    /// Loads under a mask. Other lanes are 0 and not read. `broadcast`: all lanes read one element.
    fn masked_load(
        &mut self,
        buffer: &Buffer,
        mem: Mem,
        ty: Type,
        mask: Val,
        broadcast: bool,
    ) -> VReg {
        let bytes = ty.dtype.bytes();
        let width = Width::of(bytes * u64::from(ty.lanes));
        let access = Some(Access { buffer: self.number(buffer), kind: AccessKind::Read });
        let mask = self.memory_mask(mask, bytes, ty.lanes);
        let length = bytes << 8 | width.bytes();
        let key = LoadKey { mem, bytes: length, broadcast, mask: Some(mask) };
        if let Some(value) = self.loaded(&key) {
            return value;
        }
        let to = self.b.vec();
        let inst = if self.b.is_evex() {
            let code = match broadcast {
                true => self.broadcast_load(bytes, width),
                false => self.moved(bytes, width, false),
            };
            let mut inst = Inst::new(code, vec![Arg::Def(to), Arg::Mem(mem)]);
            inst.mask = Some((mask, true));
            inst
        } else {
            let code = masked_move(bytes, width, false);
            Inst::new(code, vec![Arg::Def(to), Arg::Use(mask), Arg::Mem(mem)])
        };
        self.b.push(Inst { access, ..inst });
        self.scopes.last_mut().expect("a scope").loads.insert(key, (buffer.clone(), to));
        to
    }

    /// One element in the lanes of an AVX2 mask. If the mask is empty, the load reads a zero after
    /// the code instead, because the element may not exist.
    fn broadcast_if_any(&mut self, buffer: &Buffer, mem: Mem, ty: Type, mask: Val) -> VReg {
        let bytes = ty.dtype.bytes();
        let width = Width::of(bytes * u64::from(ty.lanes));
        let mask = self.memory_mask(mask, bytes, ty.lanes);
        let nothing = self.b.pool(vec![0; bytes as usize]);
        let (there, nowhere) = (self.b.lea(mem), self.b.lea(nothing));
        let test = match width {
            Width::X => VEX_Vptest_xmm_xmmm128,
            _ => VEX_Vptest_ymm_ymmm256,
        };
        self.b.emit(test, vec![Arg::Use(mask), Arg::Use(mask)]);
        let at = self.b.cmov(Cond::E, nowhere, there);
        let to = self.b.vec();
        let code = self.broadcast_load(bytes, width);
        let mut inst = Inst::new(code, vec![Arg::Def(to), Arg::Mem(Mem::at(at))]);
        inst.access = Some(Access { buffer: self.number(buffer), kind: AccessKind::Read });
        self.b.push(inst);
        self.b.op2(VOp::And, width, to, mask)
    }

    /// The EVEX move with a mask for elements of `bytes` bytes.
    pub(super) fn moved(&self, bytes: u64, width: Width, to_memory: bool) -> Code {
        let place = |x, y, z| [INVALID, INVALID, x, y, z];
        let forms = match (bytes, to_memory) {
            (1, false) => place(
                EVEX_Vmovdqu8_xmm_k1z_xmmm128,
                EVEX_Vmovdqu8_ymm_k1z_ymmm256,
                EVEX_Vmovdqu8_zmm_k1z_zmmm512,
            ),
            (2, false) => place(
                EVEX_Vmovdqu16_xmm_k1z_xmmm128,
                EVEX_Vmovdqu16_ymm_k1z_ymmm256,
                EVEX_Vmovdqu16_zmm_k1z_zmmm512,
            ),
            (4, false) => place(
                EVEX_Vmovups_xmm_k1z_xmmm128,
                EVEX_Vmovups_ymm_k1z_ymmm256,
                EVEX_Vmovups_zmm_k1z_zmmm512,
            ),
            (_, false) => place(
                EVEX_Vmovupd_xmm_k1z_xmmm128,
                EVEX_Vmovupd_ymm_k1z_ymmm256,
                EVEX_Vmovupd_zmm_k1z_zmmm512,
            ),
            (1, true) => place(
                EVEX_Vmovdqu8_xmmm128_k1z_xmm,
                EVEX_Vmovdqu8_ymmm256_k1z_ymm,
                EVEX_Vmovdqu8_zmmm512_k1z_zmm,
            ),
            (2, true) => place(
                EVEX_Vmovdqu16_xmmm128_k1z_xmm,
                EVEX_Vmovdqu16_ymmm256_k1z_ymm,
                EVEX_Vmovdqu16_zmmm512_k1z_zmm,
            ),
            (4, true) => place(
                EVEX_Vmovups_xmmm128_k1z_xmm,
                EVEX_Vmovups_ymmm256_k1z_ymm,
                EVEX_Vmovups_zmmm512_k1z_zmm,
            ),
            (_, true) => place(
                EVEX_Vmovupd_xmmm128_k1z_xmm,
                EVEX_Vmovupd_ymmm256_k1z_ymm,
                EVEX_Vmovupd_zmmm512_k1z_zmm,
            ),
        };
        self.b.form(width, forms)
    }

    /// `buffer[index] = value`.
    pub(super) fn store(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        value: &Expr,
        mask: Option<&Expr>,
    ) {
        let value = self.value(value);
        self.store_value(buffer, index, value, mask);
    }

    /// The same for a value that is in registers.
    pub(super) fn store_value(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        value: Val,
        mask: Option<&Expr>,
    ) {
        let lanes = index.ty.lanes;
        if let Some(parts) = self.registers.get_mut(buffer) {
            let first = plan::first_index(index).and_then(Expr::as_int).expect("constant");
            parts.insert(first as i64, Some(value.reg()));
            self.forget_register(buffer);
            return;
        }
        let bytes = buffer.dtype.bytes();
        let mut written = None;
        if lanes == 1 {
            let mem = self.address(buffer, index);
            self.write(buffer, mem, value, bytes);
        } else {
            let form = self.access_form(buffer, index, mask.is_some(), true);
            match (form, mask) {
                (AccessForm::Move(base), _) => {
                    let mem = self.address(buffer, base);
                    let value = self.stored_lanes(value, lanes);
                    let all = bytes * u64::from(lanes);
                    match self.nontemporal && has_nontemporal(all) {
                        true => self.write_nontemporal(buffer, mem, value, all),
                        false => self.write(buffer, mem, Val::Vec(value), all),
                    }
                    let key = all << 8 | Width::of(all).bytes();
                    let key = LoadKey { mem, bytes: key, broadcast: false, mask: None };
                    written = Some((key, value));
                }
                (AccessForm::MaskedMove(base), Some(mask)) => {
                    let mem = self.address(buffer, base);
                    let value = self.stored_lanes(value, lanes);
                    match first_bytes(mask, bytes) {
                        Some(first) => self.write(buffer, mem, Val::Vec(value), first),
                        None => {
                            let pieces = constant_bits(mask).and_then(|b| self.pieces(bytes, b));
                            if let Some(pieces) = pieces {
                                self.write_pieces(buffer, mem, value, pieces);
                            } else {
                                let mask = self.value(mask);
                                self.masked_store(buffer, mem, value, mask, lanes);
                            }
                        }
                    }
                }
                // The last lane wins.
                (AccessForm::OneElement(one), _) => {
                    let value = self.stored_lanes(value, lanes);
                    let mem = self.address(buffer, one);
                    let last = self.extract(value, bytes, lanes - 1);
                    self.write(buffer, mem, Val::Vec(last), bytes);
                }
                (AccessForm::Indexed, mask) => {
                    let mask = mask.map(|mask| self.value(mask));
                    let value = self.stored_lanes(value, lanes);
                    self.scatter(buffer, index, value, mask);
                }
                (AccessForm::EachLane, _) => {
                    let value = self.stored_lanes(value, lanes);
                    self.scatter_lanes(buffer, index, value);
                }
                (form, _) => crate::bug!("a store by {form:?}"),
            }
        }
        for scope in &mut self.scopes {
            scope.loads.retain(|_, (other, _)| other != buffer);
        }
        self.forget_addresses(&|index| reads_buffer(index, buffer));
        // A later load of these elements takes the value from its register.
        if let Some((key, value)) = written {
            let scope = self.scopes.last_mut().expect("a scope");
            scope.loads.insert(key, (buffer.clone(), value));
        }
    }

    /// A value in the form that it has in memory; a mask becomes bytes.
    fn stored_lanes(&mut self, value: Val, lanes: u32) -> VReg {
        match value {
            Val::Mask(..) => self.bytes_of_mask(value, lanes),
            value => value.reg(),
        }
    }

    /// Writes `bytes` bytes of a value from lane 0 on.
    pub(super) fn write(&mut self, buffer: &Buffer, mem: Mem, value: Val, bytes: u64) {
        let reg = value.reg();
        if !bytes.is_power_of_two() {
            if let Some(pieces) = self.pieces(1, first_lanes(bytes.into(), bytes as u32)) {
                return self.write_pieces(buffer, mem, reg, pieces);
            }
            let inst = self.partial(mem, reg, bytes, true);
            return self.push_store(buffer, inst);
        }
        let code = match (bytes, self.b.isa) {
            _ if matches!(value, Val::Gpr(_)) => Mov_rm8_r8,
            (64, _) => EVEX_Vmovups_zmmm512_k1z_zmm,
            (32, Avx512) => EVEX_Vmovups_ymmm256_k1z_ymm,
            (16, Avx512) => EVEX_Vmovups_xmmm128_k1z_xmm,
            (8, Avx512) => EVEX_Vmovq_xmmm64_xmm,
            (4, Avx512) => EVEX_Vmovd_rm32_xmm,
            (2, Avx512) => EVEX_Vpextrw_r32m16_xmm_imm8,
            (1, Avx512) => EVEX_Vpextrb_r32m8_xmm_imm8,
            (32, Avx2) => VEX_Vmovups_ymmm256_ymm,
            (16, Avx2) => VEX_Vmovups_xmmm128_xmm,
            (8, Avx2) => VEX_Vmovq_xmmm64_xmm,
            (4, Avx2) => VEX_Vmovd_rm32_xmm,
            (2, Avx2) => VEX_Vpextrw_r32m16_xmm_imm8,
            (1, Avx2) => VEX_Vpextrb_r32m8_xmm_imm8,
            _ => crate::bug!("a store of {bytes} bytes"),
        };
        let mut args = vec![Arg::Mem(mem), Arg::Use(reg)];
        if bytes <= 2 && matches!(value, Val::Vec(_)) {
            args.push(Arg::Imm(0));
        }
        self.push_store(buffer, Inst::new(code, args));
    }

    /// The moves of [`store_pieces`] for lanes of `bytes` bytes with a constant mask, if they are
    /// better than a masked store: with AVX2, where it takes 12 to 21 cycles on a Zen 3 (measured)
    /// and is not forwarded to a load of other lanes.
    fn pieces(&self, bytes: u64, mask: u64) -> Option<Vec<(u64, u64)>> {
        (!self.b.is_evex()).then(|| store_pieces(bytes, mask)).flatten()
    }

    /// Writes pieces of a register, from `place` on `bytes` bytes each.
    fn write_pieces(&mut self, buffer: &Buffer, mem: Mem, value: VReg, pieces: Vec<(u64, u64)>) {
        let mut upper = None;
        for (place, bytes) in pieces {
            let mem = Mem { disp: mem.disp + place as i32, ..mem };
            let inside = place % 16;
            if inside == 0 && (place == 0 || bytes == 16) {
                match place {
                    0 => self.write(buffer, mem, Val::Vec(value), bytes),
                    _ => {
                        let code = VEX_Vextracti128_xmmm128_ymm_imm8;
                        let args = vec![Arg::Mem(mem), Arg::Use(value), Arg::Imm(1)];
                        self.push_store(buffer, Inst::new(code, args));
                    }
                }
                continue;
            }
            let part = match place {
                0..16 => value,
                _ => *upper.get_or_insert_with(|| self.quarter(value, 1)),
            };
            if inside == 0 {
                self.write(buffer, mem, Val::Vec(part), bytes);
                continue;
            }
            let (code, lane) = match bytes {
                8 => (VEX_Vmovhps_m64_xmm, None),
                4 => (VEX_Vpextrd_rm32_xmm_imm8, Some(inside / 4)),
                2 => (VEX_Vpextrw_r32m16_xmm_imm8, Some(inside / 2)),
                _ => (VEX_Vpextrb_r32m8_xmm_imm8, Some(inside)),
            };
            let mut args = vec![Arg::Mem(mem), Arg::Use(part)];
            args.extend(lane.map(|lane| Arg::Imm(lane as i64)));
            self.push_store(buffer, Inst::new(code, args));
        }
    }

    /// A load or store of the first bytes of a register, by a constant mask.
    fn partial(&mut self, mem: Mem, reg: VReg, bytes: u64, to_memory: bool) -> Inst {
        let width = Width::of(bytes);
        let mask = self.partial_mask(bytes);
        if self.b.is_evex() {
            let element = if bytes.is_multiple_of(4) { 4 } else { 1 };
            let code = self.moved(element, width, to_memory);
            let args = match to_memory {
                true => vec![Arg::Mem(mem), Arg::Use(reg)],
                false => vec![Arg::Def(reg), Arg::Mem(mem)],
            };
            let mut inst = Inst::new(code, args);
            inst.mask = Some((mask, !to_memory));
            return inst;
        }
        let args = match to_memory {
            true => vec![Arg::Mem(mem), Arg::Use(mask), Arg::Use(reg)],
            false => vec![Arg::Def(reg), Arg::Use(mask), Arg::Mem(mem)],
        };
        Inst::new(masked_move(4, width, to_memory), args)
    }

    /// A mask of the first bytes of a register.
    pub(super) fn partial_mask(&mut self, bytes: u64) -> VReg {
        for scope in self.scopes.iter().rev() {
            if let Some(mask) = scope.masks.get(&bytes) {
                return *mask;
            }
        }
        let mask = if self.b.is_evex() {
            let element = if bytes.is_multiple_of(4) { 4 } else { 1 };
            self.all_lanes((bytes / element) as u32)
        } else {
            let mut all = vec![0xff; bytes as usize];
            all.resize(Width::of(bytes).bytes() as usize, 0);
            self.constant_bytes(all)
        };
        self.scopes.last_mut().expect("a scope").masks.insert(bytes, mask);
        mask
    }

    pub(super) fn push_store(&mut self, buffer: &Buffer, inst: Inst) {
        let access = Some(Access { buffer: self.number(buffer), kind: AccessKind::Write });
        self.b.push(Inst { access, ..inst });
    }

    fn masked_store(&mut self, buffer: &Buffer, mem: Mem, value: VReg, mask: Val, lanes: u32) {
        let bytes = buffer.dtype.bytes();
        let width = Width::of(bytes * u64::from(lanes));
        let mask = self.memory_mask(mask, bytes, lanes);
        let inst = if self.b.is_evex() {
            let code = self.moved(bytes, width, true);
            let mut inst = Inst::new(code, vec![Arg::Mem(mem), Arg::Use(value)]);
            inst.mask = Some((mask, false));
            inst
        } else {
            let code = masked_move(bytes, width, true);
            Inst::new(code, vec![Arg::Mem(mem), Arg::Use(mask), Arg::Use(value)])
        };
        self.push_store(buffer, inst);
    }

    /// Moves lane `lane` of a vector to lane 0.
    pub(super) fn extract(&mut self, value: VReg, bytes: u64, lane: u32) -> VReg {
        self.lanes(value, u64::from(lane) * bytes, bytes)
    }

    /// Moves `bytes` bytes from `place` on to the first lanes, where [`plan::register_parts`] finds
    /// that an instruction or two do.
    fn lanes(&mut self, value: VReg, place: u64, bytes: u64) -> VReg {
        if place == 32 && bytes > 16 {
            let half = EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8;
            return self.b.make(half, &[Arg::Use(value), Arg::Imm(1)]);
        }
        let mut part = value;
        if place >= 16 {
            part = self.quarter(value, place / 16);
        }
        let inside = place % 16;
        if inside == 0 {
            return part;
        }
        // Shifts bytes down; the upper lanes may have any value.
        let code =
            if self.b.is_evex() { EVEX_Vpsrldq_xmm_xmmm128_imm8 } else { VEX_Vpsrldq_xmm_xmm_imm8 };
        self.b.make(code, &[Arg::Use(part), Arg::Imm(inside as i64)])
    }

    /// One group of 16 bytes of a register.
    pub(super) fn quarter(&mut self, value: VReg, number: u64) -> VReg {
        let (code, number) = match (self.b.isa, number) {
            (Avx2, _) => (VEX_Vextracti128_xmmm128_ymm_imm8, number),
            (Avx512, 0..=1) => (EVEX_Vextracti32x4_xmmm128_k1z_ymm_imm8, number),
            (Avx512, _) => (EVEX_Vextracti32x4_xmmm128_k1z_zmm_imm8, number),
        };
        self.b.make(code, &[Arg::Use(value), Arg::Imm(number as i64)])
    }

    /// Joins registers of 16 bytes to a wider one.
    pub(super) fn join(&mut self, parts: Vec<VReg>) -> VReg {
        let width = Width::of(parts.len() as u64 * 16);
        let mut parts = parts.into_iter();
        let mut whole = parts.next().expect("a part");
        for (number, part) in (1..).zip(parts) {
            let code = match (self.b.isa, width) {
                (Avx2, _) => VEX_Vinserti128_ymm_ymm_xmmm128_imm8,
                (Avx512, Width::Z) => EVEX_Vinserti32x4_zmm_k1z_zmm_xmmm128_imm8,
                (Avx512, _) => EVEX_Vinserti32x4_ymm_k1z_ymm_xmmm128_imm8,
            };
            let to = self.b.vec();
            let args = vec![Arg::Def(to), Arg::Use(whole), Arg::Use(part), Arg::Imm(number)];
            let mut inst = Inst::new(code, args);
            inst.foldable.full = 16;
            self.b.push(inst);
            whole = to;
        }
        whole
    }

    /// Prefetches an element.
    pub(super) fn prefetch(&mut self, buffer: &Buffer, index: &Expr) {
        if self.registers.contains_key(buffer) {
            return;
        }
        let mem = self.address(buffer, index);
        let mut inst = Inst::new(Prefetcht0_m8, vec![Arg::Mem(mem)]);
        inst.access = Some(Access { buffer: self.number(buffer), kind: AccessKind::Read });
        self.b.push(inst);
    }
}

/// The length of the first lanes of a vector, if a constant mask keeps these only and a move
/// without a mask has that length. Such a move sets the other lanes to 0, as the masked one does,
/// and takes what a move of this length has stored before from the store buffer.
fn first_bytes(mask: &Expr, bytes: u64) -> Option<u64> {
    let bits = constant_bits(mask)?;
    let lanes = u64::from(bits.trailing_ones());
    let first = bytes * lanes;
    let are_first = bits == first_lanes(lanes.into(), mask.ty.lanes);
    let is_move = matches!(first, 4 | 8 | 16 | 32) && lanes < mask.ty.lanes.into();
    (are_first && is_move).then_some(first)
}

/// The place and the length, in bytes, of at most four moves that together store the lanes of
/// `mask`, each of `bytes` bytes; none if it takes more. A move has a power of two of bytes, at a
/// multiple of its length.
fn store_pieces(bytes: u64, mask: u64) -> Option<Vec<(u64, u64)>> {
    let (mut pieces, mut mask, mut place) = (vec![], mask, 0);
    while mask != 0 {
        let skipped = u64::from(mask.trailing_zeros());
        mask >>= skipped;
        place += skipped * bytes;
        let left = bytes * u64::from(mask.trailing_ones());
        let aligned = if place == 0 { 32 } else { 1 << place.trailing_zeros() };
        let length = (1 << left.ilog2()).min(aligned).min(32);
        if pieces.len() == 4 {
            return None;
        }
        pieces.push((place, length));
        let lanes = length / bytes;
        mask = mask.checked_shr(lanes as u32).unwrap_or(0);
        place += length;
    }
    Some(pieces)
}

/// The AVX2 move with a vector as its mask.
pub(super) fn masked_move(bytes: u64, width: Width, to_memory: bool) -> Code {
    match (bytes, width, to_memory) {
        (4, Width::X, false) => VEX_Vpmaskmovd_xmm_xmm_m128,
        (4, _, false) => VEX_Vpmaskmovd_ymm_ymm_m256,
        (8, Width::X, false) => VEX_Vpmaskmovq_xmm_xmm_m128,
        (8, _, false) => VEX_Vpmaskmovq_ymm_ymm_m256,
        (4, Width::X, true) => VEX_Vpmaskmovd_m128_xmm_xmm,
        (4, _, true) => VEX_Vpmaskmovd_m256_ymm_ymm,
        (8, Width::X, true) => VEX_Vpmaskmovq_m128_xmm_xmm,
        (8, _, true) => VEX_Vpmaskmovq_m256_ymm_ymm,
        _ => crate::bug!("AVX2 masks no elements of {bytes} bytes"),
    }
}

/// Whether an instruction is the AVX2 load of some lanes.
pub(super) fn is_masked_load(code: Code) -> bool {
    let all = [(4, Width::X), (4, Width::Y), (8, Width::X), (8, Width::Y)];
    all.iter().any(|(bytes, width)| code == masked_move(*bytes, *width, false))
}

//! Gathers and scatters.

use super::address::{Terms, for_each_var};
use super::inst::{Access, AccessKind, Arg, Base, Inst, Mem, Width};
use super::nest::{Selector, Val};
use super::plan::{self, Strided};
use super::table::VOp;
use crate::ir::visit::reads_memory;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Stmt, Type};
use crate::simd_ops::{AccessForm, LaneOffsets, TableLookup, lane_offsets, offset_bytes};
use crate::target::SimdIsa::{self, Avx2, Avx512};
use iced_x86::Code::{self, *};
use regalloc2::VReg;

impl Selector<'_> {
    /// The address of lane `lane` of an access.
    fn lane_address(&mut self, buffer: &Buffer, index: &Expr, lane: u32) -> Mem {
        let bytes = buffer.dtype.bytes() as i64;
        match &index.kind {
            ExprKind::Ramp(base, stride) => match stride.as_int() {
                Some(stride) => {
                    let offset = stride.wrapping_mul(lane.into()) as i64;
                    self.address(buffer, &Expr::add(base.clone(), Expr::index(offset)))
                }
                None if lane == 0 => self.address(buffer, base),
                // A loop moves pointers to lane 0.
                None => {
                    let first = self.address(buffer, base);
                    let step = self.index_value(stride);
                    let offset = self.b.mul_imm(step, bytes * i64::from(lane));
                    self.with_register_base(first, offset, 1)
                }
            },
            ExprKind::Broadcast(one) => self.address(buffer, one),
            _ if let Some(LaneOffsets { base, offsets }) = lane_offsets(index) => {
                let offset = Expr::index(offsets[lane as usize]);
                self.address(buffer, &Expr::add(base, offset))
            }
            _ => {
                let all = self.value(index).reg();
                let lane_value = self.extract(all, 8, lane);
                let element = self.b.make_gpr(quadword_code(self.b.isa), &[Arg::Use(lane_value)]);
                let base = self.pointer(buffer, &Terms::default());
                let scaled = self.b.mul_imm(element, bytes);
                Mem { base: Base::Reg(base), index: Some((scaled, 1)), disp: 0 }
            }
        }
    }

    /// Bytes that are looked up in a table.
    pub(super) fn look_up(&mut self, buffer: &Buffer, table: &TableLookup, ty: Type) -> VReg {
        let width = Width::of(u64::from(ty.lanes));
        let index = self.value(&table.index).reg();
        let low_bits = self.constant(0x0f, 1, width);
        let place = self.b.op2(VOp::And, width, index, low_bits);
        let mut rows: Vec<VReg> = Vec::new();
        for row in 0..table.rows {
            let mem = self.address(buffer, &Expr::index(16 * i64::from(row)));
            let row = self.read(buffer, mem, 16, true, width);
            rows.push(self.b.op2(VOp::ShufB, width, row, place));
        }
        // Bit 4 chooses between neighbouring rows, bit 5 between pairs of them, and so on. Shifts
        // of words bring it to the sign of its byte.
        let (signed, zero) = (Type { dtype: DType::Int8, lanes: ty.lanes }, self.b.zero());
        for bit in (4..).take(table.rows.ilog2() as usize) {
            let sign = match bit {
                7 => index,
                _ => self.shift_words(index, 7 - bit, true, width),
            };
            let upper = self.compare_regs(BinOp::Lt, signed, sign, zero);
            let pairs = rows.chunks(2);
            rows = pairs.map(|pair| self.blend(upper, pair[1], pair[0], signed)).collect();
        }
        rows[0]
    }

    /// The lanes of [`AccessForm::Indexed`], by one instruction.
    pub(super) fn gather(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        ty: Type,
        mask: Option<Val>,
    ) -> VReg {
        let bytes = ty.dtype.bytes();
        let used = bytes * u64::from(ty.lanes);
        let width = Width::of(used);
        let is_partial = used < width.bytes();
        let (mem, offset_bytes) = self.offsets(buffer, index);
        let access = Some(Access { buffer: self.number(buffer), kind: AccessKind::Read });
        let from = self.b.zero();
        let to = self.b.vec();
        if self.b.is_evex() {
            let mask = match mask {
                Some(mask) => self.memory_mask(mask, bytes, ty.lanes),
                None if is_partial => self.all_lanes(ty.lanes),
                None => self.b.ones(),
            };
            let after = self.b.mask_reg();
            let code = gather_code(self.b.isa, bytes, offset_bytes, width);
            let mut inst = Inst::new(code, vec![Arg::Mod { from, to }, Arg::Mem(mem)]);
            inst.clobbered = Some((mask, after));
            self.b.push(Inst { access, ..inst });
        } else {
            let mask = match mask {
                Some(mask) => self.memory_mask(mask, bytes, ty.lanes),
                None if is_partial => self.partial_mask(used),
                None => {
                    let zero = self.b.zero();
                    self.b.op2(VOp::CmpEqD, width, zero, zero)
                }
            };
            let after = self.b.vec();
            let code = gather_code(self.b.isa, bytes, offset_bytes, width);
            let args =
                vec![Arg::Mod { from, to }, Arg::Mem(mem), Arg::Mod { from: mask, to: after }];
            self.b.push(Inst { access, ..Inst::new(code, args) });
        }
        to
    }

    /// An address with a vector of offsets, and the bytes of an offset.
    fn offsets(&mut self, buffer: &Buffer, index: &Expr) -> (Mem, u64) {
        let scale = buffer.dtype.bytes() as u8;
        // Such an access starts from a pointer, as `plan::first_index` says.
        if let ExprKind::Ramp(base, stride) = &index.kind
            && plan::first_index(index).is_some()
        {
            let mem = self.address(buffer, base);
            let bytes = offset_bytes(index, index.ty.lanes);
            let width = Width::of(u64::from(index.ty.lanes) * bytes);
            let offsets = match stride.as_int() {
                Some(stride) => self.progression(stride as i64, bytes, width),
                None => self.multiples(stride, index.ty.lanes),
            };
            return (self.with_register_base(mem, offsets, scale), bytes);
        }
        if let Some(constant) = lane_offsets(index)
            && let Some(offsets) = constant.short()
        {
            let mem = self.address(buffer, &constant.base);
            let offsets = offsets.into_iter().flat_map(i32::to_le_bytes).collect();
            let offsets = self.constant_lanes(offsets);
            return (self.with_register_base(mem, offsets, scale), 4);
        }
        let offsets = self.value(index).reg();
        let base = self.pointer(buffer, &Terms::default());
        (Mem { base: Base::Reg(base), index: Some((offsets, scale)), disp: 0 }, 8)
    }

    /// A vector of the first `lanes` multiples of an index: 0, itself, twice itself, … It is
    /// computed once in a scope.
    fn multiples(&mut self, of: &Expr, lanes: u32) -> VReg {
        let (terms, constant) = self.terms(of);
        let key = (terms, constant, lanes);
        if let Some(known) = self.scopes.iter().rev().find_map(|scope| scope.multiples.get(&key)) {
            return *known;
        }
        let ty = Type { dtype: of.ty.dtype, lanes };
        let ramp = Expr::new(ty, ExprKind::Ramp(Expr::index(0), of.clone()));
        let multiples = self.value(&ramp).reg();
        self.note_reads(&key.0);
        self.scopes.last_mut().expect("a scope").multiples.insert(key, multiples);
        multiples
    }

    /// Computes before a loop the offsets of its gathers and scatters with run-time strides.
    pub(super) fn multiples_before(&mut self, body: &Stmt) {
        for Strided { buffer, index, stride, is_store } in plan::run_time_strides(body) {
            let mut known = true;
            for_each_var(&stride, &mut |var| known &= self.is_bound(var));
            let form = self.access_form(&buffer, &index, false, is_store);
            if known && matches!(form, AccessForm::Indexed) {
                self.multiples(&stride, index.ty.lanes);
            }
        }
    }

    fn with_register_base(&mut self, mem: Mem, offsets: VReg, scale: u8) -> Mem {
        let base = match mem.index {
            Some(_) => Base::Reg(self.b.lea(mem)),
            None => mem.base,
        };
        let disp = if mem.index.is_some() { 0 } else { mem.disp };
        Mem { base, index: Some((offsets, scale)), disp }
    }

    /// One load for each lane.
    pub(super) fn gather_lanes(&mut self, buffer: &Buffer, index: &Expr, ty: Type) -> VReg {
        let bytes = ty.dtype.bytes();
        let per_part = (16 / bytes) as u32;
        let access = Access { buffer: self.number(buffer), kind: AccessKind::Read };
        let mut parts = Vec::new();
        for first in (0..ty.lanes).step_by(per_part as usize) {
            let mut part = self.b.zero();
            for lane in first..(first + per_part).min(ty.lanes) {
                let mem = self.lane_address(buffer, index, lane);
                let to = self.b.vec();
                let place = Arg::Imm((lane - first).into());
                let args = vec![Arg::Def(to), Arg::Use(part), Arg::Mem(mem), place];
                let mut inst = Inst::new(insert_code(self.b.isa, bytes), args);
                inst.access = Some(access);
                self.b.push(inst);
                part = to;
            }
            parts.push(part);
        }
        self.join(parts)
    }

    /// The lanes of [`AccessForm::Indexed`], by one instruction of AVX-512. If lanes have the same
    /// index, the last one wins.
    pub(super) fn scatter(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        value: VReg,
        mask: Option<Val>,
    ) {
        let (bytes, lanes) = (buffer.dtype.bytes(), index.ty.lanes);
        let width = Width::of(bytes * u64::from(lanes));
        let (mem, offset_bytes) = self.offsets(buffer, index);
        let mask = match mask {
            Some(mask) => self.memory_mask(mask, bytes, lanes),
            None => self.b.ones(),
        };
        let after = self.b.mask_reg();
        let code = scatter_code(bytes, offset_bytes, width);
        let mut inst = Inst::new(code, vec![Arg::Mem(mem), Arg::Use(value)]);
        inst.clobbered = Some((mask, after));
        self.push_store(buffer, inst);
    }

    /// One store for each lane. If lanes have the same index, the last one wins.
    pub(super) fn scatter_lanes(&mut self, buffer: &Buffer, index: &Expr, value: VReg) {
        let (bytes, lanes) = (buffer.dtype.bytes(), index.ty.lanes);
        debug_assert!(!reads_memory(index) || !matches!(index.kind, ExprKind::Ramp(..)));
        for lane in 0..lanes {
            let mem = self.lane_address(buffer, index, lane);
            let one = self.extract(value, bytes, lane);
            self.write(buffer, mem, Val::Vec(one), bytes);
        }
    }
}

/// `vmovq r64, xmm`.
fn quadword_code(isa: SimdIsa) -> Code {
    match isa {
        Avx2 => VEX_Vmovq_rm64_xmm,
        Avx512 => EVEX_Vmovq_rm64_xmm,
    }
}

fn insert_code(isa: SimdIsa, bytes: u64) -> Code {
    match (isa, bytes) {
        (Avx2, 1) => VEX_Vpinsrb_xmm_xmm_r32m8_imm8,
        (Avx2, 2) => VEX_Vpinsrw_xmm_xmm_r32m16_imm8,
        (Avx2, 4) => VEX_Vpinsrd_xmm_xmm_rm32_imm8,
        (Avx2, _) => VEX_Vpinsrq_xmm_xmm_rm64_imm8,
        (Avx512, 1) => EVEX_Vpinsrb_xmm_xmm_r32m8_imm8,
        (Avx512, 2) => EVEX_Vpinsrw_xmm_xmm_r32m16_imm8,
        (Avx512, 4) => EVEX_Vpinsrd_xmm_xmm_rm32_imm8,
        (Avx512, _) => EVEX_Vpinsrq_xmm_xmm_rm64_imm8,
    }
}

/// The gather of elements of `bytes` bytes by offsets of `offset` bytes into a register.
fn gather_code(isa: SimdIsa, bytes: u64, offset: u64, width: Width) -> Code {
    use Width::*;
    match (isa, bytes, offset, width) {
        (Avx2, 4, 4, X) => VEX_Vgatherdps_xmm_vm32x_xmm,
        (Avx2, 4, 4, _) => VEX_Vgatherdps_ymm_vm32y_ymm,
        (Avx2, 8, 4, X) => VEX_Vgatherdpd_xmm_vm32x_xmm,
        (Avx2, 8, 4, _) => VEX_Vgatherdpd_ymm_vm32x_ymm,
        (Avx2, 4, _, _) => VEX_Vgatherqps_xmm_vm64y_xmm,
        (Avx2, _, _, X) => VEX_Vgatherqpd_xmm_vm64x_xmm,
        (Avx2, _, _, _) => VEX_Vgatherqpd_ymm_vm64y_ymm,
        (Avx512, 4, 4, X) => EVEX_Vgatherdps_xmm_k1_vm32x,
        (Avx512, 4, 4, Y) => EVEX_Vgatherdps_ymm_k1_vm32y,
        (Avx512, 4, 4, Z) => EVEX_Vgatherdps_zmm_k1_vm32z,
        (Avx512, 8, 4, X) => EVEX_Vgatherdpd_xmm_k1_vm32x,
        (Avx512, 8, 4, Y) => EVEX_Vgatherdpd_ymm_k1_vm32x,
        (Avx512, 8, 4, Z) => EVEX_Vgatherdpd_zmm_k1_vm32y,
        (Avx512, 4, _, X) => EVEX_Vgatherqps_xmm_k1_vm64y,
        (Avx512, 4, _, _) => EVEX_Vgatherqps_ymm_k1_vm64z,
        (Avx512, _, _, X) => EVEX_Vgatherqpd_xmm_k1_vm64x,
        (Avx512, _, _, Y) => EVEX_Vgatherqpd_ymm_k1_vm64y,
        (Avx512, _, _, Z) => EVEX_Vgatherqpd_zmm_k1_vm64z,
    }
}

fn scatter_code(bytes: u64, offset: u64, width: Width) -> Code {
    use Width::*;
    match (bytes, offset, width) {
        (4, 4, X) => EVEX_Vscatterdps_vm32x_k1_xmm,
        (4, 4, Y) => EVEX_Vscatterdps_vm32y_k1_ymm,
        (4, 4, Z) => EVEX_Vscatterdps_vm32z_k1_zmm,
        (8, 4, X) => EVEX_Vscatterdpd_vm32x_k1_xmm,
        (8, 4, Y) => EVEX_Vscatterdpd_vm32x_k1_ymm,
        (8, 4, Z) => EVEX_Vscatterdpd_vm32y_k1_zmm,
        (4, _, X) => EVEX_Vscatterqps_vm64y_k1_xmm,
        (4, _, _) => EVEX_Vscatterqps_vm64z_k1_ymm,
        (_, _, X) => EVEX_Vscatterqpd_vm64x_k1_xmm,
        (_, _, Y) => EVEX_Vscatterqpd_vm64y_k1_ymm,
        (_, _, Z) => EVEX_Vscatterqpd_vm64z_k1_zmm,
    }
}

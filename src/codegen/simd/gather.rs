//! Gathers and scatters: lanes that are anywhere in memory.

use super::address::for_each_var;
use super::inst::{Access, Arg, Base, Inst, Mem, Touch, Width};
use super::nest::{Selector, Val};
use super::plan::{self, Strided};
use super::table::VOp;
use crate::ir::visit::reads_memory;
use crate::ir::{Buffer, Expr, ExprKind, Stmt, Type};
use iced_x86::Code::{self, *};
use regalloc2::VReg;

impl Selector<'_> {
    /// Where lane `lane` of an access is.
    fn lane_address(&mut self, buffer: &Buffer, index: &Expr, lane: u32) -> Mem {
        let bytes = buffer.dtype.bytes() as i64;
        match &index.kind {
            ExprKind::Ramp(base, stride) => match stride.as_int() {
                Some(stride) => {
                    let offset = stride.wrapping_mul(lane.into()) as i64;
                    self.address(buffer, &Expr::add(base.clone(), Expr::index(offset)))
                }
                None if lane == 0 => self.address(buffer, base),
                // A pointer that moves is one to lane 0.
                None => {
                    let first = self.address(buffer, base);
                    let step = self.index_value(stride);
                    let offset = self.b.mul_imm(step, bytes * i64::from(lane));
                    self.with_register_base(first, offset, 1)
                }
            },
            ExprKind::Broadcast(one) => self.address(buffer, one),
            _ => {
                let all = self.value(index).reg();
                let lane_value = self.extract(all, 8, lane);
                let element = self.b.make_gpr(quadword_code(self.b.evex), &[Arg::Use(lane_value)]);
                let base = self.pointer(buffer, &Vec::new());
                let scaled = self.b.mul_imm(element, bytes);
                Mem { base: Base::Reg(base), index: Some((scaled, 1)), disp: 0 }
            }
        }
    }

    /// Lanes that are anywhere. Elements of 4 and 8 bytes have an instruction, others are read
    /// one by one.
    pub(super) fn gather(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        ty: Type,
        mask: Option<Val>,
    ) -> VReg {
        let bytes = ty.dtype.bytes();
        let width = Width::of(bytes * u64::from(ty.lanes));
        if !self.has_offsets(buffer, index) {
            if mask.is_some() {
                crate::bug!("a masked gather of `{}` lane by lane", buffer.name);
            }
            return self.gather_lanes(buffer, index, ty);
        }
        let (mem, offset_bytes) = self.offsets(buffer, index);
        let access = Some(Access { buffer: self.number(buffer), what: Touch::Read });
        let from = self.b.zero();
        let to = self.b.vec();
        if self.b.evex {
            let mask = match mask {
                Some(mask) => self.memory_mask(mask, bytes, ty.lanes),
                None => self.b.ones(),
            };
            let after = self.b.mask_reg();
            let code = gather_code(true, bytes, offset_bytes, width);
            let mut inst = Inst::new(code, vec![Arg::Mod { from, to }, Arg::Mem(mem)]);
            inst.used_up = Some((mask, after));
            self.b.push(Inst { access, ..inst });
        } else {
            let mask = match mask {
                Some(mask) => self.memory_mask(mask, bytes, ty.lanes),
                None => {
                    let zero = self.b.zero();
                    self.b.op2(VOp::CmpEqD, width, zero, zero)
                }
            };
            let after = self.b.vec();
            let code = gather_code(false, bytes, offset_bytes, width);
            let args =
                vec![Arg::Mod { from, to }, Arg::Mem(mem), Arg::Mod { from: mask, to: after }];
            self.b.push(Inst { access, ..Inst::new(code, args) });
        }
        to
    }

    /// Whether an instruction takes the lanes of an access together, by a vector of offsets.
    fn has_offsets(&self, buffer: &Buffer, index: &Expr) -> bool {
        let (bytes, lanes) = (buffer.dtype.bytes(), index.ty.lanes);
        let fits = self.short_offsets(index).is_some() || lanes * 8 <= self.vector_bytes;
        fits && bytes >= 4 && bytes * u64::from(lanes) >= 16
    }

    /// The step of a ramp if offsets of 32 bits suffice for all lanes.
    fn short_offsets(&self, index: &Expr) -> Option<i64> {
        let ExprKind::Ramp(_, stride) = &index.kind else { return None };
        let stride = i64::try_from(stride.as_int()?).ok()?;
        let last = stride.checked_mul(i64::from(index.ty.lanes))?;
        i32::try_from(last).ok().map(|_| stride)
    }

    /// An address with a vector of offsets, and the bytes of an offset.
    fn offsets(&mut self, buffer: &Buffer, index: &Expr) -> (Mem, u64) {
        let scale = buffer.dtype.bytes() as u8;
        // What such an access starts from is a pointer; `plan::first_index` counts on that.
        if let ExprKind::Ramp(base, stride) = &index.kind
            && plan::first_index(index).is_some()
        {
            let mem = self.address(buffer, base);
            let bytes = if self.short_offsets(index).is_some() { 4 } else { 8 };
            let width = Width::of(u64::from(index.ty.lanes) * bytes);
            let offsets = match stride.as_int() {
                Some(stride) => self.progression(stride as i64, bytes, width),
                None => self.multiples(stride, index.ty.lanes),
            };
            return (self.with_register_base(mem, offsets, scale), bytes);
        }
        let offsets = self.value(index).reg();
        let base = self.pointer(buffer, &Vec::new());
        (Mem { base: Base::Reg(base), index: Some((offsets, scale)), disp: 0 }, 8)
    }

    /// The multiples of an index, one for each of `lanes`: 0, itself, twice itself. They are
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
        self.scopes.last_mut().expect("a scope").multiples.insert(key, multiples);
        multiples
    }

    /// Computes before a loop what its gathers and scatters by steps known at run time need.
    pub(super) fn multiples_before(&mut self, body: &Stmt) {
        for Strided { buffer, index, stride, is_store } in plan::run_time_strides(body) {
            let mut known = true;
            for_each_var(&stride, &mut |var| known &= self.is_bound(var));
            let is_taken = !is_store || self.b.evex;
            if known && is_taken && self.has_offsets(&buffer, &index) {
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

    /// One load for each lane, put together.
    fn gather_lanes(&mut self, buffer: &Buffer, index: &Expr, ty: Type) -> VReg {
        let bytes = ty.dtype.bytes();
        let per_part = (16 / bytes) as u32;
        let access = Access { buffer: self.number(buffer), what: Touch::Read };
        let mut parts = Vec::new();
        for first in (0..ty.lanes).step_by(per_part as usize) {
            let mut part = self.b.zero();
            for lane in first..(first + per_part).min(ty.lanes) {
                let mem = self.lane_address(buffer, index, lane);
                let to = self.b.vec();
                let place = Arg::Imm((lane - first).into());
                let args = vec![Arg::Def(to), Arg::Use(part), Arg::Mem(mem), place];
                let mut inst = Inst::new(insert_code(self.b.evex, bytes), args);
                inst.access = Some(access);
                self.b.push(inst);
                part = to;
            }
            parts.push(part);
        }
        self.join(parts)
    }

    /// Lanes go anywhere; of those that meet the last one stays.
    pub(super) fn scatter(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        value: VReg,
        mask: Option<Val>,
    ) {
        let bytes = buffer.dtype.bytes();
        let lanes = index.ty.lanes;
        if self.b.evex && self.has_offsets(buffer, index) {
            let width = Width::of(bytes * u64::from(lanes));
            let (mem, offset_bytes) = self.offsets(buffer, index);
            let mask = match mask {
                Some(mask) => self.memory_mask(mask, bytes, lanes),
                None => self.b.ones(),
            };
            let after = self.b.mask_reg();
            let code = scatter_code(bytes, offset_bytes, width);
            let mut inst = Inst::new(code, vec![Arg::Mem(mem), Arg::Use(value)]);
            inst.used_up = Some((mask, after));
            self.push_store(buffer, inst);
            return;
        }
        if mask.is_some() {
            crate::bug!("a masked scatter to `{}` lane by lane", buffer.name);
        }
        debug_assert!(!reads_memory(index) || !matches!(index.kind, ExprKind::Ramp(..)));
        for lane in 0..lanes {
            let mem = self.lane_address(buffer, index, lane);
            let one = self.extract(value, bytes, lane);
            self.write(buffer, mem, Val::Vec(one), bytes);
        }
    }
}

/// `vmovq r64, xmm`.
fn quadword_code(evex: bool) -> Code {
    if evex { EVEX_Vmovq_rm64_xmm } else { VEX_Vmovq_rm64_xmm }
}

fn insert_code(evex: bool, bytes: u64) -> Code {
    match (evex, bytes) {
        (false, 1) => VEX_Vpinsrb_xmm_xmm_r32m8_imm8,
        (false, 2) => VEX_Vpinsrw_xmm_xmm_r32m16_imm8,
        (false, 4) => VEX_Vpinsrd_xmm_xmm_rm32_imm8,
        (false, _) => VEX_Vpinsrq_xmm_xmm_rm64_imm8,
        (true, 1) => EVEX_Vpinsrb_xmm_xmm_r32m8_imm8,
        (true, 2) => EVEX_Vpinsrw_xmm_xmm_r32m16_imm8,
        (true, 4) => EVEX_Vpinsrd_xmm_xmm_rm32_imm8,
        (true, _) => EVEX_Vpinsrq_xmm_xmm_rm64_imm8,
    }
}

/// The gather of elements of `bytes` by offsets of `offset` bytes into a register.
fn gather_code(evex: bool, bytes: u64, offset: u64, width: Width) -> Code {
    use Width::*;
    match (evex, bytes, offset, width) {
        (false, 4, 4, X) => VEX_Vgatherdps_xmm_vm32x_xmm,
        (false, 4, 4, _) => VEX_Vgatherdps_ymm_vm32y_ymm,
        (false, 8, 4, X) => VEX_Vgatherdpd_xmm_vm32x_xmm,
        (false, 8, 4, _) => VEX_Vgatherdpd_ymm_vm32x_ymm,
        (false, 4, _, _) => VEX_Vgatherqps_xmm_vm64y_xmm,
        (false, _, _, X) => VEX_Vgatherqpd_xmm_vm64x_xmm,
        (false, _, _, _) => VEX_Vgatherqpd_ymm_vm64y_ymm,
        (true, 4, 4, X) => EVEX_Vgatherdps_xmm_k1_vm32x,
        (true, 4, 4, Y) => EVEX_Vgatherdps_ymm_k1_vm32y,
        (true, 4, 4, Z) => EVEX_Vgatherdps_zmm_k1_vm32z,
        (true, 8, 4, X) => EVEX_Vgatherdpd_xmm_k1_vm32x,
        (true, 8, 4, Y) => EVEX_Vgatherdpd_ymm_k1_vm32x,
        (true, 8, 4, Z) => EVEX_Vgatherdpd_zmm_k1_vm32y,
        (true, 4, _, X) => EVEX_Vgatherqps_xmm_k1_vm64y,
        (true, 4, _, _) => EVEX_Vgatherqps_ymm_k1_vm64z,
        (true, _, _, X) => EVEX_Vgatherqpd_xmm_k1_vm64x,
        (true, _, _, Y) => EVEX_Vgatherqpd_ymm_k1_vm64y,
        (true, _, _, Z) => EVEX_Vgatherqpd_zmm_k1_vm64z,
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

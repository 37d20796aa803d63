//! Nontemporal stores.
//!
//! The instructions need aligned addresses, but arguments are aligned to their elements only. Each
//! store therefore tests its address with one instruction and a branch: it writes a whole vector if
//! the address is aligned to it, parts of 16 bytes if it is aligned to 16, and else uses an
//! ordinary store. The rare cases stand after all other code.
//!
//! Nontemporal stores become visible to other threads in any order. A fence ends the nest, so that
//! all of them are visible before the nest returns.

use super::inst::{Arg, Base, BlockId, Cond, Inst, Mem};
use super::nest::{Selector, Val};
use crate::ir::Buffer;
use crate::target::SimdIsa::{self, Avx2, Avx512};
use iced_x86::Code::{self, *};
use regalloc2::VReg;

/// Bytes of the shortest nontemporal store of a vector.
const MIN_BYTES: u64 = 16;

/// Whether there are nontemporal stores of `bytes` bytes.
pub(super) fn has_nontemporal(bytes: u64) -> bool {
    matches!(bytes, 16 | 32 | 48 | 64)
}

impl Selector<'_> {
    /// Stores `bytes` bytes of a register, by nontemporal stores if the address is aligned.
    pub(super) fn write_nontemporal(&mut self, buffer: &Buffer, mem: Mem, value: VReg, bytes: u64) {
        self.needs_fence = true;
        let (whole, other, done) = (self.b.block(), self.b.block(), self.b.block());
        let longest = if bytes.is_power_of_two() { bytes } else { MIN_BYTES };
        self.branch_if_aligned(mem, longest, whole, other);
        self.start(whole);
        self.push_in_parts(buffer, mem, value, bytes, longest);
        self.b.jump(done, Vec::new());
        self.start_cold_block(other);
        if longest > MIN_BYTES {
            let (parts, plain) = (self.b.block(), self.b.block());
            self.branch_if_aligned(mem, MIN_BYTES, parts, plain);
            self.start_cold_block(parts);
            self.push_in_parts(buffer, mem, value, bytes, MIN_BYTES);
            self.b.jump(done, Vec::new());
            self.start_cold_block(plain);
        }
        self.write(buffer, mem, Val::Vec(value), bytes);
        self.b.jump(done, Vec::new());
        self.start(done);
    }

    /// Nontemporal stores of a register: one, or parts of 16 bytes.
    fn push_in_parts(&mut self, buffer: &Buffer, mem: Mem, value: VReg, bytes: u64, part: u64) {
        if part == bytes {
            return self.push_nontemporal(buffer, mem, value, bytes);
        }
        for number in 0..bytes / MIN_BYTES {
            let value = if number == 0 { value } else { self.quarter(value, number) };
            let disp = mem.disp + (number * MIN_BYTES) as i32;
            self.push_nontemporal(buffer, Mem { disp, ..mem }, value, MIN_BYTES);
        }
    }

    /// Waits for the nontemporal stores, if there are any.
    pub(super) fn fence(&mut self) {
        if self.needs_fence {
            self.b.emit(Sfence, Vec::new());
        }
    }

    fn branch_if_aligned(&mut self, mem: Mem, bytes: u64, yes: BlockId, no: BlockId) {
        let address = match (mem.base, mem.index) {
            (Base::Reg(base), None) if i64::from(mem.disp) % bytes as i64 == 0 => base,
            _ => self.b.lea(mem),
        };
        let low = Arg::Imm(bytes as i64 - 1);
        self.b.emit(Test_rm64_imm32, vec![Arg::Use(address), low]);
        self.b.branch(Cond::E, yes, no);
    }

    fn push_nontemporal(&mut self, buffer: &Buffer, mem: Mem, value: VReg, bytes: u64) {
        let code = nontemporal_code(bytes, self.b.isa);
        self.push_store(buffer, Inst::new(code, vec![Arg::Mem(mem), Arg::Use(value)]));
    }

    /// Starts a block that is placed after all others.
    fn start_cold_block(&mut self, block: BlockId) {
        self.cold_blocks.push(block);
        self.b.current = block;
    }
}

fn nontemporal_code(bytes: u64, isa: SimdIsa) -> Code {
    match (bytes, isa) {
        (64, _) => EVEX_Vmovntps_m512_zmm,
        (32, Avx512) => EVEX_Vmovntps_m256_ymm,
        (_, Avx512) => EVEX_Vmovntps_m128_xmm,
        (32, Avx2) => VEX_Vmovntps_m256_ymm,
        (_, Avx2) => VEX_Vmovntps_m128_xmm,
    }
}

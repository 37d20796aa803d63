//! Stores past the caches.
//!
//! A processor has such stores for aligned vectors only, and an argument is aligned to its element.
//! So each store tests its address, in one instruction and a branch: a whole vector where it is
//! aligned to that, four or two of 16 bytes where it is aligned to 16, else a plain one. What is
//! rare stands after all other code.
//!
//! These stores become visible to other threads in any order. A fence ends the nest, so that all
//! of them are done before anybody is told.

use super::inst::{Arg, Base, BlockId, Cond, Inst, Mem};
use super::nest::{Selector, Val};
use crate::ir::Buffer;
use crate::target::SimdIsa::{self, Avx2, Avx512};
use iced_x86::Code::{self, *};
use regalloc2::VReg;

/// Bytes of the shortest such store.
const SHORTEST: u64 = 16;

/// Whether there is such a store of so many bytes.
pub(super) fn has_nontemporal(bytes: u64) -> bool {
    matches!(bytes, 16 | 32 | 64)
}

impl Selector<'_> {
    /// So many bytes of a register, past the caches if their address allows it.
    pub(super) fn write_nontemporal(&mut self, buffer: &Buffer, mem: Mem, value: VReg, bytes: u64) {
        self.needs_fence = true;
        let (whole, other, done) = (self.b.block(), self.b.block(), self.b.block());
        self.branch_if_aligned(mem, bytes, whole, other);
        self.start(whole);
        self.push_nontemporal(buffer, mem, value, bytes);
        self.b.jump(done, Vec::new());
        self.set_aside(other);
        if bytes > SHORTEST {
            let (parts, plain) = (self.b.block(), self.b.block());
            self.branch_if_aligned(mem, SHORTEST, parts, plain);
            self.set_aside(parts);
            for number in 0..bytes / SHORTEST {
                let part = if number == 0 { value } else { self.quarter(value, number) };
                let disp = mem.disp + (number * SHORTEST) as i32;
                self.push_nontemporal(buffer, Mem { disp, ..mem }, part, SHORTEST);
            }
            self.b.jump(done, Vec::new());
            self.set_aside(plain);
        }
        self.write(buffer, mem, Val::Vec(value), bytes);
        self.b.jump(done, Vec::new());
        self.start(done);
    }

    /// Waits for the stores past the caches, if there are any.
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

    /// A block after all others.
    fn set_aside(&mut self, block: BlockId) {
        self.aside.push(block);
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

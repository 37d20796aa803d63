//! `atom` and `red`: lane by lane, in the order of the lanes.

use super::Machine;
use super::time_slice::lanes;
use super::warp::Warp;
use crate::decode::op::{AtomOp, Atomic, MemSpace};
use crate::decode::{BUFFER_BITS, SHARED_WINDOW, WINDOW_BYTES};
use crate::lanes::{LaneFn, R64, half};
use crate::ty::{Class, Ty};

impl Machine<'_> {
    pub(super) fn atomic(&mut self, warp: &mut Warp, atomic: &Atomic, active: u32, pc: u32) {
        let mut addresses = self.addresses(warp, &atomic.address);
        let mut shared = if atomic.space == MemSpace::Shared { active } else { 0 };
        if atomic.space == MemSpace::Generic {
            for lane in lanes(active) {
                let address = &mut addresses[lane as usize];
                if (SHARED_WINDOW..SHARED_WINDOW + WINDOW_BYTES).contains(address) {
                    *address -= SHARED_WINDOW;
                    shared |= 1 << lane;
                }
            }
        }
        let wide = atomic.ty.class() == Class::R64;
        let row = |src| {
            if wide {
                *warp.s64(self.kernel, src)
            } else {
                warp.s32(self.kernel, src).map(u64::from)
            }
        };
        let operands = (row(atomic.a), row(atomic.b));
        let mut old: R64 = [0; 32];
        if shared != 0 {
            self.atomic_shared(warp, atomic, (&addresses, shared), &operands, &mut old, pc);
        }
        if active & !shared != 0 {
            let at = (&addresses, active & !shared);
            self.atomic_global(warp, atomic, at, &operands, &mut old, pc);
        }
        if wide {
            warp.set64(atomic.d, active, &old);
        } else {
            warp.set32(atomic.d, active, &old.map(|v| v as u32));
        }
    }

    fn atomic_shared(
        &mut self,
        warp: &Warp,
        atomic: &Atomic,
        (addresses, mask): (&R64, u32),
        (a, b): &(R64, R64),
        old: &mut R64,
        pc: u32,
    ) {
        let bytes = atomic.ty.bytes();
        let good = self.check_shared(warp, addresses, mask, (bytes, false), pc);
        let me = self.stamp(warp, atomic.site, true);
        for lane in lanes(good) {
            let i = lane as usize;
            let at = addresses[i] as usize;
            self.read_shared(warp, lane, at, bytes, me, pc);
            self.write_shared(warp, lane, at, bytes, me, pc);
            let data = &mut self.shared.data[at..at + bytes as usize];
            old[i] = update(atomic, data, a[i], b[i]);
        }
    }

    fn atomic_global(
        &mut self,
        warp: &Warp,
        atomic: &Atomic,
        (addresses, mask): (&R64, u32),
        (a, b): &(R64, R64),
        old: &mut R64,
        pc: u32,
    ) {
        let bytes = atomic.ty.bytes();
        let mut rest = self.aligned(warp, addresses, mask, bytes, pc);
        self.count_sectors(addresses, rest, bytes, pc);
        let me = self.stamp(warp, atomic.site, true);
        while rest != 0 {
            let Some((buffer, good)) = self.global_part(warp, addresses, &mut rest, bytes, pc)
            else {
                continue;
            };
            for lane in lanes(good) {
                let i = lane as usize;
                let at = (addresses[i] & ((1 << BUFFER_BITS) - 1)) as usize;
                self.read_global(warp, lane, (buffer, at), bytes, (me, false), pc);
                if self.write_global(warp, lane, (buffer, at), bytes, me, pc) {
                    let data = &mut self.memory.buffer_mut(buffer).data[at..at + bytes as usize];
                    old[i] = update(atomic, data, a[i], b[i]);
                }
            }
        }
    }
}

/// Replaces the value in memory; returns the old one.
fn update(atomic: &Atomic, data: &mut [u8], a: u64, b: u64) -> u64 {
    let mut bytes = [0; 8];
    bytes[..data.len()].copy_from_slice(data);
    let old = u64::from_le_bytes(bytes);
    let new = if atomic.op == AtomOp::Cas {
        if old == a { b } else { old }
    } else {
        combine(atomic.op, atomic.ty, old, a)
    };
    data.copy_from_slice(&new.to_le_bytes()[..data.len()]);
    old
}

/// Returns the new value of an `atom` or `red`.
pub(super) fn combine(op: AtomOp, ty: Ty, old: u64, a: u64) -> u64 {
    let signed = |v: u64| if ty.bytes() == 8 { v as i64 } else { i64::from(v as i32) };
    match op {
        AtomOp::Add => match ty {
            Ty::F32 => {
                let sum = f32::from_bits(old as u32) + f32::from_bits(a as u32);
                u64::from(if sum.is_nan() { crate::float::NAN32 } else { sum.to_bits() })
            }
            Ty::F64 => (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
            _ if ty.is_float() => match half::binary("add", ty) {
                Some(LaneFn::A2(f)) => f(&[old as u32; 32], &[a as u32; 32])[0].into(),
                _ => unreachable!("the decoder lets only halves come here"),
            },
            _ => old.wrapping_add(a),
        },
        AtomOp::Min if ty.is_signed() => {
            if signed(a) < signed(old) {
                a
            } else {
                old
            }
        }
        AtomOp::Max if ty.is_signed() => {
            if signed(a) > signed(old) {
                a
            } else {
                old
            }
        }
        AtomOp::Min => old.min(a),
        AtomOp::Max => old.max(a),
        AtomOp::And => old & a,
        AtomOp::Or => old | a,
        AtomOp::Xor => old ^ a,
        AtomOp::Exch | AtomOp::Cas => a,
        AtomOp::Inc => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        AtomOp::Dec => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
    }
}

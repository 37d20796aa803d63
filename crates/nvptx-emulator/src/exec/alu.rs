//! Instructions that touch registers only.

use super::Machine;
use super::time_slice::lanes;
use super::warp::Warp;
use crate::decode::op::{Dst, Logic, MemSpace, Op, PSrc, SINK, Src};
use crate::decode::{LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES};
use crate::lanes::{CompareFn, LaneFn, int};
use crate::report::FindingKind;

impl Machine<'_> {
    /// Applies a lane function and writes the active lanes.
    #[inline]
    pub(super) fn lane(&self, warp: &mut Warp, f: LaneFn, d: Dst, s: &[Src; 4], active: u32) {
        let k = self.kernel;
        match f {
            LaneFn::A1(f) => {
                let out = f(warp.s32(k, s[0]));
                warp.set32(d, active, &out);
            }
            LaneFn::A2(f) => {
                let out = f(warp.s32(k, s[0]), warp.s32(k, s[1]));
                warp.set32(d, active, &out);
            }
            LaneFn::A3(f) => {
                let out = f(warp.s32(k, s[0]), warp.s32(k, s[1]), warp.s32(k, s[2]));
                warp.set32(d, active, &out);
            }
            LaneFn::A4(f) => {
                let (a, b) = (warp.s32(k, s[0]), warp.s32(k, s[1]));
                let out = f(a, b, warp.s32(k, s[2]), warp.s32(k, s[3]));
                warp.set32(d, active, &out);
            }
            LaneFn::B1(f) => {
                let out = f(warp.s64(k, s[0]));
                warp.set64(d, active, &out);
            }
            LaneFn::B2(f) => {
                let out = f(warp.s64(k, s[0]), warp.s64(k, s[1]));
                warp.set64(d, active, &out);
            }
            LaneFn::B3(f) => {
                let out = f(warp.s64(k, s[0]), warp.s64(k, s[1]), warp.s64(k, s[2]));
                warp.set64(d, active, &out);
            }
            LaneFn::Wide1(f) => {
                let out = f(warp.s32(k, s[0]));
                warp.set64(d, active, &out);
            }
            LaneFn::Wide2(f) => {
                let out = f(warp.s32(k, s[0]), warp.s32(k, s[1]));
                warp.set64(d, active, &out);
            }
            LaneFn::Wide3(f) => {
                let out = f(warp.s32(k, s[0]), warp.s32(k, s[1]), warp.s64(k, s[2]));
                warp.set64(d, active, &out);
            }
            LaneFn::Narrow1(f) => {
                let out = f(warp.s64(k, s[0]));
                warp.set32(d, active, &out);
            }
            LaneFn::Shift(f) => {
                let out = f(warp.s64(k, s[0]), warp.s32(k, s[1]));
                warp.set64(d, active, &out);
            }
            LaneFn::Field(f) => {
                let out = f(warp.s64(k, s[0]), warp.s32(k, s[1]), warp.s32(k, s[2]));
                warp.set64(d, active, &out);
            }
            LaneFn::Insert(f) => {
                let (a, b) = (warp.s64(k, s[0]), warp.s64(k, s[1]));
                let out = f(a, b, warp.s32(k, s[2]), warp.s32(k, s[3]));
                warp.set64(d, active, &out);
            }
        }
    }

    /// Runs an instruction without control flow and communication; returns false for other ones.
    pub(super) fn step(&mut self, warp: &mut Warp, op: &Op, active: u32, pc: u32) -> bool {
        let k = self.kernel;
        match *op {
            Op::Mov32 { d, a } => {
                let out = *warp.s32(k, a);
                warp.set32(d, active, &out);
            }
            Op::Mov64 { d, a } => {
                let out = *warp.s64(k, a);
                warp.set64(d, active, &out);
            }
            Op::Load(ref access) => self.load(warp, access, active, pc),
            Op::Store(ref access) => self.store(warp, access, active, pc),
            Op::Compare { f, a, b, with, p, q } => {
                let truth = self.truth(warp, f, a, b);
                warp_compare(warp, active, truth, with, p, q);
            }
            Op::Set { f, a, b, with, d, one } => {
                let truth = combine(warp, self.truth(warp, f, a, b), with);
                let out = std::array::from_fn(|i| if truth >> i & 1 == 1 { one } else { 0 });
                warp.set32(d, active, &out);
            }
            Op::Test { f, p, a } => {
                let truth = f(warp.s32(k, a));
                warp.set_pred(p, active, truth);
            }
            Op::Select32 { d, a, b, p } => {
                let (x, y, p) = (warp.s32(k, a), warp.s32(k, b), warp.pred(p));
                let out = std::array::from_fn(|i| if p & 1 << i != 0 { x[i] } else { y[i] });
                warp.set32(d, active, &out);
            }
            Op::Select64 { d, a, b, p } => {
                let (x, y, p) = (warp.s64(k, a), warp.s64(k, b), warp.pred(p));
                let out = std::array::from_fn(|i| if p & 1 << i != 0 { x[i] } else { y[i] });
                warp.set64(d, active, &out);
            }
            Op::Predicate { logic, d, a, b } => {
                let out = logical(logic, warp.pred(a), warp.pred(b));
                warp.set_pred(d, active, out);
            }
            Op::Lop3 { d, s, table } => {
                let (a, b, c) = (warp.s32(k, s[0]), warp.s32(k, s[1]), warp.s32(k, s[2]));
                let out = std::array::from_fn(|i| int::lop3(a[i], b[i], c[i], table));
                warp.set32(d, active, &out);
            }
            Op::Divide { f, d, s } => {
                let wide = matches!(f, LaneFn::B2(_));
                let is_zero = |i: u32| match wide {
                    true => warp.s64(k, s[1])[i as usize] == 0,
                    false => warp.s32(k, s[1])[i as usize] == 0,
                };
                if let Some(lane) = lanes(active).find(|i| is_zero(*i)) {
                    self.find(FindingKind::DivisionByZero, warp, lane, pc, || {
                        "divides by zero".into()
                    });
                }
                self.lane(warp, f, d, &s, active);
            }
            _ => return self.rare(warp, op, active, pc),
        }
        true
    }

    fn rare(&mut self, warp: &mut Warp, op: &Op, active: u32, pc: u32) -> bool {
        let k = self.kernel;
        match *op {
            Op::Convert { spec, d, a, a_wide, d_bytes } => {
                let value = |i: usize| {
                    let bits = if a_wide { warp.s64(k, a)[i] } else { warp.s32(k, a)[i].into() };
                    let out = spec.scalar(bits);
                    let unused = 64 - spec.to.bits();
                    if spec.to.is_signed() { (out << unused) as i64 >> unused } else { out as i64 }
                };
                let out: [i64; 32] = std::array::from_fn(value);
                match d_bytes {
                    8 => warp.set64(d, active, &out.map(|v| v as u64)),
                    4 => warp.set32(d, active, &out.map(|v| v as u32)),
                    _ => warp.set32(d, active, &out.map(|v| v as u32 & 0xffff)),
                }
            }
            Op::ConvertPack { spec, d, a, b } => {
                let (a, b) = (warp.s32(k, a), warp.s32(k, b));
                let out = std::array::from_fn(|i| spec.pack(a[i].into(), b[i].into()) as u32);
                warp.set32(d, active, &out);
            }
            Op::Carry { .. } => self.carry(warp, op, active),
            Op::Pack { d, wide, bits, parts, count } => {
                let mut out = [0u64; 32];
                for part in 0..count {
                    let row = warp.s32(k, k.lists[(parts + part) as usize]);
                    for i in 0..32 {
                        out[i] |= u64::from(row[i]) << (bits * part);
                    }
                }
                if wide {
                    warp.set64(d, active, &out);
                } else {
                    warp.set32(d, active, &out.map(|v| v as u32));
                }
            }
            Op::Unpack { a, wide, bits, parts, count } => {
                let from = if wide { *warp.s64(k, a) } else { warp.s32(k, a).map(u64::from) };
                let mask = if bits == 32 { !0 } else { 0xffff };
                for part in 0..count {
                    let d = k.lists[(parts + part) as usize];
                    let out = from.map(|v| (v >> (bits * part)) as u32 & mask);
                    warp.set32(d, active, &out);
                }
            }
            Op::Clock { d, wide } => {
                let now = self.executed;
                if wide {
                    warp.set64(d, active, &[now; 32]);
                } else {
                    warp.set32(d, active, &[now as u32; 32]);
                }
            }
            Op::IsSpace { space, p, a } => {
                let inside = |v: u64, start: u64| (start..start + WINDOW_BYTES).contains(&v);
                let a = warp.s64(k, a);
                let truth = lanes(!0).fold(0, |m, i| {
                    let v = a[i as usize];
                    let yes = match space {
                        MemSpace::Shared => inside(v, SHARED_WINDOW),
                        MemSpace::Local => inside(v, LOCAL_WINDOW),
                        MemSpace::Global | MemSpace::Const => v >> crate::decode::BUFFER_BITS != 0,
                        _ => false,
                    };
                    m | u32::from(yes) << i
                });
                warp.set_pred(p, active, truth);
            }
            Op::Atomic(ref atomic) => self.atomic(warp, atomic, active, pc),
            Op::CopyAsync(ref copy) => self.copy_async(warp, copy, active, pc),
            Op::CopyCommit => self.copy_commit(warp, active),
            Op::CopyWait(groups) => self.copy_wait(warp, groups, active),
            Op::ProxyFence => self.proxy_fence(warp, active),
            Op::Nothing => {}
            Op::ActiveMask { d } => warp.set32(d, active, &[active; 32]),
            _ => return false,
        }
        true
    }

    fn truth(&self, warp: &Warp, f: CompareFn, a: Src, b: Src) -> u32 {
        match f {
            CompareFn::C32(f) => f(warp.s32(self.kernel, a), warp.s32(self.kernel, b)),
            CompareFn::C64(f) => f(warp.s64(self.kernel, a), warp.s64(self.kernel, b)),
        }
    }

    /// Runs additions with carry. A subtraction adds the complement; its flag is the borrow.
    fn carry(&self, warp: &mut Warp, op: &Op, active: u32) {
        let Op::Carry { f, d, s, wide, invert, reads, sets } = *op else { return };
        let k = self.kernel;
        let row = |src: Src| {
            if wide { *warp.s64(k, src) } else { warp.s32(k, src).map(u64::from) }
        };
        let (x, y) = match f {
            None => (row(s[0]), row(s[1])),
            Some(LaneFn::A2(f)) => {
                (f(warp.s32(k, s[0]), warp.s32(k, s[1])).map(u64::from), row(s[2]))
            }
            Some(LaneFn::B2(f)) => (f(warp.s64(k, s[0]), warp.s64(k, s[1])), row(s[2])),
            Some(_) => unreachable!("a product has two operands"),
        };
        let bits = if wide { 64 } else { 32 };
        let mask = if wide { u128::from(u64::MAX) } else { u128::from(u32::MAX) };
        let (mut out, mut flags) = ([0u64; 32], 0u32);
        for i in 0..32 {
            let flag = u128::from(reads && warp.carry >> i & 1 == 1);
            let (a, b) = (u128::from(x[i]), u128::from(y[i]));
            let sum = if invert { a + (!b & mask) + 1 - flag } else { a + b + flag };
            out[i] = (sum & mask) as u64;
            let over = sum >> bits != 0;
            flags |= u32::from(over != invert) << i;
        }
        if sets {
            warp.carry = (warp.carry & !active) | (flags & active);
        }
        if wide {
            warp.set64(d, active, &out);
        } else {
            warp.set32(d, active, &out.map(|v| v as u32));
        }
    }
}

fn warp_compare(
    warp: &mut Warp,
    active: u32,
    truth: u32,
    with: Option<(Logic, PSrc)>,
    p: Dst,
    q: Dst,
) {
    let (yes, no) = (combine(warp, truth, with), combine(warp, !truth, with));
    warp.set_pred(p, active, yes);
    if q != SINK {
        warp.set_pred(q, active, no);
    }
}

fn combine(warp: &Warp, truth: u32, with: Option<(Logic, PSrc)>) -> u32 {
    match with {
        None => truth,
        Some((logic, p)) => logical(logic, truth, warp.pred(p)),
    }
}

fn logical(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

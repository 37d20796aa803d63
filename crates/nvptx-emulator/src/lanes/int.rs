//! Integer and bit operations.

use super::{LaneFn, lanes};
use crate::ty::Ty;

/// `abs`, `neg`, `not`, `cnot`, `popc`, `clz`, `brev`, and `bfind` with or without `.shiftamt`.
pub(crate) fn unary(op: &str, ty: Ty) -> Option<LaneFn> {
    use Ty::*;
    Some(match (op, ty) {
        ("abs", S16) => lanes!(A1 |a: u32| u32::from((a as i16).wrapping_abs() as u16)),
        ("abs", S32) => lanes!(A1 |a: u32| (a as i32).wrapping_abs() as u32),
        ("abs", S64) => lanes!(B1 |a: u64| (a as i64).wrapping_abs() as u64),
        ("neg", S16) => lanes!(A1 |a: u32| u32::from((a as u16).wrapping_neg())),
        ("neg", S32) => lanes!(A1 |a: u32| a.wrapping_neg()),
        ("neg", S64) => lanes!(B1 |a: u64| a.wrapping_neg()),
        ("not", B16) => lanes!(A1 |a: u32| !a & 0xffff),
        ("not", B32) => lanes!(A1 |a: u32| !a),
        ("not", B64) => lanes!(B1 |a: u64| !a),
        ("cnot", B16 | B32) => lanes!(A1 |a: u32| u32::from(a == 0)),
        ("cnot", B64) => lanes!(B1 |a: u64| u64::from(a == 0)),
        ("popc", B32) => lanes!(A1 |a: u32| a.count_ones()),
        ("popc", B64) => lanes!(Narrow1 |a: u64| a.count_ones()),
        ("clz", B32) => lanes!(A1 |a: u32| a.leading_zeros()),
        ("clz", B64) => lanes!(Narrow1 |a: u64| a.leading_zeros()),
        ("brev", B32) => lanes!(A1 |a: u32| a.reverse_bits()),
        ("brev", B64) => lanes!(B1 |a: u64| a.reverse_bits()),
        ("bfind", U32) => lanes!(A1 bfind),
        ("bfind", S32) => lanes!(A1 |a: u32| bfind(a ^ (a as i32 >> 31) as u32)),
        ("bfind", U64) => lanes!(Narrow1 bfind64),
        ("bfind", S64) => lanes!(Narrow1 |a: u64| bfind64(a ^ (a as i64 >> 63) as u64)),
        ("bfind.shiftamt", U32) => lanes!(A1 |a: u32| shiftamt(bfind(a), 31)),
        ("bfind.shiftamt", U64) => lanes!(Narrow1 |a: u64| shiftamt(bfind64(a), 63)),
        _ => return None,
    })
}

/// Operations on two operands of one type; opcodes such as `mul.lo` include the part.
pub(crate) fn binary(op: &str, ty: Ty) -> Option<LaneFn> {
    use Ty::*;
    Some(match (op, ty) {
        ("add", S16 | U16) => lanes!(A2 |a: u32, b: u32| a.wrapping_add(b) & 0xffff),
        ("add", S32 | U32) => lanes!(A2 |a: u32, b: u32| a.wrapping_add(b)),
        ("add", S64 | U64) => lanes!(B2 |a: u64, b: u64| a.wrapping_add(b)),
        ("add.sat", S32) => lanes!(A2 |a: u32, b: u32| (a as i32).saturating_add(b as i32) as u32),
        ("sub", S16 | U16) => lanes!(A2 |a: u32, b: u32| a.wrapping_sub(b) & 0xffff),
        ("sub", S32 | U32) => lanes!(A2 |a: u32, b: u32| a.wrapping_sub(b)),
        ("sub", S64 | U64) => lanes!(B2 |a: u64, b: u64| a.wrapping_sub(b)),
        ("sub.sat", S32) => lanes!(A2 |a: u32, b: u32| (a as i32).saturating_sub(b as i32) as u32),
        ("mul.lo", S16 | U16) => lanes!(A2 |a: u32, b: u32| a.wrapping_mul(b) & 0xffff),
        ("mul.lo", S32 | U32) => lanes!(A2 |a: u32, b: u32| a.wrapping_mul(b)),
        ("mul.lo", S64 | U64) => lanes!(B2 |a: u64, b: u64| a.wrapping_mul(b)),
        ("mul.hi", S16) => {
            lanes!(A2 |a: u32, b: u32| (s16(a) * s16(b)) as u32 >> 16)
        }
        ("mul.hi", U16) => lanes!(A2 |a: u32, b: u32| a.wrapping_mul(b) >> 16),
        ("mul.hi", S32) => lanes!(A2 mulhi_s32),
        ("mul.hi", U32) => lanes!(A2 mulhi_u32),
        ("mul.hi", S64) => lanes!(B2 mulhi_s64),
        ("mul.hi", U64) => lanes!(B2 mulhi_u64),
        ("mul.wide", S16) => lanes!(A2 |a: u32, b: u32| (s16(a) * s16(b)) as u32),
        ("mul.wide", U16) => lanes!(A2 |a: u32, b: u32| a.wrapping_mul(b)),
        ("mul.wide", S32) => lanes!(Wide2 mulwide_s32),
        ("mul.wide", U32) => lanes!(Wide2 |a: u32, b: u32| u64::from(a) * u64::from(b)),
        ("mul24.lo", S32) => {
            lanes!(A2 |a: u32, b: u32| s24(a).wrapping_mul(s24(b)) as u32)
        }
        ("mul24.lo", U32) => {
            lanes!(A2 |a: u32, b: u32| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff))
        }
        ("div", S16) => lanes!(A2 |a: u32, b: u32| div_s32(s16(a) as u32, s16(b) as u32) & 0xffff),
        ("div", U16 | U32) => lanes!(A2 |a: u32, b: u32| a.checked_div(b).unwrap_or(!0)),
        ("div", S32) => lanes!(A2 div_s32),
        ("div", S64) => lanes!(B2 div_s64),
        ("div", U64) => lanes!(B2 |a: u64, b: u64| a.checked_div(b).unwrap_or(!0)),
        ("rem", S16) => lanes!(A2 |a: u32, b: u32| rem_s32(s16(a) as u32, s16(b) as u32) & 0xffff),
        ("rem", U16 | U32) => lanes!(A2 |a: u32, b: u32| a.checked_rem(b).unwrap_or(a)),
        ("rem", S32) => lanes!(A2 rem_s32),
        ("rem", S64) => lanes!(B2 rem_s64),
        ("rem", U64) => lanes!(B2 |a: u64, b: u64| a.checked_rem(b).unwrap_or(a)),
        ("min", S16) => lanes!(A2 |a: u32, b: u32| if s16(a) < s16(b) { a } else { b }),
        ("min", U16 | U32) => lanes!(A2 |a: u32, b: u32| a.min(b)),
        ("min", S32) => lanes!(A2 |a: u32, b: u32| (a as i32).min(b as i32) as u32),
        ("min", S64) => lanes!(B2 |a: u64, b: u64| (a as i64).min(b as i64) as u64),
        ("min", U64) => lanes!(B2 |a: u64, b: u64| a.min(b)),
        ("max", S16) => lanes!(A2 |a: u32, b: u32| if s16(a) > s16(b) { a } else { b }),
        ("max", U16 | U32) => lanes!(A2 |a: u32, b: u32| a.max(b)),
        ("max", S32) => lanes!(A2 |a: u32, b: u32| (a as i32).max(b as i32) as u32),
        ("max", S64) => lanes!(B2 |a: u64, b: u64| (a as i64).max(b as i64) as u64),
        ("max", U64) => lanes!(B2 |a: u64, b: u64| a.max(b)),
        ("and", B16 | B32) => lanes!(A2 |a: u32, b: u32| a & b),
        ("and", B64) => lanes!(B2 |a: u64, b: u64| a & b),
        ("or", B16 | B32) => lanes!(A2 |a: u32, b: u32| a | b),
        ("or", B64) => lanes!(B2 |a: u64, b: u64| a | b),
        ("xor", B16 | B32) => lanes!(A2 |a: u32, b: u32| a ^ b),
        ("xor", B64) => lanes!(B2 |a: u64, b: u64| a ^ b),
        _ => return None,
    })
}

/// Shifts; the amount always has 32 bits and is clamped at the width.
pub(crate) fn shift(op: &str, ty: Ty) -> Option<LaneFn> {
    use Ty::*;
    Some(match (op, ty) {
        ("shl", B16) => lanes!(A2 |a: u32, b: u32| a.checked_shl(b).unwrap_or(0) & 0xffff),
        ("shl", B32) => lanes!(A2 |a: u32, b: u32| a.checked_shl(b).unwrap_or(0)),
        ("shl", B64) => lanes!(Shift |a: u64, b: u32| a.checked_shl(b).unwrap_or(0)),
        ("shr", B16 | B32 | U16 | U32) => {
            lanes!(A2 |a: u32, b: u32| a.checked_shr(b).unwrap_or(0))
        }
        ("shr", S16) => lanes!(A2 |a: u32, b: u32| (s16(a) >> b.min(15)) as u32 & 0xffff),
        ("shr", S32) => lanes!(A2 |a: u32, b: u32| (a as i32 >> b.min(31)) as u32),
        ("shr", B64 | U64) => lanes!(Shift |a: u64, b: u32| a.checked_shr(b).unwrap_or(0)),
        ("shr", S64) => lanes!(Shift |a: u64, b: u32| (a as i64 >> b.min(63)) as u64),
        _ => return None,
    })
}

/// Three and four operands.
pub(crate) fn ternary(op: &str, ty: Ty) -> Option<LaneFn> {
    use Ty::*;
    Some(match (op, ty) {
        ("mad.lo", S16 | U16) => {
            lanes!(A3 |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c) & 0xffff)
        }
        ("mad.lo", S32 | U32) => {
            lanes!(A3 |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c))
        }
        ("mad.lo", S64 | U64) => {
            lanes!(B3 |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c))
        }
        ("mad.hi", S32) => lanes!(A3 |a, b, c: u32| mulhi_s32(a, b).wrapping_add(c)),
        ("mad.hi", U32) => lanes!(A3 |a, b, c: u32| mulhi_u32(a, b).wrapping_add(c)),
        ("mad.hi", S64) => lanes!(B3 |a, b, c: u64| mulhi_s64(a, b).wrapping_add(c)),
        ("mad.hi", U64) => lanes!(B3 |a, b, c: u64| mulhi_u64(a, b).wrapping_add(c)),
        ("mad.wide", S16) => {
            lanes!(A3 |a: u32, b: u32, c: u32| ((s16(a) * s16(b)) as u32).wrapping_add(c))
        }
        ("mad.wide", U16) => {
            lanes!(A3 |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c))
        }
        ("mad.wide", S32) => lanes!(Wide3 |a, b, c: u64| mulwide_s32(a, b).wrapping_add(c)),
        ("mad.wide", U32) => {
            lanes!(Wide3 |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c))
        }
        ("mad24.lo", S32) => {
            lanes!(A3 |a, b, c: u32| (s24(a).wrapping_mul(s24(b)) as u32).wrapping_add(c))
        }
        ("mad24.lo", U32) => {
            lanes!(A3 |a: u32, b: u32, c: u32| {
                (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff).wrapping_add(c)
            })
        }
        ("sad", S32) => {
            lanes!(A3 |a: u32, b: u32, c: u32| c.wrapping_add((a as i32).abs_diff(b as i32)))
        }
        ("sad", U32) => lanes!(A3 |a: u32, b: u32, c: u32| c.wrapping_add(a.abs_diff(b))),
        ("shf.l.wrap", B32) => lanes!(A3 |a, b, c: u32| funnel(a, b, c & 31, true)),
        ("shf.l.clamp", B32) => lanes!(A3 |a, b, c: u32| funnel(a, b, c.min(32), true)),
        ("shf.r.wrap", B32) => lanes!(A3 |a, b, c: u32| funnel(a, b, c & 31, false)),
        ("shf.r.clamp", B32) => lanes!(A3 |a, b, c: u32| funnel(a, b, c.min(32), false)),
        ("bfe", U32) => lanes!(A3 |a: u32, b, c| bfe(u64::from(a), b, c, 32, false) as u32),
        ("bfe", S32) => lanes!(A3 |a: u32, b, c| bfe(u64::from(a), b, c, 32, true) as u32),
        ("bfe", U64) => lanes!(Field | a, b, c | bfe(a, b, c, 64, false)),
        ("bfe", S64) => lanes!(Field | a, b, c | bfe(a, b, c, 64, true)),
        ("bfi", B32) => {
            lanes!(A4 |a: u32, b: u32, c, d| bfi(u64::from(a), u64::from(b), c, d, 32) as u32)
        }
        ("bfi", B64) => lanes!(Insert | a, b, c, d | bfi(a, b, c, d, 64)),
        ("prmt", B32) => lanes!(A3 prmt),
        ("dp4a.s32", S32) => lanes!(A3 | a, b, c | dp4a(a, b, c, true, true)),
        ("dp4a.u32", U32) => lanes!(A3 | a, b, c | dp4a(a, b, c, false, false)),
        ("dp4a.u32", S32) => lanes!(A3 | a, b, c | dp4a(a, b, c, true, false)),
        ("dp4a.s32", U32) => lanes!(A3 | a, b, c | dp4a(a, b, c, false, true)),
        _ => return None,
    })
}

/// `lop3`: bit `4a + 2b + c` of the table, for each bit.
#[inline]
pub(crate) fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut out = 0;
    for case in 0..8 {
        if table >> case & 1 == 1 {
            let x = if case & 4 != 0 { a } else { !a };
            let y = if case & 2 != 0 { b } else { !b };
            let z = if case & 1 != 0 { c } else { !c };
            out |= x & y & z;
        }
    }
    out
}

fn s16(a: u32) -> i32 {
    i32::from(a as i16)
}

fn s24(a: u32) -> i32 {
    (a << 8) as i32 >> 8
}

fn bfind(a: u32) -> u32 {
    if a == 0 { !0 } else { 31 - a.leading_zeros() }
}

fn bfind64(a: u64) -> u32 {
    if a == 0 { !0 } else { 63 - a.leading_zeros() }
}

fn shiftamt(found: u32, top: u32) -> u32 {
    if found == !0 { found } else { top - found }
}

fn mulwide_s32(a: u32, b: u32) -> u64 {
    (i64::from(a as i32) * i64::from(b as i32)) as u64
}

fn mulhi_s32(a: u32, b: u32) -> u32 {
    (mulwide_s32(a, b) >> 32) as u32
}

fn mulhi_u32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

fn mulhi_s64(a: u64, b: u64) -> u64 {
    ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
}

fn mulhi_u64(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// Division by zero, which the caller reports, gives all ones.
fn div_s32(a: u32, b: u32) -> u32 {
    if b == 0 { !0 } else { (a as i32).wrapping_div(b as i32) as u32 }
}

fn rem_s32(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { (a as i32).wrapping_rem(b as i32) as u32 }
}

fn div_s64(a: u64, b: u64) -> u64 {
    if b == 0 { !0 } else { (a as i64).wrapping_div(b as i64) as u64 }
}

fn rem_s64(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 }
}

fn funnel(low: u32, high: u32, amount: u32, left: bool) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    if left { ((both << amount) >> 32) as u32 } else { (both >> amount) as u32 }
}

fn bfe(a: u64, pos: u32, len: u32, width: u32, signed: bool) -> u64 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    let msb = width - 1;
    let sign = if !signed || len == 0 { 0 } else { a >> (pos + len - 1).min(msb) & 1 };
    let mut out = 0;
    for i in 0..width {
        let inside = i < len && pos + i <= msb;
        let bit = if inside { a >> (pos + i) & 1 } else { sign };
        out |= bit << i;
    }
    out
}

fn bfi(a: u64, b: u64, pos: u32, len: u32, width: u32) -> u64 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    if pos >= width || len == 0 {
        return b;
    }
    let len = len.min(width - pos);
    let field = if len == 64 { !0 } else { (1u64 << len) - 1 };
    (b & !(field << pos)) | (a & field) << pos
}

fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    let mut out = 0;
    for i in 0..4 {
        let pick = selector >> (4 * i) & 15;
        let byte = (both >> (8 * (pick & 7))) as u8;
        let byte = if pick & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        out |= u32::from(byte) << (8 * i);
    }
    out
}

fn dp4a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let part = |v: u32, i: u32, signed: bool| {
        let byte = (v >> (8 * i)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (0..4).fold(c, |acc, i| acc.wrapping_add((part(a, i, a_signed) * part(b, i, b_signed)) as u32))
}

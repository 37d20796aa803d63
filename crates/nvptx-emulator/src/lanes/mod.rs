//! The arithmetic of one warp: functions over rows of 32 lanes.
//!
//! The decoder selects a function by opcode, type and modifiers. The executor applies it to whole
//! rows and writes the active lanes. A function must be defined for all bits, because inactive
//! lanes have arbitrary values. 16-bit values are in the low half of a 32-bit lane; the upper half
//! is zero.

pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod int;

/// A row of 32-bit registers, a lane for each thread.
pub(crate) type R32 = [u32; 32];
/// A row of 64-bit registers.
pub(crate) type R64 = [u64; 32];

/// A lane function, by the register files of result and operands.
#[derive(Clone, Copy)]
pub(crate) enum LaneFn {
    /// 32-bit result of one, two, three 32-bit operands.
    A1(fn(&R32) -> R32),
    A2(fn(&R32, &R32) -> R32),
    A3(fn(&R32, &R32, &R32) -> R32),
    A4(fn(&R32, &R32, &R32, &R32) -> R32),
    /// 64-bit result of 64-bit operands.
    B1(fn(&R64) -> R64),
    B2(fn(&R64, &R64) -> R64),
    B3(fn(&R64, &R64, &R64) -> R64),
    /// 64-bit result of 32-bit operands, the last one 64 bits in `Wide3`.
    Wide1(fn(&R32) -> R64),
    Wide2(fn(&R32, &R32) -> R64),
    Wide3(fn(&R32, &R32, &R64) -> R64),
    /// 32-bit result of a 64-bit operand.
    Narrow1(fn(&R64) -> R32),
    /// 64-bit shifts and bit fields: the other operands have 32 bits.
    Shift(fn(&R64, &R32) -> R64),
    Field(fn(&R64, &R32, &R32) -> R64),
    Insert(fn(&R64, &R64, &R32, &R32) -> R64),
}

/// A comparison; returns the mask of the lanes in which it is true.
#[derive(Clone, Copy)]
pub(crate) enum CompareFn {
    C32(fn(&R32, &R32) -> u32),
    C64(fn(&R64, &R64) -> u32),
}

/// Makes a lane function from a scalar one; the letter names the shape.
macro_rules! lanes {
    (A1 $f:expr) => {
        $crate::lanes::LaneFn::A1(|a| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i]);
            }
            out
        })
    };
    (A2 $f:expr) => {
        $crate::lanes::LaneFn::A2(|a, b| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i]);
            }
            out
        })
    };
    (A3 $f:expr) => {
        $crate::lanes::LaneFn::A3(|a, b, c| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i], c[i]);
            }
            out
        })
    };
    (A4 $f:expr) => {
        $crate::lanes::LaneFn::A4(|a, b, c, d| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i], c[i], d[i]);
            }
            out
        })
    };
    (B1 $f:expr) => {
        $crate::lanes::LaneFn::B1(|a| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i]);
            }
            out
        })
    };
    (B2 $f:expr) => {
        $crate::lanes::LaneFn::B2(|a, b| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i]);
            }
            out
        })
    };
    (B3 $f:expr) => {
        $crate::lanes::LaneFn::B3(|a, b, c| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i], c[i]);
            }
            out
        })
    };
    (Wide1 $f:expr) => {
        $crate::lanes::LaneFn::Wide1(|a| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i]);
            }
            out
        })
    };
    (Wide2 $f:expr) => {
        $crate::lanes::LaneFn::Wide2(|a, b| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i]);
            }
            out
        })
    };
    (Wide3 $f:expr) => {
        $crate::lanes::LaneFn::Wide3(|a, b, c| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i], c[i]);
            }
            out
        })
    };
    (Narrow1 $f:expr) => {
        $crate::lanes::LaneFn::Narrow1(|a| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i]);
            }
            out
        })
    };
    (Shift $f:expr) => {
        $crate::lanes::LaneFn::Shift(|a, b| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i]);
            }
            out
        })
    };
    (Field $f:expr) => {
        $crate::lanes::LaneFn::Field(|a, b, c| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i], c[i]);
            }
            out
        })
    };
    (Insert $f:expr) => {
        $crate::lanes::LaneFn::Insert(|a, b, c, d| {
            let mut out = [0; 32];
            for i in 0..32 {
                out[i] = $f(a[i], b[i], c[i], d[i]);
            }
            out
        })
    };
}
pub(crate) use lanes;

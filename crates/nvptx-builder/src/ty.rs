//! Types of PTX values, as values ([`Ty`]) and as Rust types ([`F32`], [`U64`], …).
//!
//! Each instruction is a generic method. Operands with a static type (`Reg<F32>`) are checked by
//! the Rust compiler. A generator that knows its types only at run time uses `Reg<Dyn>`, whose
//! [`Ty`] is checked when the instruction is built. The text is the same.

use std::fmt;

/// A PTX type of a register, an instruction or an element in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Ty {
    /// A truth value; only in registers.
    Pred,
    /// 8 bits; only in memory.
    B8,
    /// 8 bits, unsigned; only in memory and conversions.
    U8,
    /// 8 bits, signed; only in memory and conversions.
    S8,
    /// 16 bits.
    B16,
    /// 16 bits, unsigned.
    U16,
    /// 16 bits, signed.
    S16,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// Two 8-bit floats, 4 bits of exponent.
    E4m3x2,
    /// Two 8-bit floats, 5 bits of exponent.
    E5m2x2,
    /// 32 bits.
    B32,
    /// 32 bits, unsigned.
    U32,
    /// 32 bits, signed.
    S32,
    /// IEEE binary32.
    F32,
    /// Two [`Ty::F16`].
    F16x2,
    /// Two [`Ty::Bf16`].
    Bf16x2,
    /// A binary32 whose low 13 bits tensor cores ignore.
    Tf32,
    /// 64 bits.
    B64,
    /// 64 bits, unsigned.
    U64,
    /// 64 bits, signed.
    S64,
    /// IEEE binary64.
    F64,
    /// Two [`Ty::F32`].
    F32x2,
    /// 128 bits; only moved, loaded and stored.
    B128,
}

/// A register class, in which registers are declared. Types of a class share registers: a `u32` may
/// be read as `s32` or `b32` without an instruction, an `f32` may not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Class {
    /// `%p`
    Pred,
    /// `%h`
    B16,
    /// `%r`
    B32,
    /// `%f`
    F32,
    /// `%rd`
    B64,
    /// `%fd`
    F64,
    /// `%q`
    B128,
}

impl Class {
    /// All classes, in the order of their declarations.
    pub const ALL: [Class; 7] =
        [Class::Pred, Class::B16, Class::B32, Class::F32, Class::B64, Class::F64, Class::B128];

    /// Returns the type in the declaration.
    pub fn declared(self) -> &'static str {
        match self {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B32 => "b32",
            Class::F32 => "f32",
            Class::B64 => "b64",
            Class::F64 => "f64",
            Class::B128 => "b128",
        }
    }

    /// Returns the prefix of register names, after `%`.
    pub fn prefix(self) -> &'static str {
        match self {
            Class::Pred => "p",
            Class::B16 => "h",
            Class::B32 => "r",
            Class::F32 => "f",
            Class::B64 => "rd",
            Class::F64 => "fd",
            Class::B128 => "q",
        }
    }
}

impl Ty {
    /// Returns the name in PTX, without the dot.
    pub fn name(self) -> &'static str {
        use Ty::*;
        match self {
            Pred => "pred",
            B8 => "b8",
            U8 => "u8",
            S8 => "s8",
            B16 => "b16",
            U16 => "u16",
            S16 => "s16",
            F16 => "f16",
            Bf16 => "bf16",
            E4m3x2 => "e4m3x2",
            E5m2x2 => "e5m2x2",
            B32 => "b32",
            U32 => "u32",
            S32 => "s32",
            F32 => "f32",
            F16x2 => "f16x2",
            Bf16x2 => "bf16x2",
            Tf32 => "tf32",
            B64 => "b64",
            U64 => "u64",
            S64 => "s64",
            F64 => "f64",
            F32x2 => "f32x2",
            B128 => "b128",
        }
    }

    /// Returns the bits of a value; 1 for [`Ty::Pred`].
    pub fn bits(self) -> u32 {
        use Ty::*;
        match self {
            Pred => 1,
            B8 | U8 | S8 => 8,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => 16,
            B32 | U32 | S32 | F32 | F16x2 | Bf16x2 | Tf32 => 32,
            B64 | U64 | S64 | F64 | F32x2 => 64,
            B128 => 128,
        }
    }

    /// Returns the bytes of an element in memory.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Returns the class of its registers. Types of 8 bits use registers of 16.
    pub fn class(self) -> Class {
        match self {
            Ty::Pred => Class::Pred,
            Ty::F32 => Class::F32,
            Ty::F64 => Class::F64,
            _ => match self.bits() {
                8 | 16 => Class::B16,
                32 => Class::B32,
                64 => Class::B64,
                _ => Class::B128,
            },
        }
    }

    /// Returns the untyped type of the same size: `b32` for `s32`; `pred` for itself.
    pub fn untyped(self) -> Ty {
        match self.bits() {
            1 => Ty::Pred,
            8 => Ty::B8,
            16 => Ty::B16,
            32 => Ty::B32,
            64 => Ty::B64,
            _ => Ty::B128,
        }
    }

    /// Whether it is a signed or unsigned integer; `b32` is neither.
    pub fn is_int(self) -> bool {
        self.is_signed() || matches!(self, Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64)
    }

    /// Whether it is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// Whether it is `f32` or `f64`.
    pub fn is_float(self) -> bool {
        matches!(self, Ty::F32 | Ty::F64)
    }

    /// Whether it is a 16-bit float or a pair of them.
    pub fn is_half(self) -> bool {
        matches!(self, Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2)
    }

    /// Returns the integer type of twice the size, the result of `mul.wide`.
    pub fn widened(self) -> Option<Ty> {
        match self {
            Ty::U16 => Some(Ty::U32),
            Ty::S16 => Some(Ty::S32),
            Ty::U32 => Some(Ty::U64),
            Ty::S32 => Some(Ty::S64),
            _ => None,
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of a register or operand: a marker below, or [`Dyn`].
pub trait Kind: Copy + fmt::Debug + 'static {
    /// The type; `None` if it is known at run time only.
    const TY: Option<Ty>;
}

/// A static type.
pub trait Static: Kind {
    /// The type.
    const STATIC: Ty;
}

/// Signed and unsigned integers, and floats: `add`, `sub`, `min`, comparisons.
pub trait Num: Kind {}
/// Signed and unsigned integers.
pub trait Int: Num {}
/// Floats.
pub trait Float: Num {}
/// Integers, bits and predicates: `and`, `or`, `xor`, `not`.
pub trait Bits: Kind {}
/// Integers that `mul.wide` multiplies.
pub trait Widen: Int {
    /// The type of twice the size.
    type Wide: Int;
}

/// A type that is known at run time only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dyn;

impl Kind for Dyn {
    const TY: Option<Ty> = None;
}
impl Num for Dyn {}
impl Int for Dyn {}
impl Float for Dyn {}
impl Bits for Dyn {}
impl Widen for Dyn {
    type Wide = Dyn;
}

macro_rules! markers {
    ($($name:ident $($bound:ident)*;)*) => {$(
        #[doc = concat!("[`Ty::", stringify!($name), "`] as a static type.")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name;
        impl Kind for $name {
            const TY: Option<Ty> = Some(Ty::$name);
        }
        impl Static for $name {
            const STATIC: Ty = Ty::$name;
        }
        $(impl $bound for $name {})*
    )*};
}

markers! {
    Pred Bits;
    B16 Bits;
    U16 Num Int Bits;
    S16 Num Int Bits;
    F16 Num Float;
    Bf16 Num Float;
    E4m3x2;
    E5m2x2;
    B32 Bits;
    U32 Num Int Bits;
    S32 Num Int Bits;
    F32 Num Float;
    F16x2 Num Float;
    Bf16x2 Num Float;
    Tf32;
    B64 Bits;
    U64 Num Int Bits;
    S64 Num Int Bits;
    F64 Num Float;
    F32x2 Num Float;
    B128;
}

impl Widen for U16 {
    type Wide = U32;
}
impl Widen for S16 {
    type Wide = S32;
}
impl Widen for U32 {
    type Wide = U64;
}
impl Widen for S32 {
    type Wide = S64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_sizes() {
        assert_eq!(Ty::U8.class(), Class::B16);
        assert_eq!(Ty::Bf16x2.class(), Class::B32);
        assert_eq!(Ty::F32.class(), Class::F32);
        assert_eq!(Ty::F32x2.class(), Class::B64);
        assert_eq!(Ty::Tf32.untyped(), Ty::B32);
        assert_eq!(Ty::S16.widened(), Some(Ty::S32));
        assert_eq!(Ty::S64.widened(), None);
    }
}

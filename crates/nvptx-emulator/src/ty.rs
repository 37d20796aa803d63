//! The types of PTX: names, sizes and register files.

/// A PTX type of registers and instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub(crate) enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F32x2,
    F64,
    /// The 8-bit floats: single in matrices, in pairs in conversions.
    E4M3,
    E5M2,
    E4M3x2,
    E5M2x2,
}

/// The register file of a type. A predicate has one bit per lane, a type of up to 32 bits a row of
/// 32-bit lanes, a 64-bit type a row of 64-bit lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Pred,
    R32,
    R64,
    R128,
}

const NAMES: &[(&str, Ty)] = &[
    ("pred", Ty::Pred),
    ("b8", Ty::B8),
    ("b16", Ty::B16),
    ("b32", Ty::B32),
    ("b64", Ty::B64),
    ("b128", Ty::B128),
    ("u8", Ty::U8),
    ("u16", Ty::U16),
    ("u32", Ty::U32),
    ("u64", Ty::U64),
    ("s8", Ty::S8),
    ("s16", Ty::S16),
    ("s32", Ty::S32),
    ("s64", Ty::S64),
    ("f16", Ty::F16),
    ("f16x2", Ty::F16x2),
    ("bf16", Ty::BF16),
    ("bf16x2", Ty::BF16x2),
    ("tf32", Ty::TF32),
    ("f32", Ty::F32),
    ("f32x2", Ty::F32x2),
    ("f64", Ty::F64),
    ("e4m3", Ty::E4M3),
    ("e5m2", Ty::E5M2),
    ("e4m3x2", Ty::E4M3x2),
    ("e5m2x2", Ty::E5M2x2),
];

impl Ty {
    /// Returns the type with this name, without the dot.
    pub fn parse(name: &str) -> Option<Ty> {
        NAMES.iter().find(|(n, _)| *n == name).map(|(_, ty)| *ty)
    }

    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, ty)| *ty == self).expect("every type has a name").0
    }

    /// Returns the size of a value in memory in bytes; 0 for predicates.
    pub fn bytes(self) -> u32 {
        match self {
            Ty::Pred => 0,
            Ty::B8 | Ty::U8 | Ty::S8 | Ty::E4M3 | Ty::E5M2 => 1,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 | Ty::E4M3x2 | Ty::E5M2x2 => 2,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F16x2 | Ty::BF16x2 | Ty::TF32 | Ty::F32 => 4,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 | Ty::F32x2 => 8,
            Ty::B128 => 16,
        }
    }

    pub fn bits(self) -> u32 {
        self.bytes() * 8
    }

    pub fn class(self) -> Class {
        match self.bytes() {
            0 => Class::Pred,
            1 | 2 | 4 => Class::R32,
            8 => Class::R64,
            _ => Class::R128,
        }
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    pub fn is_float(self) -> bool {
        !self.is_int() && !self.is_bits() && self != Ty::Pred
    }

    /// Whether it is an 8-bit float, which only conversions and matrices have.
    pub fn is_float8(self) -> bool {
        matches!(self, Ty::E4M3 | Ty::E5M2 | Ty::E4M3x2 | Ty::E5M2x2)
    }

    pub fn is_int(self) -> bool {
        self.is_signed() || matches!(self, Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64)
    }

    pub fn is_bits(self) -> bool {
        matches!(self, Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64 | Ty::B128)
    }

    /// Whether an instruction of type `self` accepts a register of type `reg` and the same size:
    /// bits match all types, integers match integers, floats match floats. Packed and short floats
    /// may also be in untyped registers.
    pub fn agrees_with(self, reg: Ty) -> bool {
        if self.bytes() != reg.bytes() {
            return false;
        }
        if self.is_bits() || reg.is_bits() || self == reg {
            return true;
        }
        if matches!(self, Ty::TF32 | Ty::F16x2 | Ty::BF16x2 | Ty::BF16 | Ty::F16) {
            return true;
        }
        self.is_float() == reg.is_float()
    }
}

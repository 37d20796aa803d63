//! The element types of tensors.

/// A type of elements in memory: DLPack's code and the number of bits.
///
/// # Safety
/// A value has `BITS / 8` bytes without padding. Every pattern of bits that a kernel writes to an
/// output of the type that `CODE` and `BITS` name is a value.
pub unsafe trait Element: Copy + 'static {
    /// DLPack's type code.
    const CODE: u8;
    /// Bits of a value.
    const BITS: u8;
}

macro_rules! elements {
    ($($ty:ty: $code:literal;)*) => {
        $(
            // SAFETY: numbers have no padding, and all patterns are values. Kernels write 0 or 1 to
            // outputs of the type `bool`.
            unsafe impl Element for $ty {
                const CODE: u8 = $code;
                const BITS: u8 = 8 * size_of::<$ty>() as u8;
            }
        )*
    };
}

elements! {
    i8: 0;
    i16: 0;
    i32: 0;
    i64: 0;
    u8: 1;
    u16: 1;
    u32: 1;
    u64: 1;
    f32: 2;
    f64: 2;
    bool: 6;
    F16: 2;
    BF16: 4;
}

/// A `float16` as its bits. With the feature `half`, bindings take `half::f16` too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct F16(
    /// The bits of IEEE 754 binary16.
    pub u16,
);

/// A `bfloat16` as its bits. With the feature `half`, bindings take `half::bf16` too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct BF16(
    /// The upper 16 bits of a float32.
    pub u16,
);

/// A type for `float16`: [`F16`], and `half::f16` with the feature `half`.
pub trait Float16: Element {
    /// Returns the bits.
    fn bits(self) -> u16;
}

/// A type for `bfloat16`: [`BF16`], and `half::bf16` with the feature `half`.
pub trait BFloat16: Element {
    /// Returns the bits.
    fn bits(self) -> u16;
}

impl Float16 for F16 {
    fn bits(self) -> u16 {
        self.0
    }
}

impl BFloat16 for BF16 {
    fn bits(self) -> u16 {
        self.0
    }
}

#[cfg(feature = "half")]
mod of_half {
    use super::{BFloat16, Element, Float16};

    // SAFETY: a transparent `u16`.
    unsafe impl Element for half::f16 {
        const CODE: u8 = 2;
        const BITS: u8 = 16;
    }

    // SAFETY: a transparent `u16`.
    unsafe impl Element for half::bf16 {
        const CODE: u8 = 4;
        const BITS: u8 = 16;
    }

    impl Float16 for half::f16 {
        fn bits(self) -> u16 {
            self.to_bits()
        }
    }

    impl BFloat16 for half::bf16 {
        fn bits(self) -> u16 {
            self.to_bits()
        }
    }
}

//! Divisions of integers by a constant: by a shift, by a product with the reciprocal, or in floats.

use crate::ir::DType;

/// How integers are divided by a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConstantDivision {
    /// By a power of two: a shift by this number of bits, or a mask for the remainder.
    Shift(u32),
    /// By another positive constant: the high half of a product.
    Multiply(Reciprocal),
    /// By a negative constant: a product of floats of this type.
    Float(DType),
    /// Integers of 64 bits by a negative constant or one of 64 bits: one lane after the other.
    EachLane,
}

/// The reciprocal of a constant, for dividends that are not negative. Words are elements of 16 bits
/// for dividends of 8 and 16 bits, else as long as the dividends. With `high(y)`, the high
/// half of the product of `y` and `factor`, and `y = x >> before`, the quotient is
/// `high(y) >> after`, or, if `is_long`, `(high(y) + ((y - high(y)) >> 1)) >> after`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reciprocal {
    /// Bits that the dividend is shifted by before the product.
    pub before: u32,
    /// The factor, without the highest bit of a long one.
    pub factor: u64,
    /// Whether the factor has one bit more than a word.
    pub is_long: bool,
    /// Bits that the high half is shifted by.
    pub after: u32,
}

/// Returns how an integer is divided by a constant that is not 0.
pub fn constant_division(dtype: DType, divisor: i128) -> ConstantDivision {
    match u64::try_from(divisor) {
        Ok(divisor) if divisor.is_power_of_two() => {
            ConstantDivision::Shift(divisor.trailing_zeros())
        }
        Ok(divisor) if divisor <= 1 << 63 => {
            // `x // d` is `~(~x // d)` for negative `x`, so that the sign is no part of a dividend.
            let bits = dtype.bits() - u32::from(dtype.is_signed());
            ConstantDivision::Multiply(Reciprocal::of(divisor, bits, dtype.bits().max(16)))
        }
        _ if dtype.bytes() == 8 => ConstantDivision::EachLane,
        // A float32 has enough bits for integers of 16 bits.
        _ if dtype.bytes() <= 2 => ConstantDivision::Float(DType::Float32),
        _ => ConstantDivision::Float(DType::Float64),
    }
}

impl ConstantDivision {
    /// Returns the bytes of the longest element that a division of a type computes with.
    pub fn element_bytes(self, dtype: DType) -> u64 {
        match self {
            ConstantDivision::Float(float) => float.bytes(),
            _ => dtype.bytes(),
        }
    }

    /// Returns the number of instructions for a register of quotients. An estimate: instruction
    /// sets differ by one or two of them.
    pub fn instructions(self, dtype: DType) -> u32 {
        match self {
            ConstantDivision::Shift(_) => 1,
            ConstantDivision::Multiply(reciprocal) => {
                let Reciprocal { before, is_long, after, .. } = reciprocal;
                let shifts = u32::from(before > 0) + u32::from(after > 0);
                let word = shifts + if is_long { 3 } else { 0 };
                let signs = if dtype.is_signed() { 3 } else { 0 };
                signs
                    + match dtype.bytes() {
                        // Even and odd bytes are separate words.
                        1 => 4 + 2 * (word + 1),
                        2 => word + 1,
                        // Even and odd products have twice the length.
                        4 => word + 5,
                        // Four products of halves.
                        _ => word + 13,
                    }
            }
            ConstantDivision::Float(_) => 6,
            ConstantDivision::EachLane => 60,
        }
    }
}

impl Reciprocal {
    /// Returns the reciprocal of a constant that is no power of two, for dividends of `bits` bits
    /// in words of at least as many.
    fn of(divisor: u64, bits: u32, word: u32) -> Reciprocal {
        if let Some(found) = Reciprocal::short(divisor, bits, word) {
            return found;
        }
        let before = divisor.trailing_zeros();
        if before > 0
            && let Some(found) = Reciprocal::short(divisor >> before, bits - before, word)
        {
            return Reciprocal { before, ..found };
        }
        let log = divisor.next_power_of_two().trailing_zeros();
        let factor = (1u128 << (bits + log)) / u128::from(divisor) + 1;
        let factor = (factor - (1 << word)) as u64;
        Reciprocal { before: 0, factor, is_long: true, after: log - 1 }
    }

    /// Returns a factor that fits into a word, with the least shift. `m = 2^k // d + 1` gives
    /// `x // d = x * m >> k` for all `x` of `bits` bits if `m * d - 2^k` is at most `2^(k - bits)`
    /// (Granlund and Montgomery, "Division by invariant integers using multiplication", theorem
    /// 4.2).
    fn short(divisor: u64, bits: u32, word: u32) -> Option<Reciprocal> {
        let divisor = u128::from(divisor);
        (0..=bits)
            .map(|after| (after, (1u128 << (word + after)) / divisor + 1))
            .take_while(|(_, factor)| factor >> word == 0)
            .find(|(after, factor)| {
                let power = 1u128 << (word + after);
                factor * divisor - power <= power >> bits
            })
            .map(|(after, factor)| Reciprocal {
                before: 0,
                factor: factor as u64,
                is_long: false,
                after,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quotient as the documentation of [`Reciprocal`] says, in words of `word` bits.
    fn quotient(reciprocal: Reciprocal, x: u64, word: u32) -> u64 {
        let y = x >> reciprocal.before;
        let high = ((u128::from(y) * u128::from(reciprocal.factor)) >> word) as u64;
        let high = if reciprocal.is_long { high + ((y - high) >> 1) } else { high };
        high >> reciprocal.after
    }

    fn check(dtype: DType, divisor: u64, dividends: impl Iterator<Item = u64>) {
        let ConstantDivision::Multiply(reciprocal) = constant_division(dtype, divisor.into())
        else {
            assert!(divisor.is_power_of_two(), "{dtype} by {divisor}");
            return;
        };
        let word = dtype.bits().max(16);
        assert!(u128::from(reciprocal.factor) >> word == 0);
        for x in dividends {
            assert_eq!(quotient(reciprocal, x, word), x / divisor, "{dtype}: {x} by {divisor}");
        }
    }

    #[test]
    fn reciprocals_of_all_short_divisors_are_exact() {
        for divisor in 1..=255 {
            check(DType::Uint8, divisor, 0..256);
            if divisor < 128 {
                check(DType::Int8, divisor, 0..128);
            }
        }
        // Quotients change at multiples of the divisor only.
        let near_multiples = |divisor: u64, end: u64| {
            let multiples = (0..=end / divisor).map(move |quotient| quotient * divisor);
            let near = multiples.flat_map(move |x| [x, x.saturating_sub(1)]);
            near.chain([end - 1]).filter(move |x| *x < end)
        };
        for divisor in 1..65536 {
            check(DType::Uint16, divisor, near_multiples(divisor, 1 << 16));
            if divisor < 32768 {
                check(DType::Int16, divisor, near_multiples(divisor, 1 << 15));
            }
        }
    }

    #[test]
    fn reciprocals_of_64_bits_are_exact_at_the_ends() {
        let small = (3..500).chain([10_000, 86_400, 1_000_000_007]);
        let divisors = small.clone().chain(small.clone().map(|d| d << 32 | 1));
        for divisor in divisors.chain(small.map(|d| (1 << 63) - d)) {
            for (dtype, last) in [(DType::Uint64, u64::MAX), (DType::Int64, u64::MAX >> 1)] {
                let ends = (0..4).chain(last / divisor - 4.min(last / divisor)..=last / divisor);
                let near = ends.filter_map(|quotient| divisor.checked_mul(quotient));
                let near = near.flat_map(|x| [x, x.saturating_sub(1), x.saturating_add(1)]);
                check(dtype, divisor, near.chain([last]).filter(move |x| *x <= last));
            }
        }
    }

    #[test]
    fn reciprocals_of_long_divisors_are_exact_at_the_ends() {
        let divisors = (1..2000).chain((1..2000).map(|n| (1 << 32) - n));
        let divisors = divisors.chain((1..2000).map(|n| n * 2_147_483));
        for divisor in divisors.flat_map(|d| [d, (d >> 1).max(1), (1 << 31) - (d >> 2)]) {
            for (dtype, end) in [(DType::Uint32, 1u64 << 32), (DType::Int32, 1 << 31)] {
                if divisor < end {
                    let last = (end - 1) / divisor;
                    let quotients = (0..4).chain(last.saturating_sub(50)..=last);
                    let near = quotients.map(|quotient| quotient * divisor);
                    let near = near.flat_map(|x| [x, x.saturating_sub(1), x + 1]);
                    check(dtype, divisor, near.chain([end - 1]).filter(move |x| *x < end));
                }
            }
        }
    }
}

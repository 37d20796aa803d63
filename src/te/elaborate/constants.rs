//! Exact numbers: literals, `-D` values, arithmetic of constant expressions, rounding.
//!
//! Constant expressions are exact rationals, rounded once when they get a floating-point type.
//! [`MAX_BITS`] limits their size, so that no program makes the compiler slow.

use crate::ir::DType;
use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// The largest size of a constant, numerator and denominator together.
pub const MAX_BITS: u64 = 4096;

/// Why a number cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumberError {
    /// More than [`MAX_BITS`].
    TooLarge,
    /// Not a number.
    Malformed,
}

/// Whether a number has at most [`MAX_BITS`].
pub fn is_small(value: &BigRational) -> bool {
    value.numer().bits() + value.denom().bits() <= MAX_BITS
}

/// Parses an integer: `12`, `0x1f`.
pub fn parse_integer(text: &str) -> Result<BigInt, NumberError> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(NumberError::Malformed);
    }
    let digits = digits.trim_start_matches('0');
    if digits.len() as u64 > MAX_BITS / 3 {
        return Err(NumberError::TooLarge);
    }
    let magnitude = match digits {
        "" => BigUint::zero(),
        _ => BigUint::parse_bytes(digits.as_bytes(), radix).ok_or(NumberError::Malformed)?,
    };
    match magnitude.bits() <= MAX_BITS {
        true => Ok(BigInt::from(magnitude)),
        false => Err(NumberError::TooLarge),
    }
}

/// Parses a decimal number: `0.5`, `1e-5`, also `3`.
pub fn parse_real(text: &str) -> Result<BigRational, NumberError> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(NumberError::Malformed);
    }
    let value = parse_integer(&digits)?;
    let exponent = exponent - fraction.len() as i64;
    if value.is_zero() {
        return Ok(BigRational::zero());
    }
    if exponent.unsigned_abs() > MAX_BITS / 3 {
        return Err(NumberError::TooLarge);
    }
    let power = BigInt::from(10).pow(exponent.unsigned_abs() as u32);
    let value = match exponent < 0 {
        true => BigRational::new(value, power),
        false => BigRational::from_integer(value * power),
    };
    if is_small(&value) { Ok(value) } else { Err(NumberError::TooLarge) }
}

fn parse_exponent(text: &str) -> Result<i64, NumberError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(NumberError::Malformed);
    }
    // A larger exponent belongs to a number that is too large anyway.
    let value: i64 = digits.parse().unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
    Ok(if text.starts_with('-') { -value } else { value })
}

/// Floor division; division by zero gives 0.
pub fn floor_div(a: &BigInt, b: &BigInt) -> BigInt {
    if b.is_zero() { BigInt::zero() } else { a.div_floor(b) }
}

/// Floor modulo; modulo zero gives 0.
pub fn floor_mod(a: &BigInt, b: &BigInt) -> BigInt {
    if b.is_zero() { BigInt::zero() } else { a.mod_floor(b) }
}

/// Returns a shift amount, taken modulo the 64 bits of `index`.
pub fn shift_amount(b: &BigInt) -> usize {
    b.mod_floor(&BigInt::from(64)).to_usize().expect("below 64")
}

/// Rounds to the nearest integer, ties to even.
pub fn round_half_even(value: &BigRational) -> BigInt {
    let floor = value.floor().to_integer();
    let rest = value - BigRational::from_integer(floor.clone());
    let half = BigRational::new(BigInt::one(), BigInt::from(2));
    match rest.cmp(&half) {
        std::cmp::Ordering::Less => floor,
        std::cmp::Ordering::Greater => floor + 1,
        std::cmp::Ordering::Equal if floor.is_even() => floor,
        std::cmp::Ordering::Equal => floor + 1,
    }
}

/// Rounds to nearest even in a floating-point type; `None` if the value is too large.
pub fn to_float(value: &BigRational, dtype: DType) -> Option<f64> {
    let (precision, min_exponent, max_exponent) = match dtype {
        DType::Float64 => (53, -1022, 1023),
        DType::Float32 => (24, -126, 127),
        DType::Float16 => (11, -14, 15),
        DType::BFloat16 => (8, -126, 127),
        DType::Float8E4M3 => (4, -6, 8),
        DType::Float8E5M2 => (3, -14, 15),
        _ => crate::bug!("to_float({dtype})"),
    };
    if value.is_zero() {
        return Some(0.0);
    }
    let (numer, denom) = (value.numer().magnitude(), value.denom().magnitude());
    let estimate = numer.bits() as i64 - denom.bits() as i64;
    let reached = match estimate >= 0 {
        true => *numer >= denom << estimate as u64,
        false => numer << (-estimate) as u64 >= *denom,
    };
    let exponent = if reached { estimate } else { estimate - 1 };
    let quantum = exponent.max(min_exponent) - (precision - 1);
    let (scaled_numer, scaled_denom) = match quantum >= 0 {
        true => (numer.clone(), denom << quantum as u64),
        false => (numer << (-quantum) as u64, denom.clone()),
    };
    let ratio = BigRational::new(scaled_numer.into(), scaled_denom.into());
    let rounded = round_half_even(&ratio);
    if rounded.bits() as i64 + quantum > max_exponent + 1 {
        return None;
    }
    let magnitude = scale(rounded.to_f64().expect("at most 53 bits"), quantum);
    if dtype == DType::Float8E4M3 && magnitude > 448.0 {
        // NaN has the place of 480.
        return None;
    }
    Some(if value.is_negative() { -magnitude } else { magnitude })
}

/// `value * 2^exponent`, exact because the result is representable.
fn scale(mut value: f64, mut exponent: i64) -> f64 {
    let power = |e: i64| f64::from_bits(((e + 1023) as u64) << 52);
    while exponent < -1000 {
        value *= power(-1000);
        exponent += 1000;
    }
    while exponent > 1000 {
        value *= power(1000);
        exponent -= 1000;
    }
    value * power(exponent)
}

/// Whether an integer is exactly representable in a numeric type.
pub fn is_exact(value: &BigInt, dtype: DType) -> bool {
    if dtype.is_float() {
        let exact = BigRational::from_integer(value.clone());
        return match to_float(&exact, dtype) {
            Some(rounded) => BigRational::from_float(rounded) == Some(exact),
            None => false,
        };
    }
    let (min, max) = dtype.int_range();
    value.to_i128().is_some_and(|value| (min..=max).contains(&value))
}

/// Truncates to an integer, then saturates.
pub fn truncate(value: &BigRational, dtype: DType) -> i128 {
    let (min, max) = dtype.int_range();
    let whole = value.trunc().to_integer();
    match whole.to_i128() {
        Some(whole) => whole.clamp(min, max),
        None if whole.sign() == Sign::Minus => min,
        None => max,
    }
}

/// Prints a real: the shortest decimal if it is a binary64 number, else a fraction.
pub fn show_real(value: &BigRational) -> String {
    if value.is_integer() && value.numer().bits() <= 64 {
        return format!("{}.0", value.numer());
    }
    let Some(float) = to_float(value, DType::Float64) else { return value.to_string() };
    let text = format!("{float:?}");
    let unsigned = text.strip_prefix('-').unwrap_or(&text);
    let back = parse_real(unsigned).map(|x| if float < 0.0 { -x } else { x });
    if back.as_ref() == Ok(value) { text } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_exact() {
        assert_eq!(parse_integer("0x1F"), Ok(BigInt::from(31)));
        assert_eq!(parse_integer("12x"), Err(NumberError::Malformed));
        assert_eq!(parse_integer(&"9".repeat(5000)), Err(NumberError::TooLarge));
        assert_eq!(parse_real("1e999999999999999999999"), Err(NumberError::TooLarge));
        assert_eq!(parse_real("0e999999999999"), Ok(BigRational::zero()));
        let value = parse_real("12.50e-1").unwrap();
        assert_eq!(value, BigRational::new(5.into(), 4.into()));
        assert_eq!(show_real(&value), "1.25");
        assert_eq!(show_real(&BigRational::new((-1).into(), 3.into())), "-1/3");
    }

    #[test]
    fn rounding_agrees_with_the_standard_library() {
        for text in [
            "0.1",
            "1e-45",
            "7e-46",
            "8e-46",
            "1e-40",
            "3.4028235e38",
            "16777217",
            "16777219",
            "1.17549435e-38",
            "0.333333333333333333333333",
            "123456789.123456789",
            "5e-324",
            "2.2250738585072011e-308",
            "1.7976931348623157e308",
            "9007199254740993",
        ] {
            let value = parse_real(text).unwrap();
            let double: f64 = text.parse().unwrap();
            assert_eq!(to_float(&value, DType::Float64), Some(double), "{text}");
            let single: f32 = text.parse().unwrap();
            let expected = single.is_finite().then_some(single as f64);
            assert_eq!(to_float(&value, DType::Float32), expected, "{text}");
        }
        let third = BigRational::new((-1).into(), 3.into());
        let half = half::f16::from_f64(-1.0 / 3.0).to_f64();
        assert_eq!(to_float(&third, DType::Float16), Some(half));
        assert_eq!(to_float(&parse_real("65520").unwrap(), DType::Float16), None);
        assert_eq!(to_float(&parse_real("65519").unwrap(), DType::Float16), Some(65504.0));
        assert_eq!(to_float(&parse_real("3.4028236e38").unwrap(), DType::Float32), None);
    }

    #[test]
    fn integers_are_exact_and_casts_saturate() {
        assert!(is_exact(&BigInt::from(16777216), DType::Float32));
        assert!(!is_exact(&BigInt::from(16777217), DType::Float32));
        assert!(is_exact(&BigInt::from(u64::MAX), DType::Uint64));
        assert!(!is_exact(&BigInt::from(-1), DType::Uint8));
        assert_eq!(truncate(&parse_real("1e30").unwrap(), DType::Int8), 127);
        assert_eq!(truncate(&-parse_real("2.9").unwrap(), DType::Int8), -2);
        assert_eq!(floor_mod(&BigInt::from(-7), &BigInt::from(3)), BigInt::from(2));
        assert_eq!(floor_div(&BigInt::from(5), &BigInt::zero()), BigInt::zero());
        assert_eq!(shift_amount(&BigInt::from(-1)), 63);
    }
}

//! Floats of 8 bits (OCP FP8): their values, and rounding to them, by the definition.
//!
//! `te::quantized` computes the same by integer operations; a test compares the two.

use super::DType;

/// What distinguishes the two formats.
struct Format {
    /// Bits of the fraction.
    fraction: i32,
    /// The exponent of the least normal number.
    least: i32,
    /// The largest number.
    largest: f64,
    /// The bits of infinity, or of NaN if there is no infinity.
    beyond: u8,
    /// The bits of the NaN that results are.
    nan: u8,
}

fn format(dtype: DType) -> Format {
    match dtype {
        DType::Float8E4M3 => {
            Format { fraction: 3, least: -6, largest: 448.0, beyond: 0x7f, nan: 0x7f }
        }
        DType::Float8E5M2 => {
            Format { fraction: 2, least: -14, largest: 57344.0, beyond: 0x7c, nan: 0x7e }
        }
        _ => panic!("{dtype} has no 8 bits"),
    }
}

/// Rounds `value` once, to nearest even. A number beyond the largest one becomes infinity, in
/// `Float8E4M3` NaN. A NaN has one pattern, and so has what is too large in `Float8E4M3`.
///
/// # Panics
/// On types that are no floats of 8 bits.
pub fn bits(value: f64, dtype: DType) -> u8 {
    let format = format(dtype);
    if value.is_nan() {
        return format.nan;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    // Float64 numbers below the normal ones are far below half of the least number.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(format.least);
    let quantum = 2f64.powi(exponent - format.fraction);
    let rounded = (magnitude / quantum).round_ties_even() * quantum;
    if rounded > format.largest || rounded.is_nan() {
        return if format.beyond == format.nan { format.nan } else { sign | format.beyond };
    }
    // A carry of the fraction goes into the exponent.
    let steps = (rounded / quantum) as i32;
    let normal = (exponent - format.least) << format.fraction;
    sign | (normal + steps) as u8
}

/// Returns the value of the number with these bits.
///
/// # Panics
/// On types that are no floats of 8 bits.
pub fn value(bits: u8, dtype: DType) -> f64 {
    let format = format(dtype);
    let magnitude = bits & 0x7f;
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    if magnitude == format.beyond && format.beyond != format.nan {
        return sign * f64::INFINITY;
    }
    if magnitude >= format.beyond {
        return f64::NAN;
    }
    let (exponent, fraction) =
        (i32::from(magnitude >> format.fraction), magnitude & ((1 << format.fraction) - 1));
    let (hidden, exponent) = match exponent {
        0 => (0, format.least),
        _ => (1 << format.fraction, exponent - 1 + format.least),
    };
    sign * f64::from(hidden + fraction) * 2f64.powi(exponent - format.fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [DType; 2] = [DType::Float8E4M3, DType::Float8E5M2];

    #[test]
    fn numbers_are_those_of_the_standard() {
        let e4m3 = |bits| value(bits, DType::Float8E4M3);
        assert_eq!((e4m3(0x7e), e4m3(0x08), e4m3(0x01)), (448.0, 2f64.powi(-6), 2f64.powi(-9)));
        assert_eq!((e4m3(0x78), e4m3(0x38)), (256.0, 1.0));
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        let e5m2 = |bits| value(bits, DType::Float8E5M2);
        assert_eq!((e5m2(0x7b), e5m2(0x04), e5m2(0x01)), (57344.0, 2f64.powi(-14), 2f64.powi(-16)));
        assert_eq!((e5m2(0x7c), e5m2(0xfc)), (f64::INFINITY, f64::NEG_INFINITY));
        assert!(e5m2(0x7d).is_nan() && e5m2(0x7e).is_nan() && e5m2(0xff).is_nan());
    }

    /// Every number, the midpoints between neighbours, and the numbers beside these.
    #[test]
    fn rounding_is_to_nearest_even() {
        for dtype in TYPES {
            let largest = format(dtype).beyond - 1;
            for low in 0..largest {
                let (a, b) = (value(low, dtype), value(low + 1, dtype));
                let tie = (a + b) / 2.0;
                let even = if low % 2 == 0 { low } else { low + 1 };
                for (number, expected) in
                    [(a, low), (tie, even), (tie.next_up(), low + 1), (tie.next_down(), low)]
                {
                    assert_eq!(bits(number, dtype), expected, "{number} as {dtype}");
                    assert_eq!(bits(-number, dtype), expected | 0x80, "-{number} as {dtype}");
                }
            }
        }
        assert_eq!(bits(464.0, DType::Float8E4M3), 0x7e);
        assert_eq!(bits(464f64.next_up(), DType::Float8E4M3), 0x7f);
        assert_eq!(bits(-1e300, DType::Float8E4M3), 0x7f);
        assert_eq!(bits(61440f64.next_down(), DType::Float8E5M2), 0x7b);
        assert_eq!(bits(61440.0, DType::Float8E5M2), 0x7c);
        assert_eq!(bits(f64::NEG_INFINITY, DType::Float8E5M2), 0xfc);
        assert_eq!(bits(f64::NAN, DType::Float8E5M2), 0x7e);
        assert_eq!(bits(5e-324, DType::Float8E5M2), 0);
    }
}

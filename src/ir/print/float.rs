//! Floating-point constants in the notation of C, with the shortest digits.

use crate::ir::DType;

/// Returns the shortest digits that read back as the value, in the notation of C's `%g`: `0f`,
/// `1e-05f`, `0.11111111f`, `-inff`, `2.0` (float64), `0.5h`.
pub fn format_float(dtype: DType, value: f64) -> String {
    let suffix = match dtype {
        DType::Float32 => "f",
        DType::Float16 => "h",
        DType::BFloat16 => "bf",
        _ => "",
    };
    if !value.is_finite() {
        let sign = if value.is_sign_negative() && !value.is_nan() { "-" } else { "" };
        let word = if value.is_nan() { "nan" } else { "inf" };
        return format!("{sign}{word}{suffix}");
    }
    let shortest = match dtype {
        DType::Float64 => format!("{value:e}"),
        _ => format!("{:e}", value as f32),
    };
    let (mantissa, exponent) = shortest.split_once('e').expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a decimal exponent");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    let count = digits.len() as i32;
    let text = if exponent < -4 || exponent >= count.max(6) {
        let fraction = &digits[1..];
        let point = if fraction.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        format!("{}{point}{fraction}e{exponent_sign}{:02}", &digits[..1], exponent.abs())
    } else if exponent < 0 {
        format!("0.{}{digits}", "0".repeat((-exponent - 1) as usize))
    } else if exponent + 1 >= count {
        let zeros = "0".repeat((exponent + 1 - count) as usize);
        let tail = if dtype == DType::Float64 { ".0" } else { "" };
        format!("{digits}{zeros}{tail}")
    } else {
        let (whole, fraction) = digits.split_at(exponent as usize + 1);
        format!("{whole}.{fraction}")
    };
    format!("{sign}{text}{suffix}")
}

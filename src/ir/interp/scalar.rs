//! One operation on scalars, exactly as the comments of `ir::expr` say.
//!
//! A value is 64 bits: integers sign- or zero-extended, `bool` 0 or 1, Float64 and Float32 their
//! bits, halves their 16 bits.

use crate::ir::{BinOp, Const, DType, Intrinsic, UnOp, half_bits};
use half::{bf16, f16};

/// Index arithmetic left the 64-bit range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow;

/// The bits of a constant of a type.
pub fn from_const(value: Const, dtype: DType) -> u64 {
    match value {
        Const::Int(value) => value as u64,
        Const::Float(value) => from_f64(value, dtype),
    }
}

/// The bits of a value of a floating-point type, rounded once.
pub fn from_f64(value: f64, dtype: DType) -> u64 {
    match dtype {
        DType::Float64 => value.to_bits(),
        DType::Float32 => (value as f32).to_bits() as u64,
        DType::Float16 | DType::BFloat16 => half_bits(value, dtype).into(),
        _ => crate::bug!("float bits of {dtype}"),
    }
}

/// The value of floating-point bits; exact.
pub fn to_f64(bits: u64, dtype: DType) -> f64 {
    match dtype {
        DType::Float64 => f64::from_bits(bits),
        DType::Float32 => f32::from_bits(bits as u32) as f64,
        DType::Float16 => f16::from_bits(bits as u16).to_f64(),
        DType::BFloat16 => bf16::from_bits(bits as u16).to_f64(),
        _ => crate::bug!("float value of {dtype}"),
    }
}

/// The mathematical value of integer bits.
pub fn to_int(bits: u64, dtype: DType) -> i128 {
    if dtype.is_signed() { bits as i64 as i128 } else { bits as i128 }
}

/// Wraps an integer into a type.
pub fn from_int(value: i128, dtype: DType) -> u64 {
    match dtype {
        DType::Int64 | DType::Index | DType::Uint64 => value as u64,
        DType::Int32 => value as i32 as i64 as u64,
        DType::Uint32 => value as u32 as u64,
        DType::Int16 => value as i16 as i64 as u64,
        DType::Uint16 => value as u16 as u64,
        DType::Int8 => value as i8 as i64 as u64,
        DType::Uint8 => value as u8 as u64,
        DType::Bool => (value & 1) as u64,
        _ => crate::bug!("integer bits of {dtype}"),
    }
}

fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// One operand.
pub fn unary(op: UnOp, dtype: DType, a: u64) -> Result<u64, Overflow> {
    Ok(match dtype {
        DType::Float64 => unary_float(op, f64::from_bits(a), f64::to_bits),
        DType::Float32 => match op {
            UnOp::Neg => a ^ 0x8000_0000,
            UnOp::Abs => a & 0x7fff_ffff,
            UnOp::Sqrt => f32_of(a).sqrt().to_bits() as u64,
            // The others are exact, so a detour through binary64 changes nothing.
            _ => unary_float(op, f32_of(a) as f64, |x| (x as f32).to_bits() as u64),
        },
        DType::Bool if op == UnOp::Not => a ^ 1,
        _ => return unary_int(op, dtype, a),
    })
}

fn unary_float(op: UnOp, x: f64, bits: impl Fn(f64) -> u64) -> u64 {
    bits(match op {
        UnOp::Neg => -x,
        UnOp::Abs => x.abs(),
        UnOp::Floor => x.floor(),
        UnOp::Ceil => x.ceil(),
        UnOp::Round => x.round_ties_even(),
        UnOp::Trunc => x.trunc(),
        UnOp::Sqrt => x.sqrt(),
        UnOp::IsNan => return x.is_nan() as u64,
        UnOp::BitNot | UnOp::Not | UnOp::Popcount => crate::bug!("{op:?} of a float"),
    })
}

fn unary_int(op: UnOp, dtype: DType, a: u64) -> Result<u64, Overflow> {
    let x = to_int(a, dtype);
    let exact = match op {
        UnOp::Neg => -x,
        UnOp::Abs => x.abs(),
        UnOp::BitNot => !x,
        UnOp::Popcount => {
            let mask = u64::MAX >> (64 - dtype.bits());
            (a & mask).count_ones() as i128
        }
        _ => crate::bug!("{op:?} of {dtype}"),
    };
    checked(exact, dtype)
}

fn checked(exact: i128, dtype: DType) -> Result<u64, Overflow> {
    if dtype == DType::Index && i64::try_from(exact).is_err() {
        return Err(Overflow);
    }
    Ok(from_int(exact, dtype))
}

/// Two operands of one type. `And` and `Or` are control flow, not operations.
pub fn binary(op: BinOp, dtype: DType, a: u64, b: u64) -> Result<u64, Overflow> {
    match dtype {
        DType::Float64 => Ok(binary_f64(op, a, b)),
        DType::Float32 => Ok(binary_f32(op, a, b)),
        _ => binary_int(op, dtype, a, b),
    }
}

fn binary_f64(op: BinOp, a: u64, b: u64) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let value = match op {
        BinOp::Add => x + y,
        BinOp::Sub => x - y,
        BinOp::Mul => x * y,
        BinOp::Div => x / y,
        BinOp::Min => return if x < y { a } else { b },
        BinOp::Max => return if x > y { a } else { b },
        _ => return compare(op, x, y),
    };
    value.to_bits()
}

fn binary_f32(op: BinOp, a: u64, b: u64) -> u64 {
    let (x, y) = (f32_of(a), f32_of(b));
    let value = match op {
        BinOp::Add => x + y,
        BinOp::Sub => x - y,
        BinOp::Mul => x * y,
        BinOp::Div => x / y,
        BinOp::Min => return if x < y { a } else { b },
        BinOp::Max => return if x > y { a } else { b },
        _ => return compare(op, x, y),
    };
    value.to_bits() as u64
}

fn compare<T: PartialOrd>(op: BinOp, x: T, y: T) -> u64 {
    let holds = match op {
        BinOp::Eq => x == y,
        BinOp::Ne => x != y,
        BinOp::Lt => x < y,
        BinOp::Le => x <= y,
        BinOp::Gt => x > y,
        BinOp::Ge => x >= y,
        _ => crate::bug!("{op:?} is no comparison"),
    };
    holds as u64
}

fn binary_int(op: BinOp, dtype: DType, a: u64, b: u64) -> Result<u64, Overflow> {
    let (x, y) = (to_int(a, dtype), to_int(b, dtype));
    let width = dtype.bits() as i128;
    let exact = match op {
        BinOp::Add => x + y,
        BinOp::Sub => x - y,
        // Two 64-bit factors fit 128 bits, unsigned ones modulo 2^128.
        BinOp::Mul => x.wrapping_mul(y),
        BinOp::FloorDiv if y == 0 => 0,
        // The floor of a quotient whose divisor is positive is the Euclidean one.
        BinOp::FloorDiv => {
            let quotient = x / y;
            if (x % y != 0) && ((x < 0) != (y < 0)) { quotient - 1 } else { quotient }
        }
        BinOp::FloorMod if y == 0 => 0,
        BinOp::FloorMod => {
            let rest = x % y;
            if rest != 0 && ((rest < 0) != (y < 0)) { rest + y } else { rest }
        }
        BinOp::Min => x.min(y),
        BinOp::Max => x.max(y),
        BinOp::BitAnd => x & y,
        BinOp::BitOr => x | y,
        BinOp::BitXor => x ^ y,
        BinOp::Shl => return Ok(from_int(x << y.rem_euclid(width), dtype)),
        BinOp::Shr => x >> y.rem_euclid(width),
        BinOp::Div | BinOp::And | BinOp::Or => crate::bug!("{op:?} of {dtype}"),
        _ => return Ok(compare(op, x, y)),
    };
    checked(exact, dtype)
}

/// A value conversion.
pub fn cast(from: DType, to: DType, a: u64) -> u64 {
    if from == to {
        return a;
    }
    if to == DType::Bool {
        return if from.is_float() { (to_f64(a, from) != 0.0) as u64 } else { (a != 0) as u64 };
    }
    match (from.is_float(), to.is_float()) {
        (true, true) => from_f64(to_f64(a, from), to),
        (true, false) => {
            let value = to_f64(a, from);
            if value.is_nan() {
                return 0;
            }
            let (min, max) = to.int_range();
            // `as` truncates towards zero and saturates at the ends of i128.
            from_int((value as i128).clamp(min, max), to)
        }
        (false, true) => {
            let value = to_int(a, from);
            match to {
                DType::Float64 => (value as f64).to_bits(),
                DType::Float32 => (value as f32).to_bits() as u64,
                _ => from_f64(value as f32 as f64, to),
            }
        }
        (false, false) => from_int(to_int(a, from), to),
    }
}

/// The same bits as another type of the same size.
pub fn bitcast(from: DType, to: DType, a: u64) -> u64 {
    let mask = u64::MAX >> (64 - from.bits());
    match to {
        _ if to.is_float() => a & mask,
        _ => from_int((a & mask) as i128, to),
    }
}

/// A function of floats: `Fma` here, the others in higher precision and then rounded.
pub fn call(function: Intrinsic, dtype: DType, args: &[u64]) -> u64 {
    if function == Intrinsic::Fma {
        return match dtype {
            DType::Float64 => {
                let [a, b, c] = [args[0], args[1], args[2]].map(f64::from_bits);
                a.mul_add(b, c).to_bits()
            }
            _ => f32_of(args[0]).mul_add(f32_of(args[1]), f32_of(args[2])).to_bits() as u64,
        };
    }
    let values: Vec<f64> = args.iter().map(|bits| to_f64(*bits, dtype)).collect();
    from_f64(crate::ir::reference::evaluate(function, dtype, &values), dtype)
}

//! Operators that compute each element from the elements at the same place.

use crate::context::{Context, axes};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::narrow::Rounding;
use crate::node::{Node, Outcome};

/// One input, one output of the same type.
fn unary(cx: &mut Context, node: &Node, f: impl FnOnce(E, DType) -> E) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    Ok(vec![cx.elementwise("", dtype, &[x], |mut e| f(e.remove(0), dtype))?])
}

/// Two inputs with broadcasting, one output of the same type.
fn binary(cx: &mut Context, node: &Node, f: impl FnOnce(E, E, DType) -> E) -> Outcome<Vec<T>> {
    let (x, y) = operands(cx, node)?;
    let dtype = cx.dtype(x);
    Ok(vec![cx.elementwise("", dtype, &[x, y], |mut e| {
        let y = e.remove(1);
        f(e.remove(0), y, dtype)
    })?])
}

/// The two operands; before opset 7 the second one is placed by the attribute `axis`.
fn operands(cx: &mut Context, node: &Node) -> Outcome<(T, T)> {
    let (x, y) = (node.input(0)?, node.input(1)?);
    if node.opset < 7 && node.has("axis") {
        return Err("broadcasting along an axis is not supported".into());
    }
    if cx.dtype(x) != cx.dtype(y) {
        return Err("the operands have different types".into());
    }
    Ok((x, y))
}

/// Two inputs, an output of type bool.
fn comparison(cx: &mut Context, node: &Node, op: &'static str) -> Outcome<Vec<T>> {
    let (x, y) = operands(cx, node)?;
    Ok(vec![cx.elementwise("", DType::Bool, &[x, y], |mut e| {
        let y = e.remove(1);
        e.remove(0).bin(op, y)
    })?])
}

/// A function of the language by its name.
macro_rules! functions {
    ($($handler:ident $name:literal),* $(,)?) => {$(
        pub(crate) fn $handler(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
            unary(cx, node, |x, _| E::call($name, [x]))
        }
    )*};
}

functions! {
    sqrt "sqrt", exp "exp", log "log", sin "sin", cos "cos", tan "tan", atan "atan",
    tanh "tanh", sigmoid "sigmoid", erf "erf",
}

/// Comparisons and operators by their sign.
macro_rules! signs {
    ($kind:ident: $($handler:ident $sign:literal),* $(,)?) => {$(
        pub(crate) fn $handler(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
            $kind(cx, node, $sign)
        }
    )*};
}

fn sign_binary(cx: &mut Context, node: &Node, sign: &'static str) -> Outcome<Vec<T>> {
    binary(cx, node, |x, y, _| x.bin(sign, y))
}

signs! { comparison: equal "==", greater ">", greater_or_equal ">=", less "<", less_or_equal "<=" }
signs! { sign_binary: add "+", sub "-", mul "*", and "and", or "or" }
signs! { sign_binary: bitwise_and "&", bitwise_or "|", bitwise_xor "^" }

pub(crate) fn xor(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    comparison(cx, node, "!=")
}

pub(crate) fn identity(_: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    Ok(vec![node.input(0)?])
}

pub(crate) fn cast(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    if let Some(to) = node.narrow("to") {
        return Ok(vec![cx.narrowed(x, to, &Rounding::of(node)?)?]);
    }
    let to = node.dtype("to")?.ok_or("the attribute `to` is missing")?;
    convert(cx, x, to)
}

fn convert(cx: &mut Context, x: T, to: DType) -> Outcome<Vec<T>> {
    match cx.narrow(x) {
        Some(_) => Ok(vec![cx.widened(x, to)?]),
        None => Ok(vec![cx.cast("", x, to)?]),
    }
}

pub(crate) fn cast_like(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, like) = (node.input(0)?, node.input(1)?);
    if let Some(to) = cx.narrow(like) {
        return Ok(vec![cx.narrowed(x, to, &Rounding::of(node)?)?]);
    }
    let to = cx.dtype(like);
    convert(cx, x, to)
}

pub(crate) fn abs(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    if dtype.is_int() && !dtype.is_signed_int() {
        return Ok(vec![x]);
    }
    unary(cx, node, |x, _| E::call("abs", [x]))
}

/// Rounding, which leaves integers as they are.
fn rounding(cx: &mut Context, node: &Node, name: &'static str) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    if cx.dtype(x).is_int() {
        return Ok(vec![x]);
    }
    unary(cx, node, |x, _| E::call(name, [x]))
}

signs! { rounding: floor "floor", ceil "ceil", round "round" }

pub(crate) fn neg(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, _| x.un("-"))
}

pub(crate) fn not(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, _| x.un("not"))
}

pub(crate) fn bitwise_not(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, _| x.un("~"))
}

pub(crate) fn reciprocal(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| E::float(1.0, dtype).bin("/", x))
}

pub(crate) fn sign(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| {
        let zero = E::num(0.0, dtype);
        let positive = x.clone().bin(">", zero.clone());
        let one = E::num(1.0, dtype);
        if dtype.is_int() && !dtype.is_signed_int() {
            return positive.choose(one, zero);
        }
        // NaN and zeros are their own sign.
        let other = if dtype.is_float() { x.clone() } else { zero.clone() };
        let negative = x.bin("<", zero);
        positive.choose(one, negative.choose(E::num(-1.0, dtype), other))
    })
}

pub(crate) fn is_nan(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let result = |mut e: Vec<E>| E::call("is_nan", [e.remove(0)]);
    Ok(vec![cx.elementwise("", DType::Bool, &[x], result)?])
}

pub(crate) fn is_inf(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let (negative, positive) =
        (node.flag("detect_negative", true), node.flag("detect_positive", true));
    Ok(vec![cx.elementwise("", DType::Bool, &[x], |mut e| {
        let x = e.remove(0);
        let inf = |sign: f64| E::float(sign * f64::INFINITY, dtype);
        match (negative, positive) {
            (true, true) => E::call("abs", [x]).bin("==", inf(1.0)),
            (false, true) => x.bin("==", inf(1.0)),
            (true, false) => x.bin("==", inf(-1.0)),
            (false, false) => E::flag(false),
        }
    })?])
}

/// The quotient of integers rounded towards zero.
pub(crate) fn truncated_div(x: E, y: E, dtype: DType) -> E {
    if !dtype.is_signed_int() {
        return x.bin("//", y);
    }
    let zero = || E::int(0, dtype);
    let one = E::int(1, dtype);
    let rest = x.clone().bin("%", y.clone()).bin("!=", zero());
    let floor = x.clone().bin("//", y.clone());
    let signs = match &y {
        E::Lit(value, _) if value.as_int().is_some_and(|v| v > 0) => x.bin("<", zero()),
        _ => x.bin("<", zero()).bin("!=", y.bin("<", zero())),
    };
    floor.bin("+", rest.bin("and", signs).choose(one, zero()))
}

/// Whether operands of a division are known and not negative. A dividend such as `n - 1` must not
/// be in any call: sizes are computed so, and the quotient of a smaller one has no use.
fn has_known_signs(cx: &mut Context, x: T, y: T) -> bool {
    let dims = |operand: T| -> Option<Vec<Dim>> {
        let int = |value: &Val| match value {
            Val::Int(dim) => Some(dim.clone()),
            _ => None,
        };
        cx.graph[operand].vals.as_ref()?.iter().map(int).collect()
    };
    let (Some(dividends), Some(divisors)) = (dims(x), dims(y)) else { return false };
    let is_size = |dim: &Dim| {
        let rest = dim.clone() - dim.constant();
        dim.is_nonnegative() || (dim.as_const().is_none() && rest.is_nonnegative())
    };
    let known = dividends.iter().all(is_size) && divisors.iter().all(Dim::is_nonnegative);
    if known {
        dividends.iter().for_each(|dim| cx.require_least(dim, 0));
    }
    known
}

pub(crate) fn div(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, y) = operands(cx, node)?;
    if cx.dtype(x).is_signed_int() && has_known_signs(cx, x, y) {
        return sign_binary(cx, node, "//");
    }
    binary(
        cx,
        node,
        |x, y, dtype| {
            if dtype.is_float() { x.bin("/", y) } else { truncated_div(x, y, dtype) }
        },
    )
}

pub(crate) fn modulo(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, _) = operands(cx, node)?;
    let fmod = node.flag("fmod", false);
    match cx.dtype(x) {
        dtype if dtype.is_float() => float_remainder(cx, node, fmod),
        dtype if fmod && dtype.is_signed_int() => binary(cx, node, |x, y, dtype| {
            let quotient = truncated_div(x.clone(), y.clone(), dtype);
            x.bin("-", quotient.bin("*", y))
        }),
        _ => binary(cx, node, |x, y, _| x.bin("%", y)),
    }
}

/// The remainder of floats with the sign of the dividend, or else of the divisor. It is exact: each
/// step subtracts the divisor as often as the quotient, rounded to float64, says, and so divides it
/// by at least 2^51.
fn float_remainder(cx: &mut Context, node: &Node, of_dividend: bool) -> Outcome<Vec<T>> {
    let (x, y) = operands(cx, node)?;
    let dtype = cx.dtype(x);
    let wide = DType::Float64;
    let rest = if dtype == wide {
        let shapes = [cx.shape(x), cx.shape(y)];
        let shape = cx.broadcast(&shapes)?;
        let own = axes(&shape);
        let (wide_x, wide_y) = (cx.load_broadcast(x, &own), cx.load_broadcast(y, &own));
        let x = cx.compute("dividend", wide, shape.clone(), wide_x)?;
        let y = cx.compute("divisor", wide, shape.clone(), wide_y)?;
        cx.call("rest", wide, shape, "rare.float_remainder", vec![x, y], vec![])?
    } else {
        // The greatest quotients are 2^40 and 2^277.
        let steps = if dtype == DType::Float16 { 1 } else { 6 };
        let mut rest = cx.cast("dividend", x, wide)?;
        for step in 0..steps {
            rest = cx.elementwise(&format!("rest{step}"), wide, &[rest, y], |mut e| {
                let y = e.remove(1).cast(wide);
                E::call("rare.remainder_step", [e.remove(0), y])
            })?;
        }
        rest
    };
    // A finite number is its own remainder by infinity.
    let rest = cx.elementwise("last", wide, &[x, y, rest], |mut e| {
        let (r, y, x) = (e.remove(2), e.remove(1), e.remove(0));
        let infinite = || E::float(f64::INFINITY, dtype);
        let finite = E::call("abs", [x.clone()]).bin("<", infinite());
        let whole = finite.bin("and", E::call("abs", [y]).bin("==", infinite()));
        whole.choose(x.cast(wide), r)
    })?;
    Ok(vec![cx.elementwise("", dtype, &[x, y, rest], |mut e| {
        let (r, y, x) = (e.remove(2), e.remove(1).cast(wide), e.remove(0).cast(wide));
        let name = if of_dividend { "rare.truncated_remainder" } else { "rare.floored_remainder" };
        let rest = E::call(name, [r, x, y]);
        if dtype == wide { rest } else { rest.cast(dtype) }
    })?])
}

pub(crate) fn bit_shift(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let left = node.text("direction", "") == "LEFT";
    binary(cx, node, |x, y, dtype| {
        // The language shifts by the amount modulo the width.
        let zero = || E::int(0, dtype);
        let width = 8 * dtype.bytes() as i64;
        let inside = y.clone().bin("<", E::int(width, dtype));
        let shifted = x.clone().bin(if left { "<<" } else { ">>" }, y.clone());
        if !dtype.is_signed_int() {
            return inside.choose(shifted, zero());
        }
        let inside = y.bin(">=", zero()).bin("and", inside);
        let fill = if left { zero() } else { x.bin("<", zero()).choose(E::int(-1, dtype), zero()) };
        inside.choose(shifted, fill)
    })
}

pub(crate) fn pow(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, y) = (node.input(0)?, node.input(1)?);
    let (dtype, exponent) = (cx.dtype(x), cx.dtype(y));
    let constant = cx.graph.scalar(y).and_then(Val::as_f64);
    if dtype.is_float() {
        return Ok(vec![cx.elementwise("", dtype, &[x, y], |mut e| {
            let y = e.remove(1);
            let x = e.remove(0);
            match constant {
                Some(1.0) => x,
                Some(2.0) => x.clone().bin("*", x),
                Some(3.0) => x.clone().bin("*", x.clone()).bin("*", x),
                Some(value) => E::call("pow", [x, E::float(value, dtype)]),
                None => E::call("pow", [x, if exponent == dtype { y } else { y.cast(dtype) }]),
            }
        })?]);
    }
    if exponent.is_int() {
        // A short product of extents stays a known one.
        if let Some(times @ 1..=4) = cx.graph.scalar(y).and_then(Val::as_int) {
            return Ok(vec![cx.elementwise("", dtype, &[x, y], |mut e| {
                let x = e.swap_remove(0);
                (1..times).fold(x.clone(), |power, _| power.bin("*", x.clone()))
            })?]);
        }
        return integer_power(cx, x, y).map(|power| vec![power]);
    }
    // The nearest integer where the rounding error of the power hides it.
    let wide = DType::Float64;
    let power = cx.elementwise("power", wide, &[x, y], |mut e| {
        let y = e.remove(1).cast(wide);
        E::call("pow", [e.remove(0).cast(wide), y])
    })?;
    Ok(vec![cx.elementwise("", dtype, &[power], |mut e| {
        let power = e.remove(0);
        let nearest = E::call("round", [power.clone()]);
        let error = E::call("abs", [power.clone().bin("-", nearest.clone())]);
        let bound = E::call("abs", [nearest.clone()]).bin("*", E::float(1e-14, wide));
        error.bin("<=", bound).choose(nearest, power).cast(dtype)
    })?])
}

/// The power of integers by repeated squares; a negative exponent gives 0, but for bases 1 and -1.
fn integer_power(cx: &mut Context, x: T, y: T) -> Outcome<T> {
    let (dtype, exponent) = (cx.dtype(x), cx.dtype(y));
    let mut square = x;
    let mut power: Option<T> = None;
    // Powers beyond 2^63 wrap; the exponents of 1 and -1 alone may be larger, and their bit 0
    // decides.
    for bit in 0..6 {
        let factor = cx.elementwise(&format!("factor{bit}"), dtype, &[square, y], |mut e| {
            let y = e.remove(1);
            let set = y.bin(">>", E::int(bit, exponent)).bin("&", E::int(1, exponent));
            set.bin("==", E::int(1, exponent)).choose(e.remove(0), E::int(1, dtype))
        })?;
        power = Some(match power {
            None => factor,
            Some(power) => {
                cx.elementwise(&format!("power{bit}"), dtype, &[power, factor], |mut e| {
                    let factor = e.remove(1);
                    e.remove(0).bin("*", factor)
                })?
            }
        });
        if bit < 5 {
            square = cx.elementwise(&format!("square{bit}"), dtype, &[square], |mut e| {
                let x = e.remove(0);
                x.clone().bin("*", x)
            })?;
        }
    }
    let power = power.ok_or("no factor")?;
    if !exponent.is_signed_int() {
        return Ok(power);
    }
    cx.elementwise("", dtype, &[power, x, y], |mut e| {
        let (y, x) = (e.remove(2), e.remove(1));
        let unit = x.clone().bin("*", x).bin("==", E::int(1, dtype));
        let keep = y.bin(">=", E::int(0, exponent)).bin("or", unit);
        keep.choose(e.remove(0), E::int(0, dtype))
    })
}

/// The largest number of operands of an operator that takes any number.
const MAX_OPERANDS: usize = 256;

/// Any number of inputs, combined from the left.
fn variadic(
    cx: &mut Context,
    node: &Node,
    f: impl Fn(E, E) -> E,
    finish: impl FnOnce(E, DType, usize) -> E,
) -> Outcome<Vec<T>> {
    let inputs: Vec<T> = (0..node.inputs.len()).map(|at| node.input(at)).collect::<Outcome<_>>()?;
    let first = *inputs.first().ok_or("there is no operand")?;
    let dtype = cx.dtype(first);
    let count = inputs.len();
    // The expression has a level for each operand.
    if count > MAX_OPERANDS {
        return Err(format!("more than {MAX_OPERANDS} operands are not supported").into());
    }
    Ok(vec![cx.elementwise("", dtype, &inputs, |e| {
        let mut e = e.into_iter();
        let first = e.next().unwrap_or(E::num(0.0, dtype));
        finish(e.fold(first, f), dtype, count)
    })?])
}

/// The greatest or the least operand; NaN if one of them is NaN.
fn extremum(cx: &mut Context, node: &Node, name: &'static str) -> Outcome<Vec<T>> {
    let is_float = cx.dtype(node.input(0)?).is_float();
    // `max(x, y)` is `y` if one of them is NaN.
    let f = |x: E, y: E| match (&x, &y) {
        (_, E::Lit(..)) => E::call(name, [y, x]),
        (E::Lit(..), _) => E::call(name, [x, y]),
        _ if is_float => E::call("is_nan", [x.clone()]).choose(x.clone(), E::call(name, [x, y])),
        _ => E::call(name, [x, y]),
    };
    variadic(cx, node, f, |e, _, _| e)
}

pub(crate) fn max(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    extremum(cx, node, "max")
}

pub(crate) fn min(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    extremum(cx, node, "min")
}

pub(crate) fn sum(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    variadic(cx, node, |x, y| x.bin("+", y), |e, _, _| e)
}

pub(crate) fn mean(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    variadic(
        cx,
        node,
        |x, y| x.bin("+", y),
        |e, dtype, count| e.bin("/", E::float(count as f64, dtype)),
    )
}

pub(crate) fn select(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (c, x, y) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let dtype = cx.dtype(x);
    Ok(vec![cx.elementwise("", dtype, &[c, x, y], |mut e| {
        let (y, x) = (e.remove(2), e.remove(1));
        e.remove(0).choose(x, y)
    })?])
}

pub(crate) fn clip(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    if node.opset < 11 {
        let low = node.has("min").then(|| E::float(node.float("min", 0.0), dtype));
        let high = node.has("max").then(|| E::float(node.float("max", 0.0), dtype));
        return Ok(vec![cx.elementwise("", dtype, &[x], |mut e| bounded(e.remove(0), low, high))?]);
    }
    let (low, high) = (node.optional(1), node.optional(2));
    let inputs: Vec<T> = [Some(x), low, high].into_iter().flatten().collect();
    Ok(vec![cx.elementwise("", dtype, &inputs, |e| {
        let mut e = e.into_iter();
        let x = e.next().unwrap_or(E::num(0.0, dtype));
        let low = low.and_then(|_| e.next());
        let high = high.and_then(|_| e.next());
        bounded(x, low, high)
    })?])
}

/// NaN stays NaN: the bounds are the first operands.
fn bounded(x: E, low: Option<E>, high: Option<E>) -> E {
    let x = match low {
        Some(low) => E::call("max", [low, x]),
        None => x,
    };
    match high {
        Some(high) => E::call("min", [high, x]),
        None => x,
    }
}

/// Refuses random numbers; values of run time are checked by the entry.
fn no_training(cx: &mut Context, mode: T, ratio: Option<T>) -> Outcome<()> {
    let mode = cx.any_elements(mode, "the training mode")?;
    let ratio = match ratio {
        Some(ratio) => {
            let dtype = cx.dtype(ratio);
            let zero = |e: E| e.bin("==", E::num(0.0, dtype));
            cx.any_elements(ratio, "the ratio")?.list.into_iter().map(zero).collect()
        }
        None => vec![E::flag(false)],
    };
    let ([mode], [zero]) = (&mode.list[..], &ratio[..]) else {
        return Err("the mode and the ratio must have one element".into());
    };
    let cond = match mode.eval(&cx.graph, &|_| None) {
        Some(Val::Bool(false)) => return Ok(()),
        Some(_) => zero.clone(),
        None => mode.clone().un("not").bin("or", zero.clone()),
    };
    cx.assert(cond, "training is not supported")
}

pub(crate) fn dropout(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    match node.optional(2) {
        None if node.opset < 7 && !node.flag("is_test", false) => {
            return Err("training is not supported".into());
        }
        None => {}
        Some(mode) => no_training(cx, mode, node.optional(1))?,
    }
    if !node.has_output(1) {
        return Ok(vec![x]);
    }
    let shape = cx.shape(x);
    // Before opset 10 the mask has the type of the input.
    let (dtype, one) = match cx.dtype(x) {
        dtype if node.opset < 10 => (dtype, E::num(1.0, dtype)),
        _ => (DType::Bool, E::flag(true)),
    };
    let mask = cx.compute("mask", dtype, shape, one)?;
    Ok(vec![x, mask])
}

//! Expressions of one element, their text, and their value where all operands are known.

use crate::dim::Dim;
use crate::dtype::{DType, Val, round_to, wrap};
use crate::graph::{Graph, T};

/// An expression of one element of a stage.
#[derive(Clone, Debug)]
pub(crate) enum E {
    /// A number of the type `index`.
    Idx(Dim),
    /// A literal of a type.
    Lit(Val, DType),
    /// An element of a tensor.
    Load(T, Vec<E>),
    /// `-`, `not`, `~`.
    Un(&'static str, Box<E>),
    Bin(&'static str, Box<E>, Box<E>),
    If(Box<E>, Box<E>, Box<E>),
    Cast(Box<E>, DType),
    Call(&'static str, Vec<E>),
}

/// How tightly an expression binds, by the table of the language.
fn level(op: &str) -> u8 {
    match op {
        "if" => 0,
        "or" => 1,
        "and" => 2,
        "not" => 3,
        "==" | "!=" | "<" | "<=" | ">" | ">=" => 4,
        "|" => 5,
        "^" => 6,
        "&" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "//" | "%" => 10,
        "neg" | "~" => 11,
        "as" => 12,
        _ => 13,
    }
}

impl E {
    pub(crate) fn int(value: i64, dtype: DType) -> E {
        E::Lit(Val::Int(value.into()), dtype)
    }

    pub(crate) fn float(value: f64, dtype: DType) -> E {
        E::Lit(Val::Float(round_to(value, dtype)), dtype)
    }

    /// A number of any numeric type that represents it.
    pub(crate) fn num(value: f64, dtype: DType) -> E {
        if dtype.is_float() { E::float(value, dtype) } else { E::int(value as i64, dtype) }
    }

    pub(crate) fn flag(value: bool) -> E {
        E::Lit(Val::Bool(value), DType::Bool)
    }

    /// The value of an index expression as an element.
    pub(crate) fn dim(dim: &Dim, dtype: DType) -> E {
        match dim.as_const() {
            Some(value) if dtype.is_float() => E::float(value as f64, dtype),
            Some(value) => E::int(value, dtype),
            None => E::Cast(Box::new(E::Idx(dim.clone())), dtype),
        }
    }

    pub(crate) fn bin(self, op: &'static str, other: E) -> E {
        if let (E::Idx(a), E::Idx(b)) = (&self, &other) {
            match op {
                "+" => return E::Idx(a.clone() + b),
                "-" => return E::Idx(a.clone() - b),
                "*" => return E::Idx(a * b),
                "//" => return E::Idx(a.div(b)),
                "%" => return E::Idx(a.rem(b)),
                _ => {}
            }
        }
        E::Bin(op, Box::new(self), Box::new(other))
    }

    pub(crate) fn un(self, op: &'static str) -> E {
        E::Un(op, Box::new(self))
    }

    pub(crate) fn cast(self, dtype: DType) -> E {
        E::Cast(Box::new(self), dtype)
    }

    pub(crate) fn call(name: &'static str, args: impl Into<Vec<E>>) -> E {
        E::Call(name, args.into())
    }

    pub(crate) fn choose(self, yes: E, no: E) -> E {
        E::If(Box::new(self), Box::new(yes), Box::new(no))
    }

    /// The conjunction, without needless parts.
    pub(crate) fn all(mut conditions: Vec<E>) -> Option<E> {
        match conditions.len() {
            0 => None,
            1 => conditions.pop(),
            2 => {
                let second = conditions.pop()?;
                Some(conditions.pop()?.bin("and", second))
            }
            _ => Some(E::Call("all", conditions)),
        }
    }

    pub(crate) fn any(mut conditions: Vec<E>) -> Option<E> {
        match conditions.len() {
            0 => None,
            1 => conditions.pop(),
            2 => {
                let second = conditions.pop()?;
                Some(conditions.pop()?.bin("or", second))
            }
            _ => Some(E::Call("any", conditions)),
        }
    }

    /// Whether a condition holds for the expression or one of its parts.
    pub(crate) fn contains(&self, holds: &dyn Fn(&E) -> bool) -> bool {
        let inner = |e: &E| e.contains(holds);
        holds(self)
            || match self {
                E::Idx(_) | E::Lit(..) => false,
                E::Load(_, args) | E::Call(_, args) => args.iter().any(inner),
                E::Un(_, a) | E::Cast(a, _) => inner(a),
                E::Bin(_, a, b) => inner(a) || inner(b),
                E::If(c, a, b) => inner(c) || inner(a) || inner(b),
            }
    }

    /// Calls `visit` with each tensor that the expression reads.
    pub(crate) fn loads(&self, visit: &mut dyn FnMut(T)) {
        match self {
            E::Idx(_) | E::Lit(..) => {}
            E::Load(tensor, index) => {
                visit(*tensor);
                index.iter().for_each(|e| e.loads(visit));
            }
            E::Un(_, a) | E::Cast(a, _) => a.loads(visit),
            E::Bin(_, a, b) => {
                a.loads(visit);
                b.loads(visit);
            }
            E::If(c, a, b) => {
                c.loads(visit);
                a.loads(visit);
                b.loads(visit);
            }
            E::Call(_, args) => args.iter().for_each(|e| e.loads(visit)),
        }
    }

    /// Whether each tensor is read with as many indices as it has dimensions.
    pub(crate) fn fits_ranks(&self, graph: &Graph) -> bool {
        match self {
            E::Idx(_) | E::Lit(..) => true,
            E::Load(tensor, index) => {
                graph[*tensor].shape.len() == index.len()
                    && index.iter().all(|e| e.fits_ranks(graph))
            }
            E::Un(_, a) | E::Cast(a, _) => a.fits_ranks(graph),
            E::Bin(_, a, b) => a.fits_ranks(graph) && b.fits_ranks(graph),
            E::If(c, a, b) => [c, a, b].iter().all(|e| e.fits_ranks(graph)),
            E::Call(_, args) => args.iter().all(|e| e.fits_ranks(graph)),
        }
    }

    /// Whether an expression of a symbol overflowed or grew beyond the limit.
    pub(crate) fn is_poison(&self) -> bool {
        match self {
            E::Idx(dim) | E::Lit(Val::Int(dim), _) => dim.is_poison(),
            E::Lit(..) => false,
            E::Load(_, args) | E::Call(_, args) => args.iter().any(E::is_poison),
            E::Un(_, a) | E::Cast(a, _) => a.is_poison(),
            E::Bin(_, a, b) => a.is_poison() || b.is_poison(),
            E::If(c, a, b) => c.is_poison() || a.is_poison() || b.is_poison(),
        }
    }

    /// Writes the expression; `axis` names the axes, `name` the tensors.
    pub(crate) fn text(&self, names: &Names) -> String {
        self.print(names).0
    }

    fn print(&self, names: &Names) -> (String, u8) {
        let operand = |e: &E, least: u8| {
            let (text, level) = e.print(names);
            if level < least { format!("({text})") } else { text }
        };
        match self {
            E::Idx(dim) => {
                let (text, own) = dim.print(names.axis);
                (text, [9, 10, 13][usize::from(own)])
            }
            E::Lit(value, dtype) => literal(value, *dtype, names),
            E::Load(tensor, index) => {
                let index: Vec<String> = index.iter().map(|e| e.text(names)).collect();
                (format!("{}[{}]", (names.tensor)(*tensor), index.join(", ")), 13)
            }
            E::Un("not", a) => (format!("not {}", operand(a, level("not") + 1)), level("not")),
            E::Un(op, a) => (format!("{op}{}", operand(a, level("neg"))), level("neg")),
            E::Bin(op, a, b) => {
                let own = level(op);
                // Comparisons have no chains. `and` and `or` of the same operator need none.
                let left = if own == 4 { own + 1 } else { own };
                let (a, b) = (operand(a, left), operand(b, own + 1));
                (format!("{a} {op} {b}"), own)
            }
            E::If(c, a, b) => {
                let (c, a, b) = (operand(c, 1), operand(a, 1), b.text(names));
                (format!("if {c} then {a} else {b}"), 0)
            }
            E::Cast(a, dtype) => (format!("{} as {}", operand(a, 12), dtype.name()), 12),
            E::Call(name, args) => {
                let args: Vec<String> = args.iter().map(|e| e.text(names)).collect();
                (format!("{name}({})", args.join(", ")), 13)
            }
        }
    }

    /// Returns the value at the given axes if all that the expression reads is known.
    pub(crate) fn eval(&self, graph: &Graph, axis: &dyn Fn(u16) -> Option<Dim>) -> Option<Val> {
        match self {
            E::Idx(dim) => {
                let value = dim.at(axis);
                (!value.is_poison()).then_some(Val::Int(value))
            }
            E::Lit(value, _) => Some(value.clone()),
            E::Load(tensor, index) => {
                // Callers without a graph know no tensor.
                let tensor = graph.tensors.get(tensor.0 as usize)?;
                let values = tensor.vals.as_ref()?;
                let mut flat = 0;
                for (e, extent) in index.iter().zip(&tensor.shape) {
                    let at = usize::try_from(e.eval(graph, axis)?.as_int()?).ok()?;
                    let extent = extent.as_extent()?;
                    if at >= extent {
                        return None;
                    }
                    flat = flat * extent + at;
                }
                values.get(flat).cloned()
            }
            E::Un(op, a) => match (*op, a.eval(graph, axis)?) {
                ("-", Val::Float(value)) => Some(Val::Float(-value)),
                ("-", Val::Int(value)) => Some(Val::Int(-value)),
                ("not", Val::Bool(value)) => Some(Val::Bool(!value)),
                _ => None,
            },
            E::Bin(op @ ("and" | "or"), a, b) => {
                let (x, y) = (a.eval(graph, axis), b.eval(graph, axis));
                // One operand may decide.
                let decisive = Some(Val::Bool(*op == "or"));
                if x == decisive || y == decisive {
                    return decisive;
                }
                binary(op, &x?, &y?, None)
            }
            E::Bin(op, a, b) => {
                let (x, y) = (a.eval(graph, axis)?, b.eval(graph, axis)?);
                binary(op, &x, &y, a.dtype(graph).or(b.dtype(graph)))
            }
            E::If(c, a, b) => match c.eval(graph, axis)? {
                Val::Bool(true) => a.eval(graph, axis),
                Val::Bool(false) => b.eval(graph, axis),
                _ => None,
            },
            E::Cast(a, dtype) => {
                let whole = || graph.truncated(a, axis).filter(|_| dtype.is_int()).map(Val::Int);
                let value = a.eval(graph, axis).or_else(whole)?;
                match &value {
                    // Exporters compute shapes in 32 bits.
                    Val::Int(dim) if *dtype == DType::Int32 && dim.as_const().is_none() => {
                        graph.note_narrow(&value, *dtype);
                        Some(value)
                    }
                    _ => value.cast(*dtype),
                }
            }
            E::Call(name, args) => {
                let values: Option<Vec<Val>> = args.iter().map(|e| e.eval(graph, axis)).collect();
                let values = values?;
                let dtype = args.first().and_then(|e| e.dtype(graph));
                call(name, &values, dtype)
            }
        }
    }

    /// The element type; `None` is `index`.
    pub(crate) fn dtype(&self, graph: &Graph) -> Option<DType> {
        match self {
            E::Idx(_) => None,
            E::Lit(_, dtype) | E::Cast(_, dtype) => Some(*dtype),
            E::Load(tensor, _) => Some(graph[*tensor].dtype),
            E::Un("not", _) => Some(DType::Bool),
            E::Un(_, a) => a.dtype(graph),
            E::Bin(op, a, b) => match level(op) {
                1..=4 => Some(DType::Bool),
                _ => a.dtype(graph).or_else(|| b.dtype(graph)),
            },
            E::If(_, a, b) => a.dtype(graph).or_else(|| b.dtype(graph)),
            E::Call("all" | "any" | "is_nan", _) => Some(DType::Bool),
            E::Call(_, args) => args.iter().find_map(|e| e.dtype(graph)),
        }
    }
}

/// What the text of an expression needs to know.
pub(crate) struct Names<'a> {
    pub(crate) axis: &'a dyn Fn(u16) -> String,
    pub(crate) tensor: &'a dyn Fn(T) -> String,
}

fn literal(value: &Val, dtype: DType, names: &Names) -> (String, u8) {
    match value {
        Val::Bool(value) => (value.to_string(), 13),
        Val::Int(dim) => match dim.as_const() {
            Some(value) if value < 0 => (value.to_string(), 11),
            Some(value) => (value.to_string(), 13),
            None => {
                let (text, level) = dim.print(names.axis);
                let text = if level < 2 { format!("({text})") } else { text };
                (format!("({text} as {})", dtype.name()), 13)
            }
        },
        Val::Float(value) if value.is_nan() => (format!("(inf({0}) - inf({0}))", dtype.name()), 13),
        Val::Float(value) if value.is_infinite() => {
            let sign = if *value < 0.0 { "-" } else { "" };
            (format!("{sign}inf({})", dtype.name()), if *value < 0.0 { 11 } else { 13 })
        }
        Val::Float(value) => {
            // The shortest decimal that rounds to the value, in the type that holds it.
            let text = match dtype {
                DType::Float64 => format!("{value:?}"),
                _ => format!("{:?}", *value as f32),
            };
            let level = if text.starts_with('-') { 11 } else { 13 };
            (text, level)
        }
    }
}

fn binary(op: &str, x: &Val, y: &Val, dtype: Option<DType>) -> Option<Val> {
    match (x, y) {
        (Val::Int(a), Val::Int(b)) => {
            let (low, high) = ((a.clone() - b).is_nonnegative(), (b.clone() - a).is_nonnegative());
            let less = (b.clone() - a - 1).is_nonnegative();
            let greater = (a.clone() - b - 1).is_nonnegative();
            let value = match op {
                "+" => a.clone() + b,
                "-" => a.clone() - b,
                "*" => a * b,
                "//" => a.div(b),
                "%" => a.rem(b),
                // Polynomials without a constant difference are not compared.
                "==" if a == b => return Some(Val::Bool(true)),
                "!=" if a == b => return Some(Val::Bool(false)),
                "==" if less || greater => return Some(Val::Bool(false)),
                "!=" if less || greater => return Some(Val::Bool(true)),
                "<" if less => return Some(Val::Bool(true)),
                "<=" if greater => return Some(Val::Bool(false)),
                ">" if greater => return Some(Val::Bool(true)),
                ">=" if less => return Some(Val::Bool(false)),
                "<" if low => return Some(Val::Bool(false)),
                ">=" if low => return Some(Val::Bool(true)),
                ">" if high => return Some(Val::Bool(false)),
                "<=" if high => return Some(Val::Bool(true)),
                _ => {
                    let (a, b) = (a.as_const()?, b.as_const()?);
                    return Some(match op {
                        "==" => Val::Bool(a == b),
                        "!=" => Val::Bool(a != b),
                        "<" => Val::Bool(a < b),
                        "<=" => Val::Bool(a <= b),
                        ">" => Val::Bool(a > b),
                        ">=" => Val::Bool(a >= b),
                        "&" => Val::Int((a & b).into()),
                        "|" => Val::Int((a | b).into()),
                        "^" => Val::Int((a ^ b).into()),
                        _ => return None,
                    });
                }
            };
            if value.is_poison() {
                return None;
            }
            match (value.as_const(), dtype) {
                (Some(value), Some(dtype)) => wrap(value.into(), dtype).map(|v| Val::Int(v.into())),
                _ => Some(Val::Int(value)),
            }
        }
        (Val::Bool(a), Val::Bool(b)) => Some(Val::Bool(match op {
            "and" | "&" => *a && *b,
            "or" | "|" => *a || *b,
            "==" => a == b,
            "!=" | "^" => a != b,
            _ => return None,
        })),
        _ => {
            let (a, b) = (x.as_f64()?, y.as_f64()?);
            let value = match op {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "/" => a / b,
                "==" => return Some(Val::Bool(a == b)),
                "!=" => return Some(Val::Bool(a != b)),
                "<" => return Some(Val::Bool(a < b)),
                "<=" => return Some(Val::Bool(a <= b)),
                ">" => return Some(Val::Bool(a > b)),
                ">=" => return Some(Val::Bool(a >= b)),
                _ => return None,
            };
            Some(Val::Float(round_to(value, dtype.unwrap_or(DType::Float64))))
        }
    }
}

fn call(name: &str, args: &[Val], dtype: Option<DType>) -> Option<Val> {
    match (name, args) {
        ("min", [Val::Int(a), Val::Int(b)]) => Some(Val::Int(a.minimum(b))),
        ("max", [Val::Int(a), Val::Int(b)]) => Some(Val::Int(a.maximum(b))),
        ("clamp", [Val::Int(x), Val::Int(low), Val::Int(high)]) => {
            Some(Val::Int(x.maximum(low).minimum(high)))
        }
        ("abs", [Val::Int(a)]) if a.is_nonnegative() => Some(Val::Int(a.clone())),
        ("abs", [Val::Int(a)]) => a.as_const()?.checked_abs().map(|a| Val::Int(a.into())),
        ("all" | "any", _) => {
            let all = args.iter().map(|v| if let Val::Bool(v) = v { Some(*v) } else { None });
            let all: Vec<bool> = all.collect::<Option<_>>()?;
            let value = if name == "all" { all.iter().all(|v| *v) } else { all.iter().any(|v| *v) };
            Some(Val::Bool(value))
        }
        (_, [Val::Float(a)]) => {
            let value = match name {
                "abs" => a.abs(),
                "floor" => a.floor(),
                "ceil" => a.ceil(),
                "trunc" => a.trunc(),
                "round" => a.round_ties_even(),
                "sqrt" => a.sqrt(),
                // Functions that the compiler rounds in its own way are left to it.
                _ => return None,
            };
            Some(Val::Float(round_to(value, dtype?)))
        }
        (_, [Val::Float(a), Val::Float(b)]) => match name {
            "min" => Some(Val::Float(if a < b { *a } else { *b })),
            "max" => Some(Val::Float(if a > b { *a } else { *b })),
            "pow" => {
                let dtype = dtype?;
                exact_power(*a, *b)
                    .filter(|power| round_to(*power, dtype) == *power)
                    .map(Val::Float)
            }
            _ => None,
        },
        _ => None,
    }
}

/// A square root or a power of integers that is an integer below 2^53. The compiler's `pow` errs by
/// less than one unit in the last place, so it gives the same number.
fn exact_power(base: f64, exponent: f64) -> Option<f64> {
    let is_exact = |value: f64| value.fract() == 0.0 && value.abs() < 2f64.powi(53);
    let power = match exponent {
        0.5 if base > 0.0 => Some(base.sqrt()).filter(|root| root * root == base),
        _ if (0.0..=64.0).contains(&exponent) && is_exact(exponent) => Some(base.powf(exponent)),
        _ => None,
    };
    power.filter(|power| is_exact(base) && is_exact(*power))
}

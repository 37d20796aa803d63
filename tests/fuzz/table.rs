//! The operators, reducers and features that the generator draws, and counts of each.

use crate::tree::Node;
use std::collections::{BTreeMap, BTreeSet};
use tec::ir::DType;

/// A function or operator with the type of its operands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// Its name: `+`, `exp`, `as`, `if`.
    pub name: &'static str,
    /// Its text; `$` stands for an operand, `T` for the type.
    pub form: String,
    /// Types of the operands, in order.
    pub operands: Vec<DType>,
    /// Type of the value.
    pub result: DType,
}

impl Op {
    /// Returns the entry of the table: `+ float32`, `as int8 bool`.
    pub fn tag(&self) -> String {
        match (self.name, self.operands.first()) {
            ("as", Some(from)) => format!("as {from} {}", self.result),
            ("if" | "select", _) => format!("{} {}", self.name, self.result),
            (name, Some(ty)) => format!("{name} {ty}"),
            (name, None) => format!("{name} {}", self.result),
        }
    }
}

fn is_number(ty: DType) -> bool {
    ty != DType::Bool
}

/// Returns all operators, functions and casts for all types, `index` included.
pub fn all_ops() -> Vec<Op> {
    let mut ops = Vec::new();
    let mut add = |name: &'static str, form: String, operands: Vec<DType>, result: DType| {
        ops.push(Op { name, form, operands, result });
    };
    let types: Vec<DType> = DType::ALL.into_iter().chain([DType::Index]).collect();
    for &ty in &types {
        let binary = |name: &'static str| format!("($ {name} $)");
        if is_number(ty) {
            for name in ["+", "-", "*"] {
                add(name, binary(name), vec![ty; 2], ty);
            }
            for name in ["min", "max"] {
                add(name, format!("{name}($, $)"), vec![ty; 2], ty);
            }
            add("neg", "(-$)".to_string(), vec![ty], ty);
            add("abs", "abs($)".to_string(), vec![ty], ty);
            add("clamp", "clamp($, $, $)".to_string(), vec![ty; 3], ty);
        }
        if ty.is_int() {
            for name in ["//", "%"] {
                add(name, binary(name), vec![ty; 2], ty);
            }
            add("~", "(~$)".to_string(), vec![ty], ty);
            add("popcount", "popcount($)".to_string(), vec![ty], ty);
            if ty != DType::Index {
                for name in ["<<", ">>"] {
                    add(name, binary(name), vec![ty; 2], ty);
                }
            }
        }
        if !ty.is_float() {
            for name in ["&", "|", "^"] {
                add(name, binary(name), vec![ty; 2], ty);
            }
        }
        if ty.is_float() {
            add("/", binary("/"), vec![ty; 2], ty);
            add("is_nan", "is_nan($)".to_string(), vec![ty], DType::Bool);
            for name in UNARY_FLOAT {
                add(name, format!("{name}($)"), vec![ty], ty);
            }
            if ty == DType::Float32 {
                add("tf32", "tf32($)".to_string(), vec![ty], ty);
            }
            add("pow", "pow($, $)".to_string(), vec![ty; 2], ty);
            add("fma", "fma($, $, $)".to_string(), vec![ty; 3], ty);
            add("inf", format!("inf({ty})"), vec![], ty);
        }
        if is_number(ty) && ty != DType::Index {
            add("min_value", format!("min_value({ty})"), vec![], ty);
            add("max_value", format!("max_value({ty})"), vec![], ty);
        }
        for name in ["==", "!=", "<", "<=", ">", ">="] {
            add(name, binary(name), vec![ty; 2], DType::Bool);
        }
        add("if", "(if $ then $ else $)".to_string(), vec![DType::Bool, ty, ty], ty);
        add("select", "select($, $, $)".to_string(), vec![DType::Bool, ty, ty], ty);
        for to in DType::ALL {
            add("as", format!("($ as {to})"), vec![ty], to);
        }
        // Nothing but casts takes a quantized value.
        for to in DType::QUANTIZED {
            let wide = if to.is_float() { DType::Float32 } else { DType::Int32 };
            add(to.name(), format!("(($ as {to}) as {wide})"), vec![ty], wide);
        }
    }
    let bool = DType::Bool;
    for name in ["and", "or"] {
        add(name, format!("($ {name} $)"), vec![bool; 2], bool);
    }
    add("not", "(not $)".to_string(), vec![bool], bool);
    add("any", "any($, $, $)".to_string(), vec![bool; 3], bool);
    add("all", "all($, $, $)".to_string(), vec![bool; 3], bool);
    ops
}

const UNARY_FLOAT: [&str; 18] = [
    "floor", "ceil", "round", "trunc", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2",
    "tanh", "sigmoid", "erf", "sin", "cos", "tan", "atan",
];

/// A reducer with the type of its (last) component.
#[derive(Clone, Debug)]
pub struct Reducer {
    /// Built-in name, or the kind of a custom one.
    pub name: &'static str,
    /// Component types.
    pub types: Vec<DType>,
    /// The text of the item, with `@` for its name; empty for a built-in one.
    pub item: &'static str,
    /// The text of each component of a term, such that the term is in the reducer's domain.
    pub within: &'static [&'static str],
}

impl Reducer {
    /// Returns the entry of the table: `reduce sum float32`.
    pub fn tag(&self) -> String {
        let types: Vec<String> = self.types.iter().map(DType::to_string).collect();
        match (self.name, &types[..]) {
            ("argmin" | "argmax", [_, value]) => format!("reduce {} {value}", self.name),
            (name, _) if !self.item.is_empty() => format!("reduce {name}"),
            (name, _) => format!("reduce {name} {}", types.join(" ")),
        }
    }

    /// Returns the text of component `at` of a term, such that the term is in the reducer's domain.
    pub fn in_domain(&self, at: usize, component: Node) -> Node {
        match self.within.get(at) {
            None | Some(&"$") => component,
            Some(form) => Node::new(self.types[at], *form, vec![component]),
        }
    }
}

/// Returns all reducers for all types that they take.
pub fn all_reducers() -> Vec<Reducer> {
    let mut all = Vec::new();
    let mut add = |name, types: Vec<DType>, item| {
        all.push(Reducer { name, types, item, within: within(name) });
    };
    let ints: Vec<DType> = DType::ALL.into_iter().filter(|ty| ty.is_int()).collect();
    for (at, ty) in DType::ALL.into_iter().enumerate() {
        if ty == DType::Bool {
            for name in ["any", "all"] {
                add(name, vec![ty], "");
            }
            add("parity", vec![ty], "reducer @(a, b) = a != b identity false");
            add("same", vec![ty], "reducer @(a, b) = a == b identity true");
            add("either", vec![ty], "reducer @(a, b) = a or b identity false");
            continue;
        }
        for name in ["min", "max"] {
            add(name, vec![ty], "");
        }
        let index = ints[at % ints.len()];
        for name in ["argmin", "argmax"] {
            add(name, vec![index, ty], "");
        }
        if ty.is_half() {
            continue;
        }
        for name in ["sum", "prod"] {
            add(name, vec![ty], "");
        }
        add("product", vec![ty], "reducer @(a, b) = a * b identity 1");
        add("first", vec![ty], "reducer @(a, b) = if a != 0 then a else b identity 0");
        add(
            "argbest",
            vec![index, ty],
            match ty.is_float() {
                true => {
                    "reducer @((ai, av), (bi, bv)) = (if av > bv or (av == bv and ai < bi) then ai \
                     else bi, max(av, bv)) identity (max_value, -inf)"
                }
                false => {
                    "reducer @((ai, av), (bi, bv)) = (if av > bv or (av == bv and ai < bi) then ai \
                     else bi, max(av, bv)) identity (max_value, min_value)"
                }
            },
        );
        if ty.is_float() {
            let item = "reducer @((a, b), (c, d)) = (min(a, c), max(b, d)) identity (inf, -inf)";
            add("span", vec![ty, ty], item);
            let item = "reducer @((s, c), (t, d)) = (s + t, c + d) identity (0, 0)";
            add("mean", vec![ty, DType::Int32], item);
            let item = "reducer @(a, b) = sqrt(a * a + b * b) identity 0.0 where a >= 0.0";
            add("length", vec![ty], item);
            let item = "reducer @((n, m, s), (o, p, t)) = (n + o, \
                        if n == 0.0 then p else m + (p - m) * (o / (n + o)), \
                        if n == 0.0 then t else s + t + (p - m) * (p - m) * n * (o / (n + o))) \
                        identity (0.0, 0.0, 0.0) \
                        where n > 0.0 or n == 0.0 and m == 0.0 and s == 0.0";
            add("welford", vec![ty, ty, ty], item);
        } else {
            add("xor", vec![ty], "reducer @(a, b) = a ^ b identity 0");
            // The identity of `&` has every bit set: -1 in signed types.
            add(
                "mask",
                vec![ty],
                match ty.is_signed() {
                    true => "reducer @(a, b) = a & b identity -1",
                    false => "reducer @(a, b) = a & b identity max_value",
                },
            );
            let item = "reducer @((a, b), (c, d)) = (a * c, b * c + d) identity (1, 0)";
            add("affine", vec![ty, ty], item);
            let item = "reducer @((a, b, c), (d, e, f)) = (a + d, max(b, e), c | f) \
                        identity (0, min_value, 0)";
            add("triple", vec![ty, ty, ty], item);
        }
    }
    all
}

/// See [`Reducer::within`].
fn within(name: &str) -> &'static [&'static str] {
    match name {
        "length" => &["max($, 0.0)"],
        "welford" => &["max($, 0.5)", "$", "$"],
        _ => &[],
    }
}

/// The features of programs besides operators and reducers.
pub const FEATURES: &[&str] = &[
    "-D",
    "alias",
    "assert",
    "assert inputs",
    "assume",
    "axis as data",
    "bool parameter",
    "broadcast",
    "compile-time if",
    "constant parameter",
    "def",
    "dtype parameter",
    "estimate",
    "extent 0",
    "extent 1",
    "index by a scalar",
    "index clamped",
    "index modulo",
    "index product of sums",
    "index of an input unclamped",
    "index of data clamped",
    "index of data modulo",
    "index shifted at risk",
    "init=",
    "kernel that is not built",
    "layout_free",
    "let constant",
    "multi-consumer",
    "nested operator",
    "operator",
    "padding",
    "rank 0",
    "rank 1",
    "rank 2",
    "rank 3",
    "rank 4",
    "quantized input",
    "real parameter",
    "recurrence",
    "reassociate",
    "reduce from",
    "reduce over several axes",
    "reshape //",
    "reshape merged",
    "reversed",
    "several outputs",
    "sort",
    "strided window",
    "symbolic",
    "symbolic expression",
    "symbolic reduction",
    "transpose",
    "tuple with types",
    "type given",
    "unused reducer",
    "extreme run-time integer",
    "comparison with an extreme",
    "var as argument",
    "where=",
    "comparison of integers",
];

/// Counts of what was drawn in programs that compiled.
#[derive(Default)]
pub struct Table {
    counts: BTreeMap<String, u64>,
}

impl Table {
    /// Counts a program's tags or its outcome.
    pub fn add<'a>(&mut self, tags: impl IntoIterator<Item = &'a String>) {
        for tag in tags {
            *self.counts.entry(tag.clone()).or_default() += 1;
        }
    }

    /// Adds another table.
    pub fn merge(&mut self, other: Table) {
        for (tag, count) in other.counts {
            *self.counts.entry(tag).or_default() += count;
        }
    }

    /// Returns all entries that must be drawn.
    fn required() -> BTreeSet<String> {
        let ops = all_ops().into_iter().map(|op| op.tag());
        let reducers = all_reducers().into_iter().map(|reducer| reducer.tag());
        let features = FEATURES.iter().map(|feature| format!("feature {feature}"));
        let inputs = DType::ALL
            .into_iter()
            .flat_map(|ty| ["input", "scalar", "stage"].map(|what| format!("{what} {ty}")));
        let modes = ["off", "fast"].map(|mode| format!("fp-contract {mode}"));
        let opts = (0..4).map(|opt| format!("opt {opt}"));
        ops.chain(reducers).chain(features).chain(inputs).chain(modes).chain(opts).collect()
    }

    /// Returns the entries that were never drawn.
    pub fn missing(&self) -> Vec<String> {
        Table::required().into_iter().filter(|tag| !self.counts.contains_key(tag)).collect()
    }

    /// Returns the table: a line per operator, function, reducer and feature, a column per type.
    pub fn print(&self) -> String {
        let mut rows: BTreeMap<(u8, String), BTreeMap<String, u64>> = BTreeMap::new();
        for (tag, count) in &self.counts {
            let words: Vec<&str> = tag.split(' ').collect();
            let is_type = |word: &str| word == "index" || DType::from_name(word).is_some();
            let (kind, row, column) = match words[..] {
                ["feature", ..] => (4, tag.clone(), String::new()),
                ["as", from, to] => (2, format!("as {to}, from"), from.to_string()),
                ["reduce", name, ty] => (3, format!("reduce {name}"), ty.to_string()),
                [name, ty] if is_type(ty) => (1, name.to_string(), ty.to_string()),
                _ => (5, tag.clone(), String::new()),
            };
            *rows.entry((kind, row)).or_default().entry(column).or_default() += count;
        }
        let columns: Vec<String> =
            DType::ALL.iter().map(DType::to_string).chain(["index".to_string()]).collect();
        let mut text = format!("{:24}", "");
        columns.iter().for_each(|column| text.push_str(&format!("{:>9}", short(column))));
        text.push('\n');
        for ((_, row), counts) in rows {
            if let Some(count) = counts.get("") {
                text.push_str(&format!("{row:38}{count:>9}\n"));
                continue;
            }
            text.push_str(&format!("{row:24}"));
            for column in &columns {
                match counts.get(column) {
                    Some(count) => text.push_str(&format!("{count:>9}")),
                    None => text.push_str(&format!("{:>9}", "")),
                }
            }
            text.push('\n');
        }
        text
    }
}

fn short(ty: &str) -> String {
    ty.replace("bfloat", "bf").replace("float", "f").replace("uint", "u").replace("int", "i")
}

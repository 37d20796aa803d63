//! Numbers of a manifest that may depend on run-time integers: extents, workspace bytes, work.
//!
//! In JSON such a number is a number, or a string in `.te` syntax over the names of the kernel's
//! run-time integers: `"(n + 2*p - k)//s + 1"`. `tec run MODULE.so` parses it.

use crate::codegen::entry::{LEVELS, extent_text};
use crate::ir::{BinOp, DType, Expr, UnOp, Var};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A number or an expression.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Extent {
    /// A number that is known at compile time.
    Number(i64),
    /// An expression over run-time integers.
    Expression(String),
}

impl Extent {
    /// Returns the manifest's form of an `index` expression.
    pub fn new(expr: &Expr) -> Extent {
        match expr.as_int().map(i64::try_from) {
            Some(Ok(value)) => Extent::Number(value),
            _ => Extent::Expression(extent_text(expr)),
        }
    }

    /// Parses the expression, with variables from `var_of`. Returns `None` if `var_of` does not
    /// know a name or the text is not an integer expression.
    pub fn to_expr(&self, var_of: &dyn Fn(&str) -> Option<Var>) -> Option<Expr> {
        match self {
            Extent::Number(value) => Some(Expr::index(*value)),
            Extent::Expression(text) => {
                let mut parser = Parser { rest: text, depth: 0, var_of };
                let expr = parser.level(0)?;
                (parser.rest.is_empty() && expr.ty == DType::Index.into()).then_some(expr)
            }
        }
    }

    /// Returns the larger one of two numbers.
    pub fn max(self, other: Extent) -> Extent {
        match (&self, &other) {
            (Extent::Number(a), Extent::Number(b)) => Extent::Number(*a.max(b)),
            (a, b) if a == b => self,
            (a, b) => Extent::Expression(format!("max({a}, {b})")),
        }
    }

    /// Returns the name, if the expression is a single name.
    pub fn as_name(&self) -> Option<&str> {
        match self {
            Extent::Expression(text) if is_name(text) => Some(text),
            _ => None,
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Number(value) => value.fmt(f),
            Extent::Expression(text) => f.write_str(text),
        }
    }
}

/// A parser for the output of `extent_text`. The text may be damaged, so types are checked.
struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    var_of: &'a dyn Fn(&str) -> Option<Var>,
}

/// Deepest nesting of parentheses; `tec` writes none as deep.
const MAX_DEPTH: usize = 300;

impl Parser<'_> {
    fn level(&mut self, level: usize) -> Option<Expr> {
        if level == LEVELS.len() {
            return self.operand();
        }
        let mut value = self.level(level + 1)?;
        'operators: loop {
            for (symbol, op) in LEVELS[level] {
                if self.eat(symbol) {
                    let right = self.level(level + 1)?;
                    value = binary(*op, value, right)?;
                    continue 'operators;
                }
            }
            return Some(value);
        }
    }

    /// Returns an expression in parentheses.
    fn inner(&mut self) -> Option<Expr> {
        self.depth += 1;
        let value = if self.depth > MAX_DEPTH { None } else { self.level(0) };
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Option<Expr> {
        if self.eat("(") {
            let value = self.inner()?;
            return self.eat(")").then_some(value);
        }
        let negative = self.eat("-");
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        if negative || word.starts_with(|c: char| c.is_ascii_digit()) {
            let value: i128 = word.parse().ok()?;
            return i64::try_from(if negative { -value } else { value }).ok().map(Expr::index);
        }
        if !is_name(word) {
            return None;
        }
        if !self.eat("(") {
            return (self.var_of)(word).map(|var| Expr::var(&var));
        }
        let mut args = vec![self.inner()?];
        while self.eat(",") {
            args.push(self.inner()?);
        }
        if !self.eat(")") {
            return None;
        }
        call(word, &args)
    }

    /// Skips `symbol` and the blanks after it, if it is next. Returns whether it was.
    fn eat(&mut self, symbol: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(symbol) else { return false };
        if is_name(symbol) && rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return false;
        }
        self.rest = rest.trim_start();
        true
    }
}

fn is_bool(expr: &Expr) -> bool {
    expr.ty.dtype == DType::Bool
}

fn binary(op: BinOp, a: Expr, b: Expr) -> Option<Expr> {
    let logical = matches!(op, BinOp::And | BinOp::Or);
    let fits = a.ty == b.ty && is_bool(&a) == logical;
    fits.then(|| Expr::binary(op, a, b))
}

fn call(name: &str, args: &[Expr]) -> Option<Expr> {
    match (name, args) {
        ("min", [a, b]) => binary(BinOp::Min, a.clone(), b.clone()),
        ("max", [a, b]) => binary(BinOp::Max, a.clone(), b.clone()),
        ("abs", [a]) if !is_bool(a) => Some(Expr::unary(UnOp::Abs, a.clone())),
        ("not", [a]) if is_bool(a) => Some(Expr::not(a.clone())),
        ("select", [c, a, b]) if is_bool(c) && a.ty == b.ty => {
            Some(Expr::select(c.clone(), a.clone(), b.clone()))
        }
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::arith::Facts;
    use crate::ir::simplify::simplify_expr;
    use crate::ir::visit::substitute;

    #[test]
    fn texts_evaluate_to_the_expression() {
        let (n_var, p_var) = (Var::index("n"), Var::index("p"));
        let (n, p) = (Expr::var(&n_var), Expr::var(&p_var));
        let two_p = Expr::mul(Expr::index(2), p.clone());
        let padded = Expr::sub(Expr::add(n.clone(), two_p), Expr::index(3));
        let conv = Expr::add(Expr::binary(BinOp::FloorDiv, padded, Expr::index(2)), Expr::index(1));
        let nested = Expr::sub(n.clone(), Expr::sub(p.clone(), Expr::index(-4)));
        let chosen = Expr::select(
            Expr::and(Expr::lt(p.clone(), n.clone()), Expr::le(Expr::index(0), p.clone())),
            Expr::binary(BinOp::Max, n.clone(), p.clone()),
            Expr::binary(BinOp::FloorMod, Expr::mul(n.clone(), p), Expr::index(-7)),
        );
        for (expr, text, value) in [
            (conv, "(n + 2*p - 3)//2 + 1", (10 + 2 * 4 - 3) / 2 + 1),
            (nested, "n - (p - (-4))", 10 - (4 + 4)),
            (chosen, "select(p < n and 0 <= p, max(n, p), n*p%(-7))", 10),
            (n, "n", 10),
            (Expr::index(12), "12", 12),
        ] {
            let extent = Extent::new(&expr);
            assert_eq!(extent.to_string(), text);
            let var_of = |name: &str| match name {
                "n" => Some(n_var.clone()),
                "p" => Some(p_var.clone()),
                _ => None,
            };
            let again = extent.to_expr(&var_of).expect(text);
            let value_of = |var: &Var| Some(Expr::index(if *var == n_var { 10 } else { 4 }));
            let result = substitute(&again, &mut |var| value_of(var));
            let result = simplify_expr(&result, &Facts::new());
            assert_eq!(result.as_int(), Some(value), "{text}");
            let json = serde_json::to_string(&extent).unwrap();
            assert_eq!(serde_json::from_str::<Extent>(&json).unwrap(), extent);
        }
        for text in ["q + 1", "n +", "n n", "n < p", "n and p", "min(n)", "99999999999999999999"] {
            let var_of = |name: &str| (name != "q").then(|| Var::index(name));
            assert!(Extent::Expression(text.into()).to_expr(&var_of).is_none(), "{text}");
        }
    }
}

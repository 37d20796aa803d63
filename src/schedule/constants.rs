//! Constant expressions of schedules: integers, conditions, element types, facts of the target.

use super::evaluate::Evaluator;
use crate::diag::{Diag, Result, Span, closest};
use crate::ir::DType;
use crate::lang::ast::{self, BinaryOp, ExprKind, Name, UnaryOp};
use crate::te::Constant;

impl Evaluator<'_> {
    /// The value of a constant expression.
    pub(super) fn constant(&self, expr: &ast::Expr) -> Result<Constant> {
        let span = expr.span;
        match &*expr.kind {
            ExprKind::Int(digits) => Ok(Constant::Int(parse_int(digits, span)?)),
            ExprKind::Bool(value) => Ok(Constant::Bool(*value)),
            ExprKind::Name(name) => self.named_constant(name),
            ExprKind::Dotted(path) => self.target_fact(path, span),
            ExprKind::DottedCall(path, args) => self.lanes(path, args, span),
            ExprKind::Unary(UnaryOp::Neg, a) => {
                let value = self.int(a)?.checked_neg();
                value.map(Constant::Int).ok_or_else(|| overflow(span))
            }
            ExprKind::Unary(UnaryOp::Not, a) => Ok(Constant::Bool(!self.condition(a)?)),
            ExprKind::Unary(UnaryOp::BitNot, a) => Ok(Constant::Int(!self.int(a)?)),
            ExprKind::Binary(op, a, b, _) => self.binary(*op, a, b, span),
            ExprKind::If(cond, a, b) => match self.condition(cond)? {
                true => self.constant(a),
                false => self.constant(b),
            },
            ExprKind::Call(name, args) => self.call(name, args, span),
            _ => Err(no_constant(span)),
        }
    }

    /// An integer.
    pub(super) fn int(&self, expr: &ast::Expr) -> Result<i64> {
        match self.constant(expr)? {
            Constant::Int(value) => Ok(value),
            other => Err(wrong_kind(expr.span, "an integer", other)),
        }
    }

    /// A condition.
    pub(super) fn condition(&self, expr: &ast::Expr) -> Result<bool> {
        match self.constant(expr)? {
            Constant::Bool(value) => Ok(value),
            other => Err(wrong_kind(expr.span, "a condition", other)),
        }
    }

    fn named_constant(&self, name: &Name) -> Result<Constant> {
        if let Some(value) = self.lookup(&name.text) {
            return match value {
                super::directives::Value::Int(value) => Ok(Constant::Int(*value)),
                super::directives::Value::Bool(value) => Ok(Constant::Bool(*value)),
                _ => {
                    let text = format!("`{}` is a stage or an axis, not a number", name.text);
                    Err(Box::new(Diag::new("E0309", name.span, text)))
                }
            };
        }
        let graph = &self.schedule.graph;
        if let Some((_, value)) = graph.consts.iter().find(|(known, _)| *known == name.text) {
            return Ok(*value);
        }
        if let Some(dtype) = DType::from_name(&name.text) {
            return Ok(Constant::DType(dtype));
        }
        if graph.vars.iter().any(|var| var.name() == name.text) {
            let text = format!("`{}` is a run-time integer, its value is not known", name.text);
            return Err(Box::new(
                Diag::new("E0309", name.span, text)
                    .help("a schedule computes with compile-time parameters and constants"),
            ));
        }
        let diag = Diag::new("E0309", name.span, format!("unknown name `{}`", name.text));
        let known = graph.consts.iter().map(|(name, _)| &name[..]).chain(self.names());
        Err(Box::new(match closest(&name.text, known) {
            Some(close) => diag.help(format!("did you mean `{close}`?")),
            None => diag,
        }))
    }

    /// `target.cores` and the like; `P.S` is a stage.
    fn target_fact(&self, path: &[Name], span: Span) -> Result<Constant> {
        match path {
            [target, fact] if target.text == "target" => match &fact.text[..] {
                "cores" | "max_threads" => Ok(Constant::Int(1)),
                "shared_bytes" => Ok(Constant::Int(0)),
                _ => Err(Box::new(
                    Diag::new("E0309", fact.span, format!("unknown fact `target.{}`", fact.text))
                        .note("known: target.cores, target.max_threads, target.shared_bytes, target.lanes(T)"),
                )),
            },
            _ => Err(no_constant(span)),
        }
    }

    fn lanes(&self, path: &[Name], args: &[ast::Arg], span: Span) -> Result<Constant> {
        let is_lanes = path.len() == 2 && path[0].text == "target" && path[1].text == "lanes";
        let ([arg], true) = (args, is_lanes) else { return Err(no_constant(span)) };
        match self.constant(&arg.value)? {
            Constant::DType(dtype) => {
                let lanes = u64::from(self.schedule.target.vector_bytes) / dtype.bytes();
                Ok(Constant::Int(lanes.max(1) as i64))
            }
            other => Err(wrong_kind(arg.value.span, "an element type", other)),
        }
    }

    fn binary(&self, op: BinaryOp, a: &ast::Expr, b: &ast::Expr, span: Span) -> Result<Constant> {
        match op {
            BinaryOp::And => return Ok(Constant::Bool(self.condition(a)? && self.condition(b)?)),
            BinaryOp::Or => return Ok(Constant::Bool(self.condition(a)? || self.condition(b)?)),
            BinaryOp::Eq => return Ok(Constant::Bool(self.constant(a)? == self.constant(b)?)),
            BinaryOp::Ne => return Ok(Constant::Bool(self.constant(a)? != self.constant(b)?)),
            _ => {}
        }
        let (x, y) = (self.int(a)?, self.int(b)?);
        let int = |value: Option<i64>| value.map(Constant::Int).ok_or_else(|| overflow(span));
        let nonzero = || match y {
            0 => Err(Box::new(Diag::new("E0309", b.span, "division by zero"))),
            _ => Ok(()),
        };
        match op {
            BinaryOp::Add => int(x.checked_add(y)),
            BinaryOp::Sub => int(x.checked_sub(y)),
            BinaryOp::Mul => int(x.checked_mul(y)),
            BinaryOp::FloorDiv => {
                nonzero()?;
                int(x.checked_div_euclid(y).map(|_| num_integer::Integer::div_floor(&x, &y)))
            }
            BinaryOp::Mod => {
                nonzero()?;
                int(x.checked_rem_euclid(y).map(|_| num_integer::Integer::mod_floor(&x, &y)))
            }
            BinaryOp::Div => {
                Err(Box::new(Diag::new("E0309", span, "`/` gives no integer").help("write `//`")))
            }
            BinaryOp::BitAnd => Ok(Constant::Int(x & y)),
            BinaryOp::BitOr => Ok(Constant::Int(x | y)),
            BinaryOp::BitXor => Ok(Constant::Int(x ^ y)),
            BinaryOp::Shl | BinaryOp::Shr => {
                let amount = u32::try_from(y).ok().filter(|amount| *amount < 63);
                let shifted = amount.and_then(|amount| match op {
                    BinaryOp::Shl => x.checked_mul(1 << amount),
                    _ => Some(x >> amount),
                });
                int(shifted)
            }
            BinaryOp::Lt => Ok(Constant::Bool(x < y)),
            BinaryOp::Le => Ok(Constant::Bool(x <= y)),
            BinaryOp::Gt => Ok(Constant::Bool(x > y)),
            BinaryOp::Ge => Ok(Constant::Bool(x >= y)),
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::And | BinaryOp::Or => {
                crate::bug!("{op:?} is done above")
            }
        }
    }

    fn call(&self, name: &Name, args: &[ast::Arg], span: Span) -> Result<Constant> {
        let values =
            || -> Result<Vec<i64>> { args.iter().map(|arg| self.int(&arg.value)).collect() };
        match (&name.text[..], args.len()) {
            ("min", 2) => Ok(Constant::Int(values()?.into_iter().min().expect("two values"))),
            ("max", 2) => Ok(Constant::Int(values()?.into_iter().max().expect("two values"))),
            ("abs", 1) => {
                let value = values()?[0].checked_abs();
                value.map(Constant::Int).ok_or_else(|| overflow(span))
            }
            _ => {
                let text = format!("`{}` is no function of constants in a schedule", name.text);
                let diag = Diag::new("E0309", name.span, text);
                Err(Box::new(diag.note("known: min(a, b), max(a, b), abs(a)")))
            }
        }
    }
}

/// An integer literal that fits.
pub(super) fn parse_int(digits: &str, span: Span) -> Result<i64> {
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    value.map_err(|_| overflow(span))
}

/// A value given with `-D`.
pub(super) fn parse_setting(text: &str) -> Option<Constant> {
    match text {
        "true" => Some(Constant::Bool(true)),
        "false" => Some(Constant::Bool(false)),
        _ => match text.parse() {
            Ok(value) => Some(Constant::Int(value)),
            Err(_) => DType::from_name(text).map(Constant::DType),
        },
    }
}

fn overflow(span: Span) -> Box<Diag> {
    Box::new(Diag::new("E0309", span, "the value does not fit 64 bits"))
}

fn no_constant(span: Span) -> Box<Diag> {
    Box::new(Diag::new("E0309", span, "a constant is expected"))
}

fn wrong_kind(span: Span, wanted: &str, found: Constant) -> Box<Diag> {
    let found = match found {
        Constant::Int(value) => format!("the integer {value}"),
        Constant::Bool(value) => format!("the condition `{value}`"),
        Constant::DType(dtype) => format!("the type `{dtype}`"),
    };
    Box::new(Diag::new("E0309", span, format!("{wanted} is expected, this is {found}")))
}

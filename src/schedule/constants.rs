//! Evaluates the expressions of schedules: 64-bit integers, conditions, stages, axes.

use super::directives::Value;
use super::evaluate::{Evaluator, refuse, same, source_text, suggest};
use crate::diag::{Diag, Result, Span};
use crate::ir::{self, BinOp, DType};
use crate::lang::ast::{Arg, BinaryOp, Expr, ExprKind, Name, UnaryOp};
use crate::target::Gpu;
use crate::te::Input;

impl Evaluator<'_> {
    /// Evaluates an expression.
    pub(super) fn eval(&self, expr: &Expr) -> Result<Value> {
        match &*expr.kind {
            ExprKind::Int(text) => match parse_int(text) {
                Some(value) => Ok(Value::Int(value)),
                None => refuse("E0312", expr.span, format!("{text} does not fit into 64 bits")),
            },
            ExprKind::Bool(value) => Ok(Value::Bool(*value)),
            ExprKind::Name(name) => self.name(name),
            ExprKind::Dotted(path) => self.dotted(path, expr.span),
            ExprKind::Unary(op, value) => match (op, self.eval(value)?) {
                (UnaryOp::Not, Value::Bool(value)) => Ok(Value::Bool(!value)),
                (UnaryOp::Neg, Value::Int(value)) => fits(-i128::from(value), expr.span),
                (UnaryOp::BitNot, Value::Int(value)) => Ok(Value::Int(!value)),
                (UnaryOp::Not, Value::RunTime(value)) if is_condition(&value) => {
                    Ok(Value::RunTime(ir::Expr::not(value)))
                }
                (UnaryOp::Neg, Value::RunTime(value)) if !is_condition(&value) => {
                    Ok(Value::RunTime(ir::Expr::sub(ir::Expr::index(0), value)))
                }
                (_, value) => self.unsupported_operand(&value, expr.span),
            },
            ExprKind::Binary(op, a, b, _) => self.binary(*op, a, b, expr.span),
            ExprKind::If(cond, then, otherwise) => match self.condition(cond)? {
                true => self.eval(then),
                false => self.eval(otherwise),
            },
            ExprKind::Call(name, args) => self.function(name, args, expr.span),
            ExprKind::DottedCall(path, args) => match (&path[..], &args[..]) {
                ([target, fact], [arg]) if target.text == "target" => match &fact.text[..] {
                    "lanes" => self.lanes(arg),
                    "cache_bytes" => self.cache_bytes(arg),
                    _ => self.dotted(path, expr.span),
                },
                _ => refuse("E0312", expr.span, "a directive has no value here"),
            },
            _ => refuse("E0312", expr.span, "this is not a constant of a schedule"),
        }
    }

    /// Evaluates a condition.
    pub(super) fn condition(&self, expr: &Expr) -> Result<bool> {
        match self.eval(expr)? {
            Value::Bool(value) => Ok(value),
            Value::RunTime(cond) if cond.ty.dtype == DType::Bool => {
                let text = source_text(self.program, expr.span);
                self.branches.borrow_mut().decide(&self.schedule.graph, &cond, (text, expr.span))
            }
            other => {
                let text = format!("a condition is expected, not {}", self.describe(&other));
                refuse("E0312", expr.span, text)
            }
        }
    }

    /// Evaluates an integer, condition or word.
    pub(super) fn constant(&self, expr: &Expr) -> Result<Value> {
        match self.eval(expr)? {
            value @ (Value::Int(_) | Value::Bool(_) | Value::Word(_)) => Ok(value),
            other => {
                let text = format!("a constant is expected, not {}", self.describe(&other));
                refuse("E0312", expr.span, text)
            }
        }
    }

    /// Describes a value, for messages.
    pub(super) fn describe(&self, value: &Value) -> String {
        match value {
            Value::Int(value) => format!("`{value}`"),
            Value::Bool(value) => format!("`{value}`"),
            Value::Stage(id) => format!("stage `{}`", self.schedule.stage(*id).te.name),
            Value::Input(_) => "an input".to_string(),
            Value::Axis(stage, axis) => {
                format!("axis `{}`", self.schedule.stage(*stage).axis(*axis).name)
            }
            Value::NamedAxis(.., name) => format!("axis `{name}`"),
            Value::Word(word) => format!("`{word}`"),
            Value::Star => "`*`".to_string(),
            Value::Scope(_) => "a storage scope".to_string(),
            Value::List(_) => "a list".to_string(),
            Value::Expr(_) => "an expression".to_string(),
            Value::RunTime(value) => {
                let what = if is_condition(value) { "a condition" } else { "an integer" };
                format!("{what} that is known only at run time")
            }
        }
    }

    fn name(&self, name: &Name) -> Result<Value> {
        if let Some(value) = self.lookup(&name.text) {
            return Ok(value);
        }
        if DType::from_name(&name.text).is_some() {
            return Ok(Value::Word(name.text.clone()));
        }
        if !self.in_template()
            && let Some(var) = self.schedule.graph.vars.iter().find(|var| var.name() == name.text)
        {
            return Ok(Value::RunTime(ir::Expr::var(var)));
        }
        let diag = Diag::new("E0312", name.span, format!("unknown name `{}`", name.text));
        Err(Box::new(suggest(diag, &name.text, self.names(), "names")))
    }

    fn dotted(&self, path: &[Name], span: Span) -> Result<Value> {
        let words: Vec<&str> = path.iter().map(|name| &name.text[..]).collect();
        match words[..] {
            // Independent of the build machine, so that modules are reproducible.
            ["target", "cores"] => Ok(Value::Int(1)),
            ["target", "max_threads"] => {
                let threads = self.target.gpu.map_or(0, |_| Gpu::MAX_THREADS);
                Ok(Value::Int(i64::from(threads)))
            }
            ["target", "shared_bytes"] => {
                Ok(Value::Int(self.target.gpu.map_or(0, |gpu| i64::from(gpu.shared_bytes))))
            }
            ["target", ..] => {
                let all =
                    vec!["cores", "max_threads", "shared_bytes", "lanes(T)", "cache_bytes(LEVEL)"];
                let diag = Diag::new("E0312", span, format!("unknown `{}`", words.join(".")));
                Err(Box::new(suggest(diag, words[1], all, "facts of a target")))
            }
            _ => {
                let name = words.join(".");
                self.tensor(&name).ok_or_else(|| self.unknown_tensor(&name, span, false))
            }
        }
    }

    /// Returns the error for the name of no stage; if `inputs`, of no stage or input.
    pub(super) fn unknown_tensor(&self, name: &str, span: Span, inputs: bool) -> Box<Diag> {
        let graph = &self.schedule.graph;
        let alias = graph.aliases.iter().find(|(alias, _)| alias == name);
        let meant = alias.map_or(name, |(_, of)| of);
        if graph.dropped.iter().any(|dropped| dropped == meant) {
            let diag = Diag::new("E0306", span, format!("stage `{name}` is not computed"));
            return Box::new(diag.note(format!("no output needs `{meant}`")));
        }
        let stages = self.schedule.stages.iter().map(|stage| &stage.te.name[..]);
        let tensors = self.schedule.graph.inputs.iter().filter_map(|input| match input {
            Input::Tensor { buffer, .. } => Some(&buffer.name[..]),
            Input::Scalar { .. } => None,
        });
        let of_kind = |(_, of): &&(String, String)| {
            matches!(self.tensor(of), Some(Value::Stage(_)))
                || (inputs && self.tensor(of).is_some())
        };
        let aliases = self.schedule.graph.aliases.iter().filter(of_kind);
        let aliases = aliases.map(|(alias, _)| &alias[..]);
        let names = stages.chain(tensors.filter(|_| inputs)).chain(aliases).collect();
        let (one, all) = match inputs {
            true => ("stage or input", "stages and inputs"),
            false => ("stage", "stages"),
        };
        let diag = Diag::new("E0306", span, format!("unknown {one} `{name}`"));
        Box::new(suggest(diag, name, names, all))
    }

    fn lanes(&self, arg: &Arg) -> Result<Value> {
        match self.eval(&arg.value)? {
            Value::Word(word) if DType::from_name(&word).is_some() => {
                let dtype = DType::from_name(&word).expect("just seen");
                Ok(Value::Int(i64::from(self.target.lanes(dtype))))
            }
            other => {
                let text = format!("a data type is expected, not {}", self.describe(&other));
                refuse("E0312", arg.value.span, text)
            }
        }
    }

    /// Returns the bytes of a data cache of the target's processor; 0 for a level that it lacks,
    /// and for GPUs.
    fn cache_bytes(&self, arg: &Arg) -> Result<Value> {
        match self.eval(&arg.value)? {
            Value::Int(level @ 1..=3) => {
                let caches = self.target.processor.caches;
                let bytes = caches.get(level as usize - 1).map_or(0, |cache| cache.bytes());
                Ok(Value::Int(if self.target.is_gpu() { 0 } else { bytes }))
            }
            other => {
                let text = format!("a level, 1 to 3, is expected, not {}", self.describe(&other));
                refuse("E0312", arg.value.span, text)
            }
        }
    }

    fn function(&self, name: &Name, args: &[Arg], span: Span) -> Result<Value> {
        let (min, max) = (name.text == "min", name.text == "max");
        let [a, b] = args else {
            return refuse("E0312", span, "a schedule calls only `min(a, b)` and `max(a, b)`");
        };
        match (self.eval(&a.value)?, self.eval(&b.value)?) {
            (a, b) if (min || max) && (is_run_time(&a) || is_run_time(&b)) => {
                let op = if min { BinOp::Min } else { BinOp::Max };
                match (run_time_integer(&a), run_time_integer(&b)) {
                    (Some(x), Some(y)) => Ok(Value::RunTime(ir::Expr::binary(op, x, y))),
                    (None, _) => self.unsupported_operand(&a, span),
                    (_, None) => self.unsupported_operand(&b, span),
                }
            }
            (Value::Int(a), Value::Int(b)) if min => Ok(Value::Int(a.min(b))),
            (Value::Int(a), Value::Int(b)) if max => Ok(Value::Int(a.max(b))),
            (a, _) if min || max => self.unsupported_operand(&a, span),
            _ => refuse("E0312", span, "a schedule calls only `min(a, b)` and `max(a, b)`"),
        }
    }

    fn binary(&self, op: BinaryOp, a: &Expr, b: &Expr, span: Span) -> Result<Value> {
        let left = self.eval(a)?;
        // `and` and `or` evaluate the right side only if the left one does not decide.
        match (op, &left) {
            (BinaryOp::And, Value::Bool(false)) => return Ok(left),
            (BinaryOp::Or, Value::Bool(true)) => return Ok(left),
            _ => {}
        }
        let right = self.eval(b)?;
        match (op, &left, &right) {
            (BinaryOp::And | BinaryOp::Or, Value::Bool(_), Value::Bool(_)) => Ok(right),
            (_, Value::Int(x), Value::Int(y)) => integers(op, *x, *y, span),
            _ if is_run_time(&left) || is_run_time(&right) => match run_time(op, &left, &right) {
                Some(value) => Ok(Value::RunTime(value)),
                None if is_run_time(&left) => self.unsupported_operand(&left, a.span),
                None => self.unsupported_operand(&right, b.span),
            },
            (
                BinaryOp::Eq | BinaryOp::Ne,
                Value::Bool(_) | Value::Word(_),
                Value::Bool(_) | Value::Word(_),
            ) => Ok(Value::Bool(same(&left, &right) == (op == BinaryOp::Eq))),
            (_, Value::Int(_), _) => self.unsupported_operand(&right, b.span),
            _ => self.unsupported_operand(&left, a.span),
        }
    }

    fn unsupported_operand(&self, value: &Value, span: Span) -> Result<Value> {
        let text = format!("this operation does not take {}", self.describe(value));
        refuse("E0312", span, text)
    }
}

fn is_run_time(value: &Value) -> bool {
    matches!(value, Value::RunTime(_))
}

fn is_condition(value: &ir::Expr) -> bool {
    value.ty.dtype == DType::Bool
}

/// Returns an integer, known or not, as an expression.
fn run_time_integer(value: &Value) -> Option<ir::Expr> {
    match value {
        Value::Int(value) => Some(ir::Expr::index(*value)),
        Value::RunTime(value) if !is_condition(value) => Some(value.clone()),
        _ => None,
    }
}

/// Returns a condition, known or not, as an expression.
fn run_time_condition(value: &Value) -> Option<ir::Expr> {
    match value {
        Value::Bool(value) => Some(ir::Expr::bool(*value)),
        Value::RunTime(value) if is_condition(value) => Some(value.clone()),
        _ => None,
    }
}

/// Returns an operation on values that are known only at run time; `None` if there is none.
fn run_time(op: BinaryOp, a: &Value, b: &Value) -> Option<ir::Expr> {
    let integers = |op| Some(ir::Expr::binary(op, run_time_integer(a)?, run_time_integer(b)?));
    match op {
        BinaryOp::Add => integers(BinOp::Add),
        BinaryOp::Sub => integers(BinOp::Sub),
        BinaryOp::Mul => integers(BinOp::Mul),
        BinaryOp::FloorDiv => integers(BinOp::FloorDiv),
        BinaryOp::Mod => integers(BinOp::FloorMod),
        BinaryOp::Eq => integers(BinOp::Eq),
        BinaryOp::Ne => integers(BinOp::Ne),
        BinaryOp::Lt => integers(BinOp::Lt),
        BinaryOp::Le => integers(BinOp::Le),
        BinaryOp::Gt => integers(BinOp::Gt),
        BinaryOp::Ge => integers(BinOp::Ge),
        BinaryOp::And => Some(ir::Expr::and(run_time_condition(a)?, run_time_condition(b)?)),
        BinaryOp::Or => Some(ir::Expr::or(run_time_condition(a)?, run_time_condition(b)?)),
        _ => None,
    }
}

/// Computes an integer operation. Division rounds down, and division by zero gives 0.
fn integers(op: BinaryOp, x: i64, y: i64, span: Span) -> Result<Value> {
    let (a, b) = (i128::from(x), i128::from(y));
    let floor =
        if b == 0 { 0 } else { a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0) };
    let shift = y.rem_euclid(64) as u32;
    let value = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::FloorDiv => floor,
        BinaryOp::Mod if b == 0 => 0,
        BinaryOp::Mod => a - floor * b,
        BinaryOp::BitAnd => a & b,
        BinaryOp::BitOr => a | b,
        BinaryOp::BitXor => a ^ b,
        BinaryOp::Shl => a << shift,
        BinaryOp::Shr => a >> shift,
        BinaryOp::Eq => return Ok(Value::Bool(x == y)),
        BinaryOp::Ne => return Ok(Value::Bool(x != y)),
        BinaryOp::Lt => return Ok(Value::Bool(x < y)),
        BinaryOp::Le => return Ok(Value::Bool(x <= y)),
        BinaryOp::Gt => return Ok(Value::Bool(x > y)),
        BinaryOp::Ge => return Ok(Value::Bool(x >= y)),
        BinaryOp::Div => {
            let diag = Diag::new("E0312", span, "`/` does not divide integers");
            return Err(Box::new(diag.help("write `//`, which rounds down")));
        }
        BinaryOp::And | BinaryOp::Or => {
            return refuse("E0312", span, "`and` and `or` take conditions, not integers");
        }
    };
    fits(value, span)
}

fn fits(value: i128, span: Span) -> Result<Value> {
    match i64::try_from(value) {
        Ok(value) => Ok(Value::Int(value)),
        Err(_) => refuse("E0312", span, format!("{value} does not fit into 64 bits")),
    }
}

fn parse_int(text: &str) -> Option<i64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

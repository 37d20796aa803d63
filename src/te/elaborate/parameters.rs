//! Parameters of kernels: `-D` options, defaults, run-time integers.

use super::constants::{self, is_exact};
use super::expressions::{Env, Locals};
use super::frame::Frame;
use super::reals::Real;
use super::values::{Entry, SourceType, Typed, Value};
use super::{Defines, Elaborator};
use crate::diag::Diag;
use crate::ir::{DType, Expr, Var};
use crate::lang::ast::{self, ParamKind};

/// Returns the first parameter without a value: no default and no `-D`.
pub fn missing<'a>(kernel: &'a ast::Kernel, defines: &Defines) -> Option<&'a ast::Param> {
    kernel.params.iter().find(|param| {
        param.kind != ParamKind::Var
            && param.default.is_none()
            && defined(kernel, param, defines).is_none()
    })
}

/// Returns the error for a kernel that cannot be built, because a parameter has no value (E0219).
pub fn missing_value(kernel: &ast::Kernel, param: &ast::Param) -> Diag {
    let (kernel, name) = (&kernel.name.text, &param.name.text);
    let example = match param.kind {
        ParamKind::DType => "float32",
        ParamKind::Real => "0.5",
        ParamKind::Bool => "true",
        ParamKind::Index | ParamKind::Var => "64",
        ParamKind::Shape => "[64, 64]",
        ParamKind::List => "[1, 1]",
    };
    let message = format!("the parameter `{name}` of the kernel `{kernel}` has no value");
    let option = match param.kind {
        ParamKind::Shape | ParamKind::List => format!("-D '{kernel}.{name}={example}'"),
        _ => format!("-D {kernel}.{name}={example}"),
    };
    Diag::new("E0219", param.name.span, message)
        .help(format!("give it one with `{option}`, or write a default"))
}

/// Returns the value that `-D` gives a parameter. An option with the name of the kernel takes
/// precedence over one without, a later one over an earlier one.
fn defined<'d>(kernel: &ast::Kernel, param: &ast::Param, defines: &'d Defines) -> Option<&'d str> {
    let of = |wanted: Option<&str>| {
        let fits = |(k, n, _): &&(Option<String>, String, String)| {
            k.as_deref() == wanted && *n == param.name.text
        };
        defines.iter().rev().find(fits).map(|(_, _, value)| value.as_str())
    };
    of(Some(&kernel.name.text)).or_else(|| of(None))
}

impl<'a> Elaborator<'a> {
    /// Binds every parameter of a kernel that is built. Returns the run-time integers and the
    /// values for the manifest.
    pub fn bind_parameters(&mut self, frame: &mut Frame<'a>) -> (Vec<Var>, Vec<(String, String)>) {
        let mut vars = Vec::new();
        let mut texts = Vec::new();
        for param in &frame.kernel.params {
            let value = match (defined(frame.kernel, param, self.defines), param.kind) {
                (Some(text), ParamKind::Shape) => self.define_shape(frame, param, text, &mut vars),
                (Some(text), _) => self.define(param, text),
                (None, ParamKind::Var) => {
                    self.refuse_default(param);
                    let var = Var::index(&param.name.text);
                    vars.push(var.clone());
                    Value::Scalar(Typed::new(SourceType::Index, Expr::var(&var), 0))
                }
                (None, _) => self.default_value(frame, param),
            };
            if let Some(text) = show(&value) {
                texts.push((param.name.text.clone(), text));
            }
            self.declare_param(frame, param, value);
        }
        (vars, texts)
    }

    /// Adds a parameter to the names of the kernel.
    pub fn declare_param(&mut self, frame: &mut Frame<'a>, param: &'a ast::Param, value: Value) {
        let entry = Entry { value, what: "parameter", span: param.name.span };
        self.declare(frame, &param.name, entry);
    }

    fn refuse_default(&mut self, param: &ast::Param) {
        if let Some(default) = &param.default {
            let message = format!("the run-time integer `{}` has no default", param.name.text);
            let help = "leave out the default, or `: var` for a compile-time integer";
            self.error(Diag::new("E0211", default.span, message).help(help));
        }
    }

    /// Evaluates the default of a parameter, over the earlier parameters.
    pub fn default_value(&mut self, frame: &Frame<'a>, param: &'a ast::Param) -> Value {
        let Some(default) = &param.default else { return Value::Poison };
        let locals = Locals::default();
        let env = Env { scope: Some(&frame.scope), locals: &locals, element: false, at: None };
        let value = self.eval_whole(default, env);
        self.param_value(param, value, default)
    }

    /// Converts a value to the kind of a parameter.
    pub fn param_value(&mut self, param: &ast::Param, value: Value, expr: &'a ast::Expr) -> Value {
        match (param.kind, &value) {
            (_, Value::Poison) => Value::Poison,
            (ParamKind::Index | ParamKind::Var, Value::Int(_)) => {
                match self.adapt((&value, expr), SourceType::Index) {
                    Some(_) => value,
                    None => Value::Poison,
                }
            }
            // Parameters of an operator can be run-time integers of the caller.
            (ParamKind::Index | ParamKind::Var, Value::Scalar(typed))
                if typed.ty == SourceType::Index && !self.operators.is_empty() =>
            {
                value
            }
            (ParamKind::Shape, Value::Pack(pack)) => {
                let extents = pack.elements.iter();
                // Each wrong extent has its own error.
                let wrong = extents.filter(|one| self.extent((one, expr), "an extent").is_none());
                if wrong.count() == 0 { value } else { Value::Poison }
            }
            (ParamKind::List, Value::Int(_)) => value,
            (ParamKind::List, Value::Pack(pack))
                if pack.elements.iter().all(|one| matches!(one, Value::Int(_))) =>
            {
                value
            }
            (ParamKind::DType, Value::DType(_)) | (ParamKind::Bool, Value::Bool(_)) => value,
            (ParamKind::Real, Value::Real(_)) => value,
            (ParamKind::Real, Value::Int(int)) => Value::real(Real::from_integer(int.clone())),
            (ParamKind::Real, Value::Scalar(Typed { expr, ty, .. }))
                if ty.is_float() && expr.as_float().is_some_and(f64::is_finite) =>
            {
                let real = expr.as_float().and_then(Real::from_float);
                Value::real(real.expect("finite"))
            }
            _ => {
                let (name, wanted) = (&param.name.text, wanted(param.kind));
                let found = value.describe();
                let message = format!("the parameter `{name}` must be {wanted}, not {found}");
                self.error(Diag::new("E0211", expr.span, message));
                Value::Poison
            }
        }
    }

    /// Parses the value that `-D` gives a parameter.
    fn define(&mut self, param: &ast::Param, text: &str) -> Value {
        let value = match param.kind {
            ParamKind::DType => DType::from_name(text).map(Value::DType),
            ParamKind::Bool => text.parse().ok().map(Value::Bool),
            ParamKind::Index | ParamKind::Var => integer(text),
            ParamKind::Shape => None,
            ParamKind::List => match list_items(text) {
                Some(items) => {
                    let items: Option<Vec<Value>> = items.into_iter().map(integer).collect();
                    items.map(Value::pack)
                }
                None => integer(text),
            },
            ParamKind::Real => {
                let (negative, digits) = unsigned(text);
                // As in the source, `-0` is an integer and `-0.0` the negative zero.
                let real = match constants::parse_integer(digits) {
                    Ok(int) => Some(Real::from_integer(if negative { -int } else { int })),
                    Err(_) => constants::parse_real(digits)
                        .ok()
                        .map(Real::new)
                        .map(|real| if negative { real.negated() } else { real }),
                };
                real.map(Value::real)
            }
        };
        value.unwrap_or_else(|| self.wrong_define(param, text))
    }

    fn wrong_define(&mut self, param: &ast::Param, text: &str) -> Value {
        let (name, wanted) = (&param.name.text, wanted(param.kind));
        let message = format!("-D {name}={text}: `{text}` is not {wanted}");
        let mut diag = Diag::global("E0220", message);
        diag = match param.kind {
            ParamKind::DType => {
                diag.note(format!("types: {}", DType::ALL.map(DType::name).join(", ")))
            }
            ParamKind::Shape => diag.help(format!(
                "write the extents in brackets, `-D '{name}=[3, 4]'`; `var` is a run-time integer"
            )),
            _ => diag,
        };
        let declared = format!("`{name}` is declared here");
        self.error(diag.related(param.name.span, declared));
        Value::Poison
    }

    /// Parses the extents that `-D` gives a pack. `var` is a run-time integer with the name of the
    /// pack and its place.
    fn define_shape(
        &mut self,
        frame: &Frame<'a>,
        param: &ast::Param,
        text: &str,
        vars: &mut Vec<Var>,
    ) -> Value {
        let Some(items) = list_items(text) else { return self.wrong_define(param, text) };
        let mut extents = Vec::new();
        for (place, item) in items.into_iter().enumerate() {
            if item != "var" {
                let Some(value) = integer(item) else { return self.wrong_define(param, text) };
                extents.push(value);
                continue;
            }
            let mut name = format!("{}{place}", param.name.text);
            while frame.kernel.params.iter().any(|other| other.name.text == name) {
                name.push('_');
            }
            let var = Var::index(name);
            extents.push(Value::Scalar(Typed::new(SourceType::Index, Expr::var(&var), 0)));
            vars.push(var);
        }
        Value::pack(extents)
    }
}

/// Returns the values that a kind of parameter takes, for messages.
fn wanted(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Index | ParamKind::Var => "an integer of 64 bits",
        ParamKind::DType => "a data type",
        ParamKind::Real => "a real number",
        ParamKind::Bool => "`true` or `false`",
        ParamKind::Shape => "a list of extents",
        ParamKind::List => "an integer or a list of integers",
    }
}

/// Returns the elements of a list in brackets as text.
fn list_items(text: &str) -> Option<Vec<&str>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    if inner.is_empty() {
        return Some(Vec::new());
    }
    Some(inner.split(',').map(str::trim).collect())
}

/// Parses an integer of 64 bits.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = unsigned(text);
    let value = constants::parse_integer(digits).ok();
    let value = value.map(|value| if negative { -value } else { value });
    value.filter(|value| is_exact(value, DType::Int64)).map(Value::Int)
}

fn unsigned(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Prints a compile-time value for the manifest.
pub fn show(value: &Value) -> Option<String> {
    match value {
        Value::Int(value) => Some(value.to_string()),
        Value::Real(value) => Some(value.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::DType(dtype) => Some(dtype.to_string()),
        Value::Pack(pack) => {
            let element = |value: &Value| match value {
                Value::Int(value) => value.to_string(),
                _ => "var".to_string(),
            };
            let elements: Vec<String> = pack.elements.iter().map(element).collect();
            Some(format!("[{}]", elements.join(", ")))
        }
        _ => None,
    }
}

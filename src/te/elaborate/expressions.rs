//! Expressions: names, tensor elements, calls of `def`s, choice.

use super::arithmetic::too_large;
use super::constants::{self, NumberError};
use super::items::Function;
use super::packs::{At, element_at, slice};
use super::reals::Real;
use super::values::{Choice, Entry, SourceType, Typed, Value};
use super::{Elaborator, MAX_NODES};
use crate::diag::{Diag, Span, closest};
use crate::ir::{DType, Expr};
use crate::lang::ast::{self, ExprKind};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The names of a kernel and their values.
pub type Scope<'a> = FxHashMap<&'a str, Entry>;

/// Names that hide those of the kernel: axes of a stage, parameters of a `def`.
pub type Locals<'a> = FxHashMap<&'a str, Value>;

/// The context of an expression.
#[derive(Clone, Copy)]
pub struct Env<'e, 'a> {
    /// The names of the kernel; `None` inside a `def` or `reducer`.
    pub scope: Option<&'e Scope<'a>>,
    /// Names that hide them.
    pub locals: &'e Locals<'a>,
    /// Whether it computes an element of a stage, so that it may read tensors.
    pub element: bool,
    /// The element of the packs that the innermost `...` around it expands.
    pub at: Option<&'e At<'e>>,
}

impl<'a> Elaborator<'a> {
    /// Evaluates a whole expression, such as the body of a stage or an extent.
    pub fn eval_whole(&mut self, expr: &'a ast::Expr, env: Env<'_, 'a>) -> Value {
        self.def_nodes = 0;
        self.eval(expr, env)
    }

    /// Evaluates an expression to a constant, a scalar or a type.
    pub fn eval(&mut self, expr: &'a ast::Expr, env: Env<'_, 'a>) -> Value {
        if !self.operators.is_empty() {
            self.operator_nodes += 1;
        }
        match &*expr.kind {
            ExprKind::Int(text) => self.integer(text, expr.span),
            ExprKind::Real(text) => self.real(text, expr.span),
            ExprKind::Bool(value) => Value::Bool(*value),
            ExprKind::Name(name) => element_at(self.name(name, env), env.at),
            ExprKind::Binary(op, a, b, span) => {
                let x = self.eval_operand(a, env);
                let y = self.eval_operand(b, env);
                self.binary(*op, (&x, a), (&y, b), *span)
            }
            ExprKind::Unary(op, a) => {
                let x = self.eval_operand(a, env);
                self.unary(*op, (&x, a), expr.span)
            }
            ExprKind::Cast(a, dtype) => self.cast(a, dtype, env),
            ExprKind::Index(_, indices) if slice(indices).is_some() => self.pack_element(expr, env),
            ExprKind::Index(tensor, indices) => self.element(tensor, indices, expr.span, env),
            ExprKind::Call(name, args) => self.call(name, args, expr, env),
            ExprKind::If(c, t, f) => self.choice(c, t, f, expr.span, env),
            ExprKind::Tuple(_) => {
                let message = "a tuple is allowed only in a tuple reduction, \
                               as in `argmax((k, A[k]), axis=k)`";
                self.error(Diag::new("E0227", expr.span, message));
                Value::Poison
            }
            ExprKind::List(_) => self.pack_element(expr, env),
            ExprKind::Expand(pattern) => {
                let text = self.excerpt(pattern);
                let message = format!("`{text}...` stands for several values, but one is needed");
                let help = "`...` follows an element of a list, an index, an extent or an argument \
                            of a function";
                self.error(Diag::new("E0243", expr.span, message).help(help));
                Value::Poison
            }
            ExprKind::Range(..) => {
                let message = "a range stands for several values, but one is needed";
                let help = "`a..b` is a slice of a pack, `S[a..b]`, or a part of a list, `[a..b]`";
                self.error(Diag::new("E0243", expr.span, message).help(help));
                Value::Poison
            }
            ExprKind::Dotted(_) | ExprKind::DottedCall(..) | ExprKind::Star => {
                crate::bug!("the parser lets a word of schedules into a kernel")
            }
        }
    }

    /// Evaluates an expression that must be a number or a condition.
    pub fn eval_operand(&mut self, expr: &'a ast::Expr, env: Env<'_, 'a>) -> Value {
        let value = self.eval(expr, env);
        self.number(value, expr)
    }

    /// Refuses a tensor, a type or a reduction axis where a number is needed.
    pub fn number(&mut self, value: Value, expr: &'a ast::Expr) -> Value {
        let is_number = !matches!(
            value,
            Value::Tensor(_) | Value::DType(_) | Value::ReduceAxis(_) | Value::Pack(_)
        );
        if is_number {
            return value;
        }
        let text = self.excerpt(expr);
        let diag = match &value {
            Value::Tensor(tensor) => {
                let dots = vec!["…"; tensor.rank].join(", ");
                Diag::new("E0214", expr.span, format!("`{text}` is a tensor, not a number"))
                    .help(format!("read an element as `{text}[{dots}]`"))
            }
            Value::DType(_) => {
                Diag::new("E0214", expr.span, format!("`{text}` is a type, not a number"))
            }
            Value::ReduceAxis(_) => {
                let message =
                    format!("the reduction axis `{text}` is used outside of its reduction");
                Diag::new("E0224", expr.span, message)
                    .help(format!("use it only inside a reduction over it: `axis={text}`"))
            }
            Value::Pack(pack) => {
                let message = format!("`{text}` is {}, not a number", pack.describe());
                let is_name = matches!(*expr.kind, ExprKind::Name(_));
                let diag = Diag::new("E0243", expr.span, message);
                match is_name {
                    true => diag.help(format!(
                        "write `{text}...` for all elements, `{text}[0]` for the first one"
                    )),
                    false => diag,
                }
            }
            _ => crate::bug!("{} is a number", value.describe()),
        };
        self.error(diag);
        Value::Poison
    }

    fn integer(&mut self, text: &str, span: Span) -> Value {
        match constants::parse_integer(text) {
            Ok(value) => Value::Int(value),
            Err(error) => self.bad_number(error, text, span),
        }
    }

    fn real(&mut self, text: &str, span: Span) -> Value {
        match constants::parse_real(text) {
            Ok(value) => Value::real(Real::new(value)),
            Err(error) => self.bad_number(error, text, span),
        }
    }

    fn bad_number(&mut self, error: NumberError, text: &str, span: Span) -> Value {
        let message = match error {
            NumberError::TooLarge => "a constant of more than 4096 bits".to_string(),
            NumberError::Malformed => format!("`{text}` is not a number"),
        };
        self.error(Diag::new("E0212", span, message));
        Value::Poison
    }

    /// Returns the value of a name, if it is known.
    pub fn lookup(&self, name: &ast::Name, env: Env<'_, 'a>) -> Option<Value> {
        if let Some(value) = env.locals.get(name.text.as_str()) {
            return Some(value.clone());
        }
        env.scope.and_then(|scope| scope.get(name.text.as_str())).map(|entry| entry.value.clone())
    }

    /// Evaluates a name; a pack is meant as a whole.
    pub fn name(&mut self, name: &'a ast::Name, env: Env<'_, 'a>) -> Value {
        if let Some(value) = self.lookup(name, env) {
            return value;
        }
        if let Some(dtype) = DType::from_name(&name.text) {
            return Value::DType(dtype);
        }
        self.error(self.unknown_name(name, env));
        Value::Poison
    }

    /// Returns the error for an unknown name, with a similar one.
    fn unknown_name(&self, name: &ast::Name, env: Env<'_, 'a>) -> Diag {
        let text = name.text.as_str();
        if !self.can_suggest() {
            return Diag::new("E0201", name.span, format!("unknown name `{text}`"));
        }
        let mut known: Vec<&str> = env.locals.keys().copied().collect();
        known.extend(env.scope.iter().flat_map(|scope| scope.keys().copied()));
        known.extend(&self.scan_names);
        known.sort_unstable();
        known.dedup();
        let mut diag = Diag::new("E0201", name.span, format!("unknown name `{text}`"));
        if let Some(close) = closest(text, known.iter().copied()) {
            diag = diag.help(format!("did you mean `{close}`?"));
        } else if self.items.function(name.span.file, text).is_some()
            || self.items.kernel(name.span.file, text).is_some()
        {
            diag = diag.help(format!("`{text}` is called with arguments: `{text}(…)`"));
        }
        match known.len() {
            0 => diag,
            1..=12 => diag.note(format!("names here: {}", known.join(", "))),
            more => {
                diag.note(format!("names here: {}, and {} more", known[..12].join(", "), more - 12))
            }
        }
    }

    fn cast(&mut self, a: &'a ast::Expr, dtype: &'a ast::Name, env: Env<'_, 'a>) -> Value {
        let value = self.eval_operand(a, env);
        match self.dtype(dtype, env) {
            Some(dtype) => self.cast_value(&value, dtype, a),
            None => Value::Poison,
        }
    }

    /// Evaluates an element type: the name of a type or of a `dtype` parameter.
    pub fn dtype(&mut self, name: &'a ast::Name, env: Env<'_, 'a>) -> Option<DType> {
        if let Some(dtype) = DType::from_name(&name.text) {
            return Some(dtype);
        }
        let found = match env.locals.get(name.text.as_str()) {
            Some(value) => Some(value),
            None => env.scope.and_then(|s| s.get(name.text.as_str())).map(|entry| &entry.value),
        };
        let diag = match found {
            Some(Value::DType(dtype)) => return Some(*dtype),
            Some(Value::Poison) => return None,
            Some(other) => {
                let found = other.describe();
                Diag::new("E0214", name.span, format!("`{}` is {found}, not a type", name.text))
            }
            None => {
                let all: Vec<&str> =
                    DType::ALL.into_iter().chain(DType::QUANTIZED).map(DType::name).collect();
                let message = format!("unknown type `{}`", name.text);
                let diag = Diag::new("E0201", name.span, message);
                match closest(&name.text, all.iter().copied()) {
                    Some(close) => diag.help(format!("did you mean `{close}`?")),
                    None => diag.note(format!("types: {}", all.join(", "))),
                }
            }
        };
        self.error(diag);
        None
    }

    /// Evaluates `A[i, j]`.
    fn element(
        &mut self,
        name: &'a ast::Name,
        indices: &'a [ast::Expr],
        span: Span,
        env: Env<'_, 'a>,
    ) -> Value {
        let tensor = self.name(name, env);
        if let Value::Pack(pack) = &tensor {
            return self.indexed_pack(name, pack, indices, span, env);
        }
        let values = self.expanded(indices, env);
        // A pack that is not expanded leaves the number of indices open.
        let has_pack = |values: &[(Value, &ast::Expr)]| {
            values.iter().any(|(value, _)| matches!(value, Value::Pack(_)))
        };
        let is_open = values.as_ref().is_some_and(|values| has_pack(values));
        let values: Option<Vec<(Value, &'a ast::Expr)>> = values.map(|values| {
            values.into_iter().map(|(value, expr)| (self.number(value, expr), expr)).collect()
        });
        let tensor = match tensor {
            Value::Tensor(tensor) => tensor,
            Value::Poison => return Value::Poison,
            other => {
                let found = other.describe();
                let message = format!("`{}` is {found}, not a tensor", name.text);
                self.error(Diag::new("E0214", name.span, message));
                return Value::Poison;
            }
        };
        if !env.element {
            let message = format!("an element of `{}` is read outside of a stage", name.text);
            let diag = Diag::new("E0215", span, message);
            self.error(diag.help("only `compute` and `output` read tensors"));
            return Value::Poison;
        }
        let Some(values) = values.filter(|_| !is_open) else { return Value::Poison };
        if tensor.rank != values.len() {
            let message = format!(
                "`{}` has {}, but {} given",
                name.text,
                count(tensor.rank, "dimension"),
                match values.len() {
                    1 => "1 index is".to_string(),
                    n => format!("{n} indices are"),
                },
            );
            self.error(Diag::new("E0205", span, message));
            return Value::Poison;
        }
        let mut exprs = Vec::with_capacity(values.len());
        let mut size = 1u64;
        for (value, expr) in &values {
            let Some(index) = self.tensor_index((value, expr)) else { continue };
            size = size.saturating_add(index.size);
            exprs.push(index.expr);
        }
        if tensor.member.as_ref().is_some_and(|member| member.is_untyped) {
            self.refuse_untyped_member(name, span);
        }
        let Some(buffer) = tensor.buffer.as_ref().filter(|_| exprs.len() == values.len()) else {
            return Value::Poison;
        };
        let source = self.member.as_ref().and_then(|member| member.source(&tensor, &exprs));
        let load = Expr::load(source.as_ref().unwrap_or(buffer), exprs);
        self.load_spans.insert(load.id(), span);
        if let Some(declared) = tensor.untyped {
            self.untyped_reads.insert(span, (tensor.name.clone(), declared));
        }
        let expr = Expr::cast(buffer.dtype.compute_type(), load);
        self.limit_size(Typed::new(SourceType::Data(buffer.dtype), expr, size), span)
    }

    /// Evaluates `if c then t else f`. Both branches are checked; a constant condition selects one.
    fn choice(
        &mut self,
        c: &'a ast::Expr,
        t: &'a ast::Expr,
        f: &'a ast::Expr,
        span: Span,
        env: Env<'_, 'a>,
    ) -> Value {
        let cond = self.eval_operand(c, env);
        if let (Value::Bool(chosen), Some(_)) = (&cond, env.at) {
            // The other branch may select an element that the pack lacks.
            return self.eval(if *chosen { t } else { f }, env);
        }
        let then = self.eval(t, env);
        let otherwise = self.eval(f, env);
        let condition = self.condition((&cond, c));
        if let (
            Value::DType(_) | Value::Pack(_),
            Value::DType(_) | Value::Pack(_),
            Value::Bool(chosen),
        ) = (&then, &otherwise, &cond)
        {
            return if *chosen { then } else { otherwise };
        }
        let (then, otherwise) = (self.number(then, t), self.number(otherwise, f));
        let Some(condition) = condition else { return Value::Poison };
        self.choose(&cond, condition, (&then, t), (&otherwise, f), span, Expr::if_then_else)
    }

    /// Evaluates `if` or `select` of evaluated operands; `make` builds the expression.
    pub fn choose(
        &mut self,
        cond: &Value,
        condition: Typed,
        then: super::casts::Operand<'_, 'a>,
        otherwise: super::casts::Operand<'_, 'a>,
        span: Span,
        make: fn(Expr, Expr, Expr) -> Expr,
    ) -> Value {
        if let (Value::Bool(chosen), Some(x), Some(y)) =
            (cond, then.0.as_real(), otherwise.0.as_real())
        {
            let real = matches!(then.0, Value::Real(_)) || matches!(otherwise.0, Value::Real(_));
            let value = if *chosen { x } else { y };
            return if real { Value::real(value) } else { Value::Int(value.exact().to_integer()) };
        }
        if let (Value::Bool(chosen), Value::Bool(x), Value::Bool(y)) = (cond, then.0, otherwise.0) {
            return Value::Bool(if *chosen { *x } else { *y });
        }
        let Some((ty, exprs, size)) =
            self.unify(&[then, otherwise], "the branches of a choice", span)
        else {
            return Value::Poison;
        };
        let [x, y] = <[Expr; 2]>::try_from(exprs).expect("two branches");
        let lazily: fn(Expr, Expr, Expr) -> Expr = Expr::if_then_else;
        if let Value::Bool(chosen) = cond
            && std::ptr::fn_addr_eq(make, lazily)
        {
            return Value::Scalar(Typed::new(ty, if *chosen { x } else { y }, size));
        }
        let size = size.saturating_add(condition.size);
        let choice = Choice::new(&condition.expr, then.0, otherwise.0, make);
        let mut typed = Typed::new(ty, make(condition.expr, x, y), size);
        typed.choice = choice.map(Rc::new);
        self.limit_size(typed, span)
    }

    /// Evaluates a call of a built-in function or a `def`.
    fn call(
        &mut self,
        name: &'a ast::Name,
        args: &'a [ast::Arg],
        expr: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Value {
        match self.items.function(name.span.file, &name.text) {
            Some(Function::Def(def)) => self.call_def(def, name, args, env),
            Some(Function::Pack(function)) if function.gives_pack() => self.pack_element(expr, env),
            Some(Function::Pack(function)) => self.call_pack_function(function, name, args, env),
            Some(Function::Reduction) if folds(name, args) => self.fold_pack(name, args, expr, env),
            Some(Function::Reducer(_) | Function::Reduction) => {
                self.error(misplaced_reduction(name));
                Value::Poison
            }
            Some(Function::Builtin(_)) if args.iter().any(is_axis) => {
                self.error(misplaced_reduction(name));
                Value::Poison
            }
            Some(Function::Builtin(builtin)) => self.call_builtin(builtin, name, args, expr, env),
            None => {
                if let Some(diag) = self.called_value(name, env) {
                    self.error(diag);
                }
                Value::Poison
            }
        }
    }

    /// Returns the error for a call of a name that is not a function; `None` if its value is
    /// poison.
    fn called_value(&self, name: &ast::Name, env: Env<'_, 'a>) -> Option<Diag> {
        let text = name.text.as_str();
        let entry = env.scope.and_then(|scope| scope.get(text)).map(|entry| &entry.value);
        let found = match env.locals.get(text).or(entry) {
            None => return Some(self.unknown_function(name)),
            Some(Value::Poison) => return None,
            Some(value) => value.describe(),
        };
        let message = format!("`{text}` is {found}, not a function");
        Some(Diag::new("E0214", name.span, message))
    }

    /// Returns the error for a call of an unknown function.
    pub fn unknown_function(&self, name: &ast::Name) -> Diag {
        let file = name.span.file;
        if self.items.kernel(file, &name.text).is_none()
            && let Some((alias, item)) = name.text.split_once('.')
            && let Some(import) = self.items.imported_as(file, alias)
        {
            let message = format!("`{alias}` has no `{item}`");
            let members = self.items.function_names(file);
            let members = members.into_iter().filter_map(|name| name.split_once('.'));
            let members = members.filter(|(other, _)| *other == alias).map(|(_, member)| member);
            let close = closest(item, members).map(|close| format!("{alias}.{close}"));
            let diag = Diag::new("E0201", name.span, message);
            let diag = diag.related(import, format!("`{alias}` is imported here"));
            return match (close, self.items.elsewhere(file, item)) {
                (Some(close), _) => diag.help(format!("did you mean `{close}`?")),
                (_, Some(path)) => diag.help(in_another_file(path)),
                (None, None) => diag,
            };
        }
        if self.items.kernel(file, &name.text).is_some() {
            let message = format!("the kernel `{}` is used inside an expression", name.text);
            return Diag::new("E0214", name.span, message)
                .help(format!("name its result first: `let X = {}(…)`", name.text));
        }
        let diag = Diag::new("E0201", name.span, format!("unknown function `{}`", name.text));
        if !self.can_suggest() {
            return diag;
        }
        match closest(&name.text, self.items.function_names(file)) {
            Some(close) => diag.help(format!("did you mean `{close}`?")),
            None => match self.items.elsewhere(file, &name.text) {
                Some(path) => diag.help(in_another_file(path)),
                None => diag,
            },
        }
    }

    fn call_def(
        &mut self,
        def: &'a ast::Def,
        name: &'a ast::Name,
        args: &'a [ast::Arg],
        env: Env<'_, 'a>,
    ) -> Value {
        let values = self.expanded(args.iter().map(|arg| &arg.value), env);
        let Some(values) = values else { return Value::Poison };
        let values: Vec<Value> = values
            .into_iter()
            .map(|(value, expr)| match value {
                Value::DType(_) => value,
                _ => self.number(value, expr),
            })
            .collect();
        if let Some(keyword) = args.iter().find_map(|arg| arg.name.as_ref()) {
            let message = format!("`{}` takes no argument by name", name.text);
            self.error(Diag::new("E0216", keyword.span, message));
            return Value::Poison;
        }
        if values.len() != def.params.len() {
            let takes = count(def.params.len(), "argument");
            let message = format!("`{}` takes {takes}, not {}", name.text, values.len());
            self.error(Diag::new("E0216", name.span, message));
            return Value::Poison;
        }
        let Some(nodes) = self.items.def_nodes(def) else { return Value::Poison };
        if self.def_depth == 0 {
            self.def_nodes = self.def_nodes.saturating_add(nodes);
        }
        if self.def_nodes > MAX_NODES {
            self.error(too_large(name.span));
            return Value::Poison;
        }
        if values.iter().any(|value| matches!(value, Value::Poison)) {
            return Value::Poison;
        }
        let locals: Locals<'a> =
            def.params.iter().map(|param| param.text.as_str()).zip(values).collect();
        self.calls.push((name.span, name.text.clone()));
        self.def_depth += 1;
        let value =
            self.eval(&def.body, Env { scope: None, locals: &locals, element: false, at: None });
        self.def_depth -= 1;
        self.calls.pop();
        value
    }
}

fn in_another_file(path: &str) -> String {
    format!("another file declares it: `import \"{path}\"`")
}

/// Returns the error for a reduction inside an expression.
pub fn misplaced_reduction(name: &ast::Name) -> Diag {
    let message = format!("the reduction `{}` is not the outermost operation", name.text);
    let help = "give it a stage of its own, `compute S[…] = …`, and read that";
    Diag::new("E0223", name.span, message).help(help)
}

/// Whether a call combines the elements of packs, as `prod(S...)` does.
pub fn folds(name: &ast::Name, args: &[ast::Arg]) -> bool {
    let expands = args.iter().any(|arg| matches!(*arg.value.kind, ExprKind::Expand(_)));
    matches!(&name.text[..], "sum" | "prod") && expands && !args.iter().any(is_axis)
}

/// Whether an argument makes a call a reduction.
pub fn is_axis(arg: &ast::Arg) -> bool {
    arg.name.as_ref().is_some_and(|name| name.text == "axis")
}

/// `1 index`, `2 indices` and the like.
pub fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

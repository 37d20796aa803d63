//! Resolves a directive of the source: its table entry, its subject and its arguments.

use super::{ArgKind, Argument, Call, DIRECTIVES, Directive, Param, Subject, Value};
use crate::diag::{Diag, Result, Span, closest};
use crate::ir::Scope;
use crate::lang::ast::{Arg, Expr, ExprKind, Name};
use crate::schedule::evaluate::{Evaluator, refuse, suggest};
use crate::schedule::sorts::sort_of;
use crate::schedule::state::{Attach, AxisId, AxisKind, StageId, Tensor};

/// Looks up a directive, its subject and its arguments.
pub(in crate::schedule) fn resolve_call(
    evaluator: &Evaluator,
    path: &[Name],
    name: &Name,
    args: &[Arg],
    span: Span,
) -> Result<Call> {
    let on_inputs = DIRECTIVES.iter().any(|d| d.name == name.text && d.subject == Subject::Tensor);
    let (subject, subject_span) = subject(evaluator, path, on_inputs)?;
    let directive = find_directive(name)?;
    if let (Tensor::Input(_), Subject::Stage) = (subject, directive.subject) {
        let text = format!("`{}` takes a stage, but `{}` is an input", name.text, path_text(path));
        return refuse("E0309", subject_span, text);
    }
    let matched = match_arguments(directive, args, name)?;
    let mut values: Vec<Option<Argument>> = Vec::with_capacity(directive.params.len());
    for (param, given) in directive.params.iter().zip(matched) {
        let stage = match (param.kind, subject, values.last()) {
            (ArgKind::AxisOfStage, _, Some(Some(Argument { value: Value::Stage(id), .. }))) => {
                Some(*id)
            }
            (_, Tensor::Stage(id), _) => Some(id),
            _ => None,
        };
        let resolver = Resolver { evaluator, directive, param, stage };
        values.push(resolver.argument(&given)?);
    }
    Ok(Call { directive, subject, subject_span, span, args: values })
}

/// Checks what does not depend on the kernel: that the directive exists and has the parameters.
pub(in crate::schedule) fn check_call(name: &Name, args: &[Arg]) -> Result<()> {
    match_arguments(find_directive(name)?, args, name).map(|_| ())
}

fn path_text(path: &[Name]) -> String {
    path.iter().map(|name| &name.text[..]).collect::<Vec<_>>().join(".")
}

/// Resolves the subject of a directive; `inputs` says whether it may be an input.
fn subject(evaluator: &Evaluator, path: &[Name], inputs: bool) -> Result<(Tensor, Span)> {
    let text = path_text(path);
    let span = path[0].span.to(path[path.len() - 1].span);
    let found = match path {
        [name] => evaluator.lookup(&name.text),
        _ => evaluator.tensor(&text),
    };
    match found {
        Some(Value::Stage(id)) if !evaluator.schedule.order.contains(&id) => {
            let diag = Diag::new("E0395", span, format!("`{text}` became part of another stage"));
            Err(Box::new(match evaluator.schedule.stage(id).attach {
                Attach::Inline { span } => diag.related(span, "here"),
                _ => diag,
            }))
        }
        Some(Value::Stage(id)) => Ok((Tensor::Stage(id), span)),
        Some(Value::Input(index)) => Ok((Tensor::Input(index), span)),
        Some(other) => {
            let found = evaluator.describe(&other);
            refuse("E0306", span, format!("`{text}` is {found}, not a stage"))
        }
        None => Err(evaluator.unknown_tensor(&text, span, inputs)),
    }
}

fn find_directive(name: &Name) -> Result<&'static Directive> {
    if let Some(directive) = DIRECTIVES.iter().copied().find(|d| d.name == name.text) {
        return Ok(directive);
    }
    let diag = Diag::new("E0305", name.span, format!("unknown directive `{}`", name.text));
    let all = DIRECTIVES.iter().map(|d| d.name).collect();
    Err(Box::new(suggest(diag, &name.text, all, "directives")))
}

/// Returns the expressions for each parameter: at most one, except for `Axes`.
fn match_arguments<'e>(
    directive: &Directive,
    args: &'e [Arg],
    name: &Name,
) -> Result<Vec<Vec<&'e Expr>>> {
    let wrong = |span, text: String| {
        let diag = Diag::new("E0308", span, text);
        Err(Box::new(diag.help(format!("write `{}`", directive.usage))))
    };
    let mut given: Vec<Vec<&Expr>> = vec![Vec::new(); directive.params.len()];
    let mut next = 0;
    for arg in args {
        match &arg.name {
            None => {
                let Some(param) = directive.params.get(next) else {
                    let text = format!("`{}` has too many arguments", directive.name);
                    return wrong(arg.value.span, text);
                };
                given[next].push(&arg.value);
                next += usize::from(param.kind != ArgKind::Axes);
            }
            Some(key) => {
                let at = directive.params.iter().position(|param| param.name == key.text);
                let Some(at) = at else {
                    let text = format!("`{}` has no parameter `{}`", directive.name, key.text);
                    let names = directive.params.iter().map(|param| param.name);
                    let Some(near) = closest(&key.text, names) else {
                        return wrong(key.span, text);
                    };
                    let help = format!("did you mean `{near}`, as in `{}`?", directive.usage);
                    return Err(Box::new(Diag::new("E0308", key.span, text).help(help)));
                };
                if !given[at].is_empty() {
                    return wrong(key.span, format!("`{}` is given twice", key.text));
                }
                given[at].push(&arg.value);
            }
        }
    }
    let required = |param: &Param| !param.optional && param.kind != ArgKind::Axes;
    let missing = directive.params.iter().zip(&given).find(|(p, g)| required(p) && g.is_empty());
    match missing {
        Some((param, _)) => {
            wrong(name.span, format!("`{}` needs `{}`", directive.name, param.name))
        }
        None => Ok(given),
    }
}

/// Evaluates the arguments of one parameter.
struct Resolver<'e, 'a> {
    evaluator: &'e Evaluator<'a>,
    directive: &'e Directive,
    param: &'e Param,
    /// The stage whose axes the argument can name.
    stage: Option<StageId>,
}

impl Resolver<'_, '_> {
    fn argument(&self, given: &[&Expr]) -> Result<Option<Argument>> {
        let Some(first) = given.first() else {
            // An empty list of axes.
            let empty = self.param.kind == ArgKind::Axes;
            return Ok(
                empty.then(|| Argument { value: Value::List(Vec::new()), span: Span::default() })
            );
        };
        let (span, expr) = (first.span, *first);
        let value = match self.param.kind {
            ArgKind::Axis | ArgKind::AxisOfStage => self.axis(expr)?,
            ArgKind::Axes => self.list(given, &|expr| self.axis_or_star(expr))?,
            ArgKind::Stage => self.tensor(expr, false)?,
            ArgKind::Tensor => self.tensor(expr, true)?,
            ArgKind::Stages => self.elements(expr, &|expr| self.tensor(expr, false))?,
            ArgKind::Int => self.int(expr)?,
            ArgKind::Ints => self.elements(expr, &|expr| self.int(expr))?,
            ArgKind::Bool => match self.evaluator.eval(expr)? {
                value @ Value::Bool(_) => value,
                other => return self.wrong(expr, "`true` or `false`", &other),
            },
            ArgKind::IntOrBool => match self.evaluator.eval(expr)? {
                value @ (Value::Bool(_) | Value::Int(_)) => value,
                other => return self.wrong(expr, "an integer or a condition", &other),
            },
            ArgKind::Scope => match &self.word(expr)?[..] {
                "global" => Value::Scope(Scope::Global),
                "shared" => Value::Scope(Scope::Shared),
                "local" => Value::Scope(Scope::Local),
                other => {
                    let word = Value::Word(other.to_string());
                    return self.wrong(expr, "`global`, `shared` or `local`", &word);
                }
            },
            ArgKind::Word => Value::Word(self.word(expr)?),
            ArgKind::Exprs => self.elements(expr, &|expr| Ok(Value::Expr(self.fold(expr))))?,
        };
        Ok(Some(Argument { value, span }))
    }

    fn wrong<T>(&self, expr: &Expr, wanted: &str, found: &Value) -> Result<T> {
        let (param, found) = (self.param.name, self.evaluator.describe(found));
        let text = format!("`{param}` of `{}` is {wanted}, not {found}", self.directive.name);
        let diag = Diag::new("E0309", expr.span, text);
        Err(Box::new(diag.help(format!("write `{}`", self.directive.usage))))
    }

    fn list(&self, given: &[&Expr], f: &dyn Fn(&Expr) -> Result<Value>) -> Result<Value> {
        let items = given.iter().map(|expr| Ok(Argument { value: f(expr)?, span: expr.span }));
        Ok(Value::List(items.collect::<Result<_>>()?))
    }

    fn elements(&self, expr: &Expr, f: &dyn Fn(&Expr) -> Result<Value>) -> Result<Value> {
        match &*expr.kind {
            ExprKind::List(items) => self.list(&items.iter().collect::<Vec<_>>(), f),
            _ => {
                let text = format!("`{}` of `{}` is a list", self.param.name, self.directive.name);
                let diag = Diag::new("E0309", expr.span, text);
                Err(Box::new(diag.help(format!("write `{}`", self.directive.usage))))
            }
        }
    }

    /// Replaces constants of the schedule by numbers; axes `ax0`, `ax1`, … stay.
    fn fold(&self, expr: &Expr) -> Expr {
        let kind = match &*expr.kind {
            ExprKind::Name(name) if is_numbered_axis(&name.text) => return expr.clone(),
            ExprKind::Binary(op, a, b, span) => {
                ExprKind::Binary(*op, self.fold(a), self.fold(b), *span)
            }
            _ => match self.evaluator.eval(expr) {
                Ok(Value::Int(value)) => ExprKind::Int(value.to_string()),
                _ => return expr.clone(),
            },
        };
        Expr { kind: Box::new(kind), span: expr.span }
    }

    fn int(&self, expr: &Expr) -> Result<Value> {
        match self.evaluator.eval(expr)? {
            value @ Value::Int(_) => Ok(value),
            other => self.wrong(expr, "an integer", &other),
        }
    }

    fn tensor(&self, expr: &Expr, inputs: bool) -> Result<Value> {
        let value = match &*expr.kind {
            ExprKind::Name(name) if self.evaluator.lookup(&name.text).is_none() => {
                return Err(self.evaluator.unknown_tensor(&name.text, name.span, inputs));
            }
            _ => self.evaluator.eval(expr)?,
        };
        match value {
            Value::Stage(_) => Ok(value),
            Value::Input(_) if inputs => Ok(value),
            other => {
                self.wrong(expr, if inputs { "a stage or an input" } else { "a stage" }, &other)
            }
        }
    }

    fn word(&self, expr: &Expr) -> Result<String> {
        match &*expr.kind {
            ExprKind::Name(name) => Ok(name.text.clone()),
            ExprKind::Dotted(path) => Ok(path_text(path)),
            _ => self.wrong(expr, "a word", &Value::Expr(expr.clone())),
        }
    }

    fn axis_or_star(&self, expr: &Expr) -> Result<Value> {
        match &*expr.kind {
            ExprKind::Star => Ok(Value::Star),
            _ => self.axis(expr),
        }
    }

    /// Returns a loop of the stage; see [`axis_of`].
    fn axis(&self, expr: &Expr) -> Result<Value> {
        let ExprKind::Name(name) = &*expr.kind else {
            return self.wrong(expr, "an axis", &Value::Expr(expr.clone()));
        };
        let Some(id) = self.stage else {
            return refuse("E0309", expr.span, "an input has no axes");
        };
        let found = axis_of(self.evaluator, id, name)?;
        let stage = self.evaluator.schedule.stage(id);
        if sort_of(stage).is_some() && stage.axis(found).kind == AxisKind::Reduce {
            let (of, how) = (&stage.te.name, self.directive.name);
            let text = format!("`{how}` of `{}`, the axis that `{of}` sorts", name.text);
            let diag = Diag::new("E0392", name.span, text)
                .note("its values are sorted as a whole, not by a loop");
            return Err(Box::new(match stage.axis_names().split_last() {
                Some((_, others)) if !others.is_empty() => {
                    diag.help(format!("name a data axis of `{of}`: {}", others.join(", ")))
                }
                _ => diag.help(format!("leave out the `{how}`")),
            }));
        }
        Ok(Value::Axis(id, found))
    }
}

/// Returns a loop of a stage: the one that a `let` or parameter gave the name, else the one that
/// has the name.
pub(in crate::schedule) fn axis_of(
    evaluator: &Evaluator,
    id: StageId,
    name: &Name,
) -> Result<AxisId> {
    let stage = evaluator.schedule.stage(id);
    let (local, text, is_param) = match evaluator.lookup(&name.text) {
        Some(Value::Axis(of, axis)) if of == id => (Some(axis), name.text.clone(), false),
        // The stage may have other axes since, as after `cache_write`.
        Some(Value::NamedAxis(of, axis, text)) => {
            let is_same = stage.axes.get(axis.0).is_some_and(|axis| axis.name == text);
            (Some(axis).filter(|_| of == id && is_same), text, true)
        }
        _ => (None, name.text.clone(), false),
    };
    let gone = local.map(|axis| stage.axis(axis)).filter(|axis| axis.replaced.is_some());
    let alive = local.filter(|axis| stage.leaves.contains(axis));
    let by_name = || stage.find_axis(&text).filter(|_| !(is_param && gone.is_some()));
    if let Some(axis) = alive.or_else(by_name) {
        return Ok(axis);
    }
    let of = &stage.te.name;
    if let Some(gone) = gone.or_else(|| stage.find_replaced_axis(&text))
        && let Some((how, place)) = gone.replaced
    {
        let done = match how {
            "fuse" => "fused",
            "scan" => "replaced by `scan`",
            "rfactor" => "moved to another stage by `rfactor`",
            _ => "split",
        };
        let text = format!("axis `{text}` of `{of}` is gone: it was {done}");
        let diag = Diag::new("E0307", name.span, text);
        return Err(Box::new(
            diag.related(place, format!("{done} here"))
                .note(format!("the loops of `{of}` are {}", stage.axis_names().join(", "))),
        ));
    }
    let diag = Diag::new("E0307", name.span, format!("`{of}` has no axis `{text}`"));
    Err(Box::new(suggest(diag, &text, stage.axis_names(), &format!("axes of `{of}`"))))
}

fn is_numbered_axis(name: &str) -> bool {
    let number = name.strip_prefix("ax").filter(|number| !number.is_empty());
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

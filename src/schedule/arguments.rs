//! Arguments of a directive: matched with its parameters, each of the kind asked for.

use super::directives::{Argument, Directive, Kind, Param, Value};
use super::evaluate::{Evaluator, count, join};
use super::state::{Stage, StageId, Tensor};
use crate::diag::{Diag, Result, Span, closest};
use crate::ir::Scope;
use crate::lang::ast::{self, ExprKind, Name};

/// One value per parameter.
pub(super) fn resolve(
    evaluator: &Evaluator,
    directive: &'static Directive,
    subject: Tensor,
    span: Span,
    args: &[ast::Arg],
) -> Result<Vec<Option<Argument>>> {
    let params = directive.params;
    let mut values: Vec<Option<Argument>> = vec![None; params.len()];
    let resolver = Resolver { evaluator, directive, subject };
    let mut next = 0;
    for arg in args {
        let at = match &arg.name {
            Some(name) => resolver.keyword(name)?,
            None if next < params.len() => next,
            None => return Err(resolver.too_many(arg.value.span, args)),
        };
        let stage = values.iter().flatten().find_map(|arg| match arg.value {
            Value::Stage(id) => Some(id),
            _ => None,
        });
        let value = resolver.value(&params[at], &arg.value, stage)?;
        let argument = Argument { value, span: arg.value.span };
        if params[at].kind == Kind::Axes {
            match &mut values[at] {
                Some(Argument { value: Value::List(items), .. }) => items.push(argument),
                slot => {
                    let span = argument.span;
                    *slot = Some(Argument { value: Value::List(vec![argument]), span });
                }
            }
            continue;
        }
        if values[at].is_some() {
            let text = format!("`{}` is given twice", params[at].name);
            return Err(Box::new(Diag::new("E0308", arg.value.span, text)));
        }
        values[at] = Some(argument);
        next = at + 1;
    }
    for (param, value) in params.iter().zip(&values) {
        if value.is_none() && !param.optional {
            let text = format!("`{}` needs `{}`", directive.name, param.name);
            return Err(Box::new(
                Diag::new("E0308", span, text).help(format!("write `{}`", directive.usage)),
            ));
        }
    }
    Ok(values)
}

struct Resolver<'e, 'a> {
    evaluator: &'e Evaluator<'a>,
    directive: &'static Directive,
    subject: Tensor,
}

impl Resolver<'_, '_> {
    fn keyword(&self, name: &Name) -> Result<usize> {
        let params = self.directive.params;
        if let Some(at) = params.iter().position(|param| param.name == name.text) {
            return Ok(at);
        }
        let text = format!("`{}` has no parameter `{}`", self.directive.name, name.text);
        let diag = Diag::new("E0308", name.span, text);
        Err(Box::new(match closest(&name.text, params.iter().map(|param| param.name)) {
            Some(close) => diag.help(format!("did you mean `{close}`?")),
            None => diag.help(format!("write `{}`", self.directive.usage)),
        }))
    }

    fn too_many(&self, span: Span, args: &[ast::Arg]) -> Box<Diag> {
        let text = format!(
            "`{}` takes at most {}, {} given",
            self.directive.name,
            count(self.directive.params.len(), "argument"),
            args.len()
        );
        let diag = Diag::new("E0308", span, text);
        Box::new(diag.help(format!("write `{}`", self.directive.usage)))
    }

    fn value(&self, param: &Param, expr: &ast::Expr, stage: Option<StageId>) -> Result<Value> {
        let evaluator = self.evaluator;
        match (param.kind, &*expr.kind) {
            (Kind::Axes, ExprKind::Star) => Ok(Value::Star),
            (Kind::Axis | Kind::Axes, _) => match self.subject {
                Tensor::Stage(id) => self.axis(id, param, expr),
                Tensor::Input(_) => Err(self.wrong(param, expr.span, "an axis of a stage")),
            },
            (Kind::AxisOfStage, _) => {
                self.axis(stage.expect("the stage stands before"), param, expr)
            }
            (Kind::Stage, _) => match self.tensor(param, expr, "a stage")? {
                Tensor::Stage(id) => Ok(Value::Stage(id)),
                Tensor::Input(_) => Err(self.wrong(param, expr.span, "a stage, not an input")),
            },
            (Kind::Tensor, _) => Ok(match self.tensor(param, expr, "a stage or an input")? {
                Tensor::Stage(id) => Value::Stage(id),
                Tensor::Input(at) => Value::Input(at),
            }),
            (Kind::Stages, ExprKind::List(items)) => {
                let one = Param { kind: Kind::Stage, ..*param };
                self.list(items, &one)
            }
            (Kind::Stages, ExprKind::Name(_) | ExprKind::Dotted(_)) => {
                let one = Param { kind: Kind::Stage, ..*param };
                self.list(std::slice::from_ref(expr), &one)
            }
            (Kind::Stages, _) => Err(self.wrong(param, expr.span, "a list of stages")),
            (Kind::Int, _) => Ok(Value::Int(evaluator.int(expr)?)),
            (Kind::Ints, ExprKind::List(items)) => {
                let one = Param { kind: Kind::Int, ..*param };
                self.list(items, &one)
            }
            (Kind::Ints, _) => Err(self.wrong(param, expr.span, "a list of integers")),
            (Kind::Bool, _) => Ok(Value::Bool(evaluator.condition(expr)?)),
            (Kind::Setting, ExprKind::Bool(value)) => Ok(Value::Bool(*value)),
            (Kind::Setting, _) => Ok(Value::Int(evaluator.int(expr)?)),
            (Kind::Scope, ExprKind::Name(name)) => match &name.text[..] {
                "global" => Ok(Value::Scope(Scope::Global)),
                "shared" => Ok(Value::Scope(Scope::Shared)),
                "local" => Ok(Value::Scope(Scope::Local)),
                _ => Err(self.wrong(param, expr.span, "`global`, `shared` or `local`")),
            },
            (Kind::Scope, _) => Err(self.wrong(param, expr.span, "`global`, `shared` or `local`")),
            (Kind::Word, ExprKind::Name(name)) => Ok(Value::Word(name.text.clone())),
            (Kind::Word, ExprKind::Dotted(path)) => Ok(Value::Word(join(path))),
            (Kind::Word, _) => Err(self.wrong(param, expr.span, "a word")),
            (Kind::Exprs, ExprKind::List(items)) => {
                let item = |expr: &ast::Expr| Argument {
                    value: Value::Expr(self.fold(expr)),
                    span: expr.span,
                };
                Ok(Value::List(items.iter().map(item).collect()))
            }
            (Kind::Exprs, _) => Err(self.wrong(param, expr.span, "a list of expressions")),
        }
    }

    /// Constants of the schedule become numbers; axes `ax0`, `ax1`, … and the rest stay.
    fn fold(&self, expr: &ast::Expr) -> ast::Expr {
        let constant = |text: i64| ExprKind::Int(text.to_string());
        let kind = match &*expr.kind {
            ExprKind::Name(name) if is_numbered_axis(&name.text) => return expr.clone(),
            ExprKind::Binary(op, a, b, span) => {
                ExprKind::Binary(*op, self.fold(a), self.fold(b), *span)
            }
            ExprKind::Name(_) | ExprKind::Dotted(_) | ExprKind::DottedCall(..) => {
                match self.evaluator.int(expr) {
                    Ok(value) => constant(value),
                    Err(_) => return expr.clone(),
                }
            }
            _ => return expr.clone(),
        };
        ast::Expr { kind: Box::new(kind), span: expr.span }
    }

    fn list(&self, items: &[ast::Expr], param: &Param) -> Result<Value> {
        let item = |expr: &ast::Expr| {
            let value = self.value(param, expr, None)?;
            Ok(Argument { value, span: expr.span })
        };
        Ok(Value::List(items.iter().map(item).collect::<Result<_>>()?))
    }

    fn tensor(&self, param: &Param, expr: &ast::Expr, wanted: &str) -> Result<Tensor> {
        match &*expr.kind {
            ExprKind::Name(name) => Ok(self.evaluator.tensor(std::slice::from_ref(name))?.0),
            ExprKind::Dotted(path) => Ok(self.evaluator.tensor(path)?.0),
            _ => Err(self.wrong(param, expr.span, wanted)),
        }
    }

    fn axis(&self, id: StageId, param: &Param, expr: &ast::Expr) -> Result<Value> {
        let ExprKind::Name(name) = &*expr.kind else {
            return Err(self.wrong(param, expr.span, "the name of an axis"));
        };
        let stage = self.evaluator.schedule.stage(id);
        if let Some(axis) = stage.find_axis(&name.text) {
            return Ok(Value::Axis(id, axis));
        }
        // A name that a `for` gives to an axis.
        if let Some(Value::Axis(of, axis)) = self.evaluator.lookup(&name.text)
            && *of == id
            && stage.leaves.contains(axis)
        {
            return Ok(Value::Axis(id, *axis));
        }
        Err(unknown_axis(stage, name, expr.span))
    }

    fn wrong(&self, param: &Param, span: Span, wanted: &str) -> Box<Diag> {
        let text = format!("`{}` of `{}` must be {wanted}", param.name, self.directive.name);
        let diag = Diag::new("E0308", span, text);
        Box::new(diag.help(format!("write `{}`", self.directive.usage)))
    }
}

fn is_numbered_axis(name: &str) -> bool {
    let number = name.strip_prefix("ax").filter(|number| !number.is_empty());
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The user is told which axes there are, and what became of this one.
fn unknown_axis(stage: &Stage, name: &Name, span: Span) -> Box<Diag> {
    let of = &stage.te.name;
    let axes = match stage.axis_names().join(", ") {
        axes if axes.is_empty() => format!("`{of}` has no loops"),
        axes => format!("the loops of `{of}` are {axes}"),
    };
    if let Some((directive, place)) =
        stage.find_replaced_axis(&name.text).and_then(|axis| axis.replaced)
    {
        let text = format!("axis `{}` of `{of}` is gone: `{directive}` replaced it", name.text);
        let diag = Diag::new("E0306", span, text).related(place, "replaced here");
        return Box::new(diag.note(axes));
    }
    let text = format!("`{of}` has no axis `{}`", name.text);
    let diag = Diag::new("E0305", span, text).note(axes);
    Box::new(match closest(&name.text, stage.axis_names()) {
        Some(close) => diag.help(format!("did you mean `{close}`?")),
        None => diag,
    })
}

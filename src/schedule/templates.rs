//! `use` of a template: statements for the tensors and axes that it is given.
//!
//! Before: `use tile(C, x, rows=8)` and `template tile(C: tensor, x: axis, rows = 4) { … }`.
//! After: the statements of the template have run, with its parameters as names.

use super::directives::{Value, axis_of};
use super::evaluate::{Evaluator, Running, refuse, suggest};
use super::state::UsedTemplate;
use crate::diag::{Diag, Result, Span};
use crate::ir::DType;
use crate::lang::ast::{Arg, Expr, ExprKind, Name, Template, TemplateParam, TemplateParamKind};
use rustc_hash::FxHashMap;

impl<'a> Evaluator<'a> {
    /// Runs a template with arguments.
    pub(super) fn use_template(&mut self, path: &'a [Name], args: &'a [Arg]) -> Result<()> {
        let span = path[0].span.to(path[path.len() - 1].span);
        let program = self.program;
        let Some(template) = program.template(span.file, path) else {
            return Err(self.unknown_template(path, span));
        };
        let is_it = |running: &Running| match running {
            Running::Template(one) => std::ptr::eq(*one, template),
            Running::Schedule(_) => false,
        };
        if self.running.iter().any(is_it) {
            let text = format!("template `{}` uses itself", template.name.text);
            return refuse("E0315", span, text);
        }
        let given = match_arguments(template, args, span)?;
        // The values of the parameters so far, which defaults may use.
        let mut values: FxHashMap<&str, Value> = FxHashMap::default();
        let mut tensor = None;
        for (param, given) in template.params.iter().zip(given) {
            let value = match (given, &param.default) {
                (Some(expr), _) => {
                    self.template_argument(template, param, expr, tensor.as_ref())?
                }
                (None, Some(default)) => {
                    let value = self.default_of(template, &values, default)?;
                    self.check_kind(template, param, value, default.span)?
                }
                (None, None) => {
                    let text = format!("`{}` needs `{}`", template.name.text, param.name.text);
                    return wrong(template, span, text);
                }
            };
            if param.kind == TemplateParamKind::Tensor {
                tensor = Some(value.clone());
            }
            values.insert(&param.name.text, value);
        }
        let (name, item) = (template.name.text.clone(), template.span);
        let used = UsedTemplate { name, item, at: span };
        self.run_template(template, values).map_err(|diag| Box::new(used.explain(*diag)))?;
        self.schedule.used.push(used);
        Ok(())
    }

    fn template_argument(
        &self,
        template: &Template,
        param: &TemplateParam,
        expr: &Expr,
        tensor: Option<&Value>,
    ) -> Result<Value> {
        let value = match (param.kind, &*expr.kind) {
            (TemplateParamKind::Axis, ExprKind::Name(name)) => match tensor {
                Some(Value::Stage(id)) => {
                    let axis = axis_of(self, *id, name)?;
                    let text = self.schedule.stage(*id).axis(axis).name.clone();
                    Value::NamedAxis(*id, axis, text)
                }
                Some(_) => return refuse("E0316", expr.span, "an input has no axes"),
                None => {
                    let text = format!("no tensor stands before the axis `{}`", param.name.text);
                    return refuse("E0316", param.name.span, text);
                }
            },
            (TemplateParamKind::Tensor, ExprKind::Name(name))
                if self.lookup(&name.text).is_none() =>
            {
                return Err(self.unknown_tensor(&name.text, name.span, true));
            }
            _ => self.eval(expr)?,
        };
        self.check_kind(template, param, value, expr.span)
    }

    /// Evaluates the default of a parameter, which sees the parameters before it.
    fn default_of(
        &mut self,
        template: &'a Template,
        values: &FxHashMap<&'a str, Value>,
        default: &Expr,
    ) -> Result<Value> {
        let outer = std::mem::replace(&mut self.scopes, vec![values.clone()]);
        self.running.push(Running::Template(template));
        let value = self.eval(default);
        self.running.pop();
        self.scopes = outer;
        value
    }

    fn check_kind(
        &self,
        template: &Template,
        param: &TemplateParam,
        value: Value,
        span: Span,
    ) -> Result<Value> {
        let (fits, wanted) = match param.kind {
            TemplateParamKind::Tensor => {
                (matches!(value, Value::Stage(_) | Value::Input(_)), "a stage or an input")
            }
            TemplateParamKind::Axis => (matches!(value, Value::NamedAxis(..)), "an axis"),
            TemplateParamKind::Index => {
                (matches!(value, Value::Int(_) | Value::RunTime(_)), "an integer")
            }
            TemplateParamKind::Bool => {
                (matches!(value, Value::Bool(_) | Value::RunTime(_)), "a condition")
            }
            TemplateParamKind::DType => {
                let fits = matches!(&value, Value::Word(word) if DType::from_name(word).is_some());
                (fits, "a data type")
            }
        };
        match fits {
            true => Ok(value),
            false => {
                let (name, of) = (&param.name.text, &template.name.text);
                let found = self.describe(&value);
                wrong(template, span, format!("`{name}` of `{of}` is {wanted}, not {found}"))
            }
        }
    }

    fn unknown_template(&self, path: &[Name], span: Span) -> Box<Diag> {
        let name = path.iter().map(|name| &name.text[..]).collect::<Vec<_>>().join(".");
        let visible: Vec<String> =
            self.program.templates(span.file).map(|(name, _)| name).collect();
        let diag = Diag::new("E0315", span, format!("unknown template `{name}`"));
        let names = visible.iter().map(|name| &name[..]).collect();
        Box::new(suggest(diag, &name, names, "templates"))
    }
}

/// Returns the expression for each parameter, if one is given.
fn match_arguments<'e>(
    template: &Template,
    args: &'e [Arg],
    span: Span,
) -> Result<Vec<Option<&'e Expr>>> {
    let name = &template.name.text;
    let mut given: Vec<Option<&Expr>> = vec![None; template.params.len()];
    for (position, arg) in args.iter().enumerate() {
        let (at, span) = match &arg.name {
            None => (position, arg.value.span),
            Some(key) => {
                let at = template.params.iter().position(|param| param.name.text == key.text);
                let Some(at) = at else {
                    let text = format!("`{name}` has no parameter `{}`", key.text);
                    return wrong(template, key.span, text);
                };
                (at, key.span)
            }
        };
        match given.get_mut(at) {
            None => return wrong(template, span, format!("`{name}` has too many arguments")),
            Some(Some(_)) => {
                let param = &template.params[at].name.text;
                return wrong(template, span, format!("`{param}` is given twice"));
            }
            Some(place) => *place = Some(&arg.value),
        }
    }
    let missing = template.params.iter().zip(&given);
    let missing = missing.filter(|(param, given)| given.is_none() && param.default.is_none());
    match missing.map(|(param, _)| &param.name.text).next() {
        Some(param) => wrong(template, span, format!("`{name}` needs `{param}`")),
        None => Ok(given),
    }
}

/// Returns the error for arguments that do not fit, with the parameters of the template.
fn wrong<T>(template: &Template, span: Span, text: String) -> Result<T> {
    let params = template.params.iter().map(|param| match param.default.is_some() {
        true => format!("{}=…", param.name.text),
        false => param.name.text.clone(),
    });
    let usage = format!("use {}({})", template.name.text, params.collect::<Vec<_>>().join(", "));
    let diag = Diag::new("E0316", span, text).related(template.name.span, "the template is here");
    Err(Box::new(diag.help(format!("write `{usage}`"))))
}

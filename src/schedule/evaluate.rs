//! Runs the statements of a schedule from top to bottom.
//!
//! Before: a stage graph and `schedule matmul.block(t = 32) { let xo, xi = C.split(x, factor=t) … }`
//! After: the [`Schedule`] that its directives make of the default one.

use super::directives::{Argument, Call, DIRECTIVES, Directive, Value};
use super::state::{Schedule, StageId, Tensor};
use super::{attach, constants, select};
use crate::diag::{Diag, Result, Span, closest};
use crate::lang::Program;
use crate::lang::ast::{self, ExprKind, Name, ParamKind, ScheduleStmt, ScheduleStmtKind};
use crate::target::Target;
use crate::te::{Constant, Defines, Graph};
use std::collections::HashMap;

/// The schedule `source` of a kernel, or the default one.
pub fn apply(
    program: &Program,
    graph: Graph,
    source: Option<&ast::Schedule>,
    target: &Target,
    defines: &Defines,
) -> Result<Schedule> {
    let schedule = Schedule::new(graph, target);
    let Some(source) = source else { return Ok(schedule) };
    let mut evaluator = Evaluator {
        program,
        defines,
        schedule,
        scopes: vec![HashMap::new()],
        stage_names: HashMap::new(),
        running: Vec::new(),
    };
    evaluator.run(source)?;
    let file = &program.sources.files[source.span.file as usize].text;
    evaluator.schedule.text =
        file[source.span.start as usize..source.span.end as usize].to_string();
    Ok(evaluator.schedule)
}

/// What is known while a schedule runs.
pub(super) struct Evaluator<'a> {
    program: &'a Program,
    defines: &'a Defines,
    pub(super) schedule: Schedule,
    /// Names of constants, stages and axes, innermost scope last.
    scopes: Vec<HashMap<String, Value>>,
    /// Names that `let` gave to stages, in every scope so far.
    stage_names: HashMap<String, Tensor>,
    /// Schedules being run: the one built with, then those that `use` names.
    running: Vec<&'a ast::Schedule>,
}

impl<'a> Evaluator<'a> {
    /// The value of a name, from the innermost scope that has it.
    pub(super) fn lookup(&self, name: &str) -> Option<&Value> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// Every name in scope.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.scopes.iter().flat_map(|scope| scope.keys()).map(|name| &name[..]);
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.into_iter()
    }

    fn declare(&mut self, name: &str, value: Value) {
        let scope = self.scopes.last_mut().expect("the outermost scope stays");
        scope.insert(name.to_string(), value);
    }

    /// Parameters, then the statements.
    fn run(&mut self, source: &'a ast::Schedule) -> Result<()> {
        self.running.push(source);
        for param in &source.params {
            let value = match (select::setting(source, &param.name.text, self.defines), param.kind)
            {
                (_, ParamKind::Var) => {
                    let text = "a schedule has no run-time integers";
                    return Err(Box::new(Diag::new("E0311", param.name.span, text)));
                }
                (Some(text), _) => self.given(&param.name, text)?,
                (None, _) => match &param.default {
                    Some(default) => self.constant(default)?,
                    None => {
                        let name = &param.name.text;
                        let text = format!("the parameter `{name}` of the schedule has no value");
                        let diag = Diag::new("E0311", param.name.span, text);
                        return Err(Box::new(diag.help(format!(
                            "write a default, or give it one with `-D {}.{}.{name}=8`",
                            source.kernel.text,
                            source.name.as_ref().map_or("", |name| &name.text)
                        ))));
                    }
                },
            };
            self.declare_constant(&param.name, value)?;
        }
        self.statements(&source.body)?;
        self.running.pop();
        Ok(())
    }

    fn declare_constant(&mut self, name: &Name, value: Constant) -> Result<()> {
        let value = match value {
            Constant::Int(value) => Value::Int(value),
            Constant::Bool(value) => Value::Bool(value),
            Constant::DType(dtype) => {
                let text = format!("`{}` is the type `{dtype}`, not a number", name.text);
                return Err(Box::new(Diag::new("E0309", name.span, text)));
            }
        };
        self.declare(&name.text, value);
        Ok(())
    }

    /// A value given with `-D`.
    fn given(&self, name: &Name, text: &str) -> Result<Constant> {
        constants::parse_setting(text).ok_or_else(|| {
            let text = format!("-D: `{text}` is no value for `{}`", name.text);
            Box::new(Diag::new("E0311", name.span, text))
        })
    }

    fn statements(&mut self, stmts: &'a [ScheduleStmt]) -> Result<()> {
        stmts.iter().try_for_each(|stmt| self.statement(stmt))
    }

    /// Statements with names of their own.
    fn block(&mut self, stmts: &'a [ScheduleStmt]) -> Result<()> {
        self.scopes.push(HashMap::new());
        let result = self.statements(stmts);
        self.scopes.pop();
        result
    }

    fn statement(&mut self, stmt: &'a ScheduleStmt) -> Result<()> {
        match &stmt.kind {
            ScheduleStmtKind::Directive { results, stage, directive, args } => {
                let values = self.directive(stmt.span, stage, directive, args)?;
                self.name_results(stmt.span, results, directive, values)
            }
            ScheduleStmtKind::Let { names, value } => self.let_statement(stmt.span, names, value),
            ScheduleStmtKind::If { cond, then, otherwise } => match self.condition(cond)? {
                true => self.block(then),
                false => self.block(otherwise),
            },
            ScheduleStmtKind::For { names, items, body } => self.for_statement(names, items, body),
            ScheduleStmtKind::Use(name) => self.use_statement(name),
            ScheduleStmtKind::Knob { name, default, choices } => self.knob(name, default, choices),
            ScheduleStmtKind::Assert(cond, text) => match self.condition(cond)? {
                true => Ok(()),
                false => {
                    let text = format!("assertion failed: {text}");
                    Err(Box::new(Diag::new("E0313", cond.span, text)))
                }
            },
            ScheduleStmtKind::AutoInlineInjective => {
                attach::auto_inline_injective(&mut self.schedule, stmt.span);
                Ok(())
            }
        }
    }

    fn directive(
        &mut self,
        span: Span,
        path: &'a [Name],
        name: &'a Name,
        args: &'a [ast::Arg],
    ) -> Result<Vec<Value>> {
        let directive = find_directive(name, &self.schedule.target)?;
        let (subject, subject_span) = self.tensor(path)?;
        if let (Tensor::Input(_), false) = (subject, directive.on_inputs) {
            let text = format!("`{}` is an input, and `{}` acts on stages", join(path), name.text);
            let diag = Diag::new("E0304", subject_span, text);
            return Err(Box::new(
                diag.help("an input has no loops; `cache_read` makes a copy of it"),
            ));
        }
        let args = self.arguments(directive, subject, span, args)?;
        (directive.run)(&mut self.schedule, &Call { subject, subject_span, span, args })
    }

    /// Gives the results of a directive their names.
    fn name_results(
        &mut self,
        span: Span,
        names: &'a [Option<Name>],
        directive: &Name,
        values: Vec<Value>,
    ) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        if names.len() != values.len() {
            let text = format!(
                "`{}` gives {}, but {} here",
                directive.text,
                count(values.len(), "result"),
                count(names.len(), "name")
            );
            let diag = Diag::new("E0310", span, text);
            return Err(Box::new(diag.help("write `_` for a result that needs no name")));
        }
        for (name, value) in names.iter().zip(values) {
            let Some(name) = name else { continue };
            match value {
                Value::Axis(stage, axis) => {
                    let of = self.schedule.stage(stage);
                    if of.find_axis(&name.text).is_some_and(|other| other != axis) {
                        let text = format!("`{}` already has an axis `{}`", of.te.name, name.text);
                        return Err(Box::new(Diag::new("E0310", name.span, text)));
                    }
                    self.schedule.stage_mut(stage).rename_axis(axis, &name.text);
                }
                Value::Stage(id) => {
                    self.stage_names.insert(name.text.clone(), Tensor::Stage(id));
                }
                _ => {}
            }
            self.declare(&name.text, value);
        }
        Ok(())
    }

    /// `let t = n * n`, `let S = P`.
    fn let_statement(
        &mut self,
        span: Span,
        names: &'a [Option<Name>],
        value: &'a ast::Expr,
    ) -> Result<()> {
        let [name] = names else {
            let text = "one name is expected: only a directive has several results";
            return Err(Box::new(Diag::new("E0310", span, text)));
        };
        let value = self.item(value)?;
        if let Some(name) = name {
            self.declare(&name.text, value);
        }
        Ok(())
    }

    /// A stage, an axis or a constant.
    fn item(&self, expr: &'a ast::Expr) -> Result<Value> {
        let path = match &*expr.kind {
            ExprKind::Name(name) => std::slice::from_ref(name),
            ExprKind::Dotted(path) if path[0].text != "target" => &path[..],
            _ => &[],
        };
        if let [name] = path
            && let Some(value) = self.lookup(&name.text)
        {
            return Ok(value.clone());
        }
        if !path.is_empty()
            && let Some(tensor) = self.find(&join(path))
        {
            return Ok(match tensor {
                Tensor::Stage(id) => Value::Stage(id),
                Tensor::Input(at) => Value::Input(at),
            });
        }
        // An axis, by the name that it has in some stage.
        if let [name] = path {
            let stages = self.schedule.stages.iter().enumerate();
            let found: Vec<Value> = stages
                .filter_map(|(at, stage)| {
                    Some(Value::Axis(StageId(at), stage.find_axis(&name.text)?))
                })
                .collect();
            if let Some(axis) = found.into_iter().next()
                && !self.schedule.graph.consts.iter().any(|(known, _)| *known == name.text)
            {
                return Ok(axis);
            }
        }
        Ok(match self.constant(expr)? {
            Constant::Int(value) => Value::Int(value),
            Constant::Bool(value) => Value::Bool(value),
            Constant::DType(dtype) => {
                let text = format!("`{dtype}` is a type; a number or a stage is expected");
                return Err(Box::new(Diag::new("E0309", expr.span, text)));
            }
        })
    }

    /// Each turn has a scope of its own.
    fn for_statement(
        &mut self,
        names: &'a [Name],
        items: &'a [ast::Expr],
        body: &'a [ScheduleStmt],
    ) -> Result<()> {
        for item in items {
            let parts: Vec<&ast::Expr> = match &*item.kind {
                ExprKind::Tuple(parts) => parts.iter().collect(),
                _ => vec![item],
            };
            if parts.len() != names.len() {
                let text = format!(
                    "the loop has {}, this element has {}",
                    count(names.len(), "name"),
                    count(parts.len(), "part")
                );
                return Err(Box::new(Diag::new("E0315", item.span, text)));
            }
            let values: Vec<Value> =
                parts.into_iter().map(|part| self.item(part)).collect::<Result<_>>()?;
            self.scopes.push(HashMap::new());
            for (name, value) in names.iter().zip(values) {
                self.declare(&name.text, value);
            }
            let result = self.statements(body);
            self.scopes.pop();
            result?;
        }
        Ok(())
    }

    /// Another schedule of this kernel runs here.
    fn use_statement(&mut self, name: &'a Name) -> Result<()> {
        let kernel = &self.schedule.graph.name;
        if name.text == "default" {
            return Ok(());
        }
        let used = select::find_used(self.program, kernel, &name.text, &self.schedule.target);
        let used = used.map_err(|names| {
            let text = format!("kernel `{kernel}` has no schedule `{}` for this target", name.text);
            let diag = Diag::new("E0312", name.span, text);
            match closest(&name.text, names.iter().copied()) {
                Some(close) => Box::new(diag.help(format!("did you mean `{close}`?"))),
                None if names.is_empty() => Box::new(diag),
                None => Box::new(diag.note(format!("schedules: {}", names.join(", ")))),
            }
        })?;
        if self.running.iter().any(|running| std::ptr::eq(*running, used)) {
            let text = format!("schedule `{}` uses itself", name.text);
            return Err(Box::new(Diag::new("E0312", name.span, text)));
        }
        let scopes = std::mem::replace(&mut self.scopes, vec![HashMap::new()]);
        let result = self.run(used);
        self.scopes = scopes;
        result
    }

    /// A choice: the default, or what `-D` says.
    fn knob(
        &mut self,
        name: &'a Name,
        default: &'a ast::Expr,
        choices: &'a [ast::Expr],
    ) -> Result<()> {
        let source = *self.running.last().expect("a schedule runs");
        let all: Vec<Constant> =
            choices.iter().map(|choice| self.constant(choice)).collect::<Result<_>>()?;
        let (value, span, from) = match select::setting(source, &name.text, self.defines) {
            Some(text) => (self.given(name, text)?, name.span, "-D: "),
            None => (self.constant(default)?, default.span, ""),
        };
        if !all.contains(&value) {
            let show = |value: &Constant| match value {
                Constant::Int(value) => value.to_string(),
                Constant::Bool(value) => value.to_string(),
                Constant::DType(dtype) => dtype.to_string(),
            };
            let list: Vec<String> = all.iter().map(show).collect();
            let text = format!(
                "{from}{} is no choice of knob `{}`: [{}]",
                show(&value),
                name.text,
                list.join(", ")
            );
            return Err(Box::new(Diag::new("E0311", span, text)));
        }
        self.declare_constant(name, value)
    }

    /// The stage or input that a path names.
    pub(super) fn tensor(&self, path: &[Name]) -> Result<(Tensor, Span)> {
        let name = join(path);
        let span = path[0].span.to(path[path.len() - 1].span);
        let value = match path {
            [one] => self.lookup(&one.text),
            _ => None,
        };
        match value {
            Some(Value::Stage(id)) => return Ok((Tensor::Stage(*id), span)),
            Some(Value::Input(at)) => return Ok((Tensor::Input(*at), span)),
            _ => {}
        }
        if let Some(tensor) = self.find(&name) {
            return Ok((tensor, span));
        }
        let names: Vec<&str> = self.schedule.stages.iter().map(|s| &s.te.name[..]).collect();
        let text = format!("`{}` has no stage `{name}`", self.schedule.graph.name);
        let diag = Diag::new("E0304", span, text);
        let close = closest(&name, names.iter().copied());
        let diag = diag.note(format!("stages: {}", names.join(", ")));
        Err(Box::new(match close {
            Some(close) => diag.help(format!("did you mean `{close}`?")),
            None => diag,
        }))
    }

    fn find(&self, name: &str) -> Option<Tensor> {
        self.schedule.find(name).or_else(|| self.stage_names.get(name).copied())
    }

    fn arguments(
        &self,
        directive: &'static Directive,
        subject: Tensor,
        span: Span,
        args: &'a [ast::Arg],
    ) -> Result<Vec<Option<Argument>>> {
        super::arguments::resolve(self, directive, subject, span, args)
    }
}

fn find_directive(name: &Name, target: &Target) -> Result<&'static Directive> {
    if let Some(directive) = DIRECTIVES.iter().find(|directive| directive.name == name.text) {
        return Ok(directive);
    }
    if matches!(&name.text[..], "bind" | "pipeline") {
        let text = format!("`{}` is for GPUs, and {target} is a CPU", name.text);
        return Err(Box::new(
            Diag::new("E0314", name.span, text)
                .help("on CPUs, `parallel` shares iterations out to threads"),
        ));
    }
    let diag = Diag::new("E0307", name.span, format!("unknown directive `{}`", name.text));
    let names: Vec<&str> = DIRECTIVES.iter().map(|directive| directive.name).collect();
    Err(Box::new(match closest(&name.text, names.iter().copied()) {
        Some(close) => diag.help(format!("did you mean `{close}`?")),
        None => diag.note(format!("directives: {}", names.join(", "))),
    }))
}

pub(super) fn join(path: &[Name]) -> String {
    path.iter().map(|name| &name.text[..]).collect::<Vec<_>>().join(".")
}

pub(super) fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

//! Runs the statements of a schedule, from top to bottom.
//!
//! Before: the parsed schedule and the kernel's graph.
//! After: a [`Schedule`] with every directive applied, or the first error.

use super::directives::Value;
use super::directives::resolve_call;
use super::select::candidates;
use super::state::{Legality, Origin, Schedule, Tensor};
use super::versions::{Branches, MAX_VERSIONS, Version};
use crate::diag::{Diag, Result, Span};
use crate::ir::DType;
use crate::lang::Program;
use crate::lang::ast::{self, Expr, ExprKind, Name, ParamKind, ScheduleStmt, ScheduleStmtKind};
use crate::target::Target;
use crate::te::{Defines, Graph};
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// The largest number of statements that a schedule executes, loops and `use` included.
const MAX_STATEMENTS: usize = 100_000;

/// Applies a schedule of the program to a kernel.
pub fn apply(
    program: &Program,
    graph: Graph,
    target: &Target,
    defines: &Defines,
    item: &ast::Schedule,
) -> Result<Schedule> {
    apply_with_legality(program, graph, target, defines, item, Legality::All)
}

/// Applies a schedule under a policy for its legality checks, which bounds inference follows too.
pub fn apply_with_legality(
    program: &Program,
    graph: Graph,
    target: &Target,
    defines: &Defines,
    item: &ast::Schedule,
    legality: Legality,
) -> Result<Schedule> {
    let schedule = Schedule { legality, ..Schedule::new(graph, target) };
    run_statements(program, schedule, defines, item).map(|(schedule, _)| schedule)
}

/// Applies a schedule and returns the knobs that it executed, in this order. Knobs of a schedule
/// that it uses are left out.
pub fn apply_with_knobs(
    program: &Program,
    graph: Graph,
    target: &Target,
    defines: &Defines,
    item: &ast::Schedule,
) -> Result<(Schedule, Vec<Knob>)> {
    run_statements(program, Schedule::new(graph, target), defines, item)
}

fn run_statements(
    program: &Program,
    schedule: Schedule,
    defines: &Defines,
    item: &ast::Schedule,
) -> Result<(Schedule, Vec<Knob>)> {
    let text = source_text(program, item.span) + &settings(item, defines);
    let target = &schedule.target.clone();
    let (mut versions, mut all_knobs): (Vec<Version<Schedule>>, Vec<Knob>) = Default::default();
    let mut branches = Branches::default();
    loop {
        let mut evaluator = Evaluator::new(program, target, defines, schedule.clone(), branches);
        let done = evaluator.run(item, None);
        let Evaluator { schedule: mut made, knobs, branches: met, .. } = evaluator;
        let met = met.into_inner();
        done.map_err(|diag| met.explain(*diag))?;
        for knob in knobs {
            if all_knobs.iter().all(|other| other.span != knob.span) {
                all_knobs.push(knob);
            }
        }
        (made.text, made.origin) = (text.clone(), Origin::User);
        made.assumed = met.assumed();
        let Some(next) = met.next() else {
            made.versions = versions;
            return Ok((made, all_knobs));
        };
        if target.is_gpu() {
            return met.refuse("schedules for GPUs cannot branch on run-time integers");
        }
        if versions.len() + 1 == MAX_VERSIONS {
            return met.refuse(format!("the schedule has more than {MAX_VERSIONS} versions"));
        }
        let cond = met.condition().expect("a condition is true before the last run");
        versions.push(Version { cond, of: made });
        branches = next;
    }
}

/// A knob that a schedule executed.
#[derive(Clone, Debug)]
pub struct Knob {
    /// The place of its name.
    pub span: Span,
    /// Its value, as written in the language.
    pub value: String,
    /// All values that it can have.
    pub choices: Vec<String>,
}

/// A list of statements that is being run.
#[derive(Clone, Copy)]
pub(super) enum Running<'a> {
    Schedule(&'a ast::Schedule),
    Template(&'a ast::Template),
}

/// The state of a running schedule.
pub(super) struct Evaluator<'a> {
    pub(super) program: &'a Program,
    pub(super) target: &'a Target,
    defines: &'a Defines,
    /// The parameters and constants of the kernel.
    constants: FxHashMap<String, Value>,
    pub(super) schedule: Schedule,
    /// The scopes of the running schedule, innermost last.
    pub(super) scopes: Vec<FxHashMap<&'a str, Value>>,
    /// The running schedules and templates; each one uses the next.
    pub(super) running: Vec<Running<'a>>,
    knobs: Vec<Knob>,
    statements: usize,
    /// The places of the names that iterations of the running `for`s gave to stages and axes.
    named: Vec<Span>,
    /// The number of running `for`s.
    loops: usize,
    /// The conditions on run-time integers so far.
    pub(super) branches: RefCell<Branches>,
}

impl<'a> Evaluator<'a> {
    fn new(
        program: &'a Program,
        target: &'a Target,
        defines: &'a Defines,
        schedule: Schedule,
        branches: Branches,
    ) -> Evaluator<'a> {
        let constants = schedule.graph.params.iter().chain(&schedule.graph.consts);
        Evaluator {
            program,
            target,
            defines,
            constants: constants.map(|(name, text)| (name.clone(), parse_value(text))).collect(),
            schedule,
            scopes: Vec::new(),
            running: Vec::new(),
            knobs: Vec::new(),
            statements: 0,
            named: Vec::new(),
            loops: 0,
            branches: RefCell::new(branches),
        }
    }

    /// Runs a schedule in a new scope; `used` is the `use` that names it.
    fn run(&mut self, item: &'a ast::Schedule, used: Option<Span>) -> Result<()> {
        let outer = std::mem::replace(&mut self.scopes, vec![FxHashMap::default()]);
        self.running.push(Running::Schedule(item));
        for param in &item.params {
            let value = self.parameter(item, param, used)?;
            self.declare(&param.name, value)?;
        }
        self.block(&item.body)?;
        self.running.pop();
        self.scopes = outer;
        Ok(())
    }

    /// Runs the statements of a template whose parameters have these values.
    pub(super) fn run_template(
        &mut self,
        template: &'a ast::Template,
        values: FxHashMap<&'a str, Value>,
    ) -> Result<()> {
        let outer = std::mem::replace(&mut self.scopes, vec![values]);
        self.running.push(Running::Template(template));
        self.block(&template.body)?;
        self.running.pop();
        self.scopes = outer;
        Ok(())
    }

    /// Whether a template is running, which sees nothing of the kernel but its arguments.
    pub(super) fn in_template(&self) -> bool {
        matches!(self.running.last(), Some(Running::Template(_)))
    }

    fn block(&mut self, stmts: &'a [ScheduleStmt]) -> Result<()> {
        stmts.iter().try_for_each(|stmt| self.statement(stmt))
    }

    fn statement(&mut self, stmt: &'a ScheduleStmt) -> Result<()> {
        self.statements += 1;
        if self.statements > MAX_STATEMENTS {
            let text = format!("the schedule runs more than {MAX_STATEMENTS} statements");
            return refuse("E0318", stmt.span, text);
        }
        match &stmt.kind {
            ScheduleStmtKind::Directive { results, stage, directive, args } => {
                let call = resolve_call(self, stage, directive, args, stmt.span)?;
                self.schedule.assumed = self.branches.borrow().assumed();
                let values = call.apply(&mut self.schedule)?;
                self.name_results(results, values, directive)
            }
            ScheduleStmtKind::Let { names, value } => {
                let [name] = &names[..] else {
                    let text = format!("{} names for one value", names.len());
                    return refuse("E0310", stmt.span, text);
                };
                let value = self.eval(value)?;
                name.as_ref().map_or(Ok(()), |name| self.declare(name, value))
            }
            // As in a kernel, `if` opens no scope.
            ScheduleStmtKind::If { cond, then, otherwise } => {
                let taken = if self.condition(cond)? { then } else { otherwise };
                self.block(taken)
            }
            ScheduleStmtKind::For { names, items, body } => self.for_loop(names, items, body),
            ScheduleStmtKind::Use(name) => self.use_schedule(name),
            ScheduleStmtKind::UseTemplate { path, args } => self.use_template(path, args),
            ScheduleStmtKind::Knob { name, default, choices } => self.knob(name, default, choices),
            ScheduleStmtKind::Assert(cond, text) => match self.condition(cond)? {
                true => Ok(()),
                false => refuse("E0314", cond.span, text.clone()),
            },
            ScheduleStmtKind::AutoInlineInjective => {
                super::directives::auto_inline_injective(&mut self.schedule, stmt.span);
                Ok(())
            }
        }
    }

    /// Runs a `for` over the elements of a list.
    fn for_loop(
        &mut self,
        names: &'a [Name],
        items: &'a [Expr],
        body: &'a [ScheduleStmt],
    ) -> Result<()> {
        self.loops += 1;
        for item in items {
            let parts: Vec<&Expr> = match &*item.kind {
                ExprKind::Tuple(parts) if names.len() > 1 => parts.iter().collect(),
                _ => vec![item],
            };
            if parts.len() != names.len() {
                let text = format!("{} names for {} values", names.len(), parts.len());
                return refuse("E0310", item.span, text);
            }
            let values = parts.iter().map(|part| self.eval(part)).collect::<Result<Vec<_>>>()?;
            self.scopes.push(FxHashMap::default());
            for (name, value) in names.iter().zip(values) {
                self.declare(name, value)?;
            }
            self.block(body)?;
            self.scopes.pop();
        }
        self.loops -= 1;
        if self.loops == 0 {
            self.named.clear();
        }
        Ok(())
    }

    fn use_schedule(&mut self, name: &'a Name) -> Result<()> {
        let kernel = self.schedule.graph.name.clone();
        let found = super::select::find(self.program, &kernel, &name.text, self.target);
        let Some(item) = found else {
            let text = format!("`{kernel}` has no schedule `{}` for {}", name.text, self.target);
            let names = candidates(self.program, &kernel, self.target)
                .into_iter()
                .filter_map(|item| item.name.as_ref().map(|name| &name.text[..]));
            let diag = Diag::new("E0315", name.span, text);
            return Err(Box::new(suggest(diag, &name.text, names.collect(), "schedules")));
        };
        let is_it = |running: &Running| match running {
            Running::Schedule(one) => std::ptr::eq(*one, item),
            Running::Template(_) => false,
        };
        if self.running.iter().any(is_it) {
            return refuse("E0315", name.span, format!("schedule `{}` uses itself", name.text));
        }
        self.run(item, Some(name.span))
    }

    /// Returns the value that `-D` gives to a parameter or knob of the running schedule.
    fn defined(&self, name: &str) -> Option<&'a str> {
        let Running::Schedule(running) = self.running.last()? else { return None };
        let schedule = &running.name.as_ref()?.text;
        let full = format!("{schedule}.{name}");
        let kernel = &self.schedule.graph.name;
        let mut defines = self.defines.iter().rev();
        let found = defines.find(|(k, n, _)| k.as_ref() == Some(kernel) && *n == full)?;
        Some(&found.2)
    }

    /// Returns the value of a parameter; the default for a schedule that another one uses.
    fn parameter(
        &mut self,
        item: &ast::Schedule,
        param: &'a ast::Param,
        used: Option<Span>,
    ) -> Result<Value> {
        let name = &param.name.text;
        let given = if used.is_none() { self.defined(name) } else { None };
        let (value, span) = match (given, &param.default) {
            (Some(text), _) => (parse_value(text), param.name.span),
            (None, Some(default)) => (self.eval(default)?, default.span),
            (None, None) => {
                let text = format!("the parameter `{name}` of the schedule has no value");
                let diag = Diag::new("E0313", param.name.span, text);
                let schedule = item.name.as_ref().map_or("NAME", |name| &name.text);
                let kernel = &item.kernel.text;
                return Err(Box::new(diag.help(format!(
                    "write a default, or give it with `-D {kernel}.{schedule}.{name}=16`"
                ))));
            }
        };
        let (fits, wanted) = match param.kind {
            ParamKind::Index => (matches!(value, Value::Int(_)), "an integer of 64 bits"),
            ParamKind::Bool => (matches!(value, Value::Bool(_)), "`true` or `false`"),
            ParamKind::DType => {
                let fits = matches!(&value, Value::Word(word) if DType::from_name(word).is_some());
                (fits, "a data type")
            }
            ParamKind::Real | ParamKind::Var | ParamKind::Shape | ParamKind::List => {
                let text = "a schedule's parameters are integers, `bool` or `dtype`";
                return refuse("E0313", param.name.span, text);
            }
        };
        match fits {
            true => Ok(value),
            false => {
                let found = given.map_or_else(|| self.describe(&value), |text| format!("`{text}`"));
                refuse("E0313", span, format!("`{name}` must be {wanted}, not {found}"))
            }
        }
    }

    fn knob(&mut self, name: &'a Name, default: &Expr, choices: &[Expr]) -> Result<()> {
        let values = choices.iter().map(|c| self.constant(c)).collect::<Result<Vec<_>>>()?;
        let (value, span) = match self.defined(&name.text) {
            Some(text) => (parse_value(text), name.span),
            None => (self.constant(default)?, default.span),
        };
        if !values.iter().any(|choice| same(choice, &value)) {
            let (knob, value) = (&name.text, self.describe(&value));
            let all: Vec<String> = values.iter().map(|value| self.describe(value)).collect();
            let diag = Diag::new("E0313", span, format!("knob `{knob}` cannot be {value}"));
            return Err(Box::new(diag.note(format!("choices: {}", all.join(", ")))));
        }
        if self.running.len() == 1 {
            let text = |value: &Value| self.describe(value).replace('`', "");
            let (value, choices) = (text(&value), values.iter().map(text).collect());
            self.knobs.push(Knob { span: name.span, value, choices });
        }
        self.declare(name, value)
    }

    /// Adds a name to the innermost scope. Axes of several stages can share a name.
    fn declare(&mut self, name: &'a Name, value: Value) -> Result<()> {
        let scope = self.scopes.last_mut().expect("a schedule is running");
        let is_axis = matches!(value, Value::Axis(..));
        let twice = match scope.get(&name.text[..]) {
            Some(Value::Axis(..)) => !is_axis,
            Some(_) => true,
            None => false,
        };
        if twice {
            return refuse("E0317", name.span, format!("`{}` is declared twice", name.text));
        }
        scope.insert(&name.text, value);
        Ok(())
    }

    /// Gives the results of a directive the names of its `let`.
    fn name_results(
        &mut self,
        names: &'a [Option<Name>],
        values: Vec<Value>,
        directive: &Name,
    ) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        if names.len() != values.len() {
            let (given, made) = (count(names.len(), "name"), count(values.len(), "result"));
            let text = format!("{given} for the {made} of `{}`", directive.text);
            return refuse("E0310", directive.span, text);
        }
        // A template does not know the names around it, and may be used twice.
        let in_template = self.in_template();
        for (name, value) in names.iter().zip(values) {
            let Some(name) = name else { continue };
            match value {
                Value::Axis(stage, axis) => {
                    let stage = self.schedule.stage_mut(stage);
                    let is_taken =
                        |text: &str| stage.find_axis(text).is_some_and(|other| other != axis);
                    if is_taken(&name.text) && !in_template {
                        let text =
                            format!("`{}` already has an axis `{}`", stage.te.name, name.text);
                        return self.refuse_taken(name, text);
                    }
                    let text = fresh_name(&name.text, is_taken);
                    stage.rename_axis(axis, &text);
                }
                Value::Stage(id) => {
                    let is_taken = |text: &str| {
                        self.schedule.find(text).is_some_and(|t| t != Tensor::Stage(id))
                    };
                    if is_taken(&name.text) && !in_template {
                        let text = format!("the kernel already has a `{}`", name.text);
                        return self.refuse_taken(name, text);
                    }
                    let text = fresh_name(&name.text, is_taken);
                    self.schedule.stage_mut(id).te.name = text;
                }
                _ => {}
            }
            if self.loops > 0 {
                self.named.push(name.span);
            }
            self.declare(name, value)?;
        }
        Ok(())
    }

    /// Refuses a name of a stage or of an axis that is taken (E0317).
    fn refuse_taken<T>(&self, name: &Name, text: String) -> Result<T> {
        if !self.named.contains(&name.span) {
            return refuse("E0317", name.span, text);
        }
        let earlier = format!("{text}, from an earlier iteration of the `for`");
        Err(Box::new(Diag::new("E0317", name.span, earlier).help(
            "write the statements as a `template`, which appends a number to a name that is taken, \
             and `use` it in the `for`",
        )))
    }

    /// Returns the value of a name.
    pub(super) fn lookup(&self, name: &str) -> Option<Value> {
        let local = self.scopes.iter().rev().find_map(|scope| scope.get(name)).cloned();
        if local.is_some() || self.in_template() {
            return local;
        }
        self.tensor(name).or_else(|| self.constants.get(name).cloned())
    }

    /// Returns the stage or input with this name.
    pub(super) fn tensor(&self, name: &str) -> Option<Value> {
        if self.in_template() {
            return None;
        }
        Some(match self.schedule.find(name)? {
            Tensor::Stage(id) => Value::Stage(id),
            Tensor::Input(index) => Value::Input(index),
        })
    }

    /// Returns every visible name, for "did you mean".
    pub(super) fn names(&self) -> Vec<&str> {
        let locals = self.scopes.iter().flat_map(|scope| scope.keys().copied());
        if self.in_template() {
            let mut names: Vec<&str> = locals.collect();
            names.sort_unstable();
            return names;
        }
        let mut names: Vec<&str> = locals.chain(self.constants.keys().map(|k| &k[..])).collect();
        names.extend(self.schedule.stages.iter().map(|stage| &stage.te.name[..]));
        names.extend(self.schedule.graph.vars.iter().map(|var| var.name()));
        names.sort_unstable();
        names
    }
}

/// Returns the name, with a number if it is taken.
fn fresh_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    if !is_taken(name) {
        return name.to_string();
    }
    let mut numbered = (2..).map(|number| format!("{name}_{number}"));
    numbered.find(|name| !is_taken(name)).expect("numbers do not end")
}

/// Parses a value of the command line or of the kernel: an integer, a condition or a word.
fn parse_value(text: &str) -> Value {
    match (text.parse(), text.parse()) {
        (Ok(int), _) => Value::Int(int),
        (_, Ok(flag)) => Value::Bool(flag),
        _ => Value::Word(text.to_string()),
    }
}

/// Whether two constants are equal.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Word(a), Value::Word(b)) => a == b,
        _ => false,
    }
}

/// Returns the `-D` options for the schedule, as comments below its text.
fn settings(item: &ast::Schedule, defines: &Defines) -> String {
    let of = |(kernel, path, value): &(Option<String>, String, String)| {
        let (schedule, name) = path.split_once('.')?;
        let named = item.name.as_ref().is_some_and(|own| own.text == schedule);
        let ours = kernel.as_ref() == Some(&item.kernel.text) && named;
        ours.then(|| format!("\n# -D {}.{schedule}.{name}={value}", item.kernel.text))
    };
    defines.iter().filter_map(of).collect()
}

/// Returns the source text of a place.
pub(super) fn source_text(program: &Program, span: Span) -> String {
    let text = &program.sources.files[span.file as usize].text;
    text[span.start as usize..span.end as usize].to_string()
}

/// "1 name", "2 names".
pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns an error.
pub(super) fn refuse<T>(code: &'static str, span: Span, text: impl Into<String>) -> Result<T> {
    Err(Box::new(Diag::new(code, span, text)))
}

/// Adds the valid names and a similar one to an error.
pub(super) fn suggest(diag: Diag, name: &str, names: Vec<&str>, what: &str) -> Diag {
    let close = crate::diag::closest(name, names.iter().copied()).map(str::to_string);
    let diag = match names.is_empty() {
        true => diag.note(format!("there are no {what} here")),
        false => diag.note(format!("{what}: {}", names.join(", "))),
    };
    match close {
        Some(close) => diag.help(format!("did you mean `{close}`?")),
        None => diag,
    }
}

//! Parsing of schedules.

use super::super::ast::{
    ExprKind, Name, Schedule, ScheduleStmt, ScheduleStmtKind, Template, TemplateParam,
    TemplateParamKind,
};
use super::{Builder, Pair, Parts, Rule};
use crate::bug;
use crate::diag::{Diag, Result, Span};

impl Builder {
    /// `schedule = "schedule" name ("." name)? params? ("for" target)? schedule_block`
    pub(super) fn schedule(&self, pair: Pair) -> Result<Schedule> {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let kernel = self.name(parts.next());
        let name = parts.take(Rule::name).map(|name| self.name(name));
        let params = parts.take(Rule::params).map(|pair| self.params(pair, true)).transpose()?;
        let target = parts.take(Rule::target).map(|target| self.name(target));
        let body = self.schedule_block(parts.next())?;
        Ok(Schedule { kernel, name, params: params.unwrap_or_default(), target, body, span })
    }

    /// `template = "template" name params schedule_block`
    pub(super) fn template(&self, pair: Pair) -> Result<Template> {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let params = Parts::of(parts.next()).all(Rule::param);
        let params = params.map(|param| self.template_param(param)).collect::<Result<_>>()?;
        Ok(Template { name, params, body: self.schedule_block(parts.next())?, span })
    }

    /// `param = name (":" name)? ("=" expr)?`
    fn template_param(&self, pair: Pair) -> Result<TemplateParam> {
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let kind = match parts.take(Rule::name) {
            None => TemplateParamKind::Index,
            Some(kind) => match kind.as_str() {
                "tensor" => TemplateParamKind::Tensor,
                "axis" => TemplateParamKind::Axis,
                "bool" => TemplateParamKind::Bool,
                "dtype" => TemplateParamKind::DType,
                other => {
                    let text = format!("unknown kind `{other}` of a parameter of a template");
                    let diag = Diag::new("E0108", self.span(&kind), text);
                    return Err(Box::new(diag.help(format!(
                        "write `{0}: tensor`, `{0}: axis`, `{0}: bool`, `{0}: dtype`, or `{0}` \
                         for an integer",
                        name.text
                    ))));
                }
            },
        };
        let default = match parts.take(Rule::expr) {
            None => None,
            Some(value) => Some(self.expr(value, true)?),
        };
        Ok(TemplateParam { name, kind, default })
    }

    /// `schedule_block = "{" schedule_stmt* "}"`
    fn schedule_block(&self, pair: Pair) -> Result<Vec<ScheduleStmt>> {
        let stmts = Parts::of(pair).all(Rule::schedule_stmt);
        stmts.map(|stmt| self.schedule_stmt(stmt)).collect()
    }

    /// `schedule_stmt = let_stmt | schedule_if | for_stmt | use_stmt | knob | assert | auto_inline
    /// | directive`
    pub(super) fn schedule_stmt(&self, pair: Pair) -> Result<ScheduleStmt> {
        let mut parts = Parts::of(pair);
        let pair = parts.next();
        let span = self.span(&pair);
        let kind = match pair.as_rule() {
            Rule::let_stmt => self.schedule_let(pair)?,
            Rule::schedule_if => return self.schedule_if(pair),
            Rule::for_stmt => self.for_stmt(pair)?,
            Rule::use_stmt => self.use_stmt(pair)?,
            Rule::knob => self.knob(pair)?,
            Rule::assert => {
                let (cond, text) = self.assert(pair, true)?;
                ScheduleStmtKind::Assert(cond, text)
            }
            Rule::auto_inline => ScheduleStmtKind::AutoInlineInjective,
            Rule::directive => self.directive(pair)?,
            rule => bug!("{rule:?} as a statement of a schedule"),
        };
        Ok(ScheduleStmt { kind, span })
    }

    /// `use_stmt = "use" name ("." name)? args?`: a template if it has arguments or a dot.
    fn use_stmt(&self, pair: Pair) -> Result<ScheduleStmtKind> {
        let mut parts = Parts::of(pair);
        let mut path = vec![self.name(parts.next())];
        path.extend(parts.take(Rule::name).map(|name| self.name(name)));
        let args = parts.take(Rule::args).map(|args| self.args(args, true)).transpose()?;
        Ok(match (&mut path[..], args) {
            ([_], None) => ScheduleStmtKind::Use(path.remove(0)),
            (_, args) => ScheduleStmtKind::UseTemplate { path, args: args.unwrap_or_default() },
        })
    }

    /// `let_stmt`: a directive if its value calls a dotted name other than those of the target.
    fn schedule_let(&self, pair: Pair) -> Result<ScheduleStmtKind> {
        let (names, value) = self.let_stmt(pair, true)?;
        let is_directive = match &*value.kind {
            ExprKind::DottedCall(path, _) => path.len() != 2 || path[0].text != "target",
            _ => false,
        };
        if !is_directive {
            return Ok(ScheduleStmtKind::Let { names, value });
        }
        match *value.kind {
            ExprKind::DottedCall(path, args) => {
                let (stage, directive) = stage_and_directive(path);
                Ok(ScheduleStmtKind::Directive { results: names, stage, directive, args })
            }
            _ => bug!("a directive must be a call"),
        }
    }

    /// `schedule_if = "if" expr schedule_block ("else" "if" expr schedule_block)*
    /// ("else" schedule_block)?`
    fn schedule_if(&self, pair: Pair) -> Result<ScheduleStmt> {
        let (span, mut parts) = (self.span(&pair), Parts::of(pair));
        let mut branches = Vec::new();
        while let Some(cond) = parts.take(Rule::expr) {
            let start = cond.as_span().start() as u32;
            let cond = self.expr(cond, true)?;
            branches.push((start, cond, self.schedule_block(parts.next())?));
        }
        let mut otherwise = match parts.take(Rule::schedule_block) {
            None => Vec::new(),
            Some(block) => self.schedule_block(block)?,
        };
        for (i, (start, cond, then)) in branches.into_iter().enumerate().rev() {
            let span = Span { start: if i == 0 { span.start } else { start }, ..span };
            let kind = ScheduleStmtKind::If { cond, then, otherwise };
            otherwise = vec![ScheduleStmt { kind, span }];
        }
        otherwise.pop().map_or_else(|| bug!("an `if` without a condition"), Ok)
    }

    /// `for_stmt = "for" components "in" list schedule_block`
    fn for_stmt(&self, pair: Pair) -> Result<ScheduleStmtKind> {
        let mut parts = Parts::of(pair);
        let names = self.components(parts.next());
        let items = self.list(parts.next(), true)?;
        Ok(ScheduleStmtKind::For { names, items, body: self.schedule_block(parts.next())? })
    }

    /// `knob = "knob" name "=" expr "in" list`
    fn knob(&self, pair: Pair) -> Result<ScheduleStmtKind> {
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let default = self.expr(parts.next(), true)?;
        Ok(ScheduleStmtKind::Knob { name, default, choices: self.elements(parts.next(), true)? })
    }

    /// `directive = name ("." name)+ args`
    fn directive(&self, pair: Pair) -> Result<ScheduleStmtKind> {
        let mut parts = Parts::of(pair);
        let mut path = Vec::new();
        while let Some(name) = parts.take(Rule::name) {
            path.push(self.name(name));
        }
        let (stage, directive) = stage_and_directive(path);
        let args = self.args(parts.next(), true)?;
        Ok(ScheduleStmtKind::Directive { results: Vec::new(), stage, directive, args })
    }
}

fn stage_and_directive(mut path: Vec<Name>) -> (Vec<Name>, Name) {
    let directive = path.pop().unwrap_or_else(|| bug!("a directive without a name"));
    (path, directive)
}

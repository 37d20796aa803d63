//! The parser. pest generates it from `grammar/te.pest`; this module turns the parse tree into the
//! syntax tree of `ast`.
//!
//! Functions are named after the grammar's rules. Time is linear in the file: positions are byte
//! offsets, and lines and columns are counted when an error is shown.

mod depth;
mod error;
mod expr;
mod lines;
mod schedule;

use super::ast::{
    BinaryOp, Def, ExprKind, File, Import, InputKind, Item, Kernel, Name, Param, ParamKind,
    ReduceAxis, Reducer, Stage, Stmt, StmtKind, Strides,
};
use crate::bug;
use crate::diag::{Diag, Result, Span};
use pest::Parser;
use pest::pratt_parser::PrattParser;

pub use lines::ParsedLines;

/// The parser that pest generates from the grammar.
#[derive(pest_derive::Parser)]
#[grammar = "../grammar/te.pest"]
struct Grammar;

type Pair<'i> = pest::iterators::Pair<'i, Rule>;

/// Parses a file; `file` is its index in spans. Stops at the first syntax error.
pub fn parse_file(text: &str, file: u32) -> Result<File> {
    depth::check_nesting(text, file)?;
    let mut pairs = Grammar::parse(Rule::file, text)
        .map_err(|err| Box::new(error::syntax_error(text, file, &err)))?;
    let root = pairs.next().unwrap_or_else(|| bug!("the parse tree has no root"));
    let builder = Builder { file, operators: expr::operators() };
    let items = root.into_inner().filter(|pair| pair.as_rule() == Rule::item);
    Ok(File { items: items.map(|pair| builder.item(pair)).collect::<Result<_>>()? })
}

/// Builds the syntax tree from the pairs of the parse tree.
struct Builder {
    file: u32,
    operators: PrattParser<Rule>,
}

/// The children of a pair in order, without signs and reserved words.
struct Parts<'i> {
    pairs: std::iter::Peekable<std::vec::IntoIter<Pair<'i>>>,
}

impl<'i> Parts<'i> {
    fn of(pair: Pair<'i>) -> Parts<'i> {
        let pairs: Vec<_> = pair.into_inner().filter(|p| !is_sign(p.as_rule())).collect();
        Parts { pairs: pairs.into_iter().peekable() }
    }

    /// Takes the next child if it has this rule.
    fn take(&mut self, rule: Rule) -> Option<Pair<'i>> {
        self.pairs.next_if(|pair| pair.as_rule() == rule)
    }

    /// Takes the next child, which the grammar guarantees.
    fn next(&mut self) -> Pair<'i> {
        self.pairs.next().unwrap_or_else(|| bug!("the parse tree lacks a child"))
    }

    /// Whether all children were taken.
    fn is_done(&mut self) -> bool {
        self.pairs.peek().is_none()
    }

    /// Takes all next children that have this rule.
    fn all(mut self, rule: Rule) -> impl Iterator<Item = Pair<'i>> {
        std::iter::from_fn(move || self.take(rule))
    }
}

/// Whether a rule is a sign or reserved word that is implied by the rule around it.
fn is_sign(rule: Rule) -> bool {
    use Rule::*;
    matches!(
        rule,
        lparen
            | rparen
            | lbracket
            | rbracket
            | lbrace
            | rbrace
            | comma
            | colon
            | assign
            | dot
            | import_kw
            | def_kw
            | reducer_kw
            | kernel_kw
            | schedule_kw
            | input_kw
            | reduce_kw
            | compute_kw
            | let_kw
            | if_kw
            | then_kw
            | else_kw
            | assume_kw
            | assert_kw
            | for_kw
            | in_kw
            | use_kw
            | knob_kw
            | as_kw
            | identity_kw
            | auto_inline_kw
            | scan_word
            | template_word
            | update_word
            | estimate_word
            | strided_word
            | strides_word
    )
}

/// Returns the end of a pair's text, without the trailing white space that pest includes if an
/// optional part is missing.
fn end_of(pair: &Pair) -> usize {
    match pair.clone().into_inner().next_back() {
        Some(last) => end_of(&last),
        None => pair.as_span().end(),
    }
}

impl Builder {
    fn span(&self, pair: &Pair) -> Span {
        let start = pair.as_span().start();
        Span { file: self.file, start: start as u32, end: end_of(pair) as u32 }
    }

    /// `item = import | def | reducer | kernel | schedule | template`
    fn item(&self, pair: Pair) -> Result<Item> {
        let pair = Parts::of(pair).next();
        Ok(match pair.as_rule() {
            Rule::import => Item::Import(self.import(pair)),
            Rule::def => Item::Def(self.def(pair)?),
            Rule::reducer => Item::Reducer(self.reducer(pair)?),
            Rule::kernel => Item::Kernel(self.kernel(pair)?),
            Rule::schedule => Item::Schedule(self.schedule(pair)?),
            Rule::template => Item::Template(self.template(pair)?),
            rule => bug!("{rule:?} as an item"),
        })
    }

    /// `import = "import" string ("as" name)?`
    fn import(&self, pair: Pair) -> Import {
        let mut parts = Parts::of(pair);
        let path = parts.next();
        let alias = parts.take(Rule::name).map(|name| self.name(name));
        Import { span: self.span(&path), path: string(&path), alias }
    }

    /// `def = "def" name "(" names? ")" "=" expr`
    fn def(&self, pair: Pair) -> Result<Def> {
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let mut params = Vec::new();
        while let Some(param) = parts.take(Rule::name) {
            params.push(self.name(param));
        }
        Ok(Def { name, params, body: self.expr(parts.next(), false)? })
    }

    /// `reducer = "reducer" name "(" components "," components ")" "=" expr "identity" expr
    /// ("where" expr)?`
    fn reducer(&self, pair: Pair) -> Result<Reducer> {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let lhs = self.components(parts.next());
        let rhs = self.components(parts.next());
        let count = lhs.len();
        let result = self.tuple(parts.next(), count, &name)?;
        let identity = self.tuple(parts.next(), count, &name)?;
        let domain = match parts.take(Rule::where_word) {
            None => None,
            Some(_) => Some(self.expr(parts.next(), false)?),
        };
        if rhs.len() != count {
            let message = format!(
                "the two operands of reducer `{}` have {count} and {} components",
                name.text,
                rhs.len()
            );
            return Err(Box::new(Diag::new("E0111", name.span, message)));
        }
        Ok(Reducer { name, lhs, rhs, result, identity, domain, span })
    }

    /// `components = name | "(" names ")"`
    fn components(&self, pair: Pair) -> Vec<Name> {
        Parts::of(pair).all(Rule::name).map(|name| self.name(name)).collect()
    }

    /// `kernel = ("kernel" | "network") name params "reassociate"? block`
    fn kernel(&self, pair: Pair) -> Result<Kernel> {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let network = parts.take(Rule::network_word).is_some();
        let name = self.name(parts.next());
        let params = self.params(parts.next(), false)?;
        let reassociate = parts.take(Rule::reassociate).is_some();
        Ok(Kernel { network, name, params, reassociate, body: self.block(parts.next())?, span })
    }

    /// `params = "(" (param ("," param)* ","?)? ")"`
    fn params(&self, pair: Pair, in_schedule: bool) -> Result<Vec<Param>> {
        Parts::of(pair).all(Rule::param).map(|param| self.param(param, in_schedule)).collect()
    }

    /// `param = name (":" name)? ("=" expr)?`
    fn param(&self, pair: Pair, in_schedule: bool) -> Result<Param> {
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let kind = match parts.take(Rule::name) {
            None => ParamKind::Index,
            Some(kind) => self.param_kind(&name, kind)?,
        };
        let default = match parts.take(Rule::expr) {
            None => None,
            Some(value) => Some(self.expr(value, in_schedule)?),
        };
        Ok(Param { name, kind, default })
    }

    fn param_kind(&self, param: &Name, pair: Pair) -> Result<ParamKind> {
        Ok(match pair.as_str() {
            "var" => ParamKind::Var,
            "dtype" => ParamKind::DType,
            "real" => ParamKind::Real,
            "bool" => ParamKind::Bool,
            "shape" => ParamKind::Shape,
            "list" => ParamKind::List,
            other => {
                let param = &param.text;
                let message = format!("unknown parameter kind `{other}`");
                return Err(Box::new(Diag::new("E0108", self.span(&pair), message).help(format!(
                    "write `{param} = 1` for a compile-time integer, `{param}: var` for a \
                     run-time integer, or `dtype`, `real`, `bool`, `shape` or `list` in place of \
                     `{other}`"
                ))));
            }
        })
    }

    /// `block = "{" stmt* "}"`
    fn block(&self, pair: Pair) -> Result<Vec<Stmt>> {
        Parts::of(pair).all(Rule::stmt).map(|stmt| self.stmt(stmt)).collect()
    }

    /// `stmt = input | reduce | stage | update | recurrence | output_call | let_stmt | if_stmt |
    /// assume | assert | estimate`
    fn stmt(&self, pair: Pair) -> Result<Stmt> {
        let pair = Parts::of(pair).next();
        let span = self.span(&pair);
        let kind = match pair.as_rule() {
            Rule::input => self.input(pair)?,
            Rule::reduce => self.reduce(pair)?,
            Rule::stage => StmtKind::Stage(self.stage(pair)?),
            Rule::recurrence => self.recurrence(pair)?,
            Rule::output_call => self.output_call(pair)?,
            Rule::let_stmt => {
                let (names, value) = self.let_stmt(pair, false)?;
                StmtKind::Let { names, value }
            }
            Rule::if_stmt => return self.if_stmt(pair),
            Rule::update => self.update(pair)?,
            Rule::assume => StmtKind::Assume(self.expr(Parts::of(pair).next(), false)?),
            Rule::assert => {
                let (cond, text) = self.assert(pair, false)?;
                StmtKind::Assert(cond, text)
            }
            Rule::estimate => self.estimate(pair)?,
            rule => bug!("{rule:?} as a statement"),
        };
        Ok(Stmt { kind, span })
    }

    /// `estimate = "estimate" known ("," known)*`, `known = name "=" expr`
    fn estimate(&self, pair: Pair) -> Result<StmtKind> {
        let known = |pair| {
            let mut parts = Parts::of(pair);
            Ok((self.name(parts.next()), self.expr(parts.next(), false)?))
        };
        Ok(StmtKind::Estimate(Parts::of(pair).all(Rule::known).map(known).collect::<Result<_>>()?))
    }

    /// `input = ("input" | "param" | "inout") name ":" name shape? strides? "layout_free"?`
    fn input(&self, pair: Pair) -> Result<StmtKind> {
        let mut parts = Parts::of(pair);
        let kind = if parts.take(Rule::param_word).is_some() {
            InputKind::Param
        } else if parts.take(Rule::inout_word).is_some() {
            InputKind::Inout
        } else {
            InputKind::Input
        };
        let name = self.name(parts.next());
        let dtype = self.name(parts.next());
        let shape = match parts.take(Rule::shape) {
            None => None,
            Some(shape) => Some(self.spreads(shape)?),
        };
        let strides = self.strides(&mut parts)?;
        let layout_free = parts.take(Rule::layout_free).is_some();
        Ok(StmtKind::Input { kind, name, dtype, shape, strides, layout_free })
    }

    /// `strides = "strided" | "strides" "=" shape`
    fn strides(&self, parts: &mut Parts) -> Result<Option<Strides>> {
        let Some(pair) = parts.take(Rule::strides) else { return Ok(None) };
        let span = self.span(&pair);
        let given = match Parts::of(pair).take(Rule::shape) {
            None => None,
            Some(list) => Some(self.spreads(list)?),
        };
        Ok(Some(Strides { given, span }))
    }

    /// `reduce = "reduce" reduce_axis ("," reduce_axis)*`,
    /// `reduce_axis = name "..."? ":" expr ".." expr "..."?`
    fn reduce(&self, pair: Pair) -> Result<StmtKind> {
        let axes = Parts::of(pair).all(Rule::reduce_axis).map(|axis| {
            let mut parts = Parts::of(axis);
            let name = self.name(parts.next());
            let is_pack = parts.take(Rule::ellipsis).is_some();
            let min = self.expr(parts.next(), false)?;
            parts.take(Rule::dots);
            let end = self.expr(parts.next(), false)?;
            check_both(&name, is_pack, parts.take(Rule::ellipsis).is_some())?;
            Ok(ReduceAxis { name, is_pack, min, end })
        });
        Ok(StmtKind::Reduce(axes.collect::<Result<_>>()?))
    }

    /// `stage = ("compute" | "output") results axes (":" name)? strides? "=" expr`
    fn stage(&self, pair: Pair) -> Result<Stage> {
        let mut parts = Parts::of(pair);
        let output = parts.take(Rule::output_kw).is_some();
        let names = self.results(parts.next());
        let axes = Parts::of(parts.next()).all(Rule::axis).map(|axis| self.axis(axis));
        let axes = axes.collect::<Result<_>>()?;
        let dtype = parts.take(Rule::name).map(|name| self.name(name));
        let strides = self.strides(&mut parts)?;
        Ok(Stage { output, names, axes, dtype, strides, body: self.expr(parts.next(), false)? })
    }

    /// `axis = name "..."? ":" spread`
    fn axis(&self, pair: Pair) -> Result<(Name, super::ast::Expr)> {
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let is_pack = parts.take(Rule::ellipsis).is_some();
        let extent = self.spread(parts.next(), false)?;
        check_both(&name, is_pack, is_expand(&extent))?;
        Ok((name, extent))
    }

    /// `step = name ":" expr`
    fn step(&self, pair: Pair) -> Result<(Name, super::ast::Expr)> {
        let mut parts = Parts::of(pair);
        Ok((self.name(parts.next()), self.expr(parts.next(), false)?))
    }

    /// `update = "update" result_name places "=" expr`, `place = spread ":" spread`
    fn update(&self, pair: Pair) -> Result<StmtKind> {
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let (mut axes, mut offsets) = (Vec::new(), Vec::new());
        for place in Parts::of(parts.next()).all(Rule::place) {
            let mut parts = Parts::of(place);
            let index = self.spread(parts.next(), false)?;
            let extent = self.spread(parts.next(), false)?;
            let (is_pack, index) = match *index.kind {
                ExprKind::Expand(pattern) => (true, pattern),
                _ => (false, index),
            };
            let (axis, offset) = split_place(index)?;
            check_both(&axis, is_pack, is_expand(&extent))?;
            axes.push((axis, extent));
            offsets.push(offset);
        }
        let (names, body) = (vec![(name, None)], self.expr(parts.next(), false)?);
        let stage = Stage { output: true, names, axes, dtype: None, strides: None, body };
        Ok(StmtKind::Update { stage, offsets })
    }

    /// `recurrence = "scan" step ("," step)* "{" member* "}"`
    fn recurrence(&self, pair: Pair) -> Result<StmtKind> {
        let mut parts = Parts::of(pair);
        let mut axes = Vec::new();
        while let Some(step) = parts.take(Rule::step) {
            axes.push(self.step(step)?);
        }
        let stages = parts.all(Rule::member).map(|member| self.member(member, &axes));
        let stages = stages.collect::<Result<_>>()?;
        Ok(StmtKind::Scan { axes, stages })
    }

    /// `member = ("compute" | "output") results member_axes (":" name)? "=" expr`,
    /// `member_axis = name "..."? (":" spread)?`
    fn member(&self, pair: Pair, steps: &[(Name, super::ast::Expr)]) -> Result<Stage> {
        let mut parts = Parts::of(pair);
        let output = parts.take(Rule::output_kw).is_some();
        let names = self.results(parts.next());
        let mut axes = Vec::new();
        for axis in Parts::of(parts.next()).all(Rule::member_axis) {
            let mut parts = Parts::of(axis);
            let name = self.name(parts.next());
            let is_pack = parts.take(Rule::ellipsis).is_some();
            let step = steps.iter().find(|(step, _)| step.text == name.text);
            let extent = match (parts.take(Rule::spread), step) {
                (Some(extent), _) => self.spread(extent, false)?,
                (None, Some((_, extent))) => extent.clone(),
                (None, None) => return Err(no_extent(&name, steps)),
            };
            check_both(&name, is_pack, is_expand(&extent))?;
            axes.push((name, extent));
        }
        let dtype = parts.take(Rule::name).map(|name| self.name(name));
        Ok(Stage {
            output,
            names,
            axes,
            dtype,
            strides: None,
            body: self.expr(parts.next(), false)?,
        })
    }

    /// `output_call = "output" name "=" expr`
    fn output_call(&self, pair: Pair) -> Result<StmtKind> {
        let mut parts = Parts::of(pair);
        parts.take(Rule::output_kw);
        Ok(StmtKind::OutputCall {
            name: self.name(parts.next()),
            value: self.expr(parts.next(), false)?,
        })
    }

    /// `results = name | "(" result ("," result)* ","? ")"`, `result = name (":" name)?`
    fn results(&self, pair: Pair) -> Vec<(Name, Option<Name>)> {
        let mut names = Vec::new();
        let mut parts = Parts::of(pair);
        while !parts.is_done() {
            let mut result = Parts::of(parts.next());
            let name = self.name(result.next());
            names.push((name, result.take(Rule::name).map(|dtype| self.name(dtype))));
        }
        names
    }

    /// `let_stmt = "let" name ("," name)* "=" expr`
    fn let_stmt(
        &self,
        pair: Pair,
        in_schedule: bool,
    ) -> Result<(Vec<Option<Name>>, super::ast::Expr)> {
        let mut parts = Parts::of(pair);
        let mut names = Vec::new();
        while let Some(name) = parts.take(Rule::name) {
            names.push(Some(self.name(name)).filter(|name| name.text != "_"));
        }
        Ok((names, self.expr(parts.next(), in_schedule)?))
    }

    /// `if_stmt = "if" expr block ("else" "if" expr block)* ("else" block)?`
    fn if_stmt(&self, pair: Pair) -> Result<Stmt> {
        let (span, mut parts) = (self.span(&pair), Parts::of(pair));
        let mut branches = Vec::new();
        while let Some(cond) = parts.take(Rule::expr) {
            let start = cond.as_span().start() as u32;
            let cond = self.expr(cond, false)?;
            branches.push((start, cond, self.block(parts.next())?));
        }
        let mut otherwise = match parts.take(Rule::block) {
            None => Vec::new(),
            Some(block) => self.block(block)?,
        };
        // The last branch is the innermost; the span of the first one begins at its `if`.
        for (i, (start, cond, then)) in branches.into_iter().enumerate().rev() {
            let span = Span { start: if i == 0 { span.start } else { start }, ..span };
            otherwise = vec![Stmt { kind: StmtKind::If { cond, then, otherwise }, span }];
        }
        otherwise.pop().map_or_else(|| bug!("an `if` without a condition"), Ok)
    }

    /// `assert = "assert" expr "," string`
    fn assert(&self, pair: Pair, in_schedule: bool) -> Result<(super::ast::Expr, String)> {
        let mut parts = Parts::of(pair);
        Ok((self.expr(parts.next(), in_schedule)?, string(&parts.next())))
    }

    /// `name`
    fn name(&self, pair: Pair) -> Name {
        Name { span: self.span(&pair), text: pair.as_str().to_string() }
    }
}

/// Whether an expression is `x...`.
fn is_expand(expr: &super::ast::Expr) -> bool {
    matches!(*expr.kind, ExprKind::Expand(_))
}

/// Checks that `...` follows both the name and the extents of a pack of axes, or neither.
fn check_both(name: &Name, after_name: bool, after_extents: bool) -> Result<()> {
    if after_name == after_extents {
        return Ok(());
    }
    let text = &name.text;
    let (has, lacks) = match after_name {
        true => ("name", "extents"),
        false => ("extents", "name"),
    };
    let message = format!("`...` follows the {has} of the axis `{text}`, but not its {lacks}");
    let help = format!("write `{text}...: S...` for a pack of axes, `{text}: n` for one axis");
    Err(Box::new(Diag::new("E0101", name.span, message).help(help)))
}

/// Returns the error for an axis of a stage in a `scan` that has no extent and is no axis of it.
fn no_extent(name: &Name, steps: &[(Name, super::ast::Expr)]) -> Box<Diag> {
    let steps: Vec<String> = steps.iter().map(|(step, _)| format!("`{}`", step.text)).collect();
    let text = &name.text;
    let message = format!("the axis `{text}` has no extent");
    let help = format!("write `{text}: n`; only the axes of the scan have none here");
    let note = format!("axes of the scan: {}", steps.join(", "));
    Box::new(Diag::new("E0101", name.span, message).help(help).note(note))
}

/// Returns the axis of a place of an `update`, and what is added to it.
fn split_place(index: super::ast::Expr) -> Result<(Name, Option<super::ast::Expr>)> {
    let is_name = |expr: &super::ast::Expr| matches!(*expr.kind, ExprKind::Name(_));
    match *index.kind {
        ExprKind::Name(axis) => return Ok((axis, None)),
        ExprKind::Binary(BinaryOp::Add, offset, last, _) if is_name(&last) => {
            if let ExprKind::Name(axis) = *last.kind {
                return Ok((axis, Some(offset)));
            }
        }
        _ => {}
    }
    let message = "an index of `update` names no axis";
    let help = "write `AXIS: EXTENT`, or `OFFSET + AXIS: EXTENT` with a new axis at the end";
    Err(Box::new(Diag::new("E0101", index.span, message).help(help)))
}

/// `string`: the text between the quotes.
fn string(pair: &Pair) -> String {
    pair.as_str().trim_matches('"').to_string()
}

#[cfg(test)]
mod tests;

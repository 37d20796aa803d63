//! Expressions: builds a tree from the operands and operators of an `expr`.

use super::super::ast::{Arg, BinaryOp, Expr, ExprKind, Name, UnaryOp};
use super::{Builder, Pair, Parts, Rule, end_of};
use crate::bug;
use crate::diag::{Diag, Result, Span};
use pest::pratt_parser::{Assoc, Op, PrattParser};

/// Returns the operators by precedence, lowest first.
pub(super) fn operators() -> PrattParser<Rule> {
    let left = |rule| Op::infix(rule, Assoc::Left);
    PrattParser::new()
        .op(left(Rule::or))
        .op(left(Rule::and))
        .op(Op::prefix(Rule::not))
        .op(left(Rule::eq)
            | left(Rule::ne)
            | left(Rule::lt)
            | left(Rule::le)
            | left(Rule::gt)
            | left(Rule::ge))
        .op(left(Rule::bit_or))
        .op(left(Rule::bit_xor))
        .op(left(Rule::bit_and))
        .op(left(Rule::shl) | left(Rule::shr))
        .op(left(Rule::add) | left(Rule::sub))
        .op(left(Rule::mul) | left(Rule::div) | left(Rule::floor_div) | left(Rule::rem))
        .op(Op::prefix(Rule::neg) | Op::prefix(Rule::bit_not))
        .op(Op::postfix(Rule::cast))
}

/// An expression and its span including parentheses, which the spans of larger expressions contain.
struct Operand {
    expr: Expr,
    outer: Span,
}

impl Operand {
    fn new(kind: ExprKind, span: Span) -> Operand {
        Operand { expr: Expr { kind: Box::new(kind), span }, outer: span }
    }

    /// Refuses a tuple.
    fn scalar(self) -> Result<Operand> {
        match *self.expr.kind {
            ExprKind::Tuple(_) => Err(Box::new(
                Diag::new("E0109", self.outer, "a tuple is allowed only as an argument").help(
                    "write it as the argument of a reduction: `argmax((k, A[i, k]), axis=k)`",
                ),
            )),
            _ => Ok(self),
        }
    }
}

impl Builder {
    /// `expr` that is not a tuple
    pub(super) fn expr(&self, pair: Pair, in_schedule: bool) -> Result<Expr> {
        Ok(self.operand(pair, in_schedule)?.scalar()?.expr)
    }

    /// Returns an `expr` of a reducer with `count` components: a tuple if there are several.
    pub(super) fn tuple(&self, pair: Pair, count: usize, reducer: &Name) -> Result<Vec<Expr>> {
        let operand = self.operand(pair, false)?;
        let values = match *operand.expr.kind {
            ExprKind::Tuple(values) => values,
            _ => vec![operand.expr],
        };
        if values.len() == count {
            return Ok(values);
        }
        let message = format!(
            "reducer `{}` combines {count} components, but {} are given",
            reducer.text,
            values.len()
        );
        Err(Box::new(Diag::new("E0111", operand.outer, message)))
    }

    /// `exprs` in parentheses.
    pub(super) fn exprs(&self, pair: Pair, in_schedule: bool) -> Result<Vec<Expr>> {
        Parts::of(pair).all(Rule::expr).map(|expr| self.expr(expr, in_schedule)).collect()
    }

    /// `shape = "[" (spread ("," spread)* ","?)? "]"`
    pub(super) fn spreads(&self, pair: Pair) -> Result<Vec<Expr>> {
        Parts::of(pair).all(Rule::spread).map(|pair| self.spread(pair, false)).collect()
    }

    /// `spread = expr "..."?` that is not a tuple
    pub(super) fn spread(&self, pair: Pair, in_schedule: bool) -> Result<Expr> {
        Ok(self.spread_operand(pair, in_schedule)?.scalar()?.expr)
    }

    fn spread_operand(&self, pair: Pair, in_schedule: bool) -> Result<Operand> {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let operand = self.operand(parts.next(), in_schedule)?;
        match parts.take(Rule::ellipsis) {
            None => Ok(operand),
            Some(_) => self.expand(operand, span, in_schedule),
        }
    }

    /// `expr "..."`
    fn expand(&self, operand: Operand, span: Span, in_schedule: bool) -> Result<Operand> {
        refuse_in_schedule(in_schedule, span, "`...`")?;
        Ok(Operand::new(ExprKind::Expand(operand.scalar()?.expr), span))
    }

    /// `element = ".." expr? | expr ("..." | ".." expr?)?`
    fn element(&self, pair: Pair, in_schedule: bool) -> Result<Operand> {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let start = match parts.take(Rule::expr) {
            None => None,
            Some(start) => Some(self.operand(start, in_schedule)?),
        };
        match (start, parts.take(Rule::ellipsis), parts.take(Rule::dots)) {
            (Some(operand), None, None) => Ok(operand),
            (Some(operand), Some(_), _) => self.expand(operand, span, in_schedule),
            (start, ..) => {
                refuse_in_schedule(in_schedule, span, "`..`")?;
                let start = start.map(Operand::scalar).transpose()?.map(|start| start.expr);
                let end = parts.take(Rule::expr).map(|end| self.expr(end, in_schedule));
                Ok(Operand::new(ExprKind::Range(start, end.transpose()?), span))
            }
        }
    }

    /// `expr = if_expr | or_expr`
    fn operand(&self, pair: Pair, in_schedule: bool) -> Result<Operand> {
        self.operators
            .map_primary(|pair| self.primary(pair, in_schedule))
            .map_prefix(|op, operand| self.prefix(op, operand?.scalar()?))
            .map_postfix(|operand, cast| self.cast(operand?.scalar()?, cast))
            .map_infix(|a, op, b| self.infix(a?.scalar()?, op, b?.scalar()?))
            .parse(pair.into_inner())
    }

    /// `prefix = neg | bit_not`, and `not`
    fn prefix(&self, op: Pair, operand: Operand) -> Result<Operand> {
        let span = self.span(&op).to(operand.outer);
        let op = match op.as_rule() {
            Rule::neg => UnaryOp::Neg,
            Rule::bit_not => UnaryOp::BitNot,
            Rule::not => UnaryOp::Not,
            rule => bug!("{rule:?} as a prefix operator"),
        };
        Ok(Operand::new(ExprKind::Unary(op, operand.expr), span))
    }

    /// `cast = "as" name`
    fn cast(&self, operand: Operand, pair: Pair) -> Result<Operand> {
        let span = operand.outer.to(self.span(&pair));
        let dtype = self.name(Parts::of(pair).next());
        Ok(Operand::new(ExprKind::Cast(operand.expr, dtype), span))
    }

    /// `infix`, `compare`, `and`, `or`
    fn infix(&self, a: Operand, op: Pair, b: Operand) -> Result<Operand> {
        let span = a.outer.to(b.outer);
        let kind = ExprKind::Binary(binary_op(op.as_rule()), a.expr, b.expr, self.span(&op));
        Ok(Operand::new(kind, span))
    }

    /// `primary = number | boolean | paren | list | reference`
    fn primary(&self, pair: Pair, in_schedule: bool) -> Result<Operand> {
        let span = self.span(&pair);
        let kind = match pair.as_rule() {
            Rule::if_expr => self.if_expr(pair, in_schedule)?,
            Rule::paren => return self.paren(pair, in_schedule),
            Rule::list => ExprKind::List(self.list(pair, in_schedule)?),
            Rule::reference => self.reference(pair, in_schedule)?,
            Rule::boolean => ExprKind::Bool(pair.as_str() == "true"),
            Rule::number => {
                let text = pair.as_str().to_string();
                let is_real = !text.starts_with("0x") && text.contains(['.', 'e', 'E']);
                if is_real { ExprKind::Real(text) } else { ExprKind::Int(text) }
            }
            rule => bug!("{rule:?} as an operand"),
        };
        Ok(Operand::new(kind, span))
    }

    /// `if_expr = "if" expr "then" expr ("else" "if" expr "then" expr)* "else" expr`
    fn if_expr(&self, pair: Pair, in_schedule: bool) -> Result<ExprKind> {
        let end = end_of(&pair) as u32;
        let ifs = pair.clone().into_inner().filter(|part| part.as_rule() == Rule::if_kw);
        let mut starts = ifs.map(|part| part.as_span().start() as u32);
        let mut branches = Vec::new();
        let mut parts = Parts::of(pair);
        let otherwise = loop {
            let expr = self.expr(parts.next(), in_schedule)?;
            if parts.is_done() {
                break expr;
            }
            let start = starts.next().unwrap_or_else(|| bug!("a condition without an `if`"));
            branches.push((start, expr, self.expr(parts.next(), in_schedule)?));
        };
        let mut kind = None;
        let mut otherwise = Some(otherwise);
        for (start, cond, then) in branches.into_iter().rev() {
            if let Some(inner) = kind.take() {
                otherwise = Some(inner);
            }
            let value = otherwise.take().unwrap_or_else(|| bug!("an `if` without an `else`"));
            let span = Span { file: self.file, start, end };
            kind = Some(Expr { kind: Box::new(ExprKind::If(cond, then, value)), span });
        }
        kind.map_or_else(|| bug!("an `if` without a condition"), |expr| Ok(*expr.kind))
    }

    /// `paren = "(" exprs ")"`: one in parentheses, or a tuple
    fn paren(&self, pair: Pair, in_schedule: bool) -> Result<Operand> {
        let outer = self.span(&pair);
        let is_tuple = pair.clone().into_inner().any(|p| p.as_rule() == Rule::comma);
        let mut values = self.exprs(pair, in_schedule)?;
        match values.pop() {
            Some(expr) if !is_tuple => Ok(Operand { expr, outer }),
            last => {
                values.extend(last);
                Ok(Operand::new(ExprKind::Tuple(values), outer))
            }
        }
    }

    /// `reference = name ("." name)* (args | index)?`
    fn reference(&self, pair: Pair, in_schedule: bool) -> Result<ExprKind> {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let name = self.name(parts.next());
        let mut path = vec![name];
        while let Some(name) = parts.take(Rule::name) {
            path.push(self.name(name));
        }
        let (index, args) = (parts.take(Rule::index), parts.take(Rule::args));
        let index = index.map(|pair| self.elements(pair, in_schedule)).transpose()?;
        let args = args.map(|pair| self.args(pair, in_schedule)).transpose()?;
        if let ([module, item], Some(_), false) = (&path[..], &args, in_schedule) {
            // An item of a file that was imported with `as`.
            let text = format!("{}.{}", module.text, item.text);
            path = vec![Name { text, span: module.span.to(item.span) }];
        }
        let is_dotted = path.len() > 1;
        if is_dotted && (!in_schedule || index.is_some()) {
            let text: Vec<&str> = path.iter().map(|name| name.text.as_str()).collect();
            let text = text.join(".");
            let message = match index {
                Some(_) => format!("`{text}` cannot be indexed"),
                None => format!("the dotted name `{text}` is allowed only in a schedule"),
            };
            return Err(Box::new(Diag::new("E0109", span, message)));
        }
        Ok(match (index, args) {
            (None, Some(args)) if is_dotted => ExprKind::DottedCall(path, args),
            (None, None) if is_dotted => ExprKind::Dotted(path),
            (Some(index), _) => ExprKind::Index(path.remove(0), index),
            (None, Some(args)) => ExprKind::Call(path.remove(0), args),
            (None, None) => ExprKind::Name(path.remove(0)),
        })
    }

    /// `args = "(" (arg ("," arg)* ","?)? ")"`
    pub(super) fn args(&self, pair: Pair, in_schedule: bool) -> Result<Vec<Arg>> {
        let mut args: Vec<Arg> = Vec::new();
        let mut named: Option<Name> = None;
        for pair in Parts::of(pair).all(Rule::arg) {
            let span = self.span(&pair);
            let arg = self.arg(pair, in_schedule)?;
            if let (None, Some(before), false) = (&arg.name, &named, is_flag(&arg)) {
                let message =
                    format!("a positional argument after the named argument `{}`", before.text);
                return Err(Box::new(
                    Diag::new("E0110", span, message)
                        .help("positional arguments come before named ones"),
                ));
            }
            if arg.name.is_some() {
                named.clone_from(&arg.name);
            }
            args.push(arg);
        }
        Ok(args)
    }

    /// `arg = (name "=")? ("*" | spread)`
    fn arg(&self, pair: Pair, in_schedule: bool) -> Result<Arg> {
        let mut parts = Parts::of(pair);
        let name = parts.take(Rule::arg_name).map(|pair| self.name(Parts::of(pair).next()));
        let value = parts.next();
        let span = self.span(&value);
        let value = match value.as_rule() {
            Rule::star if in_schedule => Expr { kind: Box::new(ExprKind::Star), span },
            Rule::star => {
                let message = "`*` is an argument of schedule directives only";
                return Err(Box::new(Diag::new("E0109", span, message)));
            }
            _ => self.spread_operand(value, in_schedule)?.expr,
        };
        Ok(Arg { name, value })
    }

    /// `"[" elements? "]"` without tuples
    pub(super) fn elements(&self, pair: Pair, in_schedule: bool) -> Result<Vec<Expr>> {
        let elements = Parts::of(pair).all(Rule::element);
        elements.map(|pair| Ok(self.element(pair, in_schedule)?.scalar()?.expr)).collect()
    }

    /// `list = "[" elements? "]"`; its elements may be tuples
    pub(super) fn list(&self, pair: Pair, in_schedule: bool) -> Result<Vec<Expr>> {
        let elements = Parts::of(pair).all(Rule::element);
        elements.map(|pair| Ok(self.element(pair, in_schedule)?.expr)).collect()
    }
}

/// Refuses a sign of packs in a schedule.
fn refuse_in_schedule(in_schedule: bool, span: Span, sign: &str) -> Result<()> {
    if !in_schedule {
        return Ok(());
    }
    let message = format!("{sign} is not part of a schedule");
    let help = "a schedule names the axes of a pack one by one: `i0`, `i1`";
    Err(Box::new(Diag::new("E0109", span, message).help(help)))
}

/// Whether an argument is `reassociate`, which may follow named arguments of a reduction.
fn is_flag(arg: &Arg) -> bool {
    matches!(&*arg.value.kind, ExprKind::Name(name) if name.text == "reassociate")
}

fn binary_op(rule: Rule) -> BinaryOp {
    match rule {
        Rule::or => BinaryOp::Or,
        Rule::and => BinaryOp::And,
        Rule::eq => BinaryOp::Eq,
        Rule::ne => BinaryOp::Ne,
        Rule::lt => BinaryOp::Lt,
        Rule::le => BinaryOp::Le,
        Rule::gt => BinaryOp::Gt,
        Rule::ge => BinaryOp::Ge,
        Rule::bit_or => BinaryOp::BitOr,
        Rule::bit_xor => BinaryOp::BitXor,
        Rule::bit_and => BinaryOp::BitAnd,
        Rule::shl => BinaryOp::Shl,
        Rule::shr => BinaryOp::Shr,
        Rule::add => BinaryOp::Add,
        Rule::sub => BinaryOp::Sub,
        Rule::mul => BinaryOp::Mul,
        Rule::div => BinaryOp::Div,
        Rule::floor_div => BinaryOp::FloorDiv,
        Rule::rem => BinaryOp::Mod,
        rule => bug!("{rule:?} as an infix operator"),
    }
}

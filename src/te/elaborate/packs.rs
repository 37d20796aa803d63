//! Packs: lists of extents, of axes or of constants that a kernel of any rank expands.
//!
//! Before: `X[(if A == 1 then 0 else i)...]`, where `A` and `i` are packs of the same rank.
//! After: one index for each dimension; the pattern in front of `...` is evaluated once for each
//! element, and every pack in it means its element. Everything behind elaboration sees single axes
//! and extents.
//!
//! Some places take a whole pack: the name in front of brackets (`S[0]`, `S[1..]`) and the
//! arguments of the functions of packs. The bounds of a slice belong to the expansion around the
//! slice, so that `[prod(S[d + 1..]...)...]` gives the strides of a row-major tensor if `d` is
//! `[0..rank(S)]`.

use super::arithmetic::too_large;
use super::casts::Operand;
use super::expressions::{Env, count};
use super::items::Function;
use super::values::{Pack, SourceType, Value};
use super::{Elaborator, MAX_NODES};
use crate::diag::{Diag, Span};
use crate::lang::ast::{self, ExprKind};
use num_traits::ToPrimitive;
use std::rc::Rc;

/// The largest number of elements of a pack.
const MAX_ELEMENTS: usize = 256;

/// The element of each pack that an expression in front of `...` means.
#[derive(Clone, Copy, Debug)]
pub struct At<'e> {
    /// Its place in the packs.
    pub index: usize,
    /// The element of the expansion around this one.
    pub outer: Option<&'e At<'e>>,
}

/// A pack that an expansion goes through: its number of elements, for messages its text and place.
struct Source {
    text: String,
    length: usize,
    span: Span,
}

impl<'a> Elaborator<'a> {
    /// Evaluates elements of a list: one value for each, several for `x...`. Returns `None` if the
    /// number of values is unknown, because a pack is wrong.
    pub fn expanded(
        &mut self,
        elements: impl IntoIterator<Item = &'a ast::Expr>,
        env: Env<'_, 'a>,
    ) -> Option<Vec<(Value, &'a ast::Expr)>> {
        let mut all = Vec::new();
        let mut known = Some(());
        for element in elements {
            let ExprKind::Expand(pattern) = &*element.kind else {
                all.push((self.eval(element, env), element));
                continue;
            };
            match self.expand([pattern], env) {
                Some(values) => all.extend(values.into_iter().map(|[value]| (value, pattern))),
                None => known = None,
            }
        }
        known.map(|()| all)
    }

    /// Evaluates patterns once for each element of the packs in them.
    pub fn expand<const N: usize>(
        &mut self,
        patterns: [&'a ast::Expr; N],
        env: Env<'_, 'a>,
    ) -> Option<Vec<[Value; N]>> {
        let length = self.common_length(&patterns, env)?;
        // Nested expansions multiply.
        let before = self.expanded_values;
        self.expanded_values += length as u64;
        if self.expanded_values > MAX_NODES {
            if before <= MAX_NODES {
                self.error(too_large(patterns[0].span));
            }
            return None;
        }
        let mut values = Vec::with_capacity(length);
        for index in 0..length {
            let at = At { index, outer: env.at };
            values.push(patterns.map(|pattern| self.eval(pattern, Env { at: Some(&at), ..env })));
        }
        Some(values)
    }

    /// Returns the number of elements of all packs in patterns that are expanded together.
    fn common_length(&mut self, patterns: &[&'a ast::Expr], env: Env<'_, 'a>) -> Option<usize> {
        let mut sources = Vec::new();
        for pattern in patterns {
            self.sources(pattern, env, 0, &mut sources)?;
        }
        let Some(first) = sources.first() else {
            let span = patterns.last().expect("a pattern").span;
            let text = self.excerpt(patterns.last().expect("a pattern"));
            let message = format!("`{text}...` expands nothing: no pack is in it");
            let help = "a pack is a `shape` or `list` parameter, a list, or axes `i...: S...`";
            self.error(Diag::new("E0243", span, message).help(help));
            return None;
        };
        if let Some(other) = sources.iter().find(|source| source.length != first.length) {
            let (a, b) = (&first.text, &other.text);
            let message = format!(
                "`{a}` and `{b}` are expanded together, but have {} and {}",
                count(first.length, "element"),
                other.length
            );
            let diag = Diag::new("E0244", other.span, message);
            let diag = match first.span == other.span {
                true => diag,
                false => diag.related(first.span, format!("`{a}` is here")),
            };
            let help = "every pack in front of one `...` needs the same number of elements; \
                        a slice, `S[1..]`, is a part of a pack";
            self.error(diag.help(help));
            return None;
        }
        Some(first.length)
    }

    /// Collects the packs that an expansion goes through. `level` counts the expansions inside of
    /// it that are around `expr`. Returns `None` if a pack is wrong.
    fn sources(
        &mut self,
        expr: &'a ast::Expr,
        env: Env<'_, 'a>,
        level: usize,
        found: &mut Vec<Source>,
    ) -> Option<()> {
        match &*expr.kind {
            ExprKind::Int(_) | ExprKind::Real(_) | ExprKind::Bool(_) => {}
            ExprKind::Dotted(_) | ExprKind::DottedCall(..) | ExprKind::Star => {}
            ExprKind::Name(name) => match self.lookup(name, env) {
                Some(Value::Pack(pack)) if level == 0 => found.push(self.source(expr, &pack)),
                Some(Value::Poison) => return None,
                _ => {}
            },
            ExprKind::Expand(pattern) => self.sources(pattern, env, level + 1, found)?,
            ExprKind::Index(_, indices) if slice(indices).is_some() => match level {
                0 => {
                    let pack = self.whole_pack(expr, env)?;
                    found.push(self.source(expr, &pack));
                }
                _ => self.bounds(expr, env, level - 1, found)?,
            },
            ExprKind::Call(name, args) => match self.items.function(name.span.file, &name.text) {
                Some(Function::Pack(function)) if function.gives_pack() => match level {
                    0 => {
                        let pack = self.whole_pack(expr, env)?;
                        found.push(self.source(expr, &pack));
                    }
                    _ => self.bounds(expr, env, level - 1, found)?,
                },
                Some(Function::Pack(_)) => {
                    let mut args = args.iter();
                    args.next()
                        .map_or(Some(()), |arg| self.bounds(&arg.value, env, level, found))?;
                    for arg in args {
                        self.sources(&arg.value, env, level, found)?;
                    }
                }
                _ => {
                    for arg in args {
                        self.sources(&arg.value, env, level, found)?;
                    }
                }
            },
            ExprKind::List(_) => {
                if level == 0 {
                    let pack = self.whole_pack(expr, env)?;
                    found.push(self.source(expr, &pack));
                }
            }
            ExprKind::Unary(_, a) | ExprKind::Cast(a, _) => self.sources(a, env, level, found)?,
            ExprKind::Binary(_, a, b, _) => {
                self.sources(a, env, level, found)?;
                self.sources(b, env, level, found)?;
            }
            ExprKind::If(a, b, c) => {
                for part in [a, b, c] {
                    self.sources(part, env, level, found)?;
                }
            }
            ExprKind::Index(_, parts) | ExprKind::Tuple(parts) => {
                for part in parts {
                    self.sources(part, env, level, found)?;
                }
            }
            ExprKind::Range(a, b) => {
                for part in a.iter().chain(b) {
                    self.sources(part, env, level, found)?;
                }
            }
        }
        Some(())
    }

    /// Collects the packs of the bounds of slices in an expression that is a whole pack.
    fn bounds(
        &mut self,
        expr: &'a ast::Expr,
        env: Env<'_, 'a>,
        level: usize,
        found: &mut Vec<Source>,
    ) -> Option<()> {
        match &*expr.kind {
            ExprKind::Index(_, indices) => {
                if let Some((a, b)) = slice(indices) {
                    for bound in a.into_iter().chain(b) {
                        self.sources(bound, env, level, found)?;
                    }
                }
            }
            ExprKind::Call(name, args)
                if matches!(
                    self.items.function(name.span.file, &name.text),
                    Some(Function::Pack(_))
                ) =>
            {
                for arg in args {
                    self.bounds(&arg.value, env, level, found)?;
                }
            }
            _ => {}
        }
        Some(())
    }

    fn source(&self, expr: &ast::Expr, pack: &Pack) -> Source {
        Source { text: self.excerpt(expr), length: pack.elements.len(), span: expr.span }
    }

    /// Evaluates an expression to a pack as a whole; reports another value.
    pub fn whole_pack(&mut self, expr: &'a ast::Expr, env: Env<'_, 'a>) -> Option<Rc<Pack>> {
        match self.whole(expr, env) {
            Value::Pack(pack) => Some(pack),
            Value::Poison => None,
            other => {
                let (text, found) = (self.excerpt(expr), other.describe());
                let message = format!("`{text}` is {found}, not a pack");
                let help = "a pack is a `shape` or `list` parameter, a list, or axes `i...: S...`";
                self.error(Diag::new("E0243", expr.span, message).help(help));
                None
            }
        }
    }

    /// Evaluates an expression whose packs are meant as a whole.
    pub fn whole(&mut self, expr: &'a ast::Expr, env: Env<'_, 'a>) -> Value {
        match &*expr.kind {
            ExprKind::Index(name, indices) if slice(indices).is_some() => {
                self.slice(name, indices, env)
            }
            ExprKind::List(elements) => self.list(elements, env),
            ExprKind::Call(name, args) => match self.items.function(name.span.file, &name.text) {
                Some(Function::Pack(function)) if function.gives_pack() => {
                    self.call_pack_function(function, name, args, env)
                }
                _ => self.eval(expr, Env { at: None, ..env }),
            },
            _ => self.eval(expr, Env { at: None, ..env }),
        }
    }

    /// Evaluates an expression that is a pack where an expansion means an element of it.
    pub fn pack_element(&mut self, expr: &'a ast::Expr, env: Env<'_, 'a>) -> Value {
        let Some(at) = env.at else { return self.whole(expr, env) };
        let value = self.whole(expr, Env { at: at.outer, ..env });
        element_at(value, Some(at))
    }

    /// Evaluates `[n, S..., 0..4]`.
    fn list(&mut self, elements: &'a [ast::Expr], env: Env<'_, 'a>) -> Value {
        let mut all: Option<Vec<Value>> = Some(Vec::new());
        for element in elements {
            let values = match &*element.kind {
                ExprKind::Range(from, to) => self.range_of_list(element, from, to, env),
                ExprKind::Expand(_) => {
                    let values = self.expanded([element], env);
                    values.map(|values| values.into_iter().map(|(value, _)| value).collect())
                }
                _ => Some(vec![self.eval(element, env)]),
            };
            let Some(values) = values else {
                all = None;
                continue;
            };
            for value in values {
                let value = self.list_element(value, element);
                if let Some(all) = &mut all {
                    all.push(value);
                }
            }
        }
        let Some(elements_) = all else { return Value::Poison };
        if elements_.len() > MAX_ELEMENTS {
            let span = elements[0].span.to(elements[elements.len() - 1].span);
            let found = elements_.len();
            let message = format!("a list of {found} elements; the limit is {MAX_ELEMENTS}");
            self.error(Diag::new("E0245", span, message));
            return Value::Poison;
        }
        Value::pack(elements_)
    }

    fn list_element(&mut self, value: Value, expr: &'a ast::Expr) -> Value {
        match value {
            Value::Int(_) | Value::Poison => value,
            Value::Scalar(ref typed) if typed.ty == SourceType::Index => value,
            Value::Pack(_) => self.number(value, expr),
            other => {
                let found = other.describe();
                let message = format!("an element of a list is an integer, not {found}");
                self.error(Diag::new("E0243", expr.span, message));
                Value::Poison
            }
        }
    }

    /// Evaluates `from..to` in a list.
    fn range_of_list(
        &mut self,
        range: &'a ast::Expr,
        from: &'a Option<ast::Expr>,
        to: &'a Option<ast::Expr>,
        env: Env<'_, 'a>,
    ) -> Option<Vec<Value>> {
        let (Some(from), Some(to)) = (from, to) else {
            let text = self.excerpt(range);
            let message = format!("the range `{text}` in a list needs both ends");
            self.error(Diag::new("E0245", range.span, message).help("write `0..n`"));
            return None;
        };
        let (first, end) = (self.place(from, env), self.place(to, env));
        let (first, end) = (first?, end?);
        if end - first > MAX_ELEMENTS as i64 {
            let found = end - first;
            let message = format!("a list of {found} elements; the limit is {MAX_ELEMENTS}");
            self.error(Diag::new("E0245", range.span, message));
            return None;
        }
        Some((first..end).map(Value::int).collect())
    }

    /// Evaluates a place in a pack, a compile-time integer.
    pub fn place(&mut self, expr: &'a ast::Expr, env: Env<'_, 'a>) -> Option<i64> {
        let value = self.eval_operand(expr, env);
        match &value {
            Value::Int(value) if value.to_i64().is_some() => value.to_i64(),
            Value::Poison => None,
            other => {
                let found = other.describe();
                let message = format!("a place in a pack is a compile-time integer, not {found}");
                let diag = Diag::new("E0245", expr.span, message);
                let help = "a pack has no memory, so only constants select its elements";
                self.error(diag.help(help));
                None
            }
        }
    }

    /// Evaluates `S[0]` of a pack.
    pub fn indexed_pack(
        &mut self,
        name: &'a ast::Name,
        pack: &Pack,
        indices: &'a [ast::Expr],
        span: Span,
        env: Env<'_, 'a>,
    ) -> Value {
        let [index] = indices else {
            let message = format!(
                "`{}` is {}, which has one index, not {}",
                name.text,
                pack.describe(),
                indices.len()
            );
            self.error(Diag::new("E0245", span, message));
            return Value::Poison;
        };
        if let ExprKind::Expand(_) = &*index.kind {
            let message = format!("`{}[…]` has one index: several are expanded here", name.text);
            let help = format!("write the dots behind the brackets: `{}[p]...`", name.text);
            self.error(Diag::new("E0243", index.span, message).help(help));
            return Value::Poison;
        }
        let Some(place) = self.place(index, env) else { return Value::Poison };
        match usize::try_from(place).ok().and_then(|place| pack.elements.get(place)) {
            Some(value) => value.clone(),
            None => {
                self.outside(&name.text, place, pack, index.span);
                Value::Poison
            }
        }
    }

    /// Reports a place that is outside of a pack (E0245).
    pub fn outside(&mut self, text: &str, place: i64, pack: &Pack, span: Span) {
        let message = format!("`{text}` has no element {place}: it is {}", pack.describe());
        let diag = Diag::new("E0245", span, message);
        self.error(match pack.elements.len() {
            0 => diag,
            1 => diag.help("its only element is 0"),
            n if place < 0 => {
                diag.help(format!("places count from 0; the last element is `{text}[{}]`", n - 1))
            }
            n => diag.help(format!("its elements are 0 to {}", n - 1)),
        });
    }

    /// Evaluates `S[a..b]`. The bounds belong to `env`.
    fn slice(&mut self, name: &'a ast::Name, indices: &'a [ast::Expr], env: Env<'_, 'a>) -> Value {
        let base = self.name(name, env);
        let (from, to) = slice(indices).expect("checked by the caller");
        let from = from.map_or(Some(0), |from| self.place(from, env));
        let pack = match base {
            Value::Pack(pack) => pack,
            Value::Poison => return Value::Poison,
            other => {
                let message = format!("`{}` is {}, not a pack", name.text, other.describe());
                let help = "only packs have slices; the part of a tensor is a stage of its own";
                let span = indices[0].span;
                self.error(Diag::new("E0243", span, message).help(help));
                return Value::Poison;
            }
        };
        let length = pack.elements.len();
        let to = to.map_or(Some(length as i64), |to| self.place(to, env));
        let (Some(from), Some(to)) = (from, to) else { return Value::Poison };
        if from < 0 || to < from || to > length as i64 {
            let text = &name.text;
            let message = format!("`{text}` has no slice {from}..{to}: it is {}", pack.describe());
            let diag = Diag::new("E0245", indices[0].span, message);
            let help = format!("a slice `a..b` has 0 <= a, a <= b and b <= {length}");
            self.error(diag.help(help));
            return Value::Poison;
        }
        Value::pack(pack.elements[from as usize..to as usize].to_vec())
    }

    /// Evaluates `sum(x...)`, `prod(x...)`, `min(x...)` and `max(x...)`: the elements combined one
    /// after the other, from the first one on.
    pub fn fold(
        &mut self,
        operands: &[Operand<'_, 'a>],
        start: Option<i64>,
        span: Span,
        mut combine: impl FnMut(&mut Self, Operand<'_, 'a>, Operand<'_, 'a>) -> Value,
    ) -> Value {
        let mut rest = operands.iter();
        let Some(&(first, first_expr)) = rest.next() else {
            return match start {
                Some(start) => Value::int(start),
                None => {
                    let message = "the least or greatest element of an empty pack";
                    self.error(Diag::new("E0245", span, message));
                    Value::Poison
                }
            };
        };
        let (mut all, mut last) = (first.clone(), first_expr);
        for (value, expr) in rest {
            all = combine(self, (&all, last), (value, expr));
            last = expr;
        }
        all
    }
}

/// Returns the element of a pack that an expansion means; other values are unchanged.
pub fn element_at(value: Value, at: Option<&At>) -> Value {
    match (value, at) {
        // Sources of one expansion have the same length, which was checked.
        (Value::Pack(pack), Some(at)) => {
            pack.elements.get(at.index).cloned().unwrap_or(Value::Poison)
        }
        (value, _) => value,
    }
}

/// Returns the bounds of a slice, if indices are one.
pub fn slice(indices: &[ast::Expr]) -> Option<(Option<&ast::Expr>, Option<&ast::Expr>)> {
    match indices {
        [index] => match &*index.kind {
            ExprKind::Range(from, to) => Some((from.as_ref(), to.as_ref())),
            _ => None,
        },
        _ => None,
    }
}

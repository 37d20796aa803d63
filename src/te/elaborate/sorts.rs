//! Sorts: `sort(A[i, r], axis=r, at=p, descending=true)` and `argsort(…)`.
//!
//! `sort` compares the stage's own values, of a tuple the first components; `argsort` gives the
//! position of each value, so its key is an expression of its own.

use super::Elaborator;
use super::expressions::Env;
use super::frame::Frame;
use super::items::Function;
use super::reductions::{NamedAxes, components, rounded};
use super::values::{SourceType, Typed, Value};
use crate::diag::{Diag, closest};
use crate::ir::{DType, Expr};
use crate::lang::ast::{self, ExprKind};
use crate::te::{Axis, Sort};

/// A call of `sort` or `argsort`.
pub struct SortCall<'a> {
    name: &'a ast::Name,
    args: &'a [ast::Arg],
}

/// The arguments of a sort.
struct SortArgs<'a> {
    value: &'a ast::Expr,
    axis: &'a ast::Expr,
    at: &'a ast::Expr,
    descending: Option<&'a ast::Expr>,
}

const KEYWORDS: [&str; 3] = ["axis", "at", "descending"];

impl SortCall<'_> {
    fn gives_positions(&self) -> bool {
        self.name.text == "argsort"
    }
}

impl<'a> Elaborator<'a> {
    /// Returns the sort that an expression calls, if any.
    pub fn sort_call(&self, expr: &'a ast::Expr) -> Option<SortCall<'a>> {
        let ExprKind::Call(name, args) = &*expr.kind else { return None };
        let is_sort = matches!(&name.text[..], "sort" | "argsort");
        match self.items.function(name.span.file, &name.text)? {
            Function::Reduction if is_sort => Some(SortCall { name, args }),
            _ => None,
        }
    }

    /// Elaborates the sort of a stage. Returns its element types too.
    pub fn sort(
        &mut self,
        frame: &Frame<'a>,
        stage: &'a ast::Stage,
        call: SortCall<'a>,
        env: Env<'_, 'a>,
        types: &[Option<DType>],
    ) -> Option<(Vec<DType>, Sort)> {
        let arguments = self.sort_arguments(&call)?;
        let axis = self.sorted_axis(frame, &call, arguments.axis, env);
        let at = self.eval_whole(arguments.at, env);
        let at = self.number(at, arguments.at);
        let at = self.tensor_index((&at, arguments.at));
        let descending = match arguments.descending {
            None => Some(false),
            Some(expr) => self.sort_direction(frame, expr),
        };
        let (name, value, axis) = axis?;
        let mut locals = env.locals.clone();
        let position = Typed::new(SourceType::Index, Expr::var(&axis.var), 0);
        locals.insert(name, value);
        let inner = Env { locals: &locals, ..env };
        let parts = components(arguments.value);
        let wanted = if call.gives_positions() { 1 } else { parts.len() };
        self.check_result_count(stage, call.name, wanted, types)?;
        if call.gives_positions() && parts.len() > 1 {
            let message = "`argsort` compares one value, not a tuple";
            let help = "sort the tuple, with the axis as one of its components";
            self.error(Diag::new("E0227", arguments.value.span, message).help(help));
            return None;
        }
        let mut found = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            let value = self.eval_whole(part, inner);
            let value = self.number(value, part);
            let explicit = if call.gives_positions() { None } else { types[place] };
            found.push(self.element_value((&value, part), explicit, wanted > 1));
        }
        let found: Vec<(DType, Typed)> = found.into_iter().collect::<Option<_>>()?;
        let (dtypes, exprs): (Vec<DType>, Vec<Expr>) =
            found.into_iter().map(|(dtype, typed)| (dtype, rounded(typed, dtype).expr)).unzip();
        for (part, dtype) in parts.iter().zip(&dtypes) {
            if self.refuses_quantized_term(call.name, part, *dtype) {
                return None;
            }
        }
        if dtypes[0] == DType::Bool {
            let cast = self.with_cast(&parts[0], DType::Uint8);
            let message = format!("`{}` compares numbers, not `bool`", call.name.text);
            let diag = Diag::new("E0225", parts[0].span, message);
            self.error(diag.help(format!("write `{cast}`")));
            return None;
        }
        let (at, descending, key) = (at?.expr, descending?, exprs[0].clone());
        if !call.gives_positions() {
            return Some((dtypes, Sort { axis, key, values: exprs, at, descending }));
        }
        let position = Value::Scalar(position);
        let (dtype, position) = self.element_value((&position, &stage.body), types[0], true)?;
        Some((vec![dtype], Sort { axis, key, values: vec![position.expr], at, descending }))
    }

    fn sort_arguments(&mut self, call: &SortCall<'a>) -> Option<SortArgs<'a>> {
        let name = &call.name.text;
        let (mut value, mut axis, mut at, mut descending) = (None, None, None, None);
        for arg in call.args {
            let slot = match &arg.name {
                None => &mut value,
                Some(keyword) => match keyword.text.as_str() {
                    "axis" => &mut axis,
                    "at" => &mut at,
                    "descending" => &mut descending,
                    other => {
                        let message = format!("`{name}` has no argument `{other}`");
                        let diag = Diag::new("E0216", keyword.span, message);
                        self.error(match (other, closest(other, KEYWORDS)) {
                            ("where", _) => diag.help(
                                "give values that are left out a key that stands last: \
                                 `if c then x else inf(float32)`",
                            ),
                            (_, Some(close)) => diag.help(format!("did you mean `{close}`?")),
                            _ => diag.note("arguments: axis, at, descending"),
                        });
                        return None;
                    }
                },
            };
            if slot.replace(&arg.value).is_some() {
                let message = match &arg.name {
                    Some(keyword) => format!("`{}` is given twice", keyword.text),
                    None => format!("`{name}` takes one value, but more are given"),
                };
                let diag = Diag::new("E0216", arg.value.span, message);
                self.error(match (&arg.name, call.gives_positions()) {
                    (None, false) => diag.help("a tuple is in parentheses: `((A[k], k), axis=k)`"),
                    _ => diag,
                });
                return None;
            }
        }
        let Some(value) = value else {
            let message = format!("`{name}` needs a value to compare");
            self.error(Diag::new("E0216", call.name.span, message));
            return None;
        };
        let Some(axis) = axis else {
            let diag = Diag::new("E0224", call.name.span, format!("`{name}` needs `axis=`"));
            self.error(diag.help("name the axis whose values are sorted: `axis=k`"));
            return None;
        };
        let Some(at) = at else {
            let message = format!("`{name}` needs `at=`, the rank of the element");
            let diag = Diag::new("E0242", call.name.span, message);
            self.error(
                diag.help("name a data axis for the whole order: `at=p`, `at=0` is the first"),
            );
            return None;
        };
        Some(SortArgs { value, axis, at, descending })
    }

    /// Returns the name of the one axis of `axis=`, its value in the key, and the axis with a fresh
    /// variable.
    fn sorted_axis(
        &mut self,
        frame: &Frame<'a>,
        call: &SortCall<'a>,
        list: &'a ast::Expr,
        env: Env<'_, 'a>,
    ) -> Option<(&'a str, Value, Axis)> {
        let mut axes = self.reduction_axes(frame, list, env);
        if axes.len() > 1 {
            let message = format!("`{}` sorts the values of one axis", call.name.text);
            let help = "store the values in a stage with one axis for both: `T[k // m, k % m]`";
            self.error(Diag::new("E0242", list.span, message).help(help));
            return None;
        }
        let (name, found) = axes.pop()?;
        let (value, is_empty) = (found.value(), matches!(found, NamedAxes::Pack(_, true)));
        match <[Axis; 1]>::try_from(found.known()?) {
            Ok([axis]) if !is_empty => Some((name, value, axis)),
            _ => {
                let message = format!("`{}` sorts the values of one axis", call.name.text);
                let help = "a pack of reduction axes has one axis here: `reduce r: 0..n`";
                self.error(Diag::new("E0242", list.span, message).help(help));
                None
            }
        }
    }

    /// Returns the constant of `descending=`.
    fn sort_direction(&mut self, frame: &Frame<'a>, expr: &'a ast::Expr) -> Option<bool> {
        match self.eval_constant(frame, expr) {
            Value::Bool(value) => Some(value),
            Value::Poison => None,
            other => {
                let found = other.describe();
                let message = format!("`descending=` is `true` or `false`, not {found}");
                self.error(Diag::new("E0242", expr.span, message));
                None
            }
        }
    }
}

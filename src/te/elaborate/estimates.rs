//! `estimate n = 128, m = 64`: the run-time integers of a typical call, for which the automatic
//! schedule is made. Several statements are several calls.

use super::Elaborator;
use super::frame::Frame;
use super::values::Value;
use crate::diag::{Diag, Span};
use crate::ir::Var;
use crate::lang::ast;
use crate::te::TypicalCall;

/// The largest value: extents are at most 2^47 bytes.
const MAX_VALUE: i64 = 1 << 47;

impl<'a> Elaborator<'a> {
    /// Adds a typical call. The estimates of operators are those of their own callers.
    pub fn estimate(&mut self, frame: &Frame<'a>, known: &'a [(ast::Name, ast::Expr)], span: Span) {
        if frame.operator.is_some() {
            return;
        }
        let mut values: Vec<(Var, i64, &ast::Name)> = Vec::new();
        for (name, value) in known {
            let var = self.estimated_integer(frame, name);
            let value = self.estimated_value(frame, value);
            let (Some(var), Some(value)) = (var, value) else { continue };
            if let Some((.., first)) = values.iter().find(|(known, ..)| *known == var) {
                let message = format!("`{}` has two values in this estimate", name.text);
                let diag = Diag::new("E0248", name.span, message);
                let help = "write one `estimate` for each typical call";
                self.error(diag.related(first.span, "the first one is here").help(help));
                continue;
            }
            values.push((var, value, name));
        }
        let place = |var: &Var| self.graph.vars.iter().position(|own| own == var);
        values.sort_by_key(|(var, ..)| place(var));
        let values: Vec<(Var, i64)> =
            values.into_iter().map(|(var, value, _)| (var, value)).collect();
        if !values.is_empty() {
            self.graph.estimates.push(TypicalCall { values, span });
        }
    }

    /// Returns the run-time integer with this name. `None` for a parameter that is a constant in
    /// this build, and after an error.
    fn estimated_integer(&mut self, frame: &Frame<'a>, name: &'a ast::Name) -> Option<Var> {
        let text = name.text.as_str();
        if let Some(var) = self.graph.vars.iter().find(|var| var.name() == text) {
            return Some(var.clone());
        }
        let what = match frame.scope.get(text) {
            Some(entry) if entry.what == "parameter" => match entry.value {
                Value::Int(_) | Value::Poison => return None,
                _ => "a parameter of another kind",
            },
            Some(entry) => entry.what,
            None => "not a parameter of this kernel",
        };
        let what = match what.split_once(' ') {
            Some(_) => what.to_string(),
            None if what.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an {what}"),
            None => format!("a {what}"),
        };
        let message = format!("`{text}` is {what}");
        let vars = self.graph.vars.iter().map(|var| format!("`{}`", var.name()));
        let help = match vars.collect::<Vec<_>>().join(", ") {
            all if all.is_empty() => {
                "`estimate` is about run-time integers, and this kernel has none".to_string()
            }
            all => format!("`estimate` is about run-time integers: {all}"),
        };
        self.error(Diag::new("E0248", name.span, message).help(help));
        None
    }

    fn estimated_value(&mut self, frame: &Frame<'a>, expr: &'a ast::Expr) -> Option<i64> {
        let value = self.eval_constant(frame, expr);
        let value = match self.number(value, expr) {
            Value::Poison => return None,
            Value::Int(value) => i64::try_from(value).ok(),
            _ => {
                let message = "an estimate is an integer constant";
                self.error(Diag::new("E0248", expr.span, message));
                return None;
            }
        };
        let value = value.filter(|value| (0..=MAX_VALUE).contains(value));
        if value.is_none() {
            let message = "an estimate is from 0 to 2^47";
            self.error(Diag::new("E0248", expr.span, message));
        }
        value
    }

    /// Refuses a typical call that an `assume` or `assert` excludes.
    pub fn check_estimates(&mut self) {
        let calls = self.graph.estimates.iter();
        let excluded = calls.filter_map(|call| {
            let (_, text, place) = call.excluded_by(&self.graph)?;
            let message = format!("no call has these values: `{text}` is false");
            Some(Diag::new("E0248", call.span, message).related(*place, "the condition is here"))
        });
        let diags: Vec<Diag> = excluded.collect();
        diags.into_iter().for_each(|diag| self.error(diag));
    }
}

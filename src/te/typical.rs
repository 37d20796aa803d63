//! The calls that an automatic schedule is for.

use super::Graph;
use crate::diag::{Diag, Span, closest};
use crate::ir::simplify::value_at;
use crate::ir::{Expr, Var};

/// Run-time integers of a typical call. A schedule is correct for all others, too.
#[derive(Clone, Debug)]
pub struct TypicalCall {
    /// The integers with a known value, in the order of the parameters.
    pub values: Vec<(Var, i64)>,
    /// The `estimate` statement.
    pub span: Span,
}

impl TypicalCall {
    /// Returns the value of an integer, if it is known.
    pub fn value(&self, var: &Var) -> Option<i64> {
        self.values.iter().find(|(known, _)| known == var).map(|(_, value)| *value)
    }

    /// Returns a condition that is false in this call, with its text and place; no call of the
    /// kernel has these values then.
    pub fn excluded_by<'g>(&self, graph: &'g Graph) -> Option<&'g (Expr, String, Span)> {
        let is_false =
            |(cond, ..): &&(Expr, String, Span)| value_at(cond, &|var| self.value(var)) == Some(0);
        graph.assumes.iter().find(is_false)
    }
}

impl Graph {
    /// Returns the largest value of an extent in the typical calls; `None` without estimates of its
    /// run-time integers.
    pub fn typical_extent(&self, extent: &Expr) -> Option<i64> {
        let in_call = |call: &TypicalCall| value_at(extent, &|var| call.value(var));
        self.estimates.iter().filter_map(in_call).max()
    }
}

/// Replaces the estimates of kernels by `calls`, each with values by name. Refuses a name that is
/// not a run-time integer of any kernel, two values of one name in a call, and values that no call
/// can have (E0248).
pub fn set_estimates(graphs: &mut [Graph], calls: &[Vec<(String, i64)>]) -> Result<(), Vec<Diag>> {
    let mut diags = Vec::new();
    let names: Vec<String> = (graphs.iter())
        .flat_map(|graph| graph.vars.iter().map(|var| var.name().to_string()))
        .collect();
    for (name, _) in calls.iter().flatten().filter(|(name, _)| !names.contains(name)) {
        let message = format!("`--typical`: `{name}` is not a run-time integer");
        let diag = Diag::global("E0248", message);
        diags.push(match closest(name, names.iter().map(String::as_str)) {
            Some(close) => diag.help(format!("did you mean `{close}`?")),
            None if names.is_empty() => diag.note("no kernel has run-time integers"),
            None => diag.note(format!("run-time integers: {}", names.join(", "))),
        });
    }
    for call in calls {
        for (at, (name, value)) in call.iter().enumerate() {
            if *value < 0 {
                let message = format!("`--typical`: `{value}` is not a size");
                diags.push(Diag::global("E0248", message));
            }
            if call[..at].iter().any(|(earlier, _)| earlier == name) {
                let message = format!("`--typical`: `{name}` has two values");
                let help = "give the values of each typical call apart";
                diags.push(Diag::global("E0248", message).help(help));
            }
        }
    }
    for graph in graphs {
        let of_call = |call: &Vec<(String, i64)>| {
            let value = |var: &Var| {
                let (_, value) = call.iter().find(|(name, _)| name == var.name())?;
                Some((var.clone(), *value))
            };
            let values = graph.vars.iter().filter_map(value).collect();
            TypicalCall { values, span: graph.span }
        };
        let calls: Vec<TypicalCall> = calls.iter().map(of_call).collect();
        graph.estimates = calls.into_iter().filter(|call| !call.values.is_empty()).collect();
        for call in &graph.estimates {
            if let Some((_, text, place)) = call.excluded_by(graph) {
                let message = format!("`--typical`: no call has these values: `{text}` is false");
                let diag = Diag::global("E0248", message);
                diags.push(diag.related(*place, "the condition is here"));
            }
        }
    }
    if diags.is_empty() { Ok(()) } else { Err(diags) }
}

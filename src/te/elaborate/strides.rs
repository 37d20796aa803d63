//! `strided` and `strides=[lda, 1]`: tensors of the caller that need not be contiguous.
//!
//! Before: `input A: float32[n, m] strided`.
//! After: the buffer of `A` has the strides `A_stride0` and `A_stride1`, run-time integers of the
//! kernel, whose values the entries take from the argument.

use super::Elaborator;
use super::expressions::count;
use super::frame::Frame;
use crate::diag::Diag;
use crate::ir::{Expr, Var};
use crate::lang::ast;

impl<'a> Elaborator<'a> {
    /// Returns the strides of an argument of `rank` dimensions; `None` if they are wrong, which is
    /// reported (E0241).
    pub fn strides(
        &mut self,
        frame: &Frame<'a>,
        name: &ast::Name,
        strides: &'a ast::Strides,
        rank: usize,
    ) -> Option<Vec<Expr>> {
        let text = &name.text;
        if frame.kernel.network {
            let message = format!("`{text}` of a network has strides");
            let help = "networks take contiguous tensors: leave them out";
            self.error(Diag::new("E0241", strides.span, message).help(help));
            return None;
        }
        let Some(given) = &strides.given else {
            let free = |dim: usize| {
                let mut own = format!("{text}_stride{dim}");
                while frame.scope.contains_key(own.as_str()) {
                    own.push('_');
                }
                Var::index(own)
            };
            let vars: Vec<Var> = (0..rank).map(free).collect();
            self.graph.vars.extend(vars.iter().cloned());
            return Some(vars.iter().map(Expr::var).collect());
        };
        let values = self.expanded_constants(frame, given)?;
        if values.len() != rank {
            let given = &values;
            let (rank, given) = (count(rank, "dimension"), count(given.len(), "stride"));
            let message = format!("`{text}` has {rank}, but {given}");
            let help = "give one stride for each dimension, in elements";
            self.error(Diag::new("E0241", strides.span, message).help(help));
            return None;
        }
        let mut all = Vec::new();
        for (dim, (value, one)) in values.iter().enumerate() {
            let stride = self.extent((value, one), "a stride")?;
            let is_unit = stride.as_int() == Some(1);
            if stride.as_var().is_none() && !(is_unit && dim + 1 == rank) {
                let message = "a stride is a run-time integer, the last one may be 1";
                let help = match is_unit {
                    true => "declare the transposed tensor, whose last stride is 1",
                    false => {
                        "declare `s: var` in the parameters of the kernel, and write `s`; the \
                         function takes its value from the argument"
                    }
                };
                self.error(Diag::new("E0241", one.span, message).help(help));
                return None;
            }
            all.push(stride);
        }
        Some(all)
    }

    /// Returns the strides of the tensors of an output.
    pub fn output_strides(
        &mut self,
        frame: &Frame<'a>,
        stage: &'a ast::Stage,
        rank: usize,
    ) -> Option<Vec<Expr>> {
        let strides = stage.strides.as_ref()?;
        let name = &stage.names[0].0;
        let message = if !stage.output {
            format!("`{}` is not an argument and has no strides", name.text)
        } else if stage.names.len() > 1 {
            "several results cannot have strides".to_string()
        } else if frame.operator.is_some() {
            // The result of an operator is no argument.
            return None;
        } else {
            return self.strides(frame, name, strides, rank);
        };
        self.error(Diag::new("E0241", strides.span, message).help("leave them out"));
        None
    }

    /// Refuses the strides of a scalar (E0241).
    pub fn refuse_scalar_strides(&mut self, name: &ast::Name, strides: Option<&ast::Strides>) {
        if let Some(strides) = strides {
            let message = format!("`{}` is a scalar and has no strides", name.text);
            self.error(Diag::new("E0241", strides.span, message).help("leave them out"));
        }
    }
}

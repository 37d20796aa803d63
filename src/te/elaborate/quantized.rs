//! Quantized types, `int4`, `uint4`, `float8_e4m3fn`, `float8_e5m2`: what has no such type.
//!
//! Their values are read, chosen, stored and cast. Everything else needs a cast first, so that no
//! sum is lost in a few bits.

use super::Elaborator;
use super::casts::Operand;
use super::values::{SourceType, Value};
use crate::diag::{Diag, Span};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind};
use crate::lang::ast;
use crate::te::{Graph, Input};

impl<'a> Elaborator<'a> {
    /// Refuses an operation on quantized values (E0209); returns whether there is one.
    pub fn refuses_quantized(
        &mut self,
        operands: &[Operand<'_, 'a>],
        what: &str,
        span: Span,
    ) -> bool {
        let quantized = operands.iter().find_map(|(value, expr)| match value {
            Value::Scalar(typed) => match typed.ty {
                SourceType::Data(dtype) if dtype.is_quantized() => Some((dtype, *expr)),
                _ => None,
            },
            _ => None,
        });
        let Some((dtype, expr)) = quantized else { return false };
        let cast = self.with_cast(expr, computed(dtype));
        let message = format!("{what} is not defined for `{dtype}`");
        self.error(Diag::new("E0209", span, message).help(format!("write `{cast}`")));
        true
    }

    /// Refuses a term of a reduction or a sort that is quantized (E0225).
    pub fn refuses_quantized_term(
        &mut self,
        name: &ast::Name,
        term: &'a ast::Expr,
        dtype: DType,
    ) -> bool {
        if !dtype.is_quantized() {
            return false;
        }
        let cast = self.with_cast(term, computed(dtype));
        let message = format!("`{}` does not take `{dtype}`", name.text);
        let diag = Diag::new("E0225", term.span, message).help(format!(
            "write `{cast}`, and cast the result in a stage of its own if it should be `{dtype}`"
        ));
        self.error(diag);
        true
    }

    /// Refuses a scalar of a quantized type (E0247).
    pub fn refuse_quantized_scalar(&mut self, name: &ast::Name, dtype: DType) {
        if !dtype.is_quantized() {
            return;
        }
        let text = &name.text;
        let message = format!("the scalar `{text}` cannot be `{dtype}`");
        let wide = computed(dtype);
        let help = format!("pass it as `{wide}`, or declare a tensor: `{text}: {dtype}[1]`");
        self.error(Diag::new("E0247", name.span, message).help(help));
    }

    /// Refuses arguments that cannot have a quantized type (E0247): params of networks, and 4-bit
    /// elements with strides, updated in place, in a recurrence, or in rows that do not begin with
    /// a byte.
    pub fn check_quantized(&mut self, graph: &Graph) {
        let mut facts: Option<Facts> = None;
        for argument in arguments(graph).filter(|one| one.buffer.dtype.is_quantized()) {
            let Argument { buffer, span, is_param, is_updated, in_scan } = argument;
            let (name, dtype) = (&buffer.name, buffer.dtype);
            let bytes = "two elements share a byte";
            let (message, note, help) = match () {
                () if is_param => (
                    format!("the param `{name}` cannot be `{dtype}`"),
                    "files of params have no such elements",
                    "declare an `input`, or a param of the bytes, `uint8`".to_string(),
                ),
                () if dtype.bits() >= 8 => continue,
                () if buffer.strides.is_some() => (
                    format!("`{name}` of type `{dtype}` cannot have strides"),
                    bytes,
                    "leave out the strides, or declare the bytes, `uint8`".to_string(),
                ),
                () if is_updated => (
                    format!("`{name}` of type `{dtype}` cannot be updated in place"),
                    bytes,
                    "declare an `input` and an `output`".to_string(),
                ),
                () if in_scan => (
                    format!("the output `{name}` of a `scan` cannot be `{dtype}`"),
                    bytes,
                    format!("declare it as `compute`, and behind the scan an output of `{name}`"),
                ),
                () if buffer.shape.len() < 2 => continue,
                () => {
                    let facts = facts.get_or_insert_with(|| facts_of(graph));
                    let last = buffer.shape.last().expect("two dimensions");
                    if is_even(last, graph, facts) {
                        continue;
                    }
                    let help = match last.as_var() {
                        Some(var) => format!("write `assume {} % 2 == 0`", var.name()),
                        None => "declare all elements as one dimension".to_string(),
                    };
                    let odd = if last.as_int().is_some() { "have" } else { "may have" };
                    (
                        format!("rows of `{name}` {odd} an odd number of `{dtype}` elements"),
                        "two elements share a byte, and each row begins with a byte",
                        help,
                    )
                }
            };
            self.error(Diag::new("E0247", span, message).note(note).help(help));
        }
    }
}

/// An argument of a kernel.
struct Argument<'g> {
    buffer: &'g Buffer,
    span: Span,
    is_param: bool,
    is_updated: bool,
    in_scan: bool,
}

/// Returns the tensors that callers pass.
fn arguments(graph: &Graph) -> impl Iterator<Item = Argument<'_>> {
    let inputs = graph.inputs.iter().filter_map(|input| match input {
        Input::Tensor { buffer, span, param, .. } => Some(Argument {
            buffer,
            span: *span,
            is_param: *param,
            is_updated: graph.update_of(buffer).is_some(),
            in_scan: false,
        }),
        Input::Scalar { .. } => None,
    });
    let outputs = graph.stages.iter().filter(|stage| stage.output && stage.update.is_none());
    let outputs = outputs.flat_map(|stage| {
        stage.buffers.iter().map(|buffer| Argument {
            buffer,
            span: stage.span,
            is_param: false,
            is_updated: false,
            in_scan: stage.recurrence.is_some(),
        })
    });
    inputs.chain(outputs)
}

/// Whether an extent is provably even, perhaps because an `assume` says that another even number
/// divides it.
fn is_even(extent: &Expr, graph: &Graph, facts: &Facts) -> bool {
    let rest = Expr::binary(BinOp::FloorMod, extent.clone(), Expr::index(2));
    let multiple = |cond: &Expr| match &cond.kind {
        ExprKind::Binary(BinOp::Eq, rest, zero) if zero.as_int() == Some(0) => match &rest.kind {
            ExprKind::Binary(BinOp::FloorMod, number, by) => {
                by.as_int().is_some_and(|by| by != 0 && by % 2 == 0) && equal(number, extent)
            }
            _ => false,
        },
        _ => false,
    };
    facts.prove(&Expr::eq(rest, Expr::index(0)))
        || graph.assumes.iter().any(|(cond, ..)| multiple(cond))
}

fn facts_of(graph: &Graph) -> Facts {
    let mut facts = Facts::new();
    graph.known_facts().iter().for_each(|fact| facts.assume(fact));
    facts
}

/// Returns the type to compute with.
fn computed(dtype: DType) -> DType {
    if dtype.is_float() { DType::Float32 } else { DType::Int32 }
}

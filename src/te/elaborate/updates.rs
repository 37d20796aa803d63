//! `inout` and `update`: tensors that a kernel changes in place.
//!
//! Before: `inout C: float32[n, m]`, `update C[p + i: r, j: m] = B[i, j] + C[p + i, j]`.
//! After: an input `C` and a stage `C[i: r, j: m]`, whose `te::Update` says where its elements are.
//! Up to the `update`, and in it, `C` means the elements of the call; behind it also the new ones.
//! A network may update a tensor several times, each `update` what the one before it left.

use super::Elaborator;
use super::expressions::{Env, Locals, count};
use super::frame::Frame;
use super::values::{Entry, Tensor, Value};
use crate::diag::{Diag, closest};
use crate::ir::Expr;
use crate::lang::ast::{self, InputKind, StmtKind};
use crate::te::Update;
use std::rc::Rc;

impl<'a> Elaborator<'a> {
    /// Refuses an `inout` that is a scalar or `layout_free`, and one in an operator (E0240).
    pub fn check_inout(
        &mut self,
        frame: &Frame<'a>,
        name: &ast::Name,
        is_tensor: bool,
        layout_free: bool,
    ) {
        let (text, kernel) = (&name.text, &frame.kernel.name.text);
        let refuse =
            |message: String, help: String| Diag::new("E0240", name.span, message).help(help);
        if frame.operator.is_some() {
            let message = format!("`{kernel}` updates `{text}` in place and cannot be an operator");
            let help = "an operator returns a new tensor: declare an `input` and an `output`, and \
                        write the `update` where the operator is used";
            self.error(refuse(message, help.to_string()));
        } else if !is_tensor {
            let message = format!("the scalar `{text}` is passed by value and cannot be updated");
            let help = format!("write `inout {text}: TYPE[]` for a tensor with one element");
            self.error(refuse(message, help));
        } else if layout_free {
            let message = format!("`{text}` is updated and cannot be `layout_free`");
            self.error(refuse(message, "leave out `layout_free`".to_string()));
        }
    }

    /// Elaborates `update C[p + i: n] = …`.
    pub fn update(
        &mut self,
        frame: &mut Frame<'a>,
        stage: &'a ast::Stage,
        offsets: &'a [Option<ast::Expr>],
    ) {
        frame.has_output = true;
        let name = &stage.names[0].0;
        let Some(tensor) = self.updated_tensor(frame, name) else { return };
        let Some((rank, offsets)) = self.offsets(frame, stage, offsets) else { return };
        if rank != tensor.rank {
            let text = &name.text;
            let (rank, given) = (count(tensor.rank, "dimension"), rank);
            let given = if given == 1 { "1 index".into() } else { format!("{given} indices") };
            let message = format!("`{text}` has {rank}, but the `update` has {given}");
            self.error(Diag::new("E0205", name.span, message));
            return;
        }
        let (Some(before), Some(offsets)) = (tensor.buffer.clone(), offsets) else { return };
        let after = before.duplicate();
        self.updating = Some(Update { before, after, offsets });
        self.stage(frame, stage);
        self.updating = None;
    }

    /// Returns the number of axes of an `update`, and what is added to each of them; `None` for a
    /// wrong offset.
    fn offsets(
        &mut self,
        frame: &Frame<'a>,
        stage: &'a ast::Stage,
        offsets: &'a [Option<ast::Expr>],
    ) -> Option<(usize, Option<Vec<Expr>>)> {
        let locals = Locals::default();
        let env = Env { scope: Some(&frame.scope), locals: &locals, element: false, at: None };
        let mut all = Some(Vec::new());
        let mut rank = 0;
        for ((_, extent), offset) in stage.axes.iter().zip(offsets) {
            let axes = self.expanded([extent], env)?.len();
            rank += axes;
            let found: Option<Vec<Expr>> = match offset {
                None => Some(vec![Expr::index(0); axes]),
                Some(expr) => {
                    let values = match &*extent.kind {
                        ast::ExprKind::Expand(pattern) => {
                            let both = self.expand([expr, pattern], env)?;
                            both.into_iter().map(|[offset, _]| offset).collect()
                        }
                        _ => vec![self.eval_whole(expr, env)],
                    };
                    let what = "what is added to an axis of `update`";
                    values.iter().map(|value| self.extent((value, expr), what)).collect()
                }
            };
            all = all.zip(found).map(|(mut all, found)| {
                all.extend(found);
                all
            });
        }
        Some((rank, all))
    }

    /// Returns the `inout` tensor that an `update` names (E0240).
    fn updated_tensor(&mut self, frame: &Frame<'a>, name: &ast::Name) -> Option<Rc<Tensor>> {
        let text = &name.text;
        let all = inouts(&frame.kernel.body);
        let entry = frame.scope.get(text.as_str());
        let diag = Diag::new("E0240", name.span, format!("`{text}` cannot be updated"));
        let diag = match entry {
            Some(Entry { value: Value::Tensor(tensor), what: "input", .. })
                if all.contains(&text.as_str()) =>
            {
                return Some(tensor.clone());
            }
            Some(Entry { value: Value::Tensor(tensor), what: "output", .. })
                if frame.kernel.network && all.contains(&text.as_str()) =>
            {
                return Some(tensor.clone());
            }
            Some(Entry { value: Value::Poison, .. }) => return None,
            Some(Entry { what: "output", span, .. }) if all.contains(&text.as_str()) => {
                Diag::new("E0240", name.span, format!("`{text}` is updated twice"))
                    .related(*span, "it is first updated here")
                    .help("write one `update` whose value is `if … then … else …`")
            }
            Some(Entry { what: "input", span, .. }) => diag
                .related(*span, "it is declared here")
                .help(format!("declare it by `inout {text}: …` instead of `input`")),
            Some(Entry { what, span, .. }) => diag
                .related(*span, format!("the {what} is here"))
                .help(format!("only an argument is updated: `inout {text}: TYPE[…]`")),
            None => match closest(text, all.iter().copied()) {
                Some(close) => diag.help(format!("did you mean `{close}`?")),
                None => diag.help(format!("declare it before: `inout {text}: TYPE[…]`")),
            },
        };
        self.error(diag);
        None
    }

    /// Refuses an `inout` without an `update` (E0240).
    pub fn check_updated(&mut self, frame: &Frame<'a>) {
        for name in inouts(&frame.kernel.body) {
            // A wrong update is reported already.
            if contains_update(&frame.kernel.body, name) && !self.diags.is_empty() {
                continue;
            }
            let Some(Entry { value: Value::Tensor(_), what: "input", span }) =
                frame.scope.get(name)
            else {
                continue;
            };
            let message = format!("`{name}` is `inout`, but nothing updates it");
            let help =
                format!("write `update {name}[i: n] = …`, or declare it by `input {name}: …`");
            self.error(Diag::new("E0240", *span, message).help(help));
        }
    }
}

/// Whether a statement is an `update` of this name.
fn contains_update(stmts: &[ast::Stmt], name: &str) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Update { stage, .. } => stage.names[0].0.text == name,
        StmtKind::If { then, otherwise, .. } => {
            contains_update(then, name) || contains_update(otherwise, name)
        }
        _ => false,
    })
}

/// Returns the names that the statements declare by `inout`.
fn inouts(stmts: &[ast::Stmt]) -> Vec<&str> {
    let mut names = Vec::new();
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Input { kind: InputKind::Inout, name, .. } => names.push(&name.text[..]),
            StmtKind::If { then, otherwise, .. } => {
                names.extend(inouts(then));
                names.extend(inouts(otherwise));
            }
            _ => {}
        }
    }
    names
}

//! Match intrinsic: checks that a loop nest is that of an intrinsic of `lib/intrinsics.te`.
//!
//! The nest: `for (k_i, 0, 4) { C[x, y] = C[x, y] + A[x, k_o*4 + k_i]*B[k_o*4 + k_i, y] }`
//! The intrinsic: `for (k, 0, 4) { c[] = c[] + a[k]*b[k] }`
//! The two are unified: loops in order, with equal constant extents, and the same operations on the
//! same types. Each tensor of the intrinsic stands for one part of one buffer, which may begin
//! anywhere. The last dimension of a part is consecutive in memory; the other dimensions have
//! strides on which all accesses of the part agree. The `B` above is therefore refused: it is read
//! down a column.
//!
//! Conditions of tails are ignored if one condition can test all iterations ([`without_tails`]).
//!
//! A step of `build_loops`, which passes the loops of the intrinsic.

use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::copy::fresh_copy;
use crate::ir::equal::equal;
use crate::ir::print::{print_expr, print_stmt};
use crate::ir::simplify::simplify_expr;
use crate::ir::steps::{at_zero, step_of};
use crate::ir::visit::{any_expr, map_stmts, substitute};
use crate::ir::{BinOp, Buffer, Expr, ExprKind, ForKind, Intrinsic, Kernel, Stmt, UnOp, Var};
use crate::schedule::{Annotation, AxisKind, Stage, Tensorize};
use rustc_hash::FxHashMap;

/// Checks that `nest`, the loops of a stage from `tensorize.axis` inwards, is the intrinsic
/// (E0378). `intrinsic` has the loops of the intrinsic under its default schedule; `facts` the
/// ranges of the loops around the nest.
pub fn match_intrinsic(
    stage: &Stage,
    tensorize: &Tensorize,
    intrinsic: Kernel,
    nest: &Stmt,
    facts: Facts,
) -> Result<()> {
    let first = stage.leaves.iter().position(|leaf| stage.axis(*leaf).kind == AxisKind::Reduce);
    let at = stage.leaves.iter().position(|leaf| *leaf == tensorize.axis);
    let inner_of_reduction = first.is_some_and(|first| Some(first) <= at);
    let mut pattern = match intrinsic.body {
        Stmt::Block(stmts) if stmts.len() == 1 => stmts.into_iter().next(),
        _ => None,
    };
    while let Some(Stmt::Produce { body, .. }) = pattern {
        pattern = Some(*body);
    }
    let Some(mut pattern) = pattern else { crate::bug!("an intrinsic of several stages") };
    if inner_of_reduction {
        pattern = without_start(pattern);
    }
    let lanes = stage
        .leaves
        .iter()
        .take(at.unwrap_or(0))
        .find(|leaf| matches!(stage.axis(**leaf).annotation, Some((Annotation::Vectorize, _))));
    let lanes = lanes.map(|leaf| stage.axis(*leaf).name.clone());
    let mut unifier = Unifier { vars: Vec::new(), parts: FxHashMap::default(), facts };
    let unified = match lanes {
        Some(name) => Err(format!("the enclosing loop `{name}` is vectorized")),
        None => unifier.stmt(&pattern, nest),
    };
    match unified {
        Ok(()) => Ok(()),
        Err(difference) => {
            let (name, axis) = (&stage.te.name, &stage.axis(tensorize.axis).name);
            let intrinsic = &tensorize.intrinsic.name;
            let text =
                format!("the loops of `{name}` from `{axis}` inwards do not match `{intrinsic}`");
            Err(Box::new(
                Diag::new("E0378", tensorize.span, text)
                    .note(difference)
                    .note(format!("`{intrinsic}` is:\n{}", print_stmt(&pattern).trim_end())),
            ))
        }
    }
}

/// Makes a nest an instruction with lanes. The iterations of the outer loop become the lanes; the
/// terms of a lane are written out, the last one first if `reversed`.
///
/// Before: `for (j, 0, 16) { for (k, 0, 2) { C[j] = C[j] + A[k]*B[j*2 + k] } }`
/// After:  `vectorized (j, 0, 16) { C[j] = C[j] + A[1]*B[j*2 + 1]; C[j] = C[j] + A[0]*B[j*2] }`
pub fn in_lanes(nest: Stmt, reversed: bool) -> Stmt {
    let Stmt::For { var, min, extent, body, .. } = nest else {
        crate::bug!("an instruction with lanes is not a loop");
    };
    let body = Box::new(written_out(*body, reversed));
    Stmt::For { var, min, extent, kind: ForKind::Vectorized, body }
}

/// Makes a nest, whose loops match an intrinsic with lanes, its instruction. An instruction can
/// turn lanes off; if the last terms are outside, the others are added one by one.
pub fn instruction_in_lanes(name: String, reversed: bool, nest: &Stmt) -> Stmt {
    let whole = without_tails(nest);
    let body = Box::new(in_lanes(whole.lanes, reversed));
    whole.all_terms.into_iter().fold(Stmt::Tensorize { name, body }, |then, cond| {
        let rest = fresh_copy(&in_lanes(nest.clone(), reversed), &FxHashMap::default());
        Stmt::If { cond, then: Box::new(then), otherwise: Some(Box::new(rest)) }
    })
}

fn written_out(stmt: Stmt, reversed: bool) -> Stmt {
    let Stmt::For { var, extent, body, .. } = stmt else {
        return map_stmts(stmt, &mut |inner| written_out(inner, reversed));
    };
    let count = extent.as_int().expect("compared with the intrinsic's") as i64;
    let term = |at: i64| {
        let at = if reversed { count - 1 - at } else { at };
        fresh_copy(&body, &FxHashMap::from_iter([(var.clone(), Expr::index(at))]))
    };
    Stmt::Block((0..count).map(term).collect())
}

/// A nest without the conditions of its tails.
pub struct WholeNest {
    /// The nest without conditions of tails.
    pub bare: Stmt,
    /// These conditions for their worst iterations: if they hold, all of the nest is inside.
    pub tails: Vec<Expr>,
    /// The nest with only the conditions on lanes, the iterations of the outer loop. An instruction
    /// can turn lanes off.
    pub lanes: Stmt,
    /// The other conditions for their worst iterations: if they hold, all terms of the nest are
    /// inside.
    pub all_terms: Vec<Expr>,
}

impl WholeNest {
    /// Whether there are conditions of tails.
    pub fn has_tails(&self) -> bool {
        !self.tails.is_empty()
    }
}

/// Takes the conditions of tails out of a nest of constant extents.
///
/// Before: `for (j, 0, 16) { for (k, 0, 4) { if (likely(ko*4 + k < n)) { … } } }`
/// After:  `for (j, 0, 16) { for (k, 0, 4) { … } }`, where `likely(ko*4 + 3 < n)`
pub fn without_tails(nest: &Stmt) -> WholeNest {
    let (mut tails, mut all_terms) = (Vec::new(), Vec::new());
    let bare = without_tail_conditions(nest, &mut Vec::new(), false, &mut tails);
    let lanes = without_tail_conditions(nest, &mut Vec::new(), true, &mut all_terms);
    WholeNest { bare, tails, lanes, all_terms }
}

/// Removes conditions of tails and adds them to `conditions`. `vars` are the enclosing loops,
/// outermost first, each with its last iteration.
fn without_tail_conditions(
    stmt: &Stmt,
    vars: &mut Vec<(Var, i64)>,
    keep_lanes: bool,
    conditions: &mut Vec<Expr>,
) -> Stmt {
    match stmt {
        Stmt::For { var, min, extent, kind, body } if min.as_int() == Some(0) => {
            let Some(count) = extent.as_int() else { return stmt.clone() };
            vars.push((var.clone(), count as i64 - 1));
            let body = without_tail_conditions(body, vars, keep_lanes, conditions);
            vars.pop();
            let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
            Stmt::For { var, min, extent, kind: kind.clone(), body: Box::new(body) }
        }
        Stmt::If { cond, then, otherwise: None } => {
            let inner = without_tail_conditions(then, vars, keep_lanes, conditions);
            let of_terms = |var: &Var| vars[1.min(vars.len())..].iter().any(|(v, _)| v == var);
            let lanes_only = !any_expr(cond, &mut |e| e.as_var().is_some_and(of_terms));
            match for_all(cond, vars) {
                Some(all) if !(keep_lanes && lanes_only) => {
                    if !conditions.iter().any(|known| equal(known, &all)) {
                        conditions.push(all);
                    }
                    inner
                }
                Some(_) => Stmt::If { cond: cond.clone(), then: Box::new(inner), otherwise: None },
                None => stmt.clone(),
            }
        }
        Stmt::Block(stmts) => Stmt::Block(
            stmts
                .iter()
                .map(|stmt| without_tail_conditions(stmt, vars, keep_lanes, conditions))
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Returns the condition for the iteration of a nest in which it is least likely to hold, if the
/// condition is `a < b` and moves with every loop at a constant step.
fn for_all(cond: &Expr, vars: &[(Var, i64)]) -> Option<Expr> {
    let ExprKind::Unary(UnOp::Likely, inner) = &cond.kind else { return None };
    let ExprKind::Binary(BinOp::Lt | BinOp::Le, a, b) = &inner.kind else { return None };
    let own: Vec<Var> = vars.iter().map(|(var, _)| var.clone()).collect();
    let distance = Expr::sub(a.clone(), b.clone());
    let mut worst = FxHashMap::default();
    for (var, last) in vars {
        let step = step_of(&distance, var, &own)?.as_int()?;
        worst.insert(var.clone(), Expr::index(if step > 0 { *last } else { 0 }));
    }
    let at_worst = substitute(inner, &mut |var| worst.get(var).cloned());
    Some(Expr::unary(UnOp::Likely, simplify_expr(&at_worst, &Facts::new())))
}

/// Returns the nest of the update alone, for a stage that sets the initial value elsewhere.
fn without_start(stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::Block(stmts) if stmts.len() == 2 => {
            stmts.into_iter().next_back().expect("there are two")
        }
        Stmt::For { var, min, extent, kind, body } => {
            Stmt::For { var, min, extent, kind, body: Box::new(without_start(*body)) }
        }
        other => other,
    }
}

/// The difference in words if two parts cannot be unified.
type Unified = std::result::Result<(), String>;

struct Unifier {
    /// Variables of the intrinsic with the corresponding ones of the nest, outermost first.
    vars: Vec<(Var, Var)>,
    /// The part of a buffer that each tensor of the intrinsic stands for.
    parts: FxHashMap<Buffer, Part>,
    /// The ranges of all variables.
    facts: Facts,
}

#[derive(Clone)]
struct Part {
    buffer: Buffer,
    /// The index of its first element.
    first: Expr,
    /// The stride of each dimension, once an access has determined it.
    strides: Vec<Option<Expr>>,
}

impl Unifier {
    fn stmt(&mut self, pattern: &Stmt, nest: &Stmt) -> Unified {
        match (pattern, nest) {
            (Stmt::Block(patterns), Stmt::Block(stmts)) if patterns.len() == stmts.len() => {
                patterns.iter().zip(stmts).try_for_each(|(p, s)| self.stmt(p, s))
            }
            (Stmt::For { .. }, Stmt::For { .. }) => self.loops(pattern, nest),
            (
                Stmt::Store { buffer: p, indices: pi, value: pv, .. },
                Stmt::Store { buffer, indices, value, .. },
            ) => {
                self.access((p, pi), (buffer, indices))?;
                self.expr(pv, value)
            }
            (Stmt::Let { var: pv, value: p, body: pb }, Stmt::Let { var, value, body }) => {
                self.expr(p, value)?;
                self.vars.push((pv.clone(), var.clone()));
                self.stmt(pb, body)
            }
            (_, Stmt::If { cond, .. }) => Err(format!(
                "the loops contain the condition `{}`; split by a factor that divides the extent",
                print_expr(cond)
            )),
            (_, Stmt::Allocate { buffer, .. }) => {
                Err(format!("stage `{}` is computed inside these loops", buffer.name))
            }
            (Stmt::For { extent, .. }, _) => {
                Err(format!("expected one more inner loop, with extent {}", print_expr(extent)))
            }
            (_, Stmt::For { var, .. }) => {
                Err(format!("the inner loop `{}` has no counterpart in the intrinsic", var.name()))
            }
            _ => Err("the statements have different forms".to_string()),
        }
    }

    fn loops(&mut self, pattern: &Stmt, nest: &Stmt) -> Unified {
        let (
            Stmt::For { var: p, min: pmin, extent: pextent, body: pbody, .. },
            Stmt::For { var, min, extent, kind, body },
        ) = (pattern, nest)
        else {
            crate::bug!("loops are expected")
        };
        let name = var.name();
        if *kind != ForKind::Serial {
            return Err(format!("loop `{name}` is not serial"));
        }
        if min.as_int() != pmin.as_int() {
            let (got, wanted) = (print_expr(min), print_expr(pmin));
            return Err(format!("loop `{name}` begins at {got}; expected {wanted}"));
        }
        // An instruction can leave out lanes, the iterations of the outer one of its loops.
        let are_lanes = self.vars.is_empty() && has_loop(pbody);
        let fewer = extent.as_int() < pextent.as_int() && extent.as_int() >= Some(2);
        if extent.as_int() != pextent.as_int() && !(are_lanes && fewer) {
            let (got, wanted) = (print_expr(extent), print_expr(pextent));
            return Err(format!("loop `{name}` has extent {got}; expected {wanted}"));
        }
        self.vars.push((p.clone(), var.clone()));
        self.facts.bind(var, min, extent);
        self.stmt(pbody, body)
    }

    fn expr(&mut self, pattern: &Expr, expr: &Expr) -> Unified {
        use ExprKind::*;
        if pattern.ty != expr.ty {
            return Err(format!(
                "`{}` has type {}; expected {}",
                print_expr(expr),
                expr.ty,
                pattern.ty
            ));
        }
        if let Some(((x, y, p), (z, w, e))) = factors(pattern).zip(factors(expr))
            && p.is_some() == e.is_some()
        {
            self.product((x, y), (z, w))?;
            return p.zip(e).map_or(Ok(()), |(p, e)| self.expr(p, e));
        }
        let (pairs, alike): (Vec<(&Expr, &Expr)>, bool) = match (&pattern.kind, &expr.kind) {
            (Load { buffer: p, indices: pi, .. }, Load { buffer, indices, mask: None }) => {
                return self.access((p, pi), (buffer, indices));
            }
            (Const(_), Const(_)) => (Vec::new(), equal(pattern, expr)),
            (Var(p), Var(v)) => {
                (Vec::new(), p == v || self.vars.iter().any(|(a, b)| a == p && b == v))
            }
            (Unary(f, x), Unary(g, y)) => (vec![(x, y)], f == g),
            (Binary(f, x, y), Binary(g, z, w)) => (vec![(x, z), (y, w)], f == g),
            (Cast(x), Cast(y)) | (Bitcast(x), Bitcast(y)) => (vec![(x, y)], true),
            (Select(a, b, c), Select(x, y, z)) | (IfThenElse(a, b, c), IfThenElse(x, y, z)) => {
                (vec![(a, x), (b, y), (c, z)], true)
            }
            (Call(f, x), Call(g, y)) => (x.iter().zip(y).collect(), f == g && x.len() == y.len()),
            _ => (Vec::new(), false),
        };
        if !alike {
            let (got, wanted) = (print_expr(expr), print_expr(pattern));
            return Err(format!("found `{got}` in place of `{wanted}`"));
        }
        pairs.into_iter().try_for_each(|(p, e)| self.expr(p, e))
    }

    /// Unifies two products, with the factors in either order.
    fn product(&mut self, (x, y): (&Expr, &Expr), (z, w): (&Expr, &Expr)) -> Unified {
        let before = self.parts.clone();
        let straight = self.expr(x, z).and_then(|()| self.expr(y, w));
        if straight.is_err() {
            self.parts = before.clone();
            if self.expr(x, w).and_then(|()| self.expr(y, z)).is_ok() {
                return Ok(());
            }
            self.parts = before;
        }
        straight
    }

    /// Unifies an access to a tensor of the intrinsic with one to the part that it stands for.
    fn access(&mut self, pattern: (&Buffer, &[Expr]), access: (&Buffer, &[Expr])) -> Unified {
        let ((tensor, pattern_indices), (buffer, indices)) = (pattern, access);
        let shown = print_expr(&Expr::load(buffer, indices.to_vec()));
        if tensor.dtype != buffer.dtype {
            return Err(format!(
                "`{}` has elements of type {}; expected {}",
                buffer.name, buffer.dtype, tensor.dtype
            ));
        }
        let flat = super::flatten_storage::flat_index(buffer, indices);
        // In a packed layout, this removes quotients and remainders of the nest's variables.
        let flat = simplify_expr(&flat, &self.facts);
        let inner: Vec<Var> = self.vars.iter().map(|(_, var)| var.clone()).collect();
        let unclear = || format!("the distance between reads of `{shown}` is not constant");
        let first = at_zero(&flat, &inner);
        let own: Vec<Var> = self.vars.iter().map(|(var, _)| var.clone()).collect();
        let rank = pattern_indices.len();
        let part = self.parts.entry(tensor.clone()).or_insert_with(|| {
            let mut strides = vec![None; rank];
            if let Some(last) = strides.last_mut() {
                *last = Some(Expr::index(1));
            }
            Part { buffer: buffer.clone(), first: first.clone(), strides }
        });
        if part.buffer != *buffer || !equal(&part.first, &first) {
            return Err(format!(
                "accesses in place of `{}` must be to one tile of one tensor; `{shown}` is in \
                 another",
                tensor.name
            ));
        }
        for (of_pattern, var) in own.iter().zip(&inner) {
            let step = step_of(&flat, var, &inner).ok_or_else(unclear)?;
            let mut expected = Expr::index(0);
            for (index, stride) in pattern_indices.iter().zip(&mut part.strides) {
                let times = step_of(index, of_pattern, &own).and_then(|step| step.as_int());
                match (times, &stride) {
                    (Some(0), _) => {}
                    (Some(1), None) => {
                        *stride = Some(step.clone());
                        expected = Expr::add(expected, step.clone());
                    }
                    (Some(times), Some(stride)) => {
                        let times = Expr::index(times as i64);
                        expected = Expr::add(expected, Expr::mul(times, stride.clone()));
                    }
                    _ => crate::bug!("an intrinsic with irregular indices"),
                }
            }
            let expected = simplify_expr(&expected, &Facts::new());
            if !equal(&expected, &step) {
                return Err(format!(
                    "`{shown}` moves by {} elements per iteration of `{}`; expected {}",
                    print_expr(&step),
                    var.name(),
                    print_expr(&expected)
                ));
            }
        }
        Ok(())
    }
}

/// Whether a loop stands directly in a statement, or is the statement.
fn has_loop(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Block(stmts) => stmts.iter().any(has_loop),
        _ => matches!(stmt, Stmt::For { .. }),
    }
}

/// Returns the factors of a product, and the addend of a fused one.
fn factors(expr: &Expr) -> Option<(&Expr, &Expr, Option<&Expr>)> {
    match &expr.kind {
        ExprKind::Binary(BinOp::Mul, x, y) => Some((x, y, None)),
        ExprKind::Call(Intrinsic::Fma, args) => Some((&args[0], &args[1], Some(&args[2]))),
        _ => None,
    }
}

//! The instructions of the intrinsics in `lib/intrinsics.te`.

use super::address::{Terms, is_index};
use super::inst::Width;
use super::nest::{Selector, Val, shortened};
use super::table::VOp;
use crate::ir::equal::equal;
use crate::ir::print::print_expr;
use crate::ir::visit::reads_memory;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Intrinsic, Stmt, Var};

/// Lanes of every instruction here, 32 bits each. At the end of a row there may be fewer; the
/// others are computed from zeros and not stored.
const LANES: u32 = 16;
/// Bytes of the terms of a lane, and of a sum.
const LANE_BYTES: u64 = 4;

/// `c[j] += a[0]*b[j, 0] + a[1]*b[j, 1] + …`: all lanes share the elements of `a`; each has its own
/// elements of `b`, which are consecutive.
struct Dot {
    op: Op,
    /// Whether the first factor of the instruction is `b`.
    swapped: bool,
    a: DType,
    b: DType,
    /// The order in which the terms of a lane are added.
    order: &'static [i64],
}

/// How an instruction handles its terms.
#[derive(Clone, Copy)]
enum Op {
    /// It adds the terms to the sums.
    Accumulate(VOp),
    /// It adds up the terms; another instruction adds the result to the sums.
    AddProducts(VOp),
}

impl Dot {
    fn of(name: &str, has_vnni: bool) -> Option<Dot> {
        const INTS: &[i64] = &[0, 1, 2, 3];
        let pairs =
            if has_vnni { Op::Accumulate(VOp::DotI16) } else { Op::AddProducts(VOp::MulAddW) };
        let bytes = Op::Accumulate(VOp::DotU8I8);
        let (op, swapped, a, b, order): (_, _, _, _, &[i64]) = match name {
            "dot4_u8_i8" => (bytes, false, DType::Uint8, DType::Int8, INTS),
            "dot4_i8_u8" => (bytes, true, DType::Int8, DType::Uint8, INTS),
            "dot2_i16" => (pairs, false, DType::Int16, DType::Int16, &INTS[..2]),
            "dot2_bf16" => {
                let op = Op::Accumulate(VOp::DotBf16);
                (op, false, DType::BFloat16, DType::BFloat16, &[1, 0])
            }
            _ => return None,
        };
        Some(Dot { op, swapped, a, b, order })
    }

    /// Matches a term of all lanes: `c[…] = c[…] + a[i]*b[ramp(j, terms, 16)]`.
    fn term<'s>(&self, stmt: &'s Stmt) -> Option<Term<'s>> {
        let Stmt::Store { buffer, indices, value, mask: None, .. } = stmt else { return None };
        let (x, y, sum) = match &value.kind {
            ExprKind::Call(Intrinsic::Fma, args) => (&args[0], &args[1], &args[2]),
            ExprKind::Binary(BinOp::Add, p, q) => match (&p.kind, &q.kind) {
                (_, ExprKind::Binary(BinOp::Mul, x, y)) => (x, y, p),
                (ExprKind::Binary(BinOp::Mul, x, y), _) => (x, y, q),
                _ => return None,
            },
            _ => return None,
        };
        let (read, from) = load_of(sum)?;
        let lanes = indices[0].ty.lanes;
        let whole = is_ramp(&indices[0], 1, lanes) && read == buffer && equal(from, &indices[0]);
        let (a, b) = match (self.shared(x), self.shared(y)) {
            (Some(a), None) => (a, self.each(y, lanes)?),
            (None, Some(a)) => (a, self.each(x, lanes)?),
            _ => return None,
        };
        whole.then_some(Term { c: (buffer, &indices[0]), a, b })
    }

    /// Matches a converted element that all lanes read.
    fn shared<'s>(&self, expr: &'s Expr) -> Option<Place<'s>> {
        let (mut inner, mut casts) = (expr, 0);
        loop {
            match &inner.kind {
                ExprKind::Broadcast(one) => inner = one,
                ExprKind::Cast(one) => (inner, casts) = (one, casts + 1),
                _ => break,
            }
        }
        let (buffer, index) = load_of(inner)?;
        let index = match &index.kind {
            ExprKind::Broadcast(one) => one,
            _ => index,
        };
        (casts == 1 && buffer.dtype == self.a && index.ty.lanes == 1).then_some((buffer, index))
    }

    /// Matches a converted element for each lane; returns that of the first lane.
    fn each<'s>(&self, expr: &'s Expr, lanes: u32) -> Option<Place<'s>> {
        let ExprKind::Cast(inner) = &expr.kind else { return None };
        let (buffer, index) = load_of(inner)?;
        let ExprKind::Ramp(first, _) = &index.kind else { return None };
        let fits = buffer.dtype == self.b && is_ramp(index, self.order.len() as i128, lanes);
        fits.then_some((buffer, first))
    }
}

/// A buffer and an index.
type Place<'s> = (&'s Buffer, &'s Expr);

struct Term<'s> {
    c: Place<'s>,
    a: Place<'s>,
    b: Place<'s>,
}

fn load_of(expr: &Expr) -> Option<Place<'_>> {
    match &expr.kind {
        ExprKind::Load { buffer, indices, mask: None } => Some((buffer, &indices[0])),
        _ => None,
    }
}

fn is_ramp(index: &Expr, step: i128, lanes: u32) -> bool {
    let by_step = matches!(&index.kind, ExprKind::Ramp(_, s) if s.as_int() == Some(step));
    by_step && index.ty.lanes == lanes && lanes <= LANES
}

impl Selector<'_> {
    /// Selects the instruction for a nest that `tensorize` matched; `false` if there is none and
    /// the loops have to run.
    pub(super) fn tensor_instruction(&mut self, name: &str, body: &Stmt) -> bool {
        let Some(dot) = Dot::of(name, self.b.has_vnni) else { return false };
        let (mut stmts, mut lets) = (Vec::new(), Vec::new());
        flatten(body, &mut stmts, &mut lets);
        // Indices are computed where they are used.
        lets.into_iter().for_each(|(var, value)| self.bind(var, value));
        let count = stmts.iter().rev().take_while(|stmt| dot.term(stmt).is_some()).count();
        let (before, terms) = stmts.split_at(stmts.len() - count);
        // Shorter vectors than those of the intrinsic are several instructions. Their terms follow
        // one another by the order in the sum; only the order within an instruction matters.
        let mut groups: Vec<Vec<Term>> = Vec::new();
        for term in terms.iter().filter_map(|stmt| dot.term(stmt)) {
            let same = |group: &&mut Vec<Term>| {
                let (buffer, index) = group[0].c;
                buffer == term.c.0 && equal(index, term.c.1)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(term),
                None => groups.push(vec![term]),
            }
        }
        // The terms must be in the order of the instruction, on consecutive elements.
        let first = dot.order.iter().position(|at| *at == 0).expect("there is a first element");
        let mut fits = !groups.is_empty();
        for group in &groups {
            fits = fits
                && group.len() == dot.order.len()
                && self.is_run(&dot, group.iter().map(|term| term.a).collect())
                && self.is_run(&dot, group.iter().map(|term| term.b).collect());
        }
        if !fits {
            return false;
        }
        before.iter().for_each(|stmt| self.stmt(stmt));
        for group in &groups {
            let Term { c, a, b } = group[first];
            self.mark(|| {
                let text =
                    |(buffer, index): Place| format!("{}[{}]", buffer.name, print_expr(index));
                shortened(format!("{} += {name}({}, {})", text(c), text(a), text(b)))
            });
            self.dot(&dot, c, a, b);
        }
        true
    }

    /// Whether these are consecutive elements of one buffer, in the order of the instruction.
    fn is_run(&mut self, dot: &Dot, places: Vec<Place>) -> bool {
        let terms: Vec<(Terms, i64)> = places.iter().map(|place| self.terms(place.1)).collect();
        let start = terms[0].1 - dot.order[0];
        let parts = places.iter().zip(&terms).zip(dot.order);
        parts.clone().all(|((place, (sum, constant)), at)| {
            place.0 == places[0].0 && *sum == terms[0].0 && *constant == start + at
        })
    }

    fn dot(&mut self, dot: &Dot, c: Place, a: Place, b: Place) {
        let sum = self.load(c.0, c.1, None).reg();
        let at = self.address(b.0, b.1);
        let bytes = LANE_BYTES * u64::from(c.1.ty.lanes);
        let width = if self.b.is_evex() { Width::Z } else { Width::of(bytes) };
        let each = self.read(b.0, at, bytes, false, width);
        let at = self.address(a.0, a.1);
        let shared = self.read(a.0, at, LANE_BYTES, true, width);
        let (x, y) = if dot.swapped { (each, shared) } else { (shared, each) };
        let sum = match dot.op {
            Op::Accumulate(op) => self.b.accumulate(op, width, x, y, sum),
            Op::AddProducts(op) => {
                let products = self.b.op2(op, width, x, y);
                self.b.op2(VOp::AddD, width, sum, products)
            }
        };
        self.store_value(c.0, c.1, Val::Vec(sum), None);
    }
}

/// The statements of nested blocks in one list, and the variables defined in between that are
/// arithmetic on others.
fn flatten<'s>(stmt: &'s Stmt, stmts: &mut Vec<&'s Stmt>, lets: &mut Vec<(&'s Var, &'s Expr)>) {
    match stmt {
        Stmt::Block(inner) => inner.iter().for_each(|stmt| flatten(stmt, stmts, lets)),
        Stmt::Let { var, value, body } if is_index(value) && !reads_memory(value) => {
            lets.push((var, value));
            flatten(body, stmts, lets);
        }
        other => stmts.push(other),
    }
}

//! Constant bounds of integer expressions: interval arithmetic over the ranges of atoms.

use super::Facts;
use super::atoms::{AtomKind, is_exact_integer};
use super::cache::Cache;
use super::interval::Interval;
use super::poly::{Atom, Monomial, Poly, floor_mod, gcd};
use crate::ir::{BinOp, Const, DType, Expr, ExprKind, UnOp};

impl Facts {
    /// Returns constant bounds of an integer or `bool` expression.
    pub(crate) fn interval(&self, expr: &Expr) -> Interval {
        if expr.ty == DType::Index.into() {
            let poly = self.poly(expr);
            return self.poly_interval(&poly);
        }
        self.machine_interval(expr)
    }

    pub(super) fn poly_interval(&self, poly: &Poly) -> Interval {
        self.interval_of_terms(poly.constant, poly.terms.iter())
    }

    /// Returns constant bounds of a polynomial without one of its terms.
    pub(super) fn interval_without(&self, poly: &Poly, term: usize) -> Interval {
        let (before, after) = poly.terms.split_at(term);
        self.interval_of_terms(poly.constant, before.iter().chain(&after[1..]))
    }

    fn interval_of_terms<'p>(
        &self,
        constant: i128,
        terms: impl Iterator<Item = &'p (Monomial<Atom>, i128)>,
    ) -> Interval {
        let mut sum = Interval::point(constant);
        for (mono, coefficient) in terms {
            let mut product = Interval::point(*coefficient);
            let mut at = 0;
            while at < mono.len() {
                let power = mono[at..].iter().take_while(|&&a| a == mono[at]).count();
                product = product.mul(self.atom_interval(mono[at]).pow(power));
                at += power;
            }
            sum = sum.add(product);
            if !sum.has_lo() && !sum.has_hi() {
                break;
            }
        }
        sum
    }

    pub(super) fn atom_interval(&self, atom: Atom) -> Interval {
        let known = |cache: &Cache| cache.intervals.borrow().atoms.get(&atom).copied();
        if let Some(known) = self.caches.borrow().last().and_then(known) {
            return known;
        }
        let kind = self.arena.borrow().kind(atom).clone();
        let of = |poly: &Poly| self.poly_interval(poly);
        let structural = match &kind {
            AtomKind::Var(var) => type_interval(var.ty().dtype),
            AtomKind::Div(a, b) => of(a).floor_div(of(b)),
            AtomKind::Mod(a, b) => of(a).floor_mod(of(b)),
            AtomKind::Min(a, b) => of(a).min(of(b)),
            AtomKind::Max(a, b) => of(a).max(of(b)),
            AtomKind::Choose(_, t, f) => of(t).hull(of(f)),
            AtomKind::Narrow(ty, a) => within(*ty, of(a)),
            AtomKind::Opaque(key) => {
                let expr = self.arena.borrow().expr(*key);
                match expr.ty.dtype {
                    DType::Index => match &expr.kind {
                        ExprKind::Cast(a) if !a.ty.dtype.is_float() => {
                            unbounded_outside(self.machine_interval(a))
                        }
                        _ => Interval::ALL,
                    },
                    _ => self.machine_interval(&expr),
                }
            }
        };
        let interval = match self.ranges.get(&atom) {
            Some(known) => structural.intersect(*known),
            None => structural,
        };
        self.cache().intervals.borrow_mut().atoms.insert(atom, interval);
        interval
    }

    /// Returns bounds of a machine integer or `bool`: the range of its type if it may wrap.
    fn machine_interval(&self, expr: &Expr) -> Interval {
        let ty = expr.ty.dtype;
        if ty.is_float() {
            return Interval::ALL;
        }
        if ty == DType::Index && expr.ty.is_scalar() {
            return self.interval(expr);
        }
        if let ExprKind::Const(Const::Int(value)) = expr.kind {
            return Interval::point(value);
        }
        let key = self.key(expr);
        let known = |cache: &Cache| cache.intervals.borrow().exprs.get(&key).copied();
        if let Some(known) = self.caches.borrow().last().and_then(known) {
            return known;
        }
        let interval = within(ty, self.machine_operation(expr));
        self.cache().intervals.borrow_mut().exprs.insert(key, interval);
        interval
    }

    fn machine_operation(&self, expr: &Expr) -> Interval {
        let ty = expr.ty.dtype;
        let of = |e: &Expr| self.machine_interval(e);
        match &expr.kind {
            ExprKind::Var(var) => {
                let atom = self.arena.borrow().find(&AtomKind::Var(var.clone()));
                let known = atom.and_then(|atom| self.ranges.get(&atom)).copied();
                type_interval(ty).intersect(known.unwrap_or(Interval::ALL))
            }
            ExprKind::Load { .. } if expr.ty.is_scalar() && is_exact_integer(ty) => {
                let key = self.key(expr);
                let atom = self.arena.borrow().find(&AtomKind::Opaque(key));
                let known = atom.and_then(|atom| self.ranges.get(&atom)).copied();
                type_interval(ty).intersect(known.unwrap_or(Interval::ALL))
            }
            ExprKind::Unary(UnOp::Neg, a) => of(a).neg(),
            ExprKind::Unary(UnOp::Abs, a) => match of(a) {
                a if a.lo >= 0 => a,
                a => Interval::new(0, a.hull(a.neg()).hi),
            },
            ExprKind::Unary(UnOp::Popcount, _) => Interval::new(0, ty.bits() as i128),
            ExprKind::Binary(op, a, b) if !op.gives_bool() => machine_binary(*op, ty, of(a), of(b)),
            ExprKind::Select(_, t, f) | ExprKind::IfThenElse(_, t, f) => of(t).hull(of(f)),
            ExprKind::Cast(a) if ty != DType::Bool && !a.ty.dtype.is_float() => of(a),
            ExprKind::Broadcast(a) => of(a),
            ExprKind::Let(_, _, body) => of(body),
            _ => type_interval(ty),
        }
    }

    /// Returns `poly % c` for `c > 0`, if the known congruences determine it.
    pub(crate) fn residue(&self, poly: &Poly, c: i128) -> Option<i128> {
        let (m, r) = self.congruence(poly);
        (m == 0 || m % c == 0).then(|| floor_mod(r, c))
    }

    /// Whether no congruence was learnt.
    pub(crate) fn knows_no_congruence(&self) -> bool {
        self.congruences.is_empty()
    }

    /// Returns `(m, r)` with `poly` congruent to `r` modulo `m`; `m` is 1 if nothing is known and 0
    /// for constants.
    pub(crate) fn congruence(&self, poly: &Poly) -> (i128, i128) {
        let (mut m, mut r) = (0i128, poly.constant);
        for (mono, coefficient) in &poly.terms {
            let (mut tm, mut tr) = (0i128, *coefficient);
            for atom in mono {
                let (am, ar) = self.congruences.get(atom).copied().unwrap_or((1, 0));
                // (tm·x + tr)(am·y + ar): all summands but tr·ar are multiples of the gcd.
                let parts = (tm.checked_mul(am), tm.checked_mul(ar), tr.checked_mul(am));
                let (Some(a), Some(b), Some(c)) = parts else { return (1, 0) };
                let Some(product) = tr.checked_mul(ar) else { return (1, 0) };
                (tm, tr) = (gcd(gcd(a, b), c), product);
            }
            m = gcd(m, tm);
            let Some(sum) = r.checked_add(tr) else { return (1, 0) };
            r = if m > 0 { floor_mod(sum, m) } else { sum };
        }
        if m > 0 { (m, floor_mod(r, m)) } else { (0, r) }
    }
}

fn machine_binary(op: BinOp, ty: DType, a: Interval, b: Interval) -> Interval {
    match op {
        BinOp::Add => a.add(b),
        BinOp::Sub => a.add(b.neg()),
        BinOp::Mul => a.mul(b),
        BinOp::FloorDiv => a.floor_div(b),
        BinOp::FloorMod => a.floor_mod(b),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::BitAnd if a.lo >= 0 && b.lo >= 0 => Interval::new(0, a.hi.min(b.hi)),
        BinOp::BitAnd if a.lo >= 0 => Interval::new(0, a.hi),
        BinOp::BitAnd if b.lo >= 0 => Interval::new(0, b.hi),
        BinOp::BitOr | BinOp::BitXor if a.lo >= 0 && b.lo >= 0 => {
            let bits = 128 - a.hi.max(b.hi).leading_zeros();
            Interval::new(0, 1i128.checked_shl(bits).map_or(i128::MAX, |p| p.wrapping_sub(1)))
        }
        // The amount is taken modulo the width.
        BinOp::Shr if b.lo == b.hi => {
            let amount = b.lo & i128::from(ty.bits() - 1);
            Interval::new(a.lo >> amount, a.hi >> amount)
        }
        BinOp::Shl if b.lo == b.hi && (0..8).contains(&b.lo) => a.mul(Interval::point(1 << b.lo)),
        _ => Interval::ALL,
    }
}

/// Returns `interval` if it fits the type, else the range of the type: the value may have wrapped.
fn within(ty: DType, interval: Interval) -> Interval {
    let range = type_interval(ty);
    let (lo, hi) = ty.int_range();
    let exact = Interval::new(lo, hi);
    if exact.covers(interval) { interval } else { range }
}

/// Returns the range of a type; `index` is unbounded, because it does not overflow.
fn type_interval(ty: DType) -> Interval {
    match ty {
        DType::Index => Interval::ALL,
        _ => {
            let (lo, hi) = ty.int_range();
            Interval::new(lo, hi)
        }
    }
}

/// Returns the interval of a machine value after its conversion to `index`, in which large uint64
/// values wrap.
fn unbounded_outside(interval: Interval) -> Interval {
    let (lo, hi) = DType::Index.int_range();
    if Interval::new(lo, hi).covers(interval) { interval } else { Interval::ALL }
}

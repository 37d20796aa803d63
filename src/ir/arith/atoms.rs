//! The tables behind `Facts`: keys of expressions, their polynomials, and the atoms of these.
//!
//! The tables do not depend on facts, so they only grow. Every distinct node is visited once. A
//! conversion of a machine integer to `index` is dropped if it keeps the value.

use super::linear;
use super::poly::{Atom, Poly, floor_div, floor_mod, gcd};
use crate::ir::visit::Memo;
use crate::ir::{BinOp, Buffer, Const, DType, Expr, ExprKind, Intrinsic, Type, UnOp, Var};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The number of a structurally distinct expression.
pub(crate) type Key = u32;

#[derive(PartialEq, Eq, Hash, Debug)]
enum NodeKey {
    Const(Type, i128),
    Float(Type, u64),
    Var(Var),
    Unary(UnOp, Key),
    Binary(BinOp, Key, Key),
    Select(Key, Key, Key),
    IfThenElse(Key, Key, Key),
    Cast(Type, Key),
    Bitcast(Type, Key),
    Load(Buffer, Vec<Key>, Option<Key>),
    Ramp(Type, Key, Key),
    Broadcast(Type, Key),
    Call(Intrinsic, Vec<Key>),
    Let(Var, Key, Key),
}

/// The definition of an atom.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum AtomKind {
    Var(Var),
    /// Floor division; by zero it is 0.
    Div(Rc<Poly>, Rc<Poly>),
    /// Floor modulo; by zero it is 0.
    Mod(Rc<Poly>, Rc<Poly>),
    Min(Rc<Poly>, Rc<Poly>),
    Max(Rc<Poly>, Rc<Poly>),
    /// A choice; the condition is given by its key.
    Choose(Key, Rc<Poly>, Rc<Poly>),
    /// A value wrapped into a machine integer type narrower than 64 bits.
    Narrow(DType, Rc<Poly>),
    /// Anything else.
    Opaque(Key),
}

#[derive(Debug, Default)]
pub(super) struct Arena {
    keys: FxHashMap<NodeKey, Key>,
    key_memo: Memo<Key>,
    /// One expression per key.
    exprs: Vec<Expr>,
    polys: Memo<Rc<Poly>>,
    atoms: FxHashMap<AtomKind, Atom>,
    atom_kinds: Vec<AtomKind>,
}

impl Arena {
    /// Returns a key that is the same for structurally equal expressions only.
    pub(super) fn key(&mut self, expr: &Expr) -> Key {
        if let Some(key) = self.key_memo.get(expr) {
            return *key;
        }
        let ty = expr.ty;
        let node = match &expr.kind {
            ExprKind::Const(Const::Int(value)) => NodeKey::Const(ty, *value),
            ExprKind::Const(Const::Float(value)) => NodeKey::Float(ty, value.to_bits()),
            ExprKind::Var(var) => NodeKey::Var(var.clone()),
            ExprKind::Unary(op, a) => NodeKey::Unary(*op, self.key(a)),
            ExprKind::Binary(op, a, b) => NodeKey::Binary(*op, self.key(a), self.key(b)),
            ExprKind::Select(c, t, f) => NodeKey::Select(self.key(c), self.key(t), self.key(f)),
            ExprKind::IfThenElse(c, t, f) => {
                NodeKey::IfThenElse(self.key(c), self.key(t), self.key(f))
            }
            ExprKind::Cast(a) => NodeKey::Cast(ty, self.key(a)),
            ExprKind::Bitcast(a) => NodeKey::Bitcast(ty, self.key(a)),
            ExprKind::Load { buffer, indices, mask } => {
                let indices = indices.iter().map(|index| self.key(index)).collect();
                NodeKey::Load(buffer.clone(), indices, mask.as_ref().map(|m| self.key(m)))
            }
            ExprKind::Ramp(a, b) => NodeKey::Ramp(ty, self.key(a), self.key(b)),
            ExprKind::Broadcast(a) => NodeKey::Broadcast(ty, self.key(a)),
            ExprKind::Call(function, args) => {
                NodeKey::Call(*function, args.iter().map(|arg| self.key(arg)).collect())
            }
            ExprKind::Let(var, a, b) => NodeKey::Let(var.clone(), self.key(a), self.key(b)),
        };
        let next = self.exprs.len() as Key;
        let key = *self.keys.entry(node).or_insert(next);
        if key == next {
            self.exprs.push(expr.clone());
        }
        self.key_memo.insert(expr, key);
        key
    }

    /// Returns the expression of a key.
    pub(super) fn expr(&self, key: Key) -> Expr {
        self.exprs[key as usize].clone()
    }

    pub(super) fn kind(&self, atom: Atom) -> &AtomKind {
        &self.atom_kinds[atom as usize]
    }

    pub(super) fn atom(&mut self, kind: AtomKind) -> Atom {
        let next = self.atom_kinds.len() as Atom;
        let atom = *self.atoms.entry(kind.clone()).or_insert(next);
        if atom == next {
            self.atom_kinds.push(kind);
        }
        atom
    }

    pub(super) fn var(&mut self, var: &Var) -> Atom {
        self.atom(AtomKind::Var(var.clone()))
    }

    /// Returns the atom of this kind, if it exists.
    pub(super) fn find(&self, kind: &AtomKind) -> Option<Atom> {
        self.atoms.get(kind).copied()
    }

    /// Returns the polynomial of a scalar integer expression, `uint64` excepted.
    pub(super) fn poly(&mut self, expr: &Expr) -> Rc<Poly> {
        if let Some(poly) = self.polys.get(expr) {
            return poly.clone();
        }
        let poly = match self.convert(expr) {
            Some(poly) => poly,
            None => self.opaque(expr),
        };
        let poly = Rc::new(poly);
        self.polys.insert(expr, poly.clone());
        poly
    }

    fn opaque(&mut self, expr: &Expr) -> Poly {
        let key = self.key(expr);
        Poly::atom(self.atom(AtomKind::Opaque(key)))
    }

    fn convert(&mut self, expr: &Expr) -> Option<Poly> {
        if expr.ty != DType::Index.into() {
            return self.convert_term(expr);
        }
        let sum = linear::collect(expr)?;
        let mut terms = Vec::new();
        let mut constant = sum.constant;
        for (leaf, coefficient) in &sum.terms {
            let poly =
                if leaf.same(expr) { self.convert_term(leaf)? } else { (*self.poly(leaf)).clone() };
            constant = constant.checked_add(poly.constant.checked_mul(*coefficient)?)?;
            for (mono, c) in poly.terms {
                terms.push((mono, c.checked_mul(*coefficient)?));
            }
        }
        self.merge_div_mod(Poly::from_terms(terms, constant)?)
    }

    /// Replaces `k*c*(a // c) + k*(a % c)` by `k*a`.
    fn merge_div_mod(&mut self, mut poly: Poly) -> Option<Poly> {
        'again: loop {
            for (mono, k) in &poly.terms {
                let [atom] = mono.as_slice() else { continue };
                let AtomKind::Mod(a, divisor) = self.kind(*atom).clone() else { continue };
                let Some(c) = divisor.as_constant() else { continue };
                let quotient = self.div(&a, &divisor)?;
                let whole = quotient.scale(c)?.add(&Poly::atom(*atom))?;
                // The normal form of the quotient may be a sum; only a single term is matched.
                let [(qmono, qc)] = quotient.terms.as_slice() else { continue };
                let Some(have) = poly.terms.iter().find(|t| t.0 == *qmono) else { continue };
                if have.1 != k.checked_mul(c)?.checked_mul(*qc)? {
                    continue;
                }
                poly = poly.plus_scaled(&whole, k.checked_neg()?)?.plus_scaled(&a, *k)?;
                continue 'again;
            }
            return Some(poly);
        }
    }

    /// Converts a node that is not a sum.
    fn convert_term(&mut self, expr: &Expr) -> Option<Poly> {
        if !expr.ty.is_scalar() || !is_exact_integer(expr.ty.dtype) {
            return None;
        }
        let index = expr.ty.dtype == DType::Index;
        let poly = match &expr.kind {
            ExprKind::Const(Const::Int(value)) => Poly::of_constant(*value),
            ExprKind::Var(var) => Poly::atom(self.var(var)),
            ExprKind::Binary(BinOp::Mul, a, b) if index => {
                let (a, b) = (self.poly(a), self.poly(b));
                a.mul(&b)?
            }
            ExprKind::Binary(BinOp::FloorDiv, a, b) => {
                // `MIN // -1` wraps in machine integers.
                if !index && b.as_int().is_none_or(|b| b == -1) {
                    return None;
                }
                let (a, b) = (self.poly(a), self.poly(b));
                self.div(&a, &b)?
            }
            ExprKind::Binary(BinOp::FloorMod, a, b) => {
                let (a, b) = (self.poly(a), self.poly(b));
                self.modulo(&a, &b)?
            }
            ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => {
                let (a, b) = (self.poly(a), self.poly(b));
                self.min_max(*op, a, b)
            }
            ExprKind::Select(c, t, f) | ExprKind::IfThenElse(c, t, f) => {
                let (t, f) = (self.poly(t), self.poly(f));
                let c = self.key(c);
                if t == f { (*t).clone() } else { Poly::atom(self.atom(AtomKind::Choose(c, t, f))) }
            }
            ExprKind::Cast(a) => self.cast(expr.ty.dtype, a)?,
            _ => return None,
        };
        Some(poly)
    }

    fn cast(&mut self, to: DType, a: &Expr) -> Option<Poly> {
        let from = a.ty.dtype;
        if !is_exact_integer(from) {
            return None;
        }
        let poly = self.poly(a);
        let ((lo, hi), (from_lo, from_hi)) = (to.int_range(), from.int_range());
        if lo <= from_lo && from_hi <= hi {
            return Some((*poly).clone());
        }
        match poly.as_constant() {
            Some(value) => Some(Poly::of_constant(to.wrap(value))),
            None => Some(Poly::atom(self.atom(AtomKind::Narrow(to, poly)))),
        }
    }

    pub(super) fn min_max(&mut self, op: BinOp, a: Rc<Poly>, b: Rc<Poly>) -> Poly {
        let minimum = op == BinOp::Min;
        let difference = a.minus(&b).and_then(|d| d.as_constant());
        match difference {
            Some(d) if (d <= 0) == minimum => (*a).clone(),
            Some(_) => (*b).clone(),
            None if minimum => Poly::atom(self.atom(AtomKind::Min(a, b))),
            None => Poly::atom(self.atom(AtomKind::Max(a, b))),
        }
    }

    /// Returns `a // b`.
    pub(super) fn div(&mut self, a: &Poly, b: &Poly) -> Option<Poly> {
        match b.as_constant() {
            Some(0) => Some(Poly::default()),
            Some(c) if c < 0 => self.div_constant(&a.neg()?, c.checked_neg()?),
            Some(c) => self.div_constant(a, c),
            None if *a == Poly::default() => Some(Poly::default()),
            None => {
                let kind = AtomKind::Div(Rc::new(a.clone()), Rc::new(b.clone()));
                Some(Poly::atom(self.atom(kind)))
            }
        }
    }

    /// Returns `a // c` for `c > 0`: takes multiples out, cancels common factors, joins divisions.
    fn div_constant(&mut self, a: &Poly, c: i128) -> Option<Poly> {
        let (quotient, rest) = divide_terms(a, c);
        if rest.terms.is_empty() {
            return Some(quotient);
        }
        let g = gcd(rest.gcd(), c);
        if g > 1 {
            let reduced = divide_terms(&rest, g).0;
            return self.div_constant(&reduced, c / g)?.add(&quotient);
        }
        if let [(mono, 1)] = rest.terms.as_slice()
            && let [atom] = mono.as_slice()
        {
            match self.kind(*atom).clone() {
                AtomKind::Div(x, d) if d.as_constant().is_some_and(|d| d > 0) => {
                    let d = d.constant;
                    let inner = x.add_constant(rest.constant.checked_mul(d)?)?;
                    return self.div_constant(&inner, d.checked_mul(c)?)?.add(&quotient);
                }
                // `(x % (c*d)) // c` is `(x // c) % d`.
                AtomKind::Mod(x, d)
                    if rest.constant == 0 && d.as_constant().is_some_and(|d| d % c == 0) =>
                {
                    let inner = self.div_constant(&x, c)?;
                    return self.mod_constant(&inner, d.constant / c)?.add(&quotient);
                }
                _ => {}
            }
        }
        let kind = AtomKind::Div(Rc::new(rest), Rc::new(Poly::of_constant(c)));
        Poly::atom(self.atom(kind)).add(&quotient)
    }

    /// Returns `a % b`.
    pub(super) fn modulo(&mut self, a: &Poly, b: &Poly) -> Option<Poly> {
        match b.as_constant() {
            Some(0) => Some(Poly::default()),
            // The result has the sign of the divisor: `a % -c = -(-a % c)`.
            Some(c) if c < 0 => self.mod_constant(&a.neg()?, c.checked_neg()?)?.neg(),
            Some(c) => self.mod_constant(a, c),
            None if *a == Poly::default() => Some(Poly::default()),
            None => {
                let kind = AtomKind::Mod(Rc::new(a.clone()), Rc::new(b.clone()));
                Some(Poly::atom(self.atom(kind)))
            }
        }
    }

    fn mod_constant(&mut self, a: &Poly, c: i128) -> Option<Poly> {
        let rest = divide_terms(a, c).1;
        if rest.terms.is_empty() {
            return Some(rest);
        }
        let g = gcd(rest.gcd(), c);
        if g > 1 {
            let (reduced, low) = divide_terms(&rest, g);
            return self.mod_constant(&reduced, c / g)?.scale(g)?.add(&low);
        }
        if let [(mono, 1)] = rest.terms.as_slice()
            && let [atom] = mono.as_slice()
            && let AtomKind::Mod(x, d) = self.kind(*atom).clone()
            && d.as_constant().is_some_and(|d| d % c == 0)
        {
            let inner = x.add_constant(rest.constant)?;
            return self.mod_constant(&inner, c);
        }
        let kind = AtomKind::Mod(Rc::new(rest), Rc::new(Poly::of_constant(c)));
        Some(Poly::atom(self.atom(kind)))
    }

    /// Returns a polynomial as an expression of type `index`; `None` if a coefficient does not fit
    /// 64 bits.
    pub(super) fn to_expr(&self, poly: &Poly) -> Option<Expr> {
        // `build_sum` negates coefficients.
        let fits = |value: i128| i64::try_from(value).is_ok_and(|value| value != i64::MIN);
        if !fits(poly.constant) {
            return None;
        }
        let mut terms: Vec<(Expr, i128)> = Vec::new();
        for (mono, coefficient) in &poly.terms {
            let factors = mono.iter().map(|&atom| self.atom_expr(atom)).collect::<Option<Vec<_>>>();
            let product = factors?.into_iter().reduce(Expr::mul).expect("a monomial has an atom");
            terms.push((product, Some(*coefficient).filter(|value| fits(*value))?));
        }
        Some(build_sum(terms, poly.constant))
    }

    fn atom_expr(&self, atom: Atom) -> Option<Expr> {
        let binary =
            |op, a: &Poly, b: &Poly| Some(Expr::binary(op, self.to_expr(a)?, self.to_expr(b)?));
        match self.kind(atom) {
            AtomKind::Var(var) => Some(Expr::cast(DType::Index, Expr::var(var))),
            AtomKind::Div(a, b) => binary(BinOp::FloorDiv, a, b),
            AtomKind::Mod(a, b) => binary(BinOp::FloorMod, a, b),
            AtomKind::Min(a, b) => binary(BinOp::Min, a, b),
            AtomKind::Max(a, b) => binary(BinOp::Max, a, b),
            AtomKind::Choose(c, t, f) => {
                Some(Expr::if_then_else(self.expr(*c), self.to_expr(t)?, self.to_expr(f)?))
            }
            AtomKind::Narrow(ty, a) => {
                Some(Expr::cast(DType::Index, Expr::cast(*ty, self.to_expr(a)?)))
            }
            AtomKind::Opaque(key) => Some(Expr::cast(DType::Index, self.expr(*key))),
        }
    }
}

/// Whether `index` holds every value of the type.
pub(super) fn is_exact_integer(ty: DType) -> bool {
    ty.is_int() && ty != DType::Uint64
}

/// Returns `(q, r)` with `a = c*q + r`. `q` has the terms that `c` divides, `r` the others and a
/// constant in `0..c`.
fn divide_terms(a: &Poly, c: i128) -> (Poly, Poly) {
    let mut quotient = Poly::of_constant(floor_div(a.constant, c));
    let mut rest = Poly::of_constant(floor_mod(a.constant, c));
    for (mono, coefficient) in &a.terms {
        if coefficient % c == 0 {
            quotient.terms.push((mono.clone(), coefficient / c));
        } else {
            rest.terms.push((mono.clone(), *coefficient));
        }
    }
    (quotient, rest)
}

/// Returns a sum as an expression: a positive term first, the constant last, subtractions for
/// negative coefficients. Without a positive term the constant is first: `-1 - x` fits 64 bits for
/// every negative `x`, but `-x` does not.
pub(crate) fn build_sum(mut terms: Vec<(Expr, i128)>, constant: i128) -> Expr {
    let literal = |value: i128| Expr::int(DType::Index, value);
    let scaled = |term: Expr, factor: i128| match factor {
        1 => term,
        _ => Expr::mul(term, literal(factor)),
    };
    if terms.is_empty() {
        return literal(constant);
    }
    let first = terms.iter().position(|term| term.1 > 0);
    let mut acc = match first {
        Some(at) => {
            let (term, coefficient) = terms.remove(at);
            scaled(term, coefficient)
        }
        None if constant != 0 => literal(constant),
        None => {
            let (term, coefficient) = terms.remove(0);
            match coefficient {
                -1 => Expr::unary(UnOp::Neg, term),
                _ => scaled(term, coefficient),
            }
        }
    };
    for (term, coefficient) in terms {
        acc = match coefficient > 0 {
            true => Expr::add(acc, scaled(term, coefficient)),
            false => Expr::sub(acc, scaled(term, -coefficient)),
        };
    }
    if first.is_none() || constant == 0 {
        acc
    } else if constant > 0 {
        Expr::add(acc, literal(constant))
    } else {
        Expr::sub(acc, literal(-constant))
    }
}

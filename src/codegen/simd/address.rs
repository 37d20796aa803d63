//! Addresses. An index becomes a polynomial, and accesses whose indices differ by a constant share
//! a pointer. A pointer that is linear in a loop's variable is advanced once in each iteration.
//!
//! The arithmetic of these polynomials wraps modulo 2^64, as that of the machine does. Everything
//! but sums, differences and products is an atom: a variable, a quotient, a load. A product of
//! large sums is an atom as well.

use super::inst::{Arg, Base, Cond, Mem};
use super::nest::{Scope, Selector, Val};
use super::plan;
use crate::ir::arith::{Monomial, Polynomial};
use crate::ir::equal::equal;
use crate::ir::visit::reads_memory;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Stmt, UnOp, Var, visit};
use iced_x86::Code;
use regalloc2::VReg;
use rustc_hash::{FxHashMap, FxHashSet};
use std::num::Wrapping;

/// The number of a variable, or of another expression that is no sum or product.
pub(super) type Atom = usize;

/// An index as a polynomial modulo 2^64.
pub(super) type Poly = Polynomial<Atom, Wrapping<i64>>;

/// A [`Poly`] whose constant is 0.
pub(super) type Terms = Poly;

/// A product with more terms than this is not multiplied out.
const MAX_TERMS: usize = 24;

/// A run-time distance between accesses, in registers: `bytes * product` and three times that.
pub(super) struct Stride {
    product: Monomial<Atom>,
    bytes: i64,
    value: VReg,
    thrice: VReg,
}

/// Most pointers that are computed before a loop for the loops inside it.
const MOST_BEFORE: usize = 4;

/// Loops with more accesses than this get no pointers before them: there are too few registers.
const MANY_ACCESSES: usize = 16;

/// A distance between accesses as a multiple of a [`Stride`].
struct Steps {
    count: i64,
    /// The stride: its scope, and its place there.
    of: (usize, usize),
    /// The stride as a product and its coefficient in elements.
    unit: (Monomial<Atom>, i64),
}

/// Accesses that are more strides apart than this have pointers of their own.
const MOST_STEPS: i64 = 64;

/// The difference of two sums if it is a single product: the product and its coefficient.
fn distance(from: &Terms, to: &Terms) -> Option<(Monomial<Atom>, i64)> {
    let mut terms = (to - from).terms.into_iter();
    let (product, coefficient) = terms.next()?;
    terms.next().is_none().then_some((product, coefficient.0))
}

/// The atoms of a nest. Equal expressions have one number.
#[derive(Default)]
pub(super) struct Atoms {
    list: Vec<Expr>,
    by_var: FxHashMap<Var, Atom>,
    by_id: FxHashMap<usize, Atom>,
}

impl Atoms {
    fn of(&mut self, expr: &Expr) -> Atom {
        if let Some(var) = expr.as_var() {
            if let Some(atom) = self.by_var.get(var) {
                return *atom;
            }
            self.by_var.insert(var.clone(), self.list.len());
        } else {
            if let Some(atom) = self.by_id.get(&expr.id()) {
                return *atom;
            }
            if let Some(atom) = self.list.iter().position(|known| equal(known, expr)) {
                return atom;
            }
            // The list holds the expression, so no other one gets its address.
            self.by_id.insert(expr.id(), self.list.len());
        }
        self.list.push(expr.clone());
        self.list.len() - 1
    }

    pub(super) fn expr(&self, atom: Atom) -> &Expr {
        &self.list[atom]
    }

    pub(super) fn of_var(&mut self, var: &Var) -> Atom {
        self.of(&Expr::var(var))
    }
}

impl Selector<'_> {
    /// Returns an index as a polynomial. A variable that a `let` binds to arithmetic is replaced by
    /// its value.
    pub(super) fn poly(&mut self, expr: &Expr) -> Poly {
        if let Some(value) = expr.as_int() {
            return Poly::of_constant(Wrapping(value as i64));
        }
        match &expr.kind {
            ExprKind::Binary(BinOp::Add, a, b) => &self.poly(a) + &self.poly(b),
            ExprKind::Binary(BinOp::Sub, a, b) => &self.poly(a) - &self.poly(b),
            ExprKind::Unary(UnOp::Neg, a) => &self.poly(a) * Wrapping(-1),
            ExprKind::Binary(BinOp::Mul, a, b) => {
                let (x, y) = (self.poly(a), self.poly(b));
                let count = |poly: &Poly| poly.term_count() + usize::from(poly.constant.0 != 0);
                if count(&x) * count(&y) <= MAX_TERMS { &x * &y } else { self.atom(expr) }
            }
            ExprKind::Var(var) => match self.lets.get(var).cloned() {
                Some(value) => self.poly(&value),
                None => self.atom(expr),
            },
            _ => self.atom(expr),
        }
    }

    fn atom(&mut self, expr: &Expr) -> Poly {
        Poly::atom(self.atoms.of(expr))
    }

    /// Returns the terms of an index, and its constant.
    pub(super) fn terms(&mut self, expr: &Expr) -> (Terms, i64) {
        without_constant(self.poly(expr))
    }

    /// Returns the place of the term that is known in the innermost scope; of several, the last.
    fn innermost_term(&self, terms: &Terms) -> Option<usize> {
        let depth = |place: &usize| {
            let atoms = &terms.terms[*place].0;
            (atoms.iter().map(|atom| self.depth_of(*atom)).max().unwrap_or(0), *place)
        };
        (0..terms.term_count()).max_by_key(depth)
    }

    /// Returns the innermost scope that binds a variable of an atom.
    fn depth_of(&self, atom: Atom) -> usize {
        let mut depth = 0;
        for_each_var(self.atoms.expr(atom), &mut |var| {
            let found = self.scopes.iter().rposition(|scope| scope.vars.contains_key(var));
            depth = depth.max(found.unwrap_or(0));
        });
        depth
    }

    /// Emits the address of element `index`.
    pub(super) fn address(&mut self, buffer: &Buffer, index: &Expr) -> Mem {
        let (terms, constant) = self.terms(index);
        let bytes = buffer.dtype.bytes() as i64;
        let disp = constant.wrapping_mul(bytes);
        let (disp, far) = match i32::try_from(disp) {
            Ok(disp) => (disp, 0),
            Err(_) => (0, disp),
        };
        if terms.term_count() == 0
            && far == 0
            && let Some(offset) = self.frames.get(buffer)
        {
            return Mem { base: Base::Frame(*offset), index: None, disp };
        }
        if far == 0
            && self.known_pointer(buffer, &terms).is_none()
            && let Some(mem) = self.beside_leader(buffer, &terms)
        {
            return Mem { disp, ..mem };
        }
        let mut pointer = self.pointer(buffer, &terms);
        if far != 0 {
            pointer = self.b.add_imm(pointer, far);
        }
        Mem { base: Base::Reg(pointer), index: None, disp }
    }

    /// Emits the address of the element whose index is the sum of `terms`, in a register.
    pub(super) fn pointer(&mut self, buffer: &Buffer, terms: &Terms) -> VReg {
        if let Some(pointer) = self.known_pointer(buffer, terms) {
            return pointer;
        }
        // Outer terms are added first, so that pointers share the partial sums.
        let pointer = match self.innermost_term(terms) {
            None => self.base_pointer(buffer),
            Some(innermost) => {
                let mut outer = terms.clone();
                let (product, coefficient) = &outer.terms.remove(innermost);
                let outer = self.pointer(buffer, &outer);
                let factor = coefficient * Wrapping(buffer.dtype.bytes() as i64);
                let value = self.product(product);
                self.add_scaled(outer, value, factor.0)
            }
        };
        self.remember_pointer(buffer, terms.clone(), pointer);
        pointer
    }

    /// Computes before a loop the invariant parts of the pointers inside it, [`MOST_BEFORE`] at
    /// most, if they need a multiplication.
    pub(super) fn pointers_before(&mut self, body: &Stmt) {
        let mut found = Vec::new();
        plan::inner_accesses(body, &mut self.lets, &mut found);
        if found.len() > MANY_ACCESSES {
            return;
        }
        let mut left = MOST_BEFORE;
        for (buffer, index) in found {
            let (mut terms, _) = self.terms(&index);
            terms.terms.retain(|(product, _)| product.iter().all(|atom| self.is_known(*atom)));
            let multiplies = terms.terms.iter().any(|(product, _)| product.len() > 1);
            let known = self.known_pointer(&buffer, &terms).is_some();
            if left > 0 && multiplies && !known && self.has_address(&buffer) {
                self.pointer(&buffer, &terms);
                left -= 1;
            }
        }
    }

    fn known_pointer(&self, buffer: &Buffer, terms: &Terms) -> Option<VReg> {
        let in_scope = |scope: &Scope| scope.pointers.get(buffer)?.get(terms).copied();
        self.scopes.iter().rev().find_map(in_scope)
    }

    /// Addresses an access by the pointer of another access and a stride in a register. If the
    /// distance is no factor of an addressing mode, emits a pointer between the two, which later
    /// accesses can use as well.
    fn beside_leader(&mut self, buffer: &Buffer, terms: &Terms) -> Option<Mem> {
        loop {
            let base_pointers = self.scopes.iter().rev().flat_map(|scope| &scope.base_pointers);
            let near = base_pointers
                .filter(|(other, ..)| other == buffer)
                .filter_map(|(_, known, base)| {
                    Some((self.steps(buffer, known, terms)?, known, base))
                })
                .min_by_key(|(steps, ..)| steps.count);
            let (Steps { count, of, unit }, known, base) = near?;
            let (known, base) = (known.clone(), Base::Reg(*base));
            let Stride { value, thrice, .. } = self.stride(of);
            let index = match count {
                1 | 2 | 4 | 8 => (*value, count as u8),
                3 | 6 | 12 => (*thrice, (count / 3) as u8),
                _ => {
                    let step = if count > 8 { 8 } else { 4 };
                    let index = Some((*value, step as u8));
                    let pointer = self.b.lea(Mem { base, index, disp: 0 });
                    let (product, elements) = unit;
                    let distance = Poly::monomial(product, Wrapping(elements) * Wrapping(step));
                    let terms = &known + &distance;
                    self.remember_pointer(buffer, terms.clone(), pointer);
                    let scope = self.scopes.last_mut().expect("a scope");
                    scope.base_pointers.push((buffer.clone(), terms, pointer));
                    continue;
                }
            };
            return Some(Mem { base, index: Some(index), disp: 0 });
        }
    }

    /// Returns the distance between two sums as a multiple of a stride that is in a register.
    fn steps(&self, buffer: &Buffer, from: &Terms, to: &Terms) -> Option<Steps> {
        let (product, elements) = distance(from, to)?;
        let size = buffer.dtype.bytes() as i64;
        let bytes = elements.checked_mul(size)?;
        self.scopes.iter().enumerate().rev().find_map(|(scope, known)| {
            known.strides.iter().enumerate().find_map(|(place, stride)| {
                let count = bytes / stride.bytes;
                let fits = stride.product == product
                    && bytes % stride.bytes == 0
                    && stride.bytes % size == 0
                    && (1..=MOST_STEPS).contains(&count);
                let unit = (product.clone(), stride.bytes / size);
                fits.then_some(Steps { count, of: (scope, place), unit })
            })
        })
    }

    fn stride(&self, (scope, place): (usize, usize)) -> &Stride {
        &self.scopes[scope].strides[place]
    }

    /// Whether an access in the loop over `var` can be addressed by the pointer of the access
    /// `base`. Emits the stride between the two, which must be invariant in the loop, unless it is
    /// in a register.
    pub(super) fn share_pointer(
        &mut self,
        buffer: &Buffer,
        base: &Terms,
        terms: &Terms,
        var: &Var,
    ) -> bool {
        if self.steps(buffer, base, terms).is_some() {
            return true;
        }
        let Some((product, elements)) = distance(base, terms) else { return false };
        let Some(bytes) = elements.checked_mul(buffer.dtype.bytes() as i64) else { return false };
        let atom = self.atoms.of_var(var);
        let is_invariant = |other: &Atom| *other != atom && self.is_known(*other);
        let mut known = self.scopes.iter().flat_map(|scope| &scope.strides);
        if !product.iter().all(is_invariant) || known.any(|stride| stride.product == product) {
            return false;
        }
        let value = self.product(&product);
        let value = self.b.mul_imm(value, bytes);
        let index = Some((value, 2));
        let thrice = self.b.lea(Mem { base: Base::Reg(value), index, disp: 0 });
        let scope = self.scopes.last_mut().expect("a scope");
        scope.strides.push(Stride { product, bytes, value, thrice });
        true
    }

    pub(super) fn remember_pointer(&mut self, buffer: &Buffer, terms: Terms, pointer: VReg) {
        self.note_reads(&terms);
        let scope = self.scopes.last_mut().expect("a scope");
        scope.pointers.entry(buffer.clone()).or_default().insert(terms, pointer);
    }

    /// Notes whether an address of these terms depends on memory, as that of `S[U[0]]` does.
    pub(super) fn note_reads(&mut self, terms: &Terms) {
        let reads = |atom: usize| reads_memory(self.atoms.expr(atom));
        self.addresses_read = self.addresses_read || terms.atoms().into_iter().any(reads);
    }

    /// Forgets pointers and multiples of indices that depend on memory that is written.
    pub(super) fn forget_addresses(&mut self, changes: &dyn Fn(&Expr) -> bool) {
        if !self.addresses_read {
            return;
        }
        let atoms = &self.atoms;
        let stays =
            |terms: &Terms| !terms.atoms().into_iter().any(|atom| changes(atoms.expr(atom)));
        for scope in &mut self.scopes {
            scope.pointers.values_mut().for_each(|known| known.retain(|terms, _| stays(terms)));
            scope.multiples.retain(|(terms, ..), _| stays(terms));
        }
    }

    fn base_pointer(&mut self, buffer: &Buffer) -> VReg {
        match self.frames.get(buffer) {
            Some(offset) => {
                let mem = Mem { base: Base::Frame(*offset), index: None, disp: 0 };
                self.b.lea(mem)
            }
            None => self.captured_base(buffer),
        }
    }

    /// Emits `base + value * factor`.
    fn add_scaled(&mut self, base: VReg, value: VReg, factor: i64) -> VReg {
        match factor {
            1 | 2 | 4 | 8 => {
                let index = Some((value, factor as u8));
                self.b.lea(Mem { base: Base::Reg(base), index, disp: 0 })
            }
            _ => {
                let scaled = self.b.mul_imm(value, factor);
                self.b.lea(Mem { base: Base::Reg(base), index: Some((scaled, 1)), disp: 0 })
            }
        }
    }

    /// Emits the product of atoms.
    fn product(&mut self, atoms: &[Atom]) -> VReg {
        let mut values = atoms.iter().map(|atom| self.atom_value(*atom)).collect::<Vec<_>>();
        let first = values.remove(0);
        values.into_iter().fold(first, |product, value| self.b.mul(product, value))
    }

    /// Emits the value of an atom, once in a scope.
    fn atom_value(&mut self, atom: Atom) -> VReg {
        let expr = self.atoms.expr(atom).clone();
        if expr.as_var().is_none() {
            for scope in self.scopes.iter().rev() {
                if let Some(value) = scope.atoms.get(&atom) {
                    return *value;
                }
            }
        }
        let Val::Gpr(value) = self.value(&expr) else {
            crate::bug!("an index in a vector register");
        };
        if expr.as_var().is_none() && !reads_memory(&expr) {
            self.scopes.last_mut().expect("a scope").atoms.insert(atom, value);
        }
        value
    }

    /// Emits the sum of terms and a constant, in a register.
    pub(super) fn sum(&mut self, terms: &Terms, constant: i64) -> VReg {
        let mut sum = None;
        for (product, Wrapping(coefficient)) in &terms.terms {
            let value = self.product(product);
            sum = Some(match sum {
                None => self.b.mul_imm(value, *coefficient),
                Some(sum) => self.add_scaled(sum, value, *coefficient),
            });
        }
        match sum {
            None => self.b.imm(constant),
            Some(sum) => self.b.add_imm(sum, constant),
        }
    }

    /// Returns a register and a constant that compare like `a` and `b`, if
    /// [`Self::differences_before`] computed their difference.
    pub(super) fn known_difference(&mut self, a: &Expr, b: &Expr) -> Option<(VReg, i64)> {
        let (terms, constant) = self.difference(a, b)?;
        let known = self.scopes.iter().rev().find_map(|scope| scope.differences.get(&terms));
        known.map(|(difference, own)| (*difference, own - constant))
    }

    /// Returns the terms and the constant of `a - b`; `None` if the constants are large.
    fn difference(&mut self, a: &Expr, b: &Expr) -> Option<(Terms, i64)> {
        if !plan::has_small_constants(a) || !plan::has_small_constants(b) {
            return None;
        }
        let (terms, constant) = without_constant(&self.poly(a) - &self.poly(b));
        (constant.unsigned_abs() < 1 << 60).then_some((terms, constant))
    }

    /// Computes before a loop each invariant difference that several conditions in its body compare
    /// with constants, as the conditions of unrolled iterations in a tail do.
    pub(super) fn differences_before(&mut self, body: &Stmt) {
        let mut seen = FxHashSet::default();
        for (a, b) in plan::index_conditions(body) {
            let Some((terms, constant)) = self.difference(&a, &b) else { continue };
            let known = terms.atoms().into_iter().all(|atom| self.is_known(atom));
            if known && terms.term_count() > 1 && !seen.insert(terms.clone()) {
                let scope = self.scopes.iter().rev();
                if scope.clone().all(|scope| !scope.differences.contains_key(&terms)) {
                    let difference = match self.is_moderate(&a) && self.is_moderate(&b) {
                        true => (self.sum(&terms, 0), 0),
                        false => (self.saturated_difference(&a, &b), constant),
                    };
                    let scope = self.scopes.last_mut().expect("a scope");
                    scope.differences.insert(terms, difference);
                }
            }
        }
    }

    /// Whether the difference of this index and another such index is known to fit in 64 bits.
    pub(super) fn is_moderate(&self, index: &Expr) -> bool {
        let limit = 1 << 60;
        match self.facts.const_bounds(index) {
            (Some(low), Some(high)) => -limit < low && high < limit,
            _ => false,
        }
    }

    /// Emits `a - b`, saturated to 64 bits, which compares with small numbers as the difference
    /// does.
    fn saturated_difference(&mut self, a: &Expr, b: &Expr) -> VReg {
        let x = self.index_value(a);
        let sign = self.b.modify(Code::Sar_rm64_imm8, x, &[Arg::Imm(63)]);
        let largest = self.b.imm(i64::MAX);
        let nearest = self.b.modify(Code::Xor_r64_rm64, sign, &[Arg::Use(largest)]);
        // This is computed last to shorten its live range: few registers are free here.
        let y = self.index_value(b);
        let difference = self.b.sub(x, y);
        self.b.cmov(Cond::O, nearest, difference)
    }

    /// Returns the change of a sum when `var` grows by one, as terms and constant, and the sum for
    /// `var = min`. `None` if the sum is not linear in `var`, or if another atom is not known
    /// outside of the loop.
    pub(super) fn split_by(
        &mut self,
        terms: &Terms,
        var: &Var,
        min: &Expr,
    ) -> Option<(Terms, i64, Poly)> {
        let atom = self.atoms.of_var(var);
        let min = self.poly(min);
        let (step, rest) = terms.split(atom)?;
        let known = |poly: &Poly| poly.atoms().into_iter().all(|atom| self.is_known(atom));
        if !known(&step) || !known(&rest) {
            return None;
        }
        let first = &(&step * &min) + &rest;
        let (step, constant) = without_constant(step);
        Some((step, constant, first))
    }

    /// Whether an atom has a value here that nothing changes later.
    fn is_known(&self, atom: Atom) -> bool {
        let expr = self.atoms.expr(atom);
        let mut known = !reads_memory(expr);
        for_each_var(expr, &mut |var| known &= self.is_bound(var));
        known
    }

    /// Emits the address of the element whose index is `poly`.
    pub(super) fn pointer_to(&mut self, buffer: &Buffer, poly: Poly) -> VReg {
        let (terms, constant) = without_constant(poly);
        let pointer = self.pointer(buffer, &terms);
        self.b.add_imm(pointer, constant.wrapping_mul(buffer.dtype.bytes() as i64))
    }
}

/// Splits a polynomial into its terms and its constant.
fn without_constant(mut poly: Poly) -> (Terms, i64) {
    let constant = std::mem::take(&mut poly.constant);
    (poly, constant.0)
}

/// Calls `f` for each variable of an expression.
pub(super) fn for_each_var(expr: &Expr, f: &mut dyn FnMut(&Var)) {
    visit::walk_expr(expr, &mut |node| {
        if let Some(var) = node.as_var() {
            f(var);
        }
    });
}

/// Whether an expression is a scalar index, as [`Selector::poly`] expects.
pub(super) fn is_index(expr: &Expr) -> bool {
    expr.ty.dtype == DType::Index && expr.ty.lanes == 1
}

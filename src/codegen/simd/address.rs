//! Addresses: an index becomes a sum of products of what is known, and accesses that differ by
//! constants share one pointer. In a loop a pointer that its variable moves evenly is a value of
//! its own, advanced once an iteration.

use super::inst::{Arg, Base, Cond, Mem};
use super::nest::{Scope, Selector, Val};
use super::plan;
use crate::ir::equal::equal;
use crate::ir::visit::reads_memory;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Stmt, UnOp, Var, visit};
use iced_x86::Code;
use regalloc2::VReg;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// What an index is made of and not taken apart: a variable, or an operation such as a quotient.
pub(super) type Atom = usize;

/// A sum: products of atoms (sorted; none for the constant) with their factors, modulo 2^64.
pub(super) type Poly = BTreeMap<Vec<Atom>, i64>;

/// The products of a [`Poly`] without the constant, sorted.
pub(super) type Terms = Vec<(Vec<Atom>, i64)>;

/// More products than this are not multiplied out.
const MAX_TERMS: usize = 24;

/// A product, and its value times a factor in registers.
pub(super) struct Stride {
    product: Vec<Atom>,
    bytes: i64,
    /// So many bytes times the product.
    value: VReg,
    /// Three times that.
    thrice: VReg,
}

/// Pointers that begin before a loop for those inside of it, at most.
const MOST_BEFORE: usize = 4;

/// With more accesses there are no registers for them.
const MANY_ACCESSES: usize = 16;

/// A distance: how often which stride, by scope and place; a step in elements.
struct Steps {
    count: i64,
    of: (usize, usize),
    unit: (Vec<Atom>, i64),
}

/// Farther from each other accesses have pointers of their own.
const MOST_STEPS: i64 = 64;

/// The only product by which two sums differ, and how often.
fn distance(from: &Terms, to: &Terms) -> Option<(Vec<Atom>, i64)> {
    let of = |terms: &Terms| terms.iter().cloned().collect::<Poly>();
    let mut difference = of(to);
    add(&mut difference, &of(from), -1);
    let mut terms = difference.into_iter();
    terms.next().filter(|_| terms.next().is_none())
}

/// All atoms seen, by number.
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
            // The list keeps the expression, so the address stays its own.
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

fn add(a: &mut Poly, b: &Poly, factor: i64) {
    for (product, coefficient) in b {
        let sum = a.entry(product.clone()).or_insert(0);
        *sum = sum.wrapping_add(coefficient.wrapping_mul(factor));
        if *sum == 0 {
            a.remove(product);
        }
    }
}

fn multiply(a: &Poly, b: &Poly) -> Poly {
    let mut result = Poly::new();
    for (x, c) in a {
        for (y, d) in b {
            let mut product: Vec<Atom> = x.iter().chain(y).copied().collect();
            product.sort_unstable();
            let sum = result.entry(product).or_insert(0);
            *sum = sum.wrapping_add(c.wrapping_mul(*d));
        }
    }
    result.retain(|_, c| *c != 0);
    result
}

/// A constant as a sum.
fn constant(value: i64) -> Poly {
    let mut poly = Poly::new();
    if value != 0 {
        poly.insert(Vec::new(), value);
    }
    poly
}

impl Selector<'_> {
    /// An index as a sum. Variables that a `let` binds to arithmetic are replaced by it.
    pub(super) fn poly(&mut self, expr: &Expr) -> Poly {
        if let Some(value) = expr.as_int() {
            return constant(value as i64);
        }
        match &expr.kind {
            ExprKind::Binary(BinOp::Add, a, b) => {
                let (mut sum, b) = (self.poly(a), self.poly(b));
                add(&mut sum, &b, 1);
                sum
            }
            ExprKind::Binary(BinOp::Sub, a, b) => {
                let (mut sum, b) = (self.poly(a), self.poly(b));
                add(&mut sum, &b, -1);
                sum
            }
            ExprKind::Unary(UnOp::Neg, a) => {
                let mut sum = Poly::new();
                add(&mut sum, &self.poly(a), -1);
                sum
            }
            ExprKind::Binary(BinOp::Mul, a, b) => {
                let (x, y) = (self.poly(a), self.poly(b));
                if x.len() * y.len() <= MAX_TERMS { multiply(&x, &y) } else { self.atom(expr) }
            }
            ExprKind::Var(var) => match self.lets.get(var).cloned() {
                Some(value) => self.poly(&value),
                None => self.atom(expr),
            },
            _ => self.atom(expr),
        }
    }

    fn atom(&mut self, expr: &Expr) -> Poly {
        Poly::from([(vec![self.atoms.of(expr)], 1)])
    }

    /// An index as a sum without its constant.
    pub(super) fn terms(&mut self, expr: &Expr) -> (Terms, i64) {
        let mut poly = self.poly(expr);
        let constant = poly.remove(&Vec::new()).unwrap_or(0);
        (poly.into_iter().collect(), constant)
    }

    /// The term that is known last: in the innermost scope.
    fn last_known(&self, terms: &Terms) -> Option<usize> {
        let depth = |place: &usize| {
            let atoms = &terms[*place].0;
            (atoms.iter().map(|atom| self.depth_of(*atom)).max().unwrap_or(0), *place)
        };
        (0..terms.len()).max_by_key(depth)
    }

    /// The innermost scope that binds a variable of an atom.
    fn depth_of(&self, atom: Atom) -> usize {
        let mut depth = 0;
        for_each_var(self.atoms.expr(atom), &mut |var| {
            let found = self.scopes.iter().rposition(|scope| scope.vars.contains_key(var));
            depth = depth.max(found.unwrap_or(0));
        });
        depth
    }

    /// The address of element `index`.
    pub(super) fn address(&mut self, buffer: &Buffer, index: &Expr) -> Mem {
        let (terms, constant) = self.terms(index);
        let bytes = buffer.dtype.bytes() as i64;
        let disp = constant.wrapping_mul(bytes);
        let (disp, far) = match i32::try_from(disp) {
            Ok(disp) => (disp, 0),
            Err(_) => (0, disp),
        };
        if terms.is_empty()
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

    /// The address of the element with the index that `terms` add up to, in a register.
    pub(super) fn pointer(&mut self, buffer: &Buffer, terms: &Terms) -> VReg {
        if let Some(pointer) = self.known_pointer(buffer, terms) {
            return pointer;
        }
        // What is known furthest outside is added first, so that pointers share the beginning.
        let pointer = match self.last_known(terms) {
            None => self.base_pointer(buffer),
            Some(last) => {
                let mut before = terms.clone();
                let (product, coefficient) = &before.remove(last);
                let before = self.pointer(buffer, &before);
                let factor = coefficient.wrapping_mul(buffer.dtype.bytes() as i64);
                let value = self.product(product);
                self.add_scaled(before, value, factor)
            }
        };
        self.remember_pointer(buffer, terms.clone(), pointer);
        pointer
    }

    /// Computes before a loop the beginnings of pointers that the loops in it will need: those that
    /// take a product, a few of them.
    pub(super) fn pointers_before(&mut self, body: &Stmt) {
        let mut found = Vec::new();
        plan::inner_accesses(body, &mut self.lets, &mut found);
        if found.len() > MANY_ACCESSES {
            return;
        }
        let mut left = MOST_BEFORE;
        for (buffer, index) in found {
            let (mut terms, _) = self.terms(&index);
            terms.retain(|(product, _)| product.iter().all(|atom| self.is_known(*atom)));
            let takes_product = terms.iter().any(|(product, _)| product.len() > 1);
            let known = self.known_pointer(&buffer, &terms).is_some();
            if left > 0 && takes_product && !known && self.has_address(&buffer) {
                self.pointer(&buffer, &terms);
                left -= 1;
            }
        }
    }

    fn known_pointer(&self, buffer: &Buffer, terms: &Terms) -> Option<VReg> {
        let in_scope = |scope: &Scope| scope.pointers.get(buffer)?.get(terms).copied();
        self.scopes.iter().rev().find_map(in_scope)
    }

    /// An address by the pointer of another access and a distance from it that is in a register.
    /// Where that is too far, a pointer between the two is made, for those that follow too.
    fn beside_leader(&mut self, buffer: &Buffer, terms: &Terms) -> Option<Mem> {
        loop {
            let leaders = self.scopes.iter().rev().flat_map(|scope| &scope.leaders);
            let near = leaders
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
                    let mut sum = known.into_iter().collect::<Poly>();
                    add(&mut sum, &Poly::from([(product, elements)]), step);
                    let terms: Terms = sum.into_iter().collect();
                    self.remember_pointer(buffer, terms.clone(), pointer);
                    let scope = self.scopes.last_mut().expect("a scope");
                    scope.leaders.push((buffer.clone(), terms, pointer));
                    continue;
                }
            };
            return Some(Mem { base, index: Some(index), disp: 0 });
        }
    }

    /// How many steps of a distance in a register lead from one sum to another.
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

    /// Whether an access in a loop needs no pointer of its own because a pointer is near: the
    /// distance, which the loop leaves alone, is put into registers unless it is there.
    pub(super) fn join_leader(
        &mut self,
        buffer: &Buffer,
        leader: &Terms,
        terms: &Terms,
        var: &Var,
    ) -> bool {
        if self.steps(buffer, leader, terms).is_some() {
            return true;
        }
        let Some((product, elements)) = distance(leader, terms) else { return false };
        let Some(bytes) = elements.checked_mul(buffer.dtype.bytes() as i64) else { return false };
        let atom = self.atoms.of_var(var);
        let stays = |other: &Atom| *other != atom && self.is_known(*other);
        let mut known = self.scopes.iter().flat_map(|scope| &scope.strides);
        if !product.iter().all(stays) || known.any(|stride| stride.product == product) {
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
        let scope = self.scopes.last_mut().expect("a scope");
        scope.pointers.entry(buffer.clone()).or_default().insert(terms, pointer);
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

    /// `base + value * factor`.
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

    /// The product of atoms.
    fn product(&mut self, atoms: &[Atom]) -> VReg {
        let mut values = atoms.iter().map(|atom| self.atom_value(*atom)).collect::<Vec<_>>();
        let first = values.remove(0);
        values.into_iter().fold(first, |product, value| self.b.mul(product, value))
    }

    /// The value of an atom, computed once in a scope.
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

    /// The sum of terms and a constant, in a register.
    pub(super) fn sum(&mut self, terms: &Terms, constant: i64) -> VReg {
        let mut sum = None;
        for (product, coefficient) in terms {
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

    /// A register and a constant that compare like `a` and `b`, where `differences_before` made
    /// one.
    pub(super) fn known_difference(&mut self, a: &Expr, b: &Expr) -> Option<(VReg, i64)> {
        let (terms, constant) = self.difference(a, b)?;
        let known = self.scopes.iter().rev().find_map(|scope| scope.differences.get(&terms));
        known.map(|(difference, own)| (*difference, own - constant))
    }

    /// `a - b` and its constant, where that is small.
    fn difference(&mut self, a: &Expr, b: &Expr) -> Option<(Terms, i64)> {
        if !plan::has_small_constants(a) || !plan::has_small_constants(b) {
            return None;
        }
        let mut poly = self.poly(a);
        add(&mut poly, &self.poly(b), -1);
        let constant = poly.remove(&Vec::new()).unwrap_or(0);
        let small = constant.unsigned_abs() < 1 << 60;
        small.then(|| (poly.into_iter().collect(), constant))
    }

    /// Computes before a loop what several conditions in its body compare with constants, as those
    /// of unrolled iterations at an end.
    pub(super) fn differences_before(&mut self, body: &Stmt) {
        let mut seen = FxHashSet::default();
        for (a, b) in plan::index_conditions(body) {
            let Some((terms, constant)) = self.difference(&a, &b) else { continue };
            let known = terms.iter().flat_map(|(product, _)| product).all(|a| self.is_known(*a));
            if known && terms.len() > 1 && !seen.insert(terms.clone()) {
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

    /// Whether an index is known to be so far from the ends of 64 bits that differences fit.
    pub(super) fn is_moderate(&self, index: &Expr) -> bool {
        let limit = 1 << 60;
        match self.facts.const_bounds(index) {
            (Some(low), Some(high)) => -limit < low && high < limit,
            _ => false,
        }
    }

    /// `a - b`, or what is nearest to it in 64 bits: it compares with small numbers as the
    /// difference does.
    fn saturated_difference(&mut self, a: &Expr, b: &Expr) -> VReg {
        let x = self.index_value(a);
        let sign = self.b.modify(Code::Sar_rm64_imm8, x, &[Arg::Imm(63)]);
        let largest = self.b.imm(i64::MAX);
        let nearest = self.b.modify(Code::Xor_r64_rm64, sign, &[Arg::Use(largest)]);
        // Late, since few registers are free here.
        let y = self.index_value(b);
        let difference = self.b.sub(x, y);
        self.b.cmov(Cond::O, nearest, difference)
    }

    /// How a sum changes when `var` grows by one, and the sum for `var = min`; `None` if it does
    /// not change evenly, or if something in it is not known outside of the loop.
    pub(super) fn split_by(
        &mut self,
        terms: &Terms,
        var: &Var,
        min: &Expr,
    ) -> Option<(Terms, i64, Poly)> {
        let atom = self.atoms.of_var(var);
        let min = self.poly(min);
        let (mut step, mut first) = (Poly::new(), Poly::new());
        for (product, coefficient) in terms {
            let count = product.iter().filter(|other| **other == atom).count();
            let rest: Vec<Atom> = product.iter().filter(|other| **other != atom).copied().collect();
            let known = rest.iter().all(|other| self.is_known(*other));
            if count > 1 || !known {
                return None;
            }
            let rest = Poly::from([(rest, *coefficient)]);
            if count == 1 {
                add(&mut step, &rest, 1);
                add(&mut first, &multiply(&rest, &min), 1);
            } else {
                add(&mut first, &rest, 1);
            }
        }
        let constant = step.remove(&Vec::new()).unwrap_or(0);
        Some((step.into_iter().collect(), constant, first))
    }

    /// Whether everything in an atom has a value here, and will keep it.
    fn is_known(&self, atom: Atom) -> bool {
        let expr = self.atoms.expr(atom);
        let mut known = !reads_memory(expr);
        for_each_var(expr, &mut |var| known &= self.is_bound(var));
        known
    }

    /// The pointer and the constant for a sum of any form.
    pub(super) fn pointer_to(&mut self, buffer: &Buffer, mut poly: Poly) -> VReg {
        let constant = poly.remove(&Vec::new()).unwrap_or(0);
        let pointer = self.pointer(buffer, &poly.into_iter().collect());
        self.b.add_imm(pointer, constant.wrapping_mul(buffer.dtype.bytes() as i64))
    }
}

/// Calls `f` with every variable of an expression.
pub(super) fn for_each_var(expr: &Expr, f: &mut dyn FnMut(&Var)) {
    if let Some(var) = expr.as_var() {
        f(var);
    }
    visit::for_each_child(expr, &mut |child| for_each_var(child, f));
}

/// Whether it is an index that [`Selector::poly`] takes.
pub(super) fn is_index(expr: &Expr) -> bool {
    expr.ty.dtype == DType::Index && expr.ty.lanes == 1
}

//! Addresses: pointers that loops advance, constants folded into `[register+constant]`.
//!
//! An index is a polynomial over its atoms: variables, and operations that are no sums or products.
//! Its constant goes into the instruction. The other terms are added to the address of the buffer
//! outermost loop first, so that each prefix of the sum is computed once, before the loops further
//! inside. The terms that are linear in a loop's variable become a pointer that the loop advances.
//!
//! An index cannot be represented if a coefficient leaves 128 bits, if it has more than
//! [`MAX_TERMS`] terms, or if it multiplies a value that it reads from memory by another one. It is
//! then an atom.

use super::emit::{Base, Emitter, Memory, Place, Val, constant_bits, view};
use super::number::Number;
use super::range::WORD;
use crate::ir::arith::{Interval, Linear, Monomial, Polynomial, divisor, gcd};
use crate::ir::visit::{for_each_child, for_each_expr, for_each_stmt};
use crate::ir::warpgroup::{SWIZZLE_BYTES, swizzle};
use crate::ir::{BinOp, Buffer, Expr, ExprKind, Stmt, UnOp, Var};
use nvptx_builder::{Address, Operand, Reg, Source, Space, Ty};
use rustc_hash::FxHashSet;

/// An index with more terms than this is an atom.
const MAX_TERMS: usize = 16;

/// Most pointers that a loop advances: each takes a register.
const MAX_POINTERS: usize = 24;

/// What the polynomials of indices are made of. Numbers precede opaque atoms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Atom {
    /// An expression over variables.
    Number(Number),
    /// An expression that reads memory, by its place in [`Index::opaque`]. Each occurrence is an
    /// atom of its own.
    Opaque(u32),
}

/// A monomial and its coefficient.
pub(super) type Term = (Monomial<Atom>, i128);

/// A buffer, and the elements that are added to its address.
pub(super) type Key = (u32, Vec<Term>);

/// An index as a polynomial. Its coefficients are exact, because their ranges decide between
/// arithmetic in 32 and in 64 bits.
#[derive(Clone, Default)]
pub(super) struct Index {
    sum: Polynomial<Atom>,
    /// The expressions of opaque atoms.
    opaque: Vec<Expr>,
}

/// A pointer that a loop advances, and the bytes from one iteration to the next.
pub(super) struct Moving {
    pointer: Reg,
    step: Val,
}

impl Index {
    /// `self + other * factor`.
    fn plus_scaled(mut self, other: &Index, factor: i128) -> Option<Index> {
        let shift = self.opaque.len() as u32;
        let other_sum = other.sum.rename(|atom| match atom {
            Atom::Opaque(at) => Atom::Opaque(at + shift),
            number => *number,
        });
        self.opaque.extend(other.opaque.iter().cloned());
        Some(Index { sum: self.sum.plus_scaled(&other_sum, factor)?, opaque: self.opaque })
    }

    /// The product; `None` if a coefficient overflows, the product may have too many terms, or both
    /// operands vary and one reads memory.
    fn product(&self, other: &Index) -> Option<Index> {
        if let Some(factor) = other.sum.as_constant() {
            return Index::default().plus_scaled(self, factor);
        }
        if self.sum.as_constant().is_some() {
            return other.product(self);
        }
        if !self.opaque.is_empty() || !other.opaque.is_empty() {
            return None;
        }
        if (self.sum.term_count() + 1) * (other.sum.term_count() + 1) > MAX_TERMS {
            return None;
        }
        Some(Index { sum: self.sum.product(&other.sum)?, opaque: Vec::new() })
    }

    /// Whether no value is a multiple of 2.
    fn is_odd(&self) -> bool {
        self.sum.constant % 2 != 0 && self.sum.gcd() % 2 == 0
    }

    /// Whether every value is a multiple of `n`.
    fn is_multiple_of(&self, n: i128) -> bool {
        self.sum.constant % n == 0 && self.sum.gcd() % n == 0
    }
}

impl Emitter<'_> {
    /// Returns a scalar index as a polynomial.
    pub(super) fn poly(&mut self, expr: &Expr) -> Index {
        if let Some(poly) = self.polys.get(expr) {
            return poly.clone();
        }
        let poly = self.poly_of(expr).unwrap_or_else(|| self.atom(expr));
        self.polys.insert(expr, poly.clone());
        poly
    }

    fn poly_of(&mut self, expr: &Expr) -> Option<Index> {
        if let Some(value) = expr.as_int() {
            return Some(Index { sum: Polynomial::of_constant(value), opaque: Vec::new() });
        }
        let result = match &expr.kind {
            ExprKind::Binary(BinOp::Add, a, b) => self.poly(a).plus_scaled(&self.poly(b), 1)?,
            ExprKind::Binary(BinOp::Sub, a, b) => self.poly(a).plus_scaled(&self.poly(b), -1)?,
            ExprKind::Unary(UnOp::Neg, a) => Index::default().plus_scaled(&self.poly(a), -1)?,
            ExprKind::Binary(BinOp::Mul, a, b) => self.poly(a).product(&self.poly(b))?,
            _ => return None,
        };
        (result.sum.term_count() <= MAX_TERMS).then_some(result)
    }

    fn atom(&mut self, expr: &Expr) -> Index {
        let (atom, opaque) = match self.numbers.of(expr) {
            Some(number) => (Atom::Number(number), Vec::new()),
            None => (Atom::Opaque(0), vec![expr.clone()]),
        };
        Index { sum: Polynomial::atom(atom), opaque }
    }

    /// Emits the address of `buffer[index]`, of the first lane.
    pub(super) fn address(&mut self, memory: &Memory, bytes: u32, index: &Expr) -> Address {
        let Index { sum, opaque } = self.poly(index);
        let offset = (sum.constant as i64).wrapping_mul(i64::from(bytes));
        let terms = sum.terms;
        if terms.is_empty()
            && let Base::Symbol(symbol, start) = &memory.base
        {
            let offset = if memory.swizzled { swizzle(offset) } else { offset };
            return symbol.at(i64::from(*start) + offset);
        }
        let pointer = self.pointer(memory, bytes, &terms, &opaque);
        if memory.swizzled {
            // The order of pieces repeats after these bytes.
            let inside = offset.rem_euclid(SWIZZLE_BYTES);
            let place = self.swizzled(pointer, inside);
            return self.displaced(memory, place, offset - inside);
        }
        self.displaced(memory, pointer, offset)
    }

    /// Whether an index has a term with a negative factor.
    pub(super) fn subtracts(&mut self, index: &Expr) -> bool {
        self.poly(index).sum.terms.iter().any(|(_, factor)| *factor < 0)
    }

    /// Emits the address of `buffer[index]` as a register and an offset in bytes.
    pub(super) fn pointer_and_offset(
        &mut self,
        memory: &Memory,
        bytes: u32,
        index: &Expr,
    ) -> (Reg, i64) {
        let Index { sum, opaque } = self.poly(index);
        let offset = (sum.constant as i64).wrapping_mul(i64::from(bytes));
        (self.pointer(memory, bytes, &sum.terms, &opaque), offset)
    }

    /// Emits the address of element `index`, a register or constant.
    pub(super) fn address_of_lane(&mut self, memory: &Memory, bytes: u32, index: Val) -> Address {
        let base = self.pointer(memory, bytes, &[], &[]);
        let pointer = self.add_scaled(memory, base, index, i128::from(bytes));
        match memory.swizzled {
            true => self.swizzled(pointer, 0).at(0),
            false => pointer.at(0),
        }
    }

    /// Emits the place of the byte `offset` bytes after a pointer into shared memory with reordered
    /// pieces.
    fn swizzled(&mut self, pointer: Reg, offset: i64) -> Reg {
        if let Some(place) = self.swizzles.get(&(pointer, offset)) {
            return place;
        }
        let byte = match offset {
            0 => pointer,
            _ => self.e.add(pointer, Operand::int(pointer.ty(), offset)),
        };
        let byte = view(byte.operand(), Ty::B32);
        let line = self.e.shr(byte, 3u32);
        let moved = self.e.and(line.operand(), Operand::bits(Ty::B32, 7 << 4));
        let place = self.e.xor(byte, moved.operand());
        let place = place.view(pointer.ty()).expect("the same bits");
        self.swizzles.insert((pointer, offset), place);
        place
    }

    fn displaced(&mut self, memory: &Memory, pointer: Reg, offset: i64) -> Address {
        if i32::try_from(offset).is_ok() {
            return pointer.at(offset);
        }
        let offset = Operand::int(pointer_type(memory.space), offset);
        self.e.add(pointer, offset).at(0)
    }

    /// Returns the terms and the constant of an index: accesses of a buffer with the same terms
    /// differ by a constant distance. `None` if the index reads memory.
    pub(super) fn access_key(&mut self, index: &Expr) -> Option<(Vec<Term>, i128)> {
        let Index { sum, opaque } = self.poly(index);
        opaque.is_empty().then_some((sum.terms, sum.constant))
    }

    /// Whether every value of an index is known to be a multiple of `n`.
    pub(super) fn is_multiple(&mut self, index: &Expr, n: u32) -> bool {
        if self.poly(index).is_multiple_of(i128::from(n)) {
            return true;
        }
        let value_of = |var: &Var| self.definitions.get(var).cloned();
        if divisor(index, &value_of) % i128::from(n) == 0 {
            return true;
        }
        let rest = Expr::binary(BinOp::FloorMod, index.clone(), Expr::index(i64::from(n)));
        self.facts.prove(&Expr::eq(rest, Expr::index(0)))
    }

    /// Whether every value of an index is known to be odd.
    pub(super) fn is_odd(&mut self, index: &Expr) -> bool {
        self.poly(index).is_odd()
    }

    /// Emits the address of the buffer plus `terms` elements.
    fn pointer(&mut self, memory: &Memory, bytes: u32, terms: &[Term], opaque: &[Expr]) -> Reg {
        let key = (memory.id, terms.to_vec());
        if let (Base::Reg(base), true) = (&memory.base, terms.is_empty()) {
            return *base;
        }
        let lasting = terms.iter().all(|(factors, _)| factors.iter().all(is_number));
        if lasting && let Some(pointer) = self.pointers.get(&key) {
            return pointer;
        }
        let pointer = if terms.is_empty() {
            self.start(memory)
        } else {
            let ranks: Vec<u64> = terms.iter().map(|term| self.rank(term, opaque)).collect();
            let top = *ranks.iter().max().expect("there are terms");
            let pick = |inner: bool| -> Vec<Term> {
                let pairs = terms.iter().zip(&ranks);
                pairs.filter(|(_, rank)| (**rank == top) == inner).map(|p| p.0.clone()).collect()
            };
            let (inner, outer) = (pick(true), pick(false));
            let base = self.pointer(memory, bytes, &outer, opaque);
            let (sum, scale) = self.sum(&inner, opaque);
            self.add_scaled(memory, base, sum, scale * i128::from(bytes))
        };
        if lasting {
            self.pointers.insert(key, pointer);
        }
        pointer
    }

    /// Emits the address of the first element.
    fn start(&mut self, memory: &Memory) -> Reg {
        match &memory.base {
            Base::Reg(base) => *base,
            Base::Symbol(symbol, offset) => {
                let start = match memory.space {
                    Space::Shared => self.e.address_of_shared(symbol).erase(),
                    _ => self.e.address_of(symbol).erase(),
                };
                match offset {
                    0 => start,
                    _ => self.e.add(start, Operand::int(start.ty(), i64::from(*offset))),
                }
            }
        }
    }

    /// Orders terms by the place where they are known: twice the number of enclosing loops there,
    /// plus one if the term does not contain the variable of the innermost of these loops.
    fn rank(&mut self, (factors, _): &Term, opaque: &[Expr]) -> u64 {
        let mut rank = 0;
        for atom in factors {
            let depth = u64::from(self.depth(*atom, opaque));
            let of_loop = self.loop_of(*atom).is_some();
            rank = rank.max(2 * depth + u64::from(depth > 0 && !of_loop));
        }
        rank
    }

    /// Returns the depth of the loop whose variable the atom is.
    fn loop_of(&mut self, atom: Atom) -> Option<usize> {
        let Atom::Number(number) = atom else { return None };
        let var = self.numbers.expr(number).as_var()?;
        self.loops.iter().position(|one| one == var).map(|at| at + 1)
    }

    /// Returns the number of loops around the place where all variables of the atom are known;
    /// [`u32::MAX`] if one is not known yet.
    fn depth(&mut self, atom: Atom, opaque: &[Expr]) -> u32 {
        let expr = match atom {
            Atom::Number(number) => self.numbers.expr(number).clone(),
            // Any enclosing loop may change the memory that it reads.
            Atom::Opaque(at) => {
                let expr = opaque[at as usize].clone();
                return self.depth_of(&expr).max(self.loops.len() as u32);
            }
        };
        self.depth_of(&expr)
    }

    /// Returns the number of loops around the place where all variables of an expression are known.
    pub(super) fn depth_of(&self, expr: &Expr) -> u32 {
        fn walk(emitter: &Emitter<'_>, expr: &Expr, seen: &mut FxHashSet<usize>) -> u32 {
            if let ExprKind::Var(var) = &expr.kind {
                return emitter.vars.get(var).map_or(u32::MAX, |binding| binding.depth);
            }
            let mut depth = 0;
            for_each_child(expr, &mut |child| {
                if seen.insert(child.id()) {
                    depth = depth.max(walk(emitter, child, seen));
                }
            });
            depth
        }
        walk(self, expr, &mut FxHashSet::default())
    }

    /// Emits the sum of terms, divided by their common factor, and returns it with that factor.
    fn sum(&mut self, terms: &[Term], opaque: &[Expr]) -> (Val, i128) {
        let common = terms.iter().fold(0, |common, (_, scale)| gcd(common, *scale)).max(1);
        let divided: Vec<Term> =
            terms.iter().map(|(factors, scale)| (factors.clone(), scale / common)).collect();
        let range = self.range_of(&divided, opaque);
        let ty = if WORD.covers(range) { Ty::S32 } else { Ty::S64 };
        (self.sum_in(ty, &divided, opaque), common)
    }

    /// Emits an index that is a sum term by term, so that it shares partial sums with other
    /// indices. `None` if the index is constant, an atom, or reads memory.
    pub(super) fn index_sum(&mut self, expr: &Expr) -> Option<Val> {
        let Index { sum: Linear { terms, constant }, opaque } = self.poly(expr);
        if !opaque.is_empty() || terms.is_empty() {
            return None;
        }
        // A sum with too many terms, or whose coefficients overflow, is its own only term.
        if let ([(factors, 1)], 0) = (&terms[..], constant)
            && let [Atom::Number(number)] = factors[..]
            && self.numbers.of(expr) == Some(number)
        {
            return None;
        }
        let range = self.range_of(&terms, &[]).add(Interval::point(constant));
        let narrow = WORD.covers(range) || self.ranges.is_word(expr);
        let ty = if narrow { Ty::S32 } else { Ty::S64 };
        let sum = self.sum_in(ty, &terms, &[]);
        if constant == 0 {
            return Some(sum);
        }
        // Modulo 2^32, every constant fits in 32 bits.
        Some(self.e.add(sum, Operand::int(ty, constant as i64)).operand())
    }

    /// Returns constant bounds of a sum.
    pub(super) fn range_of(&mut self, terms: &[Term], opaque: &[Expr]) -> Interval {
        let mut range = Interval::point(0);
        for (factors, scale) in terms {
            let mut product = Interval::point(*scale);
            for atom in factors {
                let expr = self.expr_of(*atom, opaque);
                product = product.mul(self.ranges.of(&expr));
            }
            range = range.add(product);
        }
        range
    }

    fn expr_of(&self, atom: Atom, opaque: &[Expr]) -> Expr {
        match atom {
            Atom::Number(number) => self.numbers.expr(number).clone(),
            Atom::Opaque(at) => opaque[at as usize].clone(),
        }
    }

    /// Emits a sum in `ty`, modulo 2^32 or 2^64, outermost loop first. Later sums use its prefixes.
    fn sum_in(&mut self, ty: Ty, terms: &[Term], opaque: &[Expr]) -> Val {
        let mut ranked: Vec<(u64, Term)> =
            terms.iter().map(|term| (self.rank(term, opaque), term.clone())).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        let terms: Vec<Term> = ranked.into_iter().map(|(_, term)| term).collect();
        let lasting = |terms: &[Term]| terms.iter().all(|(atoms, _)| atoms.iter().all(is_number));
        let mut sum: Option<Val> = None;
        for (at, (factors, scale)) in terms.iter().enumerate() {
            let key = (ty, terms[..=at].to_vec());
            if let Some(known) = self.sums.get(&key) {
                sum = Some(known);
                continue;
            }
            let mut values = Vec::new();
            for atom in factors {
                let expr = self.expr_of(*atom, opaque);
                let value = self.expr(&expr);
                let fit = if ty == Ty::S32 { self.narrow(value) } else { self.widen(value) };
                values.push(fit);
            }
            let next = self.add_product(ty, sum, &values, *scale);
            if lasting(&key.1) {
                self.sums.insert(key, next);
            }
            sum = Some(next);
        }
        sum.expect("there are terms")
    }

    /// Emits `sum + scale * values…`.
    fn add_product(&mut self, ty: Ty, sum: Option<Val>, values: &[Val], scale: i128) -> Val {
        let scale = (scale != 1).then(|| Operand::int(ty, scale as i64));
        let factors: Vec<Val> = values.iter().copied().chain(scale).collect();
        let (last, first) = factors.split_last().expect("a term has a factor");
        let first = first.iter().copied().reduce(|a, b| self.e.mul(a, b).operand());
        match (sum, first) {
            (None, None) => *last,
            (None, Some(first)) => self.e.mul(first, *last).operand(),
            (Some(sum), None) => self.e.add(sum, *last).operand(),
            (Some(sum), Some(first)) => self.e.mad(first, *last, sum).operand(),
        }
    }

    /// Emits `base + index * scale`, in bytes.
    fn add_scaled(&mut self, memory: &Memory, base: Reg, index: Val, scale: i128) -> Reg {
        let ty = pointer_type(memory.space);
        if ty == Ty::U32 {
            let index = view(self.narrow(index), Ty::U32);
            return match scale {
                1 => self.e.add(base, index),
                _ => self.e.mad(index, Operand::int(Ty::U32, scale as i64), base),
            };
        }
        let signed = view(base.operand(), Ty::S64);
        let result = match (index.ty(), i32::try_from(scale)) {
            (Ty::S32, Ok(scale)) => {
                self.e.mad_wide(index, Operand::int(Ty::S32, i64::from(scale)), signed)
            }
            _ => {
                let index = self.widen(index);
                self.e.mad(index, Operand::int(Ty::S64, scale as i64), signed)
            }
        };
        result.view(Ty::U64).expect("addresses have 64 bits")
    }

    // ---- loops ----

    /// Emits, before a loop, the invariant parts of the addresses in it and the pointers that it
    /// advances. The loop's scope is open and its variable is bound.
    pub(super) fn prepare_loop(&mut self, var: &Var, min: Val, body: &Stmt) -> Vec<Moving> {
        let mut accesses = Vec::new();
        collect_accesses(body, &mut accesses, &mut FxHashSet::default());
        let depth = self.loops.len();
        let mut moving = Vec::new();
        let mut done = FxHashSet::default();
        for (buffer, index) in accesses {
            let Some(Place::Memory(memory)) = self.places.get(&buffer).cloned() else { continue };
            let Index { sum, opaque } = self.poly(&index);
            let bytes = buffer.dtype.bytes() as u32;
            let (mut outer, mut linear) = (Vec::new(), Vec::new());
            for term in sum.terms {
                let rank = self.rank(&term, &opaque);
                if rank < 2 * depth as u64 {
                    outer.push(term);
                } else if rank == 2 * depth as u64 && self.is_linear(&term, depth) {
                    linear.push(term);
                }
            }
            if !done.insert((memory.id, outer.clone(), linear.clone())) {
                continue;
            }
            let base = self.pointer(&memory, bytes, &outer, &opaque);
            if linear.is_empty() || moving.len() == MAX_POINTERS {
                continue;
            }
            moving.push(self.moving_pointer(&memory, bytes, base, &linear, (var, min)));
            let pointer = moving.last().expect("it was pushed").pointer;
            let mut terms = [outer, linear].concat();
            terms.sort();
            self.pointers.insert((memory.id, terms), pointer);
        }
        moving
    }

    /// Whether a term contains the loop's variable in the first power, given that its other atoms
    /// are invariant.
    fn is_linear(&mut self, (factors, _): &Term, depth: usize) -> bool {
        factors.iter().filter(|atom| self.loop_of(**atom) == Some(depth)).count() == 1
    }

    /// Emits a pointer to `base` plus the terms of a loop, as of its first iteration.
    fn moving_pointer(
        &mut self,
        memory: &Memory,
        bytes: u32,
        base: Reg,
        linear: &[Term],
        (var, min): (&Var, Val),
    ) -> Moving {
        let ty = pointer_type(memory.space);
        let signed = if ty == Ty::U32 { Ty::S32 } else { Ty::S64 };
        let mut constant = 0i128;
        let mut step: Option<Val> = None;
        for (factors, scale) in linear {
            let scale = scale * i128::from(bytes);
            let others: Vec<Atom> = factors
                .iter()
                .copied()
                .filter(|atom| match atom {
                    Atom::Number(number) => self.numbers.expr(*number).as_var() != Some(var),
                    Atom::Opaque(_) => true,
                })
                .collect();
            if others.is_empty() {
                constant += scale;
                continue;
            }
            let mut values = Vec::new();
            for atom in others {
                let Atom::Number(number) = atom else {
                    crate::bug!("a step that reads memory");
                };
                let expr = self.numbers.expr(number).clone();
                let value = self.expr(&expr);
                let fit = if ty == Ty::U32 { self.narrow(value) } else { self.widen(value) };
                values.push(fit);
            }
            step = Some(self.add_product(signed, step, &values, scale));
        }
        let constant = Operand::int(signed, constant as i64);
        let step = match step {
            None => constant,
            Some(step) if constant_bits(constant) == 0 => step,
            Some(step) => self.e.add(step, constant).operand(),
        };
        let pointer = self.e.reg_as(ty);
        let at_zero = min.reg().is_none() && constant_bits(min) == 0;
        if at_zero {
            self.e.to(pointer).mov(base);
        } else {
            let min = if ty == Ty::U32 { self.narrow(min) } else { self.widen(min) };
            let base = view(base.operand(), signed);
            let target = pointer.view(signed).expect("both have one size");
            self.e.to(target).mad(min, step, base);
        }
        Moving { pointer, step: view(step, ty) }
    }

    /// Advances the pointers of a loop by one iteration.
    pub(super) fn move_on(&mut self, moving: &[Moving]) {
        for one in moving {
            self.e.to(one.pointer).add(one.pointer, one.step);
        }
    }
}

fn is_number(atom: &Atom) -> bool {
    matches!(atom, Atom::Number(_))
}

/// The type of a register that holds an address in a space.
pub(super) fn pointer_type(space: Space) -> Ty {
    if space == Space::Shared { Ty::U32 } else { Ty::U64 }
}

/// Collects the accesses inside a statement with the index of the first lane, if the lanes are
/// evenly spaced.
fn collect_accesses(stmt: &Stmt, acc: &mut Vec<(Buffer, Expr)>, seen: &mut FxHashSet<usize>) {
    let mut note = |buffer: &Buffer, index: &Expr| match &index.kind {
        ExprKind::Ramp(base, _) => acc.push((buffer.clone(), base.clone())),
        _ if index.ty.is_scalar() => acc.push((buffer.clone(), index.clone())),
        _ => {}
    };
    if let Stmt::Store { buffer, indices, .. } = stmt {
        note(buffer, &indices[0]);
    }
    fn scan(expr: &Expr, note: &mut dyn FnMut(&Buffer, &Expr), seen: &mut FxHashSet<usize>) {
        if !seen.insert(expr.id()) {
            return;
        }
        if let ExprKind::Load { buffer, indices, .. } = &expr.kind {
            note(buffer, &indices[0]);
        }
        for_each_child(expr, &mut |child| scan(child, note, seen));
    }
    for_each_expr(stmt, &mut |expr| scan(expr, &mut note, seen));
    for_each_stmt(stmt, &mut |inner| collect_accesses(inner, acc, seen));
}

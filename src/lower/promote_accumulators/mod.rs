//! Promote accumulators: keeps the running values of a reduction in registers.
//!
//! Before: `C[i] = 0; for k { C[i] = C[i] + A[k] }`
//! After:  `allocate C.acc: register; C.acc[0] = 0; for k { C.acc[0] = C.acc[0] + A[k] };
//!          C[i] = C.acc[0]`
//! The loop may have bounds that are computed between (`C[i] = 0; let end = P[i]; for k { … }`).
//! The same holds for unrolled loops (`C[i] = 0; C[i] = C[i] + A[0]; …`), for vectors (`C[ramp(i,
//! 1, 8)]`), and for several elements of one buffer that provably do not overlap. A mask
//! (`C[ramp(i, 1, 8)] if (ramp(i, 1, 8) < x8(n))`) that the loop does not change is needed only in
//! the final store. With SIMD instructions, an update of some lanes becomes a `select`: the lanes
//! of a masked update, or the first lanes of the vector in the tail after the loop.
//!
//! On CPUs, elements that no store before the loop initializes are loaded first, unless the loop
//! stores them before it reads them. An outer loop over the reduction axis then passes them from
//! one inner loop to the next through memory:
//! Before: `for ko { for i { for ki { C[i] = C[i] + A[4*ko + ki] } } }`
//! After:  `for ko { for i { allocate C.acc: register; C.acc[0] = C[i]; for ki { C.acc[0] = … };
//!          C[i] = C.acc[0] } }`
//!
//! An outer loop may also begin with a copy of the element before, as scans do ([`carry`]).
//!
//! Needs: flattened, simplified indices, which it compares; vectors (`vectorize_loops`), which are
//! promoted whole. Stands before `insert_barriers` and `outline_simd`: accumulators in registers
//! need no barriers, and a nest contains its registers.
//! Ensures: no access to a promoted element between the initial and the final store.
//! Declines: more elements, bytes or lanes than `ir::limits` allows; elements that may overlap or
//! have an index that the loop changes; buffers that the nest accesses elsewhere. Elements that are
//! loaded first, too: loops that may have no iteration or only one, and stores under a condition,
//! because the element may then be out of bounds or belong to another thread.

mod carry;
mod widen;

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::limits::{MAX_PROMOTED_BYTES, MAX_PROMOTED_ELEMENTS, max_promoted_lanes};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{
    Memo, NodeSet, for_each_expr, for_each_load, map_stmts, mentions_any, reads_buffer,
    reads_memory, rewrite_exprs, stored_buffers, walk_stmt,
};
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, ForKind, Kernel, Scope, Stmt, Type, Var, visit,
};
use crate::target::Target;
use rustc_hash::FxHashSet;
use std::cell::RefCell;

/// Promotes every element that is stored and then only updated by the loop that follows.
pub fn promote_accumulators(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let promoter = Promoter {
        target,
        loads: !target.is_gpu(),
        selects: target.simd().is_some(),
        facts: RefCell::new(facts),
    };
    Ok(Kernel { body: promoter.promote(kernel.body), ..kernel })
}

struct Promoter<'a> {
    target: &'a Target,
    /// Whether elements without initial stores are loaded. The threads of a GPU may share them.
    loads: bool,
    /// Whether updates of some lanes become selections.
    selects: bool,
    /// What holds where the current statement runs.
    facts: RefCell<Facts>,
}

impl Promoter<'_> {
    /// Promotes in the statements inside of one, under what holds there.
    fn promote_inside(&self, stmt: Stmt) -> Stmt {
        let under = |learn: &dyn Fn(&mut Facts), inner: Stmt| {
            self.facts.borrow_mut().push();
            learn(&mut self.facts.borrow_mut());
            let inner = self.promote(inner);
            self.facts.borrow_mut().pop();
            inner
        };
        match stmt {
            Stmt::For { var, min, extent, kind, body } => {
                let learn = |facts: &mut Facts| {
                    assume_divisions(facts, &extent);
                    facts.bind(&var, &min, &extent);
                };
                let body = under(&learn, *body);
                Stmt::For { var, min, extent, kind, body: Box::new(body) }
            }
            Stmt::If { cond, then, otherwise } => {
                let then = under(&|facts| facts.assume_truth(&cond, true), *then);
                let otherwise = otherwise
                    .map(|otherwise| under(&|facts| facts.assume_truth(&cond, false), *otherwise));
                Stmt::If { cond, then: Box::new(then), otherwise: otherwise.map(Box::new) }
            }
            other => map_stmts(other, &mut |inner| self.promote(inner)),
        }
    }

    fn promote(&self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Block(stmts) => self.promote_block(stmts),
            Stmt::For { .. } => self.carry(&stmt).unwrap_or_else(|| self.promote_loop(stmt)),
            // The loops of an intrinsic keep their form.
            Stmt::Tensorize { .. } => {
                let facts = RefCell::new(Facts::new());
                Promoter { loads: false, facts, ..*self }.promote_inside(stmt)
            }
            other => self.promote_inside(other),
        }
    }

    /// Promotes elements that the loop updates and that no store before it initializes: they are
    /// loaded before the loop.
    fn promote_loop(&self, nest: Stmt) -> Stmt {
        let buffers = self.updated_buffers(&nest);
        let (mut stmts, nest, promoted) = self.load_first(nest, buffers);
        stmts.push(self.promote_inside(nest));
        in_registers(stmts, &promoted)
    }

    /// Redirects the elements of some buffers that a statement updates to registers. Returns the
    /// loads that stand before it, the statement, and the elements.
    fn load_first(&self, mut nest: Stmt, buffers: Vec<Buffer>) -> (Vec<Stmt>, Stmt, Vec<Elements>) {
        let (mut promoted, mut reads) = (Vec::new(), Vec::new());
        for buffer in buffers {
            let mut elements = self.elements_of(&buffer);
            certain_stores(&nest, &mut |buffer, index, mask| {
                let room = elements.list.len() <= MAX_PROMOTED_ELEMENTS;
                if *buffer == elements.buffer && room && elements.find(index, mask).is_none() {
                    elements.add(index, mask);
                }
            });
            if self.can_be_promoted(&elements, &[&nest]) {
                // What the first iteration stores before it loads may not exist in front of it.
                let loaded =
                    elements.list.iter().filter(|one| one.first_access(&nest) != Some(true));
                reads.extend(loaded.map(Element::read));
                nest = elements.redirect(nest);
                promoted.push(elements);
            }
        }
        (reads, nest, promoted)
    }

    /// Returns the buffers from outside a loop that it loads from and stores to, in order of the
    /// stores. None if the loop may have fewer than two iterations.
    fn updated_buffers(&self, nest: &Stmt) -> Vec<Buffer> {
        let Stmt::For { extent, kind: ForKind::Serial | ForKind::UnrollHint, .. } = nest else {
            return Vec::new();
        };
        if !self.loads || extent.as_int().is_none_or(|extent| extent < 2) || !runs_alone(nest) {
            return Vec::new();
        }
        let (mut loaded, mut seen) = (FxHashSet::default(), NodeSet::default());
        let mut inner = FxHashSet::default();
        walk_stmt(
            nest,
            &mut |stmt| {
                if let Stmt::Allocate { buffer, .. } = stmt {
                    inner.insert(buffer.clone());
                }
                for_each_expr(stmt, &mut |expr| {
                    for_each_load(expr, &mut seen, &mut |buffer, _, _| {
                        loaded.insert(buffer.clone());
                    });
                });
            },
            &mut |_| {},
        );
        let mut updated: Vec<Buffer> = Vec::new();
        certain_stores(nest, &mut |buffer, _, _| {
            if buffer.scope != Scope::Register
                && loaded.contains(buffer)
                && !inner.contains(buffer)
                && !updated.contains(buffer)
            {
                updated.push(buffer.clone());
            }
        });
        updated
    }

    fn promote_block(&self, stmts: Vec<Stmt>) -> Stmt {
        let mut flat = Vec::new();
        flatten(stmts, &mut flat);
        let mut done: Vec<Stmt> = Vec::new();
        // The stores directly before the current statement.
        let mut group: Vec<Stmt> = Vec::new();
        let mut flat = flat.into_iter().peekable();
        while let Some(stmt) = flat.next() {
            match stmt {
                Stmt::Store { .. } => group.push(stmt),
                Stmt::For { .. } => {
                    let stores = std::mem::take(&mut group);
                    let mut after = Vec::new();
                    while let Some(update) = flat.next_if(|next| updates_one_of(next, &stores)) {
                        after.push(update);
                    }
                    done.push(self.promote_group(stores, stmt, after));
                }
                Stmt::Let { .. } | Stmt::If { .. } if is_ragged_update(&stmt, &group) => {
                    done.push(self.promote_group(std::mem::take(&mut group), stmt, Vec::new()));
                }
                other => {
                    done.extend(self.promote_run(std::mem::take(&mut group)));
                    done.push(self.promote(other));
                }
            }
        }
        done.extend(self.promote_run(group));
        match done.len() {
            1 => done.remove(0),
            _ => Stmt::Block(done),
        }
    }

    /// Promotes accumulators in stores without a loop after them. Stores to elements that were
    /// stored just before are the updates of an unrolled reduction.
    fn promote_run(&self, run: Vec<Stmt>) -> Vec<Stmt> {
        let mut done = Vec::new();
        let (mut stores, mut updates): (Vec<Stmt>, Vec<Stmt>) = (Vec::new(), Vec::new());
        for stmt in run {
            if stores
                .iter()
                .rev()
                .take(MAX_PROMOTED_ELEMENTS)
                .any(|earlier| stores_same(earlier, &stmt))
            {
                updates.push(stmt);
                continue;
            }
            if !updates.is_empty() {
                done.push(self.promote_updates(&mut stores, &mut updates));
            }
            stores.push(stmt);
        }
        match updates.is_empty() {
            true => done.extend(stores),
            false => done.push(self.promote_updates(&mut stores, &mut updates)),
        }
        done
    }

    /// Promotes the elements of `stores` that `updates`, which stand directly after them, store
    /// again. Where the first stores are updates, too, the elements are loaded before them.
    fn promote_updates(&self, stores: &mut Vec<Stmt>, updates: &mut Vec<Stmt>) -> Stmt {
        let (stores, updates) = (std::mem::take(stores), std::mem::take(updates));
        let mut updated: Vec<Buffer> = Vec::new();
        for (at, store) in stores.iter().enumerate() {
            let Stmt::Store { buffer, .. } = store else { continue };
            let is_new = self.loads && buffer.scope != Scope::Register && !updated.contains(buffer);
            if is_new && self.initialized(&stores[at..]).is_none() {
                updated.push(buffer.clone());
            }
        }
        let count = stores.len();
        let run = Stmt::Block([stores, updates].concat());
        let (mut stmts, run, promoted) = self.load_first(run, updated);
        let Stmt::Block(mut stores) = run else { crate::bug!("a block stays one") };
        let updates = stores.split_off(count);
        stmts.push(self.promote_group(stores, Stmt::Block(updates), Vec::new()));
        in_registers(stmts, &promoted)
    }

    /// Promotes the elements that `stores`, which stand directly before `nest`, initialize. The
    /// stores in `after` stand directly after it and may update them, too.
    fn promote_group(&self, mut stores: Vec<Stmt>, mut nest: Stmt, mut after: Vec<Stmt>) -> Stmt {
        let (mut in_nest, mut to_end) = (Vec::new(), Vec::new());
        let mut tried = FxHashSet::default();
        for position in 0..stores.len() {
            let Stmt::Store { buffer, .. } = &stores[position] else { continue };
            // The buffer may be one that this pass has made.
            if buffer.scope == Scope::Register || !tried.insert(buffer.clone()) {
                continue;
            }
            let Some(elements) = self.initialized(&stores[position..]) else { continue };
            let tail: Vec<Stmt> = after
                .iter()
                .map(|store| match self.selects {
                    true => widen::widen(store, &elements.list).unwrap_or_else(|| store.clone()),
                    false => store.clone(),
                })
                .collect();
            let whole: Vec<&Stmt> = std::iter::once(&nest).chain(&tail).collect();
            let with_tail = !tail.is_empty() && self.can_be_promoted(&elements, &whole);
            if !with_tail && !self.can_be_promoted(&elements, &[&nest]) {
                continue;
            }
            let rest = stores.split_off(position);
            stores.extend(rest.into_iter().map(|stmt| elements.redirect(stmt)));
            nest = elements.redirect(nest);
            if with_tail {
                after = tail.into_iter().map(|stmt| elements.redirect(stmt)).collect();
                to_end.push(elements);
            } else {
                in_nest.push(elements);
            }
        }
        stores.push(match nest {
            Stmt::For { .. } => self.promote(nest),
            other => self.promote_inside(other),
        });
        if !after.is_empty() {
            stores = vec![in_registers(stores, &in_nest)];
            in_nest.clear();
            stores.extend(after);
        }
        in_nest.extend(to_end);
        in_registers(stores, &in_nest)
    }

    /// Returns the elements that stores initialize of the buffer that the first one writes; `None`
    /// if one of them reads an element before it is written. They may read others of the buffer, as
    /// the start value of a scan does.
    fn initialized(&self, stores: &[Stmt]) -> Option<Elements> {
        let Some(Stmt::Store { buffer, .. }) = stores.first() else { return None };
        let mut elements = self.elements_of(buffer);
        let mut others: Vec<Element> = Vec::new();
        for store in stores {
            let mut seen = NodeSet::default();
            for_each_expr(store, &mut |expr| {
                for_each_load(expr, &mut seen, &mut |buffer, indices, mask| {
                    let is_new = mask.is_some() || elements.find(&indices[0], None).is_none();
                    if *buffer == elements.buffer && is_new {
                        others.push(Element::new(buffer, &indices[0], mask));
                    }
                });
            });
            let Stmt::Store { buffer, indices, mask, .. } = store else { return None };
            if elements.list.len().max(others.len()) > MAX_PROMOTED_ELEMENTS {
                return None;
            }
            let mask = mask.as_ref();
            if *buffer == elements.buffer && elements.find(&indices[0], mask).is_none() {
                // The register does not have the lanes that the mask turns off.
                if mask.is_some() && elements.list.iter().any(|e| equal(&e.index, &indices[0])) {
                    return None;
                }
                elements.add(&indices[0], mask);
            }
        }
        let apart = |other: &Element| {
            let from_memory = other.mask.is_none() && !reads_memory(&other.index);
            from_memory && elements.list.iter().all(|element| self.are_disjoint(element, other))
        };
        others.iter().all(apart).then_some(elements)
    }

    /// Returns no elements yet of a buffer. No operation but a conversion computes a half.
    fn elements_of(&self, buffer: &Buffer) -> Elements {
        let selects = self.selects && !buffer.dtype.is_half();
        Elements { buffer: buffer.clone(), list: Vec::new(), selects }
    }

    /// Whether the elements can be in registers while statements run, and the first of these stores
    /// to one of them.
    fn can_be_promoted(&self, elements: &Elements, stmts: &[&Stmt]) -> bool {
        let mut bound = FxHashSet::default();
        stmts.iter().for_each(|stmt| bind_vars(stmt, &mut bound));
        let list = &elements.list;
        let lanes: i128 = list.iter().map(|element| i128::from(element.index.ty.lanes)).sum();
        list.len() <= MAX_PROMOTED_ELEMENTS
            && lanes * i128::from(elements.buffer.dtype.bytes()) <= MAX_PROMOTED_BYTES
            && list.iter().all(|element| {
                self.has_room(&element.register)
                    && !mentions_or_reads(&element.index, &bound)
                    && element.mask.as_ref().is_none_or(|mask| !mentions_or_reads(mask, &bound))
            })
            && stmts.iter().all(|stmt| elements.are_all_accesses(stmt))
            && stored_buffers(stmts[0]).contains(&elements.buffer)
            && self.are_all_disjoint(list)
    }

    /// Whether no two of the elements overlap, in every execution.
    fn are_all_disjoint(&self, list: &[Element]) -> bool {
        (1..list.len()).all(|i| (0..i).all(|j| self.are_disjoint(&list[j], &list[i])))
            // Two lanes of one vector must be different elements, too.
            && list.iter().all(|element| element.lanes().is_some())
    }

    /// Whether two elements of one buffer do not overlap, in every execution.
    fn are_disjoint(&self, a: &Element, b: &Element) -> bool {
        let (Some(of_a), Some(of_b)) = (a.lanes(), b.lanes()) else { return false };
        let distance = Expr::sub(of_b.first.clone(), of_a.first.clone());
        let distance = simplify_expr(&distance, &Facts::new());
        if let Some(distance) = distance.as_int() {
            // Lanes with one stride and different remainders are different elements.
            let between = of_a.stride == of_b.stride && distance % of_a.stride != 0;
            return between
                || distance >= of_a.lanes * of_a.stride
                || -distance >= of_b.lanes * of_b.stride;
        }
        // Rows of a run-time length.
        let facts = self.facts.borrow();
        let back = Expr::sub(Expr::index(0), distance.clone());
        let is_far = |distance: &Expr, from: &Element, lanes: &Lanes| {
            let width = Expr::index((lanes.lanes * lanes.stride) as i64);
            facts.prove(&Expr::le(width, distance.clone()))
                || from
                    .stored_lanes()
                    .is_some_and(|width| facts.prove(&Expr::le(width, distance.clone())))
        };
        is_far(&distance, a, &of_a) || is_far(&back, b, &of_b)
    }

    /// Whether the lanes of an element are few enough for registers.
    fn has_room(&self, register: &Buffer) -> bool {
        let lanes = register.shape[0].as_int().expect("made so");
        let (vector_bytes, simd) = (self.target.vector_bytes, self.target.simd().is_some());
        lanes <= i128::from(max_promoted_lanes(vector_bytes, simd, register.dtype))
    }
}

/// Whether a statement computes the bounds of a loop, then runs the loop, which updates what
/// `stores` initialize.
fn is_ragged_update(stmt: &Stmt, stores: &[Stmt]) -> bool {
    let mut inner = stmt;
    loop {
        inner = match inner {
            Stmt::Let { body, .. } => body,
            Stmt::If { then, otherwise: None, .. } => then,
            Stmt::For { .. } => break,
            _ => return false,
        };
    }
    let updated = stored_buffers(inner);
    let is_updated =
        |store: &Stmt| matches!(store, Stmt::Store { buffer, .. } if updated.contains(buffer));
    stores.iter().any(is_updated)
}

/// Learns `16*(m // 16) <= m` of the divisions in an extent: a loop over whole vectors has an
/// iteration only if a row is as long as one.
fn assume_divisions(facts: &mut Facts, extent: &Expr) {
    visit::walk_expr(extent, &mut |expr| {
        let ExprKind::Binary(BinOp::FloorDiv, whole, part) = &expr.kind else { return };
        if part.as_int().is_some_and(|part| part > 0) {
            facts.assume(&Expr::le(Expr::mul(expr.clone(), part.clone()), whole.clone()));
        }
    });
}

/// Allocates the registers of `promoted` around statements and writes them back after these.
fn in_registers(mut stmts: Vec<Stmt>, promoted: &[Elements]) -> Stmt {
    let all = || promoted.iter().flat_map(|elements| &elements.list);
    stmts.extend(all().map(Element::write_back));
    let registers: Vec<Buffer> = all().map(|element| element.register.clone()).collect();
    let body = match stmts.len() {
        1 => stmts.remove(0),
        _ => Stmt::Block(stmts),
    };
    registers
        .into_iter()
        .rev()
        .fold(body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) })
}

/// Whether one thread runs a nest from its first iteration to its last.
fn runs_alone(nest: &Stmt) -> bool {
    let mut alone = true;
    walk_stmt(
        nest,
        &mut |stmt| {
            alone &= match stmt {
                Stmt::For { kind, .. } => matches!(kind, ForKind::Serial | ForKind::UnrollHint),
                Stmt::Assert { .. } | Stmt::Barrier | Stmt::Tensorize { .. } => false,
                _ => true,
            };
        },
        &mut |_| {},
    );
    alone
}

/// Calls `f` with buffer, index and mask of the stores that run whenever the statement runs.
fn certain_stores(stmt: &Stmt, f: &mut dyn FnMut(&Buffer, &Expr, Option<&Expr>)) {
    match stmt {
        Stmt::Store { buffer, indices, mask, .. } => f(buffer, &indices[0], mask.as_ref()),
        Stmt::For { extent, body, .. } if extent.as_int().is_some_and(|extent| extent > 0) => {
            certain_stores(body, f);
        }
        Stmt::Block(stmts) => stmts.iter().for_each(|stmt| certain_stores(stmt, f)),
        Stmt::Produce { body, .. } | Stmt::Let { body, .. } | Stmt::Allocate { body, .. } => {
            certain_stores(body, f);
        }
        _ => {}
    }
}

/// Whether two stores are to one element outside of registers.
fn stores_same(a: &Stmt, b: &Stmt) -> bool {
    let (Stmt::Store { buffer, indices, .. }, Stmt::Store { buffer: other, indices: i, .. }) =
        (a, b)
    else {
        return false;
    };
    buffer == other && buffer.scope != Scope::Register && equal(&indices[0], &i[0])
}

/// Whether a statement is a store that updates a buffer that one of `stores` writes.
fn updates_one_of(stmt: &Stmt, stores: &[Stmt]) -> bool {
    let Stmt::Store { buffer, value, .. } = stmt else { return false };
    reads_buffer(value, buffer) && stores.iter().any(|store| stored_buffers(store).contains(buffer))
}

/// Adds the statements of nested blocks to one list.
fn flatten(stmts: Vec<Stmt>, flat: &mut Vec<Stmt>) {
    for stmt in stmts {
        match stmt {
            Stmt::Block(inner) => flatten(inner, flat),
            other => flat.push(other),
        }
    }
}

/// Elements or vectors of a buffer, each with the register that replaces it.
struct Elements {
    buffer: Buffer,
    list: Vec<Element>,
    /// Whether masks may select lanes of an element without a mask.
    selects: bool,
}

#[derive(Clone)]
struct Element {
    buffer: Buffer,
    index: Expr,
    /// The lanes that are stored; the other lanes of the register have any value.
    mask: Option<Expr>,
    register: Buffer,
}

impl Element {
    /// Whether the first statement that accesses the element stores it as a whole, and does not
    /// read it; `None` if nothing accesses it. All accesses to the buffer are at disjoint elements,
    /// so that an access at another index is one to another element.
    fn first_access(&self, stmt: &Stmt) -> Option<bool> {
        match stmt {
            Stmt::Store { buffer, indices, value, mask: None, .. }
                if *buffer == self.buffer && !self.is_read_by(value) =>
            {
                equal(&self.index, &indices[0]).then_some(self.mask.is_none())
            }
            Stmt::Block(stmts) => stmts.iter().find_map(|stmt| self.first_access(stmt)),
            Stmt::For { extent, body, .. } if extent.as_int().is_some_and(|extent| extent > 0) => {
                self.first_access(body)
            }
            Stmt::Produce { body, .. } | Stmt::Allocate { body, .. } => self.first_access(body),
            Stmt::Let { value, body, .. } if !self.is_read_by(value) => self.first_access(body),
            _ => self.is_accessed_by(stmt).then_some(false),
        }
    }

    fn is_read_by(&self, expr: &Expr) -> bool {
        let mut read = false;
        for_each_load(expr, &mut NodeSet::default(), &mut |buffer, indices, _| {
            read |= *buffer == self.buffer && equal(&self.index, &indices[0]);
        });
        read
    }

    fn is_accessed_by(&self, stmt: &Stmt) -> bool {
        let mut accessed = false;
        walk_stmt(
            stmt,
            &mut |stmt| {
                if let Stmt::Store { buffer, indices, .. } = stmt {
                    accessed |= *buffer == self.buffer && equal(&self.index, &indices[0]);
                }
                for_each_expr(stmt, &mut |expr| accessed |= self.is_read_by(expr));
            },
            &mut |_| {},
        );
        accessed
    }
}

impl Elements {
    fn add(&mut self, index: &Expr, mask: Option<&Expr>) {
        self.list.push(Element::new(&self.buffer, index, mask));
    }

    fn find(&self, index: &Expr, mask: Option<&Expr>) -> Option<&Element> {
        let same_mask = |element: &Element| match (&element.mask, mask) {
            (Some(a), Some(b)) => equal(a, b),
            (None, Some(_)) => self.selects,
            (a, b) => a.is_none() && b.is_none(),
        };
        self.list.iter().find(|element| equal(&element.index, index) && same_mask(element))
    }

    /// Whether an expression reads the buffer at these elements only, without a mask.
    fn cover_loads(&self, expr: &Expr) -> bool {
        self.cover_loads_under(expr, None)
    }

    /// Like `cover_loads`, for a value that is stored under `mask`. A load under the same mask may
    /// have any value in the other lanes, because operations work lane by lane and those lanes are
    /// not stored. Other masks are refused.
    fn cover_loads_under(&self, expr: &Expr, mask: Option<&Expr>) -> bool {
        let mut covered = true;
        for_each_load(expr, &mut NodeSet::default(), &mut |buffer, indices, its| {
            let index = &indices[0];
            let known = match (its, mask) {
                (None, _) => true,
                (Some(its), Some(mask)) => equal(its, mask),
                (Some(_), None) => false,
            };
            covered &= *buffer != self.buffer || known && self.find(index, its).is_some();
        });
        covered
    }

    /// Whether `nest` accesses the buffer at these elements only.
    fn are_all_accesses(&self, nest: &Stmt) -> bool {
        let mut covered = true;
        walk_stmt(
            nest,
            &mut |stmt| {
                if let Stmt::Store { buffer, indices, value, mask, .. } = stmt {
                    let mask = mask.as_ref();
                    covered &= *buffer != self.buffer || self.find(&indices[0], mask).is_some();
                    covered &= self.cover_loads_under(value, mask);
                    covered &= indices.iter().chain(mask).all(|expr| self.cover_loads(expr));
                } else {
                    for_each_expr(stmt, &mut |expr| covered &= self.cover_loads(expr));
                }
            },
            &mut |_| {},
        );
        covered
    }

    /// Replaces every access to the elements by one to the registers.
    fn redirect(&self, stmt: Stmt) -> Stmt {
        let mut done = Memo::default();
        let stmt = rewrite_exprs(stmt, &mut |expr| self.redirect_expr(expr, &mut done));
        self.redirect_stores(stmt)
    }

    fn redirect_expr(&self, expr: &Expr, done: &mut Memo<Expr>) -> Expr {
        if let Some(result) = done.get(expr) {
            return result.clone();
        }
        let element = match &expr.kind {
            ExprKind::Load { buffer, indices, mask } if *buffer == self.buffer => {
                self.find(&indices[0], mask.as_ref())
            }
            _ => None,
        };
        let result = match element {
            Some(element) => element.value(),
            None => visit::map_children(expr, &mut |child| self.redirect_expr(child, done)),
        };
        done.insert(expr, result.clone());
        result
    }

    fn redirect_stores(&self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Store { buffer, indices, value, mask, .. } if buffer == self.buffer => {
                let element =
                    self.find(&indices[0], mask.as_ref()).expect("all accesses are covered");
                let value = match mask.filter(|_| element.mask.is_none()) {
                    Some(mask) => Expr::select(mask, value, element.value()),
                    None => value,
                };
                Stmt::store(&element.register, vec![element.all_lanes()], value)
            }
            other => map_stmts(other, &mut |inner| self.redirect_stores(inner)),
        }
    }
}

/// The elements `first`, `first + stride`, …
struct Lanes<'a> {
    first: &'a Expr,
    lanes: i128,
    stride: i128,
}

impl Element {
    fn new(buffer: &Buffer, index: &Expr, mask: Option<&Expr>) -> Element {
        let shape = vec![Expr::index(index.ty.lanes.into())];
        let name = format!("{}.acc", buffer.name);
        let register = Buffer::new(name, buffer.dtype, shape, Scope::Register);
        let (buffer, index, mask) = (buffer.clone(), index.clone(), mask.cloned());
        Element { buffer, index, mask, register }
    }

    /// Returns another element, with as many lanes, for the same register.
    fn with_index(&self, index: &Expr) -> Element {
        Element { index: index.clone(), ..self.clone() }
    }

    /// Returns how many of its neighbouring lanes a mask such as `ramp(x, 1, 16) < x16(m)` keeps,
    /// if that is less than all: `m - x`.
    fn stored_lanes(&self) -> Option<Expr> {
        let lanes = self.lanes().filter(|lanes| lanes.stride == 1)?;
        let ExprKind::Binary(BinOp::Lt, along, end) = &self.mask.as_ref()?.kind else {
            return None;
        };
        let (ExprKind::Ramp(first, step), ExprKind::Broadcast(end)) = (&along.kind, &end.kind)
        else {
            return None;
        };
        let whole = along.ty.dtype == DType::Index && i128::from(along.ty.lanes) == lanes.lanes;
        (whole && step.as_int() == Some(1)).then(|| Expr::sub(end.clone(), first.clone()))
    }

    /// Returns the elements of its lanes; `None` if their stride is not a positive constant.
    fn lanes(&self) -> Option<Lanes<'_>> {
        let lanes = self.index.ty.lanes.into();
        match &self.index.kind {
            ExprKind::Ramp(first, stride) => {
                let stride = stride.as_int().filter(|stride| (1..1 << 32).contains(stride))?;
                Some(Lanes { first, lanes, stride })
            }
            _ if lanes == 1 => Some(Lanes { first: &self.index, lanes, stride: 1 }),
            _ => None,
        }
    }

    /// Returns the index of the register's elements.
    fn all_lanes(&self) -> Expr {
        let ty = self.index.ty;
        match ty.lanes {
            1 => Expr::index(0),
            _ => Expr::new(ty, ExprKind::Ramp(Expr::index(0), Expr::index(1))),
        }
    }

    fn value(&self) -> Expr {
        Expr::load(&self.register, vec![self.all_lanes()])
    }

    /// Loads the element into its register.
    fn read(&self) -> Stmt {
        let (buffer, index) = (self.buffer.clone(), self.index.clone());
        let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
        let mask = self.mask.clone();
        let value = Expr::new(ty, ExprKind::Load { buffer, indices: vec![index], mask });
        Stmt::store(&self.register, vec![self.all_lanes()], value)
    }

    /// Stores the register to the element.
    fn write_back(&self) -> Stmt {
        let (buffer, mask) = (self.buffer.clone(), self.mask.clone());
        let (indices, value) = (vec![self.index.clone()], self.value());
        Stmt::Store { buffer, indices, value, mask, nontemporal: false }
    }
}

/// Adds the variables that a statement binds.
fn bind_vars(stmt: &Stmt, bound: &mut FxHashSet<Var>) {
    walk_stmt(
        stmt,
        &mut |s| {
            if let Stmt::For { var, .. } | Stmt::Let { var, .. } = s {
                bound.insert(var.clone());
            }
        },
        &mut |_| {},
    );
}

/// Whether an index depends on one of the variables, or on memory, which the loop might change.
fn mentions_or_reads(expr: &Expr, vars: &FxHashSet<Var>) -> bool {
    reads_memory(expr) || mentions_any(expr, vars)
}

#[cfg(test)]
mod tests;

//! Promote accumulators: keeps the running values of a reduction in registers.
//!
//! Before: `C[i] = 0; for k { C[i] = C[i] + A[k] }`
//! After:  `allocate C.acc: register; C.acc[0] = 0; for k { C.acc[0] = C.acc[0] + A[k] };
//!          C[i] = C.acc[0]`
//! The loop may have bounds that are computed between (`C[i] = 0; let end = P[i]; for k { … }`).
//! It may be cut into several loops that follow each other.
//! The same holds for unrolled loops (`C[i] = 0; C[i] = C[i] + A[0]; …`), some of whose terms may
//! have conditions, for vectors (`C[ramp(i, 1, 8)]`), and for several elements of one buffer that
//! provably do not overlap, also along columns of rows whose length is known at run time. A mask
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
//! If an outer loop contains several loops with sums of their own, and there are not enough
//! registers for all sums, those of each inner loop are in registers while it runs. Between the
//! loops they are in memory, the lanes of each side by side:
//! Before: `C[ramp(0, 7, 8)] = 0; … for ko { for ki { C[ramp(0, 7, 8)] = … }; for ki { … } }`
//! After:  `allocate C.tile: local; C.tile[ramp(0, 1, 8)] = 0; … for ko { C.acc[…] =
//!          C.tile[ramp(0, 1, 8)]; for ki { C.acc[…] = … }; C.tile[ramp(0, 1, 8)] = C.acc[…]; … };
//!          C[ramp(0, 7, 8)] = C.tile[ramp(0, 1, 8)]; …`
//!
//! An outer loop may also begin with a copy of the element before, as scans do ([`carry`]), or read
//! what it stored in the iteration before ([`previous`]).
//! Elements of rows that may not exist, at the end of a tile, are promoted with the others
//! ([`guards`]).
//!
//! Needs: flattened, simplified indices, which it compares; vectors (`vectorize_loops`), which are
//! promoted whole. Stands before `insert_barriers` and `outline_simd`: accumulators in registers
//! need no barriers, and a nest contains its registers.
//! Ensures: no access to a promoted element between the initial and the final store.
//! Declines: more elements, bytes or lanes than `ir::limits` allows; elements that may overlap or
//! have an index that the loop changes; buffers that the nest accesses elsewhere. Elements that are
//! loaded first, too: loops that may have no iteration, and stores under a condition, because the
//! element may then be out of bounds or belong to another thread; loops of one iteration.

mod carry;
mod elements;
mod guards;
mod known;
mod previous;
mod widen;

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::limits::{
    FACTOR_REGISTERS, MAX_PROMOTED_BYTES, MAX_PROMOTED_ELEMENTS, max_promoted_lanes,
};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{
    NodeSet, for_each_expr, for_each_load, map_stmts, mentions_any, reads_buffer, reads_memory,
    stored_buffers, walk_stmt,
};
use crate::ir::{Buffer, Expr, ForKind, Kernel, Scope, Stmt, Var};
use crate::target::Target;
use elements::{Element, Elements, GuardedElement, Lanes};
use guards::{is_guarded_store, stores_of};
use known::Known;
use rustc_hash::FxHashSet;
use std::cell::RefCell;

/// The most vectors of rows between two vectors along columns that are told apart.
const MAX_ROWS_BETWEEN: i64 = 8;

/// Promotes every element that is stored and then only updated by the loop that follows.
pub fn promote_accumulators(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let promoter = Promoter {
        target,
        loads: !target.is_gpu(),
        selects: target.simd().is_some(),
        known: RefCell::new(Known::new(&kernel.facts)),
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
    known: RefCell<Known>,
}

impl Promoter<'_> {
    /// Promotes in the statements inside of one, under what holds there.
    fn promote_inside(&self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::For { var, min, extent, kind, body } => {
                self.known.borrow_mut().enter_loop(&var, &min, &extent);
                let body = Box::new(self.promote(*body));
                self.known.borrow_mut().leave_loop();
                Stmt::For { var, min, extent, kind, body }
            }
            Stmt::If { cond, then, otherwise } => {
                let branch = |truth: bool, branch: Stmt| {
                    self.known.borrow_mut().enter_branch(&cond, truth);
                    let branch = self.promote(branch);
                    self.known.borrow_mut().leave_branch();
                    Box::new(branch)
                };
                let then = branch(true, *then);
                let otherwise = otherwise.map(|otherwise| branch(false, *otherwise));
                Stmt::If { cond, then, otherwise }
            }
            other => map_stmts(other, &mut |inner| self.promote(inner)),
        }
    }

    fn promote(&self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Block(stmts) => self.promote_block(stmts),
            Stmt::For { .. } => {
                let carried = self.carry(&stmt).or_else(|| self.carry_previous(&stmt));
                carried.unwrap_or_else(|| self.promote_loop(stmt))
            }
            // The loops of an intrinsic keep their form.
            Stmt::Tensorize { .. } => {
                let known = RefCell::new(Known::new(&[]));
                Promoter { loads: false, known, ..*self }.promote_inside(stmt)
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
            certain_stores(iteration(&nest), &mut |buffer, index, mask| {
                let room = elements.list.len() <= MAX_PROMOTED_ELEMENTS;
                if *buffer == elements.buffer && room && elements.find(index, mask).is_none() {
                    elements.add(index, mask);
                }
            });
            if self.can_be_promoted(&elements, &[&nest]) && self.find_place(&mut elements, &nest) {
                // What the first iteration stores before it loads may not exist in front of it.
                let loaded =
                    elements.list.iter().filter(|one| one.first_access_of(&nest) != Some(true));
                reads.extend(loaded.map(Element::read));
                nest = elements.redirect(nest);
                promoted.push(elements);
            }
        }
        (reads, nest, promoted)
    }

    /// Returns the buffers from outside a loop that it loads from and stores to, in order of the
    /// stores. None if the loop has one iteration or may have none.
    fn updated_buffers(&self, nest: &Stmt) -> Vec<Buffer> {
        let Stmt::For { extent, kind: ForKind::Serial | ForKind::UnrollHint, .. } = nest else {
            return Vec::new();
        };
        let repeats = match extent.as_int() {
            Some(extent) => extent > 1,
            None => self.known.borrow().prove(&Expr::lt(Expr::index(0), extent.clone())),
        };
        if !self.loads || !repeats || !runs_alone(nest) {
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
        certain_stores(iteration(nest), &mut |buffer, _, _| {
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
        // The stores directly before the current statement. Some of them may have a condition.
        let mut group: Vec<Stmt> = Vec::new();
        let mut flat = flat.into_iter().peekable();
        while let Some(stmt) = flat.next() {
            match stmt {
                Stmt::Store { .. } => group.push(stmt),
                Stmt::If { .. } if self.loads && is_guarded_store(&stmt) => group.push(stmt),
                Stmt::For { .. } => {
                    if let Some(promoted) = self.promote_guarded(&group, &stmt) {
                        group.clear();
                        done.push(promoted);
                        continue;
                    }
                    let stores = self.behind_conditions(&mut group, &mut done);
                    let mut after = Vec::new();
                    while let Some(update) = flat.next_if(|next| updates_one_of(next, &stores)) {
                        after.push(update);
                    }
                    done.push(self.promote_group(stores, stmt, after));
                }
                Stmt::Let { .. } | Stmt::If { .. } if is_ragged_update(&stmt, &group) => {
                    let stores = self.behind_conditions(&mut group, &mut done);
                    done.push(self.promote_group(stores, stmt, Vec::new()));
                }
                other => {
                    let stores = self.run_of_stores(&mut group, &mut done);
                    done.extend(self.promote_run(stores));
                    done.push(self.promote(other));
                }
            }
        }
        let stores = self.run_of_stores(&mut group, &mut done);
        done.extend(self.promote_run(stores));
        match done.len() {
            1 => done.remove(0),
            _ => Stmt::Block(done),
        }
    }

    /// Returns the stores at the end of a group that have no condition; what stands before them is
    /// done.
    fn behind_conditions(&self, group: &mut Vec<Stmt>, done: &mut Vec<Stmt>) -> Vec<Stmt> {
        let mut run = self.run_of_stores(group, done);
        let count = run.iter().rposition(|stmt| !matches!(stmt, Stmt::Store { .. }));
        let stores = run.split_off(count.map_or(0, |last| last + 1));
        done.extend(self.promote_run(run));
        stores
    }

    /// Returns the stores at the end of a group that have no condition or store, under one, again
    /// what the others have stored; what stands before them is done.
    fn run_of_stores(&self, group: &mut Vec<Stmt>, done: &mut Vec<Stmt>) -> Vec<Stmt> {
        let mut stores = Vec::new();
        for stmt in std::mem::take(group) {
            if matches!(stmt, Stmt::Store { .. }) || stores_again(&stmt, &stores) {
                stores.push(stmt);
            } else {
                done.extend(self.promote_run(std::mem::take(&mut stores)));
                done.push(self.promote(stmt));
            }
        }
        stores
    }

    /// Promotes accumulators in stores without a loop after them. Stores to elements that were
    /// stored just before are the updates of an unrolled reduction, some of them under conditions.
    fn promote_run(&self, run: Vec<Stmt>) -> Vec<Stmt> {
        let mut done = Vec::new();
        let (mut stores, mut updates): (Vec<Stmt>, Vec<Stmt>) = (Vec::new(), Vec::new());
        for stmt in run {
            let mut earlier = stores.iter().rev().take(MAX_PROMOTED_ELEMENTS);
            if !matches!(stmt, Stmt::Store { .. })
                || earlier.any(|earlier| stores_same(earlier, &stmt))
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
    /// stores and loops in `after` stand directly after it and may update them, too.
    fn promote_group(&self, stores: Vec<Stmt>, nest: Stmt, after: Vec<Stmt>) -> Stmt {
        self.promote_all(stores, nest, after, &[]).expect("no element has a condition")
    }

    /// The same, where elements may exist under a condition only: they are written back under it.
    /// `None` if one of these can not be promoted.
    fn promote_all(
        &self,
        mut stores: Vec<Stmt>,
        mut nest: Stmt,
        mut after: Vec<Stmt>,
        guarded: &[GuardedElement],
    ) -> Option<Stmt> {
        let mut missing = guarded.len();
        let (mut in_nest, mut to_end) = (Vec::new(), Vec::new());
        let mut tried = FxHashSet::default();
        for position in 0..stores.len() {
            let Stmt::Store { buffer, .. } = &stores[position] else { continue };
            // The buffer may be one that this pass has made.
            if buffer.scope == Scope::Register || !tried.insert(buffer.clone()) {
                continue;
            }
            let Some(mut elements) = self.initialized(&stores[position..]) else { continue };
            let conditions = elements.set_conditions(guarded);
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
            if !self.find_place(&mut elements, &nest) {
                continue;
            }
            missing -= conditions;
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
        if missing > 0 {
            return None;
        }
        stores.push(match nest {
            Stmt::For { .. } => self.promote(nest),
            other => self.promote_inside(other),
        });
        if !after.is_empty() {
            stores = vec![in_registers(stores, &in_nest)];
            in_nest.clear();
            stores.extend(after.into_iter().map(|stmt| match stmt {
                Stmt::For { .. } => self.promote(stmt),
                other => other,
            }));
        }
        in_nest.extend(to_end);
        Some(in_registers(stores, &in_nest))
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

    /// Decides between registers and a block of memory. Returns false if the elements are best left
    /// where they are: in memory, lane by lane next to each other.
    fn find_place(&self, elements: &mut Elements, nest: &Stmt) -> bool {
        if !self.is_crowded(elements, nest) {
            return true;
        }
        if elements.are_vectors() {
            return false;
        }
        elements.keep_in_memory();
        true
    }

    /// Whether the elements need more registers than there are beside factors, although a loop of
    /// the nest uses a part of them only: that part is to be in registers while the loop runs.
    fn is_crowded(&self, elements: &Elements, nest: &Stmt) -> bool {
        let Some(isa) = self.target.simd() else { return false };
        let bytes = elements.buffer.dtype.bytes();
        let registers = |element: &Element| {
            (u64::from(element.index.ty.lanes) * bytes).div_ceil(isa.bytes().into())
        };
        let all: u64 = elements.list.iter().map(registers).sum();
        if all + FACTOR_REGISTERS <= isa.registers().into() {
            return false;
        }
        let whole = elements.list.iter().all(|one| one.mask.is_none() && one.cond.is_none());
        let mut in_parts = false;
        walk_stmt(
            nest,
            &mut |stmt| {
                let is_loop =
                    matches!(stmt, Stmt::For { kind: ForKind::Serial | ForKind::UnrollHint, .. });
                if whole && is_loop && !in_parts {
                    let used = elements.list.iter().filter(|one| one.is_accessed_by(stmt)).count();
                    in_parts = (1..elements.list.len()).contains(&used);
                }
            },
            &mut |_| {},
        );
        in_parts
    }

    /// Whether no two of the elements overlap, in every execution.
    fn are_all_disjoint(&self, list: &[Element]) -> bool {
        (1..list.len()).all(|i| (0..i).all(|j| self.are_disjoint(&list[j], &list[i])))
            // Two lanes of one vector must be different elements, too.
            && list.iter().all(|element| match element.run_time_stride() {
                None => element.lanes().is_some(),
                Some((_, stride)) => {
                    let conds: Vec<&Expr> = element.cond.iter().collect();
                    self.prove_under(&conds, &Expr::le(Expr::index(1), stride.clone()))
                }
            })
    }

    /// Whether no lanes of two vectors along columns of a matrix are the same element where both
    /// exist. The length of a row, `stride`, is known at run time only.
    fn are_columns_disjoint(
        &self,
        (first, stride): (&Expr, &Expr),
        (second, other): (&Expr, &Expr),
        (lanes, conds): (i64, &[&Expr]),
    ) -> bool {
        if !equal(stride, other) {
            return false;
        }
        let facts = Facts::new();
        let distance = Expr::sub(second.clone(), first.clone());
        // The vectors begin whole vectors of rows apart, in the same column or in another one.
        let vectors = (0..=MAX_ROWS_BETWEEN).flat_map(|rows| [rows, -rows]);
        let column = vectors.map(|vectors| vectors * lanes).find_map(|rows| {
            let rest = Expr::sub(distance.clone(), Expr::mul(stride.clone(), Expr::index(rows)));
            Some((rows, simplify_expr(&rest, &facts).as_int()?))
        });
        match column {
            None => false,
            Some((rows, 0)) => rows != 0,
            Some((_, column)) => {
                let least = i64::try_from(column.unsigned_abs() + 1).map(Expr::index);
                least.is_ok_and(|least| self.prove_under(conds, &Expr::le(least, stride.clone())))
            }
        }
    }

    /// Whether a comparison holds wherever some conditions do.
    fn prove_under(&self, conds: &[&Expr], comparison: &Expr) -> bool {
        let mut known = self.known.borrow_mut();
        conds.iter().for_each(|cond| known.enter_branch(cond, true));
        let proved = known.prove(comparison);
        conds.iter().for_each(|_| known.leave_branch());
        proved
    }

    /// Whether two elements of one buffer do not overlap, in every execution.
    fn are_disjoint(&self, a: &Element, b: &Element) -> bool {
        if let (Some(of_a), Some(of_b)) = (a.run_time_stride(), b.run_time_stride()) {
            let same_lanes = a.index.ty.lanes == b.index.ty.lanes;
            let conds: Vec<&Expr> = a.cond.iter().chain(&b.cond).collect();
            let lanes = (a.index.ty.lanes.into(), &conds[..]);
            return same_lanes && self.are_columns_disjoint(of_a, of_b, lanes);
        }
        let (Some(of_a), Some(of_b)) = (a.lanes(), b.lanes()) else { return false };
        let distance = Expr::sub(of_b.first.clone(), of_a.first.clone());
        let distance = simplify_expr(&distance, &Facts::new());
        if let Some(distance) = distance.as_int() {
            // Lanes with one stride and different remainders are different elements.
            let between = of_a.stride == of_b.stride && distance % of_a.stride != 0;
            let width = |element: &Element, lanes: &Lanes| {
                let stored =
                    element.stored_lanes().map(|stored| simplify_expr(&stored, &Facts::new()));
                let stored = stored.and_then(|stored| stored.as_int());
                stored.unwrap_or(i128::MAX).clamp(0, lanes.lanes * lanes.stride)
            };
            return between || distance >= width(a, &of_a) || -distance >= width(b, &of_b);
        }
        // Rows of a run-time length.
        let known = self.known.borrow();
        let back = Expr::sub(Expr::index(0), distance.clone());
        let is_far = |distance: &Expr, from: &Element, lanes: &Lanes| {
            let width = Expr::index((lanes.lanes * lanes.stride) as i64);
            known.prove(&Expr::le(width, distance.clone()))
                || from
                    .stored_lanes()
                    .is_some_and(|width| known.prove(&Expr::le(width, distance.clone())))
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

/// Allocates the registers of `promoted` around statements and writes them back after these.
fn in_registers(mut stmts: Vec<Stmt>, promoted: &[Elements]) -> Stmt {
    let all = || promoted.iter().flat_map(|elements| &elements.list);
    stmts.extend(all().map(Element::write_back));
    let mut registers: Vec<Buffer> = all().map(|element| element.register.clone()).collect();
    registers.dedup();
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

/// Returns the body of a loop, which has an iteration; other statements as they are.
fn iteration(stmt: &Stmt) -> &Stmt {
    match stmt {
        Stmt::For { body, .. } => body,
        other => other,
    }
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

/// Whether a statement stores, under a condition, only elements that one of `stores` writes.
fn stores_again(stmt: &Stmt, stores: &[Stmt]) -> bool {
    let Stmt::If { then, .. } = stmt else { return false };
    let same = |store: &&Stmt| stores.iter().any(|earlier| stores_same(earlier, store));
    is_guarded_store(stmt) && stores_of(then).is_some_and(|inner| inner.iter().all(same))
}

/// Whether a statement is a store, or a loop with one, that updates a buffer that one of `stores`
/// writes.
fn updates_one_of(stmt: &Stmt, stores: &[Stmt]) -> bool {
    let is_stored =
        |buffer: &Buffer| stores.iter().any(|store| stored_buffers(store).contains(buffer));
    match stmt {
        Stmt::Store { buffer, value, .. } => reads_buffer(value, buffer) && is_stored(buffer),
        // The rest of a loop that was cut.
        Stmt::For { kind: ForKind::Serial | ForKind::UnrollHint, body, .. } => {
            let mut updates = false;
            walk_stmt(
                body,
                &mut |inner| {
                    if let Stmt::Store { buffer, value, .. } = inner {
                        updates |= reads_buffer(value, buffer) && is_stored(buffer);
                    }
                },
                &mut |_| {},
            );
            updates
        }
        _ => false,
    }
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

//! Promote accumulators: a reduction's running values live in registers, not in memory.
//!
//! Before: `C[i] = 0; for k { C[i] = C[i] + A[k] }`
//! After:  `allocate C.acc: register; C.acc[0] = 0; for k { C.acc[0] = C.acc[0] + A[k] };
//!          C[i] = C.acc[0]`
//! A loop that is written out is `C[i] = 0; C[i] = C[i] + A[0]; …` and the same.
//! The same for vectors (`C[ramp(i, 1, 8)]`), and for several elements of one buffer where they
//! certainly do not overlap. A mask (`C[ramp(i, 1, 8)] if (ramp(i, 1, 8) < x8(n))`) that the loop
//! leaves alone is needed only where the register goes back to memory.
//! Needs: flattened indices.  Ensures: no access to a promoted element between the two ends.

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::limits::{MAX_PROMOTED_BYTES, MAX_PROMOTED_ELEMENTS, max_promoted_lanes};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{
    for_each_child, for_each_expr, map_stmts, rewrite_exprs, walk_expr, walk_stmt,
};
use crate::ir::{Buffer, Expr, ExprKind, Kernel, Scope, Stmt, Var, visit};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// Promotes every element that is stored, and then only updated by the loop that follows.
pub fn promote_accumulators(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let body = Promoter { vectors: target.vector_bytes > 0 }.promote(kernel.body);
    Ok(Kernel { body, ..kernel })
}

struct Promoter {
    vectors: bool,
}

impl Promoter {
    fn promote(&self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Block(stmts) => self.promote_block(stmts),
            other => map_stmts(other, &mut |inner| self.promote(inner)),
        }
    }

    fn promote_block(&self, stmts: Vec<Stmt>) -> Stmt {
        let mut flat = Vec::new();
        flatten(stmts, &mut flat);
        let mut done: Vec<Stmt> = Vec::new();
        // Stores that stand one after the other, up to here.
        let mut group: Vec<Stmt> = Vec::new();
        for stmt in flat {
            match stmt {
                Stmt::Store { .. } => group.push(stmt),
                Stmt::For { .. } => done.push(self.promote_group(std::mem::take(&mut group), stmt)),
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

    /// Stores without a loop after them. Those of elements that were stored just before are the
    /// loop of a reduction, written out.
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
                let nest = Stmt::Block(std::mem::take(&mut updates));
                done.push(self.promote_group(std::mem::take(&mut stores), nest));
            }
            stores.push(stmt);
        }
        match updates.is_empty() {
            true => done.extend(stores),
            false => done.push(self.promote_group(stores, Stmt::Block(updates))),
        }
        done
    }

    /// `stores` stand immediately before `nest`.
    fn promote_group(&self, mut stores: Vec<Stmt>, mut nest: Stmt) -> Stmt {
        let mut promoted = Vec::new();
        let mut tried = FxHashSet::default();
        for position in 0..stores.len() {
            let Stmt::Store { buffer, .. } = &stores[position] else { continue };
            // Registers are where they belong, those made here among them.
            if buffer.scope == Scope::Register || !tried.insert(buffer.clone()) {
                continue;
            }
            let Some(elements) = self.elements(&stores[position..], &nest) else { continue };
            let rest = stores.split_off(position);
            stores.extend(rest.into_iter().map(|stmt| elements.redirect(stmt)));
            nest = elements.redirect(nest);
            promoted.push(elements);
        }
        stores.push(map_stmts(nest, &mut |inner| self.promote(inner)));
        let all = || promoted.iter().flat_map(|elements| &elements.list);
        stores.extend(all().map(Element::write_back));
        let registers: Vec<Buffer> = all().map(|element| element.register.clone()).collect();
        registers.into_iter().rev().fold(Stmt::Block(stores), |body, buffer| Stmt::Allocate {
            buffer,
            body: Box::new(body),
        })
    }

    /// The elements of the buffer that the first of `stores` writes, if nothing else of it is
    /// accessed by them and by `nest`, which updates it.
    fn elements(&self, stores: &[Stmt], nest: &Stmt) -> Option<Elements> {
        let Some(Stmt::Store { buffer, .. }) = stores.first() else { return None };
        let mut elements = Elements { buffer: buffer.clone(), list: Vec::new() };
        for store in stores {
            // An element is read only after it was written.
            let mut fine = true;
            for_each_expr(store, &mut |expr| fine &= elements.cover_loads(expr));
            let Stmt::Store { buffer, indices, mask, .. } = store else { return None };
            if !fine || elements.list.len() > MAX_PROMOTED_ELEMENTS {
                return None;
            }
            let mask = mask.as_ref();
            if *buffer == elements.buffer && elements.find(&indices[0], mask).is_none() {
                // What it held where the mask is off is not known.
                if mask.is_some() && elements.list.iter().any(|e| equal(&e.index, &indices[0])) {
                    return None;
                }
                elements.add(&indices[0], mask);
            }
        }
        let bound = bound_vars(nest);
        let list = &elements.list;
        let lanes: i128 = list.iter().map(|element| i128::from(element.index.ty.lanes)).sum();
        let suit = list.len() <= MAX_PROMOTED_ELEMENTS
            && lanes * i128::from(elements.buffer.dtype.bytes()) <= MAX_PROMOTED_BYTES
            && list.iter().all(|element| {
                self.has_room(&element.register)
                    && !mentions(&element.index, &bound)
                    && element.mask.as_ref().is_none_or(|mask| !mentions(mask, &bound))
            })
            && elements.are_all_accesses(nest)
            && elements.are_apart();
        suit.then_some(elements)
    }

    /// Whether the lanes of an element are few enough to be in registers.
    fn has_room(&self, register: &Buffer) -> bool {
        let lanes = register.shape[0].as_int().expect("made so");
        lanes <= i128::from(max_promoted_lanes(self.vectors, register.dtype.bytes()))
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

/// The statements of nested blocks in one list.
fn flatten(stmts: Vec<Stmt>, flat: &mut Vec<Stmt>) {
    for stmt in stmts {
        match stmt {
            Stmt::Block(inner) => flatten(inner, flat),
            other => flat.push(other),
        }
    }
}

/// Some elements of a buffer, or vectors of them, each with a register that stands for it.
struct Elements {
    buffer: Buffer,
    list: Vec<Element>,
}

struct Element {
    buffer: Buffer,
    index: Expr,
    /// Lanes that there are: the others of the register hold anything.
    mask: Option<Expr>,
    register: Buffer,
}

impl Elements {
    fn add(&mut self, index: &Expr, mask: Option<&Expr>) {
        let shape = vec![Expr::index(index.ty.lanes.into())];
        let name = format!("{}.acc", self.buffer.name);
        let register = Buffer::new(name, self.buffer.dtype, shape, Scope::Register);
        let (buffer, index, mask) = (self.buffer.clone(), index.clone(), mask.cloned());
        self.list.push(Element { buffer, index, mask, register });
    }

    fn find(&self, index: &Expr, mask: Option<&Expr>) -> Option<&Element> {
        let same_mask = |element: &Element| match (&element.mask, mask) {
            (Some(a), Some(b)) => equal(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        self.list.iter().find(|element| equal(&element.index, index) && same_mask(element))
    }

    /// Whether an expression reads the buffer at these elements only, without a mask.
    fn cover_loads(&self, expr: &Expr) -> bool {
        self.cover_loads_under(expr, None)
    }

    /// The same for a value that is stored under `mask`. A load under this mask may give anything
    /// in the lanes that are off: operations work lane by lane, and what they make there is not
    /// stored.
    fn cover_loads_under(&self, expr: &Expr, mask: Option<&Expr>) -> bool {
        let mut covered = true;
        for_each_load(expr, &mut FxHashSet::default(), &mut |buffer, index, its| {
            let known = match (its, mask) {
                (None, _) => true,
                (Some(its), Some(mask)) => equal(its, mask),
                (Some(_), None) => false,
            };
            covered &= *buffer != self.buffer || known && self.find(index, its).is_some();
        });
        covered
    }

    /// Whether `nest` accesses the buffer at these elements only, and writes one of them.
    fn are_all_accesses(&self, nest: &Stmt) -> bool {
        let (mut covered, mut updated) = (true, false);
        walk_stmt(
            nest,
            &mut |stmt| {
                if let Stmt::Store { buffer, indices, value, mask, .. } = stmt {
                    let mask = mask.as_ref();
                    if *buffer == self.buffer {
                        updated = true;
                        covered &= self.find(&indices[0], mask).is_some();
                    }
                    covered &= self.cover_loads_under(value, mask);
                    covered &= indices.iter().chain(mask).all(|expr| self.cover_loads(expr));
                } else {
                    for_each_expr(stmt, &mut |expr| covered &= self.cover_loads(expr));
                }
            },
            &mut |_| {},
        );
        covered && updated
    }

    /// Whether no two of them overlap, in every execution.
    fn are_apart(&self) -> bool {
        let apart = |a: &Element, b: &Element| {
            let (Some(a), Some(b)) = (a.span(), b.span()) else { return false };
            let distance = Expr::sub(b.first.clone(), a.first.clone());
            let distance = simplify_expr(&distance, &Facts::new()).as_int();
            distance.is_some_and(|distance| {
                // Lanes of one stride that begin between those of the other never meet them.
                let between = a.stride == b.stride && distance % a.stride != 0;
                between || distance >= a.lanes * a.stride || -distance >= b.lanes * b.stride
            })
        };
        let list = &self.list;
        (1..list.len()).all(|i| (0..i).all(|j| apart(&list[j], &list[i])))
            // Two lanes of one vector must not be one element either.
            && list.iter().all(|element| element.span().is_some())
    }

    /// `stmt` with every access to the elements made one to the registers.
    fn redirect(&self, stmt: Stmt) -> Stmt {
        let mut done = FxHashMap::default();
        let stmt = rewrite_exprs(stmt, &mut |expr| self.redirect_expr(expr, &mut done));
        self.redirect_stores(stmt)
    }

    fn redirect_expr(&self, expr: &Expr, done: &mut FxHashMap<usize, (Expr, Expr)>) -> Expr {
        if let Some((_, result)) = done.get(&expr.id()) {
            return result.clone();
        }
        let result = match &expr.kind {
            ExprKind::Load { buffer, indices, mask } if *buffer == self.buffer => {
                let element =
                    self.find(&indices[0], mask.as_ref()).expect("all accesses are covered");
                element.value()
            }
            _ => visit::map_children(expr, &mut |child| self.redirect_expr(child, done)),
        };
        done.insert(expr.id(), (expr.clone(), result.clone()));
        result
    }

    fn redirect_stores(&self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Store { buffer, indices, value, mask, .. } if buffer == self.buffer => {
                let element =
                    self.find(&indices[0], mask.as_ref()).expect("all accesses are covered");
                Stmt::store(&element.register, vec![element.all_lanes()], value)
            }
            other => map_stmts(other, &mut |inner| self.redirect_stores(inner)),
        }
    }
}

/// Lanes at `first`, `first + stride`, …
struct Span<'a> {
    first: &'a Expr,
    lanes: i128,
    stride: i128,
}

impl Element {
    /// The elements of its lanes; none if they are not a constant distance apart, upwards.
    fn span(&self) -> Option<Span<'_>> {
        let lanes = self.index.ty.lanes.into();
        match &self.index.kind {
            ExprKind::Ramp(first, stride) => {
                let stride = stride.as_int().filter(|stride| (1..1 << 32).contains(stride))?;
                Some(Span { first, lanes, stride })
            }
            _ if lanes == 1 => Some(Span { first: &self.index, lanes, stride: 1 }),
            _ => None,
        }
    }

    /// The index of the register's elements.
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

    fn write_back(&self) -> Stmt {
        let (buffer, mask) = (self.buffer.clone(), self.mask.clone());
        let (indices, value) = (vec![self.index.clone()], self.value());
        Stmt::Store { buffer, indices, value, mask, nontemporal: false }
    }
}

/// Calls `f` with buffer, index and mask of every load, once for a shared one.
fn for_each_load(
    expr: &Expr,
    seen: &mut FxHashSet<usize>,
    f: &mut dyn FnMut(&Buffer, &Expr, Option<&Expr>),
) {
    if !seen.insert(expr.id()) {
        return;
    }
    if let ExprKind::Load { buffer, indices, mask } = &expr.kind {
        f(buffer, &indices[0], mask.as_ref());
    }
    for_each_child(expr, &mut |child| for_each_load(child, seen, f));
}

fn bound_vars(stmt: &Stmt) -> FxHashSet<Var> {
    let mut bound = FxHashSet::default();
    walk_stmt(
        stmt,
        &mut |s| {
            if let Stmt::For { var, .. } | Stmt::Let { var, .. } = s {
                bound.insert(var.clone());
            }
        },
        &mut |_| {},
    );
    bound
}

/// An index that reads memory is left alone too: the loop might change what it reads.
fn mentions(expr: &Expr, vars: &FxHashSet<Var>) -> bool {
    let mut found = false;
    walk_expr(expr, &mut |e| {
        found |= matches!(e.kind, ExprKind::Load { .. })
            || e.as_var().is_some_and(|var| vars.contains(var));
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::print::print_stmt;
    use crate::ir::{BinOp, DType, Type};

    /// `C[ramp(0, 1, 8)] = 0; for k { C[…] = C[…] + x }`, with these masks of the start value, the
    /// read and the update; each gets the loop's variable.
    fn sum(start: Option<Expr>, read: Masking, update: Masking) -> Stmt {
        let c = Buffer::new("C", DType::Float32, vec![Expr::index(8)], Scope::Global);
        let lanes = eight(DType::Index, ExprKind::Ramp(Expr::index(0), Expr::index(1)));
        let wide = |value: f64| {
            let scalar = Expr::float(DType::Float32, value);
            eight(DType::Float32, ExprKind::Broadcast(scalar))
        };
        let k = Var::index("k");
        let old = ExprKind::Load {
            buffer: c.clone(),
            indices: vec![lanes.clone()],
            mask: read.map(|mask| mask(&Expr::var(&k))),
        };
        let old = Expr::new(wide(0.0).ty, old);
        let store = |value, mask| Stmt::Store {
            buffer: c.clone(),
            indices: vec![lanes.clone()],
            value,
            mask,
            nontemporal: false,
        };
        let body = store(Expr::add(old, wide(1.0)), update.map(|mask| mask(&Expr::var(&k))));
        let nest = Stmt::serial(k, Expr::index(4), body);
        Promoter { vectors: true }.promote(Stmt::Block(vec![store(wide(0.0), start), nest]))
    }

    fn eight(dtype: DType, kind: ExprKind) -> Expr {
        Expr::new(Type { dtype, lanes: 8 }, kind)
    }

    type Masking = Option<fn(&Expr) -> Expr>;

    /// The first lanes, fewer than there are.
    fn below(limit: Expr) -> Expr {
        let lanes = eight(DType::Index, ExprKind::Ramp(Expr::index(0), Expr::index(1)));
        Expr::binary(BinOp::Lt, lanes, eight(DType::Index, ExprKind::Broadcast(limit)))
    }

    fn five(_: &Expr) -> Expr {
        below(Expr::index(5))
    }

    #[test]
    fn a_mask_is_needed_at_the_end_alone() {
        let text = print_stmt(&sum(Some(five(&Expr::index(0))), Some(five), Some(five)));
        assert_eq!(text.matches("C[").count(), 1, "{text}");
        let back = text.lines().rev().find(|line| line.contains("C[")).expect("a store");
        assert!(back.contains("C.acc[") && back.contains("5"), "{text}");
        assert_eq!(text.matches("< x8(5)").count(), 1, "{text}");
    }

    #[test]
    fn a_sum_that_is_written_out_stays_in_a_register() {
        let c = Buffer::new("C", DType::Float32, vec![Expr::index(8)], Scope::Global);
        let at = |index: i64| vec![Expr::index(index)];
        let store = |index: i64, value: Expr| Stmt::Store {
            buffer: c.clone(),
            indices: at(index),
            value,
            mask: None,
            nontemporal: false,
        };
        let one = || Expr::float(DType::Float32, 1.0);
        let add = |index: i64| store(index, Expr::add(Expr::load(&c, at(index)), one()));
        let run =
            |stmts: Vec<Stmt>| print_stmt(&Promoter { vectors: true }.promote(Stmt::Block(stmts)));
        let text = run(vec![store(2, one()), add(2), add(2), store(3, one()), add(3), add(3)]);
        assert_eq!(text.matches("C[").count(), 2, "{text}");
        assert!(text.contains("C[2] = C.acc[0]") && text.contains("C[3] = C.acc[0]"), "{text}");
        // Each element once: nothing is gained. Read before it is written: it comes from memory.
        assert!(!run(vec![store(2, one()), store(3, one())]).contains("acc"));
        assert!(!run(vec![add(2), add(2)]).contains("acc"));
    }

    #[test]
    fn masks_that_differ_keep_it_in_memory() {
        let four = |_: &Expr| below(Expr::index(4));
        let moving = |k: &Expr| below(k.clone());
        let start = || Some(five(&Expr::index(0)));
        for stmt in [
            // Some lanes of the register would hold what memory held before.
            sum(start(), Some(five), Some(four)),
            sum(start(), Some(four), Some(five)),
            sum(start(), None, Some(five)),
            sum(start(), Some(five), None),
            sum(None, Some(five), Some(five)),
            sum(start(), Some(moving), Some(moving)),
        ] {
            let text = print_stmt(&stmt);
            assert!(!text.contains("C.acc"), "{text}");
        }
    }
}

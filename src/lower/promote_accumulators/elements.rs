//! Elements of a buffer that registers replace while a nest runs.

use crate::ir::equal::equal;
use crate::ir::visit::{
    self, Memo, NodeSet, for_each_expr, for_each_load, map_stmts, rewrite_exprs, walk_stmt,
};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Scope, Stmt, Type};

/// Elements or vectors of a buffer, each with the register that replaces it.
pub(super) struct Elements {
    pub(super) buffer: Buffer,
    pub(super) list: Vec<Element>,
    /// Whether masks may select lanes of an element without a mask.
    pub(super) selects: bool,
}

#[derive(Clone)]
pub(super) struct Element {
    pub(super) buffer: Buffer,
    pub(super) index: Expr,
    /// The lanes that are stored; the other lanes of the register have any value.
    pub(super) mask: Option<Expr>,
    /// The condition under which the element exists.
    pub(super) cond: Option<Expr>,
    /// The register, or a part of memory that all elements share ([`Elements::keep_in_memory`]).
    pub(super) register: Buffer,
    /// Its first element there.
    place: u32,
}

/// An element that exists under a condition.
pub(super) struct GuardedElement {
    pub(super) buffer: Buffer,
    pub(super) index: Expr,
    pub(super) cond: Expr,
}

impl Element {
    /// Whether the first statement that accesses the element stores it as a whole, and does not
    /// read it; `None` if nothing accesses it. All accesses to the buffer are at disjoint elements,
    /// so that an access at another index is one to another element.
    pub(super) fn first_access(&self, stmt: &Stmt) -> Option<bool> {
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

    /// The same for a loop that has an iteration, whatever its extent.
    pub(super) fn first_access_of(&self, nest: &Stmt) -> Option<bool> {
        match nest {
            Stmt::For { min, extent, body, .. }
                if !self.is_read_by(min) && !self.is_read_by(extent) =>
            {
                self.first_access(body)
            }
            other => self.first_access(other),
        }
    }

    pub(super) fn is_read_by(&self, expr: &Expr) -> bool {
        let mut read = false;
        for_each_load(expr, &mut NodeSet::default(), &mut |buffer, indices, _| {
            read |= *buffer == self.buffer && equal(&self.index, &indices[0]);
        });
        read
    }

    pub(super) fn is_accessed_by(&self, stmt: &Stmt) -> bool {
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
    /// Replaces the registers by places in one block of memory.
    pub(super) fn keep_in_memory(&mut self) {
        let lanes = self.list.iter().map(|element| element.index.ty.lanes).sum::<u32>();
        let name = format!("{}.tile", self.buffer.name);
        let shape = vec![Expr::index(lanes.into())];
        let tile = Buffer::new(name, self.buffer.dtype, shape, Scope::Local);
        let mut place = 0;
        for element in &mut self.list {
            element.register = tile.clone();
            element.place = place;
            place += element.index.ty.lanes;
        }
    }

    /// Whether the lanes of each element are next to each other in memory.
    pub(super) fn are_vectors(&self) -> bool {
        self.list.iter().all(|one| one.lanes().is_some_and(|lanes| lanes.stride == 1))
    }

    pub(super) fn add(&mut self, index: &Expr, mask: Option<&Expr>) {
        self.list.push(Element::new(&self.buffer, index, mask));
    }

    /// Notes the conditions of elements that may not exist; returns their number.
    pub(super) fn set_conditions(&mut self, guarded: &[GuardedElement]) -> usize {
        let mut count = 0;
        for one in guarded.iter().filter(|one| one.buffer == self.buffer) {
            for element in self.list.iter_mut().filter(|its| equal(&its.index, &one.index)) {
                element.cond = Some(one.cond.clone());
                count += 1;
            }
        }
        count
    }

    pub(super) fn find(&self, index: &Expr, mask: Option<&Expr>) -> Option<&Element> {
        let same_mask = |element: &Element| match (&element.mask, mask) {
            (Some(a), Some(b)) => equal(a, b),
            (None, Some(_)) => self.selects,
            (a, b) => a.is_none() && b.is_none(),
        };
        self.list.iter().find(|element| equal(&element.index, index) && same_mask(element))
    }

    /// Whether an expression reads the buffer at these elements only, without a mask.
    pub(super) fn cover_loads(&self, expr: &Expr) -> bool {
        self.cover_loads_under(expr, None)
    }

    /// Like `cover_loads`, for a value that is stored under `mask`. A load under the same mask may
    /// have any value in the other lanes, because operations work lane by lane and those lanes are
    /// not stored. Other masks are refused.
    pub(super) fn cover_loads_under(&self, expr: &Expr, mask: Option<&Expr>) -> bool {
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
    pub(super) fn are_all_accesses(&self, nest: &Stmt) -> bool {
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
    pub(super) fn redirect(&self, stmt: Stmt) -> Stmt {
        let mut done = Memo::default();
        let stmt = rewrite_exprs(stmt, &mut |expr| self.redirect_expr(expr, &mut done));
        self.redirect_stores(stmt)
    }

    pub(super) fn redirect_expr(&self, expr: &Expr, done: &mut Memo<Expr>) -> Expr {
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

    pub(super) fn redirect_stores(&self, stmt: Stmt) -> Stmt {
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
pub(super) struct Lanes<'a> {
    pub(super) first: &'a Expr,
    pub(super) lanes: i128,
    pub(super) stride: i128,
}

impl Element {
    pub(super) fn new(buffer: &Buffer, index: &Expr, mask: Option<&Expr>) -> Element {
        let shape = vec![Expr::index(index.ty.lanes.into())];
        let name = format!("{}.acc", buffer.name);
        let register = Buffer::new(name, buffer.dtype, shape, Scope::Register);
        let (buffer, index, mask) = (buffer.clone(), index.clone(), mask.cloned());
        Element { buffer, index, mask, cond: None, register, place: 0 }
    }

    /// Returns another element, with as many lanes, for the same register.
    pub(super) fn with_index(&self, index: &Expr) -> Element {
        Element { index: index.clone(), ..self.clone() }
    }

    /// Returns how many of its neighbouring lanes a mask such as `ramp(x, 1, 16) < x16(m)` keeps,
    /// if that is less than all: `m - x`.
    pub(super) fn stored_lanes(&self) -> Option<Expr> {
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
    pub(super) fn lanes(&self) -> Option<Lanes<'_>> {
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

    /// Returns the first element of its lanes and their stride, if this is known at run time only.
    pub(super) fn run_time_stride(&self) -> Option<(&Expr, &Expr)> {
        match &self.index.kind {
            ExprKind::Ramp(first, stride) if stride.as_int().is_none() => Some((first, stride)),
            _ => None,
        }
    }

    /// Returns the index of the register's elements.
    pub(super) fn all_lanes(&self) -> Expr {
        let (ty, first) = (self.index.ty, Expr::index(self.place.into()));
        match ty.lanes {
            1 => first,
            _ => Expr::new(ty, ExprKind::Ramp(first, Expr::index(1))),
        }
    }

    pub(super) fn value(&self) -> Expr {
        Expr::load(&self.register, vec![self.all_lanes()])
    }

    /// Loads the element into its register.
    pub(super) fn read(&self) -> Stmt {
        let (buffer, index) = (self.buffer.clone(), self.index.clone());
        let ty = Type { dtype: buffer.dtype, lanes: index.ty.lanes };
        let mask = self.mask.clone();
        let value = Expr::new(ty, ExprKind::Load { buffer, indices: vec![index], mask });
        Stmt::store(&self.register, vec![self.all_lanes()], value)
    }

    /// Stores the register to the element.
    pub(super) fn write_back(&self) -> Stmt {
        let (buffer, mask) = (self.buffer.clone(), self.mask.clone());
        let (indices, value) = (vec![self.index.clone()], self.value());
        let store = Stmt::Store { buffer, indices, value, mask, nontemporal: false };
        match &self.cond {
            Some(cond) => Stmt::If { cond: cond.clone(), then: Box::new(store), otherwise: None },
            None => store,
        }
    }
}

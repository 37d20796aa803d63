//! Analyses of a nest before instruction selection: buffers that can live in registers, values that
//! loops change, accesses that get a pointer.

use super::address::{for_each_var, is_index};
use super::inst::Width;
use super::value::{bits_of, width_of};
use crate::codegen::common::constant_bytes;
use crate::ir::equal::equal;
use crate::ir::limits::{FACTOR_REGISTERS, ROW_CHUNK_BYTES};
use crate::ir::visit::{NodeSet, reads_buffer, reads_memory};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Scope, Stmt, Var, visit};
use crate::simd_ops::{OffsetLoad, lane_count, lane_offsets};
use crate::target::SimdIsa;
use regalloc2::VReg;
use rustc_hash::{FxHashMap, FxHashSet};

/// A part of a buffer in registers, by its first element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Carried {
    pub(super) buffer: Buffer,
    pub(super) first: i64,
}

/// The first element and the number of elements of an access to consecutive elements with a
/// constant index.
fn constant_range(index: &Expr) -> Option<(i64, i64)> {
    match &index.kind {
        ExprKind::Ramp(base, stride) if stride.as_int() == Some(1) => {
            Some((base.as_int()? as i64, index.ty.lanes.into()))
        }
        _ => Some((index.as_int()? as i64, 1)),
    }
}

/// The first elements of the rows whose elements a load of a buffer in registers takes in turns.
pub(super) fn rows_of_turns(index: &Expr, dtype: DType, isa: SimdIsa) -> Option<Vec<i64>> {
    let known = lane_offsets(index).filter(|known| known.base.as_int() == Some(0))?;
    match known.load(dtype.bytes(), isa)? {
        OffsetLoad::Interleaved { rows } => Some(rows),
        _ => None,
    }
}

/// The most accesses to lanes of one part. Each is a shuffle or two; memory gives two in a cycle.
const MOST_LANE_ACCESSES: usize = 8;

/// The parts of an allocated buffer if it can live in registers: all accesses are to constant
/// ranges of elements. Those that are stored are the parts, at most one for each register, and do
/// not overlap; loads read a part or some lanes of one, as the last steps of a reduction do.
pub(super) fn register_parts(buffer: &Buffer, body: &Stmt, isa: SimdIsa) -> Option<Vec<i64>> {
    let most = isa.registers() as usize;
    if buffer.dtype == DType::Bool || !matches!(buffer.scope, Scope::Register | Scope::Local) {
        return None;
    }
    if let Some(parts) = tile_parts(buffer, body) {
        return Some(parts);
    }
    let mut stored: FxHashMap<i64, i64> = FxHashMap::default();
    let mut fits = true;
    visit::walk_stmt(
        body,
        &mut |stmt| match stmt {
            Stmt::Store { buffer: accessed, indices, .. } if accessed == buffer => {
                let range = constant_range(&indices[0]);
                fits &= range
                    .is_some_and(|(first, count)| *stored.entry(first).or_insert(count) == count);
            }
            _ => {}
        },
        &mut |_| {},
    );
    let mut accessed: FxHashSet<(i64, i64)> = FxHashSet::default();
    for_each_access(body, &mut |of, index, mask| {
        if of == buffer && fits {
            let range = constant_range(index).filter(|_| mask.is_none());
            let rows = || rows_of_turns(index, buffer.dtype, isa).filter(|_| mask.is_none());
            match range {
                Some(range) => _ = accessed.insert(range),
                None if let Some(rows) = rows() => {
                    let each = i64::from(index.ty.lanes) / rows.len() as i64;
                    accessed.extend(rows.into_iter().map(|first| (first, each)));
                }
                None => fits = false,
            }
        }
    });
    if !fits || accessed.len() > most * MOST_LANE_ACCESSES {
        return None;
    }
    let mut parts: Vec<(i64, i64)> = stored.into_iter().collect();
    let mut lane_accesses: FxHashMap<i64, usize> = FxHashMap::default();
    for (first, count) in accessed {
        let within = |part: &&(i64, i64)| part.0 <= first && first + count <= part.0 + part.1;
        match parts.iter().find(within) {
            Some(part) if *part == (first, count) => {}
            Some((part, _)) if are_lanes((first - part, count), buffer.dtype) => {
                *lane_accesses.entry(*part).or_default() += 1;
            }
            Some(_) => return None,
            // What is never written may have any value.
            None => parts.push((first, count)),
        }
    }
    let few = lane_accesses.values().all(|count| *count <= MOST_LANE_ACCESSES);
    if parts.len() > most || !few || !lane_accesses.is_empty() && is_broadcast(buffer, body) {
        return None;
    }
    let crowded = parts.len() as u64 + FACTOR_REGISTERS > u64::from(isa.registers());
    if buffer.scope == Scope::Local && crowded && is_used_in_parts(buffer, body, parts.len()) {
        return None;
    }
    parts.sort_unstable();
    let apart = parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
    apart.then(|| parts.into_iter().map(|(first, _)| first).collect())
}

/// Whether a loop uses not all parts of a buffer: it only keeps the others.
fn is_used_in_parts(buffer: &Buffer, body: &Stmt, parts: usize) -> bool {
    let mut found = false;
    visit::walk_stmt(
        body,
        &mut |stmt| {
            if let Stmt::For { .. } = stmt {
                let mut used: FxHashSet<Option<i64>> = FxHashSet::default();
                for_each_access(stmt, &mut |of, index, _| {
                    if of == buffer {
                        used.insert(constant_range(index).map(|(first, _)| first));
                    }
                });
                found |= used.len() < parts;
            }
        },
        &mut |_| {},
    );
    found
}

/// Whether one instruction or two move these lanes of a register to its first lanes: the first
/// ones, lanes within 16 bytes, or the upper half of 64 bytes.
fn are_lanes((first, count): (i64, i64), dtype: DType) -> bool {
    let bytes = dtype.bytes() as i64;
    let (start, length) = (first * bytes, count * bytes);
    start == 0 || start % 16 + length <= 16 || (start == 32 && length <= 32)
}

/// Whether an element of a buffer is broadcast, which memory does at no cost.
fn is_broadcast(buffer: &Buffer, body: &Stmt) -> bool {
    let is_broadcast = |expr: &Expr| {
        matches!(&expr.kind, ExprKind::Broadcast(one)
            if matches!(&one.kind, ExprKind::Load { buffer: loaded, .. } if loaded == buffer))
    };
    let mut found = false;
    visit::walk_stmt(body, &mut |_| {}, &mut |expr| {
        found = found || visit::any_expr(expr, &mut |node| is_broadcast(node));
    });
    found
}

/// A column of a tile in registers: `lanes` elements from `first` on, `stride` apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct TileColumn {
    pub(super) first: i64,
    pub(super) stride: i64,
    pub(super) lanes: u32,
}

/// The column that an access to a tile reads; `None` if it is to a chunk of a row.
pub(super) fn tile_column(index: &Expr) -> Option<TileColumn> {
    let ExprKind::Ramp(base, stride) = &index.kind else { return None };
    let (first, stride) = (base.as_int()? as i64, stride.as_int()? as i64);
    (stride > 1).then_some(TileColumn { first, stride, lanes: index.ty.lanes })
}

/// The row chunks of a buffer if it is a tile: it is written by chunks of [`ROW_CHUNK_BYTES`] and
/// read by columns.
fn tile_parts(buffer: &Buffer, body: &Stmt) -> Option<Vec<i64>> {
    let chunk = (ROW_CHUNK_BYTES / buffer.dtype.bytes()) as i64;
    let (mut is_tile, mut width) = (true, None);
    for_each_access(body, &mut |accessed, index, mask| {
        if accessed == buffer
            && let Some(column) = tile_column(index)
        {
            let most = Width::Z.bytes() / buffer.dtype.bytes();
            is_tile &= mask.is_none() && *width.get_or_insert(column.stride) == column.stride;
            is_tile &= u64::from(column.lanes) <= most;
        } else if accessed == buffer {
            let range = constant_range(index);
            let whole = |(first, count)| count == chunk && first % chunk == 0;
            is_tile &= mask.is_none() && range.is_some_and(whole);
        }
    });
    let width =
        width.filter(|width| is_tile && width % chunk == 0 && !stores_column(buffer, body))?;
    let elements = constant_bytes(buffer)? / buffer.dtype.bytes() as i64;
    let whole = elements % width == 0;
    whole.then(|| (0..elements).step_by(chunk as usize).collect())
}

/// Whether a statement writes a column of the buffer.
fn stores_column(buffer: &Buffer, body: &Stmt) -> bool {
    let mut found = matches!(body, Stmt::Store { buffer: stored, indices, .. }
        if stored == buffer && tile_column(&indices[0]).is_some());
    visit::for_each_stmt(body, &mut |inner| found = found || stores_column(buffer, inner));
    found
}

/// Calls `f` with every access of a statement: buffer, index, mask.
pub(super) fn for_each_access(stmt: &Stmt, f: &mut dyn FnMut(&Buffer, &Expr, Option<&Expr>)) {
    let mut seen = NodeSet::default();
    access_in_stmt(stmt, &mut seen, f);
}

type OnAccess<'f> = dyn FnMut(&Buffer, &Expr, Option<&Expr>) + 'f;

fn access_in_stmt(stmt: &Stmt, seen: &mut NodeSet, f: &mut OnAccess) {
    if let Stmt::Store { buffer, indices, mask, .. } = stmt {
        f(buffer, &indices[0], mask.as_ref());
    }
    visit::for_each_expr(stmt, &mut |expr| access_in_expr(expr, seen, f));
    visit::for_each_stmt(stmt, &mut |inner| access_in_stmt(inner, seen, f));
}

fn access_in_expr(expr: &Expr, seen: &mut NodeSet, f: &mut OnAccess) {
    visit::for_each_load(expr, seen, &mut |buffer, indices, mask| f(buffer, &indices[0], mask));
}

/// The lengths in bytes of unmasked accesses that need a mask, because no move has that length.
pub(super) fn partial_accesses(stmt: &Stmt) -> Vec<u64> {
    let mut found = Vec::new();
    for_each_access(stmt, &mut |buffer, index, mask| {
        let bytes = buffer.dtype.bytes() * u64::from(index.ty.lanes);
        let consecutive =
            matches!(&index.kind, ExprKind::Ramp(_, stride) if stride.as_int() == Some(1));
        let moved = buffer.scope != Scope::Register && mask.is_none() && consecutive;
        if moved && !bytes.is_power_of_two() && !found.contains(&bytes) {
            found.push(bytes);
        }
    });
    found
}

/// The parts of buffers in registers that a statement writes, in textual order.
pub(super) fn changed_parts(
    stmt: &Stmt,
    registers: &FxHashMap<Buffer, FxHashMap<i64, Option<VReg>>>,
) -> Vec<Carried> {
    let mut changed = Vec::new();
    let mut seen = FxHashSet::default();
    visit::walk_stmt(
        stmt,
        &mut |stmt| {
            if let Stmt::Store { buffer, indices, .. } = stmt
                && registers.contains_key(buffer)
                && let Some((first, _)) = constant_range(&indices[0])
                && seen.insert((buffer.clone(), first))
            {
                changed.push(Carried { buffer: buffer.clone(), first });
            }
        },
        &mut |_| {},
    );
    changed
}

/// Whether a statement certainly writes a part before it can read it.
pub(super) fn is_written_first(stmt: &Stmt, part: &Carried) -> bool {
    first_use(stmt, part) == Some(true)
}

/// The first use of a part in a statement: `true` for a certain write, `None` without a use.
fn first_use(stmt: &Stmt, part: &Carried) -> Option<bool> {
    match stmt {
        Stmt::Block(stmts) => stmts.iter().find_map(|stmt| first_use(stmt, part)),
        Stmt::Store { buffer, indices, .. } => {
            let mut reads = false;
            visit::for_each_expr(stmt, &mut |expr| reads |= reads_buffer(expr, &part.buffer));
            if reads {
                return Some(false);
            }
            let first = constant_range(&indices[0]).map(|(first, _)| first);
            (*buffer == part.buffer && first == Some(part.first)).then_some(true)
        }
        Stmt::Let { value, body, .. } => match reads_buffer(value, &part.buffer) {
            true => Some(false),
            false => first_use(body, part),
        },
        Stmt::Allocate { body, .. } | Stmt::Produce { body, .. } => first_use(body, part),
        _ => {
            let mut touched = false;
            for_each_access(stmt, &mut |buffer, _, _| touched |= *buffer == part.buffer);
            touched.then_some(false)
        }
    }
}

/// The vector constants of an innermost loop's body: bits, bytes of an element, width.
pub(super) fn loop_constants(body: &Stmt) -> Vec<(u64, u64, Width)> {
    let (mut found, mut seen) = (Vec::new(), FxHashSet::default());
    let mut innermost = true;
    visit::walk_stmt(
        body,
        &mut |stmt| innermost &= !matches!(stmt, Stmt::For { .. }),
        &mut |expr| constants_in(expr, &mut seen, &mut found),
    );
    if innermost { found } else { Vec::new() }
}

fn constants_in(expr: &Expr, seen: &mut FxHashSet<usize>, found: &mut Vec<(u64, u64, Width)>) {
    if !seen.insert(expr.id()) {
        return;
    }
    // The amount of a shift is an immediate.
    if let ExprKind::Binary(BinOp::Shl | BinOp::Shr, a, _) = &expr.kind {
        return constants_in(a, seen, found);
    }
    if let ExprKind::Broadcast(one) = &expr.kind
        && let ExprKind::Const(value) = one.kind
        && !matches!(expr.ty.dtype, DType::Bool | DType::Index)
    {
        let constant = (bits_of(value, expr.ty.dtype), expr.ty.dtype.bytes(), width_of(expr.ty));
        if constant.0 != 0 && !found.contains(&constant) {
            found.push(constant);
        }
        return;
    }
    visit::for_each_child(expr, &mut |child| constants_in(child, seen, found));
}

/// The comparisons in a loop's body that count lanes and are invariant in it.
pub(super) fn loop_comparisons(var: &Var, body: &Stmt) -> Vec<Expr> {
    let mut search = LaneCountSearch::default();
    let mut bound = FxHashSet::from_iter([var.clone()]);
    visit::walk_stmt(
        body,
        &mut |stmt| {
            if let Stmt::For { var, .. } | Stmt::Let { var, .. } = stmt {
                bound.insert(var.clone());
            }
        },
        &mut |expr| search.expr(expr),
    );
    bound.extend(search.bound);
    search.found.retain(|comparison| {
        let mut outside = !reads_memory(comparison);
        for_each_var(comparison, &mut |var| outside &= !bound.contains(var));
        outside
    });
    search.found
}

#[derive(Default)]
struct LaneCountSearch {
    found: Vec<Expr>,
    bound: FxHashSet<Var>,
    seen: FxHashSet<usize>,
}

impl LaneCountSearch {
    fn expr(&mut self, expr: &Expr) {
        if !self.seen.insert(expr.id()) {
            return;
        }
        match &expr.kind {
            ExprKind::Binary(op, a, b) if lane_count(*op, a, b).is_some() => {
                if !self.found.iter().any(|known| equal(known, expr)) {
                    self.found.push(expr.clone());
                }
                return;
            }
            ExprKind::Let(var, ..) => {
                self.bound.insert(var.clone());
            }
            _ => {}
        }
        visit::for_each_child(expr, &mut |child| self.expr(child));
    }
}

/// Both sides of the comparisons of indices in the branches of a loop's body, outside of inner
/// loops.
pub(super) fn index_conditions(body: &Stmt) -> Vec<(Expr, Expr)> {
    let mut found = Vec::new();
    conditions_in_stmt(body, &mut found);
    found
}

/// Returns the conditions of a statement that read memory and that it uses more than once. Each of
/// them is a value of its own: if every use had its own branches, conditions that use each other
/// would become exponentially many.
pub(super) fn reused_conditions(stmt: &Stmt) -> NodeSet {
    fn note(expr: &Expr, seen: &mut NodeSet, reused: &mut NodeSet) {
        if seen.insert(expr) {
            return visit::for_each_child(expr, &mut |child| note(child, seen, reused));
        }
        let is_condition = matches!(expr.kind, ExprKind::Binary(BinOp::And | BinOp::Or, ..));
        if is_condition && expr.ty.is_scalar() && reads_memory(expr) {
            reused.insert(expr);
        }
    }
    let (mut seen, mut reused) = (NodeSet::default(), NodeSet::default());
    visit::for_each_expr(stmt, &mut |expr| note(expr, &mut seen, &mut reused));
    reused
}

fn conditions_in_stmt(stmt: &Stmt, found: &mut Vec<(Expr, Expr)>) {
    match stmt {
        Stmt::For { .. } => return,
        Stmt::If { cond, .. } => {
            if let ExprKind::Binary(op, a, b) = &cond.kind
                && op.is_comparison()
                && is_index(a)
                && !reads_memory(cond)
            {
                found.push((a.clone(), b.clone()));
            }
        }
        _ => {}
    }
    visit::for_each_stmt(stmt, &mut |inner| conditions_in_stmt(inner, found));
}

/// Whether all constants in an index are so small that their sums fit into 64 bits.
pub(super) fn has_small_constants(index: &Expr) -> bool {
    let is_large = |value: i128| i32::try_from(value).is_err();
    !visit::any_expr(index, &mut |node| node.as_int().is_some_and(is_large))
}

/// The scalar index that an access starts from; `None` if its lanes can be anywhere.
pub(super) fn first_index(index: &Expr) -> Option<&Expr> {
    match &index.kind {
        _ if index.ty.lanes == 1 => Some(index),
        ExprKind::Ramp(base, stride) if !reads_memory(stride) => Some(base),
        ExprKind::Broadcast(one) => Some(one),
        _ => None,
    }
}

/// An access with a run-time stride.
pub(super) struct Strided {
    pub(super) buffer: Buffer,
    pub(super) index: Expr,
    pub(super) stride: Expr,
    pub(super) is_store: bool,
}

/// The accesses with a run-time stride in a loop's body, outside of inner loops.
pub(super) fn run_time_strides(body: &Stmt) -> Vec<Strided> {
    let (mut found, mut seen) = (Vec::new(), NodeSet::default());
    strides_in_stmt(body, &mut seen, &mut found);
    found
}

fn strides_in_stmt(stmt: &Stmt, seen: &mut NodeSet, found: &mut Vec<Strided>) {
    let mut note = |buffer: &Buffer, index: &Expr, is_store: bool| {
        if let ExprKind::Ramp(_, stride) = &index.kind
            && stride.as_int().is_none()
            && !reads_memory(stride)
        {
            let (buffer, index, stride) = (buffer.clone(), index.clone(), stride.clone());
            found.push(Strided { buffer, index, stride, is_store });
        }
    };
    match stmt {
        Stmt::For { .. } => return,
        Stmt::Store { buffer, indices, .. } => note(buffer, &indices[0], true),
        _ => {}
    }
    visit::for_each_expr(stmt, &mut |expr| {
        access_in_expr(expr, seen, &mut |buffer, index, _| note(buffer, index, false));
    });
    visit::for_each_stmt(stmt, &mut |inner| strides_in_stmt(inner, seen, found));
}

/// The accesses of a loop's body outside of inner loops, by their first index. Adds variables that
/// are arithmetic on others to `lets`.
pub(super) fn direct_accesses(body: &Stmt, lets: &mut FxHashMap<Var, Expr>) -> Vec<(Buffer, Expr)> {
    let mut found = Vec::new();
    let mut seen = NodeSet::default();
    direct_in_stmt(body, lets, &mut seen, &mut found);
    found
}

fn direct_in_stmt(
    stmt: &Stmt,
    lets: &mut FxHashMap<Var, Expr>,
    seen: &mut NodeSet,
    found: &mut Vec<(Buffer, Expr)>,
) {
    match stmt {
        Stmt::For { .. } => return,
        Stmt::Let { var, value, .. } if is_index(value) && !reads_memory(value) => {
            lets.insert(var.clone(), value.clone());
        }
        _ => {}
    }
    let mut note = |buffer: &Buffer, index: &Expr, _: Option<&Expr>| {
        // Lanes at constant distances have a pointer to the scalar that they are counted from.
        let first = first_index(index).cloned();
        if let Some(first) = first.or_else(|| Some(lane_offsets(index)?.base)) {
            found.push((buffer.clone(), first));
        }
    };
    if let Stmt::Store { buffer, indices, mask, .. } = stmt {
        note(buffer, &indices[0], mask.as_ref());
    }
    if let Stmt::Prefetch { buffer, indices } = stmt {
        note(buffer, &indices[0], None);
    }
    visit::for_each_expr(stmt, &mut |expr| access_in_expr(expr, seen, &mut note));
    visit::for_each_stmt(stmt, &mut |inner| direct_in_stmt(inner, lets, seen, found));
}

/// Adds the accesses of the loops in a statement.
pub(super) fn inner_accesses(
    stmt: &Stmt,
    lets: &mut FxHashMap<Var, Expr>,
    found: &mut Vec<(Buffer, Expr)>,
) {
    if let Stmt::For { body, .. } = stmt {
        found.extend(direct_accesses(body, lets));
    }
    visit::for_each_stmt(stmt, &mut |inner| inner_accesses(inner, lets, found));
}

/// Whether the body of a loop uses its variable outside of the `handled` accesses. Several buffers
/// may share an index of which only some have a pointer.
pub(super) fn needs_var(
    body: &Stmt,
    var: &Var,
    handled: &[(Buffer, Expr)],
    lets: &FxHashMap<Var, Expr>,
) -> bool {
    let handled: FxHashSet<(&Buffer, usize)> =
        handled.iter().map(|(buffer, index)| (buffer, index.id())).collect();
    UseSearch { var, handled: &handled, lets, seen: FxHashSet::default() }.in_stmt(body, true)
}

struct UseSearch<'s> {
    var: &'s Var,
    handled: &'s FxHashSet<(&'s Buffer, usize)>,
    lets: &'s FxHashMap<Var, Expr>,
    /// Expressions that were visited, directly in the loop or in an inner one.
    seen: FxHashSet<(usize, bool)>,
}

impl UseSearch<'_> {
    fn in_stmt(&mut self, stmt: &Stmt, direct: bool) -> bool {
        if let Stmt::Let { var, .. } = stmt
            && self.lets.contains_key(var)
        {
            // Only uses of the variable count.
            let mut found = false;
            visit::for_each_stmt(stmt, &mut |inner| found = found || self.in_stmt(inner, direct));
            return found;
        }
        let mut found = false;
        let inner_direct = direct && !matches!(stmt, Stmt::For { .. });
        if let Stmt::Store { buffer, indices, value, mask, .. } = stmt {
            found |= self.in_access(buffer, &indices[0], direct);
            found |= self.in_expr(value, direct);
            found |= mask.as_ref().is_some_and(|mask| self.in_expr(mask, direct));
            return found;
        }
        if let Stmt::Prefetch { buffer, indices } = stmt {
            return self.in_access(buffer, &indices[0], direct);
        }
        visit::for_each_expr(stmt, &mut |expr| found = found || self.in_expr(expr, direct));
        visit::for_each_stmt(stmt, &mut |inner| found = found || self.in_stmt(inner, inner_direct));
        found
    }

    fn in_access(&mut self, buffer: &Buffer, index: &Expr, direct: bool) -> bool {
        let is_handled = |first: &Expr| self.handled.contains(&(buffer, first.id()));
        let handled = first_index(index).is_some_and(is_handled);
        !(direct && handled) && self.in_expr(index, direct)
    }

    fn in_expr(&mut self, expr: &Expr, direct: bool) -> bool {
        // Accesses in inner loops are not handled, so expressions are visited again there.
        if !self.seen.insert((expr.id(), direct)) {
            return false;
        }
        match &expr.kind {
            ExprKind::Var(var) => self.is_var(var),
            ExprKind::Load { buffer, indices, mask } => {
                self.in_access(buffer, &indices[0], direct)
                    || mask.as_ref().is_some_and(|mask| self.in_expr(mask, direct))
            }
            _ => {
                let mut found = false;
                visit::for_each_child(expr, &mut |child| {
                    found = found || self.in_expr(child, direct);
                });
                found
            }
        }
    }

    /// Whether a variable is the loop's, or its definition uses that.
    fn is_var(&self, var: &Var) -> bool {
        let mut seen = FxHashSet::from_iter([var.clone()]);
        let mut open = vec![var.clone()];
        while let Some(var) = open.pop() {
            if var == *self.var {
                return true;
            }
            if let Some(value) = self.lets.get(&var) {
                for_each_var(value, &mut |inner| {
                    if seen.insert(inner.clone()) {
                        open.push(inner.clone());
                    }
                });
            }
        }
        false
    }
}

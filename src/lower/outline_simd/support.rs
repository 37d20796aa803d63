//! What `codegen::simd` has instructions for.

use crate::ir::limits::NEST_FRAME_BYTES;
use crate::ir::visit::{for_each_child, for_each_expr, for_each_stmt, reads_memory};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, ForKind, Stmt};
use crate::lower::expand_math::expand_expr;
use crate::target::SimdIsa;
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes of the shortest vector that is gathered at once.
const PIECE: u64 = 16;
/// A nest of more nodes is left alone: registers are allocated for it as a whole.
const MAX_NODES: usize = 60_000;

/// Whether a statement computes on vectors.
pub(super) fn has_vectors(stmt: &Stmt) -> bool {
    let mut found = false;
    for_each_expr(stmt, &mut |expr| found |= expr.ty.lanes > 1);
    if !found {
        for_each_stmt(stmt, &mut |inner| found = found || has_vectors(inner));
    }
    found
}

/// Decides which statements a nest may have.
pub(super) struct Judge {
    evex: bool,
    /// Expressions that are fine, by node; kept, so that addresses stay their own.
    fine: FxHashMap<usize, Expr>,
    nodes: usize,
    frame: i128,
}

type Verdict = Result<(), String>;

impl Judge {
    pub(super) fn new(isa: SimdIsa) -> Judge {
        Judge { evex: isa.has_masks(), fine: FxHashMap::default(), nodes: 0, frame: 0 }
    }

    /// Whether a statement can be in a nest as it is; the reason if it cannot.
    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Verdict {
        (self.nodes, self.frame) = (0, 0);
        self.fine.clear();
        self.check(stmt)
    }

    fn check(&mut self, stmt: &Stmt) -> Verdict {
        let mut verdict = Ok(());
        match stmt {
            Stmt::For { kind: ForKind::Parallel, .. } => {
                return Err("a parallel loop is run by the runtime".into());
            }
            Stmt::Assert { .. } | Stmt::Barrier | Stmt::AwaitCopies { .. } => {
                return Err("it checks or waits".into());
            }
            Stmt::Allocate { buffer, .. } => self.allocation(buffer)?,
            Stmt::Let { var, .. } if var.ty().lanes > 1 && var.ty().dtype == DType::Bool => {
                return Err(format!("`{}` binds a vector of bool", var.name()));
            }
            // Functions are expanded before instructions are selected.
            Stmt::Store { value, .. } => {
                let expanded = expand_expr(value);
                return self.expr(&expanded).and_then(|()| {
                    for_each_expr(stmt, &mut |expr| {
                        if verdict.is_ok() && !expr.same(value) {
                            verdict = self.expr(expr);
                        }
                    });
                    verdict
                });
            }
            _ => {}
        }
        for_each_expr(stmt, &mut |expr| {
            if verdict.is_ok() {
                verdict = self.expr(expr);
            }
        });
        for_each_stmt(stmt, &mut |inner| {
            if verdict.is_ok() {
                verdict = self.check(inner);
            }
        });
        verdict
    }

    fn allocation(&mut self, buffer: &Buffer) -> Verdict {
        let count = buffer
            .shape
            .iter()
            .try_fold(1i128, |count, extent| count.checked_mul(extent.as_int()?.max(0)));
        let Some(count) = count else {
            return Err(format!("`{}` has no constant size", buffer.name));
        };
        self.frame += count * i128::from(buffer.dtype.bytes()) + 64;
        if self.frame > NEST_FRAME_BYTES {
            return Err(format!("`{}` is too large for the stack", buffer.name));
        }
        Ok(())
    }

    fn expr(&mut self, expr: &Expr) -> Verdict {
        if self.fine.insert(expr.id(), expr.clone()).is_some() {
            return Ok(());
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err("it is too large".into());
        }
        let ty = expr.ty;
        match &expr.kind {
            ExprKind::Binary(BinOp::Shl | BinOp::Shr, _, by)
                if ty.dtype == DType::Index && ty.lanes == 1 && by.as_int().is_none() =>
            {
                return Err("it shifts an index by a value that is not constant".into());
            }
            ExprKind::Cast(a) => self.cast(a.ty.dtype, ty.dtype)?,
            _ => {}
        }
        let mut verdict = Ok(());
        for_each_child(expr, &mut |child| {
            if verdict.is_ok() {
                verdict = self.expr(child);
            }
        });
        verdict
    }

    fn cast(&self, from: DType, to: DType) -> Verdict {
        use DType::*;
        let none = || Err(format!("there is no instruction that converts {from} to {to}"));
        match (from, to) {
            (Float64, half) if half.is_half() => none(),
            (Uint64, Float32 | Float64) | (Float32 | Float64, Uint64) if !self.evex => none(),
            (Uint64, half) if half.is_half() && !self.evex => none(),
            (half, Uint64) if half.is_half() && !self.evex => none(),
            _ => Ok(()),
        }
    }
}

/// Lanes of the vectors that a store of `lanes` lanes is split into, with registers for
/// everything that the store computes: a power of two, or all lanes if they are fewer than a
/// register has and masks do for the rest; 1 if it has to run lane by lane.
pub fn wide_lanes(
    index: &Expr,
    value: &Expr,
    mask: Option<&Expr>,
    buffer: &Buffer,
    lanes: u32,
    isa: SimdIsa,
) -> u32 {
    let mut needs = Needs {
        evex: isa.has_masks(),
        bytes: buffer.dtype.bytes(),
        lanewise: false,
        consecutive: true,
        shortest_apart: u64::MAX,
        seen: FxHashSet::default(),
    };
    needs.access(buffer.dtype, index, mask, false);
    needs.expr(value);
    if let Some(mask) = mask {
        needs.expr(mask);
    }
    if needs.lanewise {
        return 1;
    }
    let most = (u64::from(isa.bytes()) / needs.bytes).max(1) as u32;
    // A part of a register is read and written by a mask.
    if lanes > 2 && lanes < most && needs.consecutive {
        return lanes;
    }
    let width = 1 << most.min(lanes).ilog2();
    // Shorter vectors are gathered and scattered lane by lane.
    let together = needs.shortest_apart.saturating_mul(width.into()) >= PIECE;
    if together { width } else { 1 }
}

/// The longest element that a vector of a statement has.
struct Needs {
    evex: bool,
    bytes: u64,
    /// Something has no vector form.
    lanewise: bool,
    /// All accesses are to consecutive elements, or to one, that masks can count.
    consecutive: bool,
    /// Bytes of the shortest element of accesses under masks to elements that lie apart.
    shortest_apart: u64,
    seen: FxHashSet<usize>,
}

impl Needs {
    fn at_least(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
    }

    fn expr(&mut self, expr: &Expr) {
        if expr.ty.lanes == 1 || !self.seen.insert(expr.id()) {
            return;
        }
        let bytes = expr.ty.dtype.bytes();
        match &expr.kind {
            // Vectors of a `let` are in memory.
            ExprKind::Var(_) => self.consecutive &= self.evex || bytes >= 4,
            ExprKind::Load { buffer, indices, mask } => {
                self.at_least(bytes);
                self.access(buffer.dtype, &indices[0], mask.as_ref(), true);
                mask.iter().for_each(|mask| self.expr(mask));
                return;
            }
            ExprKind::Binary(op, a, b) if op.is_comparison() && is_lane_count(*op, a, b) => return,
            ExprKind::Binary(BinOp::And | BinOp::Or, _, b) if reads_memory(b) => {
                self.lanewise = true
            }
            // Those of integers pass through float64.
            ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, ..) => self.at_least(8),
            ExprKind::Binary(BinOp::Shl | BinOp::Shr, ..) => {
                let shortest = if self.evex { 2 } else { 4 };
                self.at_least(if bytes < shortest { 4 } else { bytes });
            }
            ExprKind::Cast(a) => {
                let from = a.ty.dtype;
                if from.is_half() || expr.ty.dtype.is_half() {
                    self.at_least(4);
                }
                let unsigned = from.is_float() && expr.ty.dtype == DType::Uint32;
                if unsigned && !self.evex {
                    self.at_least(8);
                }
                // Bytes become floats by way of 32 bits.
                if from.is_float() || expr.ty.dtype.is_float() {
                    self.at_least(4);
                }
            }
            _ => {}
        }
        self.at_least(if expr.ty.dtype == DType::Bool { 1 } else { bytes });
        for_each_child(expr, &mut |child| self.expr(child));
    }

    /// An access whose index is not evaluated as a vector, or is; `read`: of a load.
    fn access(&mut self, dtype: DType, index: &Expr, mask: Option<&Expr>, read: bool) {
        let bytes = dtype.bytes();
        let consecutive =
            matches!(&index.kind, ExprKind::Ramp(_, stride) if stride.as_int() == Some(1));
        if consecutive {
            // AVX2 masks elements of 4 and 8 bytes only.
            self.lanewise |= mask.is_some() && !self.evex && bytes < 4;
            self.consecutive &= self.evex || bytes >= 4;
            return;
        }
        if matches!(index.kind, ExprKind::Broadcast(_)) {
            // There is no store of one element by many lanes, and no mask of AVX2 for short ones.
            self.lanewise |= mask.is_some() && !(read && (self.evex || bytes >= 4));
            return;
        }
        self.consecutive = false;
        let (even, short) = match &index.kind {
            ExprKind::Ramp(_, stride) => {
                (true, stride.as_int().is_some_and(|stride| stride.abs() < 1 << 20))
            }
            _ => (false, false),
        };
        if !short {
            self.at_least(8);
            self.expr(index);
        }
        if mask.is_some() {
            self.shortest_apart = self.shortest_apart.min(bytes);
            // Lanes read and written one by one have no masks, and indices of any kind are work
            // for the lanes that are turned off, too.
            self.lanewise |= !even || bytes < 4 || !(read || self.evex);
        }
    }
}

/// Whether a comparison says how many lanes are true: no vector of indices is made for it.
fn is_lane_count(op: BinOp, a: &Expr, b: &Expr) -> bool {
    let ramp = |expr: &Expr| {
        expr.ty.dtype == DType::Index
            && matches!(&expr.kind, ExprKind::Ramp(_, stride) if stride.as_int() == Some(1))
    };
    let same = |expr: &Expr| matches!(expr.kind, ExprKind::Broadcast(_));
    let ordered = matches!(op, BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge);
    ordered && (ramp(a) && same(b) || same(a) && ramp(b))
}
